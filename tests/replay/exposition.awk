# A file of Prometheus's text: every family once, HELP then TYPE then its samples, one sample a series, histograms cumulative. Prints how many samples there are.
function wrong(why) { print "line " NR ": " why; bad = 1; exit 1 }
/^# HELP / { if ($3 in families) wrong($3 " stands twice"); families[$3] = 1; help = $3; next }
/^# TYPE / { if ($3 != help) wrong("TYPE of " $3 " behind HELP of " help); family = $3; type = $4; next }
{
    if (!match($0, /^[a-zA-Z_][a-zA-Z0-9_]*\{[^}]*\} [0-9.]+$/)) wrong("no sample: " $0)
    series = $0; sub(/ [0-9.]+$/, "", series)
    name = series; sub(/\{.*/, "", name)
    if (series in seen) wrong(series " stands twice")
    seen[series] = 1
    if (type == "histogram") sub(/_(bucket|sum|count)$/, "", name)
    if (name != family) wrong(name " stands in the family " family)
    if (series ~ /_bucket\{/) {
        of = series; sub(/,le=.*/, "", of)
        if (of in below && below[of] > $NF) wrong(series " falls")
        below[of] = $NF
    }
    if (series ~ /_count\{/) {
        of = series; sub(/_count/, "_bucket", of); sub(/\}$/, "", of)
        if (below[of] != $NF) wrong(series " is not its last bucket")
    }
    samples++
}
END { if (bad) exit 1; if (samples == 0) { print "no samples"; exit 1 }; print samples }

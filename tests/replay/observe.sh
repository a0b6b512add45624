#!/usr/bin/env bash
# `kvgrid replay --metrics --report`: the file of counters is whole at every moment, the page is well-formed, loads nothing and says what the summary says, and
# a path that cannot be written is refused before anything is served.
#   observe.sh KVGRID DATA      exit 0 passed, 1 failed
set -u
kvgrid=$1 data=$2 here=$(dirname "$0")
unset "${!KVGRID_@}" "${!MEMRA_@}"
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
failures=0 checks=0
metrics=$scratch/metrics.prom page=$scratch/report.html out=$scratch/out err=$scratch/err
job=(replay --model "$data/models/tinyllama-1.1b.json" --trace "$data/traces/azure_llm_2023_conv.csv" --max-tokens 300)

fail() { failures=$((failures + 1)); printf 'FAILED: %s\n' "$*"; }
check() { checks=$((checks + 1)); "$@" || fail "$*"; }
holds() { checks=$((checks + 1)); grep -qF -- "$2" "$1" || fail "$(basename "$1") does not hold: $2"; }
sample() { awk -v series="$1" 'index($0, series) == 1 {print $NF}' "$metrics"; }
equal() { checks=$((checks + 1)); [ "$2" = "$3" ] || fail "$1: '$2', not '$3'"; }

# ---- a run that is read while it goes on
"$kvgrid" "${job[@]}" --ranks 4 --tp 2 --pp 2 --requests 60 --memory 10MB --verify --json --fault refuse:1@step9 --metrics "$metrics" --report "$page" >"$out" 2>"$err" &
run=$!
reads=0 seen=
while kill -0 $run 2>/dev/null; do
  if [ -e "$metrics" ]; then
    cp "$metrics" "$scratch/copy"
    if ! awk -f "$here/exposition.awk" "$scratch/copy" >"$scratch/samples" || [ "$(tail -c 1 "$scratch/copy" | od -An -c | tr -d ' ')" != '\n' ]; then
      fail "a reader saw a file that is not whole: $(cat "$scratch/samples")"
      break
    fi
    reads=$((reads + 1))
    seen="$seen $(awk 'index($0, "kvgrid_uptime_seconds{rank=\"0\"") == 1 {print $NF}' "$scratch/copy")"
  fi
done
wait $run || { fail "the run failed: $(cat "$err")"; cat "$out"; }
json=$(tail -n 1 "$out")
field() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" <<<"$json"; }
first() { sed -n "s/[^[]*\"ranks\":\[{[^}]*\"$1\":\([0-9]*\).*/\1/p" <<<"$json"; } # of rank 0
checks=$((checks + 1))
[ "$reads" -ge 2 ] || fail "the file was read $reads times while the run went on"
checks=$((checks + 1))
[ "$(tr ' ' '\n' <<<"$seen" | sort -u | grep -c .)" -ge 2 ] || fail "the file was never replaced:$seen"
checks=$((checks + 1))
[ -z "$(ls "$scratch" | grep -E '\.tmp$')" ] || fail "something is left: $(ls "$scratch")"

# ---- the counters are the summary's
samples=$(awk -f "$here/exposition.awk" "$metrics")
equal "samples" "$samples" $((4 * (16 + 1 + 6 + 18 + 18 + 26)))
for rank in 0 1 2 3; do
  at="{rank=\"$rank\",stage=\"$((rank / 2))\",model=\"tinyllama-1.1b\""
  equal "commits of rank $rank" "$(sample "kvgrid_commits_total$at")" "$(field commits)"
  equal "rollbacks of rank $rank" "$(sample "kvgrid_rollbacks_total$at")" 1
  equal "refusals of rank $rank" "$(sample "kvgrid_vote_refusals_total$at,reason=\"EBUSY\"")" 1
  equal "growths of rank $rank" "$(sample "kvgrid_grows_total$at")" "$(field grows)"
  equal "content of rank $rank at the end" "$(sample "kvgrid_content_bytes$at")" 0
  equal "booked of rank $rank at the end" "$(sample "kvgrid_booked_bytes$at")" 0
  equal "votes of rank $rank" "$(sample "kvgrid_vote_latency_seconds_count$at")" $(($(field commits) + 1))
done
equal "taken of rank 0" "$(sample 'kvgrid_taken_bytes{rank="0"')" "$(first taken_bytes_end)"

# ---- the page
check awk -f "$here/wellformed.awk" "$page"
checks=$((checks + 1))
grep -nE 'https?:|<script|<link|<img|src=|href=|@import|url\(' "$page" && fail "the page loads something"
digits() { sed -E ':a;s/([0-9])([0-9]{3})(,|$)/\1,\2\3/;ta' <<<"$1"; }
holds "$page" "<b>$(digits "$(field tokens)")</b><span>tokens</span>"
holds "$page" "<b>$(digits "$(field commits)")</b><span>commits</span>"
holds "$page" "$(sed -n 's/^digest *//p' "$out")"
holds "$page" "$(sed -n 's/.*vote p50 \([0-9.]*\) us, p99 \([0-9.]*\) us.*/p50 \1 µs, p99 \2 µs on rank 0/p' "$out")"
holds "$page" "$(sed -n 's/.*tokens .*: \([0-9]*\) state rows.*/\1/p' "$out" | sed -E ':a;s/([0-9])([0-9]{3})(,|$)/\1,\2\3/;ta')"
holds "$page" "<tr><th scope=\"row\">EBUSY</th><td class=\"n\">1</td></tr>"
holds "$page" "--fault refuse:1@step9"
for rank in 0 1 2 3; do
  sizes=$(sed -n "s/^rank $rank  *content \([^,]*\), booked \([^,]*\), taken \(.*\) at most; at the end \([^,]*\), \([^,]*\), and \(.*\) kept for reuse$/\1|\2|\3|\4|\5|\6/p" "$out")
  row=$(tr '|' '\n' <<<"$sizes" | sed 's:.*:<td class="n">&</td>:' | tr -d '\n')
  holds "$page" "<tr><th scope=\"row\">$rank</th><td>$((rank / 2))</td>$row<td class=\"n\">0</td><td class=\"n\">0</td></tr>"
done
equal "pictures of ranks" "$(grep -c '<title id="memory-' "$page")" 4

# ---- words from outside are text
odd=$scratch/$'m<b>&"\'\xff\xc3\xa9\x01.json'
cp "$data/models/tinyllama-1.1b.json" "$odd"
"$kvgrid" "${job[@]}" --model "$odd" --requests 2 --report "$page" >"$out" 2>"$err" || fail "a model with an odd name: $(cat "$err")"
check awk -f "$here/wellformed.awk" "$page"
holds "$page" $'m&lt;b&gt;&amp;&quot;&#39;\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd'
holds "$page" "No step was rolled back."

# ---- refused before anything is served
refused() { # refused WHY ARGUMENTS...
  local why=$1 status
  shift
  "$kvgrid" "${job[@]}" --requests 2 "$@" >"$out" 2>"$err"
  status=$?
  checks=$((checks + 1))
  { [ $status = 2 ] && [ ! -s "$out" ] && [ "$(grep -c '^kvgrid replay: ' "$err")" = 1 ] && grep -qF -- "$why" "$err"; } ||
    fail "exit $status, not 2 with one sentence about '$why': $* $(cat "$err")"
}
for option in --metrics --report; do
  refused "$option: $scratch/none/x cannot be written: No such file or directory" $option "$scratch/none/x"
  refused "$option: $scratch cannot be written: Is a directory" $option "$scratch"
  refused "$option: $scratch/new/ cannot be written: Is a directory" $option "$scratch/new/"
  refused "$option needs a value" $option ""
  refused "$option: " --ranks 2 --tp 2 $option "$scratch/none/x"
done
echo old >"$scratch/old"
refused "unknown" --layout odd --report "$scratch/old"
equal "an older file after a refusal" "$(cat "$scratch/old")" old
ln -s "$scratch/old" "$scratch/link.tmp"
refused "Too many levels of symbolic links" --report "$scratch/link"
equal "what a planted link points to" "$(cat "$scratch/old")" old

# ---- links, pipes and full disks
ln -s "$scratch/old" "$scratch/kept"
"$kvgrid" "${job[@]}" --requests 2 --report "$scratch/kept" >"$out" 2>"$err" || fail "a link: $(cat "$err")"
equal "a link to a file" "$(readlink "$scratch/kept")" "$scratch/old"
check grep -q '^<!DOCTYPE html>' "$scratch/old"
mkfifo "$scratch/pipe"
for option in --metrics --report; do
  timeout 60 "$kvgrid" "${job[@]}" --requests 2 $option "$scratch/pipe" >"$out" 2>"$err"
  equal "$option into a pipe that nobody reads" "$? $(cat "$err")" "1 kvgrid replay: $option: $scratch/pipe cannot be written: No such device or address"
  timeout 60 "$kvgrid" "${job[@]}" --requests 2 $option /dev/full >"$out" 2>"$err"
  equal "$option to a full disk" "$? $(cat "$err")" "1 kvgrid replay: $option: /dev/full cannot be written: No space left on device"
done
for option in --metrics --report --placement; do
  said=$(ulimit -f 0; exec "$kvgrid" "${job[@]}" --requests 2 $option "$scratch/limited" 2>&1 >/dev/null)
  equal "$option past the limit of a file's size" "$said" "kvgrid replay: $option: $scratch/limited cannot be written: File too large"
  check [ ! -e "$scratch/limited" ]
  check [ ! -e "$scratch/limited.tmp" ]
done
cat "$scratch/pipe" >"$scratch/read" &
reader=$!
"$kvgrid" "${job[@]}" --requests 2 --report "$scratch/pipe" >"$out" 2>"$err" || fail "a pipe that is read: $(cat "$err")"
wait $reader
check grep -q '^<!DOCTYPE html>' "$scratch/read"

echo "$checks checks, $reads reads under way, $failures failures"
[ $failures = 0 ]

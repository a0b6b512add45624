#!/bin/sh
# check_readme.sh TESTS_DIR [README]: each test that the table names is in its file and run there; each test of tests/cases is named;
# the cases stand once each, in order.
tests=$1
readme=${2:-$tests/cases/README.md}
failures=$(mktemp) named=$(mktemp)
trap 'rm -f "$failures" "$named"' EXIT
fail() { echo "$*" | tee -a "$failures"; }

# "case file test" a line: cells hold "file: test, test; file: test; words".
awk -F'|' '/^\| B[0-9]/ {
    gsub(/ /, "", $2)
    if ($3 !~ /does not concern what exists, because / && $3 !~ /[a-z_]+\/[a-z_0-9.]+: [a-z]/) print $2, "-", "-"
    n = split($3, parts, ";")
    for (i = 1; i <= n; i++) {
        if (!match(parts[i], /[a-z_]+\/[a-z_0-9]+\.(c|sh|cmake): /)) continue
        file = substr(parts[i], RSTART, RLENGTH - 2)
        m = split(substr(parts[i], RSTART + RLENGTH), names, ",")
        for (j = 1; j <= m; j++) { gsub(/ /, "", names[j]); print $2, file, names[j] }
    }
}' "$readme" >"$named"
[ -s "$named" ] || fail "$readme names no test at all"

while read -r id file name; do
    if [ "$file" = - ]; then
        fail "$id: neither a test nor a reason"
    elif ! [ -f "$tests/$file" ]; then
        fail "$id: there is no file $file"
    elif [ "${file%.c}" = "$file" ]; then
        grep -qw -- "$name" "$tests/$file" || fail "$id: $file does not have $name"
    else
        grep -q "START_TEST($name)" "$tests/$file" || fail "$id: $file does not have $name"
        [ "$(grep -cw -- "$name" "$tests/$file")" -ge 2 ] || fail "$id: $file does not run $name"
    fi
done <"$named"

for file in "$tests"/cases/test_cases_*.c; do
    for name in $(sed -n 's/^START_TEST(\(.*\))$/\1/p' "$file"); do
        grep -qw -- "$name" "$named" || fail "$file: $name shows no case of the table"
    done
done

ids=$(sed -n 's/^| B\([0-9]*\) .*/\1/p' "$readme")
[ "$(echo "$ids" | sort -n -u)" = "$ids" ] || fail "cases stand twice or out of order"
[ "$(echo "$ids" | wc -l)" -eq 127 ] || fail "the table has $(echo "$ids" | wc -l) cases instead of 127"
[ ! -s "$failures" ]

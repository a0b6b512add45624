#!/bin/sh
# The table of the rules' names in tests/NAMES.md: header and test of each, from tests/docs/names.txt.
#   names.sh          every name has a row, and its header and test exist and hold its name in C (or that of its test)
#   names.sh --write  writes the table anew between its two marks
set -eu
cd "$(dirname "$0")/../.."
names=tests/docs/names.txt
page=tests/NAMES.md
mode=${1:-check}

# The header that declares a name (public ones are asked first): a function, a type, a macro, an enumerator or a field.
header_of() {
    for pattern in "^[A-Za-z][^(]*[ *]$1\\(" "^\\}  *$1;" "typedef (struct|enum) $1  *$1;" "^#define $1([ (]|$)" "(^|[ ,{])$1  *=" "[ *]$1(;|,)"; do
        # shellcheck disable=SC2086 # lists of words
        found=$(grep -El "$pattern" $public $private | head -n 1)
        [ -z "$found" ] || { echo "$found"; return; }
    done
}

# The test that says it most often.
test_of() {
    grep -rcw "$1" tests --include='*.c' --include='*.sh' | grep -E '/(test_[a-z0-9_]*|unit_[a-z0-9_]*|vectors[a-z_]*|run_replay)\.(c|sh):' |
        grep -v ':0$' | sort -t: -k2,2nr -k1,1 | head -n 1 | cut -d: -f1
}

write() {
    headers=$(git ls-files 'runtime/*.h' 'tp/*.h' 'pp/*.h' 'launch/mpi/*.h' | grep -v '^pp/kvgrid.h$')
    public=$(for header in $headers; do head -n 1 "$header" | grep -q '^/\*\*' && echo "$header" || true; done)
    private=$(for header in $headers; do head -n 1 "$header" | grep -q '^/\*\*' || echo "$header"; done)
    table=$(mktemp)
    {
        echo "| | name | in C | header | test |"
        echo "|---|---|---|---|---|"
        grep -v '^#' $names | while IFS='|' read -r section name c_name test_name; do
            header=$(header_of "$c_name")
            test=$(test_of "${test_name:-$c_name}")
            if [ -n "$header" ] && [ -n "$test" ]; then
                echo "| $section | $name | \`$c_name\` | [$header](../$header) | [$test](../$test) |"
            else
                [ -z "$header" ] || echo "no test says ${test_name:-$c_name}" >&2
                echo "| $section | $name | | not served yet | |"
            fi
        done
    } > "$table"
    awk -v table="$table" '
        /<!-- names: begin/ { print; while ((getline line < table) > 0) print line; skip = 1; next }
        /<!-- names: end/ { skip = 0 }
        !skip { print }' $page > "$table.md"
    cat "$table.md" > $page
    rm -f "$table" "$table.md"
}

check() {
    failed=0
    rows=0
    served=0
    wrong() { echo "$page: $*"; failed=1; }
    while IFS='|' read -r section name c_name test_name; do
        case $section in "#"*) continue ;; esac
        rows=$((rows + 1))
        row=$(grep -F "| $section | $name |" $page | head -n 1)
        [ -n "$row" ] || { wrong "no row for $name of $section"; continue; }
        case $row in *"| not served yet |"*) continue ;; esac
        served=$((served + 1))
        header=$(echo "$row" | sed -n 's/.*| \[\([^]]*\)\].*| \[.*/\1/p')
        test=$(echo "$row" | sed -n 's/.*| \[\([^]]*\)\][^|]*|$/\1/p')
        case $row in *"| \`$c_name\` |"*) ;; *) wrong "the row of $name does not say $c_name" ;; esac
        grep -qw -- "$c_name" "$header" || wrong "$header does not hold $c_name"
        grep -qw -- "${test_name:-$c_name}" "$test" || wrong "$test does not hold ${test_name:-$c_name}"
    done < $names
    [ "$rows" -ge 150 ] || wrong "only $rows names are listed"
    echo "$rows names, $served with header and test, $((rows - served)) not served yet"
    [ "$failed" = 0 ]
}

if [ "$mode" = --write ]; then write; else check; fi

#!/bin/sh
# The manual pages say what the command says: every option of --help with its argument stands in the part's page and the other way round, every part in
# kvgrid(1), every knob in kvgrid-knobs(1); and they render without a warning (mandoc where it is there, else groff; neither: said so).
#   man.sh BUILD_DIR
set -eu
build=$1
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

same() { # same WHAT: the command's words in $work/command, the page's in $work/page
    sort -u "$work/command" > "$work/a"
    sort -u "$work/page" > "$work/b"
    [ -s "$work/a" ] || { echo "$1: nothing was found in what the command prints"; failed=1; }
    if ! diff "$work/a" "$work/b" > "$work/difference"; then
        echo "$1:"
        sed -n 's/^< /    printed by the command, not in the page: /p; s/^> /    in the page, not printed by the command: /p' "$work/difference"
        failed=1
    fi
}

"$build/kvgrid" --help | sed -n 's/^  \([a-z][a-z]*\)  *[^ ].*/\1/p' | grep -v '^kvgrid$' > "$work/parts"
sed -n 's/^\.It Cm //p' launch/man/kvgrid.1 > "$work/page"
cp "$work/parts" "$work/command"
same "kvgrid.1, parts"

while read -r part; do
    page=launch/man/kvgrid-$part.1
    [ -f "$page" ] || { echo "$page is missing"; failed=1; continue; }
    "$build/kvgrid" "$part" --help > "$work/help"
    # "  --name ARGUMENT   words": an option without an argument has two spaces or more after it
    { sed -n 's/^  \(--[a-z-]*\)  .*/\1/p; s/^  \(--[a-z-]* [^ ][^ ]*\)  *[^ ].*/\1/p' "$work/help"; echo "--help"; } > "$work/command"
    sed -n 's/^\.It Fl -\([a-z-]*\)$/--\1/p; s/^\.It Fl -\([a-z-]*\) Ar \(.*\)$/--\1 \2/p' "$page" > "$work/page"
    same "$page, options"
done < "$work/parts"
[ "$(wc -l < "$work/parts")" -ge 4 ] || { echo "only these parts were found: $(cat "$work/parts")"; failed=1; }

"$build/kvgrid" knobs | sed -n 's/^\(KVGRID_[A-Z0-9_]*\) .*/\1/p' > "$work/command"
sed -n 's/^\.It Ev //p' launch/man/kvgrid-knobs.1 > "$work/page"
same "kvgrid-knobs.1, knobs"

with="nothing (neither mandoc nor groff is here)"
for page in launch/man/*.1; do
    if command -v mandoc > /dev/null; then
        with=mandoc
        mandoc -T lint -W warning "$page" > "$work/said" 2>&1 || true
    elif command -v groff > /dev/null; then
        with=groff
        groff -mdoc -ww -Tascii -P-c -P-b -P-u "$page" 2> "$work/said" > "$work/text"
        grep -q "^NAME" "$work/text" || { echo "$page: groff prints no NAME"; failed=1; }
    else
        : > "$work/said"
    fi
    if [ -s "$work/said" ]; then
        cat "$work/said"
        failed=1
    fi
    for other in $(sed -n 's/^\.Xr \(kvgrid[a-z-]*\) 1.*/\1/p' "$page"); do
        [ -f "launch/man/$other.1" ] || { echo "$page refers to $other(1), which is no page"; failed=1; }
    done
done
[ "$failed" = 0 ] || exit 1
echo "$(find launch/man -name '*.1' | wc -l) pages say what the command says; rendered with $with"

#!/bin/sh
# The pages of tests/docs/pages.txt hold together: every page of the tree is listed, every link leads somewhere, every file and script named is there, every
# public name is declared.
#   pages.sh
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pages=$(cat tests/docs/pages.txt)
failed=0
wrong() { echo "$*"; failed=1; }

# ---- the list, and fences that are closed

for page in $pages; do
    [ -f "$page" ] || wrong "tests/docs/pages.txt lists $page, which is not there"
    [ $(($(grep -c '^```' "$page") % 2)) = 0 ] || wrong "$page leaves a fence open"
done
find . -name '*.md' -not -path './.*' -not -path './build*' -not -path './shared/*' | sed 's,^\./,,' | sort > "$work/there"
sort tests/docs/pages.txt | comm -23 "$work/there" - > "$work/unlisted"
[ ! -s "$work/unlisted" ] || wrong "not in tests/docs/pages.txt: $(tr '\n' ' ' < "$work/unlisted")"

# ---- links: a file, or a heading as its anchor is made of it

outside_fences() { awk '/^```/ { inside = !inside; next } !inside' "$1"; }
anchors() { outside_fences "$1" | sed -n 's/^##* //p' | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'; }

links=0
for page in $pages; do
    outside_fences "$page" | grep -oE '\]\([^)]+\)' | sed 's/^](//; s/)$//' | grep -v '^https\?:' | sort -u > "$work/links" || true
    while read -r link; do
        links=$((links + 1))
        target=${link%%#*}
        if [ -n "$target" ]; then target=$(dirname "$page")/$target; else target=$page; fi
        [ -e "$target" ] || { wrong "$page: the link $link leads nowhere"; continue; }
        case $link in
        *#*) anchors "$target" | grep -qxF -- "${link#*#}" || wrong "$page: $link: no such heading there" ;;
        esac
    done < "$work/links"
done
[ "$links" -ge 90 ] || wrong "only $links links were found"

# ---- what is named in the text: scripts that can be run, files, and public names

# shellcheck disable=SC2013 # names have no spaces
for script in $(cat $pages | grep -oE '(tests|launch)/[a-z_/]+\.sh' | sort -u); do
    [ -x "$script" ] || wrong "$script is named, and cannot be run"
done
# shellcheck disable=SC2013
for file in $(cat $pages | grep -oE '`(runtime|tp|pp|kernels|launch|tests|bench)/[A-Za-z0-9_./-]+`' | tr -d '`' | sort -u); do
    case $file in tests/hwloc/*) continue ;; esac # of hwloc's tree
    [ -e "$file" ] || wrong "$file is named, and is not there"
done
find runtime tp pp kernels launch \( -name '*.h' -o -name '*.cuh' \) -exec cat {} + | grep -ohwE '(kvg|KVG)_[A-Za-z0-9_]+' | sort -u > "$work/declared"
for page in $pages; do # a name that ends in _ stands for many
    grep -ohwE '(kvg|KVG)_[A-Za-z0-9_]*[A-Za-z0-9]' "$page" | sort -u | comm -23 - "$work/declared" > "$work/unknown"
    while read -r name; do
        grep -rqw --include='*.c' --include='*.h' --include='*.txt' --include='*.cmake' --include='*.sh' -- "$name" CMakeLists.txt runtime tp pp kernels launch tests && continue
        wrong "$page says $name, which no header declares"
    done < "$work/unknown"
done

[ "$failed" = 0 ] || exit 1
echo "$(wc -l < tests/docs/pages.txt) pages, $links links"

#!/usr/bin/env bash
# Mutation test of the simulator: each patch of mutants/ plants one bug in a copy of the production sources that it touches; only what depends on them is
# compiled anew, linked with the rest of the build's objects into a simulator, and run. Every planted bug must be found, and the unpatched simulator must find none.
#   mutants.sh BUILD_DIR [--steps N] [--seeds N] [NAME..]     all mutants, or those named; a seed's run stops at N steps
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$(cd "$1" && pwd)
shift
steps=60000 seeds=6 names=()
while [ $# -gt 0 ]; do
    case $1 in
    --steps) steps=$2; shift 2 ;;
    --seeds) seeds=$2; shift 2 ;;
    *) names+=("$1"); shift ;;
    esac
done
if [ ${#names[@]} = 0 ]; then
    for patch in "$here"/mutants/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
read -ra compiler <<< "${CC:-cc}"
flags=(-std=gnu11 -O2 -D_GNU_SOURCE '-DKVG_VERSION="mutant"' -ffp-contract=off)
objects=$build/CMakeFiles/kvg_objects.dir
read -ra libraries <<< "$(pkg-config --libs jansson libxxhash)"

# The production sources that see a header.
dependents() { # dependents HEADER
    (cd "$root" && for source in $(find runtime tp pp -name '*.c'); do
        "${compiler[@]}" "${flags[@]}" -I"$root" -I"$build/include" -MM "$source" | tr -d '\\\n' | grep -q " [^ ]*$1 \| [^ ]*$1\$" && echo "$source"
    done) || true
}

build_mutant() { # build_mutant NAME DIRECTORY: compiles the simulator with the patch
    local patch=$here/mutants/$1.patch tree=$2 file sources=() replaced=() linked=()
    for file in $(sed -n 's,^+++ b/,,p' "$patch"); do
        mkdir -p "$tree/$(dirname "$file")"
        cp "$root/$file" "$tree/$file"
        case $file in
        *.c) sources+=("$file") ;;
        *) mapfile -t -O ${#sources[@]} sources < <(dependents "$file") ;;
        esac
    done
    patch -s -p1 -F0 -d "$tree" < "$patch" || { echo "$1: the patch does not apply to the tree any more"; return 1; }
    mapfile -t sources < <(printf '%s\n' "${sources[@]}" | sort -u)
    printf '%s\n' "${sources[@]}" | xargs -P2 -I{} sh -c '
        from='"$root"'; [ ! -f '"$tree"'/{} ] || from='"$tree"'
        '"${compiler[*]} ${flags[*]@Q}"' -I'"$tree"' -I'"$root"' -I'"$build"'/include -c "$from/{}" -o '"$tree"'/$(echo {} | tr / _).o'
    for file in "${sources[@]}"; do replaced+=("$objects/$file.o"); done
    mapfile -t linked < <(find "$objects" -name '*.o' | grep -vxF "$(printf '%s\n' "${replaced[@]}")")
    "${compiler[@]}" "$tree"/*.o "${linked[@]}" "$build"/tests/CMakeFiles/simulate.dir/simulate/*.o "${libraries[@]}" -lm -lpthread -o "$tree/simulate"
}

run_mutant() { # run_mutant NAME: 0 if the bug is found
    local tree=$work/$1 seed out=$work/$1.out status
    build_mutant "$1" "$tree" || return 1
    for ((seed = 1; seed <= seeds; seed++)); do
        status=0
        timeout 120 "$tree/simulate" --seed "$seed" --steps "$steps" > "$out" 2>&1 || status=$?
        if [ "$status" = 1 ]; then
            printf 'found   %-32s %s\n' "$1" "$(grep -m1 '^simulate: seed' "$out" | cut -c11-170)"
            rm -rf "$tree"
            return 0
        fi
        [ "$status" = 0 ] || { echo "$1: seed $seed ended with status $status"; tail -2 "$out"; return 1; }
    done
    echo "MISSED  $1: $((seeds * steps)) steps and no violation ($(head -1 "$here/mutants/$1.patch"))"
    rm -rf "$tree"
    return 1
}

failed=0
if "$build/tests/simulate" --seed 1 --steps "$steps" > "$work/none.out" 2>&1; then
    echo "passes  (the tree as it is)              $(tail -1 "$work/none.out")"
else
    echo "FAILS   (the tree as it is)              $(tail -2 "$work/none.out")"
    failed=1
fi
for name in "${names[@]}"; do
    run_mutant "$name" || failed=1
done
exit "$failed"

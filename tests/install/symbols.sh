#!/bin/sh
# What the libraries export is what tests/install/symbols.txt lists: nothing more, nothing less, all of it with the prefix.
#   symbols.sh BUILD_DIR           compares; says what was added and what is gone. A name that goes, or changes its meaning, needs a new SONAME
#   symbols.sh BUILD_DIR --write   writes the list anew (for the libraries that are built; the others' lines stay)
# Also: every name is declared by an installed header, or stands in private_names below with its reason; every function that a header declares is there;
# static archives define no global name without the prefix; SONAMEs say the major version; libkvgrid needs no MPI.
set -eu
build=$(cd "$1" && pwd)
mode=${2:-check}
cd "$(dirname "$0")/../.."
list=tests/install/symbols.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
wrong() { echo "$*"; failed=1; }

# The shared libkvgrid_mpi sets the last error of, counts its memory in, and waits by the clock of the libkvgrid beside it (error.h, memory.h, clock.h).
private_names="kvg_fail kvg_assert_failed kvg_calloc kvg_free kvg_strdup kvg_fault_hit kvg_clock_ns kvg_clock_relax"

shared() { find "$build" -maxdepth 2 -name "$1.so"; }
exported() { nm -D --defined-only "$1" | awk '$2 != "A" {print $2, $3}' | LC_ALL=C sort; }

: > "$work/now"
for library in libkvgrid libkvgrid_mpi; do
    file=$(shared $library)
    if [ -z "$file" ]; then
        grep "^$library " $list >> "$work/now" || true
        continue
    fi
    exported "$file" | sed "s/^/$library /" >> "$work/now"
    soname=$(objdump -p "$file" | awk '$1 == "SONAME" {print $2}')
    major=$(sed -n 's/^project(kvgrid VERSION \([0-9]*\).*/\1/p' CMakeLists.txt)
    [ "$soname" = "$library.so.$major" ] || wrong "$library.so has the SONAME $soname, not $library.so.$major"
    [ "$(readlink -f "$file")" = "$(readlink -f "$(dirname "$file")/$soname")" ] || wrong "$soname is not $library.so"
done
if objdump -p "$(shared libkvgrid)" | grep -Ei 'NEEDED.*(mpi|cuda|nccl|pmix)'; then
    wrong "libkvgrid.so needs a library that programs without MPI or a GPU do not have"
fi

if [ "$mode" = --write ]; then
    { sed -n '/^#/p' $list; cat "$work/now"; } > "$work/list"
    cat "$work/list" > $list
    exit 0
fi
grep -v '^#' $list > "$work/listed"
if ! diff "$work/listed" "$work/now" > "$work/difference"; then
    sed -n 's/^> /exported, and not listed: /p; s/^< /listed, and not exported: /p' "$work/difference"
    wrong "tests/install/symbols.txt is not what is exported; if it is meant: tests/install/symbols.sh BUILD_DIR --write"
fi
awk '$3 !~ /^kvg_[a-z0-9_]+$/ || $2 != "T"' "$work/now" > "$work/odd"
[ ! -s "$work/odd" ] || wrong "no functions of ours: $(cat "$work/odd")"

# Declared and exported are the same. A declaration may run over lines; inline functions and members of structs are none.
for library in libkvgrid libkvgrid_mpi; do
    [ -n "$(shared $library)" ] || continue
    case $library in
    libkvgrid_mpi) headers=$build/include/kvgrid/kvgrid_mpi.h ;;
    *) headers=$(find "$build/include/kvgrid" -name '*.h' ! -name 'kvgrid_mpi.h' | while read -r header; do
           find kernels -name "$(basename "$header")" | grep -q . || echo "$header"; done) ;;
    esac
    # shellcheck disable=SC2086 # lists of words
    cat $headers | tr '\n' ' ' | grep -oE 'KVG_API [^;(]*\(' | grep -oE 'kvg_[a-z0-9_]+\($' | tr -d '(' | LC_ALL=C sort -u > "$work/declared"
    awk -v library=$library '$1 == library {print $3}' "$work/now" | LC_ALL=C sort -u > "$work/there"
    for name in $(comm -23 "$work/declared" "$work/there"); do
        wrong "$name is declared by an installed header, and $library does not export it"
    done
    for name in $(comm -13 "$work/declared" "$work/there"); do
        case " $private_names " in *" $name "*) ;; *) wrong "$library exports $name, and no installed header declares it" ;; esac
    done
    [ "$(wc -l < "$work/declared")" -ge 3 ] || wrong "$library: no declarations were found"
done

# Static archives: every global name has the prefix; of CUDA's also what nvcc makes by itself, and mangled names that hold the prefix or are of a
# namespace without a name, which is no other object's, and the weak ones of NVTX's headers, which are made to be shared with other users of it.
archives=0
for archive in $(find "$build" -maxdepth 3 -name 'libkvgrid*.a'); do
    nm -g --defined-only "$archive" 2> /dev/null | awk 'NF == 3 && $3 !~ /^kvg_/ && !($2 ~ /^[VWu]$/ && $3 ~ /[Nn]vtx/) && $3 !~ /^_Z.*(kvg_|_GLOBAL__N_)/ && $3 !~ /^(DW\.ref\.|__fatbinwrap|__cudaRegisterLinkedBinary|fatbinData|__nv_)/ {print $3}' > "$work/bare"
    [ ! -s "$work/bare" ] || wrong "$(basename "$archive") defines names without the prefix: $(tr '\n' ' ' < "$work/bare")"
    archives=$((archives + 1))
done
[ "$archives" -ge 1 ] || wrong "no static archive was built"

[ "$failed" = 0 ] || exit 1
echo "$(wc -l < "$work/now") exported names are as listed and declared; $archives static archives have the prefix"

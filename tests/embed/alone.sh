#!/bin/sh
# The embedding is the model to copy, so: it compiles outside the tree from public headers and two libraries alone, has no MPI in its process, includes
# nothing private, and its frontend proper stays short.
#   alone.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/../.."
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$1"; exit 1; }

lines=$(wc -l < launch/embed/serve.c)
[ "$lines" -lt 400 ] || fail "serve.c has $lines lines: the frontend proper has to stay under 400"
private=$(grep -n '#include "' launch/embed/*.c launch/embed/*.h | grep '/.*"' | grep -v 'include "[a-z]*\.h"' || true)
[ -z "$private" ] || fail "includes that only this tree has: $private"

mkdir "$work/copy" "$work/include"
cp launch/embed/*.c launch/embed/*.h "$work/copy"
cp -r "$build/include/kvgrid" "$work/include"
# shellcheck disable=SC2046,SC2086 # flags are words
"$CC" -Wall -Wextra -Werror $FLAGS -O1 -I"$work/include" "$work"/copy/*.c -L"$build" -lkvgrid $(pkg-config --cflags --libs jansson) -lm \
    -Wl,-rpath,"$(cd "$build" && pwd)" -o "$work/serve"
echo '{"id": "a", "prompt": "hello", "max_tokens": 3}' > "$work/requests"
"$work/serve" --tp 2 --pp 2 < "$work/requests" > "$work/outside"
"$build/kvgrid_embed" < "$work/requests" | diff - "$work/outside" || fail "built outside it answers something else"

for program in "$work/serve" "$build/kvgrid_embed"; do
    libraries=$(ldd "$program")
    echo "$libraries" | grep -q 'libkvgrid\.so' || fail "$program does not use the shared library"
    case $libraries in *libmpi* | *libopen-rte* | *libpmix* | *libkvgrid_mpi*) fail "$program has MPI in its process: $libraries" ;; esac
done
echo "compiled outside, no MPI; serve.c has $lines lines"

#!/bin/sh
# Installs a build into a fresh prefix, moves the prefix, and builds from it: every header alone, a CMake project, one line of pkg-config.
#   install_outside.sh BUILD_DIR WITH_MPI(0|1)
set -eu
build=$1
with_mpi=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" > "$work/install.log"
mv "$work/first" "$work/prefix"
prefix=$work/prefix
libdir=$(dirname "$(find "$prefix" -name libkvgrid.so | head -n 1)")

count=0
for header in "$prefix"/include/kvgrid/*.h; do
    name=$(basename "$header")
    case $name in
    kvgrid_mpi.h)
        [ "$with_mpi" = 1 ] || { echo "$name is installed without MPI"; exit 1; }
        continue ;;
    esac
    printf "#include <kvgrid/%s>\nextern int alone;\n" "$name" > "$work/alone.c"
    "$CC" -std=c11 -pedantic-errors -Wall -Wextra -Werror -I"$prefix/include" -fsyntax-only "$work/alone.c"
    "$CXX" -std=c++17 -Wall -Wextra -Werror -I"$prefix/include" -fsyntax-only -x c++ "$work/alone.c"
    [ "$name" = export.h ] || [ "$name" = kvgrid.h ] || [ "$name" = kvgrid_cuda.h ] || [ "$name" = kvgrid_vote_nccl.h ] || [ "$name" = kvgrid_comm_nccl.h ] || grep -q "<kvgrid/$name>" "$prefix"/include/kvgrid/*.h ||
        { echo "$name is public, and the umbrella does not reach it"; exit 1; }
    count=$((count + 1))
done
[ "$count" -ge 20 ] || { echo "only $count headers are installed"; exit 1; }

other=$(nm -D --defined-only "$libdir/libkvgrid.so" | awk '$3 !~ /^kvg_/ {print $3}')
[ -z "$other" ] || { echo "libkvgrid.so exports names without the prefix: $other"; exit 1; }

expected="kvgrid $("$prefix/bin/kvgrid" --version | awk '{print $2}'): 348 bytes a token"
same() { # same WHAT OUTPUT
    [ "$2" = "$expected" ] || { echo "$1 printed '$2', not '$expected'"; exit 1; }
    echo "$1: $2"
}

cmake -S "$here" -B "$work/outside" -DCMAKE_PREFIX_PATH="$prefix" -DOUTSIDE_MPI="$with_mpi" > "$work/outside.log" 2>&1 &&
    cmake --build "$work/outside" >> "$work/outside.log" 2>&1 || { cat "$work/outside.log"; exit 1; }
same "find_package, shared" "$("$work/outside/with_shared")"
same "find_package, static" "$("$work/outside/with_static")"
if [ "$with_mpi" = 1 ]; then
    "$work/outside/with_mpi"
    "$work/outside/with_mpi_static"
fi

export PKG_CONFIG_PATH="$libdir/pkgconfig"
# shellcheck disable=SC2046 # flags are words
"$CC" -std=c11 "$here/outside.c" $(pkg-config --cflags --libs kvgrid) -o "$work/with_pkg_config"
same "pkg-config" "$(LD_LIBRARY_PATH="$libdir" "$work/with_pkg_config")"

# A grid of processes with libkvgrid alone: by either ready bootstrap, the same digest, and no MPI in the process.
# shellcheck disable=SC2046 # flags are words
"$CC" -std=gnu11 -Wall -Wextra -Werror "$here/outside_grid.c" $(pkg-config --cflags --libs kvgrid) -o "$work/grid"
export LD_LIBRARY_PATH="$libdir"
libraries=$(ldd "$work/grid"; ldd "$libdir/libkvgrid.so")
case $libraries in *libmpi* | *libopen-rte* | *libopen-pal* | *libpmix*) echo "a program with libkvgrid alone has MPI in its process: $libraries"; exit 1 ;; esac
for way in tcp shm; do
    "$work/grid" $way > "$work/grid.$way"
    cat "$work/grid.$way"
done
[ "$(sed 's/.*: //' "$work/grid.tcp")" = "$(sed 's/.*: //' "$work/grid.shm")" ] || { echo "the digests differ"; exit 1; }
grep -Eq ': [0-9a-f]{32}$' "$work/grid.shm" || { echo "there is no digest"; exit 1; }
echo "$count headers stand alone as C11 and C++17"

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
        printf '#include <kvgrid/kvgrid_mpi.h>\nextern int alone;\n' > "$work/alone.c" # MPI's own headers are not pedantic, and its C++ ones warn
        OMPI_CC=$CC mpicc -std=c11 -Wall -Wextra -Werror -I"$prefix/include" -fsyntax-only "$work/alone.c"
        OMPI_CXX=$CXX mpicxx -std=c++17 -DOMPI_SKIP_MPICXX -Wall -Wextra -Werror -I"$prefix/include" -fsyntax-only -x c++ "$work/alone.c"
        continue ;;
    esac
    # The tree of sources is not in reach here, so a header that needs a private one does not compile; nor may it name one.
    if grep -n '#include "' "$header"; then echo "$name includes a header that is not installed as <kvgrid/...>"; exit 1; fi
    printf "#include <kvgrid/%s>\nextern int alone;\n" "$name" > "$work/alone.c"
    "$CC" -std=c11 -pedantic-errors -Wall -Wextra -Werror -I"$prefix/include" -fsyntax-only "$work/alone.c"
    "$CXX" -std=c++17 -pedantic -Wall -Wextra -Werror -I"$prefix/include" -fsyntax-only -x c++ "$work/alone.c"
    [ "$name" = export.h ] || [ "$name" = kvgrid.h ] || [ "$name" = kvgrid_cuda.h ] || [ "$name" = kvgrid_vote_nccl.h ] || [ "$name" = kvgrid_comm_nccl.h ] || grep -q "<kvgrid/$name>" "$prefix"/include/kvgrid/*.h ||
        { echo "$name is public, and the umbrella does not reach it"; exit 1; }
    count=$((count + 1))
done
[ "$count" -ge 20 ] || { echo "only $count headers are installed"; exit 1; }

expected="kvgrid $("$prefix/bin/kvgrid" --version | awk '{print $2}'): 348 bytes a token"
same() { # same WHAT OUTPUT
    [ "$2" = "$expected" ] || { echo "$1 printed '$2', not '$expected'"; exit 1; }
    echo "$1: $2"
}

with_cuda=0
[ ! -f "$prefix/include/kvgrid/kvgrid_cuda.h" ] || with_cuda=1
cmake -S "$here" -B "$work/outside" -DCMAKE_PREFIX_PATH="$prefix" -DOUTSIDE_MPI="$with_mpi" -DOUTSIDE_CUDA="$with_cuda" > "$work/outside.log" 2>&1 &&
    cmake --build "$work/outside" >> "$work/outside.log" 2>&1 || { cat "$work/outside.log"; exit 1; }
same "find_package, shared" "$("$work/outside/with_shared")"
same "find_package, static" "$("$work/outside/with_static")"
if [ "$with_mpi" = 1 ]; then
    "$work/outside/with_mpi"
    "$work/outside/with_mpi_static"
fi
[ "$with_cuda" = 0 ] || "$work/outside/with_cuda"
one_library() { # one_library PROGRAM: a second libkvgrid beside the archive would have states of its own
    if ldd "$1" | grep libkvgrid; then echo "$1: the shared library was linked beside the archive"; exit 1; fi
    "$1"
}
[ "$with_cuda$with_mpi" != 11 ] || one_library "$work/outside/with_mpi_cuda"

# What is asked for and is not there is not found, by name: another version, a component that nobody knows.
refused() { # refused WHAT WORDS FIND_PACKAGE_ARGUMENTS..
    what=$1 words=$2
    shift 2
    mkdir -p "$work/refused"
    printf 'cmake_minimum_required(VERSION 3.22)\nproject(refused C)\nfind_package(kvgrid %s REQUIRED)\n' "$*" > "$work/refused/CMakeLists.txt"
    rm -rf "$work/refused/build"
    if cmake -S "$work/refused" -B "$work/refused/build" -DCMAKE_PREFIX_PATH="$prefix" > "$work/refused.log" 2>&1; then
        echo "find_package(kvgrid $*) was served: $what"; exit 1
    fi
    grep -q "$words" "$work/refused.log" || { cat "$work/refused.log"; exit 1; }
}
refused "a later minor version" 'requested version "0.2"' 0.2
refused "a later major version" 'requested version "1.0"' 1.0
refused "another minor version" 'requested version "0.0"' 0.0
refused "an unknown component" 'without the component nosuch' 0.1 COMPONENTS nosuch

PKG_CONFIG_PATH="$libdir/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
export PKG_CONFIG_PATH
version=$("$prefix/bin/kvgrid" --version | awk '{print $2}')
[ "$(pkg-config --modversion kvgrid)" = "$version" ] || { echo "pkg-config says version $(pkg-config --modversion kvgrid), the command $version"; exit 1; }
pkg-config --atleast-version=0.1 kvgrid
! pkg-config --atleast-version=0.2 kvgrid || { echo "pkg-config takes $version for 0.2"; exit 1; }
# shellcheck disable=SC2046 # flags are words
"$CC" -std=c11 "$here/outside.c" $(pkg-config --cflags --libs kvgrid) -o "$work/with_pkg_config"
same "pkg-config" "$(LD_LIBRARY_PATH="$libdir" "$work/with_pkg_config")"
# shellcheck disable=SC2046
"$CXX" -std=c++17 -x c++ "$here/outside.c" -x none $(pkg-config --cflags --libs kvgrid) -o "$work/with_pkg_config_cxx"
same "pkg-config, C++" "$(LD_LIBRARY_PATH="$libdir" "$work/with_pkg_config_cxx")"
if [ "$with_mpi" = 1 ]; then
    # shellcheck disable=SC2046
    OMPI_CC=$CC mpicc -std=c11 "$here/outside_mpi.c" $(pkg-config --cflags --libs kvgrid_mpi) -o "$work/with_pkg_config_mpi"
    LD_LIBRARY_PATH="$libdir" "$work/with_pkg_config_mpi"
fi
if [ "$with_cuda" = 1 ]; then
    # shellcheck disable=SC2046
    "$CC" -std=c11 "$here/outside_cuda.c" $(pkg-config --cflags --libs kvgrid_cuda) -o "$work/with_pkg_config_cuda"
    "$work/with_pkg_config_cuda"
    if [ -n "${NVCC:-}" ]; then # which refuses flags of cc's that it does not know
        # shellcheck disable=SC2046
        "$NVCC" "$here/outside_cuda.c" $(pkg-config --cflags --libs kvgrid_cuda) -o "$work/with_pkg_config_nvcc"
        "$work/with_pkg_config_nvcc"
    fi
    if [ "$with_mpi" = 1 ]; then
        # shellcheck disable=SC2046
        OMPI_CC=$CC mpicc -std=c11 "$here/outside_mpi_cuda.c" $(pkg-config --cflags kvgrid_cuda) -L"$libdir" -l:libkvgrid_mpi.a $(pkg-config --libs kvgrid_cuda) \
            -o "$work/with_pkg_config_mpi_cuda"
        one_library "$work/with_pkg_config_mpi_cuda"
    fi
fi
rm "$libdir"/libkvgrid.so* # then -lkvgrid is the archive
# shellcheck disable=SC2046
"$CC" -std=c11 "$here/outside.c" $(pkg-config --static --cflags --libs kvgrid) -o "$work/with_archive"
if ldd "$work/with_archive" | grep libkvgrid; then echo "pkg-config --static: the shared library was linked"; exit 1; fi
same "pkg-config --static" "$("$work/with_archive")"

for page in kvgrid kvgrid-plan kvgrid-replay kvgrid-doctor kvgrid-knobs; do
    find "$prefix" -path "*/man/man1/$page.1" | grep -q . || { echo "the page $page(1) is not installed"; exit 1; }
done
echo "$count headers stand alone as C11 and C++17"

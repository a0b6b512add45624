# Set-up shared by launch/demo, launch/check and .ci/run; sourced by them, with bash.
#   setup_require base|all   install what is missing, or say what to install and stop (exit 2)
#   setup_build DIR TARGETS  configure and build; "all" or names of targets; the log is DIR/setup.log
#   setup_ranks N COMMAND..  run a command under mpirun, more ranks than cores if need be; "${setup_mpirun[*]} -n N" is what it types
# shellcheck shell=bash disable=SC2034

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
assume_yes=0
jobs=$(nproc 2>/dev/null || echo 2)
mpi_parts=ON  # OFF: build without MPI although it may be here
test_parts=ON # OFF: Check may be missing
build_options=() # more -D options of CMake

# ranks may outnumber cores, run as root in a container, and not be allowed to read each other's memory there
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none

say() { printf '%s\n' "$*"; }
tell() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; } # of the way there, which is no part of what a script shows
step() { printf '\n== %s\n' "$*"; }
fail() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 2; }

# ---- what is missing, found by trying it, so that what came from elsewhere than a package counts too

setup_compiles() { # setup_compiles COMPILER LANGUAGE
    echo '#include <stdlib.h>
int main(void) { return 0; }' | "$1" -x "$2" - -o /dev/null 2>/dev/null
}

setup_cmake_is_new() {
    local version
    version=$(cmake --version 2>/dev/null | awk 'NR == 1 {print $3}')
    [ -n "$version" ] && [ "$(printf '3.22\n%s\n' "$version" | sort -V | head -n 1)" = 3.22 ]
}

setup_has() { # setup_has PACKAGE: is what this Debian package brings here?
    case $1 in
    gcc) setup_compiles "${CC:-cc}" c ;;
    g++) setup_compiles "${CXX:-c++}" c++ ;;
    make) command -v make || command -v ninja ;;
    cmake) setup_cmake_is_new ;;
    pkg-config) command -v pkg-config ;;
    libjansson-dev) pkg-config --exists jansson ;;
    libxxhash-dev) pkg-config --exists libxxhash ;;
    openmpi-bin) command -v mpirun ;;
    libopenmpi-dev) command -v mpicc ;;
    libhwloc-dev) pkg-config --exists hwloc ;;
    check) pkg-config --exists check ;;
    slurmctld | slurmd | munge) [ -x "$(PATH=$PATH:/usr/sbin command -v "${1/munge/munged}")" ] ;;
    slurm-client) command -v srun && command -v sbatch ;;
    clang) echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | clang -x c -fsanitize=fuzzer,address - -o /dev/null ;;
    *) false ;;
    esac >/dev/null 2>&1
}

setup_base="gcc g++ make cmake pkg-config libjansson-dev libxxhash-dev" # enough for kvgrid plan
setup_rest="openmpi-bin libopenmpi-dev libhwloc-dev check"

setup_missing() { # setup_missing PACKAGE..
    local package missing=""
    for package in "$@"; do
        setup_has "$package" || missing="$missing $package"
    done
    echo "${missing# }"
}

# ---- installing

setup_is_debian() {
    [ -r /etc/os-release ] && command -v apt-get >/dev/null 2>&1 && grep -Eqi '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release
}

setup_other_system() { # setup_other_system MISSING
    cat >&2 <<EOF
$(basename "$0"): packages are installed for you on Debian and its kin only. Missing here, by their Debian names: $1
Install a C11 and a C++17 compiler, make or ninja, CMake 3.22 or later, pkg-config, Jansson, xxHash, Open MPI 4 or later,
hwloc and Check, then run $(basename "$0") again, or by hand:

  cmake -S . -B build
  cmake --build build -j
  ctest --test-dir build --output-on-failure
EOF
    exit 2
}

setup_ask() { # setup_ask COMMAND
    [ "$assume_yes" = 1 ] && return
    [ -t 0 ] || fail "nobody to ask whether to run '$1'; --yes says yes"
    local answer
    read -r -p "Run '$1'? [y/N] " answer
    case $answer in [yY]*) ;; *) fail "nothing was installed; run it yourself, then this again" ;; esac
}

setup_install() { # setup_install PACKAGE..
    local as_root="" command="apt-get install -y --no-install-recommends $*"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null 2>&1 || fail "not root, and no sudo here; as root: $command"
        as_root="sudo"
    fi
    setup_ask "${as_root:+sudo }$command"
    tell "installing, about half a minute"
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq || fail "apt-get update failed"
    # shellcheck disable=SC2086 # a command of words
    $as_root env DEBIAN_FRONTEND=noninteractive $command -qq > "$setup_log" 2>&1 ||
        { tail -n 20 "$setup_log" >&2; fail "this failed: $command"; }
}

setup_require() { # setup_require base|all
    local wanted="$setup_base" missing
    [ "$1" = base ] || wanted="$setup_base $setup_rest"
    # shellcheck disable=SC2086 # lists of words
    missing=$(setup_missing $wanted)
    [ -z "$missing" ] && return
    step "missing: $missing"
    setup_is_debian || setup_other_system "$missing"
    # shellcheck disable=SC2086
    setup_install $missing
    # shellcheck disable=SC2086
    missing=$(setup_missing $wanted)
    [ -z "$missing" ] || fail "still missing after the install: $missing"
}

# ---- building

# Processor seconds of a build from nothing, rounded up; nvcc takes most of one with CUDA.
setup_seconds() { # setup_seconds TARGET LOG_OF_CMAKE
    local seconds=60
    if [ "$1" = all ]; then seconds=160; fi
    if grep -q '^-- kvgrid: CUDA parts are compiled' "$2"; then seconds=$((seconds + 240)); fi
    echo $((seconds / jobs < 10 ? 10 : seconds / jobs))
}

# How far a build is, on a terminal: the mark that begins its lines, "[ 37%]" of make, "[12/209]" of ninja.
setup_watch() {
    local line shown=""
    [ -t 2 ] || { cat > /dev/null; return; }
    while IFS= read -r line; do
        [[ $line =~ ^\[\ *([0-9/]+%?)\] ]] || continue
        [ "${BASH_REMATCH[1]}" = "$shown" ] || printf '\r%s: %s ' "$(basename "$0")" "${BASH_REMATCH[1]}" >&2
        shown=${BASH_REMATCH[1]}
    done
    [ -z "$shown" ] || printf '\r\033[K' >&2
}

setup_build() { # setup_build DIR TARGET..
    local dir=$1 targets=() log=$1/setup.log what="kvgrid and its command"
    shift
    if [ "$1" = all ]; then what="kvgrid and its tests"; else targets=(--target "$@"); fi
    mkdir -p "$dir"
    cmake -S "$root" -B "$dir" -DKVG_WITH_MPI="$mpi_parts" -DKVG_BUILD_TESTS="$test_parts" "${build_options[@]}" > "$log" 2>&1 ||
        { cat "$log" >&2; fail "CMake failed in $dir"; }
    sed -n 's/^-- kvgrid:/kvgrid:/p' "$log"
    tell "building $what in $dir/, $jobs files at once: about $(setup_seconds "$1" "$log") s from nothing; log: $log"
    cmake --build "$dir" -j "$jobs" "${targets[@]}" 2>&1 | tee -a "$log" | setup_watch ||
        { tail -n 60 "$log" >&2; fail "the build in $dir failed; all of it is in $log"; }
}

# ---- running

# Shown before each run, so nothing is in it that a reader would not type.
setup_mpirun=(mpirun --oversubscribe)
[ "$(id -u)" != 0 ] || setup_mpirun+=(--allow-run-as-root)

setup_ranks() { # setup_ranks N COMMAND..
    local ranks=$1
    shift
    "${setup_mpirun[@]}" -n "$ranks" "$@"
}

setup_log=$(mktemp)
trap 'rm -f "$setup_log"' EXIT

#!/usr/bin/env bash
# What public headers promise about threads, under ThreadSanitizer: builds and runs the suites that start threads.
#   tests/tsan.sh [--build DIR] [--jobs N]      default: build-tsan/
# Exit status: 0 no race, 1 a race or a failure, 2 no build, 77 this compiler or kernel has no ThreadSanitizer that runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build-tsan jobs=$(nproc)
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    *) sed -n '2,4s/^# *//p' "$0" >&2; exit 2 ;;
    esac
done

# A suite uses threads if it says so; children that are forked from a process with one thread are none.
mapfile -t sources < <(grep -lr --include='test_*.c' 'pthread_create' tests)
[ ${#sources[@]} -gt 0 ] || { echo "tests/tsan.sh: no suite starts a thread" >&2; exit 2; }
suites=()
for source in "${sources[@]}"; do suites+=("$(basename "$source" .c)"); done

mkdir -p "$build"
# Where the kernel puts programs may be where ThreadSanitizer keeps its shadow: without randomised addresses it is not.
run=()
if command -v setarch > /dev/null && setarch -R true 2> /dev/null; then run=(setarch -R); fi
# shellcheck disable=SC2016
echo 'int main(void) { return 0; }' > "$build/probe.c"
if ! ${CC:-cc} -fsanitize=thread "$build/probe.c" -o "$build/probe" 2> "$build/probe.log" || ! "${run[@]}" "$build/probe" > "$build/probe.log" 2>&1; then
    echo "tests/tsan.sh: skipped, ThreadSanitizer does not run here: $(head -n 1 "$build/probe.log")"
    exit 77
fi
{
    cmake -S . -B "$build" -DKVG_SANITIZE=thread -DKVG_WITH_CUDA=OFF -DKVG_WITH_MPI=OFF -DKVG_BUILD_BENCH=OFF &&
        cmake --build "$build" -j "$jobs" --target "${suites[@]}"
} > "$build/build.log" 2>&1 || { tail -n 30 "$build/build.log" >&2; echo "tests/tsan.sh: the build in $build/ failed" >&2; exit 2; }

failed=0
for suite in "${suites[@]}"; do
    from=$SECONDS
    if "${run[@]}" "$build/tests/$suite" > "$build/$suite.out" 2>&1; then
        echo "ok   $suite: $(tail -n 1 "$build/$suite.out") ($((SECONDS - from)) s)"
    else
        echo "FAIL $suite: $build/$suite.out"
        grep -A 12 -m 3 'WARNING: ThreadSanitizer' "$build/$suite.out" || tail -n 5 "$build/$suite.out"
        failed=1
    fi
done
exit $failed

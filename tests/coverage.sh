#!/usr/bin/env bash
# Which lines the tests run: builds with gcov, runs ctest's "unit" tests, prints a table by file, and then each line of tp/, pp/ and runtime/rules/ that is
# neither covered nor explained in tests/coverage_explained.txt.
#   tests/coverage.sh [--build DIR] [--jobs N] [--report]      default: build-coverage/; --report: of the last run
# What other processes run (mpirun, replay, the simulator) is not counted: their moments are not the same each time, so a line that only they reach is
# covered on some days. Exit status: 0 every line is covered or explained, 1 not so, or a test failed, 2 no build, 77 no gcov of this compiler here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD build=build-coverage jobs=$(nproc) report_only=0
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    --report) report_only=1; shift ;;
    *) sed -n '2,6s/^# *//p' "$0" >&2; exit 2 ;;
    esac
done
folders="tp pp runtime/rules"
gcov=${GCOV:-gcov}
command -v "$gcov" > /dev/null || { echo "tests/coverage.sh: skipped, no $gcov here (Debian: apt-get install gcc)"; exit 77; }

mkdir -p "$build"
if [ "$report_only" = 0 ]; then
    { # atomic: what threads count at once is lost else, and with it lines that are run but rarely
        cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS="--coverage -fprofile-update=atomic -O0 -g -DKVG_COVERAGE" -DCMAKE_CXX_FLAGS="--coverage -O0 -g" \
            -DKVG_WITH_CUDA=OFF -DKVG_BUILD_BENCH=OFF && cmake --build "$build" -j "$jobs"
    } > "$build/coverage_build.log" 2>&1 || { tail -n 30 "$build/coverage_build.log" >&2; echo "tests/coverage.sh: the build in $build/ failed" >&2; exit 2; }
    find "$build" -name '*.gcda' -delete # of objects that may be no more
    # host_attend takes minutes without an optimiser and calls nothing that other suites do not.
    ctest --test-dir "$build" -j "$jobs" -L unit -E '^host_attend$' --output-on-failure > "$build/coverage_tests.log" 2>&1 ||
        { grep -E '\*\*\*|tests passed' "$build/coverage_tests.log"; echo "tests/coverage.sh: tests failed: $build/coverage_tests.log"; exit 1; }
fi
# The library's objects; the tests' too, since they compile what headers of the library have inline.
(cd "$build" && find . -name '*.gcda' -exec "$gcov" --stdout --relative-only --source-prefix "$root" {} +) > "$build/coverage.gcov" 2> /dev/null
awk -v folders="$folders" -v explained=tests/coverage_explained.txt -f tests/coverage.awk "$build/coverage.gcov"

#!/usr/bin/env bash
# run.sh [--seconds N | --runs N] [--dir BUILD] [TARGET..]: builds the libFuzzer targets with clang and runs each for N seconds (600), one after the other, from the
# corpus in the tree and what earlier runs found (BUILD/corpus); or the same N runs each time. A line a target: seconds, runs, peak memory. What breaks one is left in BUILD/findings.
# Exit status: 0 nothing found, 1 something was, 2 no build, 77 no clang with libFuzzer here.
set -euo pipefail

fuzz=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$fuzz/../.." && pwd)
seconds=600
runs_max=
build="$root/build-fuzz"
targets=()
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=$2; shift ;;
    --runs) runs_max=$2; shift ;;
    --dir) build=$2; shift ;;
    -h | --help) sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) echo "run.sh: unknown option $1" >&2; exit 2 ;;
    *) targets+=("$1") ;;
    esac
    shift
done

clang=${KVG_CLANG:-clang}
probe='int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n); int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d == 0 && n; }'
if ! "$clang" -x c - -fsanitize=fuzzer,address,undefined -o /dev/null <<<"$probe" 2>/dev/null; then
    echo "skipped: there is no $clang with libFuzzer and its sanitizers here (Debian: apt-get install clang libclang-rt-14-dev)"
    exit 77
fi

mkdir -p "$build"
if ! { cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=None -DCMAKE_C_COMPILER="$clang" -DCMAKE_CXX_COMPILER="${clang/clang/clang++}" \
    "-DCMAKE_C_FLAGS=-O1 -gline-tables-only" -DKVG_SANITIZE=fuzzer-no-link,address,undefined -DKVG_FUZZ=ON -DKVG_WITH_CUDA=OFF -DKVG_WITH_MPI=OFF \
    -DKVG_BUILD_BENCH=OFF && cmake --build "$build" -j "${KVG_JOBS:-2}" --target fuzzers; } >"$build/log" 2>&1; then
    tail -n 40 "$build/log"
    exit 2
fi

if [ ${#targets[@]} = 0 ]; then
    for source in "$fuzz"/fuzz_*.c; do
        name=$(basename "$source" .c)
        targets+=("${name#fuzz_}")
    done
fi

# No single allocation is above 64 MiB, nor the process above 512 MiB with the sanitizers' own; no input takes ten seconds.
limits=(-malloc_limit_mb=64 -rss_limit_mb=512 -timeout=10 -max_len=16384 -print_final_stats=1 -verbosity=1)
export ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=16 UBSAN_OPTIONS=print_stacktrace=1

failed=0
for target in "${targets[@]}"; do
    mkdir -p "$build/corpus/$target" "$build/findings"
    seeds=("$fuzz/corpus/$target")
    [ "$target" != config ] || seeds+=("$root/tests/data/models")
    until=("-max_total_time=$seconds")
    [ -z "$runs_max" ] || until=("-runs=$runs_max" -seed=1)
    options=("${limits[@]}" "${until[@]}" "-artifact_prefix=$build/findings/$target-")
    [ ! -f "$fuzz/$target.dict" ] || options+=("-dict=$fuzz/$target.dict")
    from=$(date +%s)
    status=0
    "$build/tests/fuzz_$target" "${options[@]}" "$build/corpus/$target" "${seeds[@]}" >"$build/$target.log" 2>&1 || status=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$target.log")
    peak=$(sed -n 's/^stat::peak_rss_mb: *//p' "$build/$target.log")
    printf '%-11s %5d s %10s runs %5s MiB  %s\n' "$target" $(($(date +%s) - from)) "${runs:-?}" "${peak:-?}" "$([ $status = 0 ] && echo ok || echo "FOUND: $build/$target.log")"
    if [ $status != 0 ]; then
        failed=1
        tail -n 30 "$build/$target.log"
    fi
done
exit $failed

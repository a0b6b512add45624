#!/usr/bin/env bash
# What is run on a machine with a GPU: build, CUDA suites, compute-sanitizer, benches. Logs and a short verdict go to $OUT (default: out/).
#   kernels/device_check.sh [--no-sanitizer] [--no-bench]   BUDGET: seconds for all of it (350)
#   kernels/device_check.sh --make-deps   on a machine that has them: puts Check, Jansson, xxHash and pkg-config into .deps, to be
#                                         carried with the tree to one that has not
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
out=${OUT:-out}
sanitizer=1 bench=1

# shellcheck disable=SC2016 # what stands in quotes is for pkg-config and for sh
make_deps() {
    local libs module
    libs=$(dirname "$(find /usr/lib -name libjansson.a | head -n 1)")
    mkdir -p .deps/include .deps/lib/pkgconfig .deps/bin
    cp /usr/include/check.h /usr/include/check_stdint.h /usr/include/jansson.h /usr/include/jansson_config.h /usr/include/xxhash.h .deps/include/
    cp "$libs"/libcheck_pic.a "$libs"/libsubunit.a "$libs"/libjansson.a "$libs"/libxxhash.a .deps/lib/
    for module in "check:-lcheck_pic -lsubunit -lrt -lm -pthread" "jansson:-ljansson" "libxxhash:-lxxhash"; do
        printf 'prefix=${pcfiledir}/../..\nName: %s\nDescription: carried\nVersion: %s\nCflags: -I${prefix}/include\nLibs: -L${prefix}/lib %s\n' \
            "${module%%:*}" "$(pkg-config --modversion "${module%%:*}")" "${module#*:}" > ".deps/lib/pkgconfig/${module%%:*}.pc"
    done
    cp -L "$(command -v pkg-config)" .deps/bin/pkgconf
    ldd .deps/bin/pkgconf | awk '/pkgconf/ {print $3}' | xargs -r -I{} cp -L {} .deps/lib/
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' '$(dirname "$0")/../lib' '$(dirname "$0")/pkgconf' > .deps/bin/pkg-config
    chmod +x .deps/bin/pkg-config
}

for word in "$@"; do
    case $word in
    --no-sanitizer) sanitizer=0 ;;
    --no-bench) bench=0 ;;
    --make-deps) make_deps; exit ;;
    *) echo "unknown option $word" >&2; exit 2 ;;
    esac
done
mkdir -p "$out"
out=$(cd "$out" && pwd)
failed=0
say() { printf '%5d s  %s\n' "$SECONDS" "$*" | tee -a "$out/verdict.txt"; }
: > "$out/verdict.txt"

if [ -d .deps ]; then
    export PKG_CONFIG_PATH=$PWD/.deps/lib/pkgconfig CMAKE_PREFIX_PATH=$PWD/.deps
    command -v pkg-config > /dev/null || export PKG_CONFIG=$PWD/.deps/bin/pkg-config
fi

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee -a "$out/verdict.txt"

say "configure"
cmake -S . -B build-device -G Ninja -DCMAKE_BUILD_TYPE=Release -DKVG_WITH_MPI=OFF > "$out/configure.log" 2>&1 ||
    { tail -n 30 "$out/configure.log"; say "FAIL configure"; exit 1; }
suites=(test_cuda_dev test_cuda_rows test_cuda_state cuda_test_cache_kinds cuda_test_latent_snapshot cuda_test_state_life cuda_test_kinds gpu_attend)
ninja -C build-device "${suites[@]}" plane_host bench_encode_cuda bench_grow_cuda bench_read_cuda > "$out/build.log" 2>&1 ||
    { grep -E 'error|FAILED' -A5 "$out/build.log" | head -n 60; say "FAIL build"; exit 1; }
say "built"

run() { # run NAME SECONDS COMMAND..: its output to a log, its end to the verdict; nothing begins when less than 10 s of the whole are left
    local name=$1 limit=$2 status=0 from=$SECONDS left=$((${BUDGET:-350} - SECONDS))
    shift 2
    if [ $left -lt 10 ]; then
        say "-     $name: no time left (BUDGET)"
        return
    fi
    [ "$limit" -le $left ] || limit=$left
    timeout "$limit" "$@" > "$out/$name.log" 2>&1 || status=$?
    if [ $status = 0 ]; then
        say "ok    $name ($((SECONDS - from)) s)"
    else
        failed=$((failed + 1))
        say "FAIL  $name: exit status $status ($((SECONDS - from)) s)"
        grep -E ':[FE]:|Assertion|error|ERROR SUMMARY|Invalid|failed' "$out/$name.log" | head -n 12
    fi
}

export CK_FORK=no KVG_TEST_STEPS=600 KVGRID_TIMEOUT_MS=120000
for suite in "${suites[@]}"; do run "$suite" 100 "build-device/tests/$suite"; done

if [ $bench = 1 ]; then
    run bench_encode_cuda 60 build-device/bench/bench_encode_cuda
    cat "$out/bench_encode_cuda.log"
    run bench_encode_cuda_json 60 build-device/bench/bench_encode_cuda --json
    run bench_grow_cuda 30 build-device/bench/bench_grow_cuda
    cat "$out/bench_grow_cuda.log"
    run bench_read_cuda 60 build-device/bench/bench_read_cuda
    cat "$out/bench_read_cuda.log"
fi

if [ $sanitizer = 1 ] && command -v compute-sanitizer > /dev/null; then
    # The deadline is raised: kernels run many times slower here.
    export KVG_TEST_STEPS=40 KVG_TEST_BRIEF=1
    memcheck=(compute-sanitizer --tool memcheck --leak-check no --error-exitcode 9 --print-limit 20)
    run memcheck_rows 120 "${memcheck[@]}" build-device/tests/test_cuda_rows
    run memcheck_state 40 "${memcheck[@]}" build-device/tests/test_cuda_state
    run memcheck_dev 60 "${memcheck[@]}" --report-api-errors no build-device/tests/test_cuda_dev
    run memcheck_kinds 90 "${memcheck[@]}" build-device/tests/cuda_test_cache_kinds
    for tool in racecheck synccheck initcheck; do
        run "${tool}_state" 40 compute-sanitizer --tool $tool --error-exitcode 9 build-device/tests/test_cuda_state
        run "${tool}_rows" 90 compute-sanitizer --tool $tool --error-exitcode 9 build-device/tests/test_cuda_rows
    done
fi

say "$failed failed"
[ $failed = 0 ]

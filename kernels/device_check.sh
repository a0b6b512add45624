#!/usr/bin/env bash
# What is run on a machine with a GPU: build, CUDA suites, compute-sanitizer, benches. Logs and a short verdict go to $OUT (default: out/).
#   kernels/device_check.sh [--no-sanitizer] [--no-bench] [--no-suites]   BUDGET: seconds for all of it (550)
#   kernels/device_check.sh --make-deps   on a machine that has them: puts Check, Jansson, xxHash and pkg-config into .deps, to be
#                                         carried with the tree to one that has not
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
out=${OUT:-out}
sanitizer=1 bench=1 suites=1

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
    --no-suites) suites=0 ;;
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
gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)

say "configure"
cmake -S . -B build-device -G Ninja -DCMAKE_BUILD_TYPE=Release > "$out/configure.log" 2>&1 ||
    { tail -n 30 "$out/configure.log"; say "FAIL configure"; exit 1; }
alone=(test_cuda_range test_cuda_place test_cuda_dev test_cuda_rows test_cuda_state test_cuda_vote gpu_attend cuda_test_cache_kinds cuda_test_latent_snapshot cuda_test_state_life cuda_test_kinds)
pairs=(gpu_vote gpu_run gpu_comm)
alone_benches=(bench_encode_cuda bench_read_cuda bench_grow_cuda)
pair_benches=(bench_vote_cuda bench_pipeline_cuda)
ninja -C build-device "${alone[@]}" "${pairs[@]}" plane_host kvgrid_command "${alone_benches[@]}" "${pair_benches[@]}" > "$out/build.log" 2>&1 ||
    { grep -E 'error|FAILED' -A5 "$out/build.log" | head -n 60; say "FAIL build"; exit 1; }
say "built"

left() { echo $((${BUDGET:-550} - SECONDS)); }
run() { # run NAME SECONDS COMMAND..: its output to a log, its end to the verdict; nothing begins when less than 10 s of the whole are left
    local name=$1 limit=$2 status=0 from=$SECONDS left
    shift 2
    left=$(left)
    if [ "$left" -lt 10 ]; then
        say "-     $name: no time left (BUDGET)"
        return
    fi
    [ "$limit" -le "$left" ] || limit=$left
    timeout "$limit" "$@" > "$out/$name.log" 2>&1 || status=$?
    if [ $status = 0 ]; then
        say "ok    $name ($((SECONDS - from)) s)"
    else
        say "FAIL  $name: exit status $status ($((SECONDS - from)) s)"
        grep -E ':[FE]:|Assertion|========= |error|failed' "$out/$name.log" | head -n 12
    fi
}
mpi=(mpirun --oversubscribe --bind-to none -n 2)

export CK_FORK=no KVG_TEST_STEPS=600 KVGRID_TIMEOUT_MS=120000 NCCL_NVLS_ENABLE=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
if [ $suites = 1 ]; then
    for suite in "${alone[@]}"; do run "$suite" 100 "build-device/tests/$suite"; done
    run gpu_run_1 100 mpirun --oversubscribe -n 1 build-device/tests/gpu_run
    if [ "$gpus" -ge 2 ]; then
        run gpu_vote 100 "${mpi[@]}" build-device/tests/gpu_vote --steps 3000
        run gpu_run_2 100 "${mpi[@]}" build-device/tests/gpu_run
        run gpu_comm 100 build-device/tests/gpu_comm --steps 1500
        run replay_votes 100 tests/comm/vote_gpu.sh build-device/kvgrid tests/data mpirun
        run replay_kinds 300 tests/replay/gpu.sh build-device/kvgrid tests/data mpirun
    fi
fi

if [ $bench = 1 ]; then
    for name in "${alone_benches[@]}"; do run "$name" 60 "build-device/bench/$name"; done
    [ "$gpus" -lt 2 ] || for name in "${pair_benches[@]}"; do run "$name" 60 "${mpi[@]}" "build-device/bench/$name"; done
    cat "$out"/bench_*.log
fi

# Under the sanitizer kernels run many times slower: the deadline is raised, and jobs run side by side, over all GPUs in turn.
checked() { # checked TOOL SUITE
    local tool=$1 suite=$2 options=() steps=40 limit=150
    [ "$tool" != racecheck ] && [ "$suite" != cuda_test_cache_kinds ] || limit=400
    [ "$suite" != test_cuda_vote ] || steps=200 # enough for every outcome
    [ "$tool" != memcheck ] || options=(--leak-check no --report-api-errors no)
    jobs_begun=$((jobs_begun + 1))
    KVG_TEST_STEPS=$steps CUDA_VISIBLE_DEVICES=$((jobs_begun % gpus)) run "${tool}_$suite" $limit compute-sanitizer --tool "$tool" "${options[@]}" --error-exitcode 9 --print-limit 8 \
        "build-device/tests/$suite" &
    while [ "$(jobs -rp | wc -l)" -ge $((6 * gpus)) ]; do wait -n; done
}
if [ $sanitizer = 1 ] && command -v compute-sanitizer > /dev/null; then
    export KVG_TEST_BRIEF=1
    jobs_begun=0
    for suite in "${alone[@]:0:3}"; do # each alone: they compare what is free
        checked memcheck "$suite"
        wait
    done
    for suite in "${alone[@]:3}"; do checked memcheck "$suite"; done
    # Begun with the slowest. initcheck does not see what the copy engine writes (cp.async.bulk), and so not the rows that gpu_attend reads.
    checked racecheck test_cuda_vote
    for tool in racecheck synccheck initcheck; do
        for suite in test_cuda_rows test_cuda_state $([ $tool = racecheck ] || echo test_cuda_vote) $([ $tool = initcheck ] || echo gpu_attend); do
            checked $tool "$suite"
        done
    done
    wait
    if [ "$gpus" -ge 2 ]; then # each rank under a sanitizer of its own
        memcheck=(compute-sanitizer --tool memcheck --leak-check no --report-api-errors no --error-exitcode 9 --print-limit 8)
        run memcheck_gpu_run 150 "${mpi[@]}" "${memcheck[@]}" build-device/tests/gpu_run
        run memcheck_gpu_vote 100 "${mpi[@]}" "${memcheck[@]}" build-device/tests/gpu_vote --steps 100
        run memcheck_gpu_comm 500 "${memcheck[@]}" --target-processes all build-device/tests/gpu_comm --steps 100
        for words in "tinyllama-1.1b 2x1" "gemma-3-27b 1x2" "qwen3.5-35b-a3b 2x1" "kimi-k2 1x2" "glm-5.3-flash 1x2"; do
            read -r model grid <<< "$words"
            run "memcheck_replay_$model" 90 "${mpi[@]}" "${memcheck[@]}" build-device/kvgrid replay --model "tests/data/models/$model.json" --tp "${grid%x*}" --pp "${grid#*x}" \
                --trace tests/data/traces/azure_llm_2023_conv.csv --requests 1 --max-tokens 12 --device cuda --verify &
        done
        wait
    fi
fi

failed=$(grep -c 'FAIL' "$out/verdict.txt")
say "$failed failed"
[ "$failed" = 0 ]

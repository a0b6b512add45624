#!/bin/sh
# Replay on GPUs against replay on the host: one digest. For a machine with GPUs; grids of two ranks want two of them.
#   gpu.sh KVGRID DATA [MPIEXEC]      exit status: 0 all equal, 1 not, 77 no device can be used
set -eu
kvgrid=$1 data=$2 mpiexec=${3:-}
trace=$data/traces/azure_llm_2023_conv.csv
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
failed=0

digest_of() { # digest_of DEVICE TP PP MODEL OPTION..
    device=$1 tp=$2 pp=$3 model=$4
    shift 4
    set -- "$kvgrid" replay --model "$data/models/$model.json" --trace "$trace" --requests 3 --max-tokens 300 --tp "$tp" --pp "$pp" --device "$device" "$@"
    [ $((tp * pp)) = 1 ] || set -- "$mpiexec" --oversubscribe --bind-to none -n $((tp * pp)) "$@"
    "$@" | awk '$1 == "digest" {print $2}'
}

compare() { # compare MODEL OPTION..
    model=$1
    shift
    host=$(digest_of host 1 1 "$model" "$@")
    for grid in "1 1" "2 1" "1 2"; do
        # shellcheck disable=SC2086 # two words
        set_grid() { tp=$1 pp=$2; } && set_grid $grid
        [ $((tp * pp)) = 1 ] || [ -n "$mpiexec" ] || continue
        got=$(digest_of cuda "$tp" "$pp" "$model" "$@") || got=failed
        if [ "$got" = "$host" ] && [ -n "$host" ]; then
            echo "ok    $model ${tp}x$pp $* $got"
        else
            echo "FAIL  $model ${tp}x$pp $*: host $host, cuda $got"
            failed=$((failed + 1))
        fi
    done
}

why=$("$kvgrid" replay --model "$data/models/tinyllama-1.1b.json" --trace "$trace" --requests 1 --max-tokens 2 --device cuda 2>&1 > /dev/null) ||
    { echo "skipped: $why"; exit 77; }
compare tinyllama-1.1b
compare tinyllama-1.1b --layout flat --spec 4
compare llama-3.1-8b --format-k bf16 --format-v bf16
compare gemma-3-27b --ring on --spec 3
compare gpt-oss-120b --ring on --layout flat
compare kimi-k2 --spec 3
compare deepseek-v3.2
echo "$failed failed"
[ "$failed" = 0 ]

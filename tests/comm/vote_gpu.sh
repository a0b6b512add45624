#!/usr/bin/env bash
# Replay whose records go by GPUs against replay whose records go by MPI: one digest. For a machine with two GPUs.
#   vote_gpu.sh KVGRID DATA MPIEXEC [MODEL]     exit 0 all equal, 1 not, 77 that cannot be had here
set -u
kvgrid=$1 data=$2 mpiexec=$3 only=${4:-} failed=0 count=0 expected=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 NCCL_NVLS_ENABLE=0
out=$(mktemp) err=$(mktemp)
trap 'rm -f "$out" "$err"' EXIT

replay() { # replay GRID OPTION..: into $out and $err
  local grid=$1
  shift
  timeout 60 "$mpiexec" -q --oversubscribe --bind-to none -n 2 "$kvgrid" replay --trace "$data/traces/azure_llm_2023_conv.csv" --tp "${grid%x*}" \
    --pp "${grid#*x}" "$@" > "$out" 2> "$err" < /dev/null # mpirun reads what is there, a list of runs, too
}
line() { sed -n "s/^$1 *//p" "$out"; }

[ -n "$mpiexec" ] || { echo "skipped: no MPI"; exit 77; }
replay 2x1 --model "$data/models/tinyllama-1.1b.json" --requests 1 --max-tokens 2 --vote nccl || { echo "skipped: $(head -n 1 "$err")"; exit 77; }
models=(
  "tinyllama-1.1b --requests 3 --max-tokens 300 --spec 4"
  "gemma-3-27b --requests 2 --max-tokens 150 --ring on --spec 3"
)
for words in "${models[@]}"; do
  read -r model options <<< "$words"
  [ -z "$only" ] || [ "$only" = "$model" ] || continue
  expected=$((expected + 12)) # grids, devices, votes
  for grid in 2x1 1x2; do
    for device in host cuda; do
      host=
      for vote in host nccl device; do
        # shellcheck disable=SC2086 # words
        replay $grid --model "$data/models/$model.json" $options --device $device --vote $vote
        status=$? count=$((count + 1)) digest=$(line digest) how=$(line vote)
        [ $vote != host ] || host=$digest
        case $how in "$vote, records "*) said=1 ;; *) said=0 ;; esac
        if [ $status = 0 ] && [ -n "$digest" ] && [ "$digest" = "$host" ] && [ $said = 1 ]; then
          echo "ok    $model $grid $options --device $device --vote $vote $digest; $(line steps)"
        else
          failed=$((failed + 1))
          echo "FAIL  $model $grid $options --device $device --vote $vote: exit $status, '$digest', host '$host', vote '$how'; $(head -n 2 "$err")"
        fi
      done
    done
  done
done
echo "$count of $expected runs, $failed failed"
[ $failed = 0 ] && [ $count = $expected ] && [ $count -gt 0 ]

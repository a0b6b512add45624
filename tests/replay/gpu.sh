#!/usr/bin/env bash
# Replay on GPUs against replay on the host: one digest for every kind of state, grid and shape. For a machine with GPUs; grids of two ranks want two.
#   gpu.sh KVGRID DATA [MPIEXEC] [--indirect]     exit 0 all as they must be, 1 not, 77 no device can be used
# --indirect: KVGRID is the one whose GPU is the tests' device (indirect_gpu.c); fewer runs, and a driver that says otherwise is noticed.
# Several runs at a time, KVG_TEST_JOBS of them; what is compared with the driver's figure runs alone.
set -u
kvgrid=$1 data=$2 mpiexec=${3:-} indirect=0
[ "${4:-}" != --indirect ] || indirect=1
trace=$data/traces/azure_llm_2023_conv.csv
jobs=${KVG_TEST_JOBS:-$((indirect ? 2 : 8))}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset SLURM_NTASKS "${!KVGRID_DSA@}" "${!KVGRID_KV@}"
leaks_of_mpi=detect_leaks=0:${ASAN_OPTIONS:-} # Open MPI's own, in a sanitized build
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
count=0 # runs asked for

replay() { # replay DEVICE GRID MODEL OPTION..: as it says itself
  local device=$1 grid=$2 model=$3 ranks=$((${2%x*} * ${2#*x}))
  shift 3
  set -- "$kvgrid" replay --model "$data/models/$model.json" --trace "$trace" --tp "${grid%x*}" --pp "${grid#*x}" --device "$device" "$@"
  if [ $ranks = 1 ]; then
    "$@"
  else
    ASAN_OPTIONS=$leaks_of_mpi "$mpiexec" -q --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n $ranks "$@"
  fi
}
digest_of() { sed -n 's/^digest *//p' "$1"; }

# What is cut: a token of recurrent state is up to 150 MB on its way to the device; windows need more than they hold.
cut_of() {
  case $1 in
  glm-5.3-flash) echo "--requests 2 --max-tokens 22" ;;
  qwen3* | kimi-linear* | nemotron* | jamba*) echo "--requests 2 --max-tokens $((indirect ? 24 : 60))" ;;
  gemma-3-27b) echo "--requests 2 --max-tokens 1300" ;;
  *) echo "--requests 3 --max-tokens $((indirect ? 200 : 700))" ;;
  esac
}

say() { # say NUMBER ok|FAIL WHAT..: the run's line, and how it ended
  local number=$1 verdict=$2
  shift 2
  printf '%-5s %s\n' "$verdict" "$*" > "$scratch/$number.line"
  [ "$verdict" = ok ] || { head -n 3 "$scratch/$number.err"; grep -h NOT "$scratch/$number.out"; } >> "$scratch/$number.line" 2> /dev/null
}

# same NUMBER WANT-FILE GRID MODEL OPTION..: verified, with that digest
same() {
  local number=$1 want=$2 grid=$3 model=$4 from=$SECONDS digest status
  shift 4
  # shellcheck disable=SC2046 # words
  replay cuda "$grid" "$model" --verify $(cut_of "$model") "$@" > "$scratch/$number.out" 2> "$scratch/$number.err"
  status=$?
  digest=$(digest_of "$scratch/$number.out")
  if [ $status = 0 ] && [ -n "$digest" ] && [ "$digest" = "$(cat "$want")" ] && grep -q '^verify .* 0 mismatches' "$scratch/$number.out"; then
    say "$number" ok "$model $grid $* $digest ($((SECONDS - from)) s)"
  else
    say "$number" FAIL "$model $grid $*: exit $status, '$digest', host '$(cat "$want")'"
  fi
}

# flipped NUMBER PLANE GRID MODEL OPTION..: a bit of what is stored is flipped: --verify names the plane, and the digest is not the host's
flipped() {
  local number=$1 plane=$2 grid=$3 model=$4 digest status want
  shift 4
  want=$(replay host 1x1 "$model" "$@" --fault refuse:0@step1 2> /dev/null | sed -n 's/^digest *//p')
  replay cuda "$grid" "$model" --verify "$@" > "$scratch/$number.out" 2> "$scratch/$number.err"
  status=$?
  digest=$(digest_of "$scratch/$number.out")
  if [ $status = 1 ] && [ ${#digest} = 32 ] && [ ${#want} = 32 ] && [ "$digest" != "$want" ] &&
    grep -q "layer [0-9]*, $plane .*the stored bytes are not those of" "$scratch/$number.err"; then
    say "$number" ok "$model $grid $* is found: $(sed -n 's/.*\(layer [0-9]*, [A-Za-z]*\) .*/\1/p' "$scratch/$number.err" | head -n 1)"
  else
    say "$number" FAIL "$model $grid $*: a flipped bit of $plane, exit $status, '$digest', host '$want'"
  fi
}

# memory NUMBER WORD GRID MODEL OPTION..: alone on its devices; what it says of the driver's figure begins with that word, on every rank
memory() {
  local number=$1 word=$2 grid=$3 model=$4 status lines
  shift 4
  # shellcheck disable=SC2046
  CUDA_MODULE_LOADING=EAGER replay cuda "$grid" "$model" $(cut_of "$model") "$@" > "$scratch/$number.out" 2> "$scratch/$number.err"
  status=$?
  lines=$(grep -c "^rank .* driver: .*; $word" "$scratch/$number.out")
  if [ $status = 0 ] && [ "$lines" = $((${grid%x*} * ${grid#*x})) ]; then
    say "$number" ok "$model $grid $* $(sed -n 's/.* driver: //p' "$scratch/$number.out" | head -n 1)"
  else
    say "$number" FAIL "$model $grid $*: exit $status, of the driver: $(sed -n 's/.* driver: //p' "$scratch/$number.out")"
  fi
}

queue() { # queue COMMAND..: with a number of its own, beside others
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
  count=$((count + 1))
  "$1" $count "${@:2}" &
}
alone() {
  wait
  count=$((count + 1))
  "$1" $count "${@:2}"
}

host() { # host MODEL [OPTION..]: its digest to a file, beside others; shapes leave it as it is, formats and MTP blocks do not
  local file=$scratch/host.$1
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
  # shellcheck disable=SC2046
  { replay host 1x1 "$1" $(cut_of "$1") "${@:2}" 2>&1 | sed -n 's/^digest *//p' > "$file"; } &
}

grids() { # grids GRIDS MODEL OPTION..
  local grid
  for grid in $1; do
    [ "$grid" = 1x1 ] || [ -n "$mpiexec" ] || continue
    queue same "$scratch/host.$2" "$grid" "${@:2}"
  done
}

why=$(replay cuda 1x1 tinyllama-1.1b --requests 1 --max-tokens 2 2>&1 > /dev/null) || { echo "skipped: $why"; exit 77; }
from=$SECONDS
if [ $indirect = 1 ]; then
  models="tinyllama-1.1b gpt-oss-120b deepseek-v3.2 kimi-linear-48b-a3b jamba-v0.1 qwen3-next-80b-a3b glm-5.3-flash"
else
  models="qwen3-next-80b-a3b qwen3.5-35b-a3b jamba-v0.1 nemotron-3-nano-30b-a3b kimi-linear-48b-a3b glm-5.3-flash gemma-3-27b gpt-oss-120b gemma-4-e4b
          step-3.5-flash mimo-v2-flash tinyllama-1.1b llama-3.1-8b kimi-k2 deepseek-v3.2"
fi
for model in $models; do host "$model"; done
wait
for model in $models; do
  if [ $indirect = 1 ]; then
    grids "1x1 2x1" "$model"
    grids "1x1 1x2" "$model" --layout flat --spec 3 --columns 2 --ring on
    [ "$model" = glm-5.3-flash ] || grids "1x1" "$model" --spec 3 --chunk 17 --ring on
  else
    grids "1x1 2x1 1x2" "$model"
    grids "1x1 2x1 1x2" "$model" --layout flat --spec 3 --columns 2 --ring on
    grids "1x1 2x1" "$model" --spec 3 --chunk 17 --ring on
    grids "1x1 1x2" "$model" --layout flat --chunk 33 --ring off
  fi
done
# Index rows in the planes, and in rings that are gone over.
for ring in 0 16; do
  export KVGRID_DSA_INDEX_RING=$ring
  [ $indirect = 1 ] || grids "1x1 1x2" glm-5.3-flash --chunk 9
  grids "2x1" glm-5.3-flash --spec 3 --columns 2 --layout flat
  unset KVGRID_DSA_INDEX_RING
done
if [ $indirect = 1 ]; then # and without ranges of addresses, as where an engine's allocator gives the memory
  export KVG_TEST_PLAIN=1
  grids "1x1" gpt-oss-120b --layout flat --spec 3 --ring on
  grids "1x1" kimi-linear-48b-a3b --layout flat --spec 3 --columns 2
  unset KVG_TEST_PLAIN
fi
# Bits that flip on the device, of each kind of state: the seed draws which. At the last step, state and index rows may be hit.
flip() { # flip PLANE MODEL STEP TOKENS CHUNK SEED
  queue flipped "$1" 1x1 "$2" --requests 1 --max-tokens "$4" --chunk "$5" --seed "$6" --fault "flip:0@step$3"
}
flip "[KV]" tinyllama-1.1b 9 200 50 1
flip "[KV]" gpt-oss-120b 3 200 50 1
flip key deepseek-v3.2 3 40 10 1
flip state kimi-linear-48b-a3b 14 24 10 1
flip conv kimi-linear-48b-a3b 14 24 10 2
flip state jamba-v0.1 14 24 10 1
flip latent glm-5.3-flash 5 14 10 2
[ -z "$mpiexec" ] || queue flipped "[KV]" 1x2 tinyllama-1.1b --requests 1 --max-tokens 60 --layout flat --fault flip:1@step20
# What is taken, by our count and by the driver's.
for layout in pool flat; do
  alone memory equal 1x1 tinyllama-1.1b --layout $layout
  alone memory equal 1x1 glm-5.3-flash --layout $layout
done
alone memory equal 1x1 jamba-v0.1
[ -z "$mpiexec" ] || alone memory equal 1x2 deepseek-v3.2
[ $indirect = 0 ] || KVG_TEST_DRIVER_EXTRA=1000000000 alone memory "NOT EQUAL" 1x1 tinyllama-1.1b
wait

for number in $(seq 1 $count); do cat "$scratch/$number.line"; done
failed=$(cat "$scratch"/*.line | grep -c '^FAIL')
echo "$count runs, $failed failed, $((SECONDS - from)) s"
[ "$failed" = 0 ]

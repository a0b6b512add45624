#!/usr/bin/env bash
# Runs of `kvgrid replay` that must agree: one digest for every grid, chunk, concurrency, speculation, ring, layout and memory.
#   run_replay.sh grids|shapes|kinds|memory|faults|use KVGRID DATA MPIEXEC     exit 0 passed, 1 failed, 77 there is no MPI
set -u
set=$1 kvgrid=$2 data=$3 mpiexec=$4
models=$data/models conv=$data/traces/azure_llm_2023_conv.csv code=$data/traces/azure_llm_2023_code.csv
[ -n "$mpiexec" ] || { echo "skipped: MPI was not found, and these runs need several ranks"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset SLURM_NTASKS "${!KVGRID_@}" "${!MEMRA_@}"
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
export OMPI_MCA_btl_vader_backing_directory=$scratch # ranks that are ended at once leave their segments of Open MPI behind
leaks_of_mpi=detect_leaks=0:${ASAN_OPTIONS:-} # Open MPI's own, in a sanitized build
failures=0 checks=0
small=(--model "$models/tinyllama-1.1b.json" --trace "$conv" --requests 6 --max-tokens 200)
common=("${small[@]}")

fail() { failures=$((failures + 1)); printf 'FAILED: %s\n' "$*"; }

# run RANKS ARGUMENTS...: with the set's own arguments first, since the last of a repeated option counts; leaves $status, $out (file), $err (file), $json (the last line), $digest
out=$scratch/out err=$scratch/err
run() {
  local ranks=$1
  shift
  if [ "$ranks" = 1 ]; then
    "$kvgrid" replay "${common[@]}" "$@" >"$out" 2>"$err"
  else
    ASAN_OPTIONS=$leaks_of_mpi "$mpiexec" -q --oversubscribe --mca odls_base_sigkill_timeout 0 --mca mpi_yield_when_idle 1 -n "$ranks" "$kvgrid" replay "${common[@]}" "$@" >"$out" 2>"$err"
  fi
  status=$?
  json=$(tail -n 1 "$out")
  digest=$(sed -n 's/.*"digest":"\([0-9a-f]\{32\}\)".*/\1/p' <<<"$json")
}
field() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" <<<"$json"; }

# same WANT RANKS ARGUMENTS...: the run succeeds, verified, with that digest. WANT "" takes this run's as the one to match: $want
same() {
  local expected=$1 ranks=$2
  shift 2
  run "$ranks" --json --verify "$@"
  checks=$((checks + 1))
  want=${expected:-$digest}
  if [ $status != 0 ] || [ -z "$digest" ] || [ "$digest" != "$want" ] || [ "$(field mismatches)" != 0 ] || [ "$(field verified_rows)" = 0 ]; then
    fail "exit $status, digest '$digest', not '$want': $ranks ranks, $*"
    head -n 5 "$err"
  fi
}

# on_grids GRIDS ARGUMENTS...: 1x1 gives the digest, each grid "TPxPP" matches it
on_grids() {
  local grids=$1 base
  shift
  same "" 1 "$@"
  base=$want
  local grid
  for grid in $grids; do
    same "$base" $((${grid%x*} * ${grid#*x})) --tp "${grid%x*}" --pp "${grid#*x}" "$@"
  done
}

# refused STATUS WORD RANKS ARGUMENTS...: ends with that status, in one sentence of kvgrid's that has the word
refused() {
  local expected=$1 word=$2 ranks=$3
  shift 3
  run "$ranks" "$@"
  checks=$((checks + 1))
  if [ $status != "$expected" ] || [ "$(grep -c '^kvgrid replay: ' "$err")" != 1 ] || ! grep -q -- "$word" "$err"; then
    fail "exit $status, not $expected with one sentence about '$word': $ranks ranks, $*"
    head -n 5 "$err"
  fi
}

# interrupted SIGNAL RANK: once the run is under way that rank of four gets the signal. All end, soon; one other says why, unless the
# launcher saw a death first and ended them.
interrupted() {
  local signal=$1 rank=$2 began job said
  rm -f "$scratch"/pid.*
  : >"$out"
  KVGRID_TIMEOUT_MS=4000 ASAN_OPTIONS=$leaks_of_mpi "$mpiexec" -q --oversubscribe --mca odls_base_sigkill_timeout 0 --mca mpi_yield_when_idle 1 -n 4 \
    sh -c 'echo $$ >"$0/pid.$OMPI_COMM_WORLD_RANK"; exec "$@"' "$scratch" "$kvgrid" replay "${small[@]}" --requests 19366 --tp 2 --pp 2 >"$out" 2>"$err" &
  job=$!
  while kill -0 $job 2>/dev/null && [ ! -s "$out" ]; do sleep 0.1; done # the opening line
  began=$SECONDS
  kill -"$signal" "$(cat "$scratch/pid.$rank")" 2>/dev/null
  wait $job
  status=$?
  checks=$((checks + 1))
  said=$(grep -c "^kvgrid replay: rank [0-3]: .*rank $rank" "$err")
  if [ $status = 0 ] || [ $((SECONDS - began)) -gt 30 ] || [ "$said" -gt 1 ] || { [ "$signal" = STOP ] && [ "$said" != 1 ]; }; then
    fail "SIG$signal to rank $rank: exit $status after $((SECONDS - began)) s, $said sentences"
    head -n 5 "$err"
  fi
}

case $set in
grids)
  on_grids "2x1 1x2 2x2 4x1 1x4 8x1" --spec 3
  on_grids "2x2 4x1" --model "$models/gemma-4-e4b.json" --trace "$code" --requests 3 --max-tokens 800 --ring on
  on_grids "2x2 1x4" --model "$models/gpt-oss-120b.json" --trace "$conv" --requests 3 --max-tokens 1000 --ring on --chunk 100
  on_grids "2x2 8x1" --model "$models/mimo-v2-flash.json" --trace "$conv" --requests 2 --max-tokens 300 --spec 5
  on_grids "2x2" --model "$models/gemma-3-27b.json" --trace "$conv" --requests 2 --max-tokens 160
  on_grids "2x2" --model "$models/mistral-7b-v0.1.json" --trace "$conv" --requests 2 --max-tokens 160 --ring on
  on_grids "4x1 8x1" --model "$models/stories260k.json" --trace "$conv" --requests 12 --max-tokens 1000000 --format-k f16 --format-v bf16
  [ "$(field refused)" -gt 0 ] || fail "stories260k: no request is longer than its context"
  ;;
shapes)
  same "" 1
  base=$want
  for shape in "--spec 1" "--spec 3" "--spec 5 --chunk 17" "--concurrency 1" "--concurrency 3 --chunk 7" "--chunk 65536" "--layout flat --spec 2" \
               "--ring on" "--ring off --layout flat --concurrency 2"; do
    same "$base" 1 $shape
  done
  for shape in "--spec 5 --concurrency 2" "--layout flat --chunk 33" "--concurrency 3 --spec 3 --ring on"; do
    same "$base" 4 --tp 2 --pp 2 $shape
  done
  windowed="--model $models/gpt-oss-120b.json --trace $conv --requests 3 --max-tokens 1000"
  same "" 1 $windowed --ring off
  base=$want
  for shape in "--ring on" "--ring on --layout flat" "--ring on --layout flat --chunk 64 --spec 3" "--ring on --chunk 64 --spec 5" \
               "--ring on --chunk 65536" "--layout flat --concurrency 1" "--ring on --layout flat --chunk 4096 --concurrency 2"; do
    same "$base" 1 $windowed $shape
  done
  same "$base" 4 $windowed --tp 2 --pp 2 --ring on --layout flat --chunk 128 --spec 3
  # the trace's line ends do not matter; another seed does
  head -n 7 "$conv" | sed 's/$/\r/' | head -c -2 >"$scratch/crlf.csv"
  same "" 1
  same "$want" 1 --trace "$scratch/crlf.csv"
  run 1 --json --seed 2
  [ $status = 0 ] && [ "$digest" != "$want" ] || fail "another seed leaves the digest as it was"
  ;;
kinds) # recurrent and latent layers; table.sh runs them all, on all grids
  hybrid="--trace $conv --requests 2 --max-tokens 40"
  on_grids "2x2" --model "$models/kimi-linear-48b-a3b.json" $hybrid
  base=$want
  for shape in "--spec 3" "--spec 3 --columns 3 --chunk 7" "--layout flat --spec 4 --columns 2" "--concurrency 1 --chunk 1"; do
    same "$base" 1 --model "$models/kimi-linear-48b-a3b.json" $hybrid $shape
  done
  [ "$(field replayed_rows)" = 0 ] || fail "rows of one each are replayed"
  same "$base" 4 --model "$models/kimi-linear-48b-a3b.json" $hybrid --tp 2 --pp 2 --spec 3 --columns 2
  [ "$(field replayed_rows)" -gt 0 ] || fail "two columns and partial accepts, and nothing is replayed"
  same "$base" 4 --model "$models/kimi-linear-48b-a3b.json" $hybrid --tp 2 --pp 2 --spec 3
  [ "$(field replayed_rows)" = 0 ] || fail "a column for each row, and rows are replayed"
  on_grids "4x1" --model "$models/jamba-v0.1.json" $hybrid --requests 1
  on_grids "1x2" --model "$models/nemotron-3-nano-30b-a3b.json" $hybrid --spec 3 --columns 2
  on_grids "2x2" --model "$models/glm-5.3-flash.json" $hybrid --requests 1 --max-tokens 14 --spec 3
  base=$want
  same "$base" 1 --model "$models/glm-5.3-flash.json" $hybrid --requests 1 --max-tokens 14 --spec 3 --columns 2 --layout flat
  KVGRID_DSA_INDEX_RING=0 same "$base" 1 --model "$models/glm-5.3-flash.json" $hybrid --requests 1 --max-tokens 14 --chunk 3
  KVGRID_DSA_INDEX_RING=16 same "$base" 1 --model "$models/glm-5.3-flash.json" $hybrid --requests 1 --max-tokens 14 --chunk 9
  sparse="--model $models/deepseek-v3.2.json --trace $conv --requests 3 --max-tokens 300"
  on_grids "2x2" $sparse
  base=$want
  for shape in "--spec 3 --layout flat" "--chunk 33 --concurrency 2" "--memory 70MB"; do
    same "$base" 1 $sparse $shape
  done
  for shape in "" "--layout flat --spec 3"; do # half as many bytes, and other ones
    on_grids "2x2" $sparse --format-latent bf16 $shape
    [ "$want" != "$base" ] || fail "latents in bf16 leave the digest of f32"
  done
  run 1 $sparse --requests 1 --format-latent bf16
  grep -q '^latent rows bf16; ' <(head -n 1 "$out") || fail "line 1 of latents in bf16: $(head -n 1 "$out")"
  on_grids "1x4" $sparse --mtp --spec 5
  [ "$want" != "$base" ] || fail "MTP blocks leave the digest as it was"
  ;;
memory)
  same "" 1
  base=$want
  for memory in 2700000 3MB 4MB; do
    same "$base" 1 --memory $memory
  done
  [ "$(field preempted)" -gt 0 ] || fail "4 MB: nobody was turned out, so that path was not tried"
  same "$base" 1 --memory 6MB --layout flat
  same "$base" 1 --memory 3MB --spec 5 --chunk 20
  same "$base" 4 --tp 2 --pp 2 --memory 700000
  same "$base" 4 --tp 1 --pp 4 --memory 900kB --concurrency 5
  refused 2 "--memory" 1 --memory 1MB
  for layout in pool flat; do # less than 64 rows of each class: in the words of the options
    refused 2 "raise --memory there or lower --concurrency" 1 --memory 100KB --layout $layout
    ! grep -qE 'memory_bytes|max_sequences' "$err" || fail "the sentence names the library's fields: $(head -n 1 "$err")"
  done
  windowed="--model $models/gpt-oss-120b.json --trace $conv --requests 3 --max-tokens 1000 --ring on"
  same "" 1 $windowed
  same "$want" 1 $windowed --memory 36MB --chunk 64
  same "$want" 1 $windowed --memory 36MB --chunk 64 --layout flat --spec 3
  # nothing is served, so nothing is verified: said, and no failure
  printf 'ContextTokens,GeneratedTokens\n3000,9\n' >"$scratch/long.csv"
  for arguments in "--json --verify" "--json"; do
    run 1 --model "$models/tinyllama-1.1b.json" --trace "$scratch/long.csv" --max-tokens 1000000 $arguments
    checks=$((checks + 1))
    case $arguments in *verify*) expected=1 ;; *) expected=0 ;; esac
    [ $status = 0 ] && [ "$(field refused)" = 1 ] && [ "$(grep -c 'nothing was verified' "$err")" = $expected ] ||
      fail "every request refused, $arguments: exit $status, $(field refused) refused, $(head -n 1 "$err")"
  done
  # tokens that cannot be: requests of no tokens at all
  printf 'TIMESTAMP,ContextTokens,GeneratedTokens\nx,0,0\nx,0,3\nx,5,0\nx,1,1\n' >"$scratch/zero.csv"
  same "" 1 --model "$models/tinyllama-1.1b.json" --trace "$scratch/zero.csv"
  [ "$(field tokens)" = 10 ] || fail "requests of no tokens: $(field tokens) tokens, not 10"
  same "$want" 4 --model "$models/tinyllama-1.1b.json" --trace "$scratch/zero.csv" --tp 2 --pp 2 --spec 4 --concurrency 1
  ;;
faults)
  same "" 4 --tp 2 --pp 2
  base=$want
  for rank in 0 3; do
    for step in 1 40; do
      refused 1 "rank $rank" 4 --json --verify --tp 2 --pp 2 --fault flip:$rank@step$step
      [ -n "$digest" ] && [ "$digest" != "$base" ] || fail "flip:$rank@step$step leaves the digest '$digest'"
    done
    same "$base" 4 --tp 2 --pp 2 --fault refuse:$rank@step5
    [ "$(field rollbacks)" = 1 ] || fail "refuse:$rank@step5: $(field rollbacks) rollbacks, not 1"
    grep -q " 1 rollback, " "$out" && grep -q "^fault  *refuse:$rank@step5 struck: .* rolled back " "$out" || fail "refuse:$rank@step5 is not told of"
  done
  run 1 --json --fault flip:0@step9 # without --verify the digest and a line tell
  grep -q "^fault  *flip:0@step9 struck: .*--verify finds it$" "$out" || fail "flip:0@step9 without --verify is not told of"
  [ $status = 0 ] && [ "$digest" != "$base" ] || fail "flip:0@step9 without --verify: exit $status, digest '$digest'"
  run 1 --json --verify --fault flip:0@step9 --layout flat --spec 3
  [ $status = 1 ] && [ "$digest" != "$base" ] || fail "flip in a flat plane: exit $status, digest '$digest'"
  refused 1 "rank 7" 8 --json --verify --tp 8 --fault flip:7@step20 # one of two copies of a head
  [ -n "$digest" ] && [ "$digest" != "$base" ] || fail "a flip in one copy of a head leaves the digest '$digest'"
  windowed="--model $models/mistral-7b-v0.1.json --trace $conv --requests 1 --max-tokens 160 --ring on"
  same "" 1 $windowed
  refused 1 "rank 0" 1 $windowed --json --verify --fault flip:0@step3
  # every kind: state after its last token, latent rows, keys
  for hit in "kimi-linear-48b-a3b 1 40" "jamba-v0.1 1 40" "deepseek-v3.2 3 40" "kimi-k2 3 60" "glm-5.3-flash 1 14"; do
    read -r name step tokens <<<"$hit"
    hybrid="--model $models/$name.json --trace $conv --requests 1 --max-tokens $tokens --chunk 10"
    same "" 1 $hybrid
    base=$want
    refused 1 "rank 0" 1 $hybrid --json --verify --fault flip:0@step$step
    [ -n "$digest" ] && [ "$digest" != "$base" ] || fail "flip in $name leaves the digest '$digest'"
  done
  hybrid="--model $models/kimi-linear-48b-a3b.json --trace $conv --requests 1 --max-tokens 24 --chunk 10"
  same "" 1 $hybrid
  base=$want
  kinds=""
  for seed in 1 2 3 4 5 6 7 8; do # at the last of its steps a request's state may be hit; what is, the seed draws
    refused 1 "rank 0" 1 $hybrid --json --verify --seed $seed --fault flip:0@step14
    kinds="$kinds $(sed -n 's/.*layer [0-9]*, \([a-z]*\) .*/\1/p' "$err")"
  done
  for kind in latent conv state; do
    case $kinds in *$kind*) ;; *) fail "flips hit$kinds, and no $kind" ;; esac
  done
  same "$base" 4 $hybrid --tp 2 --pp 2 --spec 3 --columns 2 --fault refuse:2@step4
  interrupted KILL 0
  interrupted KILL 3
  interrupted STOP 0
  interrupted STOP 3
  refused 2 "never struck" 4 --tp 2 --pp 2 --fault refuse:1@step100000
  ;;
use)
  refused 2 "mpirun -n 4" 1 --tp 2 --pp 2
  refused 2 "mpirun -n 4" 2 --tp 2 --pp 2
  refused 2 "mpirun -n 2" 4 --tp 2
  SLURM_NTASKS=4 refused 2 "--mpi=pmix" 1
  SLURM_NTASKS=4 SLURM_JOB_ID= refused 2 "--mpi=pmix" 2 --tp 2
  refused 2 "no option --wat" 2 --tp 2 --wat
  refused 2 "layout" 1 --layout heap
  refused 2 "q5_1" 2 --tp 2 --format-k q5_1
  refused 2 "q8_0 is not legal for latent rows: use f32 or bf16" 2 --tp 2 --format-latent q8_0
  refused 2 "cannot be" 2 --tp 2 --model "$scratch/absent.json"
  refused 2 "absent.csv" 2 --tp 2 --trace "$scratch/absent.csv"
  refused 2 "1, 2, 4" 3 --tp 3
  refused 2 "head" 1 --model "$models/stories15m.json"
  refused 2 "host, cuda or auto" 1 --device gpu
  refused 2 "--columns" 1 --columns 1
  refused 2 "--max-tokens" 1 --max-tokens 0
  refused 2 "slots" 1 --model "$models/jamba-v0.1.json" --memory 4MB
  refused 2 "compress_ratios" 1 --model "$models/deepseek-v4-flash.json"
  printf 'TIMESTAMP,ContextTokens,GeneratedTokens\nx,5,many\n' >"$scratch/bad.csv"
  refused 2 "bad.csv" 2 --tp 2 --trace "$scratch/bad.csv"
  # a knob, or an option, of one rank alone
  shared="${small[*]} --tp 2"
  for mixed in "KVGRID_SWA_RING=1 --" "KVGRID_KV_V=q8_0 --" "A=1 -- --seed 2" "A=1 -- --spec 3" "A=1 -- --requests 2" "A=1 -- --columns 5" "A=1 -- --mtp" "A=1 -- --format-latent bf16"; do
    checks=$((checks + 1))
    ASAN_OPTIONS=$leaks_of_mpi "$mpiexec" -q --oversubscribe --mca odls_base_sigkill_timeout 0 -n 1 "$kvgrid" replay $shared : -n 1 env ${mixed%%--*} "$kvgrid" replay $shared ${mixed#*--} >"$out" 2>"$err"
    [ $? = 2 ] && [ "$(grep -c '^kvgrid replay: .*rank 0 and rank 1 differ' "$err")" = 1 ] || { fail "rank 1 alone with $mixed"; head -n 5 "$err"; }
  done
  # a model of one rank alone, which does not take the formats: its own sentence, and nobody waits for it
  checks=$((checks + 1))
  began=$SECONDS
  ASAN_OPTIONS=$leaks_of_mpi "$mpiexec" -q --oversubscribe --mca odls_base_sigkill_timeout 0 -n 1 "$kvgrid" replay $shared : -n 1 "$kvgrid" replay $shared --model "$models/stories15m.json" >"$out" 2>"$err"
  [ $? = 2 ] && [ $((SECONDS - began)) -lt 20 ] && [ "$(grep -c '^kvgrid replay: rank 1 (host .*head dimension 48' "$err")" = 1 ] ||
    { fail "rank 1 alone with another model, after $((SECONDS - began)) s"; head -n 5 "$err"; }
  # what cannot be written is said before anything is served
  mkdir "$scratch/taken.0"
  for trail in "$scratch/absent/trail" "$scratch/taken" "$scratch/$(printf 'x%.0s' {1..254})"; do
    refused 2 "--trail" 1 --trail "$trail"
    [ ! -s "$out" ] || fail "--trail $trail is refused after the run"
  done
  # line 1 names the formats
  run 1
  grep -q '^K q8_0 (lossy), V q5_1 (lossy)' <(head -n 1 "$out") || fail "line 1: $(head -n 1 "$out")"
  grep -q 'state rows/s (no model compute)' "$out" || fail "the summary does not say what its rows are"
  run 1 --format-k bf16 --format-v f16
  ! grep -q lossy "$out" || fail "bf16 and f16 are called lossy"
  ;;
*)
  echo "unknown set $set"
  exit 1
  ;;
esac
echo "$set: $checks checks, $failures failures"
[ $failures = 0 ] && [ $checks -gt 0 ]

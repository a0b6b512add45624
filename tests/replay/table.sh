#!/usr/bin/env bash
# One digest for every grid and shape of a model, model by model: prints model, digest, runs and grids compared, seconds.
#   table.sh KVGRID DATA MPIEXEC [MODEL..]     exit 0 all digests equal, 1 some are not, 77 there is no MPI
# A grid that a model's heads do not fall on is refused by name and counted as such. Requests are cut, never the model.
set -u
[ $# -ge 3 ] || { sed -n 2,4p "$0"; exit 1; }
kvgrid=$1 data=$2 mpiexec=$3
shift 3
[ -n "$mpiexec" ] || { echo "skipped: MPI was not found, and these runs need several ranks"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset SLURM_NTASKS "${!KVGRID_@}" "${!MEMRA_@}"
err=$(mktemp) || exit 1
trap 'rm -f "$err"' EXIT
all=(qwen3-next-80b-a3b qwen3.5-35b-a3b kimi-linear-48b-a3b glm-5.3-flash deepseek-v3.2 kimi-k2 jamba-v0.1 nemotron-3-nano-30b-a3b
     gpt-oss-120b gemma-4-e4b step-3.5-flash mimo-v2-flash)
[ $# -gt 0 ] || set -- "${all[@]}"

# What is cut: state of tens of millions of elements a token allows fewer tokens; windows need more than they hold.
cut_of() {
  case $1 in
  glm-5.3-flash) echo "--requests 2 --max-tokens 70" ;;
  qwen3* | kimi-linear* | jamba* | nemotron*) echo "--requests 2 --max-tokens 130" ;;
  *) echo "--requests 2 --max-tokens 700" ;;
  esac
}

# GRID and options of each run, beside 1x1 with none.
runs=("1x1 --spec 3" "1x1 --spec 3 --columns 2" "1x1 --chunk 17 --layout flat --ring on" "1x1 --spec 3 --layout flat --columns 2 --ring on"
      "2x1 --spec 3" "1x2 --chunk 33 --ring on" "2x2" "2x2 --spec 3 --columns 2 --layout flat --ring on" "4x1 --spec 3 --columns 2 --ring on"
      "1x4 --spec 3 --chunk 40 --ring off")
mtp_runs=("2x2 --spec 3" "1x1 --spec 3 --columns 2 --layout flat" "1x2 --chunk 19")

run() { # run GRID OPTIONS..: prints the digest, "-" where the heads do not fall on the grid, or nothing
  local grid=$1 ranks=$((${1%x*} * ${1#*x})) job=("$kvgrid" replay --trace "$data/traces/azure_llm_2023_conv.csv" --verify --tp "${1%x*}" --pp "${1#*x}")
  shift
  [ "$ranks" = 1 ] || job=("$mpiexec" -q --oversubscribe --mca mpi_yield_when_idle 1 -n "$ranks" "${job[@]}")
  if "${job[@]}" "$@" 2>"$err" | sed -n 's/^digest *//p' | grep .; then
    :
  elif grep -q "TP sizes that work" "$err"; then
    echo "-"
  fi
}

failures=0
compare() { # compare NAME MODEL WANT RUNS..: adds to $grids, $compared and $refused
  local name=$1 model=$2 want=$3 shape got grid
  shift 3
  for shape in "$@"; do
    grid=${shape%% *}
    # shellcheck disable=SC2046,SC2086
    got=$(run $grid --model "$model" $(cut_of "$name") $mtp ${shape#"$grid"})
    if [ "$got" = "-" ]; then
      refused=$((refused + 1))
    elif [ "$got" != "$want" ]; then
      failures=$((failures + 1))
      printf 'FAILED: %s on %s: "%s", not %s\n' "$name" "$shape $mtp" "$got" "$want"
      head -n 3 "$err"
    else
      compared=$((compared + 1))
      case " $grids " in *" $grid "*) ;; *) grids="$grids $grid" ;; esac
    fi
  done
}

table() { # table NAME RUNS..
  local name=$1 model=$data/models/$1.json from=$SECONDS digest grids="1x1" compared=1 refused=0
  shift
  # shellcheck disable=SC2046,SC2086
  digest=$(run 1x1 --model "$model" $(cut_of "$name") $mtp)
  if [ "${#digest}" != 32 ]; then
    failures=$((failures + 1))
    printf 'FAILED: %s has no digest: %s\n' "$name" "$(head -n 1 "$err")"
    return
  fi
  compare "$name" "$model" "$digest" "$@"
  printf '%-26s %s  %2d runs equal on %s%s  %4d s\n' "$name${mtp:+ $mtp}" "$digest" "$compared" "$grids" \
         "$([ $refused = 0 ] || echo "; $refused refused: heads")" $((SECONDS - from))
}

has_mtp() { grep -Eq '"(num_nextn_predict_layers|mtp_num_hidden_layers|num_mtp_modules)": *[1-9]' "$data/models/$1.json"; }

for name in "$@"; do
  mtp=""
  table "$name" "${runs[@]}"
  if has_mtp "$name"; then
    mtp="--mtp"
    table "$name" "${mtp_runs[@]}"
  fi
done
[ $failures = 0 ]

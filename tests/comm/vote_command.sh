#!/bin/sh
# The command and its votes: what it loads, what doctor says of NCCL, what --vote refuses and what the summary says.
#   vote_command.sh KVGRID DATA MPIEXEC WITH_NCCL(0|1) [FAKE_WHOLE FAKE_PART]   two libraries that call themselves NCCL; "" without CUDA
set -eu
kvgrid=$1 data=$2 mpiexec=$3 with_nccl=$4 whole=${5:-} part=${6:-}
out=$(mktemp)
trap 'rm -f "$out"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fail() { echo "FAIL: $*"; cat "$out"; exit 1; }

# says WORDS..: the last output has these words
says() { for words in "$@"; do grep -qF -- "$words" "$out" || fail "nothing says: $words"; done; }
doctor() { # doctor [LIBRARY]: the NCCL line, with a library loaded before
    LD_PRELOAD=${1:-} "$kvgrid" doctor > "$out" || fail "doctor ends with $?"
    [ "$(grep -c '^[a-zA-Z]* *NCCL ' "$out")" = 1 ] || fail "not one line about NCCL"
}

ldd "$kvgrid" > "$out"
if grep -E 'libnccl|libcuda' "$out"; then fail "it needs a driver or NCCL to start"; fi

doctor
if [ "$with_nccl" = 1 ]; then
    says "NCCL        "
else
    says "ok    NCCL        no NCCL in this build"
fi
if [ -n "$whole" ]; then
    doctor "$whole"
    says "warn  NCCL        device vote off: compiled against NCCL 2." "running with 2.1.7"
    doctor "$part"
    says "warn  NCCL        device vote off: compiled against NCCL 2." "it has no ncclCommCuDevice"
fi

set -- --model "$data/models/tinyllama-1.1b.json" --trace "$data/traces/azure_llm_2023_conv.csv" --requests 2 --max-tokens 60
refused() { # refused STATUS OPTION..
    expected=$1 status=0
    shift
    "$@" > "$out" 2>&1 || status=$?
    [ "$status" = "$expected" ] || fail "ended with $status, not $expected: $*"
    [ "$(grep -c '^kvgrid replay: ' "$out")" = 1 ] || fail "not one sentence: $*"
}
refused 2 "$kvgrid" replay "$@" --vote sockets
says 'kvgrid replay: --vote "sockets" is unknown: give auto, device, nccl or host'
"$kvgrid" replay "$@" --vote device > "$out" || fail "one rank alone needs nobody's vote"
says "vote        host, one rank alone"
"$kvgrid" replay --help | tr -s ' \n' ' ' > "$out" # lines are wrapped
says "--vote auto|host|nccl|device" "an MPI record takes less time than a kernel's launch"

[ -n "$mpiexec" ] || { echo "without MPI: the rest is left out"; exit 0; }
two() { "$mpiexec" --oversubscribe --bind-to none -n 2 "$kvgrid" replay "$@"; }
two "$@" --tp 2 --vote auto > "$out" || fail "auto"
says "vote        host, records by mpi"
digest=$(awk '$1 == "digest" {print $2}' "$out")
two "$@" --tp 2 --vote host --json > "$out" || fail "host"
says "digest      $digest" '"vote":"host, records by mpi"'
if "$kvgrid" doctor | grep -q 'CUDA device.* can be used'; then
    echo "GPUs are here: what is refused without them is left out"
    exit 0
fi
for vote in nccl device; do
    refused 2 two "$@" --tp 2 --vote $vote
    if [ "$with_nccl" = 1 ]; then says "kvgrid replay: --vote $vote: no CUDA"; else says "--vote $vote: this kvgrid was built without NCCL"; fi
done
echo "ok"

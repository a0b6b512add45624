#!/usr/bin/env bash
# The command and its ranks' places: doctor's table under mpirun, of topologies, and replay's --bind and --ranks-per-device.
#   rank_command.sh KVGRID KVGRID_INDIRECT DATA [MPIEXEC] WITH_HWLOC     exit 0, or 1 with what was wrong
set -u
kvgrid=$1 indirect=$2 data=$3 mpiexec=$4 with_hwloc=$5
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
export ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-} # Open MPI's own
unset "${!SLURM_@}" "${!HWLOC_@}"
out=$(mktemp)
trap 'rm -f "$out" "$out.pipe"' EXIT
checks=0

fail() { echo "FAIL: $*"; cat "$out"; exit 1; }
run() { # run STATUS COMMAND..: into $out
  local want=$1 status
  shift
  "$@" > "$out" 2>&1 < /dev/null
  status=$?
  [ $status = "$want" ] || fail "exit $status, not $want: $*"
}
says() { local text; for text; do grep -qF -- "$text" "$out" || fail "no '$text'"; checks=$((checks + 1)); done; }
lines() { [ "$(grep -c -- "$2" "$out")" = "$1" ] || fail "not $1 lines of '$2'"; checks=$((checks + 1)); }
ranks() { "$mpiexec" -q --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n "$@"; }

job=(replay --model "$data/models/tinyllama-1.1b.json" --trace "$data/traces/azure_llm_2023_conv.csv" --requests 1 --max-tokens 8)
cpus=$(awk '/^Cpus_allowed_list/ {print $2}' /proc/self/status)
first=${cpus%%[,-]*}

# ---- one process: topologies, and ranks that would be
run 1 "$kvgrid" doctor --memory 1000TB
says "FAIL  rank memory" "are to take 1.00 PB each"
run 0 "$kvgrid" doctor --memory 1MB
lines 1 '^ok    rank memory'
run 0 "$kvgrid" doctor
lines 0 '^rank '
[ -r /proc/driver/nvidia/version ] || { lines 1 '^ok    CUDA  .*no.* driver here.*state lives in host memory'; lines 0 '^ok .*; install '; }
run 0 env KVGRID_INTERFACE=lo "$kvgrid" doctor
says "ok    network     ranks on other hosts would be told 127.0.0.1, by KVGRID_INTERFACE; KVGRID_INTERFACE chooses among " "lo 127.0.0.1"
run 1 env KVGRID_INTERFACE=eth77 "$kvgrid" doctor
says 'FAIL  network     mesh: "eth77" is no interface of host ' "lo 127.0.0.1"
run 1 env KVGRID_INTERFACE=203.0.113.77 "$kvgrid" doctor
says "FAIL  network     mesh: 203.0.113.77 is no address of this host"
run 0 env KVGRID_INTERFACE= "$kvgrid" doctor
says " network     "
lines 0 "by KVGRID_INTERFACE"
run 2 "$kvgrid" doctor --bind near
says 'kvgrid doctor: --bind "near" is unknown: give auto or none'
run 0 "$kvgrid" doctor --ranks 3 # the machine's checks, and the table
says "ok    self test" "rank  host"
lines 3 "^[0-2]  *$(hostname) .* of 3 "
run 1 "$kvgrid" doctor --ranks 2 --memory 8000TB
says "FAIL  rank memory 2 rank(s) of $(hostname) are to take 8.00 PB each"
if [ "$with_hwloc" = 1 ]; then
  run 0 "$kvgrid" doctor --topology "$data/topologies/two-socket-8gpu.xml"
  lines 8 '^[0-7]  *that machine .* of 8 '
  says "0 0000:1b:00.0 H200 SXM 141GB" "cpus 14-15,30-31, memory of node 1: near device 0000:df:00.0 by hwloc" "ok    binding     8 of 8 ranks bound"
  lines 0 'self test'
  run 1 "$kvgrid" doctor --topology "$data/topologies/power8-4gpu.xml" --ranks 5
  says "FAIL  ranks       rank 0: 5 ranks and 4 devices on that machine: start 4 there, or say --ranks-per-device 2"
  run 0 "$kvgrid" doctor --topology "$data/topologies/power8-4gpu.xml" --ranks 5 --ranks-per-device 2
  says "warn  devices     on that machine ranks 0 and 4 share a device"
  run 0 "$kvgrid" doctor --topology "synthetic:NUMANode:2 Core:2 PU:1" --ranks 4 --bind none
  lines 4 'not bound: --bind none'
  run 1 "$kvgrid" doctor --topology "$data/models/tinyllama-1.1b.json"
  says "FAIL  topology    $data/models/tinyllama-1.1b.json: hwloc cannot"
  run 1 "$kvgrid" doctor --topology /no/such.xml
  says "FAIL  topology    /no/such.xml: cannot be opened: No such file"
  run 1 "$kvgrid" doctor --topology /dev/zero
  says "FAIL  topology    /dev/zero: hwloc cannot"
  run 1 "$kvgrid" doctor --topology /
  says "FAIL  topology    /: cannot be read: Is a directory"
  run 0 "$kvgrid" doctor --topology <(cat "$data/topologies/power8-4gpu.xml")
  says "0002:01:00.0 Tesla P100" "0 of 4"
  mkfifo "$out.pipe"
  run 1 timeout 30 "$kvgrid" doctor --topology "$out.pipe"
  says "FAIL  topology    $out.pipe: a pipe into which nothing was written"
  run 0 env HWLOC_XMLFILE="$data/topologies/two-socket-8gpu.xml" "$kvgrid" doctor
  says "2 NUMA node(s), 16 core(s), of another machine (HWLOC_XMLFILE): nothing is bound by it"
else
  run 1 "$kvgrid" doctor --topology "synthetic:NUMANode:2 Core:2 PU:1"
  says "FAIL  topology    hwloc is not compiled in"
fi

# ---- replay, forked: the words, and devices that do not go round
run 2 "$kvgrid" "${job[@]}" --bind cores
says 'kvgrid replay: --bind "cores" is unknown: give auto or none'
run 0 "$kvgrid" "${job[@]}" --ranks 2 --tp 2 --bind none --json
says "binding     every rank not bound: --bind none" '"binding":"not bound: --bind none"'
run 2 env KVG_TEST_GPUS=1 "$indirect" "${job[@]}" --ranks 2 --tp 2 --device cuda
says "2 ranks and 1 device on $(hostname): start 1 there, or say --ranks-per-device 2, or --device host"
lines 1 '^kvgrid replay: '
# What the driver says is of the whole device: it is compared where a rank has one to itself, else said not to be.
run 0 env KVG_TEST_GPUS=1 KVG_TEST_DRIVER_EXTRA=1000000000 "$indirect" "${job[@]}" --ranks 2 --tp 2 --device cuda --ranks-per-device 2 --json
lines 2 '^rank [01]  *driver: .* taken by our count, .*; not compared, since 2 ranks share this device$'
lines 0 'NOT EQUAL'
lines 1 '"device_ranks":2.*"device_ranks":2'
run 0 env KVG_TEST_GPUS=2 "$indirect" "${job[@]}" --ranks 2 --tp 2 --device auto --ranks-per-device 2 --json
lines 2 '^rank [01]  *driver: .*; equal but for '
lines 1 '"device_ranks":1.*"device_ranks":1'
run 0 env KVG_TEST_GPUS=2 "$indirect" "${job[@]}" --ranks 2 --tp 2 --json
lines 0 '^rank .*driver'
lines 1 '"device_ranks":0.*"device_ranks":0'
run 2 env KVG_TEST_GPUS=0 "$indirect" "${job[@]}" --device cuda --ranks-per-device 0
says "--ranks-per-device is 0"
if [ "$with_hwloc" = 1 ] && taskset -c 0,1 true 2> /dev/null; then # this machine, told to be of two NUMA nodes
  run 0 env HWLOC_SYNTHETIC="NUMANode:2 Core:1 PU:1" HWLOC_THISSYSTEM=1 "$kvgrid" "${job[@]}" --ranks 2 --tp 2
  says "binding     rank 0 cpus 0, memory of node 0: no device: its part of the NUMA nodes" "binding     rank 1 cpus 1"
  run 0 env HWLOC_SYNTHETIC="NUMANode:2 Core:1 PU:1" "$kvgrid" "${job[@]}" --ranks 2 --tp 2
  says "binding     every rank not bound: the topology is not this machine's"
fi

# ---- under mpirun
[ -n "$mpiexec" ] || { echo "ok: $checks checks; without MPI the rest is left out"; exit 0; }
run 0 ranks 4 "$kvgrid" doctor
lines 1 '^rank  host '
lines 1 'self test'
for rank in 0 1 2 3; do
  lines 1 "^$rank  *$(hostname)  *[1-9][0-9]*  *$rank of 4  *host  *$cpus "
done
says "ok    ranks       4 ranks on 1 machine, local ranks by OMPI_COMM_WORLD_LOCAL_RANK"
[ "$(awk '/^[0-3] .* of 4 / {print $3}' "$out" | sort -u | wc -l)" = 4 ] || fail "not four processes"
run 0 ranks 2 taskset -c "$first" "$kvgrid" doctor # narrower than the machine: respected
lines 2 " of 2  *host  *$first  "
says "warn  cores       2 ranks of $(hostname) share 1 core(s) (cpus $first) and take turns"
run 1 ranks 2 "$kvgrid" doctor --memory 8000TB
says "FAIL  rank memory 2 rank(s) of $(hostname)"
lines 1 '^FAIL '
# A launcher that counts otherwise is refused by name, once.
run 1 ranks 2 env OMPI_COMM_WORLD_LOCAL_RANK=0 "$kvgrid" doctor
says "FAIL  ranks       rank 1: OMPI_COMM_WORLD_LOCAL_RANK says local rank 0 of 2, but by the names of the ranks' machines this is local rank 1 of 2"
run 2 ranks 2 env OMPI_COMM_WORLD_LOCAL_RANK=0 "$kvgrid" "${job[@]}" --tp 2
says "kvgrid replay: rank 1 (host $(hostname)): OMPI_COMM_WORLD_LOCAL_RANK says local rank 0 of 2"
run 0 ranks 2 "$kvgrid" "${job[@]}" --tp 2
says "binding     every rank "
echo "ok: $checks checks"

#!/usr/bin/env bash
# Replay as SLURM jobs: the scripts of launch/slurm, a job that loses a rank, srun without PMIx. On a SLURM of this machine alone, started here
# in a folder of its own and on free ports, and stopped here.
#   slurm.sh KVGRID DATA
# Exit status: 0 all passed, 1 not, 77 skipped; SLURM_REQUIRED=1 makes 1 of 77. KVG_SANITIZED=1: the command has sanitizers.
set -uo pipefail

kvgrid=$(realpath "$1") data=$(realpath "$2")
required=${SLURM_REQUIRED:-0}
root=$(realpath "$(dirname "$0")/../..")
scripts=$root/launch/slurm
failures=0
cluster=() # process ids of the daemons

skip() {
    echo "skipped: $*"
    [ "$required" = 1 ] && exit 1
    exit 77
}
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }

[ "${KVG_SANITIZED:-0}" = 0 ] || { echo "skipped: the build without sanitizers runs this, and what the ranks execute is tested with them elsewhere"; exit 77; }
PATH=$PATH:/usr/sbin:/sbin
for program in munged slurmctld slurmd srun sbatch mpirun; do
    command -v $program > /dev/null || skip "no $program here (packages slurmctld, slurmd, slurm-client, munge, openmpi-bin)"
done

# Not as in a job that this may run in.
unset "${!SLURM_@}" "${!SBATCH_@}" "${!SRUN_@}" "${!PMIX_@}" "${!PMI_@}" "${!KVGRID_@}" "${!MEMRA_@}"
folder=$(mktemp -d /tmp/kvgrid-slurm.XXXXXX) || exit 1
host=$(hostname -s) user=$(id -un)
export KVG_SLURM_FOLDER=$folder # the mark of all that is started from here
export SLURM_CONF=$folder/slurm.conf
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1

# ---- a SLURM of one machine

# Processes that carry the mark, or hold a file of the folder.
left_running() (
    unset KVG_SLURM_FOLDER # not of what looks
    {
        grep -lzx "KVG_SLURM_FOLDER=$folder" /proc/[0-9]*/environ
        find /proc/[0-9]*/fd /proc/[0-9]*/cwd -lname "$folder/*"
    } 2> /dev/null | cut -d / -f 3 | sort -u
)

until_true() { # until_true SECONDS COMMAND..
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

are_gone() { # are_gone PID..
    local pid
    for pid in "$@"; do
        ! kill -0 "$pid" 2> /dev/null || return 1
    done
}

# shellcheck disable=SC2317 # called through until_true
nothing_left() { [ -z "$(left_running)" ]; }
# shellcheck disable=SC2317
no_jobs() { [ -z "$(squeue -h 2>&1)" ]; }

stop_daemons() {
    kill "${cluster[@]}" 2> /dev/null
    until_true 15 are_gone "${cluster[@]}" || { fail "a daemon did not stop"; kill -9 "${cluster[@]}"; }
    wait "${cluster[@]}"
    cluster=()
}

# shellcheck disable=SC2317 # called by the trap
stop() {
    local pids
    trap '' INT TERM
    if [ ${#cluster[@]} != 0 ]; then
        scancel --user "$user" > /dev/null 2>&1
        until_true 20 no_jobs || fail "jobs are left: $(squeue -h)"
        [ "$failures" = 0 ] || tail -n 20 "$folder"/*.log
        stop_daemons
    fi
    if ! until_true 10 nothing_left; then
        pids=$(left_running)
        # shellcheck disable=SC2086 # a list of words
        fail "left running: $(ps -o pid=,args= -p ${pids//$'\n'/,})"
        # shellcheck disable=SC2086
        kill -9 $pids
    fi
    rm -rf "$folder"
    echo "$failures failures, $SECONDS s"
    [ "$failures" = 0 ] || exit 1
}
trap stop EXIT
trap 'fail "interrupted"; exit 1' INT TERM

free_port() { # below those that the system hands out
    local port
    while :; do
        port=$((20000 + RANDOM % 12000))
        (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null || break
    done
    echo $port
}

# Ids of jobs come from the port, since Open MPI's shared memory under srun and PMIx's files are named by them on the whole machine.
write_conf() {
    local port
    port=$(free_port)
    cat > "$SLURM_CONF" << END
ClusterName=kvgrid
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
SlurmctldPort=$port
FirstJobId=$((port * 100))
SlurmdPort=$(free_port)
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
TmpFS=$folder/tmp
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=100000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
KillWait=5
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=1000 State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
}

# shellcheck disable=SC2317 # called through until_true
is_idle_or_dead() {
    [ "$(sinfo -h -o %t 2> /dev/null)" = idle ] || ! kill -0 "${cluster[@]}" 2> /dev/null
}

start_munge() {
    local munge=$folder/munge
    mkdir -p "$folder/state" "$folder/spool" "$folder/tmp" "$munge"
    chmod 755 "$folder" "$munge"
    head -c 128 /dev/urandom > "$munge/key"
    chmod 400 "$munge/key"
    munged --foreground --force --key-file="$munge/key" --socket="$munge/socket" --pid-file="$munge/pid" --log-file="$munge/log" \
        --seed-file="$munge/seed" > "$folder/munged.log" 2>&1 &
    cluster=($!)
    until_true 10 test -S "$munge/socket" || skip "munged does not start as $user: $(tail -n 1 "$folder/munged.log")"
}

# Another program may take a port first: then again, with other ports.
start() {
    local attempt
    for attempt in 1 2 3 4; do
        start_munge
        write_conf
        slurmctld -D > "$folder/slurmctld.log" 2>&1 &
        cluster+=($!)
        slurmd -D -N "$host" > "$folder/slurmd.log" 2>&1 &
        cluster+=($!)
        until_true 30 is_idle_or_dead
        [ "$(sinfo -h -o %t 2> /dev/null)" != idle ] || return 0
        echo "attempt $attempt: no idle machine"
        tail -n 5 "$folder"/*.log
        stop_daemons
        rm -rf "$folder/state" "$folder/spool" "$folder/munge"
    done
    [ "$user" = root ] || skip "SLURM does not run as $user here"
    fail "SLURM does not start"
    exit 1
}

# ---- jobs

model=$data/models/tinyllama-1.1b.json trace=$data/traces/azure_llm_2023_conv.csv
short=(--requests 8 --max-tokens 200) long=(--requests 96 --max-tokens 512)
declare -A waiting # sbatch -W by job

# Submits and goes on; KVGRID, MODEL, TRACE, TP, PP and knobs are the environment's.
submit() { # submit NAME SCRIPT TASKS OPTIONS OF REPLAY..
    local name=$1 what=(--parsable --ntasks "$3" --output "$folder/$1.out" "$scripts/$2.sbatch")
    shift 3
    mkdir "$folder/tmp/$name" # Open MPI's sessions of one folder trip over each other's clearing away
    TMPDIR=$folder/tmp/$name sbatch "${what[@]}" "$@" > "$folder/$name.id" 2> "$folder/$name.err" ||
        fail "$name is not taken: $(cat "$folder/$name.err")"
}

# The same by sbatch -W, whose exit status is the job's. It looks after 2 seconds, then after 10, then seldom, so few jobs are run by it.
submit_and_wait() {
    local name=$1 what=(-W --parsable --ntasks "$3" --output "$folder/$1.out" "$scripts/$2.sbatch")
    shift 3
    mkdir "$folder/tmp/$name"
    TMPDIR=$folder/tmp/$name timeout 90 sbatch "${what[@]}" "$@" > "$folder/$name.id" 2> "$folder/$name.err" &
    waiting[$name]=$!
    until_true 10 test -s "$folder/$name.id" || fail "$name is not taken: $(cat "$folder/$name.err")"
}

field() { scontrol show job -o "$job" | sed -nE "s/.* $1=([^ ]*) .*/\1/p"; } # field NAME: of $job
# shellcheck disable=SC2317 # called through until_true
is_over() { [[ $(field JobState) =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)$ ]]; }

ended() { # ended NAME: its number in $job, its exit status in $status, what it said in $out, its last line in $last
    job=$(cat "$folder/$1.id")
    if [ -n "${waiting[$1]:-}" ]; then
        wait "${waiting[$1]}"
        status=$?
    elif until_true 90 is_over; then
        status=$(field ExitCode) # STATUS:SIGNAL
        status=${status%:0}
    else
        status=124
    fi
    out=$(cat "$folder/$1.out" "$folder/$1.err")
    last=$(tail -n 1 "$folder/$1.out")
    echo "$1: exit status $status, $SECONDS s"
}

wrong() { # wrong NAME WHAT: with all that it said
    fail "$1: $2 (exit status $status)"
    printf '    %s\n' "${out//$'\n'/$'\n'    }"
}

ends_with_digest() { # ends_with_digest NAME
    ended "$1"
    [ "$status" = 0 ] || wrong "$1" "failed"
    [ "$(awk '$1 == "digest" {print $2}' <<< "$out")" = "$digest" ] || wrong "$1" "its digest is not $digest, as on one process"
    grep -q ' on 2x2 ranks ' <<< "$out" || wrong "$1" "not on 2x2 ranks"
}

# It ends, soon, and not well; the job's last line says which rank was lost, and it alone says so for the job.
ends_with_loss() { # ends_with_loss NAME RANK HOW
    local ran
    ended "$1"
    ran=$(field RunTime) # HH:MM:SS
    case $status in 0 | 124) wrong "$1" "its exit status hides the loss" ;; esac
    [[ $last =~ ^"kvgrid job $job: rank $2 was lost: "($3)"; exit status $status"$ ]] || wrong "$1" "its last line is: $last"
    [ "$(grep -c "^kvgrid job " <<< "$out")" = 1 ] || wrong "$1" "not one line for the job"
    [[ $ran < 00:00:30 ]] || wrong "$1" "it ran for $ran"
}

is_refused() { # is_refused NAME WORDS: by the script, before anything is started
    ended "$1"
    [ "$status" = 2 ] || wrong "$1" "not refused with exit status 2"
    [ "$out" = "$last" ] || wrong "$1" "more than one line"
    grep -q "^kvgrid job $job: .*$2" <<< "$last" || wrong "$1" "it does not say \"$2\""
}

# ---- srun without PMIx: each task is rank 0 of 1

step() { # step SRUN OPTIONS.. -- OPTIONS OF KVGRID..
    local options=()
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    out=$(timeout 60 srun -Q -n 4 "${options[@]}" "$kvgrid" "$@" 2>&1)
    status=$?
}

is_trapped() { # is_trapped NAME WORDS: replay refuses, once, with the cure
    [ "$status" = 2 ] || wrong "$1" "not refused with exit status 2"
    [ "$(grep -vc '^srun: ' <<< "$out")" = 1 ] || wrong "$1" "it is not said once"
    grep -q "^kvgrid replay: .*$2" <<< "$out" || wrong "$1" "it does not say \"$2\""
    grep -q 'srun --mpi=pmix -n 4$' <<< "$out" || wrong "$1" "no cure"
}

doctor_says() { # doctor_says NAME STATUS LINE: once
    [ "$status" = "$2" ] || wrong "$1" "its exit status is not $2"
    [ "$(grep -c "^$3" <<< "$out")" = 1 ] || wrong "$1" "it does not say \"$3\""
}

test_singletons() {
    local replay=(replay --model "$model" --trace "$trace" "${short[@]}")
    step -- "${replay[@]}" --tp 2 --pp 2
    is_trapped "four singletons for 2x2" "SLURM_NTASKS is 4 but MPI counts 1 rank: srun started 4 tasks without a PMI"
    step -- "${replay[@]}" --tp 1 --pp 1
    is_trapped "four singletons for 1x1" "SLURM_NTASKS is 4 but MPI counts 1 rank: srun started 4 tasks without a PMI"
    step -- "${replay[@]}" --tp 2 --pp 2 --ranks 4
    is_trapped "four singletons that fork" "srun started 4 tasks, each of which would fork a grid of its own"
    step --mpi=pmi2 -- "${replay[@]}" --tp 2 --pp 2
    is_trapped "pmi2" "SLURM_NTASKS is 4 but MPI counts 1 rank: .* a PMI that is not PMIx"
    step -- doctor
    doctor_says "doctor" 1 "FAIL  SLURM .*srun --mpi=pmix -n 4$"
    step --mpi=pmi2 -- doctor
    doctor_says "doctor under pmi2" 1 "FAIL  SLURM .*srun --mpi=pmix -n 4$"
    step --mpi=pmix -- doctor
    doctor_says "doctor under pmix" 0 "ok    SLURM "
    doctor_says "its table of ranks" 0 "ok    ranks       4 ranks on 1 machine, local ranks by SLURM_LOCALID$"
    doctor_says "its last rank" 0 "3  *$host.* 3 of 4 "
    out=$(SLURM_LOCALID=0 timeout 60 salloc -Q -n 2 mpirun -n 2 "$kvgrid" doctor 2>&1) # as in a batch script, whose SLURM_LOCALID all ranks inherit
    status=$?
    doctor_says "doctor under mpirun in a job" 0 "ok    ranks       2 ranks on 1 machine, local ranks by OMPI_COMM_WORLD_LOCAL_RANK$"
}

# ---- the scripts

test_scripts() {
    local script
    export KVGRID=$kvgrid MODEL=$model TRACE=$trace TP=2 PP=2
    for script in replay_mpirun replay_srun; do
        submit_and_wait $script-kill $script 4 "${long[@]}" --fault kill:2@0.1s
    done
    # shellcheck disable=SC2016 # for the ranks' shells
    printf '#!/bin/sh\n[ ${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID} != 2 ] || kill -9 $$\nexec "%s" "$@"\n' "$kvgrid" > "$folder/dies"
    chmod +x "$folder/dies"
    for script in replay_mpirun replay_srun; do
        KVGRID=$folder/dies submit $script-early $script 4 "${short[@]}" # before there is a grid
        submit $script-digest $script 4 "${short[@]}"
        submit $script-exit $script 4 "${long[@]}" --fault exit:0@0.1s
        KVGRID_TIMEOUT_MS=2500 submit $script-stall $script 4 "${long[@]}" --fault stall:3@0.1s
        submit $script-grid $script 3 "${short[@]}"
        submit $script-use $script 4 "${short[@]}" --layout heap
        MODEL='' submit $script-model $script 4
    done
    SLURM_PMIX_TMPDIR=$folder/none submit not-launched replay_srun 4 "${short[@]}" # srun itself answers 0
    OMPI_MCA_orte_enable_recovery=1 submit recovery replay_mpirun 4 "${long[@]}" --fault kill:1@0.1s
    for script in replay_mpirun replay_srun; do
        ends_with_digest $script-digest
        ends_with_loss $script-exit 0 "ended with exit status 3 on .*|connection .*"
        ends_with_loss $script-early 2 "ended by signal 9 on .*"
        ends_with_loss $script-stall 3 "it has been silent for .*KVGRID_TIMEOUT_MS 2500\) \(host $host, pid [0-9]+\)"
        is_refused $script-grid "TP 2 x PP 2 is 4 ranks, and SLURM_NTASKS is 3: submit with sbatch --ntasks 4"
        is_refused $script-model "MODEL and TRACE are not both set"
        ended $script-use
        [ "$status" = 2 ] || wrong $script-use "bad use is not replay's exit status 2"
        grep -q '^kvgrid replay: .*layout' <<< "$out" || wrong $script-use "replay does not say why"
        ends_with_loss $script-kill 2 "ended by signal 9 on .*|connection .*"
    done
    ended not-launched
    [ "$status" = 1 ] || wrong not-launched "a step that could not be launched is no failure"
    [ "$last" = "kvgrid job $job: failed, and why stands above; exit status 1" ] || wrong not-launched "its last line is: $last"
    ends_with_loss recovery 1 "ended by signal 9 on .*|connection .*"
    [ -z "$(find "$folder/tmp" -name 'tmp.*')" ] || fail "a script left its file behind"
}

# The pages' commands as they stand there, and what they show of doctor.
test_readme() {
    local line lines=0 pages=("$root/README.md" "$root/launch/slurm/README.md")
    mkdir "$folder/readme"
    ln -s "$root/launch" "$root/tests" "$folder/readme"
    mkdir "$folder/readme/build" && ln -s "$kvgrid" "$folder/readme/build/kvgrid"
    while read -r line; do
        (cd "$folder/readme" && env -u KVGRID timeout 90 sh -c "$line" > output 2>&1) || { status=$?; out=$(cat "$folder/readme/"*.out) wrong README "$line"; }
        lines=$((lines + 1))
    done < <(sed -n 's/^\$ \(.* sbatch .*\)/\1/p' "${pages[@]}" | sort -u)
    [ "$lines" = 2 ] || fail "the pages show $lines sbatch commands"
    [ "$(grep -h '^digest ' "$folder"/readme/*.out | uniq -c | awk '{print $1}')" = 2 ] || fail "the pages' two jobs do not end in one digest"
    grep -qxF "$(grep -h '^digest ' "$folder"/readme/*.out | head -n 1)" "$root/README.md" || fail "README.md shows another digest than its job's"
    step -- doctor
    line=$(grep '^FAIL  SLURM' <<< "$out")
    grep -qxF "$line" "${pages[@]}" || fail "the pages do not show: $line"
}

digest=$("$kvgrid" replay --model "$model" --trace "$trace" "${short[@]}" | awk '$1 == "digest" {print $2}')
[ "${#digest}" = 32 ] || { fail "no digest on one process"; exit 1; }
start
[ "$(left_running | wc -l)" -ge 3 ] || fail "the daemons are not seen, so nothing that is left would be"
echo "SLURM is up after $SECONDS s"
test_singletons
test_readme
test_scripts

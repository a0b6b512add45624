#!/usr/bin/env bash
# The job scripts without SLURM and with odd environments: one sentence, exit status 2, nothing started. Paths may have blanks in them.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/pro grams"
for program in mpirun srun; do # as far as the scripts know, these start one rank
    cat > "$folder/pro grams/$program" <<'END'
#!/usr/bin/env bash
while [ "$1" != sh ]; do shift; done
OMPI_COMM_WORLD_RANK=0 SLURM_PROCID=0 exec "$@"
END
done
printf '#!/bin/sh\nprintf "<%%s>" "$@"\n' > "$folder/pro grams/kv grid"
chmod +x "$folder/pro grams"/*

checks=0 failures=0
job() { # job SCRIPT NAME=VALUE...: status, out, err
    local script=$1
    shift
    out=$(env -u SLURM_NTASKS -u SLURM_JOB_ID -u SLURM_CPUS_PER_TASK -u TP -u PP PATH="$folder/pro grams:$PATH" KVGRID="$folder/pro grams/kv grid" MODEL="m o'd\$el" TRACE=t "$@" \
        bash "$root/launch/slurm/replay_$script.sbatch" --spec 4 2> "$folder/err")
    status=$?
    err=$(cat "$folder/err")
}
is() { # is WHAT GOT WANTED
    checks=$((checks + 1))
    [ "$2" = "$3" ] || { failures=$((failures + 1)); printf 'FAILED: %s: %s, not %s\n' "$1" "$2" "$3"; }
}
refused() { # refused SENTENCE NAME=VALUE...
    local sentence=$1
    shift
    for script in mpirun srun; do
        job $script "$@"
        is "$script $*" "$status $out $err" "2  kvgrid job : $sentence"
    done
}

refused "TP 1 x PP 1 is 1 ranks, and SLURM_NTASKS is none: submit with sbatch --ntasks 1"
refused "TP 1 x PP 1 is 1 ranks, and SLURM_NTASKS is 2: submit with sbatch --ntasks 1" SLURM_NTASKS=2
refused "MODEL and TRACE are not both set: MODEL=config.json TRACE=trace.csv sbatch ..." SLURM_NTASKS=1 MODEL=
# shellcheck disable=SC2016 # none of it is to be expanded
for odd in x 0 08 -1 1x2 '1;2' ' 1' 'a[$(touch /)]'; do
    refused "TP is '$odd' and PP '1': both are whole numbers from 1" SLURM_NTASKS=1 TP="$odd"
    refused "TP is '1' and PP '$odd': both are whole numbers from 1" SLURM_NTASKS=1 PP="$odd"
done
for script in mpirun srun; do
    job $script SLURM_NTASKS=1
    is "$script with blanks in its paths" "$status $out" "0 <replay><--model><m o'd\$el><--trace><t><--tp><1><--pp><1><--spec><4>"
done
echo "$checks checks, $failures failures"
[ $failures = 0 ]

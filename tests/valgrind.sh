#!/usr/bin/env bash
# The Check suites under Valgrind's memcheck: no error, and no byte lost for good. A line a suite; what is left out is named with its reason.
#   tests/valgrind.sh [--build DIR] [--jobs N] [SUITE..]      default: build-valgrind/, and every suite
# Exit status: 0 all is well, 1 something was found, 2 no build, 77 no Valgrind here. What was found stands in DIR/valgrind/SUITE.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build-valgrind jobs=$(nproc) limit=3600 suites=()
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    -*) sed -n '2,4s/^# *//p' "$0" >&2; exit 2 ;;
    *) suites+=("$1"); shift ;;
    esac
done
command -v valgrind > /dev/null || { echo "tests/valgrind.sh: skipped, no valgrind here (Debian: apt-get install valgrind)"; exit 77; }

# Not run, and why. All else that ctest labels "unit" is.
reason_to_leave_out() { # reason_to_leave_out SUITE
    case $1 in
    test_mesh | test_mesh_address | test_mesh_setup | test_mesh_grid | test_rebuild_mesh) echo "its ranks are processes that others must hear within milliseconds; run under ASan and UBSan" ;;
    test_shm_bootstrap | test_shm_comm | test_process) echo "Valgrind 3.19 has no pidfd_open, by which deaths are seen; run under ASan and UBSan" ;;
    test_steady | test_step_steady) echo "counts system calls and mappings, of which Valgrind makes many itself" ;;
    test_dev_host) echo "maps more ranges than Valgrind has places for" ;;
    test_replay_mpi | test_plan_command | test_command) echo "starts other programs" ;;
    vectors_runner_finds_faults | cases_readme) echo "a shell script" ;;
    *) return 1 ;;
    esac
}

log=$build/valgrind
mkdir -p "$log"
rm -f "$log"/*.log "$log"/*.verdict
{
    cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS="-O1 -g" -DCMAKE_CXX_FLAGS="-O1 -g" -DKVG_WITH_CUDA=OFF -DKVG_WITH_MPI=OFF \
        -DKVG_BUILD_BENCH=OFF && cmake --build "$build" -j "$jobs"
} > "$log/build.log" 2>&1 || { tail -n 30 "$log/build.log" >&2; echo "tests/valgrind.sh: the build in $build/ failed" >&2; exit 2; }

# What leaks and is a third party's stands in tests/valgrind.supp, with its reason.
one() { # one SUITE COMMAND..
    local name=$1 from=$SECONDS status=0 verdict fork=no
    shift
    # Tests that stop the program, or that make the process's policy or environment anew, need processes of their own; Valgrind follows them, and Check tells what it finds.
    case $name in test_policy | test_sizing | test_pool | test_store | test_binding | test_place_rank) fork=yes ;; esac
    KVG_UNDER_VALGRIND=1 CK_FORK=$fork CK_TIMEOUT_MULTIPLIER=50 timeout "$limit" valgrind --quiet --error-exitcode=99 --leak-check=full \
        --errors-for-leak-kinds=definite --show-leak-kinds=definite --num-callers=30 \
        --suppressions=tests/valgrind.supp --log-file="$log/$name.log" "$@" > "$log/$name.out" 2>&1 || status=$?
    case $status in
    0) verdict="ok   $name" ;;
    77) verdict="skip $name: what it needs is not here" ;;
    99) verdict="FAIL $name: $log/$name.log" ;;
    124) verdict="FAIL $name: not done after $limit s" ;;
    *) verdict="FAIL $name: exit status $status, $log/$name.out" ;;
    esac
    [ "$fork" = yes ] || [ "$verdict" = "${verdict#ok}" ] || [ ! -s "$log/$name.log" ] || verdict="FAIL $name: $log/$name.log" # a forked child of it
    printf '%s (%d s)\n' "$verdict" $((SECONDS - from)) | tee "$log/$name.verdict"
}
export -f one
export log limit

# "SUITE COMMAND.." of each test.
ctest --test-dir "$build" -L unit -V -N | sed -n 's/^[0-9]*: Test command: //p; s/^ *Test *#[0-9]*: /# /p' |
    awk '$1 == "#" { print $2, command; next } { command = $0 }' > "$log/commands"
asked=" ${suites[*]:-} "
while read -r name command; do
    [ "$asked" = "  " ] || [ "$asked" != "${asked/ $name /}" ] || continue
    if reason=$(reason_to_leave_out "$name"); then
        echo "left out: $name: $reason"
    else
        echo "$name $command"
    fi
done < "$log/commands" > "$log/plan"
grep '^left out' "$log/plan" || true
grep -v '^left out' "$log/plan" > "$log/run" || { echo "tests/valgrind.sh: there is no such suite" >&2; exit 2; }
# shellcheck disable=SC2016 # of the inner shell
xargs -P "$jobs" -I{} bash -c 'one $1' - {} < "$log/run"
failed=$(cat "$log"/*.verdict | grep -c '^FAIL' || true)
ok=$(cat "$log"/*.verdict | grep -c '^ok' || true)
echo "$ok suites without an error or a leak, $failed with"
[ "$failed" = 0 ] && [ "$ok" -gt 0 ]

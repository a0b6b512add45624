#!/usr/bin/env bash
# launch/setup.sh says on stderr what it builds, for about how long, and where the log is; on a terminal also how far it is. stdout has what is documented, alone.
# The build itself is a stand-in for CMake. Ranks are started by the line that is shown.
#   setup.sh
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
wrong() { echo "$*"; failed=1; }

mkdir "$work/bin"
cat > "$work/bin/cmake" << 'END'
#!/bin/sh
case $1 in
-S) echo "-- The C compiler is one"; echo "-- kvgrid: CUDA parts are $CUDA"; exit "${CONFIGURES:-0}" ;;
--build) echo "[  7%] first"; echo "[  7%] second"; echo "a warning" >&2; echo "[12/209] third"; exit "${BUILDS:-0}" ;;
esac
END
chmod +x "$work/bin/cmake"
cat > "$work/steps" << 'END'
#!/usr/bin/env bash
set -euo pipefail
source "$1/launch/setup.sh"
jobs=$2
cd "$(dirname "$0")"
setup_build build "$3"
echo built
END
chmod +x "$work/steps"
export PATH="$work/bin:$PATH" CUDA="left out: none here"

steps() { # steps JOBS TARGET: leaves stdout in out, stderr in err, the status in status
    status=0
    "$work/steps" "$root" "$1" "$2" > "$work/out" 2> "$work/err" || status=$?
}
is() { [ "$(cat "$work/$1")" = "$2" ] || wrong "$1 is not \"$2\": $(cat "$work/$1")"; } # is FILE TEXT

# Targets, processors and nvcc count.
for job in "2 kvgrid_command:kvgrid and its command:30" "4 all:kvgrid and its tests:40" "200 all:kvgrid and its tests:10"; do
    IFS=: read -r words what seconds <<< "$job"
    # shellcheck disable=SC2086 # two words
    steps $words
    [ "$status" = 0 ] || wrong "$words: exit status $status"
    is out $'kvgrid: CUDA parts are left out: none here\nbuilt'
    is err "steps: building $what in build/, ${words% *} files at once: about $seconds s from nothing; log: build/setup.log"
done
CUDA="compiled, with nvcc" steps 4 all
grep -q "about 100 s " "$work/err" || wrong "with nvcc: $(cat "$work/err")"
for line in "-- The C compiler is one" "[  7%] first" "a warning" "[12/209] third"; do
    grep -qxF -- "$line" "$work/build/setup.log" || wrong "the log has no line \"$line\""
done

# What fails ends with its log, and says where the rest is.
BUILDS=1 steps 2 kvgrid_command
[ "$status" = 2 ] || wrong "a build that fails ends with $status"
is out "kvgrid: CUDA parts are left out: none here"
grep -qxF "a warning" "$work/err" || wrong "a build that fails does not show why"
[ "$(tail -n 1 "$work/err")" = "steps: the build in build failed; all of it is in build/setup.log" ] || wrong "it ends so: $(tail -n 1 "$work/err")"
CONFIGURES=1 steps 2 kvgrid_command
[ "$status" = 2 ] || wrong "a CMake that fails ends with $status"
is out ""
[ "$(tail -n 1 "$work/err")" = "steps: CMake failed in build" ] || wrong "it ends so: $(tail -n 1 "$work/err")"

# On a terminal each mark is shown once, and taken away at the end.
on="no terminal (script is not here)"
if command -v script > /dev/null; then
    on="a terminal"
    script -qec "$work/steps $root 2 kvgrid_command" /dev/null < /dev/null > "$work/seen"
    [ "$(grep -oF "steps: 7% " "$work/seen" | wc -l)" = 1 ] || wrong "on a terminal 7% is not shown once: $(cat -v "$work/seen")"
    grep -qF $'\rsteps: 12/209 \r\033[K' "$work/seen" || wrong "on a terminal the last mark stays: $(cat -v "$work/seen")"
    grep -q "first\|a warning" "$work/seen" && wrong "on a terminal the build's lines are shown: $(cat -v "$work/seen")"
fi

# Ranks are started by the words that are shown, by root or by others.
printf '#!/bin/sh\necho "mpirun $*"\n' > "$work/bin/mpirun"
# shellcheck disable=SC2016 # as they stand there
printf '#!/bin/sh\necho "$WHO"\n' > "$work/bin/id"
chmod +x "$work/bin/mpirun" "$work/bin/id"
cat > "$work/ranks" << 'END'
#!/usr/bin/env bash
set -euo pipefail
source "$1/launch/setup.sh"
echo "${setup_mpirun[*]} -n 4 a 'b c'"
setup_ranks 4 a "'b c'"
END
for who in "0: --allow-run-as-root" "1000:"; do
    line="mpirun --oversubscribe${who#*:} -n 4 a 'b c'"
    WHO=${who%%:*} bash "$work/ranks" "$root" > "$work/out"
    is out "$line"$'\n'"$line"
done
# shellcheck disable=SC2016 # as it stands there
grep -q 'step "${setup_mpirun\[\*\]} -n \$ranks ' "$root/launch/demo" || wrong "the demo shows another line than it runs"

[ "$failed" = 0 ] || exit 1
echo "a build is announced, shown on $on, and its log stays"

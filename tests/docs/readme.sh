#!/bin/sh
# README.md says what is so: its program compiles as C11 and C++17 and runs; its `kvgrid plan` outputs are what plan prints.
#   readme.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/../.."
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
extract() { awk -v language="$1" -v first="$2" -v n="$3" -f tests/docs/extract.awk README.md; }

extract c '^#include <kvgrid/kvgrid.h>' 1 > "$work/engine.c"
[ -s "$work/engine.c" ] || { echo "README.md has no program"; exit 1; }
libs="$build/libkvgrid.a $(pkg-config --libs jansson libxxhash) -lm -pthread"
# shellcheck disable=SC2086 # flags are words
"$CC" -std=c11 $FLAGS -Wall -Wextra -Werror -I"$build/include" "$work/engine.c" $libs -o "$work/as_c"
# shellcheck disable=SC2086
"$CXX" -std=c++17 $FLAGS -Wall -Wextra -Werror -I"$build/include" -x c++ "$work/engine.c" -x none $libs -o "$work/as_cxx"
for program in as_c as_cxx; do
    "$work/$program" tests/data/models/tinyllama-1.1b.json > "$work/output"
    printf 'step 1: 8 rows kept\nstep 2: 1 rows kept\nstep 3: 1 rows kept\nstep 4: 1 rows kept\n' | diff - "$work/output"
done

# Its lines for MPI, put where they say: includes, before the grid, after it. Not under sanitizers: Open MPI leaks.
extract c '^#include <kvgrid/kvgrid_mpi.h>' 1 > "$work/mpi_lines"
[ "$(wc -l < "$work/mpi_lines")" = 6 ] || { echo "README.md shows not six lines for MPI"; exit 1; }
if [ -z "$FLAGS" ] && mpi_library=$(find "$build" -maxdepth 2 -name libkvgrid_mpi.a | grep .) && command -v mpicc mpirun > /dev/null; then
    awk -v lines="$work/mpi_lines" '
        BEGIN { while ((getline line < lines) > 0) mpi[++n] = line }
        /kvg_grid_create/ { print mpi[2]; print mpi[3]; print mpi[4] }
        { print }
        /#include <kvgrid\/kvgrid.h>/ { print mpi[1] }
        /kvg_grid_destroy/ { print mpi[5]; print mpi[6] }' "$work/engine.c" > "$work/engine_mpi.c"
    # shellcheck disable=SC2086
    OMPI_CC=$CC mpicc -std=c11 -Wall -Wextra -Werror -I"$build/include" "$work/engine_mpi.c" "$mpi_library" $libs -o "$work/over_mpi"
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 4 "$work/over_mpi" tests/data/models/tinyllama-1.1b.json > "$work/output"
    [ "$(sort "$work/output" | uniq -c | awk '{print $1, $2, $3}' | tr '\n' ',')" = "4 step 1:,4 step 2:,4 step 3:,4 step 4:," ] ||
        { echo "README.md: the program over MPI printed:"; cat "$work/output"; exit 1; }
fi

# The lines for after a loss are those that the processes of test_rebuild_mesh run, and compile with what an engine has.
extract c '^/\\* After a loss' 1 | diff - tests/pp/after_loss.h || { echo "README.md: the lines for after a loss are not tests/pp/after_loss.h"; exit 1; }
cat > "$work/after_loss.c" << 'END'
#include <kvgrid/kvgrid.h>
typedef struct Engine { KvgGrid *grid; } Engine;
static void my_collectives_abort(Engine *engine) { (void)engine; }
static void my_request_recompute(Engine *engine, uint64_t id, uint64_t rows) { (void)engine, (void)id, (void)rows; }
END
cat tests/pp/after_loss.h >> "$work/after_loss.c"
echo 'int main(void) { KvgGridOptions options = KVG_GRID_OPTIONS_INIT; options.on_lost = lost; return go_on((Engine *)options.user, NULL, NULL, 0); }' >> "$work/after_loss.c"
"$CC" -std=c11 -Wall -Wextra -Werror -I"$build/include" -c "$work/after_loss.c" -o "$work/after_loss.o"
"$CXX" -std=c++17 -Wall -Wextra -Werror -I"$build/include" -x c++ -c "$work/after_loss.c" -o "$work/after_loss.o"

# The embedding answers its requests as shown, and the requests shown are those.
extract json '^\\{"id": "a", "prompt"' 1 | diff - tests/data/embed/requests.jsonl || { echo "README.md: the requests are not tests/data/embed/requests.jsonl"; exit 1; }
extract console '^\\$ build/kvgrid_embed ' 1 > "$work/block"
embed=$(sed -n '1s/^\$ build\/kvgrid_embed //p' "$work/block")
[ -n "$embed" ] || { echo "README.md shows no embedding"; exit 1; }
(eval "\"$build\"/kvgrid_embed $embed") > "$work/output"
sed 1d "$work/block" | diff - "$work/output" || { echo "README.md: the embedding answers otherwise"; exit 1; }

# Scripts that it names are there and can be run.
# shellcheck disable=SC2013 # names have no spaces
for script in $(grep -oE '(tests|launch)/[a-z_/]+\.sh' README.md | sort -u); do
    [ -x "$script" ] || { echo "README.md names $script, which cannot be run"; exit 1; }
done

# The lines that show counters compile.
extract c '^/\\* Counters of every rank' 1 > "$work/lines.c"
[ -s "$work/lines.c" ] || { echo "README.md does not show how counters are read"; exit 1; }
{ echo '#include <kvgrid/kvgrid.h>'; cat "$work/lines.c"; echo 'int main(void) { return show(NULL, 0, NULL, 0, NULL, 0); }'; } > "$work/observe.c"
"$CC" -std=c11 -Wall -Wextra -Werror -I"$build/include" -c "$work/observe.c" -o "$work/observe.o"
"$CXX" -std=c++17 -Wall -Wextra -Werror -I"$build/include" -x c++ -c "$work/observe.c" -o "$work/observe.o"

plans=0
while :; do
    extract console '^\$ build/kvgrid plan ' $((plans + 1)) > "$work/block"
    [ -s "$work/block" ] || break
    # The command stands in the file as typed in a shell: words without quotes.
    # shellcheck disable=SC2046
    "$build"/kvgrid $(sed -n '1s/^\$ build\/kvgrid //p' "$work/block") > "$work/output" 2>&1 || true
    sed 1d "$work/block" | diff - "$work/output" || { echo "README.md: this plan is not what kvgrid plan prints"; exit 1; }
    plans=$((plans + 1))
done
[ "$plans" -ge 3 ] || { echo "README.md shows $plans plans"; exit 1; }

# Its table of ranks, of a recorded machine; without hwloc there is none.
extract console '^\$ build/kvgrid doctor --topology ' 1 > "$work/block"
[ -s "$work/block" ] || { echo "README.md shows no table of ranks"; exit 1; }
# shellcheck disable=SC2046
"$build"/kvgrid $(sed -n '1s/^\$ build\/kvgrid //p' "$work/block") > "$work/output" 2>&1 || true
grep -q "hwloc is not compiled in" "$work/output" || sed 1d "$work/block" | diff - "$work/output" || { echo "README.md: this is not what kvgrid doctor prints"; exit 1; }
# The demo's job on one rank ends in the digest that README.md shows for 1x1 and 2x2. Too slow under sanitizers.
if [ -z "$FLAGS" ]; then
    job=$(sed -n 's/^== build\/kvgrid \(replay .*\)/\1/p' README.md | head -n 1)
    # shellcheck disable=SC2086
    got=$("$build"/kvgrid $job | awk '$1 == "digest" {print $2}')
    grep -q "^1x1 = 2x2: digest $got OK$" README.md || { echo "README.md shows another digest than the demo's job: $got"; exit 1; }
fi
echo "the program runs as C11 and C++17; $plans plans are as printed"

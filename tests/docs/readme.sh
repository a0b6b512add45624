#!/bin/sh
# The pages of tests/docs/pages.txt say what is so: their programs compile as C11 and C++17 and run, and commands print what is shown.
#   readme.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/../.."
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pages=$(cat tests/docs/pages.txt)
# shellcheck disable=SC2086 # a list of words
extract() { awk -v language="$1" -v first="$2" -v n="$3" -f tests/docs/extract.awk $pages; } # extract LANGUAGE FIRST N

# shellcheck disable=SC2086
said() { awk -v command="$1" '/^```/ || /^\$ / { on = 0 } on; $0 ~ command { on = 1 }' $pages; } # said COMMAND: what it is shown to print

extract c '^#include <kvgrid/kvgrid.h>' 1 > "$work/engine.c"
[ -s "$work/engine.c" ] || { echo "there is no program"; exit 1; }
libs="$build/libkvgrid.a $(pkg-config --libs jansson libxxhash) -lm -pthread"
# shellcheck disable=SC2086 # flags are words
"$CC" -std=c11 $FLAGS -Wall -Wextra -Werror -I"$build/include" "$work/engine.c" $libs -o "$work/as_c"
# shellcheck disable=SC2086
"$CXX" -std=c++17 $FLAGS -Wall -Wextra -Werror -I"$build/include" -x c++ "$work/engine.c" -x none $libs -o "$work/as_cxx"
for program in as_c as_cxx; do
    "$work/$program" tests/data/models/tinyllama-1.1b.json > "$work/output"
    said '^\$ ./engine ' | diff - "$work/output" || { echo "the program prints otherwise"; exit 1; }
    status=0
    "$work/$program" tests/data/models/kimi-k2.json > "$work/output" 2>&1 || status=$? # latent layers, which it does not write
    [ "$status" = 1 ] && grep -q '^layer 0 has no K/V rows on rank 0, .*kvg_write_latent' "$work/output" ||
        { echo "on a latent model the program ends with status $status and says: $(cat "$work/output")"; exit 1; }
done

# The program with a kernel of its own: on the host; and on a GPU where this build has CUDA and one is there.
extract cuda '^/\\* A kernel of an engine' 1 > "$work/scores.cu"
[ -s "$work/scores.cu" ] || { echo "there is no kernel"; exit 1; }
# shellcheck disable=SC2086
"$CXX" -std=c++17 $FLAGS -Wall -Wextra -Werror -Wno-unknown-pragmas -I"$build/include" -x c++ "$work/scores.cu" -x none $libs -o "$work/scores"
"$work/scores" tests/data/models/tinyllama-1.1b.json > "$work/output"
said '^\$ ./scores ' | diff - "$work/output" || { echo "the kernel's program prints otherwise"; exit 1; }
cuda_library=$(find "$build" -maxdepth 2 -name libkvgrid_cuda.a)
if [ -z "$FLAGS" ] && [ -n "$cuda_library" ] && [ -n "${NVCC:-}" ]; then
    cuda_libs=$(sed -n 's/^Libs: //p' "$build/kvgrid_cuda.pc" | sed "s,\${libdir},$build,") # as pkg-config says it: nvcc must know each word
    # shellcheck disable=SC2086
    "$NVCC" -std=c++17 -arch=sm_90 -I"$build/include" "$work/scores.cu" -L"$(dirname "$cuda_library")" $cuda_libs $(pkg-config --libs jansson libxxhash) -o "$work/scores_cuda"
    if [ -e /dev/nvidiactl ]; then "$work/scores_cuda" tests/data/models/tinyllama-1.1b.json | diff - "$work/output"; fi
fi

# It is written for one shape, and takes no other: latent layers, other heads.
for model in kimi-k2 llama-3.1-8b; do
    status=0
    "$work/scores" tests/data/models/$model.json > "$work/output" 2>&1 || status=$?
    [ "$status" = 1 ] && grep -q "TinyLlama" "$work/output" || { echo "the kernel's program on $model ends with status $status and says: $(cat "$work/output")"; exit 1; }
done

# The function that writes every kind of layer, in the place of the loop's body: latents, an indexer beside them, recurrent state, layers that keep nothing.
extract c '^/\\* One layer of a pass, by its kind' 1 > "$work/layer.c"
[ -s "$work/layer.c" ] || { echo "it is not shown how each kind of layer is written"; exit 1; }
awk -v lines="$work/layer.c" '
    /^int main/ { while ((getline line < lines) > 0) print line }
    /kvg_plane_view/ { skipped = 1 }
    !skipped { print }
    /kvg_write_kv/ { skipped = 0; print "TRY(write_layer(batch, il, NULL));" }' "$work/engine.c" | sed 's/64u << 20/1u << 30/' > "$work/kinds.c"
# shellcheck disable=SC2086
"$CC" -std=c11 $FLAGS -Wall -Wextra -Werror -I"$build/include" "$work/kinds.c" $libs -o "$work/kinds"
# shellcheck disable=SC2086
"$CXX" -std=c++17 $FLAGS -Wall -Wextra -Werror -I"$build/include" -x c++ -c "$work/kinds.c" -o "$work/kinds.o"
for model in tinyllama-1.1b kimi-k2 deepseek-v3.2 kimi-linear-48b-a3b nemotron-3-nano-30b-a3b; do
    "$work/kinds" tests/data/models/$model.json > "$work/output"
    said '^\$ ./kinds ' | diff - "$work/output" || { echo "with every kind the program on $model prints otherwise"; exit 1; }
done

# The lines for MPI, put where they say: includes, before the grid, after it. Not under sanitizers: Open MPI leaks.
extract c '^#include <kvgrid/kvgrid_mpi.h>' 1 > "$work/mpi_lines"
[ "$(wc -l < "$work/mpi_lines")" = 6 ] || { echo "there are not six lines for MPI"; exit 1; }
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
    sort "$work/output" | uniq -c > "$work/counted"
    said '^\$ mpirun .* ./engine ' | diff - "$work/counted" || { echo "the program over MPI prints otherwise"; exit 1; }

    # With the lines for GPUs it links. It is not run: k and v of the program are no device memory.
    extract c '^#include <kvgrid/kvgrid_cuda.h>' 1 > "$work/gpu_lines"
    [ -s "$work/gpu_lines" ] || { echo "there are no lines for GPUs"; exit 1; }
    if [ -n "$cuda_library" ] && [ -n "${NVCC:-}" ]; then
        awk -v lines="$work/gpu_lines" '
            BEGIN { while ((getline line < lines) > 0) gpu[++n] = line }
            /kvg_place\(/ { for (i = 2; i < n; i++) print gpu[i] }
            { print }
            /#include <kvgrid\/kvgrid.h>/ { print gpu[1] }
            /kvg_placement_destroy/ { print gpu[n] }' "$work/engine_mpi.c" > "$work/engine_gpu.c"
        # shellcheck disable=SC2086
        OMPI_CC=$CC mpicc -std=c11 -Wall -Wextra -Werror -I"$build/include" "$work/engine_gpu.c" "$mpi_library" "$cuda_library" \
            -L"$(dirname "$NVCC")/../lib64" -L"$(dirname "$NVCC")/../lib" $libs -lcudart_static -lstdc++ -ldl -lrt -o "$work/engine_gpu"
    fi
fi

# The lines for after a loss are those that the processes of test_rebuild_mesh run, and compile with what an engine has.
extract c '^/\\* After a loss' 1 | diff - tests/pp/after_loss.h || { echo "the lines for after a loss are not tests/pp/after_loss.h"; exit 1; }
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
extract json '^\\{"id": "a", "prompt"' 1 | diff - tests/data/embed/requests.jsonl || { echo "the requests are not tests/data/embed/requests.jsonl"; exit 1; }
extract console '^\\$ build/kvgrid_embed ' 1 > "$work/block"
embed=$(sed -n '1s/^\$ build\/kvgrid_embed //p' "$work/block")
[ -n "$embed" ] || { echo "no embedding is shown"; exit 1; }
(eval "\"$build\"/kvgrid_embed $embed") > "$work/output"
sed 1d "$work/block" | diff - "$work/output" || { echo "the embedding answers otherwise"; exit 1; }

# The lines that show counters compile.
extract c '^/\\* Counters of every rank' 1 > "$work/lines.c"
[ -s "$work/lines.c" ] || { echo "it is not shown how counters are read"; exit 1; }
{ echo '#include <kvgrid/kvgrid.h>'; cat "$work/lines.c"; echo 'int main(void) { return show(NULL, 0, NULL, 0, NULL, 0); }'; } > "$work/observe.c"
"$CC" -std=c11 -Wall -Wextra -Werror -I"$build/include" -c "$work/observe.c" -o "$work/observe.o"
"$CXX" -std=c++17 -Wall -Wextra -Werror -I"$build/include" -x c++ -c "$work/observe.c" -o "$work/observe.o"

# So do those that read a plane on the host.
extract c '^/\\* One head.s rows' 1 > "$work/lines.c"
[ -s "$work/lines.c" ] || { echo "it is not shown how a plane is read on the host"; exit 1; }
{ echo '#include <kvgrid/kvgrid.h>'; cat "$work/lines.c"; echo 'int main(void) { read_head(NULL, NULL, 0, 0, 0, NULL); return 0; }'; } > "$work/host.c"
"$CC" -std=c11 -Wall -Wextra -Werror -I"$build/include" -c "$work/host.c" -o "$work/host.o"
"$CXX" -std=c++17 -Wall -Wextra -Werror -I"$build/include" -x c++ -c "$work/host.c" -o "$work/host.o"

# The scheduler's program, over what a replay has placed: 4 slots, and room for all of them.
extract c '^#include <kvgrid/accounts.h>' 1 > "$work/scheduler.c"
[ -s "$work/scheduler.c" ] || { echo "no scheduler is shown"; exit 1; }
job=$(cat $pages | sed -n 's/^\$ kvgrid \(replay .*\) --placement .*/\1/p' | head -n 1)
# shellcheck disable=SC2086
"$build"/kvgrid $job --placement "$work/placement.json" > "$work/output"
# shellcheck disable=SC2086
"$CC" -std=c11 $FLAGS -Wall -Wextra -Werror -I"$build/include" "$work/scheduler.c" $libs -o "$work/scheduler_c"
# shellcheck disable=SC2086
"$CXX" -std=c++17 $FLAGS -Wall -Wextra -Werror -I"$build/include" -x c++ "$work/scheduler.c" -x none $libs -o "$work/scheduler_cxx"
for program in scheduler_c scheduler_cxx; do
    "$work/$program" "$work/placement.json" > "$work/output"
    said '^\$ ./scheduler ' | diff - "$work/output" || { echo "the scheduler prints otherwise"; exit 1; }
done

# And those of a captured step, among what the loop has.
extract c 'uint32_t     rows.64. = ' 1 > "$work/lines.c"
[ -s "$work/lines.c" ] || { echo "it is not shown how a step is captured"; exit 1; }
{
    echo '#include <kvgrid/kvgrid.h>'
    echo '#define TRY(call) do { if ((call) != KVG_OK) return 1; } while (0)'
    echo 'int captured(KvgBatch *batch, uint32_t lo, uint32_t hi, KvgRows in, KvgStream stream); int captured(KvgBatch *batch, uint32_t lo, uint32_t hi, KvgRows in, KvgStream stream) {'
    cat "$work/lines.c"
    echo 'return 0; }'
} > "$work/capture.c"
"$CC" -std=c11 -Wall -Wextra -Werror -I"$build/include" -c "$work/capture.c" -o "$work/capture.o"
"$CXX" -std=c++17 -Wall -Wextra -Werror -I"$build/include" -x c++ -c "$work/capture.c" -o "$work/capture.o"

# With the vote on a branch of the caller's graph it compiles where CUDA's headers are.
extract c 'TRY_CUDA.cudaStreamBeginCapture' 1 > "$work/lines.c"
[ -s "$work/lines.c" ] || { echo "it is not shown how the vote gets a branch"; exit 1; }
if [ -n "${NVCC:-}" ]; then
    {
        echo '#include <cuda_runtime_api.h>'
        echo '#include <kvgrid/kvgrid.h>'
        echo '#define TRY(call) do { if ((call) != KVG_OK) return 1; } while (0)'
        echo '#define TRY_CUDA(call) do { if ((call) != cudaSuccess) return 1; } while (0)'
        echo 'static cudaEvent_t event;'
        echo 'static void follow(cudaStream_t later, cudaStream_t earlier) { cudaEventRecord(event, earlier); cudaStreamWaitEvent(later, event, 0); }'
        echo 'int beside(KvgBatch *batch, KvgCapture capture, cudaStream_t stream, cudaStream_t branch, cudaGraph_t own);'
        echo 'int beside(KvgBatch *batch, KvgCapture capture, cudaStream_t stream, cudaStream_t branch, cudaGraph_t own) { KvgGraph *graph;'
        cat "$work/lines.c"
        echo 'return 0; }'
    } > "$work/beside.c"
    "$CC" -std=c11 -Wall -Wextra -Werror -I"$build/include" -I"$(dirname "$NVCC")/../include" -c "$work/beside.c" -o "$work/beside.o"
fi

# Commands that need one process and print the same everywhere: all of them, as printed.
shown() { # shown FIRST: how many blocks begin so
    count=0
    while :; do
        extract console "$1" $((count + 1)) > "$work/block"
        [ -s "$work/block" ] || break
        # The command stands in the file as typed in a shell: words without quotes.
        # shellcheck disable=SC2046
        "$build"/kvgrid $(sed -n '1s/^\$ build\/kvgrid //p' "$work/block") > "$work/output" 2>&1 || true
        grep -q "hwloc is not compiled in" "$work/output" || sed 1d "$work/block" | diff - "$work/output" ||
            { echo "this is not what $(sed -n '1s/^\$ //p' "$work/block") prints"; exit 1; }
        count=$((count + 1))
    done
}
shown '^\$ build/kvgrid plan '
plans=$count
[ "$plans" -ge 3 ] || { echo "the pages show $plans plans"; exit 1; }
shown '^\$ build/kvgrid doctor --topology '
[ "$count" -ge 1 ] || { echo "the pages show no table of ranks"; exit 1; }

# The table of knobs is that of `kvgrid knobs`: names, defaults, meanings.
# shellcheck disable=SC2086
cat $pages | sed -n 's/^| `\(KVGRID_[A-Z0-9_]*\)` | \([^|]*\) | \(.*\) |$/\1 \2 \3/p' | sort > "$work/told"
env -i "$build"/kvgrid knobs | sed -n 's/^\(KVGRID_[A-Z0-9_]*\)  *\([^ ]*\)  *default  *\(.*\)/\1 \2 \3/p' | sort > "$work/knobs"
[ -s "$work/knobs" ] && diff "$work/told" "$work/knobs" || { echo "the table of knobs is not that of kvgrid knobs"; exit 1; }

# Replays that are shown: one rank ends in the digest that is shown for the grid. Too slow under sanitizers.
replays=0
if [ -z "$FLAGS" ]; then
    # shellcheck disable=SC2086
    job=$(sed -n 's/^== build\/kvgrid \(replay .*\)/\1/p' $pages | head -n 1)
    # shellcheck disable=SC2086
    got=$("$build"/kvgrid $job | awk '$1 == "digest" {print $2}')
    # shellcheck disable=SC2086
    cat $pages | grep -q "^1x1 = 2x2: digest $got OK$" || { echo "another digest is shown than the demo's job has: $got"; exit 1; }
    # shellcheck disable=SC2086
    cat $pages | grep -qxF -- "== mpirun --oversubscribe -n 4 build/kvgrid $job --tp 2 --pp 2" || { echo "the demo's job is not shown on four ranks"; exit 1; }
    while :; do
        extract console '^\$ .*build/kvgrid replay .*--model tests/' $((replays + 1)) > "$work/block"
        [ -s "$work/block" ] || break
        replays=$((replays + 1))
        job=$(sed -n '1s/^\$ .*build\/kvgrid \(replay .*\)/\1/p' "$work/block" | sed 's/ --\(tp\|pp\|ranks\) [0-9]*//g')
        # shellcheck disable=SC2086
        got=$("$build"/kvgrid $job | awk '$1 == "digest"')
        grep -qxF "${got:-no digest}" "$work/block" || { echo "another digest is shown than one rank has: $job: $got"; exit 1; }
    done
    [ "$replays" -ge 1 ] || { echo "the pages show no replay"; exit 1; }
fi
echo "programs run as C11 and C++17; $plans plans are as printed, $replays replays end in the digests shown"

/* What do the calls of an engine's step cost on one rank? Microseconds a call, the best of ROUNDS rounds; bench_python.py sets Python's beside them.
 *   bench_calls CONFIG */
#include <kvgrid/kvgrid.h>
#include "bench/bench.h"

#define ROUNDS 15
#define CALLS  2000
#define TRY(call) do { if ((call) != KVG_OK) { fprintf(stderr, "bench_calls: %s\n", kvg_last_error()); exit(1); } } while (0)

#define BENCH(name, count, call)                                     \
    do {                                                             \
        double best = 1e30;                                          \
        for (int round = 0; round < ROUNDS; round++) {               \
            double began = bench_now_us();                                 \
            for (int i = 0; i < (count); i++) { call; }              \
            double took = (bench_now_us() - began) / (count);              \
            if (took < best) best = took;                            \
        }                                                            \
        printf("%s %.4f\n", name, best);                             \
    } while (0)

static volatile uint64_t sink;

static void step_cycle(KvgBatch *batch)
{
    static const uint32_t rows[4] = { 1, 0, 0, 0 }, accepted[4];
    KvgCommit             commit = KVG_COMMIT_INIT;
    KvgStep              *step;
    KvgOutcome            outcome;

    TRY(kvg_step_begin(batch, rows, &step));
    commit.accepted = accepted; /* none kept: the sequence stays as long as it is */
    TRY(kvg_step_post(step, &commit));
    TRY(kvg_step_wait(step, &outcome));
}

int main(int argc, char **argv)
{
    static uint16_t kv[8192];
    KvgBootstrap    bootstrap = KVG_BOOTSTRAP_INIT;
    KvgGridOptions  on = KVG_GRID_OPTIONS_INIT;
    KvgPlaceOptions as = KVG_PLACE_OPTIONS_INIT;
    KvgCommit       commit = KVG_COMMIT_INIT;
    KvgRows         in = KVG_ROWS_INIT;
    KvgSequenceInfo info = { .size = sizeof info };
    KvgStats        stats = { .size = sizeof stats };
    uint32_t        rows[4] = { 1, 0, 0, 0 };
    ModelConfig     config;
    KvgGrid        *grid;
    KvgPlacement   *placement;
    KvgBatch       *batch;
    KvgSequence    *sequence;
    KvgStep        *step;

    TRY(kvg_model_config_load(argc > 1 ? argv[1] : "tests/data/models/tinyllama-1.1b.json", &config));
    TRY(kvg_grid_create(&bootstrap, &on, &grid));
    as.format_k = as.format_v = KVG_BF16;
    as.memory_bytes = 64u << 20;
    as.max_sequences = 4;
    TRY(kvg_place(grid, &config, &as, &placement));
    TRY(kvg_batch_create(placement, 4, &batch));
    TRY(kvg_sequence_open(placement, 1, 64, &sequence));
    TRY(kvg_batch_set(batch, 0, sequence));

    BENCH("grid_rank", CALLS, sink += (uint64_t)kvg_grid_rank(grid));
    BENCH("sequence_info", CALLS, TRY(kvg_sequence_info(sequence, &info)));
    BENCH("stats", CALLS, TRY(kvg_stats(placement, &stats)));
    BENCH("plane_view", CALLS, sink += kvg_plane_view(batch, 3)->heads);
    BENCH("step begin + post + wait", CALLS, step_cycle(batch));
    TRY(kvg_step_begin(batch, rows, &step));
    in.k = in.v = kv;
    in.dtype = KVG_BF16;
    BENCH("write_kv, 1 row", CALLS, TRY(kvg_write_kv(batch, 3, &in, NULL)));
    commit.accept_all = 1;
    TRY(kvg_step_post(step, &commit));
    TRY(kvg_step_wait(step, NULL));

    kvg_batch_destroy(batch);
    kvg_placement_destroy(placement);
    kvg_grid_destroy(grid);
    kvg_model_config_free(&config);
    return 0;
}

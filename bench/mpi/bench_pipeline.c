/* Does the vote slow a pipeline down? Four MPI ranks as stages, whose compute is a sleep of 2 ms, 8 batches in flight.
 *
 * Plain loop: each stage waits for a batch's token from the stage before it, sleeps, passes the token on; the last stage passes it back to the
 * first. Voted loop: the same, and every step of every batch is begun, posted and decided over the grid. The two run in turns of 200 steps, so
 * that a drift of the machine meets both. Steps/s of the voted loop over the plain one: the limit is 1. Bar: at least 0.98.
 *   mpirun -n 4 build/bench/mpi/bench_pipeline */
#include <mpi.h>

#include <kvgrid/kvgrid.h>
#include <kvgrid/kvgrid_mpi.h>

#include "bench/bench.h"

enum { BATCHES = 8, SEQUENCES = 4, STEPS = 200, TURNS_MAX = 64, TOKEN_TAG = 7 };

typedef struct Stage {
    int           rank, ranks;
    MPI_Comm      tokens;
    KvgGrid      *grid;
    KvgPlacement *placement;
    KvgBatch     *batch[BATCHES];
    KvgStep      *step[BATCHES];
    useconds_t    compute_us;
} Stage;

static void must(KvgStatus status)
{
    if (status != KVG_OK) {
        fprintf(stderr, "bench_pipeline: %s\n", kvg_last_error());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

/* Waits for the token of `batch` as an engine would: test, then let others have the core. */
static void receive_token(Stage *stage, int from, int batch)
{
    MPI_Request request;
    int         token, here = 0;
    MPI_Irecv(&token, 1, MPI_INT, from, TOKEN_TAG + batch, stage->tokens, &request);
    for (;;) {
        MPI_Test(&request, &here, MPI_STATUS_IGNORE);
        if (here) break;
        if (stage->grid != NULL) must(kvg_grid_progress(stage->grid));
        usleep(20);
    }
}

static void send_token(Stage *stage, int to, int batch)
{
    MPI_Send(&batch, 1, MPI_INT, to, TOKEN_TAG + batch, stage->tokens); /* 4 bytes: eager */
}

static void begin(Stage *stage, int batch)
{
    static const uint32_t rows[SEQUENCES] = { 1, 1, 1, 1 };
    must(kvg_step_begin(stage->batch[batch], rows, &stage->step[batch]));
}

static void post(Stage *stage, int batch)
{
    KvgCommit commit = KVG_COMMIT_INIT;
    commit.accept_all = stage->rank == stage->ranks - 1;
    must(kvg_step_post(stage->step[batch], &commit));
}

/* One turn: STEPS steps, batches round robin. The first stage starts each batch's first step by itself. */
static double turn(Stage *stage, int voted)
{
    int    before = (stage->rank + stage->ranks - 1) % stage->ranks, after = (stage->rank + 1) % stage->ranks;
    double started;
    MPI_Barrier(stage->tokens);
    started = bench_now_us();
    for (int n = 0; n < STEPS; n++) {
        int batch = n % BATCHES;
        if (stage->rank > 0 || n >= BATCHES) receive_token(stage, before, batch);
        if (voted) begin(stage, batch);
        usleep(stage->compute_us);
        if (voted) post(stage, batch);
        if (stage->rank < stage->ranks - 1 || n + BATCHES < STEPS) send_token(stage, after, batch);
    }
    for (int batch = 0; voted && batch < BATCHES; batch++) must(kvg_step_wait(stage->step[batch], NULL));
    MPI_Barrier(stage->tokens);
    return STEPS / (bench_now_us() - started) * 1e6;
}

static void place(Stage *stage)
{
    static const char text[] = "{\"model_type\":\"llama\",\"hidden_size\":32,\"num_attention_heads\":1,\"num_key_value_heads\":1,\"head_dim\":32,"
                               "\"num_hidden_layers\":8,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":32768}";
    KvgBootstrap    bootstrap = KVG_BOOTSTRAP_INIT;
    KvgGridOptions  options = KVG_GRID_OPTIONS_INIT;
    KvgPlaceOptions placing = KVG_PLACE_OPTIONS_INIT;
    KvComm          comm;
    ModelConfig     config;

    must(kvg_mpi_bootstrap(MPI_COMM_WORLD, &bootstrap));
    must(kvg_mpi_comm_create(MPI_COMM_WORLD, &comm));
    options.pp = (uint32_t)stage->ranks;
    options.comm = &comm;
    must(kvg_grid_create(&bootstrap, &options, &stage->grid));
    kvg_mpi_bootstrap_free(&bootstrap);
    must(kvg_model_config_parse_json(text, sizeof text - 1, "bench", &config));
    placing.max_sequences = BATCHES * SEQUENCES;
    placing.max_step_sequences = 256; /* records of 576 bytes, as a busy engine's */
    placing.max_sequences = 256;
    placing.memory_bytes = 64u << 20;
    must(kvg_place(stage->grid, &config, &placing, &stage->placement));
    for (int b = 0; b < BATCHES; b++) {
        must(kvg_batch_create(stage->placement, SEQUENCES, &stage->batch[b]));
        for (uint32_t s = 0; s < SEQUENCES; s++) {
            KvgSequence *sequence;
            must(kvg_sequence_open(stage->placement, (uint64_t)b * SEQUENCES + s, 0, &sequence));
            must(kvg_batch_set(stage->batch[b], s, sequence));
        }
    }
    kvg_model_config_free(&config);
}

int main(int argc, char **argv)
{
    double ratios[TURNS_MAX], plain[TURNS_MAX], voted[TURNS_MAX];
    Stage  stage = { 0 };
    long   turns = bench_number(argc, argv, "--turns", 8);

    MPI_Init(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &stage.tokens);
    MPI_Comm_rank(stage.tokens, &stage.rank);
    MPI_Comm_size(stage.tokens, &stage.ranks);
    stage.compute_us = (useconds_t)bench_number(argc, argv, "--compute-us", 2000);
    if (turns < 1 || turns > TURNS_MAX) turns = 8;
    place(&stage);
    for (long i = 0; i < turns; i++) {
        KvgGrid *grid = stage.grid;
        if (i % 2 == 0) {
            stage.grid = NULL;
            plain[i] = turn(&stage, 0);
            stage.grid = grid;
            voted[i] = turn(&stage, 1);
        } else {
            voted[i] = turn(&stage, 1);
            stage.grid = NULL;
            plain[i] = turn(&stage, 0);
            stage.grid = grid;
        }
        ratios[i] = voted[i] / plain[i];
    }
    double ratio = bench_median(ratios, (size_t)turns);
    int    good = ratio >= 0.98;
    if (stage.rank == 0 && bench_has(argc, argv, "--json")) {
        printf("{\"bench\":\"pipeline\",\"ratio\":%.4f,\"plain_steps_per_second\":%.1f,\"voted_steps_per_second\":%.1f,\"ok\":%s}\n", ratio,
               bench_median(plain, (size_t)turns), bench_median(voted, (size_t)turns), good ? "true" : "false");
    } else if (stage.rank == 0) {
        bench_header("bench_pipeline", "transport mpi  stages are the ranks  8 batches in flight  compute is a sleep");
        printf("#  verdict  voted/plain   low     high     plain      voted\n#                                        (steps/s)  (steps/s)\n");
        printf("   %-7s  %11.4f  %.4f  %.4f  %8.1f   %8.1f\n", good ? "OK" : "MISSED", ratio, ratios[0], ratios[turns - 1],
               bench_median(plain, (size_t)turns), bench_median(voted, (size_t)turns));
    }
    for (int b = 0; b < BATCHES; b++) kvg_batch_destroy(stage.batch[b]);
    kvg_placement_destroy(stage.placement);
    kvg_grid_destroy(stage.grid);
    MPI_Comm_free(&stage.tokens);
    MPI_Finalize();
    return good ? 0 : 1;
}

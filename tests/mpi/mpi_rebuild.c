/* A grid over MPI is rebuilt after a loss, under mpirun --enable-recovery: records go by MPI, the mesh tells of the death, the survivors settle point to point, make
 * a communicator of their own and a spare's processes with MPI_Comm_create_group (a collective of those alone: none on the old communicator, in which the dead
 * rank is), and rebuild over it.
 *   mpi_rebuild joins   4 ranks and a spare, which takes the place of the dead one and is sent its latent rows
 *   mpi_rebuild alone   4 ranks; the survivors go on without: every latent layer has a copy
 * mpirun ends with 0 after a death, so the verdict is what rank 0 prints: "N of N ranks went on". */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvgrid/kvgrid.h>
#include <kvgrid/kvgrid_mpi.h>

enum { RANKS = 4, VICTIM = 1, SPARE = 4, WIDTH = 96, KEYS = 32, BEFORE = 70, AFTER = 9 };

static const char model[] =
    "{\"model_type\":\"deepseek_v32\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"kv_lora_rank\":64,\"qk_rope_head_dim\":32,"
    "\"qk_nope_head_dim\":32,\"v_head_dim\":32,\"index_head_dim\":32,\"index_n_heads\":4,\"num_hidden_layers\":4,\"vocab_size\":100,"
    "\"intermediate_size\":64,\"max_position_embeddings\":4096}";

typedef struct Engine {
    KvgGrid      *grid;
    KvgPlacement *placement;
    KvgBatch     *batch;
    KvgSequence  *sequence;
    uint64_t      rows;
    int           told; /* on_lost: of the victim */
} Engine;

static int world_rank;

#define CHECK(condition)                                                                                         \
    do {                                                                                                         \
        if (!(condition)) {                                                                                      \
            printf("rank %d, line %d: failed: %s [%s]\n", world_rank, __LINE__, #condition, kvg_last_error());   \
            fflush(stdout);                                                                                      \
            return 0;                                                                                            \
        }                                                                                                        \
    } while (0)

static void lost(void *user, int rank, const char *why)
{
    Engine *engine = user;

    engine->told += rank == VICTIM && strstr(why, "rank 1 (host ") != NULL;
}

static float value(uint32_t layer, uint32_t plane, uint64_t row, uint32_t element)
{
    return (float)((layer * 7919u + plane * 104729u + row * 31u + element * 17u) % 509u) / 64.0f - 4.0f;
}

/* ---- one step */

static int write_rows(Engine *engine, uint32_t rows)
{
    static float latent[128 * WIDTH], keys[128 * KEYS];
    uint32_t     lo, hi;

    kvg_placement_layers(engine->placement, &lo, &hi);
    for (uint32_t il = lo; il < hi; il++) {
        KvgLatentRows in = KVG_LATENT_ROWS_INIT;
        for (uint32_t i = 0; i < rows; i++) {
            for (uint32_t e = 0; e < WIDTH; e++) latent[i * WIDTH + e] = value(il, 2, engine->rows + i, e);
            for (uint32_t e = 0; e < KEYS; e++) keys[i * KEYS + e] = value(il, 3, engine->rows + i, e);
        }
        in.latent = latent;
        in.index = keys;
        CHECK(kvg_write_latent(engine->batch, il, &in, NULL) == KVG_OK);
    }
    return 1;
}

static int step(Engine *engine, uint32_t rows)
{
    KvgCommit commit = KVG_COMMIT_INIT;
    KvgStep  *begun = NULL;

    CHECK(kvg_batch_set(engine->batch, 0, engine->sequence) == KVG_OK);
    CHECK(kvg_step_begin(engine->batch, &rows, &begun) == KVG_OK);
    if (!write_rows(engine, rows)) return 0;
    commit.accept_all = kvg_grid_stage(engine->grid) + 1 == kvg_grid_pp(engine->grid);
    CHECK(kvg_step_post(begun, &commit) == KVG_OK);
    CHECK(kvg_step_wait(begun, NULL) == KVG_OK);
    engine->rows += rows;
    return 1;
}

static int digest_is(Engine *engine, const KvDigest *expected)
{
    KvDigest digest;

    CHECK(kvg_sequence_digest(engine->sequence, &digest) == KVG_OK);
    CHECK(memcmp(&digest, expected, sizeof digest) == 0);
    return 1;
}

/* ---- beginnings and ends */

static KvgGridOptions grid_options(Engine *engine, const KvgPolicy *policy, const KvComm *comm)
{
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;

    options.tp = comm != NULL ? 2 : 1;
    options.pp = options.tp;
    options.policy = policy;
    options.comm = comm;
    options.on_lost = lost;
    options.user = engine;
    return options;
}

static KvgPolicy policy_of_test(void)
{
    KvgPolicy policy;

    kvg_policy_default(&policy);
    policy.timeout_ms = 15000;
    policy.peer_ms = 200;
    return policy;
}

static KvgPlaceOptions place_options(void)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;

    options.max_sequences = 2;
    options.memory_bytes = 2u << 20;
    return options;
}

static int open_engine(Engine *engine, const KvgBootstrap *bootstrap, const KvComm *comm)
{
    KvgPolicy       policy = policy_of_test();
    KvgGridOptions  options = grid_options(engine, &policy, comm);
    KvgPlaceOptions place = place_options();
    ModelConfig     config;

    CHECK(kvg_model_config_parse_json(model, sizeof model - 1, "small", &config) == KVG_OK);
    CHECK(kvg_grid_create(bootstrap, &options, &engine->grid) == KVG_OK);
    CHECK(kvg_place(engine->grid, &config, &place, &engine->placement) == KVG_OK);
    kvg_model_config_free(&config);
    CHECK(kvg_batch_create(engine->placement, 1, &engine->batch) == KVG_OK);
    CHECK(kvg_sequence_open(engine->placement, 7, 0, &engine->sequence) == KVG_OK);
    return 1;
}

static void close_engine(Engine *engine)
{
    kvg_batch_destroy(engine->batch);
    kvg_placement_destroy(engine->placement);
    kvg_grid_destroy(engine->grid);
}

/* What a run that loses nobody has, on one rank in this process. */
static int reference(KvDigest *before, KvDigest *after)
{
    KvgBootstrap alone = KVG_BOOTSTRAP_INIT;
    Engine       engine = { 0 };

    if (!open_engine(&engine, &alone, NULL) || !step(&engine, BEFORE)) return 0;
    CHECK(kvg_sequence_digest(engine.sequence, before) == KVG_OK);
    if (!step(&engine, AFTER)) return 0;
    CHECK(kvg_sequence_digest(engine.sequence, after) == KVG_OK);
    close_engine(&engine);
    return 1;
}

/* ---- the rebuild */

/* The places of the grid, with the spare in the dead one's. Collective over these processes alone. */
static int connect_anew(MPI_Comm *comm, KvgBootstrap *bootstrap, KvComm *records)
{
    static const int members[RANKS] = { 0, SPARE, 2, 3 };
    MPI_Group        world, group;

    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, RANKS, members, &group);
    CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, group, 77, comm) == MPI_SUCCESS);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    CHECK(kvg_mpi_bootstrap(*comm, bootstrap) == KVG_OK);
    CHECK(kvg_mpi_comm_create(*comm, records) == KVG_OK);
    return 1;
}

static int check_report(const Engine *engine, const KvgRebuildReport *report)
{
    CHECK(report->count == 1 && report->kept == 1);
    CHECK(report->sequences[0].id == 7 && report->sequences[0].rows == engine->rows && report->sequences[0].rows_held == engine->rows);
    return 1;
}

static int rebuild(Engine *engine, int joins)
{
    static const int  survivors[] = { 0, 2, 3 };
    KvgRebuildOptions options = KVG_REBUILD_OPTIONS_INIT;
    KvgRebuildReport *report = NULL;
    KvgBootstrap      bootstrap = KVG_BOOTSTRAP_INIT;
    MPI_Comm          comm = MPI_COMM_NULL;
    KvComm            records;

    if (joins && !connect_anew(&comm, &bootstrap, &records)) return 0;
    options.comm = joins ? &records : NULL;
    CHECK(kvg_grid_rebuild(engine->grid, joins ? &bootstrap : NULL, survivors, 3, &options, &report) == KVG_OK);
    int well = check_report(engine, report);
    kvg_rebuild_report_free(report);
    kvg_mpi_bootstrap_free(&bootstrap);
    if (joins) MPI_Comm_free(&comm);
    return well;
}

static int join(Engine *engine)
{
    KvgPolicy         policy = policy_of_test();
    KvgPlaceOptions   place = place_options();
    KvgRebuildReport *report = NULL;
    ModelConfig       config;
    KvgJoin           join = { &config, &place, NULL };
    KvgBootstrap      bootstrap;
    MPI_Comm          comm;
    KvComm            records;

    engine->rows = BEFORE;
    CHECK(kvg_model_config_parse_json(model, sizeof model - 1, "small", &config) == KVG_OK);
    if (!connect_anew(&comm, &bootstrap, &records)) return 0;
    KvgGridOptions options = grid_options(engine, &policy, &records);
    CHECK(kvg_grid_join(&bootstrap, &options, &join, 1, &engine->grid, &report) == KVG_OK);
    kvg_model_config_free(&config);
    if (!check_report(engine, report)) return 0;
    engine->placement = join.placement;
    engine->sequence = report->sequences[0].sequence;
    kvg_rebuild_report_free(report);
    kvg_mpi_bootstrap_free(&bootstrap);
    MPI_Comm_free(&comm);
    CHECK(kvg_batch_create(engine->placement, 1, &engine->batch) == KVG_OK);
    return 1;
}

static int live(Engine *engine, MPI_Comm grid_comm, const KvDigest *before)
{
    KvgBootstrap bootstrap;
    KvComm       records;

    CHECK(kvg_mpi_bootstrap(grid_comm, &bootstrap) == KVG_OK);
    CHECK(kvg_mpi_comm_create(grid_comm, &records) == KVG_OK);
    if (!open_engine(engine, &bootstrap, &records) || !step(engine, BEFORE) || !digest_is(engine, before)) return 0;
    if (world_rank == VICTIM) {
        raise(SIGKILL);
    }
    kvg_mpi_bootstrap_free(&bootstrap);
    for (int i = 0; !engine->told; i++) {
        CHECK(i < 5000);
        kvg_grid_progress(engine->grid);
        usleep(1000);
    }
    return 1;
}

static int run(int joins, int survives, MPI_Comm grid_comm)
{
    Engine   engine = { 0 };
    KvDigest before, after;

    if (!reference(&before, &after)) return 0;
    if (survives && (!live(&engine, grid_comm, &before) || !rebuild(&engine, joins))) return 0;
    if (!survives && !join(&engine)) return 0;
    if (!digest_is(&engine, &before) || !step(&engine, AFTER) || !digest_is(&engine, &after)) return 0;
    CHECK(kvg_grid_epoch(engine.grid) == 2);
    close_engine(&engine);
    return 1;
}

static void tell(int well, int joins)
{
    int sum = well, other = 0, expected = joins ? 4 : 3;

    if (world_rank != 0) {
        MPI_Send(&well, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
        return;
    }
    for (int rank = 2; rank <= (joins ? SPARE : RANKS - 1); rank++) {
        MPI_Recv(&other, 1, MPI_INT, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sum += other;
    }
    printf("%d of %d ranks went on\n", sum, expected);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    MPI_Comm grid_comm = MPI_COMM_NULL;
    int      joins, size;

    alarm(50); /* nothing here may hang: this is what the test is about */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    joins = argc == 2 && strcmp(argv[1], "joins") == 0;
    if (size != RANKS + joins) {
        printf("mpi_rebuild %s needs %d ranks\n", joins ? "joins" : "alone", RANKS + joins);
        MPI_Finalize();
        return EXIT_FAILURE;
    }
    MPI_Comm_split(MPI_COMM_WORLD, world_rank == SPARE, world_rank, &grid_comm); /* all are alive yet */
    tell(run(joins, world_rank != SPARE, grid_comm), joins);
    alarm(2); /* all is told; Open MPI 4.1's finalize waits for the dead rank, on most days for good */
    MPI_Finalize();
    return EXIT_SUCCESS;
}

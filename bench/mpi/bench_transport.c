/* What does a step cost over shared memory, over the socket mesh and over MPI, and how far is an exchange of records from what the memory itself gives?
 *
 *   bare      two ranks' records through a window of shared memory and a counter each: the limit
 *   shm mesh  the same bytes through the KvComm seam: post, then take the other's
 *   mpi
 *   step      begin, post, wait of a grid 2 x 1 with that transport, 64 sequences, no rows written: what a serving frontend pays a step
 *
 * Rounds of all alternate with a barrier before each, so that a drift of the machine meets all; ratios are of neighbours in time, medians over rounds.
 * Times are rank 0's. Both ranks need a core each: mpirun --bind-to core -n 2. Bar: a step over shared memory at most 1.05 times one over MPI. */
#include <mpi.h>
#include <stdatomic.h>

#include <kvgrid/kvgrid.h>
#include <kvgrid/kvgrid_mpi.h>

#include "bench/bench.h"
#include "runtime/comm/clock.h"

#define BAR 1.05
enum { SEQUENCES = 64, RECORD_BYTES = 576, ROUNDS_MAX = 2001, WARMUP = 5 };

typedef enum Way { WAY_SHM = 0, WAY_MESH, WAY_MPI, WAYS } Way;
typedef enum Kind { BARE = 0, EXCHANGE, STEP = EXCHANGE + WAYS, KINDS = STEP + WAYS } Kind;

static const char *const kind_names[KINDS] = { "bare", "exchange shm", "exchange mesh", "exchange mpi", "step shm", "step mesh", "step mpi" };

typedef struct Place { /* of one rank in the window */
    _Alignas(128) _Atomic uint64_t count;
    _Alignas(128) uint8_t record[2][RECORD_BYTES];
} Place;

typedef struct Bench {
    int           rank;
    KvgBootstrap  bootstrap;
    MPI_Win       window;
    Place        *places[2];
    uint64_t      turn;
    KvComm        comm[WAYS]; /* for exchanges */
    KvLiveness    alive[WAYS];
    KvgGrid      *grid[WAYS]; /* for steps, with comms of their own */
    KvgPlacement *placement[WAYS];
    KvgBatch     *batch[WAYS];
    uint64_t      record[RECORD_BYTES / 8];
    uint64_t      wrong;
} Bench;

static void must(KvgStatus status)
{
    if (status != KVG_OK) {
        fprintf(stderr, "bench_transport: %s\n", kvg_last_error());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

/* ---- set-up */

static void open_comm(Bench *bench, Way way, KvComm *comm, KvLiveness *alive)
{
    KvComm unused;

    if (way == WAY_SHM) {
        must(kvg_comm_shm_create(&bench->bootstrap, NULL, comm, alive));
        return;
    }
    must(kvg_mesh_create(&bench->bootstrap, NULL, comm, alive));
    if (way == WAY_MPI) { /* its deaths are seen by the mesh, as in every grid over MPI */
        unused = *comm;
        unused.ops->close(unused.self);
        must(kvg_mpi_comm_create(MPI_COMM_WORLD, comm));
    }
}

static void open_grid(Bench *bench, Way way)
{
    static const char text[] = "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":32,"
                               "\"num_hidden_layers\":8,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":262144}";
    KvgGridOptions    options = KVG_GRID_OPTIONS_INIT;
    KvgPlaceOptions   place = KVG_PLACE_OPTIONS_INIT;
    ModelConfig       config;
    KvComm            comm;
    KvLiveness        alive;
    KvgSequence      *sequence;

    open_comm(bench, way, &comm, &alive);
    options.tp = 2;
    options.comm = &comm;
    options.liveness = &alive;
    must(kvg_grid_create(&bench->bootstrap, &options, &bench->grid[way]));
    must(kvg_model_config_parse_json(text, sizeof text - 1, "bench", &config));
    place.max_sequences = SEQUENCES;
    place.memory_bytes = (uint64_t)2 << 30; /* booked, and hardly touched: no rows are written */
    must(kvg_place(bench->grid[way], &config, &place, &bench->placement[way]));
    must(kvg_batch_create(bench->placement[way], SEQUENCES, &bench->batch[way]));
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        must(kvg_sequence_open(bench->placement[way], i + 1, 0, &sequence));
        must(kvg_batch_set(bench->batch[way], i, sequence));
    }
    kvg_model_config_free(&config);
}

static void open_window(Bench *bench)
{
    void    *base;
    MPI_Aint bytes;
    int      unit;

    MPI_Win_allocate_shared(bench->rank == 0 ? 2 * sizeof(Place) + 128 : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &bench->window);
    MPI_Win_shared_query(bench->window, 0, &bytes, &unit, &base);
    base = (void *)(((uintptr_t)base + 127) / 128 * 128);
    for (int rank = 0; rank < 2; rank++) {
        bench->places[rank] = (Place *)base + rank;
    }
    atomic_store(&bench->places[bench->rank]->count, 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- what is timed */

static void bare(Bench *bench)
{
    Place *mine = bench->places[bench->rank], *other = bench->places[1 - bench->rank];

    memcpy(mine->record[bench->turn % 2], bench->record, RECORD_BYTES);
    atomic_store_explicit(&mine->count, bench->turn, memory_order_release);
    for (uint64_t rounds = 0; atomic_load_explicit(&other->count, memory_order_acquire) < bench->turn; rounds++) {
        kvg_clock_relax(rounds);
    }
    uint64_t first;

    memcpy(&first, other->record[bench->turn % 2], sizeof first);
    bench->wrong += first != bench->turn;
}

static void exchange(Bench *bench, Way way)
{
    const KvComm   *comm = &bench->comm[way];
    const uint64_t *record = NULL;
    int             peer = -1;

    must(comm->ops->post(comm->self, bench->record));
    for (uint64_t rounds = 0; (record = comm->ops->take(comm->self, &peer)) == NULL; rounds++) {
        comm->ops->relax(comm->self, rounds);
    }
    bench->wrong += record[0] != bench->turn || peer != 1 - bench->rank;
}

static void step(Bench *bench, Way way)
{
    static uint32_t rows[SEQUENCES];
    KvgCommit       commit = KVG_COMMIT_INIT;
    KvgStep        *step_p = NULL;

    for (uint32_t i = 0; i < SEQUENCES; i++) {
        rows[i] = 1;
    }
    commit.accept_all = 1;
    must(kvg_step_begin(bench->batch[way], rows, &step_p));
    must(kvg_step_post(step_p, &commit));
    must(kvg_step_wait(step_p, NULL));
}

/* Microseconds a call. */
static double time_kind(Bench *bench, int kind, long iters)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = bench_now_us();

    for (long i = 0; i < iters; i++) {
        bench->record[0] = ++bench->turn;
        if (kind == BARE) bare(bench);
        else if (kind < STEP) exchange(bench, (Way)(kind - EXCHANGE));
        else step(bench, (Way)(kind - STEP));
    }
    return (bench_now_us() - begin) / (double)iters;
}

static double ratio_of(double us[KINDS][ROUNDS_MAX], long rounds, int a, int b, double *low, double *high)
{
    static double ratio[ROUNDS_MAX];

    for (long round = 0; round < rounds; round++) {
        ratio[round] = us[a][round] / us[b][round];
    }
    *low = bench_percentile(ratio, (size_t)rounds, 10);
    *high = bench_percentile(ratio, (size_t)rounds, 90);
    return bench_median(ratio, (size_t)rounds);
}

static int report(double us[KINDS][ROUNDS_MAX], const Bench *bench, long rounds, long iters, int json)
{
    double low[KINDS], high[KINDS], ratio[KINDS];

    for (int kind = 0; kind < KINDS; kind++) { /* before medians sort them */
        ratio[kind] = ratio_of(us, rounds, kind, kind < STEP ? BARE : STEP + WAY_MPI, &low[kind], &high[kind]);
    }
    int good = bench->wrong == 0 && ratio[STEP + WAY_SHM] <= BAR;

    if (!json) {
        bench_header("bench_transport", "ranks 2  record 576 bytes  sequences 64");
        printf("# rounds %ld  iters %ld  warmup %d; an exchange over the bare one, a step over one over MPI, medians of neighbours in time\n", rounds, iters, WARMUP);
        printf("#          call  ratio     p10     p90   t_med   t_min    bar\n#                  (x)     (x)     (x)    (us)    (us)    (x)\n");
    }
    for (int kind = 0; kind < KINDS; kind++) {
        double least = bench_percentile(us[kind], (size_t)rounds, 0), median = bench_median(us[kind], (size_t)rounds);

        if (json) {
            printf("{\"bench\":\"transport\",\"call\":\"%s\",\"ratio\":%.3f,\"ratio_p10\":%.3f,\"ratio_p90\":%.3f,\"us\":%.3f,\"us_min\":%.3f,\"ok\":%s}\n",
                   kind_names[kind], ratio[kind], low[kind], high[kind], median, least, kind != STEP + WAY_SHM || good ? "true" : "false");
        } else {
            printf("  %13s  %5.2f  %6.2f  %6.2f  %6.2f  %6.2f  %5s\n", kind_names[kind], ratio[kind], low[kind], high[kind], median, least,
                   kind == STEP + WAY_SHM ? "1.05" : "-");
        }
    }
    if (!json) {
        printf("# wrong records %llu; a step over shared memory within the bar: %s\n", (unsigned long long)bench->wrong, good ? "OK" : "MISSED");
    }
    return good;
}

static void close_all(Bench *bench)
{
    MPI_Barrier(MPI_COMM_WORLD);
    for (int way = 0; way < WAYS; way++) {
        bench->comm[way].ops->close(bench->comm[way].self);
        bench->alive[way].ops->close(bench->alive[way].self);
        kvg_batch_destroy(bench->batch[way]);
        kvg_placement_destroy(bench->placement[way]);
        kvg_grid_destroy(bench->grid[way]);
    }
    MPI_Win_free(&bench->window);
    kvg_mpi_bootstrap_free(&bench->bootstrap);
}

int main(int argc, char **argv)
{
    static double us[KINDS][ROUNDS_MAX];
    static Bench  bench;
    int           size, good = 1;
    long          rounds = bench_number(argc, argv, "--rounds", 101), iters = bench_number(argc, argv, "--iters", 100);

    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    if (size != 2 || rounds < 1 || rounds > ROUNDS_MAX || iters < 1) {
        fprintf(stderr, "usage: mpirun --bind-to core -n 2 bench_transport [--json] [--rounds 1..%d] [--iters N]\n", ROUNDS_MAX);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    bench.bootstrap = (KvgBootstrap)KVG_BOOTSTRAP_INIT;
    must(kvg_mpi_bootstrap(MPI_COMM_WORLD, &bench.bootstrap));
    open_window(&bench);
    for (int way = 0; way < WAYS; way++) {
        open_comm(&bench, (Way)way, &bench.comm[way], &bench.alive[way]);
        must(bench.comm[way].ops->records_open(bench.comm[way].self, RECORD_BYTES));
        open_grid(&bench, (Way)way);
    }
    for (long round = -WARMUP; round < rounds; round++) {
        for (int k = 0; k < KINDS; k++) {
            int    kind = (int)((k + round + WARMUP) % KINDS); /* each has every place in turn */
            double took = time_kind(&bench, kind, iters);

            if (round >= 0) us[kind][round] = took;
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, &bench.wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (bench.rank == 0) good = report(us, &bench, rounds, iters, bench_has(argc, argv, "--json"));
    close_all(&bench);
    MPI_Finalize();
    return good ? 0 : 1;
}

/* Captured runs on one and two GPUs: mpirun -n 1|2 gpu_run. 77 and a reason where that cannot be.
 *
 * A small model is placed on 1x1, 2x1 and 1x2 grids over MPI, its prompts stepped from the host and then decoded in captured runs: one row a step,
 * speculative rounds whose accepted counts are made on the device, members that change with no capture anew, replays launched too often and too
 * seldom, micro-batches that take turns. Digests are those of the same rows stepped one by one on the host's device in one process. Then a rank
 * says no, one stays away, and one is stopped by a signal: whatever happens, kernels end by themselves and the processes exit.
 * All of it twice: captured on one stream, and into a graph of our own in which the vote is a branch beside what it need not wait for. */
#include <mpi.h>
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include <kvgrid/kvgrid.h>
#include <kvgrid/kvgrid_cuda.h>
#include <kvgrid/kvgrid_mpi.h>
#include <kvgrid/kvgrid_vote_nccl.h>

#include "tests/kernels/attention.h"
#include "tests/kernels/run_nodes.h"

enum { SKIP = 77, LAYERS = 4, HEADS = 4, ROW = HEADS * ATTEND_DIM, PLACES = 6, HALF = 3, CHUNK = 96, SLOTS = 8, CONTEXT = 2048, ROUND = 3, TIMEOUT_MS = 400 };

static int world_rank, world_ranks;

#define REQUIRE(condition, ...)                                                  \
    do {                                                                         \
        if (!(condition)) {                                                      \
            fprintf(stderr, "rank %d, %s:%d: ", world_rank, __FILE__, __LINE__); \
            fprintf(stderr, __VA_ARGS__);                                        \
            fprintf(stderr, "\n");                                               \
            MPI_Abort(MPI_COMM_WORLD, 1);                                        \
        }                                                                        \
    } while (0)
#define OK(call) REQUIRE((call) == KVG_OK, "%s: %s", #call, kvg_last_error())
#define CUDA(call) REQUIRE((call) == cudaSuccess, "%s: %s", #call, cudaGetErrorString(cudaGetLastError()))

static const char model[] =
    "{\"model_type\":\"llama\",\"hidden_size\":512,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"head_dim\":128,\"num_hidden_layers\":4,"
    "\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":2048,\"sliding_window\":64,"
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"]}";

/* ---- one side: a grid's rank on its GPU, or the reference on the host's device */

typedef struct Side {
    MPI_Comm      world;   /* of the GPU's grid */
    KvgGrid      *grid;
    KvDev         dev;
    int           on_gpu;
    KvgPlacement *placement;
    KvgBatch     *batch;   /* [PLACES] */
    KvgBatch     *half[2]; /* [HALF] each: micro-batches over the same sequences */
    KvgSequence  *sequence[PLACES];
    uint32_t      key[PLACES];
    uint64_t      rows[PLACES];
    uint32_t      next_key;
    KvgStream     stream;
    int           beside;  /* captured into graphs of our own: the vote's nodes on a branch */
    cudaStream_t  branch;
    cudaEvent_t   event;
    uint32_t     *keys;    /* [SLOTS] device memory */
    uint16_t     *k, *v;   /* [PLACES][CHUNK][ROW] device memory */
    float        *q;       /* the generator's; not used */
    uint32_t     *queries; /* [PLACES] zeros */
    KvNcclVote   *vote;
    KvInproc     *hub;     /* the reference's */
} Side;

static void *device_zeros(Side *s, size_t bytes)
{
    void *memory = NULL;
    OK(s->dev.ops->zeros(s->dev.self, bytes, &memory));
    return memory;
}

static KvgStatus agree(void *user, KvgStatus mine)
{
    int worst = mine;

    MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, *(MPI_Comm *)user);
    return (KvgStatus)worst;
}

/* Under a sanitizer: kernels run many times slower, and the faults, which wait for deadlines, are left out. */
static int is_brief(void)
{
    return getenv("KVG_TEST_BRIEF") != NULL;
}

static void policy_of(KvgPolicy *policy)
{
    kvg_policy_default(policy);
    policy->swa_ring = 1;
    policy->timeout_ms = is_brief() ? 120000 : TIMEOUT_MS;
    policy->peer_ms = 200;
}

static void place(Side *s)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    ModelConfig     config;

    OK(kvg_model_config_parse_json(model, sizeof model - 1, "small", &config));
    options.format_k = KVG_Q8_0;
    options.format_v = KVG_Q5_1;
    options.max_sequences = SLOTS;
    options.memory_bytes = 64u << 20;
    options.prefill_chunk_max = CHUNK;
    options.device = &s->dev;
    OK(kvg_place(s->grid, &config, &options, &s->placement));
    kvg_model_config_free(&config);
    OK(kvg_batch_create(s->placement, PLACES, &s->batch));
    for (int h = 0; h < 2; h++) OK(kvg_batch_create(s->placement, HALF, &s->half[h]));
}

static void take_memory(Side *s)
{
    s->keys = device_zeros(s, SLOTS * sizeof(uint32_t));
    s->k = device_zeros(s, (size_t)PLACES * CHUNK * ROW * sizeof(uint16_t));
    s->v = device_zeros(s, (size_t)PLACES * CHUNK * ROW * sizeof(uint16_t));
    s->q = device_zeros(s, PLACES * sizeof(float) * ATTEND_DIM * HEADS);
    s->queries = device_zeros(s, PLACES * sizeof(uint32_t));
}

static void open_reference(Side *s)
{
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    KvgPolicy      policy;

    memset(s, 0, sizeof *s);
    policy_of(&policy);
    options.policy = &policy;
    OK(kvg_inproc_create(1, &s->hub));
    OK(kvg_grid_create_inproc(s->hub, 1, &options, &s->grid));
    OK(kvg_dev_host(&s->dev));
    place(s);
    take_memory(s);
}

static void open_gpu(Side *s, MPI_Comm world, uint32_t tp, ncclComm_t comm, int beside)
{
    KvgBootstrap      bootstrap = KVG_BOOTSTRAP_INIT;
    KvgGridOptions    options = KVG_GRID_OPTIONS_INIT;
    KvgCudaOptions    cuda = KVG_CUDA_OPTIONS_INIT;
    KvNcclVoteOptions vote = KVG_NCCL_VOTE_OPTIONS_INIT;
    KvgPolicy         policy;
    KvComm            mpi;
    cudaStream_t      stream;
    int               ranks = 0;

    memset(s, 0, sizeof *s);
    s->world = world;
    s->on_gpu = 1;
    s->beside = beside;
    MPI_Comm_size(world, &ranks);
    policy_of(&policy);
    options.tp = tp;
    options.pp = (uint32_t)ranks / tp;
    options.policy = &policy;
    options.comm = &mpi;
    OK(kvg_mpi_bootstrap(world, &bootstrap));
    OK(kvg_mpi_comm_create(world, &mpi));
    OK(kvg_grid_create(&bootstrap, &options, &s->grid));
    kvg_mpi_bootstrap_free(&bootstrap);
    cuda.device = world_rank;
    OK(kvg_dev_cuda(&cuda, &s->dev));
    place(s);
    take_memory(s);
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    s->stream = stream;
    CUDA(cudaStreamCreateWithFlags(&s->branch, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&s->event, cudaEventDisableTiming));
    if (ranks == 1) return;
    vote.tp = tp;
    vote.window_steps = 2 * options.pp;
    vote.sequences_max = kvg_grid_record_sequences(s->grid);
    vote.agree = agree;
    vote.user = &s->world;
    OK(kvg_nccl_vote_create(comm, &vote, &s->vote));
    OK(kvg_grid_vote_on_device(s->grid, kvg_nccl_vote_board(s->vote), kvg_nccl_vote_control(s->vote)));
}

static void close_side(Side *s)
{
    void *held[] = { s->keys, s->k, s->v, s->q, s->queries };

    kvg_batch_destroy(s->batch);
    for (int h = 0; h < 2; h++) kvg_batch_destroy(s->half[h]);
    kvg_placement_destroy(s->placement);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) s->dev.ops->free(s->dev.self, held[i]);
    if (s->on_gpu) {
        OK(kvg_cuda_forget_stream(&s->dev, s->stream));
        CUDA(cudaStreamDestroy((cudaStream_t)s->stream));
        CUDA(cudaStreamDestroy(s->branch));
        CUDA(cudaEventDestroy(s->event));
    }
    kvg_grid_destroy(s->grid);
    kvg_nccl_vote_destroy(s->vote);
    kvg_dev_close(&s->dev);
    if (s->hub != NULL) kvg_inproc_destroy(s->hub);
}

/* ---- steps from the host */

static void seat(Side *s, uint32_t at)
{
    KvgSequenceInfo info = { .size = sizeof info };

    s->key[at] = ++s->next_key;
    s->rows[at] = 0;
    OK(kvg_sequence_open(s->placement, 100 + s->key[at], 0, &s->sequence[at]));
    OK(kvg_sequence_info(s->sequence[at], &info));
    OK(s->dev.ops->set_i32_one(s->dev.self, (int32_t *)s->keys + info.slot, (int32_t)s->key[at], s->stream));
    OK(kvg_batch_set(s->batch, at, s->sequence[at]));
    OK(kvg_batch_set(s->half[at / HALF], at % HALF, s->sequence[at]));
}

/* Rows of this rank's heads, made on the host. */
static void write_rows(Side *s, const uint32_t rows[PLACES])
{
    static float made_k[PLACES * CHUNK * ROW], made_v[PLACES * CHUNK * ROW];
    static float *sent[2];
    uint32_t     lo, hi;

    kvg_placement_layers(s->placement, &lo, &hi);
    for (uint32_t il = lo; il < hi; il++) {
        const KvPlaneView *view = kvg_plane_view(s->batch, il);
        KvgRows            in = KVG_ROWS_INIT;
        size_t             at = 0;
        for (uint32_t p = 0; p < PLACES; p++) {
            for (uint32_t i = 0; i < rows[p] * view->heads * ATTEND_DIM; i++, at++) {
                uint32_t row = (uint32_t)s->rows[p] + i / (view->heads * ATTEND_DIM), head = view->head_first + i / ATTEND_DIM % view->heads;
                made_k[at] = attend_value(s->key[p], il, ATTEND_K, head, row, i % ATTEND_DIM);
                made_v[at] = attend_value(s->key[p], il, ATTEND_V, head, row, i % ATTEND_DIM);
            }
        }
        in.k = made_k;
        in.v = made_v;
        if (s->on_gpu) {
            for (int x = 0; x < 2; x++) {
                if (sent[x] == NULL) CUDA(cudaMalloc((void **)&sent[x], sizeof made_k));
            }
            OK(s->dev.ops->htod(s->dev.self, sent[0], made_k, at * sizeof(float), s->stream));
            OK(s->dev.ops->htod(s->dev.self, sent[1], made_v, at * sizeof(float), s->stream));
            in.k = sent[0];
            in.v = sent[1];
        }
        OK(kvg_write_kv(s->batch, il, &in, s->stream));
    }
}

static void step(Side *s, const uint32_t rows[PLACES], const uint32_t accepted[PLACES])
{
    KvgCommit commit = KVG_COMMIT_INIT;
    KvgStep  *open;

    OK(kvg_step_begin(s->batch, rows, &open));
    write_rows(s, rows);
    commit.accepted = accepted;
    OK(kvg_step_post(open, &commit));
    OK(kvg_step_wait(open, NULL));
    for (uint32_t p = 0; p < PLACES; p++) s->rows[p] += accepted[p];
}

static void prompts(Side *s, const uint32_t rows[PLACES])
{
    step(s, rows, rows);
}

/* What a run of `steps` replays of `rows` rows does, on the reference. */
static void run_by_host(Side *s, uint32_t steps, uint32_t rows)
{
    for (uint32_t n = 0; n < steps; n++) {
        uint32_t staged[PLACES] = { 0 }, kept[PLACES] = { 0 };
        for (uint32_t p = 0; p < PLACES; p++) {
            if (s->sequence[p] == NULL) continue;
            staged[p] = rows;
            kept[p] = rows == 1 ? 1 : run_kept(s->key[p], (uint32_t)s->rows[p], rows);
        }
        step(s, staged, kept);
    }
}

/* ---- captured steps */

typedef struct Capture {
    uint32_t rows;
    int      refuses; /* this rank says no from row `from` of place 0 on */
    uint32_t from;
} Capture;

typedef struct Graph {
    KvgGraph       *votes;
    cudaGraphExec_t own; /* with votes' nodes in it; NULL: votes is launched itself */
} Graph;

static void free_graph(Graph graph)
{
    kvg_graph_free(graph.votes);
    if (graph.own != NULL) CUDA(cudaGraphExecDestroy(graph.own));
}

static void follow(const Side *s, KvgStream later, KvgStream earlier)
{
    CUDA(cudaEventRecord(s->event, (cudaStream_t)earlier));
    CUDA(cudaStreamWaitEvent((cudaStream_t)later, s->event, 0));
}

static void capture_layers(Side *s, KvgBatch *batch, uint32_t places, Capture what, const KvgRunArrays *arrays)
{
    uint32_t lo, hi;

    kvg_placement_layers(s->placement, &lo, &hi);
    for (uint32_t il = lo; il < hi; il++) {
        GenerateCall generate = { .view = *kvg_plane_view(batch, il), .slots = arrays->slots, .rows = arrays->rows, .queries = s->queries, .first_row = arrays->first_row,
                                  .keys = s->keys, .places = places, .rows_max = what.rows, .queries_max = 1, .query_heads = HEADS, .k = s->k, .v = s->v, .q = s->q };
        KvgRows      in = KVG_ROWS_INIT;
        int          failed = generate_launch(&generate, s->stream);
        REQUIRE(failed == 0, "generating rows: %d", failed);
        in.k = s->k;
        in.v = s->v;
        in.dtype = KVG_BF16;
        OK(kvg_write_kv(batch, il, &in, s->stream));
    }
    if (what.rows > 1) {
        RunNodes nodes = { arrays->slots, arrays->rows, arrays->first_row, s->keys, arrays->accepted, places };
        REQUIRE(run_keep_launch(&nodes, s->stream) == 0, "keeping rows");
    }
    if (what.refuses) REQUIRE(run_refuse_launch(arrays->first_row, what.from, KVG_EIO, arrays->status, s->stream) == 0, "saying no");
}

/* Beside the deciding half stands what reads nothing of the run (a receive: rows are overwritten), beside the posting one what changes nothing of it (a send). */
static void capture_own(Side *s, KvgBatch *batch, uint32_t places, Capture what, const KvgCapture *options, Graph *graph)
{
    const size_t bytes = (size_t)PLACES * CHUNK * ROW * sizeof(uint16_t);
    KvgRunArrays arrays = { .size = sizeof arrays };
    cudaStream_t stream = (cudaStream_t)s->stream;
    cudaGraph_t  made = NULL;

    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal)); /* in which a thread may take no memory of CUDA's: kvgrid takes its own all the same */
    follow(s, s->branch, stream);
    OK(kvg_batch_capture_begin(batch, options, s->branch));
    OK(kvg_run_arrays(batch, &arrays));
    CUDA(cudaMemsetAsync(s->k, 0x5a, bytes, stream));
    follow(s, stream, s->branch);
    capture_layers(s, batch, places, what, &arrays);
    follow(s, s->branch, stream);
    OK(kvg_batch_capture_end(batch, &graph->votes));
    CUDA(cudaMemcpyAsync(s->v, s->k, bytes, cudaMemcpyDeviceToDevice, stream));
    follow(s, stream, s->branch);
    CUDA(cudaStreamEndCapture(stream, &made));
    CUDA(cudaGraphInstantiate(&graph->own, made, 0));
    CUDA(cudaGraphDestroy(made));
}

static Graph capture(Side *s, KvgBatch *batch, uint32_t places, Capture what)
{
    uint32_t     rows[PLACES];
    KvgCapture   options = KVG_CAPTURE_INIT;
    KvgRunArrays arrays = { .size = sizeof arrays };
    Graph        graph = { NULL, NULL };

    for (uint32_t p = 0; p < places; p++) rows[p] = what.rows;
    options.rows_per_slot = rows;
    options.accept = what.rows == 1 ? KVG_ACCEPT_ALL : kvg_grid_stage(s->grid) + 1 == kvg_grid_pp(s->grid) ? KVG_ACCEPT_DEVICE : KVG_ACCEPT_OTHERS;
    if (s->beside) {
        capture_own(s, batch, places, what, &options, &graph);
        return graph;
    }
    OK(kvg_batch_capture_begin(batch, &options, s->stream));
    OK(kvg_run_arrays(batch, &arrays));
    capture_layers(s, batch, places, what, &arrays);
    OK(kvg_batch_capture_end(batch, &graph.votes));
    return graph;
}

static void launch(const Side *s, Graph graph)
{
    if (graph.own != NULL) CUDA(cudaGraphLaunch(graph.own, (cudaStream_t)s->stream));
    else OK(kvg_graph_launch(graph.votes, s->stream));
}

static KvgStatus run(Side *s, Graph graph, uint32_t steps, uint32_t launches, uint64_t published)
{
    KvgRunResult result = { .size = sizeof result };
    KvgStatus    status;

    OK(kvg_run_begin(graph.votes, steps, NULL, s->stream));
    for (uint32_t n = 0; n < launches; n++) launch(s, graph);
    status = kvg_run_end(graph.votes, s->stream, &result);
    REQUIRE(result.published == published, "%llu steps are published, and not %llu (%s)", (unsigned long long)result.published, (unsigned long long)published,
            status == KVG_OK ? "" : kvg_last_error());
    return status;
}

static void run_in_turns(Side *s, const Graph graphs[2], uint32_t steps)
{
    KvgRunResult    result = { .size = sizeof result };
    KvgGraph *const votes[2] = { graphs[0].votes, graphs[1].votes };

    OK(kvg_run_begin_joint(votes, NULL, 2, steps, s->stream));
    for (uint32_t n = 0; n < 2 * steps; n++) launch(s, graphs[n % 2]);
    OK(kvg_run_end(votes[1], s->stream, &result));
    REQUIRE(result.published == steps, "turns: %llu of %u", (unsigned long long)result.published, steps);
    OK(kvg_run_result(votes[0], &result));
    REQUIRE(result.published == steps, "turns: %llu of %u", (unsigned long long)result.published, steps);
}

/* ---- comparing */

static int live_digests(Side *gpu, Side *reference, const char *when)
{
    int compared = 0;

    for (uint32_t p = 0; p < PLACES; p++) {
        KvgSequenceInfo ours = { .size = sizeof ours }, theirs = { .size = sizeof theirs };
        KvDigest        a, b;
        if (reference->sequence[p] == NULL) continue;
        OK(kvg_sequence_info(gpu->sequence[p], &ours));
        OK(kvg_sequence_info(reference->sequence[p], &theirs));
        REQUIRE(ours.rows == theirs.rows, "%s, place %u: %llu rows, and not %llu", when, p, (unsigned long long)ours.rows, (unsigned long long)theirs.rows);
        OK(kvg_sequence_digest(gpu->sequence[p], &a));
        OK(kvg_sequence_digest(reference->sequence[p], &b));
        REQUIRE(memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0, "%s, place %u: another digest at %llu rows", when, p, (unsigned long long)ours.rows);
        gpu->rows[p] = ours.rows;
        compared++;
    }
    return compared;
}

static void change_member(Side *s, uint32_t at)
{
    uint32_t rows[PLACES] = { 0 };

    OK(kvg_sequence_close(s->sequence[at], s->stream));
    seat(s, at);
    rows[at] = 41;
    prompts(s, rows);
}

/* Everything that ends well. */
static int runs_that_publish(Side *gpu, Side *host)
{
    static const uint32_t first[PLACES] = { 70, 20, 96, 33, 1, 0 };
    Capture one = { .rows = 1 }, round = { .rows = ROUND };
    Graph   graph_one, graph_round, turns[2];
    int     compared = 0;

    for (uint32_t p = 0; p + 1 < PLACES; p++) seat(gpu, p), seat(host, p);
    prompts(gpu, first), prompts(host, first);
    graph_one = capture(gpu, gpu->batch, PLACES, one);
    graph_round = capture(gpu, gpu->batch, PLACES, round);
    for (int h = 0; h < 2; h++) turns[h] = capture(gpu, gpu->half[h], HALF, round);
    OK(run(gpu, graph_one, 80, 80, 80));
    run_by_host(host, 80, 1);
    compared += live_digests(gpu, host, "one row a step");
    OK(run(gpu, graph_round, 20, 23, 20));
    run_by_host(host, 20, ROUND);
    compared += live_digests(gpu, host, "rounds, launched too often");
    change_member(gpu, 0), change_member(host, 0);
    OK(run(gpu, graph_round, 30, 17, 17));
    run_by_host(host, 17, ROUND);
    compared += live_digests(gpu, host, "another member, launched too seldom");
    prompts(gpu, first), prompts(host, first);
    run_in_turns(gpu, turns, 25), run_by_host(host, 25, ROUND);
    compared += live_digests(gpu, host, "in turns");
    OK(run(gpu, graph_one, 5, 5, 5));
    run_by_host(host, 5, 1);
    compared += live_digests(gpu, host, "and on");
    free_graph(graph_one), free_graph(graph_round);
    for (int h = 0; h < 2; h++) free_graph(turns[h]);
    return compared;
}

/* The last rank says no in the fifth replay; the grid goes on. */
static int a_run_refused(Side *gpu, Side *host)
{
    int       last = kvg_grid_rank(gpu->grid) + 1 == kvg_grid_ranks(gpu->grid);
    Capture   refusing = { .rows = 1, .refuses = last, .from = (uint32_t)gpu->rows[0] + 4 }, one = { .rows = 1 };
    Graph     graph = capture(gpu, gpu->batch, PLACES, refusing);
    KvgStatus status = run(gpu, graph, 10, 10, 4);

    REQUIRE(status == KVG_EREFUSED, "a refused run answers %s", kvg_status_name(status));
    free_graph(graph);
    run_by_host(host, 4, 1);
    int compared = live_digests(gpu, host, "refused");
    graph = capture(gpu, gpu->batch, PLACES, one);
    OK(run(gpu, graph, 3, 3, 3));
    run_by_host(host, 3, 1);
    free_graph(graph);
    return compared + live_digests(gpu, host, "after a refusal");
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Rank 1 does not launch its fourth replay: rank 0 is in doubt at the deadline, both settle, and nothing is lost. */
static int a_rank_stays_away(Side *gpu, Side *host)
{
    Capture       one = { .rows = 1 };
    Graph         graph = capture(gpu, gpu->batch, PLACES, one);
    const int     both[2] = { 0, 1 };
    double        from = now_s();
    KvgStatus     status = run(gpu, graph, 8, world_rank == 0 ? 4 : 3, 3);

    if (world_rank == 0) {
        REQUIRE(status == KVG_EINDOUBT, "a missing rank answers %s", kvg_status_name(status));
        fprintf(stderr, "gpu_run: %s (after %.2f s)\n", kvg_last_error(), now_s() - from);
        REQUIRE(now_s() - from < TIMEOUT_MS / 1000.0 + 1.5, "in doubt only after %.1f s", now_s() - from); /* rank 1 gives no sign of life meanwhile */
    } else {
        OK(status);
    }
    MPI_Barrier(gpu->world); /* a settle waits for the others no longer than any call does */
    OK(kvg_grid_settle(gpu->grid, both, 2));
    free_graph(graph);
    run_by_host(host, 3, 1);
    int compared = live_digests(gpu, host, "settled");
    graph = capture(gpu, gpu->batch, PLACES, one);
    OK(run(gpu, graph, 3, 3, 3));
    run_by_host(host, 3, 1);
    free_graph(graph);
    return compared + live_digests(gpu, host, "after settling");
}

/* Rank 1 is stopped by a signal in the middle of a run, and wakes when rank 0 has given it up. Both end. */
static void a_rank_is_stopped(Side *gpu)
{
    Capture   one = { .rows = 1 };
    Graph     graph = capture(gpu, gpu->batch, PLACES, one);
    double    from;

    OK(kvg_run_begin(graph.votes, 20, NULL, gpu->stream));
    for (int n = 0; n < 3; n++) launch(gpu, graph);
    MPI_Barrier(gpu->world);
    if (world_rank == 1) {
        pid_t self = getpid();
        if (fork() == 0) {
            usleep(3 * TIMEOUT_MS * 1000);
            kill(self, SIGCONT);
            _exit(0);
        }
        raise(SIGSTOP);
        fprintf(stderr, "gpu_run: rank 1 woke up\n");
        kvg_run_end(graph.votes, gpu->stream, NULL); /* whatever it says: it ends */
        free_graph(graph);
        return;
    }
    from = now_s();
    for (int n = 0; n < 3; n++) launch(gpu, graph);
    KvgStatus status = kvg_run_end(graph.votes, gpu->stream, NULL);
    REQUIRE(status == KVG_EINDOUBT, "a stopped rank answers %s", kvg_status_name(status));
    fprintf(stderr, "gpu_run: %s (after %.2f s)\n", kvg_last_error(), now_s() - from);
    REQUIRE(now_s() - from < TIMEOUT_MS / 1000.0 + 1.5, "in doubt only after %.1f s", now_s() - from);
    free_graph(graph);
}

/* ---- which grids */

static void try_grid(MPI_Comm world, uint32_t tp, ncclComm_t comm, int beside)
{
    Side gpu, host;
    int  ranks = 0, compared;

    MPI_Comm_size(world, &ranks);
    open_reference(&host);
    open_gpu(&gpu, world, tp, comm, beside);
    compared = runs_that_publish(&gpu, &host);
    compared += a_run_refused(&gpu, &host);
    if (ranks > 1 && !is_brief()) compared += a_rank_stays_away(&gpu, &host);
    if (world_rank == 0) printf("%ux%d%s: %d digests as on the host\n", tp, ranks / (int)tp, beside ? ", the vote on a branch" : "", compared);
    if (ranks > 1 && tp == 1 && !is_brief()) a_rank_is_stopped(&gpu);
    close_side(&gpu);
    close_side(&host);
}

static ncclComm_t open_comm(void)
{
    ncclUniqueId id;
    ncclComm_t   comm = NULL;

    if (world_rank == 0) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess, "making an id");
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    CUDA(cudaSetDevice(world_rank));
    REQUIRE(ncclCommInitRank(&comm, world_ranks, id, world_rank) == ncclSuccess, "making a communicator");
    return comm;
}

int main(int argc, char **argv)
{
    char       why[512];
    int        devices;
    ncclComm_t comm = NULL;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_ranks);
    devices = kvg_cuda_probe(why, sizeof why);
    if (devices < world_ranks || world_ranks > 2) {
        if (world_rank == 0) printf("skipped: %d GPUs for %d ranks, 1 or 2 wanted: %s\n", devices, world_ranks, why);
        MPI_Finalize();
        return SKIP;
    }
    if (world_ranks > 1) comm = open_comm();
    for (int beside = 0; beside < 2; beside++) {
        if (world_ranks > 1) try_grid(MPI_COMM_WORLD, 2, comm, beside);
        try_grid(MPI_COMM_WORLD, 1, comm, beside);
    }
    if (comm != NULL) ncclCommDestroy(comm);
    if (world_rank == 0) printf("gpu_run: ok\n");
    MPI_Finalize();
    return 0;
}

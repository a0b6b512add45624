/* What do votes cost a pipeline of two GPUs? mpirun -n 2, two GPUs.
 *
 * Two stages, two micro-batches that take turns, each replay a graph: receive, compute, send. The first stage waits for the token that the last stage has
 * made of the same micro-batch, as decoding does. Computing is LAYER_US a layer in two kernels that hold every SM: what precedes a layer's writes of K and V
 * (project) and what follows them (attend); activations and tokens travel by NCCL.
 *   without      the graph alone
 *   one stream   the same nodes in a captured run (kvg_batch_capture_begin): the record is posted at the end and decided at the head of the
 *                micro-batch's next replay; lengths are published, the deadline and the stop word are looked at
 *   branch       the same, captured into a graph of the caller's with the vote on a branch (kernels/CAPTURE.md): decided beside the first projection,
 *                posted beside what follows the last layer's writes
 *   late branch  posted beside the send alone, as where the last kernels say what is kept
 *   empty branch kernels that do nothing in the vote's place: what CUDA takes for the branch alone
 * They take turns round by round; ratio = time without / time with, of the same round. Reported are medians. Times are rank 0's. */
#define OMPI_SKIP_MPICXX 1
#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>

#include <kvgrid/kvgrid.h>
#include <kvgrid/kvgrid_cuda.h>
#include <kvgrid/kvgrid_mpi.h>
#include <kvgrid/kvgrid_vote_nccl.h>

#include "bench/bench.h"

enum { PLACES = 32, TURNS = 200, ROUNDS = 9, LAYER_US = 25, PROJECT_US = 5, ACTIVATION_BYTES = PLACES * 8192 * 2, TOKEN_BYTES = PLACES * 4, SKIP = 77 };
#define BAR 0.98

typedef enum Form { WITHOUT, ONE_STREAM, BRANCH, LATE_BRANCH, EMPTY_BRANCH, FORMS } Form;

static int world_rank;

#define REQUIRE(condition, ...)                                                        \
    do {                                                                               \
        if (!(condition)) {                                                            \
            fprintf(stderr, "bench_pipeline_cuda, rank %d: ", world_rank);             \
            fprintf(stderr, __VA_ARGS__);                                              \
            fprintf(stderr, "\n");                                                     \
            MPI_Abort(MPI_COMM_WORLD, 1);                                              \
        }                                                                              \
    } while (0)
#define CU(call) REQUIRE((call) == cudaSuccess, "%s: %s", #call, cudaGetErrorString(cudaGetLastError()))
#define OK(call) REQUIRE((call) == KVG_OK, "%s: %s", #call, kvg_last_error())
#define NC(call) REQUIRE((call) == ncclSuccess, "%s", #call)

static const char model[] =
    "{\"model_type\":\"llama\",\"hidden_size\":512,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"head_dim\":128,\"num_hidden_layers\":4,"
    "\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":8192}";

/* ---- the work of a stage */

__global__ void compute_kernel(long long cycles)
{
    const long long from = clock64();

    while (clock64() - from < cycles) {}
}

__global__ void empty_kernel() {}

typedef struct Stage {
    KvgGrid        *grid;
    KvgPlacement   *placement;
    KvgBatch       *batch[2];
    KvDev           dev;
    KvNcclVote     *vote;
    ncclComm_t      comm;
    cudaStream_t    stream, branch;
    cudaEvent_t     event;
    void           *activation, *token;
    long long       cycles_per_us;
    uint32_t        layers;
    KvgGraph       *votes[FORMS][2]; /* NULL: no votes */
    cudaGraphExec_t own[FORMS][2];   /* NULL: the votes' own graph is launched */
} Stage;

static void compute(const Stage *s, uint32_t us)
{
    compute_kernel<<<132, 256, 0, s->stream>>>(us * s->cycles_per_us);
    CU(cudaGetLastError());
}

static void receive(const Stage *s)
{
    if (world_rank == 0) NC(ncclRecv(s->token, TOKEN_BYTES, ncclChar, 1, s->comm, s->stream));
    else NC(ncclRecv(s->activation, ACTIVATION_BYTES, ncclChar, 0, s->comm, s->stream));
}

static void send(const Stage *s)
{
    if (world_rank == 0) NC(ncclSend(s->activation, ACTIVATION_BYTES, ncclChar, 1, s->comm, s->stream));
    else NC(ncclSend(s->token, TOKEN_BYTES, ncclChar, 0, s->comm, s->stream));
}

/* ---- its graphs */

static void follow(const Stage *s, cudaStream_t later, cudaStream_t earlier)
{
    CU(cudaEventRecord(s->event, earlier));
    CU(cudaStreamWaitEvent(later, s->event, 0));
}

static void begin(Stage *s, Form form, int b, cudaStream_t stream)
{
    uint32_t   rows[PLACES];
    KvgCapture options = KVG_CAPTURE_INIT;

    for (int i = 0; i < PLACES; i++) rows[i] = 1;
    options.rows_per_slot = rows;
    options.accept = world_rank == 1 ? KVG_ACCEPT_ALL : KVG_ACCEPT_OTHERS;
    if (form == EMPTY_BRANCH) empty_kernel<<<1, 32, 0, stream>>>();
    else OK(kvg_batch_capture_begin(s->batch[b], &options, stream));
}

static void end(Stage *s, Form form, int b, cudaStream_t stream)
{
    if (form == EMPTY_BRANCH) empty_kernel<<<1, 32, 0, stream>>>();
    else OK(kvg_batch_capture_end(s->batch[b], &s->votes[form][b]));
}

static void fork_end(Stage *s, Form form, int b)
{
    follow(s, s->branch, s->stream);
    end(s, form, b, s->branch);
}

static void nodes(Stage *s, Form form, int b)
{
    const bool branches = form >= BRANCH, late = form == LATE_BRANCH;

    receive(s);
    if (branches) {
        follow(s, s->branch, s->stream);
        begin(s, form, b, s->branch);
    }
    for (uint32_t il = 0; il < s->layers; il++) {
        compute(s, PROJECT_US);
        if (branches && il == 0) follow(s, s->stream, s->branch); /* from here on the lengths are this replay's */
        if (branches && !late && il + 1 == s->layers) fork_end(s, form, b); /* the last rows are written */
        compute(s, LAYER_US - PROJECT_US);
    }
    if (late) fork_end(s, form, b);
    else if (branches) follow(s, s->stream, s->branch);
    send(s);
    if (late) follow(s, s->stream, s->branch);
}

static void capture(Stage *s)
{
    for (int b = 0; b < 2; b++) {
        begin(s, ONE_STREAM, b, s->stream);
        nodes(s, ONE_STREAM, b);
        end(s, ONE_STREAM, b, s->stream);
        for (int form = 0; form < FORMS; form++) {
            cudaGraph_t graph;

            if (form == ONE_STREAM) continue;
            CU(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeRelaxed));
            nodes(s, (Form)form, b);
            CU(cudaStreamEndCapture(s->stream, &graph));
            CU(cudaGraphInstantiate(&s->own[form][b], graph, 0));
            CU(cudaGraphDestroy(graph));
        }
    }
}

static void forget(Stage *s)
{
    for (int form = 0; form < FORMS; form++) {
        for (int b = 0; b < 2; b++) {
            kvg_graph_free(s->votes[form][b]);
            if (s->own[form][b] != NULL) CU(cudaGraphExecDestroy(s->own[form][b]));
            s->votes[form][b] = NULL;
            s->own[form][b] = NULL;
        }
    }
}

/* ---- turns */

/* The first two tokens are there before the first turn; the last two are fetched after the last. */
static void prime(const Stage *s)
{
    /* not waited for: whether a send ends before its receive has begun is NCCL's matter */
    for (int b = 0; b < 2 && world_rank == 1; b++) NC(ncclSend(s->token, TOKEN_BYTES, ncclChar, 0, s->comm, s->stream));
}

static void drain(const Stage *s)
{
    for (int b = 0; b < 2 && world_rank == 0; b++) NC(ncclRecv(s->token, TOKEN_BYTES, ncclChar, 1, s->comm, s->stream));
}

static void launch(const Stage *s, Form form, int b)
{
    if (s->own[form][b] != NULL) CU(cudaGraphLaunch(s->own[form][b], s->stream));
    else OK(kvg_graph_launch(s->votes[form][b], s->stream));
}

static double turns(Stage *s, Form form)
{
    const bool   votes = s->votes[form][0] != NULL;
    KvgRunResult result;
    cudaEvent_t  from, to;
    float        ms = 0;

    CU(cudaEventCreate(&from));
    CU(cudaEventCreate(&to));
    if (votes) OK(kvg_run_begin_joint(s->votes[form], NULL, 2, TURNS, s->stream));
    CU(cudaStreamSynchronize(s->stream));
    MPI_Barrier(MPI_COMM_WORLD);
    prime(s);
    CU(cudaEventRecord(from, s->stream));
    for (int n = 0; n < 2 * TURNS; n++) launch(s, form, n % 2);
    CU(cudaEventRecord(to, s->stream));
    drain(s);
    if (votes) {
        memset(&result, 0, sizeof result);
        result.size = sizeof result;
        OK(kvg_run_end(s->votes[form][0], s->stream, &result));
        REQUIRE(result.published == TURNS, "%llu of %d steps are published", (unsigned long long)result.published, TURNS);
    }
    CU(cudaStreamSynchronize(s->stream));
    CU(cudaEventElapsedTime(&ms, from, to));
    CU(cudaEventDestroy(from));
    CU(cudaEventDestroy(to));
    return ms;
}

/* ---- set up */

static KvgStatus agree(void *user, KvgStatus mine)
{
    int worst = mine;

    (void)user;
    MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return (KvgStatus)worst;
}

static void open_comm(Stage *s)
{
    ncclUniqueId id;
    int          khz = 0;

    if (world_rank == 0) NC(ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    CU(cudaSetDevice(world_rank));
    NC(ncclCommInitRank(&s->comm, 2, id, world_rank));
    CU(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    CU(cudaStreamCreateWithFlags(&s->branch, cudaStreamNonBlocking));
    CU(cudaEventCreateWithFlags(&s->event, cudaEventDisableTiming));
    CU(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, world_rank));
    s->cycles_per_us = khz / 1000;
    CU(cudaMalloc(&s->activation, ACTIVATION_BYTES));
    CU(cudaMalloc(&s->token, TOKEN_BYTES));
    NC(ncclGroupStart()); /* NCCL connects two ranks when they first speak: both directions at once, or each would wait for the other */
    NC(ncclSend(s->activation, ACTIVATION_BYTES, ncclChar, 1 - world_rank, s->comm, s->stream));
    NC(ncclRecv(s->activation, ACTIVATION_BYTES, ncclChar, 1 - world_rank, s->comm, s->stream));
    NC(ncclGroupEnd());
    CU(cudaStreamSynchronize(s->stream));
}

static void open_grid(Stage *s)
{
    KvgBootstrap      bootstrap = KVG_BOOTSTRAP_INIT;
    KvgGridOptions    options = KVG_GRID_OPTIONS_INIT;
    KvgCudaOptions    cuda = KVG_CUDA_OPTIONS_INIT;
    KvNcclVoteOptions vote = KVG_NCCL_VOTE_OPTIONS_INIT;
    KvgPlaceOptions   place = KVG_PLACE_OPTIONS_INIT;
    ModelConfig       config;
    KvComm            mpi;

    options.pp = 2;
    options.comm = &mpi;
    OK(kvg_mpi_bootstrap(MPI_COMM_WORLD, &bootstrap));
    OK(kvg_mpi_comm_create(MPI_COMM_WORLD, &mpi));
    OK(kvg_grid_create(&bootstrap, &options, &s->grid));
    kvg_mpi_bootstrap_free(&bootstrap);
    cuda.device = world_rank;
    OK(kvg_dev_cuda(&cuda, &s->dev));
    OK(kvg_model_config_parse_json(model, sizeof model - 1, "small", &config));
    place.format_k = place.format_v = KVG_BF16;
    place.max_sequences = 2 * PLACES;
    place.memory_bytes = (uint64_t)4 << 30;
    place.device = &s->dev;
    OK(kvg_place(s->grid, &config, &place, &s->placement));
    kvg_model_config_free(&config);
    vote.tp = 1;
    vote.window_steps = 4;
    vote.sequences_max = kvg_grid_record_sequences(s->grid);
    vote.agree = agree;
    OK(kvg_nccl_vote_create(s->comm, &vote, &s->vote));
    OK(kvg_grid_vote_on_device(s->grid, kvg_nccl_vote_board(s->vote), kvg_nccl_vote_control(s->vote)));
    for (int b = 0; b < 2; b++) {
        OK(kvg_batch_create(s->placement, PLACES, &s->batch[b]));
        for (uint32_t i = 0; i < PLACES; i++) {
            KvgSequence *sequence = NULL;
            OK(kvg_sequence_open(s->placement, (uint64_t)b * PLACES + i + 1, 0, &sequence));
            OK(kvg_batch_set(s->batch[b], i, sequence));
        }
    }
}

static void report(double time[FORMS][ROUNDS], Form form, uint32_t us)
{
    static const char *const name[FORMS] = {"without", "votes on one stream", "votes on a branch", "votes on a branch, posted late", "an empty branch"};
    double                   ratio[ROUNDS], with[ROUNDS], without[ROUNDS];

    for (int r = 0; r < ROUNDS; r++) {
        with[r] = time[form][r];
        without[r] = time[WITHOUT][r];
        ratio[r] = without[r] / with[r];
    }
    double middle = bench_median(ratio, ROUNDS);
    printf("%.4f of a pipeline without votes | %s | stages of %u us | %.2f us a turn, without %.2f | ", middle, name[form], us,
           bench_median(with, ROUNDS) * 1000 / (2 * TURNS), bench_median(without, ROUNDS) * 1000 / (2 * TURNS));
    if (form == EMPTY_BRANCH) printf("-\n");
    else printf("%s %.2f\n", middle >= BAR ? "meets" : "misses", BAR);
}

static void measure(Stage *s, uint32_t us)
{
    double time[FORMS][ROUNDS];

    s->layers = us / LAYER_US;
    capture(s);
    for (int form = 0; form < FORMS; form++) turns(s, (Form)form);
    for (int r = 0; r < ROUNDS; r++) {
        for (int form = 0; form < FORMS; form++) time[form][r] = turns(s, (Form)form);
    }
    for (int form = 1; form < FORMS && world_rank == 0; form++) report(time, (Form)form, us);
    forget(s);
}

int main(int argc, char **argv)
{
    Stage s;
    char  why[512];
    int   ranks = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || kvg_cuda_probe(why, sizeof why) < 2) {
        if (world_rank == 0) printf("skipped: two ranks and two GPUs are needed\n");
        MPI_Finalize();
        return SKIP;
    }
    memset(&s, 0, sizeof s);
    open_comm(&s);
    open_grid(&s);
    const uint32_t times[] = {100, 250, 500};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) measure(&s, times[i]);
    for (int b = 0; b < 2; b++) kvg_batch_destroy(s.batch[b]);
    kvg_placement_destroy(s.placement);
    kvg_grid_destroy(s.grid);
    kvg_nccl_vote_destroy(s.vote);
    OK(kvg_cuda_forget_stream(&s.dev, s.stream));
    CU(cudaStreamDestroy(s.stream));
    CU(cudaStreamDestroy(s.branch));
    CU(cudaEventDestroy(s.event));
    kvg_dev_close(&s.dev);
    ncclCommDestroy(s.comm);
    MPI_Finalize();
    return 0;
}

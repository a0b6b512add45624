/* What does a vote on the device cost, beside a kernel that only stores and awaits the same records, in the same run? mpirun -n 2, two GPUs.
 *
 *   empty      a kernel that does nothing
 *   bare       stores its record into every peer's memory and awaits theirs, without bound: no digest, no decision, nothing published
 *   weak       the same with plain vector stores and volatile loads: what the strong 128-bit ones cost beside them
 *   vote       post and decide in one kernel: digests, deadline and stop word, decision, lengths, outcome word. All that is staged is accepted
 *   unready    the same with nothing formed ahead, as where the engine accepts a part
 *   two        the same as two kernels
 *   allreduce  ncclAllReduce of 64 bytes (u64, min)
 * graph: microseconds a node of a graph of 200, replayed; host: from the launch until the host has the result (vote: its outcome word; the others:
 * the stream's end). The kinds take turns round by round, and a round's ratio is of neighbours in time; reported are medians over rounds. Every
 * published length and record is checked. Times are rank 0's. Where the time goes is told by clocks: cycles from the start of the block's first warp until
 * the last one has passed each point of the kernel (vote_quick.h). */
#define OMPI_SKIP_MPICXX 1
#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>

#include <kvgrid/kvgrid_cuda.h>
#include <kvgrid/kvgrid_vote_nccl.h>

#include "bench/bench.h"
#include "kernels/vote_quick.h"

enum { NODES = 200, ROUNDS_DEFAULT = 41, ROUNDS_MAX = 401, WARMUP = 3, TRIPS = 50, SKIP = 77, CLASSES = 1 };

typedef enum Kind { EMPTY = 0, BARE, WEAK, VOTE, UNREADY, TWO, ALLREDUCE, KINDS } Kind;
static const char *const kind_names[KINDS] = {"empty", "bare", "weak", "vote", "unready", "two", "allreduce"};

/* Points of quick_kernel. */
enum { MARKS = 6 };
enum { WARPS_TOLD = 2 };
static const char *const warp_names[WARPS_TOLD] = {"vote", "bare"};
static const char *const mark_names[MARKS] = {"start", "loaded", "sent", "heard", "agreed", "stored"};

#define BAR_BARE_US 1.8
#define BAR_VOTE 1.3       /* over bare, in a graph */
#define BAR_ALLREDUCE 0.35 /* vote over allreduce, in a graph */

static int world_rank;

#define REQUIRE(condition, ...)                          \
    do {                                                 \
        if (!(condition)) {                              \
            fprintf(stderr, "bench_vote_cuda, rank %d: ", world_rank); \
            fprintf(stderr, __VA_ARGS__);                \
            fprintf(stderr, "\n");                       \
            MPI_Abort(MPI_COMM_WORLD, 1);                \
        }                                                \
    } while (0)
#define CU(call) REQUIRE((call) == cudaSuccess, "%s: %s", #call, cudaGetErrorString(cudaGetLastError()))
#define OK(call) REQUIRE((call) == KVG_OK, "%s: %s", #call, kvg_last_error())
#define NC(call) REQUIRE((call) == ncclSuccess, "%s", #call)

/* ---- the limits */

__global__ void empty_kernel() {}

/* Cycles of the first lanes of the first block's warps: [warps][MARKS]. */
struct ClockMarks {
    long long *to;
    __device__ __forceinline__ void at(int mark) const
    {
        if (threadIdx.x % 32 == 0 && blockIdx.x == 0) to[threadIdx.x / 32 * MARKS + mark] = clock64();
    }
};

/* The record as 12 bytes and a tag a unit, like the vote's, a thread a unit (x) and peer (y); the step comes from memory, so that it can stand in a
 * graph, and the record's words are on their way together with it. */
template <bool STRONG, class Marks>
__global__ void bare_kernel(const __grid_constant__ KvVoteBoard board, uint32_t units, const uint32_t *record, uint64_t *step, const Marks marks)
{
    marks.at(0);
    const uint32_t u = threadIdx.x, peer = (board.rank + 1 + threadIdx.y) % board.ranks;
    const uint64_t word0 = u < units ? record[3 * u] : 0, word1 = u < units ? record[3 * u + 1] : 0, word2 = u < units ? record[3 * u + 2] : 0;
    const uint64_t s = *step, offset = (s & (board.slots - 1)) * board.ranks * units * 16u;
    const uint32_t tag = 0x80000000u | (uint32_t)(s & 0xffffffu);
    uint64_t       low = word1 << 32 | word0, high = (uint64_t)tag << 32 | word2;

    marks.at(1);
    if (u < units) {
        uint8_t       *to = board.base + peer * board.stride + offset + (board.rank * units + u) * 16u;
        const uint8_t *at = board.base + board.rank * board.stride + offset + (peer * units + u) * 16u;
        if (STRONG) {
            asm volatile("{ .reg .b128 t; mov.b128 t, {%1, %2}; st.relaxed.sys.global.b128 [%0], t; }" ::"l"(to), "l"(low), "l"(high) : "memory");
        } else {
            asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(low), "l"(high) : "memory");
        }
        marks.at(2);
        do {
            if (STRONG) {
                asm volatile("{ .reg .b128 t; ld.relaxed.sys.global.b128 t, [%2]; mov.b128 {%0, %1}, t; }" : "=l"(low), "=l"(high) : "l"(at) : "memory");
            } else {
                asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(at) : "memory");
            }
        } while ((uint32_t)(high >> 32) != tag);
    }
    marks.at(3);
    __syncthreads();
    if (u == 0 && threadIdx.y == 0) *step = s + 1;
    marks.at(5);
}

/* ---- a batch of sequences */

typedef struct Batch {
    uint32_t           sequences, units;
    KvNcclVote        *vote, *bare; /* boards of their own: one kind's steps are not the other's */
    KvVoteArrays       arrays;
    uint32_t          *len, *len_staged, *next_rows, *taken, *base_row;
    volatile uint64_t *outcome;
    KvVoteArrays       unready; /* the same, with nothing formed ahead */
    uint64_t          *bare_step;
    uint32_t          *bare_record;
    uint64_t          *reduced;
    ncclComm_t         comm;
    cudaStream_t       stream;
    cudaGraphExec_t    exec[KINDS];
    uint64_t           votes; /* launched so far */
} Batch;

template <class T> T *upload(const T *data, size_t count)
{
    T *memory = nullptr;
    CU(cudaMalloc((void **)&memory, count * sizeof(T)));
    CU(cudaMemcpy(memory, data, count * sizeof(T), cudaMemcpyHostToDevice));
    return memory;
}

template <class T> T *upload_made(size_t count, T (*make)(size_t))
{
    T *data = (T *)calloc(count, sizeof(T));
    for (size_t i = 0; i < count; i++) data[i] = make(i);
    T *memory = upload(data, count);
    free(data);
    return memory;
}

/* Every sequence stages 3 rows and takes them; the slots are shuffled. */
enum { ROWS = 3 };
static uint32_t three(size_t) { return ROWS; }
static uint32_t zero(size_t) { return 0; }
static uint64_t id_of(size_t e) { return e * 0x9e3779b97f4a7c15ull; }
static uint64_t generation_of(size_t e) { return e % 5; }

static void make_arrays(Batch *batch)
{
    const uint32_t n = batch->sequences;
    int32_t       *slots = (int32_t *)calloc(n, sizeof *slots);
    KvVoteWords    words = {};
    uint64_t       one = 1, *outcome = nullptr;
    uint32_t       record[(64 + 2 * 256) / 4 + 8] = {7};

    words.step = words.advance = 1, words.accepts = KVG_VOTE_ACCEPTS_ALL;
    words.running = 77, words.layout = 5, words.user = 9, words.epoch = 3, words.count = n;
    for (uint32_t e = 0; e < n; e++) slots[e] = (int32_t)((e * 37u + 5u) % n); /* n is a power of two */
    KvVoteArrays *a = &batch->arrays;
    a->words = upload(&words, 1);
    a->entries = n;
    a->classes = CLASSES;
    a->slots = upload(slots, n);
    a->ids = upload_made<uint64_t>(n, id_of);
    a->generations = upload_made<uint64_t>(n, generation_of);
    CU(cudaMalloc(&a->ahead, kvg_vote_ahead_bytes(n)));
    CU(cudaMemset(a->ahead, 0, kvg_vote_ahead_bytes(n)));
    a->next_rows = upload_made<uint32_t>(n, three);
    a->taken = batch->taken = upload_made<uint32_t>(n, zero);
    a->len = batch->len = upload_made<uint32_t>(n, zero);
    a->len_staged = upload_made<uint32_t>(n, three);
    batch->outcome = kvg_nccl_vote_outcome(batch->vote, 0, &outcome);
    a->outcome = outcome;
    batch->unready = *a;
    batch->unready.ahead = nullptr;
    batch->bare_step = upload(&one, 1);
    batch->bare_record = upload(record, sizeof record / sizeof *record);
    CU(cudaMalloc((void **)&batch->reduced, 64));
    CU(cudaMemset(batch->reduced, 0, 64));
    CU(cudaDeviceSynchronize());
    free(slots);
}

static KvNcclVote *open_vote(ncclComm_t comm, uint32_t sequences)
{
    KvNcclVoteOptions options = KVG_NCCL_VOTE_OPTIONS_INIT;
    KvNcclVote       *vote = nullptr;

    options.sequences_max = sequences;
    OK(kvg_nccl_vote_create(comm, &options, &vote));
    return vote;
}

static void enqueue(Batch *batch, Kind kind)
{
    const KvVoteBoard *board = kvg_nccl_vote_board(batch->vote);

    switch (kind) {
    case BARE:
    case WEAK: {
        const dim3 threads((batch->units + 31) / 32 * 32, board->ranks - 1);
        auto       kernel = kind == BARE ? bare_kernel<true, NoMarks> : bare_kernel<false, NoMarks>;
        kernel<<<1, threads, 0, batch->stream>>>(*kvg_nccl_vote_board(batch->bare), batch->units, batch->bare_record, batch->bare_step, NoMarks());
        break;
    }
    case VOTE: OK(kvg_vote_launch(board, &batch->arrays, batch->stream)); break;
    case UNREADY: OK(kvg_vote_launch(board, &batch->unready, batch->stream)); break;
    case TWO:
        OK(kvg_vote_post_launch(board, &batch->arrays, batch->stream));
        OK(kvg_vote_decide_launch(board, &batch->arrays, batch->stream));
        break;
    case ALLREDUCE: NC(ncclAllReduce(batch->reduced, batch->reduced, 8, ncclUint64, ncclMin, batch->comm, batch->stream)); break;
    default: empty_kernel<<<1, 64, 0, batch->stream>>>();
    }
}

static void open_batch(Batch *batch, ncclComm_t comm, uint32_t sequences)
{
    memset(batch, 0, sizeof *batch);
    batch->sequences = sequences;
    batch->units = (uint32_t)(kvg_vote_record_bytes(sequences) + 11) / 12;
    batch->comm = comm;
    batch->vote = open_vote(comm, sequences);
    batch->bare = open_vote(comm, sequences);
    make_arrays(batch);
    CU(cudaStreamCreateWithFlags(&batch->stream, cudaStreamNonBlocking));
    for (int warm = 0; warm < 3; warm++) enqueue(batch, ALLREDUCE); /* connections are made at the first call */
    CU(cudaStreamSynchronize(batch->stream));
    for (int kind = 0; kind < KINDS; kind++) {
        cudaGraph_t graph;
        CU(cudaStreamBeginCapture(batch->stream, cudaStreamCaptureModeThreadLocal));
        for (int node = 0; node < NODES; node++) enqueue(batch, (Kind)kind);
        CU(cudaStreamEndCapture(batch->stream, &graph));
        CU(cudaGraphInstantiate(&batch->exec[kind], graph, 0));
        CU(cudaGraphDestroy(graph));
    }
}

static void close_batch(Batch *batch)
{
    for (int kind = 0; kind < KINDS; kind++) CU(cudaGraphExecDestroy(batch->exec[kind]));
    CU(cudaStreamDestroy(batch->stream));
    MPI_Barrier(MPI_COMM_WORLD);
    kvg_nccl_vote_destroy(batch->vote);
    kvg_nccl_vote_destroy(batch->bare);
}

/* ---- measuring */

static bool votes(Kind kind)
{
    return kind == VOTE || kind == UNREADY || kind == TWO;
}

static double time_graph(Batch *batch, Kind kind)
{
    CU(cudaStreamSynchronize(batch->stream));
    MPI_Barrier(MPI_COMM_WORLD);
    CU(cudaGraphLaunch(batch->exec[kind], batch->stream)); /* the first one lets the ranks meet */
    cudaEvent_t begin, end;
    float       ms = 0;
    CU(cudaEventCreate(&begin));
    CU(cudaEventCreate(&end));
    CU(cudaEventRecord(begin, batch->stream));
    CU(cudaGraphLaunch(batch->exec[kind], batch->stream));
    CU(cudaEventRecord(end, batch->stream));
    CU(cudaEventSynchronize(end));
    CU(cudaEventElapsedTime(&ms, begin, end));
    CU(cudaEventDestroy(begin));
    CU(cudaEventDestroy(end));
    if (votes(kind)) batch->votes += 2 * NODES;
    return (double)ms * 1e3 / NODES;
}

static double time_host(Batch *batch, Kind kind)
{
    CU(cudaStreamSynchronize(batch->stream));
    MPI_Barrier(MPI_COMM_WORLD);
    double from = bench_now_us();
    for (int trip = 0; trip < TRIPS; trip++) {
        enqueue(batch, kind);
        if (!votes(kind)) {
            CU(cudaStreamSynchronize(batch->stream));
            continue;
        }
        batch->votes++;
        while (kvg_vote_word(*batch->outcome, batch->votes).step != batch->votes) { }
    }
    return (bench_now_us() - from) / TRIPS;
}

typedef struct Result {
    double us[KINDS], low[KINDS], high[KINDS], ratio[KINDS]; /* medians, tenths; ratio to bare of the same round */
    double vote_over_allreduce;
} Result;

static void measure(Batch *batch, int rounds, double (*time)(Batch *, Kind), Result *result)
{
    static double us[KINDS][ROUNDS_MAX], ratio[KINDS + 1][ROUNDS_MAX];

    for (int round = -WARMUP; round < rounds; round++) {
        double took[KINDS];
        for (int k = 0; k < KINDS; k++) {
            int kind = (k + round + WARMUP) % KINDS;
            took[kind] = time(batch, (Kind)kind);
        }
        for (int kind = 0; kind < KINDS && round >= 0; kind++) {
            us[kind][round] = took[kind];
            ratio[kind][round] = took[kind] / took[BARE];
        }
        if (round >= 0) ratio[KINDS][round] = took[VOTE] / took[ALLREDUCE];
    }
    for (int kind = 0; kind < KINDS; kind++) {
        result->ratio[kind] = bench_median(ratio[kind], (size_t)rounds);
        result->us[kind] = bench_median(us[kind], (size_t)rounds);
        result->low[kind] = bench_percentile(us[kind], (size_t)rounds, 10);
        result->high[kind] = bench_percentile(us[kind], (size_t)rounds, 90);
    }
    result->vote_over_allreduce = bench_median(ratio[KINDS], (size_t)rounds);
}

/* ---- where it goes */

typedef struct Where {
    double cycles[WARPS_TOLD][MARKS]; /* cycles from the start, medians over nodes */
} Where;

/* NODES launches of one kind, each with marks of its own: when the last warp of the block that exchanges has passed. */
static void find_out_kind(Batch *batch, bool bare, uint32_t threads, double *told)
{
    const uint32_t a_node = threads / 32 * MARKS;
    const Quick    quick = quick_of(*kvg_nccl_vote_board(batch->vote), batch->arrays);
    long long     *marks = nullptr, *host = (long long *)calloc((size_t)NODES * a_node, sizeof *host);
    static double  cycles[NODES];

    CU(cudaMalloc((void **)&marks, NODES * a_node * sizeof *marks));
    CU(cudaMemset(marks, 0, NODES * a_node * sizeof *marks));
    CU(cudaDeviceSynchronize());
    MPI_Barrier(MPI_COMM_WORLD);
    for (int node = 0; node < NODES; node++) { /* only the later half counts: ranks meet, and something is formed ahead */
        const ClockMarks to = {marks + node * a_node};
        if (bare) {
            bare_kernel<true><<<1, threads, 0, batch->stream>>>(*kvg_nccl_vote_board(batch->bare), batch->units, batch->bare_record, batch->bare_step, to);
        } else {
            quick_kernel<ClockMarks><<<2, threads, quick_shared_bytes(quick), batch->stream>>>(quick, to);
        }
    }
    CU(cudaStreamSynchronize(batch->stream));
    if (!bare) batch->votes += NODES;
    CU(cudaMemcpy(host, marks, NODES * a_node * sizeof *marks, cudaMemcpyDeviceToHost));
    for (int k = 0; k < MARKS; k++) {
        for (int node = 0; node < NODES; node++) {
            const long long *of = host + node * a_node;
            long long        begin = of[0], end = 0;
            for (uint32_t w = 0; w < threads / 32; w++) {
                begin = of[w * MARKS] < begin ? of[w * MARKS] : begin;
                end = of[w * MARKS + k] > end ? of[w * MARKS + k] : end;
            }
            cycles[node] = end != 0 ? (double)(end - begin) : 0;
        }
        told[k] = bench_median(cycles + NODES / 2, NODES / 2);
    }
    CU(cudaFree(marks));
    free(host);
}

static void find_out(Batch *batch, Where *where)
{
    const Quick    quick = quick_of(*kvg_nccl_vote_board(batch->vote), batch->arrays);

    find_out_kind(batch, false, quick.threads, where->cycles[0]);
    find_out_kind(batch, true, (batch->units + 31) / 32 * 32, where->cycles[1]);
}

/* ---- is it right? */

static uint64_t count_wrong(Batch *batch)
{
    const uint32_t n = batch->sequences;
    uint32_t      *len = (uint32_t *)calloc(n, sizeof *len), *taken = (uint32_t *)calloc(n, sizeof *taken);
    KvVoteWords    words;
    uint64_t       wrong = 0;

    CU(cudaStreamSynchronize(batch->stream));
    CU(cudaMemcpy(len, batch->len, n * sizeof *len, cudaMemcpyDeviceToHost));
    CU(cudaMemcpy(taken, batch->taken, n * sizeof *taken, cudaMemcpyDeviceToHost));
    CU(cudaMemcpy(&words, batch->arrays.words, sizeof words, cudaMemcpyDeviceToHost));
    for (uint32_t e = 0; e < n; e++) {
        wrong += len[(e * 37u + 5u) % n] != batch->votes * ROWS;
        wrong += taken[e] != ROWS;
    }
    KvVoteWord word = kvg_vote_word(*batch->outcome, batch->votes);
    wrong += words.step != batch->votes + 1 || words.stop != 0 || word.kind != KVG_VOTE_WORD_DECIDED || word.step != batch->votes ||
             word.outcome.kind != KVG_VOTE_PUBLISH;
    free(len);
    free(taken);
    return wrong;
}

/* ---- telling */

static int misses(const Result *graph)
{
    return (graph->us[BARE] > BAR_BARE_US) + (graph->ratio[VOTE] > BAR_VOTE) + (graph->vote_over_allreduce > BAR_ALLREDUCE);
}

static void print_table(const Batch *batch, const char *how, const Result *result)
{
    for (int kind = 0; kind < KINDS; kind++) {
        printf("  %9u %9zu  %6s %10s  %6.2f  %7.2f %7.2f %7.2f\n", batch->sequences, kvg_vote_record_bytes(batch->sequences), how, kind_names[kind],
               result->ratio[kind], result->us[kind], result->low[kind], result->high[kind]);
    }
}

static void print_json(const Batch *batch, const char *how, const Result *result, uint64_t wrong)
{
    printf("{\"bench\": \"vote_cuda\", \"version\": \"%s\", \"sequences\": %u, \"record_bytes\": %zu, \"how\": \"%s\", \"vote_over_bare\": %.4f, "
           "\"vote_over_allreduce\": %.4f, \"wrong\": %llu", KVG_VERSION, batch->sequences, kvg_vote_record_bytes(batch->sequences), how,
           result->ratio[VOTE], result->vote_over_allreduce, (unsigned long long)wrong);
    for (int kind = 0; kind < KINDS; kind++) {
        printf(", \"%s_us\": %.3f, \"%s_us_p10\": %.3f, \"%s_us_p90\": %.3f", kind_names[kind], result->us[kind], kind_names[kind], result->low[kind],
               kind_names[kind], result->high[kind]);
    }
    printf("}\n");
}

static void print_where(const Batch *batch, const Where *where)
{
    printf("# %u sequences, cycles until: ", batch->sequences);
    for (int k = 0; k < MARKS; k++) printf(" %8s", mark_names[k]);
    for (int w = 0; w < WARPS_TOLD; w++) {
        printf("\n# %28s", warp_names[w]);
        for (int k = 0; k < MARKS; k++) printf(" %8.0f", where->cycles[w][k]);
    }
    printf("\n");
}

static void print_where_json(const Batch *batch, const Where *where)
{
    printf("{\"bench\": \"vote_cuda\", \"sequences\": %u, \"how\": \"cycles\"", batch->sequences);
    for (int k = 0; k < WARPS_TOLD * MARKS; k++) printf(", \"%s %s\": %.0f", warp_names[k / MARKS], mark_names[k % MARKS], where->cycles[k / MARKS][k % MARKS]);
    printf("}\n");
}

typedef struct Options {
    int rounds, json, sequences; /* sequences: 0: 64 and 256 */
} Options;

/* One batch size, in graphs and from the host. Returns how many bars it misses; wrong values are added up. */
static int bench_batch(ncclComm_t comm, uint32_t sequences, const Options *options, uint64_t *wrong_total)
{
    Batch    batch;
    Result   graph, host;
    Where    where;
    uint64_t wrong;

    open_batch(&batch, comm, sequences);
    measure(&batch, options->rounds, time_graph, &graph);
    measure(&batch, options->rounds, time_host, &host);
    find_out(&batch, &where);
    wrong = count_wrong(&batch);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (world_rank == 0 && options->json) {
        print_json(&batch, "graph", &graph, wrong);
        print_json(&batch, "host", &host, wrong);
        print_where_json(&batch, &where);
    } else if (world_rank == 0) {
        print_table(&batch, "graph", &graph);
        print_table(&batch, "host", &host);
        print_where(&batch, &where);
        printf("# %u sequences in a graph: vote %.2fx bare (bar %.2f), %.2fx allreduce of 64 bytes (bar %.2f), bare %.2f us (bar %.2f): %s\n", sequences,
               graph.ratio[VOTE], BAR_VOTE, graph.vote_over_allreduce, BAR_ALLREDUCE, graph.us[BARE], BAR_BARE_US, misses(&graph) == 0 ? "OK" : "MISSED");
    }
    close_batch(&batch);
    *wrong_total += wrong;
    return misses(&graph);
}

static int why_not(int ranks)
{
    char why[512] = "";
    int  devices = kvg_cuda_probe(why, sizeof why), reason = 0;

    if (ranks != 2) reason = snprintf(why, sizeof why, "it takes 2 ranks, and there are %d", ranks);
    else if (devices == 0) reason = 1;
    else if (devices < 2) reason = snprintf(why, sizeof why, "it takes 2 GPUs, and there is %d", devices);
    else if (kvg_nccl_vote_probe(why, sizeof why) != KVG_OK) reason = 1;
    MPI_Allreduce(MPI_IN_PLACE, &reason, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (reason != 0 && world_rank == 0) printf("skipped: %s\n", why);
    return reason != 0;
}

static ncclComm_t open_comm(void)
{
    ncclUniqueId id;
    ncclComm_t   comm = nullptr;

    if (world_rank == 0) NC(ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    CU(cudaSetDevice(world_rank));
    NC(ncclCommInitRank(&comm, 2, id, world_rank));
    return comm;
}

int main(int argc, char **argv)
{
    Options  options = {(int)bench_number(argc, argv, "--rounds", ROUNDS_DEFAULT), bench_has(argc, argv, "--json"), (int)bench_number(argc, argv, "--sequences", 0)};
    int      ranks = 0, missed = 0, version = 0;
    uint64_t wrong = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    REQUIRE(options.rounds >= 1 && options.rounds <= ROUNDS_MAX && options.sequences >= 0 && options.sequences <= 256 && (options.sequences & (options.sequences - 1)) == 0, "usage: mpirun -n 2 bench_vote_cuda [--json] [--rounds 1..%d] [--sequences 1, 2, 4 .. 256]", ROUNDS_MAX);
    if (why_not(ranks)) {
        MPI_Finalize();
        return SKIP;
    }
    ncclComm_t comm = open_comm();
    NC(ncclGetVersion(&version));
    if (world_rank == 0 && !options.json) {
        cudaDeviceProp prop;
        CU(cudaGetDeviceProperties(&prop, 0));
        bench_header("bench_vote_cuda", "ranks 2 (tp 2)");
        printf("# device %s  nccl %d  nodes %d  warmup %d  rounds %d  trips %d  check 1\n", prop.name, version, NODES, WARMUP, options.rounds, TRIPS);
        printf("# ratio: time over bare's of the same round, median over rounds\n");
        printf("# %9s %9s  %6s %10s  %6s  %7s %7s %7s\n", "sequences", "record", "how", "kind", "ratio", "t_med", "t_p10", "t_p90");
        printf("# %9s %9s  %6s %10s  %6s  %7s %7s %7s\n", "", "(B)", "", "", "(x)", "(us)", "(us)", "(us)");
    }
    if (options.sequences != 0) missed += bench_batch(comm, options.sequences, &options, &wrong);
    else missed += bench_batch(comm, 64, &options, &wrong) + bench_batch(comm, 256, &options, &wrong);
    if (world_rank == 0 && !options.json) printf("# wrong values %llu %s; bars missed %d\n", (unsigned long long)wrong, wrong == 0 ? "OK" : "FAILED", missed);
    NC(ncclCommDestroy(comm));
    MPI_Bcast(&missed, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return wrong != 0 || missed != 0;
}

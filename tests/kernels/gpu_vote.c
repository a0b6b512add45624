/* The device vote between two ranks on two GPUs, over NCCL's windows: mpirun -n 2 gpu_vote [--steps N] (default 10000). 77 and a reason where that
 * cannot be. Every step is compared with the host twins'; then a peer is absent, stopped by a signal, or dead to us in other ways: whatever
 * happens, kernels end by themselves and the processes exit. */
#include <mpi.h>
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvgrid/kvgrid_cuda.h>
#include <kvgrid/kvgrid_vote_nccl.h>

static int world_rank;

#define REQUIRE(condition, ...)                                                \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "rank %d, %s:%d: ", world_rank, __FILE__, __LINE__); \
            fprintf(stderr, __VA_ARGS__);                                      \
            fprintf(stderr, "\n");                                             \
            MPI_Abort(MPI_COMM_WORLD, 1);                                      \
        }                                                                      \
    } while (0)

#include "tests/kernels/vote_gpu.h"

enum { SKIP = 77, DEADLINE_MS = 200 };

static void meet(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

/* All have OK, or none has. */
static KvgStatus agree(void *user, KvgStatus mine)
{
    int worst = mine;

    (void)user;
    MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return (KvgStatus)worst;
}

static void require_nccl(ncclResult_t result, const char *act)
{
    REQUIRE(result == ncclSuccess, "%s: %s", act, ncclGetErrorString(result));
}

/* ---- set up */

static ncclComm_t open_comm(void)
{
    ncclUniqueId id;
    ncclComm_t   comm = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    if (world_rank == 0) require_nccl(ncclGetUniqueId(&id), "making an id");
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    GPU_CUDA(cudaSetDevice(world_rank));
    require_nccl(ncclCommInitRankConfig(&comm, 2, id, world_rank, &config), "making a communicator");
    return comm;
}

/* The vote, and one rank's batches over it. */
typedef struct Pair {
    KvNcclVote *vote;
    Fleet       fleet[GPU_LANES_MAX];
    GpuRank     rank;
} Pair;

static KvgStatus pair_open(Pair *pair, ncclComm_t comm, const Scene *scene, uint32_t lanes, int split)
{
    KvNcclVoteOptions options = KVG_NCCL_VOTE_OPTIONS_INIT;
    GpuRank          *rank = &pair->rank;

    memset(pair, 0, sizeof *pair);
    options.tp = scene->tp;
    options.window_steps = scene->slots / 2;
    options.sequences_max = scene->entries;
    options.outcomes = lanes;
    options.timeout_ms = DEADLINE_MS;
    options.agree = agree;
    KvgStatus status = kvg_nccl_vote_create(comm, &options, &pair->vote);
    if (status != KVG_OK) return status;
    rank->board = *kvg_nccl_vote_board(pair->vote);
    REQUIRE(rank->board.slots == scene->slots, "slots");
    rank->lanes = lanes;
    rank->split = split;
    GPU_CUDA(cudaStreamCreateWithFlags(&rank->stream, cudaStreamNonBlocking));
    for (uint32_t l = 0; l < lanes; l++) fleet_open(&pair->fleet[l], scene);
    if (lanes == 2) gpu_two_lanes(pair->fleet);
    for (uint32_t l = 0; l < lanes; l++) {
        uint64_t          *device = NULL;
        volatile uint64_t *outcome = kvg_nccl_vote_outcome(pair->vote, l, &device);
        gpu_lane_open(&rank->lane[l], scene, outcome, device);
        gpu_lane_upload(&rank->lane[l], pair->fleet[l].arena[world_rank]);
    }
    return KVG_OK;
}

static void pair_close(Pair *pair)
{
    GPU_CUDA(cudaStreamSynchronize(pair->rank.stream));
    meet();
    for (uint32_t l = 0; l < pair->rank.lanes; l++) gpu_lane_close(&pair->rank.lane[l]);
    GPU_CUDA(cudaStreamDestroy(pair->rank.stream));
    if (pair->rank.lanes == 2) pair->fleet[1].blocks = NULL; /* the first one's */
    for (uint32_t l = 0; l < pair->rank.lanes; l++) fleet_close(&pair->fleet[l]);
    kvg_nccl_vote_destroy(pair->vote);
}

/* ---- every step as on the host */

static void soak(ncclComm_t comm, const Scene *scene, uint32_t lanes, int split, uint64_t steps)
{
    uint64_t kinds[7] = { 0 };
    Pair     pair;
    double   from = gpu_now_ms();

    GPU_KVG(pair_open(&pair, comm, scene, lanes, split));
    uint64_t decided = gpu_soak(&pair.rank, 1, pair.fleet, steps, meet, kinds);
    pair_close(&pair);
    if (world_rank != 0) return;
    printf("ok    %llu steps of %u sequences, tp %u, %u batches, %s: as on the host; replays ended in %llu publish, %llu refused, %llu disagree, "
           "%llu unaccepted, %llu in doubt (%.1f s)\n", (unsigned long long)decided, scene->entries, scene->tp, lanes,
           split ? "post and decide" : "one kernel", (unsigned long long)kinds[1], (unsigned long long)kinds[2], (unsigned long long)kinds[3],
           (unsigned long long)kinds[4], (unsigned long long)kinds[5], (gpu_now_ms() - from) * 1e-3);
}

/* ---- when a peer is not there */

/* Both ranks begin a case with `step` next, the same on both, and nothing of it in any slot. */
static void begin_case(Pair *pair, uint64_t step)
{
    uint8_t *arena = pair->fleet[0].arena[world_rank];

    scene_fill(&pair->fleet[0].scene, (uint32_t)world_rank, arena);
    ((KvVoteWords *)arena)->step = step;
    gpu_lane_upload(&pair->rank.lane[0], arena);
    kvg_vote_allow(kvg_nccl_vote_control(pair->vote), DEADLINE_MS * 1000u);
    meet();
}

static void launch(Pair *pair)
{
    GPU_KVG(kvg_vote_launch(&pair->rank.board, &pair->rank.lane[0].arrays, pair->rank.stream));
}

static double finish(Pair *pair, double from)
{
    GPU_CUDA(cudaStreamSynchronize(pair->rank.stream));
    return gpu_now_ms() - from;
}

static KvVoteWord outcome(Pair *pair, uint64_t since)
{
    return kvg_vote_word(*pair->rank.lane[0].outcome, since);
}

static void require_in_doubt(Pair *pair, uint64_t step, double took, const char *name)
{
    KvVoteWord word = outcome(pair, step);

    REQUIRE(took > DEADLINE_MS - 2 && took < DEADLINE_MS + 150, "%s: ended after %.1f ms", name, took);
    REQUIRE(word.kind == KVG_VOTE_WORD_INDOUBT && word.step == step && word.missing == 1, "%s: kind %d, step %llu, missing %u", name, word.kind,
            (unsigned long long)word.step, word.missing);
    printf("ok    %s: in doubt after %.1f ms\n", name, took);
}

static void case_absent(Pair *pair)
{
    begin_case(pair, 101);
    if (world_rank == 0) {
        double from = gpu_now_ms();
        for (int i = 0; i < 200; i++) launch(pair);
        require_in_doubt(pair, 101, finish(pair, from), "an absent peer, 200 votes queued");
    }
    meet();
    if (world_rank == 1) { /* a record counts though its sender has given up */
        double from = gpu_now_ms();
        launch(pair);
        double took = finish(pair, from);
        REQUIRE(outcome(pair, 101).kind == KVG_VOTE_WORD_DECIDED && took < 50, "the record that stood was not decided on (%.1f ms)", took);
    }
    meet();
}

static void case_stop(Pair *pair)
{
    begin_case(pair, 201);
    if (world_rank == 0) {
        KvVoteControl *control = kvg_nccl_vote_control(pair->vote);
        kvg_vote_allow(control, 60000000);
        double from = gpu_now_ms();
        launch(pair);
        while (gpu_now_ms() - from < 30) REQUIRE(cudaStreamQuery(pair->rank.stream) == cudaErrorNotReady, "it did not wait");
        kvg_vote_stop(control, 1);
        double took = finish(pair, from);
        kvg_vote_stop(control, 0);
        REQUIRE(outcome(pair, 201).kind == KVG_VOTE_WORD_STOPPED && took < 100, "the stop word: kind %d after %.1f ms", outcome(pair, 201).kind, took);
        printf("ok    the stop word, raised after 30 ms: ended after %.1f ms\n", took);
    }
    meet();
}

static void case_forward(Pair *pair)
{
    begin_case(pair, 301);
    if (world_rank == 0) {
        double from = gpu_now_ms();
        launch(pair);
        for (double next = 50; next <= 500; next += 50) {
            while (gpu_now_ms() - from < next) REQUIRE(cudaStreamQuery(pair->rank.stream) == cudaErrorNotReady, "it did not wait");
            kvg_vote_forward(kvg_nccl_vote_control(pair->vote));
        }
        double took = finish(pair, from);
        REQUIRE(took > 690 && took < 850, "moved forward until 500 ms, it ended after %.1f ms", took);
        printf("ok    a deadline of %d ms, moved forward until 500 ms: ended after %.1f ms\n", DEADLINE_MS, took);
    }
    meet();
}

/* A process that is stopped by SIGSTOP, before it votes or after. */
static void case_stopped_peer(Pair *pair, uint64_t step, int has_voted)
{
    int pid = getpid();

    begin_case(pair, step);
    MPI_Bcast(&pid, 1, MPI_INT, 1, MPI_COMM_WORLD);
    if (world_rank == 1 && has_voted) GPU_KVG(kvg_vote_post_launch(&pair->rank.board, &pair->rank.lane[0].arrays, pair->rank.stream));
    if (world_rank == 1) GPU_CUDA(cudaStreamSynchronize(pair->rank.stream));
    meet();
    if (world_rank == 0) {
        usleep(20000);
        REQUIRE(kill(pid, SIGSTOP) == 0, "no signal to %d", pid);
        usleep(20000);
        double from = gpu_now_ms();
        launch(pair);
        launch(pair);
        double took = finish(pair, from);
        kill(pid, SIGCONT);
        if (has_voted) {
            REQUIRE(took > DEADLINE_MS - 2 && took < DEADLINE_MS + 150, "one step published, the next in doubt: %.1f ms", took);
            REQUIRE(outcome(pair, step).kind == KVG_VOTE_WORD_INDOUBT && outcome(pair, step).step == step + 1, "step %llu",
                    (unsigned long long)outcome(pair, step).step);
            printf("ok    a peer stopped after its record: published; the step after it in doubt after %.1f ms\n", took);
        } else {
            require_in_doubt(pair, step, took, "a peer stopped before its record");
        }
    }
    meet();
}

static void case_peek(Pair *pair)
{
    void *units = kvg_nccl_vote_peek(pair->vote);

    begin_case(pair, 501);
    for (int posted = 0; posted < 2; posted++) {
        if (world_rank == posted) {
            GPU_KVG(kvg_vote_post_launch(&pair->rank.board, &pair->rank.lane[0].arrays, pair->rank.stream));
            GPU_CUDA(cudaStreamSynchronize(pair->rank.stream));
        }
        meet();
        GPU_KVG(kvg_vote_peek_launch(&pair->rank.board, 501, units, pair->rank.stream));
        GPU_CUDA(cudaStreamSynchronize(pair->rank.stream));
        REQUIRE(kvg_vote_present(&pair->rank.board, units, 501, 3) == (posted == 1), "after rank %d's record", posted);
        REQUIRE(kvg_vote_unpack(&pair->rank.board, units, 501, 3, 0, NULL) == 1, "rank 0's record is not there");
        meet();
    }
    if (world_rank == 0) printf("ok    a host test says when all records are here\n");
}

/* The last one: rank 0 goes with waits in its queue, and must get out. */
static void case_leave(Pair *pair)
{
    begin_case(pair, 601);
    if (world_rank == 0) {
        for (int i = 0; i < 50; i++) launch(pair);
    }
}

static void absences(ncclComm_t comm)
{
    const Scene scene = { .ranks = 2, .tp = 2, .entries = 64, .slots = 4, .columns = 2, .rows_most = 1, .seed = 40 };
    Pair        pair;

    GPU_KVG(pair_open(&pair, comm, &scene, 1, 0));
    case_absent(&pair);
    case_stop(&pair);
    case_forward(&pair);
    case_stopped_peer(&pair, 401, 0);
    case_stopped_peer(&pair, 451, 1);
    case_peek(&pair);
    case_leave(&pair);
    double from = gpu_now_ms();
    pair_close(&pair);
    REQUIRE(gpu_now_ms() - from < DEADLINE_MS + 300, "leaving took %.1f ms", gpu_now_ms() - from);
    if (world_rank == 0) printf("ok    leaving with 50 votes queued and no peer: %.1f ms\n", gpu_now_ms() - from);
}

/* What one rank lacks is told to both, and the next attempt is as good as the first. */
static void refused_options(ncclComm_t comm)
{
    KvNcclVoteOptions options = KVG_NCCL_VOTE_OPTIONS_INIT;
    KvNcclVote       *vote = NULL;

    options.agree = agree;
    options.sequences_max = world_rank == 1 ? 1u << 30 : 64;
    KvgStatus status = kvg_nccl_vote_create(comm, &options, &vote);
    REQUIRE(status == KVG_EINVAL && vote == NULL, "status %s", kvg_status_name(status));
    if (world_rank == 0) printf("ok    refused on one rank is refused on both: %s\n", kvg_last_error());
}

/* ---- */

static int skip(int ranks)
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

int main(int argc, char **argv)
{
    static const Scene scenes[] = {
        { .ranks = 2, .tp = 2, .entries = 64, .slots = 4, .columns = 5, .rows_most = 8, .fault_every = 100, .seed = 31 },
        { .ranks = 2, .tp = 2, .entries = 256, .slots = 8, .rows_most = 4, .fault_every = 100, .last_every = 77, .all = 1, .seed = 34 },
        { .ranks = 2, .tp = 2, .entries = 97, .slots = 8, .rows_most = 70000, .fault_every = 100, .one_epoch = 1, .all = 1, .seed = 35 },
        { .ranks = 2, .tp = 2, .entries = 64, .slots = 4, .columns = 5, .rows_most = 8, .fault_every = 100, .unready = 1, .seed = 36 },
        { .ranks = 2, .tp = 1, .entries = 256, .slots = 8, .columns = 0, .rows_most = 4, .fault_every = 100, .one_epoch = 1, .all = 1, .seed = 32 },
        { .ranks = 2, .tp = 2, .entries = 2000, .slots = 4, .columns = 3, .rows_most = 2, .fault_every = 200, .all = 1, .seed = 33 },
    };
    uint64_t steps = argc > 2 && strcmp(argv[1], "--steps") == 0 ? strtoull(argv[2], NULL, 10) : 10000;
    int      ranks = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (skip(ranks)) {
        MPI_Finalize();
        return SKIP;
    }
    ncclComm_t comm = open_comm();
    refused_options(comm);
    soak(comm, &scenes[0], 1, 0, steps);
    soak(comm, &scenes[1], 1, 0, steps);
    soak(comm, &scenes[2], 2, 0, steps / 2);
    soak(comm, &scenes[3], 1, 0, steps / 4);
    soak(comm, &scenes[4], 2, 1, steps);
    soak(comm, &scenes[5], 1, 0, steps / 20);
    absences(comm);
    require_nccl(ncclCommDestroy(comm), "destroying the communicator");
    MPI_Finalize();
    if (world_rank == 0) printf("ok    all of it\n");
    return 0;
}

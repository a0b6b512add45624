/* Records between two GPUs, by NCCL's all-gathers and over a board, beside the socket mesh: gpu_comm [--steps N] (default 4000). 77 and a reason where
 * that cannot be. The state is in host memory: only records travel by GPU. Ranks are forked before anything touches a GPU, so that one of them
 * can be killed; on every outcome each process ends by itself. */
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <kvgrid/kvgrid_comm_board.h>
#include <kvgrid/kvgrid_comm_nccl.h>
#include <kvgrid/kvgrid_cuda.h>
#include <kvgrid/kvgrid_vote_nccl.h>

#include "tests/support/comm_life.h"

enum { SKIP = 77, SETUP_MS = 60000 };

static int failed;

/* ---- making comms */

static KvNcclCommOptions wants(const ForkRank *rank, const CommCase *it, const KvComm *base, const KvLiveness *liveness)
{
    KvNcclCommOptions want = KVG_NCCL_COMM_OPTIONS_INIT;

    want.device = rank->bootstrap.rank;
    want.base = base;
    want.liveness = liveness;
    want.timeout_ms = COMM_TIMEOUT_MS;
    want.tp = it->tp;
    want.sequences_max = COMM_SEQUENCES;
    return want;
}

static KvgStatus make_nccl(ForkRank *rank, const CommCase *it, const KvComm *base, const KvLiveness *liveness, KvComm *comm)
{
    const KvNcclCommOptions want = wants(rank, it, base, liveness);
    return kvg_comm_nccl_create(&rank->bootstrap, &want, comm);
}

static KvgStatus make_board(ForkRank *rank, const CommCase *it, const KvComm *base, const KvLiveness *liveness, KvComm *comm)
{
    const KvNcclCommOptions want = wants(rank, it, base, liveness);
    return kvg_comm_nccl_board_create(&rank->bootstrap, &want, comm);
}

/* ---- a communicator of the caller's, which must outlive all */

static ncclComm_t parent; /* this rank's */

static KvgStatus make_split(ForkRank *rank, const CommCase *it, const KvComm *base, const KvLiveness *liveness, KvComm *comm)
{
    KvNcclCommOptions  want = wants(rank, it, base, liveness);
    ncclUniqueId       id, ids[2];

    memset(&id, 0, sizeof id);
    if (rank->bootstrap.rank == 0 && ncclGetUniqueId(&id) != ncclSuccess) return kvg_fail(KVG_EDEVICE, "no id");
    KVG_TRY(rank->bootstrap.allgather(rank->bootstrap.user, &id, ids, sizeof id, SETUP_MS));
    if (cudaSetDevice(rank->bootstrap.rank) != cudaSuccess || ncclCommInitRank(&parent, 2, ids[0], rank->bootstrap.rank) != ncclSuccess) {
        return kvg_fail(KVG_EDEVICE, "no communicator");
    }
    want.parent = parent;
    return kvg_comm_nccl_create(&rank->bootstrap, &want, comm);
}

static int parent_works(ForkRank *rank, const CommCase *it)
{
    uint64_t *words = NULL, sum = 0, one = 1;
    (void)it;
    FORK_CHECK(cudaSetDevice(rank->bootstrap.rank) == cudaSuccess && cudaMalloc((void **)&words, 2 * sizeof *words) == cudaSuccess);
    FORK_CHECK(cudaMemcpy(words, &one, sizeof one, cudaMemcpyHostToDevice) == cudaSuccess);
    FORK_CHECK(ncclAllReduce(words, words + 1, 1, ncclUint64, ncclSum, parent, NULL) == ncclSuccess);
    FORK_CHECK(cudaMemcpy(&sum, words + 1, sizeof sum, cudaMemcpyDeviceToHost) == cudaSuccess && sum == 2);
    FORK_CHECK(cudaFree(words) == cudaSuccess && ncclCommDestroy(parent) == ncclSuccess);
    return 0;
}

/* ---- cases */

static const CommCase by_gpu[] = {
    { .name = "nccl", .make = make_nccl },
    { .name = "board", .make = make_board },
    { .name = "nccl, split", .make = make_split, .after = parent_works },
};

static void require(int good, const char *name, const char *what, const CommResult *result)
{
    if (good) return;
    failed++;
    printf("FAIL  %s: %s (exit codes %d %d, lines %d %d)\n", name, what, result->codes[0], result->codes[1], result->moved[0], result->moved[1]);
}

static void same_as_host(uint32_t tp, uint32_t pp, uint32_t steps)
{
    CommCase   mesh = { .name = "mesh", .tp = tp, .pp = pp, .steps = steps };
    CommResult host, result;

    require(comm_run(&mesh, 60000, &host) == 0, "mesh", "a rank failed", &host);
    printf("ok    mesh %ux%u: %u steps, %.1f us a step\n", tp, pp, steps, host.step_ns[0] * 1e-3);
    for (size_t i = 0; i < sizeof by_gpu / sizeof *by_gpu; i++) {
        CommCase it = by_gpu[i];
        it.tp = tp, it.pp = pp, it.steps = steps;
        int before = failed;
        require(comm_run(&it, 90000, &result) == 0, it.name, "a rank failed", &result);
        for (int rank = 0; rank < 2; rank++) {
            require(result.outcomes[rank] == host.outcomes[0] && result.digest[rank] == host.digest[0], it.name, "other outcomes than the mesh's", &result);
            require(result.moved[rank] == 0, it.name, "it did not carry to the end", &result);
        }
        if (failed == before) {
            printf("ok    %s %ux%u: %u steps, %.1f us a step, outcomes and digest %016llx as by the mesh\n", it.name, tp, pp, steps, result.step_ns[0] * 1e-3,
                   (unsigned long long)result.digest[0]);
        }
    }
}

static void faulty(CommFault fault, const char *words)
{
    CommCase   mesh = { .name = "mesh", .tp = 2, .pp = 1, .steps = 20, .fault = fault };
    CommResult host, result;

    require(comm_run(&mesh, 30000, &host) == 0, "mesh", words, &host);
    for (size_t i = 0; i < sizeof by_gpu / sizeof *by_gpu; i++) {
        CommCase it = by_gpu[i];
        int      stopped = fault == COMM_STOPPED_BEFORE || fault == COMM_STOPPED_AFTER, before = failed;
        it.tp = 2, it.pp = 1, it.steps = 20, it.fault = fault;
        if (it.after != NULL && !stopped) continue; /* with a peer gone there is nobody to try the caller's communicator with */
        double from = fork_seconds();
        require(comm_run(&it, 40000, &result) == 0, it.name, words, &result);
        require(result.outcomes[0] == host.outcomes[0] && result.digest[0] == host.digest[0], it.name, "other outcomes than the mesh's", &result);
        require(!stopped || (result.moved[0] == 1 && result.moved[1] == 1), it.name, "not one line that records go by the mesh", &result);
        if (failed == before) printf("ok    %s, %s: in doubt in time, settled, closed (%.1f s in all)\n", it.name, words, fork_seconds() - from);
    }
}

/* Told to both ranks, by name, and nothing is left: the next comm is as good. */
static int one_gpu_for_two(ForkRank *rank)
{
    const CommCase     it = { .tp = 2, .pp = 1 };
    KvMeshOptions      mesh = KVG_MESH_OPTIONS_INIT;
    KvComm             base, comm = { 0 };
    KvLiveness         liveness;

    FORK_CHECK(kvg_mesh_create(&rank->bootstrap, &mesh, &base, &liveness) == KVG_OK);
    KvNcclCommOptions want = wants(rank, &it, &base, &liveness);
    want.device = 0;
    FORK_CHECK(kvg_comm_nccl_create(&rank->bootstrap, &want, &comm) == KVG_EINVAL && comm.ops == NULL);
    if (rank->bootstrap.rank == 0) printf("ok    refused: %s\n", kvg_last_error());
    want.device = rank->bootstrap.rank == 1 ? 1000 : 0;
    FORK_CHECK(kvg_comm_nccl_board_create(&rank->bootstrap, &want, &comm) == KVG_ENOTSUP && comm.ops == NULL);
    if (rank->bootstrap.rank == 0) printf("ok    refused on both: %s\n", kvg_last_error());
    want.device = rank->bootstrap.rank;
    FORK_CHECK(kvg_comm_nccl_board_create(&rank->bootstrap, &want, &comm) == KVG_OK);
    comm.ops->close(comm.self);
    liveness.ops->close(liveness.self);
    return 0;
}

/* In a process of its own, which may touch a GPU. */
static int look(ForkRank *rank)
{
    char why[512] = "";
    int  devices = kvg_cuda_probe(why, sizeof why);

    (void)rank;
    if (devices >= 2 && kvg_nccl_vote_probe(why, sizeof why) == KVG_OK) return 0;
    if (devices == 1) snprintf(why, sizeof why, "it takes 2 GPUs, and there is 1");
    printf("skipped: %s\n", why);
    return SKIP;
}

int main(int argc, char **argv)
{
    uint32_t steps = argc > 2 && strcmp(argv[1], "--steps") == 0 ? (uint32_t)strtoul(argv[2], NULL, 10) : 4000;
    int      code = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    fork_ranks(1, 30000, look, NULL, &code);
    if (code != 0) return code == SKIP ? SKIP : 1;
    if (fork_ranks(2, 60000, one_gpu_for_two, NULL, NULL) != 0) failed++, printf("FAIL  what is refused\n");
    same_as_host(2, 1, steps);
    same_as_host(1, 2, steps);
    faulty(COMM_STOPPED_BEFORE, "a peer that stops before its record");
    faulty(COMM_STOPPED_AFTER, "a peer that stops after its record");
    faulty(COMM_DIES, "a peer that is killed");
    faulty(COMM_LEAVES, "leaving with a record under way");
    printf(failed == 0 ? "ok    all of it\n" : "%d failed\n", failed);
    return failed != 0;
}

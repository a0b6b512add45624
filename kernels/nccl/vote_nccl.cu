/* Vote over NCCL: one fixed block a rank in a symmetric window, and where the window stands.
 *
 *   1 alone: version, block (NCCL's own allocator, zeroed), host words      agree
 *   2 together: device communicator (says whether all ranks reach each other), window, addresses      agree
 * A kernel of one thread reads the addresses with NCCL's own inline functions: the layout of a window is the header's business. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#if NCCL_VERSION_CODE >= 22803
#include <nccl_device.h>
#endif
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda_internal.h"
#include "kernels/nccl/kvgrid_vote_nccl.h"
#include "kernels/nccl/nccl_calls.h"

extern "C" { /* memory.h is written for C; of it, C++ needs these */
KVG_API KvgStatus kvg_calloc(size_t count, size_t bytes, const char *what, void **memory);
KVG_API void kvg_free(void *memory);
}

namespace {

enum { TIMEOUT_MS_DEFAULT = 10000, SEQUENCES_MOST = 65536, CLOSE_MS = 1000 };

KvgStatus check_version()
{
    int loaded = 0;

    if (NCCL_VERSION_CODE < 22803) {
        return kvg_fail(KVG_ENOTSUP, "device vote: compiled against NCCL %d, and its device API began with 2.28.3; build with a newer NCCL, or vote on "
                        "the host", NCCL_VERSION_CODE);
    }
    KVG_TRY(kvg_nccl_load());
    if (ncclGetVersion(&loaded) != ncclSuccess || loaded != NCCL_VERSION_CODE) {
        return kvg_fail(KVG_ENOTSUP, "device vote: compiled against NCCL %d and running with NCCL %d, whose device structures differ; build against "
                        "the NCCL that is loaded, or vote on the host", NCCL_VERSION_CODE, loaded);
    }
#if NCCL_VERSION_CODE >= 22803
    if (kvg_nccl()->dev_comm_create == nullptr || kvg_nccl()->dev_comm_destroy == nullptr) {
        return kvg_fail(KVG_ENOTSUP, "device vote: the NCCL that is loaded (%d) has no device API; vote on the host", loaded);
    }
#endif
    return KVG_OK;
}

} // namespace

KvgStatus kvg_nccl_vote_probe(char *why, size_t bytes)
{
    KvgStatus status = check_version();

    if (why != nullptr && bytes > 0) snprintf(why, bytes, "%s", status == KVG_OK ? "" : kvg_last_error());
    return status;
}

#if NCCL_VERSION_CODE >= 22803

struct Places { /* pinned, written by locate_kernel */
    uint64_t base, stride;
};

struct KvNcclVote {
    ncclComm_t    comm;
    KvVoteBoard   board;
    uint32_t      outcomes;
    void         *block;
    ncclWindow_t  window;
    ncclDevComm   reach;
    int           has_window, has_reach;
    uint8_t      *host; /* mapped: control, places, outcome words, a peeked slot */
    uint8_t      *host_device;
};

namespace {

const size_t PLACES_AT = sizeof(KvVoteControl), OUTCOMES_AT = 64;

KvgStatus check_nccl(const KvNcclVote *vote, ncclResult_t result, const char *act)
{
    if (result == ncclSuccess) return KVG_OK;
    return kvg_fail(result == ncclInvalidArgument ? KVG_EINVAL : KVG_EDEVICE, "device vote, %s: %s (%s)", act, ncclGetErrorString(result),
                    ncclGetLastError(vote->comm));
}

uint64_t now_ms()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

/* A non-blocking communicator answers later; others have answered. */
KvgStatus await_nccl(const KvNcclVote *vote, ncclResult_t result, uint32_t timeout_ms, const char *act, ncclResult_t *said)
{
    const uint64_t until = now_ms() + timeout_ms;

    while (result == ncclInProgress) {
        if (ncclCommGetAsyncError(vote->comm, &result) != ncclSuccess) result = ncclInternalError;
        if (result == ncclInProgress && now_ms() > until) {
            return kvg_fail(KVG_EPEER, "device vote, %s: not all ranks took part within %u ms; abort the communicator", act, timeout_ms);
        }
        sched_yield();
    }
    *said = result;
    return KVG_OK;
}

/* ---- 1: alone */

KvgStatus size_board(KvNcclVote *vote, const KvNcclVoteOptions *options)
{
    int rank = 0, ranks = 0, device = 0;

    KVG_TRY(check_nccl(vote, ncclCommUserRank(vote->comm, &rank), "asking for the rank"));
    KVG_TRY(check_nccl(vote, ncclCommCount(vote->comm, &ranks), "counting ranks"));
    KVG_TRY(check_nccl(vote, ncclCommCuDevice(vote->comm, &device), "asking for the device"));
    KVG_TRY(kvg_cuda_check(cudaSetDevice(device), "choosing the communicator's device"));
    const uint32_t tp = options->tp != 0 ? options->tp : (uint32_t)ranks;
    if ((uint32_t)ranks > KVG_VOTE_DEVICE_RANKS_MAX || (uint32_t)ranks % tp != 0 || options->sequences_max > SEQUENCES_MOST ||
        options->window_steps > 1024) {
        return kvg_fail(KVG_EINVAL, "device vote: %d ranks (at most %u) in stages of %u, %u sequences (at most %d), %u steps (at most 1024)", ranks,
                        KVG_VOTE_DEVICE_RANKS_MAX, tp, options->sequences_max, SEQUENCES_MOST, options->window_steps);
    }
    vote->board.rank = (uint32_t)rank;
    vote->board.ranks = (uint32_t)ranks;
    vote->board.tp = tp;
    vote->board.slots = kvg_vote_slots(options->window_steps != 0 ? options->window_steps : 2 * (uint32_t)ranks / tp);
    vote->board.sequences_max = options->sequences_max;
    return KVG_OK;
}

size_t peek_at(const KvNcclVote *vote)
{
    return OUTCOMES_AT + (vote->outcomes * sizeof(uint64_t) + 63) / 64 * 64;
}

KvgStatus prepare(KvNcclVote *vote, const KvNcclVoteOptions *options)
{
    const uint32_t timeout_ms = options->timeout_ms != 0 ? options->timeout_ms : (uint32_t)TIMEOUT_MS_DEFAULT;

    KVG_TRY(check_version());
    KVG_TRY(size_board(vote, options));
    const size_t bytes = kvg_vote_board_bytes(&vote->board), host_bytes = peek_at(vote) + kvg_vote_slot_bytes(&vote->board);
    KVG_TRY(kvg_cuda_check(cudaHostAlloc((void **)&vote->host, host_bytes, cudaHostAllocMapped), "getting mapped host memory"));
    memset(vote->host, 0, host_bytes);
    KVG_TRY(kvg_cuda_check(cudaHostGetDevicePointer((void **)&vote->host_device, vote->host, 0), "mapping host memory"));
    KVG_TRY(check_nccl(vote, ncclMemAlloc(&vote->block, bytes), "getting memory for records"));
    KVG_TRY(kvg_cuda_check(cudaMemset(vote->block, 0, bytes), "clearing the records"));
    KVG_TRY(kvg_cuda_check(cudaStreamSynchronize(nullptr), "clearing the records")); /* before any peer can know the block */
    vote->board.control = (const KvVoteControl *)vote->host_device;
    kvg_vote_allow(kvg_nccl_vote_control(vote), (uint64_t)timeout_ms * 1000u);
    return KVG_OK;
}

/* ---- 2: together */

KvgStatus open_reach(KvNcclVote *vote, uint32_t timeout_ms)
{
#ifdef NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER
    ncclDevCommRequirements wants = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
#else
    ncclDevCommRequirements wants;
    memset(&wants, 0, sizeof wants); /* as these releases say it: no barriers, no multicast */
#endif
    ncclResult_t said = ncclSuccess;

    KVG_TRY(await_nccl(vote, ncclDevCommCreate(vote->comm, &wants, &vote->reach), timeout_ms, "asking who reaches whom", &said));
    if (said == ncclInvalidUsage) {
        return kvg_fail(KVG_ENOTSUP, "device vote: NCCL has no device API for this communicator: its ranks must be GPUs of one host that can load and "
                        "store each other's memory, and NCCL_CUMEM_ENABLE and NCCL_WIN_ENABLE must not be 0; or vote on the host");
    }
    KVG_TRY(check_nccl(vote, said, "asking who reaches whom"));
    vote->has_reach = 1;
    if (vote->reach.lsaSize == 0) {
        return kvg_fail(KVG_ENOTSUP, "device vote: NCCL %d made an empty device communicator, as for communicators that were created with blocking = 0; give a "
                        "blocking one, or vote on the host", NCCL_VERSION_CODE);
    }
    if ((uint32_t)vote->reach.lsaSize != vote->board.ranks || (uint32_t)vote->reach.lsaRank != vote->board.rank) {
        return kvg_fail(KVG_ENOTSUP, "device vote: only %d of %u ranks can load and store each other's memory; vote on the host", vote->reach.lsaSize,
                        vote->board.ranks);
    }
    return KVG_OK;
}

__global__ void locate_kernel(ncclWindow_t window, int ranks, Places *places)
{
    uint64_t first = (uint64_t)ncclGetLsaPointer(window, 0, 0);

    places->base = first;
    places->stride = ranks > 1 ? (uint64_t)ncclGetLsaPointer(window, 0, 1) - first : 0;
}

KvgStatus locate(KvNcclVote *vote)
{
    const Places *places = (const Places *)(vote->host + PLACES_AT);

    locate_kernel<<<1, 1>>>(vote->window, (int)vote->board.ranks, (Places *)(vote->host_device + PLACES_AT));
    KVG_TRY(kvg_cuda_check(cudaGetLastError(), "looking up the window"));
    KVG_TRY(kvg_cuda_check(cudaStreamSynchronize(nullptr), "looking up the window"));
    vote->board.base = (uint8_t *)places->base;
    vote->board.stride = places->stride;
    return KVG_OK;
}

KvgStatus open_window(KvNcclVote *vote, uint32_t timeout_ms)
{
    ncclResult_t said = ncclSuccess;

    KVG_TRY(open_reach(vote, timeout_ms)); /* first: without reach a window is a handle of another kind, and no error says so */
    KVG_TRY(await_nccl(vote, ncclCommWindowRegister(vote->comm, vote->block, kvg_vote_board_bytes(&vote->board), &vote->window,
                                                    NCCL_WIN_COLL_SYMMETRIC), timeout_ms, "registering the window", &said));
    KVG_TRY(check_nccl(vote, said, "registering the window"));
    vote->has_window = 1;
    return locate(vote);
}

KvgStatus agreed(const KvNcclVoteOptions *options, KvgStatus mine)
{
    KvgStatus all = options->agree != nullptr ? options->agree(options->user, mine) : mine;

    if (mine != KVG_OK) return mine; /* its sentence is this rank's last error */
    if (all != KVG_OK) return kvg_fail(all, "device vote: another rank could not set it up (%s); its own last error says why", kvg_status_name(all));
    return KVG_OK;
}

KvgStatus set_up(KvNcclVote *vote, const KvNcclVoteOptions *options)
{
    KVG_TRY(agreed(options, prepare(vote, options)));
    return agreed(options, open_window(vote, options->timeout_ms != 0 ? options->timeout_ms : (uint32_t)TIMEOUT_MS_DEFAULT));
}

} // namespace

KvgStatus kvg_nccl_vote_create(ncclComm *comm, const KvNcclVoteOptions *given, KvNcclVote **vote_p)
{
    static const KvNcclVoteOptions defaults = KVG_NCCL_VOTE_OPTIONS_INIT;
    KvNcclVoteOptions              own, *options = &own;
    void                          *memory = nullptr;

    KVG_TRY(kvg_sized_in("KvNcclVoteOptions", given, &defaults, sizeof own, &own));
    if (comm == nullptr || given == nullptr || vote_p == nullptr) {
        return kvg_fail(KVG_EINVAL, "kvg_nccl_vote_create: a communicator, a place for the vote, and options that start from KVG_NCCL_VOTE_OPTIONS_INIT");
    }
    KVG_TRY(kvg_calloc(1, sizeof(KvNcclVote), "a device vote", &memory));
    KvNcclVote *vote = (KvNcclVote *)memory;
    vote->comm = comm;
    vote->outcomes = options->outcomes != 0 ? options->outcomes : 1;
    KvgStatus status = set_up(vote, options);
    if (status != KVG_OK) {
        kvg_nccl_vote_destroy(vote);
        return status;
    }
    *vote_p = vote;
    return KVG_OK;
}

void kvg_nccl_vote_destroy(KvNcclVote *vote)
{
    if (vote == nullptr) return;
    ncclResult_t said;
    if (vote->has_window) (void)await_nccl(vote, ncclCommWindowDeregister(vote->comm, vote->window), CLOSE_MS, "giving back the window", &said);
    if (vote->has_reach) (void)await_nccl(vote, ncclDevCommDestroy(vote->comm, &vote->reach), CLOSE_MS, "closing", &said);
    if (vote->block != nullptr) (void)ncclMemFree(vote->block);
    if (vote->host != nullptr) (void)cudaFreeHost(vote->host);
    kvg_free(vote);
}

const KvVoteBoard *kvg_nccl_vote_board(const KvNcclVote *vote)
{
    return &vote->board;
}

KvVoteControl *kvg_nccl_vote_control(KvNcclVote *vote)
{
    return (KvVoteControl *)vote->host;
}

volatile uint64_t *kvg_nccl_vote_outcome(KvNcclVote *vote, uint32_t index, uint64_t **device)
{
    const size_t at = OUTCOMES_AT + index * sizeof(uint64_t);

    if (index >= vote->outcomes) return nullptr;
    if (device != nullptr) *device = (uint64_t *)(vote->host_device + at);
    return (volatile uint64_t *)(vote->host + at);
}

void *kvg_nccl_vote_peek(KvNcclVote *vote)
{
    return vote->host + peek_at(vote);
}

#else /* an NCCL without a device API: refused by name */

KvgStatus kvg_nccl_vote_create(ncclComm *comm, const KvNcclVoteOptions *options, KvNcclVote **vote)
{
    (void)comm, (void)options, (void)vote;
    return check_version();
}

void kvg_nccl_vote_destroy(KvNcclVote *vote) { (void)vote; }
const KvVoteBoard *kvg_nccl_vote_board(const KvNcclVote *vote) { (void)vote; return nullptr; }
KvVoteControl *kvg_nccl_vote_control(KvNcclVote *vote) { (void)vote; return nullptr; }
volatile uint64_t *kvg_nccl_vote_outcome(KvNcclVote *vote, uint32_t index, uint64_t **device) { (void)vote, (void)index, (void)device; return nullptr; }
void *kvg_nccl_vote_peek(KvNcclVote *vote) { (void)vote; return nullptr; }

#endif

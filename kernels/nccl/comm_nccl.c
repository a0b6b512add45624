/* NCCL comm: the acts of the gather carrier. A place's records are copied to the device, gathered, copied back; an event says that they are here.
 *
 * Bound by latency: three operations on one stream and the thread that a non-blocking communicator starts for each collective (tens of us). */
#include <string.h>

#include "kernels/comm_gather.h"
#include "kernels/comm_side.h"
#include "kernels/nccl/comm_open.h"
#include "kernels/nccl/nccl_calls.h"
#include "runtime/base/memory.h"
#include "runtime/comm/clock.h"

enum { WARM_UP_BYTES = 1024 };

typedef struct NcclComm {
    ncclComm_t   comm; /* NULL once aborted */
    CudaSide     side;
    int          ranks;
    size_t       stride;
    uint32_t     places;
    uint8_t     *pinned, *device; /* own [places][stride], all [places][ranks][stride] */
    cudaEvent_t *here;            /* [places] */
} NcclComm;

static size_t own_at(const NcclComm *nccl, uint32_t place)
{
    return place * nccl->stride;
}

static size_t all_at(const NcclComm *nccl, uint32_t place)
{
    return (nccl->places + (size_t)place * (size_t)nccl->ranks) * nccl->stride;
}

/* ---- memory */

static void free_memory(NcclComm *nccl)
{
    if (nccl->pinned != NULL) (void)cudaFreeHost(nccl->pinned);
    if (nccl->device != NULL) (void)cudaFree(nccl->device);
    nccl->pinned = nccl->device = NULL;
}

static KvgStatus get_memory(NcclComm *nccl)
{
    const size_t bytes = (size_t)nccl->places * (1 + (size_t)nccl->ranks) * nccl->stride;

    free_memory(nccl);
    KVG_TRY(kvg_cuda_check(cudaHostAlloc((void **)&nccl->pinned, bytes, cudaHostAllocPortable), "getting pinned memory"));
    return kvg_cuda_check(cudaMalloc((void **)&nccl->device, bytes), "getting memory for records");
}

static KvgStatus get_events(NcclComm *nccl)
{
    void *memory = NULL;

    KVG_TRY(kvg_calloc(nccl->places, sizeof(cudaEvent_t), "a comm", &memory));
    nccl->here = memory;
    for (uint32_t place = 0; place < nccl->places; place++) {
        KVG_TRY(kvg_cuda_check(cudaEventCreateWithFlags(&nccl->here[place], cudaEventDisableTiming), "making an event"));
    }
    return KVG_OK;
}

static KvgStatus nccl_open(void *user, size_t stride, uint32_t places, KvGatherPlaces *memory)
{
    NcclComm *nccl = user;
    enum cudaStreamCaptureMode mode;

    KVG_ASSERT(places == nccl->places);
    nccl->stride = stride;
    KVG_TRY(kvg_cuda_side_enter(&nccl->side, &mode));
    KvgStatus status = get_memory(nccl);
    kvg_cuda_side_leave(mode);
    if (status == KVG_OK) *memory = (KvGatherPlaces){.own = nccl->pinned, .all = nccl->pinned + all_at(nccl, 0)};
    return status;
}

/* ---- one all-gather */

static KvgStatus begin_gather(NcclComm *nccl, uint32_t place)
{
    uint8_t *own = nccl->device + own_at(nccl, place), *all = nccl->device + all_at(nccl, place);

    KVG_TRY(kvg_cuda_check(cudaMemcpyAsync(own, nccl->pinned + own_at(nccl, place), nccl->stride, cudaMemcpyHostToDevice, nccl->side.stream),
                           "sending a record to the device"));
    ncclResult_t result = ncclAllGather(own, all, nccl->stride, ncclUint8, nccl->comm, nccl->side.stream);
    return result == ncclInProgress ? KVG_OK : kvg_nccl_check(nccl->comm, result, "gathering records");
}

static KvgStatus end_gather(NcclComm *nccl, uint32_t place)
{
    const size_t at = all_at(nccl, place);

    KVG_TRY(kvg_cuda_check(cudaMemcpyAsync(nccl->pinned + at, nccl->device + at, (size_t)nccl->ranks * nccl->stride, cudaMemcpyDeviceToHost,
                                           nccl->side.stream), "fetching records"));
    return kvg_cuda_check(cudaEventRecord(nccl->here[place], nccl->side.stream), "recording an event");
}

static KvgStatus nccl_start(void *user, uint32_t place)
{
    NcclComm *nccl = user;
    enum cudaStreamCaptureMode mode;

    KVG_TRY(kvg_cuda_side_enter(&nccl->side, &mode));
    KvgStatus status = begin_gather(nccl, place);
    kvg_cuda_side_leave(mode);
    return status;
}

static KvgStatus nccl_launched(void *user, uint32_t place, int *yes)
{
    NcclComm    *nccl = user;
    ncclResult_t result = ncclSuccess;
    enum cudaStreamCaptureMode mode;

    *yes = 0;
    KVG_TRY(kvg_nccl_check(nccl->comm, ncclCommGetAsyncError(nccl->comm, &result), "asking how it does"));
    if (result == ncclInProgress) return KVG_OK;
    KVG_TRY(kvg_nccl_check(nccl->comm, result, "gathering records"));
    KVG_TRY(kvg_cuda_side_enter(&nccl->side, &mode));
    KvgStatus status = end_gather(nccl, place);
    kvg_cuda_side_leave(mode);
    *yes = status == KVG_OK;
    return status;
}

static KvgStatus nccl_arrived(void *user, uint32_t place, int *yes)
{
    NcclComm *nccl = user;
    enum cudaStreamCaptureMode mode;

    KVG_TRY(kvg_cuda_side_enter(&nccl->side, &mode));
    KvgStatus status = kvg_cuda_side_passed(nccl->here[place], "gathering records", yes);
    kvg_cuda_side_leave(mode);
    return status;
}

/* ---- ends */

static void nccl_stop(void *user)
{
    NcclComm *nccl = user;

    (void)cudaSetDevice(nccl->side.device);
    if (nccl->comm != NULL) (void)ncclCommAbort(nccl->comm); /* local; its kernels look at its flag */
    nccl->comm = NULL;
}

static void nccl_close(void *user)
{
    NcclComm *nccl = user;

    nccl_stop(nccl);
    kvg_cuda_side_close(&nccl->side);
    for (uint32_t place = 0; nccl->here != NULL && place < nccl->places; place++) {
        if (nccl->here[place] != NULL) (void)cudaEventDestroy(nccl->here[place]);
    }
    free_memory(nccl);
    kvg_free(nccl->here);
    kvg_free(nccl);
}

static const KvGatherActs nccl_acts = {
    .open = nccl_open, .start = nccl_start, .launched = nccl_launched, .arrived = nccl_arrived, .stop = nccl_stop, .close = nccl_close,
};

/* Connections are made by the first collective of a kind, which may take long and block: here, not in the first step. */
static KvgStatus warm_up(NcclComm *nccl, uint32_t timeout_ms)
{
    const uint64_t until = kvg_clock_ns() + timeout_ms * UINT64_C(1000000);
    int            yes = 0;

    nccl->stride = WARM_UP_BYTES;
    KVG_TRY(get_memory(nccl));
    memset(nccl->pinned, 0, nccl->stride);
    KVG_TRY(begin_gather(nccl, 0));
    KVG_TRY(kvg_nccl_await(nccl->comm, ncclInProgress, timeout_ms, "gathering for the first time"));
    KVG_TRY(end_gather(nccl, 0));
    for (uint64_t rounds = 0; !yes; rounds++) {
        KVG_TRY(kvg_cuda_side_passed(nccl->here[0], "gathering for the first time", &yes));
        if (!yes && kvg_clock_ns() > until) return kvg_fail(KVG_EPEER, "NCCL comm: the first all-gather did not end within %u ms; " KVG_NCCL_CURE, timeout_ms);
        if (!yes) kvg_clock_relax(rounds);
    }
    return KVG_OK;
}

static KvgStatus get_ready(NcclComm *nccl, const KvNcclCommOptions *options)
{
    KVG_TRY(kvg_cuda_side_open(options->device, &nccl->side));
    return get_events(nccl);
}

static KvgStatus create(const KvgBootstrap *bootstrap, const KvNcclCommOptions *options, NcclComm *nccl, KvComm *comm)
{
    const uint32_t         setup_ms = kvg_nccl_setup_ms(options);
    const KvCarriedOptions carried = {.base = *options->base, .liveness = options->liveness, .timeout_ms = options->timeout_ms, .epoch = options->epoch};
    KvGatherOptions        gather = {.name = "nccl", .rank = bootstrap->rank, .ranks = bootstrap->ranks, .acts = &nccl_acts, .user = nccl};

    nccl->ranks = bootstrap->ranks;
    nccl->places = gather.places = 2 * kvg_nccl_window_steps(options, bootstrap->ranks);
    KVG_TRY(kvg_nccl_agree(bootstrap, setup_ms, get_ready(nccl, options)));
    KVG_TRY(kvg_nccl_agree(bootstrap, setup_ms, warm_up(nccl, setup_ms)));
    return kvg_comm_gather(&carried, &gather, comm); /* takes nccl over */
}

KvgStatus kvg_comm_nccl_create(const KvgBootstrap *bootstrap, const KvNcclCommOptions *given, KvComm *comm)
{
    KvNcclCommOptions taken, *options = &taken;
    KvgStatus  status;
    ncclComm_t own = NULL;
    void      *memory = NULL;
    NcclComm  *nccl;

    KVG_TRY(kvg_nccl_take_options(given, options));
    KVG_TRY(kvg_nccl_comm_open(bootstrap, options, 0, &own));
    status = kvg_nccl_agree(bootstrap, kvg_nccl_setup_ms(options), kvg_calloc(1, sizeof *nccl, "a comm", &memory));
    if (status != KVG_OK) {
        (void)ncclCommAbort(own);
        kvg_free(memory);
        return status;
    }
    nccl = memory;
    nccl->comm = own;
    KvComm made = { 0 };
    status = kvg_nccl_agree(bootstrap, kvg_nccl_setup_ms(options), create(bootstrap, options, nccl, &made));
    if (status == KVG_OK) *comm = made;
    else if (made.ops != NULL) kvg_comm_carried_undo(&made);
    else nccl_close(nccl);
    return status;
}

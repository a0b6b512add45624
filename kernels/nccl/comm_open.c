/* A communicator of our own.
 *
 *   1 alone: NCCL, the device      all hear of all: versions, GPUs, the first rank's id
 *   2 together: the communicator   all agree */
#include "kernels/nccl/comm_open.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda_dev.h"
#include "kernels/nccl/nccl_calls.h"
#include "runtime/base/memory.h"
#include "runtime/base/sized.h"
#include "runtime/comm/clock.h"

typedef struct NcclHello { /* crosses the wire */
    int32_t      status, version;
    char         host[64], gpu[32];
    ncclUniqueId id; /* the first rank's counts */
    char         sentence[280];
} NcclHello;
_Static_assert(sizeof(NcclHello) == 8 + 64 + 32 + 128 + 280, "crosses the wire: no padding");

typedef struct NcclVerdict { /* crosses the wire */
    int32_t status;
    char    sentence[508];
} NcclVerdict;
_Static_assert(sizeof(NcclVerdict) == 512, "crosses the wire: no padding");

uint32_t kvg_nccl_setup_ms(const KvNcclCommOptions *options)
{
    return options->setup_ms != 0 ? options->setup_ms : 30000;
}

uint32_t kvg_nccl_window_steps(const KvNcclCommOptions *options, int ranks)
{
    uint32_t tp = options->tp != 0 ? options->tp : (uint32_t)ranks;
    return options->window_steps != 0 ? options->window_steps : 2 * ((uint32_t)ranks / tp);
}

/* ---- results */

KvgStatus kvg_nccl_check(ncclComm_t comm, ncclResult_t result, const char *act)
{
    if (result == ncclSuccess) return KVG_OK;
    const char *detail = comm != NULL ? ncclGetLastError(comm) : "";
    return kvg_fail(result == ncclInvalidUsage ? KVG_ENOTSUP : KVG_EDEVICE, "NCCL, %s: %s%s%s; NCCL_DEBUG=WARN says more, or vote on the host", act,
                    ncclGetErrorString(result), detail != NULL && *detail != '\0' ? ", " : "", detail != NULL ? detail : "");
}

KvgStatus kvg_nccl_await(ncclComm_t comm, ncclResult_t result, uint32_t timeout_ms, const char *act)
{
    const uint64_t until = kvg_clock_ns() + timeout_ms * UINT64_C(1000000);

    while (result == ncclInProgress) {
        if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) result = ncclInternalError;
        if (result == ncclInProgress && kvg_clock_ns() > until) {
            return kvg_fail(KVG_EPEER, "NCCL, %s: not all ranks took part within %u ms; " KVG_NCCL_CURE, act, timeout_ms);
        }
        sched_yield();
    }
    return kvg_nccl_check(comm, result, act);
}

/* ---- 1: alone */

static KvgStatus check_options(const KvgBootstrap *bootstrap, const KvNcclCommOptions *options)
{
    const uint32_t tp = options->tp != 0 ? options->tp : (uint32_t)bootstrap->ranks;

    if (options->base->size != bootstrap->ranks || options->base->rank != bootstrap->rank) {
        return kvg_fail(KVG_EINVAL, "NCCL comm: rank %d of %d in the bootstrap, %d of %d in the base comm; they must be the same", bootstrap->rank,
                        bootstrap->ranks, options->base->rank, options->base->size);
    }
    if ((uint32_t)bootstrap->ranks % tp != 0 || options->window_steps > 1024) {
        return kvg_fail(KVG_EINVAL, "NCCL comm: %d ranks in stages of %u, %u steps in flight (at most 1024)", bootstrap->ranks, tp, options->window_steps);
    }
    return KVG_OK;
}

static KvgStatus prepare(const KvgBootstrap *bootstrap, const KvNcclCommOptions *options, NcclHello *hello)
{
    int version = 0;

    KVG_TRY(check_options(bootstrap, options));
    KVG_TRY(kvg_nccl_load());
    KVG_TRY(kvg_nccl_check(NULL, ncclGetVersion(&version), "asking for its version"));
    hello->version = version;
    KVG_TRY(kvg_cuda_check_device(options->device));
    KVG_TRY(kvg_cuda_check(cudaSetDevice(options->device), "choosing the device"));
    KVG_TRY(kvg_cuda_check(cudaDeviceGetPCIBusId(hello->gpu, sizeof hello->gpu, options->device), "asking for the device's place"));
    if (gethostname(hello->host, sizeof hello->host - 1) != 0) hello->host[0] = '\0';
    if (bootstrap->rank != 0 || options->parent != NULL) return KVG_OK;
    return kvg_nccl_check(NULL, ncclGetUniqueId(&hello->id), "making an id");
}

static KvgStatus compare(const NcclHello *all, int ranks, int own, KvgStatus mine)
{
    if (mine != KVG_OK) return mine; /* its sentence is this rank's last error */
    for (int rank = 0; rank < ranks; rank++) {
        if (all[rank].status != KVG_OK) return kvg_fail((KvgStatus)all[rank].status, "rank %d: %.*s", rank, (int)sizeof all->sentence, all[rank].sentence);
    }
    for (int rank = 1; rank < ranks; rank++) {
        if (all[rank].version != all[0].version) {
            return kvg_fail(KVG_ENOTSUP, "rank 0 runs NCCL %d and rank %d NCCL %d: a communicator takes one version; give all ranks the same, or vote on the "
                            "host", all[0].version, rank, all[rank].version);
        }
        for (int other = 0; other < rank; other++) {
            if (strcmp(all[rank].host, all[other].host) == 0 && strcmp(all[rank].gpu, all[other].gpu) == 0) {
                return kvg_fail(KVG_EINVAL, "ranks %d and %d are on one GPU (%s, seen from rank %d): NCCL takes one rank a GPU; start fewer ranks, or vote on "
                                "the host", other, rank, all[rank].gpu, own);
            }
        }
    }
    return KVG_OK;
}

static KvgStatus meet(const KvgBootstrap *bootstrap, const KvNcclCommOptions *options, ncclUniqueId *id)
{
    KvgStatus status, mine;
    NcclHello hello;
    void     *memory = NULL;

    memset(&hello, 0, sizeof hello);
    KVG_TRY(kvg_calloc((size_t)bootstrap->ranks, sizeof hello, "the ranks' GPUs", &memory));
    const NcclHello *all = memory;
    mine = prepare(bootstrap, options, &hello);
    hello.status = mine;
    if (mine != KVG_OK) snprintf(hello.sentence, sizeof hello.sentence, "%s", kvg_last_error());
    status = bootstrap->allgather(bootstrap->user, &hello, memory, sizeof hello, kvg_nccl_setup_ms(options));
    if (status == KVG_OK) {
        if (mine != KVG_OK) (void)kvg_fail(mine, "%s", hello.sentence);
        status = compare(all, bootstrap->ranks, bootstrap->rank, mine);
    }
    if (status == KVG_OK) *id = all[0].id;
    kvg_free(memory);
    return status;
}

/* ---- 2: together */

static KvgStatus make(const KvgBootstrap *bootstrap, const KvNcclCommOptions *options, int blocking, ncclUniqueId id, ncclComm_t *comm)
{
    const uint32_t timeout_ms = kvg_nccl_setup_ms(options);
    ncclConfig_t   config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t   result;
    int            rank = -1, ranks = 0;

    config.blocking = blocking;
    config.splitShare = 0; /* shared resources share the abort flag: the caller's would be aborted with ours */
    if (options->parent != NULL) {
        result = ncclCommSplit(options->parent, 0, bootstrap->rank, comm, &config);
        KVG_TRY(kvg_nccl_await(options->parent, result, timeout_ms, "splitting the caller's communicator"));
        result = ncclInProgress;
    } else {
        result = ncclCommInitRankConfig(comm, bootstrap->ranks, id, bootstrap->rank, &config);
    }
    KVG_TRY(kvg_nccl_await(*comm, result, timeout_ms, "making a communicator"));
    KVG_TRY(kvg_nccl_check(*comm, ncclCommUserRank(*comm, &rank), "asking for the rank"));
    KVG_TRY(kvg_nccl_check(*comm, ncclCommCount(*comm, &ranks), "counting ranks"));
    if (rank != bootstrap->rank || ranks != bootstrap->ranks) {
        return kvg_fail(KVG_EINVAL, "NCCL comm: rank %d of %d of the communicator is rank %d of %d of the bootstrap; give one with the same ranks", rank, ranks,
                        bootstrap->rank, bootstrap->ranks);
    }
    return KVG_OK;
}

KvgStatus kvg_nccl_agree(const KvgBootstrap *bootstrap, uint32_t timeout_ms, KvgStatus mine)
{
    NcclVerdict verdict = {.status = mine};
    KvgStatus   status;
    void       *memory = NULL;

    if (mine != KVG_OK) snprintf(verdict.sentence, sizeof verdict.sentence, "%s", kvg_last_error());
    KVG_TRY(kvg_calloc((size_t)bootstrap->ranks, sizeof verdict, "the ranks' verdicts", &memory));
    const NcclVerdict *all = memory;
    status = bootstrap->allgather(bootstrap->user, &verdict, memory, sizeof verdict, timeout_ms);
    if (mine != KVG_OK) status = kvg_fail(mine, "%s", verdict.sentence);
    for (int rank = 0; status == KVG_OK && rank < bootstrap->ranks; rank++) {
        if (all[rank].status != KVG_OK) {
            status = kvg_fail((KvgStatus)all[rank].status, "rank %d: %.*s", rank, (int)sizeof all->sentence, all[rank].sentence);
        }
    }
    kvg_free(memory);
    return status;
}

KvgStatus kvg_nccl_take_options(const KvNcclCommOptions *given, KvNcclCommOptions *options)
{
    static const KvNcclCommOptions defaults = KVG_NCCL_COMM_OPTIONS_INIT;

    return KVG_SIZED_IN(KvNcclCommOptions, given, defaults, *options);
}

KvgStatus kvg_nccl_comm_open(const KvgBootstrap *bootstrap, const KvNcclCommOptions *options, int blocking, ncclComm_t *comm_p)
{
    ncclUniqueId id;
    ncclComm_t   comm = NULL;

    if (bootstrap == NULL || options->base == NULL || options->base->ops == NULL ||
        (bootstrap->ranks > 1 && bootstrap->allgather == NULL)) {
        return kvg_fail(KVG_EINVAL, "a comm over NCCL takes a bootstrap, and options that start from KVG_NCCL_COMM_OPTIONS_INIT with a base comm");
    }
    if (bootstrap->ranks < 2) {
        return kvg_fail(KVG_EINVAL, "a comm over NCCL is for 2 ranks and more: one rank has nobody to send records to");
    }
    KVG_TRY(meet(bootstrap, options, &id));
    KvgStatus status = kvg_nccl_agree(bootstrap, kvg_nccl_setup_ms(options), make(bootstrap, options, blocking, id, &comm));
    if (status != KVG_OK) {
        if (comm != NULL) (void)ncclCommAbort(comm);
        return status;
    }
    *comm_p = comm;
    return KVG_OK;
}

KvgStatus kvg_nccl_versions(int *compiled, int *loaded)
{
    *compiled = NCCL_VERSION_CODE;
    *loaded = 0;
    KVG_TRY(kvg_nccl_load());
    return kvg_nccl_check(NULL, ncclGetVersion(loaded), "asking for its version");
}

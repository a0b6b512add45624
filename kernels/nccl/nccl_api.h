/* NCCL's functions, looked up in a library that is loaded when first asked for, and never linked: a program that links kvgrid_nccl starts without
 * one. Private. nccl_calls.h gives the functions their names again.
 *
 * Which library: the one that the process has already (an engine's, torch's), so that its communicators are understood here; else the one that this was
 * compiled against; else what the loader finds. It must be a shared one. */
#ifndef KVG_NCCL_API_H
#define KVG_NCCL_API_H

#include <nccl.h>

#include "kernels/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* name: every NCCL has it. */
#define KVG_NCCL_OLD_NAMES(X)                                                                                                             \
    X(ncclGetVersion) X(ncclGetUniqueId) X(ncclCommInitRankConfig) X(ncclCommSplit) X(ncclCommGetAsyncError) X(ncclCommAbort) X(ncclAllGather) \
    X(ncclGetErrorString) X(ncclGetLastError) X(ncclCommUserRank) X(ncclCommCount) X(ncclCommCuDevice)
/* name: NULL where the loaded NCCL lacks it; only called when it is the version compiled against. */
#if NCCL_VERSION_CODE >= 22803
#define KVG_NCCL_NEW_NAMES(X) \
    X(ncclMemAlloc) X(ncclMemFree) X(ncclCommWindowRegister) X(ncclCommWindowDeregister)
#else
#define KVG_NCCL_NEW_NAMES(X)
#endif

typedef struct KvgNccl {
#define KVG_NCCL_FIELD(name) __typeof__(&name) name##_;
    KVG_NCCL_OLD_NAMES(KVG_NCCL_FIELD)
    KVG_NCCL_NEW_NAMES(KVG_NCCL_FIELD)
#undef KVG_NCCL_FIELD
    void *dev_comm_create, *dev_comm_destroy; /* their types are nccl_device.h's, which is C++ */
} KvgNccl;

/* ENOTSUP with the loader's words. Cheap when it has been loaded. */
KvgStatus kvg_nccl_load(void);
/* After a load that went well. */
const KvgNccl *kvg_nccl(void);

#ifdef __cplusplus
}
#endif

#endif

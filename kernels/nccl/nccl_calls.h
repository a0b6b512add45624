/* NCCL's functions by their own names, through the table of nccl_api.h: sources read as if NCCL were linked. Private. Included last. */
#ifndef KVG_NCCL_CALLS_H
#define KVG_NCCL_CALLS_H

#include "kernels/nccl/nccl_api.h"

#define ncclGetVersion           (*kvg_nccl()->ncclGetVersion_)
#define ncclGetUniqueId          (*kvg_nccl()->ncclGetUniqueId_)
#define ncclCommInitRankConfig   (*kvg_nccl()->ncclCommInitRankConfig_)
#define ncclCommSplit            (*kvg_nccl()->ncclCommSplit_)
#define ncclCommGetAsyncError    (*kvg_nccl()->ncclCommGetAsyncError_)
#define ncclCommAbort            (*kvg_nccl()->ncclCommAbort_)
#define ncclAllGather            (*kvg_nccl()->ncclAllGather_)
#define ncclGetErrorString       (*kvg_nccl()->ncclGetErrorString_)
#define ncclGetLastError         (*kvg_nccl()->ncclGetLastError_)
#define ncclCommUserRank         (*kvg_nccl()->ncclCommUserRank_)
#define ncclCommCount            (*kvg_nccl()->ncclCommCount_)
#define ncclCommCuDevice         (*kvg_nccl()->ncclCommCuDevice_)
#define ncclMemAlloc             (*kvg_nccl()->ncclMemAlloc_)
#define ncclMemFree              (*kvg_nccl()->ncclMemFree_)
#define ncclCommWindowRegister   (*kvg_nccl()->ncclCommWindowRegister_)
#define ncclCommWindowDeregister (*kvg_nccl()->ncclCommWindowDeregister_)
#if defined(__cplusplus) && NCCL_VERSION_CODE >= 22803 /* after nccl_device.h */
#define ncclDevCommCreate        (*reinterpret_cast<decltype(&ncclDevCommCreate)>(kvg_nccl()->dev_comm_create))
#define ncclDevCommDestroy       (*reinterpret_cast<decltype(&ncclDevCommDestroy)>(kvg_nccl()->dev_comm_destroy))
#endif

#endif

/* CUDA, inside: errors of the runtime and of the driver as ours. Private. */
#ifndef KVG_CUDA_INTERNAL_H
#define KVG_CUDA_INTERNAL_H

#include <stddef.h>

#include <cuda_runtime_api.h>

#include <kvgrid/status.h>

#ifdef __cplusplus
extern "C" {
#define KVG_CUDA_CXX 1
/* error.h is written for C; of it, C++ needs these. */
KvgStatus kvg_fail(KvgStatus status, const char *format, ...) __attribute__((format(printf, 2, 3)));
KvgStatus kvg_sized_in(const char *name, const void *given, const void *defaults, size_t bytes, void *own); /* sized.h */
#define KVG_TRY(call)                            \
    do {                                         \
        KvgStatus kvg_try_ = (call);             \
        if (kvg_try_ != KVG_OK) return kvg_try_; \
    } while (0)
#else
#include "runtime/base/error.h"
#endif

/* ENOMEM or EDEVICE with CUDA's own words; KVG_OK for success. */
KvgStatus kvg_cuda_check(cudaError_t error, const char *act);

#ifdef __cplusplus
}
#endif
#endif

/* CUDA device, inside: what its sources share. Private.
 *
 *   slabs    memory under handles of their own, mapped into reserved ranges; ascending addresses
 *   spares   handles without a mapping, oldest first (cuda_spare.c)
 *   blocks   allocations (cudaMalloc, or the engine's), ascending addresses
 *   streams  those that were given to the device, so that work on its own stream can be put in order with them
 *   stage    pinned pieces that copies from host memory go through, each free again when its event has passed */
#ifndef KVG_CUDA_DEV_H
#define KVG_CUDA_DEV_H

#include <cudaTypedefs.h>

#include "kernels/cuda_internal.h"
#include "kernels/kvgrid_cuda.h"

#define CUDA_STREAMS_MAX 16
#define CUDA_STAGE_PIECES 16
#define CUDA_STAGE_BYTES ((size_t)256 << 10)

typedef struct CudaDriver { /* looked up, never linked: a program must start without a driver */
    PFN_cuGetErrorString_v6000                   error_string;
    PFN_cuDeviceGet_v2000                        device_get;
    PFN_cuDeviceGetAttribute_v2000               device_attribute;
    PFN_cuMemGetAllocationGranularity_v10020     granularity;
    PFN_cuMemAddressReserve_v10020               address_reserve;
    PFN_cuMemAddressFree_v10020                  address_free;
    PFN_cuMemCreate_v10020                       create;
    PFN_cuMemRelease_v10020                      release;
    PFN_cuMemMap_v10020                          map;
    PFN_cuMemUnmap_v10020                        unmap;
    PFN_cuMemSetAccess_v10020                    set_access;
    PFN_cuMemExportToShareableHandle_v10020      export_handle;
} CudaDriver;

typedef struct CudaPiece {
    uintptr_t at;
    size_t    bytes;
    CUmemGenericAllocationHandle handle; /* of a slab; 0: asleep, or a block */
} CudaPiece;

typedef struct CudaPieces { /* by address */
    CudaPiece *at;
    size_t     count, room;
} CudaPieces;

typedef struct CudaSeen {
    cudaStream_t stream;
    uint64_t     own_seen; /* waits for the device's own stream up to here */
    int          busy;     /* given work since the own stream last waited for it */
} CudaSeen;

typedef struct CudaDev {
    int              ordinal;
    size_t           grain, handle_bytes;
    CudaDriver       driver;
    CUmemAllocationProp prop;
    KvMemory         memory; /* alloc NULL: ours */
    int              plain;  /* no ranges, as asked */
    CudaPieces       slabs, blocks, spares;
    uint64_t         taken;
    size_t           spare_bytes, spare_held; /* most, and now */
    int              asleep;
    cudaStream_t     own;
    cudaEvent_t      order;     /* recorded and waited for at once, again and again */
    uint64_t         own_count; /* calls that used the own stream */
    CudaSeen         seen[CUDA_STREAMS_MAX];
    uint32_t         seen_count, seen_next;
    uint8_t         *stage;
    cudaEvent_t      stage_event[CUDA_STAGE_PIECES];
    int              stage_used[CUDA_STAGE_PIECES];
    uint32_t         stage_next;
} CudaDev;

/* cuda_driver.c */
KvgStatus kvg_cuda_driver_load(CudaDriver *driver);
KvgStatus kvg_cuda_check_driver(const CudaDriver *driver, CUresult result, const char *act, size_t bytes);
/* ENOTSUP with the sentence. */
KvgStatus kvg_cuda_check_device(int ordinal);

/* cuda_memory.c */
KvgStatus kvg_cuda_pieces_add(CudaPieces *pieces, CudaPiece piece);
KvgStatus kvg_cuda_pieces_push(CudaPieces *pieces, CudaPiece piece); /* at the end of a list that is not by address */
size_t    kvg_cuda_pieces_find(const CudaPieces *pieces, uintptr_t at); /* the first that ends past `at` */
CudaPiece kvg_cuda_pieces_remove(CudaPieces *pieces, size_t index);
KvgStatus kvg_cuda_zeros(void *self, size_t bytes, void **memory);
KvgStatus kvg_cuda_uninit(void *self, size_t bytes, void **memory);
void      kvg_cuda_free(void *self, void *memory);

/* ENOTSUP with the engine's memory, EDEVICE: what could be had of this device now. */
KvgStatus kvg_cuda_available(void *self, KvAvailable *available);

/* cuda_spare.c */
/* The largest spare of at most `most` bytes becomes the slab's handle; where none fits the slab stays as it is. */
void kvg_cuda_spare_take(CudaDev *cuda, size_t most, CudaPiece *slab);
/* Keeps an unmapped slab's handle; 0 where there is no room for it. It stays counted as taken. */
int  kvg_cuda_spare_keep(CudaDev *cuda, const CudaPiece *slab);
void kvg_cuda_trim(void *self);

/* cuda_range.c */
KvgStatus kvg_cuda_create(CudaDev *cuda, size_t bytes, CUmemGenericAllocationHandle *handle);
/* EINVAL naming the call where `dev` is no CUDA device with reserved ranges. */
KvgStatus kvg_cuda_check_ours(const KvDev *dev, const char *call);
KvgStatus kvg_cuda_range_open(CudaDev *cuda); /* granularity; ENOTSUP without virtual memory management */
KvgStatus kvg_cuda_reserve(void *self, size_t bytes, KvRange *range);
KvgStatus kvg_cuda_extend(void *self, KvRange *range, size_t bytes);
KvgStatus kvg_cuda_give_back(void *self, KvRange *range, size_t bytes);
void      kvg_cuda_release(void *self, KvRange *range);

/* cuda_stream.c */
KvgStatus kvg_cuda_streams_open(CudaDev *cuda);
void      kvg_cuda_streams_close(CudaDev *cuda);
/* The stream that work for `stream` goes to, put in order. Work is enqueued on it before the next call. */
KvgStatus kvg_cuda_enter(CudaDev *cuda, KvgStream stream, cudaStream_t *entered);
int       kvg_cuda_capturing(cudaStream_t stream);
/* A pinned piece, at least `bytes` (at most CUDA_STAGE_BYTES) long; free again once `stream` has passed the leave that follows. */
KvgStatus kvg_cuda_stage_take(CudaDev *cuda, void **piece);
KvgStatus kvg_cuda_stage_leave(CudaDev *cuda, cudaStream_t stream);

static inline KvgStatus kvg_cuda_use(const CudaDev *cuda)
{
    return kvg_cuda_check(cudaSetDevice(cuda->ordinal), "choosing the device");
}

/* Between the two no capture is disturbed, in whatever mode this thread or another began it: what is done there belongs to no graph. */
static inline void kvg_cuda_step_out(enum cudaStreamCaptureMode *mode)
{
    *mode = cudaStreamCaptureModeRelaxed;
    (void)cudaThreadExchangeStreamCaptureMode(mode);
}

static inline void kvg_cuda_step_back(enum cudaStreamCaptureMode *mode)
{
    (void)cudaThreadExchangeStreamCaptureMode(mode);
}

#endif

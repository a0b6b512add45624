/** kvgrid on CUDA devices: a KvDev over one GPU, for programs that link kvgrid_cuda beside kvgrid.
 *
 * A program that links this starts on machines without a driver: kvg_cuda_probe says why there is no device, and the host device serves.
 * Compiled with cubins for the architectures named at build time (CMAKE_CUDA_ARCHITECTURES, default 90) and their PTX, which the driver
 * compiles for newer devices.
 *
 * Streams: a cudaStream_t of the caller's, of this device's context, or NULL: one of the device's own, ordered as dev.h says. A stream that was
 * given to the device stays alive until kvg_cuda_forget_stream, or until the device is closed.
 * Threads: as dev.h. The calling thread's current device is set by every call and left so. Reach: local. */
#ifndef KVG_KVGRID_CUDA_H
#define KVG_KVGRID_CUDA_H

#include <kvgrid/cuda_rows.h>
#include <kvgrid/cuda_state.h>
#include <kvgrid/dev.h>
#include <kvgrid/kvgrid_comm_board.h>
#include <kvgrid/kvgrid_vote.h>
#include <kvgrid/tracer.h>

KVG_BEGIN_DECLS

typedef struct KvgCudaOptions {
    size_t              size;         /* set by KVG_CUDA_OPTIONS_INIT */
    int                 device;       /* ordinal as CUDA counts */
    size_t              handle_bytes; /* most bytes under one handle: mapping costs by handle, and memory is given back by whole ones. 0: 64 MiB */
    const KvMemory     *memory;       /* of this GPU, from the engine. NULL: ours. Else copied; there are no reserved ranges then (dev.h) */
    int                 plain;        /* 1: no reserved ranges, as on a device without virtual memory management: pools do not grow, flat planes by copying */
    size_t              spare_bytes;  /* most bytes of handles kept unmapped: made when the device is opened and by kvg_cuda_refill, kept when ranges give
                                         back; what grows within them is only mapped. Counted as taken. 0: none */
} KvgCudaOptions;
#define KVG_CUDA_OPTIONS_INIT { sizeof(KvgCudaOptions), 0, 0, NULL, 0, 0 }

/** Opens a device. NULL options: the defaults. ENOTSUP: no driver, no such device, or one that this build has no code for, by name. ENOMEM, EDEVICE.
 *  Closed by kvg_dev_close, which waits for all work given to it. */
KVG_API KvgStatus kvg_dev_cuda(const KvgCudaOptions *options, KvDev *dev);

/** How many devices can be used. `why` gets one sentence (cut to `bytes`; NULL is allowed) where there is none, no driver, or one that is too old, or about the
 *  last device that this build has no code for; "" where every device can be used. No context is created. */
KVG_API int kvg_cuda_probe(char *why, size_t bytes);

/** Unmaps and frees the memory of every reserved range, keeping addresses: what it held is lost, and nothing may touch it until wake. Waits for
 *  all work of the device first. Spares go too. Allocations (tables, lengths) stay. The whole device sleeps, whatever is open on it: a placement of a grid
 *  sleeps by kvg_placement_sleep. EBUSY asleep already; EDEVICE. */
KVG_API KvgStatus kvg_cuda_sleep(KvDev *dev);
/** Gets the memory again, at the same addresses, contents undefined. ENOMEM: still asleep, nothing is held. EINVAL not asleep. */
KVG_API KvgStatus kvg_cuda_wake(KvDev *dev);

/** Makes spare handles until spare_bytes are held: off the serving path. What was made stays where it fails. EINVAL no reserved ranges; EBUSY asleep; ENOMEM. */
KVG_API KvgStatus kvg_cuda_refill(KvDev *dev);

/** Waits for the stream, which the caller may destroy then. */
KVG_API KvgStatus kvg_cuda_forget_stream(KvDev *dev, KvgStream stream);

/** A file descriptor of the memory behind `address` of a reserved range, for another process of this machine (SCM_RIGHTS), with its first
 *  address and bytes. The caller closes it. EINVAL nothing of ours is mapped there; EDEVICE. */
KVG_API KvgStatus kvg_cuda_export(KvDev *dev, const void *address, int *fd, void **base, size_t *bytes);

/** A tracer that shows the library's ranges as NVTX ranges of the domain "kvgrid", with tracer.h's value as payload, to a profiler that is attached
 *  (nsys profile --trace=nvtx,cuda): kvg_tracer_set(kvg_cuda_tracer()). Needs no device and no driver; nothing to free. */
KVG_API const KvgTracer *kvg_cuda_tracer(void);

KVG_END_DECLS
#endif

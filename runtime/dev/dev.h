/** KvDev: the device seam. Memory, copies, events and the row operations, each on a stream; host memory and CUDA
 * implement it, and both give the same bits.
 *
 * The host device works in order on the calling thread: when a call returns, its work is done; streams and events are
 * accepted and mean nothing. Pointers named "device memory" are the device's; on the host they can be read directly.
 * Any other device works in stream order. The NULL stream is one of the device's own: work on it comes after all that was given to the
 * device before, on any stream, and before all that is given later; so copies that the runtime makes by itself need no stream of the caller's.
 * Sources in host memory may be changed when a call returns; targets in host memory are written when the stream has passed.
 * Threads: any thread, one at a time per device. Reach: local. */
#ifndef KVG_DEV_H
#define KVG_DEV_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/format.h>

KVG_BEGIN_DECLS

typedef void *KvgStream; /* a cudaStream_t on CUDA; ignored on the host; NULL is the device's own */
typedef void *KvEvent;

/** A reserved range of addresses whose first `taken` bytes are backed by memory. The base never moves.
 *  A range may be used in slices: a KvRange that begins at a multiple of the granularity inside a reserved one, with its own
 *  `reserved` and `taken`, is extended and given back like a whole one. Release takes the whole, whose `taken` then is the sum over its slices. */
typedef struct KvRange {
    uint8_t *base;
    size_t   reserved; /* bytes of addresses */
    size_t   taken;    /* bytes backed, a multiple of the device's granularity */
} KvRange;

/** Elements on their way into planes or out of them: [tokens][heads][dim], strides in elements. */
typedef struct KvRowsIn {
    const void *data;         /* device memory */
    KvFormat    type;         /* KVG_F32, KVG_F16 or KVG_BF16 */
    int64_t     token_stride;
    int64_t     head_stride;
} KvRowsIn;

/** Where one run of rows of one plane stands: head h of row i at target + h*head_stride + i*row_stride, bytes. */
typedef struct KvRowsAt {
    uint8_t *target;
    size_t   head_stride;
    size_t   row_stride;
} KvRowsAt;

typedef struct KvPatch { /* crosses to the device: no padding */
    uint32_t index, value;
} KvPatch;

/** Memory of the engine's allocator instead of the device's own. alloc gives `bytes` of the device's memory, 256-byte aligned, or NULL where there is
 *  none (ENOMEM then); free gets the same bytes back. Such a device cannot reserve ranges: pools keep their size, flat planes grow by copying, and
 *  sleep is the allocator's own matter. */
typedef struct KvMemory {
    void *(*alloc)(void *user, size_t bytes);
    void (*free)(void *user, void *memory, size_t bytes);
    void *user;
} KvMemory;

/** What could be had now. `memory` names what it would be taken from: devices that tell the same draw on the same. */
typedef struct KvAvailable {
    uint64_t bytes;
    uint64_t memory;
} KvAvailable;

struct KvRowsBatch;
struct KvDevRunOps;
struct KvRecurrentPass;

typedef struct KvDevOps {
    const char *name; /* "host", "cuda" */
    int         direct; /* 1: the host reads and writes device memory through its pointers, in program order */

    /* ---- memory. kvg_fault_hit() is asked by each of these that can fail. */
    KvgStatus (*zeros)(void *self, size_t bytes, void **memory);  /* zeroed, 256-byte aligned */
    KvgStatus (*uninit)(void *self, size_t bytes, void **memory); /* contents undefined (the seed's alloc_u8) */
    void (*free)(void *self, void *memory);
    size_t (*granularity)(void *self); /* of a range: 4096 on the host, 2 MiB on CUDA */
    /* (optional, all four or none) NULL: planes grow by copying (S6). */
    KvgStatus (*reserve)(void *self, size_t bytes, KvRange *range);  /* addresses only; taken = 0 */
    KvgStatus (*extend)(void *self, KvRange *range, size_t bytes);   /* back the first `bytes`, rounded up; ENOMEM changes nothing */
    KvgStatus (*give_back)(void *self, KvRange *range, size_t bytes); /* back only the first `bytes`, rounded up */
    void (*release)(void *self, KvRange *range);
    uint64_t (*taken_bytes)(void *self); /* by ranges and allocations of this device, now */

    /* ---- copies, in stream order */
    KvgStatus (*htod)(void *self, void *target, const void *source, size_t bytes, KvgStream stream);
    KvgStatus (*dtoh)(void *self, void *target, const void *source, size_t bytes, KvgStream stream);
    /* memmove within the device: source and target may overlap */
    KvgStatus (*move)(void *self, void *target, const void *source, size_t bytes, KvgStream stream);
    KvgStatus (*set_i32_one)(void *self, int32_t *target, int32_t value, KvgStream stream);

    /* ---- streams and events */
    KvgStatus (*synchronize)(void *self, KvgStream stream); /* NULL: everything given to the device so far */
    KvgStatus (*event_create)(void *self, KvEvent *event);
    void (*event_destroy)(void *self, KvEvent event);
    KvgStatus (*event_record)(void *self, KvEvent event, KvgStream stream);
    KvgStatus (*stream_wait)(void *self, KvgStream stream, KvEvent event);

    /* ---- rows: `rows` tokens of `heads` heads of `dim` elements (S1); counts are added to in stream order (device memory, may be NULL) */
    KvgStatus (*encode_rows)(void *self, KvFormat format, const KvRowsIn *in, KvRowsAt at, uint32_t heads, uint32_t dim,
                             uint32_t rows, KvEncodeCounts *counts, KvgStream stream);
    /* target [rows][heads][dim] f32, packed */
    KvgStatus (*decode_rows)(void *self, KvFormat format, KvRowsAt at, uint32_t heads, uint32_t dim, uint32_t rows,
                             float *target, KvgStream stream);

    /* ---- what a device that is not direct must have, since the host cannot write its memory; NULL on a direct one */
    /* words[pairs[i].index] = pairs[i].value, no index twice; the pairs are read before it returns */
    KvgStatus (*patch)(void *self, uint32_t *words, const KvPatch *pairs, uint32_t count, KvgStream stream);
    KvgStatus (*clear)(void *self, void *target, size_t bytes, KvgStream stream); /* to zero */
    /* kvg_recurrent_pass (recurrent.h) over device memory */
    KvgStatus (*recurrent_pass)(void *self, const struct KvRecurrentPass *pass, KvgStream stream);

    /* ---- (optional) NULL: rows are written run by run */
    KvgStatus (*encode_batch)(void *self, const struct KvRowsBatch *batch, KvgStream stream); /* rows_batch.h; arrays in device memory */
    /* (optional) `rows` pieces of `bytes` bytes, each pitch apart; source and target do not overlap. NULL: piece by piece */
    KvgStatus (*move_rows)(void *self, void *target, size_t target_pitch, const void *source, size_t source_pitch, size_t bytes,
                           size_t rows, KvgStream stream);
    const struct KvDevRunOps *run; /* (optional) captured runs, dev_run.h. NULL: steps are taken one by one */
    /* (optional) NULL: memory_bytes must be said */
    KvgStatus (*available)(void *self, KvAvailable *available);
    /* (optional) frees what the device keeps back for later extends. NULL: it keeps nothing back */
    void (*trim)(void *self);
    void (*close)(void *self);
} KvDevOps;

typedef struct KvDev {
    const KvDevOps *ops;
    void           *self;
} KvDev;

/** Host memory: ranges are mmap reservations, extended in place. Close by kvg_dev_close. ENOMEM. */
KVG_API KvgStatus kvg_dev_host(KvDev *dev);
/** Host memory without reserved ranges (reserve is NULL): planes grow by copying, as on a device without virtual memory management. */
KVG_API KvgStatus kvg_dev_host_plain(KvDev *dev);
/** Host memory from `memory` (copied): as kvg_dev_host_plain, with every byte of sequence state from the engine's allocator. EINVAL without alloc and
 *  free; ENOMEM. */
KVG_API KvgStatus kvg_dev_host_memory(const KvMemory *memory, KvDev *dev);
KVG_API void      kvg_dev_close(KvDev *dev);

/** Copies `bytes` from source+source_offset to target+target_offset with memmove's meaning, after checking both ranges
 *  against the buffers' sizes (the seed's copy_range_into). EINVAL past an end; EOVERFLOW. */
KVG_API KvgStatus kvg_dev_copy_range_into(KvDev *dev, void *target, size_t target_bytes, size_t target_offset, const void *source,
                                          size_t source_bytes, size_t source_offset, size_t bytes, KvgStream stream);
/** A fresh device copy of `bytes` (the seed's clone_dtod). */
KVG_API KvgStatus kvg_dev_clone(KvDev *dev, const void *source, size_t bytes, KvgStream stream, void **clone);

KVG_END_DECLS
#endif

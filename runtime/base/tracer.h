/** Tracer: what the library is doing, as ranges of time, for a profiler. Off by default, and then a range costs one look at a pointer.
 *
 *   plan      kvg_step_begin, _extend: waiting for what must be decided first included
 *   write     kvg_write_kv, kvg_write_latent, kvg_recurrent_update: one layer of a pass
 *   post      kvg_step_post
 *   decide    all records of a step are here: the vote, and what it says
 *   publish   within decide (or a settle): staged rows are committed
 *   grow      a class of a sequence is booked further (at open, too), or slabs are got for a resize, ahead of one, or to wake
 *   capture   kvg_batch_capture_begin and _end, one range each
 *   run       kvg_run_begin, kvg_graph_launch and kvg_run_end, one range each
 *
 * Ranges begin and end on the thread that makes the call, and nest. kvg_cuda_tracer (kvgrid_cuda.h) shows them as NVTX ranges. */
#ifndef KVG_TRACER_H
#define KVG_TRACER_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/export.h>

KVG_BEGIN_DECLS

typedef enum KvgRange {
    KVG_RANGE_PLAN = 0, KVG_RANGE_WRITE, KVG_RANGE_POST, KVG_RANGE_DECIDE, KVG_RANGE_PUBLISH, KVG_RANGE_GROW, KVG_RANGE_CAPTURE, KVG_RANGE_RUN,
    KVG_RANGE_COUNT
} KvgRange;

typedef struct KvgTracer {
    size_t size; /* sizeof(KvgTracer) */
    /* `value` is the step's number (plan: the one that will be begun), of a write the layer, of a growth the rows that are booked then (slabs: 0), of a run its first step; else 0. */
    void (*begin)(void *user, KvgRange range, uint64_t value);
    void (*end)(void *user, KvgRange range);
    void  *user;
} KvgTracer;

/** The process's tracer; NULL (the default): none. It stays the caller's, and valid until another is set and every call that was under way has returned;
 *  a range ends at the tracer that it began at. A tracer without begin or end, or with a wrong size, is none. Reach: local. Threads: any. */
KVG_API void kvg_tracer_set(const KvgTracer *tracer);

/** "plan", "write", ...; "?" outside the range. Static storage. */
KVG_API const char *kvg_range_name(KvgRange range);

KVG_END_DECLS
#endif

/* Traced: how the library marks its ranges (tracer.h). Private.
 *
 *   const KvgTracer *tracer = kvg_range_begin(KVG_RANGE_POST, step->number);
 *   ...
 *   kvg_range_end(tracer, KVG_RANGE_POST); */
#ifndef KVG_TRACED_H
#define KVG_TRACED_H

#include <kvgrid/status.h>
#include <kvgrid/tracer.h>

extern const KvgTracer *kvg_tracer_now; /* looked at with atomic builtins alone: it may be set by another thread */

static inline const KvgTracer *kvg_range_begin(KvgRange range, uint64_t value)
{
    const KvgTracer *tracer = __atomic_load_n(&kvg_tracer_now, __ATOMIC_ACQUIRE);

    if (tracer != NULL) {
        tracer->begin(tracer->user, range, value);
    }
    return tracer;
}

static inline void kvg_range_end(const KvgTracer *tracer, KvgRange range)
{
    if (tracer != NULL) {
        tracer->end(tracer->user, range);
    }
}

/* Returns from the calling function with what `call` answers, as one range. */
#define KVG_RETURN_RANGED(range, value, call)                               \
    do {                                                                    \
        const KvgTracer *ranged_tracer = kvg_range_begin((range), (value)); \
        KvgStatus        ranged_status = (call);                            \
        kvg_range_end(ranged_tracer, (range));                              \
        return ranged_status;                                               \
    } while (0)

#endif

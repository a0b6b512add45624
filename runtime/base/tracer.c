#include "runtime/base/traced.h"

const KvgTracer *kvg_tracer_now;

void kvg_tracer_set(const KvgTracer *tracer)
{
    int is_whole = tracer != NULL && tracer->size >= sizeof *tracer && tracer->begin != NULL && tracer->end != NULL;

    __atomic_store_n(&kvg_tracer_now, is_whole ? tracer : NULL, __ATOMIC_RELEASE);
}

const char *kvg_range_name(KvgRange range)
{
    static const char *const names[KVG_RANGE_COUNT] = { "plan", "write", "post", "decide", "publish", "grow", "capture", "run" };

    return (unsigned)range < KVG_RANGE_COUNT ? names[range] : "?";
}

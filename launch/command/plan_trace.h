/* Plan, traces: how many requests of a real trace are held at once at their real lengths, and what booking costs. Private. */
#ifndef KVG_COMMAND_PLAN_TRACE_H
#define KVG_COMMAND_PLAN_TRACE_H

#include <stdint.h>

#include <kvgrid/grid_plan.h>

#include "launch/command/trace.h"

typedef struct TraceFit {
    uint64_t requests;      /* of the trace */
    uint64_t past_context;  /* longer than the model's context: refused, and skipped */
    uint64_t fit;           /* the first so many of the rest, in trace order, held together; all of them while memory is unknown */
    uint64_t tokens;        /* of those that fit */
    uint64_t content_bytes; /* their live rows, on the rank that holds most (S3) */
    uint64_t booked_bytes;  /* the units and slots set aside for them there */
    int32_t  fullest_rank;
    int32_t  limiting_rank; /* whose memory the next request does not fit in; -1: all fit, or memory is unknown */
} TraceFit;

KvgStatus kvg_plan_trace(const KvGridPlan *plan, const Trace *trace, TraceFit *fit);

#endif

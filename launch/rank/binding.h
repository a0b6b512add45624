/* Binding: which processors and memory a rank takes for itself. Planned as a value, from what all ranks of the machine say; then done. Private.
 *
 *   near the device      processors near it (topology.h), of those that are allowed
 *   no device            the allowed ones, dealt out where there is more than one NUMA node
 *   shared               ranks whose processors come out the same deal them out: whole cores, evenly
 *   memory               preferred on the nodes of those processors, where there is more than one
 *
 * A launcher's own binding is never widened, and none of this is ever an error: what cannot be had is said in `why`. Threads: one at a time. */
#ifndef KVG_RANK_BINDING_H
#define KVG_RANK_BINDING_H

#include "launch/rank/topology.h"

typedef enum BindingKind {
    BINDING_NONE = 0, /* left as it was */
    BINDING_KEPT,     /* it is bound already, as it should be or as it must stay */
    BINDING_SET       /* to `cpus` */
} BindingKind;

typedef struct BindingSeat { /* what each rank of the machine says */
    IndexSet   allowed;
    int32_t    has_device, reserved;
    RankDevice device; /* while has_device */
} BindingSeat;

typedef struct RankBinding {
    BindingKind kind;
    int         amiss;    /* 1: away from its device, where that matters, or refused by the system: worth a warning */
    int         shared;   /* ranks on these cores, this one too, where there are fewer cores than that; else 0 */
    IndexSet    cpus;     /* what it runs on */
    IndexSet    on;       /* NUMA nodes of these; none: not known */
    IndexSet    nodes;    /* its memory is preferred there; none: as the system does it */
    char        why[200];
} RankBinding;

/* Plans for rank `me` of seats [count], in order of local ranks. topology NULL: BINDING_NONE, and `missing` says why. */
void kvg_binding_plan(const RankTopology *topology, const char *missing, const BindingSeat *seats, int count, int me, RankBinding *binding);
/* Does it, if the kind is BINDING_SET; what the system refuses becomes BINDING_NONE (processors) or `nodes` none (memory), and stands in `why`. */
void kvg_binding_do(const RankTopology *topology, RankBinding *binding);
/* "cpus 0-3, memory of node 0: near 0000:1b:00.0 (hwloc)", "not bound: ...". */
const char *kvg_binding_words(const RankBinding *binding, char *text, size_t bytes);

#endif

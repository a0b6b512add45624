/* Replay's default for --memory. */
#include "launch/command/replay_memory.h"

#include <inttypes.h>

#include "launch/rank/memory_limit.h"
#include "runtime/base/checked.h"
#include "runtime/base/error.h"

KvgStatus kvg_replay_memory_need(const KvGridPlan *plan, uint32_t rank, uint64_t rows, uint64_t sequences, uint64_t *bytes)
{
    KVG_ASSERT(rank < plan->ranks_count);
    const KvRankPlan *mine = &plan->ranks[rank];
    const uint64_t    planes = 2ull * (mine->hi - mine->lo);
    uint64_t          sequence = mine->slot_bytes;
    bool              fits = true;
    for (uint32_t i = 0; i < plan->class_count; i++) {
        uint64_t units = 0;
        fits &= kvg_mul_u64(kvg_class_plan_units(&plan->classes[i], rows), mine->class_unit_bytes[i], &units);
        fits &= kvg_add_u64(sequence, units, &sequence);
    }
    uint64_t need = 0;
    fits &= kvg_mul_u64(sequence, sequences, &need);
    /* Classes share what there is by whole units and planes by whole pages: a twentieth and two pages a plane lose nothing to that. */
    fits &= kvg_add_u64(need, need / 20 + planes * 8192 + (1 << 20), &need);
    if (!fits) {
        return kvg_fail(KVG_EOVERFLOW, "%" PRIu64 " sequences of %" PRIu64 " rows need more bytes than 64 bits count: lower --concurrency",
                        sequences, rows);
    }
    *bytes = need;
    return KVG_OK;
}

uint64_t kvg_replay_memory_available(int local_ranks)
{
    const uint64_t left = kvg_memory_limit_here(), available = left != UINT64_MAX ? left : 1ull << 30;
    return available / 5 * 3 / (uint64_t)(local_ranks > 0 ? local_ranks : 1);
}

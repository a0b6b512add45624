#include "launch/command/plan_trace.h"

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

typedef struct RankTotal {
    uint64_t content, booked;
} RankTotal;

/* What one request of `rows` rows has live and booked on a rank. */
static RankTotal request_bytes(const KvGridPlan *plan, const KvRankPlan *rank, uint64_t rows)
{
    RankTotal total = { rank->slot_bytes, rank->slot_bytes };

    for (uint32_t c = 0; c < plan->class_count; c++) {
        uint64_t live = kvg_min_u64(rows, plan->classes[c].row_cap);
        uint64_t units = kvg_class_plan_units(&plan->classes[c], rows);

        total.content += live * rank->class_unit_bytes[c] / KVG_CHUNK_ROWS;
        total.booked += units * rank->class_unit_bytes[c];
    }
    return total;
}

/* The lowest rank that cannot hold one more request of `rows` rows; -1 if all can. Tensor-parallel neighbours hold the same
 * bytes, so a stage's first rank stands for all where their memory is equal; here each is looked at. */
static int32_t rank_without_room(const KvGridPlan *plan, const RankTotal *totals, uint64_t rows)
{
    for (uint32_t r = 0; plan->memory_known && r < plan->ranks_count; r++) {
        RankTotal more = request_bytes(plan, &plan->ranks[r], rows);

        if (totals[r].booked + more.booked > plan->ranks[r].state_bytes) {
            return (int32_t)r;
        }
    }
    return -1;
}

static void admit(const KvGridPlan *plan, RankTotal *totals, uint64_t rows, TraceFit *fit)
{
    for (uint32_t r = 0; r < plan->ranks_count; r++) {
        RankTotal more = request_bytes(plan, &plan->ranks[r], rows);

        totals[r].content += more.content;
        totals[r].booked += more.booked;
    }
    fit->fit++;
    fit->tokens += rows;
}

static void name_fullest(const KvGridPlan *plan, const RankTotal *totals, TraceFit *fit)
{
    for (uint32_t r = 0; r < plan->ranks_count; r++) {
        if (r == 0 || totals[r].booked > fit->booked_bytes) {
            fit->fullest_rank = (int32_t)r;
            fit->content_bytes = totals[r].content;
            fit->booked_bytes = totals[r].booked;
        }
    }
}

KvgStatus kvg_plan_trace(const KvGridPlan *plan, const Trace *trace, TraceFit *fit)
{
    RankTotal *totals = NULL;
    TraceFit   found = { .requests = trace->count, .limiting_rank = -1 };

    KVG_TRY(kvg_calloc(plan->ranks_count, sizeof *totals, "the ranks' totals", (void **)&totals));
    for (size_t i = 0; i < trace->count; i++) {
        uint64_t rows = (uint64_t)trace->requests[i].context + trace->requests[i].generated;

        if (rows > plan->max_ctx) {
            found.past_context++;
            continue;
        }
        if (found.limiting_rank >= 0) {
            continue; /* full: go on for the count of those past the context alone */
        }
        found.limiting_rank = rank_without_room(plan, totals, rows);
        if (found.limiting_rank < 0) {
            admit(plan, totals, rows, &found);
        }
    }
    name_fullest(plan, totals, &found);
    kvg_free(totals);
    *fit = found;
    return KVG_OK;
}

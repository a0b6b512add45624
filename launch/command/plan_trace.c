#include "launch/command/plan_trace.h"

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

typedef struct RankTotal {
    uint64_t content, booked;
} RankTotal;

/* rows * unit_bytes / KVG_CHUNK_ROWS, and nothing wraps on the way. */
static uint64_t part_of_unit(uint64_t unit_bytes, uint64_t rows)
{
    return rows * (unit_bytes / KVG_CHUNK_ROWS) + rows * (unit_bytes % KVG_CHUNK_ROWS) / KVG_CHUNK_ROWS;
}

/* Adds what one request of `rows` rows has live and booked on a rank. 0: it does not fit 64 bits. */
static int add_request(const KvGridPlan *plan, const KvRankPlan *rank, uint64_t rows, RankTotal *total)
{
    int fits = kvg_add_u64(total->content, rank->slot_bytes, &total->content) && kvg_add_u64(total->booked, rank->slot_bytes, &total->booked);

    for (uint32_t c = 0; fits && c < plan->class_count; c++) {
        uint64_t live = kvg_min_u64(rows, plan->classes[c].row_cap), unit_bytes = rank->class_unit_bytes[c], booked = 0;

        fits = kvg_mul_u64(kvg_class_plan_units(&plan->classes[c], rows), unit_bytes, &booked) && kvg_add_u64(total->booked, booked, &total->booked);
        total->content += live / KVG_CHUNK_ROWS * unit_bytes + part_of_unit(unit_bytes, live % KVG_CHUNK_ROWS); /* at most what is booked */
    }
    return fits;
}

/* The lowest rank that cannot hold one more request of `rows` rows; -1 if all can. Tensor-parallel neighbours hold the same
 * bytes, so a stage's first rank stands for all where their memory is equal; here each is looked at. */
static int32_t rank_without_room(const KvGridPlan *plan, const RankTotal *totals, uint64_t rows)
{
    for (uint32_t r = 0; plan->memory_known && r < plan->ranks_count; r++) {
        RankTotal with = totals[r];

        if (!add_request(plan, &plan->ranks[r], rows, &with) || with.booked > plan->ranks[r].state_bytes) {
            return (int32_t)r;
        }
    }
    return -1;
}

static KvgStatus admit(const KvGridPlan *plan, RankTotal *totals, uint64_t rows, TraceFit *fit)
{
    for (uint32_t r = 0; r < plan->ranks_count; r++) {
        if (!add_request(plan, &plan->ranks[r], rows, &totals[r])) {
            return kvg_fail(KVG_EOVERFLOW, "after %llu requests of the trace the next one takes rank %u past what 64 bits can say in bytes; say what memory "
                            "there is, or mend the trace", (unsigned long long)fit->fit, r);
        }
    }
    fit->fit++;
    fit->tokens += rows;
    return KVG_OK;
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
    KvgStatus  status = KVG_OK;

    KVG_TRY(KVG_NEW(plan->ranks_count, "the ranks' totals", &totals));
    for (size_t i = 0; i < trace->count && status == KVG_OK; i++) {
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
            status = admit(plan, totals, rows, &found);
        }
    }
    name_fullest(plan, totals, &found);
    kvg_free(totals);
    KVG_TRY(status);
    *fit = found;
    return KVG_OK;
}

/* Stats over the grid: one all-gather of counters. */
#include <string.h>

#include "pp/stats_impl.h"

typedef struct StatsState {
    const KvgPlacement *placement;
    KvgStats           *ranks, *total; /* the caller's; NULL: not asked for */
} StatsState;

static KvgStatus say(KvgSetup *setup)
{
    const StatsState *state = setup->state;
    KvgStats          mine = { .size = sizeof mine };

    KVG_TRY(kvg_stats(state->placement, &mine));
    return kvg_setup_gather(setup, &mine, sizeof mine);
}

static KvgStatus check_heard(const KvgSetup *setup)
{
    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        if (setup->gather.body[rank] != NULL && setup->gather.bytes[rank] != sizeof(KvgStats)) {
            return kvg_fail(KVG_EFORMAT, "rank %d sends %zu bytes of counters where this rank has %zu: start the same build on every rank", rank,
                            setup->gather.bytes[rank], sizeof(KvgStats));
        }
    }
    return KVG_OK;
}

static void give_rank(const StatsState *state, int rank, const KvgStats *one)
{
    const size_t size = state->ranks->size;
    KvgStats    *target = (KvgStats *)((char *)state->ranks + (size_t)rank * size);

    target->size = size;
    kvg_stats_give(one, target);
}

static KvgStatus hear(KvgSetup *setup)
{
    const StatsState *state = setup->state;
    KvgStats          sum = { .size = sizeof sum };

    KVG_TRY(check_heard(setup));
    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        KvgStats one = { .size = sizeof one };
        if (setup->gather.body[rank] != NULL) { /* else left out by a settle */
            memcpy(&one, setup->gather.body[rank], sizeof one);
        }
        kvg_stats_add(&sum, &one);
        if (state->ranks != NULL) {
            give_rank(state, rank, &one);
        }
    }
    if (state->total != NULL) {
        kvg_stats_give(&sum, state->total);
    }
    return KVG_OK;
}

static KvgStatus run(KvgSetup *setup, int *done)
{
    if (setup->phase == 0) {
        return say(setup);
    }
    *done = 1;
    return hear(setup);
}

KvgStatus kvg_stats_over_grid_start(KvgPlacement *placement, KvgStats *ranks, KvgStats *total, KvgSetup **setup)
{
    StatsState *state;

    if (placement == NULL || setup == NULL || (ranks != NULL && !kvg_stats_serves(ranks->size)) || (total != NULL && !kvg_stats_serves(total->size))) {
        return kvg_fail(KVG_EINVAL, "kvg_stats_over_grid needs a placement, and places for counters whose size is set (or NULL)");
    }
    if (placement->grid->state == KVG_EINDOUBT) {
        return kvg_grid_usable(placement->grid);
    }
    KVG_TRY(kvg_grid_no_run(placement->grid));
    KVG_TRY(kvg_setup_new(placement->grid, "kvg_stats_over_grid", sizeof *state, setup));
    state = (*setup)->state;
    *state = (StatsState){ .placement = placement, .ranks = ranks, .total = total };
    (*setup)->run = run;
    return KVG_OK;
}

KvgStatus kvg_stats_over_grid(KvgPlacement *placement, KvgStats *ranks, KvgStats *total)
{
    KvgSetup *setup = NULL;

    return kvg_setup_finish(kvg_stats_over_grid_start(placement, ranks, total, &setup), &setup);
}

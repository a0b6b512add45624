/* Resize: more or less memory for sequence state, by a vote of its own: prepare, vote, publish or cancel; and its memory made ahead. */
#include "pp/voted.h"

#include <string.h>

#include "runtime/base/checked.h"

typedef struct ResizeState {
    Voted         voted;
    uint64_t      memory_bytes;
    uint64_t     *state_bytes; /* [ranks] */
    KvGridPlan    plan;
    int           planned, prepared;
} ResizeState;

/* A class that the plan does not know has no layers: it stays. */
static void units_of(const KvgPlacement *placement, const KvGridPlan *plan, uint32_t *units)
{
    for (uint32_t c = 0; c < kvg_store_class_count(placement->store); c++) {
        units[c] = c < plan->class_count ? plan->classes[c].units : kvg_store_units_total(placement->store, c);
    }
}

/* An empty place limits nobody: as many as the most of its stage, which has the same layers. A newcomer there gives that many. */
static uint64_t bytes_of(const KvgGrid *grid, void *const *hellos, int rank)
{
    int      first = rank - rank % (int)grid->tp;
    uint64_t most = 0;

    if (hellos[rank] != NULL) {
        return ((const VotedHello *)hellos[rank])->value;
    }
    for (int other = first; other < first + (int)grid->tp; other++) {
        if (hellos[other] != NULL) most = kvg_max_u64(most, ((const VotedHello *)hellos[other])->value);
    }
    return most;
}

static KvgStatus prepare(ResizeState *state, void *const *hellos)
{
    KvgPlacement *placement = state->voted.placement;
    uint32_t      units[KVG_CLASSES_MAX] = { 0 };
    int           ranks = placement->grid->ranks;

    KVG_TRY(KVG_NEW((size_t)ranks, "a resize", &state->state_bytes));
    for (int rank = 0; rank < ranks; rank++) {
        state->state_bytes[rank] = bytes_of(placement->grid, hellos, rank);
    }
    KVG_TRY(kvg_placement_replan(placement, state->state_bytes, &state->plan));
    state->planned = 1;
    units_of(placement, &state->plan, units);
    KVG_TRY(kvg_store_resize_prepare(placement->store, units));
    state->prepared = 1;
    return KVG_OK;
}

static KvgStatus phase_prepare(KvgSetup *setup)
{
    ResizeState *state = setup->state;

    KVG_TRY(kvg_voted_together(setup));
    if (!state->voted.answered) {
        kvg_voted_answer(setup, prepare(state, setup->gather.body));
    }
    return kvg_voted_cast(setup);
}

static void posted(KvgSetup *setup)
{
    const ResizeState  *state = setup->state;
    const KvgPlacement *placement = state->voted.placement;

    kvg_grid_posted(setup->grid, "resize", kvg_placement_id(placement, state->plan.classes[0].units), setup->grid->votes->begun, KVG_OK);
}

static void publish(KvgSetup *setup)
{
    ResizeState  *state = setup->state;
    KvgPlacement *placement = state->voted.placement;

    kvg_store_resize_publish(placement->store);
    state->prepared = 0;
    kvg_grid_plan_free(&placement->plan);
    placement->plan = state->plan;
    state->planned = 0;
    memcpy(placement->state_bytes, state->state_bytes, (size_t)placement->grid->ranks * sizeof *state->state_bytes);
    placement->options.memory_bytes = state->memory_bytes;
    placement->stats.resizes++;
}

static KvgStatus run(KvgSetup *setup, int *done)
{
    switch (setup->phase) {
    case 0:  return kvg_voted_say(setup, ((const ResizeState *)setup->state)->memory_bytes);
    case 1:  return phase_prepare(setup);
    default: return kvg_voted_publish(setup, "no rank was resized", done);
    }
}

static void undo(KvgSetup *setup)
{
    ResizeState *state = setup->state;
    if (state->prepared) {
        kvg_store_resize_cancel(state->voted.placement->store);
        state->prepared = 0;
    }
}

static void drop(KvgSetup *setup)
{
    ResizeState *state = setup->state;
    if (state->planned) {
        kvg_grid_plan_free(&state->plan);
    }
    kvg_free(state->state_bytes);
}

KvgStatus kvg_placement_resize_start(KvgPlacement *placement, uint64_t memory_bytes, KvgSetup **setup)
{
    ResizeState *state;

    if (placement == NULL || setup == NULL || memory_bytes == 0) {
        return kvg_fail(KVG_EINVAL, "kvg_placement_resize needs a placement and a number of bytes above 0");
    }
    KVG_TRY(kvg_placement_awake(placement));
    KVG_TRY(kvg_voted_start(placement, "kvg_placement_resize", sizeof *state, setup));
    state = (*setup)->state;
    state->memory_bytes = memory_bytes;
    (*setup)->run = run;
    (*setup)->posted = posted;
    (*setup)->publish = publish;
    (*setup)->undo = undo;
    (*setup)->drop = drop;
    return KVG_OK;
}

KvgStatus kvg_placement_resize(KvgPlacement *placement, uint64_t memory_bytes)
{
    KvgSetup *setup = NULL;
    return kvg_setup_finish(kvg_placement_resize_start(placement, memory_bytes, &setup), &setup);
}

/* ---- ahead */

/* Units follow the smallest rank, whose bytes are not known here: as if all gave as many. What a resize then does not need, it gives back. */
static KvgStatus plan_ahead(const KvgPlacement *placement, uint64_t memory_bytes, uint32_t *units)
{
    int        ranks = placement->grid->ranks;
    void      *memory = NULL;
    KvGridPlan plan;

    KVG_TRY(kvg_calloc((size_t)ranks, sizeof(uint64_t), "slabs made ahead", &memory));
    for (int rank = 0; rank < ranks; rank++) {
        ((uint64_t *)memory)[rank] = memory_bytes;
    }
    KvgStatus status = kvg_placement_replan(placement, memory, &plan);
    kvg_free(memory);
    KVG_TRY(status);
    units_of(placement, &plan, units);
    kvg_grid_plan_free(&plan);
    return KVG_OK;
}

KvgStatus kvg_placement_prepare(KvgPlacement *placement, uint64_t memory_bytes)
{
    uint32_t units[KVG_CLASSES_MAX] = { 0 };

    if (placement == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_placement_prepare needs a placement");
    }
    KVG_TRY(kvg_placement_awake(placement));
    if (memory_bytes > 0) {
        KVG_TRY(plan_ahead(placement, memory_bytes, units));
    }
    return kvg_store_ahead(placement->store, units);
}

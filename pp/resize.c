/* Resize: more or less memory for sequence state, by a vote of its own: prepare, vote, publish or cancel. */
#include "pp/internal.h"

#include <stdio.h>
#include <string.h>

typedef struct ResizeHello { /* crosses the wire */
    uint64_t memory_bytes, running, begun;
} ResizeHello;

typedef struct ResizeState {
    KvgPlacement *placement;
    uint64_t      memory_bytes;
    uint64_t     *state_bytes; /* [ranks] */
    KvGridPlan    plan;
    int           planned, prepared;
    KvgStatus     local;
    char          local_why[384];
} ResizeState;

/* When a step is decided is each rank's own matter: the call waits for that, so that no rank answers EBUSY while another goes on. */
static KvgStatus decide_all(KvgVotes *votes, int *done)
{
    *done = 1;
    while (*done && votes->decided != votes->begun) {
        KvgStep *step = kvg_step_at(votes, votes->decided + 1);
        kvg_step_test(step, done, NULL); /* the step's own outcome is no failure of the resize */
        if (!*done) {
            KVG_TRY(kvg_grid_usable(votes->grid));
        }
    }
    return KVG_OK;
}

static KvgStatus phase_say(KvgSetup *setup)
{
    ResizeState *state = setup->state;
    int          done;

    KVG_TRY(decide_all(setup->grid->votes, &done));
    if (!done) {
        return KVG_OK; /* runs again */
    }
    ResizeHello  hello = { state->memory_bytes, setup->grid->running, setup->grid->votes->begun };

    return kvg_setup_gather(setup, &hello, sizeof hello);
}

static KvgStatus check_together(const KvgSetup *setup)
{
    const ResizeHello *first = setup->gather.body[0];

    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        const ResizeHello *hello = setup->gather.body[rank];
        if (setup->gather.bytes[rank] != sizeof *hello || hello->running != first->running || hello->begun != first->begun) {
            return kvg_fail(KVG_ELAYOUT, "resize: rank 0 and rank %d are at different points: posted calls and steps must come in the same order on "
                            "all ranks", rank);
        }
    }
    return KVG_OK;
}

static KvgStatus prepare(ResizeState *state, void *const *hellos)
{
    uint32_t units[KVG_CLASSES_MAX] = { 0 };
    int      ranks = state->placement->grid->ranks;
    void    *memory = NULL;

    KVG_TRY(kvg_calloc((size_t)ranks, sizeof(uint64_t), "a resize", &memory));
    state->state_bytes = memory;
    for (int rank = 0; rank < ranks; rank++) {
        state->state_bytes[rank] = ((const ResizeHello *)hellos[rank])->memory_bytes;
    }
    KVG_TRY(kvg_placement_replan(state->placement, state->state_bytes, &state->plan));
    state->planned = 1;
    for (uint32_t c = 0; c < kvg_store_class_count(state->placement->store); c++) { /* a class that the plan does not know has no layers: it stays */
        units[c] = c < state->plan.class_count ? state->plan.classes[c].units : kvg_store_units_total(state->placement->store, c);
    }
    KVG_TRY(kvg_store_resize_prepare(state->placement->store, units));
    state->prepared = 1;
    return KVG_OK;
}

static KvgStatus phase_prepare(KvgSetup *setup)
{
    ResizeState *state = setup->state;
    uint64_t     vote;

    KVG_TRY(check_together(setup));
    state->local = prepare(state, setup->gather.body);
    if (state->local != KVG_OK) {
        snprintf(state->local_why, sizeof state->local_why, "%s", kvg_last_error());
    }
    vote = (uint64_t)state->local;
    return kvg_setup_gather(setup, &vote, sizeof vote);
}

static KvgStatus check_votes(const KvgSetup *setup)
{
    const ResizeState *state = setup->state;

    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        uint64_t vote = 0;
        memcpy(&vote, setup->gather.body[rank], setup->gather.bytes[rank] < sizeof vote ? setup->gather.bytes[rank] : sizeof vote);
        if (vote != KVG_OK) {
            return kvg_fail(KVG_EREFUSED, "no rank was resized: rank %d answers %s%s%s", rank, kvg_status_name((KvgStatus)vote),
                            rank == setup->grid->rank ? ": " : "", rank == setup->grid->rank ? state->local_why : "");
        }
    }
    return KVG_OK;
}

static void publish(ResizeState *state)
{
    KvgPlacement *placement = state->placement;

    kvg_store_resize_publish(placement->store);
    state->prepared = 0;
    kvg_grid_plan_free(&placement->plan);
    placement->plan = state->plan;
    state->planned = 0;
    memcpy(placement->state_bytes, state->state_bytes, (size_t)placement->grid->ranks * sizeof *state->state_bytes);
    placement->options.memory_bytes = state->memory_bytes;
    placement->stats.resizes++;
    kvg_grid_posted(placement->grid, "resize", kvg_placement_id(placement, placement->plan.classes[0].units), placement->grid->votes->begun, KVG_OK);
}

static KvgStatus run(KvgSetup *setup, int *done)
{
    switch (setup->phase) {
    case 0: return phase_say(setup);
    case 1: return phase_prepare(setup);
    default:
        KVG_TRY(check_votes(setup));
        publish(setup->state);
        *done = 1;
        return KVG_OK;
    }
}

static void undo(KvgSetup *setup)
{
    ResizeState *state = setup->state;
    if (state->prepared) {
        kvg_store_resize_cancel(state->placement->store);
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
    KVG_TRY(kvg_grid_whole(placement->grid));
    KVG_TRY(kvg_grid_no_run(placement->grid));
    const KvgVotes *votes = placement->grid->votes;
    for (uint64_t number = votes->decided + 1; number <= votes->begun; number++) {
        if (kvg_step_at(placement->grid->votes, number)->state == KVG_STEP_BEGUN) {
            return kvg_fail(KVG_EBUSY, "step %llu is begun and not posted: post it before a resize", (unsigned long long)number);
        }
    }
    KVG_TRY(kvg_setup_new(placement->grid, "kvg_placement_resize", sizeof *state, setup));
    state = (*setup)->state;
    state->placement = placement;
    state->memory_bytes = memory_bytes;
    (*setup)->run = run;
    (*setup)->undo = undo;
    (*setup)->drop = drop;
    return KVG_OK;
}

KvgStatus kvg_placement_resize(KvgPlacement *placement, uint64_t memory_bytes)
{
    KvgSetup *setup = NULL;
    return kvg_setup_finish(kvg_placement_resize_start(placement, memory_bytes, &setup), &setup);
}

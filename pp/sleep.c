/* Sleep and wake: the memory of a placement's sequence state goes back to the device and comes again at the same addresses, by a vote: all ranks
 * sleep or none does, all are awake or none is. Whether sequences are open is agreed state, so that every rank gives the same answer. */
#include "pp/voted.h"

typedef struct SleepState {
    Voted voted;
    int   woken; /* the memory is had again, and not everybody has said so */
} SleepState;

static void publish(KvgPlacement *placement, const char *call, int asleep)
{
    placement->asleep = asleep;
    kvg_grid_posted(placement->grid, call, kvg_placement_id(placement, 0), placement->grid->votes->begun, KVG_OK);
}

/* ---- sleep */

static KvgStatus check_closed(const KvgPlacement *placement)
{
    uint32_t open = placement->options.max_sequences - placement->free_count;

    if (open == 0) {
        return KVG_OK;
    }
    return kvg_fail(KVG_EBUSY, "%u sequences are open: close them before kvg_placement_sleep, which loses what they hold", open);
}

static KvgStatus run_sleep(KvgSetup *setup, int *done)
{
    KvgPlacement *placement = ((const Voted *)setup->state)->placement;

    switch (setup->phase) {
    case 0: return kvg_voted_say(setup, 1);
    case 1:
        KVG_TRY(kvg_voted_together(setup));
        KVG_TRY(check_closed(placement)); /* agreed: no rank is left to vote */
        return kvg_voted_cast(setup, kvg_store_can_sleep(placement->store));
    default:
        KVG_TRY(kvg_voted_count(setup, "no rank sleeps"));
        kvg_store_sleep(placement->store);
        publish(placement, "sleep", 1);
        *done = 1;
        return KVG_OK;
    }
}

KvgStatus kvg_placement_sleep_start(KvgPlacement *placement, KvgSetup **setup)
{
    if (placement == NULL || setup == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_placement_sleep needs a placement and a place for the operation");
    }
    KVG_TRY(kvg_placement_awake(placement));
    KVG_TRY(kvg_voted_start(placement, "kvg_placement_sleep", sizeof(SleepState), setup));
    (*setup)->run = run_sleep;
    return KVG_OK;
}

KvgStatus kvg_placement_sleep(KvgPlacement *placement)
{
    KvgSetup *setup = NULL;
    return kvg_setup_finish(kvg_placement_sleep_start(placement, &setup), &setup);
}

/* ---- wake */

static KvgStatus get_memory(SleepState *state)
{
    KVG_TRY(kvg_store_wake_prepare(state->voted.placement->store));
    state->woken = 1;
    return KVG_OK;
}

static KvgStatus run_wake(KvgSetup *setup, int *done)
{
    SleepState   *state = setup->state;
    KvgPlacement *placement = state->voted.placement;

    switch (setup->phase) {
    case 0: return kvg_voted_say(setup, 0);
    case 1:
        KVG_TRY(kvg_voted_together(setup));
        return kvg_voted_cast(setup, get_memory(state));
    default:
        KVG_TRY(kvg_voted_count(setup, "every rank is still asleep"));
        kvg_store_wake_publish(placement->store);
        state->woken = 0;
        publish(placement, "wake", 0);
        *done = 1;
        return KVG_OK;
    }
}

static void undo_wake(KvgSetup *setup)
{
    SleepState *state = setup->state;

    if (state->woken) {
        kvg_store_wake_cancel(state->voted.placement->store);
        state->woken = 0;
    }
}

KvgStatus kvg_placement_wake_start(KvgPlacement *placement, KvgSetup **setup)
{
    if (placement == NULL || setup == NULL || !placement->asleep) {
        return kvg_fail(KVG_EINVAL, "kvg_placement_wake needs a placement that is asleep and a place for the operation");
    }
    KVG_TRY(kvg_voted_start(placement, "kvg_placement_wake", sizeof(SleepState), setup));
    (*setup)->run = run_wake;
    (*setup)->undo = undo_wake;
    return KVG_OK;
}

KvgStatus kvg_placement_wake(KvgPlacement *placement)
{
    KvgSetup *setup = NULL;
    return kvg_setup_finish(kvg_placement_wake_start(placement, &setup), &setup);
}

int kvg_placement_asleep(const KvgPlacement *placement)
{
    return placement->asleep;
}

/* Sleep and wake: the memory of a placement's sequence state goes back to the device and comes again at the same addresses, by a vote: all ranks
 * sleep or none does, all are awake or none is. Whether sequences are open is agreed state, so that every rank gives the same answer. */
#include "pp/voted.h"

typedef struct SleepState {
    Voted voted;
    int   woken; /* the memory is had again, and not everybody has said so */
} SleepState;

static KvgPlacement *placement_of(const KvgSetup *setup)
{
    return ((const Voted *)setup->state)->placement;
}

static void posted(const KvgSetup *setup, const char *call)
{
    kvg_grid_posted(setup->grid, call, kvg_placement_id(placement_of(setup), 0), setup->grid->votes->begun, KVG_OK);
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

static void posted_sleep(KvgSetup *setup)
{
    posted(setup, "sleep");
}

static void publish_sleep(KvgSetup *setup)
{
    kvg_store_sleep(placement_of(setup)->store);
    placement_of(setup)->asleep = 1;
}

static KvgStatus run_sleep(KvgSetup *setup, int *done)
{
    const KvgPlacement *placement = placement_of(setup);

    switch (setup->phase) {
    case 0: return kvg_voted_say(setup, 1);
    case 1:
        KVG_TRY(kvg_voted_together(setup));
        KVG_TRY(check_closed(placement)); /* agreed: no rank is left to vote */
        if (!((const Voted *)setup->state)->answered) {
            kvg_voted_answer(setup, kvg_store_can_sleep(placement->store));
        }
        return kvg_voted_cast(setup);
    default: return kvg_voted_publish(setup, "no rank sleeps", done);
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
    (*setup)->posted = posted_sleep;
    (*setup)->publish = publish_sleep;
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

static void posted_wake(KvgSetup *setup)
{
    posted(setup, "wake");
}

static void publish_wake(KvgSetup *setup)
{
    kvg_store_wake_publish(placement_of(setup)->store);
    ((SleepState *)setup->state)->woken = 0;
    placement_of(setup)->asleep = 0;
}

static KvgStatus run_wake(KvgSetup *setup, int *done)
{

    switch (setup->phase) {
    case 0: return kvg_voted_say(setup, 0);
    case 1:
        KVG_TRY(kvg_voted_together(setup));
        if (!((const Voted *)setup->state)->answered) {
            kvg_voted_answer(setup, get_memory(setup->state));
        }
        return kvg_voted_cast(setup);
    default: return kvg_voted_publish(setup, "every rank is still asleep", done);
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
    (*setup)->posted = posted_wake;
    (*setup)->publish = publish_wake;
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

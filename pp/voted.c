/* Voted changes of a placement's memory. */
#include "pp/voted.h"

#include <stdio.h>
#include <string.h>

KvgStatus kvg_placement_awake(const KvgPlacement *placement)
{
    return placement->asleep ? kvg_fail(KVG_EBUSY, "the placement is asleep and holds no memory: call kvg_placement_wake on every rank first") : KVG_OK;
}

/* A step that this rank has begun and not posted can be decided by nobody. */
static KvgStatus check_posted(KvgVotes *votes, const char *what)
{
    KVG_TRY(kvg_grid_no_run(votes->grid));
    for (uint64_t number = votes->decided + 1; number <= votes->begun; number++) {
        if (kvg_step_at(votes, number)->state == KVG_STEP_BEGUN) {
            return kvg_fail(KVG_EBUSY, "step %llu is begun and not posted: post it before %s", (unsigned long long)number, what);
        }
    }
    return KVG_OK;
}

KvgStatus kvg_voted_start(KvgPlacement *placement, const char *what, size_t state_bytes, KvgSetup **setup)
{
    KVG_TRY(kvg_grid_whole(placement->grid));
    KVG_TRY(check_posted(placement->grid->votes, what));
    KVG_TRY(kvg_setup_new(placement->grid, what, state_bytes, setup));
    ((Voted *)(*setup)->state)->placement = placement;
    return KVG_OK;
}

/* When a step is decided is each rank's own matter: the call waits for that, so that no rank answers EBUSY while another goes on. */
static KvgStatus decide_all(KvgVotes *votes, const char *what, int *done)
{
    KVG_TRY(check_posted(votes, what)); /* begun since the change was started: it would be waited for without end */
    *done = 1;
    while (*done && votes->decided != votes->begun) {
        KvgStep *step = kvg_step_at(votes, votes->decided + 1);
        kvg_step_test(step, done, NULL); /* the step's own outcome is no failure of the change */
        if (!*done) {
            KVG_TRY(kvg_grid_usable(votes->grid));
        }
    }
    return KVG_OK;
}

KvgStatus kvg_voted_say(KvgSetup *setup, uint64_t value)
{
    int done;

    KVG_TRY(decide_all(setup->grid->votes, setup->what, &done));
    if (!done) {
        return KVG_OK; /* runs again */
    }
    VotedHello hello = { value, setup->grid->running, setup->grid->votes->begun };

    return kvg_setup_gather(setup, &hello, sizeof hello);
}

KvgStatus kvg_voted_together(const KvgSetup *setup)
{
    int               lowest = kvg_grid_first(setup->grid);
    const VotedHello *first = setup->gather.body[lowest];

    for (int rank = lowest; rank < setup->grid->ranks; rank++) {
        const VotedHello *hello = setup->gather.body[rank];
        if (hello == NULL) {
            continue; /* left out */
        }
        if (setup->gather.bytes[rank] != sizeof *hello || hello->running != first->running || hello->begun != first->begun) {
            return kvg_fail(KVG_ELAYOUT, "%s: rank %d and rank %d are at different points: posted calls and steps must come in the same order on "
                            "all ranks", setup->what, lowest, rank);
        }
    }
    return KVG_OK;
}

void kvg_voted_answer(KvgSetup *setup, KvgStatus local)
{
    Voted *voted = setup->state;

    if (local == KVG_OK && setup->grid->cast != NULL) {
        local = kvg_fail(KVG_EBUSY, "%s of this grid has not ended yet; one change at a time is voted on", setup->grid->cast->what);
    }
    voted->answered = 1;
    voted->answered_ns = kvg_grid_now(setup->grid);
    voted->local = local;
    if (local != KVG_OK) {
        snprintf(voted->local_why, sizeof voted->local_why, "%s", kvg_last_error());
    }
}

KvgStatus kvg_voted_cast(KvgSetup *setup)
{
    const Voted *voted = setup->state;
    uint64_t     vote = (uint64_t)voted->local;
    KvgStatus    status = kvg_setup_gather(setup, &vote, sizeof vote);

    if (status == KVG_ENOMEM && kvg_grid_now(setup->grid) - voted->answered_ns < setup->grid->timeout_ns) {
        return KVG_OK; /* runs again */
    }
    if (status == KVG_OK && voted->local == KVG_OK) {
        setup->grid->cast = setup; /* from here on others may publish */
    }
    return status;
}

KvgStatus kvg_voted_count(const KvgSetup *setup, const char *none)
{
    const Voted *voted = setup->state;

    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        uint64_t vote = KVG_EFORMAT; /* what is no vote is no yes */
        if (setup->gather.body[rank] == NULL) {
            continue; /* left out */
        }
        if (setup->gather.bytes[rank] == sizeof vote) {
            memcpy(&vote, setup->gather.body[rank], sizeof vote);
        }
        if (vote != KVG_OK) {
            return kvg_fail(KVG_EREFUSED, "%s: rank %d answers %s%s%s", none, rank, kvg_status_name((KvgStatus)vote),
                            rank == setup->grid->rank ? ": " : "", rank == setup->grid->rank ? voted->local_why : "");
        }
    }
    return KVG_OK;
}

KvgStatus kvg_voted_publish(KvgSetup *setup, const char *none, int *done)
{
    KVG_TRY(kvg_voted_count(setup, none));
    setup->posted(setup);
    setup->publish(setup);
    setup->grid->cast = NULL;
    setup->grid->changes++;
    *done = 1;
    return KVG_OK;
}

/* ---- in doubt */

uint64_t kvg_voted_running(const KvgGrid *grid)
{
    KvgSetup *setup = grid->cast;
    uint64_t  before = grid->running, after;

    if (setup == NULL) {
        return 0;
    }
    setup->posted(setup);
    after = grid->running;
    setup->grid->running = before;
    return after;
}

void kvg_voted_resolve(KvgGrid *grid, int published)
{
    KvgSetup *setup = grid->cast;

    if (setup == NULL) {
        return;
    }
    if (published) {
        setup->posted(setup);
        setup->publish(setup);
        grid->changes++;
    } else if (setup->undo != NULL) {
        setup->undo(setup);
    }
    grid->cast = NULL;
    if (setup->orphan) {
        kvg_setup_free(setup);
    }
}

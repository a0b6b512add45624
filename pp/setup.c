/* Setup: collective operations as phases, each of which ends in a gather; nothing here blocks but kvg_setup_wait. */
#include "pp/internal.h"

#include <stdio.h>
#include <string.h>

KvgStatus kvg_setup_new(KvgGrid *grid, const char *what, size_t state_bytes, KvgSetup **setup)
{
    void    *fresh = NULL, *state = NULL;
    uint64_t tag = ++grid->setup_tag << 32; /* counted even if this rank now fails: the others count too */

    KVG_TRY(kvg_calloc(1, sizeof(KvgSetup), what, &fresh));
    KvgStatus status = kvg_calloc(1, state_bytes, what, &state);
    if (status != KVG_OK) {
        kvg_free(fresh);
        return status;
    }
    *setup = fresh;
    (*setup)->grid = grid;
    (*setup)->what = what;
    (*setup)->kind = KVG_MESSAGE_SETUP;
    (*setup)->epoch = grid->epoch;
    (*setup)->tag = tag;
    (*setup)->state = state;
    return KVG_OK;
}

KvgStatus kvg_setup_gather_to(KvgSetup *setup, const uint8_t *receiver, const void *body, size_t bytes)
{
    KvgGrid       *grid = setup->grid;
    /* Settling does not count: survivors may have made different numbers of set-up calls before the trouble. */
    uint64_t       tag = setup->kind == KVG_MESSAGE_SETTLE ? setup->tag : setup->tag + (uint64_t)setup->phase;
    const uint8_t *member = setup->member != NULL ? setup->member : grid->alive;

    KVG_TRY(kvg_gather_start(grid, setup->kind, tag, setup->what, member, receiver, body, bytes, &setup->next));
    setup->has_next = 1;
    return KVG_OK;
}

KvgStatus kvg_setup_gather(KvgSetup *setup, const void *body, size_t bytes)
{
    return kvg_setup_gather_to(setup, NULL, body, bytes);
}

static void drop_gather(KvgSetup *setup)
{
    if (setup->has_gather) {
        kvg_gather_free(&setup->gather);
        setup->has_gather = 0;
    }
}

/* This rank has voted yes and cannot know whether all did: others may have published. Only settling moves it on. */
static int is_in_doubt(const KvgSetup *setup, KvgStatus result)
{
    return setup->grid->cast == setup && (result == KVG_EPEER || result == KVG_EINDOUBT);
}

static void end(KvgSetup *setup, KvgStatus result)
{
    setup->done = 1;
    setup->result = result;
    snprintf(setup->why, sizeof setup->why, "%s", result == KVG_OK ? "" : kvg_last_error());
    drop_gather(setup);
    if (is_in_doubt(setup, result)) {
        kvg_grid_fail(setup->grid, KVG_EINDOUBT, "%s is in doubt: this rank has voted for it, and %.300s; it is neither made nor undone until "
                      "kvg_grid_settle", setup->what, setup->why);
        kvg_grid_stops(setup->grid); /* after a loss too, where the state had a cause before: others may have published, and post */
        return;
    }
    if (setup->grid->cast == setup) {
        setup->grid->cast = NULL;
    }
    if (result != KVG_OK && setup->undo != NULL) {
        setup->undo(setup);
    }
}

/* One phase. What it started becomes the gather that the next phase waits for; a phase that starts none runs again. */
static void run_phase(KvgSetup *setup)
{
    int       done = 0;
    KvgStatus status = setup->run(setup, &done);

    if (setup->has_next) {
        drop_gather(setup);
        setup->gather = setup->next;
        setup->has_gather = 1;
        setup->has_next = 0;
        setup->phase++;
    }
    if (status != KVG_OK || done) {
        end(setup, status);
    }
}

/* A settle that has begun since ends it, when its caller looks at it next: what this rank has told the others stays true, and a change that it voted for is
 * published or undone by the settle. */
static void cut_short(KvgSetup *setup)
{
    const KvgGrid *grid = setup->grid;

    if (!setup->done && setup->kind == KVG_MESSAGE_SETUP && (grid->settling || setup->epoch != grid->epoch)) {
        end(setup, kvg_fail(KVG_EPEER, "%s: a settle has begun on this rank, which ends all that was under way", setup->what));
    }
}

KvgStatus kvg_setup_test(KvgSetup *setup, int *done)
{
    int arrived = 1;

    if (setup == NULL || done == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_setup_test needs a set-up operation and a place for the answer");
    }
    cut_short(setup);
    if (!setup->done && setup->has_gather) {
        KvgStatus status = kvg_gather_test(&setup->gather, &arrived);
        if (status != KVG_OK) {
            end(setup, status);
        }
    }
    if (!setup->done && arrived) {
        run_phase(setup);
    }
    *done = setup->done;
    return setup->done && setup->result != KVG_OK ? kvg_fail(setup->result, "%s", setup->why) : KVG_OK;
}

KvgStatus kvg_setup_wait(KvgSetup *setup)
{
    KvgStatus status;
    int       done = 0;

    if (setup == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_setup_wait: no set-up operation was given");
    }
    for (uint64_t rounds = 0;; rounds++) {
        status = kvg_setup_test(setup, &done);
        if (done) {
            break;
        }
        setup->grid->comm.ops->relax(setup->grid->comm.self, rounds);
    }
    kvg_setup_free(setup);
    return status;
}

void kvg_setup_free(KvgSetup *setup)
{
    if (setup == NULL) {
        return;
    }
    cut_short(setup);
    if (!setup->done) {
        kvg_grid_fail(setup->grid, KVG_EINDOUBT, "%s was given up before it ended; settle the grid or destroy it", setup->what);
        kvg_fail(KVG_EINDOUBT, "%s was given up before it ended", setup->what);
        end(setup, KVG_EINDOUBT);
    }
    if (setup->grid->cast == setup) {
        setup->orphan = 1;
        return;
    }
    if (setup->drop != NULL) {
        setup->drop(setup);
    }
    kvg_free(setup->member);
    kvg_free(setup->state);
    kvg_free(setup);
}

KvgStatus kvg_setup_finish(KvgStatus started, KvgSetup *const *setup)
{
    return started != KVG_OK ? started : kvg_setup_wait(*setup);
}

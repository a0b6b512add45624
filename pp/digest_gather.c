/* The digest of a sequence over all ranks: each gives its leaves, each forms the same digest. */
#include "pp/internal.h"

#include <stdio.h>
#include <string.h>

typedef struct DigestState {
    KvgSequence *sequence;
    KvDigest    *digest;
    KvLeaf      *leaves; /* of all ranks */
    KvgStatus    local;
    char         local_why[256];
} DigestState;

/* What a rank sends: its status, then its leaves if that is OK. */
typedef struct DigestHello { /* crosses the wire */
    uint64_t status;
    KvLeaf   leaves[];
} DigestHello;

/* A rank that has no leaves to give says so, instead of leaving the others waiting. */
static KvgStatus phase_leaves(KvgSetup *setup)
{
    DigestState *state = setup->state;
    KvCache     *cache = &state->sequence->cache;
    size_t       count = kvg_kv_cache_leaf_count(cache);
    DigestHello  failed = { 0 }, *hello = &failed;
    void        *memory = NULL;
    KvgStatus    status;

    state->local = state->sequence->taint_pending ? kvg_fail(KVG_ETAINTED, "its rows are not provably intact on this rank; its next step says so to all") :
                                                    kvg_calloc(1, sizeof *hello + count * sizeof(KvLeaf), "leaves", &memory);
    if (state->local == KVG_OK) {
        hello = memory;
        state->local = kvg_kv_cache_leaves(cache, hello->leaves);
    }
    if (state->local != KVG_OK) {
        snprintf(state->local_why, sizeof state->local_why, "%s", kvg_last_error());
        count = 0;
    }
    hello->status = (uint64_t)state->local;
    status = kvg_setup_gather(setup, hello, sizeof *hello + count * sizeof(KvLeaf));
    kvg_free(memory);
    return status;
}

static KvgStatus check_hellos(const KvgSetup *setup, size_t *count)
{
    const DigestState *state = setup->state;

    if (state->local != KVG_OK) {
        return kvg_fail(state->local, "%s", state->local_why);
    }
    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        const DigestHello *hello = setup->gather.body[rank];
        if (hello == NULL) {
            continue; /* left out by a settle */
        }
        if (setup->gather.bytes[rank] < sizeof *hello || hello->status != KVG_OK) {
            return kvg_fail(KVG_EREFUSED, "no digest of sequence %llu: rank %d answers %s; its own message says why",
                            (unsigned long long)state->sequence->id, rank,
                            setup->gather.bytes[rank] < sizeof *hello ? "nothing" : kvg_status_name((KvgStatus)hello->status));
        }
        *count += (setup->gather.bytes[rank] - sizeof *hello) / sizeof(KvLeaf);
    }
    return KVG_OK;
}

static KvgStatus phase_combine(KvgSetup *setup)
{
    DigestState *state = setup->state;
    size_t       count = 0, at = 0;
    KvDigest     digest;

    KVG_TRY(check_hellos(setup, &count));
    KVG_TRY(KVG_NEW(count, "leaves", &state->leaves));
    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        const DigestHello *hello = setup->gather.body[rank];
        size_t             here = hello == NULL ? 0 : (setup->gather.bytes[rank] - sizeof *hello) / sizeof(KvLeaf);
        if (here > 0) {
            memcpy(&state->leaves[at], hello->leaves, here * sizeof(KvLeaf));
        }
        at += here;
    }
    KVG_TRY(kvg_digest_combine(state->leaves, count, state->sequence->cache.pos, &digest));
    *state->digest = digest;
    return KVG_OK;
}

static KvgStatus run(KvgSetup *setup, int *done)
{
    DigestState *state = setup->state;
    int          decided = 1;

    if (setup->phase > 0) {
        *done = 1;
        return phase_combine(setup);
    }
    if (kvg_sequence_in_step(state->sequence) == 2) { /* its last step first; this phase runs again until then */
        KvgStatus status = kvg_step_test(kvg_step_at(state->sequence->placement->grid->votes, state->sequence->last_step), &decided, NULL);
        if (!decided) {
            return status;
        }
    }
    return phase_leaves(setup);
}

static void drop(KvgSetup *setup)
{
    kvg_free(((DigestState *)setup->state)->leaves);
}

KvgStatus kvg_sequence_digest_start(KvgSequence *sequence, KvDigest *digest, KvgSetup **setup)
{
    DigestState *state;

    if (sequence == NULL || !sequence->open || digest == NULL || setup == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_sequence_digest needs an open sequence and places for what it makes");
    }
    if (sequence->placement->grid->state == KVG_EINDOUBT || sequence->placement->grid->rebuilding) {
        return kvg_grid_usable(sequence->placement->grid);
    }
    KVG_TRY(kvg_grid_no_run(sequence->placement->grid)); /* its device may be further than is known here */
    if (kvg_sequence_in_step(sequence) == 1) {
        return kvg_fail(KVG_EBUSY, "sequence %llu is in a step that is begun and not posted", (unsigned long long)sequence->id);
    }
    if (sequence->cache.tainted) {
        return kvg_fail(KVG_ETAINTED, "sequence %llu is tainted: it has no digest", (unsigned long long)sequence->id);
    }
    KVG_TRY(kvg_setup_new(sequence->placement->grid, "kvg_sequence_digest", sizeof *state, setup));
    state = (*setup)->state;
    state->sequence = sequence;
    state->digest = digest;
    (*setup)->run = run;
    (*setup)->drop = drop;
    return KVG_OK;
}

KvgStatus kvg_sequence_digest(KvgSequence *sequence, KvDigest *digest)
{
    KvgSetup *setup = NULL;
    return kvg_setup_finish(kvg_sequence_digest_start(sequence, digest, &setup), &setup);
}

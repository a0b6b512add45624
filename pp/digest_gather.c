/* The digest of a sequence over all ranks: each gives its leaves, each forms the same digest. */
#include "pp/internal.h"

#include <string.h>

typedef struct DigestState {
    KvgSequence *sequence;
    KvDigest    *digest;
    KvLeaf      *leaves; /* of all ranks */
} DigestState;

static KvgStatus phase_leaves(KvgSetup *setup)
{
    DigestState *state = setup->state;
    KvgSequence *sequence = state->sequence;
    size_t       count = kvg_kv_cache_leaf_count(&sequence->cache);
    void        *leaves = NULL;
    KvgStatus    status;

    KVG_TRY(kvg_calloc(count, sizeof(KvLeaf), "leaves", &leaves));
    status = kvg_kv_cache_leaves(&sequence->cache, leaves);
    if (status == KVG_OK) {
        status = kvg_setup_gather(setup, leaves, count * sizeof(KvLeaf));
    }
    kvg_free(leaves);
    return status;
}

static KvgStatus phase_combine(KvgSetup *setup)
{
    DigestState *state = setup->state;
    size_t       count = 0, at = 0;
    void        *leaves = NULL;
    KvDigest     digest;

    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        count += setup->gather.bytes[rank] / sizeof(KvLeaf);
    }
    KVG_TRY(kvg_calloc(count, sizeof(KvLeaf), "leaves", &leaves));
    state->leaves = leaves;
    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        size_t here = setup->gather.bytes[rank] / sizeof(KvLeaf);
        if (here > 0) {
            memcpy(&state->leaves[at], setup->gather.body[rank], here * sizeof(KvLeaf));
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
    if (sequence->placement->grid->state == KVG_EINDOUBT) {
        return kvg_grid_usable(sequence->placement->grid);
    }
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

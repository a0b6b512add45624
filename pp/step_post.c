/* Step, the act of posting: one record says what this rank staged, and whether it is ready. */
#include "pp/internal.h"
#include "runtime/base/traced.h"

#include <stdio.h>
#include <string.h>

static uint64_t targets_digest(const KvgStep *step)
{
    uint64_t sum = step->running;

    for (uint32_t i = 0; i < step->count; i++) {
        const KvStepEntry *entry = &step->entries[i];
        sum += kvg_mix_term(i, entry->id, entry->generation, entry->base_rows + entry->staged);
    }
    return kvg_digest_seal(sum);
}

static uint64_t layout_digest(const KvgStep *step)
{
    uint64_t sum = 0;

    for (uint32_t b = 0; b < step->batch_count; b++) {
        if (step->placement[b] != NULL) { /* else destroyed since the step began */
            sum += kvg_mix_term(b, step->placement[b]->number, 0, step->placement[b]->layout_seed);
        }
    }
    for (uint32_t i = 0; i < step->count; i++) {
        if (step->entries[i].sequence != NULL) {
            sum += kvg_kv_cache_layout_term(&step->entries[i].sequence->cache, i);
        }
    }
    return kvg_digest_seal(sum);
}

/* Stores the counts this rank passes and digests them. EINVAL: a count that is more than was staged. */
static KvgStatus pack_accepted(const KvgStep *step, const KvgCommit *commit, uint16_t *stored, uint64_t *digest)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < step->count; i++) {
        const KvStepEntry *entry = &step->entries[i];
        stored[i] = KVG_VOTE_ACCEPTED_ALL;
        if (!commit->accept_all && commit->accepted[entry->slot] != entry->staged) {
            KVG_TRY(kvg_vote_accepted_pack(commit->accepted[entry->slot], entry->staged, &stored[i]));
        }
        sum += kvg_mix_term(i, entry->id, entry->generation, stored[i]);
    }
    *digest = kvg_digest_seal(sum);
    return KVG_OK;
}

static KvgStatus take_commit(const KvgStep *step, const KvgCommit *given, KvgCommit *commit)
{
    static const KvgCommit defaults = KVG_COMMIT_INIT;

    if (step == NULL || step->state != KVG_STEP_BEGUN) {
        return kvg_fail(KVG_ESTALE, "only a step that is begun and not posted can be posted");
    }
    if (given == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_step_post needs a commit: start from KVG_COMMIT_INIT");
    }
    KVG_TRY(KVG_SIZED_IN(KvgCommit, given, defaults, *commit));
    if ((unsigned)commit->refuse >= KVG_STATUS_COUNT ||
        (commit->accept_all && commit->accepted != NULL)) {
        return kvg_fail(KVG_EINVAL, "kvg_step_post: start from KVG_COMMIT_INIT; give accepted counts or accept_all, not both; refuse is a status code");
    }
    return KVG_OK;
}

/* Which "no" this rank votes, if any. Taint says which sequences in the accepted counts' place. */
static KvgStatus own_no(KvgStep *step, const KvgCommit *commit)
{
    if (step->any_taint) {
        snprintf(step->local_why, sizeof step->local_why, "a sequence is tainted on this rank");
        return KVG_ETAINTED;
    }
    if (step->local == KVG_OK && commit->refuse != KVG_OK) {
        snprintf(step->local_why, sizeof step->local_why, "the engine refused with %s", kvg_status_name(commit->refuse));
        step->local = commit->refuse;
    }
    return step->local;
}

static void mark_tainted(const KvgStep *step, uint16_t *stored)
{
    for (uint32_t i = 0; i < step->count; i++) {
        const KvgSequence *sequence = step->entries[i].sequence;
        stored[i] = sequence != NULL && sequence->taint_pending;
    }
}

/* ---- sending */

/* A want of memory is no answer to the others, who would wait for the record: it is sent by a later turn. */
static KvgStatus send_record(KvgStep *step)
{
    KvgVotes *votes = step->votes;
    KvgGrid  *grid = votes->grid;
    KvgStatus status = grid->ranks > 1 ? grid->comm.ops->post(grid->comm.self, kvg_records_slot(votes, step->number)->record[grid->rank]) : KVG_OK;
    int       unsent = status == KVG_ENOMEM;

    votes->unsent += (uint32_t)unsent;
    votes->unsent -= (uint32_t)step->unsent;
    step->unsent = unsent;
    return unsent ? KVG_OK : status;
}

int kvg_step_sent(KvgStep *step)
{
    return !step->unsent || (send_record(step) == KVG_OK && !step->unsent);
}

void kvg_votes_send(KvgVotes *votes)
{
    for (uint32_t i = 0; votes->unsent > 0 && i < votes->ring; i++) {
        kvg_step_sent(&votes->steps[i]);
    }
}

static KvgStatus post(KvgStep *step, const KvgCommit *commit)
{
    KVG_TRY(kvg_grid_usable(step->votes->grid)); /* in doubt a rank posts nothing more */
    KvgVotes     *votes = step->votes;
    KvgGrid      *grid = votes->grid;
    KvRecordSlot *slot = kvg_records_slot(votes, step->number);
    KvVoteRecord *record = slot->record[grid->rank];
    KvgStatus     no;

    *record = (KvVoteRecord){ .step = step->number, .epoch = grid->epoch, .rank = (uint16_t)grid->rank,
                              .user = commit->user_digest, .decided = votes->decided, .count = step->count };
    if (commit->accept_all || commit->accepted != NULL) {
        KVG_TRY(pack_accepted(step, commit, record->accepted_rows, &record->accepted));
    }
    no = own_no(step, commit);
    if (no != KVG_OK) {
        record->accepted = 0;
        if (no == KVG_ETAINTED) {
            mark_tainted(step, record->accepted_rows);
        }
    }
    record->status = (int16_t)no;
    record->targets = targets_digest(step);
    record->layout = layout_digest(step);
    kvg_records_own(votes, step->number);
    step->state = KVG_STEP_POSTED;
    step->posted_ns = kvg_grid_now(grid);
    kvg_step_close_batches(step);
    return send_record(step);
}

KvgStatus kvg_step_post(KvgStep *step, const KvgCommit *given)
{
    KvgCommit own, *commit = &own;

    KVG_TRY(take_commit(step, given, commit));
    KVG_RETURN_RANGED(KVG_RANGE_POST, step->number, post(step, commit));
}

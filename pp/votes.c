/* Votes: places for steps and their records, made once for all placements of a grid. */
#include "pp/internal.h"

static KvgStatus create_step(KvgVotes *votes, KvgStep *step)
{
    uint32_t most = votes->max_step_sequences;

    step->votes = votes;
    KVG_TRY(KVG_NEW(most, "steps", &step->entries));
    KVG_TRY(KVG_NEW(most, "steps", &step->rows));
    KVG_TRY(KVG_NEW(most, "steps", &step->accepted));
    KVG_TRY(KVG_NEW(most, "steps", &step->replay));
    KVG_TRY(KVG_NEW(most, "steps", &step->first_row));
    KVG_TRY(KVG_NEW(most, "steps", &step->refusal));
    return KVG_OK;
}

static KvgStatus create_parts(KvgVotes *votes)
{
    KVG_TRY(KVG_NEW(votes->ring, "steps", &votes->steps));
    for (uint32_t i = 0; i < votes->ring; i++) {
        KVG_TRY(create_step(votes, &votes->steps[i]));
    }
    KVG_TRY(kvg_records_create(votes));
    return votes->grid->comm.ops->records_open(votes->grid->comm.self, votes->record_bytes);
}

KvgStatus kvg_votes_create(KvgGrid *grid, uint32_t max_step_sequences, KvgVotes **votes_p)
{
    KvgVotes *votes;
    KvgStatus status;

    KVG_TRY(KVG_NEW(1, "votes", &votes));
    votes->grid = grid;
    votes->max_step_sequences = max_step_sequences;
    votes->record_bytes = kvg_vote_record_bytes(max_step_sequences);
    votes->ring = 2 * grid->window;
    status = create_parts(votes);
    if (status != KVG_OK) {
        kvg_votes_free(votes);
        return status;
    }
    *votes_p = votes;
    return KVG_OK;
}

void kvg_votes_forget(KvgVotes *votes, const KvgPlacement *placement)
{
    for (uint32_t s = 0; s < votes->ring; s++) {
        KvgStep *step = &votes->steps[s];
        for (uint32_t i = 0; i < step->count; i++) {
            if (step->entries[i].sequence != NULL && step->entries[i].sequence->placement == placement) {
                step->entries[i].sequence = NULL;
            }
        }
        for (uint32_t b = 0; b < step->batch_count; b++) {
            step->placement[b] = step->placement[b] == placement ? NULL : step->placement[b];
        }
    }
}

void kvg_votes_free(KvgVotes *votes)
{
    if (votes == NULL) {
        return;
    }
    for (uint32_t i = 0; votes->steps != NULL && i < votes->ring; i++) {
        KvgStep *step = &votes->steps[i];
        if (step->state == KVG_STEP_COMPARING) {
            kvg_gather_free(&step->running_gather);
        }
        kvg_free(step->entries);
        kvg_free(step->rows);
        kvg_free(step->accepted);
        kvg_free(step->replay);
        kvg_free(step->first_row);
        kvg_free(step->refusal);
    }
    kvg_free(votes->steps);
    kvg_records_destroy(votes);
    kvg_free(votes);
}

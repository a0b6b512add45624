/* Step, first half: what a step covers is planned here and changes no committed state. */
#include "pp/run_impl.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/traced.h"

/* What a step is asked to cover: rows for each place of one batch or several. */
typedef struct Asked {
    KvgBatch *const       *batches;
    const uint32_t *const *rows; /* [count][slots] */
    uint32_t               count;
} Asked;

/* ---- what must be over first */

/* Steps up to m-W are decided; one that this rank has not even posted can never be. */
static KvgStatus await_window(KvgVotes *votes)
{
    uint64_t next = votes->begun + 1, window = votes->grid->window;

    while (votes->decided + window < next) {
        KvgStep *step = kvg_step_at(votes, votes->decided + 1);
        if (step->state == KVG_STEP_BEGUN) {
            return kvg_fail(KVG_EBUSY, "%llu steps are undecided and step %llu is begun and not posted here; post it before another begins",
                            (unsigned long long)window, (unsigned long long)step->number);
        }
        KVG_TRY(kvg_step_await(step));
    }
    return KVG_OK;
}

static KvgStatus await_place(const KvgBatch *batch, uint32_t slot, uint32_t rows)
{
    KvgSequence *sequence = kvg_batch_at(batch, slot);

    if (rows == 0) {
        return KVG_OK;
    }
    if (sequence == NULL) {
        return kvg_fail(KVG_EINVAL, "place %u of the batch is asked for %u rows and holds no open sequence; kvg_batch_set one or ask for 0", slot, rows);
    }
    return kvg_sequence_in_step(sequence) == 2 ? kvg_step_await(kvg_step_at(batch->placement->grid->votes, sequence->last_step)) : KVG_OK;
}

static KvgStatus await_named(const Asked *asked)
{
    for (uint32_t b = 0; b < asked->count; b++) {
        for (uint32_t slot = 0; slot < asked->batches[b]->slots; slot++) {
            KVG_TRY(await_place(asked->batches[b], slot, asked->rows[b][slot]));
        }
    }
    return KVG_OK;
}

/* Frees what fell behind windows, at the moment that all ranks share: in steps up to m-W, and in the named sequences. A sequence that a later
 * step has named since was freed by that step's begin. */
void kvg_votes_release(KvgVotes *votes, uint64_t upto)
{
    for (; votes->released < upto; votes->released++) {
        KvgStep *step = kvg_step_at(votes, votes->released + 1);
        for (uint32_t i = 0; step->number == votes->released + 1 && i < step->count; i++) {
            KvgSequence *sequence = step->entries[i].sequence;
            if (sequence != NULL && sequence->last_step == step->number) {
                kvg_kv_cache_release_behind(&sequence->cache);
            }
        }
    }
}

static void release_window(KvgVotes *votes)
{
    uint64_t window = votes->grid->window;

    kvg_votes_release(votes, votes->begun + 1 > window ? votes->begun + 1 - window : 0);
}

static void release_named(const Asked *asked)
{
    for (uint32_t b = 0; b < asked->count; b++) {
        const KvgBatch *batch = asked->batches[b];
        for (uint32_t slot = 0; slot < batch->slots; slot++) {
            if (asked->rows[b][slot] > 0 && kvg_sequence_in_step(batch->sequence[slot]) == 0) {
                kvg_kv_cache_release_behind(&batch->sequence[slot]->cache);
            }
        }
    }
}

/* ---- planning one sequence */

static int is_local(KvgStatus status)
{
    return status == KVG_ENOMEM || status == KVG_EDEVICE;
}

static void fail_here(KvgStep *step, KvgStatus status)
{
    if (step->local == KVG_OK) {
        step->local = status;
        snprintf(step->local_why, sizeof step->local_why, "%s", kvg_last_error());
    }
}

KvgStatus kvg_classes_check_chunk(const KvClassPlan *classes, uint32_t count, uint32_t chunk, uint64_t staged, const char *what)
{
    for (uint32_t c = 0; staged > chunk && c < count; c++) {
        if (classes[c].ring) {
            return kvg_fail(KVG_ENOFIT, "%llu rows in one %s: a model with windowed layers takes at most %u (prefill_chunk_max) while rings "
                            "are on; split it", (unsigned long long)staged, what, chunk);
        }
    }
    return KVG_OK;
}

KvgStatus kvg_placement_check_chunk(const KvgPlacement *placement, uint64_t staged, const char *what)
{
    return kvg_classes_check_chunk(placement->plan.classes, placement->plan.class_count, placement->plan.prefill_chunk_max, staged, what);
}

/* Stages `rows` rows. Refusals follow from agreed state; a failure of this rank alone is counted like everywhere and voted. */
static KvgStatus stage(KvgStep *step, KvgSequence *sequence, uint32_t place, uint64_t staged_before, uint32_t rows)
{
    KvgPlacement *placement = sequence->placement;
    KvCache      *cache = &sequence->cache;
    uint64_t      had = kvg_store_end(placement->store, 0, cache->slot);
    KvgStatus     status;

    KVG_TRY(kvg_placement_check_chunk(placement, staged_before + rows, "step"));
    status = kvg_kv_cache_append(cache, rows, NULL);
    if (is_local(status)) {
        fail_here(step, status);
        sequence->taint_pending |= cache->tainted; /* torn on this rank alone: tainted everywhere, or nowhere, by the vote */
        step->any_taint |= cache->tainted;
        cache->tainted = 0;
        status = KVG_OK;
    }
    KVG_TRY(status);
    step->first_row[place] = kvg_kv_cache_pass_row(cache);
    placement->stats.grows += sequence->counted_growth && kvg_store_end(placement->store, 0, cache->slot) > had;
    sequence->counted_growth = 1;
    return KVG_OK;
}

static KvgStatus open_entry(KvgStep *step, KvgSequence *sequence, uint32_t slot, uint32_t rows)
{
    KvStepEntry *entry = &step->entries[step->count];
    KvCache     *cache = &sequence->cache;
    uint32_t     owed; /* rows of a replay: repeated, not staged */
    KvgStatus    status;

    if (kvg_sequence_in_step(sequence) != 0 || sequence->named_in == step->number) {
        return kvg_fail(KVG_EBUSY, "sequence %llu is named twice, or its last step is begun and not posted; post that first",
                        (unsigned long long)sequence->id);
    }
    KVG_TRY(kvg_kv_cache_begin(cache));
    owed = kvg_kv_cache_replay(cache);
    status = stage(step, sequence, slot, 0, rows);
    if (status != KVG_OK) {
        kvg_kv_cache_refuse(cache); /* nothing was staged: the transaction ends as if it had not begun */
        return status;
    }
    *entry = (KvStepEntry){ .sequence = sequence, .id = kvg_placement_id(sequence->placement, sequence->id), .generation = ++sequence->generation,
                            .base_rows = cache->pos, .staged = rows - owed, .slot = slot };
    kvg_sequence_forget_logits(sequence);
    sequence->last_step = step->number;
    sequence->named_in = step->number;
    sequence->entry = step->count++;
    step->any_taint |= sequence->taint_pending;
    return KVG_OK;
}

static void refuse(KvgStep *step, uint32_t place, KvgPlacement *placement, KvgStatus status)
{
    step->refusal[place] = (uint8_t)status;
    step->rows[place] = 0;
    placement->stats.refusals[status]++;
}

static void plan_batch(KvgStep *step, KvgBatch *batch, const uint32_t *rows_per_slot)
{
    for (uint32_t slot = 0; slot < batch->slots; slot++) {
        uint32_t  rows = rows_per_slot[slot], place = batch->first + slot;
        KvgStatus status;
        if (rows == 0) {
            continue;
        }
        step->rows[place] = rows;
        status = open_entry(step, batch->sequence[slot], place, rows);
        if (status != KVG_OK) {
            refuse(step, place, batch->placement, status);
        }
    }
}

/* ---- the calls */

KvgStep *kvg_step_place(KvgVotes *votes, uint64_t number, KvgBatch *const *batches, uint32_t count)
{
    KvgStep *step = kvg_step_at(votes, number);

    KVG_ASSERT(step->state == KVG_STEP_FREE || step->state == KVG_STEP_DECIDED);
    step->number = number;
    step->state = KVG_STEP_BEGUN;
    step->batch_count = count;
    step->slots = 0;
    for (uint32_t b = 0; b < count; b++) {
        step->batch[b] = batches[b];
        step->placement[b] = batches[b]->placement;
        step->first[b] = batches[b]->first = step->slots;
        step->slots += batches[b]->slots;
    }
    step->count = 0;
    step->local = KVG_OK;
    step->any_taint = 0;
    step->captured = 0;
    step->running = votes->grid->running;
    memset(step->rows, 0, step->slots * sizeof *step->rows);
    memset(step->refusal, 0, step->slots * sizeof *step->refusal);
    memset(step->accepted, 0, step->slots * sizeof *step->accepted);
    memset(step->replay, 0, step->slots * sizeof *step->replay);
    return step;
}

static void flush(KvgStep *step)
{
    for (uint32_t b = 0; b < step->batch_count; b++) {
        KvgStatus status = step->placement[b] != NULL ? kvg_store_flush(step->placement[b]->store, NULL) : KVG_OK;
        if (status != KVG_OK) {
            fail_here(step, status);
        }
    }
}

static KvgStatus check_asked(const Asked *asked)
{
    const KvgGrid *grid;
    uint64_t       places = 0;

    if (asked->batches == NULL || asked->rows == NULL || asked->count < 1 || asked->count > KVG_STEP_BATCHES_MAX) {
        return kvg_fail(KVG_EINVAL, "a step covers 1 to %d batches, with rows for each of their places", KVG_STEP_BATCHES_MAX);
    }
    for (uint32_t b = 0; b < asked->count; b++) {
        if (asked->batches[b] == NULL || asked->rows[b] == NULL || asked->batches[b]->placement->grid != asked->batches[0]->placement->grid) {
            return kvg_fail(KVG_EINVAL, "batch %u of the step: a batch of the same grid, and rows for each of its places, are needed", b);
        }
        places += asked->batches[b]->slots;
        for (uint32_t other = 0; other < b; other++) {
            if (asked->batches[other] == asked->batches[b]) {
                return kvg_fail(KVG_EINVAL, "a step names one batch twice");
            }
        }
    }
    grid = asked->batches[0]->placement->grid;
    if (places > grid->votes->max_step_sequences) {
        return kvg_fail(KVG_EINVAL, "the step's batches have %llu places; records have room for %u (max_step_sequences of the grid's first placement)",
                        (unsigned long long)places, grid->votes->max_step_sequences);
    }
    return KVG_OK;
}

static KvgStatus check_unposted(const Asked *asked)
{
    for (uint32_t b = 0; b < asked->count; b++) {
        KVG_TRY(kvg_placement_awake(asked->batches[b]->placement));
        if (asked->batches[b]->open_step != NULL) {
            return kvg_fail(KVG_EBUSY, "step %llu of this batch is begun and not posted; post it before another begins",
                            (unsigned long long)asked->batches[b]->open_step->number);
        }
        if (asked->batches[b]->run != NULL && asked->batches[b]->run->capturing != NULL) {
            return kvg_fail(KVG_EBUSY, "a capture of this batch is on: its writes go into a graph; end that before a step begins");
        }
    }
    return KVG_OK;
}

static KvgStatus begin(const Asked *asked, KvgStep **step_p)
{
    KvgVotes *votes = asked->batches[0]->placement->grid->votes;
    KvgStep  *step;

    KVG_TRY(kvg_grid_whole(votes->grid));
    KVG_TRY(kvg_grid_no_run(votes->grid));
    KVG_TRY(check_unposted(asked));
    KVG_TRY(await_window(votes));
    KVG_TRY(await_named(asked));
    KVG_TRY(kvg_grid_usable(votes->grid)); /* a decision may have found that posted calls went apart */
    release_window(votes);
    release_named(asked);
    step = kvg_step_place(votes, ++votes->begun, asked->batches, asked->count);
    for (uint32_t b = 0; b < asked->count; b++) {
        plan_batch(step, asked->batches[b], asked->rows[b]);
        asked->batches[b]->open_step = step;
    }
    *step_p = step;
    flush(step);
    return KVG_OK;
}

KvgStatus kvg_step_begin_joint(KvgBatch *const *batches, const uint32_t *const *rows_per_slot, uint32_t count, KvgStep **step)
{
    const Asked asked = { batches, rows_per_slot, count };

    if (step == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_step_begin needs a place for the step");
    }
    KVG_TRY(check_asked(&asked));
    KVG_RETURN_RANGED(KVG_RANGE_PLAN, batches[0]->placement->grid->votes->begun + 1, begin(&asked, step));
}

KvgStatus kvg_step_begin(KvgBatch *batch, const uint32_t *rows_per_slot, KvgStep **step)
{
    return kvg_step_begin_joint(&batch, &rows_per_slot, 1, step);
}

static KvgStatus extend(KvgStep *step, const uint32_t *rows_per_slot)
{
    KVG_TRY(kvg_grid_usable(step->votes->grid));
    memset(step->rows, 0, step->slots * sizeof *step->rows);
    for (uint32_t place = 0; place < step->slots; place++) { /* places that take no part in the step cannot join it */
        step->refusal[place] = rows_per_slot[place] > 0 ? KVG_EINVAL : KVG_OK;
    }
    for (uint32_t i = 0; i < step->count; i++) {
        KvStepEntry *entry = &step->entries[i];
        uint32_t     rows = rows_per_slot[entry->slot];
        KvgStatus    status;
        if (rows == 0 || entry->sequence == NULL) {
            continue;
        }
        status = rows > UINT32_MAX - entry->staged ? kvg_fail(KVG_EOVERFLOW, "more than 2^32 rows in one step") :
                                                     stage(step, entry->sequence, entry->slot, entry->staged, rows);
        if (status != KVG_OK) {
            refuse(step, entry->slot, entry->sequence->placement, status);
            continue;
        }
        step->refusal[entry->slot] = KVG_OK;
        step->rows[entry->slot] = rows;
        entry->staged += rows;
    }
    flush(step);
    return KVG_OK;
}

KvgStatus kvg_step_extend(KvgStep *step, const uint32_t *rows_per_slot)
{
    if (step == NULL || rows_per_slot == NULL || step->state != KVG_STEP_BEGUN) {
        return kvg_fail(KVG_ESTALE, "only a step that is begun and not posted can be extended");
    }
    KVG_RETURN_RANGED(KVG_RANGE_PLAN, step->number, extend(step, rows_per_slot));
}

const uint32_t *kvg_step_rows(const KvgStep *step)
{
    return step->rows;
}

const uint64_t *kvg_step_first_rows(const KvgStep *step)
{
    return step->first_row;
}

KvgStatus kvg_step_refusal(const KvgStep *step, uint32_t slot)
{
    return slot < step->slots ? (KvgStatus)step->refusal[slot] : kvg_fail(KVG_EINVAL, "place %u of a step of %u places", slot, step->slots);
}

KvgStatus kvg_step_local(const KvgStep *step)
{
    return step->local == KVG_OK ? KVG_OK : kvg_fail(step->local, "%s", step->local_why);
}

uint64_t kvg_step_number(const KvgStep *step)
{
    return step->number;
}

/* Run, second half: what the device did is read back once and taken over, as if each step had been taken from here.
 *
 *   published steps       lengths and columns as the device says; the last of them is remembered like any step, for settling
 *   the one that ended it begun and posted here after the fact, with the records that the board holds: the host decides it by the same function and names
 *                         what is wrong; in doubt it stays posted, for kvg_grid_settle */
#include "pp/run_impl.h"

#include <stdio.h>
#include <string.h>

/* ---- waiting */

static KvgStatus await_stream(KvgBatch *batch, KvgStream stream)
{
    KvgGrid *grid = batch->placement->grid;
    KvDev   *device = &batch->placement->device;
    int      done = 0;

    KVG_TRY(device->ops->event_record(device->self, batch->run->passed, stream));
    for (uint64_t rounds = 0;; rounds++) {
        KVG_TRY(device->ops->run->event_test(device->self, batch->run->passed, &done));
        if (done) return KVG_OK;
        kvg_grid_turn(grid); /* what it finds wrong ends the kernels, and these tell it */
        grid->comm.ops->relax(grid->comm.self, rounds);
    }
}

static KvgStatus read_back(KvgBatch *batch, KvgStream stream)
{
    KvgRun         *run = batch->run;
    KvDev          *device = &batch->placement->device;
    size_t          bytes = batch->placement->options.max_sequences * sizeof(uint32_t);
    KvStoreRunWords words;

    kvg_store_run_words(batch->placement->store, &words);
    KVG_TRY(device->ops->dtoh(device->self, run->block_memory, run->block_device, run->block_bytes, stream));
    KVG_TRY(device->ops->dtoh(device->self, run->lengths, words.len, bytes, stream));
    KVG_TRY(device->ops->dtoh(device->self, run->columns, words.read, bytes, stream));
    return device->ops->synchronize(device->self, stream);
}

static KvgStatus peek(KvgBatch *batch, uint64_t step, KvgStream stream)
{
    KvgRun *run = batch->run;
    KvDev  *device = &batch->placement->device;

    KVG_TRY(device->ops->run->peek(device->self, &run->board, step, run->device_words + RUN_PEEK_AT, stream));
    return device->ops->synchronize(device->self, stream);
}

/* ---- what was published */

static void adopt_lengths(KvgBatch *batch)
{
    KvgRun *run = batch->run;

    for (uint32_t i = 0; i < batch->slots; i++) {
        KvgSequence *sequence = batch->sequence[i];
        run->result_rows[i] = 0;
        if (run->rows[i] == 0) continue;
        uint64_t committed = run->lengths[sequence->cache.slot] - run->base[i];
        KVG_ASSERT(committed <= (run->last - run->first + 1) * run->rows[i]);
        run->result_rows[i] = (uint32_t)committed;
        kvg_kv_cache_run_end(&sequence->cache, committed, (uint32_t)run->columns[sequence->cache.slot]);
    }
}

static KvgStep *place_step(KvgBatch *batch, uint64_t number)
{
    KvgBatch *batches[1] = { batch };
    KvgStep  *step = kvg_step_place(batch->placement->grid->votes, number, batches, 1);

    step->running = batch->placement->grid->running;
    step->count = batch->slots; /* entries of a run go by place: one that takes no part has no sequence and no rows */
    for (uint32_t i = 0; i < batch->slots; i++) {
        step->entries[i] = (KvStepEntry){ .slot = i };
    }
    return step;
}

static void enter(KvgBatch *batch, KvgStep *step, uint32_t i, uint64_t base_rows)
{
    KvgSequence *sequence = batch->sequence[i];

    step->rows[i] = batch->run->rows[i];
    step->entries[i] = (KvStepEntry){ .sequence = sequence, .id = batch->run->host.ids[i], .generation = sequence->generation, .base_rows = base_rows,
                                      .staged = batch->run->rows[i], .slot = i };
    sequence->last_step = step->number;
    sequence->entry = i;
}

/* The last published step is remembered, since a peer may not have published it yet. */
static KvgStep *remember_published(KvgBatch *batch, uint64_t number)
{
    KvgRun   *run = batch->run;
    KvgVotes *votes = batch->placement->grid->votes;
    KvgStep  *step = place_step(batch, number);

    for (uint32_t i = 0; i < batch->slots; i++) {
        if (run->rows[i] == 0) continue;
        enter(batch, step, i, batch->sequence[i]->cache.pos - run->host.taken[i]);
        step->accepted[i] = run->host.taken[i];
    }
    votes->begun = number;
    votes->decided = votes->released = number - 1;
    kvg_step_adopt_published(step);
    batch->placement->stats.steps += number - run->first; /* and this one */
    batch->placement->stats.commits += number - run->first;
    return step;
}

/* ---- what ended it */

/* The rows that the device has staged are staged here too. They were booked for the run, so agreed state cannot refuse them. */
static void stage_again(KvgBatch *batch, KvgStep *step)
{
    KvgRun *run = batch->run;

    for (uint32_t i = 0; i < batch->slots; i++) {
        KvgSequence *sequence = batch->sequence[i];
        KvgStatus    status;

        if (run->rows[i] == 0) continue;
        enter(batch, step, i, sequence->cache.pos);
        status = kvg_kv_cache_begin(&sequence->cache);
        if (status == KVG_OK) status = kvg_kv_cache_append(&sequence->cache, run->rows[i], NULL);
        KVG_ASSERT(status == KVG_OK || status == KVG_ENOMEM || status == KVG_EDEVICE);
        step->first_row[i] = sequence->cache.pos;
    }
}

static void take_records(KvgBatch *batch, const KvgStep *step)
{
    KvgRun       *run = batch->run;
    KvgVotes     *votes = step->votes;
    KvRecordSlot *slot = kvg_records_slot(votes, step->number);
    const void   *units = run->host_words + RUN_PEEK_AT;

    for (int rank = 0; rank < votes->grid->ranks; rank++) {
        if (slot->present[rank] || !kvg_vote_unpack(&run->board, units, step->number, votes->grid->epoch, (uint32_t)rank, slot->record[rank])) continue;
        slot->present[rank] = 1;
        slot->arrived++;
    }
}

static KvgStatus doubt(KvgBatch *batch, KvgStep *step, KvVoteWord word)
{
    KvgGrid *grid = batch->placement->grid;
    int      missing = (int)word.missing;
    char     why[128];

    if (missing < grid->ranks && kvg_grid_is_lost(grid, missing)) {
        return kvg_step_in_doubt(step, missing, grid->liveness.ops->why(grid->liveness.self, missing));
    }
    snprintf(why, sizeof why, "the device has waited for it for KVGRID_TIMEOUT_MS (%u)", grid->policy.timeout_ms);
    return kvg_step_in_doubt(step, missing, why);
}

static KvgStatus end_by(KvgBatch *batch, uint64_t number, KvVoteWord word, KvgStream stream, KvgStep **step_p)
{
    KvgRun   *run = batch->run;
    KvgVotes *votes = batch->placement->grid->votes;
    KvgStatus peeked = peek(batch, number, stream);
    KvgStep  *step = place_step(batch, number);
    int       done = 0;

    *step_p = step;
    votes->begun = number;
    stage_again(batch, step);
    step->local = run->local;
    memcpy(step->local_why, run->local_why, sizeof step->local_why);
    step->state = KVG_STEP_POSTED;
    step->posted_ns = kvg_grid_now(votes->grid);
    KVG_TRY(peeked);
    if (word.kind != KVG_VOTE_WORD_DECIDED) {
        take_records(batch, step);
        return doubt(batch, step, word);
    }
    take_records(batch, step);
    KVG_ASSERT(kvg_records_slot(votes, number)->arrived == (uint32_t)votes->grid->ranks); /* the device has read them all */
    KVG_TRY(kvg_step_progress(step, &done));
    return done ? KVG_OK : kvg_step_await(step); /* comparing running digests */
}

/* ---- the call */

static void drop_closed(KvgBatch *batch)
{
    for (uint32_t i = 0; i < batch->slots; i++) {
        KvgSequence *sequence = batch->sequence[i];
        if (batch->run->rows[i] > 0 && sequence->close_pending) {
            sequence->close_pending = 0;
            kvg_sequence_drop(sequence, NULL);
        }
    }
}

/* A device error part-way: what the planes hold is not provably what was committed. */
static KvgStatus lose_run(KvgBatch *batch)
{
    KvgGrid  *grid = batch->placement->grid;
    KvgStatus status = kvg_grid_fail(grid, KVG_EINDOUBT, "a captured run of steps %llu to %llu failed on the device of rank %d: %s; its sequences are tainted",
                                     (unsigned long long)batch->run->first, (unsigned long long)batch->run->last, grid->rank, kvg_last_error());

    for (uint32_t i = 0; i < batch->slots; i++) {
        KvgSequence *sequence = batch->sequence[i];
        if (batch->run->rows[i] == 0) continue;
        kvg_kv_cache_run_end(&sequence->cache, 0, sequence->cache.held.current);
        kvg_kv_cache_taint(&sequence->cache);
        kvg_sequence_drop_attached(sequence);
    }
    return status;
}

/* Takes over what the device did; *step is the last one decided or posted, NULL if there was none. */
static KvgStatus take_over(KvgBatch *batch, KvgStream stream, uint64_t *published, KvgStep **step)
{
    KvgRun    *run = batch->run;
    KvVoteWord word = kvg_vote_word(*kvg_run_outcome_word(run), run->first - 1);
    uint64_t   decided = run->host.words->decided;

    KVG_ASSERT(decided >= run->first - 1 && decided <= run->last);
    *published = decided - (run->first - 1);
    adopt_lengths(batch);
    if (*published > 0) *step = remember_published(batch, decided);
    if (word.kind == KVG_VOTE_WORD_NONE || (word.kind == KVG_VOTE_WORD_DECIDED && word.outcome.kind == KVG_VOTE_PUBLISH)) return KVG_OK;
    return end_by(batch, decided + 1, word, stream, step);
}

static KvgStatus finish(KvgBatch *batch, KvgStream stream, uint64_t *published, KvgStep **step)
{
    KvgGrid  *grid = batch->placement->grid;
    KvDev    *device = &batch->placement->device;
    KvgRun   *run = batch->run;
    KvgStatus status = KVG_OK;

    if (grid->pp > 1) status = device->ops->run->vote(device->self, KVG_VOTE_ACT_DECIDE, &run->board, &run->graph->arrays, stream);
    if (status == KVG_OK) status = await_stream(batch, stream);
    if (status == KVG_OK) status = read_back(batch, stream);
    grid->run = NULL;
    run->graph = NULL;
    return status == KVG_OK ? take_over(batch, stream, published, step) : lose_run(batch);
}

KvgStatus kvg_run_end(KvgGraph *graph, KvgStream stream, KvgRunResult *result)
{
    KvgBatch *batch = graph != NULL ? graph->batch : NULL;
    KvgStep  *step = NULL;
    uint64_t  published = 0;
    KvgStatus status;

    if (batch == NULL || stream == NULL || (result != NULL && result->size != sizeof *result)) {
        return kvg_fail(KVG_EINVAL, "kvg_run_end: a graph, the stream that its replays were launched on, and a result with its size set (or NULL)");
    }
    if (batch->run->graph != graph || batch->placement->grid->run != batch) {
        return kvg_fail(KVG_ESTALE, "kvg_run_end: no run of this graph is on");
    }
    memset(batch->run->result_rows, 0, batch->slots * sizeof(uint32_t));
    status = finish(batch, stream, &published, &step);
    drop_closed(batch);
    if (result != NULL) {
        *result = (KvgRunResult){ .size = sizeof *result, .first_step = batch->run->first, .published = published, .rows = batch->run->result_rows };
        if (step != NULL && step->state == KVG_STEP_DECIDED) result->outcome = step->outcome;
    }
    if (status != KVG_OK) return status;
    return step == NULL || step->outcome.status == KVG_OK ? KVG_OK : kvg_fail(step->outcome.status, "%s", step->why);
}

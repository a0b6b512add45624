/* Run, end: what the device did is read back once and taken over, as if each step had been taken from here.
 *
 *   published steps       lengths and columns as the device says; the last of them is remembered like any step, for settling
 *   the one that ended it begun and posted here after the fact, with the records that the board holds: the host decides it by the same function and names
 *                         what is wrong; in doubt it stays posted, for kvg_grid_settle */
#include "pp/run_impl.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/traced.h"

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

/* The records of the step that is not published, if there is one. */
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
        batch->placement->stats.rows += committed;
        kvg_kv_cache_run_end(&sequence->cache, committed, (uint32_t)run->columns[sequence->cache.slot]);
        kvg_sequence_forget_logits(sequence);
    }
}

static void place_step(KvgBatch *batch, uint64_t number)
{
    KvgStep *step = kvg_step_place(batch->placement->grid->votes, number, &batch, 1);

    step->count = batch->slots; /* entries of a run go by place: one that takes no part has no sequence and no rows */
    for (uint32_t i = 0; i < batch->slots; i++) {
        step->entries[i] = (KvStepEntry){ .slot = i };
    }
    step->captured = 1;
    batch->run->step = step;
}

static void enter(KvgBatch *batch, uint32_t i, uint64_t base_rows)
{
    KvgStep     *step = batch->run->step;
    KvgSequence *sequence = batch->sequence[i];

    step->rows[i] = batch->run->rows[i];
    step->entries[i] = (KvStepEntry){ .sequence = sequence, .id = batch->run->host.ids[i], .generation = sequence->generation, .base_rows = base_rows,
                                      .staged = batch->run->rows[i], .slot = i };
    sequence->last_step = step->number;
    sequence->entry = i;
}

/* The last published step is remembered, since a peer may not have published it yet. */
static void remember_published(KvgBatch *batch)
{
    KvgRun *run = batch->run;

    place_step(batch, run->first + (run->published - 1) * run->advance);
    for (uint32_t i = 0; i < batch->slots; i++) {
        if (run->rows[i] == 0) continue;
        enter(batch, i, batch->sequence[i]->cache.pos - run->host.taken[i]);
        run->step->accepted[i] = run->host.taken[i];
    }
    kvg_step_adopt_published(run->step);
    run->outcome = run->step->outcome;
    batch->placement->stats.steps += run->published - 1; /* and this one */
    batch->placement->stats.commits += run->published - 1;
    batch->placement->stats.outcomes[KVG_OUTCOME_PUBLISHED] += run->published - 1;
}

/* Steps of a run that are not remembered for themselves: published everywhere, or never taken by a batch that stopped. */
static void fill_numbers(KvgVotes *votes, uint64_t most)
{
    uint64_t from = most > votes->begun + votes->ring ? most - votes->ring + 1 : votes->begun + 1;

    for (uint64_t number = from; number <= most; number++) {
        kvg_step_place(votes, number, NULL, 0)->state = KVG_STEP_DECIDED;
    }
}

/* ---- what ended it */

/* This rank's "no", if that ended it. What the plan did not say came from the engine: its status word, or a count that cannot be. */
static void say_no(const KvgBatch *batch)
{
    const KvgRun *run = batch->run;
    KvgStep      *step = run->step;

    step->local = run->local;
    memcpy(step->local_why, run->local_why, sizeof step->local_why);
    if (run->local != KVG_OK || run->word.kind != KVG_VOTE_WORD_DECIDED || run->word.outcome.kind != KVG_VOTE_REFUSED ||
        (int)run->word.outcome.rank != batch->placement->grid->rank) {
        return;
    }
    step->local = (KvgStatus)run->word.outcome.status;
    snprintf(step->local_why, sizeof step->local_why, "%s", run->host.words->status != 0 ? "the engine's kernels refused (KvgRunArrays.status)" :
                                                            "an accepted count is above the rows that were staged");
}

/* The rows that the device has staged are staged here too. They were booked for the run, so agreed state cannot refuse them. */
static void stage_again(KvgBatch *batch)
{
    KvgRun *run = batch->run;

    place_step(batch, run->ended_by);
    for (uint32_t i = 0; i < batch->slots; i++) {
        KvgSequence *sequence = batch->sequence[i];
        KvgStatus    status;

        if (run->rows[i] == 0) continue;
        enter(batch, i, sequence->cache.pos);
        status = kvg_kv_cache_begin(&sequence->cache);
        if (status == KVG_OK) status = kvg_kv_cache_append(&sequence->cache, run->rows[i], NULL);
        KVG_ASSERT(status == KVG_OK || status == KVG_ENOMEM || status == KVG_EDEVICE);
        run->step->first_row[i] = sequence->cache.pos;
    }
    say_no(batch);
    run->step->state = KVG_STEP_POSTED;
    run->step->posted_ns = kvg_grid_now(batch->placement->grid);
}

static void take_records(const KvgRun *run)
{
    KvgVotes     *votes = run->step->votes;
    KvRecordSlot *slot = kvg_records_slot(votes, run->step->number);

    for (int rank = 0; rank < votes->grid->ranks; rank++) {
        if (slot->present[rank] || !kvg_vote_unpack(&run->board, run->host_words + RUN_PEEK_AT, run->step->number, votes->grid->epoch, (uint32_t)rank,
                                                    slot->record[rank])) continue;
        slot->present[rank] = 1;
        slot->arrived++;
    }
}

static KvgStatus doubt(const KvgBatch *batch)
{
    KvgGrid *grid = batch->placement->grid;
    int      missing = (int)batch->run->word.missing;
    char     why[128];

    if (missing < grid->ranks && kvg_grid_is_lost(grid, missing)) {
        return kvg_step_in_doubt(batch->run->step, missing, grid->liveness.ops->why(grid->liveness.self, missing));
    }
    if (batch->run->word.kind == KVG_VOTE_WORD_STOPPED) {
        snprintf(why, sizeof why, "the wait for it was given up");
    } else {
        snprintf(why, sizeof why, "the device has waited for it for KVGRID_TIMEOUT_MS (%u)", grid->policy.timeout_ms);
    }
    return kvg_step_in_doubt(batch->run->step, missing, why);
}

static KvgStatus decide_end(KvgBatch *batch)
{
    KvgRun   *run = batch->run;
    KvgVotes *votes = run->step->votes;
    int       done = 0;

    take_records(run);
    if (run->word.kind != KVG_VOTE_WORD_DECIDED) return doubt(batch);
    KVG_ASSERT(kvg_records_slot(votes, run->ended_by)->arrived == (uint32_t)votes->grid->ranks); /* the device has read them all */
    KVG_TRY(kvg_step_progress(run->step, &done));
    if (!done) KVG_TRY(kvg_step_await(run->step)); /* comparing running digests */
    run->outcome = run->step->outcome;
    return KVG_OK;
}

/* ---- taking over, all batches of the run */

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
static void taint_run(KvgBatch *batch)
{
    for (uint32_t i = 0; i < batch->slots; i++) {
        KvgSequence *sequence = batch->sequence[i];
        if (batch->run->rows[i] == 0) continue;
        kvg_kv_cache_run_end(&sequence->cache, 0, (uint32_t)sequence->cache.held.current);
        sequence->taint_pending = 1; /* this rank alone knows: the next vote tells the others */
        kvg_sequence_drop_attached(sequence);
    }
}

static KvgStatus lose_run(KvgGrid *grid, KvgBatch *const *batches, uint32_t count)
{
    KvgStatus status = kvg_grid_fail(grid, KVG_EINDOUBT, "a captured run from step %llu on failed on the device of rank %d: %s; its sequences are tainted",
                                     (unsigned long long)batches[0]->run->first, grid->rank, kvg_last_error());

    for (uint32_t b = 0; b < count; b++) {
        taint_run(batches[b]);
        batches[b]->run->step = NULL;
        batches[b]->run->outcome = (KvgOutcome){ 0 };
        batches[b]->run->published = batches[b]->run->ended_by = 0;
        memset(batches[b]->run->result_rows, 0, batches[b]->slots * sizeof(uint32_t));
        batches[b]->run->status = status;
        snprintf(batches[b]->run->why, sizeof batches[b]->run->why, "%s", kvg_last_error());
    }
    return status;
}

static void read_words(KvgBatch *batch)
{
    KvgRun  *run = batch->run;
    uint64_t decided = run->host.words->decided;

    KVG_ASSERT(decided + 1 >= run->first && decided <= run->last);
    run->word = kvg_vote_word(*kvg_run_outcome_word(run), run->first - 1);
    run->published = decided < run->first ? 0 : (decided - run->first) / run->advance + 1;
    run->ended_by = 0;
    if (kvg_run_word_ends(&run->word)) {
        run->ended_by = run->first + run->published * run->advance;
    }
    adopt_lengths(batch);
}

static void number_steps(KvgVotes *votes, KvgBatch *const *batches, uint32_t count)
{
    uint64_t most = votes->begun;

    for (uint32_t b = 0; b < count; b++) {
        const KvgRun *run = batches[b]->run;
        uint64_t      last = run->ended_by != 0 ? run->ended_by : run->published != 0 ? run->first + (run->published - 1) * run->advance : 0;
        most = last > most ? last : most;
    }
    fill_numbers(votes, most);
    votes->begun = most;
}

/* All but the steps that are posted again is decided, however far behind the ring of steps it lies. */
static void mark_decided(KvgVotes *votes, KvgBatch *const *batches, uint32_t count)
{
    votes->decided = votes->begun;
    for (uint32_t b = 0; b < count; b++) {
        const KvgStep *step = batches[b]->run->step;
        if (step != NULL && step->state != KVG_STEP_DECIDED && step->number <= votes->decided) votes->decided = step->number - 1;
    }
}

static void end_batch(KvgBatch *batch)
{
    KvgRun *run = batch->run;

    run->status = KVG_OK;
    if (run->ended_by != 0) run->status = decide_end(batch);
    if (run->status == KVG_OK && run->step != NULL) run->status = run->step->outcome.status;
    else if (run->status != KVG_OK) snprintf(run->why, sizeof run->why, "%s", kvg_last_error());
    if (run->status != KVG_OK && run->step->state == KVG_STEP_DECIDED) memcpy(run->why, run->step->why, sizeof run->why);
}

static void take_over(KvgGrid *grid, KvgBatch *const *batches, uint32_t count)
{
    for (uint32_t b = 0; b < count; b++) read_words(batches[b]);
    number_steps(grid->votes, batches, count);
    for (uint32_t b = 0; b < count; b++) {
        batches[b]->run->step = NULL;
        batches[b]->run->outcome = (KvgOutcome){ 0 };
        if (batches[b]->run->published > 0) remember_published(batches[b]);
        if (batches[b]->run->ended_by != 0) stage_again(batches[b]);
    }
    mark_decided(grid->votes, batches, count);
    for (uint32_t b = 0; b < count; b++) end_batch(batches[b]);
    mark_decided(grid->votes, batches, count);
}

/* ---- the calls */

static KvgStatus finish_stream(KvgGrid *grid, KvgBatch *const *batches, uint32_t count, KvgStream stream)
{
    for (uint32_t b = 0; b < count && grid->pp > 1; b++) {
        KVG_TRY(kvg_run_ops(batches[b])->vote(batches[b]->placement->device.self, KVG_VOTE_ACT_DECIDE, &batches[b]->run->board,
                                              &batches[b]->run->graph->arrays, stream));
    }
    KVG_TRY(await_stream(batches[0], stream));
    for (uint32_t b = 0; b < count; b++) {
        KVG_TRY(read_back(batches[b], stream));
        KVG_TRY(peek(batches[b], batches[b]->run->host.words->decided < batches[b]->run->first ? batches[b]->run->first :
                     batches[b]->run->host.words->decided + batches[b]->run->advance, stream));
    }
    return KVG_OK;
}

KvgStatus kvg_run_result(const KvgGraph *graph, KvgRunResult *result)
{
    const KvgRun *run = graph != NULL && graph->batch != NULL ? graph->batch->run : NULL;

    if (result != NULL) KVG_TRY(KVG_SIZED_CHECK(KvgRunResult, result));
    if (run == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_run_result: a graph whose batch is there, and a result with its size set (or NULL)");
    }
    if (run->graph != NULL || run->first == 0) {
        return kvg_fail(KVG_ESTALE, "kvg_run_result: no run of this batch has ended");
    }
    if (result != NULL) {
        KvgRunResult own = { .first_step = run->first, .published = run->published, .rows = run->result_rows, .outcome = run->outcome };
        KVG_TRY(KVG_SIZED_OUT(KvgRunResult, own, result));
    }
    return run->status == KVG_OK ? KVG_OK : kvg_fail(run->status, "%s", run->why);
}

static KvgStatus end(KvgGraph *graph, KvgStream stream, KvgRunResult *result)
{
    KvgGrid  *grid = graph->batch->placement->grid;
    KvgBatch *batches[KVG_STEP_BATCHES_MAX];
    uint32_t  count = grid->run_count;
    KvgStatus status;

    memcpy(batches, grid->run, sizeof batches);
    status = finish_stream(grid, batches, count, stream);
    grid->run_count = 0;
    for (uint32_t b = 0; b < count; b++) batches[b]->run->graph = NULL;
    if (status == KVG_OK) take_over(grid, batches, count);
    else lose_run(grid, batches, count);
    for (uint32_t b = 0; b < count; b++) drop_closed(batches[b]);
    return kvg_run_result(graph, result);
}

KvgStatus kvg_run_end(KvgGraph *graph, KvgStream stream, KvgRunResult *result)
{
    if (result != NULL) KVG_TRY(KVG_SIZED_CHECK(KvgRunResult, result));
    if (graph == NULL || graph->batch == NULL || stream == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_run_end: a graph, the stream that its replays were launched on, and a result with its size set (or NULL)");
    }
    if (graph->batch->run->graph != graph) {
        return kvg_fail(KVG_ESTALE, "kvg_run_end: no run of this graph is on");
    }
    KVG_RETURN_RANGED(KVG_RANGE_RUN, graph->batch->run->first, end(graph, stream, result));
}

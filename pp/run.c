/* Run, planning: every sequence of a batch stages all its rows at once, and the device is told the first step. */
#include "pp/run_impl.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/traced.h"

static KvgStatus check_rows(const KvgGraph *graph, uint32_t steps, const uint32_t *rows_per_slot)
{
    const KvgBatch *batch = graph->batch;

    if (steps == 0) {
        return kvg_fail(KVG_EINVAL, "kvg_run_begin: a run takes at least one step");
    }
    for (uint32_t i = 0; rows_per_slot != NULL && i < batch->slots; i++) {
        if (rows_per_slot[i] > graph->captured[i]) {
            return kvg_fail(KVG_EINVAL, "place %u is asked for %u rows a step and the graph was captured with %u", i, rows_per_slot[i], graph->captured[i]);
        }
    }
    return KVG_OK;
}

static KvgStatus check_idle(const KvgBatch *batch)
{
    if (batch->placement->grid->run_count != 0) {
        return kvg_fail(KVG_EBUSY, "a run of this grid is on; end it before another begins");
    }
    if (batch->open_step != NULL || batch->run->capturing != NULL) {
        return kvg_fail(KVG_EBUSY, "this batch is in a step or a capture; end that before a run begins");
    }
    return KVG_OK;
}

/* A graph's nodes meet where the board was when it was captured. */
static KvgStatus check_board(const KvgGraph *graph)
{
    const KvgGrid *grid = graph->batch->placement->grid;

    if (grid->ranks == 1 || (graph->board.base == grid->board.base && graph->board.control == grid->board.control)) return KVG_OK;
    return kvg_fail(KVG_ESTALE, "the grid's board was taken away or replaced after this graph was captured; capture anew");
}

/* Step numbers of a run are known before it begins: nothing may be undecided. */
static KvgStatus await_all(KvgVotes *votes)
{
    while (votes->decided < votes->begun) {
        KvgStep *step = kvg_step_at(votes, votes->decided + 1);
        if (step->state == KVG_STEP_BEGUN) {
            return kvg_fail(KVG_EBUSY, "step %llu is begun and not posted here; post it before a run begins", (unsigned long long)step->number);
        }
        KVG_TRY(kvg_step_await(step));
    }
    return KVG_OK;
}

static void fail_here(KvgRun *run, KvgStatus status)
{
    if (run->local == KVG_OK) {
        run->local = status;
        snprintf(run->local_why, sizeof run->local_why, "%s", kvg_last_error());
    }
}

/* Refusals follow from agreed state; a failure of this rank alone is posted as its "no". */
static KvgStatus stage(KvgRun *run, KvgSequence *sequence, uint32_t slot, uint32_t steps)
{
    KvgPlacement *placement = sequence->placement;
    uint64_t      had = kvg_store_end(placement->store, 0, sequence->cache.slot);
    KvgStatus     status;

    if (sequence->cache.classes[0].active) {
        return kvg_fail(KVG_EBUSY, "sequence %llu is named twice in one run", (unsigned long long)sequence->id);
    }
    KVG_TRY(kvg_placement_check_chunk(placement, (uint64_t)steps * run->rows[slot], "run"));
    kvg_kv_cache_release_behind(&sequence->cache);
    status = kvg_kv_cache_run_begin(&sequence->cache, steps, run->rows[slot], NULL);
    if (status == KVG_ENOMEM || status == KVG_EDEVICE) {
        fail_here(run, status);
        status = KVG_OK;
    }
    KVG_TRY(status);
    placement->stats.grows += sequence->counted_growth && kvg_store_end(placement->store, 0, sequence->cache.slot) > had;
    kvg_sequence_forget_logits(sequence);
    sequence->generation++;
    sequence->last_step = 0; /* no step that is remembered: release_behind has been done */
    sequence->counted_growth = 1;
    return KVG_OK;
}

/* Found by this rank alone: it says so in its first record, and every rank taints the same ones. */
static void say_taint(KvgBatch *batch)
{
    for (uint32_t i = 0; i < batch->slots; i++) {
        if (batch->run->rows[i] == 0 || !batch->sequence[i]->taint_pending) continue;
        batch->run->local = KVG_ETAINTED; /* before any other "no" */
        snprintf(batch->run->local_why, sizeof batch->run->local_why, "a sequence is tainted on this rank");
    }
}

static void plan_place(KvgBatch *batch, uint32_t slot, uint32_t rows, uint32_t steps)
{
    KvgRun      *run = batch->run;
    KvgSequence *sequence = kvg_batch_at(batch, slot);
    KvgStatus    status;

    run->rows[slot] = sequence != NULL ? rows : 0;
    run->refusal[slot] = KVG_OK;
    run->host.places[slot] = UINT32_MAX; /* -1 */
    if (run->rows[slot] > 0) {
        status = stage(run, sequence, slot, steps);
        if (status != KVG_OK) {
            run->refusal[slot] = (uint8_t)status;
            run->rows[slot] = 0;
            batch->placement->stats.refusals[status]++;
        }
    }
    if (run->rows[slot] == 0) return;
    run->base[slot] = sequence->cache.pos;
    run->host.places[slot] = sequence->cache.slot;
    run->host.ids[slot] = kvg_placement_id(batch->placement, sequence->id);
    run->host.generations[slot] = sequence->generation;
}

static void fill_block(KvgBatch *batch)
{
    KvgRun   *run = batch->run;
    KvgGrid  *grid = batch->placement->grid;
    uint32_t  slots = run->slots;
    RunBlock *block = &run->host;

    for (uint32_t i = 0; i < slots; i++) {
        block->next_rows[i] = run->rows[i];
        block->places[slots + i] = run->local == KVG_OK ? run->rows[i] : 0; /* where memory is missing nothing is written */
        block->places[2 * (size_t)slots + i] = run->rows[i] > 0 ? (uint32_t)run->base[i] : 0;
        block->places[3 * (size_t)slots + i] = 0; /* a graph has its own tokens */
        block->accepted[i] = run->local == KVG_ETAINTED ? run->rows[i] > 0 && batch->sequence[i]->taint_pending : run->rows[i];
        block->taken[i] = 0;
    }
    memset(block->ahead, 0, kvg_vote_ahead_bytes(slots)); /* of an earlier run */
    *block->words = (KvVoteWords){ .step = run->first, .decided = run->first - 1, .advance = run->advance, .running = grid->running, .epoch = grid->epoch, .count = slots,
                                   .layout = kvg_mix_term(0, batch->placement->number, 0, batch->placement->layout_seed), .last = run->last,
                                   .status = run->local, .accepts = run->graph->accept == KVG_ACCEPT_OTHERS   ? KVG_VOTE_ACCEPTS_NONE
                                              : run->graph->accept == KVG_ACCEPT_DEVICE ? KVG_VOTE_ACCEPTS_COUNTS
                                                                                        : KVG_VOTE_ACCEPTS_ALL };
}

static KvgStatus send(KvgBatch *batch, KvgStream stream)
{
    KvDev  *device = &batch->placement->device;
    KvgRun *run = batch->run;

    KVG_TRY(kvg_store_flush(batch->placement->store, stream));
    fill_block(batch);
    return device->ops->htod(device->self, run->block_device, run->block_memory, run->block_bytes, stream);
}

/* Nothing of the run has reached anybody: the rows are given up here, and the other ranks find this one missing. */
static void take_back(KvgBatch *batch)
{
    for (uint32_t i = 0; i < batch->slots; i++) {
        if (batch->run->rows[i] > 0) kvg_kv_cache_run_end(&batch->sequence[i]->cache, 0, batch->sequence[i]->cache.held.current);
    }
    batch->run->graph = NULL;
}

static KvgStatus check_joint(KvgGraph *const *graphs, const uint32_t *const *rows_per_slot, uint32_t count, uint32_t steps, KvgStream stream)
{
    KvgGrid *grid;

    if (graphs == NULL || count < 1 || count > KVG_STEP_BATCHES_MAX || stream == NULL) {
        return kvg_fail(KVG_EINVAL, "a run takes 1 to %d graphs, and the stream that they will be launched on", KVG_STEP_BATCHES_MAX);
    }
    for (uint32_t b = 0; b < count; b++) {
        if (graphs[b] == NULL || graphs[b]->batch == NULL || graphs[b]->batch->placement->grid != graphs[0]->batch->placement->grid) {
            return kvg_fail(KVG_EINVAL, "graph %u of the run: a graph of the same grid whose batch is there is needed", b);
        }
        for (uint32_t other = 0; other < b; other++) {
            if (graphs[other]->batch == graphs[b]->batch) return kvg_fail(KVG_EINVAL, "a run names one batch twice");
        }
        KVG_TRY(check_rows(graphs[b], steps, rows_per_slot != NULL ? rows_per_slot[b] : NULL));
        KVG_TRY(kvg_placement_awake(graphs[b]->batch->placement));
    }
    grid = graphs[0]->batch->placement->grid;
    if (count > grid->window || 2 * grid->window % count != 0) { /* of 2W steps that are remembered each batch has places of its own, however far it falls behind */
        return kvg_fail(KVG_EINVAL, "a run of %u batches leaves as many steps undecided, and the grid's window is %u; set max_in_flight to a multiple", count,
                        grid->window);
    }
    KVG_TRY(kvg_grid_whole(grid));
    for (uint32_t b = 0; b < count; b++) {
        KVG_TRY(check_idle(graphs[b]->batch));
        KVG_TRY(check_board(graphs[b]));
    }
    return KVG_OK;
}

static void plan(KvgGraph *graph, const uint32_t *rows_per_slot, uint32_t steps, uint64_t first, uint32_t advance, KvgStream stream)
{
    KvgBatch *batch = graph->batch;
    KvgRun   *run = batch->run;

    run->board = graph->board; /* an earlier capture's, as a later one's */
    run->graph = graph;
    run->stream = stream;
    run->first = first;
    run->advance = advance;
    run->last = first + (uint64_t)(steps - 1) * advance;
    run->local = KVG_OK;
    run->moved_ns = run->progress = 0;
    run->progress_ns = kvg_grid_now(batch->placement->grid);
    for (uint32_t i = 0; i < batch->slots; i++) {
        plan_place(batch, i, rows_per_slot != NULL ? rows_per_slot[i] : graph->captured[i], steps);
    }
    say_taint(batch);
    *kvg_run_outcome_word(run) = 0;
    kvg_vote_stop(run->control, 0);
    kvg_vote_allow(run->control, batch->placement->grid->timeout_ns / 1000u);
}

static KvgStatus begin(KvgGraph *const *graphs, const uint32_t *const *rows_per_slot, uint32_t count, uint32_t steps, KvgStream stream)
{
    KvgGrid  *grid = graphs[0]->batch->placement->grid;
    KvgStatus status = KVG_OK;

    KVG_TRY(await_all(grid->votes));
    KVG_TRY(kvg_grid_usable(grid));
    kvg_votes_release(grid->votes, grid->votes->begun);
    for (uint32_t b = 0; b < count; b++) {
        plan(graphs[b], rows_per_slot != NULL ? rows_per_slot[b] : NULL, steps, grid->votes->begun + 1 + b, count, stream);
        grid->run[b] = graphs[b]->batch;
    }
    for (uint32_t b = 0; b < count && status == KVG_OK; b++) status = send(grid->run[b], stream);
    if (status != KVG_OK) {
        for (uint32_t b = 0; b < count; b++) take_back(grid->run[b]);
        return kvg_grid_fail(grid, KVG_EINDOUBT, "a run could not be sent to the device, and the other ranks cannot know: %s", kvg_last_error());
    }
    grid->run_count = count;
    return KVG_OK;
}

KvgStatus kvg_run_begin_joint(KvgGraph *const *graphs, const uint32_t *const *rows_per_slot, uint32_t count, uint32_t steps, KvgStream stream)
{
    KVG_TRY(check_joint(graphs, rows_per_slot, count, steps, stream));
    KVG_RETURN_RANGED(KVG_RANGE_RUN, graphs[0]->batch->placement->grid->votes->begun + 1, begin(graphs, rows_per_slot, count, steps, stream));
}

KvgStatus kvg_run_begin(KvgGraph *graph, uint32_t steps, const uint32_t *rows_per_slot, KvgStream stream)
{
    return kvg_run_begin_joint(&graph, rows_per_slot != NULL ? &rows_per_slot : NULL, 1, steps, stream);
}

KvgStatus kvg_run_refusal(const KvgGraph *graph, uint32_t slot)
{
    if (graph == NULL || graph->batch == NULL || slot >= graph->batch->slots) {
        return kvg_fail(KVG_EINVAL, "kvg_run_refusal: a graph whose batch is there, and one of its places");
    }
    return (KvgStatus)graph->batch->run->refusal[slot];
}

KvgStatus kvg_graph_launch(KvgGraph *graph, KvgStream stream)
{
    KvgBatch *batch = graph != NULL ? graph->batch : NULL;

    if (batch == NULL || batch->run->graph != graph) {
        return kvg_fail(KVG_ESTALE, "kvg_graph_launch: no run of this graph is on; kvg_run_begin plans one");
    }
    if (graph->joined) {
        return kvg_fail(KVG_EINVAL, "kvg_graph_launch: the nodes were captured into a graph of yours; launch that");
    }
    KVG_RETURN_RANGED(KVG_RANGE_RUN, batch->run->first, kvg_run_ops(batch)->graph_launch(batch->placement->device.self, graph->graph, stream));
}

static int names(const KvgBatch *batch, const KvgSequence *sequence)
{
    for (uint32_t i = 0; i < batch->slots; i++) {
        if (batch->sequence[i] == sequence && batch->run->rows[i] > 0) return 1;
    }
    return 0;
}

int kvg_run_names(const KvgSequence *sequence)
{
    const KvgGrid *grid = sequence->placement->grid;

    for (uint32_t b = 0; b < grid->run_count; b++) {
        if (names(grid->run[b], sequence)) return 1;
    }
    return 0;
}

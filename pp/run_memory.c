/* Run, memory: what a batch needs for its captured runs, made by its first capture. */
#include "pp/run_impl.h"

static size_t align16(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

static size_t block_bytes(uint32_t slots)
{
    return align16(sizeof(KvVoteWords)) + align16(kvg_vote_ahead_bytes(slots)) + (size_t)slots * (2 * sizeof(uint64_t) + 7 * sizeof(uint32_t));
}

static RunBlock block_at(void *memory, uint32_t slots)
{
    RunBlock  block;
    uint8_t  *at = memory;

    block.words = (KvVoteWords *)memory;
    block.ahead = at + align16(sizeof(KvVoteWords));
    block.ids = (uint64_t *)(void *)(at + align16(sizeof(KvVoteWords)) + align16(kvg_vote_ahead_bytes(slots)));
    block.generations = block.ids + slots;
    block.places = (uint32_t *)(block.generations + slots);
    block.next_rows = block.places + 4 * (size_t)slots;
    block.accepted = block.next_rows + slots;
    block.taken = block.accepted + slots;
    return block;
}

static KvgStatus open_host_side(KvgBatch *batch, KvgRun *run)
{
    uint32_t slots = batch->slots, store_slots = batch->placement->options.max_sequences;

    KVG_TRY(kvg_calloc(1, run->block_bytes, "a run", &run->block_memory));
    KVG_TRY(KVG_NEW(slots, "a run", &run->rows));
    KVG_TRY(KVG_NEW(slots, "a run", &run->refusal));
    KVG_TRY(KVG_NEW(slots, "a run", &run->base));
    KVG_TRY(KVG_NEW(slots, "a run", &run->result_rows));
    KVG_TRY(KVG_NEW(store_slots, "a run", &run->lengths));
    KVG_TRY(KVG_NEW(store_slots, "a run", &run->columns));
    return KVG_OK;
}

/* A grid of one rank meets nobody: the board is its own. */
static KvgStatus open_own_board(KvgBatch *batch, KvgRun *run)
{
    const KvgGrid *grid = batch->placement->grid;
    KvDev         *device = &batch->placement->device;
    KvVoteBoard   *board = &run->board;

    *board = (KvVoteBoard){ .ranks = 1, .tp = 1, .slots = kvg_vote_slots(grid->window), .sequences_max = grid->votes->max_step_sequences,
                            .control = (const KvVoteControl *)(const void *)(run->device_words + RUN_CONTROL_AT) };
    KVG_TRY(device->ops->zeros(device->self, kvg_vote_board_bytes(board), &run->own_board));
    board->base = run->own_board;
    run->control = (KvVoteControl *)(void *)(run->host_words + RUN_CONTROL_AT);
    return KVG_OK;
}

static KvgStatus open_device_side(KvgBatch *batch, KvgRun *run)
{
    KvgGrid  *grid = batch->placement->grid;
    KvDev    *device = &batch->placement->device;
    void     *host = NULL, *seen = NULL;
    KvVoteBoard sized = { .ranks = (uint32_t)grid->ranks, .sequences_max = grid->votes->max_step_sequences };

    if (grid->ranks > 1) sized = grid->board;
    KVG_TRY(device->ops->run->words_new(device->self, RUN_PEEK_AT + kvg_vote_slot_bytes(&sized), &host, &seen));
    run->host_words = host;
    run->device_words = seen;
    KVG_TRY(device->ops->zeros(device->self, run->block_bytes, &run->block_device));
    run->device = block_at(run->block_device, run->slots);
    KVG_TRY(device->ops->event_create(device->self, &run->passed));
    return grid->ranks == 1 ? open_own_board(batch, run) : KVG_OK; /* else a capture takes the grid's */
}

KvgStatus kvg_run_open(KvgBatch *batch)
{
    KvgRun   *run;
    KvgStatus status;

    KVG_TRY(KVG_NEW(1, "a run", &run));
    batch->run = run;
    run->slots = batch->slots;
    run->block_bytes = block_bytes(batch->slots);
    KVG_TRY_GOTO(open_host_side(batch, run), err_close);
    run->host = block_at(run->block_memory, run->slots);
    KVG_TRY_GOTO(open_device_side(batch, run), err_close);
    return KVG_OK;
err_close:
    kvg_run_close(batch);
    return status;
}

static void orphan_graphs(KvgBatch *batch)
{
    KvDev *device = &batch->placement->device;

    for (KvgGraph *graph = batch->run->graphs; graph != NULL; graph = graph->next) {
        if (graph->graph != NULL) device->ops->run->graph_free(device->self, graph->graph);
        device->ops->free(device->self, graph->tokens);
        graph->batch = NULL;
    }
}

void kvg_run_close(KvgBatch *batch)
{
    KvgRun *run = batch->run;
    KvDev  *device = &batch->placement->device;

    if (run == NULL) return;
    if (run->capturing != NULL) kvg_capture_give_up(batch);
    orphan_graphs(batch);
    if (run->passed != NULL) device->ops->event_destroy(device->self, run->passed);
    device->ops->free(device->self, run->own_board);
    device->ops->free(device->self, run->block_device);
    if (run->host_words != NULL) device->ops->run->words_free(device->self, run->host_words);
    kvg_free(run->columns);
    kvg_free(run->lengths);
    kvg_free(run->result_rows);
    kvg_free(run->base);
    kvg_free(run->refusal);
    kvg_free(run->rows);
    kvg_free(run->block_memory);
    kvg_free(run);
    batch->run = NULL;
}

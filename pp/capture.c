/* Capture: a batch's step becomes a graph. The vote's nodes are added here; everything between them is the caller's. */
#include "pp/run_impl.h"

#include <string.h>

#include "runtime/base/traced.h"

/* ---- may it be captured at all? */

static KvgStatus check_classes(const KvgPlacement *placement)
{
    for (uint32_t c = 0; c < kvg_store_class_count(placement->store); c++) {
        const KvClassGeometry *class = kvg_store_class(placement->store, c);
        if (kvg_store_layout(placement->store) == KVG_LAYOUT_FLAT && class->ring && class->window != 0) {
            return kvg_fail(KVG_ENOTSUP, "a captured run over flat rings: their rows are moved by the host when a ring is full; place with pools, or with rings off");
        }
    }
    if (kvg_store_index_pool(placement->store) != 0) {
        return kvg_fail(KVG_ENOTSUP, "a captured run with pooled indexers: a pool's key is built by a function of the host's; begin and post each step");
    }
    return KVG_OK;
}

static KvgStatus check_served(const KvgBatch *batch)
{
    const KvgPlacement *placement = batch->placement;

    if (kvg_run_ops(batch) == NULL || !kvg_store_batches(placement->store)) {
        return kvg_fail(KVG_ENOTSUP, "device %s captures nothing; begin and post each step", placement->device.ops->name);
    }
    if (placement->grid->ranks > 1 && placement->grid->board.base == NULL) {
        return kvg_fail(KVG_ENOTSUP, "a captured run on %d ranks votes on the device: give the grid a board first (kvg_grid_vote_on_device)",
                        placement->grid->ranks);
    }
    return check_classes(placement);
}

/* Every row of a step has a column, so that any number of them can be kept. */
static KvgStatus check_rows(const KvgBatch *batch, const KvgCapture *capture, uint32_t *rows_max)
{
    uint32_t columns = kvg_store_columns(batch->placement->store);

    *rows_max = 0;
    for (uint32_t i = 0; i < batch->slots; i++) {
        *rows_max = capture->rows_per_slot[i] > *rows_max ? capture->rows_per_slot[i] : *rows_max;
    }
    if (*rows_max == 0) {
        return kvg_fail(KVG_EINVAL, "kvg_batch_capture_begin: at least one place must stage a row");
    }
    if (columns != 0 && *rows_max >= columns) {
        return kvg_fail(KVG_ENOTSUP, "a captured run of %u rows a step with recurrent layers: it needs %u columns and the placement has %u; raise spec_columns",
                        *rows_max, *rows_max + 1, columns);
    }
    return KVG_OK;
}

static KvgStatus check_begin(const KvgBatch *batch, const KvgCapture *capture, KvgStream stream)
{
    if (batch == NULL || capture->rows_per_slot == NULL || stream == NULL ||
        (unsigned)capture->accept > KVG_ACCEPT_OTHERS) {
        return kvg_fail(KVG_EINVAL, "kvg_batch_capture_begin: a batch, a KVG_CAPTURE_INIT with rows for each place, and a stream of your own are needed");
    }
    if (batch->open_step != NULL || (batch->run != NULL && (batch->run->capturing != NULL || batch->run->graph != NULL))) {
        return kvg_fail(KVG_EBUSY, "this batch is in a step, a capture or a run; end that before another capture begins");
    }
    return check_served(batch);
}

/* ---- a graph's own parts */

/* What the vote's nodes read: constant addresses, so it is fixed here for the graph's life. */
static void describe(const KvgBatch *batch, KvgGraph *graph)
{
    const KvgRun       *run = batch->run;
    const KvgPlacement *placement = batch->placement;
    KvStoreRunWords     store;
    KvVoteArrays       *arrays = &graph->arrays;

    kvg_store_run_words(placement->store, &store);
    *arrays = (KvVoteArrays){ .words = run->device.words, .ahead = run->device.ahead, .entries = run->slots, .classes = kvg_store_class_count(placement->store),
                              .slots = (const int32_t *)run->device.places, .ids = run->device.ids, .generations = run->device.generations,
                              .accepted = run->device.accepted /* all that are staged, unless the engine says otherwise; taint is flagged there */, .next_rows = run->device.next_rows,
                              .taken = run->device.taken, .rows = run->device.places + run->slots, .first_row = run->device.places + 2 * (size_t)run->slots,
                              .len = store.len, .len_staged = store.len_staged, .outcome = (uint64_t *)(void *)(run->device_words + RUN_OUTCOME_AT) };
    if (kvg_store_columns(placement->store) != 0) {
        arrays->read = store.read;
        arrays->write = store.write;
        arrays->each = store.each;
        arrays->columns = kvg_store_columns(placement->store);
    }
    for (uint32_t c = 0; c < arrays->classes; c++) {
        const KvClassGeometry *class = kvg_store_class(placement->store, c);
        int                    slides = class->ring && class->window != 0;
        arrays->class_at[c] = (KvVoteClass){ .base_row = slides ? store.base_row[c] : NULL, .keep = slides ? kvg_vote_keep(class->window) : 0 };
    }
}

static void unlink_graph(KvgGraph *graph)
{
    KvgGraph **at = &graph->batch->run->graphs;

    while (*at != graph) at = &(*at)->next;
    *at = graph->next;
}

void kvg_graph_free(KvgGraph *graph)
{
    if (graph == NULL) return;
    if (graph->batch != NULL) { /* else its device memory went with the batch */
        const KvDev *device = &graph->batch->placement->device;
        KVG_ASSERT(graph->batch->run->graph != graph); /* its run is on: kvg_run_end comes first */
        unlink_graph(graph);
        if (graph->graph != NULL) device->ops->run->graph_free(device->self, graph->graph);
        device->ops->free(device->self, graph->tokens);
    }
    kvg_free(graph->captured);
    kvg_free(graph);
}

/* Not waited for, since the caller may be capturing: the device's own stream comes before all that it is given later, and so before a run's block. */
static KvgStatus send_tokens(KvgGraph *graph)
{
    KvDev    *device = &graph->batch->placement->device;
    uint32_t  slots = graph->batch->slots, token = 0;
    uint32_t *tokens = NULL;
    KvgStatus status;

    KVG_TRY(KVG_NEW(slots, "a graph", &tokens));
    for (uint32_t i = 0; i < slots; i++) {
        tokens[i] = token;
        token += graph->captured[i];
    }
    status = device->ops->htod(device->self, graph->tokens, tokens, slots * sizeof(uint32_t), NULL);
    kvg_free(tokens);
    return status;
}

static KvgStatus new_graph(KvgBatch *batch, const KvgCapture *capture, uint32_t rows_max, KvgGraph **graph_p)
{
    KvDev    *device = &batch->placement->device;
    KvgGraph *graph;
    KvgStatus status;

    KVG_TRY(KVG_NEW(1, "a graph", &graph));
    KVG_TRY_GOTO(KVG_NEW(batch->slots, "a graph", &graph->captured), err_free);
    memcpy(graph->captured, capture->rows_per_slot, batch->slots * sizeof(uint32_t));
    graph->rows_max = rows_max;
    graph->accept = capture->accept;
    graph->board = batch->run->board;
    KVG_TRY_GOTO(device->ops->uninit(device->self, batch->slots * sizeof(uint32_t), &graph->tokens), err_free);
    graph->batch = batch;
    graph->next = batch->run->graphs;
    batch->run->graphs = graph;
    KVG_TRY_GOTO(send_tokens(graph), err_free);
    describe(batch, graph);
    *graph_p = graph;
    return KVG_OK;
err_free:
    if (graph->batch != NULL) {
        kvg_graph_free(graph);
    } else {
        kvg_free(graph->captured);
        kvg_free(graph);
    }
    return status;
}

/* ---- the calls */

/* A grid of several ranks may have been given another board since the last capture. */
static void take_board(KvgBatch *batch)
{
    const KvgGrid *grid = batch->placement->grid;

    if (grid->ranks == 1) return;
    batch->run->board = grid->board;
    batch->run->control = grid->board_control;
}

/* The last replay's record is decided at the head of the next one: no compute stream waits for another stage's work (S7). */
static int decides_at_head(const KvgBatch *batch)
{
    return batch->placement->grid->pp > 1;
}

static KvgStatus vote(const KvgBatch *batch, unsigned acts)
{
    return kvg_run_ops(batch)->vote(batch->placement->device.self, acts, &batch->run->capturing->board, &batch->run->capturing->arrays, batch->run->stream);
}

void kvg_capture_give_up(KvgBatch *batch)
{
    KvgGraph *graph = batch->run->capturing;

    batch->run->capturing = NULL;
    if (!graph->joined) kvg_run_ops(batch)->capture_drop(batch->placement->device.self, batch->run->stream);
    kvg_graph_free(graph);
}

static KvgStatus capture_begin(KvgBatch *batch, const KvgCapture *given, KvgStream stream)
{
    static const KvgCapture defaults = KVG_CAPTURE_INIT;
    KvgCapture              own, *capture = &own;
    KvgGraph               *graph = NULL;
    uint32_t                rows_max;
    KvgStatus               status;

    KVG_TRY(KVG_SIZED_IN(KvgCapture, given, defaults, own));
    KVG_TRY(check_begin(batch, capture, stream));
    KVG_TRY(check_rows(batch, capture, &rows_max));
    KVG_TRY(kvg_placement_awake(batch->placement));
    if (batch->placement->grid->run_count != 0) {
        return kvg_fail(KVG_EBUSY, "a run of this grid is on; end it before a capture begins");
    }
    if (batch->run == NULL) KVG_TRY(kvg_run_open(batch));
    take_board(batch);
    KVG_TRY(new_graph(batch, capture, rows_max, &graph));
    status = kvg_run_ops(batch)->capture_begin(batch->placement->device.self, stream, &graph->joined);
    if (status != KVG_OK) {
        kvg_graph_free(graph);
        return status;
    }
    batch->run->capturing = graph;
    batch->run->stream = stream;
    if (decides_at_head(batch)) {
        status = vote(batch, KVG_VOTE_ACT_DECIDE);
        if (status != KVG_OK) kvg_capture_give_up(batch);
    }
    return status;
}

KvgStatus kvg_batch_capture_begin(KvgBatch *batch, const KvgCapture *capture, KvgStream stream)
{
    KVG_RETURN_RANGED(KVG_RANGE_CAPTURE, 0, capture_begin(batch, capture, stream));
}

static KvgStatus capture_end(KvgBatch *batch, KvgGraph **graph_p)
{
    KvgRun   *run = batch != NULL ? batch->run : NULL;
    KvgGraph *graph = run != NULL ? run->capturing : NULL;
    KvgStatus status;

    if (graph == NULL || graph_p == NULL) {
        return kvg_fail(KVG_ESTALE, "kvg_batch_capture_end needs a capture of this batch that has begun, and a place for the graph");
    }
    KVG_TRY_GOTO(vote(batch, decides_at_head(batch) ? KVG_VOTE_ACT_POST : KVG_VOTE_ACT_POST | KVG_VOTE_ACT_DECIDE), err_give_up);
    if (!graph->joined) {
        status = kvg_run_ops(batch)->capture_end(batch->placement->device.self, run->stream, &graph->graph);
        if (status != KVG_OK) { /* the capture is over */
            run->capturing = NULL;
            kvg_graph_free(graph);
            return status;
        }
    }
    run->capturing = NULL;
    *graph_p = graph;
    return KVG_OK;
err_give_up:
    kvg_capture_give_up(batch);
    return status;
}

KvgStatus kvg_batch_capture_end(KvgBatch *batch, KvgGraph **graph_p)
{
    KVG_RETURN_RANGED(KVG_RANGE_CAPTURE, 0, capture_end(batch, graph_p));
}

KvgStatus kvg_run_arrays(const KvgBatch *batch, KvgRunArrays *arrays)
{
    KVG_TRY(KVG_SIZED_CHECK(KvgRunArrays, arrays));
    if (batch == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_run_arrays: a batch is needed");
    }
    if (batch->run == NULL) {
        return kvg_fail(KVG_ESTALE, "a batch has a run's arrays from its first kvg_batch_capture_begin on");
    }
    const RunBlock *device = &batch->run->device;
    KvgRunArrays    own = { .slots = (const int32_t *)device->places, .rows = device->places + batch->slots,
                              .first_row = device->places + 2 * (size_t)batch->slots, .taken = device->taken, .accepted = device->accepted,
                              .user = &device->words->user, .status = &device->words->status };
    return KVG_SIZED_OUT(KvgRunArrays, own, arrays);
}

/* A device that serves captured runs, without a GPU: host memory under flipped addresses (indirect_dev.h), and one stream whose work is queued as a
 * GPU's is. One instance a rank, all ranks in one thread.
 *
 *   captured   writes, votes and the test's own kernels (run_dev_call) become the nodes of a graph
 *   launched   a graph's nodes go to the queue's end; nothing runs yet
 *   pumped     nodes run in order, up to a decide that misses a record: that one blocks until it is there, or the deadline has passed on the hub's clock,
 *              or control->stop is set. event_test pumps
 * Votes are the host twins. What is not queued (copies, patches, writes of steps) must find the queue empty: the library may not overtake itself.
 * Nor may it wait for the device while a stream is captured, which a GPU refuses. */
#ifndef KVG_TEST_RUN_DEV_H
#define KVG_TEST_RUN_DEV_H

#include <check.h>

#include <kvgrid/dev_run.h>
#include <kvgrid/inproc.h>

#include "runtime/dev/device_vote_entry.h"
#include "tests/support/indirect_dev.h"

typedef void (*RunKernel)(void *user);

typedef struct RunNode {
    enum { RUN_NODE_WRITE, RUN_NODE_VOTE, RUN_NODE_CALL } kind;
    KvgStream    stream; /* of a write or a vote */
    KvRowsBatch  batch;
    unsigned     acts;
    KvVoteBoard  board; /* as the device addresses it */
    KvVoteArrays arrays;
    RunKernel    call;
    void        *user;
} RunNode;

enum { RUN_NODES_MAX = 64, RUN_QUEUE_MAX = 8192, RUN_LOOSE_MAX = 4 };

typedef struct RunDevGraph {
    RunNode  node[RUN_NODES_MAX];
    uint32_t count;
} RunDevGraph;

typedef struct RunDev {
    IndirectDev     indirect; /* first: its operations cast */
    const KvInproc *hub;      /* whose clock deadlines are read on; NULL: a wait without all records ends at once */
    RunDevGraph    *capturing;
    int             callers;   /* the capture that is on was begun by the caller: the library's nodes join it */
    const RunNode  *queue[RUN_QUEUE_MAX];
    uint32_t        head, tail;
    RunNode         loose[RUN_LOOSE_MAX]; /* votes outside a capture */
    uint32_t        loose_used;
    int             posted;    /* the node at the head has posted, and decides next */
    uint32_t        moves;     /* of the deadline, as last seen by a wait */
    uint64_t        since_ns;  /* and when */
    int             waits;
    uint32_t        graphs;    /* alive */
    uint32_t        events_failing; /* so many event_tests answer EDEVICE */
    uint64_t        launches;
} RunDev;

static inline RunDev *run_dev_of(const KvDev *dev)
{
    return dev->self;
}

static inline int run_dev_idle(const RunDev *dev)
{
    return dev->head == dev->tail;
}

/* ---- nodes */

static inline KvVoteArrays run_dev_host_arrays(const KvVoteArrays *arrays)
{
    KvVoteArrays host = *arrays;

    host.words = indirect_flip(arrays->words);
    host.outcome = indirect_flip(arrays->outcome);
    host.ahead = indirect_flip(arrays->ahead);
    host.slots = indirect_flip(arrays->slots);
    host.ids = indirect_flip(arrays->ids);
    host.generations = indirect_flip(arrays->generations);
    host.accepted = indirect_flip(arrays->accepted);
    host.next_rows = indirect_flip(arrays->next_rows);
    host.taken = indirect_flip(arrays->taken);
    host.rows = indirect_flip(arrays->rows);
    host.first_row = indirect_flip(arrays->first_row);
    host.len = indirect_flip(arrays->len);
    host.len_staged = indirect_flip(arrays->len_staged);
    host.read = indirect_flip(arrays->read);
    host.write = indirect_flip(arrays->write);
    host.each = indirect_flip(arrays->each);
    for (uint32_t c = 0; c < host.classes; c++) host.class_at[c].base_row = indirect_flip(arrays->class_at[c].base_row);
    return host;
}

static inline KvVoteBoard run_dev_host_board(const KvVoteBoard *board)
{
    KvVoteBoard host = *board;

    host.base = indirect_flip(board->base);
    host.control = indirect_flip(board->control);
    return host;
}

/* The own block's slot of a step. */
static inline uint8_t *run_dev_units(const KvVoteBoard *host, uint64_t step)
{
    return host->base + host->rank * host->stride + kvg_vote_slot_offset(host, step);
}

/* 1: the wait that is going on ends without all records. */
static inline int run_dev_expired(RunDev *dev, const KvVoteControl *control)
{
    uint64_t now;

    if (control->stop != 0 || dev->hub == NULL) return 1;
    now = kvg_inproc_now_ns(dev->hub);
    if (!dev->waits || dev->moves != (uint32_t)control->deadline) {
        dev->waits = 1;
        dev->moves = (uint32_t)control->deadline;
        dev->since_ns = now;
    }
    return now - dev->since_ns >= (control->deadline >> 32) * 1000u;
}

/* 0: blocked. */
static inline int run_dev_decide(RunDev *dev, const KvVoteBoard *board, const KvVoteArrays *arrays)
{
    const KvVoteWords *words = arrays->words;
    uint64_t           posted = words->posted;
    int                waits = words->stop == 0 && posted != 0, here;

    here = !waits || kvg_vote_present(board, run_dev_units(board, posted), posted, words->epoch);
    if (!here && !run_dev_expired(dev, board->control)) return 0;
    dev->waits = 0;
    ck_assert_int_eq(kvg_vote_decide_ref(board, arrays), KVG_OK);
    if (!here && board->control->stop != 0) {
        uint64_t word = *arrays->outcome;
        *arrays->outcome = kvg_vote_word_missing(posted, 1, word >> 50 & 0x7f);
    }
    return 1;
}

static inline int run_dev_vote_now(RunDev *dev, const RunNode *node)
{
    KvVoteBoard  board = run_dev_host_board(&node->board);
    KvVoteArrays arrays = run_dev_host_arrays(&node->arrays);

    if ((node->acts & KVG_VOTE_ACT_POST) != 0 && !dev->posted) {
        ck_assert_int_eq(kvg_vote_post_ref(&board, &arrays), KVG_OK);
        dev->posted = 1;
    }
    if ((node->acts & KVG_VOTE_ACT_DECIDE) != 0 && !run_dev_decide(dev, &board, &arrays)) return 0;
    dev->posted = 0;
    return 1;
}

/* Runs the node at the queue's head. 0: there is none, or it is blocked. */
static inline int run_dev_run_one(RunDev *dev)
{
    const RunNode *node = dev->queue[dev->head % RUN_QUEUE_MAX];

    if (run_dev_idle(dev)) return 0;
    if (node->kind == RUN_NODE_VOTE) {
        if (!run_dev_vote_now(dev, node)) return 0;
    } else if (node->kind == RUN_NODE_WRITE) {
        ck_assert_int_eq(indirect_encode_batch(dev, &node->batch, NULL), KVG_OK);
    } else {
        node->call(node->user);
    }
    dev->head++;
    if (run_dev_idle(dev)) dev->loose_used = 0;
    return 1;
}

/* Runs what can run. 1: something did. */
static inline int run_dev_pump(RunDev *dev)
{
    int moved = 0;

    while (run_dev_run_one(dev)) moved = 1;
    return moved;
}

static inline void run_dev_enqueue(RunDev *dev, const RunNode *node)
{
    ck_assert_uint_lt(dev->tail - dev->head, RUN_QUEUE_MAX);
    dev->queue[dev->tail++ % RUN_QUEUE_MAX] = node;
}

static inline void run_dev_add(RunDev *dev, const RunNode *node)
{
    if (dev->capturing != NULL) {
        ck_assert_uint_lt(dev->capturing->count, RUN_NODES_MAX);
        dev->capturing->node[dev->capturing->count++] = *node;
        return;
    }
    ck_assert_uint_lt(dev->loose_used, RUN_LOOSE_MAX);
    dev->loose[dev->loose_used] = *node;
    run_dev_enqueue(dev, &dev->loose[dev->loose_used++]);
}

/* A kernel of the engine's on the stream. */
static inline void run_dev_call(RunDev *dev, RunKernel call, void *user)
{
    RunNode node = {.kind = RUN_NODE_CALL, .call = call, .user = user};
    run_dev_add(dev, &node);
}

/* ---- the device's operations */

static inline KvgStatus run_dev_encode_batch(void *self, const KvRowsBatch *batch, KvgStream stream)
{
    RunDev *dev = self;
    RunNode node = {.kind = RUN_NODE_WRITE, .stream = stream, .batch = *batch};

    if (dev->capturing == NULL) {
        ck_assert_msg(run_dev_idle(dev), "a step's rows are written while replays are queued");
        return indirect_encode_batch(self, batch, stream);
    }
    run_dev_add(dev, &node);
    return KVG_OK;
}

static inline KvgStatus run_dev_htod(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    ck_assert_msg(stream == NULL || run_dev_idle(self), "a copy to the device overtakes replays");
    return indirect_htod(self, target, source, bytes, stream);
}

static inline KvgStatus run_dev_dtoh(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    ck_assert_msg(stream == NULL || run_dev_idle(self), "a copy from the device overtakes replays");
    return indirect_dtoh(self, target, source, bytes, stream);
}

static inline KvgStatus run_dev_patch(void *self, uint32_t *words, const KvPatch *pairs, uint32_t count, KvgStream stream)
{
    ck_assert_msg(run_dev_idle(self), "tables and lengths are sent while replays are queued");
    return indirect_patch(self, words, pairs, count, stream);
}

static inline KvgStatus run_dev_synchronize(void *self, KvgStream stream)
{
    ck_assert_msg(((RunDev *)self)->capturing == NULL, "the device is waited for while a stream is captured");
    return indirect_synchronize(self, stream);
}

static inline KvgStatus run_dev_words_new(void *self, size_t bytes, void **host, void **device)
{
    KvgStatus status = indirect_zeros(self, bytes, device);

    if (status == KVG_OK) *host = indirect_flip(*device);
    return status;
}

static inline void run_dev_words_free(void *self, void *host)
{
    indirect_free(self, indirect_flip(host));
}

static inline KvgStatus run_dev_capture_begin(void *self, KvgStream stream, int *joined)
{
    RunDev *dev = self;

    (void)stream;
    *joined = dev->callers;
    if (dev->callers) return KVG_OK;
    ck_assert_ptr_null(dev->capturing);
    ck_assert(run_dev_idle(dev));
    dev->capturing = calloc(1, sizeof *dev->capturing); /* not the library's memory: it is counted apart */
    ck_assert_ptr_nonnull(dev->capturing);
    dev->graphs++;
    return KVG_OK;
}

static inline void run_dev_graph_free(void *self, void *graph)
{
    ck_assert_msg(run_dev_idle(self), "a graph is freed while its replays are queued");
    ((RunDev *)self)->graphs--;
    free(graph);
}

static inline KvgStatus run_dev_capture_end(void *self, KvgStream stream, void **graph)
{
    RunDev *dev = self;

    (void)stream;
    ck_assert_ptr_nonnull(dev->capturing);
    *graph = dev->capturing;
    dev->capturing = NULL;
    return KVG_OK;
}

static inline void run_dev_capture_drop(void *self, KvgStream stream)
{
    void *graph = NULL;

    run_dev_capture_end(self, stream, &graph);
    run_dev_graph_free(self, graph);
}

static inline KvgStatus run_dev_graph_launch(void *self, void *graph, KvgStream stream)
{
    const RunDevGraph *launched = graph;

    (void)stream;
    for (uint32_t i = 0; i < launched->count; i++) run_dev_enqueue(self, &launched->node[i]);
    ((RunDev *)self)->launches++;
    return KVG_OK;
}

static inline KvgStatus run_dev_vote(void *self, unsigned acts, const KvVoteBoard *board, const KvVoteArrays *arrays, KvgStream stream)
{
    RunNode node = {.kind = RUN_NODE_VOTE, .stream = stream, .acts = acts, .board = *board, .arrays = *arrays};

    run_dev_add(self, &node);
    return KVG_OK;
}

static inline KvgStatus run_dev_peek(void *self, const KvVoteBoard *board, uint64_t step, void *units, KvgStream stream)
{
    KvVoteBoard host = run_dev_host_board(board);

    (void)stream;
    ck_assert(run_dev_idle(self));
    memcpy(indirect_flip(units), run_dev_units(&host, step), kvg_vote_slot_bytes(&host));
    return KVG_OK;
}

static inline KvgStatus run_dev_event_test(void *self, KvEvent event, int *done)
{
    RunDev *dev = self;

    (void)event;
    if (dev->events_failing > 0) {
        dev->events_failing--;
        dev->head = dev->tail; /* what was queued is lost with the device's context */
        return kvg_fail(KVG_EDEVICE, "a kernel failed");
    }
    run_dev_pump(dev);
    *done = run_dev_idle(dev);
    return KVG_OK;
}

/* The caller captures its stream itself. */
static inline void run_dev_caller_begins(RunDev *dev)
{
    int joined;

    ck_assert_int_eq(run_dev_capture_begin(dev, NULL, &joined), KVG_OK);
    dev->callers = 1;
}

static inline void *run_dev_caller_ends(RunDev *dev)
{
    void *graph = NULL;

    dev->callers = 0;
    ck_assert_int_eq(run_dev_capture_end(dev, NULL, &graph), KVG_OK);
    return graph;
}

static const KvDevRunOps run_dev_run_ops = {
    .words_new = run_dev_words_new, .words_free = run_dev_words_free, .capture_begin = run_dev_capture_begin, .capture_end = run_dev_capture_end,
    .capture_drop = run_dev_capture_drop, .graph_launch = run_dev_graph_launch, .graph_free = run_dev_graph_free, .vote = run_dev_vote,
    .peek = run_dev_peek, .event_test = run_dev_event_test,
};

static inline KvgStatus run_dev_open(const KvInproc *hub, KvDev *dev)
{
    static KvDevOps ops;
    RunDev         *run;
    void           *memory = NULL;
    KvgStatus       status = kvg_calloc(1, sizeof *run, "a test's device", &memory);

    if (status != KVG_OK) return status;
    ops = indirect_ops;
    ops.name = "indirect_run";
    ops.encode_batch = run_dev_encode_batch;
    ops.htod = run_dev_htod;
    ops.dtoh = run_dev_dtoh;
    ops.patch = run_dev_patch;
    ops.synchronize = run_dev_synchronize;
    ops.run = &run_dev_run_ops;
    run = memory;
    run->hub = hub;
    status = kvg_dev_host(&run->indirect.host);
    if (status != KVG_OK) {
        kvg_free(memory);
        return status;
    }
    *dev = (KvDev){.ops = &ops, .self = run};
    return KVG_OK;
}

#endif

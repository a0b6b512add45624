/* The host device with captured runs: its own operations, a batch's rows in one call by the host twin, and graphs over host_stream.h whose vote is the
 * host twin's. For a grid of one rank, whose records are all there when it decides. */
#ifndef KVG_TEST_HOST_RUN_DEV_H
#define KVG_TEST_HOST_RUN_DEV_H

#include <check.h>

#include <kvgrid/dev_run.h>
#include <kvgrid/rows_batch.h>

#include "kernels/cuda_rows.h"
#include "runtime/dev/device_vote_entry.h"
#include "tests/kernels/host_stream.h"

typedef struct HostVote {
    unsigned     acts;
    KvVoteBoard  board;
    KvVoteArrays arrays;
} HostVote;

static inline void host_run_encode(const void *arguments)
{
    kvg_encode_batch_ref(arguments);
}

static inline KvgStatus host_run_encode_batch(void *self, const KvRowsBatch *batch, KvgStream stream)
{
    (void)self;
    host_stream_do(stream, host_run_encode, batch, sizeof *batch);
    return KVG_OK;
}

static inline void host_run_vote_now(const void *arguments)
{
    const HostVote *vote = arguments;

    if ((vote->acts & KVG_VOTE_ACT_POST) != 0) ck_assert_int_eq(kvg_vote_post_ref(&vote->board, &vote->arrays), KVG_OK);
    if ((vote->acts & KVG_VOTE_ACT_DECIDE) != 0) ck_assert_int_eq(kvg_vote_decide_ref(&vote->board, &vote->arrays), KVG_OK);
}

static inline KvgStatus host_run_vote(void *self, unsigned acts, const KvVoteBoard *board, const KvVoteArrays *arrays, KvgStream stream)
{
    HostVote vote = { acts, *board, *arrays };

    (void)self;
    host_stream_do(stream, host_run_vote_now, &vote, sizeof vote);
    return KVG_OK;
}

static inline KvgStatus host_run_words_new(void *self, size_t bytes, void **host, void **device)
{
    (void)self;
    *host = *device = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(*host, 0, bytes);
    return KVG_OK;
}

static inline void host_run_words_free(void *self, void *host)
{
    (void)self;
    free(host);
}

static inline KvgStatus host_run_capture_begin(void *self, KvgStream stream, int *joined)
{
    HostStream *on = stream;

    (void)self;
    ck_assert_ptr_null(on->capturing);
    on->capturing = calloc(1, sizeof *on->capturing);
    *joined = 0;
    return KVG_OK;
}

static inline KvgStatus host_run_capture_end(void *self, KvgStream stream, void **graph)
{
    HostStream *on = stream;

    (void)self;
    *graph = on->capturing;
    on->capturing = NULL;
    return KVG_OK;
}

static inline void host_run_capture_drop(void *self, KvgStream stream)
{
    void *graph = NULL;

    host_run_capture_end(self, stream, &graph);
    host_graph_free(graph);
}

static inline KvgStatus host_run_launch(void *self, void *graph, KvgStream stream)
{
    (void)self, (void)stream;
    host_graph_run(graph);
    return KVG_OK;
}

static inline void host_run_graph_free(void *self, void *graph)
{
    (void)self;
    host_graph_free(graph);
}

static inline KvgStatus host_run_peek(void *self, const KvVoteBoard *board, uint64_t step, void *units, KvgStream stream)
{
    (void)self, (void)stream;
    memcpy(units, board->base + board->rank * board->stride + kvg_vote_slot_offset(board, step), kvg_vote_slot_bytes(board));
    return KVG_OK;
}

static inline KvgStatus host_run_event_test(void *self, KvEvent event, int *done)
{
    (void)self, (void)event;
    *done = 1;
    return KVG_OK;
}

/* Gives a host device these operations beside its own. */
static inline void host_run_serve(KvDev *dev)
{
    static const KvDevRunOps run = { host_run_words_new, host_run_words_free, host_run_capture_begin, host_run_capture_end, host_run_capture_drop,
                                     host_run_launch, host_run_graph_free, host_run_vote, host_run_peek, host_run_event_test };
    static KvDevOps          ops;

    ops = *dev->ops;
    ops.encode_batch = host_run_encode_batch;
    ops.run = &run;
    dev->ops = &ops;
}

#endif

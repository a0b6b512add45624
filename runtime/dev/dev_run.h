/** KvDev's part in captured runs: graphs that replay what was enqueued, host words that both sides see at all times, and the vote in the stream.
 *
 * A device without it (KvDevOps.run NULL) steps one by one; nothing else is missing there. All calls but words and event_test are in stream order;
 * streams are the caller's own, never NULL. Threads: as dev.h. Reach: local. */
#ifndef KVG_DEV_RUN_H
#define KVG_DEV_RUN_H

#include <kvgrid/dev.h>
#include <kvgrid/device_vote.h>

KVG_BEGIN_DECLS

enum { KVG_VOTE_ACT_POST = 1, KVG_VOTE_ACT_DECIDE = 2 }; /* both: in one kernel */

typedef struct KvDevRunOps {
    /* Zeroed host memory that host and device read and write at any time, 64-byte aligned; *device: as the device addresses it. ENOMEM. */
    KvgStatus (*words_new)(void *self, size_t bytes, void **host, void **device);
    void (*words_free)(void *self, void *host);
    /* What is enqueued on `stream` from here on becomes a graph instead of being run. *joined = 1: the caller was capturing already; the nodes are the
     * caller's graph's, and capture_end, which is not called then, has nothing to give. */
    KvgStatus (*capture_begin)(void *self, KvgStream stream, int *joined);
    KvgStatus (*capture_end)(void *self, KvgStream stream, void **graph);
    void (*capture_drop)(void *self, KvgStream stream);
    KvgStatus (*graph_launch)(void *self, void *graph, KvgStream stream);
    void (*graph_free)(void *self, void *graph);
    KvgStatus (*vote)(void *self, unsigned acts, const KvVoteBoard *board, const KvVoteArrays *arrays, KvgStream stream);
    /* The own block's slot of `step` into units [kvg_vote_slot_bytes], memory of words_new as the device addresses it. */
    KvgStatus (*peek)(void *self, const KvVoteBoard *board, uint64_t step, void *units, KvgStream stream);
    KvgStatus (*event_test)(void *self, KvEvent event, int *done); /* never blocks; EDEVICE: work before it has failed */
} KvDevRunOps;

KVG_END_DECLS
#endif

/** Captured runs: a batch's step as a graph that is replayed with no host work but the launch (S7). Write, attend, vote and publish stand in the
 * stream; lengths, window bases and recurrent columns are moved by the device, and the host reads one outcome word later.
 *
 *   capture_begin -> kvg_write_kv, attention .. (once a layer) -> capture_end          once for a batch
 *   run_begin -> kvg_graph_launch x steps -> run_end                                   members may change between runs, with no capture anew
 *
 * A graph captures a batch, never a step: places are read from the batch's arrays when it is replayed. run_begin books steps x rows for every place,
 * so that no replay needs the host. Any outcome but publish raises a stop word: replays that are queued behind it write nothing and publish nothing.
 * While a run is on, its grid takes no other step and no posted call but close (EBUSY); a sequence closed meanwhile goes when the run ends.
 *
 * Ranks that can load and store each other's memory vote over a board that kvg_grid_vote_on_device is given (kvgrid_vote_nccl.h sets one up); a grid
 * of one rank needs none. With PP = 1 the vote is one kernel at the graph's end. With PP > 1 the record is posted at the end and decided at the head
 * of the next replay, whose input token is causally later; run_end decides the last one. Both may stand on a branch of a graph of the caller's, beside the
 * work that need not wait for them (kernels/CAPTURE.md).
 *
 * Needs a device that serves runs (CUDA), pools or unwindowed flat planes, no pooled indexer, and with recurrent layers spec_columns above the rows of a step:
 * else ENOTSUP by name. */
#ifndef KVG_RUN_H
#define KVG_RUN_H

#include <kvgrid/dev_run.h>
#include <kvgrid/step.h>

KVG_BEGIN_DECLS

typedef struct KvgGraph KvgGraph;

/** The board that this grid's device votes meet on: copied; what it points to stays until the grid is destroyed, or until another is given (NULL: none).
 *  control is the host's side of board->control. Reach: local, the same on every rank. EINVAL: the board's ranks, tp or rank are not the grid's, it has too few
 *  slots for the grid's window, or room for another number of sequences than kvg_grid_record_sequences. EBUSY: a run is on. */
KVG_API KvgStatus kvg_grid_vote_on_device(KvgGrid *grid, const KvVoteBoard *board, KvVoteControl *control);
/** max_step_sequences of the grid's first placement, which fixes the record; 0 before it. Reach: local. */
KVG_API uint32_t kvg_grid_record_sequences(const KvgGrid *grid);

typedef enum KvgAccept {
    KVG_ACCEPT_ALL    = 0, /* every staged row is kept */
    KVG_ACCEPT_DEVICE = 1, /* this rank's kernels set KvgRunArrays.accepted before the vote */
    KVG_ACCEPT_OTHERS = 2  /* this rank does not know: another one says it */
} KvgAccept;

typedef struct KvgCapture {
    size_t          size;          /* set by KVG_CAPTURE_INIT */
    const uint32_t *rows_per_slot; /* [slots] most rows a replay stages for each place, and where their tokens stand: packed in this order, as in KvgRows */
    KvgAccept       accept;
} KvgCapture;
#define KVG_CAPTURE_INIT { sizeof(KvgCapture), NULL, KVG_ACCEPT_ALL }

/** The arrays that a run's kernels read and write: device memory at constant addresses, by place of the batch. The engine's kernels may read all of them and
 *  write those marked so, before the vote of the same replay. */
typedef struct KvgRunArrays {
    size_t          size;      /* set by the caller to sizeof(KvgRunArrays) */
    const int32_t  *slots;     /* [slots] in tables and lengths; -1: takes no part in this run */
    const uint32_t *rows;      /* [slots] rows that this replay stages; 0: none, or the run has stopped */
    const uint32_t *first_row; /* [slots] absolute row of the first of them */
    const uint32_t *taken;     /* [slots] rows that the replay before kept */
    uint32_t       *accepted;  /* [slots] rows of this replay to keep: as many as are planned, or what the engine writes (KVG_ACCEPT_DEVICE) */
    uint64_t       *user;      /* written by the engine: its own digest, e.g. of token ids; 0: none */
    int32_t        *status;    /* written by the engine: 0, or the KvgStatus of its "no"; with KVG_ETAINTED accepted is 1 for each tainted place, else 0 */
} KvgRunArrays;

/** Starts capturing on `stream`, which is the caller's own (not NULL). Until capture_end, kvg_write_kv and kvg_write_latent of this batch put nodes into the
 *  graph, and the caller's own kernels on that stream do too. If the stream is being captured already, the nodes join the caller's graph, which the caller launches:
 *  the vote's nodes on `stream`, writes on the streams that they are given.
 *  Branches are the caller's to join: what reads the run's arrays, lengths, tables or columns follows what stands on `stream` when this returns, and
 *  capture_end is called when `stream` follows every write of rows and of the run's arrays. Nothing else orders them.
 *  Reach: local. ENOTSUP as said above, or without a board on several ranks; EBUSY a step of this batch is begun and unposted, a run is on, or a capture is. ENOMEM, EDEVICE. */
KVG_API KvgStatus kvg_batch_capture_begin(KvgBatch *batch, const KvgCapture *capture, KvgStream stream);
/** Adds the vote and ends the capture. When it fails, the capture is over and there is no graph. */
KVG_API KvgStatus kvg_batch_capture_end(KvgBatch *batch, KvgGraph **graph);
/** Not while its run is on. Before its batch is destroyed or after, NULL is allowed. */
KVG_API void kvg_graph_free(KvgGraph *graph);
/** Constant for the batch's life, once a capture has begun. ESTALE before. Reach: local. */
KVG_API KvgStatus kvg_run_arrays(const KvgBatch *batch, KvgRunArrays *arrays);

/** Plans a run of up to `steps` replays, each of rows_per_slot[slot] rows for each place (NULL: as captured; at most as captured; 0 or an empty place: takes no part).
 *  First decides every step begun before. A sequence that cannot take part is left out, the same on every rank: kvg_run_refusal (ECAPACITY, ENOFIT more than
 *  prefill_chunk_max rows of a windowed class in all, ETAINTED, EBUSY a replay is owed). What is planned reaches the device in order on `stream`. Reach: posted.
 *  A failure of this rank alone (ENOMEM, taint that it has found) is voted: the first replay writes nothing here and is refused, or taints, on every rank.
 *  The call fails with EINVAL, EBUSY, EINDOUBT, EPEER, ELAYOUT, ESTALE (the grid's board was replaced after the capture): no run is on. */
KVG_API KvgStatus kvg_run_begin(KvgGraph *graph, uint32_t steps, const uint32_t *rows_per_slot, KvgStream stream);
/** The same for several batches that take turns, as a pipeline's micro-batches do: of one grid, at most 4 (and the grid's window W of undecided steps takes as many, 2W being a multiple), with
 *  disjoint sequences, each with steps and votes of its own. Replays are launched in the order of `graphs`, one of each in turn, on every rank. A batch that
 *  stops early stops alone; all end together, by kvg_run_end with any of the graphs. */
KVG_API KvgStatus kvg_run_begin_joint(KvgGraph *const *graphs, const uint32_t *const *rows_per_slot, uint32_t count, uint32_t steps, KvgStream stream);
KVG_API KvgStatus kvg_run_refusal(const KvgGraph *graph, uint32_t slot);
/** Enqueues one replay, with no other host work. A replay beyond `steps`, or after the run has stopped, does nothing. ESTALE no run of this graph is on. */
KVG_API KvgStatus kvg_graph_launch(KvgGraph *graph, KvgStream stream);

typedef struct KvgRunResult {
    size_t          size;       /* set by the caller to sizeof(KvgRunResult) */
    uint64_t        first_step; /* number of the batch's first step in the run */
    uint64_t        published;  /* steps that were published */
    KvgOutcome      outcome;    /* of the last step decided: the last published one, or the one that ended the run early */
    const uint32_t *rows;       /* [slots] rows that the run committed for each place; valid until the batch's next run */
} KvgRunResult;

/** Looks at the outcome word and at the peers, and moves the deadline forward for those that live: *published as above, *stopped = 1 when no later replay will do
 *  anything. Never blocks. kvg_grid_progress does the same looking. Reach: local. */
KVG_API KvgStatus kvg_run_test(KvgGraph *graph, uint64_t *published, int *stopped);
/** Ends the run when `stream` has passed every replay launched on it; every wait in them is bounded by the deadline. Fewer replays than planned are fine, the same
 *  number on every rank. KVG_OK: all that was launched is published; else the status of the step that ended it (as kvg_step_wait; EINDOUBT: settle the grid).
 *  Recurrent layers hold the state at the last row alone then: a rewind behind it is ELAPPED until steps have gone on. Reach: posted. */
KVG_API KvgStatus kvg_run_end(KvgGraph *graph, KvgStream stream, KvgRunResult *result);
/** Status and result of this graph's batch in the run that ended last: what kvg_run_end says of the graph that it was called with. Reach: local. */
KVG_API KvgStatus kvg_run_result(const KvgGraph *graph, KvgRunResult *result);

KVG_END_DECLS
#endif

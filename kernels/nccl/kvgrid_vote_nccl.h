/** Device vote over NCCL: a board (kvgrid_vote.h) in a window that all ranks of a communicator can load and store, without multicast. For
 * programs that link kvgrid_nccl.
 *
 * The communicator stays the caller's: it is never aborted, split or destroyed here, and must outlive the vote. Its rank numbers are the
 * records' ranks. Every kernel ends by itself, so a lost peer leaves nothing running, and NCCL's missing abort does not matter.
 *
 * NCCL's device structures differ from release to release and carry no version, so this is served by exactly the NCCL that it was compiled
 * against. NCCL_NVLS_ENABLE=0 is fine: multicast is never asked for. */
#ifndef KVG_KVGRID_VOTE_NCCL_H
#define KVG_KVGRID_VOTE_NCCL_H

#include <kvgrid/kvgrid_vote.h>

KVG_BEGIN_DECLS

struct ncclComm;
typedef struct KvNcclVote KvNcclVote;

typedef struct KvNcclVoteOptions {
    size_t   size;          /* set by KVG_NCCL_VOTE_OPTIONS_INIT */
    uint32_t tp;            /* ranks a stage; 0: all */
    uint32_t window_steps;  /* W, undecided steps at most; 0: 2 a stage */
    uint32_t sequences_max; /* max_step_sequences */
    uint32_t outcomes;      /* outcome words, one a batch that can be in flight; 0: 1 */
    uint32_t timeout_ms;    /* what waits may last at first, and what set-up waits for a non-blocking communicator; 0: 10000 */
    /* Gives every rank the same status, OK where all have OK: called before anything collective, with what this rank has got ready alone, and at
     * the end. NULL: a rank that fails alone leaves the others waiting inside NCCL. */
    KvgStatus (*agree)(void *user, KvgStatus mine);
    void     *user;
} KvNcclVoteOptions;
#define KVG_NCCL_VOTE_OPTIONS_INIT { sizeof(KvNcclVoteOptions), 0, 0, 0, 0, 0, NULL, NULL }

/** Why this process has no device vote, without a communicator: "" if nothing speaks against it yet. Cut to `bytes`. */
KVG_API KvgStatus kvg_nccl_vote_probe(char *why, size_t bytes);

/** Setup, collective over comm, never during a capture; makes comm's device the current one. ENOTSUP, with the sentence: another NCCL than this was
 *  compiled against; ranks that cannot load and store each other's memory. EINVAL, ENOMEM, EDEVICE; EPEER: a non-blocking comm did not finish. */
KVG_API KvgStatus kvg_nccl_vote_create(struct ncclComm *comm, const KvNcclVoteOptions *options, KvNcclVote **vote);
/** Local. No kernel of this rank may still use the board; peers' may. NULL is allowed. */
KVG_API void kvg_nccl_vote_destroy(KvNcclVote *vote);

KVG_API const KvVoteBoard *kvg_nccl_vote_board(const KvNcclVote *vote);
KVG_API KvVoteControl     *kvg_nccl_vote_control(KvNcclVote *vote);
/** Outcome word `index`: what the host reads, and in `device` (may be NULL) what KvVoteArrays.outcome is set to. NULL past `outcomes`. */
KVG_API volatile uint64_t *kvg_nccl_vote_outcome(KvNcclVote *vote, uint32_t index, uint64_t **device);
/** Pinned memory of kvg_vote_slot_bytes, for kvg_vote_peek_launch. */
KVG_API void *kvg_nccl_vote_peek(KvNcclVote *vote);

KVG_END_DECLS
#endif

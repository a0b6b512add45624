/* Carried comm: a KvComm whose records go by a carrier on devices, and everything else by a base comm. Private.
 *
 *   post   the carrier, as long as it carries; then the base
 *   take   what the carrier has brought, then what the base has
 *   send, recv, now, relax   the base at all times
 *
 * A carrier ends once, for good: when it fails; when a peer is lost or silent for as long as a vote waits while one of its exchanges hangs; when a
 * peer's record comes by the base, which says that the peer's has ended; with the first record of a later epoch, since after a settle nobody knows which
 * ranks' carriers still carry. What had arrived before can still be taken, and what was posted lately goes by the base once more, since it
 * may not have reached all: votes drop what they have. So a carrier that fails on one rank puts no step in doubt. A log line says that it ended.
 * Records are KvVoteRecords. Threads: one at a time. */
#ifndef KVG_COMM_CARRIED_H
#define KVG_COMM_CARRIED_H

#include <kvgrid/comm.h>
#include <kvgrid/vote.h>

typedef struct KvCarrierOps {
    const char *name; /* the comm's */
    /* Gets ready for records of this size; local. Again: nothing is in flight. */
    KvgStatus (*open)(void *self, size_t record_bytes);
    /* Takes a copy of this rank's record and sends it on its way. */
    KvgStatus (*post)(void *self, const KvVoteRecord *record, uint64_t now_ns);
    /* Moves on what is under way. Never waits. A failure is this rank's: the carrier ends. */
    KvgStatus (*poll)(void *self);
    /* As KvCommOps.take. */
    const void *(*take)(void *self, int *peer);
    /* When the oldest exchange was posted that hangs until all ranks have come; 0: none does. NULL: nothing of it ever hangs. */
    uint64_t (*hangs_since)(void *self);
    /* Ends what is under way; open and post are not called any more. */
    void (*stop)(void *self);
    void (*close)(void *self); /* after stop, or without it */
} KvCarrierOps;

typedef struct KvCarriedOptions {
    KvComm            base;       /* taken over on success */
    const KvLiveness *liveness;   /* of the same ranks; copied, must live until the comm is closed. NULL: the deadline alone ends a hang */
    uint32_t          timeout_ms; /* as the votes' */
    uint32_t          epoch;      /* the last one whose records the carrier takes; 0: 1, a new grid's */
    uint32_t          again;      /* records that are sent again: at least W, those of undecided steps. The carriers set it */
} KvCarriedOptions;

/* The carrier is taken over on success. ENOMEM. */
KvgStatus kvg_comm_carried(const KvCarriedOptions *options, const KvCarrierOps *carrier, void *self, KvComm *comm);
/* For who has made one and must not keep it: closes the carrier and leaves the base to its owner. */
void kvg_comm_carried_undo(KvComm *comm);

#endif

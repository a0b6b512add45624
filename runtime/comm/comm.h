/** KvComm and KvLiveness: the seams through which ranks exchange bytes and learn of deaths.
 *
 * KvComm carries two kinds of traffic between the ranks of one grid:
 *   messages  of any size, in order per sender: set-up, settling
 *   records   of one fixed size, each to all other ranks: votes
 * Nothing blocks: send and post copy and queue, recv and take give what has arrived. Waiting loops belong to the
 * caller, who calls relax() after a fruitless round and reads the clock of the same comm, so that a transport may
 * have a virtual one.
 * Threads: one thread at a time per comm. */
#ifndef KVG_COMM_H
#define KVG_COMM_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/status.h>

KVG_BEGIN_DECLS

typedef struct KvCommOps {
    const char *name; /* "self", "inproc", "mesh", "mpi" */

    /* Queues a message for `peer` (never the own rank). Copied: the caller's bytes are free on return.
     * A lost peer is no error: the message is dropped and liveness tells. ENOMEM; EINVAL for a bad rank. */
    KvgStatus (*send)(void *self, int peer, const void *bytes, size_t byte_count);
    /* The next whole message: *peer = its sender, or -1 when none is here. *bytes stays valid until the next recv. */
    KvgStatus (*recv)(void *self, int *peer, const void **bytes, size_t *byte_count);

    /* Fixes the record size, at set-up, while no record is in flight. Every rank calls it with the same size. */
    KvgStatus (*records_open)(void *self, size_t record_bytes);
    /* Sends one record to every other rank. Copied. A lost peer is no error. */
    KvgStatus (*post)(void *self, const void *record);
    /* The next record that has arrived from any peer, in order per sender; NULL when none is here.
     * Valid until the next take. Suitably aligned for uint64_t. */
    const void *(*take)(void *self, int *peer);

    uint64_t (*now_ns)(void *self); /* monotonic */
    /* One fruitless round of a wait: yield the core, or let virtual time pass. `rounds` counts them from 0. */
    void (*relax)(void *self, uint64_t rounds);
    /* Never waits for a peer; what is queued for peers that are alive has a bounded moment to leave. */
    void (*close)(void *self);
} KvCommOps;

typedef struct KvComm {
    const KvCommOps *ops;
    void            *self;
    int              rank, size;
} KvComm;

typedef struct KvLivenessOps {
    const char *name;
    /* Reads signs of life that have arrived, sends our own when due. Never blocks; cheap when called too often. */
    void (*poll)(void *self);
    /* 1 when the connection to `peer` is closed. It never comes back. */
    int (*lost)(void *self, int peer);
    /* When `peer` last gave a sign of life, on the comm's clock; its creation counts as one. */
    uint64_t (*last_sign_ns)(void *self, int peer);
    /* Why `peer` is lost: "connection closed by rank 2 (host n01, pid 4711)". Of one that is not, who it is: "host n01, pid 4711", or "" where
     * that is not known. */
    const char *(*why)(void *self, int peer);
    void (*close)(void *self);
} KvLivenessOps;

typedef struct KvLiveness {
    const KvLivenessOps *ops;
    void                *self;
} KvLiveness;

/** A grid of one rank: nothing to send, nobody to lose. */
KVG_API KvgStatus kvg_comm_self(KvComm *comm, KvLiveness *liveness);

KVG_END_DECLS
#endif

/* Replay's digests: leaves of closing sequences, gathered over the ranks many at a time. Private to the command.
 *
 * Each rank hashes its own stored rows when a request closes and keeps the leaves; after `group` closings (the same ones on every rank)
 * one all-gather brings them together, and rank 0 combines them. The run's digest is XXH3-128 over what each request left, in
 * trace order: its sequence digest (16 bytes), or, refused, its index (u64, little-endian) and the word "refused".
 * Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_DIGEST_H
#define KVG_COMMAND_REPLAY_DIGEST_H

#include "launch/command/replay_mpi.h"

typedef struct ReplayDigests {
    const ReplayLaunch *launch;
    uint64_t            count;        /* requests */
    KvDigest           *sequences;    /* [count] rank 0's */
    uint8_t            *refused;      /* [count] 1: contributes index and word */
    uint32_t            leaves_max;   /* of one sequence on the rank that has most */
    uint32_t            group, held;  /* closings a gather; closings since the last one */
    size_t              group_bytes;  /* of one rank */
    uint8_t            *mine, *all;   /* [group_bytes], [ranks][group_bytes] */
    KvLeaf             *merged;       /* [ranks * leaves_max] rank 0's; NULL elsewhere. Mamba-1 has a leaf a channel: hundreds of thousands */
    uint64_t            differing;    /* sequences whose copies on two ranks were not equal; rank 0's */
    char                first[256];   /* the first of them as a sentence */
} ReplayDigests;

/* Collective. `leaves` is this rank's number for one sequence. */
KvgStatus kvg_replay_digests_create(const ReplayLaunch *launch, uint64_t count, uint32_t leaves, ReplayDigests *digests);
void      kvg_replay_digests_free(ReplayDigests *digests);

void kvg_replay_digests_refuse(ReplayDigests *digests, uint64_t index);
/* Takes the leaves of a sequence of `len` committed rows, before it is closed. Gathers when the group is full: collective then. */
KvgStatus kvg_replay_digests_add(ReplayDigests *digests, uint64_t index, uint64_t len, const KvgSequence *sequence);
/* Gathers what is left. Collective. */
KvgStatus kvg_replay_digests_flush(ReplayDigests *digests);

/* The run's digest, once all is flushed; good on rank 0. */
KvgStatus kvg_replay_digests_final(const ReplayDigests *digests, KvDigest *final);
/* The same as a value: sequences [count], refused [count]. */
KvgStatus kvg_replay_digest_of(const KvDigest *sequences, const uint8_t *refused, uint64_t count, KvDigest *final);

#endif

/** Vote: the record that a rank posts for a step, and the decision over all of them (S7).
 *
 *   KvVoteRecord, little-endian, one size for all ranks of a placement
 *   offset  0 u64 step      8 u32 epoch    12 i16 status   14 u16 rank
 *          16 u64 targets  24 u64 accepted 32 u64 layout   40 u64 user
 *          48 u64 decided  56 u32 count    60 u32 reserved
 *          64 u16 accepted_rows[max_step_sequences]
 *
 * The four digests are sums of a 64-bit mix, sent as 1 where the sum is 0, so that 0 can mean "not passed here".
 * Ownership: plain memory, no pointers. Threads: pure functions, any thread. Reach: local. */
#ifndef KVG_VOTE_H
#define KVG_VOTE_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/status.h>

KVG_BEGIN_DECLS

typedef struct KvVoteRecord {
    uint64_t step;
    uint32_t epoch;
    int16_t  status;   /* 0 ready, else the KvgStatus of a "no" */
    uint16_t rank;     /* world rank; stage = rank / tp */
    uint64_t targets;  /* digest of sequences and target lengths, from the running digest of posted calls on */
    uint64_t accepted; /* digest of accepted counts; 0: not passed here */
    uint64_t layout;   /* digest of formats, shard and ring moves; equal within a stage */
    uint64_t user;     /* the engine's own digest; 0: none */
    uint64_t decided;  /* every step up to this one has been decided by this rank */
    uint32_t count;    /* entries of accepted_rows in use */
    uint32_t reserved; /* 0 */
    __extension__ uint16_t accepted_rows[]; /* [max_step_sequences], as kvg_vote_accepted_pack made them */
} KvVoteRecord;

#define KVG_VOTE_HEADER_BYTES 64u
#define KVG_VOTE_ACCEPTED_ALL 0xFFFFu /* as many as were staged */

/** Bytes of a record: 64 + 2 * max_step_sequences. 256 sequences -> 576. */
KVG_API size_t kvg_vote_record_bytes(uint32_t max_step_sequences);
/** A count as it is stored and digested: KVG_VOTE_ACCEPTED_ALL where all staged rows were accepted.
 *  EINVAL: more than were staged; or part of them, but more than the 65534 that a record can say. */
KVG_API KvgStatus kvg_vote_accepted_pack(uint64_t accepted, uint64_t staged, uint16_t *stored);
/** The count that `stored` means for `staged` rows. EFORMAT: more than were staged. */
KVG_API KvgStatus kvg_vote_accepted_unpack(uint16_t stored, uint64_t staged, uint64_t *accepted);

typedef enum KvVoteKind {
    KVG_VOTE_PUBLISH    = 0,
    KVG_VOTE_REFUSED    = 1, /* `rank` said no with `status` */
    KVG_VOTE_DISAGREE   = 2, /* `rank` and `rank_b` differ in `field` */
    KVG_VOTE_UNACCEPTED = 3  /* nobody passed accepted counts */
} KvVoteKind;

typedef enum KvVoteField {
    KVG_VOTE_FIELD_STATUS   = 0,
    KVG_VOTE_FIELD_EPOCH    = 1,
    KVG_VOTE_FIELD_STEP     = 2,
    KVG_VOTE_FIELD_TARGETS  = 3,
    KVG_VOTE_FIELD_ACCEPTED = 4,
    KVG_VOTE_FIELD_LAYOUT   = 5,
    KVG_VOTE_FIELD_USER     = 6,
    KVG_VOTE_FIELD_COUNT
} KvVoteField;

/** Small enough to be one mapped word pair of a device. */
typedef struct KvVoteOutcome {
    uint8_t  kind;   /* KvVoteKind */
    uint8_t  field;  /* KvVoteField; STATUS unless DISAGREE */
    int16_t  status; /* the refusing rank's code, else 0 */
    uint16_t rank;   /* REFUSED: who; DISAGREE: the first rank compared, else 0 */
    uint16_t rank_b; /* DISAGREE: the lowest that differs from it, else 0 */
} KvVoteOutcome;

/** Decides a step from the records of all ranks, the first thing wrong in S7's order: the same outcome on every rank, host
 *  or device. No allocation, no last error.
 *   records  [n] in rank order, stage of record i = i / tp
 *   tp       ranks a stage, of which n is a multiple; 0 counts as 1
 *  n 0 is unaccepted. */
KVG_API void kvg_vote_decide(const KvVoteRecord *const records[], uint32_t n, uint32_t tp, KvVoteOutcome *outcome);

/** What the outcome means to every rank: OK to publish; EREFUSED naming rank and reason; ELAYOUT naming the field and both
 *  ranks; EINVAL where nobody passed accepted counts. Sets the last error to a sentence that names the step.
 *   records  as decided, for the values in the sentence; may be NULL */
KVG_API KvgStatus kvg_vote_outcome_status(const KvVoteOutcome *outcome, uint64_t step, const KvVoteRecord *const records[]);
/** "status", "epoch", "step", "targets", "accepted", "layout", "user"; "?" outside the range. */
KVG_API const char *kvg_vote_field_name(KvVoteField field);
/** "publish", "refused", "disagree", "unaccepted"; "?" outside the range. */
KVG_API const char *kvg_vote_kind_name(KvVoteKind kind);

KVG_END_DECLS
#endif

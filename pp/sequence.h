/** Sequences: open, grow, rewind, fork, snapshot, close. All but the local ones are posted calls (S7): every rank calls them in the same
 * order; they allocate nothing, act at once, cost no vote, and are mixed into the running digest that each step's vote compares.
 *
 * A posted call that names a sequence with an undecided step decides that step first, within the deadline (EINDOUBT); kvg_sequence_close
 * does not: it is legal in any state. What a posted call answers is the same on every rank; a refused one changed nothing. */
#ifndef KVG_SEQUENCE_H
#define KVG_SEQUENCE_H

#include <kvgrid/digest.h>
#include <kvgrid/latent_snapshot.h>
#include <kvgrid/placement.h>
#include <kvgrid/taps.h>

KVG_BEGIN_DECLS

typedef struct KvgSequence KvgSequence;
typedef struct KvgSnapshot KvgSnapshot;

/** Opens an empty sequence and books `rows` rows for it (0: steps book what they need; more for a guarantee). Reach: posted.
 *   id   the caller's, unique among the open ones (EINVAL)
 *  ECAPACITY past the model's context, or for want of units; EBUSY all max_sequences are open. */
KVG_API KvgStatus kvg_sequence_open(KvgPlacement *placement, uint64_t id, uint64_t rows, KvgSequence **sequence);
/** Closes it, in any state: an undecided step goes on without it. Its memory is reused only after `stream` has passed this point.
 *  The handle is dead afterwards. Reach: posted. */
KVG_API KvgStatus kvg_sequence_close(KvgSequence *sequence, KvgStream stream);
/** Books up to `rows` rows in all. ECAPACITY: nothing booked. Reach: posted. */
KVG_API KvgStatus kvg_sequence_book(KvgSequence *sequence, uint64_t rows);
/** Cuts it to `rows` committed rows. EINVAL past what is committed, ELAPPED rows of a window are gone, ECAPACITY a shared chunk must be copied and
 *  no unit is free, EBUSY inside a step, ETAINTED. Booked units stay booked: kvg_sequence_trim. Reach: posted. */
KVG_API KvgStatus kvg_sequence_rewind(KvgSequence *sequence, uint64_t rows);
/** Gives back units past the committed rows (what a rewind freed, what was booked ahead). EBUSY inside a step. Reach: posted. */
KVG_API KvgStatus kvg_sequence_trim(KvgSequence *sequence);
/** A second sequence with the first `rows` committed rows: full chunks are shared, copied on write; the last partial one is copied now.
 *  EINVAL, ELAPPED, ECAPACITY, EBUSY, ETAINTED. Reach: posted. */
KVG_API KvgStatus kvg_sequence_fork(KvgSequence *sequence, uint64_t rows, uint64_t id, KvgSequence **fork);

/** Remembers lengths (and, for later kinds, state) so that what follows can be taken back. Reach: local; call it between steps. EBUSY inside one. */
KVG_API KvgStatus kvg_sequence_snapshot(KvgSequence *sequence, KvgSnapshot **snapshot);
/** Refreshes a snapshot in place: no allocation. */
KVG_API KvgStatus kvg_sequence_snapshot_into(KvgSequence *sequence, KvgSnapshot *snapshot);
KVG_API void      kvg_snapshot_free(KvgSnapshot *snapshot);
/** 1 if kvg_sequence_rollback(sequence, snapshot, accept) would succeed. Reach: local. */
KVG_API int kvg_sequence_can_rollback(const KvgSequence *sequence, const KvgSnapshot *snapshot, uint64_t accept);
/** Back to the snapshot plus `accept` of the rows written since. EINVAL, ELAPPED, ESTALE (another sequence's), ETAINTED, ECAPACITY. Reach: posted. */
KVG_API KvgStatus kvg_sequence_rollback(KvgSequence *sequence, const KvgSnapshot *snapshot, uint64_t accept);
/** Brings rows back from elsewhere, in three moves: open the sequence with `rows` booked; on each rank write what its layers keep (local:
 *  kvg_sequence_fill_kv, kvg_latent_restore_plane); then this call makes rows [0, rows) committed, in windowed classes from `first_row` on.
 *  EBUSY the sequence is not fresh; ECAPACITY past what is booked; ELAPPED a window reaches below first_row, or the model has recurrent state, which
 *  rows alone do not bring back. Reach: posted. */
KVG_API KvgStatus kvg_sequence_restore(KvgSequence *sequence, uint64_t rows, uint64_t first_row);
/** Encodes K/V rows [row, row+rows) of layer `il` into a fresh sequence's booked room; nothing is committed by it. `rows_in` is a KvgRows of step.h, one sequence's
 *  tokens. EBUSY not fresh; ECAPACITY past what is booked; EINVAL. Reach: local. */
struct KvgRows;
KVG_API KvgStatus kvg_sequence_fill_kv(KvgSequence *sequence, uint32_t il, uint64_t row, uint32_t rows, const struct KvgRows *rows_in, KvgStream stream);

/** This rank found its rows not provably intact: the step it is in, or else the next that names it, is ETAINTED on every rank (a step that is
 *  posted here already goes on without knowing), and so is every later use but close.
 *  Reach: local. */
KVG_API KvgStatus kvg_sequence_taint(KvgSequence *sequence);

/** Tap sinks whose rows are this sequence's (NULL: none); the caller's, detached before they are freed. When the sequence is tainted or closed they are dropped:
 *  what was written is forgotten, and they are disarmed. Reach: local. */
KVG_API KvgStatus kvg_sequence_attach_taps(KvgSequence *sequence, DflashTapSink *dflash, HcTapSink *hc);
/** Keeps a copy of the last row's logits with the sequence, so that it can go on without a forward; count 0 forgets them. Taint, close, a rewind and
 *  every step that names the sequence forget them too. ENOMEM. Reach: local. */
KVG_API KvgStatus kvg_sequence_park_logits(KvgSequence *sequence, const float *logits, uint32_t count);
/** The parked row, NULL if there is none; valid until the next call that names the sequence. */
KVG_API const float *kvg_sequence_parked_logits(const KvgSequence *sequence, uint32_t *count);

typedef struct KvgSequenceInfo {
    size_t   size;        /* set by the caller to sizeof(KvgSequenceInfo) */
    uint64_t id;
    uint64_t rows;        /* committed, as decided here */
    uint64_t rows_staged; /* with the undecided step's */
    uint64_t rows_booked; /* rows that may be staged without booking more */
    uint64_t replay;      /* of the committed rows: the next step has to begin with them (S8) */
    uint64_t generation;  /* raised by every step that names it */
    uint32_t slot;        /* its place in tables and lengths */
    int      tainted;
    int      in_step;     /* 1: begun here and not posted, 2: posted and undecided */
} KvgSequenceInfo;
KVG_API KvgStatus kvg_sequence_info(const KvgSequence *sequence, KvgSequenceInfo *info);

/** Decoded rows [row, row+rows) of one plane (KVG_PLANE_K or _V) of layer `il` on this rank: target [rows][heads][dim] f32, host memory. Reach: local.
 *  EINVAL; ELAPPED behind the window. */
KVG_API KvgStatus kvg_sequence_read(const KvgSequence *sequence, uint32_t il, uint32_t plane, uint64_t row, uint32_t rows, float *target);
/** Where the stored bytes of one row of one head are: the batch's view, for host readers. NULL (last error set) if it is not held here. */
KVG_API uint8_t *kvg_sequence_row(const KvgSequence *sequence, uint32_t il, uint32_t plane, uint32_t head, uint64_t row);

/** The sequence's share on this rank, for the calls of latent_snapshot.h; NULL if it is closed. Decide its last step first. What those calls make is freed before
 *  the placement is destroyed. Reach: local. */
KVG_API KvCache *kvg_sequence_cache(KvgSequence *sequence);

/** The digest of the committed rows, gathered over all ranks, the same on each (S8). Decides the sequence's last step first. Reach: setup. */
KVG_API KvgStatus kvg_sequence_digest(KvgSequence *sequence, KvDigest *digest);
KVG_API KvgStatus kvg_sequence_digest_start(KvgSequence *sequence, KvDigest *digest, KvgSetup **setup);
/** This rank's leaves alone, for callers that gather many at once: fills at most `capacity`, *count says how many there are. Reach: local. */
KVG_API KvgStatus kvg_sequence_leaves(const KvgSequence *sequence, KvLeaf *leaves, size_t capacity, size_t *count);

KVG_END_DECLS
#endif

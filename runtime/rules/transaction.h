/** Transaction: the lengths of one class of layers of one sequence, and the step that may change them (S6).
 *
 *   0 ........ base ........ committed ........ staged ........ capacity
 *              first row     readers see        written, may    booked
 *              still held    up to here         be taken back
 *
 *       begin                prepare_append, publish_append_*  (again and again)
 *   idle -------> open ----------------------------------------+
 *    ^             |<------------------------------------------+
 *    +-------------+  publish_finalize (commit_target says where), or rewind_to
 *
 * Four layouts. LINEAR and RING are flat planes: a ring keeps its rows contiguous and moves them when it is full.
 * POOLED and POOLED_WINDOWED hold rows in chunks by absolute position: nothing ever moves, physical rows are absolute,
 * and a windowed class's base goes up when a step is finalized, so that the chunks below it can be freed.
 *
 * A plan changes nothing. It is good until the next publish on its state, and publishing a good plan cannot fail.
 * Every refused call leaves the state as it was. Units are rows. Ownership: plain values, no pointers inside.
 * Threads: one at a time per state. Reach: local. */
#ifndef KVG_TRANSACTION_H
#define KVG_TRANSACTION_H

#include <stdint.h>

#include <kvgrid/ring.h>

KVG_BEGIN_DECLS

typedef enum TpKvLayout {
    KVG_TP_KV_LINEAR          = 0, /* flat, every row kept */
    KVG_TP_KV_RING            = 1, /* flat, windowed */
    KVG_TP_KV_POOLED          = 2, /* chunks, every row kept */
    KVG_TP_KV_POOLED_WINDOWED = 3  /* chunks, those behind the window freed */
} TpKvLayout;

#define KVG_TP_KV_INIT_FLAT   0u
#define KVG_TP_KV_INIT_POOLED 1u

/** The whole state of a class: one cache line. Read it freely; only the functions below write it. */
typedef struct TpKvState {
    uint64_t committed;
    uint64_t staged;          /* = committed while no transaction is open */
    uint64_t capacity;        /* rows booked, at most INT32_MAX */
    KvRing   ring;            /* RING: all of it; POOLED_WINDOWED: window and base, rows 0; else 0 */
    uint64_t next_generation; /* from 1 */
    uint32_t publishes;       /* counts publishes: a plan that saw another count is stale */
    uint16_t prefill_chunk_max;
    uint8_t  layout;          /* TpKvLayout */
    uint8_t  active;          /* 1 while a transaction is open */
} TpKvState;

typedef struct TpKvTransaction {
    uint64_t generation;
    uint64_t base_len; /* committed rows when it began: a full rollback returns here */
} TpKvTransaction;

typedef struct TpKvAppendPlan {
    uint64_t     target;      /* staged rows once published */
    uint64_t     write_row;   /* physical row of the first new row */
    KvRingAppend ring_append; /* all 0 unless has_ring */
    uint32_t     publishes;   /* the state's count when it was planned */
    uint8_t      has_ring;
} TpKvAppendPlan;

/** A copying grow of flat planes: rows [source_row, source_row + copy_rows) of the old planes go to row 0 of the new. */
typedef struct TpKvGrowPlan {
    uint64_t capacity;    /* of the new planes */
    uint64_t rows;        /* the length they start with */
    uint64_t source_row;  /* physical row in the old planes */
    uint64_t copy_rows;
    uint64_t target_base; /* absolute row at physical row 0 of the new planes */
    uint64_t k_bytes;     /* bytes to copy in one layer of the given token bytes */
    uint64_t v_bytes;
    uint32_t publishes;
} TpKvGrowPlan;

/** A fresh state.
 *   window             0: every row is kept
 *   prefill_chunk_max  most rows of one prefill chunk, 1 to 4096; 0 means 4096; sizes a ring, else unused
 *   flags              KVG_TP_KV_INIT_FLAT or KVG_TP_KV_INIT_POOLED
 *  EINVAL: capacity 0 of flat planes, a larger chunk, unknown flags. EOVERFLOW: capacity above INT32_MAX. */
KVG_API KvgStatus kvg_tp_kv_init(TpKvState *state, uint64_t capacity, uint64_t window, uint32_t prefill_chunk_max,
                                 uint32_t flags);
/** 1 where nothing has happened yet: what hydration and a grow's target must be. */
KVG_API int kvg_tp_kv_fresh(const TpKvState *state);

/** Opens a transaction at the committed length. EBUSY: one is open. */
KVG_API KvgStatus kvg_tp_kv_begin(TpKvState *state, TpKvTransaction *tx);
/** Plans the next `rows` rows of an open transaction. ESTALE: not the open one; EINVAL: rows 0; ECAPACITY: past the
 *  capacity; ENOFIT, ELAPPED: the ring cannot take them beside the rows that a full rollback still needs. */
KVG_API KvgStatus kvg_tp_kv_prepare_append(const TpKvState *state, const TpKvTransaction *tx, uint64_t rows,
                                           TpKvAppendPlan *plan);
/** First half of publishing: moves a ring's base, after the caller has moved the rows; nothing where the plan does not
 *  rebase. ESTALE: the plan is not good any more. */
KVG_API KvgStatus kvg_tp_kv_publish_append_rebase(TpKvState *state, const TpKvAppendPlan *plan);
/** Second half: staged = target. ESTALE: the plan is not good any more, or its rebase has not been published. */
KVG_API KvgStatus kvg_tp_kv_publish_append_plan(TpKvState *state, const TpKvAppendPlan *plan);
/** Where `rows` more rows of the open transaction (or of one begun now) would land, and whether that would rebase.
 *  Errors as prepare_append's, less ESTALE. */
KVG_API KvgStatus kvg_tp_kv_peek_append_ring(const TpKvState *state, uint64_t rows, uint64_t *write_row, int *rebase);
/** base_len + accepted. ESTALE: not the open transaction; EINVAL: accepted above the staged rows. */
KVG_API KvgStatus kvg_tp_kv_commit_target(const TpKvState *state, const TpKvTransaction *tx, uint64_t accepted,
                                          uint64_t *target);
/** Ends the transaction at `target`, a commit_target: base_len is a full rollback. A pooled windowed class's base goes up
 *  to kvg_swa_retain_from(target). ESTALE: not the open transaction; EINVAL: target outside [base_len, staged]. */
KVG_API KvgStatus kvg_tp_kv_publish_finalize(TpKvState *state, const TpKvTransaction *tx, uint64_t target);
/** Takes the length back to `len` and drops an open transaction. ECAPACITY: len above the capacity; EINVAL: above
 *  committed; ELAPPED: rows that attention at len reads are no longer held. */
KVG_API KvgStatus kvg_tp_kv_rewind_to(TpKvState *state, uint64_t len);
/** Fills a fresh state with rows [start, len) that the caller has written. EBUSY: not fresh; ECAPACITY: start > len or
 *  len > capacity; EINVAL: start > 0 without a window; ENOFIT: more rows than the ring's; ELAPPED: less than attention
 *  at len reads. */
KVG_API KvgStatus kvg_tp_kv_publish_hydration(TpKvState *state, uint64_t len, uint64_t start);
/** Plans a copy of the first `rows` rows into new flat planes of `capacity` rows; of a ring, only those in view.
 *   k_tok_bytes, v_tok_bytes  a token's bytes in one layer's planes
 *  EBUSY: a transaction is open; EINVAL: capacity not larger, rows above committed; EOVERFLOW: capacity above INT32_MAX,
 *  or bytes past 64 bits; ELAPPED: rows in view are no longer held. Pooled: ENOTSUP, they extend in place. */
KVG_API KvgStatus kvg_tp_kv_prepare_grow(const TpKvState *state, uint64_t capacity, uint64_t rows, uint64_t k_tok_bytes,
                                         uint64_t v_tok_bytes, TpKvGrowPlan *plan);
/** Makes the fresh `target` go on where `source` stands, generation included; the source's plans are stale afterwards.
 *  ESTALE: the plan is not good any more; ELAYOUT: target is not fresh, or not of the plan's capacity and the source's
 *  layout, window and chunk. */
KVG_API KvgStatus kvg_tp_kv_publish_grow(TpKvState *source, const TpKvGrowPlan *plan, TpKvState *target);
/** Books more rows in place, for pooled planes and for flat ones whose addresses are reserved; legal while a transaction
 *  is open, and plans stay good. EINVAL: not larger; EOVERFLOW: above INT32_MAX. */
KVG_API KvgStatus kvg_tp_kv_extend(TpKvState *state, uint64_t capacity);
/** Physical rows [*first, *past) of absolute rows [start, end). RING as kvg_kv_ring_physical_range; else the identity:
 *  ECAPACITY for end > capacity, ELAPPED for end < start or start < base. */
KVG_API KvgStatus kvg_tp_kv_physical_range(const TpKvState *state, uint64_t start, uint64_t end, uint64_t *first,
                                           uint64_t *past);

KVG_END_DECLS
#endif

/** Ring: how the rows of a sliding window lie in a flat plane, and which of them are still needed (S5).
 *
 *   down(x)  x rounded down to KVG_RING_ALIGN_ROWS;  a - b never goes below 0
 *   absolute row  0 ......... base ......................... len
 *   physical row              0 ............................ len - base  (<= rows)
 *
 * A ring never wraps in the middle of a view: once an append does not fit behind the last row, the rows still needed
 * move to the front (a rebase), and `base`, the absolute row at physical row 0, moves up. Units are rows throughout.
 * Ownership: plain values. Threads: pure functions, any thread. Reach: local. */
#ifndef KVG_RING_H
#define KVG_RING_H

#include <stdint.h>

#include <kvgrid/status.h>

KVG_BEGIN_DECLS

#define KVG_PRIME_CHUNK_MAX_TOKENS 4096u /* most rows that one prefill chunk stages while a ring is on */
#define KVG_SWA_REWIND_SLACK_ROWS  512u  /* rows kept behind the window, so that a short rewind finds them */
#define KVG_RING_ALIGN_ROWS        32u   /* views and bases start at multiples of this */

typedef struct KvRing {
    uint64_t rows;   /* physical rows, >= 1 */
    uint64_t window; /* >= 1; counts the current token */
    uint64_t base;   /* absolute row at physical row 0 */
} KvRing;

typedef enum KvRingAppendKind { KVG_RING_CONTIGUOUS = 0, KVG_RING_REBASE = 1 } KvRingAppendKind;

/** Where an append lands. A rebase first moves keep_rows rows from src_row to row 0, with memmove's meaning: they
 *  overlap when src_row < keep_rows. Of a contiguous append only write_row is set, the rest is 0. */
typedef struct KvRingAppend {
    KvRingAppendKind kind;
    uint64_t         write_row; /* physical row of the first appended row */
    uint64_t         src_row;
    uint64_t         keep_rows;
    uint64_t         new_base;
} KvRingAppend;

/** Rows of a ring: min(max_ctx, window + 4096 + 512 + 31), saturating. (512, 262144) -> 5151. */
KVG_API uint64_t kvg_swa_ring_rows(uint64_t window, uint64_t max_ctx);
/** The same with a placement's own chunk in place of 4096; 0 means 4096. */
KVG_API uint64_t kvg_swa_ring_rows_chunk(uint64_t window, uint64_t max_ctx, uint64_t prefill_chunk_max);
/** First row to keep when row `first_row` is the next to be written: max(base, down(first_row - (window-1) - 512)). */
KVG_API uint64_t kvg_swa_retain_from(uint64_t first_row, uint64_t window, uint64_t base);
/** First row that attention at length `len` may read: down(len - (window-1)). */
KVG_API uint64_t kvg_view_start(uint64_t len, uint64_t window);
/** Rows of the next prefill chunk of `tokens` tokens: min(tokens, prefill_chunk_max) while a ring is on, else all.
 *  prefill_chunk_max 0 means 4096. */
KVG_API uint64_t kvg_prime_chunk_tokens(uint64_t tokens, uint64_t prefill_chunk_max, int ring_on);

/** An empty ring at base 0. EINVAL: rows or window 0. */
KVG_API KvgStatus kvg_kv_ring_init(KvRing *ring, uint64_t rows, uint64_t window);
/** Plans an append of `rows` rows at length `len`, keeping all from `retain_from` on. Changes nothing but *plan.
 *  ELAPPED: len < base, retain_from < base, retain_from > len, or len - base > rows of the ring.
 *  ENOFIT: the rows to keep and the new ones do not fit together. */
KVG_API KvgStatus kvg_kv_ring_append_plan(const KvRing *ring, uint64_t len, uint64_t retain_from, uint64_t rows,
                                          KvRingAppend *plan);
/** Moves the base as planned, after the caller has moved the rows; nothing for a contiguous plan. */
KVG_API void kvg_kv_ring_apply_rebase(KvRing *ring, const KvRingAppend *plan);
/** Physical rows [*first, *past) of absolute rows [start, end). *past - *first = end - start; *first is taken modulo
 *  rows, so the empty range at a full ring's end is [0, 0). Lengths are not looked at: uninitialised rows map too.
 *  ELAPPED: start < base, end < start, or end - base > rows. */
KVG_API KvgStatus kvg_kv_ring_physical_range(const KvRing *ring, uint64_t start, uint64_t end, uint64_t *first,
                                             uint64_t *past);
/** 1 where everything that attention at length `len` reads is still held: view_start(len, window) >= base. */
KVG_API int kvg_kv_ring_can_rewind_to(const KvRing *ring, uint64_t len);
/** What restoring length `len` reads: rows [*start, len) at physical rows [*first, *past). ELAPPED: not held. */
KVG_API KvgStatus kvg_kv_ring_restore_plan(const KvRing *ring, uint64_t len, uint64_t *start, uint64_t *first,
                                           uint64_t *past);

KVG_END_DECLS
#endif

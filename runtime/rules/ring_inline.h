/* Ring, inline: the arithmetic of ring.h as the hot path uses it, without sentences. Private.
 * Each returns what the public function of the same name returns; the public one adds the text of a refusal. */
#ifndef KVG_RING_INLINE_H
#define KVG_RING_INLINE_H

#include <kvgrid/ring.h>

#include "runtime/base/checked.h"

static inline uint64_t kvg_rule_down(uint64_t row)
{
    return row & ~(uint64_t)(KVG_RING_ALIGN_ROWS - 1);
}

static inline uint64_t kvg_rule_view_start(uint64_t len, uint64_t window)
{
    return kvg_rule_down(kvg_monus_u64(len, kvg_monus_u64(window, 1)));
}

static inline uint64_t kvg_rule_retain_from(uint64_t first_row, uint64_t window, uint64_t base)
{
    uint64_t seen = kvg_monus_u64(first_row, kvg_monus_u64(window, 1));
    return kvg_max_u64(base, kvg_rule_down(kvg_monus_u64(seen, KVG_SWA_REWIND_SLACK_ROWS)));
}

static inline KvgStatus kvg_rule_ring_append(const KvRing *ring, uint64_t len, uint64_t retain_from, uint64_t rows,
                                             KvRingAppend *plan)
{
    if (retain_from < ring->base || retain_from > len || len - ring->base > ring->rows) return KVG_ELAPPED;
    uint64_t used = len - ring->base;
    if (rows <= ring->rows - used) {
        *plan = (KvRingAppend){.kind = KVG_RING_CONTIGUOUS, .write_row = used == ring->rows ? 0 : used};
        return KVG_OK;
    }
    uint64_t keep = len - retain_from; /* <= used, so the subtraction below cannot wrap */
    if (rows > ring->rows - keep) return KVG_ENOFIT;
    *plan = (KvRingAppend){.kind = KVG_RING_REBASE, .write_row = keep, .src_row = retain_from - ring->base,
                           .keep_rows = keep, .new_base = retain_from};
    return KVG_OK;
}

static inline KvgStatus kvg_rule_ring_range(const KvRing *ring, uint64_t start, uint64_t end, uint64_t *first,
                                            uint64_t *past)
{
    if (start < ring->base || end < start || end - ring->base > ring->rows) return KVG_ELAPPED;
    uint64_t offset = start - ring->base;
    *first = offset == ring->rows ? 0 : offset;
    *past = *first + (end - start);
    return KVG_OK;
}

#endif

/* Ring: the public face of the window's arithmetic (S5). The decisions are in ring_inline.h; the sentences are here. */
#include "runtime/rules/ring_inline.h"

#include <inttypes.h>

#include "runtime/base/error.h"

uint64_t kvg_swa_ring_rows_chunk(uint64_t window, uint64_t max_ctx, uint64_t prefill_chunk_max)
{
    uint64_t chunk = prefill_chunk_max != 0 ? prefill_chunk_max : KVG_PRIME_CHUNK_MAX_TOKENS;
    uint64_t spare, rows;
    if (!kvg_add_u64(chunk, KVG_SWA_REWIND_SLACK_ROWS + KVG_RING_ALIGN_ROWS - 1, &spare)) return max_ctx;
    if (!kvg_add_u64(window, spare, &rows)) return max_ctx;
    return kvg_min_u64(max_ctx, rows);
}

uint64_t kvg_swa_ring_rows(uint64_t window, uint64_t max_ctx)
{
    return kvg_swa_ring_rows_chunk(window, max_ctx, KVG_PRIME_CHUNK_MAX_TOKENS);
}

uint64_t kvg_swa_retain_from(uint64_t first_row, uint64_t window, uint64_t base)
{
    return kvg_rule_retain_from(first_row, window, base);
}

uint64_t kvg_view_start(uint64_t len, uint64_t window)
{
    return kvg_rule_view_start(len, window);
}

uint64_t kvg_prime_chunk_tokens(uint64_t tokens, uint64_t prefill_chunk_max, int ring_on)
{
    if (!ring_on) return tokens;
    return kvg_min_u64(tokens, prefill_chunk_max != 0 ? prefill_chunk_max : KVG_PRIME_CHUNK_MAX_TOKENS);
}

KvgStatus kvg_kv_ring_init(KvRing *ring, uint64_t rows, uint64_t window)
{
    if (rows == 0 || window == 0) {
        return kvg_fail(KVG_EINVAL, "a ring of %" PRIu64 " rows for a window of %" PRIu64 ": both must be at least 1",
                        rows, window);
    }
    *ring = (KvRing){.rows = rows, .window = window, .base = 0};
    return KVG_OK;
}

KvgStatus kvg_kv_ring_append_plan(const KvRing *ring, uint64_t len, uint64_t retain_from, uint64_t rows,
                                  KvRingAppend *plan)
{
    KvgStatus status = kvg_rule_ring_append(ring, len, retain_from, rows, plan);
    if (status == KVG_ELAPPED) {
        return kvg_fail(status, "append at row %" PRIu64 " that keeps rows from %" PRIu64 ": the ring of %" PRIu64
                        " rows holds rows from %" PRIu64 "; rewind no further than it holds", len, retain_from,
                        ring->rows, ring->base);
    }
    if (status == KVG_ENOFIT) {
        return kvg_fail(status, "append of %" PRIu64 " rows beside %" PRIu64 " kept ones: the ring has %" PRIu64
                        " rows; append in smaller chunks", rows, len - retain_from, ring->rows);
    }
    return status;
}

void kvg_kv_ring_apply_rebase(KvRing *ring, const KvRingAppend *plan)
{
    if (plan->kind != KVG_RING_REBASE) return;
    KVG_ASSERT(plan->new_base >= ring->base);
    ring->base = plan->new_base;
}

KvgStatus kvg_kv_ring_physical_range(const KvRing *ring, uint64_t start, uint64_t end, uint64_t *first, uint64_t *past)
{
    KvgStatus status = kvg_rule_ring_range(ring, start, end, first, past);
    if (status == KVG_OK) return status;
    return kvg_fail(status, "rows %" PRIu64 " to %" PRIu64 " are not held: the ring holds %" PRIu64
                    " rows from row %" PRIu64 " on; start at or after it", start, end, ring->rows, ring->base);
}

int kvg_kv_ring_can_rewind_to(const KvRing *ring, uint64_t len)
{
    return kvg_rule_view_start(len, ring->window) >= ring->base;
}

KvgStatus kvg_kv_ring_restore_plan(const KvRing *ring, uint64_t len, uint64_t *start, uint64_t *first, uint64_t *past)
{
    uint64_t view = kvg_rule_view_start(len, ring->window);
    KVG_TRY(kvg_kv_ring_physical_range(ring, view, len, first, past));
    *start = view;
    return KVG_OK;
}

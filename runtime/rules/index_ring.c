/* Index ring: see index_ring.h (S8). */
#include <kvgrid/index_ring.h>

#include <inttypes.h>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

uint64_t kvg_index_ring_rows_for(int64_t explicit_rows, uint64_t max_ctx)
{
    uint64_t rows = explicit_rows < 0 ? KVG_INDEX_RING_WORKING_ROWS : (uint64_t)explicit_rows;
    return rows < max_ctx ? rows : 0;
}

uint64_t kvg_index_ring_default_rows(uint64_t max_ctx)
{
    return kvg_index_ring_rows_for(KVG_INDEX_RING_UNSET, max_ctx);
}

static uint64_t whole_pools(uint64_t ring_rows, uint64_t pool)
{
    return ring_rows - ring_rows % kvg_max_u64(pool, 1);
}

KvgStatus kvg_index_ring_round(uint64_t ring_rows, uint64_t pool, uint64_t *rounded)
{
    if (ring_rows != 0 && ring_rows < kvg_max_u64(pool, 1)) {
        return kvg_fail(KVG_EINVAL, "an index ring of %" PRIu64 " rows holds no pool of %" PRIu64
                        " rows: set KVGRID_DSA_INDEX_RING to 0 (flat) or to at least one pool", ring_rows, pool);
    }
    *rounded = whole_pools(ring_rows, pool);
    return KVG_OK;
}

uint64_t kvg_index_plane_physical_row(uint64_t ring_rows, uint64_t pool, uint64_t row)
{
    if (ring_rows == 0) return row;
    uint64_t rounded = whole_pools(ring_rows, pool);
    return row % (rounded != 0 ? rounded : ring_rows);
}

int kvg_index_ring_take(uint64_t ring_rounded, uint64_t pool, uint64_t pools_ready, uint64_t cur, uint64_t remaining,
                        uint64_t *take)
{
    if (ring_rounded == 0) {
        *take = remaining;
        return 1;
    }
    uint64_t ready_rows;
    if (!kvg_mul_u64(pools_ready, kvg_max_u64(pool, 1), &ready_rows)) return 0;
    if (cur < ready_rows || cur - ready_rows >= ring_rounded) return 0;
    *take = kvg_min_u64(ring_rounded - (cur - ready_rows), remaining);
    return 1;
}

/* Shape: see shape.h (S4). */
#include <kvgrid/shape.h>

#include <inttypes.h>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

/* One plane's local dim and token bytes; `plane` names it. */
static KvgStatus plane_shape(const char *plane, uint64_t kv_dim, uint64_t ranks, KvFormat format, uint64_t *local,
                             uint64_t *token_bytes)
{
    if (kv_dim % ranks != 0 || kv_dim / ranks % KVG_BLOCK_ELEMENTS != 0) {
        return kvg_fail(KVG_EGEOM, "a %s dim of %" PRIu64 " does not fall over %" PRIu64 " ranks in multiples of %d: use "
                        "fewer ranks, or spread layers over stages instead (pp)", plane, kv_dim, ranks, KVG_BLOCK_ELEMENTS);
    }
    uint64_t blocks = kv_dim / ranks / KVG_BLOCK_ELEMENTS;
    if (!kvg_mul_u64(blocks, kvg_format_bytes_per_32(format), token_bytes)) {
        return kvg_fail(KVG_EOVERFLOW, "a %s row of %" PRIu64 " elements in %s: its bytes are past 64 bits", plane,
                        kv_dim / ranks, kvg_format_name(format));
    }
    *local = kv_dim / ranks;
    return KVG_OK;
}

KvgStatus kvg_tp_kv_rank_allocation_shape(uint64_t kv_dim_k, uint64_t kv_dim_v, uint64_t ranks, KvFormat format_k,
                                          KvFormat format_v, TpKvRankAllocationShape *shape)
{
    if (kv_dim_k == 0 || kv_dim_v == 0 || ranks == 0) {
        return kvg_fail(KVG_EINVAL, "K dim %" PRIu64 ", V dim %" PRIu64 " over %" PRIu64 " ranks: each must be at least 1",
                        kv_dim_k, kv_dim_v, ranks);
    }
    if (kvg_format_bytes_per_32(format_k) == 0 || kvg_format_bytes_per_32(format_v) == 0) {
        return kvg_fail(KVG_EINVAL, "formats %d and %d: both must be formats of a plane", (int)format_k, (int)format_v);
    }
    TpKvRankAllocationShape made = {.fixed_bytes = KVG_KV_LAYER_FIXED_BYTES};
    KVG_TRY(plane_shape("K", kv_dim_k, ranks, format_k, &made.kv_dim_k, &made.k_token_bytes));
    KVG_TRY(plane_shape("V", kv_dim_v, ranks, format_v, &made.kv_dim_v, &made.v_token_bytes));
    uint64_t sum;
    if (!kvg_add_u64(made.k_token_bytes, made.v_token_bytes, &sum)) {
        return kvg_fail(KVG_EOVERFLOW, "K and V rows of %" PRIu64 " and %" PRIu64 " bytes: their sum is past 64 bits",
                        made.k_token_bytes, made.v_token_bytes);
    }
    *shape = made;
    return KVG_OK;
}

uint64_t kvg_tp_kv_shape_bytes_per_token(const TpKvRankAllocationShape *shape)
{
    return shape->k_token_bytes + shape->v_token_bytes;
}

KvgStatus kvg_tp_kv_shape_allocation_bytes(const TpKvRankAllocationShape *shape, uint64_t capacity, uint64_t *bytes)
{
    uint64_t rows, total;
    if (!kvg_mul_u64(kvg_tp_kv_shape_bytes_per_token(shape), capacity, &rows) ||
        !kvg_add_u64(rows, shape->fixed_bytes, &total)) {
        return kvg_fail(KVG_EOVERFLOW, "%" PRIu64 " tokens of %" PRIu64 " bytes: past 64 bits", capacity,
                        kvg_tp_kv_shape_bytes_per_token(shape));
    }
    *bytes = total;
    return KVG_OK;
}

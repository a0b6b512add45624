/* Resident cache: geometry beside one state; the rules of the state are transaction.h's (S6). */
#include <kvgrid/resident.h>

#include <inttypes.h>
#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

KvgStatus kvg_resident_tp_kv_init(ResidentTpKvCache *cache, const ResidentTpKvCacheRank *ranks, uint32_t rank_count,
                                  uint32_t layer_count, uint64_t capacity, uint64_t window, uint32_t prefill_chunk_max,
                                  uint32_t flags)
{
    if (rank_count == 0 || layer_count == 0) {
        return kvg_fail(KVG_EINVAL, "a cache of %u layers on %u ranks: both must be at least 1", layer_count, rank_count);
    }
    TpKvState state;
    KVG_TRY(kvg_tp_kv_init(&state, capacity, window, prefill_chunk_max, flags));
    *cache = (ResidentTpKvCache){.state = state, .layer_count = layer_count, .rank_count = rank_count, .ranks = ranks};
    return KVG_OK;
}

KvgStatus kvg_resident_tp_kv_begin(ResidentTpKvCache *cache, TpKvTransaction *tx)
{
    return kvg_tp_kv_begin(&cache->state, tx);
}

KvgStatus kvg_resident_tp_kv_prepare_append(const ResidentTpKvCache *cache, const TpKvTransaction *tx, uint64_t rows,
                                            TpKvAppendPlan *plan)
{
    return kvg_tp_kv_prepare_append(&cache->state, tx, rows, plan);
}

KvgStatus kvg_resident_tp_kv_publish_append_rebase(ResidentTpKvCache *cache, const TpKvAppendPlan *plan)
{
    return kvg_tp_kv_publish_append_rebase(&cache->state, plan);
}

KvgStatus kvg_resident_tp_kv_publish_append_plan(ResidentTpKvCache *cache, const TpKvAppendPlan *plan)
{
    return kvg_tp_kv_publish_append_plan(&cache->state, plan);
}

KvgStatus kvg_resident_tp_kv_peek_append_ring(const ResidentTpKvCache *cache, uint64_t rows, uint64_t *write_row,
                                              int *rebase)
{
    return kvg_tp_kv_peek_append_ring(&cache->state, rows, write_row, rebase);
}

KvgStatus kvg_resident_tp_kv_commit_target(const ResidentTpKvCache *cache, const TpKvTransaction *tx, uint64_t accepted,
                                           uint64_t *target)
{
    return kvg_tp_kv_commit_target(&cache->state, tx, accepted, target);
}

KvgStatus kvg_resident_tp_kv_publish_finalize(ResidentTpKvCache *cache, const TpKvTransaction *tx, uint64_t target)
{
    return kvg_tp_kv_publish_finalize(&cache->state, tx, target);
}

KvgStatus kvg_resident_tp_kv_rewind_to(ResidentTpKvCache *cache, uint64_t len)
{
    return kvg_tp_kv_rewind_to(&cache->state, len);
}

KvgStatus kvg_resident_tp_kv_publish_hydration(ResidentTpKvCache *cache, uint64_t len, uint64_t start)
{
    return kvg_tp_kv_publish_hydration(&cache->state, len, start);
}

KvgStatus kvg_resident_tp_kv_physical_range(const ResidentTpKvCache *cache, uint64_t start, uint64_t end, uint64_t *first,
                                            uint64_t *past)
{
    return kvg_tp_kv_physical_range(&cache->state, start, end, first, past);
}

/* Token bytes over all layers of all ranks driven here. */
static KvgStatus sum_token_bytes(const ResidentTpKvCache *cache, uint64_t *k_bytes, uint64_t *v_bytes)
{
    uint64_t k = 0, v = 0;
    for (uint32_t rank = 0; rank < cache->rank_count; rank++) {
        for (uint32_t layer = 0; layer < cache->layer_count; layer++) {
            const TpKvRankAllocationShape *shape = &cache->ranks[rank].shapes[layer];
            if (kvg_add_u64(k, shape->k_token_bytes, &k) && kvg_add_u64(v, shape->v_token_bytes, &v)) continue;
            return kvg_fail(KVG_EOVERFLOW, "token bytes of %u layers on %u ranks: past 64 bits", cache->layer_count,
                            cache->rank_count);
        }
    }
    *k_bytes = k;
    *v_bytes = v;
    return KVG_OK;
}

KvgStatus kvg_resident_tp_kv_prepare_grow(const ResidentTpKvCache *cache, uint64_t capacity, uint64_t rows,
                                          TpKvGrowPlan *plan)
{
    uint64_t k_bytes = 0, v_bytes = 0;
    KVG_TRY(sum_token_bytes(cache, &k_bytes, &v_bytes));
    return kvg_tp_kv_prepare_grow(&cache->state, capacity, rows, k_bytes, v_bytes, plan);
}

static KvgStatus check_rank(const ResidentTpKvCache *cache, uint32_t rank_index)
{
    if (rank_index < cache->rank_count) return KVG_OK;
    return kvg_fail(KVG_EINVAL, "rank index %u: this cache has %u ranks", rank_index, cache->rank_count);
}

KvgStatus kvg_resident_tp_kv_grow_layer_bytes(const ResidentTpKvCache *cache, const TpKvGrowPlan *plan,
                                              uint32_t rank_index, uint32_t layer_index, uint64_t *k_bytes,
                                              uint64_t *v_bytes)
{
    KVG_TRY(check_rank(cache, rank_index));
    if (layer_index >= cache->layer_count) {
        return kvg_fail(KVG_EINVAL, "layer index %u: this cache has %u layers", layer_index, cache->layer_count);
    }
    const TpKvRankAllocationShape *shape = &cache->ranks[rank_index].shapes[layer_index];
    uint64_t k, v;
    if (!kvg_mul_u64(plan->copy_rows, shape->k_token_bytes, &k) ||
        !kvg_mul_u64(plan->copy_rows, shape->v_token_bytes, &v)) {
        return kvg_fail(KVG_EOVERFLOW, "%" PRIu64 " rows of layer index %u: past 64 bits", plan->copy_rows, layer_index);
    }
    *k_bytes = k;
    *v_bytes = v;
    return KVG_OK;
}

/* KVG_ELAYOUT names the first rank or layer that differs. */
static KvgStatus check_same_geometry(const ResidentTpKvCache *source, const ResidentTpKvCache *target)
{
    if (source->rank_count != target->rank_count || source->layer_count != target->layer_count) {
        return kvg_fail(KVG_ELAYOUT, "grow from %u layers on %u ranks into %u layers on %u ranks: use a cache of the same "
                        "layout", source->layer_count, source->rank_count, target->layer_count, target->rank_count);
    }
    for (uint32_t rank = 0; rank < source->rank_count; rank++) {
        const ResidentTpKvCacheRank *from = &source->ranks[rank], *to = &target->ranks[rank];
        if (from->tp_rank != to->tp_rank) {
            return kvg_fail(KVG_ELAYOUT, "grow from rank %u into rank %u: use a cache of the same layout", from->tp_rank,
                            to->tp_rank);
        }
        for (uint32_t layer = 0; layer < source->layer_count; layer++) {
            if (memcmp(&from->shapes[layer], &to->shapes[layer], sizeof from->shapes[layer]) == 0) continue;
            return kvg_fail(KVG_ELAYOUT, "grow into other shapes: layer index %u on rank %u takes %" PRIu64
                            " bytes a token here and %" PRIu64 " there; use a cache of the same layout", layer,
                            from->tp_rank, kvg_tp_kv_shape_bytes_per_token(&from->shapes[layer]),
                            kvg_tp_kv_shape_bytes_per_token(&to->shapes[layer]));
        }
    }
    return KVG_OK;
}

KvgStatus kvg_resident_tp_kv_publish_grow(ResidentTpKvCache *source, const TpKvGrowPlan *plan, ResidentTpKvCache *target)
{
    KVG_TRY(check_same_geometry(source, target));
    return kvg_tp_kv_publish_grow(&source->state, plan, &target->state);
}

KvgStatus kvg_resident_tp_kv_allocation_bytes(const ResidentTpKvCache *cache, uint32_t rank_index, uint64_t *bytes)
{
    KVG_TRY(check_rank(cache, rank_index));
    uint64_t total = 0;
    uint64_t rows = cache->state.layout == KVG_TP_KV_RING ? cache->state.ring.rows : cache->state.capacity;
    for (uint32_t layer = 0; layer < cache->layer_count; layer++) {
        uint64_t own;
        KVG_TRY(kvg_tp_kv_shape_allocation_bytes(&cache->ranks[rank_index].shapes[layer], rows, &own));
        if (!kvg_add_u64(total, own, &total)) {
            return kvg_fail(KVG_EOVERFLOW, "planes of %u layers of %" PRIu64 " rows: past 64 bits", cache->layer_count, rows);
        }
    }
    *bytes = total;
    return KVG_OK;
}

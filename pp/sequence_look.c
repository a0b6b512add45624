/* Sequence, looking: local calls that change nothing. */
#include "pp/internal.h"

#include <kvgrid/ring.h>

static KvgStatus check(const KvgSequence *sequence)
{
    if (sequence == NULL || !sequence->open) {
        return kvg_fail(KVG_ESTALE, "the sequence is closed");
    }
    return KVG_OK;
}

KvgStatus kvg_sequence_info(const KvgSequence *sequence, KvgSequenceInfo *info)
{
    KVG_TRY(check(sequence));
    const KvCache  *cache = &sequence->cache;
    KvgSequenceInfo own = { .id = sequence->id, .rows = cache->pos, .rows_staged = kvg_kv_cache_staged(cache),
                            .rows_booked = kvg_kv_cache_rows_booked(cache), .replay = kvg_kv_cache_replay(cache), .generation = sequence->generation,
                            .slot = cache->slot, .tainted = cache->tainted || sequence->taint_pending, .in_step = kvg_sequence_in_step(sequence) };
    return KVG_SIZED_OUT(KvgSequenceInfo, own, info);
}

/* Rows [row, row+rows) of layer `il` are held here and committed or staged. */
static KvgStatus check_rows(const KvgSequence *sequence, uint32_t il, uint32_t plane, uint64_t row, uint64_t rows, const KvPlaneView **view_p)
{
    KVG_TRY(check(sequence));
    const KvCache     *cache = &sequence->cache;
    if (kvg_placement_view(sequence->placement, il) == NULL) {
        return KVG_EINVAL;
    }
    const KvPlaneView *view = kvg_store_view(sequence->placement->store, il); /* the host's own: the one shown may point into a device's memory */
    if (cache->tainted || sequence->taint_pending) {
        return kvg_fail(KVG_ETAINTED, "sequence %llu is tainted: its rows are not provably intact; close it", (unsigned long long)sequence->id);
    }
    if (plane > KVG_PLANE_V || row + rows < row || row + rows > kvg_kv_cache_staged(cache)) {
        return kvg_fail(KVG_EINVAL, "rows [%llu, %llu) of plane %u: K is 0, V is 1, and sequence %llu has %llu rows", (unsigned long long)row,
                        (unsigned long long)(row + rows), plane, (unsigned long long)sequence->id,
                        (unsigned long long)kvg_kv_cache_staged(cache));
    }
    if (row < view->base_row[cache->slot]) {
        return kvg_fail(KVG_ELAPPED, "row %llu of layer %u fell behind the window: rows from %u on are held", (unsigned long long)row, il,
                        view->base_row[cache->slot]);
    }
    *view_p = view;
    return KVG_OK;
}

KvgStatus kvg_sequence_read(const KvgSequence *sequence, uint32_t il, uint32_t plane, uint64_t row, uint32_t rows, float *target)
{
    const KvPlaneView *view = NULL;

    KVG_TRY(check_rows(sequence, il, plane, row, rows, &view));
    return kvg_store_read(sequence->cache.store, view->layer, plane, sequence->cache.slot, row, rows, target);
}

uint8_t *kvg_sequence_row(const KvgSequence *sequence, uint32_t il, uint32_t plane, uint32_t head, uint64_t row)
{
    const KvPlaneView *view = NULL;

    if (check_rows(sequence, il, plane, row, 1, &view) != KVG_OK) {
        return NULL;
    }
    if (head >= view->heads) {
        kvg_fail(KVG_EINVAL, "head %u: layer %u has %u heads on this rank", head, il, view->heads);
        return NULL;
    }
    return kvg_plane_row(view, plane == KVG_PLANE_K ? &view->k : &view->v, sequence->cache.slot, head, row);
}

KvCache *kvg_sequence_cache(KvgSequence *sequence)
{
    return check(sequence) == KVG_OK ? &sequence->cache : NULL;
}

KvgStatus kvg_sequence_leaves(const KvgSequence *sequence, KvLeaf *leaves, size_t capacity, size_t *count)
{
    KVG_TRY(check(sequence));
    KVG_TRY(kvg_grid_no_run(sequence->placement->grid));
    *count = kvg_kv_cache_leaf_count(&sequence->cache);
    if (capacity == 0) {
        return KVG_OK;
    }
    if (capacity < *count) {
        return kvg_fail(KVG_EINVAL, "room for %zu leaves is too little: sequence %llu has %zu here", capacity, (unsigned long long)sequence->id, *count);
    }
    if (sequence->taint_pending) {
        return kvg_fail(KVG_ETAINTED, "sequence %llu: its rows are not provably intact on this rank; close it", (unsigned long long)sequence->id);
    }
    return kvg_kv_cache_leaves(&sequence->cache, leaves);
}

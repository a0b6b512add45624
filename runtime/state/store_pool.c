/* Store, pool layout: tables of chunk ids. Booking, sliding, trimming and sharing touch tables and counts alone. */
#include "runtime/state/store_impl.h"

#include <inttypes.h>

#include "runtime/base/checked.h"

/* ---- planes */

static KvgStatus open_plane(KvStore *store, const StoreClass *class, StorePlane *plane, KvPlane *view)
{
    const KvDevOps *ops = store->dev->ops;
    uint64_t        reserved, taken;

    if (!kvg_mul_u64(class->geometry.units_max, view->chunk_bytes, &reserved) || reserved > SIZE_MAX / 2) {
        return kvg_fail(KVG_EOVERFLOW, "a pool of up to %u chunks of %zu bytes does not fit; lower the units",
                        class->geometry.units_max, view->chunk_bytes);
    }
    taken = (uint64_t)class->geometry.units * view->chunk_bytes;
    if (!kvg_store_reserves(store)) {
        KVG_TRY(ops->uninit(store->dev->self, taken, &plane->memory));
        plane->memory_bytes = taken;
        view->base = plane->memory;
        return KVG_OK;
    }
    KVG_TRY(ops->reserve(store->dev->self, reserved > 0 ? reserved : 1, &plane->range));
    view->base = plane->range.base;
    return ops->extend(store->dev->self, &plane->range, taken);
}

KvgStatus kvg_store_open_pool_planes(KvStore *store, StoreLayer *layer)
{
    const StoreClass *class = &store->classes[layer->class_index];

    for (uint32_t p = 0; p < layer->plane_count; p++) KVG_TRY(open_plane(store, class, &layer->planes[p], layer->planes[p].at));
    return KVG_OK;
}

/* ---- booking and giving back */

void kvg_store_pool_book(KvStore *store, StoreClass *class, uint32_t slot, uint32_t end)
{
    StoreSpan *span = &class->spans[slot];
    int32_t   *table = kvg_store_table(store, class, slot);

    KVG_ASSERT(end <= store->table_stride);
    if (end <= span->end) return;
    KVG_ASSERT(end - span->end <= class->pool.free_count);
    class->entries += end - span->end;
    for (uint32_t e = span->end; e < end; e++) kvg_store_set_entry(store, &table[e], kvg_pool_take(&class->pool));
    span->end = end;
}

void kvg_store_pool_trim(KvStore *store, StoreClass *class, uint32_t slot, uint32_t end)
{
    StoreSpan *span = &class->spans[slot];
    int32_t   *table = kvg_store_table(store, class, slot);
    uint32_t   keep = end > span->first ? end : span->first;

    if (keep >= span->end) return;
    class->entries -= span->end - keep;
    for (uint32_t e = span->end; e-- > keep;) { /* from the end, so that the next to book gets them in table order */
        kvg_pool_drop(&class->pool, table[e]);
        kvg_store_set_entry(store, &table[e], -1);
    }
    store->units_freed = 1;
    span->end = keep;
}

void kvg_store_drop_below(KvStore *store, uint32_t class_index, uint32_t slot, uint64_t row, uint32_t keep_end)
{
    StoreClass *class = &store->classes[class_index];
    StoreSpan  *span = &class->spans[slot];
    int32_t    *table = kvg_store_table(store, class, slot);
    uint32_t    past = (uint32_t)(row / KVG_CHUNK_ROWS);

    KVG_ASSERT(store->layout == KVG_LAYOUT_POOL && keep_end <= store->table_stride);
    if (past > span->end) past = span->end;
    for (; span->first < past; span->first++) {
        int32_t id = table[span->first];

        kvg_store_set_entry(store, &table[span->first], -1);
        store->units_freed = 1;
        if (span->end < keep_end && !kvg_pool_shared(&class->pool, id)) {
            kvg_store_set_entry(store, &table[span->end++], id);
        } else {
            kvg_pool_drop(&class->pool, id);
            class->entries--;
        }
    }
}

/* ---- sharing */

static void copy_rows_of_plane(KvStore *store, const StorePlane *plane, int32_t source, int32_t target, uint64_t rows,
                               KvgStream stream)
{
    const KvPlane *at = plane->at;
    const uint8_t *from = at->base + (size_t)source * at->chunk_bytes;
    uint8_t       *to = at->base + (size_t)target * at->chunk_bytes;

    for (uint32_t head = 0; head < plane->heads; head++) {
        KvgStatus status = store->dev->ops->move(store->dev->self, to + head * at->head_stride, from + head * at->head_stride,
                                                 kvg_store_entries(plane, rows) * at->row_stride, stream);
        kvg_store_copied(store, status);
    }
}

/* The first `rows` rows of a chunk, in every plane of the class. */
static void copy_chunk(KvStore *store, uint32_t class_index, int32_t source, int32_t target, uint64_t rows, KvgStream stream)
{
    for (uint32_t i = 0; i < store->layer_count; i++) {
        StoreLayer *layer = &store->layers[i];

        if (layer->class_index != class_index) continue;
        for (uint32_t p = 0; p < layer->plane_count; p++) {
            copy_rows_of_plane(store, &layer->planes[p], source, target, rows, stream);
        }
    }
}

void kvg_store_pool_fork(KvStore *store, uint32_t class_index, uint32_t source, uint32_t target, uint64_t first_row,
                         uint64_t rows, KvgStream stream)
{
    StoreClass    *class = &store->classes[class_index];
    const int32_t *from = kvg_store_table(store, class, source);
    int32_t       *to = kvg_store_table(store, class, target);
    uint32_t       first = (uint32_t)(first_row / KVG_CHUNK_ROWS);
    uint32_t       full = (uint32_t)(rows / KVG_CHUNK_ROWS);
    uint32_t       end = full;

    KVG_ASSERT(first >= class->spans[source].first && rows <= (uint64_t)class->spans[source].end * KVG_CHUNK_ROWS);
    for (uint32_t e = first; e < full; e++) {
        kvg_pool_share(&class->pool, from[e]);
        kvg_store_set_entry(store, &to[e], from[e]);
    }
    if (rows > first_row && rows % KVG_CHUNK_ROWS != 0) {
        kvg_store_set_entry(store, &to[end], kvg_pool_take(&class->pool));
        copy_chunk(store, class_index, from[end], to[end], rows % KVG_CHUNK_ROWS, stream);
        end++;
    }
    class->spans[target] = (StoreSpan){.first = first, .end = end};
    class->entries += end - first;
}

int32_t kvg_store_chunk(const KvStore *store, uint32_t class_index, uint32_t slot, uint32_t entry)
{
    const StoreClass *class = &store->classes[class_index];

    KVG_ASSERT(store->layout == KVG_LAYOUT_POOL && entry >= class->spans[slot].first && entry < class->spans[slot].end);
    return kvg_store_table(store, class, slot)[entry];
}

void kvg_store_share(KvStore *store, uint32_t class_index, uint32_t source, uint32_t target, uint32_t end)
{
    StoreClass *class = &store->classes[class_index];
    StoreSpan  *span = &class->spans[target];
    int32_t    *to = kvg_store_table(store, class, target);

    for (; span->end < end; span->end++, class->entries++) {
        int32_t id = kvg_store_chunk(store, class_index, source, span->end);

        kvg_pool_share(&class->pool, id);
        kvg_store_set_entry(store, &to[span->end], id);
    }
}

uint32_t kvg_store_unshare_units(const KvStore *store, uint32_t class_index, uint32_t slot, uint64_t row)
{
    const StoreClass *class = &store->classes[class_index];
    uint32_t          entry = (uint32_t)(row / KVG_CHUNK_ROWS);
    const StoreSpan  *span = &class->spans[slot];

    if (store->layout == KVG_LAYOUT_FLAT || row % KVG_CHUNK_ROWS == 0 || entry < span->first || entry >= span->end) return 0;
    return kvg_pool_shared(&class->pool, kvg_store_table(store, class, slot)[entry]) != 0;
}

uint32_t kvg_store_rewrite_units(const KvStore *store, uint32_t class_index, uint32_t slot, uint64_t row, uint32_t end)
{
    const StoreClass *class = &store->classes[class_index];
    const StoreSpan  *span = &class->spans[slot];
    uint32_t          own = 0, first = (uint32_t)(row / KVG_CHUNK_ROWS), partial = row % KVG_CHUNK_ROWS != 0;

    if (store->layout == KVG_LAYOUT_FLAT || first >= span->end) return 0;
    for (uint32_t e = first + partial; e < span->end; e++) {
        own += !kvg_pool_shared(&class->pool, kvg_store_table(store, class, slot)[e]);
    }
    uint32_t left = first + partial + own; /* the table's end once the shared ones are gone */
    return kvg_store_unshare_units(store, class_index, slot, row) + (end > left ? end - left : 0);
}

/* Chunks from `row` on hold nothing any more: shared ones go back to their other holders, the slot's own close up. */
static void close_up(KvStore *store, StoreClass *class, uint32_t slot, uint32_t from)
{
    StoreSpan *span = &class->spans[slot];
    int32_t   *table = kvg_store_table(store, class, slot);
    uint32_t   kept = from;

    for (uint32_t e = from; e < span->end; e++) {
        int32_t id = table[e];

        kvg_store_set_entry(store, &table[e], -1);
        if (kvg_pool_shared(&class->pool, id)) {
            kvg_pool_drop(&class->pool, id);
        } else {
            kvg_store_set_entry(store, &table[kept++], id);
        }
    }
    class->entries -= span->end - kept;
    span->end = kept;
}

void kvg_store_unshare(KvStore *store, uint32_t class_index, uint32_t slot, uint64_t row, KvgStream stream)
{
    StoreClass *class = &store->classes[class_index];
    uint32_t    entry = (uint32_t)(row / KVG_CHUNK_ROWS);

    if (store->layout == KVG_LAYOUT_FLAT || entry >= class->spans[slot].end) return;
    KVG_ASSERT(entry >= class->spans[slot].first);
    if (kvg_store_unshare_units(store, class_index, slot, row) != 0) {
        int32_t *table = kvg_store_table(store, class, slot);
        int32_t  shared = table[entry];

        kvg_store_set_entry(store, &table[entry], kvg_pool_take(&class->pool));
        copy_chunk(store, class_index, shared, table[entry], row % KVG_CHUNK_ROWS, stream);
        kvg_pool_drop(&class->pool, shared);
    }
    close_up(store, class, slot, entry + (row % KVG_CHUNK_ROWS != 0));
}

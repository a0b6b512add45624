/* Store, units: the calls that both layouts answer, and the byte counts (S3). */
#include "runtime/state/store_impl.h"

#include "runtime/base/traced.h"

uint32_t kvg_store_units_free(const KvStore *store, uint32_t class_index)
{
    return store->classes[class_index].pool.free_count;
}

uint32_t kvg_store_units_total(const KvStore *store, uint32_t class_index)
{
    return store->classes[class_index].pool.total;
}

uint32_t kvg_store_end(const KvStore *store, uint32_t class_index, uint32_t slot)
{
    return store->classes[class_index].spans[slot].end;
}

uint32_t kvg_store_held(const KvStore *store, uint32_t class_index, uint32_t slot)
{
    const StoreSpan *span = &store->classes[class_index].spans[slot];
    return span->end - span->first;
}

static KvgStatus book(KvStore *store, uint32_t class_index, uint32_t slot, uint32_t end)
{
    if (store->layout == KVG_LAYOUT_FLAT) return kvg_store_flat_book(store, class_index, slot, end);
    kvg_store_pool_book(store, &store->classes[class_index], slot, end);
    return KVG_OK;
}

KvgStatus kvg_store_book(KvStore *store, uint32_t class_index, uint32_t slot, uint32_t end)
{
    if (end <= store->classes[class_index].spans[slot].end) return book(store, class_index, slot, end);
    KVG_RETURN_RANGED(KVG_RANGE_GROW, (uint64_t)end * KVG_CHUNK_ROWS, book(store, class_index, slot, end));
}

KvgStatus kvg_store_book_from(KvStore *store, uint32_t class_index, uint32_t slot, uint32_t first, uint32_t end)
{
    StoreSpan *span = &store->classes[class_index].spans[slot];

    KVG_ASSERT(span->first == span->end && first <= end);
    if (store->layout == KVG_LAYOUT_POOL) span->first = span->end = first;
    return kvg_store_book(store, class_index, slot, end);
}

void kvg_store_trim(KvStore *store, uint32_t class_index, uint32_t slot, uint32_t end)
{
    if (store->layout == KVG_LAYOUT_FLAT) {
        kvg_store_flat_trim(store, class_index, slot, end);
    } else {
        kvg_store_pool_trim(store, &store->classes[class_index], slot, end);
    }
}

uint32_t kvg_store_fork_units(const KvStore *store, uint32_t class_index, uint32_t source, uint64_t first_row, uint64_t rows)
{
    const StoreClass *class = &store->classes[class_index];

    if (rows == 0) return 0;
    if (store->layout == KVG_LAYOUT_POOL) return rows > first_row && rows % KVG_CHUNK_ROWS != 0;
    (void)source;
    return kvg_store_is_ring(store, class) ? class->spans[source].end
                                           : (uint32_t)((rows + KVG_CHUNK_ROWS - 1) / KVG_CHUNK_ROWS);
}

KvgStatus kvg_store_fork(KvStore *store, uint32_t class_index, uint32_t source, uint32_t target, uint64_t first_row,
                         uint64_t rows, KvgStream stream)
{
    KVG_ASSERT(kvg_store_held(store, class_index, target) == 0 && first_row <= rows);
    if (store->layout == KVG_LAYOUT_FLAT) {
        return kvg_store_flat_fork(store, class_index, source, target, first_row, rows, stream);
    }
    kvg_store_pool_fork(store, class_index, source, target, first_row, rows, stream);
    return KVG_OK;
}

void kvg_store_release(KvStore *store, uint32_t slot, KvgStream stream)
{
    if (store->mirrored && stream != NULL) { /* what is freed here is written again only after the last reader, who may be unknown to the device */
        kvg_store_copied(store, store->dev->ops->event_record(store->dev->self, store->order, stream));
        kvg_store_copied(store, store->dev->ops->stream_wait(store->dev->self, NULL, store->order));
    }
    for (uint32_t c = 0; c < store->class_count; c++) {
        kvg_store_trim(store, c, slot, 0);
        store->classes[c].spans[slot].first = store->classes[c].spans[slot].end = 0; /* a table that slid starts anew */
        kvg_store_set_base(store, c, slot, 0);
    }
    kvg_store_set_len(store, slot, 0, 0);
    store->slots_open -= store->slot_states[slot].open;
    store->slot_states[slot].open = 0;
}

/* ---- bytes */

static uint64_t plane_taken(const KvStore *store, const StorePlane *plane)
{
    uint64_t taken = plane->range.taken + plane->memory_bytes;

    for (uint32_t slot = 0; plane->slices != NULL && slot < store->slots; slot++) taken += plane->slices[slot].taken;
    return taken;
}

/* Flat units can be counted while their memory could not be had on this rank: those are not booked bytes. */
static uint64_t units_with_memory(const KvStore *store, const StoreClass *class)
{
    uint64_t units = 0;

    if (store->layout == KVG_LAYOUT_POOL) return class->pool.total - class->pool.free_count;
    for (uint32_t slot = 0; slot < store->slots; slot++) {
        uint32_t backed = kvg_store_reserves(store) ? class->spans[slot].backed : class->slice_units;
        units += class->spans[slot].end < backed ? class->spans[slot].end : backed;
    }
    return units;
}

KvStoreBytes kvg_store_bytes(const KvStore *store)
{
    KvStoreBytes bytes = {.booked = store->slots_open * store->slot_bytes, .taken = store->arena_bytes + store->scratch_bytes};

    if (store->mirrored) bytes.taken += (store->layers_max + 1) * sizeof *store->device_counts;
    for (uint32_t c = 0; c < store->class_count; c++) {
        const StoreClass *class = &store->classes[c];

        bytes.booked += units_with_memory(store, class) * kvg_store_unit_bytes(store, c);
        if (store->layout == KVG_LAYOUT_POOL) bytes.booked += class->entries * sizeof(int32_t);
    }
    for (uint32_t i = 0; i < store->layer_count; i++) {
        const StoreLayer *layer = &store->layers[i];

        bytes.taken += layer->slots_range.base != NULL ? layer->slots_range.taken : layer->slots_bytes;
        for (uint32_t p = 0; p < layer->plane_count; p++) bytes.taken += plane_taken(store, &layer->planes[p]);
    }
    return bytes;
}

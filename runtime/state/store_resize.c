/* Store, resize: prepare takes the memory, then all ranks vote, then publish makes it count or cancel gives it back. */
#include "runtime/state/store_impl.h"

#include <kvgrid/log.h>

static KvgStatus check_resize(const KvStore *store, uint32_t class_index, uint32_t units)
{
    const KvPool *pool = &store->classes[class_index].pool;

    if (units > pool->units_max) {
        return kvg_fail(KVG_EINVAL, "class %u cannot have %u units: addresses are reserved for %u; place with a higher maximum",
                        class_index, units, pool->units_max);
    }
    if (!kvg_pool_can_resize(pool, units)) {
        return kvg_fail(KVG_EBUSY, "class %u cannot shrink from %u to %u units: %u are in use, some of those that would go; close "
                        "sequences first", class_index, pool->total, units, pool->total - pool->free_count);
    }
    if (units > pool->total && store->layout == KVG_LAYOUT_POOL && !kvg_store_reserves(store)) {
        return kvg_fail(KVG_ENOTSUP, "class %u cannot grow from %u to %u units: device %s cannot extend a pool in place; place with "
                        "the units it will need", class_index, pool->total, units, store->dev->ops->name);
    }
    return KVG_OK;
}

/* Planes of the layer that are slabs in a reserved range. */
static uint32_t slab_planes(const KvStore *store, const StoreLayer *layer)
{
    return store->layout == KVG_LAYOUT_POOL && kvg_store_reserves(store) ? layer->plane_count : 0;
}

/* What every pool has beyond its class's units goes back. What cannot be given back stays, and is counted as taken. */
static void give_back_slabs(KvStore *store)
{
    for (uint32_t i = 0; i < store->layer_count; i++) {
        StoreLayer *layer = &store->layers[i];

        for (uint32_t p = 0; p < slab_planes(store, layer); p++) {
            size_t kept = store->classes[layer->class_index].pool.total * layer->planes[p].at->chunk_bytes;

            if (store->dev->ops->give_back(store->dev->self, &layer->planes[p].range, kept) != KVG_OK) {
                kvg_log(KVG_LOG_WARN, "slabs of layer %u are kept: %s", layer->layer, kvg_last_error());
            }
        }
    }
}

static KvgStatus extend_slabs(KvStore *store, const uint32_t *units)
{
    for (uint32_t i = 0; i < store->layer_count; i++) {
        StoreLayer *layer = &store->layers[i];

        for (uint32_t p = 0; p < slab_planes(store, layer); p++) {
            size_t wanted = units[layer->class_index] * layer->planes[p].at->chunk_bytes;
            KVG_TRY(store->dev->ops->extend(store->dev->self, &layer->planes[p].range, wanted));
        }
    }
    return KVG_OK;
}

KvgStatus kvg_store_resize_prepare(KvStore *store, const uint32_t *units)
{
    KvgStatus status;

    if (store->resizing) return kvg_fail(KVG_EBUSY, "a resize is prepared already: publish or cancel it first");
    for (uint32_t c = 0; c < store->class_count; c++) KVG_TRY(check_resize(store, c, units[c]));
    KVG_TRY_GOTO(extend_slabs(store, units), err_give_back);
    for (uint32_t c = 0; c < store->class_count; c++) store->classes[c].units_next = units[c];
    store->resizing = 1;
    return KVG_OK;
err_give_back:
    give_back_slabs(store);
    return status;
}

void kvg_store_resize_publish(KvStore *store)
{
    KVG_ASSERT(store->resizing);
    for (uint32_t c = 0; c < store->class_count; c++) {
        kvg_pool_resize(&store->classes[c].pool, store->classes[c].units_next);
        store->classes[c].geometry.units = store->classes[c].units_next;
    }
    store->resizing = 0;
    give_back_slabs(store);
}

void kvg_store_resize_cancel(KvStore *store)
{
    KVG_ASSERT(store->resizing);
    store->resizing = 0;
    give_back_slabs(store);
}

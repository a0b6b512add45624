/* Store, resize: prepare takes the memory, then all ranks vote, then publish makes it count or cancel gives it back. What was made ahead is part of
 * the planes' ranges already, so that prepare finds it there. */
#include "runtime/state/store_impl.h"

#include <kvgrid/log.h>

#include "runtime/base/traced.h"

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

static size_t slab_bytes(const StorePlane *plane, uint32_t units)
{
    return (size_t)units * plane->at->chunk_bytes;
}

static uint32_t more_of(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* What every pool has beyond its class's units goes back. What cannot be given back stays, and is counted as taken. */
void kvg_store_give_back_slabs(KvStore *store)
{
    for (uint32_t i = 0; i < store->layer_count; i++) {
        StoreLayer *layer = &store->layers[i];

        for (uint32_t p = 0; p < slab_planes(store, layer); p++) {
            const StoreClass *class = &store->classes[layer->class_index];
            size_t            kept = slab_bytes(&layer->planes[p], more_of(class->pool.total, class->units_ahead));

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
            KVG_TRY(store->dev->ops->extend(store->dev->self, &layer->planes[p].range,
                                            slab_bytes(&layer->planes[p], units[layer->class_index])));
        }
    }
    return KVG_OK;
}

KvgStatus kvg_store_extend_slabs(KvStore *store, const uint32_t *units)
{
    KVG_RETURN_RANGED(KVG_RANGE_GROW, 0, extend_slabs(store, units));
}

KvgStatus kvg_store_resize_prepare(KvStore *store, const uint32_t *units)
{
    KvgStatus status;

    if (store->resizing || store->asleep) {
        return kvg_fail(KVG_EBUSY, store->asleep ? "the memory is asleep: wake it before a resize" : "a resize is prepared already: publish or cancel it first");
    }
    for (uint32_t c = 0; c < store->class_count; c++) KVG_TRY(check_resize(store, c, units[c]));
    KVG_TRY_GOTO(kvg_store_extend_slabs(store, units), err_give_back);
    for (uint32_t c = 0; c < store->class_count; c++) store->classes[c].units_next = units[c];
    store->resizing = 1;
    return KVG_OK;
err_give_back:
    kvg_store_give_back_slabs(store);
    return status;
}

void kvg_store_resize_publish(KvStore *store)
{
    KVG_ASSERT(store->resizing);
    for (uint32_t c = 0; c < store->class_count; c++) {
        kvg_pool_resize(&store->classes[c].pool, store->classes[c].units_next);
        store->classes[c].geometry.units = store->classes[c].units_next;
        store->classes[c].units_ahead = 0; /* used, or wanted no longer */
    }
    store->resizing = 0;
    kvg_store_give_back_slabs(store);
}

void kvg_store_resize_cancel(KvStore *store)
{
    KVG_ASSERT(store->resizing);
    store->resizing = 0;
    kvg_store_give_back_slabs(store);
}

/* ---- ahead of a resize */

KvgStatus kvg_store_ahead(KvStore *store, const uint32_t *units)
{
    uint32_t  wanted[KVG_CLASSES_MAX];
    KvgStatus status;

    if (store->resizing || store->asleep) {
        return kvg_fail(KVG_EBUSY, "slabs cannot be made ahead while a resize is %s", store->asleep ? "out of question: the memory is asleep" : "prepared");
    }
    if (store->layout != KVG_LAYOUT_POOL || !kvg_store_reserves(store)) {
        return kvg_fail(KVG_ENOTSUP, "slabs cannot be made ahead for %s on device %s: only pools in reserved ranges are extended by a resize",
                        store->layout == KVG_LAYOUT_POOL ? "pools" : "flat planes", store->dev->ops->name);
    }
    for (uint32_t c = 0; c < store->class_count; c++) {
        const KvPool *pool = &store->classes[c].pool;
        wanted[c] = units[c] < pool->units_max ? units[c] : pool->units_max;
        wanted[c] = more_of(wanted[c], pool->total);
    }
    KVG_TRY_GOTO(kvg_store_extend_slabs(store, wanted), err_give_back);
    for (uint32_t c = 0; c < store->class_count; c++) {
        store->classes[c].units_ahead = wanted[c] > store->classes[c].pool.total ? wanted[c] : 0;
    }
    kvg_store_give_back_slabs(store); /* what an earlier call made and this one does not want */
    return KVG_OK;
err_give_back:
    kvg_store_give_back_slabs(store);
    return status;
}

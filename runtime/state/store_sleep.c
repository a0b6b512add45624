/* Store, sleep and wake: the memory behind every reserved range goes back to the device and comes again at the same addresses.
 *
 *   pool planes   a range each; awake it is backed for the class's units
 *   flat planes   slices, which hold nothing once every sequence is closed; what could not be given back then is tried again
 *   slots         recurrent columns and index rings, a range a layer */
#include "runtime/state/store_impl.h"

#include <kvgrid/log.h>

KvgStatus kvg_store_can_sleep(const KvStore *store)
{
    if (store->asleep || store->resizing || store->slots_open > 0) {
        return kvg_fail(KVG_EBUSY, store->asleep ? "the memory is asleep already" : store->resizing ? "a resize is prepared: publish or cancel it first" :
                        "%u sequences are open: close them before sleep, which loses what they hold", store->slots_open);
    }
    if (!kvg_store_reserves(store)) {
        return kvg_fail(KVG_ENOTSUP, "device %s reserves no addresses, so its memory cannot go and come again at the same place: let its own allocator "
                        "sleep, or destroy the placement", store->dev->ops->name);
    }
    return KVG_OK;
}

/* What cannot be given back stays, and is counted as taken. */
static void give_back(const KvStore *store, uint32_t layer, KvRange *range)
{
    if (range->base == NULL || store->dev->ops->give_back(store->dev->self, range, 0) == KVG_OK) return;
    kvg_log(KVG_LOG_WARN, "memory of layer %u is kept: %s", layer, kvg_last_error());
}

static void give_back_all(KvStore *store)
{
    for (uint32_t i = 0; i < store->layer_count; i++) {
        StoreLayer *layer = &store->layers[i];

        give_back(store, layer->layer, &layer->slots_range);
        for (uint32_t p = 0; p < layer->plane_count; p++) {
            StorePlane *plane = &layer->planes[p];

            if (plane->slices == NULL) give_back(store, layer->layer, &plane->range);
            for (uint32_t slot = 0; plane->slices != NULL && slot < store->slots; slot++) give_back(store, layer->layer, &plane->slices[slot]);
        }
    }
    if (store->dev->ops->trim != NULL) store->dev->ops->trim(store->dev->self);
}

void kvg_store_sleep(KvStore *store)
{
    KVG_ASSERT(store->slots_open == 0 && !store->asleep && !store->resizing);
    for (uint32_t c = 0; c < store->class_count; c++) store->classes[c].units_ahead = 0;
    store->dev->ops->free(store->dev->self, store->scratch); /* comes again when it is needed */
    store->scratch = NULL;
    store->scratch_bytes = 0;
    give_back_all(store);
    store->asleep = 1;
}

static KvgStatus extend_all(KvStore *store)
{
    uint32_t units[KVG_CLASSES_MAX];

    for (uint32_t c = 0; c < store->class_count; c++) units[c] = store->classes[c].pool.total;
    KVG_TRY(kvg_store_extend_slabs(store, units));
    for (uint32_t i = 0; i < store->layer_count; i++) {
        StoreLayer *layer = &store->layers[i];

        if (layer->slots_range.base != NULL) KVG_TRY(store->dev->ops->extend(store->dev->self, &layer->slots_range, layer->slots_bytes));
    }
    return KVG_OK;
}

KvgStatus kvg_store_wake_prepare(KvStore *store)
{
    KvgStatus status;

    KVG_ASSERT(store->asleep && !store->waking);
    KVG_TRY_GOTO(extend_all(store), err_give_back);
    store->waking = 1;
    return KVG_OK;
err_give_back:
    give_back_all(store);
    return status;
}

void kvg_store_wake_publish(KvStore *store)
{
    KVG_ASSERT(store->waking);
    store->asleep = store->waking = 0;
}

void kvg_store_wake_cancel(KvStore *store)
{
    KVG_ASSERT(store->waking);
    store->waking = 0;
    give_back_all(store);
}

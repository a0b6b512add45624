/* Store, flat layout on a device without reserved ranges: planes grow by copying (S6). New planes for the whole class are got first,
 * then the rows move, then the old ones go: a want of memory changes nothing. Bases and slot_bytes in the views change here,
 * and only here; engines on such a device read the view again after booking. */
#include "runtime/state/store_impl.h"

#include "runtime/base/checked.h"

/* Planes of the layer that grow with the class. */
static uint32_t growing(const StoreLayer *layer, uint32_t class_index)
{
    return layer->class_index == class_index ? layer->plane_count : 0;
}

static void forget_grown(KvStore *store, uint32_t class_index)
{
    for (uint32_t i = 0; i < store->layer_count; i++) {
        for (uint32_t p = 0; p < growing(&store->layers[i], class_index); p++) {
            store->dev->ops->free(store->dev->self, store->layers[i].planes[p].grown);
            store->layers[i].planes[p].grown = NULL;
        }
    }
}

static KvgStatus allocate_grown(KvStore *store, uint32_t class_index, uint32_t units)
{
    for (uint32_t i = 0; i < store->layer_count; i++) {
        for (uint32_t p = 0; p < growing(&store->layers[i], class_index); p++) {
            StorePlane *plane = &store->layers[i].planes[p];
            uint64_t    bytes;

            if (!kvg_mul_u64(kvg_store_plane_bytes(plane, units), store->slots, &bytes)) {
                return kvg_fail(KVG_EOVERFLOW, "flat planes of %u slots of %u rows do not fit; lower the slots", store->slots,
                                units * KVG_CHUNK_ROWS);
            }
            KVG_TRY(store->dev->ops->uninit(store->dev->self, bytes, &plane->grown));
        }
    }
    return KVG_OK;
}

static void move_plane(KvStore *store, const StoreClass *class, StorePlane *plane, uint32_t units)
{
    KvPlane *view = plane->at;
    uint8_t *grown = plane->grown;

    for (uint32_t slot = 0; slot < store->slots; slot++) {
        uint32_t  held = (uint32_t)kvg_min_u64(class->spans[slot].end, class->slice_units);
        KvgStatus status = held == 0 ? KVG_OK
                                     : store->dev->ops->move(store->dev->self, grown + slot * kvg_store_plane_bytes(plane, units),
                                                             view->base + slot * view->slot_bytes, kvg_store_plane_bytes(plane, held), NULL);
        kvg_store_copied(store, status);
    }
    store->dev->ops->free(store->dev->self, plane->memory);
    plane->memory = grown;
    plane->memory_bytes = kvg_store_plane_bytes(plane, units) * store->slots;
    plane->grown = NULL;
    view->base = grown;
    view->slot_bytes = kvg_store_plane_bytes(plane, units);
}

KvgStatus kvg_store_flat_grow(KvStore *store, uint32_t class_index, uint32_t units)
{
    StoreClass *class = &store->classes[class_index];
    uint64_t    cap = kvg_ceil_div_u64(class->geometry.row_cap, KVG_CHUNK_ROWS);
    uint32_t    doubled = (uint32_t)kvg_min_u64(cap, 2 * (uint64_t)class->slice_units); /* so that copying costs O(1) a row */
    KvgStatus   status;

    if (units < doubled) units = doubled;
    KVG_TRY_GOTO(allocate_grown(store, class_index, units), err_forget);
    for (uint32_t i = 0; i < store->layer_count; i++) {
        StoreLayer *layer = &store->layers[i];

        for (uint32_t p = 0; p < growing(layer, class_index); p++) move_plane(store, class, &layer->planes[p], units);
    }
    class->slice_units = units;
    kvg_store_copy_shared_views(store);
    return KVG_OK;
err_forget:
    forget_grown(store, class_index);
    return status;
}

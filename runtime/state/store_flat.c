/* Store, flat layout: one contiguous plane a sequence. Units are counted in a pool without ids, so that all ranks count alike
 * whatever their devices do; the rows behind them are backed here and can fail for want of memory on one rank alone.
 *
 *   a device that reserves:  base + slot*slot_bytes is the slot's slice of addresses, backed from its first row on, in place
 *   one that does not:       all slices of a class have the same length and grow together, by copying (store_grow.c) */
#include "runtime/state/store_impl.h"

#include <inttypes.h>

#include <kvgrid/log.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

/* ---- planes */

static KvgStatus open_plane(KvStore *store, const StoreClass *class, StorePlane *plane, KvPlane *view)
{
    size_t   grain = store->dev->ops->granularity(store->dev->self);
    uint64_t slice = kvg_ceil_div_u64(kvg_store_plane_bytes(plane, class->slice_units), grain) * grain;
    uint64_t reserved;

    if (!kvg_mul_u64(slice, store->slots, &reserved) || reserved > SIZE_MAX / 2) {
        return kvg_fail(KVG_EOVERFLOW, "flat planes of %u slots of %" PRIu64 " bytes do not fit; lower the slots or the context, or "
                        "use the pool layout", store->slots, slice);
    }
    KVG_TRY(KVG_NEW(store->slots, "a plane's slices", &plane->slices));
    KVG_TRY(store->dev->ops->reserve(store->dev->self, reserved, &plane->range));
    for (uint32_t slot = 0; slot < store->slots; slot++) {
        plane->slices[slot] = (KvRange){.base = plane->range.base + slot * slice, .reserved = slice};
    }
    view->base = plane->range.base;
    view->slot_bytes = slice;
    return KVG_OK;
}

KvgStatus kvg_store_open_flat_planes(KvStore *store, StoreLayer *layer)
{
    const StoreClass *class = &store->classes[layer->class_index];

    if (!kvg_store_reserves(store)) return KVG_OK; /* the first booking makes them */
    for (uint32_t p = 0; p < layer->plane_count; p++) KVG_TRY(open_plane(store, class, &layer->planes[p], layer->planes[p].at));
    return KVG_OK;
}

static void close_plane(KvStore *store, StorePlane *plane)
{
    const KvDevOps *ops = store->dev->ops;

    for (uint32_t slot = 0; plane->slices != NULL && slot < store->slots; slot++) {
        plane->range.taken += plane->slices[slot].taken;
    }
    if (plane->range.base != NULL) ops->release(store->dev->self, &plane->range);
    if (plane->memory != NULL) ops->free(store->dev->self, plane->memory);
    kvg_free(plane->slices);
}

void kvg_store_close_planes(KvStore *store, StoreLayer *layer)
{
    for (uint32_t p = 0; p < layer->plane_count; p++) close_plane(store, &layer->planes[p]);
}

/* ---- backing */

/* Gives back what every plane of the class has beyond `units` in this slot. What cannot be given back stays, and is counted as taken. */
static void shrink_slot(KvStore *store, uint32_t class_index, uint32_t slot, uint32_t units)
{
    for (uint32_t i = 0; i < store->layer_count; i++) {
        StoreLayer *layer = &store->layers[i];

        if (layer->class_index != class_index) continue;
        for (uint32_t p = 0; p < layer->plane_count; p++) {
            StorePlane *plane = &layer->planes[p];
            KvRange    *slice = &plane->slices[slot];

            if (store->dev->ops->give_back(store->dev->self, slice, kvg_store_plane_bytes(plane, units)) != KVG_OK) {
                kvg_log(KVG_LOG_WARN, "memory of slot %u, layer %u is kept: %s", slot, layer->layer, kvg_last_error());
            }
        }
    }
}

static KvgStatus back_slot(KvStore *store, uint32_t class_index, uint32_t slot, uint32_t units)
{
    StoreSpan *span = &store->classes[class_index].spans[slot];

    for (uint32_t i = 0; i < store->layer_count; i++) {
        StoreLayer *layer = &store->layers[i];

        if (layer->class_index != class_index) continue;
        for (uint32_t p = 0; p < layer->plane_count; p++) {
            StorePlane *plane = &layer->planes[p];
            KvgStatus   status = store->dev->ops->extend(store->dev->self, &plane->slices[slot], kvg_store_plane_bytes(plane, units));

            if (status != KVG_OK) {
                shrink_slot(store, class_index, slot, span->backed);
                return status;
            }
        }
    }
    span->backed = units;
    return KVG_OK;
}

/* ---- units */

KvgStatus kvg_store_flat_book(KvStore *store, uint32_t class_index, uint32_t slot, uint32_t end)
{
    StoreClass *class = &store->classes[class_index];
    StoreSpan  *span = &class->spans[slot];

    KVG_ASSERT(end <= kvg_ceil_div_u64(class->geometry.row_cap, KVG_CHUNK_ROWS));
    if (end > span->end) {
        kvg_pool_take_counted(&class->pool, end - span->end);
        span->end = end;
    }
    if (!kvg_store_reserves(store)) {
        return span->end <= class->slice_units ? KVG_OK : kvg_store_flat_grow(store, class_index, span->end);
    }
    return span->end <= span->backed ? KVG_OK : back_slot(store, class_index, slot, span->end);
}

void kvg_store_flat_trim(KvStore *store, uint32_t class_index, uint32_t slot, uint32_t end)
{
    StoreClass *class = &store->classes[class_index];
    StoreSpan  *span = &class->spans[slot];

    if (end >= span->end) return; /* a ring too: its rows stand at most as far back as their numbers say */
    kvg_pool_drop_counted(&class->pool, span->end - end);
    span->end = end;
    if (kvg_store_reserves(store)) {
        shrink_slot(store, class_index, slot, end);
        span->backed = end < span->backed ? end : span->backed;
    }
}

/* ---- fork: the rows are copied to where they stand in the source; the caller sets the target's base to the source's */

static void copy_slice(KvStore *store, const StorePlane *plane, uint32_t source, uint32_t target, uint64_t rows, KvgStream stream)
{
    const KvPlane *at = plane->at;
    KvgStatus      status = store->dev->ops->move(store->dev->self, at->base + target * at->slot_bytes, at->base + source * at->slot_bytes,
                                                  kvg_store_entries(plane, rows) * at->row_stride, stream);
    kvg_store_copied(store, status);
}

/* Rows that were counted while no memory could be had for them cannot be copied. */
static KvgStatus check_backed(const KvStore *store, const StoreClass *class, uint32_t slot, uint64_t rows)
{
    uint64_t backed = kvg_store_reserves(store) ? class->spans[slot].backed : class->slice_units;

    if (rows <= backed * KVG_CHUNK_ROWS) return KVG_OK;
    return kvg_fail(KVG_ENOMEM, "%" PRIu64 " rows of slot %u are to be copied and %" PRIu64 " have memory behind them here", rows, slot,
                    backed * KVG_CHUNK_ROWS);
}

KvgStatus kvg_store_flat_fork(KvStore *store, uint32_t class_index, uint32_t source, uint32_t target, uint64_t first_row,
                              uint64_t rows, KvgStream stream)
{
    StoreClass *class = &store->classes[class_index];
    uint64_t    base = class->base_row[source];

    KVG_ASSERT(!kvg_store_is_ring(store, class) || first_row == base);
    KVG_TRY(kvg_store_flat_book(store, class_index, target, kvg_store_fork_units(store, class_index, source, first_row, rows)));
    if (rows <= base) return KVG_OK;
    KVG_TRY(check_backed(store, class, source, rows - base));
    for (uint32_t i = 0; i < store->layer_count; i++) {
        StoreLayer *layer = &store->layers[i];

        if (layer->class_index != class_index) continue;
        for (uint32_t p = 0; p < layer->plane_count; p++) copy_slice(store, &layer->planes[p], source, target, rows - base, stream);
    }
    return KVG_OK;
}

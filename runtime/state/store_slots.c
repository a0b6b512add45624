/* Store, slots: memory of fixed size for every sequence that may be open, taken at creation: recurrent columns and index rings.
 *
 *   recurrent layer   conv [slots][columns][conv_elements], then state [slots][columns][state_elements], f32
 *   index ring        [slots] {ring_rows index rows, room for pool-1 more: the tail that a step is about to go over}
 * Copies are here; what is current and what is owed is decided by the rules in columns.h. */
#include "runtime/state/store_impl.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

#define STRIDE_ELEMENTS 4u /* slots begin at 16 bytes, for vector loads */

/* ---- creation */

static KvgStatus too_much(const KvStore *store, uint32_t layer)
{
    return kvg_fail(KVG_EOVERFLOW, "layer %u: state of %u slots does not fit; lower the slots or the columns", layer, store->slots);
}

static KvgStatus fill_parts(const KvLayerGeometry *geometry, KvRecurrentView *view)
{
    for (uint32_t i = 0; i < geometry->recurrent.part_count; i++) {
        KvRecurrentPartView *part = &view->parts[i];
        uint64_t             elements;

        *part = geometry->recurrent.parts[i];
        if (!kvg_mul_u64(part->heads, part->width, &elements) || elements == 0 || elements > UINT32_MAX) {
            return kvg_fail(KVG_EINVAL, "layer %u, part %u: %u heads of %u elements", geometry->layer, i, part->heads, part->width);
        }
        if (part->is_state) {
            part->offset = view->state_elements;
            view->state_elements += elements;
        } else {
            part->offset = view->conv_elements;
            view->conv_channels += elements;
            view->conv_elements += elements * view->taps;
        }
    }
    return KVG_OK;
}

static KvgStatus describe_recurrent(const KvStore *store, const KvLayerGeometry *geometry, KvRecurrentView *view)
{
    uint64_t conv, state;

    if (geometry->recurrent.part_count == 0 || geometry->recurrent.part_count > KVG_RECURRENT_PARTS_MAX || store->columns == 0) {
        return kvg_fail(KVG_EINVAL, "layer %u is recurrent with %u parts in a store of %u columns: give 1 to %d parts, and has_recurrent",
                        geometry->layer, geometry->recurrent.part_count, store->columns, KVG_RECURRENT_PARTS_MAX);
    }
    *view = (KvRecurrentView){.layer = geometry->layer, .columns = store->columns, .part_count = geometry->recurrent.part_count,
                              .taps = geometry->recurrent.conv_kernel > 0 ? geometry->recurrent.conv_kernel - 1 : 0,
                              .read = store->column_read, .write = store->column_write, .each = store->column_each};
    KVG_TRY(fill_parts(geometry, view));
    if (!kvg_mul_u64(view->conv_elements, store->columns, &conv) || !kvg_mul_u64(view->state_elements, store->columns, &state)) {
        return too_much(store, geometry->layer);
    }
    view->conv_slot_stride = kvg_ceil_div_u64(conv, STRIDE_ELEMENTS) * STRIDE_ELEMENTS;
    view->state_slot_stride = kvg_ceil_div_u64(state, STRIDE_ELEMENTS) * STRIDE_ELEMENTS;
    return KVG_OK;
}

/* In addresses of their own, so that sleep can give the memory up and keep them. */
static KvgStatus reserve_slots(KvStore *store, StoreLayer *layer, uint64_t bytes)
{
    const KvDevOps *ops = store->dev->ops;

    KVG_TRY(ops->reserve(store->dev->self, bytes > 0 ? bytes : 1, &layer->slots_range));
    layer->slots = layer->slots_range.base; /* before anything can fail, so that destroy finds it */
    return ops->extend(store->dev->self, &layer->slots_range, bytes);
}

/* state_bytes is what S3 counts of a slot; slot_bytes has the padding and the room to save a tail in, too. */
static KvgStatus take_memory(KvStore *store, StoreLayer *layer, uint64_t slot_bytes, uint64_t state_bytes)
{
    uint64_t bytes;

    if (!kvg_mul_u64(slot_bytes, store->slots, &bytes) || bytes > SIZE_MAX / 2) return too_much(store, layer->layer);
    KVG_TRY(kvg_store_reserves(store) ? reserve_slots(store, layer, bytes) : store->dev->ops->uninit(store->dev->self, bytes, &layer->slots));
    layer->slots_bytes = bytes;
    store->slot_bytes += state_bytes;
    return KVG_OK;
}

void kvg_store_close_slots(KvStore *store, StoreLayer *layer)
{
    if (layer->slots_range.base != NULL) {
        store->dev->ops->release(store->dev->self, &layer->slots_range);
    } else {
        store->dev->ops->free(store->dev->self, layer->slots);
    }
    kvg_free(layer->saved_at);
}

KvgStatus kvg_store_open_recurrent(KvStore *store, const KvLayerGeometry *geometry, StoreLayer *layer)
{
    KvRecurrentView *view = &layer->recurrent;

    layer->class_index = STORE_NO_CLASS;
    KVG_TRY(describe_recurrent(store, geometry, view));
    KVG_TRY(take_memory(store, layer, (view->conv_slot_stride + view->state_slot_stride) * sizeof(float),
                        (view->conv_elements + view->state_elements) * view->columns * sizeof(float)));
    view->conv = layer->slots;
    view->state = view->conv + view->conv_slot_stride * store->slots;
    store->image_bytes += (view->conv_elements + view->state_elements) * sizeof(float);
    return KVG_OK;
}

KvgStatus kvg_store_open_ring(KvStore *store, StoreLayer *layer)
{
    KvLatentView *view = &layer->latent;
    int           wraps = store->index_ring < store->max_ctx;
    size_t        tail_bytes = (size_t)(view->pool - 1) * view->index_row_bytes;

    KVG_TRY(KVG_NEW(store->slots, "an index ring's saves", &layer->saved_at));
    view->ring_rows = store->index_ring;
    view->ring_slot_bytes = view->ring_rows * view->index_row_bytes + (wraps ? tail_bytes : 0);
    KVG_TRY(take_memory(store, layer, view->ring_slot_bytes, view->ring_rows * view->index_row_bytes));
    view->ring = layer->slots;
    store->image_bytes += tail_bytes;
    return KVG_OK;
}

/* ---- one slot */

void kvg_store_open_slot(KvStore *store, uint32_t slot, KvgStream stream)
{
    KVG_ASSERT(!store->slot_states[slot].open);
    store->slot_states[slot].open = 1;
    store->slots_open++;
    kvg_store_zero_column(store, slot, 0, stream);
    kvg_store_set_columns(store, slot, 0, 0, 0);
    kvg_store_set_index(store, slot, 0);
}

void kvg_store_set_columns(KvStore *store, uint32_t slot, uint32_t read, uint32_t write, uint32_t each)
{
    store->column_read[slot] = (int32_t)read;
    store->column_write[slot] = (int32_t)write;
    store->column_each[slot] = (int32_t)each;
    kvg_store_note(store, &store->column_read[slot]);
    kvg_store_note(store, &store->column_write[slot]);
    kvg_store_note(store, &store->column_each[slot]);
}

void kvg_store_set_index(KvStore *store, uint32_t slot, uint64_t rows)
{
    StoreSlot *state = &store->slot_states[slot];

    state->index_at = rows;
    state->step++; /* from 1: a fresh layer has saved nothing */
    store->pools_ready[slot] = store->index_pool == 0 ? 0 : (uint32_t)(rows / store->index_pool);
    kvg_store_note(store, &store->pools_ready[slot]);
}

/* ---- copies, in stream order */

typedef struct ColumnAt {
    float *conv, *state;
} ColumnAt;

static ColumnAt column_at(const KvRecurrentView *view, uint32_t slot, uint32_t column)
{
    return (ColumnAt){.conv = view->conv + slot * view->conv_slot_stride + column * view->conv_elements,
                      .state = view->state + slot * view->state_slot_stride + column * view->state_elements};
}

static void copy(const KvStore *store, void *target, const void *source, size_t bytes, KvgStream stream)
{
    KvgStatus status = bytes == 0 ? KVG_OK : store->dev->ops->move(store->dev->self, target, source, bytes, stream);
    kvg_store_copied(store, status);
}

static void clear(const KvStore *store, void *target, size_t bytes, KvgStream stream)
{
    if (bytes == 0) return;
    if (!store->mirrored) {
        memset(target, 0, bytes);
    } else {
        kvg_store_copied(store, store->dev->ops->clear(store->dev->self, target, bytes, stream));
    }
}

void kvg_store_zero_column(KvStore *store, uint32_t slot, uint32_t column, KvgStream stream)
{
    for (uint32_t i = 0; i < store->layer_count; i++) {
        const KvRecurrentView *view = &store->layers[i].recurrent;

        if (store->layers[i].kind != KVG_STATE_RECURRENT) continue;
        ColumnAt at = column_at(view, slot, column);
        clear(store, at.conv, view->conv_elements * sizeof(float), stream);
        clear(store, at.state, view->state_elements * sizeof(float), stream);
    }
}

static int has_ring(const StoreLayer *layer)
{
    return layer->kind == KVG_STATE_LATENT && layer->latent.ring_rows != 0;
}

static uint64_t tail_start(const KvLatentView *view, uint64_t at)
{
    return at - at % view->pool;
}

static size_t tail_bytes_at(const KvLatentView *view, uint64_t at)
{
    return at % view->pool * view->index_row_bytes;
}

void kvg_store_restore_tails(KvStore *store, uint32_t slot, KvgStream stream)
{
    const StoreSlot *state = &store->slot_states[slot];

    for (uint32_t i = 0; i < store->layer_count; i++) {
        const KvLatentView *view = &store->layers[i].latent;

        if (!has_ring(&store->layers[i]) || store->layers[i].saved_at[slot] != state->step) continue;
        copy(store, kvg_latent_index_row(view, slot, tail_start(view, state->index_at)),
             view->ring + slot * view->ring_slot_bytes + view->ring_rows * view->index_row_bytes, tail_bytes_at(view, state->index_at),
             stream);
    }
}

void kvg_store_copy_slot(KvStore *store, uint32_t source, uint32_t column, uint64_t at, uint32_t target, KvgStream stream)
{
    for (uint32_t i = 0; i < store->layer_count; i++) {
        const StoreLayer *layer = &store->layers[i];

        if (layer->kind == KVG_STATE_RECURRENT) {
            ColumnAt from = column_at(&layer->recurrent, source, column), to = column_at(&layer->recurrent, target, 0);
            copy(store, to.conv, from.conv, layer->recurrent.conv_elements * sizeof(float), stream);
            copy(store, to.state, from.state, layer->recurrent.state_elements * sizeof(float), stream);
        } else if (has_ring(layer)) {
            uint64_t start = tail_start(&layer->latent, at);
            copy(store, kvg_latent_index_row(&layer->latent, target, start), kvg_latent_index_row(&layer->latent, source, start),
                 tail_bytes_at(&layer->latent, at), stream);
        }
    }
}

/* ---- images: layers in order; of each recurrent one conv, state; of each ring the tail, in room for the longest */

size_t kvg_store_image_bytes(const KvStore *store)
{
    return store->image_bytes;
}

void kvg_store_save_image(const KvStore *store, uint32_t slot, uint32_t column, uint64_t at, void *image, KvgStream stream)
{
    uint8_t *next = image;

    for (uint32_t i = 0; i < store->layer_count; i++) {
        const StoreLayer *layer = &store->layers[i];

        if (layer->kind == KVG_STATE_RECURRENT) {
            ColumnAt from = column_at(&layer->recurrent, slot, column);
            size_t   conv_bytes = layer->recurrent.conv_elements * sizeof(float), state_bytes = layer->recurrent.state_elements * sizeof(float);
            copy(store, next, from.conv, conv_bytes, stream);
            copy(store, next + conv_bytes, from.state, state_bytes, stream);
            next += conv_bytes + state_bytes;
        } else if (has_ring(layer)) {
            copy(store, next, kvg_latent_index_row(&layer->latent, slot, tail_start(&layer->latent, at)), tail_bytes_at(&layer->latent, at),
                 stream);
            next += (size_t)(layer->latent.pool - 1) * layer->latent.index_row_bytes;
        }
    }
}

void kvg_store_load_image(KvStore *store, uint32_t slot, uint32_t column, uint64_t at, const void *image, KvgStream stream)
{
    const uint8_t *next = image;

    for (uint32_t i = 0; i < store->layer_count; i++) {
        const StoreLayer *layer = &store->layers[i];

        if (layer->kind == KVG_STATE_RECURRENT) {
            ColumnAt to = column_at(&layer->recurrent, slot, column);
            size_t   conv_bytes = layer->recurrent.conv_elements * sizeof(float), state_bytes = layer->recurrent.state_elements * sizeof(float);
            copy(store, to.conv, next, conv_bytes, stream);
            copy(store, to.state, next + conv_bytes, state_bytes, stream);
            next += conv_bytes + state_bytes;
        } else if (has_ring(layer)) {
            copy(store, kvg_latent_index_row(&layer->latent, slot, tail_start(&layer->latent, at)), next, tail_bytes_at(&layer->latent, at),
                 stream);
            next += (size_t)(layer->latent.pool - 1) * layer->latent.index_row_bytes;
        }
    }
}

/* Store, rows: encoding into planes and decoding out of them, run by run of rows that lie side by side. */
#include "runtime/state/store_impl.h"

#include <inttypes.h>

#include "runtime/base/checked.h"

StoreLayer *kvg_store_find_layer(const KvStore *store, uint32_t layer)
{
    if (layer >= store->n_layer || store->layer_index[layer] < 0) return NULL;
    return &store->layers[store->layer_index[layer]];
}

KvgStatus kvg_store_check_rows(const KvStore *store, const StoreLayer *layer, uint32_t slot, uint64_t row, uint32_t rows)
{
    const StoreClass *class = &store->classes[layer->class_index];
    const StoreSpan  *span = &class->spans[slot];
    uint64_t          lowest, end;

    if (kvg_store_is_ring(store, class)) {
        lowest = class->base_row[slot];
        end = span->end == 0 ? lowest : lowest + layer->view.ring_rows;
    } else {
        lowest = (uint64_t)span->first * KVG_CHUNK_ROWS;
        end = (uint64_t)span->end * KVG_CHUNK_ROWS;
    }
    if (row < lowest) {
        return kvg_fail(KVG_ELAPPED, "rows from %" PRIu64 " on of slot %u, layer %u: rows below %" PRIu64 " are no longer held",
                        row, slot, layer->layer, lowest);
    }
    if (row + rows > end) {
        return kvg_fail(KVG_ECAPACITY, "rows %" PRIu64 " to %" PRIu64 " of slot %u, layer %u: rows up to %" PRIu64
                        " are booked; stage or book them first", row, row + rows, slot, layer->layer, end);
    }
    return KVG_OK;
}

/* Rows from `row` on that lie side by side: to the end of a chunk, or all of a flat plane's. */
static uint32_t run_length(const KvPlaneView *view, uint64_t row, uint32_t rows)
{
    if (view->rows_per_chunk == 0) return rows;
    return (uint32_t)kvg_min_u64(rows, KVG_CHUNK_ROWS - row % KVG_CHUNK_ROWS);
}

static KvRowsAt rows_at(const KvPlaneView *view, const KvPlane *plane, uint32_t slot, uint64_t row)
{
    return (KvRowsAt){.target = kvg_plane_row(view, plane, slot, 0, row), .head_stride = plane->head_stride,
                      .row_stride = plane->row_stride};
}

void kvg_store_assert_writable(const KvStore *store, const StoreLayer *layer, uint32_t slot, uint64_t row)
{
    const StoreClass *class = &store->classes[layer->class_index];

    if (store->layout == KVG_LAYOUT_POOL) {
        KVG_ASSERT(!kvg_pool_shared(&class->pool, kvg_store_table(store, class, slot)[row / KVG_CHUNK_ROWS]));
    }
}

KvRowsIn kvg_store_advance(const KvRowsIn *in, uint32_t rows)
{
    KvRowsIn next = *in;

    next.data = (const uint8_t *)in->data + (int64_t)rows * in->token_stride * (int64_t)kvg_format_block_bytes(in->type);
    return next;
}

static KvgStatus write_plane(KvStore *store, StoreLayer *layer, const KvPlane *plane, uint32_t slot, uint64_t row, uint32_t rows,
                             KvRowsIn in, KvgStream stream)
{
    while (rows > 0) {
        uint32_t run = run_length(&layer->view, row, rows);

        kvg_store_assert_writable(store, layer, slot, row);
        KVG_TRY(store->dev->ops->encode_rows(store->dev->self, plane->format, &in, rows_at(&layer->view, plane, slot, row),
                                             layer->view.heads, plane->head_dim, run, kvg_store_counter(store, layer), stream));
        in = kvg_store_advance(&in, run);
        row += run;
        rows -= run;
    }
    return KVG_OK;
}

KvgStatus kvg_store_check_source(const KvRowsIn *in)
{
    if (in->type == KVG_F32 || in->type == KVG_F16 || in->type == KVG_BF16) return KVG_OK;
    return kvg_fail(KVG_EINVAL, "rows of type %s cannot be written; give f32, f16 or bf16", kvg_format_name(in->type));
}

KvgStatus kvg_store_write(KvStore *store, uint32_t layer_index, uint32_t slot, uint64_t row, uint32_t rows, const KvRowsIn *k,
                          const KvRowsIn *v, KvgStream stream)
{
    StoreLayer *layer = kvg_store_find_layer(store, layer_index);

    if (layer == NULL || layer->kind != KVG_STATE_KV || !layer->view.owns) {
        return kvg_fail(KVG_EINVAL, "layer %u owns no K and V planes on this rank: write where it does", layer_index);
    }
    KVG_TRY(kvg_store_check_source(k));
    KVG_TRY(kvg_store_check_source(v));
    KVG_TRY(kvg_store_check_rows(store, layer, slot, row, rows));
    KVG_TRY(kvg_store_flush(store, stream));
    KVG_TRY(write_plane(store, layer, &layer->view.k, slot, row, rows, *k, stream));
    return write_plane(store, layer, &layer->view.v, slot, row, rows, *v, stream);
}

KvgStatus kvg_store_read(KvStore *store, uint32_t layer_index, uint32_t plane_index, uint32_t slot, uint64_t row, uint32_t rows,
                         float *target)
{
    StoreLayer *layer = kvg_store_find_layer(store, layer_index);

    if (layer != NULL && layer->kind == KVG_STATE_LATENT) return kvg_store_read_latent(store, layer, plane_index, slot, row, rows, target);
    if (layer == NULL || layer->kind != KVG_STATE_KV || plane_index > 1) {
        return kvg_fail(KVG_EINVAL, "plane %u of layer %u is not on this rank; planes are 0 (K) and 1 (V), of latent layers 2 to 4",
                        plane_index, layer_index);
    }
    const KvPlane *plane = plane_index == 0 ? &layer->view.k : &layer->view.v;
    KVG_TRY(kvg_store_check_rows(store, layer, slot, row, rows));
    while (rows > 0) {
        uint32_t run = run_length(&layer->view, row, rows);

        KVG_TRY(kvg_store_decode(store, plane->format, rows_at(&layer->view, plane, slot, row), layer->view.heads, plane->head_dim, run,
                                 target, NULL));
        target += (size_t)run * layer->view.heads * plane->head_dim;
        row += run;
        rows -= run;
    }
    return KVG_OK;
}

static KvgStatus rebase_plane(KvStore *store, const KvPlane *plane, uint32_t slot, uint64_t src_row, uint64_t keep_rows,
                              KvgStream stream)
{
    uint8_t *slice = plane->base + slot * plane->slot_bytes;

    return store->dev->ops->move(store->dev->self, slice, slice + src_row * plane->row_stride, keep_rows * plane->row_stride,
                                 stream);
}

KvgStatus kvg_store_rebase(KvStore *store, uint32_t class_index, uint32_t slot, uint64_t src_row, uint64_t keep_rows,
                           uint64_t new_base, KvgStream stream)
{
    const StoreClass *class = &store->classes[class_index];
    uint64_t          backed = (uint64_t)(kvg_store_reserves(store) ? class->spans[slot].backed : class->slice_units) * KVG_CHUNK_ROWS;

    KVG_ASSERT(kvg_store_is_ring(store, class));
    if (src_row + keep_rows > backed) { /* rows that were counted while no memory could be had for them */
        return kvg_fail(KVG_ENOMEM, "rows %" PRIu64 " to %" PRIu64 " of slot %u's ring have no memory behind them here", src_row,
                        src_row + keep_rows, slot);
    }
    for (uint32_t i = 0; i < store->layer_count; i++) {
        StoreLayer *layer = &store->layers[i];

        if (layer->class_index != class_index || layer->plane_count == 0) continue;
        KVG_ASSERT(src_row + keep_rows <= layer->view.ring_rows);
        KVG_TRY(rebase_plane(store, &layer->view.k, slot, src_row, keep_rows, stream));
        KVG_TRY(rebase_plane(store, &layer->view.v, slot, src_row, keep_rows, stream));
    }
    kvg_store_set_base(store, class_index, slot, new_base);
    return KVG_OK;
}

KvEncodeCounts kvg_store_counts(const KvStore *store, uint32_t layer_index)
{
    const StoreLayer *layer = kvg_store_find_layer(store, layer_index);

    if (layer == NULL) return (KvEncodeCounts){0, 0};
    if (layer->source >= 0) layer = &store->layers[layer->source];
    if (store->mirrored) return kvg_store_device_counts(store, (uint32_t)(layer - store->layers));
    return layer->counts;
}

KvEncodeCounts kvg_store_counts_sum(const KvStore *store)
{
    KvEncodeCounts sum = {0, 0};

    if (store->mirrored) return kvg_store_device_counts_sum(store);
    for (uint32_t i = 0; i < store->layer_count; i++) {
        sum.nonfinite += store->layers[i].counts.nonfinite;
        sum.saturated += store->layers[i].counts.saturated;
    }
    return sum;
}

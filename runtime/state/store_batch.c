/* Store, batches: one pass's rows of all places in one call of the device, where it has such a call. */
#include "runtime/state/store_impl.h"

int kvg_store_batches(const KvStore *store)
{
    return store->dev->ops->encode_batch != NULL;
}

/* Every chunk that is written, as each row's would be. */
static KvgStatus check_place(const KvStore *store, const StoreLayer *layer, uint32_t slot, uint64_t row, uint32_t rows)
{
    KVG_TRY(kvg_store_check_rows(store, layer, slot, row, rows));
    for (uint64_t at = row; at < row + rows; at += KVG_CHUNK_ROWS - at % KVG_CHUNK_ROWS) kvg_store_assert_writable(store, layer, slot, at);
    return KVG_OK;
}

static KvgStatus check_places(const KvStore *store, const StoreLayer *layer, const KvStorePlaces *places, uint32_t *rows_max)
{
    *rows_max = 0;
    for (uint32_t i = 0; i < places->count; i++) {
        if (places->slots[i] < 0 || places->rows[i] == 0) continue;
        KVG_TRY(check_place(store, layer, (uint32_t)places->slots[i], places->first_row[i], places->rows[i]));
        if (places->rows[i] > *rows_max) *rows_max = places->rows[i];
    }
    return KVG_OK;
}

/* Where kernels find the places of `places`. */
static void point_at(const KvStorePlaces *places, KvRowsBatch *batch)
{
    const uint32_t *device = places->device;

    batch->places = places->count;
    batch->slots = (const int32_t *)device;
    batch->rows = device + places->count;
    batch->first_row = device + 2 * (size_t)places->count;
    batch->first_token = places->device_tokens != NULL ? places->device_tokens : device + 3 * (size_t)places->count;
}

static KvgStatus encode(KvStore *store, StoreLayer *layer, const KvStorePlaces *places, KvRowsBatch *batch, KvgStream stream)
{
    if (!kvg_store_batches(store)) {
        return kvg_fail(KVG_ENOTSUP, "device %s writes rows run by run: they cannot be captured", store->dev->ops->name);
    }
    if (places->count == 0) return KVG_OK; /* of a step that this rank votes against: not even tables are sent, which may be what failed */
    batch->rows_max = places->captured_rows;
    if (places->captured_rows == 0) { /* a pass that is known; else all of it is read when the graph is replayed */
        KVG_TRY(check_places(store, layer, places, &batch->rows_max));
        KVG_TRY(kvg_store_flush(store, stream));
    }
    if (batch->rows_max == 0) return KVG_OK;
    point_at(places, batch);
    batch->counts = kvg_store_counter(store, layer);
    return store->dev->ops->encode_batch(store->dev->self, batch, stream);
}

/* ---- what is written */

static KvgStatus kv_batch(KvStore *store, uint32_t layer_index, const KvRowsIn *k, const KvRowsIn *v, StoreLayer **layer_p, KvRowsBatch *batch)
{
    StoreLayer *layer = kvg_store_find_layer(store, layer_index);

    if (layer == NULL || layer->kind != KVG_STATE_KV || !layer->view.owns) {
        return kvg_fail(KVG_EINVAL, "layer %u owns no K and V planes on this rank: write where it does", layer_index);
    }
    KVG_TRY(kvg_store_check_source(k));
    KVG_TRY(kvg_store_check_source(v));
    const KvPlaneView *view = store->mirrored ? &layer->shown_view : &layer->view;
    *batch = (KvRowsBatch){.plane = {{kvg_plane_ref(view, &view->k), *k}, {kvg_plane_ref(view, &view->v), *v}}, .planes = 2, .heads = view->heads};
    *layer_p = layer;
    return KVG_OK;
}

static KvgStatus latent_batch(KvStore *store, uint32_t layer_index, const KvRowsIn *latent, const KvRowsIn *keys, StoreLayer **layer_p,
                              KvRowsBatch *batch)
{
    StoreLayer *layer = kvg_store_find_layer(store, layer_index);

    if (layer == NULL || layer->kind != KVG_STATE_LATENT || layer->latent.pool != 0 || (keys != NULL) != (layer->latent.key_width != 0)) {
        return kvg_fail(KVG_EINVAL, "layer %u keeps no latent rows whose pass can be written at once: keys go with an indexer of one a token",
                        layer_index);
    }
    KVG_TRY(kvg_store_check_source(latent));
    const KvLatentView *view = store->mirrored ? &layer->shown_latent : &layer->latent;
    *batch = (KvRowsBatch){.plane = {{kvg_latent_ref(view, &view->latent, KVG_CHUNK_ROWS), *latent}}, .planes = 1, .heads = 1};
    *layer_p = layer;
    if (keys == NULL) return KVG_OK;
    KVG_TRY(kvg_store_check_source(keys));
    batch->plane[1] = (KvBatchPlane){kvg_latent_ref(view, &view->keys, KVG_CHUNK_ROWS), *keys};
    batch->planes = 2;
    return KVG_OK;
}

/* ---- the calls */

KvgStatus kvg_store_write_batch(KvStore *store, uint32_t layer_index, const KvStorePlaces *places, const KvRowsIn *k, const KvRowsIn *v,
                                KvgStream stream)
{
    StoreLayer *layer = NULL;
    KvRowsBatch batch;

    KVG_TRY(kv_batch(store, layer_index, k, v, &layer, &batch));
    return encode(store, layer, places, &batch, stream);
}

KvgStatus kvg_store_write_latent_batch(KvStore *store, uint32_t layer_index, const KvStorePlaces *places, const KvRowsIn *latent,
                                       const KvRowsIn *keys, KvgStream stream)
{
    StoreLayer *layer = NULL;
    KvRowsBatch batch;

    KVG_TRY(latent_batch(store, layer_index, latent, keys, &layer, &batch));
    return encode(store, layer, places, &batch, stream);
}

void kvg_store_run_words(const KvStore *store, KvStoreRunWords *words)
{
    /* from the host's words to the device's: the arena and its mirror are laid out alike */
    const uint32_t *from = store->arena;
    uint32_t       *to = store->mirrored ? store->device_arena : store->arena;

    *words = (KvStoreRunWords){.len = to + (store->len - from),
                               .len_staged = to + (store->len_staged - from),
                               .read = (int32_t *)to + (store->column_read - (const int32_t *)from),
                               .write = (int32_t *)to + (store->column_write - (const int32_t *)from),
                               .each = (int32_t *)to + (store->column_each - (const int32_t *)from)};
    for (uint32_t c = 0; c < store->class_count; c++) words->base_row[c] = to + (store->classes[c].base_row - from);
}

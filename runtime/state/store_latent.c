/* Store, latent layers: rows, what their indexers keep of them, and the pool keys that come of it (S8).
 *
 * A layer's rows are written in order, so no count is kept of the pools that have a key: before a row is written, all pools that end
 * at or below it have theirs. A pooled write of any length drains through the ring:
 *   1 take   as many rows as the ring has room for beside those whose pool has no key yet
 *   2 write  them, saving the committed tail just before a row goes over it
 *   3 build  the keys of the pools that are complete now, from rows as stored, many pools at a time; then take again */
#include "runtime/state/store_impl.h"

#include <inttypes.h>

#include <kvgrid/index_ring.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

#define SCRATCH_ROWS 512u

/* ---- creation */

static KvgStatus check_geometry(const KvStore *store, uint32_t layer, const KvLatentGeometry *latent)
{
    int pooled = latent->index_kind == KVG_INDEX_POOLED;

    if (latent->format != KVG_F32 && latent->format != KVG_BF16) {
        return kvg_fail(KVG_EINVAL, "layer %u: %s is no format for latent rows; choose f32 or bf16", layer, kvg_format_name(latent->format));
    }
    if (latent->width == 0 || latent->kv_rank > latent->width || (latent->index_kind != KVG_INDEX_NONE) != (latent->index_width != 0)) {
        return kvg_fail(KVG_EINVAL, "layer %u: latent rows of %u elements, rank %u, with index rows of %u: the rank lies within the row, and "
                        "only an indexer has a width", layer, latent->width, latent->kv_rank, latent->index_width);
    }
    if (latent->index_pool != (pooled ? store->index_pool : 0) || (pooled && latent->index_pool == 0)) {
        return kvg_fail(KVG_EGEOM, "layer %u has an index key for %u rows, the store for %u: every pooled indexer of a model has one size of "
                        "pool, which divides %d", layer, latent->index_pool, store->index_pool, KVG_CHUNK_ROWS);
    }
    if (pooled && latent->index_width % 2 != 0) {
        return kvg_fail(KVG_EGEOM, "layer %u: a pooled index row of %u elements has no half for its key", layer, latent->index_width);
    }
    return KVG_OK;
}

static KvgStatus describe(const KvStore *store, const KvLayerGeometry *geometry, StoreLayer *layer)
{
    const KvLatentGeometry *latent = &geometry->latent;
    const StoreClass       *class = &store->classes[layer->class_index];
    int                     pool_layout = store->layout == KVG_LAYOUT_POOL, pooled = latent->index_kind == KVG_INDEX_POOLED;
    KvLatentView           *view = &layer->latent;

    *view = (KvLatentView){
        .layer = geometry->layer, .width = latent->width, .kv_rank = latent->kv_rank, .index_kind = latent->index_kind,
        .index_width = latent->index_width, .key_width = pooled ? latent->index_width / 2 : latent->index_width, .pool = latent->index_pool,
        .rows_per_chunk = pool_layout ? KVG_CHUNK_ROWS : 0, .table_stride = pool_layout ? store->table_stride : 0,
        .plane_rows = pool_layout ? 0 : kvg_ceil_div_u64(class->geometry.row_cap, KVG_CHUNK_ROWS) * KVG_CHUNK_ROWS,
        .table = class->table, .len = store->len, .len_staged = store->len_staged, .pools_ready = store->pools_ready,
    };
    KVG_TRY(kvg_store_describe_plane(store, &layer->planes[0], &view->latent, latent->format, 1, latent->width, KVG_CHUNK_ROWS));
    layer->plane_count = 1;
    if (latent->index_kind == KVG_INDEX_NONE) return KVG_OK;
    KVG_TRY(kvg_store_describe_plane(store, &layer->planes[1], &view->keys, latent->format, 1, view->key_width,
                                     kvg_latent_keys_per_chunk(view)));
    layer->plane_count = 2;
    if (!pooled) return KVG_OK;
    KVG_TRY(kvg_store_describe_plane(store, &layer->planes[2], &view->index, latent->format, 1, latent->index_width, KVG_CHUNK_ROWS));
    view->index_row_bytes = view->index.head_bytes;
    if (store->index_ring == 0) layer->plane_count = 3; /* else the description serves the ring */
    return KVG_OK;
}

/* Pools whose rows are decoded at once: on a device that is not direct they come to the host, which costs a wait. */
static uint32_t pools_at_once(const KvLatentView *view)
{
    return SCRATCH_ROWS / view->pool; /* pools divide chunks */
}

static size_t scratch_of(const KvLatentView *view)
{
    return pools_at_once(view) * ((size_t)view->pool * view->index_width + view->key_width);
}

static KvgStatus take_scratch(KvStore *store, const KvLatentView *view)
{
    void *scratch = NULL;

    KVG_TRY(kvg_calloc(scratch_of(view), sizeof(float), "index pools' rows", &scratch));
    kvg_free(store->pool_scratch); /* layers are alike as a rule; the last one's is the widest so far */
    store->pool_scratch = scratch;
    return KVG_OK;
}

static size_t scratch_elements(const KvStore *store)
{
    size_t most = 0;

    for (uint32_t i = 0; i < store->layer_count; i++) {
        const KvLatentView *view = &store->layers[i].latent;
        if (store->layers[i].kind == KVG_STATE_LATENT && view->pool != 0 && scratch_of(view) > most) most = scratch_of(view);
    }
    return most;
}

KvgStatus kvg_store_open_latent(KvStore *store, const KvLayerGeometry *geometry, StoreLayer *layer)
{
    size_t scratch_had = scratch_elements(store);

    KVG_TRY(check_geometry(store, geometry->layer, &geometry->latent));
    if (store->classes[geometry->class_index].geometry.window != 0) {
        return kvg_fail(KVG_EINVAL, "layer %u: latent rows are all kept; put it into a class without a window", geometry->layer);
    }
    KVG_TRY(describe(store, geometry, layer));
    KVG_TRY(kvg_store_open_planes(store, layer));
    if (layer->latent.pool == 0) return KVG_OK;
    if (scratch_elements(store) > scratch_had) KVG_TRY(take_scratch(store, &layer->latent));
    return store->index_ring != 0 ? kvg_store_open_ring(store, layer) : KVG_OK;
}

/* ---- rows */

static uint32_t run_length(const KvLatentView *view, uint32_t per_chunk, uint64_t entry, uint32_t count)
{
    if (view->rows_per_chunk == 0) return count;
    return (uint32_t)kvg_min_u64(count, per_chunk - entry % per_chunk);
}

static KvgStatus encode(KvStore *store, StoreLayer *layer, const KvPlane *plane, uint8_t *target, uint32_t rows, const KvRowsIn *in,
                        KvgStream stream)
{
    KvRowsAt at = {.target = target, .head_stride = plane->head_stride, .row_stride = plane->head_bytes};

    return store->dev->ops->encode_rows(store->dev->self, plane->format, in, at, 1, plane->head_dim, rows, kvg_store_counter(store, layer), stream);
}

static KvgStatus write_entries(KvStore *store, StoreLayer *layer, const KvPlane *plane, uint32_t per_chunk, uint32_t slot, uint64_t entry,
                               uint32_t count, KvRowsIn in, KvgStream stream)
{
    while (count > 0) {
        uint32_t run = run_length(&layer->latent, per_chunk, entry, count);

        kvg_store_assert_writable(store, layer, slot, entry * KVG_CHUNK_ROWS / per_chunk);
        KVG_TRY(encode(store, layer, plane, kvg_latent_entry(&layer->latent, plane, per_chunk, slot, entry), run, &in, stream));
        in = kvg_store_advance(&in, run);
        entry += run;
        count -= run;
    }
    return KVG_OK;
}

/* ---- the index ring */

/* The tail of the index state, once a step, before the first of its rows is gone. */
static KvgStatus save_tail(KvStore *store, StoreLayer *layer, uint32_t slot, uint64_t row, uint32_t rows, KvgStream stream)
{
    const KvLatentView *view = &layer->latent;
    const StoreSlot    *state = &store->slot_states[slot];
    uint64_t            start = state->index_at - state->index_at % view->pool;

    if (start == state->index_at || row + rows <= start + view->ring_rows || layer->saved_at[slot] == state->step) return KVG_OK;
    KVG_TRY(store->dev->ops->move(store->dev->self, view->ring + slot * view->ring_slot_bytes + view->ring_rows * view->index_row_bytes,
                                  kvg_latent_index_row(view, slot, start), (state->index_at - start) * view->index_row_bytes, stream));
    layer->saved_at[slot] = state->step;
    return KVG_OK;
}

static KvgStatus write_ring(KvStore *store, StoreLayer *layer, uint32_t slot, uint64_t row, uint32_t rows, KvRowsIn in, KvgStream stream)
{
    const KvLatentView *view = &layer->latent;

    KVG_TRY(save_tail(store, layer, slot, row, rows, stream));
    while (rows > 0) { /* twice at most: to the ring's end, and from its beginning */
        uint32_t run = (uint32_t)kvg_min_u64(rows, view->ring_rows - row % view->ring_rows);

        KVG_TRY(encode(store, layer, &view->index, kvg_latent_index_row(view, slot, row), run, &in, stream));
        in = kvg_store_advance(&in, run);
        row += run;
        rows -= run;
    }
    return KVG_OK;
}

/* ---- pool keys */

/* Rows of one pool lie side by side: pools divide chunks, and rings are whole pools. So do those of the pools after it, to the chunk's or the ring's
 * end: how many from `pool_index` on. */
static uint32_t pools_side_by_side(const KvLatentView *view, uint64_t pool_index, uint64_t end)
{
    uint64_t row = pool_index * view->pool, most = kvg_min_u64(end - pool_index, pools_at_once(view));

    if (view->ring_rows != 0) return (uint32_t)kvg_min_u64(most, (view->ring_rows - row % view->ring_rows) / view->pool);
    if (view->rows_per_chunk != 0) return (uint32_t)kvg_min_u64(most, (KVG_CHUNK_ROWS - row % KVG_CHUNK_ROWS) / view->pool);
    return (uint32_t)most;
}

/* The keys of `pools` pools that lie side by side. */
static KvgStatus build_keys(KvStore *store, StoreLayer *layer, uint32_t slot, uint64_t pool_index, uint32_t pools, KvPoolKeyFn key, void *user,
                            KvgStream stream)
{
    const KvLatentView *view = &layer->latent;
    const size_t        pool_elements = (size_t)view->pool * view->index_width;
    float              *rows = store->pool_scratch, *built = rows + pools * pool_elements;
    KvRowsAt            at = {.target = kvg_latent_index_row(view, slot, pool_index * view->pool), .row_stride = view->index_row_bytes};
    KvRowsIn            in = {.data = built, .type = KVG_F32, .token_stride = view->key_width, .head_stride = view->key_width};

    KVG_TRY(kvg_store_decode(store, view->index.format, at, 1, view->index_width, pools * view->pool, rows, stream));
    for (uint32_t i = 0; i < pools; i++) key(user, view->layer, pool_index + i, rows + i * pool_elements, built + (size_t)i * view->key_width);
    if (store->mirrored) KVG_TRY(kvg_store_lend(store, built, (size_t)pools * view->key_width * sizeof *built, stream, &in.data));
    return write_entries(store, layer, &view->keys, kvg_latent_keys_per_chunk(view), slot, pool_index, pools, in, stream);
}

static KvgStatus write_index_rows(KvStore *store, StoreLayer *layer, uint32_t slot, uint64_t row, uint32_t rows, KvRowsIn in,
                                  KvgStream stream)
{
    if (layer->latent.ring_rows != 0) return write_ring(store, layer, slot, row, rows, in, stream);
    return write_entries(store, layer, &layer->latent.index, KVG_CHUNK_ROWS, slot, row, rows, in, stream);
}

static KvgStatus drain(KvStore *store, StoreLayer *layer, uint32_t slot, uint64_t row, uint32_t rows, KvRowsIn in, KvPoolKeyFn key,
                       void *user, KvgStream stream)
{
    const KvLatentView *view = &layer->latent;
    uint64_t            ready = row / view->pool, take;
    uint32_t            pools;

    while (rows > 0) {
        int room = kvg_index_ring_take(view->ring_rows, view->pool, ready, row, rows, &take);

        KVG_ASSERT(room && take > 0); /* less than a pool is live, and the ring has at least one */
        KVG_TRY(write_index_rows(store, layer, slot, row, (uint32_t)take, in, stream));
        in = kvg_store_advance(&in, (uint32_t)take);
        row += take;
        rows -= (uint32_t)take;
        for (; ready < row / view->pool; ready += pools) {
            pools = pools_side_by_side(view, ready, row / view->pool);
            KVG_TRY(build_keys(store, layer, slot, ready, pools, key, user, stream));
        }
    }
    return KVG_OK;
}

/* ---- the calls */

static KvgStatus check_write(const KvStore *store, const StoreLayer *layer, uint32_t layer_index, uint32_t slot, uint64_t row, uint32_t rows,
                             const KvRowsIn *latent, const KvRowsIn *index, KvPoolKeyFn key)
{
    if (layer == NULL || layer->kind != KVG_STATE_LATENT) {
        return kvg_fail(KVG_EINVAL, "layer %u keeps no latent rows on this rank: write where it does", layer_index);
    }
    if ((index != NULL) != (layer->latent.index_kind != KVG_INDEX_NONE) || (key == NULL && layer->latent.pool != 0)) {
        return kvg_fail(KVG_EINVAL, "layer %u: index rows are given exactly where there is an indexer, and a key function where it is pooled",
                        layer_index);
    }
    KVG_TRY(kvg_store_check_source(latent));
    if (index != NULL) KVG_TRY(kvg_store_check_source(index));
    return kvg_store_check_rows(store, layer, slot, row, rows);
}

KvgStatus kvg_store_write_latent(KvStore *store, uint32_t layer_index, uint32_t slot, uint64_t row, uint32_t rows, const KvRowsIn *latent,
                                 const KvRowsIn *index, KvPoolKeyFn key, void *user, KvgStream stream)
{
    StoreLayer *layer = kvg_store_find_layer(store, layer_index);

    KVG_TRY(check_write(store, layer, layer_index, slot, row, rows, latent, index, key));
    KVG_TRY(kvg_store_flush(store, stream));
    KVG_TRY(write_entries(store, layer, &layer->latent.latent, KVG_CHUNK_ROWS, slot, row, rows, *latent, stream));
    if (index == NULL) return KVG_OK;
    if (layer->latent.pool != 0) return drain(store, layer, slot, row, rows, *index, key, user, stream);
    return write_entries(store, layer, &layer->latent.keys, KVG_CHUNK_ROWS, slot, row, rows, *index, stream);
}

static KvgStatus decode(KvStore *store, const KvPlane *plane, const uint8_t *source, uint32_t rows, float *target)
{
    KvRowsAt at = {.target = (uint8_t *)(uintptr_t)source, .row_stride = plane->head_bytes};

    return kvg_store_decode(store, plane->format, at, 1, plane->head_dim, rows, target, NULL);
}

/* One entry at a time: a look at single rows, off every fast path. */
KvgStatus kvg_store_read_latent(KvStore *store, StoreLayer *layer, uint32_t plane, uint32_t slot, uint64_t row, uint32_t rows, float *target)
{
    const KvLatentView *view = &layer->latent;
    int                 pooled = view->index_kind == KVG_INDEX_POOLED;
    uint64_t            scale = plane == 4 && pooled ? view->pool : 1;

    if (plane < 2 || plane > 4 || (plane == 3 && !pooled) || (plane == 4 && view->index_kind == KVG_INDEX_NONE)) {
        return kvg_fail(KVG_EINVAL, "plane %u of layer %u: a latent layer has rows (2), index rows (3, pooled) and keys (4, with an indexer)",
                        plane, layer->layer);
    }
    KVG_TRY(kvg_store_check_rows(store, layer, slot, row * scale, (uint32_t)(rows * scale)));
    for (uint64_t i = row; i < row + rows; i++) {
        const KvPlane *at = plane == 2 ? &view->latent : plane == 3 ? &view->index : &view->keys;
        const uint8_t *source = plane == 2   ? kvg_latent_entry(view, at, KVG_CHUNK_ROWS, slot, i)
                                : plane == 3 ? kvg_latent_index_row(view, slot, i)
                                             : kvg_latent_entry(view, at, kvg_latent_keys_per_chunk(view), slot, i);
        KVG_TRY(decode(store, at, source, 1, target));
        target += at->head_dim;
    }
    return KVG_OK;
}

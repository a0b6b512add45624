/* Store: creation, geometry, lengths. Units are in store_pool.c and store_flat.c, K/V rows in store_rows.c, latent layers in
 * store_latent.c, slots in store_slots.c. */
#include "runtime/state/store_impl.h"

#include <inttypes.h>
#include <string.h>

#include <kvgrid/index_ring.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

/* ---- creation */

static KvgStatus check_class(const KvStoreOptions *options, uint32_t class_index)
{
    const KvClassGeometry *class = &options->classes[class_index];

    if (class->row_cap == 0 || class->row_cap > options->max_ctx || class->unit_cap == 0) {
        return kvg_fail(KVG_EINVAL, "class %u holds at most %" PRIu64 " rows in %u units of a context of %" PRIu64
                        ": both caps are at least 1 and the rows within the context", class_index, class->row_cap,
                        class->unit_cap, options->max_ctx);
    }
    if (class->ring && class->window == 0) {
        return kvg_fail(KVG_EINVAL, "class %u has a ring and no window: a ring needs one", class_index);
    }
    return KVG_OK;
}

static KvgStatus check_layer(const KvStoreOptions *options, const KvLayerGeometry *layer)
{
    if (layer->layer >= options->n_layer || (layer->kind != KVG_STATE_RECURRENT && layer->class_index >= options->class_count)) {
        return kvg_fail(KVG_EINVAL, "layer %u of class %u: the model has %u layers and %u classes", layer->layer,
                        layer->class_index, options->n_layer, options->class_count);
    }
    if (layer->kind == KVG_STATE_LATENT || layer->kind == KVG_STATE_RECURRENT) return KVG_OK; /* checked where they are made */
    if (layer->source < 0 && (layer->heads == 0 || layer->head_dim_k == 0 || layer->head_dim_v == 0)) {
        return kvg_fail(KVG_EINVAL, "layer %u has %u heads of %u and %u elements: none may be 0", layer->layer, layer->heads,
                        layer->head_dim_k, layer->head_dim_v);
    }
    return KVG_OK;
}

static KvgStatus check_options(const KvStoreOptions *options)
{
    if (options->class_count == 0 || options->class_count > KVG_CLASSES_MAX || options->slots == 0 || options->max_ctx == 0) {
        return kvg_fail(KVG_EINVAL, "a store of %u classes, %u slots and a context of %" PRIu64 " rows: classes are 1 to %d, "
                        "the others at least 1", options->class_count, options->slots, options->max_ctx, KVG_CLASSES_MAX);
    }
    if (options->max_ctx > INT32_MAX - KVG_CHUNK_ROWS) {
        return kvg_fail(KVG_EOVERFLOW, "a context of %" PRIu64 " rows: lengths are 32 bits, so at most %d", options->max_ctx,
                        INT32_MAX - KVG_CHUNK_ROWS);
    }
    if (!options->dev->ops->direct && (options->dev->ops->patch == NULL || options->dev->ops->clear == NULL)) {
        return kvg_fail(KVG_ENOTSUP, "device %s: the host cannot write its memory, and it takes no patches of tables and lengths; use another",
                        options->dev->ops->name);
    }
    if (options->has_recurrent && options->columns == 1) {
        return kvg_fail(KVG_EINVAL, "1 column of recurrent state: a step needs the current one and another; give at least 2");
    }
    if (options->index_pool != 0 && KVG_CHUNK_ROWS % options->index_pool != 0) {
        return kvg_fail(KVG_EGEOM, "an index key for %u rows: chunks have %d rows, which it must divide", options->index_pool,
                        KVG_CHUNK_ROWS);
    }
    for (uint32_t c = 0; c < options->class_count; c++) KVG_TRY(check_class(options, c));
    for (uint32_t i = 0; i < options->layer_count; i++) KVG_TRY(check_layer(options, &options->layers[i]));
    return KVG_OK;
}

static KvgStatus open_class(KvStore *store, const KvClassGeometry *geometry, StoreClass *class)
{
    class->geometry = *geometry;
    KVG_TRY(KVG_NEW(store->slots, "a class's spans", &class->spans));
    if (store->layout == KVG_LAYOUT_POOL) {
        return kvg_pool_create(&class->pool, geometry->units, geometry->units_max);
    }
    /* A flat slot has addresses for what it may ever hold, in whole units; without reserved ranges it starts with none. */
    if (kvg_store_reserves(store)) {
        class->slice_units = (uint32_t)kvg_ceil_div_u64(geometry->row_cap, KVG_CHUNK_ROWS);
    }
    return kvg_pool_create_counted(&class->pool, geometry->units, geometry->units_max);
}

/* One allocation for all that kernels read beside the rows; carved in the order of the picture in store_impl.h. */
static KvgStatus open_arena(KvStore *store)
{
    uint64_t stride = store->layout == KVG_LAYOUT_POOL ? store->table_stride : 0;
    uint64_t words;
    int32_t *next;

    if (!kvg_mul_u64(store->slots, 6 + store->class_count * (1 + stride), &words) || words > SIZE_MAX / sizeof(int32_t)) {
        return kvg_fail(KVG_EOVERFLOW, "chunk tables of %u slots and %u entries do not fit; lower the slots or the context",
                        store->slots, store->table_stride);
    }
    store->arena_bytes = words * sizeof(int32_t);
    if (store->mirrored) {
        KVG_TRY(kvg_store_open_mirror(store, words));
    } else {
        KVG_TRY(store->dev->ops->zeros(store->dev->self, store->arena_bytes, &store->arena));
    }
    next = store->arena;
    store->len = (uint32_t *)next;
    store->len_staged = store->len + store->slots;
    store->pools_ready = store->len_staged + store->slots;
    next += 3 * (size_t)store->slots;
    store->column_read = next;
    store->column_write = next + store->slots;
    store->column_each = next + 2 * (size_t)store->slots;
    next += 3 * (size_t)store->slots;
    for (uint32_t c = 0; c < store->class_count; c++) {
        store->classes[c].base_row = (uint32_t *)next;
        next += store->slots;
    }
    for (uint32_t c = 0; stride != 0 && c < store->class_count; c++) {
        store->classes[c].table = next;
        memset(next, 0xff, store->slots * stride * sizeof *next); /* -1: not held */
        next += store->slots * stride;
    }
    return store->mirrored ? kvg_store_fill_mirror(store) : KVG_OK;
}

KvgStatus kvg_store_describe_plane(const KvStore *store, StorePlane *plane, KvPlane *view, KvFormat format, uint32_t heads, uint32_t dim,
                                   uint32_t per_unit)
{
    uint64_t head_bytes;

    KVG_TRY(kvg_format_row_bytes(format, dim, &head_bytes));
    *plane = (StorePlane){.at = view, .per_unit = per_unit, .heads = heads, .token_bytes = head_bytes * heads};
    *view = (KvPlane){.head_bytes = head_bytes, .head_dim = dim, .format = format};
    if (store->layout == KVG_LAYOUT_POOL) { /* [head][row] in a chunk */
        view->chunk_bytes = plane->token_bytes * per_unit;
        view->head_stride = head_bytes * per_unit;
        view->row_stride = head_bytes;
    } else { /* [row][head] in a slot's slice */
        view->head_stride = head_bytes;
        view->row_stride = plane->token_bytes;
    }
    return KVG_OK;
}

static KvgStatus describe_layer(KvStore *store, const KvLayerGeometry *geometry, StoreLayer *layer)
{
    StoreClass *class = &store->classes[geometry->class_index];
    int         pool = store->layout == KVG_LAYOUT_POOL;

    layer->view = (KvPlaneView){
        .layer = geometry->layer, .owns = 1, .heads = geometry->heads, .head_first = geometry->head_first,
        .window = class->geometry.window, .rows_per_chunk = pool ? KVG_CHUNK_ROWS : 0,
        .table_stride = pool ? store->table_stride : 0, .table = class->table,
        .len = store->len, .len_staged = store->len_staged, .base_row = class->base_row,
    };
    if (!pool) {
        layer->view.ring_rows = kvg_store_is_ring(store, class)
                                    ? class->geometry.row_cap
                                    : kvg_ceil_div_u64(class->geometry.row_cap, KVG_CHUNK_ROWS) * KVG_CHUNK_ROWS;
    }
    KVG_TRY(kvg_store_describe_plane(store, &layer->planes[0], &layer->view.k, geometry->format_k, geometry->heads,
                                     geometry->head_dim_k, KVG_CHUNK_ROWS));
    KVG_TRY(kvg_store_describe_plane(store, &layer->planes[1], &layer->view.v, geometry->format_v, geometry->heads,
                                     geometry->head_dim_v, KVG_CHUNK_ROWS));
    layer->plane_count = 2;
    return KVG_OK;
}

KvgStatus kvg_store_open_planes(KvStore *store, StoreLayer *layer)
{
    StoreClass *class = &store->classes[layer->class_index];

    for (uint32_t p = 0; p < layer->plane_count; p++) {
        const StorePlane *plane = &layer->planes[p];

        class->unit_bytes += kvg_store_plane_bytes(plane, 1);
        if (plane->at == &layer->latent.keys && layer->latent.index_kind == KVG_INDEX_POOLED) {
            store->pool_key_bytes += plane->token_bytes;
        } else {
            class->row_bytes += plane->token_bytes;
        }
    }
    return store->layout == KVG_LAYOUT_POOL ? kvg_store_open_pool_planes(store, layer) : kvg_store_open_flat_planes(store, layer);
}

static KvgStatus open_layer(KvStore *store, const KvLayerGeometry *geometry, StoreLayer *layer)
{
    layer->class_index = geometry->class_index;
    if (geometry->kind == KVG_STATE_LATENT) return kvg_store_open_latent(store, geometry, layer);
    if (geometry->kind == KVG_STATE_RECURRENT) return kvg_store_open_recurrent(store, geometry, layer);
    KVG_TRY(describe_layer(store, geometry, layer));
    return kvg_store_open_planes(store, layer);
}

/* A sharing layer's source stands on this rank and owns its planes: placement forbids cuts between them. */
static KvgStatus open_shared_layer(KvStore *store, const KvLayerGeometry *geometry, StoreLayer *layer)
{
    int32_t index = (uint32_t)geometry->source < store->n_layer ? store->layer_index[geometry->source] : -1;

    if (index < 0 || store->layers[index].source >= 0 || store->layers[index].kind != KVG_STATE_KV) {
        return kvg_fail(KVG_EGEOM, "layer %u shares the planes of layer %d, which owns none on this rank; keep both on one stage",
                        geometry->layer, geometry->source);
    }
    layer->source = index;
    layer->class_index = store->layers[index].class_index;
    return KVG_OK;
}

static KvgStatus open_layers(KvStore *store, const KvStoreOptions *options)
{
    for (uint32_t i = 0; i < options->layer_count; i++) {
        const KvLayerGeometry *geometry = &options->layers[i];

        if (store->layer_index[geometry->layer] >= 0) {
            return kvg_fail(KVG_EINVAL, "layer %u is given twice; give each layer once", geometry->layer);
        }
        store->layer_count = i + 1; /* before anything can fail, so that destroy finds it */
        store->layers[i].layer = geometry->layer;
        store->layers[i].source = -1;
        store->layers[i].kind = geometry->kind == KVG_STATE_LATENT || geometry->kind == KVG_STATE_RECURRENT ? geometry->kind : KVG_STATE_KV;
        if (geometry->source < 0 || store->layers[i].kind != KVG_STATE_KV) {
            KVG_TRY(open_layer(store, geometry, &store->layers[i]));
        } else {
            KVG_TRY(open_shared_layer(store, geometry, &store->layers[i]));
        }
        store->layer_index[geometry->layer] = (int32_t)i;
    }
    kvg_store_copy_shared_views(store);
    return KVG_OK;
}

void kvg_store_copy_shared_views(KvStore *store)
{
    for (uint32_t i = 0; i < store->layer_count; i++) {
        StoreLayer *layer = &store->layers[i];

        if (layer->source >= 0) {
            layer->view = store->layers[layer->source].view;
            layer->view.owns = 0;
        }
    }
    if (store->mirrored) kvg_store_show(store);
}

static KvgStatus allocate_layers(KvStore *store, const KvStoreOptions *options)
{
    KVG_TRY(KVG_NEW(options->layer_count, "a store's layers", &store->layers));
    KVG_TRY(KVG_NEW(options->n_layer, "a store's layer index", &store->layer_index));
    memset(store->layer_index, 0xff, options->n_layer * sizeof *store->layer_index);
    KVG_TRY(KVG_NEW(options->slots, "a store's slots", &store->slot_states));
    return KVG_OK;
}

static KvgStatus take_facts(KvStore *store, const KvStoreOptions *options)
{
    store->columns = !options->has_recurrent ? 0 : options->columns == 0 ? 2 : options->columns;
    store->index_pool = options->index_pool;
    if (options->index_pool == 0 || options->index_ring_rows == 0) return KVG_OK;
    store->index_ring = options->max_ctx;
    if (options->index_ring_rows >= options->max_ctx) return KVG_OK;
    return kvg_index_ring_round(options->index_ring_rows, options->index_pool, &store->index_ring);
}

KvgStatus kvg_store_create(const KvStoreOptions *options, KvStore **store_p)
{
    KvStore  *store;
    KvgStatus status;

    KVG_TRY(check_options(options));
    KVG_TRY(KVG_NEW(1, "a store", &store));
    store->dev = options->dev;
    store->layout = options->layout;
    store->slots = options->slots;
    store->max_ctx = options->max_ctx;
    store->n_layer = options->n_layer;
    store->class_count = options->class_count;
    store->mirrored = !options->dev->ops->direct;
    store->layers_max = options->layer_count;
    store->table_stride = (uint32_t)kvg_ceil_div_u64(options->max_ctx, KVG_CHUNK_ROWS);
    KVG_TRY_GOTO(take_facts(store, options), err_destroy);
    KVG_TRY_GOTO(allocate_layers(store, options), err_destroy);
    for (uint32_t c = 0; c < options->class_count; c++) {
        KVG_TRY_GOTO(open_class(store, &options->classes[c], &store->classes[c]), err_destroy);
    }
    KVG_TRY_GOTO(open_arena(store), err_destroy);
    KVG_TRY_GOTO(open_layers(store, options), err_destroy);
    *store_p = store;
    return KVG_OK;
err_destroy:
    kvg_store_destroy(store); /* copes with a store that is made in part */
    return status;
}

void kvg_store_destroy(KvStore *store)
{
    if (store == NULL) return;
    KVG_ASSERT(store->slots_open == 0);
    for (uint32_t i = 0; i < store->layer_count; i++) {
        kvg_store_close_planes(store, &store->layers[i]);
        kvg_store_close_slots(store, &store->layers[i]);
    }
    for (uint32_t c = 0; c < store->class_count; c++) {
        KVG_ASSERT(store->classes[c].pool.free_count == store->classes[c].pool.total);
        kvg_pool_destroy(&store->classes[c].pool);
        kvg_free(store->classes[c].spans);
    }
    if (store->mirrored) {
        kvg_store_close_mirror(store);
    } else {
        store->dev->ops->free(store->dev->self, store->arena);
    }
    kvg_free(store->pool_scratch);
    kvg_free(store->slot_states);
    kvg_free(store->layer_index);
    kvg_free(store->layers);
    kvg_free(store);
}

/* ---- geometry */

const KvClassGeometry *kvg_store_class(const KvStore *store, uint32_t class_index)
{
    KVG_ASSERT(class_index < store->class_count);
    return &store->classes[class_index].geometry;
}

uint32_t kvg_store_class_count(const KvStore *store)
{
    return store->class_count;
}

uint32_t kvg_store_layer_count(const KvStore *store)
{
    return store->n_layer;
}

const KvPlaneView *kvg_store_view(const KvStore *store, uint32_t layer)
{
    const StoreLayer *found = kvg_store_find_layer(store, layer);
    return found != NULL && found->kind == KVG_STATE_KV ? &found->view : NULL;
}

const KvLatentView *kvg_store_latent_view(const KvStore *store, uint32_t layer)
{
    const StoreLayer *found = kvg_store_find_layer(store, layer);
    return found != NULL && found->kind == KVG_STATE_LATENT ? &found->latent : NULL;
}

uint32_t kvg_store_latent_class(const KvStore *store, uint32_t layer)
{
    const StoreLayer *found = kvg_store_find_layer(store, layer);

    KVG_ASSERT(found != NULL && found->kind == KVG_STATE_LATENT);
    return found->class_index;
}

uint32_t kvg_store_view_class(const KvStore *store, uint32_t layer)
{
    const StoreLayer *found = kvg_store_find_layer(store, layer);

    KVG_ASSERT(found != NULL && found->kind == KVG_STATE_KV);
    return found->class_index;
}

const KvRecurrentView *kvg_store_recurrent_view(const KvStore *store, uint32_t layer)
{
    const StoreLayer *found = kvg_store_find_layer(store, layer);
    return found != NULL && found->kind == KVG_STATE_RECURRENT ? &found->recurrent : NULL;
}

uint32_t kvg_store_columns(const KvStore *store)
{
    return store->columns;
}

uint32_t kvg_store_index_pool(const KvStore *store)
{
    return store->index_pool;
}

uint64_t kvg_store_index_ring(const KvStore *store)
{
    return store->index_ring;
}

KvLayout kvg_store_layout(const KvStore *store)
{
    return store->layout;
}

KvDev *kvg_store_dev(const KvStore *store)
{
    return store->dev;
}

uint64_t kvg_store_max_ctx(const KvStore *store)
{
    return store->max_ctx;
}

uint64_t kvg_store_row_bytes(const KvStore *store, uint32_t class_index)
{
    return store->classes[class_index].row_bytes;
}

uint64_t kvg_store_unit_bytes(const KvStore *store, uint32_t class_index)
{
    return store->classes[class_index].unit_bytes;
}

uint64_t kvg_store_pool_key_bytes(const KvStore *store)
{
    return store->pool_key_bytes;
}

uint64_t kvg_store_slot_bytes(const KvStore *store)
{
    return store->slot_bytes;
}

/* ---- lengths */

void kvg_store_set_len(KvStore *store, uint32_t slot, uint64_t len, uint64_t len_staged)
{
    store->len[slot] = (uint32_t)len;
    store->len_staged[slot] = (uint32_t)len_staged;
    kvg_store_note(store, &store->len[slot]);
    kvg_store_note(store, &store->len_staged[slot]);
}

void kvg_store_set_base(KvStore *store, uint32_t class_index, uint32_t slot, uint64_t base_row)
{
    store->classes[class_index].base_row[slot] = (uint32_t)base_row;
    kvg_store_note(store, &store->classes[class_index].base_row[slot]);
}

/* A small store with state of every kind, and a reference that knows nothing of stores: it keeps the key of every row ever written,
 * encodes all planes from them, recomputes recurrent state from row 0, and forms the digest.
 *
 *   layer  state                                           class
 *     0    K/V, bf16 8, f16 4                               0 full
 *     1    K/V, q8_0 32, q5_1 32, window 40, ring           1 windowed
 *     2    latent f32 6, pooled indexer 4 (keys of 2)       0
 *     3    latent bf16 5, per-token indexer 3               0
 *     4    recurrent like GDN: conv 2x3, 2x3, 4x2 of kernel 4, state 4x5
 *     5    recurrent like Mamba-1: conv 6x1 of kernel 3, state 6x3
 *     6    latent bf16 4, no indexer                        0
 *     7    latent bf16 7, pooled indexer 6 (keys of 3)      0
 *     8    recurrent without taps: state 2x4
 * Every element follows from (layer, plane, global index, key of the row). */
#ifndef KVG_TEST_KINDS_FIXTURE_H
#define KVG_TEST_KINDS_FIXTURE_H

#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include <kvgrid/head_shard.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/base/mix.h"
#include "runtime/state/cache.h"
#include "tests/support/test_device.h"

enum { KINDS_LAYERS = 9, KINDS_CLASSES = 2, KINDS_WINDOW = 40, KINDS_PREFILL = 100, KINDS_LEAVES_MAX = 64, KINDS_WIDTH_MAX = 64 };

typedef struct Kinds {
    KvDev           dev;
    KvStore        *store;
    KvLayerGeometry layers[KINDS_LAYERS];
    KvClassGeometry classes[KINDS_CLASSES];
    KvStoreOptions  options;
} Kinds;

typedef struct KindsShape {
    KvLayout layout;
    int      reserves;
    uint32_t columns, pool;
    uint64_t ring, max_ctx;
    uint32_t slots, units;
    uint32_t tp, tp_rank; /* 0, 0: whole */
} KindsShape;

/* ---- geometry */

static const RecurrentPart kinds_parts[][4] = {
    {{2, 3, 0}, {2, 3, 0}, {4, 2, 0}, {4, 5, 1}},
    {{6, 1, 0}, {6, 3, 1}},
    {{2, 4, 1}},
};
static const uint32_t kinds_part_count[] = {4, 2, 1}, kinds_kernel[] = {4, 3, 1};

static inline uint32_t kinds_recurrent_index(uint32_t layer)
{
    return layer == 4 ? 0 : layer == 5 ? 1 : 2;
}

static inline KvLayerGeometry kinds_recurrent(const KindsShape *shape, uint32_t layer)
{
    uint32_t        which = kinds_recurrent_index(layer), heads[2] = {0, 0};
    KvLayerGeometry g = {.layer = layer, .source = -1, .kind = KVG_STATE_RECURRENT};

    g.recurrent.conv_kernel = kinds_kernel[which];
    g.recurrent.part_count = kinds_part_count[which];
    for (uint32_t p = 0; p < kinds_part_count[which]; p++) {
        const RecurrentPart *part = &kinds_parts[which][p];
        HeadShard            shard = {0, part->heads, 1};

        if (shape->tp != 0) ck_assert_int_eq(kvg_head_shard(part->heads, shape->tp, shape->tp_rank, &shard), KVG_OK);
        g.recurrent.parts[p] = (KvRecurrentPartView){.is_state = part->is_state, .heads = shard.count, .head_first = shard.first,
                                                     .head_index = heads[part->is_state] + shard.first, .width = part->width,
                                                     .replicas = shard.replicas};
        heads[part->is_state] += part->heads;
    }
    return g;
}

static inline KvLayerGeometry kinds_latent(uint32_t layer, uint32_t width, KvIndexKind kind, uint32_t index_width, uint32_t pool, KvFormat format)
{
    return (KvLayerGeometry){.layer = layer, .source = -1, .kind = KVG_STATE_LATENT,
                             .latent = {.width = width, .kv_rank = 4, .index_kind = kind, .index_width = index_width, .index_pool = pool,
                                        .format = format}};
}

static inline void kinds_describe(Kinds *f, const KindsShape *shape)
{
    uint64_t window_rows = kvg_swa_ring_rows_chunk(KINDS_WINDOW, shape->max_ctx, KINDS_PREFILL);
    uint32_t full_units = (uint32_t)kvg_ceil_div_u64(shape->max_ctx, 64), window_units = (uint32_t)kvg_ceil_div_u64(window_rows, 64);

    f->layers[0] = (KvLayerGeometry){.layer = 0, .source = -1, .heads = 1, .head_dim_k = 8, .head_dim_v = 4, .format_k = KVG_BF16,
                                     .format_v = KVG_F16};
    f->layers[1] = (KvLayerGeometry){.layer = 1, .class_index = 1, .source = -1, .heads = 1, .head_dim_k = 32, .head_dim_v = 32,
                                     .format_k = KVG_Q8_0, .format_v = KVG_Q5_1};
    f->layers[2] = kinds_latent(2, 6, KVG_INDEX_POOLED, 4, shape->pool, KVG_F32);
    f->layers[3] = kinds_latent(3, 5, KVG_INDEX_PER_TOKEN, 3, 0, KVG_BF16);
    f->layers[4] = kinds_recurrent(shape, 4);
    f->layers[5] = kinds_recurrent(shape, 5);
    f->layers[6] = kinds_latent(6, 4, KVG_INDEX_NONE, 0, 0, KVG_BF16);
    f->layers[7] = kinds_latent(7, 7, KVG_INDEX_POOLED, 6, shape->pool, KVG_BF16);
    f->layers[8] = kinds_recurrent(shape, 8);
    f->classes[0] = (KvClassGeometry){.row_cap = shape->max_ctx, .unit_cap = full_units, .units = shape->units, .units_max = 2 * shape->units};
    f->classes[1] = (KvClassGeometry){.window = KINDS_WINDOW, .ring = 1, .row_cap = window_rows,
                                      .unit_cap = shape->layout == KVG_LAYOUT_POOL ? (uint32_t)kvg_min_u64(full_units, window_units + 1) : window_units,
                                      .units = shape->units, .units_max = 2 * shape->units};
    f->options = (KvStoreOptions){.dev = &f->dev, .layout = shape->layout, .layers = f->layers, .layer_count = KINDS_LAYERS,
                                  .classes = f->classes, .class_count = KINDS_CLASSES, .slots = shape->slots, .max_ctx = shape->max_ctx,
                                  .n_layer = KINDS_LAYERS, .has_recurrent = 1, .columns = shape->columns, .index_pool = shape->pool,
                                  .index_ring_rows = shape->ring};
}

static inline void kinds_open(Kinds *f, const KindsShape *shape)
{
    kinds_describe(f, shape);
    ck_assert_msg(test_device_open(shape->reserves, &f->dev) == KVG_OK, "%s", kvg_last_error());
    ck_assert_msg(kvg_store_create(&f->options, &f->store) == KVG_OK, "%s", kvg_last_error());
}

static inline void kinds_close(Kinds *f)
{
    ck_assert_uint_eq(kvg_store_bytes(f->store).booked, 0);
    kvg_store_destroy(f->store);
    test_device_close(&f->dev);
}

/* ---- values */

static inline float kinds_value(uint32_t layer, uint32_t plane, uint64_t index, uint64_t key)
{
    return (float)((double)(kvg_mix64(kvg_mix_term(layer, plane, index, key)) >> 40) / (double)(1 << 21) - 4.0);
}

static inline void kinds_values(uint32_t layer, uint32_t plane, uint64_t key, uint32_t count, float *row)
{
    for (uint32_t i = 0; i < count; i++) row[i] = kinds_value(layer, plane, i, key);
}

/* A pool's key, from decoded rows alone. */
static inline void kinds_pool_key(void *user, uint32_t layer, uint64_t pool_index, const float *rows, float *key)
{
    const uint32_t pool = *(const uint32_t *)user, width = layer == 2 ? 4 : 6;

    for (uint32_t i = 0; i < width / 2; i++) {
        key[i] = (float)(pool_index % 17);
        for (uint32_t r = 0; r < pool; r++) {
            key[i] = key[i] * 0.5f;
            key[i] = key[i] + rows[r * width + i];
            key[i] = key[i] - rows[r * width + width / 2 + i];
        }
    }
}

/* ---- writing a pass */

typedef struct KindsPass {
    const Kinds    *f;
    const uint64_t *keys; /* of the pass's rows */
} KindsPass;

static inline void kinds_fill(void *user, uint32_t layer, uint32_t i, float *x, float *u)
{
    const KindsPass       *pass = user;
    const KvRecurrentView *view = kvg_store_recurrent_view(pass->f->store, layer);
    uint32_t               which = kinds_recurrent_index(layer), base[2] = {0, 0};

    for (uint32_t p = 0; p < view->part_count; p++) {
        const KvRecurrentPartView *part = &view->parts[p];
        for (uint32_t e = 0; e < part->heads * part->width; e++) {
            float value = kinds_value(layer, 5 + part->is_state, base[part->is_state] + part->head_first * part->width + e, pass->keys[i]);
            if (part->is_state) *u++ = value;
            else *x++ = value;
        }
        base[part->is_state] += kinds_parts[which][p].heads * part->width;
    }
}

static inline KvRowsIn kinds_rows(KvDev *dev, uint32_t layer, uint32_t plane, const uint64_t *keys, uint32_t rows, uint32_t width, float *buffer)
{
    for (uint32_t r = 0; r < rows; r++) kinds_values(layer, plane, keys[r], width, buffer + r * width);
    const void *data = test_device_lend(dev, (int)(plane & 1), buffer, (size_t)rows * width * sizeof *buffer);
    return (KvRowsIn){.data = data, .type = KVG_F32, .token_stride = width, .head_stride = width};
}

static inline KvgStatus kinds_write_layer(Kinds *f, uint32_t layer, uint32_t slot, uint64_t row, uint32_t rows, const uint64_t *keys, float *a, float *b)
{
    const KvPlaneView  *kv = kvg_store_view(f->store, layer);
    const KvLatentView *latent = kvg_store_latent_view(f->store, layer);
    KvgStatus           status;

    if (kv != NULL) {
        KvRowsIn k = kinds_rows(&f->dev, layer, 0, keys, rows, kv->k.head_dim, a), v = kinds_rows(&f->dev, layer, 1, keys, rows, kv->v.head_dim, b);
        status = kvg_store_write(f->store, layer, slot, row, rows, &k, &v, NULL);
    } else if (latent != NULL) {
        KvRowsIn in = kinds_rows(&f->dev, layer, 2, keys, rows, latent->width, a);
        KvRowsIn index = kinds_rows(&f->dev, layer, 3, keys, rows, latent->index_width, b);
        status = kvg_store_write_latent(f->store, layer, slot, row, rows, &in, latent->index_kind != KVG_INDEX_NONE ? &index : NULL,
                                        kinds_pool_key, &f->options.index_pool, NULL);
    } else {
        KindsPass pass = {f, keys};
        float     scratch[2 * KINDS_WIDTH_MAX];
        status = kvg_store_recurrent_update(f->store, layer, slot, rows, kinds_fill, &pass, 0.75f, scratch, NULL);
    }
    return status;
}

/* Everything that a pass of `rows` rows writes; keys[] is by absolute row. */
static inline void kinds_write(Kinds *f, KvCache *cache, uint32_t rows, const uint64_t *keys)
{
    uint64_t row = kvg_kv_cache_pass_row(cache);
    float   *a = malloc((size_t)rows * KINDS_WIDTH_MAX * sizeof *a), *b = malloc((size_t)rows * KINDS_WIDTH_MAX * sizeof *b);

    for (uint32_t layer = 0; layer < KINDS_LAYERS; layer++) {
        ck_assert_msg(kinds_write_layer(f, layer, cache->slot, row, rows, keys + row, a, b) == KVG_OK, "layer %u: %s", layer, kvg_last_error());
    }
    free(a);
    free(b);
}

/* One more pass of an open step; 0 rows are none. */
static inline void kinds_pass(Kinds *f, KvCache *cache, uint32_t rows, const uint64_t *keys)
{
    if (rows == 0) return;
    ck_assert_msg(kvg_kv_cache_append(cache, rows, NULL) == KVG_OK, "%s", kvg_last_error());
    kinds_write(f, cache, rows, keys);
}

static inline void kinds_begin(KvCache *cache)
{
    ck_assert_msg(kvg_kv_cache_begin(cache) == KVG_OK, "%s", kvg_last_error());
}

static inline uint32_t kinds_finalize(KvCache *cache, uint64_t accepted)
{
    uint32_t owed = kvg_kv_cache_finalize(cache, accepted);

    kvg_kv_cache_release_behind(cache);
    ck_assert_uint_eq(owed, kvg_kv_cache_replay(cache));
    return owed;
}

/* Whole steps, each as long as a step may be, until the cache has `len` rows and owes nothing. */
static inline void kinds_grow(Kinds *f, KvCache *cache, uint64_t len, const uint64_t *keys)
{
    while (cache->pos < len || kvg_kv_cache_replay(cache) > 0) {
        uint32_t owed = kvg_kv_cache_replay(cache), rows = (uint32_t)kvg_min_u64(KINDS_PREFILL, len - cache->pos);

        kinds_begin(cache);
        kinds_pass(f, cache, owed + rows, keys);
        kinds_finalize(cache, rows);
    }
}

/* ---- the digest of a cache, and the reference's */

static inline KvDigest kinds_digest(const KvCache *cache)
{
    KvLeaf   leaves[KINDS_LEAVES_MAX];
    size_t   count = kvg_kv_cache_leaf_count(cache);
    KvDigest digest;

    ck_assert_uint_le(count, KINDS_LEAVES_MAX);
    ck_assert_msg(kvg_kv_cache_leaves(cache, leaves) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_digest_combine(leaves, count, cache->pos, &digest), KVG_OK);
    return digest;
}

typedef struct KindsReference {
    KvLeaf   leaves[KINDS_LEAVES_MAX];
    size_t   count;
    uint8_t *bytes; /* of the leaf under way */
    size_t   used, room;
} KindsReference;

static inline void reference_add(KindsReference *r, const void *bytes, size_t count)
{
    if (r->bytes == NULL || r->used + count > r->room) {
        r->room = 2 * (r->used + count) + 64;
        r->bytes = realloc(r->bytes, r->room);
    }
    memcpy(r->bytes + r->used, bytes, count);
    r->used += count;
}

static inline void reference_leaf(KindsReference *r, uint32_t layer, uint32_t plane, uint32_t head)
{
    KvLeaf            *leaf = &r->leaves[r->count++];
    XXH128_canonical_t canonical;

    *leaf = (KvLeaf){.layer = layer, .plane = plane, .head = head};
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(r->bytes, r->used));
    memcpy(leaf->hash, canonical.digest, sizeof leaf->hash);
    r->used = 0;
}

static inline void reference_rows(KindsReference *r, uint32_t layer, uint32_t plane, KvFormat format, uint32_t width, const uint64_t *keys,
                                  uint64_t start, uint64_t end)
{
    float    row[KINDS_WIDTH_MAX];
    uint8_t  encoded[KINDS_WIDTH_MAX * 4];
    uint64_t bytes = 0;

    ck_assert_int_eq(kvg_format_row_bytes(format, width, &bytes), KVG_OK);
    for (uint64_t i = start; i < end; i++) {
        kinds_values(layer, plane, keys[i], width, row);
        kvg_encode_f32(format, row, width, encoded, NULL);
        reference_add(r, encoded, bytes);
    }
}

static inline void reference_pool_keys(KindsReference *r, uint32_t layer, KvFormat format, uint32_t width, uint32_t pool, const uint64_t *keys,
                                       uint64_t pools)
{
    float   rows[64 * KINDS_WIDTH_MAX], key[KINDS_WIDTH_MAX];
    uint8_t encoded[KINDS_WIDTH_MAX * 4];
    size_t  element = format == KVG_F32 ? 4 : 2;

    for (uint64_t p = 0; p < pools; p++) {
        for (uint32_t i = 0; i < pool; i++) { /* as stored: what the format keeps of them */
            kinds_values(layer, 3, keys[p * pool + i], width, rows + i * width);
            kvg_encode_f32(format, rows + i * width, width, encoded, NULL);
            kvg_decode_f32(format, encoded, width, rows + i * width);
        }
        kinds_pool_key(&pool, layer, p, rows, key);
        kvg_encode_f32(format, key, width / 2, encoded, NULL);
        reference_add(r, encoded, width / 2 * element);
    }
}

/* One head's conv taps and state after `len` rows, each element on its own, from the beginning. */
static inline void reference_recurrent(KindsReference *r, uint32_t layer, const uint64_t *keys, uint64_t len)
{
    uint32_t which = kinds_recurrent_index(layer), base[2] = {0, 0}, head[2] = {0, 0}, taps = kinds_kernel[which] - 1;

    for (uint32_t p = 0; p < kinds_part_count[which]; p++) {
        const RecurrentPart *part = &kinds_parts[which][p];
        for (uint32_t h = 0; h < part->heads; h++) {
            for (uint32_t w = 0; w < part->width; w++) {
                uint32_t index = base[part->is_state] + h * part->width + w;
                float    state = 0;
                for (uint64_t i = 0; part->is_state && i < len; i++) {
                    volatile float decayed = 0.75f * state;
                    state = decayed + kinds_value(layer, 6, index, keys[i]);
                }
                if (part->is_state) reference_add(r, &state, sizeof state);
                for (uint32_t j = 0; !part->is_state && j < taps; j++) { /* tap j is the value of row len - taps + j */
                    float tap = len + j < taps ? 0 : kinds_value(layer, 5, index, keys[len + j - taps]);
                    reference_add(r, &tap, sizeof tap);
                }
            }
            if (part->is_state || taps > 0) reference_leaf(r, layer, 5 + part->is_state, head[part->is_state]);
            head[part->is_state]++;
        }
        base[part->is_state] += part->heads * part->width;
    }
}

static inline void reference_latent(KindsReference *r, const KvLayerGeometry *g, const uint64_t *keys, uint64_t len)
{
    const KvLatentGeometry *l = &g->latent;

    reference_rows(r, g->layer, 2, l->format, l->width, keys, 0, len);
    reference_leaf(r, g->layer, 2, 0);
    if (l->index_kind == KVG_INDEX_PER_TOKEN) {
        reference_rows(r, g->layer, 3, l->format, l->index_width, keys, 0, len);
        reference_leaf(r, g->layer, 4, 0);
    } else if (l->index_kind == KVG_INDEX_POOLED) {
        reference_rows(r, g->layer, 3, l->format, l->index_width, keys, len / l->index_pool * l->index_pool, len);
        reference_leaf(r, g->layer, 3, 0);
        reference_pool_keys(r, g->layer, l->format, l->index_width, l->index_pool, keys, len / l->index_pool);
        reference_leaf(r, g->layer, 4, 0);
    }
}

static inline KvDigest kinds_reference(const Kinds *f, const uint64_t *keys, uint64_t len)
{
    KindsReference r = {.count = 0};
    KvDigest       digest;
    uint64_t       view_start = len < KINDS_WINDOW ? 0 : (len - KINDS_WINDOW + 1) / 32 * 32;

    reference_add(&r, "", 0);
    for (uint32_t i = 0; i < KINDS_LAYERS; i++) {
        const KvLayerGeometry *g = &f->layers[i];
        if (g->kind == KVG_STATE_LATENT) {
            reference_latent(&r, g, keys, len);
        } else if (g->kind == KVG_STATE_RECURRENT) {
            reference_recurrent(&r, i, keys, len);
        } else {
            for (uint32_t plane = 0; plane < 2; plane++) {
                reference_rows(&r, i, plane, plane ? g->format_v : g->format_k, plane ? g->head_dim_v : g->head_dim_k, keys,
                               g->class_index == 1 ? view_start : 0, len);
                reference_leaf(&r, i, plane, 0);
            }
        }
    }
    free(r.bytes);
    ck_assert_int_eq(kvg_digest_combine(r.leaves, r.count, len, &digest), KVG_OK);
    return digest;
}

static inline int kinds_is(const Kinds *f, const KvCache *cache, const uint64_t *keys)
{
    KvDigest is = kinds_digest(cache), should = kinds_reference(f, keys, cache->pos);
    return memcmp(&is, &should, sizeof is) == 0;
}

#endif

/* A small store for tests, and rows whose every element follows from one 64-bit key.
 *
 *   layer  class      heads  dims     formats
 *     0    0 full        2   32, 32   q8_0, q5_1
 *     1    1 windowed    1   64, 32   fp8, q4_0
 *     2    shares layer 0
 *     3    0 full        1    8,  4   bf16, f16
 *     4    2 windowed    2   32, 32   bf16, fp8    (ring off: every row is kept)
 */
#ifndef KVG_TEST_STATE_FIXTURE_H
#define KVG_TEST_STATE_FIXTURE_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/base/mix.h"
#include "runtime/state/cache.h"
#include "tests/support/test_device.h"

enum { FIXTURE_LAYERS = 5, FIXTURE_CLASSES = 3, FIXTURE_ROW_FLOATS = 128 };

typedef struct Fixture {
    KvDev           dev;
    KvLayerGeometry layers[FIXTURE_LAYERS];
    KvClassGeometry classes[FIXTURE_CLASSES];
    KvStoreOptions  options;
    KvStore        *store;
} Fixture;

static inline KvClassGeometry fixture_class(KvLayout layout, uint64_t window, int ring, uint32_t prefill, uint64_t max_ctx,
                                            uint32_t units)
{
    KvClassGeometry class = {.window = window, .ring = ring, .units = units, .units_max = units * 2};

    class.row_cap = ring ? kvg_swa_ring_rows_chunk(window, max_ctx, prefill) : max_ctx;
    class.unit_cap = (uint32_t)kvg_ceil_div_u64(class.row_cap, KVG_CHUNK_ROWS);
    if (ring && layout == KVG_LAYOUT_POOL) {
        class.unit_cap = (uint32_t)kvg_min_u64(kvg_ceil_div_u64(max_ctx, KVG_CHUNK_ROWS), class.unit_cap + 1);
    }
    return class;
}

static inline void fixture_describe(Fixture *f, KvLayout layout, uint64_t window, uint32_t prefill, uint64_t max_ctx,
                                    uint32_t slots, uint32_t units)
{
    memset(f, 0, sizeof *f);
    f->layers[0] = (KvLayerGeometry){.layer = 0, .class_index = 0, .source = -1, .head_first = 2, .heads = 2, .head_dim_k = 32,
                                     .head_dim_v = 32, .format_k = KVG_Q8_0, .format_v = KVG_Q5_1};
    f->layers[1] = (KvLayerGeometry){.layer = 1, .class_index = 1, .source = -1, .heads = 1, .head_dim_k = 64, .head_dim_v = 32,
                                     .format_k = KVG_FP8, .format_v = KVG_Q4_0};
    f->layers[2] = (KvLayerGeometry){.layer = 2, .class_index = 0, .source = 0};
    f->layers[3] = (KvLayerGeometry){.layer = 3, .class_index = 0, .source = -1, .heads = 1, .head_dim_k = 8, .head_dim_v = 4,
                                     .format_k = KVG_BF16, .format_v = KVG_F16};
    f->layers[4] = (KvLayerGeometry){.layer = 4, .class_index = 2, .source = -1, .heads = 2, .head_dim_k = 32, .head_dim_v = 32,
                                     .format_k = KVG_BF16, .format_v = KVG_FP8};
    f->classes[0] = fixture_class(layout, 0, 0, prefill, max_ctx, units);
    f->classes[1] = fixture_class(layout, window, 1, prefill, max_ctx, units);
    f->classes[2] = fixture_class(layout, window, 0, prefill, max_ctx, units);
    f->options = (KvStoreOptions){.dev = &f->dev, .layout = layout, .layers = f->layers, .layer_count = FIXTURE_LAYERS,
                                  .classes = f->classes, .class_count = FIXTURE_CLASSES, .slots = slots, .max_ctx = max_ctx,
                                  .n_layer = FIXTURE_LAYERS + 1};
}

static inline void fixture_open(Fixture *f, KvLayout layout, int reserves, uint64_t window, uint32_t prefill, uint64_t max_ctx,
                                uint32_t slots, uint32_t units)
{
    fixture_describe(f, layout, window, prefill, max_ctx, slots, units);
    ck_assert_msg(test_device_open(reserves, &f->dev) == KVG_OK, "%s", kvg_last_error());
    ck_assert_msg(kvg_store_create(&f->options, &f->store) == KVG_OK, "%s", kvg_last_error());
}

static inline void fixture_close(Fixture *f)
{
    kvg_store_destroy(f->store);
    test_device_close(&f->dev);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}

/* The f32 elements of one row of one plane: [heads][dim], values in [-4, 4). */
static inline void fixture_row(const KvPlaneView *view, const KvPlane *plane, int which, uint64_t key, float *row)
{
    uint64_t stream = kvg_mix_term(view->layer, (uint64_t)which, view->head_first, key);

    for (uint32_t i = 0; i < view->heads * plane->head_dim; i++) {
        row[i] = (float)((double)(kvg_mix64(stream + i) >> 40) / (double)(1 << 21) - 4.0);
    }
}

static inline KvRowsIn fixture_rows_in(const float *data, const KvPlane *plane, uint32_t heads)
{
    return (KvRowsIn){.data = data, .type = KVG_F32, .token_stride = (int64_t)heads * plane->head_dim,
                      .head_stride = plane->head_dim};
}

/* Writes one row of every owning layer. */
static inline void fixture_write(Fixture *f, uint32_t slot, uint64_t row, uint64_t key)
{
    float k[FIXTURE_ROW_FLOATS], v[FIXTURE_ROW_FLOATS];

    for (uint32_t i = 0; i < FIXTURE_LAYERS; i++) {
        const KvPlaneView *view = kvg_store_view(f->store, i);

        if (!view->owns) continue;
        fixture_row(view, &view->k, 0, key, k);
        fixture_row(view, &view->v, 1, key, v);
        KvRowsIn in_k = fixture_rows_in(test_device_lend(&f->dev, 0, k, sizeof k), &view->k, view->heads);
        KvRowsIn in_v = fixture_rows_in(test_device_lend(&f->dev, 1, v, sizeof v), &view->v, view->heads);
        ck_assert_msg(kvg_store_write(f->store, i, slot, row, 1, &in_k, &in_v, NULL) == KVG_OK, "%s", kvg_last_error());
    }
}

static inline int fixture_device_row_is(const Fixture *f, const KvPlaneView *view, const KvPlane *plane, int which, uint32_t slot, uint64_t row,
                                       uint64_t key)
{
    float   values[FIXTURE_ROW_FLOATS];
    uint8_t bytes[FIXTURE_ROW_FLOATS * 4];

    fixture_row(view, plane, which, key, values);
    for (uint32_t head = 0; head < view->heads; head++) {
        kvg_encode_f32_ref(plane->format, values + head * plane->head_dim, plane->head_dim, bytes, NULL);
        const void *stored = test_device_look(f == NULL ? NULL : kvg_store_dev(f->store), kvg_plane_row(view, plane, slot, head, row), plane->head_bytes);
        if (memcmp(bytes, stored, plane->head_bytes) != 0) return 0;
    }
    return 1;
}

/* On the host device. */
static inline int fixture_plane_row_is(const KvPlaneView *view, const KvPlane *plane, int which, uint32_t slot, uint64_t row, uint64_t key)
{
    return fixture_device_row_is(NULL, view, plane, which, slot, row, key);
}

/* 1 if every layer whose window at length `len` reaches back to `row` holds the row of `key` there, bit for bit. */
static inline int fixture_row_is(const Fixture *f, uint32_t slot, uint64_t len, uint64_t row, uint64_t key)
{
    for (uint32_t i = 0; i < FIXTURE_LAYERS; i++) {
        const KvPlaneView *view = kvg_store_view(f->store, i);

        if (view->window != 0 && row < kvg_view_start(len, view->window)) continue;
        if (!fixture_device_row_is(f, view, &view->k, 0, slot, row, key)) return 0;
        if (!fixture_device_row_is(f, view, &view->v, 1, slot, row, key)) return 0;
    }
    return 1;
}

static inline KvDigest fixture_digest(const KvCache *cache)
{
    size_t   count = kvg_kv_cache_leaf_count(cache);
    KvLeaf  *leaves = malloc(count * sizeof *leaves);
    KvDigest digest;

    ck_assert_int_eq(kvg_kv_cache_leaves(cache, leaves), KVG_OK);
    ck_assert_int_eq(kvg_digest_combine(leaves, count, cache->pos, &digest), KVG_OK);
    free(leaves);
    return digest;
}

/* K/V rows alone: a snapshot is lengths, and may stand anywhere. */
static inline void fixture_snapshot(const KvCache *cache, KvCacheSnapshot *snapshot)
{
    *snapshot = (KvCacheSnapshot){.dev = kvg_store_dev(cache->store)};
    ck_assert_msg(kvg_kv_cache_snapshot_into(cache, snapshot, NULL) == KVG_OK, "%s", kvg_last_error());
}

/* One step: begin, `rows` rows written with keys key0, key0+1, ..., `accepted` kept. */
static inline void fixture_step(Fixture *f, KvCache *cache, uint32_t rows, uint64_t accepted, uint64_t key0)
{
    ck_assert_msg(kvg_kv_cache_begin(cache) == KVG_OK, "%s", kvg_last_error());
    ck_assert_msg(kvg_kv_cache_append(cache, rows, NULL) == KVG_OK, "%s", kvg_last_error());
    for (uint32_t i = 0; i < rows; i++) fixture_write(f, cache->slot, cache->pos + i, key0 + i);
    kvg_kv_cache_finalize(cache, accepted);
    kvg_kv_cache_release_behind(cache);
}

#endif

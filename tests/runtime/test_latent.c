/* Latent layers: rows, pooled and per-token indexers, appends of any length through a ring of any size, keys, tails. */
#include "tests/runtime/kinds_fixture.h"

enum { MAX_CTX = 700, KEYS = 800, MILLION = 1000000 };

static Kinds    kinds;
static uint64_t keys[KEYS];

static void open_kinds(KvLayout layout, uint32_t pool, uint64_t ring)
{
    KindsShape shape = {.layout = layout, .reserves = 1, .columns = 2, .pool = pool, .ring = ring, .max_ctx = MAX_CTX, .slots = 2, .units = 24};

    for (uint64_t i = 0; i < KEYS; i++) keys[i] = i + 1;
    kinds_open(&kinds, &shape);
}

static void close_kinds(KvCache *cache)
{
    kvg_kv_cache_close(cache, NULL);
    kinds_close(&kinds);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}

/* ---- appends */

START_TEST(test_an_append_of_any_length_from_any_row_gives_the_same_state)
{
    static const struct {
        uint32_t pool;
        uint64_t ring;
    } shapes[] = {{4, 4}, {4, 8}, {8, 16}, {8, 24}, {1, 1}, {2, 6}, {64, 64}, {8, 0}, {8, MAX_CTX}, {8, MAX_CTX + 1}, {8, 20}};

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (uint64_t start = 0; start < 18; start += 1 + start / 9) {
            for (uint32_t rows = 1; rows <= KINDS_PREFILL; rows += 1 + rows / 5) {
                KvCache cache;

                open_kinds(_i == 0 ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT, shapes[i].pool, shapes[i].ring);
                kvg_kv_cache_open(kinds.store, 1, 1, &cache);
                kinds_grow(&kinds, &cache, start, keys);
                kinds_begin(&cache);
                kinds_pass(&kinds, &cache, rows, keys);
                kinds_finalize(&cache, rows);
                ck_assert_msg(kinds_is(&kinds, &cache, keys), "pool %u ring %" PRIu64 ": %u rows from %" PRIu64, shapes[i].pool, shapes[i].ring,
                              rows, start);
                ck_assert_uint_eq(kvg_store_latent_view(kinds.store, 2)->pools_ready[1], (start + rows) / shapes[i].pool);
                close_kinds(&cache);
            }
        }
    }
}
END_TEST

/* A key of a pool of 64 rows of 2 elements: their plain sums, so that any row that is not the right one shows. */
static void sum_key(void *user, uint32_t layer, uint64_t pool_index, const float *rows, float *key)
{
    (void)layer;
    *(uint64_t *)user += pool_index;
    key[0] = 0;
    for (int r = 0; r < 64; r++) key[0] += rows[2 * r] - 2 * rows[2 * r + 1];
}

static float million_value(uint64_t i)
{
    return (float)(kvg_mix64(i) % 1024);
}

START_TEST(test_a_million_rows_go_through_a_ring_of_5120)
{
    static const uint32_t pass_rows[] = {MILLION, 4096, 5121, 333};
    KvLayerGeometry       layer = kinds_latent(0, 1, KVG_INDEX_POOLED, 2, 64, KVG_F32);
    KvClassGeometry       class = {.row_cap = MILLION + 64, .unit_cap = MILLION / 64 + 1, .units = MILLION / 64 + 1, .units_max = MILLION / 64 + 1};
    KvDev                 dev;
    KvStoreOptions        options = {.dev = &dev, .layers = &layer, .layer_count = 1, .classes = &class, .class_count = 1, .slots = 1,
                                     .max_ctx = MILLION + 64, .n_layer = 1, .index_pool = 64, .index_ring_rows = 5120};
    KvStore              *store = NULL;
    KvCache               cache;
    float                *latent = calloc(MILLION, sizeof *latent), *index = malloc(2 * MILLION * sizeof *index);
    uint64_t              pools = 0;

    layer.latent.kv_rank = 1;
    for (uint64_t i = 0; i < 2 * MILLION; i++) index[i] = million_value(i);
    ck_assert_int_eq(kvg_dev_host(&dev), KVG_OK);
    ck_assert_msg(kvg_store_create(&options, &store) == KVG_OK, "%s", kvg_last_error());
    kvg_kv_cache_open(store, 0, 1, &cache);
    for (uint32_t rows, row = 0; row < MILLION; row += rows) { /* one transaction, passes of all these lengths; then the rest at once */
        rows = (uint32_t)kvg_min_u64(_i == 0 ? MILLION : row < 100000 ? pass_rows[1 + row / 7 % 3] : MILLION, MILLION - row);
        KvRowsIn in = {.data = latent + row, .type = KVG_F32, .token_stride = 1, .head_stride = 1};
        KvRowsIn index_in = {.data = index + 2 * row, .type = KVG_F32, .token_stride = 2, .head_stride = 2};
        if (row == 0) kinds_begin(&cache);
        ck_assert_msg(kvg_kv_cache_append(&cache, rows, NULL) == KVG_OK, "%s", kvg_last_error());
        ck_assert_int_eq(kvg_store_write_latent(store, 0, 0, row, rows, &in, &index_in, sum_key, &pools, NULL), KVG_OK);
    }
    ck_assert_uint_eq(kvg_kv_cache_finalize(&cache, MILLION), 0);
    ck_assert_uint_eq(pools, (uint64_t)(MILLION / 64) * (MILLION / 64 - 1) / 2); /* each pool once */
    for (uint64_t p = 0; p < MILLION / 64; p++) {
        float key = 0, stored;

        for (uint64_t r = 64 * p; r < 64 * p + 64; r++) key += index[2 * r] - 2 * index[2 * r + 1];
        ck_assert_int_eq(kvg_store_read(store, 0, KVG_PLANE_KEYS, 0, p, 1, &stored), KVG_OK);
        if (stored != key) ck_abort_msg("pool %" PRIu64 ": %f is stored, %f is right", p, (double)stored, (double)key);
    }
    for (uint64_t r = MILLION / 64 * 64; r < MILLION; r++) {
        float stored[2];
        ck_assert_int_eq(kvg_store_read(store, 0, KVG_PLANE_INDEX_ROWS, 0, r, 1, stored), KVG_OK);
        ck_assert(stored[0] == index[2 * r] && stored[1] == index[2 * r + 1]);
    }
    kvg_kv_cache_close(&cache, NULL);
    kvg_store_destroy(store);
    kvg_dev_close(&dev);
    free(latent);
    free(index);
}
END_TEST

/* ---- tails */

static uint64_t  moved;
static KvDevOps  counting_ops;
static KvgStatus (*real_move)(void *, void *, const void *, size_t, KvgStream);

static KvgStatus counting_move(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    moved += bytes;
    return real_move(self, target, source, bytes, stream);
}

static void count_moves(void)
{
    counting_ops = *kinds.dev.ops;
    real_move = counting_ops.move;
    counting_ops.move = counting_move;
    kinds.dev.ops = &counting_ops;
    moved = 0;
}

/* Pool 8, ring 16, at row 29: the tail is rows 24 to 28, 5 index rows of 16 bytes (layer 2) and 12 (layer 7, bf16). Row 40 goes over it. */
START_TEST(test_a_tail_is_saved_just_before_a_row_goes_over_it_and_once_a_step)
{
    for (uint32_t rows = 9; rows < 14; rows++) {
        KvCache cache;

        open_kinds(KVG_LAYOUT_POOL, 8, 16);
        kvg_kv_cache_open(kinds.store, 0, 1, &cache);
        kinds_grow(&kinds, &cache, 29, keys);
        count_moves();
        kinds_begin(&cache);
        kinds_pass(&kinds, &cache, rows, keys);
        ck_assert_uint_eq(moved, rows <= 11 ? 0 : 5 * 16 + 5 * 12);
        kinds_pass(&kinds, &cache, 20, keys);
        ck_assert_uint_eq(moved, 5 * 16 + 5 * 12);
        kvg_kv_cache_refuse(&cache);
        ck_assert_uint_eq(moved, 2 * (5 * 16 + 5 * 12)); /* and put back once */
        ck_assert(kinds_is(&kinds, &cache, keys));
        close_kinds(&cache);
    }
}
END_TEST

/* One rank's layer may not have been written when the step is refused: its ring was not touched, and nothing is put back. */
START_TEST(test_a_ring_that_was_not_written_is_not_put_back)
{
    KvCache cache;

    open_kinds(KVG_LAYOUT_POOL, 8, 16);
    kvg_kv_cache_open(kinds.store, 0, 1, &cache);
    kinds_grow(&kinds, &cache, 21, keys);
    kinds_begin(&cache);
    kinds_pass(&kinds, &cache, 40, keys);
    kvg_kv_cache_refuse(&cache); /* the tail of row 21 has been saved once */
    kinds_grow(&kinds, &cache, 29, keys);
    kinds_begin(&cache);
    ck_assert_int_eq(kvg_kv_cache_append(&cache, 40, NULL), KVG_OK); /* written by nobody */
    kvg_kv_cache_refuse(&cache);
    ck_assert(kinds_is(&kinds, &cache, keys));
    close_kinds(&cache);
}
END_TEST

START_TEST(test_a_shortened_length_clamps_the_pools_and_builds_them_again)
{
    for (uint64_t len = 0; len <= 40; len++) {
        KvCache  cache;
        uint64_t other[KEYS];
        KindsShape shape = {.layout = KVG_LAYOUT_POOL, .reserves = 1, .columns = 64, .pool = 8, .ring = 64, .max_ctx = MAX_CTX, .slots = 2,
                            .units = 24};

        for (uint64_t i = 0; i < KEYS; i++) keys[i] = i + 1;
        kinds_open(&kinds, &shape);
        kvg_kv_cache_open(kinds.store, 0, 1, &cache);
        kinds_begin(&cache);
        kinds_pass(&kinds, &cache, 40, keys);
        kinds_finalize(&cache, 40);
        ck_assert_msg(kvg_kv_cache_rewind_to(&cache, len, NULL) == KVG_OK, "%s", kvg_last_error());
        ck_assert_uint_eq(kvg_store_latent_view(kinds.store, 7)->pools_ready[0], len / 8);
        ck_assert(kinds_is(&kinds, &cache, keys));
        memcpy(other, keys, sizeof keys);
        for (uint64_t i = len; i < KEYS; i++) other[i] = 5000 + i;
        kinds_grow(&kinds, &cache, 61, other);
        ck_assert(kinds_is(&kinds, &cache, other));
        close_kinds(&cache);
    }
}
END_TEST

/* ---- refusals */

static KvgStatus try_layer(KvLayerGeometry layer, uint32_t pool, uint64_t ring, uint64_t window)
{
    KvClassGeometry class = {.window = window, .row_cap = 640, .unit_cap = 10, .units = 10, .units_max = 10};
    KvDev           dev;
    KvStore        *store = NULL;
    KvgStatus       status;
    KvStoreOptions  options = {.dev = &dev, .layers = &layer, .layer_count = 1, .classes = &class, .class_count = 1, .slots = 1,
                               .max_ctx = 640, .n_layer = 1, .index_pool = pool, .index_ring_rows = ring};

    ck_assert_int_eq(kvg_dev_host(&dev), KVG_OK);
    status = kvg_store_create(&options, &store);
    ck_assert((status == KVG_OK) == (store != NULL));
    kvg_store_destroy(store);
    ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), 0);
    kvg_dev_close(&dev);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
    return status;
}

START_TEST(test_what_makes_no_latent_layer_is_refused)
{
    KvLayerGeometry bad;

    ck_assert_int_eq(try_layer(kinds_latent(0, 6, KVG_INDEX_POOLED, 4, 8, KVG_F32), 8, 16, 0), KVG_OK);
    ck_assert_int_eq(try_layer(kinds_latent(0, 6, KVG_INDEX_POOLED, 4, 8, KVG_F32), 8, 8, 0), KVG_OK);
    ck_assert_int_eq(try_layer(kinds_latent(0, 6, KVG_INDEX_POOLED, 4, 8, KVG_F32), 8, 7, 0), KVG_EINVAL); /* a ring below one pool */
    ck_assert_int_eq(try_layer(kinds_latent(0, 6, KVG_INDEX_POOLED, 4, 8, KVG_F32), 8, 9, 0), KVG_OK);     /* rounded down */
    ck_assert_int_eq(try_layer(kinds_latent(0, 6, KVG_INDEX_POOLED, 4, 64, KVG_F32), 64, 0, 0), KVG_OK);
    ck_assert_int_eq(try_layer(kinds_latent(0, 6, KVG_INDEX_POOLED, 4, 63, KVG_F32), 63, 0, 0), KVG_EGEOM); /* does not divide 64 */
    ck_assert_int_eq(try_layer(kinds_latent(0, 6, KVG_INDEX_POOLED, 4, 128, KVG_F32), 128, 0, 0), KVG_EGEOM);
    ck_assert_int_eq(try_layer(kinds_latent(0, 6, KVG_INDEX_POOLED, 4, 8, KVG_F32), 16, 16, 0), KVG_EGEOM); /* another pool than the store's */
    ck_assert_int_eq(try_layer(kinds_latent(0, 6, KVG_INDEX_POOLED, 4, 0, KVG_F32), 0, 0, 0), KVG_EGEOM);
    ck_assert_int_eq(try_layer(kinds_latent(0, 6, KVG_INDEX_POOLED, 3, 8, KVG_F32), 8, 16, 0), KVG_EGEOM);
    ck_assert_int_eq(try_layer(kinds_latent(0, 6, KVG_INDEX_PER_TOKEN, 3, 8, KVG_F32), 8, 16, 0), KVG_EGEOM);
    ck_assert_int_eq(try_layer(kinds_latent(0, 6, KVG_INDEX_NONE, 3, 0, KVG_F32), 0, 0, 0), KVG_EINVAL);
    ck_assert_int_eq(try_layer(kinds_latent(0, 6, KVG_INDEX_PER_TOKEN, 0, 0, KVG_F32), 0, 0, 0), KVG_EINVAL);
    ck_assert_int_eq(try_layer(kinds_latent(0, 0, KVG_INDEX_NONE, 0, 0, KVG_F32), 0, 0, 0), KVG_EINVAL);
    ck_assert_int_eq(try_layer(kinds_latent(0, 3, KVG_INDEX_NONE, 0, 0, KVG_F32), 0, 0, 0), KVG_EINVAL); /* rank 4 of a row of 3 */
    ck_assert_int_eq(try_layer(kinds_latent(0, 6, KVG_INDEX_NONE, 0, 0, KVG_F16), 0, 0, 0), KVG_EINVAL);
    ck_assert_int_eq(try_layer(kinds_latent(0, 32, KVG_INDEX_NONE, 0, 0, KVG_Q8_0), 0, 0, 0), KVG_EINVAL);
    ck_assert_int_eq(try_layer(kinds_latent(0, 6, KVG_INDEX_NONE, 0, 0, KVG_BF16), 0, 0, 32), KVG_EINVAL); /* a class with a window */
    bad = kinds_latent(0, 6, KVG_INDEX_NONE, 0, 0, KVG_BF16);
    bad.class_index = 1;
    ck_assert_int_eq(try_layer(bad, 0, 0, 0), KVG_EINVAL);
}
END_TEST

START_TEST(test_a_write_that_makes_no_sense_is_refused_and_changes_nothing)
{
    float    data[8] = {0};
    KvRowsIn in = {.data = data, .type = KVG_F32, .token_stride = 4, .head_stride = 4}, blocks = in;
    KvCache  cache;

    blocks.type = KVG_Q8_0;
    open_kinds(KVG_LAYOUT_POOL, 8, 16);
    kvg_kv_cache_open(kinds.store, 0, 1, &cache);
    kinds_grow(&kinds, &cache, 20, keys);
    ck_assert_int_eq(kvg_store_write_latent(kinds.store, 0, 0, 3, 1, &in, &in, kinds_pool_key, NULL, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_store_write_latent(kinds.store, 99, 0, 3, 1, &in, &in, kinds_pool_key, NULL, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_store_write_latent(kinds.store, 2, 0, 3, 1, &in, NULL, kinds_pool_key, NULL, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_store_write_latent(kinds.store, 2, 0, 3, 1, &in, &in, NULL, NULL, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_store_write_latent(kinds.store, 6, 0, 3, 1, &in, &in, NULL, NULL, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_store_write_latent(kinds.store, 2, 0, 3, 1, &blocks, &in, kinds_pool_key, NULL, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_store_write_latent(kinds.store, 2, 0, 3, 1, &in, &blocks, kinds_pool_key, NULL, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_store_write_latent(kinds.store, 2, 0, 64, 1, &in, &in, kinds_pool_key, NULL, NULL), KVG_ECAPACITY);
    ck_assert_int_eq(kvg_store_read(kinds.store, 3, 3, 0, 0, 1, data), KVG_EINVAL);
    ck_assert_int_eq(kvg_store_read(kinds.store, 6, 4, 0, 0, 1, data), KVG_EINVAL);
    ck_assert_int_eq(kvg_store_read(kinds.store, 2, 0, 0, 0, 1, data), KVG_EINVAL);
    ck_assert_int_eq(kvg_store_read(kinds.store, 2, 4, 0, 8, 1, data), KVG_ECAPACITY); /* keys of 64 rows are booked */
    ck_assert_int_eq(kvg_store_read(kinds.store, 2, 4, 0, 7, 1, data), KVG_OK);
    ck_assert(kinds_is(&kinds, &cache, keys));
    close_kinds(&cache);
}
END_TEST

/* S3: content is rows, whole pools' keys, and the slot; all planes' units are booked. */
START_TEST(test_bytes_are_those_of_live_rows_and_whole_pools)
{
    KvCache cache;

    open_kinds(KVG_LAYOUT_POOL, 8, 16);
    kvg_kv_cache_open(kinds.store, 0, 1, &cache);
    uint64_t row = (8 + 4) * 2 + (34 + 24) + 6 * 4 + (5 + 3) * 2 + 4 * 2 + 7 * 2, pool = 2 * 4 + 3 * 2;
    uint64_t slot = 16 * (4 * 4 + 6 * 2) + 2 * 4 * ((20 * 3 + 20) + (6 * 2 + 18) + 8);
    for (uint64_t len = 0; len < 40; len += 3) {
        kinds_grow(&kinds, &cache, len, keys);
        ck_assert_uint_eq(kvg_kv_cache_content_bytes(&cache), len * row + len / 8 * pool + slot);
    }
    ck_assert_uint_eq(kvg_store_unit_bytes(kinds.store, 0) + kvg_store_unit_bytes(kinds.store, 1), 64 * row + 8 * pool);
    ck_assert_uint_eq(kvg_store_bytes(kinds.store).booked, 64 * row + 8 * pool + slot + 2 * 4); /* and a table entry a class */
    close_kinds(&cache);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("latent");
    TCase *tcase = tcase_create("latent");

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, test_an_append_of_any_length_from_any_row_gives_the_same_state, 0, 2);
    tcase_add_loop_test(tcase, test_a_million_rows_go_through_a_ring_of_5120, 0, 2);
    tcase_add_test(tcase, test_a_tail_is_saved_just_before_a_row_goes_over_it_and_once_a_step);
    tcase_add_test(tcase, test_a_ring_that_was_not_written_is_not_put_back);
    tcase_add_test(tcase, test_a_shortened_length_clamps_the_pools_and_builds_them_again);
    tcase_add_test(tcase, test_what_makes_no_latent_layer_is_refused);
    tcase_add_test(tcase, test_a_write_that_makes_no_sense_is_refused_and_changes_nothing);
    tcase_add_test(tcase, test_bytes_are_those_of_live_rows_and_whole_pools);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

/* Recurrent state: one token's update, a pass through the columns, and what slots take and hold. */
#include "tests/runtime/kinds_fixture.h"

enum { MAX_CTX = 512, KEYS = 600 };

static Kinds    kinds;
static uint64_t keys[KEYS];

static void open_kinds(uint32_t columns, uint32_t slots)
{
    KindsShape shape = {.layout = KVG_LAYOUT_POOL, .reserves = 1, .columns = columns, .pool = 8, .ring = 16, .max_ctx = MAX_CTX,
                        .slots = slots, .units = 32};

    for (uint64_t i = 0; i < KEYS; i++) keys[i] = i + 1;
    kinds_open(&kinds, &shape);
}

/* ---- the update */

START_TEST(test_taps_shift_by_one_and_the_newest_comes_last)
{
    float in[6] = {1, 2, 3, 4, 5, 6}, x[2] = {7, 8}, out[6];

    kvg_recurrent_token(in, NULL, x, NULL, 0, 2, 3, 0, out, NULL);
    ck_assert_mem_eq(out, ((float[]){2, 3, 7, 5, 6, 8}), sizeof out);
    kvg_recurrent_token(in, NULL, x, NULL, 0, 2, 3, 0, in, NULL); /* in place */
    ck_assert_mem_eq(in, out, sizeof out);
    kvg_recurrent_token(in, NULL, x, NULL, 0, 2, 1, 0, out, NULL); /* one tap is x itself */
    ck_assert_mem_eq(out, x, sizeof x);
    out[0] = 9;
    kvg_recurrent_token(in, NULL, x, NULL, 0, 2, 0, 0, out, NULL); /* none are none */
    ck_assert(out[0] == 9);
}
END_TEST

START_TEST(test_a_pass_in_pieces_is_the_pass)
{
    enum { COLUMNS = 4, CHANNELS = 3, TAPS = 2, ELEMENTS = 5, ROWS = 3, CONV = COLUMNS * CHANNELS * TAPS, STATE = COLUMNS * ELEMENTS };
    float x[ROWS * CHANNELS], u[ROWS * ELEMENTS];

    for (int i = 0; i < ROWS * CHANNELS; i++) x[i] = (float)(i + 100);
    for (int i = 0; i < ROWS * ELEMENTS; i++) u[i] = (float)i + 0.25f;
    for (uint32_t each = 0; each < 2; each++) {
        for (uint32_t first = 0; first <= ROWS; first++) { /* rows of the first piece */
            float conv[2][CONV], state[2][STATE];
            for (int i = 0; i < CONV; i++) conv[0][i] = conv[1][i] = (float)i;
            for (int i = 0; i < STATE; i++) state[0][i] = state[1][i] = (float)i * 0.5f;
            KvRecurrentPass pass = {.conv = conv[0], .state = state[0], .read = 1, .write = 2, .each = each, .columns = COLUMNS, .taps = TAPS,
                                    .channels = CHANNELS, .elements = ELEMENTS, .rows = ROWS, .decay = 0.5f, .x = x, .u = u};
            kvg_recurrent_pass(&pass);
            ck_assert(conv[0][1 * CHANNELS * TAPS] == (float)(CHANNELS * TAPS) && state[0][ELEMENTS] == ELEMENTS * 0.5f); /* read alone */
            const int end = each ? 0 : 2; /* columns 2, 3, 0; or the end in 2 */
            ck_assert(conv[0][end * CHANNELS * TAPS + TAPS - 1] == x[(ROWS - 1) * CHANNELS]);
            pass.conv = conv[1];
            pass.state = state[1];
            pass.rows = first;
            kvg_recurrent_pass(&pass);
            kvg_recurrent_pass_advance(&pass, first);
            pass.x += first * CHANNELS;
            pass.u += first * ELEMENTS;
            pass.rows = ROWS - first;
            kvg_recurrent_pass(&pass);
            ck_assert_mem_eq(conv[0], conv[1], sizeof conv[0]);
            ck_assert_mem_eq(state[0], state[1], sizeof state[0]);
        }
    }
}
END_TEST

/* With a fused multiply-add the low bits differ: (1 + 2^-12)^2 - 1 keeps its 2^-24 only if the product is not rounded. */
START_TEST(test_the_product_is_rounded_before_the_sum)
{
    float decay = 1.0f + 0x1p-12f, in = 1.0f + 0x1p-12f, u = -1.0f, out;

    kvg_recurrent_token(NULL, &in, NULL, &u, decay, 0, 0, 1, NULL, &out);
    ck_assert(out == 0x1p-11f);
    ck_assert(out != 0x1p-11f + 0x1p-24f);
    kvg_recurrent_token(NULL, &in, NULL, &u, decay, 0, 0, 1, NULL, &in); /* in place */
    ck_assert(in == out);
}
END_TEST

/* ---- passes */

static const float *state_at(const KvRecurrentView *view, uint32_t slot, uint32_t column)
{
    return view->state + slot * view->state_slot_stride + column * view->state_elements;
}

START_TEST(test_each_row_of_a_short_pass_has_a_column_and_the_current_one_stands)
{
    const KvRecurrentView *view;
    KvCache                cache, one_by_one;
    float                  before[2 * KINDS_WIDTH_MAX];

    open_kinds(4, 2);
    view = kvg_store_recurrent_view(kinds.store, 5);
    kvg_kv_cache_open(kinds.store, 0, 1, &cache);
    kvg_kv_cache_open(kinds.store, 1, 2, &one_by_one);
    kinds_grow(&kinds, &cache, 10, keys);
    kinds_grow(&kinds, &one_by_one, 10, keys);
    uint32_t current = (uint32_t)view->read[0];
    memcpy(before, state_at(view, 0, current), view->state_elements * sizeof(float));
    kinds_begin(&cache);
    kinds_pass(&kinds, &cache, 3, keys);
    ck_assert_int_eq(view->each[0], 1);
    ck_assert_int_eq(view->read[0], (int)current);
    ck_assert_int_eq(view->write[0], (int)(current + 1) % 4);
    ck_assert_mem_eq(before, state_at(view, 0, current), view->state_elements * sizeof(float));
    for (uint32_t i = 0; i < 3; i++) {
        kinds_grow(&kinds, &one_by_one, 11 + i, keys);
        ck_assert_mem_eq(state_at(view, 0, (current + 1 + i) % 4), state_at(view, 1, (uint32_t)view->read[1]),
                         view->state_elements * sizeof(float));
    }
    kvg_kv_cache_finalize(&cache, 2);
    ck_assert_int_eq(view->read[0], (int)(current + 2) % 4);
    kvg_kv_cache_close(&cache, NULL);
    kvg_kv_cache_close(&one_by_one, NULL);
    kinds_close(&kinds);
}
END_TEST

START_TEST(test_a_slot_is_zero_again_for_its_next_sequence)
{
    KvCache cache;

    open_kinds(3, 1);
    for (uint64_t life = 1; life < 6; life++) {
        kvg_kv_cache_open(kinds.store, 0, life, &cache);
        ck_assert(kinds_is(&kinds, &cache, keys));
        for (uint64_t len = 1; len <= 7 + life; len++) kinds_grow(&kinds, &cache, len, keys); /* through every column */
        ck_assert(kinds_is(&kinds, &cache, keys));
        kvg_kv_cache_close(&cache, NULL);
    }
    kinds_close(&kinds);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}
END_TEST

START_TEST(test_neighbouring_slots_keep_apart)
{
    KvCache  caches[5];
    uint64_t others[5][KEYS];

    open_kinds(3, 5);
    for (uint32_t i = 0; i < 5; i++) {
        for (uint64_t r = 0; r < KEYS; r++) others[i][r] = 1000 * (i + 1) + r;
        kvg_kv_cache_open(kinds.store, i, i + 1, &caches[i]);
    }
    for (uint64_t len = 1; len < 30; len += 3) {
        for (uint32_t i = 0; i < 5; i++) kinds_grow(&kinds, &caches[i], len + i, others[i]);
        for (uint32_t i = 0; i < 5; i++) ck_assert(kinds_is(&kinds, &caches[i], others[i]));
    }
    for (uint32_t i = 0; i < 5; i++) kvg_kv_cache_close(&caches[i], NULL);
    kinds_close(&kinds);
}
END_TEST

START_TEST(test_parts_lie_one_after_another)
{
    open_kinds(2, 1);
    const KvRecurrentView *view = kvg_store_recurrent_view(kinds.store, 4);

    ck_assert_uint_eq(view->taps, 3);
    ck_assert_uint_eq(view->conv_channels, 20);
    ck_assert_uint_eq(view->conv_elements, 60);
    ck_assert_uint_eq(view->state_elements, 20);
    ck_assert_uint_eq(view->parts[0].offset, 0);
    ck_assert_uint_eq(view->parts[1].offset, 18); /* 2 heads of 3 channels of 3 taps */
    ck_assert_uint_eq(view->parts[2].offset, 36);
    ck_assert_uint_eq(view->parts[3].offset, 0);  /* the state's first */
    ck_assert_uint_eq(view->parts[2].head_index, 4);
    ck_assert_uint_eq(view->parts[3].head_index, 0);
    ck_assert_ptr_null(kvg_store_recurrent_view(kinds.store, 0));
    ck_assert_ptr_null(kvg_store_recurrent_view(kinds.store, KINDS_LAYERS));
    ck_assert_ptr_null(kvg_store_view(kinds.store, 4));
    ck_assert_ptr_null(kvg_store_latent_view(kinds.store, 4));
    kinds_close(&kinds);
}
END_TEST

/* Conv parts K 2048, K 2048, V 2048 of heads of 128: rank 0 of 4 holds channels 0-511, 2048-2559 and 4096-4607, not 0-1535. */
START_TEST(test_conv_is_cut_by_parts_and_not_as_one_range)
{
    static const uint32_t first_channel[4] = {0, 512, 1024, 1536};

    for (uint32_t rank = 0; rank < 4; rank++) {
        KvLayerGeometry g = {.source = -1, .kind = KVG_STATE_RECURRENT, .recurrent = {.conv_kernel = 4, .part_count = 4}};
        KvClassGeometry class = {.row_cap = 64, .unit_cap = 1, .units = 1, .units_max = 1};
        KvDev           dev;
        KvStore        *store = NULL;
        HeadShard       shard;

        for (uint32_t p = 0; p < 4; p++) {
            ck_assert_int_eq(kvg_head_shard(16, 4, rank, &shard), KVG_OK);
            g.recurrent.parts[p] = (KvRecurrentPartView){.is_state = p == 3, .heads = shard.count, .head_first = shard.first,
                                                         .head_index = (p % 3) * 16 + shard.first, .width = 128, .replicas = 1};
        }
        KvStoreOptions options = {.dev = &dev, .layers = &g, .layer_count = 1, .classes = &class, .class_count = 1, .slots = 1, .max_ctx = 64,
                                  .n_layer = 1, .has_recurrent = 1};
        ck_assert_int_eq(kvg_dev_host(&dev), KVG_OK);
        ck_assert_msg(kvg_store_create(&options, &store) == KVG_OK, "%s", kvg_last_error());
        const KvRecurrentView *view = kvg_store_recurrent_view(store, 0);
        for (uint32_t p = 0; p < 3; p++) {
            ck_assert_uint_eq(view->parts[p].head_first * view->parts[p].width, first_channel[rank]);
            ck_assert_uint_eq(view->parts[p].heads * view->parts[p].width, 512);
            ck_assert_uint_eq(view->parts[p].offset, 512 * 3 * p);
        }
        kvg_store_destroy(store);
        kvg_dev_close(&dev);
    }
}
END_TEST

/* ---- bytes: 6 layers of (2304 + 65536) f32, each sequence the same again, whatever the context */

START_TEST(test_a_sequence_more_takes_its_columns_and_no_more)
{
    uint64_t taken[2][3];

    for (uint32_t columns = 2; columns < 4; columns++) {
        for (uint32_t slots = 1; slots < 4; slots++) {
            KvLayerGeometry layers[6];
            KvClassGeometry class = {.row_cap = 4096, .unit_cap = 64, .units = 1, .units_max = 1};
            KvDev           dev;
            KvStore        *store = NULL;

            for (uint32_t i = 0; i < 6; i++) {
                layers[i] = (KvLayerGeometry){.layer = i, .source = -1, .kind = KVG_STATE_RECURRENT,
                                              .recurrent = {.conv_kernel = 4, .part_count = 2,
                                                            .parts = {{.heads = 6, .width = 128, .replicas = 1},
                                                                      {.heads = 16, .width = 4096, .replicas = 1, .is_state = 1}}}};
            }
            KvStoreOptions options = {.dev = &dev, .layout = KVG_LAYOUT_FLAT, .layers = layers, .layer_count = 6, .classes = &class,
                                      .class_count = 1, .slots = slots, .max_ctx = 4096, .n_layer = 6, .has_recurrent = 1, .columns = columns};
            ck_assert_int_eq(kvg_dev_host(&dev), KVG_OK);
            ck_assert_msg(kvg_store_create(&options, &store) == KVG_OK, "%s", kvg_last_error());
            ck_assert_uint_eq(kvg_store_slot_bytes(store), columns * 1628160u);
            taken[columns - 2][slots - 1] = dev.ops->taken_bytes(dev.self);
            KvCache cache;
            kvg_kv_cache_open(store, slots - 1, 1, &cache);
            ck_assert_uint_eq(kvg_kv_cache_content_bytes(&cache), columns * 1628160u);
            ck_assert_uint_eq(kvg_store_bytes(store).booked, columns * 1628160u);
            kvg_kv_cache_close(&cache, NULL);
            ck_assert_uint_eq(kvg_store_bytes(store).booked, 0);
            kvg_store_destroy(store);
            ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), 0);
            kvg_dev_close(&dev);
        }
    }
    for (int c = 0; c < 2; c++) {
        uint64_t first = taken[c][1] - taken[c][0], second = taken[c][2] - taken[c][1], slot = (uint64_t)(c + 2) * 1628160u;
        ck_assert_uint_le(first > slot ? first - slot : slot - first, 6 * 4096); /* whole pages a layer */
        ck_assert_uint_le(second > slot ? second - slot : slot - second, 6 * 4096);
    }
}
END_TEST

/* ---- refusals */

static KvgStatus try_create(const KvLayerGeometry *layer, int has_recurrent, uint32_t columns)
{
    KvClassGeometry class = {.row_cap = 64, .unit_cap = 1, .units = 1, .units_max = 1};
    KvDev           dev;
    KvStore        *store = NULL;
    KvgStatus       status;
    KvStoreOptions  options = {.dev = &dev, .layers = layer, .layer_count = 1, .classes = &class, .class_count = 1, .slots = 1, .max_ctx = 64,
                               .n_layer = 1, .has_recurrent = has_recurrent, .columns = columns};

    ck_assert_int_eq(kvg_dev_host(&dev), KVG_OK);
    status = kvg_store_create(&options, &store);
    ck_assert((status == KVG_OK) == (store != NULL));
    kvg_store_destroy(store);
    ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), 0);
    kvg_dev_close(&dev);
    return status;
}

START_TEST(test_what_makes_no_recurrent_layer_is_refused)
{
    KvLayerGeometry good = {.source = -1, .kind = KVG_STATE_RECURRENT,
                            .recurrent = {.conv_kernel = 2, .part_count = 1, .parts = {{.heads = 2, .width = 3, .replicas = 1}}}};
    KvLayerGeometry bad = good;

    ck_assert_int_eq(try_create(&good, 1, 0), KVG_OK);
    ck_assert_int_eq(try_create(&good, 1, 2), KVG_OK);
    ck_assert_int_eq(try_create(&good, 1, 1), KVG_EINVAL);
    ck_assert_int_eq(try_create(&good, 0, 2), KVG_EINVAL);
    bad.recurrent.part_count = 0;
    ck_assert_int_eq(try_create(&bad, 1, 2), KVG_EINVAL);
    bad.recurrent.part_count = KVG_RECURRENT_PARTS_MAX + 1;
    ck_assert_int_eq(try_create(&bad, 1, 2), KVG_EINVAL);
    bad = good;
    bad.recurrent.parts[0].heads = 0;
    ck_assert_int_eq(try_create(&bad, 1, 2), KVG_EINVAL);
    bad = good;
    bad.recurrent.parts[0].width = 0;
    ck_assert_int_eq(try_create(&bad, 1, 2), KVG_EINVAL);
    bad.recurrent.parts[0] = (KvRecurrentPartView){.heads = 1u << 16, .width = 1u << 15, .replicas = 1};
    ck_assert_int_eq(try_create(&bad, 1, UINT32_MAX), KVG_EOVERFLOW);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}
END_TEST

START_TEST(test_creation_unwinds_from_every_acquisition)
{
    KindsShape shape = {.layout = _i == 0 ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT, .reserves = 1, .columns = 3, .pool = 8, .ring = 16,
                        .max_ctx = MAX_CTX, .slots = 3, .units = 20};

    kinds_describe(&kinds, &shape);
    ck_assert_int_eq(kvg_dev_host(&kinds.dev), KVG_OK);
    for (uint64_t nth = 0;; nth++) {
        KvStore  *store = NULL;
        KvgStatus status;

        kvg_fault_arm(nth);
        status = kvg_store_create(&kinds.options, &store);
        if (kvg_fault_disarm() == 0) {
            ck_assert_int_eq(status, KVG_OK);
            kvg_store_destroy(store);
            ck_assert_uint_gt(nth, 20);
            break;
        }
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert_ptr_null(store);
        ck_assert_uint_eq(kinds.dev.ops->taken_bytes(kinds.dev.self), 0);
    }
    kvg_dev_close(&kinds.dev);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}
END_TEST

START_TEST(test_a_snapshot_unwinds_from_every_acquisition)
{
    KvCache cache;

    open_kinds(2, 1);
    kvg_kv_cache_open(kinds.store, 0, 1, &cache);
    kinds_grow(&kinds, &cache, 13, keys);
    for (uint64_t nth = 0;; nth++) {
        uint64_t         taken = kinds.dev.ops->taken_bytes(kinds.dev.self), live = kvg_live_allocations();
        KvCacheSnapshot *snapshot = NULL;

        kvg_fault_arm(nth);
        KvgStatus status = kvg_kv_cache_snapshot_new(&cache, &snapshot);
        int       hit = kvg_fault_disarm();
        ck_assert_int_eq(status, hit ? KVG_ENOMEM : KVG_OK);
        kvg_kv_cache_snapshot_free(snapshot);
        ck_assert_uint_eq(kinds.dev.ops->taken_bytes(kinds.dev.self), taken);
        ck_assert_uint_eq(kvg_live_allocations(), live);
        if (!hit) break;
        ck_assert_ptr_null(snapshot);
    }
    kvg_kv_cache_close(&cache, NULL);
    kinds_close(&kinds);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("recurrent");
    TCase *tcase = tcase_create("recurrent");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_a_pass_in_pieces_is_the_pass);
    tcase_add_test(tcase, test_taps_shift_by_one_and_the_newest_comes_last);
    tcase_add_test(tcase, test_the_product_is_rounded_before_the_sum);
    tcase_add_test(tcase, test_each_row_of_a_short_pass_has_a_column_and_the_current_one_stands);
    tcase_add_test(tcase, test_a_slot_is_zero_again_for_its_next_sequence);
    tcase_add_test(tcase, test_neighbouring_slots_keep_apart);
    tcase_add_test(tcase, test_parts_lie_one_after_another);
    tcase_add_test(tcase, test_conv_is_cut_by_parts_and_not_as_one_range);
    tcase_add_test(tcase, test_a_sequence_more_takes_its_columns_and_no_more);
    tcase_add_test(tcase, test_what_makes_no_recurrent_layer_is_refused);
    tcase_add_loop_test(tcase, test_creation_unwinds_from_every_acquisition, 0, 2);
    tcase_add_test(tcase, test_a_snapshot_unwinds_from_every_acquisition);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

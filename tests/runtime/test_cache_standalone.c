/* The stand-alone cache: a real model's layers on one stage or several, flat planes, steps and rows as in a placement. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/sizing.h>

#include "runtime/base/memory.h"
#include "runtime/state/cache.h"

static KvDev       dev;
static ModelConfig config;
static uint64_t    allocations;

static void load(const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s/models/%s.json", KVG_TEST_DATA, name);
    ck_assert_msg(kvg_model_config_load(path, &config) == KVG_OK, "%s", kvg_last_error());
    allocations = kvg_live_allocations();
}

static void setup(void)
{
    ck_assert_int_eq(kvg_dev_host(&dev), KVG_OK);
}

static void teardown(void)
{
    ck_assert_uint_eq(kvg_live_allocations(), allocations);
    kvg_model_config_free(&config);
    ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), 0);
    kvg_dev_close(&dev);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}

/* Rows whose value is the layer's and the row's number. */
static void write_row(KvCache *cache, uint64_t row)
{
    float data[64 * 256];

    for (uint32_t layer = 0; layer < kvg_store_layer_count(cache->store); layer++) {
        const KvPlaneView *view = kvg_store_view(cache->store, layer);
        if (view == NULL || !view->owns) continue;
        for (uint32_t i = 0; i < view->heads * view->k.head_dim; i++) data[i] = (float)(layer * 1000 + row);
        KvRowsIn in = {.data = data, .type = KVG_F32, .token_stride = (int64_t)view->heads * view->k.head_dim,
                       .head_stride = view->k.head_dim};
        ck_assert_msg(kvg_store_write(cache->store, layer, 0, row, 1, &in, &in, NULL) == KVG_OK, "%s", kvg_last_error());
    }
}

static void append(KvCache *cache, uint32_t rows)
{
    ck_assert_int_eq(kvg_kv_cache_begin(cache), KVG_OK);
    ck_assert_msg(kvg_kv_cache_append(cache, rows, NULL) == KVG_OK, "%s", kvg_last_error());
    for (uint64_t r = cache->pos; r < kvg_kv_cache_staged(cache); r++) write_row(cache, r);
    kvg_kv_cache_finalize(cache, rows);
    kvg_kv_cache_release_behind(cache);
}

static float value_at(KvCache *cache, uint32_t layer, uint64_t row)
{
    float data[64 * 256];

    ck_assert_msg(kvg_store_read(cache->store, layer, 0, 0, row, 1, data) == KVG_OK, "%s", kvg_last_error());
    return data[0];
}

START_TEST(test_a_whole_model_takes_rows_up_to_its_context)
{
    KvCache *cache = NULL;

    load("llama-3.1-8b");
    ck_assert_msg(kvg_kv_cache_new(&dev, &config, 200, &cache) == KVG_OK, "%s", kvg_last_error());
    ck_assert_uint_eq(kvg_store_row_bytes(cache->store, 0), 32 * (8 * 4 * 34 + 8 * 4 * 24)); /* q8_0 and q5_1 */
    append(cache, 150);
    append(cache, 50);
    ck_assert_uint_eq(cache->pos, 200);
    ck_assert_float_eq_tol(value_at(cache, 31, 199), 31199.0f, 200.0f);
    ck_assert_float_eq_tol(value_at(cache, 0, 100), 100.0f, 1.0f);
    ck_assert_int_eq(kvg_kv_cache_begin(cache), KVG_OK);
    ck_assert_int_eq(kvg_kv_cache_append(cache, 1, NULL), KVG_ECAPACITY);
    ck_assert_int_eq(kvg_kv_cache_rewind_to(cache, 64, NULL), KVG_OK);
    append(cache, 3);
    ck_assert_uint_eq(kvg_kv_cache_content_bytes(cache), 67 * kvg_store_row_bytes(cache->store, 0));
    kvg_kv_cache_free(cache);
    kvg_kv_cache_free(NULL);
}
END_TEST

START_TEST(test_a_plan_of_the_callers_decides_the_layers)
{
    KvCache  *cache = NULL;
    ModelPlan plan;

    load("tinyllama-1.1b");
    plan = config.plan;
    plan.n_layer = 5;
    plan.n_mtp = 0;
    ck_assert_msg(kvg_kv_cache_new_planned(&dev, &config, &plan, 64, &cache) == KVG_OK, "%s", kvg_last_error());
    ck_assert_uint_eq(kvg_store_row_bytes(cache->store, 0), 5 * (4 * 2 * 34 + 4 * 2 * 24));
    ck_assert_ptr_nonnull(kvg_store_view(cache->store, 4));
    append(cache, 3);
    ck_assert_uint_eq(cache->pos, 3);
    kvg_kv_cache_free(cache);
}
END_TEST

START_TEST(test_stages_split_at_the_fence_and_each_layer_lives_on_one)
{
    static const uint32_t fence[] = {0, 1, 20, 32};
    KvCache              *stages[3] = {NULL, NULL, NULL};

    load("llama-3.1-8b");
    ck_assert_msg(kvg_kv_cache_new_ppn(&dev, &config, 128, fence, 3, stages) == KVG_OK, "%s", kvg_last_error());
    for (uint32_t layer = 0; layer < 32; layer++) {
        for (uint32_t s = 0; s < 3; s++) {
            int here = layer >= fence[s] && layer < fence[s + 1];
            ck_assert_int_eq(kvg_store_view(stages[s]->store, layer) != NULL, here);
        }
    }
    for (int s = 0; s < 3; s++) append(stages[s], 70);
    ck_assert_float_eq_tol(value_at(stages[1], 19, 69), 19069.0f, 100.0f);
    for (int s = 0; s < 3; s++) kvg_kv_cache_free(stages[s]);
}
END_TEST

START_TEST(test_two_stages_hold_what_one_holds)
{
    KvCache *whole = NULL, *halves[2] = {NULL, NULL};
    KvLeaf   leaves[2 * 22 * 4], split[2 * 22 * 4];
    KvDigest one, two;

    load("tinyllama-1.1b");
    ck_assert_msg(kvg_kv_cache_new(&dev, &config, 128, &whole) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_kv_cache_new_pp2(&dev, &config, 128, 2, halves), KVG_OK);
    append(whole, 100);
    append(halves[0], 100);
    append(halves[1], 60);
    append(halves[1], 40);
    size_t count = kvg_kv_cache_leaf_count(whole), first = kvg_kv_cache_leaf_count(halves[0]);
    ck_assert_uint_eq(count, sizeof leaves / sizeof leaves[0]);
    ck_assert_uint_eq(first, 2 * 2 * 4);
    ck_assert_uint_eq(first + kvg_kv_cache_leaf_count(halves[1]), count);
    ck_assert_int_eq(kvg_kv_cache_leaves(whole, leaves), KVG_OK);
    ck_assert_int_eq(kvg_kv_cache_leaves(halves[0], split), KVG_OK);
    ck_assert_int_eq(kvg_kv_cache_leaves(halves[1], split + first), KVG_OK);
    ck_assert_int_eq(kvg_digest_combine(leaves, count, 100, &one), KVG_OK);
    ck_assert_int_eq(kvg_digest_combine(split, count, 100, &two), KVG_OK);
    ck_assert_mem_eq(one.bytes, two.bytes, 16);
    kvg_kv_cache_free(whole);
    kvg_kv_cache_free(halves[0]);
    kvg_kv_cache_free(halves[1]);
}
END_TEST

START_TEST(test_heads_that_would_cut_a_block_are_refused)
{
    KvCache *cache = NULL;

    load("stories260k"); /* heads of 8 elements, blocks of 32 */
    ck_assert_int_eq(kvg_kv_cache_new(&dev, &config, 128, &cache), KVG_EGEOM);
    ck_assert_ptr_null(cache);
}
END_TEST

START_TEST(test_windows_make_classes_and_gemma_holds_fp8)
{
    KvCache *cache = NULL;

    load("gemma-3-27b");
    ck_assert_msg(kvg_kv_cache_new(&dev, &config, 300, &cache) == KVG_OK, "%s", kvg_last_error());
    ck_assert_uint_eq(kvg_store_class_count(cache->store), 2);
    ck_assert_uint_eq(kvg_store_row_bytes(cache->store, 0) + kvg_store_row_bytes(cache->store, 1), 253952);
    append(cache, 20);
    kvg_kv_cache_free(cache);
}
END_TEST

static const char *const kinds[] = {"qwen3-next-80b-a3b", "qwen3.5-35b-a3b", "kimi-linear-48b-a3b", "glm-5.3-flash", "deepseek-v3.2", "kimi-k2",
                                    "jamba-v0.1", "nemotron-3-nano-30b-a3b", "glm-5.2"};

static uint64_t flat_plane_bytes(void) /* S3's 20 and 12 a layer: the flat formula's, reported and not held */
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < config.plan.n_layer + config.plan.n_mtp; i++) {
        KvStateKind kind = config.plan.layers[i].kind;
        bytes += kind == KVG_STATE_LATENT ? 12 : kind == KVG_STATE_KV || kind == KVG_STATE_SLIDING_KV ? 20 : 0;
    }
    return bytes;
}

START_TEST(test_state_of_every_kind_is_held_in_the_bytes_that_sizing_says)
{
    KvCache *cache = NULL;
    KvSizing sizing;
    uint64_t fixed = 0, token = 0, row = 0;
    uint32_t layers;

    load(kinds[_i]);
    layers = config.plan.n_layer + config.plan.n_mtp;
    ck_assert_int_eq(kvg_sizing_default(&sizing), KVG_OK);
    ck_assert_int_eq(kvg_plan_fixed_bytes(&sizing, &config.plan, 0, layers, 8192, 2, &fixed), KVG_OK);
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, 0, layers, &token), KVG_OK);
    ck_assert_msg(kvg_kv_cache_new(&dev, &config, 8192, &cache) == KVG_OK, "%s", kvg_last_error());
    for (uint32_t c = 0; c < kvg_store_class_count(cache->store); c++) row += kvg_store_row_bytes(cache->store, c);
    if (kvg_store_index_pool(cache->store) != 0) row += kvg_store_pool_key_bytes(cache->store) / kvg_store_index_pool(cache->store);
    ck_assert_uint_eq(row, token);
    ck_assert_uint_eq(kvg_store_slot_bytes(cache->store), fixed - flat_plane_bytes());
    ck_assert_uint_eq(kvg_store_bytes(cache->store).booked, kvg_store_slot_bytes(cache->store));
    ck_assert_uint_ge(kvg_store_bytes(cache->store).taken, kvg_store_bytes(cache->store).booked);
    kvg_kv_cache_free(cache);
}
END_TEST

START_TEST(test_fences_that_make_no_sense_are_refused)
{
    static const uint32_t fences[][4] = {{1, 2, 32, 0}, {0, 2, 31, 0}, {0, 0, 32, 0}, {0, 32, 32, 0}, {0, 33, 32, 0}};
    KvCache              *stages[2] = {NULL, NULL};

    load("llama-3.1-8b");
    for (size_t i = 0; i < sizeof fences / sizeof fences[0]; i++) {
        ck_assert_int_eq(kvg_kv_cache_new_ppn(&dev, &config, 128, fences[i], 2, stages), KVG_EINVAL);
        ck_assert(stages[0] == NULL && stages[1] == NULL);
    }
    ck_assert_int_eq(kvg_kv_cache_new_pp2(&dev, &config, 0, 16, stages), KVG_EINVAL);
}
END_TEST

START_TEST(test_every_allocation_of_stages_can_fail_and_unwinds)
{
    KvCache *stages[2] = {NULL, NULL};

    load("tinyllama-1.1b");
    for (uint64_t nth = 0;; nth++) {
        kvg_fault_arm(nth);
        KvgStatus status = kvg_kv_cache_new_pp2(&dev, &config, 128, 11, stages);
        if (!kvg_fault_disarm()) {
            ck_assert_int_eq(status, KVG_OK);
            ck_assert_uint_gt(nth, 22 * 4);
            break;
        }
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert(stages[0] == NULL && stages[1] == NULL);
        ck_assert_uint_eq(kvg_live_allocations(), allocations);
        ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), 0);
    }
    kvg_kv_cache_free(stages[0]);
    kvg_kv_cache_free(stages[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_standalone");
    TCase *all = tcase_create("standalone");

    tcase_set_timeout(all, 60);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, test_a_whole_model_takes_rows_up_to_its_context);
    tcase_add_test(all, test_a_plan_of_the_callers_decides_the_layers);
    tcase_add_test(all, test_stages_split_at_the_fence_and_each_layer_lives_on_one);
    tcase_add_test(all, test_two_stages_hold_what_one_holds);
    tcase_add_test(all, test_heads_that_would_cut_a_block_are_refused);
    tcase_add_test(all, test_windows_make_classes_and_gemma_holds_fp8);
    tcase_add_loop_test(all, test_state_of_every_kind_is_held_in_the_bytes_that_sizing_says, 0, 9);
    tcase_add_test(all, test_fences_that_make_no_sense_are_refused);
    tcase_add_test(all, test_every_allocation_of_stages_can_fail_and_unwinds);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

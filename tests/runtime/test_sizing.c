/* Sizing: S3's formulas on plans made here, layer kind by layer kind. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/sizing.h>

enum { FULL, WINDOWED, SHARED, NONE, LATENT, PER_TOKEN, POOLED, RECURRENT, MTP, LAYERS };

static StatePlan layers[LAYERS];
static ModelPlan plan = {.n_layer = LAYERS - 1, .n_mtp = 1, .layers = layers};
static KvSizing  sizing;

static void setup(void)
{
    KvCachePlan kv = {.kv_heads = 8, .head_dim_k = 128, .head_dim_v = 128, .query_heads = 32};

    memset(layers, 0, sizeof layers);
    layers[FULL] = (StatePlan){.kind = KVG_STATE_KV, .u.kv = kv};
    layers[MTP] = layers[FULL];
    kv.window = 1024;
    layers[WINDOWED] = (StatePlan){.kind = KVG_STATE_SLIDING_KV, .u.kv = kv};
    layers[SHARED] = (StatePlan){.kind = KVG_STATE_SHARED, .u.shared_source = FULL};
    layers[LATENT] = (StatePlan){.kind = KVG_STATE_LATENT, .u.latent = {.width = 576, .kv_rank = 512}};
    layers[PER_TOKEN] = layers[LATENT];
    layers[PER_TOKEN].u.latent.index_kind = KVG_INDEX_PER_TOKEN;
    layers[PER_TOKEN].u.latent.index_width = 128;
    layers[POOLED] = layers[LATENT];
    layers[POOLED].u.latent.index_kind = KVG_INDEX_POOLED;
    layers[POOLED].u.latent.index_width = 256;
    layers[POOLED].u.latent.index_pool = 4;
    layers[RECURRENT] = (StatePlan){.kind = KVG_STATE_RECURRENT,
                                    .u.recurrent = {.conv_width = 100, .conv_kernel = 4, .state_width = 1000}};
    memset(&sizing, 0, sizeof sizing);
    kvg_policy_default(&sizing.policy);
}

static uint64_t token_bytes(int layer)
{
    uint64_t bytes = 0;

    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &plan, (uint32_t)layer, (uint32_t)layer + 1, &bytes), KVG_OK);
    return bytes;
}

static uint64_t fixed_bytes(int layer, uint64_t max_ctx, uint32_t columns)
{
    uint64_t bytes = 0;

    ck_assert_int_eq(kvg_plan_fixed_bytes(&sizing, &plan, (uint32_t)layer, (uint32_t)layer + 1, max_ctx, columns, &bytes), KVG_OK);
    return bytes;
}

START_TEST(test_rows_of_each_kind)
{
    ck_assert_uint_eq(token_bytes(FULL), 32 * 34 + 32 * 24);
    ck_assert_uint_eq(token_bytes(WINDOWED), 1856);
    ck_assert_uint_eq(token_bytes(SHARED), 0);
    ck_assert_uint_eq(token_bytes(NONE), 0);
    ck_assert_uint_eq(token_bytes(RECURRENT), 0);
    ck_assert_uint_eq(token_bytes(LATENT), 2304);
    ck_assert_uint_eq(token_bytes(PER_TOKEN), 2304 + 512);
    ck_assert_uint_eq(token_bytes(POOLED), 2304 + 128);
}
END_TEST

START_TEST(test_each_format_sizes_its_half)
{
    static const struct {
        KvFormat k, v;
        uint64_t bytes;
    } rows[] = {{KVG_BF16, KVG_BF16, 4096}, {KVG_F16, KVG_POLICY, 2048 + 768}, {KVG_POLICY, KVG_F16, 1088 + 2048},
                {KVG_Q4_0, KVG_Q4_0, 1152}, {KVG_FP8, KVG_FP8, 2048},          {KVG_Q8_0, KVG_Q8_0, 2176}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sizing.format_k = rows[i].k;
        sizing.format_v = rows[i].v;
        ck_assert_uint_eq(token_bytes(FULL), rows[i].bytes);
    }
}
END_TEST

START_TEST(test_k_and_v_may_differ_in_width)
{
    layers[FULL].u.kv = (KvCachePlan){.kv_heads = 4, .head_dim_k = 192, .head_dim_v = 128, .query_heads = 64};
    sizing.format_k = sizing.format_v = KVG_BF16;
    ck_assert_uint_eq(token_bytes(FULL), 2560);
}
END_TEST

START_TEST(test_a_flat_indexer_grows_with_the_tokens_and_a_ring_does_not)
{
    sizing.policy.dsa_index_ring = 0;
    ck_assert_uint_eq(token_bytes(POOLED), 2304 + 128 + 1024);
    ck_assert_uint_eq(fixed_bytes(POOLED, 100000, 0), 12);
    sizing.policy.dsa_index_ring = 640;
    ck_assert_uint_eq(token_bytes(POOLED), 2304 + 128);
    ck_assert_uint_eq(fixed_bytes(POOLED, 100000, 0), 12 + 640 * 1024);
    sizing.policy.dsa_index_ring = -1;
    ck_assert_uint_eq(fixed_bytes(POOLED, 100000, 0), 12 + 5120 * 1024);
    ck_assert_uint_eq(fixed_bytes(POOLED, 5119, 0), 12 + 5119 * 1024);
    ck_assert_uint_eq(fixed_bytes(POOLED, 0, 0), 12);
    sizing.policy.dsa_index_ring = 0;
    ck_assert_uint_eq(token_bytes(PER_TOKEN), 2304 + 512); /* keys for good: no ring of theirs */
}
END_TEST

START_TEST(test_key_bytes_a_token_divide_and_an_unknown_pool_counts_as_1)
{
    uint64_t bytes = 0;

    layers[POOLED].u.latent.index_pool = 0;
    ck_assert_uint_eq(token_bytes(POOLED), 2304 + 512);
    layers[POOLED].u.latent.index_pool = 3;
    ck_assert_uint_eq(token_bytes(POOLED), 2304 + 170); /* 512/3 */
    ck_assert_int_eq(kvg_plan_pool_key_bytes(&sizing, &plan, 0, LAYERS, 11, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 3 * 512);
    ck_assert_int_eq(kvg_plan_pool_key_bytes(&sizing, &plan, 0, LAYERS, 2, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 0);
    ck_assert_int_eq(kvg_plan_pool_key_bytes(&sizing, &plan, LATENT, PER_TOKEN + 1, 100, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 0); /* no pooled indexer there */
}
END_TEST

START_TEST(test_latent_rows_are_f32_or_bf16)
{
    uint64_t bytes = 0;

    sizing.format_latent = KVG_F32;
    ck_assert_uint_eq(token_bytes(PER_TOKEN), 2816);
    sizing.format_latent = KVG_BF16;
    ck_assert_uint_eq(token_bytes(PER_TOKEN), 1408);
    ck_assert_uint_eq(token_bytes(POOLED), 1152 + 64);
    ck_assert_uint_eq(fixed_bytes(POOLED, 100000, 0), 12 + 5120 * 512);
    sizing.format_latent = KVG_Q8_0;
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &plan, LATENT, LATENT + 1, &bytes), KVG_EINVAL);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "f32 or bf16"));
}
END_TEST

START_TEST(test_the_latent_part_is_the_latent_layers)
{
    uint64_t bytes = 0;

    ck_assert_int_eq(kvg_plan_latent_bytes_per_token(&sizing, &plan, 0, LAYERS, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 3 * 2304 + 512 + 128);
}
END_TEST

START_TEST(test_fixed_bytes_of_each_kind)
{
    ck_assert_uint_eq(fixed_bytes(FULL, 4096, 0), 20);
    ck_assert_uint_eq(fixed_bytes(WINDOWED, 4096, 0), 20);
    ck_assert_uint_eq(fixed_bytes(LATENT, 4096, 0), 12);
    ck_assert_uint_eq(fixed_bytes(PER_TOKEN, 4096, 0), 12);
    ck_assert_uint_eq(fixed_bytes(SHARED, 4096, 0), 0);
    ck_assert_uint_eq(fixed_bytes(NONE, 4096, 0), 0);
    ck_assert_uint_eq(fixed_bytes(RECURRENT, 4096, 0), 2 * (100 * 3 + 1000) * 4);
    ck_assert_uint_eq(fixed_bytes(RECURRENT, 4096, 5), 5 * (100 * 3 + 1000) * 4);
}
END_TEST

START_TEST(test_the_ring_part_counts_windowed_layers_while_the_ring_is_on)
{
    uint64_t bytes = 1, rows = 1;

    ck_assert_int_eq(kvg_plan_ring_bytes_per_token(&sizing, &plan, 0, LAYERS, &bytes), KVG_OK);
    ck_assert_int_eq(kvg_plan_ring_row_cap(&sizing, &plan, &rows), KVG_OK);
    ck_assert_uint_eq(bytes, 0);
    ck_assert_uint_eq(rows, 0);
    sizing.policy.swa_ring_default = 1;
    ck_assert_int_eq(kvg_plan_ring_bytes_per_token(&sizing, &plan, 0, LAYERS, &bytes), KVG_OK);
    ck_assert_int_eq(kvg_plan_ring_row_cap(&sizing, &plan, &rows), KVG_OK);
    ck_assert_uint_eq(bytes, 1856);
    ck_assert_uint_eq(rows, 1024 + 4096 + 512 + 31);
    layers[MTP].kind = KVG_STATE_SLIDING_KV; /* MTP blocks count for the cap */
    layers[MTP].u.kv.window = UINT64_MAX;
    ck_assert_int_eq(kvg_plan_ring_row_cap(&sizing, &plan, &rows), KVG_OK);
    ck_assert_uint_eq(rows, UINT64_MAX);
    sizing.policy.swa_ring = 0;
    ck_assert_int_eq(kvg_plan_ring_row_cap(&sizing, &plan, &rows), KVG_OK);
    ck_assert_uint_eq(rows, 0);
}
END_TEST

START_TEST(test_ranges_run_to_the_last_mtp_block_and_no_further)
{
    static const struct {
        uint32_t  lo, hi;
        KvgStatus status;
        uint64_t  bytes;
    } rows[] = {{0, 0, KVG_OK, 0}, {LAYERS, LAYERS, KVG_OK, 0}, {MTP, LAYERS, KVG_OK, 1856}, {0, 2, KVG_OK, 3712},
                {1, 0, KVG_EINVAL, 7}, {0, LAYERS + 1, KVG_EINVAL, 7}, {LAYERS + 1, LAYERS + 1, KVG_EINVAL, 7},
                {UINT32_MAX, UINT32_MAX, KVG_EINVAL, 7}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t bytes = 7;
        ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &plan, rows[i].lo, rows[i].hi, &bytes), rows[i].status);
        ck_assert_uint_eq(bytes, rows[i].bytes);
    }
}
END_TEST

START_TEST(test_a_head_that_cuts_a_block_is_refused)
{
    uint64_t bytes = 7;

    layers[WINDOWED].u.kv.head_dim_v = 80; /* 8 heads of 80 make whole blocks only together */
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &plan, 0, LAYERS, &bytes), KVG_EGEOM);
    ck_assert_uint_eq(bytes, 7);
    sizing.format_v = KVG_FP8;
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &plan, 0, LAYERS, &bytes), KVG_OK);
}
END_TEST

START_TEST(test_sizes_that_do_not_fit_are_refused)
{
    uint64_t bytes = 7;

    layers[RECURRENT].u.recurrent.state_width = UINT64_MAX / 4;
    ck_assert_int_eq(kvg_plan_fixed_bytes(&sizing, &plan, 0, LAYERS, 1, 0, &bytes), KVG_EOVERFLOW);
    layers[RECURRENT].u.recurrent.state_width = UINT64_MAX - 1;
    ck_assert_int_eq(kvg_plan_fixed_bytes(&sizing, &plan, 0, LAYERS, 1, 0, &bytes), KVG_EOVERFLOW);
    layers[RECURRENT].u.recurrent.state_width = 1;
    sizing.policy.dsa_index_ring = INT64_MAX;
    ck_assert_int_eq(kvg_plan_fixed_bytes(&sizing, &plan, 0, LAYERS, UINT64_MAX, 0, &bytes), KVG_EOVERFLOW);
    ck_assert_int_eq(kvg_plan_pool_key_bytes(&sizing, &plan, 0, LAYERS, UINT64_MAX, &bytes), KVG_EOVERFLOW);
    layers[RECURRENT].u.recurrent = (RecurrentPlan){.conv_kernel = 1, .state_width = UINT64_MAX / 8 - 1};
    layers[FULL] = layers[RECURRENT]; /* each alone fits, and both do not */
    sizing.policy.dsa_index_ring = 0;
    ck_assert_int_eq(kvg_plan_fixed_bytes(&sizing, &plan, RECURRENT, RECURRENT + 1, 1, 0, &bytes), KVG_OK);
    ck_assert_int_eq(kvg_plan_fixed_bytes(&sizing, &plan, 0, LAYERS, 1, 0, &bytes), KVG_EOVERFLOW);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "the bytes of these layers"));
    bytes = 7;
    layers[FULL].kind = KVG_STATE_KV;
    layers[FULL].u.kv = (KvCachePlan){.kv_heads = UINT32_MAX, .head_dim_k = UINT32_MAX, .head_dim_v = UINT32_MAX};
    layers[WINDOWED] = layers[MTP] = layers[FULL];
    sizing.format_k = sizing.format_v = KVG_F16;
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &plan, 0, LAYERS, &bytes), KVG_EOVERFLOW);
    ck_assert_uint_eq(bytes, 7);
}
END_TEST

START_TEST(test_the_wrappers_use_the_process_s_policy)
{
    ModelConfig config = {.plan = plan};
    uint64_t    whole = 0, part = 0, latent = 0, ring = 0, rows = 0;

    setenv("KVGRID_KV_K", "bf16", 1);
    setenv("KVGRID_KV_V", "bf16", 1);
    setenv("KVGRID_SWA_RING", "1", 1);
    ck_assert_int_eq(kvg_cache_bytes_per_token(&config, &whole), KVG_OK);
    ck_assert_uint_eq(whole, 2 * 4096 + 3 * 2304 + 512 + 128); /* the trunk: the MTP block is left out */
    ck_assert_int_eq(kvg_cache_bytes_per_token_for_layers(&config, 0, LAYERS, &part), KVG_OK);
    ck_assert_uint_eq(part, whole + 4096);
    ck_assert_int_eq(kvg_cache_bytes_per_token_for_plan(&config, &plan, FULL, FULL + 1, &part), KVG_OK);
    ck_assert_uint_eq(part, 4096);
    ck_assert_int_eq(kvg_latent_kv_bytes_per_token_for_plan(&config, &plan, 0, LAYERS, &latent), KVG_OK);
    ck_assert_uint_eq(latent, 3 * 2304 + 512 + 128);
    ck_assert_int_eq(kvg_cache_ring_bytes_per_token(&config, &ring), KVG_OK);
    ck_assert_uint_eq(ring, 4096);
    ck_assert_int_eq(kvg_cache_ring_bytes_per_token_for_layers(&config, 0, 1, &ring), KVG_OK);
    ck_assert_uint_eq(ring, 0);
    ck_assert_int_eq(kvg_cache_ring_bytes_per_token_for_plan(&config, &plan, 0, 2, &ring), KVG_OK);
    ck_assert_uint_eq(ring, 4096);
    ck_assert_int_eq(kvg_cache_ring_row_cap(&config, &rows), KVG_OK);
    ck_assert_uint_eq(rows, 5663);
    ck_assert_int_eq(kvg_cache_ring_row_cap_for_plan(&config, &plan, &rows), KVG_OK);
    ck_assert_uint_eq(rows, 5663);
}
END_TEST

START_TEST(test_the_wrappers_report_an_environment_that_cannot_be_read)
{
    ModelConfig config = {.plan = plan};
    uint64_t    bytes = 7;

    setenv("KVGRID_KV_K", "nonsense", 1);
    ck_assert_int_eq(kvg_cache_bytes_per_token(&config, &bytes), KVG_EINVAL);
    ck_assert_int_eq(kvg_cache_ring_row_cap(&config, &bytes), KVG_EINVAL);
    ck_assert_uint_eq(bytes, 7);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("sizing");
    TCase   *rules = tcase_create("rules");
    SRunner *runner;
    int      failed, run;

    tcase_add_checked_fixture(rules, setup, NULL);
    tcase_add_test(rules, test_rows_of_each_kind);
    tcase_add_test(rules, test_each_format_sizes_its_half);
    tcase_add_test(rules, test_k_and_v_may_differ_in_width);
    tcase_add_test(rules, test_a_flat_indexer_grows_with_the_tokens_and_a_ring_does_not);
    tcase_add_test(rules, test_key_bytes_a_token_divide_and_an_unknown_pool_counts_as_1);
    tcase_add_test(rules, test_latent_rows_are_f32_or_bf16);
    tcase_add_test(rules, test_the_latent_part_is_the_latent_layers);
    tcase_add_test(rules, test_fixed_bytes_of_each_kind);
    tcase_add_test(rules, test_the_ring_part_counts_windowed_layers_while_the_ring_is_on);
    tcase_add_test(rules, test_ranges_run_to_the_last_mtp_block_and_no_further);
    tcase_add_test(rules, test_a_head_that_cuts_a_block_is_refused);
    tcase_add_test(rules, test_sizes_that_do_not_fit_are_refused);
    tcase_add_test(rules, test_the_wrappers_use_the_process_s_policy);
    tcase_add_test(rules, test_the_wrappers_report_an_environment_that_cannot_be_read);
    suite_add_tcase(suite, rules);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV); /* each test in a process of its own: the process's policy is read once */
    failed = srunner_ntests_failed(runner);
    run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Tests of replay's words: percentiles and the formats of line 1. */
#include <check.h>
#include <stdlib.h>

#include "launch/command/replay_report.h"

START_TEST(test_percentiles_are_by_nearest_rank)
{
    uint64_t values[100], one[] = { 7 }, four[] = { 40, 10, 30, 20 };
    for (uint64_t i = 0; i < 100; i++) {
        values[i] = 100 - i;
    }
    ck_assert_uint_eq(kvg_replay_percentile(values, 100, 50), 50);
    ck_assert_uint_eq(kvg_replay_percentile(values, 100, 99), 99);
    ck_assert_uint_eq(kvg_replay_percentile(values, 100, 100), 100);
    ck_assert_uint_eq(kvg_replay_percentile(values, 100, 0), 1);
    ck_assert_uint_eq(kvg_replay_percentile(one, 1, 50), 7);
    ck_assert_uint_eq(kvg_replay_percentile(four, 4, 50), 20);
    ck_assert_uint_eq(kvg_replay_percentile(four, 4, 51), 30);
    ck_assert_uint_eq(kvg_replay_percentile(NULL, 0, 99), 0);
}
END_TEST

START_TEST(test_line_one_names_each_pair_of_formats_once_and_calls_quantised_ones_lossy)
{
    KvFormat   k[] = { KVG_POLICY, KVG_Q8_0, KVG_Q8_0, KVG_FP8, KVG_Q8_0 }, v[] = { KVG_POLICY, KVG_BF16, KVG_BF16, KVG_FP8, KVG_BF16 };
    KvGridPlan plan = { .n_layer = 5, .format_k = k, .format_v = v };
    char       text[256];
    StatePlan  layers[5] = { 0 };
    ModelConfig config = { .plan = { 5, 0, layers } };
    kvg_replay_formats(&plan, &config, KVG_POLICY, text, sizeof text);
    ck_assert_str_eq(text, "K q8_0 (lossy), V bf16; other layers K fp8 (lossy), V fp8 (lossy)");
    layers[0].kind = KVG_STATE_RECURRENT;
    kvg_replay_formats(&plan, &config, KVG_POLICY, text, sizeof text);
    ck_assert_str_eq(text, "K q8_0 (lossy), V bf16; other layers K fp8 (lossy), V fp8 (lossy); recurrent state f32");
    kvg_replay_formats(&plan, &config, KVG_POLICY, text, 10); /* cut, not overrun */
    ck_assert_str_eq(text, "K q8_0 (l");
    plan.n_layer = 1; /* no K/V rows at all */
    layers[4].kind = KVG_STATE_LATENT;
    kvg_replay_formats(&plan, &config, KVG_POLICY, text, sizeof text);
    ck_assert_str_eq(text, "latent rows f32; recurrent state f32");
    kvg_replay_formats(&plan, &config, KVG_BF16, text, sizeof text);
    ck_assert_str_eq(text, "latent rows bf16; recurrent state f32");
    layers[4].kind = KVG_STATE_NONE;
    kvg_replay_formats(&plan, &config, KVG_BF16, text, sizeof text);
    ck_assert_str_eq(text, "recurrent state f32");
}
END_TEST

START_TEST(test_ranks_of_one_device_are_counted_by_its_id_and_hosts_are_none)
{
    ReplayRankEnd ranks[5] = { { .device = { 7 } }, { .device = { 8 } }, { .device = { 7 } }, { .device = { 0 } }, { .device = { 7 } } };
    ReplayResult  result = { .ranks = ranks, .rank_count = 5 };
    for (int rank = 0; rank < 5; rank++) {
        ranks[rank].driver.grain = rank == 3 ? 0 : 2u << 20; /* rank 3's state is on the host */
    }
    const int want[] = { 3, 1, 3, 0, 3 };
    for (int rank = 0; rank < 5; rank++) {
        ck_assert_int_eq(kvg_replay_device_ranks(&result, rank), want[rank]);
    }
    ranks[4].device[RANK_DEVICE_ID - 1] = 1; /* the whole id counts */
    ck_assert_int_eq(kvg_replay_device_ranks(&result, 4), 1);
    ck_assert_int_eq(kvg_replay_device_ranks(&result, 0), 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replay_report");
    TCase *cases = tcase_create("report");
    tcase_add_test(cases, test_percentiles_are_by_nearest_rank);
    tcase_add_test(cases, test_line_one_names_each_pair_of_formats_once_and_calls_quantised_ones_lossy);
    tcase_add_test(cases, test_ranks_of_one_device_are_counted_by_its_id_and_hosts_are_none);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Grid plans: heads over ranks, what is duplicated, and which tp divides. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/plan_scene.h"

static uint64_t sum_over_ranks(void)
{
    uint64_t sum = 0;

    for (uint32_t r = 0; r < plan.ranks_count; r++) {
        sum += plan.ranks[r].bytes_per_token;
    }
    return sum;
}

START_TEST(test_grid_plan_b02_replicates_whole_heads_when_tp_is_above_them)
{
    static const struct { uint32_t tp; uint64_t rank, all, copies; } cases[] = {
        { 2, 49152, 98304, 0 }, { 4, 24576, 98304, 0 }, { 8, 24576, 196608, 98304 }, { 16, 24576, 393216, 294912 },
    };

    make_model(48, 0, 32768);
    fill_layers(48, kv_layer(32, 4, 128, 128));
    ask_bf16();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make_plan(cases[i].tp, 1);
        for (uint32_t r = 0; r < cases[i].tp; r++) {
            ck_assert_uint_eq(plan.ranks[r].bytes_per_token, cases[i].rank);
        }
        ck_assert_uint_eq(sum_over_ranks(), cases[i].all);
        ck_assert_uint_eq(duplicates_over_ranks(), cases[i].copies);
    }
    ck_assert_uint_eq(plan.ranks[0].duplicate_bytes_per_token, 0); /* of each group of 4 the first holds the original */
    ck_assert_uint_eq(plan.ranks[1].duplicate_bytes_per_token, 24576);
    ck_assert_uint_eq(plan.ranks[4].duplicate_bytes_per_token, 0);
}
END_TEST

START_TEST(test_grid_plan_b03_refuses_tp_that_only_query_heads_divide_by)
{
    make_model(2, 0, 4096);
    fill_layers(2, kv_layer(28, 4, 128, 128));
    for (uint32_t tp = 1; tp <= 29; tp++) {
        int works = tp == 1 || tp == 2 || tp == 4 || tp == 28;
        ck_assert_msg(try_plan(tp, 1) == (works ? KVG_OK : KVG_EGEOM), "tp %u", tp);
    }
    ck_assert_int_eq(try_plan(7, 1), KVG_EGEOM);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "1, 2, 4, 28;"));
}
END_TEST

START_TEST(test_grid_plan_b09_lists_the_sizes_and_names_stages_as_the_other_way)
{
    make_model(2, 0, 4096);
    fill_layers(2, kv_layer(52, 52, 128, 128));
    ck_assert_int_eq(try_plan(8, 1), KVG_EGEOM);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "1, 2, 4, 13, 26, 52;"));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "pp"));
    ck_assert_int_eq(try_plan(3, 1), KVG_EGEOM);
    ck_assert_int_eq(try_plan(13, 1), KVG_OK);
}
END_TEST

START_TEST(test_grid_plan_lists_sizes_that_work_for_every_layer_of_the_model)
{
    make_model(3, 0, 4096);
    made_layers[0] = kv_layer(32, 8, 128, 128);
    made_layers[1] = kv_layer(32, 4, 128, 128);
    made_layers[2] = recurrent_layer(6);
    ck_assert_int_eq(try_plan(4, 1), KVG_EGEOM); /* 6 recurrent heads on 4 ranks */
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "layer 2"));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "are 1, 2;"));
}
END_TEST

START_TEST(test_grid_plan_b10_refuses_a_block_that_would_span_heads)
{
    make_model(1, 0, 4096);
    fill_layers(1, kv_layer(8, 8, 80, 80));
    options.sizing.format_k = KVG_Q8_0;
    options.sizing.format_v = KVG_Q8_0;
    for (uint32_t tp = 1; tp <= 8; tp *= 2) { /* also where the whole row is a multiple of 32 */
        ck_assert_int_eq(try_plan(tp, 1), KVG_EGEOM);
    }
    fill_layers(1, kv_layer(8, 8, 96, 96));
    make_plan(8, 1);
    ck_assert_uint_eq(plan.ranks[7].bytes_per_token, 102 + 102);
    fill_layers(1, kv_layer(8, 8, 80, 80));
    ask_bf16();
    make_plan(8, 1);
    ck_assert_uint_eq(plan.ranks[7].bytes_per_token, 160 + 160);
}
END_TEST

START_TEST(test_grid_plan_b07_b12_few_heads_on_many_ranks)
{
    make_model(1, 0, 4096);
    ask_bf16();
    fill_layers(1, kv_layer(32, 8, 128, 128));
    make_plan(32, 1);
    ck_assert_uint_eq(plan.ranks[31].bytes_per_token, 2 * 128 * 2);
    ck_assert_uint_eq(duplicates_over_ranks(), 24 * 512);
    fill_layers(1, kv_layer(2, 1, 64, 64));
    make_plan(2, 1);
    ck_assert_uint_eq(plan.ranks[0].bytes_per_token, plan.ranks[1].bytes_per_token);
    ck_assert_uint_eq(plan.ranks[1].duplicate_bytes_per_token, 256);
}
END_TEST

START_TEST(test_grid_plan_b54_b61_prices_local_heads_and_both_widths)
{
    make_model(1, 0, 4096);
    ask_bf16();
    fill_layers(1, kv_layer(16, 16, 128, 128));
    make_plan(4, 1);
    ck_assert_uint_eq(plan.ranks[3].bytes_per_token, 4 * 128 * 2 * 2);
    fill_layers(1, kv_layer(16, 4, 192, 128));
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ranks[0].bytes_per_token, 2560);
    ck_assert_uint_eq(plan.ranks[0].class_unit_bytes[0], 2560 * 64);
}
END_TEST

START_TEST(test_grid_plan_b37_latents_are_whole_on_every_rank_and_ask_nothing_of_heads)
{
    make_model(27, 0, 4096);
    fill_layers(27, latent_layer(576));
    ask_bf16();
    for (uint32_t tp = 1; tp <= 5; tp++) {
        make_plan(tp, 1);
        for (uint32_t r = 0; r < tp; r++) {
            ck_assert_uint_eq(plan.ranks[r].bytes_per_token, 31104);
            ck_assert_uint_eq(plan.ranks[r].duplicate_bytes_per_token, r == 0 ? 0 : 31104);
        }
    }
    unload();
    load("mistral-large-3-675b");
    make_plan(8, 1);
    ck_assert_uint_eq(plan.ranks[5].bytes_per_token, 70272);
    ck_assert_uint_eq(sum_over_ranks(), 562176);
}
END_TEST

START_TEST(test_grid_plan_b60_a_narrow_format_halves_rows_and_not_state)
{
    uint64_t fixed;

    load("qwen3-next-80b-a3b");
    ask_bf16();
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ranks[0].bytes_per_token, 24576);
    fixed = plan.ranks[0].fixed_bytes;
    ck_assert_uint_eq(fixed, 2 * 79036416 + 12 * 20);
    options.sizing.format_k = options.sizing.format_v = KVG_FP8;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ranks[0].bytes_per_token, 12288);
    ck_assert_uint_eq(plan.ranks[0].fixed_bytes, fixed);
}
END_TEST

START_TEST(test_grid_plan_replicated_recurrent_parts_are_duplicates)
{
    make_model(1, 0, 4096);
    fill_layers(1, recurrent_layer(4));
    make_plan(8, 1);
    ck_assert_uint_eq(plan.ranks[0].duplicate_fixed_bytes, 0);
    ck_assert_uint_eq(plan.ranks[1].duplicate_fixed_bytes, plan.ranks[1].fixed_bytes);
    ck_assert_uint_eq(plan.ranks[0].fixed_bytes, 2 * (64 * 3 + 1024) * 4);
    ck_assert_uint_eq(plan.ranks[0].slot_bytes, plan.ranks[0].fixed_bytes);
    made_layers[0].u.recurrent.parts[0].heads = 2; /* q, k by 2 heads, state by 4: each part is cut by itself */
    made_layers[0].u.recurrent.conv_width = 128;
    make_plan(4, 1);
    ck_assert_uint_eq(plan.ranks[1].duplicate_fixed_bytes, 2 * 64 * 3 * 4);
    ck_assert_uint_eq(plan.ranks[2].duplicate_fixed_bytes, 0);
}
END_TEST

/* The sizes that work are listed as far as the sentence goes, and whole numbers stand there. */
START_TEST(test_grid_plan_a_long_list_of_sizes_is_cut_between_two)
{
    const char *list;

    make_model(1, 0, 1024);
    fill_layers(1, kv_layer(5040, 5040, 32, 32));
    ck_assert_int_eq(try_plan(11, 1), KVG_EGEOM);
    list = strstr(kvg_last_error(), "are 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, ");
    ck_assert_msg(list != NULL, "%s", kvg_last_error());
    for (const char *at = list + 4; *at >= '0' && *at <= '9';) {
        char *end;
        ck_assert_uint_eq(5040 % strtoul(at, &end, 10), 0);
        at = strncmp(end, ", ", 2) == 0 ? end + 2 : end;
    }
    make_model(2, 0, 1024);
    fill_layers(2, kv_layer(3, 3, 32, 32));
    made_layers[1].u.kv.kv_heads = 0; /* no size works */
    ck_assert_int_eq(try_plan(2, 1), KVG_EGEOM);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grid_plan_shard");
    TCase *tcase = tcase_create("grid_plan_shard");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_grid_plan_b02_replicates_whole_heads_when_tp_is_above_them);
    tcase_add_test(tcase, test_grid_plan_b03_refuses_tp_that_only_query_heads_divide_by);
    tcase_add_test(tcase, test_grid_plan_b09_lists_the_sizes_and_names_stages_as_the_other_way);
    tcase_add_test(tcase, test_grid_plan_lists_sizes_that_work_for_every_layer_of_the_model);
    tcase_add_test(tcase, test_grid_plan_b10_refuses_a_block_that_would_span_heads);
    tcase_add_test(tcase, test_grid_plan_b07_b12_few_heads_on_many_ranks);
    tcase_add_test(tcase, test_grid_plan_b54_b61_prices_local_heads_and_both_widths);
    tcase_add_test(tcase, test_grid_plan_b37_latents_are_whole_on_every_rank_and_ask_nothing_of_heads);
    tcase_add_test(tcase, test_grid_plan_b60_a_narrow_format_halves_rows_and_not_state);
    tcase_add_test(tcase, test_grid_plan_replicated_recurrent_parts_are_duplicates);
    tcase_add_test(tcase, test_grid_plan_a_long_list_of_sizes_is_cut_between_two);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

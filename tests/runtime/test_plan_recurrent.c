/* JSON configs: what recurrent layers keep, and how it is cut. */
#include <check.h>
#include <stdlib.h>

#include <kvgrid/model.h>

#include "tests/support/small_config.h"

static void check_parts(const char *text, uint32_t layer, const RecurrentPart *parts, uint32_t count)
{
    ModelConfig          config = load(text);
    const RecurrentPlan *plan = &config.plan.layers[layer].u.recurrent;
    uint64_t             conv = 0, state = 0;

    ck_assert_int_eq(config.plan.layers[layer].kind, KVG_STATE_RECURRENT);
    ck_assert_uint_eq(plan->part_count, count);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_eq(plan->parts[i].heads, parts[i].heads);
        ck_assert_uint_eq(plan->parts[i].width, parts[i].width);
        ck_assert_uint_eq(plan->parts[i].is_state, parts[i].is_state);
        *(parts[i].is_state ? &state : &conv) += (uint64_t)parts[i].heads * parts[i].width;
    }
    ck_assert_uint_eq(plan->conv_width, conv);
    ck_assert_uint_eq(plan->state_width, state);
    ck_assert_uint_eq(plan->conv_kernel, 4);
    kvg_model_config_free(&config);
}

START_TEST(test_recurrent_parts_are_cut_by_their_own_heads)
{
    static const RecurrentPart gdn[] = {{2, 64, 0}, {2, 64, 0}, {4, 32, 0}, {4, 32 * 64, 1}};
    static const RecurrentPart kda[] = {{4, 32, 0}, {4, 32, 0}, {4, 32, 0}, {4, 32 * 32, 1}};
    static const RecurrentPart mamba2[] = {{16, 64, 0}, {2, 128, 0}, {2, 128, 0}, {16, 64 * 128, 1}};
    static const RecurrentPart mamba1[] = {{1024, 1, 0}, {1024, 16, 1}};

    check_parts("{" GDN ",\"full_attention_interval\":4}", 0, gdn, 4);
    check_parts(LINEAR("\"full_attn_layers\":[1,4],\"kda_layers\":[0,2,3]"), 0, kda, 4);
    check_parts(MAMBA2("\"M*-EM\""), 4, mamba2, 4);
    check_parts("{\"model_type\":\"jamba\",\"num_hidden_layers\":9," MAMBA1 "}", 0, mamba1, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan_recurrent");
    TCase *tcase = tcase_create("plan_recurrent");

    tcase_add_checked_fixture(tcase, no_leak_setup, no_leak_teardown);
    tcase_add_test(tcase, test_recurrent_parts_are_cut_by_their_own_heads);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/ledger.h>

static KvGridPlan plan;
static KvgLedger  ledger;

/* A full class of 100 units and a window of at most 10 units a sequence in 40; 5 slots; contexts up to 2000 rows. */
static void setup(void)
{
    memset(&plan, 0, sizeof plan);
    plan.memory_known = 1;
    plan.max_ctx = 2000;
    plan.slots = 5;
    plan.class_count = 2;
    plan.classes[0] = (KvClassPlan){ .kind = KVG_STATE_KV, .row_cap = 2000, .unit_cap = 32, .units = 100, .units_per_sequence = 32 };
    plan.classes[1] = (KvClassPlan){ .kind = KVG_STATE_SLIDING_KV, .window = 64, .ring = 1, .row_cap = 600, .unit_cap = 10, .units = 40,
                                     .units_per_sequence = 10 };
    ck_assert_int_eq(kvg_ledger_init(&plan, &ledger), KVG_OK);
}

static void check_free(uint32_t slots, uint32_t full, uint32_t window)
{
    ck_assert_uint_eq(ledger.slots_free, slots);
    ck_assert_uint_eq(ledger.units_free[0], full);
    ck_assert_uint_eq(ledger.units_free[1], window);
}

START_TEST(test_ledger_needs_a_plan_whose_memory_is_known)
{
    KvgLedger before = ledger;

    plan.memory_known = 0;
    ck_assert_int_eq(kvg_ledger_init(&plan, &ledger), KVG_EINVAL);
    ck_assert_mem_eq(&ledger, &before, sizeof ledger);
    ck_assert_int_eq(kvg_ledger_init(NULL, &ledger), KVG_EINVAL);
}
END_TEST

START_TEST(test_ledger_admit_and_close_are_inverse)
{
    check_free(5, 100, 40);
    ck_assert_int_eq(kvg_ledger_admit(&ledger, 0), KVG_OK); /* an empty sequence takes its slot alone */
    check_free(4, 100, 40);
    ck_assert_int_eq(kvg_ledger_admit(&ledger, 1), KVG_OK);
    check_free(3, 99, 39);
    ck_assert_int_eq(kvg_ledger_admit(&ledger, 65), KVG_OK);
    check_free(2, 97, 37);
    ck_assert_int_eq(kvg_ledger_admit(&ledger, 2000), KVG_OK);
    check_free(1, 65, 27); /* the window stops at its cap */
    kvg_ledger_close(&ledger, 65);
    kvg_ledger_close(&ledger, 0);
    kvg_ledger_close(&ledger, 2000);
    kvg_ledger_close(&ledger, 1);
    check_free(5, 100, 40);
}
END_TEST

START_TEST(test_ledger_check_changes_nothing)
{
    KvgLedger before = ledger;

    ck_assert_int_eq(kvg_ledger_check(&ledger, 2000), KVG_OK);
    ck_assert_int_eq(kvg_ledger_check(&ledger, 2001), KVG_ECAPACITY);
    ck_assert_mem_eq(&ledger, &before, sizeof ledger);
}
END_TEST

START_TEST(test_ledger_past_the_context_is_refused_for_good)
{
    ck_assert_int_eq(kvg_ledger_admit(&ledger, 2001), KVG_ECAPACITY);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "never"));
    check_free(5, 100, 40);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(kvg_ledger_admit(&ledger, 64), KVG_OK);
    }
    ck_assert_int_eq(kvg_ledger_check(&ledger, 2001), KVG_ECAPACITY); /* not EBUSY: waiting does not help */
}
END_TEST

START_TEST(test_ledger_want_of_units_names_class_need_and_free)
{
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(kvg_ledger_admit(&ledger, 2000), KVG_OK);
    }
    check_free(2, 4, 10);
    ck_assert_int_eq(kvg_ledger_admit(&ledger, 5 * 64), KVG_ECAPACITY);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "class 0 (window 0) needs 5 more units of 64 rows and 4 of 100 are free"));
    check_free(2, 4, 10);
    ck_assert_int_eq(kvg_ledger_admit(&ledger, 4 * 64), KVG_OK);
    check_free(1, 0, 6);
}
END_TEST

START_TEST(test_ledger_without_a_slot_is_busy)
{
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(kvg_ledger_admit(&ledger, 64), KVG_OK);
    }
    ck_assert_int_eq(kvg_ledger_admit(&ledger, 64), KVG_EBUSY);
    ck_assert_int_eq(kvg_ledger_admit(&ledger, 0), KVG_EBUSY);
    kvg_ledger_close(&ledger, 64);
    ck_assert_int_eq(kvg_ledger_admit(&ledger, 64), KVG_OK);
}
END_TEST

START_TEST(test_ledger_grow_takes_the_difference_or_nothing)
{
    ck_assert_int_eq(kvg_ledger_admit(&ledger, 64), KVG_OK);
    ck_assert_int_eq(kvg_ledger_grow(&ledger, 64, 64), KVG_OK);
    ck_assert_int_eq(kvg_ledger_grow(&ledger, 64, 10), KVG_OK);
    check_free(4, 99, 39);
    ck_assert_int_eq(kvg_ledger_grow(&ledger, 64, 65), KVG_OK);
    check_free(4, 98, 38);
    ck_assert_int_eq(kvg_ledger_grow(&ledger, 65, 640), KVG_OK);
    check_free(4, 90, 30);
    ck_assert_int_eq(kvg_ledger_grow(&ledger, 640, 2000), KVG_OK); /* past the window's cap only the full class grows */
    check_free(4, 68, 30);
    ck_assert_int_eq(kvg_ledger_grow(&ledger, 2000, 2001), KVG_ECAPACITY);
    ledger.units_free[0] = 3;
    ck_assert_int_eq(kvg_ledger_grow(&ledger, 64, 5 * 64), KVG_ECAPACITY);
    check_free(4, 3, 30);
    kvg_ledger_close(&ledger, 2000);
    check_free(5, 35, 40);
}
END_TEST

/* What the plan promises, the ledger admits, and not one more. */
static void admit_promised(const char *name, uint32_t tp, uint32_t pp, int ring)
{
    KvGridPlanOptions options = KVG_GRID_PLAN_OPTIONS_INIT;
    ModelConfig       config;
    KvGridPlan        planned;
    uint64_t          state[8];
    char              path[512];

    snprintf(path, sizeof path, "%s/models/%s.json", KVG_TEST_DATA, name);
    ck_assert_int_eq(kvg_model_config_load(path, &config), KVG_OK);
    kvg_policy_default(&options.sizing.policy);
    options.sizing.policy.swa_ring = (int8_t)ring;
    options.tp = tp;
    options.pp = pp;
    options.state_bytes = state;
    for (int r = 0; r < 8; r++) {
        state[r] = 20000000000ull - (uint64_t)r * 100000000;
    }
    ck_assert_int_eq(kvg_grid_plan(&config, &options, &planned), KVG_OK);
    ck_assert_int_eq(kvg_ledger_init(&planned, &ledger), KVG_OK);
    ck_assert_uint_gt(planned.max_sequences, 0);
    for (uint64_t i = 0; i < planned.max_sequences; i++) {
        ck_assert_int_eq(kvg_ledger_admit(&ledger, planned.ctx), KVG_OK);
    }
    ck_assert_int_ne(kvg_ledger_admit(&ledger, planned.ctx), KVG_OK);
    ck_assert_int_eq(kvg_ledger_init(&planned, &ledger), KVG_OK);
    ck_assert_int_eq(kvg_ledger_check(&ledger, planned.max_context), KVG_OK);
    ck_assert_int_eq(kvg_ledger_check(&ledger, planned.max_context + 64), KVG_ECAPACITY);
    kvg_grid_plan_free(&planned);
    kvg_model_config_free(&config);
}

START_TEST(test_ledger_admits_what_the_plan_promises_and_not_one_more)
{
    admit_promised("llama-3.1-8b", 1, 1, 0);
    admit_promised("llama-3.1-8b", 4, 2, 0);
    admit_promised("gemma-3-27b", 2, 2, 1);
    admit_promised("gpt-oss-120b", 8, 1, 1);
    admit_promised("qwen3-next-80b-a3b", 2, 4, 0);
    admit_promised("deepseek-v3.2", 1, 8, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ledger");
    TCase *tcase = tcase_create("ledger");

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, test_ledger_needs_a_plan_whose_memory_is_known);
    tcase_add_test(tcase, test_ledger_admit_and_close_are_inverse);
    tcase_add_test(tcase, test_ledger_check_changes_nothing);
    tcase_add_test(tcase, test_ledger_past_the_context_is_refused_for_good);
    tcase_add_test(tcase, test_ledger_want_of_units_names_class_need_and_free);
    tcase_add_test(tcase, test_ledger_without_a_slot_is_busy);
    tcase_add_test(tcase, test_ledger_grow_takes_the_difference_or_nothing);
    tcase_add_test(tcase, test_ledger_admits_what_the_plan_promises_and_not_one_more);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

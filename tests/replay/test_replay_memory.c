/* Tests of replay's default memory. */
#include <check.h>
#include <stdlib.h>

#include "launch/command/replay_memory.h"

/* One rank of two layers: a full class of 1000 bytes a unit, and a window that books at most 3 units of 10 bytes. */
static KvGridPlan plan_of(KvRankPlan *rank)
{
    KvGridPlan plan = { .ranks_count = 1, .class_count = 2 };
    *rank = (KvRankPlan){ .hi = 2, .class_unit_bytes = { 1000, 10 }, .slot_bytes = 5 };
    plan.ranks = rank;
    plan.classes[0].unit_cap = 1u << 20;
    plan.classes[1].unit_cap = 3;
    return plan;
}

START_TEST(test_the_need_counts_units_slots_and_sequences)
{
    enum { SLACK = 4 * 8192 + (1 << 20) }; /* of two layers' planes, and a MiB */
    KvRankPlan rank;
    KvGridPlan plan = plan_of(&rank);
    uint64_t   bytes = 0;
    ck_assert_int_eq(kvg_replay_memory_need(&plan, 0, 64, 1, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 1015 + 1015 / 20 + SLACK);
    ck_assert_int_eq(kvg_replay_memory_need(&plan, 0, 65, 1, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 2025 + 2025 / 20 + SLACK);
    ck_assert_int_eq(kvg_replay_memory_need(&plan, 0, 640, 10, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 100350 + 100350 / 20 + SLACK);
}
END_TEST

START_TEST(test_a_need_past_64_bits_is_an_overflow_and_changes_nothing)
{
    KvRankPlan rank;
    KvGridPlan plan = plan_of(&rank);
    uint64_t   bytes = 47;
    rank.class_unit_bytes[0] = UINT64_MAX / 2;
    ck_assert_int_eq(kvg_replay_memory_need(&plan, 0, 64, 2, &bytes), KVG_EOVERFLOW);
    ck_assert_int_eq(kvg_replay_memory_need(&plan, 0, 640, 1, &bytes), KVG_EOVERFLOW);
    ck_assert_uint_eq(bytes, 47);
}
END_TEST

START_TEST(test_ranks_of_one_machine_share_what_it_has)
{
    uint64_t one = kvg_replay_memory_available(1), four = kvg_replay_memory_available(4);
    ck_assert_uint_gt(four, 0);
    ck_assert_uint_lt(four, one); /* a quarter, but for what the machine takes meanwhile */
    ck_assert_uint_eq(kvg_replay_memory_available(0) > four, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replay_memory");
    TCase *cases = tcase_create("memory");
    tcase_add_test(cases, test_the_need_counts_units_slots_and_sequences);
    tcase_add_test(cases, test_a_need_past_64_bits_is_an_overflow_and_changes_nothing);
    tcase_add_test(cases, test_ranks_of_one_machine_share_what_it_has);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

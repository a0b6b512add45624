/* Tracer: ranges begin and end in pairs, at the tracer that they began at. */
#include <check.h>
#include <stdlib.h>

#include "runtime/base/traced.h"

typedef struct Seen {
    int      began, ended, depth;
    KvgRange last;
    uint64_t value;
} Seen;

static void begin(void *user, KvgRange range, uint64_t value)
{
    Seen *seen = user;
    seen->began++;
    seen->depth++;
    seen->last = range;
    seen->value = value;
}

static void end(void *user, KvgRange range)
{
    Seen *seen = user;
    seen->ended++;
    seen->depth--;
    seen->last = range;
}

START_TEST(test_without_a_tracer_a_range_is_nothing)
{
    kvg_tracer_set(NULL);
    const KvgTracer *tracer = kvg_range_begin(KVG_RANGE_POST, 3);
    ck_assert_ptr_null(tracer);
    kvg_range_end(tracer, KVG_RANGE_POST);
}
END_TEST

START_TEST(test_a_range_ends_at_the_tracer_that_it_began_at)
{
    Seen            one = {0}, two = {0};
    const KvgTracer first = {sizeof first, begin, end, &one}, second = {sizeof second, begin, end, &two};

    kvg_tracer_set(&first);
    const KvgTracer *outer = kvg_range_begin(KVG_RANGE_DECIDE, 7);
    ck_assert_int_eq(one.last, KVG_RANGE_DECIDE);
    ck_assert_uint_eq(one.value, 7);
    kvg_tracer_set(&second);
    const KvgTracer *inner = kvg_range_begin(KVG_RANGE_PUBLISH, 8);
    kvg_range_end(inner, KVG_RANGE_PUBLISH);
    kvg_range_end(outer, KVG_RANGE_DECIDE);
    kvg_tracer_set(NULL);
    ck_assert_int_eq(one.began, 1);
    ck_assert_int_eq(one.ended, 1);
    ck_assert_int_eq(two.began, 1);
    ck_assert_int_eq(two.ended, 1);
}
END_TEST

START_TEST(test_a_tracer_that_is_not_whole_is_none)
{
    Seen      seen = {0};
    KvgTracer parts[] = {{0, begin, end, &seen}, {sizeof(KvgTracer) - 1, begin, end, &seen}, {sizeof(KvgTracer), NULL, end, &seen},
                         {sizeof(KvgTracer), begin, NULL, &seen}};

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        kvg_tracer_set(&parts[i]);
        ck_assert_ptr_null(kvg_range_begin(KVG_RANGE_RUN, 0));
    }
    kvg_tracer_set(NULL);
    ck_assert_int_eq(seen.began, 0);
}
END_TEST

START_TEST(test_ranges_have_names)
{
    ck_assert_str_eq(kvg_range_name(KVG_RANGE_PLAN), "plan");
    ck_assert_str_eq(kvg_range_name(KVG_RANGE_RUN), "run");
    ck_assert_str_eq(kvg_range_name(KVG_RANGE_COUNT), "?");
    ck_assert_str_eq(kvg_range_name((KvgRange)-1), "?");
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("tracer");
    TCase   *tcase = tcase_create("tracer");
    SRunner *runner = srunner_create(suite);

    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, test_without_a_tracer_a_range_is_nothing);
    tcase_add_test(tcase, test_a_range_ends_at_the_tracer_that_it_began_at);
    tcase_add_test(tcase, test_a_tracer_that_is_not_whole_is_none);
    tcase_add_test(tcase, test_ranges_have_names);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

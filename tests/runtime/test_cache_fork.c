/* Cache, forks: both sides go on alone, and one that finds no unit or no memory changes nothing. */
#include "tests/runtime/cache_fixture.h"

START_TEST(test_both_sides_of_a_fork_are_rewound_and_written_and_neither_sees_the_other)
{
    static const uint64_t forks[] = {1, 63, 64, 65, 100, 128, 400};

    open_layout(_i, 128);
    for (size_t f = 0; f < sizeof forks / sizeof forks[0]; f++) {
        KvCache a = open_cache(0), b = open_cache(1), c = open_cache(2);
        grow_to(&a, 400, 0);
        ck_assert_int_eq(kvg_kv_cache_fork(&a, forks[f], &b, NULL), KVG_OK);
        KvDigest got = fixture_digest(&b), wanted = straight_digest(forks[f], forks[f], 0, 0);
        assert_same(&got, &wanted);
        ck_assert_int_eq(kvg_kv_cache_fork(&b, forks[f], &c, NULL), KVG_OK);
        grow_to(&b, 500, 2000);
        ck_assert_int_eq(kvg_kv_cache_rewind_to(&a, forks[f] / 2, NULL), KVG_OK);
        grow_to(&a, 450, 4000);
        ck_assert_int_eq(kvg_kv_cache_rewind_to(&b, forks[f] - 1, NULL), KVG_OK);
        grow_to(&b, 470, 6000);
        ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
        got = fixture_digest(&a), wanted = straight_digest(450, forks[f] / 2, 0, 4000);
        assert_same(&got, &wanted);
        got = fixture_digest(&b), wanted = straight_digest(470, forks[f] - 1, 0, 6000);
        assert_same(&got, &wanted);
        got = fixture_digest(&c), wanted = straight_digest(forks[f], forks[f], 0, 0);
        assert_same(&got, &wanted);
        kvg_kv_cache_close(&a, NULL);
        got = fixture_digest(&c);
        assert_same(&got, &wanted);
        kvg_kv_cache_close(&c, NULL);
        kvg_kv_cache_close(&b, NULL);
    }
    close_all(NULL, 0);
}
END_TEST

START_TEST(test_a_copy_on_write_without_a_free_unit_is_refused_and_changes_nothing)
{
    uint32_t need[KVG_CLASSES_MAX];

    open_layout(0, 6);
    KvCache a = open_cache(0), b = open_cache(1), hog = open_cache(2);
    grow_to(&a, 200, 0);
    ck_assert_int_eq(kvg_kv_cache_fork(&a, 192, &b, NULL), KVG_OK);
    ck_assert_int_eq(kvg_store_book(fixture.store, 0, 2, 2), KVG_OK); /* class 0 is full now */
    KvDigest before = fixture_digest(&b);
    kvg_kv_cache_rewind_need(&b, 100, need);
    ck_assert(need[0] == 1 && need[1] == 1 && need[2] == 1);
    ck_assert_int_eq(kvg_kv_cache_rewind_to(&b, 100, NULL), KVG_ECAPACITY);
    KvDigest after = fixture_digest(&b);
    assert_same(&after, &before);
    ck_assert_uint_eq(kvg_store_units_free(fixture.store, 1), 2);
    ck_assert_int_eq(kvg_kv_cache_rewind_to(&b, 128, NULL), KVG_OK); /* a chunk border needs no copy */
    ck_assert_int_eq(kvg_kv_cache_fork(&a, 150, &(KvCache){.store = fixture.store, .class_count = 3}, NULL), KVG_EBUSY);
    KvCache d = open_cache(3);
    ck_assert_int_eq(kvg_kv_cache_fork(&a, 150, &d, NULL), KVG_ECAPACITY);
    ck_assert_int_eq(kvg_kv_cache_fork(&a, 201, &d, NULL), KVG_EINVAL);
    ck_assert_uint_eq(d.pos, 0);
    ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
    KvCache all[4] = {a, b, hog, d};
    close_all(all, 4);
}
END_TEST

/* Units and lengths are agreed over the ranks, memory is one rank's own matter. */
START_TEST(test_a_flat_fork_without_memory_counts_as_on_a_rank_that_has_it)
{
    open_layout(1, 64);
    KvCache a = open_cache(0), with = open_cache(1), b = open_cache(2);
    grow_to(&a, 200, 0);
    ck_assert_int_eq(kvg_kv_cache_fork(&a, 150, &with, NULL), KVG_OK);
    for (uint64_t nth = 0; nth < 8; nth++) {
        kvg_fault_arm(nth);
        ck_assert_int_eq(kvg_kv_cache_fork(&a, 150, &b, NULL), KVG_ENOMEM);
        ck_assert_int_eq(kvg_fault_disarm(), 1);
        for (uint32_t c = 0; c < FIXTURE_CLASSES; c++) ck_assert_uint_eq(kvg_store_held(fixture.store, c, 2), kvg_store_held(fixture.store, c, 1));
        ck_assert_uint_eq(b.pos, 150);
        ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
        kvg_kv_cache_close(&b, NULL);
        b = open_cache(2);
    }
    ck_assert_int_eq(kvg_kv_cache_fork(&a, 150, &b, NULL), KVG_OK);
    KvDigest got = fixture_digest(&b), wanted = fixture_digest(&with);
    ck_assert_mem_eq(got.bytes, wanted.bytes, sizeof got.bytes);
    KvCache all[3] = {a, with, b};
    close_all(all, 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_fork");
    TCase *tcase = tcase_create("cache_fork");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_both_sides_of_a_fork_are_rewound_and_written_and_neither_sees_the_other, 0, LAYOUTS);
    tcase_add_test(tcase, test_a_copy_on_write_without_a_free_unit_is_refused_and_changes_nothing);
    tcase_add_test(tcase, test_a_flat_fork_without_memory_counts_as_on_a_rank_that_has_it);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

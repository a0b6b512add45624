/* Cache, snapshots and taint: rollbacks are exact or refused. */
#include "tests/runtime/cache_fixture.h"

START_TEST(test_a_rollback_is_exact_and_refused_once_its_rows_were_written_over)
{
    KvCacheSnapshot early, late;

    open_layout(_i, 64);
    KvCache cache = open_cache(0);
    grow_to(&cache, 100, 0);
    fixture_snapshot(&cache, &early);
    grow_to(&cache, 130, 1000);
    fixture_snapshot(&cache, &late);
    grow_to(&cache, 140, 2000);
    ck_assert(kvg_kv_cache_can_rollback(&cache, &early, 40));
    ck_assert(!kvg_kv_cache_can_rollback(&cache, &early, 41)); /* beyond what was written */
    ck_assert_int_eq(kvg_kv_cache_rollback(&cache, &early, 41, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_kv_cache_rollback(&cache, &late, 3, NULL), KVG_OK);
    ck_assert_uint_eq(cache.pos, 133);
    ck_assert_int_eq(kvg_kv_cache_rollback(&cache, &late, 0, NULL), KVG_OK); /* a snapshot may serve again */
    ck_assert_int_eq(kvg_kv_cache_rollback(&cache, &early, 29, NULL), KVG_OK);
    grow_to(&cache, 150, 3000);
    ck_assert(!kvg_kv_cache_can_rollback(&cache, &late, 0)); /* row 129 is another one now */
    ck_assert_int_eq(kvg_kv_cache_rollback(&cache, &late, 0, NULL), KVG_ESTALE);
    ck_assert(kvg_kv_cache_can_rollback(&cache, &early, 0));
    ck_assert_int_eq(kvg_kv_cache_rollback(&cache, &early, 0, NULL), KVG_OK);
    KvDigest got = fixture_digest(&cache), wanted = straight_digest(100, 100, 0, 0);
    assert_same(&got, &wanted);
    kvg_kv_cache_close(&cache, NULL);
    kvg_kv_cache_open(fixture.store, 0, 7, &cache);
    ck_assert(!kvg_kv_cache_can_rollback(&cache, &early, 0)); /* another life of the slot */
    ck_assert_int_eq(kvg_kv_cache_rollback(&cache, &early, 0, NULL), KVG_ESTALE);
    close_all(&cache, 1);
}
END_TEST

START_TEST(test_many_cuts_never_let_a_bad_snapshot_through)
{
    KvCacheSnapshot snapshots[40];

    open_layout(0, 64);
    KvCache cache = open_cache(0);
    grow_to(&cache, 400, 0);
    for (uint64_t i = 0; i < 40; i++) { /* ever shorter cuts back: each stays on record beside the others */
        fixture_snapshot(&cache, &snapshots[i]);
        ck_assert_int_eq(kvg_kv_cache_rewind_to(&cache, 300 + 2 * i, NULL), KVG_OK);
        grow_to(&cache, 400, 1000 * i);
    }
    for (uint64_t i = 0; i < 40; i++) ck_assert(!kvg_kv_cache_can_rollback(&cache, &snapshots[i], 0));
    fixture_snapshot(&cache, &snapshots[0]);
    ck_assert(kvg_kv_cache_can_rollback(&cache, &snapshots[0], 0));
    close_all(&cache, 1);
}
END_TEST

START_TEST(test_a_tainted_cache_answers_nothing_but_close)
{
    KvCacheSnapshot snapshot;
    KvLeaf          leaves[32];

    open_layout(_i, 64);
    KvCache cache = open_cache(0), child = open_cache(1);
    grow_to(&cache, 70, 0);
    fixture_snapshot(&cache, &snapshot);
    kvg_kv_cache_taint(&cache);
    ck_assert_int_eq(kvg_kv_cache_begin(&cache), KVG_ETAINTED);
    ck_assert_int_eq(kvg_kv_cache_append(&cache, 1, NULL), KVG_ETAINTED);
    ck_assert_int_eq(kvg_kv_cache_book(&cache, 80), KVG_ETAINTED);
    ck_assert_int_eq(kvg_kv_cache_trim(&cache), KVG_ETAINTED);
    ck_assert_int_eq(kvg_kv_cache_rewind_to(&cache, 1, NULL), KVG_ETAINTED);
    ck_assert_int_eq(kvg_kv_cache_fork(&cache, 1, &child, NULL), KVG_ETAINTED);
    ck_assert_int_eq(kvg_kv_cache_rollback(&cache, &snapshot, 0, NULL), KVG_ETAINTED);
    ck_assert(!kvg_kv_cache_can_rollback(&cache, &snapshot, 0));
    ck_assert_int_eq(kvg_kv_cache_leaves(&cache, leaves), KVG_ETAINTED);
    KvCache both[2] = {cache, child};
    close_all(both, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_snapshot");
    TCase *tcase = tcase_create("cache_snapshot");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_a_rollback_is_exact_and_refused_once_its_rows_were_written_over, 0, LAYOUTS);
    tcase_add_test(tcase, test_many_cuts_never_let_a_bad_snapshot_through);
    tcase_add_loop_test(tcase, test_a_tainted_cache_answers_nothing_but_close, 0, LAYOUTS);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

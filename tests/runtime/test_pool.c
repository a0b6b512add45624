/* Pools of chunk ids: who holds what, which is reused first, and that broken counts are found. */
#include <check.h>

#include "runtime/base/memory.h"
#include "runtime/state/pool.h"

static KvPool pool;

static void setup(void)
{
    ck_assert_int_eq(kvg_pool_create(&pool, 5, 9), KVG_OK);
}

static void teardown(void)
{
    kvg_pool_destroy(&pool);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}

START_TEST(test_ids_are_each_handed_out_once_and_the_last_freed_comes_first)
{
    int seen[5] = {0};

    for (int i = 0; i < 5; i++) {
        int32_t id = kvg_pool_take(&pool);
        ck_assert_int_lt(id, 5);
        ck_assert_int_eq(seen[id]++, 0);
        ck_assert_int_eq(kvg_pool_check(&pool), KVG_OK);
    }
    ck_assert_uint_eq(pool.free_count, 0);
    kvg_pool_drop(&pool, 3);
    kvg_pool_drop(&pool, 1);
    ck_assert_int_eq(kvg_pool_take(&pool), 1);
    ck_assert_int_eq(kvg_pool_take(&pool), 3);
}
END_TEST

START_TEST(test_a_shared_chunk_is_free_when_its_last_holder_drops_it)
{
    int32_t id = kvg_pool_take(&pool);

    ck_assert(!kvg_pool_shared(&pool, id));
    kvg_pool_share(&pool, id);
    kvg_pool_share(&pool, id);
    ck_assert(kvg_pool_shared(&pool, id));
    kvg_pool_drop(&pool, id);
    ck_assert(kvg_pool_shared(&pool, id));
    kvg_pool_drop(&pool, id);
    ck_assert(!kvg_pool_shared(&pool, id));
    ck_assert_uint_eq(pool.free_count, 4);
    kvg_pool_drop(&pool, id);
    ck_assert_uint_eq(pool.free_count, 5);
    ck_assert_int_eq(kvg_pool_check(&pool), KVG_OK);
}
END_TEST

START_TEST(test_taking_from_an_empty_pool_stops_the_program)
{
    for (int i = 0; i < 6; i++) kvg_pool_take(&pool);
}
END_TEST

START_TEST(test_dropping_a_free_chunk_stops_the_program)
{
    kvg_pool_drop(&pool, 2);
}
END_TEST

START_TEST(test_a_pool_grows_to_its_addresses_and_shrinks_past_free_chunks_only)
{
    int32_t low = kvg_pool_take(&pool); /* 0: ids are handed out from below */

    ck_assert(!kvg_pool_can_resize(&pool, 10));
    ck_assert(kvg_pool_can_resize(&pool, 9));
    kvg_pool_resize(&pool, 9);
    ck_assert_uint_eq(pool.free_count, 8);
    ck_assert_int_eq(kvg_pool_check(&pool), KVG_OK);
    ck_assert(kvg_pool_can_resize(&pool, 1));
    ck_assert(!kvg_pool_can_resize(&pool, 0));
    kvg_pool_resize(&pool, 1);
    ck_assert_uint_eq(pool.free_count, 0);
    ck_assert_int_eq(kvg_pool_check(&pool), KVG_OK);
    kvg_pool_drop(&pool, low);
    kvg_pool_resize(&pool, 0);
    kvg_pool_resize(&pool, 3);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(kvg_pool_take(&pool), i);
}
END_TEST

START_TEST(test_warm_chunks_are_reused_before_those_a_resize_brought)
{
    int32_t id = kvg_pool_take(&pool);

    kvg_pool_drop(&pool, id);
    kvg_pool_resize(&pool, 9);
    ck_assert_int_eq(kvg_pool_take(&pool), id);
}
END_TEST

START_TEST(test_a_counted_pool_counts_and_has_no_ids)
{
    KvPool counted;

    ck_assert_int_eq(kvg_pool_create_counted(&counted, 10, 20), KVG_OK);
    kvg_pool_take_counted(&counted, 7);
    ck_assert_uint_eq(counted.free_count, 3);
    ck_assert(!kvg_pool_can_resize(&counted, 6));
    ck_assert(kvg_pool_can_resize(&counted, 7));
    kvg_pool_resize(&counted, 7);
    ck_assert_uint_eq(counted.free_count, 0);
    kvg_pool_drop_counted(&counted, 7);
    ck_assert_uint_eq(counted.free_count, 7);
    ck_assert_int_eq(kvg_pool_check(&counted), KVG_OK);
    kvg_pool_destroy(&counted);
}
END_TEST

START_TEST(test_broken_counts_are_found_whichever_breaks)
{
    kvg_pool_take(&pool);
    pool.free_count--; /* a counter off by one, either way */
    ck_assert_int_eq(kvg_pool_check(&pool), KVG_ETAINTED);
    pool.free_count += 2;
    ck_assert_int_eq(kvg_pool_check(&pool), KVG_ETAINTED);
    pool.free_count--;
    ck_assert_int_eq(kvg_pool_check(&pool), KVG_OK);
    pool.free_ids[0] = 0; /* a held chunk in the free list */
    ck_assert_int_eq(kvg_pool_check(&pool), KVG_ETAINTED);
    pool.free_ids[0] = 5; /* a chunk past the end */
    ck_assert_int_eq(kvg_pool_check(&pool), KVG_ETAINTED);
}
END_TEST

START_TEST(test_impossible_sizes_are_refused_and_allocations_unwind)
{
    KvPool other = {0};

    ck_assert_int_eq(kvg_pool_create(&other, 6, 5), KVG_EINVAL);
    ck_assert_int_eq(kvg_pool_create(&other, 5, (uint32_t)INT32_MAX + 1), KVG_EINVAL);
    for (uint64_t nth = 0;; nth++) {
        kvg_fault_arm(nth);
        KvgStatus status = kvg_pool_create(&other, 5, 5);
        if (!kvg_fault_disarm()) break;
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert_ptr_null(other.refs);
        ck_assert_uint_eq(kvg_live_allocations(), 2); /* the fixture's */
    }
    kvg_pool_destroy(&other);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool");
    TCase *all = tcase_create("pool");

    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, test_ids_are_each_handed_out_once_and_the_last_freed_comes_first);
    tcase_add_test(all, test_a_shared_chunk_is_free_when_its_last_holder_drops_it);
    tcase_add_test_raise_signal(all, test_taking_from_an_empty_pool_stops_the_program, 6);
    tcase_add_test_raise_signal(all, test_dropping_a_free_chunk_stops_the_program, 6);
    tcase_add_test(all, test_a_pool_grows_to_its_addresses_and_shrinks_past_free_chunks_only);
    tcase_add_test(all, test_warm_chunks_are_reused_before_those_a_resize_brought);
    tcase_add_test(all, test_a_counted_pool_counts_and_has_no_ids);
    tcase_add_test(all, test_broken_counts_are_found_whichever_breaks);
    tcase_add_test(all, test_impossible_sizes_are_refused_and_allocations_unwind);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

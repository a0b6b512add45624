#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/index_ring.h>

START_TEST(test_index_ring_exists_only_below_the_context)
{
    ck_assert_uint_eq(kvg_index_ring_rows_for(0, 1048576), 0);
    ck_assert_uint_eq(kvg_index_ring_rows_for(KVG_INDEX_RING_UNSET, 5120), 0);
    ck_assert_uint_eq(kvg_index_ring_rows_for(KVG_INDEX_RING_UNSET, 5121), 5120);
    ck_assert_uint_eq(KVG_INDEX_RING_WORKING_ROWS, 5120);
    ck_assert_uint_eq(kvg_index_ring_rows_for(64, 64), 0);
    ck_assert_uint_eq(kvg_index_ring_rows_for(64, 65), 64);
    ck_assert_uint_eq(kvg_index_ring_rows_for(1000000, 16), 0);
    ck_assert_uint_eq(kvg_index_ring_default_rows(5121), 5120);
    ck_assert_uint_eq(kvg_index_ring_default_rows(0), 0);
}
END_TEST

/* Each test is a process of its own, so the policy is read anew. */
START_TEST(test_index_ring_follows_the_knob)
{
    static const struct { const char *value; uint64_t at_5121, at_64; } cases[] = {
        {"0", 0, 0}, {"63", 63, 63}, {"64", 64, 0}, {"", 5120, 0}, {"many", 5120, 0}, {NULL, 5120, 0},
    };
    unsetenv("MEMRA_DSA_INDEX_RING");
    if (cases[_i].value != NULL) setenv("KVGRID_DSA_INDEX_RING", cases[_i].value, 1);
    else unsetenv("KVGRID_DSA_INDEX_RING");
    ck_assert_uint_eq(kvg_index_ring_rows(5121), cases[_i].at_5121);
    ck_assert_uint_eq(kvg_index_ring_rows(64), cases[_i].at_64);
}
END_TEST

START_TEST(test_index_ring_below_one_pool_is_refused_where_it_is_made)
{
    uint64_t rounded = 99;
    ck_assert_int_eq(kvg_index_ring_round(63, 64, &rounded), KVG_EINVAL);
    ck_assert_uint_eq(rounded, 99);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "KVGRID_DSA_INDEX_RING"));
    ck_assert_int_eq(kvg_index_ring_round(64, 64, &rounded), KVG_OK);
    ck_assert_uint_eq(rounded, 64);
    ck_assert_int_eq(kvg_index_ring_round(127, 64, &rounded), KVG_OK);
    ck_assert_uint_eq(rounded, 64);
    ck_assert_int_eq(kvg_index_ring_round(128, 64, &rounded), KVG_OK);
    ck_assert_uint_eq(rounded, 128);
    ck_assert_int_eq(kvg_index_ring_round(0, 64, &rounded), KVG_OK);
    ck_assert_uint_eq(rounded, 0);
    ck_assert_int_eq(kvg_index_ring_round(3, 0, &rounded), KVG_OK);
    ck_assert_uint_eq(rounded, 3);
}
END_TEST

START_TEST(test_index_row_is_taken_modulo_whole_pools)
{
    ck_assert_uint_eq(kvg_index_plane_physical_row(0, 8, 838235), 838235);
    ck_assert_uint_eq(kvg_index_plane_physical_row(5120, 8, 34626), 3906);
    ck_assert_uint_eq(kvg_index_plane_physical_row(127, 64, 63), 63);
    ck_assert_uint_eq(kvg_index_plane_physical_row(127, 64, 64), 0); /* 127 rows hold one pool of 64 */
    ck_assert_uint_eq(kvg_index_plane_physical_row(7, 0, 8), 1);
    ck_assert_uint_lt(kvg_index_plane_physical_row(3, 8, UINT64_MAX), 3); /* refused at creation, still in bounds */
}
END_TEST

START_TEST(test_index_take_ends_at_the_rings_room)
{
    uint64_t take = 99;
    ck_assert_int_eq(kvg_index_ring_take(0, 8, 0, 23, 1024, &take), 1);
    ck_assert_uint_eq(take, 1024);
    ck_assert_int_eq(kvg_index_ring_take(16, 8, 1, 8, 1024, &take), 1); /* nothing live */
    ck_assert_uint_eq(take, 16);
    ck_assert_int_eq(kvg_index_ring_take(16, 8, 1, 23, 1024, &take), 1); /* 15 live */
    ck_assert_uint_eq(take, 1);
    ck_assert_int_eq(kvg_index_ring_take(16, 8, 1, 8, 3, &take), 1);
    ck_assert_uint_eq(take, 3);
    take = 99;
    ck_assert_int_eq(kvg_index_ring_take(16, 8, 1, 24, 1024, &take), 0); /* 16 live: full */
    ck_assert_int_eq(kvg_index_ring_take(16, 8, 1, 7, 1024, &take), 0);  /* behind the pools that are ready */
    ck_assert_int_eq(kvg_index_ring_take(16, 8, UINT64_MAX, 7, 1024, &take), 0);
    ck_assert_uint_eq(take, 99);
}
END_TEST

/* An append of any length drains: take, append, build the completed pools, repeat. Rows are never lost before their key. */
START_TEST(test_index_ring_drains_an_append_of_any_length)
{
    static const struct { uint64_t ring, pool; } shapes[] = {{8, 8}, {17, 4}, {5, 1}, {64, 2}, {0, 4}};
    uint64_t ring, pool = shapes[_i].pool, ready = 0, cur = 0, lengths[] = {1, 3, 7, 1000, 64, 65};
    uint64_t plane[4096];
    ck_assert_int_eq(kvg_index_ring_round(shapes[_i].ring, pool, &ring), KVG_OK);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint64_t end = cur + lengths[i];
        while (cur < end) {
            uint64_t take = 0;
            ck_assert_int_eq(kvg_index_ring_take(ring, pool, ready, cur, end - cur, &take), 1);
            ck_assert_uint_gt(take, 0);
            for (; take > 0; take--, cur++) plane[kvg_index_plane_physical_row(ring, pool, cur)] = cur;
            for (; (ready + 1) * pool <= cur; ready++) {
                for (uint64_t row = ready * pool; row < (ready + 1) * pool; row++) {
                    ck_assert_uint_eq(plane[kvg_index_plane_physical_row(ring, pool, row)], row);
                }
            }
        }
        ck_assert_uint_eq(ready, cur / pool);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("index ring");
    TCase *tcase = tcase_create("rules");
    tcase_add_test(tcase, test_index_ring_exists_only_below_the_context);
    const char *fork_mode = getenv("CK_FORK"); /* one process would read the policy once */
    if (fork_mode == NULL || strcmp(fork_mode, "no") != 0) tcase_add_loop_test(tcase, test_index_ring_follows_the_knob, 0, 6);
    tcase_add_test(tcase, test_index_ring_below_one_pool_is_refused_where_it_is_made);
    tcase_add_test(tcase, test_index_row_is_taken_modulo_whole_pools);
    tcase_add_test(tcase, test_index_take_ends_at_the_rings_room);
    tcase_add_loop_test(tcase, test_index_ring_drains_an_append_of_any_length, 0, 5);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int ran = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return ran == 0 || failed != 0;
}

/* Cache: steps, booking and windows of one sequence, in every layout. */
#include "tests/runtime/cache_fixture.h"

START_TEST(test_every_row_in_view_is_held_as_it_was_written)
{
    KvCache cache;

    open_layout(_i, 64);
    kvg_kv_cache_open(fixture.store, 1, 1, &cache);
    for (uint64_t len = 1; len < 2000; len += 37) {
        grow_to(&cache, len, 0);
        ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
        ck_assert(fixture_row_is(&fixture, 1, len, len - 1, len - 1));
        ck_assert(fixture_row_is(&fixture, 1, len, len / 2, len / 2));
        ck_assert(fixture_row_is(&fixture, 1, len, 0, 0));
        ck_assert(!fixture_row_is(&fixture, 1, len, len - 1, len)); /* the comparison can fail */
    }
    close_all(&cache, 1);
}
END_TEST

/* ---- steps */

START_TEST(test_a_partial_commit_and_a_full_rollback_leave_what_a_straight_run_leaves)
{
    static const uint64_t starts[] = {0, 1, 62, 63, 64, 65, 127, 128, 700, 1300};

    open_layout(_i, 64);
    for (size_t s = 0; s < sizeof starts / sizeof starts[0]; s++) {
        for (uint64_t accepted = 0; accepted <= 4; accepted++) { /* of four drafts: 0, 1, n-1, n and between */
            KvCache cache = open_cache(0);
            grow_to(&cache, starts[s], 0);
            fixture_step(&fixture, &cache, 4, accepted, starts[s] + 5000);
            KvDigest got = fixture_digest(&cache), wanted = straight_digest(starts[s] + accepted, starts[s], 0, 5000);
            assert_same(&got, &wanted);
            grow_to(&cache, starts[s] + 70, 9000); /* rows left behind by rejected drafts are written over */
            got = fixture_digest(&cache);
            ck_assert_uint_eq(cache.pos, starts[s] + 70);
            for (uint64_t row = starts[s] + accepted; row < cache.pos; row++) ck_assert(fixture_row_is(&fixture, 0, cache.pos, row, row + 9000));
            kvg_kv_cache_close(&cache, NULL);
        }
    }
    close_all(NULL, 0);
}
END_TEST

START_TEST(test_digest_and_snapshot_in_an_open_step_are_of_committed_rows)
{
    KvCacheSnapshot snapshot;

    open_layout(_i, 64);
    KvCache  cache = open_cache(1);
    grow_to(&cache, 90, 0);
    KvDigest before = fixture_digest(&cache);
    ck_assert_int_eq(kvg_kv_cache_begin(&cache), KVG_OK);
    ck_assert_int_eq(kvg_kv_cache_append(&cache, 3, NULL), KVG_OK);
    for (uint64_t r = 90; r < 93; r++) fixture_write(&fixture, 1, r, r + 4000);
    KvDigest during = fixture_digest(&cache);
    assert_same(&during, &before);
    fixture_snapshot(&cache, &snapshot);
    ck_assert_uint_eq(snapshot.pos, 90);
    const KvPlaneView *view = kvg_store_view(fixture.store, 0);
    ck_assert_uint_eq(view->len[1], 90);
    ck_assert_uint_eq(view->len_staged[1], 93);
    kvg_kv_cache_finalize(&cache, 1);
    ck_assert_uint_eq(view->len[1], 91);
    ck_assert_uint_eq(view->len_staged[1], 91);
    close_all(&cache, 1);
}
END_TEST

START_TEST(test_several_passes_of_one_step_commit_together)
{
    open_layout(_i, 64);
    KvCache cache = open_cache(0);
    ck_assert_int_eq(kvg_kv_cache_begin(&cache), KVG_OK);
    for (uint64_t pass = 0; pass < 3; pass++) {
        ck_assert_int_eq(kvg_kv_cache_append(&cache, 30, NULL), KVG_OK);
        for (uint64_t r = pass * 30; r < pass * 30 + 30; r++) fixture_write(&fixture, 0, r, r);
        ck_assert_uint_eq(kvg_kv_cache_staged(&cache), pass * 30 + 30);
    }
    kvg_kv_cache_finalize(&cache, 75);
    KvDigest got = fixture_digest(&cache), wanted = straight_digest(75, 75, 0, 0);
    assert_same(&got, &wanted);
    close_all(&cache, 1);
}
END_TEST

START_TEST(test_calls_out_of_turn_are_refused_and_change_nothing)
{
    open_layout(_i, 64);
    KvCache cache = open_cache(0), other = open_cache(1);
    ck_assert_int_eq(kvg_kv_cache_append(&cache, 1, NULL), KVG_ESTALE);
    grow_to(&cache, 10, 0);
    KvDigest before = fixture_digest(&cache);
    ck_assert_int_eq(kvg_kv_cache_begin(&cache), KVG_OK);
    ck_assert_int_eq(kvg_kv_cache_begin(&cache), KVG_EBUSY);
    ck_assert_int_eq(kvg_kv_cache_append(&cache, 0, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_kv_cache_trim(&cache), KVG_EBUSY);
    ck_assert_int_eq(kvg_kv_cache_fork(&cache, 5, &other, NULL), KVG_EBUSY);
    ck_assert_uint_eq(kvg_kv_cache_staged(&cache), 10);
    kvg_kv_cache_finalize(&cache, 0);
    KvDigest after = fixture_digest(&cache);
    assert_same(&after, &before);
    ck_assert_int_eq(kvg_kv_cache_fork(&other, 0, &cache, NULL), KVG_EBUSY); /* into one that is not fresh */
    KvCache both[2] = {cache, other};
    close_all(both, 2);
}
END_TEST

START_TEST(test_the_context_is_the_last_row_there_is)
{
    open_layout(_i, 64);
    KvCache cache = open_cache(0);
    grow_to(&cache, MAX_CTX - 4, 0);
    ck_assert_int_eq(kvg_kv_cache_begin(&cache), KVG_OK);
    ck_assert_int_eq(kvg_kv_cache_append(&cache, 5, NULL), KVG_ECAPACITY);
    ck_assert_uint_eq(kvg_kv_cache_staged(&cache), MAX_CTX - 4);
    ck_assert_int_eq(kvg_kv_cache_append(&cache, 4, NULL), KVG_OK);
    for (uint64_t r = MAX_CTX - 4; r < MAX_CTX; r++) fixture_write(&fixture, 0, r, r);
    ck_assert_int_eq(kvg_kv_cache_append(&cache, 1, NULL), KVG_ECAPACITY);
    kvg_kv_cache_finalize(&cache, 4);
    ck_assert_int_eq(kvg_kv_cache_book(&cache, MAX_CTX), KVG_OK);
    ck_assert_int_eq(kvg_kv_cache_book(&cache, MAX_CTX + 1), KVG_ECAPACITY);
    ck_assert_int_eq(kvg_kv_cache_rewind_to(&cache, MAX_CTX + 1, NULL), KVG_ECAPACITY);
    close_all(&cache, 1);
}
END_TEST

/* ---- booking */

START_TEST(test_units_are_booked_by_the_row_and_not_one_early)
{
    uint32_t need[KVG_CLASSES_MAX];

    open_layout(0, 64);
    KvCache cache = open_cache(0);
    grow_to(&cache, 10, 0);
    kvg_kv_cache_need(&cache, 64, need);
    ck_assert(need[0] == 0 && need[1] == 0 && need[2] == 0);
    kvg_kv_cache_need(&cache, 65, need);
    ck_assert(need[0] == 1 && need[1] == 1 && need[2] == 1);
    uint32_t units_free = kvg_store_units_free(fixture.store, 0);
    grow_to(&cache, 64, 0);
    ck_assert_uint_eq(kvg_store_units_free(fixture.store, 0), units_free);
    grow_to(&cache, 65, 0);
    ck_assert_uint_eq(kvg_store_units_free(fixture.store, 0), units_free - 1);
    ck_assert_int_eq(kvg_kv_cache_book(&cache, 640), KVG_OK);
    ck_assert_int_eq(kvg_kv_cache_book(&cache, 640), KVG_OK); /* asked twice, booked once */
    ck_assert_uint_eq(kvg_store_held(fixture.store, 0, 0), 10);
    close_all(&cache, 1);
}
END_TEST

START_TEST(test_a_booking_that_one_class_cannot_fill_takes_nothing_from_any)
{
    open_layout(0, 12);
    KvCache cache = open_cache(0), hog = open_cache(1);
    ck_assert_int_eq(kvg_store_book(fixture.store, (uint32_t)_i, 1, 10), KVG_OK); /* two units left in this class */
    ck_assert_int_eq(kvg_kv_cache_book(&cache, 129), KVG_ECAPACITY);              /* three are needed */
    for (uint32_t c = 0; c < FIXTURE_CLASSES; c++) {
        ck_assert_uint_eq(kvg_store_held(fixture.store, c, 0), 0);
        ck_assert_uint_eq(kvg_store_units_free(fixture.store, c), c == (uint32_t)_i ? 2 : 12);
    }
    ck_assert_int_eq(kvg_kv_cache_begin(&cache), KVG_OK);
    ck_assert_int_eq(kvg_kv_cache_append(&cache, 129, NULL), KVG_ECAPACITY);
    ck_assert_uint_eq(kvg_kv_cache_staged(&cache), 0);
    ck_assert_int_eq(kvg_kv_cache_append(&cache, 128, NULL), KVG_OK);
    ck_assert_uint_eq(kvg_store_units_free(fixture.store, (uint32_t)_i), 0);
    KvCache both[2] = {cache, hog};
    close_all(both, 2); /* one of them in the middle of a step */
}
END_TEST

START_TEST(test_what_open_guaranteed_is_there_when_all_else_is_taken)
{
    open_layout(0, 64);
    KvCache cache = open_cache(0), hog = open_cache(1);
    ck_assert_int_eq(kvg_kv_cache_book(&cache, 1500), KVG_OK);
    ck_assert_uint_eq(kvg_store_held(fixture.store, 0, 0), 24);
    ck_assert_uint_eq(kvg_store_held(fixture.store, 1, 0), fixture.classes[1].unit_cap); /* and no more: they slide along */
    for (uint32_t c = 0; c < FIXTURE_CLASSES; c++) {
        uint32_t left = kvg_store_units_free(fixture.store, c);
        ck_assert_int_eq(kvg_store_book(fixture.store, c, 1, left < 46 ? left : 46), KVG_OK);
    }
    KvCache third = open_cache(2);
    uint32_t rest = kvg_store_units_free(fixture.store, 1);
    ck_assert_int_eq(kvg_store_book(fixture.store, 1, 2, rest), KVG_OK);
    grow_to(&cache, 1500, 0); /* asserts that no step is refused */
    ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
    KvCache all[3] = {cache, hog, third};
    close_all(all, 3);
}
END_TEST

START_TEST(test_trim_gives_back_what_lies_past_the_rows)
{
    open_layout(_i, 64);
    KvCache cache = open_cache(0);
    grow_to(&cache, 65, 0);
    ck_assert_int_eq(kvg_kv_cache_book(&cache, 1000), KVG_OK);
    ck_assert_int_eq(kvg_kv_cache_trim(&cache), KVG_OK);
    ck_assert_uint_eq(kvg_store_held(fixture.store, 0, 0), 2);
    ck_assert_uint_eq(kvg_store_held(fixture.store, 2, 0), 2);
    ck_assert_uint_eq(cache.guarantee, 65);
    for (uint64_t row = 0; row < 65; row++) ck_assert(fixture_row_is(&fixture, 0, 65, row, row));
    grow_to(&cache, 300, 0);
    close_all(&cache, 1);
}
END_TEST

START_TEST(test_no_memory_in_a_flat_step_is_taken_back_and_the_next_try_goes_on)
{
    open_layout(_i, 64);
    KvCache  cache = open_cache(0);
    grow_to(&cache, 64, 0);
    KvDigest before = fixture_digest(&cache);
    for (uint64_t nth = 0;; nth++) {
        ck_assert_int_eq(kvg_kv_cache_begin(&cache), KVG_OK);
        kvg_fault_arm(nth);
        KvgStatus status = kvg_kv_cache_append(&cache, 10, NULL);
        if (!kvg_fault_disarm()) {
            ck_assert_int_eq(status, KVG_OK);
            ck_assert_uint_ge(nth, 2);
            kvg_kv_cache_finalize(&cache, 0);
            break;
        }
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert_uint_eq(kvg_kv_cache_staged(&cache), 74); /* counted as on the ranks that had the memory, until the vote takes it back */
        ck_assert_uint_eq(kvg_store_end(fixture.store, 0, 0), 2);
        ck_assert_uint_eq(kvg_store_end(fixture.store, 2, 0), 2);
        kvg_kv_cache_finalize(&cache, 0);
        KvDigest after = fixture_digest(&cache);
        assert_same(&after, &before);
        ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
    }
    grow_to(&cache, 300, 0);
    for (uint64_t row = 0; row < 300; row++) ck_assert(fixture_row_is(&fixture, 0, 300, row, row));
    close_all(&cache, 1);
}
END_TEST

/* ---- windows */

START_TEST(test_no_row_that_a_query_may_see_is_evicted_before_or_during_a_step)
{
    open_layout(_i, 64);
    KvCache            cache = open_cache(0);
    const KvPlaneView *view = kvg_store_view(fixture.store, 1);
    while (cache.pos + PREFILL <= 2500) {
        uint64_t len = cache.pos;
        ck_assert_int_eq(kvg_kv_cache_begin(&cache), KVG_OK);
        ck_assert_int_eq(kvg_kv_cache_append(&cache, PREFILL, NULL), KVG_OK);
        for (uint64_t r = len; r < len + PREFILL; r++) fixture_write(&fixture, 0, r, r);
        /* the step's first query stands at row len and sees W-1 rows before it; its last sees row len + S - W on: W + S - 1 rows */
        for (uint64_t r = len > WINDOW - 1 ? len - (WINDOW - 1) : 0; r < len + PREFILL; r++) {
            ck_assert(fixture_plane_row_is(view, &view->k, 0, 0, r, r));
            ck_assert(fixture_plane_row_is(view, &view->v, 1, 0, r, r));
        }
        kvg_kv_cache_finalize(&cache, PREFILL - 7);
        kvg_kv_cache_release_behind(&cache);
        for (uint64_t r = cache.pos - (WINDOW - 1); r < cache.pos; r++) ck_assert(fixture_plane_row_is(view, &view->k, 0, 0, r, r));
    }
    ck_assert_uint_gt(view->base_row[0], 0); /* or nothing was evicted at all */
    close_all(&cache, 1);
}
END_TEST

START_TEST(test_a_small_window_counts_the_current_token)
{
    fixture_open(&fixture, _i == 0 ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT, _i != 2, 8, 1, MAX_CTX, 4, 64);
    KvCache            cache = open_cache(0);
    const KvPlaneView *view = kvg_store_view(fixture.store, 1);
    grow_to(&cache, 6, 0);
    for (uint64_t len = 7; len < 1300; len++) {
        fixture_step(&fixture, &cache, 1, 1, len - 1);
        for (uint64_t r = len > 8 ? len - 8 : 0; r < len; r += 7) ck_assert(fixture_plane_row_is(view, &view->k, 0, 0, r, r));
        ck_assert_uint_le(view->base_row[0], len > 8 ? len - 8 : 0);
    }
    close_all(&cache, 1);
}
END_TEST

START_TEST(test_a_windowed_pool_class_holds_at_most_its_cap)
{
    open_layout(0, 64);
    KvCache  cache = open_cache(0);
    uint32_t cap = fixture.classes[1].unit_cap, most = 0;
    ck_assert_uint_eq(cap, (40 + 100 + 512 + 31 + 63) / 64 + 1);
    for (uint64_t r = 0; cache.pos + PREFILL < MAX_CTX; r++) {
        fixture_step(&fixture, &cache, PREFILL, PREFILL - r % 3, cache.pos);
        uint32_t held = kvg_store_held(fixture.store, 1, 0);
        most = held > most ? held : most;
    }
    ck_assert_uint_le(most, cap);
    ck_assert_uint_ge(most, cap - 2);
    ck_assert_uint_eq(kvg_store_held(fixture.store, 2, 0), (cache.pos + 63) / 64); /* no ring: every row is kept */
    close_all(&cache, 1);
}
END_TEST

START_TEST(test_an_append_that_one_ring_cannot_take_moves_nothing_in_any_class)
{
    open_layout(_i, 64);
    KvCache            cache = open_cache(0);
    const KvPlaneView *view = kvg_store_view(fixture.store, 1);
    grow_to(&cache, 650, 0);
    KvDigest before = fixture_digest(&cache);
    uint32_t base = view->base_row[0];
    ck_assert_int_eq(kvg_kv_cache_begin(&cache), KVG_OK);
    ck_assert_int_eq(kvg_kv_cache_append(&cache, 900, NULL), KVG_ENOFIT); /* class 0 and 2 could take it */
    ck_assert_uint_eq(kvg_kv_cache_staged(&cache), 650);
    ck_assert_uint_eq(view->base_row[0], base);
    ck_assert_uint_eq(kvg_store_end(fixture.store, 0, 0), (650 + 63) / 64);
    kvg_kv_cache_finalize(&cache, 0);
    KvDigest after = fixture_digest(&cache);
    assert_same(&after, &before);
    close_all(&cache, 1);
}
END_TEST

START_TEST(test_a_rewind_goes_as_far_as_the_window_is_held_and_no_further)
{
    open_layout(_i, 64);
    KvCache  cache = open_cache(0);
    grow_to(&cache, 1500, 0);
    uint64_t base = kvg_store_view(fixture.store, 1)->base_row[0], lowest = base;
    ck_assert_uint_gt(base, 0);
    while (kvg_view_start(lowest, WINDOW) < base) lowest++;
    if (_i == 0) ck_assert_uint_ge(cache.pos - lowest, 512 - 31); /* the slack is there for this */
    KvDigest before = fixture_digest(&cache);
    ck_assert_int_eq(kvg_kv_cache_rewind_to(&cache, lowest - 1, NULL), KVG_ELAPPED);
    ck_assert_int_eq(kvg_kv_cache_rewind_to(&cache, 0, NULL), KVG_ELAPPED);
    ck_assert_int_eq(kvg_kv_cache_rewind_to(&cache, 1501, NULL), KVG_EINVAL);
    KvDigest after = fixture_digest(&cache);
    assert_same(&after, &before);
    ck_assert_int_eq(kvg_kv_cache_rewind_to(&cache, lowest, NULL), KVG_OK);
    KvDigest got = fixture_digest(&cache), wanted = straight_digest(lowest, lowest, 0, 0);
    assert_same(&got, &wanted);
    grow_to(&cache, lowest + 300, 6000);
    wanted = straight_digest(lowest + 300, lowest, 0, 6000);
    got = fixture_digest(&cache);
    assert_same(&got, &wanted);
    close_all(&cache, 1);
}
END_TEST

START_TEST(test_with_two_windows_the_one_that_lost_most_decides)
{
    fixture_describe(&fixture, _i == 0 ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT, WINDOW, PREFILL, MAX_CTX, 4, 64);
    fixture.classes[2] = fixture_class(fixture.options.layout, 300, 1, PREFILL, MAX_CTX, 64);
    ck_assert_int_eq(_i == 2 ? kvg_dev_host_plain(&fixture.dev) : kvg_dev_host(&fixture.dev), KVG_OK);
    ck_assert_int_eq(kvg_store_create(&fixture.options, &fixture.store), KVG_OK);
    KvCache  cache = open_cache(0);
    grow_to(&cache, 1900, 0);
    uint64_t base1 = kvg_store_view(fixture.store, 1)->base_row[0], base2 = kvg_store_view(fixture.store, 4)->base_row[0];
    ck_assert_uint_ne(base1, base2);
    for (uint64_t len = 1899; len > 1000; len -= 31) {
        int held = kvg_view_start(len, WINDOW) >= base1 && kvg_view_start(len, 300) >= base2;
        KvCacheSnapshot snapshot = {.serial = cache.serial, .pos = len, .cuts = cache.cuts.count};
        ck_assert_int_eq(kvg_kv_cache_can_rollback(&cache, &snapshot, 0), held);
        if (!held) ck_assert_int_eq(kvg_kv_cache_rewind_to(&cache, len, NULL), KVG_ELAPPED);
    }
    close_all(&cache, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache");
    TCase *tcase = tcase_create("cache");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_every_row_in_view_is_held_as_it_was_written, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_a_partial_commit_and_a_full_rollback_leave_what_a_straight_run_leaves, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_digest_and_snapshot_in_an_open_step_are_of_committed_rows, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_several_passes_of_one_step_commit_together, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_calls_out_of_turn_are_refused_and_change_nothing, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_the_context_is_the_last_row_there_is, 0, LAYOUTS);
    tcase_add_test(tcase, test_units_are_booked_by_the_row_and_not_one_early);
    tcase_add_loop_test(tcase, test_a_booking_that_one_class_cannot_fill_takes_nothing_from_any, 0, FIXTURE_CLASSES);
    tcase_add_test(tcase, test_what_open_guaranteed_is_there_when_all_else_is_taken);
    tcase_add_loop_test(tcase, test_trim_gives_back_what_lies_past_the_rows, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_no_memory_in_a_flat_step_is_taken_back_and_the_next_try_goes_on, 1, LAYOUTS);
    tcase_add_loop_test(tcase, test_no_row_that_a_query_may_see_is_evicted_before_or_during_a_step, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_a_small_window_counts_the_current_token, 0, LAYOUTS);
    tcase_add_test(tcase, test_a_windowed_pool_class_holds_at_most_its_cap);
    tcase_add_loop_test(tcase, test_an_append_that_one_ring_cannot_take_moves_nothing_in_any_class, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_a_rewind_goes_as_far_as_the_window_is_held_and_no_further, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_with_two_windows_the_one_that_lost_most_decides, 0, LAYOUTS);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/ring.h>

static KvRing ring_of(uint64_t rows, uint64_t window, uint64_t base)
{
    KvRing ring;
    ck_assert_int_eq(kvg_kv_ring_init(&ring, rows, window), KVG_OK);
    ring.base = base;
    return ring;
}

START_TEST(test_ring_rows_are_window_chunk_slack_and_alignment_capped_by_context)
{
    static const struct { uint64_t window, max_ctx, rows; } cases[] = {
        {512, 262144, 5151}, {511, 262144, 5150}, {513, 262144, 5152}, {1, 262144, 4640}, {4096, UINT64_MAX, 8735},
        {512, 5152, 5151}, {512, 5151, 5151}, {512, 5150, 5150}, {512, 0, 0}, {0, 262144, 4639},
        {UINT64_MAX - 4639, UINT64_MAX, UINT64_MAX}, {UINT64_MAX - 4640, UINT64_MAX, UINT64_MAX - 1},
        {UINT64_MAX - 4638, UINT64_MAX, UINT64_MAX}, {UINT64_MAX, 7, 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_uint_eq(kvg_swa_ring_rows(cases[i].window, cases[i].max_ctx), cases[i].rows);
    }
    ck_assert_uint_eq(KVG_PRIME_CHUNK_MAX_TOKENS, 4096);
    ck_assert_uint_eq(KVG_SWA_REWIND_SLACK_ROWS, 512);
}
END_TEST

START_TEST(test_ring_rows_follow_a_placements_own_chunk)
{
    ck_assert_uint_eq(kvg_swa_ring_rows_chunk(512, 262144, 256), 512 + 256 + 512 + 31);
    ck_assert_uint_eq(kvg_swa_ring_rows_chunk(512, 262144, 0), 5151);
    ck_assert_uint_eq(kvg_swa_ring_rows_chunk(512, 262144, 1), 512 + 1 + 512 + 31);
    ck_assert_uint_eq(kvg_swa_ring_rows_chunk(512, 99, UINT64_MAX), 99);
}
END_TEST

START_TEST(test_prime_chunks_are_split_only_while_a_ring_is_on)
{
    ck_assert_uint_eq(kvg_prime_chunk_tokens(4095, 0, 1), 4095);
    ck_assert_uint_eq(kvg_prime_chunk_tokens(4096, 0, 1), 4096);
    ck_assert_uint_eq(kvg_prime_chunk_tokens(4097, 0, 1), 4096);
    ck_assert_uint_eq(kvg_prime_chunk_tokens(4097, 0, 0), 4097);
    ck_assert_uint_eq(kvg_prime_chunk_tokens(4097, 256, 1), 256);
    ck_assert_uint_eq(kvg_prime_chunk_tokens(0, 256, 1), 0);
}
END_TEST

/* Naive: the first row that the token at position `len` attends is len - (window - 1); views start at multiples of 32. */
START_TEST(test_view_starts_at_or_just_before_the_first_attended_row)
{
    static const uint64_t windows[] = {1, 2, 8, 31, 32, 33, 128, 1024};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        for (uint64_t len = 0; len < 2500; len++) {
            uint64_t attended = len + 1 > windows[w] ? len + 1 - windows[w] : 0;
            uint64_t view = kvg_view_start(len, windows[w]);
            ck_assert_uint_le(view, attended);
            ck_assert_uint_lt(attended - view, 32);
            ck_assert_uint_eq(view % 32, 0);
        }
    }
}
END_TEST

/* Case B85: the window counts the current token: position 200 attends 73..200, position 2000 attends 977..2000. */
START_TEST(test_window_counts_the_current_token)
{
    ck_assert_uint_eq(kvg_view_start(200, 128), 64);
    ck_assert_uint_eq(kvg_view_start(222, 128), 64);  /* 95 */
    ck_assert_uint_eq(kvg_view_start(223, 128), 96);  /* 96 exactly */
    ck_assert_uint_eq(kvg_view_start(2000, 1024), 960);
    ck_assert_uint_eq(kvg_view_start(2014, 1024), 960);
    ck_assert_uint_eq(kvg_view_start(2015, 1024), 992);
}
END_TEST

/* Case B81: with a window of 8 nothing is dropped before length 9, whatever the alignment drops later. */
START_TEST(test_no_row_leaves_a_view_a_step_early)
{
    ck_assert_uint_eq(kvg_view_start(7, 8), 0);
    ck_assert_uint_eq(kvg_view_start(8, 8), 0);
    ck_assert_uint_eq(kvg_view_start(38, 8), 0);  /* attends 31..38 */
    ck_assert_uint_eq(kvg_view_start(39, 8), 32); /* attends 32..39 */
}
END_TEST

/* Case B93: at window 128 no position from len - 127 on is given up, and 512 rows more are kept for rewinds. */
START_TEST(test_retained_rows_cover_the_window_and_the_slack)
{
    for (uint64_t len = 0; len < 3000; len++) {
        uint64_t from = kvg_swa_retain_from(len, 128, 0);
        ck_assert_uint_le(from + 127 + 512, len < 639 ? 639 : len);
        ck_assert_uint_eq(from % 32, 0);
    }
    ck_assert_uint_eq(kvg_swa_retain_from(12113, 128, 0), 11456);
    ck_assert_uint_eq(kvg_swa_retain_from(12113, 128, 11457), 11457); /* never goes back */
    ck_assert_uint_eq(kvg_swa_retain_from(0, 128, 0), 0);
}
END_TEST

START_TEST(test_ring_of_no_rows_or_no_window_is_refused)
{
    KvRing ring = {7, 7, 7};
    ck_assert_int_eq(kvg_kv_ring_init(&ring, 0, 8), KVG_EINVAL);
    ck_assert_int_eq(kvg_kv_ring_init(&ring, 8, 0), KVG_EINVAL);
    ck_assert_uint_eq(ring.rows, 7);
    ck_assert_int_eq(kvg_kv_ring_init(&ring, 1, 1), KVG_OK);
    ck_assert_uint_eq(ring.base, 0);
}
END_TEST

/* S6's check: window 32, 4671 rows, base 4096, length 8762. */
START_TEST(test_append_that_does_not_fit_moves_what_is_needed_to_the_front)
{
    KvRing ring = ring_of(4671, 32, 4096);
    KvRingAppend plan;

    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 8762, kvg_view_start(8762, 32), 5, &plan), KVG_OK);
    ck_assert_int_eq(plan.kind, KVG_RING_CONTIGUOUS);
    ck_assert_uint_eq(plan.write_row, 4666);
    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 8762, kvg_view_start(8762, 32), 6, &plan), KVG_OK);
    ck_assert_int_eq(plan.kind, KVG_RING_REBASE);
    ck_assert_uint_eq(plan.src_row, 4608);
    ck_assert_uint_eq(plan.keep_rows, 58);
    ck_assert_uint_eq(plan.new_base, 8704);
    ck_assert_uint_eq(plan.write_row, 58);
    ck_assert_uint_eq(ring.base, 4096); /* planning changes nothing */
    kvg_kv_ring_apply_rebase(&ring, &plan);
    uint64_t first, past;
    ck_assert_int_eq(kvg_kv_ring_physical_range(&ring, 8740, 8772, &first, &past), KVG_OK);
    ck_assert_uint_eq(first, 36);
    ck_assert_uint_eq(past, 68);
}
END_TEST

/* S6: an append outside a transaction keeps the slack too; with window 4096 what it moves overlaps where it goes. */
START_TEST(test_rebase_may_overlap_itself)
{
    KvRing ring = ring_of(8735, 4096, 0);
    KvRingAppend plan;
    uint64_t len = 8192, retain = kvg_swa_retain_from(len, 4096, 0);

    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, len, retain, 544, &plan), KVG_OK);
    ck_assert_int_eq(plan.kind, KVG_RING_REBASE);
    ck_assert_uint_eq(plan.src_row, 3584);
    ck_assert_uint_eq(plan.keep_rows, 4608);
    ck_assert_uint_lt(plan.src_row, plan.keep_rows);
}
END_TEST

START_TEST(test_append_plan_refuses_rows_that_are_not_held)
{
    KvRing ring = ring_of(64, 8, 32);
    KvRingAppend plan = {.write_row = 77};

    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 31, 31, 1, &plan), KVG_ELAPPED); /* len < base */
    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 40, 31, 1, &plan), KVG_ELAPPED); /* retain < base */
    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 40, 41, 1, &plan), KVG_ELAPPED); /* retain > len */
    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 97, 96, 1, &plan), KVG_ELAPPED); /* 65 rows in 64 */
    ck_assert_uint_eq(plan.write_row, 77);
    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 96, 96, 1, &plan), KVG_OK);
    ck_assert_int_eq(plan.kind, KVG_RING_REBASE);
    ck_assert_uint_eq(plan.keep_rows, 0);
}
END_TEST

START_TEST(test_append_plan_fits_to_the_last_row_and_not_one_more)
{
    KvRing ring = ring_of(64, 8, 0);
    KvRingAppend plan;

    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 40, 32, 24, &plan), KVG_OK);
    ck_assert_int_eq(plan.kind, KVG_RING_CONTIGUOUS);
    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 40, 32, 25, &plan), KVG_OK);
    ck_assert_int_eq(plan.kind, KVG_RING_REBASE);
    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 40, 32, 56, &plan), KVG_OK);
    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 40, 32, 57, &plan), KVG_ENOFIT);
    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 40, 32, UINT64_MAX, &plan), KVG_ENOFIT);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "64 rows"));
    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 64, 32, 0, &plan), KVG_OK);
    ck_assert_int_eq(plan.kind, KVG_RING_CONTIGUOUS);
    ck_assert_uint_eq(plan.write_row, 0); /* row 64 modulo 64: nothing is written there */
}
END_TEST

START_TEST(test_physical_range_answers_at_its_edges)
{
    KvRing ring = ring_of(64, 8, 32);
    uint64_t first = 5, past = 5;

    ck_assert_int_eq(kvg_kv_ring_physical_range(&ring, 31, 40, &first, &past), KVG_ELAPPED);
    ck_assert_int_eq(kvg_kv_ring_physical_range(&ring, 40, 39, &first, &past), KVG_ELAPPED);
    ck_assert_int_eq(kvg_kv_ring_physical_range(&ring, 32, 97, &first, &past), KVG_ELAPPED);
    ck_assert_uint_eq(first + past, 10);
    ck_assert_int_eq(kvg_kv_ring_physical_range(&ring, 32, 96, &first, &past), KVG_OK);
    ck_assert_uint_eq(first, 0);
    ck_assert_uint_eq(past, 64);
    ck_assert_int_eq(kvg_kv_ring_physical_range(&ring, 96, 96, &first, &past), KVG_OK);
    ck_assert_uint_eq(first, 0); /* row 64 modulo 64 */
    ck_assert_uint_eq(past, 0);
}
END_TEST

/* Case B88: what may be rewound follows from what is held, to the row. */
START_TEST(test_rewind_reaches_as_far_as_the_view_is_held)
{
    KvRing ring = ring_of(5663, 1024, 3968);
    uint64_t start, first, past;

    ck_assert_int_eq(kvg_kv_ring_can_rewind_to(&ring, 5000), 1);
    ck_assert_int_eq(kvg_kv_ring_can_rewind_to(&ring, 3968 + 1023), 1);
    ck_assert_int_eq(kvg_kv_ring_can_rewind_to(&ring, 3968 + 1022), 0);
    ck_assert_int_eq(kvg_kv_ring_can_rewind_to(&ring, 0), 0);
    ck_assert_int_eq(kvg_kv_ring_restore_plan(&ring, 5000, &start, &first, &past), KVG_OK);
    ck_assert_uint_eq(start, 3968);
    ck_assert_uint_eq(first, 0);
    ck_assert_uint_eq(past, 5000 - 3968);
    ck_assert_int_eq(kvg_kv_ring_restore_plan(&ring, 3968 + 1022, &start, &first, &past), KVG_ELAPPED);
    ck_assert_uint_eq(start, 3968);
}
END_TEST

/* Cases B83, B84, B91: a ring of real rows against the plain list of all rows ever appended. After each append the rows in
 * view of the length before it, and all new ones, are where the ring says; so a rollback of the whole append is exact. */
START_TEST(test_ring_of_rows_holds_what_a_plain_list_holds)
{
    static const struct { uint64_t rows, window, chunk; } shapes[] = {{64, 1, 33}, {96, 4, 10}, {128, 32, 33}, {200, 33, 100}};
    uint64_t rows = shapes[_i].rows, window = shapes[_i].window;
    uint64_t *plane = calloc(rows, sizeof *plane);
    KvRing ring = ring_of(rows, window, 0);
    int rebases = 0;
    ck_assert_ptr_nonnull(plane);
    srand(7);
    for (uint64_t len = 0; len < 4000;) {
        uint64_t n = 1 + (uint64_t)rand() % shapes[_i].chunk, retain = kvg_view_start(len, window);
        KvRingAppend plan;
        ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, len, retain, n, &plan), KVG_OK);
        if (plan.kind == KVG_RING_REBASE) {
            memmove(plane, plane + plan.src_row, plan.keep_rows * sizeof *plane);
            rebases++;
        }
        kvg_kv_ring_apply_rebase(&ring, &plan);
        for (uint64_t i = 0; i < n; i++) plane[plan.write_row + i] = len + i; /* a row holds its own position */
        uint64_t first, past;
        ck_assert_int_eq(kvg_kv_ring_physical_range(&ring, retain, len + n, &first, &past), KVG_OK);
        ck_assert_uint_le(past, rows);
        uint64_t wrong = 0;
        for (uint64_t row = retain; row < len + n; row++) wrong += plane[first + row - retain] != row;
        ck_assert_uint_eq(wrong, 0);
        ck_assert_int_eq(kvg_kv_ring_can_rewind_to(&ring, len), 1);
        len += n;
    }
    ck_assert_int_gt(rebases, 10);
    free(plane);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ring");
    TCase *tcase = tcase_create("rules");
    tcase_add_test(tcase, test_ring_rows_are_window_chunk_slack_and_alignment_capped_by_context);
    tcase_add_test(tcase, test_ring_rows_follow_a_placements_own_chunk);
    tcase_add_test(tcase, test_prime_chunks_are_split_only_while_a_ring_is_on);
    tcase_add_test(tcase, test_view_starts_at_or_just_before_the_first_attended_row);
    tcase_add_test(tcase, test_window_counts_the_current_token);
    tcase_add_test(tcase, test_no_row_leaves_a_view_a_step_early);
    tcase_add_test(tcase, test_retained_rows_cover_the_window_and_the_slack);
    tcase_add_test(tcase, test_ring_of_no_rows_or_no_window_is_refused);
    tcase_add_test(tcase, test_append_that_does_not_fit_moves_what_is_needed_to_the_front);
    tcase_add_test(tcase, test_rebase_may_overlap_itself);
    tcase_add_test(tcase, test_append_plan_refuses_rows_that_are_not_held);
    tcase_add_test(tcase, test_append_plan_fits_to_the_last_row_and_not_one_more);
    tcase_add_test(tcase, test_physical_range_answers_at_its_edges);
    tcase_add_test(tcase, test_rewind_reaches_as_far_as_the_view_is_held);
    tcase_add_loop_test(tcase, test_ring_of_rows_holds_what_a_plain_list_holds, 0, 4);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int ran = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return ran == 0 || failed != 0;
}

/* Section (e): sliding windows. */
#include "tests/cases/cases.h"

/* B83: what is resident before an append of several rows, and after: capacity 6, ten rows past, two new; a first step longer than
 * the ring does not fit and is not cut. */
START_TEST(test_an_append_of_several_rows_keeps_what_it_says_or_is_refused)
{
    KvRing       ring = {.rows = 6, .window = 4, .base = 4};
    KvRingAppend plan;
    uint64_t     first, past;

    ck_assert_int_eq(kvg_kv_ring_physical_range(&ring, 4, 10, &first, &past), KVG_OK); /* min(10, 6) resident */
    ck_assert_int_eq(kvg_kv_ring_physical_range(&ring, 3, 10, &first, &past), KVG_ELAPPED);
    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 10, 5, 2, &plan), KVG_ENOFIT); /* five kept and two new are seven */
    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 10, 6, 2, &plan), KVG_OK);
    ck_assert_int_eq(plan.kind, KVG_RING_REBASE);
    ck_assert_uint_eq(plan.src_row, 2); /* two leave */
    ck_assert_uint_eq(plan.keep_rows, 4);
    kvg_kv_ring_apply_rebase(&ring, &plan);
    ck_assert_int_eq(kvg_kv_ring_physical_range(&ring, 6, 12, &first, &past), KVG_OK); /* the last six of twelve */
    ck_assert_uint_eq(first, 0);
    ring = (KvRing){.rows = 6, .window = 4, .base = 0};
    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 0, 0, 8, &plan), KVG_ENOFIT);
    ck_assert_int_eq(kvg_kv_ring_append_plan(&ring, 0, 0, 6, &plan), KVG_OK);
    ck_assert_int_eq(plan.kind, KVG_RING_CONTIGUOUS);
}
END_TEST

/* B84: a step of S rows has W + S - 1 rows of the window's layers to read, and there is room for them in every ring. */
START_TEST(test_a_ring_has_room_for_window_and_step)
{
    for (uint64_t window = 1; window <= 2048; window = window * 2 + (window % 3 == 0)) {
        for (uint64_t step = 1; step <= 64; step = step * 2 + 1) {
            uint64_t rows = kvg_swa_ring_rows_chunk(window, UINT64_MAX, step);
            for (uint64_t len = 0; len < 2 * rows; len += 7) { /* the first query's view, aligned down, and the step */
                uint64_t kept = len - kvg_view_start(len, window);
                ck_assert_uint_le(kept + step, rows);
                ck_assert_uint_ge(kept, len < window - 1 ? len : window - 1);
            }
        }
    }
}
END_TEST

#define WINDOW 8

static KvgPolicy ring_policy(void)
{
    KvgPolicy policy;

    kvg_policy_default(&policy);
    policy.swa_ring = 1;
    return policy;
}

static void open_windowed(TestGrid *g, KvLayout layout)
{
    KvgPlaceOptions options = case_options(2, 4 << 20);
    KvgPolicy       policy = ring_policy();

    options.layout = layout;
    options.prefill_chunk_max = 128;
    grid_open(g, 2, 2, (uint32_t[]){4, 4, WINDOW}, &options, &policy, 1);
}

/* B81, B94: at every length around the window and around each move of the rows, the last row can be taken back and decoded again, and
 * the digest is that of before: no row leaves a step early, and a rewind by one is never skipped. */
START_TEST(test_the_last_row_can_be_decoded_again_at_every_length)
{
    static const uint64_t stops[] = {1, 6, 7, 8, 9, 10, 39, 40, 63, 64, 65, 500, 551, 552, 640, 671, 672, 673, 1300};
    TestGrid              g;
    KvgSequence          *s[TEST_RANKS_MAX][8];

    open_windowed(&g, _i ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL);
    case_open_sequence(&g, s, 0, 4);
    for (int i = 0; i < COUNT(stops); i++) {
        char before[33], cut[33], after[33];
        case_grow(&g, s, 0, stops[i]);
        grid_digest(&g, s, 0, before);
        for (int r = 0; r < g.ranks; r++) ck_assert_msg(kvg_sequence_rewind(s[r][0], stops[i] - 1) == KVG_OK, "%s", kvg_last_error());
        grid_digest(&g, s, 0, cut);
        ck_assert_str_ne(cut, before);
        case_grow(&g, s, 0, stops[i]);
        grid_digest(&g, s, 0, after);
        ck_assert_str_eq(after, before);
    }
    grid_close(&g);
}
END_TEST

/* B88, B93: what a rewind asks for is held in all classes or the rewind is refused on every rank and changes nothing; the full
 * layers, which hold all, do not decide alone. */
START_TEST(test_a_rewind_past_the_slack_is_refused_on_every_rank)
{
    TestGrid     g;
    KvgSequence *s[TEST_RANKS_MAX][8];
    char         before[33], after[33];
    uint64_t     lowest = 0;

    open_windowed(&g, _i ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL);
    case_open_sequence(&g, s, 0, 4);
    case_grow(&g, s, 0, 1500);
    grid_digest(&g, s, 0, before);
    for (uint32_t il = 0; il < 2; il++) {
        const KvPlaneView *view = kvg_placement_view(g.placement[0], il);
        uint64_t           base = view->base_row[case_info(s[0][0]).slot];
        if (view->window == 0) continue;
        ck_assert_uint_gt(base, 0);
        ck_assert_uint_le(base, 1500 - (WINDOW - 1)); /* nothing that a query may see has gone */
        while (kvg_view_start(lowest, WINDOW) < base) lowest++;
    }
    ck_assert_uint_gt(lowest, 0);
    for (int r = 0; r < g.ranks; r++) {
        ck_assert_int_eq(kvg_sequence_rewind(s[r][0], lowest - 1), KVG_ELAPPED);
        ck_assert_int_eq(kvg_sequence_rewind(s[r][0], 0), KVG_ELAPPED);
        ck_assert_int_eq(kvg_sequence_fork(s[r][0], lowest - 1, 50, &s[r][1]), KVG_ELAPPED);
    }
    grid_digest(&g, s, 0, after);
    ck_assert_str_eq(after, before);
    for (int r = 0; r < g.ranks; r++) ck_assert_int_eq(kvg_sequence_rewind(s[r][0], lowest), KVG_OK);
    case_grow(&g, s, 0, 1500);
    grid_digest(&g, s, 0, after);
    ck_assert_str_eq(after, before);
    grid_close(&g);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("windows");
    TCase   *tcase = tcase_create("windows");
    SRunner *runner;
    int      ran, failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_an_append_of_several_rows_keeps_what_it_says_or_is_refused);
    tcase_add_test(tcase, test_a_ring_has_room_for_window_and_step);
    tcase_add_loop_test(tcase, test_the_last_row_can_be_decoded_again_at_every_length, 0, 2); /* pools, flat planes */
    tcase_add_loop_test(tcase, test_a_rewind_past_the_slack_is_refused_on_every_rank, 0, 2);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    ran = srunner_ntests_run(runner);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return ran == 0 || failed != 0;
}

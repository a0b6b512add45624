/* Steps over in-process grids: one vote commits every layer of every sequence, or none. */
#include "tests/support/inproc_grid.h"

static KvgPlaceOptions options_of(uint32_t sequences)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    options.max_sequences = sequences;
    options.memory_bytes = 8u << 20;
    return options;
}

static void open_all(TestGrid *g, KvgSequence *sequences[][8], uint32_t count, uint64_t rows)
{
    for (int r = 0; r < g->ranks; r++) {
        for (uint32_t s = 0; s < count; s++) {
            ck_assert_msg(kvg_sequence_open(g->placement[r], 100 + s, rows, &sequences[r][s]) == KVG_OK, "%s", kvg_last_error());
        }
    }
}

static uint64_t rows_of(KvgSequence *sequence)
{
    KvgSequenceInfo info = {.size = sizeof info};
    ck_assert_int_eq(kvg_sequence_info(sequence, &info), KVG_OK);
    return info.rows;
}

static const struct { uint32_t tp, pp; } grids[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}};
#define GRIDS (int)(sizeof grids / sizeof *grids)

START_TEST(test_one_digest_on_every_grid_and_layout)
{
    for (int window = 0; window <= 100; window += 100) {
        char first[33] = "";
        for (int i = 0; i < 2 * GRIDS; i++) {
            KvgPlaceOptions options = options_of(2);
            KvgPolicy       policy;
            TestGrid        g;
            KvgSequence    *s[TEST_RANKS_MAX][8];
            char            hex[33];
            kvg_policy_default(&policy);
            policy.swa_ring = (int8_t)(i % 2);
            options.layout = i < GRIDS ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT;
            grid_open(&g, grids[i % GRIDS].tp, grids[i % GRIDS].pp, (uint32_t[]){4, 4, (uint32_t)window}, &options, &policy, 2);
            open_all(&g, s, 2, 0);
            ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){70, 130}, 2, NULL, -1), KVG_OK);
            for (int n = 0; n < 300; n++) {
                ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, n % 3 == 0}, 2, NULL, -1), KVG_OK);
            }
            ck_assert_uint_eq(rows_of(s[0][0]), 370);
            ck_assert_uint_eq(rows_of(s[0][1]), 230);
            grid_digest(&g, s, 0, hex);
            if (first[0] == '\0') memcpy(first, hex, sizeof first);
            ck_assert_str_eq(hex, first);
            grid_close(&g);
        }
    }
}
END_TEST

START_TEST(test_partial_commit_keeps_what_every_rank_was_told)
{
    KvgPlaceOptions options = options_of(2);
    TestGrid        g;
    KvgSequence    *s[TEST_RANKS_MAX][8];
    KvgStep        *steps[TEST_RANKS_MAX];
    KvgOutcome      outcomes[TEST_RANKS_MAX];
    char            straight[33], speculated[33];
    grid_open(&g, 2, 2, (uint32_t[]){4, 4, 64}, &options, NULL, 2);
    open_all(&g, s, 2, 0);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){66, 66}, 2, NULL, -1), KVG_OK);
    for (int r = 0; r < g.ranks; r++) { /* rejected drafts */
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){5, 0}, 2, 0x55);
        grid_post(&g, r, steps[r], (uint32_t[]){0, 0}, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&g, steps, outcomes), KVG_OK);
    for (int r = 0; r < g.ranks; r++) {
        ck_assert_uint_eq(outcomes[r].accepted[0], 0);
        ck_assert_uint_eq(rows_of(s[r][0]), 66);
    }
    for (int r = 0; r < g.ranks; r++) {
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){5, 2}, 2, 0);
        grid_post(&g, r, steps[r], (uint32_t[]){2, 2}, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&g, steps, outcomes), KVG_OK);
    for (int r = 0; r < g.ranks; r++) {
        ck_assert_uint_eq(outcomes[r].accepted[0], 2);
        ck_assert_uint_eq(outcomes[r].accepted[1], 2);
        ck_assert_uint_eq(rows_of(s[r][0]), 68);
    }
    for (int r = 0; r < g.ranks; r++) kvg_sequence_close(s[r][1], NULL);
    for (int r = 0; r < g.ranks; r++) ck_assert_int_eq(kvg_sequence_open(g.placement[r], 100, 0, &s[r][1]), KVG_EINVAL);
    grid_digest(&g, s, 0, speculated);
    for (int r = 0; r < g.ranks; r++) kvg_sequence_close(s[r][0], NULL);
    open_all(&g, s, 1, 0);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){68, 0}, 1, NULL, -1), KVG_OK);
    grid_digest(&g, s, 0, straight);
    ck_assert_str_eq(straight, speculated);
    grid_close(&g);
}
END_TEST

START_TEST(test_one_no_rolls_back_every_rank)
{
    KvgPlaceOptions options = options_of(2);
    TestGrid        g;
    KvgSequence    *s[TEST_RANKS_MAX][8];
    char            before[33], after[33];
    grid_open(&g, 2, 2, (uint32_t[]){4, 4, 0}, &options, NULL, 2);
    open_all(&g, s, 2, 0);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){66, 66}, 2, NULL, -1), KVG_OK);
    grid_digest(&g, s, 0, before);
    for (int refuser = 0; refuser < g.ranks; refuser++) {
        KvgStep   *steps[TEST_RANKS_MAX];
        KvgOutcome outcomes[TEST_RANKS_MAX];
        for (int r = 0; r < g.ranks; r++) {
            steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){70, 3}, 2, 0);
            grid_post(&g, r, steps[r], NULL, r == refuser ? KVG_ENOMEM : KVG_OK);
        }
        ck_assert_int_eq(grid_decide(&g, steps, outcomes), KVG_EREFUSED);
        for (int r = 0; r < g.ranks; r++) {
            ck_assert_int_eq(outcomes[r].kind, KVG_OUTCOME_REFUSED);
            ck_assert_int_eq(outcomes[r].rank, refuser);
            ck_assert_int_eq(outcomes[r].reason, KVG_ENOMEM);
            ck_assert_uint_eq(rows_of(s[r][0]), 66);
        }
        grid_digest(&g, s, 0, after);
        ck_assert_str_eq(before, after);
    }
    grid_close(&g);
}
END_TEST

START_TEST(test_disagreement_names_field_and_ranks_and_grid_goes_on)
{
    KvgPlaceOptions options = options_of(2);
    TestGrid        g;
    KvgSequence    *s[TEST_RANKS_MAX][8];
    KvgStep        *steps[TEST_RANKS_MAX];
    KvgOutcome      outcomes[TEST_RANKS_MAX];
    grid_open(&g, 2, 2, (uint32_t[]){2, 4, 0}, &options, NULL, 2);
    open_all(&g, s, 1, 0);
    for (int r = 0; r < g.ranks; r++) {
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){r == 2 ? 4u : 3u, 0}, 1, 0);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&g, steps, outcomes), KVG_ELAYOUT);
    for (int r = 0; r < g.ranks; r++) {
        ck_assert_str_eq(outcomes[r].field, "targets");
        ck_assert_int_eq(outcomes[r].rank, 0);
        ck_assert_int_eq(outcomes[r].rank_b, 2);
        ck_assert_uint_eq(rows_of(s[r][0]), 0);
        ck_assert_int_eq(kvg_grid_state(g.grid[r]), KVG_OK);
    }
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){3, 0}, 1, NULL, -1), KVG_OK);
    grid_close(&g);
}
END_TEST

/* What the rank that staged more had booked, and how far its columns went, is made alike again: units at the next moment that all ranks share. */
START_TEST(test_after_unlike_targets_units_are_counted_alike_again)
{
    KvgPlaceOptions options = options_of(2);
    TestGrid        g;
    KvgSequence    *s[TEST_RANKS_MAX][8];
    KvgStep        *steps[TEST_RANKS_MAX];
    KvgLedger       first, other;
    grid_open(&g, 2, 2, (uint32_t[]){2, 4, 0}, &options, NULL, 2);
    open_all(&g, s, 1, 0);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){60, 0}, 1, NULL, -1), KVG_OK);
    for (int r = 0; r < g.ranks; r++) {
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){r == 2 ? 100u : 3u, 0}, 1, 0);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_ELAYOUT);
    kvg_placement_ledger(g.placement[0], &first);
    kvg_placement_ledger(g.placement[2], &other);
    ck_assert_uint_ne(first.units_free[0], other.units_free[0]); /* it has booked for rows that the others did not ask for */
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){3, 0}, 1, NULL, -1), KVG_OK);
    for (int r = 0; r < g.ranks; r++) {
        kvg_placement_ledger(g.placement[r], &other);
        ck_assert_uint_eq(first.units_free[0], other.units_free[0]);
        ck_assert_uint_eq(rows_of(s[r][0]), 63);
    }
    grid_close(&g);
}
END_TEST

START_TEST(test_posted_calls_that_went_apart_stop_the_grid)
{
    KvgPlaceOptions options = options_of(2);
    TestGrid        g;
    KvgSequence    *s[TEST_RANKS_MAX][8], *extra;
    KvgStep        *steps[TEST_RANKS_MAX];
    grid_open(&g, 2, 1, (uint32_t[]){2, 4, 0}, &options, NULL, 2);
    open_all(&g, s, 1, 0);
    ck_assert_int_eq(kvg_sequence_open(g.placement[1], 7, 0, &extra), KVG_OK);
    for (int r = 0; r < g.ranks; r++) {
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){3, 0}, 1, 0);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_ELAYOUT);
    for (int r = 0; r < g.ranks; r++) {
        ck_assert_int_eq(kvg_grid_state(g.grid[r]), KVG_ELAYOUT);
        ck_assert_int_eq(kvg_step_begin(g.batch[r], (uint32_t[]){1, 0}, &steps[r]), KVG_ELAYOUT);
        ck_assert_int_eq(kvg_sequence_close(s[r][0], NULL), KVG_OK);
    }
    grid_close(&g);
}
END_TEST

START_TEST(test_a_rank_without_memory_says_so_locally_and_votes_no)
{
    KvgPlaceOptions options = options_of(2);
    TestGrid        g;
    KvgSequence    *s[TEST_RANKS_MAX][8];
    KvgStep        *steps[TEST_RANKS_MAX];
    KvgOutcome      outcomes[TEST_RANKS_MAX] = {0};
    options.layout = KVG_LAYOUT_FLAT;
    grid_open(&g, 2, 1, (uint32_t[]){2, 4, 0}, &options, NULL, 2);
    open_all(&g, s, 1, 0);
    for (int r = 0; r < g.ranks; r++) {
        ck_assert_int_eq(kvg_batch_set(g.batch[r], 0, s[r][0]), KVG_OK);
        if (r == 1) kvg_fault_arm(0);
        ck_assert_int_eq(kvg_step_begin(g.batch[r], (uint32_t[]){70, 0}, &steps[r]), KVG_OK);
        ck_assert_int_eq(kvg_fault_disarm(), r == 1);
        ck_assert_int_eq(kvg_step_local(steps[r]), r == 1 ? KVG_ENOMEM : KVG_OK);
        grid_write(&g, r, steps[r], s[r], 1, 0);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&g, steps, outcomes), KVG_EREFUSED);
    ck_assert_int_eq(outcomes[0].rank, 1);
    ck_assert_int_eq(outcomes[0].reason, KVG_ENOMEM);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){70, 0}, 1, NULL, -1), KVG_OK); /* it is asked for again, and had */
    ck_assert_uint_eq(rows_of(s[1][0]), 70);
    grid_close(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("step");
    TCase *tc = tcase_create("step");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, test_one_digest_on_every_grid_and_layout);
    tcase_add_test(tc, test_partial_commit_keeps_what_every_rank_was_told);
    tcase_add_test(tc, test_one_no_rolls_back_every_rank);
    tcase_add_test(tc, test_disagreement_names_field_and_ranks_and_grid_goes_on);
    tcase_add_test(tc, test_after_unlike_targets_units_are_counted_alike_again);
    tcase_add_test(tc, test_posted_calls_that_went_apart_stop_the_grid);
    tcase_add_test(tc, test_a_rank_without_memory_says_so_locally_and_votes_no);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);
    srunner_free(runner);
    return failed != 0;
}

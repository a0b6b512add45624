/* Votes shared by two placements: one may go while steps still remember it. */
#include "tests/support/inproc_grid.h"

static KvgPlaceOptions options_of(uint32_t sequences)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    options.max_sequences = sequences;
    options.memory_bytes = 8u << 20;
    return options;
}

/* A target of 4 layers and a draft of 2 on one grid of `ranks` ranks. */
static void open_two(TestGrid *g, TestGrid *draft, uint32_t tp)
{
    KvgPlaceOptions options = options_of(2);
    grid_open(g, tp, 1, (uint32_t[]){4, 4, 64}, &options, NULL, 2);
    *draft = *g;
    draft->config = test_model(2, 4, 64, 2048);
    ck_assert_msg(grid_place(draft, &draft->config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < g->ranks; r++) ck_assert_int_eq(kvg_batch_create(draft->placement[r], 2, &draft->batch[r]), KVG_OK);
}

static void destroy_draft(TestGrid *draft)
{
    for (int r = 0; r < draft->ranks; r++) {
        kvg_batch_destroy(draft->batch[r]);
        kvg_placement_destroy(draft->placement[r]);
    }
    kvg_model_config_free(&draft->config);
}

START_TEST(test_a_placement_goes_and_the_other_steps_on)
{
    for (int undecided = 0; undecided < 2; undecided++) {
        TestGrid     g, draft;
        KvgSequence *s[TEST_RANKS_MAX][8], *d[TEST_RANKS_MAX][8];
        KvgStep     *steps[TEST_RANKS_MAX];
        open_two(&g, &draft, 2);
        for (int r = 0; r < g.ranks; r++) {
            ck_assert_int_eq(kvg_sequence_open(g.placement[r], 1, 0, &s[r][0]), KVG_OK);
            ck_assert_int_eq(kvg_sequence_open(draft.placement[r], 1, 0, &d[r][0]), KVG_OK);
            s[r][1] = d[r][1] = NULL;
        }
        ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){70, 0}, 2, NULL, -1), KVG_OK);
        ck_assert_int_eq(grid_step(&draft, d, (uint32_t[]){70, 0}, 2, NULL, -1), KVG_OK);
        for (int r = 0; r < g.ranks; r++) { /* the draft's sequence is in two steps that the votes remember */
            steps[r] = grid_begin(&draft, r, d[r], (uint32_t[]){5, 0}, 2, 0);
            grid_post(&draft, r, steps[r], NULL, KVG_OK);
        }
        if (!undecided) ck_assert_int_eq(grid_decide(&draft, steps, NULL), KVG_OK);
        destroy_draft(&draft);
        for (int n = 0; n < 10; n++) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){30, 0}, 2, NULL, -1), KVG_OK);
        for (int r = 0; r < g.ranks; r++) {
            KvgSequenceInfo info = {.size = sizeof info};
            KvgStats        stats = {.size = sizeof stats};
            ck_assert_int_eq(kvg_sequence_info(s[r][0], &info), KVG_OK);
            ck_assert_uint_eq(info.rows, 370);
            ck_assert_int_eq(kvg_stats(g.placement[r], &stats), KVG_OK);
            ck_assert_uint_eq(stats.steps, 11);
        }
        grid_close(&g);
    }
}
END_TEST

/* Step numbers are agreed: they go on where they were, also on a rank that had no memory for new votes in between. */
START_TEST(test_a_refused_placement_leaves_step_numbers_agreed)
{
    int refused = 0;
    for (uint64_t nth = 0;; nth++) {
        KvgPlaceOptions options = options_of(2);
        KvgPolicy       policy;
        TestGrid        g;
        KvgSequence    *s[TEST_RANKS_MAX][8] = {{NULL}};
        int             hit;
        kvg_policy_default(&policy);
        policy.timeout_ms = 50;
        grid_open(&g, 2, 1, (uint32_t[]){2, 4, 0}, &options, &policy, 2);
        for (int r = 0; r < g.ranks; r++) ck_assert_int_eq(kvg_sequence_open(g.placement[r], 1, 0, &s[r][0]), KVG_OK);
        for (int n = 0; n < 5; n++) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){3, 0}, 2, NULL, -1), KVG_OK);
        for (int r = 0; r < g.ranks; r++) {
            kvg_batch_destroy(g.batch[r]);
            kvg_placement_destroy(g.placement[r]);
            g.batch[r] = NULL;
            g.placement[r] = NULL;
        }
        KvgSetup *setups[TEST_RANKS_MAX] = {0};
        KvgStatus status = KVG_OK;
        kvg_fault_arm(nth);
        for (int r = 0; r < g.ranks && status == KVG_OK; r++) status = kvg_place_start(g.grid[r], &g.config, &options, &g.placement[r], &setups[r]);
        if (status != KVG_OK) { /* no memory to start it: the others would wait for the deadline */
            kvg_fault_disarm();
            for (int r = 0; r < g.ranks; r++) kvg_setup_free(setups[r]);
            grid_close(&g);
            continue;
        }
        status = grid_finish(&g, setups, NULL);
        hit = kvg_fault_disarm();
        if (g.placement[0] == NULL) {
            refused++;
            ck_assert(hit && status != KVG_OK);
            ck_assert_msg(grid_place(&g, &g.config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
        }
        for (int r = 0; r < g.ranks; r++) {
            ck_assert_int_eq(kvg_batch_create(g.placement[r], 2, &g.batch[r]), KVG_OK);
            ck_assert_int_eq(kvg_sequence_open(g.placement[r], 1, 0, &s[r][0]), KVG_OK);
        }
        ck_assert_msg(grid_step(&g, s, (uint32_t[]){3, 0}, 2, NULL, -1) == KVG_OK, "allocation %d: %s", (int)nth, kvg_last_error());
        grid_close(&g);
        if (!hit) break;
    }
    ck_assert_int_gt(refused, 20);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("votes");
    TCase *tc = tcase_create("votes");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, test_a_placement_goes_and_the_other_steps_on);
    tcase_add_test(tc, test_a_refused_placement_leaves_step_numbers_agreed);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);
    srunner_free(runner);
    return failed != 0;
}

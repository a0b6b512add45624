/* In doubt: records that are lost, late, twice or out of order, and ranks that die or fall silent; who is told, and what may be done then (S7). */
#include "tests/support/doubt_life.h"

START_TEST(test_records_late_twice_and_out_of_order_change_nothing)
{
    char straight[2][33], shaken[2][33];
    for (int shake = 0; shake <= 1; shake++) {
        TestGrid      g;
        LifeSequences s;
        Faults        faults = {.from = 15, .to = 15, .delay_ns = SECOND_NS / 2, .random = 7};
        open_grid(&g, s, KVG_LAYOUT_POOL, 1);
        if (shake) kvg_inproc_set_filter(g.hub, filter, &faults);
        for (int n = 0; n < 40; n++) {
            ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){5, (uint32_t)n % 3}, 2, n % 4 == 0 ? (uint32_t[]){2, 0} : NULL, n % 7 == 0 ? n % 4 : -1),
                             n % 7 == 0 ? KVG_EREFUSED : KVG_OK);
            life_agree(&g);
        }
        if (shake) ck_assert_int_gt(faults.hits, 100);
        kvg_inproc_set_filter(g.hub, NULL, NULL);
        for (uint32_t q = 0; q < 2; q++) grid_digest(&g, s, q, shake ? shaken[q] : straight[q]);
        grid_close(&g);
    }
    for (int q = 0; q < 2; q++) ck_assert_str_eq(straight[q], shaken[q]);
}
END_TEST

START_TEST(test_a_record_that_came_counts_though_its_sender_died)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    begin_and_post(&g, s, (uint32_t[]){5, 5}, NULL, 4, steps);
    kvg_inproc_kill(g.hub, 3);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_OK);
    for (int r = 0; r < 3; r++) {
        ck_assert_uint_eq(life_info(s[r][0]).rows, 105);
        ck_assert_int_eq(kvg_grid_progress(g.grid[r]), KVG_OK);
        ck_assert_int_eq(kvg_step_begin(g.batch[r], (uint32_t[]){1, 1}, &steps[r]), KVG_EPEER); /* no more steps without it */
    }
    settle_ok(&g, (int[]){0, 1, 2}, 3);
    survivors_equal(&g, s, (int[]){0, 1, 2}, 3, (uint64_t[]){105, 65});
    grid_close(&g);
}
END_TEST

START_TEST(test_a_death_before_the_post_leaves_doubt_once_and_settles_back)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, NULL, 3, steps);
    steps[3] = grid_begin(&g, 3, s[3], (uint32_t[]){70, 5}, 2, 0);
    kvg_inproc_kill(g.hub, 3);
    for (int r = 0; r < 3; r++) {
        uint64_t before = kvg_inproc_now_ns(g.hub);
        ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT);
        ck_assert_uint_le(kvg_inproc_now_ns(g.hub) - before, SECOND_NS / 2); /* a loss is noticed before the deadline */
        ck_assert_int_eq(kvg_grid_state(g.grid[r]), KVG_EINDOUBT);
        only_settle_and_close(&g, s, r, steps[r]);
        ck_assert_uint_eq(life_info(s[r][0]).rows, 100);        /* old state */
        ck_assert_uint_eq(life_info(s[r][0]).rows_staged, 170); /* and staged state are kept */
    }
    settle_ok(&g, (int[]){2, 0, 1}, 3);
    for (int r = 0; r < 3; r++) {
        KvgOutcome outcome;
        ck_assert_int_eq(kvg_step_wait(steps[r], &outcome), KVG_EREFUSED);
        ck_assert_int_eq(outcome.kind, KVG_OUTCOME_SETTLED_BACK);
        ck_assert_int_eq(kvg_step_begin(g.batch[r], (uint32_t[]){1, 1}, &steps[r]), KVG_EPEER);
        ck_assert_int_eq(kvg_grid_state(g.grid[r]), KVG_EPEER);
        ck_assert_uint_eq(kvg_grid_epoch(g.grid[r]), 2);
    }
    survivors_equal(&g, s, (int[]){0, 1, 2}, 3, (uint64_t[]){100, 60});
    for (int r = 0; r < 3; r++) {
        float row[32 * 4];
        uint32_t lo, hi;
        kvg_placement_layers(g.placement[r], &lo, &hi);
        ck_assert_int_eq(kvg_sequence_read(s[r][0], lo, 0, 99, 1, row), KVG_OK);
        for (uint32_t q = 0; q < 2; q++) ck_assert_int_eq(kvg_sequence_close(s[r][q], NULL), KVG_OK);
    }
    life_agree_among(&g, (int[]){0, 1, 2}, 3);
    grid_close(&g);
}
END_TEST

START_TEST(test_a_record_lost_between_living_ranks_ends_too)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    Faults        faults = {.from = 1u << 2, .to = 1u << 0, .fate = KVG_INPROC_DROP};
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, (uint32_t[]){1, 2}, 4, steps);
    for (int r = 1; r < 4; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_OK);
    ck_assert_int_eq(wait_bounded(&g, steps[0]), KVG_EINDOUBT); /* nobody drives rank 2 meanwhile: it is silent */
    settle_ok(&g, (int[]){0, 1, 2, 3}, 4);
    survivors_equal(&g, s, (int[]){0, 1, 2, 3}, 4, (uint64_t[]){101, 62});
    kvg_inproc_set_filter(g.hub, NULL, NULL);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){7, 7}, 2, NULL, -1), KVG_OK);
    /* a rank that gives signs of life and never posts is waited for longer, but not for ever */
    KvgStep *step = grid_begin(&g, 0, s[0], (uint32_t[]){1, 0}, 2, 0);
    int      done = 0;
    KvgStatus status = KVG_OK;
    uint64_t before = kvg_inproc_now_ns(g.hub);
    grid_post(&g, 0, step, NULL, KVG_OK);
    while (!done && status == KVG_OK) {
        for (int r = 1; r < 4; r++) kvg_grid_progress(g.grid[r]);
        status = kvg_step_test(step, &done, NULL);
        kvg_inproc_advance_ns(g.hub, 50000000);
        ck_assert_uint_lt(kvg_inproc_now_ns(g.hub) - before, 21 * DEADLINE_NS);
    }
    ck_assert_int_eq(status, KVG_EINDOUBT);
    ck_assert_uint_gt(kvg_inproc_now_ns(g.hub) - before, 2 * DEADLINE_NS);
    grid_close(&g);
}
END_TEST

START_TEST(test_records_of_an_older_epoch_are_dropped)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    Faults        faults = {.from = 1u << 3, .to = 15, .fate = KVG_INPROC_DELAY, .delay_ns = 5 * SECOND_NS};
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, NULL, 3, steps);
    steps[3] = grid_begin(&g, 3, s[3], (uint32_t[]){70, 5}, 2, 0);
    grid_post(&g, 3, steps[3], (uint32_t[]){1, 1}, KVG_OK);
    kvg_inproc_set_filter(g.hub, NULL, NULL);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT);
    settle_ok(&g, (int[]){0, 1, 2, 3}, 4); /* rank 3 held all records? it lacks its own copy of nobody's: it publishes, all follow */
    uint64_t rows = life_info(s[0][0]).rows;
    ck_assert(rows == 100 || rows == 101 || rows == 170);
    for (int n = 0; n < 20; n++) { /* the late records of epoch 1 arrive among those of epoch 2 */
        ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 1}, 2, NULL, -1), KVG_OK);
        kvg_inproc_advance_ns(g.hub, SECOND_NS / 2);
        for (int r = 0; r < 4; r++) ck_assert_uint_eq(life_info(s[r][0]).rows, rows + (uint64_t)n + 1);
    }
    grid_close(&g);
}
END_TEST

START_TEST(test_taint_reaches_those_who_were_in_doubt)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    Faults        faults = {.from = 1u << 3, .to = 1u << 0, .fate = KVG_INPROC_DROP};
    KvgOutcome    outcome;
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    ck_assert_int_eq(kvg_sequence_taint(s[3][1]), KVG_OK);
    begin_and_post(&g, s, (uint32_t[]){7, 5}, NULL, 4, steps);
    for (int r = 1; r < 4; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_ETAINTED);
    ck_assert_int_eq(wait_bounded(&g, steps[0]), KVG_EINDOUBT);
    settle_ok(&g, (int[]){0, 1, 2, 3}, 4);
    ck_assert_int_eq(kvg_step_wait(steps[0], &outcome), KVG_ETAINTED);
    kvg_inproc_set_filter(g.hub, NULL, NULL);
    for (int r = 0; r < 4; r++) {
        ck_assert(!life_info(s[r][0]).tainted);
        ck_assert(life_info(s[r][1]).tainted);
    }
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){7, 5}, 2, NULL, -1), KVG_OK); /* goes on without the tainted one */
    for (int r = 0; r < 4; r++) ck_assert_uint_eq(life_info(s[r][0]).rows, 107);
    grid_close(&g);
}
END_TEST

START_TEST(test_nothing_is_posted_in_doubt_and_unposted_steps_settle_back)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *first, *second, *again;
    KvgCommit     commit = KVG_COMMIT_INIT;
    KvgBatch     *other;
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    ck_assert_int_eq(kvg_batch_create(g.placement[0], 1, &other), KVG_OK);
    ck_assert_int_eq(kvg_batch_set(other, 0, s[0][1]), KVG_OK);
    first = grid_begin(&g, 0, s[0], (uint32_t[]){7, 0}, 2, 0);
    grid_post(&g, 0, first, NULL, KVG_OK);
    ck_assert_int_eq(kvg_step_begin(other, (uint32_t[]){3}, &second), KVG_OK);
    ck_assert_int_eq(wait_bounded(&g, first), KVG_EINDOUBT);
    Faults faults = {.from = 1, .to = 15, .fate = KVG_INPROC_DROP};
    kvg_inproc_set_filter(g.hub, filter, &faults);
    commit.accept_all = 1;
    ck_assert_int_eq(kvg_step_post(second, &commit), KVG_EPEER);
    ck_assert_int_eq(kvg_step_extend(second, (uint32_t[]){3}), KVG_EPEER);
    ck_assert_int_eq(faults.hits, 0);
    settle_ok(&g, (int[]){0, 1, 2, 3}, 4);
    ck_assert_int_eq(kvg_step_post(second, &commit), KVG_ESTALE);
    for (int r = 0; r < 4; r++) ck_assert_uint_eq(life_info(s[r][1]).rows, 60);
    ck_assert_int_eq(kvg_step_begin(other, (uint32_t[]){0}, &again), KVG_OK); /* its batch is free again */
    commit.accept_all = 0;
    kvg_inproc_set_filter(g.hub, NULL, NULL);
    grid_post(&g, 0, again, NULL, KVG_OK);
    kvg_batch_destroy(other);
    grid_close(&g);
}
END_TEST

/* Rank 1 is in doubt, calls in and posts nothing more: the others learn it from itself, long before they would give up on a rank that lives. */
START_TEST(test_a_doubt_is_told_to_those_who_would_wait)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    Faults        faults = {.from = 1u << 2, .to = 1u << 1, .fate = KVG_INPROC_DROP};
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, NULL, 4, steps);
    kvg_inproc_set_filter(g.hub, NULL, NULL);
    for (int r = 0; r < 4; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), r == 1 ? KVG_EINDOUBT : KVG_OK);
    for (int r = 0; r < 4; r++) {
        if (r == 1) continue;
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){1, 1}, 2, 0);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    uint64_t  before = kvg_inproc_now_ns(g.hub);
    KvgStatus status = KVG_OK;
    int       done = 0;
    while (!done && status == KVG_OK) {
        kvg_grid_progress(g.grid[1]); /* it lives */
        for (int r = 2; r < 4; r++) kvg_grid_progress(g.grid[r]);
        status = kvg_step_test(steps[0], &done, NULL);
        kvg_inproc_advance_ns(g.hub, SECOND_NS / 100);
    }
    ck_assert_int_eq(status, KVG_EINDOUBT);
    ck_assert_uint_lt(kvg_inproc_now_ns(g.hub) - before, SECOND_NS / 5);
    ck_assert_msg(strstr(kvg_last_error(), "rank 1") != NULL, "%s", kvg_last_error());
    settle_ok(&g, (int[]){0, 1, 2, 3}, 4); /* and in the next epoch it is heard again */
    survivors_equal(&g, s, (int[]){0, 1, 2, 3}, 4, (uint64_t[]){170, 65});
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){7, 7}, 2, NULL, -1), KVG_OK);
    grid_close(&g);
}
END_TEST

/* Rank 3 dies with its record everywhere. Rank 2 learns of the death before it begins, and begins no more; the others have begun. */
START_TEST(test_a_rank_that_begins_no_more_tells_those_who_have_begun)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    KvgStatus     status = KVG_OK;
    int           done = 0;
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    begin_and_post(&g, s, (uint32_t[]){1, 1}, NULL, 2, steps);
    steps[3] = grid_begin(&g, 3, s[3], (uint32_t[]){1, 1}, 2, 0);
    grid_post(&g, 3, steps[3], NULL, KVG_OK);
    kvg_inproc_kill(g.hub, 3);
    kvg_grid_progress(g.grid[2]);
    ck_assert_int_eq(kvg_step_begin(g.batch[2], (uint32_t[]){1, 1}, &steps[2]), KVG_EPEER);
    uint64_t before = kvg_inproc_now_ns(g.hub);
    while (!done && status == KVG_OK) {
        kvg_grid_progress(g.grid[2]); /* it lives */
        status = kvg_step_test(steps[0], &done, NULL);
        kvg_inproc_advance_ns(g.hub, SECOND_NS / 100);
    }
    ck_assert_int_eq(status, KVG_EINDOUBT);
    ck_assert_uint_lt(kvg_inproc_now_ns(g.hub) - before, SECOND_NS / 5);
    settle_ok(&g, (int[]){0, 1, 2}, 3);
    survivors_equal(&g, s, (int[]){0, 1, 2}, 3, (uint64_t[]){100, 60});
    grid_close(&g);
}
END_TEST

/* A transport that has no memory for a record: the record leaves with a later turn, and nobody waits for a rank that believes it has posted. */
START_TEST(test_a_record_that_found_no_memory_is_sent_later)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    int           failed = 0;
    for (int layout = 0; layout <= 1; layout++) {
        open_grid(&g, s, layout ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL, 1);
        for (int n = 0; n < 12; n++) { /* until the hub's spare parcels are used up: nobody takes records here */
            KvgBatch *more;
            uint64_t  before = kvg_inproc_now_ns(g.hub);
            for (int r = 0; r < 4; r++) {
                ck_assert_int_eq(kvg_batch_create(g.placement[r], 1, &more), KVG_OK);
                ck_assert_int_eq(kvg_step_begin(more, (uint32_t[]){0}, &steps[r]), KVG_OK);
                if (r == 3) kvg_fault_arm(0);
                grid_post(&g, r, steps[r], NULL, KVG_OK);
                failed += r == 3 && kvg_fault_disarm();
                kvg_batch_destroy(more);
            }
            if (n % 4 == 3) { /* W */
                for (int r = 3; r >= 0; r--) kvg_grid_progress(g.grid[r]);
                for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_step_wait(steps[r], NULL), KVG_OK);
                ck_assert_uint_lt(kvg_inproc_now_ns(g.hub) - before, SECOND_NS / 2);
            }
        }
        grid_close(&g);
    }
    ck_assert_int_gt(failed, 0);
}
END_TEST

LIFE_MAIN("doubt", test_records_late_twice_and_out_of_order_change_nothing, test_a_record_that_came_counts_though_its_sender_died,
          test_a_death_before_the_post_leaves_doubt_once_and_settles_back, test_a_record_lost_between_living_ranks_ends_too,
          test_records_of_an_older_epoch_are_dropped, test_taint_reaches_those_who_were_in_doubt,
          test_nothing_is_posted_in_doubt_and_unposted_steps_settle_back, test_a_record_that_found_no_memory_is_sent_later,
          test_a_doubt_is_told_to_those_who_would_wait, test_a_rank_that_begins_no_more_tells_those_who_have_begun)

/* Settling after a doubt: attempts that fail, meet or are finished by one alone, ranks that wake, and what all must agree on (S7). */
#include "tests/support/doubt_life.h"

/* Rank 3's record reaches rank `to` alone, then it dies: what one has published all publish, with its counts. */
START_TEST(test_one_publisher_makes_all_publish)
{
    for (int to = 0; to < 3; to++) {
        TestGrid      g;
        LifeSequences s;
        KvgStep      *steps[TEST_RANKS_MAX];
        KvgOutcome    outcome;
        Faults        faults = {.from = 1u << 3, .to = 7u & ~(1u << to), .fate = KVG_INPROC_DROP};
        open_grid(&g, s, KVG_LAYOUT_POOL, 1);
        kvg_inproc_set_filter(g.hub, filter, &faults);
        begin_and_post(&g, s, (uint32_t[]){70, 5}, (uint32_t[]){66, 0}, 4, steps);
        ck_assert_int_eq(faults.hits, 2);
        kvg_inproc_kill(g.hub, 3);
        for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), r == to ? KVG_OK : KVG_EINDOUBT);
        ck_assert_uint_eq(life_info(s[to][0]).rows, 166);
        settle_ok(&g, (int[]){0, 1, 2}, 3);
        for (int r = 0; r < 3; r++) {
            ck_assert_int_eq(kvg_step_wait(steps[r], &outcome), KVG_OK);
            ck_assert_int_eq(outcome.kind, KVG_OUTCOME_PUBLISHED);
            ck_assert_uint_eq(outcome.accepted[0], 66);
            ck_assert_uint_eq(outcome.accepted[1], 0);
        }
        survivors_equal(&g, s, (int[]){0, 1, 2}, 3, (uint64_t[]){166, 60});
        grid_close(&g);
    }
}
END_TEST

START_TEST(test_nobody_publishes_what_another_rolled_back)
{
    /* A record comes after its receiver is in doubt, while another has settled on it having been missing: it decides nothing. */
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    Faults        faults = {.from = 1u << 3, .to = 7, .fate = KVG_INPROC_DELAY, .delay_ns = SECOND_NS / 4};
    int           done;
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, NULL, 4, steps);
    kvg_inproc_kill(g.hub, 3);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT); /* lost, and its record is not here */
    kvg_inproc_advance_ns(g.hub, SECOND_NS); /* now it is */
    for (int r = 0; r < 3; r++) {
        ck_assert_int_eq(kvg_step_test(steps[r], &done, NULL), KVG_EPEER);
        ck_assert_int_eq(kvg_step_wait(steps[r], NULL), KVG_EPEER);
        ck_assert_uint_eq(life_info(s[r][0]).rows, 100);
    }
    settle_ok(&g, (int[]){0, 1, 2}, 3); /* every survivor holds every record: that decides it alike */
    survivors_equal(&g, s, (int[]){0, 1, 2}, 3, (uint64_t[]){170, 65});
    grid_close(&g);
}
END_TEST

START_TEST(test_what_a_rank_said_in_a_settle_that_failed_stays_true)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    KvgStatus     each[TEST_RANKS_MAX];
    Faults        faults = {.from = 1u << 3, .to = 1u << 0, .fate = KVG_INPROC_DELAY, .delay_ns = 2 * SECOND_NS};
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, NULL, 2, steps);
    steps[3] = grid_begin(&g, 3, s[3], (uint32_t[]){70, 5}, 2, 0);
    grid_post(&g, 3, steps[3], NULL, KVG_OK);
    kvg_inproc_kill(g.hub, 3);
    steps[2] = grid_begin(&g, 2, s[2], (uint32_t[]){70, 5}, 2, 0);
    faults = (Faults){.from = 1u << 2, .to = 1u << 1, .fate = KVG_INPROC_DROP};
    grid_post(&g, 2, steps[2], NULL, KVG_OK);
    kvg_inproc_set_filter(g.hub, NULL, NULL);
    ck_assert_int_eq(wait_bounded(&g, steps[0]), KVG_EINDOUBT); /* rank 3's record is late here */
    kvg_inproc_freeze(g.hub, 2, 1);
    ck_assert_int_eq(wait_bounded(&g, steps[1]), KVG_EINDOUBT); /* rank 2's is lost here */
    settle(&g, (int[]){0, 1}, 2, each);
    /* ranks 0 and 1 have settled without 2: rolled back */
    ck_assert_int_eq(each[0], KVG_OK);
    ck_assert_int_eq(each[1], KVG_OK);
    kvg_inproc_advance_ns(g.hub, 3 * SECOND_NS);
    kvg_grid_progress(g.grid[0]);
    survivors_equal(&g, s, (int[]){0, 1}, 2, (uint64_t[]){100, 60});
    kvg_inproc_freeze(g.hub, 2, 0);
    ck_assert_int_eq(kvg_grid_settle(g.grid[2], (int[]){0, 1, 2}, 3), KVG_EINDOUBT); /* left out: nobody answers it */
    grid_close(&g);
}
END_TEST

START_TEST(test_a_second_attempt_with_fewer_survivors)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    KvgStatus     each[TEST_RANKS_MAX];
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, NULL, 2, steps);
    kvg_inproc_kill(g.hub, 3);
    kvg_inproc_freeze(g.hub, 2, 1);
    for (int r = 0; r < 2; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT);
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_grid_settle_start(g.grid[r], (int[]){0, 1, 2}, 3, &setups[r]), KVG_OK);
    grid_finish(&g, setups, each);
    for (int r = 0; r < 2; r++) ck_assert_int_eq(each[r], KVG_EINDOUBT);
    only_settle_and_close(&g, s, 0, steps[0]);
    settle_ok(&g, (int[]){1, 0}, 2);
    survivors_equal(&g, s, (int[]){0, 1}, 2, (uint64_t[]){100, 60});
    grid_close(&g);
}
END_TEST

START_TEST(test_an_attempt_that_only_one_finished_is_caught_up_with)
{
    /* Rank 2's account reaches rank 0 and not rank 1, then it dies: rank 0 has settled, rank 1 has not. */
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    KvgStatus     each[TEST_RANKS_MAX];
    Faults        faults = {.from = 1u << 3, .to = 3, .fate = KVG_INPROC_DROP};
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, (uint32_t[]){68, 1}, 4, steps);
    kvg_inproc_kill(g.hub, 3);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), r == 2 ? KVG_OK : KVG_EINDOUBT); /* rank 2 has published */
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    int       done;
    faults = (Faults){.from = 1u << 2, .to = 1u << 1, .messages = 1, .fate = KVG_INPROC_DROP};
    for (int r = 0; r < 3; r++) ck_assert_int_eq(kvg_grid_settle_start(g.grid[r], (int[]){0, 1, 2}, 3, &setups[r]), KVG_OK);
    ck_assert_int_eq(kvg_setup_test(setups[2], &done), KVG_OK);
    kvg_inproc_kill(g.hub, 2);
    kvg_setup_free(setups[2]);
    setups[2] = NULL;
    grid_finish(&g, setups, each);
    ck_assert_int_eq(each[0], KVG_OK);
    ck_assert_int_eq(each[1], KVG_EPEER);
    ck_assert_uint_eq(life_info(s[0][0]).rows, 168);
    ck_assert_uint_eq(life_info(s[1][0]).rows, 100);
    settle_ok(&g, (int[]){0, 1}, 2);
    ck_assert_uint_eq(kvg_grid_epoch(g.grid[0]), 3);
    ck_assert_uint_eq(kvg_grid_epoch(g.grid[1]), 3);
    survivors_equal(&g, s, (int[]){0, 1}, 2, (uint64_t[]){168, 61});
    grid_close(&g);
}
END_TEST

START_TEST(test_a_frozen_rank_is_silent_and_after_a_settle_of_all_the_grid_goes_on)
{
    for (int layout = 0; layout <= 1; layout++) {
        TestGrid      g;
        LifeSequences s;
        KvgStep      *steps[TEST_RANKS_MAX];
        char          settled[33], straight[33];
        open_grid(&g, s, layout ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL, 1);
        kvg_inproc_freeze(g.hub, 1, 1);
        for (int r = 0; r < 4; r++) {
            if (r == 1) continue; /* it has not even begun */
            steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){70, 5}, 2, 0);
            grid_post(&g, r, steps[r], NULL, KVG_OK);
        }
        for (int r = 0; r < 4; r++) {
            if (r != 1) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT);
        }
        kvg_inproc_freeze(g.hub, 1, 0);
        settle_ok(&g, (int[]){0, 1, 2, 3}, 4);
        survivors_equal(&g, s, (int[]){0, 1, 2, 3}, 4, (uint64_t[]){100, 60});
        for (int n = 0; n < 12; n++) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){70, 5}, 2, NULL, -1), KVG_OK);
        life_agree(&g);
        grid_digest(&g, s, 0, settled);
        for (uint32_t q = 0; q < 2; q++) ck_assert_int_eq(life_close(&g, s, q), KVG_OK);
        ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
        ck_assert_int_eq(life_open(&g, s, 1, 2, 0), KVG_OK);
        for (int n = 0; n < 10; n++) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){94, 0}, 2, NULL, -1), KVG_OK);
        grid_digest(&g, s, 0, straight);
        ck_assert_str_eq(settled, straight);
        grid_close(&g);
    }
}
END_TEST

START_TEST(test_a_rank_that_wakes_after_a_settle_without_it_learns_that_it_is_out_and_changes_nothing)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    for (int r = 0; r < 4; r++) steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){70, 5}, 2, 0);
    kvg_inproc_freeze(g.hub, 3, 1);
    for (int r = 0; r < 3; r++) grid_post(&g, r, steps[r], NULL, KVG_OK);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT);
    settle_ok(&g, (int[]){0, 1, 2}, 3);
    kvg_inproc_freeze(g.hub, 3, 0);
    grid_post(&g, 3, steps[3], NULL, KVG_OK); /* of the old epoch: to the others it is nothing */
    kvg_inproc_advance_ns(g.hub, SECOND_NS / 10);
    for (int r = 0; r < 4; r++) kvg_grid_progress(g.grid[r]);
    ck_assert_int_eq(kvg_grid_state(g.grid[3]), KVG_EPEER);
    ck_assert_msg(strstr(kvg_last_error(), "rank 3 was left out") != NULL, "%s", kvg_last_error());
    (void)kvg_step_wait(steps[3], NULL); /* whatever it makes of the records that it has */
    ck_assert_int_eq(kvg_step_begin(g.batch[3], (uint32_t[]){1, 1}, &steps[3]), KVG_EPEER);
    survivors_equal(&g, s, (int[]){0, 1, 2}, 3, (uint64_t[]){100, 60});
    for (int r = 0; r < 3; r++) {
        ck_assert_int_eq(kvg_step_wait(steps[r], NULL), KVG_EREFUSED);
        ck_assert_msg(strstr(kvg_last_error(), "left out") == NULL, "%s", kvg_last_error());
        ck_assert_uint_eq(kvg_grid_epoch(g.grid[r]), 2);
    }
    grid_close(&g);
}
END_TEST

START_TEST(test_a_ring_that_moved_on_some_ranks_alone_stands_level_after_a_settle)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *step;
    open_grid(&g, s, KVG_LAYOUT_FLAT, 1);
    /* A flat ring holds 64 + 128 + 512 + 31 rows: a step of 128 from 700 rows on moves it. */
    for (int n = 0; n < 5; n++) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){120, 1}, 2, NULL, -1), KVG_OK);
    step = grid_begin(&g, 0, s[0], (uint32_t[]){128, 0}, 2, 0);
    grid_post(&g, 0, step, NULL, KVG_OK);
    ck_assert_int_eq(wait_bounded(&g, step), KVG_EINDOUBT);
    settle_ok(&g, (int[]){0, 1, 2, 3}, 4);
    survivors_equal(&g, s, (int[]){0, 1, 2, 3}, 4, (uint64_t[]){700, 65});
    for (int n = 0; n < 8; n++) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){100, 5}, 2, NULL, -1), KVG_OK);
    survivors_equal(&g, s, (int[]){0, 1, 2, 3}, 4, (uint64_t[]){1500, 105});
    grid_close(&g);
}
END_TEST

START_TEST(test_posted_calls_that_only_some_made_are_found_by_settling)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *step;
    KvgStatus     each[TEST_RANKS_MAX];
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    step = grid_begin(&g, 0, s[0], (uint32_t[]){7, 0}, 2, 0);
    grid_post(&g, 0, step, NULL, KVG_OK);
    ck_assert_int_eq(kvg_sequence_close(s[0][1], NULL), KVG_OK);
    ck_assert_int_eq(wait_bounded(&g, step), KVG_EINDOUBT);
    settle(&g, (int[]){0, 1, 2, 3}, 4, each);
    for (int r = 0; r < 4; r++) {
        ck_assert_int_eq(each[r], KVG_OK);
        ck_assert_int_eq(kvg_grid_state(g.grid[r]), KVG_ELAYOUT);
        ck_assert_int_eq(kvg_step_begin(g.batch[r], (uint32_t[]){1, 0}, &step), KVG_ELAYOUT);
        ck_assert_int_eq(kvg_sequence_close(s[r][0], NULL), KVG_OK);
    }
    grid_close(&g);
}
END_TEST

START_TEST(test_a_wrong_list_of_survivors_is_refused)
{
    TestGrid      g;
    LifeSequences s;
    KvgSetup     *setup = NULL;
    KvgStep      *steps[TEST_RANKS_MAX];
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], (int[]){1, 2}, 2, &setup), KVG_EINVAL); /* not itself */
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], (int[]){0, 4}, 2, &setup), KVG_EINVAL);
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], (int[]){0, -1}, 2, &setup), KVG_EINVAL);
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], (int[]){0, 1, 0}, 3, &setup), KVG_EINVAL); /* twice */
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], (int[]){0}, 0, &setup), KVG_EINVAL);
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], (int[]){0, 1, 2, 3, 0}, 5, &setup), KVG_EINVAL);
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], NULL, 1, &setup), KVG_EINVAL);
    ck_assert_ptr_null(setup);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 1}, 2, NULL, -1), KVG_OK); /* a refused list has done nothing */
    begin_and_post(&g, s, (uint32_t[]){1, 1}, NULL, 3, steps);
    kvg_inproc_kill(g.hub, 3);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT);
    settle_ok(&g, (int[]){0, 1, 2}, 3);
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], (int[]){0, 1, 2, 3}, 4, &setup), KVG_EINVAL); /* left out before */
    kvg_inproc_kill(g.hub, 2);
    settle_ok(&g, (int[]){0, 1}, 2); /* and once more, with fewer */
    settle_ok(&g, (int[]){1}, 1);
    survivors_equal(&g, s, (int[]){1}, 1, (uint64_t[]){101, 61});
    grid_close(&g);
}
END_TEST

START_TEST(test_several_steps_in_flight_settle_each_for_itself)
{
    /* Of W = 4 steps, the first was published by one, the second by nobody, the third by another. */
    TestGrid        g;
    KvgPlaceOptions options = life_options(4, 4u << 20);
    KvgPolicy       policy = life_policy(1);
    LifeSequences   s;
    KvgStep        *steps[TEST_RANKS_MAX][3];
    KvgBatch       *batches[TEST_RANKS_MAX][3];
    Faults          faults = {.from = 1u << 3, .fate = KVG_INPROC_DROP};
    grid_open(&g, 2, 2, (uint32_t[]){4, 4, 64}, &options, &policy, 2);
    for (uint32_t i = 0; i < 3; i++) ck_assert_int_eq(life_open(&g, s, i, i + 1, 0), KVG_OK);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    for (int r = 0; r < 4; r++) {
        for (int b = 0; b < 3; b++) {
            KvgCommit commit = KVG_COMMIT_INIT;
            commit.accepted = r >= 2 ? (uint32_t[]){(uint32_t)(5 + b)} : NULL;
            faults.to = b == 0 ? 7u & ~1u : b == 1 ? 7u : 7u & ~4u; /* b 0: rank 0 gets it; b 2: rank 2 does */
            ck_assert_int_eq(kvg_batch_create(g.placement[r], 1, &batches[r][b]), KVG_OK);
            ck_assert_int_eq(kvg_batch_set(batches[r][b], 0, s[r][b]), KVG_OK);
            ck_assert_int_eq(kvg_step_begin(batches[r][b], (uint32_t[]){10}, &steps[r][b]), KVG_OK);
            for (uint32_t il = 0; il < 4; il++) {
                static const float zeros[10 * 4 * 32];
                KvgRows            rows = KVG_ROWS_INIT;
                rows.k = rows.v = zeros;
                if (kvg_plane_view(batches[r][b], il) != NULL) ck_assert_int_eq(kvg_write_kv(batches[r][b], il, &rows, NULL), KVG_OK);
            }
            ck_assert_int_eq(kvg_step_post(steps[r][b], &commit), KVG_OK);
        }
    }
    kvg_inproc_kill(g.hub, 3);
    ck_assert_int_eq(wait_bounded(&g, steps[0][0]), KVG_OK);
    ck_assert_int_eq(wait_bounded(&g, steps[2][2]), KVG_OK);
    ck_assert_int_eq(wait_bounded(&g, steps[0][1]), KVG_EINDOUBT);
    settle_ok(&g, (int[]){0, 1, 2}, 3);
    for (int r = 0; r < 3; r++) {
        ck_assert_int_eq(kvg_step_wait(steps[r][1], NULL), KVG_EREFUSED);
        ck_assert_uint_eq(life_info(s[r][2]).rows, 7);
    }
    survivors_equal(&g, s, (int[]){0, 1, 2}, 3, (uint64_t[]){5, 0});
    for (int r = 0; r < 4; r++) {
        for (int b = 0; b < 3; b++) kvg_batch_destroy(batches[r][b]);
    }
    grid_close(&g);
}
END_TEST

START_TEST(test_setup_calls_of_different_numbers_before_a_settle_do_not_shift_later_ones)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    KvDigest      digest;
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    ck_assert_int_eq(kvg_sequence_digest(s[0][0], &digest), KVG_EINDOUBT); /* the others never come */
    begin_and_post(&g, s, (uint32_t[]){1, 1}, NULL, 3, steps);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT);
    settle_ok(&g, (int[]){0, 1, 2, 3}, 4);
    survivors_equal(&g, s, (int[]){0, 1, 2, 3}, 4, (uint64_t[]){100, 60});
    grid_close(&g);
}
END_TEST

LIFE_MAIN("settle", test_one_publisher_makes_all_publish, test_nobody_publishes_what_another_rolled_back,
          test_what_a_rank_said_in_a_settle_that_failed_stays_true, test_a_second_attempt_with_fewer_survivors,
          test_an_attempt_that_only_one_finished_is_caught_up_with, test_a_frozen_rank_is_silent_and_after_a_settle_of_all_the_grid_goes_on,
          test_a_rank_that_wakes_after_a_settle_without_it_learns_that_it_is_out_and_changes_nothing,
          test_a_ring_that_moved_on_some_ranks_alone_stands_level_after_a_settle, test_posted_calls_that_only_some_made_are_found_by_settling,
          test_a_wrong_list_of_survivors_is_refused, test_several_steps_in_flight_settle_each_for_itself,
          test_setup_calls_of_different_numbers_before_a_settle_do_not_shift_later_ones)

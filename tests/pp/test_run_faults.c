/* Captured runs, when something goes wrong: an engine's "no", ranks that differ, ranks that are missing. Without a GPU. */
#include "tests/support/run_pair.h"

/* ---- 4: a "no" */

static void refuse_in_step_5(uint32_t grid, uint32_t spec)
{
    open_both(grid, spec, KVG_ACCEPT_DEVICE);
    scene.no_step = 5;
    scene.no_rank = scene.g.ranks - 1;
    scene.no_status = KVG_EDEVICE;
    ck_assert_int_eq(scene_run(&scene, 0, 9, NULL), KVG_EREFUSED);
    for (int r = 0; r < scene.g.ranks; r++) {
        ck_assert_uint_eq(scene.result[r].first_step, 1);
        ck_assert_uint_eq(scene.result[r].published, 4);
        ck_assert_int_eq(scene.result[r].outcome.kind, KVG_OUTCOME_REFUSED);
        ck_assert_uint_eq(scene.result[r].outcome.step, 5);
        ck_assert_int_eq(scene.result[r].outcome.rank, scene.no_rank);
        ck_assert_int_eq(scene.result[r].outcome.reason, KVG_EDEVICE);
        ck_assert_says(scene.why[r], "EDEVICE");
    }
    ck_assert_says(scene.why[scene.no_rank], "status");
    ck_assert_uint_eq(scene.written, layers_written(&scene) * 5 * (3 + 3 + 1));
    host_steps(&reference, 4, most, KVG_ACCEPT_DEVICE);
    scene_compare(&scene, &reference);
    goes_on(KVG_ACCEPT_DEVICE);
    close_both();
}

START_TEST(test_a_no_in_one_replay_keeps_those_before_and_stops_those_behind)
{
    for (uint32_t spec = 0; spec < SCENE_SPECS; spec++) refuse_in_step_5((uint32_t)_i, spec);
}
END_TEST

START_TEST(test_more_accepted_than_staged_is_a_no)
{
    open_both((uint32_t)_i, FULL, KVG_ACCEPT_DEVICE);
    scene.greedy_step = 3;
    ck_assert_int_eq(scene_run(&scene, 0, 4, NULL), KVG_EREFUSED);
    ck_assert_uint_eq(scene.result[0].published, 2);
    ck_assert_int_eq(scene.result[0].outcome.reason, KVG_EINVAL);
    ck_assert_says(scene.why[scene.result[0].outcome.rank], "staged");
    scene.greedy_step = 0;
    host_steps(&reference, 2, most, KVG_ACCEPT_DEVICE);
    scene_compare(&scene, &reference);
    goes_on(KVG_ACCEPT_DEVICE);
    close_both();
}
END_TEST

START_TEST(test_nobody_who_accepts_is_unaccepted)
{
    scene_open(&scene, 1, 1, &scene_specs[FULL], 3, 1);
    scene_capture(&scene, 0, most, KVG_ACCEPT_OTHERS);
    ck_assert_int_eq(scene_run(&scene, 0, 4, NULL), KVG_EINVAL);
    ck_assert_int_eq(scene.result[0].outcome.kind, KVG_OUTCOME_UNACCEPTED);
    ck_assert_uint_eq(scene_length(&scene, 0, 0), 0);
    scene_close(&scene);
}
END_TEST

/* ---- 4: ranks that differ */

START_TEST(test_user_digests_that_differ_are_named_and_equal_ones_publish)
{
    open_both((uint32_t)_i, FULL, KVG_ACCEPT_ALL);
    scene.user_rank = 64;
    ck_assert_int_eq(scene_run(&scene, 0, 3, NULL), KVG_OK);
    host_steps(&reference, 3, most, KVG_ACCEPT_ALL);
    scene.user_rank = scene.g.ranks - 1;
    ck_assert_int_eq(scene_run(&scene, 0, 3, NULL), KVG_ELAYOUT);
    ck_assert_uint_eq(scene.result[0].published, 0);
    ck_assert_int_eq(scene.result[0].outcome.kind, KVG_OUTCOME_DISAGREE);
    ck_assert_str_eq(scene.result[0].outcome.field, "user");
    ck_assert_int_eq(scene.result[0].outcome.rank, 0);
    ck_assert_int_eq(scene.result[0].outcome.rank_b, scene.g.ranks - 1);
    scene.user_rank = -1;
    scene_compare(&scene, &reference);
    goes_on(KVG_ACCEPT_ALL);
    close_both();
}
END_TEST

START_TEST(test_posted_calls_that_went_apart_are_found_by_their_digest)
{
    KvgSequence *extra;

    scene_open(&scene, grids[_i].tp, grids[_i].pp, &scene_specs[FULL], 3, 1);
    scene_capture(&scene, 0, most, KVG_ACCEPT_ALL);
    ck_assert_int_eq(kvg_sequence_open(scene.g.placement[1], 900, 0, &extra), KVG_OK);
    ck_assert_int_eq(scene_run(&scene, 0, 3, NULL), KVG_ELAYOUT);
    for (int r = 0; r < scene.g.ranks; r++) {
        ck_assert_str_eq(scene.result[r].outcome.field, "targets");
        ck_assert_says(scene.why[r], "went apart");
        ck_assert_int_eq(kvg_grid_state(scene.g.grid[r]), KVG_ELAYOUT);
        ck_assert_int_eq(kvg_run_begin(scene.graph[0][r], 1, NULL, scene_stream), KVG_ELAYOUT);
        ck_assert_uint_eq(scene_length(&scene, r, 0), 0);
    }
    scene_close_sequence(&scene, 0);
    scene_close(&scene);
}
END_TEST

START_TEST(test_rows_that_differ_are_targets_that_differ_and_the_grid_goes_on)
{
    open_both((uint32_t)_i, FULL, KVG_ACCEPT_ALL);
    for (int r = 0; r < scene.g.ranks; r++) ck_assert_int_eq(scene_begin_rank(&scene, r, 0, 3, r == 1 ? one : NULL), KVG_OK);
    scene_launch(&scene, 3);
    scene_pump(&scene);
    ck_assert_int_eq(scene_end(&scene), KVG_ELAYOUT);
    ck_assert_str_eq(scene.result[0].outcome.field, "targets");
    ck_assert_int_eq(kvg_grid_state(scene.g.grid[0]), KVG_OK);
    scene_compare(&scene, &reference);
    close_both();
}
END_TEST

/* ---- 5: ranks that are missing */

static const int all_ranks[SCENE_RANKS] = {0, 1, 2, 3};

START_TEST(test_a_rank_that_never_launches_is_in_doubt_by_name_and_settled)
{
    uint64_t began;

    open_both((uint32_t)_i, RECURRENT, KVG_ACCEPT_DEVICE);
    ck_assert_int_eq(scene_run(&scene, 0, 4, NULL), KVG_OK);
    host_steps(&reference, 4, most, KVG_ACCEPT_DEVICE);
    ck_assert_int_eq(scene_begin(&scene, 0, 3, NULL), KVG_OK);
    began = kvg_inproc_now_ns(scene.g.hub);
    for (int r = 0; r < scene.g.ranks; r++) {
        for (int n = 0; n < 3 && r != 1; n++) ck_assert_int_eq(kvg_graph_launch(scene.graph[0][r], scene_stream), KVG_OK);
    }
    scene_end_each(&scene);
    ck_assert_int_eq(scene.status[0], KVG_EINDOUBT);
    ck_assert_says(scene.why[0], "rank 1");
    ck_assert_uint_eq(scene.result[0].published, 0);
    ck_assert_uint_lt(kvg_inproc_now_ns(scene.g.hub) - began, 4 * UINT64_C(1000000) * 200 * (uint64_t)scene.g.ranks);
    ck_assert_int_eq(kvg_run_begin(scene.graph[0][0], 1, NULL, scene_stream), KVG_EPEER);
    ck_assert_int_eq(scene_settle(&scene, all_ranks, scene.g.ranks), KVG_OK);
    scene_compare(&scene, &reference);
    goes_on(KVG_ACCEPT_DEVICE);
    close_both();
}
END_TEST

START_TEST(test_a_lost_rank_ends_the_wait_and_is_named)
{
    const int survivor = 0;
    uint64_t  began;

    scene_open(&scene, grids[_i].tp, grids[_i].pp, &scene_specs[FULL], 3, 1);
    scene_capture(&scene, 0, most, KVG_ACCEPT_ALL);
    ck_assert_int_eq(scene_begin(&scene, 0, 3, NULL), KVG_OK);
    for (int n = 0; n < 3; n++) ck_assert_int_eq(kvg_graph_launch(scene.graph[0][0], scene_stream), KVG_OK);
    kvg_inproc_kill(scene.g.hub, 1);
    scene.absent = 1;
    began = kvg_inproc_now_ns(scene.g.hub);
    scene_end_each(&scene);
    ck_assert_int_eq(scene.status[0], KVG_EINDOUBT);
    ck_assert_says(scene.why[0], "rank 1");
    ck_assert_uint_lt(kvg_inproc_now_ns(scene.g.hub) - began, 100 * UINT64_C(1000000)); /* before the deadline */
    ck_assert_int_eq(scene_settle(&scene, &survivor, 1), KVG_OK);
    ck_assert_int_eq(kvg_grid_state(scene.g.grid[0]), KVG_EPEER);
    ck_assert_uint_eq(scene_length(&scene, 0, 0), 0);
    kvg_vote_stop(&scene.control[1], 1); /* what is left of rank 1 */
    scene_close(&scene);
}
END_TEST

/* Rank 1 sees nothing of rank 0 in `step`. */
static void make_blind(uint64_t step)
{
    KvVoteBoard board = run_dev_host_board(&scene.g.grid[1]->board);
    memset(run_dev_units(&board, step), 0, kvg_vote_units(board.sequences_max) * 16u);
}

START_TEST(test_a_step_that_one_rank_published_is_published_by_settling)
{
    KvgStatus cut[2];

    open_both((uint32_t)_i, RECURRENT, KVG_ACCEPT_DEVICE);
    ck_assert_int_eq(scene.g.ranks, 2);
    ck_assert_int_eq(scene_begin(&scene, 0, 3, NULL), KVG_OK);
    scene_launch(&scene, 2);
    scene_pump(&scene);
    scene_launch(&scene, 1);
    run_dev_pump(scene.dev[0].self); /* posts */
    if (scene.g.pp > 1) run_dev_pump(scene.dev[1].self);
    make_blind(3);
    scene_end_each(&scene);
    ck_assert_int_eq(scene.status[0], KVG_OK);
    ck_assert_uint_eq(scene.result[0].published, 3);
    ck_assert_int_eq(scene.status[1], KVG_EINDOUBT);
    ck_assert_uint_eq(scene.result[1].published, 2);
    ck_assert_int_eq(scene.result[1].outcome.kind, KVG_OUTCOME_PUBLISHED);
    ck_assert_uint_eq(scene.result[1].outcome.step, 2);
    ck_assert_says(scene.why[1], "rank 0");
    ck_assert_int_eq(scene_settle(&scene, all_ranks, 2), KVG_OK);
    host_steps(&reference, 3, most, KVG_ACCEPT_DEVICE);
    scene_compare(&scene, &reference);
    for (int r = 0; r < 2; r++) cut[r] = kvg_sequence_rewind(scene.s[r][2], scene_length(&scene, r, 2) - 1);
    ck_assert_int_eq(cut[0], cut[1]); /* what is held of earlier rows is agreed too */
    scene_set(&scene, 2, -1);
    scene_set(&reference, 2, -1);
    ck_assert_int_eq(scene_run(&scene, 0, 3, NULL), KVG_OK);
    close_both();
}
END_TEST

/* A peer that lives and turns its grid, but never launches. */
static void keep_alive(void *user)
{
    kvg_grid_progress(((Scene *)user)->g.grid[1]);
}

START_TEST(test_a_rank_that_lives_moves_the_deadline_and_ends_the_run_in_the_end)
{
    uint64_t began, published;
    int      stopped = 0;

    scene_open(&scene, 2, 1, &scene_specs[FULL], 3, 1);
    scene_capture(&scene, 0, most, KVG_ACCEPT_ALL);
    ck_assert_int_eq(scene_begin(&scene, 0, 3, NULL), KVG_OK);
    began = kvg_inproc_now_ns(scene.g.hub);
    ck_assert_int_eq(kvg_graph_launch(scene.graph[0][0], scene_stream), KVG_OK);
    while (!stopped) {
        int done;
        keep_alive(&scene);
        kvg_inproc_advance_ns(scene.g.hub, 10 * 1000000u);
        ck_assert_int_eq(kvg_run_test(scene.graph[0][0], &published, &stopped), KVG_OK);
        ck_assert_int_eq(scene.dev[0].ops->run->event_test(scene.dev[0].self, NULL, &done), KVG_OK);
        ck_assert_uint_eq(published, 0);
        ck_assert_uint_lt(kvg_inproc_now_ns(scene.g.hub) - began, 40 * 200 * UINT64_C(1000000));
    }
    ck_assert_uint_gt(kvg_inproc_now_ns(scene.g.hub) - began, 10 * 200 * UINT64_C(1000000));
    scene_end_each(&scene);
    ck_assert_int_eq(scene.status[0], KVG_EINDOUBT);
    ck_assert_int_eq(scene_settle(&scene, all_ranks, 2), KVG_OK);
    scene_close(&scene);
}
END_TEST

START_TEST(test_a_device_that_fails_taints_on_every_rank)
{
    uint32_t tainted = 0;

    scene_open(&scene, grids[_i].tp, grids[_i].pp, &scene_specs[FULL], 3, 1);
    scene_capture(&scene, 0, most, KVG_ACCEPT_ALL);
    ck_assert_int_eq(scene_begin(&scene, 0, 3, NULL), KVG_OK);
    scene_launch(&scene, 3);
    scene_pump(&scene);
    run_dev_of(&scene.dev[scene.g.ranks - 1])->events_failing = 1;
    scene_end_each(&scene);
    ck_assert_int_eq(scene.status[scene.g.ranks - 1], KVG_EINDOUBT);
    ck_assert_says(scene.why[scene.g.ranks - 1], "failed");
    ck_assert_int_eq(scene_settle(&scene, all_ranks, scene.g.ranks), KVG_OK);
    ck_assert_int_eq(scene_step(&scene, one, KVG_ACCEPT_ALL), KVG_ETAINTED);
    for (int r = 0; r < scene.g.ranks; r++) {
        for (int i = 0; i < 3; i++) {
            KvgSequenceInfo info = {.size = sizeof info};
            ck_assert_int_eq(kvg_sequence_info(scene.s[r][i], &info), KVG_OK);
            tainted += (uint32_t)info.tainted;
        }
    }
    ck_assert_uint_eq(tainted, 3 * (uint32_t)scene.g.ranks);
    scene_close(&scene);
}
END_TEST

START_TEST(test_records_of_a_rank_that_is_steps_ahead_wait_for_the_run_to_end)
{
    const uint32_t rows[SCENE_PLACES] = {1, 1, 1};
    KvgStep       *steps[TEST_RANKS_MAX] = {0};
    KvgCommit      commit = KVG_COMMIT_INIT;

    open_both((uint32_t)_i, FULL, KVG_ACCEPT_ALL);
    ck_assert_int_eq(scene_begin(&scene, 0, 20, one), KVG_OK);
    scene_launch(&scene, 20);
    scene_pump(&scene);
    commit.accept_all = 1;
    for (int r = 0; r < scene.g.ranks; r++) {
        scene_end_rank(&scene, r); /* the others' runs are still on */
        ck_assert_int_eq(scene.status[r], KVG_OK);
        ck_assert_int_eq(kvg_step_begin(scene.g.batch[r], rows, &steps[r]), KVG_OK);
        scene_write_step(&scene, r, steps[r], KVG_ACCEPT_ALL);
        ck_assert_int_eq(kvg_step_post(steps[r], &commit), KVG_OK);
        for (int other = 0; other < scene.g.ranks; other++) ck_assert_int_eq(kvg_grid_progress(scene.g.grid[other]), KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&scene.g, steps, NULL), KVG_OK);
    host_steps(&reference, 21, one, KVG_ACCEPT_ALL);
    scene_compare(&scene, &reference);
    close_both();
}
END_TEST

Suite *run_faults_suite(void);
Suite *run_faults_suite(void)
{
    Suite *suite = suite_create("run_faults");
    TCase *cases = tcase_create("faults");

    tcase_add_checked_fixture(cases, scene_setup, scene_teardown);
    tcase_set_timeout(cases, 60);
    loop_grids(cases, test_a_no_in_one_replay_keeps_those_before_and_stops_those_behind, 0, 4);
    loop_grids(cases, test_more_accepted_than_staged_is_a_no, 0, 4);
    tcase_add_test(cases, test_nobody_who_accepts_is_unaccepted);
    loop_grids(cases, test_user_digests_that_differ_are_named_and_equal_ones_publish, 1, 4);
    loop_grids(cases, test_posted_calls_that_went_apart_are_found_by_their_digest, 1, 4);
    loop_grids(cases, test_rows_that_differ_are_targets_that_differ_and_the_grid_goes_on, 1, 4);
    loop_grids(cases, test_a_rank_that_never_launches_is_in_doubt_by_name_and_settled, 1, 4);
    loop_grids(cases, test_a_lost_rank_ends_the_wait_and_is_named, 1, 3);
    loop_grids(cases, test_a_step_that_one_rank_published_is_published_by_settling, 1, 3);
    tcase_add_test(cases, test_a_rank_that_lives_moves_the_deadline_and_ends_the_run_in_the_end);
    loop_grids(cases, test_a_device_that_fails_taints_on_every_rank, 0, 4);
    loop_grids(cases, test_records_of_a_rank_that_is_steps_ahead_wait_for_the_run_to_end, 1, 4);
    suite_add_tcase(suite, cases);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(run_faults_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed != 0 || ran == 0;
}

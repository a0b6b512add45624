/* Captured runs of two batches that take turns, without a GPU: each has its steps and its end, and what one does never hides what the other did. */
#include "tests/support/run_scene.h"

static Scene scene, reference;

static const uint32_t most[SCENE_PLACES] = {3, 2};
static const int      all_ranks[SCENE_RANKS] = {0, 1, 2, 3};
enum { FULL = 0, RECURRENT = 5 };

/* Sequences 0 and 1 in the first batch, 2 and 3 in the second. */
static void fill_batches(Scene *at)
{
    for (int i = 2; i < 4; i++) scene_open_sequence(at, i, 0);
    scene_add_batch(at);
    scene_swap(at);
    for (uint32_t i = 0; i < 2; i++) scene_set(at, i, 2 + (int)i);
    scene_swap(at);
}

static void open_both(uint32_t grid, uint32_t spec)
{
    scene_open(&scene, grids[grid].tp, grids[grid].pp, &scene_specs[spec], 2, 1);
    scene_open(&reference, 1, 1, &scene_specs[spec], 2, 0);
    fill_batches(&scene);
    fill_batches(&reference);
    scene_capture(&scene, 0, most, KVG_ACCEPT_DEVICE);
    scene_swap(&scene);
    scene_capture(&scene, 1, most, KVG_ACCEPT_DEVICE);
    scene_swap(&scene);
}

static void close_both(void)
{
    scene_close(&reference);
    scene_close(&scene);
}

static void begin(uint32_t steps)
{
    scene_know_slots(&scene);
    scene.on = 0;
    for (int r = 0; r < scene.g.ranks; r++) {
        KvgGraph *graphs[] = {scene.graph[0][r], scene.graph[1][r]};
        ck_assert_msg(kvg_run_begin_joint(graphs, NULL, 2, steps, scene_stream) == KVG_OK, "%s", kvg_last_error());
        ck_assert_int_eq(kvg_run_begin(scene.graph[1][r], 1, NULL, scene_stream), KVG_EBUSY);
    }
}

static void launch(uint32_t steps)
{
    for (uint32_t n = 0; n < steps; n++) {
        for (int r = 0; r < scene.g.ranks; r++) {
            for (int graph = 0; graph < 2; graph++) ck_assert_int_eq(kvg_graph_launch(scene.graph[graph][r], scene_stream), KVG_OK);
        }
    }
}

/* What each batch says on rank r. */
static KvgStatus result_of(int graph, int r, KvgRunResult *result)
{
    *result = (KvgRunResult){.size = sizeof *result};
    return kvg_run_result(scene.graph[graph][r], result);
}

static void ends_as(KvgStatus first, uint64_t first_published, KvgStatus second, uint64_t second_published)
{
    scene_end_each(&scene);
    for (int r = 0; r < scene.g.ranks; r++) {
        KvgRunResult result;
        ck_assert_msg(result_of(0, r, &result) == first, "%s", kvg_last_error());
        ck_assert_int_eq(scene.status[r], first);
        ck_assert_uint_eq(result.published, first_published);
        ck_assert_msg(result_of(1, r, &result) == second, "%s", kvg_last_error());
        ck_assert_uint_eq(result.published, second_published);
        ck_assert_uint_eq(result.first_step, scene.result[r].first_step + 1);
    }
}

static void host_steps(Scene *at, uint32_t first, uint32_t second)
{
    for (uint32_t k = 0; k < first; k++) ck_assert_int_eq(scene_step(at, most, KVG_ACCEPT_DEVICE), KVG_OK);
    scene_swap(at);
    for (uint32_t k = 0; k < second; k++) ck_assert_int_eq(scene_step(at, most, KVG_ACCEPT_DEVICE), KVG_OK);
    scene_swap(at);
}

static void goes_on(void)
{
    host_steps(&scene, 2, 2);
    host_steps(&reference, 2, 2);
    scene_compare(&scene, &reference);
    begin(3);
    launch(3);
    scene_pump(&scene);
    ends_as(KVG_OK, 3, KVG_OK, 3);
    host_steps(&reference, 3, 3);
    scene_compare(&scene, &reference);
}

START_TEST(test_batches_that_take_turns_leave_what_their_steps_leave)
{
    for (uint32_t spec = 0; spec < SCENE_SPECS; spec++) {
        open_both((uint32_t)_i, spec);
        begin(20);
        launch(22);
        scene_pump(&scene);
        ends_as(KVG_OK, 20, KVG_OK, 20);
        host_steps(&reference, 20, 20);
        scene_compare(&scene, &reference);
        begin(9);
        launch(4); /* fewer */
        scene_pump(&scene);
        ends_as(KVG_OK, 4, KVG_OK, 4);
        host_steps(&reference, 4, 4);
        scene_compare(&scene, &reference);
        begin(9);
        ends_as(KVG_OK, 0, KVG_OK, 0);
        goes_on();
        close_both();
    }
}
END_TEST

static void one_refuses(uint32_t grid, int which, uint32_t steps)
{
    KvgRunResult result;

    open_both(grid, RECURRENT);
    scene.no_step = 5 + (uint64_t)which; /* its third */
    scene.no_rank = scene.g.ranks - 1;
    scene.no_status = KVG_EIO;
    begin(steps);
    launch(steps);
    scene_pump(&scene);
    if (which == 0) ends_as(KVG_EREFUSED, 2, KVG_OK, steps);
    else ends_as(KVG_OK, steps, KVG_EREFUSED, 2);
    for (int r = 0; r < scene.g.ranks; r++) {
        ck_assert_int_eq(result_of(which, r, &result), KVG_EREFUSED);
        ck_assert_uint_eq(result.outcome.step, scene.no_step);
        ck_assert_int_eq(result.outcome.reason, KVG_EIO);
        ck_assert_int_eq(result.outcome.rank, scene.no_rank);
        ck_assert_int_eq(result_of(1 - which, r, &result), KVG_OK);
        ck_assert_int_eq(result.outcome.kind, KVG_OUTCOME_PUBLISHED);
    }
    host_steps(&reference, which == 0 ? 2 : steps, which == 0 ? steps : 2);
    scene_compare(&scene, &reference);
    goes_on();
    close_both();
}

START_TEST(test_a_batch_that_is_refused_stops_alone_however_far_the_other_goes)
{
    for (int which = 0; which < 2; which++) {
        one_refuses((uint32_t)_i, which, 3);
        one_refuses((uint32_t)_i, which, 4);
        one_refuses((uint32_t)_i, which, 50);
    }
}
END_TEST

START_TEST(test_a_rank_that_never_launches_leaves_both_in_doubt_until_settled)
{
    open_both((uint32_t)_i, RECURRENT);
    begin(4);
    launch(4);
    scene_pump(&scene);
    ends_as(KVG_OK, 4, KVG_OK, 4);
    host_steps(&reference, 4, 4);
    begin(3);
    for (int r = 0; r < scene.g.ranks; r++) {
        for (int n = 0; n < 6 && r != 1; n++) ck_assert_int_eq(kvg_graph_launch(scene.graph[n % 2][r], scene_stream), KVG_OK);
    }
    scene_end_each(&scene);
    ck_assert_int_eq(scene.status[0], KVG_EINDOUBT);
    ck_assert_int_eq(kvg_run_result(scene.graph[1][0], NULL), KVG_EINDOUBT);
    ck_assert_int_eq(scene_settle(&scene, all_ranks, scene.g.ranks), KVG_OK);
    scene_compare(&scene, &reference);
    goes_on();
    close_both();
}
END_TEST

/* The wait that blocks rank r ends; those behind it go on. */
static void give_up_wait(int r)
{
    kvg_vote_stop(&scene.control[r], 1);
    ck_assert_int_eq(run_dev_run_one(scene.dev[r].self), 1);
    kvg_vote_stop(&scene.control[r], 0);
}

/* Rank 1 does not see rank 0's record of step 5, the first batch's third: that batch is in doubt on both in the end, one step apart; the other goes on. */
START_TEST(test_a_batch_in_doubt_is_settled_though_the_other_went_on)
{
    KvgRunResult result;
    KvVoteBoard  board;

    open_both((uint32_t)_i, RECURRENT);
    ck_assert_int_eq(scene.g.ranks, 2);
    begin(40);
    launch(2);
    scene_pump(&scene);
    launch(1);
    run_dev_pump(scene.dev[0].self); /* posts 5 */
    if (scene.g.pp > 1) run_dev_pump(scene.dev[1].self);
    board = run_dev_host_board(&scene.g.grid[1]->board);
    memset(run_dev_units(&board, 5), 0, kvg_vote_units(board.sequences_max) * 16u);
    launch(37);
    scene_pump(&scene);
    give_up_wait(1);
    scene_pump(&scene);
    give_up_wait(0);
    scene_pump(&scene);
    scene_end_each(&scene);
    ck_assert_int_eq(result_of(0, 0, &result), KVG_EINDOUBT);
    ck_assert_uint_eq(result.published, 3);
    ck_assert_int_eq(result_of(0, 1, &result), KVG_EINDOUBT);
    ck_assert_uint_eq(result.published, 2);
    for (int r = 0; r < 2; r++) {
        ck_assert_int_eq(result_of(1, r, &result), KVG_OK);
        ck_assert_uint_eq(result.published, 40);
    }
    ck_assert_int_eq(scene_settle(&scene, all_ranks, 2), KVG_OK);
    host_steps(&reference, 3, 40);
    scene_compare(&scene, &reference);
    goes_on();
    close_both();
}
END_TEST

START_TEST(test_joint_runs_that_are_asked_wrongly_are_refused)
{
    KvgGraph *graphs[4];

    open_both(0, FULL);
    graphs[0] = graphs[1] = graphs[2] = graphs[3] = scene.graph[0][0];
    ck_assert_int_eq(kvg_run_begin_joint(graphs, NULL, 2, 1, scene_stream), KVG_EINVAL); /* one batch twice */
    graphs[1] = scene.graph[1][0];
    ck_assert_int_eq(kvg_run_begin_joint(graphs, NULL, 0, 1, scene_stream), KVG_EINVAL);
    ck_assert_int_eq(kvg_run_begin_joint(graphs, NULL, 5, 1, scene_stream), KVG_EINVAL);
    ck_assert_int_eq(kvg_run_begin_joint(graphs, NULL, 2, 0, scene_stream), KVG_EINVAL);
    ck_assert_int_eq(kvg_run_begin_joint(graphs, NULL, 2, 1, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_run_begin_joint(NULL, NULL, 2, 1, scene_stream), KVG_EINVAL);
    ck_assert_int_eq(kvg_run_result(scene.graph[0][0], NULL), KVG_ESTALE);
    goes_on();
    scene_swap(&scene); /* a sequence of both batches takes part in the first alone */
    scene_set(&scene, 0, 0);
    scene_swap(&scene);
    begin(2);
    ck_assert_int_eq(kvg_run_refusal(scene.graph[0][0], 0), KVG_OK);
    ck_assert_int_eq(kvg_run_refusal(scene.graph[1][0], 0), KVG_EBUSY);
    ck_assert_int_eq(kvg_run_refusal(scene.graph[1][0], 1), KVG_OK);
    launch(2);
    scene_pump(&scene);
    ends_as(KVG_OK, 2, KVG_OK, 2);
    close_both();
}
END_TEST

START_TEST(test_a_batch_that_goes_ends_the_run_of_both)
{
    KvgRunResult result;

    open_both((uint32_t)_i, FULL);
    begin(6);
    launch(4);
    scene_pump(&scene);
    for (int r = 0; r < scene.g.ranks; r++) {
        kvg_batch_destroy(scene.g.batch[r]);
        scene.g.batch[r] = NULL;
        ck_assert_int_eq(result_of(1, r, &result), KVG_OK);
        ck_assert_uint_eq(result.published, 4);
    }
    host_steps(&reference, 4, 4);
    scene_compare(&scene, &reference);
    close_both();
}
END_TEST

Suite *run_joint_suite(void);
Suite *run_joint_suite(void)
{
    Suite *suite = suite_create("run_joint");
    TCase *cases = tcase_create("turns");

    tcase_add_checked_fixture(cases, scene_setup, scene_teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_batches_that_take_turns_leave_what_their_steps_leave, 0, 4);
    tcase_add_loop_test(cases, test_a_batch_that_is_refused_stops_alone_however_far_the_other_goes, 0, 4);
    tcase_add_loop_test(cases, test_a_rank_that_never_launches_leaves_both_in_doubt_until_settled, 1, 4);
    tcase_add_loop_test(cases, test_a_batch_in_doubt_is_settled_though_the_other_went_on, 1, 3);
    tcase_add_test(cases, test_joint_runs_that_are_asked_wrongly_are_refused);
    tcase_add_loop_test(cases, test_a_batch_that_goes_ends_the_run_of_both, 0, 4);
    suite_add_tcase(suite, cases);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(run_joint_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed != 0 || ran == 0;
}

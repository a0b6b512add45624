/* Captured runs over a device that fails: at a capture's begin, its vote, its end, where a graph's tokens or a run's plan are sent. Nothing is left, the
 * batch can be captured again, and what was committed stays. Without a GPU. */
#include "tests/support/run_pair.h"

static KvDevOps    ops;
static KvDevRunOps run_ops;
static int         htods_left, votes_left; /* -1: none fails */
static KvgStatus (*real_htod)(void *, void *, const void *, size_t, KvgStream);

static KvgStatus failing_htod(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    if (htods_left == 0) return kvg_fail(KVG_EDEVICE, "the test's device sends nothing");
    if (htods_left > 0) htods_left--;
    return real_htod(self, target, source, bytes, stream);
}

static KvgStatus failing_vote(void *self, unsigned acts, const KvVoteBoard *board, const KvVoteArrays *arrays, KvgStream stream)
{
    if (votes_left == 0) return kvg_fail(KVG_EDEVICE, "the test's device takes no vote");
    if (votes_left > 0) votes_left--;
    return run_dev_vote(self, acts, board, arrays, stream);
}

static KvgStatus failing_capture_begin(void *self, KvgStream stream, int *joined)
{
    (void)self, (void)stream, (void)joined;
    return kvg_fail(KVG_EDEVICE, "the test's device captures nothing");
}

static KvgStatus failing_capture_end(void *self, KvgStream stream, void **graph)
{
    (void)graph;
    run_dev_capture_drop(self, stream); /* as a real one: the capture is over either way */
    return kvg_fail(KVG_EDEVICE, "the test's device loses the graph");
}

/* From here on rank 0's placement calls these operations. */
static void break_device(void)
{
    ops = *scene.g.placement[0]->device.ops;
    run_ops = run_dev_run_ops;
    real_htod = ops.htod;
    ops.htod = failing_htod;
    run_ops.vote = failing_vote;
    ops.run = &run_ops;
    scene.g.placement[0]->device.ops = &ops;
    htods_left = votes_left = -1;
}

/* A capture of rank 0 alone fails with EDEVICE in begin or end; what it allocated goes. */
static void capture_fails(int at_end)
{
    const KvgCapture capture = {sizeof capture, most, scene_accept_of(&scene, 0, KVG_ACCEPT_ALL)};
    uint64_t         live = kvg_live_allocations();
    KvgGraph        *graph = NULL;
    KvgStatus        status = kvg_batch_capture_begin(scene.g.batch[0], &capture, scene_stream);

    if (at_end) {
        ck_assert_msg(status == KVG_OK, "%s", kvg_last_error());
        status = kvg_batch_capture_end(scene.g.batch[0], &graph);
    }
    ck_assert_int_eq(status, KVG_EDEVICE);
    ck_assert_says(kvg_last_error(), "the test's device");
    ck_assert_ptr_null(graph);
    ck_assert_uint_eq(kvg_live_allocations(), live);
    ck_assert_int_eq(kvg_batch_capture_end(scene.g.batch[0], &graph), KVG_ESTALE); /* none is on */
}

START_TEST(test_a_capture_that_the_device_fails_leaves_nothing_and_works_later)
{
    open_both((uint32_t)_i, FULL, KVG_ACCEPT_ALL);
    break_device();
    htods_left = 0; /* a graph's tokens */
    capture_fails(0);
    htods_left = -1;
    run_ops.capture_begin = failing_capture_begin;
    capture_fails(0);
    run_ops.capture_begin = run_dev_capture_begin;
    votes_left = 0;
    capture_fails(scene.g.pp == 1); /* stages decide at the head, so there is a vote in begin */
    votes_left = scene.g.pp == 1 ? 0 : 1;
    capture_fails(1);
    votes_left = -1;
    run_ops.capture_end = failing_capture_end;
    capture_fails(1);
    run_ops.capture_end = run_dev_capture_end;
    goes_on(KVG_ACCEPT_ALL); /* the graph that was captured before */
    close_both();
}
END_TEST

START_TEST(test_a_run_that_cannot_be_sent_is_in_doubt_and_taken_back)
{
    const int only[] = {0};
    KvgStep  *step;

    open_both(0, (uint32_t)_i, KVG_ACCEPT_ALL);
    host_steps(&scene, 1, most, KVG_ACCEPT_ALL);
    host_steps(&reference, 1, most, KVG_ACCEPT_ALL);
    break_device();
    htods_left = 0;
    ck_assert_int_eq(kvg_run_begin(scene.graph[0][0], 2, one, scene_stream), KVG_EINDOUBT);
    ck_assert_says(kvg_last_error(), "the test's device");
    htods_left = -1;
    ck_assert_int_eq(kvg_graph_launch(scene.graph[0][0], scene_stream), KVG_ESTALE);
    ck_assert_int_eq(kvg_step_begin(scene.g.batch[0], one, &step), KVG_EPEER); /* as all but settling and close */
    ck_assert_int_eq(scene_settle(&scene, only, 1), KVG_OK);
    scene_compare(&scene, &reference); /* nothing was staged for good */
    goes_on(KVG_ACCEPT_ALL);
    close_both();
}
END_TEST

START_TEST(test_other_batches_wait_for_a_run_and_a_run_for_other_batches)
{
    const KvgCapture capture = {sizeof capture, one, KVG_ACCEPT_ALL};
    KvgRunArrays     arrays = {0};
    KvgGraph        *graphs[3];
    KvgBatch        *third;
    KvgStep         *step;
    KvgCommit        commit = KVG_COMMIT_INIT;

    open_both(0, FULL, KVG_ACCEPT_ALL);
    scene_add_batch(&scene);
    ck_assert_int_eq(kvg_batch_create(scene.g.placement[0], 1, &third), KVG_OK);
    ck_assert_int_eq(kvg_run_arrays(third, &arrays), KVG_EINVAL); /* no size */
    arrays.size = sizeof arrays;
    ck_assert_int_eq(kvg_run_arrays(NULL, &arrays), KVG_EINVAL);
    ck_assert_int_eq(kvg_run_result(NULL, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_step_begin(third, (uint32_t[]){0}, &step), KVG_OK);
    ck_assert_int_eq(kvg_run_begin(scene.graph[0][0], 1, one, scene_stream), KVG_EBUSY); /* its number would come before the step's */
    commit.accept_all = 1;
    ck_assert_int_eq(kvg_step_post(step, &commit), KVG_OK);
    ck_assert_int_eq(scene_begin(&scene, 0, 1, one), KVG_OK);
    ck_assert_int_eq(kvg_batch_capture_begin(third, &capture, scene_stream), KVG_EBUSY);
    ck_assert_says(kvg_last_error(), "run of this grid");
    scene_launch(&scene, 1);
    scene_pump(&scene);
    ck_assert_int_eq(scene_end(&scene), KVG_OK);
    graphs[0] = scene.graph[0][0];
    for (int b = 1; b < 3; b++) {
        KvgBatch *batch = b == 1 ? scene.other[0] : third;
        ck_assert_int_eq(kvg_batch_capture_begin(batch, &capture, scene_stream), KVG_OK);
        ck_assert_int_eq(kvg_batch_capture_end(batch, &graphs[b]), KVG_OK);
    }
    ck_assert_int_eq(kvg_run_begin_joint(graphs, NULL, 3, 1, scene_stream), KVG_EINVAL); /* W is 2 */
    ck_assert_says(kvg_last_error(), "max_in_flight");
    for (int b = 1; b < 3; b++) kvg_graph_free(graphs[b]);
    kvg_batch_destroy(third);
    host_steps(&reference, 1, one, KVG_ACCEPT_ALL);
    goes_on(KVG_ACCEPT_ALL);
    close_both();
}
END_TEST

Suite *run_device_suite(void);
Suite *run_device_suite(void)
{
    Suite *suite = suite_create("run_device");
    TCase *cases = tcase_create("device");

    tcase_add_checked_fixture(cases, scene_setup, scene_teardown);
    tcase_set_timeout(cases, 60);
    loop_grids(cases, test_a_capture_that_the_device_fails_leaves_nothing_and_works_later, 0, 4);
    loop_grids(cases, test_a_run_that_cannot_be_sent_is_in_doubt_and_taken_back, FULL, WINDOWED + 1);
    tcase_add_test(cases, test_other_batches_wait_for_a_run_and_a_run_for_other_batches);
    suite_add_tcase(suite, cases);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(run_device_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed != 0 || ran == 0;
}

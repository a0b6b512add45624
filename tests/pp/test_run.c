/* Captured runs, without a GPU: a run's replays leave what the same steps leave when the host drives them. Faults are in test_run_faults.c. */
#include "tests/support/run_scene.h"

static Scene scene, reference;

/* One replay's rows by place, and the same steps on the host. */
static void host_steps(Scene *at, uint32_t steps, const uint32_t *rows, KvgAccept accept)
{
    for (uint32_t k = 0; k < steps; k++) ck_assert_int_eq(scene_step(at, rows, accept), KVG_OK);
}

/* ---- 1: digests */

static void run_equals_steps(uint32_t grid, uint32_t spec, KvgAccept accept)
{
    const uint32_t most[SCENE_PLACES] = {3, 3, 1}, one[SCENE_PLACES] = {1, 1, 1};

    scene_open(&scene, grids[grid].tp, grids[grid].pp, &scene_specs[spec], 3, 1);
    scene_open(&reference, 1, 1, &scene_specs[spec], 3, 0);
    host_steps(&scene, 2, one, accept);
    host_steps(&reference, 2, one, accept);
    scene_capture(&scene, 0, most, accept);
    ck_assert_int_eq(scene_run(&scene, 0, 30, NULL), KVG_OK);
    ck_assert_uint_eq(scene.result[0].published, 30);
    ck_assert_int_eq(scene.result[0].outcome.kind, KVG_OUTCOME_PUBLISHED);
    ck_assert_uint_eq(scene.result[0].outcome.step, 32);
    host_steps(&reference, 30, most, accept);
    scene_compare(&scene, &reference);
    host_steps(&scene, 3, most, accept); /* the host goes on where the device stopped */
    host_steps(&reference, 3, most, accept);
    scene_compare(&scene, &reference);
    ck_assert_int_eq(scene_run(&scene, 0, 7, one), KVG_OK); /* and the device after it */
    host_steps(&reference, 7, one, accept);
    scene_compare(&scene, &reference);
    scene_close(&reference);
    scene_close(&scene);
}

START_TEST(test_a_run_leaves_what_the_same_steps_leave_on_a_host_grid)
{
    for (uint32_t grid = 0; grid < 4; grid++) {
        run_equals_steps(grid, (uint32_t)_i, KVG_ACCEPT_ALL);
        run_equals_steps(grid, (uint32_t)_i, KVG_ACCEPT_DEVICE);
    }
}
END_TEST

Suite *run_suite(void);
Suite *run_suite(void)
{
    Suite *suite = suite_create("run");
    TCase *digests = tcase_create("digests");

    tcase_add_checked_fixture(digests, scene_setup, scene_teardown);
    tcase_set_timeout(digests, 120);
    tcase_add_loop_test(digests, test_a_run_leaves_what_the_same_steps_leave_on_a_host_grid, 0, SCENE_SPECS);
    suite_add_tcase(suite, digests);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(run_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed != 0 || ran == 0;
}

/* Rebuilding while a captured run is on: the run ends in doubt, is settled, and the survivors go on, alone or with a newcomer who is sent what has a copy, and
 * who votes on the device with them. Without a GPU. */
#include <kvgrid/rebuild.h>

#include "tests/support/run_pair.h"

enum { LATENT = 4, VICTIM = 1 };

/* What is left of the rank that died. */
typedef struct Grave {
    KvgGrid      *grid;
    KvgPlacement *placement;
    KvgBatch     *batch;
    KvgGraph     *graph;
    SceneKernel   kernel[SCENE_LAYERS + 1];
    KvDev         dev;
} Grave;

static void bury_victim(Grave *grave)
{
    *grave = (Grave){.grid = scene.g.grid[VICTIM], .placement = scene.g.placement[VICTIM], .batch = scene.g.batch[VICTIM], .graph = scene.graph[0][VICTIM],
                     .dev = scene.dev[VICTIM]};
    memcpy(grave->kernel, scene.kernel[0][VICTIM], sizeof grave->kernel);
    kvg_vote_stop(&scene.control[VICTIM], 1);
    scene.graph[0][VICTIM] = NULL;
    memset(scene.kernel[0][VICTIM], 0, sizeof scene.kernel[0][VICTIM]);
    scene.g.ranks = 1;
}

static void close_grave(Grave *grave)
{
    kvg_batch_destroy(grave->batch);
    kvg_graph_free(grave->graph);
    for (int k = 0; k < SCENE_LAYERS; k++) {
        grave->dev.ops->free(grave->dev.self, grave->kernel[k].a);
        grave->dev.ops->free(grave->dev.self, grave->kernel[k].b);
    }
    kvg_placement_destroy(grave->placement);
    kvg_grid_destroy(grave->grid);
    test_device_close(&grave->dev);
}

static KvgStatus start_rebuild(const KvgRebuildOptions *options, KvgRebuildReport **report, KvgSetup **setup)
{
    return kvg_grid_rebuild_start(scene.g.grid[0], (int[]){0}, 1, options, report, setup);
}

/* Two steps of a run, then one whose record the victim never posts: it is killed in the middle. */
static void lose_in_a_run(void)
{
    KvgSetup *setup = NULL;

    ck_assert_int_eq(scene_run(&scene, 0, 2, NULL), KVG_OK);
    host_steps(&reference, 2, most, KVG_ACCEPT_DEVICE);
    ck_assert_int_eq(scene_begin(&scene, 0, 3, NULL), KVG_OK);
    for (int n = 0; n < 3; n++) ck_assert_int_eq(kvg_graph_launch(scene.graph[0][0], scene_stream), KVG_OK);
    kvg_inproc_kill(scene.g.hub, VICTIM);
    ck_assert_int_eq(start_rebuild(NULL, NULL, &setup), KVG_EBUSY); /* its replays write and vote still */
    ck_assert_says(kvg_last_error(), "run");
    scene.absent = VICTIM;
    scene_end_each(&scene);
    ck_assert_int_eq(scene.status[0], KVG_EINDOUBT);
    scene.absent = -1;
}

static void check_report(const KvgRebuildReport *report)
{
    ck_assert_uint_eq(report->count, 3);
    ck_assert_uint_eq(report->kept, 3);
    for (uint32_t q = 0; q < report->count; q++) {
        ck_assert_uint_eq(report->sequences[q].rows, scene_length(&reference, 0, (int)q)); /* the step in doubt was rolled back */
        ck_assert_uint_eq(report->sequences[q].rows_held, report->sequences[q].rows);
    }
}

START_TEST(test_a_survivor_of_a_run_goes_on_alone)
{
    Grave             grave;
    KvgRebuildReport *report = NULL;
    KvgSetup         *setup = NULL;

    open_both(1, LATENT, KVG_ACCEPT_DEVICE);
    lose_in_a_run();
    bury_victim(&grave);
    ck_assert_msg(start_rebuild(NULL, &report, &setup) == KVG_OK, "%s", kvg_last_error());
    ck_assert_msg(grid_finish(&scene.g, &setup, NULL) == KVG_OK, "%s", kvg_last_error());
    check_report(report);
    kvg_rebuild_report_free(report);
    host_steps(&scene, 3, most, KVG_ACCEPT_DEVICE); /* at once, from the host */
    host_steps(&reference, 3, most, KVG_ACCEPT_DEVICE);
    scene_compare(&scene, &reference);
    ck_assert_int_eq(kvg_run_begin(scene.graph[0][0], 2, NULL, scene_stream), KVG_ESTALE); /* its nodes meet on a board that has a hole */
    ck_assert_int_eq(kvg_grid_vote_on_device(scene.g.grid[0], &grave.batch->placement->grid->board, &scene.control[0]), KVG_ENOTSUP);
    close_grave(&grave); /* before the hub goes */
    close_both();
}
END_TEST

/* ---- a newcomer */

static void wait_both(KvInproc *old, KvInproc *fresh, KvgSetup *setups[2])
{
    int done[2] = {0, 0};

    for (int rounds = 0; !done[0] || !done[1]; rounds++) {
        ck_assert_int_lt(rounds, 100000);
        for (int i = 0; i < 2; i++) {
            if (!done[i]) ck_assert_msg(kvg_setup_test(setups[i], &done[i]) == KVG_OK, "%s", kvg_last_error());
        }
        kvg_inproc_advance_ns(old, 100000);
        kvg_inproc_advance_ns(fresh, 100000);
    }
    for (int i = 0; i < 2; i++) kvg_setup_free(setups[i]);
}

static KvgPlaceOptions joining_options(void)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;

    options.max_sequences = SCENE_SEQUENCES;
    options.max_step_sequences = SCENE_PLACES;
    options.memory_bytes = options.memory_max_bytes = 16u << 20;
    options.device = &scene.dev[VICTIM];
    return options;
}

static void join_victims_place(KvInproc *hub)
{
    KvgRebuildOptions with = KVG_REBUILD_OPTIONS_INIT;
    KvgGridOptions    options = KVG_GRID_OPTIONS_INIT;
    KvgPlaceOptions   place = joining_options();
    KvgJoin           join = {&scene.g.config, &place, NULL};
    KvgRebuildReport *report[2] = {NULL, NULL};
    KvgSetup         *setups[2] = {NULL, NULL};
    KvgPolicy         policy;
    KvComm            comm[2];
    KvLiveness        live[2];

    kvg_policy_default(&policy);
    policy.swa_ring = 0;
    policy.timeout_ms = 200;
    options.tp = scene.g.tp;
    options.pp = scene.g.pp;
    options.policy = &policy;
    kvg_inproc_advance_ns(hub, kvg_inproc_now_ns(scene.g.hub));
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_inproc_attach(hub, r, &comm[r], &live[r]), KVG_OK);
    ck_assert_int_eq(run_dev_open(hub, &scene.dev[VICTIM]), KVG_OK);
    with.comm = &comm[0], with.liveness = &live[0];
    options.comm = &comm[1], options.liveness = &live[1];
    ck_assert_msg(start_rebuild(&with, &report[0], &setups[0]) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_grid_join_start(1, 2, &options, &join, 1, &scene.g.grid[1], &report[1], &setups[1]), KVG_OK);
    wait_both(scene.g.hub, hub, setups);
    for (int r = 0; r < 2; r++) check_report(report[r]);
    scene.g.ranks = 2;
    scene.g.placement[1] = join.placement;
    for (uint32_t q = 0; q < 3; q++) scene.s[1][q] = report[1]->sequences[q].sequence;
    for (int r = 0; r < 2; r++) kvg_rebuild_report_free(report[r]);
}

START_TEST(test_a_newcomer_takes_a_place_in_the_runs_too)
{
    Grave     grave;
    KvInproc *hub = NULL, *old;
    uint8_t  *board;

    open_both(1, LATENT, KVG_ACCEPT_DEVICE);
    lose_in_a_run();
    bury_victim(&grave);
    old = scene.g.hub;
    ck_assert_int_eq(kvg_inproc_create(2, &hub), KVG_OK);
    join_victims_place(hub);
    scene.g.hub = hub;
    run_dev_of(&scene.dev[0])->hub = hub;
    scene_hook_relax(&scene);
    ck_assert_int_eq(kvg_batch_create(scene.g.placement[1], 3, &scene.g.batch[1]), KVG_OK);
    for (int q = 0; q < 3; q++) scene_set(&scene, (uint32_t)q, q);
    host_steps(&scene, 2, most, KVG_ACCEPT_DEVICE);
    host_steps(&reference, 2, most, KVG_ACCEPT_DEVICE);
    scene_compare(&scene, &reference);
    ck_assert_int_eq(kvg_run_begin(scene.graph[0][0], 2, NULL, scene_stream), KVG_ESTALE); /* captured for the board that went with the lost rank */
    scene_free_graph(&scene, 0);
    board = scene.board;
    memset(scene.control, 0, sizeof scene.control);
    scene_give_board(&scene);
    scene_capture(&scene, 0, most, KVG_ACCEPT_DEVICE);
    goes_on(KVG_ACCEPT_DEVICE);
    close_both();
    close_grave(&grave);
    free(board);
    kvg_inproc_destroy(old);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run_rebuild");
    TCase *cases = tcase_create("run_rebuild");

    tcase_add_checked_fixture(cases, scene_setup, scene_teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, test_a_survivor_of_a_run_goes_on_alone);
    tcase_add_test(cases, test_a_newcomer_takes_a_place_in_the_runs_too);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed != 0 || ran == 0;
}

/* Captured runs, what is refused and why: while one is on, place by place, by a rank that has no memory, and what is not served. Without a GPU. */
#include "tests/support/run_pair.h"

/* ---- 6: while a run is on */

static void busy_everywhere(int r)
{
    const uint32_t  rows[SCENE_PLACES] = {1, 1, 1};
    const int       ranks[] = {0, 1};
    KvgCapture      capture = {sizeof capture, rows, KVG_ACCEPT_ALL};
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    KvgPlacement   *placement = NULL;
    KvgSequence    *other = NULL;
    KvgSnapshot    *snapshot = NULL;
    KvgSetup       *setup = NULL;
    KvDigest        digest;
    size_t          leaves;
    KvgStep        *step;
    TestGrid       *g = &scene.g;
    uint64_t        running = g->grid[r]->running;

    options.memory_bytes = 1u << 20;
    ck_assert_int_eq(kvg_step_begin(g->batch[r], rows, &step), KVG_EBUSY);
    ck_assert_int_eq(kvg_sequence_open(g->placement[r], 800, 0, &other), KVG_EBUSY);
    ck_assert_int_eq(kvg_sequence_rewind(scene.s[r][0], 0), KVG_EBUSY);
    ck_assert_int_eq(kvg_sequence_book(scene.s[r][0], 1), KVG_EBUSY);
    ck_assert_int_eq(kvg_sequence_trim(scene.s[r][0]), KVG_EBUSY);
    ck_assert_int_eq(kvg_sequence_fork(scene.s[r][0], 0, 801, &other), KVG_EBUSY);
    ck_assert_int_eq(kvg_sequence_restore(scene.s[r][0], 1, 0), KVG_EBUSY);
    ck_assert_int_eq(kvg_sequence_snapshot(scene.s[r][0], &snapshot), KVG_EBUSY);
    ck_assert_int_eq(kvg_sequence_digest_start(scene.s[r][0], &digest, &setup), KVG_EBUSY);
    ck_assert_int_eq(kvg_sequence_leaves(scene.s[r][0], NULL, 0, &leaves), KVG_EBUSY);
    ck_assert_int_eq(kvg_placement_resize_start(g->placement[r], 1u << 20, &setup), KVG_EBUSY);
    ck_assert_int_eq(kvg_placement_sleep_start(g->placement[r], &setup), KVG_EBUSY);
    ck_assert_int_eq(kvg_place_start(g->grid[r], &g->config, &options, &placement, &setup), KVG_EBUSY);
    ck_assert_int_eq(kvg_grid_settle_start(g->grid[r], ranks, g->ranks, &setup), KVG_EBUSY);
    ck_assert_int_eq(kvg_batch_set(g->batch[r], 0, NULL), KVG_EBUSY);
    ck_assert_int_eq(kvg_run_begin(scene.graph[0][r], 1, NULL, scene_stream), KVG_EBUSY);
    ck_assert_int_eq(kvg_batch_capture_begin(g->batch[r], &capture, scene_stream), KVG_EBUSY);
    ck_assert_int_eq(kvg_grid_vote_on_device(g->grid[r], NULL, NULL), KVG_EBUSY);
    ck_assert_uint_eq(g->grid[r]->running, running);
}

START_TEST(test_while_a_run_is_on_all_but_close_is_busy)
{
    const uint32_t rows[SCENE_PLACES] = {3, 3, 0};
    KvgStats       before = {.size = sizeof before}, after = {.size = sizeof after};

    open_both((uint32_t)_i, FULL, KVG_ACCEPT_ALL);
    ck_assert_int_eq(scene_begin(&scene, 0, 4, rows), KVG_OK);
    for (int r = 0; r < scene.g.ranks; r++) busy_everywhere(r);
    scene_launch(&scene, 2);
    ck_assert_int_eq(kvg_stats(scene.g.placement[0], &before), KVG_OK);
    scene_close_sequence(&scene, 1); /* in the run: goes when that ends */
    scene_close_sequence(&scene, 2); /* not in it: goes now */
    for (int r = 0; r < scene.g.ranks; r++) {
        ck_assert_int_eq(kvg_sequence_close(scene.s[r][1], NULL), KVG_ESTALE);
        busy_everywhere(r);
    }
    ck_assert_int_eq(kvg_stats(scene.g.placement[0], &after), KVG_OK);
    ck_assert_uint_eq(after.sequences_open + 1, before.sequences_open);
    scene_launch(&scene, 2);
    scene_pump(&scene);
    ck_assert_int_eq(scene_end(&scene), KVG_OK);
    ck_assert_uint_eq(scene.result[0].published, 4);
    ck_assert_uint_eq(scene.result[0].rows[1], 12);
    for (int r = 0; r < scene.g.ranks; r++) {
        KvgSequenceInfo info = {.size = sizeof info};
        ck_assert_int_eq(kvg_stats(scene.g.placement[r], &after), KVG_OK);
        ck_assert_uint_eq(after.sequences_open, 1);
        ck_assert_uint_eq(scene.g.placement[r]->free_count, SCENE_SEQUENCES - 1);
        ck_assert_int_eq(kvg_sequence_info(scene.s[r][1], &info), KVG_ESTALE);
    }
    host_steps(&reference, 4, rows, KVG_ACCEPT_ALL);
    scene_close_sequence(&reference, 1);
    scene_close_sequence(&reference, 2);
    scene_compare(&scene, &reference);
    ck_assert_int_eq(scene_run(&scene, 0, 4, NULL), KVG_OK); /* places of closed sequences take no part */
    ck_assert_uint_eq(scene.result[0].rows[1], 0);
    ck_assert_uint_eq(scene_length(&scene, 0, 0), 24);
    close_both();
}
END_TEST

START_TEST(test_a_batch_that_goes_ends_its_run_and_its_capture)
{
    const KvgCapture capture = {sizeof capture, most, KVG_ACCEPT_ALL};

    scene_open(&scene, grids[_i].tp, grids[_i].pp, &scene_specs[FULL], 3, 1);
    scene_capture(&scene, 0, most, KVG_ACCEPT_ALL);
    ck_assert_int_eq(scene_begin(&scene, 0, 6, NULL), KVG_OK);
    scene_launch(&scene, 4);
    scene_pump(&scene);
    for (int r = 0; r < scene.g.ranks; r++) {
        kvg_batch_destroy(scene.g.batch[r]);
        ck_assert_uint_eq(scene_length(&scene, r, 0), 12);
        ck_assert_int_eq(kvg_graph_launch(scene.graph[0][r], scene_stream), KVG_ESTALE);
        ck_assert_int_eq(kvg_batch_create(scene.g.placement[r], 3, &scene.g.batch[r]), KVG_OK);
        ck_assert_int_eq(kvg_batch_capture_begin(scene.g.batch[r], &capture, scene_stream), KVG_OK);
        kvg_batch_destroy(scene.g.batch[r]); /* in the middle of a capture */
        ck_assert_int_eq(kvg_batch_create(scene.g.placement[r], 3, &scene.g.batch[r]), KVG_OK);
    }
    scene_free_graph(&scene, 0);
    for (uint32_t i = 0; i < 3; i++) scene_set(&scene, i, (int)i);
    scene_capture(&scene, 0, most, KVG_ACCEPT_ALL);
    ck_assert_int_eq(scene_run(&scene, 0, 2, NULL), KVG_OK);
    ck_assert_uint_eq(scene_length(&scene, 0, 0), 18);
    scene_close(&scene);
}
END_TEST

START_TEST(test_no_step_begins_while_its_batch_is_captured)
{
    const KvgCapture capture = {sizeof capture, most, KVG_ACCEPT_ALL};
    KvgGraph        *graph = NULL;
    KvgStep         *step;

    scene_open(&scene, 1, 1, &scene_specs[FULL], 3, 1);
    ck_assert_int_eq(kvg_batch_capture_begin(scene.g.batch[0], &capture, scene_stream), KVG_OK);
    ck_assert_int_eq(kvg_step_begin(scene.g.batch[0], one, &step), KVG_EBUSY);
    ck_assert_int_eq(kvg_batch_capture_begin(scene.g.batch[0], &capture, scene_stream), KVG_EBUSY);
    ck_assert_int_eq(kvg_batch_set(scene.g.batch[0], 0, NULL), KVG_EBUSY);
    ck_assert_int_eq(kvg_batch_capture_end(scene.g.batch[0], &graph), KVG_OK);
    kvg_graph_free(graph);
    ck_assert_int_eq(scene_step(&scene, one, KVG_ACCEPT_ALL), KVG_OK);
    scene_close(&scene);
}
END_TEST

/* ---- 7: refused by place, and a rank's own failure */

static void refused_at(uint32_t place, KvgStatus status)
{
    for (uint32_t i = 0; i < scene.places; i++) {
        for (int r = 0; r < scene.g.ranks; r++) ck_assert_int_eq(kvg_run_refusal(scene.graph[0][r], i), i == place ? status : KVG_OK);
    }
}

START_TEST(test_a_place_past_the_context_is_refused_and_the_others_go_on)
{
    const uint32_t long_first[SCENE_PLACES] = {32, 0, 0};

    open_both((uint32_t)_i, FULL, KVG_ACCEPT_ALL);
    host_steps(&scene, 10, long_first, KVG_ACCEPT_ALL);
    host_steps(&reference, 10, long_first, KVG_ACCEPT_ALL);
    ck_assert_int_eq(scene_begin(&scene, 0, 600, NULL), KVG_OK); /* 320 + 1800 > 2048 */
    refused_at(0, KVG_ECAPACITY);
    scene_launch(&scene, 5);
    scene_pump(&scene);
    ck_assert_int_eq(scene_end(&scene), KVG_OK);
    ck_assert_uint_eq(scene.result[0].rows[0], 0);
    ck_assert_uint_eq(scene.result[0].rows[1], 15);
    host_steps(&reference, 5, (const uint32_t[]){0, 3, 1}, KVG_ACCEPT_ALL);
    scene_compare(&scene, &reference);
    ck_assert_int_eq(scene_begin(&scene, 0, 576, NULL), KVG_OK); /* 320 + 1728 = 2048 */
    refused_at(0, KVG_OK);
    ck_assert_int_eq(scene_end(&scene), KVG_OK);
    close_both();
}
END_TEST

START_TEST(test_more_rows_than_a_window_takes_are_refused)
{
    SceneSpec spec = scene_specs[WINDOWED];

    spec.chunk_max = 64;
    scene_open(&scene, grids[_i].tp, grids[_i].pp, &spec, 3, 1);
    scene_capture(&scene, 0, (const uint32_t[]){3, 1, 1}, KVG_ACCEPT_ALL);
    ck_assert_int_eq(scene_begin(&scene, 0, 22, NULL), KVG_OK); /* 66 rows; the others 22 */
    refused_at(0, KVG_ENOFIT);
    scene_launch(&scene, 22);
    scene_pump(&scene);
    ck_assert_int_eq(scene_end(&scene), KVG_OK);
    ck_assert_uint_eq(scene_length(&scene, 0, 0), 0);
    ck_assert_uint_eq(scene_length(&scene, 0, 1), 22);
    ck_assert_int_eq(scene_begin(&scene, 0, 21, NULL), KVG_OK); /* 63 */
    refused_at(0, KVG_OK);
    ck_assert_int_eq(scene_end(&scene), KVG_OK);
    scene_close(&scene);
}
END_TEST

START_TEST(test_taint_of_one_rank_taints_on_every_rank_and_is_refused_then)
{
    int r;

    open_both((uint32_t)_i, FULL, KVG_ACCEPT_ALL);
    r = scene.g.ranks - 1;
    ck_assert_int_eq(kvg_sequence_taint(scene.s[r][1]), KVG_OK);
    ck_assert_int_eq(scene_run(&scene, 0, 3, NULL), KVG_ETAINTED);
    ck_assert_uint_eq(scene.result[0].published, 0);
    ck_assert_int_eq(scene.result[0].outcome.kind, KVG_OUTCOME_TAINTED);
    ck_assert_int_eq(scene.result[0].outcome.rank, r);
    for (r = 0; r < scene.g.ranks; r++) {
        for (int i = 0; i < 3; i++) {
            KvgSequenceInfo info = {.size = sizeof info};
            ck_assert_int_eq(kvg_sequence_info(scene.s[r][i], &info), KVG_OK);
            ck_assert_int_eq(info.tainted, i == 1);
            ck_assert_int_eq(scene.s[r][i]->cache.tainted, i == 1);
        }
    }
    ck_assert_int_eq(scene_begin(&scene, 0, 3, NULL), KVG_OK);
    refused_at(1, KVG_ETAINTED);
    scene_launch(&scene, 3);
    scene_pump(&scene);
    ck_assert_int_eq(scene_end(&scene), KVG_OK);
    host_steps(&reference, 3, (const uint32_t[]){3, 0, 1}, KVG_ACCEPT_ALL);
    scene_close_sequence(&scene, 1);
    scene_close_sequence(&reference, 1);
    scene_compare(&scene, &reference);
    close_both();
}
END_TEST

START_TEST(test_a_sequence_named_twice_takes_part_once)
{
    open_both((uint32_t)_i, FULL, KVG_ACCEPT_ALL);
    scene_set(&scene, 1, 0);
    ck_assert_int_eq(scene_begin(&scene, 0, 3, NULL), KVG_OK);
    refused_at(1, KVG_EBUSY);
    scene_launch(&scene, 3);
    scene_pump(&scene);
    ck_assert_int_eq(scene_end(&scene), KVG_OK);
    host_steps(&reference, 3, (const uint32_t[]){3, 0, 1}, KVG_ACCEPT_ALL);
    scene_compare(&scene, &reference);
    close_both();
}
END_TEST

START_TEST(test_a_sequence_that_owes_a_replay_is_refused)
{
    SceneSpec      spec = scene_specs[RECURRENT];
    const uint32_t rows[SCENE_PLACES] = {6, 0, 0};
    KvgStep       *steps[TEST_RANKS_MAX];

    spec.columns = 2;
    scene_open(&scene, grids[_i].tp, grids[_i].pp, &spec, 3, 1);
    scene_capture(&scene, 0, one, KVG_ACCEPT_ALL);
    for (int r = 0; r < scene.g.ranks; r++) {
        KvgCommit      commit = KVG_COMMIT_INIT;
        const uint32_t accepted[SCENE_PLACES] = {4, 0, 0};
        ck_assert_int_eq(kvg_step_begin(scene.g.batch[r], rows, &steps[r]), KVG_OK);
        scene_write_step(&scene, r, steps[r], KVG_ACCEPT_ALL);
        if (kvg_grid_stage(scene.g.grid[r]) + 1 == scene.g.pp) commit.accepted = accepted;
        ck_assert_int_eq(kvg_step_post(steps[r], &commit), KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&scene.g, steps, NULL), KVG_OK);
    ck_assert_int_eq(scene_begin(&scene, 0, 3, NULL), KVG_OK);
    refused_at(0, KVG_EBUSY);
    scene_launch(&scene, 3);
    scene_pump(&scene);
    ck_assert_int_eq(scene_end(&scene), KVG_OK);
    ck_assert_uint_eq(scene_length(&scene, 0, 1), 3);
    scene_close(&scene);
}
END_TEST

START_TEST(test_memory_that_one_rank_cannot_get_is_a_voted_no)
{
    int r;

    open_both((uint32_t)_i, FLAT, KVG_ACCEPT_ALL);
    r = scene.g.ranks - 1;
    for (int other = 0; other < scene.g.ranks; other++) {
        if (other == r) kvg_fault_arm(0);
        ck_assert_msg(scene_begin_rank(&scene, other, 0, 300, NULL) == KVG_OK, "%s", kvg_last_error());
        if (other == r) ck_assert_int_eq(kvg_fault_disarm(), 1);
    }
    refused_at(0, KVG_OK);
    scene_launch(&scene, 4);
    scene_pump(&scene);
    ck_assert_int_eq(scene_end(&scene), KVG_EREFUSED);
    ck_assert_uint_eq(scene.result[0].published, 0);
    ck_assert_int_eq(scene.result[0].outcome.rank, r);
    ck_assert_int_eq(scene.result[0].outcome.reason, KVG_ENOMEM);
    ck_assert_uint_eq(scene.written, r == 0 ? 0 : layers_written(&scene) * (3 + 3 + 1)); /* what has no memory is not written */
    scene_compare(&scene, &reference);
    goes_on(KVG_ACCEPT_ALL);
    close_both();
}
END_TEST

/* ---- 8: what is not served, or asked wrongly */

static void not_served(const SceneSpec *spec, int runs, const uint32_t *rows, const char *says)
{
    const KvgCapture capture = {sizeof capture, rows, KVG_ACCEPT_ALL};

    scene_open(&scene, 1, 1, spec, 3, runs);
    ck_assert_int_eq(kvg_batch_capture_begin(scene.g.batch[0], &capture, scene_stream), KVG_ENOTSUP);
    ck_assert_says(kvg_last_error(), says);
    scene_close(&scene);
}

START_TEST(test_what_is_not_served_is_refused_by_name)
{
    const SceneSpec flat_rings = {.llama = {4, 4, 64}, .layout = KVG_LAYOUT_FLAT, .ring = 1};
    const SceneSpec flat_no_rings = {.llama = {4, 4, 64}, .layout = KVG_LAYOUT_FLAT};
    const SceneSpec pooled_index = {.text = glm_next, .columns = 4};
    const SceneSpec few_columns = {.text = qwen3_next, .columns = 3};

    not_served(&scene_specs[FULL], 0, most, "host");
    not_served(&flat_rings, 1, most, "flat ring");
    not_served(&pooled_index, 1, most, "pooled indexer");
    not_served(&few_columns, 1, most, "4 columns");
    scene_open(&scene, 1, 1, &few_columns, 3, 1); /* neighbours that are served */
    scene_capture(&scene, 0, (const uint32_t[]){2, 2, 2}, KVG_ACCEPT_ALL);
    scene_close(&scene);
    scene_open(&scene, 1, 1, &flat_no_rings, 3, 1);
    scene_capture(&scene, 0, most, KVG_ACCEPT_ALL);
    scene_close(&scene);
}
END_TEST

START_TEST(test_boards_that_are_not_the_grids_are_refused)
{
    const KvgCapture capture = {sizeof capture, most, KVG_ACCEPT_ALL};
    KvVoteBoard      good, bad;
    KvgGrid         *grid;

    scene_open(&scene, 2, 1, &scene_specs[FULL], 3, 1);
    grid = scene.g.grid[0];
    good = grid->board;
    bad = good, bad.ranks = 3;
    ck_assert_int_eq(kvg_grid_vote_on_device(grid, &bad, &scene.control[0]), KVG_EINVAL);
    bad = good, bad.rank = 1;
    ck_assert_int_eq(kvg_grid_vote_on_device(grid, &bad, &scene.control[0]), KVG_EINVAL);
    bad = good, bad.tp = 1;
    ck_assert_int_eq(kvg_grid_vote_on_device(grid, &bad, &scene.control[0]), KVG_EINVAL);
    bad = good, bad.slots /= 2;
    ck_assert_int_eq(kvg_grid_vote_on_device(grid, &bad, &scene.control[0]), KVG_EINVAL);
    bad = good, bad.sequences_max++;
    ck_assert_int_eq(kvg_grid_vote_on_device(grid, &bad, &scene.control[0]), KVG_EINVAL);
    bad = good, bad.base = NULL;
    ck_assert_int_eq(kvg_grid_vote_on_device(grid, &bad, &scene.control[0]), KVG_EINVAL);
    ck_assert_int_eq(kvg_grid_vote_on_device(grid, &good, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_grid_vote_on_device(NULL, &good, &scene.control[0]), KVG_EINVAL);
    ck_assert_ptr_eq(grid->board.base, good.base); /* none of these was taken */
    scene_capture(&scene, 0, most, KVG_ACCEPT_ALL);
    ck_assert_int_eq(kvg_grid_vote_on_device(grid, NULL, NULL), KVG_OK);
    ck_assert_int_eq(kvg_batch_capture_begin(scene.g.batch[0], &capture, scene_stream), KVG_ENOTSUP);
    ck_assert_says(kvg_last_error(), "board");
    ck_assert_int_eq(kvg_run_begin(scene.graph[0][0], 1, NULL, scene_stream), KVG_ESTALE);
    scene_close(&scene);
}
END_TEST

START_TEST(test_a_board_that_is_replaced_wants_a_capture_anew)
{
    uint8_t *first;

    open_both((uint32_t)_i, FULL, KVG_ACCEPT_ALL);
    ck_assert_int_eq(scene_run(&scene, 0, 3, NULL), KVG_OK);
    first = scene.board;
    scene_give_board(&scene);
    memset(first, 0xff, 64);
    free(first);
    ck_assert_int_eq(scene_begin(&scene, 0, 3, NULL), KVG_ESTALE);
    scene_free_graph(&scene, 0);
    scene_capture(&scene, 0, most, KVG_ACCEPT_ALL);
    ck_assert_int_eq(scene_run(&scene, 0, 3, NULL), KVG_OK);
    host_steps(&reference, 6, most, KVG_ACCEPT_ALL);
    scene_compare(&scene, &reference);
    close_both();
}
END_TEST

START_TEST(test_captures_that_are_asked_wrongly_are_refused)
{
    const uint32_t   none[SCENE_PLACES] = {0};
    KvgCapture       capture = {sizeof capture, most, KVG_ACCEPT_ALL};
    KvgRows          rows = KVG_ROWS_INIT;
    KvgRecurrentRows recurrent = KVG_RECURRENT_ROWS_INIT;
    KvgRunArrays     arrays = {.size = sizeof arrays};
    KvgGraph        *graph = NULL;
    KvgStep         *step;
    KvgCommit        commit = KVG_COMMIT_INIT;
    float            scratch[1];
    KvgBatch        *batch;

    scene_open(&scene, 1, 1, &scene_specs[RECURRENT], 3, 1);
    batch = scene.g.batch[0];
    ck_assert_int_eq(kvg_run_arrays(batch, &arrays), KVG_ESTALE);
    ck_assert_int_eq(kvg_batch_capture_end(batch, &graph), KVG_ESTALE);
    ck_assert_int_eq(kvg_batch_capture_begin(batch, &capture, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_batch_capture_begin(batch, NULL, scene_stream), KVG_EINVAL);
    capture.rows_per_slot = none;
    ck_assert_int_eq(kvg_batch_capture_begin(batch, &capture, scene_stream), KVG_EINVAL);
    capture.rows_per_slot = NULL;
    ck_assert_int_eq(kvg_batch_capture_begin(batch, &capture, scene_stream), KVG_EINVAL);
    capture.rows_per_slot = most;
    capture.accept = (KvgAccept)3;
    ck_assert_int_eq(kvg_batch_capture_begin(batch, &capture, scene_stream), KVG_EINVAL);
    capture.accept = KVG_ACCEPT_ALL;
    ck_assert_int_eq(kvg_step_begin(batch, one, &step), KVG_OK);
    ck_assert_int_eq(kvg_batch_capture_begin(batch, &capture, scene_stream), KVG_EBUSY);
    commit.refuse = KVG_EIO;
    ck_assert_int_eq(kvg_step_post(step, &commit), KVG_OK);
    ck_assert_int_eq(kvg_step_wait(step, NULL), KVG_EREFUSED);
    ck_assert_int_eq(kvg_batch_capture_begin(batch, &capture, scene_stream), KVG_OK);
    ck_assert_int_eq(kvg_run_arrays(batch, &arrays), KVG_OK);
    rows.k = rows.v = arrays.rows; /* any device memory: nothing is launched */
    rows.first_token = most;
    ck_assert_int_eq(kvg_write_kv(batch, 3, &rows, scene_stream), KVG_EINVAL);
    ck_assert_says(kvg_last_error(), "first_token");
    recurrent.fill = scene_fill;
    recurrent.scratch = scratch;
    ck_assert_int_eq(kvg_recurrent_update(batch, 0, &recurrent, scene_stream), KVG_ENOTSUP);
    ck_assert_int_eq(kvg_batch_capture_end(batch, &graph), KVG_OK);
    kvg_graph_free(graph);
    kvg_graph_free(NULL);
    scene_close(&scene);
}
END_TEST

START_TEST(test_runs_that_are_asked_wrongly_are_refused)
{
    const uint32_t many[SCENE_PLACES] = {3, 4, 1};
    uint64_t       published;
    int            stopped;
    KvgRunResult   result = {0};
    KvgStep       *step;
    KvgCommit      commit = KVG_COMMIT_INIT;

    scene_open(&scene, 1, 1, &scene_specs[FULL], 3, 1);
    scene_capture(&scene, 0, most, KVG_ACCEPT_ALL);
    ck_assert_int_eq(kvg_run_begin(NULL, 1, NULL, scene_stream), KVG_EINVAL);
    ck_assert_int_eq(kvg_run_begin(scene.graph[0][0], 1, NULL, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_run_begin(scene.graph[0][0], 0, NULL, scene_stream), KVG_EINVAL);
    ck_assert_int_eq(kvg_run_begin(scene.graph[0][0], 1, many, scene_stream), KVG_EINVAL);
    ck_assert_int_eq(kvg_run_refusal(scene.graph[0][0], 3), KVG_EINVAL);
    ck_assert_int_eq(kvg_graph_launch(scene.graph[0][0], scene_stream), KVG_ESTALE);
    ck_assert_int_eq(kvg_run_test(scene.graph[0][0], &published, &stopped), KVG_ESTALE);
    ck_assert_int_eq(kvg_run_test(scene.graph[0][0], NULL, &stopped), KVG_EINVAL);
    ck_assert_int_eq(kvg_run_end(NULL, scene_stream, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_run_end(scene.graph[0][0], NULL, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_run_end(scene.graph[0][0], scene_stream, NULL), KVG_ESTALE);
    ck_assert_int_eq(kvg_run_end(scene.graph[0][0], scene_stream, &result), KVG_EINVAL); /* no size */
    ck_assert_int_eq(kvg_step_begin(scene.g.batch[0], one, &step), KVG_OK);
    ck_assert_int_eq(kvg_run_begin(scene.graph[0][0], 1, NULL, scene_stream), KVG_EBUSY);
    commit.accept_all = 1;
    scene_write_step(&scene, 0, step, KVG_ACCEPT_ALL);
    ck_assert_int_eq(kvg_step_post(step, &commit), KVG_OK);
    ck_assert_int_eq(scene_run(&scene, 0, 1, NULL), KVG_OK); /* decides what was posted */
    ck_assert_uint_eq(scene.result[0].first_step, 2);
    ck_assert_uint_eq(scene_length(&scene, 0, 0), 4);
    scene_close(&scene);
}
END_TEST

Suite *run_refused_suite(void);
Suite *run_refused_suite(void)
{
    Suite *suite = suite_create("run_refused");
    TCase *cases = tcase_create("refused");

    tcase_add_checked_fixture(cases, scene_setup, scene_teardown);
    tcase_set_timeout(cases, 60);
    loop_grids(cases, test_while_a_run_is_on_all_but_close_is_busy, 0, 4);
    loop_grids(cases, test_a_batch_that_goes_ends_its_run_and_its_capture, 0, 4);
    tcase_add_test(cases, test_no_step_begins_while_its_batch_is_captured);
    loop_grids(cases, test_a_place_past_the_context_is_refused_and_the_others_go_on, 0, 4);
    loop_grids(cases, test_more_rows_than_a_window_takes_are_refused, 0, 4);
    loop_grids(cases, test_taint_of_one_rank_taints_on_every_rank_and_is_refused_then, 0, 4);
    loop_grids(cases, test_a_sequence_named_twice_takes_part_once, 0, 4);
    loop_grids(cases, test_a_sequence_that_owes_a_replay_is_refused, 0, 4);
    loop_grids(cases, test_memory_that_one_rank_cannot_get_is_a_voted_no, 0, 4);
    tcase_add_test(cases, test_what_is_not_served_is_refused_by_name);
    tcase_add_test(cases, test_boards_that_are_not_the_grids_are_refused);
    loop_grids(cases, test_a_board_that_is_replaced_wants_a_capture_anew, 1, 4);
    tcase_add_test(cases, test_captures_that_are_asked_wrongly_are_refused);
    tcase_add_test(cases, test_runs_that_are_asked_wrongly_are_refused);
    suite_add_tcase(suite, cases);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(run_refused_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed != 0 || ran == 0;
}

/* Captured runs, without a GPU: a run's replays leave what the same steps leave when the host drives them, whoever takes part, however often it is
 * launched. Faults are in test_run_faults.c, batches that take turns in test_run_joint.c. */
#include <stdlib.h>

#include "tests/support/run_scene.h"

static Scene scene, reference;

enum { FULL = 0, WINDOWED = 1, FLAT = 3, LATENT = 4, RECURRENT = 5 };

static void host_steps(Scene *at, uint32_t steps, const uint32_t *rows, KvgAccept accept)
{
    for (uint32_t k = 0; k < steps; k++) ck_assert_int_eq(scene_step(at, rows, accept), KVG_OK);
}

static void open_both(uint32_t grid, const SceneSpec *spec, uint32_t places)
{
    scene_open(&scene, grids[grid].tp, grids[grid].pp, spec, places, 1);
    scene_open(&reference, 1, 1, spec, places, 0);
}

static void close_both(void)
{
    scene_close(&reference);
    scene_close(&scene);
}

/* ---- 1: digests */

static void run_equals_steps(uint32_t grid, uint32_t spec, KvgAccept accept)
{
    const uint32_t most[SCENE_PLACES] = {3, 3, 1}, one[SCENE_PLACES] = {1, 1, 1};

    open_both(grid, &scene_specs[spec], 3);
    host_steps(&scene, 2, one, accept);
    host_steps(&reference, 2, one, accept);
    scene_capture(&scene, 0, most, accept);
    ck_assert_int_eq(scene_run(&scene, 0, 30, NULL), KVG_OK);
    ck_assert_uint_eq(scene.result[0].first_step, 3);
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
    close_both();
}

START_TEST(test_a_run_leaves_what_the_same_steps_leave_on_a_host_grid)
{
    for (uint32_t grid = 0; grid < 4; grid++) {
        run_equals_steps(grid, (uint32_t)_i, KVG_ACCEPT_ALL);
        run_equals_steps(grid, (uint32_t)_i, KVG_ACCEPT_DEVICE);
    }
}
END_TEST

START_TEST(test_windows_move_inside_a_run)
{
    const uint32_t most[SCENE_PLACES] = {32, 32, 1};

    for (int accept = KVG_ACCEPT_ALL; accept <= KVG_ACCEPT_DEVICE; accept++) {
        open_both((uint32_t)_i, &scene_specs[WINDOWED], 3);
        scene_capture(&scene, 0, most, (KvgAccept)accept);
        for (int run = 0; run < 2; run++) {
            ck_assert_int_eq(scene_run(&scene, 0, 28, NULL), KVG_OK);
            host_steps(&reference, 28, most, (KvgAccept)accept);
            scene_compare(&scene, &reference);
        }
        ck_assert_uint_gt(kvg_store_view(scene.g.placement[0]->store, 0)->base_row[scene.s[0][0]->cache.slot], 0);
        close_both();
    }
}
END_TEST

/* ---- 2: members */

/* Only places that hold a sequence are asked for rows by a host-driven step. */
static void member_run(int graph, uint32_t steps, const uint32_t *rows, KvgAccept accept)
{
    uint32_t asked[SCENE_PLACES];

    for (uint32_t i = 0; i < scene.places; i++) asked[i] = scene.place[i] >= 0 ? rows[i] : 0;
    ck_assert_msg(scene_run(&scene, graph, steps, rows) == KVG_OK, "%s", scene.why[0]);
    host_steps(&reference, steps, asked, accept);
    scene_compare(&scene, &reference);
}

static void set_both(uint32_t place, int sequence)
{
    scene_set(&scene, place, sequence);
    scene_set(&reference, place, sequence);
}

static void members_change(uint32_t grid, uint32_t spec)
{
    const uint32_t three[SCENE_PLACES] = {3, 3, 3, 3}, one[SCENE_PLACES] = {1, 1, 1, 1}, some[SCENE_PLACES] = {2, 0, 3, 1};

    open_both(grid, &scene_specs[spec], 4);
    scene_capture(&scene, 0, three, KVG_ACCEPT_DEVICE);
    scene_capture(&scene, 1, one, KVG_ACCEPT_ALL);
    member_run(0, 4, three, KVG_ACCEPT_DEVICE);
    set_both(1, -1); /* an empty place */
    member_run(0, 4, three, KVG_ACCEPT_DEVICE);
    member_run(1, 4, one, KVG_ACCEPT_ALL);
    scene_open_sequence(&scene, 4, 100);
    scene_open_sequence(&reference, 4, 100);
    set_both(0, 4);
    set_both(3, 1); /* comes back, elsewhere */
    set_both(1, 0);
    member_run(0, 5, some, KVG_ACCEPT_DEVICE); /* fewer rows than captured; a place that sits out */
    member_run(1, 3, (const uint32_t[]){1, 1, 0, 1}, KVG_ACCEPT_ALL);
    scene_close_sequence(&scene, 2);
    scene_close_sequence(&reference, 2);
    scene.place[2] = reference.place[2] = -1; /* its handle is dead, and its place empty */
    member_run(0, 3, (const uint32_t[]){3, 3, 0, 3}, KVG_ACCEPT_DEVICE);
    close_both();
}

START_TEST(test_members_change_between_runs_with_no_capture_anew)
{
    for (uint32_t spec = 0; spec < SCENE_SPECS; spec++) members_change((uint32_t)_i, spec);
}
END_TEST

START_TEST(test_a_run_of_nobody_only_compares)
{
    const uint32_t none[SCENE_PLACES] = {0}, most[SCENE_PLACES] = {3, 3, 1};

    open_both((uint32_t)_i, &scene_specs[FULL], 3);
    scene_capture(&scene, 0, most, KVG_ACCEPT_ALL);
    ck_assert_int_eq(scene_run(&scene, 0, 3, none), KVG_OK);
    ck_assert_uint_eq(scene.result[0].published, 3);
    scene_compare(&scene, &reference);
    close_both();
}
END_TEST

/* ---- 3: launches */

START_TEST(test_launches_beyond_the_plan_do_nothing_and_fewer_are_fine)
{
    const uint32_t most[SCENE_PLACES] = {3, 3, 1};
    uint64_t       published;
    int            stopped;

    for (uint32_t spec = 0; spec < SCENE_SPECS; spec++) {
        open_both((uint32_t)_i, &scene_specs[spec], 3);
        scene_capture(&scene, 0, most, KVG_ACCEPT_DEVICE);
        ck_assert_int_eq(scene_begin(&scene, 0, 4, NULL), KVG_OK);
        scene_launch(&scene, 9); /* all behind each other, with no host between */
        scene_pump(&scene);
        ck_assert_int_eq(kvg_run_test(scene.graph[0][0], &published, &stopped), KVG_OK);
        ck_assert_uint_eq(published, 4);
        ck_assert_int_eq(stopped, 1);
        ck_assert_int_eq(scene_end(&scene), KVG_OK);
        ck_assert_uint_eq(scene.result[0].published, 4);
        host_steps(&reference, 4, most, KVG_ACCEPT_DEVICE);
        scene_compare(&scene, &reference);
        ck_assert_int_eq(scene_begin(&scene, 0, 9, NULL), KVG_OK);
        scene_launch(&scene, 2);
        scene_pump(&scene);
        scene_launch(&scene, 1);
        scene_pump(&scene);
        ck_assert_int_eq(kvg_run_test(scene.graph[0][0], &published, &stopped), KVG_OK);
        ck_assert_uint_eq(published, scene.g.pp > 1 ? 2 : 3); /* a pipeline decides at the head of the next replay */
        ck_assert_int_eq(stopped, 0);
        ck_assert_int_eq(scene_end(&scene), KVG_OK);
        ck_assert_uint_eq(scene.result[0].published, 3);
        host_steps(&reference, 3, most, KVG_ACCEPT_DEVICE);
        scene_compare(&scene, &reference);
        close_both();
    }
}
END_TEST

START_TEST(test_a_run_that_is_never_launched_changes_nothing)
{
    const uint32_t most[SCENE_PLACES] = {3, 3, 1};

    open_both((uint32_t)_i, &scene_specs[RECURRENT], 3);
    scene_capture(&scene, 0, most, KVG_ACCEPT_DEVICE);
    for (int n = 0; n < 3; n++) {
        ck_assert_int_eq(scene_begin(&scene, 0, 4, NULL), KVG_OK);
        for (uint32_t i = 0; i < 3; i++) ck_assert_int_eq(kvg_run_refusal(scene.graph[0][0], i), KVG_OK);
        ck_assert_int_eq(scene_end(&scene), KVG_OK);
        ck_assert_uint_eq(scene.result[0].published, 0);
        ck_assert_uint_eq(scene.result[0].first_step, 1);
        scene_compare(&scene, &reference);
    }
    host_steps(&scene, 1, most, KVG_ACCEPT_DEVICE);
    host_steps(&reference, 1, most, KVG_ACCEPT_DEVICE);
    ck_assert_int_eq(scene_run(&scene, 0, 2, NULL), KVG_OK);
    host_steps(&reference, 2, most, KVG_ACCEPT_DEVICE);
    scene_compare(&scene, &reference);
    close_both();
}
END_TEST

START_TEST(test_posted_calls_go_on_between_runs)
{
    const uint32_t most[SCENE_PLACES] = {3, 3, 1};

    open_both((uint32_t)_i, &scene_specs[WINDOWED], 3);
    scene_capture(&scene, 0, most, KVG_ACCEPT_DEVICE);
    for (int n = 0; n < 5; n++) {
        Scene *both[2] = {&scene, &reference};
        ck_assert_int_eq(scene_run(&scene, 0, 12, NULL), KVG_OK);
        host_steps(&reference, 12, most, KVG_ACCEPT_DEVICE);
        for (int b = 0; b < 2; b++) {
            for (int r = 0; r < both[b]->g.ranks; r++) {
                uint64_t rows = scene_length(both[b], r, 0);
                ck_assert_int_eq(kvg_sequence_rewind(both[b]->s[r][0], rows - rows / 4), KVG_OK);
                ck_assert_int_eq(kvg_sequence_trim(both[b]->s[r][1]), KVG_OK);
                if (n == 2) ck_assert_int_eq(kvg_sequence_fork(both[b]->s[r][1], scene_length(both[b], r, 1), 103, &both[b]->s[r][3]), KVG_OK);
            }
        }
    }
    scene_compare(&scene, &reference);
    close_both();
}
END_TEST

START_TEST(test_nodes_join_a_graph_of_the_callers)
{
    const uint32_t   most[SCENE_PLACES] = {3, 3, 1};
    const KvgCapture capture = {sizeof capture, most, KVG_ACCEPT_ALL};
    void            *graphs[SCENE_RANKS];

    open_both((uint32_t)_i, &scene_specs[WINDOWED], 3);
    for (int r = 0; r < scene.g.ranks; r++) { /* a capture that fails leaves the caller's alone */
        KvgBatch *batch = NULL;
        run_dev_caller_begins(scene.dev[r].self);
        ck_assert_int_eq(kvg_batch_create(scene.g.placement[r], 3, &batch), KVG_OK);
        ck_assert_int_eq(kvg_batch_capture_begin(batch, &capture, scene_stream), KVG_OK);
        kvg_batch_destroy(batch);
        run_dev_graph_free(scene.dev[r].self, run_dev_caller_ends(scene.dev[r].self));
    }
    for (int r = 0; r < scene.g.ranks; r++) run_dev_caller_begins(scene.dev[r].self);
    scene_capture(&scene, 0, most, KVG_ACCEPT_DEVICE);
    for (int r = 0; r < scene.g.ranks; r++) graphs[r] = run_dev_caller_ends(scene.dev[r].self);
    ck_assert_int_eq(scene_begin(&scene, 0, 5, NULL), KVG_OK);
    for (int r = 0; r < scene.g.ranks; r++) {
        ck_assert_int_eq(kvg_graph_launch(scene.graph[0][r], scene_stream), KVG_EINVAL);
        for (int n = 0; n < 5; n++) ck_assert_int_eq(run_dev_graph_launch(scene.dev[r].self, graphs[r], scene_stream), KVG_OK);
    }
    scene_pump(&scene);
    ck_assert_int_eq(scene_end(&scene), KVG_OK);
    host_steps(&reference, 5, most, KVG_ACCEPT_DEVICE);
    scene_compare(&scene, &reference);
    for (int r = 0; r < scene.g.ranks; r++) run_dev_graph_free(scene.dev[r].self, graphs[r]);
    close_both();
}
END_TEST

static void is_vote(const RunNode *node, unsigned acts, KvgStream stream)
{
    ck_assert_int_eq(node->kind, RUN_NODE_VOTE);
    ck_assert_uint_eq(node->acts, acts);
    ck_assert_ptr_eq(node->stream, stream);
}

START_TEST(test_votes_stand_on_the_captures_stream_and_rows_on_the_one_that_they_are_given)
{
    const uint32_t   most[SCENE_PLACES] = {3, 3, 1};
    const KvgCapture capture = {sizeof capture, most, KVG_ACCEPT_ALL};
    KvgStream const  branch = (KvgStream)(uintptr_t)0x52; /* of the caller's graph */

    scene_open(&scene, grids[_i].tp, grids[_i].pp, &scene_specs[FULL], 3, 1);
    const unsigned head = scene.g.pp > 1 ? KVG_VOTE_ACT_DECIDE : 0;
    for (int r = 0; r < scene.g.ranks; r++) {
        KvgGraph *graph = NULL;
        uint32_t  lo, hi;
        run_dev_caller_begins(scene.dev[r].self);
        ck_assert_int_eq(kvg_batch_capture_begin(scene.g.batch[r], &capture, branch), KVG_OK);
        kvg_placement_layers(scene.g.placement[r], &lo, &hi);
        scene_capture_layer(&scene, 0, r, lo, &scene.kernel[0][r][0]);
        ck_assert_int_eq(kvg_batch_capture_end(scene.g.batch[r], &graph), KVG_OK);
        RunDevGraph   *nodes = run_dev_caller_ends(scene.dev[r].self);
        const RunNode *node = nodes->node;
        if (head != 0) is_vote(node++, head, branch);
        node++; /* the engine's kernel */
        ck_assert(node->kind == RUN_NODE_WRITE && node->stream == scene_stream);
        is_vote(++node, (KVG_VOTE_ACT_POST | KVG_VOTE_ACT_DECIDE) & ~head, branch);
        ck_assert_uint_eq(nodes->count, (uint32_t)(node - nodes->node) + 1);
        kvg_graph_free(graph);
        run_dev_graph_free(scene.dev[r].self, nodes);
    }
    scene_close(&scene);
}
END_TEST

/* ---- the record that the device forms is the one that a host-driven step would post */

static void same_record(Scene *at, Scene *twin, uint64_t step)
{
    _Alignas(8) uint8_t bytes[64 + 2 * SCENE_PLACES] = {0};
    KvVoteRecord       *seen = (KvVoteRecord *)(void *)bytes;

    for (int r = 0; r < at->g.ranks; r++) {
        KvVoteBoard         board = run_dev_host_board(&at->graph[0][r]->board);
        const KvVoteRecord *posted = kvg_records_slot(twin->g.grid[r]->votes, step)->record[r];
        ck_assert_int_eq(kvg_vote_unpack(&board, run_dev_units(&board, step), step, at->g.grid[r]->epoch, (uint32_t)r, seen), 1);
        ck_assert_uint_eq(seen->step, posted->step);
        ck_assert_uint_eq(seen->epoch, posted->epoch);
        ck_assert_int_eq(seen->status, posted->status);
        ck_assert_uint_eq(seen->rank, posted->rank);
        ck_assert_uint_eq(seen->targets, posted->targets);
        ck_assert_uint_eq(seen->accepted, posted->accepted);
        ck_assert_uint_eq(seen->layout, posted->layout);
        ck_assert_uint_eq(seen->user, posted->user);
        ck_assert_uint_eq(seen->count, posted->count);
        ck_assert_uint_eq(seen->reserved, posted->reserved);
        ck_assert_uint_le(seen->decided, posted->step - 1);
        for (uint32_t i = 0; i < at->places && posted->accepted != 0; i++) ck_assert_uint_eq(seen->accepted_rows[i], posted->accepted_rows[i]);
    }
}

START_TEST(test_the_devices_record_is_the_hosts_field_by_field)
{
    const uint32_t most[SCENE_PLACES] = {32, 17, 1}, few[SCENE_PLACES] = {3, 2, 1};

    for (uint32_t spec = 0; spec < SCENE_SPECS; spec++) {
        const uint32_t *rows = spec == RECURRENT ? few : most;
        open_both((uint32_t)_i, &scene_specs[spec], 3);
        scene_close(&reference);
        scene_open(&reference, grids[_i].tp, grids[_i].pp, &scene_specs[spec], 3, 1); /* of the same shape, driven by the host */
        scene_capture(&scene, 0, rows, KVG_ACCEPT_DEVICE);
        for (uint64_t step = 1; step <= 40; step++) { /* past where windows begin to move */
            ck_assert_int_eq(scene_run(&scene, 0, 1, NULL), KVG_OK);
            host_steps(&reference, 1, rows, KVG_ACCEPT_DEVICE);
            same_record(&scene, &reference, step);
        }
        scene_compare(&scene, &reference);
        close_both();
    }
}
END_TEST

/* Within a run generations stay, so digests of targets differ; layouts, which have none, do not. */
START_TEST(test_layouts_inside_a_run_are_the_hosts)
{
    const uint32_t most[SCENE_PLACES] = {32, 32, 32};

    open_both((uint32_t)_i, &scene_specs[WINDOWED], 3);
    scene_close(&reference);
    scene_open(&reference, grids[_i].tp, grids[_i].pp, &scene_specs[WINDOWED], 3, 1);
    scene_capture(&scene, 0, most, KVG_ACCEPT_ALL);
    ck_assert_int_eq(scene_begin(&scene, 0, 40, NULL), KVG_OK);
    for (uint64_t step = 1; step <= 40; step++) {
        scene_launch(&scene, 1);
        scene_pump(&scene);
        host_steps(&reference, 1, most, KVG_ACCEPT_ALL);
        for (int r = 0; r < scene.g.ranks; r++) {
            _Alignas(8) uint8_t bytes[64 + 2 * SCENE_PLACES] = {0};
            KvVoteBoard         board = run_dev_host_board(&scene.graph[0][r]->board);
            KvVoteRecord       *seen = (KvVoteRecord *)(void *)bytes;
            ck_assert_int_eq(kvg_vote_unpack(&board, run_dev_units(&board, step), step, 1, (uint32_t)r, seen), 1);
            ck_assert_uint_eq(seen->layout, kvg_records_slot(reference.g.grid[r]->votes, step)->record[r]->layout);
        }
    }
    ck_assert_int_eq(scene_end(&scene), KVG_OK);
    scene_compare(&scene, &reference);
    close_both();
}
END_TEST

/* ---- 9: memory */

START_TEST(test_booked_and_taken_bytes_come_back)
{
    const uint32_t most[SCENE_PLACES] = {3, 3, 1};

    for (uint32_t spec = 0; spec < SCENE_SPECS; spec++) {
        KvgStats fresh = {.size = sizeof fresh}, after = {.size = sizeof after};
        scene_open(&scene, grids[_i].tp, grids[_i].pp, &scene_specs[spec], 3, 1);
        scene_capture(&scene, 0, most, KVG_ACCEPT_DEVICE);
        ck_assert_int_eq(kvg_stats(scene.g.placement[0], &fresh), KVG_OK);
        ck_assert_int_eq(scene_run(&scene, 0, 100, NULL), KVG_OK);
        scene_free_graph(&scene, 0);
        for (int i = 0; i < 3; i++) scene_close_sequence(&scene, i);
        ck_assert_int_eq(kvg_stats(scene.g.placement[0], &after), KVG_OK);
        ck_assert_uint_eq(after.booked_bytes, 0);
        ck_assert_uint_eq(after.content_bytes, 0);
        ck_assert_uint_eq(after.sequences_open, 0);
        ck_assert_uint_eq(after.steps, 100);
        ck_assert_uint_eq(after.commits, 100);
        scene_close(&scene); /* the devices' taken bytes, and live allocations */
    }
}
END_TEST

START_TEST(test_steady_runs_acquire_nothing)
{
    const uint32_t most[SCENE_PLACES] = {3, 3, 1};
    const uint32_t specs[] = {FULL, WINDOWED, LATENT, RECURRENT};

    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        scene_open(&scene, grids[_i].tp, grids[_i].pp, &scene_specs[specs[s]], 3, 1);
        scene_capture(&scene, 0, most, KVG_ACCEPT_ALL);
        ck_assert_int_eq(scene_run(&scene, 0, 5, NULL), KVG_OK);
        for (int run = 0; run < 3; run++) {
            kvg_fault_arm(0); /* whatever is acquired would fail */
            ck_assert_int_eq(scene_begin(&scene, 0, 20, NULL), KVG_OK);
            scene_launch(&scene, 20);
            ck_assert_int_eq(kvg_fault_disarm(), 0);
            scene_pump(&scene); /* the twins have memory of their own */
            if (scene.g.pp == 1) kvg_fault_arm(0); /* else the last decide is still to come */
            ck_assert_msg(scene_end(&scene) == KVG_OK, "%s", scene.why[0]);
            if (scene.g.pp == 1) ck_assert_int_eq(kvg_fault_disarm(), 0);
        }
        scene_close(&scene);
    }
}
END_TEST

/* Every allocation of a capture, failed in turn: nothing is left. */
static uint64_t fail_each_allocation(const KvgCapture *capture)
{
    for (uint64_t nth = 0;; nth++) {
        uint64_t  live = kvg_live_allocations();
        KvgStatus status;
        kvg_fault_arm(nth);
        status = kvg_batch_capture_begin(scene.g.batch[0], capture, scene_stream);
        if (kvg_fault_disarm() == 0) {
            KvgGraph *graph = NULL;
            ck_assert_int_eq(kvg_batch_capture_end(scene.g.batch[0], &graph), KVG_OK);
            kvg_graph_free(graph);
            return nth;
        }
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert_uint_le(kvg_live_allocations(), live + 16); /* what the batch keeps for runs may stay */
    }
}

START_TEST(test_a_capture_unwinds_from_every_allocation)
{
    const uint32_t   most[SCENE_PLACES] = {3, 3, 1};
    const KvgCapture capture = {sizeof capture, most, KVG_ACCEPT_ALL};

    open_both(0, &scene_specs[FULL], 3);
    ck_assert_uint_gt(fail_each_allocation(&capture), 8);
    ck_assert_uint_ge(fail_each_allocation(&capture), 3); /* and those of a later graph, when the batch keeps its own */
    scene_capture(&scene, 0, most, KVG_ACCEPT_ALL);
    ck_assert_int_eq(scene_run(&scene, 0, 3, NULL), KVG_OK);
    host_steps(&reference, 3, most, KVG_ACCEPT_ALL);
    scene_compare(&scene, &reference);
    close_both();
}
END_TEST

/* ---- 10: random runs against lengths that anybody can keep */

static uint64_t random_state;

static uint32_t below(uint32_t bound)
{
    random_state = kvg_mix64(random_state + 0x9e3779b97f4a7c15u);
    return (uint32_t)(random_state >> 33) % bound;
}

static uint64_t length_of[SCENE_SEQUENCES];

static void naive_step(const uint32_t *rows, KvgAccept accept)
{
    for (uint32_t i = 0; i < scene.places; i++) {
        int s = scene.place[i];
        if (s >= 0 && rows[i] > 0) length_of[s] += scene_accepts(&scene, accept, 100 + (uint64_t)s, length_of[s], rows[i]);
    }
}

static void random_members(void)
{
    int order[SCENE_SEQUENCES];

    for (int s = 0; s < SCENE_SEQUENCES; s++) {
        if (scene.open[s] && (length_of[s] > 1400 || below(12) == 0)) { /* one that is closed is in no place */
            for (uint32_t i = 0; i < scene.places; i++) {
                if (scene.place[i] == s) scene_set(&scene, i, -1);
            }
            scene_close_sequence(&scene, s);
        } else if (!scene.open[s]) {
            scene_open_sequence(&scene, s, below(2) * 64);
            length_of[s] = 0;
        }
        order[s] = s;
    }
    for (uint32_t i = 0; i < scene.places; i++) {
        uint32_t pick = i + below(SCENE_SEQUENCES - i);
        int      s = order[pick];
        order[pick] = order[i];
        order[i] = s;
        if (below(3) == 0) scene_set(&scene, i, scene.open[s] && below(5) > 0 ? s : -1);
    }
    for (uint32_t i = 0; i < scene.places; i++) { /* places that were left may name one twice */
        for (uint32_t j = 0; j < i; j++) {
            if (scene.place[i] >= 0 && scene.place[i] == scene.place[j]) scene_set(&scene, i, -1);
        }
    }
}

static void same_lengths(void)
{
    for (int s = 0; s < SCENE_SEQUENCES; s++) {
        for (int r = 0; scene.open[s] && r < scene.g.ranks; r++) ck_assert_uint_eq(scene_length(&scene, r, s), length_of[s]);
    }
}

/* One rank launches a replay less than the others: they are in doubt about that one, and settling takes it back. */
static void random_doubt(void)
{
    const int all[SCENE_RANKS] = {0, 1, 2, 3};
    uint32_t  launches = 1 + below(6), rows[SCENE_PLACES];
    int       graph = (int)below(2), behind = (int)below((uint32_t)scene.g.ranks);

    for (uint32_t i = 0; i < scene.places; i++) rows[i] = below(scene.captured[graph][i] + 1);
    scene.no_step = 0;
    ck_assert_int_eq(scene_begin(&scene, graph, launches + below(3), rows), KVG_OK);
    for (int r = 0; r < scene.g.ranks; r++) {
        for (uint32_t n = r == behind; n < launches; n++) ck_assert_int_eq(kvg_graph_launch(scene.graph[graph][r], scene_stream), KVG_OK);
    }
    scene_pump(&scene);
    scene_end_each(&scene);
    for (int r = 0; r < scene.g.ranks; r++) {
        ck_assert_int_eq(scene.status[r], r == behind ? KVG_OK : KVG_EINDOUBT);
        ck_assert_uint_eq(scene.result[r].published, launches - 1);
    }
    ck_assert_int_eq(scene_settle(&scene, all, scene.g.ranks), KVG_OK);
    for (uint32_t k = 0; k + 1 < launches; k++) naive_step(rows, scene.accept[graph]);
    same_lengths();
}

static void random_run(void)
{
    uint32_t  steps = 1 + below(12), launches = below(steps + 3), done, rows[SCENE_PLACES];
    int       graph = (int)below(2);
    uint64_t  first = scene.g.grid[0]->votes->begun + 1;
    KvgStatus expected = KVG_OK;

    for (uint32_t i = 0; i < scene.places; i++) rows[i] = below(scene.captured[graph][i] + 1);
    done = launches < steps ? launches : steps;
    scene.no_step = 0;
    if (below(3) == 0) {
        scene.no_step = first + below(steps);
        scene.no_rank = (int)below((uint32_t)scene.g.ranks);
        scene.no_status = KVG_EIO;
        if (scene.no_step < first + done) {
            done = (uint32_t)(scene.no_step - first);
            expected = KVG_EREFUSED;
        }
    }
    ck_assert_int_eq(scene_begin(&scene, graph, steps, rows), KVG_OK);
    scene_launch(&scene, launches);
    scene_pump(&scene);
    ck_assert_int_eq(scene_end(&scene), expected);
    ck_assert_uint_eq(scene.result[0].published, done);
    for (uint32_t k = 0; k < done; k++) naive_step(rows, scene.accept[graph]);
    same_lengths();
}

static void random_host_step(void)
{
    uint32_t rows[SCENE_PLACES];

    for (uint32_t i = 0; i < scene.places; i++) rows[i] = scene.place[i] >= 0 ? below(scene.captured[0][i] + 1) : 0;
    ck_assert_int_eq(scene_step(&scene, rows, KVG_ACCEPT_DEVICE), KVG_OK);
    naive_step(rows, KVG_ACCEPT_DEVICE);
}

/* What rows hold is compared with sequences that were never speculated on. */
static void compare_contents(const SceneSpec *spec)
{
    scene_open(&reference, 1, 1, spec, 1, 0);
    scene_close_sequence(&reference, 0);
    for (int s = 0; s < SCENE_SEQUENCES; s++) {
        if (!scene.open[s]) continue;
        scene_open_sequence(&reference, s, 0);
        scene_set(&reference, 0, s);
        for (uint64_t at = 0; at < length_of[s];) {
            uint32_t rows[SCENE_PLACES] = {length_of[s] - at < 3 ? (uint32_t)(length_of[s] - at) : 3};
            ck_assert_int_eq(scene_step(&reference, rows, KVG_ACCEPT_ALL), KVG_OK);
            at += rows[0];
        }
    }
    scene_compare(&scene, &reference);
    scene_close(&reference);
}

START_TEST(test_random_runs_keep_the_lengths_that_a_naive_reference_keeps)
{
    const char    *given = getenv("KVG_TEST_STEPS");
    const uint32_t runs = given != NULL ? (uint32_t)atoi(given) : 600;

    for (uint32_t spec = 0; spec < SCENE_SPECS; spec++) {
        random_state = 1000 + (uint64_t)_i * SCENE_SPECS + spec;
        memset(length_of, 0, sizeof length_of);
        scene_open(&scene, grids[_i].tp, grids[_i].pp, &scene_specs[spec], SCENE_PLACES, 1);
        scene_capture(&scene, 0, (const uint32_t[]){3, 2, 3, 1}, KVG_ACCEPT_DEVICE);
        scene_capture(&scene, 1, (const uint32_t[]){1, 1, 2, 1}, KVG_ACCEPT_ALL);
        for (uint32_t run = 0; run < runs / SCENE_SPECS; run++) {
            random_members();
            if (below(4) == 0) random_host_step();
            random_run();
            if (scene.g.ranks > 1 && below(10) == 0) random_doubt();
        }
        compare_contents(&scene_specs[spec]);
        scene_close(&scene);
    }
}
END_TEST

Suite *run_suite(void);
Suite *run_suite(void)
{
    Suite *suite = suite_create("run");
    TCase *cases = tcase_create("runs");

    tcase_add_checked_fixture(cases, scene_setup, scene_teardown);
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, test_a_run_leaves_what_the_same_steps_leave_on_a_host_grid, 0, SCENE_SPECS);
    tcase_add_loop_test(cases, test_windows_move_inside_a_run, 0, 4);
    tcase_add_loop_test(cases, test_members_change_between_runs_with_no_capture_anew, 0, 4);
    tcase_add_loop_test(cases, test_a_run_of_nobody_only_compares, 0, 4);
    tcase_add_loop_test(cases, test_launches_beyond_the_plan_do_nothing_and_fewer_are_fine, 0, 4);
    tcase_add_loop_test(cases, test_a_run_that_is_never_launched_changes_nothing, 0, 4);
    tcase_add_loop_test(cases, test_posted_calls_go_on_between_runs, 0, 4);
    tcase_add_loop_test(cases, test_nodes_join_a_graph_of_the_callers, 0, 4);
    tcase_add_loop_test(cases, test_votes_stand_on_the_captures_stream_and_rows_on_the_one_that_they_are_given, 0, 4);
    tcase_add_loop_test(cases, test_the_devices_record_is_the_hosts_field_by_field, 0, 4);
    tcase_add_loop_test(cases, test_layouts_inside_a_run_are_the_hosts, 0, 4);
    tcase_add_loop_test(cases, test_booked_and_taken_bytes_come_back, 0, 4);
    tcase_add_loop_test(cases, test_steady_runs_acquire_nothing, 0, 4);
    tcase_add_test(cases, test_a_capture_unwinds_from_every_allocation);
    tcase_add_loop_test(cases, test_random_runs_keep_the_lengths_that_a_naive_reference_keeps, 0, 4);
    suite_add_tcase(suite, cases);
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

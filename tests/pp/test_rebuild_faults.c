/* Rebuilding when more goes wrong: losses in and after a step, a second one while rebuilding, no memory somewhere, ranks that wake in an old epoch, survivors
 * that went apart, newcomers that bring something else. Every wait ends, survivors agree, and trying again succeeds. */
#include "tests/support/rebuild_scene.h"

enum { LATENT = 1, POOLED = 2, MAMBA = 4 };

static void open_latent(Scene *scene, uint32_t tp, uint32_t pp)
{
    open_scene(scene, &some_models[LATENT], tp, pp, KVG_LAYOUT_POOL);
}

/* ---- in and after a step */

START_TEST(test_a_step_in_doubt_is_settled_first)
{
    for (int posts = 0; posts <= 1; posts++) { /* does the victim post before it dies? */
        Scene    scene = {0};
        KvgStep *steps[4];
        uint32_t rows[SEQUENCES] = {3, 2, 5};
        open_latent(&scene, 2, 2);
        for (int r = 0; r < 4; r++) {
            steps[r] = begin_one(&scene, r, rows);
            if (r != 1 || posts) grid_post(&scene.g, r, steps[r], NULL, KVG_OK);
        }
        kill_rank(&scene, 1);
        ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error());
        for (int q = 0; posts && q < SEQUENCES; q++) scene.rows[q] += rows[q];
        ck_assert_uint_eq(scene.report[0]->sequences[2].rows, posts ? 5 : 0);
        check_goes_on(&scene, 1);
        close_scene(&scene);
    }
}
END_TEST

/* ---- a second loss */

/* Turns every operation; after `moment` rounds the rank at `second` is killed. Returns how many of the others did not end well. */
static int turn_and_kill(Scene *scene, KvgSetup **setups, int second, int moment, KvgStatus *each)
{
    int left = scene->g.ranks, bad = 0, done[TEST_RANKS_MAX] = {0};
    uint64_t before = kvg_inproc_now_ns(scene->g.hub);
    for (int rounds = 0; left > 0; rounds++) {
        if (rounds == moment && second >= 0) {
            kvg_inproc_kill(scene->g.hub, kvg_grid_rank(scene->g.grid[second]));
            left -= !done[second];
            done[second] = 1;
        }
        for (int i = 0; i < scene->g.ranks; i++) {
            if (done[i]) continue;
            each[i] = kvg_setup_test(setups[i], &done[i]);
            left -= done[i];
        }
        kvg_inproc_advance_ns(scene->g.hub, 1000000);
    }
    ck_assert_uint_le(kvg_inproc_now_ns(scene->g.hub) - before, 5 * SECOND_NS);
    for (int i = 0; i < scene->g.ranks; i++) {
        kvg_setup_free(setups[i]);
        if (i != second) bad += each[i] != KVG_OK;
    }
    return bad;
}

START_TEST(test_a_second_loss_at_any_moment_and_a_second_attempt)
{
    int failed = 0;
    for (int moment = 0; moment < 8; moment++) {
        Scene     scene = {0};
        KvgSetup *setups[TEST_RANKS_MAX] = {0};
        KvgStatus each[TEST_RANKS_MAX];
        int       survivors[TEST_RANKS_MAX];
        open_latent(&scene, 4, 1);
        kill_rank(&scene, 3);
        list_survivors(&scene, survivors);
        for (int i = 0; i < 3; i++) ck_assert_int_eq(kvg_grid_rebuild_start(scene.g.grid[i], survivors, 3, NULL, NULL, &setups[i]), KVG_OK);
        failed += turn_and_kill(&scene, setups, 1, moment, each) > 0;
        bury(&scene, 1);
        for (int i = 0; i < 2; i++) kvg_grid_progress(scene.g.grid[i]);
        ck_assert_msg(rebuild_empty(&scene, NULL) == KVG_OK, "moment %d: %s", moment, kvg_last_error());
        check_goes_on(&scene, 1);
        close_scene(&scene);
    }
    ck_assert_int_gt(failed, 1);
    ck_assert_int_lt(failed, 8);
}
END_TEST

/* A newcomer or a survivor dies while rows go to the newcomer, or at the votes: the others end alike, or are brought together by the next attempt. */
START_TEST(test_a_second_loss_while_one_joins_and_a_second_attempt)
{
    int failed = 0, went = 0;
    for (int moment = 4; moment < 14; moment++) {
        Scene     scene = {0};
        KvgStatus each[TEST_RANKS_MAX];
        open_latent(&scene, 4, 1);
        kill_rank(&scene, 3);
        scene.second = moment % 2 ? 3 : 1;
        scene.moment = moment;
        rebuild_joined(&scene, NULL, each);
        scene.moment = 0;
        for (int i = 0; i < 3; i++) {
            if (i != 1 || scene.second == 3) *(each[i] == KVG_OK ? &went : &failed) += 1;
        }
        if (scene.second == 1) bury(&scene, 1);
        if (index_of(&scene, 3) >= 0 && (scene.second == 3 || each[0] != KVG_OK)) bury(&scene, 3); /* it had joined, or thought so */
        ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "moment %d: %s", moment, kvg_last_error());
        check_goes_on(&scene, 1);
        close_scene(&scene);
    }
    ck_assert_int_gt(failed, 3);
    ck_assert_int_gt(went, 0);
}
END_TEST

/* What rank 0 says to rank 2 does not come: rank 2 cannot settle, the others have, and wait for it elsewhere. */
static KvInprocFate drop_0_to_2(void *user, int from, int to, int is_record, const void *bytes, size_t byte_count, uint64_t *delay_ns)
{
    (void)user, (void)is_record, (void)bytes, (void)byte_count, (void)delay_ns;
    return from == 0 && to == 2 ? KVG_INPROC_DROP : KVG_INPROC_DELIVER;
}

START_TEST(test_survivors_whose_connections_have_parted_meet_in_the_next_attempt)
{
    Scene     scene = {0};
    KvgStatus each[TEST_RANKS_MAX];
    open_latent(&scene, 4, 1);
    kill_rank(&scene, 3);
    scene.filter = drop_0_to_2;
    rebuild_joined(&scene, NULL, each);
    scene.filter = NULL;
    for (int i = 0; i < 4; i++) ck_assert_int_ne(each[i], KVG_OK);
    ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error());
    check_goes_on(&scene, 1);
    close_scene(&scene);
}
END_TEST

/* One survivor never comes: the others have their connections back, and rebuild with it over those. */
START_TEST(test_a_rebuild_that_does_not_settle_leaves_the_connections_as_they_were)
{
    Scene      scene = {0};
    KvInproc  *hub = NULL;
    KvgSetup  *setups[2] = {NULL, NULL};
    KvComm     comm[2];
    KvLiveness live[2];
    int        survivors[] = {0, 1, 2}, done[2] = {0, 0};
    open_latent(&scene, 4, 1);
    kill_rank(&scene, 3);
    ck_assert_int_eq(kvg_inproc_create(4, &hub), KVG_OK);
    for (int i = 0; i < 2; i++) {
        KvgRebuildOptions with = KVG_REBUILD_OPTIONS_INIT;
        ck_assert_int_eq(kvg_inproc_attach(hub, i, &comm[i], &live[i]), KVG_OK);
        with.comm = &comm[i];
        with.liveness = &live[i];
        ck_assert_int_eq(kvg_grid_rebuild_start(scene.g.grid[i], survivors, 3, &with, NULL, &setups[i]), KVG_OK);
    }
    while (!done[0] || !done[1]) {
        for (int i = 0; i < 2; i++) {
            KvgStatus status = done[i] ? KVG_OK : kvg_setup_test(setups[i], &done[i]);
            ck_assert(!done[i] || status == KVG_OK || status == KVG_EINDOUBT || status == KVG_EPEER);
        }
        kvg_inproc_advance_ns(hub, 1000000);
        kvg_inproc_advance_ns(scene.g.hub, 1000000);
    }
    for (int i = 0; i < 2; i++) kvg_setup_free(setups[i]);
    kvg_inproc_destroy(hub);
    ck_assert_msg(rebuild_empty(&scene, NULL) == KVG_OK, "%s", kvg_last_error());
    check_goes_on(&scene, 1);
    close_scene(&scene);
}
END_TEST

/* A doubt in a grid that goes on without a rank: settling mends it, as in one that is whole; another loss leaves it to a rebuild. */
START_TEST(test_a_grid_with_an_empty_place_settles_a_doubt_without_a_rebuild)
{
    Scene     scene = {0};
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    int       survivors[TEST_RANKS_MAX];
    open_latent(&scene, 4, 1);
    kill_rank(&scene, 3);
    ck_assert_int_eq(rebuild_empty(&scene, NULL), KVG_OK);
    list_survivors(&scene, survivors);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(kvg_grid_settle_start(scene.g.grid[i], survivors, 3, &setups[i]), KVG_OK);
    ck_assert_int_eq(grid_finish(&scene.g, setups, NULL), KVG_OK);
    for (int i = 0; i < 3; i++) ck_assert_msg(kvg_grid_state(scene.g.grid[i]) == KVG_OK, "%s", kvg_last_error());
    for (int i = 0; i < 3; i++) scene.report[i]->epoch = kvg_grid_epoch(scene.g.grid[i]);
    check_goes_on(&scene, 1);
    kill_rank(&scene, 1);
    list_survivors(&scene, survivors);
    memset(setups, 0, sizeof setups);
    for (int i = 0; i < 2; i++) ck_assert_int_eq(kvg_grid_settle_start(scene.g.grid[i], survivors, 2, &setups[i]), KVG_OK);
    ck_assert_int_eq(grid_finish(&scene.g, setups, NULL), KVG_OK);
    ck_assert_int_eq(kvg_grid_state(scene.g.grid[0]), KVG_EPEER);
    ck_assert_msg(strstr(kvg_last_error(), "without rank 1") != NULL, "%s", kvg_last_error());
    close_scene(&scene);
}
END_TEST

/* ---- units after a resize */

static void resize(Scene *scene, uint64_t bytes)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    for (int i = 0; i < scene->g.ranks; i++) ck_assert_int_eq(kvg_placement_resize_start(scene->g.placement[i], bytes, &setups[i]), KVG_OK);
    ck_assert_msg(grid_finish(&scene->g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
}

START_TEST(test_a_newcomer_gives_as_much_as_its_stage_when_its_place_was_empty_during_a_resize)
{
    Scene           scene = {0};
    KvgPlaceOptions options;
    open_latent(&scene, 2, 2);
    kill_rank(&scene, 3);
    ck_assert_int_eq(rebuild_empty(&scene, NULL), KVG_OK);
    resize(&scene, 3u << 20);
    options = scene_options(&scene);
    options.memory_bytes = 3u << 20;
    ck_assert_msg(rebuild_joined(&scene, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int i = 0; i < 4; i++) ck_assert_uint_eq(life_stats(scene.g.placement[i]).memory_bytes, 3u << 20);
    check_goes_on(&scene, 1);
    close_scene(&scene);
}
END_TEST

START_TEST(test_a_newcomer_joins_where_a_resize_has_left_no_unit)
{
    Scene scene = {0};
    open_latent(&scene, 2, 2);
    for (int i = 0; i < 4; i++) {
        for (int q = 0; q < SEQUENCES; q++) ck_assert_int_eq(kvg_sequence_close(scene.s[i][q], NULL), KVG_OK);
    }
    resize(&scene, 1); /* nothing is open: the engine wants its memory for something else */
    kill_rank(&scene, 3);
    ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error());
    resize(&scene, 2u << 20);
    life_agree_among(&scene.g, NULL, 4);
    for (int i = 0; i < 4; i++) {
        for (uint32_t q = 0; q < SEQUENCES; q++) ck_assert_int_eq(kvg_sequence_open(scene.g.placement[i], ids[q], 0, &scene.s[i][q]), KVG_OK);
    }
    step_ok(&scene, (uint32_t[]){70, 3, 9});
    close_scene(&scene);
}
END_TEST

/* The slot images that are under way go before the sequences that they are of. */
START_TEST(test_a_loss_while_slot_images_are_copied_leaves_nothing_behind)
{
    int failed = 0;
    for (int moment = 3; moment < 10; moment++) {
        Scene     scene = {.index_ring = 64};
        KvgStatus each[TEST_RANKS_MAX];
        open_scene(&scene, &some_models[POOLED], 2, 2, KVG_LAYOUT_POOL);
        kill_rank(&scene, 3);
        scene.second = 0;
        scene.moment = moment;
        rebuild_joined(&scene, NULL, each);
        scene.moment = 0;
        failed += each[3] != KVG_OK; /* the newcomer's */
        close_scene(&scene);
    }
    ck_assert_int_gt(failed, 2);
}
END_TEST

/* ---- memory */

START_TEST(test_memory_fails_somewhere_in_a_rebuild_and_it_is_tried_again)
{
    int refused = 0, went = 0;
    for (uint64_t nth = 0; nth < 400; nth += nth < 60 ? 4 : 23) {
        Scene     scene = {0};
        KvgStatus each[TEST_RANKS_MAX];
        open_latent(&scene, 2, 1);
        kill_rank(&scene, 1);
        int       survivors[1] = {0};
        KvgSetup *setup = NULL;
        kvg_fault_arm(nth);
        KvgStatus status = kvg_grid_rebuild_start(scene.g.grid[0], survivors, 1, NULL, &scene.report[0], &setup);
        if (status == KVG_OK) status = grid_finish(&scene.g, &setup, each);
        int hit = kvg_fault_disarm();
        ck_assert_msg(status == KVG_OK || status == KVG_ENOMEM, "%s", kvg_last_error());
        refused += status != KVG_OK;
        went += status == KVG_OK && hit;
        if (status != KVG_OK) ck_assert_int_eq(rebuild_empty(&scene, NULL), KVG_OK);
        check_goes_on(&scene, 1);
        close_scene(&scene);
        if (!hit) break; /* ran to the end */
    }
    ck_assert_int_gt(refused + went, 2);
}
END_TEST

START_TEST(test_memory_fails_on_one_of_many_that_rebuild)
{
    int refused = 0;
    for (uint64_t nth = 1; nth < 500; nth += 17) {
        Scene     scene = {0};
        KvgStatus each[TEST_RANKS_MAX];
        open_latent(&scene, 2, 1);
        kill_rank(&scene, 1);
        scene.arm_nth = nth;
        rebuild_joined(&scene, NULL, each);
        scene.arm_nth = 0;
        ck_assert_msg((each[0] == KVG_OK) == (each[1] == KVG_OK), "nth %d: %s and %s", (int)nth, kvg_status_name(each[0]), kvg_status_name(each[1]));
        refused += each[0] != KVG_OK;
        if (each[0] != KVG_OK) ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error());
        check_goes_on(&scene, 1);
        close_scene(&scene);
    }
    ck_assert_int_gt(refused, 2);
}
END_TEST

/* ---- ranks that wake */

START_TEST(test_a_frozen_rank_that_wakes_in_an_old_epoch_changes_nothing)
{
    Scene    scene = {0};
    KvgStep *steps[4];
    KvgGrid *frozen;
    uint32_t rows[SEQUENCES] = {3, 2, 5};
    char     expected[SEQUENCES][33], hex[33];
    open_latent(&scene, 4, 1);
    for (int r = 0; r < 4; r++) steps[r] = begin_one(&scene, r, rows);
    for (int r = 0; r < 3; r++) grid_post(&scene.g, r, steps[r], NULL, KVG_OK);
    kvg_inproc_freeze(scene.g.hub, 3, 1);
    frozen = scene.g.grid[3];
    grid_post(&scene.g, 3, steps[3], NULL, KVG_OK); /* held until it thaws */
    bury(&scene, 3);
    ck_assert_msg(rebuild_empty(&scene, NULL) == KVG_OK, "%s", kvg_last_error());
    take_handles(&scene);
    kvg_inproc_freeze(scene.g.hub, 3, 0);
    for (int n = 0; n < 5; n++) {
        kvg_grid_progress(frozen);
        step_ok(&scene, rows);
    }
    straight(&scene, scene.rows, expected);
    for (uint32_t q = 0; q < SEQUENCES; q++) {
        grid_digest(&scene.g, scene.s, q, hex);
        ck_assert_str_eq(hex, expected[q]);
    }
    close_scene(&scene);
}
END_TEST

/* ---- survivors that went apart */

START_TEST(test_survivors_with_other_posted_calls_keep_lengths_alone)
{
    Scene        scene = {0};
    KvgSequence *extra = NULL;
    open_latent(&scene, 4, 1);
    ck_assert_int_eq(kvg_sequence_open(scene.g.placement[0], 777, 0, &extra), KVG_OK); /* rank 0 was further in its program */
    kill_rank(&scene, 3);
    ck_assert_msg(rebuild_empty(&scene, NULL) == KVG_OK, "%s", kvg_last_error());
    reports_agree(&scene);
    ck_assert_uint_eq(scene.report[0]->count, SEQUENCES + 1);
    for (int i = 0; i < 3; i++) ck_assert_ptr_null(scene.report[i]->sequences[SEQUENCES].sequence);
    ck_assert_int_eq(kvg_sequence_close(extra, NULL), KVG_ESTALE);
    for (uint32_t q = 0; q < SEQUENCES; q++) {
        ck_assert_int_eq(scene.report[0]->sequences[q].loss, KVG_LOSS_CALLS);
        ck_assert_uint_eq(scene.report[0]->sequences[q].rows, scene.rows[q]);
        ck_assert_uint_eq(life_info(scene.s[1][q]).rows, 0);
        scene.rows[q] = 0;
    }
    life_agree_among(&scene.g, NULL, 3);
    step_ok(&scene, (uint32_t[]){70, 3, 9});
    close_scene(&scene);
}
END_TEST

/* ---- taint */

START_TEST(test_taint_stays_and_its_forks_keep_their_rows)
{
    for (int joins = 0; joins <= 1; joins++) {
        Scene        scene = {0};
        KvgSequence *fork[4];
        open_latent(&scene, 4, 1);
        for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_sequence_fork(scene.s[r][0], 100, 555, &fork[r]), KVG_OK);
        ck_assert_int_eq(kvg_sequence_taint(scene.s[0][1]), KVG_OK);
        KvgStep *steps[4];
        for (int r = 0; r < 4; r++) {
            steps[r] = begin_one(&scene, r, (uint32_t[]){0, 1, 0});
            grid_post(&scene.g, r, steps[r], NULL, KVG_OK);
        }
        ck_assert_int_eq(grid_decide(&scene.g, steps, NULL), KVG_ETAINTED);
        kill_rank(&scene, 2);
        ck_assert_msg((joins ? rebuild_joined(&scene, NULL, NULL) : rebuild_empty(&scene, NULL)) == KVG_OK, "%s", kvg_last_error());
        reports_agree(&scene);
        ck_assert_uint_eq(scene.report[0]->count, SEQUENCES + 1);
        ck_assert_int_eq(scene.report[0]->sequences[0].loss, KVG_LOSS_NONE);
        ck_assert_int_eq(scene.report[0]->sequences[1].loss, KVG_LOSS_TAINTED);
        ck_assert_int_eq(scene.report[0]->sequences[3].loss, KVG_LOSS_NONE);
        for (int i = 0; i < scene.g.ranks; i++) ck_assert_int_eq(life_info(scene.report[i]->sequences[1].sequence).tainted, 1);
        life_agree_among(&scene.g, NULL, scene.g.ranks);
        close_scene(&scene);
    }
}
END_TEST

/* ---- newcomers that bring something else */

START_TEST(test_what_a_newcomer_brings_is_compared_and_named)
{
    static const struct { int sequences; uint64_t bytes; KvgStatus status; const char *named; } bad[] = {
        {4, 4u << 20, KVG_ELAYOUT, "max_sequences"}, {5, 1u << 16, KVG_ENOMEM, "memory_bytes"},
    };
    Scene scene = {0};
    open_latent(&scene, 2, 2);
    kill_rank(&scene, 2);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        KvgPlaceOptions options = scene_options(&scene);
        KvgStatus       each[TEST_RANKS_MAX];
        options.max_sequences = (uint32_t)bad[i].sequences;
        options.memory_bytes = bad[i].bytes;
        rebuild_joined(&scene, &options, each);
        ck_assert_int_eq(each[3], bad[i].status); /* the newcomer's own */
        ck_assert_int_eq(each[0], bad[i].status == KVG_ELAYOUT ? KVG_ELAYOUT : KVG_EREFUSED);
        ck_assert_uint_eq(life_info(scene.s[0][0]).rows, scene.rows[0]);
        ck_assert_int_eq(kvg_grid_state(scene.g.grid[1]), KVG_EPEER);
    }
    ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error());
    check_goes_on(&scene, 1);
    close_scene(&scene);
}
END_TEST

START_TEST(test_calls_that_make_no_sense_are_refused)
{
    Scene             scene = {0};
    KvgBootstrap      other = KVG_BOOTSTRAP_INIT;
    KvgRebuildOptions options = KVG_REBUILD_OPTIONS_INIT;
    KvgSetup         *setup = NULL;
    open_latent(&scene, 2, 1);
    ck_assert_int_eq(kvg_grid_rebuild(NULL, NULL, (int[]){0}, 1, NULL, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_grid_rebuild(scene.g.grid[0], NULL, (int[]){1}, 1, NULL, NULL), KVG_EINVAL); /* without itself */
    ck_assert_int_eq(kvg_grid_rebuild(scene.g.grid[0], NULL, (int[]){0, 0}, 2, NULL, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_grid_rebuild(scene.g.grid[0], &other, (int[]){0}, 1, NULL, NULL), KVG_ENOTSUP); /* a bootstrap of one rank: another shape */
    ck_assert_msg(strstr(kvg_last_error(), "keeps the shape") != NULL, "%s", kvg_last_error());
    options.size = 1;
    ck_assert_int_eq(kvg_grid_rebuild_start(scene.g.grid[0], (int[]){0}, 1, &options, NULL, &setup), KVG_EINVAL);
    ck_assert_int_eq(kvg_grid_join(NULL, NULL, NULL, 0, NULL, NULL), KVG_EINVAL);
    step_ok(&scene, (uint32_t[]){1, 1, 1}); /* nothing has changed */
    close_scene(&scene);
}
END_TEST

START_TEST(test_a_grid_without_some_ranks_says_what_it_does_not_serve)
{
    Scene           scene = {0};
    KvgPlaceOptions options;
    KvgPlacement   *placement = NULL;
    KvgSetup       *setups[TEST_RANKS_MAX] = {0};
    open_latent(&scene, 4, 1);
    kill_rank(&scene, 0); /* the lowest rank: nothing may look at its records */
    ck_assert_int_eq(rebuild_empty(&scene, NULL), KVG_OK);
    options = scene_options(&scene);
    ck_assert_int_eq(kvg_place_start(scene.g.grid[0], &scene.g.config, &options, &placement, &setups[0]), KVG_ENOTSUP);
    ck_assert_msg(strstr(kvg_last_error(), "without rank 0") != NULL, "%s", kvg_last_error());
    setups[0] = NULL;
    for (int i = 0; i < 3; i++) ck_assert_int_eq(kvg_placement_resize_start(scene.g.placement[i], 3u << 20, &setups[i]), KVG_OK);
    ck_assert_msg(grid_finish(&scene.g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
    check_goes_on(&scene, 1);
    close_scene(&scene);
}
END_TEST

LIFE_MAIN("rebuild_faults", test_a_step_in_doubt_is_settled_first, test_a_second_loss_at_any_moment_and_a_second_attempt,
          test_a_second_loss_while_one_joins_and_a_second_attempt, test_a_loss_while_slot_images_are_copied_leaves_nothing_behind,
          test_survivors_whose_connections_have_parted_meet_in_the_next_attempt, test_a_rebuild_that_does_not_settle_leaves_the_connections_as_they_were,
          test_a_grid_with_an_empty_place_settles_a_doubt_without_a_rebuild, test_a_newcomer_joins_where_a_resize_has_left_no_unit,
          test_a_newcomer_gives_as_much_as_its_stage_when_its_place_was_empty_during_a_resize, test_memory_fails_on_one_of_many_that_rebuild,
          test_memory_fails_somewhere_in_a_rebuild_and_it_is_tried_again, test_a_frozen_rank_that_wakes_in_an_old_epoch_changes_nothing,
          test_survivors_with_other_posted_calls_keep_lengths_alone, test_taint_stays_and_its_forks_keep_their_rows,
          test_what_a_newcomer_brings_is_compared_and_named, test_calls_that_make_no_sense_are_refused,
          test_a_grid_without_some_ranks_says_what_it_does_not_serve)

/* Who waits for whom after a rebuild: a rank that posts late is waited for, whatever it said while it settled; one that is in doubt about the rebuild says so,
 * and nobody waits for it to the deadline. What that rank is told of it afterwards. */
#include "tests/support/rebuild_scene.h"

#include "pp/internal.h"

enum { LATENT = 1, LATE_MS = 400, HEARD_MS = 100 /* the deadline is 1000 */ };

static void open_latent(Scene *scene, uint32_t tp, uint32_t pp)
{
    open_scene(scene, &some_models[LATENT], tp, pp, KVG_LAYOUT_POOL);
}

/* ---- a rank that posts late */

static void wait_in_vain(Scene *scene, KvgStep **steps, int late)
{
    for (int ms = 0; ms < LATE_MS; ms++) {
        for (int i = 0; i < scene->g.ranks; i++) {
            int       done = 0;
            KvgStatus status = i == late ? kvg_grid_progress(scene->g.grid[i]) : kvg_step_test(steps[i], &done, NULL);
            ck_assert_msg(status == KVG_OK && !done, "rank %d, %d ms: %s", kvg_grid_rank(scene->g.grid[i]), ms, kvg_last_error());
        }
        kvg_inproc_advance_ns(scene->g.hub, 1000000);
    }
}

static void step_with_a_late_rank(Scene *scene, int late)
{
    static const uint32_t rows[SEQUENCES] = {30, 1, 2};
    KvgStep *steps[TEST_RANKS_MAX];
    for (int i = 0; i < scene->g.ranks; i++) {
        steps[i] = begin_one(scene, i, rows);
        if (i != late) grid_post(&scene->g, i, steps[i], NULL, KVG_OK);
    }
    wait_in_vain(scene, steps, late);
    grid_post(&scene->g, late, steps[late], NULL, KVG_OK);
    ck_assert_msg(grid_decide(&scene->g, steps, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int q = 0; q < SEQUENCES; q++) scene->rows[q] += rows[q];
}

static void every_rank_is_late_once(Scene *scene)
{
    char expected[SEQUENCES][33], hex[33];
    take_handles(scene);
    for (int late = 0; late < scene->g.ranks; late++) step_with_a_late_rank(scene, late);
    straight(scene, scene->rows, expected);
    for (uint32_t q = 0; q < SEQUENCES; q++) {
        grid_digest(&scene->g, scene->s, q, hex);
        ck_assert_str_eq(hex, expected[q]);
    }
}

START_TEST(test_any_rank_may_post_late_after_a_rebuild)
{
    for (int joins = 0; joins <= 1; joins++) {
        Scene scene = {0};
        open_latent(&scene, 2, 2);
        kill_rank(&scene, _i);
        ck_assert_msg((joins ? rebuild_joined(&scene, NULL, NULL) : rebuild_empty(&scene, NULL)) == KVG_OK, "%s", kvg_last_error());
        every_rank_is_late_once(&scene);
        close_scene(&scene);
    }
}
END_TEST

/* The rebuild settles what has settled already. */
START_TEST(test_any_rank_may_post_late_after_a_settle_and_a_rebuild)
{
    Scene     scene = {0};
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    int       survivors[TEST_RANKS_MAX], count;
    open_latent(&scene, 2, 2);
    kill_rank(&scene, _i);
    count = list_survivors(&scene, survivors);
    for (int i = 0; i < count; i++) ck_assert_int_eq(kvg_grid_settle_start(scene.g.grid[i], survivors, count, &setups[i]), KVG_OK);
    ck_assert_int_eq(grid_finish(&scene.g, setups, NULL), KVG_OK);
    for (int i = 0; i < count; i++) ck_assert_int_eq(kvg_grid_state(scene.g.grid[i]), KVG_EPEER);
    ck_assert_msg(rebuild_empty(&scene, NULL) == KVG_OK, "%s", kvg_last_error());
    every_rank_is_late_once(&scene);
    close_scene(&scene);
}
END_TEST

/* ---- a rank in doubt */

/* All rebuild; the one at `doubtful` gives up once it has voted, and the others publish. */
static void rebuild_with_a_doubt(Scene *scene, int doubtful)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    int       survivors[TEST_RANKS_MAX], count = list_survivors(scene, survivors), left = count, done[TEST_RANKS_MAX] = {0};
    for (int i = 0; i < count; i++) {
        ck_assert_int_eq(kvg_grid_rebuild_start(scene->g.grid[i], survivors, count, NULL, &scene->report[i], &setups[i]), KVG_OK);
    }
    for (int rounds = 0; left > 0; rounds++) {
        ck_assert_int_lt(rounds, 10000);
        for (int i = 0; i < count; i++) {
            if (done[i]) continue;
            KvgStatus status = kvg_setup_test(setups[i], &done[i]);
            ck_assert_msg(status == KVG_OK, "%s", kvg_last_error());
            if (i == doubtful) {
                ck_assert(!done[i]);
                done[i] = scene->g.grid[i]->cast != NULL;
            }
            if (done[i]) kvg_setup_free(setups[i]);
            left -= done[i];
        }
        kvg_inproc_advance_ns(scene->g.hub, 100000);
    }
}

static void wait_for_the_doubt(Scene *scene, KvgStep **steps, int doubtful)
{
    char named[64];
    int  done;
    snprintf(named, sizeof named, "no record has come from rank %d, and it has said", kvg_grid_rank(scene->g.grid[doubtful]));
    for (int ms = 0; ms < HEARD_MS; ms++) {
        for (int i = 0; i < scene->g.ranks; i++) {
            if (i != doubtful) kvg_step_test(steps[i], &done, NULL);
        }
        kvg_inproc_advance_ns(scene->g.hub, 1000000);
    }
    for (int i = 0; i < scene->g.ranks; i++) {
        if (i == doubtful) continue;
        ck_assert_int_eq(kvg_grid_state(scene->g.grid[i]), KVG_EINDOUBT);
        ck_assert_msg(strstr(kvg_last_error(), named) != NULL, "%s", kvg_last_error());
    }
}

START_TEST(test_nobody_waits_for_a_rank_in_doubt_about_the_rebuild)
{
    static const uint32_t rows[SEQUENCES] = {3, 2, 5};
    Scene    scene = {0};
    KvgStep *steps[TEST_RANKS_MAX] = {0};
    open_latent(&scene, 4, 1);
    kill_rank(&scene, 3);
    rebuild_with_a_doubt(&scene, _i);
    for (int i = 0; i < scene.g.ranks; i++) {
        if (i == _i) continue;
        steps[i] = begin_one(&scene, i, rows);
        grid_post(&scene.g, i, steps[i], NULL, KVG_OK);
    }
    wait_for_the_doubt(&scene, steps, _i);
    ck_assert_msg(rebuild_empty(&scene, NULL) == KVG_OK, "%s", kvg_last_error()); /* it publishes the first one, and no one the step */
    check_goes_on(&scene, 1);
    close_scene(&scene);
}
END_TEST

/* Only the doubtful rank has `extra`: rebuilding closes it and resets the others. Settling makes that rebuild on it, and no report says so: not its own, whose
 * caller has gone on, nor the next one's, to which nothing was lost since. Its handles do. */
START_TEST(test_a_rebuild_in_doubt_that_is_published_gives_no_report_and_handles_say_what_it_did)
{
    Scene           scene = {0};
    KvgSequence    *extra = NULL;
    KvgSequenceInfo info = {.size = sizeof info};
    open_latent(&scene, 4, 1);
    ck_assert_int_eq(kvg_sequence_open(scene.g.placement[_i], 777, 0, &extra), KVG_OK);
    kill_rank(&scene, 3);
    rebuild_with_a_doubt(&scene, _i);
    ck_assert_int_eq(kvg_sequence_info(extra, &info), KVG_OK);
    ck_assert_uint_eq(life_info(scene.s[_i][0]).rows, scene.rows[0]);
    for (int i = 0; i < scene.g.ranks; i++) {
        if (i == _i) continue;
        ck_assert_uint_eq(scene.report[i]->count, SEQUENCES + 1);
        ck_assert_uint_eq(scene.report[i]->sequences[0].rows, scene.rows[0]);
    }
    ck_assert_ptr_null(scene.report[_i]);
    ck_assert_msg(rebuild_empty(&scene, NULL) == KVG_OK, "%s", kvg_last_error());
    reports_agree(&scene);
    ck_assert_uint_eq(scene.report[_i]->count, SEQUENCES);
    ck_assert_uint_eq(scene.report[_i]->kept, SEQUENCES); /* all of their 0 rows */
    ck_assert_int_eq(kvg_sequence_info(extra, &info), KVG_ESTALE);
    for (int q = 0; q < SEQUENCES; q++) {
        ck_assert_uint_eq(life_info(scene.s[_i][q]).rows, 0);
        scene.rows[q] = 0;
    }
    step_ok(&scene, (uint32_t[]){70, 3, 9});
    close_scene(&scene);
}
END_TEST

/* ---- an operation that is given up in the middle of a rebuild */

/* All rebuild, and none is lost. Between settle and publish each starts another operation and gives it up: what is done then, `during`, says. */
static void rebuild_all(Scene *scene, void (*during)(Scene *scene, int i))
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    int       survivors[TEST_RANKS_MAX], count = list_survivors(scene, survivors), left = count, done[TEST_RANKS_MAX] = {0}, once[TEST_RANKS_MAX] = {0};
    for (int i = 0; i < count; i++) {
        ck_assert_int_eq(kvg_grid_rebuild_start(scene->g.grid[i], survivors, count, NULL, &scene->report[i], &setups[i]), KVG_OK);
    }
    for (int rounds = 0; left > 0; rounds++) {
        ck_assert_int_lt(rounds, 10000);
        for (int i = 0; i < count; i++) {
            if (done[i]) continue;
            KvgStatus status = kvg_setup_test(setups[i], &done[i]);
            ck_assert_msg(status == KVG_OK, "%s", kvg_last_error());
            if (!done[i] && !once[i] && kvg_grid_epoch(scene->g.grid[i]) > 1) {
                during(scene, i);
                once[i] = 1;
            }
            left -= done[i];
        }
        kvg_inproc_advance_ns(scene->g.hub, 100000);
    }
    for (int i = 0; i < count; i++) {
        ck_assert(once[i]);
        ck_assert_msg(kvg_grid_state(scene->g.grid[i]) == KVG_OK, "%s", kvg_last_error());
        kvg_setup_free(setups[i]);
    }
}

static void give_a_digest_up(Scene *scene, int i)
{
    static KvDigest digest;
    KvgSetup       *setup = NULL;
    if (kvg_sequence_digest_start(scene->s[i][0], &digest, &setup) == KVG_OK) kvg_setup_free(setup);
}

static void change_and_step(Scene *scene, int i)
{
    KvgSetup *setup = NULL;
    KvgStep  *step = NULL;
    ck_assert_int_eq(kvg_placement_resize_start(scene->g.placement[i], 4u << 20, &setup), KVG_EPEER);
    ck_assert_msg(strstr(kvg_last_error(), "rebuild") != NULL, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_step_begin(scene->g.batch[i], (uint32_t[SEQUENCES]){1, 1, 1}, &step), KVG_EPEER);
    ck_assert_int_eq(kvg_sequence_rewind(scene->s[i][0], 1), KVG_EPEER);
}

START_TEST(test_who_gives_another_operation_up_while_it_rebuilds_does_not_stop_for_the_others)
{
    void (*const during[])(Scene *scene, int i) = {give_a_digest_up, change_and_step};
    Scene        scene = {0};
    open_latent(&scene, 2, 2);
    rebuild_all(&scene, during[_i]);
    every_rank_is_late_once(&scene);
    close_scene(&scene);
}
END_TEST

int main(void)
{
    if (test_device_missing()) return test_device_missing();
    Suite *suite = suite_create("rebuild_stopped");
    TCase *tc = tcase_create("stopped");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, test_any_rank_may_post_late_after_a_rebuild, 0, 4);
    tcase_add_loop_test(tc, test_any_rank_may_post_late_after_a_settle_and_a_rebuild, 0, 4);
    tcase_add_loop_test(tc, test_nobody_waits_for_a_rank_in_doubt_about_the_rebuild, 0, 3);
    tcase_add_loop_test(tc, test_a_rebuild_in_doubt_that_is_published_gives_no_report_and_handles_say_what_it_did, 0, 3);
    tcase_add_loop_test(tc, test_who_gives_another_operation_up_while_it_rebuilds_does_not_stop_for_the_others, 0, 2);
    suite_add_tcase(suite, tc);
    return life_run(suite);
}

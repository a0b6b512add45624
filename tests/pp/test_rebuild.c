/* Rebuilding: every rank lost in turn, with a newcomer in its place and without one, in pools and in flat planes, on models whose shards have copies
 * and on others. */
#include "tests/support/rebuild_scene.h"

static int has_copies(const Scene *scene)
{
    return scene->model->copies_from != 0 && scene->g.tp >= scene->model->copies_from;
}

static void lose_and_go_on(const Model *model, uint32_t tp, uint32_t pp, KvLayout layout, int victim, int joins)
{
    Scene scene = {.index_ring = 64};
    open_scene(&scene, model, tp, pp, layout);
    kill_rank(&scene, victim);
    if (joins) {
        ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error());
        check_goes_on(&scene, has_copies(&scene));
    } else if (has_copies(&scene)) {
        ck_assert_msg(rebuild_empty(&scene, NULL) == KVG_OK, "%s", kvg_last_error());
        check_goes_on(&scene, 1);
    } else {
        char named[32];
        snprintf(named, sizeof named, "without rank %d", victim);
        ck_assert_int_eq(rebuild_empty(&scene, NULL), KVG_EGEOM);
        ck_assert_msg(strstr(kvg_last_error(), named) != NULL, "%s", kvg_last_error());
        reports_agree(&scene);
        ck_assert_uint_eq(scene.report[0]->sequences[0].rows, scene.rows[0]); /* lengths are told, and nothing has changed */
        ck_assert_int_eq(scene.report[0]->sequences[0].loss, KVG_LOSS_SHARD);
        ck_assert_int_eq(scene.report[0]->sequences[0].lost_rank, victim);
        ck_assert_uint_eq(life_info(scene.s[0][0]).rows, scene.rows[0]);
        ck_assert_int_eq(kvg_grid_state(scene.g.grid[0]), KVG_EPEER);
        ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error()); /* a newcomer mends it still */
        check_goes_on(&scene, 0);
    }
    close_scene(&scene);
}

static const struct { uint32_t tp, pp; } shapes[] = {{2, 1}, {1, 2}, {2, 2}, {4, 1}};

static void every_rank(KvLayout layout, int joins, const Model *model)
{
    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
        for (uint32_t victim = 0; victim < shapes[shape].tp * shapes[shape].pp; victim++) {
            lose_and_go_on(model, shapes[shape].tp, shapes[shape].pp, layout, (int)victim, joins);
        }
    }
}

START_TEST(test_a_newcomer_takes_the_place_of_any_rank_in_pools)
{
    every_rank(KVG_LAYOUT_POOL, 1, &some_models[_i]);
}
END_TEST

START_TEST(test_a_newcomer_takes_the_place_of_any_rank_in_flat_planes)
{
    every_rank(KVG_LAYOUT_FLAT, 1, &some_models[_i]);
}
END_TEST

START_TEST(test_the_survivors_alone_go_on_where_every_shard_has_a_copy)
{
    every_rank(KVG_LAYOUT_POOL, 0, &some_models[_i]);
    every_rank(KVG_LAYOUT_FLAT, 0, &some_models[_i]);
}
END_TEST

int main(void)
{
    if (test_device_missing()) return test_device_missing();
    Suite *suite = suite_create("rebuild");
    TCase *tc = tcase_create("rebuild");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, test_a_newcomer_takes_the_place_of_any_rank_in_pools, 0, SOME_MODELS);
    tcase_add_loop_test(tc, test_a_newcomer_takes_the_place_of_any_rank_in_flat_planes, 0, SOME_MODELS);
    tcase_add_loop_test(tc, test_the_survivors_alone_go_on_where_every_shard_has_a_copy, 0, SOME_MODELS);
    suite_add_tcase(suite, tc);
    return life_run(suite);
}

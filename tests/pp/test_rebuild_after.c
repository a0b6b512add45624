/* After a rebuild: what spans all ranks spans the newcomer too (taps gathered over stages, another placement, resize), and is refused by name where a place
 * stays empty. */
#include <kvgrid/taps_gather.h>

#include "tests/support/rebuild_scene.h"

enum { LATENT = 1, TAP_ROWS = 6, HIDDEN = 16, TAPS = 2 };

static const uint32_t tapped[TAPS] = {0, 3}; /* of the first stage, and of the last */

static void open_latent(Scene *scene, uint32_t tp, uint32_t pp)
{
    open_scene(scene, &some_models[LATENT], tp, pp, KVG_LAYOUT_POOL);
}

static float tap_value(uint32_t slot, uint64_t row, uint32_t i)
{
    return (float)(slot * 1000 + row * 20 + i);
}

static void open_sink(const Scene *scene, KvDev *device, int i, DflashTapSink **sink)
{
    uint32_t lo, hi;
    float    row[HIDDEN];
    kvg_placement_layers(scene->g.placement[i], &lo, &hi);
    ck_assert_int_eq(kvg_dflash_tap_new(device, tapped, TAPS, lo, hi, HIDDEN, 8, KVG_F32, sink), KVG_OK);
    ck_assert_int_eq(kvg_dflash_tap_arm(*sink, 0), KVG_OK);
    for (uint32_t slot = 0; slot < TAPS; slot++) {
        for (uint64_t r = 0; r < TAP_ROWS && lo <= tapped[slot] && tapped[slot] < hi; r++) {
            for (uint32_t e = 0; e < HIDDEN; e++) row[e] = tap_value(slot, r, e);
            ck_assert_int_eq(kvg_dflash_tap_write(*sink, tapped[slot], r, 1, row, 0, NULL), KVG_OK);
        }
    }
}

static void check_sink(const Scene *scene, int i, const DflashTapSink *sink)
{
    const float *at = kvg_dflash_tap_buffer(sink);
    int          wrong = 0;
    if (kvg_grid_stage(scene->g.grid[i]) + 1 != scene->g.pp) return;
    for (uint64_t r = 0; r < TAP_ROWS; r++) {
        for (uint32_t slot = 0; slot < TAPS; slot++) {
            for (uint32_t e = 0; e < HIDDEN; e++) wrong += *at++ != tap_value(slot, r, e);
        }
    }
    ck_assert_int_eq(wrong, 0);
}

/* On every rank at once; the last stage ends whole. */
static void gather_taps(Scene *scene, KvDev *device)
{
    DflashTapSink *sink[TEST_RANKS_MAX] = {0};
    KvgSetup      *setups[TEST_RANKS_MAX] = {0};
    for (int i = 0; i < scene->g.ranks; i++) {
        open_sink(scene, device, i, &sink[i]);
        ck_assert_msg(kvg_taps_gather_start(scene->g.grid[i], sink[i], TAP_ROWS, NULL, &setups[i]) == KVG_OK, "%s", kvg_last_error());
    }
    ck_assert_msg(grid_finish(&scene->g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int i = 0; i < scene->g.ranks; i++) {
        check_sink(scene, i, sink[i]);
        kvg_dflash_tap_free(sink[i]);
    }
}

/* The newcomer's slots reach the last stage; or the newcomer is of the last stage, and gets the others'. */
START_TEST(test_taps_are_gathered_from_and_to_a_newcomer)
{
    Scene scene = {0};
    KvDev device;
    open_latent(&scene, 2, 2);
    kill_rank(&scene, _i);
    ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_dev_host(&device), KVG_OK);
    gather_taps(&scene, &device);
    kvg_dev_close(&device);
    check_goes_on(&scene, 1);
    close_scene(&scene);
}
END_TEST

START_TEST(test_taps_over_an_empty_place_are_refused_by_name_and_served_once_it_is_filled)
{
    Scene          scene = {0};
    DflashTapSink *sink = NULL;
    KvgSetup      *setup = NULL;
    KvDev          device;
    open_latent(&scene, 2, 2);
    kill_rank(&scene, 1);
    ck_assert_int_eq(rebuild_empty(&scene, NULL), KVG_OK);
    ck_assert_int_eq(kvg_dev_host(&device), KVG_OK);
    open_sink(&scene, &device, 0, &sink);
    ck_assert_int_eq(kvg_taps_gather_start(scene.g.grid[0], sink, TAP_ROWS, NULL, &setup), KVG_ENOTSUP);
    ck_assert_msg(strstr(kvg_last_error(), "without rank 1") != NULL, "%s", kvg_last_error());
    ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error()); /* nobody is lost now: a place is filled */
    gather_taps(&scene, &device);
    kvg_dflash_tap_free(sink);
    kvg_dev_close(&device);
    check_goes_on(&scene, 1);
    close_scene(&scene);
}
END_TEST

/* A second model beside the first, placed with the newcomer; the first is resized with it. */
START_TEST(test_a_newcomer_places_and_resizes_with_the_others)
{
    Scene           scene = {0};
    KvgPlacement   *second[TEST_RANKS_MAX] = {0};
    KvgSetup       *setups[TEST_RANKS_MAX] = {0};
    KvgPlaceOptions options;
    open_latent(&scene, 2, 2);
    kill_rank(&scene, 3);
    ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error());
    take_handles(&scene);
    options = scene_options(&scene);
    if (scene.g.device.ops != NULL) options.device = &scene.g.device;
    for (int i = 0; i < scene.g.ranks; i++) ck_assert_int_eq(kvg_place_start(scene.g.grid[i], &scene.g.config, &options, &second[i], &setups[i]), KVG_OK);
    ck_assert_msg(grid_finish(&scene.g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int i = 0; i < scene.g.ranks; i++) kvg_placement_destroy(second[i]);
    for (int i = 0; i < scene.g.ranks; i++) ck_assert_int_eq(kvg_placement_resize_start(scene.g.placement[i], 3u << 20, &setups[i]), KVG_OK);
    ck_assert_msg(grid_finish(&scene.g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
    check_goes_on(&scene, 1);
    close_scene(&scene);
}
END_TEST

int main(void)
{
    if (test_device_missing()) return test_device_missing();
    Suite *suite = suite_create("rebuild_after");
    TCase *tc = tcase_create("after");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, test_taps_are_gathered_from_and_to_a_newcomer, 0, 4);
    tcase_add_test(tc, test_taps_over_an_empty_place_are_refused_by_name_and_served_once_it_is_filled);
    tcase_add_test(tc, test_a_newcomer_places_and_resizes_with_the_others);
    suite_add_tcase(suite, tc);
    return life_run(suite);
}

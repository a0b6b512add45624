/* A scene of captured runs and its reference on a host's device: what most tests of runs begin with. For one source file each. */
#ifndef KVG_TEST_RUN_PAIR_H
#define KVG_TEST_RUN_PAIR_H

#include "tests/support/run_scene.h"

static Scene scene, reference;

static const uint32_t most[SCENE_PLACES] = {3, 3, 1, 1}, one[SCENE_PLACES] = {1, 1, 1, 1};
enum { FULL = 0, WINDOWED = 1, FLAT = 3, RECURRENT = 5 };

static inline void open_both(uint32_t grid, uint32_t spec, KvgAccept accept)
{
    scene_open(&scene, grids[grid].tp, grids[grid].pp, &scene_specs[spec], 3, 1);
    scene_open(&reference, 1, 1, &scene_specs[spec], 3, 0);
    scene_capture(&scene, 0, most, accept);
}

static inline void close_both(void)
{
    scene_close(&reference);
    scene_close(&scene);
}

static inline void host_steps(Scene *at, uint32_t steps, const uint32_t *rows, KvgAccept accept)
{
    for (uint32_t k = 0; k < steps; k++) ck_assert_int_eq(scene_step(at, rows, accept), KVG_OK);
}

/* All is well again: host steps and a run, on both. */
static inline void goes_on(KvgAccept accept)
{
    host_steps(&scene, 2, most, accept);
    host_steps(&reference, 2, most, accept);
    ck_assert_msg(scene_run(&scene, 0, 5, one) == KVG_OK, "%s", scene.why[0]);
    host_steps(&reference, 5, one, accept);
    scene_compare(&scene, &reference);
}

#define ck_assert_says(text, part) ck_assert_msg(strstr(text, part) != NULL, "no '%s' in: %s", part, text)

static inline uint32_t layers_written(const Scene *at)
{
    uint32_t lo, hi;
    kvg_placement_layers(at->g.placement[0], &lo, &hi);
    return hi - lo;
}

static inline void loop_grids(TCase *tcase, const TTest *test, int from, int to)
{
    tcase_add_loop_test(tcase, test, from, to);
}

#endif

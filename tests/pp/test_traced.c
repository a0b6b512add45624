/* What the library marks as ranges, and what a captured run counts: against scenes whose acts are known. */
#include <kvgrid/tracer.h>

#include "tests/support/run_scene.h"

enum { OPEN_MAX = 8 };

typedef struct Seen {
    int      ranges[KVG_RANGE_COUNT]; /* ended */
    uint64_t value[KVG_RANGE_COUNT];  /* of the last that began */
    KvgRange open[OPEN_MAX];
    int      depth, torn;
    KvgRange round[KVG_RANGE_COUNT];  /* what it last stood in; itself: in nothing */
} Seen;

static Seen seen;

static void begin_range(void *user, KvgRange range, uint64_t value)
{
    Seen *at = user;
    at->value[range] = value;
    at->round[range] = at->depth > 0 ? at->open[at->depth - 1] : range;
    at->torn |= at->depth == OPEN_MAX;
    if (at->depth < OPEN_MAX) at->open[at->depth++] = range;
}

static void end_range(void *user, KvgRange range)
{
    Seen *at = user;
    at->torn |= at->depth == 0 || at->open[at->depth - 1] != range;
    at->depth -= at->depth > 0;
    at->ranges[range]++;
}

static const KvgTracer counting = {sizeof counting, begin_range, end_range, &seen};

static void expect(const int want[KVG_RANGE_COUNT])
{
    for (int range = 0; range < KVG_RANGE_COUNT; range++) {
        ck_assert_msg(seen.ranges[range] == want[range], "%s: %d ranges, not %d", kvg_range_name((KvgRange)range), seen.ranges[range], want[range]);
    }
    ck_assert_int_eq(seen.depth + seen.torn, 0);
    seen = (Seen){0};
}

START_TEST(test_a_step_is_planned_written_posted_decided_and_published)
{
    static const uint32_t model[3] = {4, 4, 0};
    KvgPlaceOptions       options = KVG_PLACE_OPTIONS_INIT;
    KvgSequence          *s[TEST_RANKS_MAX][8];
    TestGrid              g;

    options.memory_bytes = 8u << 20;
    options.max_sequences = 1;
    grid_open(&g, 2, 2, model, &options, NULL, 1);
    seen = (Seen){0};
    kvg_tracer_set(&counting);
    for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_sequence_open(g.placement[r], 1, 64, &s[r][0]), KVG_OK);
    expect((int[KVG_RANGE_COUNT]){[KVG_RANGE_GROW] = 4});
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){64}, 1, NULL, -1), KVG_OK);
    ck_assert_uint_eq(seen.value[KVG_RANGE_POST], 1);
    ck_assert_uint_eq(seen.value[KVG_RANGE_WRITE], 3); /* the last layer */
    ck_assert_int_eq(seen.round[KVG_RANGE_PUBLISH], KVG_RANGE_DECIDE);
    ck_assert_int_eq(seen.round[KVG_RANGE_POST], KVG_RANGE_POST);
    expect((int[KVG_RANGE_COUNT]){4, 8, 4, 4, 4}); /* two layers on each of four ranks */
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1}, 1, NULL, -1), KVG_OK); /* the 65th row */
    ck_assert_uint_eq(seen.value[KVG_RANGE_PLAN], 2);
    ck_assert_uint_eq(seen.value[KVG_RANGE_GROW], 128);
    ck_assert_int_eq(seen.round[KVG_RANGE_GROW], KVG_RANGE_PLAN);
    expect((int[KVG_RANGE_COUNT]){4, 8, 4, 4, 4, 4});
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1}, 1, NULL, 2), KVG_EREFUSED); /* nothing is published */
    expect((int[KVG_RANGE_COUNT]){4, 8, 4, 4, 0});
    ck_assert_int_eq(kvg_step_post(NULL, NULL), KVG_ESTALE); /* a call that is refused at its door is no range */
    expect((int[KVG_RANGE_COUNT]){0});
    kvg_tracer_set(NULL);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1}, 1, NULL, -1), KVG_OK);
    expect((int[KVG_RANGE_COUNT]){0});
    grid_close(&g);
}
END_TEST

static Scene scene;

START_TEST(test_a_captured_run_is_counted_by_what_the_device_published)
{
    const uint32_t rows[SCENE_PLACES] = {3, 2, 0};

    scene_setup();
    scene_open(&scene, 2, 1, &scene_specs[0], 3, 1);
    seen = (Seen){0};
    kvg_tracer_set(&counting);
    scene_capture(&scene, 0, rows, KVG_ACCEPT_ALL);
    expect((int[KVG_RANGE_COUNT]){[KVG_RANGE_WRITE] = 2 * 4, [KVG_RANGE_CAPTURE] = 2 * 2});
    ck_assert_int_eq(scene_run(&scene, 0, 4, rows), KVG_OK);
    kvg_tracer_set(NULL);
    ck_assert_int_eq(seen.ranges[KVG_RANGE_RUN], 2 * (1 + 4 + 1));
    ck_assert_int_eq(seen.ranges[KVG_RANGE_POST] + seen.ranges[KVG_RANGE_DECIDE] + seen.depth + seen.torn, 0);
    for (int r = 0; r < 2; r++) {
        KvgStats stats = {.size = sizeof stats};
        ck_assert_int_eq(kvg_stats(scene.g.placement[r], &stats), KVG_OK);
        ck_assert_uint_eq(stats.steps, 4);
        ck_assert_uint_eq(stats.commits, 4);
        ck_assert_uint_eq(stats.outcomes[KVG_OUTCOME_PUBLISHED], 4);
        ck_assert_uint_eq(stats.rows, 4 * 5);
        ck_assert_uint_eq(stats.votes, 0); /* the device's */
    }
    scene_close(&scene);
    scene_teardown();
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("traced");
    TCase   *tcase = tcase_create("traced");
    SRunner *runner = srunner_create(suite);

    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, test_a_step_is_planned_written_posted_decided_and_published);
    tcase_add_test(tcase, test_a_captured_run_is_counted_by_what_the_device_published);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

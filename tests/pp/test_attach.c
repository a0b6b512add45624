/* What an engine keeps beside a sequence stops being true with the rows it came from. */
#include "tests/support/inproc_grid.h"

#include <kvgrid/taps.h>

static void open_one(TestGrid *g, KvgSequence *s[][8])
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    options.max_sequences = 2;
    options.memory_bytes = 8u << 20;
    grid_open(g, 1, 2, (uint32_t[]){2, 2, 0}, &options, NULL, 1);
    for (int r = 0; r < g->ranks; r++) ck_assert_int_eq(kvg_sequence_open(g->placement[r], 1, 0, &s[r][0]), KVG_OK);
}

static uint32_t parked(const KvgSequence *sequence)
{
    uint32_t     count = 99;
    const float *logits = kvg_sequence_parked_logits(sequence, &count);
    ck_assert_int_eq(logits != NULL, count > 0);
    return count;
}

START_TEST(test_parked_logits_live_until_the_next_step_or_rewind)
{
    TestGrid     g;
    KvgSequence *s[TEST_RANKS_MAX][8];
    const float  logits[3] = {1, 2, 3};
    uint32_t     count;
    open_one(&g, s);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){5}, 1, NULL, -1), KVG_OK);
    ck_assert_int_eq(kvg_sequence_park_logits(s[1][0], NULL, 3), KVG_EINVAL);
    ck_assert_int_eq(kvg_sequence_park_logits(s[1][0], logits, 3), KVG_OK);
    ck_assert_uint_eq(parked(s[1][0]), 3);
    ck_assert(kvg_sequence_parked_logits(s[1][0], &count)[2] == 3.0f);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1}, 1, NULL, -1), KVG_OK);
    ck_assert_uint_eq(parked(s[1][0]), 0);
    ck_assert_int_eq(kvg_sequence_park_logits(s[1][0], logits, 2), KVG_OK);
    for (int r = 0; r < g.ranks; r++) ck_assert_int_eq(kvg_sequence_rewind(s[r][0], 3), KVG_OK);
    ck_assert_uint_eq(parked(s[1][0]), 0);
    ck_assert_int_eq(kvg_sequence_park_logits(s[1][0], logits, 2), KVG_OK); /* grid_close proves that closing frees them */
    grid_close(&g);
}
END_TEST

START_TEST(test_taint_drops_taps_and_logits)
{
    TestGrid       g;
    KvgSequence   *s[TEST_RANKS_MAX][8];
    KvDev          dev;
    DflashTapSink *dflash;
    const float    logits[2] = {1, 2}, hidden[4] = {1, 2, 3, 4};
    KvgStep       *steps[TEST_RANKS_MAX];
    open_one(&g, s);
    ck_assert_int_eq(kvg_dev_host(&dev), KVG_OK);
    ck_assert_int_eq(kvg_dflash_tap_new(&dev, (uint32_t[]){1}, 1, 1, 2, 4, 8, KVG_F32, &dflash), KVG_OK);
    ck_assert_int_eq(kvg_dflash_tap_arm(dflash, 0), KVG_OK);
    ck_assert_int_eq(kvg_dflash_tap_write(dflash, 1, 0, 1, hidden, 0, NULL), KVG_OK);
    ck_assert_int_eq(kvg_sequence_attach_taps(s[1][0], dflash, NULL), KVG_OK);
    ck_assert_int_eq(kvg_sequence_park_logits(s[1][0], logits, 2), KVG_OK);
    ck_assert_int_eq(kvg_sequence_taint(s[0][0]), KVG_OK); /* another rank finds it */
    for (int r = 0; r < g.ranks; r++) {
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){2}, 1, 0);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_ETAINTED);
    ck_assert_uint_eq(parked(s[1][0]), 0);
    ck_assert_int_eq(kvg_dflash_tap_written(dflash, 0, 0), 0);
    ck_assert_int_eq(kvg_dflash_tap_write(dflash, 1, 0, 1, hidden, 0, NULL), KVG_ESTALE);
    ck_assert_int_eq(kvg_sequence_attach_taps(s[1][0], dflash, NULL), KVG_ETAINTED);
    ck_assert_int_eq(kvg_sequence_attach_taps(s[1][0], NULL, NULL), KVG_OK);
    ck_assert_int_eq(kvg_sequence_park_logits(s[1][0], logits, 2), KVG_ETAINTED);
    kvg_dflash_tap_free(dflash);
    kvg_dev_close(&dev);
    grid_close(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("attach");
    TCase *tc = tcase_create("attach");
    tcase_add_test(tc, test_parked_logits_live_until_the_next_step_or_rewind);
    tcase_add_test(tc, test_taint_drops_taps_and_logits);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);
    srunner_free(runner);
    return failed != 0;
}

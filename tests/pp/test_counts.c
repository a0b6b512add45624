/* What no format can hold is counted, by layer, and harms no neighbour (S1). */
#include <math.h>
#include <stdlib.h>

#include "tests/support/inproc_grid.h"

START_TEST(test_elements_that_no_format_holds_are_counted_by_layer)
{
    static const uint32_t model[3] = {2, 2, 0};
    KvgPlaceOptions       options = KVG_PLACE_OPTIONS_INIT;
    KvgSequence          *sequence = NULL;
    KvgStep              *step = NULL;
    KvgStats              stats = {.size = sizeof stats};
    KvEncodeCounts        counts;
    uint32_t              rows = 1;
    float                 k[64], v[64], read[64];
    TestGrid              g;

    options.memory_bytes = 4u << 20;
    options.max_sequences = 1;
    options.format_k = options.format_v = KVG_F16;
    grid_open(&g, 1, 1, model, &options, NULL, 1);
    for (int i = 0; i < 64; i++) k[i] = v[i] = 1.0f;
    k[0] = NAN;
    k[1] = -INFINITY;
    v[63] = 65505.0f; /* the largest f16 is 65504 */

    ck_assert_int_eq(kvg_sequence_open(g.placement[0], 1, 0, &sequence), KVG_OK);
    ck_assert_int_eq(kvg_batch_set(g.batch[0], 0, sequence), KVG_OK);
    ck_assert_int_eq(kvg_step_begin(g.batch[0], &rows, &step), KVG_OK);
    for (uint32_t il = 0; il < 2; il++) {
        KvgRows in = KVG_ROWS_INIT;
        in.k = il == 1 ? k : v;
        in.v = v;
        if (il == 0) v[63] = 65504.0f;
        else v[63] = 65505.0f;
        ck_assert_int_eq(kvg_write_kv(g.batch[0], il, &in, NULL), KVG_OK);
    }
    grid_post(&g, 0, step, NULL, KVG_OK);
    ck_assert_int_eq(grid_decide(&g, &step, NULL), KVG_OK);

    ck_assert_int_eq(kvg_layer_counts(g.placement[0], 0, &counts), KVG_OK);
    ck_assert_uint_eq(counts.nonfinite + counts.saturated, 0);
    ck_assert_int_eq(kvg_layer_counts(g.placement[0], 1, &counts), KVG_OK);
    ck_assert_uint_eq(counts.nonfinite, 2);
    ck_assert_uint_eq(counts.saturated, 1);
    ck_assert_int_eq(kvg_layer_counts(g.placement[0], 2, &counts), KVG_EINVAL);
    ck_assert_int_eq(kvg_stats(g.placement[0], &stats), KVG_OK);
    ck_assert_uint_eq(stats.nonfinite, 2);
    ck_assert_uint_eq(stats.saturated, 1);

    ck_assert_int_eq(kvg_sequence_read(sequence, 1, KVG_PLANE_K, 0, 1, read), KVG_OK);
    ck_assert_float_eq(read[0], 0.0f);
    ck_assert_float_eq(read[1], -65504.0f);
    for (int i = 2; i < 64; i++) ck_assert_float_eq(read[i], 1.0f);
    ck_assert_int_eq(kvg_sequence_close(sequence, NULL), KVG_OK);
    grid_close(&g);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("counts");
    TCase   *tcase = tcase_create("counts");
    SRunner *runner = srunner_create(suite);

    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, test_elements_that_no_format_holds_are_counted_by_layer);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

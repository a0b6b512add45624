#include <stdio.h>

#include "naive_codec.h"
#include "runtime/rules/codec.h"

enum { BLOCKS = 240000, NAIVE_BLOCKS = 40000, ROW_BLOCKS = 8 };

/* Where an AVX2 table is missing the portable one still meets the naive oracle. */
static const KvCodec *codec_at(int index)
{
    return index == 0 ? kvg_codec_portable() : kvg_codec_avx2();
}

static const char *where(KvFormat format, int kind, int n)
{
    static char text[80];

    snprintf(text, sizeof text, "%s, kind %d, block %d, seed %d", kvg_format_name(format), kind, n, 1000 + kind);
    return text;
}

START_TEST(test_codec_portable_gives_the_bytes_and_counts_of_the_naive_reading)
{
    Random random = {1000 + (uint64_t)_i};

    for (int n = 0; n < NAIVE_BLOCKS / BLOCK_KIND_COUNT; n++) {
        float x[32];

        random_block(&random, (BlockKind)_i, x);
        for (int f = KVG_POLICY + 1; f < KVG_FORMAT_COUNT; f++) {
            KvFormat       format = (KvFormat)f;
            uint8_t        want[128], got[128];
            float          want_values[32], values[32];
            KvEncodeCounts want_counts = {0, 0}, counts = {0, 0};

            naive_encode(format, x, want, &want_counts);
            kvg_encode_f32_ref(format, x, 32, got, &counts);
            EXPECT(memcmp(got, want, kvg_format_bytes_per_32(format)) == 0, "bytes: %s", where(format, _i, n));
            EXPECT(memcmp(&counts, &want_counts, sizeof counts) == 0, "counts: %s", where(format, _i, n));
            naive_decode(format, want, want_values);
            kvg_codec_portable()->decode[format](want, 32, values);
            EXPECT(memcmp(values, want_values, sizeof values) == 0, "values: %s", where(format, _i, n));
        }
    }
}
END_TEST

START_TEST(test_codec_avx2_encodes_the_reference_bytes_and_counts)
{
    Random random = {1000 + (uint64_t)_i};

    for (int n = 0; n < BLOCKS / BLOCK_KIND_COUNT; n += ROW_BLOCKS) {
        float x[32 * ROW_BLOCKS];

        for (int k = 0; k < ROW_BLOCKS; k++) {
            random_block(&random, (BlockKind)_i, x + 32 * k);
        }
        for (int f = KVG_POLICY + 1; f < KVG_FORMAT_COUNT; f++) {
            uint8_t        want[128 * ROW_BLOCKS], got[128 * ROW_BLOCKS];
            KvEncodeCounts want_counts = {0, 0}, counts = {0, 0};

            kvg_codec_portable()->encode[f](x, 32 * ROW_BLOCKS, want, &want_counts);
            kvg_codec_avx2()->encode[f](x, 32 * ROW_BLOCKS, got, &counts);
            EXPECT(memcmp(got, want, kvg_format_bytes_per_32((KvFormat)f) * ROW_BLOCKS) == 0, "bytes: %s",
                   where((KvFormat)f, _i, n));
            EXPECT(memcmp(&counts, &want_counts, sizeof counts) == 0, "counts: %s", where((KvFormat)f, _i, n));
        }
    }
}
END_TEST

/* Any bytes are a row, those with scales that are no numbers too; which NaN comes out is then open. */
START_TEST(test_codec_avx2_decodes_any_bytes_as_the_reference_does)
{
    Random random = {4};

    for (int n = 0; n < BLOCKS / 4; n++) {
        uint32_t words[32];
        float    want[32], got[32];

        for (int i = 0; i < 32; i++) {
            words[i] = random_u32(&random);
        }
        kvg_codec_portable()->decode[_i]((const uint8_t *)words, 32, want);
        kvg_codec_avx2()->decode[_i]((const uint8_t *)words, 32, got);
        for (int i = 0; i < 32; i++) {
            EXPECT(bits_of(got[i]) == bits_of(want[i]) || (isnan(got[i]) && isnan(want[i])), "%s: element %d is %a, not %a",
                   where((KvFormat)_i, -1, n), i, (double)got[i], (double)want[i]);
        }
    }
}
END_TEST

/* The kinds would prove little if none of them reached the slow path, or all did. */
START_TEST(test_codec_random_blocks_reach_every_path)
{
    Random         random = {9};
    KvEncodeCounts counts[BLOCK_KIND_COUNT] = {{0, 0}};
    float          x[32];
    uint8_t        row[34];

    for (int kind = 0; kind < BLOCK_KIND_COUNT; kind++) {
        for (int n = 0; n < 1000; n++) {
            random_block(&random, (BlockKind)kind, x);
            kvg_encode_f32(KVG_Q8_0, x, 32, row, &counts[kind]);
        }
    }
    ck_assert_uint_eq(counts[BLOCK_NORMAL].nonfinite + counts[BLOCK_NORMAL].saturated, 0);
    ck_assert_uint_gt(counts[BLOCK_NONFINITE].nonfinite, 0);
    ck_assert_uint_gt(counts[BLOCK_HUGE].saturated, 0);
    ck_assert_uint_gt(counts[BLOCK_BITS].nonfinite, 0);
    ck_assert_uint_gt(counts[BLOCK_BITS].saturated, 0);
}
END_TEST

START_TEST(test_codec_tables_are_complete_and_the_best_is_chosen)
{
    for (int c = 0; c < 2 && codec_at(c) != NULL; c++) {
        ck_assert(codec_at(c)->encode[KVG_POLICY] == NULL && codec_at(c)->decode[KVG_POLICY] == NULL);
        for (int f = KVG_POLICY + 1; f < KVG_FORMAT_COUNT; f++) {
            ck_assert(codec_at(c)->encode[f] != NULL && codec_at(c)->decode[f] != NULL);
        }
    }
    ck_assert_ptr_eq(kvg_codec_best(), kvg_codec_avx2() != NULL ? kvg_codec_avx2() : kvg_codec_portable());
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("codec_avx2");
    TCase   *blocks = tcase_create("blocks");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(blocks, 60);
    tcase_add_loop_test(blocks, test_codec_portable_gives_the_bytes_and_counts_of_the_naive_reading, 0, BLOCK_KIND_COUNT);
    tcase_add_test(blocks, test_codec_random_blocks_reach_every_path);
    tcase_add_test(blocks, test_codec_tables_are_complete_and_the_best_is_chosen);
    if (kvg_codec_avx2() != NULL) {
        tcase_add_loop_test(blocks, test_codec_avx2_encodes_the_reference_bytes_and_counts, 0, BLOCK_KIND_COUNT);
        tcase_add_loop_test(blocks, test_codec_avx2_decodes_any_bytes_as_the_reference_does, KVG_F32, KVG_FORMAT_COUNT);
    } else {
        printf("no AVX2 here: its tests are left out\n");
    }
    suite_add_tcase(suite, blocks);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);

    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#include "naive_codec.h"

static const KvFormat all_formats[] = {KVG_F32, KVG_F16, KVG_BF16, KVG_Q8_0, KVG_Q5_1, KVG_Q4_0, KVG_FP8};
enum { FORMATS = sizeof all_formats / sizeof *all_formats };

/* Encodes by the chosen path and by the reference, which must agree in bytes and counts: each case holds for both. */
static void encode_both(KvFormat format, const float *x, size_t elements, void *row, KvEncodeCounts *counts)
{
    uint8_t        reference[3 * 128];
    KvEncodeCounts got = {0, 0}, want = {0, 0};
    uint64_t       bytes = 0;

    EXPECT(kvg_format_row_bytes(format, elements, &bytes) == KVG_OK && bytes <= sizeof reference, "%zu elements", elements);
    kvg_encode_f32_ref(format, x, elements, reference, &want);
    kvg_encode_f32(format, x, elements, row, &got);
    EXPECT(memcmp(row, reference, bytes) == 0, "%s: bytes differ from the reference's", kvg_format_name(format));
    EXPECT(memcmp(&got, &want, sizeof got) == 0, "%s: counts differ from the reference's", kvg_format_name(format));
    if (counts != NULL) {
        kvg_encode_f32(format, x, elements, row, counts);
    }
}

static uint8_t fp8_code(float value)
{
    uint8_t code = 0;

    encode_both(KVG_FP8, &value, 1, &code, NULL);
    return code;
}

/* Cases from the field, section (i), and their neighbours. */

START_TEST(test_codec_fp8_saturates_and_never_gives_nan) /* B153; NaN is +0 by S1 */
{
    static const struct { float value; uint8_t code; int nonfinite, saturated; } cases[] = {
        {447, 0x7e, 0, 0},  {448, 0x7e, 0, 0},       {448.00003f, 0x7e, 0, 1}, {464, 0x7e, 0, 1},       {465, 0x7e, 0, 1},
        {480, 0x7e, 0, 1},  {1000, 0x7e, 0, 1},      {-448, 0xfe, 0, 0},       {-1000, 0xfe, 0, 1},     {3e38f, 0x7e, 0, 1},
        {432, 0x7e, 0, 0},  {431.99997f, 0x7d, 0, 0}, {INFINITY, 0x7e, 1, 0},   {-INFINITY, 0xfe, 1, 0}, {NAN, 0x00, 1, 0},
        {-NAN, 0x00, 1, 0}, {0.0f, 0x00, 0, 0},      {-0.0f, 0x80, 0, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        KvEncodeCounts counts = {0, 0};
        uint8_t        code = 0xaa;

        encode_both(KVG_FP8, &cases[i].value, 1, &code, &counts);
        EXPECT(code == cases[i].code, "%g gives %02x", (double)cases[i].value, code);
        ck_assert_int_eq((int)counts.nonfinite, cases[i].nonfinite);
        ck_assert_int_eq((int)counts.saturated, cases[i].saturated);
    }
}
END_TEST

START_TEST(test_codec_fp8_rounds_to_even_up_to_its_top) /* B154, and its subnormal end */
{
    static const struct { float value; uint8_t code; } cases[] = {
        {256, 0x78},        {271.99997f, 0x78}, {272, 0x78},         {272.00003f, 0x79},  {300, 0x79},      {303.99997f, 0x79},
        {304, 0x7a},        {320, 0x7a},        {336, 0x7a},         {336.00003f, 0x7b},  {368, 0x7c},      {416, 0x7d},
        {0x1p-6f, 0x08},    {0x1p-9f, 0x01},    {0x1p-10f, 0x00},    {0x1.000002p-10f, 0x01}, {0x1.8p-9f, 0x02}, {0x1.fp-7f, 0x08},
        {0x1.cp-7f, 0x07},  {0x1p-149f, 0x00},  {-0x1p-149f, 0x80},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        EXPECT(fp8_code(cases[i].value) == cases[i].code, "%a gives %02x", (double)cases[i].value,
                      fp8_code(cases[i].value));
    }
}
END_TEST

START_TEST(test_codec_zero_and_tiny_blocks_decode_to_finite) /* B156 */
{
    static const float lone[] = {0.0f, -0.0f, 0x1p-30f, -0x1p-30f, 0x1p-149f, -0x1p-149f, 0x1p-126f, 0x1p-121f, 0x1p-122f, 0x1p-25f};

    for (size_t i = 0; i < sizeof lone / sizeof *lone; i++) {
        for (int f = 0; f < FORMATS; f++) {
            float          x[32] = {0}, decoded[32];
            uint8_t        row[128];
            KvEncodeCounts counts = {0, 0};

            x[7] = lone[i];
            encode_both(all_formats[f], x, 32, row, &counts);
            kvg_decode_f32(all_formats[f], row, 32, decoded);
            ck_assert_uint_eq(counts.nonfinite + counts.saturated, 0);
            for (int k = 0; k < 32; k++) {
                EXPECT(isfinite(decoded[k]) && fabsf(decoded[k] - x[k]) <= 0x1p-9f, "%s element %d",
                              kvg_format_name(all_formats[f]), k);
                EXPECT(k == 7 || lone[i] != 0.0f || decoded[k] == 0.0f, "%s", kvg_format_name(all_formats[f]));
            }
        }
    }
}
END_TEST

START_TEST(test_codec_all_zero_blocks_have_the_stated_bytes)
{
    uint8_t zeros[34] = {0}, q4_0[18], row[34];

    memset(q4_0, 0x88, sizeof q4_0);
    put16(q4_0, 0x8000);
    for (int negative = 0; negative < 2; negative++) {
        float x[32];

        for (int i = 0; i < 32; i++) {
            x[i] = negative ? -0.0f : 0.0f;
        }
        encode_both(KVG_Q8_0, x, 32, row, NULL);
        ck_assert_mem_eq(row, zeros, 34);
        encode_both(KVG_Q4_0, x, 32, row, NULL);
        ck_assert_mem_eq(row, q4_0, 18);
        put16(zeros + 2, negative ? 0x8000 : 0); /* m keeps the sign of element 0 */
        encode_both(KVG_Q5_1, x, 32, row, NULL);
        ck_assert_mem_eq(row, zeros, 24);
        put16(zeros + 2, 0);
    }
}
END_TEST

START_TEST(test_codec_q5_1_minimum_is_the_first_of_two_zeros)
{
    for (int first = 0; first < 2; first++) {
        float   x[32];
        uint8_t row[24];

        for (int i = 0; i < 32; i++) {
            x[i] = (float)(i % 5 + 1);
        }
        x[20] = first ? -0.0f : 0.0f;
        x[9] = first ? 0.0f : -0.0f; /* index 9 comes first, though vectors of 8 meet 20's lane later or sooner */
        encode_both(KVG_Q5_1, x, 32, row, NULL);
        ck_assert_uint_eq(get16(row + 2), first ? 0x0000 : 0x8000);
    }
}
END_TEST

START_TEST(test_codec_q4_0_scale_takes_the_first_of_equal_magnitudes)
{
    for (int first = 0; first < 2; first++) {
        float   x[32] = {0};
        uint8_t row[18];

        x[31] = first ? 4.0f : -4.0f;
        x[3] = -x[31];
        encode_both(KVG_Q4_0, x, 32, row, NULL);
        ck_assert_uint_eq(get16(row), first ? 0x3800 : 0xb800); /* x[3] = -4: d = +0.5 */
        ck_assert_int_eq(naive_nibble(row + 2, 3), 0);
        ck_assert_int_eq(naive_nibble(row + 2, 31), 15); /* +8 steps do not fit: clipped */
    }
}
END_TEST

START_TEST(test_codec_narrow_ranges_store_the_scale_not_its_inverse) /* B157 */
{
    static const float ranges[] = {0.0f, 0.001f, 1e-5f, 1e-7f};

    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
        for (int f = 3; f < 6; f++) {
            float   x[32], decoded[32];
            uint8_t row[34];

            for (int i = 0; i < 32; i++) {
                x[i] = 1.0f + ranges[r] * (float)i / 31.0f;
            }
            encode_both(all_formats[f], x, 32, row, NULL);
            kvg_decode_f32(all_formats[f], row, 32, decoded);
            for (int i = 0; i < 32; i++) {
                EXPECT(fabsf(decoded[i] - x[i]) < 0.07f, "%s", kvg_format_name(all_formats[f]));
            }
        }
    }
}
END_TEST

START_TEST(test_codec_q8_0_halves_go_away_from_zero) /* B159 */
{
    static const struct { float value; int code; } cases[] = {
        {0.5003f, 1}, {0.5f, 1},   {0.49999997f, 0}, {1.5f, 2},   {2.5f, 3},     {2.4999998f, 2}, {-0.5f, -1},
        {-2.5f, -3},  {-1.5f, -2}, {126.5f, 127},    {-126.5f, -127}, {-127, -127}, {-0.0f, 0},
    };
    float   x[32] = {127.0f};
    uint8_t row[34];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        x[i + 1] = cases[i].value;
    }
    encode_both(KVG_Q8_0, x, 32, row, NULL);
    ck_assert_uint_eq(get16(row), 0x3c00);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq((int8_t)row[2 + i + 1], cases[i].code);
    }
}
END_TEST

START_TEST(test_codec_values_beyond_the_range_are_clamped_and_counted) /* B162 and the other limits */
{
    for (int f = 0; f < FORMATS; f++) {
        float limit = (float)naive_limit(all_formats[f]);
        float values[] = {limit, -limit, nextafterf(limit, 0), nextafterf(limit, INFINITY), -nextafterf(limit, INFINITY)};

        for (int v = 0; v < 5; v++) {
            float          x[32] = {0}, decoded[32];
            uint8_t        row[128], clamped[128];
            KvEncodeCounts counts = {5, 7}; /* added to, not reset */

            x[13] = values[v];
            encode_both(all_formats[f], x, 32, row, &counts);
            ck_assert_uint_eq(counts.nonfinite, 5u + (isinf(values[v]) ? 1u : 0u));
            ck_assert_uint_eq(counts.saturated, 7u + (v >= 3 && isfinite(values[v]) ? 1u : 0u));
            kvg_decode_f32(all_formats[f], row, 32, decoded);
            ck_assert(isfinite(decoded[13]) && fabsf(decoded[13]) <= limit * 1.0005f);
            if (v >= 3) {
                x[13] = copysignf(limit, values[v]);
                encode_both(all_formats[f], x, 32, clamped, NULL);
                ck_assert_mem_eq(row, clamped, kvg_format_bytes_per_32(all_formats[f]));
            }
        }
    }
}
END_TEST

START_TEST(test_codec_one_bad_element_does_not_poison_its_neighbours) /* B167 */
{
    static const uint32_t bad[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0x7f800000, 0xff800000};
    Random                random = {(uint64_t)_i};

    for (int at = 0; at < 96; at++) {
        for (int b = 0; b < 5; b++) {
            float          x[96];
            uint8_t        row[3 * 128], mended[3 * 128];
            KvEncodeCounts counts = {0, 0};

            for (int k = 0; k < 3; k++) {
                random_block(&random, BLOCK_NORMAL, x + 32 * k);
            }
            x[at] = float_of(bad[b]);
            encode_both(all_formats[_i], x, 96, row, &counts);
            ck_assert_uint_eq(counts.nonfinite, 1);
            x[at] = b < 3 ? 0.0f : (float)copysign(naive_limit(all_formats[_i]), x[at]);
            encode_both(all_formats[_i], x, 96, mended, &counts);
            ck_assert_uint_eq(counts.nonfinite, 1);
            ck_assert_mem_eq(row, mended, 3 * kvg_format_bytes_per_32(all_formats[_i]));
        }
    }
}
END_TEST

/* Largest |x - decoded| that the format allows: half a step, what the rounding of the stored scales adds at the far end of
 * the codes, and a whole step at the clipped end of q4_0. */
static double error_bound(KvFormat format, const float *x, int at)
{
    double amax = 0, low = x[0], high = x[0];
    double size = fabs(x[at]);

    for (int i = 0; i < 32; i++) {
        amax = fmax(amax, fabs(x[i]));
        low = fmin(low, x[i]);
        high = fmax(high, x[i]);
    }
    switch (format) {
    case KVG_Q8_0: return amax / 127 / 2 * 1.0001 + 127 * (amax / 127 * 0x1p-11 + 0x1p-25);
    case KVG_Q5_1:
        return (high - low) / 31 / 2 * 1.0001 + 31 * ((high - low) / 31 * 0x1p-11 + 0x1p-25) + fabs(low) * 0x1p-11 + 0x1p-25;
    case KVG_Q4_0: return amax / 8 * 1.0001 + 8 * (amax / 8 * 0x1p-11 + 0x1p-25);
    case KVG_FP8: return fmax(size * 0x1p-4, 0x1p-10);
    case KVG_F16: return fmax(size * 0x1p-11, 0x1p-25);
    case KVG_BF16: return size * 0x1p-8;
    default: return 0;
    }
}

START_TEST(test_codec_round_trip_error_stays_below_its_bound) /* B168 */
{
    static const BlockKind kinds[] = {BLOCK_NORMAL, BLOCK_INTEGERS, BLOCK_TIES, BLOCK_BF16, BLOCK_EQUAL, BLOCK_ZEROS};
    Random                 random = {99};

    for (int n = 0; n < 30000; n++) {
        float   x[32], decoded[32];
        uint8_t row[128];

        random_block(&random, kinds[n % 6], x);
        for (int i = 0; i < 32; i++) {
            x[i] = fminf(fmaxf(x[i], -448.0f), 448.0f); /* within every format */
        }
        encode_both(all_formats[_i], x, 32, row, NULL);
        kvg_decode_f32(all_formats[_i], row, 32, decoded);
        for (int i = 0; i < 32; i++) {
            EXPECT(fabs((double)x[i] - (double)decoded[i]) <= error_bound(all_formats[_i], x, i),
                          "block %d element %d: %a decodes to %a", n, i, (double)x[i], (double)decoded[i]);
        }
    }
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("codec_cases");
    TCase   *cases = tcase_create("cases");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, test_codec_fp8_saturates_and_never_gives_nan);
    tcase_add_test(cases, test_codec_fp8_rounds_to_even_up_to_its_top);
    tcase_add_test(cases, test_codec_zero_and_tiny_blocks_decode_to_finite);
    tcase_add_test(cases, test_codec_all_zero_blocks_have_the_stated_bytes);
    tcase_add_test(cases, test_codec_q5_1_minimum_is_the_first_of_two_zeros);
    tcase_add_test(cases, test_codec_q4_0_scale_takes_the_first_of_equal_magnitudes);
    tcase_add_test(cases, test_codec_narrow_ranges_store_the_scale_not_its_inverse);
    tcase_add_test(cases, test_codec_q8_0_halves_go_away_from_zero);
    tcase_add_test(cases, test_codec_values_beyond_the_range_are_clamped_and_counted);
    tcase_add_loop_test(cases, test_codec_one_bad_element_does_not_poison_its_neighbours, 0, FORMATS);
    tcase_add_loop_test(cases, test_codec_round_trip_error_stays_below_its_bound, 0, FORMATS);
    suite_add_tcase(suite, cases);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);

    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

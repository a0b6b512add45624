#include <jansson.h>
#include <stdio.h>

#include "naive_codec.h"
#include "runtime/rules/codec.h"
#include "runtime/rules/codec_elements.h"

static const KvFormat all_formats[] = {KVG_F32, KVG_F16, KVG_BF16, KVG_Q8_0, KVG_Q5_1, KVG_Q4_0, KVG_FP8};
enum { FORMATS = sizeof all_formats / sizeof *all_formats };

static uint8_t fp8_code(float value)
{
    uint8_t code = 0;

    kvg_encode_f32(KVG_FP8, &value, 1, &code, NULL);
    return code;
}

/* ---- vectors */

static size_t hex_bytes(const char *text, uint8_t *bytes)
{
    size_t n = strlen(text) / 2;

    for (size_t i = 0; i < n; i++) {
        unsigned byte;

        ck_assert_int_eq(sscanf(text + 2 * i, "%2x", &byte), 1);
        bytes[i] = (uint8_t)byte;
    }
    return n;
}

static const char *text_at(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));

    EXPECT(text != NULL, "a vector has no %s", key);
    return text;
}

/* Runs `check` on each line of a file; returns how many there were. */
static int each_vector(const char *path, void (*check)(const json_t *line, int number))
{
    FILE *file = fopen(path, "r");
    char  text[8192];
    int   number = 0;

    EXPECT(file != NULL, "cannot read %s", path);
    while (fgets(text, sizeof text, file) != NULL) {
        json_t *line = json_loads(text, 0, NULL);

        ck_assert_ptr_nonnull(line);
        check(line, ++number);
        json_decref(line);
    }
    fclose(file);
    return number;
}

static void check_block(const json_t *line, int number)
{
    KvFormat format = KVG_POLICY;
    float    values[32], decoded[32], got[32];
    uint8_t  block[128], row[128];

    ck_assert_int_eq(kvg_format_parse(text_at(line, "format"), &format), KVG_OK);
    ck_assert_uint_eq(hex_bytes(text_at(line, "values"), (uint8_t *)values), sizeof values);
    ck_assert_uint_eq(hex_bytes(text_at(line, "block"), block), kvg_format_bytes_per_32(format));
    ck_assert_uint_eq(hex_bytes(text_at(line, "decoded"), (uint8_t *)decoded), sizeof decoded);

    kvg_encode_f32(format, values, 32, row, NULL);
    EXPECT(memcmp(row, block, kvg_format_bytes_per_32(format)) == 0, "line %d: encode", number);
    kvg_encode_f32_ref(format, values, 32, row, NULL);
    EXPECT(memcmp(row, block, kvg_format_bytes_per_32(format)) == 0, "line %d: reference encode", number);
    kvg_decode_f32(format, block, 32, got);
    EXPECT(memcmp(got, decoded, sizeof got) == 0, "line %d: decode", number);
    kvg_codec_portable()->decode[format](block, 32, got);
    EXPECT(memcmp(got, decoded, sizeof got) == 0, "line %d: portable decode", number);
}

START_TEST(test_codec_every_block_vector_holds)
{
    ck_assert_int_eq(each_vector(KVG_TEST_DATA "/vectors/quant_blocks.jsonl", check_block), 766);
}
END_TEST

static void check_fp8(const json_t *line, int number)
{
    uint32_t value = (uint32_t)strtoul(text_at(line, "value"), NULL, 16);
    uint32_t decoded = (uint32_t)strtoul(text_at(line, "decoded"), NULL, 16);
    uint8_t  code = (uint8_t)strtoul(text_at(line, "code"), NULL, 16);
    float    got;

    EXPECT(fp8_code(float_of(value)) == code, "line %d: %08x gives %02x", number, value, fp8_code(float_of(value)));
    kvg_decode_f32(KVG_FP8, &code, 1, &got);
    EXPECT(bits_of(got) == decoded, "line %d: %02x gives %08x", number, code, bits_of(got));
}

START_TEST(test_codec_every_fp8_vector_holds)
{
    ck_assert_int_eq(each_vector(KVG_TEST_DATA "/vectors/fp8_e4m3.jsonl", check_fp8), 304);
}
END_TEST

/* ---- exhaustive */

START_TEST(test_codec_every_f16_code_widens_exactly_and_comes_back)
{
    for (uint32_t code = 0; code < 0x10000; code++) {
        uint16_t       stored = (uint16_t)code, back = 0;
        float          value;
        KvEncodeCounts counts = {0, 0};

        kvg_decode_f32(KVG_F16, &stored, 1, &value);
        kvg_encode_f32(KVG_F16, &value, 1, &back, &counts);
        EXPECT(counts.saturated == 0, "code %04x", code);
        if ((code & 0x7c00) != 0x7c00) {
            EXPECT(bits_of(value) == bits_of((float)naive_widen(small_f16, code)), "code %04x", code);
            EXPECT(back == code && counts.nonfinite == 0, "code %04x comes back as %04x", code, back);
        } else {
            EXPECT((code & 0x3ff) != 0 ? isnan(value) : isinf(value), "code %04x", code);
            ck_assert_int_eq(signbit(value) != 0, code >> 15);
            ck_assert_uint_eq(back, (code & 0x3ff) != 0 ? 0 : (code & 0x8000) | 0x7bff);
            ck_assert_uint_eq(counts.nonfinite, 1);
        }
    }
}
END_TEST

START_TEST(test_codec_every_bf16_code_widens_exactly_and_comes_back)
{
    for (uint32_t code = 0; code < 0x10000; code++) {
        uint16_t stored = (uint16_t)code, back = 0;
        float    value;

        kvg_decode_f32(KVG_BF16, &stored, 1, &value);
        EXPECT(bits_of(value) == code << 16, "code %04x", code);
        kvg_encode_f32(KVG_BF16, &value, 1, &back, NULL);
        if ((code & 0x7f80) != 0x7f80) {
            EXPECT(back == code, "code %04x comes back as %04x", code, back);
        } else {
            ck_assert_uint_eq(back, (code & 0x7f) != 0 ? 0 : (code & 0x8000) | 0x7f7f);
        }
    }
}
END_TEST

START_TEST(test_codec_every_fp8_code_decodes_and_comes_back)
{
    for (uint32_t code = 0; code < 0x100; code++) {
        uint8_t stored = (uint8_t)code;
        float   value;

        kvg_decode_f32(KVG_FP8, &stored, 1, &value);
        if ((code & 0x7f) == 0x7f) {
            EXPECT(isnan(value), "code %02x is NaN", code);
            ck_assert_uint_eq(fp8_code(value), 0);
        } else {
            EXPECT(bits_of(value) == bits_of((float)naive_widen(small_fp8, code)), "code %02x", code);
            EXPECT(fp8_code(value) == code, "code %02x comes back as %02x", code, fp8_code(value));
        }
    }
}
END_TEST

/* Between two codes: the middle goes to the even one, its neighbours to the nearer. */
static void check_middles(KvFormat format, Small small, uint32_t largest)
{
    for (uint32_t code = 0; code < largest; code++) {
        float middle = (float)((naive_widen(small, code) + naive_widen(small, code + 1)) / 2);
        float around[3] = {nextafterf(middle, 0), middle, nextafterf(middle, INFINITY)};

        for (int k = 0; k < 6; k++) {
            float    value = k < 3 ? around[k] : -around[k - 3];
            uint16_t got = 0;
            uint32_t want = k % 3 == 0 ? code : k % 3 == 2 ? code + 1 : code + (code & 1);

            kvg_encode_f32(format, &value, 1, &got, NULL);
            EXPECT(got == (want | (k < 3 ? 0u : 1u << small.sign_bit)), "%s: %a gives %x", kvg_format_name(format),
                          (double)value, got);
        }
    }
}

START_TEST(test_codec_small_floats_round_middles_to_even)
{
    check_middles(KVG_F16, small_f16, 0x7bff);
    check_middles(KVG_BF16, small_bf16, 0x7f7f);
    check_middles(KVG_FP8, small_fp8, 0x7e);
}
END_TEST

/* From 1/4 up every float is tried; below it the sum stays below 3/4 and is sampled. */
START_TEST(test_codec_round_away_is_roundf_for_every_float_below_128)
{
    const uint32_t quarter = bits_of(0.25f);
    uint64_t       wrong = 0;

    for (uint32_t bits = 0; bits < quarter; bits += 997) {
        wrong += kvg_round_away(float_of(bits)) != 0 || kvg_round_away(-float_of(bits)) != 0;
    }
    for (uint32_t bits = quarter; bits <= bits_of(128.0f); bits++) {
        float   value = float_of(bits);
        int32_t floor_value = (int32_t)value;
        int32_t want = floor_value + (value - (float)floor_value >= 0.5f); /* the difference is exact */

        wrong += kvg_round_away(value) != want || kvg_round_away(-value) != -want;
    }
    ck_assert_uint_eq(wrong, 0);
    for (float value = 0.0f; value < 128.0f; value += 0.03125f) {
        ck_assert_int_eq(kvg_round_away(value), (int32_t)roundf(value));
    }
}
END_TEST

START_TEST(test_codec_inverse_is_zero_just_where_it_would_not_be_finite)
{
    for (uint32_t bits = 0; bits < 0x00800000; bits += bits >= 0x001fff00 && bits < 0x00200100 ? 1 : 61) {
        EXPECT(bits_of(kvg_inverse(float_of(bits))) == bits_of(naive_inverse(float_of(bits))), "d = %08x", bits);
    }
    ck_assert_float_eq(kvg_inverse(float_of(0x00200000)), 0.0f);
    ck_assert(isfinite(kvg_inverse(float_of(0x00200001))) && kvg_inverse(float_of(0x80200001)) < 0.0f);
}
END_TEST

/* ---- shapes of calls */

START_TEST(test_codec_rows_have_any_alignment_and_nothing_beside_them_changes)
{
    KvFormat format = all_formats[_i];
    size_t   bytes = 3 * kvg_format_bytes_per_32(format);
    Random   random = {5};
    float    x[96 + 8], decoded[96 + 8];
    uint8_t  room[3 * 128 + 64], want[3 * 128];

    for (int offset = 0; offset < 32; offset++) {
        const float *source = x + offset % 8;

        for (int k = 0; k < 3; k++) {
            random_block(&random, BLOCK_NORMAL, x + offset % 8 + 32 * k);
            naive_encode(format, source + 32 * k, want + k * kvg_format_bytes_per_32(format), &(KvEncodeCounts){0, 0});
        }
        memset(room, 0xa5, sizeof room);
        kvg_encode_f32(format, source, 96, room + offset, NULL);
        ck_assert_mem_eq(room + offset, want, bytes);
        for (size_t i = 0; i < sizeof room; i++) {
            EXPECT(room[i] == 0xa5 || (i >= (size_t)offset && i < (size_t)offset + bytes), "offset %d, byte %zu", offset, i);
        }
        memset(decoded, 0x5a, sizeof decoded);
        kvg_decode_f32(format, room + offset, 96, decoded + offset % 8);
        for (int k = 0; k < 3; k++) {
            float naive[32];

            naive_decode(format, want + k * kvg_format_bytes_per_32(format), naive);
            ck_assert_mem_eq(decoded + offset % 8 + 32 * k, naive, sizeof naive);
        }
        for (int i = 0; i < 96 + 8; i++) {
            EXPECT((i >= offset % 8 && i < 96 + offset % 8) || bits_of(decoded[i]) == 0x5a5a5a5a, "offset %d, element %d", offset, i);
        }
    }
}
END_TEST

START_TEST(test_codec_plain_formats_take_any_dimension)
{
    static const KvFormat plain[] = {KVG_F32, KVG_F16, KVG_BF16, KVG_FP8};
    KvFormat              format = plain[_i];
    size_t                each = kvg_format_block_bytes(format);
    Random                random = {6};
    float                 x[128], decoded[129], whole[128];
    uint8_t               want[512], row[513];

    for (int k = 0; k < 4; k++) {
        random_block(&random, BLOCK_NONFINITE, x + 32 * k);
        naive_encode(format, x + 32 * k, want + 32 * k * each, &(KvEncodeCounts){0, 0});
    }
    kvg_decode_f32(format, want, 128, whole);
    for (size_t n = 0; n <= 128; n++) {
        KvEncodeCounts counts = {0, 0}, naive_counts = {0, 0};

        for (size_t i = 0; i < n; i++) {
            naive_clean(format, x[i], &naive_counts);
        }
        memset(row, 0xa5, sizeof row);
        memset(decoded, 0x5a, sizeof decoded);
        kvg_encode_f32(format, x, n, row, &counts);
        kvg_decode_f32(format, row, n, decoded);
        EXPECT(memcmp(row, want, n * each) == 0 && row[n * each] == 0xa5, "%zu elements", n);
        EXPECT(memcmp(decoded, whole, n * sizeof *whole) == 0 && bits_of(decoded[n]) == 0x5a5a5a5a, "%zu elements", n);
        ck_assert_mem_eq(&counts, &naive_counts, sizeof counts);
    }
}
END_TEST

/* Every f16 and bf16 there is, NaN and infinities included, in rows long enough for several strips and a part of one. */
START_TEST(test_codec_half_sources_widen_exactly_before_they_are_encoded)
{
    enum { N = 0x10000 - 32 };
    static uint8_t  codes[2 * N + 1]; /* from an odd address */
    static float    wide[N];
    static uint8_t  row[4 * N], want[4 * N];
    const KvFormat  type = _i / FORMATS == 0 ? KVG_F16 : _i / FORMATS == 1 ? KVG_BF16 : KVG_F32;
    const KvFormat  format = all_formats[_i % FORMATS];
    const uint64_t  bytes = kvg_format_bytes_per_32(format) * (uint64_t)(N / 32);
    KvEncodeCounts  counts = {0, 0}, want_counts = {0, 0};

    for (uint32_t i = 0; i < N; i++) {
        uint32_t code = i * 40503u & 0xffff; /* odd factor: each code once, neighbours apart */

        put16(codes + 1 + 2 * i, code);
        wide[i] = type != KVG_F16 ? float_of(code << 16)
                : (code & 0x7c00) != 0x7c00 ? (float)naive_widen(small_f16, code)
                : float_of((code & 0x8000) << 16 | 0x7f800000 | (code & 0x3ff) << 13);
    }
    kvg_encode_f32_ref(format, wide, N, want, &want_counts);
    kvg_encode(format, type, type == KVG_F32 ? (const void *)wide : codes + 1, N, row, &counts);
    ck_assert_mem_eq(row, want, bytes);
    ck_assert_mem_eq(&counts, &want_counts, sizeof counts);
    ck_assert_uint_gt(counts.nonfinite, 0);
    kvg_encode(format, type, type == KVG_F32 ? (const void *)wide : codes + 1, N, row, NULL);
    ck_assert_mem_eq(row, want, bytes);
}
END_TEST

START_TEST(test_codec_empty_rows_touch_nothing)
{
    for (int f = 0; f < FORMATS; f++) {
        KvEncodeCounts counts = {1, 2};
        uint8_t        row = 0xa5;
        float          value = 3.0f;

        kvg_encode_f32(all_formats[f], &value, 0, &row, &counts);
        kvg_encode(all_formats[f], KVG_BF16, &value, 0, &row, &counts);
        kvg_decode_f32(all_formats[f], &row, 0, &value);
        ck_assert(row == 0xa5 && value == 3.0f && counts.nonfinite == 1 && counts.saturated == 2);
    }
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("codec");
    TCase   *exact = tcase_create("exact");
    TCase   *calls = tcase_create("calls");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(exact, 60);
    tcase_add_test(exact, test_codec_every_block_vector_holds);
    tcase_add_test(exact, test_codec_every_fp8_vector_holds);
    tcase_add_test(exact, test_codec_every_f16_code_widens_exactly_and_comes_back);
    tcase_add_test(exact, test_codec_every_bf16_code_widens_exactly_and_comes_back);
    tcase_add_test(exact, test_codec_every_fp8_code_decodes_and_comes_back);
    tcase_add_test(exact, test_codec_small_floats_round_middles_to_even);
    tcase_add_test(exact, test_codec_round_away_is_roundf_for_every_float_below_128);
    tcase_add_test(exact, test_codec_inverse_is_zero_just_where_it_would_not_be_finite);
    tcase_add_loop_test(calls, test_codec_rows_have_any_alignment_and_nothing_beside_them_changes, 0, FORMATS);
    tcase_add_loop_test(calls, test_codec_plain_formats_take_any_dimension, 0, 4);
    tcase_add_loop_test(calls, test_codec_half_sources_widen_exactly_before_they_are_encoded, 0, 3 * FORMATS);
    tcase_add_test(calls, test_codec_empty_rows_touch_nothing);
    suite_add_tcase(suite, exact);
    suite_add_tcase(suite, calls);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);

    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

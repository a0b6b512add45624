#include <check.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/format.h>

typedef struct Expected {
    KvFormat    format;
    const char *name;
    uint32_t    block_elements, block_bytes, bytes_per_32;
    int         legal_k, legal_v, lossy;
} Expected;

static const Expected expected[] = {
    {KVG_F32, "f32", 1, 4, 128, 0, 0, 0},  {KVG_F16, "f16", 1, 2, 64, 1, 1, 0},    {KVG_BF16, "bf16", 1, 2, 64, 1, 1, 0},
    {KVG_Q8_0, "q8_0", 32, 34, 34, 1, 1, 1}, {KVG_Q5_1, "q5_1", 32, 24, 24, 0, 1, 1}, {KVG_Q4_0, "q4_0", 32, 18, 18, 1, 1, 1},
    {KVG_FP8, "fp8", 1, 1, 32, 1, 1, 1},
};
enum { EXPECTED_COUNT = sizeof expected / sizeof *expected };

START_TEST(test_format_table_is_the_one_of_the_rules)
{
    const Expected *want = &expected[_i];

    ck_assert_str_eq(kvg_format_name(want->format), want->name);
    ck_assert_uint_eq(kvg_format_block_elements(want->format), want->block_elements);
    ck_assert_uint_eq(kvg_format_block_bytes(want->format), want->block_bytes);
    ck_assert_uint_eq(kvg_format_bytes_per_32(want->format), want->bytes_per_32);
    ck_assert_int_eq(kvg_format_legal_k(want->format), want->legal_k);
    ck_assert_int_eq(kvg_format_legal_v(want->format), want->legal_v);
    ck_assert_int_eq(kvg_format_is_lossy(want->format), want->lossy);
}
END_TEST

START_TEST(test_format_every_name_parses_to_itself)
{
    KvFormat format = KVG_POLICY;

    ck_assert_int_eq(kvg_format_parse(expected[_i].name, &format), KVG_OK);
    ck_assert_int_eq(format, expected[_i].format);
}
END_TEST

START_TEST(test_format_unknown_word_lists_the_legal_ones_and_changes_nothing)
{
    static const char *const words[] = {"q8_1", "Q8_0", "q8_0 ", "", "policy", "?", "fp16", NULL};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        KvFormat format = KVG_FP8;

        ck_assert_int_eq(kvg_format_parse(words[i], &format), KVG_EINVAL);
        ck_assert_int_eq(format, KVG_FP8);
        for (int k = 0; k < EXPECTED_COUNT; k++) {
            ck_assert_ptr_nonnull(strstr(kvg_last_error(), expected[k].name));
        }
    }
}
END_TEST

START_TEST(test_format_policy_and_strangers_have_no_size)
{
    static const int strangers[] = {KVG_POLICY, KVG_FORMAT_COUNT, KVG_FORMAT_COUNT + 1, 255, INT_MAX};

    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        KvFormat format = (KvFormat)strangers[i];
        uint64_t bytes = 77;

        ck_assert_uint_eq(kvg_format_block_elements(format), 0);
        ck_assert_uint_eq(kvg_format_block_bytes(format), 0);
        ck_assert_uint_eq(kvg_format_bytes_per_32(format), 0);
        ck_assert_int_eq(kvg_format_legal_k(format) | kvg_format_legal_v(format) | kvg_format_is_lossy(format), 0);
        ck_assert_str_eq(kvg_format_name(format), strangers[i] == KVG_POLICY ? "policy" : "?");
        ck_assert_int_eq(kvg_format_row_bytes(format, 32, &bytes), KVG_EINVAL);
        ck_assert_uint_eq(bytes, 77);
    }
}
END_TEST

START_TEST(test_format_row_bytes_count_whole_blocks)
{
    const Expected *want = &expected[_i];
    uint64_t        bytes = 0;

    for (uint64_t blocks = 0; blocks < 5; blocks++) {
        ck_assert_int_eq(kvg_format_row_bytes(want->format, 32 * blocks, &bytes), KVG_OK);
        ck_assert_uint_eq(bytes, want->bytes_per_32 * blocks);
    }
}
END_TEST

START_TEST(test_format_row_refuses_to_cut_a_block)
{
    static const uint64_t counts[] = {1, 16, 31, 33, 63, 80, 112, 1023};
    const Expected       *want = &expected[_i];

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        uint64_t  bytes = 77;
        KvgStatus status = kvg_format_row_bytes(want->format, counts[i], &bytes);

        ck_assert_int_eq(status, want->block_elements == 1 ? KVG_OK : KVG_EGEOM);
        ck_assert_uint_eq(bytes, want->block_elements == 1 ? counts[i] * want->block_bytes : 77);
    }
}
END_TEST

START_TEST(test_format_row_bytes_past_64_bits_overflow)
{
    uint64_t bytes = 77;

    ck_assert_int_eq(kvg_format_row_bytes(KVG_F32, UINT64_MAX / 4, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, UINT64_MAX - 3);
    ck_assert_int_eq(kvg_format_row_bytes(KVG_F32, UINT64_MAX / 4 + 1, &bytes), KVG_EOVERFLOW);
    ck_assert_int_eq(kvg_format_row_bytes(KVG_Q8_0, UINT64_MAX - 31, &bytes), KVG_EOVERFLOW);
    ck_assert_uint_eq(bytes, UINT64_MAX - 3);
    ck_assert_int_eq(kvg_format_row_bytes(KVG_Q5_1, UINT64_MAX - 31, &bytes), KVG_OK); /* 24 bytes for 32 elements fit */
    ck_assert_uint_eq(bytes, (UINT64_MAX / 32) * 24);
    ck_assert_int_eq(kvg_format_row_bytes(KVG_FP8, UINT64_MAX, &bytes), KVG_OK);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("format");
    TCase   *table = tcase_create("table");
    SRunner *runner = srunner_create(suite);

    tcase_add_loop_test(table, test_format_table_is_the_one_of_the_rules, 0, EXPECTED_COUNT);
    tcase_add_loop_test(table, test_format_every_name_parses_to_itself, 0, EXPECTED_COUNT);
    tcase_add_test(table, test_format_unknown_word_lists_the_legal_ones_and_changes_nothing);
    tcase_add_test(table, test_format_policy_and_strangers_have_no_size);
    tcase_add_loop_test(table, test_format_row_bytes_count_whole_blocks, 0, EXPECTED_COUNT);
    tcase_add_loop_test(table, test_format_row_refuses_to_cut_a_block, 0, EXPECTED_COUNT);
    tcase_add_test(table, test_format_row_bytes_past_64_bits_overflow);
    suite_add_tcase(suite, table);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);

    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

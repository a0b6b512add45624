#include <check.h>

#include <kvgrid/shape.h>

static TpKvRankAllocationShape shape_of(uint64_t k, uint64_t v, uint64_t ranks, KvFormat format_k, KvFormat format_v)
{
    TpKvRankAllocationShape shape;
    ck_assert_int_eq(kvg_tp_kv_rank_allocation_shape(k, v, ranks, format_k, format_v, &shape), KVG_OK);
    return shape;
}

START_TEST(test_shape_of_the_rules_check)
{
    TpKvRankAllocationShape shape = shape_of(1024, 1024, 8, KVG_Q8_0, KVG_Q5_1);
    uint64_t bytes;
    ck_assert_uint_eq(shape.kv_dim_k, 128);
    ck_assert_uint_eq(shape.kv_dim_v, 128);
    ck_assert_uint_eq(shape.k_token_bytes, 136);
    ck_assert_uint_eq(shape.v_token_bytes, 96);
    ck_assert_uint_eq(shape.fixed_bytes, 20);
    ck_assert_uint_eq(kvg_tp_kv_shape_bytes_per_token(&shape), 232);
    ck_assert_int_eq(kvg_tp_kv_shape_allocation_bytes(&shape, 4096, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 232 * 4096 + 20);
    ck_assert_int_eq(kvg_tp_kv_shape_allocation_bytes(&shape, 0, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 20);
}
END_TEST

/* Case B02: 48 layers of 4 heads of 128 in bf16 over 8 ranks: 24576 bytes a token on each, twice the unreplicated sum. */
START_TEST(test_shape_in_plain_formats_is_elements_times_bytes)
{
    TpKvRankAllocationShape shape = shape_of(1024, 1024, 8, KVG_BF16, KVG_BF16); /* one whole head a rank, replicated */
    ck_assert_uint_eq(48 * kvg_tp_kv_shape_bytes_per_token(&shape), 24576);
    shape = shape_of(64, 32, 1, KVG_F32, KVG_FP8);
    ck_assert_uint_eq(shape.k_token_bytes, 256);
    ck_assert_uint_eq(shape.v_token_bytes, 32);
}
END_TEST

START_TEST(test_shape_that_does_not_fall_evenly_is_refused_in_every_format)
{
    static const struct { uint64_t k, v, ranks; } cases[] = {
        {1024, 1024, 3}, {1024, 1024, 64}, {1024, 1056, 2}, {1056, 1024, 2}, {640, 640, 8}, {80, 80, 1}, {31, 32, 1}, {32, 33, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int format = KVG_F32; format < KVG_FORMAT_COUNT; format++) {
            TpKvRankAllocationShape shape = {.fixed_bytes = 99};
            ck_assert_int_eq(kvg_tp_kv_rank_allocation_shape(cases[i].k, cases[i].v, cases[i].ranks, (KvFormat)format,
                                                             (KvFormat)format, &shape), KVG_EGEOM);
            ck_assert_uint_eq(shape.fixed_bytes, 99);
        }
    }
    shape_of(1024, 1024, 32, KVG_Q8_0, KVG_Q5_1); /* 32 elements a rank: the neighbour that works */
}
END_TEST

START_TEST(test_shape_of_nothing_is_a_bad_argument_before_geometry)
{
    TpKvRankAllocationShape shape;
    ck_assert_int_eq(kvg_tp_kv_rank_allocation_shape(0, 33, 1, KVG_Q8_0, KVG_Q5_1, &shape), KVG_EINVAL);
    ck_assert_int_eq(kvg_tp_kv_rank_allocation_shape(33, 0, 1, KVG_Q8_0, KVG_Q5_1, &shape), KVG_EINVAL);
    ck_assert_int_eq(kvg_tp_kv_rank_allocation_shape(33, 33, 0, KVG_Q8_0, KVG_Q5_1, &shape), KVG_EINVAL);
    ck_assert_int_eq(kvg_tp_kv_rank_allocation_shape(32, 32, 1, KVG_POLICY, KVG_Q5_1, &shape), KVG_EINVAL);
    ck_assert_int_eq(kvg_tp_kv_rank_allocation_shape(32, 32, 1, KVG_Q8_0, KVG_FORMAT_COUNT, &shape), KVG_EINVAL);
}
END_TEST

/* Case B148: products that wrap are refused, not taken. */
START_TEST(test_shape_past_64_bits_is_an_overflow)
{
    TpKvRankAllocationShape shape;
    uint64_t huge = UINT64_MAX - 31, bytes = 7;
    ck_assert_int_eq(kvg_tp_kv_rank_allocation_shape(huge, 32, 1, KVG_Q8_0, KVG_Q5_1, &shape), KVG_EOVERFLOW);
    ck_assert_int_eq(kvg_tp_kv_rank_allocation_shape(32, huge, 1, KVG_Q8_0, KVG_F32, &shape), KVG_EOVERFLOW);
    ck_assert_int_eq(kvg_tp_kv_rank_allocation_shape(huge, huge, 1, KVG_FP8, KVG_FP8, &shape), KVG_EOVERFLOW); /* the sum */
    shape = shape_of(32, 32, 1, KVG_FP8, KVG_Q4_0); /* 50 bytes a token: 2^64 - 1 leaves 15, less than the fixed 20 */
    ck_assert_int_eq(kvg_tp_kv_shape_allocation_bytes(&shape, UINT64_MAX / 50, &bytes), KVG_EOVERFLOW); /* by the fixed bytes */
    ck_assert_int_eq(kvg_tp_kv_shape_allocation_bytes(&shape, UINT64_MAX / 50 + 1, &bytes), KVG_EOVERFLOW);
    ck_assert_uint_eq(bytes, 7);
    ck_assert_int_eq(kvg_tp_kv_shape_allocation_bytes(&shape, UINT64_MAX / 50 - 1, &bytes), KVG_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shape");
    TCase *tcase = tcase_create("rules");
    tcase_add_test(tcase, test_shape_of_the_rules_check);
    tcase_add_test(tcase, test_shape_in_plain_formats_is_elements_times_bytes);
    tcase_add_test(tcase, test_shape_that_does_not_fall_evenly_is_refused_in_every_format);
    tcase_add_test(tcase, test_shape_of_nothing_is_a_bad_argument_before_geometry);
    tcase_add_test(tcase, test_shape_past_64_bits_is_an_overflow);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int ran = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return ran == 0 || failed != 0;
}

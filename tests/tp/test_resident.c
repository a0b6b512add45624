#include <check.h>
#include <string.h>

#include <kvgrid/resident.h>

/* Two ranks, a class of two layers of different width. */
static TpKvRankAllocationShape shapes[2][2];
static ResidentTpKvCacheRank ranks[2];

static void setup(void)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        for (uint32_t layer = 0; layer < 2; layer++) {
            uint64_t dim = layer == 0 ? 256 : 1024;
            ck_assert_int_eq(kvg_tp_kv_rank_allocation_shape(dim, dim, 2, KVG_Q8_0, KVG_Q5_1, &shapes[rank][layer]), KVG_OK);
        }
        ranks[rank] = (ResidentTpKvCacheRank){.tp_rank = rank, .shapes = shapes[rank]};
    }
}

static ResidentTpKvCache cache_of(const ResidentTpKvCacheRank *of, uint32_t rank_count, uint32_t layers, uint64_t capacity,
                                  uint64_t window)
{
    ResidentTpKvCache cache;
    ck_assert_int_eq(kvg_resident_tp_kv_init(&cache, of, rank_count, layers, capacity, window, 0, KVG_TP_KV_INIT_FLAT), KVG_OK);
    return cache;
}

static void step(ResidentTpKvCache *cache, uint64_t rows, uint64_t accepted)
{
    TpKvTransaction tx;
    TpKvAppendPlan plan;
    uint64_t target;
    ck_assert_int_eq(kvg_resident_tp_kv_begin(cache, &tx), KVG_OK);
    ck_assert_int_eq(kvg_resident_tp_kv_prepare_append(cache, &tx, rows, &plan), KVG_OK);
    ck_assert_int_eq(kvg_resident_tp_kv_publish_append_rebase(cache, &plan), KVG_OK);
    ck_assert_int_eq(kvg_resident_tp_kv_publish_append_plan(cache, &plan), KVG_OK);
    ck_assert_int_eq(kvg_resident_tp_kv_commit_target(cache, &tx, accepted, &target), KVG_OK);
    ck_assert_int_eq(kvg_resident_tp_kv_publish_finalize(cache, &tx, target), KVG_OK);
}

START_TEST(test_one_length_serves_every_layer_and_rank)
{
    ResidentTpKvCache cache = cache_of(ranks, 2, 2, 100, 0);
    uint64_t first, past, row;
    int rebase;
    step(&cache, 10, 7);
    ck_assert_uint_eq(cache.state.committed, 7);
    ck_assert_int_eq(kvg_resident_tp_kv_physical_range(&cache, 2, 7, &first, &past), KVG_OK);
    ck_assert_uint_eq(first, 2);
    ck_assert_int_eq(kvg_resident_tp_kv_peek_append_ring(&cache, 3, &row, &rebase), KVG_OK);
    ck_assert_uint_eq(row, 7);
    ck_assert_int_eq(rebase, 0);
    ck_assert_int_eq(kvg_resident_tp_kv_rewind_to(&cache, 8), KVG_EINVAL);
    ck_assert_int_eq(kvg_resident_tp_kv_rewind_to(&cache, 5), KVG_OK);
    ck_assert_int_eq(kvg_resident_tp_kv_publish_hydration(&cache, 5, 0), KVG_EBUSY);
}
END_TEST

START_TEST(test_cache_of_no_layer_or_no_rank_is_refused)
{
    ResidentTpKvCache cache;
    ck_assert_int_eq(kvg_resident_tp_kv_init(&cache, ranks, 0, 1, 8, 0, 0, 0), KVG_EINVAL);
    ck_assert_int_eq(kvg_resident_tp_kv_init(&cache, ranks, 1, 0, 8, 0, 0, 0), KVG_EINVAL);
    ck_assert_int_eq(kvg_resident_tp_kv_init(&cache, ranks, 1, 1, 0, 0, 0, 0), KVG_EINVAL);
}
END_TEST

START_TEST(test_grow_bytes_of_mixed_widths_are_planned_per_layer_and_add_up)
{
    ResidentTpKvCache cache = cache_of(ranks, 2, 2, 100, 0);
    TpKvGrowPlan plan;
    uint64_t k, v, k_sum = 0, v_sum = 0;
    step(&cache, 40, 40);
    ck_assert_int_eq(kvg_resident_tp_kv_prepare_grow(&cache, 200, 33, &plan), KVG_OK);
    for (uint32_t rank = 0; rank < 2; rank++) {
        for (uint32_t layer = 0; layer < 2; layer++) {
            ck_assert_int_eq(kvg_resident_tp_kv_grow_layer_bytes(&cache, &plan, rank, layer, &k, &v), KVG_OK);
            ck_assert_uint_eq(k, 33 * (layer == 0 ? 136 : 544));
            ck_assert_uint_eq(v, 33 * (layer == 0 ? 96 : 384));
            k_sum += k;
            v_sum += v;
        }
    }
    ck_assert_uint_eq(plan.k_bytes, k_sum);
    ck_assert_uint_eq(plan.v_bytes, v_sum);
    ck_assert_int_eq(kvg_resident_tp_kv_grow_layer_bytes(&cache, &plan, 2, 0, &k, &v), KVG_EINVAL);
    ck_assert_int_eq(kvg_resident_tp_kv_grow_layer_bytes(&cache, &plan, 0, 2, &k, &v), KVG_EINVAL);
}
END_TEST

START_TEST(test_grow_goes_on_in_the_target_and_only_in_one_of_the_same_layout)
{
    ResidentTpKvCache cache = cache_of(ranks, 2, 2, 100, 0);
    step(&cache, 40, 40);
    TpKvGrowPlan plan;
    ck_assert_int_eq(kvg_resident_tp_kv_prepare_grow(&cache, 200, 40, &plan), KVG_OK);

    TpKvRankAllocationShape wider[2] = {shapes[0][0], shapes[0][0]};
    ResidentTpKvCacheRank swapped[2] = {ranks[1], ranks[0]}, other[2] = {ranks[0], {.tp_rank = 1, .shapes = wider}};
    ResidentTpKvCache targets[] = {cache_of(ranks, 1, 2, 200, 0), cache_of(ranks, 2, 1, 200, 0), cache_of(swapped, 2, 2, 200, 0),
                                   cache_of(other, 2, 2, 200, 0), cache_of(ranks, 2, 2, 201, 0), cache_of(ranks, 2, 2, 200, 32)};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        ResidentTpKvCache before = targets[i];
        ck_assert_int_eq(kvg_resident_tp_kv_publish_grow(&cache, &plan, &targets[i]), KVG_ELAYOUT);
        ck_assert_int_eq(memcmp(&before, &targets[i], sizeof before), 0);
    }
    ResidentTpKvCache target = cache_of(ranks, 2, 2, 200, 0);
    ck_assert_int_eq(kvg_resident_tp_kv_publish_grow(&cache, &plan, &target), KVG_OK);
    ck_assert_uint_eq(target.state.committed, 40);
    ck_assert_uint_eq(target.state.next_generation, 2);
    step(&target, 160, 160);
    ck_assert_uint_eq(target.state.committed, 200);
}
END_TEST

START_TEST(test_allocation_counts_a_rings_rows_not_its_capacity)
{
    ResidentTpKvCache linear = cache_of(ranks, 2, 2, 10000, 0), ring = cache_of(ranks, 2, 2, 10000, 32);
    uint64_t bytes;
    ck_assert_int_eq(kvg_resident_tp_kv_allocation_bytes(&linear, 0, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 10000 * (232 + 928) + 40);
    ck_assert_int_eq(kvg_resident_tp_kv_allocation_bytes(&ring, 1, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 4671 * (232 + 928) + 40);
    ck_assert_int_eq(kvg_resident_tp_kv_allocation_bytes(&ring, 2, &bytes), KVG_EINVAL);
}
END_TEST

START_TEST(test_token_bytes_past_64_bits_are_an_overflow)
{
    TpKvRankAllocationShape huge[2] = {{.k_token_bytes = UINT64_MAX / 2 + 1}, {.k_token_bytes = UINT64_MAX / 2 + 1}};
    ResidentTpKvCacheRank one = {.tp_rank = 0, .shapes = huge};
    ResidentTpKvCache cache = cache_of(&one, 1, 2, 100, 0);
    TpKvGrowPlan plan;
    uint64_t k, v, bytes;
    ck_assert_int_eq(kvg_resident_tp_kv_prepare_grow(&cache, 200, 0, &plan), KVG_EOVERFLOW);
    plan = (TpKvGrowPlan){.copy_rows = 2};
    ck_assert_int_eq(kvg_resident_tp_kv_grow_layer_bytes(&cache, &plan, 0, 0, &k, &v), KVG_EOVERFLOW);
    ck_assert_int_eq(kvg_resident_tp_kv_allocation_bytes(&cache, 0, &bytes), KVG_EOVERFLOW);
    huge[0].k_token_bytes = huge[1].k_token_bytes = UINT64_MAX / 100; /* each alone would fit */
    ck_assert_int_eq(kvg_resident_tp_kv_allocation_bytes(&cache, 0, &bytes), KVG_EOVERFLOW);
    huge[1].k_token_bytes = 0;
    ck_assert_int_eq(kvg_resident_tp_kv_allocation_bytes(&cache, 0, &bytes), KVG_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("resident cache");
    TCase *tcase = tcase_create("rules");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, test_one_length_serves_every_layer_and_rank);
    tcase_add_test(tcase, test_cache_of_no_layer_or_no_rank_is_refused);
    tcase_add_test(tcase, test_grow_bytes_of_mixed_widths_are_planned_per_layer_and_add_up);
    tcase_add_test(tcase, test_grow_goes_on_in_the_target_and_only_in_one_of_the_same_layout);
    tcase_add_test(tcase, test_allocation_counts_a_rings_rows_not_its_capacity);
    tcase_add_test(tcase, test_token_bytes_past_64_bits_are_an_overflow);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int ran = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return ran == 0 || failed != 0;
}

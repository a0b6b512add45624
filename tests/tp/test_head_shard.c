#include <check.h>
#include <string.h>

#include <kvgrid/head_shard.h>

static HeadShard shard_of(uint32_t heads, uint32_t ranks, uint32_t rank)
{
    HeadShard shard;
    ck_assert_int_eq(kvg_head_shard(heads, ranks, rank, &shard), KVG_OK);
    return shard;
}

/* Cases B01, B02, B05, B07, B12, B13: heads are replicated whole, never rounded to none or cut. */
START_TEST(test_owner_of_a_replicated_head_is_rank_times_heads_over_ranks)
{
    static const struct { uint32_t heads, ranks, count, replicas; } cases[] = {
        {2, 4, 1, 2}, {4, 8, 1, 2}, {8, 32, 1, 4}, {1, 2, 1, 2}, {8, 16, 1, 2}, {8, 8, 1, 1}, {8, 4, 2, 1}, {8, 1, 8, 1}, {1, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint32_t rank = 0; rank < cases[i].ranks; rank++) {
            HeadShard shard = shard_of(cases[i].heads, cases[i].ranks, rank);
            ck_assert_uint_eq(shard.first, rank * cases[i].heads / cases[i].ranks);
            ck_assert_uint_eq(shard.count, cases[i].count);
            ck_assert_uint_eq(shard.replicas, cases[i].replicas);
        }
    }
}
END_TEST

/* Whatever works gives every head to exactly `replicas` ranks; the rest is refused. */
START_TEST(test_every_head_is_held_equally_often_or_the_size_is_refused)
{
    for (uint32_t heads = 1; heads <= 48; heads++) {
        for (uint32_t ranks = 1; ranks <= 64; ranks++) {
            uint32_t held[48] = {0}, replicas = 0;
            HeadShard shard = {9, 9, 9};
            KvgStatus want = heads % ranks == 0 || ranks % heads == 0 ? KVG_OK : KVG_EGEOM;
            for (uint32_t rank = 0; rank < ranks; rank++) {
                ck_assert_int_eq(kvg_head_shard(heads, ranks, rank, &shard), want);
                if (want != KVG_OK) continue;
                for (uint32_t head = shard.first; head < shard.first + shard.count; head++) held[head]++;
                replicas = shard.replicas;
            }
            for (uint32_t head = 0; want == KVG_OK && head < heads; head++) ck_assert_uint_eq(held[head], replicas);
            if (want != KVG_OK) ck_assert_uint_eq(shard.first, 9);
        }
    }
}
END_TEST

/* Case B15: tp 2, 8 query heads over 4 KV heads: rank 1's queries 4..7 read KV heads 2 and 3. */
START_TEST(test_query_and_kv_shards_of_a_rank_belong_together)
{
    static const struct { uint32_t queries, heads; } models[] = {{8, 4}, {28, 4}, {52, 52}, {64, 8}, {32, 1}};
    ck_assert_uint_eq(shard_of(8, 2, 1).first, 4);
    ck_assert_uint_eq(shard_of(4, 2, 1).first, 2);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        uint32_t sizes[64], group = models[i].queries / models[i].heads;
        size_t count = kvg_tp_sizes_that_work(models[i].queries, models[i].heads, 64, sizes, 64);
        ck_assert_uint_gt(count, 0);
        for (size_t s = 0; s < count; s++) {
            for (uint32_t rank = 0; rank < sizes[s]; rank++) {
                HeadShard q = shard_of(models[i].queries, sizes[s], rank), kv = shard_of(models[i].heads, sizes[s], rank);
                ck_assert_uint_ge(q.first / group, kv.first);
                ck_assert_uint_lt((q.first + q.count - 1) / group, kv.first + kv.count);
            }
        }
    }
}
END_TEST

/* Case B03: 28 query heads, 4 KV heads: 1, 2, 4 and 28; 7 and 14 divide the queries only. Case B09: 52 of both. */
START_TEST(test_sizes_that_work_look_at_query_and_kv_heads)
{
    uint32_t sizes[8];
    ck_assert_uint_eq(kvg_tp_sizes_that_work(28, 4, 28, sizes, 8), 4);
    ck_assert_int_eq(memcmp(sizes, (uint32_t[]){1, 2, 4, 28}, 16), 0);
    ck_assert_uint_eq(kvg_tp_sizes_that_work(52, 52, 52, sizes, 8), 6);
    ck_assert_int_eq(memcmp(sizes, (uint32_t[]){1, 2, 4, 13, 26, 52}, 24), 0);
    ck_assert_uint_eq(kvg_tp_sizes_that_work(0, 8, 32, sizes, 8), 7); /* 1 2 4 8 16 24 32 */
    ck_assert_uint_eq(kvg_tp_sizes_that_work(64, 8, 4, NULL, 0), 3);
    ck_assert_uint_eq(kvg_tp_sizes_that_work(64, 0, 4, NULL, 0), 0);
    ck_assert_uint_eq(kvg_tp_sizes_that_work(64, 8, 0, NULL, 0), 0);
}
END_TEST

START_TEST(test_size_that_does_not_work_lists_those_that_do_and_the_other_way)
{
    HeadShard shard;
    ck_assert_int_eq(kvg_head_shard(52, 8, 0, &shard), KVG_EGEOM);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "1, 2, 4, 13, 26, 52"));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "pp"));
    ck_assert_int_eq(kvg_tp_check_heads(28, 4, 7), KVG_EGEOM);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "1, 2, 4, 28,"));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "pp"));
    ck_assert_int_eq(kvg_tp_check_heads(28, 4, 14), KVG_EGEOM);
    ck_assert_int_eq(kvg_tp_check_heads(28, 4, 28), KVG_OK);
    ck_assert_int_eq(kvg_tp_check_heads(28, 4, 8), KVG_EGEOM); /* 8 falls over 4 heads, not over 28 */
    ck_assert_int_eq(kvg_tp_check_heads(64, 8, 3), KVG_EGEOM);
    ck_assert_int_eq(kvg_tp_check_heads(0xFFFFFFFFu, 0xFFFFFFFEu, 65521), KVG_EGEOM); /* a prime: the list is long, not endless */
    ck_assert_int_eq(kvg_tp_check_heads(720720, 720720, 19), KVG_EGEOM);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "..."));
}
END_TEST

/* Case B149: zeros are errors, not divisions. */
START_TEST(test_zero_heads_or_ranks_and_ranks_outside_are_bad_arguments)
{
    HeadShard shard;
    ck_assert_int_eq(kvg_head_shard(0, 4, 0, &shard), KVG_EINVAL);
    ck_assert_int_eq(kvg_head_shard(4, 0, 0, &shard), KVG_EINVAL);
    ck_assert_int_eq(kvg_head_shard(4, 4, 4, &shard), KVG_EINVAL);
    ck_assert_int_eq(kvg_head_shard(5, 3, 3, &shard), KVG_EINVAL); /* before EGEOM */
    ck_assert_int_eq(kvg_tp_check_heads(8, 0, 2), KVG_EINVAL);
    ck_assert_int_eq(kvg_tp_check_heads(8, 8, 0), KVG_EINVAL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("head shard");
    TCase *tcase = tcase_create("rules");
    tcase_add_test(tcase, test_owner_of_a_replicated_head_is_rank_times_heads_over_ranks);
    tcase_add_test(tcase, test_every_head_is_held_equally_often_or_the_size_is_refused);
    tcase_add_test(tcase, test_query_and_kv_shards_of_a_rank_belong_together);
    tcase_add_test(tcase, test_sizes_that_work_look_at_query_and_kv_heads);
    tcase_add_test(tcase, test_size_that_does_not_work_lists_those_that_do_and_the_other_way);
    tcase_add_test(tcase, test_zero_heads_or_ranks_and_ranks_outside_are_bad_arguments);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int ran = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return ran == 0 || failed != 0;
}

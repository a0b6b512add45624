#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/partition.h>

#include "runtime/base/memory.h"

#define LAYERS_MAX 256

static uint64_t cost[LAYERS_MAX];
static uint32_t fence[LAYERS_MAX + 1];
static uint64_t loads[LAYERS_MAX];

static void equal_costs(uint32_t n, uint64_t each)
{
    for (uint32_t i = 0; i < n; i++) cost[i] = each;
}

static KvgStatus plain(uint32_t n, uint32_t stages)
{
    return kvg_partition(cost, n, stages, 0, 0, NULL, NULL, 0, fence, loads);
}

/* Cases B17, B18, B19: the union of the stages is 0..L-1, nothing twice, and each begins where the one before it ends. */
START_TEST(test_stages_cover_every_layer_once)
{
    equal_costs(200, 7);
    for (uint32_t n = 1; n <= 200; n += n < 34 ? 1 : 23) {
        for (uint32_t stages = 1; stages <= n; stages += stages < 12 ? 1 : 19) {
            ck_assert_int_eq(plain(n, stages), KVG_OK);
            ck_assert_int_eq(kvg_fence_check(fence, stages, n), KVG_OK);
            uint32_t owned = 0;
            for (uint32_t s = 0; s < stages; s++) {
                uint32_t own = fence[s + 1] - fence[s];
                ck_assert_uint_ge(own, n / stages);
                ck_assert_uint_le(own, (n + stages - 1) / stages);
                ck_assert_uint_eq(loads[s], 7u * own);
                owned += own;
            }
            ck_assert_uint_eq(owned, n);
        }
    }
}
END_TEST

/* B17 and B18 in numbers: the odd layers go to the later stages, since the smaller fence is the lexicographically first. */
START_TEST(test_odd_layers_go_where_the_smallest_fence_puts_them)
{
    equal_costs(30, 1);
    ck_assert_int_eq(plain(10, 3), KVG_OK);
    ck_assert_int_eq(memcmp(fence, (uint32_t[]){0, 3, 6, 10}, 16), 0);
    ck_assert_int_eq(plain(30, 4), KVG_OK);
    ck_assert_int_eq(memcmp(fence, (uint32_t[]){0, 7, 14, 22, 30}, 20), 0);
}
END_TEST

START_TEST(test_extras_join_the_first_and_the_last_stage_and_both_when_there_is_one)
{
    equal_costs(8, 7);
    ck_assert_int_eq(kvg_partition(cost, 1, 1, 400, 400, NULL, NULL, 0, fence, loads), KVG_OK);
    ck_assert_uint_eq(loads[0], 807);
    ck_assert_int_eq(kvg_partition(cost, 2, 2, 400, 0, NULL, NULL, 0, fence, loads), KVG_OK);
    ck_assert_uint_eq(loads[0], 407);
    ck_assert_uint_eq(loads[1], 7);
    ck_assert_int_eq(kvg_partition(cost, 8, 2, 0, 14, NULL, NULL, 0, fence, loads), KVG_OK);
    ck_assert_uint_eq(fence[1], 5);
}
END_TEST

START_TEST(test_budgets_are_shares_compared_exactly)
{
    equal_costs(3, UINT64_C(6148914691236517205)); /* a third of 2^64 - 1 */
    uint64_t budgets[2] = {UINT64_MAX - 1, UINT64_MAX};
    ck_assert_int_eq(kvg_partition(cost, 3, 2, 0, 0, budgets, NULL, 0, fence, loads), KVG_OK);
    ck_assert_uint_eq(fence[1], 1); /* two thirds of the larger budget, by one part in 2^64 */
    budgets[0] = UINT64_MAX;
    budgets[1] = UINT64_MAX - 1;
    ck_assert_int_eq(kvg_partition(cost, 3, 2, 0, 0, budgets, NULL, 0, fence, loads), KVG_OK);
    ck_assert_uint_eq(fence[1], 2);
}
END_TEST

START_TEST(test_load_over_its_budget_names_stage_and_bytes)
{
    equal_costs(4, 10);
    uint64_t budgets[2] = {20, 19};
    memset(fence, 0xA5, sizeof fence);
    ck_assert_int_eq(kvg_partition(cost, 4, 2, 0, 0, budgets, NULL, 0, fence, loads), KVG_ENOMEM);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "stage 1 needs 20 bytes"));
    ck_assert_uint_eq(fence[0], 0xA5A5A5A5u);
    budgets[1] = 20;
    ck_assert_int_eq(kvg_partition(cost, 4, 2, 0, 0, budgets, NULL, 0, fence, NULL), KVG_OK);
    budgets[0] = 10;
    budgets[1] = 30;
    ck_assert_int_eq(kvg_partition(cost, 4, 2, 0, 0, budgets, NULL, 0, fence, NULL), KVG_OK);
    ck_assert_uint_eq(fence[1], 1);
}
END_TEST

START_TEST(test_bad_arguments_come_before_geometry)
{
    equal_costs(4, 10);
    uint64_t budgets[2] = {20, 0};
    uint32_t all[] = {1, 2, 3};
    ck_assert_int_eq(plain(4, 0), KVG_EINVAL);
    ck_assert_int_eq(plain(4, 5), KVG_EINVAL);
    ck_assert_int_eq(plain(0, 0), KVG_EINVAL);
    ck_assert_int_eq(plain(0, 1), KVG_EINVAL);
    ck_assert_int_eq(plain(4, 4), KVG_OK);
    ck_assert_int_eq(kvg_partition(cost, 4, 2, 0, 0, budgets, all, 3, fence, loads), KVG_EINVAL);
    ck_assert_int_eq(kvg_partition(cost, 4, 2, 0, 0, NULL, all, 3, fence, loads), KVG_EGEOM);
    ck_assert_int_eq(kvg_partition(cost, 4, 3, 0, 0, NULL, all, 2, fence, loads), KVG_EGEOM);
    ck_assert_int_eq(kvg_partition(cost, 4, 2, 0, 0, NULL, all, 2, fence, loads), KVG_OK);
    ck_assert_uint_eq(fence[1], 3);
    ck_assert_int_eq(kvg_partition(cost, 4, 1, 0, 0, NULL, all, 3, fence, loads), KVG_OK);
    ck_assert_int_eq(kvg_partition(cost, 4, 2, 0, 0, NULL, (uint32_t[]){0, 4, 9, 2, 2}, 5, fence, loads), KVG_OK);
    ck_assert_uint_eq(fence[1], 1);
}
END_TEST

START_TEST(test_costs_past_64_bits_are_an_overflow)
{
    equal_costs(2, UINT64_MAX / 2 + 1);
    ck_assert_int_eq(plain(2, 2), KVG_EOVERFLOW);
    equal_costs(2, UINT64_MAX / 2);
    ck_assert_int_eq(plain(2, 2), KVG_OK);
    ck_assert_int_eq(kvg_partition(cost, 2, 2, 1, 0, NULL, NULL, 0, fence, loads), KVG_OK);
    ck_assert_int_eq(kvg_partition(cost, 2, 2, 1, 1, NULL, NULL, 0, fence, loads), KVG_EOVERFLOW);
    ck_assert_int_eq(kvg_partition(cost, 1, 1, UINT64_MAX, 0, NULL, NULL, 0, fence, loads), KVG_EOVERFLOW);
}
END_TEST

/* ---- against every fence there is */

typedef struct Best {
    uint32_t fence[9];
    uint64_t load, budget; /* the largest share */
    __extension__ unsigned __int128 squares;
    int      found;
} Best;

typedef struct Trial {
    uint32_t n, stages;
    uint64_t first_extra, last_extra, budgets[8];
    uint8_t  forbidden[9];
} Trial;

static void try_fence(const Trial *trial, const uint32_t *cuts, Best *best)
{
    uint64_t load = 0, budget = 1;
    __extension__ unsigned __int128 squares = 0;
    for (uint32_t s = 0; s < trial->stages; s++) {
        uint64_t own = (s == 0 ? trial->first_extra : 0) + (s == trial->stages - 1 ? trial->last_extra : 0);
        for (uint32_t i = cuts[s]; i < cuts[s + 1]; i++) own += cost[i];
        if (own * budget > load * trial->budgets[s]) {
            load = own;
            budget = trial->budgets[s];
        }
        squares += own * own;
    }
    int better = !best->found || load * best->budget < best->load * budget ||
                 (load * best->budget == best->load * budget && squares < best->squares);
    if (!better) return; /* fences come in lexicographic order: an equal one is later */
    *best = (Best){.load = load, .budget = budget, .squares = squares, .found = 1};
    memcpy(best->fence, cuts, sizeof *cuts * (trial->stages + 1));
}

static void try_all(const Trial *trial, uint32_t *cuts, uint32_t stage, Best *best)
{
    if (stage == trial->stages) {
        if (cuts[stage - 1] < trial->n) {
            cuts[stage] = trial->n;
            try_fence(trial, cuts, best);
        }
        return;
    }
    for (uint32_t cut = cuts[stage - 1] + 1; cut < trial->n; cut++) {
        if (trial->forbidden[cut]) continue;
        cuts[stage] = cut;
        try_all(trial, cuts, stage + 1, best);
    }
}

static void draw_trial(Trial *trial, int with_budgets)
{
    memset(trial, 0, sizeof *trial);
    trial->n = 1 + (uint32_t)rand() % 8;
    trial->stages = 1 + (uint32_t)rand() % trial->n;
    trial->first_extra = rand() % 2 ? (uint64_t)rand() % 20 : 0;
    trial->last_extra = rand() % 2 ? (uint64_t)rand() % 20 : 0;
    int range = rand() % 2 ? 4 : 50; /* small ranges tie often */
    for (uint32_t i = 0; i < trial->n; i++) cost[i] = (uint64_t)(rand() % range);
    for (uint32_t s = 0; s < trial->stages; s++) trial->budgets[s] = with_budgets ? 10 + (uint64_t)rand() % 200 : 1;
    for (uint32_t cut = 1; cut < 9; cut++) trial->forbidden[cut] = rand() % 4 == 0; /* past n none is read */
}

START_TEST(test_fence_is_the_best_of_all_fences)
{
    int seen[KVG_STATUS_COUNT] = {0};
    srand(3 + (unsigned)_i);
    for (int round = 0; round < 4000; round++) {
        Trial trial;
        draw_trial(&trial, _i);
        Best best = {0};
        uint32_t cuts[9] = {0}, forbidden[9], count = 0;
        try_all(&trial, cuts, 1, &best);
        for (uint32_t cut = 1; cut < trial.n; cut++) if (trial.forbidden[cut]) forbidden[count++] = cut;
        KvgStatus want = !best.found ? KVG_EGEOM : _i && best.load > best.budget ? KVG_ENOMEM : KVG_OK;
        ck_assert_int_eq(kvg_partition(cost, trial.n, trial.stages, trial.first_extra, trial.last_extra,
                                       _i ? trial.budgets : NULL, forbidden, count, fence, loads), want);
        if (want == KVG_OK) ck_assert_msg(memcmp(fence, best.fence, sizeof *fence * (trial.stages + 1)) == 0, "round %d", round);
        seen[want]++;
    }
    ck_assert_int_gt(seen[KVG_OK], 500);
    ck_assert_int_gt(seen[KVG_EGEOM], 100);
    if (_i) ck_assert_int_gt(seen[KVG_ENOMEM], 100);
}
END_TEST

START_TEST(test_partition_unwinds_from_every_allocation)
{
    equal_costs(40, 3);
    uint64_t before = kvg_live_allocations();
    int failures = 0;
    for (uint64_t nth = 0;; nth++) {
        memset(fence, 0xA5, sizeof fence);
        kvg_fault_arm(nth);
        KvgStatus status = plain(40, 7);
        int delivered = kvg_fault_disarm();
        ck_assert_uint_eq(kvg_live_allocations(), before);
        if (!delivered) {
            ck_assert_int_eq(status, KVG_OK);
            break;
        }
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert_uint_eq(fence[0], 0xA5A5A5A5u);
        failures++;
    }
    ck_assert_int_gt(failures, 0);
}
END_TEST

/* Case B25, B26: what lies past the trunk, an MTP block, is the last stage's. */
START_TEST(test_owner_of_a_layer_is_found_in_the_fence)
{
    static const uint32_t cuts[] = {0, 21, 44, 45, 47};
    for (uint32_t layer = 0; layer < 60; layer++) {
        uint32_t want = layer < 21 ? 0 : layer < 44 ? 1 : layer < 45 ? 2 : 3;
        ck_assert_uint_eq(kvg_fence_stage(cuts, 4, layer), want);
    }
    ck_assert_uint_eq(kvg_fence_stage((uint32_t[]){0, 5}, 1, 0), 0);
    ck_assert_uint_eq(kvg_fence_stage((uint32_t[]){0, 5}, 1, 5), 0);
}
END_TEST

START_TEST(test_fence_of_a_caller_is_checked)
{
    ck_assert_int_eq(kvg_fence_check((uint32_t[]){0, 2, 5}, 2, 5), KVG_OK);
    ck_assert_int_eq(kvg_fence_check((uint32_t[]){0, 2, 4}, 2, 5), KVG_EINVAL);
    ck_assert_int_eq(kvg_fence_check((uint32_t[]){1, 2, 5}, 2, 5), KVG_EINVAL);
    ck_assert_int_eq(kvg_fence_check((uint32_t[]){0, 0, 5}, 2, 5), KVG_EINVAL);
    ck_assert_int_eq(kvg_fence_check((uint32_t[]){0, 5, 5}, 2, 5), KVG_EINVAL);
    ck_assert_int_eq(kvg_fence_check((uint32_t[]){0, 3, 2, 5}, 3, 5), KVG_EINVAL);
    ck_assert_int_eq(kvg_fence_check((uint32_t[]){0}, 0, 5), KVG_EINVAL);
    ck_assert_int_eq(kvg_fence_check((uint32_t[]){0, 1, 2}, 2, 1), KVG_EINVAL);
}
END_TEST

START_TEST(test_large_models_are_cut_too)
{
    for (uint32_t i = 0; i < 200; i++) cost[i] = UINT64_C(1000000000) + (i * UINT64_C(2654435761)) % 700000000;
    ck_assert_int_eq(kvg_partition(cost, 200, 64, UINT64_C(2000000000), UINT64_C(3000000000), NULL, NULL, 0, fence, loads), KVG_OK);
    ck_assert_int_eq(kvg_fence_check(fence, 64, 200), KVG_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("partition");
    TCase *tcase = tcase_create("rules");
    tcase_add_test(tcase, test_stages_cover_every_layer_once);
    tcase_add_test(tcase, test_odd_layers_go_where_the_smallest_fence_puts_them);
    tcase_add_test(tcase, test_extras_join_the_first_and_the_last_stage_and_both_when_there_is_one);
    tcase_add_test(tcase, test_budgets_are_shares_compared_exactly);
    tcase_add_test(tcase, test_load_over_its_budget_names_stage_and_bytes);
    tcase_add_test(tcase, test_bad_arguments_come_before_geometry);
    tcase_add_test(tcase, test_costs_past_64_bits_are_an_overflow);
    tcase_add_loop_test(tcase, test_fence_is_the_best_of_all_fences, 0, 2);
    tcase_add_test(tcase, test_partition_unwinds_from_every_allocation);
    tcase_add_test(tcase, test_owner_of_a_layer_is_found_in_the_fence);
    tcase_add_test(tcase, test_fence_of_a_caller_is_checked);
    tcase_add_test(tcase, test_large_models_are_cut_too);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int ran = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return ran == 0 || failed != 0;
}

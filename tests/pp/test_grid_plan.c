/* Grid plans: every model on many grids, options that make no sense, and unwinding. */
#include <check.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/grid_plan.h>

#include "runtime/base/memory.h"
#include "tests/support/plan_scene.h"

/* ---- every model on many grids */

static void check_model_on_grid(const char *name, uint32_t tp, uint32_t pp)
{
    uint64_t trunk, ring, own = 0, in_ring = 0;

    if (pp > config.plan.n_layer || try_plan(tp, pp) != KVG_OK) {
        return;
    }
    make_plan(tp, pp);
    check_ranks_cover_the_model(name);
    ck_assert_int_eq(kvg_plan_bytes_per_token(&options.sizing, &config.plan, 0, config.plan.n_layer, &trunk), KVG_OK);
    ck_assert_int_eq(kvg_plan_ring_bytes_per_token(&options.sizing, &config.plan, 0, config.plan.n_layer, &ring), KVG_OK);
    for (uint32_t r = 0; r < plan.ranks_count; r++) {
        own += plan.ranks[r].bytes_per_token - plan.ranks[r].duplicate_bytes_per_token;
        in_ring += plan.ranks[r].ring_bytes_per_token;
    }
    ck_assert_msg(own == trunk, "%s tp %u pp %u: %llu, not %llu", name, tp, pp, (unsigned long long)own, (unsigned long long)trunk);
    ck_assert_msg(duplicates_over_ranks() == 0 ? in_ring == ring : in_ring >= ring, "%s tp %u pp %u: %llu in rings, not %llu", name, tp,
                  pp, (unsigned long long)in_ring, (unsigned long long)ring);
}

START_TEST(test_grid_plan_ranks_less_duplicates_are_the_trunk_for_every_model_and_grid)
{
    static const uint32_t sizes[] = { 1, 2, 3, 4, 8, 16 };
    DIR                  *folder = opendir(KVG_TEST_DATA "/models");
    int                   models = 0;

    ck_assert_ptr_nonnull(folder);
    ask_bf16();
    options.sizing.policy.swa_ring = 1;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char *end = strstr(entry->d_name, ".json");

        if (end == NULL || strcmp(entry->d_name, "deepseek-v4-flash.json") == 0) {
            continue;
        }
        *end = '\0';
        load(entry->d_name);
        for (size_t t = 0; t < sizeof sizes / sizeof sizes[0]; t++) {
            for (size_t p = 0; p < sizeof sizes / sizeof sizes[0]; p++) {
                check_model_on_grid(entry->d_name, sizes[t], sizes[p]);
            }
        }
        unload();
        models++;
    }
    closedir(folder);
    ck_assert_int_ge(models, 30);
}
END_TEST

/* ---- bad use, and unwinding */

START_TEST(test_grid_plan_layers_that_are_none_are_refused)
{
    make_plain(2, 1024);
    made_layers[0] = (StatePlan){ .kind = KVG_STATE_SHARED, .u.shared_source = 1 };
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "does not come before it"));
    made_layers[0] = (StatePlan){ .kind = (KvStateKind)99 };
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "kind 99"));
}
END_TEST

START_TEST(test_grid_plan_refuses_options_that_make_no_sense)
{
    make_plain(4, 4096);
    ck_assert_int_eq(try_plan(0, 1), KVG_EINVAL);
    ck_assert_int_eq(try_plan(1, 0), KVG_EINVAL);
    ck_assert_int_eq(try_plan(1, 5), KVG_EINVAL);
    ck_assert_int_eq(try_plan(65536, 65536), KVG_EINVAL);
    options.sizing.format_k = KVG_Q5_1;
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    options.sizing.format_k = KVG_BF16;
    options.sizing.format_v = KVG_F32;
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    options.sizing.format_v = KVG_BF16;
    options.sizing.format_latent = KVG_Q8_0;
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    options.sizing.format_latent = KVG_POLICY;
    options.layout = (KvLayout)7;
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    options.layout = KVG_LAYOUT_POOL;
    options.size = 8;
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    options.size = sizeof options;
    ck_assert_int_eq(try_plan(1, 1), KVG_OK);
    ck_assert_int_eq(kvg_grid_plan(NULL, &options, &plan), KVG_EINVAL);
    kvg_grid_plan_free(NULL);
}
END_TEST

START_TEST(test_grid_plan_unwinds_from_every_allocation)
{
    make_plain(8, 4096);
    give_memory(4, 1 << 24);
    for (uint64_t nth = 0;; nth++) {
        uint64_t live = kvg_live_allocations();

        kvg_fault_arm(nth);
        KvgStatus status = try_plan(2, 2);
        if (!kvg_fault_disarm()) {
            ck_assert_int_eq(status, KVG_OK);
            ck_assert_uint_ge(nth, 8);
            break;
        }
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert_uint_eq(kvg_live_allocations(), live);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grid_plan");
    TCase *tcase = tcase_create("grid_plan");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_grid_plan_ranks_less_duplicates_are_the_trunk_for_every_model_and_grid);
    tcase_add_test(tcase, test_grid_plan_refuses_options_that_make_no_sense);
    tcase_add_test(tcase, test_grid_plan_layers_that_are_none_are_refused);
    tcase_add_test(tcase, test_grid_plan_unwinds_from_every_allocation);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* The handshake at grid creation, over real processes and sockets: what differs is named, with both ranks, on every rank (S7). */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/kvgrid.h>

#include "tests/support/fork_bootstrap.h"

static int create(ForkRank *rank, const KvgPolicy *policy, uint32_t tp, uint32_t pp, KvgGrid **grid)
{
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;

    options.tp = tp;
    options.pp = pp;
    options.policy = policy;
    return (int)kvg_grid_create(&rank->bootstrap, &options, grid);
}

static int equal_ranks(ForkRank *rank)
{
    KvgGrid *grid = NULL;

    FORK_CHECK(create(rank, NULL, 1, 2, &grid) == KVG_OK);
    FORK_CHECK(kvg_grid_ranks(grid) == 2 && (int)kvg_grid_stage(grid) == rank->bootstrap.rank);
    kvg_grid_destroy(grid);
    return 0;
}

static int one_with_another_policy(ForkRank *rank)
{
    KvgPolicy policy;
    KvgGrid  *grid = NULL;

    kvg_policy_default(&policy);
    if (rank->bootstrap.rank == 2) policy.format_v = KVG_BF16;
    FORK_CHECK(create(rank, &policy, 3, 1, &grid) == KVG_ELAYOUT);
    FORK_CHECK(grid == NULL);
    FORK_CHECK(strstr(kvg_last_error(), "rank 0") != NULL && strstr(kvg_last_error(), "rank 2") != NULL);
    FORK_CHECK(strstr(kvg_last_error(), "bf16") != NULL || strstr(kvg_last_error(), "KVGRID_KV_V") != NULL);
    return 0;
}

static int one_that_turned_the_grid(ForkRank *rank)
{
    KvgGrid *grid = NULL;

    FORK_CHECK(create(rank, NULL, rank->bootstrap.rank == 1 ? 1 : 2, rank->bootstrap.rank == 1 ? 2 : 1, &grid) == KVG_ELAYOUT);
    FORK_CHECK(strstr(kvg_last_error(), "tp") != NULL);
    return 0;
}

static int a_grid_of_other_size(ForkRank *rank)
{
    KvgGrid *grid = NULL;

    FORK_CHECK(create(rank, NULL, 2, 2, &grid) == KVG_EINVAL);
    FORK_CHECK(grid == NULL);
    return 0;
}

START_TEST(test_equal_ranks_make_a_grid)
{
    ck_assert_int_eq(fork_ranks(2, 20000, equal_ranks, NULL, NULL), 0);
}
END_TEST

START_TEST(test_a_policy_that_differs_is_named_with_both_ranks_on_every_rank)
{
    ck_assert_int_eq(fork_ranks(3, 20000, one_with_another_policy, NULL, NULL), 0);
}
END_TEST

START_TEST(test_tp_and_pp_that_differ_are_named)
{
    ck_assert_int_eq(fork_ranks(2, 20000, one_that_turned_the_grid, NULL, NULL), 0);
}
END_TEST

START_TEST(test_tp_times_pp_must_be_the_ranks)
{
    ck_assert_int_eq(fork_ranks(2, 20000, a_grid_of_other_size, NULL, NULL), 0);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("handshake");
    TCase   *tcase = tcase_create("handshake");
    SRunner *runner = srunner_create(suite);

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_equal_ranks_make_a_grid);
    tcase_add_test(tcase, test_a_policy_that_differs_is_named_with_both_ranks_on_every_rank);
    tcase_add_test(tcase, test_tp_and_pp_that_differ_are_named);
    tcase_add_test(tcase, test_tp_times_pp_must_be_the_ranks);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

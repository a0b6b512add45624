/* Tests of replay's launch checks (B96) and of agreement on a grid of one. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "launch/command/replay_mpi.h"
#include "runtime/base/error.h"

START_TEST(test_four_tasks_and_one_rank_are_refused_naming_both_and_the_cure)
{
    ck_assert_int_eq(kvg_replay_check_slurm("4", 0, 1), KVG_EINVAL);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "4"));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "1 rank"));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "--mpi=pmix"));
}
END_TEST

START_TEST(test_equal_counts_and_unset_ones_pass)
{
    ck_assert_int_eq(kvg_replay_check_slurm(NULL, 0, 1), KVG_OK);
    ck_assert_int_eq(kvg_replay_check_slurm("", 0, 4), KVG_OK);
    ck_assert_int_eq(kvg_replay_check_slurm("1", 0, 1), KVG_OK);
    ck_assert_int_eq(kvg_replay_check_slurm("4", 0, 4), KVG_OK);
    ck_assert_int_eq(kvg_replay_check_slurm("3", 0, 4), KVG_EINVAL);
    ck_assert_int_eq(kvg_replay_check_slurm("5", 0, 4), KVG_EINVAL);
    ck_assert_int_eq(kvg_replay_check_slurm("4", 1, 1), KVG_OK); /* mpirun inside a job counts for itself */
    ck_assert_int_eq(kvg_replay_check_slurm("four", 0, 1), KVG_EINVAL);
}
END_TEST

START_TEST(test_a_process_without_a_launcher_is_a_grid_of_one_that_agrees_with_itself)
{
    ReplayLaunch launch;
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMIX_RANK");
    unsetenv("SLURM_NTASKS");
    ck_assert_int_eq(kvg_replay_launch_start(&launch), KVG_OK);
    ck_assert_int_eq(launch.bootstrap.ranks, 1);
    ck_assert_int_eq(launch.with_mpi, 0);
    ck_assert_int_eq(kvg_replay_agree(&launch, KVG_OK), KVG_OK);
    ck_assert_int_eq(kvg_replay_agree(&launch, kvg_fail(KVG_EGEOM, "a sentence that this test provokes")), KVG_EGEOM);
    kvg_replay_launch_stop(&launch);
}
END_TEST

/* A bootstrap of three ranks seen from rank 0: the others send copies of what it sends, rank 2 with one byte changed. */
enum { RANKS = 3, ALTERED_RANK = 2 };
static KvgStatus allgather_altered(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    const size_t *altered_byte = user;
    (void)timeout_ms;
    for (size_t rank = 0; rank < RANKS; rank++) {
        memcpy((uint8_t *)all + rank * bytes, mine, bytes);
    }
    if (*altered_byte < bytes) {
        ((uint8_t *)all)[ALTERED_RANK * bytes + *altered_byte] ^= KVG_EGEOM;
    }
    return KVG_OK;
}

static ReplayLaunch three_ranks(size_t *altered_byte)
{
    ReplayLaunch launch = { .bootstrap = KVG_BOOTSTRAP_INIT, .local_ranks = RANKS, .timeout_ms = 1000 };
    launch.bootstrap.ranks = RANKS;
    launch.bootstrap.user = altered_byte;
    launch.bootstrap.allgather = allgather_altered;
    return launch;
}

START_TEST(test_an_option_that_differs_on_one_rank_is_named_with_both_ranks)
{
    const ReplayItem items[] = { { "--seed", 7 }, { "--chunk", 512 } };
    size_t           altered = SIZE_MAX;
    ReplayLaunch     launch = three_ranks(&altered);
    ck_assert_int_eq(kvg_replay_compare(&launch, items, 2), KVG_OK);
    altered = 0;
    ck_assert_int_eq(kvg_replay_compare(&launch, items, 2), KVG_EINVAL);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "rank 0 and rank 2 differ in --seed"));
    altered = 15; /* the last byte of the second value */
    ck_assert_int_eq(kvg_replay_compare(&launch, items, 2), KVG_EINVAL);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "--chunk"));
}
END_TEST

START_TEST(test_one_rank_that_fails_is_everybodys_failure)
{
    size_t       altered = SIZE_MAX;
    ReplayLaunch launch = three_ranks(&altered);
    ck_assert_int_eq(kvg_replay_agree(&launch, KVG_OK), KVG_OK);
    altered = 0; /* rank 2's status */
    ck_assert_int_eq(kvg_replay_agree(&launch, KVG_OK), KVG_EGEOM);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replay_mpi");
    TCase *cases = tcase_create("launch");
    tcase_add_test(cases, test_four_tasks_and_one_rank_are_refused_naming_both_and_the_cure);
    tcase_add_test(cases, test_equal_counts_and_unset_ones_pass);
    tcase_add_test(cases, test_a_process_without_a_launcher_is_a_grid_of_one_that_agrees_with_itself);
    tcase_add_test(cases, test_an_option_that_differs_on_one_rank_is_named_with_both_ranks);
    tcase_add_test(cases, test_one_rank_that_fails_is_everybodys_failure);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

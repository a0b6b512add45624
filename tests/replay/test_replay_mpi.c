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

int main(void)
{
    Suite *suite = suite_create("replay_mpi");
    TCase *cases = tcase_create("launch");
    tcase_add_test(cases, test_four_tasks_and_one_rank_are_refused_naming_both_and_the_cure);
    tcase_add_test(cases, test_equal_counts_and_unset_ones_pass);
    tcase_add_test(cases, test_a_process_without_a_launcher_is_a_grid_of_one_that_agrees_with_itself);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

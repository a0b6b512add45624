/* Tests of what the command makes of SLURM's variables (B96). */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "launch/command/slurm.h"
#include "runtime/base/error.h"

static const char *const variables[] = { "SLURM_NTASKS", "SLURM_STEP_ID",   "SLURM_JOB_ID", "OMPI_COMM_WORLD_SIZE",
                                         "PMIX_RANK",    "MPI_LOCALRANKID", "PMI_RANK" };

static void setup(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        unsetenv(variables[i]);
    }
}

static KvgStatus check_tasks(const char *tasks, int ranks)
{
    const SlurmView view = { .tasks = tasks };
    return kvg_slurm_check(&view, ranks);
}

static void check_says(const char *words)
{
    ck_assert_msg(strstr(kvg_last_error(), words) != NULL, "\"%s\" is not in: %s", words, kvg_last_error());
}

START_TEST(test_four_tasks_and_one_rank_are_refused_naming_both_and_the_cure)
{
    ck_assert_int_eq(check_tasks("4", 1), KVG_EINVAL);
    check_says("SLURM_NTASKS is 4 but MPI counts 1 rank");
    check_says("--mpi=pmix");
    check_says("unset SLURM_NTASKS"); /* in a job's shell one rank may be what is meant */
}
END_TEST

START_TEST(test_four_singletons_of_a_step_are_told_what_they_are)
{
    SlurmView view = { .tasks = "4", .in_step = 1 };
    ck_assert_int_eq(kvg_slurm_check(&view, 1), KVG_EINVAL);
    check_says("SLURM_NTASKS is 4 but MPI counts 1 rank");
    check_says("without a PMI, so each is rank 0 of 1");
    check_says("srun --mpi=pmix -n 4");
    view.other_pmi = 1;
    ck_assert_int_eq(kvg_slurm_check(&view, 1), KVG_EINVAL);
    check_says("--mpi=pmi2");
    check_says("srun --mpi=pmix -n 4");
    view.tasks = "1";
    ck_assert_int_eq(kvg_slurm_check(&view, 1), KVG_OK);
}
END_TEST

START_TEST(test_equal_counts_and_unset_ones_pass)
{
    const SlurmView by_mpirun = { .tasks = "4", .in_step = 1, .by_mpirun = 1 };
    ck_assert_int_eq(check_tasks(NULL, 1), KVG_OK);
    ck_assert_int_eq(check_tasks("", 4), KVG_OK);
    ck_assert_int_eq(check_tasks("1", 1), KVG_OK);
    ck_assert_int_eq(check_tasks("4", 4), KVG_OK);
    ck_assert_int_eq(check_tasks("3", 4), KVG_EINVAL);
    ck_assert_int_eq(check_tasks("5", 4), KVG_EINVAL);
    ck_assert_int_eq(kvg_slurm_check(&by_mpirun, 1), KVG_OK); /* mpirun inside a job counts for itself */
    ck_assert_int_eq(check_tasks("four", 1), KVG_EINVAL);
    ck_assert_int_eq(check_tasks("0", 1), KVG_EINVAL);
}
END_TEST

START_TEST(test_one_task_may_fork_ranks_and_several_may_not)
{
    SlurmView view = { .tasks = "4" };
    ck_assert_int_eq(kvg_slurm_check_forking(&view), KVG_OK); /* the job's shell: one process */
    view.in_step = 1;
    ck_assert_int_eq(kvg_slurm_check_forking(&view), KVG_EINVAL);
    check_says("srun started 4 tasks");
    view.tasks = "1";
    ck_assert_int_eq(kvg_slurm_check_forking(&view), KVG_OK);
    view.tasks = NULL;
    ck_assert_int_eq(kvg_slurm_check_forking(&view), KVG_OK);
}
END_TEST

START_TEST(test_the_view_is_what_the_variables_say)
{
    SlurmView view = kvg_slurm_view();
    ck_assert(view.tasks == NULL && !view.in_step && !view.other_pmi && !view.by_mpirun);
    ck_assert(!kvg_slurm_is_launched());
    setenv("SLURM_NTASKS", "4", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("PMI_RANK", "2", 1);
    view = kvg_slurm_view();
    ck_assert_str_eq(view.tasks, "4");
    ck_assert(view.in_step && view.other_pmi && !view.by_mpirun);
    ck_assert(!kvg_slurm_is_launched()); /* pmi2 is none that MPI finds */
    setenv("PMIX_RANK", "2", 1);
    view = kvg_slurm_view();
    ck_assert(!view.other_pmi && kvg_slurm_is_launched());
    unsetenv("PMIX_RANK");
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    ck_assert(!kvg_slurm_view().by_mpirun && kvg_slurm_is_launched()); /* outside any job */
    setenv("SLURM_JOB_ID", "7", 1);
    ck_assert(kvg_slurm_view().by_mpirun);
    setenv("SLURM_STEP_ID", "", 1);
    ck_assert(!kvg_slurm_view().in_step);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("slurm");
    TCase *cases = tcase_create("variables");
    tcase_add_checked_fixture(cases, setup, NULL);
    tcase_add_test(cases, test_four_tasks_and_one_rank_are_refused_naming_both_and_the_cure);
    tcase_add_test(cases, test_four_singletons_of_a_step_are_told_what_they_are);
    tcase_add_test(cases, test_equal_counts_and_unset_ones_pass);
    tcase_add_test(cases, test_one_task_may_fork_ranks_and_several_may_not);
    tcase_add_test(cases, test_the_view_is_what_the_variables_say);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

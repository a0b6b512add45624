#include "launch/rank/local_rank.h"

#include "tests/launch/suite.h"

static LocalRank local;

static KvgStatus ask(LocalRankSources sources)
{
    local = (LocalRank){ -7, -7, "untouched" };
    return kvg_local_rank(&sources, &local);
}

static void check(int rank, int ranks, const char *source)
{
    ck_assert_int_eq(local.rank, rank);
    ck_assert_int_eq(local.ranks, ranks);
    ck_assert_str_eq(local.source, source);
}

START_TEST(test_local_rank_is_what_each_launcher_says)
{
    ck_assert_int_eq(ask((LocalRankSources){ 0 }), KVG_OK);
    check(0, 0, "alone");
    ck_assert_int_eq(ask((LocalRankSources){ .ompi_rank = "3", .ompi_ranks = "4" }), KVG_OK);
    check(3, 4, "OMPI_COMM_WORLD_LOCAL_RANK");
    ck_assert_int_eq(ask((LocalRankSources){ .ompi_rank = "3" }), KVG_OK);
    check(3, 0, "OMPI_COMM_WORLD_LOCAL_RANK");
    ck_assert_int_eq(ask((LocalRankSources){ .hydra_rank = "1", .hydra_ranks = "2" }), KVG_OK);
    check(1, 2, "MPI_LOCALRANKID");
    ck_assert_int_eq(ask((LocalRankSources){ .slurm_rank = "2" }), KVG_OK);
    check(2, 0, "SLURM_LOCALID");
    ck_assert_int_eq(ask((LocalRankSources){ .ompi_rank = "", .slurm_rank = "" }), KVG_OK);
    check(0, 0, "alone");
}
END_TEST

/* Inside a job mpirun starts its daemons by srun, and every rank of a machine inherits its daemon's SLURM_LOCALID. */
START_TEST(test_local_rank_under_mpirun_inside_a_job_is_not_its_daemons)
{
    ck_assert_int_eq(ask((LocalRankSources){ .ompi_rank = "3", .ompi_ranks = "4", .slurm_rank = "0", .found_rank = 3, .found_ranks = 4 }), KVG_OK);
    check(3, 4, "OMPI_COMM_WORLD_LOCAL_RANK");
}
END_TEST

START_TEST(test_local_rank_by_the_ranks_themselves_agrees_or_is_refused_by_name)
{
    ck_assert_int_eq(ask((LocalRankSources){ .found_rank = 1, .found_ranks = 2 }), KVG_OK);
    check(1, 2, "the machines' names");
    ck_assert_int_eq(ask((LocalRankSources){ .slurm_rank = "1", .found_rank = 1, .found_ranks = 2 }), KVG_OK);
    check(1, 2, "SLURM_LOCALID");
    ck_assert_int_eq(ask((LocalRankSources){ .slurm_rank = "2", .found_rank = 0, .found_ranks = 1 }), KVG_EINVAL); /* copies of rank 0 of 1 */
    check(-7, -7, "untouched");
    SAYS("SLURM_LOCALID says local rank 2, but");
    SAYS("local rank 0 of 1");
    SAYS("srun --mpi=pmix");
    ck_assert_int_eq(ask((LocalRankSources){ .ompi_rank = "0", .ompi_ranks = "4", .found_rank = 1, .found_ranks = 4 }), KVG_EINVAL);
    SAYS("OMPI_COMM_WORLD_LOCAL_RANK says local rank 0 of 4, but");
    ck_assert_int_eq(ask((LocalRankSources){ .ompi_rank = "1", .ompi_ranks = "4", .found_rank = 1, .found_ranks = 3 }), KVG_EINVAL);
    SAYS("local rank 1 of 3");
}
END_TEST

START_TEST(test_local_rank_values_that_are_none_are_refused_by_name)
{
    static const char *const bad[] = { "-1", "x", "1x", "1 ", "99999999999999999999", "2000000" };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(ask((LocalRankSources){ .slurm_rank = bad[i] }), KVG_EINVAL);
        SAYS("SLURM_LOCALID is \"");
        ck_assert_int_eq(ask((LocalRankSources){ .ompi_rank = "0", .ompi_ranks = bad[i] }), KVG_EINVAL);
        SAYS("OMPI_COMM_WORLD_LOCAL_SIZE is \"");
    }
    ck_assert_int_eq(ask((LocalRankSources){ .ompi_rank = "4", .ompi_ranks = "4" }), KVG_EINVAL);
    SAYS("OMPI_COMM_WORLD_LOCAL_RANK is 4 and OMPI_COMM_WORLD_LOCAL_SIZE is 4");
    ck_assert_int_eq(ask((LocalRankSources){ .hydra_rank = "0", .hydra_ranks = "0" }), KVG_EINVAL);
    SAYS("MPI_LOCALNRANKS");
}
END_TEST

START_TEST(test_local_rank_reads_the_environment)
{
    ck_assert_int_eq(setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1), 0);
    ck_assert_int_eq(setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1), 0);
    ck_assert_int_eq(setenv("SLURM_LOCALID", "7", 1), 0);
    ck_assert_int_eq(ask(kvg_local_rank_environment()), KVG_OK);
    check(1, 2, "OMPI_COMM_WORLD_LOCAL_RANK");
    ck_assert_int_eq(unsetenv("OMPI_COMM_WORLD_LOCAL_RANK"), 0);
    ck_assert_int_eq(ask(kvg_local_rank_environment()), KVG_OK);
    check(7, 0, "SLURM_LOCALID");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { test_local_rank_is_what_each_launcher_says, test_local_rank_under_mpirun_inside_a_job_is_not_its_daemons,
                                   test_local_rank_by_the_ranks_themselves_agrees_or_is_refused_by_name,
                                   test_local_rank_values_that_are_none_are_refused_by_name, test_local_rank_reads_the_environment };

    return run_suite("local_rank", tests, sizeof tests / sizeof *tests);
}

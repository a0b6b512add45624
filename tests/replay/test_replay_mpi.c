/* Tests of replay's launch and of agreement on a grid of one. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launch/command/replay_mpi.h"
#include "runtime/base/error.h"

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

static KvgStatus allgather_copied(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    (void)user;
    (void)timeout_ms;
    memcpy(all, mine, bytes);
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

/* Runs `end` in a child and reads what it says; seconds it took. The child's exit status is 1. */
static double ends_by_itself(void (*end)(ReplayLaunch *launch), ReplayLaunch *launch, char *said, size_t said_size)
{
    struct timespec begin, now;
    int             ends[2], exit_status = 0;
    size_t          count = 0;
    ssize_t         more;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        end(launch);
        _exit(99);
    }
    close(ends[1]);
    while ((more = read(ends[0], said + count, said_size - 1 - count)) > 0) {
        count += (size_t)more;
    }
    said[count] = '\0';
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &exit_status, 0), child);
    clock_gettime(CLOCK_MONOTONIC, &now);
    ck_assert(WIFEXITED(exit_status));
    ck_assert_int_eq(WEXITSTATUS(exit_status), 1);
    return (double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) / 1e9;
}

static void end_in_doubt(ReplayLaunch *launch)
{
    kvg_replay_agree(launch, kvg_fail(KVG_EINDOUBT, "rank 0 is silent"));
}

START_TEST(test_a_rank_speaks_when_the_lower_one_that_should_hangs)
{
    size_t       altered = SIZE_MAX;
    uint8_t      lost[RANKS] = { 0 };
    char         said[256];
    ReplayLaunch launch = three_ranks(&altered);
    launch.bootstrap.rank = 1;
    launch.lost = lost;
    ck_assert(ends_by_itself(end_in_doubt, &launch, said, sizeof said) >= 1.9); /* rank 0 would have ended the job by then */
    ck_assert_str_eq(said, "kvgrid replay: rank 1: rank 0 is silent\n");
    lost[0] = 1; /* known to be gone: nobody to wait for */
    ck_assert(ends_by_itself(end_in_doubt, &launch, said, sizeof said) < 1.9);
    ck_assert_str_eq(said, "kvgrid replay: rank 1: rank 0 is silent\n");
}
END_TEST

static void agree_alone(ReplayLaunch *launch)
{
    _exit(kvg_replay_agree(launch, kvg_fail(KVG_ENOTSUP, "there is no MPI here")) == KVG_ENOTSUP);
}

START_TEST(test_of_copies_that_do_not_know_of_each_other_the_first_speaks)
{
    static const char *const counters[] = { "SLURM_PROCID", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK" };
    size_t                   altered = SIZE_MAX;
    char                     said[256];
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        unsetenv(counters[i]);
    }
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        ReplayLaunch launch = three_ranks(&altered);
        launch.bootstrap.ranks = 1;
        launch.bootstrap.allgather = allgather_copied;
        setenv(counters[i], "0", 1);
        (void)ends_by_itself(agree_alone, &launch, said, sizeof said);
        ck_assert_str_eq(said, "kvgrid replay: there is no MPI here\n");
        setenv(counters[i], "1", 1);
        (void)ends_by_itself(agree_alone, &launch, said, sizeof said);
        ck_assert_msg(said[0] == '\0', "%s 1 speaks, too", counters[i]);
        unsetenv(counters[i]);
    }
}
END_TEST

static void hang_on_the_way_out(ReplayLaunch *launch)
{
    kvg_replay_launch_ending(launch);
    sleep(20);
}

START_TEST(test_an_end_that_hangs_is_cut_short)
{
    size_t       altered = SIZE_MAX;
    char         said[256];
    ReplayLaunch launch = three_ranks(&altered);
    launch.with_mpi = 1;
    ck_assert(ends_by_itself(hang_on_the_way_out, &launch, said, sizeof said) < 15);
    ck_assert_ptr_nonnull(strstr(said, "a rank hangs on its way out"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replay_mpi");
    TCase *cases = tcase_create("launch");
    tcase_add_test(cases, test_a_process_without_a_launcher_is_a_grid_of_one_that_agrees_with_itself);
    tcase_add_test(cases, test_an_option_that_differs_on_one_rank_is_named_with_both_ranks);
    tcase_add_test(cases, test_one_rank_that_fails_is_everybodys_failure);
    tcase_add_test(cases, test_a_rank_speaks_when_the_lower_one_that_should_hangs);
    tcase_add_test(cases, test_of_copies_that_do_not_know_of_each_other_the_first_speaks);
    tcase_add_test(cases, test_an_end_that_hangs_is_cut_short);
    tcase_set_timeout(cases, 60);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

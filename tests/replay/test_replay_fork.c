/* Tests of replay's own launcher with ranks whose run is a few lines: who is stopped, killed or leaves before there is a step. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/command/command.h"
#include "launch/command/replay_fork.h"
#include "runtime/comm/clock.h"

enum { RANKS = 3, CULPRIT = 1, TIMEOUT_MS = 1000 };

/* The command's, which prints on behalf of main.c. */
int kvg_command_refuse(const char *part, KvgStatus status)
{
    fprintf(stderr, "kvgrid %s: %s\n", part, kvg_last_error());
    return kvg_command_exit_status(status);
}

int kvg_command_finish(const char *part, int exit_status)
{
    (void)part;
    return exit_status;
}

int kvg_command_exit_status(KvgStatus status)
{
    return status == KVG_OK ? KVG_EXIT_DONE : KVG_EXIT_USE;
}

static int gather(const ReplayOptions *options, ReplayLaunch *launch)
{
    (void)options;
    const int status = kvg_command_exit_status(kvg_replay_agree(launch, KVG_OK));
    kvg_replay_launch_stop(launch);
    return status;
}

static int stop_before_all_come(const ReplayOptions *options, ReplayLaunch *launch)
{
    if (launch->bootstrap.rank == CULPRIT) {
        raise(SIGSTOP);
    }
    return gather(options, launch);
}

static int stop_after_all_came(const ReplayOptions *options, ReplayLaunch *launch)
{
    const int rank = launch->bootstrap.rank, status = gather(options, launch);
    if (rank == CULPRIT) {
        raise(SIGSTOP);
    }
    return status;
}

/* Woken by a child of its own when the others have given it up. */
static int stop_and_wake_too_late(const ReplayOptions *options, ReplayLaunch *launch)
{
    if (launch->bootstrap.rank == CULPRIT) {
        const pid_t me = getpid();
        if (fork() == 0) {
            usleep(1000 * (TIMEOUT_MS + 300));
            kill(me, SIGCONT);
            _exit(0);
        }
        raise(SIGSTOP);
    }
    return gather(options, launch);
}

static int die_all(const ReplayOptions *options, ReplayLaunch *launch)
{
    (void)options;
    (void)launch;
    raise(SIGKILL);
    return 0;
}

static int leave_without_a_word(const ReplayOptions *options, ReplayLaunch *launch)
{
    if (launch->bootstrap.rank == CULPRIT) {
        _exit(0);
    }
    return gather(options, launch);
}

static int die(const ReplayOptions *options, ReplayLaunch *launch)
{
    if (launch->bootstrap.rank == CULPRIT) {
        raise(SIGKILL);
    }
    return gather(options, launch);
}

/* Runs it with what goes to stderr in `said`; milliseconds that it took. */
static uint64_t run(ReplayRankBody body, int *status, char *said, size_t bytes)
{
    ReplayOptions options = { .ranks = RANKS };
    FILE         *kept = tmpfile();
    const int     before = dup(STDERR_FILENO);
    ck_assert_ptr_nonnull(kept);
    fflush(NULL);
    dup2(fileno(kept), STDERR_FILENO);
    const uint64_t from_ns = kvg_clock_ns();
    *status = kvg_replay_fork_run(&options, body);
    const uint64_t took_ms = (kvg_clock_ns() - from_ns) / 1000000;
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(kept);
    said[fread(said, 1, bytes - 1, kept)] = '\0';
    fclose(kept);
    return took_ms;
}

static void check_one_sentence(const char *said, const char *what)
{
    const char *line_end = strchr(said, '\n');
    ck_assert_msg(strstr(said, "kvgrid replay: rank 1 (host ") == said && strstr(said, what) != NULL && line_end != NULL && line_end[1] == '\0',
                  "\"%s\" is not one sentence with \"%s\"", said, what);
}

/* Runs it; it ends badly, and all that is said is one sentence with `what`. Milliseconds. */
static uint64_t run_to_one_sentence(ReplayRankBody body, const char *what)
{
    char           said[1024];
    int            status = -1;
    const uint64_t took_ms = run(body, &status, said, sizeof said);
    ck_assert_int_eq(status, KVG_EXIT_FAILED);
    check_one_sentence(said, what);
    return took_ms;
}

START_TEST(test_a_run_without_a_fault_is_silent)
{
    char said[1024];
    int  status = -1;
    run(gather, &status, said, sizeof said);
    ck_assert_int_eq(status, KVG_EXIT_DONE);
    ck_assert_str_eq(said, "");
}
END_TEST

START_TEST(test_a_rank_that_is_stopped_before_the_first_step_is_ended_soon_after_the_deadline)
{
    const uint64_t took_ms = run_to_one_sentence(stop_before_all_come, "fell silent (it was stopped); no step was under way, and the run is given up");
    ck_assert_msg(took_ms >= TIMEOUT_MS && took_ms < 3 * TIMEOUT_MS, "%llu ms", (unsigned long long)took_ms); /* the deadline and a second */
}
END_TEST

START_TEST(test_a_rank_that_is_stopped_when_all_is_done_has_the_deadline_to_wake)
{
    const uint64_t took_ms = run_to_one_sentence(stop_after_all_came, "fell silent (it was stopped); the run was over for the others, and all that is printed holds");
    ck_assert_msg(took_ms >= 2 * TIMEOUT_MS && took_ms < 4 * TIMEOUT_MS - 500, "%llu ms", (unsigned long long)took_ms);
}
END_TEST

START_TEST(test_a_rank_that_wakes_too_late_is_not_quoted_on_the_others)
{
    run_to_one_sentence(stop_and_wake_too_late, "fell silent (it was stopped); no step was under way, and the run is given up");
}
END_TEST

START_TEST(test_where_no_rank_is_left_none_was_done)
{
    char said[1024];
    int  status = -1;
    run(die_all, &status, said, sizeof said);
    ck_assert_int_eq(status, KVG_EXIT_FAILED);
    ck_assert_ptr_nonnull(strstr(said, "was ended by signal 9 (SIGKILL); no rank is left, and the run is given up\n"));
}
END_TEST

START_TEST(test_a_rank_that_goes_before_the_first_step_is_named_at_once)
{
    ck_assert_uint_lt(run_to_one_sentence(die, "was ended by signal 9 (SIGKILL)"), TIMEOUT_MS);
    ck_assert_uint_lt(run_to_one_sentence(leave_without_a_word, "left with status 0 and without a word"), TIMEOUT_MS);
}
END_TEST

int main(void)
{
    char timeout[16];
    snprintf(timeout, sizeof timeout, "%d", TIMEOUT_MS);
    setenv("KVGRID_TIMEOUT_MS", timeout, 1);
    Suite *suite = suite_create("replay_fork");
    TCase *faults = tcase_create("faults");
    tcase_set_timeout(faults, 60);
    tcase_add_test(faults, test_a_run_without_a_fault_is_silent);
    tcase_add_test(faults, test_a_rank_that_is_stopped_before_the_first_step_is_ended_soon_after_the_deadline);
    tcase_add_test(faults, test_a_rank_that_is_stopped_when_all_is_done_has_the_deadline_to_wake);
    tcase_add_test(faults, test_a_rank_that_wakes_too_late_is_not_quoted_on_the_others);
    tcase_add_test(faults, test_where_no_rank_is_left_none_was_done);
    tcase_add_test(faults, test_a_rank_that_goes_before_the_first_step_is_named_at_once);
    suite_add_tcase(suite, faults);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && ran > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

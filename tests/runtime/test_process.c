/* Processes of one host: who they are, whether they live, and what is said where this process has no room to look. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/comm/process.h"
#include "tests/support/open_fds.h"

/* A child that sleeps, as it tells of itself. */
static KvProcess sleeping_child(void)
{
    KvProcess child;
    int       ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    if (fork() == 0) {
        _exit(kvg_process_self(&child) == KVG_OK && write(ends[1], &child, sizeof child) == (ssize_t)sizeof child ? pause() : 1);
    }
    close(ends[1]);
    ck_assert_int_eq(read(ends[0], &child, sizeof child), (ssize_t)sizeof child);
    close(ends[0]);
    return child;
}

static void end_child(const KvProcess *child)
{
    ck_assert_int_eq(kill((pid_t)child->who.pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid((pid_t)child->who.pid, NULL, 0), (pid_t)child->who.pid);
}

/* The lowest that is free: all below are open. */
static int next_fd(void)
{
    const int fd = dup(0);

    ck_assert_int_ge(fd, 0);
    close(fd);
    return fd;
}

static void set_limit(int files)
{
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)files;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

START_TEST(test_a_process_is_watched_until_it_ends)
{
    KvProcess me, child = sleeping_child(), other;
    int       fd = -1;

    ck_assert_int_eq(kvg_process_self(&me), KVG_OK);
    ck_assert_int_eq(kvg_process_near(&me, 0, &child, 1), KVG_OK);
    ck_assert_int_eq(kvg_process_open(&child, 1, &fd), KVG_OK);
    ck_assert_int_eq(kvg_process_ended(fd), 0);
    other = child; /* the pid is another process's by now */
    other.began++;
    ck_assert_int_eq(kvg_process_open(&other, 1, &fd), KVG_EPEER);
    end_child(&child);
    ck_assert_int_eq(kvg_process_ended(fd), 1);
    close(fd);
    ck_assert_int_eq(kvg_process_open(&child, 1, &fd), KVG_EPEER);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "rank 1 (host"));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "ended during set-up"));
}
END_TEST

START_TEST(test_no_room_to_look_is_not_taken_for_a_death)
{
    KvProcess child = sleeping_child(), me;
    int       fd = -1;
    const int next = next_fd();

    for (int room = 0; room < 2; room++) { /* for neither, for the pidfd alone */
        set_limit(next + room);
        ck_assert_int_eq(kvg_process_open(&child, 3, &fd), KVG_EIO);
        ck_assert_int_eq(fd, -1);
        ck_assert_ptr_nonnull(strstr(kvg_last_error(), "rank 3 (host"));
        ck_assert_ptr_nonnull(strstr(kvg_last_error(), "cannot be watched: Too many open files; raise the limit of open files"));
    }
    set_limit(next);
    ck_assert_int_eq(kvg_process_self(&me), KVG_EIO); /* else it would be of no boot, and on another host than all */
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "raise the limit of open files"));
    set_limit(next + 8);
    const int before = open_fds();

    ck_assert_int_eq(kvg_process_open(&child, 3, &fd), KVG_OK);
    ck_assert_int_eq(open_fds(), before + 1);
    close(fd);
    end_child(&child);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("process");
    TCase   *tcase = tcase_create("process");
    SRunner *runner = srunner_create(suite);

    tcase_add_test(tcase, test_a_process_is_watched_until_it_ends);
    tcase_add_test(tcase, test_no_room_to_look_is_not_taken_for_a_death);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);

    srunner_free(runner);
    return failed == 0 && ran > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

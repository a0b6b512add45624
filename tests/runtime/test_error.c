/* Errors: the last one is the thread's own, and a bug of the library is never silent: what its last sentence says, and who gets it. */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvgrid/log.h>

#include "runtime/base/error.h"

#define SENTENCE_BYTES 4096

/* ---- a process that fails an assertion */

static int taken_by = -1; /* the descriptor that the callback writes to */

static void take(void *user, KvgLogLevel level, const char *sentence)
{
    const char *mark = user;

    ck_assert_int_eq(level, KVG_LOG_ERROR);
    if (write(taken_by, mark, strlen(mark)) < 0 || write(taken_by, sentence, strlen(sentence)) < 0) {
        _exit(3);
    }
}

static void fails(int holds)
{
    KVG_ASSERT(holds == 1 && "one");
}

static void ends_without_a_core(void)
{
    struct rlimit none = { 0, 0 };

    setrlimit(RLIMIT_CORE, &none);
    signal(SIGABRT, SIG_DFL);
}

static void read_all(int fd, char text[SENTENCE_BYTES])
{
    size_t  used = 0;
    ssize_t got;

    while ((got = read(fd, text + used, SENTENCE_BYTES - 1 - used)) > 0) {
        used += (size_t)got;
    }
    text[used] = '\0';
}

/* What a process has written to stdout and stderr, and to its callback if it has one; how it ended. */
static int run_to_its_end(int holds, int with_callback, char printed[SENTENCE_BYTES], char logged[SENTENCE_BYTES])
{
    int print_pipe[2], log_pipe[2], ending = 0;

    ck_assert(pipe(print_pipe) == 0 && pipe(log_pipe) == 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        ends_without_a_core();
        dup2(print_pipe[1], STDOUT_FILENO);
        dup2(print_pipe[1], STDERR_FILENO);
        close(print_pipe[1]);
        taken_by = log_pipe[1];
        if (with_callback) {
            kvg_log_set(take, "taken: ");
        }
        fails(holds);
        _exit(0);
    }
    close(print_pipe[1]);
    close(log_pipe[1]);
    read_all(print_pipe[0], printed);
    read_all(log_pipe[0], logged);
    close(print_pipe[0]);
    close(log_pipe[0]);
    ck_assert_int_eq(waitpid(child, &ending, 0), child);
    return ending;
}

static void check_sentence(const char *sentence)
{
    ck_assert_ptr_nonnull(strstr(sentence, "test_error.c:"));
    ck_assert_ptr_nonnull(strstr(sentence, "KVG_ASSERT(holds == 1 && \"one\") does not hold"));
    ck_assert_ptr_nonnull(strstr(sentence, "a bug of kvgrid " KVG_VERSION));
    ck_assert_ptr_nonnull(strstr(sentence, "report"));
}

START_TEST(test_a_failed_assertion_says_one_line_on_stderr_and_aborts)
{
    char printed[SENTENCE_BYTES], logged[SENTENCE_BYTES];
    int  ending = run_to_its_end(0, 0, printed, logged);

    ck_assert(WIFSIGNALED(ending) && WTERMSIG(ending) == SIGABRT);
    ck_assert_str_eq(logged, "");
    ck_assert_int_eq(strncmp(printed, "kvgrid: ", 8), 0);
    check_sentence(printed);
    ck_assert_ptr_eq(strchr(printed, '\n'), printed + strlen(printed) - 1);
}
END_TEST

START_TEST(test_a_log_callback_takes_the_sentence_and_stderr_stays_empty)
{
    char printed[SENTENCE_BYTES], logged[SENTENCE_BYTES];
    int  ending = run_to_its_end(0, 1, printed, logged);

    ck_assert(WIFSIGNALED(ending) && WTERMSIG(ending) == SIGABRT);
    ck_assert_str_eq(printed, "");
    ck_assert_int_eq(strncmp(logged, "taken: ", 7), 0);
    check_sentence(logged);
    ck_assert_ptr_null(strchr(logged, '\n'));
}
END_TEST

START_TEST(test_an_assertion_that_holds_says_nothing_and_goes_on)
{
    for (int with_callback = 0; with_callback < 2; with_callback++) {
        char printed[SENTENCE_BYTES], logged[SENTENCE_BYTES];
        int  ending = run_to_its_end(1, with_callback, printed, logged);

        ck_assert(WIFEXITED(ending) && WEXITSTATUS(ending) == 0);
        ck_assert_str_eq(printed, "");
        ck_assert_str_eq(logged, "");
    }
}
END_TEST

/* ---- sentences */

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    ck_assert_str_eq(kvg_last_error(), "");
    ck_assert_int_eq(kvg_fail(KVG_EIO, "another thread's"), KVG_EIO);
    return NULL;
}

START_TEST(test_the_last_error_is_the_threads_own_and_may_quote_the_one_before)
{
    pthread_t other;

    ck_assert_int_eq(kvg_fail(KVG_EINVAL, "rank %d", 3), KVG_EINVAL);
    ck_assert_int_eq(pthread_create(&other, NULL, fail_elsewhere, NULL), 0);
    ck_assert_int_eq(pthread_join(other, NULL), 0);
    ck_assert_str_eq(kvg_last_error(), "rank 3");
    ck_assert_int_eq(kvg_fail(KVG_EPEER, "lost: %s", kvg_last_error()), KVG_EPEER);
    ck_assert_str_eq(kvg_last_error(), "lost: rank 3");
}
END_TEST

START_TEST(test_what_is_logged_without_a_callback_goes_nowhere)
{
    char logged[SENTENCE_BYTES];
    int  log_pipe[2];

    ck_assert(pipe(log_pipe) == 0);
    taken_by = log_pipe[1];
    kvg_log(KVG_LOG_ERROR, "nobody %s", "hears this");
    ck_assert_int_eq(kvg_log_one(KVG_LOG_ERROR, "nor this"), 0);
    kvg_log_set(take, "");
    kvg_log(KVG_LOG_ERROR, "rank %d", 7);
    kvg_log_set(NULL, NULL);
    close(log_pipe[1]);
    read_all(log_pipe[0], logged);
    close(log_pipe[0]);
    ck_assert_str_eq(logged, "rank 7");
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("error");
    TCase   *tcase = tcase_create("error");
    SRunner *runner = srunner_create(suite);

    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, test_a_failed_assertion_says_one_line_on_stderr_and_aborts);
    tcase_add_test(tcase, test_a_log_callback_takes_the_sentence_and_stderr_stays_empty);
    tcase_add_test(tcase, test_an_assertion_that_holds_says_nothing_and_goes_on);
    tcase_add_test(tcase, test_the_last_error_is_the_threads_own_and_may_quote_the_one_before);
    tcase_add_test(tcase, test_what_is_logged_without_a_callback_goes_nowhere);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

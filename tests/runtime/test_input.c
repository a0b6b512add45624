/* Input files: what is opened, what is refused, and that a pipe is never waited for without end. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/base/input.h"
#include "runtime/comm/clock.h"

#define CURE "give another one"

static char pipe_path[64];

static void setup(void)
{
    snprintf(pipe_path, sizeof pipe_path, "/tmp/kvgrid_input.%ld", (long)getpid());
    ck_assert_int_eq(mkfifo(pipe_path, 0600), 0);
}

static void teardown(void) { unlink(pipe_path); }

START_TEST(test_a_pipe_that_nobody_writes_is_refused_after_its_wait)
{
    FILE          *file = NULL;
    const uint64_t from_ns = kvg_clock_ns();

    ck_assert_int_eq(kvg_input_open(pipe_path, CURE, 50, &file), KVG_EIO);
    const uint64_t took_ms = (kvg_clock_ns() - from_ns) / 1000000;

    ck_assert_ptr_null(file);
    ck_assert_msg(took_ms >= 49 && took_ms < 5000, "%llu ms", (unsigned long long)took_ms);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), pipe_path));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "nothing was written within 50 ms; " CURE));
}
END_TEST

/* A writer that comes late, pauses between its words and goes. */
static void write_slowly(void)
{
    FILE *pipe;

    usleep(50000);
    pipe = fopen(pipe_path, "w");
    for (int i = 0; pipe != NULL && i < 3; i++) {
        fputs("word ", pipe);
        fflush(pipe);
        usleep(20000);
    }
    _exit(0);
}

START_TEST(test_a_pipe_with_a_late_and_slow_writer_is_read_to_its_end)
{
    char  text[64] = "";
    FILE *file = NULL;

    if (fork() == 0) {
        write_slowly();
    }
    ck_assert_int_eq(kvg_input_open(pipe_path, CURE, 10000, &file), KVG_OK);
    ck_assert_uint_eq(fread(text, 1, sizeof text, file), 15);
    ck_assert_str_eq(text, "word word word ");
    ck_assert(feof(file) && !ferror(file));
    fclose(file);
}
END_TEST

START_TEST(test_files_open_at_once_and_what_is_not_there_is_named)
{
    FILE *file = NULL;

    ck_assert_int_eq(kvg_input_open("/dev/null", CURE, 0, &file), KVG_OK);
    ck_assert_int_eq(fgetc(file), EOF);
    fclose(file);
    file = NULL;
    ck_assert_int_eq(kvg_input_open("/nowhere/file", CURE, 0, &file), KVG_EIO);
    ck_assert_ptr_null(file);
    ck_assert_str_eq(kvg_last_error(), "/nowhere/file: cannot be opened: No such file or directory; " CURE);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("input");
    TCase   *tcase = tcase_create("input");
    SRunner *runner = srunner_create(suite);

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_a_pipe_that_nobody_writes_is_refused_after_its_wait);
    tcase_add_test(tcase, test_a_pipe_with_a_late_and_slow_writer_is_read_to_its_end);
    tcase_add_test(tcase, test_files_open_at_once_and_what_is_not_there_is_named);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);

    srunner_free(runner);
    return failed == 0 && ran > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

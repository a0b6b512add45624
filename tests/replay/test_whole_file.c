/* Whole files: as they were or as they are, whatever happens in between, and nothing beside them. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/command/whole_file.h"

static char folder[64], path[128], beside[136];

static void set_up(void)
{
    strcpy(folder, "/tmp/test_whole_file_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(beside, sizeof beside, "%s.tmp", path);
}

static int entries(void)
{
    DIR           *directory = opendir(folder);
    struct dirent *entry;
    int            count = 0;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    closedir(directory);
    return count;
}

static void tear_down(void)
{
    unlink(path);
    unlink(beside);
    ck_assert_int_eq(entries(), 0);
    rmdir(folder);
}

static void put(const char *where, const char *text)
{
    FILE *file = fopen(where, "w");

    ck_assert(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static int holds(const char *where, const char *text)
{
    char  found[64] = "";
    FILE *file = fopen(where, "r");

    if (file == NULL || fread(found, 1, sizeof found - 1, file) == 0) {
        found[0] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
    return strcmp(found, text) == 0;
}

static KvgStatus write_whole(const char *where, const char *text, KvgStatus status)
{
    WholeFile file;

    if (kvg_whole_file_begin("--file", where, &file) != KVG_OK) {
        return KVG_EIO;
    }
    fputs(text, file.stream);
    return kvg_whole_file_end(&file, status);
}

START_TEST(test_whole_file_takes_the_place_of_an_older_one)
{
    put(beside, "what an older version has left when it was killed");
    ck_assert_int_eq(write_whole(path, "one", KVG_OK), KVG_OK);
    ck_assert(holds(path, "one") && entries() == 1);
    ck_assert_int_eq(write_whole(path, "another", KVG_OK), KVG_OK);
    ck_assert(holds(path, "another") && entries() == 1);
    ck_assert_int_eq(write_whole(path, "dropped", KVG_EPEER), KVG_EPEER);
    ck_assert(holds(path, "another") && entries() == 1);
    ck_assert_int_eq(kvg_whole_file_check("--file", path), KVG_OK);
    ck_assert(holds(path, "another") && entries() == 1);
}
END_TEST

START_TEST(test_whole_file_of_a_relative_path)
{
    int back = open(".", O_RDONLY | O_DIRECTORY);

    ck_assert(back >= 0 && chdir(folder) == 0);
    ck_assert_int_eq(kvg_whole_file_check("--file", "file"), KVG_OK);
    ck_assert_int_eq(entries(), 0);
    ck_assert_int_eq(write_whole("file", "here", KVG_OK), KVG_OK);
    ck_assert(fchdir(back) == 0 && close(back) == 0);
    ck_assert(holds(path, "here") && entries() == 1);
}
END_TEST

START_TEST(test_whole_file_leaves_nothing_where_its_writer_is_killed)
{
    int status, fd = open(folder, O_TMPFILE | O_WRONLY, 0600);

    if (fd < 0) {
        printf("skipped: the file system of /tmp has no files without a name\n");
        return;
    }
    close(fd);
    put(path, "old");
    pid_t pid = fork();
    if (pid == 0) {
        WholeFile file;

        if (kvg_whole_file_begin("--file", path, &file) == KVG_OK) {
            fputs("half", file.stream);
            fflush(file.stream);
            raise(SIGKILL);
        }
        _exit(1);
    }
    ck_assert(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    ck_assert(holds(path, "old") && entries() == 1);
}
END_TEST

START_TEST(test_whole_file_says_what_is_in_its_way)
{
    char      precious[136], far[200];
    WholeFile file;

    snprintf(precious, sizeof precious, "%s/precious", folder);
    put(precious, "mine");
    ck_assert_int_eq(symlink(precious, beside), 0); /* planted */
    ck_assert_int_eq(kvg_whole_file_check("--file", path), KVG_EINVAL);
    ck_assert_int_eq(kvg_whole_file_begin("--file", path, &file), KVG_EIO);
    ck_assert_msg(strstr(kvg_last_error(), "--file: ") != NULL && strstr(kvg_last_error(), path) != NULL, "%s", kvg_last_error());
    ck_assert(holds(precious, "mine"));
    unlink(precious);
    unlink(beside);
    snprintf(far, sizeof far, "%s/none/file", folder);
    ck_assert_int_eq(kvg_whole_file_check("--file", far), KVG_EINVAL);
    ck_assert_int_eq(kvg_whole_file_check("--file", folder), KVG_EINVAL);
    ck_assert_int_eq(write_whole("/dev/full", "no room", KVG_OK), KVG_EIO);
    ck_assert_msg(strstr(kvg_last_error(), "/dev/full cannot be written: No space left") != NULL, "%s", kvg_last_error());
    ck_assert_int_eq(write_whole("/dev/null", "gone", KVG_OK), KVG_OK);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("whole_file");
    TCase   *cases = tcase_create("whole_file");
    SRunner *runner = srunner_create(suite);

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, test_whole_file_takes_the_place_of_an_older_one);
    tcase_add_test(cases, test_whole_file_of_a_relative_path);
    tcase_add_test(cases, test_whole_file_leaves_nothing_where_its_writer_is_killed);
    tcase_add_test(cases, test_whole_file_says_what_is_in_its_way);
    suite_add_tcase(suite, cases);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);

    srunner_free(runner);
    return failed != 0 || ran == 0;
}

/* The built command, run as a user runs it: its words in, its output, sentences and exit status out. For suites of the command. */
#ifndef KVG_TEST_COMMAND_RUN_H
#define KVG_TEST_COMMAND_RUN_H

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define OUTPUT_MOST (1 << 20)
#define WORDS_MOST  40

static char out[OUTPUT_MOST], err[OUTPUT_MOST];
static char folder[] = "/tmp/kvgrid-plan-XXXXXX";

static inline void setup(void)
{
    strcpy(folder, "/tmp/kvgrid-plan-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static inline void teardown(void)
{
    DIR *open_folder = opendir(folder);

    for (struct dirent *entry; (entry = readdir(open_folder)) != NULL;) {
        char path[512];

        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        (void)unlink(path);
    }
    closedir(open_folder);
    ck_assert_int_eq(rmdir(folder), 0);
}

static inline void slurp(const char *path, char *text)
{
    FILE  *file = fopen(path, "r");
    size_t count;

    ck_assert_ptr_nonnull(file);
    count = fread(text, 1, OUTPUT_MOST - 1, file);
    text[count] = '\0';
    fclose(file);
}

/* Runs `kvgrid LINE` (words between single spaces), fills out and err, returns the exit status. */
static inline int run(const char *line)
{
    char                       copy[4096], out_path[64], err_path[64], *words[WORDS_MOST] = { "kvgrid" };
    int                        count = 1, status;
    pid_t                      child;
    posix_spawn_file_actions_t actions;

    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word != NULL && count < WORDS_MOST - 1; word = strtok(NULL, " ")) {
        words[count++] = word;
    }
    words[count] = NULL;
    snprintf(out_path, sizeof out_path, "%s/out", folder);
    snprintf(err_path, sizeof err_path, "%s/err", folder);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, out_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, err_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_eq(posix_spawn(&child, KVG_BUILD_DIR "/kvgrid", &actions, NULL, words, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "kvgrid %s did not end by itself", line);
    slurp(out_path, out);
    slurp(err_path, err);
    return WEXITSTATUS(status);
}

static inline int run_model(const char *model, const char *rest)
{
    char line[2048];

    snprintf(line, sizeof line, "plan --model %s/models/%s.json %s", KVG_TEST_DATA, model, rest);
    return run(line);
}

/* One sentence on stderr, nothing on stdout. */
static inline void check_refused(const char *line, int exit_status, const char *sentence)
{
    int status = run(line);

    ck_assert_msg(status == exit_status, "kvgrid %s: exit status %d, %s", line, status, err);
    ck_assert_msg(strstr(err, sentence) != NULL, "kvgrid %s: \"%s\" does not say \"%s\"", line, err, sentence);
    ck_assert_msg(strchr(err, '\n') == err + strlen(err) - 1, "kvgrid %s says more than one line: %s", line, err);
    ck_assert_str_eq(out, "");
}

#endif

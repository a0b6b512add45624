/* Client: starts the embedding as a program of its own, writes lines to it, reads its answers with a deadline, and knows its workers' pids. */
#ifndef EMBED_CLIENT_H
#define EMBED_CLIENT_H

#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CLIENT_ARGUMENTS_MAX = 40, CLIENT_BYTES_MAX = 1 << 20, CLIENT_MS = 60000 };

typedef struct Client {
    pid_t  pid;
    int    in, out;
    size_t have, from;
    char   bytes[CLIENT_BYTES_MAX]; /* everything it has answered */
} Client;

static inline uint64_t client_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* `arguments` is a list of words between spaces; `system`, NULL for none, is one more --system. */
static inline Client *client_start(const char *arguments, const char *system)
{
    static char words[1024];
    Client     *client = calloc(1, sizeof *client);
    char       *argv[CLIENT_ARGUMENTS_MAX] = { (char *)(uintptr_t)KVG_BUILD_DIR "/kvgrid_embed" };
    int         argc = 1, in[2], out[2];

    snprintf(words, sizeof words, "%s", arguments);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) argv[argc++] = word;
    if (system != NULL) argv[argc++] = (char *)(uintptr_t)"--system", argv[argc++] = (char *)(uintptr_t)system;
    ck_assert(client != NULL && argc < CLIENT_ARGUMENTS_MAX && pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    client->pid = fork();
    if (client->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(in[0], 0);
        dup2(out[1], 1);
        execv(argv[0], argv);
        _exit(127);
    }
    ck_assert_int_gt(client->pid, 0);
    close(in[0]);
    close(out[1]);
    client->in = in[1];
    client->out = out[0];
    signal(SIGPIPE, SIG_IGN);
    return client;
}

static inline void client_say(Client *client, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void client_say(Client *client, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vdprintf(client->in, format, arguments);
    va_end(arguments);
}

static inline void client_hang_up(Client *client)
{
    if (client->in >= 0) close(client->in);
    client->in = -1;
}

/* Reads once; 0 at the end. */
static inline int client_read(Client *client, uint64_t deadline_ms)
{
    struct pollfd ready = { client->out, POLLIN, 0 };
    uint64_t      now_ms = client_now_ms();
    ssize_t       got;

    ck_assert_msg(now_ms < deadline_ms && poll(&ready, 1, (int)(deadline_ms - now_ms)) > 0, "no answer before the deadline; so far: %s", client->bytes);
    ck_assert_uint_lt(client->have, sizeof client->bytes - 1);
    got = read(client->out, client->bytes + client->have, sizeof client->bytes - 1 - client->have);
    client->have += got > 0 ? (size_t)got : 0;
    return got > 0;
}

/* The next line; NULL at the end. The caller's, to be json_decref'ed. */
static inline json_t *client_line(Client *client)
{
    const uint64_t deadline_ms = client_now_ms() + CLIENT_MS;
    char          *end;
    json_t        *line;

    while ((end = memchr(client->bytes + client->from, '\n', client->have - client->from)) == NULL) {
        if (!client_read(client, deadline_ms)) return NULL;
    }
    line = json_loadb(client->bytes + client->from, (size_t)(end - client->bytes) - client->from, 0, NULL);
    ck_assert_msg(line != NULL, "no JSON: %s", client->bytes + client->from);
    client->from = (size_t)(end + 1 - client->bytes);
    return line;
}

/* Its exit status, or minus the signal; it has to end before the deadline. */
static inline int client_end(Client *client)
{
    const uint64_t deadline_ms = client_now_ms() + CLIENT_MS;
    int            status;

    client_hang_up(client);
    while (waitpid(client->pid, &status, WNOHANG) == 0) {
        if (client_now_ms() > deadline_ms) kill(client->pid, SIGKILL);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    close(client->out);
    free(client);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* The pids of its workers, in rank order: they are forked in that order. */
static inline int client_workers(const Client *client, pid_t *pids, int most)
{
    char  path[64];
    FILE *file;
    int   count = 0;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)client->pid, (int)client->pid);
    file = fopen(path, "r");
    if (file == NULL) return 0;
    while (count < most && fscanf(file, "%d", &pids[count]) == 1) count++;
    fclose(file);
    return count;
}

/* A zombie is gone: only its parent, which may be this machine's init, has not looked yet. */
static inline int client_is_there(pid_t pid)
{
    char  path[64], state = 'Z';
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    if (file == NULL) return 0;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
    fclose(file);
    return state != 'Z' && state != 'X';
}

/* 1 once none of them is there any more (a worker that is ended by the kernel takes a moment). */
static inline int client_are_gone(const pid_t *pids, int count)
{
    const uint64_t deadline_ms = client_now_ms() + 2000;
    int            left;

    do {
        left = 0;
        for (int i = 0; i < count; i++) left += client_is_there(pids[i]);
        if (left > 0) nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    } while (left > 0 && client_now_ms() < deadline_ms);
    return left == 0;
}

static inline const char *client_text(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));

    return text != NULL ? text : "";
}

static inline double client_number(const json_t *summary, const char *key)
{
    const json_t *value = json_object_get(json_object_get(summary, "summary"), key);

    ck_assert_msg(json_is_number(value), "no %s in the summary", key);
    return json_number_value(value);
}

#endif

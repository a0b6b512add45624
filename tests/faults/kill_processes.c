/* kill_ranks: runs and their processes. */
#include "tests/faults/kill_ranks.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

void sleep_ms(double ms)
{
    if (ms > 0) {
        struct timespec rest = { (time_t)(ms / 1000), (long)(ms * 1e6) % 1000000000 };
        while (nanosleep(&rest, &rest) != 0) {
        }
    }
}

char *slurp(const char *path)
{
    FILE  *file = fopen(path, "r");
    char  *text = calloc(1, 1 << 20);
    size_t got = file != NULL && text != NULL ? fread(text, 1, (1 << 20) - 1, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    if (text != NULL) {
        text[got] = '\0';
    }
    return text;
}

/* ---- runs */

int children_of(pid_t parent, pid_t *pids, int most)
{
    DIR *proc = opendir("/proc");
    int  count = 0;
    for (struct dirent *entry = proc != NULL ? readdir(proc) : NULL; entry != NULL; entry = readdir(proc)) {
        char path[300], text[512] = "";
        char state = ' ';
        long ppid = 0;
        if (!isdigit((unsigned char)entry->d_name[0])) {
            continue;
        }
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL) {
            continue;
        }
        const char *after = fgets(text, sizeof text, file) != NULL ? strrchr(text, ')') : NULL;
        if (after != NULL && sscanf(after, ") %c %ld", &state, &ppid) == 2 && ppid == (long)parent && state != 'Z' && state != 'X' && count < most) {
            pid_t pid = (pid_t)atol(entry->d_name);
            int   at = count++;
            for (; at > 0 && pids[at - 1] > pid; at--) {
                pids[at] = pids[at - 1];
            }
            pids[at] = pid;
        }
        fclose(file);
    }
    if (proc != NULL) {
        closedir(proc);
    }
    return count;
}

void look_at_files(Harness *harness, Trial *trial, pid_t pid)
{
    char path[300], target[512], line[1024];
    snprintf(path, sizeof path, "/proc/%ld/fd", (long)pid);
    DIR *files = opendir(path);
    for (struct dirent *entry = files != NULL ? readdir(files) : NULL; entry != NULL; entry = readdir(files)) {
        unsigned long inode;
        snprintf(path, sizeof path, "/proc/%ld/fd/%.20s", (long)pid, entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        if (sscanf(target, "socket:[%lu]", &inode) == 1 && trial->socket_count < SOCKETS_MAX) {
            trial->sockets[trial->socket_count++] = inode;
        }
        if (strncmp(target, "/dev/shm/", 9) == 0) {
            violation(harness, trial, "pid %ld has a segment open: %s", (long)pid, target);
        }
    }
    if (files != NULL) {
        closedir(files);
    }
    snprintf(path, sizeof path, "/proc/%ld/maps", (long)pid);
    FILE *maps = fopen(path, "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        if (strstr(line, " /dev/shm/") != NULL || strstr(line, "/SYSV") != NULL) {
            violation(harness, trial, "pid %ld maps a segment: %s", (long)pid, line);
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
}

void look_for_sockets(Harness *harness, const Trial *trial)
{
    static const char *const lists[] = { "/proc/net/unix", "/proc/net/tcp" };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        FILE *file = fopen(lists[i], "r");
        char  line[512];
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
            unsigned long inode = 0;
            if (sscanf(line, i == 0 ? "%*s %*s %*s %*s %*s %*s %lu" : "%*s %*s %*s %*s %*s %*s %*s %*s %*s %lu", &inode) != 1) {
                continue;
            }
            for (int at = 0; inode != 0 && at < trial->socket_count; at++) {
                if (trial->sockets[at] == inode) {
                    violation(harness, trial, "a socket is left: %s", line);
                }
            }
        }
        if (file != NULL) {
            fclose(file);
        }
    }
}

pid_t start_run(const Harness *harness, const Trial *trial, const char *trail, const char *fault)
{
    const Shape *shape = &shapes[trial->shape];
    char         model[512], trace[512], metrics[96], tp[8], pp[8], ranks[8];
    snprintf(metrics, sizeof metrics, "%s/metrics", harness->scratch);
    snprintf(model, sizeof model, "%s/models/tinyllama-1.1b.json", harness->data);
    snprintf(trace, sizeof trace, "%s/traces/azure_llm_2023_conv.csv", harness->data);
    snprintf(tp, sizeof tp, "%d", shape->tp);
    snprintf(pp, sizeof pp, "%d", shape->pp);
    snprintf(ranks, sizeof ranks, "%d", trial->ranks);
    const char *arguments[] = { harness->kvgrid, "replay", "--model", model, "--trace", trace, "--requests", harness->requests, "--max-tokens", "120", "--spec", "3", "--tp", tp,
                                "--pp", pp, "--ranks", ranks, "--layout", shape->layout, "--trail", trail, "--metrics", metrics, "--json", "--fault", fault, NULL };
    if (fault == NULL) {
        arguments[sizeof arguments / sizeof *arguments - 3] = NULL;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) {
        setpgid(pid, pid);
        return pid;
    }
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int out = open(trial->out, O_CREAT | O_TRUNC | O_WRONLY, 0600), err = open(trial->err, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    setenv("KVGRID_TIMEOUT_MS", "1000", 1);
    setenv("KVGRID_PEER_MS", "200", 1);
    unsetenv("SLURM_NTASKS");
    execv(harness->kvgrid, (char *const *)(uintptr_t)arguments);
    _exit(127);
}

int await_run(Trial *trial, double until_ms)
{
    while (waitpid(trial->launcher, &trial->status, WNOHANG) == 0) {
        if (now_ms() > until_ms) {
            return 0;
        }
        sleep_ms(1);
    }
    trial->ended_ms = now_ms();
    return 1;
}

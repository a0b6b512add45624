/* Faults at random moments of real runs: ranks of `kvgrid replay --ranks N` are killed, frozen, woken, made to leave, kept from memory, and their launcher
 * is killed; after each, what the survivors say is held against a run without a fault, and the machine is looked over for what may be left.
 *
 *   kill_ranks KVGRID DATA [--trials N] [--seed S] [--from I] [--requests N] [--no-limit] [--verbose]
 *
 * Trial I of seed S draws the same grid, layout, fault, rank and moment (as a share of the run's length) whenever it is run: --from I --trials 1 runs
 * one again. Exit status: 0 no violation, 1 some. The last line has the counts; a line a kind has the times of noticing.
 *
 * Only processes of runs that this program started are signalled, by their ids. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/mix.h"

enum { TIMEOUT_MS = 1000, PEER_MS = 200, SLACK_MS = 1000, RANKS_MAX = 4, RUN_LIMIT_S = 60, SOCKETS_MAX = 256, SAMPLES_MAX = 20000, TRIALS_TELLING = 8 };

typedef enum Fault { KILL, TWO, FREEZE, WAKE, LEAVE, STALL, OOM, LIMIT, LAUNCHER, FAULTS } Fault;

static const char *const fault_names[FAULTS] = { "kill", "two", "freeze", "wake", "leave", "stall", "oom", "limit", "launcher" };
static const int fault_weights[FAULTS] = { 8, 3, 3, 3, 3, 1, 2, 2, 2 };

typedef struct Shape {
    int         tp, pp;
    const char *layout;
} Shape;

static const Shape shapes[] = { { 2, 1, "pool" }, { 1, 2, "flat" }, { 2, 2, "pool" }, { 4, 1, "flat" },
                                { 2, 1, "flat" }, { 1, 2, "pool" }, { 2, 2, "flat" }, { 4, 1, "pool" } };
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct TrailPoint {
    char agreed[17], stored[17];
} TrailPoint;

typedef struct Reference { /* a run without a fault */
    int         made;
    double      seconds;
    char        digest[33];
    uint64_t    commits, grows;
    TrailPoint *trail[RANKS_MAX]; /* [commits] */
} Reference;

typedef struct Samples {
    double ms[SAMPLES_MAX];
    size_t count;
} Samples;

typedef struct Harness {
    const char *kvgrid, *data, *requests; /* requests: how many a run serves */
    char        scratch[64];
    uint64_t    seed;
    int         verbose, list, skipped; /* skipped: a fault, or FAULTS */
    Reference   reference[SHAPES];
    Samples     noticed[FAULTS];
    uint64_t    ran[FAULTS], early[FAULTS], late[FAULTS], judged, violations; /* judged: what survivors hold was held against the reference */
} Harness;

typedef struct Trial {
    uint64_t number;
    Fault    fault;
    int      shape, victim, second, ranks; /* second: killed in the midst of the others' settling; -1: none */
    double   share;     /* of the run's length: when */
    double   wake_ms;   /* after which a frozen one is woken */
    double   second_ms; /* between the two */
    uint64_t draw;
    pid_t    launcher, pids[RANKS_MAX];
    int      found;     /* pids are known */
    double   struck_ms; /* on the clock; 0: it has not been */
    double   ended_ms;  /* the launcher was gone */
    int      hit;       /* the signal found its process running */
    unsigned long sockets[SOCKETS_MAX];
    int      socket_count;
    int      status;    /* of the launcher, as waitpid says */
    char     out[96], err[96];
} Trial;

/* ---- small things */

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static void sleep_ms(double ms)
{
    if (ms > 0) {
        struct timespec rest = { (time_t)(ms / 1000), (long)(ms * 1e6) % 1000000000 };
        while (nanosleep(&rest, &rest) != 0) {
        }
    }
}

static void __attribute__((format(printf, 3, 4))) violation(Harness *harness, const Trial *trial, const char *format, ...)
{
    va_list arguments;
    const Shape *shape = &shapes[trial->shape];
    harness->violations++;
    printf("VIOLATION trial %" PRIu64 " of seed %" PRIu64 " (%s of rank %d on %dx%d %s at %.3f of the run): ", trial->number, harness->seed,
           fault_names[trial->fault], trial->victim, shape->tp, shape->pp, shape->layout, trial->share);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
}

static char *slurp(const char *path)
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

/* ---- processes */

/* Children of a process, lowest id first, which is their ranks' order. */
static int children_of(pid_t parent, pid_t *pids, int most)
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

/* Sockets that the process has open; and that it holds nothing that could outlive it. */
static void look_at_files(Harness *harness, Trial *trial, pid_t pid)
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

/* Sockets of the run that the kernel still lists. */
static void look_for_sockets(Harness *harness, const Trial *trial)
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

static pid_t start(const Harness *harness, const Trial *trial, const char *trail, const char *fault)
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

/* 1 when it has ended in time. */
static int await(Trial *trial, double until_ms)
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

/* ---- the run without a fault */

static json_t *last_object(const char *text)
{
    const char *at = strrchr(text, '{'), *line = text;
    for (const char *c = text; at != NULL && (c = strchr(c, '\n')) != NULL; c++) {
        line = c[1] == '{' ? c + 1 : line;
    }
    return *line == '{' ? json_loads(line, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
}

static uint64_t number_of(const json_t *object, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

static int load_trail(Reference *reference, int rank, const char *path)
{
    FILE    *file = fopen(path, "r");
    uint64_t commit = 0, lines = 0;
    reference->trail[rank] = calloc(reference->commits, sizeof(TrailPoint));
    while (file != NULL && lines < reference->commits &&
           fscanf(file, "%" SCNu64 " %16s %16s", &commit, reference->trail[rank][lines].agreed, reference->trail[rank][lines].stored) == 3) {
        lines += commit == lines + 1;
    }
    if (file != NULL) {
        fclose(file);
    }
    return lines == reference->commits;
}

static int make_reference(Harness *harness, Trial *trial)
{
    Reference *reference = &harness->reference[trial->shape];
    char       trail[96], path[112];
    if (reference->made) {
        return 1;
    }
    snprintf(trail, sizeof trail, "%s/reference%d", harness->scratch, trial->shape);
    double from = now_ms();
    trial->launcher = start(harness, trial, trail, NULL);
    if (!await(trial, from + 1e3 * RUN_LIMIT_S) || !WIFEXITED(trial->status) || WEXITSTATUS(trial->status) != 0) {
        printf("the run without a fault failed: %s\n", slurp(trial->err));
        return 0;
    }
    reference->seconds = 1e-3 * (now_ms() - from);
    char   *text = slurp(trial->out);
    json_t *object = last_object(text);
    snprintf(reference->digest, sizeof reference->digest, "%s", text_of(object, "digest"));
    reference->commits = number_of(object, "commits");
    reference->grows = number_of(object, "grows");
    reference->made = 1;
    for (int rank = 0; rank < trial->ranks; rank++) {
        snprintf(path, sizeof path, "%s.%d", trail, rank);
        reference->made &= load_trail(reference, rank, path);
    }
    json_decref(object);
    free(text);
    return reference->made;
}

/* ---- a trial */

static Trial draw_trial(const Harness *harness, uint64_t number)
{
    Trial    trial = { .number = number, .draw = kvg_mix64(kvg_mix64(harness->seed) ^ number) };
    uint64_t draw = trial.draw;
    int      weights = 0;
    for (int fault = 0; fault < FAULTS; fault++) {
        weights += fault_weights[fault];
    }
    int at = (int)(draw % (uint64_t)weights);
    while (at >= fault_weights[trial.fault]) {
        at -= fault_weights[trial.fault++];
    }
    draw = kvg_mix64(draw);
    trial.shape = (int)(draw % SHAPES);
    trial.ranks = shapes[trial.shape].tp * shapes[trial.shape].pp;
    trial.victim = (int)(draw / SHAPES % (uint64_t)trial.ranks);
    draw = kvg_mix64(draw);
    trial.share = (draw % 8 == 0 ? 0.05 : 1.05) * (double)(draw >> 11) / 9007199254740992.0; /* some while the grid is made */
    trial.second = trial.fault == TWO ? (int)((uint64_t)trial.victim + 1 + kvg_mix64(draw + 1) % (uint64_t)(trial.ranks - 1)) % trial.ranks : -1;
    trial.second_ms = 120.0 * (double)(kvg_mix64(draw + 2) >> 11) / 9007199254740992.0;
    trial.wake_ms = (0.2 + 2.0 * (double)(kvg_mix64(draw) >> 11) / 9007199254740992.0) * TIMEOUT_MS;
    snprintf(trial.out, sizeof trial.out, "%s/out", harness->scratch);
    snprintf(trial.err, sizeof trial.err, "%s/err", harness->scratch);
    return trial;
}

static const char *scripted(const Harness *harness, const Trial *trial, char *text, size_t bytes)
{
    const Reference *reference = &harness->reference[trial->shape];
    double           at = trial->share * reference->seconds;
    if (trial->fault == OOM) {
        snprintf(text, bytes, "oom:%d@grow%" PRIu64, trial->victim, 1 + trial->draw % reference->grows);
    } else if (trial->fault == LEAVE || trial->fault == STALL) {
        snprintf(text, bytes, "%s:%d@%.3fs", trial->fault == LEAVE ? "exit" : "stall", trial->victim, 0.9 * at);
    } else {
        return NULL;
    }
    return text;
}

/* The rank still runs, as a child of the launcher that this program started. */
static int is_running(const Trial *trial, pid_t pid)
{
    pid_t now[RANKS_MAX];
    int   count = children_of(trial->launcher, now, RANKS_MAX);
    for (int i = 0; i < count; i++) {
        if (now[i] == pid) {
            return 1;
        }
    }
    return 0;
}

static int signal_rank(const Trial *trial, pid_t pid, int number)
{
    return is_running(trial, pid) && kill(pid, number) == 0;
}

static void strike(Harness *harness, Trial *trial)
{
    const struct rlimit none = { 1 << 20, 1 << 20 };
    pid_t               victim = trial->pids[trial->victim];
    double              from = now_ms();
    while (children_of(trial->launcher, trial->pids, RANKS_MAX) < trial->ranks && now_ms() < from + 2000) {
        sleep_ms(0.5);
    }
    trial->found = children_of(trial->launcher, trial->pids, RANKS_MAX) == trial->ranks;
    sleep_ms(from + 1e3 * trial->share * harness->reference[trial->shape].seconds - now_ms());
    if (!trial->found) {
        return;
    }
    victim = trial->pids[trial->victim];
    for (int rank = 0; rank < trial->ranks; rank++) {
        look_at_files(harness, trial, trial->pids[rank]);
    }
    trial->struck_ms = now_ms();
    switch (trial->fault) {
    case KILL: trial->hit = signal_rank(trial, victim, SIGKILL); break;
    case TWO:
        trial->hit = signal_rank(trial, victim, SIGKILL);
        sleep_ms(trial->second_ms);
        signal_rank(trial, trial->pids[trial->second], SIGKILL);
        break;
    case FREEZE: trial->hit = signal_rank(trial, victim, SIGSTOP); break;
    case WAKE:
        trial->hit = signal_rank(trial, victim, SIGSTOP);
        sleep_ms(trial->wake_ms);
        signal_rank(trial, victim, SIGCONT);
        break;
    case LIMIT: trial->hit = is_running(trial, victim) && prlimit(victim, RLIMIT_AS, &none, NULL) == 0; break;
    case LAUNCHER: trial->hit = kill(trial->launcher, SIGKILL) == 0; break;
    default: break;
    }
}

/* ---- judging */

/* As the command is to name it: with this host, and with its pid where that is known. Of a limit it says itself, and leaves the pid out. */
static void name_rank(const Trial *trial, int rank, char text[400])
{
    char host[256] = "", pid[32] = ", pid ";
    gethostname(host, sizeof host - 1);
    if (trial->found && rank >= 0) {
        snprintf(pid, sizeof pid, ", pid %ld) ", (long)trial->pids[rank]);
    }
    snprintf(text, 400, "rank %d (host %s%s", rank, host, trial->fault == LIMIT ? "" : pid);
}

/* Sentences of the command on stderr: those of the fault, and those of a rank that was left out. */
static void count_sentences(const char *text, const Trial *trial, int *faults, int *named, int *outs, int *strange)
{
    char who[400], or_who[400];
    name_rank(trial, trial->victim, who);
    name_rank(trial, trial->second, or_who);
    *faults = *named = *outs = *strange = 0;
    while (*text != '\0') {
        const char *end = strchr(text, '\n');
        size_t      length = end != NULL ? (size_t)(end - text) : strlen(text);
        char        line[2048];
        snprintf(line, sizeof line, "%.*s", (int)length, text);
        if (strncmp(line, "kvgrid replay: ", 15) != 0) {
            *strange += length > 0;
        } else if (strstr(line, "was left out: the others") != NULL) {
            *outs += strncmp(line + 15, who, strlen(who)) == 0;
            *strange += strncmp(line + 15, who, strlen(who)) != 0;
        } else {
            ++*faults;
            *named += strncmp(line + 15, who, strlen(who)) == 0 || strncmp(line + 15, or_who, strlen(or_who)) == 0;
        }
        text += length + (end != NULL);
    }
}

static void judge_survivor(Harness *harness, const Trial *trial, const json_t *rank)
{
    const Reference *reference = &harness->reference[trial->shape];
    const int        number = (int)number_of(rank, "rank");
    const uint64_t   commit = number_of(rank, "commit");
    const char      *agreed = text_of(rank, "digest"), *stored = text_of(rank, "rows_digest");
    const TrailPoint none = { "0000000000000000", "0000000000000000" };
    if (commit > reference->commits) {
        violation(harness, trial, "rank %d is at commit %" PRIu64 " of %" PRIu64, number, commit, reference->commits);
        return;
    }
    const TrailPoint *point = commit > 0 ? &reference->trail[number][commit - 1] : &none;
    if (strcmp(point->agreed, agreed) != 0 || strcmp(point->stored, stored) != 0) {
        violation(harness, trial, "rank %d holds %s, %s at commit %" PRIu64 ", where a run without a fault holds %s, %s", number, agreed, stored, commit,
                  point->agreed, point->stored);
    }
    if (number_of(rank, "mismatches") != 0 || !json_is_true(json_object_get(rank, "held"))) {
        violation(harness, trial, "rank %d: %" PRIu64 " mismatches, held %d", number, number_of(rank, "mismatches"),
                  json_is_true(json_object_get(rank, "held")));
    }
}

static double limit_ms(const Trial *trial)
{
    return SLACK_MS + (trial->fault == KILL || trial->fault == TWO || trial->fault == LEAVE ? PEER_MS : TIMEOUT_MS);
}

static void judge_noticed(Harness *harness, const Trial *trial, const json_t *rank)
{
    const double at = 1e-6 * (double)number_of(rank, "noticed_at_ns");
    const int    outside = trial->fault == KILL || trial->fault == TWO || trial->fault == FREEZE || trial->fault == WAKE;
    const double ms = outside ? at - trial->struck_ms : json_real_value(json_object_get(rank, "noticed_ms"));
    Samples     *samples = &harness->noticed[trial->fault];
    if (ms > limit_ms(trial)) {
        violation(harness, trial, "rank %" PRIu64 " noticed after %.0f ms, at most %.0f", number_of(rank, "rank"), ms, limit_ms(trial));
    }
    if (samples->count < SAMPLES_MAX) {
        samples->ms[samples->count++] = ms;
    }
}

/* A rank that finds itself left out says so, once; one that slept three deadlines has heard it from the survivors. */
static void judge_left_out(Harness *harness, const Trial *trial, const json_t *ranks, int outs)
{
    const json_t *victim = json_array_get(ranks, (size_t)trial->victim);
    const int     out = json_is_true(json_object_get(victim, "out"));
    if (out != outs) {
        violation(harness, trial, "rank %d %s left out, and %d sentences on stderr say so", trial->victim, out ? "found itself" : "did not find itself", outs);
    }
    const char *told = text_of(victim, "why"); /* by the survivors; or by the launcher's all-gather after the last step */
    if (trial->fault == STALL && (!out || (strstr(told, "was left out") == NULL && strstr(told, " settles: ") == NULL))) {
        violation(harness, trial, "rank %d woke after the others had settled, and was told: %s", trial->victim, told);
    }
}

static int anybody_noticed(const json_t *ranks)
{
    const json_t *rank;
    size_t        i;
    json_array_foreach(ranks, i, rank) {
        if (text_of(rank, "why")[0] != '\0') {
            return 1;
        }
    }
    return 0;
}

/* No survivor shows what it holds: the others have left the set-up, or had nothing more to do, or died, too; and that was soon. */
static void judge_given_up(Harness *harness, const Trial *trial, const json_t *ranks, const char *err)
{
    const int    frozen = trial->fault == FREEZE || trial->fault == WAKE;
    const double most = limit_ms(trial) + (frozen ? SLACK_MS : 0); /* the launcher's patience with who is frozen for good */
    if (trial->struck_ms > 0 && trial->hit && trial->ended_ms - trial->struck_ms > most) {
        violation(harness, trial, "it ended %.0f ms after the fault, at most %.0f", trial->ended_ms - trial->struck_ms, most);
    }
    if (anybody_noticed(ranks) && strstr(err, "no step was under way") != NULL) {
        violation(harness, trial, "a rank was in the midst of a step: %s", err);
    }
}

static void judge_report(Harness *harness, const Trial *trial, const json_t *object, const char *err, int outs)
{
    const json_t *ranks = json_object_get(object, "ranks"), *rank;
    size_t        i;
    int           alone_again = trial->fault == WAKE || trial->fault == STALL || trial->fault == LIMIT;
    uint64_t      survivors = number_of(object, "survivors");
    if (!json_is_true(json_object_get(object, "same")) && survivors > 0) {
        violation(harness, trial, "the survivors do not hold the same");
    }
    if (json_is_true(json_object_get(object, "overdue"))) {
        violation(harness, trial, "somebody had to be ended");
    }
    if (trial->fault == TWO ? survivors > (uint64_t)trial->ranks - 1 || (survivors > 0 && survivors < (uint64_t)trial->ranks - 2)
                            : survivors != 0 && survivors != (uint64_t)trial->ranks - 1 &&
                              !(alone_again && survivors == (uint64_t)trial->ranks)) {
        violation(harness, trial, "%" PRIu64 " of %d ranks survive", survivors, trial->ranks);
    }
    if (survivors == 0) {
        judge_given_up(harness, trial, ranks, err);
        return;
    }
    harness->judged++;
    judge_left_out(harness, trial, ranks, outs);
    json_array_foreach(ranks, i, rank) {
        if (json_is_true(json_object_get(rank, "survives"))) {
            judge_survivor(harness, trial, rank);
            if ((int)number_of(rank, "rank") != trial->victim && trial->fault != LIMIT) {
                judge_noticed(harness, trial, rank);
            }
        }
    }
}

/* A refused step comes again behind those of other batches, so there are other points on the way; the last one is the same. */
static int same_trail(const Trial *trial, const char *mine, const char *theirs)
{
    const size_t last = 2 * 17, length = strlen(mine), length_theirs = strlen(theirs); /* the sums of the last line */
    if (trial->fault != OOM) {
        return strcmp(mine, theirs) == 0;
    }
    return length > last && length_theirs > last && strcmp(mine + length - last, theirs + length_theirs - last) == 0;
}

/* What this program has made itself. */
static int is_ours(const char *name)
{
    return name[0] == '.' || strcmp(name, "out") == 0 || strcmp(name, "err") == 0 || strncmp(name, "reference", 9) == 0;
}

/* Counters are written anew each second, to a file that is seen as it was or as it is. They end with a whole line of the last of them. */
static int are_counters(const char *name, const char *text)
{
    const size_t length = strlen(text);
    size_t       last = length > 0 ? length - 1 : 0;
    while (last > 0 && text[last - 1] != '\n') {
        last--;
    }
    return strncmp(name, "metrics", 7) == 0 && length > 0 && text[length - 1] == '\n' && strncmp(&text[last], "kvgrid_vote_latency_seconds_count{", 34) == 0;
}

/* Trails of a run that ended early are not there; of one that did not, whole. Anything else is half a file. */
static void judge_files(Harness *harness, const Trial *trial, int finished)
{
    DIR *directory = opendir(harness->scratch);
    int  whole = 0;
    for (struct dirent *entry = directory != NULL ? readdir(directory) : NULL; entry != NULL; entry = readdir(directory)) {
        if (is_ours(entry->d_name)) {
            continue;
        }
        char path[400], reference[400];
        snprintf(path, sizeof path, "%s/%s", harness->scratch, entry->d_name);
        snprintf(reference, sizeof reference, "%s/reference%d%s", harness->scratch, trial->shape, entry->d_name + 5);
        char *mine = slurp(path), *theirs = slurp(reference);
        const int is_trail = strncmp(entry->d_name, "trail", 5) == 0;
        if (is_trail ? !same_trail(trial, mine, theirs) : !are_counters(entry->d_name, mine)) {
            violation(harness, trial, "half a file: %s", entry->d_name);
        }
        whole += is_trail;
        free(mine);
        free(theirs);
        unlink(path);
    }
    if (directory != NULL) {
        closedir(directory);
    }
    if (finished && whole != trial->ranks) {
        violation(harness, trial, "%d of %d trails", whole, trial->ranks);
    }
}

/* The launcher and the ranks are a group of their own. */
static void judge_processes(Harness *harness, const Trial *trial, double patience_ms)
{
    double until = now_ms() + patience_ms;
    while (kill(-trial->launcher, 0) == 0 && now_ms() < until) {
        while (waitpid(-trial->launcher, NULL, WNOHANG) > 0) { /* orphans come to this program: see main */
        }
        sleep_ms(1);
    }
    if (kill(-trial->launcher, 0) == 0) {
        violation(harness, trial, "processes of the run are left");
        kill(-trial->launcher, SIGKILL);
    }
}

static void judge_end(Harness *harness, const Trial *trial, const char *out, const char *err)
{
    json_t   *object = last_object(out);
    const int code = WIFEXITED(trial->status) ? WEXITSTATUS(trial->status) : -1;
    const int reported = object != NULL && json_object_get(object, "survivors") != NULL;
    int       faults, named, outs, strange;
    count_sentences(err, trial, &faults, &named, &outs, &strange);
    if (strange > 0 || outs > 1 || (outs > 0 && trial->fault != WAKE && trial->fault != STALL)) {
        violation(harness, trial, "stderr has %d strange lines, %d of ranks left out: %s", strange, outs, err);
    }
    if (code == 2 && strstr(err, "--fault never struck") != NULL) {
        harness->late[trial->fault]++;
    } else if (code == 0) { /* it went on, or was over */
        harness->late[trial->fault]++;
        if (strcmp(text_of(object, "digest"), harness->reference[trial->shape].digest) != 0 || faults > 0) {
            violation(harness, trial, "exit 0, digest %s, %d sentences", text_of(object, "digest"), faults);
        }
    } else if (code != 1 || faults != 1 || named != 1) {
        violation(harness, trial, "exit %d (status 0x%x), %d sentences of which %d name the rank: %s", code, (unsigned)trial->status, faults, named, err);
    } else if (!reported && trial->fault == LIMIT) { /* all ranks have ended together, over what this one could not have */
        harness->early[trial->fault]++;
    } else if (!reported) {
        violation(harness, trial, "exit 1, and no object that says what the survivors hold: %s", err);
    } else {
        harness->early[trial->fault] += number_of(object, "survivors") == 0;
        judge_report(harness, trial, object, err, outs);
    }
    /* A signal is nothing to a process that is exiting: such a run is over within moments. */
    if (code == 0 && (trial->fault == KILL || trial->fault == TWO || trial->fault == FREEZE) && trial->hit && trial->ended_ms > trial->struck_ms + 200) {
        pid_t pid = trial->pids[trial->victim];
        violation(harness, trial, "exit 0, though rank %d (pid %ld) was hit", trial->victim, (long)pid);
    }
    json_decref(object);
}

static void list_trial(const Harness *harness, uint64_t number)
{
    const Trial  trial = draw_trial(harness, number);
    const Shape *shape = &shapes[trial.shape];
    printf("trial %" PRIu64 ": %s of rank %d on %dx%d %s at %.3f of the run\n", number, fault_names[trial.fault], trial.victim, shape->tp, shape->pp, shape->layout,
           trial.share);
}

static void run_trial(Harness *harness, uint64_t number)
{
    Trial  trial = draw_trial(harness, number);
    char   trail[96], words[64];
    double from;
    if ((int)trial.fault == harness->skipped) {
        return;
    }
    if (!make_reference(harness, &trial)) {
        violation(harness, &trial, "no reference");
        return;
    }
    snprintf(trail, sizeof trail, "%s/trail", harness->scratch);
    harness->ran[trial.fault]++;
    from = now_ms();
    trial.launcher = start(harness, &trial, trail, scripted(harness, &trial, words, sizeof words));
    strike(harness, &trial);
    if (!await(&trial, from + 1e3 * RUN_LIMIT_S)) {
        violation(harness, &trial, "it does not end within %d s", RUN_LIMIT_S);
        kill(-trial.launcher, SIGKILL);
        waitpid(trial.launcher, &trial.status, 0);
    }
    judge_processes(harness, &trial, trial.fault == LAUNCHER ? 1000 : 0);
    look_for_sockets(harness, &trial);
    char *out = slurp(trial.out), *err = slurp(trial.err);
    if (harness->verbose) {
        printf("trial %" PRIu64 ": %s of rank %d on %dx%d %s at %.3f, %.1f s: %s", number, fault_names[trial.fault], trial.victim, shapes[trial.shape].tp,
               shapes[trial.shape].pp, shapes[trial.shape].layout, trial.share, 1e-3 * (now_ms() - from), err[0] != '\0' ? err : "\n");
        fflush(stdout);
    }
    judge_files(harness, &trial, WIFEXITED(trial.status) && WEXITSTATUS(trial.status) == 0);
    if (trial.fault != LAUNCHER || !WIFSIGNALED(trial.status)) {
        judge_end(harness, &trial, out, err);
    }
    free(out);
    free(err);
}

/* ---- all of it */

static int compare_ms(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static void print_noticed(Harness *harness, Fault fault)
{
    Samples *samples = &harness->noticed[fault];
    const size_t n = samples->count;
    printf("%-9s %5" PRIu64 " run, %" PRIu64 " without survivors to look at, %" PRIu64 " ended well", fault_names[fault], harness->ran[fault], harness->early[fault],
           harness->late[fault]);
    if (n > 0) {
        qsort(samples->ms, n, sizeof *samples->ms, compare_ms);
        printf("; noticed by %zu ranks after p50 %.1f, p90 %.1f, p99 %.1f, at most %.1f ms", n, samples->ms[n / 2], samples->ms[n * 9 / 10],
               samples->ms[n * 99 / 100], samples->ms[n - 1]);
    }
    printf("\n");
}

static void remove_scratch(const Harness *harness)
{
    DIR *directory = opendir(harness->scratch);
    for (struct dirent *entry = directory != NULL ? readdir(directory) : NULL; entry != NULL; entry = readdir(directory)) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", harness->scratch, entry->d_name);
        if (entry->d_name[0] != '.') {
            unlink(path);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
    rmdir(harness->scratch);
}

int main(int argc, char **argv)
{
    static Harness harness = { .requests = "150", .seed = 1, .skipped = FAULTS };
    uint64_t       trials = 16, first = 0, ran = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: kill_ranks KVGRID DATA [--trials N] [--seed S] [--from I] [--requests N] [--no-limit] [--list] [--verbose]\n");
        return 2;
    }
    harness.kvgrid = argv[1];
    harness.data = argv[2];
    for (int i = 3; i < argc; i++) {
        uint64_t *number = strcmp(argv[i], "--trials") == 0 ? &trials : strcmp(argv[i], "--seed") == 0 ? &harness.seed
                                                                   : strcmp(argv[i], "--from") == 0   ? &first : NULL;
        if (number != NULL && i + 1 < argc) {
            *number = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--requests") == 0 && i + 1 < argc) {
            harness.requests = argv[++i];
        } else if (strcmp(argv[i], "--verbose") == 0) {
            harness.verbose = 1;
        } else if (strcmp(argv[i], "--list") == 0) { /* what would be run */
            harness.list = 1;
        } else if (strcmp(argv[i], "--no-limit") == 0) { /* address sanitizers need addresses */
            harness.skipped = LIMIT;
        } else {
            fprintf(stderr, "kill_ranks: %s is not understood\n", argv[i]);
            return 2;
        }
    }
    for (uint64_t i = first; harness.list && i < first + trials; i++) {
        list_trial(&harness, i);
    }
    if (harness.list) {
        return 0;
    }
    snprintf(harness.scratch, sizeof harness.scratch, "/tmp/kill_ranks_XXXXXX");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (mkdtemp(harness.scratch) == NULL) {
        perror("kill_ranks: a directory in /tmp");
        return 2;
    }
    for (uint64_t i = first; i < first + trials; i++, ran++) {
        run_trial(&harness, i);
    }
    for (int fault = 0; fault < FAULTS; fault++) {
        print_noticed(&harness, (Fault)fault);
    }
    remove_scratch(&harness);
    if (harness.judged == 0 && ran >= TRIALS_TELLING) {
        harness.violations++;
        printf("VIOLATION in all of %" PRIu64 " trials no survivor showed what it holds\n", ran);
    }
    printf("seed %" PRIu64 ", trials %" PRIu64 " to %" PRIu64 ": %" PRIu64 " violations\n", harness.seed, first, first + ran - 1, harness.violations);
    return harness.violations == 0 && ran > 0 ? 0 : 1;
}

/* Faults at random moments of real runs: ranks of `kvgrid replay --ranks N` are killed, frozen, woken, made to leave, kept from memory, and their launcher
 * is killed; after each, what the survivors say is held against a run without a fault, and the machine is looked over for what may be left.
 *
 *   kill_ranks KVGRID DATA [--trials N] [--seed S] [--from I] [--requests N] [--no-limit] [--verbose]
 *
 * Trial I of seed S draws the same grid, layout, fault, rank and moment (as a share of the run's length) whenever it is run: --from I --trials 1 runs
 * one again. Exit status: 0 no violation, 1 some. The last line has the counts; a line a kind has the times of noticing.
 *
 * Only processes of runs that this program started are signalled, by their ids. */
#include "tests/faults/kill_ranks.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/mix.h"

const char *const fault_names[FAULTS] = { "kill", "two", "freeze", "wake", "leave", "stall", "oom", "limit", "launcher" };
static const int  fault_weights[FAULTS] = { 8, 3, 3, 3, 3, 1, 2, 2, 2 };

const Shape shapes[SHAPES] = { { 2, 1, "pool" }, { 1, 2, "flat" }, { 2, 2, "pool" }, { 4, 1, "flat" },
                               { 2, 1, "flat" }, { 1, 2, "pool" }, { 2, 2, "flat" }, { 4, 1, "pool" } };

void violation(Harness *harness, const Trial *trial, const char *format, ...)
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
    trial.launcher = start_run(harness, &trial, trail, scripted(harness, &trial, words, sizeof words));
    strike(harness, &trial);
    if (!await_run(&trial, from + 1e3 * RUN_LIMIT_S)) {
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

/* ---- all of them */

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

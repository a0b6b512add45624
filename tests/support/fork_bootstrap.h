/* Fork bootstrap: N ranks as forked processes of one test, with an all-gather over shared memory.
 *
 *   FORK_CHECK(condition)   in a rank's body: prints the expression and leaves the body with 1
 *   fork_ranks(...)         forks, runs the body in each rank, collects exit codes before a deadline, kills leftovers
 *
 * The ranks are children of the test's own process: use FORK_CHECK there, ck_assert only in the parent.
 * The all-gather carries at most FORK_BYTES_MAX a rank and names the ranks that did not come. */
#ifndef FORK_BOOTSTRAP_H
#define FORK_BOOTSTRAP_H

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kvgrid/bootstrap.h>

#include "runtime/base/error.h"

#ifdef KVG_COVERAGE
void __gcov_dump(void);
#endif

#define FORK_RANKS_MAX 64
#define FORK_BYTES_MAX ((size_t)1 << 20)
#define FORK_KILLED    (-SIGKILL) /* exit code of a rank that died by a signal: minus the signal */
#define FORK_OVERDUE   (-1000)    /* of a rank that was still there at the deadline */

#define FORK_CHECK(condition)                                                                           \
    do {                                                                                                \
        if (!(condition)) {                                                                             \
            fprintf(stderr, "%s:%d: failed in a rank: %s [%s]\n", __FILE__, __LINE__, #condition,       \
                    kvg_last_error());                                                                  \
            return 1;                                                                                   \
        }                                                                                               \
    } while (0)

/* What the processes share. The two data halves alternate: nobody writes round g+2 before all have read round g,
 * since all must arrive at g+1 in between. */
typedef struct ForkShared {
    int          ranks;
    atomic_uint  arrived[FORK_RANKS_MAX]; /* all-gathers this rank has entered */
    atomic_int   words[64];               /* free for tests: flags, pids, counters */
    pid_t        pids[FORK_RANKS_MAX]; /* a rank's own entry is set before its body runs, others may still be 0 */
    uint8_t      data[2][FORK_RANKS_MAX][FORK_BYTES_MAX]; /* pages come on first touch */
} ForkShared;

typedef struct ForkRank {
    ForkShared  *shared;
    KvgBootstrap bootstrap; /* its user is this struct */
    void        *argument;
} ForkRank;

/* One rank's life; its return value is the process's exit code. */
typedef int (*ForkBody)(ForkRank *rank);

static inline double fork_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline KvgStatus fork_allgather(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    const ForkRank *self = user;
    ForkShared     *shared = self->shared;
    int             rank = self->bootstrap.rank;
    double          deadline = fork_seconds() + timeout_ms * 1e-3;

    if (bytes > FORK_BYTES_MAX) {
        return kvg_fail(KVG_EINVAL, "fork bootstrap: %zu bytes a rank, at most %zu", bytes, FORK_BYTES_MAX);
    }
    unsigned round = atomic_load(&shared->arrived[rank]) + 1;

    memcpy(shared->data[round % 2][rank], mine, bytes);
    atomic_store(&shared->arrived[rank], round);
    for (int peer = 0; peer < shared->ranks; peer++) {
        for (unsigned spins = 0; atomic_load(&shared->arrived[peer]) < round; spins++) {
            if (fork_seconds() >= deadline) {
                return kvg_fail(KVG_EINDOUBT, "fork bootstrap: rank %d did not come to all-gather %u within %u ms", peer, round,
                                timeout_ms);
            }
            if (spins < 100) {
                sched_yield();
            } else {
                nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
            }
        }
        memcpy((uint8_t *)all + (size_t)peer * bytes, shared->data[round % 2][peer], bytes);
    }
    return KVG_OK;
}

static inline void fork_sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* Waits until words[index] of the shared page is at least `value`; 0 after 10 s in vain. */
static inline int fork_await(ForkShared *shared, int index, int value)
{
    double deadline = fork_seconds() + 10;

    while (atomic_load(&shared->words[index]) < value) {
        if (fork_seconds() > deadline) {
            return 0;
        }
        fork_sleep_ms(1);
    }
    return 1;
}

static inline _Noreturn void fork_child(ForkShared *shared, int rank, ForkBody body, void *argument)
{
    ForkRank self = { .shared = shared, .bootstrap = KVG_BOOTSTRAP_INIT, .argument = argument };

    shared->pids[rank] = getpid();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that is killed takes its ranks along */
    self.bootstrap.user = &self;
    self.bootstrap.rank = rank;
    self.bootstrap.ranks = shared->ranks;
    self.bootstrap.allgather = fork_allgather;
    int code = body(&self);

    fflush(NULL);
#ifdef KVG_COVERAGE
    __gcov_dump(); /* _exit runs no destructors */
#endif
    _exit(code);
}

/* Collects exit codes until the deadline, then kills who is left, stopped ones too. */
static inline void fork_collect(ForkShared *shared, double deadline, int codes[])
{
    for (int rank = 0; rank < shared->ranks; rank++) {
        int   status = 0, overdue = 0;
        pid_t pid = shared->pids[rank];

        while (waitpid(pid, &status, WNOHANG) == 0) {
            if (fork_seconds() >= deadline) {
                kill(pid, SIGKILL);
                waitpid(pid, &status, 0);
                overdue = 1;
                break;
            }
            fork_sleep_ms(1);
        }
        codes[rank] = overdue ? FORK_OVERDUE : WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
}

/* Runs `body` in `ranks` forked processes. codes [ranks] receives their exit codes (see FORK_KILLED, FORK_OVERDUE), or is
 * NULL. Returns how many did not exit with 0. The shared page stays for the caller to read, and to munmap. */
static inline int fork_ranks_in(ForkShared **page, int ranks, uint32_t deadline_ms, ForkBody body, void *argument, int *codes)
{
    int         own[FORK_RANKS_MAX], bad = 0;
    int        *results = codes != NULL ? codes : own;
    double      deadline = fork_seconds() + deadline_ms * 1e-3;
    ForkShared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (shared == MAP_FAILED || ranks < 1 || ranks > FORK_RANKS_MAX) {
        fprintf(stderr, "fork_ranks: %d ranks cannot be made\n", ranks);
        abort();
    }
    shared->ranks = ranks;
    fflush(NULL); /* or every child prints what is buffered once more */
    for (int rank = 0; rank < ranks; rank++) {
        pid_t pid = fork();

        if (pid == 0) {
            fork_child(shared, rank, body, argument);
        }
        if (pid < 0) { /* never hand -1 to kill: it means everybody */
            perror("fork_ranks: fork");
            abort();
        }
        shared->pids[rank] = pid;
    }
    fork_collect(shared, deadline, results);
    for (int rank = 0; rank < ranks; rank++) {
        bad += results[rank] != 0;
    }
    *page = shared;
    return bad;
}

/* The same, with nothing left to read. */
static inline int fork_ranks(int ranks, uint32_t deadline_ms, ForkBody body, void *argument, int *codes)
{
    ForkShared *shared = NULL;
    int         bad = fork_ranks_in(&shared, ranks, deadline_ms, body, argument, codes);

    munmap(shared, sizeof *shared);
    return bad;
}

#endif

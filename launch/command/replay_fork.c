/* Replay's own launcher: the page, its all-gather, and the birth of ranks. */
#include "launch/command/replay_fork.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "launch/command/command.h"
#include "runtime/base/memory.h"
#include "runtime/comm/clock.h"

/* ---- the all-gather */

/* Why a peer will not come, or KVG_OK. */
static KvgStatus look_at_peer(const ForkPage *page, int peer, uint64_t deadline_ns, uint32_t timeout_ms)
{
    const ForkSeat *seat = &page->seats[peer];
    if (atomic_load(&seat->gone)) {
        return kvg_fail(KVG_EPEER, "rank %d (host %s, pid %ld) is gone", peer, page->host, (long)page->pids[peer]);
    }
    if (atomic_load(&seat->wants) > 0) {
        return kvg_fail(KVG_EPEER, "rank %d settles: %s", peer, seat->why);
    }
    if (kvg_clock_ns() >= deadline_ns) {
        return kvg_fail(KVG_EINDOUBT, "rank %d (host %s, pid %ld) did not come to an all-gather within %u ms", peer, page->host,
                        (long)page->pids[peer], timeout_ms);
    }
    return KVG_OK;
}

static KvgStatus await_peer(const ForkPage *page, int peer, unsigned piece, uint64_t deadline_ns, uint32_t timeout_ms)
{
    const ForkSeat *seat = &page->seats[peer];
    for (uint64_t rounds = 0; atomic_load(&seat->arrived) < piece; rounds++) {
        KvgStatus status = look_at_peer(page, peer, deadline_ns, timeout_ms);
        if (atomic_load(&seat->arrived) >= piece) { /* it came, and then it went */
            return KVG_OK;
        }
        KVG_TRY(status);
        kvg_clock_relax(rounds);
    }
    return KVG_OK;
}

static KvgStatus fork_allgather(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    const ReplayFork *fork = user;
    ForkPage         *page = fork->page;
    const uint64_t    deadline_ns = kvg_clock_ns() + timeout_ms * UINT64_C(1000000);
    for (size_t from = 0; from < bytes; from += FORK_PIECE) {
        const size_t   part = bytes - from < FORK_PIECE ? bytes - from : FORK_PIECE;
        const unsigned piece = atomic_load(&page->seats[fork->rank].arrived) + 1;
        memcpy(page->data[piece % 2][fork->rank], (const uint8_t *)mine + from, part);
        atomic_store(&page->seats[fork->rank].arrived, piece);
        for (int peer = 0; peer < page->ranks; peer++) {
            KVG_TRY(await_peer(page, peer, piece, deadline_ns, timeout_ms));
            memcpy((uint8_t *)all + (size_t)peer * bytes + from, page->data[piece % 2][peer], part);
        }
    }
    return KVG_OK;
}

/* ---- a rank's words */

static void keep_words(char words[FORK_WORDS], const char *sentence)
{
    snprintf(words, FORK_WORDS, "%s", sentence);
}

/* A launch's way out where the others cannot be asked: the launcher speaks for all. */
static void leave(const ReplayLaunch *launch, int hearsay, const char *sentence)
{
    const ReplayFork *fork = launch->bootstrap.user;
    ForkSeat         *seat = &fork->page->seats[fork->rank];
    seat->hearsay = hearsay;
    keep_words(seat->words, sentence);
    atomic_store(&seat->ended, 1);
}

void kvg_replay_fork_out(ReplayFork *fork)
{
    const ForkPage *page = fork->page;
    ForkSeat       *seat = &fork->page->seats[fork->rank];
    fprintf(stderr, "kvgrid replay: rank %d (host %s, pid %ld) was left out: the others have settled without it, since it did not come in time "
                    "(KVGRID_TIMEOUT_MS %u, KVGRID_PEER_MS %u); it leaves, and what it holds is not the grid's any more\n",
            fork->rank, page->host, (long)page->pids[fork->rank], page->timeout_ms, page->peer_ms);
    atomic_store(&seat->out, 1);
}

/* ---- settling */

static void live_on(KvgGrid *grid)
{
    (void)kvg_grid_progress(grid); /* its failures are known: that is why we are here */
    nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
}

int kvg_replay_fork_survivors(ReplayFork *fork, KvgGrid *grid, const char *why, int survivors[FORK_RANKS_MAX], int *count)
{
    ForkPage      *page = fork->page;
    ForkSeat      *seat = &page->seats[fork->rank];
    const unsigned mine = atomic_load(&seat->wants) + 1;
    if (atomic_load(&seat->wants) == 0) {
        seat->noticed_ns = kvg_clock_ns();
        keep_words(seat->why, why);
    }
    atomic_store(&seat->wants, mine);
    while (atomic_load(&page->called) < mine && !(atomic_load(&page->called) > 0 && !page->member[fork->rank])) {
        live_on(grid);
    }
    *count = 0;
    for (int rank = 0; rank < page->ranks; rank++) {
        if (page->member[rank]) {
            survivors[(*count)++] = rank;
        }
    }
    return page->member[fork->rank];
}

/* A member of settle `mine` could not end it, or died before it had. */
static int another_is_needed(const ForkPage *page, unsigned mine)
{
    for (int rank = 0; rank < page->ranks; rank++) {
        const ForkSeat *seat = &page->seats[rank];
        if (page->member[rank] && (atomic_load(&seat->wants) > mine || (atomic_load(&seat->gone) && atomic_load(&seat->settled) < mine))) {
            return 1;
        }
    }
    return 0;
}

int kvg_replay_fork_all_settled(ReplayFork *fork, KvgGrid *grid)
{
    ForkPage      *page = fork->page;
    ForkSeat      *seat = &page->seats[fork->rank];
    const unsigned mine = atomic_load(&seat->wants);
    atomic_store(&seat->settled, mine);
    while (atomic_load(&page->finished) < mine && !another_is_needed(page, mine)) {
        live_on(grid);
    }
    return atomic_load(&page->finished) >= mine;
}

void kvg_replay_fork_show(ReplayFork *fork, KvgGrid *grid, KvgStatus (*look)(void *user, ReplayHolding *holding), void *user)
{
    ForkPage *page = fork->page;
    ForkSeat *seat = &page->seats[fork->rank];
    seat->holding.state = look(user, &seat->holding);
    atomic_store(&seat->shown, 1);
    while (!atomic_load(&page->left_gone)) {
        live_on(grid);
    }
    seat->later.state = look(user, &seat->later);
    atomic_store(&seat->shown, 2);
}

/* ---- birth */

static _Noreturn void be_rank(ForkPage *page, int rank, pid_t launcher, const ReplayOptions *options, ReplayRankBody body, const sigset_t *mask)
{
    ReplayFork   fork = { page, rank };
    ReplayLaunch launch = { .bootstrap = KVG_BOOTSTRAP_INIT, .local_ranks = page->ranks, .timeout_ms = page->timeout_ms, .fork = &fork,
                            .leave = leave };
    char         place[16];
    void        *lost = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing outlives the launcher */
    if (getppid() != launcher) {
        _exit(KVG_EXIT_FAILED);
    }
    sigprocmask(SIG_SETMASK, mask, NULL);
    snprintf(place, sizeof place, "%d", rank);
    setenv("SLURM_LOCALID", place, 1); /* as other launchers say it: which device is this rank's */
    page->pids[rank] = getpid();
    launch.bootstrap.user = &fork;
    launch.bootstrap.rank = rank;
    launch.bootstrap.ranks = page->ranks;
    launch.bootstrap.allgather = fork_allgather;
    if (kvg_calloc((size_t)page->ranks, 1, "the lost ranks", &lost) != KVG_OK) {
        leave(&launch, 0, kvg_last_error());
        _exit(KVG_EXIT_FAILED);
    }
    launch.lost = lost;
    int status = kvg_command_finish("replay", body(options, &launch));
    atomic_store(&page->seats[rank].ended, 1);
    exit(status);
}

static KvgStatus make_page(const ReplayOptions *options, ForkPage **page_p)
{
    const KvgPolicy *policy = NULL;
    ForkPage        *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (page == MAP_FAILED) {
        return kvg_fail(KVG_ENOMEM, "no memory for what %u ranks share: %s; free memory or start fewer", options->ranks, strerror(errno));
    }
    page->ranks = (int)options->ranks;
    page->timeout_ms = 30000;
    page->peer_ms = 1000;
    if (kvg_policy_process(&policy) == KVG_OK) { /* else every rank says why, and all leave */
        page->timeout_ms = policy->timeout_ms;
        page->peer_ms = policy->peer_ms;
    }
    if (gethostname(page->host, sizeof page->host - 1) != 0) {
        snprintf(page->host, sizeof page->host, "unknown");
    }
    *page_p = page;
    return KVG_OK;
}

static KvgStatus bear_ranks(ForkPage *page, const ReplayOptions *options, ReplayRankBody body, const sigset_t *mask, ForkWatch *watch)
{
    const pid_t launcher = getpid();
    fflush(NULL); /* or every child prints what is buffered once more */
    for (int rank = 0; rank < page->ranks; rank++) {
        pid_t pid = fork();
        if (pid == 0) {
            be_rank(page, rank, launcher, options, body, mask);
        }
        if (pid < 0) {
            KvgStatus status = kvg_fail(KVG_ENOMEM, "rank %d of %d cannot be forked: %s; raise the limit of processes or start fewer", rank,
                                        page->ranks, strerror(errno));
            for (int born = 0; born < rank; born++) {
                kill(page->pids[born], SIGKILL);
            }
            return status;
        }
        page->pids[rank] = pid;
        watch->running++;
    }
    return KVG_OK;
}

int kvg_replay_fork_run(const ReplayOptions *options, ReplayRankBody body)
{
    ForkPage *page = NULL;
    sigset_t  child, before;
    if (make_page(options, &page) != KVG_OK) {
        return kvg_command_refuse("replay", KVG_ENOMEM);
    }
    ForkWatch watch = { .page = page, .ranks = page->ranks };
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before); /* waited for, so that the launcher wakes for each */
    KvgStatus status = bear_ranks(page, options, body, &before, &watch);
    if (status != KVG_OK) {
        (void)kvg_command_refuse("replay", status);
    }
    kvg_replay_fork_watch(&watch);
    int exit_status = status == KVG_OK ? kvg_replay_fork_tell(&watch, options) : KVG_EXIT_FAILED;
    sigprocmask(SIG_SETMASK, &before, NULL);
    munmap(page, sizeof *page);
    return exit_status;
}

/* Replay's own launcher: watching. It is the one that knows of deaths at once, so it is the one that says who survives. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "launch/command/replay_fork.h"
#include "runtime/comm/clock.h"

#define MS UINT64_C(1000000)

enum { TURN_MS = 5, MARGIN_MS = 1000, PATIENCE_DEADLINES = 6, PATIENCE_MS = 10000 };

static int rank_of(const ForkWatch *watch, pid_t pid)
{
    for (int rank = 0; rank < watch->ranks; rank++) {
        if (watch->page->pids[rank] == pid) {
            return rank;
        }
    }
    return -1;
}

/* A rank that leaves before its run has returned is a fault; so is a signal whenever it comes. */
static void note_end(ForkWatch *watch, int rank, int status)
{
    ForkSeat *seat = &watch->page->seats[rank];
    watch->running--;
    watch->ended_ns[rank] = kvg_clock_ns();
    watch->is_stopped[rank] = 0;
    watch->end[rank] = WIFSIGNALED(status) ? FORK_SIGNALLED : FORK_EXITED;
    watch->code[rank] = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    atomic_store(&seat->gone, 1);
    if (WIFSIGNALED(status) || !atomic_load(&seat->ended) || seat->words[0] != '\0') {
        watch->trouble_ns = watch->trouble_ns != 0 ? watch->trouble_ns : watch->ended_ns[rank];
    }
}

static void reap(ForkWatch *watch)
{
    int   status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        int rank = rank_of(watch, pid);
        if (rank < 0) {
            continue;
        }
        if (WIFSTOPPED(status)) {
            watch->is_stopped[rank] = 1;
            watch->stopped_ns[rank] = kvg_clock_ns();
        } else if (WIFCONTINUED(status)) {
            watch->is_stopped[rank] = 0;
        } else {
            note_end(watch, rank, status);
        }
    }
}

/* ---- calling a settle */

/* A rank still counts on being a member: it runs, and no settle has been called without it. */
static int is_candidate(const ForkWatch *watch, int rank)
{
    return watch->end[rank] == FORK_RUNS && (atomic_load(&watch->page->called) == 0 || watch->page->member[rank]);
}

/* The highest settle that anybody asks for, and the earliest that was asked for. */
static unsigned highest_wanted(const ForkWatch *watch)
{
    unsigned most = 0;
    for (int rank = 0; rank < watch->ranks; rank++) {
        unsigned wants = atomic_load(&watch->page->seats[rank].wants);
        if (is_candidate(watch, rank) && wants > most) {
            most = wants;
        }
    }
    return most;
}

/* All candidates ask for it, but for those who are stopped. */
static int all_want(const ForkWatch *watch, unsigned number)
{
    for (int rank = 0; rank < watch->ranks; rank++) {
        if (is_candidate(watch, rank) && !watch->is_stopped[rank] && atomic_load(&watch->page->seats[rank].wants) < number) {
            return 0;
        }
    }
    return 1;
}

static void call(ForkWatch *watch, unsigned number)
{
    ForkPage *page = watch->page;
    uint8_t   member[FORK_RANKS_MAX] = { 0 };
    for (int rank = 0; rank < watch->ranks; rank++) {
        member[rank] = is_candidate(watch, rank) && atomic_load(&page->seats[rank].wants) >= number;
        watch->lost[rank] = !member[rank];
    }
    memcpy(page->member, member, sizeof member);
    atomic_store(&page->called, number);
    watch->called_ns = kvg_clock_ns();
}

/* The others' time to ask for one, too: the deadline, and after a death at least what they may take to notice it. */
static uint64_t time_to_ask_ns(const ForkWatch *watch)
{
    const ForkPage *page = watch->page;
    uint64_t        ms = page->timeout_ms, notice_ms = (uint64_t)page->peer_ms + MARGIN_MS;
    for (int rank = 0; rank < watch->ranks && ms < notice_ms; rank++) {
        ms = watch->end[rank] != FORK_RUNS ? notice_ms : ms;
    }
    return ms * MS;
}

/* A settle is called when nobody else is awaited, or the others have had their time. */
static void call_if_due(ForkWatch *watch)
{
    const unsigned number = highest_wanted(watch);
    if (number <= atomic_load(&watch->page->called)) {
        return;
    }
    uint64_t now = kvg_clock_ns();
    if (watch->trouble_ns == 0) {
        watch->trouble_ns = now;
    }
    uint64_t since = watch->called_ns > watch->trouble_ns ? watch->called_ns : watch->trouble_ns;
    if (all_want(watch, number) || now > since + time_to_ask_ns(watch)) {
        call(watch, number);
    }
}

/* A member died on the way: those who have settled are to settle again. */
static void finish_if_due(ForkWatch *watch)
{
    ForkPage      *page = watch->page;
    const unsigned called = atomic_load(&page->called);
    int            settled = 1, left = 0;
    if (called == 0 || atomic_load(&page->finished) >= called) {
        return;
    }
    for (int rank = 0; rank < watch->ranks; rank++) {
        const ForkSeat *seat = &page->seats[rank];
        left += page->member[rank] && watch->end[rank] == FORK_RUNS;
        settled &= !page->member[rank] || atomic_load(&seat->settled) >= called;
    }
    if (settled && left > 0) {
        atomic_store(&page->finished, called);
    }
}

/* ---- ending */

static void put_down(ForkWatch *watch, int rank)
{
    watch->put_down[rank] = 1;
    kill(watch->page->pids[rank], SIGKILL); /* a child that was not reaped: the number is still its own */
}

/* Those left out have a deadline to wake and find it out. */
static void end_left_out(ForkWatch *watch)
{
    ForkPage *page = watch->page;
    int       left = 0;
    if (atomic_load(&page->called) == 0 || atomic_load(&page->finished) < atomic_load(&page->called)) {
        return;
    }
    int due = kvg_clock_ns() > watch->called_ns + (page->timeout_ms + MARGIN_MS) * MS;
    for (int rank = 0; rank < watch->ranks; rank++) {
        if (watch->end[rank] == FORK_RUNS && !page->member[rank]) {
            left++;
            if (due && !watch->put_down[rank]) {
                put_down(watch, rank);
            }
        }
    }
    if (left == 0) {
        atomic_store(&page->left_gone, 1);
    }
}

static int anybody_settles(const ForkWatch *watch)
{
    for (int rank = 0; rank < watch->ranks; rank++) {
        if (watch->end[rank] == FORK_RUNS && atomic_load(&watch->page->seats[rank].wants) > 0) {
            return 1;
        }
    }
    return 0;
}

/* How long those who are left may take. Where they are all stopped, nobody waits for anybody any more: they have had the deadline once, while
 * the others waited for them, or have it now that the others are done. */
static uint64_t patience_ms(const ForkWatch *watch)
{
    const uint64_t timeout_ms = watch->page->timeout_ms;
    for (int rank = 0; rank < watch->ranks; rank++) {
        if (watch->end[rank] == FORK_RUNS && !watch->is_stopped[rank]) {
            return 2 * timeout_ms + 2 * MARGIN_MS;
        }
    }
    return (watch->trouble_ns != 0 ? 0 : timeout_ms) + MARGIN_MS;
}

/* Others have left, and nobody settles: who is still there a deadline later is frozen, or waits for nothing. */
static void end_stragglers(ForkWatch *watch)
{
    uint64_t last = watch->trouble_ns;
    int      ended = 0;
    for (int rank = 0; rank < watch->ranks; rank++) {
        ended += watch->end[rank] != FORK_RUNS;
        last = watch->ended_ns[rank] > last ? watch->ended_ns[rank] : last;
    }
    if (ended == 0 || anybody_settles(watch)) {
        return;
    }
    const uint64_t patience = patience_ms(watch) * MS;
    for (int rank = 0; rank < watch->ranks; rank++) {
        if (watch->end[rank] == FORK_RUNS && !watch->put_down[rank] && kvg_clock_ns() > last + patience) {
            watch->trouble_ns = watch->trouble_ns != 0 ? watch->trouble_ns : kvg_clock_ns();
            watch->overdue |= !watch->is_stopped[rank];
            put_down(watch, rank);
        }
    }
}

/* Whatever happened, it ends. */
static void end_all_overdue(ForkWatch *watch)
{
    const uint64_t patience = (PATIENCE_DEADLINES * (uint64_t)watch->page->timeout_ms + PATIENCE_MS) * MS;
    if (watch->trouble_ns == 0 || kvg_clock_ns() < watch->trouble_ns + patience) {
        return;
    }
    for (int rank = 0; rank < watch->ranks; rank++) {
        if (watch->end[rank] == FORK_RUNS && !watch->put_down[rank]) {
            watch->overdue = 1;
            put_down(watch, rank);
        }
    }
}

void kvg_replay_fork_watch(ForkWatch *watch)
{
    sigset_t              child;
    const struct timespec turn = { .tv_nsec = TURN_MS * (long)MS };
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    while (watch->running > 0) {
        reap(watch);
        call_if_due(watch);
        finish_if_due(watch);
        end_left_out(watch);
        end_stragglers(watch);
        end_all_overdue(watch);
        if (watch->running > 0) {
            sigtimedwait(&child, NULL, &turn);
        }
    }
}

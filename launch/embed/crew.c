#include "crew.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void crew_blame(Crew *crew, int rank, const char *why)
{
    if (crew->fault[0] != '\0') return;
    crew->fault_rank = rank;
    snprintf(crew->fault, sizeof crew->fault, "%s", why);
}

/* ---- birth */

static _Noreturn void be_worker(const WorkerOptions *options, uint32_t rank, int socket, const Crew *crew, pid_t frontend)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != frontend) _exit(1);
    signal(SIGINT, SIG_IGN); /* a terminal sends it to everybody, a job's end SIGTERM; the frontend ends its workers itself */
    signal(SIGTERM, SIG_IGN);
    for (uint32_t other = 0; other < rank; other++) close(crew->heard[other].fd); /* or nobody would see that socket close */
    _exit(worker_run(options, rank, socket, &crew->transport));
}

static KvgStatus bear(const WorkerOptions *options, uint32_t rank, Crew *crew)
{
    const pid_t frontend = getpid();
    int         pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return KVG_EIO;
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        be_worker(options, rank, pair[1], crew, frontend);
    }
    close(pair[1]);
    setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){ .tv_sec = crew->peer_ms / 1000, .tv_usec = crew->peer_ms % 1000 * 1000 },
               sizeof(struct timeval)); /* a worker that is stopped must not stop the frontend */
    crew->heard[rank] = (struct pollfd){ .fd = pair[0], .events = POLLIN };
    crew->pid[rank] = pid;
    if (pid < 0) return KVG_ENOMEM;
    crew->ranks = rank + 1;
    return KVG_OK;
}

/* ---- hearing */

/* 1 if a worker is stopped, or has ended otherwise than after its own FAULT, which is exit status 1. */
static int is_cause(Crew *crew, uint32_t rank)
{
    const pid_t pid = crew->pid[rank];
    char        why[WORDS_MAX];
    int         status;

    if (pid <= 0 || waitpid(pid, &status, WNOHANG | WUNTRACED) != pid) return 0;
    if (!WIFSTOPPED(status)) crew->pid[rank] = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1) return 0;
    if (WIFSTOPPED(status)) snprintf(why, sizeof why, "rank %u (pid %ld) is stopped by signal %d", rank, (long)pid, WSTOPSIG(status));
    else if (WIFSIGNALED(status)) snprintf(why, sizeof why, "rank %u (pid %ld) was ended by signal %d", rank, (long)pid, WTERMSIG(status));
    else snprintf(why, sizeof why, "rank %u (pid %ld) ended with exit status %d", rank, (long)pid, WEXITSTATUS(status));
    crew_blame(crew, (int)rank, why);
    return 1;
}

void crew_find_cause(Crew *crew, int rank, const char *words)
{
    const uint64_t deadline_ms = now_ms() + crew->peer_ms;
    int            found = 0;

    do {
        for (uint32_t peer = 0; peer < crew->ranks && !found; peer++) found = is_cause(crew, peer);
        if (!found) nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    } while (!found && now_ms() < deadline_ms);
    if (!found) crew_blame(crew, rank, words);
}

int crew_hear(Crew *crew, uint32_t rank, Report *report)
{
    if ((crew->heard[rank].revents & (POLLIN | POLLHUP | POLLERR)) == 0) return 0;
    crew->heard[rank].revents = 0;
    if (recv(crew->heard[rank].fd, report, sizeof *report, MSG_DONTWAIT) != (ssize_t)sizeof *report) crew_find_cause(crew, (int)rank, "it has hung up");
    else if (report->kind == REPORT_FAULT) crew_find_cause(crew, report->lost >= 0 ? report->lost : (int)rank, report->words);
    else return 1;
    return 0;
}

/* One report of `kind` from every rank, seen one by one by `each`. */
static KvgStatus hear_all(Crew *crew, ReportKind kind, void (*each)(Crew *crew, const Report *report, void *user), void *user)
{
    const uint64_t deadline_ms = now_ms() + crew->timeout_ms + crew->peer_ms;
    uint32_t       missing = crew->ranks;
    Report         report;

    while (missing > 0 && crew->fault[0] == '\0') {
        if (poll(crew->heard, crew->ranks, 100) <= 0 && now_ms() > deadline_ms) crew_find_cause(crew, -1, "the workers did not all answer before the deadline");
        for (uint32_t rank = 0; rank < crew->ranks; rank++) {
            if (crew->fault[0] != '\0' || !crew_hear(crew, rank, &report) || report.kind != kind) continue;
            each(crew, &report, user);
            missing--;
        }
    }
    return crew->fault[0] == '\0' ? KVG_OK : KVG_EPEER;
}

/* ---- the calls */

static void note_ready(Crew *crew, const Report *report, void *user)
{
    KvgLedger *ledger = user;

    if (ledger->size != 0 && memcmp(ledger->units_free, report->ledger.units_free, sizeof ledger->units_free) != 0) {
        crew_blame(crew, (int)report->rank, "its ledger is not the others'");
    }
    *ledger = report->ledger;
}

KvgStatus crew_start(const WorkerOptions *options, Crew *crew, KvgLedger *ledger)
{
    const int        ranks = (int)(options->tp * options->pp);
    const KvgPolicy *policy;
    KvgStatus        status = kvg_policy_process(&policy);

    *crew = (Crew){ .fault_rank = -1 };
    if (status != KVG_OK) {
        crew_blame(crew, -1, kvg_last_error());
        return status;
    }
    crew->timeout_ms = policy->timeout_ms;
    crew->peer_ms = policy->peer_ms;
    crew->between = between_create(options->tp, options->pp);
    status = crew->between != NULL ? transport_prepare(options->transport, ranks, crew->between, &crew->transport) : KVG_ENOMEM;
    if (status != KVG_OK) crew_blame(crew, -1, crew->between != NULL ? kvg_last_error() : "no memory for what the workers share");
    for (int rank = 0; rank < ranks && status == KVG_OK; rank++) status = bear(options, (uint32_t)rank, crew);
    if (crew->transport.fd >= 0) close(crew->transport.fd); /* the workers have it */
    if (status != KVG_OK) {
        crew_blame(crew, -1, "a worker cannot be forked: no memory, or too many processes or files");
        return status;
    }
    *ledger = (KvgLedger){ 0 };
    return hear_all(crew, REPORT_READY, note_ready, ledger);
}

void crew_order(Crew *crew, const Order *order)
{
    for (uint32_t rank = 0; rank < crew->ranks; rank++) {
        ssize_t sent;
        do sent = send(crew->heard[rank].fd, order, sizeof *order, MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR); /* a signal must not make one worker miss an order that the others have */
        if (sent < 0 && errno == EAGAIN) crew_blame(crew, (int)rank, "it takes no orders any more");
    }
}

static void note_done(Crew *crew, const Report *report, void *user)
{
    Report *most = user;

    (void)crew;
    if (report->booked_bytes > most->booked_bytes) most->booked_bytes = report->booked_bytes;
    if (report->step_ns != 0) most->step_ns = report->step_ns, most->library_ns = report->library_ns, most->wait_ns = report->wait_ns;
}

KvgStatus crew_stop(Crew *crew, Report *most)
{
    crew_order(crew, &(Order){ .kind = ORDER_STOP });
    *most = (Report){ 0 };
    return hear_all(crew, REPORT_DONE, note_done, most);
}

void crew_end(Crew *crew)
{
    const uint64_t deadline_ms = now_ms() + (crew->fault[0] == '\0' ? crew->peer_ms : 0);

    for (uint32_t rank = 0; rank < crew->ranks; rank++) close(crew->heard[rank].fd);
    for (uint32_t rank = 0; rank < crew->ranks; rank++) {
        const pid_t pid = crew->pid[rank];
        pid_t       ended = pid > 0 ? 0 : -1;
        while (ended == 0 && (ended = waitpid(pid, NULL, WNOHANG)) == 0 && now_ms() < deadline_ms) nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        if (ended == 0 && kill(pid, SIGKILL) == 0) waitpid(pid, NULL, 0);
    }
    if (crew->between != NULL) between_free(crew->between);
}

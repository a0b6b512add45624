/* Serve: a serving frontend that embeds kvgrid. It forks its workers (crew), reads requests from stdin and writes what was committed to stdout (wire), and
 * decides which tokens are staged next (schedule). It is no rank and touches no state: it links kvgrid for the ledger's pure functions.
 *
 *   stdin --lines--> serve --orders--> every worker: open, fork, close, step
 *   stdout <--lines-- serve <--outcomes-- the last stage's first rank
 *
 * Exit status: 0 all was served and stdin ended; 1 a worker was lost, or nobody reads the answers; 2 bad arguments. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "crew.h"
#include "options.h"
#include "schedule.h"
#include "wire.h"

enum { REFUSALS_MAX = 8, TURN_MS = 100, AWAY_NS = 5 * TURN_MS * 1000000 }; /* a turn waits TURN_MS at most */

typedef struct Serve {
    Options    options;
    Crew       crew;
    Schedule   schedule;
    WireReader reader;
    int        ended;  /* 1: stdin has ended */
    int        deaf;   /* 1: nobody reads stdout any more */
    uint64_t   steps, tokens, served, errors, from_ns;
    uint64_t   watched_ns; /* when the deadline was looked at last */
} Serve;

static volatile sig_atomic_t asked_to_stop;

/* Once asked to stop there is a tick every second: it gets a write out of waiting for a client that has stopped reading. */
static void on_signal(int signal_number)
{
    if (signal_number != SIGALRM) asked_to_stop = 1;
    alarm(1);
}

static void take_signals(void)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    action.sa_flags = 0;
    sigaction(SIGALRM, &action, NULL);
}

/* Whoever starts it with stdin or stdout closed gets neither a worker's socket nor the shared memory there: the one has ended, the other is not writable. */
static void hold_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)!open("/dev/null", O_RDONLY);
    }
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- what the schedule asks for */

static void send_order(void *user, const Order *order)
{
    crew_order(&((Serve *)user)->crew, order);
}

static void tell_tokens(void *user, const Request *request, uint64_t step, const uint16_t *tokens, uint32_t count, int done)
{
    Serve *serve = user;

    serve->tokens += count;
    serve->served += (uint64_t)done;
    serve->deaf |= wire_tokens(request->id, step, tokens, count, done) != 0;
}

static void tell_error(Serve *serve, const char *id, const char *why)
{
    serve->errors++;
    serve->deaf |= wire_error(id, why) != 0;
}

/* To everybody who still waits. */
static void tell_open(Serve *serve, const char *why)
{
    for (uint32_t i = 0; i < serve->schedule.request_count; i++) {
        if (!serve->schedule.request[i]->is_prompt) tell_error(serve, serve->schedule.request[i]->id, why);
    }
}

/* ---- clients */

static void take_line(Serve *serve, const WireLine *line)
{
    char why[512] = "";

    switch (line->kind) {
    case WIRE_BAD: tell_error(serve, line->id, line->why); break;
    case WIRE_ABORT:
        if (schedule_abort(&serve->schedule, line->id)) serve->deaf |= wire_aborted(line->id) != 0;
        else tell_error(serve, line->id, "no request of that id is open");
        break;
    case WIRE_REQUEST:
        if (line->system && serve->options.system == NULL) tell_error(serve, line->id, "there is no shared prompt: start with --system");
        else if (schedule_add(&serve->schedule, line, 0, why, sizeof why) != KVG_OK) tell_error(serve, line->id, why);
        break;
    }
}

static void take_lines(Serve *serve)
{
    const int got = wire_read(&serve->reader);
    char      why[128];

    if (got < 0) {
        snprintf(why, sizeof why, "stdin cannot be read: %s", strerror(errno));
        crew_blame(&serve->crew, -1, why);
    }
    serve->ended = got <= 0;
    while (wire_next(&serve->reader)) take_line(serve, &serve->reader.line);
}

static KvgStatus add_system(Serve *serve)
{
    static WireLine line;
    char            why[512];
    size_t          length = serve->options.system != NULL ? strlen(serve->options.system) : 0;
    KvgStatus       status;

    if (length == 0) return KVG_OK;
    line.prompt_count = (uint32_t)length;
    for (size_t i = 0; i < length && i < WIRE_TOKENS_MAX; i++) line.prompt[i] = (uint8_t)serve->options.system[i];
    status = schedule_add(&serve->schedule, &line, 1, why, sizeof why);
    if (status != KVG_OK) crew_blame(&serve->crew, -1, why);
    return status;
}

/* ---- workers */

static void take_outcome(Serve *serve, const Report *report)
{
    serve->steps++;
    if (schedule_outcome(&serve->schedule, report) != KVG_OK) crew_blame(&serve->crew, (int)report->rank, "its ledger is not the scheduler's");
    if (serve->schedule.refused_in_row == REFUSALS_MAX) crew_blame(&serve->crew, -1, report->words);
}

static void hear_workers(Serve *serve)
{
    Report report;

    for (uint32_t rank = 0; rank < serve->crew.ranks && serve->crew.fault[0] == '\0'; rank++) {
        if (crew_hear(&serve->crew, rank, &report) && report.kind == REPORT_OUTCOME) take_outcome(serve, &report);
    }
}

/* Workers have deadlines of their own and say who is silent; this one is for those that cannot say anything. Time in which the frontend itself was away,
 * stopped or held up by a client that does not read, is not theirs: their outcomes may wait in the sockets, and orders may have been late. */
static void watch_deadline(Serve *serve)
{
    const uint64_t most_ns = ((uint64_t)serve->crew.timeout_ms + serve->crew.peer_ms) * 1000000, now = now_ns(), passed_ns = now - serve->watched_ns;
    const uint64_t away_ns = passed_ns > AWAY_NS ? passed_ns : 0;

    serve->watched_ns = now;
    for (uint32_t lane = 0; lane < serve->schedule.lanes; lane++) {
        Lane *at = &serve->schedule.lane[lane];
        at->sent_ns = at->sent_ns + away_ns < now ? at->sent_ns + away_ns : now;
        if (at->busy && now - at->sent_ns > most_ns) crew_find_cause(&serve->crew, -1, "a step was not decided before the deadline");
    }
}

/* ---- life */

static int is_busy(const Serve *serve)
{
    int busy = 0;

    for (uint32_t lane = 0; lane < serve->schedule.lanes; lane++) busy |= serve->schedule.lane[lane].busy;
    for (uint32_t i = 0; i < serve->schedule.request_count; i++) busy |= !serve->schedule.request[i]->is_prompt;
    return busy;
}

static int goes_on(const Serve *serve)
{
    return serve->crew.fault[0] == '\0' && !serve->deaf && !asked_to_stop && !(serve->ended && !is_busy(serve));
}

static void serve_all(Serve *serve)
{
    struct pollfd ready[BETWEEN_RANKS_MAX + 1];
    const nfds_t  ranks = serve->crew.ranks;

    while (goes_on(serve)) {
        schedule_turn(&serve->schedule, now_ns());
        memcpy(ready, serve->crew.heard, ranks * sizeof *ready);
        ready[ranks] = (struct pollfd){ serve->ended ? -1 : serve->reader.fd, POLLIN, 0 };
        if (poll(ready, ranks + 1, TURN_MS) > 0) {
            memcpy(serve->crew.heard, ready, ranks * sizeof *ready);
            hear_workers(serve);
            if (ready[ranks].revents != 0) take_lines(serve);
        }
        watch_deadline(serve);
    }
}

static void summarize(Serve *serve, const Report *most)
{
    const Schedule *schedule = &serve->schedule;
    const double    seconds = (double)(now_ns() - serve->from_ns) * 1e-9;
    const char     *names[] = { "served", "tokens", "errors", "aborted", "steps", "refused", "preempted", "forked", "drafted", "kept", "bits", "booked_bytes",
                                "seconds", "steps_per_second", "step_us", "begin_and_post_us", "wait_us" };
    const double    values[] = { (double)serve->served, (double)serve->tokens, (double)serve->errors, (double)schedule->aborted, (double)serve->steps,
                                 (double)schedule->refused, (double)schedule->preempted, (double)schedule->forked, (double)schedule->drafted,
                                 (double)schedule->kept, (double)schedule->bits, (double)most->booked_bytes, seconds, (double)serve->steps / seconds, most->step_ns * 1e-3,
                                 most->library_ns * 1e-3, most->wait_ns * 1e-3 };

    serve->deaf |= wire_summary(names, values, sizeof values / sizeof *values) != 0;
}

/* Closes what is open; then every worker says what it still has booked, which is nothing. */
static void stop(Serve *serve)
{
    Report most;

    tell_open(serve, "the frontend was asked to stop");
    schedule_clear(&serve->schedule);
    if (crew_stop(&serve->crew, &most) != KVG_OK) return;
    if (most.booked_bytes != 0) crew_blame(&serve->crew, -1, "bytes are booked though nothing is open");
    if (serve->options.summary) summarize(serve, &most);
}

/* A fault: one line for it, one for everybody who waits. */
static void tell_fault(Serve *serve)
{
    serve->deaf |= wire_fault(serve->crew.fault_rank, serve->crew.fault) != 0;
    tell_open(serve, "a worker was lost; ask again");
}

static void begin(Serve *serve, const KvgLedger *ledger)
{
    const Options *options = &serve->options;

    serve->schedule = (Schedule){ .lanes = options->worker.lanes, .places = options->worker.places, .chunk = options->chunk, .spec = options->spec,
                                  .forks = options->forks, .send = send_order, .committed = tell_tokens, .user = serve, .ledger = *ledger, .empty = *ledger };
    serve->reader.fd = STDIN_FILENO;
    serve->from_ns = serve->watched_ns = now_ns();
}

int main(int argc, char **argv)
{
    static Serve serve;
    KvgLedger    ledger;
    int          status = options_read(argc, argv, &serve.options);

    if (status != 0) return status < 0 ? 0 : status;
    take_signals();
    hold_standard_files();
    if (crew_start(&serve.options.worker, &serve.crew, &ledger) == KVG_OK) {
        begin(&serve, &ledger);
        if (add_system(&serve) == KVG_OK) serve_all(&serve);
        if (serve.crew.fault[0] == '\0') stop(&serve);
    }
    if (serve.crew.fault[0] != '\0') tell_fault(&serve);
    crew_end(&serve.crew);
    schedule_clear(&serve.schedule);
    return serve.crew.fault[0] != '\0' || serve.deaf ? 1 : 0;
}

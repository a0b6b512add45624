#include "worker.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "forward.h"

#define TRY(call)                               \
    do {                                        \
        KvgStatus try_status = (call);          \
        if (try_status != KVG_OK) return try_status; \
    } while (0)

enum { SAMPLES = 4096 };

typedef struct Worker {
    const WorkerOptions *options;
    uint32_t             rank;
    int                  socket;
    const Transport     *transport;
    Between             *between;
    Model               *model;
    KvgGrid             *grid;
    KvgPlacement        *placement;
    KvgBatch            *batch[LANES_MAX];
    KvgSequence         *sequence[SEATS_MAX];
    Forward              forward;
    Order                order;
    Report               report;
    uint32_t             step_ns[SAMPLES], library_ns[SAMPLES], wait_ns[SAMPLES], samples; /* the last ones: a ring */
    int                  stopped; /* others may leave now: no loss */
} Worker;

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- coming up */

static void lost(void *user, int rank, const char *why)
{
    Worker *worker = user;

    if (worker->report.lost < 0) worker->report.lost = rank;
    between_abort(worker->between, why); /* whoever waits for that rank's partial sums comes back */
}

static KvgStatus turn(void *user)
{
    return kvg_grid_progress(((Worker *)user)->grid);
}

static KvgStatus make_grid(Worker *worker)
{
    KvgBootstrap     bootstrap;
    KvgGridOptions   options = KVG_GRID_OPTIONS_INIT;
    const KvgPolicy *policy;
    KvgStatus        status;

    TRY(kvg_policy_process(&policy));
    between_join(worker->between, worker->rank, policy->timeout_ms);
    TRY(transport_join(worker->transport, (int)worker->rank, policy->timeout_ms, &bootstrap));
    options.tp = worker->options->tp;
    options.pp = worker->options->pp;
    options.on_lost = lost;
    options.user = worker;
    status = kvg_grid_create(&bootstrap, &options, &worker->grid);
    transport_leave(worker->transport, &bootstrap);
    return status;
}

static KvgStatus place(Worker *worker)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    ModelConfig     config;
    const char     *json = model_config_json();
    KvgStatus       status;

    TRY(kvg_model_config_parse_json(json, strlen(json), "the embedding's model", &config));
    options.format_k = worker->options->format_k;
    options.format_v = worker->options->format_v;
    options.memory_bytes = options.memory_max_bytes = worker->options->memory_bytes;
    options.max_sequences = worker_seats(worker->options);
    options.max_step_sequences = worker->options->places;
    status = kvg_place(worker->grid, &config, &options, &worker->placement);
    kvg_model_config_free(&config);
    return status;
}

static KvgStatus come_up(Worker *worker)
{
    TRY(make_grid(worker));
    TRY(place(worker));
    for (uint32_t lane = 0; lane < worker->options->lanes; lane++) {
        TRY(kvg_batch_create(worker->placement, worker->options->places, &worker->batch[lane]));
    }
    worker->model = model_create(worker->options->seed);
    if (worker->model == NULL) return KVG_ENOMEM;
    TRY(forward_create(worker->grid, worker->placement, worker->model, worker->between, &worker->forward));
    between_turn(worker->between, turn, worker);
    return KVG_OK;
}

static void go_down(Worker *worker)
{
    forward_free(&worker->forward);
    model_free(worker->model);
    for (uint32_t lane = 0; lane < worker->options->lanes; lane++) kvg_batch_destroy(worker->batch[lane]);
    kvg_placement_destroy(worker->placement);
    kvg_grid_destroy(worker->grid);
}

/* ---- telling the frontend */

static int is_last_stage(const Worker *worker)
{
    return kvg_grid_stage(worker->grid) + 1 == worker->options->pp;
}

static void tell(Worker *worker, ReportKind kind)
{
    worker->report.kind = kind;
    worker->report.rank = worker->rank;
    (void)!send(worker->socket, &worker->report, sizeof worker->report, MSG_NOSIGNAL); /* a frontend that is gone hears nothing */
}

/* A loss is best known to who waited for the peer; all else has its own sentence, also where a peer that failed alike has left by now. */
static void tell_fault(Worker *worker, KvgStatus status)
{
    const char *between = between_why(worker->between);
    const int   is_loss = status == KVG_EPEER || status == KVG_EINDOUBT;

    worker->report.status = status;
    snprintf(worker->report.words, sizeof worker->report.words, "%s: %s", kvg_status_name(status), is_loss && between[0] != '\0' ? between : kvg_last_error());
    tell(worker, REPORT_FAULT);
}

static int compare(const void *a, const void *b)
{
    return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : *(const uint32_t *)a > *(const uint32_t *)b;
}

static uint32_t median(uint32_t *ns, uint32_t samples)
{
    uint32_t count = samples < SAMPLES ? samples : SAMPLES;

    qsort(ns, count, sizeof *ns, compare);
    return count > 0 ? ns[count / 2] : 0;
}

static KvgStatus tell_done(Worker *worker)
{
    KvgStats stats = { .size = sizeof stats };

    TRY(kvg_stats(worker->placement, &stats));
    worker->report.booked_bytes = stats.booked_bytes;
    worker->report.step_ns = median(worker->step_ns, worker->samples);
    worker->report.library_ns = median(worker->library_ns, worker->samples);
    worker->report.wait_ns = median(worker->wait_ns, worker->samples);
    worker->stopped = 1;
    tell(worker, REPORT_DONE);
    return KVG_OK;
}

/* ---- a step */

/* Greedy: a draft is kept while it is what the model says after the row before it. */
static void accept_place(const OrderPlace *asked, uint32_t granted, const uint16_t *token, const uint16_t *next, const uint64_t *bits, ReportPlace *result)
{
    const uint32_t known = asked->rows - asked->drafts;

    result->accepted = result->count = 0;
    result->bits = 0;
    if (granted == 0) return;
    result->accepted = (uint16_t)known;
    while (result->accepted < asked->rows && token[result->accepted] == next[result->accepted - 1]) result->accepted++;
    for (uint32_t row = known - 1; asked->samples && row < result->accepted; row++) {
        result->token[result->count++] = next[row];
        result->bits += bits[row];
    }
}

/* What the last stage knows: rows to keep, and a word over what it has computed, so that its ranks cannot go apart unseen. */
static void accept_step(Worker *worker, const KvgStep *step, const Found *found, uint32_t accepted[PLACES_MAX], uint64_t *digest)
{
    const Order    *order = &worker->order;
    const uint32_t *rows = kvg_step_rows(step);
    const uint16_t *token = order->token;

    *digest = 1;
    for (uint32_t place = 0, t = 0; place < order->place_count; t += rows[place++]) {
        ReportPlace *result = &worker->report.place[place];
        accept_place(&order->place[place], rows[place], token, found->next + t, found->bits + t, result);
        accepted[place] = result->accepted;
        *digest = (*digest ^ result->bits) * UINT64_C(0x100000001b3) + 1;
        token += order->place[place].rows;
    }
}

static KvgStatus begin_step(Worker *worker, KvgBatch *batch, KvgStep **step)
{
    const Order *order = &worker->order;
    uint32_t     rows[PLACES_MAX] = { 0 };

    for (uint32_t place = 0; place < worker->options->places; place++) {
        const int taken = place < order->place_count;
        TRY(kvg_batch_set(batch, place, taken ? worker->sequence[order->place[place].seat] : NULL));
        rows[place] = taken ? order->place[place].rows : 0;
    }
    TRY(kvg_step_begin(batch, rows, step));
    for (uint32_t place = 0; place < order->place_count; place++) worker->report.place[place].refusal = kvg_step_refusal(*step, place);
    return KVG_OK;
}

static void note_times(Worker *worker, uint64_t step_ns, uint64_t library_ns, uint64_t wait_ns)
{
    const uint32_t at = worker->samples++ % SAMPLES;

    worker->step_ns[at] = (uint32_t)step_ns;
    worker->library_ns[at] = (uint32_t)library_ns;
    worker->wait_ns[at] = (uint32_t)wait_ns;
}

/* The last stage's first rank waits for the vote and tells the frontend; the others learn of it in their next begin, and go on. */
static KvgStatus end_step(Worker *worker, KvgStep *step, uint64_t begun_ns, uint64_t library_ns)
{
    const uint64_t posted_ns = now_ns();
    KvgOutcome     outcome = { .size = sizeof outcome };
    KvgStatus      status;

    if (!is_last_stage(worker) || kvg_grid_tp_rank(worker->grid) != 0) return KVG_OK;
    status = kvg_step_wait(step, &outcome);
    if (status == KVG_EINDOUBT || status == KVG_EPEER) return status;
    note_times(worker, now_ns() - begun_ns, library_ns, now_ns() - posted_ns);
    worker->report.lane = worker->order.lane;
    worker->report.step = outcome.step;
    worker->report.status = status;
    snprintf(worker->report.words, sizeof worker->report.words, "%s", status == KVG_OK ? "" : kvg_last_error());
    kvg_placement_ledger(worker->placement, &worker->report.ledger);
    tell(worker, REPORT_OUTCOME);
    return KVG_OK;
}

static KvgStatus do_step(Worker *worker)
{
    KvgBatch *batch = worker->batch[worker->order.lane];
    KvgCommit commit = KVG_COMMIT_INIT;
    Found     found;
    uint32_t  accepted[PLACES_MAX] = { 0 };
    uint64_t  begun_ns = now_ns(), library_ns, post_ns;
    KvgStep  *step;

    TRY(begin_step(worker, batch, &step));
    library_ns = now_ns() - begun_ns;
    TRY(forward_step(&worker->forward, batch, step, &worker->order, &found));
    if (is_last_stage(worker)) {
        accept_step(worker, step, &found, accepted, &commit.user_digest);
        commit.accepted = accepted;
    }
    if ((int)worker->rank == worker->options->refuse_rank && kvg_step_number(step) == worker->options->refuse_step) commit.refuse = KVG_EDEVICE;
    post_ns = now_ns();
    TRY(kvg_step_post(step, &commit));
    return end_step(worker, step, begun_ns, library_ns + now_ns() - post_ns);
}

/* ---- orders */

static KvgStatus do_fork(Worker *worker)
{
    const Order *order = &worker->order;

    TRY(kvg_sequence_fork(worker->sequence[order->from], order->shared, order->id, &worker->sequence[order->seat]));
    return kvg_sequence_book(worker->sequence[order->seat], order->rows);
}

static KvgStatus obey(Worker *worker)
{
    const Order *order = &worker->order;

    switch (order->kind) {
    case ORDER_OPEN: return kvg_sequence_open(worker->placement, order->id, order->rows, &worker->sequence[order->seat]);
    case ORDER_FORK: return do_fork(worker);
    case ORDER_CLOSE: return kvg_sequence_close(worker->sequence[order->seat], NULL);
    case ORDER_STEP: return do_step(worker);
    case ORDER_STOP: return tell_done(worker); /* and waits until the frontend has heard all: whoever leaves first would be a loss to the others */
    }
    return KVG_EINVAL;
}

/* The next order; *gone when the frontend has hung up. Between orders the grid gives its signs of life. */
static KvgStatus next_order(Worker *worker, int *gone)
{
    struct pollfd ready = { worker->socket, POLLIN, 0 };

    while (poll(&ready, 1, worker->stopped ? -1 : 20) == 0) TRY(kvg_grid_progress(worker->grid));
    *gone = recv(worker->socket, &worker->order, sizeof worker->order, 0) != (ssize_t)sizeof worker->order;
    return KVG_OK;
}

int worker_run(const WorkerOptions *options, uint32_t rank, int socket, const Transport *transport)
{
    Worker   *worker = calloc(1, sizeof *worker);
    KvgStatus status;
    int       gone = 0;

    if (worker == NULL) return 1;
    *worker = (Worker){ .options = options, .rank = rank, .socket = socket, .transport = transport, .between = transport->between,
                        .report.lost = -1 };
    status = come_up(worker);
    if (status == KVG_OK) {
        kvg_placement_ledger(worker->placement, &worker->report.ledger);
        tell(worker, REPORT_READY);
    }
    while (status == KVG_OK) {
        status = next_order(worker, &gone);
        if (gone) break;
        if (status == KVG_OK) status = obey(worker);
    }
    if (status != KVG_OK) tell_fault(worker, status);
    go_down(worker);
    free(worker);
    return status == KVG_OK ? 0 : 1;
}

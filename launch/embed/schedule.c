#include "schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void send_order(Schedule *schedule, const Order *order)
{
    schedule->orders++;
    schedule->send(schedule->user, order);
}

static Request *find(const Schedule *schedule, const char *id)
{
    for (uint32_t i = 0; i < schedule->request_count; i++) {
        if (!schedule->request[i]->is_prompt && strcmp(schedule->request[i]->id, id) == 0) return schedule->request[i];
    }
    return NULL;
}

static Request *shared_prompt(const Schedule *schedule)
{
    return schedule->request_count > 0 && schedule->request[0]->is_prompt ? schedule->request[0] : NULL;
}

/* ---- the ledger's side of a request: full chunks that are the shared prompt's are counted once, with it */

static KvgStatus book(KvgLedger *ledger, uint32_t shared, uint32_t rows)
{
    KvgLedger try = *ledger;
    KvgStatus status = kvg_ledger_admit(&try, 0); /* a slot */

    if (status == KVG_OK) status = kvg_ledger_grow(&try, shared, rows);
    if (status == KVG_OK) *ledger = try;
    return status;
}

static void release(KvgLedger *ledger, uint32_t shared, uint32_t rows)
{
    kvg_ledger_close(ledger, rows);
    (void)kvg_ledger_grow(ledger, 0, shared); /* cannot fail: close has just given more back */
}

/* ---- requests come and go */

static KvgStatus check_fits(const Schedule *schedule, const Request *request)
{
    KvgLedger      ledger = schedule->empty;
    const Request *prompt = shared_prompt(schedule);

    if (prompt != NULL) {
        KvgStatus status = book(&ledger, 0, prompt->count);
        if (status != KVG_OK) return status;
    }
    return book(&ledger, request->shares ? prompt->count / KVG_CHUNK_ROWS * KVG_CHUNK_ROWS : 0, request->end);
}

static KvgStatus check_new(const Schedule *schedule, const WireLine *line, uint32_t before, char *why, size_t size)
{
    if (schedule->request_count == REQUESTS_MAX) {
        snprintf(why, size, "%d requests are open already; wait for one to end", REQUESTS_MAX);
        return KVG_EBUSY;
    }
    if (find(schedule, line->id) != NULL) {
        snprintf(why, size, "a request of that id is open already");
        return KVG_EINVAL;
    }
    if (before + (uint64_t)line->prompt_count + line->max_tokens > MODEL_CONTEXT) {
        snprintf(why, size, "%u tokens of prompt and %u to come are more than the context of %d", before + line->prompt_count, line->max_tokens, MODEL_CONTEXT);
        return KVG_ECAPACITY;
    }
    return KVG_OK;
}

KvgStatus schedule_add(Schedule *schedule, const WireLine *line, int is_prompt, char *why, size_t size)
{
    const Request *prompt = line->system ? shared_prompt(schedule) : NULL;
    const uint32_t before = prompt != NULL ? prompt->count : 0;
    KvgStatus      status = check_new(schedule, line, before, why, size);
    Request       *request = status == KVG_OK ? calloc(1, sizeof *request) : NULL;

    if (status != KVG_OK) return status;
    if (request == NULL) {
        snprintf(why, size, "the frontend is out of memory");
        return KVG_ENOMEM;
    }
    snprintf(request->id, sizeof request->id, "%s", line->id);
    request->is_prompt = is_prompt;
    request->shares = prompt != NULL && schedule->forks;
    if (prompt != NULL) memcpy(request->token, prompt->token, before * sizeof *request->token);
    memcpy(request->token + before, line->prompt, line->prompt_count * sizeof *request->token);
    request->count = before + line->prompt_count;
    request->end = request->count + line->max_tokens;
    status = check_fits(schedule, request);
    if (status != KVG_OK) {
        snprintf(why, size, "it never fits: %s", kvg_last_error());
        free(request);
        return status;
    }
    schedule->request[schedule->request_count++] = request;
    return KVG_OK;
}

/* Out of the cache, in any state: a step that is undecided goes on without it. */
static void leave(Schedule *schedule, Request *request)
{
    Order order = { .kind = ORDER_CLOSE, .seat = request->seat };
    Lane *lane = &schedule->lane[request->lane];

    if (!request->running) return;
    send_order(schedule, &order);
    release(&schedule->ledger, request->shared, request->booked);
    schedule->seat_taken[request->seat] = 0;
    for (uint32_t i = 0; i < lane->place_count; i++) {
        if (lane->place[i] == request) lane->place[i] = NULL;
    }
    request->running = 0;
    request->rows = request->booked = request->shared = 0;
}

static void drop(Schedule *schedule, Request *request)
{
    uint32_t at = 0;

    leave(schedule, request);
    while (schedule->request[at] != request) at++;
    memmove(&schedule->request[at], &schedule->request[at + 1], (--schedule->request_count - at) * sizeof *schedule->request);
    free(request);
}

int schedule_abort(Schedule *schedule, const char *id)
{
    Request *request = find(schedule, id);

    if (request == NULL) return 0;
    drop(schedule, request);
    schedule->aborted++;
    return 1;
}

void schedule_clear(Schedule *schedule)
{
    while (schedule->request_count > 0) drop(schedule, schedule->request[schedule->request_count - 1]); /* the shared prompt last */
}

/* ---- admission */

/* Those who want a place in its steps; the shared prompt wants none any more once it is computed. */
static uint32_t running_in(const Schedule *schedule, uint32_t lane)
{
    uint32_t running = 0;

    for (uint32_t i = 0; i < schedule->request_count; i++) {
        const Request *request = schedule->request[i];
        running += request->running && request->lane == lane && !(request->is_prompt && request->rows == request->count);
    }
    return running;
}

static uint32_t emptiest_lane(const Schedule *schedule)
{
    uint32_t best = 0;

    for (uint32_t lane = 1; lane < schedule->lanes; lane++) {
        if (running_in(schedule, lane) < running_in(schedule, best)) best = lane;
    }
    return best;
}

/* 1 if it runs now. What is known of it is booked at once, so that a prompt which has begun is not turned out for want of chunks by itself. */
static int admit(Schedule *schedule, Request *request)
{
    const Request *prompt = request->shares ? shared_prompt(schedule) : NULL;
    const uint32_t lane = emptiest_lane(schedule), shared = prompt != NULL ? prompt->count / KVG_CHUNK_ROWS * KVG_CHUNK_ROWS : 0;
    uint32_t       seat = 0;
    Order          order;

    if (prompt != NULL && prompt->rows < prompt->count) return 0; /* its rows are not there yet */
    if (running_in(schedule, lane) == schedule->places) return 0;
    if (book(&schedule->ledger, shared, request->count) != KVG_OK) return 0;
    while (schedule->seat_taken[seat]) seat++;
    schedule->seat_taken[seat] = 1;
    request->running = 1;
    request->number = ++schedule->numbers;
    request->lane = lane;
    request->seat = seat;
    request->shared = shared;
    request->rows = prompt != NULL ? prompt->count : 0;
    request->booked = request->count;
    order = (Order){ .kind = prompt != NULL ? ORDER_FORK : ORDER_OPEN, .seat = seat, .from = prompt != NULL ? prompt->seat : 0, .id = request->number,
                     .shared = request->rows, .rows = request->count };
    schedule->forked += prompt != NULL;
    send_order(schedule, &order);
    return 1;
}

/* ---- a lane's next step */

/* Chunks for `rows` rows: from the youngest, itself at last. 0 if it had to go. */
static int make_room(Schedule *schedule, Request *request, uint32_t rows)
{
    while (kvg_ledger_grow(&schedule->ledger, request->booked, rows) != KVG_OK) {
        uint32_t youngest = schedule->request_count - 1;
        while (!schedule->request[youngest]->running) youngest--;
        leave(schedule, schedule->request[youngest]);
        schedule->preempted++;
        if (schedule->request[youngest] == request) return 0;
    }
    if (rows > request->booked) request->booked = rows;
    return 1;
}

/* A draft by lookup: what followed the last two tokens when they stood together before. */
static uint32_t draft(const Request *request, uint32_t most, uint16_t *drafts)
{
    const uint16_t *token = request->token, *last = token + request->count - 1;

    for (const uint16_t *at = last - 1; request->count > 2 && most > 0 && at > token; at--) {
        if (at[0] != last[0] || at[-1] != last[-1]) continue;
        most = least(most, (uint32_t)(last - at));
        memcpy(drafts, at + 1, most * sizeof *drafts);
        return most;
    }
    return 0;
}

static void stage(Schedule *schedule, Lane *lane, Request *request, Order *order)
{
    const uint32_t known = request->count - request->rows, room = STEP_TOKENS_MAX - order->token_count;
    const uint32_t rows = least(least(known, schedule->chunk), room);
    const int      samples = rows == known && request->count < request->end;
    uint16_t       drafts[SPEC_MAX];
    uint32_t       drafted = 0;

    if (rows == 0) return;
    if (samples) drafted = draft(request, least(least(schedule->spec, request->end - request->count - 1), room - rows), drafts);
    if (!make_room(schedule, request, request->rows + rows + drafted)) return;
    memcpy(order->token + order->token_count, request->token + request->rows, rows * sizeof *drafts);
    memcpy(order->token + order->token_count + rows, drafts, drafted * sizeof *drafts);
    order->token_count += rows + drafted;
    order->place[order->place_count] = (OrderPlace){ (uint16_t)request->seat, (uint16_t)(rows + drafted), (uint16_t)drafted, (uint16_t)samples };
    lane->place[order->place_count++] = request;
    lane->place_count = order->place_count;
    schedule->drafted += drafted;
}

static void send_step(Schedule *schedule, uint32_t index, uint64_t now_ns)
{
    Lane *lane = &schedule->lane[index];
    Order order = { .kind = ORDER_STEP, .lane = index };

    lane->place_count = 0;
    for (uint32_t i = 0; i < schedule->request_count && order.place_count < schedule->places; i++) {
        Request *request = schedule->request[i];
        if (request->running && request->lane == index) stage(schedule, lane, request, &order);
    }
    if (order.place_count == 0) return;
    send_order(schedule, &order);
    lane->busy = 1;
    lane->sent_ns = now_ns;
    lane->order = schedule->orders;
}

void schedule_turn(Schedule *schedule, uint64_t now_ns)
{
    for (uint32_t i = 0; i < schedule->request_count; i++) { /* in order of arrival: nobody overtakes one who waits for chunks */
        if (!schedule->request[i]->running && !admit(schedule, schedule->request[i])) break;
    }
    for (uint32_t lane = 0; lane < schedule->lanes; lane++) {
        if (!schedule->lane[lane].busy) send_step(schedule, lane, now_ns);
    }
}

/* ---- what became of it */

static void advance(Schedule *schedule, Request *request, uint64_t step, const ReportPlace *result)
{
    request->rows += result->accepted;
    if (result->count == 0) return;
    memcpy(request->token + request->count, result->token, result->count * sizeof *result->token);
    request->count += result->count;
    schedule->kept += result->count - 1u;
    schedule->bits = (schedule->bits + result->bits) % (UINT64_C(1) << 52);
    schedule->committed(schedule->user, request, step, result->token, result->count, request->count == request->end);
    if (request->count == request->end) drop(schedule, request);
}

KvgStatus schedule_outcome(Schedule *schedule, const Report *report)
{
    Lane     *lane = &schedule->lane[report->lane];
    const int alone = lane->order == schedule->orders; /* nothing was ordered since: the worker's ledger is the scheduler's */

    if (alone && memcmp(report->ledger.units_free, schedule->ledger.units_free, sizeof report->ledger.units_free) != 0) return KVG_EREFUSED;
    lane->busy = 0;
    schedule->refused += report->status != KVG_OK;
    schedule->refused_in_row = report->status != KVG_OK ? schedule->refused_in_row + 1 : 0;
    for (uint32_t i = 0; i < lane->place_count; i++) {
        Request *request = lane->place[i];
        if (request == NULL) continue; /* aborted or preempted meanwhile */
        if (report->place[i].refusal != KVG_OK) leave(schedule, request); /* it is computed again */
        else if (report->status == KVG_OK) advance(schedule, request, report->step, &report->place[i]);
    }
    lane->place_count = 0;
    return KVG_OK;
}

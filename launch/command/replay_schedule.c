/* Replay's schedule: pure rules of turns, samples and the admission queue.
 *
 *   WAITING --admit--> RUNNING --close--> DONE        RUNNING --turn out--> WAITING        WAITING --refuse--> REFUSED */
#include "launch/command/replay_schedule.h"

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/base/mix.h"

ReplayRequest kvg_replay_clip(ReplayRequest request, uint64_t max_tokens)
{
    if (max_tokens == REPLAY_NO_LIMIT) {
        return request;
    }
    ReplayRequest clipped;
    clipped.generated = kvg_min_u64(request.generated, max_tokens / 2);
    clipped.context = kvg_min_u64(request.context, max_tokens - clipped.generated);
    return clipped;
}

uint64_t kvg_replay_total(const ReplayRequest *request)
{
    return request->context + request->generated;
}

uint32_t kvg_replay_accepted(uint64_t seed, uint64_t request, uint64_t round, uint32_t spec)
{
    KVG_ASSERT(spec >= 1);
    uint64_t draw = kvg_mix64(kvg_mix64(kvg_mix64(seed + 0x5bec) ^ request) ^ round);
    return 1 + (uint32_t)((draw >> 32) % spec);
}

static uint32_t round_rows(const ReplayPace *pace)
{
    return pace->spec > 1 ? pace->spec : 1;
}

uint32_t kvg_replay_round_rows_max(const ReplayPace *pace)
{
    return 2 * round_rows(pace);
}

ReplayTurn kvg_replay_turn(const ReplayPace *pace, const ReplayRequest *request, uint64_t index, uint64_t committed, uint32_t owed,
                           uint64_t round)
{
    const uint64_t total = kvg_replay_total(request);
    const uint32_t spec = round_rows(pace);
    KVG_ASSERT(pace->chunk >= 1);
    KVG_ASSERT(committed <= total);
    ReplayTurn turn = { owed, 0, 0, committed >= request->context };
    KVG_ASSERT(owed == 0 || turn.decode);
    KVG_ASSERT(owed < kvg_replay_round_rows_max(pace));
    if (!turn.decode) {
        turn.rows = (uint32_t)kvg_min_u64(pace->chunk, request->context - committed);
        turn.accepted = turn.rows;
    } else if (committed < total && owed <= spec) {
        turn.rows = (uint32_t)kvg_min_u64(spec, total - committed);
        turn.accepted = (uint32_t)kvg_min_u64(turn.rows, kvg_replay_accepted(pace->seed, index, round, spec));
    }
    return turn;
}

/* Keeps `rows` ascending and distinct; a row outside [first, len) is left out. */
static size_t add_sample(uint64_t row, uint64_t first, uint64_t len, uint64_t *rows, size_t count)
{
    if (row < first || row >= len || count == REPLAY_SAMPLES_MAX) {
        return count;
    }
    size_t at = count;
    while (at > 0 && rows[at - 1] >= row) {
        at--;
    }
    if (at < count && rows[at] == row) {
        return count;
    }
    for (size_t i = count; i > at; i--) {
        rows[i] = rows[i - 1];
    }
    rows[at] = row;
    return count + 1;
}

size_t kvg_replay_sample_rows(uint64_t seed, uint64_t index, uint64_t first, uint64_t len, uint64_t rows[REPLAY_SAMPLES_MAX])
{
    enum { CHUNK = 64, DRAWN = 6 };
    if (len <= first) {
        return 0;
    }
    const uint64_t edge = (first / CHUNK + 1) * CHUNK, last_edge = (len - 1) / CHUNK * CHUNK;
    const uint64_t edges[] = { first, first + 1, edge - 1, edge, last_edge - (last_edge > 0), last_edge, len - 2 + (len == 1), len - 1 };
    size_t count = 0;
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        count = add_sample(edges[i], first, len, rows, count);
    }
    for (uint64_t draw = 0; draw < DRAWN; draw++) {
        uint64_t row = first + kvg_mix_term(draw, index, len, seed) % (len - first);
        count = add_sample(row, first, len, rows, count);
    }
    return count;
}

KvgStatus kvg_replay_queue_create(uint64_t count, ReplayQueue *queue)
{
    void *states = NULL, *turned_out = NULL;
    KVG_TRY(kvg_calloc(count, 1, "the requests' states", &states));
    KvgStatus status = KVG_OK;
    KVG_TRY_GOTO(kvg_calloc(count, 1, "the requests' marks", &turned_out), err_free_states);
    *queue = (ReplayQueue){ .states = states, .turned_out = turned_out, .count = count, .open = count };
    return KVG_OK;
err_free_states:
    kvg_free(states);
    return status;
}

void kvg_replay_queue_free(ReplayQueue *queue)
{
    kvg_free(queue->states);
    kvg_free(queue->turned_out);
    *queue = (ReplayQueue){ 0 };
}

uint64_t kvg_replay_queue_next(ReplayQueue *queue)
{
    while (queue->first_waiting < queue->count && queue->states[queue->first_waiting] != REPLAY_WAITING) {
        queue->first_waiting++;
    }
    return queue->first_waiting;
}

void kvg_replay_queue_set(ReplayQueue *queue, uint64_t index, ReplayState state)
{
    static const uint8_t next[] = {
        [REPLAY_WAITING] = 1 << REPLAY_RUNNING | 1 << REPLAY_REFUSED,
        [REPLAY_RUNNING] = 1 << REPLAY_WAITING | 1 << REPLAY_DONE,
        [REPLAY_DONE] = 0,
        [REPLAY_REFUSED] = 0,
    };
    KVG_ASSERT(index < queue->count);
    KVG_ASSERT(next[queue->states[index]] & 1 << state);
    queue->states[index] = (uint8_t)state;
    if (state == REPLAY_WAITING) {
        queue->turned_out[index] = 1;
        queue->first_waiting = kvg_min_u64(queue->first_waiting, index);
    }
    if (state == REPLAY_DONE || state == REPLAY_REFUSED) {
        queue->open--;
    }
}

uint64_t kvg_replay_queue_booking(const ReplayQueue *queue, uint64_t index, const ReplayRequest *request)
{
    return queue->turned_out[index] ? kvg_replay_total(request) : request->context;
}

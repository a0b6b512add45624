/* Replay's lanes. */
#include "launch/command/replay_lane.h"

#include <inttypes.h>
#include <string.h>

#include "launch/command/replay_write.h"
#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/base/mix.h"
#include "runtime/comm/clock.h"

KvgStatus kvg_replay_lane_create(ReplayShared *shared, uint32_t seats, ReplayLane *lane)
{
    ReplayLane made = { .count = seats };
    KvgStatus  status = KVG_OK;
    KVG_TRY_GOTO(KVG_NEW(seats, "the seats of a batch", &made.seats), err_free);
    KVG_TRY_GOTO(KVG_NEW(seats, "the rows of a step", &made.asked), err_free);
    KVG_TRY_GOTO(KVG_NEW(seats, "the accepted rows of a step", &made.accepted), err_free);
    KVG_TRY_GOTO(kvg_batch_create(shared->placement, seats, &made.batch), err_free);
    *lane = made;
    return KVG_OK;
err_free:
    kvg_replay_lane_free(&made);
    return status;
}

void kvg_replay_lane_free(ReplayLane *lane)
{
    if (lane->batch != NULL) {
        kvg_batch_destroy(lane->batch);
    }
    kvg_free(lane->seats);
    kvg_free(lane->asked);
    kvg_free(lane->accepted);
    *lane = (ReplayLane){ 0 };
}

KvgStatus kvg_replay_note_bytes(ReplayShared *shared)
{
    KvgStats stats = { .size = sizeof stats };
    KVG_TRY(kvg_stats_quick(shared->placement, &stats));
    kvg_replay_series_note(&shared->series, &shared->seen, kvg_clock_ns(), &stats);
    shared->peak.content = kvg_max_u64(shared->peak.content, stats.content_bytes);
    shared->peak.booked = kvg_max_u64(shared->peak.booked, stats.booked_bytes);
    if (stats.taken_bytes > shared->peak.taken) {
        shared->peak.taken = stats.taken_bytes;
        KVG_TRY(kvg_replay_device_driver(shared->device, &shared->driver));
    }
    return KVG_OK;
}

/* For want of memory the rest goes uncounted: that is no reason for this rank to leave the others. */
static void note_latency(ReplayLatencies *latencies, uint64_t ns)
{
    if (latencies->count == latencies->capacity) {
        size_t capacity = latencies->capacity != 0 ? 2 * latencies->capacity : 1024;
        void  *memory = NULL;
        if (kvg_calloc(capacity, sizeof *latencies->ns, "the votes' latencies", &memory) != KVG_OK) {
            return;
        }
        if (latencies->count != 0) {
            memcpy(memory, latencies->ns, latencies->count * sizeof *latencies->ns);
        }
        kvg_free(latencies->ns);
        latencies->ns = memory;
        latencies->capacity = capacity;
    }
    latencies->ns[latencies->count++] = ns;
}

static KvgStatus slot_of(const KvgSequence *sequence, uint32_t *slot)
{
    KvgSequenceInfo info = { .size = sizeof info };
    KVG_TRY(kvg_sequence_info(sequence, &info));
    *slot = info.slot;
    return KVG_OK;
}

/* Empties the seat: the handle is dead afterwards. */
static KvgStatus leave(ReplayShared *shared, ReplayLane *lane, uint32_t seat, ReplayState next)
{
    ReplaySeat *at = &lane->seats[seat];
    KVG_TRY(kvg_batch_set(lane->batch, seat, NULL));
    KVG_TRY(kvg_sequence_close(at->sequence, NULL));
    kvg_replay_queue_set(&shared->queue, at->request, next);
    *at = (ReplaySeat){ 0 };
    shared->running--;
    return KVG_OK;
}

/* All rows are committed: check, digest, close. */
static KvgStatus retire(ReplayShared *shared, ReplayLane *lane, uint32_t seat)
{
    const ReplaySeat *at = &lane->seats[seat];
    if (shared->options->verify) {
        uint32_t slot = 0;
        KVG_TRY(slot_of(at->sequence, &slot));
        kvg_replay_check_sequence(&shared->check, &shared->planes, &shared->sight, &shared->maker, at->request, slot, at->committed);
    }
    KVG_TRY(kvg_replay_digests_add(&shared->digests, at->request, at->committed, at->sequence));
    shared->hold = 0;
    return leave(shared, lane, seat, REPLAY_DONE);
}

KvgStatus kvg_replay_lane_turn_out(ReplayShared *shared, ReplayLane *lane, uint32_t seat)
{
    const ReplaySeat *at = &lane->seats[seat];
    KVG_ASSERT(lane->step == NULL && at->sequence != NULL);
    if (shared->fault.kind == REPLAY_FAULT_FLIP && shared->fault_done && shared->flipped == at->request) {
        shared->fault_done = 0; /* the flipped row goes with it */
    }
    shared->rows -= at->committed;
    if (shared->trail.kept) {
        kvg_replay_trail_set(&shared->trail, at->request, (ReplayTrailPoint){ 0 });
    }
    shared->turned_out++;
    return leave(shared, lane, seat, REPLAY_WAITING);
}

KvgStatus kvg_replay_lane_admit(ReplayShared *shared, ReplayLane *lane, int *moved)
{
    for (uint32_t seat = 0; seat < lane->count; seat++) {
        ReplaySeat *at = &lane->seats[seat];
        uint64_t    next = kvg_replay_queue_next(&shared->queue);
        if (shared->hold || next == shared->queue.count || shared->running == shared->concurrency) {
            return KVG_OK;
        }
        if (at->sequence != NULL) {
            continue;
        }
        uint64_t  rows = kvg_replay_queue_booking(&shared->queue, next, &shared->requests[next]);
        KvgStatus status = kvg_sequence_open(shared->placement, next, rows, &at->sequence);
        if (status == KVG_ECAPACITY || status == KVG_EBUSY) { /* memory delays it: until something closes */
            at->sequence = NULL;
            return KVG_OK;
        }
        KVG_TRY(status);
        at->request = next;
        shared->running++;
        kvg_replay_queue_set(&shared->queue, next, REPLAY_RUNNING);
        KVG_TRY(kvg_batch_set(lane->batch, seat, at->sequence));
        *moved = 1;
        if (kvg_replay_total(&shared->requests[next]) == 0) { /* nothing to step */
            KVG_TRY(retire(shared, lane, seat));
        }
    }
    return KVG_OK;
}

/* Fills `asked` and the seats' turns; the number of rows in all. Decode rounds always have their place in a step; prompts share
 * the rest. */
static uint64_t plan_turns(const ReplayShared *shared, ReplayLane *lane)
{
    uint64_t rows = 0, prompt_room = shared->prompt_rows;
    for (uint32_t seat = 0; seat < lane->count; seat++) {
        ReplaySeat *at = &lane->seats[seat];
        lane->asked[seat] = 0;
        if (at->sequence == NULL) {
            continue;
        }
        at->turn = kvg_replay_turn(&shared->pace, &shared->requests[at->request], at->request, at->committed, at->owed, at->round);
        if (!at->turn.decode) {
            at->turn.rows = at->turn.accepted = (uint32_t)kvg_min_u64(at->turn.rows, prompt_room);
            prompt_room -= at->turn.rows;
        }
        lane->asked[seat] = at->turn.replay + at->turn.rows;
        rows += lane->asked[seat];
    }
    return rows;
}

/* Takes the seats that begin left out off the step. Want of memory is a delay; anything else fails the run, the same on every rank. */
static KvgStatus take_refusals(ReplayLane *lane, uint64_t *granted)
{
    const uint32_t *rows = kvg_step_rows(lane->step);
    KvgStatus       worst = KVG_OK;
    *granted = 0;
    for (uint32_t seat = 0; seat < lane->count; seat++) {
        ReplaySeat *at = &lane->seats[seat];
        if (lane->asked[seat] == 0) {
            continue;
        }
        KvgStatus refusal = kvg_step_refusal(lane->step, seat);
        if (refusal != KVG_OK) {
            at->turn = (ReplayTurn){ 0 };
            if (refusal != KVG_ECAPACITY && worst == KVG_OK) {
                worst = kvg_fail(refusal, "request %" PRIu64 " was left out of step %" PRIu64 " with %s: its rows %" PRIu64 "+%u have no plan",
                                 at->request, kvg_step_number(lane->step), kvg_status_name(refusal), at->committed, lane->asked[seat]);
            }
        }
        KVG_ASSERT(rows[seat] == at->turn.replay + at->turn.rows);
        KVG_ASSERT(rows[seat] == 0 || kvg_step_first_rows(lane->step)[seat] == at->committed - at->turn.replay);
        *granted += rows[seat];
    }
    return worst;
}

static int fault_is_here(const ReplayShared *shared, ReplayFaultKind kind)
{
    return shared->fault.kind == kind && (int)shared->fault.rank == shared->rank && !shared->fault_done;
}

/* What the seats stand for, so that ranks which walk apart are told by the vote. */
static uint64_t lane_digest(const ReplayLane *lane)
{
    uint64_t sum = 0;
    for (uint32_t seat = 0; seat < lane->count; seat++) {
        const ReplaySeat *at = &lane->seats[seat];
        if (at->sequence != NULL) {
            sum += kvg_mix_term(seat, at->request, at->committed, (uint64_t)at->turn.replay << 32 | at->turn.rows);
        }
    }
    return kvg_digest_seal(sum);
}

static KvgStatus post(ReplayShared *shared, ReplayLane *lane, KvgStatus refuse)
{
    KvgCommit commit = KVG_COMMIT_INIT;
    commit.refuse = refuse;
    commit.user_digest = lane_digest(lane);
    if (shared->passes_accepted) {
        for (uint32_t seat = 0; seat < lane->count; seat++) {
            lane->accepted[seat] = lane->seats[seat].sequence != NULL ? lane->seats[seat].turn.accepted : 0;
        }
        commit.accepted = lane->accepted;
    }
    if (refuse == KVG_OK && fault_is_here(shared, REPLAY_FAULT_REFUSE) && kvg_step_number(lane->step) == shared->fault.step) {
        commit.refuse = KVG_EBUSY; /* any code: it stands for an engine's own no */
        shared->fault_done = 1;
    }
    lane->posted_ns = kvg_clock_ns();
    return kvg_step_post(lane->step, &commit);
}

/* The scripted want of memory: at the first step of which a growth is the one that it waits for. */
static int oom_may_be_due(const ReplayShared *shared, uint64_t *grows)
{
    KvgStats stats = { .size = sizeof stats };
    *grows = 0;
    if (!fault_is_here(shared, REPLAY_FAULT_OOM) || kvg_stats_quick(shared->placement, &stats) != KVG_OK) {
        return 0;
    }
    *grows = stats.grows;
    return stats.grows + 1 >= shared->fault.step;
}

/* Begins the step; *no is set where this rank's script denies it memory and the library did not need any. */
static KvgStatus begin(ReplayShared *shared, ReplayLane *lane, KvgStatus *no)
{
    uint64_t before, after;
    *no = KVG_OK;
    if (!oom_may_be_due(shared, &before)) {
        return kvg_step_begin(lane->batch, lane->asked, &lane->step);
    }
    kvg_fault_arm(0);
    KvgStatus status = kvg_step_begin(lane->batch, lane->asked, &lane->step);
    shared->fault_done = kvg_fault_disarm();
    if (status == KVG_OK && !shared->fault_done && oom_may_be_due(shared, &after) && after > before) {
        *no = kvg_fail(KVG_ENOMEM, "no memory for growth %" PRIu64 " (--fault)", shared->fault.step);
        shared->fault_done = 1;
    }
    return status;
}

KvgStatus kvg_replay_lane_begin(ReplayShared *shared, ReplayLane *lane, int *moved)
{
    uint64_t  granted = 0;
    KvgStatus denied;
    KVG_ASSERT(lane->step == NULL);
    if (plan_turns(shared, lane) == 0) {
        return KVG_OK;
    }
    KVG_TRY(begin(shared, lane, &denied));
    /* From here on a failure is this rank's "no": every begun step posts. */
    KvgStatus refused = take_refusals(lane, &granted);
    KvgStatus no = refused == KVG_OK && granted > 0 ? kvg_replay_write_layers(shared, lane) : refused;
    *moved |= granted > 0;
    KVG_TRY(post(shared, lane, no != KVG_OK ? no : denied));
    if (refused != KVG_OK) {
        return refused; /* on every rank alike, with its own sentence: no need to hear the vote */
    }
    return kvg_replay_note_bytes(shared);
}

/* A refusal that --fault asked for is redone; every other outcome but publish ends the run. */
static int is_scripted(const ReplayFault *fault, const KvgOutcome *outcome)
{
    if (outcome->kind != KVG_OUTCOME_REFUSED || outcome->rank != (int)fault->rank) {
        return 0;
    }
    return (fault->kind == REPLAY_FAULT_REFUSE && outcome->step == fault->step) ||
           (fault->kind == REPLAY_FAULT_OOM && outcome->reason == KVG_ENOMEM);
}

static KvgStatus judge(ReplayShared *shared, const KvgOutcome *outcome)
{
    if (outcome->kind == KVG_OUTCOME_PUBLISHED || is_scripted(&shared->fault, outcome)) {
        return KVG_OK;
    }
    shared->refused = outcome->kind == KVG_OUTCOME_REFUSED && outcome->rank == shared->rank;
    return outcome->status;
}

static void flip_if_due(ReplayShared *shared, const ReplayLane *lane, uint64_t step)
{
    for (uint32_t seat = 0; seat < lane->count && fault_is_here(shared, REPLAY_FAULT_FLIP) && step >= shared->fault.step; seat++) {
        const ReplaySeat *at = &lane->seats[seat];
        uint32_t          slot = 0;
        if (at->sequence == NULL || slot_of(at->sequence, &slot) != KVG_OK) {
            continue;
        }
        shared->fault_done = kvg_replay_flip(&shared->planes, &shared->sight, &shared->maker, at->request, slot, at->committed - at->owed,
                                             kvg_replay_total(&shared->requests[at->request]));
        shared->flipped = at->request;
    }
}

static KvgStatus advance(ReplayShared *shared, ReplayLane *lane, const KvgOutcome *outcome)
{
    for (uint32_t seat = 0; seat < lane->count; seat++) {
        ReplaySeat *at = &lane->seats[seat];
        if (at->sequence == NULL || at->turn.rows + at->turn.replay == 0) {
            continue;
        }
        if (outcome->accepted[seat] != at->turn.accepted) {
            return kvg_fail(KVG_ELAYOUT, "step %" PRIu64 " kept %u rows of request %" PRIu64 " where the round keeps %u", outcome->step,
                            outcome->accepted[seat], at->request, at->turn.accepted);
        }
        at->committed += at->turn.accepted;
        at->owed = outcome->replay[seat];
        at->round += at->turn.decode && at->turn.rows > 0;
        shared->rows += at->turn.accepted;
        shared->replayed += at->turn.replay;
    }
    return KVG_OK;
}

/* The trail's point of this commit. */
static KvgStatus note_commit(ReplayShared *shared, const ReplayLane *lane)
{
    if (!shared->trail.kept) {
        return KVG_OK;
    }
    for (uint32_t seat = 0; seat < lane->count; seat++) {
        const ReplaySeat *at = &lane->seats[seat];
        ReplayTrailPoint  term;
        if (at->sequence != NULL && at->turn.rows + at->turn.replay > 0) {
            KVG_TRY(kvg_replay_trail_term(&shared->trail, at->request, kvg_replay_total(&shared->requests[at->request]), at->sequence, &term));
            kvg_replay_trail_set(&shared->trail, at->request, term);
        }
    }
    return kvg_replay_trail_mark(&shared->trail);
}

KvgStatus kvg_replay_lane_finish(ReplayShared *shared, ReplayLane *lane)
{
    KvgOutcome outcome = { .size = sizeof outcome };
    if (lane->step == NULL) {
        return KVG_OK;
    }
    KvgStatus status = kvg_step_wait(lane->step, &outcome);
    if (status == KVG_EINDOUBT || status == KVG_EPEER) {
        return status;
    }
    note_latency(&shared->latencies, (lane->decided_ns != 0 ? lane->decided_ns : kvg_clock_ns()) - lane->posted_ns);
    lane->step = NULL;
    lane->posted_ns = lane->decided_ns = 0;
    KVG_TRY(judge(shared, &outcome));
    if (outcome.kind != KVG_OUTCOME_PUBLISHED) {
        return KVG_OK;
    }
    KVG_TRY(advance(shared, lane, &outcome));
    KVG_TRY(note_commit(shared, lane));
    KVG_TRY(kvg_replay_note_bytes(shared));
    flip_if_due(shared, lane, outcome.step);
    for (uint32_t seat = 0; seat < lane->count; seat++) {
        const ReplaySeat *at = &lane->seats[seat];
        if (at->sequence != NULL && at->owed == 0 && at->committed == kvg_replay_total(&shared->requests[at->request])) {
            KVG_TRY(retire(shared, lane, seat));
        }
    }
    return KVG_OK;
}

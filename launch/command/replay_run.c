/* Replay's run.
 *
 * Memory delays and never refuses: a request that finds none waits at open; one that runs and finds none sits out steps until others
 * close. When a whole round over the lanes gets nothing on, the youngest running request is turned out and waits again; the oldest is
 * never, and it fits alone, so the run ends. All of this follows from agreed state. */
#include "launch/command/replay_run.h"

#include <inttypes.h>

#include "launch/command/replay_fork.h"
#include "launch/command/replay_report.h"
#include "launch/command/replay_write.h"
#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/comm/clock.h"

enum { STEP_PROMPT_ROWS = 2048 }; /* prompt rows of a step, if no single chunk is larger: bounds the buffers of one layer's rows */

/* Refuses what is longer than the model's context, before anything is admitted. */
static void refuse_too_long(ReplayRun *run)
{
    ReplayShared  *shared = &run->shared;
    const uint64_t max_ctx = kvg_placement_plan(shared->placement)->max_ctx;
    for (uint64_t index = 0; index < shared->queue.count; index++) {
        uint64_t total = kvg_replay_total(&shared->requests[index]);
        if (total > max_ctx) {
            kvg_replay_queue_set(&shared->queue, index, REPLAY_REFUSED);
            kvg_replay_digests_refuse(&shared->digests, index);
        } else {
            run->rows_total += total;
        }
    }
}

/* The longest request must fit when it is alone, or it would wait for ever. Pure, so the same on every rank. */
static KvgStatus check_longest_fits(const ReplayRun *run)
{
    const ReplayShared *shared = &run->shared;
    KvgLedger           ledger = { .size = sizeof ledger };
    uint64_t            longest = 0, index = 0;
    for (uint64_t i = 0; i < shared->queue.count; i++) {
        uint64_t total = kvg_replay_total(&shared->requests[i]);
        if (shared->queue.states[i] == REPLAY_WAITING && total > longest) {
            longest = total;
            index = i;
        }
    }
    kvg_placement_ledger(shared->placement, &ledger);
    if (kvg_ledger_check(&ledger, longest) == KVG_OK) {
        return KVG_OK;
    }
    return kvg_fail(KVG_EINVAL,
                    "request %" PRIu64 " has %" PRIu64 " rows, more than the memory holds even when it is alone: raise --memory, or cut "
                    "requests by --max-tokens",
                    index, longest);
}

static KvgStatus create_lanes(ReplayRun *run)
{
    const uint32_t pp = kvg_grid_pp(run->grid), concurrency = run->shared.concurrency;
    const uint32_t count = pp > 1 ? (uint32_t)kvg_min_u64(2 * pp, concurrency) : 1;
    KVG_TRY(KVG_NEW(count, "the batches", &run->shared.lanes));
    for (ReplayShared *shared = &run->shared; shared->lane_count < count; shared->lane_count++) {
        KVG_TRY(kvg_replay_lane_create(shared, (uint32_t)kvg_ceil_div_u64(concurrency, count), &shared->lanes[shared->lane_count]));
    }
    run->patience = 2 * pp + 2; /* what a step frees may count only W steps later */
    return KVG_OK;
}

static KvgStatus create_buffers(ReplayRun *run)
{
    ReplayShared *shared = &run->shared;
    return kvg_replay_write_create(shared->prompt_rows + (uint64_t)kvg_replay_round_rows_max(&shared->pace) * shared->lanes[0].count, shared);
}

static uint32_t chunk_rows(const ReplayOptions *options, const KvGridPlan *plan)
{
    uint32_t chunk = options->chunk;
    for (uint32_t i = 0; i < plan->class_count; i++) {
        if (plan->classes[i].ring && chunk > plan->prefill_chunk_max) {
            chunk = plan->prefill_chunk_max;
        }
    }
    return chunk;
}

KvgStatus kvg_replay_run_create(const ReplayOptions *options, const ReplayLaunch *launch, KvgGrid *grid, KvgPlacement *placement,
                                ReplayDevice *device, const ReplayRequest *requests, uint64_t count, ReplayRun *run)
{
    ReplayShared *shared = &run->shared;
    KvgStatus     status = KVG_OK;
    *run = (ReplayRun){ .launch = launch, .grid = grid };
    shared->options = options;
    shared->grid = grid;
    shared->placement = placement;
    shared->device = device;
    shared->sight = kvg_replay_sight(placement, device);
    shared->requests = requests;
    shared->concurrency = kvg_placement_plan(placement)->slots;
    shared->pace = (ReplayPace){ options->seed, chunk_rows(options, kvg_placement_plan(placement)), options->spec };
    shared->prompt_rows = (uint32_t)kvg_max_u64(shared->pace.chunk, STEP_PROMPT_ROWS);
    shared->rank = kvg_grid_rank(grid);
    shared->passes_accepted = kvg_grid_stage(grid) + 1 == kvg_grid_pp(grid);
    shared->maker.seed = options->seed;
    shared->fault = options->fault;
    KVG_TRY_GOTO(kvg_replay_queue_create(count, &shared->queue), err_free);
    KVG_TRY_GOTO(create_lanes(run), err_free);
    KVG_TRY_GOTO(kvg_replay_planes_collect(placement, shared->lanes[0].batch, &shared->planes), err_free);
    KVG_TRY_GOTO(kvg_replay_check_create(&shared->planes, &shared->check), err_free);
    KVG_TRY_GOTO(create_buffers(run), err_free);
err_free: /* what this rank lacks, all must hear of before the first collective call below */
    status = kvg_replay_agree(launch, status);
    if (status == KVG_OK) {
        status = kvg_replay_digests_create(launch, count, shared->planes.leaves, &shared->digests);
        if (status == KVG_OK && (options->trail != NULL || launch->fork != NULL)) {
            status = kvg_replay_trail_create(count, shared->digests.leaves_max, &shared->trail);
            shared->trail.kept = options->trail != NULL;
        }
        if (status == KVG_OK) {
            refuse_too_long(run);
            status = check_longest_fits(run);
        }
        status = kvg_replay_agree(launch, status);
    }
    if (status != KVG_OK) {
        kvg_replay_run_free(run);
    }
    return status;
}

void kvg_replay_run_free(ReplayRun *run)
{
    ReplayShared *shared = &run->shared;
    for (uint32_t i = 0; i < run->shared.lane_count; i++) {
        kvg_replay_lane_free(&run->shared.lanes[i]);
    }
    kvg_replay_metrics_free(&run->metrics);
    kvg_free(run->shared.lanes);
    kvg_replay_write_free(shared);
    kvg_free(shared->latencies.ns);
    kvg_replay_check_free(&shared->check);
    kvg_replay_sight_free(&shared->sight);
    kvg_replay_queue_free(&shared->queue);
    kvg_replay_planes_free(&shared->planes);
    kvg_replay_digests_free(&shared->digests);
    kvg_replay_trail_free(&shared->trail);
    *run = (ReplayRun){ 0 };
}

static KvgStatus finish_all(ReplayRun *run)
{
    for (uint32_t i = 0; i < run->shared.lane_count; i++) {
        KVG_TRY(kvg_replay_lane_finish(&run->shared, &run->shared.lanes[i]));
    }
    return KVG_OK;
}

/* Turns out the youngest running request, unless it is the only one. */
static KvgStatus relieve(ReplayRun *run)
{
    KVG_TRY(finish_all(run));
    ReplayLane *lane = NULL;
    uint32_t    seat = 0;
    uint64_t    youngest = 0;
    for (uint32_t i = 0; i < run->shared.lane_count; i++) {
        for (uint32_t at = 0; at < run->shared.lanes[i].count; at++) {
            const ReplaySeat *candidate = &run->shared.lanes[i].seats[at];
            if (candidate->sequence != NULL && (lane == NULL || candidate->request > youngest)) {
                lane = &run->shared.lanes[i];
                seat = at;
                youngest = candidate->request;
            }
        }
    }
    if (lane == NULL || run->shared.running < 2) {
        return kvg_fail(KVG_ENOMEM, "request %" PRIu64 " runs alone and still finds no memory for its next rows: raise --memory",
                        lane != NULL ? youngest : kvg_replay_queue_next(&run->shared.queue));
    }
    run->shared.hold = 1;
    return kvg_replay_lane_turn_out(&run->shared, lane, seat);
}

/* Faults that strike at a time: between two steps of this rank. */
static void strike_if_due(ReplayRun *run)
{
    ReplayShared *shared = &run->shared;
    if (!kvg_replay_fault_is_timed(&shared->fault) || (int)shared->fault.rank != shared->rank || shared->fault_done ||
        kvg_clock_ns() - run->from_ns < shared->fault.step * UINT64_C(1000000)) {
        return;
    }
    shared->fault_done = 1;
    if (run->launch->fork != NULL) {
        kvg_replay_fork_struck(run->launch->fork, kvg_clock_ns());
    }
    kvg_replay_fault_strike(&shared->fault, 3 * (uint64_t)run->launch->timeout_ms); /* the others notice after one and go on after two */
}

static KvgStatus serve(ReplayRun *run)
{
    ReplayShared  *shared = &run->shared;
    ReplayProgress progress = kvg_replay_progress_start(run);
    uint32_t       fruitless = 0;
    while (shared->queue.open > 0) {
        int moved = 0;
        for (uint32_t i = 0; i < run->shared.lane_count; i++) {
            strike_if_due(run);
            KVG_TRY(kvg_replay_lane_finish(shared, &run->shared.lanes[i]));
            KVG_TRY(kvg_replay_lane_admit(shared, &run->shared.lanes[i], &moved));
            KVG_TRY(kvg_replay_lane_begin(shared, &run->shared.lanes[i], &moved));
            kvg_replay_progress_show(&progress, run);
        }
        fruitless = moved ? 0 : fruitless + 1;
        if (fruitless > run->patience && shared->queue.open > 0) {
            KVG_TRY(relieve(run));
            fruitless = 0;
        }
        KVG_TRY(kvg_replay_metrics_round(&run->metrics));
    }
    KVG_TRY(finish_all(run));
    KVG_TRY(kvg_replay_digests_flush(&shared->digests));
    kvg_replay_progress_end(&progress);
    return KVG_OK;
}

KvgStatus kvg_replay_run_serve(ReplayRun *run)
{
    ReplayShared *shared = &run->shared;
    run->from_ns = kvg_clock_ns();
    kvg_replay_series_start(&shared->series, &shared->seen, run->from_ns);
    KVG_TRY(kvg_replay_note_bytes(shared)); /* before the first step: its rows may take a while to write */
    KVG_TRY(serve(run));
    run->seconds = 1e-9 * (double)(kvg_clock_ns() - run->from_ns);
    KVG_TRY(kvg_replay_note_bytes(shared)); /* as it is in the end */
    return kvg_replay_metrics_end(&run->metrics);
}

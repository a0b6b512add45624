/* Replay's schedule: which rows a request stages next, and who waits for admission. Private to the command.
 *
 * A request is its prompt (context rows, in chunks) and then its answer (generated rows): one row a step, or rounds of
 * `spec` rows, the pending token and spec-1 drafts, of which 1..spec are accepted. What is accepted hangs on (seed, request, round)
 * alone, so that every rank, grid and concurrency accepts the same.
 *
 * Values in, values out; the queue owns its array of states and nothing else. Threads: any, one at a time per queue. */
#ifndef KVG_COMMAND_REPLAY_SCHEDULE_H
#define KVG_COMMAND_REPLAY_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/status.h>

typedef struct ReplayRequest {
    uint64_t context;
    uint64_t generated;
} ReplayRequest;

#define REPLAY_NO_LIMIT UINT64_MAX

/* A request cut to at most `max_tokens` tokens: the answer keeps at most half of them, the prompt what is left. */
ReplayRequest kvg_replay_clip(ReplayRequest request, uint64_t max_tokens);
/* All of its rows; SIZE_MAX-like saturation is not needed: trace counts are below 2^63. */
uint64_t kvg_replay_total(const ReplayRequest *request);

/* How many of a round's rows are accepted: 1..spec, before the last round is clipped. spec >= 1. */
uint32_t kvg_replay_accepted(uint64_t seed, uint64_t request, uint64_t round, uint32_t spec);

typedef struct ReplayPace {
    uint64_t seed;
    uint32_t chunk; /* most prompt rows a step, >= 1 */
    uint32_t spec;  /* rows a round; 0: none, one row a step */
} ReplayPace;

/* What a request does in its next step. */
typedef struct ReplayTurn {
    uint32_t replay;   /* rows at the head of the step that are written again, at their old positions */
    uint32_t rows;     /* staged behind them */
    uint32_t accepted; /* of those, kept: 1..rows */
    int      decode;   /* 0: prompt rows */
} ReplayTurn; /* replay and rows 0: the request is done */

/* Most rows of one decode turn. */
uint32_t kvg_replay_round_rows_max(const ReplayPace *pace);
/* The turn of request number `index` that has `committed` rows, owes `owed` of them as a replay, and has finished `round` decode rounds. The
 * last round is clipped so that exactly context + generated rows commit. A replay has a step of its own once it is longer than a
 * round, or nothing is left to stage: partial accepts in a row let it grow. */
ReplayTurn kvg_replay_turn(const ReplayPace *pace, const ReplayRequest *request, uint64_t index, uint64_t committed, uint32_t owed,
                           uint64_t round);

/* Rows that a check reads at close, out of the held rows [first, len): the edges, both sides of the chunk edge after the
 * first row, and some drawn from (seed, index). Ascending, distinct. */
enum { REPLAY_SAMPLES_MAX = 16 };
size_t kvg_replay_sample_rows(uint64_t seed, uint64_t index, uint64_t first, uint64_t len, uint64_t rows[REPLAY_SAMPLES_MAX]);

/* Admission in trace order: the lowest request that waits is next. One that was turned out (preempted) waits again, and from
 * then on is admitted only with all of its rows booked, so it cannot be turned out for want of them twice. */
typedef enum ReplayState { REPLAY_WAITING = 0, REPLAY_RUNNING, REPLAY_DONE, REPLAY_REFUSED } ReplayState;

typedef struct ReplayQueue {
    uint8_t *states;     /* [count] ReplayState */
    uint8_t *turned_out; /* [count] 1 once preempted */
    uint64_t count;
    uint64_t first_waiting; /* no request below it waits */
    uint64_t open;          /* requests not done and not refused */
} ReplayQueue;

KvgStatus kvg_replay_queue_create(uint64_t count, ReplayQueue *queue);
void      kvg_replay_queue_free(ReplayQueue *queue);
/* Index of the next request to admit, or count when none waits. */
uint64_t kvg_replay_queue_next(ReplayQueue *queue);
/* Moves a request on; the only setter. */
void kvg_replay_queue_set(ReplayQueue *queue, uint64_t index, ReplayState state);
/* Rows to book at open. */
uint64_t kvg_replay_queue_booking(const ReplayQueue *queue, uint64_t index, const ReplayRequest *request);

#endif

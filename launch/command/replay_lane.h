/* Replay's lanes: each is one batch with a seat for every request that it serves at a time. Private to the command.
 *
 *   seat   request -> open -> turns of rows, a step each -> last row committed, none owed -> check, digest, close -> empty
 *   lane   begin: plan and write a step of all its seats, vote   |   finish: wait for the decision, move the seats on
 *
 * With pipeline stages several lanes are under way at once, so that one lane's vote travels while another writes. All that
 * decides what happens next is agreed state (outcomes, refusals from open and begin): every rank walks the same way.
 * Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_LANE_H
#define KVG_COMMAND_REPLAY_LANE_H

#include "launch/command/replay_device.h"
#include "launch/command/replay_digest.h"
#include "launch/command/replay_options.h"
#include "launch/command/replay_schedule.h"
#include "launch/command/replay_series.h"
#include "launch/command/replay_trail.h"
#include "launch/command/replay_verify.h"

/* Bytes of sequence state on one rank. */
typedef struct ReplayBytes {
    uint64_t content, booked, taken;
} ReplayBytes;

typedef struct ReplayLatencies {
    uint64_t *ns; /* [count] from post to decided */
    size_t    count, capacity;
} ReplayLatencies;

typedef struct ReplaySeat {
    KvgSequence *sequence; /* NULL: empty */
    uint64_t     request;
    uint64_t     committed, round;
    uint32_t     owed;     /* of the committed rows: the next step begins with them */
    ReplayTurn   turn;     /* in the step under way; no rows and no replay: not part of it */
} ReplaySeat;

typedef struct ReplayLane {
    KvgBatch   *batch;
    ReplaySeat *seats;   /* [count] */
    uint32_t   *asked;   /* [count] rows for begin */
    uint32_t   *accepted; /* [count] for post */
    uint32_t    count;
    KvgStep    *step;    /* NULL: none under way */
    uint64_t    posted_ns, decided_ns; /* decided_ns 0: not seen decided yet */
} ReplayLane;

/* What all lanes share. */
typedef struct ReplayShared {
    const ReplayOptions *options;
    KvgGrid             *grid;
    KvgPlacement        *placement;
    ReplayDevice        *device;
    ReplayLane          *lanes;    /* [lane_count] */
    uint32_t             lane_count;
    const ReplayRequest *requests; /* [queue.count] */
    uint32_t             concurrency; /* requests open at once: the placement's slots */
    ReplayPace           pace;
    uint32_t             prompt_rows; /* most prompt rows of a step, all requests together */
    int                  refused;  /* 1: the step that ended the run was refused by this rank */
    int                  rank, passes_accepted; /* the last stage passes accepted counts */
    ReplayMaker          maker;
    ReplayPlanes         planes;
    ReplaySight          sight;
    ReplayQueue          queue;
    ReplayDigests        digests;
    ReplayCheck          check;
    ReplayFault          fault;
    int                  fault_done; /* on the rank that it is for */
    uint64_t             flipped;    /* the request whose row was flipped */
    float               *k, *v;      /* [a step's rows at most][row_elements_max]: K and V, or latent rows and their indexer's */
    ReplayRecurrentScratch recurrent;
    uint64_t             rows;       /* committed for good or to be made again: the progress bar's */
    uint64_t             running;    /* requests in seats */
    uint64_t             turned_out; /* preemptions */
    uint64_t             replayed;   /* rows written again because recurrent state or an index ring stood before them */
    int                  hold;       /* 1: no admission until a request closes */
    ReplayTrail          trail;
    uint64_t             signed_ns;  /* when this rank last gave a sign of life while it wrote */
    ReplayBytes          peak;
    ReplaySeries         series;     /* of this rank, over the run's time */
    ReplaySeen           seen;
    ReplayDriver         driver;     /* when most was taken */
    ReplayLatencies      latencies;
} ReplayShared;

KvgStatus kvg_replay_lane_create(ReplayShared *shared, uint32_t seats, ReplayLane *lane);
/* Notes what this rank holds now: peaks and series. */
KvgStatus kvg_replay_note_bytes(ReplayShared *shared);
/* Not to be called with a step begun and unposted. */
void      kvg_replay_lane_free(ReplayLane *lane);

/* Waits for the step under way, if there is one, and moves its seats on; finished requests close. */
KvgStatus kvg_replay_lane_finish(ReplayShared *shared, ReplayLane *lane);
/* Fills empty seats from the queue as far as memory admits; *moved is set when that, or anything else, got on. */
KvgStatus kvg_replay_lane_admit(ReplayShared *shared, ReplayLane *lane, int *moved);
/* Begins, writes and posts the next step of the lane's seats; nothing when all are empty. *moved is set when rows were granted. */
KvgStatus kvg_replay_lane_begin(ReplayShared *shared, ReplayLane *lane, int *moved);
/* Closes a seat's unfinished request and sends it back to wait. No step of the lane may be under way. */
KvgStatus kvg_replay_lane_turn_out(ReplayShared *shared, ReplayLane *lane, uint32_t seat);

#endif

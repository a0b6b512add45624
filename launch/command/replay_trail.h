/* Replay's trail: what a rank holds after each commit, as two sums, so that a run that ended early can be held against one that did not. Private
 * to the command.
 *
 *   agreed  which requests have how many committed rows: the same on every rank
 *   stored  hashes of the stored rows of this rank, of the requests that are under way (S8's leaves)
 *
 * A request that is done counts in `agreed` alone: its rows are gone, on some ranks a moment before others. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_TRAIL_H
#define KVG_COMMAND_REPLAY_TRAIL_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/kvgrid.h>

/* What one rank holds at one commit. */
typedef struct ReplayHolding {
    uint64_t commit; /* steps published since the run began */
    uint64_t agreed, stored;
    uint64_t requests, rows; /* under way, and their committed rows */
    uint64_t checked, mismatches; /* rows compared with a fresh encode */
    uint64_t grows;
    uint32_t epoch;
    int32_t  state;  /* KvgStatus: could it be looked at? */
} ReplayHolding;

typedef struct ReplayTrailPoint {
    uint64_t agreed, stored;
} ReplayTrailPoint;

typedef struct ReplayTrail {
    int               kept;   /* 0: nobody asked for one */
    ReplayTrailPoint *terms;  /* [requests] what each adds now */
    ReplayTrailPoint  sum;
    ReplayTrailPoint *points; /* [count] after commit 1, 2, ... */
    uint64_t          count, capacity;
    KvLeaf           *leaves; /* scratch */
    size_t            leaves_max;
} ReplayTrail;

/* `leaves_max`: of one sequence on this rank. */
KvgStatus kvg_replay_trail_create(uint64_t requests, size_t leaves_max, ReplayTrail *trail);
void      kvg_replay_trail_free(ReplayTrail *trail);

/* What a request adds that has `rows` committed of `total`; sequence NULL: it is done. */
KvgStatus kvg_replay_trail_term(ReplayTrail *trail, uint64_t request, uint64_t total, const KvgSequence *sequence, ReplayTrailPoint *term);
/* The request's term is now this one. */
void      kvg_replay_trail_set(ReplayTrail *trail, uint64_t request, ReplayTrailPoint term);
/* A commit ends. */
KvgStatus kvg_replay_trail_mark(ReplayTrail *trail);

/* Can PATH.RANK be made? Looks by making a file beside it, which goes again. EINVAL, naming it and the reason. */
KvgStatus kvg_replay_trail_check(const char *path, int rank);
/* Writes PATH.RANK: a line a commit, "COMMIT AGREED STORED". It appears whole, in the place of an older one, or not at all. EIO. */
KvgStatus kvg_replay_trail_write(const ReplayTrail *trail, const char *path, int rank);

#endif

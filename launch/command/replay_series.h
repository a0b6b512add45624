/* Replay's series: what one rank held and did over the time of a run, in a fixed number of bins. Private to the command.
 *
 *   bin i   [i*width, (i+1)*width) since the run began: the most that was held in it, and what was done in it
 *
 * When time runs past the last bin neighbours are joined and the width doubles: memory is bounded and no peak is lost. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_SERIES_H
#define KVG_COMMAND_REPLAY_SERIES_H

#include <kvgrid/kvgrid.h>

enum { REPLAY_BINS = 160 }; /* even */

typedef struct ReplayBin {
    uint64_t content, booked, taken; /* bytes, the most */
    uint64_t rows, votes, refusals;  /* committed, decided, sequences refused and steps rolled back */
    uint64_t latency_ns;             /* of the votes together */
    uint64_t notes;                  /* 0: nothing was seen in this time, which is as the bin before ended */
} ReplayBin;

typedef struct ReplaySeries { /* crosses the wire: whole numbers alone */
    uint64_t  from_ns, width_ns;
    uint64_t  count; /* bins up to the last that was seen */
    ReplayBin bins[REPLAY_BINS];
} ReplaySeries;

/* What the counters were when the bin under way was last noted. */
typedef struct ReplaySeen {
    uint64_t rows, votes, refusals, latency_ns;
} ReplaySeen;

void kvg_replay_series_start(ReplaySeries *series, ReplaySeen *seen, uint64_t now_ns);
/* Before a start nothing is noted. */
void kvg_replay_series_note(ReplaySeries *series, ReplaySeen *seen, uint64_t now_ns, const KvgStats *stats);
/* Fills the times in which nothing was seen with what was held before them. */
void kvg_replay_series_end(ReplaySeries *series);

#endif

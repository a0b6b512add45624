/* Replay's run: the same loop on every rank, from the first admission to the last digest. Private to the command.
 * Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_RUN_H
#define KVG_COMMAND_REPLAY_RUN_H

#include "launch/command/replay_lane.h"
#include "launch/command/replay_metrics.h"

typedef struct ReplayRun {
    ReplayShared        shared;
    const ReplayLaunch *launch;
    KvgGrid            *grid;
    const char         *formats;    /* in words; the caller's */
    ReplayMetrics       metrics;
    uint32_t            patience;   /* rounds over the lanes without any row before somebody is turned out */
    uint64_t            rows_total; /* of all requests that are not refused */
    uint64_t            from_ns;    /* when the loop began */
    double              seconds;    /* of the loop */
} ReplayRun;

/* Sets up everything between the placement and the first step. Collective. `device` and `requests` [count] stay the caller's. */
KvgStatus kvg_replay_run_create(const ReplayOptions *options, const ReplayLaunch *launch, KvgGrid *grid, KvgPlacement *placement,
                                ReplayDevice *device, const ReplayRequest *requests, uint64_t count, ReplayRun *run);
void      kvg_replay_run_free(ReplayRun *run);

/* Serves all requests. Errors are those of a step, agreed (the same on every rank) but for EINDOUBT and EPEER. */
KvgStatus kvg_replay_run_serve(ReplayRun *run);

#endif

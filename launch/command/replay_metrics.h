/* Replay's metrics: the counters of all ranks, brought together while the run goes on, and rank 0's file of them (--metrics). Private to the command.
 *
 * A gathering is a collective call, so all ranks must come to it in the same round of the run's loop: how many rounds lie between two follows from
 * rank 0's clock as all have heard it in the last one, and aims at a second. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_METRICS_H
#define KVG_COMMAND_REPLAY_METRICS_H

#include <kvgrid/kvgrid.h>

#include "launch/command/replay_options.h"
#include "launch/command/replay_series.h"

typedef struct ReplayMetrics {
    const char   *path;   /* NULL: no file, and nothing is gathered before the end */
    const char   *model;  /* a label */
    KvgPlacement *placement;
    int           rank, rank_count;
    KvgStats     *ranks;  /* [rank_count] as last gathered; NULL: neither a file nor a report was asked for */
    ReplaySeries *series; /* [rank_count] room for the report's; NULL: none was asked for */
    uint64_t      round, next, gap; /* the next gathering is in round `next`, `gap` after the last */
    uint64_t      heard_ns; /* rank 0's uptime in the last */
    char         *text;
    size_t        text_bytes;
} ReplayMetrics;

/* Where neither --metrics nor --report was given all else does nothing. The model's name stays the caller's. */
KvgStatus kvg_replay_metrics_create(const ReplayOptions *options, const char *model, KvgGrid *grid, KvgPlacement *placement, ReplayMetrics *metrics);
void      kvg_replay_metrics_free(ReplayMetrics *metrics);

/* Once a round, on every rank. Errors are those of kvg_stats_over_grid: a file that cannot be written now is written later. */
KvgStatus kvg_replay_metrics_round(ReplayMetrics *metrics);
/* The last gathering. Errors as before. */
KvgStatus kvg_replay_metrics_end(ReplayMetrics *metrics);
/* The file, as last gathered; on rank 0 alone. EIO, ENOMEM. */
KvgStatus kvg_replay_metrics_write(ReplayMetrics *metrics);

/* Rounds to the gathering after one that came `took_ns` after the one before, `gap` rounds earlier: at most twice as many, at least half. Pure. */
uint64_t kvg_replay_metrics_gap(uint64_t gap, uint64_t took_ns);

#endif

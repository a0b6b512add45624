/* Replay's words: line 1, the progress bar, the summary, and the object of --json. Private to the command.
 *
 * All of it is rank 0's; the gathering of the ranks' numbers is collective. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_REPORT_H
#define KVG_COMMAND_REPLAY_REPORT_H

#include "launch/command/replay_place.h"
#include "launch/command/replay_run.h"

/* A bar on a terminal, a few times a second; nothing elsewhere. */
typedef struct ReplayProgress {
    int      shown; /* 0: no terminal, or not rank 0 */
    uint64_t next_ns;
    uint64_t start_ns;
} ReplayProgress;

ReplayProgress kvg_replay_progress_start(const ReplayRun *run);
void           kvg_replay_progress_show(ReplayProgress *progress, const ReplayRun *run);
void           kvg_replay_progress_end(ReplayProgress *progress);

/* One rank's end of a run; fixed size, for the all-gather. */
typedef struct ReplayRankEnd {
    ReplayBytes peak, end;
    uint64_t    checked_rows, mismatches;
    uint64_t    nonfinite, saturated;
    uint64_t    fault_done;
    ReplayDriver driver;      /* when most was taken; all 0 on the host device */
    uint64_t    allocations;  /* of the state, at most: each may be rounded up by the driver */
    uint8_t     device[RANK_DEVICE_ID]; /* the GPU's UUID: equal where ranks share one; all 0 on the host device */
    char        first[256]; /* its first mismatch */
} ReplayRankEnd;

typedef struct ReplayResult {
    ReplayRankEnd *ranks; /* [rank_count] */
    int            rank_count;
    uint64_t       requests, refused, tokens, turned_out, replayed;
    uint64_t       commits, rollbacks, grows;
    uint64_t       checked_rows, mismatches; /* over all ranks */
    uint64_t       differing;                /* requests whose copies of a head part */
    double         seconds, rows_per_second, vote_p50_us, vote_p99_us;
    KvDigest       digest;
    const char    *formats;                  /* the run's */
    char           vote[320];                /* how it went, in words */
    const char   (*binding)[RANK_WORDS];     /* [rank_count] how each rank is bound, in words; NULL: not told */
} ReplayResult;

/* "K q8_0 (lossy), V q5_1 (lossy)", the pairs of each class where classes differ, and what is kept for other kinds of layers; `latent` as asked for. */
void kvg_replay_formats(const KvGridPlan *plan, const ModelConfig *config, KvFormat latent, char *text, size_t bytes);
/* Line 1. */
void kvg_replay_print_opening(const ReplayOptions *options, const KvGridPlan *plan, const char *formats, uint64_t memory, uint64_t count);

/* Brings the ranks' numbers together. Collective; good on every rank but for the digest and `differing`, which are rank 0's. */
KvgStatus kvg_replay_result_gather(const ReplayRun *run, ReplayResult *result);
void      kvg_replay_result_free(ReplayResult *result);
void      kvg_replay_print_summary(const ReplayOptions *options, const ReplayResult *result);
/* The object on one line. ENOMEM. */
KvgStatus kvg_replay_print_json(const ReplayOptions *options, const ReplayResult *result);

/* What the driver's figure may differ by from ours: a grain an allocation, and a few for what the driver keeps for itself. */
uint64_t kvg_replay_driver_slack(const ReplayRankEnd *end);

/* How many ranks keep their state on the GPU of rank `rank`, itself among them; 0 on the host device. */
int kvg_replay_device_ranks(const ReplayResult *result, int rank);

/* What is wrong with a run that came to its end: KVG_OK, or the status with its sentence as the last error. Good on rank 0. */
KvgStatus kvg_replay_result_judge(const ReplayOptions *options, const ReplayRun *run, const ReplayResult *result);

/* The value that `percent` of the sorted values do not exceed; 0 of none. Sorts. */
uint64_t kvg_replay_percentile(uint64_t *values, size_t count, unsigned percent);

#endif

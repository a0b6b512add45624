/** Stats: what a placement has counted on this rank, over the grid, and as text for Prometheus.
 *
 *   bytes      content, booked and taken as S3 defines them
 *   agreed     steps, outcomes, refusals, growths, chunks, sequences: the same on every rank at the same point of the program (but for ranks that a
 *              settle has parted)
 *   own        bytes, elements, latencies: this rank's
 *
 * Counting is plain additions by the thread that drives the grid: no atomics, no allocation, two looks at the clock a step. */
#ifndef KVG_STATS_H
#define KVG_STATS_H

#include <kvgrid/placement.h>

KVG_BEGIN_DECLS

#define KVG_OUTCOME_KINDS 6 /* of KvgOutcomeKind */

/** Vote latencies by powers of two: bucket i counts those of at most 2^i microseconds, and above the bucket before; the last one all that took longer. */
#define KVG_LATENCY_BUCKETS 24

typedef struct KvgStats {
    size_t   size;            /* set by the caller to sizeof(KvgStats); what an older caller's struct has not is left out */
    uint64_t content_bytes;   /* live rows */
    uint64_t booked_bytes;    /* units set aside */
    uint64_t taken_bytes;     /* slabs got from host or device, those made ahead included */
    uint64_t memory_bytes;    /* what this rank gives to sequence state, told or measured */
    uint64_t sequences_open;
    uint64_t steps, commits, rollbacks; /* steps decided: published, and rolled back for whatever reason */
    uint64_t refusals[KVG_STATUS_COUNT]; /* per-sequence refusals from begin, extend, run_begin and open, by code */
    uint64_t grows;           /* times a sequence's booked rows were raised after it was opened */
    uint64_t resizes;
    uint64_t nonfinite, saturated; /* elements, over this rank's layers */
    uint64_t ranks;           /* counted in here: 1; of a total, how many; 0: the rank was left out of the grid, and all else is 0 */
    uint64_t rank, stage;     /* who counted */
    uint64_t uptime_ns;       /* since it was placed, by the grid's clock */
    uint64_t slots;           /* sequences that can be open at once */
    uint64_t chunks, chunks_booked; /* of 64 rows, all classes together (flat planes: units of 64 rows) */
    uint64_t rows;            /* committed rows so far, of all sequences */
    uint64_t outcomes[KVG_OUTCOME_KINDS]; /* steps decided, by KvgOutcomeKind */
    uint64_t vote_refusals[KVG_STATUS_COUNT]; /* steps that a rank refused, by its code */
    uint64_t votes;           /* steps that this rank has decided from the records: those of captured runs are decided by the device, settled ones by no vote */
    uint64_t vote_latency[KVG_LATENCY_BUCKETS]; /* of these, from kvg_step_post until this rank decided the step, which is when it looked */
    uint64_t vote_latency_ns; /* all of them together */
} KvgStats;

/** The counters of this rank. On a device whose memory the host cannot touch, nonfinite and saturated wait for what the device was given and take one copy.
 *  Threads: as every call on the placement's grid, one at a time. EINVAL; sizes from that of the first version (up to `saturated`) on are served. Reach: local. */
KVG_API KvgStatus kvg_stats(const KvgPlacement *placement, KvgStats *stats);
/** The same without asking the device: nonfinite and saturated are 0 where that would be needed. Cheap enough for every step. Reach: local. */
KVG_API KvgStatus kvg_stats_quick(const KvgPlacement *placement, KvgStats *stats);

/** Every rank's counters on every rank: ranks [ranks of the grid] (the first one's size is set, and is the distance between them) and their total; either may
 *  be NULL. They stay the caller's and valid until the operation ends. Steps may be under way. EINVAL; EBUSY a captured run is on; EPEER, EINDOUBT as every
 *  set-up call. Reach: setup. */
KVG_API KvgStatus kvg_stats_over_grid(KvgPlacement *placement, KvgStats *ranks, KvgStats *total);
KVG_API KvgStatus kvg_stats_over_grid_start(KvgPlacement *placement, KvgStats *ranks, KvgStats *total, KvgSetup **setup);

/** One KvgStats for many: sums of what each rank has of its own (bytes, elements, votes and latencies), the largest of what ranks count alike (steps, outcomes,
 *  refusals, growths, resizes, rows, chunks, slots, sequences, uptime). rank and stage are 0. A pure function. EINVAL no rank; `total` has its size set. */
KVG_API KvgStatus kvg_stats_total(const KvgStats *ranks, uint32_t count, KvgStats *total);

/** The bucket of a latency; the most that bucket `i` takes, in microseconds: 0 of the last, which has no bound. Pure functions. */
KVG_API uint32_t kvg_latency_bucket(uint64_t ns);
KVG_API uint64_t kvg_latency_bucket_us(uint32_t i);

typedef struct KvgLabel {
    const char *name;  /* [a-zA-Z_][a-zA-Z0-9_]*, none of rank, stage, reason, outcome, le, and none that begins with __ */
    const char *value; /* any text */
} KvgLabel;

/** The counters of `count` ranks (size and distance as above; those left out have no samples) in Prometheus's text format 0.0.4: every family once, with HELP and TYPE, and for
 *  each rank a sample with the labels rank and stage and those given. Bytes and seconds; counters end in _total; the latencies are a histogram.
 *  *needed (never NULL) gets the bytes of the whole text with its NUL, also when it does not fit: ECAPACITY, and `out` is not touched. out NULL, bytes 0: only
 *  *needed. A pure function. EINVAL a label's name; no ranks.
 *  The format: https://prometheus.io/docs/instrumenting/exposition_formats/ */
KVG_API KvgStatus kvg_stats_prometheus(const KvgStats *ranks, uint32_t count, const KvgLabel *labels, uint32_t label_count, char *out, size_t bytes,
                                       size_t *needed);

KVG_END_DECLS
#endif

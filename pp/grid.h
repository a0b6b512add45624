/** Grid: the ranks that hold one model's sequence state together, and how they stay agreed (S7).
 *
 * World rank = pp_rank * tp + tp_rank. Reach words used below:
 *   local   this rank alone; no other rank needs to call
 *   posted  every rank calls it, in the same order relative to the other posted calls and step begins; no vote, acts at once
 *   setup   collective and bounded by KVGRID_TIMEOUT_MS; each has a _start form for those who drive several ranks from one thread. From the _start of a resize, a
 *           sleep, a wake or a rebuild to its end the grid is given no posted call and no step: every rank ends it at a moment of its own
 * Threads: one thread at a time per grid, any thread. No thread of our own: progress is made in test, wait and kvg_grid_progress. */
#ifndef KVG_GRID_H
#define KVG_GRID_H

#include <kvgrid/bootstrap.h>
#include <kvgrid/comm.h>
#include <kvgrid/inproc.h>
#include <kvgrid/policy.h>

KVG_BEGIN_DECLS

typedef struct KvgGrid  KvgGrid;
typedef struct KvgSetup KvgSetup; /* a set-up operation under way */

typedef struct KvgGridOptions {
    size_t            size;          /* set by KVG_GRID_OPTIONS_INIT */
    uint32_t          tp, pp;        /* tp * pp = ranks of the bootstrap; 0 counts as 1 */
    const KvgPolicy  *policy;        /* NULL: the process's; compared over the ranks item by item, but for times and interface */
    const KvComm     *comm;          /* records and messages; taken over on success. NULL: self for 1 rank, shared memory
                                        over a bootstrap of shm.h, else the socket mesh */
    const KvLiveness *liveness;      /* NULL: that of the comm which NULL would give. Taken over on success. */
    uint32_t          max_in_flight; /* W, undecided steps, at most 2^20; 0: 2*pp */
    /** Called once for each rank found lost, from within test, wait or progress; may abort the engine's own communicators. */
    void (*on_lost)(void *user, int rank, const char *why);
    void *user;
} KvgGridOptions;

#define KVG_GRID_OPTIONS_INIT { sizeof(KvgGridOptions), 1, 1, NULL, NULL, NULL, 0, NULL, NULL }

/** Makes this rank's end of a grid: connects, then compares version, policy, tp, pp and epoch over all ranks. Reach: setup.
 *  EINVAL tp*pp != ranks, max_in_flight; ELAYOUT naming the item and both ranks; EINDOUBT a rank did not come; EPEER. */
KVG_API KvgStatus kvg_grid_create(const KvgBootstrap *bootstrap, const KvgGridOptions *options, KvgGrid **grid);
/** All ranks of an in-process hub at once: grids [ranks], one thread drives them all. comm and liveness of `options` must be NULL. */
KVG_API KvgStatus kvg_grid_create_inproc(KvInproc *hub, int ranks, const KvgGridOptions *options, KvgGrid **grids);
/** Placements must be destroyed first: while there are any, the grid stays whole, and the last error says so (EBUSY). Waits for nobody. Reach: local. */
KVG_API void kvg_grid_destroy(KvgGrid *grid);

KVG_API int      kvg_grid_rank(const KvgGrid *grid);
KVG_API int      kvg_grid_ranks(const KvgGrid *grid);
KVG_API uint32_t kvg_grid_tp(const KvgGrid *grid);
KVG_API uint32_t kvg_grid_pp(const KvgGrid *grid);
KVG_API uint32_t kvg_grid_stage(const KvgGrid *grid);   /* rank / tp */
KVG_API uint32_t kvg_grid_tp_rank(const KvgGrid *grid); /* rank % tp */
KVG_API uint32_t kvg_grid_epoch(const KvgGrid *grid);   /* from 1; each settle raises it */

/** Receives what has arrived, gives a sign of life, notices losses. Never blocks. Reach: local. */
KVG_API KvgStatus kvg_grid_progress(KvgGrid *grid);
/** KVG_OK while the grid can step; EPEER a rank is lost, or a settle or rebuild has begun; EINDOUBT a step is undecided; ELAYOUT posted calls went apart. The sentence says which. */
KVG_API KvgStatus kvg_grid_state(const KvgGrid *grid);

/** After EINDOUBT or EPEER: the survivors (the same list on each, the own rank among them) bring each other to one state: every step
 *  that any of them published is published by all with its accepted counts, every other undecided step is rolled back. The epoch rises, so
 *  records of those left out are dropped. If all ranks survive the grid goes on; else it reads, digests and closes, until rebuilt
 *  (rebuild.h). Reach: setup. */
KVG_API KvgStatus kvg_grid_settle(KvgGrid *grid, const int *survivors, int survivor_count);
KVG_API KvgStatus kvg_grid_settle_start(KvgGrid *grid, const int *survivors, int survivor_count, KvgSetup **setup);

/** One turn of a set-up operation: *done becomes 1 when it ended, with its result as the return value. Never blocks. NULL is KVG_EINVAL. */
KVG_API KvgStatus kvg_setup_test(KvgSetup *setup, int *done);
/** Turns until it ends or the deadline passes (EINDOUBT), then frees it. NULL is KVG_EINVAL. */
KVG_API KvgStatus kvg_setup_wait(KvgSetup *setup);
/** Frees an operation that kvg_setup_test has reported done (or one that is given up: the grid is then in doubt, unless a settle that has begun since has
 *  ended the operation). Before its placement, and before its grid. */
KVG_API void kvg_setup_free(KvgSetup *setup);

KVG_END_DECLS
#endif

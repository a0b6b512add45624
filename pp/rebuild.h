/** Rebuild: after a loss the survivors settle, learn what is left of each sequence, and go on (S7).
 *
 * The shape stays tp x pp and every survivor keeps its rank. The places of the lost ranks are
 *   filled   by new processes, which join with the bootstrap that the survivors rebuild over, or
 *   empty    where no rank joins (bootstrap NULL): possible when every head and layer of the lost ranks has a copy on a survivor of their stage
 *            (KV heads replicated over TP ranks, latent layers). Steps then need the records of the survivors alone.
 * Sequences whose lost rows have such a copy keep them; where a new process takes the place it is sent them, as stored; chunks
 * that forks share go once, and are shared there too. All others are reset on every rank:
 * open under the same id and handle, with 0 rows and nothing booked; how many rows they had is reported, so that the engine can compute them again.
 *
 *   survivors   kvg_grid_rebuild(grid, bootstrap, ...)    }  together, over one bootstrap of tp*pp ranks: survivors give their old rank,
 *   newcomers   kvg_grid_join(bootstrap, ...)             }  a newcomer the rank whose place it takes
 * Another shape cannot be rebuilt: ENOTSUP; make a grid over the survivors instead.
 * Ownership: a report is the caller's. Threads: as the grid's. */
#ifndef KVG_REBUILD_H
#define KVG_REBUILD_H

#include <kvgrid/grid.h>
#include <kvgrid/placement.h>
#include <kvgrid/sequence.h>

KVG_BEGIN_DECLS

typedef struct KvgRebuildOptions {
    size_t            size;     /* set by KVG_REBUILD_OPTIONS_INIT */
    const KvComm     *comm;     /* as in KvgGridOptions, for the grid with its newcomers. Taken over, and closed where it fails; but still the caller's
                                   after EINVAL, ENOTSUP, EBUSY, and where kvg_grid_rebuild_start fails */
    const KvLiveness *liveness;
} KvgRebuildOptions;

#define KVG_REBUILD_OPTIONS_INIT { sizeof(KvgRebuildOptions), NULL, NULL }

typedef enum KvgLoss {
    KVG_LOSS_NONE = 0,    /* every committed row is there */
    KVG_LOSS_SHARD = 1,   /* no survivor has what lost_layer and lost_head name */
    KVG_LOSS_CALLS = 2,   /* survivors had made different posted calls: their rows cannot be told apart */
    KVG_LOSS_TAINTED = 3  /* it was tainted before, and is still */
} KvgLoss;

/** What became of one sequence; the same on every rank, but for the handle. */
typedef struct KvgRebuiltSequence {
    KvgPlacement *placement;
    KvgSequence  *sequence;  /* this rank's handle; NULL: closed everywhere, since not every survivor had it open */
    uint64_t      id;
    uint64_t      rows;      /* committed when the grid had settled */
    uint64_t      rows_held; /* of these, still there: all or none */
    KvgLoss       loss;
    uint32_t      lost_layer, lost_head; /* KVG_LOSS_SHARD: the first that is missing; a latent layer's head is 0 */
    int           lost_rank; /* who had it; -1 */
} KvgRebuiltSequence;

typedef struct KvgRebuildReport {
    size_t              size;     /* sizeof(KvgRebuildReport) as the library was built */
    uint32_t            epoch;    /* the grid's from now on */
    uint32_t            count;
    uint32_t            kept;     /* sequences that have all their rows */
    int                 joined;   /* newcomers */
    KvgRebuiltSequence *sequences; /* [count] by placement, oldest first, then by id */
} KvgRebuildReport;

/** The survivors settle (kvg_grid_settle) and go on in a new epoch, with those who join. Afterwards the grid steps again at once; until it ends, all but closing
 *  answers EPEER.
 *   bootstrap  of tp*pp ranks, each survivor in its old place; NULL: nobody joins, and the connections among the survivors stay
 *   survivors  as for kvg_grid_settle: the same list on each
 *   options    NULL: the defaults
 *   report     NULL: not wanted. Freed by kvg_rebuild_report_free
 *  Steps that were begun are over; places of batches that held a sequence that was reset are empty (kvg_batch_set); its snapshots are stale. Work that
 *  the engine has on its streams must be over, as for kvg_placement_destroy. A device's votes need a new board (kvg_grid_vote_on_device).
 *  Where nobody joins, kvg_place, taps gathers and votes on the device answer ENOTSUP from then on.
 *  Survivors settle over the connections that the bootstrap makes; those they had go back to them where that fails. After a failure they hold what they
 *  held and can try again; with another bootstrap, if this call had one: some may have settled over its connections and others not. It fails on all alike:
 *  EGEOM nobody joins and a shard is lost (named; the report is given all the same: rows_held is 0 for what is lost with it);
 *  ENOTSUP another shape; EBUSY a captured run is on; ENOMEM, EDEVICE here, EREFUSED naming another rank that could not; ELAYOUT a newcomer
 *  brings another model or other options, named; EFORMAT what a rank says of itself cannot be; EINDOUBT, EPEER another rank is lost or silent: rebuild without it. EINVAL.
 *  After these two, others may have rebuilt all the same: the next settle, or the one of the next rebuild, then does so here too, and gives no report of it; that
 *  of the next rebuild counts from there. Ask kvg_sequence_info of every handle once it has ended, before anything is opened: ESTALE it was closed, fewer rows
 *  than you know of: compute them again.
 *  Reach: setup. */
KVG_API KvgStatus kvg_grid_rebuild(KvgGrid *grid, const KvgBootstrap *bootstrap, const int *survivors, int survivor_count,
                                   const KvgRebuildOptions *options, KvgRebuildReport **report);
/** For those who drive several ranks from one thread: newcomers join where options give both comm and liveness, since a bootstrap waits. */
KVG_API KvgStatus kvg_grid_rebuild_start(KvgGrid *grid, const int *survivors, int survivor_count, const KvgRebuildOptions *options,
                                         KvgRebuildReport **report, KvgSetup **setup);
KVG_API void kvg_rebuild_report_free(KvgRebuildReport *report); /* NULL is allowed */

/** One placement that the survivors hold, as the newcomer was told of it by its launcher. */
typedef struct KvgJoin {
    const ModelConfig     *config;  /* compared with the survivors'; may be freed afterwards */
    const KvgPlaceOptions *options; /* likewise; memory_bytes: 0, or at least what the lost rank gave. That much is taken */
    KvgPlacement          *placement; /* out */
} KvgJoin;

/** A new process takes the place bootstrap->rank while the survivors rebuild.
 *   options  as the survivors made their grid. comm and liveness are taken over, and closed wherever it fails
 *   joins    [join_count] every placement that they hold, oldest first
 *   report   as above: its handles are this rank's
 *  Errors as kvg_grid_rebuild's; nothing was made then. Reach: setup. */
KVG_API KvgStatus kvg_grid_join(const KvgBootstrap *bootstrap, const KvgGridOptions *options, KvgJoin *joins, uint32_t join_count, KvgGrid **grid,
                                KvgRebuildReport **report);
/** options->comm and options->liveness are given and taken over, unless the start fails. *grid and the placements are set when the operation ends well. */
KVG_API KvgStatus kvg_grid_join_start(int rank, int ranks, const KvgGridOptions *options, KvgJoin *joins, uint32_t join_count, KvgGrid **grid,
                                      KvgRebuildReport **report, KvgSetup **setup);

KVG_END_DECLS
#endif

/** Placement: one model's layers, heads and memory laid over a grid; admission is a pure function of what it agreed (S9). */
#ifndef KVG_PLACEMENT_H
#define KVG_PLACEMENT_H

#include <kvgrid/dev.h>
#include <kvgrid/grid.h>
#include <kvgrid/grid_plan.h>
#include <kvgrid/ledger.h>
#include <kvgrid/model.h>
#include <kvgrid/view.h>

KVG_BEGIN_DECLS

typedef struct KvgPlacement KvgPlacement;

typedef struct KvgPlaceOptions {
    size_t          size;               /* set by KVG_PLACE_OPTIONS_INIT */
    KvFormat        format_k, format_v; /* KVG_POLICY: the policy's choice (S2); each fixes its half */
    KvFormat        format_latent;      /* KVG_POLICY: f32 */
    KvLayout        layout;
    uint32_t        max_sequences;      /* open at once; 0: 64 */
    uint32_t        max_step_sequences; /* in one step; 0: max_sequences. A record carries 2 bytes for each. */
    uint64_t        memory_bytes;       /* this rank's bytes for sequence state (weights already apart). May differ by rank. 0: measured, see below */
    uint64_t        memory_max_bytes;   /* what a later resize may reach; 0: 4 * memory_bytes */
    const uint64_t *layer_bytes;        /* [n_layer + n_mtp] weight bytes a layer, for the partition; NULL: the config's estimate */
    const uint32_t *fence;              /* [pp+1] the caller's own cut; NULL: partition (S9) */
    uint64_t        ctx;                /* T: the length capacity is balanced for; 0: the model's context, else 32768 */
    uint32_t        prefill_chunk_max;  /* 0: 4096 */
    uint32_t        spec_columns;       /* 0: 2; recurrent layers only */
    int             with_mtp;           /* 1: MTP blocks live on the last stage and commit with the trunk */
    const KvDev    *device;             /* the caller's, outlives the placement; NULL: host memory of our own */
    uint64_t        memory_reserve_bytes; /* measured: what this rank leaves free; 0: a tenth of its share */
} KvgPlaceOptions;

#define KVG_PLACE_OPTIONS_INIT \
    { sizeof(KvgPlaceOptions), KVG_POLICY, KVG_POLICY, KVG_POLICY, KVG_LAYOUT_POOL, 0, 0, 0, 0, NULL, NULL, 0, 0, 0, 0, NULL, 0 }

/** Lays `config` over the grid: compares config, formats, fence, T and counts over the ranks, agrees on the smallest capacity in
 *  tokens, takes the memory. Where memory_bytes is 0 the device is asked what is free once every rank has come here, so with communicators made
 *  and weights loaded; ranks whose devices draw on the same memory share it evenly, after what others on it asked for by number, and each leaves
 *  memory_reserve_bytes of its share. The config may be freed afterwards. Reach: setup.
 *  ELAYOUT naming item and ranks; EGEOM; ENOTSUP naming a layer kind that is not served yet; ENOMEM on any rank: none has placed;
 *  EINVAL; EPEER, EINDOUBT a rank is gone or did not come: nothing is placed on this rank, but another may have heard all votes and placed; make the grid anew.
 *  Several placements may share a grid and its steps (kvg_step_begin_joint): the first fixes the record's size. */
KVG_API KvgStatus kvg_place(KvgGrid *grid, const ModelConfig *config, const KvgPlaceOptions *options, KvgPlacement **placement);
KVG_API KvgStatus kvg_place_start(KvgGrid *grid, const ModelConfig *config, const KvgPlaceOptions *options, KvgPlacement **placement,
                                  KvgSetup **setup);
/** Closes what is open, gives back all memory. Batches must be destroyed first: while there are any, it stays whole, and the last error says so (EBUSY).
 *  Reach: local. */
KVG_API void kvg_placement_destroy(KvgPlacement *placement);

/** The agreed numbers; valid as long as the placement. */
KVG_API const KvGridPlan *kvg_placement_plan(const KvgPlacement *placement);
/** Layers [lo, hi) of this rank's stage. */
KVG_API void kvg_placement_layers(const KvgPlacement *placement, uint32_t *lo, uint32_t *hi);
/** Where layer `il`'s rows are on this rank; NULL (last error set) if the layer is not here or has no K/V rows. Constant for the placement's life. */
KVG_API const KvPlaneView *kvg_placement_view(const KvgPlacement *placement, uint32_t il);
/** Sends what has changed in tables, lengths and columns to the device, for kernels that look at them between steps: begin and every write do it by
 *  themselves, publishing does not. Nothing to do on the host device. EDEVICE. Reach: local. */
KVG_API KvgStatus kvg_placement_flush(KvgPlacement *placement, KvgStream stream);
/** The ledger now: what admission decides on. */
KVG_API void kvg_placement_ledger(const KvgPlacement *placement, KvgLedger *ledger);

/** Changes this rank's memory for sequence state, by a vote of its own: prepare, vote, publish or cancel. When one rank is out of memory, or
 *  a chunk that would go is in use there, none has changed: EREFUSED naming rank and reason. Bytes may differ by rank; units follow the
 *  smallest. EBUSY while a step is begun and not posted; undecided ones are decided first. Reach: setup. */
KVG_API KvgStatus kvg_placement_resize(KvgPlacement *placement, uint64_t memory_bytes);
KVG_API KvgStatus kvg_placement_resize_start(KvgPlacement *placement, uint64_t memory_bytes, KvgSetup **setup);

/** Makes slabs ahead, on this rank, for a later resize to `memory_bytes`: memory is created and mapped now, off the serving path, and the resize
 *  finds it there. Counted as taken at once; never past memory_max_bytes. Another call raises or lowers it, 0 gives it back; so do sleep and a resize
 *  that needs less. Changes nothing that ranks agree on. ENOMEM: as before; EBUSY asleep; ENOTSUP flat planes (they take memory as sequences grow:
 *  KvgCudaOptions.spare_bytes keeps some at hand), or a device without reserved ranges. Reach: local. */
KVG_API KvgStatus kvg_placement_prepare(KvgPlacement *placement, uint64_t memory_bytes);

/** Gives the memory of sequence state back to the device on every rank, keeping its addresses: views, tables and captured graphs stay valid, what
 *  the memory held is lost. A vote: EREFUSED where a rank cannot (no reserved ranges there: the engine's allocator or a device without virtual memory
 *  management), and none sleeps. EBUSY on all ranks while a sequence is open or the placement asleep, or a step is begun and not posted. Until wake,
 *  opening a sequence, batches, steps, captures, runs, resize and prepare answer EBUSY, closed sequences ESTALE; looking at plan, views, ledger and counters is legal.
 *  Tables, lengths and what batches and snapshots hold stay. Reach: setup. */
KVG_API KvgStatus kvg_placement_sleep(KvgPlacement *placement);
KVG_API KvgStatus kvg_placement_sleep_start(KvgPlacement *placement, KvgSetup **setup);
/** Gets it again at the same addresses, contents undefined. A vote: where one rank is out of memory all stay asleep and hold nothing (EREFUSED naming
 *  it). EINVAL not asleep. Reach: setup. */
KVG_API KvgStatus kvg_placement_wake(KvgPlacement *placement);
KVG_API KvgStatus kvg_placement_wake_start(KvgPlacement *placement, KvgSetup **setup);
/** 1 between sleep and wake. Reach: local. */
KVG_API int kvg_placement_asleep(const KvgPlacement *placement);

/** Elements that went wrong when layer `il` was encoded so far (S1); of all layers together: kvg_stats. EINVAL: the layer is not here, or keeps no rows. */
KVG_API KvgStatus kvg_layer_counts(const KvgPlacement *placement, uint32_t il, KvEncodeCounts *counts);

KVG_END_DECLS
#endif

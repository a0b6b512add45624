/* KvCache: one sequence's share on this rank: a slot of a store, one transaction state for each class, and where its slot state stands
 * (S8). Private.
 *
 * A sequence owes a replay when its slot state (recurrent columns, index rings) stands before its committed rows: the first `replay`
 * rows of its next step are the accepted tokens again, at their old positions. They are written and computed like all rows, and counted
 * in no target.
 *
 * All functions are pure in their decisions: what they answer depends on agreed values alone (lengths, windows, unit counts), so it is
 * the same on every rank; local failures (ENOMEM in flat layout) are the only exception and are said where they can occur.
 * Nothing is half done: a call that fails has changed nothing. */
#ifndef KVG_CACHE_H
#define KVG_CACHE_H

#include <kvgrid/digest.h>
#include <kvgrid/latent_snapshot.h>
#include <kvgrid/model.h>
#include <kvgrid/transaction.h>

#include "runtime/rules/columns.h"
#include "runtime/state/store.h"

/* How far back the length has been cut, and when: snapshots ask for the smallest length since theirs. Kept with ascending
 * `pos`; when it is full the two oldest are folded, which can only refuse a very old snapshot, never accept a bad one. */
#define KVG_CACHE_CUTS_MAX 8
typedef struct KvCacheCuts {
    uint64_t count; /* cuts in this life so far: the time of a snapshot */
    uint32_t kept;
    struct {
        uint64_t when, pos;
    } at[KVG_CACHE_CUTS_MAX];
} KvCacheCuts;

struct KvCache {
    KvStore        *store;
    uint32_t        slot;
    uint32_t        class_count;
    uint64_t        pos;      /* committed rows: every class agrees (asserted) */
    uint64_t        max_ctx;
    uint64_t        guarantee; /* rows booked for by open or book; they slide along in windowed classes */
    uint64_t        serial;    /* changes with every life of the slot: snapshots of another life are another cache's */
    int             tainted;
    int             pooled;     /* the store's layout */
    int             owns_store; /* the seed's stand-alone cache */
    int             trim_due;   /* ranks have staged unlike rows: what is booked past the guarantee goes at the next shared moment */
    int             keeps_slots; /* the model has recurrent layers or pooled indexers, here or on another rank */
    uint64_t        pass_row;   /* absolute row of the open step's last pass */
    KvSlotState     held;       /* stands at held.at = pos - replay */
    TpKvTransaction tx[KVG_CLASSES_MAX];
    TpKvState       classes[KVG_CLASSES_MAX]; /* capacity is max_ctx: what is not booked yet, append books */
    KvCacheCuts     cuts;
};

/* What a cache can be taken back to: lengths, and a copy of the slot state on this rank. Its device outlives it; its store need not. */
typedef struct KvCacheSnapshot {
    uint64_t serial;
    uint64_t pos;
    uint64_t cuts;  /* the cache's count of cuts then */
    KvDev   *dev;
    void    *image; /* device memory; NULL where this rank keeps no slot state */
    size_t   image_bytes;
} KvCacheSnapshot;

/* Starts a cache in an unused slot (lengths 0, nothing held, slot state zero). No unit is booked. */
void kvg_kv_cache_open(KvStore *store, uint32_t slot, uint64_t serial, KvCache *cache);
/* Legal in any state, tainted and mid-transaction included. */
void kvg_kv_cache_close(KvCache *cache, KvgStream stream);

/* Units of each class that must be free so that rows up to `target` may be staged (after what is held now). */
void kvg_kv_cache_need(const KvCache *cache, uint64_t target, uint32_t need[KVG_CLASSES_MAX]);
/* Books them. ECAPACITY past max_ctx or short of units, naming the class, what is needed and free: nothing taken. ENOMEM is local. */
KvgStatus kvg_kv_cache_book(KvCache *cache, uint64_t target);

/* begin: every class opens its transaction. EBUSY, ETAINTED. */
KvgStatus kvg_kv_cache_begin(KvCache *cache);
/* One pass of `rows` rows. The first pass of a sequence that owes a replay begins with the `replay` rows that it owes; all others are
 * staged in every class: books what is missing, plans all classes first, then publishes them (flat rings may move rows). Then read,
 * write and each of the slot say where the pass's recurrent state goes.
 * EINVAL (0 rows, or fewer than are owed), ECAPACITY, ENOFIT, ESTALE, ETAINTED: nothing changed. ENOMEM, EDEVICE are local: units, lengths
 * and slot state count the rows as on every other rank, but they may have no memory behind them, and the step must be refused; tainted
 * where a move of old rows was torn. */
KvgStatus kvg_kv_cache_append(KvCache *cache, uint32_t rows, KvgStream stream);
/* The absolute row of the last pass's first row: replayed rows lie below the committed length. */
uint64_t kvg_kv_cache_pass_row(const KvCache *cache);
/* Rows that the next step has to begin with. */
uint32_t kvg_kv_cache_replay(const KvCache *cache);
/* A digest term over where the staged rows stand (class bases and write rows), for the record's layout field. */
uint64_t kvg_kv_cache_layout_term(const KvCache *cache, uint64_t index);
/* Ends the transaction with `accepted` of the staged rows: lengths and bases move, in every class, and the slot state switches to the
 * accepted row if it is held there; else it stays, and what the next step must replay is returned, on every rank the same number.
 * Cannot fail for accepted <= staged rows. */
uint32_t kvg_kv_cache_finalize(KvCache *cache, uint64_t accepted);
/* Ends the transaction of a step that was refused: as if it had not begun. What was owed before is owed still. */
void kvg_kv_cache_refuse(KvCache *cache);
/* A captured run of `steps` steps of `rows` rows, of which the device commits what it does (S7). begin books and stages all of it at once, as append of
 * as many rows does and with its refusals, and shows the device the first step; nothing may be owed (EBUSY). The model has no pooled indexer, and a column
 * for each row of a step (asserted). end commits the rows that the device says, with the recurrent state in `column`. A run that commits nothing further ends so, too. */
KvgStatus kvg_kv_cache_run_begin(KvCache *cache, uint32_t steps, uint32_t rows, KvgStream stream);
void      kvg_kv_cache_run_end(KvCache *cache, uint64_t rows, uint32_t column);
/* Frees (or slides) the units that fell behind the windows. Apart from finalize, so that all ranks free at the same agreed moment. */
void kvg_kv_cache_release_behind(KvCache *cache);
/* A step is over in which ranks had staged unlike rows: levels the cache, and gives back what the step may have booked when release_behind is called next. */
KvgStatus kvg_kv_cache_level_unlike(KvCache *cache, KvgStream stream);
/* Between steps: makes caches of equal length stand alike whatever steps were tried and taken back on one rank alone. A base moves up to where a refused
 * step leaves it, a flat ring's to the window's start; of slot state only what stands at the next row is held. EDEVICE, and ENOMEM where rows have no
 * memory here, are local: the cache is then tainted. */
KvgStatus kvg_kv_cache_level(KvCache *cache, KvgStream stream);
uint64_t kvg_kv_cache_staged(const KvCache *cache); /* rows incl. staged ones */

/* Units needed so that the sequence may be cut to `len` and written from there on (copy on write of a shared chunk). Shared chunks
 * past `len` leave the sequence, and its guarantee with them; its own stay. */
void      kvg_kv_cache_rewind_need(const KvCache *cache, uint64_t len, uint32_t need[KVG_CLASSES_MAX]);
/* ECAPACITY, EINVAL past committed, ELAPPED, ETAINTED; drops an open transaction. With slot state only to rows where it is held: where it
 * stands, rows that are owed (fewer are owed then), rows that a column and the index ring still hold, and 0. */
KvgStatus kvg_kv_cache_rewind_to(KvCache *cache, uint64_t len, KvgStream stream);
/* Gives back the units past the committed rows and lowers the guarantee to them. EBUSY inside a transaction. */
KvgStatus kvg_kv_cache_trim(KvCache *cache);
/* `child` (open, fresh) becomes a copy of rows [0, rows): chunks shared, the last partial one copied, slot state copied.
 * EINVAL past committed, ELAPPED (rows or slot state), ECAPACITY, EBUSY (a transaction is open, a replay is owed, or child not fresh),
 * ETAINTED. ENOMEM is local (flat): units and lengths of the child are as on every other rank, and its rows are not here. */
KvgStatus kvg_kv_cache_fork(const KvCache *cache, uint64_t rows, KvCache *child, KvgStream stream);

/* new takes device memory (ENOMEM) and refreshes; into refreshes in place, by copies alone. ETAINTED; with slot state EBUSY inside a
 * transaction or while a replay is owed: the snapshot is what it was. free allows NULL, and a cache that is gone. */
KvgStatus kvg_kv_cache_snapshot_new(const KvCache *cache, KvCacheSnapshot **snapshot);
KvgStatus kvg_kv_cache_snapshot_into(const KvCache *cache, KvCacheSnapshot *snapshot, KvgStream stream);
void      kvg_kv_cache_snapshot_free(KvCacheSnapshot *snapshot);
/* 0 when tainted, another cache's, accept beyond what was written since, the cache was shorter than the snapshot since, or a window's
 * rows are gone. rollback answers ETAINTED, ESTALE, EINVAL, ESTALE and ELAPPED for these, and ECAPACITY as rewind_to does.
 * Afterwards the length is the snapshot's + accept; with slot state that stands at the snapshot's, and `accept` rows are owed. */
int       kvg_kv_cache_can_rollback(const KvCache *cache, const KvCacheSnapshot *snapshot, uint64_t accept);
KvgStatus kvg_kv_cache_rollback(KvCache *cache, const KvCacheSnapshot *snapshot, uint64_t accept, KvgStream stream);
/* Every later use is ETAINTED. */
void kvg_kv_cache_taint(KvCache *cache);

/* Makes a fresh cache (booked, rows written by the caller) hold rows [0, len), in windowed classes from `start` on. EBUSY not fresh,
 * ECAPACITY past what is booked, ELAPPED a window reaches below start, or the model has recurrent state, which rows do not bring back. */
KvgStatus kvg_kv_cache_hydrate(KvCache *cache, uint64_t len, uint64_t start);

/* Rows that may be staged without booking more, at most max_ctx. */
uint64_t kvg_kv_cache_rows_booked(const KvCache *cache);
/* Bytes of live rows on this rank, and of its slot (S3). */
uint64_t kvg_kv_cache_content_bytes(const KvCache *cache);
/* Leaves of this rank's layers over committed rows (S8). count = kvg_kv_cache_leaf_count, whatever the length. EBUSY: a replay is owed. */
size_t    kvg_kv_cache_leaf_count(const KvCache *cache);
KvgStatus kvg_kv_cache_leaves(const KvCache *cache, KvLeaf *leaves);

/* ---- the seed's stand-alone cache: one sequence, flat planes, all layers of a stage, no sharding. Owns its store; freed by
 * kvg_kv_cache_free. new = new_planned of the config's plan; pp2 = ppn of {0, split, n}; a layer lives on the stage that owns it. */
KvgStatus kvg_kv_cache_new(KvDev *dev, const ModelConfig *config, uint64_t max_ctx, KvCache **cache);
KvgStatus kvg_kv_cache_new_planned(KvDev *dev, const ModelConfig *config, const ModelPlan *plan, uint64_t max_ctx, KvCache **cache);
KvgStatus kvg_kv_cache_new_pp2(KvDev *dev, const ModelConfig *config, uint64_t max_ctx, uint32_t split, KvCache *stages[2]);
KvgStatus kvg_kv_cache_new_ppn(KvDev *dev, const ModelConfig *config, uint64_t max_ctx, const uint32_t *fence, uint32_t stages,
                               KvCache **caches);
void      kvg_kv_cache_free(KvCache *cache);

#endif

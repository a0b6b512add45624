/* Store: the sequence state of one rank, for all sequences of a placement (S8): rows in pools with chunk tables or in flat planes,
 * behind one row address, and slots of fixed size. Private.
 *
 *   class   the layers whose rows live and die together. Classes are the whole model's, the same on every rank; a rank with no
 *           layer in a class keeps its counts all the same, so that all ranks count alike.
 *   unit    64 rows of one class: a chunk of a pool, or that many rows of a flat plane. Unit counts are agreed over the grid;
 *           chunk ids are private to a rank.
 *   slot    one sequence's place in tables and lengths, in recurrent columns and index rings.
 *
 * Nothing here decides anything: callers (KvCache, then pp) take units they have counted, so after creation and resize the
 * pool layout makes no allocation and no mapping call. */
#ifndef KVG_STORE_H
#define KVG_STORE_H

#include <kvgrid/dev.h>
#include <kvgrid/latent.h>
#include <kvgrid/model.h>
#include <kvgrid/recurrent.h>
#include <kvgrid/rows_batch.h>
#include <kvgrid/view.h>

#include "runtime/base/error.h"

#define KVG_CLASSES_MAX 8

typedef struct KvLatentGeometry { /* whole on every rank of a stage */
    uint32_t    width, kv_rank;
    KvIndexKind index_kind;
    uint32_t    index_width; /* pooled: of an index row, whose key is half of it; per token: of a key */
    uint32_t    index_pool;  /* pooled: the store's, divides 64; else 0 */
    KvFormat    format;      /* of rows, index rows and keys: f32 or bf16 */
} KvLatentGeometry;

typedef struct KvRecurrentGeometry { /* this rank's share */
    uint32_t            conv_kernel;
    uint32_t            part_count;
    KvRecurrentPartView parts[KVG_RECURRENT_PARTS_MAX]; /* without `offset`, which the store fills in */
} KvRecurrentGeometry;

typedef struct KvLayerGeometry { /* one layer that keeps state on this rank, or shares an earlier one's planes */
    uint32_t    layer;       /* global index */
    uint32_t    class_index; /* of its source, for a sharing layer; of a class without a window, for a latent one; else unused */
    int32_t     source;      /* -1 owns planes; else the global index of the layer whose planes it reads (same rank) */
    KvStateKind kind;        /* KVG_STATE_LATENT, KVG_STATE_RECURRENT; all else: K and V */
    union {
        struct {
            uint32_t head_first, heads;
            uint32_t head_dim_k, head_dim_v;
            KvFormat format_k, format_v;
        };
        KvLatentGeometry    latent;
        KvRecurrentGeometry recurrent;
    };
} KvLayerGeometry;

typedef struct KvClassGeometry {
    uint64_t window;   /* 0: every row is kept */
    int      ring;     /* rows behind the window fall away */
    uint64_t row_cap;  /* most rows one sequence holds: max_ctx, or swa_ring_rows(window, max_ctx) */
    uint32_t unit_cap; /* most units one sequence books: ceil(row_cap/64), or S3's cap for a pooled windowed class */
    uint32_t units;    /* in the pool to begin with */
    uint32_t units_max; /* addresses are reserved for this many; resize goes no further */
} KvClassGeometry;

typedef struct KvStoreOptions {
    KvDev                 *dev; /* outlives the store */
    KvLayout               layout;
    const KvLayerGeometry *layers;
    uint32_t               layer_count;
    const KvClassGeometry *classes;
    uint32_t               class_count;
    uint32_t               slots;
    uint64_t               max_ctx;
    uint32_t               n_layer; /* of the model with MTP: index range of `layer` */
    /* Facts of the whole model, the same on every rank, also where no such layer stands: decisions follow from them. */
    int                    has_recurrent;
    uint32_t               columns;         /* of recurrent state, at least 2; 0: 2 */
    uint32_t               index_pool;      /* rows of one pooled index key; 0: no pooled indexer */
    uint64_t               index_ring_rows; /* of a slot's index ring, rounded down to whole pools here; max_ctx or more: max_ctx rows that
                                             * never wrap; 0: index rows are a plane of the class, which keeps them all */
} KvStoreOptions;

typedef struct KvStore KvStore;

KvgStatus kvg_store_create(const KvStoreOptions *options, KvStore **store);
void      kvg_store_destroy(KvStore *store); /* every slot has been released */

/* ---- geometry */
const KvClassGeometry *kvg_store_class(const KvStore *store, uint32_t class_index);
uint32_t               kvg_store_class_count(const KvStore *store);
uint32_t               kvg_store_layer_count(const KvStore *store); /* n_layer of the options: the range of `layer` */
/* The view of a layer; NULL if this rank has no such layer. The pointer stays valid until destroy; what it says is constant, except
 * in flat layout on a device without reserved ranges, where booking may move the planes (base and slot_bytes change). */
const KvPlaneView *kvg_store_view(const KvStore *store, uint32_t layer);
/* Its tables and lengths are read by the host: on a device that is not direct they are mirrors, and rows and columns cannot be read there.
 * The same for latent and recurrent layers. */
const KvLatentView    *kvg_store_latent_view(const KvStore *store, uint32_t layer);
const KvRecurrentView *kvg_store_recurrent_view(const KvStore *store, uint32_t layer);
uint32_t               kvg_store_latent_class(const KvStore *store, uint32_t layer); /* of a latent layer here */
uint32_t               kvg_store_view_class(const KvStore *store, uint32_t layer);   /* of one with a view of K and V */
/* The same as kernels and engines read it: tables and lengths in device memory. */
const KvPlaneView     *kvg_store_shown_view(const KvStore *store, uint32_t layer);
const KvLatentView    *kvg_store_shown_latent_view(const KvStore *store, uint32_t layer);
const KvRecurrentView *kvg_store_shown_recurrent_view(const KvStore *store, uint32_t layer);
/* 1: the device's memory cannot be read by the host, and kvg_store_flush has work to do. */
int kvg_store_mirrored(const KvStore *store);
/* The outcome of a copy that the runtime makes by itself. On a direct device it cannot fail; elsewhere a failure is told by every later flush,
 * and so by every write: no step with it is ever published. */
void     kvg_store_copied(const KvStore *store, KvgStatus status);
KvLayout               kvg_store_layout(const KvStore *store);
KvDev                 *kvg_store_dev(const KvStore *store);
/* The model's facts as the store keeps them: 0 where the model has no such layers; a ring is whole pools, or max_ctx. */
uint32_t kvg_store_columns(const KvStore *store);
uint32_t kvg_store_index_pool(const KvStore *store);
uint64_t kvg_store_index_ring(const KvStore *store);
uint64_t           kvg_store_max_ctx(const KvStore *store);
/* Bytes of one unit of a class over all planes of this rank. */
uint64_t kvg_store_unit_bytes(const KvStore *store, uint32_t class_index);

/* ---- units. book and release work on [class][slot]; "entries" are the table's, counted from absolute row 0. */
uint32_t kvg_store_units_free(const KvStore *store, uint32_t class_index);
uint32_t kvg_store_units_total(const KvStore *store, uint32_t class_index);
/* One past the last entry the slot holds (rows below end*64 may be staged), and how many it holds. */
uint32_t kvg_store_end(const KvStore *store, uint32_t class_index, uint32_t slot);
uint32_t kvg_store_held(const KvStore *store, uint32_t class_index, uint32_t slot);
/* Extends the slot's table to `end` entries. The caller has checked units_free (asserted). Flat: backs the planes' rows, which can
 * fail with ENOMEM (units stay counted; a later call tries again). */
KvgStatus kvg_store_book(KvStore *store, uint32_t class_index, uint32_t slot, uint32_t end);
/* Books entries [first, end) for a slot that holds none: a window that has slid on another rank. */
KvgStatus kvg_store_book_from(KvStore *store, uint32_t class_index, uint32_t slot, uint32_t first, uint32_t end);
/* Pool: the chunk id of an entry that the slot holds; private to this rank. */
int32_t kvg_store_chunk(const KvStore *store, uint32_t class_index, uint32_t slot, uint32_t entry);
/* Pool: extends the table of `target` to `end` entries: those of `source` (held there, asserted), which have one holder more. */
void kvg_store_share(KvStore *store, uint32_t class_index, uint32_t source, uint32_t target, uint32_t end);
/* Frees the entries that lie wholly below `row`. Those below `keep_end` entries in total are re-entered at the table's end instead of
 * freed while end < keep_end (a guarantee slides along), unless shared. Pool only (flat windowed planes hold a fixed ring). */
void kvg_store_drop_below(KvStore *store, uint32_t class_index, uint32_t slot, uint64_t row, uint32_t keep_end);
/* Frees the entries from `end` on. */
void kvg_store_trim(KvStore *store, uint32_t class_index, uint32_t slot, uint32_t end);
/* Makes `target` (fresh) share the full chunks of rows [first_row, rows) of `source` and copies the last partial one into a unit of its own;
 * flat: copies the rows (of a ring: from its base on, which is first_row; the caller sets the target's base). Units needed are counted by
 * kvg_store_fork_units. Fails only in flat layout: ENOMEM, the units are counted all the same, and no row was copied. */
uint32_t  kvg_store_fork_units(const KvStore *store, uint32_t class_index, uint32_t source, uint64_t first_row, uint64_t rows);
KvgStatus kvg_store_fork(KvStore *store, uint32_t class_index, uint32_t source, uint32_t target, uint64_t first_row, uint64_t rows,
                         KvgStream stream);
/* Units that must be booked before the slot may write from `row` on: chunks from row/64 on that are shared are dropped, and the one `row`
 * lies in is replaced by a copy of the rows below it (if row % 64 != 0 a unit is needed). unshare does it. Pool only; flat: 0 and nothing. */
uint32_t kvg_store_unshare_units(const KvStore *store, uint32_t class_index, uint32_t slot, uint64_t row);
/* Units that unshare(row) and a booking back to `end` entries need together: for rows that will be written again. */
uint32_t kvg_store_rewrite_units(const KvStore *store, uint32_t class_index, uint32_t slot, uint64_t row, uint32_t end);
void     kvg_store_unshare(KvStore *store, uint32_t class_index, uint32_t slot, uint64_t row, KvgStream stream);
/* Gives back everything the slot holds in all classes; lengths become 0. */
void kvg_store_release(KvStore *store, uint32_t slot, KvgStream stream);

/* ---- slots. A slot image is what a snapshot keeps of a slot on this rank: every recurrent layer's column, every index ring's tail. */
/* Opens the slot for a sequence: column 0 is zero and current, no pool is ready. release closes it. */
void kvg_store_open_slot(KvStore *store, uint32_t slot, KvgStream stream);
void kvg_store_set_columns(KvStore *store, uint32_t slot, uint32_t read, uint32_t write, uint32_t each);
/* The row at which the slot's index state stands: pools below it are ready. A saved tail is forgotten. */
void kvg_store_set_index(KvStore *store, uint32_t slot, uint64_t rows);
void kvg_store_zero_column(KvStore *store, uint32_t slot, uint32_t column, KvgStream stream);
/* Puts saved tails back into their rings, in the layers where rows of this step went over them. */
void kvg_store_restore_tails(KvStore *store, uint32_t slot, KvgStream stream);
/* Column `column` and the tail at row `at` of `source` become column 0 and the tail of `target`. */
void   kvg_store_copy_slot(KvStore *store, uint32_t source, uint32_t column, uint64_t at, uint32_t target, KvgStream stream);
size_t kvg_store_image_bytes(const KvStore *store);
void   kvg_store_save_image(const KvStore *store, uint32_t slot, uint32_t column, uint64_t at, void *image, KvgStream stream);
void   kvg_store_load_image(KvStore *store, uint32_t slot, uint32_t column, uint64_t at, const void *image, KvgStream stream);

/* ---- lengths, in stream order */
void kvg_store_set_len(KvStore *store, uint32_t slot, uint64_t len, uint64_t len_staged);
void kvg_store_set_base(KvStore *store, uint32_t class_index, uint32_t slot, uint64_t base_row);
/* Sends what changed in tables and lengths to the device in one asynchronous copy; nothing to do on the host device. Every write does it first, on
 * its stream. EDEVICE: also for a copy that failed before. */
KvgStatus kvg_store_flush(KvStore *store, KvgStream stream);

/* ---- rows */
/* Encodes `rows` rows of K and V from absolute row `row` on into one layer's planes. Only chunks with one reference (asserted in
 * debug builds). counts are kept per layer: kvg_store_counts. */
KvgStatus kvg_store_write(KvStore *store, uint32_t layer, uint32_t slot, uint64_t row, uint32_t rows, const KvRowsIn *k,
                          const KvRowsIn *v, KvgStream stream);
/* Writes `rows` latent rows from absolute row `row` on, in order, and what the indexer keeps of them: per token `index` are the keys
 * (NULL without an indexer, and `key` too); pooled they are state rows [index_width] that go through the ring as far as it takes them,
 * until the pools that are complete have their keys, and so on: any number of rows. Keys are built from rows as stored.
 * The tail of the slot's index state is saved just before a row would go over it. EINVAL, ELAPPED, ECAPACITY: nothing changed. */
KvgStatus kvg_store_write_latent(KvStore *store, uint32_t layer, uint32_t slot, uint64_t row, uint32_t rows, const KvRowsIn *latent,
                                 const KvRowsIn *index, KvPoolKeyFn key, void *user, KvgStream stream);
/* The places of one pass: slot (-1: none), rows (0: none), absolute row and token of the first; host memory, and the same in device memory. */
typedef struct KvStorePlaces {
    uint32_t        count;
    const int32_t  *slots;
    const uint32_t *rows, *first_row, *first_token;
    const uint32_t *device; /* [4][count]: slots, rows, first_row, first_token */
    const uint32_t *device_tokens; /* [count] device memory, instead of device's first_token. NULL: those */
    uint32_t        captured_rows; /* not 0: the write goes into a graph; no place has more rows when that is replayed, and slots, rows, first_row and
                                    * first_token here are not looked at: nothing is checked or sent */
} KvStorePlaces;
/* 1: the device writes a pass at once. Then these do what kvg_store_write, and kvg_store_write_latent without a pooled indexer, do for each place;
 * `in` begins at token 0. */
int       kvg_store_batches(const KvStore *store);
KvgStatus kvg_store_write_batch(KvStore *store, uint32_t layer, const KvStorePlaces *places, const KvRowsIn *k, const KvRowsIn *v,
                                KvgStream stream);
KvgStatus kvg_store_write_latent_batch(KvStore *store, uint32_t layer, const KvStorePlaces *places, const KvRowsIn *latent,
                                       const KvRowsIn *keys, KvgStream stream);
/* ---- captured runs: the device moves lengths, bases and columns by itself; the caller then sets them here to what it says. */
/* The words that a vote on the device reads and moves, as the device addresses them. Constant for the store's life. */
typedef struct KvStoreRunWords {
    uint32_t *len, *len_staged;      /* [slots] */
    int32_t  *read, *write, *each;   /* [slots] */
    uint32_t *base_row[KVG_CLASSES_MAX]; /* [slots] */
} KvStoreRunWords;
void kvg_store_run_words(const KvStore *store, KvStoreRunWords *words);
/* What one row of a pass adds: x [conv_channels], u [state_elements]; i counts the pass's rows. */
typedef void (*KvRecurrentFillFn)(void *user, uint32_t layer, uint32_t i, float *x, float *u);
/* Applies kvg_recurrent_token to the pass's `rows` rows, as the slot's read, write and each say. scratch [conv_channels + state_elements],
 * unless the store is mirrored, which has room of its own for many rows. */
KvgStatus kvg_store_recurrent_update(KvStore *store, uint32_t layer, uint32_t slot, uint32_t rows, KvRecurrentFillFn fill, void *user,
                                     float decay, float *scratch, KvgStream stream);
/* Decodes rows [row, row+rows) of plane 0 (K) or 1 (V): target [rows][heads][dim] f32, host memory. Of a latent layer: plane 2 its rows,
 * 3 its index rows (the caller knows which the ring still holds), 4 keys (pooled: row counts keys). */
KvgStatus kvg_store_read(KvStore *store, uint32_t layer, uint32_t plane, uint32_t slot, uint64_t row, uint32_t rows, float *target);
/* Flat rings: moves keep_rows rows from src_row to 0 in every plane of the class and sets the base (S5). */
KvgStatus kvg_store_rebase(KvStore *store, uint32_t class_index, uint32_t slot, uint64_t src_row, uint64_t keep_rows,
                           uint64_t new_base, KvgStream stream);
/* Elements that went wrong when layer `layer` was encoded so far. */
KvEncodeCounts kvg_store_counts(const KvStore *store, uint32_t layer);
/* The same, of all layers here together. */
KvEncodeCounts kvg_store_counts_sum(const KvStore *store);

/* ---- bytes (S3) */
typedef struct KvStoreBytes {
    uint64_t booked; /* units held by slots (flat: those with memory behind them), tables' entries, and open slots; never above taken */
    uint64_t taken;  /* got from the device: slabs for rows, memory of all slots, tables and lengths, what the store works in */
} KvStoreBytes;
KvStoreBytes kvg_store_bytes(const KvStore *store);
/* Content of `rows` live rows of one class on this rank (S3's formulas without fixed bytes). */
uint64_t kvg_store_row_bytes(const KvStore *store, uint32_t class_index);
/* What pooled keys add for each whole pool; what an open slot holds whatever its length: all columns and index rings. */
uint64_t kvg_store_pool_key_bytes(const KvStore *store);
uint64_t kvg_store_slot_bytes(const KvStore *store);

/* ---- resize: prepare takes the memory (ENOMEM: nothing changed), publish makes it count or cancel gives it back. Growing only extends
 * the ranges in place; shrinking is refused with EBUSY while a chunk that would go is in use. EINVAL above units_max; ENOTSUP for a
 * pool that would grow on a device without reserved ranges. Between prepare and publish nothing is booked. */
KvgStatus kvg_store_resize_prepare(KvStore *store, const uint32_t *units);
void      kvg_store_resize_publish(KvStore *store);
void      kvg_store_resize_cancel(KvStore *store);

/* Backs units [class] of every class now, as far as addresses are reserved, so that a later resize up to there takes nothing from the device; counted
 * as taken. Fewer than an earlier call asked for: the rest goes back. A resize uses it or gives it back, sleep gives it back. ENOMEM: as before the
 * call; ENOTSUP flat planes, or a device without reserved ranges; EBUSY. */
KvgStatus kvg_store_ahead(KvStore *store, const uint32_t *units);

/* ---- sleep: all memory behind reserved ranges goes back, the addresses stay. No slot is open. Tables, lengths and column indices stay.
 * Wake: prepare gets the memory (ENOMEM: nothing is held), publish ends the sleep or cancel gives it back. What it held is lost. */
KvgStatus kvg_store_can_sleep(const KvStore *store); /* EBUSY something is open or prepared; ENOTSUP without reserved ranges */
void      kvg_store_sleep(KvStore *store);
KvgStatus kvg_store_wake_prepare(KvStore *store);
void      kvg_store_wake_publish(KvStore *store);
void      kvg_store_wake_cancel(KvStore *store);

/* Internal consistency, for tests: reference counts against tables, free lists, counts. ETAINTED says what is broken. */
KvgStatus kvg_store_check(const KvStore *store);

#endif

/* Store, inside: what the store's sources share. Private to runtime/state/store*.c and to tests that break it on purpose.
 *
 *   arena   what kernels read beside the rows: len, len_staged, pools_ready, read, write, each [slots], then for each class base_row [slots] and
 *           (pool) table [slots][stride]. On a direct device it is the device's memory. Else it is a mirror in host memory, from which
 *           the host works; words that changed are noted, and a flush sends them all in one asynchronous copy (store_mirror.c)
 *   spans   [class][slot] {first, end}: the entries held; the table is contiguous from first to end
 *   planes  of each layer that owns rows: K, V; or latent rows, keys, index rows. A sharing layer's view is a copy of its source's
 *   slots   of each recurrent layer one allocation, conv then state; of each index ring one: [slots] {ring, room for a saved tail} */
#ifndef KVG_STORE_IMPL_H
#define KVG_STORE_IMPL_H

#include "runtime/state/pool.h"
#include "runtime/state/store.h"

typedef struct StoreSpan {
    uint32_t first, end;
    uint32_t backed; /* flat on a device that reserves: units that every plane of the class has memory for */
} StoreSpan;

typedef struct StorePlane {
    KvPlane *at;          /* its description in the layer's view */
    uint32_t per_unit;    /* entries of 64 rows: 64, or 64/pool keys */
    uint32_t heads;
    KvRange  range;       /* on a device that reserves: the whole plane */
    KvRange *slices;      /* flat on such a device: [slots], each backed for itself */
    void    *memory;      /* on a device that does not reserve */
    void    *grown;       /* its successor while a copying grow is under way */
    size_t   memory_bytes;
    uint64_t token_bytes; /* encoded bytes of one entry of all heads here */
} StorePlane;

#define STORE_PLANES_MAX 3
#define STORE_NO_CLASS   UINT32_MAX

typedef struct StoreLayer {
    uint32_t        layer;    /* global index */
    KvStateKind     kind;     /* KVG_STATE_LATENT, KVG_STATE_RECURRENT, or KVG_STATE_KV for all that has a K/V view */
    uint32_t        class_index; /* STORE_NO_CLASS: recurrent */
    int32_t         source;   /* index into layers[], -1: shares nobody's planes */
    uint32_t        plane_count; /* 0: owns none */
    StorePlane      planes[STORE_PLANES_MAX]; /* K, V; or latent rows, then keys, then index rows, as far as there are any */
    KvPlaneView     view; /* tables and lengths of these three: the arena's, for the host */
    KvLatentView    latent;
    KvRecurrentView recurrent;
    KvPlaneView     shown_view; /* on a device that is not direct: the same for kernels */
    KvLatentView    shown_latent;
    KvRecurrentView shown_recurrent;
    void           *slots;    /* device memory of columns or of the index ring */
    KvRange         slots_range; /* on a device that reserves: where they stand */
    size_t          slots_bytes;
    uint64_t       *saved_at; /* index ring: [slots] the step (StoreSlot.step) in which the tail was saved */
    KvEncodeCounts  counts;
} StoreLayer;

typedef struct StoreSlot {
    int      open;
    uint64_t step;     /* counts set_index: a tail that another step saved is not this one's */
    uint64_t index_at; /* the row at which the index state stands */
} StoreSlot;

typedef struct StoreClass {
    KvClassGeometry geometry;
    KvPool          pool;
    StoreSpan      *spans;      /* [slots] */
    int32_t        *table;      /* in the arena; NULL when flat */
    uint32_t       *base_row;   /* in the arena */
    uint64_t        row_bytes;  /* a row of all layers and planes on this rank, pooled keys apart */
    uint64_t        unit_bytes; /* 64 rows of them, pooled keys included */
    uint64_t        entries;    /* table entries held, all slots together */
    uint32_t        units_next; /* while a resize is prepared */
    uint32_t        units_ahead; /* pool: units that slabs were made for ahead of a resize; 0: none were */
    uint32_t        slice_units; /* flat: units of one slot's address range; without reserve: of its memory now */
} StoreClass;

struct KvStore {
    KvDev      *dev;
    KvLayout    layout;
    uint32_t    slots;
    uint32_t    table_stride;
    uint64_t    max_ctx;
    uint32_t    class_count, layer_count, n_layer;
    int         resizing, asleep, waking; /* waking: the memory is had again, and a vote decides */
    uint32_t    columns, index_pool; /* 0: none in the model */
    uint64_t    index_ring;
    uint32_t   *len, *len_staged, *pools_ready;      /* in the arena */
    int32_t    *column_read, *column_write, *column_each; /* in the arena */
    StoreSlot  *slot_states;  /* [slots] */
    uint32_t    slots_open;
    uint64_t    slot_bytes, image_bytes, pool_key_bytes; /* of all layers here */
    float      *pool_scratch; /* rows of several pools and their keys, decoded */
    void       *arena;
    size_t      arena_bytes;
    /* ---- of a device that is not direct; NULL and 0 elsewhere */
    int             mirrored;
    uint32_t        layers_max;
    uint32_t       *device_arena;
    uint64_t       *noted;         /* a bit a word of the arena: it is among the changes */
    KvPatch        *changes;       /* [words of the arena] index alone, until they are sent */
    uint32_t        change_count;
    KvEncodeCounts *device_counts; /* [layer_count] */
    void           *scratch;       /* for rows on their way between host and device; grows */
    size_t          scratch_bytes;
    void           *stage;         /* host memory: rows of recurrent layers that go in one copy; grows */
    size_t          stage_bytes;
    KvEvent         order;
    KvgStream       last_stream;   /* that rows were written on */
    int             streams_mixed, units_freed; /* there were several; units were freed since they were last put in order */
    KvgStatus       failed;        /* of a copy that nobody could report */
    int32_t    *layer_index;      /* [n_layer] into layers, -1: not here */
    StoreLayer *layers;
    StoreClass  classes[KVG_CLASSES_MAX];
};

static inline int kvg_store_reserves(const KvStore *store)
{
    return store->dev->ops->reserve != NULL;
}

static inline int kvg_store_is_ring(const KvStore *store, const StoreClass *class)
{
    return store->layout == KVG_LAYOUT_FLAT && class->geometry.ring && class->geometry.window != 0;
}

static inline int32_t *kvg_store_table(const KvStore *store, const StoreClass *class, uint32_t slot)
{
    return class->table + (size_t)slot * store->table_stride;
}

/* Bytes of `units` units of a plane. */
static inline size_t kvg_store_plane_bytes(const StorePlane *plane, uint64_t units)
{
    return units * plane->per_unit * plane->token_bytes;
}

/* Whole entries among `rows` rows from the beginning of a unit on: pooled keys are fewer than rows. */
static inline uint64_t kvg_store_entries(const StorePlane *plane, uint64_t rows)
{
    return rows * plane->per_unit / KVG_CHUNK_ROWS;
}

/* A word of the arena has changed. */
void kvg_store_note_word(KvStore *store, const void *word);
static inline void kvg_store_note(KvStore *store, const void *word)
{
    if (store->mirrored) kvg_store_note_word(store, word);
}

/* Table entries are set here alone. */
static inline void kvg_store_set_entry(KvStore *store, int32_t *entry, int32_t id)
{
    *entry = id;
    kvg_store_note(store, entry);
}

/* Makes and frees the device's side of a mirrored arena; `show` makes the views that kernels get. */
KvgStatus kvg_store_open_mirror(KvStore *store, uint64_t words);
KvgStatus kvg_store_fill_mirror(KvStore *store);
void      kvg_store_close_mirror(KvStore *store);
void      kvg_store_show(KvStore *store);

/* Where a layer's encoder counts. */
static inline KvEncodeCounts *kvg_store_counter(KvStore *store, StoreLayer *layer)
{
    return store->mirrored ? &store->device_counts[layer - store->layers] : &layer->counts;
}

/* decode_rows into host memory. */
KvgStatus kvg_store_decode(KvStore *store, KvFormat format, KvRowsAt at, uint32_t heads, uint32_t dim, uint32_t rows, float *target,
                           KvgStream stream);

/* A copy of `bytes` bytes of host memory on the device, until the next call of this. */
KvgStatus      kvg_store_lend(KvStore *store, const void *source, size_t bytes, KvgStream stream, const void **lent);
KvEncodeCounts kvg_store_device_counts(const KvStore *store, uint32_t index);
KvEncodeCounts kvg_store_device_counts_sum(const KvStore *store);

StoreLayer *kvg_store_find_layer(const KvStore *store, uint32_t layer);
/* Rows [row, row+rows) of the layer are booked and held. ELAPPED, ECAPACITY. */
KvgStatus kvg_store_check_rows(const KvStore *store, const StoreLayer *layer, uint32_t slot, uint64_t row, uint32_t rows);
KvgStatus kvg_store_check_source(const KvRowsIn *in);
KvRowsIn  kvg_store_advance(const KvRowsIn *in, uint32_t rows);
/* Rows are never written into a chunk with more than one reference. */
void kvg_store_assert_writable(const KvStore *store, const StoreLayer *layer, uint32_t slot, uint64_t row);

/* Creation of one layer of its kind; close copes with one that is made in part. */
KvgStatus kvg_store_describe_plane(const KvStore *store, StorePlane *plane, KvPlane *view, KvFormat format, uint32_t heads, uint32_t dim,
                                   uint32_t per_unit);
KvgStatus kvg_store_open_planes(KvStore *store, StoreLayer *layer);
KvgStatus kvg_store_open_latent(KvStore *store, const KvLayerGeometry *geometry, StoreLayer *layer);
KvgStatus kvg_store_open_recurrent(KvStore *store, const KvLayerGeometry *geometry, StoreLayer *layer);
KvgStatus kvg_store_open_ring(KvStore *store, StoreLayer *layer);
void      kvg_store_close_slots(KvStore *store, StoreLayer *layer);
KvgStatus kvg_store_read_latent(KvStore *store, StoreLayer *layer, uint32_t plane, uint32_t slot, uint64_t row, uint32_t rows,
                                float *target);

/* Planes: made at creation, freed by destroy in whatever state creation left them. */
KvgStatus kvg_store_open_pool_planes(KvStore *store, StoreLayer *layer);
KvgStatus kvg_store_open_flat_planes(KvStore *store, StoreLayer *layer);
void      kvg_store_close_planes(KvStore *store, StoreLayer *layer);
/* Pool on a device that reserves: backs units [class] of every class; gives back what every plane has beyond its class's units and those ahead. */
KvgStatus kvg_store_extend_slabs(KvStore *store, const uint32_t *units);
void      kvg_store_give_back_slabs(KvStore *store);
/* Sharing layers see their source's planes: called whenever those moved. */
void kvg_store_copy_shared_views(KvStore *store);

/* Pool: entries are chunk ids. */
void      kvg_store_pool_book(KvStore *store, StoreClass *class, uint32_t slot, uint32_t end);
void      kvg_store_pool_trim(KvStore *store, StoreClass *class, uint32_t slot, uint32_t end);
void      kvg_store_pool_fork(KvStore *store, uint32_t class_index, uint32_t source, uint32_t target, uint64_t first_row,
                              uint64_t rows, KvgStream stream);

/* Flat: units are counted, rows are backed. */
KvgStatus kvg_store_flat_book(KvStore *store, uint32_t class_index, uint32_t slot, uint32_t end);
void      kvg_store_flat_trim(KvStore *store, uint32_t class_index, uint32_t slot, uint32_t end);
KvgStatus kvg_store_flat_fork(KvStore *store, uint32_t class_index, uint32_t source, uint32_t target, uint64_t first_row,
                              uint64_t rows, KvgStream stream);
/* On a device without reserved ranges: makes every slot's slice of the class at least `units` long, by copying. */
KvgStatus kvg_store_flat_grow(KvStore *store, uint32_t class_index, uint32_t units);

#endif

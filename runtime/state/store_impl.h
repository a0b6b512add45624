/* Store, inside: what the store's sources share. Private to runtime/state/store*.c and to tests that break it on purpose.
 *
 *   arena   one device allocation: len, len_staged [slots], then for each class base_row [slots] and (pool) table [slots][stride];
 *           so one asynchronous copy brings a device up to date
 *   spans   [class][slot] {first, end}: the entries held; the table is contiguous from first to end
 *   planes  two for each layer that owns rows (K, V); a sharing layer's view is a copy of its source's */
#ifndef KVG_STORE_IMPL_H
#define KVG_STORE_IMPL_H

#include "runtime/state/pool.h"
#include "runtime/state/store.h"

typedef struct StoreSpan {
    uint32_t first, end;
    uint32_t backed; /* flat on a device that reserves: units that every plane of the class has memory for */
} StoreSpan;

typedef struct StorePlane {
    KvRange  range;       /* on a device that reserves: the whole plane */
    KvRange *slices;      /* flat on such a device: [slots], each backed for itself */
    void    *memory;      /* on a device that does not reserve */
    void    *grown;       /* its successor while a copying grow is under way */
    size_t   memory_bytes;
    uint64_t token_bytes; /* encoded bytes of one row of all heads here */
} StorePlane;

typedef struct StoreLayer {
    KvPlaneView    view;
    StorePlane     planes[2]; /* K, V */
    KvEncodeCounts counts;
    uint32_t       class_index;
    int32_t        source;    /* index into layers[], -1: owns its planes */
} StoreLayer;

typedef struct StoreClass {
    KvClassGeometry geometry;
    KvPool          pool;
    StoreSpan      *spans;      /* [slots] */
    int32_t        *table;      /* in the arena; NULL when flat */
    uint32_t       *base_row;   /* in the arena */
    uint64_t        row_bytes;  /* a row of all layers and both planes on this rank */
    uint64_t        entries;    /* table entries held, all slots together */
    uint32_t        units_next; /* while a resize is prepared */
    uint32_t        slice_units; /* flat: units of one slot's address range; without reserve: of its memory now */
} StoreClass;

struct KvStore {
    KvDev      *dev;
    KvLayout    layout;
    uint32_t    slots;
    uint32_t    table_stride;
    uint64_t    max_ctx;
    uint32_t    class_count, layer_count, n_layer;
    int         resizing;
    uint32_t   *len, *len_staged; /* in the arena */
    void       *arena;
    size_t      arena_bytes;
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

static inline KvPlane *kvg_store_plane_view(StoreLayer *layer, int plane)
{
    return plane == 0 ? &layer->view.k : &layer->view.v;
}

/* Planes: made at creation, freed by destroy in whatever state creation left them. */
KvgStatus kvg_store_open_pool_planes(KvStore *store, StoreLayer *layer);
KvgStatus kvg_store_open_flat_planes(KvStore *store, StoreLayer *layer);
void      kvg_store_close_planes(KvStore *store, StoreLayer *layer);
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

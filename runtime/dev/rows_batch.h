/** Rows of a batch: one pass's rows of all its sequences, for one layer, in one call (S8).
 *
 * A place of the batch is a sequence's slot with `rows` rows from absolute row `first_row` on. Everything that differs from step to step is
 * read from arrays at fixed addresses, so that a captured launch stays valid: slots, rows, first rows or staged lengths, chunk tables. */
#ifndef KVG_ROWS_BATCH_H
#define KVG_ROWS_BATCH_H

#include <kvgrid/dev.h>
#include <kvgrid/latent.h>
#include <kvgrid/view.h>

KVG_BEGIN_DECLS

/** A plane and how its rows are found, whatever it holds: K, V, latent rows, keys, index rows, or the ring of a slot. */
typedef struct KvPlaneRef {
    KvPlane         plane;
    uint32_t        rows_per_chunk; /* entries of one chunk; 0: flat */
    uint32_t        table_stride;
    const int32_t  *table;          /* NULL: flat */
    uint64_t        ring_rows;      /* flat: rows wrap here; 0: never */
    const uint32_t *base_row;       /* flat: [slots] the absolute row at physical row 0; NULL: 0 */
} KvPlaneRef;

/** One plane of a call. in.data is read by an encoder and written by a decoder: device memory, [token][head][dim]. */
typedef struct KvBatchPlane {
    KvPlaneRef to;
    KvRowsIn   in;
} KvBatchPlane;

typedef struct KvRowsBatch {
    KvBatchPlane    plane[2]; /* K and V, or latent rows and what goes beside them */
    uint32_t        planes;   /* 1 or 2 */
    uint32_t        heads;    /* of both */
    uint32_t        places;
    uint32_t        rows_max; /* no place has more rows: bounds the launch */
    /* [places], device memory; each may be NULL */
    const int32_t  *slots;       /* -1: skipped. NULL: place i is slot i */
    const uint32_t *rows;        /* 0: skipped. NULL: rows_max each */
    const uint32_t *first_row;   /* NULL: len_staged[slot] - rows, or 0 without len_staged */
    const uint32_t *len_staged;  /* [slots of the store] */
    const uint32_t *first_token; /* index in `in` of the place's first row. NULL: place * token_pitch */
    uint32_t        token_pitch;
    KvEncodeCounts *counts;      /* added to; device memory; NULL: not counted */
} KvRowsBatch;

static inline KvPlaneRef kvg_plane_ref(const KvPlaneView *view, const KvPlane *plane)
{
    KvPlaneRef ref = {*plane, view->rows_per_chunk, view->table_stride, view->table, view->ring_rows, view->base_row};
    return ref;
}

/** Latent rows (per_chunk 64), keys (kvg_latent_keys_per_chunk) or, without a ring, index rows (64). */
static inline KvPlaneRef kvg_latent_ref(const KvLatentView *view, const KvPlane *plane, uint32_t per_chunk)
{
    KvPlaneRef ref = {*plane, view->rows_per_chunk != 0 ? per_chunk : 0, view->table_stride, view->table, 0, 0};
    return ref;
}

/** Index rows of a pooled indexer, in the slot's ring. */
static inline KvPlaneRef kvg_ring_ref(const KvLatentView *view)
{
    KvPlaneRef ref = {view->index, 0, 0, 0, view->ring_rows, 0};

    ref.plane.base = view->ring;
    ref.plane.slot_bytes = view->ring_slot_bytes;
    ref.plane.row_stride = view->index_row_bytes;
    return ref;
}

KVG_END_DECLS
#endif

/** Plane views: where every row of one layer is, as an engine's attention reads it (S8).
 *
 * Pool layout (rows_per_chunk 64):  row(r) = base + table[r/64]*chunk_bytes + head*head_stride + (r%64)*row_stride
 * Flat layout (rows_per_chunk 0):   row(r) = base + slot*slot_bytes + ((r - base_row) mod ring_rows)*row_stride + head*head_stride
 * r is the absolute row (a token's position), head counts from this rank's first. All addresses are constant for the life of
 * the placement; lengths and tables change in place, in stream order. Device memory (on the host device: plain memory). */
#ifndef KVG_VIEW_H
#define KVG_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/format.h>

KVG_BEGIN_DECLS

#define KVG_CHUNK_ROWS 64

typedef enum KvLayout { KVG_LAYOUT_POOL = 0, KVG_LAYOUT_FLAT = 1 } KvLayout;

/** One plane (K or V) of one layer on this rank. */
typedef struct KvPlane {
    uint8_t *base;
    size_t   chunk_bytes; /* pool: bytes of one chunk, [head][row] inside; flat: 0 */
    size_t   slot_bytes;  /* flat: bytes from one sequence slot's plane to the next; pool: 0 */
    size_t   head_stride; /* bytes from one head to the next */
    size_t   row_stride;  /* bytes from one row to the next */
    size_t   head_bytes;  /* encoded bytes of one head of one row */
    uint32_t head_dim;    /* elements */
    KvFormat format;
} KvPlane;

/** One layer on this rank. Sequences are addressed by their slot (kvg_batch_slots, device memory too). */
typedef struct KvPlaneView {
    uint32_t layer;          /* whose planes these are: a sharing layer sees its source's */
    uint32_t owns;           /* 0 for a sharing layer: it may read, never write */
    uint32_t heads;          /* KV heads on this rank */
    uint32_t head_first;     /* the first of them in the model */
    uint64_t window;         /* 0: full attention */
    uint32_t rows_per_chunk; /* 64, or 0 for flat planes */
    uint32_t table_stride;   /* entries from one slot's table to the next */
    KvPlane  k, v;
    const int32_t  *table;      /* [slots][table_stride] chunk ids, -1 where none is held; NULL for flat planes */
    uint64_t        ring_rows;  /* flat: rows of the ring, or of the plane's address range where there is no ring */
    const uint32_t *len;        /* [slots] committed rows */
    const uint32_t *len_staged; /* [slots] rows this step's own attention may read */
    const uint32_t *base_row;   /* [slots] first absolute row still held by this layer's class */
} KvPlaneView;

/** The address of one row of one head; plain arithmetic, for host readers and tests. */
static inline uint8_t *kvg_plane_row(const KvPlaneView *view, const KvPlane *plane, uint32_t slot, uint32_t head, uint64_t row)
{
    if (view->rows_per_chunk != 0) {
        int32_t chunk = view->table[(size_t)slot * view->table_stride + row / KVG_CHUNK_ROWS];
        return plane->base + (size_t)chunk * plane->chunk_bytes + head * plane->head_stride +
               (row % KVG_CHUNK_ROWS) * plane->row_stride;
    }
    return plane->base + slot * plane->slot_bytes + ((row - view->base_row[slot]) % view->ring_rows) * plane->row_stride +
           head * plane->head_stride;
}

KVG_END_DECLS
#endif

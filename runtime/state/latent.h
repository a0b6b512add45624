/** LatentKvLayer: an MLA layer's latent rows, and what its indexer keeps (S8). Whole on every rank of a stage.
 *
 *   latent  rows [0, len): a one-head plane of the full class; V is the first kv_rank elements of the same row
 *   keys    per token: one key a row, kept for good, a plane like latent.
 *           pooled: one key a pool of `pool` rows, a plane with 64/pool keys a chunk; final once its pool's last row has landed
 *   index   pooled: state rows of tokens whose pool has no key yet: a ring of whole pools in the sequence's slot (ring_rows), or, with
 *           KVGRID_DSA_INDEX_RING=0, a plane of the full class that keeps them all (ring_rows 0)
 * Formats: f32 or bf16, one for rows, index rows and keys. */
#ifndef KVG_LATENT_H
#define KVG_LATENT_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/model.h>
#include <kvgrid/view.h>

KVG_BEGIN_DECLS

typedef struct KvLatentView {
    uint32_t    layer;
    uint32_t    width, kv_rank;
    KvIndexKind index_kind;
    uint32_t    index_width; /* elements of an index row (pooled) or a key (per token) */
    uint32_t    key_width;   /* pooled: index_width/2; per token: index_width; none: 0 */
    uint32_t    pool;        /* rows a pool; 0 unless pooled */
    KvPlane     latent;      /* addressed like a K plane of kvg_plane_row, head 0 */
    KvPlane     keys;        /* chunk_bytes of 64/pool (or 64) keys; row r -> key r/pool (or r) */
    KvPlane     index;       /* plane, where ring_rows is 0 */
    uint8_t    *ring;        /* [slots][ring_rows][index row], where ring_rows > 0: absolute row r is at r mod ring_rows */
    size_t      ring_slot_bytes; /* from one slot's ring to the next; behind the ring is room for one saved tail */
    size_t      index_row_bytes;
    uint64_t    ring_rows;   /* rounded down to whole pools; a ring not below max_ctx is max_ctx rows and never wraps */
    uint32_t    rows_per_chunk; /* 64, or 0 for flat planes */
    uint32_t    table_stride;
    uint64_t    plane_rows;  /* flat: rows of the plane's address range */
    const int32_t  *table;
    const uint32_t *len, *len_staged;   /* [slots] */
    const uint32_t *pools_ready;        /* [slots] committed: len/pool */
} KvLatentView;

/** Address of entry `i` of a plane with `per_chunk` entries a chunk: 64 for latent rows, index rows and per-token keys, 64/pool for
 *  pooled keys. Plain arithmetic, for host readers and tests. */
static inline uint8_t *kvg_latent_entry(const KvLatentView *view, const KvPlane *plane, uint32_t per_chunk, uint32_t slot, uint64_t i)
{
    if (view->rows_per_chunk != 0) {
        int32_t chunk = view->table[(size_t)slot * view->table_stride + i / per_chunk];
        return plane->base + (size_t)chunk * plane->chunk_bytes + (i % per_chunk) * plane->row_stride;
    }
    return plane->base + slot * plane->slot_bytes + i * plane->row_stride;
}

/** Keys of one chunk: 64, or 64/pool. */
static inline uint32_t kvg_latent_keys_per_chunk(const KvLatentView *view)
{
    return view->index_kind == KVG_INDEX_POOLED ? KVG_CHUNK_ROWS / view->pool : KVG_CHUNK_ROWS;
}

/** Address of index row `row` of a pooled indexer, in the ring or in the plane. */
static inline uint8_t *kvg_latent_index_row(const KvLatentView *view, uint32_t slot, uint64_t row)
{
    if (view->ring_rows == 0) return kvg_latent_entry(view, &view->index, KVG_CHUNK_ROWS, slot, row);
    return view->ring + slot * view->ring_slot_bytes + row % view->ring_rows * view->index_row_bytes;
}

/** Builds the key of one pool. rows [pool][index_width] f32 as decoded from what is stored; key [key_width] f32, to be stored.
 *  Must depend on its arguments alone: every rank and every replay must build the same key. */
typedef void (*KvPoolKeyFn)(void *user, uint32_t layer, uint64_t pool_index, const float *rows, float *key);

KVG_END_DECLS
#endif

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
    size_t      ring_slot_bytes, index_row_bytes;
    uint64_t    ring_rows;   /* rounded down to whole pools */
    uint32_t    rows_per_chunk; /* 64, or 0 for flat planes */
    uint32_t    table_stride;
    uint64_t    plane_rows;  /* flat: rows of the plane's address range */
    const int32_t  *table;
    const uint32_t *len, *len_staged;   /* [slots] */
    const uint32_t *pools_ready;        /* [slots] committed: len/pool */
} KvLatentView;

/** Builds the key of one pool. rows [pool][index_width] f32 as decoded from what is stored; key [key_width] f32, to be stored.
 *  Must depend on its arguments alone: every rank and every replay must build the same key. */
typedef void (*KvPoolKeyFn)(void *user, uint32_t layer, uint64_t pool_index, const float *rows, float *key);

KVG_END_DECLS
#endif

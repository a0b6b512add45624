/** Index ring: where an indexer's live rows lie between two pool keys (S8).
 *
 * A pooled indexer keeps index_pool state rows until their pool's key is built, and then needs them no more; a ring of
 * whole pools is enough. 0 rows means none: the plane is flat. Units are rows. Threads: any thread. Reach: local. */
#ifndef KVG_INDEX_RING_H
#define KVG_INDEX_RING_H

#include <stdint.h>

#include <kvgrid/status.h>

KVG_BEGIN_DECLS

#define KVG_INDEX_RING_WORKING_ROWS 5120u
#define KVG_INDEX_RING_UNSET        (-1)

/** Rows of the ring, 0 for none. explicit_rows: 0 none, KVG_INDEX_RING_UNSET the working rows (5120), else itself.
 *  None unless the rows are fewer than max_ctx. */
KVG_API uint64_t kvg_index_ring_rows_for(int64_t explicit_rows, uint64_t max_ctx);
/** The same with the process's KVGRID_DSA_INDEX_RING; a policy that cannot be read counts as unset. */
KVG_API uint64_t kvg_index_ring_rows(uint64_t max_ctx);
/** The same with the knob unset. */
KVG_API uint64_t kvg_index_ring_default_rows(uint64_t max_ctx);

/** `ring_rows` rounded down to whole pools; pool 0 counts as 1; 0 stays 0. What creation keeps.
 *  EINVAL: a ring below one pool. */
KVG_API KvgStatus kvg_index_ring_round(uint64_t ring_rows, uint64_t pool, uint64_t *rounded);
/** Physical row of absolute row `row`: itself on a flat plane (ring_rows 0), else modulo the rounded ring.
 *  A ring below one pool, which creation refuses, maps modulo itself: still within bounds. */
KVG_API uint64_t kvg_index_plane_physical_row(uint64_t ring_rows, uint64_t pool, uint64_t row);
/** How many of `remaining` rows may be taken at row `cur` before pools must be built; returns 0 for none, leaving *take
 *  alone, else 1. ring_rounded 0 takes all. None: cur lies below the pools that are ready, or the ring is full. */
KVG_API int kvg_index_ring_take(uint64_t ring_rounded, uint64_t pool, uint64_t pools_ready, uint64_t cur,
                                uint64_t remaining, uint64_t *take);

KVG_END_DECLS
#endif

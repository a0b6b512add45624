/** Resident cache: one class of layers of one sequence, on the ranks that this process drives (S6).
 *
 *   state   one TpKvState for the whole class, so that its layers cannot drift apart
 *   ranks   [rank_count] x [layer_count] shapes: layers of a class may differ in width, ranks in nothing but the shard
 *
 * It holds lengths and geometry, no rows: where rows lie is the plane's business (S8).
 * Ownership: the ranks and their shapes are the caller's and stay alive as long as the cache. Threads: one at a time per
 * cache. Reach: local. The methods answer as the functions of transaction.h that they carry on to. */
#ifndef KVG_RESIDENT_H
#define KVG_RESIDENT_H

#include <stdint.h>

#include <kvgrid/shape.h>
#include <kvgrid/transaction.h>

KVG_BEGIN_DECLS

typedef struct ResidentTpKvCacheRank {
    uint32_t                       tp_rank;
    const TpKvRankAllocationShape *shapes; /* [layer_count], in the order of the class's layers */
} ResidentTpKvCacheRank;

typedef struct ResidentTpKvCache {
    TpKvState                    state;
    uint32_t                     layer_count;
    uint32_t                     rank_count;
    const ResidentTpKvCacheRank *ranks; /* [rank_count] */
} ResidentTpKvCache;

/** A fresh cache of `layer_count` layers on `rank_count` ranks; the rest as kvg_tp_kv_init. EINVAL: no layer or no rank. */
KVG_API KvgStatus kvg_resident_tp_kv_init(ResidentTpKvCache *cache, const ResidentTpKvCacheRank *ranks,
                                          uint32_t rank_count, uint32_t layer_count, uint64_t capacity, uint64_t window,
                                          uint32_t prefill_chunk_max, uint32_t flags);

KVG_API KvgStatus kvg_resident_tp_kv_begin(ResidentTpKvCache *cache, TpKvTransaction *tx);
KVG_API KvgStatus kvg_resident_tp_kv_prepare_append(const ResidentTpKvCache *cache, const TpKvTransaction *tx,
                                                    uint64_t rows, TpKvAppendPlan *plan);
KVG_API KvgStatus kvg_resident_tp_kv_publish_append_rebase(ResidentTpKvCache *cache, const TpKvAppendPlan *plan);
KVG_API KvgStatus kvg_resident_tp_kv_publish_append_plan(ResidentTpKvCache *cache, const TpKvAppendPlan *plan);
KVG_API KvgStatus kvg_resident_tp_kv_peek_append_ring(const ResidentTpKvCache *cache, uint64_t rows, uint64_t *write_row,
                                                      int *rebase);
KVG_API KvgStatus kvg_resident_tp_kv_commit_target(const ResidentTpKvCache *cache, const TpKvTransaction *tx,
                                                   uint64_t accepted, uint64_t *target);
KVG_API KvgStatus kvg_resident_tp_kv_publish_finalize(ResidentTpKvCache *cache, const TpKvTransaction *tx,
                                                      uint64_t target);
KVG_API KvgStatus kvg_resident_tp_kv_rewind_to(ResidentTpKvCache *cache, uint64_t len);
KVG_API KvgStatus kvg_resident_tp_kv_publish_hydration(ResidentTpKvCache *cache, uint64_t len, uint64_t start);
KVG_API KvgStatus kvg_resident_tp_kv_physical_range(const ResidentTpKvCache *cache, uint64_t start, uint64_t end,
                                                    uint64_t *first, uint64_t *past);

/** Plans a copying grow; k_bytes and v_bytes of the plan are the sums over all layers and ranks of this cache.
 *  EOVERFLOW also where those sums pass 64 bits. */
KVG_API KvgStatus kvg_resident_tp_kv_prepare_grow(const ResidentTpKvCache *cache, uint64_t capacity, uint64_t rows,
                                                  TpKvGrowPlan *plan);
/** The bytes that `plan` copies in one layer on one rank (indices into this cache's arrays). EINVAL: outside them;
 *  EOVERFLOW. */
KVG_API KvgStatus kvg_resident_tp_kv_grow_layer_bytes(const ResidentTpKvCache *cache, const TpKvGrowPlan *plan,
                                                      uint32_t rank_index, uint32_t layer_index, uint64_t *k_bytes,
                                                      uint64_t *v_bytes);
/** Makes the fresh `target` go on where `source` stands, generation included. ELAYOUT: other ranks, layers or shapes, or as
 *  kvg_tp_kv_publish_grow; nothing changed. */
KVG_API KvgStatus kvg_resident_tp_kv_publish_grow(ResidentTpKvCache *source, const TpKvGrowPlan *plan,
                                                  ResidentTpKvCache *target);

/** What one rank's flat planes of this class take: allocation_bytes(capacity) of each layer, summed, where a ring counts
 *  its own rows. EINVAL: rank_index; EOVERFLOW. */
KVG_API KvgStatus kvg_resident_tp_kv_allocation_bytes(const ResidentTpKvCache *cache, uint32_t rank_index, uint64_t *bytes);

KVG_END_DECLS
#endif

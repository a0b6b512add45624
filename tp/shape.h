/** Shape: what one rank of a TP group allocates for a K/V layer, from whole-model dims alone (S4).
 *
 * This rule cuts dims, not heads: placement goes by kvg_head_shard, which never cuts a head in two.
 * Threads: pure functions, any thread. Reach: local. */
#ifndef KVG_SHAPE_H
#define KVG_SHAPE_H

#include <stdint.h>

#include <kvgrid/format.h>

KVG_BEGIN_DECLS

#define KVG_KV_LAYER_FIXED_BYTES 20u /* 8 bytes of padding after each of two planes, one i32 mirror of the length */

typedef struct TpKvRankAllocationShape {
    uint64_t kv_dim_k;      /* elements of one token's K row on this rank: heads * head_dim_k */
    uint64_t kv_dim_v;
    uint64_t k_token_bytes; /* bytes of those rows as stored */
    uint64_t v_token_bytes;
    uint64_t fixed_bytes;   /* KVG_KV_LAYER_FIXED_BYTES */
} TpKvRankAllocationShape;

/** One rank's share of a layer of these dims. (1024, 1024, 8, q8_0, q5_1) -> 128, 128, 136, 96, 20.
 *  EINVAL: an argument is 0 or a format is none; EGEOM: a dim does not divide by ranks, or the local dim is no multiple
 *  of 32, in every format; EOVERFLOW. */
KVG_API KvgStatus kvg_tp_kv_rank_allocation_shape(uint64_t kv_dim_k, uint64_t kv_dim_v, uint64_t ranks, KvFormat format_k,
                                                  KvFormat format_v, TpKvRankAllocationShape *shape);
/** k_token_bytes + v_token_bytes; of a shape made above this cannot overflow. */
KVG_API uint64_t kvg_tp_kv_shape_bytes_per_token(const TpKvRankAllocationShape *shape);
/** bytes_per_token * capacity + fixed_bytes. EOVERFLOW. */
KVG_API KvgStatus kvg_tp_kv_shape_allocation_bytes(const TpKvRankAllocationShape *shape, uint64_t capacity, uint64_t *bytes);

KVG_END_DECLS
#endif

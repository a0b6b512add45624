/** Head shard: which heads of a layer a rank of its stage holds (S4).
 *
 *   heads % ranks == 0   heads/ranks contiguous heads a rank
 *   ranks % heads == 0   one head a rank, every head on ranks/heads ranks
 *   else                 EGEOM
 *
 * In both cases the first head is floor(rank*heads/ranks). Everything kept per head (K and V rows, scales, norm weights)
 * follows this one table; a count of heads over all ranks is never derived from a local count.
 * Ownership: plain values. Threads: pure functions, any thread. Reach: local. */
#ifndef KVG_HEAD_SHARD_H
#define KVG_HEAD_SHARD_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/status.h>

KVG_BEGIN_DECLS

typedef struct HeadShard {
    uint32_t first;    /* the rank's first head */
    uint32_t count;    /* its heads, >= 1 */
    uint32_t replicas; /* ranks that hold each of them, >= 1 */
} HeadShard;

/** The heads of `rank` of `ranks`. EINVAL: heads or ranks 0, rank >= ranks; EGEOM: neither divides the other, listing the
 *  TP sizes that work. */
KVG_API KvgStatus kvg_head_shard(uint32_t heads, uint32_t ranks, uint32_t rank, HeadShard *shard);

/** The TP sizes up to `bound` over which both query heads and KV heads fall: the query heads divide by them, the KV heads
 *  do or divide them. query_heads 0: no such condition.
 *   sizes  [capacity], ascending; may be NULL when capacity is 0
 *  Returns how many there are, which may be more than capacity. */
KVG_API size_t kvg_tp_sizes_that_work(uint32_t query_heads, uint32_t kv_heads, uint32_t bound, uint32_t sizes[],
                                      size_t capacity);
/** Whether a K/V layer of these heads falls over `ranks`. EINVAL: kv_heads or ranks 0; EGEOM, listing the sizes that work. */
KVG_API KvgStatus kvg_tp_check_heads(uint32_t query_heads, uint32_t kv_heads, uint32_t ranks);

KVG_END_DECLS
#endif

/* Head shard: see head_shard.h (S4). */
#include <kvgrid/head_shard.h>

#include <stdio.h>

#include "runtime/base/error.h"

static int size_works(uint32_t query_heads, uint32_t kv_heads, uint32_t ranks)
{
    if (kv_heads % ranks != 0 && ranks % kv_heads != 0) return 0;
    return query_heads % ranks == 0; /* 0 % ranks is 0: no condition */
}

size_t kvg_tp_sizes_that_work(uint32_t query_heads, uint32_t kv_heads, uint32_t bound, uint32_t sizes[], size_t capacity)
{
    size_t count = 0;
    for (uint32_t ranks = 1; kv_heads != 0 && ranks <= bound && ranks != 0; ranks++) {
        if (!size_works(query_heads, kv_heads, ranks)) continue;
        if (count < capacity) sizes[count] = ranks;
        count++;
    }
    return count;
}

#define RANKS_MAX 65535u /* a vote record's rank has 16 bits */

/* "1, 2, 4, 8": those up to the larger head count; past `text` the list ends in "...". */
static void list_sizes(uint32_t query_heads, uint32_t kv_heads, char *text, size_t bytes)
{
    uint32_t sizes[24];
    size_t capacity = sizeof sizes / sizeof sizes[0], used = 0;
    uint32_t bound = query_heads > kv_heads ? query_heads : kv_heads;
    size_t count = kvg_tp_sizes_that_work(query_heads, kv_heads, bound < RANKS_MAX ? bound : RANKS_MAX, sizes, capacity);
    text[0] = '\0';
    for (size_t i = 0; i < count && i < capacity && used < bytes; i++) {
        int wrote = snprintf(text + used, bytes - used, "%s%u", i != 0 ? ", " : "", sizes[i]);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    if (count > capacity && used < bytes) snprintf(text + used, bytes - used, ", ...");
}

static KvgStatus fail_geometry(uint32_t query_heads, uint32_t kv_heads, uint32_t ranks)
{
    char sizes[256];
    list_sizes(query_heads, kv_heads, sizes, sizeof sizes);
    if (query_heads == 0) {
        return kvg_fail(KVG_EGEOM, "%u heads do not fall over tp %u: use a tp of %s, or a multiple of %u, or spread layers "
                        "over stages instead (pp)", kv_heads, ranks, sizes, kv_heads);
    }
    return kvg_fail(KVG_EGEOM, "%u query heads and %u KV heads do not fall over tp %u: use a tp of %s, or spread layers over "
                    "stages instead (pp)", query_heads, kv_heads, ranks, sizes);
}

KvgStatus kvg_tp_check_heads(uint32_t query_heads, uint32_t kv_heads, uint32_t ranks)
{
    if (kv_heads == 0 || ranks == 0) {
        return kvg_fail(KVG_EINVAL, "%u KV heads over %u ranks: both must be at least 1", kv_heads, ranks);
    }
    if (!size_works(query_heads, kv_heads, ranks)) return fail_geometry(query_heads, kv_heads, ranks);
    return KVG_OK;
}

KvgStatus kvg_head_shard(uint32_t heads, uint32_t ranks, uint32_t rank, HeadShard *shard)
{
    if (heads == 0 || ranks == 0 || rank >= ranks) {
        return kvg_fail(KVG_EINVAL, "rank %u of %u with %u heads: heads and ranks must be at least 1, rank below ranks",
                        rank, ranks, heads);
    }
    if (!size_works(0, heads, ranks)) return fail_geometry(0, heads, ranks);
    uint32_t count = heads >= ranks ? heads / ranks : 1;
    uint32_t replicas = heads >= ranks ? 1 : ranks / heads;
    *shard = (HeadShard){.first = rank / replicas * count, .count = count, .replicas = replicas};
    KVG_ASSERT(shard->first + shard->count <= heads);
    return KVG_OK;
}

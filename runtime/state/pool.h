/* Pool: the chunk ids of one class on one rank: which are free, and how many sequences hold each. Private.
 *
 *   refs      [units_max]  0: free; 1: one holder, who may write; more: shared, nobody may write
 *   free_ids  [units_max]  a stack of the free ids in [0, free_count); the last freed is the first reused, so it is warm
 *
 * Ids are private to a rank; only the counts are agreed. A counted pool (flat planes) has counts and no ids.
 * Nothing is allocated after creation. Taking from an empty pool is a bug: callers have counted. */
#ifndef KVG_POOL_H
#define KVG_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

typedef struct KvPool {
    uint32_t  total;
    uint32_t  free_count;
    uint32_t  units_max;
    uint32_t *refs;     /* NULL in a counted pool */
    int32_t  *free_ids; /* NULL in a counted pool */
} KvPool;

/* EINVAL: units above units_max, or more than INT32_MAX. ENOMEM. */
KvgStatus kvg_pool_create(KvPool *pool, uint32_t units, uint32_t units_max);
/* Counts only. */
KvgStatus kvg_pool_create_counted(KvPool *pool, uint32_t units, uint32_t units_max);
void      kvg_pool_destroy(KvPool *pool);

/* 1 if the pool may have `total` units now: nothing that would go is held. */
int kvg_pool_can_resize(const KvPool *pool, uint32_t total);
/* Asserts kvg_pool_can_resize. New ids are taken last, lowest first. */
void kvg_pool_resize(KvPool *pool, uint32_t total);
/* ETAINTED: the free list, the reference counts and the counts do not agree. */
KvgStatus kvg_pool_check(const KvPool *pool);

static inline int32_t kvg_pool_take(KvPool *pool)
{
    KVG_ASSERT(pool->free_count > 0);
    int32_t id = pool->free_ids[--pool->free_count];
    KVG_ASSERT(pool->refs[id] == 0);
    pool->refs[id] = 1;
    return id;
}

static inline void kvg_pool_share(KvPool *pool, int32_t id)
{
    KVG_ASSERT(pool->refs[id] > 0);
    pool->refs[id]++;
}

static inline int kvg_pool_shared(const KvPool *pool, int32_t id)
{
    return pool->refs[id] > 1;
}

/* One holder less. A freed chunk may be reused at once: on the host all reads are done. A device with streams makes the
 * next writer's stream wait for the last reader's event here (S8). */
static inline void kvg_pool_drop(KvPool *pool, int32_t id)
{
    KVG_ASSERT(pool->refs[id] > 0);
    if (--pool->refs[id] == 0) {
        pool->free_ids[pool->free_count++] = id;
    }
}

static inline void kvg_pool_take_counted(KvPool *pool, uint32_t units)
{
    KVG_ASSERT(pool->refs == NULL && units <= pool->free_count);
    pool->free_count -= units;
}

static inline void kvg_pool_drop_counted(KvPool *pool, uint32_t units)
{
    KVG_ASSERT(pool->refs == NULL && units <= pool->total - pool->free_count);
    pool->free_count += units;
}

#endif

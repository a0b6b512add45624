#include "runtime/state/pool.h"

#include "runtime/base/memory.h"

static KvgStatus check_units(uint32_t units, uint32_t units_max)
{
    if (units <= units_max && units_max <= INT32_MAX) return KVG_OK;
    return kvg_fail(KVG_EINVAL, "a pool of %u units with addresses for %u: reserve at least its units, at most %d", units,
                    units_max, INT32_MAX);
}

KvgStatus kvg_pool_create_counted(KvPool *pool, uint32_t units, uint32_t units_max)
{
    KVG_TRY(check_units(units, units_max));
    *pool = (KvPool){.total = units, .free_count = units, .units_max = units_max};
    return KVG_OK;
}

KvgStatus kvg_pool_create(KvPool *pool, uint32_t units, uint32_t units_max)
{
    KvPool    fresh = {.units_max = units_max};
    KvgStatus status;

    KVG_TRY(check_units(units, units_max));
    KVG_TRY(KVG_NEW(units_max, "a pool's reference counts", &fresh.refs));
    KVG_TRY_GOTO(KVG_NEW(units_max, "a pool's free list", &fresh.free_ids), err_free_refs);
    kvg_pool_resize(&fresh, units);
    *pool = fresh;
    return KVG_OK;
err_free_refs:
    kvg_free(fresh.refs);
    return status;
}

void kvg_pool_destroy(KvPool *pool)
{
    kvg_free(pool->refs);
    kvg_free(pool->free_ids);
    *pool = (KvPool){0};
}

int kvg_pool_can_resize(const KvPool *pool, uint32_t total)
{
    if (total > pool->units_max) return 0;
    if (pool->refs == NULL) return total >= pool->total - pool->free_count;
    for (uint32_t id = total; id < pool->total; id++) {
        if (pool->refs[id] != 0) return 0;
    }
    return 1;
}

/* The stack goes on holding what was free, in its order, less the ids that go. */
static void drop_free_ids_from(KvPool *pool, uint32_t total)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < pool->free_count; i++) {
        if ((uint32_t)pool->free_ids[i] < total) pool->free_ids[kept++] = pool->free_ids[i];
    }
    pool->free_count = kept;
}

/* Fresh ids go below all others in the stack, so that warm chunks are reused first. */
static void add_free_ids(KvPool *pool, uint32_t total)
{
    uint32_t fresh = total - pool->total;

    for (uint32_t i = pool->free_count; i-- > 0;) pool->free_ids[i + fresh] = pool->free_ids[i];
    for (uint32_t i = 0; i < fresh; i++) pool->free_ids[i] = (int32_t)(total - 1 - i);
    pool->free_count += fresh;
}

void kvg_pool_resize(KvPool *pool, uint32_t total)
{
    KVG_ASSERT(kvg_pool_can_resize(pool, total));
    if (pool->refs == NULL) {
        pool->free_count = total - (pool->total - pool->free_count);
    } else if (total < pool->total) {
        drop_free_ids_from(pool, total);
    } else {
        add_free_ids(pool, total);
    }
    pool->total = total;
}

KvgStatus kvg_pool_check(const KvPool *pool)
{
    uint32_t unheld = 0;

    if (pool->free_count > pool->total || pool->total > pool->units_max) {
        return kvg_fail(KVG_ETAINTED, "a pool counts %u free of %u units (at most %u): its counts are broken", pool->free_count,
                        pool->total, pool->units_max);
    }
    if (pool->refs == NULL) return KVG_OK;
    for (uint32_t id = 0; id < pool->total; id++) unheld += pool->refs[id] == 0;
    if (unheld != pool->free_count) {
        return kvg_fail(KVG_ETAINTED, "a pool counts %u free units, but %u of %u have no holder: its counts are broken",
                        pool->free_count, unheld, pool->total);
    }
    for (uint32_t i = 0; i < pool->free_count; i++) {
        int32_t id = pool->free_ids[i];
        if (id < 0 || (uint32_t)id >= pool->total || pool->refs[id] != 0) {
            return kvg_fail(KVG_ETAINTED, "entry %u of a pool's free list is chunk %d, which is held or outside its %u units", i,
                            id, pool->total);
        }
    }
    return KVG_OK;
}

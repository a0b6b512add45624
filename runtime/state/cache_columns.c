/* Cache, slot state: what a step, a rewind or a refusal does to columns and index rings. The rules are in columns.h; here they are
 * carried to the store, which moves bytes only where a tail has to be put back or row 0 is reached. */
#include <inttypes.h>

#include "runtime/state/cache_impl.h"

static void show_state(KvCache *cache)
{
    const KvSlotState *held = &cache->held;

    if (held->columns != 0) kvg_store_set_columns(cache->store, cache->slot, held->current, held->current, 0);
    if (held->pool != 0) kvg_store_set_index(cache->store, cache->slot, held->at);
}

void kvg_cache_slot_pass(KvCache *cache, uint32_t rows)
{
    KvPassColumns pass = kvg_slot_pass(&cache->held, rows);

    if (cache->held.columns != 0) kvg_store_set_columns(cache->store, cache->slot, pass.read, pass.write, pass.each);
}

static void stay(KvCache *cache)
{
    if (kvg_slot_overwritten(&cache->held)) kvg_store_restore_tails(cache->store, cache->slot, NULL);
    kvg_slot_stay(&cache->held);
    show_state(cache);
}

uint32_t kvg_cache_slot_settle(KvCache *cache, uint64_t accepted)
{
    uint64_t owed = cache->pos + accepted - cache->held.at;

    if (!kvg_slot_can_take(&cache->held, owed)) {
        stay(cache);
        return (uint32_t)owed;
    }
    kvg_slot_take(&cache->held, owed);
    show_state(cache);
    return 0;
}

void kvg_cache_slot_refuse(KvCache *cache)
{
    stay(cache);
}

void kvg_cache_slot_adopt(KvCache *cache, uint64_t len, uint32_t column)
{
    kvg_slot_restored(&cache->held, len);
    cache->held.current = column;
    show_state(cache);
}

/* ---- going back */

static KvSlotState without_step(const KvCache *cache)
{
    KvSlotState held = cache->held;

    kvg_slot_stay(&held);
    return held;
}

KvgStatus kvg_cache_slot_check_held(const KvCache *cache, uint64_t len)
{
    KvSlotState held = without_step(cache);

    if (len <= held.at && kvg_slot_holds(&held, len)) return KVG_OK;
    if (len <= held.at && kvg_slot_column_held(&held, len)) {
        return kvg_fail(KVG_ELAPPED, "row %" PRIu64 " of slot %u: index rows from %" PRIu64 " on are held, and its pool begins at %" PRIu64
                        "; take a snapshot before going on", len, cache->slot, held.low, kvg_slot_tail_start(&held, len));
    }
    return kvg_fail(KVG_ELAPPED, "row %" PRIu64 " of slot %u: recurrent state is held for rows %" PRIu64 " to %" PRIu64
                    "; place with more columns, or take a snapshot before going on", len, cache->slot,
                    held.columns == 0 ? 0 : held.at - held.back, held.at);
}

KvgStatus kvg_cache_slot_check_rewind(const KvCache *cache, uint64_t len)
{
    return len >= cache->held.at ? KVG_OK : kvg_cache_slot_check_held(cache, len); /* above: less is owed */
}

void kvg_cache_slot_rewind(KvCache *cache, uint64_t len, KvgStream stream)
{
    if (cache->held.passes != 0) stay(cache);
    if (len >= cache->held.at) return;
    kvg_slot_rewind(&cache->held, len);
    if (len == 0 && cache->held.columns != 0) kvg_store_zero_column(cache->store, cache->slot, cache->held.current, stream);
    show_state(cache);
}

KvgStatus kvg_cache_check_settled(const KvCache *cache, const char *call)
{
    if (kvg_kv_cache_replay(cache) == 0) return KVG_OK;
    return kvg_fail(KVG_EBUSY, "%s of slot %u: the sequence owes a replay of %u rows; step it first", call, cache->slot,
                    kvg_kv_cache_replay(cache));
}

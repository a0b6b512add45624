/* Cache: going back and branching. States are values, so a rewind is tried on copies first; then nothing can fail. */
#include <inttypes.h>
#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/state/cache_impl.h"

/* ---- cuts */

void kvg_cache_note_cut(KvCacheCuts *cuts, uint64_t pos)
{
    cuts->count++;
    while (cuts->kept > 0 && cuts->at[cuts->kept - 1].pos >= pos) cuts->kept--; /* this cut went further back */
    if (cuts->kept == KVG_CACHE_CUTS_MAX) {
        cuts->at[1].pos = cuts->at[0].pos; /* fold the two oldest: the later time, the shorter length */
        memmove(&cuts->at[0], &cuts->at[1], (KVG_CACHE_CUTS_MAX - 1) * sizeof cuts->at[0]);
        cuts->kept--;
    }
    cuts->at[cuts->kept].when = cuts->count;
    cuts->at[cuts->kept].pos = pos;
    cuts->kept++;
}

uint64_t kvg_cache_shortest_since(const KvCacheCuts *cuts, uint64_t when, uint64_t pos)
{
    for (uint32_t i = 0; i < cuts->kept; i++) {
        if (cuts->at[i].when > when) return kvg_min_u64(cuts->at[i].pos, pos); /* later cuts kept are longer */
    }
    return pos;
}

/* ---- rewind */

void kvg_kv_cache_rewind_need(const KvCache *cache, uint64_t len, uint32_t need[KVG_CLASSES_MAX])
{
    for (uint32_t c = 0; c < cache->class_count; c++) {
        need[c] = kvg_store_unshare_units(cache->store, c, cache->slot, len);
    }
}

KvgStatus kvg_kv_cache_rewind_to(KvCache *cache, uint64_t len, KvgStream stream)
{
    TpKvState tried[KVG_CLASSES_MAX];
    uint32_t  need[KVG_CLASSES_MAX];

    KVG_TRY(kvg_cache_check_intact(cache));
    for (uint32_t c = 0; c < cache->class_count; c++) {
        tried[c] = cache->classes[c];
        KVG_TRY(kvg_tp_kv_rewind_to(&tried[c], len));
    }
    if (cache->keeps_slots) KVG_TRY(kvg_cache_slot_check_rewind(cache, len));
    kvg_kv_cache_rewind_need(cache, len, need);
    KVG_TRY(kvg_cache_check_units(cache, need));
    for (uint32_t c = 0; c < cache->class_count; c++) {
        kvg_store_unshare(cache->store, c, cache->slot, len, stream);
        cache->classes[c] = tried[c];
    }
    if (cache->keeps_slots) kvg_cache_slot_rewind(cache, len, stream);
    if (len < cache->pos) kvg_cache_note_cut(&cache->cuts, len);
    cache->pos = len;
    kvg_store_set_len(cache->store, cache->slot, len, len);
    return KVG_OK;
}

/* ---- fork */

static int is_fresh(const KvCache *cache)
{
    for (uint32_t c = 0; c < cache->class_count; c++) {
        if (!kvg_tp_kv_fresh(&cache->classes[c]) || kvg_store_held(cache->store, c, cache->slot) != 0) return 0;
    }
    return 1;
}

static KvgStatus check_fork(const KvCache *cache, uint64_t rows, const KvCache *child)
{
    KVG_TRY(kvg_cache_check_intact(cache));
    if (rows > cache->pos) {
        return kvg_fail(KVG_EINVAL, "fork at row %" PRIu64 ": only %" PRIu64 " are committed; fork at or below", rows, cache->pos);
    }
    if (cache->classes[0].active) {
        return kvg_fail(KVG_EBUSY, "fork of slot %u: a step is open; decide it first", cache->slot);
    }
    KVG_TRY(kvg_cache_check_settled(cache, "fork"));
    if (cache->store != child->store || !is_fresh(child)) {
        return kvg_fail(KVG_EBUSY, "fork into slot %u, which is not fresh: open a new sequence for it", child->slot);
    }
    return cache->keeps_slots ? kvg_cache_slot_check_held(cache, rows) : KVG_OK;
}

/* Rows [base, rows) of each class go over: what the window needs and the slack behind it. */
static KvgStatus plan_fork(const KvCache *cache, uint64_t rows, const KvCache *child, TpKvState tried[KVG_CLASSES_MAX],
                           uint32_t need[KVG_CLASSES_MAX])
{
    for (uint32_t c = 0; c < cache->class_count; c++) {
        const TpKvState *state = &cache->classes[c];
        uint64_t         base = state->ring.base;

        if (base > rows) {
            return kvg_fail(KVG_ELAPPED, "fork at row %" PRIu64 ": class %u (window %" PRIu64 ") holds rows from %" PRIu64
                            " on; fork nearer the end", rows, c, state->ring.window, base);
        }
        tried[c] = child->classes[c];
        if (rows > 0) KVG_TRY(kvg_tp_kv_publish_hydration(&tried[c], rows, base));
        need[c] = kvg_store_fork_units(cache->store, c, cache->slot, base, rows);
    }
    return kvg_cache_check_units(cache, need);
}

static void fork_slot(const KvCache *cache, uint64_t rows, KvCache *child, KvgStream stream)
{
    KvSlotState held = cache->held;

    kvg_slot_rewind(&held, rows);
    kvg_store_copy_slot(cache->store, cache->slot, held.current, rows, child->slot, stream); /* into column 0 */
    kvg_slot_restored(&child->held, rows);
    kvg_store_set_index(cache->store, child->slot, rows);
}

KvgStatus kvg_kv_cache_fork(const KvCache *cache, uint64_t rows, KvCache *child, KvgStream stream)
{
    TpKvState tried[KVG_CLASSES_MAX];
    uint32_t  need[KVG_CLASSES_MAX];
    KvgStatus first = KVG_OK;

    KVG_TRY(check_fork(cache, rows, child));
    KVG_TRY(plan_fork(cache, rows, child, tried, need));
    for (uint32_t c = 0; rows > 0 && c < cache->class_count; c++) { /* counts are agreed, memory is one rank's own matter */
        KVG_TRY_KEEP(kvg_store_fork(cache->store, c, cache->slot, child->slot, tried[c].ring.base, rows, stream), first);
        kvg_store_set_base(cache->store, c, child->slot, tried[c].ring.base);
    }
    memcpy(child->classes, tried, cache->class_count * sizeof tried[0]);
    child->pos = rows;
    if (cache->keeps_slots && rows > 0) fork_slot(cache, rows, child, stream);
    kvg_store_set_len(cache->store, child->slot, rows, rows);
    return first;
}

/* ---- rows from elsewhere */

KvgStatus kvg_kv_cache_hydrate(KvCache *cache, uint64_t len, uint64_t start)
{
    TpKvState tried[KVG_CLASSES_MAX];

    KVG_TRY(kvg_cache_check_intact(cache));
    if (cache->held.columns != 0) {
        return kvg_fail(KVG_ELAPPED, "slot %u has recurrent state, which %" PRIu64 " rows do not bring back; recompute them", cache->slot, len);
    }
    for (uint32_t c = 0; c < cache->class_count; c++) {
        tried[c] = cache->classes[c];
        KVG_TRY(kvg_tp_kv_publish_hydration(&tried[c], len, tried[c].ring.window != 0 ? start : 0));
        if ((uint64_t)kvg_store_end(cache->store, c, cache->slot) * KVG_CHUNK_ROWS < kvg_min_u64(len, kvg_store_class(cache->store, c)->row_cap)) {
            return kvg_fail(KVG_ECAPACITY, "slot %u has not booked %" PRIu64 " rows; book and write them first", cache->slot, len);
        }
    }
    for (uint32_t c = 0; c < cache->class_count; c++) {
        cache->classes[c] = tried[c];
        kvg_store_set_base(cache->store, c, cache->slot, tried[c].ring.base);
    }
    cache->pos = len;
    kvg_slot_restored(&cache->held, len);
    kvg_store_set_index(cache->store, cache->slot, len);
    kvg_store_set_len(cache->store, cache->slot, len, len);
    return KVG_OK;
}

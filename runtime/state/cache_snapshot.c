/* Cache: snapshots and what they allow. Lengths, and an image of the slot state; rows need no copy, since what a rollback reads of them
 * is either still there or refused. Everything is checked before anything moves. */
#include <inttypes.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/state/cache_impl.h"

/* ---- taking one */

static KvgStatus check_quiet(const KvCache *cache)
{
    KVG_TRY(kvg_cache_check_intact(cache));
    if (!cache->keeps_slots) return KVG_OK;
    if (cache->classes[0].active) {
        return kvg_fail(KVG_EBUSY, "snapshot of slot %u: a step is open; decide it first", cache->slot);
    }
    return kvg_cache_check_settled(cache, "snapshot");
}

KvgStatus kvg_kv_cache_snapshot_into(const KvCache *cache, KvCacheSnapshot *snapshot, KvgStream stream)
{
    KVG_TRY(check_quiet(cache));
    if (snapshot->dev != kvg_store_dev(cache->store) || snapshot->image_bytes != kvg_store_image_bytes(cache->store)) {
        return kvg_fail(KVG_ESTALE, "a snapshot with %zu bytes of slot state for a placement with %zu: take a new one",
                        snapshot->image_bytes, kvg_store_image_bytes(cache->store));
    }
    if (snapshot->image != NULL) {
        kvg_store_save_image(cache->store, cache->slot, cache->held.current, cache->pos, snapshot->image, stream);
    }
    snapshot->serial = cache->serial;
    snapshot->pos = cache->pos;
    snapshot->cuts = cache->cuts.count;
    return KVG_OK;
}

KvgStatus kvg_kv_cache_snapshot_new(const KvCache *cache, KvCacheSnapshot **snapshot_p)
{
    KvCacheSnapshot *snapshot;
    KvgStatus        status;

    KVG_TRY(check_quiet(cache));
    KVG_TRY(KVG_NEW(1, "a snapshot", &snapshot));
    snapshot->dev = kvg_store_dev(cache->store);
    snapshot->image_bytes = kvg_store_image_bytes(cache->store);
    if (snapshot->image_bytes > 0) {
        KVG_TRY_GOTO(snapshot->dev->ops->uninit(snapshot->dev->self, snapshot->image_bytes, &snapshot->image), err_free);
    }
    KVG_TRY_GOTO(kvg_kv_cache_snapshot_into(cache, snapshot, NULL), err_free);
    *snapshot_p = snapshot;
    return KVG_OK;
err_free:
    kvg_kv_cache_snapshot_free(snapshot);
    return status;
}

void kvg_kv_cache_snapshot_free(KvCacheSnapshot *snapshot)
{
    if (snapshot == NULL) return;
    if (snapshot->image != NULL) snapshot->dev->ops->free(snapshot->dev->self, snapshot->image);
    kvg_free(snapshot);
}

/* ---- going back to it */

static KvgStatus check_snapshot(const KvCache *cache, const KvCacheSnapshot *snapshot, uint64_t accept)
{
    KVG_TRY(kvg_cache_check_intact(cache));
    if (snapshot->serial != cache->serial) {
        return kvg_fail(KVG_ESTALE, "the snapshot is of another sequence's life (%" PRIu64 ", this is %" PRIu64 "); take one of this",
                        snapshot->serial, cache->serial);
    }
    if (kvg_cache_shortest_since(&cache->cuts, snapshot->cuts, cache->pos) < snapshot->pos) {
        return kvg_fail(KVG_ESTALE, "the sequence has been shorter than the snapshot's %" PRIu64 " rows since: what was there is gone",
                        snapshot->pos);
    }
    if (accept > cache->pos - snapshot->pos) {
        return kvg_fail(KVG_EINVAL, "rollback that accepts %" PRIu64 " rows: %" PRIu64 " were written since the snapshot; accept at most "
                        "those", accept, cache->pos - snapshot->pos);
    }
    return KVG_OK;
}

/* The classes after the rollback, tried on copies; with slot state a replay reads from the snapshot's rows on. */
static KvgStatus try_classes(const KvCache *cache, const KvCacheSnapshot *snapshot, uint64_t accept, TpKvState tried[KVG_CLASSES_MAX])
{
    for (uint32_t c = 0; c < cache->class_count; c++) {
        tried[c] = cache->classes[c];
        if (cache->keeps_slots) {
            TpKvState at_snapshot = tried[c];
            KVG_TRY(kvg_tp_kv_rewind_to(&at_snapshot, snapshot->pos));
        }
        KVG_TRY(kvg_tp_kv_rewind_to(&tried[c], snapshot->pos + accept));
    }
    return KVG_OK;
}

int kvg_kv_cache_can_rollback(const KvCache *cache, const KvCacheSnapshot *snapshot, uint64_t accept)
{
    TpKvState tried[KVG_CLASSES_MAX];

    return check_snapshot(cache, snapshot, accept) == KVG_OK && try_classes(cache, snapshot, accept, tried) == KVG_OK;
}

static uint32_t end_of(const KvCache *cache, uint32_t class_index, uint64_t len)
{
    return (uint32_t)kvg_min_u64(kvg_ceil_div_u64(len, KVG_CHUNK_ROWS), kvg_store_end(cache->store, class_index, cache->slot));
}

/* The replay will write rows [pos, pos+accept) again: shared chunks there are given up, and others booked for them, before it comes. */
static KvgStatus check_rewrite(const KvCache *cache, const KvCacheSnapshot *snapshot, uint64_t accept)
{
    uint32_t need[KVG_CLASSES_MAX];

    for (uint32_t c = 0; c < cache->class_count; c++) {
        need[c] = kvg_store_rewrite_units(cache->store, c, cache->slot, snapshot->pos, end_of(cache, c, snapshot->pos + accept));
    }
    return kvg_cache_check_units(cache, need);
}

static void rewrite_from(KvCache *cache, const KvCacheSnapshot *snapshot, uint64_t accept, KvgStream stream)
{
    for (uint32_t c = 0; c < cache->class_count; c++) {
        uint32_t end = end_of(cache, c, snapshot->pos + accept);

        kvg_store_unshare(cache->store, c, cache->slot, snapshot->pos, stream);
        if (cache->pooled && end > kvg_store_end(cache->store, c, cache->slot)) {
            KvgStatus status = kvg_store_book(cache->store, c, cache->slot, end);
            KVG_ASSERT(status == KVG_OK); /* units were counted, and a pool has memory for all of them */
        }
    }
}

static void restore_slot(KvCache *cache, const KvCacheSnapshot *snapshot, KvgStream stream)
{
    KvSlotState *held = &cache->held;

    if (snapshot->image != NULL) {
        kvg_store_load_image(cache->store, cache->slot, held->current, snapshot->pos, snapshot->image, stream);
    }
    kvg_slot_restored(held, snapshot->pos);
    if (held->columns != 0) kvg_store_set_columns(cache->store, cache->slot, held->current, held->current, 0);
    kvg_store_set_index(cache->store, cache->slot, snapshot->pos);
}

static KvgStatus rollback_slots(KvCache *cache, const KvCacheSnapshot *snapshot, uint64_t accept, KvgStream stream)
{
    TpKvState tried[KVG_CLASSES_MAX];

    KVG_TRY(try_classes(cache, snapshot, accept, tried));
    KVG_TRY(check_rewrite(cache, snapshot, accept));
    rewrite_from(cache, snapshot, accept, stream);
    for (uint32_t c = 0; c < cache->class_count; c++) cache->classes[c] = tried[c];
    restore_slot(cache, snapshot, stream);
    if (snapshot->pos < cache->pos) kvg_cache_note_cut(&cache->cuts, snapshot->pos); /* rows past it are written anew */
    cache->pos = snapshot->pos + accept;
    kvg_store_set_len(cache->store, cache->slot, cache->pos, cache->pos);
    return KVG_OK;
}

KvgStatus kvg_kv_cache_rollback(KvCache *cache, const KvCacheSnapshot *snapshot, uint64_t accept, KvgStream stream)
{
    KVG_TRY(check_snapshot(cache, snapshot, accept));
    if (cache->keeps_slots) return rollback_slots(cache, snapshot, accept, stream);
    return kvg_kv_cache_rewind_to(cache, snapshot->pos + accept, stream);
}

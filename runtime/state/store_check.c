/* Store, check: tables, reference counts, free lists and sums must tell one story. For tests and for a suspicious caller. */
#include "runtime/state/store_impl.h"

#include <inttypes.h>

#include "runtime/base/memory.h"

static KvgStatus check_table(const KvStore *store, uint32_t class_index, uint32_t slot, uint32_t *holders)
{
    const StoreClass *class = &store->classes[class_index];
    const StoreSpan  *span = &class->spans[slot];
    const int32_t    *table = kvg_store_table(store, class, slot);

    if (span->first > span->end || span->end > store->table_stride) {
        return kvg_fail(KVG_ETAINTED, "class %u, slot %u holds entries %u to %u of %u: its span is broken", class_index, slot,
                        span->first, span->end, store->table_stride);
    }
    for (uint32_t e = 0; e < store->table_stride; e++) {
        int held = e >= span->first && e < span->end;

        if (held != (table[e] >= 0) || (held && (uint32_t)table[e] >= class->pool.total)) {
            return kvg_fail(KVG_ETAINTED, "class %u, slot %u: entry %u is %d, and entries %u to %u of %u chunks are held",
                            class_index, slot, e, table[e], span->first, span->end, class->pool.total);
        }
        if (held) holders[table[e]]++;
    }
    return KVG_OK;
}

static KvgStatus compare_holders(const StoreClass *class, uint32_t class_index, const uint32_t *holders)
{
    for (uint32_t id = 0; id < class->pool.total; id++) {
        if (holders[id] != class->pool.refs[id]) {
            return kvg_fail(KVG_ETAINTED, "class %u, chunk %u: %u tables hold it, its count is %u", class_index, id, holders[id],
                            class->pool.refs[id]);
        }
    }
    return KVG_OK;
}

static KvgStatus check_pool_class(const KvStore *store, uint32_t class_index)
{
    const StoreClass *class = &store->classes[class_index];
    uint64_t          entries = 0;
    void             *holders = NULL;
    KvgStatus         status;

    KVG_TRY(kvg_calloc(class->pool.total, sizeof(uint32_t), "a check's counts", &holders));
    for (uint32_t slot = 0; slot < store->slots; slot++) {
        KVG_TRY_GOTO(check_table(store, class_index, slot, holders), out);
        entries += class->spans[slot].end - class->spans[slot].first;
    }
    status = compare_holders(class, class_index, holders);
    if (status == KVG_OK && entries != class->entries) {
        status = kvg_fail(KVG_ETAINTED, "class %u holds %" PRIu64 " table entries and counts %" PRIu64, class_index, entries,
                          class->entries);
    }
out:
    kvg_free(holders);
    return status;
}

static KvgStatus check_flat_class(const KvStore *store, uint32_t class_index)
{
    const StoreClass *class = &store->classes[class_index];
    uint64_t          units = 0;

    for (uint32_t slot = 0; slot < store->slots; slot++) units += class->spans[slot].end;
    if (units != class->pool.total - class->pool.free_count) {
        return kvg_fail(KVG_ETAINTED, "class %u: slots hold %" PRIu64 " units, %u of %u are counted as free", class_index, units,
                        class->pool.free_count, class->pool.total);
    }
    return KVG_OK;
}

KvgStatus kvg_store_check(const KvStore *store)
{
    KvStoreBytes bytes = kvg_store_bytes(store);

    for (uint32_t c = 0; c < store->class_count; c++) {
        KVG_TRY(kvg_pool_check(&store->classes[c].pool));
        KVG_TRY(store->layout == KVG_LAYOUT_POOL ? check_pool_class(store, c) : check_flat_class(store, c));
    }
    if (bytes.booked > bytes.taken) {
        return kvg_fail(KVG_ETAINTED, "%" PRIu64 " bytes are booked and only %" PRIu64 " taken", bytes.booked, bytes.taken);
    }
    return KVG_OK;
}

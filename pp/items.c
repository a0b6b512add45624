/* Items: values that must be equal over ranks, compared one by one so that the first that differs can be named. */
#include "pp/internal.h"

static uint64_t item_value(const void *block, const KvItem *item)
{
    return *(const uint64_t *)((const uint8_t *)block + item->offset);
}

KvgStatus kvg_items_compare(const char *what, const KvItem *items, size_t count, const void *const *blocks, int ranks)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t first = item_value(blocks[0], &items[i]);
        for (int rank = 1; rank < ranks; rank++) {
            uint64_t value = item_value(blocks[rank], &items[i]);
            if (value != first) {
                return kvg_fail(KVG_ELAYOUT, "%s: rank 0 and rank %d differ in %s: %lld against %lld; give every rank the same "
                                "(check its environment and options)", what, rank, items[i].name, (long long)first, (long long)value);
            }
        }
    }
    return KVG_OK;
}

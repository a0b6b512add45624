/* Stats, what its parts share: structs of another size than this build's. Private. */
#ifndef KVG_STATS_IMPL_H
#define KVG_STATS_IMPL_H

#include <stddef.h>

#include "pp/internal.h"

/* The struct as it first was. */
#define KVG_STATS_FIRST_BYTES (offsetof(KvgStats, saturated) + sizeof(uint64_t))

int  kvg_stats_serves(size_t size);
/* Into a caller's struct, whose size is set and served. */
void kvg_stats_give(const KvgStats *whole, KvgStats *target);
/* The i-th of a caller's array, whose first has its size set. */
void kvg_stats_take(const KvgStats *ranks, uint32_t i, KvgStats *whole);
/* One rank's into a total. */
void kvg_stats_add(KvgStats *sum, const KvgStats *one);
KvgStatus kvg_stats_check_ranks(const KvgStats *ranks, uint32_t count, const char *call);

#endif

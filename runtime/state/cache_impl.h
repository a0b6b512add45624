/* Cache, inside: what the cache's sources share. Private to runtime/state/cache*.c. */
#ifndef KVG_CACHE_IMPL_H
#define KVG_CACHE_IMPL_H

#include "runtime/state/cache.h"

/* ETAINTED with its sentence. */
KvgStatus kvg_cache_check_intact(const KvCache *cache);
/* ECAPACITY, naming the class, where `need` units are not free. */
KvgStatus kvg_cache_check_units(const KvCache *cache, const uint32_t need[KVG_CLASSES_MAX]);

#endif

/* Cache, inside: what the cache's sources share. Private to runtime/state/cache*.c. */
#ifndef KVG_CACHE_IMPL_H
#define KVG_CACHE_IMPL_H

#include "runtime/state/cache.h"

/* ETAINTED with its sentence. */
KvgStatus kvg_cache_check_intact(const KvCache *cache);
/* ECAPACITY, naming the class, where `need` units are not free. */
KvgStatus kvg_cache_check_units(const KvCache *cache, const uint32_t need[KVG_CLASSES_MAX]);

/* The slot state's share of a step (cache_columns.c); called only where the model keeps some. */
void     kvg_cache_slot_pass(KvCache *cache, uint32_t rows);
uint32_t kvg_cache_slot_settle(KvCache *cache, uint64_t accepted); /* returns what is owed */
void     kvg_cache_slot_refuse(KvCache *cache);
/* The state at row `len` stands in `column`: a device has taken steps by itself. */
void     kvg_cache_slot_adopt(KvCache *cache, uint64_t len, uint32_t column);
/* An open step is dropped first. ELAPPED by name where the state at `len` is not held: nothing changed. */
KvgStatus kvg_cache_slot_check_rewind(const KvCache *cache, uint64_t len);
void      kvg_cache_slot_rewind(KvCache *cache, uint64_t len, KvgStream stream);
KvgStatus kvg_cache_slot_check_held(const KvCache *cache, uint64_t len);
/* EBUSY while a replay is owed, naming `call`. */
KvgStatus kvg_cache_check_settled(const KvCache *cache, const char *call);

void     kvg_cache_note_cut(KvCacheCuts *cuts, uint64_t pos);
uint64_t kvg_cache_shortest_since(const KvCacheCuts *cuts, uint64_t when, uint64_t pos);

#endif

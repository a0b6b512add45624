/* Caches of a small store, in every layout, grown with rows that their index and a salt make up. */
#ifndef KVG_TEST_CACHE_FIXTURE_H
#define KVG_TEST_CACHE_FIXTURE_H

#include "tests/runtime/state_fixture.h"

#define WINDOW  40u
#define PREFILL 100u
#define MAX_CTX 3000u

/* Loop tests run on: 0 pool, 1 flat in reserved ranges, 2 flat that grows by copying. */
enum { LAYOUTS = 3 };

static Fixture fixture;

static inline void open_layout(int layout, uint32_t units)
{
    fixture_open(&fixture, layout == 0 ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT, layout != 2, WINDOW, PREFILL, MAX_CTX, 4, units);
}

static inline void close_all(KvCache *caches, int count)
{
    for (int i = 0; i < count; i++) kvg_kv_cache_close(&caches[i], NULL);
    ck_assert_uint_eq(kvg_store_bytes(fixture.store).booked, 0);
    fixture_close(&fixture);
}

/* In steps of at most PREFILL rows; row r has key r + salt. */
static inline void grow_to(KvCache *cache, uint64_t len, uint64_t salt)
{
    while (cache->pos < len) {
        uint32_t rows = (uint32_t)kvg_min_u64(PREFILL, len - cache->pos);
        fixture_step(&fixture, cache, rows, rows, cache->pos + salt);
    }
}

static inline KvCache open_cache(uint32_t slot)
{
    KvCache cache;

    kvg_kv_cache_open(fixture.store, slot, 100 + slot, &cache);
    return cache;
}

/* The digest of a sequence that was only ever written forward: row r has key r + salt below `turn`, r + salt2 from there on. */
static inline KvDigest straight_digest(uint64_t len, uint64_t turn, uint64_t salt, uint64_t salt2)
{
    KvCache  cache = open_cache(3);
    KvDigest digest;

    grow_to(&cache, turn < len ? turn : len, salt);
    grow_to(&cache, len, salt2);
    digest = fixture_digest(&cache);
    kvg_kv_cache_close(&cache, NULL);
    return digest;
}

static inline void assert_same(const KvDigest *a, const KvDigest *b)
{
    ck_assert_mem_eq(a->bytes, b->bytes, sizeof a->bytes);
}

#endif

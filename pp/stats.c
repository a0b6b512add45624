/* Stats: this rank's counters, and those of many as one. */
#include <stddef.h>
#include <string.h>

#include "pp/stats_impl.h"
#include "runtime/base/checked.h"

_Static_assert(KVG_OUTCOME_SETTLED_BACK + 1 == KVG_OUTCOME_KINDS, "outcomes are counted by kind");
_Static_assert(sizeof(KvgStats) % sizeof(uint64_t) == 0, "crosses the wire: counters alone");

/* ---- sizes */

int kvg_stats_serves(size_t size)
{
    return size >= KVG_STATS_FIRST_BYTES && size % sizeof(uint64_t) == 0;
}

void kvg_stats_give(const KvgStats *whole, KvgStats *target)
{
    const size_t size = target->size, known = size < sizeof *whole ? size : sizeof *whole;

    memcpy(target, whole, known);
    memset((char *)target + known, 0, size - known); /* a newer caller's */
    target->size = size;
}

void kvg_stats_take(const KvgStats *ranks, uint32_t i, KvgStats *whole)
{
    const char *at = (const char *)ranks + i * ranks->size;

    memset(whole, 0, sizeof *whole);
    memcpy(whole, at, ranks->size < sizeof *whole ? ranks->size : sizeof *whole);
    whole->size = sizeof *whole;
    if (ranks->size <= offsetof(KvgStats, ranks)) {
        whole->ranks = 1; /* an older struct cannot say */
    }
}

KvgStatus kvg_stats_check_ranks(const KvgStats *ranks, uint32_t count, const char *call)
{
    if (ranks == NULL || count == 0 || !kvg_stats_serves(ranks->size)) {
        return kvg_fail(KVG_EINVAL, "%s needs the counters of one rank or more, the first with its size set to sizeof(KvgStats)", call);
    }
    return KVG_OK;
}

/* ---- this rank's */

static void count_units(const KvgPlacement *placement, KvgStats *stats)
{
    for (uint32_t c = 0; c < placement->plan.class_count; c++) {
        uint32_t total = kvg_store_units_total(placement->store, c);
        stats->chunks += total;
        stats->chunks_booked += total - kvg_store_units_free(placement->store, c);
    }
}

static void count_sequences(const KvgPlacement *placement, KvgStats *stats)
{
    for (uint32_t i = 0; i < placement->options.max_sequences; i++) {
        if (placement->sequences[i].open) {
            stats->sequences_open++;
            stats->content_bytes += kvg_kv_cache_content_bytes(&placement->sequences[i].cache);
        }
    }
}

static void count_now(const KvgPlacement *placement, KvgStats *stats)
{
    const KvgGrid *grid = placement->grid;
    KvStoreBytes   bytes = kvg_store_bytes(placement->store);

    *stats = placement->stats;
    stats->booked_bytes = bytes.booked;
    stats->taken_bytes = bytes.taken;
    stats->memory_bytes = placement->options.memory_bytes;
    stats->ranks = 1;
    stats->rank = (uint64_t)grid->rank;
    stats->stage = (uint64_t)grid->rank / grid->tp;
    stats->uptime_ns = kvg_monus_u64(kvg_grid_now(grid), placement->placed_ns);
    stats->slots = placement->options.max_sequences;
    count_units(placement, stats);
    count_sequences(placement, stats);
}

static KvgStatus stats_of(const KvgPlacement *placement, int ask_device, const char *call, KvgStats *stats)
{
    KvgStats whole;

    if (placement == NULL || stats == NULL || !kvg_stats_serves(stats->size)) {
        return kvg_fail(KVG_EINVAL, "%s needs a placement and a KvgStats whose size is set", call);
    }
    count_now(placement, &whole);
    if (ask_device || !kvg_store_mirrored(placement->store)) {
        KvEncodeCounts counts = kvg_store_counts_sum(placement->store);
        whole.nonfinite = counts.nonfinite;
        whole.saturated = counts.saturated;
    }
    kvg_stats_give(&whole, stats);
    return KVG_OK;
}

KvgStatus kvg_stats(const KvgPlacement *placement, KvgStats *stats)
{
    return stats_of(placement, 1, "kvg_stats", stats);
}

KvgStatus kvg_stats_quick(const KvgPlacement *placement, KvgStats *stats)
{
    return stats_of(placement, 0, "kvg_stats_quick", stats);
}

KvgStatus kvg_layer_counts(const KvgPlacement *placement, uint32_t il, KvEncodeCounts *counts)
{
    if (kvg_store_shown_view(placement->store, il) == NULL && kvg_store_shown_latent_view(placement->store, il) == NULL) {
        return kvg_fail(KVG_EINVAL, "layer %u keeps no rows on rank %d, whose layers are [%u, %u)", il, placement->grid->rank, placement->lo,
                        placement->hi);
    }
    *counts = kvg_store_counts(placement->store, il);
    return KVG_OK;
}

/* ---- latencies */

uint32_t kvg_latency_bucket(uint64_t ns)
{
    uint64_t us = ns / 1000 + (ns % 1000 != 0);
    uint32_t i = us <= 1 ? 0 : 64 - (uint32_t)__builtin_clzll(us - 1);

    return i < KVG_LATENCY_BUCKETS ? i : KVG_LATENCY_BUCKETS - 1;
}

uint64_t kvg_latency_bucket_us(uint32_t i)
{
    return i < KVG_LATENCY_BUCKETS - 1 ? UINT64_C(1) << i : 0;
}

/* ---- many as one */

static void larger(uint64_t *a, uint64_t b)
{
    *a = b > *a ? b : *a;
}

static void add_own(KvgStats *sum, const KvgStats *one)
{
    sum->content_bytes += one->content_bytes;
    sum->booked_bytes += one->booked_bytes;
    sum->taken_bytes += one->taken_bytes;
    sum->memory_bytes += one->memory_bytes;
    sum->nonfinite += one->nonfinite;
    sum->saturated += one->saturated;
    sum->votes += one->votes;
    sum->vote_latency_ns += one->vote_latency_ns;
    for (int i = 0; i < KVG_LATENCY_BUCKETS; i++) {
        sum->vote_latency[i] += one->vote_latency[i];
    }
}

static void join_agreed(KvgStats *sum, const KvgStats *one)
{
    larger(&sum->sequences_open, one->sequences_open);
    larger(&sum->steps, one->steps);
    larger(&sum->commits, one->commits);
    larger(&sum->rollbacks, one->rollbacks);
    larger(&sum->grows, one->grows);
    larger(&sum->resizes, one->resizes);
    larger(&sum->uptime_ns, one->uptime_ns);
    larger(&sum->slots, one->slots);
    larger(&sum->chunks, one->chunks);
    larger(&sum->chunks_booked, one->chunks_booked);
    larger(&sum->rows, one->rows);
    for (int i = 0; i < KVG_STATUS_COUNT; i++) {
        larger(&sum->refusals[i], one->refusals[i]);
        larger(&sum->vote_refusals[i], one->vote_refusals[i]);
    }
    for (int i = 0; i < KVG_OUTCOME_KINDS; i++) {
        larger(&sum->outcomes[i], one->outcomes[i]);
    }
}

void kvg_stats_add(KvgStats *sum, const KvgStats *one)
{
    sum->ranks += one->ranks;
    add_own(sum, one);
    join_agreed(sum, one);
}

KvgStatus kvg_stats_total(const KvgStats *ranks, uint32_t count, KvgStats *total)
{
    KvgStats sum = { .size = sizeof sum }, one;

    KVG_TRY(kvg_stats_check_ranks(ranks, count, "kvg_stats_total"));
    if (total == NULL || !kvg_stats_serves(total->size)) {
        return kvg_fail(KVG_EINVAL, "kvg_stats_total needs a total whose size is set to sizeof(KvgStats)");
    }
    for (uint32_t i = 0; i < count; i++) {
        kvg_stats_take(ranks, i, &one);
        kvg_stats_add(&sum, &one);
    }
    kvg_stats_give(&sum, total);
    return KVG_OK;
}

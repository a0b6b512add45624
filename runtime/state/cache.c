/* Cache: booking and the step of one sequence. What a step calls every time uses the inline rules; a refusal is asked again of
 * the public rule, which has the sentence. Forks, rewinds and snapshots are in cache_fork.c, digests in cache_leaves.c. */
#include "runtime/state/cache.h"

#include <inttypes.h>

#include "runtime/base/checked.h"
#include "runtime/base/mix.h"
#include "runtime/rules/transaction_inline.h"
#include "runtime/state/cache_impl.h"

/* ---- open and close */

/* The ring of a class has row_cap rows: the prefill chunk follows from it, unless the context is what bounds the ring. */
static uint32_t prefill_chunk_of(const KvClassGeometry *class, uint64_t max_ctx)
{
    uint64_t fixed = class->window + KVG_SWA_REWIND_SLACK_ROWS + KVG_RING_ALIGN_ROWS - 1;

    if (class->row_cap >= max_ctx) return 0;
    KVG_ASSERT(class->row_cap > fixed && class->row_cap - fixed <= KVG_PRIME_CHUNK_MAX_TOKENS);
    return (uint32_t)(class->row_cap - fixed);
}

static void open_class(KvCache *cache, uint32_t class_index)
{
    const KvClassGeometry *class = kvg_store_class(cache->store, class_index);
    int                    ring = class->ring && class->window != 0;
    KvgStatus              status;

    status = kvg_tp_kv_init(&cache->classes[class_index], cache->max_ctx, ring ? class->window : 0,
                            ring ? prefill_chunk_of(class, cache->max_ctx) : 0,
                            cache->pooled ? KVG_TP_KV_INIT_POOLED : KVG_TP_KV_INIT_FLAT);
    KVG_ASSERT(status == KVG_OK); /* the store was created with this geometry */
}

void kvg_kv_cache_open(KvStore *store, uint32_t slot, uint64_t serial, KvCache *cache)
{
    cache->store = store;
    cache->slot = slot;
    cache->class_count = kvg_store_class_count(store);
    cache->pooled = kvg_store_layout(store) == KVG_LAYOUT_POOL;
    cache->pos = 0;
    cache->max_ctx = kvg_store_max_ctx(store);
    cache->guarantee = 0;
    cache->trim_due = 0;
    cache->serial = serial;
    cache->tainted = 0;
    cache->owns_store = 0;
    cache->cuts.count = 0;
    cache->cuts.kept = 0;
    cache->pass_row = 0;
    cache->held = kvg_slot_open(kvg_store_columns(store), kvg_store_index_pool(store), kvg_store_index_ring(store));
    cache->keeps_slots = cache->held.columns != 0 || cache->held.pool != 0;
    kvg_store_open_slot(store, slot, NULL);
    for (uint32_t c = 0; c < cache->class_count; c++) {
        KVG_ASSERT(kvg_store_held(store, c, slot) == 0);
        cache->tx[c] = (TpKvTransaction){0, 0};
        open_class(cache, c);
    }
}

void kvg_kv_cache_close(KvCache *cache, KvgStream stream)
{
    kvg_store_release(cache->store, cache->slot, stream);
    cache->store = NULL; /* a later use is a bug, and stops at once */
}

KvgStatus kvg_cache_check_intact(const KvCache *cache)
{
    if (!cache->tainted) return KVG_OK;
    return kvg_fail(KVG_ETAINTED, "the sequence in slot %u is tainted at %" PRIu64 " rows: its state is not provably intact; close it",
                    cache->slot, cache->pos);
}

/* ---- booking */

/* The table's end that a class should have for rows up to `target`. A windowed pool class books at most its cap and slides;
 * a flat ring fills from its front and is held whole once it has been full. */
static uint32_t wanted_end(const KvCache *cache, uint32_t class_index, uint64_t target)
{
    const KvClassGeometry *class = kvg_store_class(cache->store, class_index);
    uint64_t               end = kvg_ceil_div_u64(target, KVG_CHUNK_ROWS);
    uint32_t               held_end = kvg_store_end(cache->store, class_index, cache->slot);

    if (cache->pooled) {
        /* from the base, not from what is still held: rows behind it may wait for release_behind */
        end = kvg_min_u64(end, cache->classes[class_index].ring.base / KVG_CHUNK_ROWS + class->unit_cap);
    } else if (class->ring && class->window != 0) {
        end = kvg_min_u64(end, kvg_ceil_div_u64(class->row_cap, KVG_CHUNK_ROWS)); /* nothing rebases before the ring is full */
    }
    return end > held_end ? (uint32_t)end : held_end;
}

void kvg_kv_cache_need(const KvCache *cache, uint64_t target, uint32_t need[KVG_CLASSES_MAX])
{
    for (uint32_t c = 0; c < cache->class_count; c++) {
        need[c] = wanted_end(cache, c, target) - kvg_store_end(cache->store, c, cache->slot);
    }
}

KvgStatus kvg_cache_check_units(const KvCache *cache, const uint32_t need[KVG_CLASSES_MAX])
{
    for (uint32_t c = 0; c < cache->class_count; c++) {
        uint32_t units_free = kvg_store_units_free(cache->store, c);

        if (need[c] > units_free) {
            return kvg_fail(KVG_ECAPACITY, "class %u (window %" PRIu64 "): %u units of %d rows are needed and %u of %u are free; close, "
                            "trim or wait for another sequence", c, kvg_store_class(cache->store, c)->window, need[c],
                            KVG_CHUNK_ROWS, units_free, kvg_store_units_total(cache->store, c));
        }
    }
    return KVG_OK;
}

/* Every class counts its units although one may find no memory (flat): counts are agreed, memory is one rank's own matter. */
static KvgStatus book_to(KvCache *cache, uint64_t target)
{
    uint32_t  need[KVG_CLASSES_MAX];
    KvgStatus first = KVG_OK;

    kvg_kv_cache_need(cache, target, need);
    KVG_TRY(kvg_cache_check_units(cache, need));
    for (uint32_t c = 0; c < cache->class_count; c++) {
        KVG_TRY_KEEP(kvg_store_book(cache->store, c, cache->slot, wanted_end(cache, c, target)), first);
    }
    return first;
}

KvgStatus kvg_kv_cache_book(KvCache *cache, uint64_t target)
{
    uint32_t need[KVG_CLASSES_MAX];

    KVG_TRY(kvg_cache_check_intact(cache));
    if (target > cache->max_ctx) {
        return kvg_fail(KVG_ECAPACITY, "booking %" PRIu64 " rows: the context is %" PRIu64 "; ask for less", target, cache->max_ctx);
    }
    kvg_kv_cache_need(cache, target, need);
    KVG_TRY(kvg_cache_check_units(cache, need));
    cache->guarantee = kvg_max_u64(cache->guarantee, target);
    return book_to(cache, target);
}

uint64_t kvg_kv_cache_rows_booked(const KvCache *cache)
{
    uint64_t booked = cache->max_ctx;

    for (uint32_t c = 0; c < cache->class_count; c++) {
        booked = kvg_min_u64(booked, (uint64_t)kvg_store_end(cache->store, c, cache->slot) * KVG_CHUNK_ROWS);
    }
    return booked;
}

KvgStatus kvg_kv_cache_trim(KvCache *cache)
{
    KVG_TRY(kvg_cache_check_intact(cache));
    if (cache->classes[0].active) {
        return kvg_fail(KVG_EBUSY, "trim of slot %u: a step is open; decide it first", cache->slot);
    }
    for (uint32_t c = 0; c < cache->class_count; c++) {
        kvg_store_trim(cache->store, c, cache->slot, (uint32_t)kvg_ceil_div_u64(cache->pos, KVG_CHUNK_ROWS));
    }
    cache->guarantee = kvg_min_u64(cache->guarantee, cache->pos);
    return KVG_OK;
}

/* ---- the step */

KvgStatus kvg_kv_cache_begin(KvCache *cache)
{
    if (cache->tainted) return kvg_cache_check_intact(cache);
    if (cache->classes[0].active) return kvg_tp_kv_begin(&cache->classes[0], &cache->tx[0]); /* for its sentence */
    for (uint32_t c = 0; c < cache->class_count; c++) {
        KvgStatus status = kvg_rule_tp_kv_begin(&cache->classes[c], &cache->tx[c]);
        KVG_ASSERT(status == KVG_OK); /* classes open and close together */
    }
    return KVG_OK;
}

/* A windowed pool class may not stage more than its cap from its base on: what a full rollback needs, and the step's rows. */
static KvgStatus check_window_fits(const KvCache *cache, uint32_t class_index, uint64_t target)
{
    const TpKvState *state = &cache->classes[class_index];
    uint64_t         cap, chunks;

    if (state->layout != KVG_TP_KV_POOLED_WINDOWED) return KVG_OK;
    cap = kvg_store_class(cache->store, class_index)->unit_cap;
    chunks = (target + KVG_CHUNK_ROWS - 1) / KVG_CHUNK_ROWS - state->ring.base / KVG_CHUNK_ROWS;
    if (chunks <= cap) return KVG_OK;
    return kvg_fail(KVG_ENOFIT, "class %u (window %" PRIu64 "): rows %" PRIu64 " to %" PRIu64 " span %" PRIu64 " chunks and a sequence "
                    "holds at most %" PRIu64 "; split the step", class_index, state->ring.window, state->ring.base, target, chunks,
                    cap);
}

/* Where the next step's rows begin: what a window must reach back from. */
static uint64_t next_row(const KvCache *cache)
{
    return cache->keeps_slots ? cache->held.at : cache->pos;
}

/* A refusal for want of room beside rows that are owed; all others have the public rule's sentence. */
static KvgStatus refuse_append(const KvCache *cache, uint32_t class_index, uint32_t rows, KvgStatus status)
{
    const TpKvState *state = &cache->classes[class_index];
    TpKvAppendPlan   plan;
    KvgStatus        plain = kvg_tp_kv_prepare_append(state, &cache->tx[class_index], rows, &plan);

    if (plain != KVG_OK) return plain;
    return kvg_fail(status, "class %u (window %" PRIu64 "): %u rows do not fit beside those that a replay from row %" PRIu64 " on reads; "
                    "split the step", class_index, state->ring.window, rows, cache->held.at);
}

static KvgStatus plan_all(const KvCache *cache, uint32_t rows, TpKvAppendPlan plans[KVG_CLASSES_MAX])
{
    for (uint32_t c = 0; c < cache->class_count; c++) {
        const TpKvState *state = &cache->classes[c];
        KvgStatus        status = !kvg_rule_tp_kv_is_open(state, &cache->tx[c]) ? KVG_ESTALE
                                                                               : kvg_rule_tp_kv_append_from(state, next_row(cache), rows, &plans[c]);

        if (status != KVG_OK) return refuse_append(cache, c, rows, status);
        KVG_TRY(check_window_fits(cache, c, plans[c].target));
    }
    return KVG_OK;
}

static int is_booked(const KvCache *cache, uint64_t target)
{
    if (!cache->pooled) return 0; /* the store knows whether counted units have memory */
    for (uint32_t c = 0; c < cache->class_count; c++) {
        if ((uint64_t)kvg_store_end(cache->store, c, cache->slot) * KVG_CHUNK_ROWS < target) return 0;
    }
    return 1;
}

/* Rows move before the base does. A move that fails part-way leaves rows in two places: only then is the cache tainted.
 * The states go on in any case: they are agreed, what a device does is one rank's own matter. */
static KvgStatus publish_class(KvCache *cache, uint32_t class_index, const TpKvAppendPlan *plan, KvgStream stream)
{
    TpKvState *state = &cache->classes[class_index];
    KvgStatus  moved = KVG_OK, status;

    if (plan->ring_append.kind == KVG_RING_REBASE) {
        moved = kvg_store_rebase(cache->store, class_index, cache->slot, plan->ring_append.src_row, plan->ring_append.keep_rows,
                                 plan->ring_append.new_base, stream);
        cache->tainted |= moved != KVG_OK;
    }
    status = kvg_rule_tp_kv_publish_rebase(state, plan);
    KVG_ASSERT(status == KVG_OK);
    status = kvg_rule_tp_kv_publish_plan(state, plan);
    KVG_ASSERT(status == KVG_OK);
    return moved;
}

/* Stages rows that are new; pass_rows counts those that are replayed before them, too. */
static KvgStatus stage(KvCache *cache, uint32_t pass_rows, uint32_t rows, KvgStream stream)
{
    TpKvAppendPlan plans[KVG_CLASSES_MAX];
    uint64_t       target = kvg_kv_cache_staged(cache) + rows;
    KvgStatus      first = KVG_OK;

    KVG_TRY(plan_all(cache, rows, plans));
    if (!is_booked(cache, target)) first = book_to(cache, target);
    if (first == KVG_ECAPACITY) return first;
    cache->pass_row = target - pass_rows;
    if (cache->keeps_slots) kvg_cache_slot_pass(cache, pass_rows);
    for (uint32_t c = 0; c < cache->class_count; c++) KVG_TRY_KEEP(publish_class(cache, c, &plans[c], stream), first);
    kvg_store_set_len(cache->store, cache->slot, cache->pos, target);
    return first;
}

/* The first pass of a sequence that owes a replay: `replay` of its rows are committed and stand below. */
static KvgStatus append_replay(KvCache *cache, uint32_t rows, uint32_t replay, KvgStream stream)
{
    if (!cache->classes[0].active) {
        return kvg_fail(KVG_ESTALE, "a pass in slot %u, where no step is open; begin one", cache->slot);
    }
    if (rows < replay) {
        return kvg_fail(KVG_EINVAL, "a pass of %u rows in slot %u, which owes a replay of %u: begin with all that is owed", rows, cache->slot,
                        replay);
    }
    if (rows > replay) return stage(cache, rows, rows - replay, stream);
    cache->pass_row = cache->held.at;
    kvg_cache_slot_pass(cache, rows);
    return KVG_OK;
}

KvgStatus kvg_kv_cache_append(KvCache *cache, uint32_t rows, KvgStream stream)
{
    if (cache->tainted) return kvg_cache_check_intact(cache);
    if (cache->keeps_slots && cache->held.passes == 0 && cache->held.at != cache->pos) {
        return append_replay(cache, rows, kvg_kv_cache_replay(cache), stream);
    }
    return stage(cache, rows, rows, stream);
}

uint64_t kvg_kv_cache_pass_row(const KvCache *cache)
{
    return cache->pass_row;
}

uint32_t kvg_kv_cache_replay(const KvCache *cache)
{
    return cache->keeps_slots ? (uint32_t)(cache->pos - cache->held.at) : 0;
}

uint64_t kvg_kv_cache_layout_term(const KvCache *cache, uint64_t index)
{
    uint64_t sum = 0;

    for (uint32_t c = 0; c < cache->class_count; c++) {
        const TpKvState *state = &cache->classes[c];
        sum += kvg_mix_term(index, c, state->ring.base, state->staged);
    }
    return sum;
}

/* Windows keep what a step from row pos + accepted - owed on will read. */
static void finalize_classes(KvCache *cache, uint64_t accepted, uint32_t owed)
{
    uint64_t target = 0;

    for (uint32_t c = 0; c < cache->class_count; c++) {
        TpKvState *state = &cache->classes[c];
        KvgStatus  status = kvg_rule_tp_kv_commit_target(state, &cache->tx[c], accepted, &target);

        KVG_ASSERT(status == KVG_OK && target == cache->pos + accepted);
        status = kvg_rule_tp_kv_publish_finalize_from(state, &cache->tx[c], target, target - owed);
        KVG_ASSERT(status == KVG_OK);
        if (kvg_rule_tp_kv_windowed(state)) kvg_store_set_base(cache->store, c, cache->slot, state->ring.base);
    }
    cache->pos = target;
    kvg_store_set_len(cache->store, cache->slot, target, target);
}

uint32_t kvg_kv_cache_finalize(KvCache *cache, uint64_t accepted)
{
    uint32_t owed = cache->keeps_slots ? kvg_cache_slot_settle(cache, accepted) : 0;

    finalize_classes(cache, accepted, owed);
    return owed;
}

void kvg_kv_cache_refuse(KvCache *cache)
{
    if (cache->keeps_slots) kvg_cache_slot_refuse(cache);
    finalize_classes(cache, 0, kvg_kv_cache_replay(cache));
}

/* Units past the committed rows and the guarantee. */
static void trim_to_guarantee(KvCache *cache)
{
    uint64_t guarantee = cache->guarantee;

    cache->trim_due = 0;
    kvg_kv_cache_trim(cache);
    kvg_kv_cache_book(cache, guarantee); /* it held these units a moment ago; a want of memory is told by the step that needs the rows */
}

void kvg_kv_cache_release_behind(KvCache *cache)
{
    for (uint32_t c = 0; c < cache->class_count; c++) {
        const TpKvState *state = &cache->classes[c];

        if (state->layout != KVG_TP_KV_POOLED_WINDOWED) continue;
        kvg_store_drop_below(cache->store, c, cache->slot, state->ring.base,
                             (uint32_t)kvg_ceil_div_u64(cache->guarantee, KVG_CHUNK_ROWS));
    }
    if (cache->trim_due && !cache->tainted) trim_to_guarantee(cache);
}

static KvgStatus level_ring(KvCache *cache, uint32_t class_index, KvgStream stream)
{
    TpKvState *state = &cache->classes[class_index];
    uint64_t   start = kvg_view_start(next_row(cache), state->ring.window);
    KvgStatus  status;

    if (state->layout != KVG_TP_KV_RING || start <= state->ring.base) return KVG_OK;
    status = kvg_store_rebase(cache->store, class_index, cache->slot, start - state->ring.base, cache->pos - start, start, stream);
    cache->tainted |= status != KVG_OK;
    state->ring.base = start;
    state->publishes++;
    return status;
}

KvgStatus kvg_kv_cache_level(KvCache *cache, KvgStream stream)
{
    KvgStatus status = kvg_kv_cache_begin(cache), first = KVG_OK;

    KVG_ASSERT(status == KVG_OK); /* no step is open */
    kvg_kv_cache_refuse(cache);
    if (cache->keeps_slots) kvg_slot_level(&cache->held);
    for (uint32_t c = 0; c < cache->class_count; c++) KVG_TRY_KEEP(level_ring(cache, c, stream), first);
    return first;
}

KvgStatus kvg_kv_cache_level_unlike(KvCache *cache, KvgStream stream)
{
    cache->trim_due = 1;
    return kvg_kv_cache_level(cache, stream);
}

uint64_t kvg_kv_cache_staged(const KvCache *cache)
{
    return cache->classes[0].staged;
}

void kvg_kv_cache_taint(KvCache *cache)
{
    cache->tainted = 1;
}

/* ---- captured runs */

KvgStatus kvg_kv_cache_run_begin(KvCache *cache, uint32_t steps, uint32_t rows, KvgStream stream)
{
    uint64_t  all = (uint64_t)steps * rows;
    KvgStatus status;

    KVG_TRY(kvg_cache_check_intact(cache));
    KVG_TRY(kvg_cache_check_settled(cache, "a captured run"));
    KVG_ASSERT(cache->held.pool == 0 && (cache->held.columns == 0 || rows < cache->held.columns)); /* the caller has asked */
    if (all == 0 || all > UINT32_MAX) {
        return kvg_fail(KVG_EINVAL, "a run of %u steps of %u rows: it takes 1 to 2^32 - 1 rows a sequence", steps, rows);
    }
    KVG_TRY(kvg_kv_cache_begin(cache));
    status = stage(cache, rows, (uint32_t)all, stream);
    if (status != KVG_OK && status != KVG_ENOMEM && status != KVG_EDEVICE) {
        kvg_kv_cache_refuse(cache);
        return status;
    }
    kvg_store_set_len(cache->store, cache->slot, cache->pos, cache->pos + rows); /* the first step's */
    return status;
}

void kvg_kv_cache_run_end(KvCache *cache, uint64_t rows, uint32_t column)
{
    if (cache->keeps_slots) kvg_cache_slot_adopt(cache, cache->pos + rows, column);
    finalize_classes(cache, rows, 0);
}

/* ---- bytes */

uint64_t kvg_kv_cache_content_bytes(const KvCache *cache)
{
    uint64_t bytes = kvg_store_slot_bytes(cache->store);

    if (cache->held.pool != 0) bytes += cache->pos / cache->held.pool * kvg_store_pool_key_bytes(cache->store);
    for (uint32_t c = 0; c < cache->class_count; c++) {
        bytes += (cache->pos - cache->classes[c].ring.base) * kvg_store_row_bytes(cache->store, c);
    }
    return bytes;
}

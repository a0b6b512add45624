/* Transaction: the public face of S6. What a step calls is in transaction_inline.h; rare calls and sentences are here. */
#include "runtime/rules/transaction_inline.h"

#include <inttypes.h>

#include "runtime/base/error.h"

_Static_assert(sizeof(TpKvState) == 64, "one cache line: a step touches one a sequence and class");

static KvgStatus check_capacity(uint64_t capacity)
{
    if (capacity <= INT32_MAX) return KVG_OK;
    return kvg_fail(KVG_EOVERFLOW, "capacity %" PRIu64 " rows: lengths are 32 bits, so at most %d", capacity, INT32_MAX);
}

KvgStatus kvg_tp_kv_init(TpKvState *state, uint64_t capacity, uint64_t window, uint32_t prefill_chunk_max,
                         uint32_t flags)
{
    if (flags > KVG_TP_KV_INIT_POOLED || prefill_chunk_max > KVG_PRIME_CHUNK_MAX_TOKENS) {
        return kvg_fail(KVG_EINVAL, "flags %u with a prefill chunk of %u rows: flags are flat (0) or pooled (1), chunks "
                        "at most %u", flags, prefill_chunk_max, KVG_PRIME_CHUNK_MAX_TOKENS);
    }
    KVG_TRY(check_capacity(capacity));
    int pooled = flags == KVG_TP_KV_INIT_POOLED;
    if (capacity == 0 && !pooled) return kvg_fail(KVG_EINVAL, "flat planes of capacity 0: book at least one row");
    TpKvState fresh = {.capacity = capacity, .next_generation = 1};
    fresh.prefill_chunk_max = (uint16_t)(prefill_chunk_max != 0 ? prefill_chunk_max : KVG_PRIME_CHUNK_MAX_TOKENS);
    fresh.layout = (uint8_t)((pooled ? 2 : 0) + (window != 0 ? 1 : 0));
    if (fresh.layout == KVG_TP_KV_RING) {
        uint64_t rows = kvg_swa_ring_rows_chunk(window, capacity, fresh.prefill_chunk_max);
        KVG_TRY(kvg_kv_ring_init(&fresh.ring, rows, window));
    } else {
        fresh.ring.window = window;
    }
    *state = fresh;
    return KVG_OK;
}

int kvg_tp_kv_fresh(const TpKvState *state)
{
    return state->committed == 0 && state->staged == 0 && state->next_generation == 1 && !state->active;
}

KvgStatus kvg_tp_kv_begin(TpKvState *state, TpKvTransaction *tx)
{
    if (kvg_rule_tp_kv_begin(state, tx) == KVG_OK) return KVG_OK;
    return kvg_fail(KVG_EBUSY, "begin at %" PRIu64 " rows: transaction %" PRIu64 " is open; finalize it or rewind",
                    state->committed, state->next_generation - 1);
}

static KvgStatus fail_stale(const TpKvState *state, const TpKvTransaction *tx)
{
    return kvg_fail(KVG_ESTALE, "transaction %" PRIu64 " at %" PRIu64 " rows is not the open one (%s %" PRIu64 " at %"
                    PRIu64 " rows); begin again", tx->generation, tx->base_len, state->active ? "open:" : "none open, last:",
                    state->next_generation - 1, state->committed);
}

static KvgStatus fail_append(const TpKvState *state, uint64_t rows, KvgStatus status)
{
    switch (status) {
    case KVG_EINVAL:
        return kvg_fail(status, "append of 0 rows at row %" PRIu64 ": leave the sequence out of the step instead",
                        state->staged);
    case KVG_ECAPACITY:
        return kvg_fail(status, "append of %" PRIu64 " rows at row %" PRIu64 ": the capacity is %" PRIu64
                        " rows; book more or append fewer", rows, state->staged, state->capacity);
    default: {
        KvRingAppend unused; /* asked again for the ring's own sentence */
        return kvg_kv_ring_append_plan(&state->ring, state->staged,
                                       kvg_rule_view_start(state->committed, state->ring.window), rows, &unused);
    }
    }
}

KvgStatus kvg_tp_kv_prepare_append(const TpKvState *state, const TpKvTransaction *tx, uint64_t rows,
                                   TpKvAppendPlan *plan)
{
    KvgStatus status = kvg_rule_tp_kv_prepare_append(state, tx, rows, plan);
    if (status == KVG_OK) return status;
    return status == KVG_ESTALE ? fail_stale(state, tx) : fail_append(state, rows, status);
}

static KvgStatus fail_stale_plan(const TpKvState *state, uint32_t publishes)
{
    return kvg_fail(KVG_ESTALE, "a plan made at publish %u is not good at publish %u (%" PRIu64 " rows staged, base %"
                    PRIu64 "); plan again, and publish a rebase before its append", publishes, state->publishes,
                    state->staged, state->ring.base);
}

KvgStatus kvg_tp_kv_publish_append_rebase(TpKvState *state, const TpKvAppendPlan *plan)
{
    if (kvg_rule_tp_kv_publish_rebase(state, plan) == KVG_OK) return KVG_OK;
    return fail_stale_plan(state, plan->publishes);
}

KvgStatus kvg_tp_kv_publish_append_plan(TpKvState *state, const TpKvAppendPlan *plan)
{
    if (kvg_rule_tp_kv_publish_plan(state, plan) == KVG_OK) return KVG_OK;
    return fail_stale_plan(state, plan->publishes);
}

KvgStatus kvg_tp_kv_peek_append_ring(const TpKvState *state, uint64_t rows, uint64_t *write_row, int *rebase)
{
    TpKvAppendPlan plan;
    KvgStatus status = kvg_rule_tp_kv_append(state, rows, &plan);
    if (status != KVG_OK) return fail_append(state, rows, status);
    *write_row = plan.write_row;
    *rebase = plan.ring_append.kind == KVG_RING_REBASE;
    return KVG_OK;
}

KvgStatus kvg_tp_kv_commit_target(const TpKvState *state, const TpKvTransaction *tx, uint64_t accepted,
                                  uint64_t *target)
{
    KvgStatus status = kvg_rule_tp_kv_commit_target(state, tx, accepted, target);
    if (status == KVG_OK) return status;
    if (status == KVG_ESTALE) return fail_stale(state, tx);
    return kvg_fail(status, "accepted %" PRIu64 " rows of %" PRIu64 " staged ones; accept at most those", accepted,
                    state->staged - tx->base_len);
}

KvgStatus kvg_tp_kv_publish_finalize(TpKvState *state, const TpKvTransaction *tx, uint64_t target)
{
    KvgStatus status = kvg_rule_tp_kv_publish_finalize(state, tx, target);
    if (status == KVG_OK) return status;
    if (status == KVG_ESTALE) return fail_stale(state, tx);
    return kvg_fail(status, "finalize at row %" PRIu64 ": the step spans rows %" PRIu64 " to %" PRIu64
                    "; pass what commit_target gave", target, tx->base_len, state->staged);
}

KvgStatus kvg_tp_kv_rewind_to(TpKvState *state, uint64_t len)
{
    if (len > state->capacity) {
        return kvg_fail(KVG_ECAPACITY, "rewind to row %" PRIu64 ": the capacity is %" PRIu64 " rows", len, state->capacity);
    }
    if (len > state->committed) {
        return kvg_fail(KVG_EINVAL, "rewind to row %" PRIu64 ": only %" PRIu64 " are committed; a rewind goes back", len,
                        state->committed);
    }
    uint64_t view = kvg_rule_view_start(len, state->ring.window);
    if (kvg_rule_tp_kv_windowed(state) && view < state->ring.base) {
        return kvg_fail(KVG_ELAPPED, "rewind to row %" PRIu64 ": attention there reads from row %" PRIu64
                        ", and rows below %" PRIu64 " are no longer held; replay from an earlier state", len, view,
                        state->ring.base);
    }
    state->committed = state->staged = len;
    state->active = 0;
    state->publishes++;
    return KVG_OK;
}

static KvgStatus check_hydration_window(const TpKvState *state, uint64_t len, uint64_t start)
{
    if (!kvg_rule_tp_kv_windowed(state)) {
        if (start == 0) return KVG_OK;
        return kvg_fail(KVG_EINVAL, "hydration from row %" PRIu64 ": a class without a window keeps every row; start at 0",
                        start);
    }
    if (state->layout == KVG_TP_KV_RING && len - start > state->ring.rows) {
        return kvg_fail(KVG_ENOFIT, "hydration of rows %" PRIu64 " to %" PRIu64 ": the ring has %" PRIu64
                        " rows; bring only those in view, from row %" PRIu64, start, len, state->ring.rows,
                        kvg_rule_view_start(len, state->ring.window));
    }
    uint64_t view = kvg_rule_view_start(len, state->ring.window);
    if (view >= start) return KVG_OK;
    return kvg_fail(KVG_ELAPPED, "hydration of rows %" PRIu64 " to %" PRIu64 ": attention at %" PRIu64
                    " reads from row %" PRIu64 "; bring those too", start, len, len, view);
}

KvgStatus kvg_tp_kv_publish_hydration(TpKvState *state, uint64_t len, uint64_t start)
{
    if (!kvg_tp_kv_fresh(state)) {
        return kvg_fail(KVG_EBUSY, "hydration into a state of %" PRIu64 " rows that has begun %" PRIu64
                        " transactions; use a fresh one", state->staged, state->next_generation - 1);
    }
    if (start > len || len > state->capacity) {
        return kvg_fail(KVG_ECAPACITY, "hydration of rows %" PRIu64 " to %" PRIu64 ": the capacity is %" PRIu64 " rows",
                        start, len, state->capacity);
    }
    KVG_TRY(check_hydration_window(state, len, start));
    state->committed = state->staged = len;
    if (kvg_rule_tp_kv_windowed(state)) state->ring.base = start;
    state->publishes++;
    return KVG_OK;
}

static KvgStatus check_grow(const TpKvState *state, uint64_t capacity, uint64_t rows)
{
    if (kvg_rule_tp_kv_pooled(state)) {
        return kvg_fail(KVG_ENOTSUP, "a copying grow of pooled planes: they grow in place; use kvg_tp_kv_extend");
    }
    if (state->active) {
        return kvg_fail(KVG_EBUSY, "grow to %" PRIu64 " rows: transaction %" PRIu64 " is open; finalize it first",
                        capacity, state->next_generation - 1);
    }
    if (capacity <= state->capacity) {
        return kvg_fail(KVG_EINVAL, "grow to %" PRIu64 " rows: there are %" PRIu64 " already; ask for more", capacity,
                        state->capacity);
    }
    KVG_TRY(check_capacity(capacity));
    if (rows > state->committed) {
        return kvg_fail(KVG_EINVAL, "grow that keeps %" PRIu64 " rows: %" PRIu64 " are committed", rows, state->committed);
    }
    return KVG_OK;
}

KvgStatus kvg_tp_kv_prepare_grow(const TpKvState *state, uint64_t capacity, uint64_t rows, uint64_t k_tok_bytes,
                                 uint64_t v_tok_bytes, TpKvGrowPlan *plan)
{
    KVG_TRY(check_grow(state, capacity, rows));
    TpKvGrowPlan grow = {.capacity = capacity, .rows = rows, .copy_rows = rows, .publishes = state->publishes};
    if (state->layout == KVG_TP_KV_RING) {
        uint64_t past;
        KVG_TRY(kvg_kv_ring_restore_plan(&state->ring, rows, &grow.target_base, &grow.source_row, &past));
        grow.copy_rows = past - grow.source_row;
    }
    if (!kvg_mul_u64(grow.copy_rows, k_tok_bytes, &grow.k_bytes) ||
        !kvg_mul_u64(grow.copy_rows, v_tok_bytes, &grow.v_bytes)) {
        return kvg_fail(KVG_EOVERFLOW, "grow copies %" PRIu64 " rows of %" PRIu64 " and %" PRIu64
                        " bytes: past 64 bits", grow.copy_rows, k_tok_bytes, v_tok_bytes);
    }
    *plan = grow;
    return KVG_OK;
}

KvgStatus kvg_tp_kv_publish_grow(TpKvState *source, const TpKvGrowPlan *plan, TpKvState *target)
{
    if (plan->publishes != source->publishes || source->active) return fail_stale_plan(source, plan->publishes);
    if (!kvg_tp_kv_fresh(target) || target->capacity != plan->capacity || target->layout != source->layout ||
        target->ring.window != source->ring.window || target->prefill_chunk_max != source->prefill_chunk_max) {
        return kvg_fail(KVG_ELAYOUT, "grow into a state of %" PRIu64 " rows, window %" PRIu64 ", %" PRIu64
                        " staged: it must be fresh, of %" PRIu64 " rows and window %" PRIu64 " in the same layout",
                        target->capacity, target->ring.window, target->staged, plan->capacity, source->ring.window);
    }
    KVG_ASSERT(target->layout != KVG_TP_KV_RING || plan->copy_rows <= target->ring.rows);
    target->committed = target->staged = plan->rows;
    target->ring.base = plan->target_base;
    target->next_generation = source->next_generation;
    target->publishes++;
    source->publishes++;
    return KVG_OK;
}

KvgStatus kvg_tp_kv_extend(TpKvState *state, uint64_t capacity)
{
    if (capacity <= state->capacity) {
        return kvg_fail(KVG_EINVAL, "extend to %" PRIu64 " rows: there are %" PRIu64 " already; ask for more", capacity,
                        state->capacity);
    }
    KVG_TRY(check_capacity(capacity));
    state->capacity = capacity;
    if (state->layout == KVG_TP_KV_RING) {
        /* Rows lie at row - base with no wrap, so a longer ring leaves them where they are. */
        state->ring.rows = kvg_swa_ring_rows_chunk(state->ring.window, capacity, state->prefill_chunk_max);
    }
    return KVG_OK;
}

KvgStatus kvg_tp_kv_physical_range(const TpKvState *state, uint64_t start, uint64_t end, uint64_t *first,
                                   uint64_t *past)
{
    if (state->layout == KVG_TP_KV_RING) return kvg_kv_ring_physical_range(&state->ring, start, end, first, past);
    if (end > state->capacity) {
        return kvg_fail(KVG_ECAPACITY, "rows %" PRIu64 " to %" PRIu64 ": the capacity is %" PRIu64 " rows", start, end,
                        state->capacity);
    }
    if (end < start || start < state->ring.base) {
        return kvg_fail(KVG_ELAPPED, "rows %" PRIu64 " to %" PRIu64 " are not held: rows from %" PRIu64 " on are", start,
                        end, state->ring.base);
    }
    *first = start;
    *past = end;
    return KVG_OK;
}

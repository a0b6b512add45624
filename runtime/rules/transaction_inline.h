/* Transaction, inline: what a step calls for every sequence and class, small enough to be compiled into its loop.
 * Private. Each answers the code that the public function of the same name answers, without its sentence: a caller that
 * meets a refusal calls the public function again to get it (a refused call changes nothing, so that is harmless). */
#ifndef KVG_TRANSACTION_INLINE_H
#define KVG_TRANSACTION_INLINE_H

#include <kvgrid/transaction.h>

#include "runtime/rules/ring_inline.h"

static inline int kvg_rule_tp_kv_windowed(const TpKvState *state)
{
    return state->layout & 1;
}

static inline int kvg_rule_tp_kv_pooled(const TpKvState *state)
{
    return state->layout & 2;
}

static inline int kvg_rule_tp_kv_is_open(const TpKvState *state, const TpKvTransaction *tx)
{
    return state->active && tx->generation + 1 == state->next_generation && tx->base_len == state->committed;
}

static inline KvgStatus kvg_rule_tp_kv_begin(TpKvState *state, TpKvTransaction *tx)
{
    if (state->active) return KVG_EBUSY;
    state->active = 1;
    *tx = (TpKvTransaction){.generation = state->next_generation++, .base_len = state->committed};
    return KVG_OK;
}

/* The append that any open transaction would make: the open one's, or one begun now. Attention from row `needed` on must stay possible:
 * the committed length, or less where rows below it are owed again. */
static inline KvgStatus kvg_rule_tp_kv_append_from(const TpKvState *state, uint64_t needed, uint64_t rows, TpKvAppendPlan *plan)
{
    if (rows == 0) return KVG_EINVAL;
    if (rows > state->capacity - state->staged) return KVG_ECAPACITY;
    TpKvAppendPlan next = {.target = state->staged + rows, .write_row = state->staged, .publishes = state->publishes};
    if (state->layout == KVG_TP_KV_RING) {
        uint64_t retain = kvg_rule_view_start(needed, state->ring.window);
        KvgStatus status = kvg_rule_ring_append(&state->ring, state->staged, retain, rows, &next.ring_append);
        if (status != KVG_OK) return status;
        next.write_row = next.ring_append.write_row;
        next.has_ring = 1;
    }
    *plan = next;
    return KVG_OK;
}

static inline KvgStatus kvg_rule_tp_kv_append(const TpKvState *state, uint64_t rows, TpKvAppendPlan *plan)
{
    return kvg_rule_tp_kv_append_from(state, state->committed, rows, plan);
}

static inline KvgStatus kvg_rule_tp_kv_prepare_append(const TpKvState *state, const TpKvTransaction *tx, uint64_t rows,
                                                      TpKvAppendPlan *plan)
{
    if (!kvg_rule_tp_kv_is_open(state, tx)) return KVG_ESTALE;
    return kvg_rule_tp_kv_append(state, rows, plan);
}

/* Only a ring's plan rebases: has_ring is 0 elsewhere, and its kind then too. */
static inline KvgStatus kvg_rule_tp_kv_publish_rebase(TpKvState *state, const TpKvAppendPlan *plan)
{
    if (plan->publishes != state->publishes) return KVG_ESTALE;
    if (plan->ring_append.kind != KVG_RING_REBASE) return KVG_OK;
    state->ring.base = plan->ring_append.new_base;
    state->publishes++;
    return KVG_OK;
}

/* A plan that rebases is good after exactly one publish, which must have been its own: the base stands where it said. */
static inline KvgStatus kvg_rule_tp_kv_publish_plan(TpKvState *state, const TpKvAppendPlan *plan)
{
    int rebases = plan->ring_append.kind == KVG_RING_REBASE;
    if (plan->publishes + (uint32_t)rebases != state->publishes) return KVG_ESTALE;
    if (rebases && state->ring.base != plan->ring_append.new_base) return KVG_ESTALE;
    state->staged = plan->target;
    state->publishes++;
    return KVG_OK;
}

static inline KvgStatus kvg_rule_tp_kv_commit_target(const TpKvState *state, const TpKvTransaction *tx,
                                                     uint64_t accepted, uint64_t *target)
{
    if (!kvg_rule_tp_kv_is_open(state, tx)) return KVG_ESTALE;
    if (accepted > state->staged - tx->base_len) return KVG_EINVAL;
    *target = tx->base_len + accepted;
    return KVG_OK;
}

/* A windowed pool's base goes up as ever, but not past what attention from row `needed` on reads: what is owed again lives on the slack
 * that is kept for rewinds, so that a step may still be as long. */
static inline KvgStatus kvg_rule_tp_kv_publish_finalize_from(TpKvState *state, const TpKvTransaction *tx, uint64_t target,
                                                             uint64_t needed)
{
    if (!kvg_rule_tp_kv_is_open(state, tx)) return KVG_ESTALE;
    if (target < tx->base_len || target > state->staged) return KVG_EINVAL;
    state->committed = state->staged = target;
    state->active = 0;
    state->publishes++;
    if (state->layout == KVG_TP_KV_POOLED_WINDOWED) {
        uint64_t retain = kvg_min_u64(kvg_rule_retain_from(target, state->ring.window, 0), kvg_rule_view_start(needed, state->ring.window));
        state->ring.base = kvg_max_u64(state->ring.base, retain);
    }
    return KVG_OK;
}

static inline KvgStatus kvg_rule_tp_kv_publish_finalize(TpKvState *state, const TpKvTransaction *tx, uint64_t target)
{
    return kvg_rule_tp_kv_publish_finalize_from(state, tx, target, target);
}

#endif

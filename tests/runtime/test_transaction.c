#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/transaction.h>

static TpKvState state_of(uint64_t capacity, uint64_t window, uint32_t flags)
{
    TpKvState state;
    ck_assert_int_eq(kvg_tp_kv_init(&state, capacity, window, 0, flags), KVG_OK);
    return state;
}

static TpKvTransaction begin(TpKvState *state)
{
    TpKvTransaction tx;
    ck_assert_int_eq(kvg_tp_kv_begin(state, &tx), KVG_OK);
    return tx;
}

static TpKvAppendPlan append(TpKvState *state, const TpKvTransaction *tx, uint64_t rows)
{
    TpKvAppendPlan plan;
    ck_assert_int_eq(kvg_tp_kv_prepare_append(state, tx, rows, &plan), KVG_OK);
    ck_assert_int_eq(kvg_tp_kv_publish_append_rebase(state, &plan), KVG_OK);
    ck_assert_int_eq(kvg_tp_kv_publish_append_plan(state, &plan), KVG_OK);
    return plan;
}

static void finalize(TpKvState *state, const TpKvTransaction *tx, uint64_t accepted)
{
    uint64_t target;
    ck_assert_int_eq(kvg_tp_kv_commit_target(state, tx, accepted, &target), KVG_OK);
    ck_assert_int_eq(kvg_tp_kv_publish_finalize(state, tx, target), KVG_OK);
}

/* Brings `state` to `len` committed rows through ordinary steps. */
static void fill(TpKvState *state, uint64_t len)
{
    while (state->committed < len) {
        uint64_t rows = len - state->committed < 1000 ? len - state->committed : 1000;
        TpKvTransaction tx = begin(state);
        append(state, &tx, rows);
        finalize(state, &tx, rows);
    }
}

#define ASSERT_REFUSED(state, call, status)                                          \
    do {                                                                             \
        TpKvState before_ = (state);                                                 \
        ck_assert_int_eq((call), (status));                                          \
        ck_assert_msg(memcmp(&before_, &(state), sizeof before_) == 0, "changed by a refused call: " #call); \
        ck_assert_str_ne(kvg_last_error(), "");                                      \
    } while (0)

START_TEST(test_init_chooses_the_layout_and_refuses_what_cannot_be)
{
    TpKvState state = state_of(10000, 32, KVG_TP_KV_INIT_FLAT);
    ck_assert_int_eq(state.layout, KVG_TP_KV_RING);
    ck_assert_uint_eq(state.ring.rows, 4671);
    ck_assert_int_eq(state_of(1, 0, KVG_TP_KV_INIT_FLAT).layout, KVG_TP_KV_LINEAR);
    ck_assert_int_eq(state_of(0, 0, KVG_TP_KV_INIT_POOLED).layout, KVG_TP_KV_POOLED);
    ck_assert_int_eq(state_of(0, 1, KVG_TP_KV_INIT_POOLED).layout, KVG_TP_KV_POOLED_WINDOWED);
    ASSERT_REFUSED(state, kvg_tp_kv_init(&state, 0, 0, 0, KVG_TP_KV_INIT_FLAT), KVG_EINVAL);
    ASSERT_REFUSED(state, kvg_tp_kv_init(&state, 8, 0, 4097, KVG_TP_KV_INIT_FLAT), KVG_EINVAL);
    ASSERT_REFUSED(state, kvg_tp_kv_init(&state, 8, 0, 0, 2), KVG_EINVAL);
    ASSERT_REFUSED(state, kvg_tp_kv_init(&state, (uint64_t)INT32_MAX + 1, 0, 0, 0), KVG_EOVERFLOW);
    ck_assert_int_eq(kvg_tp_kv_init(&state, INT32_MAX, 32, 4096, 0), KVG_OK);
    ck_assert_int_eq(kvg_tp_kv_init(&state, INT32_MAX, 32, 256, 0), KVG_OK);
    ck_assert_uint_eq(state.ring.rows, 32 + 256 + 512 + 31);
}
END_TEST

/* S6's check values, end to end. */
START_TEST(test_hydrated_ring_rebases_as_the_rules_say)
{
    TpKvState state = state_of(10000, 32, KVG_TP_KV_INIT_FLAT);
    ck_assert_int_eq(kvg_tp_kv_publish_hydration(&state, 8762, 4096), KVG_OK);
    TpKvTransaction tx = begin(&state);
    uint64_t first, past, row;
    int rebase;

    ck_assert_uint_eq(tx.generation, 1);
    ck_assert_uint_eq(tx.base_len, 8762);
    ck_assert_int_eq(kvg_tp_kv_peek_append_ring(&state, 10, &row, &rebase), KVG_OK);
    ck_assert_uint_eq(row, 58);
    ck_assert_int_eq(rebase, 1);
    TpKvAppendPlan plan = append(&state, &tx, 10);
    ck_assert_uint_eq(plan.target, 8772);
    ck_assert_uint_eq(plan.write_row, 58);
    ck_assert_uint_eq(plan.ring_append.src_row, 4608);
    ck_assert_uint_eq(plan.ring_append.keep_rows, 58);
    ck_assert_uint_eq(plan.ring_append.new_base, 8704);
    ck_assert_int_eq(kvg_tp_kv_physical_range(&state, 8740, 8772, &first, &past), KVG_OK);
    ck_assert_uint_eq(first, 36);
    ck_assert_uint_eq(past, 68);
    finalize(&state, &tx, 0);
    ck_assert_uint_eq(state.committed, 8762);
    ASSERT_REFUSED(state, kvg_tp_kv_rewind_to(&state, 8200), KVG_ELAPPED);
    ck_assert_int_eq(kvg_tp_kv_rewind_to(&state, 8735), KVG_OK);   /* attends from 8704 on, the base */
    ASSERT_REFUSED(state, kvg_tp_kv_rewind_to(&state, 8734), KVG_ELAPPED);
}
END_TEST

START_TEST(test_one_transaction_at_a_time_and_only_the_open_one_counts)
{
    TpKvState state = state_of(100, 0, (uint32_t)_i);
    TpKvTransaction tx = begin(&state), other = tx;
    TpKvAppendPlan plan;
    uint64_t target;

    ASSERT_REFUSED(state, kvg_tp_kv_begin(&state, &other), KVG_EBUSY);
    other.generation++;
    ASSERT_REFUSED(state, kvg_tp_kv_prepare_append(&state, &other, 1, &plan), KVG_ESTALE);
    other = (TpKvTransaction){tx.generation, tx.base_len + 1};
    ASSERT_REFUSED(state, kvg_tp_kv_prepare_append(&state, &other, 1, &plan), KVG_ESTALE);
    ASSERT_REFUSED(state, kvg_tp_kv_commit_target(&state, &other, 0, &target), KVG_ESTALE);
    ASSERT_REFUSED(state, kvg_tp_kv_publish_finalize(&state, &other, 0), KVG_ESTALE);
    finalize(&state, &tx, 0);
    ASSERT_REFUSED(state, kvg_tp_kv_prepare_append(&state, &tx, 1, &plan), KVG_ESTALE);
    ASSERT_REFUSED(state, kvg_tp_kv_publish_finalize(&state, &tx, 0), KVG_ESTALE);
    ck_assert_uint_eq(begin(&state).generation, 2);
}
END_TEST

/* Case B174: capacity 4096, committed 4092: at most 4 positions, with neighbours. */
START_TEST(test_append_ends_at_the_capacity)
{
    TpKvState state = state_of(4096, 0, (uint32_t)_i);
    fill(&state, 4092);
    TpKvTransaction tx = begin(&state);
    TpKvAppendPlan plan;

    ASSERT_REFUSED(state, kvg_tp_kv_prepare_append(&state, &tx, 5, &plan), KVG_ECAPACITY);
    ASSERT_REFUSED(state, kvg_tp_kv_prepare_append(&state, &tx, UINT64_MAX, &plan), KVG_ECAPACITY);
    ASSERT_REFUSED(state, kvg_tp_kv_prepare_append(&state, &tx, 0, &plan), KVG_EINVAL);
    append(&state, &tx, 4);
    ASSERT_REFUSED(state, kvg_tp_kv_prepare_append(&state, &tx, 1, &plan), KVG_ECAPACITY);
    finalize(&state, &tx, 3);
    ck_assert_uint_eq(state.committed, 4095);
    ck_assert_uint_eq(state.staged, 4095);
}
END_TEST

START_TEST(test_plan_is_stale_after_any_publish)
{
    TpKvState state = state_of(10000, 32, KVG_TP_KV_INIT_FLAT);
    fill(&state, 100);
    TpKvTransaction tx = begin(&state);
    TpKvAppendPlan old, plan;
    ck_assert_int_eq(kvg_tp_kv_prepare_append(&state, &tx, 1, &old), KVG_OK);

    append(&state, &tx, 1); /* an equal plan, published: the first would write the same row again */
    ASSERT_REFUSED(state, kvg_tp_kv_publish_append_rebase(&state, &old), KVG_ESTALE);
    ASSERT_REFUSED(state, kvg_tp_kv_publish_append_plan(&state, &old), KVG_ESTALE);
    ck_assert_int_eq(kvg_tp_kv_prepare_append(&state, &tx, 2, &plan), KVG_OK);
    finalize(&state, &tx, 1);
    ASSERT_REFUSED(state, kvg_tp_kv_publish_append_plan(&state, &plan), KVG_ESTALE);
    tx = begin(&state);
    ASSERT_REFUSED(state, kvg_tp_kv_publish_append_plan(&state, &plan), KVG_ESTALE);
    ck_assert_int_eq(kvg_tp_kv_prepare_append(&state, &tx, 2, &plan), KVG_OK);
    ck_assert_int_eq(kvg_tp_kv_rewind_to(&state, 50), KVG_OK);
    ASSERT_REFUSED(state, kvg_tp_kv_publish_append_plan(&state, &plan), KVG_ESTALE);
}
END_TEST

START_TEST(test_rebase_is_published_before_its_append_and_once)
{
    TpKvState state = state_of(10000, 32, KVG_TP_KV_INIT_FLAT);
    ck_assert_int_eq(kvg_tp_kv_publish_hydration(&state, 8762, 4096), KVG_OK);
    TpKvTransaction tx = begin(&state);
    TpKvAppendPlan plan, other;
    ck_assert_int_eq(kvg_tp_kv_prepare_append(&state, &tx, 10, &plan), KVG_OK);
    ck_assert_int_eq(kvg_tp_kv_prepare_append(&state, &tx, 1, &other), KVG_OK);

    ASSERT_REFUSED(state, kvg_tp_kv_publish_append_plan(&state, &plan), KVG_ESTALE);
    ck_assert_int_eq(kvg_tp_kv_publish_append_rebase(&state, &plan), KVG_OK);
    ck_assert_uint_eq(state.ring.base, 8704);
    ck_assert_uint_eq(state.staged, 8762);
    ASSERT_REFUSED(state, kvg_tp_kv_publish_append_rebase(&state, &plan), KVG_ESTALE);
    ASSERT_REFUSED(state, kvg_tp_kv_publish_append_plan(&state, &other), KVG_ESTALE);
    ck_assert_int_eq(kvg_tp_kv_publish_append_plan(&state, &plan), KVG_OK);
    ck_assert_uint_eq(state.staged, 8772);
    ASSERT_REFUSED(state, kvg_tp_kv_publish_append_plan(&state, &plan), KVG_ESTALE);
}
END_TEST

START_TEST(test_publish_of_another_plan_is_not_taken_for_a_plans_own_rebase)
{
    TpKvState state = state_of(10000, 32, KVG_TP_KV_INIT_FLAT);
    ck_assert_int_eq(kvg_tp_kv_publish_hydration(&state, 8762, 4096), KVG_OK);
    TpKvTransaction tx = begin(&state);
    TpKvAppendPlan plan;
    ck_assert_int_eq(kvg_tp_kv_prepare_append(&state, &tx, 10, &plan), KVG_OK);
    ck_assert_int_eq(plan.ring_append.kind, KVG_RING_REBASE);
    append(&state, &tx, 1); /* contiguous: one publish, as a rebase would have been */
    ASSERT_REFUSED(state, kvg_tp_kv_publish_append_plan(&state, &plan), KVG_ESTALE);
    ASSERT_REFUSED(state, kvg_tp_kv_publish_append_rebase(&state, &plan), KVG_ESTALE);
}
END_TEST

START_TEST(test_commit_takes_none_some_or_all_and_not_one_more)
{
    for (uint64_t accepted = 0; accepted <= 7; accepted++) {
        TpKvState state = state_of(1000, (_i & 2) ? 32 : 0, (uint32_t)(_i & 1));
        fill(&state, 100);
        TpKvTransaction tx = begin(&state);
        append(&state, &tx, 3);
        append(&state, &tx, 4); /* several appends in one transaction */
        uint64_t target = 5;
        ASSERT_REFUSED(state, kvg_tp_kv_commit_target(&state, &tx, 8, &target), KVG_EINVAL);
        ASSERT_REFUSED(state, kvg_tp_kv_commit_target(&state, &tx, UINT64_MAX, &target), KVG_EINVAL);
        ASSERT_REFUSED(state, kvg_tp_kv_publish_finalize(&state, &tx, 99), KVG_EINVAL);
        ASSERT_REFUSED(state, kvg_tp_kv_publish_finalize(&state, &tx, 108), KVG_EINVAL);
        ck_assert_uint_eq(target, 5);
        finalize(&state, &tx, accepted);
        ck_assert_uint_eq(state.committed, 100 + accepted);
        ck_assert_uint_eq(state.staged, state.committed);
        ck_assert_int_eq(state.active, 0);
    }
}
END_TEST

START_TEST(test_rewind_refuses_in_the_order_of_the_rules_and_drops_a_transaction)
{
    TpKvState state = state_of(200, 0, (uint32_t)_i);
    fill(&state, 100);
    TpKvTransaction tx = begin(&state);
    append(&state, &tx, 10);

    ASSERT_REFUSED(state, kvg_tp_kv_rewind_to(&state, 201), KVG_ECAPACITY);
    ASSERT_REFUSED(state, kvg_tp_kv_rewind_to(&state, 200), KVG_EINVAL);
    ASSERT_REFUSED(state, kvg_tp_kv_rewind_to(&state, 101), KVG_EINVAL); /* staged, not committed */
    ck_assert_int_eq(kvg_tp_kv_rewind_to(&state, 100), KVG_OK);
    ck_assert_int_eq(state.active, 0);
    ck_assert_uint_eq(state.staged, 100);
    ASSERT_REFUSED(state, kvg_tp_kv_publish_finalize(&state, &tx, 100), KVG_ESTALE);
    ck_assert_int_eq(kvg_tp_kv_rewind_to(&state, 0), KVG_OK);
    ck_assert_uint_eq(begin(&state).generation, tx.generation + 1);
}
END_TEST

START_TEST(test_hydration_wants_a_fresh_state_and_the_whole_view)
{
    TpKvState ring = state_of(10000, 32, KVG_TP_KV_INIT_FLAT), linear = state_of(100, 0, KVG_TP_KV_INIT_FLAT);
    TpKvState pooled = state_of(10000, 32, KVG_TP_KV_INIT_POOLED);

    ASSERT_REFUSED(linear, kvg_tp_kv_publish_hydration(&linear, 10, 1), KVG_EINVAL);
    ASSERT_REFUSED(linear, kvg_tp_kv_publish_hydration(&linear, 101, 0), KVG_ECAPACITY);
    ASSERT_REFUSED(linear, kvg_tp_kv_publish_hydration(&linear, 10, 11), KVG_ECAPACITY);
    ASSERT_REFUSED(ring, kvg_tp_kv_publish_hydration(&ring, 9000, 9000 - 4672), KVG_ENOFIT);
    ASSERT_REFUSED(ring, kvg_tp_kv_publish_hydration(&ring, 9000, 8961), KVG_ELAPPED); /* the view starts at 8960 */
    ASSERT_REFUSED(pooled, kvg_tp_kv_publish_hydration(&pooled, 9000, 8961), KVG_ELAPPED);
    ck_assert_int_eq(kvg_tp_kv_publish_hydration(&pooled, 9000, 8960), KVG_OK);
    ck_assert_int_eq(kvg_tp_kv_publish_hydration(&ring, 9000, 9000 - 4671), KVG_OK);
    ck_assert_uint_eq(ring.ring.base, 9000 - 4671);
    ASSERT_REFUSED(ring, kvg_tp_kv_publish_hydration(&ring, 9000, 8960), KVG_EBUSY);
    ck_assert_int_eq(kvg_tp_kv_publish_hydration(&linear, 100, 0), KVG_OK);
    linear = state_of(100, 0, KVG_TP_KV_INIT_FLAT);
    TpKvTransaction tx = begin(&linear);
    ASSERT_REFUSED(linear, kvg_tp_kv_publish_hydration(&linear, 1, 0), KVG_EBUSY); /* open */
    finalize(&linear, &tx, 0);
    ASSERT_REFUSED(linear, kvg_tp_kv_publish_hydration(&linear, 1, 0), KVG_EBUSY); /* empty, but not fresh */
}
END_TEST

START_TEST(test_grow_copies_what_is_in_view_and_carries_the_generation)
{
    TpKvState state = state_of(10000, 32, KVG_TP_KV_INIT_FLAT), target = state_of(20000, 32, KVG_TP_KV_INIT_FLAT);
    fill(&state, 4115);
    TpKvGrowPlan plan;
    ck_assert_int_eq(kvg_tp_kv_prepare_grow(&state, 20000, 4115, 136, 96, &plan), KVG_OK);
    ck_assert_uint_eq(plan.source_row, 4064);
    ck_assert_uint_eq(plan.copy_rows, 51);
    ck_assert_uint_eq(plan.target_base, 4064);
    ck_assert_uint_eq(plan.k_bytes, 6936);
    ck_assert_uint_eq(plan.v_bytes, 4896);
    uint64_t generation = state.next_generation;
    ck_assert_int_eq(kvg_tp_kv_publish_grow(&state, &plan, &target), KVG_OK);
    ck_assert_uint_eq(target.committed, 4115);
    ck_assert_uint_eq(target.ring.base, 4064);
    ck_assert_uint_eq(begin(&target).generation, generation);
    target = state_of(20000, 32, KVG_TP_KV_INIT_FLAT);
    ck_assert_int_eq(kvg_tp_kv_publish_grow(&state, &plan, &target), KVG_ESTALE); /* published already */
}
END_TEST

START_TEST(test_grow_refuses_in_the_order_of_the_rules)
{
    TpKvState state = state_of(1000, 0, KVG_TP_KV_INIT_FLAT), pooled = state_of(1000, 0, KVG_TP_KV_INIT_POOLED);
    fill(&state, 500);
    TpKvGrowPlan plan = {.rows = 99};
    TpKvTransaction tx = begin(&state);
    ASSERT_REFUSED(state, kvg_tp_kv_prepare_grow(&state, 2000, 500, 1, 1, &plan), KVG_EBUSY);
    finalize(&state, &tx, 0);
    ASSERT_REFUSED(state, kvg_tp_kv_prepare_grow(&state, 1000, 500, 1, 1, &plan), KVG_EINVAL);
    ASSERT_REFUSED(state, kvg_tp_kv_prepare_grow(&state, (uint64_t)INT32_MAX + 1, 500, 1, 1, &plan), KVG_EOVERFLOW);
    ASSERT_REFUSED(state, kvg_tp_kv_prepare_grow(&state, 1001, 501, 1, 1, &plan), KVG_EINVAL);
    ASSERT_REFUSED(state, kvg_tp_kv_prepare_grow(&state, 1001, 500, UINT64_MAX / 499, 1, &plan), KVG_EOVERFLOW);
    ASSERT_REFUSED(state, kvg_tp_kv_prepare_grow(&state, 1001, 500, 1, UINT64_MAX / 499, &plan), KVG_EOVERFLOW);
    ASSERT_REFUSED(pooled, kvg_tp_kv_prepare_grow(&pooled, 2000, 0, 1, 1, &plan), KVG_ENOTSUP);
    ck_assert_uint_eq(plan.rows, 99);
    ck_assert_int_eq(kvg_tp_kv_prepare_grow(&state, INT32_MAX, 500, 1, 1, &plan), KVG_OK);
}
END_TEST

START_TEST(test_grow_wants_a_fresh_target_of_the_same_layout)
{
    TpKvState state = state_of(1000, 32, KVG_TP_KV_INIT_FLAT);
    fill(&state, 500);
    TpKvGrowPlan plan;
    ck_assert_int_eq(kvg_tp_kv_prepare_grow(&state, 2000, 500, 1, 1, &plan), KVG_OK);
    TpKvState others[] = {state_of(1999, 32, KVG_TP_KV_INIT_FLAT), state_of(2000, 33, KVG_TP_KV_INIT_FLAT),
                          state_of(2000, 0, KVG_TP_KV_INIT_FLAT), state_of(2000, 32, KVG_TP_KV_INIT_POOLED),
                          state_of(2000, 32, KVG_TP_KV_INIT_FLAT), state_of(2000, 32, KVG_TP_KV_INIT_FLAT)};
    begin(&others[4]);
    ck_assert_int_eq(kvg_tp_kv_init(&others[5], 2000, 32, 256, 0), KVG_OK);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        ASSERT_REFUSED(others[i], kvg_tp_kv_publish_grow(&state, &plan, &others[i]), KVG_ELAYOUT);
    }
    TpKvState target = state_of(2000, 32, KVG_TP_KV_INIT_FLAT);
    ck_assert_int_eq(kvg_tp_kv_publish_grow(&state, &plan, &target), KVG_OK);
}
END_TEST

/* An extend leaves rows and plans where they are, in every layout. */
START_TEST(test_extend_books_more_in_place)
{
    TpKvState state = state_of(5000, (_i & 2) ? 32 : 0, (uint32_t)(_i & 1));
    fill(&state, 4990);
    TpKvTransaction tx = begin(&state);
    TpKvAppendPlan plan;
    ASSERT_REFUSED(state, kvg_tp_kv_extend(&state, 5000), KVG_EINVAL);
    ASSERT_REFUSED(state, kvg_tp_kv_extend(&state, (uint64_t)INT32_MAX + 1), KVG_EOVERFLOW);
    ck_assert_int_eq(kvg_tp_kv_prepare_append(&state, &tx, 10, &plan), KVG_OK);
    ck_assert_int_eq(kvg_tp_kv_extend(&state, 6000), KVG_OK);
    ck_assert_int_eq(kvg_tp_kv_publish_append_rebase(&state, &plan), KVG_OK);
    ck_assert_int_eq(kvg_tp_kv_publish_append_plan(&state, &plan), KVG_OK);
    append(&state, &tx, 1000);
    finalize(&state, &tx, 1010);
    ck_assert_uint_eq(state.committed, 6000);
}
END_TEST

START_TEST(test_pooled_rows_stand_at_their_position_and_the_base_follows_the_window)
{
    TpKvState state = state_of(100000, 128, KVG_TP_KV_INIT_POOLED);
    uint64_t first, past;
    fill(&state, 12000);
    ck_assert_uint_eq(state.ring.base, kvg_swa_retain_from(12000, 128, 0));
    TpKvTransaction tx = begin(&state);
    TpKvAppendPlan plan = append(&state, &tx, 113);
    ck_assert_uint_eq(plan.write_row, 12000);
    ck_assert_int_eq(plan.has_ring, 0);
    uint64_t base = state.ring.base;
    finalize(&state, &tx, 0);
    ck_assert_uint_eq(state.ring.base, base); /* a rollback gives nothing up */
    tx = begin(&state);
    append(&state, &tx, 113);
    ck_assert_uint_eq(state.ring.base, base); /* nor does staging */
    finalize(&state, &tx, 113);
    ck_assert_uint_eq(state.ring.base, 11456);
    ck_assert_int_eq(kvg_tp_kv_physical_range(&state, 11456, 12113, &first, &past), KVG_OK);
    ck_assert_uint_eq(first, 11456);
    ck_assert_uint_eq(past, 12113);
    ASSERT_REFUSED(state, kvg_tp_kv_physical_range(&state, 11455, 12113, &first, &past), KVG_ELAPPED);
    ASSERT_REFUSED(state, kvg_tp_kv_physical_range(&state, 12000, 11999, &first, &past), KVG_ELAPPED);
    ASSERT_REFUSED(state, kvg_tp_kv_physical_range(&state, 12000, 100001, &first, &past), KVG_ECAPACITY);
    ASSERT_REFUSED(state, kvg_tp_kv_rewind_to(&state, 11456 + 126), KVG_ELAPPED);
    ck_assert_int_eq(kvg_tp_kv_rewind_to(&state, 11456 + 127), KVG_OK);
    ck_assert_uint_eq(state.ring.base, 11456); /* a rewind brings nothing back */
}
END_TEST

/* ---- a random life against real rows and a plain list: rows carry (position, version), and a rollback restores both */

#define LIFE_CAPACITY 9000u

typedef struct Row { uint64_t position, version; } Row;

typedef struct Model {
    Row      plane[LIFE_CAPACITY];  /* what the state's plans write and move */
    uint64_t version[LIFE_CAPACITY]; /* what the plain list holds at each position */
    uint64_t len;                   /* committed, by the list's own account */
    uint64_t next_version;
} Model;

static void check_view(const TpKvState *state, const Model *model, uint64_t len)
{
    uint64_t start = state->ring.window != 0 ? kvg_view_start(model->len, state->ring.window) : 0, first, past;
    ck_assert_int_eq(kvg_tp_kv_physical_range(state, start, len, &first, &past), KVG_OK);
    uint64_t wrong = 0; /* counted, for an assertion a row takes longer than the rows */
    for (uint64_t row = start; row < len; row++) {
        const Row *held = &model->plane[first + row - start];
        wrong += held->position != row || held->version != model->version[row];
    }
    ck_assert_msg(wrong == 0, "%d rows of %d to %d are not the list's", (int)wrong, (int)start, (int)len);
}

static void model_append(TpKvState *state, const TpKvTransaction *tx, Model *model, uint64_t rows)
{
    TpKvAppendPlan plan;
    uint64_t row = state->staged;
    ck_assert_int_eq(kvg_tp_kv_prepare_append(state, tx, rows, &plan), KVG_OK);
    if (plan.ring_append.kind == KVG_RING_REBASE) {
        memmove(model->plane, model->plane + plan.ring_append.src_row, plan.ring_append.keep_rows * sizeof(Row));
    }
    ck_assert_int_eq(kvg_tp_kv_publish_append_rebase(state, &plan), KVG_OK);
    for (uint64_t i = 0; i < rows; i++) {
        model->version[row + i] = model->next_version;
        model->plane[plan.write_row + i] = (Row){row + i, model->next_version++};
    }
    ck_assert_int_eq(kvg_tp_kv_publish_append_plan(state, &plan), KVG_OK);
}

static void model_step(TpKvState *state, Model *model)
{
    TpKvTransaction tx = begin(state);
    for (int pass = rand() % 3; pass >= 0; pass--) {
        uint64_t room = LIFE_CAPACITY - state->staged, rows = 1 + (uint64_t)(rand() % (rand() % 8 == 0 ? 600 : 6));
        if (room != 0) model_append(state, &tx, model, rows < room ? rows : room);
    }
    check_view(state, model, state->staged); /* the step reads its own rows */
    uint64_t staged = state->staged - model->len, accepted = rand() % 3 == 0 ? staged : (uint64_t)rand() % (staged + 1);
    finalize(state, &tx, accepted);
    model->len += accepted;
    ck_assert_uint_eq(state->committed, model->len);
    check_view(state, model, model->len);
}

static void model_rewind(TpKvState *state, Model *model)
{
    uint64_t len = model->len - (uint64_t)rand() % (model->len + 1 < 700 ? model->len + 1 : 700);
    uint64_t need = state->ring.window != 0 ? kvg_view_start(len, state->ring.window) : 0;
    KvgStatus want = need >= state->ring.base ? KVG_OK : KVG_ELAPPED;
    ck_assert_int_eq(kvg_tp_kv_rewind_to(state, len), want);
    if (want == KVG_OK) model->len = len;
    check_view(state, model, model->len);
}

START_TEST(test_random_life_reads_what_a_plain_list_holds)
{
    static Model model;
    TpKvState state = state_of(LIFE_CAPACITY, (_i & 2) ? 33 : 0, (uint32_t)(_i & 1));
    memset(&model, 0, sizeof model);
    srand(11 + (unsigned)_i);
    for (int step = 0; step < 1500; step++) {
        if (rand() % 20 == 0) model_rewind(&state, &model);
        else model_step(&state, &model);
        if (model.len > LIFE_CAPACITY - 50) {
            state = state_of(LIFE_CAPACITY, (_i & 2) ? 33 : 0, (uint32_t)(_i & 1));
            model.len = 0;
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("transaction");
    TCase *tcase = tcase_create("rules");
    tcase_add_test(tcase, test_init_chooses_the_layout_and_refuses_what_cannot_be);
    tcase_add_test(tcase, test_hydrated_ring_rebases_as_the_rules_say);
    tcase_add_loop_test(tcase, test_one_transaction_at_a_time_and_only_the_open_one_counts, 0, 2);
    tcase_add_loop_test(tcase, test_append_ends_at_the_capacity, 0, 2);
    tcase_add_test(tcase, test_plan_is_stale_after_any_publish);
    tcase_add_test(tcase, test_rebase_is_published_before_its_append_and_once);
    tcase_add_test(tcase, test_publish_of_another_plan_is_not_taken_for_a_plans_own_rebase);
    tcase_add_loop_test(tcase, test_commit_takes_none_some_or_all_and_not_one_more, 0, 4);
    tcase_add_loop_test(tcase, test_rewind_refuses_in_the_order_of_the_rules_and_drops_a_transaction, 0, 2);
    tcase_add_test(tcase, test_hydration_wants_a_fresh_state_and_the_whole_view);
    tcase_add_test(tcase, test_grow_copies_what_is_in_view_and_carries_the_generation);
    tcase_add_test(tcase, test_grow_refuses_in_the_order_of_the_rules);
    tcase_add_test(tcase, test_grow_wants_a_fresh_target_of_the_same_layout);
    tcase_add_loop_test(tcase, test_extend_books_more_in_place, 0, 4);
    tcase_add_test(tcase, test_pooled_rows_stand_at_their_position_and_the_base_follows_the_window);
    tcase_add_loop_test(tcase, test_random_life_reads_what_a_plain_list_holds, 0, 4);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int ran = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return ran == 0 || failed != 0;
}

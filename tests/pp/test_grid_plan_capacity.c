/* Grid plans: what memory holds, which rank is the smallest, and units against a slow rule. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/plan_scene.h"

START_TEST(test_grid_plan_b49_b31_the_smallest_rank_decides_and_is_named)
{
    const uint32_t fence[] = { 0, 1, 2 };

    make_plain(2, 131072);
    options.fence = fence;
    give_memory(2, 2111ull * 32768);
    given_memory[1] = 2055ull * 32768;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.classes[0].units, 2055);
    ck_assert_int_eq(plan.limiting_rank, 1);
    ck_assert_uint_eq(plan.max_context, 131072);
    ck_assert_uint_eq(plan.max_sequences, 1);
    given_memory[1] = 2055ull * 32768 - 1;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.classes[0].units, 2054);
    given_memory[1] = 2111ull * 32768;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.classes[0].units, 2111);
    ck_assert_int_eq(plan.limiting_rank, 0); /* alike: the lowest */
}
END_TEST

START_TEST(test_grid_plan_b50_device_memory_less_weights_and_reserve)
{
    uint64_t device[] = { 100000000, 66000000 };
    const uint64_t layer_bytes[] = { 1000000 };

    make_plain(1, 65536);
    options.layer_bytes = layer_bytes;
    options.device_bytes = device;
    options.reserve_bytes = 5000000;
    make_plan(2, 1);
    ck_assert_uint_eq(plan.ranks[0].state_bytes, 94500000);
    ck_assert_uint_eq(plan.ranks[1].state_bytes, 60500000);
    ck_assert_uint_eq(plan.classes[0].units, 60500000 / 16384);
    ck_assert_int_eq(plan.limiting_rank, 1);
    device[1] = 499999;
    ck_assert_int_eq(try_plan(2, 1), KVG_ENOMEM);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "stage 0 (rank 1)"));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "500000"));
    device[1] = 500000; /* weights alone fit: nothing else does */
    make_plan(2, 1);
    ck_assert_uint_eq(plan.max_sequences, 0);
    ck_assert_uint_eq(plan.max_context, 0);
    ck_assert_int_eq(plan.limiting_rank, 1);
    options.state_bytes = given_memory;
    ck_assert_int_eq(try_plan(2, 1), KVG_EINVAL);
}
END_TEST

START_TEST(test_grid_plan_sequences_and_context_at_their_borders)
{
    const struct { uint64_t units, context, sequences, tokens; } cases[] = {
        { 0, 0, 0, 0 }, { 1, 64, 0, 64 }, { 15, 960, 0, 960 }, { 16, 1000, 1, 1000 }, { 31, 1000, 1, 1937 }, { 32, 1000, 2, 2000 },
        { 33, 1000, 2, 2062 },
    };

    make_plain(1, 1000); /* 16 units a sequence */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        give_memory(1, cases[i].units * 32768);
        make_plan(1, 1);
        ck_assert_uint_eq(plan.classes[0].units, cases[i].units);
        ck_assert_uint_eq(plan.max_context, cases[i].context);
        ck_assert_uint_eq(plan.max_sequences, cases[i].sequences);
        /* 1000 tokens take 16 units, so a unit is worth 62.5 of them */
        ck_assert_uint_eq(plan.cache_tokens, cases[i].units * 1000 / 16);
        ck_assert_int_eq(plan.limiting_rank, 0);
    }
}
END_TEST

START_TEST(test_grid_plan_t_past_the_context_admits_no_such_sequence)
{
    make_plain(1, 1024);
    give_memory(1, 64ull * 32768);
    options.ctx = 2048;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.max_ctx, 1024);
    ck_assert_uint_eq(plan.max_context, 1024);
    ck_assert_uint_eq(plan.max_sequences, 0);
    config.context = 0; /* the config does not say: T is the longest */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.max_ctx, 2048);
    ck_assert_uint_eq(plan.max_sequences, 2);
    options.ctx = 0;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ctx, 32768);
}
END_TEST

START_TEST(test_grid_plan_b59_a_cap_on_slots_is_seen_in_the_result)
{
    make_plain(1, 1024);
    give_memory(1, 10ull * 16 * 32768);
    options.max_sequences = 2;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.slots, 2);
    ck_assert_uint_eq(plan.max_sequences, 2);
    ck_assert_uint_eq(plan.classes[0].units, 32); /* two sequences can never use more */
    ck_assert_int_eq(plan.limiting_rank, -1);     /* no rank limits: the slots do */
    options.max_sequences = 0;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.max_sequences, 10);
    ck_assert_uint_eq(plan.slots, 160); /* slots cost nothing here: one a unit */
}
END_TEST

START_TEST(test_grid_plan_b56_slots_take_their_bytes_before_rows)
{
    uint64_t slot, units[3];

    make_model(2, 0, 4096);
    made_layers[0] = recurrent_layer(4);
    made_layers[1] = kv_layer(4, 4, 64, 64);
    ask_bf16();
    give_memory(1, 16 << 20);
    for (uint32_t n = 1; n <= 3; n++) { /* T of 4096 rows would take 4 MiB a sequence: the caps are not met */
        options.max_sequences = n + 4;
        make_plan(1, 1);
        units[n - 1] = plan.classes[0].units;
        slot = plan.ranks[0].slot_bytes;
        ck_assert_uint_eq(slot, 2 * (4 * 64 * 3 + 4 * 1024) * 4);
        ck_assert_uint_eq(units[n - 1], ((16ull << 20) - (n + 4) * slot) / 65536);
    }
    options.max_sequences = 100000; /* more slots than memory: nothing fits */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.max_context, 0);
    ck_assert_uint_eq(plan.classes[0].units, 0);
    ck_assert_uint_eq(plan.slots, 0);
}
END_TEST

START_TEST(test_grid_plan_windows_stop_at_their_caps_and_leave_the_rest_to_others)
{
    uint64_t capped;

    make_model(2, 0, 131072);
    made_layers[0] = kv_layer(2, 2, 64, 64);
    made_layers[1] = window_layer(2, 64, 128);
    ask_bf16();
    options.sizing.policy.swa_ring = 1;
    options.max_sequences = 4;
    give_memory(1, 4000ull * 32768);
    options.ctx = 1024; /* 16 units of each: below the ring's cap of 76 */
    make_plan(1, 1);
    capped = 4 * plan.classes[1].unit_cap;
    ck_assert_uint_eq(plan.classes[1].unit_cap, 76);
    ck_assert_uint_eq(plan.classes[1].units, capped);
    ck_assert_uint_eq(plan.classes[0].units, 4000 - capped);
    ck_assert_int_eq(plan.limiting_rank, 0);
    give_memory(1, 200ull * 32768); /* scarce: both classes alike */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[0].units, 100);
    ck_assert_uint_eq(plan.classes[1].units, 100);
    give_memory(1, UINT64_MAX); /* plenty: everything at its cap */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[0].units, 4 * 2048);
    ck_assert_uint_eq(plan.classes[1].units, capped);
    ck_assert_int_eq(plan.limiting_rank, -1);
}
END_TEST

/* ---- units, and what they are rounded to */

START_TEST(test_grid_plan_more_units_than_a_table_counts_are_not_promised)
{
    make_plain(1, 65536);
    give_memory(1, UINT64_C(1) << 60);
    make_plan(1, 1);
    ck_assert_uint_le(plan.classes[0].units, INT32_MAX);
    ck_assert_uint_eq(plan.max_sequences, INT32_MAX / 1024); /* of 1024 units each, not the 2^60 / 2^25 that the bytes would hold */
}
END_TEST

START_TEST(test_grid_plan_slabs_are_rounded_up_plane_by_plane)
{
    make_plain(3, 1 << 20); /* 6 planes of 16384 bytes a unit */
    options.granularity = 1 << 16;
    give_memory(1, 6ull * 5 * (1 << 16));
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[0].units, 20);
    given_memory[0]--;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[0].units, 16); /* the 17th unit takes a whole grain in each plane */
    options.granularity = 0;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[0].units, 19);
}
END_TEST

/* The rule of S9 the slow way: raise k to the next value at which any class gets a unit, until a rank has no room. */
static void naive_units(const uint64_t per_sequence[2], const uint64_t cap[2], const uint64_t unit_bytes[2][2], const uint64_t memory[2],
                        uint64_t units[2])
{
    uint64_t k = 0;

    units[0] = units[1] = 0;
    for (;;) {
        uint64_t next = UINT64_MAX, want[2];

        for (int c = 0; c < 2; c++) {
            if (units[c] < cap[c]) {
                uint64_t at = ((units[c] + 1) * (1ull << 20) + per_sequence[c] - 1) / per_sequence[c];
                next = at < next ? at : next;
            }
        }
        if (next == UINT64_MAX) {
            return;
        }
        k = next;
        for (int c = 0; c < 2; c++) {
            uint64_t scaled = per_sequence[c] * k >> 20;
            want[c] = scaled < cap[c] ? scaled : cap[c];
        }
        for (int r = 0; r < 2; r++) {
            if (want[0] * unit_bytes[r][0] + want[1] * unit_bytes[r][1] > memory[r]) {
                return;
            }
        }
        units[0] = want[0];
        units[1] = want[1];
    }
}

START_TEST(test_grid_plan_pools_are_those_of_the_slow_rule)
{
    unsigned seed = 20260101;

    options.sizing.policy.swa_ring = 1;
    ask_bf16();
    for (int round = 0; round < 200; round++) {
        uint32_t layers = 4 + (uint32_t)rand_r(&seed) % 8;
        uint64_t per_sequence[2], cap[2], unit_bytes[2][2], units[2];

        make_model(layers, 0, 8192 + (uint64_t)rand_r(&seed) % 20000);
        for (uint32_t il = 0; il < layers; il++) {
            made_layers[il] = il % 2 == 0 ? kv_layer(8, 2, 64, 32) : window_layer(4, 64, 256);
        }
        options.max_sequences = 1 + (uint32_t)rand_r(&seed) % 6;
        options.ctx = 1000 + (uint64_t)rand_r(&seed) % 7000;
        given_memory[0] = (4ull << 20) * (16 + (uint64_t)rand_r(&seed) % 40);
        given_memory[1] = (4ull << 20) * (16 + (uint64_t)rand_r(&seed) % 40);
        options.state_bytes = given_memory;
        make_plan(1, 2);
        for (int c = 0; c < 2; c++) {
            per_sequence[c] = plan.classes[c].units_per_sequence;
            cap[c] = (uint64_t)options.max_sequences * plan.classes[c].unit_cap;
            unit_bytes[0][c] = plan.ranks[0].class_unit_bytes[c];
            unit_bytes[1][c] = plan.ranks[1].class_unit_bytes[c];
        }
        naive_units(per_sequence, cap, unit_bytes, given_memory, units);
        ck_assert_msg(units[0] >= per_sequence[0] && units[1] >= per_sequence[1], "round %d holds no sequence: widen the memory", round);
        ck_assert_msg(plan.classes[0].units == units[0] && plan.classes[1].units == units[1], "round %d: %u/%u, not %llu/%llu", round,
                      plan.classes[0].units, plan.classes[1].units, (unsigned long long)units[0], (unsigned long long)units[1]);
    }
}
END_TEST

START_TEST(test_grid_plan_windowed_models_count_whole_windows)
{
    load("mistral-7b-v0.1");
    options.sizing.policy.swa_ring = 1;
    make_plan(1, 1);
    uint64_t window_bytes = plan.classes[0].unit_cap * plan.ranks[0].class_unit_bytes[0];
    for (int extra = -1; extra <= 1; extra++) {
        give_memory(1, window_bytes * 7 + (uint64_t)(int64_t)extra);
        make_plan(1, 1);
        ck_assert_uint_eq(plan.max_sequences, extra < 0 ? 6 : 7);
        ck_assert_uint_eq(plan.max_context, 32768);
        ck_assert_int_eq(plan.limiting_rank, 0);
    }
    give_memory(1, window_bytes - 1); /* less than a window: the longest that fits is shorter than it */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.max_sequences, 0);
    ck_assert_uint_eq(plan.max_context, (plan.classes[0].unit_cap - 1) * 64);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grid_plan_capacity");
    TCase *tcase = tcase_create("grid_plan_capacity");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_grid_plan_b49_b31_the_smallest_rank_decides_and_is_named);
    tcase_add_test(tcase, test_grid_plan_b50_device_memory_less_weights_and_reserve);
    tcase_add_test(tcase, test_grid_plan_sequences_and_context_at_their_borders);
    tcase_add_test(tcase, test_grid_plan_t_past_the_context_admits_no_such_sequence);
    tcase_add_test(tcase, test_grid_plan_b59_a_cap_on_slots_is_seen_in_the_result);
    tcase_add_test(tcase, test_grid_plan_b56_slots_take_their_bytes_before_rows);
    tcase_add_test(tcase, test_grid_plan_windows_stop_at_their_caps_and_leave_the_rest_to_others);
    tcase_add_test(tcase, test_grid_plan_slabs_are_rounded_up_plane_by_plane);
    tcase_add_test(tcase, test_grid_plan_pools_are_those_of_the_slow_rule);
    tcase_add_test(tcase, test_grid_plan_windowed_models_count_whole_windows);
    tcase_add_test(tcase, test_grid_plan_more_units_than_a_table_counts_are_not_promised);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

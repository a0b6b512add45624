/* Grid plans: which stage has which layer, what a stage weighs, and fences given or found. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/plan_scene.h"

/* ---- stages */

START_TEST(test_grid_plan_b17_b18_every_layer_has_one_stage)
{
    fill_layers(64, kv_layer(8, 8, 64, 64));
    for (uint32_t layers = 1; layers <= 64; layers++) {
        make_model(layers, 0, 4096);
        for (uint32_t pp = 1; pp <= layers; pp += 1 + pp / 6) {
            make_plan(1, pp);
            check_ranks_cover_the_model("made");
        }
    }
    make_model(30, 0, 4096);
    make_plan(1, 4);
    for (uint32_t r = 0; r < 4; r++) {
        ck_assert_uint_le(plan.ranks[r].hi - plan.ranks[r].lo, 8);
        ck_assert_uint_ge(plan.ranks[r].hi - plan.ranks[r].lo, 6);
    }
    make_model(3, 0, 4096);
    ck_assert_int_eq(try_plan(1, 4), KVG_EINVAL);
}
END_TEST

START_TEST(test_grid_plan_b19_a_given_fence_is_kept_or_refused)
{
    const uint32_t good[] = { 0, 21, 44 }, short_end[] = { 0, 21, 43 }, flat[] = { 0, 0, 44 }, late[] = { 1, 21, 44 };

    make_model(44, 0, 4096);
    fill_layers(44, kv_layer(8, 8, 64, 64));
    options.fence = good;
    make_plan(2, 2);
    ck_assert_uint_eq(plan.ranks[2].lo, 21);
    ck_assert_uint_eq(plan.ranks[3].lo, 21);
    ck_assert_uint_eq(plan.ranks[3].hi, 44);
    const uint32_t *bad[] = { short_end, flat, late };
    for (size_t i = 0; i < 3; i++) {
        options.fence = bad[i];
        ck_assert_int_eq(try_plan(2, 2), KVG_EINVAL);
    }
}
END_TEST

START_TEST(test_grid_plan_b21_a_stage_without_attention_has_slots_and_the_same_units)
{
    const uint32_t fence[] = { 0, 2, 4 };
    const uint64_t state[] = { 1 << 24, 1 << 24 };

    make_model(4, 0, 8192);
    fill_layers(3, recurrent_layer(4));
    made_layers[3] = latent_layer(576);
    options.fence = fence;
    options.state_bytes = state;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.ranks[0].bytes_per_token, 0);
    ck_assert_uint_gt(plan.ranks[0].slot_bytes, 0);
    ck_assert_uint_eq(plan.ranks[0].slot_bytes, 2 * plan.ranks[1].slot_bytes);
    ck_assert_uint_eq(plan.ranks[1].bytes_per_token, 576 * 4);
    ck_assert_uint_eq(plan.class_count, 1);
    ck_assert_uint_gt(plan.classes[0].units, 0);
}
END_TEST

START_TEST(test_grid_plan_b22_slots_are_sized_by_each_stage)
{
    uint64_t whole;

    load("qwen3-next-80b-a3b");
    make_plan(1, 1);
    whole = plan.ranks[0].slot_bytes;
    ck_assert_uint_eq(whole, 2 * 79036416);
    make_plan(1, 4);
    for (uint32_t r = 0; r < 4; r++) {
        ck_assert_uint_lt(plan.ranks[r].slot_bytes, whole / 2);
    }
    ck_assert_uint_eq(plan.ranks[0].slot_bytes + plan.ranks[1].slot_bytes + plan.ranks[2].slot_bytes + plan.ranks[3].slot_bytes, whole);
    ck_assert_uint_eq(plan.classes[0].layers, 12); /* B35: 12 of 48 layers hold rows */
}
END_TEST

START_TEST(test_grid_plan_b25_b26_mtp_blocks_live_on_the_last_stage_alone)
{
    uint64_t without;

    make_model(47, 1, 4096);
    fill_layers(48, kv_layer(8, 8, 64, 64));
    make_plan(1, 2);
    ck_assert_uint_eq(plan.ranks[1].hi, 47);
    ck_assert_uint_eq(plan.class_of_layer[47], UINT32_MAX);
    ck_assert_uint_eq(plan.classes[0].layers, 47);
    without = plan.ranks[1].bytes_per_token / (47 - plan.fence[1]);
    options.with_mtp = 1;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.fence[2], 47);
    ck_assert_uint_eq(plan.ranks[0].hi, plan.fence[1]);
    ck_assert_uint_eq(plan.ranks[1].hi, 48);
    ck_assert_uint_eq(plan.classes[0].layers, 48);
    ck_assert_uint_eq(plan.class_of_layer[47], 0);
    ck_assert_uint_eq(plan.ranks[1].bytes_per_token, without * (48 - plan.fence[1]));
    made_layers[47] = kv_layer(9, 9, 64, 64); /* a block that is not placed is not judged */
    ck_assert_int_eq(try_plan(2, 1), KVG_EGEOM);
    options.with_mtp = 0;
    ck_assert_int_eq(try_plan(2, 1), KVG_OK);
}
END_TEST

START_TEST(test_grid_plan_b30_no_cut_parts_a_sharing_layer_from_its_source)
{
    uint32_t fence[] = { 0, 21, 42 };

    load("gemma-4-e4b");
    options.fence = fence;
    for (uint32_t cut = 1; cut < 42; cut++) { /* layers 24..41 read 22 and 23 */
        fence[1] = cut;
        ck_assert_msg(try_plan(1, 2) == (cut <= 22 ? KVG_OK : KVG_EGEOM), "cut %u", cut);
    }
    options.fence = NULL;
    for (uint32_t pp = 2; pp <= 8; pp++) {
        make_plan(1, pp);
        ck_assert_uint_le(plan.fence[pp - 1], 22);
    }
    ck_assert_int_eq(try_plan(1, 24), KVG_EGEOM); /* 22 cuts are left, 23 are needed */
    ck_assert_uint_eq(plan.class_of_layer[30], plan.class_of_layer[22]);
    ck_assert_uint_eq(plan.class_of_layer[41], plan.class_of_layer[23]);
    ck_assert_int_eq(plan.format_k[30], KVG_POLICY);
}
END_TEST

START_TEST(test_grid_plan_b32_embedding_first_head_last_tied_table_on_both)
{
    static const uint32_t fence[] = { 0, 1, 2, 3, 4 };
    const struct { uint8_t tied; uint32_t pp; uint64_t first, last; } cases[] = {
        { 0, 4, 1000, 1500 }, { 1, 4, 1000, 1000 }, { 0, 1, 2500 + 30, 0 }, { 1, 1, 1000 + 30, 0 },
    };

    for (size_t i = 0; i < 4; i++) {
        make_model(4, 0, 4096);
        fill_layers(4, kv_layer(8, 8, 64, 64));
        config.embedding_bytes = 1000;
        config.head_bytes = cases[i].tied ? 1000 : 1500;
        config.head_is_tied = cases[i].tied;
        for (int il = 0; il < 4; il++) {
            made_weights[il] = 10;
        }
        options.fence = cases[i].pp == 4 ? fence : NULL;
        make_plan(1, cases[i].pp);
        ck_assert_uint_eq(plan.ranks[0].weight_bytes, cases[i].first + 10);
        if (cases[i].pp == 4) {
            ck_assert_uint_eq(plan.ranks[1].weight_bytes, 10);
            ck_assert_uint_eq(plan.ranks[2].weight_bytes, 10);
            ck_assert_uint_eq(plan.ranks[3].weight_bytes, cases[i].last + 10);
        }
    }
}
END_TEST

START_TEST(test_grid_plan_weights_are_scaled_given_or_estimated)
{
    const uint64_t layer_bytes[] = { 100, 200, 300, 400 };
    uint64_t       estimate = 0, scaled = 0;

    load("llama-3.1-8b");
    make_plan(1, 1);
    estimate = plan.ranks[0].weight_bytes;
    options.weights_bytes = estimate * 2;
    make_plan(2, 2);
    for (uint32_t r = 0; r < 4; r++) {
        scaled += plan.ranks[r].weight_bytes;
    }
    ck_assert_uint_le(scaled, estimate * 2 + 4);
    ck_assert_uint_ge(scaled, estimate * 2 - 64); /* each layer rounds down, each rank up */
    unload();
    make_model(4, 0, 4096);
    fill_layers(4, kv_layer(8, 8, 64, 64));
    options.weights_bytes = 1001; /* nothing is estimated: spread evenly */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ranks[0].weight_bytes, 1001);
    options.weights_bytes = 0;
    options.layer_bytes = layer_bytes;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ranks[0].weight_bytes, 1000);
}
END_TEST

/* ---- weights that the caller knows, stages of unlike memory, and costs that do not fit 64 bits */

START_TEST(test_grid_plan_known_layers_leave_the_rest_to_the_two_ends)
{
    const uint64_t layer_bytes[] = { 1000, 1000, 1000, 1000 };
    const uint32_t fence[] = { 0, 2, 4 };

    make_plain(4, 65536);
    config.embedding_bytes = 300; /* the config's estimate gives their ratio alone */
    config.head_bytes = 100;
    options.layer_bytes = layer_bytes;
    options.fence = fence;
    options.weights_bytes = 6000;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.ranks[0].weight_bytes, 2000 + 1500);
    ck_assert_uint_eq(plan.ranks[1].weight_bytes, 2000 + 500);
    options.weights_bytes = 4000; /* the layers' alone, and less than that */
    make_plan(1, 2);
    ck_assert_uint_eq(plan.ranks[0].weight_bytes, 2000);
    ck_assert_uint_eq(plan.ranks[1].weight_bytes, 2000);
    options.weights_bytes = 3999;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.ranks[0].weight_bytes, 2000);
    options.weights_bytes = 0; /* nothing is said of the whole: the ends are as estimated */
    make_plan(1, 2);
    ck_assert_uint_eq(plan.ranks[0].weight_bytes, 2300);
    ck_assert_uint_eq(plan.ranks[1].weight_bytes, 2100);
}
END_TEST

START_TEST(test_grid_plan_a_stage_of_twice_the_memory_takes_twice_the_layers)
{
    uint64_t device[] = { 200000000, 100000000, 100000000 };

    make_plain(12, 1024);
    options.device_bytes = device;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.fence[1], 8);
    make_plan(1, 3);
    ck_assert_uint_eq(plan.fence[1], 6);
    ck_assert_uint_eq(plan.fence[2], 9);
    device[0] = 100000000;
    device[1] = 200000000;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.fence[1], 4);
    device[0] = 2000; /* a sequence of T tokens fits neither: a plan all the same, in the ratio of the two */
    device[1] = 1000;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.fence[1], 8);
    ck_assert_uint_eq(plan.max_sequences, 0);
    device[0] = 1; /* the smallest is all that counts in a stage */
    device[1] = UINT64_MAX;
    ck_assert_int_eq(try_plan(1, 2), KVG_EOVERFLOW);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "give the fence"));
}
END_TEST

START_TEST(test_grid_plan_costs_past_64_bits_are_refused)
{
    const uint32_t whole[] = { 0, 2 };
    uint64_t       heavy[] = { UINT64_MAX, 0 };

    make_plain(1, 1024);
    options.layer_bytes = heavy;
    ck_assert_int_eq(try_plan(1, 1), KVG_EOVERFLOW); /* its rows come on top */
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "layer 0 costs"));
    options.layer_bytes = NULL;
    config.head_bytes = UINT64_MAX - 10;
    ck_assert_int_eq(try_plan(1, 1), KVG_EOVERFLOW);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "layers' costs"));
    config.plan.n_mtp = 1;
    made_layers[1] = made_layers[0];
    options.with_mtp = 1;
    ck_assert_int_eq(try_plan(1, 1), KVG_EOVERFLOW);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "MTP blocks"));
    options.with_mtp = 0;
    make_model(2, 0, 1024);
    fill_layers(2, (StatePlan){ .kind = KVG_STATE_RECURRENT,
                                .u.recurrent = { .parts = { { 1u << 30, 1u << 30, 1 } }, .part_count = 1, .conv_kernel = 4,
                                                 .state_width = 1ull << 60 } });
    options.fence = whole; /* one column pair of one layer takes 2^63 bytes */
    ck_assert_int_eq(try_plan(1, 1), KVG_EOVERFLOW);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "a rank's bytes"));
    fill_layers(2, kv_layer(1u << 28, 1u << 28, 1u << 28, 1u << 28));
    ask_bf16();
    ck_assert_int_eq(try_plan(1, 1), KVG_EOVERFLOW);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "a unit of one layer"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grid_plan_fence");
    TCase *tcase = tcase_create("grid_plan_fence");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_grid_plan_b17_b18_every_layer_has_one_stage);
    tcase_add_test(tcase, test_grid_plan_b19_a_given_fence_is_kept_or_refused);
    tcase_add_test(tcase, test_grid_plan_b21_a_stage_without_attention_has_slots_and_the_same_units);
    tcase_add_test(tcase, test_grid_plan_b22_slots_are_sized_by_each_stage);
    tcase_add_test(tcase, test_grid_plan_b25_b26_mtp_blocks_live_on_the_last_stage_alone);
    tcase_add_test(tcase, test_grid_plan_b30_no_cut_parts_a_sharing_layer_from_its_source);
    tcase_add_test(tcase, test_grid_plan_b32_embedding_first_head_last_tied_table_on_both);
    tcase_add_test(tcase, test_grid_plan_weights_are_scaled_given_or_estimated);
    tcase_add_test(tcase, test_grid_plan_known_layers_leave_the_rest_to_the_two_ends);
    tcase_add_test(tcase, test_grid_plan_a_stage_of_twice_the_memory_takes_twice_the_layers);
    tcase_add_test(tcase, test_grid_plan_costs_past_64_bits_are_refused);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

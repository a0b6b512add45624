/* Grid plans: classes of rows, their caps, and indexers. */
#include <check.h>
#include <stdlib.h>

#include "tests/support/plan_scene.h"

START_TEST(test_grid_plan_classes_are_full_first_then_one_a_window)
{
    make_model(5, 0, 32768);
    made_layers[0] = window_layer(8, 64, 512);
    made_layers[1] = window_layer(8, 64, 128);
    made_layers[2] = kv_layer(8, 8, 64, 64);
    made_layers[3] = window_layer(8, 64, 512);
    made_layers[4] = latent_layer(576);
    options.sizing.policy.swa_ring = 1;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.class_count, 3);
    ck_assert_int_eq(plan.classes[0].kind, KVG_STATE_KV);
    ck_assert_uint_eq(plan.classes[0].layers, 2);
    ck_assert_uint_eq(plan.classes[1].window, 512);
    ck_assert_uint_eq(plan.classes[1].layers, 2);
    ck_assert_uint_eq(plan.classes[2].window, 128);
    ck_assert_uint_eq(plan.class_of_layer[4], 0);
    ck_assert_uint_eq(plan.class_of_layer[3], 1);
}
END_TEST

START_TEST(test_grid_plan_windowed_caps_follow_ring_layout_and_chunk)
{
    make_model(2, 0, 262144);
    made_layers[0] = kv_layer(8, 8, 64, 64);
    made_layers[1] = window_layer(8, 64, 512);
    make_plan(1, 1);
    ck_assert_int_eq(plan.classes[1].ring, 0);
    ck_assert_uint_eq(plan.classes[1].unit_cap, 4096);
    options.sizing.policy.swa_ring = 1;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[1].row_cap, 5151);
    ck_assert_uint_eq(plan.classes[1].unit_cap, 82); /* ceil(5151/64) + 1 */
    ck_assert_uint_eq(plan.classes[0].unit_cap, 4096);
    options.layout = KVG_LAYOUT_FLAT;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[1].unit_cap, 81);
    options.layout = KVG_LAYOUT_POOL;
    options.prefill_chunk_max = 256;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[1].row_cap, 512 + 256 + 512 + 31);
    options.prefill_chunk_max = 4097; /* more than a ring is made for */
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    options.prefill_chunk_max = 256;
    config.context = 640; /* a context below the ring: never more than its own units */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[1].row_cap, 640);
    ck_assert_uint_eq(plan.classes[1].unit_cap, 10);
    ck_assert_uint_eq(kvg_class_plan_units(&plan.classes[1], 0), 0);
    ck_assert_uint_eq(kvg_class_plan_units(&plan.classes[1], 1), 1);
    ck_assert_uint_eq(kvg_class_plan_units(&plan.classes[1], 64), 1);
    ck_assert_uint_eq(kvg_class_plan_units(&plan.classes[1], 65), 2);
    ck_assert_uint_eq(kvg_class_plan_units(&plan.classes[1], 100000), 10);
}
END_TEST

START_TEST(test_grid_plan_more_windows_than_classes_is_not_supported)
{
    make_model(9, 0, 4096);
    for (uint32_t il = 0; il < 9; il++) {
        made_layers[il] = window_layer(8, 64, 64 + il);
    }
    ck_assert_int_eq(try_plan(1, 1), KVG_ENOTSUP);
    make_model(8, 0, 4096);
    ck_assert_int_eq(try_plan(1, 1), KVG_OK);
}
END_TEST

START_TEST(test_grid_plan_pooled_indexer_books_keys_in_units_and_its_ring_in_a_slot)
{
    load("glm-5.3-flash");
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ranks[0].bytes_per_token, 23936);
    ck_assert_uint_eq(plan.ranks[0].class_unit_bytes[0], 23936 * 64);
    ck_assert_uint_eq(plan.ranks[0].slot_bytes, 2ull * 152633344 + 57671680);
    ck_assert_uint_eq(plan.ranks[0].fixed_bytes, plan.ranks[0].slot_bytes + 11 * 12);
    options.sizing.policy.dsa_index_ring = 0; /* flat: index rows are rows like any other */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ranks[0].class_unit_bytes[0], plan.ranks[0].bytes_per_token * 64);
    ck_assert_uint_gt(plan.ranks[0].bytes_per_token, 23936);
    ck_assert_uint_eq(plan.ranks[0].slot_bytes, 2ull * 152633344);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grid_plan_classes");
    TCase *tcase = tcase_create("grid_plan_classes");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_grid_plan_classes_are_full_first_then_one_a_window);
    tcase_add_test(tcase, test_grid_plan_windowed_caps_follow_ring_layout_and_chunk);
    tcase_add_test(tcase, test_grid_plan_more_windows_than_classes_is_not_supported);
    tcase_add_test(tcase, test_grid_plan_pooled_indexer_books_keys_in_units_and_its_ring_in_a_slot);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

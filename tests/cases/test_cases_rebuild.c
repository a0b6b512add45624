/* (g) Rows that move between ranks: what a rebuild sends to a newcomer, whole or not at all. */
#include "tests/support/rebuild_scene.h"

/* Four KV heads: on eight ranks each has a copy. Every second layer is windowed. */
static const Model heads4 = {"four KV heads",
    "{\"model_type\":\"llama\",\"hidden_size\":256,\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":32,\"num_hidden_layers\":4,"
    "\"sliding_window\":40,\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"],"
    "\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":2048}", 8};

/* H=4, tp 8: ranks 2 and 3 hold head 1. One of them is enough, and only them: without both a part is a failure, not a copy. */
START_TEST(test_b117_a_replicated_head_comes_from_a_rank_that_has_it_or_is_lost)
{
    Scene scene = {0};
    open_scene(&scene, &heads4, 8, 1, KVG_LAYOUT_POOL);
    kill_rank(&scene, 2);
    ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error());
    check_goes_on(&scene, 1);
    close_scene(&scene);
    open_scene(&scene, &heads4, 8, 1, KVG_LAYOUT_POOL);
    kill_rank(&scene, 2);
    kill_rank(&scene, 3);
    ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error());
    ck_assert_uint_eq(scene.report[0]->kept, 1); /* the one that has no row */
    ck_assert_uint_eq(scene.report[0]->count, SEQUENCES);
    for (uint32_t q = 0; q < 2; q++) {
        const KvgRebuiltSequence *one = &scene.report[0]->sequences[q];
        ck_assert_int_eq(one->loss, KVG_LOSS_SHARD);
        ck_assert_uint_eq(one->lost_head, 1);
        ck_assert_int_eq(one->lost_rank, 2);
        ck_assert_uint_eq(one->rows_held, 0); /* though three of four heads are there */
    }
    close_scene(&scene);
}
END_TEST

/* Two stages, tp 4, two heads: layers are told apart by number and kind, whatever stands before them on the rank. Every rank counts, those too that have no layer
 * of the newcomer's: the digest is over all of them. */
START_TEST(test_b131_layers_of_a_later_stage_are_matched_by_their_number)
{
    for (int victim = 0; victim < 8; victim += 5) {
        Scene scene = {0};
        open_scene(&scene, &some_models[0], 4, 2, KVG_LAYOUT_POOL);
        kill_rank(&scene, victim);
        ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error());
        check_goes_on(&scene, 1);
        close_scene(&scene);
    }
}
END_TEST

/* The newcomer is lost while rows are on their way to it: the survivors hold every byte that they held, and the next one gets them all. */
START_TEST(test_b119_a_rebuild_that_fails_part_way_changes_no_row)
{
    int failed = 0;
    for (int moment = 4; moment < 9; moment++) {
        Scene     scene = {0};
        KvgStatus each[TEST_RANKS_MAX];
        open_scene(&scene, &some_models[0], 4, 2, KVG_LAYOUT_POOL);
        kill_rank(&scene, 5);
        scene.second = 5;
        scene.moment = moment;
        rebuild_joined(&scene, NULL, each);
        scene.moment = 0;
        failed += each[0] != KVG_OK;
        if (index_of(&scene, 5) >= 0) bury(&scene, 5);
        for (int i = 0; i < scene.g.ranks; i++) ck_assert_uint_eq(life_info(scene.s[i][0]).rows, scene.rows[0]);
        ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error());
        check_goes_on(&scene, 1);
        close_scene(&scene);
    }
    ck_assert_int_gt(failed, 1);
}
END_TEST

LIFE_MAIN("cases_rebuild", test_b117_a_replicated_head_comes_from_a_rank_that_has_it_or_is_lost, test_b119_a_rebuild_that_fails_part_way_changes_no_row,
          test_b131_layers_of_a_later_stage_are_matched_by_their_number)

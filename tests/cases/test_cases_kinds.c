/* Cases of recurrent and latent state (cases.md, section (d) and B118), with their neighbours. */
#include "tests/support/kinds_run.h"

/* B64: two of three drafts and the bonus token are taken, and the next step has no drafts: it starts from the third row's state. */
START_TEST(test_b64_a_step_without_drafts_starts_from_the_accepted_state)
{
    for (int model = 0; model < MODELS; model++) {
        for (uint32_t columns = 2; columns <= 5; columns += 3) {
            for (uint32_t kept = 1; kept <= 4; kept++) {
                Run  run;
                char want[33], got[33];
                straight_digest(models[model], 21 + kept, 0, want);
                open_run(&run, models[model], 2, 1, KVG_LAYOUT_POOL, columns, 16, 0);
                ck_assert_int_eq(run_step(&run, (uint32_t[]){ 20 }, 1, 20, -1), KVG_OK);
                ck_assert_int_eq(run_step(&run, (uint32_t[]){ 4 }, 1, kept, -1), KVG_OK);
                ck_assert_int_eq(run_step(&run, (uint32_t[]){ 1 }, 1, 1, -1), KVG_OK);
                run_digest(&run, got);
                ck_assert_msg(strcmp(got, want) == 0, "model %d columns %u kept %u", model, columns, kept);
                grid_close(&run.g);
            }
        }
    }
}
END_TEST

static KvgStatus rewind_all(Run *run, uint64_t rows)
{
    KvgStatus first = KVG_OK;
    for (int r = 0; r < run->g.ranks; r++) {
        KvgStatus status = kvg_sequence_rewind(run->s[r][0], rows);
        if (r == 0) first = status;
        ck_assert_int_eq(status, first);
    }
    if (first == KVG_OK) run->rows = rows;
    return first;
}

/* B69: a rewind to a length whose recurrent state is not held is an error on every rank, with or without recurrent layers there, never a silent no-op. */
START_TEST(test_b69_a_rewind_without_the_state_is_refused_on_every_rank)
{
    Run  run;
    char before[33], after[33];
    open_run(&run, qwen3_next, 2, 2, KVG_LAYOUT_POOL, 4, -1, 0);
    ck_assert_int_eq(run_step(&run, (uint32_t[]){ 20 }, 1, 20, -1), KVG_OK);
    run_digest(&run, before);
    ck_assert_int_eq(rewind_all(&run, 19), KVG_ELAPPED); /* 20 rows in one pass: only their end is held */
    ck_assert_int_eq(rewind_all(&run, 1), KVG_ELAPPED);
    ck_assert_int_eq(rewind_all(&run, 21), KVG_EINVAL);
    run_digest(&run, after);
    ck_assert_str_eq(before, after);
    ck_assert_int_eq(run_step(&run, (uint32_t[]){ 3 }, 1, 3, -1), KVG_OK); /* a column a row: the last three lengths are held */
    ck_assert_int_eq(rewind_all(&run, 21), KVG_OK);
    straight_digest(qwen3_next, 21, 0, before);
    run_digest(&run, after);
    ck_assert_str_eq(before, after);
    ck_assert_int_eq(rewind_all(&run, 0), KVG_OK);
    ck_assert_int_eq(run_step(&run, (uint32_t[]){ 21 }, 1, 21, -1), KVG_OK);
    run_digest(&run, after);
    ck_assert_str_eq(before, after);
    grid_close(&run.g);
}
END_TEST

/* B74: a speculative round that crosses a border of chunks (and of pools) by every amount, from one short of it, at it and past it. */
START_TEST(test_b74_no_state_goes_backwards_at_a_border)
{
    for (int model = 0; model < MODELS; model++) {
        for (uint32_t length = 63; length <= 65; length++) {
            for (uint32_t kept = 0; kept <= 3; kept++) {
                Run  run;
                char want[33], got[33];
                straight_digest(models[model], length + kept, 0, want);
                open_run(&run, models[model], 1, 2, kept % 2 ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL, 2 + 2 * (length % 2), 16, 0);
                ck_assert_int_eq(run_step(&run, (uint32_t[]){ length }, 1, length, -1), KVG_OK);
                ck_assert_int_eq(run_step(&run, (uint32_t[]){ 3 }, 1, kept, -1), KVG_OK);
                run_digest(&run, got);
                ck_assert_msg(strcmp(got, want) == 0, "model %d length %u kept %u", model, length, kept);
                grid_close(&run.g);
            }
        }
    }
}
END_TEST

/* B76: rows alone do not bring recurrent state back: nothing of the sequence is usable, and it says so. */
START_TEST(test_b76_rows_without_state_restore_nothing)
{
    Run run;
    open_run(&run, qwen3_next, 2, 2, KVG_LAYOUT_POOL, 2, -1, 0);
    for (int r = 0; r < run.g.ranks; r++) {
        KvgSequenceInfo info = { .size = sizeof info };
        ck_assert_int_eq(kvg_sequence_book(run.s[r][0], 100), KVG_OK);
        ck_assert_int_eq(kvg_sequence_restore(run.s[r][0], 100, 0), KVG_ELAPPED);
        ck_assert_int_eq(kvg_sequence_info(run.s[r][0], &info), KVG_OK);
        ck_assert_uint_eq(info.rows, 0);
    }
    ck_assert_int_eq(run_step(&run, (uint32_t[]){ 5 }, 1, 5, -1), KVG_OK);
    grid_close(&run.g);
}
END_TEST

/* B80: index keys and tails are taken back together with the rows they come from, also in a fork of a shared prefix. */
START_TEST(test_b80_index_data_falls_with_the_rows_of_a_forked_prefix)
{
    for (uint32_t prefix = 61; prefix <= 68; prefix++) { /* around a chunk's border, at every place in a pool of 4 */
        char want[33], got[33];
        Run  run;
        open_run(&run, glm_next, 2, 2, KVG_LAYOUT_POOL, 6, 16, 0);
        ck_assert_int_eq(run_step(&run, (uint32_t[]){ prefix }, 1, prefix, -1), KVG_OK);
        for (int r = 0; r < run.g.ranks; r++) {
            ck_assert_msg(kvg_sequence_fork(run.s[r][0], prefix, 55, &run.s[r][1]) == KVG_OK, "%s", kvg_last_error());
            ck_assert_int_eq(kvg_batch_set(run.g.batch[r], 0, run.s[r][1]), KVG_OK);
            KvgSequence *parent = run.s[r][0];
            run.s[r][0] = run.s[r][1];
            run.s[r][1] = parent;
        }
        ck_assert_int_eq(run_step(&run, (uint32_t[]){ 5 }, 1, 0, -1), KVG_OK); /* drafts of the fork, all rejected */
        grid_digest(&run.g, run.s, 0, got);
        straight_digest(glm_next, prefix, 0, want);
        ck_assert_msg(strcmp(got, want) == 0, "fork at %u", prefix); /* rows are the parent's: a digest does not know ids */
        grid_digest(&run.g, run.s, 1, got);
        ck_assert_str_eq(got, want);
        grid_close(&run.g);
    }
}
END_TEST

/* B118: conv channels of [q, k, v] are cut part by part: K = 2048, K = 2048, V = 2048 over 4 ranks. */
START_TEST(test_b118_conv_channels_are_cut_by_their_parts)
{
    static const char text[] =
        "{\"model_type\":\"qwen3_next\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"head_dim\":32,\"num_hidden_layers\":4,"
        "\"full_attention_interval\":4,\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":128,\"linear_num_key_heads\":16,\"linear_num_value_heads\":16,"
        "\"linear_value_head_dim\":128,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":4096}";
    Run run;
    open_run(&run, text, 4, 1, KVG_LAYOUT_POOL, 2, -1, 0);
    for (int r = 0; r < 4; r++) {
        const KvRecurrentView *view = kvg_recurrent_view(run.g.batch[r], 0);
        uint32_t               conv = 0;
        ck_assert_ptr_nonnull(view);
        ck_assert_uint_eq(view->conv_channels, 3 * 512);
        for (uint32_t p = 0; p < view->part_count; p++) {
            const KvRecurrentPartView *part = &view->parts[p];
            if (part->is_state) continue;
            ck_assert_uint_eq(part->heads * part->width, 512); /* of this rank: [512 r, 512 r + 512) of each part */
            ck_assert_uint_eq(part->head_first * part->width, 512u * (uint32_t)r);
            ck_assert_uint_eq(part->head_index, 16 * conv + part->head_first); /* channel 2048 * part + 512 r of the whole */
            conv++;
        }
        ck_assert_uint_eq(conv, 3);
    }
    grid_close(&run.g);
}
END_TEST

/* Latent planes taken apart and put into a fresh sequence on every rank go on with the same digest; before that nothing counts. */
START_TEST(test_latent_planes_restored_on_every_rank_go_on_with_the_same_digest)
{
    enum { ROWS = 70 };
    char want[33], got[33];
    Run  run;
    open_run(&run, deepseek, 2, 2, KVG_LAYOUT_POOL, 2, -1, 0);
    ck_assert_int_eq(run_step(&run, (uint32_t[]){ ROWS }, 1, ROWS, -1), KVG_OK);
    run_digest(&run, want);
    for (int r = 0; r < run.g.ranks; r++) {
        uint32_t lo, hi;
        ck_assert_int_eq(kvg_sequence_open(run.g.placement[r], 200, ROWS, &run.s[r][1]), KVG_OK);
        kvg_placement_layers(run.g.placement[r], &lo, &hi);
        for (uint32_t il = lo; il < hi; il++) {
            LatentPlaneSnapshot *plane = NULL;
            ck_assert_msg(kvg_latent_snapshot_plane(kvg_sequence_cache(run.s[r][0]), il, NULL, &plane) == KVG_OK, "%s", kvg_last_error());
            ck_assert_int_eq(kvg_latent_restore_plane(plane, kvg_sequence_cache(run.s[r][0]), il, NULL), KVG_EBUSY);
            ck_assert_msg(kvg_latent_restore_plane(plane, kvg_sequence_cache(run.s[r][1]), il, NULL) == KVG_OK, "%s", kvg_last_error());
            kvg_latent_snapshot_free(plane);
        }
    }
    for (int r = 0; r < run.g.ranks; r++) {
        ck_assert_int_eq(kvg_sequence_restore(run.s[r][0], ROWS, 0), KVG_EBUSY);
        ck_assert_int_eq(kvg_sequence_restore(run.s[r][1], 1000, 0), KVG_ECAPACITY);
        ck_assert_msg(kvg_sequence_restore(run.s[r][1], ROWS, 0) == KVG_OK, "%s", kvg_last_error());
    }
    grid_digest(&run.g, run.s, 1, got);
    ck_assert_str_eq(got, want);
    for (int r = 0; r < run.g.ranks; r++) { /* both go on: the restored one has another id, so other rows, and it steps */
        ck_assert_int_eq(kvg_batch_set(run.g.batch[r], 0, run.s[r][1]), KVG_OK);
        KvgSequence *other = run.s[r][0];
        run.s[r][0] = run.s[r][1];
        run.s[r][1] = other;
    }
    ck_assert_int_eq(run_step(&run, (uint32_t[]){ 3 }, 1, 2, -1), KVG_OK);
    ck_assert_uint_eq(run.rows, ROWS + 2);
    grid_close(&run.g);
}
END_TEST

/* K/V rows filled into a fresh sequence on every rank, then made to count by one posted call. */
START_TEST(test_filled_rows_restored_on_every_rank_have_the_digest_of_stepped_ones)
{
    static const uint32_t model[3] = { 2, 4, 0 };
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    TestGrid        g;
    KvgSequence    *s[TEST_RANKS_MAX][8];
    char            want[33], got[33];
    enum { ROWS = 66 };
    options.max_sequences = 2;
    options.memory_bytes = 8u << 20;
    grid_open(&g, 2, 2, model, &options, NULL, 1);
    for (int r = 0; r < g.ranks; r++) ck_assert_int_eq(kvg_sequence_open(g.placement[r], 1, 0, &s[r][0]), KVG_OK);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){ ROWS }, 1, NULL, -1), KVG_OK);
    grid_digest(&g, s, 0, want);
    for (int r = 0; r < g.ranks; r++) {
        uint32_t lo, hi;
        ck_assert_int_eq(kvg_sequence_open(g.placement[r], 2, ROWS, &s[r][1]), KVG_OK);
        kvg_placement_layers(g.placement[r], &lo, &hi);
        for (uint32_t il = lo; il < hi; il++) {
            const KvPlaneView *view = kvg_placement_view(g.placement[r], il);
            KvgRows            in = KVG_ROWS_INIT;
            size_t             at = 0;
            for (uint64_t row = 0; row < ROWS; row++) {
                for (uint32_t h = 0; h < view->heads; h++) {
                    for (uint32_t e = 0; e < 32; e++, at++) {
                        k_rows[at] = test_value(1, il, 0, view->head_first + h, row, e);
                        v_rows[at] = test_value(1, il, 1, view->head_first + h, row, e);
                    }
                }
            }
            in.k = k_rows;
            in.v = v_rows;
            ck_assert_int_eq(kvg_sequence_fill_kv(s[r][0], il, 0, 1, &in, NULL), KVG_EBUSY);
            ck_assert_int_eq(kvg_sequence_fill_kv(s[r][1], il, 100, 100, &in, NULL), KVG_ECAPACITY);
            ck_assert_msg(kvg_sequence_fill_kv(s[r][1], il, 0, ROWS, &in, NULL) == KVG_OK, "%s", kvg_last_error());
        }
        ck_assert_int_eq(kvg_sequence_restore(s[r][1], ROWS, 0), KVG_OK);
    }
    grid_digest(&g, s, 1, got);
    ck_assert_str_eq(got, want);
    grid_close(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cases_kinds");
    TCase *tc = tcase_create("cases_kinds");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, test_b64_a_step_without_drafts_starts_from_the_accepted_state);
    tcase_add_test(tc, test_b69_a_rewind_without_the_state_is_refused_on_every_rank);
    tcase_add_test(tc, test_b74_no_state_goes_backwards_at_a_border);
    tcase_add_test(tc, test_b76_rows_without_state_restore_nothing);
    tcase_add_test(tc, test_b80_index_data_falls_with_the_rows_of_a_forked_prefix);
    tcase_add_test(tc, test_b118_conv_channels_are_cut_by_their_parts);
    tcase_add_test(tc, test_latent_planes_restored_on_every_rank_go_on_with_the_same_digest);
    tcase_add_test(tc, test_filled_rows_restored_on_every_rank_have_the_digest_of_stepped_ones);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);
    srunner_free(runner);
    return failed != 0;
}

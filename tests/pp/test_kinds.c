/* Hybrid and latent models over in-process grids: whatever the grid, the passes and the speculation, the digest is that of a run that never
 * speculated; what is owed is replayed; nothing is half done. */
#include "tests/support/kinds_run.h"

START_TEST(test_every_accept_gives_the_digest_of_a_run_that_never_speculated)
{
    const char *text = models[_i];
    char        want[16][33], got[33];
    for (uint32_t rows = 0; rows < 16; rows++) straight_digest(text, 61 + rows, 0, want[rows]);
    for (int grid = 0; grid < GRIDS; grid++) {
        for (uint32_t columns = 2; columns <= 6; columns += 4) {
            KvLayout layout = grid % 2 ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL;
            int64_t  ring = grid == 2 ? 0 : grid == 3 ? 16 : -1;
            for (uint32_t accept = 0; accept <= 5; accept++) {
                Run run;
                open_run(&run, text, grids[grid].tp, grids[grid].pp, layout, columns, ring, 0);
                ck_assert_int_eq(run_step(&run, (uint32_t[]){ 30, 31 }, 2, 61, -1), KVG_OK);
                ck_assert_int_eq(run_step(&run, (uint32_t[]){ 5 }, 1, accept, -1), KVG_OK);
                if (columns == 6) ck_assert_uint_eq(run.replay, 0); /* every prefix has its column */
                run_digest(&run, got);
                ck_assert_msg(strcmp(got, want[accept]) == 0, "model %d grid %d columns %u accept %u", _i, grid, columns, accept);
                for (int round = 0; round < 2; round++) { /* rounds in a row, with whatever is owed in front */
                    ck_assert_int_eq(run_step(&run, (uint32_t[]){ 5 }, 1, 2, -1), KVG_OK);
                }
                run_digest(&run, got);
                ck_assert_str_eq(got, want[accept + 4]);
                grid_close(&run.g);
            }
        }
    }
}
END_TEST

START_TEST(test_a_refused_step_leaves_every_kind_as_it_was)
{
    char want[33], got[33];
    straight_digest(models[_i], 70, 0, want);
    for (uint32_t columns = 2; columns <= 6; columns += 4) {
        Run run;
        open_run(&run, models[_i], 2, 2, KVG_LAYOUT_POOL, columns, 16, 0);
        ck_assert_int_eq(run_step(&run, (uint32_t[]){ 67 }, 1, 67, -1), KVG_OK);
        for (int refuser = 0; refuser < 4; refuser++) {
            ck_assert_int_eq(run_step(&run, (uint32_t[]){ 40, 3 }, 2, 0, refuser), KVG_EREFUSED);
        }
        ck_assert_int_eq(run_step(&run, (uint32_t[]){ 4 }, 1, 3, -1), KVG_OK);
        ck_assert_int_eq(run_step(&run, (uint32_t[]){ 4 }, 1, 0, 2), KVG_EREFUSED); /* with a replay owed, perhaps */
        run_digest(&run, got);
        ck_assert_str_eq(got, want);
        grid_close(&run.g);
    }
}
END_TEST

START_TEST(test_a_short_step_of_a_sequence_that_owes_is_refused_everywhere)
{
    Run run;
    open_run(&run, qwen3_next, 2, 2, KVG_LAYOUT_POOL, 2, -1, 0);
    ck_assert_int_eq(run_step(&run, (uint32_t[]){ 10 }, 1, 6, -1), KVG_OK);
    ck_assert_uint_eq(run.replay, 6);
    KvgSetup *digests[TEST_RANKS_MAX] = { NULL };
    KvDigest  digest[TEST_RANKS_MAX];
    KvgStatus each[TEST_RANKS_MAX];
    for (int r = 0; r < run.g.ranks; r++) ck_assert_int_eq(kvg_sequence_digest_start(run.s[r][0], &digest[r], &digests[r]), KVG_OK);
    ck_assert_int_eq(grid_finish(&run.g, digests, each), KVG_EBUSY);
    for (int r = 0; r < run.g.ranks; r++) {
        KvgStep     *step;
        KvgCommit    commit = KVG_COMMIT_INIT;
        KvgSnapshot *snapshot = NULL;
        KvgSequence *fork = NULL;
        size_t       count = 0;
        ck_assert_int_eq(each[r], KVG_EBUSY); /* also where no recurrent layer stands */
        ck_assert_int_eq(kvg_sequence_leaves(run.s[r][0], NULL, 0, &count), KVG_OK);
        KvLeaf *leaves = calloc(count, sizeof *leaves);
        ck_assert_int_eq(kvg_sequence_leaves(run.s[r][0], leaves, count, &count), KVG_EBUSY);
        free(leaves);
        ck_assert_int_eq(kvg_sequence_snapshot(run.s[r][0], &snapshot), KVG_EBUSY);
        ck_assert_int_eq(kvg_sequence_fork(run.s[r][0], 6, 7, &fork), KVG_EBUSY);
        ck_assert_int_eq(kvg_step_begin(run.g.batch[r], (uint32_t[]){ 5, 0 }, &step), KVG_OK);
        ck_assert_int_eq(kvg_step_refusal(step, 0), KVG_EINVAL);
        commit.accept_all = 1;
        ck_assert_int_eq(kvg_step_post(step, &commit), KVG_OK);
    }
    grid_close(&run.g);
}
END_TEST

START_TEST(test_snapshot_and_rollback_of_every_kind_on_every_rank)
{
    char want[8][33], got[33];
    for (uint32_t rows = 0; rows < 8; rows++) straight_digest(models[_i], 50 + rows, 0, want[rows]);
    for (int grid = 0; grid < GRIDS; grid++) {
        for (uint32_t accept = 0; accept <= 7; accept++) {
            Run          run;
            KvgSnapshot *snapshot[TEST_RANKS_MAX];
            open_run(&run, models[_i], grids[grid].tp, grids[grid].pp, grid % 2 ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT, 2, 16, 0);
            ck_assert_int_eq(run_step(&run, (uint32_t[]){ 50 }, 1, 50, -1), KVG_OK);
            for (int r = 0; r < run.g.ranks; r++) ck_assert_int_eq(kvg_sequence_snapshot(run.s[r][0], &snapshot[r]), KVG_OK);
            for (int i = 0; i < 7; i++) ck_assert_int_eq(run_step(&run, (uint32_t[]){ 1 }, 1, 1, -1), KVG_OK);
            for (int r = 0; r < run.g.ranks; r++) {
                ck_assert_int_eq(kvg_sequence_can_rollback(run.s[r][0], snapshot[r], 8), 0);
                ck_assert_int_eq(kvg_sequence_can_rollback(run.s[r][0], snapshot[r], accept), 1);
                ck_assert_msg(kvg_sequence_rollback(run.s[r][0], snapshot[r], accept) == KVG_OK, "%s", kvg_last_error());
                kvg_snapshot_free(snapshot[r]);
            }
            KvgSequenceInfo info = { .size = sizeof info };
            ck_assert_int_eq(kvg_sequence_info(run.s[0][0], &info), KVG_OK);
            ck_assert_uint_eq(info.rows, 50 + accept);
            run.rows = info.rows;
            run.replay = info.replay;
            run_digest(&run, got);
            ck_assert_msg(strcmp(got, want[accept]) == 0, "model %d grid %d accept %u", _i, grid, accept);
            grid_close(&run.g);
        }
    }
}
END_TEST

START_TEST(test_fork_of_every_kind_goes_its_own_way)
{
    char want[33], got[33];
    straight_digest(models[_i], 74, 0, want);
    Run run;
    open_run(&run, models[_i], 2, 2, KVG_LAYOUT_POOL, 6, 16, 0);
    ck_assert_int_eq(run_step(&run, (uint32_t[]){ 70 }, 1, 70, -1), KVG_OK);
    for (int r = 0; r < run.g.ranks; r++) {
        ck_assert_msg(kvg_sequence_fork(run.s[r][0], 70, 55, &run.s[r][1]) == KVG_OK, "%s", kvg_last_error());
    }
    ck_assert_int_eq(run_step(&run, (uint32_t[]){ 4 }, 1, 4, -1), KVG_OK);
    run_digest(&run, got);
    ck_assert_str_eq(got, want);
    for (int r = 0; r < run.g.ranks; r++) { /* the fork is still at 70 rows, and continues */
        KvgSequenceInfo info = { .size = sizeof info };
        ck_assert_int_eq(kvg_sequence_info(run.s[r][1], &info), KVG_OK);
        ck_assert_uint_eq(info.rows, 70);
        ck_assert_int_eq(kvg_sequence_close(run.s[r][0], NULL), KVG_OK);
        ck_assert_int_eq(kvg_batch_set(run.g.batch[r], 0, run.s[r][1]), KVG_OK);
        run.s[r][0] = run.s[r][1];
    }
    run.rows = 70;
    ck_assert_int_eq(run_step(&run, (uint32_t[]){ 3 }, 1, 1, -1), KVG_OK);
    ck_assert_uint_eq(run.rows, 71);
    grid_close(&run.g);
}
END_TEST

START_TEST(test_a_snapshot_may_outlive_its_placement)
{
    Run          run;
    KvgSnapshot *snapshot[2] = { NULL, NULL };
    open_run(&run, glm_next, 1, 1, KVG_LAYOUT_POOL, 2, 16, 0);
    ck_assert_int_eq(run_step(&run, (uint32_t[]){ 9 }, 1, 9, -1), KVG_OK);
    for (int i = 0; i < 2; i++) ck_assert_int_eq(kvg_sequence_snapshot(run.s[0][0], &snapshot[i]), KVG_OK);
    kvg_snapshot_free(snapshot[1]); /* out of the middle of the list, and again in front */
    ck_assert_int_eq(kvg_sequence_snapshot(run.s[0][0], &snapshot[1]), KVG_OK);
    for (int i = 0; i < 2; i++) ck_assert_int_eq(kvg_sequence_can_rollback(run.s[0][0], snapshot[i], 0), 1);
    kvg_batch_destroy(run.g.batch[0]);
    kvg_placement_destroy(run.g.placement[0]);
    run.g.batch[0] = NULL;
    run.g.placement[0] = NULL;
    for (int i = 0; i < 2; i++) kvg_snapshot_free(snapshot[i]);
    grid_close(&run.g);
}
END_TEST

START_TEST(test_rows_read_back_and_found_are_those_that_were_written)
{
    float   made[64], expected[64], got[20 * 64];
    uint8_t stored[64 * 4];
    Run     run;
    open_run(&run, jamba, 1, 1, _i == 0 ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT, 2, -1, 0);
    ck_assert_int_eq(run_step(&run, (uint32_t[]){ 40, 41 }, 2, 81, -1), KVG_OK);
    for (uint32_t plane = KVG_PLANE_K; plane <= KVG_PLANE_V; plane++) {
        const KvPlaneView *view = kvg_plane_view(run.g.batch[0], 1);
        const KvPlane     *at = plane == KVG_PLANE_K ? &view->k : &view->v;
        ck_assert_msg(kvg_sequence_read(run.s[0][0], 1, plane, 58, 20, got) == KVG_OK, "%s", kvg_last_error());
        for (uint32_t r = 0; r < 20; r++) {
            for (uint32_t e = 0; e < 64; e++) made[e] = test_value(100, 1, plane, e / 32, 58 + r, e % 32);
            kvg_encode_f32(at->format, made, 64, stored, NULL);
            kvg_decode_f32(at->format, stored, 64, expected);
            ck_assert_mem_eq(got + r * 64, expected, sizeof expected);
            const uint8_t *row = kvg_sequence_row(run.s[0][0], 1, plane, 1, 58 + r);
            ck_assert_msg(row != NULL, "%s", kvg_last_error());
            row = test_device_look(run.g.device.ops != NULL ? &run.g.device : NULL, row, at->head_bytes);
            ck_assert_mem_eq(row, stored + at->head_bytes, at->head_bytes);
        }
    }
    ck_assert_int_eq(kvg_sequence_read(run.s[0][0], 1, KVG_PLANE_K, 80, 2, got), KVG_EINVAL);
    grid_close(&run.g);
}
END_TEST

/* A model that keeps recurrent state alone: its lengths still count, its rows cost nothing. */
static const char mamba[] =
    "{\"model_type\":\"nemotron_h\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,\"num_hidden_layers\":3,"
    "\"hybrid_override_pattern\":\"MEM\",\"conv_kernel\":4,\"mamba_head_dim\":8,\"mamba_num_heads\":4,\"n_groups\":2,\"ssm_state_size\":8,\"expand\":2,"
    "\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":4096}";

START_TEST(test_a_model_of_recurrent_layers_alone_steps_and_replays)
{
    char want[33], got[33];
    straight_digest(mamba, 33, 0, want);
    for (int grid = 0; grid < 4; grid++) {
        Run run;
        open_run(&run, mamba, grids[grid].tp, grids[grid].pp, KVG_LAYOUT_POOL, 2, -1, 0);
        ck_assert_int_eq(run_step(&run, (uint32_t[]){ 30 }, 1, 30, -1), KVG_OK);
        ck_assert_int_eq(run_step(&run, (uint32_t[]){ 5 }, 1, 3, -1), KVG_OK);
        run_digest(&run, got);
        ck_assert_str_eq(got, want);
        for (int r = 0; r < run.g.ranks; r++) { /* the context bounds it, not units */
            KvgStep  *step;
            KvgCommit commit = KVG_COMMIT_INIT;
            commit.accept_all = 1;
            ck_assert_int_eq(kvg_step_begin(run.g.batch[r], (uint32_t[]){ 4096, 0 }, &step), KVG_OK);
            ck_assert_int_eq(kvg_step_refusal(step, 0), KVG_ECAPACITY);
            ck_assert_int_eq(kvg_step_post(step, &commit), KVG_OK);
        }
        grid_close(&run.g);
    }
}
END_TEST

START_TEST(test_mtp_blocks_live_on_the_last_stage_and_commit_with_the_trunk)
{
    char want[33], got[33];
    straight_digest(deepseek, 40, 1, want);
    for (int grid = 0; grid < GRIDS; grid++) {
        Run run;
        open_run(&run, deepseek, grids[grid].tp, grids[grid].pp, KVG_LAYOUT_POOL, 2, -1, 1);
        for (int r = 0; r < run.g.ranks; r++) {
            uint32_t lo, hi;
            kvg_placement_layers(run.g.placement[r], &lo, &hi);
            ck_assert_int_eq(hi == 5, kvg_grid_stage(run.g.grid[r]) + 1 == run.g.pp);
        }
        ck_assert_int_eq(run_step(&run, (uint32_t[]){ 42 }, 1, 38, -1), KVG_OK);
        ck_assert_int_eq(run_step(&run, (uint32_t[]){ 5 }, 1, 2, -1), KVG_OK);
        run_digest(&run, got);
        ck_assert_str_eq(got, want);
        grid_close(&run.g);
    }
}
END_TEST

/* A step that one rank alone has tried goes over columns and index rows that hold earlier rows. After it is settled back all ranks answer alike. */
START_TEST(test_slot_state_stands_alike_after_a_step_that_one_rank_tried)
{
    for (int tried = 0; tried <= 1; tried++) {
        Run       run;
        KvgStep  *step;
        KvgCommit commit = KVG_COMMIT_INIT;
        KvgSetup *setups[TEST_RANKS_MAX] = { NULL };
        KvgStatus each[TEST_RANKS_MAX], first = KVG_OK;
        open_run(&run, models[_i], 2, 2, KVG_LAYOUT_POOL, 3, 16, 0);
        ck_assert_int_eq(run_step(&run, (uint32_t[]){ 30 }, 1, 30, -1), KVG_OK);
        for (int n = 0; n < 3; n++) ck_assert_int_eq(run_step(&run, (uint32_t[]){ 2 }, 1, 2, -1), KVG_OK); /* row 35 is in a column */
        if (tried) {
            Rank rank = { &run.g, 1, run.s[1], 0x77 };
            ck_assert_int_eq(kvg_step_begin(run.g.batch[1], (uint32_t[]){ 2, 0 }, &step), KVG_OK);
            write_layers(&rank, step, 2);
            ck_assert_int_eq(kvg_step_post(step, &commit), KVG_OK);
            ck_assert_int_eq(kvg_step_wait(step, NULL), KVG_EINDOUBT);
        }
        for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_grid_settle_start(run.g.grid[r], (int[]){ 0, 1, 2, 3 }, 4, &setups[r]), KVG_OK);
        ck_assert_int_eq(grid_finish(&run.g, setups, each), KVG_OK);
        for (int r = 0; r < 4; r++) {
            KvgStatus status = kvg_sequence_rewind(run.s[r][0], 35);
            first = r == 0 ? status : first;
            ck_assert_msg(status == first, "rank %d answers %s, rank 0 %s", r, kvg_status_name(status), kvg_status_name(first));
        }
        run.rows = first == KVG_OK ? 35 : 36;
        ck_assert_int_eq(run_step(&run, (uint32_t[]){ 4 }, 1, 3, -1), KVG_OK);
        char want[33], got[33];
        straight_digest(models[_i], run.rows, 0, want);
        run_digest(&run, got);
        ck_assert_str_eq(got, want);
        grid_close(&run.g);
    }
}
END_TEST

int main(void)
{
    if (test_device_missing()) return test_device_missing();
    Suite *suite = suite_create("kinds");
    TCase *tc = tcase_create("kinds");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, test_every_accept_gives_the_digest_of_a_run_that_never_speculated, 0, MODELS);
    tcase_add_loop_test(tc, test_a_refused_step_leaves_every_kind_as_it_was, 0, MODELS);
    tcase_add_test(tc, test_a_short_step_of_a_sequence_that_owes_is_refused_everywhere);
    tcase_add_loop_test(tc, test_snapshot_and_rollback_of_every_kind_on_every_rank, 0, MODELS);
    tcase_add_loop_test(tc, test_fork_of_every_kind_goes_its_own_way, 0, MODELS);
    tcase_add_test(tc, test_a_snapshot_may_outlive_its_placement);
    tcase_add_loop_test(tc, test_rows_read_back_and_found_are_those_that_were_written, 0, 2);
    tcase_add_test(tc, test_a_model_of_recurrent_layers_alone_steps_and_replays);
    tcase_add_test(tc, test_mtp_blocks_live_on_the_last_stage_and_commit_with_the_trunk);
    tcase_add_loop_test(tc, test_slot_state_stands_alike_after_a_step_that_one_rank_tried, 0, MODELS);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);
    srunner_free(runner);
    return failed != 0;
}

/* Two placements, a target and a draft model, on one grid: one vote commits both, or none. */
#include "tests/support/inproc_grid.h"

typedef struct Pair {
    TestGrid      g; /* the target's placement and batches */
    ModelConfig   draft_config;
    KvgPlacement *draft[TEST_RANKS_MAX];
    KvgBatch     *draft_batch[TEST_RANKS_MAX];
    KvgSequence  *s[TEST_RANKS_MAX][8], *d[TEST_RANKS_MAX][8];
} Pair;

static void open_pair(Pair *pair, uint32_t tp, uint32_t pp)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    KvgSetup       *setups[TEST_RANKS_MAX] = {0};
    memset(pair, 0, sizeof *pair);
    options.max_sequences = 4;
    options.memory_bytes = 8u << 20;
    grid_open(&pair->g, tp, pp, (uint32_t[]){4, 4, 0}, &options, NULL, 2);
    pair->draft_config = test_model(4, 4, 64, 2048);
    for (int r = 0; r < pair->g.ranks; r++) {
        ck_assert_int_eq(kvg_place_start(pair->g.grid[r], &pair->draft_config, &options, &pair->draft[r], &setups[r]), KVG_OK);
    }
    ck_assert_msg(grid_finish(&pair->g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < pair->g.ranks; r++) {
        ck_assert_int_eq(kvg_batch_create(pair->draft[r], 2, &pair->draft_batch[r]), KVG_OK);
        ck_assert_int_eq(kvg_sequence_open(pair->g.placement[r], 9, 0, &pair->s[r][0]), KVG_OK);
        ck_assert_int_eq(kvg_sequence_open(pair->draft[r], 9, 0, &pair->d[r][0]), KVG_OK); /* ids are unique in a placement */
        ck_assert_int_eq(kvg_batch_set(pair->g.batch[r], 0, pair->s[r][0]), KVG_OK);
        ck_assert_int_eq(kvg_batch_set(pair->draft_batch[r], 1, pair->d[r][0]), KVG_OK);
    }
}

static void close_pair(Pair *pair)
{
    for (int r = 0; r < pair->g.ranks; r++) {
        kvg_batch_destroy(pair->draft_batch[r]);
        kvg_placement_destroy(pair->draft[r]);
    }
    kvg_model_config_free(&pair->draft_config);
    grid_close(&pair->g);
}

static uint64_t rows_of(const KvgSequence *sequence)
{
    KvgSequenceInfo info = {.size = sizeof info};
    ck_assert_int_eq(kvg_sequence_info(sequence, &info), KVG_OK);
    return info.rows;
}

static void swap_in(Pair *pair, KvgBatch **batches, KvgPlacement **placements)
{
    for (int r = 0; r < pair->g.ranks; r++) {
        KvgBatch     *batch = pair->g.batch[r];
        KvgPlacement *placement = pair->g.placement[r];
        pair->g.batch[r] = batches[r];
        pair->g.placement[r] = placements[r];
        batches[r] = batch;
        placements[r] = placement;
    }
}

/* One joint step: `target` rows and `draft` rows, of which the counts in `accepted` (places of both batches in order) are kept. */
static KvgStatus joint(Pair *pair, uint32_t target, uint32_t draft, const uint32_t accepted[4], int refuser)
{
    KvgStep *steps[TEST_RANKS_MAX];
    for (int r = 0; r < pair->g.ranks; r++) {
        KvgBatch       *batches[2] = {pair->g.batch[r], pair->draft_batch[r]};
        const uint32_t  target_rows[2] = {target, 0}, draft_rows[2] = {0, draft};
        const uint32_t *rows[2] = {target_rows, draft_rows};
        ck_assert_msg(kvg_step_begin_joint(batches, rows, 2, &steps[r]) == KVG_OK, "%s", kvg_last_error());
        ck_assert_uint_eq(kvg_step_rows(steps[r])[0], target);
        ck_assert_uint_eq(kvg_step_rows(steps[r])[3], draft);
        grid_write(&pair->g, r, steps[r], pair->s[r], 2, 0);
    }
    swap_in(pair, pair->draft_batch, pair->draft);
    for (int r = 0; r < pair->g.ranks; r++) { /* the draft's places start at 2: grid_write walks from place 0, so give it rows by hand */
        KvgRows     in = KVG_ROWS_INIT;
        uint32_t    lo, hi;
        static float zeros[8192];
        kvg_placement_layers(pair->g.placement[r], &lo, &hi);
        in.k = in.v = zeros;
        for (uint32_t il = lo; il < hi; il++) ck_assert_msg(kvg_write_kv(pair->g.batch[r], il, &in, NULL) == KVG_OK, "%s", kvg_last_error());
    }
    swap_in(pair, pair->draft_batch, pair->draft);
    for (int r = 0; r < pair->g.ranks; r++) grid_post(&pair->g, r, steps[r], accepted, r == refuser ? KVG_ENOMEM : KVG_OK);
    return grid_decide(&pair->g, steps, NULL);
}

START_TEST(test_one_vote_commits_target_and_draft)
{
    static const uint32_t shapes[][2] = {{1, 1}, {2, 1}, {2, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        Pair pair;
        open_pair(&pair, shapes[i][0], shapes[i][1]);
        ck_assert_int_eq(joint(&pair, 20, 30, NULL, -1), KVG_OK);
        ck_assert_int_eq(joint(&pair, 5, 4, (uint32_t[]){3, 0, 0, 2}, -1), KVG_OK);
        for (int r = 0; r < pair.g.ranks; r++) {
            ck_assert_uint_eq(rows_of(pair.s[r][0]), 23);
            ck_assert_uint_eq(rows_of(pair.d[r][0]), 32);
        }
        ck_assert_int_eq(joint(&pair, 5, 4, NULL, pair.g.ranks - 1), KVG_EREFUSED);
        for (int r = 0; r < pair.g.ranks; r++) {
            ck_assert_uint_eq(rows_of(pair.s[r][0]), 23);
            ck_assert_uint_eq(rows_of(pair.d[r][0]), 32);
        }
        close_pair(&pair);
    }
}
END_TEST

START_TEST(test_steps_of_either_placement_share_one_order)
{
    Pair pair;
    open_pair(&pair, 2, 1);
    for (int n = 0; n < 6; n++) {
        KvgStep *steps[TEST_RANKS_MAX];
        for (int r = 0; r < pair.g.ranks; r++) {
            KvgBatch *batch = n % 2 ? pair.draft_batch[r] : pair.g.batch[r];
            ck_assert_msg(kvg_step_begin(batch, n % 2 ? (uint32_t[]){0, 1} : (uint32_t[]){1, 0}, &steps[r]) == KVG_OK, "%s", kvg_last_error());
            ck_assert_uint_eq(kvg_step_number(steps[r]), (uint64_t)n + 1);
            grid_post(&pair.g, r, steps[r], NULL, KVG_OK);
        }
        ck_assert_int_eq(grid_decide(&pair.g, steps, NULL), KVG_OK);
    }
    ck_assert_uint_eq(rows_of(pair.s[1][0]), 3);
    ck_assert_uint_eq(rows_of(pair.d[1][0]), 3);
    close_pair(&pair);
}
END_TEST

START_TEST(test_a_joint_step_is_refused_by_name_where_it_cannot_be)
{
    Pair            pair;
    KvgStep        *step;
    const uint32_t  rows[2] = {1, 0};
    const uint32_t *all[5] = {rows, rows, rows, rows, rows};
    open_pair(&pair, 1, 1);
    KvgBatch *twice[5] = {pair.g.batch[0], pair.g.batch[0], NULL, NULL, NULL};
    ck_assert_int_eq(kvg_step_begin_joint(twice, all, 2, &step), KVG_EINVAL);
    ck_assert_int_eq(kvg_step_begin_joint(twice, all, 0, &step), KVG_EINVAL);
    ck_assert_int_eq(kvg_step_begin_joint(twice, all, 5, &step), KVG_EINVAL);
    KvgPlaceOptions wide = KVG_PLACE_OPTIONS_INIT;
    KvgPlacement   *third = NULL;
    wide.max_sequences = wide.max_step_sequences = 64; /* records have room for 4 */
    wide.memory_bytes = 8u << 20;
    ck_assert_int_eq(kvg_place(pair.g.grid[0], &pair.g.config, &wide, &third), KVG_EINVAL);
    close_pair(&pair);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("joint");
    TCase *tc = tcase_create("joint");
    tcase_add_test(tc, test_one_vote_commits_target_and_draft);
    tcase_add_test(tc, test_steps_of_either_placement_share_one_order);
    tcase_add_test(tc, test_a_joint_step_is_refused_by_name_where_it_cannot_be);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);
    srunner_free(runner);
    return failed != 0;
}

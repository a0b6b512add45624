/* Section (d), as far as key/value rows go: drafts, rollback, ranks that drift apart. */
#include "tests/cases/cases.h"

#define BASE 62u /* four rows further a chunk ends */

static const char model[] = "{\"model_type\":\"llama\",\"hidden_size\":128,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"head_dim\":32,"
                            "\"num_hidden_layers\":2,\"vocab_size\":100,\"max_position_embeddings\":2048}";

typedef struct Pair {
    TestGrid     target, draft; /* two placements on one grid */
    KvgSequence *t[TEST_RANKS_MAX][8], *d[TEST_RANKS_MAX][8];
} Pair;

static void pair_open(Pair *pair)
{
    KvgPlaceOptions options = case_options(2, 1 << 20);

    case_open(&pair->target, 2, 1, model, &options, NULL, 1);
    pair->draft = pair->target;
    pair->draft.config = case_parse(model);
    ck_assert_msg(grid_place(&pair->draft, &pair->draft.config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_batch_create(pair->draft.placement[r], 1, &pair->draft.batch[r]), KVG_OK);
}

static void pair_close(Pair *pair)
{
    for (int r = 0; r < 2; r++) {
        kvg_batch_destroy(pair->draft.batch[r]);
        kvg_placement_destroy(pair->draft.placement[r]);
    }
    kvg_model_config_free(&pair->draft.config);
    grid_close(&pair->target);
}

/* One round in one vote: the target takes rows[0] rows of which accepted[0] stay, the draft model rows[1] and accepted[1]. */
static void pair_round(Pair *pair, const uint32_t rows[2], const uint32_t accepted[2])
{
    KvgStep *steps[2];

    for (int r = 0; r < 2; r++) {
        KvgBatch       *batches[] = {pair->target.batch[r], pair->draft.batch[r]};
        const uint32_t *counts[] = {&rows[0], &rows[1]};
        CaseRows        pass_t = {pair->t[r][0], rows[0], accepted[0]}, pass_d = {pair->d[r][0], rows[1], accepted[1]};
        ck_assert_int_eq(kvg_batch_set(batches[0], 0, pair->t[r][0]), KVG_OK);
        ck_assert_int_eq(kvg_batch_set(batches[1], 0, pair->d[r][0]), KVG_OK);
        ck_assert_msg(kvg_step_begin_joint(batches, counts, 2, &steps[r]) == KVG_OK, "%s", kvg_last_error());
        case_write(&pair->target, r, &pass_t);
        case_write(&pair->draft, r, &pass_d);
        grid_post(&pair->target, r, steps[r], accepted, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&pair->target, steps, NULL), KVG_OK);
}

static void straight(TestGrid *g, uint64_t rows, char hex[33])
{
    KvgSequence *s[TEST_RANKS_MAX][8];

    case_open_sequence(g, s, 1, 5);
    case_grow(g, s, 1, rows);
    grid_digest(g, s, 1, hex);
    for (int r = 0; r < g->ranks; r++) ck_assert_int_eq(kvg_sequence_close(s[r][1], NULL), KVG_OK);
}

/* B63, B65: k = 4 drafts, a of them accepted, for every a. The target has staged the pending row and k drafts and gives back k - a;
 * the draft model has staged the pending row and k - 1 drafts and gives back k - 1 - a. When all are accepted it is one row short,
 * and catches up in the next round. Afterwards both hold what a run without drafts holds. */
START_TEST(test_a_draft_model_gives_back_one_row_less_than_its_target_and_catches_up)
{
    const uint32_t k = 4;
    Pair           pair;

    pair_open(&pair);
    for (uint32_t a = 0; a <= k; a++) {
        uint32_t keep = a + 1 < k ? a + 1 : k;
        char     got[33], wanted[33];
        case_open_sequence(&pair.target, pair.t, 0, 5);
        case_open_sequence(&pair.draft, pair.d, 0, 5);
        pair_round(&pair, (uint32_t[]){BASE, BASE}, (uint32_t[]){BASE, BASE});
        pair_round(&pair, (uint32_t[]){k + 1, k}, (uint32_t[]){a + 1, keep});
        for (int r = 0; r < 2; r++) {
            ck_assert_uint_eq(case_info(pair.t[r][0]).rows, BASE + a + 1);
            ck_assert_uint_eq(case_info(pair.d[r][0]).rows, BASE + a + (a < k));
        }
        pair_round(&pair, (uint32_t[]){1, a < k ? 1 : 2}, (uint32_t[]){1, a < k ? 1 : 2});
        for (int i = 0; i < 2; i++) {
            TestGrid *g = i ? &pair.draft : &pair.target;
            ck_assert_uint_eq(case_info(i ? pair.d[0][0] : pair.t[0][0]).rows, BASE + a + 2);
            grid_digest(g, i ? pair.d : pair.t, 0, got);
            for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_sequence_close(i ? pair.d[r][0] : pair.t[r][0], NULL), KVG_OK);
            straight(g, BASE + a + 2, wanted);
            ck_assert_str_eq(got, wanted);
        }
    }
    pair_close(&pair);
}
END_TEST

static TestGrid     grid;
static KvgSequence *sequences[TEST_RANKS_MAX][8];

static void open_pair_of_ranks(void)
{
    KvgPlaceOptions options = case_options(2, 1 << 20);

    case_open(&grid, 2, 1, model, &options, NULL, 1);
    case_open_sequence(&grid, sequences, 0, 5);
    case_grow(&grid, sequences, 0, 6);
}

/* A step in which each rank has its own idea of rows, accepted and user digest; the field they part over, "" where they agree. */
static const char *vote(const uint32_t rows[2], const uint32_t accepted[2], const uint64_t user[2])
{
    KvgStep   *steps[2];
    KvgOutcome outcomes[2] = {0};
    KvgStatus  status;

    for (int r = 0; r < 2; r++) {
        KvgCommit commit = KVG_COMMIT_INIT;
        CaseRows  pass = {sequences[r][0], rows[r], rows[r]};
        ck_assert_int_eq(kvg_batch_set(grid.batch[r], 0, sequences[r][0]), KVG_OK);
        ck_assert_int_eq(kvg_step_begin(grid.batch[r], &rows[r], &steps[r]), KVG_OK);
        case_write(&grid, r, &pass);
        commit.accepted = &accepted[r];
        commit.user_digest = user[r];
        ck_assert_int_eq(kvg_step_post(steps[r], &commit), KVG_OK);
    }
    status = grid_decide(&grid, steps, outcomes);
    ck_assert_int_eq(status, outcomes[0].kind == KVG_OUTCOME_PUBLISHED ? KVG_OK : KVG_ELAYOUT);
    ck_assert_int_eq(outcomes[1].kind, outcomes[0].kind);
    ck_assert_str_eq(outcomes[1].field, outcomes[0].field);
    ck_assert_int_eq(outcomes[1].rank_b, outcomes[0].rank_b);
    ck_assert_int_eq(outcomes[0].rank_b, status == KVG_OK ? -1 : 1);
    return outcomes[0].field;
}

/* B67, B68: ranks that propose, accept or sample differently all learn the same: which field, which ranks; and nothing is committed
 * anywhere. */
START_TEST(test_ranks_that_part_over_a_step_all_commit_nothing)
{
    static const struct {
        uint32_t    rows[2], accepted[2];
        uint64_t    user[2];
        const char *field;
    } cases[] = {
        {{3, 2}, {2, 2}, {0, 0}, "targets"}, {{2, 3}, {2, 2}, {7, 7}, "targets"}, {{3, 3}, {3, 2}, {0, 0}, "accepted"},
        {{3, 3}, {0, 1}, {7, 7}, "accepted"}, {{3, 3}, {2, 2}, {7, 8}, "user"}, {{3, 3}, {3, 3}, {1, ~0ull}, "user"},
    };
    char before[33], after[33];

    open_pair_of_ranks();
    grid_digest(&grid, sequences, 0, before);
    for (int i = 0; i < COUNT(cases); i++) {
        ck_assert_str_eq(vote(cases[i].rows, cases[i].accepted, cases[i].user), cases[i].field);
        for (int r = 0; r < 2; r++) ck_assert_uint_eq(case_info(sequences[r][0]).rows, 6);
        grid_digest(&grid, sequences, 0, after);
        ck_assert_str_eq(after, before);
    }
    ck_assert_str_eq(vote((uint32_t[]){3, 3}, (uint32_t[]){2, 2}, (uint64_t[]){7, 7}), "");
    ck_assert_str_eq(vote((uint32_t[]){3, 3}, (uint32_t[]){2, 2}, (uint64_t[]){0, 8}), ""); /* one rank alone says nothing about ids */
    for (int r = 0; r < 2; r++) ck_assert_uint_eq(case_info(sequences[r][0]).rows, 10);
    grid_close(&grid);
}
END_TEST

/* B72, B73, B77, B79: 6 rows committed, 3 drafts staged, 1 accepted. Until the vote nothing but committed rows can be shared or
 * remembered; afterwards 7, never 9. The view's addresses stay, its lengths follow. */
START_TEST(test_only_committed_rows_are_counted_shared_or_remembered)
{
    uint32_t  rows = 3, one = 1;
    KvgStep  *steps[2];
    char      got[33], wanted[33];

    open_pair_of_ranks();
    for (int r = 0; r < 2; r++) {
        CaseRows     pass = {sequences[r][0], rows, one};
        KvgSequence *fork = NULL;
        KvgSnapshot *snapshot = NULL;
        KvgStats     stats = {.size = sizeof stats}, during = {.size = sizeof during};
        uint32_t     slot = case_info(sequences[r][0]).slot;
        ck_assert_int_eq(kvg_stats(grid.placement[r], &stats), KVG_OK);
        ck_assert_int_eq(kvg_batch_set(grid.batch[r], 0, sequences[r][0]), KVG_OK);
        ck_assert_int_eq(kvg_step_begin(grid.batch[r], &rows, &steps[r]), KVG_OK);
        case_write(&grid, r, &pass);
        ck_assert_uint_eq(case_info(sequences[r][0]).rows, 6);
        ck_assert_uint_eq(case_info(sequences[r][0]).rows_staged, 9);
        ck_assert_uint_eq(kvg_plane_view(grid.batch[r], 0)->len[slot], 6);
        ck_assert_uint_eq(kvg_plane_view(grid.batch[r], 0)->len_staged[slot], 9);
        ck_assert_int_eq(kvg_stats(grid.placement[r], &during), KVG_OK);
        ck_assert_uint_eq(during.content_bytes, stats.content_bytes);
        ck_assert_int_eq(kvg_sequence_fork(sequences[r][0], 6, 77, &fork), KVG_EBUSY);
        ck_assert_int_eq(kvg_sequence_snapshot(sequences[r][0], &snapshot), KVG_EBUSY);
        ck_assert_ptr_null(fork);
        ck_assert_ptr_null(snapshot);
        grid_post(&grid, r, steps[r], &one, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&grid, steps, NULL), KVG_OK);
    for (int r = 0; r < 2; r++) {
        uint32_t slot = case_info(sequences[r][0]).slot;
        ck_assert_uint_eq(kvg_plane_view(grid.batch[r], 0)->len[slot], 7);
        ck_assert_uint_eq(kvg_plane_view(grid.batch[r], 0)->len_staged[slot], 7);
        ck_assert_int_eq(kvg_sequence_fork(sequences[r][0], 8, 77, &sequences[r][1]), KVG_EINVAL);
        ck_assert_int_eq(kvg_sequence_fork(sequences[r][0], 7, 5 + 77, &sequences[r][1]), KVG_OK);
    }
    grid_digest(&grid, sequences, 1, got);
    for (int r = 0; r < 2; r++) {
        ck_assert_int_eq(kvg_sequence_close(sequences[r][0], NULL), KVG_OK);
        ck_assert_int_eq(kvg_sequence_close(sequences[r][1], NULL), KVG_OK);
    }
    straight(&grid, 7, wanted);
    ck_assert_str_eq(got, wanted);
    grid_close(&grid);
}
END_TEST

int main(void)
{
    const TTest *tests[] = {
        test_a_draft_model_gives_back_one_row_less_than_its_target_and_catches_up,
        test_ranks_that_part_over_a_step_all_commit_nothing,
        test_only_committed_rows_are_counted_shared_or_remembered,
    };
    return case_main("speculation", tests, COUNT(tests));
}

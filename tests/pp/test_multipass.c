/* Steps of several passes, partial commits, and what ranks may disagree about (S7). */
#include <kvgrid/vote.h>

#include "tests/support/grid_life.h"

static void open_grid(TestGrid *g, LifeSequences s, uint32_t tp, uint32_t pp, uint32_t window, uint64_t context)
{
    KvgPlaceOptions options = life_options(4, 8u << 20);
    KvgPolicy       policy = life_policy(1);
    options.prefill_chunk_max = 128;
    grid_connect(g, tp, pp, &policy, 0);
    g->config = test_model(2, 4, window, context);
    ck_assert_msg(grid_place(g, &g->config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < g->ranks; r++) ck_assert_int_eq(kvg_batch_create(g->placement[r], 3, &g->batch[r]), KVG_OK);
    for (uint32_t i = 0; i < 3; i++) ck_assert_int_eq(life_open(g, s, i, i + 1, 0), KVG_OK);
}

static void extend_and_write(TestGrid *g, LifeSequences s, int r, KvgStep *step, const uint32_t *rows, uint64_t salt)
{
    ck_assert_msg(kvg_step_extend(step, rows) == KVG_OK, "%s", kvg_last_error());
    grid_write(g, r, step, s[r], 3, salt);
}

START_TEST(test_a_long_prompt_in_passes_equals_one_pass_and_many_steps)
{
    char hex[3][33];
    for (int way = 0; way < 3; way++) {
        TestGrid      g;
        LifeSequences s;
        KvgStep      *steps[TEST_RANKS_MAX];
        KvgOutcome    outcomes[TEST_RANKS_MAX];
        open_grid(&g, s, 2, 2, 0, 2048);
        if (way == 0) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){700, 3, 0}, 3, NULL, -1), KVG_OK);
        for (int n = 0; way == 1 && n < 7; n++) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){100, n == 6 ? 3 : 0, 0}, 3, NULL, -1), KVG_OK);
        for (int r = 0; way == 2 && r < 4; r++) {
            steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){100, 1, 0}, 3, 0);
            for (int n = 0; n < 6; n++) {
                extend_and_write(&g, s, r, steps[r], (uint32_t[]){100, n == 2 ? 2 : 0, 0}, 0);
                ck_assert_uint_eq(kvg_step_rows(steps[r])[0], 100);
                ck_assert_uint_eq(kvg_step_rows(steps[r])[1], n == 2 ? 2 : 0);
                ck_assert_uint_eq(life_info(s[r][0]).rows, 0);
                ck_assert_uint_eq(life_info(s[r][0]).rows_staged, 200 + (uint64_t)n * 100);
            }
            ck_assert_int_eq(kvg_step_extend(steps[r], (uint32_t[]){0, 0, 5}), KVG_OK); /* not part of the step: cannot join it */
            ck_assert_int_eq(kvg_step_refusal(steps[r], 2), KVG_EINVAL);
            ck_assert_uint_eq(kvg_step_rows(steps[r])[2], 0);
            grid_post(&g, r, steps[r], NULL, KVG_OK);
            ck_assert_int_eq(kvg_step_extend(steps[r], (uint32_t[]){1, 0, 0}), KVG_ESTALE);
        }
        if (way == 2) {
            ck_assert_int_eq(grid_decide(&g, steps, outcomes), KVG_OK);
            for (int r = 0; r < 4; r++) {
                ck_assert_uint_eq(outcomes[r].accepted[0], 700);
                ck_assert_uint_eq(outcomes[r].accepted[1], 3);
            }
        }
        grid_digest(&g, s, 0, hex[way]);
        grid_close(&g);
    }
    ck_assert_str_eq(hex[0], hex[1]);
    ck_assert_str_eq(hex[0], hex[2]);
}
END_TEST

START_TEST(test_a_partial_commit_may_end_in_any_pass)
{
    char straight[33], cut[33];
    for (int window = 0; window <= 64; window += 64) {
        for (uint32_t accepted = 0; accepted <= 30; accepted += 5) { /* none, within and at the ends of three passes of 10 */
            TestGrid      g;
            LifeSequences s;
            KvgStep      *steps[TEST_RANKS_MAX];
            open_grid(&g, s, 1, 2, (uint32_t)window, 2048);
            ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){60, 0, 0}, 3, NULL, -1), KVG_OK);
            for (int r = 0; r < 2; r++) { /* accepted rows are right, the others garbage */
                steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){10, 0, 0}, 3, accepted == 0 ? 9 : 0);
                for (int n = 1; n < 3; n++) extend_and_write(&g, s, r, steps[r], (uint32_t[]){10, 0, 0}, accepted > (uint32_t)n * 10 ? 0 : 9);
                grid_post(&g, r, steps[r], (uint32_t[]){accepted, 0, 0}, KVG_OK);
            }
            ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_OK);
            for (int r = 0; r < 2; r++) ck_assert_uint_eq(life_info(s[r][0]).rows, 60 + accepted);
            ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){7, 0, 0}, 3, NULL, -1), KVG_OK);
            grid_digest(&g, s, 0, cut);
            ck_assert_int_eq(life_close(&g, s, 0), KVG_OK);
            ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
            ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){67 + accepted, 0, 0}, 3, NULL, -1), KVG_OK);
            grid_digest(&g, s, 0, straight);
            ck_assert_str_eq(straight, cut);
            grid_close(&g);
        }
    }
}
END_TEST

START_TEST(test_counts_past_what_was_staged_are_refused_and_the_step_can_be_posted_again)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    open_grid(&g, s, 1, 2, 0, 2048);
    for (int r = 0; r < 2; r++) {
        KvgCommit commit = KVG_COMMIT_INIT;
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){5, 3, 0}, 3, 0);
        if (r == 1) {
            ck_assert_int_eq(kvg_step_post(steps[r], NULL), KVG_EINVAL);
            commit.accepted = (uint32_t[]){6, 3, 0};
            ck_assert_int_eq(kvg_step_post(steps[r], &commit), KVG_EINVAL);
            commit.accepted = (uint32_t[]){5, UINT32_MAX, 0};
            ck_assert_int_eq(kvg_step_post(steps[r], &commit), KVG_EINVAL);
            commit.accept_all = 1; /* both ways at once */
            commit.accepted = (uint32_t[]){5, 3, 0};
            ck_assert_int_eq(kvg_step_post(steps[r], &commit), KVG_EINVAL);
            commit.accept_all = 0;
            commit.refuse = (KvgStatus)99;
            ck_assert_int_eq(kvg_step_post(steps[r], &commit), KVG_EINVAL);
            commit.refuse = KVG_OK;
            commit.size = 3;
            ck_assert_int_eq(kvg_step_post(steps[r], &commit), KVG_EINVAL);
            ck_assert_int_eq(kvg_step_wait(steps[r], NULL), KVG_EINVAL); /* not posted */
        }
        grid_post(&g, r, steps[r], (uint32_t[]){4, 3, 0}, KVG_OK);
        KvgCommit again = KVG_COMMIT_INIT;
        ck_assert_int_eq(kvg_step_post(steps[r], &again), KVG_ESTALE); /* exactly one record */
    }
    ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_OK);
    for (int r = 0; r < 2; r++) ck_assert_uint_eq(life_info(s[r][0]).rows, 4);
    grid_close(&g);
}
END_TEST

START_TEST(test_counts_past_65534_are_all_or_refused)
{
    KvgPlaceOptions options = life_options(1, 24u << 20);
    KvgPolicy       policy = life_policy(1);
    TestGrid        g;
    KvgSequence    *sequence;
    KvgStep        *step;
    KvgOutcome      outcome;
    static const struct { uint32_t staged, accepted; KvgStatus status; } cases[] = {
        {65534, 65534, KVG_OK}, {65535, 65535, KVG_OK}, {65536, 65536, KVG_OK}, {65536, 65535, KVG_EINVAL}, {65536, 65534, KVG_OK},
        {70000, 65535, KVG_EINVAL}, {70000, 70000, KVG_OK}, {70000, 70001, KVG_EINVAL}, {70000, 0, KVG_OK}};
    grid_connect(&g, 1, 1, &policy, 0);
    g.config = test_model(1, 1, 0, 80000);
    ck_assert_msg(grid_place(&g, &g.config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_batch_create(g.placement[0], 1, &g.batch[0]), KVG_OK);
    ck_assert_int_eq(kvg_sequence_open(g.placement[0], 1, 0, &sequence), KVG_OK);
    ck_assert_int_eq(kvg_batch_set(g.batch[0], 0, sequence), KVG_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        KvgCommit commit = KVG_COMMIT_INIT;
        ck_assert_int_eq(kvg_step_begin(g.batch[0], (uint32_t[]){cases[i].staged}, &step), KVG_OK);
        ck_assert_int_eq(kvg_step_refusal(step, 0), KVG_OK);
        commit.accepted = &cases[i].accepted;
        ck_assert_int_eq(kvg_step_post(step, &commit), cases[i].status);
        if (cases[i].status != KVG_OK) {
            commit.accepted = (uint32_t[]){0};
            ck_assert_int_eq(kvg_step_post(step, &commit), KVG_OK);
        }
        ck_assert_int_eq(kvg_step_wait(step, &outcome), KVG_OK);
        ck_assert_uint_eq(outcome.accepted[0], cases[i].status == KVG_OK ? cases[i].accepted : 0);
        ck_assert_uint_eq(life_info(sequence).rows, outcome.accepted[0]);
        ck_assert_int_eq(kvg_sequence_rewind(sequence, 0), KVG_OK);
    }
    grid_close(&g);
}
END_TEST

/* Posts what `fill` makes of each rank's commit. */
static KvgStatus step_with(TestGrid *g, LifeSequences s, const uint32_t *rows, void (*fill)(int rank, KvgCommit *commit), KvgOutcome *outcomes)
{
    KvgStep *steps[TEST_RANKS_MAX];
    for (int r = 0; r < g->ranks; r++) {
        KvgCommit commit = KVG_COMMIT_INIT;
        steps[r] = grid_begin(g, r, s[r], rows, 3, 0);
        fill(r, &commit);
        ck_assert_msg(kvg_step_post(steps[r], &commit) == KVG_OK, "%s", kvg_last_error());
    }
    return grid_decide(g, steps, outcomes);
}

static void nobody(int rank, KvgCommit *commit) { (void)rank, (void)commit; }
static void all_ranks(int rank, KvgCommit *commit) { (void)rank, commit->accept_all = 1; }
static void only_rank_0(int rank, KvgCommit *commit) { commit->accept_all = rank == 0; }
static const uint32_t two[] = {2, 1, 0}, three[] = {3, 1, 0}, as_staged[] = {5, 1, 0};
static void last_stage_apart(int rank, KvgCommit *commit) { commit->accepted = rank == 2 ? two : rank == 3 ? three : NULL; }
static void all_said_in_two_ways(int rank, KvgCommit *commit)
{
    commit->accept_all = rank % 2;
    commit->accepted = rank % 2 ? NULL : as_staged;
}
static void users_apart(int rank, KvgCommit *commit) { commit->accept_all = 1, commit->user_digest = rank == 0 ? 0 : rank == 3 ? 8 : 7; }
static void users_agree(int rank, KvgCommit *commit) { commit->accept_all = 1, commit->user_digest = rank % 2 ? 7 : 0; }
static void refuse_and_apart(int rank, KvgCommit *commit)
{
    users_apart(rank, commit);
    commit->refuse = rank == 2 ? KVG_EIO : rank == 3 ? KVG_ENOMEM : KVG_OK;
}

START_TEST(test_outcomes_name_what_is_wrong_first)
{
    static const struct {
        const char *name;
        void (*fill)(int, KvgCommit *);
        KvgStatus      status;
        KvgOutcomeKind kind;
        int            rank, rank_b;
        const char    *field;
        uint32_t       rows;
    } cases[] = {
        {"nobody accepts", nobody, KVG_EINVAL, KVG_OUTCOME_UNACCEPTED, -1, -1, "", 0},
        {"all accept all", all_ranks, KVG_OK, KVG_OUTCOME_PUBLISHED, -1, -1, "", 5},
        {"any rank may know", only_rank_0, KVG_OK, KVG_OUTCOME_PUBLISHED, -1, -1, "", 5},
        {"all staged, said in two ways", all_said_in_two_ways, KVG_OK, KVG_OUTCOME_PUBLISHED, -1, -1, "", 5},
        {"counts differ", last_stage_apart, KVG_ELAYOUT, KVG_OUTCOME_DISAGREE, 2, 3, "accepted", 0},
        {"token ids differ (B68)", users_apart, KVG_ELAYOUT, KVG_OUTCOME_DISAGREE, 1, 3, "user", 0},
        {"some pass token ids", users_agree, KVG_OK, KVG_OUTCOME_PUBLISHED, -1, -1, "", 5},
        {"a no comes first", refuse_and_apart, KVG_EREFUSED, KVG_OUTCOME_REFUSED, 2, -1, "", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TestGrid      g;
        LifeSequences s;
        KvgOutcome    outcomes[TEST_RANKS_MAX];
        open_grid(&g, s, 2, 2, 64, 2048);
        KvgStatus status = step_with(&g, s, (uint32_t[]){5, 1, 0}, cases[i].fill, outcomes);
        ck_assert_msg(status == cases[i].status, "%s: %s", cases[i].name, kvg_status_name(status));
        for (int r = 0; r < 4; r++) {
            ck_assert_int_eq(outcomes[r].kind, cases[i].kind);
            ck_assert_int_eq(outcomes[r].rank, cases[i].rank);
            ck_assert_int_eq(outcomes[r].rank_b, cases[i].rank_b);
            ck_assert_str_eq(outcomes[r].field, cases[i].field);
            ck_assert_uint_eq(outcomes[r].accepted[0], cases[i].rows);
            ck_assert_uint_eq(life_info(s[r][0]).rows, cases[i].rows);
        }
        life_agree(&g);
        ck_assert_int_eq(step_with(&g, s, (uint32_t[]){1, 1, 1}, all_ranks, outcomes), KVG_OK); /* the grid goes on */
        grid_close(&g);
    }
}
END_TEST

START_TEST(test_different_draft_counts_are_the_same_error_on_every_rank)
{
    /* B67: rank 1 proposes 2 where the others propose 3; and the second pass alone differs. */
    for (int in_pass = 1; in_pass <= 2; in_pass++) {
        TestGrid      g;
        LifeSequences s;
        KvgStep      *steps[TEST_RANKS_MAX];
        KvgOutcome    outcomes[TEST_RANKS_MAX];
        open_grid(&g, s, 2, 1, 0, 2048);
        ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){9, 9, 0}, 3, NULL, -1), KVG_OK);
        for (int r = 0; r < 2; r++) {
            steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){in_pass == 1 && r == 1 ? 2u : 3u, 4, 0}, 3, 0);
            extend_and_write(&g, s, r, steps[r], (uint32_t[]){in_pass == 2 && r == 1 ? 2u : 3u, 0, 0}, 0);
            grid_post(&g, r, steps[r], NULL, KVG_OK);
        }
        ck_assert_int_eq(grid_decide(&g, steps, outcomes), KVG_ELAYOUT);
        for (int r = 0; r < 2; r++) {
            ck_assert_str_eq(outcomes[r].field, "targets");
            ck_assert_uint_eq(life_info(s[r][0]).rows, 9); /* nothing committed anywhere, of any sequence */
            ck_assert_uint_eq(life_info(s[r][1]).rows, 9);
            ck_assert_uint_eq(life_info(s[r][0]).rows_staged, 9); /* drafts never count as stored (B79) */
        }
        ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 1, 1}, 3, NULL, -1), KVG_OK);
        grid_close(&g);
    }
}
END_TEST

/* Changes the layout in one rank's own record while it posts: every copy that leaves, and its own, say the same. */
static KvInprocFate flip_layout(void *user, int from, int to, int is_record, const void *bytes, size_t byte_count, uint64_t *delay_ns)
{
    int *left = user;
    (void)to, (void)byte_count, (void)delay_ns;
    if (is_record && from == left[0] && left[1]-- > 0) ((KvVoteRecord *)(uintptr_t)bytes)->layout ^= 2;
    return KVG_INPROC_DELIVER;
}

START_TEST(test_layouts_are_compared_within_a_stage)
{
    for (int odd = 0; odd < 4; odd++) {
        TestGrid      g;
        LifeSequences s;
        KvgOutcome    outcomes[TEST_RANKS_MAX];
        int           left[2] = {odd, 1};
        open_grid(&g, s, 2, 2, 64, 2048);
        kvg_inproc_set_filter(g.hub, flip_layout, left);
        ck_assert_int_eq(step_with(&g, s, (uint32_t[]){5, 1, 0}, all_ranks, outcomes), KVG_ELAYOUT);
        for (int r = 0; r < 4; r++) {
            ck_assert_str_eq(outcomes[r].field, "layout");
            ck_assert_int_eq(outcomes[r].rank, odd / 2 * 2);
            ck_assert_int_eq(outcomes[r].rank_b, odd / 2 * 2 + 1);
            ck_assert_uint_eq(life_info(s[r][0]).rows, 0);
        }
        ck_assert_int_eq(step_with(&g, s, (uint32_t[]){5, 1, 0}, all_ranks, outcomes), KVG_OK);
        grid_close(&g);
    }
}
END_TEST

START_TEST(test_a_step_of_no_sequences_only_compares)
{
    TestGrid      g;
    LifeSequences s;
    KvgOutcome    outcomes[TEST_RANKS_MAX];
    KvgSequence  *extra;
    open_grid(&g, s, 2, 2, 64, 2048);
    ck_assert_int_eq(step_with(&g, s, (uint32_t[]){0, 0, 0}, all_ranks, outcomes), KVG_OK);
    ck_assert_int_eq(step_with(&g, s, (uint32_t[]){0, 0, 0}, users_apart, outcomes), KVG_ELAYOUT);
    ck_assert_int_eq(step_with(&g, s, (uint32_t[]){0, 0, 0}, refuse_and_apart, outcomes), KVG_EREFUSED);
    ck_assert_int_eq(kvg_sequence_open(g.placement[1], 44, 0, &extra), KVG_OK); /* on one rank alone */
    ck_assert_int_eq(step_with(&g, s, (uint32_t[]){0, 0, 0}, all_ranks, outcomes), KVG_ELAYOUT);
    for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_grid_state(g.grid[r]), KVG_ELAYOUT);
    grid_close(&g);
}
END_TEST

START_TEST(test_windows_of_speculative_steps_keep_what_a_rollback_needs)
{
    /* B81, B84, B91 and their neighbours: around a window of 8, rows in steps of 1 to 4, half of them refused or cut. */
    TestGrid      g;
    LifeSequences s;
    char          jumpy[33], straight[33];
    uint64_t      rows = 0, seed = 5;
    open_grid(&g, s, 1, 2, 8, 2048);
    for (int n = 0; n < 60; n++) {
        KvgStep *steps[TEST_RANKS_MAX];
        uint32_t staged = 1 + (uint32_t)life_draw(&seed, 4), keep = (uint32_t)life_draw(&seed, staged + 1);
        int      no = n % 5 == 4;
        for (int r = 0; r < 2; r++) {
            steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){staged, 0, 0}, 3, 0);
            grid_post(&g, r, steps[r], (uint32_t[]){keep, 0, 0}, no && r == 0 ? KVG_EIO : KVG_OK);
        }
        ck_assert_int_eq(grid_decide(&g, steps, NULL), no ? KVG_EREFUSED : KVG_OK);
        rows += no ? 0 : keep;
        for (int r = 0; r < 2; r++) {
            uint32_t lo, hi;
            float    row[4 * 32];
            ck_assert_uint_eq(life_info(s[r][0]).rows, rows);
            kvg_placement_layers(g.placement[r], &lo, &hi);
            for (uint64_t at = rows > 7 ? rows - 7 : 0; at < rows; at++) { /* everything that the next query may see */
                ck_assert_int_eq(kvg_sequence_read(s[r][0], lo, 0, at, 1, row), KVG_OK);
                float expected = test_value(1, lo, 0, 0, at, 0);
                ck_assert(row[0] > expected - 0.05f && row[0] < expected + 0.05f);
            }
        }
    }
    grid_digest(&g, s, 0, jumpy);
    ck_assert_int_eq(life_close(&g, s, 0), KVG_OK);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){(uint32_t)rows, 0, 0}, 3, NULL, -1), KVG_OK);
    grid_digest(&g, s, 0, straight);
    ck_assert_str_eq(jumpy, straight);
    grid_close(&g);
}
END_TEST

LIFE_MAIN("multipass", test_a_long_prompt_in_passes_equals_one_pass_and_many_steps, test_a_partial_commit_may_end_in_any_pass,
          test_counts_past_what_was_staged_are_refused_and_the_step_can_be_posted_again, test_counts_past_65534_are_all_or_refused,
          test_outcomes_name_what_is_wrong_first, test_different_draft_counts_are_the_same_error_on_every_rank,
          test_layouts_are_compared_within_a_stage, test_a_step_of_no_sequences_only_compares,
          test_windows_of_speculative_steps_keep_what_a_rollback_needs)

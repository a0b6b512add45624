/* Section (a): heads against tp, on grids that hold real rows. */
#include "tests/cases/cases.h"

static void check_views(const TestGrid *g, uint32_t queries, uint32_t heads)
{
    uint32_t group = queries / heads;

    for (int r = 0; r < g->ranks; r++) {
        const KvPlaneView *view = kvg_placement_view(g->placement[r], 0);
        uint32_t           first = (uint32_t)r * queries / g->tp, past = (uint32_t)(r + 1) * queries / g->tp;
        ck_assert_uint_eq(view->head_first, (uint32_t)r * heads / g->tp);
        ck_assert_uint_eq(view->heads, heads > g->tp ? heads / g->tp : 1);
        ck_assert_uint_eq(view->k.head_dim, 32); /* never half a head */
        for (uint32_t q = first; q < past; q++) {
            ck_assert_uint_ge(q / group, view->head_first);
            ck_assert_uint_lt(q / group, view->head_first + view->heads);
        }
    }
}

static void run(uint32_t tp, uint32_t pp, uint32_t queries, uint32_t heads, char hex[33])
{
    KvgPlaceOptions options = case_options(1, 1 << 20);
    KvgSequence    *s[TEST_RANKS_MAX][8];
    TestGrid        g;
    char            text[512];

    case_heads_text(text, 2, queries, heads);
    case_open(&g, tp, pp, text, &options, NULL, 1);
    if (pp == 1) check_views(&g, queries, heads);
    case_open_sequence(&g, s, 0, 9);
    case_grow(&g, s, 0, 130);
    ck_assert_int_eq(case_step(&g, s, 0, 4, 1), KVG_OK);
    grid_digest(&g, s, 0, hex);
    grid_close(&g);
}

/* B01, B02, B05, B07, B12, B13, B15 and their neighbours: each rank holds the heads that its queries read, whole, and each head is
 * counted once, however many ranks hold it: the digest of one rank. */
START_TEST(test_each_rank_holds_the_heads_its_queries_read_and_each_head_counts_once)
{
    static const struct { uint32_t queries, heads, tp; } cases[] = {
        {8, 2, 4}, {8, 4, 8}, {4, 2, 4}, {32, 8, 32}, {2, 1, 2}, {16, 8, 16}, {8, 4, 2}, {8, 2, 2}, {8, 2, 8}, {8, 4, 4}, {6, 3, 6}, {6, 3, 3},
    };

    for (int i = 0; i < COUNT(cases); i++) {
        char one[33], many[33], staged[33];
        run(1, 1, cases[i].queries, cases[i].heads, one);
        run(cases[i].tp, 1, cases[i].queries, cases[i].heads, many);
        ck_assert_str_eq(many, one);
        if (cases[i].tp <= 8) {
            run(cases[i].tp, 2, cases[i].queries, cases[i].heads, staged);
            ck_assert_str_eq(staged, one);
        }
    }
}
END_TEST

/* B06: a target of 16 heads and a draft of 8 on one grid of 16 ranks, one local head each: two placements, each with its own count of
 * heads over all ranks. */
START_TEST(test_a_target_and_a_draft_keep_their_own_counts_of_heads)
{
    KvgPlaceOptions options = case_options(1, 1 << 20);
    TestGrid        target, draft;
    char            text[512];

    case_heads_text(text, 2, 16, 16);
    case_open(&target, 16, 1, text, &options, NULL, 1);
    draft = target;
    case_heads_text(text, 1, 16, 8);
    draft.config = case_parse(text);
    ck_assert_msg(grid_place(&draft, &draft.config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    check_views(&target, 16, 16);
    check_views(&draft, 16, 8);
    for (uint32_t r = 0; r < 16; r++) {
        ck_assert_uint_eq(kvg_placement_plan(target.placement[0])->ranks[r].duplicate_bytes_per_token, 0);
        ck_assert_uint_eq(kvg_placement_plan(draft.placement[0])->ranks[r].duplicate_bytes_per_token, r % 2 == 0 ? 0 : 34 + 24);
    }
    for (int r = 0; r < 16; r++) kvg_placement_destroy(draft.placement[r]);
    kvg_model_config_free(&draft.config);
    grid_close(&target);
}
END_TEST

int main(void)
{
    const TTest *tests[] = {
        test_each_rank_holds_the_heads_its_queries_read_and_each_head_counts_once,
        test_a_target_and_a_draft_keep_their_own_counts_of_heads,
    };
    return case_main("heads", tests, COUNT(tests));
}

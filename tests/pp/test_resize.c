/* Resize: a vote of its own; when one rank cannot, none has changed. */
#include "tests/support/grid_life.h"

#define START_BYTES (512u << 10)

static void open_grid(TestGrid *g, LifeSequences s, KvLayout layout)
{
    KvgPlaceOptions options = life_options(4, START_BYTES);
    KvgPolicy       policy = life_policy(1);
    options.memory_max_bytes = 1200u << 10;
    options.layout = layout;
    options.prefill_chunk_max = 256;
    grid_open(g, 2, 2, (uint32_t[]){4, 4, 64}, &options, &policy, 2);
    for (uint32_t i = 0; i < 2; i++) ck_assert_int_eq(life_open(g, s, i, i + 1, 0), KVG_OK);
    ck_assert_int_eq(grid_step(g, s, (uint32_t[]){200, 70}, 2, NULL, -1), KVG_OK);
}

/* bytes [ranks]; the n-th acquisition of `victim` while it prepares fails (-1: none does). */
static KvgStatus resize(TestGrid *g, const uint64_t *bytes, KvgStatus each[], char why[][256])
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    int       done[TEST_RANKS_MAX] = {0}, left = g->ranks;
    for (int r = 0; r < g->ranks; r++) {
        ck_assert_msg(kvg_placement_resize_start(g->placement[r], bytes[r], &setups[r]) == KVG_OK, "%s", kvg_last_error());
    }
    for (int rounds = 0; left > 0; rounds++) {
        ck_assert_int_lt(rounds, 100000);
        for (int r = 0; r < g->ranks; r++) {
            if (done[r]) continue;
            KvgStatus status = kvg_setup_test(setups[r], &done[r]);
            if (!done[r]) continue;
            each[r] = status;
            if (why != NULL) snprintf(why[r], 256, "%s", status == KVG_OK ? "" : kvg_last_error());
            left--;
        }
        kvg_inproc_advance_ns(g->hub, 100000);
    }
    for (int r = 0; r < g->ranks; r++) kvg_setup_free(setups[r]);
    for (int r = 1; r < g->ranks; r++) ck_assert_int_eq(each[r] == KVG_OK, each[0] == KVG_OK);
    life_agree(g);
    return each[0];
}

static KvgStatus resize_all(TestGrid *g, uint64_t bytes)
{
    KvgStatus each[TEST_RANKS_MAX];
    return resize(g, (uint64_t[]){bytes, bytes, bytes, bytes}, each, NULL);
}

START_TEST(test_growing_gives_every_rank_the_same_units_and_keeps_every_row)
{
    for (int layout = 0; layout <= 1; layout++) {
        TestGrid      g;
        LifeSequences s;
        char          before[33], after[33];
        open_grid(&g, s, layout ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL);
        grid_digest(&g, s, 0, before);
        uint32_t units = kvg_placement_plan(g.placement[0])->classes[0].units;
        uint64_t taken = life_stats(g.placement[0]).taken_bytes;
        ck_assert_int_eq(resize_all(&g, 2 * START_BYTES), KVG_OK);
        ck_assert_uint_gt(kvg_placement_plan(g.placement[0])->classes[0].units, units);
        if (!layout) ck_assert_uint_gt(life_stats(g.placement[0]).taken_bytes, taken);
        grid_digest(&g, s, 0, after);
        ck_assert_str_eq(before, after);
        ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){200, 70}, 2, NULL, -1), KVG_OK);
        ck_assert_int_eq(resize_all(&g, START_BYTES), KVG_OK); /* and back: nothing that would go is in use */
        ck_assert_uint_eq(kvg_placement_plan(g.placement[0])->classes[0].units, units);
        for (int r = 0; r < 4; r++) {
            ck_assert_uint_eq(life_stats(g.placement[r]).resizes, 2);
            ck_assert_uint_le(life_stats(g.placement[r]).booked_bytes, life_stats(g.placement[r]).taken_bytes);
        }
        ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 1}, 2, NULL, -1), KVG_OK);
        grid_close(&g);
    }
}
END_TEST

START_TEST(test_units_follow_the_smallest_rank)
{
    TestGrid      g, equal;
    LifeSequences s, t;
    KvgStatus     each[TEST_RANKS_MAX];
    open_grid(&g, s, KVG_LAYOUT_POOL);
    open_grid(&equal, t, KVG_LAYOUT_POOL);
    ck_assert_int_eq(resize(&g, (uint64_t[]){1u << 20, 1100u << 10, 700u << 10, 1u << 20}, each, NULL), KVG_OK);
    ck_assert_int_eq(resize_all(&equal, 700u << 10), KVG_OK);
    ck_assert_uint_eq(kvg_placement_plan(g.placement[1])->classes[0].units, kvg_placement_plan(equal.placement[1])->classes[0].units);
    ck_assert_int_eq(kvg_placement_plan(g.placement[1])->limiting_rank, 2);
    grid_close(&equal);
    grid_close(&g);
}
END_TEST

START_TEST(test_shrinking_below_what_is_in_use_is_refused_everywhere)
{
    TestGrid      g;
    LifeSequences s;
    KvgStatus     each[TEST_RANKS_MAX];
    char          why[TEST_RANKS_MAX][256], before[33], after[33];
    open_grid(&g, s, KVG_LAYOUT_POOL);
    ck_assert_int_eq(life_open(&g, s, 2, 9, 64 * (uint64_t)(life_units_free(&g, 0) < 16 ? life_units_free(&g, 0) : 16)), KVG_OK);
    grid_digest(&g, s, 0, before);
    KvgLedger ledger, now;
    kvg_placement_ledger(g.placement[3], &ledger);
    ck_assert_int_eq(resize(&g, (uint64_t[]){300u << 10, 300u << 10, 300u << 10, 300u << 10}, each, why), KVG_EREFUSED);
    for (int r = 0; r < 4; r++) {
        ck_assert_int_eq(each[r], KVG_EREFUSED);
        ck_assert_msg(strstr(why[r], "rank 0") != NULL && strstr(why[r], "EBUSY") != NULL, "%s", why[r]);
        ck_assert_uint_eq(life_stats(g.placement[r]).resizes, 0);
    }
    kvg_placement_ledger(g.placement[3], &now);
    ck_assert_mem_eq(ledger.units_free, now.units_free, sizeof now.units_free);
    grid_digest(&g, s, 0, after);
    ck_assert_str_eq(before, after);
    for (uint32_t q = 0; q < 3; q++) ck_assert_int_eq(life_close(&g, s, q), KVG_OK);
    ck_assert_int_eq(resize_all(&g, 300u << 10), KVG_OK);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    ck_assert_int_eq(life_grow(&g, s, 0, 10), KVG_OK);
    grid_close(&g);
}
END_TEST

START_TEST(test_past_the_maximum_is_refused_and_names_rank_and_reason)
{
    TestGrid      g;
    LifeSequences s;
    KvgStatus     each[TEST_RANKS_MAX];
    char          why[TEST_RANKS_MAX][256];
    open_grid(&g, s, KVG_LAYOUT_POOL);
    ck_assert_int_eq(resize(&g, (uint64_t[]){16u << 20, 16u << 20, 16u << 20, 16u << 20}, each, why), KVG_EREFUSED);
    ck_assert_msg(strstr(why[2], "rank 0") != NULL && strstr(why[2], "EINVAL") != NULL, "%s", why[2]);
    KvgSetup *setup = NULL;
    ck_assert_int_eq(kvg_placement_resize_start(g.placement[0], 0, &setup), KVG_EINVAL);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 1}, 2, NULL, -1), KVG_OK);
    grid_close(&g);
}
END_TEST

START_TEST(test_when_one_rank_is_out_of_memory_none_has_grown)
{
    TestGrid      g;
    LifeSequences s;
    char          hex[33];
    int           tried = 0, hit = 1;
    open_grid(&g, s, KVG_LAYOUT_POOL);
    for (uint64_t nth = 0; hit; nth++) {
        KvgStatus each[TEST_RANKS_MAX];
        uint32_t  units = kvg_placement_plan(g.placement[0])->classes[0].units, now;
        KvgSetup *setups[TEST_RANKS_MAX] = {0};
        int       started = 1;
        kvg_fault_arm(nth); /* whichever rank makes the nth acquisition of the whole resize */
        for (int r = 0; r < 4; r++) started &= kvg_placement_resize_start(g.placement[r], 2 * START_BYTES, &setups[r]) == KVG_OK;
        for (int r = 0; r < 4; r++) each[r] = KVG_ENOMEM; /* of the one that did not even start */
        grid_finish(&g, setups, each);
        hit = kvg_fault_disarm();
        now = kvg_placement_plan(g.placement[0])->classes[0].units;
        for (int r = 0; r < 4; r++) { /* all or none */
            ck_assert_msg((each[r] == KVG_OK) == (each[0] == KVG_OK), "acquisition %llu: rank %d %s, rank 0 %s", (unsigned long long)nth, r,
                          kvg_status_name(each[r]), kvg_status_name(each[0]));
            ck_assert_uint_eq(kvg_placement_plan(g.placement[r])->classes[0].units, now);
        }
        ck_assert_int_eq(now > units, each[0] == KVG_OK);
        ck_assert(started || each[0] != KVG_OK);
        life_agree(&g);
        grid_digest(&g, s, 0, hex); /* the next set-up call is not out of step */
        tried += each[0] != KVG_OK;
        if (each[0] == KVG_OK) ck_assert_int_eq(resize_all(&g, START_BYTES), KVG_OK);
    }
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 1}, 2, NULL, -1), KVG_OK);
    ck_assert_int_gt(tried, 20);
    grid_close(&g);
}
END_TEST

START_TEST(test_undecided_steps_are_decided_first_and_unposted_ones_refuse)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    KvgSetup     *setup;
    open_grid(&g, s, KVG_LAYOUT_POOL);
    for (int r = 0; r < 4; r++) {
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){5, 5}, 2, 0);
        ck_assert_int_eq(kvg_placement_resize_start(g.placement[r], 2 * START_BYTES, &setup), KVG_EBUSY);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    ck_assert_int_eq(kvg_step_wait(steps[2], NULL), KVG_OK); /* one rank has decided, the others have not looked */
    ck_assert_int_eq(resize_all(&g, 2 * START_BYTES), KVG_OK);
    for (int r = 0; r < 4; r++) ck_assert_uint_eq(life_info(s[r][0]).rows, 205);
    grid_close(&g);
}
END_TEST

START_TEST(test_ranks_at_different_points_are_told)
{
    TestGrid      g;
    LifeSequences s;
    KvgSequence  *extra;
    KvgStatus     each[TEST_RANKS_MAX];
    KvgSetup     *setups[TEST_RANKS_MAX] = {0};
    open_grid(&g, s, KVG_LAYOUT_POOL);
    ck_assert_int_eq(kvg_sequence_open(g.placement[3], 50, 0, &extra), KVG_OK);
    for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_placement_resize_start(g.placement[r], 2 * START_BYTES, &setups[r]), KVG_OK);
    grid_finish(&g, setups, each);
    for (int r = 0; r < 4; r++) ck_assert_int_eq(each[r], KVG_ELAYOUT);
    grid_close(&g);
}
END_TEST

/* ---- in doubt: the last message of the vote is lost */

typedef struct LostVote {
    int from, to; /* -1: to all */
    int sent;     /* messages of `from` so far: the first is what it says, the second its vote */
} LostVote;

static KvInprocFate lose_vote(void *user, int from, int to, int is_record, const void *bytes, size_t byte_count, uint64_t *delay_ns)
{
    LostVote *lost = user;
    (void)bytes;
    (void)byte_count;
    (void)delay_ns;
    if (is_record || from != lost->from || lost->to == -2) return KVG_INPROC_DELIVER;
    lost->sent++;
    return lost->sent > 3 && (lost->to == -1 || lost->to == to) ? KVG_INPROC_DROP : KVG_INPROC_DELIVER; /* the first three are its first to each peer */
}

static void settle_all(TestGrid *g, KvgStatus state)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    KvgStatus each[TEST_RANKS_MAX];
    for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_grid_settle_start(g->grid[r], (int[]){0, 1, 2, 3}, 4, &setups[r]), KVG_OK);
    grid_finish(g, setups, each);
    for (int r = 0; r < 4; r++) {
        ck_assert_int_eq(each[r], KVG_OK);
        ck_assert_int_eq(kvg_grid_state(g->grid[r]), state);
    }
    life_agree(g);
}

/* Rank 3's vote does not reach rank `to` (-1: anyone else). What one has published all publish; what nobody has is undone. */
START_TEST(test_a_resize_whose_last_vote_is_lost_is_settled_to_one_answer)
{
    for (int to = -1; to < 3; to++) {
        TestGrid      g;
        LifeSequences s;
        KvgSetup     *setups[TEST_RANKS_MAX] = {0};
        KvgStatus     each[TEST_RANKS_MAX];
        LostVote      lost = {.from = 3, .to = to};
        char          before[33], after[33];
        open_grid(&g, s, KVG_LAYOUT_POOL);
        grid_digest(&g, s, 0, before);
        uint32_t units = kvg_placement_plan(g.placement[0])->classes[0].units;
        uint64_t taken = life_stats(g.placement[0]).taken_bytes;
        kvg_inproc_set_filter(g.hub, lose_vote, &lost);
        for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_placement_resize_start(g.placement[r], 2 * START_BYTES, &setups[r]), KVG_OK);
        grid_finish(&g, setups, each);
        for (int r = 0; r < 4; r++) {
            int published = r == 3 || (to != -1 && r != to);
            ck_assert_int_eq(each[r], published ? KVG_OK : KVG_EINDOUBT);
            ck_assert_int_eq(kvg_grid_state(g.grid[r]), published ? KVG_OK : KVG_EINDOUBT);
            ck_assert_int_eq(kvg_placement_plan(g.placement[r])->classes[0].units > units, published);
        }
        lost.to = -2;
        settle_all(&g, KVG_OK);
        for (int r = 0; r < 4; r++) ck_assert_uint_gt(kvg_placement_plan(g.placement[r])->classes[0].units, units);
        grid_digest(&g, s, 0, after);
        ck_assert_str_eq(before, after);
        ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){200, 70}, 2, NULL, -1), KVG_OK);
        ck_assert_int_eq(resize_all(&g, START_BYTES), KVG_OK); /* the next change is voted on as ever */
        ck_assert_uint_eq(kvg_placement_plan(g.placement[0])->classes[0].units, units);
        ck_assert_uint_le(life_stats(g.placement[0]).taken_bytes, taken + 65536);
        grid_close(&g);
    }
}
END_TEST

START_TEST(test_a_resize_that_nobody_published_is_undone_by_settling)
{
    for (int settled = 0; settled <= 1; settled++) {
        TestGrid      g;
        LifeSequences s;
        KvgSetup     *setups[TEST_RANKS_MAX] = {0}, *late = NULL;
        int           done = 0;
        LostVote      lost = {.from = 3, .to = -1};
        open_grid(&g, s, KVG_LAYOUT_POOL);
        uint32_t units = kvg_placement_plan(g.placement[0])->classes[0].units;
        uint64_t taken = life_stats(g.placement[0]).taken_bytes;
        kvg_inproc_set_filter(g.hub, lose_vote, &lost);
        for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_placement_resize_start(g.placement[r], 2 * START_BYTES, &setups[r]), KVG_OK);
        for (int n = 0; n < 20; n++) { /* rank 3 does not look for the others' votes: it has not published */
            for (int r = 0; r < 3; r++) kvg_setup_test(setups[r], &done);
            if (n < 2) kvg_setup_test(setups[3], &done);
        }
        for (int r = 0; r < 4; r++) {
            kvg_setup_free(setups[r]); /* given up in the middle: in doubt, and its memory kept until that is settled */
            ck_assert_int_eq(kvg_grid_state(g.grid[r]), KVG_EINDOUBT);
            ck_assert_uint_eq(kvg_placement_plan(g.placement[r])->classes[0].units, units);
            ck_assert_int_eq(kvg_placement_resize_start(g.placement[r], START_BYTES, &late), KVG_EPEER);
        }
        lost.to = -2;
        if (settled) {
            settle_all(&g, KVG_OK);
            for (int r = 0; r < 4; r++) ck_assert_uint_eq(kvg_placement_plan(g.placement[r])->classes[0].units, units);
            ck_assert_uint_eq(life_stats(g.placement[0]).taken_bytes, taken);
            ck_assert_int_eq(resize_all(&g, 2 * START_BYTES), KVG_OK);
            ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){200, 70}, 2, NULL, -1), KVG_OK);
        }
        grid_close(&g); /* without a settle, too: everything comes back */
    }
}
END_TEST

LIFE_MAIN("resize", test_growing_gives_every_rank_the_same_units_and_keeps_every_row, test_units_follow_the_smallest_rank,
          test_shrinking_below_what_is_in_use_is_refused_everywhere, test_past_the_maximum_is_refused_and_names_rank_and_reason,
          test_when_one_rank_is_out_of_memory_none_has_grown, test_undecided_steps_are_decided_first_and_unposted_ones_refuse,
          test_ranks_at_different_points_are_told, test_a_resize_whose_last_vote_is_lost_is_settled_to_one_answer,
          test_a_resize_that_nobody_published_is_undone_by_settling)

/* Set-up operations among other calls: what a settle ends stays ended, whenever its caller looks at it again; what is given up puts no later epoch in doubt; and
 * a step that is begun in the middle of a change refuses it. */
#include "pp/internal.h"
#include "tests/support/grid_life.h"

#define SECOND_NS 1000000000ull

static TestGrid      g;
static LifeSequences s;
static KvgSetup     *change[TEST_RANKS_MAX]; /* every rank's resize */

static void open_ranks(uint32_t ranks)
{
    KvgPlaceOptions options = life_options(3, 4u << 20);
    KvgPolicy       policy = life_policy(0);

    grid_open(&g, ranks, 1, (uint32_t[]){2, 4, 0}, &options, &policy, 1);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    ck_assert_int_eq(life_grow(&g, s, 0, 10), KVG_OK);
}

static void settle_all(void)
{
    static const int everyone[] = {0, 1, 2, 3};
    KvgSetup        *setups[TEST_RANKS_MAX] = {0};

    for (int r = 0; r < g.ranks; r++) ck_assert_int_eq(kvg_grid_settle_start(g.grid[r], everyone, g.ranks, &setups[r]), KVG_OK);
    ck_assert_msg(grid_finish(&g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < g.ranks; r++) ck_assert_msg(kvg_grid_state(g.grid[r]) == KVG_OK, "%s", kvg_last_error());
}

static void start_change(void)
{
    for (int r = 0; r < g.ranks; r++) ck_assert_int_eq(kvg_placement_resize_start(g.placement[r], 8u << 20, &change[r]), KVG_OK);
}

/* Every rank has voted for the change, and none has looked for the others' votes since. */
static void vote_for_change(void)
{
    int done = 0;

    start_change();
    for (int rounds = 0; g.grid[0]->cast == NULL || g.grid[1]->cast == NULL; rounds++) {
        ck_assert_int_lt(rounds, 1000);
        for (int r = 0; r < 2; r++) {
            if (g.grid[r]->cast == NULL) ck_assert_int_eq(kvg_setup_test(change[r], &done), KVG_OK);
            ck_assert_int_eq(done, 0);
        }
        kvg_inproc_advance_ns(g.hub, 100000);
    }
}

/* ---- what a settle has ended */

START_TEST(test_a_change_that_a_settle_took_back_stays_so_though_its_votes_are_all_here)
{
    open_ranks(2);
    vote_for_change();
    settle_all();
    for (int r = 0; r < 2; r++) {
        int done = 0;
        ck_assert_uint_eq(life_stats(g.placement[r]).memory_bytes, 4u << 20);
        KvgStatus status = KVG_OK;
        for (int n = 0; n < 10 && !done; n++) status = kvg_setup_test(change[r], &done); /* by now every vote has come */
        ck_assert_int_eq(done, 1);
        ck_assert_int_eq(status, KVG_EPEER);
        kvg_setup_free(change[r]);
        ck_assert_uint_eq(life_stats(g.placement[r]).memory_bytes, 4u << 20);
        ck_assert_uint_eq(life_stats(g.placement[r]).resizes, 0);
    }
    life_agree(&g);
    ck_assert_int_eq(life_grow(&g, s, 0, 3), KVG_OK);
    grid_close(&g);
}
END_TEST

START_TEST(test_a_change_that_a_settle_has_made_is_not_made_again)
{
    KvgStatus status = KVG_OK;
    int       done = 0;

    open_ranks(2);
    vote_for_change();
    while (!done) ck_assert_int_eq(kvg_setup_test(change[0], &done), KVG_OK); /* rank 0 has made it, and rank 1 cannot know */
    kvg_setup_free(change[0]);
    settle_all();
    ck_assert_uint_eq(life_stats(g.placement[1]).resizes, 1);
    for (done = 0; !done;) status = kvg_setup_test(change[1], &done);
    ck_assert_int_eq(status, KVG_EPEER);
    kvg_setup_free(change[1]);
    for (int r = 0; r < 2; r++) {
        ck_assert_uint_eq(life_stats(g.placement[r]).resizes, 1);
        ck_assert_uint_eq(life_stats(g.placement[r]).memory_bytes, 8u << 20);
    }
    life_agree(&g);
    ck_assert_int_eq(life_grow(&g, s, 0, 3), KVG_OK);
    grid_close(&g);
}
END_TEST

START_TEST(test_what_a_settle_has_ended_is_freed_without_a_doubt)
{
    open_ranks(2);
    vote_for_change();
    settle_all();
    for (int r = 0; r < 2; r++) {
        kvg_setup_free(change[r]); /* never looked at again */
        ck_assert_msg(kvg_grid_state(g.grid[r]) == KVG_OK, "%s", kvg_last_error());
    }
    ck_assert_int_eq(life_grow(&g, s, 0, 3), KVG_OK);
    grid_close(&g);
}
END_TEST

/* ---- a step in the middle of a change */

START_TEST(test_a_change_refuses_where_a_step_has_begun_since_it_did)
{
    KvgStep *steps[2];

    open_ranks(2);
    start_change();
    for (int r = 0; r < 2; r++) steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){3}, 1, 0);
    for (int r = 0; r < 2; r++) {
        int       done = 0;
        KvgStatus status = KVG_OK;
        for (uint64_t began = kvg_inproc_now_ns(g.hub); !done; kvg_inproc_advance_ns(g.hub, 1000000)) {
            ck_assert_msg(kvg_inproc_now_ns(g.hub) - began < 3 * SECOND_NS, "it waits for a step that nobody posts");
            status = kvg_setup_test(change[r], &done);
        }
        ck_assert_msg(status == KVG_EBUSY && strstr(kvg_last_error(), "begun and not posted") != NULL, "%s", kvg_last_error());
        kvg_setup_free(change[r]);
    }
    for (int r = 0; r < 2; r++) grid_post(&g, r, steps[r], NULL, KVG_OK);
    ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_OK);
    grid_close(&g);
}
END_TEST

LIFE_MAIN("setups", test_a_change_that_a_settle_took_back_stays_so_though_its_votes_are_all_here, test_a_change_that_a_settle_has_made_is_not_made_again,
          test_what_a_settle_has_ended_is_freed_without_a_doubt, test_a_change_refuses_where_a_step_has_begun_since_it_did)

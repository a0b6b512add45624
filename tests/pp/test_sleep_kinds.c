/* Sleep and wake with recurrent columns and index rings, on a device that fills what it extends with bytes that mean nothing: a life after waking is as the
 * one before. */
#define KVG_TEST_INDIRECT 1
#include "tests/support/grid_life.h"
#include "tests/support/kinds_run.h"

typedef KvgStatus (*Start)(KvgPlacement *placement, KvgSetup **setup);

static void on_all(TestGrid *g, Start start)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    KvgStatus each[TEST_RANKS_MAX];

    for (int r = 0; r < g->ranks; r++) ck_assert_msg(start(g->placement[r], &setups[r]) == KVG_OK, "%s", kvg_last_error());
    grid_finish(g, setups, each);
    for (int r = 0; r < g->ranks; r++) ck_assert_int_eq(each[r], KVG_OK);
}

static void reopen(Run *run)
{
    run->rows = run->replay = 0;
    for (int r = 0; r < run->g.ranks; r++) {
        ck_assert_int_eq(kvg_sequence_open(run->g.placement[r], 100, 0, &run->s[r][0]), KVG_OK);
        ck_assert_int_eq(kvg_batch_set(run->g.batch[r], 0, run->s[r][0]), KVG_OK);
    }
}

static void live(Run *run, char digest[33])
{
    ck_assert_int_eq(run_step(run, (uint32_t[]){70}, 1, 70, -1), KVG_OK);
    for (int step = 0; step < 4; step++) ck_assert_int_eq(run_step(run, (uint32_t[]){3}, 1, 1 + (uint32_t)step % 3, -1), KVG_OK);
    run_digest(run, digest);
    for (int r = 0; r < run->g.ranks; r++) ck_assert_int_eq(kvg_sequence_close(run->s[r][0], NULL), KVG_OK);
}

START_TEST(test_every_kind_of_state_sleeps_and_begins_anew)
{
    for (int m = 0; m < MODELS; m++) {
        for (int layout = 0; layout < 2; layout++) {
            Run      run;
            char     before[33], after[33];
            uint64_t taken[TEST_RANKS_MAX];
            open_run(&run, models[m], 2, m % 2 ? 1 : 2, layout ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL, 4, m == 1 ? 32 : -1, 0);
            live(&run, before);
            for (int r = 0; r < run.g.ranks; r++) taken[r] = life_stats(run.g.placement[r]).taken_bytes;
            on_all(&run.g, kvg_placement_sleep_start);
            for (int r = 0; r < run.g.ranks; r++) { /* tables and lengths */
                ck_assert_uint_le(life_stats(run.g.placement[r]).taken_bytes, 16 << 10);
                if (!layout) ck_assert_uint_lt(life_stats(run.g.placement[r]).taken_bytes, taken[r]); /* flat planes hold nothing once all is closed */
            }
            on_all(&run.g, kvg_placement_wake_start);
            reopen(&run);
            live(&run, after);
            ck_assert_str_eq(before, after);
            for (int r = 0; r < run.g.ranks; r++) ck_assert_uint_eq(life_stats(run.g.placement[r]).taken_bytes, taken[r]);
            grid_close(&run.g);
        }
    }
}
END_TEST

LIFE_MAIN("sleep_kinds", test_every_kind_of_state_sleeps_and_begins_anew)

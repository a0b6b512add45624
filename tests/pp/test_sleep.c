/* Sleep and wake: voted; the memory goes and comes at the same addresses; slabs made ahead of a resize. */
#include "tests/support/grid_life.h"

#define START_BYTES (512u << 10)

static void open_grid(TestGrid *g, uint32_t tp, uint32_t pp, KvLayout layout)
{
    KvgPlaceOptions options = life_options(4, START_BYTES);
    KvgPolicy       policy = life_policy(1);
    options.memory_max_bytes = 1200u << 10;
    options.layout = layout;
    options.prefill_chunk_max = 256;
    grid_open(g, tp, pp, (uint32_t[]){4, 4, 64}, &options, &policy, 2);
}

typedef KvgStatus (*Start)(KvgPlacement *placement, KvgSetup **setup);

static KvgStatus start_resize(KvgPlacement *placement, KvgSetup **setup)
{
    return kvg_placement_resize_start(placement, 2 * START_BYTES, setup);
}

/* The operation on every rank; a rank that could not even start answers so. */
static KvgStatus all(TestGrid *g, Start start, KvgStatus *each)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    KvgStatus own[TEST_RANKS_MAX], *answers = each != NULL ? each : own;
    for (int r = 0; r < g->ranks; r++) answers[r] = start(g->placement[r], &setups[r]);
    grid_finish(g, setups, answers);
    for (int r = 1; r < g->ranks; r++) ck_assert_int_eq(answers[r] == KVG_OK, answers[0] == KVG_OK);
    for (int r = 0; r < g->ranks; r++) ck_assert_int_eq(kvg_placement_asleep(g->placement[r]), kvg_placement_asleep(g->placement[0]));
    life_agree(g);
    return answers[0];
}

static void run_sequence(TestGrid *g, uint64_t id, char digest[33])
{
    LifeSequences s;
    ck_assert_int_eq(life_open(g, s, 0, id, 0), KVG_OK);
    ck_assert_int_eq(life_open(g, s, 1, id + 100, 0), KVG_OK);
    ck_assert_int_eq(grid_step(g, s, (uint32_t[]){100, 30}, 2, NULL, -1), KVG_OK);
    ck_assert_int_eq(grid_step(g, s, (uint32_t[]){1, 8}, 2, NULL, -1), KVG_OK);
    grid_digest(g, s, 0, digest);
    for (uint32_t q = 0; q < 2; q++) ck_assert_int_eq(life_close(g, s, q), KVG_OK);
}

START_TEST(test_sleep_gives_all_rows_back_and_wake_brings_them_to_the_same_addresses)
{
    static const uint32_t grids[][2] = {{1, 1}, {2, 2}};
    for (int i = 0; i < 4; i++) {
        TestGrid    g;
        char        before[33], after[33];
        KvPlaneView views[TEST_RANKS_MAX];
        uint64_t    taken[TEST_RANKS_MAX];
        open_grid(&g, grids[i / 2][0], grids[i / 2][1], i % 2 ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL);
        run_sequence(&g, 5, before);
        for (int r = 0; r < g.ranks; r++) {
            uint32_t lo, hi;
            kvg_placement_layers(g.placement[r], &lo, &hi);
            views[r] = *kvg_placement_view(g.placement[r], lo);
            taken[r] = life_stats(g.placement[r]).taken_bytes;
        }
        for (int round = 0; round < 2; round++) {
            ck_assert_int_eq(all(&g, kvg_placement_sleep_start, NULL), KVG_OK);
            for (int r = 0; r < g.ranks; r++) {
                ck_assert_int_eq(kvg_placement_asleep(g.placement[r]), 1);
                /* tables and lengths alone: 4 slots x 2 classes x 32 entries and a few words */
                ck_assert_uint_le(life_stats(g.placement[r]).taken_bytes, 4 * (6 + 2 * 33) * 4);
            }
            ck_assert_int_eq(all(&g, kvg_placement_wake_start, NULL), KVG_OK);
            for (int r = 0; r < g.ranks; r++) {
                uint32_t lo, hi;
                kvg_placement_layers(g.placement[r], &lo, &hi);
                ck_assert_mem_eq(&views[r], kvg_placement_view(g.placement[r], lo), sizeof views[r]);
                ck_assert_uint_eq(life_stats(g.placement[r]).taken_bytes, taken[r]);
            }
            run_sequence(&g, 5, after);
            ck_assert_str_eq(before, after);
        }
        grid_close(&g);
    }
}
END_TEST

START_TEST(test_sleep_is_busy_on_every_rank_while_a_sequence_is_open_or_a_step_unposted)
{
    TestGrid      g;
    LifeSequences s;
    KvgStatus     each[TEST_RANKS_MAX];
    KvgStep      *steps[TEST_RANKS_MAX];
    KvgSetup     *setup;
    char          before[33], after[33];
    open_grid(&g, 2, 2, KVG_LAYOUT_POOL);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    ck_assert_int_eq(life_grow(&g, s, 0, 100), KVG_OK);
    grid_digest(&g, s, 0, before);
    ck_assert_int_eq(all(&g, kvg_placement_sleep_start, each), KVG_EBUSY);
    for (int r = 0; r < 4; r++) ck_assert_int_eq(each[r], KVG_EBUSY);
    grid_digest(&g, s, 0, after);
    ck_assert_str_eq(before, after);
    for (int r = 0; r < 4; r++) {
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){5, 0}, 1, 0);
        ck_assert_int_eq(kvg_placement_sleep_start(g.placement[r], &setup), KVG_EBUSY);
        ck_assert_ptr_nonnull(strstr(kvg_last_error(), "not posted"));
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    ck_assert_int_eq(kvg_step_wait(steps[1], NULL), KVG_OK); /* undecided elsewhere: sleep decides it first */
    ck_assert_int_eq(life_close(&g, s, 0), KVG_OK);
    ck_assert_int_eq(all(&g, kvg_placement_sleep_start, NULL), KVG_OK);
    ck_assert_int_eq(all(&g, kvg_placement_sleep_start, each), KVG_EBUSY);
    ck_assert_int_eq(all(&g, kvg_placement_wake_start, NULL), KVG_OK);
    ck_assert_int_eq(all(&g, kvg_placement_wake_start, each), KVG_EINVAL);
    grid_close(&g);
}
END_TEST

START_TEST(test_a_sleeping_placement_refuses_every_other_call_by_name)
{
    TestGrid      g;
    LifeSequences s;
    KvgSequence  *fresh = NULL;
    KvgSetup     *setup;
    KvgBatch     *batch = NULL;
    KvgStep      *step = NULL;
    char          digest[33];
    open_grid(&g, 2, 1, KVG_LAYOUT_POOL);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    ck_assert_int_eq(life_close(&g, s, 0), KVG_OK);
    ck_assert_int_eq(all(&g, kvg_placement_sleep_start, NULL), KVG_OK);
    ck_assert_int_eq(LIFE_ALL(&g, r, kvg_sequence_open(g.placement[r], 7, 0, &fresh)), KVG_EBUSY);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "asleep"));
    for (int r = 0; r < 2; r++) {
        KvgLedger ledger;
        ck_assert_int_eq(kvg_batch_create(g.placement[r], 1, &batch), KVG_EBUSY);
        ck_assert_int_eq(kvg_step_begin(g.batch[r], (uint32_t[]){0, 0}, &step), KVG_EBUSY);
        ck_assert_ptr_nonnull(strstr(kvg_last_error(), "asleep"));
        ck_assert_int_eq(kvg_placement_resize_start(g.placement[r], 2 * START_BYTES, &setup), KVG_EBUSY);
        ck_assert_int_eq(kvg_placement_prepare(g.placement[r], 2 * START_BYTES), KVG_EBUSY);
        ck_assert_int_eq(kvg_sequence_book(s[r][0], 5), KVG_ESTALE);
        ck_assert_int_eq(kvg_sequence_rewind(s[r][0], 0), KVG_ESTALE);
        ck_assert_int_eq(kvg_sequence_close(s[r][0], NULL), KVG_ESTALE);
        kvg_placement_ledger(g.placement[r], &ledger); /* looking is legal */
        ck_assert_uint_eq(ledger.slots_free, 4);
    }
    ck_assert_int_eq(all(&g, kvg_placement_wake_start, NULL), KVG_OK);
    run_sequence(&g, 3, digest);
    ck_assert_int_eq(all(&g, kvg_placement_sleep_start, NULL), KVG_OK);
    grid_close(&g); /* destroyed asleep */
}
END_TEST

/* Whichever rank makes the nth acquisition fails there: all or none, and a later try succeeds. */
static int try_all(Start start, uint64_t nth, TestGrid *g)
{
    KvgStatus each[TEST_RANKS_MAX];
    kvg_fault_arm(nth);
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    for (int r = 0; r < g->ranks; r++) each[r] = start(g->placement[r], &setups[r]);
    grid_finish(g, setups, each);
    int hit = kvg_fault_disarm();
    for (int r = 0; r < g->ranks; r++) {
        ck_assert_msg((each[r] == KVG_OK) == (each[0] == KVG_OK), "acquisition %llu: rank %d %s, rank 0 %s", (unsigned long long)nth, r,
                      kvg_status_name(each[r]), kvg_status_name(each[0]));
        ck_assert_int_eq(kvg_placement_asleep(g->placement[r]), kvg_placement_asleep(g->placement[0]));
    }
    life_agree(g);
    return hit;
}

START_TEST(test_a_wake_that_one_rank_has_no_memory_for_leaves_all_asleep_and_holding_nothing)
{
    TestGrid g;
    char     digest[33];
    int      refused = 0, hit = 1;
    open_grid(&g, 2, 2, KVG_LAYOUT_POOL);
    for (uint64_t nth = 0; hit; nth++) {
        ck_assert_int_eq(all(&g, kvg_placement_sleep_start, NULL), KVG_OK);
        uint64_t asleep[4];
        for (int r = 0; r < 4; r++) asleep[r] = life_stats(g.placement[r]).taken_bytes;
        hit = try_all(kvg_placement_wake_start, nth, &g);
        if (kvg_placement_asleep(g.placement[0])) {
            for (int r = 0; r < 4; r++) ck_assert_uint_eq(life_stats(g.placement[r]).taken_bytes, asleep[r]);
            refused++;
            ck_assert_int_eq(all(&g, kvg_placement_wake_start, NULL), KVG_OK);
        }
    }
    ck_assert_int_gt(refused, 4 * 4); /* every plane of every rank at least */
    run_sequence(&g, 3, digest);
    grid_close(&g);
}
END_TEST

START_TEST(test_a_sleep_that_fails_on_one_rank_puts_none_to_sleep)
{
    TestGrid g;
    char     digest[33];
    int      hit = 1, slept = 0, refused = 0;
    open_grid(&g, 2, 2, KVG_LAYOUT_POOL);
    for (uint64_t nth = 0; hit; nth++) {
        hit = try_all(kvg_placement_sleep_start, nth, &g);
        if (kvg_placement_asleep(g.placement[0])) {
            slept++; /* what a rank could not give back is counted as taken, and wake finds it */
            ck_assert_int_eq(all(&g, kvg_placement_wake_start, NULL), KVG_OK);
        } else {
            refused++;
        }
    }
    run_sequence(&g, 3, digest);
    ck_assert_int_gt(slept, 1);
    ck_assert_int_gt(refused, 4);
    grid_close(&g);
}
END_TEST

static KvgStatus place_plain(TestGrid *g, int plain_rank, KvDev dev[2])
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    for (int r = 0; r < 2; r++) ck_assert_int_eq(r == plain_rank ? kvg_dev_host_plain(&dev[r]) : kvg_dev_host(&dev[r]), KVG_OK);
    grid_connect(g, 2, 1, NULL, 0);
    g->config = test_model(2, 4, 0, 2048);
    for (int r = 0; r < 2; r++) {
        KvgPlaceOptions options = life_options(2, START_BYTES);
        options.device = &dev[r];
        ck_assert_int_eq(kvg_place_start(g->grid[r], &g->config, &options, &g->placement[r], &setups[r]), KVG_OK);
    }
    return grid_finish(g, setups, NULL);
}

START_TEST(test_a_rank_whose_device_keeps_no_addresses_refuses_for_all)
{
    TestGrid  g;
    KvDev     dev[2];
    KvgStatus each[TEST_RANKS_MAX];
    ck_assert_int_eq(place_plain(&g, 1, dev), KVG_OK);
    ck_assert_int_eq(all(&g, kvg_placement_sleep_start, each), KVG_EREFUSED);
    ck_assert_int_eq(each[1], KVG_EREFUSED);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "host_plain"));
    ck_assert_int_eq(kvg_placement_prepare(g.placement[1], START_BYTES), KVG_ENOTSUP);
    grid_close(&g);
    for (int r = 0; r < 2; r++) kvg_dev_close(&dev[r]);
}
END_TEST

START_TEST(test_ranks_at_different_points_are_told)
{
    TestGrid     g;
    KvgSequence *extra;
    KvgStatus    each[TEST_RANKS_MAX];
    open_grid(&g, 2, 2, KVG_LAYOUT_POOL);
    ck_assert_int_eq(kvg_sequence_open(g.placement[3], 50, 0, &extra), KVG_OK);
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_placement_sleep_start(g.placement[r], &setups[r]), KVG_OK);
    grid_finish(&g, setups, each);
    for (int r = 0; r < 4; r++) ck_assert_int_eq(each[r], KVG_ELAYOUT);
    grid_close(&g);
}
END_TEST

/* ---- ahead */

/* Extends that took something. */
static uint64_t memory_calls;
static const KvDevOps *inner;

static KvgStatus count_extend(void *self, KvRange *range, size_t bytes)
{
    memory_calls += bytes > range->taken;
    return inner->extend(self, range, bytes);
}

START_TEST(test_slabs_made_ahead_leave_a_resize_nothing_to_take)
{
    TestGrid        g;
    KvDev           dev;
    KvDevOps        ops;
    KvgPlaceOptions options = life_options(4, START_BYTES);
    char            digest[33];
    ck_assert_int_eq(kvg_dev_host(&dev), KVG_OK);
    inner = dev.ops;
    ops = *dev.ops;
    ops.extend = count_extend;
    dev.ops = &ops;
    options.device = &dev;
    options.memory_max_bytes = 1200u << 10;
    grid_open(&g, 2, 2, (uint32_t[]){4, 4, 64}, &options, NULL, 2);
    for (int ahead = 0; ahead < 2; ahead++) {
        uint64_t taken[4];
        for (int r = 0; r < 4; r++) {
            taken[r] = life_stats(g.placement[r]).taken_bytes;
            if (ahead) ck_assert_int_eq(kvg_placement_prepare(g.placement[r], 2 * START_BYTES), KVG_OK);
            ck_assert_int_eq(life_stats(g.placement[r]).taken_bytes > taken[r], ahead);
            taken[r] = life_stats(g.placement[r]).taken_bytes;
        }
        run_sequence(&g, 9, digest); /* what is ahead is no capacity yet, and in nobody's way */
        memory_calls = 0;
        ck_assert_int_eq(all(&g, start_resize, NULL), KVG_OK);
        if (ahead) ck_assert_uint_eq(memory_calls, 0);
        else ck_assert_uint_gt(memory_calls, 0);
        for (int r = 0; ahead && r < 4; r++) ck_assert_uint_eq(life_stats(g.placement[r]).taken_bytes, taken[r]);
        KvgSetup *setups[TEST_RANKS_MAX] = {0};
        for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_placement_resize_start(g.placement[r], START_BYTES, &setups[r]), KVG_OK);
        ck_assert_int_eq(grid_finish(&g, setups, NULL), KVG_OK);
    }
    grid_close(&g);
    ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), 0);
    kvg_dev_close(&dev);
}
END_TEST

START_TEST(test_what_is_ahead_is_bounded_and_goes_back_on_call_on_a_smaller_resize_and_on_sleep)
{
    TestGrid g;
    open_grid(&g, 1, 1, KVG_LAYOUT_POOL);
    uint64_t start = life_stats(g.placement[0]).taken_bytes, some, most;
    ck_assert_int_eq(kvg_placement_prepare(g.placement[0], 700u << 10), KVG_OK);
    some = life_stats(g.placement[0]).taken_bytes;
    ck_assert_int_eq(kvg_placement_prepare(g.placement[0], 1200u << 10), KVG_OK);
    most = life_stats(g.placement[0]).taken_bytes;
    ck_assert(start < some && some < most);
    ck_assert_int_eq(kvg_placement_prepare(g.placement[0], (uint64_t)1 << 40), KVG_OK); /* no further than memory_max_bytes */
    ck_assert_uint_eq(life_stats(g.placement[0]).taken_bytes, most);
    ck_assert_int_eq(kvg_placement_prepare(g.placement[0], 700u << 10), KVG_OK);
    ck_assert_uint_eq(life_stats(g.placement[0]).taken_bytes, some);
    ck_assert_int_eq(kvg_placement_prepare(g.placement[0], 0), KVG_OK);
    ck_assert_uint_eq(life_stats(g.placement[0]).taken_bytes, start);
    ck_assert_int_eq(kvg_placement_prepare(g.placement[0], 1200u << 10), KVG_OK);
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    ck_assert_int_eq(kvg_placement_resize_start(g.placement[0], 700u << 10, &setups[0]), KVG_OK);
    ck_assert_int_eq(grid_finish(&g, setups, NULL), KVG_OK);
    ck_assert_uint_eq(life_stats(g.placement[0]).taken_bytes, some); /* the rest went back */
    ck_assert_int_eq(kvg_placement_prepare(g.placement[0], 1200u << 10), KVG_OK);
    ck_assert_int_eq(all(&g, kvg_placement_sleep_start, NULL), KVG_OK);
    ck_assert_int_eq(all(&g, kvg_placement_wake_start, NULL), KVG_OK);
    ck_assert_uint_eq(life_stats(g.placement[0]).taken_bytes, some);
    grid_close(&g);
}
END_TEST

START_TEST(test_slabs_that_cannot_be_made_ahead_change_nothing)
{
    TestGrid g;
    char     digest[33];
    int      hit = 1, failed = 0;
    open_grid(&g, 1, 1, KVG_LAYOUT_POOL);
    for (uint64_t nth = 0; hit; nth++) {
        uint64_t taken = life_stats(g.placement[0]).taken_bytes;
        kvg_fault_arm(nth);
        KvgStatus status = kvg_placement_prepare(g.placement[0], 1000u << 10);
        hit = kvg_fault_disarm();
        ck_assert_int_eq(status, hit ? KVG_ENOMEM : KVG_OK);
        if (hit) ck_assert_uint_eq(life_stats(g.placement[0]).taken_bytes, taken);
        failed += hit;
    }
    ck_assert_int_gt(failed, 4);
    run_sequence(&g, 2, digest);
    grid_close(&g);
    open_grid(&g, 1, 1, KVG_LAYOUT_FLAT);
    ck_assert_int_eq(kvg_placement_prepare(g.placement[0], 1000u << 10), KVG_ENOTSUP);
    ck_assert_int_eq(kvg_placement_prepare(NULL, 0), KVG_EINVAL);
    grid_close(&g);
}
END_TEST

LIFE_MAIN("sleep", test_sleep_gives_all_rows_back_and_wake_brings_them_to_the_same_addresses,
          test_sleep_is_busy_on_every_rank_while_a_sequence_is_open_or_a_step_unposted,
          test_a_sleeping_placement_refuses_every_other_call_by_name,
          test_a_wake_that_one_rank_has_no_memory_for_leaves_all_asleep_and_holding_nothing,
          test_a_sleep_that_fails_on_one_rank_puts_none_to_sleep, test_a_rank_whose_device_keeps_no_addresses_refuses_for_all,
          test_ranks_at_different_points_are_told, test_slabs_made_ahead_leave_a_resize_nothing_to_take,
          test_what_is_ahead_is_bounded_and_goes_back_on_call_on_a_smaller_resize_and_on_sleep,
          test_slabs_that_cannot_be_made_ahead_change_nothing)

/* Memory measured at placement: shares of ranks on one memory, told bytes beside measured ones, reserves, devices that cannot say. */
#include "pp/place.h"
#include "tests/support/grid_life.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

/* A host device that says what it has free as the test asks. */
typedef struct Free {
    KvDev       dev;
    KvDevOps    ops;
    KvAvailable free;
    KvgStatus   status;
} Free;
static Free devices[4];

static KvgStatus say_free(void *self, KvAvailable *available)
{
    for (int r = 0; r < 4; r++) {
        if (devices[r].dev.self == self) {
            *available = devices[r].free;
            return devices[r].status == KVG_OK ? KVG_OK : kvg_fail(devices[r].status, "the test's device does not know");
        }
    }
    ck_abort();
}

static void open_devices(const KvAvailable free[4])
{
    for (int r = 0; r < 4; r++) {
        ck_assert_int_eq(kvg_dev_host(&devices[r].dev), KVG_OK);
        devices[r].ops = *devices[r].dev.ops;
        devices[r].ops.available = say_free;
        devices[r].dev.ops = &devices[r].ops;
        devices[r].free = free[r];
        devices[r].status = KVG_OK;
    }
}

static void close_devices(void)
{
    for (int r = 0; r < 4; r++) kvg_dev_close(&devices[r].dev);
}

/* Each rank of a 2x2 grid on its device; bytes told a rank, 0: measured. */
static void place(TestGrid *g, const uint64_t told[4], uint64_t reserve, KvgStatus each[4], char why[4][384])
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    KvgPolicy policy = life_policy(1);
    int       done[4] = {0}, left = 4;

    grid_connect(g, 2, 2, &policy, 0);
    g->config = test_model(4, 4, 0, 2048);
    for (int r = 0; r < 4; r++) {
        KvgPlaceOptions options = life_options(4, told[r]);
        options.device = &devices[r].dev;
        options.memory_reserve_bytes = reserve;
        ck_assert_int_eq(kvg_place_start(g->grid[r], &g->config, &options, &g->placement[r], &setups[r]), KVG_OK);
    }
    for (int rounds = 0; left > 0; rounds++) {
        ck_assert_int_lt(rounds, 100000);
        for (int r = 0; r < 4; r++) {
            if (done[r]) continue;
            each[r] = kvg_setup_test(setups[r], &done[r]);
            if (!done[r]) continue;
            snprintf(why[r], 384, "%s", each[r] == KVG_OK ? "" : kvg_last_error());
            left--;
        }
        kvg_inproc_advance_ns(g->hub, 100000);
    }
    for (int r = 0; r < 4; r++) kvg_setup_free(setups[r]);
}

static void end(TestGrid *g)
{
    grid_close(g);
    close_devices();
}

START_TEST(test_ranks_on_one_memory_share_it_evenly_after_what_others_asked_for_by_number)
{
    PlaceHello   hellos[4] = {{.memory_bytes = 0}, {.memory_bytes = 300}, {.memory_bytes = 0}, {.memory_bytes = 0, .memory_reserve_bytes = 70}};
    PlaceMeasure measures[4] = {{.available = 1000, .memory = 7}, {.available = 1100, .memory = 7}, {.available = 900, .memory = 7},
                                {.available = 1000, .memory = 8}};

    ck_assert_int_eq(kvg_place_measures(hellos, 4), 1);
    ck_assert_int_eq(kvg_place_share(hellos, measures, 4), KVG_OK);
    ck_assert_uint_eq(hellos[0].memory_bytes, 300 - 30); /* (900 - 300) / 2, less a tenth */
    ck_assert_uint_eq(hellos[1].memory_bytes, 300);
    ck_assert_uint_eq(hellos[2].memory_bytes, 270);
    ck_assert_uint_eq(hellos[3].memory_bytes, 1000 - 70); /* alone on its memory */
    ck_assert_uint_eq(hellos[0].memory_max_bytes, 4 * 270);
    ck_assert_int_eq(kvg_place_measures(hellos, 4), 0);
}
END_TEST

START_TEST(test_nothing_left_names_the_rank_and_changes_nothing)
{
    PlaceHello   hellos[2] = {{.memory_bytes = 0, .memory_reserve_bytes = 1}, {.memory_bytes = 0, .memory_reserve_bytes = 500}};
    PlaceMeasure measures[2] = {{.available = 1000, .memory = 7}, {.available = 1000, .memory = 7}};

    ck_assert_int_eq(kvg_place_share(hellos, measures, 2), KVG_ENOMEM);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "rank 1"));
    ck_assert_uint_eq(hellos[0].memory_bytes, 0);
    hellos[1].memory_reserve_bytes = 499;
    ck_assert_int_eq(kvg_place_share(hellos, measures, 2), KVG_OK);
    ck_assert_uint_eq(hellos[1].memory_bytes, 1);
    hellos[0].memory_bytes = UINT64_MAX; /* more than there is: nothing is left for the other, and nothing wraps */
    hellos[1].memory_bytes = 0;
    ck_assert_int_eq(kvg_place_share(hellos, measures, 2), KVG_ENOMEM);
    PlaceHello   greedy[3] = {{.memory_bytes = UINT64_MAX}, {.memory_bytes = UINT64_MAX}, {.memory_bytes = 0}};
    PlaceMeasure same[3] = {{.available = 1000, .memory = 7}, {.available = 1000, .memory = 7}, {.available = 1000, .memory = 7}};
    ck_assert_int_eq(kvg_place_share(greedy, same, 3), KVG_ENOMEM);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "rank 2"));
}
END_TEST

START_TEST(test_a_measured_placement_gives_every_rank_its_share_and_the_same_units)
{
    TestGrid  g, told;
    KvgStatus each[4];
    char      why[4][384];

    open_devices((KvAvailable[]){{4 * MIB, 1}, {6 * MIB, 1}, {8 * MIB, 2}, {8 * MIB, 2}});
    place(&g, (uint64_t[]){0, 0, 0, 0}, MIB, each, why);
    for (int r = 0; r < 4; r++) {
        ck_assert_msg(each[r] == KVG_OK, "%s", why[r]);
        ck_assert_uint_eq(life_stats(g.placement[r]).memory_bytes, r < 2 ? MIB : 3 * MIB);
    }
    life_agree(&g);
    uint32_t units = kvg_placement_plan(g.placement[0])->classes[0].units;
    end(&g);
    open_devices((KvAvailable[]){{0, 1}, {0, 1}, {0, 2}, {0, 2}});
    place(&told, (uint64_t[]){MIB, MIB, 3 * MIB, 3 * MIB}, 0, each, why); /* as if it had been said; nobody is asked */
    ck_assert_int_eq(each[0], KVG_OK);
    ck_assert_uint_eq(kvg_placement_plan(told.placement[0])->classes[0].units, units);
    end(&told);
}
END_TEST

START_TEST(test_one_rank_measures_and_the_others_were_told)
{
    TestGrid  g;
    KvgStatus each[4];
    char      why[4][384];

    open_devices((KvAvailable[]){{4 * MIB, 1}, {4 * MIB, 1}, {4 * MIB, 1}, {4 * MIB, 1}});
    devices[0].status = KVG_ENOTSUP; /* was told: need not know */
    place(&g, (uint64_t[]){600 * KIB, 600 * KIB, 0, 600 * KIB}, 256 * KIB, each, why);
    for (int r = 0; r < 4; r++) ck_assert_msg(each[r] == KVG_OK, "%s", why[r]);
    /* rank 0's bytes are not known to be of the same memory: its device did not say */
    ck_assert_uint_eq(life_stats(g.placement[2]).memory_bytes, 4 * MIB - 1200 * KIB - 256 * KIB);
    ck_assert_uint_eq(life_stats(g.placement[1]).memory_bytes, 600 * KIB);
    end(&g);
}
END_TEST

START_TEST(test_a_device_that_cannot_say_is_named_and_nothing_is_placed)
{
    for (int silent = 0; silent < 2; silent++) {
        TestGrid  g;
        KvgStatus each[4];
        char      why[4][384];

        open_devices((KvAvailable[]){{4 * MIB, 1}, {4 * MIB, 2}, {4 * MIB, 3}, {4 * MIB, 4}});
        if (silent) devices[3].ops.available = NULL;
        devices[3].status = silent ? KVG_OK : KVG_EDEVICE;
        place(&g, (uint64_t[]){0, 0, 0, 0}, 0, each, why);
        for (int r = 0; r < 4; r++) {
            ck_assert_int_eq(each[r], r < 3 ? KVG_EREFUSED : silent ? KVG_ENOTSUP : KVG_EDEVICE);
            ck_assert_msg(r == 3 || strstr(why[r], "rank 3") != NULL, "%s", why[r]);
            ck_assert_ptr_null(g.placement[r]);
            ck_assert_uint_eq(devices[r].dev.ops->taken_bytes(devices[r].dev.self), 0);
        }
        end(&g);
    }
}
END_TEST

START_TEST(test_the_host_says_what_the_kernel_calls_available)
{
    KvDev       dev;
    KvAvailable now = {0, 0}, again = {0, 0};

    ck_assert_int_eq(kvg_dev_host(&dev), KVG_OK);
    ck_assert_msg(dev.ops->available(dev.self, &now) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(dev.ops->available(dev.self, &again), KVG_OK);
    ck_assert_uint_gt(now.bytes, MIB);
    ck_assert_uint_lt(now.bytes, UINT64_C(1) << 50);
    ck_assert_uint_ne(now.memory, 0);
    ck_assert_uint_eq(now.memory, again.memory); /* one machine */
    kvg_dev_close(&dev);
}
END_TEST

LIFE_MAIN("place_measure", test_ranks_on_one_memory_share_it_evenly_after_what_others_asked_for_by_number,
          test_nothing_left_names_the_rank_and_changes_nothing, test_a_measured_placement_gives_every_rank_its_share_and_the_same_units,
          test_one_rank_measures_and_the_others_were_told, test_a_device_that_cannot_say_is_named_and_nothing_is_placed,
          test_the_host_says_what_the_kernel_calls_available)

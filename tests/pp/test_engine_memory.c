/* Slabs from the engine's allocator: every byte of sequence state comes from it and goes back to it; what it cannot give is ENOMEM. */
#include "tests/support/grid_life.h"

#define ALIGNED 256

/* An allocator with a budget. */
typedef struct Engine {
    size_t   held, most, left;
    uint64_t calls;
    int      crooked; /* gives addresses that are not aligned */
} Engine;

static void *engine_alloc(void *user, size_t bytes)
{
    Engine *engine = user;
    void   *memory = NULL;

    engine->calls++;
    if (bytes > engine->left || posix_memalign(&memory, ALIGNED, bytes + 8) != 0) return NULL;
    memset(memory, 0x77, bytes); /* not zeroed */
    engine->left -= bytes;
    engine->held += bytes;
    engine->most = engine->held > engine->most ? engine->held : engine->most;
    return (uint8_t *)memory + (engine->crooked ? 8 : 0);
}

static void engine_free(void *user, void *memory, size_t bytes)
{
    Engine *engine = user;

    ck_assert_uint_le(bytes, engine->held);
    engine->held -= bytes;
    engine->left += bytes;
    free((uint8_t *)memory - (engine->crooked ? 8 : 0));
}

static KvDev open_engine(Engine *engine, size_t budget)
{
    KvMemory memory = {engine_alloc, engine_free, engine};
    KvDev    dev;

    *engine = (Engine){.left = budget};
    ck_assert_int_eq(kvg_dev_host_memory(&memory, &dev), KVG_OK);
    memset(&memory, 0, sizeof memory); /* was copied */
    return dev;
}

static KvgPlaceOptions options_for(const KvDev *dev, KvLayout layout)
{
    KvgPlaceOptions options = life_options(4, 512u << 10);

    options.device = dev;
    options.layout = layout;
    options.prefill_chunk_max = 256;
    return options;
}

static void live(TestGrid *g, char digest[33])
{
    LifeSequences s;

    ck_assert_int_eq(life_open(g, s, 0, 1, 0), KVG_OK);
    ck_assert_int_eq(life_open(g, s, 1, 2, 0), KVG_OK);
    for (int step = 0; step < 4; step++) ck_assert_int_eq(grid_step(g, s, (uint32_t[]){90, 7}, 2, NULL, -1), KVG_OK);
    grid_digest(g, s, 0, digest);
    for (uint32_t q = 0; q < 2; q++) ck_assert_int_eq(life_close(g, s, q), KVG_OK);
}

START_TEST(test_all_state_comes_from_the_engine_and_has_the_same_bytes)
{
    for (int layout = 0; layout < 2; layout++) {
        TestGrid  g;
        Engine    engine;
        KvgPolicy policy = life_policy(1);
        char      expected[33], digest[33];

        KvgPlaceOptions plain = options_for(NULL, layout ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL);
        grid_open(&g, 2, 1, (uint32_t[]){4, 4, 64}, &plain, &policy, 2);
        live(&g, expected);
        grid_close(&g);

        KvDev           dev = open_engine(&engine, (size_t)64 << 20);
        KvgPlaceOptions options = options_for(&dev, layout ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL);
        grid_open(&g, 2, 1, (uint32_t[]){4, 4, 64}, &options, &policy, 2);
        size_t placed = engine.held;
        ck_assert_uint_gt(placed, layout ? 0 : 512u << 10);
        ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), engine.held);
        live(&g, digest);
        ck_assert_str_eq(digest, expected);
        if (layout) ck_assert_uint_gt(engine.most, placed); /* flat planes grew by copying */
        else ck_assert_uint_eq(engine.most, placed);
        ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), engine.held);
        ck_assert_uint_le(life_stats(g.placement[0]).taken_bytes, engine.held);
        grid_close(&g);
        ck_assert_uint_eq(engine.held, 0);
        kvg_dev_close(&dev);
    }
}
END_TEST

START_TEST(test_an_allocator_that_gives_nothing_is_out_of_memory_by_name)
{
    Engine    engine;
    KvDev     dev = open_engine(&engine, 200u << 10); /* some of what is wanted */
    TestGrid  g;
    KvgStatus each[TEST_RANKS_MAX];

    KvgPlaceOptions options = options_for(&dev, KVG_LAYOUT_POOL);
    grid_connect(&g, 1, 1, NULL, 0);
    g.config = test_model(4, 4, 0, 2048);
    ck_assert_int_eq(grid_place(&g, &g.config, &options, each), KVG_ENOMEM);
    ck_assert_msg(strstr(kvg_last_error(), "engine's allocator") != NULL, "%s", kvg_last_error());
    ck_assert_uint_eq(engine.held, 0);
    options.memory_bytes = 0; /* nor can it be asked what it has */
    ck_assert_int_eq(grid_place(&g, &g.config, &options, each), KVG_ENOTSUP);
    grid_close(&g);
    kvg_dev_close(&dev);
}
END_TEST

START_TEST(test_addresses_that_are_not_aligned_are_refused_and_given_back)
{
    Engine engine;
    KvDev  dev = open_engine(&engine, 1u << 20), none;
    void  *memory = NULL;

    engine.crooked = 1;
    ck_assert_int_eq(dev.ops->zeros(dev.self, 1000, &memory), KVG_EINVAL);
    ck_assert_uint_eq(engine.held, 0);
    ck_assert_uint_eq(engine.calls, 1);
    engine.crooked = 0;
    ck_assert_int_eq(dev.ops->zeros(dev.self, 1000, &memory), KVG_OK);
    for (size_t i = 0; i < 1000; i++) {
        if (((uint8_t *)memory)[i] != 0) ck_abort_msg("byte %zu is not zero", i);
    }
    dev.ops->free(dev.self, memory);
    ck_assert_int_eq(kvg_dev_host_memory(NULL, &none), KVG_EINVAL);
    ck_assert_int_eq(kvg_dev_host_memory(&(KvMemory){engine_alloc, NULL, NULL}, &none), KVG_EINVAL);
    kvg_dev_close(&dev);
}
END_TEST

START_TEST(test_sleep_growth_of_pools_and_slabs_ahead_are_refused_by_name)
{
    Engine    engine;
    KvDev     dev = open_engine(&engine, (size_t)64 << 20);
    TestGrid  g;
    KvgPolicy policy = life_policy(1);
    char      digest[33];

    KvgPlaceOptions options = options_for(&dev, KVG_LAYOUT_POOL);
    grid_open(&g, 1, 1, (uint32_t[]){4, 4, 64}, &options, &policy, 2);
    ck_assert_int_eq(kvg_placement_sleep(g.placement[0]), KVG_EREFUSED);
    ck_assert_msg(strstr(kvg_last_error(), "host_memory") != NULL, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_placement_asleep(g.placement[0]), 0);
    ck_assert_int_eq(kvg_placement_resize(g.placement[0], 1u << 20), KVG_EREFUSED);
    ck_assert_msg(strstr(kvg_last_error(), "ENOTSUP") != NULL, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_placement_prepare(g.placement[0], 1u << 20), KVG_ENOTSUP);
    live(&g, digest);
    grid_close(&g);
    kvg_dev_close(&dev);
}
END_TEST

LIFE_MAIN("engine_memory", test_all_state_comes_from_the_engine_and_has_the_same_bytes,
          test_an_allocator_that_gives_nothing_is_out_of_memory_by_name, test_addresses_that_are_not_aligned_are_refused_and_given_back,
          test_sleep_growth_of_pools_and_slabs_ahead_are_refused_by_name)

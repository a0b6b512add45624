/* Cache: steps, rewinds, forks, snapshots of one sequence, in every layout. */
#include "tests/runtime/state_fixture.h"

#define WINDOW  40u
#define PREFILL 100u
#define MAX_CTX 3000u

/* Loop tests run on: 0 pool, 1 flat in reserved ranges, 2 flat that grows by copying. */
enum { LAYOUTS = 3 };

static Fixture fixture;

static void open_layout(int layout, uint32_t units)
{
    fixture_open(&fixture, layout == 0 ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT, layout != 2, WINDOW, PREFILL, MAX_CTX, 4, units);
}

static void close_all(KvCache *caches, int count)
{
    for (int i = 0; i < count; i++) kvg_kv_cache_close(&caches[i], NULL);
    ck_assert_uint_eq(kvg_store_bytes(fixture.store).booked, 0);
    fixture_close(&fixture);
}

/* In steps of at most PREFILL rows; row r has key r + salt. */
static void grow_to(KvCache *cache, uint64_t len, uint64_t salt)
{
    while (cache->pos < len) {
        uint32_t rows = (uint32_t)kvg_min_u64(PREFILL, len - cache->pos);
        fixture_step(&fixture, cache, rows, rows, cache->pos + salt);
    }
}

START_TEST(test_every_row_in_view_is_held_as_it_was_written)
{
    KvCache cache;

    open_layout(_i, 64);
    kvg_kv_cache_open(fixture.store, 1, 1, &cache);
    for (uint64_t len = 1; len < 2000; len += 37) {
        grow_to(&cache, len, 0);
        ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
        ck_assert(fixture_row_is(&fixture, 1, len, len - 1, len - 1));
        ck_assert(fixture_row_is(&fixture, 1, len, len / 2, len / 2));
        ck_assert(fixture_row_is(&fixture, 1, len, 0, 0));
        ck_assert(!fixture_row_is(&fixture, 1, len, len - 1, len)); /* the comparison can fail */
    }
    close_all(&cache, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache");
    TCase *steps = tcase_create("steps");

    tcase_add_loop_test(steps, test_every_row_in_view_is_held_as_it_was_written, 0, LAYOUTS);
    suite_add_tcase(suite, steps);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

/* A steady decode loop of a hybrid model allocates nothing: no call to malloc and its kin, no library allocation, no device memory. */
#include "tests/runtime/kinds_fixture.h"

#if defined(__SANITIZE_ADDRESS__) || !defined(__GLIBC__)
#define COUNTS_MALLOC 0 /* the sanitizer has its own; the library's counter and the device's are looked at all the same */
static uint64_t mallocs;
#else
#define COUNTS_MALLOC 1
static uint64_t mallocs;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    mallocs++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    mallocs++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    mallocs++;
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    mallocs++;
    return __libc_memalign(alignment, bytes);
}
#endif

enum { MAX_CTX = 3000, DRAFTS = 3, SEQUENCES = 3, ROUNDS = 400 };

static Kinds            kinds;
static KvCache          caches[SEQUENCES];
static KvCacheSnapshot *snapshots[SEQUENCES];
static uint64_t         keys[MAX_CTX];

static int write_pass(KvCache *cache, uint32_t rows)
{
    int      bad = 0;
    uint64_t row = kvg_kv_cache_pass_row(cache);
    float    a[KINDS_PREFILL * KINDS_WIDTH_MAX], b[KINDS_PREFILL * KINDS_WIDTH_MAX];

    for (uint32_t layer = 0; layer < KINDS_LAYERS; layer++) {
        bad |= kinds_write_layer(&kinds, layer, cache->slot, row, rows, keys + row, a, b) != KVG_OK;
    }
    return bad;
}

/* A round of every sequence: a snapshot now and then, drafts, a prefix of them taken, replays where they are owed. Check's assertions
 * allocate, so what went wrong is summed up. */
static int one_round(uint32_t round)
{
    int bad = 0;

    for (uint32_t i = 0; i < SEQUENCES; i++) {
        uint32_t owed = kvg_kv_cache_replay(&caches[i]);

        if (owed == 0 && round % 3 == 0) bad |= kvg_kv_cache_snapshot_into(&caches[i], snapshots[i], NULL);
        if (owed == 0 && round % 9 == 5) bad |= kvg_kv_cache_rollback(&caches[i], snapshots[i], 0, NULL);
        bad |= kvg_kv_cache_begin(&caches[i]);
        bad |= kvg_kv_cache_append(&caches[i], owed + DRAFTS, NULL);
        bad |= write_pass(&caches[i], owed + DRAFTS);
        if (round % 11 == 7) kvg_kv_cache_refuse(&caches[i]);
        else kvg_kv_cache_finalize(&caches[i], 1 + (round + i) % DRAFTS);
        kvg_kv_cache_release_behind(&caches[i]);
    }
    return bad;
}

START_TEST(test_a_steady_decode_loop_allocates_nothing)
{
    KindsShape shape = {.layout = _i < 2 ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT, .reserves = 1, .columns = _i == 0 ? DRAFTS + 1 : 2, .pool = 8,
                        .ring = 16, .max_ctx = MAX_CTX, .slots = SEQUENCES, .units = 200};
    uint64_t   live, taken, before, used;
    int        bad = 0;

    for (uint64_t i = 0; i < MAX_CTX; i++) keys[i] = i + 1;
    kinds_open(&kinds, &shape);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        kvg_kv_cache_open(kinds.store, i, i + 1, &caches[i]);
        ck_assert_int_eq(kvg_kv_cache_book(&caches[i], _i < 2 ? 100 : MAX_CTX), KVG_OK); /* pools book while they decode */
        kinds_grow(&kinds, &caches[i], 50, keys);
        ck_assert_int_eq(kvg_kv_cache_snapshot_new(&caches[i], &snapshots[i]), KVG_OK);
    }
    ck_assert_int_eq(one_round(0), 0);
    live = kvg_live_allocations();
    taken = kinds.dev.ops->taken_bytes(kinds.dev.self);
    before = mallocs;
    for (uint32_t round = 1; round < ROUNDS; round++) bad |= one_round(round);
    used = mallocs - before;
    ck_assert_int_eq(bad, 0);
    ck_assert_uint_gt(caches[0].pos, 300);
    ck_assert_uint_eq(used, 0);
    ck_assert_uint_eq(kvg_live_allocations(), live);
    ck_assert_uint_eq(kinds.dev.ops->taken_bytes(kinds.dev.self), taken);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        kinds_grow(&kinds, &caches[i], caches[i].pos + 1, keys);
        ck_assert(kinds_is(&kinds, &caches[i], keys));
        kvg_kv_cache_snapshot_free(snapshots[i]);
        kvg_kv_cache_close(&caches[i], NULL);
    }
    kinds_close(&kinds);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}
END_TEST

START_TEST(test_the_counter_counts)
{
    uint64_t before = mallocs;
    void *volatile memory = malloc(10);

    free(memory);
    ck_assert_uint_eq(mallocs - before, COUNTS_MALLOC);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("steady");
    TCase *tcase = tcase_create("steady");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_a_steady_decode_loop_allocates_nothing, 0, 3);
    tcase_add_test(tcase, test_the_counter_counts);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

/* Cache, bytes and digests: what counts as content, and leaves against rows that are encoded afresh. */
#include <xxhash.h>

#include "tests/runtime/cache_fixture.h"

START_TEST(test_content_counts_live_rows_and_booked_whole_units)
{
    open_layout(0, 64);
    KvCache cache = open_cache(0);
    grow_to(&cache, 1000, 0);
    uint64_t row0 = 2 * (34 + 24) + (16 + 8), row1 = 64 + 18, row2 = 2 * (64 + 32);
    uint64_t base = (1000 - 39 - 512) / 32 * 32;
    ck_assert_uint_eq(kvg_kv_cache_content_bytes(&cache), 1000 * row0 + (1000 - base) * row1 + 1000 * row2);
    uint64_t booked = 16 * 64 * (row0 + row2) + (16 - base / 64) * 64 * row1 + (16 + 16 + 16 - base / 64) * 4;
    ck_assert_uint_eq(kvg_store_bytes(fixture.store).booked, booked);
    close_all(&cache, 1);
}
END_TEST

/* One head's rows in order, encoded afresh. */
static void naive_leaf(const KvPlaneView *view, const KvPlane *plane, int which, uint32_t head, uint64_t from, uint64_t to,
                       uint8_t hash[16])
{
    uint8_t           *bytes = malloc((size_t)(to - from) * plane->head_bytes + 1);
    float              row[FIXTURE_ROW_FLOATS];
    XXH128_canonical_t canonical;

    for (uint64_t r = from; r < to; r++) {
        fixture_row(view, plane, which, r, row);
        kvg_encode_f32_ref(plane->format, row + head * plane->head_dim, plane->head_dim, bytes + (r - from) * plane->head_bytes, NULL);
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, (size_t)(to - from) * plane->head_bytes));
    memcpy(hash, canonical.digest, 16);
    free(bytes);
}

START_TEST(test_leaves_are_the_hashes_of_rows_encoded_afresh)
{
    KvLeaf leaves[32];

    open_layout(_i, 64);
    KvCache cache = open_cache(2);
    ck_assert_uint_eq(kvg_kv_cache_leaf_count(&cache), 2 * (2 + 1 + 1 + 2));
    for (uint64_t len = 0; len < 1400; len = len * 2 + 63) {
        grow_to(&cache, len, 0);
        ck_assert_int_eq(kvg_kv_cache_leaves(&cache, leaves), KVG_OK);
        for (size_t i = 0; i < 12; i++) {
            const KvPlaneView *view = kvg_store_view(fixture.store, leaves[i].layer);
            uint8_t            wanted[16];
            naive_leaf(view, leaves[i].plane == 0 ? &view->k : &view->v, (int)leaves[i].plane, leaves[i].head - view->head_first,
                       view->window ? kvg_view_start(len, view->window) : 0, len, wanted);
            ck_assert_mem_eq(leaves[i].hash, wanted, 16);
        }
    }
    ck_assert(leaves[0].layer == 0 && leaves[0].plane == 0 && leaves[0].head == 2); /* heads are the model's */
    close_all(&cache, 1);
}
END_TEST

START_TEST(test_one_flipped_bit_changes_the_digest)
{
    open_layout(_i, 64);
    KvCache cache = open_cache(0);
    grow_to(&cache, 700, 0);
    KvDigest before = fixture_digest(&cache);
    for (uint32_t i = 0; i < FIXTURE_LAYERS; i++) {
        const KvPlaneView *view = kvg_store_view(fixture.store, i);
        uint8_t           *byte = kvg_plane_row(view, &view->v, 0, view->heads - 1, 690) + view->v.head_bytes - 1;
        *byte ^= 0x10;
        KvDigest after = fixture_digest(&cache);
        ck_assert_mem_ne(after.bytes, before.bytes, 16);
        *byte ^= 0x10;
    }
    KvDigest again = fixture_digest(&cache);
    assert_same(&again, &before);
    close_all(&cache, 1);
}
END_TEST

START_TEST(test_the_layout_term_tells_where_staged_rows_stand)
{
    open_layout(_i, 64);
    KvCache a = open_cache(0), b = open_cache(1);
    grow_to(&a, 650, 0);
    grow_to(&b, 650, 0);
    ck_assert_uint_eq(kvg_kv_cache_layout_term(&a, 0), kvg_kv_cache_layout_term(&b, 0));
    ck_assert_uint_ne(kvg_kv_cache_layout_term(&a, 0), kvg_kv_cache_layout_term(&a, 1));
    fixture_step(&fixture, &b, 1, 0, 1);
    ck_assert_uint_eq(kvg_kv_cache_layout_term(&a, 0), kvg_kv_cache_layout_term(&b, 0)); /* rolled back, nothing moved */
    grow_to(&b, 651, 0);
    ck_assert_uint_ne(kvg_kv_cache_layout_term(&a, 0), kvg_kv_cache_layout_term(&b, 0));
    KvCache both[2] = {a, b};
    close_all(both, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_leaves");
    TCase *tcase = tcase_create("cache_leaves");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_content_counts_live_rows_and_booked_whole_units);
    tcase_add_loop_test(tcase, test_leaves_are_the_hashes_of_rows_encoded_afresh, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_one_flipped_bit_changes_the_digest, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_the_layout_term_tells_where_staged_rows_stand, 0, LAYOUTS);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

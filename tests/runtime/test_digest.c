/* Digests against hashes formed in one go from a plain buffer. */
#include <check.h>
#include <string.h>

#include <kvgrid/digest.h>
#include <xxhash.h>

static KvLeaf leaf(uint32_t layer, uint32_t plane, uint32_t head, uint8_t fill)
{
    KvLeaf made = {.layer = layer, .plane = plane, .head = head};

    for (uint8_t i = 0; i < 16; i++) made.hash[i] = (uint8_t)(fill + i);
    return made;
}

/* XXH3-128, canonical, over len little-endian and the hashes in the order given. */
static KvDigest naive(uint64_t len, const KvLeaf *leaves, size_t count)
{
    uint8_t            buffer[8 + 16 * 16];
    XXH128_canonical_t canonical;
    KvDigest           digest;

    for (int i = 0; i < 8; i++) buffer[i] = (uint8_t)(len >> (8 * i));
    for (size_t i = 0; i < count; i++) memcpy(buffer + 8 + 16 * i, leaves[i].hash, 16);
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(buffer, 8 + 16 * count));
    memcpy(digest.bytes, canonical.digest, 16);
    return digest;
}

START_TEST(test_leaves_count_in_the_order_of_layer_plane_head_whatever_order_they_come_in)
{
    KvLeaf   sorted[5] = {leaf(0, 0, 1, 10), leaf(0, 0, 2, 20), leaf(0, 1, 0, 30), leaf(1, 0, 0, 40), leaf(300, 0, 0, 50)};
    KvDigest wanted = naive(777, sorted, 5), got;
    size_t   order[5] = {3, 1, 4, 0, 2};

    for (size_t turn = 0; turn < 5; turn++) {
        KvLeaf mixed[5];
        for (size_t i = 0; i < 5; i++) mixed[i] = sorted[order[(i + turn) % 5]];
        ck_assert_int_eq(kvg_digest_combine(mixed, 5, 777, &got), KVG_OK);
        ck_assert_mem_eq(got.bytes, wanted.bytes, 16);
        ck_assert_mem_eq(mixed, sorted, sizeof sorted);
    }
}
END_TEST

START_TEST(test_equal_copies_count_once_and_copies_that_differ_are_named)
{
    KvLeaf   one[2] = {leaf(4, 0, 7, 1), leaf(4, 1, 7, 2)};
    KvLeaf   copies[5] = {leaf(4, 1, 7, 2), leaf(4, 0, 7, 1), leaf(4, 1, 7, 2), leaf(4, 0, 7, 1), leaf(4, 1, 7, 2)};
    KvDigest wanted = naive(9, one, 2), got, kept;

    ck_assert_int_eq(kvg_digest_combine(copies, 5, 9, &got), KVG_OK);
    ck_assert_mem_eq(got.bytes, wanted.bytes, 16);
    kept = got;
    copies[4].hash[15] ^= 0x80; /* one bit of the last byte */
    ck_assert_int_eq(kvg_digest_combine(copies, 5, 9, &got), KVG_ELAYOUT);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "layer 4, plane 1, head 7"));
    ck_assert_mem_eq(got.bytes, kept.bytes, 16); /* outputs change on success alone */
}
END_TEST

START_TEST(test_length_and_every_leaf_change_the_digest)
{
    KvLeaf   leaves[2] = {leaf(0, 0, 0, 1), leaf(0, 1, 0, 2)};
    KvDigest base, other;

    ck_assert_int_eq(kvg_digest_combine(leaves, 2, 64, &base), KVG_OK);
    ck_assert_int_eq(kvg_digest_combine(leaves, 2, 65, &other), KVG_OK);
    ck_assert_mem_ne(base.bytes, other.bytes, 16);
    leaves[0].hash[0] ^= 1;
    ck_assert_int_eq(kvg_digest_combine(leaves, 2, 64, &other), KVG_OK);
    ck_assert_mem_ne(base.bytes, other.bytes, 16);
    ck_assert_int_eq(kvg_digest_combine(leaves, 1, 64, &other), KVG_OK);
    ck_assert_mem_ne(base.bytes, other.bytes, 16);
}
END_TEST

START_TEST(test_no_leaves_at_all_is_a_digest_of_the_length)
{
    KvDigest wanted = naive(UINT64_C(0x0102030405060708), NULL, 0), got;

    ck_assert_int_eq(kvg_digest_combine(NULL, 0, UINT64_C(0x0102030405060708), &got), KVG_OK);
    ck_assert_mem_eq(got.bytes, wanted.bytes, 16);
}
END_TEST

START_TEST(test_hex_is_32_lower_case_digits_in_byte_order)
{
    KvDigest digest = {{0x00, 0x01, 0xfe, 0xab, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff}};
    char     hex[33];

    kvg_digest_hex(&digest, hex);
    ck_assert_str_eq(hex, "0001feab0405060708090a0b0c0d0eff");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("digest");
    TCase *all = tcase_create("digest");

    tcase_add_test(all, test_leaves_count_in_the_order_of_layer_plane_head_whatever_order_they_come_in);
    tcase_add_test(all, test_equal_copies_count_once_and_copies_that_differ_are_named);
    tcase_add_test(all, test_length_and_every_leaf_change_the_digest);
    tcase_add_test(all, test_no_leaves_at_all_is_a_digest_of_the_length);
    tcase_add_test(all, test_hex_is_32_lower_case_digits_in_byte_order);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

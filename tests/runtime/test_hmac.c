/* HMAC-SHA256 against what NIST and RFC 4231 publish, and every split of a message. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/hmac.h"

static const char *hex(const uint8_t digest[KVG_HMAC_BYTES])
{
    static char text[2 * KVG_HMAC_BYTES + 1];

    for (int i = 0; i < KVG_HMAC_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    }
    return text;
}

static const char *sha(const void *bytes, size_t byte_count)
{
    KvgSha256 hash;
    uint8_t   digest[KVG_HMAC_BYTES];

    kvg_sha256_begin(&hash);
    kvg_sha256_add(&hash, bytes, byte_count);
    kvg_sha256_end(&hash, digest);
    return hex(digest);
}

START_TEST(test_sha256_gives_the_digests_of_fips_180)
{
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    char             *million = malloc(1000000);

    ck_assert_str_eq(sha("", 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    ck_assert_str_eq(sha("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ck_assert_str_eq(sha(two_blocks, 56), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    memset(million, 'a', 1000000);
    ck_assert_str_eq(sha(million, 1000000), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}
END_TEST

START_TEST(test_sha256_does_not_depend_on_how_a_message_is_cut)
{
    uint8_t bytes[200];
    char    whole[2 * KVG_HMAC_BYTES + 1];

    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(7 * i);
    }
    for (size_t length = 50; length <= 200; length++) { /* each place of the padding, twice */
        snprintf(whole, sizeof whole, "%s", sha(bytes, length));
        for (size_t cut = 0; cut <= length; cut += 13) {
            KvgSha256 hash;
            uint8_t   digest[KVG_HMAC_BYTES];

            kvg_sha256_begin(&hash);
            kvg_sha256_add(&hash, bytes, cut);
            kvg_sha256_add(&hash, bytes + cut, length - cut);
            kvg_sha256_end(&hash, digest);
            ck_assert_str_eq(hex(digest), whole);
        }
    }
}
END_TEST

static void check_hmac(const void *key, size_t key_bytes, const void *bytes, size_t byte_count, const char *expected)
{
    uint8_t mac[KVG_HMAC_BYTES], other[KVG_HMAC_BYTES];

    kvg_hmac(key, key_bytes, bytes, byte_count, mac);
    ck_assert_str_eq(hex(mac), expected);
    for (int i = 0; i < KVG_HMAC_BYTES; i++) {
        memcpy(other, mac, sizeof other);
        ck_assert(kvg_hmac_equal(mac, other));
        other[i] ^= 0x80;
        ck_assert(!kvg_hmac_equal(mac, other));
    }
}

START_TEST(test_hmac_gives_the_macs_of_rfc_4231)
{
    uint8_t key[131], data[50];

    memset(key, 0x0b, 20);
    check_hmac(key, 20, "Hi There", 8, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    check_hmac("Jefe", 4, "what do ya want for nothing?", 28, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    memset(data, 0xdd, sizeof data);
    check_hmac(key, 20, data, 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    check_hmac(key, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54, /* longer than a block: hashed first */
               "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("hmac");
    TCase   *cases = tcase_create("hmac");
    SRunner *runner = srunner_create(suite);

    tcase_add_test(cases, test_sha256_gives_the_digests_of_fips_180);
    tcase_add_test(cases, test_sha256_does_not_depend_on_how_a_message_is_cut);
    tcase_add_test(cases, test_hmac_gives_the_macs_of_rfc_4231);
    suite_add_tcase(suite, cases);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);

    srunner_free(runner);
    return failed != 0 || ran == 0;
}

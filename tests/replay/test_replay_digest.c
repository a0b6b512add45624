/* Tests of the run's digest as a value: order, refusals, and the bytes they leave. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "launch/command/replay_digest.h"

START_TEST(test_the_digest_is_of_the_sequence_digests_in_trace_order)
{
    KvDigest sequences[3], final, swapped;
    uint8_t  refused[3] = { 0 };
    for (int i = 0; i < 3; i++) {
        memset(sequences[i].bytes, 0x11 * (i + 1), 16);
    }
    XXH128_canonical_t want;
    XXH128_canonicalFromHash(&want, XXH3_128bits(sequences, sizeof sequences));
    ck_assert_int_eq(kvg_replay_digest_of(sequences, refused, 3, &final), KVG_OK);
    ck_assert_mem_eq(final.bytes, want.digest, 16);
    KvDigest first = sequences[0];
    sequences[0] = sequences[1];
    sequences[1] = first;
    ck_assert_int_eq(kvg_replay_digest_of(sequences, refused, 3, &swapped), KVG_OK);
    ck_assert_mem_ne(swapped.bytes, final.bytes, 16);
}
END_TEST

START_TEST(test_a_refused_request_leaves_its_index_and_the_word)
{
    KvDigest sequences[2] = { { { 0xaa } }, { { 0 } } }, final;
    uint8_t  refused[2] = { 0, 1 };
    uint8_t  bytes[16 + 8 + 7] = { 0xaa };
    bytes[16] = 1; /* the index, little-endian */
    memcpy(bytes + 24, "refused", 7);
    XXH128_canonical_t want;
    XXH128_canonicalFromHash(&want, XXH3_128bits(bytes, sizeof bytes));
    ck_assert_int_eq(kvg_replay_digest_of(sequences, refused, 2, &final), KVG_OK);
    ck_assert_mem_eq(final.bytes, want.digest, 16);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replay_digest");
    TCase *cases = tcase_create("digest");
    tcase_add_test(cases, test_the_digest_is_of_the_sequence_digests_in_trace_order);
    tcase_add_test(cases, test_a_refused_request_leaves_its_index_and_the_word);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

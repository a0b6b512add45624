/* Memory: arrays of the right size, zeroed and counted; a failure that a test asks for comes once, and changes nothing. */
#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/memory.h"
#include "tests/support/no_leak.h"

typedef struct Crate {
    uint64_t id;
    char     label[24];
} Crate;

START_TEST(test_memory_new_array_has_the_size_of_what_is_pointed_to)
{
    static const Crate empty = { 0, "" };
    Crate             *crates = NULL;
    uint64_t           asked = kvg_asked_bytes();

    ck_assert_int_eq(KVG_NEW(5, "crates", &crates), KVG_OK);
    ck_assert_uint_eq(kvg_asked_bytes() - asked, 5 * sizeof(Crate));
    ck_assert_uint_eq(kvg_live_allocations(), no_leak_live + 1);
    for (int i = 0; i < 5; i++) {
        ck_assert_mem_eq(&crates[i], &empty, sizeof empty);
    }
    kvg_free(crates);
}
END_TEST

START_TEST(test_memory_of_nothing_is_a_pointer_to_free)
{
    Crate *crates = NULL;

    ck_assert_int_eq(KVG_NEW(0, "crates", &crates), KVG_OK);
    ck_assert_ptr_nonnull(crates);
    kvg_free(crates);
    kvg_free(NULL);
}
END_TEST

START_TEST(test_memory_that_cannot_be_had_is_named_and_changes_nothing)
{
    Crate    one, *crates = &one;
    uint64_t asked = kvg_asked_bytes();

    kvg_fault_arm(0);
    ck_assert_int_eq(KVG_NEW(3, "crates", &crates), KVG_ENOMEM);
    ck_assert(kvg_fault_disarm());
    ck_assert_ptr_eq(crates, &one);
    ck_assert_uint_eq(kvg_asked_bytes(), asked);
    ck_assert_str_eq(kvg_last_error(), "no host memory for crates: 3 elements of 32 bytes; free memory or ask for less");
}
END_TEST

START_TEST(test_memory_nth_failure_comes_once)
{
    for (uint64_t nth = 0; nth < 4; nth++) {
        Crate    *crates[3] = { NULL };
        KvgStatus status[3];

        kvg_fault_arm(nth);
        for (int i = 0; i < 3; i++) {
            status[i] = KVG_NEW(1, "a crate", &crates[i]);
        }
        ck_assert_int_eq(kvg_fault_disarm(), nth < 3);
        for (uint64_t i = 0; i < 3; i++) {
            ck_assert_int_eq(status[i], i == nth ? KVG_ENOMEM : KVG_OK);
            ck_assert_int_eq(crates[i] == NULL, i == nth);
            kvg_free(crates[i]);
        }
    }
}
END_TEST

START_TEST(test_memory_copy_of_a_string_is_its_own)
{
    char text[] = "crate 7", *copy = NULL;

    ck_assert_int_eq(kvg_strdup(text, "a label", &copy), KVG_OK);
    text[0] = 'C';
    ck_assert_str_eq(copy, "crate 7");
    kvg_free(copy);
    kvg_fault_arm(0);
    copy = text;
    ck_assert_int_eq(kvg_strdup(text, "a label", &copy), KVG_ENOMEM);
    ck_assert(kvg_fault_disarm());
    ck_assert_ptr_eq(copy, text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *tcase = tcase_create("memory");

    tcase_add_checked_fixture(tcase, no_leak_setup, no_leak_teardown);
    tcase_add_test(tcase, test_memory_new_array_has_the_size_of_what_is_pointed_to);
    tcase_add_test(tcase, test_memory_of_nothing_is_a_pointer_to_free);
    tcase_add_test(tcase, test_memory_that_cannot_be_had_is_named_and_changes_nothing);
    tcase_add_test(tcase, test_memory_nth_failure_comes_once);
    tcase_add_test(tcase, test_memory_copy_of_a_string_is_its_own);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);

    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;

    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

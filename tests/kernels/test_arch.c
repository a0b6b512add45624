/* Which devices a list of architectures has code for. */
#include <check.h>

#include "kernels/cuda_arch.h"

START_TEST(test_a_device_runs_what_was_built_for_it_or_can_be_compiled_for_it)
{
    static const struct { const char *archs; int capability, runs; } cases[] = {
        {"90", 90, 1}, {"90", 89, 0}, {"90", 91, 1}, {"90", 100, 1}, {"90", 120, 1}, {"90", 80, 0},
        {"90-real", 90, 1}, {"90-real", 91, 1}, {"90-real", 100, 0}, {"90-real", 89, 0}, {"86-real", 80, 0}, {"86-real", 89, 1},
        {"90-virtual", 90, 1}, {"90-virtual", 120, 1}, {"90-virtual", 89, 0},
        {"90a", 90, 1}, {"90a", 91, 0}, {"90a", 100, 0}, {"90a-real", 90, 1}, {"90a-real", 100, 0}, {"100f", 100, 1}, {"100f", 103, 1}, {"100f", 120, 0},
        {"80-real,90", 80, 1}, {"80-real,90", 86, 1}, {"80-real,90", 75, 0}, {"80-real;90-real", 100, 0}, {"80-real 90a", 90, 1},
        {"", 90, 0}, {"native", 90, 0}, {",,90", 90, 1}, {"9", 90, 1}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_msg(kvg_cuda_archs_run(cases[i].archs, cases[i].capability) == cases[i].runs, "\"%s\" on %d: expected %d", cases[i].archs,
                      cases[i].capability, cases[i].runs);
    }
}
END_TEST

START_TEST(test_a_list_longer_than_is_read_stays_within_its_room)
{
    char list[2 * KVG_CUDA_ARCHS_BYTES_MAX];

    memset(list, ',', sizeof list);
    memcpy(list + sizeof list - 4, ",90", 4);
    ck_assert_int_eq(kvg_cuda_archs_run(list, 90), 0);
    memcpy(list, "90", 2);
    ck_assert_int_eq(kvg_cuda_archs_run(list, 90), 1);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("arch");
    TCase   *tcase = tcase_create("arch");
    SRunner *runner = srunner_create(suite);

    tcase_add_test(tcase, test_a_device_runs_what_was_built_for_it_or_can_be_compiled_for_it);
    tcase_add_test(tcase, test_a_list_longer_than_is_read_stays_within_its_room);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

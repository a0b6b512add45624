/* Status codes cross the wire in vote records: their numbers never change. */
#include <check.h>
#include <stdlib.h>

#include <kvgrid/status.h>

START_TEST(test_every_code_keeps_its_number_and_name)
{
    static const struct { KvgStatus code; const char *name; } codes[] = {
        {KVG_OK, "OK"}, {KVG_EINVAL, "EINVAL"}, {KVG_EGEOM, "EGEOM"}, {KVG_EOVERFLOW, "EOVERFLOW"}, {KVG_ENOMEM, "ENOMEM"},
        {KVG_ECAPACITY, "ECAPACITY"}, {KVG_EBUSY, "EBUSY"}, {KVG_ESTALE, "ESTALE"}, {KVG_ELAPPED, "ELAPPED"}, {KVG_ENOFIT, "ENOFIT"},
        {KVG_ELAYOUT, "ELAYOUT"}, {KVG_ETAINTED, "ETAINTED"}, {KVG_EREFUSED, "EREFUSED"}, {KVG_EINDOUBT, "EINDOUBT"},
        {KVG_EPEER, "EPEER"}, {KVG_EDEVICE, "EDEVICE"}, {KVG_EIO, "EIO"}, {KVG_EFORMAT, "EFORMAT"}, {KVG_ENOTSUP, "ENOTSUP"},
    };

    ck_assert_int_eq(KVG_STATUS_COUNT, sizeof codes / sizeof *codes);
    for (int i = 0; i < KVG_STATUS_COUNT; i++) {
        ck_assert_int_eq(codes[i].code, i);
        ck_assert_str_eq(kvg_status_name(codes[i].code), codes[i].name);
    }
    ck_assert_str_eq(kvg_status_name((KvgStatus)KVG_STATUS_COUNT), "?");
    ck_assert_str_eq(kvg_status_name((KvgStatus)-1), "?");
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("status");
    TCase   *tcase = tcase_create("status");
    SRunner *runner = srunner_create(suite);

    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, test_every_code_keeps_its_number_and_name);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

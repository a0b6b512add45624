/* One main for the suites of launch/rank: runs them, and fails when none ran. */
#ifndef KVG_TESTS_LAUNCH_SUITE_H
#define KVG_TESTS_LAUNCH_SUITE_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/error.h"

#define SAYS(sentence) ck_assert_msg(strstr(kvg_last_error(), (sentence)) != NULL, "\"%s\" does not say \"%s\"", kvg_last_error(), (sentence))

static inline int run_suite(const char *name, const TTest *const *tests, size_t count)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    for (size_t i = 0; i < count; i++) {
        tcase_add_test(tcase, tests[i]);
    }
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) != (int)count;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif

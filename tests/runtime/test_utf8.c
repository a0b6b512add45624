/* Characters of UTF-8: each length's first and last, and what is none. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/utf8.h"

static const struct {
    const char *text;
    size_t      bytes, length;
    uint32_t    code;
} cases[] = {
    { "\0", 1, 1, 0 },
    { "a", 1, 1, 'a' },
    { "\x7f", 1, 1, 0x7f },
    { "\x80", 1, 0, 0 },
    { "\xc1\xbf", 2, 0, 0 },          /* an overlong form */
    { "\xc2\x80", 2, 2, 0x80 },
    { "\xc2\x80", 1, 0, 0 },          /* cut */
    { "\xc2" "a", 2, 0, 0 },
    { "\xdf\xbf", 2, 2, 0x7ff },
    { "\xe0\x9f\xbf", 3, 0, 0 },
    { "\xe0\xa0\x80", 3, 3, 0x800 },
    { "\xe0\xa0\x80", 2, 0, 0 },
    { "\xed\x9f\xbf", 3, 3, 0xd7ff },
    { "\xed\xa0\x80", 3, 0, 0 },      /* half of a pair */
    { "\xed\xbf\xbf", 3, 0, 0 },
    { "\xee\x80\x80", 3, 3, 0xe000 },
    { "\xef\xbf\xbf", 3, 3, 0xffff },
    { "\xf0\x8f\xbf\xbf", 4, 0, 0 },
    { "\xf0\x90\x80\x80", 4, 4, 0x10000 },
    { "\xf4\x8f\xbf\xbf", 4, 4, 0x10ffff },
    { "\xf4\x90\x80\x80", 4, 0, 0 },  /* beyond the last */
    { "\xf8\x88\x80\x80\x80", 5, 0, 0 },
    { "\xff", 1, 0, 0 },
};

START_TEST(test_a_character_is_taken_whole_or_not_at_all)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t code = 0;
        size_t   length = kvg_utf8_take(cases[i].text, cases[i].bytes, &code);

        ck_assert_msg(length == cases[i].length && code == cases[i].code, "case %zu: %zu bytes, U+%04X", i, length, (unsigned)code);
    }
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("utf8");
    TCase   *tcase = tcase_create("utf8");
    SRunner *runner = srunner_create(suite);

    tcase_add_test(tcase, test_a_character_is_taken_whole_or_not_at_all);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);

    srunner_free(runner);
    return failed != 0 || ran == 0;
}

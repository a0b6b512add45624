/* Text that may come from anywhere, as text of a page. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "launch/command/html_write.h"

#define GONE "\xef\xbf\xbd"

static const struct {
    const char *given, *written;
} cases[] = {
    {"", ""},
    {"plain text, 1.5 %", "plain text, 1.5 %"},
    {"<b class=\"x\">&'</b>", "&lt;b class=&quot;x&quot;&gt;&amp;&#39;&lt;/b&gt;"},
    {"a\tb\nc\rd", "a\tb\nc\rd"},
    {"\x01\x1f \x7f", GONE GONE " " GONE},
    {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
    {"\xff\x80", GONE GONE},
    {"\xc3", GONE},                                  /* cut */
    {"\xe2\x82<", GONE GONE "&lt;"},                 /* cut before markup: that is still markup */
    {"\xc0\xbc", GONE GONE},                         /* an overlong < */
    {"\xe0\x80\xbc", GONE GONE GONE},
    {"\xf0\x80\x80\xbc", GONE GONE GONE GONE},
    {"\xed\xa0\x80", GONE GONE GONE},                /* half of a pair */
    {"\xed\x9f\xbf", "\xed\x9f\xbf"},                /* the last before */
    {"\xee\x80\x80", "\xee\x80\x80"},                /* the first after */
    {"\xf4\x8f\xbf\xbd", "\xf4\x8f\xbf\xbd"},
    {"\xf4\x90\x80\x80", GONE GONE GONE GONE},       /* beyond the last */
    {"\xef\xbf\xbe", GONE GONE GONE},                /* no character */
    {"\xc2\x85\xc2\x9f\xc2\xa0", GONE GONE GONE GONE "\xc2\xa0"}, /* controls of the upper half */
};

START_TEST(test_markup_is_escaped_and_what_is_no_text_is_replaced)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char  *text = NULL;
        size_t bytes = 0;
        FILE  *file = open_memstream(&text, &bytes);
        ck_assert_ptr_nonnull(file);
        kvg_html_text(file, cases[i].given);
        fclose(file);
        ck_assert_msg(strcmp(text, cases[i].written) == 0, "case %zu: %s", i, text);
        free(text);
    }
}
END_TEST

START_TEST(test_a_part_ends_where_it_is_said_to)
{
    char  *text = NULL;
    size_t bytes = 0;
    FILE  *file = open_memstream(&text, &bytes);
    kvg_html_part(file, "ab<cd", 3);
    kvg_html_part(file, "\xc3\xa9", 1); /* its second byte is not asked for */
    kvg_html_part(file, "x", 0);
    fclose(file);
    ck_assert_str_eq(text, "ab&lt;" GONE);
    free(text);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("html_write");
    TCase   *tcase = tcase_create("html_write");
    SRunner *runner = srunner_create(suite);

    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, test_markup_is_escaped_and_what_is_no_text_is_replaced);
    tcase_add_test(tcase, test_a_part_ends_where_it_is_said_to);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

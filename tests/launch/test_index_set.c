#include "launch/rank/index_set.h"

#include "tests/launch/suite.h"

static IndexSet read_set(const char *text)
{
    IndexSet set = { { 0 } };

    ck_assert_msg(kvg_index_set_read(text, &set) == 1, "\"%s\"", text);
    return set;
}

START_TEST(test_index_set_text_is_what_was_read)
{
    static const char *const lists[] = { "0", "0-1", "0,2", "63-64", "0-3,8,10-2047", "2047" };
    char                     text[64];

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        IndexSet set = read_set(lists[i]);
        ck_assert_str_eq(kvg_index_set_text(&set, text, sizeof text), lists[i]);
    }
    IndexSet none = { { 0 } }, line = read_set("0-3\n");
    ck_assert_str_eq(kvg_index_set_text(&none, text, sizeof text), "none");
    ck_assert_str_eq(kvg_index_set_text(&line, text, sizeof text), "0-3");
    ck_assert_uint_eq(kvg_index_set_count(&line), 4);
    ck_assert(kvg_index_set_has(&line, 3) && !kvg_index_set_has(&line, 4) && !kvg_index_set_has(&line, 4000));
}
END_TEST

START_TEST(test_index_set_text_is_cut_at_a_whole_range)
{
    IndexSet set = read_set("0,2,4,6,8,100-200,400");
    char     text[16];

    ck_assert_str_eq(kvg_index_set_text(&set, text, sizeof text), "0,2,4,6,8,...");
    set = read_set("100-200,300-400,500");
    ck_assert_str_eq(kvg_index_set_text(&set, text, sizeof text), "100-200,...");
}
END_TEST

START_TEST(test_index_set_lists_that_are_none_are_refused)
{
    static const char *const bad[] = { "", "\n", "-1", "1-", "3-1", "0,", ",0", "0,,1", "a", "0 1", "2048", "0-2048", "99999999999999999999", "0x3" };
    IndexSet                 set = read_set("5");

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(kvg_index_set_read(bad[i], &set) == 0, "\"%s\"", bad[i]);
    }
    ck_assert_uint_eq(kvg_index_set_count(&set), 1);
    ck_assert(kvg_index_set_has(&set, 5));
}
END_TEST

START_TEST(test_index_set_and_and_equal)
{
    IndexSet left = read_set("0-5,70"), right = read_set("4-9,70"), both = kvg_index_set_and(&left, &right), want = read_set("4-5,70");

    ck_assert(kvg_index_set_equal(&both, &want));
    ck_assert(!kvg_index_set_equal(&both, &left));
    kvg_index_set_add(&both, INDEX_SET_MAX); /* there is no room for it */
    ck_assert(kvg_index_set_equal(&both, &want));
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { test_index_set_text_is_what_was_read, test_index_set_text_is_cut_at_a_whole_range,
                                   test_index_set_lists_that_are_none_are_refused, test_index_set_and_and_equal };

    return run_suite("index_set", tests, sizeof tests / sizeof *tests);
}

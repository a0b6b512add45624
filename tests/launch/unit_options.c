#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "launch/command/options.h"
#include "runtime/base/error.h"

static uint64_t    count, bytes, device;
static const char *text;
static int         flag, help, on;
static KvFormat    format;
static Option      options[9];

static void setup(void)
{
    const Option table[] = {
        { "--tp", OPTION_COUNT, &count, "N", "ranks", 1, 64, 0 },       { "--memory", OPTION_BYTES, &bytes, "SIZE", "memory", 0, 0, 0 },
        { "--model", OPTION_TEXT, &text, "PATH", "model", 0, 0, 0 },    { "--json", OPTION_FLAG, &flag, NULL, "json", 0, 0, 0 },
        { "--ring", OPTION_SWITCH, &on, "on|off", "ring", 0, 0, 0 },    { "--format-k", OPTION_FORMAT, &format, "FORMAT", "k", 0, 0, 0 },
        { "--device", OPTION_BYTES, &device, "SIZE", "device", 1, 0, 0 }, { "--help", OPTION_FLAG, &help, NULL, "help", 0, 0, 0 },
        { NULL, OPTION_HEADING, NULL, NULL, "a heading", 0, 0, 0 },
    };

    memcpy(options, table, sizeof table);
    count = bytes = 7;
    text = NULL;
    flag = help = 0;
    on = -1;
    format = KVG_POLICY;
}

static KvgStatus parse(char *first, char *second)
{
    char *argv[] = { "part", first, second, NULL };

    return kvg_options_parse(options, 9, first == NULL ? 1 : second == NULL ? 2 : 3, argv);
}

static void check_refused(char *first, char *second, const char *sentence)
{
    ck_assert_int_eq(parse(first, second), KVG_EINVAL);
    ck_assert_msg(strstr(kvg_last_error(), sentence) != NULL, "\"%s\" does not say \"%s\"", kvg_last_error(), sentence);
}

START_TEST(test_options_take_values_beside_or_behind_an_equals_sign)
{
    ck_assert_int_eq(parse(NULL, NULL), KVG_OK);
    ck_assert_uint_eq(count, 7);
    ck_assert_int_eq(parse("--tp", "4"), KVG_OK);
    ck_assert_uint_eq(count, 4);
    ck_assert_int_eq(options[0].given, 1);
    ck_assert_int_eq(options[1].given, 0);
    ck_assert_int_eq(parse("--tp=64", "--json"), KVG_OK);
    ck_assert_uint_eq(count, 64);
    ck_assert_int_eq(flag, 1);
    ck_assert_int_eq(parse("--model=a=b", NULL), KVG_OK);
    ck_assert_str_eq(text, "a=b");
    ck_assert_int_eq(parse("--device", "1"), KVG_OK);
    ck_assert_uint_eq(device, 1);
    ck_assert_int_eq(parse("-h", NULL), KVG_OK);
    ck_assert_int_eq(help, 1);
    ck_assert_int_eq(parse("--ring", "off"), KVG_OK);
    ck_assert_int_eq(on, 0);
    ck_assert_int_eq(parse("--ring=on", "--format-k=fp8"), KVG_OK);
    ck_assert_int_eq(on, 1);
    ck_assert_int_eq(format, KVG_FP8);
}
END_TEST

START_TEST(test_options_refuse_bad_use_and_name_the_nearest)
{
    check_refused("--tpp", "4", "did you mean --tp?");
    check_refused("--jsn", NULL, "did you mean --json?");
    check_refused("--format_k=fp8", NULL, "there is no option --format_k: did you mean --format-k?");
    check_refused("--wat", NULL, "there is no option --wat: --help lists those there are"); /* nothing is near */
    check_refused("--xy", "4", "--help lists those there are"); /* two edits make any two letters of any */
    check_refused("-x", NULL, "--help lists those there are");
    check_refused("-tp", "4", "did you mean --tp?");
    check_refused("model.json", NULL, "is not expected here");
    check_refused("--tp", NULL, "--tp needs a value (N)");
    check_refused("--json=1", NULL, "takes no value");
    check_refused("--model=", NULL, "needs a value");
    check_refused("--ring", "yes", "it is on or off");
    check_refused("--format-k", "q9", "--format-k");
    check_refused("--tp", "0", "from 1 to 64");
    check_refused("--tp", "65", "from 1 to 64");
    check_refused("--tp", "-1", "not a whole number");
    check_refused("--tp", "4x", "not a whole number");
    check_refused("--tp", " 4", "not a whole number");
    check_refused("--tp", "99999999999999999999", "more than 64 bits hold");
    check_refused("--tp", "99999999999999999999x", "not a whole number");
    check_refused("--device", "0", "at least 1 bytes");
    ck_assert_uint_eq(count, 7);
    ck_assert_int_eq(format, KVG_POLICY);
}
END_TEST

START_TEST(test_options_sizes_are_powers_of_1000_or_of_1024)
{
    static const struct { const char *text; uint64_t bytes; } cases[] = {
        { "0", 0 }, { "1", 1 }, { "141GB", 141000000000ull }, { "80GiB", 85899345920ull }, { "12 GiB", 12884901888ull }, { "5B", 5 },
        { "1kB", 1000 }, { "1KiB", 1024 }, { "3MB", 3000000 }, { "3MiB", 3145728 }, { "2TB", 2000000000000ull }, { "1TiB", 1099511627776ull },
        { "1.5GiB", 1610612736ull }, { "0.25GB", 250000000 }, { "1.1GB", 1100000000 }, { "9223372036854775807", INT64_MAX },
    };
    static const char *const bad[] = { "", "GB", "141G", "141gb", "1.GB", ".5GB", "-1", "1e9", "0x10", "9223372036854775808", "9999999TiB",
                                       "1GBs", "1,5GB" };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_msg(kvg_parse_bytes("--memory", cases[i].text, &bytes) == KVG_OK, "%s: %s", cases[i].text, kvg_last_error());
        ck_assert_msg(bytes == cases[i].bytes, "%s is %llu", cases[i].text, (unsigned long long)bytes);
    }
    bytes = 7;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_msg(kvg_parse_bytes("--memory", bad[i], &bytes) == KVG_EINVAL, "\"%s\" is %llu", bad[i], (unsigned long long)bytes);
        ck_assert_ptr_nonnull(strstr(kvg_last_error(), "--memory"));
    }
    ck_assert_uint_eq(bytes, 7);
}
END_TEST

START_TEST(test_options_half_a_unit_is_asked_which_it_is)
{
    static const char *const asked[][2] = {
        { "80G", "write 80GB (powers of 1000) or 80GiB (powers of 1024)" }, { "1.5 T", "write 1.5TB (powers of 1000) or 1.5TiB (powers of 1024)" },
        { "7k", "write 7kB (powers of 1000) or 7KiB (powers of 1024)" },    { "7K", "write 7KB (powers of 1000) or 7KiB (powers of 1024)" },
        { "80g", "no known unit" }, { "80GG", "no known unit" },
    };

    bytes = 7;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        ck_assert_int_eq(kvg_parse_bytes("--memory", asked[i][0], &bytes), KVG_EINVAL);
        ck_assert_msg(strstr(kvg_last_error(), asked[i][1]) != NULL, "%s", kvg_last_error());
    }
    ck_assert_uint_eq(bytes, 7);
}
END_TEST

START_TEST(test_options_lists_are_numbers_between_commas)
{
    static const char *const bad[] = { "", ",", "1,", ",1", "1,,2", "1 ,2", "a", "1,2,3,4", "4294967296" };
    uint32_t                 list[3];
    size_t                   found = 9;

    ck_assert_int_eq(kvg_parse_list("--fence", "3,7,11", list, 3, &found), KVG_OK);
    ck_assert_uint_eq(found, 3);
    ck_assert_uint_eq(list[2], 11);
    ck_assert_int_eq(kvg_parse_list("--fence", "4294967295", list, 3, &found), KVG_OK);
    ck_assert_uint_eq(found, 1);
    ck_assert_uint_eq(list[0], 4294967295u);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_msg(kvg_parse_list("--fence", bad[i], list, 3, &found) == KVG_EINVAL, "\"%s\"", bad[i]);
    }
    ck_assert_uint_eq(found, 1);
}
END_TEST

START_TEST(test_options_are_spoken_of_where_the_library_names_its_fields)
{
    static const OptionWord words[] = { { "memory_bytes", "--memory" }, { "max_sequences", "--concurrency" } };

    kvg_fail(KVG_ENOMEM, "%s", "memory_bytes is 1; raise memory_bytes, lower max_sequences");
    ck_assert_int_eq(kvg_options_speak(KVG_ENOMEM, words, 2), KVG_ENOMEM);
    ck_assert_str_eq(kvg_last_error(), "--memory is 1; raise --memory, lower --concurrency");
    kvg_fail(KVG_EINVAL, "%s", "my_memory_bytes, memory_bytes_max and max_sequence stay");
    ck_assert_int_eq(kvg_options_speak(KVG_EINVAL, words, 2), KVG_EINVAL);
    ck_assert_str_eq(kvg_last_error(), "my_memory_bytes, memory_bytes_max and max_sequence stay");
    ck_assert_int_eq(kvg_options_speak(KVG_OK, words, 2), KVG_OK);
    ck_assert_str_eq(kvg_last_error(), "my_memory_bytes, memory_bytes_max and max_sequence stay");
}
END_TEST

START_TEST(test_options_are_printed_in_columns_and_wrapped_between_words)
{
    static const char help_text[] = "a sentence that is too long for a line of a hundred and ten letters, so that it goes on in the next one, under its beginning";
    const Option table[] = {
        { NULL, OPTION_HEADING, NULL, NULL, "First:", 0, 0, 0 },
        { "--tp", OPTION_COUNT, NULL, "N", "ranks", 0, 0, 0 },
        { NULL, OPTION_HEADING, NULL, NULL, "Then:", 0, 0, 0 },
        { "--vote", OPTION_TEXT, NULL, "auto|host", help_text, 0, 0, 0 },
        { "--json", OPTION_FLAG, NULL, NULL, "", 0, 0, 0 },
    };
    char  *printed = NULL;
    size_t printed_bytes = 0;
    FILE  *stream = open_memstream(&printed, &printed_bytes);

    ck_assert_ptr_nonnull(stream);
    kvg_options_print(stream, table, sizeof table / sizeof *table);
    fclose(stream);
    ck_assert_str_eq(printed, "First:\n"
                              "  --tp N            ranks\n"
                              "\nThen:\n"
                              "  --vote auto|host  a sentence that is too long for a line of a hundred and ten letters, so that it goes on in\n"
                              "                    the next one, under its beginning\n"
                              "  --json            \n");
    free(printed);
}
END_TEST

START_TEST(test_options_nearest_word_takes_the_fewest_edits_and_at_most_two)
{
    static const char *const words[] = { "plan", "replay", "doctor", "knobs" };

    ck_assert_str_eq(kvg_nearest_word("plaan", words, 4), "plan");
    ck_assert_str_eq(kvg_nearest_word("repaly", words, 4), "replay");
    ck_assert_str_eq(kvg_nearest_word("knob", words, 4), "knobs");
    ck_assert_str_eq(kvg_nearest_word("pla", words, 4), "plan");
    ck_assert_str_eq(kvg_nearest_word("plans", words, 4), "plan");
    ck_assert_str_eq(kvg_nearest_word("plnaa", words, 4), "plan");
    ck_assert_ptr_null(kvg_nearest_word("doct", words, 4));                                /* two edits are half of it */
    ck_assert_ptr_null(kvg_nearest_word("doc", words, 4));                                  /* three edits */
    ck_assert_ptr_null(kvg_nearest_word("serve", words, 4));
    ck_assert_ptr_null(kvg_nearest_word("", words, 4));
    ck_assert_ptr_null(kvg_nearest_word("a-word-that-is-much-longer-than-any-that-there-could-ever-be", words, 4));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("options");
    TCase *tcase = tcase_create("options");

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, test_options_take_values_beside_or_behind_an_equals_sign);
    tcase_add_test(tcase, test_options_refuse_bad_use_and_name_the_nearest);
    tcase_add_test(tcase, test_options_sizes_are_powers_of_1000_or_of_1024);
    tcase_add_test(tcase, test_options_half_a_unit_is_asked_which_it_is);
    tcase_add_test(tcase, test_options_lists_are_numbers_between_commas);
    tcase_add_test(tcase, test_options_are_spoken_of_where_the_library_names_its_fields);
    tcase_add_test(tcase, test_options_are_printed_in_columns_and_wrapped_between_words);
    tcase_add_test(tcase, test_options_nearest_word_takes_the_fewest_edits_and_at_most_two);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

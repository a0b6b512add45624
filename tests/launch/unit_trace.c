#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "launch/command/trace.h"
#include "runtime/base/memory.h"

#define HEADER "TIMESTAMP,ContextTokens,GeneratedTokens\n"

static Trace    trace;
static uint64_t live_before;

static void setup(void)
{
    live_before = kvg_live_allocations();
    trace = (Trace){ NULL, 0 };
}

static void teardown(void)
{
    kvg_trace_free(&trace);
    ck_assert_uint_eq(kvg_live_allocations(), live_before);
}

static KvgStatus parse(const char *text)
{
    return kvg_trace_parse(text, strlen(text), "t.csv", &trace);
}

static void check_refused(const char *text, const char *sentence)
{
    ck_assert_msg(parse(text) == KVG_EFORMAT, "%s", text);
    ck_assert_msg(strstr(kvg_last_error(), sentence) != NULL, "\"%s\" does not say \"%s\"", kvg_last_error(), sentence);
    ck_assert_ptr_null(trace.requests);
}

static void check_two(void)
{
    ck_assert_uint_eq(trace.count, 2);
    ck_assert_uint_eq(trace.requests[0].context, 374);
    ck_assert_uint_eq(trace.requests[0].generated, 44);
    ck_assert_uint_eq(trace.requests[1].context, 396);
    ck_assert_uint_eq(trace.requests[1].generated, 109);
    kvg_trace_free(&trace);
}

START_TEST(test_trace_reads_lines_in_every_customary_dress)
{
    static const char *const dresses[] = {
        HEADER "a,374,44\nb,396,109\n",
        HEADER "a,374,44\nb,396,109",
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\na,374,44\r\nb,396,109\r\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\na,374,44\r\nb,396,109",
        "\xef\xbb\xbf" HEADER "a,374,44\nb,396,109\n\n \r\n",
        HEADER "a, 374 ,\t44\nb,396,109\n",
        "GeneratedTokens,ContextTokens\n44,374\n109,396\n",
        "\"TIMESTAMP\",\"ContextTokens\",\"GeneratedTokens\"\r\n\"a, b\",\"374\",44\r\nb, \"396\" ,\"109\"\r\n",
        HEADER "\"a \"\"b, c\"\"\",374,44\n\"\",396,109\n",
        HEADER "a\"b,374,44\nb\",396,109\n", /* a quote inside a field without quotes is a letter */
        "ContextTokens,model,GeneratedTokens,TIMESTAMP\n374,x,44,a\n396,,109,\n",
    };

    for (size_t i = 0; i < sizeof dresses / sizeof dresses[0]; i++) {
        ck_assert_msg(parse(dresses[i]) == KVG_OK, "dress %zu: %s", i, kvg_last_error());
        check_two();
    }
}
END_TEST

START_TEST(test_trace_without_an_end_is_refused)
{
    ck_assert_int_eq(kvg_trace_load("/dev/zero", &trace), KVG_EFORMAT);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "/dev/zero has 268435456 bytes or more"));
    ck_assert_ptr_null(trace.requests);
}
END_TEST

START_TEST(test_trace_refuses_a_malformed_line_by_its_number)
{
    check_refused("", "ContextTokens is not among them");
    check_refused("TIMESTAMP,ContextTokens\n", "GeneratedTokens is not among them");
    check_refused("a,1,2\n", "line 1");
    check_refused(HEADER, "has no requests");
    check_refused(HEADER "\n\n", "has no requests");
    check_refused(HEADER "a,1\n", "line 2: it has 2 fields, and line 1 names 3");
    check_refused(HEADER "a,1,2\na,1,2,3\n", "line 3: it has 4 fields");
    check_refused(HEADER "a,1,2\n\na,1,2\n", "line 3"); /* a blank line inside */
    check_refused("ContextTokens,GeneratedTokens,ContextTokens\n1,2,3\n", "two columns are named ContextTokens");
    ck_assert_int_eq(kvg_trace_parse(HEADER "a,1,2\n\0\0", sizeof HEADER + 7, "t.csv", &trace), KVG_EFORMAT);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "line 3"));
    check_refused(HEADER "a,1,2\na,x,2\n", "line 3: ContextTokens is \"x\"");
    check_refused(HEADER "\"a,1,2\n", "line 2: a field begins with a quote, and no quote ends it");
    check_refused(HEADER "a,1,2\n\"a\"b,1,2\n", "line 3: a field begins with a quote");
    check_refused(HEADER "a,1,\"\n", "line 2: a field begins with a quote");
    check_refused(HEADER "a,1,\"2\"\"\n", "line 2: a field begins with a quote");
    check_refused(HEADER "\"a,b\",1\n", "line 2: it has 2 fields");
    check_refused(HEADER "a,1,-2\n", "line 2: GeneratedTokens is \"-2\"");
    check_refused(HEADER "a,1.5,2\n", "line 2: ContextTokens");
    check_refused(HEADER "a,,2\n", "line 2: ContextTokens is empty");
    check_refused(HEADER "a,2147483648,2\n", "ContextTokens is above 2147483647");
    check_refused(HEADER "a,99999999999999999999999999,2\n", "ContextTokens is above");
    check_refused(HEADER "a,2147483647,1\n", "add up past");
    ck_assert_int_eq(parse(HEADER "a,2147483646,1\n"), KVG_OK);
    kvg_trace_free(&trace);
    ck_assert_int_eq(parse(HEADER "a,0,0\n"), KVG_OK);
}
END_TEST

START_TEST(test_trace_loads_the_shipped_traces_whole)
{
    uint64_t context = 0;

    ck_assert_int_eq(kvg_trace_load(KVG_TEST_DATA "/traces/azure_llm_2023_conv.csv", &trace), KVG_OK);
    ck_assert_uint_eq(trace.count, 19366);
    ck_assert_uint_eq(trace.requests[0].context, 374);
    ck_assert_uint_eq(trace.requests[0].generated, 44);
    for (size_t i = 0; i < trace.count; i++) {
        context += trace.requests[i].context;
    }
    ck_assert_uint_gt(context, 19366ull * 500);
    kvg_trace_free(&trace);
    ck_assert_int_eq(kvg_trace_load(KVG_TEST_DATA "/traces/azure_llm_2023_code.csv", &trace), KVG_OK);
    ck_assert_uint_eq(trace.requests[1].context, 3180);
}
END_TEST

START_TEST(test_trace_that_cannot_be_read_is_an_io_error)
{
    ck_assert_int_eq(kvg_trace_load("/nonexistent/trace.csv", &trace), KVG_EIO);
    ck_assert_int_eq(kvg_trace_load(KVG_TEST_DATA, &trace), KVG_EIO); /* a directory */
}
END_TEST

START_TEST(test_trace_unwinds_from_every_allocation)
{
    for (uint64_t nth = 0;; nth++) {
        kvg_fault_arm(nth);
        KvgStatus status = kvg_trace_load(KVG_TEST_DATA "/traces/azure_llm_2023_conv.csv", &trace);
        if (!kvg_fault_disarm()) {
            ck_assert_int_eq(status, KVG_OK);
            ck_assert_uint_ge(nth, 2);
            break;
        }
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert_ptr_null(trace.requests);
        ck_assert_uint_eq(kvg_live_allocations(), live_before);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("trace");
    TCase *tcase = tcase_create("trace");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_trace_reads_lines_in_every_customary_dress);
    tcase_add_test(tcase, test_trace_refuses_a_malformed_line_by_its_number);
    tcase_add_test(tcase, test_trace_without_an_end_is_refused);
    tcase_add_test(tcase, test_trace_loads_the_shipped_traces_whole);
    tcase_add_test(tcase, test_trace_that_cannot_be_read_is_an_io_error);
    tcase_add_test(tcase, test_trace_unwinds_from_every_allocation);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

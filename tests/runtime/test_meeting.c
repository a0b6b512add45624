/* Meetings: what is refused before one, what is noted during it, and how long it lasts. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/comm/clock.h"
#include "runtime/comm/meeting.h"

#define RANKS_MAX 3

static KvComm     comm;
static KvLiveness liveness;
static Meeting    meeting;

/* ---- a bootstrap that says what it was asked */

typedef struct Asked {
    int      calls;
    size_t   bytes;
    uint32_t timeout_ms;
} Asked;

static KvgStatus note_and_answer(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    Asked *asked = user;

    *asked = (Asked){ asked->calls + 1, bytes, timeout_ms };
    for (int rank = 0; rank < 2; rank++) {
        memcpy((uint8_t *)all + (size_t)rank * bytes, mine, bytes);
    }
    return KVG_OK;
}

static KvgBootstrap bootstrap_of(int rank, int ranks, Asked *asked)
{
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;

    bootstrap.rank = rank;
    bootstrap.ranks = ranks;
    bootstrap.allgather = note_and_answer;
    bootstrap.user = asked;
    return bootstrap;
}

static void opened(int rank, int ranks, Asked *asked)
{
    KvgBootstrap bootstrap = bootstrap_of(rank, ranks, asked);

    ck_assert_int_eq(kvg_meeting_open("tea", &bootstrap, RANKS_MAX, &comm, &liveness, &meeting), KVG_OK);
    kvg_meeting_start(&meeting, 0);
}

/* ---- opening */

START_TEST(test_meeting_needs_a_bootstrap_and_places_for_both_ends)
{
    KvgBootstrap bootstrap = bootstrap_of(0, 2, NULL);

    ck_assert_int_eq(kvg_meeting_open("tea", NULL, RANKS_MAX, &comm, &liveness, &meeting), KVG_EINVAL);
    ck_assert_int_eq(kvg_meeting_open("tea", &bootstrap, RANKS_MAX, NULL, &liveness, &meeting), KVG_EINVAL);
    ck_assert_int_eq(kvg_meeting_open("tea", &bootstrap, RANKS_MAX, &comm, NULL, &meeting), KVG_EINVAL);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "tea: bootstrap 0x"));
    bootstrap.size = 1;
    ck_assert_int_eq(kvg_meeting_open("tea", &bootstrap, RANKS_MAX, &comm, &liveness, &meeting), KVG_EINVAL);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "KvgBootstrap"));
}
END_TEST

START_TEST(test_meeting_takes_ranks_up_to_the_most_and_no_others)
{
    static const struct {
        int rank, ranks;
        KvgStatus status;
    } cases[] = { { 0, 0, KVG_EINVAL }, { 0, 1, KVG_OK },      { -1, 2, KVG_EINVAL }, { 1, 2, KVG_OK },
                  { 2, 2, KVG_EINVAL }, { 2, RANKS_MAX, KVG_OK }, { 2, RANKS_MAX + 1, KVG_EINVAL } };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        KvgBootstrap bootstrap = bootstrap_of(cases[i].rank, cases[i].ranks, NULL);

        ck_assert_int_eq(kvg_meeting_open("tea", &bootstrap, RANKS_MAX, &comm, &liveness, &meeting), cases[i].status);
    }
    ck_assert_str_eq(kvg_last_error(), "tea: rank 2 of 4; 1 to 3 ranks are possible");
}
END_TEST

START_TEST(test_meeting_of_one_needs_no_allgather_and_of_two_does)
{
    KvgBootstrap bootstrap = bootstrap_of(0, 2, NULL);
    uint32_t     mine = 7, all = 0;

    bootstrap.allgather = NULL;
    ck_assert_int_eq(kvg_meeting_open("tea", &bootstrap, RANKS_MAX, &comm, &liveness, &meeting), KVG_EINVAL);
    ck_assert_str_eq(kvg_last_error(), "tea: the bootstrap has no all-gather");
    bootstrap.ranks = 1;
    ck_assert_int_eq(kvg_meeting_open("tea", &bootstrap, RANKS_MAX, &comm, &liveness, &meeting), KVG_OK);
    kvg_meeting_start(&meeting, 1);
    ck_assert_int_eq(kvg_meeting_gather(&meeting, &mine, &all, sizeof mine), KVG_OK);
    ck_assert_uint_eq(all, 7);
}
END_TEST

/* ---- time */

START_TEST(test_meeting_gathers_within_what_is_left_and_never_without_an_end)
{
    Asked    asked = { 0 };
    uint32_t mine = 7, all[2] = { 0 };

    opened(1, 2, &asked);
    ck_assert_int_eq(kvg_meeting_gather(&meeting, &mine, all, sizeof mine), KVG_OK);
    ck_assert(asked.calls == 1 && asked.bytes == sizeof mine && all[0] == 7 && all[1] == 7);
    ck_assert(asked.timeout_ms > 29000 && asked.timeout_ms <= 30000); /* 0 means 30 s */
    kvg_meeting_start(&meeting, 500);
    ck_assert_int_eq(kvg_meeting_gather(&meeting, &mine, all, sizeof mine), KVG_OK);
    ck_assert(asked.timeout_ms <= 500);
    meeting.deadline_ns = kvg_clock_ns() - 1; /* over: still an all-gather, so that all leave at the same one */
    ck_assert_int_eq(kvg_meeting_gather(&meeting, &mine, all, sizeof mine), KVG_OK);
    ck_assert(asked.calls == 3 && asked.timeout_ms == 1);
}
END_TEST

START_TEST(test_meeting_leaves_a_quarter_of_its_time_for_the_last_allgather)
{
    opened(0, 2, NULL);
    kvg_meeting_start(&meeting, 4000);

    uint64_t before_ns = kvg_clock_ns(), until_ns = kvg_meeting_work_until_ns(&meeting), after_ns = kvg_clock_ns();

    ck_assert(until_ns <= after_ns + (meeting.deadline_ns - after_ns) / 4 * 3 + 4);
    ck_assert(until_ns + 4 >= before_ns + (meeting.deadline_ns - before_ns) / 4 * 3);
    meeting.deadline_ns = 1; /* over */
    before_ns = kvg_clock_ns();
    until_ns = kvg_meeting_work_until_ns(&meeting);
    ck_assert(until_ns >= before_ns && until_ns <= kvg_clock_ns());
}
END_TEST

/* ---- what went wrong */

START_TEST(test_meeting_keeps_the_first_failure_and_its_sentence)
{
    opened(0, 2, NULL);
    ck_assert_int_eq(kvg_meeting_note(&meeting, KVG_OK), KVG_OK);
    ck_assert_int_eq(kvg_meeting_verdict(&meeting), KVG_OK);
    ck_assert_int_eq(kvg_meeting_note(&meeting, kvg_fail(KVG_EIO, "the kettle is cold")), KVG_EIO);
    ck_assert_int_eq(kvg_meeting_note(&meeting, KVG_OK), KVG_EIO);
    ck_assert_int_eq(kvg_meeting_note(&meeting, kvg_meeting_fail_for(&meeting, 1, KVG_ENOMEM)), KVG_EIO);
    ck_assert_str_eq(kvg_last_error(), "tea: rank 1 could not set up (ENOMEM); see its own message");
    ck_assert_int_eq(kvg_meeting_verdict(&meeting), KVG_EIO);
    ck_assert_str_eq(kvg_last_error(), "the kettle is cold");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("meeting");
    TCase *tcase = tcase_create("meeting");

    tcase_add_test(tcase, test_meeting_needs_a_bootstrap_and_places_for_both_ends);
    tcase_add_test(tcase, test_meeting_takes_ranks_up_to_the_most_and_no_others);
    tcase_add_test(tcase, test_meeting_of_one_needs_no_allgather_and_of_two_does);
    tcase_add_test(tcase, test_meeting_gathers_within_what_is_left_and_never_without_an_end);
    tcase_add_test(tcase, test_meeting_leaves_a_quarter_of_its_time_for_the_last_allgather);
    tcase_add_test(tcase, test_meeting_keeps_the_first_failure_and_its_sentence);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);

    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;

    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

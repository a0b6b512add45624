/* Replay's series: bounded bins that lose no peak and no row; and when the next gathering of counters is due. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "launch/command/replay_metrics.h"
#include "launch/command/replay_series.h"

static ReplaySeries series;
static ReplaySeen   seen;

static KvgStats at_bytes(uint64_t content, uint64_t rows)
{
    KvgStats stats = {.size = sizeof stats, .content_bytes = content, .booked_bytes = content + 1, .taken_bytes = 1000, .rows = rows, .votes = rows / 2,
                      .vote_latency_ns = 10 * rows};
    stats.refusals[KVG_ECAPACITY] = rows;
    return stats;
}

static void note(uint64_t ns, uint64_t content, uint64_t rows)
{
    KvgStats stats = at_bytes(content, rows);
    kvg_replay_series_note(&series, &seen, ns, &stats);
}

static uint64_t rows_of(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < REPLAY_BINS; i++) sum += series.bins[i].rows;
    return sum;
}

START_TEST(test_nothing_is_noted_before_a_start)
{
    memset(&series, 0, sizeof series);
    note(5, 10, 10);
    ck_assert_uint_eq(series.count, 0);
    ck_assert_uint_eq(rows_of(), 0);
}
END_TEST

START_TEST(test_a_bin_holds_the_most_and_what_was_done)
{
    kvg_replay_series_start(&series, &seen, 7000);
    note(7000, 10, 4);
    note(7000 + 999999, 30, 10);
    note(7000 + 1000000, 20, 11);
    ck_assert_uint_eq(series.width_ns, 1000000);
    ck_assert_uint_eq(series.count, 2);
    ck_assert_uint_eq(series.bins[0].content, 30);
    ck_assert_uint_eq(series.bins[0].booked, 31);
    ck_assert_uint_eq(series.bins[0].rows, 10);
    ck_assert_uint_eq(series.bins[0].votes, 5);
    ck_assert_uint_eq(series.bins[0].refusals, 10);
    ck_assert_uint_eq(series.bins[0].latency_ns, 100);
    ck_assert_uint_eq(series.bins[1].content, 20);
    ck_assert_uint_eq(series.bins[1].rows, 1);
}
END_TEST

START_TEST(test_time_past_the_last_bin_joins_neighbours)
{
    const uint64_t end = REPLAY_BINS * UINT64_C(1000000);

    kvg_replay_series_start(&series, &seen, 0);
    note(3000000, 77, 5);
    note(end - 1, 50, 9);
    ck_assert_uint_eq(series.width_ns, 1000000);
    ck_assert_uint_eq(series.count, REPLAY_BINS);
    note(end, 60, 12);
    ck_assert_uint_eq(series.width_ns, 2000000);
    ck_assert_uint_eq(series.count, REPLAY_BINS / 2 + 1);
    ck_assert_uint_eq(series.bins[1].content, 77);
    ck_assert_uint_eq(series.bins[REPLAY_BINS / 2 - 1].content, 50);
    ck_assert_uint_eq(series.bins[REPLAY_BINS / 2].content, 60);
    ck_assert_uint_eq(rows_of(), 12);
    note(64 * end, 1, 13); /* a long silence, at once */
    ck_assert_uint_eq(series.width_ns, UINT64_C(128) * 1000000);
    ck_assert_uint_eq(series.bins[0].content, 77);
    ck_assert_uint_eq(rows_of(), 13);
    ck_assert_uint_le(series.count, REPLAY_BINS);
}
END_TEST

START_TEST(test_a_long_run_keeps_its_peak_and_its_rows)
{
    uint64_t most = 0;
    kvg_replay_series_start(&series, &seen, 0);
    for (uint64_t i = 1; i <= 20000; i++) {
        note(i * 700000, i == 4321 ? 9999 : i % 100, i);
        ck_assert_uint_le(series.count, REPLAY_BINS);
    }
    for (int i = 0; i < REPLAY_BINS; i++) most = series.bins[i].content > most ? series.bins[i].content : most;
    ck_assert_uint_eq(most, 9999);
    ck_assert_uint_eq(rows_of(), 20000);
    ck_assert_uint_ge(series.count, REPLAY_BINS / 2);
}
END_TEST

START_TEST(test_silence_is_as_before_it)
{
    kvg_replay_series_start(&series, &seen, 0);
    note(0, 10, 1);
    note(5000000, 3, 2);
    kvg_replay_series_end(&series);
    for (int i = 0; i < 5; i++) ck_assert_uint_eq(series.bins[i].content, 10);
    ck_assert_uint_eq(series.bins[4].rows, 0);
    ck_assert_uint_eq(series.bins[5].content, 3);
    ck_assert_uint_eq(series.bins[6].content, 0); /* past the end */
}
END_TEST

START_TEST(test_gatherings_come_to_a_second_apart)
{
    ck_assert_uint_eq(kvg_replay_metrics_gap(1, 0), 2);
    ck_assert_uint_eq(kvg_replay_metrics_gap(100, 499999999), 200);
    ck_assert_uint_eq(kvg_replay_metrics_gap(100, 500000000), 200);
    ck_assert_uint_eq(kvg_replay_metrics_gap(100, 800000000), 125);
    ck_assert_uint_eq(kvg_replay_metrics_gap(100, 1000000000), 100);
    ck_assert_uint_eq(kvg_replay_metrics_gap(100, 2000000000), 50);
    ck_assert_uint_eq(kvg_replay_metrics_gap(100, 60000000000), 50);
    ck_assert_uint_eq(kvg_replay_metrics_gap(1, 60000000000), 1);
    for (uint64_t round_ns = 1000; round_ns < UINT64_C(4000000000); round_ns = round_ns * 3 + 1) { /* whatever a round takes, soon a second or one round */
        uint64_t gap = 1;
        for (int i = 0; i < 40; i++) gap = kvg_replay_metrics_gap(gap, gap * round_ns);
        ck_assert(gap == 1 ? round_ns > 500000000 : gap * round_ns >= 600000000 && gap * round_ns <= 1100000000);
    }
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("replay_series");
    TCase   *tcase = tcase_create("replay_series");
    SRunner *runner = srunner_create(suite);

    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, test_nothing_is_noted_before_a_start);
    tcase_add_test(tcase, test_a_bin_holds_the_most_and_what_was_done);
    tcase_add_test(tcase, test_time_past_the_last_bin_joins_neighbours);
    tcase_add_test(tcase, test_a_long_run_keeps_its_peak_and_its_rows);
    tcase_add_test(tcase, test_silence_is_as_before_it);
    tcase_add_test(tcase, test_gatherings_come_to_a_second_apart);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

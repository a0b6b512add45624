/* Tests of replay's schedule: clipping, turns, samples, the queue. */
#include <check.h>
#include <stdlib.h>

#include "launch/command/replay_schedule.h"
#include "runtime/base/memory.h"

START_TEST(test_clipping_gives_the_answer_half_and_the_prompt_the_rest)
{
    static const struct { uint64_t context, generated, most, want_context, want_generated; } rows[] = {
        { 374, 44, 1000, 374, 44 }, /* shorter than the limit */
        { 374, 44, 88, 44, 44 },    { 374, 44, 87, 44, 43 },   { 374, 44, 418, 374, 44 }, { 374, 44, 417, 373, 44 },
        { 10, 500, 100, 10, 50 },   { 0, 500, 100, 0, 50 },    { 500, 0, 100, 100, 0 },   { 3, 3, 1, 1, 0 },
        { 3, 3, 2, 1, 1 },          { 3, 3, 0, 0, 0 },         { 374, 44, REPLAY_NO_LIMIT, 374, 44 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ReplayRequest clipped = kvg_replay_clip((ReplayRequest){ rows[i].context, rows[i].generated }, rows[i].most);
        ck_assert_uint_eq(clipped.context, rows[i].want_context);
        ck_assert_uint_eq(clipped.generated, rows[i].want_generated);
    }
}
END_TEST

START_TEST(test_accepted_draws_lie_in_the_round_and_reach_both_ends)
{
    for (uint32_t spec = 1; spec <= 7; spec++) {
        unsigned seen = 0;
        for (uint64_t round = 0; round < 500; round++) {
            uint32_t accepted = kvg_replay_accepted(3, 5, round, spec);
            ck_assert(accepted >= 1 && accepted <= spec);
            ck_assert_uint_eq(accepted, kvg_replay_accepted(3, 5, round, spec));
            seen |= 1u << accepted;
        }
        ck_assert_uint_eq(seen, (2u << spec) - 2);
    }
}
END_TEST

/* Walks a request to its end; the number of steps that stage rows. owes: a partial accept leaves all rows since the last whole one to be
 * written again, as two columns do; else nothing is ever owed. */
static unsigned walk(const ReplayPace *pace, const ReplayRequest *request, uint64_t index, int owes)
{
    uint64_t committed = 0, round = 0;
    uint32_t owed = 0;
    unsigned steps = 0;
    for (;;) {
        ReplayTurn turn = kvg_replay_turn(pace, request, index, committed, owed, round);
        ck_assert_uint_eq(turn.replay, owed);
        ck_assert_uint_le(turn.replay + turn.rows, turn.decode ? kvg_replay_round_rows_max(pace) : pace->chunk);
        if (turn.rows == 0 && turn.replay > 0) { /* on its own: all of it is taken, no round is spent */
            owed = 0;
            continue;
        }
        if (turn.rows == 0) {
            ck_assert_uint_eq(owed, 0);
            ck_assert_uint_eq(committed, kvg_replay_total(request));
            return steps;
        }
        ck_assert(turn.accepted >= 1 && turn.accepted <= turn.rows);
        ck_assert(committed + turn.rows <= kvg_replay_total(request));
        ck_assert_int_eq(turn.decode, committed >= request->context);
        if (!turn.decode) { /* a step never mixes prompt rows and answer rows of a request */
            ck_assert(committed + turn.rows <= request->context && turn.accepted == turn.rows && turn.rows <= pace->chunk);
        } else {
            ck_assert(turn.rows <= (pace->spec > 1 ? pace->spec : 1));
        }
        committed += turn.accepted;
        owed = !owes || turn.accepted == turn.rows ? 0 : owed + turn.accepted;
        round += turn.decode != 0;
        steps++;
    }
}

START_TEST(test_every_walk_commits_context_and_generated_exactly)
{
    static const uint32_t chunks[] = { 1, 7, 64, 4096 }, specs[] = { 0, 1, 2, 3, 5, 16 };
    static const ReplayRequest requests[] = { { 0, 0 }, { 0, 1 }, { 1, 0 }, { 1, 1 }, { 63, 17 }, { 64, 1 }, { 65, 2 }, { 100, 99 } };
    for (size_t c = 0; c < 4; c++) {
        for (size_t s = 0; s < 6; s++) {
            for (size_t r = 0; r < 8; r++) {
                ReplayPace pace = { 11, chunks[c], specs[s] };
                unsigned   steps = walk(&pace, &requests[r], r, 0);
                ck_assert_uint_eq(walk(&pace, &requests[r], r, 1), steps); /* replays change no round */
                unsigned   prompts = (unsigned)((requests[r].context + chunks[c] - 1) / chunks[c]);
                ck_assert_uint_ge(steps, prompts);
                if (specs[s] <= 1) {
                    ck_assert_uint_eq(steps, prompts + (unsigned)requests[r].generated);
                }
            }
        }
    }
}
END_TEST

START_TEST(test_samples_hold_first_and_last_row_and_stay_inside)
{
    static const struct { uint64_t first, len; } spans[] = { { 0, 0 }, { 5, 5 }, { 0, 1 }, { 0, 2 }, { 0, 64 }, { 0, 65 }, { 32, 33 },
                                                             { 32, 1000 }, { 96, 160 }, { 0, 100000 } };
    uint64_t rows[REPLAY_SAMPLES_MAX];
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        size_t count = kvg_replay_sample_rows(1, i, spans[i].first, spans[i].len, rows);
        if (spans[i].len == spans[i].first) {
            ck_assert_uint_eq(count, 0);
            continue;
        }
        ck_assert_uint_ge(count, 1);
        ck_assert_uint_eq(rows[0], spans[i].first);
        ck_assert_uint_eq(rows[count - 1], spans[i].len - 1);
        for (size_t at = 1; at < count; at++) {
            ck_assert_uint_lt(rows[at - 1], rows[at]);
        }
    }
}
END_TEST

START_TEST(test_the_queue_admits_in_order_and_takes_back_what_was_turned_out)
{
    ReplayQueue   queue;
    ReplayRequest request = { 100, 20 };
    ck_assert_int_eq(kvg_replay_queue_create(4, &queue), KVG_OK);
    kvg_replay_queue_set(&queue, 1, REPLAY_REFUSED);
    ck_assert_uint_eq(kvg_replay_queue_next(&queue), 0);
    kvg_replay_queue_set(&queue, 0, REPLAY_RUNNING);
    ck_assert_uint_eq(kvg_replay_queue_next(&queue), 2);
    kvg_replay_queue_set(&queue, 2, REPLAY_RUNNING);
    kvg_replay_queue_set(&queue, 3, REPLAY_RUNNING);
    ck_assert_uint_eq(kvg_replay_queue_next(&queue), 4);
    ck_assert_uint_eq(kvg_replay_queue_booking(&queue, 2, &request), 100);
    kvg_replay_queue_set(&queue, 3, REPLAY_WAITING);
    kvg_replay_queue_set(&queue, 2, REPLAY_WAITING);
    ck_assert_uint_eq(kvg_replay_queue_next(&queue), 2);
    ck_assert_uint_eq(kvg_replay_queue_booking(&queue, 2, &request), 120); /* all of it, the second time */
    ck_assert_uint_eq(queue.open, 3);
    kvg_replay_queue_set(&queue, 0, REPLAY_DONE);
    ck_assert_uint_eq(queue.open, 2);
    kvg_replay_queue_free(&queue);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replay_schedule");
    TCase *cases = tcase_create("schedule");
    tcase_add_test(cases, test_clipping_gives_the_answer_half_and_the_prompt_the_rest);
    tcase_add_test(cases, test_accepted_draws_lie_in_the_round_and_reach_both_ends);
    tcase_add_test(cases, test_every_walk_commits_context_and_generated_exactly);
    tcase_add_test(cases, test_samples_hold_first_and_last_row_and_stay_inside);
    tcase_add_test(cases, test_the_queue_admits_in_order_and_takes_back_what_was_turned_out);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

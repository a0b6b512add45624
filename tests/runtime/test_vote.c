#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/vote.h>

#define RANKS_MAX 8u

typedef struct Votes {
    KvVoteRecord        records[RANKS_MAX];
    const KvVoteRecord *pointers[RANKS_MAX];
    uint32_t            n, tp;
} Votes;

/* Everyone ready and agreed; accepted counts and user digests come from the last stage alone. */
static void agree(Votes *votes, uint32_t n, uint32_t tp)
{
    *votes = (Votes){.n = n, .tp = tp};
    for (uint32_t rank = 0; rank < n; rank++) {
        int last = rank / tp == n / tp - 1;
        votes->records[rank] = (KvVoteRecord){.step = 41, .epoch = 3, .rank = (uint16_t)rank, .targets = 900,
                                              .accepted = last ? 7 : 0, .layout = 50 + rank / tp, .user = last ? 8 : 0};
        votes->pointers[rank] = &votes->records[rank];
    }
}

static KvVoteOutcome decide(const Votes *votes)
{
    KvVoteOutcome outcome;
    memset(&outcome, 0xA5, sizeof outcome);
    kvg_vote_decide(votes->pointers, votes->n, votes->tp, &outcome);
    return outcome;
}

static void assert_disagree(const Votes *votes, KvVoteField field, unsigned rank, unsigned rank_b)
{
    KvVoteOutcome outcome = decide(votes);
    ck_assert_int_eq(outcome.kind, KVG_VOTE_DISAGREE);
    ck_assert_str_eq(kvg_vote_field_name((KvVoteField)outcome.field), kvg_vote_field_name(field));
    ck_assert_uint_eq(outcome.rank, rank);
    ck_assert_uint_eq(outcome.rank_b, rank_b);
    ck_assert_int_eq(kvg_vote_outcome_status(&outcome, 41, votes->pointers), KVG_ELAYOUT);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), kvg_vote_field_name(field)));
}

START_TEST(test_record_is_packed_little_endian_as_the_rules_number_it)
{
    KvVoteRecord record = {.step = 0x0807060504030201u, .epoch = 0x0c0b0a09u, .status = 0x0e0d, .rank = 0x100f,
                           .targets = 0x1817161514131211u, .accepted = 0x201f1e1d1c1b1a19u, .layout = 0x2827262524232221u,
                           .user = 0x302f2e2d2c2b2a29u, .decided = 0x3837363534333231u, .count = 0x3c3b3a39u,
                           .reserved = 0x403f3e3du};
    const uint8_t *bytes = (const uint8_t *)&record;

    ck_assert_uint_eq(sizeof record, 64);
    for (unsigned i = 0; i < 64; i++) ck_assert_uint_eq(bytes[i], i + 1);
    ck_assert_uint_eq(kvg_vote_record_bytes(0), 64);
    ck_assert_uint_eq(kvg_vote_record_bytes(256), 576);
    ck_assert_uint_eq(kvg_vote_record_bytes(UINT32_MAX), 64 + 2 * (uint64_t)UINT32_MAX);
}
END_TEST

START_TEST(test_accepted_counts_survive_the_record)
{
    static const struct { uint64_t accepted, staged; KvgStatus status; unsigned stored; } cases[] = {
        {0, 5, KVG_OK, 0}, {4, 5, KVG_OK, 4}, {5, 5, KVG_OK, 0xFFFF}, {6, 5, KVG_EINVAL, 0}, {0, 0, KVG_OK, 0xFFFF},
        {65534, 65535, KVG_OK, 65534}, {65535, 65535, KVG_OK, 0xFFFF}, {65535, 65536, KVG_EINVAL, 0},
        {65536, 65536, KVG_OK, 0xFFFF}, {100000, 200000, KVG_EINVAL, 0}, {200000, 200000, KVG_OK, 0xFFFF},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t stored = 77;
        uint64_t back = 0;
        ck_assert_int_eq(kvg_vote_accepted_pack(cases[i].accepted, cases[i].staged, &stored), cases[i].status);
        ck_assert_uint_eq(stored, cases[i].status == KVG_OK ? cases[i].stored : 77);
        if (cases[i].status != KVG_OK) continue;
        ck_assert_int_eq(kvg_vote_accepted_unpack(stored, cases[i].staged, &back), KVG_OK);
        ck_assert_uint_eq(back, cases[i].accepted);
    }
    uint64_t back = 77;
    ck_assert_int_eq(kvg_vote_accepted_unpack(6, 5, &back), KVG_EFORMAT);
    ck_assert_uint_eq(back, 77);
}
END_TEST

START_TEST(test_all_agreed_publishes)
{
    static const struct { uint32_t n, tp; } grids[] = {{1, 1}, {2, 1}, {2, 2}, {4, 2}, {8, 2}, {8, 8}, {8, 1}};
    Votes votes;
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        agree(&votes, grids[i].n, grids[i].tp);
        KvVoteOutcome outcome = decide(&votes);
        ck_assert_int_eq(outcome.kind, KVG_VOTE_PUBLISH);
        ck_assert_int_eq(kvg_vote_outcome_status(&outcome, 41, votes.pointers), KVG_OK);
    }
}
END_TEST

START_TEST(test_lowest_refusal_is_named_before_any_disagreement)
{
    Votes votes;
    agree(&votes, 4, 2);
    votes.records[1].epoch = 4;
    votes.records[3].status = KVG_ENOMEM;
    votes.records[2].status = KVG_ETAINTED;
    KvVoteOutcome outcome = decide(&votes);
    ck_assert_int_eq(outcome.kind, KVG_VOTE_REFUSED);
    ck_assert_uint_eq(outcome.rank, 2);
    ck_assert_int_eq(outcome.status, KVG_ETAINTED);
    ck_assert_int_eq(kvg_vote_outcome_status(&outcome, 41, NULL), KVG_EREFUSED);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "rank 2"));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "ETAINTED"));
}
END_TEST

START_TEST(test_unknown_and_negative_codes_are_refusals_too)
{
    Votes votes;
    agree(&votes, 2, 1);
    votes.records[1].status = -5;
    KvVoteOutcome outcome = decide(&votes);
    ck_assert_int_eq(outcome.kind, KVG_VOTE_REFUSED);
    ck_assert_int_eq(outcome.status, -5);
    ck_assert_int_eq(kvg_vote_outcome_status(&outcome, 41, NULL), KVG_EREFUSED);
}
END_TEST

START_TEST(test_fields_are_compared_in_order)
{
    Votes votes;
    agree(&votes, 8, 2);
    votes.records[7].user = 9;
    assert_disagree(&votes, KVG_VOTE_FIELD_USER, 6, 7);
    votes.records[5].layout = 1;
    assert_disagree(&votes, KVG_VOTE_FIELD_LAYOUT, 4, 5);
    votes.records[3].layout = 1;
    assert_disagree(&votes, KVG_VOTE_FIELD_LAYOUT, 2, 3);
    votes.records[2].accepted = 1;
    assert_disagree(&votes, KVG_VOTE_FIELD_ACCEPTED, 2, 6);
    votes.records[7].targets = 1;
    assert_disagree(&votes, KVG_VOTE_FIELD_TARGETS, 0, 7);
    votes.records[6].step = 1;
    assert_disagree(&votes, KVG_VOTE_FIELD_STEP, 0, 6);
    votes.records[0].epoch = 1;
    assert_disagree(&votes, KVG_VOTE_FIELD_EPOCH, 0, 1);
}
END_TEST

START_TEST(test_step_that_nobody_accepted_is_rolled_back)
{
    Votes votes;
    agree(&votes, 4, 2);
    votes.records[2].accepted = votes.records[3].accepted = 0;
    votes.records[1].layout = 1; /* comes later in the order */
    KvVoteOutcome outcome = decide(&votes);
    ck_assert_int_eq(outcome.kind, KVG_VOTE_UNACCEPTED);
    ck_assert_int_eq(kvg_vote_outcome_status(&outcome, 41, votes.pointers), KVG_EINVAL);
    votes.records[3].targets = 1;
    assert_disagree(&votes, KVG_VOTE_FIELD_TARGETS, 0, 3);
    kvg_vote_decide(votes.pointers, 0, 2, &outcome);
    ck_assert_int_eq(outcome.kind, KVG_VOTE_UNACCEPTED);
}
END_TEST

START_TEST(test_stages_may_differ_in_layout_and_in_nothing_else)
{
    Votes votes;
    agree(&votes, 4, 2);
    votes.records[2].layout = votes.records[3].layout = 4711;
    ck_assert_int_eq(decide(&votes).kind, KVG_VOTE_PUBLISH);
    votes.tp = 4;
    assert_disagree(&votes, KVG_VOTE_FIELD_LAYOUT, 0, 2);
    votes.tp = 0; /* counts as 1: no rank shares a stage */
    ck_assert_int_eq(decide(&votes).kind, KVG_VOTE_PUBLISH);
}
END_TEST

START_TEST(test_what_only_bookkeeping_reads_does_not_decide)
{
    Votes votes;
    agree(&votes, 4, 2);
    votes.records[1].decided = 40;
    votes.records[2].count = 9;
    votes.records[3].reserved = 1;
    ck_assert_int_eq(decide(&votes).kind, KVG_VOTE_PUBLISH);
}
END_TEST

/* ---- the decision against a naive reading of the rules: all pairs, sentence by sentence */

static uint64_t field_value(const KvVoteRecord *record, int field)
{
    uint64_t values[KVG_VOTE_FIELD_COUNT] = {0, record->epoch, record->step, record->targets, record->accepted,
                                             record->layout, record->user};
    return values[field];
}

static int naive_differs(const Votes *votes, int field, KvVoteOutcome *outcome)
{
    for (uint32_t a = 0; a < votes->n; a++) {
        for (uint32_t b = a + 1; b < votes->n; b++) {
            uint64_t x = field_value(&votes->records[a], field), y = field_value(&votes->records[b], field);
            int passed_only = field == KVG_VOTE_FIELD_ACCEPTED || field == KVG_VOTE_FIELD_USER;
            if (passed_only && (x == 0 || y == 0)) continue;
            if (field == KVG_VOTE_FIELD_LAYOUT && a / votes->tp != b / votes->tp) continue;
            if (x == y) continue;
            *outcome = (KvVoteOutcome){KVG_VOTE_DISAGREE, (uint8_t)field, 0, (uint16_t)a, (uint16_t)b};
            return 1;
        }
    }
    return 0;
}

static KvVoteOutcome naive_decide(const Votes *votes)
{
    KvVoteOutcome outcome = {KVG_VOTE_PUBLISH, 0, 0, 0, 0};
    uint64_t any_accepted = 0;
    for (uint32_t r = 0; r < votes->n; r++) {
        if (votes->records[r].status != 0) {
            return (KvVoteOutcome){KVG_VOTE_REFUSED, 0, votes->records[r].status, (uint16_t)r, 0};
        }
        any_accepted |= votes->records[r].accepted;
    }
    for (int field = KVG_VOTE_FIELD_EPOCH; field < KVG_VOTE_FIELD_COUNT; field++) {
        if (field == KVG_VOTE_FIELD_ACCEPTED && any_accepted == 0) return (KvVoteOutcome){KVG_VOTE_UNACCEPTED, 0, 0, 0, 0};
        if (naive_differs(votes, field, &outcome)) return outcome;
    }
    return outcome;
}

static void disturb(KvVoteRecord *record)
{
    switch (rand() % 9) {
    case 0: record->status = (int16_t)(1 + rand() % 18); break;
    case 1: record->epoch ^= 1u << rand() % 32; break;
    case 2: record->step ^= 1ull << rand() % 64; break;
    case 3: record->targets ^= 1ull << rand() % 64; break;
    case 4: record->accepted ^= 1ull << rand() % 64; break;
    case 5: record->layout ^= 1ull << rand() % 64; break;
    case 6: record->user ^= 1ull << rand() % 64; break;
    case 7: record->accepted = 0; break;
    default: record->user = 0; break;
    }
}

START_TEST(test_outcomes_are_told_without_records_and_unknown_ones_are_refused)
{
    KvVoteOutcome outcome = {.kind = KVG_VOTE_DISAGREE, .field = KVG_VOTE_FIELD_TARGETS, .rank = 2, .rank_b = 5};
    Votes         votes;

    ck_assert_int_eq(kvg_vote_outcome_status(&outcome, 9, NULL), KVG_ELAYOUT);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "step 9 was rolled back: ranks 2 and 5 disagree in targets"));
    outcome.kind = 4;
    ck_assert_int_eq(kvg_vote_outcome_status(&outcome, 9, NULL), KVG_EFORMAT);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "outcome kind 4"));
    ck_assert_str_eq(kvg_vote_kind_name((KvVoteKind)3), "unaccepted");
    ck_assert_str_eq(kvg_vote_kind_name((KvVoteKind)4), "?");
    ck_assert_str_eq(kvg_vote_field_name(KVG_VOTE_FIELD_COUNT), "?");
    agree(&votes, 2, 1);
    votes.records[1].status = -2; /* a status is told as it crosses the wire */
    outcome = (KvVoteOutcome){.kind = KVG_VOTE_DISAGREE, .field = KVG_VOTE_FIELD_STATUS, .rank = 0, .rank_b = 1};
    ck_assert_int_eq(kvg_vote_outcome_status(&outcome, 9, votes.pointers), KVG_ELAYOUT);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "has status 0000000000000000, rank 1 has 000000000000fffe"));
}
END_TEST

START_TEST(test_decision_is_the_naive_readings)
{
    int kinds[4] = {0};
    srand(5);
    for (int round = 0; round < 20000; round++) {
        Votes votes;
        uint32_t tp = 1u << rand() % 3, stages = 1 + (uint32_t)rand() % (RANKS_MAX / tp);
        agree(&votes, tp * stages, tp);
        for (int hits = rand() % 4; hits > 0; hits--) disturb(&votes.records[(uint32_t)rand() % votes.n]);
        KvVoteOutcome got = decide(&votes), want = naive_decide(&votes);
        ck_assert_msg(memcmp(&got, &want, sizeof got) == 0, "round %d: kind %u field %u ranks %u %u, want %u %u %u %u", round,
                      got.kind, got.field, got.rank, got.rank_b, want.kind, want.field, want.rank, want.rank_b);
        kinds[got.kind]++;
    }
    for (int kind = 0; kind < 4; kind++) ck_assert_int_gt(kinds[kind], 100);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("vote");
    TCase *tcase = tcase_create("rules");
    tcase_add_test(tcase, test_record_is_packed_little_endian_as_the_rules_number_it);
    tcase_add_test(tcase, test_accepted_counts_survive_the_record);
    tcase_add_test(tcase, test_all_agreed_publishes);
    tcase_add_test(tcase, test_lowest_refusal_is_named_before_any_disagreement);
    tcase_add_test(tcase, test_unknown_and_negative_codes_are_refusals_too);
    tcase_add_test(tcase, test_fields_are_compared_in_order);
    tcase_add_test(tcase, test_step_that_nobody_accepted_is_rolled_back);
    tcase_add_test(tcase, test_stages_may_differ_in_layout_and_in_nothing_else);
    tcase_add_test(tcase, test_what_only_bookkeeping_reads_does_not_decide);
    tcase_add_test(tcase, test_outcomes_are_told_without_records_and_unknown_ones_are_refused);
    tcase_add_test(tcase, test_decision_is_the_naive_readings);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int ran = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return ran == 0 || failed != 0;
}

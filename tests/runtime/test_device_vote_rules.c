/* The vote's device code compiled for the host, against the host's rules: the decision and its common case, tags and slots. */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/dev/device_vote_entry.h"
#include "tests/kernels/vote_scene.h"
#include "tests/support/no_leak.h"

/* ---- the decision, on every vector */

static uint64_t number(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_integer(value), "a vector has no %s", key);
    return (uint64_t)json_integer_value(value);
}

static uint32_t read_records(json_t *list, KvVoteRecord *records, const KvVoteRecord **pointers, uint32_t *tp)
{
    uint32_t n = (uint32_t)json_array_size(list);

    ck_assert_uint_le(n, KVG_VOTE_DEVICE_RANKS_MAX);
    *tp = 0;
    for (uint32_t i = 0; i < n; i++) {
        json_t *r = json_array_get(list, i);
        *tp += number(r, "stage") == 0;
        records[i] = (KvVoteRecord){ .step = number(r, "step"), .epoch = (uint32_t)number(r, "epoch"), .status = (int16_t)number(r, "status"),
                                     .rank = (uint16_t)i, .targets = number(r, "targets"), .accepted = number(r, "accepted"),
                                     .layout = number(r, "layout"), .user = number(r, "user") };
        pointers[i] = &records[i];
    }
    return n;
}

static void assert_expected(const KvVoteOutcome *outcome, json_t *expected, size_t line)
{
    const char *kind = json_string_value(json_object_get(expected, "outcome"));

    ck_assert_str_eq(kvg_vote_kind_name((KvVoteKind)outcome->kind), kind);
    if (outcome->kind == KVG_VOTE_REFUSED) {
        ck_assert_msg(outcome->rank == number(expected, "rank") && outcome->status == (int16_t)number(expected, "status"), "line %zu", line);
    } else if (outcome->kind == KVG_VOTE_DISAGREE) {
        json_t *ranks = json_object_get(expected, "ranks");
        ck_assert_str_eq(kvg_vote_field_name((KvVoteField)outcome->field), json_string_value(json_object_get(expected, "field")));
        ck_assert_int_eq(outcome->rank, json_integer_value(json_array_get(ranks, 0)));
        ck_assert_int_eq(outcome->rank_b, json_integer_value(json_array_get(ranks, 1)));
    }
}

START_TEST(test_every_vector_decides_as_the_host_does_and_survives_the_outcome_word)
{
    KvVoteRecord        records[KVG_VOTE_DEVICE_RANKS_MAX];
    const KvVoteRecord *pointers[KVG_VOTE_DEVICE_RANKS_MAX];
    FILE               *file = fopen(KVG_TEST_DATA "/vectors/vote.jsonl", "r");
    json_error_t        error;
    json_t             *line;
    size_t              lines = 0;

    ck_assert_ptr_nonnull(file);
    while ((line = json_loadf(file, JSON_DISABLE_EOF_CHECK, &error)) != NULL) {
        uint32_t      tp, n = read_records(json_object_get(line, "records"), records, pointers, &tp);
        KvVoteOutcome host, device = kvg_vote_decide_inline(pointers, n, tp);

        kvg_vote_decide(pointers, n, tp, &host);
        ck_assert_mem_eq(&device, &host, sizeof host);
        assert_expected(&device, json_object_get(line, "ok"), ++lines);
        KvVoteWord word = kvg_vote_word(kvg_vote_word_decided(records[0].step, device), 1);
        ck_assert_int_eq(word.kind, KVG_VOTE_WORD_DECIDED);
        ck_assert_uint_eq(word.step, records[0].step);
        ck_assert_mem_eq(&word.outcome, &device, sizeof device);
        json_decref(line);
    }
    fclose(file);
    ck_assert_uint_ge(lines, 200);
}
END_TEST

START_TEST(test_outcome_word_keeps_every_value_at_its_limits)
{
    const KvVoteOutcome outcomes[] = {
        { KVG_VOTE_PUBLISH, 0, 0, 0, 0 }, { KVG_VOTE_REFUSED, 0, -5, 127, 0 }, { KVG_VOTE_REFUSED, 0, INT16_MIN, 0, 0 },
        { KVG_VOTE_DISAGREE, KVG_VOTE_FIELD_USER, 0, 126, 127 }, { KVG_VOTE_UNACCEPTED, 0, 0, 0, 0 } };
    const uint64_t steps[] = { 1, 0xfffffff, 0x10000000, 0x10000001, UINT64_MAX / 2 };

    ck_assert_int_eq(kvg_vote_word(0, 1).kind, KVG_VOTE_WORD_NONE);
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        for (size_t o = 0; o < sizeof outcomes / sizeof *outcomes; o++) {
            uint64_t   packed = kvg_vote_word_decided(steps[s], outcomes[o]);
            KvVoteWord word = kvg_vote_word(packed, steps[s] > 99 ? steps[s] - 99 : 1);
            ck_assert_uint_ne(packed, 0);
            ck_assert_uint_eq(word.step, steps[s]);
            ck_assert_mem_eq(&word.outcome, &outcomes[o], sizeof word.outcome);
        }
        for (int stopped = 0; stopped < 2; stopped++) {
            KvVoteWord word = kvg_vote_word(kvg_vote_word_missing(steps[s], stopped, 71), steps[s]);
            ck_assert_int_eq(word.kind, stopped ? KVG_VOTE_WORD_STOPPED : KVG_VOTE_WORD_INDOUBT);
            ck_assert_uint_eq(word.missing, 71);
            ck_assert_uint_eq(word.step, steps[s]);
        }
    }
}
END_TEST

/* ---- the common case, unit by unit: it may say publish only where the decision does */

static int units_agree(const KvVoteRecord *own, const KvVoteRecord *other)
{
    uint32_t mine[KVG_VOTE_HEADER_WORDS + 2] = { 0 }, theirs[KVG_VOTE_HEADER_WORDS + 2] = { 0 };
    int      agree = 1;

    memcpy(mine, own, KVG_VOTE_HEADER_BYTES);
    memcpy(theirs, other, KVG_VOTE_HEADER_BYTES);
    for (uint32_t k = 0; k < KVG_VOTE_HEADER_WORDS + 2; k++) {
        agree &= ((mine[k] ^ theirs[k]) & kvg_vote_unit_mask(k / KVG_VOTE_UNIT_WORDS, k % KVG_VOTE_UNIT_WORDS)) == 0;
    }
    return agree;
}

/* What the device does before it decides by the general rule; -1 where it does not ask. */
static int common_case(const KvVoteRecord *const records[], uint32_t n, uint32_t own)
{
    int agree = 1;

    if (records[own]->status != 0 || records[own]->accepted == 0) return -1;
    for (uint32_t rank = 0; rank < n; rank++) agree &= rank == own || units_agree(records[own], records[rank]);
    return agree;
}

static int all_pass(const KvVoteRecord *const records[], uint32_t n)
{
    for (uint32_t rank = 0; rank < n; rank++) {
        if (records[rank]->accepted == 0 || records[rank]->user == 0) return 0;
    }
    return 1;
}

static void assert_common_case(const KvVoteRecord *const records[], uint32_t n, uint32_t seen[2])
{
    KvVoteOutcome outcome;

    kvg_vote_decide(records, n, n, &outcome);
    for (uint32_t own = 0; own < n; own++) {
        int agree = common_case(records, n, own);
        if (agree < 0) continue;
        seen[agree]++;
        if (agree) {
            uint32_t passed = 0;
            while (records[passed]->accepted == 0) passed++;
            ck_assert(outcome.kind == KVG_VOTE_PUBLISH && records[passed]->accepted == records[own]->accepted);
        } else if (all_pass(records, n)) { /* else the general rule is asked, whatever it says */
            ck_assert_int_ne(outcome.kind, KVG_VOTE_PUBLISH);
        }
    }
}

START_TEST(test_units_that_agree_are_a_publish_on_every_vector)
{
    KvVoteRecord        records[KVG_VOTE_DEVICE_RANKS_MAX];
    const KvVoteRecord *pointers[KVG_VOTE_DEVICE_RANKS_MAX];
    FILE               *file = fopen(KVG_TEST_DATA "/vectors/vote.jsonl", "r");
    json_error_t        error;
    json_t             *line;
    uint32_t            seen[2] = { 0 };

    ck_assert_ptr_nonnull(file);
    while ((line = json_loadf(file, JSON_DISABLE_EOF_CHECK, &error)) != NULL) {
        uint32_t tp, n = read_records(json_object_get(line, "records"), records, pointers, &tp);
        for (uint32_t from = 0; tp != 0 && from < n; from += tp) assert_common_case(pointers + from, tp, seen); /* stage by stage */
        json_decref(line);
    }
    fclose(file);
    ck_assert_msg(seen[0] > 0 && seen[1] > 0, "%u differed, %u agreed", seen[0], seen[1]);
}
END_TEST

START_TEST(test_units_that_agree_are_a_publish_on_records_with_any_bit_changed)
{
    KvVoteRecord        records[4];
    const KvVoteRecord *pointers[4] = { &records[0], &records[1], &records[2], &records[3] };
    uint32_t            seen[2] = { 0 };

    for (uint32_t trial = 0; trial < 4000; trial++) {
        for (uint32_t rank = 0; rank < 4; rank++) {
            records[rank] = (KvVoteRecord){ .step = trial + 1, .epoch = 3, .rank = (uint16_t)rank, .targets = kvg_mix64(trial), .accepted = 5 + trial,
                                            .layout = kvg_mix64(trial + 1), .user = trial % 3 == 0 ? 0 : 9, .decided = trial - rank % 2, .count = 4 };
            if (kvg_mix64(trial * 8 + rank) % 5 == 0) records[rank].accepted = 0;
            if (kvg_mix64(trial * 8 + rank + 4) % 7 == 0) records[rank].user = 0;
        }
        uint64_t draw = kvg_mix64(trial * 77);
        if (draw % 4 != 0) { /* each bit of the header sooner or later */
            uint8_t *record = (uint8_t *)&records[draw >> 8 & 3];
            record[trial / 8 % KVG_VOTE_HEADER_BYTES] ^= (uint8_t)(1u << trial % 8);
        }
        assert_common_case(pointers, 4, seen);
        assert_common_case(pointers + 1, 2, seen);
    }
    ck_assert_msg(seen[0] > 1000 && seen[1] > 500, "%u differed, %u agreed", seen[0], seen[1]);
}
END_TEST

START_TEST(test_a_term_is_its_parts_joined_and_what_is_formed_ahead_has_room)
{
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t id = kvg_mix64(i), generation = kvg_mix64(i + 1000), value = i * 77;
        ck_assert_uint_eq(kvg_mix_term(i, id, generation, value), kvg_mix_joined(kvg_mix_place(i, id), kvg_mix_mark(generation), value));
    }
    for (uint32_t entries = 1; entries < 200; entries++) {
        const size_t room = (entries + 31) / 32 * 32, bytes = kvg_vote_ahead_bytes(entries);
        uint8_t     *memory = malloc(bytes);
        KvVoteAhead  at = kvg_vote_ahead_at(memory, entries);
        ck_assert_ptr_eq(at.head, memory);
        ck_assert_ptr_eq(at.image[0], at.term + room);
        ck_assert_ptr_eq(at.image[1], at.image[0] + kvg_vote_units(entries));
        ck_assert_ptr_eq(at.span[1], at.span[0] + room);
        ck_assert_ptr_eq(at.end, memory + bytes);
        ck_assert_uint_eq(((uintptr_t)at.image[0] - (uintptr_t)memory) % 16, 0);
        free(memory);
    }
}
END_TEST

/* ---- tags */

START_TEST(test_tags_fit_the_step_awaited_and_no_older_epoch)
{
    const uint32_t epochs[] = { 0, 1, 63, 64, 126, 127, 128, 1000 };

    for (size_t i = 0; i < sizeof epochs / sizeof *epochs; i++) {
        uint32_t epoch = epochs[i], awaited = kvg_vote_tag(0x2000000, epoch);
        ck_assert(!kvg_vote_tag_fits(0, awaited)); /* fresh memory, though the step's low bits are 0 */
        ck_assert(kvg_vote_tag_fits(awaited, awaited));
        ck_assert(kvg_vote_tag_fits(kvg_vote_tag(0x2000000, epoch + 1), awaited));
        ck_assert(epoch == 0 || !kvg_vote_tag_fits(kvg_vote_tag(0x2000000, epoch - 1), awaited));
        for (uint32_t back = 2; back <= 2048; back *= 2) {
            ck_assert(!kvg_vote_tag_fits(kvg_vote_tag(0x2000000 - back, epoch), awaited));
            ck_assert(!kvg_vote_tag_fits(kvg_vote_tag(0x2000000 + back, epoch), awaited));
        }
    }
}
END_TEST

START_TEST(test_slots_hold_two_windows_and_every_record_whole)
{
    const struct { uint32_t window, slots; } cases[] = { { 1, 2 }, { 2, 4 }, { 3, 8 }, { 4, 8 }, { 5, 16 }, { 1024, 2048 } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) ck_assert_uint_eq(kvg_vote_slots(cases[i].window), cases[i].slots);
    for (uint32_t sequences = 0; sequences < 70; sequences++) {
        KvVoteBoard board = { .ranks = 3, .slots = 4, .sequences_max = sequences };
        size_t      units = kvg_vote_slot_bytes(&board) / 3 / 16;
        ck_assert_uint_ge(units * 12, kvg_vote_record_bytes(sequences));
        ck_assert_uint_lt((units - 1) * 12, kvg_vote_record_bytes(sequences));
        ck_assert_uint_eq(kvg_vote_board_bytes(&board), 4 * kvg_vote_slot_bytes(&board));
        ck_assert_uint_ge(4 * kvg_vote_record_words(sequences), units * 12);
        ck_assert_uint_eq(kvg_vote_record_words(sequences) % 2, 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_vote_rules");
    TCase *tcase = tcase_create("device_vote_rules");

    tcase_add_checked_fixture(tcase, no_leak_setup, no_leak_teardown);
    tcase_add_test(tcase, test_every_vector_decides_as_the_host_does_and_survives_the_outcome_word);
    tcase_add_test(tcase, test_outcome_word_keeps_every_value_at_its_limits);
    tcase_add_test(tcase, test_units_that_agree_are_a_publish_on_every_vector);
    tcase_add_test(tcase, test_units_that_agree_are_a_publish_on_records_with_any_bit_changed);
    tcase_add_test(tcase, test_a_term_is_its_parts_joined_and_what_is_formed_ahead_has_room);
    tcase_add_test(tcase, test_tags_fit_the_step_awaited_and_no_older_epoch);
    tcase_add_test(tcase, test_slots_hold_two_windows_and_every_record_whole);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

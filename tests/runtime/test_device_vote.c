/* The vote's device code compiled for the host, against the host's rules. What only a device can do (waiting) is in test_cuda_vote and gpu_vote. */
#include <check.h>
#include <jansson.h>

#include "runtime/base/memory.h"
#include "runtime/dev/device_vote_entry.h"
#include "runtime/rules/columns.h"
#include "runtime/rules/ring_inline.h"
#include "tests/kernels/vote_scene.h"

static uint64_t live_before;

static void setup(void)
{
    live_before = kvg_live_allocations();
}

static void teardown(void)
{
    ck_assert_uint_eq(kvg_live_allocations(), live_before);
}

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

/* ---- the record */

/* As pp/step_post.c writes it, from the same arena. */
static void naive_record(const Scene *scene, uint32_t rank, uint8_t *arena, KvVoteRecord *record)
{
    KvVoteArrays       a = scene_arrays(scene, arena);
    const KvVoteWords *words = a.words;
    uint64_t           targets = words->running, accepted = 0, layout = words->layout;
    int                status = words->status;

    memset(record, 0, kvg_vote_record_bytes(scene->entries));
    for (uint32_t e = 0; e < scene->entries; e++) {
        uint32_t slot = (uint32_t)a.slots[e], base = a.len[slot], target = a.len_staged[slot];
        uint16_t stored = 0;
        if (words->accepts && kvg_vote_accepted_pack(a.accepted[e], target - base, &stored) != KVG_OK && status == 0) status = KVG_EINVAL;
        targets += kvg_mix_term(e, a.ids[e], a.generations[e], target);
        accepted += kvg_mix_term(e, a.ids[e], a.generations[e], stored);
        for (uint32_t c = 0; c < SCENE_CLASSES; c++) layout += kvg_mix_term(e, c, a.class_at[c].base_row[slot], target);
        record->accepted_rows[e] = words->status == KVG_ETAINTED ? a.accepted[e] != 0 : stored;
    }
    record->step = words->step, record->epoch = words->epoch, record->status = (int16_t)status, record->rank = (uint16_t)rank;
    record->targets = targets ? targets : 1;
    record->accepted = status != 0 || !words->accepts ? 0 : accepted ? accepted : 1;
    record->layout = layout ? layout : 1;
    record->user = words->user, record->decided = words->decided, record->count = words->count;
}

static const Scene scenes[] = {
    { .ranks = 1, .tp = 1, .entries = 1, .slots = 2, .rows_most = 1, .fault_every = 9, .seed = 1 },
    { .ranks = 2, .tp = 1, .entries = 64, .slots = 8, .columns = 5, .rows_most = 8, .fault_every = 9, .seed = 2 },
    { .ranks = 2, .tp = 2, .entries = 256, .slots = 4, .columns = 0, .rows_most = 4, .fault_every = 9, .seed = 3 },
    { .ranks = 6, .tp = 3, .entries = 33, .slots = 4, .columns = 3, .rows_most = 3, .fault_every = 3, .seed = 4 },
    { .ranks = 3, .tp = 1, .entries = 0, .slots = 16, .columns = 2, .rows_most = 1, .fault_every = 5, .seed = 5 },
};
enum { SCENES = sizeof scenes / sizeof *scenes, STEPS = 300 };

START_TEST(test_a_record_is_what_a_posted_step_writes)
{
    const Scene  *scene = &scenes[_i];
    Fleet         fleet;
    KvVoteRecord *expected = calloc(1, kvg_vote_record_bytes(scene->entries)), *formed = calloc(1, kvg_vote_record_bytes(scene->entries));

    fleet_open(&fleet, scene);
    for (uint64_t step = 1; step <= STEPS; step++) {
        for (uint32_t rank = 0; rank < scene->ranks; rank++) {
            KvVoteBoard  board = fleet_board(&fleet, rank);
            KvVoteArrays arrays = scene_arrays(scene, fleet.arena[rank]);
            scene_step_input(scene, rank, step, fleet.arena[rank]);
            naive_record(scene, rank, fleet.arena[rank], expected);
            kvg_vote_form_ref(&board, &arrays, formed);
            ck_assert_mem_eq(formed, expected, kvg_vote_record_bytes(scene->entries));
        }
        fleet_step(&fleet, step);
        for (uint32_t rank = 0; rank < scene->ranks; rank++) scene_acknowledge(fleet.arena[rank]);
    }
    fleet_close(&fleet);
    free(expected);
    free(formed);
}
END_TEST

/* ---- whole steps */

START_TEST(test_all_ranks_end_alike_and_faults_are_named)
{
    const Scene *scene = &scenes[_i];
    uint32_t     seen[FAULT_KINDS] = { 0 }, published = 0;
    Fleet        fleet;

    fleet_open(&fleet, scene);
    for (uint64_t step = 1; step <= STEPS; step++) {
        SceneFault fault = scene_fault(scene, step);
        uint64_t   culprit = scene_draw(scene, step, 11, 0) % scene->ranks;
        fleet_step(&fleet, step);
        KvVoteWord word = kvg_vote_word(*scene_arrays(scene, fleet.arena[0]).outcome, step);
        ck_assert_uint_eq(word.step, step);
        seen[fault]++;
        published += word.outcome.kind == KVG_VOTE_PUBLISH;
        if (fault == FAULT_NONE) {
            ck_assert_int_eq(word.kind, KVG_VOTE_WORD_DECIDED);
            ck_assert_int_eq(word.outcome.kind, KVG_VOTE_PUBLISH);
        } else if (fault == FAULT_STATUS || fault == FAULT_TAINT) {
            ck_assert_int_eq(word.outcome.kind, KVG_VOTE_REFUSED);
            ck_assert_int_eq(word.outcome.status, fault == FAULT_STATUS ? KVG_ECAPACITY : KVG_ETAINTED);
            ck_assert_uint_eq(word.outcome.rank, culprit);
        } else if (fault == FAULT_UNACCEPTED) {
            ck_assert_int_eq(word.outcome.kind, KVG_VOTE_UNACCEPTED);
        } else if (scene->ranks == 2 && scene->tp == 1 && fault == FAULT_TARGETS) {
            ck_assert_int_eq(word.outcome.kind, KVG_VOTE_DISAGREE);
            ck_assert_int_eq(word.outcome.field, KVG_VOTE_FIELD_TARGETS);
        }
        for (uint32_t rank = 1; rank < scene->ranks && fault != FAULT_EPOCH; rank++) { /* who is an epoch ahead waits for nobody's older record */
            ck_assert_uint_eq(*scene_arrays(scene, fleet.arena[rank]).outcome, *scene_arrays(scene, fleet.arena[0]).outcome);
            ck_assert_mem_eq(scene_arrays(scene, fleet.arena[rank]).len, scene_arrays(scene, fleet.arena[0]).len, 4 * scene_store_slots(scene));
            ck_assert_uint_eq(fleet_words(&fleet, rank)->stop, fleet_words(&fleet, 0)->stop);
        }
        for (uint32_t rank = 0; rank < scene->ranks; rank++) scene_acknowledge(fleet.arena[rank]);
    }
    fleet_close(&fleet);
    ck_assert_uint_gt(published, STEPS / 3);
    for (int fault = FAULT_NONE; fault < FAULT_KINDS && scene->fault_every == 3; fault++) ck_assert_msg(seen[fault] > 0, "fault %d never came", fault);
}
END_TEST

START_TEST(test_anything_but_publish_changes_nothing_and_stops_what_follows)
{
    const Scene scene = scenes[1];
    Fleet       fleet;
    uint64_t    step = 1;
    uint8_t    *before, *stopped;

    while (scene_fault(&scene, step) != FAULT_STATUS) step++;
    fleet_open(&fleet, &scene);
    before = malloc(fleet.arena_bytes), stopped = malloc(fleet.arena_bytes);
    for (uint32_t rank = 0; rank < 2; rank++) ((KvVoteWords *)fleet.arena[rank])->step = step;
    scene_step_input(&scene, 0, step, fleet.arena[0]);
    memcpy(before, fleet.arena[0], fleet.arena_bytes);
    fleet_step(&fleet, step);
    ck_assert_uint_eq(fleet_words(&fleet, 0)->stop, KVG_VOTE_STOP_OUTCOME);
    memcpy(stopped, fleet.arena[0], fleet.arena_bytes);
    ((KvVoteWords *)before)->stop = KVG_VOTE_STOP_OUTCOME;
    memcpy(before + scene_parts(&scene).outcome, stopped + scene_parts(&scene).outcome, 8);
    ck_assert_mem_eq(stopped, before, fleet.arena_bytes);
    for (int again = 0; again < 3; again++) {
        KvVoteBoard  board = fleet_board(&fleet, 0);
        KvVoteArrays arrays = scene_arrays(&scene, fleet.arena[0]);
        ck_assert_int_eq(kvg_vote_post_ref(&board, &arrays), KVG_OK);
        ck_assert_int_eq(kvg_vote_decide_ref(&board, &arrays), KVG_OK);
    }
    ck_assert_mem_eq(fleet.arena[0], stopped, fleet.arena_bytes);
    free(before);
    free(stopped);
    fleet_close(&fleet);
}
END_TEST

START_TEST(test_a_missing_record_is_in_doubt_by_rank_and_an_older_epoch_is_missing)
{
    const Scene scene = { .ranks = 4, .tp = 2, .entries = 5, .slots = 4, .rows_most = 2, .seed = 6 };
    Fleet       fleet;

    for (uint32_t absent = 0; absent < 4; absent++) {
        for (int older = 0; older < 2; older++) {
            fleet_open(&fleet, &scene);
            for (uint32_t rank = 0; rank < 4; rank++) {
                KvVoteBoard  board = fleet_board(&fleet, rank);
                KvVoteArrays arrays = scene_arrays(&scene, fleet.arena[rank]);
                arrays.words->epoch -= older && rank >= absent;
                if (older || rank < absent) ck_assert_int_eq(kvg_vote_post_ref(&board, &arrays), KVG_OK);
                arrays.words->epoch = 3;
            }
            KvVoteBoard  board = fleet_board(&fleet, 1);
            KvVoteArrays arrays = scene_arrays(&scene, fleet.arena[1]);
            arrays.words->posted = 1; /* rank 1's own record can be the one that is missing */
            ck_assert_int_eq(kvg_vote_decide_ref(&board, &arrays), KVG_OK);
            KvVoteWord word = kvg_vote_word(*arrays.outcome, 1);
            ck_assert_int_eq(word.kind, KVG_VOTE_WORD_INDOUBT);
            ck_assert_uint_eq(word.missing, absent);
            ck_assert_uint_eq(arrays.words->stop, KVG_VOTE_STOP_OUTCOME);
            ck_assert_uint_eq(arrays.words->decided, 0);
            fleet_close(&fleet);
        }
    }
}
END_TEST

START_TEST(test_a_peeked_slot_gives_records_back)
{
    const Scene   scene = scenes[3];
    KvVoteRecord *formed = calloc(1, kvg_vote_record_bytes(scene.entries)), *read = calloc(1, kvg_vote_record_bytes(scene.entries));
    Fleet         fleet;

    fleet_open(&fleet, &scene);
    for (uint32_t rank = 0; rank < scene.ranks; rank++) {
        KvVoteBoard    board = fleet_board(&fleet, rank);
        KvVoteArrays   arrays = scene_arrays(&scene, fleet.arena[rank]);
        const uint8_t *units = fleet.blocks + kvg_vote_slot_offset(&board, 1);
        ck_assert(!kvg_vote_present(&board, units, 1, 3));
        ck_assert(!kvg_vote_unpack(&board, units, 1, 3, rank, read));
        kvg_vote_form_ref(&board, &arrays, formed);
        ck_assert_int_eq(kvg_vote_post_ref(&board, &arrays), KVG_OK);
        ck_assert(kvg_vote_unpack(&board, units, 1, 3, rank, read));
        ck_assert_mem_eq(read, formed, kvg_vote_record_bytes(scene.entries));
        ck_assert(!kvg_vote_unpack(&board, units, 1, 4, rank, NULL)); /* of an older epoch */
        ck_assert(!kvg_vote_unpack(&board, units, 1 + scene.slots, 3, rank, NULL));
    }
    KvVoteBoard board = fleet_board(&fleet, 0);
    ck_assert(kvg_vote_present(&board, fleet.blocks + kvg_vote_slot_offset(&board, 1), 1, 3));
    fleet_close(&fleet);
    free(formed);
    free(read);
}
END_TEST

/* ---- publication */

START_TEST(test_columns_move_as_the_rules_move_them)
{
    for (uint32_t columns = 2; columns <= 6; columns++) {
        KvSlotState  slot = kvg_slot_open(columns, 0, 0);
        int32_t      read = 0, write = 1, each = 0;
        KvVoteArrays arrays = { .read = &read, .write = &write, .each = &each, .columns = columns };
        uint32_t     owed = 0;

        for (uint32_t i = 0; i < 2000; i++) {
            uint64_t      draw = kvg_mix64(i * 8 + columns);
            uint32_t      rows = 1 + (uint32_t)(draw % 9), taken = draw >> 20 & 1 ? rows : (uint32_t)((draw >> 24) % (rows + 1));
            KvPassColumns pass = kvg_slot_pass(&slot, rows);
            each = (int32_t)pass.each;
            ck_assert_int_eq(read, (int32_t)pass.read);
            ck_assert_int_eq(write, (int32_t)pass.write);
            int behind = kvg_vote_take_column(&arrays, 0, rows, taken, 0);
            ck_assert_int_eq(behind, !kvg_slot_can_take(&slot, taken));
            if (behind) kvg_slot_stay(&slot);
            else kvg_slot_take(&slot, taken);
            owed += (uint32_t)behind;
        }
        ck_assert_uint_gt(owed, 0);
    }
}
END_TEST

START_TEST(test_bases_rise_as_a_windowed_pool_retains)
{
    const uint64_t windows[] = { 1, 2, 31, 32, 33, 128, 1024, 4096 };

    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        uint32_t     base = 0;
        uint64_t     expected = 0;
        KvVoteArrays arrays = { .classes = 1, .class_at = { { &base, kvg_vote_keep(windows[w]) } } };
        for (uint32_t len = 0; len < 12000; len += 1 + len % 7) {
            kvg_vote_raise_bases(&arrays, 0, len);
            expected = kvg_rule_retain_from(len, windows[w], expected);
            ck_assert_uint_eq(base, expected);
        }
    }
    ck_assert_uint_eq(kvg_vote_keep(0), 0);
}
END_TEST

START_TEST(test_lengths_follow_what_the_passing_rank_accepted)
{
    const Scene scene = { .ranks = 2, .tp = 1, .entries = 20, .slots = 4, .rows_most = 6, .seed = 7 };
    Fleet       fleet;

    fleet_open(&fleet, &scene);
    for (uint64_t step = 1; step <= 100; step++) {
        KvVoteArrays a = scene_arrays(&scene, fleet.arena[0]), last = scene_arrays(&scene, fleet.arena[1]);
        uint32_t     len[64], base[64], sum = 0, accepted = 0;
        memcpy(len, a.len, 4 * scene_store_slots(&scene));
        memcpy(base, a.class_at[0].base_row, 4 * scene_store_slots(&scene));
        fleet_step(&fleet, step);
        for (uint32_t e = 0; e < scene.entries; e++) {
            uint32_t slot = (uint32_t)a.slots[e];
            ck_assert_uint_eq(a.len[slot], len[slot] + last.accepted[e]);
            ck_assert_uint_eq(a.taken[e], last.accepted[e]);
            ck_assert_uint_eq(a.len_staged[slot], a.len[slot] + a.next_rows[e]);
            ck_assert_uint_eq(a.class_at[0].base_row[slot], kvg_rule_retain_from(a.len[slot], 100, base[slot]));
            ck_assert_uint_eq(a.class_at[1].base_row[slot], 0);
            sum += a.taken[e], accepted += last.accepted[e];
        }
        ck_assert_uint_eq(sum, accepted);
        ck_assert_uint_eq(a.words->step, step + 1);
        ck_assert_uint_eq(a.words->decided, step);
    }
    fleet_close(&fleet);
}
END_TEST

START_TEST(test_an_entry_without_slot_is_in_no_digest_and_moves_nothing)
{
    const Scene   scene = { .ranks = 1, .tp = 1, .entries = 3, .slots = 2, .rows_most = 2, .seed = 8 };
    Fleet         fleet;
    KvVoteRecord *with = calloc(1, kvg_vote_record_bytes(3)), *without = calloc(1, kvg_vote_record_bytes(3));

    fleet_open(&fleet, &scene);
    KvVoteBoard  board = fleet_board(&fleet, 0);
    KvVoteArrays a = scene_arrays(&scene, fleet.arena[0]);
    a.words->count = 2;
    kvg_vote_form_ref(&board, &a, without);
    a.words->count = 3;
    ((int32_t *)(fleet.arena[0] + scene_parts(&scene).slots))[2] = -1;
    kvg_vote_form_ref(&board, &a, with);
    ck_assert_uint_eq(with->targets, without->targets);
    ck_assert_uint_eq(with->accepted, without->accepted);
    ck_assert_uint_eq(with->layout, without->layout);
    ck_assert_uint_eq(with->accepted_rows[2], 0);
    a.taken[2] = 9;
    ck_assert_int_eq(kvg_vote_post_ref(&board, &a), KVG_OK);
    ck_assert_int_eq(kvg_vote_decide_ref(&board, &a), KVG_OK);
    ck_assert_uint_eq(a.taken[2], 0);
    ck_assert_uint_eq(a.words->step, 2);
    fleet_close(&fleet);
    free(with);
    free(without);
}
END_TEST

/* ---- posted and last; what the next step is to write */

START_TEST(test_a_decide_without_a_post_does_nothing_at_all)
{
    const Scene scene = { .ranks = 2, .tp = 1, .entries = 12, .slots = 4, .rows_most = 3, .seed = 24 };
    Fleet       fleet;
    uint8_t    *before;

    fleet_open(&fleet, &scene);
    before = malloc(fleet.arena_bytes);
    for (uint64_t step = 1; step <= 3; step++) { /* "decide; write; attend; post", from the start */
        for (uint32_t rank = 0; rank < 2; rank++) {
            KvVoteArrays arrays = scene_arrays(&scene, fleet.arena[rank]);
            arrays.rows[3] = 7;
            memcpy(before, fleet.arena[rank], fleet.arena_bytes);
            KvVoteBoard board = fleet_board(&fleet, rank);
            if (step == 1) ck_assert_int_eq(kvg_vote_decide_ref(&board, &arrays), KVG_OK);
            ck_assert_mem_eq(fleet.arena[rank], before, fleet.arena_bytes);
        }
        fleet_post(&fleet, step);
        for (uint32_t rank = 0; rank < 2; rank++) ck_assert_uint_eq(fleet_words(&fleet, rank)->posted, step);
        fleet_decide(&fleet);
        for (uint32_t rank = 0; rank < 2; rank++) {
            ck_assert_uint_eq(fleet_words(&fleet, rank)->posted, 0);
            ck_assert_uint_eq(fleet_words(&fleet, rank)->step, step + 1);
        }
    }
    free(before);
    fleet_close(&fleet);
}
END_TEST

START_TEST(test_a_step_in_doubt_stays_posted_and_can_be_decided_later)
{
    const Scene  scene = { .ranks = 2, .tp = 1, .entries = 5, .slots = 4, .rows_most = 2, .seed = 9 };
    Fleet        fleet;
    KvVoteBoard  board[2];
    KvVoteArrays arrays[2];

    fleet_open(&fleet, &scene);
    for (uint32_t rank = 0; rank < 2; rank++) board[rank] = fleet_board(&fleet, rank), arrays[rank] = scene_arrays(&scene, fleet.arena[rank]);
    ck_assert_int_eq(kvg_vote_post_ref(&board[0], &arrays[0]), KVG_OK);
    ck_assert_int_eq(kvg_vote_decide_ref(&board[0], &arrays[0]), KVG_OK);
    ck_assert_int_eq(kvg_vote_word(*arrays[0].outcome, 1).kind, KVG_VOTE_WORD_INDOUBT);
    ck_assert_uint_eq(arrays[0].words->posted, 1);
    ck_assert_int_eq(kvg_vote_post_ref(&board[1], &arrays[1]), KVG_OK);
    arrays[0].words->stop = 0;
    ck_assert_int_eq(kvg_vote_decide_ref(&board[0], &arrays[0]), KVG_OK);
    ck_assert_int_eq(kvg_vote_word(*arrays[0].outcome, 1).kind, KVG_VOTE_WORD_DECIDED);
    ck_assert_uint_eq(arrays[0].words->step, 2);
    ck_assert_uint_eq(arrays[0].words->posted, 0);
    fleet_close(&fleet);
}
END_TEST

START_TEST(test_the_last_step_stages_nothing_more_and_what_follows_does_nothing)
{
    const Scene scene = { .ranks = 2, .tp = 1, .entries = 10, .slots = 4, .rows_most = 4, .last_every = 3, .seed = 21 };
    Fleet       fleet;
    uint8_t    *done;

    fleet_open(&fleet, &scene);
    done = malloc(fleet.arena_bytes);
    for (uint64_t step = 1; step <= 3; step++) {
        fleet_step(&fleet, step);
        for (uint32_t rank = 0; rank < 2; rank++) {
            KvVoteArrays a = scene_arrays(&scene, fleet.arena[rank]);
            ck_assert_uint_eq(a.words->stop, step == 3 ? KVG_VOTE_STOP_DONE : KVG_VOTE_RUNS);
            ck_assert_uint_eq(a.words->step, step + 1);
            for (uint32_t e = 0; e < scene.entries; e++) {
                uint32_t next = step == 3 ? 0 : a.next_rows[e], slot = (uint32_t)a.slots[e];
                ck_assert_msg(a.rows[e] == next && a.first_row[e] == a.len[slot] && a.len_staged[slot] == a.len[slot] + next,
                              "step %llu, entry %u: %u rows from %u", (unsigned long long)step, e, a.rows[e], a.first_row[e]);
            }
        }
    }
    KvVoteWord word = kvg_vote_word(*scene_arrays(&scene, fleet.arena[1]).outcome, 1);
    ck_assert(word.kind == KVG_VOTE_WORD_DECIDED && word.step == 3 && word.outcome.kind == KVG_VOTE_PUBLISH);
    memcpy(done, fleet.arena[0], fleet.arena_bytes);
    for (int again = 0; again < 3; again++) { /* replays launched too often */
        KvVoteBoard  board = fleet_board(&fleet, 0);
        KvVoteArrays arrays = scene_arrays(&scene, fleet.arena[0]);
        ck_assert_int_eq(kvg_vote_post_ref(&board, &arrays), KVG_OK);
        ck_assert_int_eq(kvg_vote_decide_ref(&board, &arrays), KVG_OK);
    }
    ck_assert_mem_eq(fleet.arena[0], done, fleet.arena_bytes);
    free(done);
    fleet_close(&fleet);
}
END_TEST

/* What the next step is to write, by what stopped it. */
static void assert_rows_stopped(const Fleet *fleet, const char *why)
{
    for (uint32_t rank = 0; rank < fleet->scene.ranks; rank++) {
        KvVoteArrays a = scene_arrays(&fleet->scene, fleet->arena[rank]);
        for (uint32_t e = 0; e < fleet->scene.entries; e++) ck_assert_msg(a.rows[e] == 0, "%s: entry %u writes %u rows", why, e, a.rows[e]);
    }
}

START_TEST(test_rows_are_0_after_anything_but_a_publish_that_owes_nothing)
{
    const Scene scene = { .ranks = 2, .tp = 1, .entries = 40, .slots = 4, .columns = 3, .rows_most = 8, .fault_every = 3, .seed = 22 };
    uint32_t    seen[4] = { 0 };
    Fleet       fleet;

    fleet_open(&fleet, &scene);
    for (uint64_t step = 1; step <= 400; step++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            for (uint32_t e = 0; e < scene.entries; e++) scene_arrays(&scene, fleet.arena[rank]).rows[e] = 77;
        }
        fleet_step(&fleet, step);
        uint32_t stop = fleet_words(&fleet, 0)->stop;
        seen[stop]++;
        if (stop != KVG_VOTE_RUNS) assert_rows_stopped(&fleet, stop == KVG_VOTE_STOP_OUTCOME ? "not published" : "a replay is owed");
        for (uint32_t rank = 0; rank < 2 && stop == KVG_VOTE_RUNS; rank++) {
            KvVoteArrays a = scene_arrays(&scene, fleet.arena[rank]);
            ck_assert_mem_eq(a.rows, a.next_rows, sizeof(uint32_t) * scene.entries);
        }
        for (uint32_t rank = 0; rank < 2; rank++) scene_acknowledge(fleet.arena[rank]);
    }
    ck_assert_msg(seen[0] > 0 && seen[1] > 0 && seen[2] > 0, "%u ran, %u stopped, %u owed", seen[0], seen[1], seen[2]);
    fleet_close(&fleet);
}
END_TEST

START_TEST(test_rows_in_doubt_and_rows_of_entries_without_slot_are_0)
{
    const Scene scene = { .ranks = 2, .tp = 1, .entries = 6, .slots = 4, .rows_most = 3, .seed = 23 };
    Fleet       fleet;

    fleet_open(&fleet, &scene);
    for (uint32_t rank = 0; rank < 2; rank++) {
        KvVoteArrays a = scene_arrays(&scene, fleet.arena[rank]);
        ((int32_t *)(fleet.arena[rank] + scene_parts(&scene).slots))[2] = -1;
        a.words->count = 5;
        for (uint32_t e = 0; e < 6; e++) a.rows[e] = a.first_row[e] = 99, ((uint32_t *)(fleet.arena[rank] + scene_parts(&scene).next_rows))[e] = 2;
        for (uint32_t e = 0; e < 6; e++) ((uint32_t *)(fleet.arena[rank] + scene_parts(&scene).accepted))[e] = 1;
        a.words->last = 9;
        KvVoteBoard board = fleet_board(&fleet, rank);
        ck_assert_int_eq(kvg_vote_post_ref(&board, &a), KVG_OK);
    }
    fleet_decide(&fleet);
    KvVoteArrays   a = scene_arrays(&scene, fleet.arena[1]);
    const uint32_t expected[] = { 2, 2, 0, 2, 2, 0 };
    ck_assert_mem_eq(a.rows, expected, sizeof expected);
    for (uint32_t e = 0; e < 6; e++) ck_assert_uint_eq(a.first_row[e], e == 2 || e == 5 ? 99 : a.len[a.slots[e]]);
    KvVoteBoard board = fleet_board(&fleet, 1);
    ck_assert_int_eq(kvg_vote_post_ref(&board, &a), KVG_OK);
    ck_assert_int_eq(kvg_vote_decide_ref(&board, &a), KVG_OK); /* rank 0 has not posted */
    ck_assert_int_eq(kvg_vote_word(*a.outcome, 1).kind, KVG_VOTE_WORD_INDOUBT);
    for (uint32_t e = 0; e < 6; e++) ck_assert_uint_eq(a.rows[e], 0);
    fleet_close(&fleet);
}
END_TEST

START_TEST(test_a_replay_owed_by_the_last_step_is_what_stops_it)
{
    ck_assert_uint_eq(kvg_vote_stop_after(5, 5, 1), KVG_VOTE_STOP_REPLAY);
    ck_assert_uint_eq(kvg_vote_stop_after(5, 5, 0), KVG_VOTE_STOP_DONE);
    ck_assert_uint_eq(kvg_vote_stop_after(5, 6, 0), KVG_VOTE_RUNS);
    ck_assert_uint_eq(kvg_vote_stop_after(5, 4, 0), KVG_VOTE_RUNS);
    ck_assert_uint_eq(kvg_vote_stop_after(5, 0, 0), KVG_VOTE_RUNS);
}
END_TEST

START_TEST(test_the_deadline_moves_and_keeps_its_allowance)
{
    KvVoteControl control = { 0, 0 };

    kvg_vote_allow(&control, 200000);
    uint64_t first = control.deadline;
    ck_assert_uint_eq(first >> 32, 200000);
    kvg_vote_forward(&control);
    ck_assert_uint_eq(control.deadline >> 32, 200000);
    ck_assert_uint_ne(control.deadline, first);
    control.deadline |= UINT32_MAX;
    kvg_vote_forward(&control); /* the count wraps; the allowance does not notice */
    ck_assert_uint_eq(control.deadline, 200000ull << 32);
    kvg_vote_allow(&control, UINT64_MAX);
    ck_assert_uint_eq(control.deadline >> 32, UINT32_MAX);
    kvg_vote_stop(&control, 5);
    ck_assert_uint_eq(control.stop, 1);
    kvg_vote_stop(&control, 0);
    ck_assert_uint_eq(control.stop, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_vote");
    TCase *tcase = tcase_create("device_vote");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_every_vector_decides_as_the_host_does_and_survives_the_outcome_word);
    tcase_add_test(tcase, test_outcome_word_keeps_every_value_at_its_limits);
    tcase_add_test(tcase, test_units_that_agree_are_a_publish_on_every_vector);
    tcase_add_test(tcase, test_units_that_agree_are_a_publish_on_records_with_any_bit_changed);
    tcase_add_test(tcase, test_a_term_is_its_parts_joined_and_what_is_formed_ahead_has_room);
    tcase_add_test(tcase, test_tags_fit_the_step_awaited_and_no_older_epoch);
    tcase_add_test(tcase, test_slots_hold_two_windows_and_every_record_whole);
    tcase_add_loop_test(tcase, test_a_record_is_what_a_posted_step_writes, 0, SCENES);
    tcase_add_loop_test(tcase, test_all_ranks_end_alike_and_faults_are_named, 0, SCENES);
    tcase_add_test(tcase, test_anything_but_publish_changes_nothing_and_stops_what_follows);
    tcase_add_test(tcase, test_a_missing_record_is_in_doubt_by_rank_and_an_older_epoch_is_missing);
    tcase_add_test(tcase, test_a_peeked_slot_gives_records_back);
    tcase_add_test(tcase, test_columns_move_as_the_rules_move_them);
    tcase_add_test(tcase, test_bases_rise_as_a_windowed_pool_retains);
    tcase_add_test(tcase, test_lengths_follow_what_the_passing_rank_accepted);
    tcase_add_test(tcase, test_an_entry_without_slot_is_in_no_digest_and_moves_nothing);
    tcase_add_test(tcase, test_a_decide_without_a_post_does_nothing_at_all);
    tcase_add_test(tcase, test_a_step_in_doubt_stays_posted_and_can_be_decided_later);
    tcase_add_test(tcase, test_the_last_step_stages_nothing_more_and_what_follows_does_nothing);
    tcase_add_test(tcase, test_rows_are_0_after_anything_but_a_publish_that_owes_nothing);
    tcase_add_test(tcase, test_rows_in_doubt_and_rows_of_entries_without_slot_are_0);
    tcase_add_test(tcase, test_a_replay_owed_by_the_last_step_is_what_stops_it);
    tcase_add_test(tcase, test_the_deadline_moves_and_keeps_its_allowance);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

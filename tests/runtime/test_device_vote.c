/* The vote's device code compiled for the host: records, whole steps and what they change. What only a device can do (waiting) is in test_cuda_vote and gpu_vote. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/dev/device_vote_entry.h"
#include "runtime/rules/columns.h"
#include "runtime/rules/ring_inline.h"
#include "tests/kernels/vote_scene.h"
#include "tests/support/no_leak.h"

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

    tcase_add_checked_fixture(tcase, no_leak_setup, no_leak_teardown);
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
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

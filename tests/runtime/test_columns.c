/* Columns: the rules against columns and a ring that are simulated row by row, each cell holding the row whose state it is. */
#include <check.h>
#include <inttypes.h>
#include <stdlib.h>

#include "runtime/base/mix.h"
#include "runtime/rules/columns.h"

enum { COLUMNS_MAX = 9, RING_MAX = 24 };

typedef struct Simulated {
    uint64_t column[COLUMNS_MAX]; /* the row that the column's state is at */
    int64_t  ring[RING_MAX];      /* the index row that stands there */
    int64_t  saved[RING_MAX];     /* by distance from the tail's start */
    int      has_saved;
} Simulated;

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
    random_state += 0x9e3779b97f4a7c15u;
    return kvg_mix64(random_state) % below;
}

/* Check's own assertions write a mark each time, which is slow a million times over. */
#define HOLDS(condition)                                          \
    do {                                                          \
        if (!(condition)) ck_abort_msg("not so: %s", #condition); \
    } while (0)

static void simulate_pass(Simulated *sim, KvSlotState *s, uint32_t rows)
{
    uint64_t      row = s->at + s->rows, tail = s->pool == 0 ? s->at : s->at / s->pool * s->pool;
    KvPassColumns pass = kvg_slot_pass(s, rows);
    uint64_t      state;

    if (s->columns != 0) {
        HOLDS(sim->column[pass.read] == row); /* what is read is the pass before's end, or the committed state */
        state = row;
        for (uint32_t i = 0; i < rows; i++) {
            uint32_t to = pass.each ? (pass.write + i) % s->columns : pass.write;
            state++;
            HOLDS(to != s->current); /* never over the committed column */
            if (pass.each || i == rows - 1) sim->column[to] = state;
        }
    }
    for (uint64_t r = row; s->ring != 0 && r < row + rows; r++) {
        if (!sim->has_saved && r >= tail + s->ring) {
            for (uint64_t t = tail; t < s->at; t++) sim->saved[t - tail] = sim->ring[t % s->ring];
            sim->has_saved = 1;
        }
        sim->ring[r % s->ring] = (int64_t)r;
    }
}

static void check_stands(const Simulated *sim, const KvSlotState *s, uint64_t at)
{
    uint64_t tail = s->pool == 0 ? at : at / s->pool * s->pool;

    HOLDS(s->at == at);
    if (s->columns != 0) HOLDS(sim->column[s->current] == at);
    for (uint64_t r = tail; s->ring != 0 && r < at; r++) HOLDS(sim->ring[r % s->ring] == (int64_t)r);
    HOLDS(kvg_slot_holds(s, at));
    HOLDS(s->passes == 0);
    HOLDS(s->rows == 0);
}

static void simulate_stay(Simulated *sim, KvSlotState *s)
{
    uint64_t tail = s->pool == 0 ? s->at : s->at / s->pool * s->pool;

    if (kvg_slot_overwritten(s)) {
        HOLDS(sim->has_saved);
        for (uint64_t r = tail; r < s->at; r++) sim->ring[r % s->ring] = sim->saved[r - tail];
    }
    kvg_slot_stay(s);
}

/* Every length that the rules call held must be: in the column they would switch to, and in the ring. */
static void check_holds_nothing_lost(const Simulated *sim, const KvSlotState *s)
{
    for (uint64_t len = s->at <= 12 ? 1 : s->at - 12; len < s->at; len++) {
        KvSlotState back = *s;

        if (!kvg_slot_holds(s, len)) continue;
        kvg_slot_rewind(&back, len);
        check_stands(sim, &back, len);
    }
}

static void one_step(Simulated *sim, KvSlotState *s)
{
    uint64_t at = s->at, taken;
    int      passes = (int)draw(4);

    sim->has_saved = 0;
    for (int i = 0; i < passes; i++) simulate_pass(sim, s, 1 + (uint32_t)draw(draw(3) == 0 ? 3 * RING_MAX : 6));
    taken = draw(3) == 0 ? s->rows : draw(s->rows + 1);
    if (draw(6) == 0 || !kvg_slot_can_take(s, taken)) {
        simulate_stay(sim, s);
        check_stands(sim, s, at);
    } else {
        kvg_slot_take(s, taken);
        check_stands(sim, s, at + taken);
    }
    check_holds_nothing_lost(sim, s);
    for (uint64_t back = 1; back < 4 && draw(4) == 0 && s->at > back; back++) {
        if (!kvg_slot_holds(s, s->at - back)) continue;
        at = s->at - back;
        kvg_slot_rewind(s, at);
        check_stands(sim, s, at);
    }
}

START_TEST(test_what_the_rules_call_held_is_held)
{
    for (uint64_t seed = 0; seed < 1000; seed++) {
        static const uint32_t pools[] = {0, 1, 2, 4, 8};
        Simulated             sim = {.has_saved = 0};
        uint32_t              columns, pool;
        KvSlotState           s;

        random_state = kvg_mix64(seed * 31 + (uint64_t)_i);
        columns = draw(6) == 0 ? 0 : 2 + (uint32_t)draw(COLUMNS_MAX - 1);
        pool = pools[draw(5)];
        s = kvg_slot_open(columns, pool, pool == 0 ? 0 : pool * (draw(RING_MAX / 8) + 1));
        for (int i = 0; i < RING_MAX; i++) sim.ring[i] = -1;
        for (int i = 0; i < 200; i++) one_step(&sim, &s);
    }
}
END_TEST

/* K drafts, K+1 columns: each prefix can be taken; the next step begins from the a-th column, not the first or the last. */
START_TEST(test_every_prefix_of_a_round_has_a_column)
{
    for (uint32_t drafts = 1; drafts < COLUMNS_MAX; drafts++) {
        for (uint32_t accepted = 0; accepted <= drafts; accepted++) {
            KvSlotState   s = kvg_slot_open(drafts + 1, 0, 0);
            KvPassColumns pass = kvg_slot_pass(&s, drafts);

            ck_assert_uint_eq(pass.read, 0);
            ck_assert_uint_eq(pass.write, 1);
            ck_assert_uint_eq(pass.each, 1);
            ck_assert(kvg_slot_can_take(&s, accepted));
            kvg_slot_take(&s, accepted);
            ck_assert_uint_eq(s.current, accepted);
            ck_assert_uint_eq(kvg_slot_pass(&s, 1).read, accepted);
        }
    }
}
END_TEST

START_TEST(test_a_longer_pass_has_its_end_alone)
{
    for (uint32_t columns = 2; columns < COLUMNS_MAX; columns++) {
        KvSlotState   s = kvg_slot_open(columns, 0, 0);
        KvPassColumns pass = kvg_slot_pass(&s, columns); /* one row more than there are columns to write */

        ck_assert_uint_eq(pass.each, 0);
        ck_assert_uint_eq(pass.write, 1);
        ck_assert(kvg_slot_can_take(&s, 0));
        for (uint32_t a = 1; a < columns; a++) ck_assert(!kvg_slot_can_take(&s, a));
        ck_assert(kvg_slot_can_take(&s, columns));
        ck_assert(!kvg_slot_can_take(&s, columns + 1));
        kvg_slot_take(&s, columns);
        ck_assert_uint_eq(s.current, 1);
        ck_assert_uint_eq(s.back, 0);
    }
}
END_TEST

START_TEST(test_a_second_pass_goes_on_in_the_first_ones_end)
{
    KvSlotState   s = kvg_slot_open(6, 0, 0);
    KvPassColumns pass;

    kvg_slot_pass(&s, 3);
    pass = kvg_slot_pass(&s, 2);
    ck_assert_uint_eq(pass.read, 3);
    ck_assert_uint_eq(pass.write, 3);
    ck_assert_uint_eq(pass.each, 0);
    ck_assert(kvg_slot_can_take(&s, 2)); /* the first pass's prefixes stand still */
    ck_assert(!kvg_slot_can_take(&s, 3));
    ck_assert(!kvg_slot_can_take(&s, 4));
    ck_assert(kvg_slot_can_take(&s, 5));
    kvg_slot_pass(&s, 1);
    ck_assert(kvg_slot_can_take(&s, 2));
    ck_assert(!kvg_slot_can_take(&s, 5));
    ck_assert(kvg_slot_can_take(&s, 6));
}
END_TEST

/* Pool 4, ring 8, at row 6: the tail is rows 4 and 5. Row 12 is the first to go over it. */
START_TEST(test_the_tail_is_held_until_a_row_goes_over_it)
{
    for (uint32_t rows = 1; rows < 20; rows++) {
        KvSlotState s = kvg_slot_open(0, 4, 8);

        kvg_slot_pass(&s, 6);
        kvg_slot_take(&s, 6);
        kvg_slot_pass(&s, rows);
        ck_assert_int_eq(kvg_slot_overwritten(&s), rows > 6);
        for (uint32_t a = 0; a <= rows; a++) {
            uint64_t len = 6 + a, tail = len / 4 * 4;
            ck_assert_int_eq(kvg_slot_can_take(&s, a), len == tail || 6 + rows <= tail + 8);
        }
    }
}
END_TEST

START_TEST(test_a_flat_index_plane_holds_every_row)
{
    KvSlotState s = kvg_slot_open(0, 4, 0);

    kvg_slot_pass(&s, 1000);
    for (uint32_t a = 0; a <= 1000; a++) ck_assert(kvg_slot_can_take(&s, a));
    kvg_slot_take(&s, 1000);
    for (uint64_t len = 0; len <= 1000; len++) ck_assert(kvg_slot_holds(&s, len));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("columns");
    TCase *tcase = tcase_create("columns");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_what_the_rules_call_held_is_held, 0, 3);
    tcase_add_test(tcase, test_every_prefix_of_a_round_has_a_column);
    tcase_add_test(tcase, test_a_longer_pass_has_its_end_alone);
    tcase_add_test(tcase, test_a_second_pass_goes_on_in_the_first_ones_end);
    tcase_add_test(tcase, test_the_tail_is_held_until_a_row_goes_over_it);
    tcase_add_test(tcase, test_a_flat_index_plane_holds_every_row);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

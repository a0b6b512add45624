/* Tests of replay's update of recurrent layers, over a view made by hand: whatever the columns, the passes and what is replayed, the state is
 * that of kvg_recurrent_token over the accepted rows from the first one on. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "launch/command/replay_generator.h"
#include "launch/command/replay_recurrent.h"

/* Two heads of 5 channels and one of 3, 3 taps; three heads of 40 elements and two of 16. Slot 1 of two. */
enum { TAPS = 3, CHANNELS = 2 * 5 + 3, CONV = CHANNELS * TAPS, STATE = 3 * 40 + 2 * 16, COLUMNS = 4, SLOTS = 2, SLOT = 1, ROWS_MAX = 16 };

static float           conv[SLOTS * COLUMNS * CONV], state[SLOTS * COLUMNS * STATE];
static int32_t         read_at[SLOTS], write_at[SLOTS], each_at[SLOTS];
static KvRecurrentView view;
static ReplayLayer     layer;
static uint64_t        keys[ROWS_MAX];
static float          *heads[ROWS_MAX], x[8];
static const ReplayRecurrentScratch scratch = { keys, heads, x };
static const ReplayMaker            maker = { 7 };

static void setup(void)
{
    memset(conv, 0, sizeof conv);
    memset(state, 0, sizeof state);
    view = (KvRecurrentView){ .columns = COLUMNS, .taps = TAPS, .part_count = 4, .conv_channels = CHANNELS, .conv_elements = CONV,
                              .state_elements = STATE, .conv_slot_stride = COLUMNS * CONV, .state_slot_stride = COLUMNS * STATE, .conv = conv,
                              .state = state, .read = read_at, .write = write_at, .each = each_at };
    view.parts[0] = (KvRecurrentPartView){ 0, 2, 4, 4, 5, 1, 0 };
    view.parts[1] = (KvRecurrentPartView){ 1, 3, 6, 6, 40, 1, 0 };
    view.parts[2] = (KvRecurrentPartView){ 0, 1, 0, 8, 3, 1, 2 * 5 * TAPS };
    view.parts[3] = (KvRecurrentPartView){ 1, 2, 2, 14, 16, 1, 3 * 40 };
    layer = (ReplayLayer){ .il = 3, .recurrent = &view };
}

/* A pass of rows [first, first+rows), of which `accepted` are true ones. */
static void pass(uint64_t first, uint32_t rows, uint32_t accepted, int32_t from, int32_t to, int32_t each)
{
    ReplaySpan span = { 5, first, 2, rows, accepted };
    read_at[SLOT] = from;
    write_at[SLOT] = to;
    each_at[SLOT] = each;
    kvg_replay_update_recurrent(&maker, &layer, SLOT, &span, &scratch);
}

/* The column must hold the state of `rows` true rows. */
static void check_column(uint32_t column, uint64_t rows)
{
    for (uint32_t p = 0; p < view.part_count; p++) {
        const KvRecurrentPartView *part = &view.parts[p];
        const int                  plane = part->is_state ? KVG_PLANE_STATE : KVG_PLANE_CONV;
        for (uint32_t head = 0; head < part->heads; head++) {
            float want[64] = { 0 }, row[64];
            for (uint64_t i = 0; i < rows; i++) {
                uint64_t stream = kvg_replay_stream_key(maker.seed, 5, 3, (uint32_t)plane);
                kvg_replay_fill(kvg_replay_row_key(stream, part->head_index + head, i), row, part->width);
                kvg_recurrent_token(want, want, row, row, REPLAY_DECAY, part->is_state ? 0 : part->width, part->is_state ? 0 : TAPS,
                                    part->is_state ? part->width : 0, want, want);
            }
            size_t       elements = part->width * (part->is_state ? 1u : TAPS);
            const float *base = part->is_state ? state + (SLOT * COLUMNS + column) * STATE : conv + (SLOT * COLUMNS + column) * CONV;
            ck_assert_msg(memcmp(base + part->offset + head * elements, want, elements * sizeof *want) == 0,
                          "column %u is not that of %lu rows: part %u, head %u", column, (unsigned long)rows, p, head);
        }
    }
    for (size_t i = 0; i < (size_t)COLUMNS * STATE; i++) { /* the other slot is nobody's */
        ck_assert(state[i] == 0);
    }
}

START_TEST(test_each_row_has_its_column_and_the_first_stays)
{
    pass(0, 3, 2, 3, 0, 1);
    check_column(3, 0);
    check_column(0, 1);
    check_column(1, 2); /* column 2 holds the rejected draft's */
    pass(2, 3, 3, 1, 2, 1); /* round the end */
    check_column(1, 2);
    check_column(2, 3);
    check_column(3, 4);
    check_column(0, 5);
}
END_TEST

START_TEST(test_a_long_pass_keeps_its_end_and_the_next_goes_on_in_place)
{
    for (uint32_t rows = 1; rows <= 9; rows++) { /* about as many as taps, and more */
        setup();
        pass(0, rows, rows, 0, 1, 0);
        check_column(0, 0);
        check_column(1, rows);
        pass(rows, 4, 4, 1, 1, 0);
        check_column(1, rows + 4);
        check_column(2, 0);
    }
}
END_TEST

START_TEST(test_a_replay_makes_the_accepted_rows_again)
{
    pass(0, 6, 6, 0, 1, 0);
    pass(6, 5, 3, 1, 2, 0);  /* 3 of 5 kept: column 1 stays, 3 are owed */
    check_column(1, 6);
    pass(6, 3 + 5, 3 + 2, 1, 2, 0); /* and again */
    pass(6, 5, 5, 1, 2, 0); /* the replay alone */
    check_column(1, 6);
    check_column(2, 11);
}
END_TEST

/* Rows that are made apart and applied by the library's rule, as a device does it. */
START_TEST(test_rows_made_for_a_device_leave_the_same_columns)
{
    for (int32_t each = 0; each < 2; each++) {
        enum { ROWS = 3 };
        static float    all_x[ROWS * CHANNELS], all_u[ROWS * STATE];
        ReplaySpan      span = { 5, 0, 2, ROWS, 2 }; /* the third is a rejected draft's */
        KvRecurrentPass at = { .conv = conv + SLOT * COLUMNS * CONV, .state = state + SLOT * COLUMNS * STATE, .read = 0, .write = 1,
                               .each = (uint32_t)each, .columns = COLUMNS, .taps = TAPS, .channels = CHANNELS, .elements = STATE,
                               .rows = each ? ROWS : 2, .decay = REPLAY_DECAY, .x = all_x, .u = all_u };
        setup();
        for (uint32_t i = 0; i < ROWS; i++) {
            kvg_replay_make_update(&maker, &layer, &span, i, all_x + i * CHANNELS, all_u + i * STATE);
        }
        kvg_recurrent_pass(&at);
        check_column(0, 0);
        check_column(each ? 2 : 1, 2);
        if (each) {
            static float want[STATE];
            memcpy(want, state + (SLOT * COLUMNS + 3) * STATE, sizeof want);
            setup();
            pass(0, ROWS, 2, 0, 1, 1);
            ck_assert_mem_eq(want, state + (SLOT * COLUMNS + 3) * STATE, sizeof want);
        }
    }
}
END_TEST

START_TEST(test_samples_lie_within_the_parts_and_show_where_they_stand)
{
    unsigned heads_seen = 0;
    read_at[SLOT] = 2;
    for (uint64_t request = 0; request < 200; request++) {
        for (uint32_t p = 0; p < view.part_count; p++) {
            const KvRecurrentPartView *part = &view.parts[p];
            ReplayStateSample          sample = kvg_replay_sample_state(&maker, &layer, p, request);
            size_t                     elements = 0;
            float                     *at = kvg_replay_stored_state(&view, p, &sample, SLOT, &elements);
            float *base = part->is_state ? state + (SLOT * COLUMNS + 2) * STATE : conv + (SLOT * COLUMNS + 2) * CONV;
            size_t each = part->is_state ? 1 : TAPS;
            ck_assert(sample.head < part->heads && sample.count >= 1 && sample.first + sample.count <= part->width);
            ck_assert_uint_eq(elements, sample.count * each);
            ck_assert_ptr_eq(at, base + part->offset + (sample.head * part->width + sample.first) * each);
            heads_seen |= p == 1 ? 1u << sample.head | 8u << sample.first / 32 : 0;
        }
    }
    ck_assert_uint_eq(heads_seen, 7 | 8 << 0 | 8 << 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replay_recurrent");
    TCase *cases = tcase_create("recurrent");
    tcase_add_checked_fixture(cases, setup, NULL);
    tcase_add_test(cases, test_each_row_has_its_column_and_the_first_stays);
    tcase_add_test(cases, test_a_long_pass_keeps_its_end_and_the_next_goes_on_in_place);
    tcase_add_test(cases, test_a_replay_makes_the_accepted_rows_again);
    tcase_add_test(cases, test_rows_made_for_a_device_leave_the_same_columns);
    tcase_add_test(cases, test_samples_lie_within_the_parts_and_show_where_they_stand);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

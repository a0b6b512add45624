/* Tests of replay's generator. The pinned values come from a second writing of the rules, in exact integers (Python). */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/recurrent.h>

#include "launch/command/replay_generator.h"

static uint64_t key_of(uint64_t seed, uint64_t request, uint32_t layer, uint32_t plane, uint32_t head, uint64_t position)
{
    return kvg_replay_row_key(kvg_replay_stream_key(seed, request, layer, plane), head, position);
}

START_TEST(test_values_are_the_same_bits_everywhere)
{
    static const struct { size_t at; float value; } accepted[] = { { 0, -0x1.4a3e2cp+1f }, { 1, -0x1.5f752p+0f }, { 31, 0x1.3bd16p-1f },
        { 32, -0x1.2dfe7p-1f }, { 127, -0x1.5d672p-8f } }, rejected[] = { { 0, 0x1.ad4c08p-5f }, { 1, 0x1.713e6p-6f },
        { 31, -0x1.37a044p-5f }, { 32, 0x1.69ep-12f }, { 127, 0x1.b125f8p+0f } };
    float    row[128];
    uint64_t key = key_of(1, 2, 3, 1, 4, 5);
    kvg_replay_fill(key, row, 128);
    for (size_t i = 0; i < 5; i++) {
        ck_assert(row[accepted[i].at] == accepted[i].value);
    }
    kvg_replay_fill(kvg_replay_rejected_key(key, 6), row, 128);
    for (size_t i = 0; i < 5; i++) {
        ck_assert(row[rejected[i].at] == rejected[i].value);
    }
}
END_TEST

START_TEST(test_a_short_row_is_the_front_of_a_long_one)
{
    float long_row[192], short_row[192];
    uint64_t key = key_of(9, 8, 7, 0, 6, 5);
    kvg_replay_fill(key, long_row, 192);
    static const size_t lengths[] = { 1, 8, 31, 32, 33, 64, 100, 192 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memset(short_row, 0x7f, sizeof short_row);
        kvg_replay_fill(key, short_row, lengths[i]);
        ck_assert_mem_eq(short_row, long_row, lengths[i] * sizeof(float));
        if (lengths[i] < 192) { /* nothing past the end is touched */
            ck_assert_int_eq(((unsigned char *)short_row)[lengths[i] * sizeof(float)], 0x7f);
        }
    }
}
END_TEST

START_TEST(test_every_part_of_the_place_changes_the_row)
{
    const uint64_t base = key_of(1, 1, 1, 0, 1, 1);
    ck_assert_uint_ne(base, key_of(2, 1, 1, 0, 1, 1));
    ck_assert_uint_ne(base, key_of(1, 2, 1, 0, 1, 1));
    ck_assert_uint_ne(base, key_of(1, 1, 2, 0, 1, 1));
    ck_assert_uint_ne(base, key_of(1, 1, 1, 1, 1, 1));
    ck_assert_uint_ne(base, key_of(1, 1, 1, 0, 2, 1));
    ck_assert_uint_ne(base, key_of(1, 1, 1, 0, 1, 2));
    ck_assert_uint_ne(base, kvg_replay_rejected_key(base, 0));
    ck_assert_uint_ne(kvg_replay_rejected_key(base, 0), kvg_replay_rejected_key(base, 1));
}
END_TEST

START_TEST(test_values_stay_within_four_and_use_all_scales)
{
    unsigned seen = 0;
    double   sum = 0;
    float    row[32];
    for (uint64_t position = 0; position < 4096; position++) {
        float largest = 0;
        kvg_replay_fill(key_of(1, 0, 0, 0, 0, position), row, 32);
        for (int i = 0; i < 32; i++) {
            float magnitude = row[i] < 0 ? -row[i] : row[i];
            largest = magnitude > largest ? magnitude : largest;
            sum += row[i];
        }
        ck_assert(largest <= 4.0f && largest > 0);
        for (unsigned halvings = 0; halvings < 8; halvings++) {
            seen |= largest <= 4.0f / (float)(1u << halvings) && largest > 2.0f / (float)(1u << halvings) ? 1u << halvings : 0;
        }
    }
    ck_assert_uint_eq(seen, 0xff);
    ck_assert(sum / (4096 * 32) < 0.02 && sum / (4096 * 32) > -0.02);
}
END_TEST

START_TEST(test_a_row_from_its_middle_is_that_part_of_it)
{
    float    row[200], part[200];
    uint64_t key = key_of(3, 1, 4, 6, 1, 5);
    kvg_replay_fill(key, row, 200);
    for (size_t first = 0; first < 200; first += 32) {
        for (size_t count = 1; first + count <= 200; count += count < 34 ? 1 : 31) {
            kvg_replay_fill_from(key, first, part, count);
            ck_assert_mem_eq(part, row + first, count * sizeof(float));
        }
    }
}
END_TEST

/* The fused update against the library's rule, token by token. */
START_TEST(test_folding_is_the_librarys_update_row_by_row)
{
    static const size_t widths[] = { 1, 15, 16, 17, 31, 32, 33, 48, 64, 100 };
    enum { WIDTH = 100, ROWS = 5 };
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        for (uint32_t rows = 1; rows <= ROWS; rows++) {
            float    start[WIDTH], want[ROWS][WIDTH + 1], got[ROWS][WIDTH + 1], in_place[WIDTH], u[WIDTH], *each[ROWS], *end[ROWS] = { NULL };
            uint64_t keys[ROWS];
            kvg_replay_fill(99, start, WIDTH);
            memcpy(in_place, start, sizeof start);
            memset(got, 0x7f, sizeof got);
            memset(want, 0x7f, sizeof want); /* what lies behind a row must stay */
            for (uint32_t i = 0; i < rows; i++) {
                keys[i] = key_of(1, 2, 3, 6, 4, i);
                each[i] = got[i];
                kvg_replay_fill(keys[i], u, widths[w]);
                kvg_recurrent_token(NULL, i == 0 ? start : want[i - 1], NULL, u, REPLAY_DECAY, 0, 0, widths[w], NULL, want[i]);
            }
            kvg_replay_fold(keys, rows, REPLAY_DECAY, widths[w], start, each);
            ck_assert_mem_eq(got, want, rows * sizeof *want);
            end[rows - 1] = in_place;
            kvg_replay_fold(keys, rows, REPLAY_DECAY, widths[w], in_place, end);
            ck_assert_mem_eq(in_place, want[rows - 1], widths[w] * sizeof(float));
            ck_assert_mem_eq(in_place + widths[w], start + widths[w], (WIDTH - widths[w]) * sizeof(float));
        }
    }
}
END_TEST

START_TEST(test_a_pool_key_sums_gated_values_in_row_order)
{
    float rows[4 * 6], key[4] = { 0, 0, 0, 42 };
    kvg_replay_fill(7, rows, 24);
    kvg_replay_pool_key(rows, 4, 3, key);
    for (int i = 0; i < 3; i++) {
        float want = 0;
        for (int row = 0; row < 4; row++) {
            volatile float gated = rows[6 * row + 3 + i] * rows[6 * row + i];
            want += gated;
        }
        ck_assert(key[i] == want);
    }
    ck_assert(key[3] == 42);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replay_generator");
    TCase *cases = tcase_create("generator");
    tcase_add_test(cases, test_values_are_the_same_bits_everywhere);
    tcase_add_test(cases, test_a_short_row_is_the_front_of_a_long_one);
    tcase_add_test(cases, test_every_part_of_the_place_changes_the_row);
    tcase_add_test(cases, test_values_stay_within_four_and_use_all_scales);
    tcase_add_test(cases, test_a_row_from_its_middle_is_that_part_of_it);
    tcase_add_test(cases, test_folding_is_the_librarys_update_row_by_row);
    tcase_add_test(cases, test_a_pool_key_sums_gated_values_in_row_order);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Lanes of shared memory alone: every frame at every place, what no writer makes, and a writer and a reader at once. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "runtime/comm/shm_lane.h"

#define LANE   4096u
#define FRAMES 20000u

START_TEST(test_shm_lane_gives_back_every_frame_at_every_place)
{
    static uint8_t memory[LANE] __attribute__((aligned(16)));
    ShmLane        lane = { 0 };
    ShmEnd         out = { .lane = &lane, .bytes = memory, .size = LANE }, in = out;
    uint8_t        text[3000], got[3000];
    uint64_t       padding;

    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (uint8_t)(i * 31 >> 2);
    }
    ck_assert_uint_eq(kvg_piece_most(&out), LANE / 4 - 16);
    for (uint64_t whole = 0; whole <= sizeof text; whole += whole < 40 || whole > 990 ? 1 + whole / 700 : 37) {
        uint64_t    done = 0, have = 0;
        int         begun = 0, last = 0, written = kvg_lane_write(&out, text, whole, &done, &begun);
        ShmPiece    piece;
        const void *place;

        ck_assert_int_eq(written, 1); /* an empty lane has room for 3000 bytes, wherever it begins */
        while (!last) {
            ck_assert_int_eq(kvg_lane_look(&in, &piece, &place), LANE_PIECE);
            ck_assert_uint_eq((uintptr_t)place % 16, 0);
            ck_assert_int_eq((piece.flags & PIECE_FIRST) != 0, have == 0);
            memcpy(got + have, place, piece.bytes);
            have += piece.bytes;
            last = (piece.flags & PIECE_LAST) != 0;
            kvg_lane_pass(&in, &piece);
        }
        ck_assert_uint_eq(have, whole);
        ck_assert_mem_eq(got, text, whole);
        ck_assert_int_eq(kvg_lane_look(&in, &piece, &place), LANE_EMPTY);
    }
    while (kvg_lane_has_room(&out, 1, &padding)) {
        kvg_lane_put_piece(&out, padding, (ShmPiece){ .bytes = 1, .flags = PIECE_FIRST | PIECE_LAST, .whole = 1 }, text);
    }
    ck_assert_uint_le(out.mine - in.mine, LANE); /* full: there is no room for one more, which takes 32, and padding */
    ck_assert_uint_gt(out.mine - in.mine, LANE - 32);
}
END_TEST

START_TEST(test_shm_lane_sees_what_no_writer_makes)
{
    static uint8_t memory[LANE] __attribute__((aligned(16)));
    static const ShmPiece bad[] = { { 17, 6, 17 }, { 0xfffffff0u, 6, 1 }, { LANE, 1, 0 } };
    const void           *place;
    ShmPiece              piece;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) { /* longer than what was written, than a lane, and padding over the end */
        ShmLane lane = { 0 };
        ShmEnd  in = { .lane = &lane, .bytes = memory, .size = LANE };

        memcpy(memory, &bad[i], sizeof bad[i]);
        atomic_store(&lane.head, 32);
        ck_assert_int_eq(kvg_lane_look(&in, &piece, &place), LANE_TORN);
        atomic_store(&lane.head, 2 * LANE); /* more than a lane holds */
        in.seen = in.mine = 0;
        ck_assert_int_eq(kvg_lane_look(&in, &piece, &place), LANE_TORN);
    }
}
END_TEST

/* ---- a thread that writes and one that reads; ThreadSanitizer looks on (tests/tsan.sh) */

static size_t size_of(uint64_t frame)
{
    return (size_t)(8 + frame * 2654435761u % 2000);
}

static void *write_frames(void *argument)
{
    ShmEnd *out = argument;
    uint8_t text[2008];

    for (uint64_t frame = 0; frame < FRAMES; frame++) {
        size_t   whole = size_of(frame);
        uint64_t done = 0;
        int      begun = 0;

        memset(text, (int)frame, whole);
        memcpy(text, &frame, sizeof frame);
        while (!kvg_lane_write(out, text, whole, &done, &begun)) {
            sched_yield();
        }
    }
    return NULL;
}

/* The next whole frame. */
static size_t read_frame(ShmEnd *in, uint8_t *text)
{
    size_t      have = 0;
    ShmPiece    piece = { 0 };
    const void *place = NULL;

    do {
        LaneSight sight;

        while ((sight = kvg_lane_look(in, &piece, &place)) == LANE_EMPTY) {
            sched_yield();
        }
        if (sight != LANE_PIECE || have + piece.bytes > 2008) {
            return 0;
        }
        memcpy(text + have, place, piece.bytes);
        have += piece.bytes;
        kvg_lane_pass(in, &piece);
    } while (!(piece.flags & PIECE_LAST));
    return have;
}

START_TEST(test_shm_lane_a_reader_sees_whole_frames_while_a_writer_writes)
{
    static uint8_t memory[LANE] __attribute__((aligned(16)));
    ShmLane        lane = { 0 };
    ShmEnd         out = { .lane = &lane, .bytes = memory, .size = LANE }, in = out;
    uint8_t        text[2008];
    pthread_t      writer;
    uint64_t       wrong = 0;

    ck_assert_int_eq(pthread_create(&writer, NULL, write_frames, &out), 0);
    for (uint64_t frame = 0; frame < FRAMES; frame++) {
        size_t   whole = read_frame(&in, text);
        uint64_t number;

        memcpy(&number, text, sizeof number);
        wrong += whole != size_of(frame) || number != frame;
        for (size_t at = sizeof number; at < whole; at++) {
            wrong += text[at] != (uint8_t)frame;
        }
    }
    pthread_join(writer, NULL);
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("shm_lane");
    TCase   *cases = tcase_create("shm_lane");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, test_shm_lane_gives_back_every_frame_at_every_place);
    tcase_add_test(cases, test_shm_lane_sees_what_no_writer_makes);
    tcase_add_test(cases, test_shm_lane_a_reader_sees_whole_frames_while_a_writer_writes);
    suite_add_tcase(suite, cases);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);

    srunner_free(runner);
    return failed != 0 || ran == 0;
}

/* Recurrent passes, moves and taps on CUDA against their host twins. */
#include "tests/kernels/cuda_test.h"

#ifdef KVG_TEST_CUDA

#include <stdint.h>

enum { SLOTS = 5, PLACES = 6, COLUMNS = 5, ROWS_MAX = 9, GUARD = 64 };

/* ---- recurrent: each slot reads, writes and steps in its own way */

typedef struct Recurrent {
    KvRecurrentBatch host, device;
    float           *conv, *state;
    size_t           conv_bytes, state_bytes;
    void            *held[10];
    int              held_count;
} Recurrent;

static void *hold(Recurrent *r, const void *data, size_t bytes)
{
    return r->held[r->held_count++] = to_device(data, bytes);
}

static float *random_floats(uint64_t seed, size_t count)
{
    float *values = malloc(count * sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = element_at(seed, i, 0);
    return values;
}

static void check_recurrent(uint32_t channels, uint32_t taps, uint32_t elements)
{
    static const int32_t  slots[PLACES] = {4, -1, 0, 2, 1, 3};
    static const uint32_t rows[PLACES] = {1, 3, 4, ROWS_MAX, 0, 2};
    static const uint32_t first_token[PLACES] = {0, 1, 4, 8, 17, 17};
    /* by slot: 0 each, 4 rows from column 3 on, wrapping; 1 skipped; 2 end alone, another column; 3 end alone, in place; 4 each, one row */
    static const int32_t read[SLOTS] = {2, 0, 1, 4, 0}, write[SLOTS] = {3, 1, 2, 4, 1}, each[SLOTS] = {1, 0, 0, 0, 1};
    Recurrent r = {.conv_bytes = 0};
    KvRecurrentView view = {.columns = COLUMNS, .taps = taps, .conv_channels = channels, .conv_elements = (uint64_t)channels * taps,
                            .state_elements = elements};

    view.conv_slot_stride = (COLUMNS * view.conv_elements + 3) / 4 * 4;
    view.state_slot_stride = (COLUMNS * view.state_elements + 3) / 4 * 4;
    r.conv_bytes = (SLOTS * view.conv_slot_stride + GUARD) * sizeof(float);
    r.state_bytes = (SLOTS * view.state_slot_stride + GUARD) * sizeof(float);
    r.conv = random_floats(1, r.conv_bytes / sizeof(float));
    r.state = random_floats(2, r.state_bytes / sizeof(float));
    r.host = (KvRecurrentBatch){.view = view, .places = PLACES, .rows_max = ROWS_MAX, .slots = slots, .rows = rows, .first_token = first_token,
                                .x = random_floats(3, 19 * (size_t)channels + 1), .u = random_floats(4, 19 * (size_t)elements + 1), .decay = 0.7f};
    r.device = r.host;
    r.device.view.conv = hold(&r, r.conv, r.conv_bytes);
    r.device.view.state = hold(&r, r.state, r.state_bytes);
    r.device.view.read = hold(&r, read, sizeof read);
    r.device.view.write = hold(&r, write, sizeof write);
    r.device.view.each = hold(&r, each, sizeof each);
    r.device.slots = hold(&r, slots, sizeof slots);
    r.device.rows = hold(&r, rows, sizeof rows);
    r.device.first_token = hold(&r, first_token, sizeof first_token);
    r.device.x = hold(&r, r.host.x, (19 * (size_t)channels + 1) * sizeof(float));
    r.device.u = hold(&r, r.host.u, (19 * (size_t)elements + 1) * sizeof(float));
    r.host.view.conv = r.conv;
    r.host.view.state = r.state;
    r.host.view.read = read;
    r.host.view.write = write;
    r.host.view.each = each;
    OK(dev.ops->synchronize(dev.self, NULL));
    kvg_recurrent_batch_ref(&r.host);
    OK(kvg_recurrent_batch_launch(&r.device, NULL));
    CU(cudaDeviceSynchronize());
    float *got = malloc(r.conv_bytes > r.state_bytes ? r.conv_bytes : r.state_bytes);
    from_device(got, r.device.view.conv, r.conv_bytes);
    ck_assert_msg(memcmp(got, r.conv, r.conv_bytes) == 0, "conv of %u channels, %u taps", channels, taps);
    from_device(got, r.device.view.state, r.state_bytes);
    ck_assert_msg(memcmp(got, r.state, r.state_bytes) == 0, "state of %u elements", elements);
    free(got);
    free(r.conv);
    free(r.state);
    free((void *)(uintptr_t)r.host.x);
    free((void *)(uintptr_t)r.host.u);
    for (int i = 0; i < r.held_count; i++) device_free(r.held[i]);
}

START_TEST(test_recurrent_passes_go_through_columns_like_the_hosts)
{
    check_recurrent(24, 3, 128);
    check_recurrent(255, 3, 257);
    check_recurrent(1, 1, 1);
    check_recurrent(100, 0, 300);
    check_recurrent(7, 11, 5000);
    check_recurrent(6144, 3, 128 * 128);
}
END_TEST

/* One slot's pass by the device's operation, whole and in pieces, against the host's rule. */
static void check_pass(uint32_t read, uint32_t write, uint32_t each, const uint32_t *pieces, size_t count)
{
    enum { CHANNELS = 77, TAPS = 3, ELEMENTS = 1000, CONV = COLUMNS * CHANNELS * TAPS, STATE = COLUMNS * ELEMENTS };
    float *conv = random_floats(1, CONV), *state = random_floats(2, STATE), *x = random_floats(3, ROWS_MAX * CHANNELS), got[STATE];
    float *u = random_floats(4, ROWS_MAX * ELEMENTS), *d_x = to_device(x, ROWS_MAX * CHANNELS * 4), *d_u = to_device(u, ROWS_MAX * ELEMENTS * 4);
    KvRecurrentPass host = {.conv = conv, .state = state, .read = read, .write = write, .each = each, .columns = COLUMNS, .taps = TAPS,
                            .channels = CHANNELS, .elements = ELEMENTS, .decay = 0.9f, .x = x, .u = u};
    KvRecurrentPass device = host;

    device.conv = to_device(conv, CONV * 4);
    device.state = to_device(state, STATE * 4);
    device.x = d_x;
    device.u = d_u;
    for (size_t p = 0; p < count; p++) {
        device.rows = pieces[p];
        OK(dev.ops->recurrent_pass(dev.self, &device, NULL));
        kvg_recurrent_pass_advance(&device, device.rows);
        device.x += device.rows * CHANNELS;
        device.u += device.rows * ELEMENTS;
        host.rows += pieces[p];
    }
    kvg_recurrent_pass(&host);
    from_device(got, device.conv, CONV * 4);
    ck_assert_msg(memcmp(got, conv, CONV * 4) == 0, "conv of %u rows in %zu pieces, each %u", host.rows, count, each);
    from_device(got, device.state, STATE * 4);
    ck_assert_msg(memcmp(got, state, STATE * 4) == 0, "state of %u rows in %zu pieces, each %u", host.rows, count, each);
    device_free(device.conv);
    device_free(device.state);
    device_free(d_x);
    device_free(d_u);
    free(conv);
    free(state);
    free(x);
    free(u);
}

START_TEST(test_a_pass_in_pieces_is_the_pass_and_may_stay_in_its_column)
{
    static const uint32_t whole[] = {ROWS_MAX}, pieces[] = {1, 5, 0, 2}, tokens[] = {1, 1, 1}, four[] = {4}, halves[] = {2, 2};

    check_pass(1, 1, 0, whole, 1);
    check_pass(1, 1, 0, pieces, 4);
    check_pass(1, 1, 0, tokens, 3);
    check_pass(0, 4, 0, whole, 1);
    check_pass(0, 4, 0, pieces, 4);
    check_pass(2, 3, 1, four, 1); /* round the end */
    check_pass(2, 3, 1, halves, 2);
    check_pass(2, 3, 1, tokens, 3);
}
END_TEST

START_TEST(test_many_moves_in_one_launch)
{
    enum { COUNT = 12, EACH = 300000 };
    uint8_t *expected = malloc(COUNT * EACH), *got = malloc(COUNT * EACH);
    KvMove   host[COUNT], device[COUNT];

    for (size_t b = 0; b < COUNT * EACH; b++) expected[b] = (uint8_t)bits_at(9, b);
    uint8_t *memory = to_device(expected, COUNT * EACH);
    for (size_t i = 0; i < COUNT; i++) { /* down and up, near and far, of any alignment; the last moves nothing */
        size_t apart = i < 4 ? 16u << (2 * i) : i < 8 ? 4352 * (i - 3) : 1 + i, bytes = i == COUNT - 1 ? 0 : 200000 + (i < 8 ? 0 : i);
        size_t target = i * EACH + (i % 2 ? apart : 0), source = i * EACH + (i % 2 ? 0 : apart);
        host[i] = (KvMove){expected + target, expected + source, bytes};
        device[i] = (KvMove){memory + target, memory + source, bytes};
    }
    void *list = to_device(device, sizeof device);
    OK(dev.ops->synchronize(dev.self, NULL));
    kvg_move_ref(host, COUNT);
    OK(kvg_move_launch(list, COUNT, NULL));
    CU(cudaDeviceSynchronize());
    from_device(got, memory, COUNT * EACH);
    ck_assert_int_eq(memcmp(got, expected, COUNT * EACH), 0);
    device_free(list);
    device_free(memory);
    free(got);
    free(expected);
}
END_TEST

START_TEST(test_taps_land_in_their_slots_bit_for_bit)
{
    static const uint32_t hidden[] = {1, 7, 64, 4096};
    enum { T = 40, TAPS = 3 };

    for (size_t h = 0; h < sizeof hidden / sizeof *hidden; h++) {
        size_t   width = hidden[h] * 2, bytes = T * TAPS * width;
        uint8_t *expected = malloc(bytes), *got = malloc(bytes), *source = malloc(T * width);

        memset(expected, 0xee, bytes);
        for (size_t i = 0; i < T * width; i++) source[i] = (uint8_t)bits_at(h, i); /* NaN patterns among them: a tap is a copy */
        uint8_t *buffer = to_device(expected, bytes), *rows = to_device(source, T * width);
        kvg_tap_store_ref(expected + 5 * TAPS * width + width, TAPS * width, source, width, width, 30);
        OK(dev.ops->move_rows(dev.self, buffer + 5 * TAPS * width + width, TAPS * width, rows, width, width, 30, NULL));
        from_device(got, buffer, bytes);
        ck_assert_int_eq(memcmp(got, expected, bytes), 0);
        device_free(buffer);
        device_free(rows);
        free(source);
        free(got);
        free(expected);
    }
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, test_recurrent_passes_go_through_columns_like_the_hosts);
    tcase_add_test(tcase, test_a_pass_in_pieces_is_the_pass_and_may_stay_in_its_column);
    tcase_add_test(tcase, test_many_moves_in_one_launch);
    tcase_add_test(tcase, test_taps_land_in_their_slots_bit_for_bit);
}
#else
static void add(TCase *tcase) { (void)tcase; }
#endif

int main(void)
{
    return cuda_suite("cuda_state", add);
}

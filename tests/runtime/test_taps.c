/* Tap sinks: what lands where, what is refused, and that a failed call has written nothing. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/taps.h>

#include "runtime/base/memory.h"

#define HIDDEN 24u
#define ROWS   50u

static const uint32_t layers[] = {1, 4, 5, 9};
#define TAPS ((uint32_t)(sizeof layers / sizeof *layers))

static KvDev    device;
static uint64_t live_before, taken_before;

static void setup(void)
{
    live_before = kvg_live_allocations();
    ck_assert_int_eq(kvg_dev_host(&device), KVG_OK);
    taken_before = device.ops->taken_bytes(device.self);
}

static void teardown(void)
{
    ck_assert_uint_eq(device.ops->taken_bytes(device.self), taken_before);
    kvg_dev_close(&device);
    ck_assert_uint_eq(kvg_live_allocations(), live_before);
}

/* Any bits, NaN patterns among them: a tap is a copy. */
static uint8_t byte_of(uint32_t layer, uint64_t row, uint32_t i)
{
    uint64_t x = (layer * 1000003u + row) * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u;
    return (uint8_t)((x ^ x >> 29) * 0x94d049bb133111ebu >> 56);
}

static DflashTapSink *dflash_new(uint32_t lo, uint32_t hi, KvFormat dtype)
{
    DflashTapSink *sink = NULL;
    ck_assert_msg(kvg_dflash_tap_new(&device, layers, TAPS, lo, hi, HIDDEN, ROWS, dtype, &sink) == KVG_OK, "%s", kvg_last_error());
    return sink;
}

/* Writes rows [r, r+rows) of the forward, whose absolute rows begin at `first`; `gap` elements between rows. */
static KvgStatus dflash_write(DflashTapSink *sink, uint32_t layer, uint64_t r, uint64_t rows, uint64_t first, uint32_t bytes, uint32_t gap)
{
    static uint8_t source[64 * 4 * (HIDDEN + 8)];
    memset(source, 0xee, sizeof source);
    for (uint64_t i = 0; i < rows; i++) {
        for (uint32_t b = 0; b < HIDDEN * bytes; b++) source[i * (HIDDEN + gap) * bytes + b] = byte_of(layer, first + i, b);
    }
    return kvg_dflash_tap_write(sink, layer, r, rows, source, gap ? HIDDEN + gap : 0, NULL);
}

static int dflash_is(const DflashTapSink *sink, uint64_t buffer_row, uint32_t slot, uint64_t row, uint32_t bytes)
{
    const uint8_t *at = (const uint8_t *)kvg_dflash_tap_buffer(sink) + (buffer_row * TAPS + slot) * HIDDEN * bytes;
    for (uint32_t b = 0; b < HIDDEN * bytes; b++) {
        if (at[b] != byte_of(layers[slot], row, b)) return 0;
    }
    return 1;
}

static const KvFormat dtypes[] = {KVG_F32, KVG_F16, KVG_BF16};
static const uint32_t sizes[] = {4, 2, 2};

START_TEST(test_a_chunked_prefill_lands_every_slot_bit_for_bit)
{
    uint32_t       bytes = sizes[_i];
    DflashTapSink *sink = dflash_new(0, 10, dtypes[_i]);
    void          *buffer = kvg_dflash_tap_buffer(sink);
    ck_assert_int_eq(kvg_dflash_tap_arm(sink, 3), KVG_OK);
    for (uint64_t r = 0, n; r < 40; r += n) { /* passes of 7 rows, and a last one of 5 */
        n = 40 - r < 7 ? 40 - r : 7;
        for (uint32_t il = 0; il < 10; il++) ck_assert_int_eq(dflash_write(sink, il, r, n, r, bytes, r % 2 ? 3 : 0), KVG_OK);
    }
    for (uint32_t slot = 0; slot < TAPS; slot++) {
        for (uint64_t r = 0; r < 40; r++) {
            ck_assert(dflash_is(sink, 3 + r, slot, r, bytes));
            ck_assert(kvg_dflash_tap_written(sink, r, slot));
        }
        ck_assert(!dflash_is(sink, 3, slot, 1, bytes)); /* the comparison can fail */
        ck_assert(!kvg_dflash_tap_written(sink, 40, slot));
    }
    ck_assert(!kvg_dflash_tap_written(sink, 0, TAPS));
    ck_assert(!kvg_dflash_tap_written(sink, UINT64_MAX, 0));
    ck_assert_ptr_eq(kvg_dflash_tap_buffer(sink), buffer);
    kvg_dflash_tap_free(sink);
}
END_TEST

START_TEST(test_verify_rounds_rearm_at_the_accepted_row_and_end_like_a_straight_run)
{
    DflashTapSink *sink = dflash_new(0, 10, KVG_BF16);
    uint64_t       base = 0;
    for (uint32_t round = 0; base + 5 <= ROWS; round++) {
        uint64_t accepted = round % 6; /* of 5 rows: none to all */
        ck_assert_int_eq(kvg_dflash_tap_arm(sink, base), KVG_OK);
        for (uint32_t slot = 0; slot < TAPS; slot++) {
            ck_assert(!kvg_dflash_tap_written(sink, 0, slot)); /* forgotten: the last round's rows, and the rejected among them */
            ck_assert_int_eq(dflash_write(sink, layers[slot], 0, accepted, base, 2, 0), KVG_OK);
            ck_assert_int_eq(dflash_write(sink, layers[slot], accepted, 5 - accepted, 7777, 2, 0), KVG_OK); /* to be rejected */
            ck_assert(kvg_dflash_tap_written(sink, 4, slot));
            ck_assert(!kvg_dflash_tap_written(sink, 5, slot));
        }
        kvg_dflash_tap_disarm(sink);
        base += accepted;
    }
    ck_assert_uint_gt(base, 40);
    for (uint64_t r = 0; r < base; r++) {
        for (uint32_t slot = 0; slot < TAPS; slot++) ck_assert(dflash_is(sink, r, slot, r, 2));
    }
    kvg_dflash_tap_free(sink);
}
END_TEST

START_TEST(test_a_stage_writes_only_its_own_slots)
{
    DflashTapSink *sink = dflash_new(4, 9, KVG_F32); /* layers 4 and 5: slots 1 and 2 */
    uint8_t       *buffer = kvg_dflash_tap_buffer(sink);
    memset(buffer, 0x5a, (size_t)ROWS * TAPS * HIDDEN * 4);
    ck_assert_int_eq(kvg_dflash_tap_arm(sink, 0), KVG_OK);
    for (uint32_t il = 0; il < 12; il++) ck_assert_int_eq(dflash_write(sink, il, 0, 10, 0, 4, 0), KVG_OK);
    for (uint64_t r = 0; r < ROWS; r++) {
        for (uint32_t slot = 0; slot < TAPS; slot++) {
            const uint8_t *at = buffer + (r * TAPS + slot) * HIDDEN * 4;
            int            own = r < 10 && (slot == 1 || slot == 2);
            ck_assert_int_eq(kvg_dflash_tap_written(sink, r, slot), own);
            for (uint32_t b = 0; b < HIDDEN * 4; b++) ck_assert_uint_eq(at[b], own ? byte_of(layers[slot], r, b) : 0x5a);
        }
    }
    kvg_dflash_tap_free(sink);
}
END_TEST

START_TEST(test_rows_past_the_end_are_refused_and_nothing_is_written)
{
    DflashTapSink *sink = dflash_new(0, 10, KVG_F16);
    ck_assert_int_eq(kvg_dflash_tap_arm(sink, ROWS), KVG_EINVAL);
    ck_assert_int_eq(dflash_write(sink, 1, 0, 1, 0, 2, 0), KVG_ESTALE); /* the refused arming has not armed it */
    ck_assert_int_eq(kvg_dflash_tap_arm(sink, ROWS - 1), KVG_OK);
    ck_assert_int_eq(dflash_write(sink, 1, 0, 1, 0, 2, 0), KVG_OK);
    ck_assert_int_eq(kvg_dflash_tap_arm(sink, 20), KVG_OK);
    memset(kvg_dflash_tap_buffer(sink), 0x5a, (size_t)ROWS * TAPS * HIDDEN * 2);
    ck_assert_int_eq(dflash_write(sink, 1, 0, ROWS - 19, 0, 2, 0), KVG_EINVAL);
    ck_assert_int_eq(dflash_write(sink, 1, ROWS - 20, 1, 0, 2, 0), KVG_EINVAL);
    ck_assert_int_eq(dflash_write(sink, 2, ROWS - 20, 1, 0, 2, 0), KVG_EINVAL); /* not tapped: the same answer on every stage */
    ck_assert_int_eq(dflash_write(sink, 1, UINT64_MAX, 2, 0, 2, 0), KVG_EINVAL);
    ck_assert_int_eq(kvg_dflash_tap_write(sink, 1, 2, UINT64_MAX, "x", 0, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_dflash_tap_write(sink, 1, 0, 1, NULL, 0, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_dflash_tap_write(sink, 1, 0, 1, "x", HIDDEN - 1, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_dflash_tap_write(sink, 1, 0, 1, "x", -(int64_t)HIDDEN, NULL), KVG_EINVAL);
    for (size_t i = 0; i < (size_t)ROWS * TAPS * HIDDEN * 2; i++) ck_assert_uint_eq(((uint8_t *)kvg_dflash_tap_buffer(sink))[i], 0x5a);
    ck_assert(!kvg_dflash_tap_written(sink, 0, 0));
    ck_assert_int_eq(dflash_write(sink, 1, 0, ROWS - 20, 0, 2, 0), KVG_OK);
    ck_assert_int_eq(dflash_write(sink, 1, ROWS - 20, 0, 0, 2, 0), KVG_OK); /* no rows at the very end */
    kvg_dflash_tap_free(sink);
}
END_TEST

START_TEST(test_a_sink_that_is_not_armed_or_was_dropped_takes_nothing)
{
    DflashTapSink *sink = dflash_new(0, 10, KVG_F32);
    HcTapSink     *hc = NULL;
    float          streams[2 * HIDDEN] = {0};
    ck_assert_int_eq(dflash_write(sink, 1, 0, 1, 0, 4, 0), KVG_ESTALE);
    ck_assert_int_eq(kvg_dflash_tap_arm(sink, 0), KVG_OK);
    ck_assert_int_eq(dflash_write(sink, 1, 0, 1, 0, 4, 0), KVG_OK);
    kvg_dflash_tap_disarm(sink);
    ck_assert_int_eq(dflash_write(sink, 1, 1, 1, 0, 4, 0), KVG_ESTALE);
    ck_assert(kvg_dflash_tap_written(sink, 0, 0)); /* a forward's end takes nothing away */
    ck_assert_int_eq(kvg_dflash_tap_arm(sink, 0), KVG_OK);
    ck_assert_int_eq(dflash_write(sink, 1, 0, 1, 0, 4, 0), KVG_OK);
    kvg_dflash_tap_drop(sink);
    ck_assert(!kvg_dflash_tap_written(sink, 0, 0));
    ck_assert_int_eq(dflash_write(sink, 1, 0, 1, 0, 4, 0), KVG_ESTALE);
    kvg_dflash_tap_free(sink);

    ck_assert_int_eq(kvg_hc_tap_new(&device, layers, TAPS, 0, 10, HIDDEN, 2, ROWS, 0, 1, &hc), KVG_OK);
    ck_assert_int_eq(kvg_hc_tap_write(hc, 1, 0, 1, streams, NULL), KVG_ESTALE);
    ck_assert_int_eq(kvg_hc_tap_drain(hc, NULL), KVG_ESTALE);
    ck_assert_int_eq(kvg_hc_tap_arm(hc, 0), KVG_OK);
    ck_assert_int_eq(kvg_hc_tap_write(hc, 1, 0, 1, streams, NULL), KVG_OK);
    kvg_hc_tap_disarm(hc);
    ck_assert_int_eq(kvg_hc_tap_write(hc, 1, 0, 1, streams, NULL), KVG_ESTALE);
    ck_assert_int_eq(kvg_hc_tap_drain(hc, NULL), KVG_OK);
    kvg_hc_tap_drop(hc);
    ck_assert_int_eq(kvg_hc_tap_drain(hc, NULL), KVG_ESTALE);
    kvg_hc_tap_free(hc);
}
END_TEST

/* ---- HcTapSink */

/* Values of very different sizes, so that another order of the sum gives other bits. */
static float stream_value(uint32_t layer, uint64_t row, uint32_t stream, uint32_t e)
{
    static const float scale[] = {1e8f, 1.0f, 1e-3f, 3e7f};
    return ((float)byte_of(layer * 7 + stream, row, e) - 127.3f) * scale[(stream + e) % 4];
}

static KvgStatus hc_write(HcTapSink *sink, uint32_t layer, uint64_t r, uint64_t rows, uint32_t hc_mult, uint64_t first)
{
    float *streams = malloc((size_t)(rows + 1) * hc_mult * HIDDEN * sizeof *streams);
    for (uint64_t i = 0; i < rows; i++) {
        for (uint32_t s = 0; s < hc_mult; s++) {
            for (uint32_t e = 0; e < HIDDEN; e++) streams[(i * hc_mult + s) * HIDDEN + e] = stream_value(layer, first + i, s, e);
        }
    }
    KvgStatus status = kvg_hc_tap_write(sink, layer, r, rows, streams, NULL);
    free(streams);
    return status;
}

static float hc_expected(uint32_t layer, uint64_t row, uint32_t hc_mult, uint32_t e)
{
    volatile float sum = stream_value(layer, row, 0, e); /* rounded to f32 at every step */
    for (uint32_t s = 1; s < hc_mult; s++) sum = sum + stream_value(layer, row, s, e);
    return sum / (float)hc_mult;
}

static int hc_is(const HcTapSink *sink, uint64_t host_row, uint32_t slot, uint64_t row, uint32_t hc_mult)
{
    const float *at = kvg_hc_tap_rows(sink) + (host_row * TAPS + slot) * HIDDEN;
    for (uint32_t e = 0; e < HIDDEN; e++) {
        float expected = hc_expected(layers[slot], row, hc_mult, e);
        if (memcmp(&at[e], &expected, sizeof expected) != 0) return 0;
    }
    return 1;
}

START_TEST(test_the_mean_is_summed_in_order_bit_for_bit)
{
    int order_matters = 0;
    for (uint32_t hc_mult = 1; hc_mult <= 5; hc_mult++) {
        HcTapSink *sink = NULL;
        ck_assert_int_eq(kvg_hc_tap_new(&device, layers, TAPS, 0, 10, HIDDEN, hc_mult, ROWS, 1000, 0, &sink), KVG_OK);
        ck_assert_int_eq(kvg_hc_tap_arm(sink, 1002), KVG_OK);
        for (uint32_t slot = 0; slot < TAPS; slot++) ck_assert_int_eq(hc_write(sink, layers[slot], 1, 45, hc_mult, 1003), KVG_OK);
        for (uint32_t slot = 0; slot < TAPS; slot++) {
            for (uint64_t r = 0; r < 45; r++) ck_assert(hc_is(sink, 3 + r, slot, 1003 + r, hc_mult)); /* base - origin + r */
            ck_assert(!hc_is(sink, 3, slot, 1004, hc_mult));
        }
        for (uint32_t e = 0; e < HIDDEN && hc_mult > 2; e++) {
            volatile float back = stream_value(1, 5, hc_mult - 1, e);
            for (uint32_t s = hc_mult - 1; s-- > 0;) back = back + stream_value(1, 5, s, e);
            order_matters |= back / (float)hc_mult != hc_expected(1, 5, hc_mult, e);
        }
        kvg_hc_tap_free(sink);
    }
    ck_assert(order_matters);
}
END_TEST

START_TEST(test_a_staged_drain_equals_direct_writes)
{
    HcTapSink *direct = NULL, *staged = NULL;
    ck_assert_int_eq(kvg_hc_tap_new(&device, layers, TAPS, 4, 10, HIDDEN, 4, ROWS, 10, 0, &direct), KVG_OK);
    ck_assert_int_eq(kvg_hc_tap_new(&device, layers, TAPS, 4, 10, HIDDEN, 4, ROWS, 10, 1, &staged), KVG_OK);
    for (uint64_t base = 10, round = 0; base < 40; base += 6, round++) {
        ck_assert_int_eq(kvg_hc_tap_arm(direct, base), KVG_OK);
        ck_assert_int_eq(kvg_hc_tap_arm(staged, base), KVG_OK);
        for (uint32_t il = 0; il < 10; il++) {
            for (uint64_t r = 0; r < 12; r += 4) {
                if (r == 4 && il == 5 && round == 0) continue; /* a gap */
                ck_assert_int_eq(hc_write(direct, il, r, 4, 4, base + r), KVG_OK);
                ck_assert_int_eq(hc_write(staged, il, r, 4, 4, base + r), KVG_OK);
            }
        }
        if (round == 2) { /* nothing lands before the drain, and an undrained row is forgotten by the next forward */
            ck_assert(!hc_is(staged, base - 10 + 9, 1, base + 9, 4));
            continue;
        }
        ck_assert_int_eq(kvg_hc_tap_drain(staged, NULL), KVG_OK);
        ck_assert_int_eq(kvg_hc_tap_drain(staged, NULL), KVG_OK);
        ck_assert_int_eq(kvg_hc_tap_drain(direct, NULL), KVG_OK);
    }
    ck_assert_mem_eq(kvg_hc_tap_rows(direct), kvg_hc_tap_rows(staged), (size_t)22 * TAPS * HIDDEN * sizeof(float));
    ck_assert(hc_is(direct, 2, 1, 12, 4));
    ck_assert(hc_is(staged, 2, 3, 12, 4));
    kvg_hc_tap_free(direct);
    kvg_hc_tap_free(staged);
}
END_TEST

START_TEST(test_base_and_origin_of_host_rows)
{
    HcTapSink *sink = NULL;
    ck_assert_int_eq(kvg_hc_tap_new(&device, layers, TAPS, 0, 10, HIDDEN, 2, ROWS, 100, 0, &sink), KVG_OK);
    ck_assert_int_eq(kvg_hc_tap_arm(sink, 99), KVG_EINVAL);
    ck_assert_int_eq(kvg_hc_tap_arm(sink, 0), KVG_EINVAL);
    ck_assert_int_eq(kvg_hc_tap_arm(sink, 100 + ROWS), KVG_EINVAL);
    ck_assert_int_eq(kvg_hc_tap_arm(sink, UINT64_MAX), KVG_EINVAL);
    ck_assert_int_eq(kvg_hc_tap_arm(sink, 100 + ROWS - 1), KVG_OK);
    ck_assert_int_eq(hc_write(sink, 9, 0, 1, 2, 149), KVG_OK);
    ck_assert_int_eq(hc_write(sink, 9, 0, 2, 2, 149), KVG_EINVAL);
    ck_assert_int_eq(hc_write(sink, 9, 1, 1, 2, 149), KVG_EINVAL);
    ck_assert_int_eq(kvg_hc_tap_write(sink, 9, 0, 1, NULL, NULL), KVG_EINVAL);
    ck_assert(hc_is(sink, ROWS - 1, 3, 149, 2));
    ck_assert_int_eq(kvg_hc_tap_arm(sink, 100), KVG_OK);
    ck_assert_int_eq(hc_write(sink, 1, 0, ROWS, 2, 100), KVG_OK);
    ck_assert(hc_is(sink, ROWS - 1, 0, 149, 2));
    kvg_hc_tap_free(sink);
}
END_TEST

/* ---- making */

START_TEST(test_bad_sinks_are_refused_by_name)
{
    static const uint32_t same[] = {3, 3}, back[] = {3, 2};
    DflashTapSink        *sink = (DflashTapSink *)&device;
    HcTapSink            *hc = (HcTapSink *)&device;
    ck_assert_int_eq(kvg_dflash_tap_new(NULL, layers, TAPS, 0, 10, HIDDEN, ROWS, KVG_F32, &sink), KVG_EINVAL);
    ck_assert_int_eq(kvg_dflash_tap_new(&device, NULL, TAPS, 0, 10, HIDDEN, ROWS, KVG_F32, &sink), KVG_EINVAL);
    ck_assert_int_eq(kvg_dflash_tap_new(&device, layers, 0, 0, 10, HIDDEN, ROWS, KVG_F32, &sink), KVG_EINVAL);
    ck_assert_int_eq(kvg_dflash_tap_new(&device, same, 2, 0, 10, HIDDEN, ROWS, KVG_F32, &sink), KVG_EINVAL);
    ck_assert_int_eq(kvg_dflash_tap_new(&device, back, 2, 0, 10, HIDDEN, ROWS, KVG_F32, &sink), KVG_EINVAL);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "layer 2 stands in slot 1"));
    ck_assert_int_eq(kvg_dflash_tap_new(&device, layers, TAPS, 10, 9, HIDDEN, ROWS, KVG_F32, &sink), KVG_EINVAL);
    ck_assert_int_eq(kvg_dflash_tap_new(&device, layers, TAPS, 0, 10, 0, ROWS, KVG_F32, &sink), KVG_EINVAL);
    ck_assert_int_eq(kvg_dflash_tap_new(&device, layers, TAPS, 0, 10, HIDDEN, 0, KVG_F32, &sink), KVG_EINVAL);
    ck_assert_int_eq(kvg_dflash_tap_new(&device, layers, TAPS, 0, 10, HIDDEN, ROWS, KVG_Q8_0, &sink), KVG_EINVAL);
    ck_assert_int_eq(kvg_dflash_tap_new(&device, layers, TAPS, 0, 10, HIDDEN, ROWS, KVG_POLICY, &sink), KVG_EINVAL);
    ck_assert_int_eq(kvg_dflash_tap_new(&device, layers, TAPS, 0, 10, UINT32_MAX, 1ull << 40, KVG_F32, &sink), KVG_EOVERFLOW);
    ck_assert_int_eq(kvg_hc_tap_new(&device, layers, TAPS, 0, 10, HIDDEN, 0, ROWS, 0, 0, &hc), KVG_EINVAL);
    ck_assert_int_eq(kvg_hc_tap_new(&device, layers, TAPS, 0, 10, HIDDEN, 2, 0, 0, 0, &hc), KVG_EINVAL);
    ck_assert_ptr_eq(sink, &device);
    ck_assert_ptr_eq(hc, &device);
    kvg_dflash_tap_free(NULL);
    kvg_hc_tap_free(NULL);
}
END_TEST

START_TEST(test_making_a_sink_unwinds_from_every_allocation)
{
    for (int kind = 0; kind < 3; kind++) {
        uint64_t nth;
        for (nth = 0;; nth++) {
            DflashTapSink *sink = NULL;
            HcTapSink     *hc = NULL;
            uint64_t       live = kvg_live_allocations();
            kvg_fault_arm(nth);
            KvgStatus status = kind == 0 ? kvg_dflash_tap_new(&device, layers, TAPS, 0, 10, HIDDEN, ROWS, KVG_BF16, &sink) :
                                           kvg_hc_tap_new(&device, layers, TAPS, 0, 10, HIDDEN, 4, ROWS, 0, kind == 2, &hc);
            int hit = kvg_fault_disarm();
            ck_assert_int_eq(status, hit ? KVG_ENOMEM : KVG_OK);
            kvg_dflash_tap_free(sink);
            kvg_hc_tap_free(hc);
            ck_assert_uint_eq(kvg_live_allocations(), live);
            ck_assert_uint_eq(device.ops->taken_bytes(device.self), taken_before);
            if (!hit) break;
        }
        ck_assert_uint_eq(nth, kind == 0 ? 4 : kind == 1 ? 5 : 6);
    }
}
END_TEST

/* ---- a device that fails part-way */

static KvDevOps failing_ops;
static int      copies_left;

static KvgStatus failing_move(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    (void)self, (void)stream;
    if (copies_left-- == 0) return KVG_EDEVICE;
    memmove(target, source, bytes);
    return KVG_OK;
}

START_TEST(test_rows_of_a_failed_copy_count_as_not_written)
{
    KvDev          failing = {&failing_ops, device.self};
    DflashTapSink *sink = NULL;
    failing_ops = *device.ops;
    failing_ops.move = failing_move;
    ck_assert_int_eq(kvg_dflash_tap_new(&failing, layers, TAPS, 0, 10, HIDDEN, ROWS, KVG_F32, &sink), KVG_OK);
    ck_assert_int_eq(kvg_dflash_tap_arm(sink, 0), KVG_OK);
    copies_left = 100;
    ck_assert_int_eq(dflash_write(sink, 1, 0, 6, 0, 4, 0), KVG_OK);
    copies_left = 2;
    ck_assert_int_eq(dflash_write(sink, 1, 2, 4, 0, 4, 0), KVG_EDEVICE);
    for (uint64_t r = 0; r < 6; r++) ck_assert_int_eq(kvg_dflash_tap_written(sink, r, 0), r < 2);
    kvg_dflash_tap_free(sink);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("taps");
    TCase *tc = tcase_create("taps");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, test_a_chunked_prefill_lands_every_slot_bit_for_bit, 0, 3);
    tcase_add_test(tc, test_verify_rounds_rearm_at_the_accepted_row_and_end_like_a_straight_run);
    tcase_add_test(tc, test_a_stage_writes_only_its_own_slots);
    tcase_add_test(tc, test_rows_past_the_end_are_refused_and_nothing_is_written);
    tcase_add_test(tc, test_a_sink_that_is_not_armed_or_was_dropped_takes_nothing);
    tcase_add_test(tc, test_the_mean_is_summed_in_order_bit_for_bit);
    tcase_add_test(tc, test_a_staged_drain_equals_direct_writes);
    tcase_add_test(tc, test_base_and_origin_of_host_rows);
    tcase_add_test(tc, test_bad_sinks_are_refused_by_name);
    tcase_add_test(tc, test_making_a_sink_unwinds_from_every_allocation);
    tcase_add_test(tc, test_rows_of_a_failed_copy_count_as_not_written);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);
    srunner_free(runner);
    return failed != 0;
}

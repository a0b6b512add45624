/* Taps of several stages gathered to the last, over in-process grids: whole there, unchanged elsewhere, nothing moved on refusal. */
#include "tests/support/inproc_grid.h"

#include <kvgrid/taps_gather.h>

#define LAYERS 8u
#define HIDDEN 40u
#define ROWS   64u

static const uint32_t layers[] = {0, 3, 4, 7};
#define TAPS ((uint32_t)(sizeof layers / sizeof *layers))

static const struct { uint32_t tp, pp; } grids[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 4}, {2, 4}, {1, 3}, {3, 2}, {1, 8}};
#define GRIDS (int)(sizeof grids / sizeof *grids)

typedef struct Taps {
    TestGrid       g;
    KvDev          device;
    DflashTapSink *sink[TEST_RANKS_MAX];
    HcTapSink     *hc[TEST_RANKS_MAX];
    uint64_t       live_before;
} Taps;

/* Stages of equal depth; the last takes the rest. */
static void stage_layers(const TestGrid *g, int r, uint32_t *lo, uint32_t *hi)
{
    uint32_t stage = kvg_grid_stage(g->grid[r]), each = LAYERS / g->pp;
    *lo = stage * each;
    *hi = stage + 1 == g->pp ? LAYERS : *lo + each;
}

static void taps_open(Taps *taps, uint32_t tp, uint32_t pp, uint64_t rows, KvFormat dtype, uint32_t timeout_ms)
{
    KvgPolicy policy;
    memset(taps, 0, sizeof *taps);
    taps->live_before = kvg_live_allocations();
    kvg_policy_default(&policy);
    if (timeout_ms > 0) policy.timeout_ms = timeout_ms;
    grid_connect(&taps->g, tp, pp, &policy, 0);
    ck_assert_int_eq(kvg_dev_host(&taps->device), KVG_OK);
    for (int r = 0; r < taps->g.ranks; r++) {
        uint32_t lo, hi;
        stage_layers(&taps->g, r, &lo, &hi);
        ck_assert_int_eq(kvg_dflash_tap_new(&taps->device, layers, TAPS, lo, hi, HIDDEN, rows, dtype, &taps->sink[r]), KVG_OK);
        ck_assert_int_eq(kvg_hc_tap_new(&taps->device, layers, TAPS, lo, hi, HIDDEN, 2, rows, 500, 1, &taps->hc[r]), KVG_OK);
    }
}

static void taps_close(Taps *taps)
{
    for (int r = 0; r < taps->g.ranks; r++) {
        kvg_dflash_tap_free(taps->sink[r]);
        kvg_hc_tap_free(taps->hc[r]);
    }
    kvg_dev_close(&taps->device);
    taps->g.live_before = taps->live_before;
    grid_close(&taps->g);
}

static uint8_t byte_of(uint32_t layer, uint64_t row, uint32_t i)
{
    return (uint8_t)((layer * 131u + row * 7919u + i * 31u) ^ row >> 3);
}

static void write_row(DflashTapSink *sink, uint32_t layer, uint64_t r, uint64_t row, uint32_t bytes)
{
    uint8_t source[HIDDEN * 4];
    for (uint32_t b = 0; b < HIDDEN * bytes; b++) source[b] = byte_of(layer, row, b);
    ck_assert_int_eq(kvg_dflash_tap_write(sink, layer, r, 1, source, 0, NULL), KVG_OK);
}

/* One walk on every rank: armed at base, every layer offers rows [0, rows). */
static void walk(Taps *taps, uint64_t base, uint64_t rows, uint32_t bytes)
{
    for (int r = 0; r < taps->g.ranks; r++) {
        ck_assert_int_eq(kvg_dflash_tap_arm(taps->sink[r], base), KVG_OK);
        for (uint32_t il = 0; il < LAYERS; il++) {
            for (uint64_t row = 0; row < rows; row++) write_row(taps->sink[r], il, row, base + row, bytes);
        }
    }
}

static KvgStatus gather(Taps *taps, uint64_t rows, KvgStatus *each)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    for (int r = 0; r < taps->g.ranks; r++) {
        ck_assert_msg(kvg_taps_gather_start(taps->g.grid[r], taps->sink[r], rows, NULL, &setups[r]) == KVG_OK, "%s", kvg_last_error());
    }
    return grid_finish(&taps->g, setups, each);
}

static KvgStatus hc_gather(Taps *taps, uint64_t rows, KvgStatus *each)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    for (int r = 0; r < taps->g.ranks; r++) {
        ck_assert_int_eq(kvg_hc_taps_gather_start(taps->g.grid[r], taps->hc[r], rows, &setups[r]), KVG_OK);
    }
    return grid_finish(&taps->g, setups, each);
}

static int row_is(const DflashTapSink *sink, uint64_t buffer_row, uint32_t slot, uint64_t row, uint32_t bytes)
{
    const uint8_t *at = (const uint8_t *)kvg_dflash_tap_buffer(sink) + (buffer_row * TAPS + slot) * HIDDEN * bytes;
    for (uint32_t b = 0; b < HIDDEN * bytes; b++) {
        if (at[b] != byte_of(layers[slot], row, b)) return 0;
    }
    return 1;
}

static int owns(const Taps *taps, int r, uint32_t slot)
{
    uint32_t lo, hi;
    stage_layers(&taps->g, r, &lo, &hi);
    return lo <= layers[slot] && layers[slot] < hi;
}

static int is_last(const Taps *taps, int r)
{
    return kvg_grid_stage(taps->g.grid[r]) + 1 == taps->g.pp;
}

/* The last stage holds every slot of [0, rows); each rank's marks say so, and other stages hold their own alone. */
static void check_whole(Taps *taps, uint64_t base, uint64_t rows, uint32_t bytes)
{
    for (int r = 0; r < taps->g.ranks; r++) {
        for (uint32_t slot = 0; slot < TAPS; slot++) {
            int held = owns(taps, r, slot) || is_last(taps, r);
            for (uint64_t row = 0; row < rows; row++) {
                ck_assert_int_eq(kvg_dflash_tap_written(taps->sink[r], row, slot), held);
                ck_assert_int_eq(row_is(taps->sink[r], base + row, slot, base + row, bytes), held);
            }
            ck_assert(!kvg_dflash_tap_written(taps->sink[r], rows, slot) || rows == 0);
        }
    }
}

START_TEST(test_taps_end_whole_on_the_last_stage_of_every_grid)
{
    static const KvFormat dtypes[] = {KVG_F32, KVG_F16, KVG_BF16};
    static const uint32_t bytes[] = {4, 2, 2};
    for (int d = 0; d < 3; d++) {
        Taps      taps;
        KvgStatus each[TEST_RANKS_MAX];
        taps_open(&taps, grids[_i].tp, grids[_i].pp, ROWS, dtypes[d], 0);
        walk(&taps, 5, 20, bytes[d]); /* prefill */
        ck_assert_msg(gather(&taps, 20, each) == KVG_OK, "%s", kvg_last_error());
        for (int r = 0; r < taps.g.ranks; r++) ck_assert_int_eq(each[r], KVG_OK);
        check_whole(&taps, 5, 20, bytes[d]);
        walk(&taps, 23, 4, bytes[d]); /* a verify round from the accepted row on */
        ck_assert_int_eq(gather(&taps, 4, each), KVG_OK);
        for (uint64_t row = 5; row < 27; row++) {
            for (uint32_t slot = 0; slot < TAPS; slot++) ck_assert(row_is(taps.sink[taps.g.ranks - 1], row, slot, row, bytes[d]));
        }
        walk(&taps, ROWS - 1, 1, bytes[d]);
        ck_assert_int_eq(gather(&taps, 0, each), KVG_OK);
        ck_assert_int_eq(kvg_dflash_tap_written(taps.sink[taps.g.ranks - 1], 0, 0), owns(&taps, taps.g.ranks - 1, 0));
        ck_assert_int_eq(gather(&taps, 1, each), KVG_OK);
        check_whole(&taps, ROWS - 1, 1, bytes[d]);
        taps_close(&taps);
    }
}
END_TEST

static float stream_value(uint32_t layer, uint64_t row, uint32_t stream, uint32_t e)
{
    return (float)byte_of(layer + stream * 17, row, e) * (stream ? 1e-3f : 1e5f);
}

static void hc_walk(Taps *taps, uint64_t base, uint64_t rows, int drain)
{
    for (int r = 0; r < taps->g.ranks; r++) {
        ck_assert_int_eq(kvg_hc_tap_arm(taps->hc[r], base), KVG_OK);
        for (uint32_t il = 0; il < LAYERS; il++) {
            for (uint64_t row = 0; row < rows; row++) {
                float streams[2][HIDDEN];
                for (uint32_t i = 0; i < 2 * HIDDEN; i++) streams[i / HIDDEN][i % HIDDEN] = stream_value(il, base + row, i / HIDDEN, i % HIDDEN);
                ck_assert_int_eq(kvg_hc_tap_write(taps->hc[r], il, row, 1, streams[0], NULL), KVG_OK);
            }
        }
        if (drain) ck_assert_int_eq(kvg_hc_tap_drain(taps->hc[r], NULL), KVG_OK);
    }
}

START_TEST(test_host_rows_of_streams_end_whole_on_the_last_stage)
{
    Taps      taps;
    KvgStatus each[TEST_RANKS_MAX];
    taps_open(&taps, grids[_i].tp, grids[_i].pp, ROWS, KVG_F32, 0);
    hc_walk(&taps, 503, 9, 0);
    ck_assert_int_eq(hc_gather(&taps, 9, each), owns(&taps, 0, 0) ? KVG_ESTALE : KVG_OK); /* not drained */
    for (int r = 0; r < taps.g.ranks; r++) ck_assert_int_ne(each[r], KVG_OK);
    hc_walk(&taps, 503, 9, 1);
    ck_assert_msg(hc_gather(&taps, 9, each) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < taps.g.ranks; r++) {
        ck_assert_int_eq(each[r], KVG_OK);
        for (uint32_t i = 0; i < 9 * TAPS * HIDDEN; i++) {
            uint32_t slot = i / HIDDEN % TAPS, e = i % HIDDEN;
            uint64_t row = 503 + i / HIDDEN / TAPS;
            float    expected = (stream_value(layers[slot], row, 0, e) + stream_value(layers[slot], row, 1, e)) / 2.0f;
            if (!owns(&taps, r, slot) && !is_last(&taps, r)) expected = 0.0f;
            ck_assert(memcmp(&kvg_hc_tap_rows(taps.hc[r])[3 * TAPS * HIDDEN + i], &expected, sizeof expected) == 0);
        }
    }
    taps_close(&taps);
}
END_TEST

START_TEST(test_many_rows_travel_in_pieces)
{
    uint64_t rows = 20000; /* 12.8 MB of f32 rows: several pieces, the last one short */
    Taps     taps;
    taps_open(&taps, 1, 2, rows, KVG_F32, 0);
    walk(&taps, 0, rows, 4);
    ck_assert_int_eq(gather(&taps, rows, NULL), KVG_OK);
    for (uint64_t row = 0; row < rows; row++) {
        for (uint32_t slot = 0; slot < TAPS; slot++) ck_assert(row_is(taps.sink[1], row, slot, row, 4));
    }
    ck_assert(!row_is(taps.sink[1], 0, 0, 1, 4)); /* the comparison can fail */
    taps_close(&taps);
}
END_TEST

/* ---- what crosses: bytes of rows go from tp_rank 0 of each earlier stage to the last stage, and nowhere else */

typedef struct Traffic {
    size_t to[TEST_RANKS_MAX][TEST_RANKS_MAX]; /* [from][to] the largest message */
} Traffic;

static KvInprocFate count_bytes(void *user, int from, int to, int is_record, const void *bytes, size_t byte_count, uint64_t *delay_ns)
{
    Traffic *traffic = user;
    (void)is_record, (void)bytes, (void)delay_ns;
    if (byte_count > traffic->to[from][to]) traffic->to[from][to] = byte_count;
    return KVG_INPROC_DELIVER;
}

START_TEST(test_each_stage_sends_its_own_slots_once)
{
    Taps    taps;
    Traffic traffic = {0};
    taps_open(&taps, 2, 3, ROWS, KVG_F32, 0); /* layers [0,2) [2,4) [4,8): slots 1, 1, 2 */
    walk(&taps, 0, 30, 4);
    kvg_inproc_set_filter(taps.g.hub, count_bytes, &traffic);
    ck_assert_int_eq(gather(&taps, 30, NULL), KVG_OK);
    for (int from = 0; from < 6; from++) {
        for (int to = 0; to < 6; to++) {
            if (from == to) continue;
            if ((from == 0 || from == 2) && to >= 4) ck_assert_uint_eq(traffic.to[from][to], 24 + 30 * HIDDEN * 4);
            else ck_assert_uint_lt(traffic.to[from][to], 200);
        }
    }
    kvg_inproc_set_filter(taps.g.hub, NULL, NULL);
    taps_close(&taps);
}
END_TEST

/* ---- refusals */

static void expect_refusal(Taps *taps, uint64_t rows, KvgStatus own, int who)
{
    KvgStatus each[TEST_RANKS_MAX];
    size_t    bytes = (size_t)ROWS * TAPS * HIDDEN * 4;
    uint8_t  *before = NULL;
    void     *memory = NULL;
    ck_assert_int_eq(kvg_calloc((size_t)taps->g.ranks, bytes, "a test", &memory), KVG_OK);
    before = memory;
    for (int r = 0; r < taps->g.ranks; r++) memcpy(before + (size_t)r * bytes, kvg_dflash_tap_buffer(taps->sink[r]), bytes);
    gather(taps, rows, each);
    for (int r = 0; r < taps->g.ranks; r++) {
        ck_assert_int_eq(each[r], who < 0 || r == who ? own : KVG_EREFUSED);
        ck_assert_mem_eq(before + (size_t)r * bytes, kvg_dflash_tap_buffer(taps->sink[r]), bytes);
    }
    kvg_free(before);
}

START_TEST(test_a_refusal_is_told_to_every_rank_and_moves_nothing)
{
    Taps taps;
    taps_open(&taps, 2, 2, ROWS, KVG_F32, 0);
    expect_refusal(&taps, 0, KVG_ESTALE, -1); /* never armed */
    for (int who = 0; who < taps.g.ranks; who++) {
        walk(&taps, 2, 6, 4);
        kvg_dflash_tap_drop(taps.sink[who]); /* as a tainted cache does */
        expect_refusal(&taps, 6, KVG_ESTALE, who);
        ck_assert_ptr_nonnull(strstr(kvg_last_error(), who == 3 ? "dropped" : "answers ESTALE"));
        walk(&taps, 2, 6, 4);
        ck_assert_int_eq(kvg_dflash_tap_arm(taps.sink[who], 2), KVG_OK); /* rows 0..4 alone are written again */
        for (uint64_t row = 0; row < 5; row++) {
            for (uint32_t il = 0; il < LAYERS; il++) write_row(taps.sink[who], il, row, 2 + row, 4);
        }
        expect_refusal(&taps, 6, KVG_ESTALE, who);
        ck_assert_int_eq(gather(&taps, 5, NULL), KVG_OK);
        walk(&taps, 2, 6, 4);
        ck_assert_int_eq(kvg_dflash_tap_arm(taps.sink[who], 3), KVG_OK); /* another base */
        for (uint64_t row = 0; row < 6; row++) {
            for (uint32_t il = 0; il < LAYERS; il++) write_row(taps.sink[who], il, row, 3 + row, 4);
        }
        expect_refusal(&taps, 6, KVG_ELAYOUT, -1);
        ck_assert_ptr_nonnull(strstr(kvg_last_error(), "base row"));
    }
    walk(&taps, ROWS - 2, 2, 4);
    expect_refusal(&taps, 3, KVG_EINVAL, -1);
    expect_refusal(&taps, UINT64_MAX, KVG_EINVAL, -1);
    ck_assert_int_eq(gather(&taps, 2, NULL), KVG_OK);
    check_whole(&taps, ROWS - 2, 2, 4);
    taps_close(&taps);
}
END_TEST

static void replace_sink(Taps *taps, int r, const uint32_t *tapped, uint32_t lo, uint32_t hi, uint32_t hidden, uint64_t rows, KvFormat dtype)
{
    uint8_t source[HIDDEN * 4 * 2] = {0};
    kvg_dflash_tap_free(taps->sink[r]);
    ck_assert_int_eq(kvg_dflash_tap_new(&taps->device, tapped, TAPS, lo, hi, hidden, rows, dtype, &taps->sink[r]), KVG_OK);
    ck_assert_int_eq(kvg_dflash_tap_arm(taps->sink[r], 0), KVG_OK);
    for (uint32_t il = 0; il < LAYERS; il++) {
        for (uint64_t row = 0; row < 6; row++) ck_assert_int_eq(kvg_dflash_tap_write(taps->sink[r], il, row, 1, source, 0, NULL), KVG_OK);
    }
}

START_TEST(test_sinks_that_differ_are_named)
{
    static const uint32_t other[] = {0, 2, 4, 7};
    static const struct { const uint32_t *tapped; uint32_t lo, hi, hidden; uint64_t rows; KvFormat dtype; const char *name; } cases[] = {
        {other, 0, 4, HIDDEN, ROWS, KVG_F32, "tapped layers"},
        {layers, 0, 4, HIDDEN + 1, ROWS, KVG_F32, "hidden size"},
        {layers, 0, 4, HIDDEN, ROWS + 1, KVG_F32, "(t)"},
        {layers, 0, 4, HIDDEN, ROWS, KVG_BF16, "type of hidden states"},
        {layers, 0, 3, HIDDEN, ROWS, KVG_F32, "layer 3 is tapped and 0 stages own it"},
        {layers, 0, 5, HIDDEN, ROWS, KVG_F32, "layer 4 is tapped and 2 stages own it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Taps      taps;
        KvgStatus each[TEST_RANKS_MAX];
        taps_open(&taps, 1, 2, ROWS, KVG_F32, 0);
        walk(&taps, 0, 6, 4);
        replace_sink(&taps, 0, cases[i].tapped, cases[i].lo, cases[i].hi, cases[i].hidden, cases[i].rows, cases[i].dtype);
        gather(&taps, 6, each);
        ck_assert_int_eq(each[0], KVG_ELAYOUT);
        ck_assert_int_eq(each[1], KVG_ELAYOUT);
        ck_assert_msg(strstr(kvg_last_error(), cases[i].name) != NULL, "%s", kvg_last_error());
        ck_assert(!kvg_dflash_tap_written(taps.sink[1], 0, 0));
        taps_close(&taps);
    }
}
END_TEST

START_TEST(test_ranks_of_one_stage_that_name_other_layers_are_named)
{
    Taps      taps;
    KvgStatus each[TEST_RANKS_MAX];
    taps_open(&taps, 2, 2, ROWS, KVG_F32, 0);
    walk(&taps, 0, 6, 4);
    replace_sink(&taps, 1, layers, 0, 3, HIDDEN, ROWS, KVG_F32);
    gather(&taps, 6, each);
    for (int r = 0; r < 4; r++) ck_assert_int_eq(each[r], KVG_ELAYOUT);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "rank 0 and rank 1 are of one stage"));
    taps_close(&taps);
}
END_TEST

START_TEST(test_missing_arguments_are_refused)
{
    Taps      taps;
    KvgSetup *setup = NULL;
    taps_open(&taps, 1, 1, ROWS, KVG_F32, 0);
    ck_assert_int_eq(kvg_taps_gather(NULL, taps.sink[0], 1, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_taps_gather(taps.g.grid[0], NULL, 1, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_taps_gather_start(taps.g.grid[0], taps.sink[0], 1, NULL, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_hc_taps_gather_start(taps.g.grid[0], NULL, 1, &setup), KVG_EINVAL);
    ck_assert_int_eq(kvg_taps_gather(taps.g.grid[0], taps.sink[0], 1, NULL), KVG_ESTALE);
    walk(&taps, 0, 1, 4);
    ck_assert_int_eq(kvg_taps_gather(taps.g.grid[0], taps.sink[0], 1, NULL), KVG_OK);
    hc_walk(&taps, 500, 1, 1);
    ck_assert_int_eq(kvg_hc_taps_gather(taps.g.grid[0], taps.hc[0], 1), KVG_OK);
    taps_close(&taps);
}
END_TEST

START_TEST(test_a_lost_rank_ends_the_gather_and_leaves_no_row_counted)
{
    Taps      taps;
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    KvgStatus each[TEST_RANKS_MAX] = {0};
    taps_open(&taps, 1, 3, ROWS, KVG_F32, 0);
    walk(&taps, 0, 6, 4);
    for (int r = 1; r < 3; r++) ck_assert_int_eq(kvg_taps_gather_start(taps.g.grid[r], taps.sink[r], 6, NULL, &setups[r]), KVG_OK);
    kvg_inproc_kill(taps.g.hub, 0);
    grid_finish(&taps.g, setups, each);
    ck_assert_int_eq(each[1], KVG_EPEER);
    ck_assert_int_eq(each[2], KVG_EPEER);
    ck_assert(!kvg_dflash_tap_written(taps.sink[2], 0, 0));
    ck_assert(kvg_dflash_tap_written(taps.sink[2], 0, 3));
    taps_close(&taps);
}
END_TEST

/* Every allocation of every rank fails once: no row counts that is not there, and the next gather is whole. */
START_TEST(test_a_gather_unwinds_from_every_allocation_and_the_next_one_is_whole)
{
    uint64_t failures = 0;
    for (uint64_t nth = 0;; nth++) {
        Taps      taps;
        KvgSetup *setups[TEST_RANKS_MAX] = {0};
        KvgStatus each[TEST_RANKS_MAX] = {0};
        int       failed = 0;
        taps_open(&taps, 2, 2, ROWS, KVG_F32, 50);
        walk(&taps, 0, 6, 4);
        kvg_fault_arm(nth);
        for (int r = 0; r < taps.g.ranks; r++) each[r] = kvg_taps_gather_start(taps.g.grid[r], taps.sink[r], 6, NULL, &setups[r]);
        KvgStatus started[TEST_RANKS_MAX];
        memcpy(started, each, sizeof started);
        grid_finish(&taps.g, setups, each);
        int hit = kvg_fault_disarm();
        for (int r = 0; r < taps.g.ranks; r++) {
            if (setups[r] == NULL) each[r] = started[r];
            failed += each[r] != KVG_OK;
            for (uint32_t slot = 0; slot < TAPS; slot++) {
                if (kvg_dflash_tap_written(taps.sink[r], 5, slot)) ck_assert(row_is(taps.sink[r], 5, slot, 5, 4));
                if (each[r] == KVG_OK && is_last(&taps, r)) ck_assert(kvg_dflash_tap_written(taps.sink[r], 5, slot));
            }
        }
        ck_assert(hit || failed == 0);
        failures += failed > 0; /* an exchange that has begun tries again: not every want of memory is a failure */
        ck_assert_msg(gather(&taps, 6, each) == KVG_OK, "after allocation %d: %s", (int)nth, kvg_last_error());
        check_whole(&taps, 0, 6, 4);
        taps_close(&taps);
        if (!hit) break;
    }
    ck_assert_uint_gt(failures, 10);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("taps_gather");
    TCase *tc = tcase_create("taps_gather");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, test_taps_end_whole_on_the_last_stage_of_every_grid, 0, GRIDS);
    tcase_add_loop_test(tc, test_host_rows_of_streams_end_whole_on_the_last_stage, 0, GRIDS);
    tcase_add_test(tc, test_many_rows_travel_in_pieces);
    tcase_add_test(tc, test_each_stage_sends_its_own_slots_once);
    tcase_add_test(tc, test_a_refusal_is_told_to_every_rank_and_moves_nothing);
    tcase_add_test(tc, test_sinks_that_differ_are_named);
    tcase_add_test(tc, test_ranks_of_one_stage_that_name_other_layers_are_named);
    tcase_add_test(tc, test_missing_arguments_are_refused);
    tcase_add_test(tc, test_a_lost_rank_ends_the_gather_and_leaves_no_row_counted);
    tcase_add_test(tc, test_a_gather_unwinds_from_every_allocation_and_the_next_one_is_whole);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);
    srunner_free(runner);
    return failed != 0;
}

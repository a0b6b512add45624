/* Section (i): formats of rows, on grids. */
#include <math.h>

#include "tests/cases/cases.h"

static const KvFormat all[] = {KVG_F32, KVG_F16, KVG_BF16, KVG_Q8_0, KVG_Q5_1, KVG_Q4_0, KVG_FP8};

static void options_for(KvgPlaceOptions *options, KvFormat format_k, KvFormat format_v)
{
    *options = case_options(1, 1 << 20);
    options->format_k = format_k;
    options->format_v = format_v;
}

/* 66 rows, read back as encoded: K and V differ (B163), in the formats that were asked for (B161). */
static void run(uint32_t tp, uint32_t pp, KvFormat format_k, KvFormat format_v, char hex[33])
{
    KvgPlaceOptions options;
    KvgSequence    *s[TEST_RANKS_MAX][8];
    TestGrid        g;
    char            text[512];

    options_for(&options, format_k, format_v);
    case_heads_text(text, 2, 4, 4);
    case_open(&g, tp, pp, text, &options, NULL, 1);
    case_open_sequence(&g, s, 0, 9);
    case_grow(&g, s, 0, 66);
    for (int r = 0; r < g.ranks; r++) {
        uint32_t lo, hi;
        kvg_placement_layers(g.placement[r], &lo, &hi);
        const KvPlaneView *view = kvg_placement_view(g.placement[r], lo);
        ck_assert_int_eq(view->k.format, format_k);
        ck_assert_int_eq(view->v.format, format_v);
        for (uint32_t which = 0; which < 2; which++) {
            float   wanted[32], row[4 * 32];
            uint8_t bytes[32 * 4];
            for (uint32_t e = 0; e < 32; e++) wanted[e] = test_value(9, lo, which, view->head_first, 65, e);
            kvg_encode_f32_ref(which ? format_v : format_k, wanted, 32, bytes, NULL);
            kvg_decode_f32(which ? format_v : format_k, bytes, 32, wanted);
            ck_assert_int_eq(kvg_sequence_read(s[r][0], lo, which, 65, 1, row), KVG_OK);
            ck_assert_mem_eq(row, wanted, sizeof wanted);
        }
    }
    grid_digest(&g, s, 0, hex);
    grid_close(&g);
}

/* B161, B163, B165: every pair of formats works on every grid with one digest, or is refused when it is placed, on all ranks, listing
 * what is legal; none is replaced by another. */
START_TEST(test_every_pair_of_formats_works_on_every_grid_or_is_refused_at_once)
{
    int works = 0;

    for (int k = 0; k < COUNT(all); k++) {
        for (int v = 0; v < COUNT(all); v++) {
            char one[33], split[33];
            if (kvg_format_legal_k(all[k]) && kvg_format_legal_v(all[v])) {
                run(1, 1, all[k], all[v], one);
                run(2, 1, all[k], all[v], split);
                ck_assert_str_eq(split, one);
                run(4, 2, all[k], all[v], split);
                ck_assert_str_eq(split, one);
                works++;
                continue;
            }
            KvgPlaceOptions options;
            KvgStatus       each[2] = {KVG_OK, KVG_OK};
            TestGrid        g;
            options_for(&options, all[k], all[v]);
            grid_connect(&g, 2, 1, NULL, 0);
            g.config = test_model(2, 4, 0, 2048);
            ck_assert_int_eq(grid_place(&g, &g.config, &options, each), KVG_EINVAL);
            ck_assert_ptr_nonnull(strstr(kvg_last_error(), "q8_0"));
            ck_assert_int_eq(each[1], KVG_EINVAL);
            ck_assert_ptr_null(g.placement[0]);
            ck_assert_ptr_null(g.placement[1]);
            grid_close(&g);
        }
    }
    ck_assert_int_eq(works, 5 * 6);
}
END_TEST

static float loud_k[32 * 4], loud_v[32 * 4];

/* B162, B167: what is beyond a format's range and what is no number is counted, by layer and by rank, and stored as the range's end
 * and as 0; rows beside it are as they would be without. */
START_TEST(test_elements_out_of_range_are_counted_where_they_are_written)
{
    KvgPlaceOptions options;
    KvgSequence    *s[TEST_RANKS_MAX][8];
    KvEncodeCounts  counts;
    KvgStats        stats = {.size = sizeof stats};
    TestGrid        g;
    KvgStep        *step;
    uint32_t        rows = 1;
    float           read[32 * 4];
    char            text[512];

    options_for(&options, KVG_FP8, KVG_FP8);
    case_heads_text(text, 2, 4, 4);
    case_open(&g, 1, 1, text, &options, NULL, 1);
    case_open_sequence(&g, s, 0, 9);
    case_grow(&g, s, 0, 5);
    ck_assert_int_eq(kvg_batch_set(g.batch[0], 0, s[0][0]), KVG_OK);
    ck_assert_int_eq(kvg_step_begin(g.batch[0], &rows, &step), KVG_OK);
    for (uint32_t il = 0; il < 2; il++) {
        KvgRows in = KVG_ROWS_INIT;
        for (int e = 0; e < 128; e++) loud_k[e] = loud_v[e] = 1.0f;
        if (il == 1) {
            loud_k[3] = 3000.0f;
            loud_k[4] = -449.0f;
            loud_k[5] = 448.0f;
            loud_k[6] = NAN;
            loud_v[127] = -INFINITY;
        }
        in.k = loud_k;
        in.v = loud_v;
        ck_assert_int_eq(kvg_write_kv(g.batch[0], il, &in, NULL), KVG_OK);
    }
    grid_post(&g, 0, step, &rows, KVG_OK);
    ck_assert_int_eq(grid_decide(&g, &step, NULL), KVG_OK);
    ck_assert_int_eq(kvg_layer_counts(g.placement[0], 0, &counts), KVG_OK);
    ck_assert(counts.nonfinite == 0 && counts.saturated == 0);
    ck_assert_int_eq(kvg_layer_counts(g.placement[0], 1, &counts), KVG_OK);
    ck_assert_uint_eq(counts.nonfinite, 2);
    ck_assert_uint_eq(counts.saturated, 2);
    ck_assert_int_eq(kvg_stats(g.placement[0], &stats), KVG_OK);
    ck_assert_uint_eq(stats.nonfinite, 2);
    ck_assert_uint_eq(stats.saturated, 2);
    ck_assert_int_eq(kvg_sequence_read(s[0][0], 1, 0, 5, 1, read), KVG_OK);
    static const float wanted[8] = {1, 1, 1, 448, -448, 448, 0, 1};
    ck_assert_mem_eq(read, wanted, sizeof wanted);
    ck_assert_int_eq(kvg_sequence_read(s[0][0], 1, 1, 5, 1, read), KVG_OK);
    ck_assert(read[127] == -448.0f && read[126] == 1.0f);
    grid_close(&g);
}
END_TEST

int main(void)
{
    const TTest *tests[] = {
        test_every_pair_of_formats_works_on_every_grid_or_is_refused_at_once,
        test_elements_out_of_range_are_counted_where_they_are_written,
    };
    return case_main("formats", tests, COUNT(tests));
}

/* Section (j): what grids book, grow and give back. */
#include "tests/cases/cases.h"

static TestGrid     grid;
static KvgSequence *sequences[TEST_RANKS_MAX][8];

/* A model of context 4096 on 2x2 ranks with `units` units of 64 rows. */
static void open_units(uint32_t units)
{
    KvgPlaceOptions options = case_options(2, (uint64_t)units * 64 * 2 * (34 + 24) * 2);
    char            text[512] = "{\"model_type\":\"llama\",\"hidden_size\":128,\"num_attention_heads\":4,\"num_key_value_heads\":4,"
                                "\"head_dim\":32,\"num_hidden_layers\":4,\"vocab_size\":100,\"max_position_embeddings\":4096}";

    case_open(&grid, 2, 2, text, &options, NULL, 1);
}

static uint32_t units_free(int rank)
{
    KvgLedger ledger;

    kvg_placement_ledger(grid.placement[rank], &ledger);
    return ledger.units_free[0];
}

/* The refusal of a step of `rows` rows of sequence 0, the same on every rank; what was granted is rolled back. */
static KvgStatus refusal(uint32_t rows)
{
    KvgStep  *steps[TEST_RANKS_MAX];
    KvgStatus first = KVG_OK;
    uint32_t  none = 0;

    for (int r = 0; r < grid.ranks; r++) {
        ck_assert_int_eq(kvg_batch_set(grid.batch[r], 0, sequences[r][0]), KVG_OK);
        ck_assert_int_eq(kvg_step_begin(grid.batch[r], &rows, &steps[r]), KVG_OK);
        KvgStatus status = kvg_step_refusal(steps[r], 0);
        if (r == 0) first = status;
        ck_assert_int_eq(status, first);
        ck_assert_uint_eq(kvg_step_rows(steps[r])[0], status == KVG_OK ? rows : 0);
        grid_post(&grid, r, steps[r], &none, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&grid, steps, NULL), KVG_OK);
    return first;
}

/* B169, B172, B176: three units are needed and two are free: nothing is taken, on any rank. A sequence of 10 rows takes 54 more
 * without a unit and 55 with one; asked twice, booked once. */
START_TEST(test_units_are_taken_all_or_none_and_once_on_every_rank)
{
    uint32_t units;

    open_units(32);
    units = units_free(0);
    ck_assert(units > 6 && units < 64); /* the pool ends before the context does */
    case_open_sequence(&grid, sequences, 0, 1);
    case_grow(&grid, sequences, 0, 10);
    for (int r = 0; r < 4; r++) {
        ck_assert_uint_eq(units_free(r), units - 1);
        ck_assert_int_eq(kvg_sequence_book(sequences[r][0], 64), KVG_OK);
        ck_assert_uint_eq(units_free(r), units - 1);
        for (int twice = 0; twice < 2; twice++) ck_assert_int_eq(kvg_sequence_book(sequences[r][0], 65), KVG_OK);
        ck_assert_uint_eq(units_free(r), units - 2);
        ck_assert_int_eq(kvg_sequence_book(sequences[r][0], (units - 2) * 64), KVG_OK);
        ck_assert_uint_eq(units_free(r), 2);
    }
    for (int r = 0; r < 4; r++) {
        sequences[r][1] = NULL;
        ck_assert_int_eq(kvg_sequence_open(grid.placement[r], 2, 129, &sequences[r][1]), KVG_ECAPACITY);
        ck_assert_ptr_null(sequences[r][1]);
        ck_assert_uint_eq(units_free(r), 2);
    }
    for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_sequence_open(grid.placement[r], 2, 128, &sequences[r][1]), KVG_OK);
    for (int r = 0; r < 4; r++) ck_assert_uint_eq(units_free(r), 0);
    for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_sequence_close(sequences[r][1], NULL), KVG_OK);
    for (int r = 0; r < 4; r++) ck_assert_uint_eq(units_free(r), 2);
    grid_close(&grid);
}
END_TEST

/* B174, B175: at 4092 of 4096 rows a step of 4 is the longest; a table has an entry for each chunk of the context, and no step
 * reaches past it. */
START_TEST(test_no_step_reaches_past_the_context_or_the_table)
{
    open_units(200);
    case_open_sequence(&grid, sequences, 0, 1);
    for (int r = 0; r < 4; r++) ck_assert_uint_ge(kvg_placement_view(grid.placement[r], (uint32_t)(r / 2) * 2)->table_stride, 4096 / 64);
    case_grow(&grid, sequences, 0, 4092);
    for (uint32_t rows = 1; rows <= 8; rows++) ck_assert_int_eq(refusal(rows), rows <= 4 ? KVG_OK : KVG_ECAPACITY);
    case_grow(&grid, sequences, 0, 4096);
    ck_assert_int_eq(refusal(1), KVG_ECAPACITY);
    for (int r = 0; r < 4; r++) {
        ck_assert_int_eq(kvg_sequence_book(sequences[r][0], 4096), KVG_OK);
        ck_assert_int_eq(kvg_sequence_book(sequences[r][0], 4097), KVG_ECAPACITY);
    }
    grid_close(&grid);
}
END_TEST

int main(void)
{
    const TTest *tests[] = {
        test_units_are_taken_all_or_none_and_once_on_every_rank,
        test_no_step_reaches_past_the_context_or_the_table,
    };
    return case_main("bookkeeping", tests, COUNT(tests));
}

/* Section (g), B128: numbers that come from the wire are held against what is here before anything is done by them. */
#include "tests/cases/cases.h"

#include "pp/internal.h"

enum { SPEAKER = 2, STAGED = 5 }; /* the lowest rank of the last stage: whose counts are taken */

static TestGrid     grid;
static KvgSequence *sequences[TEST_RANKS_MAX][8];

/* What becomes of the speaker's next record, where it stands and so for every rank alike. */
static struct {
    KvComm   inner;
    uint32_t count;
    uint16_t accepted;
    int      armed;
} wire;

static KvCommOps wire_ops;

static KvgStatus wire_post(void *self, const void *record)
{
    KvVoteRecord *own = (KvVoteRecord *)record;

    if (wire.armed) {
        own->count = wire.count;
        own->accepted_rows[0] = wire.accepted;
        wire.armed = 0;
    }
    return wire.inner.ops->post(self, record);
}

static void open_grid(void)
{
    KvgPlaceOptions options = case_options(2, 1 << 22);
    char            text[512];

    case_heads_text(text, 4, 4, 4);
    case_open(&grid, 2, 2, text, &options, NULL, 2);
    wire.inner = grid.grid[SPEAKER]->comm;
    wire_ops = *wire.inner.ops;
    wire_ops.post = wire_post;
    grid.grid[SPEAKER]->comm.ops = &wire_ops;
    case_open_sequence(&grid, sequences, 0, 1);
}

static KvgStatus step_with(uint32_t count, uint16_t accepted)
{
    const uint32_t rows[2] = { STAGED, 0 };

    wire.count = count;
    wire.accepted = accepted;
    wire.armed = 1;
    return grid_step(&grid, sequences, rows, 1, NULL, -1);
}

static uint64_t committed(int rank)
{
    KvgSequenceInfo info = { .size = sizeof info };

    ck_assert_int_eq(kvg_sequence_info(sequences[rank][0], &info), KVG_OK);
    return info.rows;
}

/* Digests agree in every record, and the counts beside them do not belong to the step: rolled back on every rank, by name, and the grid goes on.
 * A count up to what was staged, and "all", are taken. */
START_TEST(test_counts_from_the_wire_are_held_against_what_was_staged)
{
    static const struct { uint32_t count; uint16_t accepted; } bad[] = { { 1, STAGED + 1 }, { 1, 0xfffe }, { 0, STAGED }, { 2, STAGED },
                                                                       { UINT32_MAX, STAGED } };
    static const struct { uint16_t accepted; uint64_t rows; } good[] = { { 0xffff, 5 }, { STAGED, 5 }, { STAGED - 1, 4 }, { 0, 0 } };
    uint64_t rows = 0;

    open_grid();
    for (int i = 0; i < COUNT(bad); i++) {
        ck_assert_int_eq(step_with(bad[i].count, bad[i].accepted), KVG_ELAYOUT);
        ck_assert_msg(strstr(kvg_last_error(), "rank 2's record breaks the protocol") != NULL, "%s", kvg_last_error());
        for (int r = 0; r < grid.ranks; r++) {
            ck_assert_uint_eq(committed(r), rows);
            ck_assert_int_eq(kvg_grid_state(grid.grid[r]), KVG_OK);
        }
        ck_assert_int_eq(step_with(1, good[i % COUNT(good)].accepted), KVG_OK);
        rows += good[i % COUNT(good)].rows;
        for (int r = 0; r < grid.ranks; r++) ck_assert_uint_eq(committed(r), rows);
    }
    grid_close(&grid);
}
END_TEST

/* A vote for a change of memory that is no vote counts as no: nobody has resized. */
static KvgStatus cut_send(void *self, int peer, const void *bytes, size_t byte_count)
{
    return wire.inner.ops->send(self, peer, bytes, byte_count == sizeof(KvMessageHeader) + sizeof(uint64_t) ? byte_count - (size_t)wire.count : byte_count);
}

START_TEST(test_a_vote_that_is_cut_short_is_no_yes)
{
    for (uint32_t missing = 1; missing <= sizeof(uint64_t); missing++) {
        KvgSetup *setups[TEST_RANKS_MAX];
        KvgStatus each[TEST_RANKS_MAX];

        open_grid();
        wire_ops.send = cut_send;
        wire.count = missing;
        for (int r = 0; r < grid.ranks; r++) ck_assert_int_eq(kvg_placement_resize_start(grid.placement[r], 1 << 21, &setups[r]), KVG_OK);
        grid_finish(&grid, setups, each);
        for (int r = 0; r < grid.ranks; r++) {
            ck_assert_msg(r == SPEAKER || each[r] == KVG_EREFUSED, "rank %d, %u bytes missing: %s", r, missing, kvg_status_name(each[r]));
            ck_assert(r == SPEAKER || kvg_placement_plan(grid.placement[r])->ranks[0].state_bytes == 1 << 22);
        }
        grid_close(&grid);
    }
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("cases: the wire");
    TCase   *tests = tcase_create("wire");
    SRunner *runner = srunner_create(suite);

    tcase_add_test(tests, test_counts_from_the_wire_are_held_against_what_was_staged);
    tcase_add_test(tests, test_a_vote_that_is_cut_short_is_no_yes);
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);

    srunner_free(runner);
    return failed > 0 || run == 0;
}

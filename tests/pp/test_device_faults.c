/* A device that fails on one rank, at moments that are no vote: while tables are sent, in a booking, after a disagreement, in a settle. The call's answer is the
 * same on every rank, and what the device has torn is tainted on every rank by the next step. */
#include <kvgrid/dev.h>

#include "tests/support/grid_life.h"
#include "tests/support/indirect_dev.h"

enum { BROKEN = 1 }; /* the rank */

static TestGrid      g;
static LifeSequences s;
static KvDev         device, broken;
static KvDevOps      ops;
static int           failing; /* KVG_ENOMEM: of memory alone; else not 0: everything that is replaced below */

static KvgStatus failing_move(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    if (failing) return kvg_fail(KVG_EDEVICE, "the test's device moves nothing");
    return device.ops->move(self, target, source, bytes, stream);
}

static KvgStatus failing_extend(void *self, KvRange *range, size_t bytes)
{
    if (failing) return kvg_fail(failing == KVG_ENOMEM ? KVG_ENOMEM : KVG_EDEVICE, "the test's device extends nothing");
    return device.ops->extend(self, range, bytes);
}

static KvgStatus failing_patch(void *self, uint32_t *words, const KvPatch *pairs, uint32_t count, KvgStream stream)
{
    if (failing) return kvg_fail(KVG_EDEVICE, "the test's device takes no table");
    return device.ops->patch(self, words, pairs, count, stream);
}

/* `ranks` x 1 ranks of flat rings, of which one has the broken device; two sequences, with so many rows that the ring has moved. */
static void open_ranks(uint32_t ranks)
{
    KvgSetup       *setups[TEST_RANKS_MAX] = {0};
    KvgPolicy       policy = life_policy(1);
    KvgPlaceOptions options = life_options(2, 4u << 20);

    options.layout = KVG_LAYOUT_FLAT;
    options.prefill_chunk_max = 128;
    grid_connect(&g, ranks, 1, &policy, 0);
    g.config = test_model(4, 4, 64, 2048);
    ck_assert_int_eq(kvg_dev_host(&device), KVG_OK);
    ops = *device.ops;
    ops.move = failing_move;
    ops.extend = failing_extend;
    broken = (KvDev){&ops, device.self};
    failing = 0;
    for (int r = 0; r < g.ranks; r++) {
        options.device = r == BROKEN ? &broken : NULL;
        ck_assert_int_eq(kvg_place_start(g.grid[r], &g.config, &options, &g.placement[r], &setups[r]), KVG_OK);
    }
    ck_assert_msg(grid_finish(&g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < g.ranks; r++) ck_assert_int_eq(kvg_batch_create(g.placement[r], 2, &g.batch[r]), KVG_OK);
    for (uint32_t i = 0; i < 2; i++) ck_assert_int_eq(life_open(&g, s, i, i + 1, 0), KVG_OK);
    for (int n = 0; n < 4; n++) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){128, 1}, 2, NULL, -1), KVG_OK);
}

static void close_ranks(void)
{
    for (int r = 0; r < g.ranks; r++) {
        kvg_batch_destroy(g.batch[r]);
        kvg_placement_destroy(g.placement[r]);
        g.batch[r] = NULL;
        g.placement[r] = NULL;
    }
    kvg_dev_close(&device);
    grid_close(&g);
}

/* The next step of `ranks` finds the taint; the other sequence goes on. */
static void is_tainted_by_the_next_step(int ranks)
{
    ck_assert(life_info(s[BROKEN][0]).tainted && !life_info(s[0][0]).tainted);
    failing = 0;
    for (int turn = 0; turn < 2; turn++) {
        KvgStep *steps[TEST_RANKS_MAX];
        int      done[TEST_RANKS_MAX] = {0}, left = ranks;
        for (int r = 0; r < ranks; r++) {
            steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){1, 1}, 2, 0);
            grid_post(&g, r, steps[r], NULL, KVG_OK);
        }
        for (int rounds = 0; left > 0 && rounds < 100000; rounds++) {
            for (int r = 0; r < ranks; r++) {
                if (done[r]) continue;
                KvgStatus status = kvg_step_test(steps[r], &done[r], NULL);
                if (done[r]) ck_assert_int_eq(status, turn == 0 ? KVG_ETAINTED : KVG_OK);
                left -= done[r];
            }
            kvg_inproc_advance_ns(g.hub, 100000);
        }
        ck_assert_int_eq(left, 0);
    }
    for (int r = 0; r < ranks; r++) ck_assert(life_info(s[r][0]).tainted && !life_info(s[r][1]).tainted);
}

/* Posted calls have one answer: what one rank has not got is asked for again by the step that needs it, or told by it. */
START_TEST(test_a_booking_that_one_devices_memory_fails_answers_alike)
{
    open_ranks(2);
    failing = KVG_ENOMEM;
    ck_assert_int_eq(LIFE_ALL(&g, r, kvg_sequence_book(s[r][1], 1500)), KVG_OK);
    ck_assert(!life_info(s[BROKEN][1]).tainted);
    failing = 0;
    for (int n = 0; n < 2; n++) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 120}, 2, NULL, -1), KVG_OK);
    close_ranks();
    open_ranks(2);
    failing = 1;
    ck_assert_int_eq(LIFE_ALL(&g, r, kvg_sequence_book(s[r][0], 1500)), KVG_OK);
    is_tainted_by_the_next_step(2);
    close_ranks();
}
END_TEST

START_TEST(test_rows_torn_while_unlike_rings_are_made_alike_are_tainted)
{
    KvgStep *steps[2];

    open_ranks(2);
    for (int r = 0; r < 2; r++) {
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){r == 0 ? 128 : 127, 1}, 2, 0);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    failing = 1;
    ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_ELAYOUT);
    is_tainted_by_the_next_step(2);
    close_ranks();
}
END_TEST

START_TEST(test_rows_torn_in_a_settle_are_tainted)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    KvgStep  *steps[2];
    KvgStatus each[TEST_RANKS_MAX];

    open_ranks(4);
    for (int r = 0; r < 2; r++) {
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){128, 1}, 2, 0);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    for (int r = 2; r < 4; r++) kvg_inproc_kill(g.hub, r);
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_step_wait(steps[r], NULL), KVG_EINDOUBT);
    failing = 1;
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_grid_settle_start(g.grid[r], (int[]){0, 1}, 2, &setups[r]), KVG_OK);
    ck_assert_int_eq(grid_finish(&g, setups, each), KVG_OK);
    ck_assert_int_eq(each[BROKEN], KVG_OK);
    ck_assert(life_info(s[BROKEN][0]).tainted && !life_info(s[0][0]).tainted); /* told by its next vote, in a rebuilt grid */
    close_ranks();
}
END_TEST

/* A device that the host cannot touch gets tables by a call: while that fails, each step has this rank's "no". */
START_TEST(test_tables_that_cannot_be_sent_are_a_no)
{
    KvgSetup       *setups[TEST_RANKS_MAX] = {0};
    KvgPolicy       policy = life_policy(0);
    KvgPlaceOptions options = life_options(2, 4u << 20);
    KvgStep        *steps[2];
    KvgOutcome      outcomes[2];
    KvgRows         rows = KVG_ROWS_INIT;
    static float    given[64];

    grid_connect(&g, 2, 1, &policy, 0);
    g.config = test_model(2, 2, 0, 2048);
    ck_assert_int_eq(indirect_dev_open(1, &device), KVG_OK);
    ops = *device.ops;
    ops.patch = failing_patch;
    broken = (KvDev){&ops, device.self};
    failing = 0;
    for (int r = 0; r < 2; r++) {
        options.device = r == BROKEN ? &broken : NULL;
        ck_assert_int_eq(kvg_place_start(g.grid[r], &g.config, &options, &g.placement[r], &setups[r]), KVG_OK);
    }
    ck_assert_msg(grid_finish(&g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_batch_create(g.placement[r], 1, &g.batch[r]), KVG_OK);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    rows.k = rows.v = given;
    ck_assert_int_eq(kvg_write_kv(g.batch[BROKEN], 0, &rows, NULL), KVG_ESTALE); /* no step of it is begun */
    failing = 1;
    ck_assert_int_eq(kvg_placement_flush(g.placement[BROKEN], NULL), KVG_EDEVICE);
    ck_assert_int_eq(kvg_placement_flush(g.placement[0], NULL), KVG_OK); /* a host's: nothing is to be sent */
    for (int turn = 0; turn < 2; turn++) {
        for (int r = 0; r < 2; r++) {
            steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){3}, 1, 0); /* writes do nothing on the broken rank */
            ck_assert_int_eq(kvg_step_local(steps[r]), r == BROKEN ? KVG_EDEVICE : KVG_OK);
            grid_post(&g, r, steps[r], NULL, KVG_OK);
        }
        ck_assert_int_eq(grid_decide(&g, steps, outcomes), KVG_EREFUSED);
        for (int r = 0; r < 2; r++) {
            ck_assert_int_eq(outcomes[r].rank, BROKEN);
            ck_assert_int_eq(outcomes[r].reason, KVG_EDEVICE);
            ck_assert_uint_eq(life_info(s[r][0]).rows, 0);
        }
    }
    close_ranks();
}
END_TEST

LIFE_MAIN("device_faults", test_a_booking_that_one_devices_memory_fails_answers_alike, test_rows_torn_while_unlike_rings_are_made_alike_are_tainted,
          test_rows_torn_in_a_settle_are_tainted, test_tables_that_cannot_be_sent_are_a_no)

/* Taint: what one rank found not provably intact is tainted on every rank, and nothing but close serves it again. */
#include "tests/support/grid_life.h"

#include <kvgrid/dev.h>

static void open_grid(TestGrid *g, LifeSequences s)
{
    KvgPlaceOptions options = life_options(4, 4u << 20);
    KvgPolicy       policy = life_policy(1);
    grid_open(g, 2, 2, (uint32_t[]){4, 4, 64}, &options, &policy, 3);
    for (uint32_t i = 0; i < 3; i++) ck_assert_int_eq(life_open(g, s, i, i + 1, 0), KVG_OK);
    ck_assert_int_eq(grid_step(g, s, (uint32_t[]){10, 20, 30}, 3, NULL, -1), KVG_OK);
}

START_TEST(test_one_rank_taints_for_all_and_the_rest_goes_on)
{
    for (int tainter = 0; tainter < 4; tainter++) {
        TestGrid      g;
        LifeSequences s;
        KvgStep      *steps[TEST_RANKS_MAX];
        KvgOutcome    outcomes[TEST_RANKS_MAX];
        char          before[33], after[33];
        open_grid(&g, s);
        grid_digest(&g, s, 0, before);
        ck_assert_int_eq(kvg_sequence_taint(s[tainter][1]), KVG_OK);
        ck_assert(life_info(s[tainter][1]).tainted);
        for (int r = 0; r < 4; r++) {
            steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){5, 5, 5}, 3, 0);
            grid_post(&g, r, steps[r], NULL, KVG_OK);
        }
        ck_assert_int_eq(grid_decide(&g, steps, outcomes), KVG_ETAINTED);
        for (int r = 0; r < 4; r++) {
            ck_assert_int_eq(outcomes[r].kind, KVG_OUTCOME_TAINTED);
            ck_assert_int_eq(outcomes[r].rank, tainter);
            ck_assert_uint_eq(outcomes[r].accepted[0], 0);
            ck_assert(!life_info(s[r][0]).tainted);
            ck_assert(life_info(s[r][1]).tainted);
            ck_assert(!life_info(s[r][2]).tainted);
        }
        grid_digest(&g, s, 0, after);
        ck_assert_str_eq(before, after);
        for (int r = 0; r < 4; r++) {
            steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){5, 0, 5}, 3, 0);
            grid_post(&g, r, steps[r], NULL, KVG_OK);
        }
        ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_OK);
        ck_assert_uint_eq(life_info(s[0][0]).rows, 15);
        grid_close(&g);
    }
}
END_TEST

START_TEST(test_every_later_use_is_tainted_but_close)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    KvgSequence  *fork;
    KvgSnapshot  *snapshot[TEST_RANKS_MAX], *more;
    KvgSetup     *setup;
    KvDigest      digest;
    float         row[4 * 32];
    open_grid(&g, s);
    for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_sequence_snapshot(s[r][1], &snapshot[r]), KVG_OK);
    ck_assert_int_eq(kvg_sequence_taint(s[2][1]), KVG_OK);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 1, 1}, 3, NULL, -1), KVG_ETAINTED);
    ck_assert_int_eq(LIFE_ALL(&g, r, kvg_sequence_book(s[r][1], 64)), KVG_ETAINTED);
    ck_assert_int_eq(LIFE_ALL(&g, r, kvg_sequence_rewind(s[r][1], 0)), KVG_ETAINTED);
    ck_assert_int_eq(LIFE_ALL(&g, r, kvg_sequence_trim(s[r][1])), KVG_ETAINTED);
    ck_assert_int_eq(LIFE_ALL(&g, r, kvg_sequence_fork(s[r][1], 0, 77, &fork)), KVG_ETAINTED);
    ck_assert_int_eq(LIFE_ALL(&g, r, kvg_sequence_snapshot(s[r][1], &more)), KVG_ETAINTED);
    ck_assert_int_eq(LIFE_ALL(&g, r, kvg_sequence_rollback(s[r][1], snapshot[r], 0)), KVG_ETAINTED);
    ck_assert_int_eq(LIFE_ALL(&g, r, kvg_sequence_digest_start(s[r][1], &digest, &setup)), KVG_ETAINTED);
    for (int r = 0; r < 4; r++) {
        uint32_t lo, hi;
        kvg_placement_layers(g.placement[r], &lo, &hi);
        ck_assert(!kvg_sequence_can_rollback(s[r][1], snapshot[r], 0));
        ck_assert_int_eq(kvg_sequence_read(s[r][1], lo, 0, 0, 1, row), KVG_ETAINTED);
        ck_assert_ptr_null(kvg_sequence_row(s[r][1], lo, 0, 0, 0));
        ck_assert_int_eq(kvg_step_begin(g.batch[r], (uint32_t[]){0, 1, 1}, &steps[r]), KVG_OK);
        ck_assert_int_eq(kvg_step_refusal(steps[r], 1), KVG_ETAINTED);
        ck_assert_int_eq(kvg_step_refusal(steps[r], 2), KVG_OK);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_OK);
    ck_assert_int_eq(life_close(&g, s, 1), KVG_OK);
    ck_assert_int_eq(life_open(&g, s, 1, 2, 0), KVG_OK); /* its slot starts a life without taint */
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 1, 1}, 3, NULL, -1), KVG_OK);
    for (int r = 0; r < 4; r++) kvg_snapshot_free(snapshot[r]);
    grid_close(&g);
}
END_TEST

START_TEST(test_taint_of_two_ranks_and_of_a_begun_step)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    open_grid(&g, s);
    ck_assert_int_eq(kvg_sequence_taint(s[3][0]), KVG_OK);
    ck_assert_int_eq(kvg_sequence_taint(s[1][2]), KVG_OK);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 1, 1}, 3, NULL, -1), KVG_ETAINTED); /* the lowest rank's */
    ck_assert(life_info(s[0][2]).tainted && !life_info(s[0][0]).tainted);
    ck_assert_int_eq(life_close(&g, s, 2), KVG_OK);
    ck_assert_int_eq(life_open(&g, s, 2, 3, 0), KVG_OK);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 1, 1}, 3, NULL, -1), KVG_ETAINTED); /* then the other's */
    for (int r = 0; r < 4; r++) ck_assert(life_info(s[r][0]).tainted && !life_info(s[r][1]).tainted && !life_info(s[r][2]).tainted);
    for (int r = 0; r < 4; r++) { /* found between begin and post: the same step carries it */
        steps[r] = grid_begin(&g, r, s[r] + 1, (uint32_t[]){1, 1, 0}, 2, 0);
        if (r == 2) ck_assert_int_eq(kvg_sequence_taint(s[r][1]), KVG_OK);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_ETAINTED);
    for (int r = 0; r < 4; r++) ck_assert(life_info(s[r][1]).tainted);
    grid_close(&g);
}
END_TEST

START_TEST(test_a_refusal_taints_nothing)
{
    TestGrid      g;
    LifeSequences s;
    open_grid(&g, s);
    for (int refuser = 0; refuser < 4; refuser++) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 1, 1}, 3, NULL, refuser), KVG_EREFUSED);
    for (int r = 0; r < 4; r++) ck_assert(!life_info(s[r][0]).tainted);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 1, 1}, 3, NULL, -1), KVG_OK);
    grid_close(&g);
}
END_TEST

/* ---- a device whose moves fail part-way, on one rank */

static KvDevOps failing_ops;
static int      moves_left = -1; /* -1: none fails */
static KvgStatus (*real_move)(void *, void *, const void *, size_t, KvgStream);

static KvgStatus failing_move(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    if (moves_left == 0) return KVG_EDEVICE;
    if (moves_left > 0) moves_left--;
    return real_move(self, target, source, bytes, stream);
}

START_TEST(test_a_torn_move_on_one_rank_taints_on_all)
{
    for (int at = 0; at <= 1; at++) { /* in the first pass, in a later one */
        TestGrid        g;
        LifeSequences   s;
        KvDev           device;
        KvgSetup       *setups[TEST_RANKS_MAX] = {0};
        KvgStep        *steps[TEST_RANKS_MAX];
        KvgPolicy       policy = life_policy(1);
        KvgPlaceOptions options = life_options(2, 4u << 20);
        options.layout = KVG_LAYOUT_FLAT;
        options.prefill_chunk_max = 128;
        grid_connect(&g, 2, 1, &policy, 0);
        g.config = test_model(4, 4, 64, 2048);
        ck_assert_int_eq(kvg_dev_host(&device), KVG_OK);
        failing_ops = *device.ops;
        real_move = failing_ops.move;
        failing_ops.move = failing_move;
        KvDev broken = device;
        broken.ops = &failing_ops;
        moves_left = -1;
        for (int r = 0; r < 2; r++) {
            options.device = r == 1 ? &broken : NULL;
            ck_assert_int_eq(kvg_place_start(g.grid[r], &g.config, &options, &g.placement[r], &setups[r]), KVG_OK);
        }
        ck_assert_msg(grid_finish(&g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
        for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_batch_create(g.placement[r], 2, &g.batch[r]), KVG_OK);
        for (uint32_t i = 0; i < 2; i++) ck_assert_int_eq(life_open(&g, s, i, i + 1, 0), KVG_OK);
        for (int n = 0; n < 5; n++) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){128, 1}, 2, NULL, -1), KVG_OK);
        moves_left = 1; /* the ring of 735 rows is full at 640 + 128: the second plane's move fails */
        for (int r = 0; r < 2; r++) {
            ck_assert_int_eq(kvg_step_begin(g.batch[r], (uint32_t[]){at ? 64 : 128, 1}, &steps[r]), KVG_OK);
            if (at) ck_assert_int_eq(kvg_step_extend(steps[r], (uint32_t[]){64, 0}), KVG_OK);
            ck_assert_int_eq(kvg_step_refusal(steps[r], 0), KVG_OK);
            if (!at) ck_assert_int_eq(kvg_step_extend(steps[r], (uint32_t[]){0, 127}), KVG_OK);
            ck_assert_int_eq(kvg_step_refusal(steps[r], 1), KVG_OK);
        }
        life_agree(&g);
        for (int r = 0; r < 2; r++) grid_post(&g, r, steps[r], NULL, KVG_OK);
        ck_assert_int_eq(moves_left, 0);
        moves_left = -1;
        ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_ETAINTED);
        for (int r = 0; r < 2; r++) ck_assert(life_info(s[r][0]).tainted && !life_info(s[r][1]).tainted);
        life_agree(&g);
        ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 1}, 2, NULL, -1), KVG_OK); /* the same refusal on both */
        for (uint32_t q = 0; q < 2; q++) ck_assert_int_eq(life_close(&g, s, q), KVG_OK);
        ck_assert_uint_eq(life_stats(g.placement[1]).booked_bytes, 0);
        for (int r = 0; r < 2; r++) {
            kvg_batch_destroy(g.batch[r]);
            kvg_placement_destroy(g.placement[r]);
            g.batch[r] = NULL;
            g.placement[r] = NULL;
        }
        kvg_dev_close(&device);
        grid_close(&g);
    }
}
END_TEST

START_TEST(test_no_memory_on_one_rank_is_its_no_and_counts_go_on_alike)
{
    /* Flat planes are backed as they grow: pass by pass, the nth acquisition of rank 0 fails. */
    KvgPlaceOptions options = life_options(3, 4u << 20);
    KvgPolicy       policy = life_policy(1);
    TestGrid        g;
    LifeSequences   s;
    char            straight[33], after[33];
    int             refused = 0;
    options.layout = KVG_LAYOUT_FLAT;
    options.prefill_chunk_max = 256;
    grid_open(&g, 2, 1, (uint32_t[]){4, 4, 64}, &options, &policy, 2);
    for (uint32_t i = 0; i < 2; i++) ck_assert_int_eq(life_open(&g, s, i, i + 1, 0), KVG_OK);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){10, 10}, 2, NULL, -1), KVG_OK);
    grid_digest(&g, s, 0, straight);
    for (uint64_t nth = 0;; nth++) {
        KvgStep   *steps[TEST_RANKS_MAX];
        KvgOutcome outcomes[TEST_RANKS_MAX];
        int        hit = 0;
        for (int r = 0; r < 2; r++) {
            if (r == 0) kvg_fault_arm(nth);
            ck_assert_int_eq(kvg_step_begin(g.batch[r], (uint32_t[]){100, 70}, &steps[r]), KVG_OK);
            ck_assert_int_eq(kvg_step_extend(steps[r], (uint32_t[]){100, 30}), KVG_OK);
            if (r == 0) hit = kvg_fault_disarm();
            for (uint32_t q = 0; q < 2; q++) ck_assert_int_eq(kvg_step_refusal(steps[r], q), KVG_OK);
        }
        life_agree(&g);
        for (int r = 0; r < 2; r++) grid_post(&g, r, steps[r], (uint32_t[]){0, 0}, KVG_OK);
        KvgStatus status = grid_decide(&g, steps, outcomes);
        life_agree(&g);
        grid_digest(&g, s, 0, after);
        ck_assert_str_eq(straight, after);
        if (!hit) {
            ck_assert_int_eq(status, KVG_OK);
            break;
        }
        refused++;
        ck_assert_int_eq(status, KVG_EREFUSED);
        ck_assert_int_eq(outcomes[1].rank, 0);
        ck_assert_int_eq(outcomes[1].reason, KVG_ENOMEM);
        for (uint32_t q = 0; q < 2; q++) ck_assert_int_eq(LIFE_ALL(&g, r, kvg_sequence_trim(s[r][q])), KVG_OK); /* so that the next try takes it anew */
    }
    ck_assert_int_gt(refused, 8);
    grid_close(&g);
}
END_TEST

/* Flat planes of a fork that find no memory on one rank: the call answers alike on all, and the vote taints the child, not the grid. */
START_TEST(test_a_fork_without_memory_on_one_rank_taints_the_child_alone)
{
    TestGrid        g;
    LifeSequences   s;
    KvgPlaceOptions options = life_options(4, 4u << 20);
    KvgPolicy       policy = life_policy(1);
    KvgStep        *steps[TEST_RANKS_MAX];
    KvgOutcome      outcomes[TEST_RANKS_MAX];
    KvDigest        digest;
    KvgStatus       each[TEST_RANKS_MAX];
    KvgSetup       *setups[TEST_RANKS_MAX] = {0};
    char            before[33], after[33];
    options.layout = KVG_LAYOUT_FLAT;
    grid_open(&g, 2, 2, (uint32_t[]){4, 4, 64}, &options, &policy, 3);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    ck_assert_int_eq(life_grow(&g, s, 0, 100), KVG_OK);
    grid_digest(&g, s, 0, before);
    for (int r = 0; r < 4; r++) {
        if (r == 2) kvg_fault_arm(0);
        ck_assert_int_eq(kvg_sequence_fork(s[r][0], 80, 2, &s[r][1]), KVG_OK);
        if (r == 2) ck_assert_int_eq(kvg_fault_disarm(), 1);
    }
    life_agree(&g);
    ck_assert(life_info(s[2][1]).tainted && !life_info(s[1][1]).tainted);
    ck_assert_ptr_null(kvg_sequence_row(s[2][1], 2, 0, 0, 5)); /* nothing reads what is not there */
    for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_sequence_digest_start(s[r][1], &digest, &setups[r]), KVG_OK);
    grid_finish(&g, setups, each);
    for (int r = 0; r < 4; r++) ck_assert_int_eq(each[r], r == 2 ? KVG_ETAINTED : KVG_EREFUSED);
    ck_assert_int_eq(LIFE_ALL(&g, r, kvg_sequence_fork(s[r][1], 80, 3, &s[r][2])), KVG_OK); /* a fork of it has the same fault */
    ck_assert(life_info(s[2][2]).tainted);
    for (int r = 0; r < 4; r++) {
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){5, 5, 5}, 3, 0);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&g, steps, outcomes), KVG_ETAINTED);
    ck_assert_int_eq(outcomes[0].rank, 2);
    for (int r = 0; r < 4; r++) {
        ck_assert(!life_info(s[r][0]).tainted);
        ck_assert(life_info(s[r][1]).tainted && life_info(s[r][2]).tainted);
    }
    for (uint32_t q = 1; q < 3; q++) ck_assert_int_eq(life_close(&g, s, q), KVG_OK);
    grid_digest(&g, s, 0, after);
    ck_assert_str_eq(before, after);
    ck_assert_int_eq(life_grow(&g, s, 0, 10), KVG_OK);
    grid_close(&g);
}
END_TEST

LIFE_MAIN("taint", test_one_rank_taints_for_all_and_the_rest_goes_on, test_every_later_use_is_tainted_but_close,
          test_taint_of_two_ranks_and_of_a_begun_step, test_a_refusal_taints_nothing, test_a_torn_move_on_one_rank_taints_on_all,
          test_no_memory_on_one_rank_is_its_no_and_counts_go_on_alike,
          test_a_fork_without_memory_on_one_rank_taints_the_child_alone)

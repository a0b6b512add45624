/* Doubt at its edges: a grid that ends or settles while two ranks compare what went apart, changes that meet, a transport without memory to the deadline, and
 * a rank that is heard twice while another settles. */
#include "pp/internal.h"
#include "tests/support/grid_life.h"

#define SECOND_NS 1000000000ull

static TestGrid      g;
static LifeSequences s;

static void open_ranks(uint32_t ranks)
{
    KvgPlaceOptions options = life_options(3, 4u << 20);
    KvgPolicy       policy = life_policy(0);

    grid_open(&g, ranks, 1, (uint32_t[]){2, 4, 0}, &options, &policy, 1);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    ck_assert_int_eq(life_grow(&g, s, 0, 10), KVG_OK);
}

/* ---- while the running digests are compared */

/* Both ranks have posted other rows than the other; rank 0 knows, and waits for rank 1's word on what came before. */
static void part_and_compare(KvgStep *steps[2])
{
    int done = 0;

    open_ranks(2);
    for (int r = 0; r < 2; r++) {
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){r == 0 ? 3 : 2}, 1, 0);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    for (int n = 0; n < 5; n++) {
        kvg_inproc_advance_ns(g.hub, 100000);
        ck_assert_int_eq(kvg_step_test(steps[0], &done, NULL), KVG_OK);
        ck_assert_int_eq(done, 0);
    }
}

START_TEST(test_a_grid_may_end_while_it_compares)
{
    KvgStep *steps[2];

    part_and_compare(steps);
    grid_close(&g); /* asserts that nothing is left */
}
END_TEST

START_TEST(test_a_comparison_that_a_death_cuts_short_is_settled_back)
{
    KvgStep    *steps[2];
    KvgOutcome  outcome;
    KvgSetup   *setups[TEST_RANKS_MAX] = {0};
    int         done = 0;

    part_and_compare(steps);
    kvg_inproc_kill(g.hub, 1);
    ck_assert_int_eq(kvg_step_wait(steps[0], &outcome), KVG_EINDOUBT);
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], (int[]){0}, 1, &setups[0]), KVG_OK);
    ck_assert_int_eq(grid_finish(&g, setups, NULL), KVG_OK);
    ck_assert_int_eq(kvg_step_test(steps[0], &done, &outcome), KVG_ELAYOUT); /* as the vote said */
    ck_assert_int_eq(done, 1);
    ck_assert_int_eq(outcome.kind, KVG_OUTCOME_DISAGREE);
    ck_assert_uint_eq(life_info(s[0][0]).rows, 10);
    ck_assert_uint_eq(life_info(s[0][0]).rows_staged, 10);
    grid_close(&g);
}
END_TEST

START_TEST(test_a_comparison_that_a_settle_cuts_short_is_settled_back)
{
    KvgStep  *steps[2];
    KvgSetup *setups[TEST_RANKS_MAX] = {0};

    part_and_compare(steps);
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_grid_settle_start(g.grid[r], (int[]){0, 1}, 2, &setups[r]), KVG_OK);
    ck_assert_msg(grid_finish(&g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < 2; r++) {
        ck_assert_uint_eq(life_info(s[r][0]).rows, 10);
        ck_assert_uint_eq(life_info(s[r][0]).rows_staged, 10);
    }
    ck_assert_int_eq(life_grow(&g, s, 0, 1), KVG_OK);
    grid_close(&g);
}
END_TEST

/* ---- changes that meet */

START_TEST(test_a_change_waits_for_the_last_step)
{
    KvgStep  *steps[2];
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    int       done = 0;

    open_ranks(2);
    steps[0] = grid_begin(&g, 0, s[0], (uint32_t[]){3}, 1, 0);
    grid_post(&g, 0, steps[0], NULL, KVG_OK);
    ck_assert_int_eq(kvg_placement_resize_start(g.placement[0], 8u << 20, &setups[0]), KVG_OK);
    for (int n = 0; n < 3; n++) {
        ck_assert_int_eq(kvg_setup_test(setups[0], &done), KVG_OK);
        ck_assert_int_eq(done, 0);
    }
    steps[1] = grid_begin(&g, 1, s[1], (uint32_t[]){3}, 1, 0);
    grid_post(&g, 1, steps[1], NULL, KVG_OK);
    ck_assert_int_eq(kvg_placement_resize_start(g.placement[1], 8u << 20, &setups[1]), KVG_OK);
    ck_assert_int_eq(grid_finish(&g, setups, NULL), KVG_OK);
    for (int r = 0; r < 2; r++) ck_assert_uint_eq(life_info(s[r][0]).rows, 13);
    grid_close(&g);
}
END_TEST

START_TEST(test_a_change_ends_in_doubt_with_the_step_it_waits_for)
{
    KvgStep  *step;
    KvgSetup *setup = NULL;
    int       done = 0;

    open_ranks(2);
    step = grid_begin(&g, 0, s[0], (uint32_t[]){3}, 1, 0);
    grid_post(&g, 0, step, NULL, KVG_OK);
    ck_assert_int_eq(kvg_placement_resize_start(g.placement[0], 8u << 20, &setup), KVG_OK);
    kvg_inproc_kill(g.hub, 1);
    KvgStatus status = KVG_OK;
    for (uint64_t began = kvg_inproc_now_ns(g.hub); !done; kvg_inproc_advance_ns(g.hub, 1000000)) {
        ck_assert_uint_lt(kvg_inproc_now_ns(g.hub) - began, 3 * SECOND_NS);
        status = kvg_setup_test(setup, &done);
    }
    ck_assert_int_eq(status, KVG_EPEER);
    kvg_setup_free(setup);
    ck_assert_uint_eq(life_stats(g.placement[0]).memory_bytes, 4u << 20);
    grid_close(&g);
}
END_TEST

START_TEST(test_of_two_changes_at_once_one_is_refused_everywhere)
{
    KvgSetup       *first[TEST_RANKS_MAX] = {0}, *second[TEST_RANKS_MAX] = {0};
    KvgPlaceOptions options = life_options(2, 2u << 20);
    KvgPlacement   *other[2];
    KvgStatus ends[2][2];
    int       done[2][2] = {{0}}, left = 4;
    char      why[600] = "";

    open_ranks(2);
    options.max_step_sequences = 2;
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_place_start(g.grid[r], &g.config, &options, &other[r], &first[r]), KVG_OK);
    ck_assert_msg(grid_finish(&g, first, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < 2; r++) {
        ck_assert_int_eq(kvg_placement_resize_start(g.placement[r], 8u << 20, &first[r]), KVG_OK);
        ck_assert_int_eq(kvg_placement_resize_start(other[r], 1u << 20, &second[r]), KVG_OK);
    }
    for (int rounds = 0; left > 0; rounds++) {
        ck_assert_int_lt(rounds, 100000);
        for (int r = 0; r < 2; r++) {
            for (int which = 0; which < 2; which++) {
                if (done[which][r]) continue;
                ends[which][r] = kvg_setup_test(which ? second[r] : first[r], &done[which][r]);
                if (done[which][r] && which && r == 0) snprintf(why, sizeof why, "%s", kvg_last_error());
                left -= done[which][r];
            }
        }
        kvg_inproc_advance_ns(g.hub, 100000);
    }
    for (int r = 0; r < 2; r++) {
        ck_assert_int_eq(ends[0][r], KVG_OK);
        ck_assert_int_eq(ends[1][r], KVG_EREFUSED);
        ck_assert_uint_eq(life_stats(g.placement[r]).memory_bytes, 8u << 20);
        kvg_setup_free(first[r]);
        kvg_setup_free(second[r]);
    }
    ck_assert_msg(strstr(why, "one change at a time") != NULL, "%s", why);
    for (int r = 0; r < 2; r++) kvg_placement_destroy(other[r]);
    life_agree(&g);
    ck_assert_int_eq(life_grow(&g, s, 0, 1), KVG_OK);
    grid_close(&g);
}
END_TEST

/* ---- a transport that has no memory, to the deadline */

static KvCommOps poor_ops;

static KvgStatus poor_send(void *self, int peer, const void *bytes, size_t byte_count)
{
    (void)self, (void)peer, (void)bytes;
    return kvg_fail(KVG_ENOMEM, "the test's transport has no memory for %zu bytes", byte_count);
}

static KvgStatus poor_post(void *self, const void *record)
{
    (void)self, (void)record;
    return kvg_fail(KVG_ENOMEM, "the test's transport has no memory for a record");
}

START_TEST(test_a_record_that_never_finds_memory_is_in_doubt_by_its_own_rank)
{
    KvgStep *steps[2];
    int      done = 0;

    open_ranks(2);
    poor_ops = *g.grid[1]->comm.ops;
    poor_ops.post = poor_post;
    g.grid[1]->comm.ops = &poor_ops;
    for (int r = 0; r < 2; r++) {
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){3}, 1, 0);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    ck_assert_int_eq(kvg_step_test(steps[1], &done, NULL), KVG_OK);
    for (int n = 0; n < 12; n++) { /* rank 0 is alive all the while */
        kvg_inproc_advance_ns(g.hub, SECOND_NS / 10);
        kvg_grid_progress(g.grid[0]);
    }
    ck_assert_int_eq(kvg_step_wait(steps[1], NULL), KVG_EINDOUBT);
    ck_assert_msg(strstr(kvg_last_error(), "found no memory to send it") != NULL, "%s", kvg_last_error());
    grid_close(&g);
}
END_TEST

START_TEST(test_a_message_that_never_finds_memory_ends_at_the_deadline)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    KvgStatus status = KVG_OK;
    int       done[2] = {0};

    open_ranks(2);
    poor_ops = *g.grid[1]->comm.ops;
    poor_ops.send = poor_send;
    g.grid[1]->comm.ops = &poor_ops;
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_placement_resize_start(g.placement[r], 8u << 20, &setups[r]), KVG_OK);
    for (uint64_t began = kvg_inproc_now_ns(g.hub); !done[1]; kvg_inproc_advance_ns(g.hub, SECOND_NS / 100)) {
        ck_assert_uint_lt(kvg_inproc_now_ns(g.hub) - began, 2 * SECOND_NS);
        if (!done[0]) kvg_setup_test(setups[0], &done[0]);
        status = kvg_setup_test(setups[1], &done[1]);
    }
    ck_assert_int_eq(status, KVG_EINDOUBT);
    ck_assert_msg(strstr(kvg_last_error(), "message to rank 0 has not left") != NULL, "%s", kvg_last_error());
    ck_assert_msg(strstr(kvg_last_error(), "the test's transport has no memory") != NULL, "%s", kvg_last_error());
    for (int r = 0; r < 2; r++) kvg_setup_free(setups[r]);
    ck_assert_uint_eq(life_stats(g.placement[1]).memory_bytes, 4u << 20);
    grid_close(&g);
}
END_TEST

/* ---- settling, seen by the one that is behind */

static int cut; /* messages from rank 1 to rank 0 are lost */

static KvInprocFate lose(void *user, int from, int to, int is_record, const void *bytes, size_t byte_count, uint64_t *delay_ns)
{
    (void)user, (void)bytes, (void)byte_count, (void)delay_ns;
    return cut && !is_record && from == 1 && to == 0 ? KVG_INPROC_DROP : KVG_INPROC_DELIVER;
}

static KvgStatus turn_until_done(KvgSetup **setups, const int *ranks, int count)
{
    KvgStatus first = KVG_OK;
    int       done[4] = {0}, left = count;

    for (int rounds = 0; left > 0; rounds++) {
        ck_assert_int_lt(rounds, 100000);
        for (int i = 0; i < count; i++) {
            if (done[i]) continue;
            KvgStatus status = kvg_setup_test(setups[ranks[i]], &done[i]);
            if (!done[i]) continue;
            left--;
            if (status != KVG_OK && first == KVG_OK) first = status;
            kvg_setup_free(setups[ranks[i]]);
            setups[ranks[i]] = NULL;
        }
        kvg_inproc_advance_ns(g.hub, 100000);
    }
    return first;
}

START_TEST(test_a_rank_is_heard_anew_that_settled_on_while_one_word_was_missing)
{
    static const int everyone[] = {0, 1, 2}, ahead[] = {1, 2};
    KvgStep  *steps[4];
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    int       done = 0;

    open_ranks(4);
    for (int r = 0; r < 3; r++) {
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){3}, 1, 0);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    kvg_inproc_kill(g.hub, 3);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(kvg_step_wait(steps[r], NULL), KVG_EINDOUBT);
    kvg_inproc_set_filter(g.hub, lose, NULL);
    cut = 1;
    for (int r = 0; r < 3; r++) ck_assert_int_eq(kvg_grid_settle_start(g.grid[r], everyone, 3, &setups[r]), KVG_OK);
    for (int n = 0; n < 20; n++) { /* rank 0 hears rank 2, and waits for rank 1 */
        ck_assert_int_eq(kvg_setup_test(setups[0], &done), KVG_OK);
        ck_assert_int_eq(done, 0);
        kvg_inproc_advance_ns(g.hub, 100000);
        if (n == 0) ck_assert_int_eq(turn_until_done(setups, ahead, 2), KVG_OK);
    }
    cut = 0; /* they settle once more, and rank 0 hears that they have settled before */
    for (int i = 0; i < 2; i++) ck_assert_int_eq(kvg_grid_settle_start(g.grid[ahead[i]], everyone, 3, &setups[ahead[i]]), KVG_OK);
    ck_assert_msg(turn_until_done(setups, everyone, 3) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < 3; r++) {
        ck_assert_uint_eq(kvg_grid_epoch(g.grid[r]), 3);
        ck_assert_uint_eq(life_info(s[r][0]).rows, 10);
        ck_assert_uint_eq(life_info(s[r][0]).rows_staged, 10);
    }
    grid_close(&g);
}
END_TEST

/* ---- who settles first steps at once, far ahead of the one that is slowest */

enum { BATCHES = 2, SLOW_MS = 50 };

static KvInprocFate slow_from_2_to_0(void *user, int from, int to, int is_record, const void *bytes, size_t byte_count, uint64_t *delay_ns)
{
    (void)user, (void)bytes, (void)byte_count;
    if (!cut || from != 2 || to != 0) return KVG_INPROC_DELIVER;
    *delay_ns = SLOW_MS * (SECOND_NS / 1000);
    return is_record ? KVG_INPROC_DROP : KVG_INPROC_DELAY;
}

/* One step of sequence `which` in its batch, begun and posted on ranks [first, past). */
static void step_on(KvgBatch *batch[][BATCHES], KvgStep **steps, int which, int first, int past)
{
    for (int r = first; r < past; r++) {
        ck_assert_int_eq(kvg_batch_set(batch[r][which], 0, s[r][which]), KVG_OK);
        ck_assert_msg(kvg_step_begin(batch[r][which], (uint32_t[]){1}, &steps[r]) == KVG_OK, "%s", kvg_last_error());
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
}

/* Rank 0 misses rank 2's records; the others have decided W steps more, and have W in flight. */
static void run_ahead(KvgBatch *batch[][BATCHES])
{
    KvgStep *early[BATCHES][TEST_RANKS_MAX], *late[BATCHES][TEST_RANKS_MAX];

    cut = 1;
    kvg_inproc_set_filter(g.hub, slow_from_2_to_0, NULL);
    for (int which = 0; which < BATCHES; which++) step_on(batch, early[which], which, 0, 3);
    for (int which = 0; which < BATCHES; which++) {
        for (int r = 1; r < 3; r++) ck_assert_int_eq(kvg_step_wait(early[which][r], NULL), KVG_OK);
    }
    for (int which = 0; which < BATCHES; which++) step_on(batch, late[which], which, 1, 3);
}

START_TEST(test_a_record_of_the_next_epoch_waits_for_the_rank_that_settles_last)
{
    static const int everyone[] = {0, 1, 2};
    KvgBatch *batch[TEST_RANKS_MAX][BATCHES];
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    KvgStep  *steps[TEST_RANKS_MAX];
    int       done[3] = {0};
    KvgPlaceOptions options = life_options(3, 4u << 20);
    KvgPolicy       policy = life_policy(0);

    grid_open(&g, 3, 1, (uint32_t[]){2, 3, 0}, &options, &policy, 1);
    for (int which = 0; which < BATCHES; which++) {
        ck_assert_int_eq(life_open(&g, s, (uint32_t)which, (uint64_t)which + 1, 0), KVG_OK);
        for (int r = 0; r < 3; r++) ck_assert_int_eq(kvg_batch_create(g.placement[r], 1, &batch[r][which]), KVG_OK);
    }
    run_ahead(batch);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(kvg_grid_settle_start(g.grid[r], everyone, 3, &setups[r]), KVG_OK);
    for (int rounds = 0; !done[1]; rounds++) {
        ck_assert_int_lt(rounds, SLOW_MS / 2);
        for (int r = 0; r < 3; r++) {
            if (!done[r]) ck_assert_msg(kvg_setup_test(setups[r], &done[r]) == KVG_OK, "%s", kvg_last_error());
        }
        kvg_inproc_advance_ns(g.hub, SECOND_NS / 1000);
    }
    ck_assert(!done[0]);
    step_on(batch, steps, 0, 1, 2); /* its record comes to rank 0 before rank 2's last word of the settle */
    for (int rounds = 0; !done[0] || !done[2]; rounds++) {
        ck_assert_int_lt(rounds, 10 * SLOW_MS);
        for (int r = 0; r < 3; r++) {
            if (!done[r]) ck_assert_msg(kvg_setup_test(setups[r], &done[r]) == KVG_OK, "%s", kvg_last_error());
        }
        kvg_inproc_advance_ns(g.hub, SECOND_NS / 1000);
    }
    for (int r = 0; r < 3; r++) kvg_setup_free(setups[r]);
    cut = 0;
    step_on(batch, steps, 0, 0, 1);
    step_on(batch, steps, 0, 2, 3);
    ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_OK);
    for (int r = 0; r < 3; r++) {
        ck_assert_uint_eq(life_info(s[r][0]).rows, 2);
        ck_assert_uint_eq(life_info(s[r][1]).rows, 1);
        for (int which = 0; which < BATCHES; which++) kvg_batch_destroy(batch[r][which]);
    }
    grid_close(&g);
}
END_TEST

LIFE_MAIN("doubt_edges", test_a_grid_may_end_while_it_compares, test_a_comparison_that_a_death_cuts_short_is_settled_back, test_a_comparison_that_a_settle_cuts_short_is_settled_back, test_a_change_waits_for_the_last_step,
          test_a_change_ends_in_doubt_with_the_step_it_waits_for, test_of_two_changes_at_once_one_is_refused_everywhere,
          test_a_record_that_never_finds_memory_is_in_doubt_by_its_own_rank, test_a_message_that_never_finds_memory_ends_at_the_deadline,
          test_a_rank_is_heard_anew_that_settled_on_while_one_word_was_missing, test_a_record_of_the_next_epoch_waits_for_the_rank_that_settles_last)

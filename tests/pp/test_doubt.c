/* In doubt: records that are lost, late, twice or out of order, ranks that die or fall silent; and settling afterwards (S7). */
#include <kvgrid/vote.h>

#include "tests/support/grid_life.h"

#define SECOND_NS 1000000000ull
#define DEADLINE_NS (1 * SECOND_NS) /* of life_policy */

/* What the hub does to records and messages. */
typedef struct Faults {
    unsigned from, to;      /* masks of ranks */
    int      messages;      /* 0: records, 1: messages */
    uint64_t step;          /* of records; 0: any */
    KvInprocFate fate;
    uint64_t delay_ns;
    uint64_t random;        /* not 0: each record gets a random delay below delay_ns, and is doubled at times */
    int      hits;
} Faults;

static KvInprocFate filter(void *user, int from, int to, int is_record, const void *bytes, size_t byte_count, uint64_t *delay_ns)
{
    Faults *f = user;
    (void)byte_count;
    if (is_record == f->messages || !(f->from >> from & 1) || !(f->to >> to & 1)) return KVG_INPROC_DELIVER;
    if (is_record && f->step != 0 && ((const KvVoteRecord *)bytes)->step != f->step) return KVG_INPROC_DELIVER;
    f->hits++;
    if (f->random != 0) {
        if (life_draw(&f->random, 4) == 0) return KVG_INPROC_DUPLICATE;
        *delay_ns = life_draw(&f->random, f->delay_ns);
        return KVG_INPROC_DELAY;
    }
    *delay_ns = f->delay_ns;
    return f->fate;
}

static void open_grid(TestGrid *g, LifeSequences s, KvLayout layout, int ring)
{
    KvgPlaceOptions options = life_options(4, 4u << 20);
    KvgPolicy       policy = life_policy(ring);
    options.layout = layout;
    options.prefill_chunk_max = 128;
    grid_open(g, 2, 2, (uint32_t[]){4, 4, 64}, &options, &policy, 2);
    for (uint32_t i = 0; i < 2; i++) ck_assert_int_eq(life_open(g, s, i, i + 1, 0), KVG_OK);
    ck_assert_int_eq(grid_step(g, s, (uint32_t[]){100, 60}, 2, NULL, -1), KVG_OK);
}

/* Waits on one rank while nobody drives the others; asserts that it ends in time. */
static KvgStatus wait_bounded(TestGrid *g, KvgStep *step)
{
    uint64_t  before = kvg_inproc_now_ns(g->hub);
    KvgStatus status = kvg_step_wait(step, NULL);
    ck_assert_uint_le(kvg_inproc_now_ns(g->hub) - before, DEADLINE_NS + SECOND_NS);
    return status;
}

/* Every survivor settles; the others are left alone. */
static void settle(TestGrid *g, const int *survivors, int count, KvgStatus each[])
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    uint64_t  before = kvg_inproc_now_ns(g->hub);
    for (int i = 0; i < count; i++) {
        ck_assert_msg(kvg_grid_settle_start(g->grid[survivors[i]], survivors, count, &setups[survivors[i]]) == KVG_OK, "%s", kvg_last_error());
    }
    grid_finish(g, setups, each);
    ck_assert_uint_le(kvg_inproc_now_ns(g->hub) - before, DEADLINE_NS + SECOND_NS);
}

static void settle_ok(TestGrid *g, const int *survivors, int count)
{
    KvgStatus each[TEST_RANKS_MAX];
    settle(g, survivors, count, each);
    for (int i = 0; i < count; i++) ck_assert_int_eq(each[survivors[i]], KVG_OK);
    life_agree_among(g, survivors, count);
}

/* Rows, generations and digests are equal on the survivors. */
static void survivors_equal(TestGrid *g, LifeSequences s, const int *survivors, int count, const uint64_t rows[2])
{
    for (uint32_t q = 0; q < 2; q++) {
        KvgSetup *setups[TEST_RANKS_MAX] = {0};
        KvDigest  digest[TEST_RANKS_MAX];
        KvgStatus each[TEST_RANKS_MAX];
        uint64_t  generation = life_info(s[survivors[0]][q]).generation;
        for (int i = 0; i < count; i++) {
            int r = survivors[i];
            ck_assert_uint_eq(life_info(s[r][q]).rows, rows[q]);
            ck_assert_uint_eq(life_info(s[r][q]).rows_staged, rows[q]);
            ck_assert_uint_eq(life_info(s[r][q]).generation, generation);
            ck_assert_msg(kvg_sequence_digest_start(s[r][q], &digest[r], &setups[r]) == KVG_OK, "%s", kvg_last_error());
        }
        grid_finish(g, setups, each);
        for (int i = 0; i < count; i++) {
            ck_assert_int_eq(each[survivors[i]], KVG_OK);
            ck_assert_mem_eq(digest[survivors[i]].bytes, digest[survivors[0]].bytes, 16);
        }
    }
}

/* All but settle and close answer EPEER. */
static void only_settle_and_close(TestGrid *g, LifeSequences s, int r, KvgStep *undecided)
{
    KvgSequence *sequence;
    KvgSnapshot *snapshot;
    KvgStep     *step;
    KvgSetup    *setup;
    KvDigest     digest;
    int          done;
    ck_assert_int_ne(kvg_grid_state(g->grid[r]), KVG_OK);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(kvg_step_wait(undecided, NULL), KVG_EPEER);
        ck_assert_int_eq(kvg_step_test(undecided, &done, NULL), KVG_EPEER);
        ck_assert_int_eq(done, 0);
    }
    ck_assert_int_eq(kvg_step_begin(g->batch[r], (uint32_t[]){1, 1}, &step), KVG_EPEER);
    ck_assert_int_eq(kvg_sequence_open(g->placement[r], 99, 0, &sequence), KVG_EPEER);
    ck_assert_int_eq(kvg_sequence_book(s[r][0], 10), KVG_EPEER);
    ck_assert_int_eq(kvg_sequence_rewind(s[r][0], 0), KVG_EPEER);
    ck_assert_int_eq(kvg_sequence_trim(s[r][0]), KVG_EPEER);
    ck_assert_int_eq(kvg_sequence_fork(s[r][0], 0, 98, &sequence), KVG_EPEER);
    ck_assert_int_eq(kvg_sequence_snapshot(s[r][0], &snapshot), KVG_EPEER);
    ck_assert_int_eq(kvg_sequence_digest_start(s[r][0], &digest, &setup), KVG_EPEER);
    ck_assert_int_eq(kvg_placement_resize_start(g->placement[r], 4u << 20, &setup), KVG_EPEER);
}

static void begin_and_post(TestGrid *g, LifeSequences s, const uint32_t *rows, const uint32_t *accepted, int upto, KvgStep **steps)
{
    for (int r = 0; r < upto; r++) {
        steps[r] = grid_begin(g, r, s[r], rows, 2, 0);
        grid_post(g, r, steps[r], accepted, KVG_OK);
    }
}

/* ---- records on their way */

START_TEST(test_records_late_twice_and_out_of_order_change_nothing)
{
    char straight[2][33], shaken[2][33];
    for (int shake = 0; shake <= 1; shake++) {
        TestGrid      g;
        LifeSequences s;
        Faults        faults = {.from = 15, .to = 15, .delay_ns = SECOND_NS / 2, .random = 7};
        open_grid(&g, s, KVG_LAYOUT_POOL, 1);
        if (shake) kvg_inproc_set_filter(g.hub, filter, &faults);
        for (int n = 0; n < 40; n++) {
            ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){5, (uint32_t)n % 3}, 2, n % 4 == 0 ? (uint32_t[]){2, 0} : NULL, n % 7 == 0 ? n % 4 : -1),
                             n % 7 == 0 ? KVG_EREFUSED : KVG_OK);
            life_agree(&g);
        }
        if (shake) ck_assert_int_gt(faults.hits, 100);
        kvg_inproc_set_filter(g.hub, NULL, NULL);
        for (uint32_t q = 0; q < 2; q++) grid_digest(&g, s, q, shake ? shaken[q] : straight[q]);
        grid_close(&g);
    }
    for (int q = 0; q < 2; q++) ck_assert_str_eq(straight[q], shaken[q]);
}
END_TEST

START_TEST(test_a_record_that_came_counts_though_its_sender_died)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    begin_and_post(&g, s, (uint32_t[]){5, 5}, NULL, 4, steps);
    kvg_inproc_kill(g.hub, 3);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_OK);
    for (int r = 0; r < 3; r++) {
        ck_assert_uint_eq(life_info(s[r][0]).rows, 105);
        ck_assert_int_eq(kvg_grid_progress(g.grid[r]), KVG_OK);
        ck_assert_int_eq(kvg_step_begin(g.batch[r], (uint32_t[]){1, 1}, &steps[r]), KVG_EPEER); /* no more steps without it */
    }
    settle_ok(&g, (int[]){0, 1, 2}, 3);
    survivors_equal(&g, s, (int[]){0, 1, 2}, 3, (uint64_t[]){105, 65});
    grid_close(&g);
}
END_TEST

START_TEST(test_a_death_before_the_post_leaves_doubt_once_and_settles_back)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, NULL, 3, steps);
    steps[3] = grid_begin(&g, 3, s[3], (uint32_t[]){70, 5}, 2, 0);
    kvg_inproc_kill(g.hub, 3);
    for (int r = 0; r < 3; r++) {
        uint64_t before = kvg_inproc_now_ns(g.hub);
        ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT);
        ck_assert_uint_le(kvg_inproc_now_ns(g.hub) - before, SECOND_NS / 2); /* a loss is noticed before the deadline */
        ck_assert_int_eq(kvg_grid_state(g.grid[r]), KVG_EINDOUBT);
        only_settle_and_close(&g, s, r, steps[r]);
        ck_assert_uint_eq(life_info(s[r][0]).rows, 100);        /* old state */
        ck_assert_uint_eq(life_info(s[r][0]).rows_staged, 170); /* and staged state are kept */
    }
    settle_ok(&g, (int[]){2, 0, 1}, 3);
    for (int r = 0; r < 3; r++) {
        KvgOutcome outcome;
        ck_assert_int_eq(kvg_step_wait(steps[r], &outcome), KVG_EREFUSED);
        ck_assert_int_eq(outcome.kind, KVG_OUTCOME_SETTLED_BACK);
        ck_assert_int_eq(kvg_step_begin(g.batch[r], (uint32_t[]){1, 1}, &steps[r]), KVG_EPEER);
        ck_assert_int_eq(kvg_grid_state(g.grid[r]), KVG_EPEER);
        ck_assert_uint_eq(kvg_grid_epoch(g.grid[r]), 2);
    }
    survivors_equal(&g, s, (int[]){0, 1, 2}, 3, (uint64_t[]){100, 60});
    for (int r = 0; r < 3; r++) {
        float row[32 * 4];
        uint32_t lo, hi;
        kvg_placement_layers(g.placement[r], &lo, &hi);
        ck_assert_int_eq(kvg_sequence_read(s[r][0], lo, 0, 99, 1, row), KVG_OK);
        for (uint32_t q = 0; q < 2; q++) ck_assert_int_eq(kvg_sequence_close(s[r][q], NULL), KVG_OK);
    }
    life_agree_among(&g, (int[]){0, 1, 2}, 3);
    grid_close(&g);
}
END_TEST


/* Rank 3's record reaches rank `to` alone, then it dies: what one has published all publish, with its counts. */
START_TEST(test_one_publisher_makes_all_publish)
{
    for (int to = 0; to < 3; to++) {
        TestGrid      g;
        LifeSequences s;
        KvgStep      *steps[TEST_RANKS_MAX];
        KvgOutcome    outcome;
        Faults        faults = {.from = 1u << 3, .to = 7u & ~(1u << to), .fate = KVG_INPROC_DROP};
        open_grid(&g, s, KVG_LAYOUT_POOL, 1);
        kvg_inproc_set_filter(g.hub, filter, &faults);
        begin_and_post(&g, s, (uint32_t[]){70, 5}, (uint32_t[]){66, 0}, 4, steps);
        ck_assert_int_eq(faults.hits, 2);
        kvg_inproc_kill(g.hub, 3);
        for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), r == to ? KVG_OK : KVG_EINDOUBT);
        ck_assert_uint_eq(life_info(s[to][0]).rows, 166);
        settle_ok(&g, (int[]){0, 1, 2}, 3);
        for (int r = 0; r < 3; r++) {
            ck_assert_int_eq(kvg_step_wait(steps[r], &outcome), KVG_OK);
            ck_assert_int_eq(outcome.kind, KVG_OUTCOME_PUBLISHED);
            ck_assert_uint_eq(outcome.accepted[0], 66);
            ck_assert_uint_eq(outcome.accepted[1], 0);
        }
        survivors_equal(&g, s, (int[]){0, 1, 2}, 3, (uint64_t[]){166, 60});
        grid_close(&g);
    }
}
END_TEST

START_TEST(test_nobody_publishes_what_another_rolled_back)
{
    /* A record comes after its receiver is in doubt, while another has settled on it having been missing: it decides nothing. */
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    Faults        faults = {.from = 1u << 3, .to = 7, .fate = KVG_INPROC_DELAY, .delay_ns = SECOND_NS / 4};
    int           done;
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, NULL, 4, steps);
    kvg_inproc_kill(g.hub, 3);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT); /* lost, and its record is not here */
    kvg_inproc_advance_ns(g.hub, SECOND_NS); /* now it is */
    for (int r = 0; r < 3; r++) {
        ck_assert_int_eq(kvg_step_test(steps[r], &done, NULL), KVG_EPEER);
        ck_assert_int_eq(kvg_step_wait(steps[r], NULL), KVG_EPEER);
        ck_assert_uint_eq(life_info(s[r][0]).rows, 100);
    }
    settle_ok(&g, (int[]){0, 1, 2}, 3); /* every survivor holds every record: that decides it alike */
    survivors_equal(&g, s, (int[]){0, 1, 2}, 3, (uint64_t[]){170, 65});
    grid_close(&g);
}
END_TEST

START_TEST(test_what_a_rank_said_in_a_settle_that_failed_stays_true)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    KvgStatus     each[TEST_RANKS_MAX];
    Faults        faults = {.from = 1u << 3, .to = 1u << 0, .fate = KVG_INPROC_DELAY, .delay_ns = 2 * SECOND_NS};
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, NULL, 2, steps);
    steps[3] = grid_begin(&g, 3, s[3], (uint32_t[]){70, 5}, 2, 0);
    grid_post(&g, 3, steps[3], NULL, KVG_OK);
    kvg_inproc_kill(g.hub, 3);
    steps[2] = grid_begin(&g, 2, s[2], (uint32_t[]){70, 5}, 2, 0);
    faults = (Faults){.from = 1u << 2, .to = 1u << 1, .fate = KVG_INPROC_DROP};
    grid_post(&g, 2, steps[2], NULL, KVG_OK);
    kvg_inproc_set_filter(g.hub, NULL, NULL);
    ck_assert_int_eq(wait_bounded(&g, steps[0]), KVG_EINDOUBT); /* rank 3's record is late here */
    kvg_inproc_freeze(g.hub, 2, 1);
    ck_assert_int_eq(wait_bounded(&g, steps[1]), KVG_EINDOUBT); /* rank 2's is lost here */
    settle(&g, (int[]){0, 1}, 2, each);
    /* ranks 0 and 1 have settled without 2: rolled back */
    ck_assert_int_eq(each[0], KVG_OK);
    ck_assert_int_eq(each[1], KVG_OK);
    kvg_inproc_advance_ns(g.hub, 3 * SECOND_NS);
    kvg_grid_progress(g.grid[0]);
    survivors_equal(&g, s, (int[]){0, 1}, 2, (uint64_t[]){100, 60});
    kvg_inproc_freeze(g.hub, 2, 0);
    ck_assert_int_eq(kvg_grid_settle(g.grid[2], (int[]){0, 1, 2}, 3), KVG_EINDOUBT); /* left out: nobody answers it */
    grid_close(&g);
}
END_TEST

START_TEST(test_a_second_attempt_with_fewer_survivors)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    KvgStatus     each[TEST_RANKS_MAX];
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, NULL, 2, steps);
    kvg_inproc_kill(g.hub, 3);
    kvg_inproc_freeze(g.hub, 2, 1);
    for (int r = 0; r < 2; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT);
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_grid_settle_start(g.grid[r], (int[]){0, 1, 2}, 3, &setups[r]), KVG_OK);
    grid_finish(&g, setups, each);
    for (int r = 0; r < 2; r++) ck_assert_int_eq(each[r], KVG_EINDOUBT);
    only_settle_and_close(&g, s, 0, steps[0]);
    settle_ok(&g, (int[]){1, 0}, 2);
    survivors_equal(&g, s, (int[]){0, 1}, 2, (uint64_t[]){100, 60});
    grid_close(&g);
}
END_TEST

START_TEST(test_an_attempt_that_only_one_finished_is_caught_up_with)
{
    /* Rank 2's account reaches rank 0 and not rank 1, then it dies: rank 0 has settled, rank 1 has not. */
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    KvgStatus     each[TEST_RANKS_MAX];
    Faults        faults = {.from = 1u << 3, .to = 3, .fate = KVG_INPROC_DROP};
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, (uint32_t[]){68, 1}, 4, steps);
    kvg_inproc_kill(g.hub, 3);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), r == 2 ? KVG_OK : KVG_EINDOUBT); /* rank 2 has published */
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    int       done;
    faults = (Faults){.from = 1u << 2, .to = 1u << 1, .messages = 1, .fate = KVG_INPROC_DROP};
    for (int r = 0; r < 3; r++) ck_assert_int_eq(kvg_grid_settle_start(g.grid[r], (int[]){0, 1, 2}, 3, &setups[r]), KVG_OK);
    ck_assert_int_eq(kvg_setup_test(setups[2], &done), KVG_OK);
    kvg_inproc_kill(g.hub, 2);
    kvg_setup_free(setups[2]);
    setups[2] = NULL;
    grid_finish(&g, setups, each);
    ck_assert_int_eq(each[0], KVG_OK);
    ck_assert_int_eq(each[1], KVG_EPEER);
    ck_assert_uint_eq(life_info(s[0][0]).rows, 168);
    ck_assert_uint_eq(life_info(s[1][0]).rows, 100);
    settle_ok(&g, (int[]){0, 1}, 2);
    ck_assert_uint_eq(kvg_grid_epoch(g.grid[0]), 3);
    ck_assert_uint_eq(kvg_grid_epoch(g.grid[1]), 3);
    survivors_equal(&g, s, (int[]){0, 1}, 2, (uint64_t[]){168, 61});
    grid_close(&g);
}
END_TEST

START_TEST(test_a_frozen_rank_is_silent_and_after_a_settle_of_all_the_grid_goes_on)
{
    for (int layout = 0; layout <= 1; layout++) {
        TestGrid      g;
        LifeSequences s;
        KvgStep      *steps[TEST_RANKS_MAX];
        char          settled[33], straight[33];
        open_grid(&g, s, layout ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL, 1);
        kvg_inproc_freeze(g.hub, 1, 1);
        for (int r = 0; r < 4; r++) {
            if (r == 1) continue; /* it has not even begun */
            steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){70, 5}, 2, 0);
            grid_post(&g, r, steps[r], NULL, KVG_OK);
        }
        for (int r = 0; r < 4; r++) {
            if (r != 1) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT);
        }
        kvg_inproc_freeze(g.hub, 1, 0);
        settle_ok(&g, (int[]){0, 1, 2, 3}, 4);
        survivors_equal(&g, s, (int[]){0, 1, 2, 3}, 4, (uint64_t[]){100, 60});
        for (int n = 0; n < 12; n++) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){70, 5}, 2, NULL, -1), KVG_OK);
        life_agree(&g);
        grid_digest(&g, s, 0, settled);
        for (uint32_t q = 0; q < 2; q++) ck_assert_int_eq(life_close(&g, s, q), KVG_OK);
        ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
        ck_assert_int_eq(life_open(&g, s, 1, 2, 0), KVG_OK);
        for (int n = 0; n < 10; n++) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){94, 0}, 2, NULL, -1), KVG_OK);
        grid_digest(&g, s, 0, straight);
        ck_assert_str_eq(settled, straight);
        grid_close(&g);
    }
}
END_TEST

START_TEST(test_a_rank_that_wakes_after_a_settle_without_it_learns_that_it_is_out_and_changes_nothing)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    for (int r = 0; r < 4; r++) steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){70, 5}, 2, 0);
    kvg_inproc_freeze(g.hub, 3, 1);
    for (int r = 0; r < 3; r++) grid_post(&g, r, steps[r], NULL, KVG_OK);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT);
    settle_ok(&g, (int[]){0, 1, 2}, 3);
    kvg_inproc_freeze(g.hub, 3, 0);
    grid_post(&g, 3, steps[3], NULL, KVG_OK); /* of the old epoch: to the others it is nothing */
    kvg_inproc_advance_ns(g.hub, SECOND_NS / 10);
    for (int r = 0; r < 4; r++) kvg_grid_progress(g.grid[r]);
    ck_assert_int_eq(kvg_grid_state(g.grid[3]), KVG_EPEER);
    ck_assert_msg(strstr(kvg_last_error(), "rank 3 was left out") != NULL, "%s", kvg_last_error());
    (void)kvg_step_wait(steps[3], NULL); /* whatever it makes of the records that it has */
    ck_assert_int_eq(kvg_step_begin(g.batch[3], (uint32_t[]){1, 1}, &steps[3]), KVG_EPEER);
    survivors_equal(&g, s, (int[]){0, 1, 2}, 3, (uint64_t[]){100, 60});
    for (int r = 0; r < 3; r++) {
        ck_assert_int_eq(kvg_step_wait(steps[r], NULL), KVG_EREFUSED);
        ck_assert_msg(strstr(kvg_last_error(), "left out") == NULL, "%s", kvg_last_error());
        ck_assert_uint_eq(kvg_grid_epoch(g.grid[r]), 2);
    }
    grid_close(&g);
}
END_TEST

START_TEST(test_a_ring_that_moved_on_some_ranks_alone_stands_level_after_a_settle)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *step;
    open_grid(&g, s, KVG_LAYOUT_FLAT, 1);
    /* A flat ring holds 64 + 128 + 512 + 31 rows: a step of 128 from 700 rows on moves it. */
    for (int n = 0; n < 5; n++) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){120, 1}, 2, NULL, -1), KVG_OK);
    step = grid_begin(&g, 0, s[0], (uint32_t[]){128, 0}, 2, 0);
    grid_post(&g, 0, step, NULL, KVG_OK);
    ck_assert_int_eq(wait_bounded(&g, step), KVG_EINDOUBT);
    settle_ok(&g, (int[]){0, 1, 2, 3}, 4);
    survivors_equal(&g, s, (int[]){0, 1, 2, 3}, 4, (uint64_t[]){700, 65});
    for (int n = 0; n < 8; n++) ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){100, 5}, 2, NULL, -1), KVG_OK);
    survivors_equal(&g, s, (int[]){0, 1, 2, 3}, 4, (uint64_t[]){1500, 105});
    grid_close(&g);
}
END_TEST

START_TEST(test_a_record_lost_between_living_ranks_ends_too)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    Faults        faults = {.from = 1u << 2, .to = 1u << 0, .fate = KVG_INPROC_DROP};
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, (uint32_t[]){1, 2}, 4, steps);
    for (int r = 1; r < 4; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_OK);
    ck_assert_int_eq(wait_bounded(&g, steps[0]), KVG_EINDOUBT); /* nobody drives rank 2 meanwhile: it is silent */
    settle_ok(&g, (int[]){0, 1, 2, 3}, 4);
    survivors_equal(&g, s, (int[]){0, 1, 2, 3}, 4, (uint64_t[]){101, 62});
    kvg_inproc_set_filter(g.hub, NULL, NULL);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){7, 7}, 2, NULL, -1), KVG_OK);
    /* a rank that gives signs of life and never posts is waited for longer, but not for ever */
    KvgStep *step = grid_begin(&g, 0, s[0], (uint32_t[]){1, 0}, 2, 0);
    int      done = 0;
    KvgStatus status = KVG_OK;
    uint64_t before = kvg_inproc_now_ns(g.hub);
    grid_post(&g, 0, step, NULL, KVG_OK);
    while (!done && status == KVG_OK) {
        for (int r = 1; r < 4; r++) kvg_grid_progress(g.grid[r]);
        status = kvg_step_test(step, &done, NULL);
        kvg_inproc_advance_ns(g.hub, 50000000);
        ck_assert_uint_lt(kvg_inproc_now_ns(g.hub) - before, 21 * DEADLINE_NS);
    }
    ck_assert_int_eq(status, KVG_EINDOUBT);
    ck_assert_uint_gt(kvg_inproc_now_ns(g.hub) - before, 2 * DEADLINE_NS);
    grid_close(&g);
}
END_TEST

START_TEST(test_records_of_an_older_epoch_are_dropped)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    Faults        faults = {.from = 1u << 3, .to = 15, .fate = KVG_INPROC_DELAY, .delay_ns = 5 * SECOND_NS};
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, NULL, 3, steps);
    steps[3] = grid_begin(&g, 3, s[3], (uint32_t[]){70, 5}, 2, 0);
    grid_post(&g, 3, steps[3], (uint32_t[]){1, 1}, KVG_OK);
    kvg_inproc_set_filter(g.hub, NULL, NULL);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT);
    settle_ok(&g, (int[]){0, 1, 2, 3}, 4); /* rank 3 held all records? it lacks its own copy of nobody's: it publishes, all follow */
    uint64_t rows = life_info(s[0][0]).rows;
    ck_assert(rows == 100 || rows == 101 || rows == 170);
    for (int n = 0; n < 20; n++) { /* the late records of epoch 1 arrive among those of epoch 2 */
        ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 1}, 2, NULL, -1), KVG_OK);
        kvg_inproc_advance_ns(g.hub, SECOND_NS / 2);
        for (int r = 0; r < 4; r++) ck_assert_uint_eq(life_info(s[r][0]).rows, rows + (uint64_t)n + 1);
    }
    grid_close(&g);
}
END_TEST

START_TEST(test_taint_reaches_those_who_were_in_doubt)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    Faults        faults = {.from = 1u << 3, .to = 1u << 0, .fate = KVG_INPROC_DROP};
    KvgOutcome    outcome;
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    ck_assert_int_eq(kvg_sequence_taint(s[3][1]), KVG_OK);
    begin_and_post(&g, s, (uint32_t[]){7, 5}, NULL, 4, steps);
    for (int r = 1; r < 4; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_ETAINTED);
    ck_assert_int_eq(wait_bounded(&g, steps[0]), KVG_EINDOUBT);
    settle_ok(&g, (int[]){0, 1, 2, 3}, 4);
    ck_assert_int_eq(kvg_step_wait(steps[0], &outcome), KVG_ETAINTED);
    kvg_inproc_set_filter(g.hub, NULL, NULL);
    for (int r = 0; r < 4; r++) {
        ck_assert(!life_info(s[r][0]).tainted);
        ck_assert(life_info(s[r][1]).tainted);
    }
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){7, 5}, 2, NULL, -1), KVG_OK); /* goes on without the tainted one */
    for (int r = 0; r < 4; r++) ck_assert_uint_eq(life_info(s[r][0]).rows, 107);
    grid_close(&g);
}
END_TEST

START_TEST(test_nothing_is_posted_in_doubt_and_unposted_steps_settle_back)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *first, *second, *again;
    KvgCommit     commit = KVG_COMMIT_INIT;
    KvgBatch     *other;
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    ck_assert_int_eq(kvg_batch_create(g.placement[0], 1, &other), KVG_OK);
    ck_assert_int_eq(kvg_batch_set(other, 0, s[0][1]), KVG_OK);
    first = grid_begin(&g, 0, s[0], (uint32_t[]){7, 0}, 2, 0);
    grid_post(&g, 0, first, NULL, KVG_OK);
    ck_assert_int_eq(kvg_step_begin(other, (uint32_t[]){3}, &second), KVG_OK);
    ck_assert_int_eq(wait_bounded(&g, first), KVG_EINDOUBT);
    Faults faults = {.from = 1, .to = 15, .fate = KVG_INPROC_DROP};
    kvg_inproc_set_filter(g.hub, filter, &faults);
    commit.accept_all = 1;
    ck_assert_int_eq(kvg_step_post(second, &commit), KVG_EPEER);
    ck_assert_int_eq(kvg_step_extend(second, (uint32_t[]){3}), KVG_EPEER);
    ck_assert_int_eq(faults.hits, 0);
    settle_ok(&g, (int[]){0, 1, 2, 3}, 4);
    ck_assert_int_eq(kvg_step_post(second, &commit), KVG_ESTALE);
    for (int r = 0; r < 4; r++) ck_assert_uint_eq(life_info(s[r][1]).rows, 60);
    ck_assert_int_eq(kvg_step_begin(other, (uint32_t[]){0}, &again), KVG_OK); /* its batch is free again */
    commit.accept_all = 0;
    kvg_inproc_set_filter(g.hub, NULL, NULL);
    grid_post(&g, 0, again, NULL, KVG_OK);
    kvg_batch_destroy(other);
    grid_close(&g);
}
END_TEST

START_TEST(test_posted_calls_that_only_some_made_are_found_by_settling)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *step;
    KvgStatus     each[TEST_RANKS_MAX];
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    step = grid_begin(&g, 0, s[0], (uint32_t[]){7, 0}, 2, 0);
    grid_post(&g, 0, step, NULL, KVG_OK);
    ck_assert_int_eq(kvg_sequence_close(s[0][1], NULL), KVG_OK);
    ck_assert_int_eq(wait_bounded(&g, step), KVG_EINDOUBT);
    settle(&g, (int[]){0, 1, 2, 3}, 4, each);
    for (int r = 0; r < 4; r++) {
        ck_assert_int_eq(each[r], KVG_OK);
        ck_assert_int_eq(kvg_grid_state(g.grid[r]), KVG_ELAYOUT);
        ck_assert_int_eq(kvg_step_begin(g.batch[r], (uint32_t[]){1, 0}, &step), KVG_ELAYOUT);
        ck_assert_int_eq(kvg_sequence_close(s[r][0], NULL), KVG_OK);
    }
    grid_close(&g);
}
END_TEST

START_TEST(test_a_wrong_list_of_survivors_is_refused)
{
    TestGrid      g;
    LifeSequences s;
    KvgSetup     *setup = NULL;
    KvgStep      *steps[TEST_RANKS_MAX];
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], (int[]){1, 2}, 2, &setup), KVG_EINVAL); /* not itself */
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], (int[]){0, 4}, 2, &setup), KVG_EINVAL);
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], (int[]){0, -1}, 2, &setup), KVG_EINVAL);
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], (int[]){0, 1, 0}, 3, &setup), KVG_EINVAL); /* twice */
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], (int[]){0}, 0, &setup), KVG_EINVAL);
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], (int[]){0, 1, 2, 3, 0}, 5, &setup), KVG_EINVAL);
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], NULL, 1, &setup), KVG_EINVAL);
    ck_assert_ptr_null(setup);
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){1, 1}, 2, NULL, -1), KVG_OK); /* a refused list has done nothing */
    begin_and_post(&g, s, (uint32_t[]){1, 1}, NULL, 3, steps);
    kvg_inproc_kill(g.hub, 3);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT);
    settle_ok(&g, (int[]){0, 1, 2}, 3);
    ck_assert_int_eq(kvg_grid_settle_start(g.grid[0], (int[]){0, 1, 2, 3}, 4, &setup), KVG_EINVAL); /* left out before */
    kvg_inproc_kill(g.hub, 2);
    settle_ok(&g, (int[]){0, 1}, 2); /* and once more, with fewer */
    settle_ok(&g, (int[]){1}, 1);
    survivors_equal(&g, s, (int[]){1}, 1, (uint64_t[]){101, 61});
    grid_close(&g);
}
END_TEST

START_TEST(test_several_steps_in_flight_settle_each_for_itself)
{
    /* Of W = 4 steps, the first was published by one, the second by nobody, the third by another. */
    TestGrid        g;
    KvgPlaceOptions options = life_options(4, 4u << 20);
    KvgPolicy       policy = life_policy(1);
    LifeSequences   s;
    KvgStep        *steps[TEST_RANKS_MAX][3];
    KvgBatch       *batches[TEST_RANKS_MAX][3];
    Faults          faults = {.from = 1u << 3, .fate = KVG_INPROC_DROP};
    grid_open(&g, 2, 2, (uint32_t[]){4, 4, 64}, &options, &policy, 2);
    for (uint32_t i = 0; i < 3; i++) ck_assert_int_eq(life_open(&g, s, i, i + 1, 0), KVG_OK);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    for (int r = 0; r < 4; r++) {
        for (int b = 0; b < 3; b++) {
            KvgCommit commit = KVG_COMMIT_INIT;
            commit.accepted = r >= 2 ? (uint32_t[]){(uint32_t)(5 + b)} : NULL;
            faults.to = b == 0 ? 7u & ~1u : b == 1 ? 7u : 7u & ~4u; /* b 0: rank 0 gets it; b 2: rank 2 does */
            ck_assert_int_eq(kvg_batch_create(g.placement[r], 1, &batches[r][b]), KVG_OK);
            ck_assert_int_eq(kvg_batch_set(batches[r][b], 0, s[r][b]), KVG_OK);
            ck_assert_int_eq(kvg_step_begin(batches[r][b], (uint32_t[]){10}, &steps[r][b]), KVG_OK);
            for (uint32_t il = 0; il < 4; il++) {
                static const float zeros[10 * 4 * 32];
                KvgRows            rows = KVG_ROWS_INIT;
                rows.k = rows.v = zeros;
                if (kvg_plane_view(batches[r][b], il) != NULL) ck_assert_int_eq(kvg_write_kv(batches[r][b], il, &rows, NULL), KVG_OK);
            }
            ck_assert_int_eq(kvg_step_post(steps[r][b], &commit), KVG_OK);
        }
    }
    kvg_inproc_kill(g.hub, 3);
    ck_assert_int_eq(wait_bounded(&g, steps[0][0]), KVG_OK);
    ck_assert_int_eq(wait_bounded(&g, steps[2][2]), KVG_OK);
    ck_assert_int_eq(wait_bounded(&g, steps[0][1]), KVG_EINDOUBT);
    settle_ok(&g, (int[]){0, 1, 2}, 3);
    for (int r = 0; r < 3; r++) {
        ck_assert_int_eq(kvg_step_wait(steps[r][1], NULL), KVG_EREFUSED);
        ck_assert_uint_eq(life_info(s[r][2]).rows, 7);
    }
    survivors_equal(&g, s, (int[]){0, 1, 2}, 3, (uint64_t[]){5, 0});
    for (int r = 0; r < 4; r++) {
        for (int b = 0; b < 3; b++) kvg_batch_destroy(batches[r][b]);
    }
    grid_close(&g);
}
END_TEST

START_TEST(test_setup_calls_of_different_numbers_before_a_settle_do_not_shift_later_ones)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    KvDigest      digest;
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    ck_assert_int_eq(kvg_sequence_digest(s[0][0], &digest), KVG_EINDOUBT); /* the others never come */
    begin_and_post(&g, s, (uint32_t[]){1, 1}, NULL, 3, steps);
    for (int r = 0; r < 3; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), KVG_EINDOUBT);
    settle_ok(&g, (int[]){0, 1, 2, 3}, 4);
    survivors_equal(&g, s, (int[]){0, 1, 2, 3}, 4, (uint64_t[]){100, 60});
    grid_close(&g);
}
END_TEST

/* Rank 1 is in doubt, calls in and posts nothing more: the others learn it from itself, long before they would give up on a rank that lives. */
START_TEST(test_a_doubt_is_told_to_those_who_would_wait)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    Faults        faults = {.from = 1u << 2, .to = 1u << 1, .fate = KVG_INPROC_DROP};
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    kvg_inproc_set_filter(g.hub, filter, &faults);
    begin_and_post(&g, s, (uint32_t[]){70, 5}, NULL, 4, steps);
    kvg_inproc_set_filter(g.hub, NULL, NULL);
    for (int r = 0; r < 4; r++) ck_assert_int_eq(wait_bounded(&g, steps[r]), r == 1 ? KVG_EINDOUBT : KVG_OK);
    for (int r = 0; r < 4; r++) {
        if (r == 1) continue;
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){1, 1}, 2, 0);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    uint64_t  before = kvg_inproc_now_ns(g.hub);
    KvgStatus status = KVG_OK;
    int       done = 0;
    while (!done && status == KVG_OK) {
        kvg_grid_progress(g.grid[1]); /* it lives */
        for (int r = 2; r < 4; r++) kvg_grid_progress(g.grid[r]);
        status = kvg_step_test(steps[0], &done, NULL);
        kvg_inproc_advance_ns(g.hub, SECOND_NS / 100);
    }
    ck_assert_int_eq(status, KVG_EINDOUBT);
    ck_assert_uint_lt(kvg_inproc_now_ns(g.hub) - before, SECOND_NS / 5);
    ck_assert_msg(strstr(kvg_last_error(), "rank 1") != NULL, "%s", kvg_last_error());
    settle_ok(&g, (int[]){0, 1, 2, 3}, 4); /* and in the next epoch it is heard again */
    survivors_equal(&g, s, (int[]){0, 1, 2, 3}, 4, (uint64_t[]){170, 65});
    ck_assert_int_eq(grid_step(&g, s, (uint32_t[]){7, 7}, 2, NULL, -1), KVG_OK);
    grid_close(&g);
}
END_TEST

/* Rank 3 dies with its record everywhere. Rank 2 learns of the death before it begins, and begins no more; the others have begun. */
START_TEST(test_a_rank_that_begins_no_more_tells_those_who_have_begun)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    KvgStatus     status = KVG_OK;
    int           done = 0;
    open_grid(&g, s, KVG_LAYOUT_POOL, 1);
    begin_and_post(&g, s, (uint32_t[]){1, 1}, NULL, 2, steps);
    steps[3] = grid_begin(&g, 3, s[3], (uint32_t[]){1, 1}, 2, 0);
    grid_post(&g, 3, steps[3], NULL, KVG_OK);
    kvg_inproc_kill(g.hub, 3);
    kvg_grid_progress(g.grid[2]);
    ck_assert_int_eq(kvg_step_begin(g.batch[2], (uint32_t[]){1, 1}, &steps[2]), KVG_EPEER);
    uint64_t before = kvg_inproc_now_ns(g.hub);
    while (!done && status == KVG_OK) {
        kvg_grid_progress(g.grid[2]); /* it lives */
        status = kvg_step_test(steps[0], &done, NULL);
        kvg_inproc_advance_ns(g.hub, SECOND_NS / 100);
    }
    ck_assert_int_eq(status, KVG_EINDOUBT);
    ck_assert_uint_lt(kvg_inproc_now_ns(g.hub) - before, SECOND_NS / 5);
    settle_ok(&g, (int[]){0, 1, 2}, 3);
    survivors_equal(&g, s, (int[]){0, 1, 2}, 3, (uint64_t[]){100, 60});
    grid_close(&g);
}
END_TEST

/* A transport that has no memory for a record: the record leaves with a later turn, and nobody waits for a rank that believes it has posted. */
START_TEST(test_a_record_that_found_no_memory_is_sent_later)
{
    TestGrid      g;
    LifeSequences s;
    KvgStep      *steps[TEST_RANKS_MAX];
    int           failed = 0;
    for (int layout = 0; layout <= 1; layout++) {
        open_grid(&g, s, layout ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL, 1);
        for (int n = 0; n < 12; n++) { /* until the hub's spare parcels are used up: nobody takes records here */
            KvgBatch *more;
            uint64_t  before = kvg_inproc_now_ns(g.hub);
            for (int r = 0; r < 4; r++) {
                ck_assert_int_eq(kvg_batch_create(g.placement[r], 1, &more), KVG_OK);
                ck_assert_int_eq(kvg_step_begin(more, (uint32_t[]){0}, &steps[r]), KVG_OK);
                if (r == 3) kvg_fault_arm(0);
                grid_post(&g, r, steps[r], NULL, KVG_OK);
                failed += r == 3 && kvg_fault_disarm();
                kvg_batch_destroy(more);
            }
            if (n % 4 == 3) { /* W */
                for (int r = 3; r >= 0; r--) kvg_grid_progress(g.grid[r]);
                for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_step_wait(steps[r], NULL), KVG_OK);
                ck_assert_uint_lt(kvg_inproc_now_ns(g.hub) - before, SECOND_NS / 2);
            }
        }
        grid_close(&g);
    }
    ck_assert_int_gt(failed, 0);
}
END_TEST

LIFE_MAIN("doubt", test_records_late_twice_and_out_of_order_change_nothing, test_a_record_that_came_counts_though_its_sender_died,
          test_a_death_before_the_post_leaves_doubt_once_and_settles_back, test_one_publisher_makes_all_publish,
          test_nobody_publishes_what_another_rolled_back, test_what_a_rank_said_in_a_settle_that_failed_stays_true,
          test_a_second_attempt_with_fewer_survivors, test_an_attempt_that_only_one_finished_is_caught_up_with,
          test_a_frozen_rank_is_silent_and_after_a_settle_of_all_the_grid_goes_on,
          test_a_rank_that_wakes_after_a_settle_without_it_learns_that_it_is_out_and_changes_nothing,
          test_a_ring_that_moved_on_some_ranks_alone_stands_level_after_a_settle, test_a_record_lost_between_living_ranks_ends_too,
          test_records_of_an_older_epoch_are_dropped, test_taint_reaches_those_who_were_in_doubt,
          test_nothing_is_posted_in_doubt_and_unposted_steps_settle_back, test_posted_calls_that_only_some_made_are_found_by_settling,
          test_a_wrong_list_of_survivors_is_refused, test_several_steps_in_flight_settle_each_for_itself,
          test_a_record_that_found_no_memory_is_sent_later, test_a_doubt_is_told_to_those_who_would_wait, test_a_rank_that_begins_no_more_tells_those_who_have_begun,
          test_setup_calls_of_different_numbers_before_a_settle_do_not_shift_later_ones)

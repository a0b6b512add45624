/* What one rank says in a set-up call and cannot be: the others refuse it by name, publish nothing and keep nothing. Rank 1's messages are edited on their way. */
#include <kvgrid/taps_gather.h>

#include "tests/support/grid_life.h"
#include "tests/support/wire_edit.h"

static TestGrid      g;
static LifeSequences s;

static void open_two(void)
{
    KvgPlaceOptions options = life_options(2, 4u << 20);
    KvgPolicy       policy = life_policy(0);

    grid_open(&g, 2, 1, (uint32_t[]){2, 2, 0}, &options, &policy, 1);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    for (int n = 0; n < 2; n++) ck_assert_int_eq(life_grow(&g, s, 0, 3), KVG_OK);
}

/* ---- settling: u64 running, begun, decided, changes, changed; u32 steps, stored; then each step: u64 number, u32 said, u32 count, u16 stored [..] */

enum { BEGUN = 8, DECIDED = 16, STEPS = 40, FIRST = 48, STEP = 24, SAID = 8 };

static uint64_t u64_at(const uint8_t *body, size_t at)
{
    uint64_t value;
    memcpy(&value, body + at, sizeof value);
    return value;
}

static void put_u64(uint8_t *body, size_t at, uint64_t value)
{
    memcpy(body + at, &value, sizeof value);
}

static size_t cut_by_one(const KvMessageHeader *header, uint8_t *body, size_t bytes) { (void)header, (void)body; return bytes > 0 ? bytes - 1 : 0; }
static size_t says_nothing(const KvMessageHeader *header, uint8_t *body, size_t bytes) { (void)header, (void)body, (void)bytes; return 0; }
static size_t says_another_word(const KvMessageHeader *header, uint8_t *body, size_t bytes) { (void)header; body[FIRST + SAID] = 7; return bytes; }
static size_t decided_more_than_begun(const KvMessageHeader *header, uint8_t *body, size_t bytes) { (void)header; put_u64(body, DECIDED, u64_at(body, BEGUN) + 1); return bytes; }
static size_t begun_far_ahead(const KvMessageHeader *header, uint8_t *body, size_t bytes) { (void)header; put_u64(body, BEGUN, u64_at(body, BEGUN) + 100); return bytes; }
static size_t more_steps_than_places(const KvMessageHeader *header, uint8_t *body, size_t bytes) { (void)header; body[STEPS] = 100; return bytes; }

static size_t has_published_all(const KvMessageHeader *header, uint8_t *body, size_t bytes)
{
    (void)header;
    for (uint32_t i = 0; i < body[STEPS]; i++) body[FIRST + i * STEP + SAID] = 1;
    return bytes;
}

/* Rank 1's account of its steps is refused by rank 0 with `part`. A step is begun, and posted or not, on both. */
static void account_is_refused(WireEdit edit, int posted, const char *part)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    KvgStep  *steps[2];
    int       done = 0;
    KvgStatus status = KVG_OK;

    open_two();
    for (int r = 0; r < 2; r++) {
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){2}, 1, 0);
        if (posted) grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    edit_messages_of(&g.grid[1]->comm, edit);
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_grid_settle_start(g.grid[r], (int[]){0, 1}, 2, &setups[r]), KVG_OK);
    for (int rounds = 0; !done && rounds < 100000; rounds++) {
        int other;
        kvg_setup_test(setups[1], &other);
        status = kvg_setup_test(setups[0], &done);
        if (!done) kvg_inproc_advance_ns(g.hub, 100000);
    }
    ck_assert_int_eq(done, 1);
    ck_assert_msg(status == KVG_ELAYOUT && strstr(kvg_last_error(), part) != NULL, "%s: %s", kvg_status_name(status), kvg_last_error());
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "rank 1"));
    ck_assert_uint_eq(life_info(s[0][0]).rows, posted ? 8 : 6); /* every record is here: that step is decided by them, not by hearsay */
    for (int r = 0; r < 2; r++) kvg_setup_free(setups[r]);
    grid_close(&g);
}

START_TEST(test_accounts_of_steps_that_cannot_be_are_refused)
{
    account_is_refused(cut_by_one, 1, "no account of its steps");
    account_is_refused(says_nothing, 1, "no account of its steps");
    account_is_refused(more_steps_than_places, 1, "no account of its steps");
    account_is_refused(says_another_word, 1, "it says 7 of step");
    account_is_refused(decided_more_than_begun, 1, "says that it has begun");
    account_is_refused(begun_far_ahead, 1, "says that it has begun");
    account_is_refused(has_published_all, 0, "never posted here");
}
END_TEST

/* ---- changes that are voted on, and taps */

START_TEST(test_a_change_asked_in_few_bytes_is_refused)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    KvgStatus each[TEST_RANKS_MAX];

    open_two();
    edit_messages_of(&g.grid[1]->comm, cut_by_one);
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_placement_resize_start(g.placement[r], 8u << 20, &setups[r]), KVG_OK);
    grid_finish(&g, setups, each);
    ck_assert_int_eq(each[0], KVG_ELAYOUT);
    ck_assert_uint_eq(life_units_free(&g, 0) + 1, kvg_placement_plan(g.placement[0])->classes[0].units);
    wire.edit = NULL;
    grid_close(&g);
}
END_TEST

static size_t cut_rows(const KvMessageHeader *header, uint8_t *body, size_t bytes)
{
    (void)header, (void)body;
    return bytes >= 1024 ? bytes - 4 : bytes; /* a piece of rows, not the words before it */
}

static void taps_are_refused(WireEdit edit, KvgStatus code, const char *part)
{
    const uint32_t tapped[] = {0, 1};
    DflashTapSink *sink[2];
    KvgSetup      *setups[TEST_RANKS_MAX] = {0};
    KvgStatus      each[TEST_RANKS_MAX];
    KvgPolicy      policy = life_policy(0);
    KvDev          device;
    static float   hidden[8 * 64];
    char           why[512] = "";

    grid_connect(&g, 1, 2, &policy, 0);
    ck_assert_int_eq(kvg_dev_host(&device), KVG_OK);
    for (uint32_t r = 0; r < 2; r++) {
        ck_assert_int_eq(kvg_dflash_tap_new(&device, tapped, 2, r, r + 1, 64, 8, KVG_F32, &sink[r]), KVG_OK);
        ck_assert_int_eq(kvg_dflash_tap_arm(sink[r], 0), KVG_OK);
        ck_assert_int_eq(kvg_dflash_tap_write(sink[r], r, 0, 8, hidden, 0, NULL), KVG_OK);
    }
    edit_messages_of(&g.grid[0]->comm, edit); /* the first stage's, to the last */
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_taps_gather_start(g.grid[r], sink[r], 8, NULL, &setups[r]), KVG_OK);
    int done[2] = {0};
    for (int rounds = 0; !(done[0] && done[1]) && rounds < 100000; rounds++) {
        for (int r = 0; r < 2; r++) {
            if (done[r]) continue;
            each[r] = kvg_setup_test(setups[r], &done[r]);
            if (done[r] && r == 1) snprintf(why, sizeof why, "%s", kvg_last_error());
        }
        kvg_inproc_advance_ns(g.hub, 100000);
    }
    ck_assert_msg(each[1] == code && strstr(why, part) != NULL, "%s: %s", kvg_status_name(each[1]), why);
    for (int r = 0; r < 2; r++) {
        kvg_setup_free(setups[r]);
        kvg_dflash_tap_free(sink[r]);
    }
    kvg_dev_close(&device);
    grid_close(&g);
}

START_TEST(test_taps_of_another_size_are_refused)
{
    taps_are_refused(cut_by_one, KVG_ELAYOUT, "run one version");
    taps_are_refused(cut_rows, KVG_EREFUSED, "bytes of rows where");
}
END_TEST

START_TEST(test_counters_of_another_size_are_refused)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    KvgStats  ranks[2] = {{.size = sizeof ranks[0]}}, total = {0};
    KvgStep  *step;

    open_two();
    ck_assert_int_eq(kvg_stats(g.placement[0], &ranks[0]), KVG_OK);
    ck_assert_int_eq(kvg_stats_total(ranks, 1, &total), KVG_EINVAL); /* no size */
    ck_assert_int_eq(kvg_stats_total(ranks, 1, NULL), KVG_EINVAL);
    edit_messages_of(&g.grid[1]->comm, cut_by_one);
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_stats_over_grid_start(g.placement[r], NULL, NULL, &setups[r]), KVG_OK);
    ck_assert_int_eq(grid_finish(&g, setups, NULL), KVG_EFORMAT);
    wire.edit = NULL;
    step = grid_begin(&g, 0, s[0], (uint32_t[]){1}, 1, 0);
    grid_post(&g, 0, step, NULL, KVG_OK);
    kvg_inproc_kill(g.hub, 1);
    ck_assert_int_eq(kvg_step_wait(step, NULL), KVG_EINDOUBT);
    ck_assert_int_eq(kvg_stats_over_grid_start(g.placement[0], NULL, NULL, &setups[0]), KVG_EPEER); /* in doubt */
    grid_close(&g);
}
END_TEST

LIFE_MAIN("wire_refusals", test_accounts_of_steps_that_cannot_be_are_refused, test_a_change_asked_in_few_bytes_is_refused, test_taps_of_another_size_are_refused,
          test_counters_of_another_size_are_refused)

/* Grids in doubt: a hub that loses, delays and doubles what is sent, and what must hold of those who settle (S7). */
#ifndef KVG_TEST_DOUBT_LIFE_H
#define KVG_TEST_DOUBT_LIFE_H

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

static inline KvInprocFate filter(void *user, int from, int to, int is_record, const void *bytes, size_t byte_count, uint64_t *delay_ns)
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

static inline void open_grid(TestGrid *g, LifeSequences s, KvLayout layout, int ring)
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
static inline KvgStatus wait_bounded(TestGrid *g, KvgStep *step)
{
    uint64_t  before = kvg_inproc_now_ns(g->hub);
    KvgStatus status = kvg_step_wait(step, NULL);
    ck_assert_uint_le(kvg_inproc_now_ns(g->hub) - before, DEADLINE_NS + SECOND_NS);
    return status;
}

/* Every survivor settles; the others are left alone. */
static inline void settle(TestGrid *g, const int *survivors, int count, KvgStatus each[])
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    uint64_t  before = kvg_inproc_now_ns(g->hub);
    for (int i = 0; i < count; i++) {
        ck_assert_msg(kvg_grid_settle_start(g->grid[survivors[i]], survivors, count, &setups[survivors[i]]) == KVG_OK, "%s", kvg_last_error());
    }
    grid_finish(g, setups, each);
    ck_assert_uint_le(kvg_inproc_now_ns(g->hub) - before, DEADLINE_NS + SECOND_NS);
}

static inline void settle_ok(TestGrid *g, const int *survivors, int count)
{
    KvgStatus each[TEST_RANKS_MAX];
    settle(g, survivors, count, each);
    for (int i = 0; i < count; i++) ck_assert_int_eq(each[survivors[i]], KVG_OK);
    life_agree_among(g, survivors, count);
}

/* Rows, generations and digests are equal on the survivors. */
static inline void survivors_equal(TestGrid *g, LifeSequences s, const int *survivors, int count, const uint64_t rows[2])
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
static inline void only_settle_and_close(TestGrid *g, LifeSequences s, int r, KvgStep *undecided)
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

static inline void begin_and_post(TestGrid *g, LifeSequences s, const uint32_t *rows, const uint32_t *accepted, int upto, KvgStep **steps)
{
    for (int r = 0; r < upto; r++) {
        steps[r] = grid_begin(g, r, s[r], rows, 2, 0);
        grid_post(g, r, steps[r], accepted, KVG_OK);
    }
}

#endif

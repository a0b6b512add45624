/* Life of sequences on an in-process grid, for the suites of pp: posted calls on every rank at once, whose answers and counts must agree.
 *
 *   LIFE_ALL(g, r, call)   makes the call on every rank r, asserts that all answer alike, yields the answer
 *   life_agree(g)          free units, slots and sequences are the same on every rank
 *   life_main(...)         a suite's main */
#ifndef GRID_LIFE_H
#define GRID_LIFE_H

#include <stdlib.h>

#include "tests/support/inproc_grid.h"

typedef KvgSequence *LifeSequences[TEST_RANKS_MAX][8];

static inline KvgPlaceOptions life_options(uint32_t sequences, uint64_t bytes)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    options.max_sequences = sequences;
    options.memory_bytes = bytes;
    return options;
}

static inline KvgPolicy life_policy(int ring)
{
    KvgPolicy policy;
    kvg_policy_default(&policy);
    policy.swa_ring = (int8_t)ring;
    policy.timeout_ms = 1000;
    return policy;
}

static inline KvgSequenceInfo life_info(const KvgSequence *sequence)
{
    KvgSequenceInfo info = {.size = sizeof info};
    ck_assert_msg(kvg_sequence_info(sequence, &info) == KVG_OK, "%s", kvg_last_error());
    return info;
}

static inline KvgStats life_stats(const KvgPlacement *placement)
{
    KvgStats stats = {.size = sizeof stats};
    ck_assert_int_eq(kvg_stats(placement, &stats), KVG_OK);
    return stats;
}

/* Of the ranks in `some` (NULL: all). */
static inline void life_agree_among(TestGrid *g, const int *some, int count)
{
    KvgLedger first, other;
    KvgStats  stats;
    kvg_placement_ledger(g->placement[some ? some[0] : 0], &first);
    stats = life_stats(g->placement[some ? some[0] : 0]);
    for (int i = 1; i < count; i++) {
        int r = some ? some[i] : i;
        kvg_placement_ledger(g->placement[r], &other);
        ck_assert_uint_eq(other.class_count, first.class_count);
        ck_assert_uint_eq(other.slots_free, first.slots_free);
        for (uint32_t c = 0; c < first.class_count; c++) {
            ck_assert_msg(other.units_free[c] == first.units_free[c], "class %u: rank %d has %u units free, the first %u", c, r,
                          other.units_free[c], first.units_free[c]);
            ck_assert_uint_eq(other.classes[c].units, first.classes[c].units);
        }
        ck_assert_uint_eq(life_stats(g->placement[r]).sequences_open, stats.sequences_open);
        if (kvg_grid_epoch(g->grid[r]) > 1) continue; /* counters of what was tried: survivors of a doubt may have tried different things */
        ck_assert_uint_eq(life_stats(g->placement[r]).grows, stats.grows);
        ck_assert_mem_eq(life_stats(g->placement[r]).refusals, stats.refusals, sizeof stats.refusals);
    }
}

static inline void life_agree(TestGrid *g)
{
    life_agree_among(g, NULL, g->ranks);
}

static inline uint32_t life_units_free(TestGrid *g, uint32_t class_index)
{
    KvgLedger ledger;
    kvg_placement_ledger(g->placement[0], &ledger);
    return ledger.units_free[class_index];
}

#define LIFE_ALL(g, r, call)                                                                                             \
    ({                                                                                                                   \
        KvgStatus all_ = KVG_OK;                                                                                         \
        for (int r = 0; r < (g)->ranks; r++) {                                                                           \
            KvgStatus one_ = (call);                                                                                     \
            if (r == 0) all_ = one_;                                                                                     \
            ck_assert_msg(one_ == all_, "rank %d answers %s, rank 0 %s: %s", r, kvg_status_name(one_),                   \
                          kvg_status_name(all_), kvg_last_error());                                                      \
        }                                                                                                                \
        life_agree(g);                                                                                                   \
        all_;                                                                                                            \
    })

static inline KvgStatus life_open(TestGrid *g, LifeSequences s, uint32_t slot, uint64_t id, uint64_t rows)
{
    return LIFE_ALL(g, r, kvg_sequence_open(g->placement[r], id, rows, &s[r][slot]));
}

static inline KvgStatus life_close(TestGrid *g, LifeSequences s, uint32_t slot)
{
    return LIFE_ALL(g, r, kvg_sequence_close(s[r][slot], NULL));
}

/* One step of one sequence in place 0 on every rank, all rows kept. */
static inline KvgStatus life_grow(TestGrid *g, LifeSequences s, uint32_t slot, uint32_t rows)
{
    LifeSequences one;
    for (int r = 0; r < g->ranks; r++) one[r][0] = s[r][slot];
    return grid_step(g, one, (uint32_t[8]){rows}, 1, NULL, -1);
}

static inline void life_digest(TestGrid *g, LifeSequences s, uint32_t slot, char hex[33])
{
    grid_digest(g, s, slot, hex);
}

static inline uint64_t life_draw(uint64_t *state, uint64_t below)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (x ^ (x >> 31)) % below;
}

static inline int life_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);
    srunner_free(runner);
    return failed != 0;
}

/* A main of one test case; the tests follow, ended by NULL. */
#define LIFE_MAIN(name, ...)                                                                                             \
    int main(void)                                                                                                       \
    {                                                                                                                    \
        if (test_device_missing()) return test_device_missing();                                                         \
        const TTest *tests[] = {__VA_ARGS__};                                                                            \
        Suite       *suite = suite_create(name);                                                                         \
        TCase       *tc = tcase_create(name);                                                                            \
        tcase_set_timeout(tc, 120);                                                                                      \
        for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(tc, tests[i]);                          \
        suite_add_tcase(suite, tc);                                                                                      \
        return life_run(suite);                                                                                          \
    }

#endif

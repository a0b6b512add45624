/* Several steps in flight: whatever the order in which ranks decide, they refuse and count alike. */
#include "tests/support/grid_life.h"

#define SEQUENCES 6
#define BATCHES   4

typedef struct Flight {
    TestGrid      g;
    LifeSequences s;
    KvgBatch     *batch[TEST_RANKS_MAX][BATCHES];
    KvgStep      *step[TEST_RANKS_MAX][BATCHES]; /* posted and not seen decided by every rank; NULL: none */
    int           seen[TEST_RANKS_MAX][BATCHES];
    uint64_t      seed;
} Flight;

static void flight_open(Flight *f, uint32_t tp, uint32_t pp, uint32_t window, KvLayout layout, uint32_t in_flight, uint64_t bytes)
{
    KvgPlaceOptions options = life_options(SEQUENCES, bytes);
    KvgPolicy       policy = life_policy(1);
    options.layout = layout;
    options.prefill_chunk_max = 256;
    grid_connect(&f->g, tp, pp, &policy, in_flight);
    f->g.config = test_model(4, 4, window, 2048);
    ck_assert_msg(grid_place(&f->g, &f->g.config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < f->g.ranks; r++) {
        for (int b = 0; b < BATCHES; b++) {
            ck_assert_int_eq(kvg_batch_create(f->g.placement[r], SEQUENCES, &f->batch[r][b]), KVG_OK);
            f->step[r][b] = NULL;
            f->seen[r][b] = 1;
        }
    }
}

static void flight_close(Flight *f)
{
    for (int r = 0; r < f->g.ranks; r++) {
        for (int b = 0; b < BATCHES; b++) kvg_batch_destroy(f->batch[r][b]);
    }
    grid_close(&f->g);
}

/* Rank r looks at some of its undecided steps, in an order of its own. */
static void look(Flight *f, int r)
{
    for (int n = 0; n < 2; n++) {
        int b = (int)life_draw(&f->seed, BATCHES), done = 0;
        KvgOutcome outcome;
        if (f->step[r][b] == NULL || f->seen[r][b]) continue;
        KvgStatus status = kvg_step_test(f->step[r][b], &done, &outcome);
        if (!done) {
            ck_assert_int_eq(status, KVG_OK);
            continue;
        }
        f->seen[r][b] = 1;
        for (uint32_t slot = 0; slot < SEQUENCES; slot++) { /* the arrays are there and mean something */
            ck_assert_uint_le(outcome.accepted[slot], outcome.kind == KVG_OUTCOME_PUBLISHED ? 256 : 0);
            ck_assert_uint_eq(outcome.replay[slot], 0);
        }
    }
}

/* Begins, writes nothing and posts one step on every rank, each rank at a time of its own; compares every refusal. */
static void fly(Flight *f, int b, uint64_t mask)
{
    TestGrid *g = &f->g;
    uint32_t  rows[SEQUENCES], keep[SEQUENCES];
    KvgStatus refusals[SEQUENCES] = {KVG_OK}, begun = KVG_OK;
    int       refuser = life_draw(&f->seed, 5) == 0 ? (int)life_draw(&f->seed, (uint64_t)g->ranks) : -1;
    for (uint32_t q = 0; q < SEQUENCES; q++) {
        rows[q] = mask >> q & 1 ? (uint32_t)life_draw(&f->seed, 200) + 1 : 0;
        keep[q] = rows[q] > 0 ? (uint32_t)life_draw(&f->seed, rows[q] + 1) : 0;
    }
    for (int r = 0; r < g->ranks; r++) {
        KvgStep *step = NULL;
        for (int n = (int)life_draw(&f->seed, 4); n > 0; n--) look(f, r);
        for (uint32_t q = 0; q < SEQUENCES; q++) ck_assert_int_eq(kvg_batch_set(f->batch[r][b], q, f->s[r][q]), KVG_OK);
        KvgStatus status = kvg_step_begin(f->batch[r][b], rows, &step);
        ck_assert_msg(status == KVG_OK, "%s", kvg_last_error());
        begun = r == 0 ? status : begun;
        for (uint32_t q = 0; q < SEQUENCES; q++) {
            if (r == 0) refusals[q] = kvg_step_refusal(step, q);
            ck_assert_msg(kvg_step_refusal(step, q) == refusals[q], "sequence %u: rank %d says %s, rank 0 %s", q, r,
                          kvg_status_name(kvg_step_refusal(step, q)), kvg_status_name(refusals[q]));
            if (refusals[q] != KVG_OK) keep[q] = 0;
        }
        f->step[r][b] = step;
        f->seen[r][b] = 0;
        grid_post(g, r, step, keep, r == refuser ? KVG_EIO : KVG_OK);
    }
    (void)begun;
    life_agree(g);
}

static void random_life(uint64_t seed, uint32_t tp, uint32_t pp, uint32_t window, KvLayout layout, uint32_t in_flight)
{
    Flight f = {.seed = seed};
    flight_open(&f, tp, pp, window, layout, in_flight, window ? 440u << 10 : 260u << 10);
    TestGrid *g = &f.g;
    int       refused = 0;
    for (uint32_t q = 0; q < SEQUENCES; q++) ck_assert_msg(life_open(g, f.s, q, q + 1, q * 20) == KVG_OK, "%s (seed %llu)", kvg_last_error(), (unsigned long long)seed);
    for (int n = 0; n < 150; n++) {
        uint32_t q = (uint32_t)life_draw(&f.seed, SEQUENCES);
        switch (life_draw(&f.seed, 10)) {
        case 0: { /* a new life */
            ck_assert_int_eq(life_close(g, f.s, q), KVG_OK);
            uint64_t rows = life_draw(&f.seed, 200);
            if (life_open(g, f.s, q, 1000 + (uint64_t)n, rows) != KVG_OK) ck_assert_int_eq(life_open(g, f.s, q, 1000 + (uint64_t)n, 0), KVG_OK);
            break;
        }
        case 1: {
            uint64_t rows = life_draw(&f.seed, 100);
            LIFE_ALL(g, r, (look(&f, r), kvg_sequence_rewind(f.s[r][q], rows)));
            break;
        }
        case 2: LIFE_ALL(g, r, kvg_sequence_trim(f.s[r][q])); break;
        case 3: {
            uint64_t rows = life_draw(&f.seed, 400);
            LIFE_ALL(g, r, kvg_sequence_book(f.s[r][q], rows));
            break;
        }
        case 4: { /* fork over another */
            uint32_t from = (q + 1) % SEQUENCES;
            uint64_t rows = life_draw(&f.seed, 150);
            ck_assert_int_eq(life_close(g, f.s, q), KVG_OK);
            if (LIFE_ALL(g, r, kvg_sequence_fork(f.s[r][from], rows, 5000 + (uint64_t)n, &f.s[r][q])) != KVG_OK) {
                ck_assert_int_eq(life_open(g, f.s, q, 5000 + (uint64_t)n, 0), KVG_OK);
            }
            break;
        }
        default: fly(&f, n % BATCHES, life_draw(&f.seed, 1u << SEQUENCES)); break;
        }
        if (n % 10 == 0) kvg_inproc_advance_ns(g->hub, 1000000);
    }
    for (uint32_t q = 0; q < SEQUENCES; q++) ck_assert_int_eq(life_close(g, f.s, q), KVG_OK);
    for (int r = 0; r < g->ranks; r++) {
        ck_assert_uint_eq(life_stats(g->placement[r]).booked_bytes, 0);
        refused += life_stats(g->placement[r]).refusals[KVG_ECAPACITY] > 0;
    }
    ck_assert_int_gt(refused, 0); /* the pool was small enough to matter */
    flight_close(&f);
}

START_TEST(test_random_schedules_keep_every_count_and_refusal_alike)
{
    const char *replay = getenv("KVG_TEST_SEED");
    for (uint64_t seed = replay ? strtoull(replay, NULL, 10) : 1; seed <= (replay ? strtoull(replay, NULL, 10) : 40); seed++) {
        random_life(seed, 2, 2, seed % 2 ? 64 : 0, seed % 3 == 0 ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL, (uint32_t)(seed % 5));
    }
}
END_TEST

START_TEST(test_units_behind_a_window_come_free_at_the_agreed_begin)
{
    /* A step's freed units count from the begin of step +W on, though one rank knew long before; or when its sequence is named again. */
    Flight f = {.seed = 1};
    flight_open(&f, 2, 1, 64, KVG_LAYOUT_POOL, 2, 2u << 20);
    TestGrid *g = &f.g;
    KvgStep  *steps[TEST_RANKS_MAX];
    for (uint32_t q = 0; q < 3; q++) ck_assert_int_eq(life_open(g, f.s, q, q + 1, 0), KVG_OK);
    for (int n = 0; n < 3; n++) { /* 768 rows: 64 + 512 behind are kept, the rest may go */
        for (int r = 0; r < g->ranks; r++) {
            for (uint32_t q = 0; q < 3; q++) ck_assert_int_eq(kvg_batch_set(f.batch[r][0], q, f.s[r][q]), KVG_OK);
            ck_assert_int_eq(kvg_step_begin(f.batch[r][0], (uint32_t[SEQUENCES]){256}, &steps[r]), KVG_OK);
            grid_post(g, r, steps[r], NULL, KVG_OK);
        }
        ck_assert_int_eq(grid_decide(g, steps, NULL), KVG_OK);
    }
    uint32_t class_index = life_units_free(g, 0) < life_units_free(g, 1) ? 0 : 1, before[2];
    (void)class_index;
    before[0] = life_units_free(g, 0);
    before[1] = life_units_free(g, 1);
    uint64_t came[3];
    for (int n = 0; n < 3; n++) { /* three steps of others: step 4 is 3+1, step 5 is 3+W */
        for (int r = 0; r < g->ranks; r++) {
            ck_assert_int_eq(kvg_step_begin(f.batch[r][1], (uint32_t[SEQUENCES]){0}, &steps[r]), KVG_OK);
            grid_post(g, r, steps[r], NULL, KVG_OK);
        }
        came[n] = life_units_free(g, 0) + life_units_free(g, 1) - before[0] - before[1];
        ck_assert_int_eq(grid_decide(g, steps, NULL), KVG_OK);
    }
    ck_assert_uint_eq(came[0], 0);
    ck_assert_uint_gt(came[1], 0);
    ck_assert_uint_eq(came[2], came[1]);
    flight_close(&f);
}
END_TEST

START_TEST(test_steps_over_disjoint_sequences_are_decided_in_any_order)
{
    Flight f = {.seed = 3};
    flight_open(&f, 1, 2, 64, KVG_LAYOUT_POOL, 4, 4u << 20);
    TestGrid *g = &f.g;
    KvgStep  *steps[TEST_RANKS_MAX][BATCHES], *fifth;
    for (uint32_t q = 0; q < 4; q++) ck_assert_int_eq(life_open(g, f.s, q, q + 1, 0), KVG_OK);
    for (int round = 0; round < 5; round++) { /* more than the 2W places that steps have */
        for (int r = 0; r < 2; r++) {
            for (uint32_t b = 0; b < 4; b++) {
                uint32_t rows[SEQUENCES] = {0};
                rows[b] = b + 1;
                ck_assert_int_eq(kvg_batch_set(f.batch[r][b], b, f.s[r][b]), KVG_OK);
                ck_assert_int_eq(kvg_step_begin(f.batch[r][b], rows, &steps[r][b]), KVG_OK);
                ck_assert_uint_eq(kvg_step_number(steps[r][b]), (uint64_t)round * 4 + b + 1);
                grid_post(g, r, steps[r][b], NULL, KVG_OK);
            }
        }
        for (int r = 0; r < 2; r++) {
            for (int n = 0; n < 4; n++) {
                uint32_t   b = (uint32_t)(r == 0 ? 3 - n : (n * 3 + round) % 4);
                KvgOutcome outcome;
                ck_assert_int_eq(kvg_step_wait(steps[r][b], &outcome), KVG_OK);
                ck_assert_uint_eq(outcome.accepted[b], b + 1);
                ck_assert_uint_eq(outcome.step, (uint64_t)round * 4 + b + 1);
                ck_assert_uint_eq(life_info(f.s[r][b]).rows, (uint64_t)(round + 1) * (b + 1));
            }
        }
        life_agree(g);
    }
    /* W are begun and none is posted: another begin is refused at once, on every rank alike, and nothing is lost */
    for (int r = 0; r < 2; r++) {
        KvgBatch *more;
        ck_assert_int_eq(kvg_batch_create(g->placement[r], 1, &more), KVG_OK);
        for (uint32_t b = 0; b < 4; b++) {
            uint32_t rows[SEQUENCES] = {0};
            rows[b] = 1;
            ck_assert_int_eq(kvg_step_begin(f.batch[r][b], rows, &steps[r][b]), KVG_OK);
        }
        ck_assert_int_eq(kvg_step_begin(more, (uint32_t[]){0}, &fifth), KVG_EBUSY);
        kvg_batch_destroy(more);
        for (uint32_t b = 4; b-- > 0;) grid_post(g, r, steps[r][b], NULL, KVG_OK); /* posted out of order */
    }
    for (int r = 0; r < 2; r++) {
        for (uint32_t b = 0; b < 4; b++) ck_assert_int_eq(kvg_step_wait(steps[r][b], NULL), KVG_OK);
    }
    life_agree(g);
    flight_close(&f);
}
END_TEST

START_TEST(test_one_rank_may_run_ahead_by_W_steps)
{
    Flight f = {.seed = 3};
    flight_open(&f, 2, 1, 0, KVG_LAYOUT_POOL, 3, 4u << 20);
    TestGrid *g = &f.g;
    KvgStep  *ahead[3], *behind;
    for (uint32_t q = 0; q < 3; q++) ck_assert_int_eq(life_open(g, f.s, q, q + 1, 0), KVG_OK);
    for (int round = 0; round < 6; round++) {
        int fast = round % 2, slow = 1 - fast;
        for (uint32_t b = 0; b < 3; b++) {
            ck_assert_int_eq(kvg_batch_set(f.batch[fast][b], 0, f.s[fast][b]), KVG_OK);
            ck_assert_int_eq(kvg_step_begin(f.batch[fast][b], (uint32_t[SEQUENCES]){5}, &ahead[b]), KVG_OK);
            grid_post(g, fast, ahead[b], NULL, KVG_OK);
        }
        for (uint32_t b = 0; b < 3; b++) {
            ck_assert_int_eq(kvg_batch_set(f.batch[slow][b], 0, f.s[slow][b]), KVG_OK);
            ck_assert_int_eq(kvg_step_begin(f.batch[slow][b], (uint32_t[SEQUENCES]){5}, &behind), KVG_OK);
            grid_post(g, slow, behind, NULL, KVG_OK);
            ck_assert_int_eq(kvg_step_wait(behind, NULL), KVG_OK);
        }
        for (uint32_t b = 0; b < 3; b++) ck_assert_int_eq(kvg_step_wait(ahead[b], NULL), KVG_OK);
        life_agree(g);
    }
    flight_close(&f);
}
END_TEST

START_TEST(test_a_placement_that_goes_leaves_its_undecided_steps_to_the_grid)
{
    for (int posted = 0; posted <= 1; posted++) {
        TestGrid        g;
        KvgPlaceOptions options = life_options(4, 2u << 20);
        KvgPolicy       policy = life_policy(1);
        LifeSequences   s, t;
        KvgPlacement   *second[TEST_RANKS_MAX];
        KvgBatch       *batch[TEST_RANKS_MAX];
        KvgStep        *steps[TEST_RANKS_MAX], *joint[TEST_RANKS_MAX];
        KvgSetup       *setups[TEST_RANKS_MAX] = {0};
        grid_open(&g, 1, 2, (uint32_t[]){4, 4, 64}, &options, &policy, 2);
        for (int r = 0; r < 2; r++) {
            ck_assert_msg(kvg_place_start(g.grid[r], &g.config, &options, &second[r], &setups[r]) == KVG_OK, "%s", kvg_last_error());
        }
        ck_assert_msg(grid_finish(&g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
        for (int r = 0; r < 2; r++) {
            ck_assert_int_eq(kvg_batch_create(second[r], 2, &batch[r]), KVG_OK);
            ck_assert_int_eq(kvg_sequence_open(g.placement[r], 1, 0, &s[r][0]), KVG_OK);
            ck_assert_int_eq(kvg_sequence_open(second[r], 1, 0, &t[r][0]), KVG_OK);
            ck_assert_int_eq(kvg_batch_set(g.batch[r], 0, s[r][0]), KVG_OK);
            ck_assert_int_eq(kvg_batch_set(batch[r], 0, t[r][0]), KVG_OK);
        }
        for (int n = 0; n < 3; n++) { /* the second's sequence is named by several steps */
            for (int r = 0; r < 2; r++) {
                ck_assert_int_eq(kvg_step_begin(batch[r], (uint32_t[]){5, 0}, &steps[r]), KVG_OK);
                grid_post(&g, r, steps[r], NULL, KVG_OK);
            }
            ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_OK);
        }
        for (int r = 0; r < 2; r++) {
            const uint32_t *rows[] = {(uint32_t[]){3, 0}, (uint32_t[]){4, 0}};
            KvgBatch       *both[] = {g.batch[r], batch[r]};
            ck_assert_msg(kvg_step_begin_joint(both, rows, 2, &joint[r]) == KVG_OK, "%s", kvg_last_error());
            if (posted) grid_post(&g, r, joint[r], NULL, KVG_OK);
        }
        for (int r = 0; r < 2; r++) {
            kvg_batch_destroy(batch[r]);
            kvg_placement_destroy(second[r]);
            if (!posted) {
                ck_assert_int_eq(kvg_step_extend(joint[r], (uint32_t[]){1, 0, 1, 0}), KVG_OK); /* another pass of what is left */
                grid_post(&g, r, joint[r], NULL, KVG_OK);
            }
        }
        ck_assert_int_eq(grid_decide(&g, joint, NULL), KVG_OK);
        for (int r = 0; r < 2; r++) ck_assert_uint_eq(life_info(s[r][0]).rows, posted ? 3 : 4);
        for (int n = 0; n < 12; n++) ck_assert_int_eq(life_grow(&g, s, 0, 1), KVG_OK);
        grid_close(&g);
    }
}
END_TEST

LIFE_MAIN("flight", test_random_schedules_keep_every_count_and_refusal_alike, test_units_behind_a_window_come_free_at_the_agreed_begin,
          test_steps_over_disjoint_sequences_are_decided_in_any_order, test_one_rank_may_run_ahead_by_W_steps,
          test_a_placement_that_goes_leaves_its_undecided_steps_to_the_grid)

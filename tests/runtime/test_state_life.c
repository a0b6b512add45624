/* Random life of sequences against the naive model of state_model.h: the same operations go to a pool, to flat planes in reserved
 * ranges and to flat planes that grow by copying. After each, lengths, unit counts and sampled rows are compared; now and then
 * every row, and the digests of all three.
 * KVG_TEST_SEED and KVG_TEST_STEPS replay a run; both are in every message. */
#include <inttypes.h>
#include <stdio.h>

#include "tests/runtime/state_fixture.h"
#include "tests/runtime/state_model.h"

enum { WINDOW = 40, PREFILL = 100, SYSTEMS = 3, POOL = 0, FLAT = 1, PLAIN = 2, POOL_UNITS = 62, FULL_CHECK_EVERY = 257 };

typedef struct System {
    Fixture         fixture;
    KvCache         caches[MODEL_SEQS];
    KvCacheSnapshot snapshots[MODEL_SEQS][MODEL_SNAPSHOTS];
} System;

static System   systems[SYSTEMS];
static Model    model;
static uint64_t seed, step, random_state, next_key, next_serial;
static uint64_t longest;  /* sequence of this life */
static uint64_t done[32]; /* how often each operation went through: a life in which some never do proves little */

#define LIFE_ASSERT(condition, ...)                                                                                          \
    do {                                                                                                                     \
        if (!(condition)) {                                                                                                  \
            fprintf(stderr, "seed %" PRIu64 " step %" PRIu64 ": ", seed, step);                                              \
            fprintf(stderr, __VA_ARGS__);                                                                                    \
            ck_abort_msg("%s:%d seed %" PRIu64 " step %" PRIu64 ": %s; last error: %s", __FILE__, __LINE__, seed, step, #condition, \
                         kvg_last_error());                                                                                  \
        }                                                                                                                    \
    } while (0)

static uint64_t draw(uint64_t below)
{
    random_state += 0x9e3779b97f4a7c15u;
    return kvg_mix64(random_state) % below;
}

/* ---- what must hold after every operation */

static uint64_t reach(const ModelSeq *s, int system, int c)
{
    if (system == POOL) return s->base[c];
    const TpKvState *state = &systems[system].caches[s - model.seqs].classes[c];
    return state->ring.base;
}

static void check_counts(void)
{
    for (int c = 0; c < MODEL_CLASSES; c++) {
        LIFE_ASSERT((int)kvg_store_units_free(systems[POOL].fixture.store, (uint32_t)c) == model_free(&model, c),
                    "class %d: %u units free, the model has %d\n", c, kvg_store_units_free(systems[POOL].fixture.store, (uint32_t)c),
                    model_free(&model, c));
    }
    for (int k = 0; k < SYSTEMS; k++) LIFE_ASSERT(kvg_store_check(systems[k].fixture.store) == KVG_OK, "system %d\n", k);
}

static void check_lengths(int index)
{
    const ModelSeq *s = &model.seqs[index];

    for (int k = 0; k < SYSTEMS; k++) {
        const KvCache     *cache = &systems[k].caches[index];
        const KvPlaneView *view = kvg_store_view(systems[k].fixture.store, 1);

        LIFE_ASSERT(cache->pos == s->len && kvg_kv_cache_staged(cache) == s->staged, "system %d sequence %d\n", k, index);
        LIFE_ASSERT(view->len[index] == s->len && view->len_staged[index] == s->staged, "system %d sequence %d\n", k, index);
        LIFE_ASSERT(view->base_row[index] == reach(s, k, 1), "system %d sequence %d\n", k, index);
    }
    for (uint32_t c = 0; c < MODEL_CLASSES; c++) {
        LIFE_ASSERT((int)kvg_store_end(systems[POOL].fixture.store, c, (uint32_t)index) == s->end[c], "class %u\n", c);
        LIFE_ASSERT((int)kvg_store_held(systems[POOL].fixture.store, c, (uint32_t)index) == s->end[c] - s->first[c], "class %u\n", c);
    }
}

static void check_row(int index, uint64_t row)
{
    const ModelSeq *s = &model.seqs[index];

    for (int k = 0; k < SYSTEMS; k++) {
        LIFE_ASSERT(fixture_row_is(&systems[k].fixture, (uint32_t)index, s->len, row, s->keys[row]),
                    "system %d sequence %d row %" PRIu64 " of %" PRIu64 "\n", k, index, row, s->staged);
    }
}

static void check_sequence(int index)
{
    const ModelSeq *s = &model.seqs[index];

    if (!s->open) return;
    check_lengths(index);
    for (int i = 0; i < 3 && s->staged > 0; i++) check_row(index, draw(s->staged));
    if (s->staged > 0) check_row(index, s->staged - 1);
}

static void check_everything(void)
{
    for (int i = 0; i < MODEL_SEQS; i++) {
        if (!model.seqs[i].open) continue;
        for (uint64_t row = 0; row < model.seqs[i].staged; row++) check_row(i, row);
        KvDigest digest = fixture_digest(&systems[POOL].caches[i]);
        for (int k = 1; k < SYSTEMS; k++) {
            KvDigest other = fixture_digest(&systems[k].caches[i]);
            LIFE_ASSERT(memcmp(&digest, &other, sizeof digest) == 0, "system %d sequence %d: another digest\n", k, i);
        }
    }
}

/* ---- operations. Each is predicted; where one system must refuse, only those that must are asked, and nobody changes. */

static int flat_holds(int system, const ModelSeq *s, uint64_t len)
{
    return model_view_start(len, WINDOW) >= reach(s, system, 1);
}

static void op_open(int index)
{
    if (model.seqs[index].open) return;
    model_open(&model.seqs[index], ++next_serial);
    for (int k = 0; k < SYSTEMS; k++) {
        kvg_kv_cache_open(systems[k].fixture.store, (uint32_t)index, next_serial, &systems[k].caches[index]);
    }
    done[0]++;
}

static void op_close(int index)
{
    for (int k = 0; k < SYSTEMS; k++) kvg_kv_cache_close(&systems[k].caches[index], NULL);
    model_close(&model, &model.seqs[index]);
    done[1]++;
}

static void op_book(int index)
{
    ModelSeq *s = &model.seqs[index];
    uint64_t  target = draw(8) == 0 ? MODEL_CTX + 1 + draw(9) : s->staged + draw(MODEL_CTX - s->staged + 1);

    if (draw(2) == 0) { /* the most there is: a full pool is where refusals live */
        for (target = MODEL_CTX; target > s->staged && !model_can_book(&model, s, target);) target--;
    }
    if (target > MODEL_CTX || !model_can_book(&model, s, target)) {
        LIFE_ASSERT(kvg_kv_cache_book(&systems[POOL].caches[index], target) == KVG_ECAPACITY, "book %" PRIu64 "\n", target);
        done[2]++;
        return;
    }
    for (int k = 0; k < SYSTEMS; k++) LIFE_ASSERT(kvg_kv_cache_book(&systems[k].caches[index], target) == KVG_OK, "system %d\n", k);
    model_book(&model, s, target);
    if (target > s->guarantee) s->guarantee = target;
    done[3]++;
}

static void op_begin(int index)
{
    ModelSeq *s = &model.seqs[index];

    if (!s->in_step && s->behind && draw(2) == 0) { /* or it waits on: what is booked counts from the base all the same */
        for (int k = 0; k < SYSTEMS; k++) kvg_kv_cache_release_behind(&systems[k].caches[index]);
        model_release_behind(&model, s);
    }
    for (int k = 0; k < SYSTEMS; k++) {
        LIFE_ASSERT(kvg_kv_cache_begin(&systems[k].caches[index]) == (s->in_step ? KVG_EBUSY : KVG_OK), "system %d\n", k);
    }
    s->in_step = 1;
}

static void write_staged(int index, uint64_t from)
{
    ModelSeq *s = &model.seqs[index];

    for (uint64_t row = from; row < s->staged; row++) {
        s->keys[row] = ++next_key;
        for (int k = 0; k < SYSTEMS; k++) fixture_write(&systems[k].fixture, (uint32_t)index, row, next_key);
    }
}

static void op_append(int index)
{
    ModelSeq *s = &model.seqs[index];
    uint64_t  room = PREFILL - (s->staged - s->len), most = draw(2) == 0 ? PREFILL : 5;
    uint64_t  rows = 1 + draw(most), from = s->staged;

    if (!s->in_step) {
        LIFE_ASSERT(kvg_kv_cache_append(&systems[draw(SYSTEMS)].caches[index], (uint32_t)rows, NULL) == KVG_ESTALE, "append\n");
        return;
    }
    if (s->staged + rows <= MODEL_CTX && rows > room) return; /* one step stages at most a prefill chunk */
    if (s->staged + rows > MODEL_CTX || !model_can_book(&model, s, s->staged + rows)) {
        LIFE_ASSERT(kvg_kv_cache_append(&systems[POOL].caches[index], (uint32_t)rows, NULL) == KVG_ECAPACITY, "append\n");
        done[4]++;
        return;
    }
    for (int k = 0; k < SYSTEMS; k++) {
        LIFE_ASSERT(kvg_kv_cache_append(&systems[k].caches[index], (uint32_t)rows, NULL) == KVG_OK, "system %d\n", k);
    }
    model_book(&model, s, s->staged + rows);
    s->staged += rows;
    write_staged(index, from);
    done[5]++;
}

static void op_finalize(int index)
{
    ModelSeq *s = &model.seqs[index];
    uint64_t  staged = s->staged - s->len, accepted = draw(6) == 0 ? 0 : draw(3) != 0 ? staged : draw(staged + 1);

    if (!s->in_step) return;
    for (int k = 0; k < SYSTEMS; k++) kvg_kv_cache_finalize(&systems[k].caches[index], accepted);
    model_finalize(&model, s, accepted);
    if (s->len > longest) longest = s->len;
    if (draw(4) != 0) {
        for (int k = 0; k < SYSTEMS; k++) kvg_kv_cache_release_behind(&systems[k].caches[index]);
        model_release_behind(&model, s);
    }
    done[accepted == 0 ? 6 : accepted < staged ? 7 : 8]++;
}

static uint64_t draw_back(uint64_t len)
{
    switch (draw(16)) { /* seldom far, or no sequence would outgrow its ring */
    case 0: return draw(len + 1);
    case 1: return len - draw(kvg_min_u64(len, 300) + 1);
    case 2:
    case 3: return len / 64 * 64;
    default: return len - draw(kvg_min_u64(len, 40) + 1);
    }
}

/* A length in the last chunk that the sequence shares: what a rewind must copy first. */
static uint64_t draw_shared(const ModelSeq *s)
{
    for (int e = (int)(s->len / 64); e-- > s->first[0];) {
        if (model_shared(&model, s, 0, e)) return (uint64_t)e * 64 + draw(64);
    }
    return draw_back(s->len);
}

/* Asks those that must refuse, and says whether anybody must. */
static int refused_rewind(int index, uint64_t len)
{
    ModelSeq *s = &model.seqs[index];
    int       refused = 0;

    for (int k = 0; k < SYSTEMS; k++) {
        KvgStatus expected = KVG_OK;

        if (k == POOL ? !model_rewind_held(&model, s, len) : !flat_holds(k, s, len)) expected = KVG_ELAPPED;
        else if (k == POOL && !model_rewind_fits(&model, s, len)) expected = KVG_ECAPACITY;
        if (expected == KVG_OK) continue;
        LIFE_ASSERT(kvg_kv_cache_rewind_to(&systems[k].caches[index], len, NULL) == expected, "system %d rewind %" PRIu64 "\n", k, len);
        refused = 1;
        done[expected == KVG_ELAPPED ? 9 : 10]++;
    }
    return refused;
}

static void op_rewind(int index)
{
    ModelSeq *s = &model.seqs[index];
    uint64_t  len = draw(16) == 0 ? s->len + 1 : draw(3) == 0 ? draw_shared(s) : draw_back(s->len);

    if (len > s->len) {
        KvgStatus expected = len > MODEL_CTX ? KVG_ECAPACITY : KVG_EINVAL;
        for (int k = 0; k < SYSTEMS; k++) {
            LIFE_ASSERT(kvg_kv_cache_rewind_to(&systems[k].caches[index], len, NULL) == expected, "system %d\n", k);
        }
        return;
    }
    if (refused_rewind(index, len)) return;
    for (int k = 0; k < SYSTEMS; k++) LIFE_ASSERT(kvg_kv_cache_rewind_to(&systems[k].caches[index], len, NULL) == KVG_OK, "system %d\n", k);
    model_rewind(&model, s, len);
    done[11]++;
}

static void op_trim(int index)
{
    ModelSeq *s = &model.seqs[index];

    for (int k = 0; k < SYSTEMS; k++) {
        LIFE_ASSERT(kvg_kv_cache_trim(&systems[k].caches[index]) == (s->in_step ? KVG_EBUSY : KVG_OK), "system %d\n", k);
    }
    if (s->in_step) return;
    model_trim_to(&model, s, model_chunks(s->len));
    if (s->guarantee > s->len) s->guarantee = s->len;
    done[12]++;
}

static void op_fork(int index)
{
    ModelSeq *s = &model.seqs[index];
    uint64_t  rows = draw(8) == 0 ? s->len + 1 : draw_back(s->len);
    int       child = 0, refused = 0;

    while (child < MODEL_SEQS && model.seqs[child].open) child++;
    if (child == MODEL_SEQS) return;
    op_open(child);
    for (int k = 0; k < SYSTEMS; k++) {
        KvgStatus expected = KVG_OK;

        if (rows > s->len) expected = KVG_EINVAL;
        else if (s->in_step) expected = KVG_EBUSY;
        else if (rows < reach(s, k, 1) || (rows > 0 && model_view_start(rows, WINDOW) < reach(s, k, 1))) expected = KVG_ELAPPED;
        else if (k == POOL && !model_fork_fits(&model, rows)) expected = KVG_ECAPACITY;
        if (expected == KVG_OK) continue;
        LIFE_ASSERT(kvg_kv_cache_fork(&systems[k].caches[index], rows, &systems[k].caches[child], NULL) == expected, "system %d\n", k);
        refused = 1;
    }
    if (refused) {
        op_close(child);
        done[13]++;
        return;
    }
    for (int k = 0; k < SYSTEMS; k++) {
        LIFE_ASSERT(kvg_kv_cache_fork(&systems[k].caches[index], rows, &systems[k].caches[child], NULL) == KVG_OK, "system %d\n", k);
    }
    model_fork(&model, s, rows, &model.seqs[child]);
    check_sequence(child);
    done[14]++;
}

static void op_snapshot(int index)
{
    ModelSeq *s = &model.seqs[index];
    int       i = (int)draw(MODEL_SNAPSHOTS);

    s->snapshots[i] = (ModelSnapshot){.used = 1, .serial = s->serial, .pos = s->len, .shortest = s->len};
    for (int k = 0; k < SYSTEMS; k++) fixture_snapshot(&systems[k].caches[index], &systems[k].snapshots[index][i]);
    done[15]++;
}

static void op_rollback(int index)
{
    ModelSeq      *s = &model.seqs[index];
    int            i = (int)draw(MODEL_SNAPSHOTS);
    ModelSnapshot *taken = &s->snapshots[i];
    uint64_t       written = s->len > taken->pos ? s->len - taken->pos : 0;
    uint64_t       accept = draw(6) == 0 ? written + 1 : draw(written + 1), len = taken->pos + accept;
    int            stale = taken->shortest < taken->pos, everyone = 1;

    if (!taken->used) return;
    for (int k = 0; k < SYSTEMS; k++) {
        const KvCache *cache = &systems[k].caches[index];
        int            held = k == POOL ? model_rewind_held(&model, s, len) : flat_holds(k, s, len);
        int            expected = !stale && accept <= written && held;
        int            can = kvg_kv_cache_can_rollback(cache, &systems[k].snapshots[index][i], accept);

        /* folded cuts may refuse an old snapshot, and only then; nothing may be accepted that the model refuses */
        LIFE_ASSERT(can == expected || (expected && cache->cuts.kept >= KVG_CACHE_CUTS_MAX - 1), "system %d rollback\n", k);
        everyone &= can;
    }
    if (!everyone || !model_rewind_fits(&model, s, len)) return;
    for (int k = 0; k < SYSTEMS; k++) {
        LIFE_ASSERT(kvg_kv_cache_rollback(&systems[k].caches[index], &systems[k].snapshots[index][i], accept, NULL) == KVG_OK, "system %d\n", k);
    }
    model_rewind(&model, s, len);
    done[16]++;
}

static void op_resize(void)
{
    uint32_t  units[MODEL_CLASSES];
    int       grows = 1;
    KvStore  *store = systems[POOL].fixture.store;
    KvgStatus status;

    for (int c = 0; c < MODEL_CLASSES; c++) {
        units[c] = (uint32_t)(POOL_UNITS + draw(3) * POOL_UNITS / 4);
        if ((int)units[c] < model.classes[c].total) grows = 0;
    }
    status = kvg_store_resize_prepare(store, units);
    LIFE_ASSERT(status == KVG_OK || (!grows && status == KVG_EBUSY), "resize\n");
    if (status != KVG_OK) return;
    if (draw(3) == 0) {
        kvg_store_resize_cancel(store);
        return;
    }
    kvg_store_resize_publish(store);
    for (int c = 0; c < MODEL_CLASSES; c++) model.classes[c].total = (int)units[c];
    done[17]++;
}

/* ---- the life */

static void one_operation(void)
{
    int      index = (int)draw(MODEL_SEQS);
    uint64_t what = draw(100);

    if (!model.seqs[index].open) {
        if (draw(6) == 0) op_open(index);
        index = (int)draw(MODEL_SEQS);
        if (model.seqs[index].open) op_fork(index);
    } else if (what < 38) {
        if (!model.seqs[index].in_step) op_begin(index);
        op_append(index);
    } else if (what < 68) {
        op_finalize(index);
    } else if (what < 76) {
        op_rewind(index);
    } else if (what < 82) {
        op_fork(index);
    } else if (what < 86) {
        op_book(index);
    } else if (what < 88) {
        op_trim(index);
    } else if (what < 91) {
        op_snapshot(index);
    } else if (what < 95) {
        op_rollback(index);
    } else if (what < 97) {
        op_begin(index);
    } else if (what < 97 + (draw(2) == 0)) {
        op_resize();
    } else if (what < 99) {
        op_append(index); /* outside a step too */
    } else {
        op_close(index);
    }
    check_counts();
    check_sequence(index);
    check_sequence((int)draw(MODEL_SEQS));
}

static void open_systems(void)
{
    memset(&model, 0, sizeof model);
    fixture_open(&systems[POOL].fixture, KVG_LAYOUT_POOL, 1, WINDOW, PREFILL, MODEL_CTX, MODEL_SEQS, POOL_UNITS);
    fixture_open(&systems[FLAT].fixture, KVG_LAYOUT_FLAT, 1, WINDOW, PREFILL, MODEL_CTX, MODEL_SEQS, MODEL_SEQS * MODEL_CHUNKS);
    fixture_open(&systems[PLAIN].fixture, KVG_LAYOUT_FLAT, 0, WINDOW, PREFILL, MODEL_CTX, MODEL_SEQS, MODEL_SEQS * MODEL_CHUNKS);
    for (int c = 0; c < MODEL_CLASSES; c++) {
        const KvClassGeometry *class = kvg_store_class(systems[POOL].fixture.store, (uint32_t)c);
        model.classes[c] = (ModelClass){.window = (int)class->window, .ring = class->ring, .unit_cap = (int)class->unit_cap,
                                        .total = (int)class->units};
    }
}

static void close_systems(void)
{
    for (int i = 0; i < MODEL_SEQS; i++) {
        if (model.seqs[i].open) op_close(i);
    }
    check_counts();
    for (int k = 0; k < SYSTEMS; k++) {
        ck_assert_uint_eq(kvg_store_bytes(systems[k].fixture.store).booked, 0);
        kvg_store_destroy(systems[k].fixture.store);
        test_device_close(&systems[k].fixture.dev);
    }
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

START_TEST(test_random_lives_agree_with_the_model_after_every_operation)
{
    uint64_t steps = from_environment("KVG_TEST_STEPS", 10000);

    seed = from_environment("KVG_TEST_SEED", 1) + (uint64_t)_i;
    random_state = kvg_mix64(seed);
    next_key = next_serial = longest = 0;
    memset(done, 0, sizeof done);
    printf("test_state_life: seed %" PRIu64 ", %" PRIu64 " steps (KVG_TEST_SEED, KVG_TEST_STEPS replay)\n", seed, steps);
    fflush(stdout);
    open_systems();
    for (step = 0; step < steps; step++) {
        one_operation();
        if (step % FULL_CHECK_EVERY == 0) check_everything();
    }
    check_everything();
    printf("test_state_life: seed %" PRIu64 ": longest sequence %" PRIu64 ", operations", seed, longest);
    for (int i = 0; i < 18; i++) printf(" %" PRIu64, done[i]);
    printf("\n");
    fflush(stdout);
    for (int i = 0; i < 18 && steps >= 10000; i++) ck_assert_msg(done[i] > 0, "operation %d never happened in %" PRIu64 " steps", i, steps);
    close_systems();
}
END_TEST

int main(void)
{
    if (test_device_missing()) return test_device_missing();
    Suite *suite = suite_create("state_life");
    TCase *life = tcase_create("life");

    tcase_set_timeout(life, 280);
    tcase_add_loop_test(life, test_random_lives_agree_with_the_model_after_every_operation, 0, 3);
    suite_add_tcase(suite, life);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

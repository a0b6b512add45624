/* Random lives of hybrid sequences: append, speculate, accept in part, refuse, rewind, grow, fork, snapshot, roll back, replay, trim,
 * resize. The same operations go to a pool that is short of units, to flat planes in reserved ranges and to flat planes that grow by
 * copying. The reference keeps the key of every row and recomputes all state from row 0; digests are compared after every operation that
 * leaves the sequence settled, lengths and debts after all others. Agreed answers must agree.
 * KVG_TEST_SEED and KVG_TEST_STEPS replay a run; both are in every message. */
#include <stdio.h>

#include "tests/runtime/kinds_fixture.h"

enum { MAX_CTX = 1100, SEQS = 4, SYSTEMS = 3, POOL = 0, SNAPSHOTS = 3, POOL_UNITS = 26, REPLAY_MOST = 150, DONE = 20 };

typedef struct System {
    Kinds            kinds;
    KvCache          caches[SEQS];
    KvCacheSnapshot *snapshots[SEQS][SNAPSHOTS];
} System;

typedef struct Seq {
    int      open, in_step, passes;
    uint64_t serial, len, staged, at; /* at: where the slot state stands */
    uint64_t keys[MAX_CTX + KINDS_PREFILL];
    struct {
        int      used;
        uint64_t serial, pos, shortest;
    } snapshots[SNAPSHOTS];
} Seq;

static System   systems[SYSTEMS];
static Seq      seqs[SEQS];
static uint64_t seed, step, random_state, next_key, next_serial, longest, done[DONE];

#define LIFE_ASSERT(condition, ...)                                                                                                       \
    do {                                                                                                                                  \
        if (!(condition)) {                                                                                                               \
            fprintf(stderr, "seed %" PRIu64 " step %" PRIu64 ": ", seed, step);                                                           \
            fprintf(stderr, __VA_ARGS__);                                                                                                 \
            ck_abort_msg("%s:%d seed %" PRIu64 " step %" PRIu64 ": %s; last error: %s", __FILE__, __LINE__, seed, step, #condition,       \
                         kvg_last_error());                                                                                               \
        }                                                                                                                                 \
    } while (0)

static uint64_t draw(uint64_t below)
{
    random_state += 0x9e3779b97f4a7c15u;
    return kvg_mix64(random_state) % below;
}

static KvCache *cache_of(int k, const Seq *s)
{
    return &systems[k].caches[s - seqs];
}

/* ---- what must hold after every operation */

static void check_digest(const Seq *s)
{
    KvDigest should = kinds_reference(&systems[POOL].kinds, s->keys, s->len);

    for (int k = 0; k < SYSTEMS; k++) {
        KvDigest is = kinds_digest(cache_of(k, s));
        LIFE_ASSERT(memcmp(&is, &should, sizeof is) == 0, "system %d sequence %d at %" PRIu64 ": another digest\n", k, (int)(s - seqs), s->len);
    }
}

static void check(const Seq *s)
{
    for (int k = 0; k < SYSTEMS; k++) {
        const KvCache *cache = cache_of(k, s);

        LIFE_ASSERT(kvg_store_check(systems[k].kinds.store) == KVG_OK, "system %d\n", k);
        if (!s->open) continue;
        LIFE_ASSERT(cache->pos == s->len && kvg_kv_cache_staged(cache) == s->staged, "system %d sequence %d\n", k, (int)(s - seqs));
        LIFE_ASSERT(kvg_kv_cache_replay(cache) == s->len - s->at, "system %d sequence %d owes %u\n", k, (int)(s - seqs), kvg_kv_cache_replay(cache));
        LIFE_ASSERT(kvg_store_latent_view(systems[k].kinds.store, 2)->pools_ready[cache->slot] == s->at / 8, "system %d\n", k);
    }
    if (s->open && !s->in_step && s->at == s->len) check_digest(s);
}

/* A refusal for want of units comes from the pool alone, and changes nothing there. */
static int short_of_units(KvgStatus status)
{
    done[0] += status == KVG_ECAPACITY;
    return status == KVG_ECAPACITY;
}

static uint64_t base_of(int k, const Seq *s)
{
    return cache_of(k, s)->classes[1].ring.base;
}

static int window_held(int k, const Seq *s, uint64_t len)
{
    uint64_t start = len < KINDS_WINDOW ? 0 : (len - KINDS_WINDOW + 1) / 32 * 32;
    return start >= base_of(k, s);
}

/* ---- operations */

static void op_open(Seq *s)
{
    if (s->open) return;
    memset(s, 0, sizeof *s);
    s->open = 1;
    s->serial = ++next_serial;
    for (int k = 0; k < SYSTEMS; k++) kvg_kv_cache_open(systems[k].kinds.store, (uint32_t)(s - seqs), s->serial, cache_of(k, s));
    done[1]++;
}

static void op_close(Seq *s)
{
    for (int k = 0; k < SYSTEMS; k++) kvg_kv_cache_close(cache_of(k, s), NULL);
    s->open = 0;
    done[2]++;
}

static void op_pass(Seq *s)
{
    uint64_t  owed = s->in_step && s->passes > 0 ? 0 : s->len - s->at, room = kvg_min_u64(KINDS_PREFILL - (s->staged - s->len), MAX_CTX - s->staged);
    uint64_t  fresh = draw(2) == 0 ? draw(6) : draw(4) == 0 ? room : draw(40);
    KvgStatus status;

    if (!s->in_step) {
        for (int k = 0; k < SYSTEMS; k++) {
            kvg_kv_cache_release_behind(cache_of(k, s));
            LIFE_ASSERT(kvg_kv_cache_begin(cache_of(k, s)) == KVG_OK, "begin\n");
        }
        s->in_step = 1;
        s->passes = 0;
    }
    if (owed > 1 && draw(8) == 0) {
        for (int k = 0; k < SYSTEMS; k++) {
            LIFE_ASSERT(kvg_kv_cache_append(cache_of(k, s), (uint32_t)(1 + draw(owed - 1)), NULL) == KVG_EINVAL, "a pass too short\n");
        }
        done[3]++;
    }
    fresh = kvg_min_u64(fresh, room);
    if (owed + fresh == 0) return;
    status = kvg_kv_cache_append(cache_of(POOL, s), (uint32_t)(owed + fresh), NULL);
    if (short_of_units(status)) return;
    if (status == KVG_ENOFIT && s->staged - s->at > 400) return; /* more is owed than the slack covers: replay it alone */
    LIFE_ASSERT(status == KVG_OK, "append %" PRIu64 " + %" PRIu64 "\n", owed, fresh);
    for (uint64_t i = 0; i < fresh; i++) s->keys[s->staged + i] = ++next_key;
    s->staged += fresh;
    for (int k = 0; k < SYSTEMS; k++) {
        if (k != POOL) LIFE_ASSERT(kvg_kv_cache_append(cache_of(k, s), (uint32_t)(owed + fresh), NULL) == KVG_OK, "system %d\n", k);
        LIFE_ASSERT(kvg_kv_cache_pass_row(cache_of(k, s)) == s->staged - owed - fresh, "system %d\n", k);
        kinds_write(&systems[k].kinds, cache_of(k, s), (uint32_t)(owed + fresh), s->keys);
    }
    s->passes++;
    done[owed > 0 ? 4 : 5]++;
}

static void op_finalize(Seq *s)
{
    uint64_t staged = s->staged - s->len, accepted = draw(6) == 0 ? 0 : draw(3) == 0 ? staged : draw(staged + 1);
    uint32_t owed = kvg_kv_cache_finalize(cache_of(POOL, s), accepted);

    for (int k = 1; k < SYSTEMS; k++) LIFE_ASSERT(kvg_kv_cache_finalize(cache_of(k, s), accepted) == owed, "system %d owes otherwise\n", k);
    LIFE_ASSERT(owed == 0 || owed == s->len + accepted - s->at, "%u owed\n", owed);
    LIFE_ASSERT(owed == 0 || accepted < staged || s->passes == 0, "a step accepted whole owes %u\n", owed);
    s->len = s->staged = s->len + accepted;
    s->at = s->len - owed;
    s->in_step = 0;
    if (s->len > longest) longest = s->len;
    done[owed > 0 ? 6 : accepted < staged ? 7 : 8]++;
}

static void op_refuse(Seq *s)
{
    for (int k = 0; k < SYSTEMS; k++) kvg_kv_cache_refuse(cache_of(k, s));
    s->staged = s->len;
    s->in_step = 0;
    done[9]++;
}

static void note_cut(Seq *s, uint64_t len)
{
    for (int i = 0; i < SNAPSHOTS; i++) s->snapshots[i].shortest = kvg_min_u64(s->snapshots[i].shortest, len);
}

/* A rewind, or a fork's length: refused by those that cannot; then nobody does it. Slot state is agreed, windows are each layout's own. */
static int held_by_all(const Seq *s, uint64_t len, int rewind, int held[SYSTEMS])
{
    int all = 1;

    for (int k = 0; k < SYSTEMS; k++) {
        KvSlotState slots = cache_of(k, s)->held;
        int         slot_held;

        kvg_slot_stay(&slots);
        slot_held = (rewind && len >= s->at) || kvg_slot_holds(&slots, len);
        held[k] = slot_held && window_held(k, s, len) && (rewind || len >= base_of(k, s));
        all &= held[k];
    }
    return all;
}

static void op_rewind(Seq *s)
{
    uint64_t  len = draw(20) == 0 ? 0 : draw(3) == 0 && s->len > s->at ? s->at + draw(s->len - s->at + 1) : s->len - draw(kvg_min_u64(s->len, 7) + 1);
    int       held[SYSTEMS];
    KvgStatus status;

    if (!held_by_all(s, len, 1, held)) {
        for (int k = 0; k < SYSTEMS; k++) {
            if (!held[k]) LIFE_ASSERT(kvg_kv_cache_rewind_to(cache_of(k, s), len, NULL) == KVG_ELAPPED, "system %d rewind\n", k);
        }
        done[10]++;
        return;
    }
    status = kvg_kv_cache_rewind_to(cache_of(POOL, s), len, NULL);
    if (short_of_units(status)) return;
    for (int k = 1; k < SYSTEMS; k++) LIFE_ASSERT(kvg_kv_cache_rewind_to(cache_of(k, s), len, NULL) == KVG_OK, "system %d\n", k);
    LIFE_ASSERT(status == KVG_OK, "rewind %" PRIu64 "\n", len);
    if (len < s->len) note_cut(s, len);
    s->len = s->staged = len;
    s->at = kvg_min_u64(s->at, len);
    s->in_step = 0;
    done[11]++;
}

static void op_fork(Seq *s)
{
    uint64_t  rows = draw(2) == 0 ? s->len : s->len - draw(kvg_min_u64(s->len, 3) + 1);
    int       child = 0, held[SYSTEMS], busy = s->in_step || s->at != s->len;
    KvgStatus status;

    while (child < SEQS && seqs[child].open) child++;
    if (child == SEQS) return;
    op_open(&seqs[child]);
    if (busy || !held_by_all(s, rows, 0, held)) {
        for (int k = 0; k < SYSTEMS; k++) {
            if (!busy && held[k]) continue;
            LIFE_ASSERT(kvg_kv_cache_fork(cache_of(k, s), rows, cache_of(k, &seqs[child]), NULL) == (busy ? KVG_EBUSY : KVG_ELAPPED), "fork\n");
        }
        op_close(&seqs[child]);
        done[12]++;
        return;
    }
    status = kvg_kv_cache_fork(cache_of(POOL, s), rows, cache_of(POOL, &seqs[child]), NULL);
    if (short_of_units(status)) {
        op_close(&seqs[child]);
        return;
    }
    LIFE_ASSERT(status == KVG_OK, "fork %" PRIu64 "\n", rows);
    for (int k = 1; k < SYSTEMS; k++) {
        LIFE_ASSERT(kvg_kv_cache_fork(cache_of(k, s), rows, cache_of(k, &seqs[child]), NULL) == KVG_OK, "system %d\n", k);
    }
    seqs[child].len = seqs[child].staged = seqs[child].at = rows;
    memcpy(seqs[child].keys, s->keys, rows * sizeof s->keys[0]);
    check(&seqs[child]);
    done[13]++;
}

static void op_snapshot(Seq *s)
{
    int       i = (int)draw(SNAPSHOTS), index = (int)(s - seqs);
    KvgStatus expected = s->in_step || s->at != s->len ? KVG_EBUSY : KVG_OK;

    for (int k = 0; k < SYSTEMS; k++) {
        KvCacheSnapshot **snapshot = &systems[k].snapshots[index][i];
        KvgStatus         status = *snapshot == NULL ? kvg_kv_cache_snapshot_new(cache_of(k, s), snapshot)
                                                     : kvg_kv_cache_snapshot_into(cache_of(k, s), *snapshot, NULL);
        LIFE_ASSERT(status == expected, "system %d snapshot\n", k);
    }
    if (expected != KVG_OK) return;
    s->snapshots[i].used = 1;
    s->snapshots[i].serial = s->serial;
    s->snapshots[i].pos = s->snapshots[i].shortest = s->len;
    done[14]++;
}

static void op_rollback(Seq *s)
{
    int       i = (int)draw(SNAPSHOTS), index = (int)(s - seqs), everyone = 1;
    uint64_t  pos = s->snapshots[i].pos, written = s->len > pos ? s->len - pos : 0;
    uint64_t  accept = draw(8) == 0 ? written + 1 : draw(kvg_min_u64(written, REPLAY_MOST) + 1);
    KvgStatus status;

    if (!s->snapshots[i].used) return;
    for (int k = 0; k < SYSTEMS; k++) {
        int can = kvg_kv_cache_can_rollback(cache_of(k, s), systems[k].snapshots[index][i], accept);
        int should = s->snapshots[i].shortest >= pos && accept <= written && window_held(k, s, pos);

        LIFE_ASSERT(can == should || (should && cache_of(k, s)->cuts.kept >= KVG_CACHE_CUTS_MAX - 1), "system %d can roll back: %d\n", k, can);
        if (!can) LIFE_ASSERT(kvg_kv_cache_rollback(cache_of(k, s), systems[k].snapshots[index][i], accept, NULL) != KVG_OK, "system %d\n", k);
        everyone &= can;
    }
    done[15] += !everyone;
    if (!everyone) return;
    status = kvg_kv_cache_rollback(cache_of(POOL, s), systems[POOL].snapshots[index][i], accept, NULL);
    if (short_of_units(status)) return;
    LIFE_ASSERT(status == KVG_OK, "rollback\n");
    for (int k = 1; k < SYSTEMS; k++) {
        LIFE_ASSERT(kvg_kv_cache_rollback(cache_of(k, s), systems[k].snapshots[index][i], accept, NULL) == KVG_OK, "system %d\n", k);
    }
    if (pos < s->len) note_cut(s, pos);
    s->at = pos;
    s->len = s->staged = pos + accept;
    s->in_step = 0;
    done[16]++;
}

static void op_book(Seq *s)
{
    uint64_t  target = s->staged + draw(MAX_CTX - s->staged + 1);
    KvgStatus status = kvg_kv_cache_book(cache_of(POOL, s), target);

    if (short_of_units(status)) return;
    for (int k = 1; k < SYSTEMS; k++) LIFE_ASSERT(kvg_kv_cache_book(cache_of(k, s), target) == KVG_OK, "system %d\n", k);
    done[17]++;
}

static void op_trim(Seq *s)
{
    for (int k = 0; k < SYSTEMS; k++) {
        LIFE_ASSERT(kvg_kv_cache_trim(cache_of(k, s)) == (s->in_step ? KVG_EBUSY : KVG_OK), "system %d\n", k);
    }
    done[18]++;
}

static void op_resize(void)
{
    uint32_t  units[KINDS_CLASSES] = {POOL_UNITS + (uint32_t)draw(12), POOL_UNITS + (uint32_t)draw(12)};
    KvStore  *store = systems[POOL].kinds.store;
    KvgStatus status = kvg_store_resize_prepare(store, units);

    if (status == KVG_EBUSY) return;
    LIFE_ASSERT(status == KVG_OK, "resize\n");
    if (draw(3) == 0) kvg_store_resize_cancel(store);
    else kvg_store_resize_publish(store);
    done[19]++;
}

/* ---- the life */

static void one_operation(void)
{
    Seq     *s = &seqs[draw(SEQS)];
    uint64_t what = draw(100);

    if (!s->open) {
        s = &seqs[draw(SEQS)];
        if (s->open) op_fork(s);
        else op_open(s);
    } else if (s->in_step && what < 46) {
        if (s->passes == 0 || draw(4) == 0) op_pass(s);
        else if (draw(8) == 0) op_refuse(s);
        else op_finalize(s);
    } else if (what < 58) {
        op_pass(s);
    } else if (what < 67) {
        op_rewind(s);
    } else if (what < 75) {
        op_fork(s);
    } else if (what < 83) {
        op_snapshot(s);
    } else if (what < 90) {
        op_rollback(s);
    } else if (what < 93) {
        op_book(s);
    } else if (what < 96) {
        op_trim(s);
    } else if (what < 98) {
        op_resize();
    } else {
        op_close(s);
    }
    check(s);
    check(&seqs[draw(SEQS)]);
}

static void open_systems(uint32_t columns)
{
    memset(seqs, 0, sizeof seqs);
    for (int k = 0; k < SYSTEMS; k++) {
        KindsShape shape = {.layout = k == POOL ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT, .reserves = k != 2, .columns = columns, .pool = 8,
                            .ring = 16, .max_ctx = MAX_CTX, .slots = SEQS, .units = k == POOL ? POOL_UNITS : 100};
        kinds_open(&systems[k].kinds, &shape);
    }
}

static void close_systems(void)
{
    for (int i = 0; i < SEQS; i++) {
        if (seqs[i].open) op_close(&seqs[i]);
    }
    for (int k = 0; k < SYSTEMS; k++) {
        for (int i = 0; i < SEQS * SNAPSHOTS; i++) {
            kvg_kv_cache_snapshot_free(systems[k].snapshots[i / SNAPSHOTS][i % SNAPSHOTS]);
            systems[k].snapshots[i / SNAPSHOTS][i % SNAPSHOTS] = NULL;
        }
        kinds_close(&systems[k].kinds);
    }
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

START_TEST(test_random_hybrid_lives_agree_with_the_reference_after_every_operation)
{
    static const uint32_t columns[] = {2, 6};
    uint64_t              steps = from_environment("KVG_TEST_STEPS", 20000);

    seed = from_environment("KVG_TEST_SEED", 1) + (uint64_t)_i;
    random_state = kvg_mix64(seed);
    next_key = next_serial = longest = 0;
    memset(done, 0, sizeof done);
    printf("test_kinds_life: seed %" PRIu64 ", %" PRIu64 " steps, %u columns (KVG_TEST_SEED, KVG_TEST_STEPS replay)\n", seed, steps,
           columns[seed % 2]);
    fflush(stdout);
    open_systems(columns[seed % 2]);
    for (step = 0; step < steps; step++) one_operation();
    printf("test_kinds_life: seed %" PRIu64 ": longest sequence %" PRIu64 ", operations", seed, longest);
    for (int i = 0; i < DONE; i++) printf(" %" PRIu64, done[i]);
    printf("\n");
    fflush(stdout);
    for (int i = 0; i < DONE && steps >= 20000; i++) ck_assert_msg(done[i] > 0, "operation %d never happened in %" PRIu64 " steps", i, steps);
    close_systems();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kinds_life");
    TCase *life = tcase_create("life");

    tcase_set_timeout(life, 0); /* a million operations by command take their time; CTest bounds the run in CI */
    tcase_add_loop_test(life, test_random_hybrid_lives_agree_with_the_reference_after_every_operation, 0, 2);
    suite_add_tcase(suite, life);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

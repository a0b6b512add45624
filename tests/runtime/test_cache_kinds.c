/* Whole caches of a hybrid model: whatever was speculated, refused, accepted in part and replayed, the digest is that of a run that
 * never speculated. Loop tests run on: 0 pool, 1 flat in reserved ranges, 2 flat that grows by copying. */
#include "tests/runtime/kinds_fixture.h"

enum { LAYOUTS = 3, MAX_CTX = 3000, DRAFTS = 4, KEYS = 4000 };

static Kinds    kinds;
static uint64_t keys[KEYS];  /* of the rows that are kept */
static uint64_t drafts[KEYS]; /* of a step's rows, by absolute row: kept ones, then rejected ones */
static uint64_t next_draft = 1u << 20;

static KindsShape shape_of(int layout, uint32_t columns, uint32_t pool, uint64_t ring)
{
    return (KindsShape){.layout = layout == 0 ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT, .reserves = layout != 2, .columns = columns, .pool = pool,
                        .ring = ring, .max_ctx = MAX_CTX, .slots = 4, .units = 96};
}

static void open_kinds(int layout, uint32_t columns, uint32_t pool, uint64_t ring)
{
    KindsShape shape = shape_of(layout, columns, pool, ring);

    for (uint64_t i = 0; i < KEYS; i++) keys[i] = i + 1;
    kinds_open(&kinds, &shape);
}

static void close_kinds(KvCache *caches, int count)
{
    for (int i = 0; i < count; i++) kvg_kv_cache_close(&caches[i], NULL);
    kinds_close(&kinds);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}

/* A round: what is owed, `accepted` good rows, then bad ones up to `rows` in all, in one pass. Returns what is owed next. */
static uint32_t speculate(KvCache *cache, uint32_t rows, uint32_t accepted)
{
    uint32_t owed = kvg_kv_cache_replay(cache);

    memcpy(drafts, keys, sizeof keys);
    for (uint32_t i = accepted; i < rows; i++) drafts[cache->pos + i] = ++next_draft;
    kinds_begin(cache);
    kinds_pass(&kinds, cache, owed + rows, drafts);
    return kinds_finalize(cache, accepted);
}

static void settle(KvCache *cache)
{
    if (kvg_kv_cache_replay(cache) > 0) ck_assert_uint_eq(speculate(cache, 0, 0), 0);
}

START_TEST(test_any_accepted_prefix_gives_the_digest_of_a_run_that_never_speculated)
{
    /* pools end at 8, chunks and copying grows at 64, 128, 256, 512; a window's first chunk is freed at 615, a flat ring of 683 rows rebases */
    static const uint64_t starts[] = {0, 1, 7, 8, 9, 62, 64, 126, 254, 510, 611, 614, 615, 617, 679, 681, 682, 683, 684, 1279};
    static const uint32_t columns[] = {DRAFTS + 1, 2};

    for (int c = 0; c < 2; c++) {
        for (size_t s = 0; s < sizeof starts / sizeof starts[0]; s++) {
            for (uint32_t accepted = 0; accepted <= DRAFTS; accepted++) {
                KvCache cache;

                open_kinds(_i, columns[c], 8, 16);
                kvg_kv_cache_open(kinds.store, 1, 1, &cache);
                kinds_grow(&kinds, &cache, starts[s], keys);
                uint32_t owed = speculate(&cache, DRAFTS, accepted);
                ck_assert_uint_eq(cache.pos, starts[s] + accepted);
                if (c == 0) ck_assert_uint_eq(owed, 0); /* a column a row: nothing is replayed */
                if (c == 1) ck_assert_uint_eq(owed, accepted < DRAFTS ? accepted : 0);
                for (int round = 0; round < 3; round++) speculate(&cache, DRAFTS, (accepted + (uint32_t)round) % (DRAFTS + 1));
                settle(&cache);
                ck_assert_msg(kinds_is(&kinds, &cache, keys), "columns %u start %" PRIu64 " accepted %u", columns[c], starts[s], accepted);
                kinds_grow(&kinds, &cache, cache.pos + 70, keys);
                ck_assert(kinds_is(&kinds, &cache, keys));
                close_kinds(&cache, 1);
            }
        }
    }
}
END_TEST

START_TEST(test_the_comparison_with_the_reference_can_fail)
{
    KvCache cache;

    open_kinds(_i, 3, 8, 16);
    kvg_kv_cache_open(kinds.store, 0, 1, &cache);
    kinds_grow(&kinds, &cache, 21, keys);
    ck_assert(kinds_is(&kinds, &cache, keys));
    keys[0] ^= 1;
    ck_assert(!kinds_is(&kinds, &cache, keys));
    keys[0] ^= 1;
    keys[20] ^= 1;
    ck_assert(!kinds_is(&kinds, &cache, keys));
    close_kinds(&cache, 1);
}
END_TEST

START_TEST(test_replays_pile_up_over_rounds_until_one_is_taken_whole)
{
    KvCache cache;

    open_kinds(_i, 2, 8, 16);
    kvg_kv_cache_open(kinds.store, 0, 1, &cache);
    kinds_grow(&kinds, &cache, 30, keys);
    ck_assert_uint_eq(speculate(&cache, 4, 2), 2);
    ck_assert_uint_eq(speculate(&cache, 4, 1), 3);
    ck_assert_uint_eq(speculate(&cache, 4, 0), 3); /* nothing new was accepted: the same is owed */
    ck_assert_uint_eq(kvg_kv_cache_append(&cache, 1, NULL), KVG_ESTALE); /* no step is open */
    kinds_begin(&cache);
    ck_assert_uint_eq(kvg_kv_cache_append(&cache, 2, NULL), KVG_EINVAL);
    ck_assert_uint_eq(kvg_kv_cache_pass_row(&cache), 30);
    kinds_pass(&kinds, &cache, 3, keys);
    ck_assert_uint_eq(kvg_kv_cache_pass_row(&cache), 30);
    ck_assert_uint_eq(kvg_kv_cache_staged(&cache), 33); /* replayed rows count in no target */
    ck_assert_uint_eq(kinds_finalize(&cache, 0), 0);
    ck_assert(kinds_is(&kinds, &cache, keys));
    close_kinds(&cache, 1);
}
END_TEST

START_TEST(test_a_refused_step_leaves_everything_as_it_was)
{
    static const uint64_t starts[] = {0, 7, 13, 64, 600, 1290};

    for (size_t s = 0; s < sizeof starts / sizeof starts[0]; s++) {
        for (uint32_t columns = 2; columns < 8; columns += 3) {
            KvCache cache;

            open_kinds(_i, columns, 4, 8);
            kvg_kv_cache_open(kinds.store, 0, 1, &cache);
            kinds_grow(&kinds, &cache, starts[s], keys);
            for (uint32_t rows = 1; rows < 40; rows += 6) { /* also over the ring's whole length */
                memcpy(drafts, keys, sizeof keys);
                for (uint32_t i = 0; i < 90; i++) drafts[cache.pos + i] = ++next_draft;
                kinds_begin(&cache);
                kinds_pass(&kinds, &cache, rows, drafts);
                if (rows % 4 == 1) kinds_pass(&kinds, &cache, 5, drafts); /* a second pass */
                kvg_kv_cache_refuse(&cache);
                ck_assert_uint_eq(cache.pos, starts[s]);
                ck_assert_uint_eq(kvg_kv_cache_replay(&cache), 0);
                ck_assert(kinds_is(&kinds, &cache, keys));
            }
            kinds_grow(&kinds, &cache, starts[s] + 50, keys);
            ck_assert(kinds_is(&kinds, &cache, keys));
            close_kinds(&cache, 1);
        }
    }
}
END_TEST

START_TEST(test_what_was_owed_is_owed_still_after_a_refusal)
{
    KvCache cache;

    open_kinds(_i, 2, 4, 8);
    kvg_kv_cache_open(kinds.store, 0, 1, &cache);
    kinds_grow(&kinds, &cache, 49, keys);
    ck_assert_uint_eq(speculate(&cache, 20, 9), 9);
    memcpy(drafts, keys, sizeof keys);
    for (uint32_t i = 0; i < 30; i++) drafts[cache.pos + i] = ++next_draft;
    kinds_begin(&cache);
    kinds_pass(&kinds, &cache, 9 + 30, drafts);
    kvg_kv_cache_refuse(&cache);
    ck_assert_uint_eq(kvg_kv_cache_replay(&cache), 9);
    ck_assert_uint_eq(cache.pos, 58);
    settle(&cache);
    ck_assert(kinds_is(&kinds, &cache, keys));
    close_kinds(&cache, 1);
}
END_TEST

/* A step of several passes: any accept after any of them. */
START_TEST(test_prefixes_of_several_passes)
{
    static const uint32_t columns[] = {2, 3, 6};

    for (int c = 0; c < 3; c++) {
        for (uint32_t accepted = 0; accepted <= 12; accepted++) {
            KvCache cache;

            open_kinds(_i, columns[c], 4, 8);
            kvg_kv_cache_open(kinds.store, 2, 1, &cache);
            kinds_grow(&kinds, &cache, 11, keys);
            for (int round = 0; round < 3; round++) {
                uint32_t owed = kvg_kv_cache_replay(&cache);

                memcpy(drafts, keys, sizeof keys);
                for (uint32_t i = accepted; i < 12; i++) drafts[cache.pos + i] = ++next_draft;
                kinds_begin(&cache);
                kinds_pass(&kinds, &cache, owed + 5, drafts);
                kinds_pass(&kinds, &cache, 1, drafts);
                kinds_pass(&kinds, &cache, 6, drafts);
                kinds_finalize(&cache, accepted);
                if (round == 1) settle(&cache);
            }
            settle(&cache);
            ck_assert_msg(kinds_is(&kinds, &cache, keys), "columns %u accepted %u", columns[c], accepted);
            close_kinds(&cache, 1);
        }
    }
}
END_TEST

/* A rank that finds no memory counts the pass as all others do, and is refused with them. */
START_TEST(test_a_pass_without_memory_is_refused_and_tried_again)
{
    int    hits = 0;
    size_t grain = 0;

    for (uint64_t nth = 0; nth < 40; nth++) {
        KvCache cache;
        KvgStatus status;

        open_kinds(_i, 2, 8, 16);
        grain = kinds.dev.ops->granularity(kinds.dev.self);
        kvg_kv_cache_open(kinds.store, 0, 1, &cache);
        kinds_grow(&kinds, &cache, 60, keys);
        ck_assert_uint_eq(speculate(&cache, 3, 2), 2);
        kinds_begin(&cache);
        kvg_fault_arm(nth);
        status = kvg_kv_cache_append(&cache, 2 + 90, NULL);
        hits += kvg_fault_disarm();
        ck_assert_int_eq(status, _i > 0 && hits == (int)nth + 1 ? KVG_ENOMEM : KVG_OK);
        kvg_kv_cache_refuse(&cache);
        ck_assert_uint_eq(cache.pos, 62);
        ck_assert_uint_eq(kvg_kv_cache_replay(&cache), 2);
        kinds_grow(&kinds, &cache, 150, keys);
        ck_assert(kinds_is(&kinds, &cache, keys));
        close_kinds(&cache, 1);
    }
    if (grain <= 4096) { /* one grain of a GPU holds all rows of a flat plane: nothing is asked for */
        ck_assert_int_eq(hits > 0, _i > 0); /* a pool has its memory already */
    }
}
END_TEST

/* ---- copies */

static uint64_t moved; /* bytes through the device's move */
static KvDevOps counting_ops;
static KvgStatus (*real_move)(void *, void *, const void *, size_t, KvgStream);

static KvgStatus counting_move(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    moved += bytes;
    return real_move(self, target, source, bytes, stream);
}

static void count_moves(void)
{
    counting_ops = *kinds.dev.ops;
    real_move = counting_ops.move;
    counting_ops.move = counting_move;
    kinds.dev.ops = &counting_ops;
    moved = 0;
}

START_TEST(test_a_round_with_a_column_a_row_copies_nothing)
{
    KvCache cache;

    open_kinds(0, DRAFTS + 1, 8, 64);
    kvg_kv_cache_open(kinds.store, 0, 1, &cache);
    kinds_grow(&kinds, &cache, 100, keys);
    count_moves();
    for (uint32_t accepted = 0; accepted <= DRAFTS; accepted++) speculate(&cache, DRAFTS, accepted);
    kinds_begin(&cache);
    kinds_pass(&kinds, &cache, DRAFTS, keys);
    kvg_kv_cache_refuse(&cache);
    ck_assert_uint_eq(moved, 0);
    ck_assert(kinds_is(&kinds, &cache, keys));
    close_kinds(&cache, 1);
}
END_TEST

/* ---- snapshots */

START_TEST(test_after_a_rollback_and_replay_the_digest_is_of_a_run_that_never_speculated)
{
    static const uint64_t starts[] = {0, 3, 8, 63, 130, 509, 600, 680, 681, 1100};

    for (size_t s = 0; s < sizeof starts / sizeof starts[0]; s++) {
        for (uint64_t accept = 0; accept <= 20; accept++) {
            KvCache          cache;
            KvCacheSnapshot *snapshot = NULL;

            open_kinds(_i, 2, 8, 16);
            kvg_kv_cache_open(kinds.store, 0, 1, &cache);
            kinds_grow(&kinds, &cache, starts[s], keys);
            ck_assert_int_eq(kvg_kv_cache_snapshot_new(&cache, &snapshot), KVG_OK);
            memcpy(drafts, keys, sizeof keys);
            for (uint64_t i = accept; i < 20; i++) drafts[starts[s] + i] = ++next_draft;
            for (int i = 0; i < 4; i++) kinds_grow(&kinds, &cache, cache.pos + 5, drafts);
            ck_assert(!kvg_kv_cache_can_rollback(&cache, snapshot, 21));
            ck_assert_int_eq(kvg_kv_cache_rollback(&cache, snapshot, 21, NULL), KVG_EINVAL);
            ck_assert(kinds_is(&kinds, &cache, drafts)); /* refused: every part unchanged */
            ck_assert(kvg_kv_cache_can_rollback(&cache, snapshot, accept));
            ck_assert_msg(kvg_kv_cache_rollback(&cache, snapshot, accept, NULL) == KVG_OK, "%s", kvg_last_error());
            ck_assert_uint_eq(cache.pos, starts[s] + accept);
            ck_assert_uint_eq(kvg_kv_cache_replay(&cache), accept);
            kinds_grow(&kinds, &cache, cache.pos + (accept % 3) * 30, keys);
            ck_assert_msg(kinds_is(&kinds, &cache, keys), "start %" PRIu64 " accept %" PRIu64, starts[s], accept);
            kvg_kv_cache_snapshot_free(snapshot);
            close_kinds(&cache, 1);
        }
    }
}
END_TEST

START_TEST(test_more_than_is_held_is_refused_with_every_part_unchanged)
{
    KvCache          cache, other;
    KvCacheSnapshot *snapshot = NULL;

    open_kinds(_i, 2, 8, 16);
    kvg_kv_cache_open(kinds.store, 0, 1, &cache);
    kvg_kv_cache_open(kinds.store, 1, 2, &other);
    kinds_grow(&kinds, &cache, 50, keys);
    ck_assert_int_eq(kvg_kv_cache_snapshot_new(&cache, &snapshot), KVG_OK);
    ck_assert_int_eq(kvg_kv_cache_rollback(&other, snapshot, 0, NULL), KVG_ESTALE); /* another cache's */
    kinds_grow(&kinds, &cache, 1500, keys); /* the window has gone on */
    ck_assert(!kvg_kv_cache_can_rollback(&cache, snapshot, 1));
    ck_assert_int_eq(kvg_kv_cache_rollback(&cache, snapshot, 1, NULL), KVG_ELAPPED);
    ck_assert(!kvg_kv_cache_can_rollback(&cache, snapshot, 1440)); /* the end is held, where the replay begins is not */
    ck_assert_int_eq(kvg_kv_cache_rollback(&cache, snapshot, 1440, NULL), KVG_ELAPPED);
    ck_assert(kinds_is(&kinds, &cache, keys));
    ck_assert_int_eq(kvg_kv_cache_rewind_to(&cache, 1450, NULL), KVG_ELAPPED); /* no column holds that row */
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "recurrent"));
    ck_assert(kinds_is(&kinds, &cache, keys));
    kvg_kv_cache_snapshot_free(snapshot);
    KvCache both[] = {cache, other};
    close_kinds(both, 2);
}
END_TEST

START_TEST(test_while_a_replay_is_owed_snapshot_fork_and_digest_are_busy)
{
    KvCache          cache, child;
    KvCacheSnapshot *snapshot = NULL, *none = NULL;
    KvLeaf           leaves[KINDS_LEAVES_MAX];

    open_kinds(_i, 2, 8, 16);
    kvg_kv_cache_open(kinds.store, 0, 1, &cache);
    kvg_kv_cache_open(kinds.store, 1, 2, &child);
    kinds_grow(&kinds, &cache, 20, keys);
    ck_assert_int_eq(kvg_kv_cache_snapshot_new(&cache, &snapshot), KVG_OK);
    ck_assert_uint_eq(speculate(&cache, 4, 3), 3);
    ck_assert_int_eq(kvg_kv_cache_snapshot_new(&cache, &none), KVG_EBUSY);
    ck_assert_int_eq(kvg_kv_cache_snapshot_into(&cache, snapshot, NULL), KVG_EBUSY);
    ck_assert_ptr_null(none);
    ck_assert_int_eq(kvg_kv_cache_leaves(&cache, leaves), KVG_EBUSY);
    ck_assert_int_eq(kvg_kv_cache_fork(&cache, 20, &child, NULL), KVG_EBUSY);
    settle(&cache);
    ck_assert_int_eq(kvg_kv_cache_snapshot_into(&cache, snapshot, NULL), KVG_OK);
    ck_assert_int_eq(kvg_kv_cache_fork(&cache, 23, &child, NULL), KVG_OK);
    ck_assert(kinds_is(&kinds, &child, keys));
    kvg_kv_cache_snapshot_free(snapshot);
    KvCache both[] = {cache, child};
    close_kinds(both, 2);
}
END_TEST

/* A replay writes rows again that a later snapshot counts as its own: until then that snapshot proves nothing. */
START_TEST(test_a_rollback_makes_later_snapshots_stale)
{
    KvCache          cache;
    KvCacheSnapshot *early = NULL, *late = NULL;

    open_kinds(_i, 2, 8, 16);
    kvg_kv_cache_open(kinds.store, 0, 1, &cache);
    kinds_grow(&kinds, &cache, 100, keys);
    ck_assert_int_eq(kvg_kv_cache_snapshot_new(&cache, &early), KVG_OK);
    kinds_grow(&kinds, &cache, 120, keys);
    ck_assert_int_eq(kvg_kv_cache_snapshot_new(&cache, &late), KVG_OK);
    kinds_grow(&kinds, &cache, 150, keys);
    ck_assert(kvg_kv_cache_can_rollback(&cache, late, 0));
    ck_assert_int_eq(kvg_kv_cache_rollback(&cache, early, 30, NULL), KVG_OK);
    ck_assert(!kvg_kv_cache_can_rollback(&cache, late, 0));
    ck_assert_int_eq(kvg_kv_cache_rollback(&cache, late, 0, NULL), KVG_ESTALE);
    ck_assert_int_eq(kvg_kv_cache_rollback(&cache, early, 7, NULL), KVG_OK); /* again, and with less */
    settle(&cache);
    ck_assert_uint_eq(cache.pos, 107);
    ck_assert(kinds_is(&kinds, &cache, keys));
    kvg_kv_cache_snapshot_free(early);
    kvg_kv_cache_snapshot_free(late);
    close_kinds(&cache, 1);
}
END_TEST

/* What attention at the first owed row reads is kept, through refusals, partial accepts and a flat ring's rebase. */
START_TEST(test_windows_keep_what_a_replay_will_read)
{
    for (uint64_t start = 600; start < 690; start += 9) {
        KvCache  cache;
        uint64_t base, view;

        open_kinds(_i, 2, 8, 16);
        kvg_kv_cache_open(kinds.store, 0, 1, &cache);
        kinds_grow(&kinds, &cache, start, keys);
        base = cache.classes[1].ring.base;
        view = kvg_view_start(start, KINDS_WINDOW);
        ck_assert_uint_eq(speculate(&cache, 70, 60), 60);
        if (_i == 0) { /* the slack behind the committed rows, and no more than the replay leaves */
            ck_assert_uint_eq(cache.classes[1].ring.base, kvg_min_u64(kvg_swa_retain_from(start + 60, KINDS_WINDOW, base), view));
        }
        for (int round = 0; round < 4; round++) {
            float read[32], row[32];
            uint8_t encoded[34];

            kinds_begin(&cache);
            kinds_pass(&kinds, &cache, 60 + 20 * ((uint32_t)round + 1), keys);
            kvg_kv_cache_refuse(&cache);
            kvg_kv_cache_release_behind(&cache);
            ck_assert_uint_le(cache.classes[1].ring.base, view);
            ck_assert_int_eq(kvg_store_read(kinds.store, 1, 0, 0, view, 1, read), KVG_OK);
            kinds_values(1, 0, keys[view], 32, row);
            kvg_encode_f32(KVG_Q8_0, row, 32, encoded, NULL);
            kvg_decode_f32(KVG_Q8_0, encoded, 32, row);
            ck_assert_mem_eq(read, row, sizeof row);
        }
        settle(&cache);
        ck_assert(kinds_is(&kinds, &cache, keys));
        close_kinds(&cache, 1);
    }
}
END_TEST

/* The slack covers what is owed: a step may be as long as ever beside up to 512 owed rows. */
START_TEST(test_a_step_beside_a_replay_may_be_as_long_as_ever)
{
    for (uint64_t start = 600; start < 700; start += 7) {
        KvCache cache;

        open_kinds(_i, 2, 8, 16);
        kvg_kv_cache_open(kinds.store, 0, 1, &cache);
        kinds_grow(&kinds, &cache, start, keys);
        for (uint32_t owed = 90; owed <= 450; owed += 90) {
            ck_assert_uint_eq(speculate(&cache, KINDS_PREFILL, 90), owed);
            kvg_kv_cache_release_behind(&cache);
        }
        ck_assert_uint_eq(speculate(&cache, KINDS_PREFILL, KINDS_PREFILL), 0);
        ck_assert(kinds_is(&kinds, &cache, keys));
        close_kinds(&cache, 1);
    }
}
END_TEST

/* ---- rewind and fork */

START_TEST(test_a_rewind_goes_as_far_back_as_columns_hold)
{
    for (uint64_t start = 60; start < 76; start++) {
        KvCache cache;

        open_kinds(_i, 6, 4, 64);
        kvg_kv_cache_open(kinds.store, 0, 1, &cache);
        kinds_grow(&kinds, &cache, start, keys);
        ck_assert_uint_eq(speculate(&cache, 5, 4), 0);
        ck_assert_int_eq(kvg_kv_cache_rewind_to(&cache, start - 1, NULL), KVG_ELAPPED);
        ck_assert(kinds_is(&kinds, &cache, keys));
        for (uint64_t len = start + 4; len >= start; len--) {
            ck_assert_msg(kvg_kv_cache_rewind_to(&cache, len, NULL) == KVG_OK, "%s", kvg_last_error());
            ck_assert(kinds_is(&kinds, &cache, keys));
        }
        kinds_grow(&kinds, &cache, start + 30, keys);
        ck_assert(kinds_is(&kinds, &cache, keys));
        ck_assert_int_eq(kvg_kv_cache_rewind_to(&cache, 0, NULL), KVG_OK); /* row 0 always is: nothing was */
        ck_assert(kinds_is(&kinds, &cache, keys));
        kinds_grow(&kinds, &cache, 33, keys);
        ck_assert(kinds_is(&kinds, &cache, keys));
        close_kinds(&cache, 1);
    }
}
END_TEST

START_TEST(test_a_rewind_into_rows_that_are_owed_owes_less)
{
    KvCache cache;

    open_kinds(_i, 2, 4, 8);
    kvg_kv_cache_open(kinds.store, 0, 1, &cache);
    kinds_grow(&kinds, &cache, 61, keys);
    ck_assert_uint_eq(speculate(&cache, 30, 9), 9);
    ck_assert_int_eq(kvg_kv_cache_rewind_to(&cache, 66, NULL), KVG_OK);
    ck_assert_uint_eq(kvg_kv_cache_replay(&cache), 5);
    ck_assert_int_eq(kvg_kv_cache_rewind_to(&cache, 60, NULL), KVG_ELAPPED);
    ck_assert_int_eq(kvg_kv_cache_rewind_to(&cache, 61, NULL), KVG_OK);
    ck_assert_uint_eq(kvg_kv_cache_replay(&cache), 0);
    ck_assert(kinds_is(&kinds, &cache, keys));
    close_kinds(&cache, 1);
}
END_TEST

START_TEST(test_forks_share_rows_and_go_on_apart)
{
    for (uint64_t start = 58; start < 75; start++) {
        KvCache  caches[3];
        uint64_t other[KEYS];

        open_kinds(_i, 4, 4, 8);
        for (uint32_t i = 0; i < 3; i++) kvg_kv_cache_open(kinds.store, i, i + 1, &caches[i]);
        kinds_grow(&kinds, &caches[0], start, keys);
        ck_assert_int_eq(kvg_kv_cache_fork(&caches[0], start - 2, &caches[1], NULL), KVG_ELAPPED);
        ck_assert_uint_eq(speculate(&caches[0], 3, 2), 0);
        ck_assert_msg(kvg_kv_cache_fork(&caches[0], start + 1, &caches[1], NULL) == KVG_OK, "%s", kvg_last_error());
        ck_assert_int_eq(kvg_kv_cache_fork(&caches[1], start + 1, &caches[2], NULL), KVG_OK);
        for (int i = 0; i < 3; i++) ck_assert(kinds_is(&kinds, &caches[i], keys));
        memcpy(other, keys, sizeof keys);
        for (uint64_t i = start + 1; i < KEYS; i++) other[i] = ++next_draft;
        kinds_grow(&kinds, &caches[1], start + 40, other);
        kinds_grow(&kinds, &caches[0], start + 37, keys);
        ck_assert(kinds_is(&kinds, &caches[0], keys));
        ck_assert(kinds_is(&kinds, &caches[1], other));
        ck_assert(kinds_is(&kinds, &caches[2], keys));
        ck_assert_int_eq(kvg_store_check(kinds.store), KVG_OK);
        close_kinds(caches, 3);
    }
}
END_TEST

/* The parent's rows past the snapshot are shared by a fork when it rolls back and writes them again. */
START_TEST(test_a_replay_never_writes_into_a_chunk_that_a_fork_shares)
{
    for (uint64_t accept = 0; accept <= 150; accept += 25) {
        KvCache          caches[2];
        KvCacheSnapshot *snapshot = NULL;
        uint64_t         other[KEYS];

        open_kinds(_i, 2, 8, 16);
        for (uint32_t i = 0; i < 2; i++) kvg_kv_cache_open(kinds.store, i, i + 1, &caches[i]);
        kinds_grow(&kinds, &caches[0], 70, keys);
        ck_assert_int_eq(kvg_kv_cache_snapshot_new(&caches[0], &snapshot), KVG_OK);
        kinds_grow(&kinds, &caches[0], 70 + 150, keys);
        ck_assert_int_eq(kvg_kv_cache_fork(&caches[0], 220, &caches[1], NULL), KVG_OK);
        ck_assert_msg(kvg_kv_cache_rollback(&caches[0], snapshot, accept, NULL) == KVG_OK, "%s", kvg_last_error());
        memcpy(other, keys, sizeof keys);
        for (uint64_t i = 70 + accept; i < KEYS; i++) other[i] = ++next_draft;
        kinds_grow(&kinds, &caches[0], 240, other);
        ck_assert(kinds_is(&kinds, &caches[0], other));
        ck_assert(kinds_is(&kinds, &caches[1], keys));
        ck_assert_int_eq(kvg_store_check(kinds.store), KVG_OK);
        kvg_kv_cache_snapshot_free(snapshot);
        close_kinds(caches, 2);
    }
}
END_TEST

/* ---- shards: conv and state are cut by the heads of each part, not as one range */

START_TEST(test_shards_hold_their_heads_of_each_part)
{
    KvLeaf  whole[KINDS_LEAVES_MAX], part[KINDS_LEAVES_MAX];
    KvCache cache;
    size_t  count, found = 0;

    open_kinds(_i, 3, 8, 16);
    kvg_kv_cache_open(kinds.store, 0, 1, &cache);
    kinds_grow(&kinds, &cache, 37, keys);
    count = kvg_kv_cache_leaf_count(&cache);
    ck_assert_int_eq(kvg_kv_cache_leaves(&cache, whole), KVG_OK);
    close_kinds(&cache, 1);
    for (uint32_t rank = 0; rank < 2; rank++) {
        KindsShape shape = shape_of(_i, 3, 8, 16);

        shape.tp = 2;
        shape.tp_rank = rank;
        kinds_open(&kinds, &shape);
        kvg_kv_cache_open(kinds.store, 0, 1, &cache);
        kinds_grow(&kinds, &cache, 37, keys);
        ck_assert_int_eq(kvg_kv_cache_leaves(&cache, part), KVG_OK);
        for (size_t i = 0; i < kvg_kv_cache_leaf_count(&cache); i++) {
            size_t w = 0;
            while (w < count && (whole[w].layer != part[i].layer || whole[w].plane != part[i].plane || whole[w].head != part[i].head)) w++;
            ck_assert_uint_lt(w, count);
            ck_assert_mem_eq(whole[w].hash, part[i].hash, 16);
            found += part[i].plane >= KVG_PLANE_CONV;
        }
        close_kinds(&cache, 1);
    }
    ck_assert_uint_eq(found, (2 + 2 + 4 + 4) + (6 + 6) + 2); /* each head on one rank */
}
END_TEST

int main(void)
{
    if (test_device_missing()) return test_device_missing();
    Suite *suite = suite_create("cache_kinds");
    TCase *tcase = tcase_create("kinds");

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, test_any_accepted_prefix_gives_the_digest_of_a_run_that_never_speculated, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_the_comparison_with_the_reference_can_fail, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_replays_pile_up_over_rounds_until_one_is_taken_whole, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_a_refused_step_leaves_everything_as_it_was, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_what_was_owed_is_owed_still_after_a_refusal, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_prefixes_of_several_passes, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_a_pass_without_memory_is_refused_and_tried_again, 0, LAYOUTS);
    tcase_add_test(tcase, test_a_round_with_a_column_a_row_copies_nothing);
    tcase_add_loop_test(tcase, test_after_a_rollback_and_replay_the_digest_is_of_a_run_that_never_speculated, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_more_than_is_held_is_refused_with_every_part_unchanged, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_while_a_replay_is_owed_snapshot_fork_and_digest_are_busy, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_a_rollback_makes_later_snapshots_stale, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_windows_keep_what_a_replay_will_read, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_a_step_beside_a_replay_may_be_as_long_as_ever, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_a_rewind_goes_as_far_back_as_columns_hold, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_a_rewind_into_rows_that_are_owed_owes_less, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_forks_share_rows_and_go_on_apart, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_a_replay_never_writes_into_a_chunk_that_a_fork_shares, 0, LAYOUTS);
    tcase_add_loop_test(tcase, test_shards_hold_their_heads_of_each_part, 0, LAYOUTS);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

/* One latent layer's planes kept apart, captured early and read late, and restored: every refusal, and no byte moved by one. */
#include "tests/runtime/kinds_fixture.h"

#include "runtime/state/store_impl.h"

enum { MAX_CTX = 500, KEYS = 600, LAYERS = 4 };

/* A model of latents alone, one of each kind; the pool layout and the flat one. */
typedef struct Latents {
    KvDev           dev;
    KvLayerGeometry layers[LAYERS];
    KvClassGeometry class;
    KvStore        *store;
    uint32_t        pool;
} Latents;

static uint64_t keys[KEYS];

static void open_latents(Latents *l, KvLayout layout, uint64_t ring, KvFormat format)
{
    l->pool = 8;
    l->layers[0] = kinds_latent(0, 6, KVG_INDEX_NONE, 0, 0, format);
    l->layers[1] = kinds_latent(1, 5, KVG_INDEX_PER_TOKEN, 3, 0, format);
    l->layers[2] = kinds_latent(2, 7, KVG_INDEX_POOLED, 4, 8, format);
    l->layers[3] = kinds_latent(3, 7, KVG_INDEX_POOLED, 6, 8, format);
    l->class = (KvClassGeometry){.row_cap = MAX_CTX, .unit_cap = 8, .units = 30, .units_max = 30};
    KvStoreOptions options = {.dev = &l->dev, .layout = layout, .layers = l->layers, .layer_count = LAYERS, .classes = &l->class,
                              .class_count = 1, .slots = 3, .max_ctx = MAX_CTX, .n_layer = LAYERS, .index_pool = 8, .index_ring_rows = ring};
    for (uint64_t i = 0; i < KEYS; i++) keys[i] = i + 1;
    ck_assert_int_eq(test_device_open(1, &l->dev), KVG_OK);
    ck_assert_msg(kvg_store_create(&options, &l->store) == KVG_OK, "%s", kvg_last_error());
}

static void close_latents(Latents *l)
{
    ck_assert_uint_eq(kvg_store_bytes(l->store).booked, 0);
    kvg_store_destroy(l->store);
    test_device_close(&l->dev);
}

static void write_rows(Latents *l, KvCache *cache, uint32_t rows, const uint64_t *row_keys)
{
    uint64_t row = kvg_kv_cache_pass_row(cache);
    float    a[KINDS_PREFILL * 8], b[KINDS_PREFILL * 8];

    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        const KvLatentView *view = kvg_store_latent_view(l->store, layer);
        KvRowsIn in = kinds_rows(&l->dev, layer, 2, row_keys + row, rows, view->width, a);
        KvRowsIn index = kinds_rows(&l->dev, layer, 3, row_keys + row, rows, view->index_width, b);
        ck_assert_int_eq(kvg_store_write_latent(l->store, layer, cache->slot, row, rows, &in, view->index_width != 0 ? &index : NULL,
                                                kinds_pool_key, &l->pool, NULL), KVG_OK);
    }
}

static void grow(Latents *l, KvCache *cache, uint64_t len, const uint64_t *row_keys)
{
    while (cache->pos < len) {
        uint32_t rows = (uint32_t)kvg_min_u64(len - cache->pos, KINDS_PREFILL);

        kinds_begin(cache);
        ck_assert_msg(kvg_kv_cache_append(cache, rows, NULL) == KVG_OK, "%s", kvg_last_error());
        write_rows(l, cache, rows, row_keys);
        ck_assert_uint_eq(kvg_kv_cache_finalize(cache, rows), 0);
    }
}

static int same_digest(const KvCache *a, const KvCache *b)
{
    KvDigest x = kinds_digest(a), y = kinds_digest(b);
    return memcmp(&x, &y, sizeof x) == 0;
}

static void restore_all(LatentPlaneSnapshot **planes, KvCache *target)
{
    uint64_t len = kvg_latent_snapshot_len(planes[0]);

    ck_assert_msg(kvg_kv_cache_book(target, len) == KVG_OK, "%s", kvg_last_error());
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        ck_assert_msg(kvg_latent_restore_plane(planes[layer], target, layer, NULL) == KVG_OK, "%s", kvg_last_error());
    }
    ck_assert_uint_eq(target->pos, 0); /* not before all layers are there */
    ck_assert_msg(kvg_kv_cache_hydrate(target, len, 0) == KVG_OK, "%s", kvg_last_error());
}

START_TEST(test_a_restored_sequence_goes_on_with_the_same_digest)
{
    for (uint64_t len = 1; len < 300; len += 1 + len / 7) {
        Latents              from, to;
        LatentPlaneSnapshot *planes[LAYERS];
        KvCache              cache, restored;

        open_latents(&from, _i == 0 ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT, 16, KVG_F32);
        open_latents(&to, _i == 0 ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL, len % 2 ? 24 : 0, KVG_F32); /* another layout, another ring */
        kvg_kv_cache_open(from.store, 0, 1, &cache);
        kvg_kv_cache_open(to.store, 2, 7, &restored);
        grow(&from, &cache, len, keys);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            ck_assert_msg(kvg_latent_snapshot_plane(&cache, layer, NULL, &planes[layer]) == KVG_OK, "%s", kvg_last_error());
        }
        ck_assert_uint_eq(kvg_latent_snapshot_bytes(planes[0]), len * 24);
        ck_assert_uint_eq(kvg_latent_snapshot_bytes(planes[1]), len * (20 + 12));
        ck_assert_uint_eq(kvg_latent_snapshot_bytes(planes[2]), len * 28 + len / 8 * 8 + len % 8 * 16);
        restore_all(planes, &restored);
        ck_assert(same_digest(&cache, &restored));
        grow(&from, &cache, len + 90, keys);
        grow(&to, &restored, len + 90, keys);
        ck_assert(same_digest(&cache, &restored));
        for (uint32_t layer = 0; layer < LAYERS; layer++) kvg_latent_snapshot_free(planes[layer]);
        kvg_kv_cache_close(&cache, NULL);
        kvg_kv_cache_close(&restored, NULL);
        close_latents(&from);
        close_latents(&to);
    }
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}
END_TEST

static const KvDevOps *counted_ops;
static int             counted_waits;

static KvgStatus counted_synchronize(void *self, KvgStream stream)
{
    counted_waits++;
    return counted_ops->synchronize(self, stream);
}

START_TEST(test_a_restore_onto_another_device_waits_for_the_snapshots)
{
    Latents              from, to;
    LatentPlaneSnapshot *plane;
    KvCache              cache, restored;
    KvDevOps             ops;

    open_latents(&from, KVG_LAYOUT_POOL, 16, KVG_F32);
    open_latents(&to, KVG_LAYOUT_POOL, 16, KVG_F32);
    counted_ops = from.dev.ops;
    ops = *counted_ops;
    ops.synchronize = counted_synchronize;
    from.dev.ops = &ops;
    kvg_kv_cache_open(from.store, 0, 1, &cache);
    kvg_kv_cache_open(from.store, 1, 2, &restored);
    grow(&from, &cache, 20, keys);
    ck_assert_int_eq(kvg_latent_snapshot_plane(&cache, 0, NULL, &plane), KVG_OK);
    ck_assert_int_eq(kvg_kv_cache_book(&restored, 20), KVG_OK);
    counted_waits = 0;
    ck_assert_int_eq(kvg_latent_restore_plane(plane, &restored, 0, NULL), KVG_OK); /* the same device: in order by itself */
    ck_assert_int_eq(counted_waits, 0);
    kvg_kv_cache_close(&restored, NULL);
    kvg_kv_cache_open(to.store, 2, 7, &restored);
    ck_assert_int_eq(kvg_kv_cache_book(&restored, 20), KVG_OK);
    ck_assert_int_eq(kvg_latent_restore_plane(plane, &restored, 0, NULL), KVG_OK);
    ck_assert_int_eq(counted_waits, 1);
    kvg_latent_snapshot_free(plane);
    kvg_kv_cache_close(&restored, NULL);
    kvg_kv_cache_close(&cache, NULL);
    from.dev.ops = counted_ops;
    close_latents(&from);
    close_latents(&to);
}
END_TEST

START_TEST(test_a_capture_gives_later_what_a_snapshot_gave_then)
{
    for (uint64_t len = 1; len < 70; len++) {
        Latents              l;
        LatentPlaneSnapshot *planes[LAYERS];
        LatentTailCapture   *tails[LAYERS];
        KvCache              cache, then, restored;

        open_latents(&l, _i == 0 ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT, 16, KVG_BF16);
        kvg_kv_cache_open(l.store, 0, 1, &cache);
        kvg_kv_cache_open(l.store, 1, 2, &then);
        kvg_kv_cache_open(l.store, 2, 3, &restored);
        grow(&l, &cache, len, keys);
        grow(&l, &then, len, keys);
        for (uint32_t i = 0; i < LAYERS; i++) ck_assert_int_eq(kvg_latent_snapshot_tail(&cache, i, NULL, &tails[i]), KVG_OK);
        grow(&l, &cache, len + 55, keys); /* the ring has been round */
        for (uint32_t i = 0; i < LAYERS; i++) {
            ck_assert_msg(kvg_latent_snapshot_plane_at(&cache, i, tails[i], NULL, &planes[i]) == KVG_OK, "%s", kvg_last_error());
        }
        restore_all(planes, &restored);
        ck_assert(same_digest(&then, &restored));
        for (uint32_t i = 0; i < LAYERS; i++) {
            kvg_latent_snapshot_free(planes[i]);
            kvg_latent_tail_free(tails[i]);
        }
        kvg_kv_cache_close(&cache, NULL);
        kvg_kv_cache_close(&then, NULL);
        kvg_kv_cache_close(&restored, NULL);
        close_latents(&l);
    }
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}
END_TEST

/* ---- refusals */

START_TEST(test_a_snapshot_of_what_is_not_there_or_not_settled_is_refused)
{
    Latents              l;
    LatentPlaneSnapshot *none = NULL;
    LatentTailCapture   *no_tail = NULL;
    KvCache              cache;

    open_latents(&l, KVG_LAYOUT_POOL, 16, KVG_F32);
    kvg_kv_cache_open(l.store, 0, 1, &cache);
    ck_assert_int_eq(kvg_latent_snapshot_plane(&cache, 2, NULL, &none), KVG_EINVAL); /* no rows */
    ck_assert_int_eq(kvg_latent_snapshot_tail(&cache, 2, NULL, &no_tail), KVG_EINVAL);
    grow(&l, &cache, 21, keys);
    ck_assert_int_eq(kvg_latent_snapshot_plane(&cache, LAYERS, NULL, &none), KVG_EINVAL); /* no such layer */
    StoreLayer *layer = kvg_store_find_layer(l.store, 2);
    layer->latent.pool = 0;
    ck_assert_int_eq(kvg_latent_snapshot_plane(&cache, 2, NULL, &none), KVG_EGEOM);
    layer->latent.pool = 8;
    for (uint32_t ready = 0; ready < 5; ready++) {
        l.store->pools_ready[0] = ready;
        ck_assert_int_eq(kvg_latent_snapshot_plane(&cache, 2, NULL, &none), ready == 2 ? KVG_OK : KVG_ESTALE);
        kvg_latent_snapshot_free(none);
        none = NULL;
    }
    l.store->pools_ready[0] = 2;
    kinds_begin(&cache);
    ck_assert_int_eq(kvg_latent_snapshot_plane(&cache, 2, NULL, &none), KVG_EBUSY);
    ck_assert_int_eq(kvg_kv_cache_append(&cache, 30, NULL), KVG_OK);
    write_rows(&l, &cache, 30, keys);
    ck_assert_uint_eq(kvg_kv_cache_finalize(&cache, 2), 2); /* the tail of row 23 is gone: 2 rows are owed */
    ck_assert_int_eq(kvg_latent_snapshot_plane(&cache, 2, NULL, &none), KVG_EBUSY);
    kinds_begin(&cache);
    ck_assert_int_eq(kvg_kv_cache_append(&cache, 2, NULL), KVG_OK);
    write_rows(&l, &cache, 2, keys);
    ck_assert_uint_eq(kvg_kv_cache_finalize(&cache, 0), 0);
    kvg_kv_cache_taint(&cache);
    ck_assert_int_eq(kvg_latent_snapshot_plane(&cache, 2, NULL, &none), KVG_ETAINTED);
    ck_assert_int_eq(kvg_latent_snapshot_tail(&cache, 2, NULL, &no_tail), KVG_ETAINTED);
    ck_assert_ptr_null(none);
    ck_assert_ptr_null(no_tail);
    kvg_kv_cache_close(&cache, NULL);
    close_latents(&l);
}
END_TEST

static uint64_t  moves;
static KvDevOps  counting_ops;
static KvgStatus (*real_move)(void *, void *, const void *, size_t, KvgStream);

static KvgStatus counting_move(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    moves++;
    return real_move(self, target, source, bytes, stream);
}

static void refused(const LatentPlaneSnapshot *snapshot, KvCache *target, uint32_t layer, KvgStatus status)
{
    ck_assert_int_eq(kvg_latent_validate_restore(snapshot, target, layer), status);
    ck_assert_int_eq(kvg_latent_restore_plane(snapshot, target, layer, NULL), status);
    ck_assert_uint_eq(moves, 0);
}

START_TEST(test_a_restore_that_does_not_fit_moves_no_byte)
{
    Latents              l, other;
    LatentPlaneSnapshot *snapshot = NULL;
    KvCache              cache, target, foreign;

    open_latents(&l, KVG_LAYOUT_POOL, 16, KVG_F32);
    open_latents(&other, KVG_LAYOUT_POOL, 16, KVG_BF16);
    kvg_kv_cache_open(l.store, 0, 1, &cache);
    kvg_kv_cache_open(l.store, 1, 2, &target);
    kvg_kv_cache_open(other.store, 0, 3, &foreign);
    grow(&l, &cache, 130, keys);
    ck_assert_int_eq(kvg_latent_snapshot_plane(&cache, 2, NULL, &snapshot), KVG_OK);
    counting_ops = *l.dev.ops;
    real_move = counting_ops.move;
    counting_ops.move = counting_move;
    l.dev.ops = other.dev.ops = &counting_ops;
    moves = 0;
    refused(snapshot, &cache, 2, KVG_EBUSY);              /* not fresh */
    refused(snapshot, &target, 0, KVG_ELAYOUT);           /* no indexer */
    refused(snapshot, &target, 1, KVG_ELAYOUT);           /* one key a token */
    refused(snapshot, &target, 3, KVG_ELAYOUT);           /* another index width */
    refused(snapshot, &target, LAYERS, KVG_ELAYOUT);      /* no layer */
    refused(snapshot, &foreign, 2, KVG_ELAYOUT);          /* another format */
    refused(snapshot, &target, 2, KVG_ECAPACITY);         /* nothing is booked */
    ck_assert_int_eq(kvg_kv_cache_book(&target, 128), KVG_OK);
    refused(snapshot, &target, 2, KVG_ECAPACITY);         /* 128 of 130 */
    kinds_begin(&target);
    refused(snapshot, &target, 2, KVG_EBUSY);             /* a step is open */
    kvg_kv_cache_refuse(&target);
    refused(snapshot, &target, 2, KVG_EBUSY);             /* and was once */
    kvg_kv_cache_taint(&target);
    refused(snapshot, &target, 2, KVG_ETAINTED);
    kvg_latent_snapshot_free(snapshot);
    kvg_latent_snapshot_free(NULL);
    kvg_latent_tail_free(NULL);
    kvg_kv_cache_close(&cache, NULL);
    kvg_kv_cache_close(&target, NULL);
    kvg_kv_cache_close(&foreign, NULL);
    close_latents(&l);
    close_latents(&other);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}
END_TEST

START_TEST(test_a_capture_is_stale_once_the_layer_was_shorter)
{
    for (uint64_t cut = 18; cut <= 40; cut++) {
        Latents              l;
        LatentPlaneSnapshot *snapshot = NULL;
        LatentTailCapture   *tail = NULL;
        KvCache              cache, other;

        open_latents(&l, KVG_LAYOUT_FLAT, 0, KVG_F32);
        kvg_kv_cache_open(l.store, 0, 1, &cache);
        kvg_kv_cache_open(l.store, 1, 2, &other);
        grow(&l, &cache, 30, keys);
        ck_assert_int_eq(kvg_latent_snapshot_tail(&cache, 2, NULL, &tail), KVG_OK);
        grow(&l, &cache, 40, keys);
        ck_assert_int_eq(kvg_kv_cache_rewind_to(&cache, cut, NULL), KVG_OK);
        grow(&l, &cache, 50, keys);
        ck_assert_int_eq(kvg_latent_snapshot_plane_at(&cache, 2, tail, NULL, &snapshot), cut < 30 ? KVG_ESTALE : KVG_OK);
        kvg_latent_snapshot_free(snapshot);
        snapshot = NULL;
        ck_assert_int_eq(kvg_latent_snapshot_plane_at(&cache, 3, tail, NULL, &snapshot), KVG_ESTALE); /* another layer's */
        ck_assert_int_eq(kvg_latent_snapshot_plane_at(&other, 2, tail, NULL, &snapshot), KVG_ESTALE); /* another sequence's */
        ck_assert_ptr_null(snapshot);
        kvg_latent_tail_free(tail);
        kvg_kv_cache_close(&cache, NULL);
        kvg_kv_cache_close(&other, NULL);
        close_latents(&l);
    }
}
END_TEST

START_TEST(test_snapshots_unwind_from_every_acquisition)
{
    Latents l;
    KvCache cache;

    open_latents(&l, KVG_LAYOUT_POOL, 16, KVG_F32);
    kvg_kv_cache_open(l.store, 0, 1, &cache);
    grow(&l, &cache, 29, keys);
    for (int what = 0; what < 2; what++) {
        for (uint64_t nth = 0;; nth++) {
            uint64_t             taken = l.dev.ops->taken_bytes(l.dev.self), live = kvg_live_allocations();
            LatentPlaneSnapshot *snapshot = NULL;
            LatentTailCapture   *tail = NULL;

            kvg_fault_arm(nth);
            KvgStatus status = what == 0 ? kvg_latent_snapshot_plane(&cache, 2, NULL, &snapshot) : kvg_latent_snapshot_tail(&cache, 2, NULL, &tail);
            int       hit = kvg_fault_disarm();
            ck_assert_int_eq(status, hit ? KVG_ENOMEM : KVG_OK);
            ck_assert(!hit || (snapshot == NULL && tail == NULL));
            kvg_latent_snapshot_free(snapshot);
            kvg_latent_tail_free(tail);
            ck_assert_uint_eq(l.dev.ops->taken_bytes(l.dev.self), taken);
            ck_assert_uint_eq(kvg_live_allocations(), live);
            if (!hit) break;
        }
    }
    kvg_kv_cache_close(&cache, NULL);
    close_latents(&l);
}
END_TEST

/* Rows alone bring back no recurrent state: nothing of such a sequence counts until that is recomputed. */
START_TEST(test_a_model_with_recurrent_state_is_not_hydrated_from_rows)
{
    KindsShape shape = {.layout = KVG_LAYOUT_POOL, .reserves = 1, .columns = 2, .pool = 8, .ring = 16, .max_ctx = MAX_CTX, .slots = 1, .units = 10};
    Kinds      kinds;
    KvCache    cache;

    kinds_open(&kinds, &shape);
    kvg_kv_cache_open(kinds.store, 0, 1, &cache);
    ck_assert_int_eq(kvg_kv_cache_book(&cache, 100), KVG_OK);
    ck_assert_int_eq(kvg_kv_cache_hydrate(&cache, 100, 0), KVG_ELAPPED);
    ck_assert_uint_eq(cache.pos, 0);
    kvg_kv_cache_close(&cache, NULL);
    kinds_close(&kinds);
}
END_TEST

int main(void)
{
    if (test_device_missing()) return test_device_missing();
    Suite *suite = suite_create("latent_snapshot");
    TCase *tcase = tcase_create("latent_snapshot");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_a_restored_sequence_goes_on_with_the_same_digest, 0, 2);
    tcase_add_test(tcase, test_a_restore_onto_another_device_waits_for_the_snapshots);
    tcase_add_loop_test(tcase, test_a_capture_gives_later_what_a_snapshot_gave_then, 0, 2);
    tcase_add_test(tcase, test_a_snapshot_of_what_is_not_there_or_not_settled_is_refused);
    tcase_add_test(tcase, test_a_restore_that_does_not_fit_moves_no_byte);
    tcase_add_test(tcase, test_a_capture_is_stale_once_the_layer_was_shorter);
    tcase_add_test(tcase, test_snapshots_unwind_from_every_acquisition);
    tcase_add_test(tcase, test_a_model_with_recurrent_state_is_not_hydrated_from_rows);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

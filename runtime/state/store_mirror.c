/* Store, mirror: a device whose memory the host cannot write. Tables, lengths, bases and column indices are decided in host memory, as
 * everywhere; each word that changes is noted once, and the next flush sends all of them in one asynchronous copy, in stream order.
 *
 *   arena         host memory: what the host decides from
 *   device_arena  the device's: what kernels read; behind the arena by what is noted and not sent
 * Rows, columns and rings are the device's alone: they are copied by its moves, and come to the host for digests and reads only. */
#include "runtime/state/store_impl.h"

#include <string.h>

#include <kvgrid/log.h>

#include "runtime/base/memory.h"

/* ---- making */

static KvgStatus host_side(KvStore *store, uint64_t words)
{
    if (words > UINT32_MAX) {
        return kvg_fail(KVG_EOVERFLOW, "chunk tables of %u slots and %u entries do not fit; lower the slots or the context", store->slots,
                        store->table_stride);
    }
    KVG_TRY(kvg_calloc(words, sizeof(int32_t), "a mirror of tables and lengths", &store->arena));
    KVG_TRY(KVG_NEW((words + 63) / 64, "changes of tables and lengths", &store->noted));
    KVG_TRY(KVG_NEW(words, "changes of tables and lengths", &store->changes));
    return KVG_OK;
}

KvgStatus kvg_store_open_mirror(KvStore *store, uint64_t words)
{
    const KvDevOps *ops = store->dev->ops;
    void           *device_arena = NULL, *counts = NULL;

    KVG_TRY(host_side(store, words));
    KVG_TRY(ops->uninit(store->dev->self, store->arena_bytes, &device_arena));
    store->device_arena = device_arena;
    KVG_TRY(ops->zeros(store->dev->self, (store->layers_max + 1) * sizeof *store->device_counts, &counts));
    store->device_counts = counts;
    return ops->event_create(store->dev->self, &store->order);
}

KvgStatus kvg_store_fill_mirror(KvStore *store)
{
    KVG_TRY(store->dev->ops->htod(store->dev->self, store->device_arena, store->arena, store->arena_bytes, NULL));
    return store->dev->ops->synchronize(store->dev->self, NULL); /* whatever stream reads it first */
}

void kvg_store_close_mirror(KvStore *store)
{
    const KvDevOps *ops = store->dev->ops;

    if (store->order != NULL) ops->event_destroy(store->dev->self, store->order);
    ops->free(store->dev->self, store->scratch);
    ops->free(store->dev->self, store->device_counts);
    ops->free(store->dev->self, store->device_arena);
    kvg_free(store->stage);
    kvg_free(store->changes);
    kvg_free(store->noted);
    kvg_free(store->arena);
}

/* ---- views for kernels */

static const void *on_device(const KvStore *store, const void *word)
{
    if (word == NULL) return NULL;
    return store->device_arena + ((const uint32_t *)word - (const uint32_t *)store->arena);
}

static void show_layer(const KvStore *store, StoreLayer *layer)
{
    layer->shown_view = layer->view;
    layer->shown_view.table = on_device(store, layer->view.table);
    layer->shown_view.len = on_device(store, layer->view.len);
    layer->shown_view.len_staged = on_device(store, layer->view.len_staged);
    layer->shown_view.base_row = on_device(store, layer->view.base_row);
    layer->shown_latent = layer->latent;
    layer->shown_latent.table = on_device(store, layer->latent.table);
    layer->shown_latent.len = on_device(store, layer->latent.len);
    layer->shown_latent.len_staged = on_device(store, layer->latent.len_staged);
    layer->shown_latent.pools_ready = on_device(store, layer->latent.pools_ready);
    layer->shown_recurrent = layer->recurrent;
    layer->shown_recurrent.read = on_device(store, layer->recurrent.read);
    layer->shown_recurrent.write = on_device(store, layer->recurrent.write);
    layer->shown_recurrent.each = on_device(store, layer->recurrent.each);
}

void kvg_store_show(KvStore *store)
{
    for (uint32_t i = 0; i < store->layer_count; i++) show_layer(store, &store->layers[i]);
}

static const StoreLayer *find_kind(const KvStore *store, uint32_t layer, KvStateKind kind)
{
    const StoreLayer *found = kvg_store_find_layer(store, layer);
    return found != NULL && found->kind == kind ? found : NULL;
}

const KvPlaneView *kvg_store_shown_view(const KvStore *store, uint32_t layer)
{
    const StoreLayer *found = find_kind(store, layer, KVG_STATE_KV);
    return found == NULL ? NULL : store->mirrored ? &found->shown_view : &found->view;
}

const KvLatentView *kvg_store_shown_latent_view(const KvStore *store, uint32_t layer)
{
    const StoreLayer *found = find_kind(store, layer, KVG_STATE_LATENT);
    return found == NULL ? NULL : store->mirrored ? &found->shown_latent : &found->latent;
}

const KvRecurrentView *kvg_store_shown_recurrent_view(const KvStore *store, uint32_t layer)
{
    const StoreLayer *found = find_kind(store, layer, KVG_STATE_RECURRENT);
    return found == NULL ? NULL : store->mirrored ? &found->shown_recurrent : &found->recurrent;
}

int kvg_store_mirrored(const KvStore *store)
{
    return store->mirrored;
}

/* ---- changes */

void kvg_store_note_word(KvStore *store, const void *word)
{
    uint32_t index = (uint32_t)((const uint32_t *)word - (const uint32_t *)store->arena);
    uint64_t bit = UINT64_C(1) << index % 64;

    if (store->noted[index / 64] & bit) return;
    store->noted[index / 64] |= bit;
    store->changes[store->change_count++].index = index;
}

static KvgStatus send_changes(KvStore *store, KvgStream stream)
{
    const uint32_t *words = store->arena;

    for (uint32_t i = 0; i < store->change_count; i++) store->changes[i].value = words[store->changes[i].index];
    KVG_TRY(store->dev->ops->patch(store->dev->self, store->device_arena, store->changes, store->change_count, stream));
    for (uint32_t i = 0; i < store->change_count; i++) store->noted[store->changes[i].index / 64] = 0;
    store->change_count = 0;
    return KVG_OK;
}

/* Freed units may be booked again for another stream than the one that read them last. The device's own stream waits for all of them, and
 * they for it (dev.h). One stream alone is in order by itself. */
static KvgStatus order_streams(KvStore *store, KvgStream stream)
{
    if (stream == NULL) return KVG_OK;
    store->streams_mixed |= store->last_stream != NULL && store->last_stream != stream;
    store->last_stream = stream;
    if (!store->units_freed || !store->streams_mixed) return KVG_OK;
    store->units_freed = 0;
    return store->dev->ops->event_record(store->dev->self, store->order, NULL);
}

KvgStatus kvg_store_flush(KvStore *store, KvgStream stream)
{
    if (!store->mirrored) return KVG_OK; /* what the host wrote is what kernels read */
    if (store->failed != KVG_OK) {
        return kvg_fail(store->failed, "a copy of sequence state on device %s has failed before: close the placement", store->dev->ops->name);
    }
    KVG_TRY(order_streams(store, stream));
    return store->change_count > 0 ? send_changes(store, stream) : KVG_OK;
}

void kvg_store_copied(const KvStore *store, KvgStatus status)
{
    KVG_ASSERT(status == KVG_OK || store->mirrored); /* a direct device's copies cannot fail */
    if (status == KVG_OK) return;
    kvg_log(KVG_LOG_ERROR, "sequence state is lost: %s", kvg_last_error());
    ((KvStore *)(uintptr_t)store)->failed = status; /* a store that only gives an image away has failed all the same */
}

/* ---- rows between host and device: off every fast path */

static KvgStatus need_scratch(KvStore *store, size_t bytes)
{
    void *wider = NULL;

    if (bytes <= store->scratch_bytes) return KVG_OK;
    KVG_TRY(store->dev->ops->uninit(store->dev->self, bytes, &wider));
    store->dev->ops->free(store->dev->self, store->scratch);
    store->scratch = wider;
    store->scratch_bytes = bytes;
    return KVG_OK;
}

KvgStatus kvg_store_decode(KvStore *store, KvFormat format, KvRowsAt at, uint32_t heads, uint32_t dim, uint32_t rows, float *target,
                           KvgStream stream)
{
    const KvDevOps *ops = store->dev->ops;
    size_t          bytes = (size_t)rows * heads * dim * sizeof *target;

    if (!store->mirrored) return ops->decode_rows(store->dev->self, format, at, heads, dim, rows, target, stream);
    KVG_TRY(need_scratch(store, bytes));
    KVG_TRY(ops->decode_rows(store->dev->self, format, at, heads, dim, rows, store->scratch, stream));
    KVG_TRY(ops->dtoh(store->dev->self, target, store->scratch, bytes, stream));
    return ops->synchronize(store->dev->self, stream);
}

KvgStatus kvg_store_lend(KvStore *store, const void *source, size_t bytes, KvgStream stream, const void **lent)
{
    KVG_TRY(need_scratch(store, bytes));
    KVG_TRY(store->dev->ops->htod(store->dev->self, store->scratch, source, bytes, stream));
    *lent = store->scratch;
    return KVG_OK;
}

KvEncodeCounts kvg_store_device_counts(const KvStore *store, uint32_t index)
{
    KvEncodeCounts counts = {0, 0};

    kvg_store_copied(store, store->dev->ops->synchronize(store->dev->self, NULL));
    kvg_store_copied(store, store->dev->ops->dtoh(store->dev->self, &counts, &store->device_counts[index], sizeof counts, NULL));
    kvg_store_copied(store, store->dev->ops->synchronize(store->dev->self, NULL));
    return counts;
}

KvEncodeCounts kvg_store_device_counts_sum(const KvStore *store)
{
    enum { AT_ONCE = 128 };
    KvEncodeCounts sum = {0, 0}, counts[AT_ONCE];

    kvg_store_copied(store, store->dev->ops->synchronize(store->dev->self, NULL));
    for (uint32_t first = 0; first < store->layer_count; first += AT_ONCE) {
        uint32_t layers = store->layer_count - first < AT_ONCE ? store->layer_count - first : AT_ONCE;

        memset(counts, 0, sizeof counts);
        kvg_store_copied(store, store->dev->ops->dtoh(store->dev->self, counts, &store->device_counts[first], layers * sizeof *counts, NULL));
        kvg_store_copied(store, store->dev->ops->synchronize(store->dev->self, NULL));
        for (uint32_t i = 0; i < layers; i++) {
            sum.nonfinite += counts[i].nonfinite;
            sum.saturated += counts[i].saturated;
        }
    }
    return sum;
}

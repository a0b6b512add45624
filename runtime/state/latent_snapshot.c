/* Latent snapshots: see latent_snapshot.h. One buffer: rows, then keys, then index rows, each packed as encoded, whatever the layout. */
#include <kvgrid/latent_snapshot.h>

#include <inttypes.h>
#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/state/cache_impl.h"

typedef struct LatentShape { /* what two sides must have in common */
    uint32_t    width, kv_rank, index_width, pool;
    KvIndexKind index_kind;
    KvFormat    format;
} LatentShape;

struct LatentPlaneSnapshot {
    KvDev      *dev;
    LatentShape shape;
    uint64_t    len;
    uint8_t    *memory; /* device */
    uint64_t    row_bytes, key_bytes, index_bytes; /* of all rows, all keys, all index rows */
};

struct LatentTailCapture {
    KvDev   *dev;
    uint32_t layer;
    uint64_t serial, cuts, len;
    uint8_t *memory; /* device; NULL: no index row lacks its key */
    uint64_t index_bytes;
};

static LatentShape shape_of(const KvLatentView *view)
{
    return (LatentShape){.width = view->width, .kv_rank = view->kv_rank, .index_width = view->index_width, .pool = view->pool,
                         .index_kind = view->index_kind, .format = view->latent.format};
}

static int is_pooled(const KvLatentView *view)
{
    return view->index_kind == KVG_INDEX_POOLED;
}

static uint64_t key_count(const KvLatentView *view, uint64_t len)
{
    return view->index_kind == KVG_INDEX_NONE ? 0 : is_pooled(view) ? len / view->pool : len;
}

static uint64_t tail_rows(const KvLatentView *view, uint64_t len)
{
    return is_pooled(view) ? len % view->pool : 0;
}

/* ---- copies between planes and packed bytes */

typedef enum CopyWay { FROM_PLANE, TO_PLANE } CopyWay;

static void move_bytes(const KvStore *store, CopyWay way, uint8_t *plane, uint8_t *packed, uint64_t bytes, KvgStream stream)
{
    KvDev *dev = kvg_store_dev(store);

    kvg_store_copied(store, way == FROM_PLANE ? dev->ops->move(dev->self, packed, plane, bytes, stream)
                                              : dev->ops->move(dev->self, plane, packed, bytes, stream));
}

static void copy_entries(const KvCache *cache, const KvLatentView *view, const KvPlane *plane, uint32_t per_chunk, uint64_t count,
                         CopyWay way, uint8_t *packed, KvgStream stream)
{
    uint64_t run;

    for (uint64_t i = 0; i < count; i += run) {
        run = view->rows_per_chunk != 0 ? kvg_min_u64(count - i, per_chunk) : count;
        move_bytes(cache->store, way, kvg_latent_entry(view, plane, per_chunk, cache->slot, i), packed + i * plane->head_bytes,
                   run * plane->head_bytes, stream);
    }
}

static void copy_planes(const KvCache *cache, const KvLatentView *view, const LatentPlaneSnapshot *snapshot, CopyWay way, KvgStream stream)
{
    copy_entries(cache, view, &view->latent, KVG_CHUNK_ROWS, snapshot->len, way, snapshot->memory, stream);
    if (snapshot->key_bytes == 0) return;
    copy_entries(cache, view, &view->keys, kvg_latent_keys_per_chunk(view), key_count(view, snapshot->len), way,
                 snapshot->memory + snapshot->row_bytes, stream);
}

static void copy_tail(const KvCache *cache, const KvLatentView *view, uint64_t len, CopyWay way, uint8_t *packed, KvgStream stream)
{
    uint64_t rows = tail_rows(view, len);

    if (rows == 0) return;
    move_bytes(cache->store, way, kvg_latent_index_row(view, cache->slot, len - rows), packed, rows * view->index_row_bytes,
               stream);
}

/* ---- checks */

static KvgStatus check_source(const KvCache *cache, uint32_t layer, const KvLatentView **view_p)
{
    const KvLatentView *view = kvg_store_latent_view(cache->store, layer);

    KVG_TRY(kvg_cache_check_intact(cache));
    if (view == NULL) return kvg_fail(KVG_EINVAL, "layer %u keeps no latent rows on this rank: ask where it does", layer);
    if (cache->pos == 0) return kvg_fail(KVG_EINVAL, "layer %u of slot %u has no rows: there is nothing to keep", layer, cache->slot);
    if (is_pooled(view) && view->pool == 0) {
        return kvg_fail(KVG_EGEOM, "layer %u pools its index keys over an unknown number of rows; place it with index_pool", layer);
    }
    if (is_pooled(view) && view->pools_ready[cache->slot] != cache->pos / view->pool) {
        return kvg_fail(KVG_ESTALE, "layer %u of slot %u has keys of %u pools, and %" PRIu64 " rows make %" PRIu64 "; replay what is owed",
                        layer, cache->slot, view->pools_ready[cache->slot], cache->pos, cache->pos / view->pool);
    }
    if (cache->classes[0].active) {
        return kvg_fail(KVG_EBUSY, "snapshot of layer %u of slot %u: a step is open; decide it first", layer, cache->slot);
    }
    KVG_TRY(kvg_cache_check_settled(cache, "snapshot"));
    *view_p = view;
    return KVG_OK;
}

KvgStatus kvg_latent_validate_restore(const LatentPlaneSnapshot *snapshot, const KvCache *target, uint32_t layer)
{
    const KvLatentView *view = kvg_store_latent_view(target->store, layer);
    uint64_t            booked;
    LatentShape         shape;

    KVG_TRY(kvg_cache_check_intact(target));
    for (uint32_t c = 0; c < target->class_count; c++) {
        if (!kvg_tp_kv_fresh(&target->classes[c])) {
            return kvg_fail(KVG_EBUSY, "restore into slot %u, which is not fresh: open a new sequence for it", target->slot);
        }
    }
    if (view == NULL) return kvg_fail(KVG_ELAYOUT, "layer %u keeps no latent rows on this rank, the snapshot has some", layer);
    shape = shape_of(view);
    if (memcmp(&shape, &snapshot->shape, sizeof shape) != 0) {
        return kvg_fail(KVG_ELAYOUT, "layer %u has rows of %u %s, rank %u, index rows of %u, pools of %u; the snapshot %u %s, %u, %u, %u", layer,
                        shape.width, kvg_format_name(shape.format), shape.kv_rank, shape.index_width, shape.pool, snapshot->shape.width,
                        kvg_format_name(snapshot->shape.format), snapshot->shape.kv_rank, snapshot->shape.index_width, snapshot->shape.pool);
    }
    booked = kvg_min_u64((uint64_t)kvg_store_end(target->store, kvg_store_latent_class(target->store, layer), target->slot) * KVG_CHUNK_ROWS,
                         target->max_ctx);
    if (snapshot->len > booked) {
        return kvg_fail(KVG_ECAPACITY, "a snapshot of %" PRIu64 " rows for slot %u, which has booked %" PRIu64 " of a context of %" PRIu64
                        "; book them first", snapshot->len, target->slot, booked, target->max_ctx);
    }
    return KVG_OK;
}

/* ---- snapshots */

static KvgStatus new_snapshot(const KvCache *cache, const KvLatentView *view, uint64_t len, LatentPlaneSnapshot **snapshot_p)
{
    LatentPlaneSnapshot *snapshot;
    void                *bytes = NULL;
    KvgStatus            status;

    KVG_TRY(KVG_NEW(1, "a latent snapshot", &snapshot));
    snapshot->dev = kvg_store_dev(cache->store);
    snapshot->shape = shape_of(view);
    snapshot->len = len;
    snapshot->row_bytes = len * view->latent.head_bytes;
    snapshot->key_bytes = key_count(view, len) * view->keys.head_bytes;
    snapshot->index_bytes = tail_rows(view, len) * view->index_row_bytes;
    KVG_TRY_GOTO(snapshot->dev->ops->uninit(snapshot->dev->self, kvg_latent_snapshot_bytes(snapshot), &bytes), err_free);
    snapshot->memory = bytes;
    *snapshot_p = snapshot;
    return KVG_OK;
err_free:
    kvg_free(snapshot);
    return status;
}

static uint8_t *index_rows_of(const LatentPlaneSnapshot *snapshot)
{
    return snapshot->memory + snapshot->row_bytes + snapshot->key_bytes;
}

KvgStatus kvg_latent_snapshot_plane(const KvCache *cache, uint32_t layer, KvgStream stream, LatentPlaneSnapshot **snapshot_p)
{
    const KvLatentView  *view = NULL;
    LatentPlaneSnapshot *snapshot = NULL;

    KVG_TRY(check_source(cache, layer, &view));
    KVG_TRY(new_snapshot(cache, view, cache->pos, &snapshot));
    copy_planes(cache, view, snapshot, FROM_PLANE, stream);
    copy_tail(cache, view, cache->pos, FROM_PLANE, index_rows_of(snapshot), stream);
    *snapshot_p = snapshot;
    return KVG_OK;
}

uint64_t kvg_latent_snapshot_bytes(const LatentPlaneSnapshot *snapshot)
{
    return snapshot->row_bytes + snapshot->key_bytes + snapshot->index_bytes;
}

uint64_t kvg_latent_snapshot_len(const LatentPlaneSnapshot *snapshot)
{
    return snapshot->len;
}

/* Streams of two devices are in no order, though they may be one GPU's: what fills the snapshot ends first. */
static KvgStatus await_other_device(const LatentPlaneSnapshot *snapshot, const KvCache *target)
{
    if (snapshot->dev->self == kvg_store_dev(target->store)->self) return KVG_OK;
    return snapshot->dev->ops->synchronize(snapshot->dev->self, NULL);
}

KvgStatus kvg_latent_restore_plane(const LatentPlaneSnapshot *snapshot, KvCache *target, uint32_t layer, KvgStream stream)
{
    const KvLatentView *view = kvg_store_latent_view(target->store, layer);

    KVG_TRY(kvg_latent_validate_restore(snapshot, target, layer));
    KVG_TRY(await_other_device(snapshot, target));
    copy_planes(target, view, snapshot, TO_PLANE, stream);
    copy_tail(target, view, snapshot->len, TO_PLANE, index_rows_of(snapshot), stream);
    return KVG_OK;
}

void kvg_latent_snapshot_free(LatentPlaneSnapshot *snapshot)
{
    if (snapshot == NULL) return;
    snapshot->dev->ops->free(snapshot->dev->self, snapshot->memory);
    kvg_free(snapshot);
}

/* ---- captures */

KvgStatus kvg_latent_snapshot_tail(const KvCache *cache, uint32_t layer, KvgStream stream, LatentTailCapture **tail_p)
{
    const KvLatentView *view = NULL;
    LatentTailCapture  *tail;
    void               *bytes = NULL;
    KvgStatus           status;

    KVG_TRY(check_source(cache, layer, &view));
    KVG_TRY(KVG_NEW(1, "a tail capture", &tail));
    *tail = (LatentTailCapture){.dev = kvg_store_dev(cache->store), .layer = layer, .serial = cache->serial, .cuts = cache->cuts.count,
                                .len = cache->pos, .index_bytes = tail_rows(view, cache->pos) * view->index_row_bytes};
    if (tail->index_bytes > 0) {
        KVG_TRY_GOTO(tail->dev->ops->uninit(tail->dev->self, tail->index_bytes, &bytes), err_free);
        tail->memory = bytes;
        copy_tail(cache, view, tail->len, FROM_PLANE, tail->memory, stream);
    }
    *tail_p = tail;
    return KVG_OK;
err_free:
    kvg_free(tail);
    return status;
}

static KvgStatus check_capture(const KvCache *cache, uint32_t layer, const LatentTailCapture *tail)
{
    KVG_TRY(kvg_cache_check_intact(cache));
    if (tail->serial != cache->serial || tail->layer != layer || tail->dev != kvg_store_dev(cache->store)) {
        return kvg_fail(KVG_ESTALE, "the capture is of layer %u of another sequence's life, or of another layer than %u; capture this one",
                        tail->layer, layer);
    }
    if (kvg_cache_shortest_since(&cache->cuts, tail->cuts, cache->pos) < tail->len) {
        return kvg_fail(KVG_ESTALE, "layer %u of slot %u has been shorter than the capture's %" PRIu64 " rows since: what was there is gone",
                        layer, cache->slot, tail->len);
    }
    return KVG_OK;
}

KvgStatus kvg_latent_snapshot_plane_at(const KvCache *cache, uint32_t layer, const LatentTailCapture *tail, KvgStream stream,
                                       LatentPlaneSnapshot **snapshot_p)
{
    const KvLatentView  *view = kvg_store_latent_view(cache->store, layer);
    LatentPlaneSnapshot *snapshot = NULL;
    KvgStatus            status;

    KVG_TRY(check_capture(cache, layer, tail));
    KVG_TRY(new_snapshot(cache, view, tail->len, &snapshot));
    copy_planes(cache, view, snapshot, FROM_PLANE, stream);
    if (tail->index_bytes > 0) {
        KVG_TRY_GOTO(tail->dev->ops->move(tail->dev->self, index_rows_of(snapshot), tail->memory, tail->index_bytes, stream), err_free);
    }
    *snapshot_p = snapshot;
    return KVG_OK;
err_free:
    kvg_latent_snapshot_free(snapshot);
    return status;
}

void kvg_latent_tail_free(LatentTailCapture *tail)
{
    if (tail == NULL) return;
    if (tail->memory != NULL) tail->dev->ops->free(tail->dev->self, tail->memory);
    kvg_free(tail);
}

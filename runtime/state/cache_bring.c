/* Bring: one layer's live rows in one buffer, chunk after chunk in table order, under a table that counts from 0; flat rows as they stand.
 * A digest is off every fast path: one buffer a layer, one wait a layer. */
#include "runtime/state/cache_bring.h"

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

KvgStatus kvg_cache_bring_begin(const KvCache *cache)
{
    KvDev *dev = kvg_store_dev(cache->store);

    KVG_TRY(kvg_store_flush(cache->store, NULL)); /* tells of copies that failed before */
    return dev->ops->synchronize(dev->self, NULL);
}

void kvg_cache_bring_end(KvBrought *at)
{
    kvg_free(at->memory);
    kvg_free(at->table);
    at->memory = NULL;
    at->table = NULL;
}

static KvgStatus take(KvBrought *at, size_t bytes, uint64_t chunks)
{
    void *memory = NULL;

    KVG_TRY(kvg_calloc(1, bytes, "rows for a digest", &memory));
    at->memory = memory;
    KVG_TRY(KVG_NEW(chunks, "rows for a digest", &at->table));
    return KVG_OK;
}

static KvgStatus copy(const KvCache *cache, void *target, const void *source, size_t bytes)
{
    KvDev *dev = kvg_store_dev(cache->store);
    return bytes == 0 ? KVG_OK : dev->ops->dtoh(dev->self, target, source, bytes, NULL);
}

/* ---- planes: entries [first, end) of one, `per_chunk` a chunk; first is a multiple of it, unless flat */

typedef struct BringPlane {
    const KvPlane *plane;
    const int32_t *table; /* of the slot; NULL: flat */
    const uint8_t *flat;  /* entry `first` of a flat plane */
    uint32_t       per_chunk;
    uint64_t       first, end;
} BringPlane;

static uint64_t chunks_of(const BringPlane *from)
{
    return from->table == NULL ? 0 : kvg_ceil_div_u64(from->end, from->per_chunk) - from->first / from->per_chunk;
}

static size_t bytes_of(const BringPlane *from)
{
    return from->table != NULL ? chunks_of(from) * from->plane->chunk_bytes : (from->end - from->first) * from->plane->row_stride;
}

static KvgStatus copy_plane(const KvCache *cache, const BringPlane *from, uint8_t *target)
{
    uint64_t first = from->first / from->per_chunk;

    if (from->table == NULL) return copy(cache, target, from->flat, bytes_of(from));
    for (uint64_t c = 0; c < chunks_of(from); c++) {
        KVG_TRY(copy(cache, target + c * from->plane->chunk_bytes, from->plane->base + (size_t)from->table[first + c] * from->plane->chunk_bytes,
                     from->plane->chunk_bytes));
    }
    return KVG_OK;
}

/* The copies of several planes, one after the other, and the table that all of them use: entry e is chunk e - first. */
static KvgStatus copy_planes(const KvCache *cache, KvBrought *at, const BringPlane *from, uint32_t count, KvPlane *const *copies)
{
    size_t   bytes = 0, done = 0;
    uint64_t first = from[0].first / from[0].per_chunk, end = first + chunks_of(&from[0]);

    for (uint32_t p = 0; p < count; p++) bytes += bytes_of(&from[p]);
    KVG_TRY(take(at, bytes + 1, end));
    for (uint64_t e = first; e < end; e++) at->table[e] = (int32_t)(e - first);
    for (uint32_t p = 0; p < count; p++) {
        copies[p]->base = (uint8_t *)at->memory + done;
        copies[p]->slot_bytes = 0;
        KVG_TRY(copy_plane(cache, &from[p], copies[p]->base));
        done += bytes_of(&from[p]);
    }
    return KVG_OK;
}

/* ---- kinds of layers */

static KvgStatus bring_kv(const KvCache *cache, KvBrought *at)
{
    const KvPlaneView *view = at->view;
    uint64_t           start = view->window != 0 ? kvg_view_start(cache->pos, view->window) : 0;
    int                pool = view->rows_per_chunk != 0;
    KvPlane           *copies[2] = {&at->view_copy.k, &at->view_copy.v};
    BringPlane         from[2];

    if (pool) start -= start % KVG_CHUNK_ROWS;
    for (int p = 0; p < 2; p++) {
        const KvPlane *plane = p == 0 ? &view->k : &view->v;

        from[p] = (BringPlane){.plane = plane, .per_chunk = KVG_CHUNK_ROWS, .first = start, .end = cache->pos};
        if (pool) from[p].table = view->table + (size_t)cache->slot * view->table_stride;
        else from[p].flat = kvg_plane_row(view, plane, cache->slot, 0, start);
    }
    at->view_copy = *view;
    KVG_TRY(copy_planes(cache, at, from, 2, copies));
    at->base_row = (uint32_t)start;
    at->view_copy.table = at->table;
    at->view_copy.base_row = &at->base_row;
    at->view = &at->view_copy;
    return KVG_OK;
}

/* Fewer index rows than a pool have no key: they become a ring of one pool. */
static KvgStatus bring_latent(const KvCache *cache, KvBrought *at)
{
    const KvLatentView *view = at->latent;
    int                 pool = view->rows_per_chunk != 0, pooled = view->index_kind == KVG_INDEX_POOLED;
    uint64_t            tail = pooled ? cache->pos % view->pool : 0;
    const int32_t      *table = pool ? view->table + (size_t)cache->slot * view->table_stride : NULL;
    KvPlane             index = {.row_stride = view->index_row_bytes}, index_copy;
    KvPlane            *copies[3] = {&at->latent_copy.latent, &at->latent_copy.keys, &index_copy};
    BringPlane          from[3] = {
        {.plane = &view->latent, .table = table, .per_chunk = KVG_CHUNK_ROWS, .end = cache->pos},
        {.plane = &view->keys, .table = table, .per_chunk = kvg_latent_keys_per_chunk(view), .end = pooled ? cache->pos / view->pool : cache->pos},
        {.plane = &index, .per_chunk = 1, .end = tail}};

    if (view->index_kind == KVG_INDEX_NONE) from[1] = (BringPlane){.plane = &view->keys, .per_chunk = 1};
    if (!pool) from[0].flat = view->latent.base + cache->slot * view->latent.slot_bytes;
    if (!pool && from[1].end > 0) from[1].flat = view->keys.base + cache->slot * view->keys.slot_bytes;
    if (tail > 0) from[2].flat = kvg_latent_index_row(view, cache->slot, cache->pos - tail);
    at->latent_copy = *view;
    KVG_TRY(copy_planes(cache, at, from, 3, copies));
    at->latent_copy.table = at->table;
    at->latent_copy.ring = index_copy.base;
    at->latent_copy.ring_rows = pooled ? view->pool : 0;
    at->latent_copy.ring_slot_bytes = 0;
    at->latent = &at->latent_copy;
    return KVG_OK;
}

static KvgStatus bring_recurrent(const KvCache *cache, KvBrought *at)
{
    const KvRecurrentView *view = at->recurrent;
    float                 *copied;

    KVG_TRY(take(at, (view->conv_elements + view->state_elements) * sizeof(float), 0));
    copied = at->memory;
    KVG_TRY(copy(cache, copied, at->conv, view->conv_elements * sizeof(float)));
    KVG_TRY(copy(cache, copied + view->conv_elements, at->state, view->state_elements * sizeof(float)));
    at->conv = copied;
    at->state = copied + view->conv_elements;
    return KVG_OK;
}

KvgStatus kvg_cache_bring(const KvCache *cache, KvBrought *at)
{
    KvDev    *dev = kvg_store_dev(cache->store);
    KvgStatus status = KVG_OK;

    if (at->view != NULL) status = bring_kv(cache, at);
    else if (at->latent != NULL) status = bring_latent(cache, at);
    else if (at->recurrent != NULL) status = bring_recurrent(cache, at);
    if (status == KVG_OK) status = dev->ops->synchronize(dev->self, NULL);
    if (status != KVG_OK) kvg_cache_bring_end(at);
    at->slot = 0;
    return status;
}

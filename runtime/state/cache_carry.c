/* Carry: see the header. A walk goes by spans, each as long as the bytes lie side by side on either side: to the end of a chunk, or of a flat plane. */
#include "runtime/state/cache_carry.h"

#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/state/cache_impl.h"

/* ---- places */

void kvg_kv_cache_carry_place(const KvCache *cache, KvCarryPlace *place)
{
    *place = (KvCarryPlace){.len = cache->pos, .at = cache->keeps_slots ? cache->held.at : cache->pos, .guarantee = cache->guarantee};
    for (uint32_t c = 0; c < cache->class_count; c++) {
        place->base[c] = cache->classes[c].ring.base;
        place->end[c] = kvg_store_end(cache->store, c, cache->slot);
        place->first[c] = place->end[c] - kvg_store_held(cache->store, c, cache->slot);
    }
}

int kvg_kv_cache_carry_shares(const KvCache *cache)
{
    for (uint32_t c = 0; c < cache->class_count; c++) {
        if (kvg_store_shares(cache->store, c, cache->slot)) return 1;
    }
    return 0;
}

KvgStatus kvg_kv_cache_carry_open(KvCache *cache, const KvCarryPlace *place)
{
    uint32_t need[KVG_CLASSES_MAX] = {0};

    for (uint32_t c = 0; c < cache->class_count; c++) need[c] = place->end[c] - place->first[c];
    KVG_TRY(kvg_cache_check_units(cache, need));
    cache->guarantee = place->guarantee;
    for (uint32_t c = 0; c < cache->class_count; c++) {
        kvg_store_set_base(cache->store, c, cache->slot, place->base[c]);
        KVG_TRY(kvg_store_book_from(cache->store, c, cache->slot, place->first[c], place->end[c]));
    }
    return KVG_OK;
}

void kvg_kv_cache_carry_end(KvCache *cache, const KvCarryPlace *place)
{
    for (uint32_t c = 0; place->len > 0 && c < cache->class_count; c++) {
        KvgStatus status = kvg_tp_kv_publish_hydration(&cache->classes[c], place->len, place->base[c]);
        KVG_ASSERT(status == KVG_OK); /* as the class stood on the sender */
    }
    cache->pos = place->len;
    kvg_slot_restored(&cache->held, place->at);
    kvg_store_set_index(cache->store, cache->slot, place->at);
    kvg_store_set_len(cache->store, cache->slot, place->len, place->len);
}

/* ---- what a layer holds, plane by plane */

typedef struct CarryPlane {
    const KvPlane *plane;
    uint32_t       per_chunk; /* entries; 0: flat */
    uint32_t       heads;
    uint64_t       first, end; /* entries */
} CarryPlane;

static CarryPlane kv_plane(const KvPlaneView *view, const KvCarryPlace *place, uint32_t class_index, uint32_t plane)
{
    if (plane > 1 || !view->owns) return (CarryPlane){0};
    return (CarryPlane){.plane = plane == 0 ? &view->k : &view->v, .per_chunk = view->rows_per_chunk, .heads = view->heads,
                        .first = view->window != 0 ? place->base[class_index] : 0, .end = place->len};
}

/* A ring of index rows is in the slot image; index rows that are all kept are a plane like others. */
static CarryPlane latent_plane(const KvLatentView *view, const KvCarryPlace *place, uint32_t plane)
{
    int        pooled = view->index_kind == KVG_INDEX_POOLED;
    CarryPlane from = {.heads = 1, .per_chunk = view->rows_per_chunk};

    if (plane == 0) {
        from.plane = &view->latent;
        from.end = place->len;
    } else if (plane == 1 && view->index_kind != KVG_INDEX_NONE) {
        from.plane = &view->keys;
        from.per_chunk = view->rows_per_chunk != 0 ? kvg_latent_keys_per_chunk(view) : 0;
        from.end = pooled ? place->at / view->pool : place->len;
    } else if (plane == 2 && pooled && view->ring_rows == 0) {
        from.plane = &view->index;
        from.end = place->at;
    }
    return from;
}

/* plane NULL: the layer has no such plane here. */
static CarryPlane plane_of(const KvCache *cache, const KvCarryPlace *place, uint32_t layer, uint32_t plane)
{
    const KvPlaneView  *view = kvg_store_view(cache->store, layer);
    const KvLatentView *latent = kvg_store_latent_view(cache->store, layer);

    if (view != NULL && view->layer == layer) return kv_plane(view, place, kvg_store_view_class(cache->store, layer), plane);
    return latent != NULL ? latent_plane(latent, place, plane) : (CarryPlane){0};
}

static uint8_t *entry_at(const KvCache *cache, uint32_t layer, const CarryPlane *from, uint32_t head, uint64_t entry)
{
    const KvPlaneView *view = kvg_store_view(cache->store, layer);

    if (view != NULL) return kvg_plane_row(view, from->plane, cache->slot, head, entry);
    return kvg_latent_entry(kvg_store_latent_view(cache->store, layer), from->plane, from->per_chunk, cache->slot, entry);
}

/* Entries from `entry` on that lie side by side. */
static uint64_t run_of(const CarryPlane *from, uint64_t entry)
{
    if (from->per_chunk != 0) return kvg_min_u64(from->end - entry, from->per_chunk - entry % from->per_chunk);
    return from->plane->row_stride == from->plane->head_bytes ? from->end - entry : 1;
}

/* ---- walks */

#define CARRY_PLANES 3

KvgStatus kvg_carry_begin(const KvCache *cache, const KvCarryPlace *place, const uint8_t *mine, int image, int sends, KvCarryWalk *walk)
{
    KvDev *dev = kvg_store_dev(cache->store);
    size_t bytes = kvg_store_image_bytes(cache->store);

    *walk = (KvCarryWalk){.cache = cache, .mine = mine, .image = image && bytes > 0, .place = *place};
    if (sends) {
        KVG_TRY(kvg_store_flush(cache->store, NULL)); /* tells of copies that failed before */
        KVG_TRY(dev->ops->synchronize(dev->self, NULL));
    }
    if (!walk->image) return KVG_OK;
    KVG_TRY(dev->ops->zeros(dev->self, bytes, &walk->image_memory));
    if (sends) {
        kvg_store_save_image(cache->store, cache->slot, cache->held.current, place->at, walk->image_memory, NULL);
        return dev->ops->synchronize(dev->self, NULL);
    }
    return KVG_OK;
}

void kvg_carry_end(KvCarryWalk *walk)
{
    if (walk->image_memory != NULL) {
        KvDev *dev = kvg_store_dev(walk->cache->store);
        dev->ops->free(dev->self, walk->image_memory);
        walk->image_memory = NULL;
    }
}

uint64_t kvg_carry_bytes(const KvCache *cache, const KvCarryPlace *place, const uint8_t *mine, int image)
{
    uint64_t bytes = image ? kvg_store_image_bytes(cache->store) : 0;

    for (uint32_t layer = 0; layer < kvg_store_layer_count(cache->store); layer++) {
        for (uint32_t p = 0; mine[layer] && p < CARRY_PLANES; p++) {
            CarryPlane from = plane_of(cache, place, layer, p);
            if (from.plane != NULL && from.end > from.first) bytes += (from.end - from.first) * from.heads * from.plane->head_bytes;
        }
    }
    return bytes;
}

/* Moves on to the next plane that has something left. 0: the planes are through. */
static int find_plane(KvCarryWalk *walk, CarryPlane *from)
{
    for (; walk->layer < kvg_store_layer_count(walk->cache->store); walk->layer++, walk->plane = 0) {
        for (; walk->mine[walk->layer] && walk->plane < CARRY_PLANES; walk->plane++, walk->head = 0, walk->row = 0) {
            *from = plane_of(walk->cache, &walk->place, walk->layer, walk->plane);
            if (from->plane != NULL && from->first < from->end && walk->head < from->heads) return 1;
        }
    }
    return 0;
}

/* The next bytes that lie side by side, at most `most`, on the device; NULL: the walk is through. A piece may end within an entry: `row` then counts bytes
 * of the head's rows, so that both sides cut where they like. */
static uint8_t *next_span(KvCarryWalk *walk, size_t most, size_t *bytes)
{
    CarryPlane from;

    if (find_plane(walk, &from)) {
        size_t   entry_bytes = from.plane->head_bytes;
        uint64_t entry = from.first + walk->row / entry_bytes, within = walk->row % entry_bytes;
        uint8_t *at = entry_at(walk->cache, walk->layer, &from, walk->head, entry) + within;

        *bytes = kvg_min_u64(most, run_of(&from, entry) * entry_bytes - within);
        walk->row += *bytes;
        if (walk->row == (from.end - from.first) * entry_bytes) {
            walk->head++;
            walk->row = 0;
        }
        return at;
    }
    uint64_t image_bytes = walk->image ? kvg_store_image_bytes(walk->cache->store) : 0;
    uint8_t *at = (uint8_t *)walk->image_memory + walk->row;

    *bytes = kvg_min_u64(most, image_bytes - walk->row);
    walk->row += *bytes;
    return *bytes > 0 ? at : NULL;
}

static KvgStatus copy_piece(KvCarryWalk *walk, uint8_t *target, const uint8_t *source, size_t bytes, size_t *done)
{
    KvDev    *dev = kvg_store_dev(walk->cache->store);
    KvgStatus status;
    uint8_t  *at;
    size_t    span = 0;

    for (*done = 0; *done < bytes && (at = next_span(walk, bytes - *done, &span)) != NULL; *done += span) {
        status = target != NULL ? dev->ops->dtoh(dev->self, target + *done, at, span, NULL) : dev->ops->htod(dev->self, at, source + *done, span, NULL);
        if (status != KVG_OK) return status;
    }
    walk->done += *done;
    return dev->ops->synchronize(dev->self, NULL);
}

KvgStatus kvg_carry_read(KvCarryWalk *walk, void *target, size_t bytes, size_t *done)
{
    return copy_piece(walk, target, NULL, bytes, done);
}

KvgStatus kvg_carry_write(KvCarryWalk *walk, const void *source, size_t bytes, size_t *done)
{
    return copy_piece(walk, NULL, source, bytes, done);
}

KvgStatus kvg_carry_arrived(KvCarryWalk *walk)
{
    KvDev *dev = kvg_store_dev(walk->cache->store);

    if (!walk->image) return KVG_OK;
    kvg_store_load_image(walk->cache->store, walk->cache->slot, 0, walk->place.at, walk->image_memory, NULL); /* a fresh cache stands in column 0 */
    return dev->ops->synchronize(dev->self, NULL);
}

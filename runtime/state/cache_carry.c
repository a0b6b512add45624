/* Carry: see the header. A walk goes by spans, each as long as the bytes lie side by side on either side: to the end of a chunk, or of a flat plane. */
#include "runtime/state/cache_carry.h"

#include <inttypes.h>
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

/* ---- places from the wire */

static KvgStatus refuse(const KvCache *cache, const char *what, uint64_t value, uint64_t most)
{
    return kvg_fail(KVG_EFORMAT, "what is said of a sequence cannot be: its %s is %" PRIu64 ", and %" PRIu64 " is the most (of %" PRIu64 " rows of context); "
                    "run one version of kvgrid everywhere", what, value, most, cache->max_ctx);
}

static KvgStatus check_class(const KvCache *cache, const KvCarryPlace *place, uint32_t class_index)
{
    const KvClassGeometry *class = kvg_store_class(cache->store, class_index);
    const TpKvState       *state = &cache->classes[class_index];
    int                    windowed = class->ring && class->window != 0;
    uint64_t               base = place->base[class_index], first = place->first[class_index], end = place->end[class_index];
    uint64_t               base_max = windowed ? kvg_view_start(place->at, class->window) : 0; /* a replay reads from its own first row on */
    uint64_t               first_max = cache->pooled ? kvg_min_u64(base / KVG_CHUNK_ROWS, end) : 0;
    uint64_t               end_max = kvg_ceil_div_u64(cache->pooled ? cache->max_ctx : class->row_cap, KVG_CHUNK_ROWS);
    uint64_t               held = place->len - (cache->pooled ? 0 : base); /* rows from the first entry's on, flat ones from the base on */

    if (base > base_max) return refuse(cache, "base", base, base_max);
    if (first > first_max) return refuse(cache, "first table entry", first, first_max);
    if (end > end_max) return refuse(cache, "table", end, end_max);
    if (held > end * KVG_CHUNK_ROWS) return refuse(cache, "length", held, end * KVG_CHUNK_ROWS);
    if (state->layout == KVG_TP_KV_RING && held > state->ring.rows) return refuse(cache, "ring", held, state->ring.rows);
    return KVG_OK;
}

KvgStatus kvg_kv_cache_carry_check(const KvCache *cache, const KvCarryPlace *place)
{
    uint64_t at_least = cache->keeps_slots ? 0 : place->len;

    if (place->len > cache->max_ctx) return refuse(cache, "length", place->len, cache->max_ctx);
    if (place->at > place->len || place->at < at_least) return refuse(cache, "slot state's row", place->at, place->len);
    if (place->guarantee > cache->max_ctx) return refuse(cache, "guarantee", place->guarantee, cache->max_ctx);
    for (uint32_t c = 0; c < cache->class_count; c++) KVG_TRY(check_class(cache, place, c));
    return KVG_OK;
}

/* ---- opening */

/* Entries [first, end) of one class, in order: those of owners, and between them its own. */
static KvgStatus open_class(KvCache *cache, uint32_t class_index, const KvCarryPart *part, const KvCache *const *owners)
{
    uint32_t  slot = cache->slot, at = part->place.first[class_index], end = part->place.end[class_index];
    KvStore  *store = cache->store;
    KvgStatus status = kvg_store_book_from(store, class_index, slot, at, at);

    for (uint64_t i = 0; i < part->share_count; i++) {
        const KvCarryShare *share = &part->shares[i];

        if (share->class_index != class_index) continue;
        status = kvg_store_book(store, class_index, slot, (uint32_t)share->first);
        KVG_ASSERT(status == KVG_OK && kvg_store_end(store, class_index, slot) == share->first); /* pool, counted */
        kvg_store_share(store, class_index, owners[share->owner]->slot, slot, (uint32_t)share->end);
    }
    return kvg_store_book(store, class_index, slot, end);
}

KvgStatus kvg_kv_cache_carry_open(KvCache *cache, const KvCarryPart *part, const KvCache *const *owners)
{
    const KvCarryPlace *place = &part->place;
    uint32_t            need[KVG_CLASSES_MAX] = {0};

    for (uint32_t c = 0; c < cache->class_count; c++) need[c] = place->end[c] - place->first[c];
    for (uint64_t i = 0; i < part->share_count; i++) need[part->shares[i].class_index] -= (uint32_t)(part->shares[i].end - part->shares[i].first);
    KVG_TRY(kvg_cache_check_units(cache, need));
    cache->guarantee = place->guarantee;
    for (uint32_t c = 0; c < cache->class_count; c++) {
        kvg_store_set_base(cache->store, c, cache->slot, place->base[c]);
        KVG_TRY(open_class(cache, c, part, owners));
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
    uint32_t       class_index;
    uint64_t       first, end; /* entries */
} CarryPlane;

static CarryPlane kv_plane(const KvPlaneView *view, const KvCarryPart *part, uint32_t class_index, uint32_t plane)
{
    if (plane > 1 || !view->owns) return (CarryPlane){0};
    return (CarryPlane){.plane = plane == 0 ? &view->k : &view->v, .per_chunk = view->rows_per_chunk, .heads = view->heads,
                        .class_index = class_index, .first = part->from[class_index], .end = part->place.len};
}

/* A ring of index rows is in the slot image; index rows that are all kept are a plane like others. */
static CarryPlane latent_plane(const KvLatentView *view, const KvCarryPlace *place, uint32_t class_index, uint32_t plane)
{
    int        pooled = view->index_kind == KVG_INDEX_POOLED;
    CarryPlane from = {.heads = 1, .per_chunk = view->rows_per_chunk, .class_index = class_index};

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
static CarryPlane plane_of(const KvCache *cache, const KvCarryPart *part, uint32_t layer, uint32_t plane)
{
    const KvPlaneView  *view = kvg_store_view(cache->store, layer);
    const KvLatentView *latent = kvg_store_latent_view(cache->store, layer);

    if (view != NULL && view->layer == layer) return kv_plane(view, part, kvg_store_view_class(cache->store, layer), plane);
    return latent != NULL ? latent_plane(latent, &part->place, kvg_store_latent_class(cache->store, layer), plane) : (CarryPlane){0};
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

KvgStatus kvg_carry_begin(const KvCache *cache, const KvCarryPart *part, const uint8_t *mine, int image, int sends, KvCarryWalk *walk)
{
    KvDev *dev = kvg_store_dev(cache->store);
    size_t bytes = kvg_store_image_bytes(cache->store);

    *walk = (KvCarryWalk){.cache = cache, .mine = mine, .image = image && bytes > 0, .part = *part};
    if (sends) {
        KVG_TRY(kvg_store_flush(cache->store, NULL)); /* tells of copies that failed before */
        KVG_TRY(dev->ops->synchronize(dev->self, NULL));
    }
    if (!walk->image) return KVG_OK;
    KVG_TRY(dev->ops->zeros(dev->self, bytes, &walk->image_memory));
    if (sends) {
        kvg_store_save_image(cache->store, cache->slot, cache->held.current, part->place.at, walk->image_memory, NULL);
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

/* The share that has the plane's entry `entry`; NULL: it goes with this sequence. */
static const KvCarryShare *share_of(const KvCarryPart *part, const CarryPlane *from, uint64_t entry)
{
    for (uint64_t i = 0; from->per_chunk != 0 && i < part->share_count; i++) {
        const KvCarryShare *share = &part->shares[i];
        uint64_t            chunk = entry / from->per_chunk;

        if (share->class_index == from->class_index && share->first <= chunk && chunk < share->end) return share;
    }
    return NULL;
}

/* Entries from `entry` on that go with an owner. */
static uint64_t shared_from(const KvCarryPart *part, const CarryPlane *from, uint64_t entry)
{
    uint64_t            next = entry;
    const KvCarryShare *share;

    while (next < from->end && (share = share_of(part, from, next)) != NULL) next = kvg_min_u64(share->end * from->per_chunk, from->end);
    return next - entry;
}

static uint64_t entries_sent(const KvCarryPart *part, const CarryPlane *from)
{
    uint64_t sent = from->end - from->first;

    for (uint64_t i = 0; from->per_chunk != 0 && i < part->share_count; i++) {
        const KvCarryShare *share = &part->shares[i];
        uint64_t            first = kvg_max_u64(share->first * from->per_chunk, from->first);
        uint64_t            end = kvg_min_u64(share->end * from->per_chunk, from->end);

        if (share->class_index == from->class_index) sent -= kvg_monus_u64(end, first);
    }
    return sent;
}

uint64_t kvg_carry_bytes(const KvCache *cache, const KvCarryPart *part, const uint8_t *mine, int image)
{
    uint64_t bytes = image ? kvg_store_image_bytes(cache->store) : 0;

    for (uint32_t layer = 0; layer < kvg_store_layer_count(cache->store); layer++) {
        for (uint32_t p = 0; mine[layer] && p < CARRY_PLANES; p++) {
            CarryPlane from = plane_of(cache, part, layer, p);
            if (from.plane != NULL && from.end > from.first) bytes += entries_sent(part, &from) * from.heads * from.plane->head_bytes;
        }
    }
    return bytes;
}

/* Moves on to the next head of the plane that has something left. */
static int find_head(KvCarryWalk *walk, const CarryPlane *from)
{
    size_t bytes = from->plane->head_bytes;

    for (; walk->head < from->heads; walk->head++, walk->row = 0) {
        walk->row += shared_from(&walk->part, from, from->first + walk->row / bytes) * bytes; /* within an entry of its own: 0 */
        if (walk->row < (from->end - from->first) * bytes) return 1;
    }
    return 0;
}

/* Moves on to the next plane that has something left. 0: the planes are through. */
static int find_plane(KvCarryWalk *walk, CarryPlane *from)
{
    for (; walk->layer < kvg_store_layer_count(walk->cache->store); walk->layer++, walk->plane = 0) {
        for (; walk->mine[walk->layer] && walk->plane < CARRY_PLANES; walk->plane++, walk->head = 0, walk->row = 0) {
            *from = plane_of(walk->cache, &walk->part, walk->layer, walk->plane);
            if (from->plane != NULL && from->first < from->end && find_head(walk, from)) return 1;
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
        return at;
    }
    if (!walk->image) return NULL;
    uint8_t *at = (uint8_t *)walk->image_memory + walk->row;

    *bytes = kvg_min_u64(most, kvg_store_image_bytes(walk->cache->store) - walk->row);
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
    kvg_store_load_image(walk->cache->store, walk->cache->slot, 0, walk->part.place.at, walk->image_memory, NULL); /* a fresh cache stands in column 0 */
    return dev->ops->synchronize(dev->self, NULL);
}

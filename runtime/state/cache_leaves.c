/* Cache: digest leaves, from the bytes as they are stored (S8). One leaf for each layer, plane and head of this rank: K and V by head,
 * latent planes whole, recurrent parts by the smallest unit they can be cut into. */
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* the state's layout, so that it can stand on the stack */
#include <xxhash.h>

#include "runtime/base/checked.h"
#include "runtime/state/cache_bring.h"

typedef struct LeafRows {
    const KvPlaneView *view;
    const KvPlane     *plane;
    uint32_t           slot, head;
} LeafRows;

/* Rows from `row` on that lie side by side for this head: to the end of a chunk; in a flat plane all, if there is one head. */
static uint64_t run_length(const LeafRows *leaf, uint64_t row, uint64_t end)
{
    if (leaf->view->rows_per_chunk != 0) return kvg_min_u64(end - row, KVG_CHUNK_ROWS - row % KVG_CHUNK_ROWS);
    return leaf->plane->row_stride == leaf->plane->head_bytes ? end - row : 1;
}

static void finish(const XXH3_state_t *state, uint8_t hash[16])
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    memcpy(hash, canonical.digest, sizeof canonical.digest);
}

/* On a device that the host reads directly the bytes are hashed where they are; else the views are of copies (cache_bring.h). */
static void hash_rows(const LeafRows *leaf, uint64_t row, uint64_t end, uint8_t hash[16])
{
    XXH3_state_t state;

    XXH3_128bits_reset(&state);
    while (row < end) {
        uint64_t run = run_length(leaf, row, end);

        XXH3_128bits_update(&state, kvg_plane_row(leaf->view, leaf->plane, leaf->slot, leaf->head, row),
                            run * leaf->plane->head_bytes);
        row += run;
    }
    finish(&state, hash);
}

static const KvPlaneView *owning_view(const KvCache *cache, uint32_t layer)
{
    const KvPlaneView *view = kvg_store_view(cache->store, layer);
    return view != NULL && view->owns ? view : NULL;
}

static KvLeaf *kv_leaves(const KvCache *cache, const KvPlaneView *view, uint32_t slot, KvLeaf *next)
{
    uint64_t start = view->window != 0 ? kvg_view_start(cache->pos, view->window) : 0;

    for (uint32_t plane = KVG_PLANE_K; plane <= KVG_PLANE_V; plane++) {
        for (uint32_t head = 0; head < view->heads; head++) {
            LeafRows rows = {.view = view, .plane = plane == KVG_PLANE_K ? &view->k : &view->v, .slot = slot, .head = head};

            *next = (KvLeaf){.layer = view->layer, .plane = plane, .head = view->head_first + head};
            hash_rows(&rows, start, cache->pos, next->hash);
            next++;
        }
    }
    return next;
}

/* ---- latent layers: one head */

static void hash_entries(const KvLatentView *view, const KvPlane *plane, uint32_t per_chunk, uint32_t slot, uint64_t end,
                         uint8_t hash[16])
{
    XXH3_state_t state;
    uint64_t     run;

    XXH3_128bits_reset(&state);
    for (uint64_t i = 0; i < end; i += run) {
        run = view->rows_per_chunk != 0 ? kvg_min_u64(end - i, per_chunk) : end;
        XXH3_128bits_update(&state, kvg_latent_entry(view, plane, per_chunk, slot, i), run * plane->head_bytes);
    }
    finish(&state, hash);
}

/* Rows whose pool has no key yet: fewer than a pool, so they lie side by side in the ring as in the plane. */
static void hash_index_rows(const KvCache *cache, const KvLatentView *view, uint32_t slot, uint8_t hash[16])
{
    uint64_t     start = cache->pos - cache->pos % view->pool;
    XXH3_state_t state;

    XXH3_128bits_reset(&state);
    if (start < cache->pos) {
        XXH3_128bits_update(&state, kvg_latent_index_row(view, slot, start), (cache->pos - start) * view->index_row_bytes);
    }
    finish(&state, hash);
}

static KvLeaf *latent_leaves(const KvCache *cache, const KvLatentView *view, uint32_t slot, KvLeaf *next)
{
    int pooled = view->index_kind == KVG_INDEX_POOLED;

    *next = (KvLeaf){.layer = view->layer, .plane = KVG_PLANE_LATENT};
    hash_entries(view, &view->latent, KVG_CHUNK_ROWS, slot, cache->pos, next->hash);
    next++;
    if (view->index_kind == KVG_INDEX_NONE) return next;
    if (pooled) {
        *next = (KvLeaf){.layer = view->layer, .plane = KVG_PLANE_INDEX_ROWS};
        hash_index_rows(cache, view, slot, next->hash);
        next++;
    }
    *next = (KvLeaf){.layer = view->layer, .plane = KVG_PLANE_KEYS};
    hash_entries(view, &view->keys, kvg_latent_keys_per_chunk(view), slot, pooled ? cache->pos / view->pool : cache->pos, next->hash);
    return next + 1;
}

/* ---- recurrent layers: the current column, each head of each part */

static uint64_t head_elements(const KvRecurrentView *view, const KvRecurrentPartView *part)
{
    return (uint64_t)part->width * (part->is_state ? 1 : view->taps);
}

static KvLeaf *recurrent_leaves(const KvRecurrentView *view, const float *conv, const float *state, KvLeaf *next)
{
    for (uint32_t p = 0; p < view->part_count; p++) {
        const KvRecurrentPartView *part = &view->parts[p];
        uint64_t                   elements = head_elements(view, part);

        for (uint32_t h = 0; elements > 0 && h < part->heads; h++) {
            const float       *head = (part->is_state ? state : conv) + part->offset + h * elements;
            XXH128_canonical_t canonical;

            *next = (KvLeaf){.layer = view->layer, .plane = part->is_state ? KVG_PLANE_STATE : KVG_PLANE_CONV, .head = part->head_index + h};
            XXH128_canonicalFromHash(&canonical, XXH3_128bits(head, elements * sizeof(float)));
            memcpy(next->hash, canonical.digest, sizeof canonical.digest);
            next++;
        }
    }
    return next;
}

static size_t recurrent_leaf_count(const KvRecurrentView *view)
{
    size_t count = 0;

    for (uint32_t p = 0; p < view->part_count; p++) count += head_elements(view, &view->parts[p]) > 0 ? view->parts[p].heads : 0;
    return count;
}

/* ---- all layers */

size_t kvg_kv_cache_leaf_count(const KvCache *cache)
{
    size_t count = 0;

    for (uint32_t layer = 0; layer < kvg_store_layer_count(cache->store); layer++) {
        const KvPlaneView     *view = owning_view(cache, layer);
        const KvLatentView    *latent = kvg_store_latent_view(cache->store, layer);
        const KvRecurrentView *recurrent = kvg_store_recurrent_view(cache->store, layer);

        if (view != NULL) count += 2 * (size_t)view->heads;
        if (latent != NULL) count += latent->index_kind == KVG_INDEX_NONE ? 1 : latent->index_kind == KVG_INDEX_POOLED ? 3 : 2;
        if (recurrent != NULL) count += recurrent_leaf_count(recurrent);
    }
    return count;
}

static KvLeaf *layer_leaves(const KvCache *cache, const KvBrought *brought, KvLeaf *next)
{
    if (brought->view != NULL) next = kv_leaves(cache, brought->view, brought->slot, next);
    if (brought->latent != NULL) next = latent_leaves(cache, brought->latent, brought->slot, next);
    if (brought->recurrent != NULL) next = recurrent_leaves(brought->recurrent, brought->conv, brought->state, next);
    return next;
}

/* Where the layer's bytes stand in the store. */
static KvBrought in_place(const KvCache *cache, uint32_t layer)
{
    KvBrought at = {.view = owning_view(cache, layer), .latent = kvg_store_latent_view(cache->store, layer),
                    .recurrent = kvg_store_recurrent_view(cache->store, layer), .slot = cache->slot};

    if (at.recurrent != NULL) {
        at.conv = at.recurrent->conv + at.slot * at.recurrent->conv_slot_stride + cache->held.current * at.recurrent->conv_elements;
        at.state = at.recurrent->state + at.slot * at.recurrent->state_slot_stride + cache->held.current * at.recurrent->state_elements;
    }
    return at;
}

KvgStatus kvg_kv_cache_leaves(const KvCache *cache, KvLeaf *leaves)
{
    int mirrored = kvg_store_mirrored(cache->store);

    KVG_TRY(kvg_cache_check_intact(cache));
    KVG_TRY(kvg_cache_check_settled(cache, "digest"));
    if (mirrored) KVG_TRY(kvg_cache_bring_begin(cache));
    for (uint32_t layer = 0; layer < kvg_store_layer_count(cache->store); layer++) {
        KvBrought at = in_place(cache, layer);

        if (mirrored) KVG_TRY(kvg_cache_bring(cache, &at));
        leaves = layer_leaves(cache, &at, leaves);
        if (mirrored) kvg_cache_bring_end(&at);
    }
    return KVG_OK;
}

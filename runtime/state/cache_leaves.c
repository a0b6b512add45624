/* Cache: digest leaves, from the bytes as they are stored (S8). One leaf for each layer, plane and head of this rank. */
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* the state's layout, so that it can stand on the stack */
#include <xxhash.h>

#include "runtime/base/checked.h"
#include "runtime/state/cache_impl.h"

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

/* The store lives on devices that the host reads directly (kvg_store_create), so the bytes are hashed where they are. */
static void hash_rows(const LeafRows *leaf, uint64_t row, uint64_t end, uint8_t hash[16])
{
    XXH3_state_t       state;
    XXH128_canonical_t canonical;

    XXH3_128bits_reset(&state);
    while (row < end) {
        uint64_t run = run_length(leaf, row, end);

        XXH3_128bits_update(&state, kvg_plane_row(leaf->view, leaf->plane, leaf->slot, leaf->head, row),
                            run * leaf->plane->head_bytes);
        row += run;
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(hash, canonical.digest, sizeof canonical.digest);
}

static const KvPlaneView *owning_view(const KvCache *cache, uint32_t layer)
{
    const KvPlaneView *view = kvg_store_view(cache->store, layer);
    return view != NULL && view->owns ? view : NULL;
}

size_t kvg_kv_cache_leaf_count(const KvCache *cache)
{
    size_t count = 0;

    for (uint32_t layer = 0; layer < kvg_store_layer_count(cache->store); layer++) {
        const KvPlaneView *view = owning_view(cache, layer);
        count += view != NULL ? 2 * (size_t)view->heads : 0;
    }
    return count;
}

static KvLeaf *layer_leaves(const KvCache *cache, const KvPlaneView *view, KvLeaf *next)
{
    uint64_t start = view->window != 0 ? kvg_view_start(cache->pos, view->window) : 0;

    for (uint32_t plane = KVG_PLANE_K; plane <= KVG_PLANE_V; plane++) {
        for (uint32_t head = 0; head < view->heads; head++) {
            LeafRows rows = {.view = view, .plane = plane == KVG_PLANE_K ? &view->k : &view->v, .slot = cache->slot, .head = head};

            *next = (KvLeaf){.layer = view->layer, .plane = plane, .head = view->head_first + head};
            hash_rows(&rows, start, cache->pos, next->hash);
            next++;
        }
    }
    return next;
}

KvgStatus kvg_kv_cache_leaves(const KvCache *cache, KvLeaf *leaves)
{
    KVG_TRY(kvg_cache_check_intact(cache));
    for (uint32_t layer = 0; layer < kvg_store_layer_count(cache->store); layer++) {
        const KvPlaneView *view = owning_view(cache, layer);
        if (view != NULL) leaves = layer_leaves(cache, view, leaves);
    }
    return KVG_OK;
}

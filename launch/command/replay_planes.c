/* Replay's planes. */
#include "launch/command/replay_planes.h"

#include "launch/command/replay_generator.h"
#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/rules/ring.h"

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void count_rows(ReplayPlanes *planes, const ReplayLayer *layer)
{
    uint32_t       of_layer[REPLAY_ROW_PLANES_MAX];
    const uint32_t count = kvg_replay_row_planes(layer, of_layer);
    for (uint32_t i = 0; i < count; i++) {
        ReplayShape shape = kvg_replay_shape(layer, of_layer[i]);
        planes->leaves += shape.heads;
        planes->row_elements_max = larger(planes->row_elements_max, (size_t)shape.heads * shape.dim);
    }
    if (layer->latent != NULL && layer->latent->pool != 0) {
        planes->pool_elements_max = larger(planes->pool_elements_max, (size_t)layer->latent->pool * layer->latent->index_width);
    }
}

static void count_recurrent(ReplayPlanes *planes, const KvRecurrentView *view)
{
    for (uint32_t p = 0; p < view->part_count; p++) {
        const KvRecurrentPartView *part = &view->parts[p];
        if (part->is_state || view->taps > 0) { /* a convolution of one token keeps nothing */
            planes->leaves += part->heads;
        }
        planes->row_elements_max = part->is_state ? planes->row_elements_max : larger(planes->row_elements_max, part->width);
    }
}

KvgStatus kvg_replay_planes_collect(const KvgPlacement *placement, const KvgBatch *batch, ReplayPlanes *planes)
{
    uint32_t lo = 0, hi = 0;
    void    *layers = NULL;
    kvg_placement_layers(placement, &lo, &hi);
    KVG_TRY(kvg_calloc(hi - lo, sizeof(ReplayLayer), "the table of layers", &layers));
    *planes = (ReplayPlanes){ .layers = layers };
    for (uint32_t il = lo; il < hi; il++) {
        ReplayLayer layer = { il, kvg_plane_view(batch, il), kvg_latent_view(batch, il), kvg_recurrent_view(batch, il) };
        if (layer.kv != NULL && !layer.kv->owns) { /* reads another's rows */
            continue;
        }
        if (layer.recurrent != NULL) {
            count_recurrent(planes, layer.recurrent);
        } else if (layer.kv != NULL || layer.latent != NULL) {
            count_rows(planes, &layer);
        } else {
            continue; /* no state */
        }
        planes->layers[planes->count++] = layer;
    }
    return KVG_OK;
}

void kvg_replay_planes_free(ReplayPlanes *planes)
{
    kvg_free(planes->layers);
    *planes = (ReplayPlanes){ 0 };
}

uint32_t kvg_replay_row_planes(const ReplayLayer *layer, uint32_t planes[REPLAY_ROW_PLANES_MAX])
{
    uint32_t count = 0;
    if (layer->kv != NULL) {
        planes[count++] = KVG_PLANE_K;
        planes[count++] = KVG_PLANE_V;
    } else if (layer->latent != NULL) {
        planes[count++] = KVG_PLANE_LATENT;
        if (layer->latent->index_kind != KVG_INDEX_NONE) {
            planes[count++] = KVG_PLANE_KEYS;
        }
        if (layer->latent->index_kind == KVG_INDEX_POOLED) {
            planes[count++] = KVG_PLANE_INDEX_ROWS;
        }
    }
    return count;
}

const char *kvg_replay_plane_name(uint32_t plane)
{
    static const char *const names[] = { "K", "V", "latent", "index", "key", "conv", "state" };
    KVG_ASSERT(plane <= KVG_PLANE_STATE);
    return names[plane];
}

uint32_t kvg_replay_index_plane(const KvLatentView *view)
{
    return view->index_kind == KVG_INDEX_POOLED ? KVG_PLANE_INDEX_ROWS : KVG_PLANE_KEYS;
}

static const KvPlane *plane_of(const ReplayLayer *layer, uint32_t plane)
{
    switch (plane) {
    case KVG_PLANE_K: return &layer->kv->k;
    case KVG_PLANE_V: return &layer->kv->v;
    case KVG_PLANE_LATENT: return &layer->latent->latent;
    case KVG_PLANE_INDEX_ROWS: return &layer->latent->index;
    default: KVG_ASSERT(plane == KVG_PLANE_KEYS); return &layer->latent->keys;
    }
}

ReplayShape kvg_replay_shape(const ReplayLayer *layer, uint32_t plane)
{
    const KvPlane *at = plane_of(layer, plane);
    const int      by_heads = layer->kv != NULL;
    return (ReplayShape){ by_heads ? layer->kv->heads : 1, by_heads ? layer->kv->head_first : 0, at->head_dim, at->format, at->head_bytes };
}

uint8_t *kvg_replay_stored(const ReplayLayer *layer, uint32_t plane, uint32_t slot, uint32_t head, uint64_t row)
{
    const KvPlane *at = plane_of(layer, plane);
    if (layer->kv != NULL) {
        return kvg_plane_row(layer->kv, at, slot, head, row);
    }
    KVG_ASSERT(head == 0);
    if (plane == KVG_PLANE_INDEX_ROWS) {
        return kvg_latent_index_row(layer->latent, slot, row);
    }
    uint32_t per_chunk = plane == KVG_PLANE_KEYS ? kvg_latent_keys_per_chunk(layer->latent) : KVG_CHUNK_ROWS;
    return kvg_latent_entry(layer->latent, at, per_chunk, slot, row);
}

uint64_t kvg_replay_first_row(const ReplayLayer *layer, uint64_t len)
{
    return layer->kv == NULL || layer->kv->window == 0 ? 0 : kvg_view_start(len, layer->kv->window);
}

uint64_t kvg_replay_span_key(const ReplaySpan *span, uint64_t stream, uint32_t head, uint32_t i)
{
    uint64_t key = kvg_replay_row_key(stream, head, span->first + i);
    return i < span->accepted ? key : kvg_replay_rejected_key(key, span->round);
}

void kvg_replay_make_rows(const ReplayMaker *maker, const ReplayLayer *layer, uint32_t plane, const ReplaySpan *span, float *target)
{
    const ReplayShape shape = kvg_replay_shape(layer, plane);
    const uint64_t    stream = kvg_replay_stream_key(maker->seed, span->request, layer->il, plane);
    for (uint32_t i = 0; i < span->rows; i++) {
        for (uint32_t head = 0; head < shape.heads; head++) {
            kvg_replay_fill(kvg_replay_span_key(span, stream, shape.head_first + head, i), target, shape.dim);
            target += shape.dim;
        }
    }
}

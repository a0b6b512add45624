/* Replay's planes. */
#include "launch/command/replay_planes.h"

#include "launch/command/replay_generator.h"
#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/rules/ring.h"

static void add_layer(ReplayPlanes *planes, uint32_t il, const KvPlaneView *view)
{
    planes->layers[planes->count++] = (ReplayLayer){ il, view };
    planes->leaves += 2 * view->heads;
    for (uint32_t plane = KVG_PLANE_K; plane <= KVG_PLANE_V; plane++) {
        uint32_t dim = plane == KVG_PLANE_K ? view->k.head_dim : view->v.head_dim;
        size_t   elements = (size_t)view->heads * dim;
        planes->head_dim_max = dim > planes->head_dim_max ? dim : planes->head_dim_max;
        planes->row_elements_max = elements > planes->row_elements_max ? elements : planes->row_elements_max;
    }
}

KvgStatus kvg_replay_planes_collect(const KvgPlacement *placement, ReplayPlanes *planes)
{
    uint32_t lo = 0, hi = 0;
    void    *layers = NULL;
    kvg_placement_layers(placement, &lo, &hi);
    KVG_TRY(kvg_calloc(hi - lo, sizeof(ReplayLayer), "the table of layers", &layers));
    *planes = (ReplayPlanes){ .layers = layers };
    for (uint32_t il = lo; il < hi; il++) {
        const KvPlaneView *view = kvg_placement_view(placement, il);
        if (view != NULL && view->owns) { /* sharing layers read another's rows; layers without state have none */
            add_layer(planes, il, view);
        }
    }
    return KVG_OK;
}

void kvg_replay_planes_free(ReplayPlanes *planes)
{
    kvg_free(planes->layers);
    *planes = (ReplayPlanes){ 0 };
}

const KvPlane *kvg_replay_plane(const ReplayLayer *layer, uint32_t plane)
{
    KVG_ASSERT(plane == KVG_PLANE_K || plane == KVG_PLANE_V);
    return plane == KVG_PLANE_K ? &layer->view->k : &layer->view->v;
}

uint64_t kvg_replay_first_row(const ReplayLayer *layer, uint64_t len)
{
    return layer->view->window == 0 ? 0 : kvg_view_start(len, layer->view->window);
}

void kvg_replay_make_rows(const ReplayMaker *maker, const ReplayLayer *layer, uint32_t plane, const ReplaySpan *span, float *target)
{
    const uint32_t heads = layer->view->heads, dim = kvg_replay_plane(layer, plane)->head_dim;
    const uint64_t stream = kvg_replay_stream_key(maker->seed, span->request, layer->il, plane);
    for (uint32_t i = 0; i < span->rows; i++) {
        for (uint32_t head = 0; head < heads; head++) {
            uint64_t key = kvg_replay_row_key(stream, layer->view->head_first + head, span->first + i);
            if (i >= span->accepted) {
                key = kvg_replay_rejected_key(key, span->round);
            }
            kvg_replay_fill(key, target, dim);
            target += dim;
        }
    }
}

/* Cache, stand-alone: the seed's caches. One sequence, 2 columns, flat planes, the layers of one stage, no sharding. Each owns its store. */
#include <inttypes.h>

#include <kvgrid/index_ring.h>
#include <kvgrid/ring.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/state/cache_impl.h"

typedef struct Standalone { /* what all stages of one call have in common */
    KvDev             *dev;
    const ModelConfig *config;
    const ModelPlan   *plan;
    const KvgPolicy   *policy;
    uint64_t           max_ctx;
    uint32_t           n_all; /* trunk and MTP */
    KvClassGeometry    classes[KVG_CLASSES_MAX];
    uint32_t           class_count;
    int                has_recurrent;
    uint32_t           index_pool;
} Standalone;

/* ---- classes: of the whole model, so that every stage has the same */

static int owns_rows(const StatePlan *layer)
{
    return layer->kind == KVG_STATE_KV || layer->kind == KVG_STATE_SLIDING_KV || layer->kind == KVG_STATE_LATENT;
}

static uint64_t window_of(const StatePlan *layer)
{
    return layer->kind == KVG_STATE_SLIDING_KV ? layer->u.kv.window : 0;
}

static KvClassGeometry class_geometry(const Standalone *all, uint64_t window)
{
    int      ring = window != 0 && kvg_policy_swa_ring_on(all->policy);
    uint64_t rows = ring ? kvg_swa_ring_rows(window, all->max_ctx) : all->max_ctx;
    uint32_t units = (uint32_t)kvg_ceil_div_u64(rows, KVG_CHUNK_ROWS);

    return (KvClassGeometry){.window = window, .ring = ring, .row_cap = rows, .unit_cap = units, .units = units,
                             .units_max = units};
}

static KvgStatus find_class(Standalone *all, uint64_t window, uint32_t *class_index)
{
    for (uint32_t c = 0; c < all->class_count; c++) {
        if (all->classes[c].window == window) {
            *class_index = c;
            return KVG_OK;
        }
    }
    if (all->class_count == KVG_CLASSES_MAX) {
        return kvg_fail(KVG_ENOTSUP, "%s has more than %d different windows", all->config->name, KVG_CLASSES_MAX);
    }
    all->classes[all->class_count] = class_geometry(all, window);
    *class_index = all->class_count++;
    return KVG_OK;
}

static KvgStatus check_layer(const Standalone *all, uint32_t index)
{
    const StatePlan *layer = &all->plan->layers[index];

    if (layer->kind != KVG_STATE_SHARED) return KVG_OK;
    if (layer->u.shared_source < index && owns_rows(&all->plan->layers[layer->u.shared_source])) return KVG_OK;
    return kvg_fail(KVG_EGEOM, "%s: layer %u shares layer %u, which owns no planes", all->config->name, index, layer->u.shared_source);
}

static void note_facts(Standalone *all, const StatePlan *layer)
{
    if (layer->kind == KVG_STATE_RECURRENT) all->has_recurrent = 1;
    if (layer->kind == KVG_STATE_LATENT && layer->u.latent.index_kind == KVG_INDEX_POOLED) all->index_pool = layer->u.latent.index_pool;
}

static KvgStatus plan_classes(Standalone *all)
{
    for (uint32_t i = 0; i < all->n_all; i++) {
        uint32_t unused;

        KVG_TRY(check_layer(all, i));
        note_facts(all, &all->plan->layers[i]);
        if (owns_rows(&all->plan->layers[i])) KVG_TRY(find_class(all, window_of(&all->plan->layers[i]), &unused));
    }
    if (all->class_count == 0 && all->has_recurrent) { /* a model without rows still has lengths: one class that costs nothing */
        uint32_t unused;
        return find_class(all, 0, &unused);
    }
    if (all->class_count == 0) {
        return kvg_fail(KVG_ENOTSUP, "%s has no layer that keeps state: there is nothing to cache", all->config->name);
    }
    return KVG_OK;
}

/* ---- layers of one stage */

/* Binary search in the fence; at or past its end: the last stage. */
static uint32_t stage_of(const uint32_t *fence, uint32_t stages, uint32_t layer)
{
    uint32_t lo = 0, hi = stages;

    if (layer >= fence[stages]) return stages - 1;
    while (hi - lo > 1) {
        uint32_t middle = lo + (hi - lo) / 2;
        if (fence[middle] <= layer) lo = middle;
        else hi = middle;
    }
    return lo;
}

static KvgStatus latent_geometry(Standalone *all, uint32_t index, KvLayerGeometry *geometry)
{
    const LatentKvPlan *latent = &all->plan->layers[index].u.latent;

    *geometry = (KvLayerGeometry){.layer = index, .source = -1, .kind = KVG_STATE_LATENT,
                                  .latent = {.width = latent->width, .kv_rank = latent->kv_rank, .index_kind = latent->index_kind,
                                             .index_width = latent->index_width, .index_pool = latent->index_pool, .format = KVG_F32}};
    return find_class(all, 0, &geometry->class_index);
}

/* Nothing is cut: all heads of each part, numbered through the conv parts and through the state parts. */
static void recurrent_geometry(const Standalone *all, uint32_t index, KvLayerGeometry *geometry)
{
    const RecurrentPlan *plan = &all->plan->layers[index].u.recurrent;
    uint32_t             heads[2] = {0, 0};

    *geometry = (KvLayerGeometry){.layer = index, .source = -1, .kind = KVG_STATE_RECURRENT,
                                  .recurrent = {.conv_kernel = plan->conv_kernel, .part_count = plan->part_count}};
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const RecurrentPart *part = &plan->parts[i];

        geometry->recurrent.parts[i] = (KvRecurrentPartView){.is_state = part->is_state, .heads = part->heads, .width = part->width,
                                                             .head_index = heads[part->is_state], .replicas = 1};
        heads[part->is_state] += part->heads;
    }
}

static KvgStatus layer_geometry(Standalone *all, uint32_t index, KvLayerGeometry *geometry)
{
    const StatePlan *layer = &all->plan->layers[index];

    if (layer->kind == KVG_STATE_SHARED) {
        *geometry = (KvLayerGeometry){.layer = index, .source = (int32_t)layer->u.shared_source};
        return find_class(all, window_of(&all->plan->layers[layer->u.shared_source]), &geometry->class_index);
    }
    if (layer->kind == KVG_STATE_LATENT) return latent_geometry(all, index, geometry);
    if (layer->kind == KVG_STATE_RECURRENT) {
        recurrent_geometry(all, index, geometry);
        return KVG_OK;
    }
    *geometry = (KvLayerGeometry){.layer = index, .source = -1, .heads = layer->u.kv.kv_heads,
                                  .head_dim_k = layer->u.kv.head_dim_k, .head_dim_v = layer->u.kv.head_dim_v};
    KVG_TRY(find_class(all, window_of(layer), &geometry->class_index));
    return kvg_layer_formats(layer, all->policy, KVG_POLICY, KVG_POLICY, &geometry->format_k, &geometry->format_v);
}

static KvgStatus stage_layers(Standalone *all, const uint32_t *fence, uint32_t stages, uint32_t stage, KvLayerGeometry *layers,
                              uint32_t *count)
{
    *count = 0;
    for (uint32_t i = 0; i < all->n_all; i++) {
        if (all->plan->layers[i].kind == KVG_STATE_NONE || stage_of(fence, stages, i) != stage) continue;
        KVG_TRY(layer_geometry(all, i, &layers[*count]));
        (*count)++;
    }
    return KVG_OK;
}

/* ---- caches */

static KvgStatus create_store(Standalone *all, const KvLayerGeometry *layers, uint32_t count, KvStore **store)
{
    int64_t        knob = all->policy->dsa_index_ring;
    KvStoreOptions options = {.dev = all->dev, .layout = KVG_LAYOUT_FLAT, .layers = layers, .layer_count = count,
                              .classes = all->classes, .class_count = all->class_count, .slots = 1, .max_ctx = all->max_ctx,
                              .n_layer = all->n_all, .has_recurrent = all->has_recurrent, .index_pool = all->index_pool,
                              .index_ring_rows = knob < 0 ? KVG_INDEX_RING_WORKING_ROWS : (uint64_t)knob};
    return kvg_store_create(&options, store);
}

static KvgStatus create_stage(Standalone *all, const uint32_t *fence, uint32_t stages, uint32_t stage, KvCache **cache_p)
{
    KvLayerGeometry *layers = NULL;
    KvCache         *cache = NULL;
    KvStore         *store = NULL;
    uint32_t         count;
    KvgStatus        status;

    KVG_TRY(KVG_NEW(1, "a cache", &cache));
    KVG_TRY_GOTO(KVG_NEW(all->n_all, "a cache's layers", &layers), err_free_cache);
    KVG_TRY_GOTO(stage_layers(all, fence, stages, stage, layers, &count), err_free_layers);
    KVG_TRY_GOTO(create_store(all, layers, count, &store), err_free_layers);
    kvg_free(layers);
    kvg_kv_cache_open(store, 0, 1, cache);
    cache->owns_store = 1;
    *cache_p = cache;
    return KVG_OK;
err_free_layers:
    kvg_free(layers);
err_free_cache:
    kvg_free(cache);
    return status;
}

static KvgStatus check_fence(const ModelPlan *plan, const uint32_t *fence, uint32_t stages)
{
    if (stages == 0 || fence[0] != 0 || fence[stages] != plan->n_layer) {
        return kvg_fail(KVG_EINVAL, "a fence of %u stages must run from 0 to the model's %u layers", stages, plan->n_layer);
    }
    for (uint32_t s = 0; s < stages; s++) {
        if (fence[s] >= fence[s + 1]) {
            return kvg_fail(KVG_EINVAL, "fence %u, %u: stage %u has no layer; every stage needs one", fence[s], fence[s + 1], s);
        }
    }
    return KVG_OK;
}

static KvgStatus create_stages(KvDev *dev, const ModelConfig *config, const ModelPlan *plan, uint64_t max_ctx,
                               const uint32_t *fence, uint32_t stages, KvCache **caches)
{
    Standalone all = {.dev = dev, .config = config, .plan = plan, .max_ctx = max_ctx, .n_all = plan->n_layer + plan->n_mtp};
    uint32_t   made = 0;
    KvgStatus  status;

    KVG_TRY(check_fence(plan, fence, stages));
    if (max_ctx == 0 || max_ctx > INT32_MAX - KVG_CHUNK_ROWS) {
        return kvg_fail(KVG_EINVAL, "a cache of %" PRIu64 " rows: ask for 1 to %d", max_ctx, INT32_MAX - KVG_CHUNK_ROWS);
    }
    KVG_TRY(kvg_policy_process(&all.policy));
    KVG_TRY(plan_classes(&all));
    for (; made < stages; made++) KVG_TRY_GOTO(create_stage(&all, fence, stages, made, &caches[made]), err_free);
    return KVG_OK;
err_free:
    while (made-- > 0) {
        kvg_kv_cache_free(caches[made]);
        caches[made] = NULL;
    }
    return status;
}

KvgStatus kvg_kv_cache_new(KvDev *dev, const ModelConfig *config, uint64_t max_ctx, KvCache **cache)
{
    return kvg_kv_cache_new_planned(dev, config, &config->plan, max_ctx, cache);
}

KvgStatus kvg_kv_cache_new_planned(KvDev *dev, const ModelConfig *config, const ModelPlan *plan, uint64_t max_ctx, KvCache **cache)
{
    uint32_t fence[2] = {0, plan->n_layer};
    return create_stages(dev, config, plan, max_ctx, fence, 1, cache);
}

KvgStatus kvg_kv_cache_new_pp2(KvDev *dev, const ModelConfig *config, uint64_t max_ctx, uint32_t split, KvCache *stages[2])
{
    uint32_t fence[3] = {0, split, config->plan.n_layer};
    return kvg_kv_cache_new_ppn(dev, config, max_ctx, fence, 2, stages);
}

KvgStatus kvg_kv_cache_new_ppn(KvDev *dev, const ModelConfig *config, uint64_t max_ctx, const uint32_t *fence, uint32_t stages,
                               KvCache **caches)
{
    return create_stages(dev, config, &config->plan, max_ctx, fence, stages, caches);
}

void kvg_kv_cache_free(KvCache *cache)
{
    if (cache == NULL) return;
    KvStore *store = cache->store;

    KVG_ASSERT(cache->owns_store);
    kvg_kv_cache_close(cache, NULL);
    kvg_store_destroy(store);
    kvg_free(cache);
}

/* Place, the geometry: this rank's share of every layer by head_shard (S4), and the facts of the whole model that decisions follow from (S8). */
#include "pp/place.h"

#include <kvgrid/head_shard.h>
#include <kvgrid/index_ring.h>

#include "runtime/base/checked.h"

uint32_t kvg_place_held_layers(const ModelConfig *config, const KvgPlaceOptions *options)
{
    return config->plan.n_layer + (options->with_mtp ? config->plan.n_mtp : 0);
}

static KvgStatus kv_geometry(const KvgPlacement *placement, uint32_t il, KvLayerGeometry *layer)
{
    const ModelPlan   *model = &placement->config.plan;
    const KvGridPlan  *plan = &placement->plan;
    int                shared = model->layers[il].kind == KVG_STATE_SHARED;
    uint32_t           owner = shared ? model->layers[il].u.shared_source : il;
    const KvCachePlan *kv = &model->layers[owner].u.kv;
    HeadShard          shard;

    KVG_TRY(kvg_head_shard(kv->kv_heads, placement->grid->tp, kvg_grid_tp_rank(placement->grid), &shard));
    *layer = (KvLayerGeometry){ .layer = il, .class_index = plan->class_of_layer[il], .source = shared ? (int32_t)owner : -1, .kind = KVG_STATE_KV };
    layer->head_first = shard.first;
    layer->heads = shard.count;
    layer->head_dim_k = kv->head_dim_k;
    layer->head_dim_v = kv->head_dim_v;
    layer->format_k = plan->format_k[owner];
    layer->format_v = plan->format_v[owner];
    return KVG_OK;
}

/* Latents are whole on every rank of the stage. */
static KvgStatus latent_geometry(const KvgPlacement *placement, uint32_t il, KvLayerGeometry *layer)
{
    const LatentKvPlan *latent = &placement->config.plan.layers[il].u.latent;
    KvFormat            format = placement->options.format_latent;

    *layer = (KvLayerGeometry){ .layer = il, .class_index = placement->plan.class_of_layer[il], .source = -1, .kind = KVG_STATE_LATENT };
    layer->latent = (KvLatentGeometry){ .width = latent->width, .kv_rank = latent->kv_rank, .index_kind = latent->index_kind,
                                        .index_width = latent->index_width, .index_pool = latent->index_pool,
                                        .format = format == KVG_POLICY ? KVG_F32 : format };
    return KVG_OK;
}

/* Each part of a recurrent layer falls on the stage by its own heads; conv heads and state heads are numbered apart, over all parts. */
static KvgStatus recurrent_geometry(const KvgPlacement *placement, uint32_t il, KvLayerGeometry *layer)
{
    const RecurrentPlan *recurrent = &placement->config.plan.layers[il].u.recurrent;
    uint32_t             heads_before[2] = { 0, 0 };
    HeadShard            shard;

    *layer = (KvLayerGeometry){ .layer = il, .source = -1, .kind = KVG_STATE_RECURRENT };
    layer->recurrent.conv_kernel = recurrent->conv_kernel;
    layer->recurrent.part_count = recurrent->part_count;
    for (uint32_t p = 0; p < recurrent->part_count; p++) {
        const RecurrentPart *part = &recurrent->parts[p];
        KVG_TRY(kvg_head_shard(part->heads, placement->grid->tp, kvg_grid_tp_rank(placement->grid), &shard));
        layer->recurrent.parts[p] = (KvRecurrentPartView){ .is_state = part->is_state, .heads = shard.count, .head_first = shard.first,
                                                           .head_index = heads_before[part->is_state] + shard.first, .width = part->width,
                                                           .replicas = shard.replicas };
        heads_before[part->is_state] += part->heads;
    }
    return KVG_OK;
}

/* The layers of this rank that keep state, their own or another's rows. */
static KvgStatus fill_layers(const KvgPlacement *placement, KvLayerGeometry *layers, uint32_t *count)
{
    for (uint32_t il = placement->lo; il < placement->hi; il++) {
        KvStateKind kind = placement->config.plan.layers[il].kind;
        if (kind == KVG_STATE_RECURRENT) {
            KVG_TRY(recurrent_geometry(placement, il, &layers[(*count)++]));
        } else if (kind == KVG_STATE_LATENT) {
            KVG_TRY(latent_geometry(placement, il, &layers[(*count)++]));
        } else if (placement->plan.class_of_layer[il] != UINT32_MAX) {
            KVG_TRY(kv_geometry(placement, il, &layers[(*count)++]));
        }
    }
    return KVG_OK;
}

/* The record's layout field starts from what every rank of a stage has in common: formats and shard without the first head. */
static uint64_t seed_layout(const KvgPlacement *placement, const KvLayerGeometry *layers, uint32_t count)
{
    uint64_t sum = placement->options.layout;

    for (uint32_t i = 0; i < count; i++) {
        const KvLayerGeometry *layer = &layers[i];
        sum += kvg_mix_term(layer->layer, layer->class_index, layer->kind, 0);
        if (layer->kind == KVG_STATE_KV) {
            sum += kvg_mix_term(layer->layer, (uint64_t)layer->heads << 32 | layer->head_dim_k,
                                (uint64_t)layer->head_dim_v << 32 | (uint64_t)layer->format_k << 8 | layer->format_v, 1);
        } else if (layer->kind == KVG_STATE_LATENT) {
            sum += kvg_mix_term(layer->layer, layer->latent.width, (uint64_t)layer->latent.index_width << 32 | layer->latent.index_pool,
                                layer->latent.format);
        }
        for (uint32_t p = 0; layer->kind == KVG_STATE_RECURRENT && p < layer->recurrent.part_count; p++) {
            sum += kvg_mix_term(layer->layer, p, layer->recurrent.parts[p].heads, layer->recurrent.parts[p].width);
        }
    }
    return sum;
}

/* Facts of the whole model: decisions follow from them on every rank, also where no such layer stands. */
static void fill_facts(const KvgPlacement *placement, KvStoreOptions *options)
{
    const ModelConfig *config = &placement->config;
    int64_t            ring = placement->grid->policy.dsa_index_ring;
    uint64_t           rows = ring < 0 ? KVG_INDEX_RING_WORKING_ROWS : (uint64_t)ring;

    options->columns = placement->options.spec_columns;
    options->index_ring_rows = rows < placement->plan.max_ctx ? rows : placement->plan.max_ctx;
    for (uint32_t il = 0; il < kvg_place_held_layers(config, &placement->options); il++) {
        const StatePlan *layer = &config->plan.layers[il];
        options->has_recurrent |= layer->kind == KVG_STATE_RECURRENT;
        if (layer->kind == KVG_STATE_LATENT && layer->u.latent.index_kind == KVG_INDEX_POOLED) {
            options->index_pool = layer->u.latent.index_pool;
        }
    }
}

KvClassGeometry kvg_place_class(const KvClassPlan *from, uint32_t units_max)
{
    return (KvClassGeometry){ .window = from->window, .ring = from->ring, .row_cap = from->row_cap, .unit_cap = from->unit_cap,
                              .units = from->units, .units_max = units_max };
}

KvClassGeometry kvg_place_lengths_class(uint64_t max_ctx, uint32_t slots)
{
    uint64_t units = kvg_ceil_div_u64(max_ctx, KVG_CHUNK_ROWS);
    uint32_t all = (uint32_t)kvg_min_u64(units * slots, INT32_MAX); /* chunk ids are i32 */

    return (KvClassGeometry){ .row_cap = max_ctx, .unit_cap = (uint32_t)units, .units = all, .units_max = all };
}

KvgStatus kvg_place_create_store(KvgPlacement *placement, const uint32_t *units_max)
{
    const KvGridPlan *plan = &placement->plan;
    KvClassGeometry   classes[KVG_CLASSES_MAX];
    KvLayerGeometry  *layers;
    uint32_t          count = 0;
    KvgStatus         status;

    if (plan->class_count == 0) {
        classes[0] = kvg_place_lengths_class(plan->max_ctx, placement->options.max_sequences);
    }
    for (uint32_t c = 0; c < plan->class_count; c++) {
        classes[c] = kvg_place_class(&plan->classes[c], units_max[c]);
    }
    KVG_TRY(KVG_NEW(placement->hi - placement->lo, "a placement's layers", &layers));
    KVG_TRY_GOTO(fill_layers(placement, layers, &count), out);
    placement->layout_seed = seed_layout(placement, layers, count);
    KvStoreOptions options = { .dev = &placement->device, .layout = placement->options.layout, .layers = layers, .layer_count = count,
                               .classes = classes, .class_count = plan->class_count > 0 ? plan->class_count : 1, .slots = placement->options.max_sequences,
                               .max_ctx = plan->max_ctx, .n_layer = plan->n_layer + plan->n_mtp };
    fill_facts(placement, &options);
    status = kvg_store_create(&options, &placement->store);
out:
    kvg_free(layers);
    return status;
}

/* Place, what is said: the options and the model as numbers, compared item by item over the ranks (S7). */
#include "pp/place.h"

#include <stddef.h>

#include <xxhash.h>

#define ITEM(name, field) { name, offsetof(PlaceHello, field) }

static const KvItem place_items[] = {
    ITEM("the model's layers (n_layer)", n_layer),
    ITEM("the model's MTP blocks", n_mtp),
    ITEM("the model's context", context),
    ITEM("the model's state plan (hash)", plan),
    ITEM("format_k", format_k),
    ITEM("format_v", format_v),
    ITEM("format_latent", format_latent),
    ITEM("layout", layout),
    ITEM("max_sequences", max_sequences),
    ITEM("max_step_sequences", max_step_sequences),
    ITEM("ctx", ctx),
    ITEM("prefill_chunk_max", prefill_chunk_max),
    ITEM("spec_columns", spec_columns),
    ITEM("with_mtp", with_mtp),
    ITEM("the fence (hash)", fence),
    ITEM("layer_bytes (hash)", layer_bytes),
    ITEM("the device's granularity", granularity),
};

KvgStatus kvg_place_compare(const void *const *hellos, int ranks)
{
    return kvg_items_compare("nothing was placed", place_items, sizeof place_items / sizeof *place_items, hellos, ranks);
}

static uint64_t hash_array(const void *array, size_t bytes)
{
    return array != NULL ? XXH3_64bits(array, bytes) : 0;
}

static uint64_t hash_recurrent(const RecurrentPlan *recurrent)
{
    uint64_t hash = recurrent->conv_kernel;

    for (uint32_t p = 0; p < recurrent->part_count; p++) {
        hash += kvg_mix_term(p, recurrent->parts[p].heads, recurrent->parts[p].width, recurrent->parts[p].is_state);
    }
    return hash;
}

/* Field by field: a union's unused bytes are not part of the plan. */
static uint64_t hash_plan(const ModelPlan *plan)
{
    uint64_t hash = 0;

    for (uint32_t il = 0; il < plan->n_layer + plan->n_mtp; il++) {
        const StatePlan   *layer = &plan->layers[il];
        const KvCachePlan *kv = &layer->u.kv;
        hash = kvg_mix64(hash + layer->kind);
        if (layer->kind == KVG_STATE_KV || layer->kind == KVG_STATE_SLIDING_KV) {
            hash = kvg_mix64(kvg_mix_term(kv->kv_heads, kv->head_dim_k, kv->head_dim_v, kv->window) + hash + kv->format_class);
        } else if (layer->kind == KVG_STATE_SHARED) {
            hash = kvg_mix64(hash + layer->u.shared_source);
        } else if (layer->kind == KVG_STATE_LATENT) {
            const LatentKvPlan *latent = &layer->u.latent;
            hash = kvg_mix64(kvg_mix_term(latent->width, latent->index_kind, latent->index_width, latent->index_pool) + hash + latent->kv_rank);
        } else if (layer->kind == KVG_STATE_RECURRENT) {
            hash = kvg_mix64(hash_recurrent(&layer->u.recurrent) + hash);
        }
    }
    return hash;
}

void kvg_place_say(const KvgPlacement *placement, KvgStatus local, PlaceHello *hello)
{
    const KvgPlaceOptions *options = &placement->options;
    const ModelConfig     *config = &placement->config;

    *hello = (PlaceHello){
        .status = (uint64_t)local,
        .plan = hash_plan(&config->plan),
        .n_layer = config->plan.n_layer,
        .n_mtp = config->plan.n_mtp,
        .context = config->context,
        .format_k = options->format_k,
        .format_v = options->format_v,
        .format_latent = options->format_latent,
        .layout = options->layout,
        .max_sequences = options->max_sequences,
        .max_step_sequences = options->max_step_sequences,
        .ctx = options->ctx,
        .prefill_chunk_max = options->prefill_chunk_max,
        .spec_columns = options->spec_columns,
        .with_mtp = options->with_mtp != 0,
        .fence = hash_array(options->fence, ((size_t)placement->grid->pp + 1) * sizeof(uint32_t)),
        .layer_bytes = hash_array(options->layer_bytes, ((size_t)config->plan.n_layer + config->plan.n_mtp) * sizeof(uint64_t)),
        .granularity = placement->device.ops->granularity(placement->device.self),
        .memory_bytes = options->memory_bytes,
        .memory_max_bytes = options->memory_max_bytes > 0 ? options->memory_max_bytes : kvg_quadruple(options->memory_bytes),
        .memory_reserve_bytes = options->memory_reserve_bytes,
    };
}

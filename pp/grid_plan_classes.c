#include "pp/grid_plan_classes.h"

#include <kvgrid/ring.h>

#include "runtime/base/checked.h"

#define NO_CLASS UINT32_MAX

static int layer_has_rows(const StatePlan *layer)
{
    return layer->kind == KVG_STATE_KV || layer->kind == KVG_STATE_SLIDING_KV || layer->kind == KVG_STATE_LATENT;
}

static uint64_t layer_window(const StatePlan *layer)
{
    return layer->kind == KVG_STATE_SLIDING_KV ? layer->u.kv.window : 0;
}

uint32_t kvg_class_plan_units(const KvClassPlan *class_plan, uint64_t rows)
{
    uint64_t units = kvg_ceil_div_u64(rows, KVG_CHUNK_ROWS);

    return units < class_plan->unit_cap ? (uint32_t)units : class_plan->unit_cap;
}

KvgStatus kvg_class_plan_caps(KvLayout layout, uint64_t max_ctx, uint64_t ctx, uint32_t prefill_chunk_max, KvClassPlan *class_plan)
{
    uint64_t all_units = kvg_ceil_div_u64(max_ctx, KVG_CHUNK_ROWS);
    uint64_t unit_cap = all_units;

    class_plan->row_cap = max_ctx;
    if (class_plan->ring) {
        if (prefill_chunk_max > KVG_PRIME_CHUNK_MAX_TOKENS) {
            return kvg_fail(KVG_EINVAL, "prefill_chunk_max is %u; with windowed layers whose rings are on it is at most %u", prefill_chunk_max,
                            KVG_PRIME_CHUNK_MAX_TOKENS);
        }
        class_plan->row_cap = kvg_swa_ring_rows_chunk(class_plan->window, max_ctx, prefill_chunk_max);
        unit_cap = kvg_ceil_div_u64(class_plan->row_cap, KVG_CHUNK_ROWS);
        if (layout == KVG_LAYOUT_POOL) { /* rows fall away by whole chunks: one more may be half dead */
            unit_cap = kvg_min_u64(all_units, unit_cap + 1);
        }
    }
    if (unit_cap > INT32_MAX) {
        return kvg_fail(KVG_EOVERFLOW, "a sequence of %llu rows takes more than 2^31 units of 64 rows; lower ctx",
                        (unsigned long long)max_ctx);
    }
    class_plan->unit_cap = (uint32_t)unit_cap;
    class_plan->units_per_sequence = kvg_class_plan_units(class_plan, kvg_min_u64(ctx, max_ctx));
    return KVG_OK;
}

/* The class of `layer`'s window; a new one if there is none yet. */
static KvgStatus class_of(const StatePlan *layer, const KvGridPlanOptions *options, KvGridPlan *plan, uint32_t *class_index)
{
    uint64_t window = layer_window(layer);
    uint32_t c = 0;

    while (c < plan->class_count && plan->classes[c].window != window) {
        c++;
    }
    if (c == KVG_PLAN_CLASSES_MAX) {
        return kvg_fail(KVG_ENOTSUP, "the model has more than %d kinds of window; a grid holds %d classes of rows",
                        KVG_PLAN_CLASSES_MAX, KVG_PLAN_CLASSES_MAX);
    }
    if (c == plan->class_count) {
        KvClassPlan *made = &plan->classes[c];

        *made = (KvClassPlan){ .kind = layer->kind, .window = window };
        made->ring = window != 0 && kvg_policy_swa_ring_on(&options->sizing.policy);
        KVG_TRY(kvg_class_plan_caps(options->layout, plan->max_ctx, plan->ctx, plan->prefill_chunk_max, made));
        plan->class_count++;
    }
    if (layer->kind == KVG_STATE_KV) {
        plan->classes[c].kind = KVG_STATE_KV; /* latents beside full K/V layers live in the same units */
    }
    plan->classes[c].layers++;
    *class_index = c;
    return KVG_OK;
}

/* One pass over the layers for the rows that are all kept, so that their class comes first, one for the windows. */
static KvgStatus assign_owners(const ModelConfig *config, const KvGridPlanOptions *options, uint32_t layer_count, int windowed,
                               KvGridPlan *plan)
{
    for (uint32_t il = 0; il < layer_count; il++) {
        const StatePlan *layer = &config->plan.layers[il];

        if (layer_has_rows(layer) && (layer_window(layer) != 0) == windowed) {
            KVG_TRY(class_of(layer, options, plan, &plan->class_of_layer[il]));
        }
    }
    return KVG_OK;
}

static KvgStatus layer_formats(const ModelConfig *config, const KvGridPlanOptions *options, uint32_t il, KvGridPlan *plan)
{
    const StatePlan *layer = &config->plan.layers[il];

    if (layer->kind == KVG_STATE_SHARED) {
        uint32_t source = layer->u.shared_source;

        if (source >= il) {
            return kvg_fail(KVG_EINVAL, "layer %u shares layer %u, which does not come before it", il, source);
        }
        plan->class_of_layer[il] = plan->class_of_layer[source];
        return KVG_OK;
    }
    if (layer->kind != KVG_STATE_KV && layer->kind != KVG_STATE_SLIDING_KV) {
        return KVG_OK;
    }
    return kvg_layer_formats(layer, &options->sizing.policy, options->sizing.format_k, options->sizing.format_v,
                             &plan->format_k[il], &plan->format_v[il]);
}

KvgStatus kvg_grid_classes(const ModelConfig *config, const KvGridPlanOptions *options, uint32_t layer_count, KvGridPlan *plan)
{
    plan->class_count = 0;
    for (uint32_t il = 0; il < plan->n_layer + plan->n_mtp; il++) {
        plan->class_of_layer[il] = NO_CLASS;
    }
    KVG_TRY(assign_owners(config, options, layer_count, 0, plan));
    KVG_TRY(assign_owners(config, options, layer_count, 1, plan));
    for (uint32_t il = 0; il < layer_count; il++) {
        KVG_TRY(layer_formats(config, options, il, plan));
    }
    return KVG_OK;
}

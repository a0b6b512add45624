#include <kvgrid/sizing.h>

#include <inttypes.h>
#include <stdbool.h>

#include <kvgrid/index_ring.h>
#include <kvgrid/ring.h>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

#define KV_LAYER_FIXED_BYTES     20u /* an 8-byte pad after each of two planes, one i32 mirror of the length */
#define LATENT_LAYER_FIXED_BYTES 12u /* one pad, one mirror */
#define RECURRENT_COLUMNS        2u
#define STATE_ELEMENT_BYTES      4u  /* recurrent state is f32 */

/* Bytes of one layer; adds up what a range of layers costs. */
typedef KvgStatus (*LayerBytes)(const KvSizing *sizing, const StatePlan *layer, const uint64_t *argument, uint64_t *bytes);

static KvgStatus check_range(const ModelPlan *plan, uint32_t lo, uint32_t hi)
{
    uint64_t end = (uint64_t)plan->n_layer + plan->n_mtp;

    if (lo > hi || hi > end) {
        return kvg_fail(KVG_EINVAL, "layers [%u, %u) are no range of this model; give lo <= hi <= %" PRIu64, lo, hi, end);
    }
    return KVG_OK;
}

static KvgStatus overflow(const char *what)
{
    return kvg_fail(KVG_EOVERFLOW, "%s do not fit 64 bits; give a smaller model, context or ring", what);
}

static KvgStatus sum_layers(const KvSizing *sizing, const ModelPlan *plan, uint32_t lo, uint32_t hi, LayerBytes of_layer,
                            const uint64_t *argument, uint64_t *bytes)
{
    uint64_t total = 0;

    KVG_TRY(check_range(plan, lo, hi));
    for (uint32_t il = lo; il < hi; il++) {
        uint64_t layer = 0;
        KVG_TRY(of_layer(sizing, &plan->layers[il], argument, &layer));
        if (!kvg_add_u64(total, layer, &total)) {
            return overflow("the bytes of these layers");
        }
    }
    *bytes = total;
    return KVG_OK;
}

/* ---- rows */

static KvgStatus kv_bytes(const KvSizing *sizing, const StatePlan *layer, uint64_t *bytes)
{
    const KvCachePlan *kv = &layer->u.kv;
    KvFormat           format_k = KVG_POLICY, format_v = KVG_POLICY;
    uint64_t           k_bytes = 0, v_bytes = 0;

    KVG_TRY(kvg_layer_formats(layer, &sizing->policy, sizing->format_k, sizing->format_v, &format_k, &format_v));
    KVG_TRY(kvg_format_row_bytes(format_k, (uint64_t)kv->kv_heads * kv->head_dim_k, &k_bytes));
    KVG_TRY(kvg_format_row_bytes(format_v, (uint64_t)kv->kv_heads * kv->head_dim_v, &v_bytes));
    return kvg_add_u64(k_bytes, v_bytes, bytes) ? KVG_OK : overflow("a K/V row's bytes");
}

static KvgStatus latent_element_bytes(const KvSizing *sizing, uint64_t *bytes)
{
    KvFormat format = sizing->format_latent == KVG_POLICY ? KVG_F32 : sizing->format_latent;

    if (format != KVG_F32 && format != KVG_BF16) {
        return kvg_fail(KVG_EINVAL, "%s is no format for latent rows; choose f32 or bf16", kvg_format_name(format));
    }
    *bytes = kvg_format_block_bytes(format);
    return KVG_OK;
}

static bool index_ring_on(const KvSizing *sizing)
{
    return sizing->policy.dsa_index_ring != 0; /* the knob's 0 means flat; unset means the default ring */
}

/* Index part of a latent layer's row: keys, and the state elements where no ring holds them. */
static uint64_t index_bytes(const KvSizing *sizing, const LatentKvPlan *latent, uint64_t element_bytes)
{
    uint64_t pool = kvg_max_u64(latent->index_pool, 1); /* an unknown pool counts as 1 */
    uint64_t bytes;

    if (latent->index_kind == KVG_INDEX_NONE) {
        return 0;
    }
    if (latent->index_kind == KVG_INDEX_PER_TOKEN) {
        return (uint64_t)latent->index_width * element_bytes;
    }
    bytes = (uint64_t)(latent->index_width / 2) * element_bytes / pool;
    return index_ring_on(sizing) ? bytes : bytes + (uint64_t)latent->index_width * element_bytes;
}

static KvgStatus latent_bytes(const KvSizing *sizing, const StatePlan *layer, const uint64_t *argument, uint64_t *bytes)
{
    uint64_t element_bytes = 0;

    (void)argument;
    *bytes = 0;
    KVG_TRY(latent_element_bytes(sizing, &element_bytes));
    if (layer->kind == KVG_STATE_LATENT) {
        *bytes = layer->u.latent.width * element_bytes + index_bytes(sizing, &layer->u.latent, element_bytes);
    }
    return KVG_OK;
}

static bool holds_kv(const StatePlan *layer)
{
    return layer->kind == KVG_STATE_KV || layer->kind == KVG_STATE_SLIDING_KV;
}

static KvgStatus token_bytes(const KvSizing *sizing, const StatePlan *layer, const uint64_t *argument, uint64_t *bytes)
{
    return holds_kv(layer) ? kv_bytes(sizing, layer, bytes) : latent_bytes(sizing, layer, argument, bytes);
}

static KvgStatus ring_bytes(const KvSizing *sizing, const StatePlan *layer, const uint64_t *argument, uint64_t *bytes)
{
    (void)argument;
    *bytes = 0;
    if (layer->kind != KVG_STATE_SLIDING_KV || !kvg_policy_swa_ring_on(&sizing->policy)) {
        return KVG_OK;
    }
    return kv_bytes(sizing, layer, bytes);
}

KvgStatus kvg_plan_bytes_per_token(const KvSizing *sizing, const ModelPlan *plan, uint32_t lo, uint32_t hi, uint64_t *bytes)
{
    return sum_layers(sizing, plan, lo, hi, token_bytes, NULL, bytes);
}

KvgStatus kvg_plan_latent_bytes_per_token(const KvSizing *sizing, const ModelPlan *plan, uint32_t lo, uint32_t hi,
                                          uint64_t *bytes)
{
    return sum_layers(sizing, plan, lo, hi, latent_bytes, NULL, bytes);
}

KvgStatus kvg_plan_ring_bytes_per_token(const KvSizing *sizing, const ModelPlan *plan, uint32_t lo, uint32_t hi, uint64_t *bytes)
{
    return sum_layers(sizing, plan, lo, hi, ring_bytes, NULL, bytes);
}

KvgStatus kvg_plan_ring_row_cap(const KvSizing *sizing, const ModelPlan *plan, uint64_t *rows)
{
    uint64_t cap = 0;

    for (uint32_t il = 0; kvg_policy_swa_ring_on(&sizing->policy) && il < plan->n_layer + plan->n_mtp; il++) {
        if (plan->layers[il].kind == KVG_STATE_SLIDING_KV) {
            cap = kvg_max_u64(cap, kvg_swa_ring_rows(plan->layers[il].u.kv.window, UINT64_MAX));
        }
    }
    *rows = cap;
    return KVG_OK;
}

/* ---- fixed bytes */

typedef enum FixedArgument { FIXED_MAX_CTX = 0, FIXED_COLUMNS = 1, FIXED_ARGUMENT_COUNT } FixedArgument;

static KvgStatus recurrent_fixed(const RecurrentPlan *recurrent, uint64_t columns, uint64_t *bytes)
{
    uint64_t taps = recurrent->conv_kernel > 0 ? recurrent->conv_kernel - 1 : 0;
    uint64_t elements = 0;

    if (!kvg_mul_u64(recurrent->conv_width, taps, &elements) || !kvg_add_u64(elements, recurrent->state_width, &elements) ||
        !kvg_mul_u64(elements, STATE_ELEMENT_BYTES, bytes) || !kvg_mul_u64(*bytes, columns, bytes)) {
        return overflow("a recurrent layer's bytes");
    }
    return KVG_OK;
}

static KvgStatus latent_fixed(const KvSizing *sizing, const LatentKvPlan *latent, uint64_t max_ctx, uint64_t *bytes)
{
    int64_t  knob = sizing->policy.dsa_index_ring;
    uint64_t rows = kvg_min_u64(knob < 0 ? KVG_INDEX_RING_WORKING_ROWS : (uint64_t)knob, max_ctx);
    uint64_t element_bytes = 0, ring = 0;

    KVG_TRY(latent_element_bytes(sizing, &element_bytes));
    if (latent->index_kind == KVG_INDEX_POOLED && index_ring_on(sizing) &&
        !kvg_mul_u64(rows, latent->index_width * element_bytes, &ring)) {
        return overflow("an index ring's bytes");
    }
    return kvg_add_u64(ring, LATENT_LAYER_FIXED_BYTES, bytes) ? KVG_OK : overflow("an index ring's bytes");
}

static KvgStatus fixed_bytes(const KvSizing *sizing, const StatePlan *layer, const uint64_t *argument, uint64_t *bytes)
{
    *bytes = 0;
    if (holds_kv(layer)) {
        *bytes = KV_LAYER_FIXED_BYTES;
        return KVG_OK;
    }
    if (layer->kind == KVG_STATE_LATENT) {
        return latent_fixed(sizing, &layer->u.latent, argument[FIXED_MAX_CTX], bytes);
    }
    return layer->kind == KVG_STATE_RECURRENT ? recurrent_fixed(&layer->u.recurrent, argument[FIXED_COLUMNS], bytes) : KVG_OK;
}

KvgStatus kvg_plan_fixed_bytes(const KvSizing *sizing, const ModelPlan *plan, uint32_t lo, uint32_t hi, uint64_t max_ctx,
                               uint32_t columns, uint64_t *bytes)
{
    uint64_t argument[FIXED_ARGUMENT_COUNT] = {
        [FIXED_MAX_CTX] = max_ctx, [FIXED_COLUMNS] = columns == 0 ? RECURRENT_COLUMNS : columns,
    };

    return sum_layers(sizing, plan, lo, hi, fixed_bytes, argument, bytes);
}

static KvgStatus key_bytes(const KvSizing *sizing, const StatePlan *layer, const uint64_t *capacity, uint64_t *bytes)
{
    const LatentKvPlan *latent = &layer->u.latent;
    uint64_t            element_bytes = 0;

    *bytes = 0;
    KVG_TRY(latent_element_bytes(sizing, &element_bytes));
    if (layer->kind != KVG_STATE_LATENT || latent->index_kind != KVG_INDEX_POOLED) {
        return KVG_OK;
    }
    if (!kvg_mul_u64(*capacity / kvg_max_u64(latent->index_pool, 1), latent->index_width / 2 * element_bytes, bytes)) {
        return overflow("pool keys");
    }
    return KVG_OK;
}

KvgStatus kvg_plan_pool_key_bytes(const KvSizing *sizing, const ModelPlan *plan, uint32_t lo, uint32_t hi, uint64_t capacity,
                                  uint64_t *bytes)
{
    return sum_layers(sizing, plan, lo, hi, key_bytes, &capacity, bytes);
}

/* ---- over the process's policy */

KvgStatus kvg_sizing_default(KvSizing *sizing)
{
    const KvgPolicy *policy = NULL;

    KVG_TRY(kvg_policy_process(&policy));
    *sizing = (KvSizing){.policy = *policy};
    return KVG_OK;
}

KvgStatus kvg_cache_bytes_per_token(const ModelConfig *config, uint64_t *bytes)
{
    return kvg_cache_bytes_per_token_for_layers(config, 0, config->plan.n_layer, bytes);
}

KvgStatus kvg_cache_bytes_per_token_for_layers(const ModelConfig *config, uint32_t lo, uint32_t hi, uint64_t *bytes)
{
    return kvg_cache_bytes_per_token_for_plan(config, &config->plan, lo, hi, bytes);
}

/* The three that take a plan beside its config keep S3's shape: the plan alone decides. */
KvgStatus kvg_cache_bytes_per_token_for_plan(const ModelConfig *config, const ModelPlan *plan, uint32_t lo, uint32_t hi,
                                             uint64_t *bytes)
{
    KvSizing sizing;

    (void)config;
    KVG_TRY(kvg_sizing_default(&sizing));
    return kvg_plan_bytes_per_token(&sizing, plan, lo, hi, bytes);
}

KvgStatus kvg_latent_kv_bytes_per_token_for_plan(const ModelConfig *config, const ModelPlan *plan, uint32_t lo, uint32_t hi,
                                                 uint64_t *bytes)
{
    KvSizing sizing;

    (void)config;
    KVG_TRY(kvg_sizing_default(&sizing));
    return kvg_plan_latent_bytes_per_token(&sizing, plan, lo, hi, bytes);
}

KvgStatus kvg_cache_ring_bytes_per_token(const ModelConfig *config, uint64_t *bytes)
{
    return kvg_cache_ring_bytes_per_token_for_layers(config, 0, config->plan.n_layer, bytes);
}

KvgStatus kvg_cache_ring_bytes_per_token_for_layers(const ModelConfig *config, uint32_t lo, uint32_t hi, uint64_t *bytes)
{
    return kvg_cache_ring_bytes_per_token_for_plan(config, &config->plan, lo, hi, bytes);
}

KvgStatus kvg_cache_ring_bytes_per_token_for_plan(const ModelConfig *config, const ModelPlan *plan, uint32_t lo, uint32_t hi,
                                                  uint64_t *bytes)
{
    KvSizing sizing;

    (void)config;
    KVG_TRY(kvg_sizing_default(&sizing));
    return kvg_plan_ring_bytes_per_token(&sizing, plan, lo, hi, bytes);
}

KvgStatus kvg_cache_ring_row_cap(const ModelConfig *config, uint64_t *rows)
{
    return kvg_cache_ring_row_cap_for_plan(config, &config->plan, rows);
}

KvgStatus kvg_cache_ring_row_cap_for_plan(const ModelConfig *config, const ModelPlan *plan, uint64_t *rows)
{
    KvSizing sizing;

    (void)config;
    KVG_TRY(kvg_sizing_default(&sizing));
    return kvg_plan_ring_row_cap(&sizing, plan, rows);
}

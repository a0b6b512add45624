#include "runtime/model/plan_build.h"

#include <inttypes.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

/* Rows and their products stay in 31 bits, so that no later 32-bit product of a layer's heads and widths can wrap. */
#define ELEMENTS_MAX ((uint64_t)INT32_MAX)

KvgStatus kvg_plan_alloc(ModelConfig *config, uint32_t n_layer, uint32_t n_mtp)
{
    size_t count = (size_t)n_layer + n_mtp;

    KVG_ASSERT(config->plan.layers == NULL && config->weight_bytes == NULL);
    KVG_TRY(KVG_NEW(count, "a model's plan", &config->plan.layers)); /* the config owns it from here, whatever follows */
    KVG_TRY(KVG_NEW(count, "a model's weight bytes", &config->weight_bytes));
    config->plan.n_layer = n_layer;
    config->plan.n_mtp = n_mtp;
    return KVG_OK;
}

/* ---- attention */

static KvgStatus check_product(const char *file, uint32_t layer, const char *what, uint64_t a, uint64_t b)
{
    uint64_t product = 0;

    if (!kvg_mul_u64(a, b, &product) || product > ELEMENTS_MAX) {
        return kvg_fail(KVG_EOVERFLOW, "%s: layer %u: %s %" PRIu64 " x %" PRIu64 " is more than %" PRIu64
                        " elements; mend the config", file, layer, what, a, b, ELEMENTS_MAX);
    }
    return KVG_OK;
}

static KvFormatClass format_class(const KvShapeFacts *facts)
{
    if (!facts->gemma) {
        return KVG_FORMAT_ORDINARY;
    }
    return facts->window > 0 ? KVG_FORMAT_GEMMA_WINDOWED : KVG_FORMAT_GEMMA_GLOBAL;
}

KvgStatus kvg_plan_kv(const char *file, uint32_t layer, const KvShapeFacts *facts, StatePlan *plan)
{
    KVG_ASSERT(facts->kv_heads > 0 && facts->head_dim_k > 0 && facts->head_dim_v > 0 && facts->query_heads > 0);
    KVG_TRY(check_product(file, layer, "query heads and K head dimension", facts->query_heads, facts->head_dim_k));
    KVG_TRY(check_product(file, layer, "query heads and V head dimension", facts->query_heads, facts->head_dim_v));
    if (facts->query_heads % facts->kv_heads != 0) {
        return kvg_fail(KVG_EFORMAT, "%s: layer %u: %u attention heads (num_attention_heads) are no multiple of %u K/V "
                        "heads (num_key_value_heads); mend the config", file, layer, facts->query_heads, facts->kv_heads);
    }
    *plan = (StatePlan){.kind = facts->window > 0 ? KVG_STATE_SLIDING_KV : KVG_STATE_KV};
    plan->u.kv = (KvCachePlan){
        .kv_heads = facts->kv_heads, .head_dim_k = facts->head_dim_k, .head_dim_v = facts->head_dim_v,
        .query_heads = facts->query_heads, .window = facts->window, .format_class = format_class(facts),
    };
    return KVG_OK;
}

KvgStatus kvg_plan_latent(const char *file, uint32_t layer, uint32_t kv_rank, uint32_t rope_dim, KvIndexKind index_kind,
                          uint32_t index_head_dim, uint32_t index_pool, StatePlan *plan)
{
    uint64_t width = (uint64_t)kv_rank + rope_dim;

    KVG_ASSERT(kv_rank > 0 && (index_kind == KVG_INDEX_NONE || index_head_dim > 0));
    KVG_TRY(check_product(file, layer, "kv_lora_rank + qk_rope_head_dim and one head", width, 1));
    KVG_TRY(check_product(file, layer, "index_head_dim and two states", index_head_dim, 2));
    *plan = (StatePlan){.kind = KVG_STATE_LATENT};
    plan->u.latent = (LatentKvPlan){.width = (uint32_t)width, .kv_rank = kv_rank, .index_kind = index_kind};
    if (index_kind == KVG_INDEX_POOLED) {
        plan->u.latent.index_width = 2 * index_head_dim;
        plan->u.latent.index_pool = index_pool;
    } else if (index_kind == KVG_INDEX_PER_TOKEN) {
        plan->u.latent.index_width = index_head_dim;
    }
    return KVG_OK;
}

/* ---- recurrent */

static void add_part(RecurrentPlan *plan, uint32_t heads, uint32_t width, uint8_t is_state)
{
    KVG_ASSERT(plan->part_count < KVG_RECURRENT_PARTS_MAX);
    plan->parts[plan->part_count++] = (RecurrentPart){.heads = heads, .width = width, .is_state = is_state};
    if (is_state) {
        plan->state_width += (uint64_t)heads * width;
    } else {
        plan->conv_width += heads * width;
    }
}

/* All widths are checked here, before the parts are added: their sums fit because there are at most three conv parts. */
static KvgStatus check_recurrent(const char *file, uint32_t layer, uint64_t conv_channels, uint64_t heads, uint64_t rows,
                                 uint64_t columns)
{
    KVG_TRY(check_product(file, layer, "conv channels and one tap", conv_channels, 1));
    KVG_TRY(check_product(file, layer, "state rows and columns", rows, columns));
    return check_product(file, layer, "state heads and width", heads, rows * columns);
}

KvgStatus kvg_plan_gdn(const char *file, uint32_t layer, uint32_t key_heads, uint32_t key_dim, uint32_t value_heads,
                       uint32_t value_dim, uint32_t conv_kernel, StatePlan *plan)
{
    RecurrentPlan *recurrent = &plan->u.recurrent;

    KVG_TRY(check_product(file, layer, "key heads and width", key_heads, key_dim));
    KVG_TRY(check_product(file, layer, "value heads and width", value_heads, value_dim));
    KVG_TRY(check_recurrent(file, layer, 2 * (uint64_t)key_heads * key_dim + (uint64_t)value_heads * value_dim, value_heads,
                            value_dim, key_dim));
    *plan = (StatePlan){.kind = KVG_STATE_RECURRENT, .u.recurrent.conv_kernel = conv_kernel};
    add_part(recurrent, key_heads, key_dim, 0);                  /* q */
    add_part(recurrent, key_heads, key_dim, 0);                  /* k */
    add_part(recurrent, value_heads, value_dim, 0);              /* v */
    add_part(recurrent, value_heads, value_dim * key_dim, 1);
    return KVG_OK;
}

KvgStatus kvg_plan_kda(const char *file, uint32_t layer, uint32_t heads, uint32_t dim, uint32_t conv_kernel, StatePlan *plan)
{
    return kvg_plan_gdn(file, layer, heads, dim, heads, dim, conv_kernel, plan);
}

KvgStatus kvg_plan_mamba2(const char *file, uint32_t layer, uint32_t heads, uint32_t head_dim, uint32_t groups,
                          uint32_t d_state, uint32_t conv_kernel, StatePlan *plan)
{
    RecurrentPlan *recurrent = &plan->u.recurrent;

    KVG_TRY(check_product(file, layer, "heads and width", heads, head_dim));
    KVG_TRY(check_product(file, layer, "groups and state size", groups, d_state));
    KVG_TRY(check_recurrent(file, layer, (uint64_t)heads * head_dim + 2 * (uint64_t)groups * d_state, heads, head_dim, d_state));
    *plan = (StatePlan){.kind = KVG_STATE_RECURRENT, .u.recurrent.conv_kernel = conv_kernel};
    add_part(recurrent, heads, head_dim, 0);                     /* x */
    add_part(recurrent, groups, d_state, 0);                     /* B */
    add_part(recurrent, groups, d_state, 0);                     /* C */
    add_part(recurrent, heads, head_dim * d_state, 1);
    return KVG_OK;
}

KvgStatus kvg_plan_mamba1(const char *file, uint32_t layer, uint32_t d_inner, uint32_t d_state, uint32_t conv_kernel,
                          StatePlan *plan)
{
    KVG_TRY(check_recurrent(file, layer, d_inner, d_inner, 1, d_state));
    *plan = (StatePlan){.kind = KVG_STATE_RECURRENT, .u.recurrent.conv_kernel = conv_kernel};
    add_part(&plan->u.recurrent, d_inner, 1, 0);
    add_part(&plan->u.recurrent, d_inner, d_state, 1);
    return KVG_OK;
}

/* ---- sharing and MTP */

KvgStatus kvg_plan_share(const char *file, const char *field, ModelPlan *plan, const uint8_t *kinds, uint32_t shared)
{
    uint32_t first;

    if (shared > plan->n_layer) {
        return kvg_fail(KVG_EFORMAT, "%s: %s is %u, more than the %u layers; mend the config", file, field, shared, plan->n_layer);
    }
    first = plan->n_layer - shared;
    for (uint32_t il = first; il < plan->n_layer; il++) {
        uint32_t source = first;
        if (kinds[il] != KVG_LAYER_FULL && kinds[il] != KVG_LAYER_SLIDING) {
            continue;
        }
        while (source > 0 && kinds[source - 1] != kinds[il]) {
            source--;
        }
        if (source == 0) {
            return kvg_fail(KVG_EFORMAT, "%s: %s is %u, which leaves layer %u no earlier layer of its kind to share with; "
                            "mend the config", file, field, shared, il);
        }
        if (plan->layers[source - 1].kind == KVG_STATE_LATENT) { /* of all configs none means it, and a latent cache holds one layer's rows */
            return kvg_fail(KVG_ENOTSUP, "%s: %s is %u, and layer %u is latent: K/V rows can be shared, latent rows cannot; mend the config", file, field, shared, il);
        }
        plan->layers[il] = (StatePlan){.kind = KVG_STATE_SHARED, .u.shared_source = source - 1};
    }
    return KVG_OK;
}

static bool owns_rows(KvStateKind kind)
{
    return kind == KVG_STATE_KV || kind == KVG_STATE_SLIDING_KV || kind == KVG_STATE_LATENT;
}

KvgStatus kvg_plan_inherit_mtp(const char *file, const char *field, ModelPlan *plan, const uint8_t *kinds)
{
    uint32_t end = plan->n_layer;

    while (end > 0 && !owns_rows(plan->layers[end - 1].kind)) {
        end--;
    }
    for (uint32_t il = plan->n_layer; il < plan->n_layer + plan->n_mtp; il++) {
        if (kinds[il] != KVG_LAYER_INHERIT) {
            continue;
        }
        if (end == 0) {
            return kvg_fail(KVG_EFORMAT, "%s: %s is %u, but no attention layer says what such a block keeps; mend the config",
                            file, field, plan->n_mtp);
        }
        plan->layers[il] = plan->layers[end - 1];
    }
    return KVG_OK;
}

uint32_t kvg_plan_query_heads(const ModelPlan *plan)
{
    for (uint32_t il = 0; il < plan->n_layer; il++) {
        if (plan->layers[il].kind == KVG_STATE_KV || plan->layers[il].kind == KVG_STATE_SLIDING_KV) {
            return plan->layers[il].u.kv.query_heads;
        }
    }
    return 0;
}

#include "runtime/model/weights.h"

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

static uint64_t sat_mul(uint64_t a, uint64_t b)
{
    uint64_t product = 0;

    return kvg_mul_u64(a, b, &product) ? product : UINT64_MAX;
}

static uint64_t sat_add(uint64_t a, uint64_t b)
{
    uint64_t sum = 0;

    return kvg_add_u64(a, b, &sum) ? sum : UINT64_MAX;
}

static uint64_t weight_bytes(uint64_t weights, uint32_t bytes_per_32)
{
    return sat_mul(kvg_ceil_div_u64(weights, 32), bytes_per_32);
}

static uint64_t kv_weights(const WeightFacts *facts, const KvCachePlan *kv, bool owns_kv)
{
    uint64_t width = (uint64_t)kv->query_heads * kv->head_dim_k + (uint64_t)kv->query_heads * kv->head_dim_v; /* q, o */

    if (owns_kv) {
        width += (uint64_t)kv->kv_heads * kv->head_dim_k + (uint64_t)kv->kv_heads * kv->head_dim_v;
    }
    return sat_mul(facts->hidden, width);
}

static uint64_t latent_weights(const WeightFacts *facts, const LatentKvPlan *latent)
{
    uint64_t rope = latent->width - latent->kv_rank;
    uint64_t query_width = sat_mul(facts->latent_heads, sat_add(facts->nope_dim, rope));
    uint64_t query_from = facts->q_lora_rank > 0 ? facts->q_lora_rank : facts->hidden;
    uint64_t weights = sat_mul(query_from, query_width);

    weights = sat_add(weights, sat_mul(facts->hidden, facts->q_lora_rank));
    weights = sat_add(weights, sat_mul(facts->hidden, latent->width));
    weights = sat_add(weights, sat_mul(latent->kv_rank, sat_mul(facts->latent_heads, sat_add(facts->nope_dim, facts->value_dim))));
    weights = sat_add(weights, sat_mul(facts->hidden, sat_mul(facts->latent_heads, facts->value_dim)));
    if (latent->index_kind != KVG_INDEX_NONE) {
        weights = sat_add(weights, sat_mul(query_from, sat_mul(facts->index_heads, latent->index_width)));
        weights = sat_add(weights, sat_mul(facts->hidden, latent->index_width));
    }
    return weights;
}

/* In-projection to the conv channels and to a gate as wide as the output, and the out-projection. The widest conv part
 * is the output's width in every kind that is planned (v of delta nets, x of Mamba). */
static uint64_t recurrent_weights(const WeightFacts *facts, const RecurrentPlan *recurrent)
{
    uint64_t widest = 0;

    for (uint32_t i = 0; i < recurrent->part_count; i++) {
        const RecurrentPart *part = &recurrent->parts[i];
        if (!part->is_state) {
            widest = kvg_max_u64(widest, (uint64_t)part->heads * part->width);
        }
    }
    return sat_mul(facts->hidden, recurrent->conv_width + 2 * widest);
}

static uint64_t mixer_weights(const WeightFacts *facts, const ModelPlan *plan, uint32_t layer)
{
    const StatePlan *state = &plan->layers[layer];

    switch (state->kind) {
    case KVG_STATE_KV:
    case KVG_STATE_SLIDING_KV: return kv_weights(facts, &state->u.kv, true);
    case KVG_STATE_LATENT: return latent_weights(facts, &state->u.latent);
    case KVG_STATE_RECURRENT: return recurrent_weights(facts, &state->u.recurrent);
    case KVG_STATE_SHARED:
        KVG_ASSERT(plan->layers[state->u.shared_source].kind == KVG_STATE_KV || plan->layers[state->u.shared_source].kind == KVG_STATE_SLIDING_KV);
        return kv_weights(facts, &plan->layers[state->u.shared_source].u.kv, false);
    default: return 0;
    }
}

uint64_t kvg_weight_layer_bytes(const WeightFacts *facts, const ModelPlan *plan, uint32_t layer, KvMlpKind mlp)
{
    uint64_t per_width = sat_mul(facts->hidden, facts->mlp_matrices);
    uint64_t dense = mixer_weights(facts, plan, layer);
    uint64_t experts = 0;

    if (mlp == KVG_MLP_DENSE || mlp == KVG_MLP_BOTH) {
        dense = sat_add(dense, sat_mul(per_width, facts->dense_width));
    }
    if (mlp == KVG_MLP_SPARSE || mlp == KVG_MLP_BOTH) {
        dense = sat_add(dense, sat_mul(facts->hidden, facts->expert_count)); /* the router */
        dense = sat_add(dense, sat_mul(per_width, facts->shared_width));
        experts = sat_mul(per_width, sat_mul(facts->expert_width, facts->expert_count));
    }
    return sat_add(weight_bytes(dense, facts->bytes_per_32), weight_bytes(experts, facts->expert_bytes_per_32));
}

void kvg_weight_ends(const WeightFacts *facts, ModelConfig *config)
{
    config->embedding_bytes = weight_bytes(sat_mul(facts->vocab, facts->hidden), facts->embedding_bytes_per_32);
    config->head_bytes = config->embedding_bytes;
    config->head_is_tied = facts->tied;
}

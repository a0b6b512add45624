#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/base/sized.h"

#include "pp/grid_plan_capacity.h"
#include "pp/grid_plan_classes.h"
#include "pp/grid_plan_fence.h"
#include "pp/grid_plan_shard.h"

#include <string.h>

#include <kvgrid/ring.h>

#define CTX_DEFAULT 32768u
#define RANKS_MOST  65535u /* a record's rank is 16 bits wide */

/* ---- checking */

static KvgStatus check_sizing(const KvSizing *sizing)
{
    if (sizing->format_k != KVG_POLICY && !kvg_format_legal_k(sizing->format_k)) {
        return kvg_fail(KVG_EINVAL, "format %s is not legal for K: use q8_0, fp8, q4_0, bf16 or f16", kvg_format_name(sizing->format_k));
    }
    if (sizing->format_v != KVG_POLICY && !kvg_format_legal_v(sizing->format_v)) {
        return kvg_fail(KVG_EINVAL, "format %s is not legal for V: use q5_1, q4_0, fp8, q8_0, bf16 or f16",
                        kvg_format_name(sizing->format_v));
    }
    if (sizing->format_latent != KVG_POLICY && sizing->format_latent != KVG_F32 && sizing->format_latent != KVG_BF16) {
        return kvg_fail(KVG_EINVAL, "format %s is not legal for latent rows: use f32 or bf16", kvg_format_name(sizing->format_latent));
    }
    return KVG_OK;
}

static KvgStatus check_options(const ModelConfig *config, const KvGridPlanOptions *options)
{
    if (options->tp == 0 || options->pp == 0 || (uint64_t)options->tp * options->pp > RANKS_MOST) {
        return kvg_fail(KVG_EINVAL, "tp %u x pp %u is no grid: each is at least 1, and together at most %u ranks", options->tp,
                        options->pp, RANKS_MOST);
    }
    if (config->plan.n_layer == 0) {
        return kvg_fail(KVG_EINVAL, "the model has no layers");
    }
    if (options->pp > config->plan.n_layer) {
        return kvg_fail(KVG_EINVAL, "pp %u is more stages than %s has layers (%u): every stage needs one", options->pp, config->name,
                        config->plan.n_layer);
    }
    if (options->state_bytes != NULL && options->device_bytes != NULL) {
        return kvg_fail(KVG_EINVAL, "give the ranks' state_bytes or their device_bytes, not both");
    }
    if (options->layout != KVG_LAYOUT_POOL && options->layout != KVG_LAYOUT_FLAT) {
        return kvg_fail(KVG_EINVAL, "layout %d is neither pool nor flat", (int)options->layout);
    }
    return check_sizing(&options->sizing);
}

/* ---- ranks */

static KvgStatus add_bytes(uint64_t *sum, uint64_t bytes)
{
    if (!kvg_add_u64(*sum, bytes, sum)) {
        return kvg_fail(KVG_EOVERFLOW, "a rank's bytes add up past 64 bits");
    }
    return KVG_OK;
}

static KvgStatus add_share(const KvGridPlan *plan, uint32_t il, const GridShare *share, KvRankPlan *rank)
{
    KVG_TRY(add_bytes(&rank->bytes_per_token, share->bytes_per_token));
    KVG_TRY(add_bytes(&rank->ring_bytes_per_token, share->ring_bytes_per_token));
    KVG_TRY(add_bytes(&rank->fixed_bytes, share->fixed_bytes));
    KVG_TRY(add_bytes(&rank->slot_bytes, share->slot_bytes));
    rank->duplicate_bytes_per_token += kvg_grid_share_duplicate_rows(share, rank->tp_rank);
    rank->duplicate_fixed_bytes += kvg_grid_share_duplicate_fixed(share, rank->tp_rank);
    if (share->unit_bytes != 0) {
        KVG_ASSERT(plan->class_of_layer[il] < plan->class_count);
        KVG_TRY(add_bytes(&rank->class_unit_bytes[plan->class_of_layer[il]], share->unit_bytes));
    }
    return KVG_OK;
}

static KvgStatus fill_rank(KvGridPlan *plan, uint32_t layer_count, const GridShare *shares, const GridWeights *weights, uint32_t index)
{
    KvRankPlan *rank = &plan->ranks[index];
    uint32_t    stage = index / plan->tp;

    rank->rank = index;
    rank->stage = stage;
    rank->tp_rank = index % plan->tp;
    rank->lo = plan->fence[stage];
    rank->hi = stage == plan->pp - 1 ? layer_count : plan->fence[stage + 1];
    rank->weight_bytes = kvg_grid_stage_weights(plan, weights, layer_count, stage);
    for (uint32_t il = rank->lo; il < rank->hi; il++) {
        KVG_TRY(add_share(plan, il, &shares[il], rank));
    }
    return KVG_OK;
}

/* What is left for sequence state: given, or the device less weights and reserve. */
static KvgStatus fill_memory(const ModelConfig *config, const KvGridPlanOptions *options, KvGridPlan *plan)
{
    for (uint32_t r = 0; r < plan->ranks_count; r++) {
        KvRankPlan *rank = &plan->ranks[r];

        if (options->state_bytes != NULL) {
            rank->state_bytes = options->state_bytes[r];
            continue;
        }
        if (rank->weight_bytes > options->device_bytes[r]) {
            return kvg_fail(KVG_ENOMEM,
                            "stage %u (rank %u) of %s needs %llu bytes for weights and its device has %llu: use more ranks, larger "
                            "devices, or say the real size with weights_bytes",
                            rank->stage, r, config->name, (unsigned long long)rank->weight_bytes,
                            (unsigned long long)options->device_bytes[r]);
        }
        rank->state_bytes = kvg_monus_u64(options->device_bytes[r] - rank->weight_bytes, options->reserve_bytes);
    }
    plan->memory_known = 1;
    return KVG_OK;
}

/* ---- the plan */

static KvgStatus allocate(KvGridPlan *plan)
{
    size_t layers = (size_t)plan->n_layer + plan->n_mtp;

    KVG_TRY(KVG_NEW(plan->pp + 1, "the fence", &plan->fence));
    KVG_TRY(KVG_NEW(plan->ranks_count, "the ranks' plans", &plan->ranks));
    KVG_TRY(KVG_NEW(layers, "the layers' classes", &plan->class_of_layer));
    KVG_TRY(KVG_NEW(layers, "the layers' K formats", &plan->format_k));
    return KVG_NEW(layers, "the layers' V formats", &plan->format_v);
}

static void begin_plan(const ModelConfig *config, const KvGridPlanOptions *options, KvGridPlan *plan)
{
    memset(plan, 0, sizeof *plan);
    plan->tp = options->tp;
    plan->pp = options->pp;
    plan->ranks_count = options->tp * options->pp;
    plan->n_layer = config->plan.n_layer;
    plan->n_mtp = config->plan.n_mtp;
    plan->ctx = options->ctx != 0 ? options->ctx : config->context != 0 ? config->context : CTX_DEFAULT;
    plan->max_ctx = config->context != 0 ? config->context : plan->ctx;
    plan->prefill_chunk_max = options->prefill_chunk_max != 0 ? options->prefill_chunk_max : KVG_PRIME_CHUNK_MAX_TOKENS;
    plan->slots = options->max_sequences;
    plan->limiting_rank = -1;
}

static KvgStatus fill_plan(const ModelConfig *config, const KvGridPlanOptions *options, uint32_t layer_count, GridShare *shares,
                           GridWeights *weights, KvGridPlan *plan)
{
    KVG_TRY(kvg_grid_classes(config, options, layer_count, plan));
    KVG_TRY(kvg_grid_shares(config, options, layer_count, plan->ctx, plan->max_ctx, shares));
    KVG_TRY(kvg_grid_weights(config, options, layer_count, weights));
    KVG_TRY(kvg_grid_fence(config, options, layer_count, shares, weights, plan));
    for (uint32_t rank = 0; rank < plan->ranks_count; rank++) {
        KVG_TRY(fill_rank(plan, layer_count, shares, weights, rank));
    }
    if (options->state_bytes == NULL && options->device_bytes == NULL) {
        return KVG_OK;
    }
    KVG_TRY(fill_memory(config, options, plan));
    plan->slots = 0;
    return kvg_grid_capacity(options, layer_count, shares, plan);
}

KvgStatus kvg_grid_plan(const ModelConfig *config, const KvGridPlanOptions *given, KvGridPlan *plan)
{
    static const KvGridPlanOptions defaults = KVG_GRID_PLAN_OPTIONS_INIT;
    KvGridPlanOptions              own, *options = &own;

    GridShare  *shares = NULL;
    GridWeights weights = { NULL, 0, 0 };
    KvGridPlan  made;
    uint32_t    layer_count;
    KvgStatus   status;

    if (config == NULL || given == NULL || plan == NULL) {
        return kvg_fail(KVG_EINVAL, "a grid plan needs a config, options and a place for the plan");
    }
    KVG_TRY(KVG_SIZED_IN(KvGridPlanOptions, given, defaults, own));
    KVG_TRY(check_options(config, options));
    layer_count = config->plan.n_layer + (options->with_mtp ? config->plan.n_mtp : 0);
    KVG_TRY(kvg_grid_check_heads(config, layer_count, options->tp));
    begin_plan(config, options, &made);
    KVG_TRY_GOTO(allocate(&made), err_free_plan);
    KVG_TRY_GOTO(KVG_NEW(layer_count, "the layers' shares", &shares), err_free_plan);
    KVG_TRY_GOTO(KVG_NEW(layer_count, "the layers' weights", &weights.layers), err_free_plan);
    KVG_TRY_GOTO(fill_plan(config, options, layer_count, shares, &weights, &made), err_free_plan);
    kvg_free(weights.layers);
    kvg_free(shares);
    *plan = made;
    return KVG_OK;

err_free_plan:
    kvg_free(weights.layers);
    kvg_free(shares);
    kvg_grid_plan_free(&made);
    return status;
}

void kvg_grid_plan_free(KvGridPlan *plan)
{
    if (plan == NULL) {
        return;
    }
    kvg_free(plan->format_v);
    kvg_free(plan->format_k);
    kvg_free(plan->class_of_layer);
    kvg_free(plan->ranks);
    kvg_free(plan->fence);
    memset(plan, 0, sizeof *plan);
}

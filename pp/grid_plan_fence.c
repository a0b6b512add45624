#include "pp/grid_plan_fence.h"

#include <string.h>

#include <kvgrid/partition.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

typedef unsigned __int128 Wide;

/* ---- weights */

static KvgStatus sum_weights(const uint64_t *layers, uint32_t layer_count, uint64_t extras, uint64_t *sum)
{
    uint64_t total = extras;

    for (uint32_t il = 0; il < layer_count; il++) {
        if (!kvg_add_u64(total, layers[il], &total)) {
            return kvg_fail(KVG_EOVERFLOW, "the layers' weight bytes add up past 64 bits");
        }
    }
    *sum = total;
    return KVG_OK;
}

/* Spreads `bytes` as the estimates are spread; evenly over the layers where nothing is estimated. */
static void scale_weights(GridWeights *weights, uint32_t layer_count, uint64_t estimate, uint64_t bytes)
{
    if (estimate == 0) {
        for (uint32_t il = 0; il < layer_count; il++) {
            weights->layers[il] = bytes / layer_count + (il < bytes % layer_count);
        }
        return;
    }
    for (uint32_t il = 0; il < layer_count; il++) {
        weights->layers[il] = (uint64_t)((Wide)weights->layers[il] * bytes / estimate);
    }
    weights->embedding = (uint64_t)((Wide)weights->embedding * bytes / estimate);
    weights->head = (uint64_t)((Wide)weights->head * bytes / estimate);
}

/* The caller knows each layer; what remains of weights_bytes is the two ends'. */
static KvgStatus known_layers(const KvGridPlanOptions *options, uint32_t layer_count, GridWeights *weights)
{
    uint64_t ends = weights->embedding + weights->head;
    uint64_t layers = 0, rest;

    memcpy(weights->layers, options->layer_bytes, layer_count * sizeof *weights->layers);
    KVG_TRY(sum_weights(weights->layers, layer_count, 0, &layers));
    if (options->weights_bytes == 0 || ends == 0) {
        return KVG_OK;
    }
    rest = kvg_monus_u64(options->weights_bytes, layers);
    weights->embedding = (uint64_t)((Wide)weights->embedding * rest / ends);
    weights->head = rest - weights->embedding;
    return KVG_OK;
}

KvgStatus kvg_grid_weights(const ModelConfig *config, const KvGridPlanOptions *options, uint32_t layer_count, GridWeights *weights)
{
    int      tied = config->head_is_tied;
    uint64_t ends, estimate = 0;

    weights->embedding = config->embedding_bytes;
    weights->head = tied ? 0 : config->head_bytes; /* a tied table is counted once in what is scaled */
    if (!kvg_add_u64(weights->embedding, weights->head, &ends)) {
        return kvg_fail(KVG_EOVERFLOW, "the embedding's and the head's bytes add up past 64 bits");
    }
    if (options->layer_bytes != NULL) {
        KVG_TRY(known_layers(options, layer_count, weights));
    } else {
        if (config->weight_bytes != NULL) {
            memcpy(weights->layers, config->weight_bytes, layer_count * sizeof *weights->layers);
        }
        KVG_TRY(sum_weights(weights->layers, layer_count, ends, &estimate));
        if (options->weights_bytes != 0) {
            scale_weights(weights, layer_count, estimate, options->weights_bytes);
        }
    }
    if (tied && options->pp > 1) { /* one table, but both ends need it */
        weights->head = weights->embedding;
    }
    return KVG_OK;
}

uint64_t kvg_grid_stage_weights(const KvGridPlan *plan, const GridWeights *weights, uint32_t layer_count, uint32_t stage)
{
    int      last = stage == plan->pp - 1;
    uint32_t hi = last ? layer_count : plan->fence[stage + 1];
    uint64_t bytes = (stage == 0 ? weights->embedding : 0) + (last ? weights->head : 0);

    for (uint32_t il = plan->fence[stage]; il < hi; il++) {
        bytes += weights->layers[il];
    }
    return kvg_ceil_div_u64(bytes, plan->tp);
}

/* ---- fence */

static KvgStatus layer_cost(const KvGridPlan *plan, const GridShare *share, const GridWeights *weights, uint32_t il, uint64_t *cost)
{
    uint32_t class_index = plan->class_of_layer[il];
    uint32_t units = class_index == UINT32_MAX ? 0 : plan->classes[class_index].units_per_sequence;
    uint64_t rows;

    if (!kvg_mul_u64(share->unit_bytes, units, &rows) || !kvg_add_u64(rows, share->fixed_bytes, &rows) ||
        !kvg_add_u64(rows, kvg_ceil_div_u64(weights->layers[il], plan->tp), cost)) {
        return kvg_fail(KVG_EOVERFLOW, "layer %u costs more than 64 bits of bytes", il);
    }
    return KVG_OK;
}

/* The cuts that would part a sharing layer from its source: every cut above the source up to the layer itself.
 * forbidden [n_layer] flags by cut. */
static void forbid_cuts(const ModelConfig *config, const KvGridPlan *plan, uint8_t *forbidden)
{
    for (uint32_t il = 0; il < plan->n_layer; il++) {
        const StatePlan *layer = &config->plan.layers[il];

        if (layer->kind != KVG_STATE_SHARED) {
            continue;
        }
        for (uint32_t cut = layer->u.shared_source + 1; cut <= il; cut++) {
            forbidden[cut] = 1;
        }
    }
}

static KvgStatus take_fence(const ModelConfig *config, const KvGridPlanOptions *options, const uint8_t *forbidden, KvGridPlan *plan)
{
    KVG_TRY(kvg_fence_check(options->fence, plan->pp, plan->n_layer));
    for (uint32_t stage = 1; stage < plan->pp; stage++) {
        uint32_t cut = options->fence[stage];

        if (forbidden[cut]) {
            return kvg_fail(KVG_EGEOM,
                            "the fence cuts %s at layer %u, between a layer that shares another's rows and its source; move the "
                            "cut, or leave the fence out",
                            config->name, cut);
        }
    }
    memcpy(plan->fence, options->fence, (plan->pp + 1) * sizeof *plan->fence);
    return KVG_OK;
}

/* Budgets weigh the stages against each other. Here they must not refuse: a model whose sequence of T tokens does not fit is a
 * plan with max_sequences 0. So all are raised by one factor until the smallest could hold everything. */
static KvgStatus raise_budgets(uint64_t *budgets, uint32_t stages, uint64_t total)
{
    uint64_t smallest = budgets[0], factor;

    for (uint32_t s = 1; s < stages; s++) {
        smallest = kvg_min_u64(smallest, budgets[s]);
    }
    factor = smallest == 0 ? 1 : kvg_ceil_div_u64(total, smallest);
    for (uint32_t s = 0; s < stages; s++) {
        if (!kvg_mul_u64(budgets[s], kvg_max_u64(factor, 1), &budgets[s])) {
            return kvg_fail(KVG_EOVERFLOW, "the devices' memory differs too much to be weighed in 64 bits; give the fence");
        }
    }
    return KVG_OK;
}

/* The smallest device of each stage less the reserve; *uneven tells whether they differ at all. */
static void stage_budgets(const KvGridPlanOptions *options, const KvGridPlan *plan, uint64_t *budgets, int *uneven)
{
    *uneven = 0;
    for (uint32_t s = 0; s < plan->pp; s++) {
        budgets[s] = UINT64_MAX;
        for (uint32_t t = 0; t < plan->tp; t++) {
            uint64_t bytes = kvg_monus_u64(options->device_bytes[s * plan->tp + t], options->reserve_bytes);
            budgets[s] = kvg_min_u64(budgets[s], bytes);
        }
        *uneven |= budgets[s] != budgets[0];
    }
}

typedef struct FenceWork {
    uint64_t *cost;      /* [n_layer] */
    uint64_t *budgets;   /* [pp] */
    uint8_t  *forbidden; /* [n_layer + 1] by cut */
    uint32_t *cuts;      /* [n_layer] the forbidden ones */
} FenceWork;

static KvgStatus partition_fence(const KvGridPlanOptions *options, uint32_t layer_count, const GridShare *shares,
                                 const GridWeights *weights, FenceWork *work, KvGridPlan *plan)
{
    uint64_t first_extra = kvg_ceil_div_u64(weights->embedding, plan->tp);
    uint64_t last_extra = kvg_ceil_div_u64(weights->head, plan->tp);
    uint64_t total = 0;
    uint32_t cut_count = 0;
    int      uneven = 0;

    for (uint32_t il = 0; il < layer_count; il++) {
        uint64_t cost = 0;

        KVG_TRY(layer_cost(plan, &shares[il], weights, il, &cost));
        if (il < plan->n_layer) {
            work->cost[il] = cost;
        } else if (!kvg_add_u64(last_extra, cost, &last_extra)) { /* MTP blocks ride on the last stage */
            return kvg_fail(KVG_EOVERFLOW, "the MTP blocks cost more than 64 bits of bytes");
        }
    }
    KVG_TRY(sum_weights(work->cost, plan->n_layer, first_extra, &total));
    if (!kvg_add_u64(total, last_extra, &total)) {
        return kvg_fail(KVG_EOVERFLOW, "the layers' costs add up past 64 bits");
    }
    for (uint32_t cut = 1; cut < plan->n_layer; cut++) {
        if (work->forbidden[cut]) {
            work->cuts[cut_count++] = cut;
        }
    }
    if (options->device_bytes != NULL) {
        stage_budgets(options, plan, work->budgets, &uneven);
        for (uint32_t s = 0; s < plan->pp; s++) {
            uneven = uneven && work->budgets[s] != 0; /* nothing fits there: the fence no longer matters */
        }
        if (uneven) {
            KVG_TRY(raise_budgets(work->budgets, plan->pp, total));
        }
    }
    return kvg_partition(work->cost, plan->n_layer, plan->pp, first_extra, last_extra, uneven ? work->budgets : NULL, work->cuts,
                         cut_count, plan->fence, NULL);
}

KvgStatus kvg_grid_fence(const ModelConfig *config, const KvGridPlanOptions *options, uint32_t layer_count,
                         const GridShare *shares, const GridWeights *weights, KvGridPlan *plan)
{
    FenceWork work = { NULL, NULL, NULL, NULL };
    KvgStatus status;

    KVG_TRY_GOTO(KVG_NEW(plan->n_layer, "layer costs", &work.cost), done);
    KVG_TRY_GOTO(KVG_NEW(plan->pp, "stage budgets", &work.budgets), done);
    KVG_TRY_GOTO(KVG_NEW(plan->n_layer + 1, "forbidden cuts", &work.forbidden), done);
    KVG_TRY_GOTO(KVG_NEW(plan->n_layer, "forbidden cuts", &work.cuts), done);
    forbid_cuts(config, plan, work.forbidden);
    status = options->fence != NULL ? take_fence(config, options, work.forbidden, plan)
                                    : partition_fence(options, layer_count, shares, weights, &work, plan);
done:
    kvg_free(work.cuts);
    kvg_free(work.forbidden);
    kvg_free(work.budgets);
    kvg_free(work.cost);
    return status;
}

/* Plan: options of any value for a grid over a model whose numbers are any, then a ledger driven through any calls.
 * What is asked for follows from ranks and layers, which the input names and check_options bounds: 65535 ranks, here at most 80 layers. */
#include <kvgrid/head_shard.h>
#include <kvgrid/kvgrid.h>

#include "launch/command/plan_trace.h"
#include "runtime/base/checked.h"
#include "tests/fuzz/fuzz.h"

#define LAYERS_MAX  80
#define RANKS_GIVEN 64 /* for which bytes are given: a grid of more ranks has none */
#define BYTES_MAX   ((uint64_t)32 << 20)
#define CALLS_MAX   64
#define OPEN_MAX    16

/* ---- a model */

static uint32_t any_width(FuzzInput *input)
{
    static const uint32_t usual[8] = { 1, 8, 16, 32, 64, 96, 128, 256 };
    uint8_t               how = fuzz_u8(input);

    return how < 224 ? usual[how % 8] : (uint32_t)(fuzz_any(input) & UINT32_MAX);
}

static void any_kv(FuzzInput *input, StatePlan *layer)
{
    KvCachePlan *kv = &layer->u.kv;

    kv->kv_heads = any_width(input);
    kv->head_dim_k = any_width(input);
    kv->head_dim_v = any_width(input);
    kv->query_heads = any_width(input);
    kv->window = layer->kind == KVG_STATE_SLIDING_KV ? kvg_max_u64(fuzz_any(input), 1) : 0;
    kv->format_class = (KvFormatClass)(fuzz_u8(input) % 3);
}

static void any_latent(FuzzInput *input, LatentKvPlan *latent)
{
    latent->width = any_width(input);
    latent->kv_rank = latent->width / 2 + 1 < latent->width ? latent->width / 2 + 1 : latent->width;
    latent->index_kind = (KvIndexKind)(fuzz_u8(input) % 3);
    latent->index_width = latent->index_kind != KVG_INDEX_NONE ? any_width(input) : 0;
    latent->index_pool = latent->index_kind == KVG_INDEX_POOLED ? any_width(input) : 0;
}

static void any_recurrent(FuzzInput *input, RecurrentPlan *recurrent)
{
    uint8_t how = fuzz_u8(input);

    recurrent->part_count = 2;
    recurrent->parts[0] = (RecurrentPart){ 1u << how % 16, 1u << (how >> 4), 0 }; /* products are checked where configs are read */
    recurrent->parts[1] = (RecurrentPart){ 1u << how % 16, any_width(input), 1 };
    recurrent->conv_width = recurrent->parts[0].heads * recurrent->parts[0].width;
    recurrent->conv_kernel = 1 + fuzz_u8(input) % 8;
    recurrent->state_width = (uint64_t)recurrent->parts[1].heads * recurrent->parts[1].width;
}

static void any_layer(FuzzInput *input, const ModelConfig *config, uint32_t il, StatePlan *layer)
{
    uint8_t how = fuzz_u8(input);

    memset(layer, 0, sizeof *layer);
    if ((how & 128) != 0 && il > 0) { /* models repeat themselves */
        *layer = config->plan.layers[il - 1];
        return;
    }
    layer->kind = (KvStateKind)(how % KVG_STATE_KIND_COUNT);
    if (layer->kind == KVG_STATE_KV || layer->kind == KVG_STATE_SLIDING_KV) {
        any_kv(input, layer);
    } else if (layer->kind == KVG_STATE_LATENT) {
        any_latent(input, &layer->u.latent);
    } else if (layer->kind == KVG_STATE_RECURRENT) {
        any_recurrent(input, &layer->u.recurrent);
    } else if (layer->kind == KVG_STATE_SHARED) {
        uint32_t source = il > 0 ? fuzz_u8(input) % il : 0;

        layer->kind = il > 0 && config->plan.layers[source].kind <= KVG_STATE_SLIDING_KV && config->plan.layers[source].kind != KVG_STATE_NONE
                          ? KVG_STATE_SHARED : KVG_STATE_NONE;
        layer->u.shared_source = source;
    }
}

static void any_model(FuzzInput *input, ModelConfig *config, StatePlan *layers, uint64_t *weights)
{
    uint8_t how = fuzz_u8(input);

    *config = (ModelConfig){ .name = "fuzz", .weight_bytes = weights, .plan = { .layers = layers } };
    config->plan.n_mtp = how % 4;
    config->plan.n_layer = fuzz_u8(input) % (LAYERS_MAX - 4 + 1);
    config->context = fuzz_any(input);
    config->embedding_bytes = fuzz_any(input);
    config->head_bytes = fuzz_any(input);
    config->head_is_tied = (how & 4) != 0;
    for (uint32_t il = 0; il < config->plan.n_layer + config->plan.n_mtp; il++) {
        any_layer(input, config, il, &layers[il]);
        weights[il] = il > 0 && (how & 8) != 0 ? weights[il - 1] : fuzz_any(input);
    }
}

/* ---- options */

typedef struct Given { /* what options point at */
    uint64_t state[RANKS_GIVEN], layers[LAYERS_MAX];
    uint32_t fence[RANKS_GIVEN + 1];
} Given;

static void any_numbers(FuzzInput *input, uint64_t *numbers, size_t count, int alike)
{
    for (size_t i = 0; i < count; i++) {
        numbers[i] = alike && i > 0 ? numbers[i - 1] : fuzz_any(input);
    }
}

static void any_sizing(FuzzInput *input, KvSizing *sizing)
{
    kvg_policy_default(&sizing->policy);
    uint8_t how = fuzz_u8(input);

    sizing->policy.swa_ring = (int8_t)(how % 3 - 1);
    sizing->policy.kv_fp8 = (int8_t)(how / 3 % 3 - 1);
    sizing->policy.dsa_index_ring = (how & 64) != 0 ? (int64_t)(fuzz_any(input) >> 1) : -1;
    if ((how & 128) != 0) {
        sizing->format_k = (KvFormat)(fuzz_u8(input) % 16 - 2);
        sizing->format_v = (KvFormat)(fuzz_u8(input) % 16 - 2);
        sizing->format_latent = (KvFormat)(fuzz_u8(input) % 16 - 2);
    }
}

static void any_options(FuzzInput *input, const ModelConfig *config, Given *given, KvGridPlanOptions *options)
{
    uint8_t how = fuzz_u8(input), more = fuzz_u8(input);

    *options = (KvGridPlanOptions)KVG_GRID_PLAN_OPTIONS_INIT;
    options->tp = (how & 1) != 0 ? (uint32_t)fuzz_any(input) : 1u << more % 4;
    options->pp = (how & 2) != 0 ? (uint32_t)fuzz_any(input) : 1u + more / 16u % 8u;
    any_sizing(input, &options->sizing);
    options->layout = (KvLayout)((how & 4) != 0 ? fuzz_u8(input) : 0);
    options->ctx = (how & 8) != 0 ? fuzz_any(input) : 0;
    options->prefill_chunk_max = (how & 16) != 0 ? (uint32_t)fuzz_any(input) : 0;
    options->max_sequences = (how & 32) != 0 ? (uint32_t)fuzz_any(input) : 16;
    options->spec_columns = (how & 64) != 0 ? (uint32_t)fuzz_any(input) : 0;
    options->with_mtp = how >> 7;
    options->reserve_bytes = (more & 128) != 0 ? fuzz_any(input) : 0;
    options->weights_bytes = (more & 64) != 0 ? fuzz_any(input) : 0;
    options->granularity = (more & 4) != 0 ? (size_t)fuzz_any(input) : 0;
    uint8_t points = fuzz_u8(input);
    int     few = options->tp <= RANKS_GIVEN && options->pp <= RANKS_GIVEN && options->tp * options->pp <= RANKS_GIVEN;

    if (few && (points & 3) != 0) {
        any_numbers(input, given->state, RANKS_GIVEN, (points & 4) != 0);
        options->state_bytes = (points & 1) != 0 ? given->state : NULL;
        options->device_bytes = (points & 2) != 0 ? given->state : NULL;
    }
    if ((points & 8) != 0) {
        any_numbers(input, given->layers, LAYERS_MAX, (points & 16) != 0);
        options->layer_bytes = given->layers;
    }
    if (few && (points & 32) != 0) {
        for (uint32_t i = 0; i <= options->pp; i++) {
            given->fence[i] = i == 0 ? 0 : i == options->pp ? config->plan.n_layer : fuzz_u8(input);
        }
        given->fence[options->pp] = (points & 64) != 0 ? fuzz_u8(input) : given->fence[options->pp];
        options->fence = given->fence;
    }
}

/* ---- what a plan is good for */

static void check_plan(const KvGridPlan *plan, uint32_t layer_count)
{
    FUZZ_CHECK(plan->fence[0] == 0 && plan->fence[plan->pp] == plan->n_layer && plan->class_count <= KVG_PLAN_CLASSES_MAX);
    for (uint32_t stage = 0; stage < plan->pp; stage++) {
        FUZZ_CHECK(plan->fence[stage] < plan->fence[stage + 1]);
    }
    for (uint32_t il = 0; il < layer_count; il++) {
        FUZZ_CHECK(plan->class_of_layer[il] == UINT32_MAX || plan->class_of_layer[il] < plan->class_count);
    }
    FUZZ_CHECK(plan->limiting_rank < (int32_t)plan->ranks_count && plan->max_context <= plan->max_ctx);
    for (uint32_t r = 0; plan->memory_known && r < plan->ranks_count; r++) { /* booked never exceeds what is there */
        uint64_t pools = 0, units = 0;

        for (uint32_t c = 0; c < plan->class_count; c++) {
            FUZZ_CHECK(kvg_mul_u64(plan->classes[c].units, plan->ranks[r].class_unit_bytes[c], &units) && kvg_add_u64(pools, units, &pools));
        }
        FUZZ_CHECK(pools <= plan->ranks[r].state_bytes);
    }
}

/* Rows that are open, as the ledger's caller remembers them. */
static void drive_ledger(FuzzInput *input, const KvGridPlan *plan)
{
    KvgLedger ledger, empty;
    uint64_t  open[OPEN_MAX], rows;
    int       count = 0;

    if (kvg_ledger_init(plan, &ledger) != KVG_OK) {
        FUZZ_CHECK(!plan->memory_known);
        return;
    }
    empty = ledger;
    for (int call = 0; call < CALLS_MAX && input->left > 0; call++) {
        uint8_t how = fuzz_u8(input);

        rows = fuzz_any(input);
        if (how % 4 < 2 && count < OPEN_MAX && kvg_ledger_admit(&ledger, rows) == KVG_OK) {
            FUZZ_CHECK(rows <= plan->max_ctx);
            open[count++] = rows;
        } else if (how % 4 == 2 && count > 0 && kvg_ledger_grow(&ledger, open[how / 4 % count], rows) == KVG_OK) {
            open[how / 4 % count] = kvg_max_u64(rows, open[how / 4 % count]);
        } else if (how % 4 == 3 && count > 0) {
            kvg_ledger_close(&ledger, open[--count]);
        }
        for (uint32_t c = 0; c < ledger.class_count; c++) {
            FUZZ_CHECK(ledger.units_free[c] <= empty.units_free[c]);
        }
    }
    while (count > 0) {
        kvg_ledger_close(&ledger, open[--count]);
    }
    FUZZ_CHECK(memcmp(&ledger, &empty, sizeof ledger) == 0);
}

static void fit_trace(FuzzInput *input, const KvGridPlan *plan)
{
    TraceRequest requests[4];
    Trace        trace = { requests, 4 };
    TraceFit     fit;

    for (int i = 0; i < 4; i++) {
        requests[i] = (TraceRequest){ (uint32_t)(fuzz_any(input) >> 34), (uint32_t)(fuzz_any(input) >> 34) };
    }
    KvgStatus status = kvg_plan_trace(plan, &trace, &fit);

    if (status != KVG_OK) {
        fuzz_check_failure(status);
        return;
    }
    FUZZ_CHECK(fit.past_context + fit.fit <= 4 && fit.content_bytes <= fit.booked_bytes);
    FUZZ_CHECK(!plan->memory_known || fit.booked_bytes <= plan->ranks[fit.fullest_rank].state_bytes);
}

static void try_shards(FuzzInput *input)
{
    uint32_t  heads = (uint32_t)fuzz_any(input), ranks = (uint32_t)fuzz_any(input), rank = (uint32_t)fuzz_any(input), sizes[8];
    HeadShard shard;

    if (kvg_head_shard(heads, ranks, rank, &shard) == KVG_OK) {
        FUZZ_CHECK(shard.count >= 1 && shard.replicas >= 1 && (uint64_t)shard.first + shard.count <= heads);
    }
    kvg_tp_check_heads(heads, ranks, (uint32_t)fuzz_any(input));
    kvg_tp_sizes_that_work(heads, ranks, fuzz_u16(input), sizes, 8);
    TpKvRankAllocationShape shape;
    uint64_t                weigh = 0;

    if (kvg_tp_kv_rank_allocation_shape(heads, fuzz_any(input), ranks, KVG_Q8_0, (KvFormat)(fuzz_u8(input) % 16 - 2), &shape) == KVG_OK) {
        kvg_tp_kv_shape_allocation_bytes(&shape, fuzz_any(input), &weigh);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzCount         count = fuzz_begin();
    FuzzInput         input = { data, size };
    StatePlan         layers[LAYERS_MAX];
    uint64_t          weights[LAYERS_MAX];
    ModelConfig       config;
    Given             given;
    KvGridPlanOptions options;
    KvGridPlan        plan;

    any_model(&input, &config, layers, weights);
    any_options(&input, &config, &given, &options);
    KvgStatus status = kvg_grid_plan(&config, &options, &plan);

    if (status == KVG_OK) {
        check_plan(&plan, config.plan.n_layer + (options.with_mtp ? config.plan.n_mtp : 0));
        drive_ledger(&input, &plan);
        fit_trace(&input, &plan);
        kvg_grid_plan_free(&plan);
    } else {
        fuzz_check_failure(status);
    }
    try_shards(&input);
    fuzz_end(&count, size, 0, BYTES_MAX);
    return 0;
}

/* Grid plans of models, real ones by name and made ones by layer: what the suites of grid_plan share. */
#ifndef KVG_TEST_PLAN_SCENE_H
#define KVG_TEST_PLAN_SCENE_H

#include <check.h>
#include <stdio.h>
#include <string.h>

#include <kvgrid/grid_plan.h>

#include "runtime/base/memory.h"

static ModelConfig       config;
static KvGridPlanOptions options;
static KvGridPlan        plan;
static uint64_t          live_before;

static StatePlan made_layers[256];
static uint64_t  made_weights[256];

static inline void setup(void)
{
    live_before = kvg_live_allocations();
    memset(&config, 0, sizeof config);
    memset(&plan, 0, sizeof plan);
    memset(made_layers, 0, sizeof made_layers);
    memset(made_weights, 0, sizeof made_weights);
    options = (KvGridPlanOptions)KVG_GRID_PLAN_OPTIONS_INIT;
    kvg_policy_default(&options.sizing.policy);
}

static inline void unload(void)
{
    kvg_grid_plan_free(&plan);
    if (config.plan.layers != made_layers) {
        kvg_model_config_free(&config);
    }
    memset(&config, 0, sizeof config);
}

static inline void teardown(void)
{
    unload();
    ck_assert_uint_eq(kvg_live_allocations(), live_before);
}

static inline void load(const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s/models/%s.json", KVG_TEST_DATA, name);
    ck_assert_msg(kvg_model_config_load(path, &config) == KVG_OK, "%s", kvg_last_error());
}

static inline void make_model(uint32_t layers, uint32_t mtp, uint64_t context)
{
    memset(&config, 0, sizeof config);
    snprintf(config.name, sizeof config.name, "made");
    config.context = context;
    config.plan = (ModelPlan){ layers, mtp, made_layers };
    config.weight_bytes = made_weights;
}

static inline StatePlan kv_layer(uint32_t query_heads, uint32_t heads, uint32_t dim_k, uint32_t dim_v)
{
    return (StatePlan){ .kind = KVG_STATE_KV, .u.kv = { .kv_heads = heads, .head_dim_k = dim_k, .head_dim_v = dim_v, .query_heads = query_heads } };
}

static inline StatePlan window_layer(uint32_t heads, uint32_t dim, uint64_t window)
{
    StatePlan layer = kv_layer(heads, heads, dim, dim);

    layer.kind = KVG_STATE_SLIDING_KV;
    layer.u.kv.window = window;
    return layer;
}

static inline StatePlan recurrent_layer(uint32_t heads)
{
    return (StatePlan){ .kind = KVG_STATE_RECURRENT,
                        .u.recurrent = { .parts = { { heads, 64, 0 }, { heads, 1024, 1 } }, .part_count = 2, .conv_width = heads * 64,
                                         .conv_kernel = 4, .state_width = (uint64_t)heads * 1024 } };
}

static inline StatePlan latent_layer(uint32_t width)
{
    return (StatePlan){ .kind = KVG_STATE_LATENT, .u.latent = { .width = width, .kv_rank = 512 } };
}

static inline void fill_layers(uint32_t count, StatePlan layer)
{
    for (uint32_t il = 0; il < count; il++) {
        made_layers[il] = layer;
    }
}

static inline void make_plan(uint32_t tp, uint32_t pp)
{
    kvg_grid_plan_free(&plan);
    options.tp = tp;
    options.pp = pp;
    ck_assert_msg(kvg_grid_plan(&config, &options, &plan) == KVG_OK, "tp %u pp %u: %s", tp, pp, kvg_last_error());
}

static inline KvgStatus try_plan(uint32_t tp, uint32_t pp)
{
    KvGridPlan untouched, tried;

    memset(&tried, 0x5a, sizeof tried);
    untouched = tried;
    options.tp = tp;
    options.pp = pp;
    KvgStatus status = kvg_grid_plan(&config, &options, &tried);
    if (status == KVG_OK) {
        kvg_grid_plan_free(&tried);
    } else {
        ck_assert_mem_eq(&tried, &untouched, sizeof tried); /* outputs change only on success */
    }
    return status;
}

static inline void ask_bf16(void)
{
    options.sizing.format_k = options.sizing.format_v = KVG_BF16;
    options.sizing.format_latent = KVG_BF16;
}

static inline uint64_t duplicates_over_ranks(void)
{
    uint64_t sum = 0;

    for (uint32_t r = 0; r < plan.ranks_count; r++) {
        sum += plan.ranks[r].duplicate_bytes_per_token;
    }
    return sum;
}

/* ---- every model on many grids */

/* The fence covers every layer once, and world ranks follow stage * tp + tp_rank. */
static inline void check_ranks_cover_the_model(const char *name)
{
    uint32_t next = 0;

    for (uint32_t r = 0; r < plan.ranks_count; r++) {
        const KvRankPlan *rank = &plan.ranks[r];

        ck_assert_uint_eq(rank->rank, r);
        ck_assert_uint_eq(rank->stage, r / plan.tp);
        ck_assert_uint_eq(rank->tp_rank, r % plan.tp);
        if (rank->tp_rank == 0) {
            ck_assert_msg(rank->lo == next && rank->hi > rank->lo, "%s: stage %u is [%u, %u)", name, rank->stage, rank->lo, rank->hi);
            next = rank->hi;
        }
        ck_assert_uint_eq(rank->hi, next);
    }
    ck_assert_uint_eq(next, plan.n_layer);
}

/* ---- capacity */

static uint64_t given_memory[64];

static inline void give_memory(uint32_t ranks, uint64_t bytes)
{
    for (uint32_t r = 0; r < ranks; r++) {
        given_memory[r] = bytes;
    }
    options.state_bytes = given_memory;
}

/* One class of `layers` equal layers; 2 heads of 64 in bf16: a unit takes 32768 bytes a layer. */
static inline void make_plain(uint32_t layers, uint64_t context)
{
    make_model(layers, 0, context);
    fill_layers(layers, kv_layer(2, 2, 64, 64));
    ask_bf16();
}

#endif

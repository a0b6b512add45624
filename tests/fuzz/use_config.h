/* What a config that was read must be good for: every layer's plan makes sense, and planning on grids plans or refuses. */
#ifndef FUZZ_USE_CONFIG_H
#define FUZZ_USE_CONFIG_H

#include <kvgrid/grid_plan.h>
#include <kvgrid/ledger.h>

#include "tests/fuzz/fuzz.h"

/* The largest model that is read has 1024 layers: what it asks for in plans, here on two grids. */
#define FUZZ_CONFIG_BYTES ((uint64_t)2 << 20)

static inline void fuzz_check_layer(const ModelConfig *config, uint32_t il)
{
    const StatePlan *layers = config->plan.layers, *layer = &layers[il];

    switch (layer->kind) {
    case KVG_STATE_KV:
    case KVG_STATE_SLIDING_KV:
        FUZZ_CHECK(layer->u.kv.kv_heads > 0 && layer->u.kv.head_dim_k > 0 && layer->u.kv.head_dim_v > 0);
        FUZZ_CHECK((layer->u.kv.window > 0) == (layer->kind == KVG_STATE_SLIDING_KV));
        break;
    case KVG_STATE_LATENT: FUZZ_CHECK(layer->u.latent.kv_rank > 0 && layer->u.latent.kv_rank <= layer->u.latent.width); break;
    case KVG_STATE_RECURRENT: FUZZ_CHECK(layer->u.recurrent.part_count <= KVG_RECURRENT_PARTS_MAX); break;
    case KVG_STATE_SHARED:
        FUZZ_CHECK(layer->u.shared_source < il);
        FUZZ_CHECK(layers[layer->u.shared_source].kind == KVG_STATE_KV || layers[layer->u.shared_source].kind == KVG_STATE_SLIDING_KV);
        break;
    default: FUZZ_CHECK(layer->kind == KVG_STATE_NONE);
    }
}

static inline void fuzz_plan_config(const ModelConfig *config, uint32_t tp, uint32_t pp)
{
    const uint64_t    bytes[4] = { 1ull << 34, 1ull << 34, 1ull << 33, 1ull << 34 };
    KvGridPlanOptions options = KVG_GRID_PLAN_OPTIONS_INIT;
    KvGridPlan        plan;
    KvgLedger         ledger;

    options.tp = tp;
    options.pp = pp;
    options.with_mtp = (int)(tp - 1);
    options.state_bytes = bytes;
    kvg_policy_default(&options.sizing.policy);
    options.sizing.policy.swa_ring_default = (int8_t)(tp - 1);
    KvgStatus status = kvg_grid_plan(config, &options, &plan);

    if (status != KVG_OK) {
        fuzz_check_failure(status);
        return;
    }
    FUZZ_CHECK(plan.fence[0] == 0 && plan.fence[pp] == config->plan.n_layer);
    FUZZ_CHECK(kvg_ledger_init(&plan, &ledger) == KVG_OK);
    if (kvg_ledger_admit(&ledger, plan.max_context) == KVG_OK) {
        kvg_ledger_close(&ledger, plan.max_context);
    }
    kvg_grid_plan_free(&plan);
}

static inline void fuzz_use_config(KvgStatus status, ModelConfig *config)
{
    if (status != KVG_OK) {
        fuzz_check_failure(status);
        FUZZ_CHECK(config->plan.layers == NULL && config->weight_bytes == NULL); /* outputs change only on success */
        return;
    }
    FUZZ_CHECK(config->plan.n_layer > 0);
    FUZZ_CHECK(memchr(config->name, '\0', sizeof config->name) != NULL && memchr(config->model_type, '\0', sizeof config->model_type) != NULL);
    for (uint32_t il = 0; il < config->plan.n_layer + config->plan.n_mtp; il++) {
        fuzz_check_layer(config, il);
    }
    fuzz_plan_config(config, 1, 1);
    fuzz_plan_config(config, 2, 2);
    kvg_model_config_free(config);
}

#endif

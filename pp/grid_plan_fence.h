/* Grid plan, fence: what each layer weighs, and which stage owns it (S9). Private. */
#ifndef KVG_GRID_PLAN_FENCE_H
#define KVG_GRID_PLAN_FENCE_H

#include <kvgrid/grid_plan.h>

#include "pp/grid_plan_shard.h"

typedef struct GridWeights { /* bytes of all ranks of a stage together */
    uint64_t *layers; /* [n_layer + n_mtp]; the MTP blocks' count only when they are placed */
    uint64_t  embedding; /* on the first stage */
    uint64_t  head;      /* on the last stage; a tied table is the embedding's copy, and none where one stage has both */
} GridWeights;

/* Fills `weights` (its layers are the caller's array): the config's estimates, scaled to options' weights_bytes, or its
 * layer_bytes as they are. EOVERFLOW. */
KvgStatus kvg_grid_weights(const ModelConfig *config, const KvGridPlanOptions *options, uint32_t layer_count, GridWeights *weights);

/* Writes plan->fence: the caller's if it is legal, else the partition of S9. EINVAL, EGEOM, ENOMEM. */
KvgStatus kvg_grid_fence(const ModelConfig *config, const KvGridPlanOptions *options, uint32_t layer_count,
                         const GridShare *shares, const GridWeights *weights, KvGridPlan *plan);

/* Weight bytes of one rank of a stage: its layers and what its ends carry, divided by tp, rounded up. */
uint64_t kvg_grid_stage_weights(const KvGridPlan *plan, const GridWeights *weights, uint32_t layer_count, uint32_t stage);

#endif

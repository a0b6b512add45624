/* Grid plan, capacity: how many units, slots and tokens the ranks' memory holds; the smallest rank decides (S9). Private. */
#ifndef KVG_GRID_PLAN_CAPACITY_H
#define KVG_GRID_PLAN_CAPACITY_H

#include <kvgrid/grid_plan.h>

#include "pp/grid_plan_shard.h"

/* Fills the classes' units, slots, cache_tokens, max_context, max_sequences and limiting_rank from the ranks' state_bytes,
 * class_unit_bytes and slot_bytes. */
KvgStatus kvg_grid_capacity(const KvGridPlanOptions *options, uint32_t layer_count, const GridShare *shares, KvGridPlan *plan);

#endif

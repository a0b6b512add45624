/* Grid plan, classes: the layers whose rows live and die together, the same on every rank (S3, S8). Private. */
#ifndef KVG_GRID_PLAN_CLASSES_H
#define KVG_GRID_PLAN_CLASSES_H

#include <kvgrid/grid_plan.h>

#include "runtime/base/error.h"

/* Fills class_count, classes, class_of_layer and the formats of layers [0, layer_count). Class 0 holds the rows that are all
 * kept, if there are any; then one class a window, in the order of first appearance.
 * plan->ctx, max_ctx and prefill_chunk_max are set. ENOTSUP: more windows than classes. */
KvgStatus kvg_grid_classes(const ModelConfig *config, const KvGridPlanOptions *options, uint32_t layer_count, KvGridPlan *plan);

/* How much of a class one sequence can hold at most, by its window and ring (set) and the layout: row_cap, unit_cap, units_per_sequence. EOVERFLOW; EINVAL a
 * prefill_chunk_max above 4096 with a ring. */
KvgStatus kvg_class_plan_caps(KvLayout layout, uint64_t max_ctx, uint64_t ctx, uint32_t prefill_chunk_max, KvClassPlan *class_plan);

#endif

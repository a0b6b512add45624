/* Grid plan, classes: the layers whose rows live and die together, the same on every rank (S3, S8). Private. */
#ifndef KVG_GRID_PLAN_CLASSES_H
#define KVG_GRID_PLAN_CLASSES_H

#include <kvgrid/grid_plan.h>

#include "runtime/base/error.h"

/* Fills class_count, classes, class_of_layer and the formats of layers [0, layer_count). Class 0 holds the rows that are all
 * kept, if there are any; then one class a window, in the order of first appearance.
 * plan->ctx, max_ctx and prefill_chunk_max are set. ENOTSUP: more windows than classes. */
KvgStatus kvg_grid_classes(const ModelConfig *config, const KvGridPlanOptions *options, uint32_t layer_count, KvGridPlan *plan);

#endif

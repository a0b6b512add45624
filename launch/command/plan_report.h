/* Plan report: what `kvgrid plan` was asked and what it found; the table, the JSON and the picture print it. Private. */
#ifndef KVG_COMMAND_PLAN_REPORT_H
#define KVG_COMMAND_PLAN_REPORT_H

#include <stdint.h>
#include <stdio.h>

#include <kvgrid/grid_plan.h>
#include <kvgrid/model.h>

#include "launch/command/plan_arguments.h"
#include "launch/command/plan_trace.h"

#define PLAN_WHY_MOST 512

/* One grid that was tried: a plan, or why there is none. */
typedef struct PlanGrid {
    uint32_t   tp, pp;
    int        planned;
    int        overweight; /* weights alone are over the device: nothing fits, `why` names stage and bytes */
    KvGridPlan plan;       /* while planned */
    uint64_t   rank_bytes; /* of the fullest rank: weights and one sequence of T tokens */
    char       why[PLAN_WHY_MOST];
} PlanGrid;

typedef struct PlanReport {
    const PlanArguments *arguments;
    ModelConfig          config;
    KvSizing             sizing;
    uint64_t             bytes_per_token, ring_bytes_per_token, ring_row_cap, fixed_bytes, mtp_bytes_per_token; /* trunk, one copy */
    uint64_t             column_bytes; /* one column of all recurrent state; 0: the model has none */
    PlanGrid             grid;  /* the one asked for, or the best of --gpus */
    PlanGrid            *grids; /* [grid_count] of --gpus, those that fit first, best first; NULL without */
    uint32_t             grid_count, grids_fit;
    int                  has_trace;
    TraceFit             trace;
} PlanReport;

/* Plans the model on tp x pp ranks. Fails only where no grid could be planned for that reason (host memory); else the grid says
 * why not, and *refusal is its code. */
KvgStatus kvg_plan_grid(const PlanReport *report, uint32_t tp, uint32_t pp, PlanGrid *grid, KvgStatus *refusal);
/* Planned, and the ranks' memory is known to hold not one unit of rows; `why` says why. */
int kvg_plan_holds_nothing(const PlanGrid *grid);
/* Every tp x pp = gpus; fills grids, grid_count and grids_fit. */
KvgStatus kvg_plan_gpus(PlanReport *report, uint32_t gpus);

void      kvg_plan_print_table(FILE *stream, const PlanReport *report);
KvgStatus kvg_plan_print_json(FILE *stream, const PlanReport *report);
/* Writes the picture to `path`, whole or not at all. EIO. */
KvgStatus kvg_plan_write_svg(const char *path, const PlanReport *report);

/* ---- words that table, JSON and picture share */

/* "full", "window 1024", "latent" */
const char *kvg_plan_class_name(const KvClassPlan *class_plan, char text[40]);
/* The K and V formats of the layers that the plan covers: 1 where all K/V layers have one pair, 0 where they differ,
 * -1 where there are no K/V layers. */
int kvg_plan_common_formats(const KvGridPlan *plan, KvFormat *format_k, KvFormat *format_v);
/* "KV cache: N tokens; 5.07x concurrency at 131,072 tokens; limited by rank 3 (stage 1)" */
void kvg_plan_capacity_text(const KvGridPlan *plan, char *text, size_t text_bytes);
/* Cached sequences of T tokens, a fraction included. */
double kvg_plan_concurrency(const KvGridPlan *plan);
/* Bytes of the pools of class `c` on a rank, and of its slots. */
uint64_t kvg_plan_class_bytes(const KvGridPlan *plan, const KvRankPlan *rank, uint32_t c);
uint64_t kvg_plan_slots_bytes(const KvGridPlan *plan, const KvRankPlan *rank);
/* "131,072" */
const char *kvg_plan_digits(uint64_t number, char text[32]);
/* "141.00 GB", powers of 1000, three or more digits. */
const char *kvg_plan_size(uint64_t bytes, char text[32]);

#endif

#include <stdlib.h>
#include <string.h>

#include "launch/command/command.h"
#include "launch/command/options.h"
#include "launch/command/plan_report.h"
#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

#define STAGES_MOST 4096

static void make_options(const PlanReport *report, uint32_t tp, uint32_t pp, KvGridPlanOptions *options)
{
    *options = (KvGridPlanOptions)KVG_GRID_PLAN_OPTIONS_INIT;
    options->tp = tp;
    options->pp = pp;
    options->sizing = report->sizing;
    options->ctx = report->arguments->ctx;
    options->with_mtp = report->arguments->mtp;
    options->spec_columns = (uint32_t)report->arguments->columns;
    options->reserve_bytes = report->arguments->reserve_bytes;
    options->weights_bytes = report->arguments->weights_bytes;
}

/* Names the first rank whose weights are over the device; 0 if there is none. */
static int say_overweight(const PlanReport *report, PlanGrid *grid)
{
    const uint64_t device_bytes = report->arguments->device_memory;

    for (uint32_t r = 0; r < grid->plan.ranks_count; r++) {
        const KvRankPlan *rank = &grid->plan.ranks[r];
        char              weights[32], device[32];

        if (rank->weight_bytes > device_bytes) {
            snprintf(grid->why, sizeof grid->why,
                     "stage %u (rank %u) of %s needs %s (%llu bytes) for weights and its device has %s (%llu): use more ranks, larger devices, "
                     "or say the real size with --weights-bytes",
                     rank->stage, r, report->config.name, kvg_plan_size(rank->weight_bytes, weights), (unsigned long long)rank->weight_bytes,
                     kvg_plan_size(device_bytes, device), (unsigned long long)device_bytes);
            return 1;
        }
    }
    return 0;
}

/* Weights over the device are no mistake of the question: the answer is that nothing fits, and where. */
static KvgStatus plan_overweight(const PlanReport *report, const ModelConfig *config, KvGridPlanOptions *options, PlanGrid *grid)
{
    uint64_t *state = NULL;
    KvgStatus status;
    int       overweight;

    options->device_bytes = NULL;
    KVG_TRY(kvg_grid_plan(config, options, &grid->plan)); /* for the weights of each rank */
    overweight = say_overweight(report, grid);
    status = KVG_NEW(grid->plan.ranks_count, "the ranks' memory", &state);
    for (uint32_t r = 0; status == KVG_OK && r < grid->plan.ranks_count; r++) {
        state[r] = kvg_monus_u64(kvg_monus_u64(report->arguments->device_memory, grid->plan.ranks[r].weight_bytes),
                                 report->arguments->reserve_bytes);
    }
    kvg_grid_plan_free(&grid->plan);
    KVG_TRY(status);
    options->state_bytes = state;
    status = kvg_grid_plan(config, options, &grid->plan);
    kvg_free(state);
    grid->overweight = status == KVG_OK && overweight;
    return status;
}

static KvgStatus fill_device(const PlanReport *report, uint64_t ranks, uint64_t **device)
{
    KVG_TRY(KVG_NEW(ranks, "the ranks' memory", device));
    for (uint64_t r = 0; r < ranks; r++) {
        (*device)[r] = report->arguments->device_memory;
    }
    return KVG_OK;
}

/* "20,41" names the inner cuts, "0,20,41,62" the whole fence. */
static KvgStatus read_fence(const PlanReport *report, uint32_t pp, uint32_t *fence)
{
    size_t   count = 0;
    uint32_t list[STAGES_MOST + 1];

    KVG_TRY(kvg_parse_list("--fence", report->arguments->fence, list, STAGES_MOST + 1, &count));
    fence[0] = 0;
    fence[pp] = report->config.plan.n_layer;
    if (count == pp + 1) {
        memcpy(fence, list, count * sizeof *fence);
    } else if (count == pp - 1) {
        memcpy(fence + 1, list, count * sizeof *fence);
    } else {
        return kvg_fail(KVG_EINVAL, "--fence %s has %zu numbers: %u stages have %u cuts between them", report->arguments->fence, count, pp,
                        pp - 1);
    }
    return KVG_OK;
}

/* What the fullest rank holds for the model and one sequence of T tokens. */
static uint64_t fullest_rank_bytes(const KvGridPlan *plan)
{
    uint64_t most = 0;

    for (uint32_t r = 0; r < plan->ranks_count; r += plan->tp) {
        uint64_t bytes = plan->ranks[r].weight_bytes + plan->ranks[r].slot_bytes;

        for (uint32_t c = 0; c < plan->class_count; c++) {
            bytes += plan->ranks[r].class_unit_bytes[c] * plan->classes[c].units_per_sequence;
        }
        most = kvg_max_u64(most, bytes);
    }
    return most;
}

static void say_no_room(const PlanArguments *arguments, PlanGrid *grid)
{
    const uint32_t limiting = grid->plan.limiting_rank >= 0 ? (uint32_t)grid->plan.limiting_rank : 0;
    const uint64_t weight_bytes = grid->plan.ranks[limiting].weight_bytes;
    char           weights[32], reserve[32], device[32];

    snprintf(grid->why, sizeof grid->why,
             "not one unit of %d rows is left on rank %u, where weights take %s (%llu bytes) and the reserve %s (%llu) of the device's %s (%llu): "
             "lower --reserve, use more ranks or larger devices, or say the real size with --weights-bytes",
             KVG_CHUNK_ROWS, limiting, kvg_plan_size(weight_bytes, weights), (unsigned long long)weight_bytes,
             kvg_plan_size(arguments->reserve_bytes, reserve), (unsigned long long)arguments->reserve_bytes,
             kvg_plan_size(arguments->device_memory, device), (unsigned long long)arguments->device_memory);
}

int kvg_plan_holds_nothing(const PlanGrid *grid)
{
    return grid->overweight || (grid->planned && grid->plan.memory_known && grid->plan.max_context == 0);
}

KvgStatus kvg_plan_grid(const PlanReport *report, uint32_t tp, uint32_t pp, PlanGrid *grid, KvgStatus *refusal)
{
    KvGridPlanOptions options;
    uint64_t         *device = NULL;
    uint32_t         *fence = NULL;
    KvgStatus         status;

    *grid = (PlanGrid){ .tp = tp, .pp = pp };
    make_options(report, tp, pp, &options);
    if (report->arguments->device_memory != 0) {
        KVG_TRY_GOTO(fill_device(report, (uint64_t)tp * pp, &device), done);
        options.device_bytes = device;
    }
    if (report->arguments->fence != NULL) {
        KVG_TRY_GOTO(KVG_NEW((size_t)pp + 2, "the fence", &fence), done);
        KVG_TRY_GOTO(read_fence(report, pp, fence), done);
        options.fence = fence;
    }
    status = kvg_grid_plan(&report->config, &options, &grid->plan);
    if (status == KVG_ENOMEM && device != NULL) {
        status = plan_overweight(report, &report->config, &options, grid);
    }
    status = kvg_command_name_model(status, report->arguments->model);
    if (status == KVG_OK) {
        grid->planned = 1;
        grid->rank_bytes = fullest_rank_bytes(&grid->plan);
        if (kvg_plan_holds_nothing(grid) && grid->why[0] == '\0') {
            say_no_room(report->arguments, grid);
        }
    }
done:
    kvg_free(fence);
    kvg_free(device);
    *refusal = status;
    if (status != KVG_OK) {
        snprintf(grid->why, sizeof grid->why, "%s", kvg_last_error());
    }
    return status == KVG_ENOMEM ? status : KVG_OK;
}

/* ---- every grid of N devices */

static int grid_fits(const PlanGrid *grid)
{
    return grid->planned && !kvg_plan_holds_nothing(grid);
}

/* Those that fit come first, those that fall on the ranks and hold nothing next; of them the one that holds most sequences of T tokens, then most tokens; while memory is unknown
 * the one whose fullest rank needs least; then the one with the smaller TP group. */
static int compare_grids(const void *left, const void *right)
{
    const PlanGrid *a = left, *b = right;

    if (grid_fits(a) != grid_fits(b)) {
        return grid_fits(b) - grid_fits(a);
    }
    if (a->planned != b->planned) {
        return b->planned - a->planned;
    }
    if (a->plan.max_sequences != b->plan.max_sequences) {
        return a->plan.max_sequences > b->plan.max_sequences ? -1 : 1;
    }
    if (a->plan.cache_tokens != b->plan.cache_tokens) {
        return a->plan.cache_tokens > b->plan.cache_tokens ? -1 : 1;
    }
    if (a->rank_bytes != b->rank_bytes) {
        return a->rank_bytes < b->rank_bytes ? -1 : 1;
    }
    return a->tp < b->tp ? -1 : a->tp > b->tp;
}

KvgStatus kvg_plan_gpus(PlanReport *report, uint32_t gpus)
{
    uint32_t divisors = 0;

    for (uint32_t tp = 1; tp <= gpus; tp++) {
        divisors += gpus % tp == 0;
    }
    KVG_TRY(KVG_NEW(divisors, "the grids", &report->grids));
    for (uint32_t tp = 1; tp <= gpus; tp++) {
        PlanGrid *grid = &report->grids[report->grid_count];
        KvgStatus refusal;

        if (gpus % tp != 0) {
            continue;
        }
        KVG_TRY(kvg_plan_grid(report, tp, gpus / tp, grid, &refusal));
        report->grid_count++;
        report->grids_fit += (uint32_t)grid_fits(grid);
    }
    qsort(report->grids, report->grid_count, sizeof *report->grids, compare_grids);
    return KVG_OK;
}

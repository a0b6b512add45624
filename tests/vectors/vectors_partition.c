/* Vectors of the partition (S9). */
#include "vectors.h"

#include <stdlib.h>

#include <kvgrid/partition.h>

static json_t *result_json(const uint32_t fence[], const uint64_t loads[], uint32_t stages)
{
    json_t *cuts = json_array(), *sums = json_array();
    for (uint32_t s = 0; s <= stages; s++) json_array_append_new(cuts, json_integer(fence[s]));
    for (uint32_t s = 0; s < stages; s++) json_array_append_new(sums, json_integer((json_int_t)loads[s]));
    return json_pack("{s:o, s:o}", "fence", cuts, "loads", sums);
}

typedef struct Arguments {
    uint64_t *cost, *budgets, *cuts;
    size_t    n, budget_count, cut_count;
    uint32_t *forbidden;
    uint64_t  stages, first_extra, last_extra;
} Arguments;

static void read_arguments(VectorLine *line, Arguments *arguments)
{
    arguments->cost = vector_u64_array(line, line->json, "cost", &arguments->n);
    arguments->budgets = vector_u64_array(line, line->json, "budgets", &arguments->budget_count);
    arguments->cuts = vector_u64_array(line, line->json, "forbidden", &arguments->cut_count);
    arguments->stages = vector_u64(line, line->json, "stages");
    arguments->first_extra = vector_u64(line, line->json, "first_extra");
    arguments->last_extra = vector_u64(line, line->json, "last_extra");
    arguments->forbidden = calloc(arguments->cut_count + 1, sizeof *arguments->forbidden);
    if (arguments->forbidden == NULL) abort();
    for (size_t i = 0; i < arguments->cut_count; i++) arguments->forbidden[i] = (uint32_t)arguments->cuts[i];
    if (arguments->budgets != NULL && arguments->budget_count != arguments->stages) {
        vector_malformed(line, "%zu budgets for %llu stages", arguments->budget_count, (unsigned long long)arguments->stages);
    }
    if (arguments->n > 1u << 16 || arguments->stages > 1u << 16) vector_malformed(line, "more than 65536 layers or stages");
}

static VectorResult run(VectorLine *line, const Arguments *arguments)
{
    uint32_t stages = (uint32_t)arguments->stages;
    uint32_t *fence = calloc(stages + 1, sizeof *fence);
    uint64_t *loads = calloc(stages + 1, sizeof *loads);
    if (fence == NULL || loads == NULL) abort();
    KvgStatus status = kvg_partition(arguments->cost, (uint32_t)arguments->n, stages, arguments->first_extra,
                                     arguments->last_extra, arguments->budgets, arguments->forbidden,
                                     (uint32_t)arguments->cut_count, fence, loads);
    VectorResult result = vector_compare(line, line->json, status, result_json(fence, loads, stages));
    free(loads);
    free(fence);
    return result;
}

VectorResult vector_run_partition(VectorLine *line)
{
    Arguments arguments = {0};
    read_arguments(line, &arguments);
    VectorResult result = line->malformed ? VECTOR_MALFORMED : run(line, &arguments);
    free(arguments.forbidden);
    free(arguments.cuts);
    free(arguments.budgets);
    free(arguments.cost);
    return result;
}

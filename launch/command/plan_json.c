#include <jansson.h>

#include "launch/command/plan_report.h"
#include "runtime/base/error.h"

/* Jansson's setters take the value over, also when they fail; an object that could not be built shows when it is dumped. */
static void put_bytes(json_t *object, const char *key, uint64_t bytes)
{
    json_object_set_new(object, key, json_integer((json_int_t)bytes));
}

static void put_known(json_t *object, const char *key, int known, uint64_t number)
{
    json_object_set_new(object, key, known ? json_integer((json_int_t)number) : json_null());
}

static json_t *format_pair(KvFormat format_k, KvFormat format_v)
{
    return json_pack("{s:s, s:s}", "k", kvg_format_name(format_k), "v", kvg_format_name(format_v));
}

/* One pair for the whole model; null beside one a class where they differ. */
static void put_formats(json_t *object, const PlanReport *report)
{
    const KvGridPlan *plan = &report->grid.plan;
    KvFormat          format_k = KVG_POLICY, format_v = KVG_POLICY;
    int               common = kvg_plan_common_formats(plan, &format_k, &format_v);
    json_t           *by_class;

    if (common != 0) {
        json_object_set_new(object, "formats",
                            common == 1 ? format_pair(format_k, format_v) : json_pack("{s:n, s:n}", "k", "v"));
        return;
    }
    by_class = json_object();
    for (uint32_t il = 0; il < plan->n_layer + plan->n_mtp; il++) {
        char name[40];

        if (plan->format_k[il] != KVG_POLICY) {
            json_object_set_new(by_class, kvg_plan_class_name(&plan->classes[plan->class_of_layer[il]], name),
                                format_pair(plan->format_k[il], plan->format_v[il]));
        }
    }
    json_object_set_new(object, "formats", json_null());
    json_object_set_new(object, "formats_by_class", by_class);
}

static int has_latents(const PlanReport *report)
{
    for (uint32_t il = 0; il < report->config.plan.n_layer; il++) {
        if (report->config.plan.layers[il].kind == KVG_STATE_LATENT) {
            return 1;
        }
    }
    return 0;
}

static json_t *fence_json(const KvGridPlan *plan)
{
    json_t *fence = json_array();

    for (uint32_t s = 0; s <= plan->pp; s++) {
        json_array_append_new(fence, json_integer(plan->fence[s]));
    }
    return fence;
}

static json_t *rank_json(const KvGridPlan *plan, const KvRankPlan *rank)
{
    json_t *object = json_pack("{s:i, s:i, s:i, s:[i, i]}", "rank", (int)rank->rank, "stage", (int)rank->stage, "tp_rank",
                               (int)rank->tp_rank, "layers", (int)rank->lo, (int)rank->hi);

    put_bytes(object, "bytes_per_token", rank->bytes_per_token);
    put_bytes(object, "ring_bytes_per_token", rank->ring_bytes_per_token);
    put_bytes(object, "fixed_bytes", rank->fixed_bytes);
    put_bytes(object, "duplicate_bytes_per_token", rank->duplicate_bytes_per_token);
    put_bytes(object, "duplicate_fixed_bytes", rank->duplicate_fixed_bytes);
    put_bytes(object, "weights_bytes", rank->weight_bytes);
    put_known(object, "state_bytes", plan->memory_known, rank->state_bytes);
    return object;
}

static json_t *ranks_json(const KvGridPlan *plan)
{
    json_t *ranks = json_array();

    for (uint32_t r = 0; r < plan->ranks_count; r++) {
        json_array_append_new(ranks, rank_json(plan, &plan->ranks[r]));
    }
    return ranks;
}

static json_t *classes_json(const KvGridPlan *plan)
{
    json_t *classes = json_array();

    for (uint32_t c = 0; c < plan->class_count; c++) {
        const KvClassPlan *class_plan = &plan->classes[c];
        char               name[40];
        json_t            *object = json_pack("{s:s, s:i, s:b}", "name", kvg_plan_class_name(class_plan, name), "layers",
                                              (int)class_plan->layers, "ring", class_plan->ring);

        put_bytes(object, "row_cap", class_plan->row_cap);
        put_bytes(object, "units_per_sequence", class_plan->units_per_sequence);
        put_known(object, "units", plan->memory_known, class_plan->units);
        json_array_append_new(classes, object);
    }
    return classes;
}

static void put_capacity(json_t *object, const KvGridPlan *plan)
{
    put_known(object, "max_context", plan->memory_known, plan->max_context);
    put_known(object, "max_sequences", plan->memory_known, plan->max_sequences);
    put_known(object, "cache_tokens", plan->memory_known, plan->cache_tokens);
    put_known(object, "limiting_rank", plan->limiting_rank >= 0, (uint64_t)plan->limiting_rank);
}

static json_t *trace_json(const TraceFit *fit)
{
    json_t *object = json_object();

    put_bytes(object, "requests", fit->requests);
    put_bytes(object, "past_context", fit->past_context);
    put_bytes(object, "fit", fit->fit);
    put_bytes(object, "tokens", fit->tokens);
    put_bytes(object, "content_bytes", fit->content_bytes);
    put_bytes(object, "booked_bytes", fit->booked_bytes);
    put_known(object, "fullest_rank", fit->fullest_rank >= 0, (uint64_t)fit->fullest_rank);
    put_known(object, "limiting_rank", fit->limiting_rank >= 0, (uint64_t)fit->limiting_rank);
    return object;
}

static void put_grids(json_t *object, const PlanReport *report)
{
    json_t *grids = json_array(), *left_out = json_array();

    for (uint32_t i = 0; i < report->grid_count; i++) {
        const PlanGrid *grid = &report->grids[i];
        json_t         *row = json_pack("{s:i, s:i}", "tp", (int)grid->tp, "pp", (int)grid->pp);

        if (i < report->grids_fit) {
            json_object_set_new(row, "fence", fence_json(&grid->plan));
            put_bytes(row, "fullest_rank_bytes", grid->rank_bytes);
            put_capacity(row, &grid->plan);
            json_array_append_new(grids, row);
        } else {
            json_object_set_new(row, "why", json_string(grid->why));
            json_array_append_new(left_out, row);
        }
    }
    json_object_set_new(object, "grids", grids);
    json_object_set_new(object, "left_out", left_out);
}

static json_t *report_json(const PlanReport *report)
{
    const KvGridPlan *plan = &report->grid.plan;
    json_t           *object = json_object();

    json_object_set_new(object, "model", json_string(report->config.name));
    put_bytes(object, "tp", plan->tp);
    put_bytes(object, "pp", plan->pp);
    put_bytes(object, "ctx", plan->ctx);
    put_bytes(object, "bytes_per_token", report->bytes_per_token);
    put_bytes(object, "ring_bytes_per_token", report->ring_bytes_per_token);
    put_bytes(object, "ring_row_cap", report->ring_row_cap);
    put_bytes(object, "fixed_bytes", report->fixed_bytes);
    put_bytes(object, "recurrent_column_bytes", report->column_bytes);
    put_bytes(object, "columns", report->arguments->columns != 0 ? report->arguments->columns : 2);
    put_bytes(object, "mtp_bytes_per_token", report->mtp_bytes_per_token);
    put_formats(object, report);
    json_object_set_new(object, "format_latent",
                        has_latents(report) ? json_string(report->sizing.format_latent == KVG_BF16 ? "bf16" : "f32") : json_null());
    json_object_set_new(object, "fence", fence_json(plan));
    json_object_set_new(object, "classes", classes_json(plan));
    json_object_set_new(object, "ranks", ranks_json(plan));
    put_capacity(object, plan);
    json_object_set_new(object, "weights_estimated", json_boolean(report->arguments->weights_bytes == 0));
    if (report->has_trace) {
        json_object_set_new(object, "trace", trace_json(&report->trace));
    }
    if (report->grids != NULL) {
        put_grids(object, report);
    }
    return object;
}

KvgStatus kvg_plan_print_json(FILE *stream, const PlanReport *report)
{
    json_t *object = report_json(report);
    int     failed = object == NULL || json_dumpf(object, stream, JSON_INDENT(2)) != 0;

    json_decref(object);
    if (failed || fputc('\n', stream) == EOF) {
        return kvg_fail(KVG_EIO, "the JSON could not be written");
    }
    return KVG_OK;
}

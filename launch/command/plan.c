#include <stdlib.h>
#include <string.h>

#include "launch/command/command.h"
#include "launch/command/plan_report.h"
#include "runtime/base/memory.h"

/* ---- what is found */

static KvgStatus load_sizing(const PlanArguments *arguments, KvSizing *sizing)
{
    KVG_TRY(kvg_policy_from_env(&sizing->policy));
    if (arguments->ring >= 0) {
        sizing->policy.swa_ring = (int8_t)arguments->ring;
    }
    sizing->format_k = arguments->format_k;
    sizing->format_v = arguments->format_v;
    sizing->format_latent = arguments->format_latent;
    return KVG_OK;
}

/* The trunk's figures: tp 1, pp 1, one copy of everything. */
static KvgStatus size_trunk(PlanReport *report)
{
    const KvSizing  *sizing = &report->sizing;
    const ModelPlan *plan = &report->config.plan;
    uint32_t         n = plan->n_layer;

    KVG_TRY(kvg_plan_bytes_per_token(sizing, plan, 0, n, &report->bytes_per_token));
    KVG_TRY(kvg_plan_ring_bytes_per_token(sizing, plan, 0, n, &report->ring_bytes_per_token));
    KVG_TRY(kvg_plan_ring_row_cap(sizing, plan, &report->ring_row_cap));
    KVG_TRY(kvg_plan_fixed_bytes(sizing, plan, 0, n, report->grid.plan.ctx, 0, &report->fixed_bytes));
    KVG_TRY(kvg_plan_fixed_bytes(sizing, plan, 0, n, report->grid.plan.ctx, 3, &report->column_bytes));
    report->column_bytes -= report->fixed_bytes; /* the third column: what each one costs */
    return kvg_plan_bytes_per_token(sizing, plan, n, n + plan->n_mtp, &report->mtp_bytes_per_token);
}

/* A side of the grid that --gpus and the other side decide. */
static KvgStatus other_side(const PlanArguments *arguments, const char *name, uint64_t side, uint64_t *other)
{
    if (arguments->gpus % side != 0) {
        return kvg_fail(KVG_EINVAL, "--gpus %llu is no multiple of %s %llu: a grid has tp x pp ranks; change one of them",
                        (unsigned long long)arguments->gpus, name, (unsigned long long)side);
    }
    *other = arguments->gpus / side;
    return KVG_OK;
}

/* What --tp, --pp and --gpus say together; 0 x 0: any grid of --gpus. */
static KvgStatus read_sides(const PlanArguments *arguments, uint64_t *tp, uint64_t *pp)
{
    *tp = arguments->tp;
    *pp = arguments->pp;
    if (arguments->gpus == 0) {
        *tp += *tp == 0;
        *pp += *pp == 0;
    } else if (*tp != 0 && *pp != 0 && *tp * *pp != arguments->gpus) {
        return kvg_fail(KVG_EINVAL, "--tp %llu times --pp %llu is a grid of %llu ranks, and --gpus says %llu: change one of them",
                        (unsigned long long)*tp, (unsigned long long)*pp, (unsigned long long)(*tp * *pp),
                        (unsigned long long)arguments->gpus);
    } else if (*tp != 0 && *pp == 0) {
        return other_side(arguments, "--tp", *tp, pp);
    } else if (*pp != 0 && *tp == 0) {
        return other_side(arguments, "--pp", *pp, tp);
    }
    return KVG_OK;
}

/* The grid that the rest of the report is about: the one asked for, else the best of --gpus. Of those that hold nothing one
 * is shown, too: that nothing fits is an answer. */
static KvgStatus choose_grid(PlanReport *report, uint64_t tp, uint64_t pp)
{
    const PlanGrid *best = report->grids;
    KvgStatus       refusal;

    if (tp == 0) {
        if (!best->planned) {
            return kvg_fail(KVG_EGEOM, "%s falls on no grid of %llu ranks; for one, tp %u x pp %u: %s", report->config.name,
                            (unsigned long long)report->arguments->gpus, best->tp, best->pp, best->why);
        }
        tp = best->tp;
        pp = best->pp;
    }
    KVG_TRY(kvg_plan_grid(report, (uint32_t)tp, (uint32_t)pp, &report->grid, &refusal));
    return refusal;
}

static KvgStatus fit_trace(PlanReport *report)
{
    Trace     trace;
    KvgStatus status;

    KVG_TRY(kvg_trace_load(report->arguments->trace, &trace));
    status = kvg_plan_trace(&report->grid.plan, &trace, &report->trace);
    report->has_trace = status == KVG_OK;
    kvg_trace_free(&trace);
    return status;
}

static KvgStatus make_report(PlanReport *report)
{
    const PlanArguments *arguments = report->arguments;
    uint64_t             tp, pp;

    if (arguments->model == NULL) {
        return kvg_fail(KVG_EINVAL, "--model says which model: a config.json, a directory that holds one, or a .gguf file");
    }
    KVG_TRY(read_sides(arguments, &tp, &pp));
    KVG_TRY(load_sizing(arguments, &report->sizing));
    KVG_TRY(kvg_model_config_load(arguments->model, &report->config));
    if (arguments->gpus != 0) {
        KVG_TRY(kvg_plan_gpus(report, (uint32_t)arguments->gpus));
    }
    KVG_TRY(choose_grid(report, tp, pp));
    KVG_TRY(kvg_command_name_model(size_trunk(report), arguments->model));
    if (arguments->trace != NULL) {
        KVG_TRY(fit_trace(report));
    }
    return KVG_OK;
}

static void free_grid(PlanGrid *grid)
{
    if (grid->planned) {
        kvg_grid_plan_free(&grid->plan);
    }
}

static void free_report(PlanReport *report)
{
    for (uint32_t i = 0; i < report->grid_count; i++) {
        free_grid(&report->grids[i]);
    }
    kvg_free(report->grids);
    free_grid(&report->grid);
    kvg_model_config_free(&report->config);
}

static KvgStatus show_report(const PlanReport *report)
{
    if (kvg_plan_holds_nothing(&report->grid)) {
        const PlanGrid *grid = &report->grid;

        if (report->grids != NULL && report->grids_fit == 0) {
            fprintf(stderr, "kvgrid plan: nothing fits on any grid of %u ranks; on tp %u x pp %u: %s\n", grid->tp * grid->pp, grid->tp,
                    grid->pp, grid->why);
        } else {
            fprintf(stderr, "kvgrid plan: nothing fits: %s\n", grid->why);
        }
    }
    if (report->arguments->svg != NULL) { /* first: what fails must not follow a result */
        KVG_TRY(kvg_plan_write_svg(report->arguments->svg, report));
    }
    if (report->arguments->json) {
        return kvg_plan_print_json(stdout, report);
    }
    kvg_plan_print_table(stdout, report);
    return KVG_OK;
}

/* What the library would have the reader know, though the plan stands. */
static void print_notice(void *user, KvgLogLevel level, const char *sentence)
{
    (void)user, (void)level;
    fprintf(stderr, "kvgrid plan: %s\n", sentence);
}

int kvg_command_plan(int argc, char **argv)
{
    PlanArguments arguments = { .model = NULL };
    PlanReport    report = { .arguments = &arguments };
    KvgStatus     status = kvg_plan_arguments_parse(argc, argv, &arguments);

    if (status == KVG_OK && arguments.help) {
        kvg_plan_arguments_print(stdout);
        return KVG_EXIT_DONE;
    }
    kvg_log_set(print_notice, NULL);
    if (status == KVG_OK) {
        status = make_report(&report);
    }
    if (status == KVG_OK) {
        status = show_report(&report);
    }
    kvg_log_set(NULL, NULL);
    free_report(&report);
    return status == KVG_OK ? KVG_EXIT_DONE : kvg_command_refuse("plan", status);
}

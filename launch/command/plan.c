#include <stdlib.h>
#include <string.h>

#include "launch/command/command.h"
#include "launch/command/options.h"
#include "launch/command/plan_report.h"
#include "runtime/base/memory.h"

#define SIZE_MOST 4096 /* of one side of a grid */

/* ---- what was asked */

#define OPTION_COUNT_MOST 20

static size_t list_options(PlanArguments *a, Option options[OPTION_COUNT_MOST])
{
    const Option table[] = {
        { "--model", OPTION_TEXT, &a->model, "PATH", "config.json, params.json, a directory with one, or a .gguf file", 0, 0, 0 },
        { "--tp", OPTION_COUNT, &a->tp, "N", "ranks that share each layer (default 1)", 1, SIZE_MOST, 0 },
        { "--pp", OPTION_COUNT, &a->pp, "N", "pipeline stages (default 1)", 1, SIZE_MOST, 0 },
        { "--gpus", OPTION_COUNT, &a->gpus, "N", "try every tp x pp = N and list those that fit, best first", 1, SIZE_MOST, 0 },
        { "--device-memory", OPTION_BYTES, &a->device_memory, "SIZE", "of each rank: 141GB (10^9), 80GiB (2^30) or bytes", 1, 0, 0 },
        { "--weights-bytes", OPTION_BYTES, &a->weights_bytes, "SIZE", "of the whole model (default: estimated from the config)", 1, 0, 0 },
        { "--reserve", OPTION_BYTES, &a->reserve_bytes, "SIZE", "kept free on each rank for activations and the like (default 0)", 0, 0, 0 },
        { "--columns", OPTION_COUNT, &a->columns, "N", "columns of recurrent state (default 2; K+1 takes any prefix of a round of K rows)", 2, 4096, 0 },
        { "--ctx", OPTION_COUNT, &a->ctx, "N", "T: tokens of a sequence (default: the model's context, else 32768)", 1, INT32_MAX, 0 },
        { "--fence", OPTION_TEXT, &a->fence, "A,B,..", "first layer of the second stage, the third, .. (default: balanced)", 0, 0, 0 },
        { "--format-k", OPTION_FORMAT, &a->format_k, "FORMAT", "q8_0, fp8, q4_0, bf16 or f16 (default: the knobs')", 0, 0, 0 },
        { "--format-v", OPTION_FORMAT, &a->format_v, "FORMAT", "q5_1, q4_0, fp8, q8_0, bf16 or f16 (default: the knobs')", 0, 0, 0 },
        { "--format-latent", OPTION_FORMAT, &a->format_latent, "FORMAT", "f32 or bf16 (default f32)", 0, 0, 0 },
        { "--ring", OPTION_SWITCH, &a->ring, "on|off", "windowed layers keep a ring of rows (default: the knobs')", 0, 0, 0 },
        { "--mtp", OPTION_FLAG, &a->mtp, NULL, "place the MTP blocks too, on the last stage", 0, 0, 0 },
        { "--trace", OPTION_TEXT, &a->trace, "FILE", "CSV of requests: how many fit together at their real lengths", 0, 0, 0 },
        { "--json", OPTION_FLAG, &a->json, NULL, "one JSON object on stdout and nothing else", 0, 0, 0 },
        { "--svg", OPTION_TEXT, &a->svg, "FILE", "a picture of every rank's memory", 0, 0, 0 },
        { "--help", OPTION_FLAG, &a->help, NULL, "this text", 0, 0, 0 },
    };

    _Static_assert(sizeof table / sizeof table[0] <= OPTION_COUNT_MOST, "room for every option");
    memcpy(options, table, sizeof table);
    return sizeof table / sizeof table[0];
}

static void print_help(const Option *options, size_t option_count)
{
    printf("usage: kvgrid plan --model PATH [--tp N] [--pp N] [options]\n\n"
           "How a model falls on a grid of tp x pp ranks: fence, heads, bytes a token and a sequence, duplicates, and with\n"
           "--device-memory what fits. Needs no MPI, no device, no weights.\n\n");
    kvg_options_print(stdout, options, option_count);
}

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

/* The grid that the rest of the report is about: the one asked for, else the best that fits, else 1 x 1. */
static KvgStatus choose_grid(PlanReport *report)
{
    const PlanArguments *arguments = report->arguments;
    uint32_t             tp = arguments->tp != 0 ? (uint32_t)arguments->tp : 1;
    uint32_t             pp = arguments->pp != 0 ? (uint32_t)arguments->pp : 1;
    KvgStatus            refusal;

    if (arguments->gpus != 0 && arguments->tp == 0 && arguments->pp == 0) {
        if (report->grids_fit == 0) {
            return kvg_fail(KVG_EGEOM, "%s fits on no grid of %llu ranks; for one, tp %u x pp %u: %s", report->config.name,
                            (unsigned long long)arguments->gpus, report->grids[0].tp, report->grids[0].pp, report->grids[0].why);
        }
        tp = report->grids[0].tp;
        pp = report->grids[0].pp;
    }
    KVG_TRY(kvg_plan_grid(report, tp, pp, &report->grid, &refusal));
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

    if (arguments->model == NULL) {
        return kvg_fail(KVG_EINVAL, "--model says which model: a config.json, a directory that holds one, or a .gguf file");
    }
    KVG_TRY(load_sizing(arguments, &report->sizing));
    KVG_TRY(kvg_model_config_load(arguments->model, &report->config));
    if (arguments->gpus != 0) {
        KVG_TRY(kvg_plan_gpus(report, (uint32_t)arguments->gpus));
    }
    KVG_TRY(choose_grid(report));
    KVG_TRY(size_trunk(report));
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
    if (report->grid.overweight) {
        fprintf(stderr, "kvgrid plan: nothing fits: %s\n", report->grid.why);
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

int kvg_command_plan(int argc, char **argv)
{
    PlanArguments arguments = { .ring = -1 };
    PlanReport    report = { .arguments = &arguments };
    Option        options[OPTION_COUNT_MOST];
    size_t        option_count = list_options(&arguments, options);
    KvgStatus     status = kvg_options_parse(options, option_count, argc, argv);

    if (status == KVG_OK && arguments.help) {
        print_help(options, option_count);
        return KVG_EXIT_DONE;
    }
    if (status == KVG_OK) {
        status = make_report(&report);
    }
    if (status == KVG_OK) {
        status = show_report(&report);
    }
    free_report(&report);
    return status == KVG_OK ? KVG_EXIT_DONE : kvg_command_refuse("plan", status);
}

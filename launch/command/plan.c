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
        { "--tp", OPTION_COUNT, &a->tp, "N", "ranks that share each layer (default 1; with --gpus and --pp: gpus / pp)", 1, SIZE_MOST, 0 },
        { "--pp", OPTION_COUNT, &a->pp, "N", "pipeline stages (default 1; with --gpus and --tp: gpus / tp)", 1, SIZE_MOST, 0 },
        { "--gpus", OPTION_COUNT, &a->gpus, "N", "try every tp x pp = N, list those that fit, best first; then show the best, or the one that --tp, --pp ask for", 1, SIZE_MOST, 0 },
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
           "--device-memory what fits. Needs no MPI, no device, no weights. Where nothing fits, max_context and max_sequences are 0,\n"
           "stderr says why, and the exit status is 0 all the same.\n\n");
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

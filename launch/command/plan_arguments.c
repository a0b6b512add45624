#include "launch/command/plan_arguments.h"

#include <string.h>

#include "launch/command/options.h"
#include "runtime/base/error.h"

#define SIZE_MOST 4096 /* of one side of a grid */

#define DEVICE_LEAST 1000000 /* bytes; "80" is a unit left out */

#define OPTION_COUNT_MOST 20

static size_t list_options(PlanArguments *a, Option options[OPTION_COUNT_MOST])
{
    const Option table[] = {
        { "--model", OPTION_TEXT, &a->model, "PATH", "config.json, params.json, a directory with one, or a .gguf file", 0, 0, 0 },
        { "--tp", OPTION_COUNT, &a->tp, "N", "ranks that share each layer (default 1; with --gpus and --pp: gpus / pp)", 1, SIZE_MOST, 0 },
        { "--pp", OPTION_COUNT, &a->pp, "N", "pipeline stages (default 1; with --gpus and --tp: gpus / tp)", 1, SIZE_MOST, 0 },
        { "--gpus", OPTION_COUNT, &a->gpus, "N", "try every tp x pp = N, list those that fit, best first; then show the best, or the one that --tp, --pp ask for", 1, SIZE_MOST, 0 },
        { "--device-memory", OPTION_BYTES, &a->device_memory, "SIZE", "of each rank: 141GB (10^9), 80GiB (2^30) or bytes", DEVICE_LEAST, 0, 0 },
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

KvgStatus kvg_plan_arguments_parse(int argc, char **argv, PlanArguments *arguments)
{
    PlanArguments parsed = { .ring = -1 };
    Option        options[OPTION_COUNT_MOST];
    size_t        option_count = list_options(&parsed, options);

    KVG_TRY(kvg_options_parse(options, option_count, argc, argv));
    *arguments = parsed;
    return KVG_OK;
}

void kvg_plan_arguments_print(FILE *stream)
{
    PlanArguments arguments = { .ring = -1 };
    Option        options[OPTION_COUNT_MOST];
    size_t        option_count = list_options(&arguments, options);

    fprintf(stream,
            "usage: kvgrid plan --model PATH [--tp N] [--pp N] [options]\n\n"
            "How a model falls on a grid of tp x pp ranks: fence, heads, bytes a token and a sequence, duplicates, and with\n"
            "--device-memory what fits. Needs no MPI, no device, no weights. Where nothing fits, max_context and max_sequences are 0,\n"
            "stderr says why, and the exit status is 0 all the same.\n\n");
    kvg_options_print(stream, options, option_count);
}

#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transformer.h"

static const char usage[] =
    "usage: kvgrid_embed [options] < requests > answers\n"
    "Serves a tiny seeded transformer from a grid of forked workers: the model of an engine that embeds kvgrid.\n"
    "  --tp N, --pp N     the grid (1, 1)\n"
    "  --memory BYTES     of each rank, for sequence state (4194304)\n"
    "  --places N         sequences in one step (8, at most 16)\n"
    "  --lanes N          micro-batches that take turns over the stages (pp)\n"
    "  --chunk N          most prompt tokens of a request in one step (64)\n"
    "  --spec N           most drafted tokens in one step (0, at most 8)\n"
    "  --system TEXT      a prompt that requests with \"system\": true share\n"
    "  --no-fork          every such request computes it anew instead of forking it\n"
    "  --format-k, --format-v WORD  how rows are stored (bf16)\n"
    "  --transport WORD   how workers meet and vote: " TRANSPORT_WORDS " (shm)\n"
    "  --seed N           of the model's weights (1)\n"
    "  --refuse R@N       a fault for tests: rank R votes no at step N\n"
    "  --summary          a last line with counts, steps a second, and bytes still booked\n";

static int wrong(const char *option, const char *value, const char *cure)
{
    fprintf(stderr, "kvgrid_embed: %s%s%s: %s\n", option, value != NULL ? " " : "", value != NULL ? value : "", cure);
    return 2;
}

static int take_number(const char *option, const char *text, uint64_t lo, uint64_t hi, uint64_t *number)
{
    char     cure[64], *end = NULL;
    uint64_t value;

    errno = 0;
    value = text != NULL && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    snprintf(cure, sizeof cure, "give a number from %llu to %llu", (unsigned long long)lo, (unsigned long long)hi);
    if (end == NULL || *end != '\0' || errno == ERANGE || value < lo || value > hi) return wrong(option, text, cure);
    *number = value;
    return 0;
}

static int take_small(const char *option, const char *text, uint32_t lo, uint32_t hi, uint32_t *number)
{
    uint64_t value;
    int      status = take_number(option, text, lo, hi, &value);

    if (status == 0) *number = (uint32_t)value;
    return status;
}

static int take_format(const char *option, const char *text, KvFormat *format)
{
    if (text == NULL || kvg_format_parse(text, format) != KVG_OK) return wrong(option, text, text == NULL ? "give a format" : kvg_last_error());
    return 0;
}

static int take_refusal(const char *text, WorkerOptions *options)
{
    unsigned long long step;
    int                end = 0;

    if (text == NULL || sscanf(text, "%d@%llu%n", &options->refuse_rank, &step, &end) != 2 || text[end] != '\0' || options->refuse_rank < 0) {
        return wrong("--refuse", text, "give RANK@STEP");
    }
    options->refuse_step = step;
    return 0;
}

static int take_pair(const char *option, const char *value, Options *options)
{
    WorkerOptions *worker = &options->worker;

    if (strcmp(option, "--tp") == 0) return take_small(option, value, 1, MODEL_HEADS, &worker->tp);
    if (strcmp(option, "--pp") == 0) return take_small(option, value, 1, MODEL_LAYERS, &worker->pp);
    if (strcmp(option, "--memory") == 0) return take_number(option, value, 1, UINT64_MAX / 2, &worker->memory_bytes);
    if (strcmp(option, "--places") == 0) return take_small(option, value, 1, PLACES_MAX, &worker->places);
    if (strcmp(option, "--lanes") == 0) return take_small(option, value, 1, LANES_MAX, &worker->lanes);
    if (strcmp(option, "--chunk") == 0) return take_small(option, value, 1, STEP_TOKENS_MAX, &options->chunk);
    if (strcmp(option, "--spec") == 0) return take_small(option, value, 0, SPEC_MAX, &options->spec);
    if (strcmp(option, "--seed") == 0) return take_number(option, value, 0, UINT64_MAX, &worker->seed);
    if (strcmp(option, "--format-k") == 0) return take_format(option, value, &worker->format_k);
    if (strcmp(option, "--format-v") == 0) return take_format(option, value, &worker->format_v);
    if (strcmp(option, "--refuse") == 0) return take_refusal(value, worker);
    if (strcmp(option, "--system") == 0) {
        options->system = value;
        return value != NULL && *value != '\0' ? 0 : wrong(option, value, "give a text");
    }
    if (strcmp(option, "--transport") == 0) {
        worker->transport = value;
        return value != NULL && transport_is_known(value) ? 0 : wrong(option, value, "give " TRANSPORT_WORDS);
    }
    return wrong(option, NULL, "there is no such option; --help lists them");
}

static int check(Options *options)
{
    WorkerOptions *worker = &options->worker;

    if (MODEL_HEADS % worker->tp != 0) return wrong("--tp", NULL, "give 1, 2, 4 or 8, which share the model's 8 heads out evenly");
    if (worker->refuse_rank >= (int)(worker->tp * worker->pp)) return wrong("--refuse", NULL, "give a rank of the grid, below tp * pp");
    if (options->system != NULL && strlen(options->system) > MODEL_CONTEXT) return wrong("--system", NULL, "give a text that fits into the model's context");
    if (worker->lanes == 0) worker->lanes = worker->pp;
    if (worker->lanes > 2 * worker->pp) return wrong("--lanes", NULL, "give at most 2 * pp, which is how many steps kvgrid lets be undecided");
    return 0;
}

int options_read(int argc, char **argv, Options *options)
{
    *options = (Options){ .worker = { .tp = 1, .pp = 1, .places = 8, .memory_bytes = 4 << 20, .seed = 1, .format_k = KVG_BF16, .format_v = KVG_BF16,
                                      .transport = "shm", .refuse_rank = -1 },
                          .chunk = 64, .forks = 1 };
    for (int i = 1; i < argc; i++) {
        int status = 0;
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            return -1;
        }
        if (strcmp(argv[i], "--summary") == 0) options->summary = 1;
        else if (strcmp(argv[i], "--no-fork") == 0) options->forks = 0;
        else status = take_pair(argv[i], i + 1 < argc ? argv[i + 1] : NULL, options), i++;
        if (status != 0) return status;
    }
    return check(options);
}

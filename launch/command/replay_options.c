/* Replay's options. */
#include "launch/command/replay_options.h"

#include <stdio.h>
#include <string.h>

#include "launch/command/options.h"
#include "launch/command/replay_schedule.h"
#include "runtime/base/error.h"

/* Counts as the parser reads them, before they are narrowed. */
typedef struct ReplayCounts {
    uint64_t    tp, pp, ranks, concurrency, chunk, spec, columns, ranks_per_device;
    const char *layout, *fault, *device, *vote, *bind;
} ReplayCounts;

enum { OPTION_COUNT_OF_REPLAY = 36, RANKS_MAX = 65535, FORKED_RANKS_MAX = 64, CHUNK_MAX = 65536, SPEC_MAX = 1024, COLUMNS_MAX = 4096, CONCURRENCY_MAX = 65536 };

static void describe(ReplayOptions *options, ReplayCounts *counts, Option table[OPTION_COUNT_OF_REPLAY])
{
    const Option rows[OPTION_COUNT_OF_REPLAY] = {
        { NULL, OPTION_HEADING, NULL, NULL, "What is served:", 0, 0, 0 },
        { "--model", OPTION_TEXT, &options->model, "FILE", "config.json, its directory, or a GGUF file", 0, 0, 0 },
        { "--trace", OPTION_TEXT, &options->trace, "FILE", "CSV with ContextTokens and GeneratedTokens", 0, 0, 0 },
        { "--requests", OPTION_COUNT, &options->requests, "N", "the first N of the trace (all)", 1, 0, 0 },
        { "--max-tokens", OPTION_COUNT, &options->max_tokens, "N", "cut each request to N tokens", 1, 0, 0 },
        { "--concurrency", OPTION_COUNT, &counts->concurrency, "N", "requests open at once (16)", 1, CONCURRENCY_MAX, 0 },
        { "--chunk", OPTION_COUNT, &counts->chunk, "N", "most prompt rows of a request in one step (512)", 1, CHUNK_MAX, 0 },
        { "--spec", OPTION_COUNT, &counts->spec, "K", "speculative rounds: K rows at a time, of which 1 to K are accepted (0: none)", 0, SPEC_MAX, 0 },
        { "--seed", OPTION_COUNT, &options->seed, "N", "of the values that are written, and of what rounds accept (1)", 0, 0, 0 },
        { NULL, OPTION_HEADING, NULL, NULL, "Grid and state:", 0, 0, 0 },
        { "--tp", OPTION_COUNT, &counts->tp, "N", "tensor-parallel ranks of a stage (1)", 1, RANKS_MAX, 0 },
        { "--pp", OPTION_COUNT, &counts->pp, "N", "pipeline stages (1)", 1, RANKS_MAX, 0 },
        { "--ranks", OPTION_COUNT, &counts->ranks, "N", "fork the N = TP x PP ranks on this machine, without mpirun; after a fault the survivors report", 1,
          FORKED_RANKS_MAX, 0 },
        { "--format-k", OPTION_FORMAT, &options->format_k, "F", "format of K rows: q8_0, fp8, q4_0, bf16 or f16 (the knobs')", 0, 0, 0 },
        { "--format-v", OPTION_FORMAT, &options->format_v, "F", "format of V rows: q5_1, q4_0, fp8, q8_0, bf16 or f16 (the knobs')", 0, 0, 0 },
        { "--format-latent", OPTION_FORMAT, &options->format_latent, "F", "format of latent rows, and of what their indexers keep: f32 or bf16 (f32)", 0, 0, 0 },
        { "--ring", OPTION_SWITCH, &options->ring, "on|off", "windowed layers let old rows go (the knobs')", 0, 0, 0 },
        { "--layout", OPTION_TEXT, &counts->layout, "pool|flat", "chunks of 64 rows, or one plane a sequence (pool)", 0, 0, 0 },
        { "--columns", OPTION_COUNT, &counts->columns, "N", "recurrent states that a sequence holds (K+1; fewer: accepted rows are replayed)", 2,
          COLUMNS_MAX, 0 },
        { "--mtp", OPTION_FLAG, &options->mtp, NULL, "place the MTP blocks too, on the last stage", 0, 0, 0 },
        { "--memory", OPTION_BYTES, &options->memory, "BYTES", "for sequence state on each rank (what the run needs); little only delays, less than one request "
          "needs is refused", 0, 0, 0 },
        { NULL, OPTION_HEADING, NULL, NULL, "Devices and votes:", 0, 0, 0 },
        { "--device", OPTION_TEXT, &counts->device, "host|cuda|auto", "where the state lives (host); cuda: a GPU for each rank, by its place on the machine", 0, 0, 0 },
        { "--ranks-per-device", OPTION_COUNT, &counts->ranks_per_device, "N", "ranks that may share a GPU (1)", 1, FORKED_RANKS_MAX, 0 },
        { "--bind", OPTION_TEXT, &counts->bind, "auto|none", "auto: bind each rank to cores and memory near its GPU, or to its part of the NUMA nodes, within what "
          "it is allowed (auto)", 0, 0, 0 },
        { "--vote", OPTION_TEXT, &counts->vote, "auto|host|nccl|device", "how ranks exchange votes: by MPI or sockets, by NCCL on the GPUs, in the GPUs' memory "
          "(auto: host, since an MPI record takes less time than a kernel's launch)", 0, 0, 0 },
        { NULL, OPTION_HEADING, NULL, NULL, "Checks and faults:", 0, 0, 0 },
        { "--verify", OPTION_FLAG, &options->verify, NULL, "compare sampled rows with a fresh encode", 0, 0, 0 },
        { "--fault", OPTION_TEXT, &counts->fault, "SPEC", "a fault of rank R: flip:R@stepN, refuse:R@stepN, oom:R@growN, kill:R@Ts, exit:R@Ts or stall:R@Ts", 0, 0, 0 },
        { "--trail", OPTION_TEXT, &options->trail, "FILE", "write FILE.RANK at the end: what the rank held after each commit, as two sums", 0, 0, 0 },
        { NULL, OPTION_HEADING, NULL, NULL, "What is written:", 0, 0, 0 },
        { "--json", OPTION_FLAG, &options->json, NULL, "the last line is the summary as one object", 0, 0, 0 },
        { "--metrics", OPTION_TEXT, &options->metrics, "FILE", "rank 0 keeps the counters of all ranks in it, as text for Prometheus, about once a second", 0, 0, 0 },
        { "--report", OPTION_TEXT, &options->report, "FILE", "rank 0 writes a page of pictures and tables at the end, as HTML that loads nothing", 0, 0, 0 },
        { "--placement", OPTION_TEXT, &options->placement, "FILE", "rank 0 writes what the placement has agreed on, as JSON for a scheduler (kvg_accounts_from_json)", 0, 0, 0 },
        { "--help", OPTION_FLAG, &options->help, NULL, "this text", 0, 0, 0 },
    };
    memcpy(table, rows, sizeof rows);
}

static KvgStatus parse_layout(const char *word, KvLayout *layout)
{
    if (word == NULL || strcmp(word, "pool") == 0) {
        *layout = KVG_LAYOUT_POOL;
    } else if (strcmp(word, "flat") == 0) {
        *layout = KVG_LAYOUT_FLAT;
    } else {
        return kvg_fail(KVG_EINVAL, "--layout \"%s\" is unknown: give pool or flat", word);
    }
    return KVG_OK;
}

static KvgStatus parse_device(const char *word, ReplayDeviceKind *device)
{
    static const char *const words[] = { "host", "cuda", "auto" };

    for (int i = 0; i < 3; i++) {
        if (word == NULL || strcmp(word, words[i]) == 0) {
            *device = (ReplayDeviceKind)i;
            return KVG_OK;
        }
    }
    return kvg_fail(KVG_EINVAL, "--device \"%s\" is unknown: give host, cuda or auto", word);
}

static KvgStatus parse_vote(const char *word, ReplayVoteKind *vote)
{
    static const char *const words[] = { [REPLAY_VOTE_AUTO] = "auto", [REPLAY_VOTE_DEVICE] = "device", [REPLAY_VOTE_NCCL] = "nccl",
                                         [REPLAY_VOTE_HOST] = "host" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (word == NULL || strcmp(word, words[i]) == 0) {
            *vote = (ReplayVoteKind)i;
            return KVG_OK;
        }
    }
    return kvg_fail(KVG_EINVAL, "--vote \"%s\" is unknown: give auto, device, nccl or host", word);
}

static KvgStatus parse_bind(const char *word, int *bind)
{
    if (word != NULL && strcmp(word, "auto") != 0 && strcmp(word, "none") != 0) {
        return kvg_fail(KVG_EINVAL, "--bind \"%s\" is unknown: give auto or none", word);
    }
    *bind = word == NULL || strcmp(word, "auto") == 0;
    return KVG_OK;
}

static KvgStatus narrow(const ReplayCounts *counts, ReplayOptions *options)
{
    options->tp = (uint32_t)counts->tp;
    options->pp = (uint32_t)counts->pp;
    options->ranks = (uint32_t)counts->ranks;
    options->concurrency = (uint32_t)counts->concurrency;
    options->chunk = (uint32_t)counts->chunk;
    options->spec = (uint32_t)counts->spec;
    options->columns = counts->columns != 0 ? (uint32_t)counts->columns : options->spec > 1 ? options->spec + 1 : 2;
    if (options->ranks != 0 && options->ranks != counts->tp * counts->pp) {
        return kvg_fail(KVG_EINVAL, "--ranks %u forks %u ranks, but --tp %u times --pp %u is a grid of %llu: make them equal", options->ranks,
                        options->ranks, options->tp, options->pp, (unsigned long long)(counts->tp * counts->pp));
    }
    KVG_TRY(parse_layout(counts->layout, &options->layout));
    KVG_TRY(parse_device(counts->device, &options->device));
    KVG_TRY(parse_vote(counts->vote, &options->vote));
    KVG_TRY(parse_bind(counts->bind, &options->bind));
    options->ranks_per_device = (uint32_t)counts->ranks_per_device;
    if (counts->fault != NULL) {
        KVG_TRY(kvg_replay_fault_parse(counts->fault, &options->fault));
        if (options->fault.rank >= counts->tp * counts->pp) {
            return kvg_fail(KVG_EINVAL, "--fault names rank %u of %llu: ranks count from 0", options->fault.rank,
                            (unsigned long long)(counts->tp * counts->pp));
        }
    }
    return KVG_OK;
}

static KvgStatus check_required(const ReplayOptions *options)
{
    if (options->model == NULL) {
        return kvg_fail(KVG_EINVAL, "--model is missing: give a config.json, its directory or a GGUF file");
    }
    if (options->trace == NULL) {
        return kvg_fail(KVG_EINVAL, "--trace is missing: give a CSV file with the columns ContextTokens and GeneratedTokens");
    }
    return KVG_OK;
}

/* 0 stands for "chosen", which is what leaving the option out means. */
static KvgStatus check_memory(const Option table[OPTION_COUNT_OF_REPLAY], const ReplayOptions *options)
{
    for (size_t i = 0; i < OPTION_COUNT_OF_REPLAY; i++) {
        if (table[i].target == &options->memory && table[i].given && options->memory == 0) {
            return kvg_fail(KVG_EINVAL, "--memory 0 holds nothing: give bytes, or leave it out to have them chosen");
        }
    }
    return KVG_OK;
}

KvgStatus kvg_replay_options_parse(int argc, char **argv, ReplayOptions *options)
{
    ReplayOptions parsed = { .requests = REPLAY_NO_LIMIT, .max_tokens = REPLAY_NO_LIMIT, .seed = 1, .ring = -1, .words = argv, .word_count = argc };
    ReplayCounts  counts = { .tp = 1, .pp = 1, .concurrency = 16, .chunk = 512, .ranks_per_device = 1 };
    Option        table[OPTION_COUNT_OF_REPLAY];
    describe(&parsed, &counts, table);
    KVG_TRY(kvg_options_parse(table, OPTION_COUNT_OF_REPLAY, argc, argv));
    if (!parsed.help) {
        KVG_TRY(check_required(&parsed));
        KVG_TRY(check_memory(table, &parsed));
        KVG_TRY(narrow(&counts, &parsed));
    }
    *options = parsed;
    return KVG_OK;
}

void kvg_replay_options_print(FILE *stream)
{
    ReplayOptions options = { 0 };
    ReplayCounts  counts = { 0 };
    Option        table[OPTION_COUNT_OF_REPLAY];
    describe(&options, &counts, table);
    fprintf(stream, "usage: kvgrid replay --model FILE --trace FILE [options]                               on one rank\n"
                    "       kvgrid replay --ranks 4 --tp 2 --pp 2 --model FILE --trace FILE [options]       on four, forked here\n"
                    "       mpirun -n 4 kvgrid replay --tp 2 --pp 2 --model FILE --trace FILE [options]     on four, by MPI\n\n"
                    "Serves a request trace from the cache of a model that is spread over TP x PP ranks, and ends with a digest of all\n"
                    "stored bytes, the same on every grid. It computes no model. Defaults stand in brackets.\n\n");
    kvg_options_print(stream, table, OPTION_COUNT_OF_REPLAY);
}

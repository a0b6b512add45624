/* kvgrid replay: a real request trace against the state of a model that is spread over a grid of ranks.
 *
 *   options -> launch -> files -> grid -> placement -> run -> report
 *
 * Between the arrows all ranks agree whether they got that far; the lowest that did not is heard, once, and all leave together. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "launch/command/command.h"
#include "launch/command/html_replay.h"
#include "launch/command/options.h"
#include "launch/command/replay_fork.h"
#include "launch/command/replay_memory.h"
#include "launch/command/replay_place.h"
#include "launch/command/replay_report.h"
#include "launch/command/replay_run.h"
#include "launch/command/replay_survive.h"
#include "launch/command/replay_vote.h"
#include "launch/command/trace.h"
#include "launch/command/whole_file.h"
#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/base/mix.h"

typedef struct ReplayInput {
    KvgPolicy      policy;
    ModelConfig    config;
    ReplayRequest *requests; /* [count] clipped */
    uint64_t       count;
    uint64_t       longest;  /* rows of the longest request that the model's context allows */
    uint64_t       memory;   /* bytes on this rank */
    uint32_t       sequences; /* open at once */
    char           formats[256];
} ReplayInput;

/* ---- input */

static KvgStatus resolve_policy(const ReplayOptions *options, KvgPolicy *policy)
{
    const KvgPolicy *process = NULL;
    KVG_TRY(kvg_policy_process(&process));
    *policy = *process;
    if (options->ring >= 0) {
        policy->swa_ring = (int8_t)options->ring;
    }
    return KVG_OK;
}

static KvgStatus load_requests(const ReplayOptions *options, ReplayInput *input)
{
    Trace     trace = { 0 };
    KvgStatus status = KVG_OK;
    KVG_TRY(kvg_trace_load(options->trace, &trace));
    input->count = kvg_min_u64(trace.count, options->requests);
    KVG_TRY_GOTO(KVG_NEW(input->count, "the requests", &input->requests), err_free_trace);
    for (uint64_t i = 0; i < input->count; i++) {
        ReplayRequest whole = { trace.requests[i].context, trace.requests[i].generated };
        input->requests[i] = kvg_replay_clip(whole, options->max_tokens);
        uint64_t total = kvg_replay_total(&input->requests[i]);
        if (input->config.context == 0 || total <= input->config.context) {
            input->longest = kvg_max_u64(input->longest, total);
        }
    }
err_free_trace:
    kvg_trace_free(&trace);
    return status;
}

/* T: capacity is balanced over the classes for the longest request that will run, not for the model's context. */
static uint64_t balanced_rows(const ReplayInput *input)
{
    return kvg_max_u64(input->longest, KVG_CHUNK_ROWS);
}

static uint32_t step_rows_max(const ReplayOptions *options)
{
    return (uint32_t)kvg_min_u64(4096, kvg_max_u64(kvg_max_u64(options->chunk, 2 * options->spec), KVG_CHUNK_ROWS)); /* a round behind a replay */
}

static KvgStatus plan_grid(const ReplayOptions *options, const ReplayInput *input, KvGridPlan *plan)
{
    KvGridPlanOptions want = KVG_GRID_PLAN_OPTIONS_INIT;
    want.tp = options->tp;
    want.pp = options->pp;
    want.sizing.policy = input->policy;
    want.sizing.format_k = options->format_k;
    want.sizing.format_v = options->format_v;
    want.sizing.format_latent = options->format_latent;
    want.layout = options->layout;
    want.ctx = balanced_rows(input);
    want.prefill_chunk_max = step_rows_max(options);
    want.max_sequences = options->concurrency;
    want.spec_columns = options->columns;
    want.with_mtp = options->mtp;
    return kvg_command_name_model(kvg_grid_plan(&input->config, &want, plan), options->model);
}

/* Slots are taken whole, whoever comes: no more of them than requests, and, unless --memory says what to do, than half of the memory
 * holds. The same on every rank, since all see the whole plan; only what they have available may differ, and is agreed upon. */
static KvgStatus choose_sequences(const ReplayOptions *options, const ReplayLaunch *launch, const KvGridPlan *plan, uint64_t available,
                                  ReplayInput *input)
{
    const KvgBootstrap *bootstrap = &launch->bootstrap;
    uint64_t            slot_bytes = 0, sequences = options->concurrency;
    for (uint32_t rank = 0; rank < plan->ranks_count; rank++) {
        slot_bytes = kvg_max_u64(slot_bytes, plan->ranks[rank].slot_bytes);
    }
    if (slot_bytes > 0) {
        sequences = kvg_min_u64(sequences, kvg_max_u64(input->count, 1));
    }
    if (slot_bytes > 0 && options->memory == 0) {
        sequences = kvg_max_u64(1, kvg_min_u64(sequences, available / 2 / slot_bytes));
    }
    uint64_t *all = NULL;
    if (KVG_NEW((size_t)bootstrap->ranks, "the ranks' room for sequences", &all) != KVG_OK) {
        kvg_replay_launch_abort(launch, KVG_EXIT_FAILED); /* the others are in the all-gather */
    }
    KvgStatus status = bootstrap->allgather(bootstrap->user, &sequences, all, sizeof sequences, launch->timeout_ms);
    for (int rank = 0; rank < bootstrap->ranks && status == KVG_OK; rank++) {
        sequences = kvg_min_u64(sequences, all[rank]);
    }
    input->sequences = (uint32_t)sequences;
    kvg_free(all);
    return status;
}

static KvgStatus choose_memory(const ReplayOptions *options, const ReplayLaunch *launch, const KvGridPlan *plan, ReplayInput *input)
{
    const uint64_t available = kvg_replay_memory_available(launch->local_ranks);
    KvgStatus      status = choose_sequences(options, launch, plan, available, input);
    if (status == KVG_OK) {
        status = kvg_replay_memory_need(plan, (uint32_t)launch->bootstrap.rank, balanced_rows(input),
                                        kvg_min_u64(input->sequences, input->count), &input->memory);
    }
    input->memory = options->memory != 0 ? options->memory : kvg_min_u64(input->memory, available);
    kvg_replay_formats(plan, &input->config, options->format_latent, input->formats, sizeof input->formats);
    return status;
}

/* A rank that cannot plan (formats of its own, a config of its own) says so before the others gather anything. */
static KvgStatus plan_memory(const ReplayOptions *options, const ReplayLaunch *launch, ReplayInput *input)
{
    KvGridPlan plan = { 0 };
    KvgStatus  status = kvg_replay_agree(launch, plan_grid(options, input, &plan));
    if (status == KVG_OK) {
        status = kvg_replay_agree(launch, choose_memory(options, launch, &plan, input));
    }
    kvg_grid_plan_free(&plan);
    return status;
}

static KvgStatus check_ranks(const ReplayOptions *options, const ReplayLaunch *launch)
{
    const uint64_t ranks = (uint64_t)options->tp * options->pp;
    if (ranks == (uint64_t)launch->bootstrap.ranks) {
        return KVG_OK;
    }
    return kvg_fail(KVG_EINVAL, "--tp %u times --pp %u is a grid of %" PRIu64 " ranks, and %d %s started: start it with mpirun -n %" PRIu64
                                " (--oversubscribe where cores are fewer) or srun --mpi=pmix -n %" PRIu64 ", fork the ranks here with --ranks %" PRIu64
                                ", or change --tp and --pp",
                    options->tp, options->pp, ranks, launch->bootstrap.ranks, launch->bootstrap.ranks == 1 ? "was" : "were", ranks, ranks, ranks);
}

/* What the ranks will write can be written: said before anything is served. */
static KvgStatus check_files(const ReplayOptions *options, const ReplayLaunch *launch)
{
    if (options->trail != NULL) {
        KVG_TRY(kvg_replay_trail_check(options->trail, launch->bootstrap.rank));
    }
    if (launch->bootstrap.rank == 0 && options->metrics != NULL) {
        KVG_TRY(kvg_whole_file_check("--metrics", options->metrics));
    }
    if (launch->bootstrap.rank == 0 && options->placement != NULL) {
        KVG_TRY(kvg_whole_file_check("--placement", options->placement));
    }
    return launch->bootstrap.rank == 0 && options->report != NULL ? kvg_whole_file_check("--report", options->report) : KVG_OK;
}

static KvgStatus load_input(const ReplayOptions *options, const ReplayLaunch *launch, ReplayInput *input)
{
    KVG_TRY(check_ranks(options, launch));
    KVG_TRY(check_files(options, launch));
    KVG_TRY(resolve_policy(options, &input->policy));
    KVG_TRY(kvg_model_config_load(options->model, &input->config));
    return load_requests(options, input);
}

/* The requests as one number. */
static uint64_t digest_requests(const ReplayInput *input)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < input->count; i++) {
        sum += kvg_mix_term(i, input->requests[i].context, input->requests[i].generated, 0);
    }
    return sum;
}

/* Formats, layout, rings and concurrency are the grid's own to compare. */
static KvgStatus compare_input(const ReplayOptions *options, const ReplayLaunch *launch, const ReplayInput *input)
{
    const ReplayItem items[] = {
        { "the number of requests (--trace, --requests)", input->count },
        { "the requests' lengths (--trace, --max-tokens)", digest_requests(input) },
        { "--seed", options->seed },
        { "--chunk", options->chunk },
        { "--spec", options->spec },
        { "--columns", options->columns },
        { "--mtp", (uint64_t)options->mtp },
        { "--vote", (uint64_t)options->vote },
        { "--metrics", options->metrics != NULL },
        { "--report", options->report != NULL },
        { "--fault", kvg_mix_term((uint64_t)options->fault.kind, options->fault.rank, options->fault.step, 0) },
    };
    return kvg_replay_compare(launch, items, sizeof items / sizeof *items);
}

static void free_input(ReplayInput *input)
{
    kvg_free(input->requests);
    kvg_model_config_free(&input->config);
}

/* ---- grid and placement */

/* A GPU's memory comes in large grains, for every plane of its own, of every sequence where they are flat: what is chosen by the requests' rows
 * alone would be too little. Not more than four fifths of what its driver says is free. */
static uint64_t memory_on(const ReplayOptions *options, const ReplayInput *input, const ReplayDevice *device)
{
    if (!device->is_gpu || options->memory != 0) {
        return input->memory;
    }
    const uint64_t planes = REPLAY_ROW_PLANES_MAX * (uint64_t)(input->config.plan.n_layer + input->config.plan.n_mtp);
    const uint64_t grains = 2 * planes * (options->layout == KVG_LAYOUT_FLAT ? input->sequences : 1);
    const uint64_t rounding = grains * device->dev.ops->granularity(device->dev.self);
    return kvg_min_u64(input->memory + rounding, device->free_before / 5 * 4);
}

static KvgStatus create_grid(const ReplayOptions *options, ReplayLaunch *launch, const ReplayInput *input, const ReplayVote *vote, KvgGrid **grid)
{
    KvgGridOptions want = KVG_GRID_OPTIONS_INIT;
    want.tp = options->tp;
    want.pp = options->pp;
    want.policy = &input->policy;
    want.on_lost = kvg_replay_launch_lost;
    want.user = launch;
    want.comm = vote->comm.ops != NULL ? &vote->comm : NULL;
    want.liveness = vote->liveness.ops != NULL ? &vote->liveness : NULL;
    return kvg_grid_create(&launch->bootstrap, &want, grid);
}

static KvgStatus place(const ReplayOptions *options, const ReplayInput *input, const ReplayDevice *device, KvgGrid *grid, KvgPlacement **placement)
{
    KvgPlaceOptions want = KVG_PLACE_OPTIONS_INIT;
    want.format_k = options->format_k;
    want.format_v = options->format_v;
    want.format_latent = options->format_latent;
    want.layout = options->layout;
    want.max_sequences = input->sequences;
    want.spec_columns = options->columns;
    want.with_mtp = options->mtp;
    want.memory_bytes = memory_on(options, input, device);
    want.device = device->is_gpu ? &device->dev : NULL;
    want.ctx = balanced_rows(input);
    want.prefill_chunk_max = step_rows_max(options);
    static const OptionWord words[] = { { "memory_bytes", "--memory" }, { "max_sequences", "--concurrency" } };
    return kvg_options_speak(kvg_place(grid, &input->config, &want, placement), words, sizeof words / sizeof *words);
}

/* ---- the run */

/* The page, on rank 0; the ranks' series come together first, so it is collective. */
static KvgStatus write_page(const ReplayOptions *options, const ReplayLaunch *launch, const ReplayRun *run, const ReplayResult *result)
{
    const KvgBootstrap *bootstrap = &launch->bootstrap;
    const HtmlReplay    page = { options, result, kvg_placement_plan(run->shared.placement), run->metrics.ranks, run->metrics.series, run->metrics.model };
    ReplaySeries        mine = run->shared.series;
    kvg_replay_series_end(&mine);
    KVG_TRY(bootstrap->allgather(bootstrap->user, &mine, run->metrics.series, sizeof mine, launch->timeout_ms));
    return bootstrap->rank == 0 ? kvg_html_replay_write(options->report, &page) : KVG_OK;
}

static int report(const ReplayOptions *options, const ReplayLaunch *launch, const ReplayVote *vote, const ReplayRun *run)
{
    ReplayResult result;
    KvgStatus    status = kvg_replay_agree(launch, kvg_replay_result_gather(run, &result));
    if (status != KVG_OK) {
        return KVG_EXIT_FAILED;
    }
    kvg_replay_vote_words(vote, result.vote, sizeof result.vote);
    if (options->report != NULL) {
        status = write_page(options, launch, run, &result);
    }
    if (launch->bootstrap.rank == 0) {
        result.binding = launch->binding;
        kvg_replay_print_summary(options, &result);
        if (options->verify && result.checked_rows == 0) {
            fprintf(stderr, "kvgrid replay: nothing was verified: --verify found no rows, since %s\n",
                    result.refused == result.requests ? "every request was refused" : "the requests that were served have no tokens");
        }
        if (options->json) {
            KvgStatus printed = kvg_replay_print_json(options, &result);
            status = status != KVG_OK ? status : printed;
        }
        if (status == KVG_OK) {
            status = kvg_replay_result_judge(options, run, &result);
        }
    }
    status = kvg_replay_agree(launch, status);
    kvg_replay_result_free(&result);
    return status == KVG_EIO ? KVG_EXIT_FAILED : kvg_command_exit_status(status); /* a page that could be written when it was asked for, and cannot any more */
}

/* Before anything is opened, so that a scheduler can begin beside the ranks. */
static KvgStatus write_placement(const ReplayOptions *options, const ReplayLaunch *launch, const KvgPlacement *placement)
{
    WholeFile file;
    void     *text = NULL;
    size_t    bytes = 0;
    if (options->placement == NULL || launch->bootstrap.rank != 0) {
        return KVG_OK;
    }
    kvg_placement_to_json(placement, NULL, 0, &bytes);
    KVG_TRY(kvg_calloc(bytes, 1, "the placement's text", &text));
    KvgStatus status = kvg_placement_to_json(placement, text, bytes, &bytes);
    if (status == KVG_OK) {
        status = kvg_whole_file_begin("--placement", options->placement, &file);
        if (status == KVG_OK) {
            fputs(text, file.stream);
            status = kvg_whole_file_end(&file, KVG_OK);
        }
    }
    kvg_free(text);
    return status;
}

static int serve(const ReplayOptions *options, const ReplayLaunch *launch, const ReplayInput *input, const ReplayVote *vote, ReplayDevice *device,
                 KvgGrid *grid, KvgPlacement *placement)
{
    ReplayRun run;
    KvgStatus status = kvg_replay_run_create(options, launch, grid, placement, device, input->requests, input->count, &run);
    run.formats = input->formats;
    if (status != KVG_OK) {
        return kvg_command_exit_status(status);
    }
    status = kvg_replay_metrics_create(options, input->config.name, grid, placement, &run.metrics);
    status = kvg_replay_agree(launch, status == KVG_OK ? write_placement(options, launch, placement) : status);
    if (status != KVG_OK) {
        kvg_replay_run_free(&run);
        return kvg_command_exit_status(status);
    }
    status = kvg_replay_run_serve(&run);
    if (kvg_replay_is_bereaved(&run, &status)) {
        int left = kvg_replay_survive(&run);
        kvg_replay_run_free(&run);
        return left;
    }
    if (status == KVG_OK && options->trail != NULL) {
        status = kvg_replay_trail_write(&run.shared.trail, options->trail, launch->bootstrap.rank);
    }
    if (status == KVG_OK) {
        status = kvg_replay_metrics_write(&run.metrics);
    }
    status = kvg_replay_agree_why(launch, status, run.shared.refused);
    int exit_status = status == KVG_OK ? report(options, launch, vote, &run) : KVG_EXIT_FAILED;
    kvg_replay_run_free(&run);
    return exit_status;
}

static int serve_on_grid(const ReplayOptions *options, ReplayLaunch *launch, const ReplayInput *input)
{
    KvgGrid      *grid = NULL;
    KvgPlacement *placement = NULL;
    ReplayVote    vote = { 0 };
    ReplayDevice  device = { 0 };
    int           exit_status;
    KvgStatus     status = kvg_replay_agree(launch, kvg_replay_place(options, launch)); /* before any memory is got */
    if (status == KVG_OK) {
        status = kvg_replay_agree(launch, kvg_replay_vote_check(options));
    }
    if (status == KVG_OK) { /* before the device is looked at: communicators take memory of it */
        status = kvg_replay_agree(launch, kvg_replay_vote_open(options, launch, &input->policy, input->sequences, &vote));
    }
    if (status == KVG_OK) {
        status = kvg_replay_agree(launch, kvg_replay_device_open(options, launch->device, &device));
    }
    if (status == KVG_OK) {
        status = kvg_replay_agree(launch, create_grid(options, launch, input, &vote, &grid));
    }
    if (status == KVG_OK) {
        status = kvg_replay_agree(launch, place(options, input, &device, grid, &placement));
    }
    /* Memory that was asked for and holds nothing is bad use; a machine that has none is a failure. */
    exit_status = status == KVG_ENOMEM && options->memory != 0 ? KVG_EXIT_USE : kvg_command_exit_status(status);
    if (status == KVG_OK) {
        if (launch->bootstrap.rank == 0) {
            kvg_replay_print_opening(options, kvg_placement_plan(placement), input->formats,
                                     memory_on(options, input, &device), input->count);
        }
        exit_status = serve(options, launch, input, &vote, &device, grid, placement);
    }
    kvg_replay_launch_ending(launch);
    if (placement != NULL) {
        kvg_placement_destroy(placement);
    }
    if (grid != NULL) {
        kvg_grid_destroy(grid);
    } else {
        kvg_replay_vote_close(&vote);
    }
    kvg_replay_device_close(&device);
    return exit_status;
}

/* The rank that the launcher gave this process, before MPI is asked: --help is printed by one of them. */
static int is_first_process(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    rank = rank != NULL ? rank : getenv("PMIX_RANK");
    return rank == NULL || strcmp(rank, "0") == 0;
}

/* The run of a rank that has been launched. */
static int replay_on(const ReplayOptions *options, ReplayLaunch *launch)
{
    ReplayInput input = { 0 };
    int         exit_status = kvg_command_exit_status(kvg_replay_agree(launch, load_input(options, launch, &input)));
    if (exit_status == KVG_EXIT_DONE) {
        exit_status = kvg_command_exit_status(kvg_replay_agree(launch, compare_input(options, launch, &input)));
    }
    if (exit_status == KVG_EXIT_DONE) {
        exit_status = kvg_command_exit_status(plan_memory(options, launch, &input));
    }
    if (exit_status == KVG_EXIT_DONE) {
        exit_status = serve_on_grid(options, launch, &input);
    }
    free_input(&input);
    kvg_replay_launch_stop(launch);
    return exit_status;
}

int kvg_command_replay(int argc, char **argv)
{
    ReplayOptions options = { 0 };
    ReplayLaunch  launch;
    KvgStatus     status = kvg_replay_options_parse(argc, argv, &options);
    if (status == KVG_OK && options.help) {
        if (is_first_process()) {
            kvg_replay_options_print(stdout);
        }
        return KVG_EXIT_DONE;
    }
    if (status == KVG_OK && options.ranks > 0) {
        status = kvg_replay_check_forking();
    }
    if (status == KVG_OK && options.ranks > 0) {
        return kvg_replay_fork_run(&options, replay_on);
    }
    char sentence[512]; /* of the options: starting MPI may leave another one */
    snprintf(sentence, sizeof sentence, "%s", kvg_last_error());
    KvgStatus started = kvg_replay_launch_start(&launch);
    status = status == KVG_OK ? started : kvg_fail(status, "%s", sentence);
    int exit_status = kvg_command_exit_status(kvg_replay_agree(&launch, status));
    if (exit_status == KVG_EXIT_DONE) {
        return replay_on(&options, &launch);
    }
    kvg_replay_launch_stop(&launch);
    return exit_status;
}

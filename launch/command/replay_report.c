/* Replay's words. */
#include "launch/command/replay_report.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/command/plan_report.h"
#include "runtime/base/memory.h"
#include "runtime/comm/clock.h"

/* stderr is a terminal here, or was one for the mpirun that passes it on. */
static int on_terminal(void)
{
    char path[64], target[64] = "";
    if (isatty(STDERR_FILENO)) {
        return 1;
    }
    if (getenv("OMPI_COMM_WORLD_SIZE") == NULL) {
        return 0;
    }
    snprintf(path, sizeof path, "/proc/%ld/fd/2", (long)getppid());
    ssize_t length = readlink(path, target, sizeof target - 1);
    return length > 0 && (strncmp(target, "/dev/pts/", 9) == 0 || strncmp(target, "/dev/tty", 8) == 0);
}

ReplayProgress kvg_replay_progress_start(const ReplayRun *run)
{
    uint64_t now = kvg_clock_ns();
    return (ReplayProgress){ run->shared.rank == 0 && run->rows_total > 0 && on_terminal(), now, now };
}

void kvg_replay_progress_show(ReplayProgress *progress, const ReplayRun *run)
{
    enum { WIDTH = 40 };
    uint64_t now = progress->shown ? kvg_clock_ns() : 0;
    if (!progress->shown || now < progress->next_ns) {
        return;
    }
    progress->next_ns = now + 200000000u;
    int    filled = (int)(run->shared.rows * WIDTH / run->rows_total);
    double seconds = 1e-9 * (double)(now - progress->start_ns);
    fprintf(stderr, "\r[%.*s%*s] %3d %%  %" PRIu64 "/%" PRIu64 " rows  %.0f s ", filled, "########################################",
            WIDTH - filled, "", (int)(run->shared.rows * 100 / run->rows_total), run->shared.rows, run->rows_total, seconds);
    fflush(stderr);
}

void kvg_replay_progress_end(ReplayProgress *progress)
{
    if (progress->shown) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
    }
}

static const char *lossy(KvFormat format)
{
    return kvg_format_is_lossy(format) ? " (lossy)" : "";
}

/* Adds to the text, from `used` on; how much is used then. Cut where it does not fit. */
static size_t add_words(char *text, size_t bytes, size_t used, const char *format, ...)
{
    va_list arguments;
    if (used >= bytes) {
        return used;
    }
    va_start(arguments, format);
    int written = vsnprintf(text + used, bytes - used, format, arguments);
    va_end(arguments);
    return used + (written > 0 ? (size_t)written : 0);
}

static int has_kind(const ModelConfig *config, KvStateKind kind)
{
    for (uint32_t il = 0; il < config->plan.n_layer + config->plan.n_mtp; il++) {
        if (config->plan.layers[il].kind == kind) {
            return 1;
        }
    }
    return 0;
}

void kvg_replay_formats(const KvGridPlan *plan, const ModelConfig *config, KvFormat latent, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t il = 0; il < plan->n_layer; il++) {
        uint32_t earlier = 0;
        while (earlier < il && (plan->format_k[earlier] != plan->format_k[il] || plan->format_v[earlier] != plan->format_v[il])) {
            earlier++;
        }
        if (earlier == il && plan->format_k[il] != KVG_POLICY) { /* not told already, and K/V rows */
            used = add_words(text, bytes, used, "%sK %s%s, V %s%s", used > 0 ? "; other layers " : "", kvg_format_name(plan->format_k[il]),
                             lossy(plan->format_k[il]), kvg_format_name(plan->format_v[il]), lossy(plan->format_v[il]));
        }
    }
    if (has_kind(config, KVG_STATE_LATENT)) {
        used = add_words(text, bytes, used, "%slatent rows %s", used > 0 ? "; " : "", kvg_format_name(latent == KVG_POLICY ? KVG_F32 : latent));
    }
    if (has_kind(config, KVG_STATE_RECURRENT)) {
        used = add_words(text, bytes, used, "%srecurrent state f32", used > 0 ? "; " : "");
    }
}

void kvg_replay_print_opening(const ReplayOptions *options, const KvGridPlan *plan, const char *formats, uint64_t memory, uint64_t count)
{
    char size[32];
    printf("%s; %s on %ux%u ranks (tp x pp), %" PRIu64 " requests, up to %u at a time, %s a rank\n", formats, options->model, plan->tp,
           plan->pp, count, plan->slots, kvg_plan_size(memory, size));
    fflush(stdout);
}

static int compare_u64(const void *left, const void *right)
{
    uint64_t a, b;
    memcpy(&a, left, sizeof a);
    memcpy(&b, right, sizeof b);
    return (a > b) - (a < b);
}

uint64_t kvg_replay_percentile(uint64_t *values, size_t count, unsigned percent)
{
    KVG_ASSERT(percent <= 100);
    if (count == 0) {
        return 0;
    }
    qsort(values, count, sizeof *values, compare_u64);
    size_t at = (count * percent + 99) / 100; /* nearest rank, from 1 */
    return values[at > 0 ? at - 1 : 0];
}

/* Rows, columns and index rings lie in ranges of whole grains, where the device reserves them; tables, counts and what is worked in do not. */
static uint64_t count_allocations(const ReplayShared *shared)
{
    enum { OF_THE_STORE = 8 };
    const int reserves = shared->device->is_gpu && shared->device->dev.ops->reserve != NULL;
    return OF_THE_STORE + (reserves ? 0 : REPLAY_ROW_PLANES_MAX * (uint64_t)shared->planes.count);
}

uint64_t kvg_replay_driver_slack(const ReplayRankEnd *end)
{
    enum { OF_THE_DRIVER = 4 };
    return (end->allocations + OF_THE_DRIVER) * end->driver.grain;
}

static KvgStatus gather_ranks(const ReplayRun *run, const KvgStats *stats, ReplayResult *result)
{
    const KvgBootstrap *bootstrap = &run->launch->bootstrap;
    const ReplayShared *shared = &run->shared;
    void               *memory = NULL;
    ReplayRankEnd mine = { .peak = shared->peak, .checked_rows = shared->check.rows, .mismatches = shared->check.mismatches };
    mine.end = (ReplayBytes){ stats->content_bytes, stats->booked_bytes, stats->taken_bytes };
    mine.nonfinite = stats->nonfinite;
    mine.saturated = stats->saturated;
    mine.fault_done = (uint64_t)shared->fault_done;
    mine.allocations = count_allocations(shared);
    mine.driver = shared->driver;
    if (shared->device->is_gpu) { /* a rank with its state on the host may have one for its votes */
        memcpy(mine.device, run->launch->device_id, sizeof mine.device);
    }
    memcpy(mine.first, shared->check.first, sizeof mine.first);
    KVG_TRY(kvg_calloc((size_t)bootstrap->ranks, sizeof mine, "the ranks' ends", &memory));
    KvgStatus status = bootstrap->allgather(bootstrap->user, &mine, memory, sizeof mine, run->launch->timeout_ms);
    if (status != KVG_OK) {
        kvg_free(memory);
        return status;
    }
    result->ranks = memory;
    result->rank_count = bootstrap->ranks;
    return KVG_OK;
}

KvgStatus kvg_replay_result_gather(const ReplayRun *run, ReplayResult *result)
{
    const ReplayShared *shared = &run->shared;
    KvgStats            stats = { .size = sizeof stats };
    *result = (ReplayResult){ .requests = shared->queue.count, .tokens = run->rows_total, .turned_out = shared->turned_out,
                              .replayed = shared->replayed };
    KVG_TRY(kvg_stats(shared->placement, &stats));
    KVG_TRY(kvg_replay_digests_final(&shared->digests, &result->digest));
    KVG_TRY(gather_ranks(run, &stats, result));
    for (int rank = 0; rank < result->rank_count; rank++) {
        result->checked_rows += result->ranks[rank].checked_rows;
        result->mismatches += result->ranks[rank].mismatches;
    }
    for (uint64_t index = 0; index < shared->queue.count; index++) {
        result->refused += shared->queue.states[index] == REPLAY_REFUSED;
    }
    result->commits = stats.commits;
    result->rollbacks = stats.rollbacks;
    result->grows = stats.grows;
    result->differing = shared->digests.differing;
    result->seconds = run->seconds;
    result->rows_per_second = run->seconds > 0 ? (double)result->tokens / run->seconds : 0;
    result->vote_p50_us = 1e-3 * (double)kvg_replay_percentile(shared->latencies.ns, shared->latencies.count, 50);
    result->vote_p99_us = 1e-3 * (double)kvg_replay_percentile(shared->latencies.ns, shared->latencies.count, 99);
    result->formats = run->formats;
    return KVG_OK;
}

void kvg_replay_result_free(ReplayResult *result)
{
    kvg_free(result->ranks);
    *result = (ReplayResult){ 0 };
}

int kvg_replay_device_ranks(const ReplayResult *result, int rank)
{
    const ReplayRankEnd *at = &result->ranks[rank];
    int                  count = 0;
    for (int other = 0; other < result->rank_count && at->driver.grain != 0; other++) {
        count += result->ranks[other].driver.grain != 0 && memcmp(result->ranks[other].device, at->device, sizeof at->device) == 0;
    }
    return count;
}

/* Our count beside the driver's. */
static void print_driver(const ReplayResult *result, int rank)
{
    const ReplayRankEnd *at = &result->ranks[rank];
    const int64_t        apart = at->driver.driver - (int64_t)at->driver.counted;
    const uint64_t       distance = (uint64_t)(apart < 0 ? -apart : apart), slack = kvg_replay_driver_slack(at);
    const int            sharing = kvg_replay_device_ranks(result, rank);
    if (sharing == 0) {
        return;
    }
    printf("rank %-6d driver: %" PRId64 " bytes fewer free than before, %" PRIu64 " taken by our count, %" PRIu64 " of them for state; ", rank,
           at->driver.driver, at->driver.counted, at->peak.taken);
    if (sharing > 1) { /* what is free then is what all of them leave, and they come and go at moments of their own */
        printf("not compared, since %d ranks share this device\n", sharing);
    } else if (distance <= slack) {
        printf("equal but for %" PRId64 ", within what %" PRIu64 " allocations are rounded up by\n", apart, at->allocations);
    } else {
        printf("NOT EQUAL, %" PRId64 " apart where %" PRIu64 " is rounding: another process uses the device, or memory is taken that nobody counts\n",
               apart, slack);
    }
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* A fault that a run outlives is told of, since its exit status does not. */
static void print_fault(const ReplayFault *fault, const ReplayResult *result)
{
    char text[REPLAY_FAULT_WORDS];
    if (fault->kind != REPLAY_FAULT_NONE && result->ranks[fault->rank].fault_done && kvg_replay_fault_words(fault, text)[0] != '\0') {
        printf("fault       %s\n", text);
    }
}

void kvg_replay_print_summary(const ReplayOptions *options, const ReplayResult *result)
{
    char hex[33];
    kvg_digest_hex(&result->digest, hex);
    printf("requests    %" PRIu64 ", refused %" PRIu64 " (longer than the model's context), preempted for memory and served again %" PRIu64
           "\n",
           result->requests, result->refused, result->turned_out);
    printf("tokens      %" PRIu64 " in %.2f s: %.0f state rows/s (no model compute)\n", result->tokens, result->seconds,
           result->rows_per_second);
    printf("steps       %" PRIu64 " commit%s, %" PRIu64 " rollback%s, %" PRIu64 " grow%s; vote p50 %.1f us, p99 %.1f us (post to decided)\n",
           result->commits, plural(result->commits), result->rollbacks, plural(result->rollbacks), result->grows, plural(result->grows),
           result->vote_p50_us, result->vote_p99_us);
    printf("vote        %s\n", result->vote);
    kvg_replay_place_print(result->binding, result->rank_count);
    if (result->replayed > 0) {
        printf("replayed    %" PRIu64 " accepted rows, into recurrent state or an index ring that stood before them\n", result->replayed);
    }
    for (int rank = 0; rank < result->rank_count; rank++) {
        const ReplayRankEnd *at = &result->ranks[rank];
        char                 peak[3][32], end[3][32];
        printf("rank %-6d content %s, booked %s, taken %s at most; at the end %s, %s, and %s kept for reuse\n", rank, kvg_plan_size(at->peak.content, peak[0]),
               kvg_plan_size(at->peak.booked, peak[1]), kvg_plan_size(at->peak.taken, peak[2]), kvg_plan_size(at->end.content, end[0]),
               kvg_plan_size(at->end.booked, end[1]), kvg_plan_size(at->end.taken, end[2]));
        print_driver(result, rank);
    }
    if (result->checked_rows > 0) {
        printf("verify      %" PRIu64 " rows against a fresh encode, %" PRIu64 " mismatches\n", result->checked_rows, result->mismatches);
    }
    print_fault(&options->fault, result);
    printf("digest      %s\n", hex);
}

static json_t *rank_object(const ReplayResult *result, int rank)
{
    const ReplayRankEnd *at = &result->ranks[rank];
    const char          *binding = result->binding != NULL ? result->binding[rank] : "";
    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:s}", "rank", rank, "content_bytes", (json_int_t)at->peak.content, "booked_bytes",
                     (json_int_t)at->peak.booked, "taken_bytes", (json_int_t)at->peak.taken, "content_bytes_end",
                     (json_int_t)at->end.content, "booked_bytes_end", (json_int_t)at->end.booked, "taken_bytes_end",
                     (json_int_t)at->end.taken, "device_taken_bytes", (json_int_t)at->driver.counted, "driver_taken_bytes",
                     (json_int_t)at->driver.driver, "device_ranks", kvg_replay_device_ranks(result, rank), "binding", binding);
}

KvgStatus kvg_replay_print_json(const ReplayOptions *options, const ReplayResult *result)
{
    char    hex[33];
    json_t *ranks = json_array();
    kvg_digest_hex(&result->digest, hex);
    for (int rank = 0; rank < result->rank_count; rank++) {
        json_array_append_new(ranks, rank_object(result, rank));
    }
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:I, s:i, s:i, s:s, s:s, s:o, s:s}", "requests",
        (json_int_t)result->requests, "refused", (json_int_t)result->refused, "tokens", (json_int_t)result->tokens,
        "state_rows_per_second", result->rows_per_second, "seconds", result->seconds, "commits", (json_int_t)result->commits, "rollbacks",
        (json_int_t)result->rollbacks, "grows", (json_int_t)result->grows, "preempted", (json_int_t)result->turned_out,
        "replayed_rows", (json_int_t)result->replayed, "vote_p50_us",
        result->vote_p50_us, "vote_p99_us", result->vote_p99_us, "verified_rows", (json_int_t)result->checked_rows, "mismatches",
        (json_int_t)(result->mismatches + result->differing), "tp", (int)options->tp, "pp", (int)options->pp, "formats", result->formats, "vote",
        result->vote, "ranks", ranks, "digest", hex);
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (object != NULL) {
        json_decref(object);
    }
    if (text == NULL) {
        return kvg_fail(KVG_ENOMEM, "no memory for the summary as JSON: close other programs");
    }
    puts(text);
    free(text);
    return KVG_OK;
}

KvgStatus kvg_replay_result_judge(const ReplayOptions *options, const ReplayRun *run, const ReplayResult *result)
{
    for (int rank = 0; rank < result->rank_count; rank++) {
        if (result->ranks[rank].mismatches > 0) {
            return kvg_fail(KVG_ETAINTED,
                            "rank %d: %s; %" PRIu64 " of %" PRIu64 " sampled rows differ in all: memory of that rank changed behind kvgrid",
                            rank, result->ranks[rank].first, result->mismatches, result->checked_rows);
        }
    }
    if (result->differing > 0) {
        return kvg_fail(KVG_ETAINTED, "%" PRIu64 " requests ended with unequal copies of a head on two ranks; %s", result->differing,
                        run->shared.digests.first);
    }
    if (options->fault.kind != REPLAY_FAULT_NONE && !result->ranks[options->fault.rank].fault_done) {
        return kvg_fail(KVG_EINVAL,
                        "--fault never struck: the run had %" PRIu64 " steps, %" PRIu64 " growths and %.1f s, and its fault waits for %s %" PRIu64
                        ": give a lower number, or more requests",
                        result->commits + result->rollbacks, result->grows, result->seconds,
                        kvg_replay_fault_is_timed(&options->fault) ? "millisecond" : options->fault.kind == REPLAY_FAULT_OOM ? "growth" : "step",
                        options->fault.step);
    }
    return KVG_OK;
}

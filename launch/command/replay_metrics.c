/* Replay's metrics. */
#include "launch/command/replay_metrics.h"

#include "launch/command/whole_file.h"
#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/memory.h"

enum { EVERY_NS = 1000000000 };

KvgStatus kvg_replay_metrics_create(const ReplayOptions *options, const char *model, KvgGrid *grid, KvgPlacement *placement, ReplayMetrics *metrics)
{
    *metrics = (ReplayMetrics){ .path = options->metrics, .model = model, .placement = placement, .rank = kvg_grid_rank(grid),
                                .rank_count = kvg_grid_ranks(grid), .gap = 1 };
    if (options->metrics == NULL && options->report == NULL) {
        return KVG_OK;
    }
    KVG_TRY(KVG_NEW((size_t)metrics->rank_count, "the ranks' counters", &metrics->ranks));
    metrics->ranks[0].size = sizeof(KvgStats);
    if (options->report != NULL) {
        KVG_TRY(KVG_NEW((size_t)metrics->rank_count, "the ranks' series", &metrics->series));
    }
    return KVG_OK;
}

void kvg_replay_metrics_free(ReplayMetrics *metrics)
{
    kvg_free(metrics->ranks);
    kvg_free(metrics->series);
    kvg_free(metrics->text);
    *metrics = (ReplayMetrics){ 0 };
}

uint64_t kvg_replay_metrics_gap(uint64_t gap, uint64_t took_ns)
{
    if (took_ns < EVERY_NS / 2) {
        return 2 * gap;
    }
    return kvg_max_u64(took_ns > 2 * (uint64_t)EVERY_NS ? gap / 2 : (uint64_t)((double)gap * EVERY_NS / (double)took_ns), 1);
}

static KvgStatus need_text(ReplayMetrics *metrics, size_t bytes)
{
    void *memory = NULL;

    if (bytes <= metrics->text_bytes) {
        return KVG_OK;
    }
    KVG_TRY(kvg_calloc(2 * bytes, 1, "the metrics as text", &memory));
    kvg_free(metrics->text);
    metrics->text = memory;
    metrics->text_bytes = 2 * bytes;
    return KVG_OK;
}

KvgStatus kvg_replay_metrics_write(ReplayMetrics *metrics)
{
    const KvgLabel  model = { "model", metrics->model };
    const uint32_t  count = (uint32_t)metrics->rank_count;
    size_t          needed = 0;
    WholeFile       file;

    if (metrics->path == NULL || metrics->rank != 0) {
        return KVG_OK;
    }
    KVG_TRY(kvg_stats_prometheus(metrics->ranks, count, &model, 1, NULL, 0, &needed));
    KVG_TRY(need_text(metrics, needed));
    KVG_TRY(kvg_stats_prometheus(metrics->ranks, count, &model, 1, metrics->text, metrics->text_bytes, &needed));
    KVG_TRY(kvg_whole_file_begin("--metrics", metrics->path, &file));
    fwrite(metrics->text, 1, needed - 1, file.stream);
    return kvg_whole_file_end(&file, KVG_OK);
}

KvgStatus kvg_replay_metrics_round(ReplayMetrics *metrics)
{
    if (metrics->path == NULL || metrics->round++ < metrics->next) {
        return KVG_OK;
    }
    KVG_TRY(kvg_stats_over_grid(metrics->placement, metrics->ranks, NULL));
    if (metrics->heard_ns != 0) {
        metrics->gap = kvg_replay_metrics_gap(metrics->gap, metrics->ranks[0].uptime_ns - metrics->heard_ns);
    }
    metrics->heard_ns = metrics->ranks[0].uptime_ns;
    metrics->next = metrics->round - 1 + metrics->gap;
    (void)kvg_replay_metrics_write(metrics); /* the last one says why it cannot be */
    return KVG_OK;
}

KvgStatus kvg_replay_metrics_end(ReplayMetrics *metrics)
{
    if (metrics->ranks == NULL) {
        return KVG_OK;
    }
    return kvg_stats_over_grid(metrics->placement, metrics->ranks, NULL);
}

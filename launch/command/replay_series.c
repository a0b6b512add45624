/* Replay's series. */
#include "launch/command/replay_series.h"

#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

enum { FIRST_WIDTH_NS = 1000000 };

_Static_assert(REPLAY_BINS % 2 == 0, "neighbours are joined");

void kvg_replay_series_start(ReplaySeries *series, ReplaySeen *seen, uint64_t now_ns)
{
    memset(series, 0, sizeof *series);
    memset(seen, 0, sizeof *seen);
    series->from_ns = now_ns;
    series->width_ns = FIRST_WIDTH_NS;
}

static void join(ReplayBin *bin, const ReplayBin *later)
{
    bin->content = kvg_max_u64(bin->content, later->content);
    bin->booked = kvg_max_u64(bin->booked, later->booked);
    bin->taken = kvg_max_u64(bin->taken, later->taken);
    bin->rows += later->rows;
    bin->votes += later->votes;
    bin->refusals += later->refusals;
    bin->latency_ns += later->latency_ns;
    bin->notes += later->notes;
}

static void halve(ReplaySeries *series)
{
    for (int i = 0; i < REPLAY_BINS / 2; i++) {
        ReplayBin joined = series->bins[2 * i];
        join(&joined, &series->bins[2 * i + 1]);
        series->bins[i] = joined;
    }
    memset(&series->bins[REPLAY_BINS / 2], 0, REPLAY_BINS / 2 * sizeof series->bins[0]);
    series->width_ns *= 2;
    series->count = (series->count + 1) / 2;
}

static uint64_t refusals_of(const KvgStats *stats)
{
    uint64_t sum = stats->rollbacks;

    for (int status = 0; status < KVG_STATUS_COUNT; status++) {
        sum += stats->refusals[status];
    }
    return sum;
}

void kvg_replay_series_note(ReplaySeries *series, ReplaySeen *seen, uint64_t now_ns, const KvgStats *stats)
{
    const ReplaySeen now = { stats->rows, stats->votes, refusals_of(stats), stats->vote_latency_ns };
    const ReplayBin  noted = { stats->content_bytes, stats->booked_bytes, stats->taken_bytes, now.rows - seen->rows, now.votes - seen->votes,
                               now.refusals - seen->refusals, now.latency_ns - seen->latency_ns, 1 };

    if (series->width_ns == 0) {
        return;
    }
    while ((now_ns - series->from_ns) / series->width_ns >= REPLAY_BINS) {
        halve(series);
    }
    const uint64_t i = (now_ns - series->from_ns) / series->width_ns;
    join(&series->bins[i], &noted);
    series->count = kvg_max_u64(series->count, i + 1);
    *seen = now;
}

void kvg_replay_series_end(ReplaySeries *series)
{
    KVG_ASSERT(series->count <= REPLAY_BINS);
    for (uint64_t i = 1; i < series->count; i++) {
        ReplayBin *bin = &series->bins[i];
        if (bin->notes == 0) {
            bin->content = bin[-1].content;
            bin->booked = bin[-1].booked;
            bin->taken = bin[-1].taken;
        }
    }
}

/* HcTapSink: tapped layers of models with several residual streams, as the mean of the streams, in host rows.
 *
 *   stage    [own][t][hc_mult][hidden] f32, device memory, staged sinks alone: the streams as they came
 *   scratch  [SCRATCH_ROWS][hc_mult][hidden] f32, host memory: the mean is formed here, on one processor in one order, so that
 *            every device gives the same bits */
#include "runtime/state/tap_rows.h"

#include <inttypes.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

#define SCRATCH_ROWS 32u

struct HcTapSink {
    KvTapRows rows;
    KvDev     dev;     /* of the streams; the rows are host memory */
    uint32_t  hc_mult;
    int       staged;
    float    *stage;   /* NULL: not staged, or nothing here is tapped */
    float    *scratch;
};

/* ---- making */

static uint64_t streams_elements(const HcTapSink *sink)
{
    return (uint64_t)sink->hc_mult * sink->rows.hidden;
}

static KvgStatus make_stage(HcTapSink *sink)
{
    uint64_t bytes = 0;
    void    *stage = NULL;

    if (!sink->staged || sink->rows.own == 0) {
        return KVG_OK;
    }
    if (!kvg_mul_u64(kvg_tap_rows_bytes(&sink->rows), sink->hc_mult, &bytes)) {
        return kvg_fail(KVG_EOVERFLOW, "HcTapSink: %" PRIu64 " rows of %u streams: their bytes do not fit 64 bits", sink->rows.t, sink->hc_mult);
    }
    bytes = bytes / sink->rows.n_taps * sink->rows.own; /* this stage's slots alone */
    KVG_TRY(sink->dev.ops->uninit(sink->dev.self, bytes, &stage));
    sink->stage = stage;
    return KVG_OK;
}

static KvgStatus make(HcTapSink *sink)
{
    void *scratch = NULL;

    KVG_TRY(KVG_NEW(kvg_tap_rows_bytes(&sink->rows), "rows of an HcTapSink", &sink->rows.data));
    KVG_TRY(kvg_calloc(streams_elements(sink), SCRATCH_ROWS * sizeof(float), "an HcTapSink", &scratch));
    sink->scratch = scratch;
    return make_stage(sink);
}

KvgStatus kvg_hc_tap_new(KvDev *dev, const uint32_t *layers, uint32_t n_taps, uint32_t lo, uint32_t hi, uint32_t hidden,
                         uint32_t hc_mult, uint64_t rows, uint64_t origin, int staged, HcTapSink **sink_p)
{
    HcTapSink *sink;
    KvgStatus  status;

    if (dev == NULL || dev->ops == NULL || sink_p == NULL || hc_mult == 0) {
        return kvg_fail(KVG_EINVAL, "kvg_hc_tap_new needs a device, at least one stream (hc_mult %u) and a place for the sink", hc_mult);
    }
    KVG_TRY(KVG_NEW(1, "an HcTapSink", &sink));
    sink->dev = *dev;
    sink->hc_mult = hc_mult;
    sink->staged = staged != 0;
    KVG_TRY_GOTO(kvg_tap_rows_create("HcTapSink", layers, n_taps, lo, hi, hidden, rows, KVG_F32, &sink->rows), err_free);
    sink->rows.origin = origin;
    KVG_TRY_GOTO(make(sink), err_free);
    *sink_p = sink;
    return KVG_OK;
err_free:
    kvg_hc_tap_free(sink);
    return status;
}

void kvg_hc_tap_free(HcTapSink *sink)
{
    if (sink == NULL) {
        return;
    }
    if (sink->stage != NULL) {
        sink->dev.ops->free(sink->dev.self, sink->stage);
    }
    kvg_free(sink->scratch);
    kvg_free(sink->rows.data);
    kvg_tap_rows_destroy(&sink->rows);
    kvg_free(sink);
}

KvTapRows *kvg_hc_tap_rows_of(HcTapSink *sink) { return &sink->rows; }
float     *kvg_hc_tap_rows(const HcTapSink *sink) { return (float *)(void *)sink->rows.data; }

KvgStatus kvg_hc_tap_arm(HcTapSink *sink, uint64_t base)
{
    if (base < sink->rows.origin) {
        return kvg_fail(KVG_EINVAL, "HcTapSink: a forward that begins at row %" PRIu64 ", before the first row held (origin %" PRIu64 ")", base,
                        sink->rows.origin);
    }
    return kvg_tap_rows_arm(&sink->rows, base - sink->rows.origin);
}

void kvg_hc_tap_disarm(HcTapSink *sink) { sink->rows.armed = 0; }
void kvg_hc_tap_drop(HcTapSink *sink) { kvg_tap_rows_drop(&sink->rows); }

/* ---- values */

/* target[e] = ((x0 + x1) + ...) / hc_mult, in f32, in this order. */
static void mean_row(const float *streams, uint32_t hc_mult, uint32_t hidden, float *target)
{
    for (uint32_t e = 0; e < hidden; e++) {
        float sum = streams[e];
        for (uint32_t s = 1; s < hc_mult; s++) {
            sum += streams[(size_t)s * hidden + e];
        }
        target[e] = sum / (float)hc_mult;
    }
}

/* Streams of rows [r, r+rows), device memory, to the host rows. */
static KvgStatus land(HcTapSink *sink, uint32_t slot, uint64_t r, uint64_t rows, const float *streams, KvgStream stream)
{
    uint64_t elements = streams_elements(sink);

    for (uint64_t done = 0; done < rows;) {
        uint64_t count = kvg_min_u64(rows - done, SCRATCH_ROWS);
        KVG_TRY(sink->dev.ops->dtoh(sink->dev.self, sink->scratch, streams + done * elements, count * elements * sizeof(float), stream));
        KVG_TRY(sink->dev.ops->synchronize(sink->dev.self, stream));
        for (uint64_t i = 0; i < count; i++) {
            mean_row(sink->scratch + i * elements, sink->hc_mult, sink->rows.hidden,
                     (float *)(void *)kvg_tap_rows_at(&sink->rows, r + done + i, slot));
        }
        done += count;
    }
    kvg_tap_rows_mark(&sink->rows, slot, r, rows, KVG_TAP_LANDED);
    return KVG_OK;
}

static float *stage_at(const HcTapSink *sink, uint32_t slot, uint64_t r)
{
    return sink->stage + ((uint64_t)(slot - sink->rows.first) * sink->rows.t + sink->rows.base + r) * streams_elements(sink);
}

KvgStatus kvg_hc_tap_write(HcTapSink *sink, uint32_t layer, uint64_t r, uint64_t rows, const float *streams, KvgStream stream)
{
    uint32_t slot;

    KVG_TRY(kvg_tap_rows_check(&sink->rows, layer, r, rows, &slot));
    if (slot == sink->rows.n_taps || rows == 0) {
        return KVG_OK;
    }
    if (streams == NULL) {
        return kvg_fail(KVG_EINVAL, "HcTapSink: layer %u: no streams were given", layer);
    }
    kvg_tap_rows_mark(&sink->rows, slot, r, rows, KVG_TAP_NONE); /* a failure part-way leaves none of them written */
    if (!sink->staged) {
        return land(sink, slot, r, rows, streams, stream);
    }
    KVG_TRY(sink->dev.ops->move(sink->dev.self, stage_at(sink, slot, r), streams, rows * streams_elements(sink) * sizeof(float), stream));
    kvg_tap_rows_mark(&sink->rows, slot, r, rows, KVG_TAP_STAGED);
    return KVG_OK;
}

/* Lands one slot's staged rows, run by run. */
static KvgStatus drain_slot(HcTapSink *sink, uint32_t slot, KvgStream stream)
{
    uint64_t end;

    for (uint64_t r = 0; r < sink->rows.touched; r = end) {
        for (end = r; kvg_tap_rows_marked(&sink->rows, end, slot) == KVG_TAP_STAGED;) {
            end++;
        }
        if (end > r) {
            KVG_TRY(land(sink, slot, r, end - r, stage_at(sink, slot, r), stream));
        } else {
            end++;
        }
    }
    return KVG_OK;
}

KvgStatus kvg_hc_tap_drain(HcTapSink *sink, KvgStream stream)
{
    if (!sink->rows.held) {
        return kvg_fail(KVG_ESTALE, "HcTapSink: nothing to drain: it was not armed since it was made or dropped");
    }
    for (uint32_t slot = sink->rows.first; sink->rows.staged > 0 && slot < sink->rows.first + sink->rows.own; slot++) {
        KVG_TRY(drain_slot(sink, slot, stream));
    }
    KVG_ASSERT(sink->rows.staged == 0);
    return KVG_OK;
}

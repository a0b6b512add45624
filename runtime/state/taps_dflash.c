/* DflashTapSink: hidden states of tapped layers, bit for bit, in one device buffer that a draft model reads. */
#include "runtime/state/tap_rows.h"

#include "runtime/base/memory.h"

struct DflashTapSink {
    KvTapRows rows;
};

KvgStatus kvg_dflash_tap_new(KvDev *dev, const uint32_t *layers, uint32_t n_taps, uint32_t lo, uint32_t hi, uint32_t hidden,
                             uint64_t rows, KvFormat dtype, DflashTapSink **sink_p)
{
    void          *data = NULL;
    DflashTapSink *sink;
    KvgStatus      status;

    if (dev == NULL || dev->ops == NULL || sink_p == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_dflash_tap_new needs a device and a place for the sink");
    }
    KVG_TRY(KVG_NEW(1, "a DflashTapSink", &sink));
    KVG_TRY_GOTO(kvg_tap_rows_create("DflashTapSink", layers, n_taps, lo, hi, hidden, rows, dtype, &sink->rows), err_free);
    KVG_TRY_GOTO(dev->ops->uninit(dev->self, kvg_tap_rows_bytes(&sink->rows), &data), err_destroy);
    sink->rows.dev = *dev;
    sink->rows.data = data;
    *sink_p = sink;
    return KVG_OK;
err_destroy:
    kvg_tap_rows_destroy(&sink->rows);
err_free:
    kvg_free(sink);
    return status;
}

void kvg_dflash_tap_free(DflashTapSink *sink)
{
    if (sink == NULL) {
        return;
    }
    sink->rows.dev.ops->free(sink->rows.dev.self, sink->rows.data);
    kvg_tap_rows_destroy(&sink->rows);
    kvg_free(sink);
}

KvTapRows *kvg_dflash_tap_rows_of(DflashTapSink *sink) { return &sink->rows; }

KvgStatus kvg_dflash_tap_arm(DflashTapSink *sink, uint64_t base)
{
    return kvg_tap_rows_arm(&sink->rows, base);
}

void kvg_dflash_tap_disarm(DflashTapSink *sink) { sink->rows.armed = 0; }
void kvg_dflash_tap_drop(DflashTapSink *sink) { kvg_tap_rows_drop(&sink->rows); }

/* Plain moves, not encode_rows: an encoder would change what is no number, and a tap is a copy. */
static KvgStatus copy_rows(const KvTapRows *tap, uint32_t slot, uint64_t r, uint64_t rows, const uint8_t *source, size_t source_stride,
                           KvgStream stream)
{
    uint8_t *target = kvg_tap_rows_at(tap, r, slot);
    size_t   bytes = (size_t)tap->hidden * tap->element_bytes;

    if (tap->n_taps == 1 && source_stride == bytes) {
        return tap->dev.ops->move(tap->dev.self, target, source, rows * bytes, stream);
    }
    if (tap->dev.ops->move_rows != NULL) {
        return tap->dev.ops->move_rows(tap->dev.self, target, tap->n_taps * bytes, source, source_stride, bytes, rows, stream);
    }
    for (uint64_t i = 0; i < rows; i++) {
        KVG_TRY(tap->dev.ops->move(tap->dev.self, target + i * tap->n_taps * bytes, source + i * source_stride, bytes, stream));
    }
    return KVG_OK;
}

KvgStatus kvg_dflash_tap_write(DflashTapSink *sink, uint32_t layer, uint64_t r, uint64_t rows, const void *hidden_rows,
                               int64_t row_stride, KvgStream stream)
{
    KvTapRows *tap = &sink->rows;
    uint64_t   stride = row_stride == 0 ? tap->hidden : (uint64_t)row_stride;
    uint32_t   slot;

    KVG_TRY(kvg_tap_rows_check(tap, layer, r, rows, &slot));
    if (slot == tap->n_taps || rows == 0) {
        return KVG_OK;
    }
    if (hidden_rows == NULL || row_stride < 0 || stride < tap->hidden) {
        return kvg_fail(KVG_EINVAL, "DflashTapSink: layer %u: rows of hidden size %u are needed, %lld elements apart (0: packed) without overlap",
                        layer, tap->hidden, (long long)row_stride);
    }
    kvg_tap_rows_mark(tap, slot, r, rows, KVG_TAP_NONE); /* a failure part-way leaves none of them written */
    KVG_TRY(copy_rows(tap, slot, r, rows, hidden_rows, stride * tap->element_bytes, stream));
    kvg_tap_rows_mark(tap, slot, r, rows, KVG_TAP_LANDED);
    return KVG_OK;
}

void *kvg_dflash_tap_buffer(const DflashTapSink *sink) { return sink->rows.data; }

int kvg_dflash_tap_written(const DflashTapSink *sink, uint64_t row, uint32_t slot)
{
    return kvg_tap_rows_marked(&sink->rows, row, slot) == KVG_TAP_LANDED;
}

/* A device whose memory the host cannot touch, without a GPU: host memory under addresses that no processor takes (bit 47 is flipped), so any
 * access that is not an operation of the device stops the test. It does at once what a GPU does in stream order. */
#ifndef KVG_TEST_INDIRECT_DEV_H
#define KVG_TEST_INDIRECT_DEV_H

#include <stdlib.h>
#include <string.h>

#include <kvgrid/rows_batch.h>

#include "kernels/cuda_rows.h"
#include "runtime/base/memory.h"

typedef struct IndirectDev {
    KvDev    host;
    uint64_t patches; /* calls */
} IndirectDev;

static inline void *indirect_flip(const void *pointer)
{
    return pointer == NULL ? NULL : (void *)((uintptr_t)pointer ^ (UINT64_C(1) << 47));
}

#define INDIRECT_HOST(self) (((IndirectDev *)(self))->host.ops)
#define INDIRECT_SELF(self) (((IndirectDev *)(self))->host.self)

static inline KvgStatus indirect_zeros(void *self, size_t bytes, void **memory)
{
    void     *fresh = NULL;
    KvgStatus status = INDIRECT_HOST(self)->zeros(INDIRECT_SELF(self), bytes, &fresh);

    if (status == KVG_OK) *memory = indirect_flip(fresh);
    return status;
}

static inline KvgStatus indirect_uninit(void *self, size_t bytes, void **memory)
{
    KvgStatus status = indirect_zeros(self, bytes, memory);

    if (status == KVG_OK) memset(indirect_flip(*memory), 0x5a, bytes);
    return status;
}

static inline void indirect_free(void *self, void *memory)
{
    INDIRECT_HOST(self)->free(INDIRECT_SELF(self), indirect_flip(memory));
}

static inline size_t indirect_granularity(void *self)
{
    return INDIRECT_HOST(self)->granularity(INDIRECT_SELF(self));
}

static inline uint64_t indirect_taken_bytes(void *self)
{
    return INDIRECT_HOST(self)->taken_bytes(INDIRECT_SELF(self));
}

static inline KvgStatus indirect_reserve(void *self, size_t bytes, KvRange *range)
{
    KvgStatus status = INDIRECT_HOST(self)->reserve(INDIRECT_SELF(self), bytes, range);

    if (status == KVG_OK) range->base = indirect_flip(range->base);
    return status;
}

static inline KvgStatus indirect_extend(void *self, KvRange *range, size_t bytes)
{
    size_t had = range->taken;

    range->base = indirect_flip(range->base);
    KvgStatus status = INDIRECT_HOST(self)->extend(INDIRECT_SELF(self), range, bytes);
    memset(range->base + had, 0x5a, range->taken - had); /* contents undefined */
    range->base = indirect_flip(range->base);
    return status;
}

static inline KvgStatus indirect_give_back(void *self, KvRange *range, size_t bytes)
{
    range->base = indirect_flip(range->base);
    KvgStatus status = INDIRECT_HOST(self)->give_back(INDIRECT_SELF(self), range, bytes);
    range->base = indirect_flip(range->base);
    return status;
}

static inline void indirect_release(void *self, KvRange *range)
{
    range->base = indirect_flip(range->base);
    INDIRECT_HOST(self)->release(INDIRECT_SELF(self), range);
}

static inline KvgStatus indirect_htod(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    return INDIRECT_HOST(self)->htod(INDIRECT_SELF(self), indirect_flip(target), source, bytes, stream);
}

static inline KvgStatus indirect_dtoh(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    return INDIRECT_HOST(self)->dtoh(INDIRECT_SELF(self), target, indirect_flip(source), bytes, stream);
}

static inline KvgStatus indirect_move(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    return INDIRECT_HOST(self)->move(INDIRECT_SELF(self), indirect_flip(target), indirect_flip(source), bytes, stream);
}

static inline KvgStatus indirect_set_i32_one(void *self, int32_t *target, int32_t value, KvgStream stream)
{
    return INDIRECT_HOST(self)->set_i32_one(INDIRECT_SELF(self), indirect_flip(target), value, stream);
}

static inline KvgStatus indirect_synchronize(void *self, KvgStream stream)
{
    return INDIRECT_HOST(self)->synchronize(INDIRECT_SELF(self), stream);
}

static inline KvgStatus indirect_event_create(void *self, KvEvent *event)
{
    return INDIRECT_HOST(self)->event_create(INDIRECT_SELF(self), event);
}

static inline void indirect_event_destroy(void *self, KvEvent event)
{
    INDIRECT_HOST(self)->event_destroy(INDIRECT_SELF(self), event);
}

static inline KvgStatus indirect_event_record(void *self, KvEvent event, KvgStream stream)
{
    return INDIRECT_HOST(self)->event_record(INDIRECT_SELF(self), event, stream);
}

static inline KvgStatus indirect_stream_wait(void *self, KvgStream stream, KvEvent event)
{
    return INDIRECT_HOST(self)->stream_wait(INDIRECT_SELF(self), stream, event);
}

static inline KvgStatus indirect_encode_rows(void *self, KvFormat format, const KvRowsIn *in, KvRowsAt at, uint32_t heads, uint32_t dim, uint32_t rows,
                                             KvEncodeCounts *counts, KvgStream stream)
{
    KvRowsIn from = *in;

    from.data = indirect_flip(in->data);
    at.target = indirect_flip(at.target);
    return INDIRECT_HOST(self)->encode_rows(INDIRECT_SELF(self), format, &from, at, heads, dim, rows, indirect_flip(counts), stream);
}

static inline KvgStatus indirect_decode_rows(void *self, KvFormat format, KvRowsAt at, uint32_t heads, uint32_t dim, uint32_t rows, float *target,
                                             KvgStream stream)
{
    at.target = indirect_flip(at.target);
    return INDIRECT_HOST(self)->decode_rows(INDIRECT_SELF(self), format, at, heads, dim, rows, indirect_flip(target), stream);
}

static inline KvgStatus indirect_patch(void *self, uint32_t *words, const KvPatch *pairs, uint32_t count, KvgStream stream)
{
    uint32_t *at = indirect_flip(words);

    (void)stream;
    ((IndirectDev *)self)->patches++;
    for (uint32_t i = 0; i < count; i++) at[pairs[i].index] = pairs[i].value;
    return KVG_OK;
}

static inline KvgStatus indirect_clear(void *self, void *target, size_t bytes, KvgStream stream)
{
    (void)self;
    (void)stream;
    memset(indirect_flip(target), 0, bytes);
    return KVG_OK;
}

static inline KvgStatus indirect_recurrent_pass(void *self, const KvRecurrentPass *pass, KvgStream stream)
{
    KvRecurrentPass at = *pass;

    (void)self;
    (void)stream;
    at.conv = indirect_flip(pass->conv);
    at.state = indirect_flip(pass->state);
    at.x = indirect_flip(pass->x);
    at.u = indirect_flip(pass->u);
    kvg_recurrent_pass(&at);
    return KVG_OK;
}

static inline KvgStatus indirect_encode_batch(void *self, const KvRowsBatch *batch, KvgStream stream)
{
    KvRowsBatch at = *batch;

    (void)self;
    (void)stream;
    for (uint32_t p = 0; p < at.planes; p++) {
        at.plane[p].in.data = indirect_flip(at.plane[p].in.data);
        at.plane[p].to.plane.base = indirect_flip(at.plane[p].to.plane.base);
        at.plane[p].to.table = indirect_flip(at.plane[p].to.table);
        at.plane[p].to.base_row = indirect_flip(at.plane[p].to.base_row);
    }
    at.slots = indirect_flip(at.slots);
    at.rows = indirect_flip(at.rows);
    at.first_row = indirect_flip(at.first_row);
    at.len_staged = indirect_flip(at.len_staged);
    at.first_token = indirect_flip(at.first_token);
    at.counts = indirect_flip(at.counts);
    kvg_encode_batch_ref(&at);
    return KVG_OK;
}

static inline void indirect_close(void *self)
{
    kvg_dev_close(&((IndirectDev *)self)->host);
    kvg_free(self);
}

static const KvDevOps indirect_ops = {
    .name = "indirect", .zeros = indirect_zeros, .uninit = indirect_uninit, .free = indirect_free, .granularity = indirect_granularity,
    .reserve = indirect_reserve, .extend = indirect_extend, .give_back = indirect_give_back, .release = indirect_release,
    .taken_bytes = indirect_taken_bytes, .htod = indirect_htod, .dtoh = indirect_dtoh, .move = indirect_move, .set_i32_one = indirect_set_i32_one,
    .synchronize = indirect_synchronize, .event_create = indirect_event_create, .event_destroy = indirect_event_destroy,
    .event_record = indirect_event_record, .stream_wait = indirect_stream_wait, .encode_rows = indirect_encode_rows,
    .decode_rows = indirect_decode_rows, .patch = indirect_patch, .clear = indirect_clear, .recurrent_pass = indirect_recurrent_pass,
    .encode_batch = indirect_encode_batch, .close = indirect_close,
};

static inline KvgStatus indirect_dev_open(int reserves, KvDev *dev)
{
    static KvDevOps plain_ops;
    IndirectDev    *indirect;
    void           *memory = NULL;
    KvgStatus       status = kvg_calloc(1, sizeof *indirect, "a test's device", &memory);

    if (status != KVG_OK) return status;
    plain_ops = indirect_ops;
    plain_ops.name = "indirect_plain";
    plain_ops.reserve = NULL;
    plain_ops.extend = plain_ops.give_back = NULL;
    plain_ops.release = NULL;
    indirect = memory;
    status = reserves ? kvg_dev_host(&indirect->host) : kvg_dev_host_plain(&indirect->host);
    if (status != KVG_OK) {
        kvg_free(memory);
        return status;
    }
    *dev = (KvDev){.ops = reserves ? &indirect_ops : &plain_ops, .self = indirect};
    return KVG_OK;
}

#endif

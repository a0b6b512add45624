/* Batch: fixed places for sequences, with arrays at fixed addresses. */
#include "pp/internal.h"

#include <string.h>

KvgStatus kvg_batch_create(KvgPlacement *placement, uint32_t slots, KvgBatch **batch_p)
{
    KvgStatus status;
    KvgBatch *batch;
    void     *memory = NULL, *sequences = NULL, *serials = NULL, *slot_of = NULL;

    if (placement == NULL || batch_p == NULL || slots < 1 || slots > placement->options.max_step_sequences) {
        return kvg_fail(KVG_EINVAL, "a batch of %u places: it takes 1 to %u (max_step_sequences of the placement)", slots,
                        placement == NULL ? 0 : placement->options.max_step_sequences);
    }
    KVG_TRY(kvg_calloc(1, sizeof *batch, "a batch", &memory));
    KVG_TRY_GOTO(kvg_calloc(slots, sizeof(KvgSequence *), "a batch", &sequences), err_free);
    KVG_TRY_GOTO(kvg_calloc(slots, sizeof(uint64_t), "a batch", &serials), err_free);
    KVG_TRY_GOTO(placement->device.ops->uninit(placement->device.self, slots * sizeof(int32_t), &slot_of), err_free);
    batch = memory;
    *batch = (KvgBatch){ .placement = placement, .slots = slots, .sequence = sequences, .serial = serials, .slot_of = slot_of };
    for (uint32_t i = 0; i < slots; i++) {
        KVG_TRY_GOTO(placement->device.ops->set_i32_one(placement->device.self, &batch->slot_of[i], -1, NULL), err_free);
    }
    placement->batches++;
    *batch_p = batch;
    return KVG_OK;
err_free:
    if (slot_of != NULL) {
        placement->device.ops->free(placement->device.self, slot_of);
    }
    kvg_free(serials);
    kvg_free(sequences);
    kvg_free(memory);
    return status;
}

void kvg_batch_destroy(KvgBatch *batch)
{
    if (batch == NULL) {
        return;
    }
    for (uint32_t i = 0; i < batch->placement->grid->votes->ring; i++) { /* an open step goes on: its entries name the sequences */
        KvgStep *step = &batch->placement->grid->votes->steps[i];
        for (uint32_t b = 0; b < step->batch_count; b++) {
            step->batch[b] = step->batch[b] == batch ? NULL : step->batch[b];
        }
    }
    batch->placement->batches--;
    batch->placement->device.ops->free(batch->placement->device.self, batch->slot_of);
    kvg_free(batch->serial);
    kvg_free(batch->sequence);
    kvg_free(batch);
}

KvgStatus kvg_batch_set(KvgBatch *batch, uint32_t slot, KvgSequence *sequence)
{
    KvDev *device = &batch->placement->device;

    if (slot >= batch->slots || (sequence != NULL && (sequence->placement != batch->placement || !sequence->open))) {
        return kvg_fail(KVG_EINVAL, "place %u of a batch of %u, and an open sequence of the same placement (or NULL), are needed", slot,
                        batch->slots);
    }
    if (batch->open_step != NULL) {
        return kvg_fail(KVG_EBUSY, "step %llu of this batch is begun and not posted; post it before its places change",
                        (unsigned long long)batch->open_step->number);
    }
    KVG_TRY(device->ops->set_i32_one(device->self, &batch->slot_of[slot], sequence != NULL ? (int32_t)sequence->cache.slot : -1, NULL));
    batch->sequence[slot] = sequence;
    batch->serial[slot] = sequence != NULL ? sequence->cache.serial : 0;
    return KVG_OK;
}

const int32_t *kvg_batch_slots(const KvgBatch *batch)
{
    return batch->slot_of;
}

const KvPlaneView *kvg_plane_view(const KvgBatch *batch, uint32_t il)
{
    return kvg_placement_view(batch->placement, il);
}

/* ---- writing the current pass */

static KvgStatus check_rows(const KvgBatch *batch, const KvPlaneView *view, const KvgRows *rows)
{
    if (batch->open_step == NULL) {
        return kvg_fail(KVG_ESTALE, "no step of this batch is begun and unposted: rows are written between kvg_step_begin and kvg_step_post");
    }
    if (rows->size != sizeof *rows || rows->k == NULL || rows->v == NULL ||
        (rows->dtype != KVG_F32 && rows->dtype != KVG_F16 && rows->dtype != KVG_BF16)) {
        return kvg_fail(KVG_EINVAL, "rows of layer %u: start from KVG_ROWS_INIT, give k and v, and dtype KVG_F32, KVG_F16 or KVG_BF16",
                        view->layer);
    }
    return KVG_OK;
}

static size_t element_bytes(KvFormat dtype)
{
    return dtype == KVG_F32 ? 4 : 2;
}

static KvRowsIn rows_in(const void *data, KvFormat type, int64_t token_stride, int64_t head_stride, uint32_t heads, uint32_t dim)
{
    return (KvRowsIn){
        .data = data,
        .type = type,
        .token_stride = token_stride != 0 ? token_stride : (int64_t)heads * dim,
        .head_stride = head_stride != 0 ? head_stride : (int64_t)dim,
    };
}

static const void *at_token(const KvRowsIn *in, uint64_t token)
{
    return (const uint8_t *)in->data + (int64_t)token * in->token_stride * (int64_t)element_bytes(in->type);
}

KvgStatus kvg_write_kv(KvgBatch *batch, uint32_t il, const KvgRows *rows, KvgStream stream)
{
    const KvPlaneView *view = kvg_placement_view(batch->placement, il);
    const KvgStep     *step = batch->open_step;
    uint64_t           token = 0;

    if (view == NULL) {
        return KVG_EINVAL; /* kvg_placement_view has said why */
    }
    if (!view->owns) {
        return kvg_fail(KVG_EINVAL, "layer %u shares the planes of layer %u and keeps none of its own: it reads and never writes", il, view->layer);
    }
    KVG_TRY(check_rows(batch, view, rows));
    if (step->local != KVG_OK) {
        return KVG_OK; /* this rank could not stage every row and will vote no: there is nothing to keep */
    }
    KvRowsIn k = rows_in(rows->k, rows->dtype, rows->token_stride_k, rows->head_stride_k, view->heads, view->k.head_dim);
    KvRowsIn v = rows_in(rows->v, rows->dtype, rows->token_stride_v, rows->head_stride_v, view->heads, view->v.head_dim);
    for (uint32_t slot = 0; slot < batch->slots; slot++) {
        const KvgSequence *sequence = kvg_batch_at(batch, slot);
        uint32_t count = step->rows[batch->first + slot];
        uint64_t first = rows->first_token != NULL ? rows->first_token[slot] : token;
        KvRowsIn k_slot = k, v_slot = v;
        if (count == 0) {
            continue;
        }
        token += count;
        if (sequence == NULL) {
            continue; /* closed since the step began */
        }
        k_slot.data = at_token(&k, first);
        v_slot.data = at_token(&v, first);
        KVG_TRY(kvg_store_write(batch->placement->store, il, sequence->cache.slot, kvg_kv_cache_staged(&sequence->cache) - count, count,
                                &k_slot, &v_slot, stream));
    }
    return KVG_OK;
}

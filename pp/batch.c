/* Batch: fixed places for sequences, with arrays at fixed addresses. */
#include "pp/run_impl.h"

#include <string.h>

KvgStatus kvg_batch_create(KvgPlacement *placement, uint32_t slots, KvgBatch **batch_p)
{
    KvgStatus status;
    KvgBatch *batch;
    void     *memory = NULL, *sequences = NULL, *serials = NULL, *slot_of = NULL, *pass = NULL, *pass_device = NULL;

    if (placement == NULL || batch_p == NULL) return kvg_fail(KVG_EINVAL, "kvg_batch_create needs a placement and a place for the batch");
    if (slots < 1 || slots > placement->options.max_step_sequences) {
        return kvg_fail(KVG_EINVAL, "a batch of %u places: it takes 1 to %u (max_step_sequences of the placement)", slots, placement->options.max_step_sequences);
    }
    KVG_TRY(kvg_placement_awake(placement));
    KVG_TRY(kvg_calloc(1, sizeof *batch, "a batch", &memory));
    KVG_TRY_GOTO(kvg_calloc(slots, sizeof(KvgSequence *), "a batch", &sequences), err_free);
    KVG_TRY_GOTO(kvg_calloc(slots, sizeof(uint64_t), "a batch", &serials), err_free);
    KVG_TRY_GOTO(placement->device.ops->uninit(placement->device.self, slots * sizeof(int32_t), &slot_of), err_free);
    if (kvg_store_batches(placement->store)) {
        KVG_TRY_GOTO(kvg_calloc(2 * 4 * (size_t)slots, sizeof(uint32_t), "a batch", &pass), err_free);
        KVG_TRY_GOTO(placement->device.ops->zeros(placement->device.self, 4 * (size_t)slots * sizeof(uint32_t), &pass_device), err_free);
    }
    batch = memory;
    *batch = (KvgBatch){ .placement = placement, .slots = slots, .sequence = sequences, .serial = serials, .slot_of = slot_of,
                         .pass = pass, .pass_device = pass_device };
    for (uint32_t i = 0; i < slots; i++) {
        KVG_TRY_GOTO(placement->device.ops->set_i32_one(placement->device.self, &batch->slot_of[i], -1, NULL), err_free);
    }
    placement->batches++;
    *batch_p = batch;
    return KVG_OK;
err_free:
    placement->device.ops->free(placement->device.self, pass_device);
    placement->device.ops->free(placement->device.self, slot_of);
    kvg_free(pass);
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
    if (batch->run != NULL && batch->run->graph != NULL) { /* its kernels end at their next look, and what they have published counts */
        kvg_vote_stop(batch->run->control, 1);
        kvg_run_end(batch->run->graph, batch->run->stream, NULL);
    }
    kvg_run_close(batch);
    for (uint32_t i = 0; i < batch->placement->grid->votes->ring; i++) { /* an open step goes on: its entries name the sequences */
        KvgStep *step = &batch->placement->grid->votes->steps[i];
        for (uint32_t b = 0; b < step->batch_count; b++) {
            step->batch[b] = step->batch[b] == batch ? NULL : step->batch[b];
        }
    }
    batch->placement->batches--;
    batch->placement->device.ops->free(batch->placement->device.self, batch->slot_of);
    batch->placement->device.ops->free(batch->placement->device.self, batch->pass_device);
    kvg_free(batch->pass);
    kvg_free(batch->serial);
    kvg_free(batch->sequence);
    kvg_free(batch);
}

KvgStatus kvg_batch_set(KvgBatch *batch, uint32_t slot, KvgSequence *sequence)
{
    KvDev *device;

    if (batch == NULL) return kvg_fail(KVG_EINVAL, "kvg_batch_set needs a batch");
    device = &batch->placement->device;
    if (slot >= batch->slots || (sequence != NULL && (sequence->placement != batch->placement || !sequence->open))) {
        return kvg_fail(KVG_EINVAL, "place %u of a batch of %u, and an open sequence of the same placement (or NULL), are needed", slot,
                        batch->slots);
    }
    if (batch->open_step != NULL) {
        return kvg_fail(KVG_EBUSY, "step %llu of this batch is begun and not posted; post it before its places change",
                        (unsigned long long)batch->open_step->number);
    }
    if (batch->run != NULL && (batch->run->graph != NULL || batch->run->capturing != NULL)) {
        return kvg_fail(KVG_EBUSY, "a capture or a run of this batch is on; end it before its places change");
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

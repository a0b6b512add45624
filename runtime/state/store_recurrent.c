/* Store, recurrent layers: a pass's rows through the columns. Engines do the same in their kernels, from the view.
 *
 * On a device that is not direct the rows are made on the host as well: as many as the stage holds go in one copy, and one launch takes them in order. */
#include "runtime/state/store_impl.h"

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

#define STAGE_BYTES ((size_t)16 << 20) /* of a piece; a single row may be longer */

static KvRecurrentPass pass_of(const KvRecurrentView *view, uint32_t slot, float decay)
{
    return (KvRecurrentPass){.conv = view->conv + slot * view->conv_slot_stride, .state = view->state + slot * view->state_slot_stride,
                             .read = (uint32_t)view->read[slot], .write = (uint32_t)view->write[slot], .each = (uint32_t)view->each[slot],
                             .columns = view->columns, .taps = view->taps, .channels = view->conv_channels, .elements = view->state_elements,
                             .decay = decay};
}

static KvgStatus need_stage(KvStore *store, size_t bytes)
{
    void *wider = NULL;

    if (bytes <= store->stage_bytes) return KVG_OK;
    KVG_TRY(kvg_calloc(1, bytes, "rows of recurrent layers on their way to the device", &wider));
    kvg_free(store->stage);
    store->stage = wider;
    store->stage_bytes = bytes;
    return KVG_OK;
}

/* The stage: x of all rows, then u of all rows. */
static KvgStatus update_mirrored(KvStore *store, uint32_t layer, KvRecurrentPass pass, uint32_t rows, KvRecurrentFillFn fill, void *user,
                                 KvgStream stream)
{
    const size_t   row_bytes = (pass.channels + pass.elements) * sizeof(float);
    const uint32_t most = (uint32_t)kvg_min_u64(rows, kvg_max_u64(1, STAGE_BYTES / row_bytes));

    KVG_TRY(need_stage(store, most * row_bytes));
    KVG_TRY(kvg_store_flush(store, stream));
    for (uint32_t done = 0; done < rows; done += pass.rows) {
        const void *lent = NULL;

        pass.rows = rows - done < most ? rows - done : most;
        float *x = store->stage, *u = x + pass.rows * pass.channels;
        for (uint32_t i = 0; i < pass.rows; i++) fill(user, layer, done + i, x + i * pass.channels, u + i * pass.elements);
        KVG_TRY(kvg_store_lend(store, store->stage, pass.rows * row_bytes, stream, &lent));
        pass.x = lent;
        pass.u = pass.x + pass.rows * pass.channels;
        KVG_TRY(store->dev->ops->recurrent_pass(store->dev->self, &pass, stream));
        kvg_recurrent_pass_advance(&pass, pass.rows);
    }
    return KVG_OK;
}

KvgStatus kvg_store_recurrent_update(KvStore *store, uint32_t layer_index, uint32_t slot, uint32_t rows, KvRecurrentFillFn fill, void *user,
                                     float decay, float *scratch, KvgStream stream)
{
    const KvRecurrentView *view = kvg_store_recurrent_view(store, layer_index);

    if (view == NULL) {
        return kvg_fail(KVG_EINVAL, "layer %u keeps no recurrent state on this rank: update it where it does", layer_index);
    }
    KvRecurrentPass pass = pass_of(view, slot, decay);
    if (rows == 0) return KVG_OK;
    if (kvg_store_mirrored(store)) return update_mirrored(store, layer_index, pass, rows, fill, user, stream);
    pass.rows = 1;
    pass.x = scratch;
    pass.u = scratch + pass.channels;
    for (uint32_t i = 0; i < rows; i++) {
        fill(user, layer_index, i, scratch, scratch + pass.channels);
        kvg_recurrent_pass(&pass);
        kvg_recurrent_pass_advance(&pass, 1);
    }
    return KVG_OK;
}

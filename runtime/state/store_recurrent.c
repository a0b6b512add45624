/* Store, recurrent layers: a pass's rows through the columns, on the host. Engines do the same in their kernels, from the view. */
#include "runtime/state/store_impl.h"

/* The rows are made on the host and applied on the device, one by one. */
static KvgStatus update_mirrored(KvStore *store, const KvRecurrentView *view, uint32_t slot, uint32_t rows, KvRecurrentFillFn fill, void *user,
                                 float decay, float *scratch, KvgStream stream)
{
    float   *conv = view->conv + slot * view->conv_slot_stride, *state = view->state + slot * view->state_slot_stride;
    uint32_t from = (uint32_t)view->read[slot], to = (uint32_t)view->write[slot];

    KVG_TRY(kvg_store_flush(store, stream));
    for (uint32_t i = 0; i < rows; i++) {
        const void *lent = NULL;

        fill(user, view->layer, i, scratch, scratch + view->conv_channels);
        KVG_TRY(kvg_store_lend(store, scratch, (view->conv_channels + view->state_elements) * sizeof(float), stream, &lent));
        KVG_TRY(store->dev->ops->recurrent_token(store->dev->self, conv + from * view->conv_elements, state + from * view->state_elements, lent,
                                                 (const float *)lent + view->conv_channels, decay, view->conv_channels, view->taps,
                                                 view->state_elements, conv + to * view->conv_elements, state + to * view->state_elements,
                                                 stream));
        from = to;
        if (view->each[slot]) to = (to + 1) % view->columns;
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
    float   *conv = view->conv + slot * view->conv_slot_stride, *state = view->state + slot * view->state_slot_stride;
    float   *x = scratch, *u = scratch + view->conv_channels;
    if (kvg_store_mirrored(store)) return update_mirrored(store, view, slot, rows, fill, user, decay, scratch, stream);
    uint32_t from = (uint32_t)view->read[slot], to = (uint32_t)view->write[slot];

    for (uint32_t i = 0; i < rows; i++) {
        fill(user, layer_index, i, x, u);
        kvg_recurrent_token(conv + from * view->conv_elements, state + from * view->state_elements, x, u, decay, view->conv_channels,
                            view->taps, view->state_elements, conv + to * view->conv_elements, state + to * view->state_elements);
        from = to;
        if (view->each[slot]) to = (to + 1) % view->columns;
    }
    return KVG_OK;
}

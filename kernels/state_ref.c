/* State, host twins. */
#include "kernels/cuda_state.h"

#include <string.h>

static void place_ref(const KvRecurrentBatch *batch, uint32_t place)
{
    const KvRecurrentView *view = &batch->view;
    const int32_t          slot = batch->slots[place];
    uint32_t               rows = batch->rows != NULL ? batch->rows[place] : batch->rows_max;
    uint64_t               token = batch->first_token != NULL ? batch->first_token[place] : (uint64_t)place * batch->rows_max;

    if (slot < 0) return;
    const KvRecurrentPass pass = {
        .conv = view->conv + (uint64_t)slot * view->conv_slot_stride, .state = view->state + (uint64_t)slot * view->state_slot_stride,
        .read = (uint32_t)view->read[slot], .write = (uint32_t)view->write[slot], .each = (uint32_t)view->each[slot], .columns = view->columns,
        .taps = view->taps, .channels = view->conv_channels, .elements = view->state_elements, .rows = rows, .decay = batch->decay,
        .x = batch->x + token * view->conv_channels, .u = batch->u + token * view->state_elements};
    kvg_recurrent_pass(&pass);
}

void kvg_recurrent_batch_ref(const KvRecurrentBatch *batch)
{
    for (uint32_t place = 0; place < batch->places; place++) place_ref(batch, place);
}

void kvg_move_ref(const KvMove *moves, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) memmove(moves[i].target, moves[i].source, moves[i].bytes);
}

void kvg_tap_store_ref(void *target, size_t target_pitch, const void *source, size_t source_pitch, size_t bytes, size_t rows)
{
    for (size_t i = 0; i < rows; i++) memcpy((uint8_t *)target + i * target_pitch, (const uint8_t *)source + i * source_pitch, bytes);
}

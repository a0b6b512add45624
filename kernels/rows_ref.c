/* Rows, host twins: place by place, row by row, head by head, with the library's codec. */
#include "kernels/cuda_rows.h"

#include "runtime/base/error.h"

typedef void (*RowFn)(const KvBatchPlane *plane, uint8_t *row, uint8_t *elements, KvEncodeCounts *counts);

static uint8_t *row_of(const KvPlaneRef *ref, uint32_t slot, uint32_t row)
{
    if (ref->rows_per_chunk != 0) {
        int32_t chunk = ref->table[(size_t)slot * ref->table_stride + row / ref->rows_per_chunk];
        return ref->plane.base + (size_t)chunk * ref->plane.chunk_bytes + row % ref->rows_per_chunk * ref->plane.row_stride;
    }
    uint64_t at = ref->base_row != NULL ? row - ref->base_row[slot] : row;
    if (ref->ring_rows != 0) at %= ref->ring_rows;
    return ref->plane.base + slot * ref->plane.slot_bytes + at * ref->plane.row_stride;
}

static void walk_place(const KvRowsBatch *batch, uint32_t place, uint32_t slot, uint32_t rows, RowFn act)
{
    uint32_t first = batch->first_row != NULL    ? batch->first_row[place]
                     : batch->len_staged != NULL ? batch->len_staged[slot] - rows
                                                 : 0;
    uint64_t token = batch->first_token != NULL ? batch->first_token[place] : (uint64_t)place * batch->token_pitch;

    for (uint32_t p = 0; p < batch->planes; p++) {
        const KvBatchPlane *plane = &batch->plane[p];
        int64_t             element = kvg_format_block_bytes(plane->in.type);

        for (uint32_t i = 0; i < rows; i++) {
            for (uint32_t head = 0; head < batch->heads; head++) {
                int64_t  offset = ((int64_t)(token + i) * plane->in.token_stride + (int64_t)head * plane->in.head_stride) * element;
                uint8_t *elements = (uint8_t *)(uintptr_t)plane->in.data + offset;
                act(plane, row_of(&plane->to, slot, first + i) + head * plane->to.plane.head_stride, elements, batch->counts);
            }
        }
    }
}

static void walk(const KvRowsBatch *batch, RowFn act)
{
    for (uint32_t place = 0; place < batch->places; place++) {
        int32_t  slot = batch->slots != NULL ? batch->slots[place] : (int32_t)place;
        uint32_t rows = batch->rows != NULL ? batch->rows[place] : batch->rows_max;

        if (slot >= 0 && rows > 0) walk_place(batch, place, (uint32_t)slot, rows, act);
    }
}

static void encode_row(const KvBatchPlane *plane, uint8_t *row, uint8_t *elements, KvEncodeCounts *counts)
{
    kvg_encode(plane->to.plane.format, plane->in.type, elements, plane->to.plane.head_dim, row, counts);
}

static void decode_row(const KvBatchPlane *plane, uint8_t *row, uint8_t *elements, KvEncodeCounts *counts)
{
    (void)counts;
    KVG_ASSERT(plane->in.type == KVG_F32);
    kvg_decode_f32(plane->to.plane.format, row, plane->to.plane.head_dim, (float *)(void *)elements);
}

void kvg_encode_batch_ref(const KvRowsBatch *batch)
{
    walk(batch, encode_row);
}

void kvg_decode_batch_ref(const KvRowsBatch *batch)
{
    walk(batch, decode_row);
}

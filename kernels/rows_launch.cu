/* Rows, launches: how a batch is cut into tiles. A tile of the encoder takes as many heads as make 2 KiB of a row, so that reads are long, and
 * 16 KiB in all; the decoder's tiles are one head of up to 64 rows. Host code alone. */
#include "kernels/rows_launch.h"

#include "kernels/cuda_internal.h"

namespace {

enum { STAGE_BYTES = 16384, TILE_READ = 16384, ROW_READ = 2048 };
enum { BLOCKS_ENOUGH = 1024 }; /* fill a GPU */

bool is_block(KvFormat format)
{
    return kvg_format_block_elements(format) == KVG_BLOCK_ELEMENTS;
}

/* Everything that 8 plain elements are stored to or loaded from is a multiple of what they take. */
bool plain_units_fit(const KvPlaneRef *ref)
{
    const KvPlane *plane = &ref->plane;
    size_t         unit = plane->format == KVG_FP8 ? 8 : 16;

    return plane->head_dim % 8 == 0 &&
           ((uintptr_t)plane->base | plane->chunk_bytes | plane->slot_bytes | plane->head_stride | plane->row_stride) % unit == 0;
}

bool elements_fit(const KvRowsIn *in)
{
    int64_t bytes = in->type == KVG_F32 ? 4 : 2;
    return (((intptr_t)in->data | in->token_stride * bytes | in->head_stride * bytes) & 15) == 0;
}

uint32_t power_below(uint32_t value)
{
    uint32_t power = 1;
    while (power * 2 <= value) power *= 2;
    return power;
}

uint32_t power_above(uint32_t value)
{
    uint32_t power = power_below(value);
    return power < value ? power * 2 : power;
}

uint32_t magic_of(uint32_t divisor)
{
    return divisor > 1 ? (uint32_t)((0x100000000ull + divisor - 1) / divisor) : 0;
}

uint64_t tiles_of(const KvRowsBatch *batch, uint32_t rows) /* of a place, wherever its first row lies within a tile */
{
    return rows == 1 ? batch->rows_max : (uint64_t)(batch->rows_max + rows - 2) / rows + 1;
}

/* The most heads that divide all of them and whose elements of one row make no more than ROW_READ bytes. */
uint32_t group_of(const KvRowsBatch *batch, uint32_t head_read)
{
    uint32_t group = batch->heads;

    while (group > 1 && (batch->heads % group != 0 || (uint64_t)group * head_read > ROW_READ)) group--;
    return group;
}

/* The encoder's: long reads, 16 KiB a tile, and lower tiles where there would be too few of them. */
uint32_t encoder_rows(const KvRowsBatch *batch, RowsLaunch *launch, uint32_t rows)
{
    uint32_t dim = 0, element = batch->plane[0].in.type == KVG_F32 ? 4 : 2;
    bool     whole = true;

    for (uint32_t p = 0; p < batch->planes; p++) {
        if (batch->plane[p].to.plane.head_dim > dim) dim = batch->plane[p].to.plane.head_dim;
        whole = whole && launch->shape[p].units != 0;
    }
    if (whole) launch->group = group_of(batch, dim * element);
    launch->groups = batch->heads / launch->group;
    uint64_t row_read = (uint64_t)launch->group * dim * element, one_each = (uint64_t)THREADS * 8 * element;
    while (rows > 1 && rows * row_read > TILE_READ) rows /= 2;
    while (rows > 1 && rows * row_read > one_each && tiles_of(batch, rows) * launch->groups * batch->places * batch->planes < BLOCKS_ENOUGH) rows /= 2;
    return rows;
}

} // namespace

KvgStatus kvg_rows_check(const KvRowsBatch *batch)
{
    if (batch->planes < 1 || batch->planes > 2 || batch->heads == 0 || batch->places > 65535) {
        return kvg_fail(KVG_EINVAL, "a launch over %u planes of %u heads and %u places: planes are 1 or 2, heads at least 1, places at most 65535",
                        batch->planes, batch->heads, batch->places);
    }
    return KVG_OK;
}

bool kvg_rows_aligned(const KvRowsBatch *batch)
{
    return elements_fit(&batch->plane[0].in) && (batch->planes < 2 || elements_fit(&batch->plane[1].in));
}

KvgStatus kvg_rows_shape(const KvRowsBatch *batch, bool encode, RowsLaunch *launch, dim3 *grid, uint32_t *threads)
{
    uint32_t rows = batch->rows_max < TILE_ROWS_MAX ? power_above(batch->rows_max) : (uint32_t)TILE_ROWS_MAX;
    uint64_t units_most = 0;

    launch->batch = *batch;
    launch->group = 1;
    launch->groups = batch->heads;
    for (uint32_t p = 0; p < batch->planes; p++) {
        const KvPlaneRef *ref = &batch->plane[p].to;

        if (ref->rows_per_chunk != 0 && rows > ref->rows_per_chunk) rows = ref->rows_per_chunk; /* 64, or 64/pool: powers of two */
        if (encode && ref->ring_rows != 0 && rows > ref->ring_rows) rows = power_below((uint32_t)ref->ring_rows);
        while (rows > 1 && rows * (uint32_t)ref->plane.head_bytes > STAGE_BYTES) rows /= 2;
        launch->shape[p].units = is_block(ref->plane.format) || plain_units_fit(ref) ? ref->plane.head_dim / 8 : 0;
    }
    if (encode) rows = encoder_rows(batch, launch, rows);
    for (uint32_t p = 0; p < batch->planes; p++) {
        const KvPlane *plane = &batch->plane[p].to.plane;
        PlaneShape    *shape = &launch->shape[p];
        uint32_t       bytes = is_block(plane->format) ? rows * launch->group * (uint32_t)plane->head_bytes + 8 * 34 : 0;
        uint64_t       units = (uint64_t)rows * launch->group * (shape->units != 0 ? shape->units : (plane->head_dim + 7) / 8);

        shape->row_units = shape->units * launch->group;
        shape->magic = magic_of(shape->units);
        shape->row_magic = magic_of(shape->row_units);
        if (bytes > launch->stage) launch->stage = bytes;
        if (units > units_most) units_most = units;
    }
    if (launch->stage > SHARED_MOST || units_most > 65535) {
        return kvg_fail(KVG_EINVAL, "rows of %u elements a head: a launch takes rows of up to 48 KiB", batch->plane[0].to.plane.head_dim);
    }
    launch->stage = (launch->stage + 15) / 16 * 16;
    launch->tile_rows = rows;
    *threads = units_most >= THREADS ? (uint32_t)THREADS : ((uint32_t)units_most + 31) / 32 * 32;
    for (uint32_t p = 0; p < batch->planes; p++) {
        PlaneShape *shape = &launch->shape[p];
        shape->step = shape->row_units != 0 && *threads % shape->row_units == 0 ? *threads / shape->row_units : 0;
    }
    uint64_t tiles = tiles_of(batch, rows);
    if (tiles * launch->groups > INT32_MAX) return kvg_fail(KVG_EINVAL, "a launch over %u rows of %u heads: too many tiles", batch->rows_max, batch->heads);
    *grid = dim3((uint32_t)tiles * launch->groups, batch->places, batch->planes);
    return KVG_OK;
}

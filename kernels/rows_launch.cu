/* Rows, launches: a batch as its kernels want it, and how it is cut into tiles. Host code alone.
 *
 * A tile is some heads of consecutive rows: as many heads as make 2 KiB of a row, so that what is read or written in the elements' order is long,
 * and as many rows as make 16 KiB. Where a row's heads do not lie side by side, a tile has one head. */
#include "kernels/rows_launch.h"

#include "kernels/cuda_internal.h"

namespace {

enum { ROW_BYTES = 2048 };
enum { TILES_ENOUGH = 1024 }; /* fill a GPU: with fewer, they are made lower */

uint32_t element_bytes(uint32_t type)
{
    return type == KVG_F32 ? 4 : 2;
}

bool is_block(KvFormat format)
{
    return kvg_format_block_elements(format) == KVG_BLOCK_ELEMENTS;
}

/* Everything that 8 plain elements are stored to or loaded from is a multiple of what they take. */
bool plain_units_fit(const KvPlane *plane)
{
    size_t unit = plane->format == KVG_FP8 ? 8 : 16;

    return plane->head_dim % 8 == 0 &&
           ((uintptr_t)plane->base | plane->chunk_bytes | plane->slot_bytes | plane->head_stride | plane->row_stride) % unit == 0;
}

int32_t shift_of(uint32_t power) /* -1: it is none */
{
    int32_t shift = 0;

    if (power == 0 || (power & (power - 1)) != 0) return -1;
    while (power >>= 1) shift++;
    return shift;
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

KvgStatus take_plane(const KvBatchPlane *from, RowsPlane *plane)
{
    const KvPlaneRef *ref = &from->to;
    const KvPlane    *to = &ref->plane;
    const int64_t     bytes = element_bytes(from->in.type);
    const bool        flat = ref->rows_per_chunk == 0;

    if (from->in.type != KVG_F32 && from->in.type != KVG_F16 && from->in.type != KVG_BF16) {
        return kvg_fail(KVG_EINVAL, "elements of type %s are none that rows are encoded from: f32, f16 or bf16 are", kvg_format_name(from->in.type));
    }
    if (!flat && (shift_of(ref->rows_per_chunk) < 0 || to->chunk_bytes > UINT32_MAX)) {
        return kvg_fail(KVG_EINVAL, "chunks of %u rows and %llu bytes: rows are a power of two, bytes less than 4 GiB", ref->rows_per_chunk,
                        (unsigned long long)to->chunk_bytes);
    }
    if (ref->ring_rows > UINT32_MAX) return kvg_fail(KVG_EINVAL, "a ring of %llu rows: less than 2^32", (unsigned long long)ref->ring_rows);
    *plane = RowsPlane();
    plane->elements = (const uint8_t *)from->in.data;
    plane->token_bytes = from->in.token_stride * bytes;
    plane->head_pitch = from->in.head_stride * bytes;
    plane->base = to->base;
    plane->table = ref->table;
    plane->base_row = flat ? ref->base_row : nullptr;
    plane->slot_bytes = to->slot_bytes;
    plane->head_stride = to->head_stride;
    plane->row_stride = to->row_stride;
    plane->table_stride = ref->table_stride;
    plane->chunk_bytes = (uint32_t)to->chunk_bytes;
    plane->chunk_shift = flat ? -1 : shift_of(ref->rows_per_chunk);
    plane->ring_rows = flat ? (uint32_t)ref->ring_rows : 0;
    plane->format = (uint32_t)to->format;
    plane->dim = to->head_dim;
    plane->row_bytes = (uint32_t)to->head_bytes;
    plane->units = is_block(to->format) || plain_units_fit(to) ? to->head_dim / 8 : 0;
    return KVG_OK;
}

bool is_aligned(const RowsPlane *plane)
{
    return (((intptr_t)plane->elements | plane->token_bytes | plane->head_pitch) & 15) == 0;
}

/* The most heads that divide all of them, lie side by side, and whose elements of one row make no more than ROW_BYTES. */
uint32_t group_of(const RowsLaunch *launch, uint32_t element)
{
    uint32_t group = launch->heads, dim = 0;

    for (uint32_t p = 0; p < launch->planes; p++) {
        const RowsPlane *plane = &launch->plane[p];
        if (plane->dim > dim) dim = plane->dim;
        if (plane->units == 0 || plane->head_pitch != (int64_t)plane->dim * element) return 1;
    }
    while (group > 1 && (launch->heads % group != 0 || (uint64_t)group * dim * element > ROW_BYTES)) group--;
    return group;
}

uint64_t tiles_of(uint32_t rows_max, uint32_t rows) /* of a place, wherever its first row lies within a tile */
{
    return rows == 1 ? rows_max : ((uint64_t)rows_max + rows - 2) / rows + 1;
}

/* Powers of two: within a chunk, no higher than a ring or than the rows there are, a tile of elements, and lower where there would be too few. */
uint32_t tile_rows_of(const RowsLaunch *launch, uint32_t element)
{
    uint32_t rows = launch->rows_max < TILE_ROWS_MAX ? power_above(launch->rows_max) : (uint32_t)TILE_ROWS_MAX, dim = 0;

    for (uint32_t p = 0; p < launch->planes; p++) {
        const RowsPlane *plane = &launch->plane[p];

        if (plane->chunk_shift >= 0 && rows > 1u << plane->chunk_shift) rows = 1u << plane->chunk_shift;
        if (plane->ring_rows != 0 && rows > plane->ring_rows) rows = power_below(plane->ring_rows);
        if (plane->dim > dim) dim = plane->dim;
    }
    const uint64_t row = (uint64_t)launch->group * dim * element, one_each = (uint64_t)THREADS * 8 * element;
    while (rows > 1 && rows * row > TILE_BYTES) rows /= 2;
    while (rows > 1 && rows * row > one_each && tiles_of(launch->rows_max, rows) * launch->groups * launch->places * launch->planes < TILES_ENOUGH) rows /= 2;
    return rows;
}

void shape_plane(RowsLaunch *launch, uint32_t element, RowsPlane *plane)
{
    uint32_t rows = launch->tile_rows, group = launch->group;

    plane->row_units = plane->units * group;
    plane->unit_magic = kvg_rows_magic(plane->units);
    plane->row_magic = kvg_rows_magic(plane->row_units);
    plane->step = plane->row_units != 0 && THREADS % plane->row_units == 0 ? THREADS / plane->row_units : 0;
    plane->solid = group == launch->heads && plane->token_bytes == (int64_t)plane->row_units * 8 * element;
    /* 16 bytes more, lest lanes that write different heads' blocks meet in the same banks */
    plane->stage_head = is_block((KvFormat)plane->format) ? (rows * plane->row_bytes + 15) / 16 * 16 + 16 : 0;
    if (group * plane->stage_head > launch->stage) launch->stage = group * plane->stage_head;
}

} // namespace

uint32_t kvg_rows_magic(uint32_t divisor)
{
    return divisor > 1 ? (uint32_t)((0x100000000ull + divisor - 1) / divisor) : 0;
}

KvgStatus kvg_rows_take(const KvRowsBatch *batch, RowsLaunch *launch)
{
    if (batch->planes < 1 || batch->planes > 2 || batch->heads == 0 || batch->places > 65535) {
        return kvg_fail(KVG_EINVAL, "a launch over %u planes of %u heads and %u places: planes are 1 or 2, heads at least 1, places at most 65535",
                        batch->planes, batch->heads, batch->places);
    }
    if (batch->planes == 2 && batch->plane[1].in.type != batch->plane[0].in.type) {
        return kvg_fail(KVG_EINVAL, "elements of two types in one launch (%s and %s): give both planes in one", kvg_format_name(batch->plane[0].in.type),
                        kvg_format_name(batch->plane[1].in.type));
    }
    *launch = RowsLaunch();
    launch->slots = batch->slots;
    launch->rows = batch->rows;
    launch->first_row = batch->first_row;
    launch->len_staged = batch->len_staged;
    launch->first_token = batch->first_token;
    launch->counts = batch->counts;
    launch->token_pitch = batch->token_pitch;
    launch->rows_max = batch->rows_max;
    launch->planes = batch->planes;
    launch->places = batch->places;
    launch->heads = batch->heads;
    launch->aligned = 1;
    for (uint32_t p = 0; p < batch->planes; p++) {
        KVG_TRY(take_plane(&batch->plane[p], &launch->plane[p]));
        if (!is_aligned(&launch->plane[p])) launch->aligned = 0;
    }
    return KVG_OK;
}

uint64_t kvg_rows_units(const RowsLaunch *launch)
{
    uint64_t most = 0;

    for (uint32_t p = 0; p < launch->planes; p++) {
        const RowsPlane *plane = &launch->plane[p];
        uint64_t         units = (uint64_t)launch->rows_max * launch->heads * (plane->units != 0 ? plane->units : plane->dim);
        if (units > most) most = units;
    }
    return most;
}

KvgStatus kvg_rows_cut(RowsLaunch *launch, uint32_t type, dim3 *grid)
{
    const uint32_t element = element_bytes(type);

    launch->group = group_of(launch, element);
    launch->groups = launch->heads / launch->group;
    launch->tile_rows = tile_rows_of(launch, element);
    for (uint32_t p = 0; p < launch->planes; p++) shape_plane(launch, element, &launch->plane[p]);
    uint64_t tiles = tiles_of(launch->rows_max, launch->tile_rows);
    if (tiles > INT32_MAX || (uint64_t)launch->groups * launch->planes > 65535) {
        return kvg_fail(KVG_EINVAL, "a launch over %u rows of %u heads: too many tiles", launch->rows_max, launch->heads);
    }
    *grid = dim3((uint32_t)tiles, launch->places, launch->groups * launch->planes);
    return KVG_OK;
}

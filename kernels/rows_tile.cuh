/* Rows, inside: where a place's rows and elements are, and the tiles of a launch; what encoders and decoders share. Private. */
#ifndef KVG_ROWS_TILE_CUH
#define KVG_ROWS_TILE_CUH

#include "kernels/plane.cuh"
#include "kernels/rows_launch.h"

namespace {

struct Span { /* a place's rows */
    int32_t  slot; /* -1: none */
    uint32_t rows, first;
    uint64_t token;
};

/* All that differs from step to step, loaded side by side. BY_LENGTH: the first row may have to be found by the slot, and waits for it. */
template <bool BY_LENGTH> __device__ __forceinline__ Span span_of_place(const RowsLaunch &launch, uint32_t place)
{
    Span span;

    span.slot = launch.slots != nullptr ? __ldg(launch.slots + place) : (int32_t)place;
    span.rows = launch.rows != nullptr ? __ldg(launch.rows + place) : launch.rows_max;
    span.first = launch.first_row != nullptr ? __ldg(launch.first_row + place) : 0;
    span.token = launch.first_token != nullptr ? __ldg(launch.first_token + place) : (uint64_t)place * launch.token_pitch;
    if (BY_LENGTH && launch.first_row == nullptr && launch.len_staged != nullptr && span.slot >= 0) {
        span.first = __ldg(launch.len_staged + span.slot) - span.rows;
    }
    return span;
}

/* A call, since it is rare and a division is long. */
template <int> __device__ __noinline__ uint32_t wrapped(uint32_t row, uint32_t ring_rows)
{
    return row % ring_rows;
}

/* The table's entry; flat: the absolute row at physical row 0. Only loaded: arithmetic on it would wait for it, and elements are still to be
 * asked for. */
__device__ __forceinline__ uint32_t chunk_or_base(const RowsPlane &plane, uint32_t slot, uint32_t row)
{
    if (plane.chunk_shift >= 0) return (uint32_t)__ldg(plane.table + (uint64_t)slot * plane.table_stride + (row >> plane.chunk_shift));
    return plane.base_row != nullptr ? __ldg(plane.base_row + slot) : 0;
}

/* Where a run of rows is: it lies within a chunk, and is no higher than a ring. */
struct Target {
    uint8_t *first;   /* row 0 of the run, head 0 */
    uint64_t stride;
    uint32_t wrap_at; /* from this row of the run on, a ring's start; ~0: never */
    uint64_t wrap;
};

__device__ __forceinline__ Target target_of(const RowsPlane &plane, uint32_t slot, uint32_t row, uint32_t entry)
{
    Target   target = {plane.base, plane.row_stride, ~0u, 0};
    uint32_t at = row - entry;

    if (plane.chunk_shift >= 0) {
        at = row & ((1u << plane.chunk_shift) - 1);
        target.first += (uint64_t)entry * plane.chunk_bytes;
    } else {
        target.first += (uint64_t)slot * plane.slot_bytes;
        if (plane.ring_rows != 0) {
            if (at >= plane.ring_rows) at = wrapped<0>(at, plane.ring_rows);
            target.wrap_at = plane.ring_rows - at;
            target.wrap = plane.ring_rows * target.stride;
        }
    }
    target.first += at * target.stride;
    return target;
}

__device__ __forceinline__ uint8_t *target_row(const Target &target, uint32_t i)
{
    return target.first + i * target.stride - (i >= target.wrap_at ? target.wrap : 0);
}

/* ---- tiles: block x is the tile of its place, y the place, z plane * groups + group of heads */

struct Tile {
    uint32_t       rows;     /* 0: nothing to do */
    uint32_t       slot, row;
    uint32_t       head;     /* the first */
    const uint8_t *elements; /* of the tile's first row and head */
};

/* Consecutive rows, cut at multiples of the tile. */
__device__ __forceinline__ Tile tile_of(const RowsLaunch &launch, const RowsPlane &plane, uint32_t head)
{
    const Span     span = span_of_place<true>(launch, blockIdx.y);
    const uint32_t from = (span.first & ~(launch.tile_rows - 1)) + blockIdx.x * launch.tile_rows;
    const uint32_t end = min(span.first + span.rows, from + launch.tile_rows);
    Tile           tile = {0, (uint32_t)span.slot, max(span.first, from), head, nullptr};

    if (span.slot >= 0 && span.rows != 0 && tile.row < end) tile.rows = end - tile.row;
    tile.elements = plane.elements + (int64_t)(span.token + (tile.row - span.first)) * plane.token_bytes + head * plane.head_pitch;
    return tile;
}

struct Place { /* of a unit of 8 elements in its tile */
    uint32_t row, head, within;
};

__device__ __forceinline__ Place place_of(const RowsPlane &plane, uint32_t unit)
{
    Place    place;
    uint32_t rest;

    place.row = plane.row_units == 1 ? unit : __umulhi(unit, plane.row_magic);
    rest = unit - place.row * plane.row_units;
    place.head = plane.units == 1 ? rest : __umulhi(rest, plane.unit_magic);
    place.within = rest - place.head * plane.units;
    return place;
}

/* A lane's units of a tile where each next one has the same place in its row: two addresses that advance by steps. */
struct Walk {
    uint8_t *elements, *stored;
    int64_t  element_step;
    uint64_t stored_step;
};

/* eight, unit: bytes of eight elements, and of what is stored for them. */
__device__ __forceinline__ Walk walk_of(const RowsPlane &plane, const Tile &tile, const Target &target, uint32_t eight, uint32_t unit)
{
    const Place at = place_of(plane, threadIdx.x);
    Walk        walk;

    walk.elements = (uint8_t *)tile.elements + at.row * plane.token_bytes + at.head * plane.head_pitch + at.within * eight;
    walk.stored = target.first + at.row * target.stride + (tile.head + at.head) * plane.head_stride + at.within * unit;
    walk.element_step = plane.step * plane.token_bytes;
    walk.stored_step = plane.step * target.stride;
    return walk;
}

/* ---- bytes between shared and device memory */

template <class WORD, bool OUT> __device__ __forceinline__ void copy_words(uint8_t *global, uint8_t *shared, uint32_t bytes, uint32_t thread, uint32_t threads)
{
#pragma unroll(OUT ? 1 : 4) /* loads are asked for together; stores are not waited for, and instructions must be fetched too */
    for (uint32_t i = thread; i < bytes / sizeof(WORD); i += threads) {
        if (OUT) ((WORD *)global)[i] = ((const WORD *)shared)[i];
        else ((WORD *)shared)[i] = ((const WORD *)global)[i];
    }
}

/* In the widest words that the address and the length allow; `shared` is aligned as well as `bytes` allows. */
template <bool OUT> __device__ __noinline__ void copy_bytes(uint8_t *global, uint8_t *shared, uint32_t bytes, uint32_t thread, uint32_t threads)
{
    const uint32_t odd = ((uint32_t)(uintptr_t)global | (uint32_t)(uintptr_t)shared | bytes) & 15;

    if (odd == 0) copy_words<uint4, OUT>(global, shared, bytes, thread, threads);
    else if ((odd & 7) == 0) copy_words<uint2, OUT>(global, shared, bytes, thread, threads);
    else if ((odd & 3) == 0) copy_words<uint32_t, OUT>(global, shared, bytes, thread, threads);
    else copy_words<uint16_t, OUT>(global, shared, bytes, thread, threads);
}

/* Rows lie side by side: a head's part of the tile is one run of bytes. */
__device__ __forceinline__ bool is_one_run(const RowsPlane &plane, const Target &target, uint32_t rows)
{
    return rows <= target.wrap_at && (rows == 1 || target.stride == plane.row_bytes);
}

/* A tile's bytes, head by head: one run each, or row by row (flat planes of several heads, a ring's end). The caller synchronises. */
template <bool OUT>
__device__ __forceinline__ void copy_tile(const RowsPlane &plane, const Target &target, uint32_t head, uint32_t heads, uint32_t rows, uint8_t *stage)
{
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32, warps = THREADS / 32;
    const bool     one = is_one_run(plane, target, rows);
    const uint32_t runs = one ? 1 : rows, bytes = one ? rows * plane.row_bytes : plane.row_bytes;

#pragma unroll 1
    for (uint32_t h = one ? warp : 0; h < heads; h += one ? warps : 1) {
#pragma unroll 1
        for (uint32_t i = one ? 0 : warp; i < runs; i += warps) {
            copy_bytes<OUT>(target_row(target, i) + (head + h) * plane.head_stride, stage + h * plane.stage_head + i * plane.row_bytes, bytes, lane, 32);
        }
    }
}

} // namespace
#endif

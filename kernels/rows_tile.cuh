/* Rows, inside: tiles of a launch, elements in registers, and bytes between shared and device memory; what encoder and decoder share. Private.
 *
 * One block a tile: consecutive rows of some heads of one plane of one place, cut at multiples of the tile, so within a chunk.
 *   x  tile * groups + group of heads     y  place     z  plane */
#ifndef KVG_ROWS_TILE_CUH
#define KVG_ROWS_TILE_CUH

#include "kernels/plane.cuh"
#include "kernels/rows_launch.h"

namespace {

struct Tile {
    uint32_t       rows;
    uint32_t       head;     /* the first */
    const uint8_t *elements; /* of the tile's first row and head */
    size_t         pitch;    /* bytes from one row's elements to the next row's */
};

/* ---- elements */

template <int TYPE> struct Raw { /* eight elements as loaded */
    uint4 words[TYPE == KVG_F32 ? 2 : 1];
};

template <int TYPE> __device__ __forceinline__ Raw<TYPE> load_eight(const uint8_t *at)
{
    Raw<TYPE> raw;
    raw.words[0] = __ldcs((const uint4 *)at);
    if constexpr (TYPE == KVG_F32) raw.words[1] = __ldcs((const uint4 *)at + 1);
    return raw;
}

/* Any alignment of elements. */
template <int TYPE> __device__ __forceinline__ Raw<TYPE> gather_eight(const uint8_t *at)
{
    Raw<TYPE> raw;
    if constexpr (TYPE == KVG_F32) {
        const uint32_t *from = (const uint32_t *)at;
        raw.words[0] = make_uint4(from[0], from[1], from[2], from[3]);
        raw.words[1] = make_uint4(from[4], from[5], from[6], from[7]);
    } else {
        const uint16_t *from = (const uint16_t *)at;
        raw.words[0] = make_uint4(from[0] | from[1] << 16, from[2] | from[3] << 16, from[4] | from[5] << 16, from[6] | from[7] << 16);
    }
    return raw;
}

template <int TYPE> __device__ __forceinline__ float element_of(const uint8_t *at)
{
    if constexpr (TYPE == KVG_F32) return *(const float *)at;
    if constexpr (TYPE == KVG_F16) return kvg_dev_from_f16(*(const uint16_t *)at);
    return kvg_dev_from_bf16(*(const uint16_t *)at);
}

template <int TYPE> __device__ __forceinline__ void widen(const Raw<TYPE> &raw, float (&x)[8])
{
    const uint32_t *w = (const uint32_t *)raw.words;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if constexpr (TYPE == KVG_F32) x[i] = __uint_as_float(w[i]);
        if constexpr (TYPE == KVG_F16) x[i] = kvg_dev_from_f16(w[i / 2] >> (16 * (i & 1)) & 0xffff);
        if constexpr (TYPE == KVG_BF16) x[i] = __uint_as_float(i & 1 ? w[i / 2] & 0xffff0000u : w[i / 2] << 16);
    }
}

/* Eight clean elements of a plain format, to an address aligned to what they take (f32: to 16). */
template <int FORMAT> __device__ __forceinline__ void store_eight(const float (&x)[8], uint8_t *at)
{
    if constexpr (FORMAT == KVG_F32) {
        __stcs((float4 *)at, make_float4(x[0], x[1], x[2], x[3]));
        __stcs((float4 *)at + 1, make_float4(x[4], x[5], x[6], x[7]));
    } else if constexpr (FORMAT == KVG_FP8) {
        __stcs((uint2 *)at, make_uint2(kvg_dev_fp8x4(x[0], x[1], x[2], x[3]), kvg_dev_fp8x4(x[4], x[5], x[6], x[7])));
    } else if constexpr (FORMAT == KVG_F16) {
        __stcs((uint4 *)at, make_uint4(kvg_dev_f16x2(x[0], x[1]), kvg_dev_f16x2(x[2], x[3]), kvg_dev_f16x2(x[4], x[5]), kvg_dev_f16x2(x[6], x[7])));
    } else {
        __stcs((uint4 *)at,
               make_uint4(kvg_dev_bf16x2(x[0], x[1]), kvg_dev_bf16x2(x[2], x[3]), kvg_dev_bf16x2(x[4], x[5]), kvg_dev_bf16x2(x[6], x[7])));
    }
}

template <int FORMAT> constexpr __device__ uint32_t unit_bytes()
{
    return FORMAT == KVG_F32 ? 32 : FORMAT == KVG_FP8 ? 8 : 16;
}

/* ---- tiles */

/* 0 rows: nothing to do. The places' arrays are loaded side by side. */
__device__ __forceinline__ Tile tile_of(const RowsLaunch &launch, const KvBatchPlane &plane, uint32_t &slot, uint32_t &row)
{
    const KvRowsBatch &batch = launch.batch;
    const uint32_t     place = blockIdx.y, tile = launch.groups == 1 ? blockIdx.x : blockIdx.x / launch.groups;
    const uint32_t     head = (blockIdx.x - tile * launch.groups) * launch.group;
    const uint32_t     bytes = plane.in.type == KVG_F32 ? 4 : 2;
    Tile               none = {0, 0, nullptr, 0}, t;
    int32_t            at = batch.slots != nullptr ? __ldg(batch.slots + place) : (int32_t)place;
    uint32_t           rows = batch.rows != nullptr ? __ldg(batch.rows + place) : batch.rows_max;
    uint32_t           first = batch.first_row != nullptr ? __ldg(batch.first_row + place) : 0;
    uint64_t           token = batch.first_token != nullptr ? __ldg(batch.first_token + place) : (uint64_t)place * batch.token_pitch;

    if (at < 0 || rows == 0) return none;
    slot = (uint32_t)at;
    if (batch.first_row == nullptr && batch.len_staged != nullptr) first = __ldg(batch.len_staged + slot) - rows;
    uint32_t from = (first & ~(launch.tile_rows - 1)) + tile * launch.tile_rows;
    uint32_t end = min(first + rows, from + launch.tile_rows);
    from = max(first, from);
    if (from >= end) return none;
    row = from;
    t.rows = end - from;
    t.head = head;
    t.pitch = (size_t)plane.in.token_stride * bytes;
    t.elements = (const uint8_t *)plane.in.data + (int64_t)(token + (from - first)) * plane.in.token_stride * bytes +
                 (int64_t)head * plane.in.head_stride * bytes;
    return t;
}

/* Addresses of the tile's rows, each by one thread; the caller synchronises. */
__device__ __forceinline__ void find_rows(const KvBatchPlane &plane, const Tile &tile, uint32_t slot, uint32_t row, uint8_t **row_at)
{
    for (uint32_t i = threadIdx.x; i < tile.rows; i += blockDim.x) {
        row_at[i] = kvg_ref_row(plane.to, slot, row + i) + tile.head * plane.to.plane.head_stride;
    }
}

template <class WORD, bool OUT> __device__ __forceinline__ void copy_words(uint8_t *global, uint8_t *shared, uint32_t bytes, uint32_t thread, uint32_t threads)
{
#pragma unroll(OUT ? 1 : 4) /* loads are asked for together; stores are not waited for, and instructions must be fetched too */
    for (uint32_t i = thread; i < bytes / sizeof(WORD); i += threads) {
        if (OUT) ((WORD *)global)[i] = ((const WORD *)shared)[i];
        else ((WORD *)shared)[i] = ((const WORD *)global)[i];
    }
}

/* In the widest words that the address and the length allow; `shared` is aligned as well as `bytes` allows. */
template <bool OUT> __device__ __forceinline__ void copy_bytes(uint8_t *global, uint8_t *shared, uint32_t bytes, uint32_t thread, uint32_t threads)
{
    const uint32_t odd = ((uint32_t)(uintptr_t)global | (uint32_t)(uintptr_t)shared | bytes) & 15;

    if (odd == 0) copy_words<uint4, OUT>(global, shared, bytes, thread, threads);
    else if ((odd & 7) == 0) copy_words<uint2, OUT>(global, shared, bytes, thread, threads);
    else if ((odd & 3) == 0) copy_words<uint32_t, OUT>(global, shared, bytes, thread, threads);
    else copy_words<uint16_t, OUT>(global, shared, bytes, thread, threads);
}

} // namespace
#endif

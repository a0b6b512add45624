/* Rows: decode of a batch.
 *
 * Bound by memory: a row of 1024 elements brings 1088 bytes (q8_0) and leaves 2048 as bf16. Blocks of a tile come to shared memory in the widest
 * loads that their address allows; a lane takes a quarter of a block at a time. Plain formats go straight to registers. */
#include "kernels/cuda_internal.h"
#include "kernels/rows_tile.cuh"

namespace {

/* Into shared memory. Rows lie side by side (pool chunks, one head), or each for itself (flat planes of several heads, a ring's end). */
__device__ __forceinline__ void fetch_tile(uint8_t *const *row_at, uint8_t *stage, uint32_t rows, uint32_t row_bytes)
{
    if (row_at[rows - 1] == row_at[0] + (size_t)(rows - 1) * row_bytes) {
        copy_bytes<false>(row_at[0], stage, rows * row_bytes, threadIdx.x, blockDim.x);
        return;
    }
    for (uint32_t i = threadIdx.x / 32; i < rows; i += blockDim.x / 32) copy_bytes<false>(row_at[i], stage + i * row_bytes, row_bytes, threadIdx.x & 31, 32);
}

template <int FORMAT> __device__ __forceinline__ float plain_element(const uint8_t *at, uint32_t e)
{
    if constexpr (FORMAT == KVG_F32) return ((const float *)at)[e];
    if constexpr (FORMAT == KVG_F16) return kvg_dev_from_f16(((const uint16_t *)at)[e]);
    if constexpr (FORMAT == KVG_BF16) return kvg_dev_from_bf16(((const uint16_t *)at)[e]);
    return kvg_dev_from_fp8(at[e]);
}

template <int FORMAT> __device__ __forceinline__ void load_plain(const uint8_t *at, float (&x)[8])
{
    uint32_t w[8];

    if constexpr (FORMAT == KVG_FP8) {
        *(uint2 *)w = __ldcs((const uint2 *)at);
    } else {
        *(uint4 *)w = __ldcs((const uint4 *)at);
        if constexpr (FORMAT == KVG_F32) *(uint4 *)(w + 4) = __ldcs((const uint4 *)at + 1);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if constexpr (FORMAT == KVG_F32) x[i] = __uint_as_float(w[i]);
        if constexpr (FORMAT == KVG_F16) x[i] = kvg_dev_from_f16(w[i / 2] >> (16 * (i & 1)) & 0xffff);
        if constexpr (FORMAT == KVG_BF16) x[i] = __uint_as_float(i & 1 ? w[i / 2] & 0xffff0000u : w[i / 2] << 16);
        if constexpr (FORMAT == KVG_FP8) x[i] = kvg_dev_from_fp8(w[i / 4] >> (8 * (i & 3)) & 255);
    }
}

/* The element type is rounded to nearest even and nothing else: infinities stay. */
template <int TYPE> __device__ __forceinline__ void put_eight(const float (&x)[8], uint8_t *at, bool aligned)
{
    if (aligned) {
        store_eight<TYPE>(x, at);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if constexpr (TYPE == KVG_F32) ((float *)at)[i] = x[i];
        else ((uint16_t *)at)[i] = (uint16_t)(kvg_dev_bf16x2(x[i], 0.0f) & 0xffff);
    }
}

template <int TYPE, int FORMAT>
__device__ __forceinline__ void decode_tile(const RowsLaunch &launch, const KvBatchPlane &plane, const Tile &tile, uint8_t **row_at, uint8_t *stage,
                                            bool aligned)
{
    constexpr int    ELEMENT = TYPE == KVG_F32 ? 4 : 2;
    const PlaneShape shape = launch.shape[blockIdx.z];
    const uint32_t   units = tile.rows * shape.units, row_bytes = (uint32_t)plane.to.plane.head_bytes;

    if constexpr (kvg_is_block<FORMAT>()) {
        fetch_tile(row_at, stage, tile.rows, row_bytes);
        __syncthreads();
    }
#pragma unroll 4
    for (uint32_t unit = threadIdx.x; unit < units; unit += blockDim.x) {
        uint32_t in_row = shape.units == 1 ? unit : __umulhi(unit, shape.magic), within = unit - in_row * shape.units;
        uint8_t *at = (uint8_t *)tile.elements + in_row * tile.pitch + within * (8 * ELEMENT);
        float    x[8];

        if constexpr (kvg_is_block<FORMAT>()) {
            kvg_decode_eight<FORMAT>(stage + in_row * row_bytes + within / 4 * kvg_block_bytes<FORMAT>(), within & 3, x);
        } else {
            load_plain<FORMAT>(row_at[in_row] + within * unit_bytes<FORMAT>(), x);
        }
        put_eight<TYPE>(x, at, aligned);
    }
}

template <int TYPE> __device__ __noinline__ void decode_elements(const KvBatchPlane &plane, Tile tile, uint8_t **row_at)
{
    const uint32_t dim = plane.to.plane.head_dim, all = tile.rows * dim;

    for (uint32_t i = threadIdx.x; i < all; i += blockDim.x) {
        uint32_t       in_row = i / dim, e = i - in_row * dim;
        uint8_t       *at = (uint8_t *)tile.elements + in_row * tile.pitch;
        const uint8_t *from = row_at[in_row];
        float          x;

        switch (plane.to.plane.format) {
        case KVG_FP8: x = plain_element<KVG_FP8>(from, e); break;
        case KVG_F16: x = plain_element<KVG_F16>(from, e); break;
        case KVG_BF16: x = plain_element<KVG_BF16>(from, e); break;
        default: x = plain_element<KVG_F32>(from, e); break;
        }
        if constexpr (TYPE == KVG_F32) ((float *)at)[e] = x;
        else ((uint16_t *)at)[e] = (uint16_t)(kvg_dev_bf16x2(x, 0.0f) & 0xffff);
    }
}

template <int TYPE> __global__ void __launch_bounds__(THREADS) decode_kernel(const __grid_constant__ RowsLaunch launch, bool aligned)
{
    extern __shared__ __align__(16) uint8_t stage[];
    __shared__ uint8_t                     *row_at[TILE_ROWS_MAX];
    const KvBatchPlane                     &plane = launch.batch.plane[blockIdx.z];
    uint32_t                                slot = 0, row = 0;
    const Tile                              tile = tile_of(launch, plane, slot, row);

    if (tile.rows == 0) return;
    find_rows(plane, tile, slot, row, row_at);
    __syncthreads();
    if (launch.shape[blockIdx.z].units == 0) {
        decode_elements<TYPE>(plane, tile, row_at);
        return;
    }
    switch (plane.to.plane.format) {
    case KVG_F32: decode_tile<TYPE, KVG_F32>(launch, plane, tile, row_at, stage, aligned); break;
    case KVG_F16: decode_tile<TYPE, KVG_F16>(launch, plane, tile, row_at, stage, aligned); break;
    case KVG_BF16: decode_tile<TYPE, KVG_BF16>(launch, plane, tile, row_at, stage, aligned); break;
    case KVG_Q8_0: decode_tile<TYPE, KVG_Q8_0>(launch, plane, tile, row_at, stage, aligned); break;
    case KVG_Q5_1: decode_tile<TYPE, KVG_Q5_1>(launch, plane, tile, row_at, stage, aligned); break;
    case KVG_Q4_0: decode_tile<TYPE, KVG_Q4_0>(launch, plane, tile, row_at, stage, aligned); break;
    case KVG_FP8: decode_tile<TYPE, KVG_FP8>(launch, plane, tile, row_at, stage, aligned); break;
    default: break;
    }
}

} // namespace

extern "C" KvgStatus kvg_decode_batch_launch(const KvRowsBatch *batch, KvgStream stream)
{
    RowsLaunch launch = {};
    dim3       grid;
    uint32_t   threads;
    bool       aligned = kvg_rows_aligned(batch);

    KVG_TRY(kvg_rows_check(batch));
    if (batch->places == 0 || batch->rows_max == 0) return KVG_OK;
    KVG_TRY(kvg_rows_shape(batch, false, &launch, &grid, &threads));
    if (batch->plane[0].in.type == KVG_F32) {
        decode_kernel<KVG_F32><<<grid, threads, launch.stage, (cudaStream_t)stream>>>(launch, aligned);
    } else if (batch->plane[0].in.type == KVG_BF16) {
        decode_kernel<KVG_BF16><<<grid, threads, launch.stage, (cudaStream_t)stream>>>(launch, aligned);
    } else {
        return kvg_fail(KVG_EINVAL, "rows are decoded to f32 or bf16, not to %s", kvg_format_name(batch->plane[0].in.type));
    }
    return kvg_cuda_check(cudaGetLastError(), "launching a decoder of rows");
}

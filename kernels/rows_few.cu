/* Rows: encode of few rows, of elements of any alignment, and of dimensions that are no multiple of 8. (Those of a decoding step, in the usual
 * formats: rows_step.cu.)
 *
 * Bound by latency: time goes into what must wait for what: launch, the places' arrays (side by side), elements and the table's entry (side by side),
 * arithmetic, stores. So a lane has one unit of 8 elements, four lanes a block of 32, with shuffles instead of barriers, and nothing is divided.
 *
 * Launch: up to 128 lanes; block x: some rows of a place, y: the place, z: plane * parts + part of a row. */
#include "kernels/cuda_internal.h"
#include "kernels/rows_block.cuh"
#include "kernels/rows_tile.cuh"

namespace {

template <int TYPE, bool WIDE> __device__ __forceinline__ Raw<TYPE, 8> unit_of(const uint8_t *at)
{
    return WIDE ? load_eight<TYPE>(at) : gather_eight<TYPE>(at);
}

/* `to`: NULL stores nothing. Returns what it counted. */
template <int TYPE, int FORMAT> __device__ __forceinline__ uint32_t encode_unit(const Raw<TYPE, 8> &raw, uint8_t *to, uint32_t within)
{
    if constexpr (kvg_is_block<FORMAT>()) {
        KvLaneCounts counts = {0, 0};
        float        x[8];

        widen<TYPE, 8>(raw, x);
        kvg_quad_encode<FORMAT>(x, span_of<TYPE, FORMAT, 8>(raw), to != nullptr ? to + within / 4 * kvg_block_bytes<FORMAT>() : nullptr, counts);
        return counted(counts);
    } else {
        return to != nullptr ? encode_eight<TYPE, FORMAT>(raw, to + within * unit_bytes<FORMAT>()) : 0;
    }
}

template <int TYPE> __device__ __forceinline__ uint32_t encode_any(uint32_t format, const Raw<TYPE, 8> &raw, uint8_t *to, uint32_t within)
{
    switch (format) {
    case KVG_F32: return encode_unit<TYPE, KVG_F32>(raw, to, within);
    case KVG_F16: return encode_unit<TYPE, KVG_F16>(raw, to, within);
    case KVG_BF16: return encode_unit<TYPE, KVG_BF16>(raw, to, within);
    case KVG_Q8_0: return encode_unit<TYPE, KVG_Q8_0>(raw, to, within);
    case KVG_Q5_1: return encode_unit<TYPE, KVG_Q5_1>(raw, to, within);
    case KVG_Q4_0: return encode_unit<TYPE, KVG_Q4_0>(raw, to, within);
    default: return encode_unit<TYPE, KVG_FP8>(raw, to, within);
    }
}

/* ---- dimensions that are no multiple of 8, plain formats alone */

template <int TYPE> __device__ __forceinline__ float element_of(const uint8_t *at)
{
    if constexpr (TYPE == KVG_F32) return *(const float *)at;
    if constexpr (TYPE == KVG_F16) return kvg_dev_from_f16(*(const uint16_t *)at);
    return kvg_dev_from_bf16(*(const uint16_t *)at);
}

template <int TYPE> __device__ __noinline__ uint32_t encode_elements(const RowsPlane &plane, const uint8_t *elements, uint8_t *row, uint32_t heads)
{
    KvLaneCounts counts = {0, 0};

    for (uint32_t i = threadIdx.x; i < heads * plane.dim; i += blockDim.x) {
        const uint32_t head = i / plane.dim, e = i - head * plane.dim;
        const float    x = element_of<TYPE>(elements + head * plane.head_pitch + e * (TYPE == KVG_F32 ? 4 : 2));
        uint8_t       *at = row + head * plane.head_stride;

        switch (plane.format) {
        case KVG_FP8: at[e] = (uint8_t)kvg_dev_fp8(kvg_dev_clean<KVG_FP8>(x, counts)); break;
        case KVG_F16: ((uint16_t *)at)[e] = (uint16_t)kvg_dev_f16(kvg_dev_clean<KVG_F16>(x, counts)); break;
        case KVG_BF16: ((uint16_t *)at)[e] = (uint16_t)kvg_dev_bf16(kvg_dev_clean<KVG_BF16>(x, counts)); break;
        default: ((float *)at)[e] = kvg_dev_clean<KVG_F32>(x, counts); break;
        }
    }
    __syncwarp();
    return counted(counts);
}

/* ---- a lane a unit */

template <int TYPE, bool WIDE>
__device__ __forceinline__ uint32_t encode_few(const RowsLaunch &launch, const RowsPlane &plane, const Span &span)
{
    const uint32_t part = blockIdx.z < plane.few_parts ? blockIdx.z : blockIdx.z - plane.few_parts; /* parts are the same in both planes */
    Place          place = place_of(plane, threadIdx.x + part * blockDim.x);
    const uint32_t row = blockIdx.x * plane.few_rows + place.row;
    const bool     live = span.slot >= 0 && row < span.rows && place.row < plane.few_rows;
    uint8_t       *to = nullptr;
    Raw<TYPE, 8>   raw = quick_eight<TYPE>();

    if (live) {
        const uint32_t entry = chunk_or_base(plane, span.slot, span.first + row);
        raw = unit_of<TYPE, WIDE>(plane.elements + (int64_t)(span.token + row) * plane.token_bytes + place.head * plane.head_pitch +
                                  place.within * eight_bytes<TYPE>());
        to = target_of(plane, span.slot, span.first + row, entry).first + place.head * plane.head_stride;
    }
    return encode_any<TYPE>(plane.format, raw, to, place.within);
}

template <int TYPE, bool WIDE> __global__ void __launch_bounds__(THREADS) few_kernel(const __grid_constant__ RowsLaunch launch)
{
    const RowsPlane &plane = launch.plane[launch.planes == 2 && blockIdx.z >= launch.plane[0].few_parts];
    const Span       span = span_of_place<true>(launch, blockIdx.y);
    uint32_t         seen;

    if (plane.units != 0) {
        seen = encode_few<TYPE, WIDE>(launch, plane, span);
    } else {
        if (span.slot < 0 || blockIdx.x >= span.rows || (blockIdx.z != 0 && blockIdx.z != launch.plane[0].few_parts)) return;
        const uint32_t row = span.first + blockIdx.x;
        const Target   target = target_of(plane, span.slot, row, chunk_or_base(plane, span.slot, row));
        seen = encode_elements<TYPE>(plane, plane.elements + (int64_t)(span.token + blockIdx.x) * plane.token_bytes, target.first, launch.heads);
    }
    kvg_warp_count({seen & 0xffff, seen >> 16}, launch.counts);
}

/* ---- launches */

/* Blocks of rows, or parts of a row, for this many lanes; the same number of parts in both planes. */
dim3 few_grid(RowsLaunch *launch, uint32_t threads)
{
    uint32_t most = 1, parts = 1;

    for (uint32_t p = 0; p < launch->planes; p++) {
        uint32_t need = (launch->heads * launch->plane[p].units + threads - 1) / threads;
        if (need > parts) parts = need;
    }
    for (uint32_t p = 0; p < launch->planes; p++) {
        RowsPlane *plane = &launch->plane[p];

        plane->row_units = launch->heads * plane->units;
        plane->unit_magic = kvg_rows_magic(plane->units);
        plane->row_magic = kvg_rows_magic(plane->row_units);
        plane->few_parts = parts;
        plane->few_rows = parts == 1 && plane->row_units != 0 ? threads / plane->row_units : 1;
        uint32_t blocks = (launch->rows_max + plane->few_rows - 1) / plane->few_rows;
        if (blocks > most) most = blocks;
    }
    return dim3(most, launch->places, parts * launch->planes);
}

template <int TYPE> void start(const RowsLaunch &launch, dim3 grid, uint32_t threads, cudaStream_t stream)
{
    if (launch.aligned) few_kernel<TYPE, true><<<grid, threads, 0, stream>>>(launch);
    else few_kernel<TYPE, false><<<grid, threads, 0, stream>>>(launch);
}

} // namespace

void kvg_rows_encode_few(const RowsLaunch *whole, uint32_t type, cudaStream_t stream)
{
    RowsLaunch     launch = *whole;
    const uint64_t units = kvg_rows_units(whole);
    const uint32_t threads = units <= 32 ? 32 : units <= 64 ? 64 : THREADS;
    const dim3     grid = few_grid(&launch, threads);

    if (type == KVG_F32) start<KVG_F32>(launch, grid, threads, stream);
    else if (type == KVG_F16) start<KVG_F16>(launch, grid, threads, stream);
    else start<KVG_BF16>(launch, grid, threads, stream);
}

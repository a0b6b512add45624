/* Rows: encode of few rows (a decoding step's), of elements of any alignment, and of dimensions that are no multiple of 8.
 *
 * Bound by latency: of one row each of 64 sequences, 64 KiB at most are moved, and time goes into what must wait for what: launch, the places'
 * arrays (side by side), elements and the table's entry (side by side), arithmetic, stores. So a lane has one unit of 8 elements, four lanes a
 * block of 32, with shuffles instead of barriers; nothing is divided; and formats are known to the compiler where both planes' pair is a usual one,
 * since every branch on a parameter is a wait, and so is every line of instructions.
 *
 * Launch: up to 128 lanes; block x: some rows of a place, y: the place, z: plane * parts + part of a row. */
#include <stdlib.h>

#include "kernels/cuda_internal.h"
#include "kernels/rows_block.cuh"
#include "kernels/rows_tile.cuh"

namespace {

enum { ANY = 0 }; /* a format that is known at run time */

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

template <int TYPE, bool WIDE, int FORMAT>
__device__ __forceinline__ uint32_t encode_few(const RowsLaunch &launch, const RowsPlane &plane, const Span &span)
{
    const uint32_t part = blockIdx.z < plane.few_parts ? blockIdx.z : blockIdx.z - plane.few_parts; /* parts are the same in both planes */
    Place          place = place_of(plane, threadIdx.x + part * blockDim.x);
    const uint32_t row = blockIdx.x * plane.few_rows + place.row;
    const bool     live = span.slot >= 0 && row < span.rows && place.row < plane.few_rows;
    uint8_t       *to = nullptr;
    Raw<TYPE, 8>   raw = Raw<TYPE, 8>();

    if (live) {
        const uint32_t entry = chunk_or_base(plane, span.slot, span.first + row);
        raw = unit_of<TYPE, WIDE>(plane.elements + (int64_t)(span.token + row) * plane.token_bytes + place.head * plane.head_pitch +
                                  place.within * eight_bytes<TYPE>());
        to = target_of(plane, span.slot, span.first + row, entry).first + place.head * plane.head_stride;
    }
    if constexpr (FORMAT == ANY) return encode_any<TYPE>(plane.format, raw, to, place.within);
    return encode_unit<TYPE, FORMAT == ANY ? KVG_F32 : FORMAT>(raw, to, place.within);
}

/* Formats that are known at run time, and dimensions that are no multiple of 8. */
template <int TYPE, bool WIDE> __global__ void __launch_bounds__(THREADS) few_any_kernel(const __grid_constant__ RowsLaunch launch)
{
    const RowsPlane &plane = launch.plane[launch.planes == 2 && blockIdx.z >= launch.plane[0].few_parts];
    const Span       span = span_of_place<true>(launch, blockIdx.y);
    uint32_t         seen;

    if (plane.units != 0) {
        seen = encode_few<TYPE, WIDE, ANY>(launch, plane, span);
    } else {
        if (span.slot < 0 || blockIdx.x >= span.rows || (blockIdx.z != 0 && blockIdx.z != launch.plane[0].few_parts)) return;
        const uint32_t row = span.first + blockIdx.x;
        const Target   target = target_of(plane, span.slot, row, chunk_or_base(plane, span.slot, row));
        seen = encode_elements<TYPE>(plane, plane.elements + (int64_t)(span.token + blockIdx.x) * plane.token_bytes, target.first, launch.heads);
    }
    kvg_warp_count({seen & 0xffff, seen >> 16}, launch.counts);
}

/* Each plane has code of its own, so that its parameters stand at places that are known. */
template <int TYPE, int FIRST, int SECOND, bool BY_LENGTH, bool EARLY>
__global__ void __launch_bounds__(THREADS) few_kernel(const __grid_constant__ RowsLaunch launch)
{
#if __CUDA_ARCH__ >= 900
    if (EARLY) asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" ::: "memory");
#endif
    const Span span = span_of_place<BY_LENGTH>(launch, blockIdx.y);
    uint32_t   seen;

    if (launch.planes == 1 || blockIdx.z < launch.plane[0].few_parts) seen = encode_few<TYPE, true, FIRST>(launch, launch.plane[0], span);
    else seen = encode_few<TYPE, true, SECOND>(launch, launch.plane[1], span);
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

template <int TYPE, int FIRST, int SECOND> void start_pair(const RowsLaunch *launch, dim3 grid, uint32_t threads, cudaStream_t stream)
{
    const char *early = getenv("KVG_FEW_EARLY");

    if (early != nullptr) {
        cudaLaunchAttribute attribute = {};
        cudaLaunchConfig_t  config = {};

        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        config.gridDim = grid;
        config.blockDim = dim3(threads);
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = 1;
        cudaLaunchKernelEx(&config, few_kernel<TYPE, FIRST, SECOND, false, true>, *launch);
        return;
    }
    if (launch->first_row == nullptr && launch->len_staged != nullptr) few_kernel<TYPE, FIRST, SECOND, true, false><<<grid, threads, 0, stream>>>(*launch);
    else few_kernel<TYPE, FIRST, SECOND, false, false><<<grid, threads, 0, stream>>>(*launch);
}

/* False: formats that have no kernel of their own. */
template <int TYPE> bool start_known(const RowsLaunch *launch, dim3 grid, uint32_t threads, cudaStream_t stream)
{
    const uint32_t first = launch->plane[0].format, second = launch->planes == 2 ? launch->plane[1].format : first;

    if (first == KVG_Q8_0 && second == KVG_Q5_1) start_pair<TYPE, KVG_Q8_0, KVG_Q5_1>(launch, grid, threads, stream);
    else if (first == KVG_Q8_0 && second == KVG_Q8_0) start_pair<TYPE, KVG_Q8_0, KVG_Q8_0>(launch, grid, threads, stream);
    else if (first == KVG_BF16 && second == KVG_BF16) start_pair<TYPE, KVG_BF16, KVG_BF16>(launch, grid, threads, stream);
    else if (first == KVG_FP8 && second == KVG_FP8) start_pair<TYPE, KVG_FP8, KVG_FP8>(launch, grid, threads, stream);
    else return false;
    return true;
}

template <int TYPE> void start_type(const RowsLaunch *launch, dim3 grid, uint32_t threads, cudaStream_t stream)
{
    const bool whole = launch->plane[0].units != 0 && (launch->planes == 1 || launch->plane[1].units != 0);

    if (launch->aligned && whole && getenv("KVG_FEW_SWITCH") == nullptr && start_known<TYPE>(launch, grid, threads, stream)) return;
    if (launch->aligned) few_any_kernel<TYPE, true><<<grid, threads, 0, stream>>>(*launch);
    else few_any_kernel<TYPE, false><<<grid, threads, 0, stream>>>(*launch);
}

} // namespace

void kvg_rows_encode_few(const RowsLaunch *whole, uint32_t type, cudaStream_t stream)
{
    RowsLaunch     launch = *whole;
    const uint64_t units = kvg_rows_units(whole);
    const uint32_t threads = units <= 32 ? 32 : units <= 64 ? 64 : THREADS;
    const dim3     grid = few_grid(&launch, threads);

    if (type == KVG_F32) start_type<KVG_F32>(&launch, grid, threads, stream);
    else if (type == KVG_F16) start_type<KVG_F16>(&launch, grid, threads, stream);
    else start_type<KVG_BF16>(&launch, grid, threads, stream);
}

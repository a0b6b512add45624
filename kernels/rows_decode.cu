/* Rows: decode of a batch.
 *
 * Bound by memory: a row of 1024 elements brings 1088 bytes (q8_0) and leaves 2048 as bf16, and each is moved once.
 *
 * Launch: one block of 4 warps a tile, as for encoders, so that what is written is long. Blocks of 32 elements come to shared memory, a run a head,
 * by the copy engine, or in the widest loads that addresses allow; then a lane takes a quarter of a block at a time, and a warp stores 512 bytes of
 * bf16. Plain formats go straight through registers, four loads at once. */
#include "kernels/cuda_internal.h"
#include "kernels/rows_block.cuh"
#include "kernels/rows_tile.cuh"

namespace {

/* ---- elements */

/* The element type is rounded to nearest even and nothing else: infinities stay. */
template <int TYPE, bool WIDE> __device__ __forceinline__ void put_eight(const float (&x)[8], uint8_t *at)
{
    if constexpr (WIDE) {
        store_eight<TYPE>(x, at);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if constexpr (TYPE == KVG_F32) ((float *)at)[i] = x[i];
            else ((uint16_t *)at)[i] = (uint16_t)(kvg_dev_bf16x2(x[i], 0.0f) & 0xffff);
        }
    }
}

template <int FORMAT> struct Plain { /* eight as stored */
    uint32_t words[unit_bytes<FORMAT>() / 4];
};

template <int FORMAT> __device__ __forceinline__ Plain<FORMAT> load_plain(const uint8_t *at)
{
    Plain<FORMAT> plain;

    if constexpr (FORMAT == KVG_FP8) {
        const uint2 pair = __ldcs((const uint2 *)at);
        plain.words[0] = pair.x, plain.words[1] = pair.y;
    } else if constexpr (FORMAT != KVG_FP8) {
        const Raw<FORMAT, 8> raw = load_eight<FORMAT>(at);
#pragma unroll
        for (uint32_t i = 0; i < unit_bytes<FORMAT>() / 4; i++) plain.words[i] = raw.words[i];
    }
    return plain;
}

/* Two fp8 in the low bits; NaN becomes another NaN than kvg_dev_from_fp8's, which bf16 does not show. */
__device__ __forceinline__ void widen_fp8x2(uint32_t codes, float &first, float &second)
{
#if __CUDA_ARCH__ >= 890
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)codes));
    first = kvg_dev_from_f16(halves & 0xffff);
    second = kvg_dev_from_f16(halves >> 16);
#else
    first = kvg_dev_from_fp8(codes & 255);
    second = kvg_dev_from_fp8(codes >> 8 & 255);
#endif
}

template <int TYPE, int FORMAT> __device__ __forceinline__ void widen_plain(const Plain<FORMAT> &plain, float (&x)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if constexpr (FORMAT == KVG_F32) x[i] = __uint_as_float(plain.words[i]);
        if constexpr (FORMAT == KVG_F16) x[i] = kvg_dev_from_f16(plain.words[i / 2] >> (16 * (i & 1)) & 0xffff);
        if constexpr (FORMAT == KVG_BF16) x[i] = __uint_as_float(i & 1 ? plain.words[i / 2] & 0xffff0000u : plain.words[i / 2] << 16);
        if constexpr (FORMAT == KVG_FP8) {
            if constexpr (TYPE == KVG_F32) x[i] = kvg_dev_from_fp8(plain.words[i / 4] >> (8 * (i & 3)) & 255);
            else if (i % 2 == 0) widen_fp8x2(plain.words[i / 4] >> (8 * (i & 3)), x[i], x[i + 1]);
        }
    }
}

/* ---- block formats */

/* The tile's blocks, a run a head, by the copy engine where addresses and lengths are multiples of 16. All may read them then. */
__device__ __forceinline__ void get_blocks(const RowsPlane &plane, const Tile &tile, const Target &target, uint32_t heads, uint8_t *stage)
{
#if __CUDA_ARCH__ >= 900
    __shared__ __align__(8) uint64_t arrived;
    const uint32_t bytes = tile.rows * plane.row_bytes, barrier = (uint32_t)__cvta_generic_to_shared(&arrived);
    const uint8_t *from = target.first + tile.head * plane.head_stride;

    if (is_one_run(plane, target, tile.rows) && (((uint32_t)(uintptr_t)from | (uint32_t)plane.head_stride | bytes) & 15) == 0) {
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(barrier) : "memory");
            asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(barrier), "r"(heads * bytes) : "memory");
            for (uint32_t h = 0; h < heads; h++) {
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                                 (uint32_t)__cvta_generic_to_shared(stage + h * plane.stage_head)),
                             "l"(from + h * plane.head_stride), "r"(bytes), "r"(barrier)
                             : "memory");
            }
        }
        __syncthreads();
        uint32_t done = 0;
        while (done == 0) {
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(barrier) : "memory");
        }
        return;
    }
#endif
    copy_tile<false>(plane, target, tile.head, heads, tile.rows, stage);
    __syncthreads();
}

template <int TYPE, int FORMAT, bool WIDE> __device__ __forceinline__ void decode_unit(const uint8_t *block, uint32_t part, uint8_t *to)
{
    float x[8];

    kvg_decode_eight<FORMAT, FORMAT == KVG_Q5_1 ? 8 : 2>(block, part, x);
    put_eight<TYPE, WIDE>(x, to);
}

template <int TYPE, int FORMAT, bool WIDE>
__device__ __forceinline__ void decode_block_tile(const RowsLaunch &launch, const RowsPlane &plane, const Tile &tile, uint8_t *stage)
{
    const uint32_t units = tile.rows * plane.row_units;
    const Place    at = place_of(plane, threadIdx.x);
    uint8_t       *to = (uint8_t *)tile.elements + at.row * plane.token_bytes + at.head * plane.head_pitch + at.within * eight_bytes<TYPE>();
    const uint8_t *block = stage + at.head * plane.stage_head + at.row * plane.row_bytes + at.within / 4 * kvg_block_bytes<FORMAT>();
    const uint32_t block_step = plane.step * plane.row_bytes;
    const int64_t  step = plane.step * plane.token_bytes;

    get_blocks(plane, tile, target_of(plane, tile.slot, tile.row, chunk_or_base(plane, tile.slot, tile.row)), launch.group, stage);
    if (step != 0) {
#pragma unroll 2
        for (uint32_t unit = threadIdx.x; unit < units; unit += THREADS, block += block_step, to += step) {
            decode_unit<TYPE, FORMAT, WIDE>(block, at.within & 3, to);
        }
        return;
    }
#pragma unroll 1
    for (uint32_t unit = threadIdx.x; unit < units; unit += THREADS) {
        const Place    place = place_of(plane, unit);
        const uint8_t *from = stage + place.head * plane.stage_head + place.row * plane.row_bytes + place.within / 4 * kvg_block_bytes<FORMAT>();
        decode_unit<TYPE, FORMAT, WIDE>(from, place.within & 3, (uint8_t *)tile.elements + place.row * plane.token_bytes +
                                                                    place.head * plane.head_pitch + place.within * eight_bytes<TYPE>());
    }
}

/* ---- plain formats */

template <int TYPE, int FORMAT, bool WIDE> __device__ __forceinline__ void decode_plain(const Plain<FORMAT> &plain, uint8_t *to)
{
    float x[8];

    widen_plain<TYPE, FORMAT>(plain, x);
    put_eight<TYPE, WIDE>(x, to);
}

template <int TYPE, int FORMAT, bool WIDE> __device__ __forceinline__ void decode_plain_tile(const RowsPlane &plane, const Tile &tile)
{
    constexpr int  DEPTH = 4; /* loads at once */
    const uint32_t units = tile.rows * plane.row_units;
    const Target   target = target_of(plane, tile.slot, tile.row, chunk_or_base(plane, tile.slot, tile.row));
    Walk           walk = walk_of(plane, tile, target, eight_bytes<TYPE>(), unit_bytes<FORMAT>());
    uint32_t       unit = threadIdx.x;

    if (plane.step != 0 && tile.rows <= target.wrap_at) {
#pragma unroll 1
        for (; unit + (DEPTH - 1) * THREADS < units; unit += DEPTH * THREADS) {
            Plain<FORMAT> plain[DEPTH];
#pragma unroll
            for (int i = 0; i < DEPTH; i++, walk.stored += walk.stored_step) plain[i] = load_plain<FORMAT>(walk.stored);
#pragma unroll
            for (int i = 0; i < DEPTH; i++, walk.elements += walk.element_step) decode_plain<TYPE, FORMAT, WIDE>(plain[i], walk.elements);
        }
    }
#pragma unroll 1
    for (; unit < units; unit += THREADS) { /* rows that wrap, the last few */
        const Place at = place_of(plane, unit);
        decode_plain<TYPE, FORMAT, WIDE>(load_plain<FORMAT>(target_row(target, at.row) + (tile.head + at.head) * plane.head_stride + at.within * unit_bytes<FORMAT>()),
                                         (uint8_t *)tile.elements + at.row * plane.token_bytes + at.head * plane.head_pitch + at.within * eight_bytes<TYPE>());
    }
}

/* Dimensions that are no multiple of 8, or rows of odd alignment. */
template <int TYPE> __device__ __noinline__ void decode_elements(const RowsPlane &plane, const Tile &tile, uint32_t heads)
{
    const Target target = target_of(plane, tile.slot, tile.row, chunk_or_base(plane, tile.slot, tile.row));

    for (uint32_t i = threadIdx.x; i < tile.rows * heads * plane.dim; i += THREADS) {
        const uint32_t row = i / (heads * plane.dim), rest = i - row * heads * plane.dim, head = rest / plane.dim, e = rest - head * plane.dim;
        uint8_t       *at = (uint8_t *)tile.elements + row * plane.token_bytes + head * plane.head_pitch;
        const uint8_t *from = target_row(target, row) + (tile.head + head) * plane.head_stride;
        float          x;

        switch (plane.format) {
        case KVG_FP8: x = kvg_dev_from_fp8(from[e]); break;
        case KVG_F16: x = kvg_dev_from_f16(((const uint16_t *)from)[e]); break;
        case KVG_BF16: x = kvg_dev_from_bf16(((const uint16_t *)from)[e]); break;
        default: x = ((const float *)from)[e]; break;
        }
        if constexpr (TYPE == KVG_F32) ((float *)at)[e] = x;
        else ((uint16_t *)at)[e] = (uint16_t)(kvg_dev_bf16x2(x, 0.0f) & 0xffff);
    }
}

template <int TYPE, bool WIDE> __global__ void __launch_bounds__(THREADS, 8) decode_kernel(const __grid_constant__ RowsLaunch launch)
{
    extern __shared__ __align__(16) uint8_t stage[];
    const bool       second = blockIdx.z >= launch.groups;
    const RowsPlane &plane = launch.plane[second];
    const Tile       tile = tile_of(launch, plane, (blockIdx.z - (second ? launch.groups : 0)) * launch.group);

    if (tile.rows == 0) return;
    if (plane.units == 0) {
        decode_elements<TYPE>(plane, tile, launch.group);
        return;
    }
    switch (plane.format) {
    case KVG_F32: decode_plain_tile<TYPE, KVG_F32, WIDE>(plane, tile); break;
    case KVG_F16: decode_plain_tile<TYPE, KVG_F16, WIDE>(plane, tile); break;
    case KVG_BF16: decode_plain_tile<TYPE, KVG_BF16, WIDE>(plane, tile); break;
    case KVG_Q8_0: decode_block_tile<TYPE, KVG_Q8_0, WIDE>(launch, plane, tile, stage); break;
    case KVG_Q5_1: decode_block_tile<TYPE, KVG_Q5_1, WIDE>(launch, plane, tile, stage); break;
    case KVG_Q4_0: decode_block_tile<TYPE, KVG_Q4_0, WIDE>(launch, plane, tile, stage); break;
    case KVG_FP8: decode_plain_tile<TYPE, KVG_FP8, WIDE>(plane, tile); break;
    default: break;
    }
}

template <int TYPE> void start(const RowsLaunch &launch, dim3 grid, cudaStream_t stream)
{
    if (launch.aligned) decode_kernel<TYPE, true><<<grid, THREADS, launch.stage, stream>>>(launch);
    else decode_kernel<TYPE, false><<<grid, THREADS, launch.stage, stream>>>(launch);
}

} // namespace

extern "C" KvgStatus kvg_decode_batch_launch(const KvRowsBatch *batch, KvgStream stream)
{
    RowsLaunch launch;
    dim3       grid;

    KVG_TRY(kvg_rows_take(batch, &launch));
    if (batch->places == 0 || batch->rows_max == 0) return KVG_OK;
    const KvFormat type = batch->plane[0].in.type;
    if (type != KVG_F32 && type != KVG_BF16) return kvg_fail(KVG_EINVAL, "rows are decoded to f32 or bf16, not to %s", kvg_format_name(type));
    KVG_TRY(kvg_rows_cut(&launch, (uint32_t)type, &grid));
    if (launch.stage > 47 * 1024) return kvg_fail(KVG_EINVAL, "rows of %u elements a head: they are decoded where one takes less than 47 KiB", launch.plane[0].dim);
    if (type == KVG_F32) start<KVG_F32>(launch, grid, (cudaStream_t)stream);
    else start<KVG_BF16>(launch, grid, (cudaStream_t)stream);
    return kvg_cuda_check(cudaGetLastError(), "launching a decoder of rows");
}

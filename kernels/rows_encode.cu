/* Rows: encode of a batch, tile by tile.
 *
 * Bound by memory: a row of 1024 bf16 elements brings 2048 bytes and leaves 1088 (q8_0), and each is moved once. Next come the integer units, which
 * take half the rate of the rest: q8_0 and q5_1 want 3 of their instructions an element where 11 would be all there is time for (plane.cuh says
 * what is done elsewhere instead).
 *
 * Launch: one block of 4 warps a tile of 16 KiB of elements (rows_launch.cu), several to a multiprocessor, so that some load while others encode.
 * Block formats: each warp has its own elements on their way to shared memory, all at once, then a lane takes a block of 32 at a time; it needs no
 * other lane, and a warp no other warp. A block has 34, 24 or 18 bytes, so they are laid side by side in shared memory, head by head, and leave it
 * as one run a head by the copy engine, or in the widest stores that addresses allow. Of plain formats a lane fetches and stores 8
 * elements at a time. Few rows: rows_few.cu. */
#include "kernels/cuda_internal.h"
#include "kernels/rows_block.cuh"
#include "kernels/rows_tile.cuh"

namespace {

enum { SHARED_MOST = 48 * 1024 };

/* ---- block formats */

/* 16 bytes; `shared` is an address within shared memory. */
__device__ __forceinline__ void copy_async(uint32_t shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

__device__ __forceinline__ void wait_async()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Where a piece of 16 bytes stands: pieces of neighbouring blocks are shuffled lest lanes, which read a block each, meet in the same banks. */
template <int TYPE> __device__ __forceinline__ uint32_t piece_at(uint32_t piece)
{
    return 16 * (piece ^ (piece >> 3 & (TYPE == KVG_F32 ? 7 : 3)));
}

template <int TYPE> constexpr __device__ uint32_t block_pieces()
{
    return TYPE == KVG_F32 ? 8 : 4;
}

/* The elements of the warp's blocks: 32 from each multiple of THREADS on. Pieces of a block keep among themselves, so where a lane's stand does not
 * depend on `from`. */
template <int TYPE>
__device__ __forceinline__ void fetch_blocks(const RowsPlane &plane, const Tile &tile, uint32_t pieces, const uint8_t *elements)
{
    constexpr uint32_t PIECES = block_pieces<TYPE>();
    const uint32_t     lane = threadIdx.x & 31, row_pieces = plane.row_units * (eight_bytes<TYPE>() / 16);
    const uint32_t     shared = (uint32_t)__cvta_generic_to_shared(elements);
    const bool         solid = plane.solid;

#pragma unroll 1
    for (uint32_t from = (threadIdx.x & ~31u) * PIECES; from < pieces; from += THREADS * PIECES) {
        const uint8_t *at = tile.elements + (uint64_t)(from + lane) * 16;

        if (solid && from + 32 * PIECES <= pieces) {
#pragma unroll
            for (uint32_t i = 0; i < PIECES; i++) copy_async(shared + from * 16 + piece_at<TYPE>(32 * i + lane), at + 512 * i);
        } else {
#pragma unroll 1
            for (uint32_t piece = from + lane; piece < min(pieces, from + 32 * PIECES); piece += 32) {
                const uint32_t row = __umulhi(piece / (eight_bytes<TYPE>() / 16), plane.row_magic);
                copy_async(shared + piece_at<TYPE>(piece), tile.elements + row * plane.token_bytes + (piece - row * row_pieces) * 16);
            }
        }
    }
    wait_async();
    __syncwarp();
}

template <int TYPE> __device__ __forceinline__ Raw<TYPE, 32> staged_block(const uint8_t *elements, uint32_t block)
{
    Raw<TYPE, 32> raw;

#pragma unroll
    for (uint32_t i = 0; i < block_pieces<TYPE>(); i++) {
        const uint4 words = *(const uint4 *)(elements + piece_at<TYPE>(block * block_pieces<TYPE>() + i));
        raw.words[4 * i] = words.x, raw.words[4 * i + 1] = words.y, raw.words[4 * i + 2] = words.z, raw.words[4 * i + 3] = words.w;
    }
    return raw;
}

template <int TYPE, int FORMAT> __device__ __noinline__ uint32_t encode_cleaned(const uint8_t *elements, uint32_t block, uint8_t *target)
{
    const Raw<TYPE, 32> raw = staged_block<TYPE>(elements, block);
    KvLaneCounts        counts = {0, 0};
    float               x[32];

    widen<TYPE, 32>(raw, x);
    kvg_encode_block<FORMAT>(x, target, counts);
    return counted(counts);
}

template <int TYPE, int FORMAT>
__device__ __forceinline__ uint32_t encode_blocks(const RowsPlane &plane, uint32_t blocks, const uint8_t *elements, uint8_t *stage)
{
    uint32_t seen = 0;

#pragma unroll 1
    for (uint32_t block = threadIdx.x; block < blocks; block += THREADS) {
        const Place         place = place_of(plane, 4 * block);
        const Raw<TYPE, 32> raw = staged_block<TYPE>(elements, block);
        const KvSpan        span = span_of<TYPE, FORMAT, 32>(raw);
        uint8_t            *to = stage + place.head * plane.stage_head + place.row * plane.row_bytes + place.within / 4 * kvg_block_bytes<FORMAT>();

        if (__builtin_expect(span.bad, 0)) seen += encode_cleaned<TYPE, FORMAT>(elements, block, to);
        else encode_clean<TYPE, FORMAT, 8>(raw, span, to);
    }
    return seen;
}

/* The staged blocks, a run a head: by the copy engine where addresses and lengths are multiples of 16. */
__device__ __forceinline__ void put_blocks(const RowsPlane &plane, const Tile &tile, const Target &target, uint32_t heads, uint8_t *stage)
{
#if __CUDA_ARCH__ >= 900
    const uint32_t bytes = tile.rows * plane.row_bytes;
    uint8_t       *to = target.first + tile.head * plane.head_stride;

    if (is_one_run(plane, target, tile.rows) && (((uint32_t)(uintptr_t)to | (uint32_t)plane.head_stride | bytes) & 15) == 0) {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (threadIdx.x >= heads) return;
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to + threadIdx.x * plane.head_stride),
                     "r"((uint32_t)__cvta_generic_to_shared(stage + threadIdx.x * plane.stage_head)), "r"(bytes)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
        return;
    }
#endif
    __syncthreads();
    copy_tile<true>(plane, target, tile.head, heads, tile.rows, stage);
}

template <int TYPE, int FORMAT>
__device__ __forceinline__ uint32_t encode_block_tile(const RowsLaunch &launch, const RowsPlane &plane, const Tile &tile, uint8_t *stage)
{
    const uint32_t units = tile.rows * plane.row_units, entry = chunk_or_base(plane, tile.slot, tile.row);
    uint8_t       *elements = stage + launch.stage;

    fetch_blocks<TYPE>(plane, tile, units * (eight_bytes<TYPE>() / 16), elements);
    const uint32_t seen = encode_blocks<TYPE, FORMAT>(plane, units / 4, elements, stage);
    put_blocks(plane, tile, target_of(plane, tile.slot, tile.row, entry), launch.group, stage);
    return seen;
}

/* ---- plain formats */

template <int TYPE> __device__ __forceinline__ void fetch_unit(uint32_t shared, const uint8_t *from)
{
    copy_async(shared, from);
    if (TYPE == KVG_F32) copy_async(shared + 16, from + 16);
}

template <int TYPE> __device__ __forceinline__ Raw<TYPE, 8> staged_unit(const uint8_t *at)
{
    Raw<TYPE, 8> raw;

#pragma unroll
    for (uint32_t i = 0; i < eight_bytes<TYPE>() / 16; i++) {
        const uint4 words = *((const uint4 *)at + i);
        raw.words[4 * i] = words.x, raw.words[4 * i + 1] = words.y, raw.words[4 * i + 2] = words.z, raw.words[4 * i + 3] = words.w;
    }
    return raw;
}

/* Each lane fetches what it will read itself: to wait is enough. */
template <int TYPE, int FORMAT> __device__ __forceinline__ uint32_t encode_plain_tile(const RowsPlane &plane, const Tile &tile, const uint8_t *elements)
{
    constexpr uint32_t EIGHT = eight_bytes<TYPE>();
    const uint32_t     units = tile.rows * plane.row_units, shared = (uint32_t)__cvta_generic_to_shared(elements);
    const uint32_t     entry = chunk_or_base(plane, tile.slot, tile.row);
    uint32_t           seen = 0;

    if (plane.step != 0) {
        const Place    at = place_of(plane, threadIdx.x);
        const uint8_t *from = tile.elements + at.row * plane.token_bytes + at.head * plane.head_pitch + at.within * EIGHT;
        const int64_t  step = plane.step * plane.token_bytes;
#pragma unroll 4
        for (uint32_t unit = threadIdx.x; unit < units; unit += THREADS, from += step) fetch_unit<TYPE>(shared + unit * EIGHT, from);
    } else {
#pragma unroll 1
        for (uint32_t unit = threadIdx.x; unit < units; unit += THREADS) {
            const Place at = place_of(plane, unit);
            fetch_unit<TYPE>(shared + unit * EIGHT, tile.elements + at.row * plane.token_bytes + at.head * plane.head_pitch + at.within * EIGHT);
        }
    }
    const Target target = target_of(plane, tile.slot, tile.row, entry);
    const Place  at = place_of(plane, threadIdx.x);
    uint8_t     *to = target.first + at.row * target.stride + (tile.head + at.head) * plane.head_stride + at.within * unit_bytes<FORMAT>();
    wait_async();
    if (plane.step != 0 && tile.rows <= target.wrap_at) {
        const uint64_t step = plane.step * target.stride;
#pragma unroll 2
        for (uint32_t unit = threadIdx.x; unit < units; unit += THREADS, to += step) {
            seen += encode_eight<TYPE, FORMAT>(staged_unit<TYPE>(elements + unit * EIGHT), to);
        }
        return seen;
    }
#pragma unroll 1
    for (uint32_t unit = threadIdx.x; unit < units; unit += THREADS) {
        const Place place = place_of(plane, unit);
        seen += encode_eight<TYPE, FORMAT>(staged_unit<TYPE>(elements + unit * EIGHT), target_row(target, place.row) +
                                           (tile.head + place.head) * plane.head_stride + place.within * unit_bytes<FORMAT>());
    }
    return seen;
}

template <int TYPE> __global__ void __launch_bounds__(THREADS, 8) encode_kernel(const __grid_constant__ RowsLaunch launch)
{
    extern __shared__ __align__(16) uint8_t stage[];
    const bool       second = blockIdx.z >= launch.groups;
    const RowsPlane &plane = launch.plane[second];
    const Tile       tile = tile_of(launch, plane, (blockIdx.z - (second ? launch.groups : 0)) * launch.group);
    uint32_t         seen = 0;

    if (tile.rows == 0) return; /* the whole block */
    switch (plane.format) {
    case KVG_F32: seen = encode_plain_tile<TYPE, KVG_F32>(plane, tile, stage + launch.stage); break;
    case KVG_F16: seen = encode_plain_tile<TYPE, KVG_F16>(plane, tile, stage + launch.stage); break;
    case KVG_BF16: seen = encode_plain_tile<TYPE, KVG_BF16>(plane, tile, stage + launch.stage); break;
    case KVG_Q8_0: seen = encode_block_tile<TYPE, KVG_Q8_0>(launch, plane, tile, stage); break;
    case KVG_Q5_1: seen = encode_block_tile<TYPE, KVG_Q5_1>(launch, plane, tile, stage); break;
    case KVG_Q4_0: seen = encode_block_tile<TYPE, KVG_Q4_0>(launch, plane, tile, stage); break;
    case KVG_FP8: seen = encode_plain_tile<TYPE, KVG_FP8>(plane, tile, stage + launch.stage); break;
    default: break;
    }
    kvg_warp_count({seen & 0xffff, seen >> 16}, launch.counts);
}

/* Bytes of shared memory; 0 where a tile takes too many, or its dimension is no multiple of 8: left to rows_few.cu. */
uint32_t shared_bytes(const RowsLaunch *launch, uint32_t type)
{
    const uint32_t unit = type == KVG_F32 ? 32 : 16;
    uint64_t       most = 0;

    for (uint32_t p = 0; p < launch->planes; p++) {
        const RowsPlane *plane = &launch->plane[p];
        uint64_t         bytes = (uint64_t)launch->tile_rows * plane->row_units * unit + launch->stage;

        if (plane->units == 0 || bytes > SHARED_MOST) return 0;
        if (bytes > most) most = bytes;
    }
    return (uint32_t)most;
}

KvgStatus encode_tiles(RowsLaunch *launch, uint32_t type, cudaStream_t stream)
{
    dim3     grid;
    uint32_t shared;

    KVG_TRY(kvg_rows_cut(launch, type, &grid));
    shared = shared_bytes(launch, type);
    if (shared == 0) kvg_rows_encode_few(launch, type, stream);
    else if (type == KVG_F32) encode_kernel<KVG_F32><<<grid, THREADS, shared, stream>>>(*launch);
    else if (type == KVG_F16) encode_kernel<KVG_F16><<<grid, THREADS, shared, stream>>>(*launch);
    else encode_kernel<KVG_BF16><<<grid, THREADS, shared, stream>>>(*launch);
    return KVG_OK;
}

/* A decoding step has no more rows a sequence; and so few units of 8 elements that with one a lane, all lanes are there at once. */
enum { STEP_ROWS = 8, FEW_UNITS = 132 * 1024 };

} // namespace

extern "C" KvgStatus kvg_encode_batch_launch(const KvRowsBatch *batch, KvgStream stream)
{
    RowsLaunch launch;

    KVG_TRY(kvg_rows_take(batch, &launch));
    if (batch->places == 0 || batch->rows_max == 0) return KVG_OK;
    const uint32_t type = (uint32_t)batch->plane[0].in.type;
    const uint64_t units = kvg_rows_units(&launch) * launch.places * launch.planes;
    if (launch.rows_max <= STEP_ROWS && kvg_rows_encode_step(&launch, type, (cudaStream_t)stream)) {
        /* done */
    } else if (!launch.aligned || units <= FEW_UNITS) {
        kvg_rows_encode_few(&launch, type, (cudaStream_t)stream);
    } else {
        KVG_TRY(encode_tiles(&launch, type, (cudaStream_t)stream));
    }
    return kvg_cuda_check(cudaGetLastError(), "launching an encoder of rows");
}

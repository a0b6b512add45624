/* Rows: encode of a batch.
 *
 * Bound by memory: a row of 1024 bf16 elements brings 2048 bytes and leaves 1088 (q8_0), and each is moved once. Next comes instruction issue
 * (q5_1: about 110 a lane for 8 elements), so conversions that run at a fraction of the rate are avoided (plane.cuh). Small batches are bound by
 * latency: slots, rows and first rows are loaded together, elements while the table entry is still on its way.
 *
 * Tiles of 16 KiB are on their way at once to shared memory; then a lane takes a block of 32 elements at a time, or 8 of a plain format. A tile so
 * small that each lane has but 8 elements goes straight to registers, four lanes a block. The loop's body stands once: it must fit the instruction
 * caches. Blocks have 34, 24 or 18 bytes, so their bytes are laid side by side in shared memory, head by head, and leave it in the widest stores
 * that their address allows. Plain formats go straight from registers. */
#include "kernels/cuda_internal.h"
#include "kernels/rows_tile.cuh"

namespace {

enum Source { SOURCE_ANY, SOURCE_WIDE, SOURCE_SHARED }; /* elements: of any alignment; 16-byte loads; those, by way of shared memory */

__device__ __forceinline__ uint32_t max2(int type, uint32_t a, uint32_t b)
{
    uint32_t r;
    if (type == KVG_BF16) asm("max.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    else asm("max.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

__device__ __forceinline__ uint32_t min2(int type, uint32_t a, uint32_t b)
{
    uint32_t r;
    if (type == KVG_BF16) asm("min.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    else asm("min.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* 16-bit elements are compared two at a time, before they are widened. An exponent of ones is NaN or infinite: adding its last place carries. */
template <int TYPE, int FORMAT> __device__ __forceinline__ KvSpan span_of(const Raw<TYPE> &raw, const float (&x)[8])
{
    if constexpr (TYPE == KVG_F32) {
        return kvg_span_of<FORMAT, 8>(x);
    } else {
        const uint4    w = raw.words[0];
        const uint32_t carry = TYPE == KVG_BF16 ? 0x00800080u : 0x04000400u;
        uint32_t       high = max2(TYPE, max2(TYPE, w.x, w.y), max2(TYPE, w.z, w.w)), low = min2(TYPE, min2(TYPE, w.x, w.y), min2(TYPE, w.z, w.w));
        uint32_t       odd = ((w.x & 0x7fff7fffu) + carry) | ((w.y & 0x7fff7fffu) + carry) | ((w.z & 0x7fff7fffu) + carry) |
                       ((w.w & 0x7fff7fffu) + carry);
        Raw<TYPE> ends;
        float     e[8];
        KvSpan    span;

        ends.words[0] = make_uint4(low, high, 0, 0);
        widen<TYPE>(ends, e);
        span.low = fminf(e[0], e[1]);
        span.high = fmaxf(e[2], e[3]);
        const float limit = __uint_as_float(kvg_dev_limit<FORMAT>());
        span.bad = (odd & 0x80008000u) != 0 || span.high > limit || span.low < -limit;
        return span;
    }
}

/* The table's entry; flat: the absolute row at physical row 0. Only loaded: arithmetic on it would wait for it, and elements are still to be
 * asked for. */
__device__ __forceinline__ uint32_t chunk_or_base(const KvPlaneRef &ref, uint32_t slot, uint32_t row)
{
    if (ref.rows_per_chunk != 0) return (uint32_t)__ldg(ref.table + (size_t)slot * ref.table_stride + row / ref.rows_per_chunk);
    return ref.base_row != nullptr ? __ldg(ref.base_row + slot) : 0;
}

/* Where a tile's rows go: a tile lies within a chunk, and is no higher than a ring. */
struct Target {
    uint8_t *first;   /* row 0 of the tile, first head */
    size_t   stride;
    uint32_t wrap_at; /* from this row of the tile on, a ring's start; ~0: never */
    size_t   wrap;
};

__device__ __forceinline__ Target target_of(const KvPlaneRef &ref, const Tile &tile, uint32_t slot, uint32_t row, uint32_t entry)
{
    Target   target = {ref.plane.base + tile.head * ref.plane.head_stride, ref.plane.row_stride, ~0u, 0};
    uint32_t at = row - entry;

    if (ref.rows_per_chunk != 0) {
        at = row % ref.rows_per_chunk;
        target.first += (size_t)(int32_t)entry * ref.plane.chunk_bytes;
    } else {
        target.first += (size_t)slot * ref.plane.slot_bytes;
        if (ref.ring_rows != 0) {
            if (at >= ref.ring_rows) at %= (uint32_t)ref.ring_rows;
            target.wrap_at = (uint32_t)ref.ring_rows - at;
            target.wrap = (uint32_t)ref.ring_rows * target.stride;
        }
    }
    target.first += (size_t)at * target.stride;
    return target;
}

__device__ __forceinline__ uint8_t *target_row(const Target &target, uint32_t i)
{
    return target.first + i * target.stride - (i >= target.wrap_at ? target.wrap : 0);
}

/* The staged blocks, head by head. A head's rows lie side by side (pool chunks), or each for itself (flat planes of several heads, a ring's end). */
__device__ __forceinline__ void put_stage(const KvPlane &plane, const Target &target, uint32_t heads, uint8_t *stage, uint32_t rows)
{
    const uint32_t row_bytes = (uint32_t)plane.head_bytes, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const bool     together = rows == 1 || (target.stride == row_bytes && rows <= target.wrap_at);

    if (together && heads == 1) {
        copy_bytes<true>(target.first, stage, rows * row_bytes, threadIdx.x, blockDim.x);
    } else if (together) {
        for (uint32_t h = warp; h < heads; h += warps) {
            copy_bytes<true>(target.first + h * plane.head_stride, stage + h * rows * row_bytes, rows * row_bytes, threadIdx.x & 31, 32);
        }
    } else {
        for (uint32_t i = warp; i < rows; i += warps) {
            for (uint32_t h = 0; h < heads; h++) {
                copy_bytes<true>(target_row(target, i) + h * plane.head_stride, stage + (h * rows + i) * row_bytes, row_bytes, threadIdx.x & 31, 32);
            }
        }
    }
}

struct Place { /* of a unit in its tile */
    uint32_t row, head, within;
};

__device__ __forceinline__ Place place_of(const PlaneShape &shape, uint32_t unit)
{
    Place    place;
    uint32_t rest;

    place.row = shape.row_units == 1 ? unit : __umulhi(unit, shape.row_magic);
    rest = unit - place.row * shape.row_units;
    place.head = shape.units == 1 ? rest : __umulhi(rest, shape.magic);
    place.within = rest - place.head * shape.units;
    return place;
}

/* The lane's next unit. */
__device__ __forceinline__ Place next_place(const PlaneShape &shape, Place place, uint32_t unit)
{
    if (shape.step == 0) return place_of(shape, unit);
    place.row += shape.step;
    return place;
}

__device__ __forceinline__ void copy_async(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global) : "memory");
}

__device__ __forceinline__ void wait_async()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

template <int TYPE, int SOURCE> __device__ __forceinline__ Raw<TYPE> load_unit(const KvBatchPlane &plane, const Tile &tile, const Place &at)
{
    constexpr int  UNIT = TYPE == KVG_F32 ? 32 : 16;
    const uint8_t *from = tile.elements + at.row * tile.pitch + at.head * plane.in.head_stride * (UNIT / 8) + at.within * UNIT;

    return SOURCE == SOURCE_ANY ? gather_eight<TYPE>(from) : load_eight<TYPE>(from);
}

/* Where a piece of 16 bytes stands. BLOCKS: a lane will read a whole block, so pieces are shuffled lest lanes meet in the same banks. */
template <int TYPE, bool BLOCKS> __device__ __forceinline__ uint32_t piece_at(uint32_t piece)
{
    return 16 * (BLOCKS ? piece ^ (piece >> 3 & (TYPE == KVG_F32 ? 7 : 3)) : piece);
}

template <int TYPE, bool BLOCKS> __device__ __forceinline__ void fetch_unit(uint8_t *elements, uint32_t unit, const uint8_t *from)
{
    constexpr uint32_t PIECES = TYPE == KVG_F32 ? 2 : 1;
#pragma unroll
    for (uint32_t i = 0; i < PIECES; i++) copy_async(elements + piece_at<TYPE, BLOCKS>(unit * PIECES + i), from + 16 * i);
}

/* Without BLOCKS each lane fetches what it will read itself: a wait is enough, without a barrier. */
template <int TYPE, bool BLOCKS>
__device__ __forceinline__ void fetch_elements(const KvBatchPlane &plane, const PlaneShape &shape, const Tile &tile, uint8_t *elements)
{
    constexpr uint32_t UNIT = TYPE == KVG_F32 ? 32 : 16;
    const uint32_t     units = tile.rows * shape.row_units;
    const int64_t      head_pitch = plane.in.head_stride * (int64_t)(UNIT / 8);
    const Place        at = place_of(shape, threadIdx.x);
    const uint8_t     *from = tile.elements + at.row * tile.pitch + at.head * head_pitch + at.within * UNIT;
    const size_t       step = shape.step * tile.pitch;

    if (step != 0) {
#pragma unroll 4
        for (uint32_t unit = threadIdx.x; unit < units; unit += blockDim.x, from += step) fetch_unit<TYPE, BLOCKS>(elements, unit, from);
        return;
    }
#pragma unroll 1
    for (uint32_t unit = threadIdx.x; unit < units; unit += blockDim.x) {
        const Place place = place_of(shape, unit);
        fetch_unit<TYPE, BLOCKS>(elements, unit, tile.elements + place.row * tile.pitch + place.head * head_pitch + place.within * UNIT);
    }
}

/* Many blocks: a lane takes one by itself, which spares shuffles and three of four scales. */
template <int TYPE, int FORMAT>
__device__ __forceinline__ void encode_blocks(const PlaneShape &shape, uint32_t rows, uint32_t row_bytes, const uint8_t *elements, uint8_t *stage,
                                              KvLaneCounts &counts)
{
    constexpr uint32_t PIECES = TYPE == KVG_F32 ? 2 : 1; /* of 8 elements */
    const uint32_t     blocks = rows * shape.row_units / 4;

#pragma unroll 1
    for (uint32_t block = threadIdx.x; block < blocks; block += blockDim.x) {
        const Place at = place_of(shape, 4 * block);
        float       x[32];

#pragma unroll
        for (uint32_t part = 0; part < 4; part++) {
            Raw<TYPE> raw;
            float     eight[8];

#pragma unroll
            for (uint32_t i = 0; i < PIECES; i++) raw.words[i] = *(const uint4 *)(elements + piece_at<TYPE, true>((4 * block + part) * PIECES + i));
            widen<TYPE>(raw, eight);
#pragma unroll
            for (int i = 0; i < 8; i++) x[8 * part + i] = eight[i];
        }
        kvg_encode_block<FORMAT>(x, stage + (at.head * rows + at.row) * row_bytes + at.within / 4 * kvg_block_bytes<FORMAT>(), counts);
    }
}

template <int TYPE> __device__ __forceinline__ Raw<TYPE> staged_unit(const uint8_t *at)
{
    Raw<TYPE> raw;
    raw.words[0] = *(const uint4 *)at;
    if constexpr (TYPE == KVG_F32) raw.words[1] = *((const uint4 *)at + 1);
    return raw;
}

template <int TYPE, int SOURCE, int FORMAT>
__device__ __forceinline__ void encode_tile(const RowsLaunch &launch, const KvBatchPlane &plane, const Tile &tile, uint32_t slot, uint32_t row,
                                            uint8_t *stage)
{
    constexpr uint32_t UNIT = TYPE == KVG_F32 ? 32 : 16; /* bytes of 8 elements */
    constexpr bool     BY_BLOCKS = SOURCE == SOURCE_SHARED && kvg_is_block<FORMAT>();
    const PlaneShape   shape = launch.shape[blockIdx.z];
    const uint32_t     units = tile.rows * shape.row_units, row_bytes = (uint32_t)plane.to.plane.head_bytes;
    uint8_t           *elements = stage + launch.stage;
    const uint32_t     entry = chunk_or_base(plane.to, slot, row);
    KvLaneCounts       counts = {0, 0};
    Raw<TYPE>          raw = Raw<TYPE>();
    Place              at = place_of(shape, threadIdx.x);
    Target             target;

    if constexpr (SOURCE == SOURCE_SHARED) {
        fetch_elements<TYPE, kvg_is_block<FORMAT>()>(plane, shape, tile, elements);
    } else if (threadIdx.x < units) {
        raw = load_unit<TYPE, SOURCE>(plane, tile, at);
    }
    if constexpr (!kvg_is_block<FORMAT>()) target = target_of(plane.to, tile, slot, row, entry);
    if constexpr (SOURCE == SOURCE_SHARED) wait_async();
    if constexpr (BY_BLOCKS) {
        __syncthreads();
        encode_blocks<TYPE, FORMAT>(shape, tile.rows, row_bytes, elements, stage, counts);
    }
#pragma unroll 1
    for (uint32_t unit = threadIdx.x; !BY_BLOCKS && (unit & ~31u) < units; unit += blockDim.x) { /* whole warps; lanes past the end encode zeros */
        const Place next = next_place(shape, at, unit + blockDim.x);
        float       x[8];

        if constexpr (SOURCE == SOURCE_SHARED) {
            raw = Raw<TYPE>();
            if (unit < units) raw = staged_unit<TYPE>(elements + unit * UNIT);
        }
        widen<TYPE>(raw, x);
        KvSpan span = span_of<TYPE, FORMAT>(raw, x);
        if constexpr (SOURCE != SOURCE_SHARED) { /* the next one */
            raw = Raw<TYPE>();
            if (unit + blockDim.x < units) raw = load_unit<TYPE, SOURCE>(plane, tile, next);
        }
        if constexpr (kvg_is_block<FORMAT>()) {
            /* what lies past the end goes to the room behind the last row */
            uint8_t *block = stage + (unit < units ? (at.head * tile.rows + at.row) * row_bytes + at.within / 4 * kvg_block_bytes<FORMAT>()
                                                   : tile.rows * launch.group * row_bytes + (threadIdx.x & 31) / 4 * kvg_block_bytes<FORMAT>());
            kvg_quad_encode<FORMAT>(x, span, block, counts);
        } else {
            if (span.bad) {
#pragma unroll
                for (int i = 0; i < 8; i++) x[i] = kvg_dev_clean<FORMAT>(x[i], counts);
            }
            if (unit < units) store_eight<FORMAT>(x, target_row(target, at.row) + at.head * plane.to.plane.head_stride + at.within * unit_bytes<FORMAT>());
        }
        at = next;
    }
    if constexpr (kvg_is_block<FORMAT>()) {
        target = target_of(plane.to, tile, slot, row, entry);
        __syncthreads();
        put_stage(plane.to.plane, target, launch.group, stage, tile.rows);
    }
    kvg_warp_count(counts, launch.batch.counts);
}

/* Any dimension and alignment of a plain format. */
template <int TYPE>
__device__ __noinline__ void encode_elements(const RowsLaunch &launch, const KvBatchPlane &plane, Tile tile, uint32_t slot, uint32_t row,
                                             uint8_t **row_at)
{
    const uint32_t dim = plane.to.plane.head_dim, all = tile.rows * dim;
    KvLaneCounts   counts = {0, 0};

    find_rows(plane, tile, slot, row, row_at);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < all; i += blockDim.x) {
        uint32_t in_row = i / dim, e = i - in_row * dim;
        float    x = element_of<TYPE>(tile.elements + in_row * tile.pitch + e * (TYPE == KVG_F32 ? 4 : 2));
        uint8_t *at = row_at[in_row];

        switch (plane.to.plane.format) {
        case KVG_FP8: at[e] = (uint8_t)kvg_dev_fp8(kvg_dev_clean<KVG_FP8>(x, counts)); break;
        case KVG_F16: ((uint16_t *)at)[e] = (uint16_t)kvg_dev_f16(kvg_dev_clean<KVG_F16>(x, counts)); break;
        case KVG_BF16: ((uint16_t *)at)[e] = (uint16_t)kvg_dev_bf16(kvg_dev_clean<KVG_BF16>(x, counts)); break;
        default: ((float *)at)[e] = kvg_dev_clean<KVG_F32>(x, counts); break;
        }
    }
    __syncwarp();
    kvg_warp_count(counts, launch.batch.counts);
}

template <int TYPE, int SOURCE> __global__ void __launch_bounds__(THREADS, 8) encode_kernel(const __grid_constant__ RowsLaunch launch)
{
    extern __shared__ __align__(16) uint8_t stage[];
    __shared__ uint8_t                     *row_at[TILE_ROWS_MAX];
    const KvBatchPlane                     &plane = launch.batch.plane[blockIdx.z];
    uint32_t                                slot = 0, row = 0;
    const Tile                              tile = tile_of(launch, plane, slot, row);

    if (tile.rows == 0) return; /* the whole block */
    if (launch.shape[blockIdx.z].units == 0) {
        encode_elements<TYPE>(launch, plane, tile, slot, row, row_at);
        return;
    }
    switch (plane.to.plane.format) {
    case KVG_F32: encode_tile<TYPE, SOURCE, KVG_F32>(launch, plane, tile, slot, row, stage); break;
    case KVG_F16: encode_tile<TYPE, SOURCE, KVG_F16>(launch, plane, tile, slot, row, stage); break;
    case KVG_BF16: encode_tile<TYPE, SOURCE, KVG_BF16>(launch, plane, tile, slot, row, stage); break;
    case KVG_Q8_0: encode_tile<TYPE, SOURCE, KVG_Q8_0>(launch, plane, tile, slot, row, stage); break;
    case KVG_Q5_1: encode_tile<TYPE, SOURCE, KVG_Q5_1>(launch, plane, tile, slot, row, stage); break;
    case KVG_Q4_0: encode_tile<TYPE, SOURCE, KVG_Q4_0>(launch, plane, tile, slot, row, stage); break;
    case KVG_FP8: encode_tile<TYPE, SOURCE, KVG_FP8>(launch, plane, tile, slot, row, stage); break;
    default: break;
    }
}

/* Shared memory for a tile's elements; 0: each lane has one unit, or they would not fit. */
uint32_t elements_bytes(const RowsLaunch *launch, uint32_t threads)
{
    const KvRowsBatch *batch = &launch->batch;
    uint32_t           units = 0, unit = batch->plane[0].in.type == KVG_F32 ? 32 : 16;

    for (uint32_t p = 0; p < batch->planes; p++) {
        uint32_t mine = launch->tile_rows * launch->shape[p].row_units;
        if (mine > units) units = mine;
    }
    return units <= threads || units * unit + launch->stage > SHARED_MOST ? 0 : units * unit;
}

template <int TYPE> void launch_encode(const RowsLaunch *launch, bool vector, dim3 grid, uint32_t threads, cudaStream_t stream)
{
    uint32_t stage = launch->stage, elements = vector ? elements_bytes(launch, threads) : 0;

    if (elements != 0) encode_kernel<TYPE, SOURCE_SHARED><<<grid, threads, stage + elements, stream>>>(*launch);
    else if (vector) encode_kernel<TYPE, SOURCE_WIDE><<<grid, threads, stage, stream>>>(*launch);
    else encode_kernel<TYPE, SOURCE_ANY><<<grid, threads, stage, stream>>>(*launch);
}

} // namespace

extern "C" KvgStatus kvg_encode_batch_launch(const KvRowsBatch *batch, KvgStream stream)
{
    RowsLaunch launch = {};
    dim3       grid;
    uint32_t   threads;
    bool       vector = kvg_rows_aligned(batch);
    KvFormat   type = batch->plane[0].in.type;

    KVG_TRY(kvg_rows_check(batch));
    if (batch->planes == 2 && batch->plane[1].in.type != type) {
        return kvg_fail(KVG_EINVAL, "elements of two types in one launch (%s and %s): give both planes in one", kvg_format_name(type),
                        kvg_format_name(batch->plane[1].in.type));
    }
    if (batch->places == 0 || batch->rows_max == 0) return KVG_OK;
    KVG_TRY(kvg_rows_shape(batch, true, &launch, &grid, &threads));
    switch (type) {
    case KVG_F32: launch_encode<KVG_F32>(&launch, vector, grid, threads, (cudaStream_t)stream); break;
    case KVG_F16: launch_encode<KVG_F16>(&launch, vector, grid, threads, (cudaStream_t)stream); break;
    case KVG_BF16: launch_encode<KVG_BF16>(&launch, vector, grid, threads, (cudaStream_t)stream); break;
    default: return kvg_fail(KVG_EINVAL, "elements of type %s cannot be encoded; give f32, f16 or bf16", kvg_format_name(type));
    }
    return kvg_cuda_check(cudaGetLastError(), "launching an encoder of rows");
}

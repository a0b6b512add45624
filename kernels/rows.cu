/* Rows: encode and decode of a batch.
 *
 * Bound by memory: a row of 1024 bf16 elements brings 2048 bytes and leaves 1088 (q8_0), and each is moved once. Next comes instruction issue
 * (q5_1: about 110 a lane for 8 elements), so conversions that run at a fraction of the rate are avoided (plane.cuh). Small batches are bound by
 * latency: slots, rows and first rows are loaded together, elements while the table entry is still on its way.
 *
 * Launch: one block a tile: consecutive rows of some heads of one plane of one place, cut at multiples of the tile, so within a chunk.
 *   x  tile * groups + group of heads     y  place     z  plane
 * A tile of the encoder takes as many heads as make 2 KiB of a row, so that reads are long, and 16 KiB in all, on their way at once to shared
 * memory; then a lane takes a block of 32 elements at a time, or 8 of a plain format. A tile so small that each lane has but 8 elements goes
 * straight to registers, four lanes a block. The loop's body stands once: it must fit the instruction caches. The decoder's tiles are one head of up to 64 rows. Blocks have 34, 24 or 18 bytes, so their bytes are laid side by side in shared
 * memory, head by head, and leave it in the widest stores that their address allows. Plain formats go straight from registers. */
#include <cuda_runtime_api.h>

#include "kernels/cuda_internal.h"
#include "kernels/cuda_rows.h"
#include "kernels/plane.cuh"

namespace {

enum { TILE_ROWS_MAX = 64, THREADS = 128, STAGE_BYTES = 16384, SHARED_MOST = 48 * 1024 - TILE_ROWS_MAX * 8 };
enum { TILE_READ = 16384, ROW_READ = 2048, BLOCKS_ENOUGH = 1024 }; /* encoder: bytes of a tile and of its rows; blocks that fill a GPU */
enum Source { SOURCE_ANY, SOURCE_WIDE, SOURCE_SHARED }; /* elements: of any alignment; 16-byte loads; those, by way of shared memory */

struct PlaneShape { /* what the host works out once for a plane */
    uint32_t units;     /* of 8 elements in one head's row; 0: element by element */
    uint32_t magic;     /* unit * magic >> 32 is the row of one head */
    uint32_t row_units; /* of all the tile's heads */
    uint32_t row_magic;
    uint32_t step;      /* rows from one of a lane's units to its next, if that has the same place in its row; else 0 */
};

struct RowsLaunch {
    KvRowsBatch batch;
    PlaneShape  shape[2];
    uint32_t    tile_rows; /* a power of two */
    uint32_t    group;     /* heads of a tile */
    uint32_t    groups;
    uint32_t    stage;     /* bytes for blocks; the encoder's elements stand behind them */
};

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

/* Into shared memory. Rows lie side by side (pool chunks, one head), or each for itself (flat planes of several heads, a ring's end). */
__device__ __forceinline__ void fetch_tile(uint8_t *const *row_at, uint8_t *stage, uint32_t rows, uint32_t row_bytes)
{
    if (row_at[rows - 1] == row_at[0] + (size_t)(rows - 1) * row_bytes) {
        copy_bytes<false>(row_at[0], stage, rows * row_bytes, threadIdx.x, blockDim.x);
        return;
    }
    for (uint32_t i = threadIdx.x / 32; i < rows; i += blockDim.x / 32) copy_bytes<false>(row_at[i], stage + i * row_bytes, row_bytes, threadIdx.x & 31, 32);
}

/* ---- encode */

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

/* ---- decode */

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

/* ---- launches */

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

KvgStatus check(const KvRowsBatch *batch)
{
    if (batch->planes < 1 || batch->planes > 2 || batch->heads == 0 || batch->places > 65535) {
        return kvg_fail(KVG_EINVAL, "a launch over %u planes of %u heads and %u places: planes are 1 or 2, heads at least 1, places at most 65535",
                        batch->planes, batch->heads, batch->places);
    }
    return KVG_OK;
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

/* Tiles as high as chunks and shared memory allow, and no higher than the rows there are. */
KvgStatus shape_launch(const KvRowsBatch *batch, bool encode, RowsLaunch *launch, dim3 *grid, uint32_t *threads)
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
    bool       vector = elements_fit(&batch->plane[0].in) && (batch->planes < 2 || elements_fit(&batch->plane[1].in));
    KvFormat   type = batch->plane[0].in.type;

    KVG_TRY(check(batch));
    if (batch->planes == 2 && batch->plane[1].in.type != type) {
        return kvg_fail(KVG_EINVAL, "elements of two types in one launch (%s and %s): give both planes in one", kvg_format_name(type),
                        kvg_format_name(batch->plane[1].in.type));
    }
    if (batch->places == 0 || batch->rows_max == 0) return KVG_OK;
    KVG_TRY(shape_launch(batch, true, &launch, &grid, &threads));
    switch (type) {
    case KVG_F32: launch_encode<KVG_F32>(&launch, vector, grid, threads, (cudaStream_t)stream); break;
    case KVG_F16: launch_encode<KVG_F16>(&launch, vector, grid, threads, (cudaStream_t)stream); break;
    case KVG_BF16: launch_encode<KVG_BF16>(&launch, vector, grid, threads, (cudaStream_t)stream); break;
    default: return kvg_fail(KVG_EINVAL, "elements of type %s cannot be encoded; give f32, f16 or bf16", kvg_format_name(type));
    }
    return kvg_cuda_check(cudaGetLastError(), "launching an encoder of rows");
}

extern "C" KvgStatus kvg_decode_batch_launch(const KvRowsBatch *batch, KvgStream stream)
{
    RowsLaunch launch = {};
    dim3       grid;
    uint32_t   threads;
    bool       aligned = elements_fit(&batch->plane[0].in) && (batch->planes < 2 || elements_fit(&batch->plane[1].in));

    KVG_TRY(check(batch));
    if (batch->places == 0 || batch->rows_max == 0) return KVG_OK;
    KVG_TRY(shape_launch(batch, false, &launch, &grid, &threads));
    if (batch->plane[0].in.type == KVG_F32) {
        decode_kernel<KVG_F32><<<grid, threads, launch.stage, (cudaStream_t)stream>>>(launch, aligned);
    } else if (batch->plane[0].in.type == KVG_BF16) {
        decode_kernel<KVG_BF16><<<grid, threads, launch.stage, (cudaStream_t)stream>>>(launch, aligned);
    } else {
        return kvg_fail(KVG_EINVAL, "rows are decoded to f32 or bf16, not to %s", kvg_format_name(batch->plane[0].in.type));
    }
    return kvg_cuda_check(cudaGetLastError(), "launching a decoder of rows");
}

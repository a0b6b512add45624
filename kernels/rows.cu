/* Rows: encode and decode of a batch.
 *
 * Bound by memory: a row of 1024 bf16 elements brings 2048 bytes and leaves 1088 (q8_0), and each is moved once. Next comes instruction issue
 * (q5_1: about 110 a lane for 8 elements), so conversions that run at a fraction of the rate are avoided (plane.cuh). Small batches are bound by
 * latency: slots, rows and first rows are loaded together, elements while the table entry is still on its way.
 *
 * Launch: one block a tile: up to 64 consecutive rows of one head of one plane of one place, cut at multiples of the tile, so within a chunk.
 *   x  tile * heads + head   heads fastest: their elements are neighbours in memory
 *   y  place                 z  plane
 * A lane holds 8 neighbouring elements (16 bytes of bf16), four lanes a block of 32. Blocks have 34, 24 or 18 bytes, so their bytes are laid side
 * by side in shared memory and leave it in the widest stores that the tile's address allows. Plain formats go straight from registers. */
#include <cuda_runtime_api.h>

#include "kernels/cuda_internal.h"
#include "kernels/cuda_rows.h"
#include "kernels/plane.cuh"

namespace {

enum { TILE_ROWS_MAX = 64, THREADS = 128, STAGE_BYTES = 16384 };

struct PlaneShape { /* what the host works out once for a plane */
    uint32_t units;  /* of 8 elements in one head's row; 0: element by element */
    uint32_t magic;  /* unit * magic >> 32 is the row */
};

struct RowsLaunch {
    KvRowsBatch batch;
    PlaneShape  shape[2];
    uint32_t    tile_rows; /* a power of two */
    uint32_t    staged[2]; /* decode: blocks go through shared memory */
};

struct Tile {
    uint32_t       rows;
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
    const uint32_t     place = blockIdx.y, head = blockIdx.x % batch.heads, tile = blockIdx.x / batch.heads;
    const uint32_t     bytes = plane.in.type == KVG_F32 ? 4 : 2;
    Tile               none = {0, nullptr, 0}, t;
    int32_t            at = batch.slots != nullptr ? __ldg(batch.slots + place) : (int32_t)place;
    uint32_t           rows = batch.rows != nullptr ? __ldg(batch.rows + place) : batch.rows_max;
    uint32_t           first = batch.first_row != nullptr ? __ldg(batch.first_row + place) : 0;
    uint64_t           token = batch.first_token != nullptr ? __ldg(batch.first_token + place) : (uint64_t)place * batch.token_pitch;

    if (at < 0 || rows == 0) return none;
    slot = (uint32_t)at;
    if (batch.first_row == nullptr && batch.len_staged != nullptr) first = __ldg(batch.len_staged + slot) - rows;
    uint32_t from = first / launch.tile_rows * launch.tile_rows + tile * launch.tile_rows;
    uint32_t end = min(first + rows, from + launch.tile_rows);
    from = max(first, from);
    if (from >= end) return none;
    row = from;
    t.rows = end - from;
    t.pitch = (size_t)plane.in.token_stride * bytes;
    t.elements = (const uint8_t *)plane.in.data + (int64_t)(token + (from - first)) * plane.in.token_stride * bytes +
                 (int64_t)head * plane.in.head_stride * bytes;
    return t;
}

/* Addresses of the tile's rows, each by one thread; the caller synchronises. */
__device__ __forceinline__ void find_rows(const KvBatchPlane &plane, uint32_t heads, uint32_t slot, uint32_t row, uint32_t rows, uint8_t **row_at)
{
    const uint32_t head = blockIdx.x % heads;
    for (uint32_t i = threadIdx.x; i < rows; i += blockDim.x) row_at[i] = kvg_ref_row(plane.to, slot, row + i) + head * plane.to.plane.head_stride;
}

template <class WORD, bool OUT> __device__ __forceinline__ void copy_words(uint8_t *global, uint8_t *shared, uint32_t bytes, uint32_t thread, uint32_t threads)
{
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

/* Rows lie side by side (pool chunks, one head), or each for itself (flat planes of several heads, a ring's end). */
template <bool OUT> __device__ __forceinline__ void copy_tile(uint8_t *const *row_at, uint8_t *stage, uint32_t rows, uint32_t row_bytes)
{
    if (row_at[rows - 1] == row_at[0] + (size_t)(rows - 1) * row_bytes) {
        copy_bytes<OUT>(row_at[0], stage, rows * row_bytes, threadIdx.x, blockDim.x);
        return;
    }
    for (uint32_t i = threadIdx.x / 32; i < rows; i += blockDim.x / 32) copy_bytes<OUT>(row_at[i], stage + i * row_bytes, row_bytes, threadIdx.x & 31, 32);
}

/* ---- encode */

template <int TYPE, bool VECTOR, int FORMAT>
__device__ __forceinline__ void encode_tile(const RowsLaunch &launch, const KvBatchPlane &plane, const Tile &tile, uint32_t slot, uint32_t row,
                                            uint8_t **row_at, uint8_t *stage)
{
    constexpr int    DEPTH = !VECTOR ? 1 : TYPE == KVG_F32 ? 2 : 4; /* loads in flight */
    constexpr int    ELEMENT = TYPE == KVG_F32 ? 4 : 2;
    const PlaneShape shape = launch.shape[blockIdx.z];
    const uint32_t   units = tile.rows * shape.units, row_bytes = (uint32_t)plane.to.plane.head_bytes;
    KvLaneCounts     counts = {0, 0};

    for (uint32_t from = 0; from < units; from += DEPTH * blockDim.x) {
        Raw<TYPE> raw[DEPTH];
        uint32_t  in_row[DEPTH], within[DEPTH];

#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            uint32_t unit = from + k * blockDim.x + threadIdx.x;
            in_row[k] = shape.units == 1 ? unit : __umulhi(unit, shape.magic);
            within[k] = unit - in_row[k] * shape.units;
            const uint8_t *at = tile.elements + in_row[k] * tile.pitch + within[k] * (8 * ELEMENT);
            raw[k] = Raw<TYPE>();
            if (unit < units) raw[k] = VECTOR ? load_eight<TYPE>(at) : gather_eight<TYPE>(at);
        }
        if (from == 0) {
            find_rows(plane, launch.batch.heads, slot, row, tile.rows, row_at);
            __syncthreads();
        }
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            uint32_t first = from + k * blockDim.x, unit = first + threadIdx.x;
            float    x[8];

            if (first + (threadIdx.x & ~31u) >= units) break; /* the whole warp */
            widen<TYPE>(raw[k], x);
            KvSpan span = span_of<TYPE, FORMAT>(raw[k], x);
            if constexpr (kvg_is_block<FORMAT>()) {
                /* lanes past the end encode zeros into the room behind the last row */
                uint8_t *block = stage + (unit < units ? in_row[k] * row_bytes + within[k] / 4 * kvg_block_bytes<FORMAT>()
                                                       : tile.rows * row_bytes + (threadIdx.x & 31) / 4 * kvg_block_bytes<FORMAT>());
                kvg_quad_encode<FORMAT>(x, span, block, counts);
            } else {
                if (span.bad) {
#pragma unroll
                    for (int i = 0; i < 8; i++) x[i] = kvg_dev_clean<FORMAT>(x[i], counts);
                }
                if (unit < units) store_eight<FORMAT>(x, row_at[in_row[k]] + within[k] * unit_bytes<FORMAT>());
            }
        }
    }
    if constexpr (kvg_is_block<FORMAT>()) {
        __syncthreads();
        copy_tile<true>(row_at, stage, tile.rows, row_bytes);
    }
    kvg_warp_count(counts, launch.batch.counts);
}

/* Any dimension and alignment of a plain format. */
template <int TYPE>
__device__ __noinline__ void encode_elements(const RowsLaunch &launch, const KvBatchPlane &plane, const Tile &tile, uint32_t slot, uint32_t row,
                                             uint8_t **row_at)
{
    const uint32_t dim = plane.to.plane.head_dim, all = tile.rows * dim;
    KvLaneCounts   counts = {0, 0};

    find_rows(plane, launch.batch.heads, slot, row, tile.rows, row_at);
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

template <int TYPE, bool VECTOR> __global__ void __launch_bounds__(THREADS) encode_kernel(const __grid_constant__ RowsLaunch launch)
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
    case KVG_F32: encode_tile<TYPE, VECTOR, KVG_F32>(launch, plane, tile, slot, row, row_at, stage); break;
    case KVG_F16: encode_tile<TYPE, VECTOR, KVG_F16>(launch, plane, tile, slot, row, row_at, stage); break;
    case KVG_BF16: encode_tile<TYPE, VECTOR, KVG_BF16>(launch, plane, tile, slot, row, row_at, stage); break;
    case KVG_Q8_0: encode_tile<TYPE, VECTOR, KVG_Q8_0>(launch, plane, tile, slot, row, row_at, stage); break;
    case KVG_Q5_1: encode_tile<TYPE, VECTOR, KVG_Q5_1>(launch, plane, tile, slot, row, row_at, stage); break;
    case KVG_Q4_0: encode_tile<TYPE, VECTOR, KVG_Q4_0>(launch, plane, tile, slot, row, row_at, stage); break;
    case KVG_FP8: encode_tile<TYPE, VECTOR, KVG_FP8>(launch, plane, tile, slot, row, row_at, stage); break;
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
        copy_tile<false>(row_at, stage, tile.rows, row_bytes);
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

template <int TYPE> __device__ __noinline__ void decode_elements(const KvBatchPlane &plane, const Tile &tile, uint8_t **row_at)
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
    find_rows(plane, launch.batch.heads, slot, row, tile.rows, row_at);
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

/* Tiles as high as chunks and shared memory allow, and no higher than the rows there are. */
KvgStatus shape_launch(const KvRowsBatch *batch, RowsLaunch *launch, dim3 *grid, uint32_t *threads, uint32_t *stage)
{
    uint32_t rows = batch->rows_max < TILE_ROWS_MAX ? power_above(batch->rows_max) : (uint32_t)TILE_ROWS_MAX;
    uint32_t units_most = 0;

    launch->batch = *batch;
    *stage = 0;
    for (uint32_t p = 0; p < batch->planes; p++) {
        const KvPlaneRef *ref = &batch->plane[p].to;
        uint32_t          row_bytes = (uint32_t)ref->plane.head_bytes;

        if (ref->rows_per_chunk != 0 && rows > ref->rows_per_chunk) rows = ref->rows_per_chunk; /* 64, or 64/pool: powers of two */
        while (rows > 1 && rows * row_bytes > STAGE_BYTES) rows /= 2;
        launch->shape[p].units = is_block(ref->plane.format) || plain_units_fit(ref) ? ref->plane.head_dim / 8 : 0;
        if (launch->shape[p].units > 1) launch->shape[p].magic = (uint32_t)((0x100000000ull + launch->shape[p].units - 1) / launch->shape[p].units);
    }
    for (uint32_t p = 0; p < batch->planes; p++) {
        const KvPlane *plane = &batch->plane[p].to.plane;
        uint32_t       bytes = is_block(plane->format) ? rows * (uint32_t)plane->head_bytes + 8 * 34 : 0;
        uint32_t       units = rows * (launch->shape[p].units != 0 ? launch->shape[p].units : (plane->head_dim + 7) / 8);

        if (bytes > *stage) *stage = bytes;
        if (units > units_most) units_most = units;
    }
    if (*stage > 48 * 1024 || units_most > 65535) {
        return kvg_fail(KVG_EINVAL, "rows of %u elements a head: a launch takes rows of up to 48 KiB", batch->plane[0].to.plane.head_dim);
    }
    launch->tile_rows = rows;
    *threads = units_most >= THREADS ? (uint32_t)THREADS : (units_most + 31) / 32 * 32;
    uint64_t tiles = rows >= batch->rows_max && batch->rows_max == 1 ? 1 : (uint64_t)(batch->rows_max + rows - 2) / rows + 1;
    if (tiles * batch->heads > INT32_MAX) return kvg_fail(KVG_EINVAL, "a launch over %u rows of %u heads: too many tiles", batch->rows_max, batch->heads);
    *grid = dim3((uint32_t)tiles * batch->heads, batch->places, batch->planes);
    return KVG_OK;
}

template <int TYPE> void launch_encode(const RowsLaunch *launch, bool vector, dim3 grid, uint32_t threads, uint32_t stage, cudaStream_t stream)
{
    if (vector) encode_kernel<TYPE, true><<<grid, threads, stage, stream>>>(*launch);
    else encode_kernel<TYPE, false><<<grid, threads, stage, stream>>>(*launch);
}

} // namespace

extern "C" KvgStatus kvg_encode_batch_launch(const KvRowsBatch *batch, KvgStream stream)
{
    RowsLaunch launch = {};
    dim3       grid;
    uint32_t   threads, stage;
    bool       vector = elements_fit(&batch->plane[0].in) && (batch->planes < 2 || elements_fit(&batch->plane[1].in));
    KvFormat   type = batch->plane[0].in.type;

    KVG_TRY(check(batch));
    if (batch->planes == 2 && batch->plane[1].in.type != type) {
        return kvg_fail(KVG_EINVAL, "elements of two types in one launch (%s and %s): give both planes in one", kvg_format_name(type),
                        kvg_format_name(batch->plane[1].in.type));
    }
    if (batch->places == 0 || batch->rows_max == 0) return KVG_OK;
    KVG_TRY(shape_launch(batch, &launch, &grid, &threads, &stage));
    switch (type) {
    case KVG_F32: launch_encode<KVG_F32>(&launch, vector, grid, threads, stage, (cudaStream_t)stream); break;
    case KVG_F16: launch_encode<KVG_F16>(&launch, vector, grid, threads, stage, (cudaStream_t)stream); break;
    case KVG_BF16: launch_encode<KVG_BF16>(&launch, vector, grid, threads, stage, (cudaStream_t)stream); break;
    default: return kvg_fail(KVG_EINVAL, "elements of type %s cannot be encoded; give f32, f16 or bf16", kvg_format_name(type));
    }
    return kvg_cuda_check(cudaGetLastError(), "launching an encoder of rows");
}

extern "C" KvgStatus kvg_decode_batch_launch(const KvRowsBatch *batch, KvgStream stream)
{
    RowsLaunch launch = {};
    dim3       grid;
    uint32_t   threads, stage;
    bool       aligned = elements_fit(&batch->plane[0].in) && (batch->planes < 2 || elements_fit(&batch->plane[1].in));

    KVG_TRY(check(batch));
    if (batch->places == 0 || batch->rows_max == 0) return KVG_OK;
    KVG_TRY(shape_launch(batch, &launch, &grid, &threads, &stage));
    if (batch->plane[0].in.type == KVG_F32) {
        decode_kernel<KVG_F32><<<grid, threads, stage, (cudaStream_t)stream>>>(launch, aligned);
    } else if (batch->plane[0].in.type == KVG_BF16) {
        decode_kernel<KVG_BF16><<<grid, threads, stage, (cudaStream_t)stream>>>(launch, aligned);
    } else {
        return kvg_fail(KVG_EINVAL, "rows are decoded to f32 or bf16, not to %s", kvg_format_name(batch->plane[0].in.type));
    }
    return kvg_cuda_check(cudaGetLastError(), "launching a decoder of rows");
}

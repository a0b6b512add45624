/* Rows: encode of a decoding step's rows, of the usual formats.
 *
 * Bound by latency, and that by instructions: a kernel's are cold when it starts (measured: 2 cycles each in a straight line of independent ones),
 * so what is run once costs its length. A lane has one unit of 8 elements, four lanes a block of 32. Indices come from the grid's and the block's own coordinates, so
 * nothing is divided; the places' arrays are loaded side by side, then elements and the table's entry; each plane has code of its own. What is rare
 * (cleaning, tiny scales, zeros that decide a sign) is found by one vote of the warp and done by a call of what rows_few.cu is made of. While
 * elements are under way the arithmetic is rehearsed: run once without stores, so that its instructions are there when they arrive.
 *
 * Launch: block (units of a head, heads, places), grid (rows of a place, places, planes). */
#include "kernels/cuda_internal.h"
#include "kernels/rows_block.cuh"
#include "kernels/rows_launch.h"

namespace {

enum { LANES_MOST = 256 }; /* of a block */

struct StepPlane {
    const uint8_t *elements;
    uint8_t       *base;
    const int32_t *table;
    uint32_t       token_bytes, head_pitch; /* of elements */
    uint32_t       table_stride, chunk_bytes;
    uint32_t       head_stride, row_stride;
    uint32_t       chunk_shift, row_mask;
    uint32_t       units; /* of 8 elements in a head's row */
};

struct StepLaunch {
    const int32_t  *slots;
    const uint32_t *rows, *first, *token; /* first: by place; BY_LENGTH: staged lengths, by slot */
    KvEncodeCounts *counts;
    uint32_t        places;
    StepPlane       plane[2];
};

/* ---- eight elements */

template <int TYPE, int FORMAT> __device__ __noinline__ void encode_slowly(Raw<TYPE, 8> raw, uint8_t *to, KvEncodeCounts *counts)
{
    KvLaneCounts seen = {0, 0};
    float        x[8];

    widen<TYPE, 8>(raw, x);
    if constexpr (kvg_is_block<FORMAT>()) {
        kvg_quad_encode<FORMAT>(x, span_of<TYPE, FORMAT, 8>(raw), to, seen);
    } else if (to != nullptr) {
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = kvg_dev_clean<FORMAT>(x[i], seen);
        store_eight<FORMAT>(x, to);
    }
    __syncwarp();
    kvg_warp_count(seen, counts);
}

/* The quad's ends: its largest, and its smallest negated, where signs matter; else its largest magnitude, twice. */
template <int TYPE, int FORMAT> __device__ __forceinline__ void quad_ends(const Raw<TYPE, 8> &raw, float &high, float &low_negated)
{
    if constexpr (TYPE == KVG_F32) {
        const KvSpan span = span_of<TYPE, FORMAT, 8>(raw);
        high = span.high;
        low_negated = kvg_has_sign<FORMAT>() ? -span.low : span.high;
#pragma unroll
        for (int step = 1; step < 4; step *= 2) {
            high = kvg_dev_max(high, __shfl_xor_sync(0xffffffffu, high, step));
            low_negated = kvg_has_sign<FORMAT>() ? kvg_dev_max(low_negated, __shfl_xor_sync(0xffffffffu, low_negated, step)) : high;
        }
    } else {
        uint32_t     ends;
        Raw<TYPE, 2> pair;

        if constexpr (kvg_has_sign<FORMAT>()) {
            const uint32_t most = max2<TYPE>(max2<TYPE>(raw.words[0], raw.words[1]), max2<TYPE>(raw.words[2], raw.words[3]));
            const uint32_t least = min2<TYPE>(min2<TYPE>(raw.words[0], raw.words[1]), min2<TYPE>(raw.words[2], raw.words[3])) ^ 0x80008000u;
            ends = max2<TYPE>(__byte_perm(most, least, 0x5410), __byte_perm(most, least, 0x7632)); /* largest below, smallest negated above */
        } else {
            ends = max2<TYPE>(max2<TYPE>(magnitude2<TYPE>(raw.words[0]), magnitude2<TYPE>(raw.words[1])),
                              max2<TYPE>(magnitude2<TYPE>(raw.words[2]), magnitude2<TYPE>(raw.words[3])));
            ends = max2<TYPE>(ends, __byte_perm(ends, ends, 0x1032));
        }
        ends = max2<TYPE>(ends, __shfl_xor_sync(0xffffffffu, ends, 1));
        ends = max2<TYPE>(ends, __shfl_xor_sync(0xffffffffu, ends, 2));
        pair.words[0] = ends;
        high = element<TYPE, 2>(pair, 0);
        low_negated = kvg_has_sign<FORMAT>() ? element<TYPE, 2>(pair, 1) : high;
    }
}

/* False: something is rare. scale: as kvg_scale_of. */
template <int FORMAT> __device__ __forceinline__ bool quick_scale(float high, float low_negated, KvScale &scale)
{
    const float    limit = __uint_as_float(kvg_dev_limit<FORMAT>());
    constexpr bool EIGHT = FORMAT == KVG_Q8_0;
    const float    value = EIGHT ? high : high + low_negated;
    const float    quotient = KVG_MUL(value, EIGHT ? 1.0f / 127.0f : 1.0f / 31.0f);

    scale.m = EIGHT ? 0.0f : -low_negated;
    scale.d = KVG_FMA(KVG_FMA(EIGHT ? -127.0f : -31.0f, quotient, value), EIGHT ? 1.0f / 127.0f : 1.0f / 31.0f, quotient);
    scale.inverse = kvg_dev_reciprocal(scale.d);
    return high <= limit && low_negated <= limit && value >= 8.27e-25f && (EIGHT || low_negated != 0.0f);
}

/* False: something is rare, and nothing was stored. */
template <int TYPE, int FORMAT> __device__ __forceinline__ bool encode_quickly(const Raw<TYPE, 8> &raw, uint8_t *to, bool store)
{
    if constexpr (kvg_is_block<FORMAT>()) {
        KvScale  scale;
        float    high, low_negated, x[8];
        uint32_t low, top;

        static_assert(FORMAT == KVG_Q8_0 || FORMAT == KVG_Q5_1, "other block formats go by rows_few.cu");
        quad_ends<TYPE, FORMAT>(raw, high, low_negated);
        if (!__all_sync(0xffffffffu, quick_scale<FORMAT>(high, low_negated, scale))) return false;
        widen<TYPE, 8>(raw, x);
        kvg_codes_of<FORMAT>(x, scale, low, top);
        kvg_quad_put<FORMAT, FORMAT == KVG_Q5_1 ? 4 : 2>(to, store, threadIdx.x & 3, scale, low, top);
    } else {
        if (__any_sync(0xffffffffu, span_of<TYPE, FORMAT, 8>(raw).bad)) return false;
        if constexpr (TYPE == FORMAT && TYPE != KVG_F32) {
            if (store) *(uint4 *)to = make_uint4(raw.words[0], raw.words[1], raw.words[2], raw.words[3]);
        } else {
            float x[8];
            widen<TYPE, 8>(raw, x);
            if (store) store_eight<FORMAT>(x, to);
        }
    }
    return true;
}

/* What the compiler cannot know. */
__device__ __forceinline__ uint32_t opaque(uint32_t value)
{
    asm volatile("" : "+r"(value));
    return value;
}

struct Where { /* a place's rows, as loaded */
    int32_t  slot;
    uint32_t rows, first, token;
};

template <int TYPE, int FORMAT, bool BY_LENGTH>
__device__ __forceinline__ void encode_plane(const StepLaunch &step, const StepPlane &plane, const Where &where)
{
    const uint32_t within = threadIdx.x, head = threadIdx.y;
    const uint8_t *from = plane.elements + (uint64_t)head * plane.head_pitch + within * eight_bytes<TYPE>();
    uint8_t       *to = plane.base + (uint64_t)head * plane.head_stride +
                  (kvg_is_block<FORMAT>() ? within / 4 * kvg_block_bytes<FORMAT>() : within * unit_bytes<FORMAT>());
    const bool     live = where.slot >= 0 && blockIdx.x < where.rows && within < plane.units;
    Raw<TYPE, 8>   raw = quick_eight<TYPE>(), loaded = raw;
    uint32_t       row = where.first + blockIdx.x, loaded_entry = 0, entry = 0;

    if (live) {
        if (BY_LENGTH) row -= where.rows;
        loaded_entry = (uint32_t)__ldg(plane.table + ((uint64_t)(uint32_t)where.slot * plane.table_stride + (row >> plane.chunk_shift)));
        loaded = load_eight<TYPE>(from + (uint64_t)(where.token + blockIdx.x) * plane.token_bytes);
    }
    to += (uint64_t)(row & plane.row_mask) * plane.row_stride;
    for (uint32_t pass = opaque(0);; pass = opaque(1)) { /* what was loaded is not waited for before the second pass */
        uint8_t   *at = to + (uint64_t)entry * plane.chunk_bytes;
        const bool store = live && pass != 0;
        if (!encode_quickly<TYPE, FORMAT>(raw, at, store)) encode_slowly<TYPE, FORMAT>(raw, store ? at : nullptr, step.counts);
        if (pass != 0) break;
        raw = loaded, entry = loaded_entry;
    }
}

template <int TYPE, int FIRST, int SECOND, bool BY_LENGTH>
__global__ void __launch_bounds__(LANES_MOST) step_kernel(const __grid_constant__ StepLaunch step)
{
    const uint32_t mine = blockIdx.y * blockDim.z + threadIdx.z, place = min(mine, step.places - 1);
    Where          where;

    where.slot = __ldg(step.slots + place);
    where.rows = __ldg(step.rows + place);
    where.token = __ldg(step.token + place);
    if (!BY_LENGTH) where.first = __ldg(step.first + place);
    else where.first = where.slot >= 0 ? __ldg(step.first + where.slot) : 0;
    if (mine != place) where.slot = -1; /* past the end */
    if (blockIdx.z == 0) encode_plane<TYPE, FIRST, BY_LENGTH>(step, step.plane[0], where);
    else encode_plane<TYPE, SECOND, BY_LENGTH>(step, step.plane[1], where);
}

/* ---- launches */

bool take_plane(const RowsPlane *from, StepPlane *plane)
{
    const uint64_t least = UINT32_MAX;

    if (from->units == 0 || from->chunk_shift < 0 || from->token_bytes < 0 || from->head_pitch < 0 || (uint64_t)from->token_bytes > least ||
        (uint64_t)from->head_pitch > least || from->head_stride > least || from->row_stride > least) {
        return false;
    }
    if (from->format == KVG_Q5_1 && (((uintptr_t)from->base | from->chunk_bytes | from->head_stride | from->row_stride) & 3) != 0) return false;
    *plane = {from->elements, from->base, from->table, (uint32_t)from->token_bytes, (uint32_t)from->head_pitch, from->table_stride, from->chunk_bytes,
              (uint32_t)from->head_stride, (uint32_t)from->row_stride, (uint32_t)from->chunk_shift, (1u << from->chunk_shift) - 1, from->units};
    return true;
}

/* Lanes that fill warps; false: too many. */
bool shape_of(const RowsLaunch *launch, dim3 *block, dim3 *grid)
{
    uint32_t units = launch->plane[0].units, places = 1;

    if (launch->planes == 2 && launch->plane[1].units > units) units = launch->plane[1].units;
    units = (units + 3) / 4 * 4;
    while (units * launch->heads * places % 32 != 0) places *= 2;
    if ((uint64_t)units * launch->heads * places > LANES_MOST || places > 64) return false;
    *block = dim3(units, launch->heads, places);
    *grid = dim3(launch->rows_max, (launch->places + places - 1) / places, launch->planes);
    return true;
}

template <int TYPE, int FIRST, int SECOND> void start(const StepLaunch &step, bool by_length, dim3 grid, dim3 block, cudaStream_t stream)
{
    if (by_length) step_kernel<TYPE, FIRST, SECOND, true><<<grid, block, 0, stream>>>(step);
    else step_kernel<TYPE, FIRST, SECOND, false><<<grid, block, 0, stream>>>(step);
}

template <int TYPE> bool start_pair(const RowsLaunch *launch, const StepLaunch &step, dim3 grid, dim3 block, cudaStream_t stream)
{
    const uint32_t first = launch->plane[0].format, second = launch->planes == 2 ? launch->plane[1].format : first;
    const bool     by_length = launch->first_row == nullptr;

    if (first == KVG_Q8_0 && second == KVG_Q5_1) start<TYPE, KVG_Q8_0, KVG_Q5_1>(step, by_length, grid, block, stream);
    else if (first == KVG_Q8_0 && second == KVG_Q8_0) start<TYPE, KVG_Q8_0, KVG_Q8_0>(step, by_length, grid, block, stream);
    else if (first == KVG_BF16 && second == KVG_BF16) start<TYPE, KVG_BF16, KVG_BF16>(step, by_length, grid, block, stream);
    else if (first == KVG_FP8 && second == KVG_FP8) start<TYPE, KVG_FP8, KVG_FP8>(step, by_length, grid, block, stream);
    else return false;
    return true;
}

} // namespace

bool kvg_rows_encode_step(const RowsLaunch *launch, uint32_t type, cudaStream_t stream)
{
    const uint32_t *first = launch->first_row != nullptr ? launch->first_row : launch->len_staged;
    StepLaunch      step = {launch->slots, launch->rows, first, launch->first_token, launch->counts, launch->places, {}};
    dim3            block, grid;

    if (!launch->aligned || step.slots == nullptr || step.rows == nullptr || first == nullptr || step.token == nullptr) return false;
    for (uint32_t p = 0; p < launch->planes; p++) {
        if (!take_plane(&launch->plane[p], &step.plane[p])) return false;
    }
    if (!shape_of(launch, &block, &grid)) return false;
    if (type == KVG_F32) return start_pair<KVG_F32>(launch, step, grid, block, stream);
    if (type == KVG_F16) return start_pair<KVG_F16>(launch, step, grid, block, stream);
    return start_pair<KVG_BF16>(launch, step, grid, block, stream);
}

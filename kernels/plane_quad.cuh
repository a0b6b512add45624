/** plane_quad.cuh: blocks of 32 elements in device code, a quad a block: lanes 4b..4b+3 call these together, each with elements 8*(lane%4) on
 * (S1). Device code alone. Part of plane.cuh. */
#ifndef KVG_PLANE_QUAD_CUH
#define KVG_PLANE_QUAD_CUH

#include "plane_block.cuh"

#ifdef __CUDACC__

__device__ __forceinline__ uint32_t kvg_lane()
{
    uint32_t lane;
    asm("mov.u32 %0, %laneid;" : "=r"(lane));
    return lane;
}

__device__ __forceinline__ KvSpan kvg_quad_join(KvSpan span, uint32_t mask)
{
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
        KvSpan other = {__shfl_xor_sync(mask, span.low, step), __shfl_xor_sync(mask, span.high, step), 0};
        span = kvg_span_join(span, other);
    }
    return span;
}

/* The first element of the block that equals `value` or -value; somebody has one. Inline: were it called, x would have an address, and every
 * block's elements would be written to local memory on the chance. */
__device__ __forceinline__ float kvg_quad_first(const float (&x)[8], float value, uint32_t mask)
{
    int   at = 99, lane = kvg_lane() & 3;
    float found = 0.0f;

#pragma unroll
    for (int i = 7; i >= 0; i--) {
        if (x[i] == value || x[i] == -value) {
            at = 8 * lane + i;
            found = x[i];
        }
    }
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
        int   other_at = __shfl_xor_sync(mask, at, step);
        float other = __shfl_xor_sync(mask, found, step);
        if (other_at < at) {
            at = other_at;
            found = other;
        }
    }
    return found;
}

typedef struct KvCleaned {
    float        x[8];
    KvSpan       span;
    KvLaneCounts counts;
} KvCleaned;

/* kvg_span_clean as a call: what is rare does not lie between what is not. */
template <int FORMAT> static __device__ __noinline__ KvCleaned kvg_cleaned(KvCleaned eight)
{
    eight.counts.nonfinite = eight.counts.saturated = 0;
    eight.span = kvg_span_clean<FORMAT, 8>(eight.x, eight.counts);
    return eight;
}

/* q8_0: a lane has eight bytes of codes and stores eight, two bytes later where the codes do not begin at a multiple of four. */
__device__ __forceinline__ void kvg_quad_put_bytes(uint8_t *block, bool store, uint32_t part, uint32_t d, uint32_t low, uint32_t high)
{
    const uint32_t neighbour = __shfl_up_sync(0xffffffffu, high, 1);
    const bool     early = ((uintptr_t)block & 2) == 0;
    const uint32_t select = early ? 0x5432 : 0x7654;
    uint32_t      *at = (uint32_t *)(void *)(block + 8 * part + (early ? 0 : 2));

    if (store) {
        at[0] = __byte_perm(part == 0 ? d << 16 : neighbour, low, select);
        at[1] = __byte_perm(low, high, select);
        if (part == (early ? 3u : 0u)) *(uint16_t *)(void *)(early ? block + 32 : block) = (uint16_t)(early ? high >> 16 : d);
    }
}

/* The others: lanes 0 and 2 (1 and 3) hold the two halves of the same nibble bytes: one word goes each way, and each stores four bytes. */
template <int ALIGN> __device__ __forceinline__ void kvg_quad_put_nibbles(uint8_t *nibbles, bool store, uint32_t part, uint32_t low, uint32_t high)
{
    const uint32_t other = __shfl_xor_sync(0xffffffffu, part & 2 ? low : high, 2);
    const uint32_t word = part & 2 ? kvg_dev_nibbles(other, high) : kvg_dev_nibbles(low, other);
    uint8_t       *at = nibbles + 8 * (part & 1) + 2 * (part & 2);

    if (store && (ALIGN >= 4 || ((uintptr_t)at & 2) == 0)) *(uint32_t *)(void *)at = word;
    else if (store) kvg_put_u16s(at, word);
}

/** A quad's codes to a block at a multiple of ALIGN: 2, or 4 where that is known (q5_1). All four lanes call it, with part 0..3; without `store` they
 * take part in the shuffles alone. */
template <int FORMAT, int ALIGN>
__device__ __forceinline__ void kvg_quad_put(uint8_t *block, bool store, uint32_t part, const KvScale &scale, uint32_t low, uint32_t high)
{
    if (FORMAT == KVG_Q8_0) {
        kvg_quad_put_bytes(block, store, part, kvg_dev_f16(scale.d), low, high);
    } else if (FORMAT == KVG_Q5_1) {
        if (store && part < 2) ((uint16_t *)(void *)block)[part] = (uint16_t)kvg_dev_f16(part == 0 ? scale.d : scale.m);
        if (store) block[4 + part] = (uint8_t)kvg_dev_push_bits(kvg_dev_push_bits(0, kvg_dev_fifth_bits(high)), kvg_dev_fifth_bits(low));
        kvg_quad_put_nibbles<ALIGN>(block + 8, store, part, low, high);
    } else {
        if (store && part == 0) ((uint16_t *)(void *)block)[0] = (uint16_t)kvg_dev_f16(scale.d);
        kvg_quad_put_nibbles<ALIGN>(block + 2, store, part, low, high);
    }
}

/** Encodes the quad's 32 elements into `block` (two-byte aligned; NULL: takes part in the shuffles and stores nothing). span: kvg_span_of this
 * lane's eight. */
template <int FORMAT> __device__ __forceinline__ void kvg_quad_encode(float (&x)[8], KvSpan span, uint8_t *block, KvLaneCounts &counts)
{
    const uint32_t quad = 0xfu << (kvg_lane() & 28);
    uint32_t       low, high;

    if (span.bad) { /* each lane for itself: cleaning is one element's matter */
        KvCleaned cleaned;
#pragma unroll
        for (int i = 0; i < 8; i++) cleaned.x[i] = x[i];
        cleaned = kvg_cleaned<FORMAT>(cleaned);
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = cleaned.x[i];
        span = cleaned.span;
        counts.nonfinite += cleaned.counts.nonfinite;
        counts.saturated += cleaned.counts.saturated;
    }
    span = kvg_quad_join(span, 0xffffffffu);
    float first = 0.0f;
    if (kvg_scale_is_open<FORMAT>(span)) first = kvg_quad_first(x, span.high == -span.low ? span.high : 0.0f, quad);
    KvScale scale = kvg_scale_of<FORMAT>(span, first);
    kvg_codes_of<FORMAT>(x, scale, low, high);
    kvg_quad_put<FORMAT, 2>(block, block != nullptr, kvg_lane() & 3, scale, low, high);
}

/** Adds a warp's counts; all 32 lanes call it. */
__device__ __forceinline__ void kvg_warp_count(KvLaneCounts lane, KvEncodeCounts *counts)
{
    if (!__any_sync(0xffffffffu, lane.nonfinite | lane.saturated)) return;
    uint32_t nonfinite = __reduce_add_sync(0xffffffffu, lane.nonfinite), saturated = __reduce_add_sync(0xffffffffu, lane.saturated);
    if (kvg_lane() != 0 || counts == nullptr) return;
    if (nonfinite != 0) atomicAdd((unsigned long long *)&counts->nonfinite, (unsigned long long)nonfinite);
    if (saturated != 0) atomicAdd((unsigned long long *)&counts->saturated, (unsigned long long)saturated);
}

#endif /* __CUDACC__ */
#endif

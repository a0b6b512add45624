/* Rows, inside: elements in registers as they were loaded, and their way into a format. Private.
 *
 * Elements of 16 bits are compared two at a time before they are widened. What must be cleaned is rare, so it is called: those functions' code and
 * registers stand apart from the loops, and they return what they cleaned as one word (saturated << 16 | nonfinite). */
#ifndef KVG_ROWS_BLOCK_CUH
#define KVG_ROWS_BLOCK_CUH

#include "kernels/plane.cuh"

namespace {

template <int TYPE, int N> struct Raw { /* N elements */
    uint32_t words[TYPE == KVG_F32 ? N : N / 2];
};

template <int TYPE> constexpr __device__ uint32_t eight_bytes() /* of elements */
{
    return TYPE == KVG_F32 ? 32 : 16;
}

template <int FORMAT> constexpr __device__ uint32_t unit_bytes() /* eight of a plain format */
{
    return FORMAT == KVG_F32 ? 32 : FORMAT == KVG_FP8 ? 8 : 16;
}

template <int TYPE> __device__ __forceinline__ Raw<TYPE, 8> load_eight(const uint8_t *at)
{
    Raw<TYPE, 8> raw;

#pragma unroll
    for (uint32_t i = 0; i < eight_bytes<TYPE>() / 16; i++) {
        const uint4 words = __ldcs((const uint4 *)at + i);
        raw.words[4 * i] = words.x, raw.words[4 * i + 1] = words.y, raw.words[4 * i + 2] = words.z, raw.words[4 * i + 3] = words.w;
    }
    return raw;
}

/* Any alignment of elements. */
template <int TYPE> __device__ __forceinline__ Raw<TYPE, 8> gather_eight(const uint8_t *at)
{
    Raw<TYPE, 8> raw;

#pragma unroll
    for (uint32_t i = 0; i < eight_bytes<TYPE>() / 4; i++) {
        if constexpr (TYPE == KVG_F32) raw.words[i] = ((const uint32_t *)at)[i];
        else raw.words[i] = ((const uint16_t *)at)[2 * i] | (uint32_t)((const uint16_t *)at)[2 * i + 1] << 16;
    }
    return raw;
}

/* For lanes without a row: whatever takes the quick way. */
template <int TYPE> __device__ __forceinline__ Raw<TYPE, 8> quick_eight()
{
    Raw<TYPE, 8> raw;

#pragma unroll
    for (uint32_t i = 0; i < eight_bytes<TYPE>() / 4; i++) {
        if constexpr (TYPE == KVG_F32) raw.words[i] = i & 1 ? 0x40000000u : 0x3f800000u;
        else raw.words[i] = TYPE == KVG_BF16 ? 0x40003f80u : 0x40003c00u; /* 1 and 2 */
    }
    return raw;
}

template <int TYPE, int N> __device__ __forceinline__ float element(const Raw<TYPE, N> &raw, int i)
{
    if constexpr (TYPE == KVG_F32) return __uint_as_float(raw.words[i]);
    if constexpr (TYPE == KVG_F16) return kvg_dev_from_f16(raw.words[i / 2] >> (16 * (i & 1)) & 0xffff);
    return __uint_as_float(i & 1 ? raw.words[i / 2] & 0xffff0000u : raw.words[i / 2] << 16);
}

template <int TYPE, int N> __device__ __forceinline__ void widen(const Raw<TYPE, N> &raw, float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = element<TYPE, N>(raw, i);
}

/* ---- ends */

template <int TYPE> __device__ __forceinline__ uint32_t max2(uint32_t a, uint32_t b)
{
    uint32_t r;
    if (TYPE == KVG_BF16) asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    else asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

template <int TYPE> __device__ __forceinline__ uint32_t min2(uint32_t a, uint32_t b)
{
    uint32_t r;
    if (TYPE == KVG_BF16) asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    else asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

template <int TYPE> __device__ __forceinline__ uint32_t magnitude2(uint32_t a)
{
    uint32_t r;
    if (TYPE == KVG_BF16) asm("abs.bf16x2 %0, %1;" : "=r"(r) : "r"(a));
    else asm("abs.f16x2 %0, %1;" : "=r"(r) : "r"(a));
    return r;
}

/* kvg_span_of, from elements as loaded. */
template <int TYPE, int FORMAT, int N> __device__ __forceinline__ KvSpan span_of(const Raw<TYPE, N> &raw)
{
    if constexpr (TYPE == KVG_F32) {
        float x[N];
        widen<TYPE, N>(raw, x);
        return kvg_span_of<FORMAT, N>(x);
    } else {
        uint32_t     high = kvg_has_sign<FORMAT>() ? raw.words[0] : magnitude2<TYPE>(raw.words[0]), low = raw.words[0];
        Raw<TYPE, 4> ends;
        KvSpan       span;

#pragma unroll
        for (int i = 1; i < N / 2; i++) {
            high = max2<TYPE>(high, kvg_has_sign<FORMAT>() ? raw.words[i] : magnitude2<TYPE>(raw.words[i]));
            if (kvg_has_sign<FORMAT>()) low = min2<TYPE>(low, raw.words[i]);
        }
        ends.words[0] = low;
        ends.words[1] = high;
        span.low = kvg_has_sign<FORMAT>() ? kvg_dev_min(element<TYPE, 4>(ends, 0), element<TYPE, 4>(ends, 1)) : 0.0f;
        span.high = kvg_dev_max(element<TYPE, 4>(ends, 2), element<TYPE, 4>(ends, 3));
        span.bad = kvg_span_is_bad<FORMAT>(span.low, span.high);
        return span;
    }
}

__device__ __forceinline__ uint32_t counted(KvLaneCounts counts)
{
    return counts.saturated << 16 | counts.nonfinite;
}

/* ---- plain formats, eight at a time */

/* Clean elements, to an address aligned to what they take (f32: to 16). */
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

template <int TYPE, int FORMAT> __device__ __noinline__ uint32_t store_cleaned(Raw<TYPE, 8> raw, uint8_t *at)
{
    KvLaneCounts counts = {0, 0};
    float        x[8];

#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = kvg_dev_clean<FORMAT>(element<TYPE, 8>(raw, i), counts);
    store_eight<FORMAT>(x, at);
    return counted(counts);
}

/* Returns what it counted. */
template <int TYPE, int FORMAT> __device__ __forceinline__ uint32_t encode_eight(const Raw<TYPE, 8> &raw, uint8_t *at)
{
    if (__builtin_expect(span_of<TYPE, FORMAT, 8>(raw).bad, 0)) return store_cleaned<TYPE, FORMAT>(raw, at);
    if constexpr (TYPE == FORMAT && TYPE != KVG_F32) {
        __stcs((uint4 *)at, make_uint4(raw.words[0], raw.words[1], raw.words[2], raw.words[3]));
    } else {
        float x[8];
        widen<TYPE, 8>(raw, x);
        store_eight<FORMAT>(x, at);
    }
    return 0;
}

/* ---- blocks, a lane each */

/* The first of the block's elements with this magnitude: there is one. */
template <int TYPE> __device__ __forceinline__ float first_of(const Raw<TYPE, 32> &raw, float magnitude)
{
    float found = 0.0f;

#pragma unroll
    for (int i = 31; i >= 0; i--) {
        float x = element<TYPE, 32>(raw, i);
        if (kvg_dev_magnitude(x) == magnitude) found = x;
    }
    return found;
}

/* Four neighbours' signs as bytes of 0xff. */
template <int TYPE> __device__ __forceinline__ uint32_t signs_of(const Raw<TYPE, 32> &raw, int first)
{
    uint32_t signs;

    if constexpr (TYPE == KVG_F32) {
        return kvg_dev_signs(element<TYPE, 32>(raw, first), element<TYPE, 32>(raw, first + 1), element<TYPE, 32>(raw, first + 2),
                             element<TYPE, 32>(raw, first + 3));
    } else {
        asm("prmt.b32 %0, %1, %2, 0xfdb9;" : "=r"(signs) : "r"(raw.words[first / 2]), "r"(raw.words[first / 2 + 1])); /* bit 3: the byte's sign */
        return signs;
    }
}

/* Clean elements with this span into a block. ALIGN: of its address. */
template <int TYPE, int FORMAT, int ALIGN> __device__ __forceinline__ void encode_clean(const Raw<TYPE, 32> &raw, KvSpan span, uint8_t *block)
{
    float    first = 0.0f;
    uint32_t codes[8], words[kvg_block_words<FORMAT>()];

    if (__builtin_expect(kvg_scale_is_open<FORMAT>(span), 0)) first = first_of<TYPE>(raw, span.high == -span.low ? span.high : 0.0f);
    const KvScale scale = kvg_scale_of<FORMAT>(span, first);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t c[4];
#pragma unroll
        for (int k = 0; k < 4; k++) c[k] = kvg_code_of<FORMAT>(element<TYPE, 32>(raw, 4 * i + k), scale);
        codes[i] = kvg_dev_bytes<kvg_code_byte<FORMAT>()>(c[0], c[1], c[2], c[3]);
        if (FORMAT == KVG_Q8_0) codes[i] = kvg_dev_negate(codes[i], signs_of<TYPE>(raw, 4 * i));
    }
    kvg_block_of<FORMAT>(scale, codes, words);
    kvg_put_block<FORMAT, ALIGN>(block, scale, words);
}

} // namespace
#endif

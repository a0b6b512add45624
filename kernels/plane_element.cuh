/** plane_element.cuh: elements in device code: bits, conversions, limits and cleaning (F of S1), the ends of several. Part of plane.cuh. */
#ifndef KVG_PLANE_ELEMENT_CUH
#define KVG_PLANE_ELEMENT_CUH

#include <stdint.h>
#include <string.h>

#include <kvgrid/format.h>

#if defined(__CUDA_FTZ) && __CUDA_FTZ
#error "rows keep denormals: compile without -use_fast_math and without -ftz=true"
#endif

#ifdef __CUDACC__
#define KVG_DEV __host__ __device__ __forceinline__
#else
#define KVG_DEV static inline
#endif

/* ---- bits */

KVG_DEV uint32_t kvg_dev_bits(float value)
{
#ifdef __CUDA_ARCH__
    return __float_as_uint(value);
#else
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
#endif
}

KVG_DEV float kvg_dev_float(uint32_t bits)
{
#ifdef __CUDA_ARCH__
    return __uint_as_float(bits);
#else
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
#endif
}

#ifdef __CUDA_ARCH__
#define KVG_MUL(a, b)  __fmul_rn(a, b)
#define KVG_ADD(a, b)  __fadd_rn(a, b)
#define KVG_SUB(a, b)  __fsub_rn(a, b)
#define KVG_FMA(a, b, c) __fmaf_rn(a, b, c)
#else
#define KVG_MUL(a, b)  ((a) * (b))
#define KVG_ADD(a, b)  ((a) + (b))
#define KVG_SUB(a, b)  ((a) - (b))
#define KVG_FMA(a, b, c) __builtin_fmaf(a, b, c)
#endif

/* A float in [0, 2^22) to its integer part, in the low bits: 2^23 is added and rounded toward zero. A conversion instruction would do the
 * same at an eighth of the rate. */
KVG_DEV uint32_t kvg_dev_floor_bits(float value)
{
#ifdef __CUDA_ARCH__
    return __float_as_uint(__fadd_rz(value, 8388608.0f));
#else
    return 0x4b000000u | (uint32_t)value;
#endif
}

/* A float in [0, 127.25] to the nearest integer, halves up, in byte 2; what stands in the other bytes is open. 128.5 is added and rounded toward
 * zero: the sum has 7 bits of integer and 16 of fraction below its leading one. */
KVG_DEV uint32_t kvg_dev_round_bits(float value)
{
#ifdef __CUDA_ARCH__
    return __float_as_uint(__fadd_rz(value, 128.5f));
#else
    return (uint32_t)((double)value + 0.5) << 16;
#endif
}

/* An integer below 2^23 to float, exactly. */
KVG_DEV float kvg_dev_from_int(uint32_t value)
{
    return KVG_SUB(kvg_dev_float(0x4b000000u | value), 8388608.0f);
}

/* What is out of the way of the rest: called, so that its instructions and registers stand apart. */
#ifdef __CUDACC__
#define KVG_DEV_COLD static __host__ __device__ __noinline__
#else
#define KVG_DEV_COLD static
#endif

/* 1/d of a normal d whose reciprocal is normal: what __frcp_rn does for those, without asking. */
KVG_DEV float kvg_dev_reciprocal(float d)
{
#ifdef __CUDA_ARCH__
    float near;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(d));
    return __fmaf_rn(near, __fmaf_rn(near, -d, 1.0f), near);
#else
    return 1.0f / d;
#endif
}

/* 1/d, or 0 where that is not finite. */
template <int> KVG_DEV_COLD float kvg_dev_inverse_tiny(float d)
{
    if ((kvg_dev_bits(d) & 0x7fffffffu) <= 0x00200000u) return 0.0f;
#ifdef __CUDA_ARCH__
    return __frcp_rn(d);
#else
    return 1.0f / d;
#endif
}

template <int> KVG_DEV_COLD float kvg_dev_divide_tiny(float value, float divisor)
{
#ifdef __CUDA_ARCH__
    return __fdiv_rn(value, divisor);
#else
    return value / divisor;
#endif
}

/* value/divisor for 127 and 31, whose reciprocals this rounds to the same bits as a division for every normal value that is not tiny (all
 * mantissas were tried); the tiny ones are divided. */
KVG_DEV float kvg_dev_divide(float value, float divisor, float reciprocal)
{
    if (value >= 8.27e-25f) {
        float quotient = KVG_MUL(value, reciprocal);
        return KVG_FMA(KVG_FMA(-divisor, quotient, value), reciprocal, quotient);
    }
    return kvg_dev_divide_tiny<0>(value, divisor);
}

/* 1/d, or 0 where that is not finite; d is no larger than f16's largest. */
KVG_DEV float kvg_dev_inverse(float d)
{
    if ((kvg_dev_bits(d) & 0x7fffffffu) >= 0x10000000u) return kvg_dev_reciprocal(d);
    return kvg_dev_inverse_tiny<0>(d);
}

/* ---- elements */

/* Nearest even with `drop` fraction bits fewer and the exponent's bias `rebias` lower; finite values within the target's range. */
KVG_DEV uint32_t kvg_dev_narrow(uint32_t magnitude, int drop, uint32_t rebias, uint32_t smallest_normal, uint32_t magic)
{
    if (magnitude < smallest_normal) return kvg_dev_bits(KVG_ADD(kvg_dev_float(magnitude), kvg_dev_float(magic))) - magic;
    return (magnitude - (rebias << 23) + ((1u << (drop - 1)) - 1) + ((magnitude >> drop) & 1)) >> drop;
}

KVG_DEV uint32_t kvg_dev_f16(float value)
{
#ifdef __CUDA_ARCH__
    unsigned short code;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(value));
    return code;
#else
    uint32_t bits = kvg_dev_bits(value);
    return (bits >> 16 & 0x8000) | kvg_dev_narrow(bits & 0x7fffffffu, 13, 112, 0x38800000u, 0x3f000000u);
#endif
}

KVG_DEV float kvg_dev_from_f16(uint32_t code)
{
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)code));
    return value;
#else
    uint32_t shifted = (code & 0x7fff) << 13, sign = (code & 0x8000) << 16;
    if (shifted >= 0x0f800000u) return kvg_dev_float((shifted + (224u << 23)) | sign);
    return kvg_dev_float(kvg_dev_bits(kvg_dev_float(shifted) * kvg_dev_float(239u << 23)) | sign); /* 2^112: exact, subnormals too */
#endif
}

KVG_DEV uint32_t kvg_dev_bf16(float value)
{
    uint32_t bits = kvg_dev_bits(value);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

KVG_DEV float kvg_dev_from_bf16(uint32_t code)
{
    return kvg_dev_float(code << 16);
}

KVG_DEV uint32_t kvg_dev_fp8(float value)
{
    uint32_t bits = kvg_dev_bits(value);
    return (bits >> 24 & 0x80) | kvg_dev_narrow(bits & 0x7fffffffu, 20, 120, 0x3c800000u, 0x46800000u);
}

KVG_DEV float kvg_dev_from_fp8(uint32_t code)
{
    uint32_t magnitude = kvg_dev_bits(KVG_MUL(kvg_dev_float((code & 0x7f) << 20), kvg_dev_float(247u << 23))); /* 2^120: exact */
    if ((code & 0x7f) == 0x7f) magnitude = 0x7ff00000u;
    return kvg_dev_float(magnitude | (code & 0x80) << 24);
}

/* Two and four codes at once, where an instruction does that: the first element in the low bits. */
KVG_DEV uint32_t kvg_dev_f16x2(float first, float second)
{
#ifdef __CUDA_ARCH__
    uint32_t codes;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(codes) : "f"(second), "f"(first));
    return codes;
#else
    return kvg_dev_f16(first) | kvg_dev_f16(second) << 16;
#endif
}

KVG_DEV uint32_t kvg_dev_bf16x2(float first, float second)
{
#ifdef __CUDA_ARCH__
    uint32_t codes;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(codes) : "f"(second), "f"(first));
    return codes;
#else
    return kvg_dev_bf16(first) | kvg_dev_bf16(second) << 16;
#endif
}

KVG_DEV uint32_t kvg_dev_fp8x4(float a, float b, float c, float d)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    unsigned short low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    return (uint32_t)low | (uint32_t)high << 16;
#else
    return kvg_dev_fp8(a) | kvg_dev_fp8(b) << 8 | kvg_dev_fp8(c) << 16 | kvg_dev_fp8(d) << 24;
#endif
}

/* ---- limits (F of S1) and cleaning */

/** What one thread saw: add it up over a warp, then to KvEncodeCounts. */
typedef struct KvLaneCounts {
    uint32_t nonfinite, saturated;
} KvLaneCounts;

template <int FORMAT> KVG_DEV uint32_t kvg_dev_limit()
{
    return FORMAT == KVG_FP8    ? 0x43e00000u
           : FORMAT == KVG_F16  ? 0x477fe000u
           : FORMAT == KVG_BF16 ? 0x7f7f0000u
           : FORMAT == KVG_Q8_0 ? 0x4afde040u
           : FORMAT == KVG_Q5_1 ? 0x477fe000u
           : FORMAT == KVG_Q4_0 ? 0x48ffe000u
                                : 0x7f7fffffu;
}

/** NaN to +0, everything else clamped to ±F; counts what it changed. */
template <int FORMAT> KVG_DEV float kvg_dev_clean(float value, KvLaneCounts &counts)
{
    const uint32_t limit = kvg_dev_limit<FORMAT>();
    uint32_t       bits = kvg_dev_bits(value), magnitude = bits & 0x7fffffffu;

    if (magnitude <= limit) return value;
    counts.nonfinite += magnitude >= 0x7f800000u;
    counts.saturated += magnitude < 0x7f800000u;
    return magnitude > 0x7f800000u ? 0.0f : kvg_dev_float((bits & 0x80000000u) | limit);
}

/* ---- measuring: smallest and largest of some elements, and whether one must be cleaned */

typedef struct KvSpan {
    float    low, high; /* where only magnitudes matter (all formats but q5_1 and q4_0): 0 and the largest magnitude */
    uint32_t bad;
} KvSpan;

/* NaN where one is. */
KVG_DEV float kvg_dev_min(float a, float b)
{
#ifdef __CUDA_ARCH__
    float least;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
    return least;
#else
    return a != a || b != b ? kvg_dev_float(0x7fffffffu) : b < a ? b : a;
#endif
}

KVG_DEV float kvg_dev_max(float a, float b)
{
#ifdef __CUDA_ARCH__
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
#else
    return a != a || b != b ? kvg_dev_float(0x7fffffffu) : b > a ? b : a;
#endif
}

KVG_DEV float kvg_dev_magnitude(float a)
{
#ifdef __CUDA_ARCH__
    return fabsf(a);
#endif
    return kvg_dev_float(kvg_dev_bits(a) & 0x7fffffffu);
}

KVG_DEV KvSpan kvg_span_join(KvSpan a, KvSpan b)
{
    KvSpan whole = {kvg_dev_min(a.low, b.low), kvg_dev_max(a.high, b.high), a.bad | b.bad};
    return whole;
}

template <int FORMAT> KVG_DEV constexpr bool kvg_has_sign()
{
    return FORMAT == KVG_Q5_1 || FORMAT == KVG_Q4_0;
}

/** Ends are NaN, infinite or beyond F where an element is. */
template <int FORMAT> KVG_DEV uint32_t kvg_span_is_bad(float low, float high)
{
    const float limit = kvg_dev_float(kvg_dev_limit<FORMAT>());
    return !(high <= limit && low >= -limit);
}

/** N elements. */
template <int FORMAT, int N> KVG_DEV KvSpan kvg_span_of(const float (&x)[N])
{
    KvSpan span = {x[0], x[0], 0};

    if (!kvg_has_sign<FORMAT>()) span.low = 0.0f, span.high = kvg_dev_magnitude(x[0]);
#pragma unroll
    for (int i = 1; i < N; i++) {
        if (kvg_has_sign<FORMAT>()) span.low = kvg_dev_min(span.low, x[i]);
        span.high = kvg_dev_max(span.high, kvg_has_sign<FORMAT>() ? x[i] : kvg_dev_magnitude(x[i]));
    }
    span.bad = kvg_span_is_bad<FORMAT>(span.low, span.high);
    return span;
}

template <int FORMAT, int N> KVG_DEV KvSpan kvg_span_clean(float (&x)[N], KvLaneCounts &counts)
{
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = kvg_dev_clean<FORMAT>(x[i], counts);
    return kvg_span_of<FORMAT, N>(x);
}

#endif

/* Codec elements: the arithmetic of S1 on one value, shared by every instruction set so that all give the same bits. Private.
 *
 * Written without branches in the common path, so that compilers turn loops over it into vector code. */
#ifndef KVG_CODEC_ELEMENTS_H
#define KVG_CODEC_ELEMENTS_H

#include <float.h>
#include <string.h>

#include "runtime/rules/codec.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "rows are little-endian and are stored as the host's own words"
#endif
_Static_assert(FLT_EVAL_METHOD == 0, "codes need plain binary32 arithmetic: build for SSE2 or later, not x87");

#define KVG_CODEC_INLINE static inline __attribute__((always_inline, unused))
#define KVG_UNLIKELY(expression) __builtin_expect(!!(expression), 0)

/* F of S1 as bit patterns: the largest magnitude that a format takes. Compared as integers. */
#define KVG_LIMIT_F32  INT32_C(0x7f7fffff)
#define KVG_LIMIT_BF16 INT32_C(0x7f7f0000)
#define KVG_LIMIT_F16  INT32_C(0x477fe000) /* 65504 */
#define KVG_LIMIT_FP8  INT32_C(0x43e00000) /* 448 */
#define KVG_LIMIT_Q8_0 INT32_C(0x4afde040) /* 65504*127 */
#define KVG_LIMIT_Q5_1 KVG_LIMIT_F16
#define KVG_LIMIT_Q4_0 INT32_C(0x48ffe000) /* 65504*8 */

#define KVG_SIGN UINT32_C(0x80000000)
#define KVG_ABS  UINT32_C(0x7fffffff)

KVG_CODEC_INLINE uint32_t kvg_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

KVG_CODEC_INLINE float kvg_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A choice by masks: compilers would move a float operation of one side into a branch, and then not vectorise the loop. */
KVG_CODEC_INLINE uint32_t kvg_select(int condition, uint32_t yes, uint32_t no)
{
    uint32_t mask = 0u - (uint32_t)condition;

    return (yes & mask) | (no & ~mask);
}

/* ---- elements: f16, bf16, fp8 and back. The encoders take finite values within the limit. */

/* Rounds to nearest even with `drop` fraction bits fewer and the exponent bias `rebias` lower. Values below the target's
 * smallest normal are added to a power of two whose last place is the target's smallest step, so that the addition rounds. */
KVG_CODEC_INLINE uint32_t kvg_narrow(uint32_t magnitude, int drop, uint32_t rebias, uint32_t smallest_normal, uint32_t magic)
{
    uint32_t normal = (magnitude - (rebias << 23) + ((UINT32_C(1) << (drop - 1)) - 1) + ((magnitude >> drop) & 1)) >> drop;
    uint32_t tiny = kvg_bits(kvg_float(magnitude) + kvg_float(magic)) - magic;

    return kvg_select((int32_t)magnitude < (int32_t)smallest_normal, tiny, normal);
}

KVG_CODEC_INLINE uint16_t kvg_f16_from_f32(float value)
{
    uint32_t bits = kvg_bits(value);
    uint32_t code = kvg_narrow(bits & KVG_ABS, 13, 112, UINT32_C(0x38800000) /* 2^-14 */, UINT32_C(0x3f000000) /* 2^-1 */);

    return (uint16_t)((bits >> 16 & 0x8000) | code);
}

KVG_CODEC_INLINE uint8_t kvg_fp8_from_f32(float value)
{
    uint32_t bits = kvg_bits(value);
    uint32_t code = kvg_narrow(bits & KVG_ABS, 20, 120, UINT32_C(0x3c800000) /* 2^-6 */, UINT32_C(0x46800000) /* 2^14 */);

    return (uint8_t)((bits >> 24 & 0x80) | code);
}

KVG_CODEC_INLINE uint16_t kvg_bf16_from_f32(float value)
{
    uint32_t bits = kvg_bits(value);

    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

KVG_CODEC_INLINE float kvg_f32_from_bf16(uint16_t code)
{
    return kvg_float((uint32_t)code << 16);
}

/* Exact, infinities and NaN included. A subnormal is read as a normal with a hidden bit, which is then taken away. */
KVG_CODEC_INLINE float kvg_f32_from_f16(uint16_t code)
{
    int32_t  shifted = (int32_t)(code & 0x7fff) << 13;
    uint32_t rebias = kvg_select(shifted >= INT32_C(0x0f800000), UINT32_C(224) << 23, UINT32_C(112) << 23);
    uint32_t normal = (uint32_t)shifted + rebias;
    uint32_t tiny = kvg_bits(kvg_float((uint32_t)shifted + (UINT32_C(113) << 23)) - kvg_float(UINT32_C(113) << 23));

    return kvg_float(kvg_select(shifted < (1 << 23), tiny, normal) | (uint32_t)(code & 0x8000) << 16);
}

/* 0x7f and 0xff, which no encoder here writes, are NaN. */
KVG_CODEC_INLINE float kvg_f32_from_fp8(uint8_t code)
{
    int32_t  shifted = (int32_t)(code & 0x7f) << 20;
    uint32_t normal = (uint32_t)shifted + (UINT32_C(120) << 23);
    uint32_t tiny = kvg_bits(kvg_float((uint32_t)shifted + (UINT32_C(121) << 23)) - kvg_float(UINT32_C(121) << 23));
    uint32_t magnitude = kvg_select(shifted < (1 << 23), tiny, normal);

    magnitude |= kvg_select(shifted == (0x7f << 20), UINT32_C(0x7fc00000), 0);
    return kvg_float(magnitude | (uint32_t)(code & 0x80) << 24);
}

/* ---- pieces of the block formats */

KVG_CODEC_INLINE void kvg_put_u16(uint8_t *target, uint16_t value)
{
    memcpy(target, &value, sizeof value);
}

KVG_CODEC_INLINE float kvg_get_f16(const uint8_t *source)
{
    uint16_t code;

    memcpy(&code, source, sizeof code);
    return kvg_f32_from_f16(code);
}

/* 1/d, or 0 where that is not finite: then all codes are as for d = 0. |d| > 2^-128 is where it is finite. */
KVG_CODEC_INLINE float kvg_inverse(float d)
{
    int finite = (int32_t)(kvg_bits(d) & KVG_ABS) > INT32_C(0x00200000);

    return kvg_float(kvg_select(finite, kvg_bits(1.0f / kvg_float(kvg_select(finite, kvg_bits(d), UINT32_C(0x3f800000)))), 0));
}

/* roundf as an int32: halves away from zero. The addend is the largest float below one half, so that the largest float
 * below n + 1/2 stays below n + 1 and n + 1/2 itself rounds up to n + 1; the test tries every float up to 128. */
KVG_CODEC_INLINE int32_t kvg_round_away(float value)
{
    return (int32_t)(value + kvg_float(UINT32_C(0x3effffff) | (kvg_bits(value) & KVG_SIGN)));
}

KVG_CODEC_INLINE float kvg_first_zero(const float *x)
{
    int i = 0;

    while (i < KVG_BLOCK_ELEMENTS - 1 && x[i] != 0.0f) {
        i++;
    }
    return x[i];
}

KVG_CODEC_INLINE float kvg_first_of_magnitude(const float *x, float magnitude)
{
    int i = 0;

    while (i < KVG_BLOCK_ELEMENTS - 1 && x[i] != magnitude && x[i] != -magnitude) {
        i++;
    }
    return x[i];
}

/* d of q5_1; makes *low its m. Only a zero has two patterns, and the search keeps the first of them. */
KVG_CODEC_INLINE float kvg_q5_1_scale(const float *x, float *low, float high)
{
    if (KVG_UNLIKELY(*low == 0.0f)) {
        *low = kvg_first_zero(x);
    }
    return (high - *low) / 31.0f;
}

/* d of q4_0, from the signed element of largest magnitude: the first of equals, and +0 where nothing is larger. */
KVG_CODEC_INLINE float kvg_q4_0_scale(const float *x, float low, float high)
{
    float extreme = kvg_float(kvg_select(-low > high, kvg_bits(low), kvg_bits(high))); /* either, at random: no branch */

    if (KVG_UNLIKELY(-low == high)) { /* also zeros alone */
        extreme = high == 0.0f ? 0.0f : kvg_first_of_magnitude(x, high);
    }
    return extreme / -8.0f;
}

#endif

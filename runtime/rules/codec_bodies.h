/* Codec bodies: the arithmetic of S1 as inline functions. codec.c compiles them for the baseline of the platform,
 * codec_avx2.c once more under a target attribute, so that both give the same bits by construction. Private.
 *
 * Shape of every encoder: walk the source in blocks of 32, look at the block's largest magnitude as an integer (which
 * finds NaN and infinities too, since they have the largest patterns), and only where that passes the format's limit
 * take a cleaned and counted copy of the block. So the common path has no branch in an element and compilers turn its
 * loops into vector code. */
#ifndef KVG_CODEC_BODIES_H
#define KVG_CODEC_BODIES_H

#include <float.h>
#include <string.h>

#include "runtime/base/error.h"
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

/* ---- elements: f16, bf16, fp8 and back. The encoders take finite values within the limit. */

/* Rounds to nearest even with `drop` fraction bits fewer and the exponent bias `rebias` lower. Values below the target's
 * smallest normal are added to a power of two whose last place is the target's smallest step, so that the addition rounds. */
KVG_CODEC_INLINE uint32_t kvg_narrow(uint32_t magnitude, int drop, uint32_t rebias, uint32_t smallest_normal, uint32_t magic)
{
    uint32_t normal = (magnitude - (rebias << 23) + ((UINT32_C(1) << (drop - 1)) - 1) + ((magnitude >> drop) & 1)) >> drop;
    uint32_t tiny = kvg_bits(kvg_float(magnitude) + kvg_float(magic)) - magic;

    return (int32_t)magnitude < (int32_t)smallest_normal ? tiny : normal;
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
    uint32_t rebias = shifted >= INT32_C(0x0f800000) ? UINT32_C(224) << 23 : UINT32_C(112) << 23;
    uint32_t normal = (uint32_t)shifted + rebias;
    uint32_t tiny = kvg_bits(kvg_float((uint32_t)shifted + (UINT32_C(113) << 23)) - kvg_float(UINT32_C(113) << 23));

    return kvg_float((shifted < (1 << 23) ? tiny : normal) | (uint32_t)(code & 0x8000) << 16);
}

/* 0x7f and 0xff, which no encoder here writes, are NaN. */
KVG_CODEC_INLINE float kvg_f32_from_fp8(uint8_t code)
{
    int32_t  shifted = (int32_t)(code & 0x7f) << 20;
    uint32_t normal = (uint32_t)shifted + (UINT32_C(120) << 23);
    uint32_t tiny = kvg_bits(kvg_float((uint32_t)shifted + (UINT32_C(121) << 23)) - kvg_float(UINT32_C(121) << 23));
    uint32_t magnitude = shifted < (1 << 23) ? tiny : normal;

    magnitude = shifted == (0x7f << 20) ? UINT32_C(0x7fc00000) : magnitude;
    return kvg_float(magnitude | (uint32_t)(code & 0x80) << 24);
}

/* ---- small pieces of the block formats */

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
    return (kvg_bits(d) & KVG_ABS) > UINT32_C(0x00200000) ? 1.0f / d : 0.0f;
}

/* roundf as an int32: halves away from zero. The addend is the largest float below one half, so that the largest float
 * below n + 1/2 stays below n + 1 and n + 1/2 itself rounds up to n + 1; the test tries every float up to 128. */
KVG_CODEC_INLINE int32_t kvg_round_away(float value)
{
    return (int32_t)(value + kvg_float(UINT32_C(0x3effffff) | (kvg_bits(value) & KVG_SIGN)));
}

/* Order of floats as order of int32 (with -0 just below +0); its own inverse. */
KVG_CODEC_INLINE int32_t kvg_order(float value)
{
    int32_t bits = (int32_t)kvg_bits(value);

    return bits ^ ((bits >> 31) & INT32_C(0x7fffffff));
}

KVG_CODEC_INLINE float kvg_unorder(int32_t order)
{
    return kvg_float((uint32_t)(order ^ ((order >> 31) & INT32_C(0x7fffffff))));
}

/* Largest magnitude of a run, as a bit pattern. */
KVG_CODEC_INLINE int32_t kvg_run_magnitude(const float *x, size_t n)
{
    int32_t largest = 0;

    for (size_t i = 0; i < n; i++) {
        int32_t magnitude = (int32_t)(kvg_bits(x[i]) & KVG_ABS);

        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

/* Smallest and largest of a block in kvg_order. NaN and infinities are beyond every finite value. */
KVG_CODEC_INLINE void kvg_block_range(const float *x, int32_t *lowest, int32_t *highest)
{
    int32_t low = INT32_MAX;
    int32_t high = INT32_MIN;

    for (int i = 0; i < KVG_BLOCK_ELEMENTS; i++) {
        int32_t order = kvg_order(x[i]);

        low = order < low ? order : low;
        high = order > high ? order : high;
    }
    *lowest = low;
    *highest = high;
}

/* The element at which a search that keeps the first of equals ends, where zeros of either sign are equal. */
KVG_CODEC_INLINE float kvg_first_equal(const float *x, float value)
{
    int i = 0;

    while (i < KVG_BLOCK_ELEMENTS - 1 && x[i] != value) {
        i++;
    }
    return x[i];
}

/* m of q5_1. Only a zero has two patterns, and the search keeps the first. */
KVG_CODEC_INLINE float kvg_q5_1_minimum(const float *x, float lowest)
{
    return KVG_UNLIKELY(lowest == 0.0f) ? kvg_first_equal(x, lowest) : lowest;
}

/* The signed element of largest magnitude of q4_0: the first of equals, and +0 where nothing is larger. */
KVG_CODEC_INLINE float kvg_q4_0_extreme(const float *x, float lowest, float highest)
{
    if (KVG_UNLIKELY(-lowest == highest)) { /* also zeros alone */
        for (int i = 0; i < KVG_BLOCK_ELEMENTS; i++) {
            if (x[i] != 0.0f && (x[i] == highest || x[i] == lowest)) {
                return x[i];
            }
        }
        return 0.0f;
    }
    return -lowest > highest ? lowest : highest;
}

/* Bit 4 of each of 32 codes, gathered: the multiplication moves bit 8i to bit 56+i with no carry between. */
KVG_CODEC_INLINE uint32_t kvg_q5_1_high_bits(const uint8_t *codes)
{
    uint32_t high = 0;

    for (int part = 0; part < 4; part++) {
        uint64_t eight;

        memcpy(&eight, codes + 8 * part, sizeof eight);
        eight = (eight >> 4 & UINT64_C(0x0101010101010101)) * UINT64_C(0x0102040810204080) >> 56;
        high |= (uint32_t)eight << (8 * part);
    }
    return high;
}

/* ---- rows: encode */

#define KVG_CODEC_RUN 32 /* elements looked at together in formats without blocks */

KVG_CODEC_INLINE void kvg_run_to_f32(const float *x, size_t n, uint8_t *row)
{
    memcpy(row, x, n * sizeof *x);
}

KVG_CODEC_INLINE void kvg_run_to_f16(const float *x, size_t n, uint8_t *row)
{
    uint16_t codes[KVG_CODEC_RUN];

    for (size_t i = 0; i < n; i++) {
        codes[i] = kvg_f16_from_f32(x[i]);
    }
    memcpy(row, codes, n * sizeof *codes);
}

KVG_CODEC_INLINE void kvg_run_to_bf16(const float *x, size_t n, uint8_t *row)
{
    uint16_t codes[KVG_CODEC_RUN];

    for (size_t i = 0; i < n; i++) {
        codes[i] = kvg_bf16_from_f32(x[i]);
    }
    memcpy(row, codes, n * sizeof *codes);
}

KVG_CODEC_INLINE void kvg_run_to_fp8(const float *x, size_t n, uint8_t *row)
{
    uint8_t codes[KVG_CODEC_RUN];

    for (size_t i = 0; i < n; i++) {
        codes[i] = kvg_fp8_from_f32(x[i]);
    }
    memcpy(row, codes, n);
}

/* Encodes n <= KVG_CODEC_RUN elements by `narrow`, cleaned first where one needs it. */
KVG_CODEC_INLINE void kvg_run_encode(void (*narrow)(const float *, size_t, uint8_t *), int32_t limit, const float *x, size_t n,
                                     uint8_t *row, KvEncodeCounts *counts)
{
    float clean[KVG_CODEC_RUN];

    if (KVG_UNLIKELY(kvg_run_magnitude(x, n) > limit)) {
        kvg_codec_sanitise(x, n, limit, clean, counts);
        narrow(clean, n, row);
    } else {
        narrow(x, n, row);
    }
}

KVG_CODEC_INLINE void kvg_row_encode(void (*narrow)(const float *, size_t, uint8_t *), int32_t limit, size_t element_bytes,
                                     const float *source, size_t elements, uint8_t *row, KvEncodeCounts *counts)
{
    size_t whole = elements - elements % KVG_CODEC_RUN;

    for (size_t i = 0; i < whole; i += KVG_CODEC_RUN) {
        kvg_run_encode(narrow, limit, source + i, KVG_CODEC_RUN, row + i * element_bytes, counts);
    }
    if (whole < elements) {
        kvg_run_encode(narrow, limit, source + whole, elements - whole, row + whole * element_bytes, counts);
    }
}

KVG_CODEC_INLINE void kvg_row_to_q8_0(const float *source, size_t elements, uint8_t *row, KvEncodeCounts *counts)
{
    for (size_t i = 0; i < elements; i += KVG_BLOCK_ELEMENTS, row += 34) {
        const float *x = source + i;
        int32_t      magnitude = kvg_run_magnitude(x, KVG_BLOCK_ELEMENTS);
        float        clean[KVG_BLOCK_ELEMENTS];
        int8_t       codes[KVG_BLOCK_ELEMENTS];

        if (KVG_UNLIKELY(magnitude > KVG_LIMIT_Q8_0)) {
            kvg_codec_sanitise(x, KVG_BLOCK_ELEMENTS, KVG_LIMIT_Q8_0, clean, counts);
            x = clean;
            magnitude = kvg_run_magnitude(x, KVG_BLOCK_ELEMENTS);
        }
        float d = kvg_float((uint32_t)magnitude) / 127.0f;
        float inverse = kvg_inverse(d);

        for (int k = 0; k < KVG_BLOCK_ELEMENTS; k++) {
            codes[k] = (int8_t)kvg_round_away(x[k] * inverse);
        }
        kvg_put_u16(row, kvg_f16_from_f32(d));
        memcpy(row + 2, codes, sizeof codes);
    }
}

/* Range of a block that may need cleaning: *x then points at the clean copy. */
KVG_CODEC_INLINE void kvg_block_clean_range(const float **x, int32_t limit, float *clean, int32_t *low, int32_t *high,
                                            KvEncodeCounts *counts)
{
    kvg_block_range(*x, low, high);
    if (KVG_UNLIKELY(*high > limit || *low < ~limit)) { /* ~limit is the order of -F */
        kvg_codec_sanitise(*x, KVG_BLOCK_ELEMENTS, limit, clean, counts);
        *x = clean;
        kvg_block_range(*x, low, high);
    }
}

KVG_CODEC_INLINE void kvg_put_nibbles(uint8_t *target, const uint8_t *codes)
{
    uint8_t nibbles[KVG_BLOCK_ELEMENTS / 2];

    for (int j = 0; j < KVG_BLOCK_ELEMENTS / 2; j++) {
        nibbles[j] = (uint8_t)((codes[j] & 15) | codes[j + 16] << 4);
    }
    memcpy(target, nibbles, sizeof nibbles);
}

KVG_CODEC_INLINE void kvg_row_to_q5_1(const float *source, size_t elements, uint8_t *row, KvEncodeCounts *counts)
{
    for (size_t i = 0; i < elements; i += KVG_BLOCK_ELEMENTS, row += 24) {
        const float *x = source + i;
        float        clean[KVG_BLOCK_ELEMENTS];
        uint8_t      codes[KVG_BLOCK_ELEMENTS];
        int32_t      low, high;

        kvg_block_clean_range(&x, KVG_LIMIT_Q5_1, clean, &low, &high, counts);
        float minimum = kvg_q5_1_minimum(x, kvg_unorder(low));
        float d = (kvg_unorder(high) - minimum) / 31.0f;
        float inverse = kvg_inverse(d);

        for (int k = 0; k < KVG_BLOCK_ELEMENTS; k++) {
            codes[k] = (uint8_t)(int32_t)((x[k] - minimum) * inverse + 0.5f);
        }
        uint32_t high_bits = kvg_q5_1_high_bits(codes);

        kvg_put_u16(row, kvg_f16_from_f32(d));
        kvg_put_u16(row + 2, kvg_f16_from_f32(minimum));
        memcpy(row + 4, &high_bits, sizeof high_bits);
        kvg_put_nibbles(row + 8, codes);
    }
}

KVG_CODEC_INLINE void kvg_row_to_q4_0(const float *source, size_t elements, uint8_t *row, KvEncodeCounts *counts)
{
    for (size_t i = 0; i < elements; i += KVG_BLOCK_ELEMENTS, row += 18) {
        const float *x = source + i;
        float        clean[KVG_BLOCK_ELEMENTS];
        uint8_t      codes[KVG_BLOCK_ELEMENTS];
        int32_t      low, high;

        kvg_block_clean_range(&x, KVG_LIMIT_Q4_0, clean, &low, &high, counts);
        float d = kvg_q4_0_extreme(x, kvg_unorder(low), kvg_unorder(high)) / -8.0f;
        float inverse = kvg_inverse(d);

        for (int k = 0; k < KVG_BLOCK_ELEMENTS; k++) {
            int32_t code = (int32_t)(x[k] * inverse + 8.5f);

            codes[k] = (uint8_t)(code < 15 ? code : 15);
        }
        kvg_put_u16(row, kvg_f16_from_f32(d));
        kvg_put_nibbles(row + 2, codes);
    }
}

/* ---- rows: decode. Product and sum are rounded apart. */

KVG_CODEC_INLINE void kvg_row_from_f32(const uint8_t *row, size_t elements, float *target)
{
    memcpy(target, row, elements * sizeof *target);
}

KVG_CODEC_INLINE void kvg_row_from_f16(const uint8_t *row, size_t elements, float *target)
{
    for (size_t i = 0; i < elements; i++) {
        target[i] = kvg_get_f16(row + 2 * i);
    }
}

KVG_CODEC_INLINE void kvg_row_from_bf16(const uint8_t *row, size_t elements, float *target)
{
    for (size_t i = 0; i < elements; i++) {
        uint16_t code;

        memcpy(&code, row + 2 * i, sizeof code);
        target[i] = kvg_f32_from_bf16(code);
    }
}

KVG_CODEC_INLINE void kvg_row_from_fp8(const uint8_t *row, size_t elements, float *target)
{
    for (size_t i = 0; i < elements; i++) {
        target[i] = kvg_f32_from_fp8(row[i]);
    }
}

KVG_CODEC_INLINE void kvg_row_from_q8_0(const uint8_t *row, size_t elements, float *target)
{
    for (size_t i = 0; i < elements; i += KVG_BLOCK_ELEMENTS, row += 34) {
        float  d = kvg_get_f16(row);
        int8_t codes[KVG_BLOCK_ELEMENTS];

        memcpy(codes, row + 2, sizeof codes);
        for (int k = 0; k < KVG_BLOCK_ELEMENTS; k++) {
            target[i + k] = d * (float)codes[k];
        }
    }
}

KVG_CODEC_INLINE void kvg_get_nibbles(const uint8_t *source, uint8_t *codes)
{
    for (int j = 0; j < KVG_BLOCK_ELEMENTS / 2; j++) {
        codes[j] = source[j] & 15;
        codes[j + 16] = source[j] >> 4;
    }
}

KVG_CODEC_INLINE void kvg_row_from_q5_1(const uint8_t *row, size_t elements, float *target)
{
    for (size_t i = 0; i < elements; i += KVG_BLOCK_ELEMENTS, row += 24) {
        float    d = kvg_get_f16(row);
        float    m = kvg_get_f16(row + 2);
        uint8_t  codes[KVG_BLOCK_ELEMENTS];
        uint32_t high;

        memcpy(&high, row + 4, sizeof high);
        kvg_get_nibbles(row + 8, codes);
        for (int k = 0; k < KVG_BLOCK_ELEMENTS; k++) {
            int32_t code = codes[k] | (int32_t)(high >> k & 1) << 4;

            target[i + k] = d * (float)code + m;
        }
    }
}

KVG_CODEC_INLINE void kvg_row_from_q4_0(const uint8_t *row, size_t elements, float *target)
{
    for (size_t i = 0; i < elements; i += KVG_BLOCK_ELEMENTS, row += 18) {
        float   d = kvg_get_f16(row);
        uint8_t codes[KVG_BLOCK_ELEMENTS];

        kvg_get_nibbles(row + 2, codes);
        for (int k = 0; k < KVG_BLOCK_ELEMENTS; k++) {
            target[i + k] = d * (float)(codes[k] - 8);
        }
    }
}

/* ---- a row function of one instruction set, with `attributes` on it */
#define KVG_CODEC_DEFINE_ENCODE_RUN(suffix, attributes, word, WORD, bytes)                                              \
    attributes static void encode_##word##_##suffix(const float *source, size_t elements, uint8_t *row,                 \
                                                    KvEncodeCounts *counts)                                             \
    {                                                                                                                   \
        kvg_row_encode(kvg_run_to_##word, KVG_LIMIT_##WORD, bytes, source, elements, row, counts);                      \
    }
#define KVG_CODEC_DEFINE_ENCODE_BLOCK(suffix, attributes, word)                                                         \
    attributes static void encode_##word##_##suffix(const float *source, size_t elements, uint8_t *row,                 \
                                                    KvEncodeCounts *counts)                                             \
    {                                                                                                                   \
        kvg_row_to_##word(source, elements, row, counts);                                                               \
    }
#define KVG_CODEC_DEFINE_DECODE(suffix, attributes, word)                                                               \
    attributes static void decode_##word##_##suffix(const uint8_t *row, size_t elements, float *target)                 \
    {                                                                                                                   \
        kvg_row_from_##word(row, elements, target);                                                                     \
    }

#endif

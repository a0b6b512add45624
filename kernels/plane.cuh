/** plane.cuh: rows of a plane in device code: where a row is, and a block of 32 elements encoded and decoded, inline (S1, S8).
 *
 * kvgrid's own kernels are made of these, so an engine that fuses the write into its own kernel stores the same bytes. Bit-equal to
 * kvg_encode_f32 and kvg_decode_f32 of <kvgrid/format.h>: IEEE binary32, nothing contracted, denormals kept. Every operation that rounds is
 * written as an intrinsic, so the caller's -fmad does not matter; -use_fast_math and -ftz=true do, and are refused below.
 *
 * Two widths:
 *   a thread a block   kvg_encode_block, kvg_decode_block: 32 elements in registers; for fused kernels
 *   a quad a block     kvg_quad_*: lanes 4b..4b+3 of a warp hold 8 neighbouring elements each: 16-byte loads of bf16, and scales by shuffles
 *
 * Compiles as plain C++ too (the host's bytes, element by element): tests hold it to the reference without a GPU. */
#ifndef KVG_PLANE_CUH
#define KVG_PLANE_CUH

#include <stdint.h>
#include <string.h>

#include <kvgrid/rows_batch.h>

#if defined(__CUDA_FTZ) && __CUDA_FTZ
#error "rows keep denormals: compile without -use_fast_math and without -ftz=true"
#endif

#ifdef __CUDACC__
#define KVG_DEV __host__ __device__ __forceinline__
#else
#define KVG_DEV static inline
#endif

/* ---- where rows are */

/** The address of head 0 of absolute row `row`; head h stands plane.head_stride*h further. */
KVG_DEV uint8_t *kvg_ref_row(const KvPlaneRef &ref, uint32_t slot, uint32_t row)
{
    if (ref.rows_per_chunk != 0) {
        int32_t chunk = ref.table[(size_t)slot * ref.table_stride + row / ref.rows_per_chunk];
        return ref.plane.base + (size_t)chunk * ref.plane.chunk_bytes + (row % ref.rows_per_chunk) * ref.plane.row_stride;
    }
    uint32_t at = ref.base_row != nullptr ? row - ref.base_row[slot] : row;
    if (ref.ring_rows != 0 && at >= ref.ring_rows) at %= (uint32_t)ref.ring_rows;
    return ref.plane.base + (size_t)slot * ref.plane.slot_bytes + (size_t)at * ref.plane.row_stride;
}

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

/* An integer below 2^23 to float, exactly. */
KVG_DEV float kvg_dev_from_int(uint32_t value)
{
    return KVG_SUB(kvg_dev_float(0x4b000000u | value), 8388608.0f);
}

/* value/divisor for 127 and 31, whose reciprocals this rounds to the same bits as a division for every normal value that is not tiny (all
 * mantissas were tried); the tiny ones are divided. */
KVG_DEV float kvg_dev_divide(float value, float divisor, float reciprocal)
{
    if (value >= 8.27e-25f) {
        float quotient = KVG_MUL(value, reciprocal);
        return KVG_FMA(KVG_FMA(-divisor, quotient, value), reciprocal, quotient);
    }
#ifdef __CUDA_ARCH__
    return __fdiv_rn(value, divisor);
#else
    return value / divisor;
#endif
}

/* 1/d, or 0 where that is not finite. */
KVG_DEV float kvg_dev_inverse(float d)
{
    if ((kvg_dev_bits(d) & 0x7fffffffu) <= 0x00200000u) return 0.0f;
#ifdef __CUDA_ARCH__
    return __frcp_rn(d);
#else
    return 1.0f / d;
#endif
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
    float    low, high;
    uint32_t bad;
} KvSpan;

KVG_DEV float kvg_dev_min(float a, float b)
{
#ifdef __CUDA_ARCH__
    return fminf(a, b);
#else
    return b < a || a != a ? b : a;
#endif
}

KVG_DEV float kvg_dev_max(float a, float b)
{
#ifdef __CUDA_ARCH__
    return fmaxf(a, b);
#else
    return b > a || a != a ? b : a;
#endif
}

KVG_DEV KvSpan kvg_span_join(KvSpan a, KvSpan b)
{
    KvSpan whole = {kvg_dev_min(a.low, b.low), kvg_dev_max(a.high, b.high), a.bad | b.bad};
    return whole;
}

/** N elements. NaN and infinities show as a sum of zeros that is none; what is beyond F, in low and high. */
template <int FORMAT, int N> KVG_DEV KvSpan kvg_span_of(const float (&x)[N])
{
    KvSpan span = {x[0], x[0], 0};
    float  zero = KVG_MUL(x[0], 0.0f);

#pragma unroll
    for (int i = 1; i < N; i++) {
        span.low = kvg_dev_min(span.low, x[i]);
        span.high = kvg_dev_max(span.high, x[i]);
        zero = KVG_FMA(x[i], 0.0f, zero);
    }
    const float limit = kvg_dev_float(kvg_dev_limit<FORMAT>());
    span.bad = !(zero == 0.0f) || span.high > limit || span.low < -limit;
    return span;
}

template <int FORMAT, int N> KVG_DEV KvSpan kvg_span_clean(float (&x)[N], KvLaneCounts &counts)
{
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = kvg_dev_clean<FORMAT>(x[i], counts);
    return kvg_span_of<FORMAT, N>(x);
}

/* ---- block formats: scales and codes */

typedef struct KvScale {
    float    d, m;    /* m: q5_1 alone */
    float    inverse;
} KvScale;

template <int FORMAT> KVG_DEV constexpr int kvg_block_bytes()
{
    return FORMAT == KVG_Q8_0 ? 34 : FORMAT == KVG_Q5_1 ? 24 : FORMAT == KVG_Q4_0 ? 18 : 0;
}

template <int FORMAT> KVG_DEV constexpr bool kvg_is_block()
{
    return kvg_block_bytes<FORMAT>() != 0;
}

/* Which element decides is open only where several are equal: q4_0's first of equal magnitudes, q5_1's first zero. The caller looks for it. */
template <int FORMAT> KVG_DEV bool kvg_scale_is_open(KvSpan span)
{
    if (FORMAT == KVG_Q5_1) return span.low == 0.0f;
    if (FORMAT == KVG_Q4_0) return -span.low == span.high && span.high != 0.0f;
    return false;
}

/** Of the clean elements with this span; `first` is the element that decides, where that is open. */
template <int FORMAT> KVG_DEV KvScale kvg_scale_of(KvSpan span, float first)
{
    KvScale scale = {0.0f, 0.0f, 0.0f};

    if (FORMAT == KVG_Q8_0) {
        scale.d = kvg_dev_divide(KVG_ADD(kvg_dev_max(span.high, -span.low), 0.0f), 127.0f, 1.0f / 127.0f); /* never -0 */
    } else if (FORMAT == KVG_Q5_1) {
        scale.m = span.low == 0.0f ? first : span.low;
        scale.d = kvg_dev_divide(KVG_SUB(KVG_ADD(span.high, 0.0f), scale.m), 31.0f, 1.0f / 31.0f); /* the largest is never -0 */
    } else {
        float extreme = -span.low > span.high ? span.low : span.high;
        if (-span.low == span.high) extreme = span.high == 0.0f ? 0.0f : first;
        scale.d = KVG_MUL(extreme, -0.125f);
    }
    scale.inverse = kvg_dev_inverse(scale.d);
    return scale;
}

/** The code of one clean element in the low bits (what stands above them is open): q8_0 its magnitude, the others the stored code. */
template <int FORMAT> KVG_DEV uint32_t kvg_code_of(float x, const KvScale &scale)
{
    if (FORMAT == KVG_Q8_0) { /* half away from zero: the addend is the largest float below one half, then truncation */
        float magnitude = KVG_MUL(kvg_dev_float(kvg_dev_bits(x) & 0x7fffffffu), scale.inverse);
        return kvg_dev_floor_bits(KVG_ADD(magnitude, kvg_dev_float(0x3effffffu)));
    }
    if (FORMAT == KVG_Q5_1) return kvg_dev_floor_bits(KVG_ADD(KVG_MUL(KVG_SUB(x, scale.m), scale.inverse), 0.5f));
    return kvg_dev_floor_bits(kvg_dev_min(KVG_ADD(KVG_MUL(x, scale.inverse), 8.5f), 15.0f));
}

/* The low bytes of four words as one word. */
KVG_DEV uint32_t kvg_dev_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
#ifdef __CUDA_ARCH__
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
#else
    return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | (d & 255) << 24;
#endif
}

/* Bytes that are 0xff where the word is negative. */
KVG_DEV uint32_t kvg_dev_signs(float a, float b, float c, float d)
{
    uint32_t wa = kvg_dev_bits(a), wb = kvg_dev_bits(b), wc = kvg_dev_bits(c), wd = kvg_dev_bits(d);
#ifdef __CUDA_ARCH__
    uint32_t ab, cd; /* selector bit 3: the byte's sign, eight times; __byte_perm promises only three bits of it */
    asm("prmt.b32 %0, %1, %2, 0x00fb;" : "=r"(ab) : "r"(wa), "r"(wb));
    asm("prmt.b32 %0, %1, %2, 0x00fb;" : "=r"(cd) : "r"(wc), "r"(wd));
    return __byte_perm(ab, cd, 0x5410);
#else
    return kvg_dev_bytes(0u - (wa >> 31), 0u - (wb >> 31), 0u - (wc >> 31), 0u - (wd >> 31));
#endif
}

/** Eight codes as two words of bytes, in order; q8_0 with their signs. */
template <int FORMAT> KVG_DEV void kvg_codes_of(const float (&x)[8], const KvScale &scale, uint32_t &low, uint32_t &high)
{
    uint32_t c[8];

#pragma unroll
    for (int i = 0; i < 8; i++) c[i] = kvg_code_of<FORMAT>(x[i], scale);
    low = kvg_dev_bytes(c[0], c[1], c[2], c[3]);
    high = kvg_dev_bytes(c[4], c[5], c[6], c[7]);
    if (FORMAT == KVG_Q8_0) { /* -n = ~n + 1 in each byte; n is at most 127, so only a zero would carry, and its top bit is kept apart */
        uint32_t s = kvg_dev_signs(x[0], x[1], x[2], x[3]), n = low ^ s;
        low = ((n & 0x7f7f7f7fu) + (s & 0x01010101u)) ^ (n & 0x80808080u);
        s = kvg_dev_signs(x[4], x[5], x[6], x[7]);
        n = high ^ s;
        high = ((n & 0x7f7f7f7fu) + (s & 0x01010101u)) ^ (n & 0x80808080u);
    }
}

/* Bit 4 of each of four bytes, gathered in order. */
KVG_DEV uint32_t kvg_dev_fifth_bits(uint32_t codes)
{
    return ((codes >> 4 & 0x01010101u) * 0x10204080u) >> 28;
}

KVG_DEV void kvg_put_u16s(uint8_t *target, uint32_t word) /* two bytes aligned */
{
    ((uint16_t *)(void *)target)[0] = (uint16_t)word;
    ((uint16_t *)(void *)target)[1] = (uint16_t)(word >> 16);
}

/* ---- a thread a block */

/* The first of 32 elements that equals `value` or -value. */
KVG_DEV float kvg_first_of(const float (&x)[32], float value)
{
    float found = x[31];

#pragma unroll
    for (int i = 30; i >= 0; i--) {
        if (x[i] == value || x[i] == -value) found = x[i];
    }
    return found;
}

/** Encodes 32 elements into the bytes of a block at a two-byte aligned `block` (device or shared memory). x is cleaned in place. */
template <int FORMAT> KVG_DEV void kvg_encode_block(float (&x)[32], uint8_t *block, KvLaneCounts &counts)
{
    KvSpan   span = kvg_span_of<FORMAT, 32>(x);
    uint32_t words[8];

    if (span.bad) span = kvg_span_clean<FORMAT, 32>(x, counts);
    KvScale scale = kvg_scale_of<FORMAT>(span, kvg_scale_is_open<FORMAT>(span) ? kvg_first_of(x, span.high == -span.low ? span.high : 0.0f) : 0.0f);
#pragma unroll
    for (int part = 0; part < 4; part++) {
        float eight[8];
#pragma unroll
        for (int i = 0; i < 8; i++) eight[i] = x[8 * part + i];
        kvg_codes_of<FORMAT>(eight, scale, words[2 * part], words[2 * part + 1]);
    }
    ((uint16_t *)(void *)block)[0] = (uint16_t)kvg_dev_f16(scale.d);
    if (FORMAT == KVG_Q8_0) {
#pragma unroll
        for (int i = 0; i < 8; i++) kvg_put_u16s(block + 2 + 4 * i, words[i]);
        return;
    }
    uint8_t *nibbles = block + 2;
    if (FORMAT == KVG_Q5_1) {
        uint32_t bits = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) bits |= kvg_dev_fifth_bits(words[i]) << (4 * i);
        ((uint16_t *)(void *)block)[1] = (uint16_t)kvg_dev_f16(scale.m);
        kvg_put_u16s(block + 4, bits);
        nibbles = block + 8;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        kvg_put_u16s(nibbles + 4 * i, (words[i] & 0x0f0f0f0fu) | (words[i + 4] & 0x0f0f0f0fu) << 4);
    }
}

/* ---- decoding: 8 neighbouring elements of a block, or of a plain row; `part` 0..3 says which of a block's */

KVG_DEV uint32_t kvg_get_u16s(const uint8_t *source)
{
    return (uint32_t)((const uint16_t *)(const void *)source)[0] | (uint32_t)((const uint16_t *)(const void *)source)[1] << 16;
}

/* Bits 0..3 to bit 4 of four bytes. */
KVG_DEV uint32_t kvg_dev_spread_bits(uint32_t bits)
{
    return ((bits & 15) * 0x00204081u & 0x01010101u) << 4;
}

template <int FORMAT> KVG_DEV void kvg_decode_eight(const uint8_t *block, int part, float (&x)[8])
{
    float    d = kvg_dev_from_f16(((const uint16_t *)(const void *)block)[0]);
    uint32_t low, high;

    if (FORMAT == KVG_Q8_0) {
        low = kvg_get_u16s(block + 2 + 8 * part) ^ 0x80808080u;
        high = kvg_get_u16s(block + 6 + 8 * part) ^ 0x80808080u;
    } else {
        const uint8_t *nibbles = block + (FORMAT == KVG_Q5_1 ? 8 : 2) + 8 * (part & 1);
        int            shift = part < 2 ? 0 : 4;
        low = kvg_get_u16s(nibbles) >> shift & 0x0f0f0f0fu;
        high = kvg_get_u16s(nibbles + 4) >> shift & 0x0f0f0f0fu;
    }
    if (FORMAT == KVG_Q5_1) {
        uint32_t bits = block[4 + part];
        low |= kvg_dev_spread_bits(bits);
        high |= kvg_dev_spread_bits(bits >> 4);
    }
    const float bias = FORMAT == KVG_Q8_0 ? 8388736.0f : FORMAT == KVG_Q4_0 ? 8388616.0f : 8388608.0f; /* 2^23 + 128, 8, 0 */
    const float m = FORMAT == KVG_Q5_1 ? kvg_dev_from_f16(((const uint16_t *)(const void *)block)[1]) : 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t code = (i < 4 ? low : high) >> (8 * (i & 3)) & 255;
        x[i] = KVG_MUL(d, KVG_SUB(kvg_dev_float(0x4b000000u | code), bias));
        if (FORMAT == KVG_Q5_1) x[i] = KVG_ADD(x[i], m);
    }
}

/** All 32 elements of a block at a two-byte aligned address. */
template <int FORMAT> KVG_DEV void kvg_decode_block(const uint8_t *block, float (&x)[32])
{
#pragma unroll
    for (int part = 0; part < 4; part++) {
        float eight[8];
        kvg_decode_eight<FORMAT>(block, part, eight);
#pragma unroll
        for (int i = 0; i < 8; i++) x[8 * part + i] = eight[i];
    }
}

/* ---- a quad a block: lanes 4b..4b+3 call these together, each with elements 8*(lane%4) on */

#ifdef __CUDACC__

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
    int   at = 99, lane = threadIdx.x & 3;
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

/** Encodes the quad's 32 elements into `block` (two-byte aligned; shared memory by preference). span: kvg_span_of this lane's eight. */
template <int FORMAT> __device__ __forceinline__ void kvg_quad_encode(float (&x)[8], KvSpan span, uint8_t *block, KvLaneCounts &counts)
{
    const uint32_t quad = 0xfu << (threadIdx.x & 28), part = threadIdx.x & 3;
    uint32_t       low, high;

    if (span.bad) span = kvg_span_clean<FORMAT, 8>(x, counts); /* each lane for itself: cleaning is one element's matter */
    span = kvg_quad_join(span, 0xffffffffu);
    float first = 0.0f;
    if (kvg_scale_is_open<FORMAT>(span)) first = kvg_quad_first(x, span.high == -span.low ? span.high : 0.0f, quad);
    KvScale scale = kvg_scale_of<FORMAT>(span, first);
    kvg_codes_of<FORMAT>(x, scale, low, high);
    if (part == 0) ((uint16_t *)(void *)block)[0] = (uint16_t)kvg_dev_f16(scale.d);
    if (FORMAT == KVG_Q8_0) {
        kvg_put_u16s(block + 2 + 8 * part, low);
        kvg_put_u16s(block + 6 + 8 * part, high);
        return;
    }
    uint8_t *nibbles = block + (FORMAT == KVG_Q5_1 ? 8 : 2) + 8 * (part & 1) + 2 * (part & 2);
    if (FORMAT == KVG_Q5_1) {
        if (part == 1) ((uint16_t *)(void *)block)[1] = (uint16_t)kvg_dev_f16(scale.m);
        block[4 + part] = (uint8_t)(kvg_dev_fifth_bits(low) | kvg_dev_fifth_bits(high) << 4);
    }
    /* lanes 0 and 2 (1 and 3) hold the two halves of the same nibble bytes: one word goes each way, and each stores four bytes */
    uint32_t other = __shfl_xor_sync(0xffffffffu, part & 2 ? low : high, 2);
    uint32_t below = part & 2 ? other : low, above = part & 2 ? high : other;
    kvg_put_u16s(nibbles, (below & 0x0f0f0f0fu) | (above & 0x0f0f0f0fu) << 4);
}

/** Adds a warp's counts; all 32 lanes call it. */
__device__ __forceinline__ void kvg_warp_count(KvLaneCounts lane, KvEncodeCounts *counts)
{
    if (!__any_sync(0xffffffffu, lane.nonfinite | lane.saturated)) return;
    uint32_t nonfinite = __reduce_add_sync(0xffffffffu, lane.nonfinite), saturated = __reduce_add_sync(0xffffffffu, lane.saturated);
    if ((threadIdx.x & 31) != 0 || counts == nullptr) return;
    if (nonfinite != 0) atomicAdd((unsigned long long *)&counts->nonfinite, (unsigned long long)nonfinite);
    if (saturated != 0) atomicAdd((unsigned long long *)&counts->saturated, (unsigned long long)saturated);
}

#endif /* __CUDACC__ */
#endif

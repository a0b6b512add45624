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
        scale.d = kvg_dev_divide(span.high, 127.0f, 1.0f / 127.0f); /* a magnitude: never -0 */
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

/** The code of one clean element in byte kvg_code_byte (what stands beside it is open): q8_0 its magnitude, the others the stored code. */
template <int FORMAT> KVG_DEV uint32_t kvg_code_of(float x, const KvScale &scale)
{
    if (FORMAT == KVG_Q8_0) return kvg_dev_round_bits(kvg_dev_magnitude(KVG_MUL(x, scale.inverse))); /* half away from zero */
    if (FORMAT == KVG_Q5_1) return kvg_dev_floor_bits(KVG_ADD(KVG_MUL(KVG_SUB(x, scale.m), scale.inverse), 0.5f));
    return kvg_dev_floor_bits(kvg_dev_min(KVG_ADD(KVG_MUL(x, scale.inverse), 8.5f), 15.0f));
}

template <int FORMAT> KVG_DEV constexpr int kvg_code_byte()
{
    return FORMAT == KVG_Q8_0 ? 2 : 0;
}

/* Byte AT of four words as one word. */
template <int AT> KVG_DEV uint32_t kvg_dev_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
#ifdef __CUDA_ARCH__
    const uint32_t two = AT | (AT + 4) << 4;
    return __byte_perm(__byte_perm(a, b, two), __byte_perm(c, d, two), 0x5410);
#else
    return (a >> 8 * AT & 255) | (b >> 8 * AT & 255) << 8 | (c >> 8 * AT & 255) << 16 | (d >> 8 * AT & 255) << 24;
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
    return kvg_dev_bytes<0>(0u - (wa >> 31), 0u - (wb >> 31), 0u - (wc >> 31), 0u - (wd >> 31));
#endif
}

/* Four magnitudes of at most 127, negated where `signs` has 0xff: 128 - n, which carries into no other byte, and then its top bit. */
KVG_DEV uint32_t kvg_dev_negate(uint32_t magnitudes, uint32_t signs)
{
    return ((magnitudes ^ (signs & 0x7f7f7f7fu)) + (signs & 0x01010101u)) ^ (signs & 0x80808080u);
}

/** Eight codes as two words of bytes, in order; q8_0 with their signs. */
template <int FORMAT> KVG_DEV void kvg_codes_of(const float (&x)[8], const KvScale &scale, uint32_t &low, uint32_t &high)
{
    uint32_t c[8];

#pragma unroll
    for (int i = 0; i < 8; i++) c[i] = kvg_code_of<FORMAT>(x[i], scale);
    low = kvg_dev_bytes<kvg_code_byte<FORMAT>()>(c[0], c[1], c[2], c[3]);
    high = kvg_dev_bytes<kvg_code_byte<FORMAT>()>(c[4], c[5], c[6], c[7]);
    if (FORMAT == KVG_Q8_0) {
        low = kvg_dev_negate(low, kvg_dev_signs(x[0], x[1], x[2], x[3]));
        high = kvg_dev_negate(high, kvg_dev_signs(x[4], x[5], x[6], x[7]));
    }
}

/* Bit 4 of each of four bytes, gathered in order in the top four bits: each of the multiplier's bits brings one there and none meet. */
KVG_DEV uint32_t kvg_dev_fifth_bits(uint32_t codes)
{
    return (codes & 0x10101010u) * 0x01020408u;
}

/* The top four bits of `next`, then `bits`, upwards. */
KVG_DEV uint32_t kvg_dev_push_bits(uint32_t bits, uint32_t next)
{
#ifdef __CUDA_ARCH__
    return __funnelshift_l(next, bits, 4);
#else
    return bits << 4 | next >> 28;
#endif
}

/* Two words' low halves of bytes as one word: the first's below. */
KVG_DEV uint32_t kvg_dev_nibbles(uint32_t below, uint32_t above)
{
    return (below & 0x0f0f0f0fu) | (above << 4 & 0xf0f0f0f0u);
}

/** A block's words as they are stored. Two bytes of scale stand before them but for q5_1, whose words are all of it. */
template <int FORMAT> KVG_DEV constexpr int kvg_block_words()
{
    return FORMAT == KVG_Q8_0 ? 8 : FORMAT == KVG_Q5_1 ? 6 : 4;
}

/** From eight words of codes in order. */
template <int FORMAT> KVG_DEV void kvg_block_of(const KvScale &scale, const uint32_t (&codes)[8], uint32_t (&words)[kvg_block_words<FORMAT>()])
{
    if constexpr (FORMAT == KVG_Q8_0) {
#pragma unroll
        for (int i = 0; i < 8; i++) words[i] = codes[i];
    } else {
        const int skip = FORMAT == KVG_Q5_1 ? 2 : 0;

        if constexpr (FORMAT == KVG_Q5_1) {
            uint32_t bits = 0;
#pragma unroll
            for (int i = 7; i >= 0; i--) bits = kvg_dev_push_bits(bits, kvg_dev_fifth_bits(codes[i]));
            words[0] = kvg_dev_f16x2(scale.d, scale.m);
            words[1] = bits;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) words[skip + i] = kvg_dev_nibbles(codes[i], codes[i + 4]);
    }
}

KVG_DEV void kvg_put_u16s(uint8_t *target, uint32_t word) /* two bytes aligned */
{
    ((uint16_t *)(void *)target)[0] = (uint16_t)word;
    ((uint16_t *)(void *)target)[1] = (uint16_t)(word >> 16);
}

KVG_DEV void kvg_dev_put_pair(uint8_t *target, uint32_t first, uint32_t second) /* eight bytes aligned */
{
#ifdef __CUDA_ARCH__
    *(uint2 *)(void *)target = make_uint2(first, second);
#else
    memcpy(target, &first, 4);
    memcpy(target + 4, &second, 4);
#endif
}

/** Words of q8_0 or q4_0 and the scale before them, at a two-byte aligned address, in stores of four bytes: the codes, or the scale and all codes
 * but the last two, begin at a multiple of four. */
template <int N> KVG_DEV void kvg_put_scaled(uint8_t *block, uint32_t d, const uint32_t (&words)[N])
{
    const bool early = ((uintptr_t)block & 2) == 0;
    uint8_t   *at = early ? block : block + 2;
    uint32_t   before = d << 16;

#pragma unroll
    for (int i = 0; i < N; i++) {
#ifdef __CUDA_ARCH__
        uint32_t word = __byte_perm(before, words[i], early ? 0x5432 : 0x7654);
#else
        uint32_t word = early ? before >> 16 | words[i] << 16 : words[i];
#endif
        memcpy(__builtin_assume_aligned(at + 4 * i, 4), &word, 4);
        before = words[i];
    }
    *(uint16_t *)(void *)(early ? block + 4 * N : block) = (uint16_t)(early ? before >> 16 : d);
}

/** ALIGN: 2, or 8 where the block's address is a multiple of that. */
template <int FORMAT, int ALIGN> KVG_DEV void kvg_put_block(uint8_t *block, const KvScale &scale, const uint32_t (&words)[kvg_block_words<FORMAT>()])
{
    if constexpr (FORMAT != KVG_Q5_1) {
        kvg_put_scaled(block, kvg_dev_f16(scale.d), words);
    } else {
#pragma unroll
        for (int i = 0; i < 6; i += 2) {
            if (ALIGN >= 8) kvg_dev_put_pair(block + 4 * i, words[i], words[i + 1]);
            else kvg_put_u16s(block + 4 * i, words[i]), kvg_put_u16s(block + 4 * i + 4, words[i + 1]);
        }
    }
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
    uint32_t codes[8], words[kvg_block_words<FORMAT>()];

    if (span.bad) span = kvg_span_clean<FORMAT, 32>(x, counts);
    KvScale scale = kvg_scale_of<FORMAT>(span, kvg_scale_is_open<FORMAT>(span) ? kvg_first_of(x, span.high == -span.low ? span.high : 0.0f) : 0.0f);
#pragma unroll
    for (int part = 0; part < 4; part++) {
        float eight[8];
#pragma unroll
        for (int i = 0; i < 8; i++) eight[i] = x[8 * part + i];
        kvg_codes_of<FORMAT>(eight, scale, codes[2 * part], codes[2 * part + 1]);
    }
    kvg_block_of<FORMAT>(scale, codes, words);
    kvg_put_block<FORMAT, 2>(block, scale, words);
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

/* 2^23 and byte `at` of a word. */
KVG_DEV float kvg_dev_from_byte(uint32_t word, int at)
{
#ifdef __CUDA_ARCH__
    return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440 | at));
#else
    return kvg_dev_float(0x4b000000u | (word >> 8 * at & 255));
#endif
}

/* Eight bytes at an address that is a multiple of ALIGN: 2, or 8. */
template <int ALIGN> KVG_DEV void kvg_dev_get_pair(const uint8_t *source, uint32_t &first, uint32_t &second)
{
#ifdef __CUDA_ARCH__
    if (ALIGN >= 8) {
        const uint2 pair = *(const uint2 *)(const void *)source;
        first = pair.x, second = pair.y;
        return;
    }
#endif
    first = kvg_get_u16s(source);
    second = kvg_get_u16s(source + 4);
}

/** ALIGN: of the block's address, 2 or 8 (q5_1 alone can have more than 2 throughout a row). */
template <int FORMAT, int ALIGN = 2> KVG_DEV void kvg_decode_eight(const uint8_t *block, int part, float (&x)[8])
{
    uint32_t scales = ((const uint16_t *)(const void *)block)[0], low, high;

    if (FORMAT == KVG_Q8_0) {
        kvg_dev_get_pair<2>(block + 2 + 8 * part, low, high);
        low ^= 0x80808080u;
        high ^= 0x80808080u;
    } else {
        const int shift = part < 2 ? 0 : 4;
        kvg_dev_get_pair<FORMAT == KVG_Q5_1 ? ALIGN : 2>(block + (FORMAT == KVG_Q5_1 ? 8 : 2) + 8 * (part & 1), low, high);
        low = low >> shift & 0x0f0f0f0fu;
        high = high >> shift & 0x0f0f0f0fu;
    }
    if (FORMAT == KVG_Q5_1) {
        uint32_t bits;
        kvg_dev_get_pair<ALIGN>(block, scales, bits);
        bits >>= 8 * part;
        low |= kvg_dev_spread_bits(bits);
        high |= kvg_dev_spread_bits(bits >> 4);
    }
    const float bias = FORMAT == KVG_Q8_0 ? 8388736.0f : FORMAT == KVG_Q4_0 ? 8388616.0f : 8388608.0f; /* 2^23 + 128, 8, 0 */
    const float d = kvg_dev_from_f16(scales & 0xffff), m = FORMAT == KVG_Q5_1 ? kvg_dev_from_f16(scales >> 16) : 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x[i] = KVG_MUL(d, KVG_SUB(kvg_dev_from_byte(i < 4 ? low : high, i & 3), bias));
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

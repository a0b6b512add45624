/** plane_block.cuh: blocks of 32 elements in device code, a thread a block: scales, codes, the block's bytes, and back (S1). Part of plane.cuh. */
#ifndef KVG_PLANE_BLOCK_CUH
#define KVG_PLANE_BLOCK_CUH

#include "plane_element.cuh"

/* ---- scales and codes */

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

#endif

/* Codec for AVX2, chosen at run time. The block encoders are written by hand, the rest are the bodies of codec_bodies.h
 * compiled again with wider vectors. Each function carries its own target attribute, so that nothing here runs on a
 * processor without AVX2 before kvg_codec_avx2() has looked. */
#include "runtime/rules/codec.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "runtime/rules/codec_bodies.h"

#define AVX2        __attribute__((target("avx2")))
#define AVX2_INLINE AVX2 static inline __attribute__((always_inline))

/* 32 floats of a block. */
typedef struct Block {
    __m256 part[4];
} Block;

/* Four vectors of eight int32 in [-128, 255] as 32 bytes in order: the packs work inside 128-bit lanes, the permutation
 * puts the dwords back. `pack_bytes` saturates to int8 or uint8. */
#define PACK_CODES(code, pack_bytes)                                                                                       \
    _mm256_permutevar8x32_epi32(                                                                                           \
        pack_bytes(_mm256_packs_epi32((code)[0], (code)[1]), _mm256_packs_epi32((code)[2], (code)[3])),                    \
        _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))

AVX2_INLINE Block block_load(const float *x)
{
    Block block;

    for (int i = 0; i < 4; i++) {
        block.part[i] = _mm256_loadu_ps(x + 8 * i);
    }
    return block;
}

/* Eight lanes that hold the block's largest magnitude between them, as bit patterns. */
AVX2_INLINE __m256i block_magnitudes(const Block *x)
{
    const __m256i abs = _mm256_set1_epi32((int)KVG_ABS);
    __m256i       a = _mm256_and_si256(_mm256_castps_si256(x->part[0]), abs);
    __m256i       b = _mm256_and_si256(_mm256_castps_si256(x->part[1]), abs);
    __m256i       c = _mm256_and_si256(_mm256_castps_si256(x->part[2]), abs);
    __m256i       d = _mm256_and_si256(_mm256_castps_si256(x->part[3]), abs);

    return _mm256_max_epi32(_mm256_max_epi32(a, b), _mm256_max_epi32(c, d));
}

AVX2_INLINE int32_t largest_lane(__m256i lanes)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));

    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(1, 0, 3, 2)));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(2, 3, 0, 1)));
    return _mm_cvtsi128_si32(m);
}

AVX2_INLINE int any_above(__m256i magnitudes, int32_t limit)
{
    return _mm256_movemask_epi8(_mm256_cmpgt_epi32(magnitudes, _mm256_set1_epi32(limit))) != 0;
}

/* Loads a block, cleaned where an element passes `limit`; *x then points at the clean copy. */
AVX2_INLINE Block block_load_clean(const float **x, int32_t limit, float *clean, KvEncodeCounts *counts)
{
    Block block = block_load(*x);

    if (KVG_UNLIKELY(any_above(block_magnitudes(&block), limit))) {
        kvg_codec_sanitise(*x, KVG_BLOCK_ELEMENTS, limit, clean, counts);
        *x = clean;
        block = block_load(clean);
    }
    return block;
}

AVX2_INLINE __m128 lanes_min(__m256 lanes)
{
    __m128 m = _mm_min_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));

    m = _mm_min_ps(m, _mm_movehl_ps(m, m));
    return _mm_min_ss(m, _mm_movehdup_ps(m));
}

AVX2_INLINE __m128 lanes_max(__m256 lanes)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));

    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_max_ss(m, _mm_movehdup_ps(m));
}

/* Smallest and largest of finite elements. Which zero is the smallest is open; the largest is never -0, so that the
 * difference of two zeros is +0 as it is where the search begins at element 0. */
AVX2_INLINE void block_range(const Block *x, float *lowest, float *highest)
{
    *lowest = _mm_cvtss_f32(lanes_min(
        _mm256_min_ps(_mm256_min_ps(x->part[0], x->part[1]), _mm256_min_ps(x->part[2], x->part[3]))));
    *highest = _mm_cvtss_f32(lanes_max(
        _mm256_max_ps(_mm256_max_ps(x->part[0], x->part[1]), _mm256_max_ps(x->part[2], x->part[3])))) + 0.0f;
}

/* Byte j: code j low, code j+16 high. */
AVX2_INLINE void put_nibbles(uint8_t *target, __m256i codes)
{
    const __m128i four = _mm_set1_epi8(15);
    __m128i       low = _mm_and_si128(_mm256_castsi256_si128(codes), four);
    __m128i       high = _mm_and_si128(_mm256_extracti128_si256(codes, 1), four);

    _mm_storeu_si128((__m128i *)target, _mm_or_si128(low, _mm_slli_epi16(high, 4)));
}

AVX2 static void encode_q8_0_avx2(const float *source, size_t elements, uint8_t *row, KvEncodeCounts *counts)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 below_half = _mm256_castsi256_ps(_mm256_set1_epi32(0x3effffff)); /* see kvg_round_away */
    float        clean[KVG_BLOCK_ELEMENTS];

    for (size_t i = 0; i < elements; i += KVG_BLOCK_ELEMENTS, row += 34) {
        Block   x = block_load(source + i);
        int32_t magnitude = largest_lane(block_magnitudes(&x));
        __m256i code[4];

        if (KVG_UNLIKELY(magnitude > KVG_LIMIT_Q8_0)) {
            kvg_codec_sanitise(source + i, KVG_BLOCK_ELEMENTS, KVG_LIMIT_Q8_0, clean, counts);
            x = block_load(clean);
            magnitude = largest_lane(block_magnitudes(&x));
        }
        float  d = kvg_float((uint32_t)magnitude) / 127.0f;
        __m256 inverse = _mm256_set1_ps(kvg_inverse(d));

        for (int k = 0; k < 4; k++) {
            __m256 scaled = _mm256_mul_ps(x.part[k], inverse);
            __m256 addend = _mm256_or_ps(_mm256_and_ps(scaled, sign), below_half);

            code[k] = _mm256_cvttps_epi32(_mm256_add_ps(scaled, addend));
        }
        kvg_put_u16(row, kvg_f16_from_f32(d));
        _mm256_storeu_si256((__m256i *)(row + 2), PACK_CODES(code, _mm256_packs_epi16));
    }
}

AVX2 static void encode_q5_1_avx2(const float *source, size_t elements, uint8_t *row, KvEncodeCounts *counts)
{
    float clean[KVG_BLOCK_ELEMENTS];

    for (size_t i = 0; i < elements; i += KVG_BLOCK_ELEMENTS, row += 24) {
        const float *from = source + i;
        Block        x = block_load_clean(&from, KVG_LIMIT_Q5_1, clean, counts);
        float        lowest, highest;
        __m256i      code[4];

        block_range(&x, &lowest, &highest);
        float  minimum = kvg_q5_1_minimum(from, lowest);
        float  d = (highest - minimum) / 31.0f;
        __m256 inverse = _mm256_set1_ps(kvg_inverse(d));

        for (int k = 0; k < 4; k++) {
            __m256 scaled = _mm256_mul_ps(_mm256_sub_ps(x.part[k], _mm256_set1_ps(minimum)), inverse);

            code[k] = _mm256_cvttps_epi32(_mm256_add_ps(scaled, _mm256_set1_ps(0.5f)));
        }
        __m256i codes = PACK_CODES(code, _mm256_packus_epi16);
        int32_t high_bits = _mm256_movemask_epi8(_mm256_slli_epi16(codes, 3));

        kvg_put_u16(row, kvg_f16_from_f32(d));
        kvg_put_u16(row + 2, kvg_f16_from_f32(minimum));
        memcpy(row + 4, &high_bits, sizeof high_bits);
        put_nibbles(row + 8, codes);
    }
}

AVX2 static void encode_q4_0_avx2(const float *source, size_t elements, uint8_t *row, KvEncodeCounts *counts)
{
    float clean[KVG_BLOCK_ELEMENTS];

    for (size_t i = 0; i < elements; i += KVG_BLOCK_ELEMENTS, row += 18) {
        const float *from = source + i;
        Block        x = block_load_clean(&from, KVG_LIMIT_Q4_0, clean, counts);
        float        lowest, highest;
        __m256i      code[4];

        block_range(&x, &lowest, &highest);
        float  d = kvg_q4_0_extreme(from, lowest, highest) / -8.0f;
        __m256 inverse = _mm256_set1_ps(kvg_inverse(d));

        for (int k = 0; k < 4; k++) {
            __m256 scaled = _mm256_add_ps(_mm256_mul_ps(x.part[k], inverse), _mm256_set1_ps(8.5f));

            code[k] = _mm256_min_epi32(_mm256_cvttps_epi32(scaled), _mm256_set1_epi32(15));
        }
        kvg_put_u16(row, kvg_f16_from_f32(d));
        put_nibbles(row + 2, PACK_CODES(code, _mm256_packus_epi16));
    }
}

KVG_CODEC_DEFINE_ENCODE_RUN(avx2, AVX2, f32, F32, 4)
KVG_CODEC_DEFINE_ENCODE_RUN(avx2, AVX2, f16, F16, 2)
KVG_CODEC_DEFINE_ENCODE_RUN(avx2, AVX2, bf16, BF16, 2)
KVG_CODEC_DEFINE_ENCODE_RUN(avx2, AVX2, fp8, FP8, 1)
KVG_CODEC_DEFINE_DECODE(avx2, AVX2, f32)
KVG_CODEC_DEFINE_DECODE(avx2, AVX2, f16)
KVG_CODEC_DEFINE_DECODE(avx2, AVX2, bf16)
KVG_CODEC_DEFINE_DECODE(avx2, AVX2, fp8)
KVG_CODEC_DEFINE_DECODE(avx2, AVX2, q8_0)
KVG_CODEC_DEFINE_DECODE(avx2, AVX2, q5_1)
KVG_CODEC_DEFINE_DECODE(avx2, AVX2, q4_0)

static const KvCodec avx2 = {
    .name = "avx2",
    .encode = {NULL, encode_f32_avx2, encode_f16_avx2, encode_bf16_avx2, encode_q8_0_avx2, encode_q5_1_avx2,
               encode_q4_0_avx2, encode_fp8_avx2},
    .decode = {NULL, decode_f32_avx2, decode_f16_avx2, decode_bf16_avx2, decode_q8_0_avx2, decode_q5_1_avx2,
               decode_q4_0_avx2, decode_fp8_avx2},
};

const KvCodec *kvg_codec_avx2(void)
{
    return __builtin_cpu_supports("avx2") ? &avx2 : NULL;
}

#else

const KvCodec *kvg_codec_avx2(void)
{
    return NULL;
}

#endif

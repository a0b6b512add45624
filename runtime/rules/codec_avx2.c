/* Codec for AVX2, chosen at run time. The block formats are written by hand, the others are the loops of codec_rows.h with
 * wider vectors. Every function carries the target attribute itself, so that nothing here runs on a processor without AVX2
 * and the rest of the library keeps to the baseline. */
#include "runtime/rules/codec.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "runtime/rules/codec_elements.h"

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

AVX2_INLINE int measure_magnitude(const float *x, int32_t limit, float *low, float *high)
{
    Block   block = block_load(x);
    int32_t magnitude = largest_lane(block_magnitudes(&block));

    *low = 0.0f;
    *high = kvg_float((uint32_t)magnitude);
    return magnitude > limit;
}

AVX2_INLINE int measure_range(const float *x, int32_t limit, float *low, float *high)
{
    Block  block = block_load(x);
    __m256 least = _mm256_min_ps(_mm256_min_ps(block.part[0], block.part[1]), _mm256_min_ps(block.part[2], block.part[3]));
    __m256 most = _mm256_max_ps(_mm256_max_ps(block.part[0], block.part[1]), _mm256_max_ps(block.part[2], block.part[3]));

    *low = _mm_cvtss_f32(lanes_min(least));
    *high = _mm_cvtss_f32(lanes_max(most)) + 0.0f; /* never -0 */
    return any_above(block_magnitudes(&block), limit);
}

/* Byte j: code j low, code j+16 high. */
AVX2_INLINE void put_nibbles(uint8_t *target, __m256i codes)
{
    const __m128i four = _mm_set1_epi8(15);
    __m128i       low = _mm_and_si128(_mm256_castsi256_si128(codes), four);
    __m128i       high = _mm_and_si128(_mm256_extracti128_si256(codes, 1), four);

    _mm_storeu_si128((__m128i *)target, _mm_or_si128(low, _mm_slli_epi16(high, 4)));
}

AVX2_INLINE void put_q8_0(const float *x, uint16_t scale, float inverse, uint8_t *block)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 below_half = _mm256_castsi256_ps(_mm256_set1_epi32(0x3effffff)); /* see kvg_round_away */
    __m256i      code[4];

    for (int k = 0; k < 4; k++) {
        __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + 8 * k), _mm256_set1_ps(inverse));
        __m256 addend = _mm256_or_ps(_mm256_and_ps(scaled, sign), below_half);

        code[k] = _mm256_cvttps_epi32(_mm256_add_ps(scaled, addend));
    }
    kvg_put_u16(block, scale);
    _mm256_storeu_si256((__m256i *)(block + 2), PACK_CODES(code, _mm256_packs_epi16));
}

AVX2_INLINE void put_q5_1(const float *x, uint16_t scale, float low, float inverse, uint8_t *block)
{
    __m256i code[4];

    for (int k = 0; k < 4; k++) {
        __m256 above = _mm256_sub_ps(_mm256_loadu_ps(x + 8 * k), _mm256_set1_ps(low));
        __m256 scaled = _mm256_mul_ps(above, _mm256_set1_ps(inverse));

        code[k] = _mm256_cvttps_epi32(_mm256_add_ps(scaled, _mm256_set1_ps(0.5f)));
    }
    __m256i codes = PACK_CODES(code, _mm256_packus_epi16);
    int32_t high = _mm256_movemask_epi8(_mm256_slli_epi16(codes, 3)); /* bit 4 of each code */

    kvg_put_u16(block, scale);
    kvg_put_u16(block + 2, kvg_f16_from_f32(low));
    memcpy(block + 4, &high, sizeof high);
    put_nibbles(block + 8, codes);
}

AVX2_INLINE void put_q4_0(const float *x, uint16_t scale, float inverse, uint8_t *block)
{
    __m256i code[4];

    for (int k = 0; k < 4; k++) {
        __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + 8 * k), _mm256_set1_ps(inverse));

        code[k] = _mm256_cvttps_epi32(_mm256_add_ps(scaled, _mm256_set1_ps(8.5f)));
        code[k] = _mm256_min_epi32(code[k], _mm256_set1_epi32(15));
    }
    kvg_put_u16(block, scale);
    put_nibbles(block + 2, PACK_CODES(code, _mm256_packus_epi16));
}

/* ---- decode */

/* Eight of 32 int8 codes as floats. */
AVX2_INLINE __m256 codes_at(const int8_t *codes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)codes)));
}

/* 16 nibble bytes as 32 codes in order. */
AVX2_INLINE __m256i get_nibbles(const uint8_t *source)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)source);
    __m256i both = _mm256_setr_m128i(bytes, _mm_srli_epi16(bytes, 4));

    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

/* Bit i of the four bytes to 16 in byte i. */
AVX2_INLINE __m256i scatter_high_bits(const uint8_t *high)
{
    const __m256i byte_of = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit_of = _mm256_set1_epi64x((int64_t)UINT64_C(0x8040201008040201));
    int32_t       word;

    memcpy(&word, high, sizeof word);
    __m256i bits = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(word), byte_of), bit_of);

    return _mm256_and_si256(_mm256_cmpeq_epi8(bits, bit_of), _mm256_set1_epi8(16));
}

AVX2 static void decode_q8_0(const uint8_t *row, size_t elements, float *target)
{
    for (size_t i = 0; i < elements; i += KVG_BLOCK_ELEMENTS, row += 34) {
        __m256 d = _mm256_set1_ps(kvg_get_f16(row));

        for (int k = 0; k < KVG_BLOCK_ELEMENTS; k += 8) {
            _mm256_storeu_ps(target + i + k, _mm256_mul_ps(d, codes_at((const int8_t *)row + 2 + k)));
        }
    }
}

AVX2 static void decode_q5_1(const uint8_t *row, size_t elements, float *target)
{
    for (size_t i = 0; i < elements; i += KVG_BLOCK_ELEMENTS, row += 24) {
        __m256 d = _mm256_set1_ps(kvg_get_f16(row));
        __m256 m = _mm256_set1_ps(kvg_get_f16(row + 2));
        int8_t codes[KVG_BLOCK_ELEMENTS];

        _mm256_storeu_si256((__m256i *)codes, _mm256_or_si256(get_nibbles(row + 8), scatter_high_bits(row + 4)));
        for (int k = 0; k < KVG_BLOCK_ELEMENTS; k += 8) {
            _mm256_storeu_ps(target + i + k, _mm256_add_ps(_mm256_mul_ps(d, codes_at(codes + k)), m));
        }
    }
}

AVX2 static void decode_q4_0(const uint8_t *row, size_t elements, float *target)
{
    for (size_t i = 0; i < elements; i += KVG_BLOCK_ELEMENTS, row += 18) {
        __m256 d = _mm256_set1_ps(kvg_get_f16(row));
        int8_t codes[KVG_BLOCK_ELEMENTS];

        _mm256_storeu_si256((__m256i *)codes, _mm256_sub_epi8(get_nibbles(row + 2), _mm256_set1_epi8(8)));
        for (int k = 0; k < KVG_BLOCK_ELEMENTS; k += 8) {
            _mm256_storeu_ps(target + i + k, _mm256_mul_ps(d, codes_at(codes + k)));
        }
    }
}

#define CODEC_NAME   "avx2"
#define CODEC_TARGET AVX2
#include "runtime/rules/codec_rows.h"

const KvCodec *kvg_codec_avx2(void)
{
    return __builtin_cpu_supports("avx2") ? &codec : NULL;
}

#else

const KvCodec *kvg_codec_avx2(void)
{
    return NULL;
}

#endif

/* Codec, portable: plain C in the shape that compilers vectorise for the platform's baseline. It is the reference: every
 * other table is held to its bytes by tests. */
#include "runtime/rules/codec.h"
#include "runtime/rules/codec_elements.h"

/* ---- blocks: measure. As integers, whose minimum and maximum compilers vectorise: those of floats they leave alone, for
 * fear of NaN. NaN and infinities are beyond every limit in both orders. */

/* Order of floats as order of int32, with -0 just below +0; its own inverse. */
KVG_CODEC_INLINE int32_t order_of(int32_t bits)
{
    return bits ^ ((bits >> 31) & INT32_C(0x7fffffff));
}

KVG_CODEC_INLINE int measure_magnitude(const float *x, int32_t limit, float *low, float *high)
{
    int32_t largest = 0;

    for (int k = 0; k < KVG_BLOCK_ELEMENTS; k++) {
        int32_t magnitude = (int32_t)(kvg_bits(x[k]) & KVG_ABS);

        largest = magnitude > largest ? magnitude : largest;
    }
    *low = 0.0f;
    *high = kvg_float((uint32_t)largest);
    return largest > limit;
}

KVG_CODEC_INLINE int measure_range(const float *x, int32_t limit, float *low, float *high)
{
    int32_t least = INT32_MAX;
    int32_t most = INT32_MIN;

    for (int k = 0; k < KVG_BLOCK_ELEMENTS; k++) {
        int32_t order = order_of((int32_t)kvg_bits(x[k]));

        least = order < least ? order : least;
        most = order > most ? order : most;
    }
    *low = kvg_float((uint32_t)order_of(least));
    *high = kvg_float((uint32_t)order_of(most)) + 0.0f; /* never -0 */
    return (most > limit) | (least < ~limit);           /* ~limit is the order of -F */
}

/* ---- blocks: put */

KVG_CODEC_INLINE void put_q8_0(const float *x, uint16_t scale, float inverse, uint8_t *block)
{
    int8_t codes[KVG_BLOCK_ELEMENTS];

    for (int k = 0; k < KVG_BLOCK_ELEMENTS; k++) {
        codes[k] = (int8_t)kvg_round_away(x[k] * inverse);
    }
    kvg_put_u16(block, scale);
    memcpy(block + 2, codes, sizeof codes);
}

KVG_CODEC_INLINE void put_nibbles(uint8_t *target, const uint8_t *codes)
{
    uint8_t nibbles[KVG_BLOCK_ELEMENTS / 2];

    for (int j = 0; j < KVG_BLOCK_ELEMENTS / 2; j++) {
        nibbles[j] = (uint8_t)((codes[j] & 15) | codes[j + 16] << 4);
    }
    memcpy(target, nibbles, sizeof nibbles);
}

/* Bit 4 of each of 32 codes, gathered: the multiplication moves bit 8i to bit 56+i with no carry between. */
KVG_CODEC_INLINE uint32_t gather_high_bits(const uint8_t *codes)
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

KVG_CODEC_INLINE void put_q5_1(const float *x, uint16_t scale, float low, float inverse, uint8_t *block)
{
    uint8_t  codes[KVG_BLOCK_ELEMENTS];
    uint32_t high;

    for (int k = 0; k < KVG_BLOCK_ELEMENTS; k++) {
        codes[k] = (uint8_t)(int32_t)((x[k] - low) * inverse + 0.5f);
    }
    high = gather_high_bits(codes);
    kvg_put_u16(block, scale);
    kvg_put_u16(block + 2, kvg_f16_from_f32(low));
    memcpy(block + 4, &high, sizeof high);
    put_nibbles(block + 8, codes);
}

KVG_CODEC_INLINE void put_q4_0(const float *x, uint16_t scale, float inverse, uint8_t *block)
{
    uint8_t codes[KVG_BLOCK_ELEMENTS];

    for (int k = 0; k < KVG_BLOCK_ELEMENTS; k++) {
        int32_t code = (int32_t)(x[k] * inverse + 8.5f);

        codes[k] = (uint8_t)(code < 15 ? code : 15);
    }
    kvg_put_u16(block, scale);
    put_nibbles(block + 2, codes);
}

/* ---- blocks: decode. Product and sum are rounded apart. */

static void decode_q8_0(const uint8_t *row, size_t elements, float *target)
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

KVG_CODEC_INLINE void get_nibbles(const uint8_t *source, uint8_t *codes)
{
    for (int j = 0; j < KVG_BLOCK_ELEMENTS / 2; j++) {
        codes[j] = source[j] & 15;
        codes[j + 16] = source[j] >> 4;
    }
}

/* Bit i of `high` to bit 4 of byte i, eight at a time: a copy of the byte in each of eight places, one bit kept in each,
 * and the addition carries it to the top of its byte. */
KVG_CODEC_INLINE void scatter_high_bits(const uint8_t *high, uint8_t *bits)
{
    for (int part = 0; part < 4; part++) {
        uint64_t eight = high[part] * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201);

        eight = (eight + UINT64_C(0x7f7f7f7f7f7f7f7f)) >> 3 & UINT64_C(0x1010101010101010);
        memcpy(bits + 8 * part, &eight, sizeof eight);
    }
}

static void decode_q5_1(const uint8_t *row, size_t elements, float *target)
{
    for (size_t i = 0; i < elements; i += KVG_BLOCK_ELEMENTS, row += 24) {
        float   d = kvg_get_f16(row);
        float   m = kvg_get_f16(row + 2);
        uint8_t codes[KVG_BLOCK_ELEMENTS];
        uint8_t bits[KVG_BLOCK_ELEMENTS];

        scatter_high_bits(row + 4, bits);
        get_nibbles(row + 8, codes);
        for (int k = 0; k < KVG_BLOCK_ELEMENTS; k++) {
            target[i + k] = d * (float)(codes[k] | bits[k]) + m;
        }
    }
}

static void decode_q4_0(const uint8_t *row, size_t elements, float *target)
{
    for (size_t i = 0; i < elements; i += KVG_BLOCK_ELEMENTS, row += 18) {
        float   d = kvg_get_f16(row);
        uint8_t codes[KVG_BLOCK_ELEMENTS];

        get_nibbles(row + 2, codes);
        for (int k = 0; k < KVG_BLOCK_ELEMENTS; k++) {
            target[i + k] = d * (float)(codes[k] - 8);
        }
    }
}

#define CODEC_NAME "portable"
#define CODEC_TARGET
#include "runtime/rules/codec_rows.h"

const KvCodec *kvg_codec_portable(void)
{
    return &codec;
}

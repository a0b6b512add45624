/* Naive codec: S1 read aloud, one element at a time, in double where that is exact. Slow, and shares no line with the library:
 * the oracle of the codec's tests. */
#ifndef NAIVE_CODEC_H
#define NAIVE_CODEC_H

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/format.h>

/* ck_assert_msg reports each success to the parent; in loops over millions only failures are worth a message. */
#define EXPECT(expression, ...)             \
    do {                                    \
        if (!(expression)) {                \
            ck_abort_msg(__VA_ARGS__);      \
        }                                   \
    } while (0)

static inline float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* A small float: fraction bits, exponent of the smallest normal. */
typedef struct Small {
    int fraction, exponent_min, sign_bit;
} Small;

static const Small small_f16 = {10, -14, 15};
static const Small small_bf16 = {7, -126, 15};
static const Small small_fp8 = {3, -6, 7};

static inline uint32_t naive_narrow(Small small, double value)
{
    uint32_t sign = signbit(value) ? 1u << small.sign_bit : 0;
    double   magnitude = fabs(value);
    int      exponent = magnitude >= ldexp(1.0, small.exponent_min) ? ilogb(magnitude) : small.exponent_min;
    /* Steps of this binade, rounded to even; 2^(fraction+1) of them are the next binade's first. */
    uint32_t steps = (uint32_t)rint(ldexp(magnitude, small.fraction - exponent));

    return sign | (((uint32_t)(exponent - small.exponent_min) << small.fraction) + steps);
}

/* Finite codes only. */
static inline double naive_widen(Small small, uint32_t code)
{
    uint32_t magnitude = code & ((1u << small.sign_bit) - 1);
    uint32_t field = magnitude >> small.fraction;
    uint32_t steps = magnitude & ((1u << small.fraction) - 1);
    double   value = field == 0 ? ldexp(steps, small.exponent_min - small.fraction)
                                : ldexp(steps + (1u << small.fraction), (int)field - 1 + small.exponent_min - small.fraction);

    return code >> small.sign_bit & 1 ? -value : value;
}

static inline double naive_limit(KvFormat format)
{
    switch (format) {
    case KVG_FP8: return 448;
    case KVG_F16:
    case KVG_Q5_1: return 65504;
    case KVG_Q4_0: return 65504.0 * 8;
    case KVG_Q8_0: return 65504.0 * 127;
    case KVG_BF16: return ldexp(255, 120);
    default: return 3.40282346638528859811704183484516925e+38;
    }
}

static inline float naive_clean(KvFormat format, float value, KvEncodeCounts *counts)
{
    double limit = naive_limit(format);

    if (isnan(value) || isinf(value)) {
        counts->nonfinite++;
        return isnan(value) ? 0.0f : (float)copysign(limit, value);
    }
    if (fabs(value) > limit) {
        counts->saturated++;
        return (float)copysign(limit, value);
    }
    return value;
}

static inline void put16(uint8_t *target, uint32_t code)
{
    target[0] = (uint8_t)code;
    target[1] = (uint8_t)(code >> 8);
}

static inline float naive_inverse(float d)
{
    return d == 0.0f || isinf(1.0f / d) ? 0.0f : 1.0f / d;
}

static inline void naive_q8_0(const float *x, uint8_t *block)
{
    float amax = 0.0f;

    for (int i = 0; i < 32; i++) {
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    }
    float d = amax / 127.0f;

    put16(block, naive_narrow(small_f16, d));
    for (int i = 0; i < 32; i++) {
        block[2 + i] = (uint8_t)(int8_t)roundf(x[i] * naive_inverse(d));
    }
}

static inline void naive_q5_1(const float *x, uint8_t *block)
{
    float low = x[0];
    float high = x[0];

    for (int i = 1; i < 32; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    float d = (high - low) / 31.0f;

    put16(block, naive_narrow(small_f16, d));
    put16(block + 2, naive_narrow(small_f16, low));
    memset(block + 4, 0, 20);
    for (int i = 0; i < 32; i++) {
        uint8_t code = (uint8_t)((x[i] - low) * naive_inverse(d) + 0.5f);

        block[4 + i / 8] |= (uint8_t)((code >> 4) << i % 8);
        block[8 + i % 16] |= (uint8_t)((code & 15) << (i < 16 ? 0 : 4));
    }
}

static inline void naive_q4_0(const float *x, uint8_t *block)
{
    float extreme = 0.0f;

    for (int i = 0; i < 32; i++) {
        extreme = fabsf(x[i]) > fabsf(extreme) ? x[i] : extreme;
    }
    float d = extreme / -8.0f;

    put16(block, naive_narrow(small_f16, d));
    memset(block + 2, 0, 16);
    for (int i = 0; i < 32; i++) {
        int code = (int8_t)(x[i] * naive_inverse(d) + 8.5f);

        block[2 + i % 16] |= (uint8_t)((code > 15 ? 15 : code) << (i < 16 ? 0 : 4));
    }
}

/* 32 elements into kvg_format_bytes_per_32 bytes. */
static inline void naive_encode(KvFormat format, const float *source, uint8_t *block, KvEncodeCounts *counts)
{
    float x[32];

    for (int i = 0; i < 32; i++) {
        x[i] = naive_clean(format, source[i], counts);
    }
    switch (format) {
    case KVG_Q8_0: naive_q8_0(x, block); return;
    case KVG_Q5_1: naive_q5_1(x, block); return;
    case KVG_Q4_0: naive_q4_0(x, block); return;
    case KVG_F32: memcpy(block, x, sizeof x); return;
    default: break;
    }
    for (int i = 0; i < 32; i++) {
        if (format == KVG_FP8) {
            block[i] = (uint8_t)naive_narrow(small_fp8, x[i]);
        } else {
            put16(block + 2 * i, naive_narrow(format == KVG_F16 ? small_f16 : small_bf16, x[i]));
        }
    }
}

static inline uint32_t get16(const uint8_t *source)
{
    return source[0] | (uint32_t)source[1] << 8;
}

static inline int naive_nibble(const uint8_t *nibbles, int i)
{
    return nibbles[i % 16] >> (i < 16 ? 0 : 4) & 15;
}

/* Blocks whose scales and elements are finite. */
static inline void naive_decode(KvFormat format, const uint8_t *block, float *target)
{
    float d = (float)naive_widen(small_f16, get16(block));
    float m = (float)naive_widen(small_f16, get16(block + 2));

    for (int i = 0; i < 32; i++) {
        switch (format) {
        case KVG_Q8_0: target[i] = d * (float)(int8_t)block[2 + i]; break;
        case KVG_Q5_1: {
            volatile float product = d * (float)(naive_nibble(block + 8, i) | (block[4 + i / 8] >> i % 8 & 1) << 4);

            target[i] = product + m;
            break;
        }
        case KVG_Q4_0: target[i] = d * (float)(naive_nibble(block + 2, i) - 8); break;
        case KVG_FP8: target[i] = (float)naive_widen(small_fp8, block[i]); break;
        case KVG_F16: target[i] = (float)naive_widen(small_f16, get16(block + 2 * i)); break;
        case KVG_BF16: target[i] = (float)naive_widen(small_bf16, get16(block + 2 * i)); break;
        default: memcpy(&target[i], block + 4 * i, 4); break;
        }
    }
}

/* ---- random blocks of many kinds */

typedef struct Random {
    uint64_t state;
} Random;

static inline uint32_t random_u32(Random *random)
{
    random->state = random->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t mixed = random->state ^ random->state >> 29;

    return (uint32_t)(mixed * UINT64_C(0xd6e8feb86659fd93) >> 32);
}

static inline float random_unit(Random *random) /* [-1, 1) */
{
    return (float)((int32_t)random_u32(random) / 2147483648.0);
}

typedef enum BlockKind {
    BLOCK_NORMAL,    /* bell-shaped, scales over many binades */
    BLOCK_INTEGERS,  /* small ones: equal magnitudes of both signs abound */
    BLOCK_TIES,      /* halves between two codes of every format, and the floats beside them */
    BLOCK_BF16,      /* values that are bf16 */
    BLOCK_DENORMALS, /* also round the point where 1/d stops being finite */
    BLOCK_HUGE,      /* within and beyond every limit */
    BLOCK_NONFINITE, /* NaN and infinities sprinkled */
    BLOCK_EQUAL,     /* one value, or one magnitude */
    BLOCK_ZEROS,     /* both signs, a few of them not zero */
    BLOCK_BITS,      /* any bit pattern */
    BLOCK_KIND_COUNT
} BlockKind;

static inline float random_element(Random *random, BlockKind kind, uint32_t dice)
{
    static const uint32_t nonfinite[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xffffffff};
    float                 bell = random_unit(random) + random_unit(random) + random_unit(random);
    uint32_t              draw = random_u32(random);

    switch (kind) {
    case BLOCK_INTEGERS: return (float)((int)(draw % 33) - 16);
    case BLOCK_TIES: {
        float half = (float)((int)(draw % 509) - 254) / 2.0f;

        half = (draw >> 16 & 3) == 0 ? nextafterf(half, 0) : (draw >> 16 & 7) == 1 ? nextafterf(half, 2 * half) : half;
        return ldexpf(half, (int)(dice % 20) - 10);
    }
    case BLOCK_BF16: return float_of(bits_of(bell) & 0xffff0000);
    case BLOCK_DENORMALS: return ldexpf(bell, -118 - (int)(dice % 30));
    case BLOCK_HUGE: return ldexpf(bell, (int)(dice % 32) + (int)(draw % 4 == 0 ? draw >> 8 & 63 : 0));
    case BLOCK_NONFINITE: return draw % 16 == 0 ? float_of(nonfinite[draw / 16 % 6]) : bell;
    case BLOCK_EQUAL: return ldexpf(dice & 1 && draw & 1 ? -1.0f : 1.0f, (int)(dice >> 1 & 31) - 16) * (1 + (float)(dice >> 8 & 7));
    case BLOCK_ZEROS: return draw % 64 == 0 && dice & 1 ? bell : float_of(draw << 31);
    case BLOCK_BITS: return float_of(draw);
    default: return ldexpf(bell, (int)(dice % 24) - 16);
    }
}

static inline void random_block(Random *random, BlockKind kind, float *x)
{
    uint32_t dice = random_u32(random); /* what the elements of one block share */

    for (int i = 0; i < 32; i++) {
        x[i] = random_element(random, kind, dice);
    }
}

#endif

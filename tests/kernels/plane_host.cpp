// The inline functions of plane.cuh, compiled as plain C++: a thread a block and eight at a time against the library's reference, on data with
// specials, ties, zeros of both signs and denormals. What only a GPU can show (shuffles, conversion instructions) is in test_cuda_*.c.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>

#include "kernels/plane.cuh"

static std::mt19937_64 random_state(7);

static float draw(int kind)
{
    uint32_t bits = (uint32_t)random_state();
    switch (kind) {
    case 0: return (float)((double)(int32_t)bits / 5e8);
    case 1: return kvg_dev_float(bits);                                        // every pattern: NaN, infinities, denormals
    case 2: return kvg_dev_float(bits & 0xffff0000u & ~0x40000000u);           // small bf16
    case 3: return (float)((int)(bits % 9) - 4);                               // ties of magnitude, zeros
    case 4: return bits % 3 == 0 ? (bits & 8 ? 0.0f : -0.0f) : (float)(bits % 7) * 0.5f;
    case 5: return bits & 1 ? 0.0f : -0.0f;
    case 6: return kvg_dev_float((bits & 0x80ffffffu) | 0x47000000u);          // round about 65504
    case 7: return (float)((int)(bits % 255) - 127) * 0.5f;                    // halves
    default: return kvg_dev_float(bits & 0x800fffffu);                         // denormals
    }
}

template <int FORMAT> static int compare(int kind, long round)
{
    float          x[32], decoded[32], expected_x[32];
    uint8_t        expected[34], block[34];
    KvEncodeCounts counts = {0, 0};
    KvLaneCounts   lane = {0, 0};
    bool           any_nan = false;

    for (float &value : x) value = draw(kind);
    kvg_encode_f32_ref((KvFormat)FORMAT, x, 32, expected, &counts);
    kvg_decode_f32((KvFormat)FORMAT, expected, 32, expected_x);
    alignas(4) uint8_t aligned[36];
    kvg_encode_block<FORMAT>(x, aligned, lane);
    memcpy(block, aligned, kvg_block_bytes<FORMAT>());
    kvg_decode_block<FORMAT>(aligned, decoded);
    for (int i = 0; i < 32; i++) any_nan |= std::isnan(decoded[i]) || std::isnan(expected_x[i]);
    if (memcmp(block, expected, kvg_block_bytes<FORMAT>()) == 0 && lane.nonfinite == counts.nonfinite && lane.saturated == counts.saturated &&
        (any_nan || memcmp(decoded, expected_x, sizeof decoded) == 0)) {
        return 0;
    }
    fprintf(stderr, "%s, kind %d, round %ld: another block than the reference's\n", kvg_format_name((KvFormat)FORMAT), kind, round);
    return 1;
}

static int compare_elements(float value)
{
    uint8_t      row[4];
    KvLaneCounts lane = {0, 0};
    uint32_t     f16 = kvg_dev_f16(kvg_dev_clean<KVG_F16>(value, lane)), bf16 = kvg_dev_bf16(kvg_dev_clean<KVG_BF16>(value, lane));
    uint32_t     fp8 = kvg_dev_fp8(kvg_dev_clean<KVG_FP8>(value, lane));
    uint16_t     code;

    kvg_encode_f32_ref(KVG_F16, &value, 1, row, NULL);
    memcpy(&code, row, 2);
    if (code != f16) return 1;
    kvg_encode_f32_ref(KVG_BF16, &value, 1, row, NULL);
    memcpy(&code, row, 2);
    if (code != bf16) return 1;
    kvg_encode_f32_ref(KVG_FP8, &value, 1, row, NULL);
    return row[0] != fp8;
}

static int compare_decoders()
{
    int wrong = 0;

    for (uint32_t c = 0; c < 65536; c++) {
        uint16_t code = (uint16_t)c;
        float    expected;
        kvg_decode_f32(KVG_F16, &code, 1, &expected);
        wrong += expected == expected && kvg_dev_bits(kvg_dev_from_f16(c)) != kvg_dev_bits(expected);
        kvg_decode_f32(KVG_BF16, &code, 1, &expected);
        wrong += expected == expected && kvg_dev_bits(kvg_dev_from_bf16(c)) != kvg_dev_bits(expected);
        uint8_t small = (uint8_t)c;
        kvg_decode_f32(KVG_FP8, &small, 1, &expected);
        wrong += kvg_dev_bits(kvg_dev_from_fp8(small)) != kvg_dev_bits(expected);
    }
    return wrong;
}

// Division by a constant through its reciprocal: every mantissa, at three exponents.
static int compare_divisions()
{
    int wrong = 0;

    for (uint32_t exponent = 48; exponent < 250; exponent += 67) {
        for (uint32_t mantissa = 0; mantissa < 1u << 23; mantissa++) {
            float value = kvg_dev_float(exponent << 23 | mantissa);
            wrong += kvg_dev_divide(value, 127.0f, 1.0f / 127.0f) != value / 127.0f;
            wrong += kvg_dev_divide(value, 31.0f, 1.0f / 31.0f) != value / 31.0f;
        }
    }
    return wrong;
}

int main()
{
    int wrong = compare_decoders() + compare_divisions();

    for (int kind = 0; kind < 9; kind++) {
        for (long round = 0; round < 20000; round++) {
            wrong += compare<KVG_Q8_0>(kind, round) + compare<KVG_Q5_1>(kind, round) + compare<KVG_Q4_0>(kind, round);
            wrong += compare_elements(draw(kind));
            if (wrong > 5) return 1;
        }
    }
    printf("%d wrong\n", wrong);
    return wrong != 0;
}

/* Codec: the portable table, the choice at run time, and the public calls. */
#include "runtime/rules/codec.h"

#include <string.h>

#include "runtime/base/error.h"
#include "runtime/rules/codec_bodies.h"

void kvg_codec_sanitise(const float *source, size_t elements, int32_t limit, float *target, KvEncodeCounts *counts)
{
    const uint32_t infinity = UINT32_C(0x7f800000);

    for (size_t i = 0; i < elements; i++) {
        uint32_t bits = kvg_bits(source[i]);
        uint32_t magnitude = bits & KVG_ABS;

        counts->nonfinite += magnitude >= infinity;
        counts->saturated += magnitude < infinity && magnitude > (uint32_t)limit;
        if (magnitude > infinity) {
            bits = 0;
        } else if (magnitude > (uint32_t)limit) {
            bits = (bits & KVG_SIGN) | (uint32_t)limit;
        }
        target[i] = kvg_float(bits);
    }
}

KVG_CODEC_DEFINE_ENCODE_RUN(portable, , f32, F32, 4)
KVG_CODEC_DEFINE_ENCODE_RUN(portable, , f16, F16, 2)
KVG_CODEC_DEFINE_ENCODE_RUN(portable, , bf16, BF16, 2)
KVG_CODEC_DEFINE_ENCODE_RUN(portable, , fp8, FP8, 1)
KVG_CODEC_DEFINE_ENCODE_BLOCK(portable, , q8_0)
KVG_CODEC_DEFINE_ENCODE_BLOCK(portable, , q5_1)
KVG_CODEC_DEFINE_ENCODE_BLOCK(portable, , q4_0)
KVG_CODEC_DEFINE_DECODE(portable, , f32)
KVG_CODEC_DEFINE_DECODE(portable, , f16)
KVG_CODEC_DEFINE_DECODE(portable, , bf16)
KVG_CODEC_DEFINE_DECODE(portable, , fp8)
KVG_CODEC_DEFINE_DECODE(portable, , q8_0)
KVG_CODEC_DEFINE_DECODE(portable, , q5_1)
KVG_CODEC_DEFINE_DECODE(portable, , q4_0)

static const KvCodec portable = {
    .name = "portable",
    .encode = {NULL, encode_f32_portable, encode_f16_portable, encode_bf16_portable, encode_q8_0_portable,
               encode_q5_1_portable, encode_q4_0_portable, encode_fp8_portable},
    .decode = {NULL, decode_f32_portable, decode_f16_portable, decode_bf16_portable, decode_q8_0_portable,
               decode_q5_1_portable, decode_q4_0_portable, decode_fp8_portable},
};

const KvCodec *kvg_codec_portable(void)
{
    return &portable;
}

const KvCodec *kvg_codec_best(void)
{
    const KvCodec *avx2 = kvg_codec_avx2();

    return avx2 != NULL ? avx2 : &portable;
}

static void encode_with(const KvCodec *codec, KvFormat format, const float *source, size_t elements, void *row,
                        KvEncodeCounts *counts)
{
    KvEncodeCounts unread = {0, 0};

    KVG_ASSERT(kvg_format_block_elements(format) != 0);
    KVG_ASSERT(elements % kvg_format_block_elements(format) == 0);
    codec->encode[format](source, elements, row, counts != NULL ? counts : &unread);
}

void kvg_encode_f32(KvFormat format, const float *source, size_t elements, void *row, KvEncodeCounts *counts)
{
    encode_with(kvg_codec_best(), format, source, elements, row, counts);
}

void kvg_encode_f32_ref(KvFormat format, const float *source, size_t elements, void *row, KvEncodeCounts *counts)
{
    encode_with(&portable, format, source, elements, row, counts);
}

void kvg_encode(KvFormat format, KvFormat source_type, const void *source, size_t elements, void *row,
                KvEncodeCounts *counts)
{
    enum { STRIP = 8 * KVG_BLOCK_ELEMENTS }; /* whole blocks, small enough to stay in the first cache */
    const KvCodec *codec = kvg_codec_best();
    const size_t   source_bytes = kvg_format_block_bytes(source_type);
    const size_t   row_bytes = kvg_format_bytes_per_32(format);
    float          wide[STRIP];

    KVG_ASSERT(source_type == KVG_F32 || source_type == KVG_F16 || source_type == KVG_BF16);
    if (source_type == KVG_F32) {
        encode_with(codec, format, source, elements, row, counts);
        return;
    }
    for (size_t done = 0; done < elements; done += STRIP) {
        size_t n = elements - done < STRIP ? elements - done : STRIP;

        codec->decode[source_type]((const uint8_t *)source + done * source_bytes, n, wide);
        encode_with(codec, format, wide, n, (uint8_t *)row + done / KVG_BLOCK_ELEMENTS * row_bytes, counts);
    }
}

void kvg_decode_f32(KvFormat format, const void *row, size_t elements, float *target)
{
    KVG_ASSERT(kvg_format_block_elements(format) != 0);
    KVG_ASSERT(elements % kvg_format_block_elements(format) == 0);
    kvg_codec_best()->decode[format](row, elements, target);
}

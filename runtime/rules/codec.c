/* Codec: cleaning, the choice at run time, and the public calls. */
#include "runtime/rules/codec.h"

#include "runtime/base/error.h"
#include "runtime/rules/codec_elements.h"

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

const KvCodec *kvg_codec_best(void)
{
    const KvCodec *avx2 = kvg_codec_avx2();

    return avx2 != NULL ? avx2 : kvg_codec_portable();
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
    encode_with(kvg_codec_portable(), format, source, elements, row, counts);
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

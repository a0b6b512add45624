/* Codec: the encoders and decoders of a row, one table for each instruction set. Private.
 *
 * Every set gives the same bytes; kvg_encode_f32 and kvg_decode_f32 use kvg_codec_best(). A row has any alignment and is
 * little-endian. One format of one block is just a row of 32 elements.
 * Arithmetic is IEEE binary32, rounding to nearest even: the calling thread must not have set flush-to-zero. */
#ifndef KVG_CODEC_H
#define KVG_CODEC_H

#include <kvgrid/format.h>

/* Adds to `counts`, which is never NULL here. `elements` is a multiple of the format's block. */
typedef void (*KvEncodeFn)(const float *source, size_t elements, uint8_t *row, KvEncodeCounts *counts);
typedef void (*KvDecodeFn)(const uint8_t *row, size_t elements, float *target);

typedef struct KvCodec {
    const char *name;                     /* "portable", "avx2" */
    KvEncodeFn  encode[KVG_FORMAT_COUNT]; /* NULL for KVG_POLICY alone */
    KvDecodeFn  decode[KVG_FORMAT_COUNT];
} KvCodec;

/* The reference: plain C. */
const KvCodec *kvg_codec_portable(void);
/* NULL where this build or this processor has no AVX2. */
const KvCodec *kvg_codec_avx2(void);
/* The fastest of the above on this processor. */
const KvCodec *kvg_codec_best(void);

/* What S1 does to values before they are encoded: copies `elements` of `source` to `target`, NaN as +0 and everything
 * else clamped to ±F, where F has the bit pattern `limit`; counts what it changed. */
void kvg_codec_sanitise(const float *source, size_t elements, int32_t limit, float *target, KvEncodeCounts *counts);

#endif

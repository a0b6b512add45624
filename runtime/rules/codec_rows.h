/* Codec rows: walks rows for one instruction set. A template: a source includes it once, after it has defined
 *   CODEC_NAME, CODEC_TARGET          the table's name, and the attribute of each of its functions
 *   measure_magnitude, measure_range  what the scale of a block depends on (below)
 *   put_q8_0, put_q5_1, put_q4_0      write one clean block from its scales
 *   decode_q8_0, decode_q5_1, decode_q4_0   whole rows
 * and gets the table `codec`. Private.
 *
 * Shape of every encoder: look at 32 elements as integers, whose largest magnitude shows NaN and infinities too, since those
 * have the largest patterns; only where that passes the format's limit take a cleaned and counted copy. So the check costs
 * next to nothing and the common path has no branch in an element.
 *
 *   measure_X(x, limit, &low, &high)  1 if one of a block is beyond `limit`; else measure_range gives smallest and largest,
 *       measure_magnitude the largest magnitude in high and 0 in low. Which zero low is stays open; high is never -0, so
 *       that the difference of two zeros is +0 as it is where the search begins at element 0. */

#define CODEC_INLINE CODEC_TARGET static inline __attribute__((always_inline))

/* `format` is a constant at every call below, so these are no branches. */
CODEC_INLINE int32_t limit_of(KvFormat format)
{
    switch (format) {
    case KVG_F16: return KVG_LIMIT_F16;
    case KVG_BF16: return KVG_LIMIT_BF16;
    case KVG_Q8_0: return KVG_LIMIT_Q8_0;
    case KVG_Q5_1: return KVG_LIMIT_Q5_1;
    case KVG_Q4_0: return KVG_LIMIT_Q4_0;
    case KVG_FP8: return KVG_LIMIT_FP8;
    default: return KVG_LIMIT_F32;
    }
}

CODEC_INLINE size_t bytes_of(KvFormat format) /* of 32 elements */
{
    switch (format) {
    case KVG_F16:
    case KVG_BF16: return 64;
    case KVG_Q8_0: return 34;
    case KVG_Q5_1: return 24;
    case KVG_Q4_0: return 18;
    case KVG_FP8: return 32;
    default: return 128;
    }
}

/* ---- formats without blocks: runs of 32, the last one padded */

CODEC_INLINE void run_to_f32(const float *x, uint8_t *row)
{
    memcpy(row, x, KVG_BLOCK_ELEMENTS * sizeof *x);
}

CODEC_INLINE void run_to_f16(const float *x, uint8_t *row)
{
    uint16_t codes[KVG_BLOCK_ELEMENTS];

    for (int i = 0; i < KVG_BLOCK_ELEMENTS; i++) {
        codes[i] = kvg_f16_from_f32(x[i]);
    }
    memcpy(row, codes, sizeof codes);
}

CODEC_INLINE void run_to_bf16(const float *x, uint8_t *row)
{
    uint16_t codes[KVG_BLOCK_ELEMENTS];

    for (int i = 0; i < KVG_BLOCK_ELEMENTS; i++) {
        codes[i] = kvg_bf16_from_f32(x[i]);
    }
    memcpy(row, codes, sizeof codes);
}

CODEC_INLINE void run_to_fp8(const float *x, uint8_t *row)
{
    uint8_t codes[KVG_BLOCK_ELEMENTS];

    for (int i = 0; i < KVG_BLOCK_ELEMENTS; i++) {
        codes[i] = kvg_fp8_from_f32(x[i]);
    }
    memcpy(row, codes, sizeof codes);
}

/* Whether one of a run is NaN, infinite or beyond the limit: the sign of any difference, since no side is negative. */
CODEC_INLINE int run_above(const float *x, int32_t limit)
{
    int32_t signs = 0;

    for (int i = 0; i < KVG_BLOCK_ELEMENTS; i++) {
        signs |= limit - (int32_t)(kvg_bits(x[i]) & KVG_ABS);
    }
    return signs < 0;
}

CODEC_INLINE void run_encode(KvFormat format, const float *x, uint8_t *row, KvEncodeCounts *counts)
{
    float clean[KVG_BLOCK_ELEMENTS];

    if (KVG_UNLIKELY(run_above(x, limit_of(format)))) {
        kvg_codec_sanitise(x, KVG_BLOCK_ELEMENTS, limit_of(format), clean, counts);
        x = clean;
    }
    switch (format) {
    case KVG_F16: run_to_f16(x, row); break;
    case KVG_BF16: run_to_bf16(x, row); break;
    case KVG_FP8: run_to_fp8(x, row); break;
    default: run_to_f32(x, row); break;
    }
}

CODEC_INLINE void encode_runs(KvFormat format, const float *source, size_t elements, uint8_t *row, KvEncodeCounts *counts)
{
    const size_t tail = elements % KVG_BLOCK_ELEMENTS;
    float        padded[KVG_BLOCK_ELEMENTS] = {0};
    uint8_t      codes[KVG_BLOCK_ELEMENTS * sizeof(float)];

    for (; elements >= KVG_BLOCK_ELEMENTS; elements -= KVG_BLOCK_ELEMENTS) {
        run_encode(format, source, row, counts);
        source += KVG_BLOCK_ELEMENTS;
        row += bytes_of(format);
    }
    if (tail > 0) { /* zeros need no cleaning, so the counts stay right */
        memcpy(padded, source, tail * sizeof *source);
        run_encode(format, padded, codes, counts);
        memcpy(row, codes, tail * bytes_of(format) / KVG_BLOCK_ELEMENTS);
    }
}

/* ---- block formats: strips of blocks. Measure every block, form all scales in one vector loop (so that the long divisions
 * of several blocks overlap), then write every block. */

#define STRIP_BLOCKS 8

CODEC_INLINE int strip_measure(KvFormat format, const float *x, size_t n, float *low, float *high)
{
    int above = 0;

    for (size_t b = 0; b < n; b++, x += KVG_BLOCK_ELEMENTS) {
        above |= format == KVG_Q8_0 ? measure_magnitude(x, limit_of(format), &low[b], &high[b])
                                    : measure_range(x, limit_of(format), &low[b], &high[b]);
    }
    return above;
}

CODEC_INLINE float block_scale(KvFormat format, const float *x, float *low, float high)
{
    switch (format) {
    case KVG_Q5_1: return kvg_q5_1_scale(x, low, high);
    case KVG_Q4_0: return kvg_q4_0_scale(x, *low, high);
    default: return high / 127.0f;
    }
}

CODEC_INLINE void strip_scales(const float *d, uint16_t *scale, float *inverse)
{
    for (int b = 0; b < STRIP_BLOCKS; b++) {
        scale[b] = kvg_f16_from_f32(d[b]);
        inverse[b] = kvg_inverse(d[b]);
    }
}

CODEC_INLINE void block_put(KvFormat format, const float *x, uint16_t scale, float low, float inverse, uint8_t *block)
{
    switch (format) {
    case KVG_Q5_1: put_q5_1(x, scale, low, inverse, block); break;
    case KVG_Q4_0: put_q4_0(x, scale, inverse, block); break;
    default: put_q8_0(x, scale, inverse, block); break;
    }
}

/* Encodes n <= STRIP_BLOCKS blocks. */
CODEC_INLINE void strip_encode(KvFormat format, const float *x, size_t n, uint8_t *row, KvEncodeCounts *counts)
{
    float    clean[STRIP_BLOCKS * KVG_BLOCK_ELEMENTS];
    float    low[STRIP_BLOCKS], high[STRIP_BLOCKS], inverse[STRIP_BLOCKS];
    float    d[STRIP_BLOCKS] = {0};
    uint16_t scale[STRIP_BLOCKS];

    if (KVG_UNLIKELY(strip_measure(format, x, n, low, high))) {
        kvg_codec_sanitise(x, n * KVG_BLOCK_ELEMENTS, limit_of(format), clean, counts);
        x = clean;
        strip_measure(format, x, n, low, high);
    }
    for (size_t b = 0; b < n; b++) {
        d[b] = block_scale(format, x + b * KVG_BLOCK_ELEMENTS, &low[b], high[b]);
    }
    strip_scales(d, scale, inverse);
    for (size_t b = 0; b < n; b++) {
        block_put(format, x + b * KVG_BLOCK_ELEMENTS, scale[b], low[b], inverse[b], row + b * bytes_of(format));
    }
}

CODEC_INLINE void encode_blocks(KvFormat format, const float *source, size_t elements, uint8_t *row, KvEncodeCounts *counts)
{
    for (size_t left = elements / KVG_BLOCK_ELEMENTS; left > 0;) {
        size_t n = left < STRIP_BLOCKS ? left : STRIP_BLOCKS;

        strip_encode(format, source, n, row, counts);
        left -= n;
        source += n * KVG_BLOCK_ELEMENTS;
        row += n * bytes_of(format);
    }
}

/* ---- formats without blocks: decode */

CODEC_TARGET static void decode_f32(const uint8_t *row, size_t elements, float *target)
{
    memcpy(target, row, elements * sizeof *target);
}

CODEC_TARGET static void decode_f16(const uint8_t *row, size_t elements, float *target)
{
    for (size_t i = 0; i < elements; i++) {
        target[i] = kvg_get_f16(row + 2 * i);
    }
}

CODEC_TARGET static void decode_bf16(const uint8_t *row, size_t elements, float *target)
{
    for (size_t i = 0; i < elements; i++) {
        uint16_t code;

        memcpy(&code, row + 2 * i, sizeof code);
        target[i] = kvg_f32_from_bf16(code);
    }
}

CODEC_TARGET static void decode_fp8(const uint8_t *row, size_t elements, float *target)
{
    for (size_t i = 0; i < elements; i++) {
        target[i] = kvg_f32_from_fp8(row[i]);
    }
}

/* ---- the table */

#define DEFINE_ENCODE(word, format, encode_by)                                                                            \
    CODEC_TARGET static void encode_##word(const float *source, size_t elements, uint8_t *row, KvEncodeCounts *counts)     \
    {                                                                                                                     \
        encode_by(format, source, elements, row, counts);                                                                 \
    }

DEFINE_ENCODE(f32, KVG_F32, encode_runs)
DEFINE_ENCODE(f16, KVG_F16, encode_runs)
DEFINE_ENCODE(bf16, KVG_BF16, encode_runs)
DEFINE_ENCODE(fp8, KVG_FP8, encode_runs)
DEFINE_ENCODE(q8_0, KVG_Q8_0, encode_blocks)
DEFINE_ENCODE(q5_1, KVG_Q5_1, encode_blocks)
DEFINE_ENCODE(q4_0, KVG_Q4_0, encode_blocks)

static const KvCodec codec = {
    .name = CODEC_NAME,
    .encode = {[KVG_F32] = encode_f32, [KVG_F16] = encode_f16, [KVG_BF16] = encode_bf16, [KVG_Q8_0] = encode_q8_0,
               [KVG_Q5_1] = encode_q5_1, [KVG_Q4_0] = encode_q4_0, [KVG_FP8] = encode_fp8},
    .decode = {[KVG_F32] = decode_f32, [KVG_F16] = decode_f16, [KVG_BF16] = decode_bf16, [KVG_Q8_0] = decode_q8_0,
               [KVG_Q5_1] = decode_q5_1, [KVG_Q4_0] = decode_q4_0, [KVG_FP8] = decode_fp8},
};

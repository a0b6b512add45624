/** Formats: how the elements of a row are stored (S1).
 *
 *   format  block elements  block bytes  layout (little-endian)
 *   f32           1              4       IEEE binary32
 *   f16           1              2       IEEE binary16
 *   bf16          1              2       upper half of binary32
 *   q8_0         32             34       f16 d, 32 int8;                           x = d*q
 *   q5_1         32             24       f16 d, f16 m, u32 high bits, 16 nibbles;  x = d*q + m
 *   q4_0         32             18       f16 d, 16 nibbles;                        x = d*(q-8)
 *   fp8           1              1       e4m3fn codes, saturating at 448, no scale
 *
 * The block layouts are GGML's public ones; codes come from the unrounded f32 scale, with no fused multiply-add,
 * so that host and device agree bit for bit. Threads: pure functions, any thread. Reach: local. */
#ifndef KVG_FORMAT_H
#define KVG_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/status.h>

KVG_BEGIN_DECLS

typedef enum KvFormat {
    KVG_POLICY = 0, /* "not asked for": the policy decides; never the format of a plane */
    KVG_F32    = 1,
    KVG_F16    = 2,
    KVG_BF16   = 3,
    KVG_Q8_0   = 4,
    KVG_Q5_1   = 5,
    KVG_Q4_0   = 6,
    KVG_FP8    = 7,
    KVG_FORMAT_COUNT
} KvFormat;

#define KVG_BLOCK_ELEMENTS 32

/** Elements that an encoder had to change. No element counts twice. */
typedef struct KvEncodeCounts {
    uint64_t nonfinite; /* NaN and infinities */
    uint64_t saturated; /* finite, beyond the format's range, clamped */
} KvEncodeCounts;

/** "q8_0", ...; "policy" for KVG_POLICY; "?" outside the range. */
KVG_API const char *kvg_format_name(KvFormat format);
/** Parses a name of the table above. EINVAL lists the legal words; *format is unchanged then. */
KVG_API KvgStatus kvg_format_parse(const char *word, KvFormat *format);

/** 32 for block formats, else 1. 0 for KVG_POLICY and outside the range. */
KVG_API uint32_t kvg_format_block_elements(KvFormat format);
/** Bytes of one block. 0 for KVG_POLICY and outside the range. */
KVG_API uint32_t kvg_format_block_bytes(KvFormat format);
/** Bytes of 32 elements (kv_blk_bytes): 34 for q8_0, 24 for q5_1, 32 for fp8, ... */
KVG_API uint32_t kvg_format_bytes_per_32(KvFormat format);
/** 1 where rounding loses information against the bf16 that models compute in (all but f32, f16, bf16). */
KVG_API int kvg_format_is_lossy(KvFormat format);
/** 1 for a legal K format: q8_0, fp8, q4_0, bf16, f16. */
KVG_API int kvg_format_legal_k(KvFormat format);
/** 1 for a legal V format: q5_1, q4_0, fp8, q8_0, bf16, f16. */
KVG_API int kvg_format_legal_v(KvFormat format);

/** Bytes of a row of `elements` elements. EINVAL for KVG_POLICY; EGEOM where a block would be cut; EOVERFLOW. */
KVG_API KvgStatus kvg_format_row_bytes(KvFormat format, uint64_t elements, uint64_t *bytes);

/** Encodes `elements` f32 values into `row`.
 *   source  [elements] f32, read only; NaN is stored as +0 and what is beyond ±F as ±F (F of S1: 448 fp8, 65504 f16 and q5_1,
 *           65504*8 q4_0, 65504*127 q8_0, the largest finite value bf16 and f32)
 *   row     kvg_format_row_bytes(format, elements) bytes, any alignment, must not overlap source; caller's
 *   counts  added to, never reset; may be NULL
 * Cannot fail: a format that has no rows and a count that cuts a block are bugs of the caller and stop the process; both are
 * refused earlier, by kvg_format_row_bytes. An element that had to be changed changes no neighbour outside its block.
 * Uses AVX2 where the processor has it, with the same bytes. The thread must round to nearest and keep denormals (the
 * default; a host built with -ffast-math may have set flush-to-zero). Threads: any. Reach: local. */
KVG_API void kvg_encode_f32(KvFormat format, const float *source, size_t elements, void *row, KvEncodeCounts *counts);
/** The same, always by the portable path: the reference. */
KVG_API void kvg_encode_f32_ref(KvFormat format, const float *source, size_t elements, void *row, KvEncodeCounts *counts);
/** The same from another element type, widened to f32 exactly first.
 *   source_type  KVG_F32, KVG_F16 or KVG_BF16, else it stops the process
 *   source       [elements] of that type; f32 aligned to 4, the others to anything */
KVG_API void kvg_encode(KvFormat format, KvFormat source_type, const void *source, size_t elements, void *row,
                        KvEncodeCounts *counts);
/** Decodes `elements` elements of `row` (any alignment) into `target` [elements] f32, which must not overlap it.
 * Every byte pattern is a row: a scale or code that is no number gives what IEEE arithmetic makes of it. Conditions as above. */
KVG_API void kvg_decode_f32(KvFormat format, const void *row, size_t elements, float *target);

KVG_END_DECLS
#endif

/** Taps: hidden states of chosen layers, collected while a forward runs, for draft models (S8).
 *
 * DflashTapSink  device buffer [t][n_taps][hidden]: slot s of row r at (base + r)*n_taps*hidden + s*hidden elements
 * HcTapSink      host rows [t][n_taps*hidden]: row at base - origin + r; its value is the mean over hc_mult streams in f32,
 *                ((x0 + x1) + ...)/hc_mult
 * Both are armed for each forward and cover any number of passes; a stage writes only its own layers' slots. Taps of several
 * stages are gathered to the last stage once a walk (kvg_taps_gather in taps_gather.h). Threads: one at a time per sink. Reach: local. */
#ifndef KVG_TAPS_H
#define KVG_TAPS_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/dev.h>

KVG_BEGIN_DECLS

typedef struct DflashTapSink DflashTapSink;
typedef struct HcTapSink     HcTapSink;

/** layers [n_taps] ascending layer indices, one a slot (copied); lo, hi: the stage's layers; rows: t; dtype f32, f16 or bf16 of the hidden
 *  states that will be given. EINVAL, EOVERFLOW, ENOMEM. The device outlives the sink. */
KVG_API KvgStatus kvg_dflash_tap_new(KvDev *dev, const uint32_t *layers, uint32_t n_taps, uint32_t lo, uint32_t hi, uint32_t hidden,
                                     uint64_t rows, KvFormat dtype, DflashTapSink **sink);
KVG_API void      kvg_dflash_tap_free(DflashTapSink *sink);
/** A forward begins: rows written from here on land at base + r. Forgets what was written. EINVAL base >= t. */
KVG_API KvgStatus kvg_dflash_tap_arm(DflashTapSink *sink, uint64_t base);
KVG_API void      kvg_dflash_tap_disarm(DflashTapSink *sink);
/** Stores `rows` rows [rows][hidden] (device memory, row_stride elements; 0: packed) of layer `layer` as rows [r, r+rows). Layers that are not tapped, or
 *  not this stage's, write nothing and are OK. ESTALE not armed; EINVAL r + rows past t - base (nothing written). */
KVG_API KvgStatus kvg_dflash_tap_write(DflashTapSink *sink, uint32_t layer, uint64_t r, uint64_t rows, const void *hidden_rows,
                                       int64_t row_stride, KvgStream stream);
/** The buffer, constant for the sink's life; rows of slots not written since arm are undefined. 1 if slot `slot` of the forward's row `row` (which counts
 *  from base, as in write) was written since arm, or gathered. */
KVG_API void *kvg_dflash_tap_buffer(const DflashTapSink *sink);
KVG_API int   kvg_dflash_tap_written(const DflashTapSink *sink, uint64_t row, uint32_t slot);

/** rows: t; origin: absolute row of the buffer's first; staged 1: values are kept per slot on the device and drained at one point (kvg_hc_tap_drain),
 *  0: each write lands in the host rows at once. */
KVG_API KvgStatus kvg_hc_tap_new(KvDev *dev, const uint32_t *layers, uint32_t n_taps, uint32_t lo, uint32_t hi, uint32_t hidden,
                                 uint32_t hc_mult, uint64_t rows, uint64_t origin, int staged, HcTapSink **sink);
KVG_API void      kvg_hc_tap_free(HcTapSink *sink);
/** base: absolute row of the forward's row 0. Forgets what was written, staged values that are not drained among it. EINVAL base < origin or
 *  base - origin >= t. */
KVG_API KvgStatus kvg_hc_tap_arm(HcTapSink *sink, uint64_t base);
KVG_API void      kvg_hc_tap_disarm(HcTapSink *sink);
/** streams [rows][hc_mult][hidden] f32, device memory, packed. ESTALE, EINVAL as above. A sink that is not staged waits for the stream. */
KVG_API KvgStatus kvg_hc_tap_write(HcTapSink *sink, uint32_t layer, uint64_t r, uint64_t rows, const float *streams, KvgStream stream);
/** Brings staged values to the host rows and waits for the stream; nothing staged is KVG_OK. Also after disarm. ESTALE never armed, or dropped. */
KVG_API KvgStatus kvg_hc_tap_drain(HcTapSink *sink, KvgStream stream);
/** Host rows [t][n_taps*hidden] f32. */
KVG_API float *kvg_hc_tap_rows(const HcTapSink *sink);

/** A tainted cache drops its taps: forgets what was written and disarms. */
KVG_API void kvg_dflash_tap_drop(DflashTapSink *sink);
KVG_API void kvg_hc_tap_drop(HcTapSink *sink);

KVG_END_DECLS
#endif

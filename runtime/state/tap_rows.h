/* Tap rows: what both sinks have in common: which slots are this stage's, where a forward's rows stand, which were written. Private.
 *
 *   data   [t][n_taps][hidden]   of a device (dev.ops != NULL) or of the host
 *   mark   [t][n_taps] KvTapMark host memory
 * Layers ascend and a stage's layers are one range, so a stage's slots are one run: [first, first + own).
 * Only rows [base, base + touched) can carry marks, so that arming costs what the last forward wrote and not what the buffer holds. */
#ifndef KVG_TAP_ROWS_H
#define KVG_TAP_ROWS_H

#include <kvgrid/taps.h>

#include "runtime/base/error.h"

typedef enum KvTapMark { KVG_TAP_NONE = 0, KVG_TAP_LANDED = 1, KVG_TAP_STAGED = 2 } KvTapMark;

typedef struct KvTapRows {
    const char *name;    /* "DflashTapSink", for sentences */
    /* set at creation */
    KvDev     dev;       /* ops NULL: data is host memory */
    uint8_t  *data;
    uint8_t  *mark;
    uint32_t *layers;    /* [n_taps] */
    uint32_t  n_taps, lo, hi, first, own;
    uint32_t  hidden, element_bytes;
    KvFormat  dtype;
    uint64_t  t, origin;
    /* of the forward */
    int       armed;
    int       held;      /* armed since it was made or dropped: base means something */
    uint64_t  base;      /* buffer row of the forward's row 0 */
    uint64_t  touched;   /* rows of the forward below this one may carry marks */
    uint64_t  staged;    /* marks that are KVG_TAP_STAGED */
} KvTapRows;

/* Checks, copies the layers, makes the marks; `data` is the caller's to make. EINVAL, EOVERFLOW, ENOMEM: nothing is held. */
KvgStatus kvg_tap_rows_create(const char *name, const uint32_t *layers, uint32_t n_taps, uint32_t lo, uint32_t hi, uint32_t hidden,
                              uint64_t t, KvFormat dtype, KvTapRows *rows);
void      kvg_tap_rows_destroy(KvTapRows *rows);
uint64_t  kvg_tap_rows_bytes(const KvTapRows *rows); /* of `data` */

/* base: buffer row. EINVAL at or past t (nothing changed). */
KvgStatus kvg_tap_rows_arm(KvTapRows *rows, uint64_t base);
void      kvg_tap_rows_drop(KvTapRows *rows);
/* ESTALE not armed, EINVAL rows [r, r+count) past t - base. *slot: where `layer` goes; n_taps if it is not this stage's or not tapped. */
KvgStatus kvg_tap_rows_check(const KvTapRows *rows, uint32_t layer, uint64_t r, uint64_t count, uint32_t *slot);
void      kvg_tap_rows_mark(KvTapRows *rows, uint32_t slot, uint64_t r, uint64_t count, KvTapMark mark);
/* `row` counts from base. KVG_TAP_NONE outside what is held. */
KvTapMark kvg_tap_rows_marked(const KvTapRows *rows, uint64_t row, uint32_t slot);

static inline uint8_t *kvg_tap_rows_at(const KvTapRows *rows, uint64_t r, uint32_t slot)
{
    return rows->data + ((rows->base + r) * rows->n_taps + slot) * (uint64_t)rows->hidden * rows->element_bytes;
}

/* ---- gathering (pp/taps.c) */

/* ESTALE or EINVAL unless every slot of this stage holds rows [0, count) of the forward, drained. */
KvgStatus kvg_tap_rows_whole(const KvTapRows *rows, uint64_t count);
/* Slots [slot, slot+slots) of rows [r, r+count) to packed host memory, and back. Both wait for the stream. Marks are left alone. */
KvgStatus kvg_tap_rows_pack(const KvTapRows *rows, uint64_t r, uint64_t count, uint32_t slot, uint32_t slots, uint8_t *target, KvgStream stream);
KvgStatus kvg_tap_rows_unpack(const KvTapRows *rows, uint64_t r, uint64_t count, uint32_t slot, uint32_t slots, const uint8_t *source,
                              KvgStream stream);

KvTapRows *kvg_dflash_tap_rows_of(DflashTapSink *sink);
KvTapRows *kvg_hc_tap_rows_of(HcTapSink *sink);

#endif

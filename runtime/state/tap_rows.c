#include "runtime/state/tap_rows.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

/* ---- making */

static KvgStatus check_layers(const char *name, const uint32_t *layers, uint32_t n_taps, uint32_t lo, uint32_t hi)
{
    if (layers == NULL || n_taps == 0) {
        return kvg_fail(KVG_EINVAL, "%s: no layers to tap were given; name at least one", name);
    }
    for (uint32_t i = 1; i < n_taps; i++) {
        if (layers[i] <= layers[i - 1]) {
            return kvg_fail(KVG_EINVAL, "%s: layer %u stands in slot %u after layer %u; tapped layers must ascend", name, layers[i], i,
                            layers[i - 1]);
        }
    }
    if (lo > hi) {
        return kvg_fail(KVG_EINVAL, "%s: [%u, %u) is no range of layers", name, lo, hi);
    }
    return KVG_OK;
}

static KvgStatus check_shape(const char *name, uint32_t hidden, uint64_t t, uint32_t n_taps, KvFormat dtype)
{
    uint64_t elements = 0, bytes = 0;

    if (hidden == 0 || t == 0) {
        return kvg_fail(KVG_EINVAL, "%s: %" PRIu64 " rows of hidden size %u; both must be at least 1", name, t, hidden);
    }
    if (dtype != KVG_F32 && dtype != KVG_F16 && dtype != KVG_BF16) {
        return kvg_fail(KVG_EINVAL, "%s: hidden states in %s; they come in f32, f16 or bf16", name, kvg_format_name(dtype));
    }
    if (!kvg_mul_u64((uint64_t)n_taps * hidden, t, &elements) || !kvg_mul_u64(elements, sizeof(float), &bytes)) {
        return kvg_fail(KVG_EOVERFLOW, "%s: %" PRIu64 " rows of %u taps of hidden size %u: their bytes do not fit 64 bits", name, t, n_taps, hidden);
    }
    return KVG_OK;
}

static void find_own(KvTapRows *rows)
{
    while (rows->first < rows->n_taps && rows->layers[rows->first] < rows->lo) {
        rows->first++;
    }
    while (rows->first + rows->own < rows->n_taps && rows->layers[rows->first + rows->own] < rows->hi) {
        rows->own++;
    }
}

KvgStatus kvg_tap_rows_create(const char *name, const uint32_t *layers, uint32_t n_taps, uint32_t lo, uint32_t hi, uint32_t hidden,
                              uint64_t t, KvFormat dtype, KvTapRows *rows)
{
    void *copy = NULL, *mark = NULL;

    KVG_TRY(check_layers(name, layers, n_taps, lo, hi));
    KVG_TRY(check_shape(name, hidden, t, n_taps, dtype));
    KVG_TRY(kvg_calloc(n_taps, sizeof *layers, name, &copy));
    KvgStatus status = kvg_calloc(t, n_taps, name, &mark);
    if (status != KVG_OK) {
        kvg_free(copy);
        return status;
    }
    *rows = (KvTapRows){.name = name, .mark = mark, .layers = memcpy(copy, layers, n_taps * sizeof *layers), .n_taps = n_taps, .lo = lo, .hi = hi,
                        .hidden = hidden, .element_bytes = kvg_format_block_bytes(dtype), .dtype = dtype, .t = t};
    find_own(rows);
    return KVG_OK;
}

void kvg_tap_rows_destroy(KvTapRows *rows)
{
    kvg_free(rows->mark);
    kvg_free(rows->layers);
    *rows = (KvTapRows){0};
}

uint64_t kvg_tap_rows_bytes(const KvTapRows *rows)
{
    return rows->t * rows->n_taps * rows->hidden * rows->element_bytes; /* check_shape has proved that it fits */
}

/* ---- a forward */

static void forget(KvTapRows *rows)
{
    memset(rows->mark + rows->base * rows->n_taps, KVG_TAP_NONE, rows->touched * rows->n_taps);
    rows->touched = 0;
    rows->staged = 0;
}

KvgStatus kvg_tap_rows_arm(KvTapRows *rows, uint64_t base)
{
    if (base >= rows->t) {
        return kvg_fail(KVG_EINVAL, "%s: a forward that begins at row %" PRIu64 " of a buffer of %" PRIu64 "; begin below its end or make a longer one",
                        rows->name, base, rows->t);
    }
    forget(rows);
    rows->base = base;
    rows->armed = rows->held = 1;
    return KVG_OK;
}

void kvg_tap_rows_drop(KvTapRows *rows)
{
    forget(rows);
    rows->armed = rows->held = 0;
}

static uint32_t find_slot(const KvTapRows *rows, uint32_t layer)
{
    for (uint32_t slot = rows->first; slot < rows->first + rows->own; slot++) {
        if (rows->layers[slot] == layer) {
            return slot;
        }
    }
    return rows->n_taps;
}

static KvgStatus check_inside(const KvTapRows *rows, uint64_t r, uint64_t count)
{
    uint64_t room = rows->t - rows->base;

    if (r > room || count > room - r) {
        return kvg_fail(KVG_EINVAL, "%s: rows from %" PRIu64 ", %" PRIu64 " of them: the forward began at row %" PRIu64 " of %" PRIu64
                        " and has %" PRIu64 "; make the sink longer or end the forward earlier", rows->name, r, count, rows->base, rows->t, room);
    }
    return KVG_OK;
}

KvgStatus kvg_tap_rows_check(const KvTapRows *rows, uint32_t layer, uint64_t r, uint64_t count, uint32_t *slot)
{
    if (!rows->armed) {
        return kvg_fail(KVG_ESTALE, "%s: rows of layer %u, but the sink is not armed; arm it before each forward", rows->name, layer);
    }
    KVG_TRY(check_inside(rows, r, count)); /* also for layers of other stages: every stage gives the same answer */
    *slot = find_slot(rows, layer);
    return KVG_OK;
}

void kvg_tap_rows_mark(KvTapRows *rows, uint32_t slot, uint64_t r, uint64_t count, KvTapMark mark)
{
    KVG_ASSERT(slot < rows->n_taps && r + count <= rows->t - rows->base);
    for (uint64_t row = r; row < r + count; row++) {
        uint8_t *at = &rows->mark[(rows->base + row) * rows->n_taps + slot];
        rows->staged -= *at == KVG_TAP_STAGED;
        rows->staged += mark == KVG_TAP_STAGED;
        *at = (uint8_t)mark;
    }
    rows->touched = kvg_max_u64(rows->touched, r + count);
}

KvTapMark kvg_tap_rows_marked(const KvTapRows *rows, uint64_t row, uint32_t slot)
{
    if (slot >= rows->n_taps || row >= rows->touched) {
        return KVG_TAP_NONE;
    }
    return (KvTapMark)rows->mark[(rows->base + row) * rows->n_taps + slot];
}

/* ---- gathering */

KvgStatus kvg_tap_rows_whole(const KvTapRows *rows, uint64_t count)
{
    if (!rows->held) {
        return kvg_fail(KVG_ESTALE, "%s: nothing to gather: it was not armed since it was made or dropped", rows->name);
    }
    if (rows->staged > 0) {
        return kvg_fail(KVG_ESTALE, "%s: %" PRIu64 " staged values are not drained; drain before gathering", rows->name, rows->staged);
    }
    KVG_TRY(check_inside(rows, 0, count));
    for (uint64_t row = 0; row < count; row++) {
        for (uint32_t slot = rows->first; slot < rows->first + rows->own; slot++) {
            if (kvg_tap_rows_marked(rows, row, slot) != KVG_TAP_LANDED) {
                return kvg_fail(KVG_ESTALE, "%s: row %" PRIu64 " of layer %u was not written since the sink was armed; write every row of "
                                "this stage's layers [%u, %u) before gathering", rows->name, row, rows->layers[slot], rows->lo, rows->hi);
            }
        }
    }
    return KVG_OK;
}

typedef struct TapPieces { /* slots of rows as equal pieces at equal strides */
    uint64_t count;
    size_t   bytes, stride;
} TapPieces;

/* Whole rows stand side by side: one piece. */
static TapPieces pieces_of(const KvTapRows *rows, uint64_t count, uint32_t slots)
{
    size_t slot_bytes = (size_t)rows->hidden * rows->element_bytes;

    if (slots == rows->n_taps && count > 0) {
        return (TapPieces){.count = 1, .bytes = count * slots * slot_bytes};
    }
    return (TapPieces){.count = count, .bytes = slots * slot_bytes, .stride = rows->n_taps * slot_bytes};
}

KvgStatus kvg_tap_rows_pack(const KvTapRows *rows, uint64_t r, uint64_t count, uint32_t slot, uint32_t slots, uint8_t *target, KvgStream stream)
{
    TapPieces      pieces = pieces_of(rows, count, slots);
    const uint8_t *source = kvg_tap_rows_at(rows, r, slot);

    for (uint64_t i = 0; i < pieces.count; i++) {
        if (rows->dev.ops == NULL) {
            memcpy(target + i * pieces.bytes, source + i * pieces.stride, pieces.bytes);
        } else {
            KVG_TRY(rows->dev.ops->dtoh(rows->dev.self, target + i * pieces.bytes, source + i * pieces.stride, pieces.bytes, stream));
        }
    }
    return rows->dev.ops != NULL ? rows->dev.ops->synchronize(rows->dev.self, stream) : KVG_OK;
}

KvgStatus kvg_tap_rows_unpack(const KvTapRows *rows, uint64_t r, uint64_t count, uint32_t slot, uint32_t slots, const uint8_t *source,
                              KvgStream stream)
{
    TapPieces pieces = pieces_of(rows, count, slots);
    uint8_t  *target = kvg_tap_rows_at(rows, r, slot);

    for (uint64_t i = 0; i < pieces.count; i++) {
        if (rows->dev.ops == NULL) {
            memcpy(target + i * pieces.stride, source + i * pieces.bytes, pieces.bytes);
        } else {
            KVG_TRY(rows->dev.ops->htod(rows->dev.self, target + i * pieces.stride, source + i * pieces.bytes, pieces.bytes, stream));
        }
    }
    return rows->dev.ops != NULL ? rows->dev.ops->synchronize(rows->dev.self, stream) : KVG_OK;
}

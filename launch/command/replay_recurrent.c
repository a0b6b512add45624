/* Replay's recurrent layers. */
#include "launch/command/replay_recurrent.h"

#include "launch/command/replay_generator.h"
#include "runtime/base/checked.h"
#include "runtime/base/mix.h"

/* The columns of one plane of one sequence. */
typedef struct Columns {
    float   *base;     /* column 0 */
    uint64_t elements; /* of a column */
    uint32_t read, write, each, count;
} Columns;

static Columns columns_of(const KvRecurrentView *view, int is_state, uint32_t slot)
{
    Columns columns = { .read = (uint32_t)view->read[slot], .write = (uint32_t)view->write[slot], .each = (uint32_t)view->each[slot],
                        .count = view->columns };
    columns.base = is_state ? view->state + slot * view->state_slot_stride : view->conv + slot * view->conv_slot_stride;
    columns.elements = is_state ? view->state_elements : view->conv_elements;
    return columns;
}

static float *column_read(const Columns *columns)
{
    return columns->base + columns->read * columns->elements;
}

/* Where the state after row i of the pass goes. Where only the end is kept, that is where each row works. */
static float *column_of_row(const Columns *columns, uint32_t i)
{
    uint32_t column = columns->each ? (columns->write + i) % columns->count : columns->write;
    return columns->base + column * columns->elements;
}

static void update_state(const Columns *columns, const KvRecurrentPartView *part, uint64_t stream, const ReplaySpan *span,
                         const ReplayRecurrentScratch *scratch)
{
    for (uint32_t head = 0; head < part->heads; head++) {
        const uint64_t offset = part->offset + (uint64_t)head * part->width;
        for (uint32_t i = 0; i < span->rows; i++) {
            int kept = columns->each || i + 1 == span->rows;
            scratch->keys[i] = kvg_replay_span_key(span, stream, part->head_index + head, i);
            scratch->heads[i] = kept ? column_of_row(columns, i) + offset : NULL;
        }
        kvg_replay_fold(scratch->keys, span->rows, REPLAY_DECAY, part->width, column_read(columns) + offset, scratch->heads);
    }
}

/* Where only the end is kept, rows that the taps have forgotten by then are not made at all. */
static void update_conv(const Columns *columns, const KvRecurrentPartView *part, uint32_t taps, uint64_t stream, const ReplaySpan *span,
                        const ReplayRecurrentScratch *scratch)
{
    const uint32_t first = columns->each ? 0 : (uint32_t)kvg_monus_u64(span->rows, taps);
    for (uint32_t head = 0; head < part->heads; head++) {
        const uint64_t offset = part->offset + (uint64_t)head * part->width * taps;
        const float   *in = column_read(columns) + offset;
        for (uint32_t i = first; i < span->rows; i++) {
            float *out = column_of_row(columns, i) + offset;
            kvg_replay_fill(kvg_replay_span_key(span, stream, part->head_index + head, i), scratch->x, part->width);
            kvg_recurrent_token(in, NULL, scratch->x, NULL, REPLAY_DECAY, part->width, taps, 0, out, NULL);
            in = out;
        }
    }
}

void kvg_replay_update_recurrent(const ReplayMaker *maker, const ReplayLayer *layer, uint32_t slot, const ReplaySpan *span,
                                 const ReplayRecurrentScratch *scratch)
{
    const KvRecurrentView *view = layer->recurrent;
    const Columns          conv = columns_of(view, 0, slot), state = columns_of(view, 1, slot);
    const uint64_t         stream_conv = kvg_replay_stream_key(maker->seed, span->request, layer->il, KVG_PLANE_CONV);
    const uint64_t         stream_state = kvg_replay_stream_key(maker->seed, span->request, layer->il, KVG_PLANE_STATE);
    for (uint32_t p = 0; p < view->part_count; p++) {
        if (view->parts[p].is_state) {
            update_state(&state, &view->parts[p], stream_state, span, scratch);
        } else if (view->taps > 0) {
            update_conv(&conv, &view->parts[p], view->taps, stream_conv, span, scratch);
        }
    }
}

void kvg_replay_make_update(const ReplayMaker *maker, const ReplayLayer *layer, const ReplaySpan *span, uint32_t i, float *x, float *u)
{
    const KvRecurrentView *view = layer->recurrent;
    for (uint32_t p = 0; p < view->part_count; p++) {
        const KvRecurrentPartView *part = &view->parts[p];
        const uint64_t stream = kvg_replay_stream_key(maker->seed, span->request, layer->il, part->is_state ? KVG_PLANE_STATE : KVG_PLANE_CONV);
        float        **next = part->is_state ? &u : &x;
        for (uint32_t head = 0; head < part->heads; head++) {
            kvg_replay_fill(kvg_replay_span_key(span, stream, part->head_index + head, i), *next, part->width);
            *next += part->width;
        }
    }
}

ReplayStateSample kvg_replay_sample_state(const ReplayMaker *maker, const ReplayLayer *layer, uint32_t part, uint64_t request)
{
    const KvRecurrentPartView *at = &layer->recurrent->parts[part];
    uint64_t                   draw = kvg_mix_term(request, layer->il, part, maker->seed);
    uint32_t                   runs = (at->width + REPLAY_RUN_ELEMENTS - 1) / REPLAY_RUN_ELEMENTS;
    uint32_t                   first = (uint32_t)((draw >> 32) % runs) * REPLAY_RUN_ELEMENTS;
    uint32_t                   most = at->is_state ? REPLAY_STATE_SAMPLE : REPLAY_STATE_SAMPLE / kvg_max_u64(1, layer->recurrent->taps);
    return (ReplayStateSample){ (uint32_t)(draw % at->heads), first, at->width - first < most ? at->width - first : most };
}

float *kvg_replay_stored_state(const KvRecurrentView *view, uint32_t part, const ReplayStateSample *sample, uint32_t slot, size_t *elements)
{
    const KvRecurrentPartView *at = &view->parts[part];
    const Columns              columns = columns_of(view, at->is_state != 0, slot);
    const size_t               each = at->is_state ? 1 : view->taps; /* floats of one element or channel */
    *elements = sample->count * each;
    return column_read(&columns) + at->offset + ((size_t)sample->head * at->width + sample->first) * each;
}

#include "forward.h"

#include <stdlib.h>
#include <string.h>

#define TRY(call)                               \
    do {                                        \
        KvgStatus try_status = (call);          \
        if (try_status != KVG_OK) return try_status; \
    } while (0)

_Static_assert(STEP_TOKENS_MAX * MODEL_HIDDEN * sizeof(float) <= BETWEEN_CHAIN_BYTES, "a step's residuals are handed on at once");

KvgStatus forward_create(const KvgGrid *grid, const KvgPlacement *placement, const Model *model, Between *between, Forward *forward)
{
    const size_t rows = STEP_TOKENS_MAX, wide = MODEL_HIDDEN;
    const size_t kv = rows * MODEL_KV_HEADS * MODEL_DIM, held = (size_t)MODEL_CONTEXT * MODEL_DIM;
    float       *at;

    *forward = (Forward){ .model = model, .between = between, .tp = kvg_grid_tp(grid), .pp = kvg_grid_pp(grid), .stage = kvg_grid_stage(grid),
                          .tp_rank = kvg_grid_tp_rank(grid) };
    if (MODEL_HEADS % forward->tp != 0) return KVG_EGEOM;
    forward->heads = MODEL_HEADS / forward->tp;
    forward->head_lo = forward->heads * forward->tp_rank;
    kvg_placement_layers(placement, &forward->lo, &forward->hi);
    at = forward->memory = calloc(2 * rows * wide + 2 * kv + 2 * MODEL_HEADS * rows * wide + 2 * held, sizeof *at);
    if (at == NULL) return KVG_ENOMEM;
    forward->x = at, at += rows * wide;
    forward->normed = at, at += rows * wide;
    forward->k = at, at += kv;
    forward->v = at, at += kv;
    forward->partial = at, at += MODEL_HEADS * rows * wide;
    forward->gathered = at, at += MODEL_HEADS * rows * wide;
    forward->keys = at, at += held;
    forward->values = at;
    return KVG_OK;
}

void forward_free(Forward *forward)
{
    free(forward->memory);
}

/* ---- rows */

/* Positions of the granted tokens; the first stage embeds them, the others take the residuals of the stage before. */
static KvgStatus begin_rows(Forward *forward, const KvgStep *step, const Order *order)
{
    const uint32_t *rows = kvg_step_rows(step);
    const uint64_t *first = kvg_step_first_rows(step);
    const uint16_t *token = order->token;

    forward->tokens = 0;
    for (uint32_t place = 0; place < order->place_count; token += order->place[place++].rows) {
        for (uint32_t i = 0; i < rows[place]; i++, forward->tokens++) { /* rows[place] is 0 where the place was left out, on every rank */
            forward->position[forward->tokens] = first[place] + i;
            if (forward->stage == 0) model_embed(forward->model, token[i], forward->x + forward->tokens * MODEL_HIDDEN);
        }
    }
    return forward->stage == 0 ? KVG_OK : between_take(forward->between, forward->x, forward->tokens * MODEL_HIDDEN * sizeof(float));
}

static void norm_rows(Forward *forward)
{
    for (uint32_t t = 0; t < forward->tokens; t++) model_norm(forward->x + t * MODEL_HIDDEN, forward->normed + t * MODEL_HIDDEN);
}

/* Every rank of the stage gets all partial sums and adds them in the order of heads. */
static KvgStatus add_partials(Forward *forward)
{
    const size_t     plane = (size_t)forward->tokens * MODEL_HIDDEN;
    const float *all = forward->tp == 1 ? forward->partial : forward->gathered;

    if (forward->tp > 1) TRY(between_stage(forward->between, forward->partial, forward->gathered, forward->heads * plane * sizeof(float)));
    for (uint32_t t = 0; t < forward->tokens; t++) model_add(forward->x + t * MODEL_HIDDEN, all + t * MODEL_HIDDEN, plane);
    return KVG_OK;
}

/* ---- attention */

static KvgStatus write_rows(Forward *forward, KvgBatch *batch, const KvPlaneView *view, uint32_t il)
{
    KvgRows in = KVG_ROWS_INIT;

    for (uint32_t t = 0; t < forward->tokens; t++) {
        for (uint32_t head = 0; head < view->heads; head++) {
            const size_t at = ((size_t)t * view->heads + head) * MODEL_DIM;
            model_key_value(forward->model, il, view->head_first + head, forward->position[t], forward->normed + t * MODEL_HIDDEN, forward->k + at,
                            forward->v + at);
        }
    }
    in.k = forward->k;
    in.v = forward->v;
    return kvg_write_kv(batch, il, &in, NULL);
}

/* Rows [0, rows) of one head as they are stored: chunk by chunk through the slot's table, a row_stride at a time inside a chunk. A GPU kernel does this
 * while it attends; a host reader may as well decode a head once and attend over it with every query. */
static void read_head(const KvPlaneView *view, const KvPlane *plane, uint32_t slot, uint32_t head, uint64_t rows, float *target)
{
    const int32_t *table = view->table + (size_t)slot * view->table_stride;

    for (uint64_t row = 0; row < rows; row++) {
        const uint8_t *chunk = plane->base + (size_t)table[row / KVG_CHUNK_ROWS] * plane->chunk_bytes;
        kvg_decode_f32(plane->format, chunk + head * plane->head_stride + row % KVG_CHUNK_ROWS * plane->row_stride, plane->head_dim,
                       target + row * MODEL_DIM);
    }
}

/* The place's tokens [t, t + rows) of query head `head` attend to the rows at and before their own. */
static void attend_head(Forward *forward, uint32_t il, uint32_t head, uint32_t t, uint32_t rows)
{
    for (uint32_t end = t + rows; t < end; t++) {
        const uint64_t position = forward->position[t];
        float          query[MODEL_DIM], out[MODEL_DIM];
        model_query(forward->model, il, head, position, forward->normed + t * MODEL_HIDDEN, query);
        model_attend(query, forward->keys, forward->values, position + 1, out);
        model_project(forward->model, il, head, out, forward->partial + ((head - forward->head_lo) * (size_t)forward->tokens + t) * MODEL_HIDDEN);
    }
}

static void attend(Forward *forward, const KvgBatch *batch, const KvgStep *step, const KvPlaneView *view, uint32_t places, uint32_t il)
{
    const int32_t  *slots = kvg_batch_slots(batch);
    const uint32_t *rows = kvg_step_rows(step);

    for (uint32_t place = 0, t = 0; place < places; t += rows[place++]) {
        for (uint32_t h = 0; h < forward->heads && rows[place] > 0; h++) {
            const uint32_t head = forward->head_lo + h, kv_head = head / MODEL_GROUP - view->head_first, slot = (uint32_t)slots[place];
            if (h == 0 || head % MODEL_GROUP == 0) { /* else the rows of the query head before */
                read_head(view, &view->k, slot, kv_head, view->len_staged[slot], forward->keys);
                read_head(view, &view->v, slot, kv_head, view->len_staged[slot], forward->values);
            }
            attend_head(forward, il, head, t, rows[place]);
        }
    }
}

static void ffn(Forward *forward, uint32_t il)
{
    for (uint32_t h = 0; h < forward->heads; h++) {
        for (uint32_t t = 0; t < forward->tokens; t++) {
            model_ffn(forward->model, il, forward->head_lo + h, forward->normed + t * MODEL_HIDDEN,
                      forward->partial + (h * (size_t)forward->tokens + t) * MODEL_HIDDEN);
        }
    }
}

/* ---- the walk */

static KvgStatus walk_layer(Forward *forward, KvgBatch *batch, const KvgStep *step, const Order *order, uint32_t il)
{
    const KvPlaneView *view = kvg_plane_view(batch, il);

    if (view == NULL) return KVG_EINVAL;
    norm_rows(forward);
    TRY(write_rows(forward, batch, view, il));
    if (kvg_step_local(step) == KVG_OK) attend(forward, batch, step, view, order->place_count, il); /* else this rank votes no: what it adds does not matter */
    TRY(add_partials(forward));
    norm_rows(forward);
    ffn(forward, il);
    return add_partials(forward);
}

KvgStatus forward_step(Forward *forward, KvgBatch *batch, const KvgStep *step, const Order *order, Found *found)
{
    TRY(begin_rows(forward, step, order));
    for (uint32_t il = forward->lo; il < forward->hi; il++) TRY(walk_layer(forward, batch, step, order, il));
    if (forward->stage + 1 < forward->pp) return between_hand(forward->between, forward->x, forward->tokens * MODEL_HIDDEN * sizeof(float));
    for (uint32_t t = 0; t < forward->tokens; t++) {
        found->next[t] = model_next(forward->model, forward->x + t * MODEL_HIDDEN);
        found->bits[t] = model_bits(forward->x + t * MODEL_HIDDEN);
    }
    return KVG_OK;
}

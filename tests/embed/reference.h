/* Reference: the embedding's transformer without kvgrid: one sequence, token by token, over plain arrays, on one rank. What it stores it rounds as the format
 * says: bf16 by its own arithmetic, other formats by an encode and a decode of the row. */
#ifndef EMBED_REFERENCE_H
#define EMBED_REFERENCE_H

#include <stdlib.h>
#include <string.h>

#include <kvgrid/format.h>

#include "launch/embed/transformer.h"

typedef struct Reference {
    Model   *model;
    uint64_t bits;     /* of all tokens it has made, as the embedding's summary has it */
    KvFormat format_k, format_v;
    float    keys[MODEL_LAYERS][MODEL_KV_HEADS][MODEL_CONTEXT][MODEL_DIM], values[MODEL_LAYERS][MODEL_KV_HEADS][MODEL_CONTEXT][MODEL_DIM];
} Reference;

static inline void reference_round(KvFormat format, float row[MODEL_DIM])
{
    uint8_t bytes[MODEL_DIM * sizeof(float)];

    if (format != KVG_BF16) {
        kvg_encode_f32(format, row, MODEL_DIM, bytes, NULL);
        kvg_decode_f32(format, bytes, MODEL_DIM, row);
        return;
    }
    for (uint32_t i = 0; i < MODEL_DIM; i++) { /* to nearest, ties to even; the model makes nothing that is not finite */
        uint32_t bits;
        memcpy(&bits, &row[i], sizeof bits);
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
        memcpy(&row[i], &bits, sizeof bits);
    }
}

static inline void reference_attention(Reference *reference, uint32_t layer, uint32_t position, const float *normed, float partials[MODEL_HEADS][MODEL_HIDDEN])
{
    for (uint32_t head = 0; head < MODEL_KV_HEADS; head++) {
        float *key = reference->keys[layer][head][position], *value = reference->values[layer][head][position];
        model_key_value(reference->model, layer, head, position, normed, key, value);
        reference_round(reference->format_k, key);
        reference_round(reference->format_v, value);
    }
    for (uint32_t head = 0; head < MODEL_HEADS; head++) {
        const uint32_t kv_head = head / MODEL_GROUP;
        float          query[MODEL_DIM], out[MODEL_DIM];
        model_query(reference->model, layer, head, position, normed, query);
        model_attend(query, reference->keys[layer][kv_head][0], reference->values[layer][kv_head][0], position + 1, out);
        model_project(reference->model, layer, head, out, partials[head]);
    }
}

/* The token after `token` at `position`; `counts` if it is one that is told. */
static inline uint16_t reference_next(Reference *reference, uint16_t token, uint32_t position, int counts)
{
    float x[MODEL_HIDDEN], normed[MODEL_HIDDEN], partials[MODEL_HEADS][MODEL_HIDDEN];

    model_embed(reference->model, token, x);
    for (uint32_t layer = 0; layer < MODEL_LAYERS; layer++) {
        model_norm(x, normed);
        reference_attention(reference, layer, position, normed, partials);
        model_add(x, partials[0], MODEL_HIDDEN);
        model_norm(x, normed);
        for (uint32_t block = 0; block < MODEL_HEADS; block++) model_ffn(reference->model, layer, block, normed, partials[block]);
        model_add(x, partials[0], MODEL_HIDDEN);
    }
    if (counts) reference->bits = (reference->bits + model_bits(x)) % (UINT64_C(1) << 52);
    return model_next(reference->model, x);
}

/* tokens [count + more]: the prompt's `count`, behind which the `more` that follow are put. */
static inline void reference_serve(Reference *reference, uint16_t *tokens, uint32_t count, uint32_t more)
{
    for (uint32_t position = 0; position + 1 < count + more; position++) {
        uint16_t next = reference_next(reference, tokens[position], position, position + 1 >= count);
        if (position + 1 >= count) tokens[position + 1] = next;
    }
}

static inline Reference *reference_create(uint64_t seed, KvFormat format_k, KvFormat format_v)
{
    Reference *reference = calloc(1, sizeof *reference);

    if (reference == NULL || (reference->model = model_create(seed)) == NULL) abort();
    reference->format_k = format_k;
    reference->format_v = format_v;
    return reference;
}

static inline void reference_free(Reference *reference)
{
    model_free(reference->model);
    free(reference);
}

#endif

/* Transformer: a tiny model whose weights follow from a seed. It knows nothing of kvgrid, of ranks or of requests: values in, values out.
 *
 *   x [HIDDEN]  a token's residual, f32
 *   attention   every query head gives a partial sum [HIDDEN]: Wo_head * softmax(q . K) V
 *   FFN         every block of FFN_BLOCK inner elements gives a partial sum [HIDDEN]
 *
 * There are as many blocks as query heads, so that a rank of a TP group has a share of both. Whoever adds partial sums does it in the order of
 * heads and blocks, whichever rank they come from: the same bits on every grid. Threads: a made model is read-only and may be shared. */
#ifndef EMBED_TRANSFORMER_H
#define EMBED_TRANSFORMER_H

#include <stddef.h>
#include <stdint.h>

enum {
    MODEL_LAYERS = 4,
    MODEL_HIDDEN = 64,
    MODEL_HEADS = 8,    /* query heads, and FFN blocks */
    MODEL_KV_HEADS = 4, /* query head h reads KV head h / MODEL_GROUP */
    MODEL_GROUP = MODEL_HEADS / MODEL_KV_HEADS,
    MODEL_DIM = 32,     /* of a head */
    MODEL_FFN_BLOCK = 32,
    MODEL_VOCAB = 256,  /* a token is a byte */
    MODEL_CONTEXT = 1024
};

typedef struct Model Model;

/* NULL when memory is out. */
Model *model_create(uint64_t seed);
void   model_free(Model *model);
/* The config.json of it, for kvg_model_config_parse_json: the formats of state, heads and layers follow from that. */
const char *model_config_json(void);

void model_embed(const Model *model, uint16_t token, float x[MODEL_HIDDEN]);
void model_norm(const float x[MODEL_HIDDEN], float normed[MODEL_HIDDEN]);
/* Of one token at `position`: K (turned by its position) and V of one KV head; the query of one query head. */
void model_key_value(const Model *model, uint32_t layer, uint32_t kv_head, uint64_t position, const float normed[MODEL_HIDDEN], float key[MODEL_DIM],
                     float value[MODEL_DIM]);
void model_query(const Model *model, uint32_t layer, uint32_t head, uint64_t position, const float normed[MODEL_HIDDEN], float query[MODEL_DIM]);
/* One query over `rows` rows; keys and values are [rows][MODEL_DIM]. */
void model_attend(const float query[MODEL_DIM], const float *keys, const float *values, uint64_t rows, float out[MODEL_DIM]);
/* The partial sums of a query head and of an FFN block. */
void model_project(const Model *model, uint32_t layer, uint32_t head, const float out[MODEL_DIM], float partial[MODEL_HIDDEN]);
void model_ffn(const Model *model, uint32_t layer, uint32_t block, const float normed[MODEL_HIDDEN], float partial[MODEL_HIDDEN]);
/* Adds partial sums in the order of their heads; partials are [MODEL_HEADS], `stride` floats apart. */
void model_add(float x[MODEL_HIDDEN], const float *partials, size_t stride);
/* The likeliest next token; of equals the lowest. */
uint16_t model_next(const Model *model, const float x[MODEL_HIDDEN]);
/* A word over the bits of a residual: two grids that agree on its sum over all sampled tokens have computed the same, not only nearly. 52 bits. */
uint64_t model_bits(const float x[MODEL_HIDDEN]);

#endif

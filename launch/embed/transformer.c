#include "transformer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Layer {
    float query[MODEL_HEADS][MODEL_DIM][MODEL_HIDDEN];
    float key[MODEL_KV_HEADS][MODEL_DIM][MODEL_HIDDEN];
    float value[MODEL_KV_HEADS][MODEL_DIM][MODEL_HIDDEN];
    float out[MODEL_HEADS][MODEL_HIDDEN][MODEL_DIM];
    float up[MODEL_HEADS][MODEL_FFN_BLOCK][MODEL_HIDDEN];
    float down[MODEL_HEADS][MODEL_HIDDEN][MODEL_FFN_BLOCK];
} Layer;

struct Model {
    Layer layer[MODEL_LAYERS];
    float embedding[MODEL_VOCAB][MODEL_HIDDEN];
    float head[MODEL_VOCAB][MODEL_HIDDEN];
    float turn[MODEL_CONTEXT][MODEL_DIM / 2][2]; /* cosine and sine of a position */
};

/* ---- making it */

/* SplitMix64's finalizer over a counter. */
static float weight(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (float)((int64_t)(z >> 40) - (1 << 23)) / (float)(1 << 23); /* [-1, 1), 24 bits: exact */
}

/* Uniform weights of variance about 1/inputs keep what goes through a matrix at its size. */
static uint64_t fill(uint64_t seed, uint64_t index, float *weights, size_t bytes, uint32_t inputs)
{
    const float scale = sqrtf(3.0f / (float)inputs);

    for (size_t i = 0; i < bytes / sizeof *weights; i++) weights[i] = weight(seed, index++) * scale;
    return index;
}

Model *model_create(uint64_t seed)
{
    Model   *model = calloc(1, sizeof *model);
    uint64_t at = 0;

    if (model == NULL) return NULL;
    for (Layer *layer = model->layer; layer < model->layer + MODEL_LAYERS; layer++) {
        at = fill(seed, at, &layer->query[0][0][0], sizeof layer->query, MODEL_HIDDEN / 4); /* sharper than 1: heads look somewhere */
        at = fill(seed, at, &layer->key[0][0][0], sizeof layer->key, MODEL_HIDDEN / 4);
        at = fill(seed, at, &layer->value[0][0][0], sizeof layer->value, MODEL_HIDDEN);
        at = fill(seed, at, &layer->out[0][0][0], sizeof layer->out, MODEL_DIM * MODEL_HEADS / 4);
        at = fill(seed, at, &layer->up[0][0][0], sizeof layer->up, MODEL_HIDDEN);
        at = fill(seed, at, &layer->down[0][0][0], sizeof layer->down, MODEL_FFN_BLOCK * MODEL_HEADS / 4);
    }
    at = fill(seed, at, &model->embedding[0][0], sizeof model->embedding, MODEL_HIDDEN);
    fill(seed, at, &model->head[0][0], sizeof model->head, MODEL_HIDDEN);
    for (uint32_t position = 0; position < MODEL_CONTEXT; position++) {
        for (uint32_t pair = 0; pair < MODEL_DIM / 2; pair++) {
            double angle = position * pow(10000.0, -2.0 * pair / MODEL_DIM);
            model->turn[position][pair][0] = (float)cos(angle);
            model->turn[position][pair][1] = (float)sin(angle);
        }
    }
    return model;
}

void model_free(Model *model)
{
    free(model);
}

const char *model_config_json(void)
{
    _Static_assert(MODEL_LAYERS == 4 && MODEL_HIDDEN == 64 && MODEL_HEADS == 8 && MODEL_KV_HEADS == 4 && MODEL_DIM == 32 && MODEL_VOCAB == 256 &&
                       MODEL_CONTEXT == 1024, "the config below says the same");
    return "{ \"model_type\": \"llama\", \"num_hidden_layers\": 4, \"hidden_size\": 64, \"num_attention_heads\": 8, \"num_key_value_heads\": 4,"
           "  \"head_dim\": 32, \"intermediate_size\": 256, \"vocab_size\": 256, \"max_position_embeddings\": 1024 }";
}

/* ---- arithmetic: the order of every sum is fixed, whatever the compiler does with the lanes */

static float dot(const float *a, const float *b, uint32_t count)
{
    float lane[8] = { 0 };

    for (uint32_t i = 0; i < count; i += 8) {
        for (uint32_t j = 0; j < 8; j++) lane[j] += a[i + j] * b[i + j];
    }
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

static void turn(const Model *model, uint64_t position, float *head)
{
    for (uint32_t pair = 0; pair < MODEL_DIM / 2; pair++) {
        const float *by = model->turn[position][pair], a = head[2 * pair], b = head[2 * pair + 1];
        head[2 * pair] = a * by[0] - b * by[1];
        head[2 * pair + 1] = a * by[1] + b * by[0];
    }
}

void model_embed(const Model *model, uint16_t token, float x[MODEL_HIDDEN])
{
    memcpy(x, model->embedding[token], sizeof model->embedding[token]);
}

void model_norm(const float x[MODEL_HIDDEN], float normed[MODEL_HIDDEN])
{
    float scale = 1.0f / sqrtf(dot(x, x, MODEL_HIDDEN) / MODEL_HIDDEN + 1e-6f);

    for (uint32_t i = 0; i < MODEL_HIDDEN; i++) normed[i] = x[i] * scale;
}

void model_key_value(const Model *model, uint32_t layer, uint32_t kv_head, uint64_t position, const float normed[MODEL_HIDDEN], float key[MODEL_DIM],
                     float value[MODEL_DIM])
{
    const Layer *at = &model->layer[layer];

    for (uint32_t i = 0; i < MODEL_DIM; i++) {
        key[i] = dot(at->key[kv_head][i], normed, MODEL_HIDDEN);
        value[i] = dot(at->value[kv_head][i], normed, MODEL_HIDDEN);
    }
    turn(model, position, key);
}

void model_query(const Model *model, uint32_t layer, uint32_t head, uint64_t position, const float normed[MODEL_HIDDEN], float query[MODEL_DIM])
{
    for (uint32_t i = 0; i < MODEL_DIM; i++) query[i] = dot(model->layer[layer].query[head][i], normed, MODEL_HIDDEN);
    turn(model, position, query);
}

void model_attend(const float query[MODEL_DIM], const float *keys, const float *values, uint64_t rows, float out[MODEL_DIM])
{
    const float scale = 1.0f / sqrtf(MODEL_DIM);
    float       score[MODEL_CONTEXT], most = -INFINITY, sum = 0;

    for (uint64_t row = 0; row < rows; row++) {
        score[row] = dot(query, keys + row * MODEL_DIM, MODEL_DIM) * scale;
        most = score[row] > most ? score[row] : most;
    }
    memset(out, 0, MODEL_DIM * sizeof *out);
    for (uint64_t row = 0; row < rows; row++) {
        float share = expf(score[row] - most);
        sum += share;
        for (uint32_t i = 0; i < MODEL_DIM; i++) out[i] += share * values[row * MODEL_DIM + i];
    }
    for (uint32_t i = 0; i < MODEL_DIM; i++) out[i] /= sum;
}

void model_project(const Model *model, uint32_t layer, uint32_t head, const float out[MODEL_DIM], float partial[MODEL_HIDDEN])
{
    for (uint32_t i = 0; i < MODEL_HIDDEN; i++) partial[i] = dot(model->layer[layer].out[head][i], out, MODEL_DIM);
}

void model_ffn(const Model *model, uint32_t layer, uint32_t block, const float normed[MODEL_HIDDEN], float partial[MODEL_HIDDEN])
{
    const Layer *at = &model->layer[layer];
    float        inner[MODEL_FFN_BLOCK];

    for (uint32_t i = 0; i < MODEL_FFN_BLOCK; i++) {
        float up = dot(at->up[block][i], normed, MODEL_HIDDEN);
        inner[i] = up > 0 ? up : 0;
    }
    for (uint32_t i = 0; i < MODEL_HIDDEN; i++) partial[i] = dot(at->down[block][i], inner, MODEL_FFN_BLOCK);
}

void model_add(float x[MODEL_HIDDEN], const float *partials, size_t stride)
{
    for (uint32_t head = 0; head < MODEL_HEADS; head++) {
        for (uint32_t i = 0; i < MODEL_HIDDEN; i++) x[i] += partials[head * stride + i];
    }
}

uint64_t model_bits(const float x[MODEL_HIDDEN])
{
    uint64_t word = UINT64_C(0xcbf29ce484222325); /* FNV-1a, an element at a time */

    for (uint32_t i = 0; i < MODEL_HIDDEN; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        word = (word ^ bits) * UINT64_C(0x100000001b3);
    }
    return word >> 12;
}

uint16_t model_next(const Model *model, const float x[MODEL_HIDDEN])
{
    float    normed[MODEL_HIDDEN], most = -INFINITY;
    uint16_t best = 0;

    model_norm(x, normed);
    for (uint16_t token = 0; token < MODEL_VOCAB; token++) {
        float logit = dot(model->head[token], normed, MODEL_HIDDEN);
        if (logit > most) {
            most = logit;
            best = token;
        }
    }
    return best;
}

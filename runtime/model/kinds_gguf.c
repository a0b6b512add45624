/* Layer kinds of a GGUF file.
 *
 *   attention.head_count_kv            0 in an array: no attention here; a recurrent layer where the model has ssm.* keys
 *   full_attention_interval            attention every nth layer, the others recurrent
 *   attention.sliding_window_pattern   booleans: windowed or not; or n: every nth layer is full */
#include "runtime/model/config_gguf.h"

#include <string.h>

#define INTERVAL "full_attention_interval|attention.full_attention_interval"
#define PATTERN  "attention.sliding_window_pattern|sliding_window_pattern"
#define WINDOW   "attention.sliding_window|sliding_window"
#define KV_HEADS "attention.head_count_kv|head_count_kv"
#define HEADS    "attention.head_count|head_count"
#define FFN      "feed_forward_length"

static void mark_every(GgufModel *model, uint32_t n, KvLayerKind other)
{
    for (uint32_t il = 0; il < model->n_layer; il++) {
        if (model->kinds[il] == KVG_LAYER_FULL && (il + 1) % n != 0) {
            model->kinds[il] = (uint8_t)other;
        }
    }
}

/* ---- layers without attention */

/* What a layer without K/V heads is: recurrent, or (Nemotron-H) an MLP block, or nothing. */
static KvgStatus kind_without_heads(const GgufModel *model, uint32_t layer, uint8_t *kind)
{
    uint32_t width = 0;
    bool     listed = false;

    KVG_TRY(kvg_gguf_layer_u32(model, FFN, layer, 0, &width, &listed));
    *kind = model->is_recurrent && !(listed && width > 0 && kvg_gguf_is_family(model, "nemotron_h")) ? KVG_LAYER_LINEAR
                                                                                                    : KVG_LAYER_NONE;
    return KVG_OK;
}

static KvgStatus kind_by_heads(GgufModel *model, uint32_t layer)
{
    uint32_t heads = model->is_recurrent ? 0 : 1; /* absent: no attention, or a key that plan_attention will miss */
    uint32_t kv_heads;
    bool     heads_listed = false, listed = false;

    KVG_TRY(kvg_gguf_layer_u32(model, HEADS, layer, model->is_recurrent ? 0 : 1, &heads, &heads_listed));
    kv_heads = heads;
    KVG_TRY(kvg_gguf_layer_u32(model, KV_HEADS, layer, model->is_recurrent ? 0 : 1, &kv_heads, &listed));
    if (kv_heads == 0 || (heads == 0 && heads_listed)) {
        return kind_without_heads(model, layer, &model->kinds[layer]);
    }
    model->kinds[layer] = KVG_LAYER_FULL;
    return KVG_OK;
}

static KvgStatus mark_interval(GgufModel *model)
{
    const GgufEntry *entry = NULL;
    uint32_t         interval = 4;
    bool             listed = false;
    uint32_t         kv_heads = 0;

    if (!model->is_recurrent) {
        return KVG_OK;
    }
    KVG_TRY(kvg_gguf_key(model, INTERVAL, &entry));
    KVG_TRY(kvg_gguf_layer_u32(model, KV_HEADS, 0, 0, &kv_heads, &listed));
    if (entry == NULL && (listed || !kvg_gguf_is_family(model, "qwen3"))) {
        return KVG_OK; /* the heads have said it all */
    }
    KVG_TRY(kvg_gguf_u32(model, INTERVAL, 1, &interval));
    mark_every(model, interval, KVG_LAYER_LINEAR);
    return KVG_OK;
}

/* ---- windows */

/* llama.cpp's patterns of architectures whose files may leave it out; the longer prefix stands first. */
static const struct {
    const char *prefix;
    uint32_t    every;
} window_families[] = {
    {"gemma3n", 5}, {"gemma2", 2}, {"gemma3", 6}, {"gemma4", 6}, {"gpt-oss", 2}, {"gpt_oss", 2}, {"cohere2", 4}, {"olmo2", 4},
    {"olmo3", 4}, {"exaone4", 4},
};

static KvgStatus mark_listed_windows(GgufModel *model, const GgufEntry *entry)
{
    for (uint32_t il = 0; il < model->n_layer + model->n_mtp; il++) {
        uint64_t windowed = 0;
        if (il >= model->n_layer && il >= entry->count) {
            break; /* an MTP block without an entry */
        }
        KVG_TRY(kvg_gguf_number(&model->file, entry, il, 0, 1, &windowed));
        if (model->kinds[il] == KVG_LAYER_FULL || model->kinds[il] == KVG_LAYER_INHERIT) {
            model->kinds[il] = windowed ? KVG_LAYER_SLIDING : KVG_LAYER_FULL;
        }
    }
    return KVG_OK;
}

static KvgStatus mark_windows(GgufModel *model)
{
    const GgufEntry *entry = NULL, *pattern = NULL;
    uint64_t         every = 0;

    KVG_TRY(kvg_gguf_key(model, WINDOW, &entry));
    if (entry != NULL) {
        KVG_TRY(kvg_gguf_number(&model->file, entry, 0, 0, INT64_MAX, &model->window)); /* 0: none */
    }
    if (model->window == 0 || model->is_latent) {
        model->window = 0;
        return KVG_OK;
    }
    KVG_TRY(kvg_gguf_key(model, PATTERN, &pattern));
    if (pattern != NULL && pattern->type == GGUF_ARRAY) {
        return mark_listed_windows(model, pattern);
    }
    for (size_t i = 0; i < sizeof window_families / sizeof window_families[0] && every == 0; i++) {
        every = kvg_gguf_is_family(model, window_families[i].prefix) ? window_families[i].every : 0;
    }
    if (pattern != NULL) {
        KVG_TRY(kvg_gguf_number(&model->file, pattern, 0, 0, UINT32_MAX, &every)); /* 0: all windowed */
    }
    mark_every(model, every > 0 ? (uint32_t)every : UINT32_MAX, KVG_LAYER_SLIDING);
    return KVG_OK;
}

/* A next-token block has the kind that an array of heads gives it, if the array reaches that far. */
static KvgStatus mark_mtp(GgufModel *model)
{
    const GgufEntry *entry = NULL;

    memset(model->kinds + model->n_layer, KVG_LAYER_INHERIT, model->n_mtp);
    KVG_TRY(kvg_gguf_key(model, KV_HEADS, &entry));
    for (uint32_t il = model->n_layer; il < model->n_layer + model->n_mtp; il++) {
        uint64_t heads = 0;
        if (entry == NULL || entry->type != GGUF_ARRAY || il >= entry->count) {
            break;
        }
        KVG_TRY(kvg_gguf_number(&model->file, entry, il, 0, UINT32_MAX, &heads));
        model->kinds[il] = heads > 0 ? KVG_LAYER_FULL : KVG_LAYER_NONE;
    }
    return KVG_OK;
}

KvgStatus kvg_gguf_layer_kinds(GgufModel *model)
{
    KVG_TRY(mark_mtp(model));
    for (uint32_t il = 0; il < model->n_layer; il++) {
        KVG_TRY(kind_by_heads(model, il));
    }
    KVG_TRY(mark_interval(model));
    return mark_windows(model);
}

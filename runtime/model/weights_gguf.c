/* Weight bytes of a GGUF file: the sum over its tensor list where that is whole, else an estimate from its keys. */
#include "runtime/model/config_gguf.h"
#include "runtime/model/weights.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/checked.h"

/* ---- from the tensor list */

typedef struct TensorSum {
    const GgufModel *model;
    ModelConfig     *config;
    uint64_t         embedding_bytes, head_bytes;
} TensorSum;

static void add_saturating(uint64_t *sum, uint64_t bytes)
{
    if (!kvg_add_u64(*sum, bytes, sum)) {
        *sum = UINT64_MAX;
    }
}

/* "blk.17.attn_q.weight" -> 17; UINT32_MAX for tensors outside the blocks. */
static uint32_t layer_of_tensor(const GgufTensor *tensor)
{
    uint32_t layer = 0;
    size_t   i = 4;

    if (tensor->name_bytes < 6 || memcmp(tensor->name, "blk.", 4) != 0) {
        return UINT32_MAX;
    }
    for (; i < tensor->name_bytes && i < 10 && tensor->name[i] >= '0' && tensor->name[i] <= '9'; i++) {
        layer = layer * 10 + (uint32_t)(tensor->name[i] - '0');
    }
    return i > 4 && i < tensor->name_bytes && tensor->name[i] == '.' ? layer : UINT32_MAX;
}

static void add_tensor(void *user, const GgufTensor *tensor)
{
    static const char embedding[] = "token_embd.weight", head[] = "output.weight";
    TensorSum        *sum = user;
    uint32_t          layer = layer_of_tensor(tensor);

    if (layer < sum->model->n_layer + sum->model->n_mtp) {
        add_saturating(&sum->config->weight_bytes[layer], tensor->bytes);
    } else if (tensor->name_bytes == sizeof embedding - 1 && memcmp(tensor->name, embedding, sizeof embedding - 1) == 0) {
        add_saturating(&sum->embedding_bytes, tensor->bytes);
    } else if (tensor->name_bytes == sizeof head - 1 && memcmp(tensor->name, head, sizeof head - 1) == 0) {
        add_saturating(&sum->head_bytes, tensor->bytes);
    }
}

/* ---- from the keys */

/* Bytes of 32 weights by general.file_type (llama.cpp's list), for what most tensors of such a file hold. */
static const uint8_t file_type_per_32[] = {
    [0] = 128, [1] = 64, [2] = 18, [3] = 20, [7] = 34, [8] = 22, [9] = 24, [10] = 11, [11] = 14, [12] = 15, [13] = 17,
    [14] = 19, [15] = 20, [16] = 22, [17] = 23, [18] = 27, [32] = 64, [38] = 17,
};

static uint32_t bytes_per_32(const GgufModel *model)
{
    const GgufEntry *entry = NULL;
    uint64_t         type = 1;

    if (kvg_gguf_find(&model->file, "general.file_type", &entry) == KVG_OK && entry != NULL &&
        kvg_gguf_number(&model->file, entry, 0, 0, sizeof file_type_per_32 - 1, &type) != KVG_OK) {
        type = 1;
    }
    return file_type_per_32[type] > 0 ? file_type_per_32[type] : file_type_per_32[1];
}

static void read_facts(const GgufModel *model, uint64_t vocab, WeightFacts *facts)
{
    uint64_t shared_count = kvg_gguf_guess(model, "expert_shared_count", 0, 0);

    facts->hidden = kvg_gguf_guess(model, "embedding_length", 0, 0);
    facts->vocab = vocab;
    facts->latent_heads = kvg_gguf_guess(model, "attention.head_count", 0, 0);
    facts->q_lora_rank = kvg_gguf_guess(model, "attention.q_lora_rank", 0, 0);
    facts->nope_dim = kvg_gguf_guess(model, "attention.key_length_mla", 0, 128);
    facts->nope_dim = kvg_monus_u64(facts->nope_dim, kvg_gguf_guess(model, "rope.dimension_count", 0, 0));
    facts->value_dim = kvg_gguf_guess(model, "attention.value_length_mla", 0, facts->nope_dim);
    facts->index_heads = kvg_gguf_guess(model, "attention.indexer.head_count", 0, 0);
    facts->expert_count = kvg_gguf_guess(model, "expert_count", 0, 0);
    facts->expert_width = kvg_gguf_guess(model, "expert_feed_forward_length", 0, kvg_gguf_guess(model, "feed_forward_length", 0, 0));
    facts->shared_width = kvg_gguf_guess(model, "expert_shared_feed_forward_length", 0, 0);
    if (facts->shared_width == 0 && !kvg_mul_u64(shared_count, facts->expert_width, &facts->shared_width)) {
        facts->shared_width = UINT64_MAX;
    }
    facts->mlp_matrices = 3;
    facts->bytes_per_32 = facts->expert_bytes_per_32 = facts->embedding_bytes_per_32 = bytes_per_32(model);
}

static KvMlpKind mlp_kind(const GgufModel *model, const WeightFacts *facts, uint32_t layer)
{
    uint64_t step = kvg_gguf_guess(model, "interleave_moe_layer_step", 0, 1);

    if (facts->expert_count == 0 || layer < kvg_gguf_guess(model, "leading_dense_block_count", 0, 0)) {
        return KVG_MLP_DENSE;
    }
    return step == 0 || (layer + 1) % step == 0 ? KVG_MLP_SPARSE : KVG_MLP_DENSE;
}

static void estimate(const GgufModel *model, ModelConfig *config)
{
    WeightFacts facts = {.hidden = 0};

    read_facts(model, config->vocab_size, &facts);
    for (uint32_t il = 0; il < config->plan.n_layer + config->plan.n_mtp; il++) {
        facts.dense_width = kvg_gguf_guess(model, "feed_forward_length", il, 0);
        config->weight_bytes[il] = kvg_weight_layer_bytes(&facts, &config->plan, il, mlp_kind(model, &facts, il));
    }
    kvg_weight_ends(&facts, config);
}

KvgStatus kvg_gguf_weights(const GgufModel *model, ModelConfig *config, GgufList *list)
{
    TensorSum        sum = {.model = model, .config = config};
    const GgufEntry *tokens = NULL;

    KVG_TRY(kvg_gguf_find(&model->file, "tokenizer.ggml.tokens", &tokens));
    config->vocab_size = kvg_gguf_guess(model, "vocab_size", 0, tokens != NULL && tokens->type == GGUF_ARRAY ? tokens->count : 0);
    KVG_TRY(kvg_gguf_tensors(&model->file, add_tensor, &sum, list));
    if (*list != GGUF_LIST_WHOLE) {
        estimate(model, config); /* overwrites a part sum */
        return KVG_OK;
    }
    config->embedding_bytes = sum.embedding_bytes;
    config->head_is_tied = sum.head_bytes == 0;
    config->head_bytes = config->head_is_tied ? sum.embedding_bytes : sum.head_bytes;
    return KVG_OK;
}

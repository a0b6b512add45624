#include "runtime/model/config_gguf.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/memory.h"

#define HEADS    "attention.head_count|head_count"
#define KV_HEADS "attention.head_count_kv|head_count_kv"
#define SHARED   "attention.shared_kv_layers"

/* Architectures whose layers keep what is not planned: chunked attention, two states a layer, token shift, short
 * convolutions, encoders. */
static const char *const unplanned_archs[] = {"llama4", "falcon-h1", "rwkv", "arwkv", "lfm2", "t5", "deepseek4"};

bool kvg_gguf_is_family(const GgufModel *model, const char *prefix)
{
    return strncmp(model->arch, prefix, strlen(prefix)) == 0;
}

/* ---- keys */

KvgStatus kvg_gguf_key(const GgufModel *model, const char *names, const GgufEntry **entry)
{
    char        key[128];
    const char *rest = names;

    *entry = NULL;
    while (*entry == NULL && *rest != '\0') {
        size_t length = strcspn(rest, "|");
        snprintf(key, sizeof key, "%s.%.*s", model->arch, (int)length, rest);
        KVG_TRY(kvg_gguf_find(&model->file, key, entry));
        rest += length + (rest[length] == '|');
    }
    return KVG_OK;
}

KvgStatus kvg_gguf_layer_u32(const GgufModel *model, const char *names, uint32_t layer, uint32_t min, uint32_t *value,
                             bool *listed)
{
    const GgufEntry *entry = NULL;
    uint64_t         number = *value;

    KVG_TRY(kvg_gguf_key(model, names, &entry));
    *listed = entry != NULL && entry->type == GGUF_ARRAY;
    if (entry != NULL) {
        KVG_TRY(kvg_gguf_number(&model->file, entry, *listed ? layer : 0, *listed ? 0 : min, UINT32_MAX, &number));
    }
    *value = (uint32_t)number;
    return KVG_OK;
}

KvgStatus kvg_gguf_u32(const GgufModel *model, const char *names, uint32_t min, uint32_t *value)
{
    const GgufEntry *entry = NULL;
    uint64_t         number = *value;

    KVG_TRY(kvg_gguf_key(model, names, &entry));
    if (entry != NULL && entry->type == GGUF_ARRAY) {
        return kvg_fail(KVG_EFORMAT, "%s: %.*s is an array where one number is needed; mend the file", model->file.name,
                        (int)entry->key_bytes, entry->key);
    }
    if (entry != NULL) {
        KVG_TRY(kvg_gguf_number(&model->file, entry, 0, min, UINT32_MAX, &number));
    }
    *value = (uint32_t)number;
    return KVG_OK;
}

KvgStatus kvg_gguf_need_u32(const GgufModel *model, const char *names, uint32_t min, uint32_t *value)
{
    const GgufEntry *entry = NULL;

    KVG_TRY(kvg_gguf_key(model, names, &entry));
    if (entry == NULL) {
        return kvg_fail(KVG_EFORMAT, "%s: %s.%.*s is missing, and the model's state cannot be known without it; mend the file",
                        model->file.name, model->arch, (int)strcspn(names, "|"), names);
    }
    return kvg_gguf_u32(model, names, min, value);
}

uint64_t kvg_gguf_guess(const GgufModel *model, const char *names, uint32_t layer, uint64_t fallback)
{
    const GgufEntry *entry = NULL;
    uint64_t         number = fallback;

    if (kvg_gguf_key(model, names, &entry) != KVG_OK || entry == NULL) {
        return fallback;
    }
    if (kvg_gguf_number(&model->file, entry, entry->type == GGUF_ARRAY ? layer : 0, 0, UINT32_MAX, &number) != KVG_OK) {
        return fallback;
    }
    return number;
}

/* ---- one layer */

static KvgStatus read_head_dims(const GgufModel *model, bool sliding, KvShapeFacts *facts)
{
    const GgufEntry *entry = NULL;
    uint32_t         embedding = 0;

    KVG_TRY(kvg_gguf_key(model, "attention.key_length|key_length", &entry));
    if (entry == NULL) {
        KVG_TRY(kvg_gguf_need_u32(model, "embedding_length", 1, &embedding));
        if (embedding % facts->query_heads != 0) {
            return kvg_fail(KVG_EFORMAT, "%s: %s.embedding_length %u is no multiple of %u heads, and there is no "
                            "attention.key_length; mend the file", model->file.name, model->arch, embedding, facts->query_heads);
        }
        facts->head_dim_k = facts->head_dim_v = embedding / facts->query_heads;
    }
    KVG_TRY(kvg_gguf_u32(model, "attention.key_length|key_length", 1, &facts->head_dim_k));
    facts->head_dim_v = facts->head_dim_k;
    KVG_TRY(kvg_gguf_u32(model, "attention.value_length|value_length", 1, &facts->head_dim_v));
    if (sliding) {
        KVG_TRY(kvg_gguf_u32(model, "attention.key_length_swa", 1, &facts->head_dim_k));
        KVG_TRY(kvg_gguf_u32(model, "attention.value_length_swa", 1, &facts->head_dim_v));
    }
    return KVG_OK;
}

static KvgStatus plan_attention(const GgufModel *model, uint32_t layer, bool sliding, StatePlan *plan)
{
    KvShapeFacts     facts = {.gemma = kvg_gguf_is_family(model, "gemma"), .window = sliding ? model->window : 0};
    const GgufEntry *entry = NULL;
    bool             listed = false;

    KVG_TRY(kvg_gguf_key(model, HEADS, &entry));
    if (entry == NULL) {
        return kvg_fail(KVG_EFORMAT, "%s: %s.attention.head_count is missing, and an attention layer cannot be planned without "
                        "it; mend the file", model->file.name, model->arch);
    }
    KVG_TRY(kvg_gguf_layer_u32(model, HEADS, layer, 1, &facts.query_heads, &listed));
    facts.kv_heads = facts.query_heads;
    KVG_TRY(kvg_gguf_layer_u32(model, KV_HEADS, layer, 1, &facts.kv_heads, &listed));
    if (facts.kv_heads == 0 || facts.query_heads == 0) {
        *plan = (StatePlan){.kind = KVG_STATE_NONE}; /* an array's 0: none here */
        return KVG_OK;
    }
    KVG_TRY(read_head_dims(model, sliding, &facts));
    return kvg_plan_kv(model->file.name, layer, &facts, plan);
}

static KvgStatus plan_latent(const GgufModel *model, uint32_t layer, StatePlan *plan)
{
    uint32_t kv_rank = 0, rope_dim = 0, index_dim = 0;

    KVG_TRY(kvg_gguf_need_u32(model, "attention.kv_lora_rank|kv_lora_rank", 1, &kv_rank));
    KVG_TRY(kvg_gguf_need_u32(model, "rope.dimension_count", 0, &rope_dim));
    KVG_TRY(kvg_gguf_u32(model, "attention.indexer.key_length", 1, &index_dim));
    return kvg_plan_latent(model->file.name, layer, kv_rank, rope_dim, index_dim > 0 ? KVG_INDEX_PER_TOKEN : KVG_INDEX_NONE,
                           index_dim, 0, plan);
}

/* ssm.* keys as the delta nets use them: group_count key heads, time_step_rank value heads, state_size wide. */
static KvgStatus plan_gdn(const GgufModel *model, uint32_t layer, uint32_t inner, uint32_t d_state, uint32_t kernel,
                          StatePlan *plan)
{
    uint32_t groups = 0, value_heads = 0;

    KVG_TRY(kvg_gguf_need_u32(model, "ssm.group_count", 1, &groups));
    KVG_TRY(kvg_gguf_need_u32(model, "ssm.time_step_rank", 1, &value_heads));
    if (inner % value_heads != 0) {
        return kvg_fail(KVG_EFORMAT, "%s: %s.ssm.inner_size %u is no multiple of ssm.time_step_rank %u; mend the file",
                        model->file.name, model->arch, inner, value_heads);
    }
    return kvg_plan_gdn(model->file.name, layer, groups, d_state, value_heads, inner / value_heads, kernel, plan);
}

static KvgStatus plan_mamba(const GgufModel *model, uint32_t layer, uint32_t inner, uint32_t d_state, uint32_t kernel,
                            StatePlan *plan)
{
    const GgufEntry *grouped = NULL;
    uint32_t         groups = 0, heads = 0;

    KVG_TRY(kvg_gguf_key(model, "ssm.group_count", &grouped));
    if (grouped == NULL) {
        return kvg_plan_mamba1(model->file.name, layer, inner, d_state, kernel, plan);
    }
    KVG_TRY(kvg_gguf_u32(model, "ssm.group_count", 1, &groups));
    KVG_TRY(kvg_gguf_need_u32(model, "ssm.time_step_rank", 1, &heads));
    if (inner % heads != 0) {
        return kvg_fail(KVG_EFORMAT, "%s: %s.ssm.inner_size %u is no multiple of ssm.time_step_rank %u; mend the file",
                        model->file.name, model->arch, inner, heads);
    }
    return kvg_plan_mamba2(model->file.name, layer, heads, inner / heads, groups, d_state, kernel, plan);
}

static KvgStatus plan_recurrent(const GgufModel *model, uint32_t layer, StatePlan *plan)
{
    const GgufEntry *kda = NULL;
    uint32_t         inner = 0, d_state = 0, kernel = 0, dim = 0, heads = 0;
    bool             listed = false;

    KVG_TRY(kvg_gguf_need_u32(model, "ssm.conv_kernel", 1, &kernel));
    KVG_TRY(kvg_gguf_key(model, "kda.head_dim", &kda));
    if (kda != NULL) {
        KVG_TRY(kvg_gguf_u32(model, "kda.head_dim", 1, &dim));
        KVG_TRY(kvg_gguf_layer_u32(model, HEADS, layer, 1, &heads, &listed));
        if (heads == 0) {
            return kvg_fail(KVG_EFORMAT, "%s: %s.attention.head_count gives layer %u, a delta layer, no heads; mend the file",
                            model->file.name, model->arch, layer);
        }
        return kvg_plan_kda(model->file.name, layer, heads, dim, kernel, plan);
    }
    KVG_TRY(kvg_gguf_need_u32(model, "ssm.inner_size", 1, &inner));
    KVG_TRY(kvg_gguf_need_u32(model, "ssm.state_size", 1, &d_state));
    return kvg_gguf_is_family(model, "qwen3") ? plan_gdn(model, layer, inner, d_state, kernel, plan)
                                              : plan_mamba(model, layer, inner, d_state, kernel, plan);
}

static KvgStatus plan_layer(const GgufModel *model, uint32_t layer, StatePlan *plan)
{
    switch (model->kinds[layer]) {
    case KVG_LAYER_FULL: return model->is_latent ? plan_latent(model, layer, plan) : plan_attention(model, layer, false, plan);
    case KVG_LAYER_SLIDING: return plan_attention(model, layer, true, plan);
    case KVG_LAYER_LINEAR: return plan_recurrent(model, layer, plan);
    default: *plan = (StatePlan){.kind = KVG_STATE_NONE}; return KVG_OK;
    }
}

/* ---- the model */

static KvgStatus read_arch(GgufModel *model)
{
    const GgufEntry *entry = NULL;

    KVG_TRY(kvg_gguf_find(&model->file, "general.architecture", &entry));
    if (entry == NULL || entry->type != GGUF_STRING || entry->count == 0 || entry->count >= sizeof model->arch ||
        memchr(entry->value, '\0', (size_t)entry->count) != NULL) {
        return kvg_fail(KVG_EFORMAT, "%s: general.architecture is missing or no short string; give a model's .gguf file (its "
                        "first part, if it is split)", model->file.name);
    }
    memcpy(model->arch, entry->value, (size_t)entry->count);
    return KVG_OK;
}

static KvgStatus refuse_unplanned(const GgufModel *model)
{
    const GgufEntry *entry = NULL;

    for (size_t i = 0; i < sizeof unplanned_archs / sizeof unplanned_archs[0]; i++) {
        if (kvg_gguf_is_family(model, unplanned_archs[i])) {
            return kvg_fail(KVG_ENOTSUP, "%s: general.architecture %s has a cache scheme that kvgrid does not plan; no option helps",
                            model->file.name, model->arch);
        }
    }
    KVG_TRY(kvg_gguf_key(model, "attention.compress_ratios|compress_ratios|shortconv.l_cache|wkv.head_size", &entry));
    if (entry != NULL) {
        return kvg_fail(KVG_ENOTSUP, "%s: %.*s names a cache scheme that kvgrid does not plan; no option helps", model->file.name,
                        (int)entry->key_bytes, entry->key);
    }
    return KVG_OK;
}

/* block_count counts the next-token blocks too, so the trunk is what is left. */
static KvgStatus read_counts(GgufModel *model)
{
    uint32_t blocks = 0;

    KVG_TRY(kvg_gguf_need_u32(model, "block_count", 1, &blocks));
    KVG_TRY(kvg_gguf_u32(model, "nextn_predict_layers", 0, &model->n_mtp));
    if (blocks > KVG_LAYERS_MAX || model->n_mtp >= blocks) {
        return kvg_fail(KVG_EFORMAT, "%s: %s.block_count %u with nextn_predict_layers %u makes no sense (1 to %u blocks, fewer of "
                        "them next-token blocks); mend the file", model->file.name, model->arch, blocks, model->n_mtp,
                        KVG_LAYERS_MAX);
    }
    model->n_layer = blocks - model->n_mtp;
    return KVG_OK;
}

static KvgStatus read_schemes(GgufModel *model, ModelConfig *config)
{
    const GgufEntry *entry = NULL;

    KVG_TRY(kvg_gguf_key(model, "context_length", &entry));
    if (entry != NULL) {
        KVG_TRY(kvg_gguf_number(&model->file, entry, 0, 1, INT64_MAX, &config->context));
    }
    KVG_TRY(kvg_gguf_key(model, "attention.kv_lora_rank|kv_lora_rank", &entry));
    model->is_latent = entry != NULL;
    KVG_TRY(kvg_gguf_key(model, "ssm.conv_kernel|ssm.state_size|ssm.inner_size|kda.head_dim", &entry));
    model->is_recurrent = entry != NULL;
    return KVG_OK;
}

static KvgStatus plan_layers(const GgufModel *model, ModelConfig *config)
{
    uint32_t shared = 0;

    for (uint32_t il = 0; il < model->n_layer + model->n_mtp; il++) {
        KVG_TRY(plan_layer(model, il, &config->plan.layers[il]));
    }
    KVG_TRY(kvg_gguf_u32(model, SHARED, 0, &shared));
    KVG_TRY(kvg_plan_share(model->file.name, SHARED, &config->plan, model->kinds, shared));
    return kvg_plan_inherit_mtp(model->file.name, "nextn_predict_layers", &config->plan, model->kinds);
}

static KvgStatus build(GgufModel *model, ModelConfig *config, GgufList *tensors)
{
    KVG_TRY(read_arch(model));
    snprintf(config->model_type, sizeof config->model_type, "%s", model->arch);
    KVG_TRY(refuse_unplanned(model));
    KVG_TRY(read_counts(model));
    KVG_TRY(read_schemes(model, config));
    KVG_TRY(kvg_plan_alloc(config, model->n_layer, model->n_mtp));
    KVG_TRY(KVG_NEW((size_t)model->n_layer + model->n_mtp, "layer kinds", &model->kinds)); /* kvg_gguf_parse frees it */
    KVG_TRY(kvg_gguf_layer_kinds(model));
    KVG_TRY(plan_layers(model, config));
    config->hidden_size = (uint32_t)kvg_gguf_guess(model, "embedding_length", 0, 0);
    config->query_heads = kvg_plan_query_heads(&config->plan);
    return kvg_gguf_weights(model, config, tensors);
}

KvgStatus kvg_gguf_parse(const void *bytes, size_t byte_count, const char *name, ModelConfig *config, bool *wants_more)
{
    ModelConfig fresh = {.context = 0};
    GgufModel   model = {.n_layer = 0};
    GgufList    tensors = GGUF_LIST_UNKNOWN;
    KvgStatus   status;

    if (bytes == NULL || name == NULL || config == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_model_config_parse_gguf: bytes, name and config must not be NULL");
    }
    snprintf(fresh.name, sizeof fresh.name, "%s", name);
    KVG_TRY(kvg_gguf_open(bytes, byte_count, name, &model.file, wants_more));
    KVG_TRY_GOTO(build(&model, &fresh, &tensors), out_free);
    *wants_more = tensors == GGUF_LIST_CUT;
    *config = fresh;
    fresh = (ModelConfig){.context = 0}; /* handed over */
out_free:
    kvg_free(model.kinds);
    kvg_model_config_free(&fresh);
    kvg_gguf_close(&model.file);
    return status;
}

KvgStatus kvg_model_config_parse_gguf(const void *bytes, size_t byte_count, const char *name, ModelConfig *config)
{
    bool wants_more = false;

    return kvg_gguf_parse(bytes, byte_count, name, config, &wants_more);
}

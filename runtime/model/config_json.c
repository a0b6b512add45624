#include "runtime/model/config_json.h"

#include <stdio.h>
#include <string.h>

#include <kvgrid/log.h>

#include "runtime/base/memory.h"

#define LAYERS  "num_hidden_layers|n_layers|n_layer|num_layers"
#define MTP     "num_nextn_predict_layers|mtp_num_hidden_layers|num_mtp_modules"
#define CONTEXT "max_position_embeddings|model_max_length|max_seq_len|seq_length|n_positions|n_ctx|max_sequence_length"
#define SHARED  "num_kv_shared_layers"

/* Keys of cache schemes that exist and are not planned: their presence changes what a layer keeps. */
static const char *const unplanned_keys[] = {"compress_ratios", "block_types", "block_configs", "attn_config", "cla_share_factor"};

/* Families whose layers hold two states side by side, or a scheme that no key names. */
static const char *const unplanned_families[] = {"llama4", "falcon_h1", "zamba", "hymba", "rwkv", "recurrent_gemma", "mamba",
                                                 "falcon_mamba"};

/* Whose configs need not say is_encoder_decoder. */
static const char *const encoder_decoders[] = {"t5", "mt5", "umt5", "longt5"};

/* Families whose configs were looked at, and of whom it is known what their layers keep. */
static const char *const known_families[] = {
    "bloom", "cohere2", "deepseek", "exaone4", "falcon", "gemma", "glm", "gpt2", "gpt_bigcode", "gpt_neox", "gpt_oss",
    "jamba", "kimi", "llama", "mimo", "minimax_m2", "mistral", "mixtral", "mpt", "nemotron", "olmo3", "opt", "phi3",
    "qwen", "starcoder", "step3p5",
};

/* Another family may keep what no field says. It is planned all the same, and the host program told. */
static void tell_unknown_family(const JsonModel *model)
{
    for (size_t i = 0; i < sizeof known_families / sizeof known_families[0]; i++) {
        if (model->model_type[0] == '\0' || kvg_json_is_family(model, known_families[i])) {
            return;
        }
    }
    kvg_log(KVG_LOG_WARN, "%s: model_type %s is not known here: its layers are read from the fields alone, as those of families that are known",
            model->fields.file, model->model_type);
}

static KvgStatus refuse_unplanned(const JsonModel *model)
{
    const JsonFields *fields = &model->fields;

    for (size_t i = 0; i < sizeof unplanned_keys / sizeof unplanned_keys[0]; i++) {
        if (kvg_field_has(fields, unplanned_keys[i])) {
            return kvg_fail(KVG_ENOTSUP, "%s: %s names a cache scheme that kvgrid does not plan; no option helps", fields->file,
                            unplanned_keys[i]);
        }
    }
    for (size_t i = 0; i < sizeof unplanned_families / sizeof unplanned_families[0]; i++) {
        if (kvg_json_is_family(model, unplanned_families[i])) {
            return kvg_fail(KVG_ENOTSUP, "%s: model_type %s has a cache scheme that kvgrid does not plan; no option helps", fields->file,
                            model->model_type);
        }
    }
    for (size_t i = 0; i < sizeof encoder_decoders / sizeof encoder_decoders[0]; i++) {
        if (kvg_json_is_family(model, encoder_decoders[i])) {
            return kvg_fail(KVG_ENOTSUP, "%s: model_type %s is an encoder-decoder; kvgrid plans decoder-only models, and no option helps",
                            fields->file, model->model_type);
        }
    }
    if (json_is_true(kvg_field_find(fields, "is_encoder_decoder").value)) {
        return kvg_fail(KVG_ENOTSUP, "%s: is_encoder_decoder is true; kvgrid plans decoder-only models, and no option helps", fields->file);
    }
    return KVG_OK;
}

static KvgStatus read_counts(JsonModel *model)
{
    JsonField layers = kvg_field_find(&model->fields, LAYERS);
    JsonField mtp = kvg_field_find(&model->fields, MTP);

    KVG_TRY(kvg_field_need_u32(&model->fields, LAYERS, 1, &model->n_layer));
    if (model->n_layer > KVG_LAYERS_MAX) {
        return kvg_field_fail(&model->fields, &layers, "is more layers than any model has (1024)");
    }
    KVG_TRY(kvg_field_u32(&model->fields, MTP, 0, &model->n_mtp));
    if (model->n_mtp > KVG_LAYERS_MAX - model->n_layer) {
        return kvg_field_fail(&model->fields, &mtp, "is more layers than any model has (1024 with the trunk)");
    }
    return KVG_OK;
}

static KvgStatus plan_layer(const JsonModel *model, uint32_t layer, StatePlan *plan)
{
    switch (model->kinds[layer]) {
    case KVG_LAYER_FULL:
        return model->is_latent ? kvg_json_plan_latent(model, layer, plan) : kvg_json_plan_attention(model, layer, false, plan);
    case KVG_LAYER_SLIDING: return kvg_json_plan_attention(model, layer, true, plan);
    case KVG_LAYER_LINEAR: return kvg_json_plan_recurrent(model, layer, plan);
    default: *plan = (StatePlan){.kind = KVG_STATE_NONE}; return KVG_OK;
    }
}

static KvgStatus plan_layers(const JsonModel *model, ModelConfig *config)
{
    uint32_t shared = 0;

    for (uint32_t il = 0; il < model->n_layer + model->n_mtp; il++) {
        KVG_TRY(plan_layer(model, il, &config->plan.layers[il]));
    }
    KVG_TRY(kvg_field_u32(&model->fields, SHARED, 0, &shared));
    KVG_TRY(kvg_plan_share(model->fields.file, SHARED, &config->plan, model->kinds, shared));
    return kvg_plan_inherit_mtp(model->fields.file, kvg_field_find(&model->fields, MTP).name, &config->plan, model->kinds);
}

static KvgStatus build(const json_t *root, const char *name, JsonModel *model, ModelConfig *config)
{
    const char *type;

    KVG_TRY(kvg_fields_open(root, name, &model->fields));
    type = kvg_field_string(&model->fields, "model_type");
    snprintf(model->model_type, sizeof model->model_type, "%s", type != NULL ? type : "");
    snprintf(config->model_type, sizeof config->model_type, "%s", model->model_type);
    KVG_TRY(refuse_unplanned(model));
    KVG_TRY(read_counts(model));
    KVG_TRY(kvg_field_u64(&model->fields, CONTEXT, 1, &config->context));
    model->is_latent = kvg_field_has(&model->fields, "kv_lora_rank");
    KVG_TRY(kvg_plan_alloc(config, model->n_layer, model->n_mtp));
    KVG_TRY(KVG_NEW((size_t)model->n_layer + model->n_mtp, "layer kinds", &model->kinds)); /* the caller frees it */
    KVG_TRY(kvg_json_layer_kinds(model));
    KVG_TRY(plan_layers(model, config));
    config->hidden_size = (uint32_t)kvg_field_guess(&model->fields, "hidden_size|dim|n_embd|d_model", 0);
    config->query_heads = kvg_plan_query_heads(&config->plan);
    kvg_json_estimate_weights(model, config);
    tell_unknown_family(model);
    return KVG_OK;
}

/* Python writes Infinity and NaN, which are no JSON (Nemotron-H's time_step_limit). Outside strings they become null,
 * padded to their length so that positions in messages stay true. */
static void blank_python_words(char *text, size_t bytes)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    bool                     in_string = false;

    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"') {
            in_string = !in_string;
        } else if (in_string && text[i] == '\\') {
            i++;
        }
        for (size_t w = 0; !in_string && w < sizeof words / sizeof words[0]; w++) {
            size_t length = strlen(words[w]);
            if (bytes - i >= length && memcmp(text + i, words[w], length) == 0) {
                memset(text + i, ' ', length);
                memcpy(text + i, length > 3 ? "null" : "0  ", length > 3 ? 4 : 3);
                break;
            }
        }
    }
}

/* A key that stands twice is refused: readers differ in which they believe. Some editors write a byte order mark. */
static KvgStatus parse_text(const char *text, size_t bytes, const char *name, json_t **root)
{
    json_error_t error;
    void        *copy = NULL;

    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        bytes -= 3;
    }
    KVG_TRY(kvg_calloc(bytes, 1, "a config's text", &copy));
    memcpy(copy, text, bytes);
    blank_python_words(copy, bytes);
    *root = json_loadb(copy, bytes, JSON_REJECT_DUPLICATES, &error);
    kvg_free(copy);
    if (*root == NULL) {
        return kvg_fail(KVG_EFORMAT, "%s: line %d, column %d: %s; give a model's config.json", name, error.line, error.column,
                        error.text);
    }
    return KVG_OK;
}

KvgStatus kvg_model_config_parse_json(const char *text, size_t bytes, const char *name, ModelConfig *config)
{
    ModelConfig fresh = {.context = 0};
    JsonModel   model = {.n_layer = 0};
    json_t     *root = NULL;
    KvgStatus   status;

    if (text == NULL || name == NULL || config == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_model_config_parse_json: text, name and config must not be NULL");
    }
    snprintf(fresh.name, sizeof fresh.name, "%s", name);
    KVG_TRY(parse_text(text, bytes, name, &root));
    KVG_TRY_GOTO(build(root, name, &model, &fresh), err_free);
    kvg_free(model.kinds);
    json_decref(root);
    *config = fresh;
    return KVG_OK;
err_free:
    kvg_free(model.kinds);
    kvg_model_config_free(&fresh);
    json_decref(root);
    return status;
}

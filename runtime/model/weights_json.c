/* Weight facts of a JSON config: MLP widths, experts and which layers have them, bytes a weight. */
#include "runtime/model/config_json.h"
#include "runtime/model/weights.h"

#include <stdlib.h>
#include <string.h>

#define BF16_PER_32 64u
#define F32_PER_32  128u
#define FP8_PER_32  32u
#define FP4_PER_32  17u /* 16 bytes of codes and a scale */

#define EXPERTS "n_routed_experts|num_experts|num_local_experts|moe_num_experts"

/* MLPs of two matrices instead of three. */
static const char *const plain_mlp_families[] = {"falcon", "starcoder", "gpt2", "gpt_bigcode", "gpt_neox", "opt", "bloom",
                                                 "mpt", "nemotron"};

static uint32_t mlp_matrices(const JsonModel *model)
{
    for (size_t i = 0; i < sizeof plain_mlp_families / sizeof plain_mlp_families[0]; i++) {
        if (kvg_json_is_family(model, plain_mlp_families[i])) {
            return 2;
        }
    }
    return 3;
}

/* ---- bytes a weight */

static uint32_t dtype_per_32(const JsonFields *fields)
{
    const char *dtype = kvg_field_string(fields, "torch_dtype|dtype");

    return dtype != NULL && strcmp(dtype, "float32") == 0 ? F32_PER_32 : BF16_PER_32;
}

/* compressed-tensors: config_groups.<any>.weights.num_bits of the first group that says. */
static uint64_t group_bits(const json_t *quantization)
{
    const char *key;
    json_t     *group;

    json_object_foreach(json_object_get(quantization, "config_groups"), key, group) {
        json_int_t bits = json_integer_value(json_object_get(json_object_get(group, "weights"), "num_bits"));
        if (bits > 0 && bits <= 16) {
            return (uint64_t)bits;
        }
    }
    return 8;
}

static void quantized_per_32(const JsonFields *fields, WeightFacts *facts)
{
    const json_t *quantization = kvg_field_find(fields, "quantization_config").value;
    const char   *method = json_string_value(json_object_get(quantization, "quant_method"));
    const char   *expert_dtype = kvg_field_string(fields, "expert_dtype");
    json_int_t    bits = json_integer_value(json_object_get(quantization, "bits"));

    if (method != NULL && (strcmp(method, "gptq") == 0 || strcmp(method, "awq") == 0)) {
        facts->bytes_per_32 = (uint32_t)(bits > 0 && bits <= 16 ? bits : 4) * 4 + 1; /* a 16-bit scale and zero a 128 */
    } else if (method != NULL && strcmp(method, "fp8") == 0) {
        facts->bytes_per_32 = FP8_PER_32;
    } else if (method != NULL && strcmp(method, "bitsandbytes") == 0) {
        facts->bytes_per_32 = json_is_true(json_object_get(quantization, "load_in_4bit")) ? FP4_PER_32 : FP8_PER_32;
    } else if (method != NULL && strcmp(method, "compressed-tensors") == 0) {
        facts->bytes_per_32 = (uint32_t)group_bits(quantization) * 4;
    }
    facts->expert_bytes_per_32 = facts->bytes_per_32;
    if ((method != NULL && strcmp(method, "mxfp4") == 0) || (expert_dtype != NULL && strcmp(expert_dtype, "fp4") == 0)) {
        facts->expert_bytes_per_32 = FP4_PER_32;
    }
}

/* ---- which layers have experts */

static bool listed(const json_t *list, uint32_t layer)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        if (json_is_integer(entry) && json_integer_value(entry) == (json_int_t)layer) {
            return true;
        }
    }
    return false;
}

/* "3,4,5" */
static bool listed_in_text(const char *text, uint32_t layer)
{
    while (*text != '\0') {
        char         *end = NULL;
        unsigned long number = strtoul(text, &end, 10);
        if (end != text && number == layer) {
            return true;
        }
        text = end + strcspn(end, ",");
        text += *text == ',';
    }
    return false;
}

/* Lists and strings with a word for every layer. True if one decided. */
static bool sparse_by_list(const JsonFields *fields, uint32_t layer, bool *sparse)
{
    const json_t *types = kvg_field_find(fields, "mlp_layer_types").value;
    const json_t *frequency = kvg_field_find(fields, "moe_layer_freq").value;
    const char   *numbers = kvg_field_string(fields, "moe_layers_enum");
    const char   *word = json_string_value(json_array_get(types, layer));

    if (word != NULL) {
        *sparse = strcmp(word, "sparse") == 0;
    } else if (layer < json_array_size(frequency)) {
        *sparse = json_integer_value(json_array_get(frequency, layer)) != 0;
    } else if (numbers != NULL) {
        *sparse = listed_in_text(numbers, layer);
    } else {
        return false;
    }
    return true;
}

static bool sparse_by_rule(const JsonFields *fields, uint32_t layer)
{
    uint64_t period = kvg_field_guess(fields, "expert_layer_period", 0);
    uint64_t step = kvg_field_guess(fields, "decoder_sparse_step", 1);
    uint64_t frequency = kvg_field_guess(fields, "moe_layer_freq", 1);

    if (layer < kvg_field_guess(fields, "first_k_dense_replace", 0) ||
        listed(kvg_field_find(fields, "mlp_only_layers").value, layer)) {
        return false;
    }
    if (period > 0) {
        return layer % period == kvg_field_guess(fields, "expert_layer_offset", 0);
    }
    return (step == 0 || (layer + 1) % step == 0) && (frequency == 0 || layer % frequency == 0);
}

static KvMlpKind mlp_kind(const JsonModel *model, const JsonFields *fields, const WeightFacts *facts, uint32_t layer)
{
    const char *letters = kvg_field_string(fields, "hybrid_override_pattern");
    bool        sparse = false;

    if (letters != NULL && layer < strlen(letters)) {
        return letters[layer] == 'E' ? KVG_MLP_SPARSE : letters[layer] == '-' ? KVG_MLP_DENSE : KVG_MLP_NONE;
    }
    if (facts->expert_count == 0) {
        return KVG_MLP_DENSE;
    }
    if (kvg_json_is_family(model, "gemma4")) {
        return KVG_MLP_BOTH; /* experts beside a dense MLP in every layer */
    }
    if (!sparse_by_list(fields, layer, &sparse)) {
        sparse = sparse_by_rule(fields, layer);
    }
    return sparse ? KVG_MLP_SPARSE : KVG_MLP_DENSE;
}

/* ---- all together */

static void read_widths(const JsonModel *model, const JsonFields *fields, WeightFacts *facts)
{
    uint64_t shared_count = kvg_field_guess(fields, "n_shared_experts|num_shared_experts", 0);
    uint64_t four_hidden = facts->hidden < UINT32_MAX ? 4 * facts->hidden : facts->hidden;

    facts->mlp_matrices = mlp_matrices(model);
    facts->dense_width = kvg_field_guess(fields, "intermediate_size|hidden_dim|ffn_hidden_size|n_inner", four_hidden);
    facts->expert_count = kvg_field_guess(fields, EXPERTS, 0);
    facts->expert_width = kvg_field_guess(fields, "moe_intermediate_size|expert_hidden_dim", facts->dense_width);
    facts->shared_width = kvg_field_guess(fields, "moe_shared_expert_intermediate_size|shared_expert_intermediate_size|"
                                          "share_expert_dim", UINT64_MAX);
    if (facts->shared_width == UINT64_MAX &&
        __builtin_mul_overflow(shared_count, facts->expert_width, &facts->shared_width)) {
        facts->shared_width = UINT64_MAX;
    }
}

static void read_facts(const JsonModel *model, const JsonFields *fields, WeightFacts *facts)
{
    facts->hidden = kvg_field_guess(fields, "hidden_size|dim|n_embd|d_model", 0);
    facts->vocab = kvg_field_guess(fields, "vocab_size|padded_vocab_size", 0);
    facts->tied = json_is_true(kvg_field_find(fields, "tie_word_embeddings|tied_embeddings").value);
    facts->latent_heads = kvg_field_guess(fields, "num_attention_heads|n_heads", 0);
    facts->q_lora_rank = kvg_field_guess(fields, "q_lora_rank", 0);
    facts->nope_dim = kvg_field_guess(fields, "qk_nope_head_dim", 0);
    facts->value_dim = kvg_field_guess(fields, "v_head_dim", facts->nope_dim);
    facts->index_heads = kvg_field_guess(fields, "index_n_heads", 0);
    facts->bytes_per_32 = facts->embedding_bytes_per_32 = dtype_per_32(fields);
    quantized_per_32(fields, facts);
    read_widths(model, fields, facts);
}

void kvg_json_estimate_weights(const JsonModel *model, ModelConfig *config)
{
    JsonFields    fields = model->fields;
    WeightFacts   facts = {.hidden = 0};
    const json_t *moe = kvg_field_find(&fields, "moe").value;

    if (json_is_object(moe) && fields.level_count < KVG_FIELD_LEVELS) {
        fields.levels[fields.level_count++] = moe; /* Mistral's params.json: looked at last */
    }
    read_facts(model, &fields, &facts);
    config->vocab_size = facts.vocab;
    for (uint32_t il = 0; il < config->plan.n_layer + config->plan.n_mtp; il++) {
        config->weight_bytes[il] = kvg_weight_layer_bytes(&facts, &config->plan, il, mlp_kind(model, &fields, &facts, il));
    }
    kvg_weight_ends(&facts, config);
}

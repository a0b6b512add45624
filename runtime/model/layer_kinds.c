/* Layer kinds: which mixer each layer of a JSON config has.
 *
 * The first of these that the config holds decides; an explicit list beats a pattern:
 *   layer_types | layers_block_type   a word a layer; entries past the trunk belong to MTP blocks
 *   hybrid_override_pattern           a letter a layer (Nemotron-H): M mamba, * attention, - and E blocks without state
 *   hybrid_layer_pattern              0 full, 1 windowed (MiMo)
 *   linear_attn_config                two lists of layer numbers, counted from 0 or from 1 (Kimi Linear, GLM)
 *   attn_layer_period, _offset        attention where il % period == offset (Jamba)
 *   full_attention_interval           attention every nth layer (Qwen3-Next)
 *   sliding_window with a pattern     every nth layer full (Gemma, Cohere), i >= max_window_layers (Qwen), or all windowed */
#include "runtime/model/config_json.h"

#include <string.h>

#define QWEN_MAX_WINDOW_LAYERS 28u /* transformers' default of Qwen2Config and Qwen3Config */

bool kvg_json_is_family(const JsonModel *model, const char *prefix)
{
    return strncmp(model->model_type, prefix, strlen(prefix)) == 0;
}

static void fill_kinds(JsonModel *model, KvLayerKind kind)
{
    memset(model->kinds, kind, model->n_layer);
}

/* ---- a word or letter a layer */

typedef struct KindWord {
    const char *word;
    KvLayerKind kind;
} KindWord;

static const KindWord kind_words[] = {
    {"full_attention", KVG_LAYER_FULL},
    {"attention", KVG_LAYER_FULL},
    {"deepseek_sparse_attention", KVG_LAYER_FULL},
    {"sliding_attention", KVG_LAYER_SLIDING},
    {"linear_attention", KVG_LAYER_LINEAR},
    {"mamba", KVG_LAYER_LINEAR},
    {"mamba2", KVG_LAYER_LINEAR},
    {"mlp", KVG_LAYER_NONE},
    {"moe", KVG_LAYER_NONE},
};

/* Words of schemes that exist and are not planned here. */
static const char *const unplanned_words[] = {
    "chunked_attention", "conv", "recurrent", "hybrid", "compressed_sparse_attention", "heavily_compressed_attention",
};

static KvgStatus kind_of_word(const JsonModel *model, const char *name, const json_t *list, size_t index, uint8_t *kind)
{
    JsonField   entry = kvg_list_entry(name, list, index);
    const char *word = json_string_value(entry.value);

    for (size_t i = 0; word != NULL && i < sizeof kind_words / sizeof kind_words[0]; i++) {
        if (strcmp(word, kind_words[i].word) == 0) {
            *kind = (uint8_t)kind_words[i].kind;
            return KVG_OK;
        }
    }
    for (size_t i = 0; word != NULL && i < sizeof unplanned_words / sizeof unplanned_words[0]; i++) {
        if (strcmp(word, unplanned_words[i]) == 0) {
            return kvg_fail(KVG_ENOTSUP, "%s: %s is \"%s\", a cache scheme that kvgrid does not plan; no option helps", model->fields.file,
                            entry.name, word);
        }
    }
    return kvg_field_fail(&model->fields, &entry, "is no kind of layer");
}

static KvgStatus kinds_by_words(JsonModel *model, const json_t *list, const char *name)
{
    uint32_t count = model->n_layer + model->n_mtp;

    for (uint32_t il = 0; il < count && il < json_array_size(list); il++) {
        KVG_TRY(kind_of_word(model, name, list, il, &model->kinds[il]));
    }
    return KVG_OK;
}

static KvgStatus kinds_by_letters(JsonModel *model)
{
    JsonField   field = kvg_field_find(&model->fields, "hybrid_override_pattern");
    const char *letters = json_string_value(field.value);

    if (letters == NULL || strlen(letters) < model->n_layer) {
        return kvg_field_fail(&model->fields, &field, "must be a string with a letter for every layer");
    }
    for (uint32_t il = 0; il < model->n_layer; il++) {
        switch (letters[il]) {
        case 'M': model->kinds[il] = KVG_LAYER_LINEAR; break;
        case '*': model->kinds[il] = KVG_LAYER_FULL; break;
        case '-':
        case 'E': model->kinds[il] = KVG_LAYER_NONE; break;
        default:
            return kvg_fail(KVG_EFORMAT, "%s: hybrid_override_pattern has '%c' for layer %u; the letters are M, *, - and E",
                            model->fields.file, letters[il], il);
        }
    }
    return KVG_OK;
}

/* ---- numbers */

static KvgStatus kinds_by_flags(JsonModel *model, const json_t *list)
{
    for (uint32_t il = 0; il < model->n_layer; il++) {
        uint32_t windowed = 0;
        KVG_TRY(kvg_list_u32(&model->fields, "hybrid_layer_pattern", list, il, 0, 1, &windowed));
        model->kinds[il] = windowed ? KVG_LAYER_SLIDING : KVG_LAYER_FULL;
    }
    return KVG_OK;
}

static bool list_holds(const json_t *list, json_int_t number)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        if (json_is_integer(entry) && json_integer_value(entry) == number) {
            return true;
        }
    }
    return false;
}

/* Two lists that name every layer show where they start to count: one holds 0, or the count is from 1. One list alone may
 * hold neither 0 nor the number of layers; then the family decides: GLM counts from 0, Kimi from 1. */
static uint32_t list_base(const JsonModel *model, const json_t *const lists[2])
{
    if (list_holds(lists[0], 0) || list_holds(lists[1], 0)) {
        return 0;
    }
    if (lists[0] != NULL && lists[1] != NULL) {
        return 1;
    }
    return kvg_json_is_family(model, "glm") && !list_holds(lists[0] != NULL ? lists[0] : lists[1], model->n_layer) ? 0 : 1;
}

static KvgStatus mark_listed(JsonModel *model, const char *name, const json_t *list, uint32_t base, KvLayerKind kind)
{
    for (size_t j = 0; j < json_array_size(list); j++) {
        uint32_t number = 0;
        KVG_TRY(kvg_list_u32(&model->fields, name, list, j, base, model->n_layer - 1 + base, &number));
        if (model->kinds[number - base] != KVG_LAYER_INHERIT) {
            return kvg_fail(KVG_EFORMAT, "%s: linear_attn_config.%s[%zu] names layer %u a second time; mend the config",
                            model->fields.file, name, j, number);
        }
        model->kinds[number - base] = (uint8_t)kind;
    }
    return KVG_OK;
}

/* With one list alone, the layers it does not name have the other kind; with both, each layer is named once. */
static KvgStatus kinds_by_lists(JsonModel *model)
{
    JsonFields    group;
    const json_t *lists[2];
    KvLayerKind   rest;
    uint32_t      base;

    KVG_TRY(kvg_fields_group(&model->fields, "linear_attn_config", &group));
    KVG_TRY(kvg_field_list(&group, "full_attn_layers", 0, &lists[0]));
    KVG_TRY(kvg_field_list(&group, "kda_layers", 0, &lists[1]));
    if (lists[0] == NULL && lists[1] == NULL) {
        return kvg_fail(KVG_EFORMAT, "%s: linear_attn_config has neither full_attn_layers nor kda_layers, and there is no "
                        "layer_types; mend the config", model->fields.file);
    }
    base = list_base(model, lists);
    fill_kinds(model, KVG_LAYER_INHERIT); /* not named yet */
    KVG_TRY(mark_listed(model, "full_attn_layers", lists[0], base, KVG_LAYER_FULL));
    KVG_TRY(mark_listed(model, "kda_layers", lists[1], base, KVG_LAYER_LINEAR));
    rest = lists[0] == NULL ? KVG_LAYER_FULL : KVG_LAYER_LINEAR;
    for (uint32_t il = 0; il < model->n_layer; il++) {
        if (model->kinds[il] == KVG_LAYER_INHERIT && lists[0] != NULL && lists[1] != NULL) {
            return kvg_fail(KVG_EFORMAT, "%s: linear_attn_config names layer %u in neither full_attn_layers nor kda_layers; "
                            "mend the config", model->fields.file, il + base);
        }
        if (model->kinds[il] == KVG_LAYER_INHERIT) {
            model->kinds[il] = (uint8_t)rest;
        }
    }
    return KVG_OK;
}

static KvgStatus kinds_by_period(JsonModel *model)
{
    uint32_t period = 8, offset = 4; /* transformers' JambaConfig */

    KVG_TRY(kvg_field_u32(&model->fields, "attn_layer_period", 1, &period));
    KVG_TRY(kvg_field_u32(&model->fields, "attn_layer_offset", 0, &offset));
    if (offset >= period) {
        JsonField field = kvg_field_find(&model->fields, "attn_layer_offset");
        return kvg_field_fail(&model->fields, &field, "must be less than attn_layer_period");
    }
    for (uint32_t il = 0; il < model->n_layer; il++) {
        model->kinds[il] = il % period == offset ? KVG_LAYER_FULL : KVG_LAYER_LINEAR;
    }
    return KVG_OK;
}

/* Every nth layer is full, the others are `other`. */
static void kinds_every(JsonModel *model, uint32_t n, KvLayerKind other)
{
    KVG_ASSERT(n > 0);
    for (uint32_t il = 0; il < model->n_layer; il++) {
        model->kinds[il] = (il + 1) % n == 0 ? KVG_LAYER_FULL : (uint8_t)other;
    }
}

static KvgStatus kinds_by_interval(JsonModel *model)
{
    uint32_t interval = 4; /* transformers' Qwen3NextConfig */

    KVG_TRY(kvg_field_u32(&model->fields, "full_attention_interval", 1, &interval));
    kinds_every(model, interval, KVG_LAYER_LINEAR);
    return KVG_OK;
}

/* ---- windows */

/* null, absent, or switched off: full attention. Qwen2 and Qwen3 count an absent switch as off. */
static KvgStatus read_window(JsonModel *model)
{
    bool use = !kvg_json_is_family(model, "qwen2") && !kvg_json_is_family(model, "qwen3");

    model->window = 0;
    KVG_TRY(kvg_field_bool(&model->fields, "use_sliding_window", &use));
    return use ? kvg_field_u64(&model->fields, "sliding_window|sliding_window_size", 1, &model->window) : KVG_OK;
}

/* Families whose configs may leave the pattern out, with transformers' default; the longer prefix stands first. */
static const struct {
    const char *prefix;
    uint32_t    every;
} window_families[] = {
    {"gemma3n", 5}, {"gemma2", 2}, {"gemma3", 6}, {"gemma4", 6}, {"gpt_oss", 2}, {"cohere2", 4}, {"olmo3", 4}, {"exaone4", 4},
};

/* "LLLG": L windowed, G full, repeated. */
static KvgStatus kinds_by_window_letters(JsonModel *model, const JsonField *field)
{
    const char *letters = json_string_value(field->value);
    size_t      count = strlen(letters);

    if (count == 0 || strspn(letters, "LG") != count) {
        return kvg_field_fail(&model->fields, field, "must be letters L and G");
    }
    for (uint32_t il = 0; il < model->n_layer; il++) {
        model->kinds[il] = letters[il % count] == 'L' ? KVG_LAYER_SLIDING : KVG_LAYER_FULL;
    }
    return KVG_OK;
}

static KvgStatus kinds_by_window_pattern(JsonModel *model)
{
    JsonField field = kvg_field_find(&model->fields, "sliding_window_pattern|_sliding_window_pattern");
    uint32_t  every = 0;

    for (size_t i = 0; i < sizeof window_families / sizeof window_families[0] && every == 0; i++) {
        every = kvg_json_is_family(model, window_families[i].prefix) ? window_families[i].every : 0;
    }
    if (json_is_string(field.value)) {
        return kinds_by_window_letters(model, &field);
    }
    KVG_TRY(kvg_field_u32(&model->fields, "sliding_window_pattern|_sliding_window_pattern", 1, &every));
    if (every == 0) {
        fill_kinds(model, KVG_LAYER_SLIDING);
        return KVG_OK;
    }
    kinds_every(model, every, KVG_LAYER_SLIDING);
    if (kvg_json_is_family(model, "gemma4")) {
        model->kinds[model->n_layer - 1] = KVG_LAYER_FULL; /* its last layer is always global */
    }
    return KVG_OK;
}

static KvgStatus kinds_by_window(JsonModel *model)
{
    uint32_t first = QWEN_MAX_WINDOW_LAYERS;

    if (!kvg_json_is_family(model, "qwen2") && !kvg_json_is_family(model, "qwen3")) {
        return kinds_by_window_pattern(model);
    }
    KVG_TRY(kvg_field_u32(&model->fields, "max_window_layers", 0, &first));
    for (uint32_t il = 0; il < model->n_layer; il++) {
        model->kinds[il] = il >= first ? KVG_LAYER_SLIDING : KVG_LAYER_FULL;
    }
    return KVG_OK;
}

/* MiniMax: 1 is softmax attention, 0 a lightning layer, whose state is not planned. */
static KvgStatus check_attn_types(const JsonModel *model)
{
    const json_t *list = NULL;

    KVG_TRY(kvg_field_list(&model->fields, "attn_type_list", model->n_layer, &list));
    for (uint32_t il = 0; list != NULL && il < model->n_layer; il++) {
        uint32_t softmax = 0;
        KVG_TRY(kvg_list_u32(&model->fields, "attn_type_list", list, il, 0, 1, &softmax));
        if (!softmax) {
            return kvg_fail(KVG_ENOTSUP, "%s: attn_type_list[%u] is 0, lightning attention, a cache scheme that kvgrid does "
                            "not plan", model->fields.file, il);
        }
    }
    return KVG_OK;
}

static KvgStatus trunk_kinds(JsonModel *model)
{
    const JsonFields *fields = &model->fields;
    const json_t     *list = NULL;
    JsonField         types = kvg_field_find(fields, "layer_types|layers_block_type");

    KVG_TRY(kvg_field_list(fields, "layer_types|layers_block_type", model->n_layer, &list));
    if (list != NULL) {
        return kinds_by_words(model, list, types.name);
    }
    if (kvg_field_has(fields, "hybrid_override_pattern")) {
        return kinds_by_letters(model);
    }
    KVG_TRY(kvg_field_list(fields, "hybrid_layer_pattern", model->n_layer, &list));
    if (list != NULL) {
        return kinds_by_flags(model, list);
    }
    if (kvg_field_has(fields, "linear_attn_config")) {
        return kinds_by_lists(model);
    }
    if (kvg_field_has(fields, "attn_layer_period") || kvg_json_is_family(model, "jamba")) {
        return kinds_by_period(model);
    }
    if (kvg_field_has(fields, "full_attention_interval") || kvg_json_is_family(model, "qwen3_next") ||
        kvg_json_is_family(model, "qwen3_5")) {
        return kinds_by_interval(model);
    }
    KVG_TRY(check_attn_types(model));
    fill_kinds(model, KVG_LAYER_FULL);
    if (model->is_latent) {
        return KVG_OK; /* every latent row is kept, whatever window the file still names */
    }
    KVG_TRY(read_window(model));
    return model->window > 0 ? kinds_by_window(model) : KVG_OK;
}

/* The window of models that name their windowed layers one by one. */
static KvgStatus settle_windowed(JsonModel *model)
{
    uint32_t windowed = 0;

    for (uint32_t il = 0; il < model->n_layer + model->n_mtp; il++) {
        windowed += model->kinds[il] == KVG_LAYER_SLIDING;
    }
    if (windowed == 0) {
        return KVG_OK;
    }
    KVG_TRY(read_window(model));
    if (model->window > 0 && model->is_latent) {
        return kvg_fail(KVG_ENOTSUP, "%s: sliding_window over latent rows (kv_lora_rank) is a cache scheme that kvgrid does "
                        "not plan", model->fields.file);
    }
    for (uint32_t il = 0; il < model->n_layer + model->n_mtp && model->window == 0; il++) {
        if (model->kinds[il] == KVG_LAYER_SLIDING) {
            model->kinds[il] = KVG_LAYER_FULL;
        }
    }
    return KVG_OK;
}

KvgStatus kvg_json_layer_kinds(JsonModel *model)
{
    memset(model->kinds + model->n_layer, KVG_LAYER_INHERIT, model->n_mtp);
    KVG_TRY(trunk_kinds(model));
    return settle_windowed(model);
}

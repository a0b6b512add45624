/* Latent (MLA) layers of a JSON config, and the DSA indexer beside them.
 *
 * num_key_value_heads and head_dim are written in these files too and say nothing about the cache.
 * An indexer is there when index_head_dim is: pooled when index_kpool names a pool, else a key a token. Which layers have
 * one of their own: indexer_types, else index_topk_pattern, else index_topk_freq, else all. A layer that shares another's
 * keeps none. */
#include "runtime/model/config_json.h"

#include <string.h>

static KvgStatus by_indexer_types(const JsonModel *model, const json_t *list, uint32_t layer, bool *own)
{
    JsonField   entry = kvg_list_entry("indexer_types", list, layer);
    const char *word = json_string_value(entry.value);

    if (layer >= model->n_layer && entry.value == NULL) {
        *own = true; /* an MTP block that the list does not reach */
        return KVG_OK;
    }
    if (word == NULL || (strcmp(word, "full") != 0 && strcmp(word, "shared") != 0)) {
        return kvg_field_fail(&model->fields, &entry, "must be \"full\" or \"shared\"");
    }
    *own = strcmp(word, "full") == 0;
    return KVG_OK;
}

static KvgStatus by_topk_pattern(const JsonModel *model, const JsonField *field, uint32_t layer, bool *own)
{
    const char *letters = json_string_value(field->value);

    if (letters == NULL || strlen(letters) < model->n_layer || strspn(letters, "FS") != strlen(letters)) {
        return kvg_field_fail(&model->fields, field, "must be a string with F or S for every layer");
    }
    *own = layer >= strlen(letters) || letters[layer] == 'F';
    return KVG_OK;
}

/* Layers below the offset select for themselves, then every nth one. */
static KvgStatus by_topk_frequency(const JsonModel *model, uint32_t layer, bool *own)
{
    uint32_t every = 1, offset = 2;

    KVG_TRY(kvg_field_u32(&model->fields, "index_topk_freq", 1, &every));
    if (every > 1) {
        KVG_TRY(kvg_field_u32(&model->fields, "index_skip_topk_offset", 0, &offset));
    }
    *own = (uint64_t)layer + 1 <= offset || ((uint64_t)layer + 1 - offset) % every == 0;
    return KVG_OK;
}

static KvgStatus owns_indexer(const JsonModel *model, uint32_t layer, bool *own)
{
    const json_t *list = NULL;
    JsonField     pattern = kvg_field_find(&model->fields, "index_topk_pattern");

    KVG_TRY(kvg_field_list(&model->fields, "indexer_types", model->n_layer, &list));
    if (list != NULL) {
        return by_indexer_types(model, list, layer, own);
    }
    if (pattern.value != NULL) {
        return by_topk_pattern(model, &pattern, layer, own);
    }
    return by_topk_frequency(model, layer, own);
}

KvgStatus kvg_json_plan_latent(const JsonModel *model, uint32_t layer, StatePlan *plan)
{
    const JsonFields *fields = &model->fields;
    uint32_t          kv_rank = 0, rope_dim = 0, index_dim = 0, pool = 0;
    KvIndexKind       index_kind = KVG_INDEX_NONE;
    bool              own = false;

    KVG_TRY(kvg_field_need_u32(fields, "kv_lora_rank", 1, &kv_rank));
    KVG_TRY(kvg_field_need_u32(fields, "qk_rope_head_dim", 0, &rope_dim));
    if (kvg_field_has(fields, "index_head_dim")) {
        KVG_TRY(owns_indexer(model, layer, &own));
    }
    if (own) {
        KVG_TRY(kvg_field_u32(fields, "index_head_dim", 1, &index_dim));
        KVG_TRY(kvg_field_u32(fields, "index_kpool", 1, &pool));
        index_kind = pool > 0 ? KVG_INDEX_POOLED : KVG_INDEX_PER_TOKEN;
    }
    return kvg_plan_latent(fields->file, layer, kv_rank, rope_dim, index_kind, index_dim, pool, plan);
}

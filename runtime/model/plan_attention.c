/* K/V layers of a JSON config: whose heads, how wide, per layer.
 *
 * Families say the same things under other names, or for windowed layers apart:
 *   falcon    multi_query without new_decoder_architecture: one K/V head, whatever else is written
 *   step 3.5  attention_other_setting holds the windowed layers' own numbers
 *   mimo      swa_* hold the windowed layers' own numbers; V is narrower than K
 *   gemma 4   global layers: global_head_dim, and num_global_key_value_heads when attention_k_eq_v */
#include "runtime/model/config_json.h"

#include <string.h>

#define HEADS    "num_attention_heads|n_heads|n_head|num_heads|num_query_heads"
#define KV_HEADS "num_key_value_heads|num_kv_heads|n_kv_heads|n_head_kv|num_attention_groups"
#define HEAD_DIM "head_dim|attention_head_dim|kv_channels"
#define HIDDEN   "hidden_size|dim|n_embd|d_model"

static KvgStatus read_query_heads(const JsonModel *model, uint32_t layer, uint32_t *heads)
{
    if (!kvg_field_has(&model->fields, HEADS)) {
        return kvg_field_missing(&model->fields, HEADS, "an attention layer cannot be planned");
    }
    return kvg_field_layer_u32(&model->fields, HEADS, layer, 1, heads);
}

/* One K/V head for all queries: Falcon's flag, on by default there, and GPT-BigCode's. */
static KvgStatus read_multi_query(const JsonModel *model, bool *multi_query)
{
    bool new_decoder = false;

    *multi_query = kvg_json_is_family(model, "falcon");
    KVG_TRY(kvg_field_bool(&model->fields, "multi_query", multi_query));
    if (*multi_query) {
        KVG_TRY(kvg_field_bool(&model->fields, "new_decoder_architecture", &new_decoder));
        *multi_query = !new_decoder;
    }
    return KVG_OK;
}

static KvgStatus read_kv_heads(const JsonModel *model, uint32_t layer, uint32_t query_heads, uint32_t *kv_heads)
{
    bool multi_query = false;

    *kv_heads = query_heads;
    if (!kvg_field_has(&model->fields, "num_key_value_heads")) {
        KVG_TRY(read_multi_query(model, &multi_query));
    }
    if (multi_query) {
        *kv_heads = 1;
        return KVG_OK;
    }
    return kvg_field_layer_u32(&model->fields, KV_HEADS, layer, 1, kv_heads);
}

static KvgStatus read_head_dim(const JsonModel *model, uint32_t query_heads, uint32_t *head_dim)
{
    uint32_t  hidden = 0;
    JsonField field = kvg_field_find(&model->fields, HIDDEN);

    if (kvg_field_has(&model->fields, HEAD_DIM)) {
        return kvg_field_u32(&model->fields, HEAD_DIM, 1, head_dim);
    }
    KVG_TRY(kvg_field_need_u32(&model->fields, HIDDEN, 1, &hidden));
    if (hidden % query_heads != 0) {
        return kvg_field_fail(&model->fields, &field, "is no multiple of num_attention_heads, and there is no head_dim");
    }
    *head_dim = hidden / query_heads;
    return KVG_OK;
}

/* What every layer has unless its kind says otherwise. */
static KvgStatus base_shape(const JsonModel *model, uint32_t layer, KvShapeFacts *facts)
{
    KVG_TRY(read_query_heads(model, layer, &facts->query_heads));
    if (facts->query_heads == 0) {
        facts->kv_heads = 0; /* a list entry: no attention in this layer */
        return KVG_OK;
    }
    KVG_TRY(read_kv_heads(model, layer, facts->query_heads, &facts->kv_heads));
    KVG_TRY(read_head_dim(model, facts->query_heads, &facts->head_dim_k));
    facts->head_dim_v = facts->head_dim_k;
    return kvg_field_u32(&model->fields, "v_head_dim", 1, &facts->head_dim_v);
}

/* Step 3.5: a group of its own numbers for the kind of layer that it names. */
static KvgStatus other_setting(const JsonModel *model, KvShapeFacts *facts)
{
    JsonFields  group;
    const char *type;

    KVG_TRY(kvg_fields_group(&model->fields, "attention_other_setting", &group));
    type = kvg_field_string(&group, "attention_type");
    if (type != NULL && strcmp(type, "sliding_attention") != 0) {
        return KVG_OK;
    }
    KVG_TRY(kvg_field_u32(&group, "num_attention_heads", 1, &facts->query_heads));
    KVG_TRY(kvg_field_u32(&group, "num_attention_groups|num_key_value_heads", 1, &facts->kv_heads));
    if (kvg_field_has(&group, "head_dim")) {
        KVG_TRY(kvg_field_u32(&group, "head_dim", 1, &facts->head_dim_k));
        facts->head_dim_v = facts->head_dim_k;
    }
    return KVG_OK;
}

static KvgStatus windowed_shape(const JsonModel *model, KvShapeFacts *facts)
{
    const JsonFields *fields = &model->fields;

    facts->window = model->window;
    if (kvg_field_has(fields, "attention_other_setting")) {
        KVG_TRY(other_setting(model, facts));
    }
    KVG_TRY(kvg_field_u32(fields, "swa_num_attention_heads", 1, &facts->query_heads));
    KVG_TRY(kvg_field_u32(fields, "swa_num_key_value_heads", 1, &facts->kv_heads));
    if (kvg_field_has(fields, "swa_head_dim")) {
        KVG_TRY(kvg_field_u32(fields, "swa_head_dim", 1, &facts->head_dim_k));
        facts->head_dim_v = facts->head_dim_k;
        KVG_TRY(kvg_field_u32(fields, "v_head_dim", 1, &facts->head_dim_v));
    }
    return kvg_field_u32(fields, "swa_v_head_dim", 1, &facts->head_dim_v);
}

static KvgStatus global_shape(const JsonModel *model, KvShapeFacts *facts)
{
    const JsonFields *fields = &model->fields;
    bool              k_eq_v = false;

    if (kvg_field_has(fields, "global_head_dim")) {
        KVG_TRY(kvg_field_u32(fields, "global_head_dim", 1, &facts->head_dim_k));
        facts->head_dim_v = facts->head_dim_k;
    }
    KVG_TRY(kvg_field_bool(fields, "attention_k_eq_v", &k_eq_v));
    return k_eq_v ? kvg_field_u32(fields, "num_global_key_value_heads", 1, &facts->kv_heads) : KVG_OK;
}

KvgStatus kvg_json_plan_attention(const JsonModel *model, uint32_t layer, bool sliding, StatePlan *plan)
{
    KvShapeFacts facts = {.gemma = kvg_json_is_family(model, "gemma")};

    KVG_TRY(base_shape(model, layer, &facts));
    if (sliding) {
        KVG_TRY(windowed_shape(model, &facts));
    } else if (kvg_json_is_family(model, "gemma4")) {
        KVG_TRY(global_shape(model, &facts));
    }
    if (facts.kv_heads == 0) {
        *plan = (StatePlan){.kind = KVG_STATE_NONE};
        return KVG_OK;
    }
    return kvg_plan_kv(model->fields.file, layer, &facts, plan);
}

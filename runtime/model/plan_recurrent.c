/* Recurrent layers of a JSON config. The field that only one kind has tells which it is:
 *   linear_attn_config    Kimi delta attention      linear_num_key_heads  gated delta net
 *   mamba_num_heads, ...  Mamba-2                   mamba_expand alone    Mamba-1 */
#include "runtime/model/config_json.h"

#define HIDDEN "hidden_size|dim|n_embd|d_model"

static KvgStatus plan_kda(const JsonModel *model, uint32_t layer, StatePlan *plan)
{
    JsonFields group;
    uint32_t   heads = 0, dim = 0, kernel = 0;

    KVG_TRY(kvg_fields_group(&model->fields, "linear_attn_config", &group));
    KVG_TRY(kvg_field_need_u32(&group, "num_heads", 1, &heads));
    KVG_TRY(kvg_field_need_u32(&group, "head_dim", 1, &dim));
    KVG_TRY(kvg_field_need_u32(&group, "short_conv_kernel_size", 1, &kernel));
    return kvg_plan_kda(model->fields.file, layer, heads, dim, kernel, plan);
}

static KvgStatus plan_gdn(const JsonModel *model, uint32_t layer, StatePlan *plan)
{
    const JsonFields *fields = &model->fields;
    uint32_t          key_heads = 0, key_dim = 0, value_heads = 0, value_dim = 0, kernel = 0;

    KVG_TRY(kvg_field_need_u32(fields, "linear_num_key_heads", 1, &key_heads));
    KVG_TRY(kvg_field_need_u32(fields, "linear_key_head_dim", 1, &key_dim));
    KVG_TRY(kvg_field_need_u32(fields, "linear_num_value_heads", 1, &value_heads));
    KVG_TRY(kvg_field_need_u32(fields, "linear_value_head_dim", 1, &value_dim));
    KVG_TRY(kvg_field_need_u32(fields, "linear_conv_kernel_dim", 1, &kernel));
    return kvg_plan_gdn(fields->file, layer, key_heads, key_dim, value_heads, value_dim, kernel, plan);
}

static KvgStatus plan_mamba2(const JsonModel *model, uint32_t layer, StatePlan *plan)
{
    const JsonFields *fields = &model->fields;
    uint32_t          heads = 0, dim = 0, groups = 0, d_state = 0, kernel = 0;

    KVG_TRY(kvg_field_need_u32(fields, "mamba_num_heads|mamba_n_heads", 1, &heads));
    KVG_TRY(kvg_field_need_u32(fields, "mamba_head_dim|mamba_d_head", 1, &dim));
    KVG_TRY(kvg_field_need_u32(fields, "n_groups|mamba_n_groups", 1, &groups));
    KVG_TRY(kvg_field_need_u32(fields, "ssm_state_size|mamba_d_state", 1, &d_state));
    KVG_TRY(kvg_field_need_u32(fields, "conv_kernel|mamba_d_conv", 1, &kernel));
    return kvg_plan_mamba2(fields->file, layer, heads, dim, groups, d_state, kernel, plan);
}

static KvgStatus plan_mamba1(const JsonModel *model, uint32_t layer, StatePlan *plan)
{
    const JsonFields *fields = &model->fields;
    uint32_t          hidden = 0, expand = 2, d_state = 0, kernel = 0, d_inner = 0;

    KVG_TRY(kvg_field_need_u32(fields, HIDDEN, 1, &hidden));
    KVG_TRY(kvg_field_need_u32(fields, "mamba_expand", 1, &expand));
    KVG_TRY(kvg_field_need_u32(fields, "mamba_d_state", 1, &d_state));
    KVG_TRY(kvg_field_need_u32(fields, "mamba_d_conv", 1, &kernel));
    if (__builtin_mul_overflow(hidden, expand, &d_inner)) {
        return kvg_fail(KVG_EOVERFLOW, "%s: layer %u: hidden_size %u x mamba_expand %u does not fit 32 bits; mend the config",
                        fields->file, layer, hidden, expand);
    }
    return kvg_plan_mamba1(fields->file, layer, d_inner, d_state, kernel, plan);
}

KvgStatus kvg_json_plan_recurrent(const JsonModel *model, uint32_t layer, StatePlan *plan)
{
    const JsonFields *fields = &model->fields;

    if (kvg_field_has(fields, "linear_attn_config")) {
        return plan_kda(model, layer, plan);
    }
    if (kvg_field_has(fields, "mamba_num_heads|mamba_n_heads")) {
        return plan_mamba2(model, layer, plan);
    }
    if (kvg_field_has(fields, "mamba_expand|mamba_d_state")) {
        return plan_mamba1(model, layer, plan);
    }
    return plan_gdn(model, layer, plan);
}

/* Small configs in JSON, written where they are used: loaded, refused by name, and what their layers are. */
#ifndef KVG_TEST_SMALL_CONFIG_H
#define KVG_TEST_SMALL_CONFIG_H

#include <check.h>
#include <string.h>

#include <kvgrid/model.h>

#include "tests/support/no_leak.h"

#define COUNT(rows) ((int)(sizeof(rows) / sizeof((rows)[0])))
/* A llama of 4 layers to which fields are added. */
#define LLAMA "\"num_hidden_layers\":4,\"hidden_size\":512,\"num_attention_heads\":8"

static inline KvgStatus parse(const char *text, ModelConfig *config)
{
    *config = (ModelConfig){.context = 0};
    return kvg_model_config_parse_json(text, strlen(text), "small.json", config);
}

static inline ModelConfig load(const char *text)
{
    ModelConfig config;

    ck_assert_msg(parse(text, &config) == KVG_OK, "%s: %s", text, kvg_last_error());
    return config;
}

static inline void refuse(const char *text, KvgStatus status, const char *naming)
{
    ModelConfig config;
    KvgStatus   got = parse(text, &config);

    ck_assert_msg(got == status, "%s: %s instead of %s: %s", text, kvg_status_name(got), kvg_status_name(status),
                  kvg_last_error());
    ck_assert_msg(strstr(kvg_last_error(), naming) != NULL, "\"%s\" does not name %s", kvg_last_error(), naming);
    ck_assert_ptr_null(config.plan.layers);
}

/* The kinds of the trunk's layers and of MTP blocks as letters: F full, W windowed, L latent, R recurrent, S shared, - none. */
static inline void check_kinds(const char *text, const char *letters)
{
    static const char kind_letters[KVG_STATE_KIND_COUNT] = {'-', 'F', 'W', 'L', 'R', 'S'};
    ModelConfig       config = load(text);
    char              seen[256] = "";

    for (uint32_t il = 0; il < config.plan.n_layer + config.plan.n_mtp; il++) {
        seen[il] = kind_letters[config.plan.layers[il].kind];
    }
    ck_assert_msg(strcmp(seen, letters) == 0, "%s: %s instead of %s", text, seen, letters);
    kvg_model_config_free(&config);
}

/* ---- whole models, and parts to which the rest is added */

#define LINEAR(lists) \
    "{\"num_hidden_layers\":5,\"num_attention_heads\":4,\"head_dim\":64,\"linear_attn_config\":{\"num_heads\":4," \
    "\"head_dim\":32,\"short_conv_kernel_size\":4," lists "}}"

#define MAMBA1 "\"hidden_size\":512,\"num_attention_heads\":8,\"mamba_expand\":2,\"mamba_d_state\":16,\"mamba_d_conv\":4"

#define MAMBA2(pattern) \
    "{\"model_type\":\"nemotron_h\",\"num_hidden_layers\":5,\"hidden_size\":512,\"num_attention_heads\":8,\"mamba_num_heads\":16," \
    "\"mamba_head_dim\":64,\"n_groups\":2,\"ssm_state_size\":128,\"conv_kernel\":4,\"hybrid_override_pattern\":" pattern "}"

#define GDN \
    "\"num_hidden_layers\":5,\"hidden_size\":512,\"num_attention_heads\":8,\"linear_num_key_heads\":2," \
    "\"linear_key_head_dim\":64,\"linear_num_value_heads\":4,\"linear_value_head_dim\":32,\"linear_conv_kernel_dim\":4"

#define MLA "\"num_hidden_layers\":4,\"kv_lora_rank\":512,\"qk_rope_head_dim\":64"

#endif

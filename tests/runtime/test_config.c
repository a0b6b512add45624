/* JSON configs, small ones written here: what each field means, which value wins, and what is refused by name. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvgrid/model.h>
#include <kvgrid/sizing.h>

#include "runtime/base/memory.h"

#define COUNT(rows) ((int)(sizeof(rows) / sizeof((rows)[0])))
/* A llama of 4 layers to which fields are added. */
#define LLAMA "\"num_hidden_layers\":4,\"hidden_size\":512,\"num_attention_heads\":8"

static KvgStatus parse(const char *text, ModelConfig *config)
{
    *config = (ModelConfig){.context = 0};
    return kvg_model_config_parse_json(text, strlen(text), "small.json", config);
}

static ModelConfig load(const char *text)
{
    ModelConfig config;

    ck_assert_msg(parse(text, &config) == KVG_OK, "%s: %s", text, kvg_last_error());
    return config;
}

static void refuse(const char *text, KvgStatus status, const char *naming)
{
    ModelConfig config;
    KvgStatus   got = parse(text, &config);

    ck_assert_msg(got == status, "%s: %s instead of %s: %s", text, kvg_status_name(got), kvg_status_name(status),
                  kvg_last_error());
    ck_assert_msg(strstr(kvg_last_error(), naming) != NULL, "\"%s\" does not name %s", kvg_last_error(), naming);
    ck_assert_ptr_null(config.plan.layers);
}

/* The kinds of the trunk's layers and of MTP blocks as letters: F full, W windowed, L latent, R recurrent, S shared, - none. */
static void check_kinds(const char *text, const char *letters)
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

static void check_heads(const char *text, uint32_t layer, uint32_t kv_heads, uint32_t dim_k, uint32_t dim_v)
{
    ModelConfig config = load(text);

    ck_assert_uint_eq(config.plan.layers[layer].u.kv.kv_heads, kv_heads);
    ck_assert_uint_eq(config.plan.layers[layer].u.kv.head_dim_k, dim_k);
    ck_assert_uint_eq(config.plan.layers[layer].u.kv.head_dim_v, dim_v);
    kvg_model_config_free(&config);
}

/* ---- heads */

START_TEST(test_an_explicit_head_dim_wins_and_null_or_absent_is_derived)
{
    check_heads("{\"num_hidden_layers\":1,\"hidden_size\":64,\"num_attention_heads\":4,\"head_dim\":32}", 0, 4, 32, 32);
    check_heads("{\"num_hidden_layers\":1,\"hidden_size\":64,\"num_attention_heads\":4,\"head_dim\":null}", 0, 4, 16, 16);
    check_heads("{\"num_hidden_layers\":1,\"hidden_size\":64,\"num_attention_heads\":4}", 0, 4, 16, 16);
    check_heads("{\"num_hidden_layers\":1,\"hidden_size\":3072,\"num_attention_heads\":16,\"head_dim\":256}", 0, 16, 256, 256);
    check_heads("{\"num_hidden_layers\":1,\"hidden_size\":2880,\"num_attention_heads\":64,\"head_dim\":64}", 0, 64, 64, 64);
    check_heads("{\"num_hidden_layers\":1,\"num_attention_heads\":32,\"num_key_value_heads\":8,\"attention_head_dim\":128}", 0, 8,
                128, 128);
    refuse("{\"num_hidden_layers\":1,\"hidden_size\":65,\"num_attention_heads\":4}", KVG_EFORMAT, "hidden_size");
    refuse("{\"num_hidden_layers\":1,\"num_attention_heads\":4}", KVG_EFORMAT, "hidden_size");
}
END_TEST

START_TEST(test_kv_heads_default_to_all_heads)
{
    check_heads("{" LLAMA "}", 0, 8, 64, 64);
    check_heads("{" LLAMA ",\"num_key_value_heads\":null}", 0, 8, 64, 64);
    check_heads("{" LLAMA ",\"num_key_value_heads\":2}", 0, 2, 64, 64);
    check_heads("{" LLAMA ",\"num_kv_heads\":4}", 0, 4, 64, 64);
    check_heads("{" LLAMA ",\"num_attention_groups\":1}", 0, 1, 64, 64);
}
END_TEST

START_TEST(test_falcon_has_one_head_unless_the_new_decoder_says_otherwise)
{
    ModelConfig config;
    KvSizing    sizing = {.format_k = KVG_F16, .format_v = KVG_F16};
    uint64_t    bytes = 0;

    kvg_policy_default(&sizing.policy);
    config = load("{\"model_type\":\"falcon\",\"num_hidden_layers\":60,\"hidden_size\":8192,\"num_attention_heads\":128,"
                  "\"num_kv_heads\":8,\"multi_query\":true,\"new_decoder_architecture\":true}");
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, 0, 60, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 122880);
    kvg_model_config_free(&config);
    config = load("{\"model_type\":\"falcon\",\"num_hidden_layers\":32,\"hidden_size\":4544,\"num_attention_heads\":71,"
                  "\"num_kv_heads\":71,\"multi_query\":true}");
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, 0, 32, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 8192);
    kvg_model_config_free(&config);
    check_heads("{\"model_type\":\"falcon\"," LLAMA ",\"multi_query\":false}", 0, 8, 64, 64);
    check_heads("{\"model_type\":\"gpt_bigcode\"," LLAMA ",\"multi_query\":true}", 0, 1, 64, 64);
    refuse("{\"model_type\":\"falcon\"," LLAMA ",\"multi_query\":1}", KVG_EFORMAT, "multi_query");
}
END_TEST

START_TEST(test_v_may_be_narrower_than_k)
{
    check_heads("{\"num_hidden_layers\":1,\"num_attention_heads\":64,\"num_key_value_heads\":4,\"head_dim\":192,"
                "\"v_head_dim\":128}", 0, 4, 192, 128);
}
END_TEST

START_TEST(test_windowed_layers_may_have_heads_of_their_own)
{
    static const char step[] =
        "{\"num_hidden_layers\":2,\"hidden_size\":4096,\"num_attention_heads\":64,\"num_attention_groups\":8,\"head_dim\":128,"
        "\"sliding_window\":512,\"layer_types\":[\"full_attention\",\"sliding_attention\"],\"attention_other_setting\":"
        "{\"attention_type\":\"sliding_attention\",\"num_attention_heads\":96,\"num_attention_groups\":4,\"head_dim\":64}}";
    static const char mimo[] =
        "{\"num_hidden_layers\":2,\"num_attention_heads\":64,\"num_key_value_heads\":4,\"head_dim\":192,\"v_head_dim\":128,"
        "\"sliding_window\":128,\"swa_num_attention_heads\":32,\"swa_num_key_value_heads\":8,\"swa_head_dim\":96,"
        "\"swa_v_head_dim\":64,\"hybrid_layer_pattern\":[0,1]}";
    ModelConfig config = load(step);

    ck_assert_uint_eq(config.plan.layers[0].u.kv.query_heads, 64);
    ck_assert_uint_eq(config.plan.layers[1].u.kv.query_heads, 96);
    kvg_model_config_free(&config);
    check_heads(step, 0, 8, 128, 128);
    check_heads(step, 1, 4, 64, 64);
    check_heads(mimo, 0, 4, 192, 128);
    check_heads(mimo, 1, 8, 96, 64);
    check_kinds(mimo, "FW");
}
END_TEST

#define GEMMA4 \
    "\"model_type\":\"gemma4_text\",\"num_hidden_layers\":2,\"hidden_size\":1024,\"num_attention_heads\":16," \
    "\"num_key_value_heads\":8,\"head_dim\":256,\"global_head_dim\":512,\"sliding_window\":64," \
    "\"layer_types\":[\"sliding_attention\",\"full_attention\"]"

START_TEST(test_gemma_4_global_layers_are_wider_and_may_have_fewer_heads)
{
    check_heads("{" GEMMA4 "}", 0, 8, 256, 256);
    check_heads("{" GEMMA4 "}", 1, 8, 512, 512);
    check_heads("{" GEMMA4 ",\"attention_k_eq_v\":true,\"num_global_key_value_heads\":2}", 1, 2, 512, 512);
    check_heads("{" GEMMA4 ",\"attention_k_eq_v\":true,\"num_global_key_value_heads\":2}", 0, 8, 256, 256);
    check_heads("{" GEMMA4 ",\"attention_k_eq_v\":false,\"num_global_key_value_heads\":2}", 1, 8, 512, 512);
    check_heads("{" GEMMA4 ",\"attention_k_eq_v\":true,\"num_global_key_value_heads\":null}", 1, 8, 512, 512);
}
END_TEST

START_TEST(test_mistral_params_have_names_of_their_own)
{
    ModelConfig config = load("{\"dim\":4096,\"n_layers\":2,\"n_heads\":32,\"n_kv_heads\":8,\"hidden_dim\":14336,"
                              "\"vocab_size\":32000,\"max_seq_len\":8192,\"sliding_window\":4096}");

    ck_assert_uint_eq(config.plan.n_layer, 2);
    ck_assert_uint_eq(config.plan.layers[1].u.kv.kv_heads, 8);
    ck_assert_uint_eq(config.plan.layers[1].u.kv.head_dim_v, 128);
    ck_assert_uint_eq(config.plan.layers[1].u.kv.window, 4096);
    ck_assert_uint_eq(config.hidden_size, 4096);
    ck_assert_uint_eq(config.context, 8192);
    ck_assert_uint_eq(config.vocab_size, 32000);
    kvg_model_config_free(&config);
}
END_TEST

START_TEST(test_a_list_of_heads_has_an_entry_a_layer_and_0_means_none)
{
    static const char text[] = "{\"num_hidden_layers\":3,\"hidden_size\":512,\"head_dim\":64,\"num_query_heads\":[8,8,4],"
                               "\"num_kv_heads\":[2,0,4]}";

    check_kinds(text, "F-F");
    check_heads(text, 0, 2, 64, 64);
    check_heads(text, 2, 4, 64, 64);
    refuse("{\"num_hidden_layers\":3,\"head_dim\":64,\"num_attention_heads\":[8,8]}", KVG_EFORMAT, "num_attention_heads");
    refuse("{\"num_hidden_layers\":1,\"head_dim\":64,\"num_attention_heads\":[\"8\"]}", KVG_EFORMAT, "num_attention_heads[0]");
}
END_TEST

/* ---- levels */

START_TEST(test_the_inner_level_wins_and_the_outer_fills_in)
{
    static const char *const nests[] = {"{\"text_config\":{%s}%s}", "{\"llm_config\":{%s}%s}",
                                        "{\"thinker_config\":{\"text_config\":{%s}}%s}"};

    for (int i = 0; i < COUNT(nests); i++) {
        char text[1024];
        snprintf(text, sizeof text, nests[i], LLAMA ",\"num_key_value_heads\":2", "");
        check_heads(text, 0, 2, 64, 64);
        snprintf(text, sizeof text, nests[i], LLAMA ",\"num_key_value_heads\":2", ",\"num_key_value_heads\":4,\"head_dim\":32");
        check_heads(text, 0, 2, 32, 32);
        snprintf(text, sizeof text, nests[i], LLAMA ",\"sliding_window\":null", ",\"sliding_window\":64");
        check_kinds(text, "FFFF"); /* the inner null says none */
        snprintf(text, sizeof text, nests[i], LLAMA, ",\"sliding_window\":64");
        check_kinds(text, "WWWW");
    }
    refuse("{\"text_config\":[1]," LLAMA "}", KVG_EFORMAT, "text_config");
    check_kinds("{\"text_config\":null," LLAMA "}", "FFFF");
}
END_TEST

/* ---- windows */

START_TEST(test_null_absent_or_switched_off_windows_are_full_attention)
{
    check_kinds("{" LLAMA ",\"sliding_window\":null}", "FFFF");
    check_kinds("{" LLAMA "}", "FFFF");
    check_kinds("{" LLAMA ",\"sliding_window\":64}", "WWWW");
    check_kinds("{" LLAMA ",\"sliding_window\":64,\"use_sliding_window\":false}", "FFFF");
    check_kinds("{" LLAMA ",\"sliding_window\":64,\"use_sliding_window\":true}", "WWWW");
    check_kinds("{" LLAMA ",\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"],"
                "\"sliding_window\":null}", "FFFF");
    refuse("{" LLAMA ",\"sliding_window\":0}", KVG_EFORMAT, "sliding_window");
    refuse("{" LLAMA ",\"sliding_window\":-1}", KVG_EFORMAT, "sliding_window");
    refuse("{" LLAMA ",\"sliding_window\":\"64\"}", KVG_EFORMAT, "sliding_window");
    refuse("{" LLAMA ",\"sliding_window\":64.5}", KVG_EFORMAT, "sliding_window");
}
END_TEST

START_TEST(test_qwen_windows_need_the_switch_and_start_at_max_window_layers)
{
    static const struct {
        int  layers;
        const char *fields;
        int  windowed;
    } rows[] = {
        {8, "\"sliding_window\":2048", 0},
        {8, "\"sliding_window\":2048,\"use_sliding_window\":true", 0}, /* the default is 28 layers */
        {36, "\"sliding_window\":2048,\"use_sliding_window\":true", 8},
        {36, "\"sliding_window\":2048,\"use_sliding_window\":true,\"max_window_layers\":36", 0},
        {36, "\"sliding_window\":2048,\"use_sliding_window\":true,\"max_window_layers\":28", 8},
        {36, "\"sliding_window\":2048,\"use_sliding_window\":true,\"max_window_layers\":0", 36},
        {36, "\"sliding_window\":null,\"use_sliding_window\":true,\"max_window_layers\":0", 0},
        {36, "\"sliding_window\":\"odd\",\"max_window_layers\":\"odd\"", 0}, /* not used, not judged */
    };

    for (int i = 0; i < COUNT(rows); i++) {
        for (int family = 0; family < 2; family++) {
            char        text[512];
            ModelConfig config;
            int         windowed = 0;
            snprintf(text, sizeof text, "{\"model_type\":\"%s\",\"num_hidden_layers\":%d,\"num_attention_heads\":8,"
                     "\"head_dim\":64,%s}", family ? "qwen3_moe" : "qwen2", rows[i].layers, rows[i].fields);
            config = load(text);
            for (int il = 0; il < rows[i].layers; il++) {
                bool here = config.plan.layers[il].kind == KVG_STATE_SLIDING_KV;
                ck_assert(!here || il >= rows[i].layers - rows[i].windowed);
                windowed += here;
            }
            ck_assert_int_eq(windowed, rows[i].windowed);
            kvg_model_config_free(&config);
        }
    }
}
END_TEST

#define NINE "\"num_hidden_layers\":9,\"num_attention_heads\":8,\"head_dim\":64,\"sliding_window\":32"

START_TEST(test_patterns_are_explicit_or_the_family_s_and_lists_beat_them)
{
    check_kinds("{\"model_type\":\"gemma3_text\"," NINE "}", "WWWWWFWWW");
    check_kinds("{\"model_type\":\"gemma3_text\"," NINE ",\"sliding_window_pattern\":3}", "WWFWWFWWF");
    check_kinds("{\"model_type\":\"gemma2\"," NINE "}", "WFWFWFWFW");
    check_kinds("{\"model_type\":\"gpt_oss\"," NINE "}", "WFWFWFWFW");
    check_kinds("{\"model_type\":\"gemma4_text\"," NINE "}", "WWWWWFWWF"); /* its last layer is global */
    check_kinds("{\"model_type\":\"exaone4\"," NINE ",\"sliding_window_pattern\":\"LLLG\"}", "WWWFWWWFW");
    check_kinds("{\"model_type\":\"gemma3\"," NINE ",\"sliding_window_pattern\":3,\"layer_types\":[\"full_attention\","
                "\"sliding_attention\",\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\","
                "\"full_attention\",\"full_attention\",\"full_attention\"]}", "FWFFFFFFF");
    refuse("{" NINE ",\"sliding_window_pattern\":0}", KVG_EFORMAT, "sliding_window_pattern");
    refuse("{" NINE ",\"sliding_window_pattern\":\"LXG\"}", KVG_EFORMAT, "sliding_window_pattern");
}
END_TEST

START_TEST(test_gemma_layers_belong_to_gemma_s_format_classes)
{
    ModelConfig config = load("{\"model_type\":\"gemma3_text\"," NINE "}");

    ck_assert_int_eq(config.plan.layers[0].u.kv.format_class, KVG_FORMAT_GEMMA_WINDOWED);
    ck_assert_int_eq(config.plan.layers[5].u.kv.format_class, KVG_FORMAT_GEMMA_GLOBAL);
    kvg_model_config_free(&config);
    config = load("{\"model_type\":\"mistral\"," NINE "}");
    ck_assert_int_eq(config.plan.layers[0].u.kv.format_class, KVG_FORMAT_ORDINARY);
    kvg_model_config_free(&config);
}
END_TEST

/* ---- lists */

START_TEST(test_layer_types_cover_every_layer_and_may_go_on_for_mtp_blocks)
{
    static const char types[] = "\"sliding_window\":32,\"layer_types\":[\"full_attention\",\"sliding_attention\","
                                "\"full_attention\",\"full_attention\",\"sliding_attention\"]";
    char              text[512];

    snprintf(text, sizeof text, "{" LLAMA ",%s}", types);
    check_kinds(text, "FWFF"); /* the entry that is left over belongs to no block */
    snprintf(text, sizeof text, "{" LLAMA ",%s,\"num_nextn_predict_layers\":2}", types);
    check_kinds(text, "FWFFWF"); /* its own entry, then the last attention layer's plan */
    refuse("{" LLAMA ",\"layer_types\":[\"full_attention\"]}", KVG_EFORMAT, "layer_types");
    refuse("{" LLAMA ",\"layer_types\":\"full_attention\"}", KVG_EFORMAT, "layer_types");
    refuse("{" LLAMA ",\"layer_types\":[\"full_attention\",\"full_attention\",\"odd\",\"full_attention\"]}", KVG_EFORMAT,
           "layer_types[2]");
    refuse("{" LLAMA ",\"layer_types\":[\"full_attention\",3,\"full_attention\",\"full_attention\"]}", KVG_EFORMAT,
           "layer_types[1]");
    refuse("{" LLAMA ",\"layer_types\":[\"chunked_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]}",
           KVG_ENOTSUP, "chunked_attention");
}
END_TEST

#define LINEAR(lists) \
    "{\"num_hidden_layers\":5,\"num_attention_heads\":4,\"head_dim\":64,\"linear_attn_config\":{\"num_heads\":4," \
    "\"head_dim\":32,\"short_conv_kernel_size\":4," lists "}}"

START_TEST(test_lists_of_layer_numbers_count_from_0_or_from_1)
{
    check_kinds(LINEAR("\"full_attn_layers\":[1,4],\"kda_layers\":[0,2,3]"), "RFRRF");
    check_kinds(LINEAR("\"full_attn_layers\":[2,5],\"kda_layers\":[1,3,4]"), "RFRRF");
    check_kinds(LINEAR("\"full_attn_layers\":[2,5]"), "RFRRF"); /* 5 of 5 counts from 1 */
    check_kinds(LINEAR("\"full_attn_layers\":[0,4]"), "FRRRF");
    check_kinds(LINEAR("\"kda_layers\":[0,1,2]"), "RRRFF");
    refuse(LINEAR("\"full_attn_layers\":[1,4],\"kda_layers\":[0,2]"), KVG_EFORMAT, "names layer 3 in neither");
    refuse(LINEAR("\"full_attn_layers\":[1,4],\"kda_layers\":[0,2,3,4]"), KVG_EFORMAT, "names layer 4 a second time");
    refuse(LINEAR("\"full_attn_layers\":[1,1],\"kda_layers\":[0,2,3,4]"), KVG_EFORMAT, "names layer 1 a second time");
    refuse(LINEAR("\"full_attn_layers\":[1,5],\"kda_layers\":[0,2,3,4]"), KVG_EFORMAT, "full_attn_layers[1]");
    refuse(LINEAR("\"full_attn_layers\":[2,6],\"kda_layers\":[1,3,4]"), KVG_EFORMAT, "full_attn_layers[1]");
    refuse(LINEAR("\"full_attn_layers\":[2,-1],\"kda_layers\":[1,3,4]"), KVG_EFORMAT, "full_attn_layers[1]");
    refuse(LINEAR("\"full_attn_layers\":[2,\"5\"],\"kda_layers\":[1,3,4]"), KVG_EFORMAT, "full_attn_layers[1]");
    refuse(LINEAR("\"other\":1"), KVG_EFORMAT, "full_attn_layers");
}
END_TEST

/* 93 layers, 24 of them full, numbered from 1: 4, 8, ..., 92 and 93. */
START_TEST(test_a_list_from_1_that_ends_past_the_last_index_names_24_layers)
{
    char        text[2048], *end = text;
    ModelConfig config;
    int         full = 0;

    end += sprintf(end, "{\"model_type\":\"kimi_linear\",\"num_hidden_layers\":93,\"num_attention_heads\":4,\"head_dim\":64,"
                   "\"linear_attn_config\":{\"num_heads\":4,\"head_dim\":32,\"short_conv_kernel_size\":4,\"full_attn_layers\":[");
    for (int layer = 4; layer <= 92; layer += 4) {
        end += sprintf(end, "%d,", layer);
    }
    sprintf(end, "93]}}");
    config = load(text);
    for (uint32_t il = 0; il < 93; il++) {
        bool here = config.plan.layers[il].kind == KVG_STATE_KV;
        ck_assert(here == (il % 4 == 3 || il == 92));
        full += here;
    }
    ck_assert_int_eq(full, 24);
    kvg_model_config_free(&config);
}
END_TEST

#define MAMBA1 "\"hidden_size\":512,\"num_attention_heads\":8,\"mamba_expand\":2,\"mamba_d_state\":16,\"mamba_d_conv\":4"

START_TEST(test_jamba_takes_attention_by_period_and_offset)
{
    check_kinds("{\"num_hidden_layers\":9," MAMBA1 ",\"attn_layer_period\":4,\"attn_layer_offset\":2}", "RRFRRRFRR");
    check_kinds("{\"model_type\":\"jamba\",\"num_hidden_layers\":9," MAMBA1 "}", "RRRRFRRRR");
    refuse("{\"num_hidden_layers\":9," MAMBA1 ",\"attn_layer_period\":0,\"attn_layer_offset\":0}", KVG_EFORMAT,
           "attn_layer_period");
    refuse("{\"num_hidden_layers\":9," MAMBA1 ",\"attn_layer_period\":4,\"attn_layer_offset\":4}", KVG_EFORMAT,
           "attn_layer_offset");
}
END_TEST

#define MAMBA2(pattern) \
    "{\"model_type\":\"nemotron_h\",\"num_hidden_layers\":5,\"hidden_size\":512,\"num_attention_heads\":8,\"mamba_num_heads\":16," \
    "\"mamba_head_dim\":64,\"n_groups\":2,\"ssm_state_size\":128,\"conv_kernel\":4,\"hybrid_override_pattern\":" pattern "}"

START_TEST(test_nemotron_s_letters_say_which_layers_keep_anything)
{
    check_kinds(MAMBA2("\"M*-EM\""), "RF--R");
    refuse(MAMBA2("\"M*-E\""), KVG_EFORMAT, "hybrid_override_pattern");
    refuse(MAMBA2("\"M*-Ex\""), KVG_EFORMAT, "hybrid_override_pattern");
    refuse(MAMBA2("5"), KVG_EFORMAT, "hybrid_override_pattern");
}
END_TEST

START_TEST(test_of_88_layers_48_keep_state)
{
    char        text[1024], letters[89];
    ModelConfig config;
    int         kept = 0;

    memset(letters, '-', 88);
    for (int i = 0; i < 88; i++) {
        letters[i] = i % 11 == 5 ? '*' : i % 11 % 2 == 0 && i % 11 < 10 ? 'M' : '-';
    }
    letters[88] = '\0';
    snprintf(text, sizeof text, "{\"num_hidden_layers\":88,\"hidden_size\":512,\"num_attention_heads\":8,\"mamba_num_heads\":16,"
             "\"mamba_head_dim\":64,\"n_groups\":2,\"ssm_state_size\":128,\"conv_kernel\":4,\"hybrid_override_pattern\":\"%s\"}",
             letters);
    config = load(text);
    for (uint32_t il = 0; il < 88; il++) {
        kept += config.plan.layers[il].kind != KVG_STATE_NONE;
    }
    ck_assert_int_eq(kept, 48);
    kvg_model_config_free(&config);
}
END_TEST

#define GDN \
    "\"num_hidden_layers\":5,\"hidden_size\":512,\"num_attention_heads\":8,\"linear_num_key_heads\":2," \
    "\"linear_key_head_dim\":64,\"linear_num_value_heads\":4,\"linear_value_head_dim\":32,\"linear_conv_kernel_dim\":4"

START_TEST(test_every_nth_layer_is_full_in_qwen3_next)
{
    check_kinds("{" GDN ",\"full_attention_interval\":2}", "RFRFR");
    check_kinds("{\"model_type\":\"qwen3_next\"," GDN "}", "RRRFR");
    check_kinds("{" GDN ",\"full_attention_interval\":2,\"layer_types\":[\"full_attention\",\"linear_attention\","
                "\"linear_attention\",\"linear_attention\",\"full_attention\"]}", "FRRRF");
    refuse("{" GDN ",\"full_attention_interval\":0}", KVG_EFORMAT, "full_attention_interval");
}
END_TEST

START_TEST(test_minimax_s_list_of_ones_is_full_attention_and_a_zero_is_not_planned)
{
    check_kinds("{" LLAMA ",\"attn_type_list\":[1,1,1,1]}", "FFFF");
    refuse("{" LLAMA ",\"attn_type_list\":[1,0,1,1]}", KVG_ENOTSUP, "attn_type_list[1]");
    refuse("{" LLAMA ",\"attn_type_list\":[1,1]}", KVG_EFORMAT, "attn_type_list");
    refuse("{" LLAMA ",\"attn_type_list\":[1,1,2,1]}", KVG_EFORMAT, "attn_type_list[2]");
}
END_TEST

/* ---- recurrent parts */

static void check_parts(const char *text, uint32_t layer, const RecurrentPart *parts, uint32_t count)
{
    ModelConfig          config = load(text);
    const RecurrentPlan *plan = &config.plan.layers[layer].u.recurrent;
    uint64_t             conv = 0, state = 0;

    ck_assert_int_eq(config.plan.layers[layer].kind, KVG_STATE_RECURRENT);
    ck_assert_uint_eq(plan->part_count, count);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_eq(plan->parts[i].heads, parts[i].heads);
        ck_assert_uint_eq(plan->parts[i].width, parts[i].width);
        ck_assert_uint_eq(plan->parts[i].is_state, parts[i].is_state);
        *(parts[i].is_state ? &state : &conv) += (uint64_t)parts[i].heads * parts[i].width;
    }
    ck_assert_uint_eq(plan->conv_width, conv);
    ck_assert_uint_eq(plan->state_width, state);
    ck_assert_uint_eq(plan->conv_kernel, 4);
    kvg_model_config_free(&config);
}

START_TEST(test_recurrent_parts_are_cut_by_their_own_heads)
{
    static const RecurrentPart gdn[] = {{2, 64, 0}, {2, 64, 0}, {4, 32, 0}, {4, 32 * 64, 1}};
    static const RecurrentPart kda[] = {{4, 32, 0}, {4, 32, 0}, {4, 32, 0}, {4, 32 * 32, 1}};
    static const RecurrentPart mamba2[] = {{16, 64, 0}, {2, 128, 0}, {2, 128, 0}, {16, 64 * 128, 1}};
    static const RecurrentPart mamba1[] = {{1024, 1, 0}, {1024, 16, 1}};

    check_parts("{" GDN ",\"full_attention_interval\":4}", 0, gdn, 4);
    check_parts(LINEAR("\"full_attn_layers\":[1,4],\"kda_layers\":[0,2,3]"), 0, kda, 4);
    check_parts(MAMBA2("\"M*-EM\""), 4, mamba2, 4);
    check_parts("{\"model_type\":\"jamba\",\"num_hidden_layers\":9," MAMBA1 "}", 0, mamba1, 2);
}
END_TEST

/* ---- latent */

#define MLA "\"num_hidden_layers\":4,\"kv_lora_rank\":512,\"qk_rope_head_dim\":64"

START_TEST(test_latent_layers_need_rank_and_rope_and_judge_nothing_else)
{
    ModelConfig config;

    check_kinds("{" MLA "}", "LLLL");
    check_kinds("{" MLA ",\"head_dim\":-3,\"num_key_value_heads\":\"odd\",\"num_attention_heads\":0,\"sliding_window\":128}", "LLLL");
    config = load("{\"num_hidden_layers\":1,\"kv_lora_rank\":512,\"qk_rope_head_dim\":0}");
    ck_assert_uint_eq(config.plan.layers[0].u.latent.width, 512);
    kvg_model_config_free(&config);
    refuse("{\"num_hidden_layers\":1,\"kv_lora_rank\":512}", KVG_EFORMAT, "qk_rope_head_dim");
    refuse("{\"num_hidden_layers\":1,\"kv_lora_rank\":0,\"qk_rope_head_dim\":64}", KVG_EFORMAT, "kv_lora_rank");
    refuse("{\"num_hidden_layers\":1,\"kv_lora_rank\":512,\"qk_rope_head_dim\":-64}", KVG_EFORMAT, "qk_rope_head_dim");
    refuse("{\"num_hidden_layers\":1,\"kv_lora_rank\":4294967295,\"qk_rope_head_dim\":64}", KVG_EOVERFLOW, "kv_lora_rank");
    check_kinds("{" LLAMA ",\"kv_lora_rank\":null}", "FFFF");
}
END_TEST

static void check_indexers(const char *text, const char *letters)
{
    static const char index_letters[] = {'-', 'P', 'T'};
    ModelConfig       config = load(text);
    char              seen[64] = "";

    for (uint32_t il = 0; il < config.plan.n_layer + config.plan.n_mtp; il++) {
        seen[il] = index_letters[config.plan.layers[il].u.latent.index_kind];
    }
    ck_assert_msg(strcmp(seen, letters) == 0, "%s: %s instead of %s", text, seen, letters);
    kvg_model_config_free(&config);
}

START_TEST(test_indexers_are_full_or_shared_pooled_or_a_key_a_token)
{
    ModelConfig config;

    check_indexers("{" MLA "}", "----");
    check_indexers("{" MLA ",\"index_head_dim\":128}", "TTTT");
    check_indexers("{" MLA ",\"index_head_dim\":128,\"indexer_types\":[\"full\",\"shared\",\"shared\",\"full\"]}", "T--T");
    check_indexers("{" MLA ",\"index_head_dim\":128,\"index_topk_freq\":2,\"index_skip_topk_offset\":1}", "T-T-");
    check_indexers("{" MLA ",\"index_head_dim\":128,\"index_topk_pattern\":\"FSSF\"}", "T--T");
    check_indexers("{" MLA ",\"index_head_dim\":128,\"index_kpool\":4}", "PPPP");
    check_indexers("{" MLA ",\"index_head_dim\":128,\"num_nextn_predict_layers\":1}", "TTTTT");
    config = load("{" MLA ",\"index_head_dim\":128,\"index_kpool\":4}");
    ck_assert_uint_eq(config.plan.layers[0].u.latent.index_width, 256);
    ck_assert_uint_eq(config.plan.layers[0].u.latent.index_pool, 4);
    kvg_model_config_free(&config);
    config = load("{" MLA ",\"index_head_dim\":128}");
    ck_assert_uint_eq(config.plan.layers[0].u.latent.index_width, 128);
    ck_assert_uint_eq(config.plan.layers[0].u.latent.index_pool, 0);
    kvg_model_config_free(&config);
    refuse("{" MLA ",\"index_head_dim\":0}", KVG_EFORMAT, "index_head_dim");
    refuse("{" MLA ",\"index_head_dim\":128,\"index_kpool\":0}", KVG_EFORMAT, "index_kpool");
    refuse("{" MLA ",\"index_head_dim\":128,\"indexer_types\":[\"full\"]}", KVG_EFORMAT, "indexer_types");
    refuse("{" MLA ",\"index_head_dim\":128,\"indexer_types\":[\"full\",\"half\",\"full\",\"full\"]}", KVG_EFORMAT,
           "indexer_types[1]");
}
END_TEST

/* 78 layers of which 21 have an indexer, said by numbers instead of a list: the list of glm-5.2 itself. */
START_TEST(test_the_frequency_gives_the_same_21_indexers_as_the_list)
{
    ModelConfig listed = {.context = 0}, counted;

    ck_assert_int_eq(kvg_model_config_load(KVG_TEST_DATA "/models/glm-5.2.json", &listed), KVG_OK);
    counted = load("{\"num_hidden_layers\":78,\"kv_lora_rank\":512,\"qk_rope_head_dim\":64,\"index_head_dim\":128,"
                   "\"index_topk_freq\":4,\"index_skip_topk_offset\":3}");
    for (uint32_t il = 0; il < 78; il++) {
        ck_assert_int_eq(listed.plan.layers[il].u.latent.index_kind, counted.plan.layers[il].u.latent.index_kind);
    }
    kvg_model_config_free(&listed);
    kvg_model_config_free(&counted);
}
END_TEST

/* ---- sharing and MTP */

#define SHARING(count) \
    "{\"model_type\":\"gemma3n_text\",\"num_hidden_layers\":35,\"num_attention_heads\":8,\"num_key_value_heads\":2," \
    "\"head_dim\":256,\"sliding_window\":512,\"num_kv_shared_layers\":" count "}"

START_TEST(test_shared_layers_read_the_last_owner_of_their_kind)
{
    ModelConfig config = load(SHARING("15"));
    int         full = 0, windowed = 0;

    for (uint32_t il = 0; il < 35; il++) {
        full += config.plan.layers[il].kind == KVG_STATE_KV;
        windowed += config.plan.layers[il].kind == KVG_STATE_SLIDING_KV;
        if (il >= 20) {
            ck_assert_int_eq(config.plan.layers[il].kind, KVG_STATE_SHARED);
            ck_assert_uint_eq(config.plan.layers[il].u.shared_source, il % 5 == 4 ? 19 : 18);
        }
    }
    ck_assert_int_eq(full, 4);
    ck_assert_int_eq(windowed, 16);
    kvg_model_config_free(&config);
    config = load(SHARING("0"));
    ck_assert_int_ne(config.plan.layers[34].kind, KVG_STATE_SHARED);
    kvg_model_config_free(&config);
    refuse(SHARING("35"), KVG_EFORMAT, "num_kv_shared_layers");
    refuse(SHARING("36"), KVG_EFORMAT, "num_kv_shared_layers");
    refuse(SHARING("32"), KVG_EFORMAT, "num_kv_shared_layers"); /* layer 34 is full, and no full layer owns rows */
    refuse(SHARING("-1"), KVG_EFORMAT, "num_kv_shared_layers");
}
END_TEST

START_TEST(test_latent_rows_are_not_shared)
{
    check_kinds("{" MLA ",\"num_kv_shared_layers\":0}", "LLLL");
    refuse("{" MLA ",\"num_kv_shared_layers\":1}", KVG_ENOTSUP, "num_kv_shared_layers is 1, and layer 3 is latent");
    refuse("{" MLA ",\"num_kv_shared_layers\":3}", KVG_ENOTSUP, "layer 1 is latent");
}
END_TEST

START_TEST(test_mtp_counts_have_three_names_and_zero_is_legal)
{
    check_kinds("{" LLAMA ",\"num_nextn_predict_layers\":0}", "FFFF");
    check_kinds("{" LLAMA ",\"num_nextn_predict_layers\":1}", "FFFFF");
    check_kinds("{" LLAMA ",\"mtp_num_hidden_layers\":1}", "FFFFF");
    check_kinds("{" LLAMA ",\"num_mtp_modules\":3}", "FFFFFFF");
    check_kinds("{" GDN ",\"full_attention_interval\":4,\"mtp_num_hidden_layers\":1}", "RRRFRF");
    refuse("{" LLAMA ",\"num_nextn_predict_layers\":-1}", KVG_EFORMAT, "num_nextn_predict_layers");
    refuse("{" LLAMA ",\"num_nextn_predict_layers\":4000000000}", KVG_EFORMAT, "num_nextn_predict_layers");
    refuse("{\"num_hidden_layers\":3,\"hidden_size\":512,\"mamba_expand\":2,\"mamba_d_state\":16,\"mamba_d_conv\":4,"
           "\"layer_types\":[\"mamba\",\"mamba\",\"mamba\"],\"num_nextn_predict_layers\":1}", KVG_EFORMAT,
           "num_nextn_predict_layers");
}
END_TEST

/* ---- refusals */

START_TEST(test_schemes_that_are_not_planned_are_named)
{
    refuse("{" LLAMA ",\"compress_ratios\":[0,4,128,4]}", KVG_ENOTSUP, "compress_ratios");
    refuse("{\"text_config\":{" LLAMA ",\"compress_ratios\":[0]}}", KVG_ENOTSUP, "compress_ratios");
    check_kinds("{" LLAMA ",\"compress_ratios\":null}", "FFFF");
    refuse("{\"model_type\":\"llama4_text\"," LLAMA "}", KVG_ENOTSUP, "llama4");
    refuse("{" LLAMA ",\"is_encoder_decoder\":true}", KVG_ENOTSUP, "is_encoder_decoder");
    refuse("{" MLA ",\"sliding_window\":64,\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\","
           "\"sliding_attention\"]}", KVG_ENOTSUP, "sliding_window");
}
END_TEST

/* Each field that the plan uses, with each value that makes no sense. */
START_TEST(test_bad_values_of_used_fields_are_named)
{
    static const char *const bad[] = {"0", "-1", "4294967296", "1e3", "2.5", "\"8\"", "true", "[]", "{}", "9223372036854775807"};
    static const struct {
        const char *field, *rest;
    } rows[] = {
        {"num_hidden_layers", "\"hidden_size\":512,\"num_attention_heads\":8"},
        {"hidden_size", "\"num_hidden_layers\":2,\"num_attention_heads\":8"},
        {"num_attention_heads", "\"num_hidden_layers\":2,\"hidden_size\":512"},
        {"num_key_value_heads", LLAMA},
        {"head_dim", LLAMA},
        {"v_head_dim", LLAMA},
        {"kv_lora_rank", "\"num_hidden_layers\":2,\"qk_rope_head_dim\":64"},
        {"index_head_dim", MLA},
        {"linear_num_key_heads", "\"num_hidden_layers\":2,\"full_attention_interval\":4,\"linear_key_head_dim\":64,"
         "\"linear_num_value_heads\":4,\"linear_value_head_dim\":32,\"linear_conv_kernel_dim\":4"},
        {"mamba_d_conv", "\"model_type\":\"jamba\",\"num_hidden_layers\":2,\"hidden_size\":512,\"mamba_expand\":2,"
         "\"mamba_d_state\":16"},
    };

    for (int i = 0; i < COUNT(rows); i++) {
        for (int j = 0; j < COUNT(bad); j++) {
            char text[512];
            snprintf(text, sizeof text, "{\"%s\":%s,%s}", rows[i].field, bad[j], rows[i].rest);
            refuse(text, KVG_EFORMAT, rows[i].field);
        }
    }
    refuse("{\"max_position_embeddings\":0," LLAMA "}", KVG_EFORMAT, "max_position_embeddings");
    refuse("{\"max_position_embeddings\":\"long\"," LLAMA "}", KVG_EFORMAT, "max_position_embeddings");
}
END_TEST

START_TEST(test_heads_that_do_not_divide_are_refused)
{
    refuse("{" LLAMA ",\"num_key_value_heads\":3}", KVG_EFORMAT, "num_key_value_heads");
    refuse("{" LLAMA ",\"num_key_value_heads\":16}", KVG_EFORMAT, "num_key_value_heads");
}
END_TEST

START_TEST(test_products_that_do_not_fit_are_refused)
{
    refuse("{\"num_hidden_layers\":1,\"num_attention_heads\":2147483648,\"head_dim\":4294967295}", KVG_EOVERFLOW, "layer 0");
    refuse("{\"model_type\":\"qwen3_next\",\"num_hidden_layers\":1,\"linear_num_key_heads\":1,\"linear_key_head_dim\":4000000000,"
           "\"linear_num_value_heads\":4000000000,\"linear_value_head_dim\":4000000000,\"linear_conv_kernel_dim\":4}",
           KVG_EOVERFLOW, "layer 0");
    refuse("{\"model_type\":\"jamba\",\"num_hidden_layers\":1,\"hidden_size\":4294967295,\"mamba_expand\":3,\"mamba_d_state\":16,"
           "\"mamba_d_conv\":4}", KVG_EOVERFLOW, "mamba_expand");
    refuse("{\"num_hidden_layers\":100000," "\"hidden_size\":512,\"num_attention_heads\":8}", KVG_EFORMAT, "num_hidden_layers");
}
END_TEST

/* Odd weight fields never refuse a config: they decide an estimate only. */
START_TEST(test_fields_of_estimates_are_not_judged)
{
    ModelConfig config = load("{" LLAMA ",\"intermediate_size\":\"odd\",\"vocab_size\":-5,\"num_experts\":9223372036854775807,"
                              "\"torch_dtype\":7,\"quantization_config\":\"odd\",\"tie_word_embeddings\":3}");

    ck_assert_uint_eq(config.vocab_size, 0);
    ck_assert_uint_eq(config.weight_bytes[0], UINT64_MAX); /* saturated */
    kvg_model_config_free(&config);
}
END_TEST

START_TEST(test_malformed_json_is_refused_with_its_place)
{
    static const char *const bad[] = {"", " ", "{", "[1,2]", "7", "null", "{\"num_hidden_layers\":4,}", "{" LLAMA "} tail",
                                      "{\"num_hidden_layers\":99999999999999999999}", "{\"a\":\"\\u00\"}", "\xff\xfe"};
    char                    *deep = malloc(200001);

    for (int i = 0; i < COUNT(bad); i++) {
        refuse(bad[i], KVG_EFORMAT, "small.json");
    }
    memset(deep, '[', 200000);
    deep[200000] = '\0';
    refuse(deep, KVG_EFORMAT, "small.json");
    free(deep);
}
END_TEST

START_TEST(test_python_s_infinity_is_read_as_null_outside_strings)
{
    ModelConfig config;

    check_kinds("{" LLAMA ",\"time_step_limit\":[0.0,Infinity],\"low\":-Infinity,\"nan\":NaN}", "FFFF");
    check_kinds("{" LLAMA ",\"sliding_window\":Infinity}", "FFFF");
    config = load("{" LLAMA ",\"model_type\":\"a \\\"NaN\\\" Infinity\"}");
    ck_assert_str_eq(config.model_type, "a \"NaN\" Infinity");
    kvg_model_config_free(&config);
    refuse("{" LLAMA ",\"a\":Infinit}", KVG_EFORMAT, "small.json");
}
END_TEST

START_TEST(test_a_config_cut_at_any_length_is_refused)
{
    static const char text[] = "{\"text_config\":{" LLAMA ",\"sliding_window\":64,\"layer_types\":[\"full_attention\","
                               "\"sliding_attention\",\"full_attention\",\"full_attention\"]}}";

    for (size_t length = 0; length + 1 < sizeof text; length++) {
        ModelConfig config = {.context = 0};
        char       *cut = malloc(length > 0 ? length : 1);
        memcpy(cut, text, length);
        ck_assert_int_eq(kvg_model_config_parse_json(cut, length, "cut", &config), KVG_EFORMAT);
        free(cut);
    }
}
END_TEST

START_TEST(test_every_allocation_may_fail)
{
    static const char text[] = "{" LLAMA ",\"num_nextn_predict_layers\":1}";

    for (uint64_t nth = 0;; nth++) {
        ModelConfig config = {.context = 7};
        KvgStatus   status;
        kvg_fault_arm(nth);
        status = kvg_model_config_parse_json(text, sizeof text - 1, "small", &config);
        if (!kvg_fault_disarm()) {
            ck_assert_int_eq(status, KVG_OK);
            ck_assert_uint_ge(nth, 4);
            kvg_model_config_free(&config);
            break;
        }
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert_uint_eq(config.context, 7);
        ck_assert_uint_eq(kvg_live_allocations(), 0);
    }
}
END_TEST

/* ---- formats of a layer */

static StatePlan kv_layer(KvFormatClass format_class, uint32_t dim_k, uint32_t dim_v)
{
    return (StatePlan){.kind = KVG_STATE_KV, .u.kv = {.kv_heads = 2, .head_dim_k = dim_k, .head_dim_v = dim_v, .query_heads = 2,
                                                      .format_class = format_class}};
}

START_TEST(test_what_is_asked_wins_then_the_class_s_switch_then_the_pair)
{
    static const struct {
        KvFormatClass format_class;
        uint8_t       gkv, wkv;
        int8_t        fp8;
        KvFormat      asked_k, asked_v, k, v;
    } rows[] = {
        {KVG_FORMAT_ORDINARY, 1, 1, -1, KVG_POLICY, KVG_POLICY, KVG_Q8_0, KVG_Q5_1},
        {KVG_FORMAT_ORDINARY, 1, 1, 1, KVG_POLICY, KVG_POLICY, KVG_FP8, KVG_FP8},
        {KVG_FORMAT_ORDINARY, 1, 1, 0, KVG_POLICY, KVG_POLICY, KVG_Q8_0, KVG_Q5_1},
        {KVG_FORMAT_ORDINARY, 1, 1, 1, KVG_BF16, KVG_POLICY, KVG_BF16, KVG_FP8},
        {KVG_FORMAT_GEMMA_GLOBAL, 1, 0, -1, KVG_POLICY, KVG_POLICY, KVG_FP8, KVG_FP8},
        {KVG_FORMAT_GEMMA_GLOBAL, 0, 1, 1, KVG_POLICY, KVG_POLICY, KVG_Q8_0, KVG_Q5_1},
        {KVG_FORMAT_GEMMA_WINDOWED, 0, 1, 0, KVG_POLICY, KVG_POLICY, KVG_FP8, KVG_FP8},
        {KVG_FORMAT_GEMMA_WINDOWED, 1, 0, 1, KVG_POLICY, KVG_POLICY, KVG_Q8_0, KVG_Q5_1},
        {KVG_FORMAT_GEMMA_GLOBAL, 1, 1, -1, KVG_POLICY, KVG_F16, KVG_FP8, KVG_F16},
        {KVG_FORMAT_GEMMA_WINDOWED, 1, 1, -1, KVG_Q4_0, KVG_Q4_0, KVG_Q4_0, KVG_Q4_0},
    };

    for (int i = 0; i < COUNT(rows); i++) {
        KvgPolicy policy;
        StatePlan layer = kv_layer(rows[i].format_class, 64, 64);
        KvFormat  k = KVG_POLICY, v = KVG_POLICY;
        kvg_policy_default(&policy);
        policy.gemma_gkv = rows[i].gkv;
        policy.gemma_wkv = rows[i].wkv;
        policy.kv_fp8 = rows[i].fp8;
        ck_assert_int_eq(kvg_layer_formats(&layer, &policy, rows[i].asked_k, rows[i].asked_v, &k, &v), KVG_OK);
        ck_assert_int_eq(k, rows[i].k);
        ck_assert_int_eq(v, rows[i].v);
    }
}
END_TEST

START_TEST(test_blocks_never_span_heads_and_illegal_formats_are_listed)
{
    KvgPolicy policy;
    StatePlan odd = kv_layer(KVG_FORMAT_ORDINARY, 80, 64), layer = kv_layer(KVG_FORMAT_ORDINARY, 64, 80);
    StatePlan none = {.kind = KVG_STATE_NONE};
    KvFormat  k = KVG_POLICY, v = KVG_POLICY;

    kvg_policy_default(&policy);
    ck_assert_int_eq(kvg_layer_formats(&odd, &policy, KVG_POLICY, KVG_POLICY, &k, &v), KVG_EGEOM);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "80"));
    ck_assert_int_eq(kvg_layer_formats(&layer, &policy, KVG_BF16, KVG_Q5_1, &k, &v), KVG_EGEOM);
    ck_assert_int_eq(kvg_layer_formats(&odd, &policy, KVG_BF16, KVG_Q5_1, &k, &v), KVG_OK);
    ck_assert_int_eq(kvg_layer_formats(&odd, &policy, KVG_FP8, KVG_FP8, &k, &v), KVG_OK);
    ck_assert_int_eq(kvg_layer_formats(&odd, &policy, KVG_Q5_1, KVG_Q5_1, &k, &v), KVG_EINVAL);
    ck_assert_int_eq(kvg_layer_formats(&odd, &policy, KVG_F32, KVG_F16, &k, &v), KVG_EINVAL);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "q8_0, fp8, q4_0, bf16 or f16"));
    ck_assert_int_eq(kvg_layer_formats(&none, &policy, KVG_F16, KVG_F16, &k, &v), KVG_EINVAL);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "None"));
}
END_TEST

/* ---- paths */

START_TEST(test_a_directory_gives_its_config_or_its_params)
{
    char        folder[] = "/tmp/kvg_model_XXXXXX", file[64], slashed[64];
    ModelConfig config = {.context = 0};
    FILE       *out;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(kvg_model_config_load(folder, &config), KVG_EIO);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "config.json"));
    snprintf(file, sizeof file, "%s/params.json", folder);
    out = fopen(file, "w");
    fputs("{\"dim\":512,\"n_layers\":2,\"n_heads\":8}", out);
    fclose(out);
    snprintf(slashed, sizeof slashed, "%s//", folder);
    ck_assert_int_eq(kvg_model_config_load(slashed, &config), KVG_OK);
    ck_assert_uint_eq(config.plan.n_layer, 2);
    ck_assert_str_eq(config.name, folder + strlen("/tmp/"));
    kvg_model_config_free(&config);
    ck_assert_int_eq(kvg_model_config_load(file, &config), KVG_OK);
    ck_assert_str_eq(config.name, "params");
    kvg_model_config_free(&config);
    unlink(file);

    snprintf(file, sizeof file, "%s/config.json", folder);
    out = fopen(file, "w");
    fputs("{\"num_hidden_layers\":1,\r\n\"hidden_size\":512,\"num_attention_heads\":8}\r\n", out);
    fclose(out);
    ck_assert_int_eq(kvg_model_config_load(folder, &config), KVG_OK);
    ck_assert_uint_eq(config.plan.n_layer, 1);
    kvg_model_config_free(&config);
    unlink(file);
    rmdir(folder);
}
END_TEST

START_TEST(test_a_path_that_is_not_there_or_no_config_is_refused)
{
    ModelConfig config = {.context = 7};
    char        empty[] = "/tmp/kvg_empty_XXXXXX";
    int         fd = mkstemp(empty);

    ck_assert_int_eq(kvg_model_config_load("/nowhere/config.json", &config), KVG_EIO);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "/nowhere/config.json"));
    ck_assert_int_eq(kvg_model_config_load("", &config), KVG_EIO);
    ck_assert_int_eq(kvg_model_config_load(empty, &config), KVG_EFORMAT);
    ck_assert_int_eq(kvg_model_config_load(NULL, &config), KVG_EINVAL);
    ck_assert_uint_eq(config.context, 7);
    ck_assert_int_eq(ftruncate(fd, 64 << 20), 0);
    ck_assert_int_eq(kvg_model_config_load(empty, &config), KVG_EFORMAT); /* too large to be a config */
    close(fd);
    unlink(empty);
    kvg_model_config_free(NULL);
}
END_TEST

START_TEST(test_a_key_that_stands_twice_is_refused_and_a_byte_order_mark_is_not)
{
    static const char *const refused[] = {
        "{\"num_hidden_layers\":1,\"num_hidden_layers\":2,\"hidden_size\":512,\"num_attention_heads\":8}",
        "{\"num_hidden_layers\":1,\"hidden_size\":512,\"num_attention_heads\":8,\"rope\":{\"a\":1,\"a\":1}}",
        "\xef\xbb{\"num_hidden_layers\":1,\"hidden_size\":512,\"num_attention_heads\":8}",
        "\xef\xbb\xbf\xef\xbb\xbf{\"num_hidden_layers\":1,\"hidden_size\":512,\"num_attention_heads\":8}",
        "\xef\xbb\xbf",
    };
    static const char marked[] = "\xef\xbb\xbf{\"num_hidden_layers\":3,\"hidden_size\":512,\"num_attention_heads\":8}";
    ModelConfig       config = {.context = 7};

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        ck_assert_msg(kvg_model_config_parse_json(refused[i], strlen(refused[i]), "m", &config) == KVG_EFORMAT, "text %zu", i);
        ck_assert_uint_eq(config.context, 7);
    }
    ck_assert_int_eq(kvg_model_config_parse_json(refused[0], strlen(refused[0]), "m", &config), KVG_EFORMAT);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "num_hidden_layers"));
    ck_assert_int_eq(kvg_model_config_parse_json(marked, sizeof marked - 1, "m", &config), KVG_OK);
    ck_assert_uint_eq(config.plan.n_layer, 3);
    kvg_model_config_free(&config);
}
END_TEST

START_TEST(test_messages_name_the_path_as_given)
{
    char        folder[] = "/tmp/kvg_model_XXXXXX", file[64];
    ModelConfig config = {.context = 7};
    FILE       *out;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/config.json", folder);
    out = fopen(file, "w");
    fputs("{\"num_hidden_layers\":\"two\"}", out);
    fclose(out);
    ck_assert_int_eq(kvg_model_config_load(file, &config), KVG_EFORMAT);
    ck_assert_msg(strncmp(kvg_last_error(), file, strlen(file)) == 0, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_model_config_load(folder, &config), KVG_EFORMAT); /* the file that was read */
    ck_assert_msg(strncmp(kvg_last_error(), file, strlen(file)) == 0, "%s", kvg_last_error());
    unlink(file);
    rmdir(folder);
}
END_TEST

START_TEST(test_kinds_have_the_names_of_the_rules)
{
    ck_assert_str_eq(kvg_state_kind_name(KVG_STATE_NONE), "None");
    ck_assert_str_eq(kvg_state_kind_name(KVG_STATE_KV), "KvCache");
    ck_assert_str_eq(kvg_state_kind_name(KVG_STATE_SLIDING_KV), "SlidingKvCache");
    ck_assert_str_eq(kvg_state_kind_name(KVG_STATE_LATENT), "LatentKvCache");
    ck_assert_str_eq(kvg_state_kind_name(KVG_STATE_RECURRENT), "Recurrent");
    ck_assert_str_eq(kvg_state_kind_name(KVG_STATE_SHARED), "SharedKv");
    ck_assert_str_eq(kvg_state_kind_name(KVG_STATE_KIND_COUNT), "?");
}
END_TEST

static void check_no_leak(void)
{
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}

static void add_meanings(TCase *tcase)
{
    tcase_add_test(tcase, test_an_explicit_head_dim_wins_and_null_or_absent_is_derived);
    tcase_add_test(tcase, test_kv_heads_default_to_all_heads);
    tcase_add_test(tcase, test_falcon_has_one_head_unless_the_new_decoder_says_otherwise);
    tcase_add_test(tcase, test_v_may_be_narrower_than_k);
    tcase_add_test(tcase, test_windowed_layers_may_have_heads_of_their_own);
    tcase_add_test(tcase, test_gemma_4_global_layers_are_wider_and_may_have_fewer_heads);
    tcase_add_test(tcase, test_mistral_params_have_names_of_their_own);
    tcase_add_test(tcase, test_a_list_of_heads_has_an_entry_a_layer_and_0_means_none);
    tcase_add_test(tcase, test_the_inner_level_wins_and_the_outer_fills_in);
    tcase_add_test(tcase, test_null_absent_or_switched_off_windows_are_full_attention);
    tcase_add_test(tcase, test_qwen_windows_need_the_switch_and_start_at_max_window_layers);
    tcase_add_test(tcase, test_patterns_are_explicit_or_the_family_s_and_lists_beat_them);
    tcase_add_test(tcase, test_gemma_layers_belong_to_gemma_s_format_classes);
    tcase_add_test(tcase, test_layer_types_cover_every_layer_and_may_go_on_for_mtp_blocks);
    tcase_add_test(tcase, test_lists_of_layer_numbers_count_from_0_or_from_1);
    tcase_add_test(tcase, test_a_list_from_1_that_ends_past_the_last_index_names_24_layers);
    tcase_add_test(tcase, test_jamba_takes_attention_by_period_and_offset);
    tcase_add_test(tcase, test_nemotron_s_letters_say_which_layers_keep_anything);
    tcase_add_test(tcase, test_of_88_layers_48_keep_state);
    tcase_add_test(tcase, test_every_nth_layer_is_full_in_qwen3_next);
    tcase_add_test(tcase, test_minimax_s_list_of_ones_is_full_attention_and_a_zero_is_not_planned);
    tcase_add_test(tcase, test_recurrent_parts_are_cut_by_their_own_heads);
    tcase_add_test(tcase, test_latent_layers_need_rank_and_rope_and_judge_nothing_else);
    tcase_add_test(tcase, test_indexers_are_full_or_shared_pooled_or_a_key_a_token);
    tcase_add_test(tcase, test_the_frequency_gives_the_same_21_indexers_as_the_list);
    tcase_add_test(tcase, test_shared_layers_read_the_last_owner_of_their_kind);
    tcase_add_test(tcase, test_latent_rows_are_not_shared);
    tcase_add_test(tcase, test_mtp_counts_have_three_names_and_zero_is_legal);
}

static void add_refusals(TCase *tcase)
{
    tcase_add_test(tcase, test_schemes_that_are_not_planned_are_named);
    tcase_add_test(tcase, test_bad_values_of_used_fields_are_named);
    tcase_add_test(tcase, test_heads_that_do_not_divide_are_refused);
    tcase_add_test(tcase, test_products_that_do_not_fit_are_refused);
    tcase_add_test(tcase, test_fields_of_estimates_are_not_judged);
    tcase_add_test(tcase, test_malformed_json_is_refused_with_its_place);
    tcase_add_test(tcase, test_python_s_infinity_is_read_as_null_outside_strings);
    tcase_add_test(tcase, test_a_config_cut_at_any_length_is_refused);
    tcase_add_test(tcase, test_every_allocation_may_fail);
}

int main(void)
{
    Suite   *suite = suite_create("config");
    TCase   *meanings = tcase_create("meanings"), *refusals = tcase_create("refusals"), *others = tcase_create("others");
    SRunner *runner;
    int      failed, run;

    tcase_add_checked_fixture(meanings, NULL, check_no_leak);
    tcase_add_checked_fixture(refusals, NULL, check_no_leak);
    tcase_add_checked_fixture(others, NULL, check_no_leak);
    add_meanings(meanings);
    add_refusals(refusals);
    tcase_add_test(others, test_what_is_asked_wins_then_the_class_s_switch_then_the_pair);
    tcase_add_test(others, test_blocks_never_span_heads_and_illegal_formats_are_listed);
    tcase_add_test(others, test_a_directory_gives_its_config_or_its_params);
    tcase_add_test(others, test_a_path_that_is_not_there_or_no_config_is_refused);
    tcase_add_test(others, test_a_key_that_stands_twice_is_refused_and_a_byte_order_mark_is_not);
    tcase_add_test(others, test_messages_name_the_path_as_given);
    tcase_add_test(others, test_kinds_have_the_names_of_the_rules);
    suite_add_tcase(suite, meanings);
    suite_add_tcase(suite, refusals);
    suite_add_tcase(suite, others);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

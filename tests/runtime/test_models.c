/* Every real config in tests/data/models against the tables of its README, row by row. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/model.h>
#include <kvgrid/sizing.h>

#include "runtime/base/memory.h"

#define REFUSED UINT64_MAX

typedef struct AttentionRow {
    const char *name;
    uint32_t    full, windowed, layers; /* owners of each kind, and all layers */
    uint32_t    window;
    uint64_t    layer_bf16[2], all_bf16, layer_quantised[2], all_quantised; /* [0] full, [1] windowed */
    uint64_t    growth_bf16; /* past the window */
    uint64_t    cap_bf16;    /* window x bytes */
} AttentionRow;

static const AttentionRow attention_rows[] = {
    {"llama-3.1-8b", 32, 0, 32, 0, {4096, 0}, 131072, {1856, 0}, 59392, 131072, 0},
    {"llama-3.3-70b", 80, 0, 80, 0, {4096, 0}, 327680, {1856, 0}, 148480, 327680, 0},
    {"qwen3-8b", 36, 0, 36, 0, {4096, 0}, 147456, {1856, 0}, 66816, 147456, 0},
    {"qwen3-32b", 64, 0, 64, 0, {4096, 0}, 262144, {1856, 0}, 118784, 262144, 0},
    {"qwen3-235b-a22b", 94, 0, 94, 0, {2048, 0}, 192512, {928, 0}, 87232, 192512, 0},
    {"qwen3-next-80b-a3b", 12, 0, 48, 0, {2048, 0}, 24576, {928, 0}, 11136, 24576, 0},
    {"qwen3.5-35b-a3b", 10, 0, 40, 0, {2048, 0}, 20480, {928, 0}, 9280, 20480, 0},
    {"gemma-3-27b", 10, 52, 62, 1024, {8192, 8192}, 507904, {3712, 3712}, 230144, 81920, 436207616},
    {"gemma-4-e4b", 4, 20, 42, 512, {4096, 2048}, 57344, {1856, 928}, 25984, 16384, 20971520},
    {"gemma-4-26b-a4b", 5, 25, 30, 1024, {4096, 8192}, 225280, {1856, 3712}, 102080, 20480, 209715200},
    {"gpt-oss-120b", 18, 18, 36, 128, {2048, 2048}, 73728, {928, 928}, 33408, 36864, 4718592},
    {"mistral-7b-v0.1", 0, 32, 32, 4096, {0, 4096}, 131072, {0, 1856}, 59392, 0, 536870912},
    {"mistral-small-3.1-24b", 40, 0, 40, 0, {4096, 0}, 163840, {1856, 0}, 74240, 163840, 0},
    {"glm-4.5", 92, 0, 92, 0, {4096, 0}, 376832, {1856, 0}, 170752, 376832, 0},
    {"minimax-m2", 62, 0, 62, 0, {4096, 0}, 253952, {1856, 0}, 115072, 253952, 0},
    {"step-3.5-flash", 12, 33, 45, 512, {4096, 4096}, 184320, {1856, 1856}, 83520, 49152, 69206016},
    {"mimo-v2-flash", 9, 39, 48, 128, {2560, 5120}, 222720, {1200, 2400}, 104400, 23040, 25559040},
    {"jamba-v0.1", 4, 0, 32, 0, {4096, 0}, 16384, {1856, 0}, 7424, 16384, 0},
    {"nemotron-3-nano-30b-a3b", 6, 0, 52, 0, {1024, 0}, 6144, {464, 0}, 2784, 6144, 0},
    {"phi-3-mini-4k", 0, 32, 32, 2047, {0, 12288}, 393216, {0, 5568}, 178176, 0, 804913152},
    {"falcon-7b", 32, 0, 32, 0, {256, 0}, 8192, {116, 0}, 3712, 8192, 0},
    {"starcoder2-7b", 0, 32, 32, 4096, {0, 2048}, 65536, {0, 928}, 29696, 0, 268435456},
    {"tinyllama-1.1b", 22, 0, 22, 0, {1024, 0}, 22528, {464, 0}, 10208, 22528, 0},
    {"stories15m", 6, 0, 6, 0, {1152, 0}, 6912, {REFUSED, 0}, REFUSED, 6912, 0},
    {"stories260k", 5, 0, 5, 0, {128, 0}, 640, {REFUSED, 0}, REFUSED, 640, 0},
};

typedef struct LatentRow {
    const char *name;
    uint32_t    latent, layers, width;
    uint64_t    all_bf16, all_f32;
    uint32_t    index_elements; /* a token, all layers, of indexers that keep a key a token */
} LatentRow;

static const LatentRow latent_rows[] = {
    {"mistral-large-3-675b", 61, 61, 576, 70272, 140544, 0}, {"deepseek-v3.2", 61, 61, 576, 70272, 140544, 7808},
    {"glm-5", 78, 78, 576, 89856, 179712, 9984},             {"glm-5.2", 78, 78, 576, 89856, 179712, 2688},
    {"kimi-k2", 61, 61, 576, 70272, 140544, 0},              {"kimi-linear-48b-a3b", 7, 27, 576, 8064, 16128, 0},
};

typedef struct RecurrentRow {
    const char *name;
    uint32_t    linear, layers;
    uint64_t    state_bytes, conv_bytes; /* a layer, f32 */
    uint64_t    total;
} RecurrentRow;

static const RecurrentRow recurrent_rows[] = {
    {"qwen3-next-80b-a3b", 36, 48, 2097152, 98304, 79036416},    {"qwen3.5-35b-a3b", 30, 40, 2097152, 98304, 65863680},
    {"glm-5.3-flash", 34, 45, 4194304, 294912, 152633344},       {"kimi-linear-48b-a3b", 20, 27, 2097152, 147456, 44892160},
    {"jamba-v0.1", 28, 32, 524288, 98304, 17432576},             {"nemotron-3-nano-30b-a3b", 23, 52, 2097152, 73728, 49930240},
};

#define COUNT(rows) ((int)(sizeof(rows) / sizeof((rows)[0])))

static KvgStatus load(const char *name, ModelConfig *config)
{
    char path[512];

    snprintf(path, sizeof path, KVG_TEST_DATA "/models/%s.json", name);
    return kvg_model_config_load(path, config);
}

static KvSizing asked(KvFormat format_k, KvFormat format_v)
{
    KvSizing sizing = {.format_k = format_k, .format_v = format_v};

    kvg_policy_default(&sizing.policy);
    return sizing;
}

static uint32_t kinds(const ModelConfig *config, KvStateKind kind)
{
    uint32_t count = 0;

    for (uint32_t il = 0; il < config->plan.n_layer; il++) {
        count += config->plan.layers[il].kind == kind;
    }
    return count;
}

/* Bytes a token of every layer of one kind: all alike, or the test fails. 0 if there is no such layer. */
static uint64_t layer_bytes(const ModelConfig *config, const KvSizing *sizing, KvStateKind kind)
{
    uint64_t first = 0;

    for (uint32_t il = 0; il < config->plan.n_layer; il++) {
        uint64_t bytes = 0;
        if (config->plan.layers[il].kind != kind) {
            continue;
        }
        ck_assert_int_eq(kvg_plan_bytes_per_token(sizing, &config->plan, il, il + 1, &bytes), KVG_OK);
        ck_assert(first == 0 || first == bytes);
        first = bytes;
    }
    return first;
}

START_TEST(test_attention_models_have_the_layers_and_bf16_bytes_of_the_table)
{
    const AttentionRow *row = &attention_rows[_i];
    ModelConfig         config = {.context = 0};
    KvSizing            sizing = asked(KVG_BF16, KVG_BF16);
    uint64_t            bytes = 0;

    ck_assert_msg(load(row->name, &config) == KVG_OK, "%s", kvg_last_error());
    ck_assert_uint_eq(config.plan.n_layer, row->layers);
    ck_assert_uint_eq(kinds(&config, KVG_STATE_KV), row->full);
    ck_assert_uint_eq(kinds(&config, KVG_STATE_SLIDING_KV), row->windowed);
    ck_assert_uint_eq(layer_bytes(&config, &sizing, KVG_STATE_KV), row->layer_bf16[0]);
    ck_assert_uint_eq(layer_bytes(&config, &sizing, KVG_STATE_SLIDING_KV), row->layer_bf16[1]);
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, 0, row->layers, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, row->all_bf16);
    kvg_model_config_free(&config);
}
END_TEST

START_TEST(test_attention_models_have_the_quantised_bytes_of_the_table)
{
    const AttentionRow *row = &attention_rows[_i];
    ModelConfig         config = {.context = 0};
    KvSizing            sizing = asked(KVG_Q8_0, KVG_Q5_1);
    uint64_t            bytes = 0;

    ck_assert_int_eq(load(row->name, &config), KVG_OK);
    if (row->all_quantised == REFUSED) {
        ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, 0, row->layers, &bytes), KVG_EGEOM);
    } else {
        ck_assert_uint_eq(layer_bytes(&config, &sizing, KVG_STATE_KV), row->layer_quantised[0]);
        ck_assert_uint_eq(layer_bytes(&config, &sizing, KVG_STATE_SLIDING_KV), row->layer_quantised[1]);
        ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, 0, row->layers, &bytes), KVG_OK);
        ck_assert_uint_eq(bytes, row->all_quantised);
    }
    kvg_model_config_free(&config);
}
END_TEST

START_TEST(test_the_ring_part_is_all_layers_minus_growth_past_the_window)
{
    const AttentionRow *row = &attention_rows[_i];
    ModelConfig         config = {.context = 0};
    KvSizing            sizing = asked(KVG_BF16, KVG_BF16);
    uint64_t            bytes = 0, rows = 0;

    ck_assert_int_eq(load(row->name, &config), KVG_OK);
    ck_assert_int_eq(kvg_plan_ring_bytes_per_token(&sizing, &config.plan, 0, row->layers, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 0); /* off by default */
    sizing.policy.swa_ring = 1;
    ck_assert_int_eq(kvg_plan_ring_bytes_per_token(&sizing, &config.plan, 0, row->layers, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, row->all_bf16 - row->growth_bf16);
    ck_assert_uint_eq(bytes * row->window, row->cap_bf16);
    ck_assert_int_eq(kvg_plan_ring_row_cap(&sizing, &config.plan, &rows), KVG_OK);
    ck_assert_uint_eq(rows, row->window > 0 ? row->window + 4639u : 0);
    kvg_model_config_free(&config);
}
END_TEST

START_TEST(test_latent_models_have_the_bytes_of_the_table)
{
    const LatentRow *row = &latent_rows[_i];
    ModelConfig      config = {.context = 0};
    KvSizing         sizing = asked(KVG_POLICY, KVG_POLICY);
    uint64_t         bytes = 0;

    ck_assert_msg(load(row->name, &config) == KVG_OK, "%s", kvg_last_error());
    ck_assert_uint_eq(config.plan.n_layer, row->layers);
    ck_assert_uint_eq(kinds(&config, KVG_STATE_LATENT), row->latent);
    for (uint32_t il = 0; il < row->layers; il++) {
        if (config.plan.layers[il].kind == KVG_STATE_LATENT) {
            ck_assert_uint_eq(config.plan.layers[il].u.latent.width, row->width);
            ck_assert_uint_eq(config.plan.layers[il].u.latent.kv_rank, 512);
        }
    }
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, 0, row->layers, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, row->all_f32 + row->index_elements * 4u);
    ck_assert_int_eq(kvg_plan_latent_bytes_per_token(&sizing, &config.plan, 0, row->layers, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, row->all_f32 + row->index_elements * 4u);
    sizing.format_latent = KVG_BF16;
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, 0, row->layers, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, row->all_bf16 + row->index_elements * 2u);
    kvg_model_config_free(&config);
}
END_TEST

START_TEST(test_recurrent_state_has_the_bytes_of_the_table_in_each_of_two_columns)
{
    const RecurrentRow *row = &recurrent_rows[_i];
    ModelConfig         config = {.context = 0};
    KvSizing            sizing = asked(KVG_POLICY, KVG_POLICY);
    uint64_t            total = 0;

    ck_assert_msg(load(row->name, &config) == KVG_OK, "%s", kvg_last_error());
    ck_assert_uint_eq(config.plan.n_layer, row->layers);
    ck_assert_uint_eq(kinds(&config, KVG_STATE_RECURRENT), row->linear);
    for (uint32_t il = 0; il < row->layers; il++) {
        const RecurrentPlan *plan = &config.plan.layers[il].u.recurrent;
        uint64_t             bytes = 0;
        if (config.plan.layers[il].kind != KVG_STATE_RECURRENT) {
            continue;
        }
        ck_assert_uint_eq(plan->state_width * 4, row->state_bytes);
        ck_assert_uint_eq(plan->conv_width * (plan->conv_kernel - 1) * 4, row->conv_bytes);
        ck_assert_int_eq(kvg_plan_fixed_bytes(&sizing, &config.plan, il, il + 1, 1, 0, &bytes), KVG_OK);
        total += bytes;
    }
    ck_assert_uint_eq(total, 2 * row->total);
    kvg_model_config_free(&config);
}
END_TEST

static uint64_t default_bytes(const char *name)
{
    ModelConfig config = {.context = 0};
    KvSizing    sizing = asked(KVG_POLICY, KVG_POLICY);
    uint64_t    bytes = 0;

    ck_assert_int_eq(load(name, &config), KVG_OK);
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, 0, config.plan.n_layer, &bytes), KVG_OK);
    kvg_model_config_free(&config);
    return bytes;
}

START_TEST(test_gemma_layers_hold_fp8_when_nothing_is_asked)
{
    ck_assert_uint_eq(default_bytes("gemma-3-27b"), 253952);
    ck_assert_uint_eq(default_bytes("gemma-4-e4b"), 28672);
    ck_assert_uint_eq(default_bytes("llama-3.1-8b"), 59392); /* the selected pair */
}
END_TEST

START_TEST(test_glm_5_3_flash_keeps_pool_keys_a_token_and_a_ring_of_states)
{
    ModelConfig config = {.context = 0};
    KvSizing    sizing = asked(KVG_POLICY, KVG_POLICY);
    uint64_t    bytes = 0, fixed = 0, recurrent = 2 * 152633344ull, latents = 11 * 12;

    ck_assert_int_eq(load("glm-5.3-flash", &config), KVG_OK);
    ck_assert_uint_eq(kinds(&config, KVG_STATE_LATENT), 11);
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, 0, 45, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 23936);
    ck_assert_int_eq(kvg_plan_fixed_bytes(&sizing, &config.plan, 0, 45, 1048576, 0, &fixed), KVG_OK);
    ck_assert_uint_eq(fixed - recurrent - latents, 57671680);
    ck_assert_int_eq(kvg_plan_fixed_bytes(&sizing, &config.plan, 0, 45, 512, 0, &fixed), KVG_OK);
    ck_assert_uint_eq(fixed - recurrent - latents, 5767168); /* no ring is longer than the context */
    sizing.policy.dsa_index_ring = 0; /* flat: the states grow with the tokens */
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, 0, 45, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 23936 + 11 * 256 * 4);
    ck_assert_int_eq(kvg_plan_fixed_bytes(&sizing, &config.plan, 0, 45, 1048576, 0, &fixed), KVG_OK);
    ck_assert_uint_eq(fixed, recurrent + latents);
    ck_assert_int_eq(kvg_plan_pool_key_bytes(&sizing, &config.plan, 0, 45, 4003, &bytes), KVG_OK);
    ck_assert_uint_eq(bytes, 11 * 1000 * 512);
    kvg_model_config_free(&config);
}
END_TEST

START_TEST(test_deepseek_v4_is_refused_naming_the_key)
{
    ModelConfig config = {.context = 7};

    ck_assert_int_eq(load("deepseek-v4-flash", &config), KVG_ENOTSUP);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "compress_ratios"));
    ck_assert_uint_eq(config.context, 7); /* nothing changed */
}
END_TEST

START_TEST(test_mtp_blocks_stand_after_the_trunk)
{
    static const struct {
        const char *name;
        uint32_t    n_mtp;
        KvStateKind kind;
    } rows[] = {
        {"deepseek-v3.2", 1, KVG_STATE_LATENT}, {"glm-4.5", 1, KVG_STATE_KV},          {"glm-5.3-flash", 1, KVG_STATE_LATENT},
        {"kimi-k2", 0, KVG_STATE_NONE},         {"kimi-linear-48b-a3b", 0, KVG_STATE_NONE},
        {"step-3.5-flash", 3, KVG_STATE_SLIDING_KV}, {"qwen3.5-35b-a3b", 1, KVG_STATE_KV}, {"minimax-m2", 3, KVG_STATE_KV},
    };

    for (int i = 0; i < COUNT(rows); i++) {
        ModelConfig config = {.context = 0};
        ck_assert_int_eq(load(rows[i].name, &config), KVG_OK);
        ck_assert_uint_eq(config.plan.n_mtp, rows[i].n_mtp);
        for (uint32_t il = config.plan.n_layer; il < config.plan.n_layer + config.plan.n_mtp; il++) {
            ck_assert_int_eq(config.plan.layers[il].kind, rows[i].kind);
        }
        kvg_model_config_free(&config);
    }
}
END_TEST

START_TEST(test_tails_of_gemma_4_read_the_last_owner_of_their_kind)
{
    ModelConfig config = {.context = 0};

    ck_assert_int_eq(load("gemma-4-e4b", &config), KVG_OK);
    for (uint32_t il = 24; il < 42; il++) {
        ck_assert_int_eq(config.plan.layers[il].kind, KVG_STATE_SHARED);
        ck_assert_uint_eq(config.plan.layers[il].u.shared_source, il % 6 == 5 ? 23 : 22);
    }
    ck_assert_int_ne(config.plan.layers[23].kind, KVG_STATE_SHARED);
    kvg_model_config_free(&config);
}
END_TEST

START_TEST(test_shares_of_layers_21_of_78_have_an_indexer_in_glm_5_2)
{
    ModelConfig config = {.context = 0};
    uint32_t    indexers = 0;

    ck_assert_int_eq(load("glm-5.2", &config), KVG_OK);
    for (uint32_t il = 0; il < 78; il++) {
        indexers += config.plan.layers[il].u.latent.index_kind == KVG_INDEX_PER_TOKEN;
    }
    ck_assert_uint_eq(indexers, 21);
    kvg_model_config_free(&config);
}
END_TEST

START_TEST(test_every_layer_list_falls_where_the_model_says)
{
    static const struct {
        const char *name;
        KvStateKind kind;
        uint32_t    layers[32], count;
    } rows[] = {
        {"jamba-v0.1", KVG_STATE_KV, {4, 12, 20, 28}, 4},
        {"kimi-linear-48b-a3b", KVG_STATE_LATENT, {3, 7, 11, 15, 19, 23, 26}, 7},
        {"glm-5.3-flash", KVG_STATE_LATENT, {3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43}, 11},
        {"nemotron-3-nano-30b-a3b", KVG_STATE_KV, {5, 12, 19, 26, 33, 42}, 6},
        {"gemma-3-27b", KVG_STATE_KV, {5, 11, 17, 23, 29, 35, 41, 47, 53, 59}, 10},
        {"qwen3-next-80b-a3b", KVG_STATE_KV, {3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47}, 12},
    };

    for (int i = 0; i < COUNT(rows); i++) {
        ModelConfig config = {.context = 0};
        uint32_t    next = 0;
        ck_assert_int_eq(load(rows[i].name, &config), KVG_OK);
        for (uint32_t il = 0; il < config.plan.n_layer; il++) {
            if (config.plan.layers[il].kind == rows[i].kind) {
                ck_assert_uint_lt(next, rows[i].count);
                ck_assert_uint_eq(il, rows[i].layers[next++]);
            }
        }
        ck_assert_uint_eq(next, rows[i].count);
        kvg_model_config_free(&config);
    }
}
END_TEST

START_TEST(test_contexts_are_read_under_each_name)
{
    static const struct {
        const char *name;
        uint64_t    context;
    } rows[] = {{"llama-3.1-8b", 131072}, {"kimi-linear-48b-a3b", 1048576}, {"gemma-3-27b", 0}, {"falcon-7b", 0},
                {"mistral-large-3-675b", 294912}, {"gemma-4-e4b", 131072}};

    for (int i = 0; i < COUNT(rows); i++) {
        ModelConfig config = {.context = 1};
        ck_assert_int_eq(load(rows[i].name, &config), KVG_OK);
        ck_assert_uint_eq(config.context, rows[i].context);
        kvg_model_config_free(&config);
    }
}
END_TEST

/* Sizes that are known from the models' names or file sizes, within a twentieth. */
START_TEST(test_weight_estimates_come_near_the_published_sizes)
{
    static const struct {
        const char *name;
        double      bytes;
    } rows[] = {
        {"llama-3.1-8b", 16.06e9},    {"llama-3.3-70b", 141.1e9},  {"qwen3-8b", 16.4e9},       {"qwen3-235b-a22b", 470e9},
        {"gpt-oss-120b", 65.2e9},     {"glm-4.5", 714e9},          {"mistral-7b-v0.1", 14.5e9}, {"kimi-k2", 1027e9},
        {"qwen3-next-80b-a3b", 161e9}, {"falcon-7b", 14.4e9},      {"starcoder2-7b", 14.4e9},  {"phi-3-mini-4k", 7.64e9},
        {"kimi-linear-48b-a3b", 98e9}, {"minimax-m2", 230e9},      {"jamba-v0.1", 103e9},      {"mixtral", 0},
    };

    for (int i = 0; rows[i].bytes > 0; i++) {
        ModelConfig config = {.context = 0};
        double      total;
        ck_assert_int_eq(load(rows[i].name, &config), KVG_OK);
        total = (double)config.embedding_bytes + (double)config.head_bytes;
        for (uint32_t il = 0; il < config.plan.n_layer + config.plan.n_mtp; il++) {
            total += (double)config.weight_bytes[il];
        }
        ck_assert_msg(total > 0.92 * rows[i].bytes && total < 1.08 * rows[i].bytes, "%s: %.3e of %.3e", rows[i].name, total,
                      rows[i].bytes);
        kvg_model_config_free(&config);
    }
}
END_TEST

/* A file added to the folder is tried without a row: it must load, or say by name why not. */
START_TEST(test_every_file_of_the_folder_loads_or_is_refused_by_name)
{
    DIR           *folder = opendir(KVG_TEST_DATA "/models");
    struct dirent *entry;
    int            seen = 0;

    ck_assert_ptr_nonnull(folder);
    while ((entry = readdir(folder)) != NULL) {
        char        path[512];
        ModelConfig config = {.context = 0};
        KvgStatus   status;
        if (strstr(entry->d_name, ".json") == NULL) {
            continue;
        }
        snprintf(path, sizeof path, KVG_TEST_DATA "/models/%.255s", entry->d_name);
        status = kvg_model_config_load(path, &config);
        ck_assert_msg(status == KVG_OK || status == KVG_ENOTSUP, "%s: %s", entry->d_name, kvg_last_error());
        ck_assert_int_eq(status == KVG_OK, strcmp(entry->d_name, "deepseek-v4-flash.json") != 0);
        kvg_model_config_free(&config);
        seen++;
    }
    closedir(folder);
    ck_assert_int_ge(seen, 33);
}
END_TEST

static void check_no_leak(void)
{
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}

int main(void)
{
    Suite   *suite = suite_create("models");
    TCase   *tables = tcase_create("tables");
    SRunner *runner;
    int      failed, run;

    tcase_add_checked_fixture(tables, NULL, check_no_leak);
    tcase_add_loop_test(tables, test_attention_models_have_the_layers_and_bf16_bytes_of_the_table, 0, COUNT(attention_rows));
    tcase_add_loop_test(tables, test_attention_models_have_the_quantised_bytes_of_the_table, 0, COUNT(attention_rows));
    tcase_add_loop_test(tables, test_the_ring_part_is_all_layers_minus_growth_past_the_window, 0, COUNT(attention_rows));
    tcase_add_loop_test(tables, test_latent_models_have_the_bytes_of_the_table, 0, COUNT(latent_rows));
    tcase_add_loop_test(tables, test_recurrent_state_has_the_bytes_of_the_table_in_each_of_two_columns, 0, COUNT(recurrent_rows));
    tcase_add_test(tables, test_gemma_layers_hold_fp8_when_nothing_is_asked);
    tcase_add_test(tables, test_glm_5_3_flash_keeps_pool_keys_a_token_and_a_ring_of_states);
    tcase_add_test(tables, test_deepseek_v4_is_refused_naming_the_key);
    tcase_add_test(tables, test_mtp_blocks_stand_after_the_trunk);
    tcase_add_test(tables, test_tails_of_gemma_4_read_the_last_owner_of_their_kind);
    tcase_add_test(tables, test_shares_of_layers_21_of_78_have_an_indexer_in_glm_5_2);
    tcase_add_test(tables, test_every_layer_list_falls_where_the_model_says);
    tcase_add_test(tables, test_contexts_are_read_under_each_name);
    tcase_add_test(tables, test_weight_estimates_come_near_the_published_sizes);
    tcase_add_test(tables, test_every_file_of_the_folder_loads_or_is_refused_by_name);
    suite_add_tcase(suite, tables);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

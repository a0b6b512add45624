/* GGUF heads built byte by byte: what loads, what is refused, and that no damaged byte is believed. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvgrid/model.h>

#include "runtime/base/memory.h"
#include "runtime/model/gguf.h"

#define HEAD_MAX 8192

/* A GGUF head under construction. Counts are written by finish(). */
typedef struct Head {
    uint8_t  bytes[HEAD_MAX];
    size_t   used;
    uint64_t keys, tensors;
} Head;

static void put(Head *head, const void *bytes, size_t count)
{
    ck_assert_uint_le(head->used + count, HEAD_MAX);
    if (count > 0) {
        memcpy(head->bytes + head->used, bytes, count);
    }
    head->used += count;
}

static void put_le(Head *head, uint64_t value, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t byte = i < 8 ? (uint8_t)(value >> (8 * i)) : 0;
        put(head, &byte, 1);
    }
}

static void put_string(Head *head, const char *text)
{
    put_le(head, strlen(text), 8);
    put(head, text, strlen(text));
}

static void start(Head *head, uint32_t version)
{
    memset(head, 0, sizeof *head);
    put(head, "GGUF", 4);
    put_le(head, version, 4);
    put_le(head, 0, 16);
}

static void set_counts(Head *head)
{
    for (int i = 0; i < 8; i++) {
        head->bytes[8 + i] = (uint8_t)(head->tensors >> (8 * i));
        head->bytes[16 + i] = (uint8_t)(head->keys >> (8 * i));
    }
}

static void key(Head *head, const char *name, uint32_t type)
{
    put_string(head, name);
    put_le(head, type, 4);
    head->keys++;
    set_counts(head);
}

static void key_u32(Head *head, const char *name, uint32_t value)
{
    key(head, name, GGUF_U32);
    put_le(head, value, 4);
}

static void key_string(Head *head, const char *name, const char *value)
{
    key(head, name, GGUF_STRING);
    put_string(head, value);
}

static void key_array(Head *head, const char *name, uint32_t type, size_t width, const uint32_t *values, size_t count)
{
    key(head, name, GGUF_ARRAY);
    put_le(head, type, 4);
    put_le(head, count, 8);
    for (size_t i = 0; i < count; i++) {
        put_le(head, values[i], width);
    }
}

static void tensor(Head *head, const char *name, uint64_t dim0, uint64_t dim1, uint32_t type)
{
    put_string(head, name);
    put_le(head, 2, 4);
    put_le(head, dim0, 8);
    put_le(head, dim1, 8);
    put_le(head, type, 4);
    put_le(head, 0, 8);
    head->tensors++;
    set_counts(head);
}

/* llama with 4 layers, 8 heads, 2 K/V heads of 64. */
static void llama(Head *head, uint32_t version)
{
    start(head, version);
    key_string(head, "general.architecture", "llama");
    key_string(head, "general.name", "a small model");
    key_u32(head, "llama.block_count", 4);
    key_u32(head, "llama.context_length", 2048);
    key_u32(head, "llama.embedding_length", 512);
    key_u32(head, "llama.feed_forward_length", 1024);
    key_u32(head, "llama.attention.head_count", 8);
    key_u32(head, "llama.attention.head_count_kv", 2);
}

static KvgStatus parse(const Head *head, ModelConfig *config)
{
    *config = (ModelConfig){.context = 0};
    return kvg_model_config_parse_gguf(head->bytes, head->used, "head", config);
}

static void refuse(const Head *head, KvgStatus status, const char *naming)
{
    ModelConfig config;

    ck_assert_int_eq(parse(head, &config), status);
    ck_assert_msg(strstr(kvg_last_error(), naming) != NULL, "\"%s\" does not name %s", kvg_last_error(), naming);
    ck_assert_ptr_null(config.plan.layers);
}

/* ---- what loads */

START_TEST(test_versions_2_and_3_load_and_others_are_refused)
{
    for (uint32_t version = 0; version < 6; version++) {
        Head        head;
        ModelConfig config;
        KvgStatus   expected = version == 2 || version == 3 ? KVG_OK : version == 0 ? KVG_EFORMAT : KVG_ENOTSUP;
        llama(&head, version);
        ck_assert_int_eq(parse(&head, &config), expected);
        kvg_model_config_free(&config);
    }
}
END_TEST

START_TEST(test_a_plain_model_has_its_heads_context_and_layers)
{
    Head        head;
    ModelConfig config;

    llama(&head, 3);
    ck_assert_msg(parse(&head, &config) == KVG_OK, "%s", kvg_last_error());
    ck_assert_uint_eq(config.context, 2048);
    ck_assert_uint_eq(config.hidden_size, 512);
    ck_assert_uint_eq(config.query_heads, 8);
    ck_assert_uint_eq(config.plan.n_layer, 4);
    ck_assert_str_eq(config.model_type, "llama");
    for (uint32_t il = 0; il < 4; il++) {
        ck_assert_int_eq(config.plan.layers[il].kind, KVG_STATE_KV);
        ck_assert_uint_eq(config.plan.layers[il].u.kv.kv_heads, 2);
        ck_assert_uint_eq(config.plan.layers[il].u.kv.head_dim_k, 64);
        ck_assert_uint_eq(config.plan.layers[il].u.kv.head_dim_v, 64);
    }
    kvg_model_config_free(&config);
}
END_TEST

START_TEST(test_key_and_value_lengths_win_over_the_derived_ones)
{
    Head        head;
    ModelConfig config;

    llama(&head, 3);
    key_u32(&head, "llama.attention.key_length", 192);
    key_u32(&head, "llama.attention.value_length", 128);
    ck_assert_int_eq(parse(&head, &config), KVG_OK);
    ck_assert_uint_eq(config.plan.layers[0].u.kv.head_dim_k, 192);
    ck_assert_uint_eq(config.plan.layers[0].u.kv.head_dim_v, 128);
    kvg_model_config_free(&config);
}
END_TEST

START_TEST(test_a_zero_in_an_array_of_heads_means_none_here)
{
    static const uint32_t heads[4] = {2, 0, 4, 0};
    Head                  head;
    ModelConfig           config;

    start(&head, 3);
    key_string(&head, "general.architecture", "deci");
    key_u32(&head, "deci.block_count", 4);
    key_u32(&head, "deci.embedding_length", 512);
    key_u32(&head, "deci.attention.head_count", 8);
    key_array(&head, "deci.attention.head_count_kv", GGUF_I32, 4, heads, 4);
    ck_assert_msg(parse(&head, &config) == KVG_OK, "%s", kvg_last_error());
    for (uint32_t il = 0; il < 4; il++) {
        ck_assert_int_eq(config.plan.layers[il].kind, heads[il] > 0 ? KVG_STATE_KV : KVG_STATE_NONE);
    }
    ck_assert_uint_eq(config.plan.layers[2].u.kv.kv_heads, 4);
    kvg_model_config_free(&config);
}
END_TEST

START_TEST(test_a_window_with_a_period_or_an_array_or_a_family_default)
{
    static const uint32_t flags[6] = {1, 0, 1, 1, 0, 1};

    for (int form = 0; form < 4; form++) {
        Head        head;
        ModelConfig config;
        start(&head, 3);
        key_string(&head, "general.architecture", form == 2 ? "gemma3" : "llama");
        key_u32(&head, form == 2 ? "gemma3.block_count" : "llama.block_count", 6);
        key_u32(&head, form == 2 ? "gemma3.embedding_length" : "llama.embedding_length", 512);
        key_u32(&head, form == 2 ? "gemma3.attention.head_count" : "llama.attention.head_count", 8);
        key_u32(&head, form == 2 ? "gemma3.attention.sliding_window" : "llama.attention.sliding_window", 256);
        if (form == 0) {
            key_u32(&head, "llama.attention.sliding_window_pattern", 3);
        } else if (form == 1) {
            key_array(&head, "llama.attention.sliding_window_pattern", GGUF_BOOL, 1, flags, 6);
        }
        ck_assert_int_eq(parse(&head, &config), KVG_OK);
        for (uint32_t il = 0; il < 6; il++) {
            bool full = form == 0 ? il % 3 == 2 : form == 1 ? !flags[il] : form == 2 ? il == 5 : false;
            ck_assert_int_eq(config.plan.layers[il].kind, full ? KVG_STATE_KV : KVG_STATE_SLIDING_KV);
            ck_assert_int_eq(config.plan.layers[il].u.kv.format_class,
                             form != 2 ? KVG_FORMAT_ORDINARY : full ? KVG_FORMAT_GEMMA_GLOBAL : KVG_FORMAT_GEMMA_WINDOWED);
        }
        kvg_model_config_free(&config);
    }
}
END_TEST

START_TEST(test_a_window_of_zero_is_full_attention)
{
    Head        head;
    ModelConfig config;

    llama(&head, 3);
    key_u32(&head, "llama.attention.sliding_window", 0);
    ck_assert_int_eq(parse(&head, &config), KVG_OK);
    ck_assert_int_eq(config.plan.layers[0].kind, KVG_STATE_KV);
    kvg_model_config_free(&config);
}
END_TEST

START_TEST(test_latent_models_take_rank_and_rope_and_ignore_their_heads)
{
    Head        head;
    ModelConfig config;

    start(&head, 3);
    key_string(&head, "general.architecture", "deepseek2");
    key_u32(&head, "deepseek2.block_count", 3);
    key_u32(&head, "deepseek2.nextn_predict_layers", 1);
    key_u32(&head, "deepseek2.attention.head_count", 128);
    key_u32(&head, "deepseek2.attention.head_count_kv", 1);
    key_u32(&head, "deepseek2.attention.kv_lora_rank", 512);
    refuse(&head, KVG_EFORMAT, "rope.dimension_count");
    key_u32(&head, "deepseek2.rope.dimension_count", 64);
    key_u32(&head, "deepseek2.attention.indexer.key_length", 128);
    ck_assert_int_eq(parse(&head, &config), KVG_OK);
    ck_assert_uint_eq(config.plan.n_layer, 2); /* block_count counts the next-token block too */
    ck_assert_uint_eq(config.plan.n_mtp, 1);
    for (uint32_t il = 0; il < 3; il++) {
        ck_assert_int_eq(config.plan.layers[il].kind, KVG_STATE_LATENT);
        ck_assert_uint_eq(config.plan.layers[il].u.latent.width, 576);
        ck_assert_int_eq(config.plan.layers[il].u.latent.index_kind, KVG_INDEX_PER_TOKEN);
    }
    kvg_model_config_free(&config);
}
END_TEST

static void ssm(Head *head, const char *arch, uint32_t inner, uint32_t state, uint32_t rank, uint32_t groups)
{
    char name[64];

    snprintf(name, sizeof name, "%s.ssm.conv_kernel", arch);
    key_u32(head, name, 4);
    snprintf(name, sizeof name, "%s.ssm.inner_size", arch);
    key_u32(head, name, inner);
    snprintf(name, sizeof name, "%s.ssm.state_size", arch);
    key_u32(head, name, state);
    snprintf(name, sizeof name, "%s.ssm.time_step_rank", arch);
    key_u32(head, name, rank);
    if (groups > 0) {
        snprintf(name, sizeof name, "%s.ssm.group_count", arch);
        key_u32(head, name, groups);
    }
}

/* The recurrent layers of real models, as their converters write them, and the bytes of one layer's table row. */
START_TEST(test_recurrent_layers_equal_the_json_models)
{
    static const uint32_t nemotron_kv[4] = {0, 0, 2, 0}, nemotron_ff[4] = {0, 1856, 0, 0}, jamba_kv[4] = {0, 0, 8, 0};

    for (int form = 0; form < 3; form++) {
        static const char *const arch[] = {"qwen3next", "nemotron_h", "jamba"};
        static const uint32_t    heads[] = {16, 32, 32}, attention[] = {3, 2, 2}, state[] = {524288, 524288, 131072},
                              conv[] = {8192, 6144, 8192};
        Head        head;
        ModelConfig config;
        char        name[64];
        start(&head, 3);
        key_string(&head, "general.architecture", arch[form]);
        snprintf(name, sizeof name, "%s.block_count", arch[form]);
        key_u32(&head, name, 4);
        snprintf(name, sizeof name, "%s.embedding_length", arch[form]);
        key_u32(&head, name, 4096);
        snprintf(name, sizeof name, "%s.attention.head_count", arch[form]);
        key_u32(&head, name, heads[form]);
        if (form == 0) {
            key_u32(&head, "qwen3next.attention.head_count_kv", 2);
            ssm(&head, "qwen3next", 4096, 128, 32, 16);
        } else if (form == 1) {
            key_array(&head, "nemotron_h.attention.head_count_kv", GGUF_U32, 4, nemotron_kv, 4);
            key_array(&head, "nemotron_h.feed_forward_length", GGUF_U32, 4, nemotron_ff, 4);
            ssm(&head, "nemotron_h", 4096, 128, 64, 8);
        } else {
            key_array(&head, "jamba.attention.head_count_kv", GGUF_U32, 4, jamba_kv, 4);
            ssm(&head, "jamba", 8192, 16, 256, 0);
        }
        ck_assert_msg(parse(&head, &config) == KVG_OK, "%s", kvg_last_error());
        for (uint32_t il = 0; il < 4; il++) {
            const StatePlan *layer = &config.plan.layers[il];
            KvStateKind      kind = il == attention[form]     ? KVG_STATE_KV
                                    : form == 1 && il == 1 ? KVG_STATE_NONE
                                                           : KVG_STATE_RECURRENT;
            ck_assert_int_eq(layer->kind, kind);
            if (kind == KVG_STATE_RECURRENT) {
                ck_assert_uint_eq(layer->u.recurrent.state_width, state[form]);
                ck_assert_uint_eq(layer->u.recurrent.conv_width, conv[form]);
            }
        }
        kvg_model_config_free(&config);
    }
}
END_TEST

START_TEST(test_a_next_token_block_with_a_zero_in_its_array_keeps_nothing)
{
    static const uint32_t heads[3] = {2, 2, 0};
    Head                  head;
    ModelConfig           config;

    start(&head, 3);
    key_string(&head, "general.architecture", "llama");
    key_u32(&head, "llama.block_count", 3);
    key_u32(&head, "llama.nextn_predict_layers", 1);
    key_u32(&head, "llama.embedding_length", 512);
    key_u32(&head, "llama.attention.head_count", 8);
    key_array(&head, "llama.attention.head_count_kv", GGUF_U32, 4, heads, 3);
    ck_assert_int_eq(parse(&head, &config), KVG_OK);
    ck_assert_int_eq(config.plan.layers[1].kind, KVG_STATE_KV);
    ck_assert_int_eq(config.plan.layers[2].kind, KVG_STATE_NONE);
    kvg_model_config_free(&config);
}
END_TEST

START_TEST(test_weights_come_from_a_whole_tensor_list_and_else_from_the_keys)
{
    Head        head;
    ModelConfig config;
    uint64_t    estimate;

    llama(&head, 3);
    ck_assert_int_eq(parse(&head, &config), KVG_OK);
    estimate = config.weight_bytes[1];
    ck_assert_uint_eq(estimate, 2u * (512 * (2 * 8 + 2 * 2) * 64 + 3 * 512 * 1024)); /* f16 */
    kvg_model_config_free(&config);

    tensor(&head, "token_embd.weight", 512, 1000, 8);
    tensor(&head, "blk.1.attn_q.weight", 512, 512, 12);
    tensor(&head, "blk.1.attn_k.weight", 512, 128, 8);
    tensor(&head, "blk.9.attn_k.weight", 512, 128, 8); /* no layer of this model */
    ck_assert_int_eq(parse(&head, &config), KVG_OK);
    ck_assert_uint_eq(config.weight_bytes[1], 512 * 512 / 256 * 144 + 512 * 128 / 32 * 34);
    ck_assert_uint_eq(config.weight_bytes[0], 0);
    ck_assert_uint_eq(config.embedding_bytes, 512 * 1000 / 32 * 34);
    ck_assert_uint_eq(config.head_is_tied, 1);
    kvg_model_config_free(&config);

    head.used--; /* the list is cut short */
    ck_assert_int_eq(parse(&head, &config), KVG_OK);
    ck_assert_uint_eq(config.weight_bytes[1], estimate);
    kvg_model_config_free(&config);
}
END_TEST

/* ---- what is refused */

START_TEST(test_needed_keys_that_are_missing_or_zero_are_named)
{
    Head head;

    start(&head, 3);
    refuse(&head, KVG_EFORMAT, "general.architecture");
    key_string(&head, "general.architecture", "llama");
    refuse(&head, KVG_EFORMAT, "llama.block_count");
    key_u32(&head, "llama.block_count", 2);
    refuse(&head, KVG_EFORMAT, "llama.attention.head_count");
    key_u32(&head, "llama.attention.head_count", 8);
    refuse(&head, KVG_EFORMAT, "llama.embedding_length");
    key_u32(&head, "llama.embedding_length", 100);
    refuse(&head, KVG_EFORMAT, "embedding_length 100");

    start(&head, 3);
    key_string(&head, "general.architecture", "llama");
    key_u32(&head, "llama.block_count", 2);
    key_u32(&head, "llama.embedding_length", 512);
    key_u32(&head, "llama.attention.head_count", 0); /* a zero divisor */
    refuse(&head, KVG_EFORMAT, "llama.attention.head_count");
}
END_TEST

START_TEST(test_odd_counts_of_blocks_are_refused)
{
    static const uint32_t counts[][2] = {{0, 0}, {2, 2}, {2, 3}, {1u << 20, 0}, {UINT32_MAX, 1}};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        Head head;
        start(&head, 3);
        key_string(&head, "general.architecture", "llama");
        key_u32(&head, "llama.block_count", counts[i][0]);
        key_u32(&head, "llama.nextn_predict_layers", counts[i][1]);
        key_u32(&head, "llama.embedding_length", 512);
        key_u32(&head, "llama.attention.head_count", 8);
        refuse(&head, KVG_EFORMAT, "block_count");
    }
}
END_TEST

START_TEST(test_alignment_must_be_a_small_power_of_two)
{
    static const struct {
        uint32_t  alignment;
        KvgStatus status;
    } rows[] = {{32, KVG_OK},     {8, KVG_OK},      {64, KVG_OK},          {0, KVG_EFORMAT}, {3, KVG_EFORMAT},
                {33, KVG_EFORMAT}, {1u << 31, KVG_EFORMAT}, {1, KVG_EFORMAT}, {UINT32_MAX, KVG_EFORMAT}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Head        head;
        ModelConfig config;
        llama(&head, 3);
        key_u32(&head, "general.alignment", rows[i].alignment);
        ck_assert_int_eq(parse(&head, &config), rows[i].status);
        kvg_model_config_free(&config);
    }
}
END_TEST

START_TEST(test_a_key_that_stands_twice_is_refused)
{
    Head head;

    llama(&head, 3);
    key_u32(&head, "llama.block_count", 5);
    refuse(&head, KVG_EFORMAT, "llama.block_count stands twice");
}
END_TEST

START_TEST(test_negative_and_fractional_counts_are_refused)
{
    Head head;

    start(&head, 3);
    key_string(&head, "general.architecture", "llama");
    key(&head, "llama.block_count", GGUF_I32);
    put_le(&head, (uint32_t)-4, 4);
    refuse(&head, KVG_EFORMAT, "llama.block_count");

    start(&head, 3);
    key_string(&head, "general.architecture", "llama");
    key(&head, "llama.block_count", GGUF_F32);
    put_le(&head, 0x40800000, 4);
    refuse(&head, KVG_EFORMAT, "llama.block_count");
}
END_TEST

START_TEST(test_arrays_shorter_than_the_layers_are_refused)
{
    static const uint32_t heads[3] = {2, 2, 2};
    Head                  head;

    start(&head, 3);
    key_string(&head, "general.architecture", "llama");
    key_u32(&head, "llama.block_count", 4);
    key_u32(&head, "llama.embedding_length", 512);
    key_u32(&head, "llama.attention.head_count", 8);
    key_array(&head, "llama.attention.head_count_kv", GGUF_U32, 4, heads, 3);
    refuse(&head, KVG_EFORMAT, "head_count_kv");
}
END_TEST

START_TEST(test_unplanned_schemes_are_named)
{
    Head head;

    start(&head, 3);
    key_string(&head, "general.architecture", "llama4");
    refuse(&head, KVG_ENOTSUP, "llama4");
    llama(&head, 3);
    key_u32(&head, "llama.attention.compress_ratios", 4);
    refuse(&head, KVG_ENOTSUP, "compress_ratios");
}
END_TEST

/* Counts far beyond the bytes that are there: none may be believed, looped over or multiplied. */
START_TEST(test_hostile_counts_are_refused_at_once)
{
    static const uint64_t counts[] = {1000, 1u << 31, 1ull << 60, 1ull << 61, 1ull << 63, UINT64_MAX, UINT64_MAX - 7};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (uint32_t type = 0; type < GGUF_TYPE_COUNT; type++) {
            Head head;
            llama(&head, 3);
            key(&head, "an.array", GGUF_ARRAY);
            put_le(&head, type, 4);
            put_le(&head, counts[i], 8);
            put_le(&head, 0, 16);
            refuse(&head, KVG_EFORMAT, "head");
        }
        Head head;
        llama(&head, 3);
        head.keys = counts[i];
        set_counts(&head);
        refuse(&head, KVG_EFORMAT, "head");
        start(&head, 3);
        key(&head, "general.architecture", GGUF_STRING);
        put_le(&head, counts[i], 8);
        put(&head, "llama", 5);
        refuse(&head, KVG_EFORMAT, "head");
    }
}
END_TEST

START_TEST(test_deeply_nested_arrays_are_refused_and_shallow_ones_skipped)
{
    for (int depth = 1; depth < 64; depth++) {
        Head        head;
        ModelConfig config;
        llama(&head, 3);
        key(&head, "an.array", GGUF_ARRAY);
        for (int i = 0; i < depth; i++) {
            put_le(&head, i + 1 < depth ? GGUF_ARRAY : GGUF_U8, 4);
            put_le(&head, 1, 8);
        }
        put_le(&head, 7, 1);
        ck_assert_int_eq(parse(&head, &config), depth <= 4 ? KVG_OK : KVG_EFORMAT);
        kvg_model_config_free(&config);
    }
}
END_TEST

START_TEST(test_tensor_dimensions_that_wrap_or_are_zero_are_refused)
{
    static const uint64_t dims[][2] = {{UINT64_MAX, 2}, {1152, (1ull << 62) + 1}, {1152, (1ull << 42) + 1}, {0, 5}, {5, 0},
                                         {1ull << 32, 1ull << 32}, {1ull << 62, 1}, {1ull << 50, 2}};
    Head                  head;
    ModelConfig           config;

    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        llama(&head, 3);
        tensor(&head, "blk.0.attn_q.weight", dims[i][0], dims[i][1], 1);
        refuse(&head, KVG_EFORMAT, "blk.0.attn_q.weight");
    }
    llama(&head, 3);
    tensor(&head, "blk.0.attn_q.weight", 512, 512, 255); /* a type from the future: estimated from the keys */
    ck_assert_int_eq(parse(&head, &config), KVG_OK);
    ck_assert_uint_gt(config.weight_bytes[3], 0);
    kvg_model_config_free(&config);
}
END_TEST

/* ---- damage everywhere */

static void rich(Head *head)
{
    static const uint32_t flags[4] = {1, 1, 0, 1}, heads[4] = {2, 4, 2, 8};

    start(head, 3);
    key_string(head, "general.architecture", "llama");
    key_u32(head, "general.alignment", 32);
    key_u32(head, "llama.block_count", 4);
    key_u32(head, "llama.context_length", 4096);
    key_u32(head, "llama.embedding_length", 512);
    key_u32(head, "llama.attention.head_count", 8);
    key_array(head, "llama.attention.head_count_kv", GGUF_U32, 4, heads, 4);
    key_u32(head, "llama.attention.sliding_window", 64);
    key_array(head, "llama.attention.sliding_window_pattern", GGUF_BOOL, 1, flags, 4);
    key(head, "tokenizer.ggml.tokens", GGUF_ARRAY);
    put_le(head, GGUF_STRING, 4);
    put_le(head, 3, 8);
    put_string(head, "a");
    put_string(head, "");
    put_string(head, "ccc");
}

START_TEST(test_a_head_cut_at_any_length_within_the_keys_is_refused)
{
    Head   head;
    size_t whole;

    rich(&head);
    whole = head.used;
    tensor(&head, "token_embd.weight", 512, 3, 1);
    tensor(&head, "blk.0.attn_q.weight", 512, 512, 1);
    for (size_t length = 0; length <= head.used; length++) {
        ModelConfig config = {.context = 0};
        /* In a block of its own size, so that a sanitizer sees a read past the end. */
        uint8_t    *cut = malloc(length > 0 ? length : 1);
        memcpy(cut, head.bytes, length);
        ck_assert_int_eq(kvg_model_config_parse_gguf(cut, length, "cut", &config), length < whole ? KVG_EFORMAT : KVG_OK);
        kvg_model_config_free(&config);
        free(cut);
    }
}
END_TEST

START_TEST(test_any_flipped_bit_gives_a_config_or_an_error_and_nothing_else)
{
    Head head;
    int  refused = 0;

    rich(&head);
    tensor(&head, "blk.0.attn_q.weight", 512, 512, 1);
    for (size_t bit = 0; bit < head.used * 8; bit++) {
        ModelConfig config = {.context = 0};
        uint8_t    *copy = malloc(head.used);
        KvgStatus   status;
        memcpy(copy, head.bytes, head.used);
        copy[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        status = kvg_model_config_parse_gguf(copy, head.used, "flipped", &config);
        ck_assert(status == KVG_OK || status == KVG_EFORMAT || status == KVG_ENOTSUP || status == KVG_EOVERFLOW);
        refused += status != KVG_OK;
        for (uint32_t il = 0; status == KVG_OK && il < config.plan.n_layer + config.plan.n_mtp; il++) {
            ck_assert_uint_lt(config.plan.layers[il].kind, KVG_STATE_KIND_COUNT);
        }
        kvg_model_config_free(&config);
        free(copy);
    }
    ck_assert_int_gt(refused, 500);
}
END_TEST

START_TEST(test_every_allocation_may_fail)
{
    Head head;

    rich(&head);
    for (uint64_t nth = 0;; nth++) {
        ModelConfig config = {.context = 7};
        KvgStatus   status;
        kvg_fault_arm(nth);
        status = kvg_model_config_parse_gguf(head.bytes, head.used, "head", &config);
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

/* ---- files */

static void write_file(const char *path, const Head *head, size_t tail)
{
    FILE *file = fopen(path, "wb");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(head->bytes, 1, head->used, file), head->used);
    if (tail > 0) {
        ck_assert_int_eq(fseek(file, (long)tail, SEEK_CUR), 0);
        ck_assert_uint_eq(fwrite("", 1, 1, file), 1);
    }
    fclose(file);
}

START_TEST(test_a_file_is_known_by_its_magic_and_only_its_head_is_read)
{
    char        path[] = "/tmp/kvg_gguf_XXXXXX";
    Head        head;
    ModelConfig config = {.context = 0};
    int         fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    close(fd);
    llama(&head, 3);
    tensor(&head, "blk.0.attn_q.weight", 512, 512, 1);
    write_file(path, &head, (size_t)1 << 33); /* sparse: 8 GiB of tensor data that nobody may read */
    ck_assert_msg(kvg_model_config_load(path, &config) == KVG_OK, "%s", kvg_last_error());
    ck_assert_uint_eq(config.weight_bytes[0], 512 * 512 * 2);
    kvg_model_config_free(&config);

    head.used = 60;
    write_file(path, &head, 0);
    ck_assert_int_eq(kvg_model_config_load(path, &config), KVG_EFORMAT);
    unlink(path);
}
END_TEST

/* Metadata larger than the first read: the loader reads on, as far as it must. */
START_TEST(test_keys_of_several_megabytes_load)
{
    char        path[] = "/tmp/kvg_gguf_XXXXXX";
    static char filler[1 << 16];
    Head        head;
    ModelConfig config = {.context = 0};
    FILE       *file;
    int         fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    close(fd);
    llama(&head, 3);
    key(&head, "tokenizer.blob", GGUF_ARRAY);
    put_le(&head, GGUF_U8, 4);
    put_le(&head, 80 * sizeof filler, 8);
    file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(head.bytes, 1, head.used, file), head.used);
    for (int i = 0; i < 80; i++) {
        ck_assert_uint_eq(fwrite(filler, 1, sizeof filler, file), sizeof filler);
    }
    fclose(file);
    ck_assert_msg(kvg_model_config_load(path, &config) == KVG_OK, "%s", kvg_last_error());
    ck_assert_uint_eq(config.plan.n_layer, 4);
    kvg_model_config_free(&config);
    unlink(path);
}
END_TEST

static void check_no_leak(void)
{
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}

int main(void)
{
    Suite   *suite = suite_create("gguf");
    TCase   *loads = tcase_create("loads"), *refusals = tcase_create("refusals"), *damage = tcase_create("damage");
    SRunner *runner;
    int      failed, run;

    tcase_add_checked_fixture(loads, NULL, check_no_leak);
    tcase_add_test(loads, test_versions_2_and_3_load_and_others_are_refused);
    tcase_add_test(loads, test_a_plain_model_has_its_heads_context_and_layers);
    tcase_add_test(loads, test_key_and_value_lengths_win_over_the_derived_ones);
    tcase_add_test(loads, test_a_zero_in_an_array_of_heads_means_none_here);
    tcase_add_test(loads, test_a_window_with_a_period_or_an_array_or_a_family_default);
    tcase_add_test(loads, test_a_window_of_zero_is_full_attention);
    tcase_add_test(loads, test_latent_models_take_rank_and_rope_and_ignore_their_heads);
    tcase_add_test(loads, test_recurrent_layers_equal_the_json_models);
    tcase_add_test(loads, test_a_next_token_block_with_a_zero_in_its_array_keeps_nothing);
    tcase_add_test(loads, test_weights_come_from_a_whole_tensor_list_and_else_from_the_keys);
    tcase_add_test(loads, test_a_file_is_known_by_its_magic_and_only_its_head_is_read);
    tcase_add_test(loads, test_keys_of_several_megabytes_load);
    tcase_add_checked_fixture(refusals, NULL, check_no_leak);
    tcase_add_test(refusals, test_needed_keys_that_are_missing_or_zero_are_named);
    tcase_add_test(refusals, test_odd_counts_of_blocks_are_refused);
    tcase_add_test(refusals, test_alignment_must_be_a_small_power_of_two);
    tcase_add_test(refusals, test_a_key_that_stands_twice_is_refused);
    tcase_add_test(refusals, test_negative_and_fractional_counts_are_refused);
    tcase_add_test(refusals, test_arrays_shorter_than_the_layers_are_refused);
    tcase_add_test(refusals, test_unplanned_schemes_are_named);
    tcase_add_checked_fixture(damage, NULL, check_no_leak);
    tcase_set_timeout(damage, 60);
    tcase_add_test(damage, test_hostile_counts_are_refused_at_once);
    tcase_add_test(damage, test_deeply_nested_arrays_are_refused_and_shallow_ones_skipped);
    tcase_add_test(damage, test_tensor_dimensions_that_wrap_or_are_zero_are_refused);
    tcase_add_test(damage, test_a_head_cut_at_any_length_within_the_keys_is_refused);
    tcase_add_test(damage, test_any_flipped_bit_gives_a_config_or_an_error_and_nothing_else);
    tcase_add_test(damage, test_every_allocation_may_fail);
    suite_add_tcase(suite, loads);
    suite_add_tcase(suite, refusals);
    suite_add_tcase(suite, damage);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

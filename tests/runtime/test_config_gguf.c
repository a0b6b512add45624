/* GGUF configs: what keys and tensors mean, which value wins, and what is refused by name. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvgrid/model.h>

#include "runtime/model/gguf.h"
#include "tests/support/small_gguf.h"

/* ---- what loads */

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

int main(void)
{
    Suite *suite = suite_create("config_gguf");
    TCase *tcase = tcase_create("config_gguf");

    tcase_add_checked_fixture(tcase, no_leak_setup, no_leak_teardown);
    tcase_add_test(tcase, test_a_plain_model_has_its_heads_context_and_layers);
    tcase_add_test(tcase, test_key_and_value_lengths_win_over_the_derived_ones);
    tcase_add_test(tcase, test_a_zero_in_an_array_of_heads_means_none_here);
    tcase_add_test(tcase, test_a_window_with_a_period_or_an_array_or_a_family_default);
    tcase_add_test(tcase, test_a_window_of_zero_is_full_attention);
    tcase_add_test(tcase, test_latent_models_take_rank_and_rope_and_ignore_their_heads);
    tcase_add_test(tcase, test_recurrent_layers_equal_the_json_models);
    tcase_add_test(tcase, test_a_next_token_block_with_a_zero_in_its_array_keeps_nothing);
    tcase_add_test(tcase, test_weights_come_from_a_whole_tensor_list_and_else_from_the_keys);
    tcase_add_test(tcase, test_needed_keys_that_are_missing_or_zero_are_named);
    tcase_add_test(tcase, test_odd_counts_of_blocks_are_refused);
    tcase_add_test(tcase, test_negative_and_fractional_counts_are_refused);
    tcase_add_test(tcase, test_arrays_shorter_than_the_layers_are_refused);
    tcase_add_test(tcase, test_unplanned_schemes_are_named);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

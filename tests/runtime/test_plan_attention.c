/* JSON configs: heads and their widths, which value wins, and the level it stands on. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvgrid/model.h>
#include <kvgrid/sizing.h>

#include "tests/support/small_config.h"

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

int main(void)
{
    Suite *suite = suite_create("plan_attention");
    TCase *tcase = tcase_create("plan_attention");

    tcase_add_checked_fixture(tcase, no_leak_setup, no_leak_teardown);
    tcase_add_test(tcase, test_an_explicit_head_dim_wins_and_null_or_absent_is_derived);
    tcase_add_test(tcase, test_kv_heads_default_to_all_heads);
    tcase_add_test(tcase, test_falcon_has_one_head_unless_the_new_decoder_says_otherwise);
    tcase_add_test(tcase, test_v_may_be_narrower_than_k);
    tcase_add_test(tcase, test_windowed_layers_may_have_heads_of_their_own);
    tcase_add_test(tcase, test_gemma_4_global_layers_are_wider_and_may_have_fewer_heads);
    tcase_add_test(tcase, test_mistral_params_have_names_of_their_own);
    tcase_add_test(tcase, test_a_list_of_heads_has_an_entry_a_layer_and_0_means_none);
    tcase_add_test(tcase, test_the_inner_level_wins_and_the_outer_fills_in);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

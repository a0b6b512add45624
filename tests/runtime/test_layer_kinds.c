/* JSON configs: which layers have which kind, by windows, lists, patterns and letters; shared layers and MTP blocks. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/model.h>

#include "tests/support/small_config.h"

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

int main(void)
{
    Suite *suite = suite_create("layer_kinds");
    TCase *tcase = tcase_create("layer_kinds");

    tcase_add_checked_fixture(tcase, no_leak_setup, no_leak_teardown);
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
    tcase_add_test(tcase, test_shared_layers_read_the_last_owner_of_their_kind);
    tcase_add_test(tcase, test_latent_rows_are_not_shared);
    tcase_add_test(tcase, test_mtp_counts_have_three_names_and_zero_is_legal);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* JSON configs: what is refused, by name and by place, and that nothing is left of it. */
#include <check.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/log.h>
#include <kvgrid/model.h>

#include "runtime/base/memory.h"
#include "tests/support/small_config.h"

START_TEST(test_schemes_that_are_not_planned_are_named)
{
    refuse("{" LLAMA ",\"compress_ratios\":[0,4,128,4]}", KVG_ENOTSUP, "compress_ratios names a cache scheme that kvgrid does not plan; no option helps");
    refuse("{\"text_config\":{" LLAMA ",\"compress_ratios\":[0]}}", KVG_ENOTSUP, "compress_ratios");
    check_kinds("{" LLAMA ",\"compress_ratios\":null}", "FFFF");
    refuse("{\"model_type\":\"llama4_text\"," LLAMA "}", KVG_ENOTSUP, "llama4");
    refuse("{\"model_type\":\"mamba2\",\"num_hidden_layers\":2,\"num_heads\":8}", KVG_ENOTSUP, "model_type mamba2 has a cache scheme");
    refuse("{\"model_type\":\"mamba\",\"num_hidden_layers\":2}", KVG_ENOTSUP, "model_type mamba has a cache scheme");
    refuse("{\"model_type\":\"falcon_mamba\",\"num_hidden_layers\":2}", KVG_ENOTSUP, "model_type falcon_mamba has a cache scheme");
    refuse("{" LLAMA ",\"is_encoder_decoder\":true}", KVG_ENOTSUP, "is_encoder_decoder is true");
    refuse("{\"model_type\":\"t5\",\"num_layers\":2,\"num_heads\":8}", KVG_ENOTSUP, "model_type t5 is an encoder-decoder");
    refuse("{\"model_type\":\"umt5\",\"num_layers\":2}", KVG_ENOTSUP, "model_type umt5 is an encoder-decoder");
    refuse("{" MLA ",\"sliding_window\":64,\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\","
           "\"sliding_attention\"]}", KVG_ENOTSUP, "sliding_window");
}
END_TEST

static int  notices;
static char notice[256];

static void take_notice(void *user, KvgLogLevel level, const char *sentence)
{
    (void)user;
    notices += level == KVG_LOG_WARN;
    snprintf(notice, sizeof notice, "%s", sentence);
}

START_TEST(test_a_family_that_is_not_known_is_planned_and_told)
{
    char   path[512];
    glob_t found;

    kvg_log_set(take_notice, NULL);
    check_kinds("{\"model_type\":\"mystery\"," LLAMA "}", "FFFF");
    ck_assert_int_eq(notices, 1);
    ck_assert_str_eq(notice, "small.json: model_type mystery is not known here: its layers are read from the fields alone, as those of families that are known");
    check_kinds("{\"model_type\":\"llama\"," LLAMA "}", "FFFF");
    check_kinds("{" LLAMA "}", "FFFF");
    ck_assert_int_eq(notices, 1);
    snprintf(path, sizeof path, "%s/models/*.json", KVG_TEST_DATA);
    ck_assert_int_eq(glob(path, 0, NULL, &found), 0);
    ck_assert_uint_gt(found.gl_pathc, 20);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        ModelConfig config = {.context = 0};

        if (kvg_model_config_load(found.gl_pathv[i], &config) == KVG_OK) {
            kvg_model_config_free(&config);
        }
        ck_assert_msg(notices == 1, "%s: %s", found.gl_pathv[i], notice);
    }
    globfree(&found);
    kvg_log_set(NULL, NULL);
}
END_TEST

START_TEST(test_a_field_that_is_needed_and_missing_is_named)
{
    refuse("{\"hidden_size\":512}", KVG_EFORMAT, "num_hidden_layers is missing, and the model's state cannot be known without it; mend the config");
    refuse("{\"num_hidden_layers\":2,\"hidden_size\":512}", KVG_EFORMAT,
           "num_attention_heads is missing, and an attention layer cannot be planned without it; mend the config");
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

int main(void)
{
    Suite *suite = suite_create("config_json");
    TCase *tcase = tcase_create("config_json");

    tcase_add_checked_fixture(tcase, no_leak_setup, no_leak_teardown);
    tcase_add_test(tcase, test_schemes_that_are_not_planned_are_named);
    tcase_add_test(tcase, test_a_family_that_is_not_known_is_planned_and_told);
    tcase_add_test(tcase, test_a_field_that_is_needed_and_missing_is_named);
    tcase_add_test(tcase, test_bad_values_of_used_fields_are_named);
    tcase_add_test(tcase, test_heads_that_do_not_divide_are_refused);
    tcase_add_test(tcase, test_products_that_do_not_fit_are_refused);
    tcase_add_test(tcase, test_fields_of_estimates_are_not_judged);
    tcase_add_test(tcase, test_malformed_json_is_refused_with_its_place);
    tcase_add_test(tcase, test_python_s_infinity_is_read_as_null_outside_strings);
    tcase_add_test(tcase, test_a_config_cut_at_any_length_is_refused);
    tcase_add_test(tcase, test_every_allocation_may_fail);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

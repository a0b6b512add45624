/* Configs: formats of a layer, paths, and what messages call them. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvgrid/model.h>
#include <kvgrid/sizing.h>

#include "tests/support/small_config.h"

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

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *tcase = tcase_create("config");

    tcase_add_checked_fixture(tcase, no_leak_setup, no_leak_teardown);
    tcase_add_test(tcase, test_what_is_asked_wins_then_the_class_s_switch_then_the_pair);
    tcase_add_test(tcase, test_blocks_never_span_heads_and_illegal_formats_are_listed);
    tcase_add_test(tcase, test_a_directory_gives_its_config_or_its_params);
    tcase_add_test(tcase, test_a_path_that_is_not_there_or_no_config_is_refused);
    tcase_add_test(tcase, test_a_key_that_stands_twice_is_refused_and_a_byte_order_mark_is_not);
    tcase_add_test(tcase, test_messages_name_the_path_as_given);
    tcase_add_test(tcase, test_kinds_have_the_names_of_the_rules);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* JSON configs: latent layers and their indexers. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/model.h>

#include "tests/support/small_config.h"

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

int main(void)
{
    Suite *suite = suite_create("plan_latent");
    TCase *tcase = tcase_create("plan_latent");

    tcase_add_checked_fixture(tcase, no_leak_setup, no_leak_teardown);
    tcase_add_test(tcase, test_latent_layers_need_rank_and_rope_and_judge_nothing_else);
    tcase_add_test(tcase, test_indexers_are_full_or_shared_pooled_or_a_key_a_token);
    tcase_add_test(tcase, test_the_frequency_gives_the_same_21_indexers_as_the_list);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Section (h): model configurations, in bytes. */
#include "tests/cases/cases.h"

/* B136, B137: the stated head width decides bytes too, where it is more or less than hidden size over heads. */
START_TEST(test_the_stated_head_width_decides_the_bytes)
{
    static const struct { uint32_t hidden, heads, kv_heads, dim, derived; } cases[] = {
        {3584, 16, 8, 256, 224}, {5120, 32, 8, 128, 160}, {2880, 64, 8, 64, 45}, {3072, 16, 16, 256, 192}, {4096, 32, 8, 128, 128},
    };
    KvSizing sizing = case_sizing(KVG_BF16);

    for (int i = 0; i < COUNT(cases); i++) {
        for (int stated = 0; stated < 2; stated++) {
            uint32_t    dim = stated ? cases[i].dim : cases[i].derived;
            uint64_t    bytes = 0;
            char        text[512], width[32] = "";
            ModelConfig config;
            if (stated) snprintf(width, sizeof width, ",\"head_dim\":%u", dim);
            snprintf(text, sizeof text, "{\"num_hidden_layers\":1,\"hidden_size\":%u,\"num_attention_heads\":%u,\"num_key_value_heads\":%u%s}",
                     cases[i].hidden, cases[i].heads, cases[i].kv_heads, width);
            config = case_parse(text);
            ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, 0, 1, &bytes), KVG_OK);
            ck_assert_uint_eq(bytes, 2ull * 2 * cases[i].kv_heads * dim);
            if (i == 0) ck_assert_uint_eq(bytes, stated ? 8192 : 7168);
            kvg_model_config_free(&config);
        }
    }
}
END_TEST

/* B146: of 88 layers 40 keep state, 8 keep rows and 40 keep nothing: a plan has 48 layers with something in them, on any stages. */
START_TEST(test_layers_without_state_cost_nothing_on_any_stage)
{
    ModelConfig config = case_load("nemotron-3-nano-30b-a3b"); /* 23 with state, 6 with rows, 23 without anything */
    KvSizing    sizing = case_sizing(KVG_BF16);
    int         holding = 0;

    for (uint32_t il = 0; il < config.plan.n_layer; il++) {
        uint64_t row = 0, fixed = 0;
        ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, il, il + 1, &row), KVG_OK);
        ck_assert_int_eq(kvg_plan_fixed_bytes(&sizing, &config.plan, il, il + 1, 4096, 0, &fixed), KVG_OK);
        ck_assert_int_eq(row + fixed > 0, config.plan.layers[il].kind != KVG_STATE_NONE);
        holding += row + fixed > 0;
    }
    ck_assert_int_eq(holding, 29);
    kvg_model_config_free(&config);
}
END_TEST

int main(void)
{
    const TTest *tests[] = {
        test_the_stated_head_width_decides_the_bytes,
        test_layers_without_state_cost_nothing_on_any_stage,
    };
    return case_main("config", tests, COUNT(tests));
}

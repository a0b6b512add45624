/* Section (c): bytes of models and of what a grid books for them. */
#include "tests/cases/cases.h"

typedef struct Bytes {
    uint64_t token, ring; /* a token in all layers; of these in windowed ones while the ring is on */
} Bytes;

static Bytes bytes_of(const ModelConfig *config, KvFormat format)
{
    KvSizing sizing = case_sizing(format);
    Bytes    bytes;

    sizing.policy.swa_ring = 1;
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config->plan, 0, config->plan.n_layer, &bytes.token), KVG_OK);
    ck_assert_int_eq(kvg_plan_ring_bytes_per_token(&sizing, &config->plan, 0, config->plan.n_layer, &bytes.ring), KVG_OK);
    return bytes;
}

/* `rows` tokens of which windowed layers keep at most `kept`. */
static uint64_t held(Bytes bytes, uint64_t rows, uint64_t kept)
{
    return (bytes.token - bytes.ring) * rows + bytes.ring * (rows < kept ? rows : kept);
}

/* `layers` windowed or full by turns (windowed first) of `heads` heads of `dim`. */
static ModelConfig by_turns(uint32_t layers, uint32_t heads, uint32_t dim, uint32_t window)
{
    char text[512];

    snprintf(text, sizeof text, "{\"model_type\":\"gpt_oss\",\"num_hidden_layers\":%u,\"hidden_size\":2880,\"num_attention_heads\":64,"
             "\"num_key_value_heads\":%u,\"head_dim\":%u,\"sliding_window\":%u,\"max_position_embeddings\":131072}", layers, heads, dim, window);
    return case_parse(text);
}

/* B38: a latent row is kv rank plus rope part, once. The figure that doubles it and leaves the rope part out is 124928. */
START_TEST(test_a_latent_row_holds_the_rope_part_and_is_not_doubled)
{
    KvSizing    sizing = case_sizing(KVG_BF16);
    ModelConfig config = case_load("mistral-large-3-675b");
    uint64_t    bytes = 0;

    for (int i = 0; i < 2; i++) {
        sizing.format_latent = i ? KVG_F32 : KVG_BF16;
        ck_assert_int_eq(kvg_plan_latent_bytes_per_token(&sizing, &config.plan, 0, 61, &bytes), KVG_OK);
        ck_assert_uint_eq(bytes, 61ull * (512 + 64) * (i ? 4 : 2));
    }
    kvg_model_config_free(&config);
}
END_TEST

/* B39: the indexer's keys are priced beside the latents, at every length. The latents are f32 here and not packed. */
START_TEST(test_indexer_keys_are_priced_beside_the_latents)
{
    ModelConfig       config = case_load("deepseek-v3.2");
    Bytes             bytes = bytes_of(&config, KVG_BF16);
    KvGridPlanOptions options = case_plan_options(1, 1, KVG_BF16);
    uint64_t          tokens[] = {975424, 1462784}, state;

    ck_assert_uint_eq(bytes.token, 61ull * (576 + 128) * 4);
    options.state_bytes = &state;
    config.context = 1u << 30;
    for (int i = 0; i < 2; i++) { /* both are whole units: exactly this many tokens fit, and a byte less holds a unit less */
        state = tokens[i] * bytes.token;
        options.max_sequences = 1;
        KvGridPlan plan = case_plan(&config, &options);
        ck_assert_uint_eq(plan.max_context, tokens[i]);
        kvg_grid_plan_free(&plan);
        state--;
        plan = case_plan(&config, &options);
        ck_assert_uint_eq(plan.max_context, tokens[i] - 64);
        kvg_grid_plan_free(&plan);
    }
    kvg_model_config_free(&config);
}
END_TEST

/* B40: windowed layers are neither dropped nor priced at full length while a ring is on, and at full length without. */
START_TEST(test_windowed_layers_are_capped_by_a_ring_full_without_and_never_dropped)
{
    ModelConfig small = by_turns(24, 8, 64, 128), large = case_load("gpt-oss-120b");
    Bytes       bytes = bytes_of(&small, KVG_BF16);
    KvSizing    off = case_sizing(KVG_BF16);
    uint64_t    ring = 1;

    ck_assert_uint_eq(held(bytes, 8192, 128) * 32, 6543114240);
    ck_assert_uint_eq(bytes.token * 8192 * 32, 12ull << 30);
    ck_assert_uint_eq(held(bytes, 8192, kvg_swa_ring_rows(128, 8192)) * 32, (bytes.token / 2) * (8192 + 4767) * 32); /* a ring's own rows */
    bytes = bytes_of(&large, KVG_BF16);
    ck_assert_uint_eq(held(bytes, 1, 128), 73728);
    ck_assert_uint_eq(held(bytes, 128, 128), 128 * 73728);
    ck_assert_uint_eq(held(bytes, 129, 128), 128 * 73728 + 73728 / 2);
    ck_assert_uint_eq(held(bytes, 131072, 128), 4836556800);
    ck_assert_uint_eq(bytes.token * 131072, 9663676416);
    ck_assert_int_eq(kvg_plan_ring_bytes_per_token(&off, &large.plan, 0, 36, &ring), KVG_OK);
    ck_assert_uint_eq(ring, 0);
    kvg_model_config_free(&small);
    kvg_model_config_free(&large);
}
END_TEST

/* B41: each layer by its own heads, width and window: 18.8 times less than all layers at full length with the largest of each. */
START_TEST(test_layers_of_different_widths_are_priced_one_by_one)
{
    ModelConfig config = case_load("gemma-4-26b-a4b");
    Bytes       bytes = bytes_of(&config, KVG_F16);

    ck_assert_uint_eq(held(bytes, 131072, 1024), 2894069760);
    ck_assert_uint_eq(held(bytes, 131072, 1024 + 512), 2998927360);
    ck_assert_uint_eq(held(bytes, 131072, 1023), 2894069760 - 25 * 8192);
    ck_assert_uint_lt(bytes.token * 131072, 56371445760);
    kvg_model_config_free(&config);
}
END_TEST

/* B43: Gemma 3 4B. Its figures are f32's, which is no format of K/V rows here: twice those of bf16. */
START_TEST(test_a_ring_s_rows_and_not_its_window_are_what_is_taken)
{
    ModelConfig config = case_parse("{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":34,\"hidden_size\":2560,\"num_attention_heads\":8,"
                                    "\"num_key_value_heads\":4,\"head_dim\":256,\"sliding_window\":1024,\"max_position_embeddings\":131072}");
    Bytes       bytes = bytes_of(&config, KVG_BF16);
    KvSizing    sizing = case_sizing(KVG_F32);
    uint64_t    refused = 7;

    ck_assert_uint_eq(2 * bytes.token * 32768, 9126805504);
    ck_assert_uint_eq(2 * held(bytes, 32768, 1475), 1692590080);
    ck_assert_uint_eq(held(bytes, 32768, 1024), 792723456);
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, 0, 34, &refused), KVG_EINVAL);
    ck_assert_uint_eq(refused, 7);
    kvg_model_config_free(&config);
}
END_TEST

/* B45: layer 30 of Gemma 4 E4B reads layer 22's planes and may not write them: rows that a step has just put there stay as they are. */
START_TEST(test_a_sharing_layer_cannot_write_its_source)
{
    KvgPlaceOptions options = case_options(1, 64u << 20);
    KvgSequence    *s[TEST_RANKS_MAX][8];
    TestGrid        g;
    KvgStep        *step;
    KvgRows         in = KVG_ROWS_INIT;
    uint32_t        rows = 2;
    char            without[33], with[33];
    static float    zeros[2 * 1024];

    grid_connect(&g, 1, 1, NULL, 0);
    g.config = case_load("gemma-4-e4b");
    ck_assert_msg(grid_place(&g, &g.config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_batch_create(g.placement[0], 1, &g.batch[0]), KVG_OK);
    ck_assert_uint_eq(kvg_plane_view(g.batch[0], 30)->layer, 22);
    ck_assert_ptr_eq(kvg_plane_view(g.batch[0], 30)->k.base, kvg_plane_view(g.batch[0], 22)->k.base);
    ck_assert_uint_eq(kvg_plane_view(g.batch[0], 41)->layer, 23);
    case_open_sequence(&g, s, 0, 3);
    case_grow(&g, s, 0, 42);
    grid_digest(&g, s, 0, without);
    ck_assert_int_eq(kvg_sequence_rewind(s[0][0], 40), KVG_OK);
    ck_assert_int_eq(kvg_batch_set(g.batch[0], 0, s[0][0]), KVG_OK);
    ck_assert_int_eq(kvg_step_begin(g.batch[0], &rows, &step), KVG_OK);
    case_write(&g, 0, &(CaseRows){s[0][0], rows, rows});
    in.k = in.v = zeros;
    for (uint32_t il = 24; il < 42; il++) ck_assert_int_eq(kvg_write_kv(g.batch[0], il, &in, NULL), KVG_EINVAL);
    grid_post(&g, 0, step, &rows, KVG_OK);
    ck_assert_int_eq(grid_decide(&g, &step, NULL), KVG_OK);
    grid_digest(&g, s, 0, with);
    ck_assert_str_eq(with, without);
    grid_close(&g);
}
END_TEST

/* B46: 7 latent layers of 27 have rows, found by their number in the model; the 20 recurrent ones have none. */
START_TEST(test_only_layers_with_rows_cost_tokens)
{
    ModelConfig       config = case_load("kimi-linear-48b-a3b");
    KvGridPlanOptions options = case_plan_options(1, 1, KVG_BF16);
    KvGridPlan        plan;

    options.sizing.format_latent = KVG_BF16;
    plan = case_plan(&config, &options);
    ck_assert_uint_eq(plan.ranks[0].bytes_per_token, 8064);
    ck_assert_uint_eq(plan.classes[0].layers, 7);
    for (uint32_t il = 0; il < 27; il++) {
        ck_assert_uint_eq(plan.class_of_layer[il], config.plan.layers[il].kind == KVG_STATE_LATENT ? 0 : UINT32_MAX);
    }
    kvg_grid_plan_free(&plan);
    kvg_model_config_free(&config);
}
END_TEST

/* B48: a unit is 64 rows whatever the state beside it and whatever tp: sequences take equally many on every grid. */
START_TEST(test_units_of_a_hybrid_do_not_depend_on_tp)
{
    ModelConfig config = case_load("nemotron-3-nano-30b-a3b");
    uint64_t    slot = 0;

    for (uint32_t tp = 1; tp <= 8; tp *= 2) {
        KvGridPlanOptions options = case_plan_options(tp, 1, KVG_FP8);
        KvGridPlan        plan;
        options.ctx = 4168;
        plan = case_plan(&config, &options);
        ck_assert_uint_eq(plan.classes[0].units_per_sequence, 66); /* ceil(4168 / 64) */
        ck_assert_uint_eq(plan.ranks[0].class_unit_bytes[0], 64ull * 6 * 2 * 128 * (tp == 1 ? 2 : 1)); /* one head from tp 2 on */
        if (tp > 1) ck_assert_uint_le(plan.ranks[0].slot_bytes * tp, slot + slot / 20); /* state goes on halving, but for groups' copies */
        if (tp == 1) slot = plan.ranks[0].slot_bytes;
        kvg_grid_plan_free(&plan);
    }
    ck_assert_uint_eq(slot, 2 * 49930240);
    kvg_model_config_free(&config);
}
END_TEST

/* `states` GDN-like layers beside one K/V layer, by JSON. */
static ModelConfig hybrid(uint32_t states, uint32_t heads, uint32_t kernel)
{
    char  text[1024];
    char *end = text;

    end += sprintf(end, "{\"num_hidden_layers\":%u,\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":256,"
                   "\"linear_attn_config\":{\"num_heads\":%u,\"head_dim\":128,\"short_conv_kernel_size\":%u,\"full_attn_layers\":[0]}}",
                   states + 1, heads, kernel);
    ck_assert_int_lt(end - text, (int)sizeof text);
    return case_parse(text);
}

/* B55: rows and state never share an allocation, so no unit is stretched to the size of a state. */
START_TEST(test_state_lies_in_slots_and_leaves_the_unit_of_rows_alone)
{
    for (uint32_t states = 0; states <= 3; states++) {
        ModelConfig       config = hybrid(states, 16, 4);
        KvGridPlanOptions options = case_plan_options(1, 1, KVG_BF16);
        KvGridPlan        plan = case_plan(&config, &options);
        ck_assert_uint_eq(plan.ranks[0].class_unit_bytes[0], 64ull * 2 * 2 * 256 * 2);
        ck_assert_uint_eq(plan.ranks[0].slot_bytes, states * 2ull * (3 * 16 * 128 * 3 * 4 + 1048576));
        kvg_grid_plan_free(&plan);
        kvg_model_config_free(&config);
    }
}
END_TEST

/* B56, B58: state costs columns x (taps + state) a sequence, exactly linear, whatever the context; the plan and the sizing rule
 * agree for every count of columns, drafts included. */
START_TEST(test_slots_cost_their_columns_in_the_plan_and_in_the_rule_alike)
{
    for (uint32_t columns = 2; columns <= 6; columns++) {
        ModelConfig       config = hybrid(6, 4, 4);
        KvGridPlanOptions options = case_plan_options(1, 1, KVG_BF16);
        uint64_t          fixed = 0, state, column = 6ull * (3 * 4 * 128 * 3 + 4 * 128 * 128) * 4;
        KvGridPlan        plan;
        options.spec_columns = columns;
        plan = case_plan(&config, &options);
        ck_assert_int_eq(kvg_plan_fixed_bytes(&options.sizing, &config.plan, 0, 7, 4096, columns, &fixed), KVG_OK);
        ck_assert_uint_eq(plan.ranks[0].slot_bytes, columns * column);
        ck_assert_uint_eq(fixed, plan.ranks[0].slot_bytes + 20);
        kvg_grid_plan_free(&plan);
        options.ctx = 6400;
        options.state_bytes = &state;
        for (uint32_t n = 1; n <= 5; n++) { /* n slots and 100 units, to the byte */
            state = n * columns * column + 100 * (64ull * 2 * 2 * 256 * 2);
            options.max_sequences = n;
            plan = case_plan(&config, &options);
            ck_assert_uint_eq(plan.slots, n);
            ck_assert_uint_eq(plan.classes[0].units, 100);
            kvg_grid_plan_free(&plan);
        }
        kvg_model_config_free(&config);
    }
}
END_TEST

int main(void)
{
    const TTest *tests[] = {
        test_a_latent_row_holds_the_rope_part_and_is_not_doubled,
        test_indexer_keys_are_priced_beside_the_latents,
        test_windowed_layers_are_capped_by_a_ring_full_without_and_never_dropped,
        test_layers_of_different_widths_are_priced_one_by_one,
        test_a_ring_s_rows_and_not_its_window_are_what_is_taken,
        test_a_sharing_layer_cannot_write_its_source,
        test_only_layers_with_rows_cost_tokens,
        test_units_of_a_hybrid_do_not_depend_on_tp,
        test_state_lies_in_slots_and_leaves_the_unit_of_rows_alone,
        test_slots_cost_their_columns_in_the_plan_and_in_the_rule_alike,
    };
    return case_main("sizes", tests, COUNT(tests));
}

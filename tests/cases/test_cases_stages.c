/* Section (b): layers over stages, for models whose layers differ. */
#include "tests/cases/cases.h"

/* 93 layers, full attention in 4, 8, ..., 92 and 93 (numbered from 1), all others recurrent. */
static ModelConfig k3(void)
{
    static char text[2048];
    char       *end = text;

    end += sprintf(end, "{\"model_type\":\"kimi_linear\",\"num_hidden_layers\":93,\"num_attention_heads\":8,\"head_dim\":64,"
                   "\"linear_attn_config\":{\"num_heads\":8,\"head_dim\":32,\"short_conv_kernel_size\":4,\"full_attn_layers\":[");
    for (int layer = 4; layer <= 92; layer += 4) end += sprintf(end, "%d,", layer);
    sprintf(end, "93]}}");
    return case_parse(text);
}

/* B22, B23: split 12x5+11x3 the stages hold 9,9,9,9,9,9,8,7 recurrent and 3,3,3,3,3,2,3,4 full layers. A stage's slots are
 * priced by its own layers, and all ranks have as many. */
START_TEST(test_each_stage_pays_for_its_own_recurrent_and_full_layers)
{
    static const uint32_t fence[] = {0, 12, 24, 36, 48, 60, 71, 82, 93};
    static const uint64_t linear[] = {9, 9, 9, 9, 9, 9, 8, 7}, full[] = {3, 3, 3, 3, 3, 2, 3, 4};
    KvGridPlanOptions     options = case_plan_options(1, 8, KVG_BF16);
    uint64_t              state[8], column = (3 * 8 * 32 * 3 + 8 * 32 * 32) * 4;
    ModelConfig           config = k3();
    KvGridPlan            plan;

    options.fence = fence;
    plan = case_plan(&config, &options);
    for (int r = 0; r < 8; r++) {
        ck_assert_uint_eq(plan.ranks[r].slot_bytes, linear[r] * 2 * column);
        ck_assert_uint_eq(plan.ranks[r].bytes_per_token, full[r] * 2 * 8 * 64 * 2);
        ck_assert_uint_eq(plan.class_of_layer[fence[r]] == 0, fence[r] % 4 == 3);
        state[r] = 10 * linear[r] * 2 * column; /* ten slots, and no rows yet */
    }
    kvg_grid_plan_free(&plan);
    options.state_bytes = state;
    options.max_sequences = 10;
    options.ctx = 64; /* one unit a sequence */
    config.context = 64;
    for (int r = 0; r < 8; r++) state[r] += 10 * 64 * full[r] * 2 * 8 * 64 * 2;
    plan = case_plan(&config, &options);
    ck_assert_uint_eq(plan.slots, 10);
    ck_assert_uint_eq(plan.max_sequences, 10);
    kvg_grid_plan_free(&plan);
    state[7]--; /* a byte less on one stage is a sequence less on all */
    plan = case_plan(&config, &options);
    ck_assert_uint_eq(plan.max_sequences, 9);
    ck_assert_int_eq(plan.limiting_rank, 7);
    kvg_grid_plan_free(&plan);
    kvg_model_config_free(&config);
}
END_TEST

/* B28: 78 layers and one MTP block, each with latent rows and an indexer: 158 planes live, 156 of them the trunk's. */
START_TEST(test_the_mtp_block_s_planes_are_counted_once_and_not_in_the_trunk)
{
    ModelConfig config = case_load("glm-5");
    KvSizing    sizing = case_sizing(KVG_BF16);
    uint64_t    trunk = 0, all = 0;
    int         planes[2] = {0};

    for (uint32_t il = 0; il < config.plan.n_layer + config.plan.n_mtp; il++) {
        const StatePlan *layer = &config.plan.layers[il];
        int              own = layer->kind == KVG_STATE_LATENT ? 1 + (layer->u.latent.index_kind == KVG_INDEX_PER_TOKEN) : 0;
        planes[0] += own;
        planes[1] += il < config.plan.n_layer ? own : 0;
    }
    ck_assert_int_eq(planes[0], 158);
    ck_assert_int_eq(planes[1], 156);
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, 0, 78, &trunk), KVG_OK);
    ck_assert_int_eq(kvg_plan_bytes_per_token(&sizing, &config.plan, 0, 79, &all), KVG_OK);
    ck_assert_uint_eq(trunk, 78 * (576 + 128) * 4);
    ck_assert_uint_eq(all, 79 * (576 + 128) * 4);
    kvg_model_config_free(&config);
}
END_TEST

/* B29: each stage holds the keys of its own indexers; over the stages they are 21, on any number of stages. */
START_TEST(test_the_indexers_of_all_stages_are_those_of_the_model)
{
    ModelConfig config = case_load("glm-5.2");

    for (uint32_t pp = 1; pp <= 8; pp++) {
        KvGridPlanOptions options = case_plan_options(1, pp, KVG_BF16);
        KvGridPlan        plan = case_plan(&config, &options);
        uint64_t          indexers = 0;
        for (uint32_t r = 0; r < pp; r++) {
            uint64_t own = 0, layers = plan.ranks[r].hi - plan.ranks[r].lo;
            for (uint32_t il = plan.ranks[r].lo; il < plan.ranks[r].hi; il++) {
                own += config.plan.layers[il].u.latent.index_kind == KVG_INDEX_PER_TOKEN;
            }
            ck_assert_uint_eq(plan.ranks[r].bytes_per_token, layers * 576 * 4 + own * 128 * 4);
            indexers += own;
        }
        ck_assert_uint_eq(indexers, 21);
        kvg_grid_plan_free(&plan);
    }
    kvg_model_config_free(&config);
}
END_TEST

/* B30: the split 11,11,10,10 of Gemma 4 E4B would leave a stage reading rows that another holds: refused, naming a layer and its
 * source; so is any fence with a cut past 22. */
START_TEST(test_a_fence_that_parts_a_reader_from_its_rows_is_refused)
{
    static const uint32_t fences[][5] = {{0, 11, 22, 32, 42}, {0, 7, 14, 23, 42}, {0, 7, 14, 22, 42}, {0, 1, 2, 3, 42}};
    static const int      works[] = {0, 0, 1, 1};
    ModelConfig           config = case_load("gemma-4-e4b");
    KvGridPlanOptions     options = case_plan_options(1, 4, KVG_BF16);

    for (int i = 0; i < COUNT(fences); i++) {
        KvGridPlan plan;
        options.fence = fences[i];
        KvgStatus status = kvg_grid_plan(&config, &options, &plan);
        ck_assert_int_eq(status, works[i] ? KVG_OK : KVG_EGEOM);
        if (works[i]) {
            ck_assert_uint_eq(plan.ranks[3].bytes_per_token, i == 2 ? 2048 + 4096 : 57344 - 3 * 2048);
            kvg_grid_plan_free(&plan);
        } else {
            ck_assert_ptr_nonnull(strstr(kvg_last_error(), i == 0 ? "32" : "23"));
        }
    }
    kvg_model_config_free(&config);
}
END_TEST

/* B31: a table of tokens on the first stage leaves it 1476 of 3078 units; all ranks get 1476, and rank 0 is named. A cut that weighs
 * the table gives more. */
START_TEST(test_the_stage_with_the_embedding_limits_all_and_a_better_cut_gives_more)
{
    static const uint32_t even[] = {0, 4, 8};
    const uint64_t        unit = 4 * 64 * 2 * 8 * 32 * 2, device[] = {3078 * unit, 3078 * unit};
    KvGridPlanOptions     options = case_plan_options(1, 2, KVG_BF16);
    uint64_t              layer_bytes[8];
    char                  text[512];
    KvGridPlan            plan;

    case_heads_text(text, 8, 8, 8);
    ModelConfig config = case_parse(text);
    for (int il = 0; il < 8; il++) layer_bytes[il] = 1;
    config.embedding_bytes = (3078 - 1476) * unit - 4;
    config.head_bytes = 0;
    config.context = 1 << 20;
    options.layer_bytes = layer_bytes;
    options.device_bytes = device;
    options.fence = even;
    plan = case_plan(&config, &options);
    ck_assert_uint_eq(plan.classes[0].units, 1476);
    ck_assert_int_eq(plan.limiting_rank, 0);
    kvg_grid_plan_free(&plan);
    options.fence = NULL;
    options.ctx = 16384;
    plan = case_plan(&config, &options);
    ck_assert_uint_lt(plan.fence[1], 4);
    ck_assert_uint_gt(plan.classes[0].units, 1476);
    kvg_grid_plan_free(&plan);
    kvg_model_config_free(&config);
}
END_TEST

int main(void)
{
    const TTest *tests[] = {
        test_each_stage_pays_for_its_own_recurrent_and_full_layers,
        test_the_mtp_block_s_planes_are_counted_once_and_not_in_the_trunk,
        test_the_indexers_of_all_stages_are_those_of_the_model,
        test_a_fence_that_parts_a_reader_from_its_rows_is_refused,
        test_the_stage_with_the_embedding_limits_all_and_a_better_cut_gives_more,
    };
    return case_main("stages", tests, COUNT(tests));
}

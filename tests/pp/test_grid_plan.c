#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/grid_plan.h>

#include "runtime/base/memory.h"

/* ---- models: real ones by name, made ones by layer */

static ModelConfig       config;
static KvGridPlanOptions options;
static KvGridPlan        plan;
static uint64_t          live_before;

static StatePlan made_layers[256];
static uint64_t  made_weights[256];

static void setup(void)
{
    live_before = kvg_live_allocations();
    memset(&config, 0, sizeof config);
    memset(&plan, 0, sizeof plan);
    memset(made_layers, 0, sizeof made_layers);
    memset(made_weights, 0, sizeof made_weights);
    options = (KvGridPlanOptions)KVG_GRID_PLAN_OPTIONS_INIT;
    kvg_policy_default(&options.sizing.policy);
}

static void unload(void)
{
    kvg_grid_plan_free(&plan);
    if (config.plan.layers != made_layers) {
        kvg_model_config_free(&config);
    }
    memset(&config, 0, sizeof config);
}

static void teardown(void)
{
    unload();
    ck_assert_uint_eq(kvg_live_allocations(), live_before);
}

static void load(const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s/models/%s.json", KVG_TEST_DATA, name);
    ck_assert_msg(kvg_model_config_load(path, &config) == KVG_OK, "%s", kvg_last_error());
}

static void make_model(uint32_t layers, uint32_t mtp, uint64_t context)
{
    memset(&config, 0, sizeof config);
    snprintf(config.name, sizeof config.name, "made");
    config.context = context;
    config.plan = (ModelPlan){ layers, mtp, made_layers };
    config.weight_bytes = made_weights;
}

static StatePlan kv_layer(uint32_t query_heads, uint32_t heads, uint32_t dim_k, uint32_t dim_v)
{
    return (StatePlan){ .kind = KVG_STATE_KV, .u.kv = { .kv_heads = heads, .head_dim_k = dim_k, .head_dim_v = dim_v, .query_heads = query_heads } };
}

static StatePlan window_layer(uint32_t heads, uint32_t dim, uint64_t window)
{
    StatePlan layer = kv_layer(heads, heads, dim, dim);

    layer.kind = KVG_STATE_SLIDING_KV;
    layer.u.kv.window = window;
    return layer;
}

static StatePlan recurrent_layer(uint32_t heads)
{
    return (StatePlan){ .kind = KVG_STATE_RECURRENT,
                        .u.recurrent = { .parts = { { heads, 64, 0 }, { heads, 1024, 1 } }, .part_count = 2, .conv_width = heads * 64,
                                         .conv_kernel = 4, .state_width = (uint64_t)heads * 1024 } };
}

static StatePlan latent_layer(uint32_t width)
{
    return (StatePlan){ .kind = KVG_STATE_LATENT, .u.latent = { .width = width, .kv_rank = 512 } };
}

static void fill_layers(uint32_t count, StatePlan layer)
{
    for (uint32_t il = 0; il < count; il++) {
        made_layers[il] = layer;
    }
}

static void make_plan(uint32_t tp, uint32_t pp)
{
    kvg_grid_plan_free(&plan);
    options.tp = tp;
    options.pp = pp;
    ck_assert_msg(kvg_grid_plan(&config, &options, &plan) == KVG_OK, "tp %u pp %u: %s", tp, pp, kvg_last_error());
}

static KvgStatus try_plan(uint32_t tp, uint32_t pp)
{
    KvGridPlan untouched, tried;

    memset(&tried, 0x5a, sizeof tried);
    untouched = tried;
    options.tp = tp;
    options.pp = pp;
    KvgStatus status = kvg_grid_plan(&config, &options, &tried);
    if (status == KVG_OK) {
        kvg_grid_plan_free(&tried);
    } else {
        ck_assert_mem_eq(&tried, &untouched, sizeof tried); /* outputs change only on success */
    }
    return status;
}

static void ask_bf16(void)
{
    options.sizing.format_k = options.sizing.format_v = KVG_BF16;
    options.sizing.format_latent = KVG_BF16;
}

static uint64_t sum_over_ranks(void)
{
    uint64_t sum = 0;

    for (uint32_t r = 0; r < plan.ranks_count; r++) {
        sum += plan.ranks[r].bytes_per_token;
    }
    return sum;
}

static uint64_t duplicates_over_ranks(void)
{
    uint64_t sum = 0;

    for (uint32_t r = 0; r < plan.ranks_count; r++) {
        sum += plan.ranks[r].duplicate_bytes_per_token;
    }
    return sum;
}

/* ---- every model on many grids */

/* The fence covers every layer once, and world ranks follow stage * tp + tp_rank. */
static void check_ranks_cover_the_model(const char *name)
{
    uint32_t next = 0;

    for (uint32_t r = 0; r < plan.ranks_count; r++) {
        const KvRankPlan *rank = &plan.ranks[r];

        ck_assert_uint_eq(rank->rank, r);
        ck_assert_uint_eq(rank->stage, r / plan.tp);
        ck_assert_uint_eq(rank->tp_rank, r % plan.tp);
        if (rank->tp_rank == 0) {
            ck_assert_msg(rank->lo == next && rank->hi > rank->lo, "%s: stage %u is [%u, %u)", name, rank->stage, rank->lo, rank->hi);
            next = rank->hi;
        }
        ck_assert_uint_eq(rank->hi, next);
    }
    ck_assert_uint_eq(next, plan.n_layer);
}

static void check_model_on_grid(const char *name, uint32_t tp, uint32_t pp)
{
    uint64_t trunk, ring, own = 0, in_ring = 0;

    if (pp > config.plan.n_layer || try_plan(tp, pp) != KVG_OK) {
        return;
    }
    make_plan(tp, pp);
    check_ranks_cover_the_model(name);
    ck_assert_int_eq(kvg_plan_bytes_per_token(&options.sizing, &config.plan, 0, config.plan.n_layer, &trunk), KVG_OK);
    ck_assert_int_eq(kvg_plan_ring_bytes_per_token(&options.sizing, &config.plan, 0, config.plan.n_layer, &ring), KVG_OK);
    for (uint32_t r = 0; r < plan.ranks_count; r++) {
        own += plan.ranks[r].bytes_per_token - plan.ranks[r].duplicate_bytes_per_token;
        in_ring += plan.ranks[r].ring_bytes_per_token;
    }
    ck_assert_msg(own == trunk, "%s tp %u pp %u: %llu, not %llu", name, tp, pp, (unsigned long long)own, (unsigned long long)trunk);
    ck_assert_msg(duplicates_over_ranks() == 0 ? in_ring == ring : in_ring >= ring, "%s tp %u pp %u: %llu in rings, not %llu", name, tp,
                  pp, (unsigned long long)in_ring, (unsigned long long)ring);
}

START_TEST(test_grid_plan_ranks_less_duplicates_are_the_trunk_for_every_model_and_grid)
{
    static const uint32_t sizes[] = { 1, 2, 3, 4, 8, 16 };
    DIR                  *folder = opendir(KVG_TEST_DATA "/models");
    int                   models = 0;

    ck_assert_ptr_nonnull(folder);
    ask_bf16();
    options.sizing.policy.swa_ring = 1;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char *end = strstr(entry->d_name, ".json");

        if (end == NULL || strcmp(entry->d_name, "deepseek-v4-flash.json") == 0) {
            continue;
        }
        *end = '\0';
        load(entry->d_name);
        for (size_t t = 0; t < sizeof sizes / sizeof sizes[0]; t++) {
            for (size_t p = 0; p < sizeof sizes / sizeof sizes[0]; p++) {
                check_model_on_grid(entry->d_name, sizes[t], sizes[p]);
            }
        }
        unload();
        models++;
    }
    closedir(folder);
    ck_assert_int_ge(models, 30);
}
END_TEST

/* ---- heads */

START_TEST(test_grid_plan_b02_replicates_whole_heads_when_tp_is_above_them)
{
    static const struct { uint32_t tp; uint64_t rank, all, copies; } cases[] = {
        { 2, 49152, 98304, 0 }, { 4, 24576, 98304, 0 }, { 8, 24576, 196608, 98304 }, { 16, 24576, 393216, 294912 },
    };

    make_model(48, 0, 32768);
    fill_layers(48, kv_layer(32, 4, 128, 128));
    ask_bf16();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make_plan(cases[i].tp, 1);
        for (uint32_t r = 0; r < cases[i].tp; r++) {
            ck_assert_uint_eq(plan.ranks[r].bytes_per_token, cases[i].rank);
        }
        ck_assert_uint_eq(sum_over_ranks(), cases[i].all);
        ck_assert_uint_eq(duplicates_over_ranks(), cases[i].copies);
    }
    ck_assert_uint_eq(plan.ranks[0].duplicate_bytes_per_token, 0); /* of each group of 4 the first holds the original */
    ck_assert_uint_eq(plan.ranks[1].duplicate_bytes_per_token, 24576);
    ck_assert_uint_eq(plan.ranks[4].duplicate_bytes_per_token, 0);
}
END_TEST

START_TEST(test_grid_plan_b03_refuses_tp_that_only_query_heads_divide_by)
{
    make_model(2, 0, 4096);
    fill_layers(2, kv_layer(28, 4, 128, 128));
    for (uint32_t tp = 1; tp <= 29; tp++) {
        int works = tp == 1 || tp == 2 || tp == 4 || tp == 28;
        ck_assert_msg(try_plan(tp, 1) == (works ? KVG_OK : KVG_EGEOM), "tp %u", tp);
    }
    ck_assert_int_eq(try_plan(7, 1), KVG_EGEOM);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "1, 2, 4, 28;"));
}
END_TEST

START_TEST(test_grid_plan_b09_lists_the_sizes_and_names_stages_as_the_other_way)
{
    make_model(2, 0, 4096);
    fill_layers(2, kv_layer(52, 52, 128, 128));
    ck_assert_int_eq(try_plan(8, 1), KVG_EGEOM);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "1, 2, 4, 13, 26, 52;"));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "pp"));
    ck_assert_int_eq(try_plan(3, 1), KVG_EGEOM);
    ck_assert_int_eq(try_plan(13, 1), KVG_OK);
}
END_TEST

START_TEST(test_grid_plan_lists_sizes_that_work_for_every_layer_of_the_model)
{
    make_model(3, 0, 4096);
    made_layers[0] = kv_layer(32, 8, 128, 128);
    made_layers[1] = kv_layer(32, 4, 128, 128);
    made_layers[2] = recurrent_layer(6);
    ck_assert_int_eq(try_plan(4, 1), KVG_EGEOM); /* 6 recurrent heads on 4 ranks */
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "layer 2"));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "are 1, 2;"));
}
END_TEST

START_TEST(test_grid_plan_b10_refuses_a_block_that_would_span_heads)
{
    make_model(1, 0, 4096);
    fill_layers(1, kv_layer(8, 8, 80, 80));
    options.sizing.format_k = KVG_Q8_0;
    options.sizing.format_v = KVG_Q8_0;
    for (uint32_t tp = 1; tp <= 8; tp *= 2) { /* also where the whole row is a multiple of 32 */
        ck_assert_int_eq(try_plan(tp, 1), KVG_EGEOM);
    }
    fill_layers(1, kv_layer(8, 8, 96, 96));
    make_plan(8, 1);
    ck_assert_uint_eq(plan.ranks[7].bytes_per_token, 102 + 102);
    fill_layers(1, kv_layer(8, 8, 80, 80));
    ask_bf16();
    make_plan(8, 1);
    ck_assert_uint_eq(plan.ranks[7].bytes_per_token, 160 + 160);
}
END_TEST

START_TEST(test_grid_plan_b07_b12_few_heads_on_many_ranks)
{
    make_model(1, 0, 4096);
    ask_bf16();
    fill_layers(1, kv_layer(32, 8, 128, 128));
    make_plan(32, 1);
    ck_assert_uint_eq(plan.ranks[31].bytes_per_token, 2 * 128 * 2);
    ck_assert_uint_eq(duplicates_over_ranks(), 24 * 512);
    fill_layers(1, kv_layer(2, 1, 64, 64));
    make_plan(2, 1);
    ck_assert_uint_eq(plan.ranks[0].bytes_per_token, plan.ranks[1].bytes_per_token);
    ck_assert_uint_eq(plan.ranks[1].duplicate_bytes_per_token, 256);
}
END_TEST

START_TEST(test_grid_plan_b54_b61_prices_local_heads_and_both_widths)
{
    make_model(1, 0, 4096);
    ask_bf16();
    fill_layers(1, kv_layer(16, 16, 128, 128));
    make_plan(4, 1);
    ck_assert_uint_eq(plan.ranks[3].bytes_per_token, 4 * 128 * 2 * 2);
    fill_layers(1, kv_layer(16, 4, 192, 128));
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ranks[0].bytes_per_token, 2560);
    ck_assert_uint_eq(plan.ranks[0].class_unit_bytes[0], 2560 * 64);
}
END_TEST

START_TEST(test_grid_plan_b37_latents_are_whole_on_every_rank_and_ask_nothing_of_heads)
{
    make_model(27, 0, 4096);
    fill_layers(27, latent_layer(576));
    ask_bf16();
    for (uint32_t tp = 1; tp <= 5; tp++) {
        make_plan(tp, 1);
        for (uint32_t r = 0; r < tp; r++) {
            ck_assert_uint_eq(plan.ranks[r].bytes_per_token, 31104);
            ck_assert_uint_eq(plan.ranks[r].duplicate_bytes_per_token, r == 0 ? 0 : 31104);
        }
    }
    unload();
    load("mistral-large-3-675b");
    make_plan(8, 1);
    ck_assert_uint_eq(plan.ranks[5].bytes_per_token, 70272);
    ck_assert_uint_eq(sum_over_ranks(), 562176);
}
END_TEST

START_TEST(test_grid_plan_b60_a_narrow_format_halves_rows_and_not_state)
{
    uint64_t fixed;

    load("qwen3-next-80b-a3b");
    ask_bf16();
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ranks[0].bytes_per_token, 24576);
    fixed = plan.ranks[0].fixed_bytes;
    ck_assert_uint_eq(fixed, 2 * 79036416 + 12 * 20);
    options.sizing.format_k = options.sizing.format_v = KVG_FP8;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ranks[0].bytes_per_token, 12288);
    ck_assert_uint_eq(plan.ranks[0].fixed_bytes, fixed);
}
END_TEST

START_TEST(test_grid_plan_replicated_recurrent_parts_are_duplicates)
{
    make_model(1, 0, 4096);
    fill_layers(1, recurrent_layer(4));
    make_plan(8, 1);
    ck_assert_uint_eq(plan.ranks[0].duplicate_fixed_bytes, 0);
    ck_assert_uint_eq(plan.ranks[1].duplicate_fixed_bytes, plan.ranks[1].fixed_bytes);
    ck_assert_uint_eq(plan.ranks[0].fixed_bytes, 2 * (64 * 3 + 1024) * 4);
    ck_assert_uint_eq(plan.ranks[0].slot_bytes, plan.ranks[0].fixed_bytes);
    made_layers[0].u.recurrent.parts[0].heads = 2; /* q, k by 2 heads, state by 4: each part is cut by itself */
    made_layers[0].u.recurrent.conv_width = 128;
    make_plan(4, 1);
    ck_assert_uint_eq(plan.ranks[1].duplicate_fixed_bytes, 2 * 64 * 3 * 4);
    ck_assert_uint_eq(plan.ranks[2].duplicate_fixed_bytes, 0);
}
END_TEST

/* ---- stages */

START_TEST(test_grid_plan_b17_b18_every_layer_has_one_stage)
{
    fill_layers(64, kv_layer(8, 8, 64, 64));
    for (uint32_t layers = 1; layers <= 64; layers++) {
        make_model(layers, 0, 4096);
        for (uint32_t pp = 1; pp <= layers; pp += 1 + pp / 6) {
            make_plan(1, pp);
            check_ranks_cover_the_model("made");
        }
    }
    make_model(30, 0, 4096);
    make_plan(1, 4);
    for (uint32_t r = 0; r < 4; r++) {
        ck_assert_uint_le(plan.ranks[r].hi - plan.ranks[r].lo, 8);
        ck_assert_uint_ge(plan.ranks[r].hi - plan.ranks[r].lo, 6);
    }
    make_model(3, 0, 4096);
    ck_assert_int_eq(try_plan(1, 4), KVG_EINVAL);
}
END_TEST

START_TEST(test_grid_plan_b19_a_given_fence_is_kept_or_refused)
{
    const uint32_t good[] = { 0, 21, 44 }, short_end[] = { 0, 21, 43 }, flat[] = { 0, 0, 44 }, late[] = { 1, 21, 44 };

    make_model(44, 0, 4096);
    fill_layers(44, kv_layer(8, 8, 64, 64));
    options.fence = good;
    make_plan(2, 2);
    ck_assert_uint_eq(plan.ranks[2].lo, 21);
    ck_assert_uint_eq(plan.ranks[3].lo, 21);
    ck_assert_uint_eq(plan.ranks[3].hi, 44);
    const uint32_t *bad[] = { short_end, flat, late };
    for (size_t i = 0; i < 3; i++) {
        options.fence = bad[i];
        ck_assert_int_eq(try_plan(2, 2), KVG_EINVAL);
    }
}
END_TEST

START_TEST(test_grid_plan_b21_a_stage_without_attention_has_slots_and_the_same_units)
{
    const uint32_t fence[] = { 0, 2, 4 };
    const uint64_t state[] = { 1 << 24, 1 << 24 };

    make_model(4, 0, 8192);
    fill_layers(3, recurrent_layer(4));
    made_layers[3] = latent_layer(576);
    options.fence = fence;
    options.state_bytes = state;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.ranks[0].bytes_per_token, 0);
    ck_assert_uint_gt(plan.ranks[0].slot_bytes, 0);
    ck_assert_uint_eq(plan.ranks[0].slot_bytes, 2 * plan.ranks[1].slot_bytes);
    ck_assert_uint_eq(plan.ranks[1].bytes_per_token, 576 * 4);
    ck_assert_uint_eq(plan.class_count, 1);
    ck_assert_uint_gt(plan.classes[0].units, 0);
}
END_TEST

START_TEST(test_grid_plan_b22_slots_are_sized_by_each_stage)
{
    uint64_t whole;

    load("qwen3-next-80b-a3b");
    make_plan(1, 1);
    whole = plan.ranks[0].slot_bytes;
    ck_assert_uint_eq(whole, 2 * 79036416);
    make_plan(1, 4);
    for (uint32_t r = 0; r < 4; r++) {
        ck_assert_uint_lt(plan.ranks[r].slot_bytes, whole / 2);
    }
    ck_assert_uint_eq(plan.ranks[0].slot_bytes + plan.ranks[1].slot_bytes + plan.ranks[2].slot_bytes + plan.ranks[3].slot_bytes, whole);
    ck_assert_uint_eq(plan.classes[0].layers, 12); /* B35: 12 of 48 layers hold rows */
}
END_TEST

START_TEST(test_grid_plan_b25_b26_mtp_blocks_live_on_the_last_stage_alone)
{
    uint64_t without;

    make_model(47, 1, 4096);
    fill_layers(48, kv_layer(8, 8, 64, 64));
    make_plan(1, 2);
    ck_assert_uint_eq(plan.ranks[1].hi, 47);
    ck_assert_uint_eq(plan.class_of_layer[47], UINT32_MAX);
    ck_assert_uint_eq(plan.classes[0].layers, 47);
    without = plan.ranks[1].bytes_per_token / (47 - plan.fence[1]);
    options.with_mtp = 1;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.fence[2], 47);
    ck_assert_uint_eq(plan.ranks[0].hi, plan.fence[1]);
    ck_assert_uint_eq(plan.ranks[1].hi, 48);
    ck_assert_uint_eq(plan.classes[0].layers, 48);
    ck_assert_uint_eq(plan.class_of_layer[47], 0);
    ck_assert_uint_eq(plan.ranks[1].bytes_per_token, without * (48 - plan.fence[1]));
    made_layers[47] = kv_layer(9, 9, 64, 64); /* a block that is not placed is not judged */
    ck_assert_int_eq(try_plan(2, 1), KVG_EGEOM);
    options.with_mtp = 0;
    ck_assert_int_eq(try_plan(2, 1), KVG_OK);
}
END_TEST

START_TEST(test_grid_plan_b30_no_cut_parts_a_sharing_layer_from_its_source)
{
    uint32_t fence[] = { 0, 21, 42 };

    load("gemma-4-e4b");
    options.fence = fence;
    for (uint32_t cut = 1; cut < 42; cut++) { /* layers 24..41 read 22 and 23 */
        fence[1] = cut;
        ck_assert_msg(try_plan(1, 2) == (cut <= 22 ? KVG_OK : KVG_EGEOM), "cut %u", cut);
    }
    options.fence = NULL;
    for (uint32_t pp = 2; pp <= 8; pp++) {
        make_plan(1, pp);
        ck_assert_uint_le(plan.fence[pp - 1], 22);
    }
    ck_assert_int_eq(try_plan(1, 24), KVG_EGEOM); /* 22 cuts are left, 23 are needed */
    ck_assert_uint_eq(plan.class_of_layer[30], plan.class_of_layer[22]);
    ck_assert_uint_eq(plan.class_of_layer[41], plan.class_of_layer[23]);
    ck_assert_int_eq(plan.format_k[30], KVG_POLICY);
}
END_TEST

START_TEST(test_grid_plan_b32_embedding_first_head_last_tied_table_on_both)
{
    static const uint32_t fence[] = { 0, 1, 2, 3, 4 };
    const struct { uint8_t tied; uint32_t pp; uint64_t first, last; } cases[] = {
        { 0, 4, 1000, 1500 }, { 1, 4, 1000, 1000 }, { 0, 1, 2500 + 30, 0 }, { 1, 1, 1000 + 30, 0 },
    };

    for (size_t i = 0; i < 4; i++) {
        make_model(4, 0, 4096);
        fill_layers(4, kv_layer(8, 8, 64, 64));
        config.embedding_bytes = 1000;
        config.head_bytes = cases[i].tied ? 1000 : 1500;
        config.head_is_tied = cases[i].tied;
        for (int il = 0; il < 4; il++) {
            made_weights[il] = 10;
        }
        options.fence = cases[i].pp == 4 ? fence : NULL;
        make_plan(1, cases[i].pp);
        ck_assert_uint_eq(plan.ranks[0].weight_bytes, cases[i].first + 10);
        if (cases[i].pp == 4) {
            ck_assert_uint_eq(plan.ranks[1].weight_bytes, 10);
            ck_assert_uint_eq(plan.ranks[2].weight_bytes, 10);
            ck_assert_uint_eq(plan.ranks[3].weight_bytes, cases[i].last + 10);
        }
    }
}
END_TEST

START_TEST(test_grid_plan_weights_are_scaled_given_or_estimated)
{
    const uint64_t layer_bytes[] = { 100, 200, 300, 400 };
    uint64_t       estimate = 0, scaled = 0;

    load("llama-3.1-8b");
    make_plan(1, 1);
    estimate = plan.ranks[0].weight_bytes;
    options.weights_bytes = estimate * 2;
    make_plan(2, 2);
    for (uint32_t r = 0; r < 4; r++) {
        scaled += plan.ranks[r].weight_bytes;
    }
    ck_assert_uint_le(scaled, estimate * 2 + 4);
    ck_assert_uint_ge(scaled, estimate * 2 - 64); /* each layer rounds down, each rank up */
    unload();
    make_model(4, 0, 4096);
    fill_layers(4, kv_layer(8, 8, 64, 64));
    options.weights_bytes = 1001; /* nothing is estimated: spread evenly */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ranks[0].weight_bytes, 1001);
    options.weights_bytes = 0;
    options.layer_bytes = layer_bytes;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ranks[0].weight_bytes, 1000);
}
END_TEST

/* ---- classes */

START_TEST(test_grid_plan_classes_are_full_first_then_one_a_window)
{
    make_model(5, 0, 32768);
    made_layers[0] = window_layer(8, 64, 512);
    made_layers[1] = window_layer(8, 64, 128);
    made_layers[2] = kv_layer(8, 8, 64, 64);
    made_layers[3] = window_layer(8, 64, 512);
    made_layers[4] = latent_layer(576);
    options.sizing.policy.swa_ring = 1;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.class_count, 3);
    ck_assert_int_eq(plan.classes[0].kind, KVG_STATE_KV);
    ck_assert_uint_eq(plan.classes[0].layers, 2);
    ck_assert_uint_eq(plan.classes[1].window, 512);
    ck_assert_uint_eq(plan.classes[1].layers, 2);
    ck_assert_uint_eq(plan.classes[2].window, 128);
    ck_assert_uint_eq(plan.class_of_layer[4], 0);
    ck_assert_uint_eq(plan.class_of_layer[3], 1);
}
END_TEST

START_TEST(test_grid_plan_windowed_caps_follow_ring_layout_and_chunk)
{
    make_model(2, 0, 262144);
    made_layers[0] = kv_layer(8, 8, 64, 64);
    made_layers[1] = window_layer(8, 64, 512);
    make_plan(1, 1);
    ck_assert_int_eq(plan.classes[1].ring, 0);
    ck_assert_uint_eq(plan.classes[1].unit_cap, 4096);
    options.sizing.policy.swa_ring = 1;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[1].row_cap, 5151);
    ck_assert_uint_eq(plan.classes[1].unit_cap, 82); /* ceil(5151/64) + 1 */
    ck_assert_uint_eq(plan.classes[0].unit_cap, 4096);
    options.layout = KVG_LAYOUT_FLAT;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[1].unit_cap, 81);
    options.layout = KVG_LAYOUT_POOL;
    options.prefill_chunk_max = 256;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[1].row_cap, 512 + 256 + 512 + 31);
    options.prefill_chunk_max = 4097; /* more than a ring is made for */
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    options.prefill_chunk_max = 256;
    config.context = 640; /* a context below the ring: never more than its own units */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[1].row_cap, 640);
    ck_assert_uint_eq(plan.classes[1].unit_cap, 10);
    ck_assert_uint_eq(kvg_class_plan_units(&plan.classes[1], 0), 0);
    ck_assert_uint_eq(kvg_class_plan_units(&plan.classes[1], 1), 1);
    ck_assert_uint_eq(kvg_class_plan_units(&plan.classes[1], 64), 1);
    ck_assert_uint_eq(kvg_class_plan_units(&plan.classes[1], 65), 2);
    ck_assert_uint_eq(kvg_class_plan_units(&plan.classes[1], 100000), 10);
}
END_TEST

START_TEST(test_grid_plan_more_windows_than_classes_is_not_supported)
{
    make_model(9, 0, 4096);
    for (uint32_t il = 0; il < 9; il++) {
        made_layers[il] = window_layer(8, 64, 64 + il);
    }
    ck_assert_int_eq(try_plan(1, 1), KVG_ENOTSUP);
    make_model(8, 0, 4096);
    ck_assert_int_eq(try_plan(1, 1), KVG_OK);
}
END_TEST

START_TEST(test_grid_plan_pooled_indexer_books_keys_in_units_and_its_ring_in_a_slot)
{
    load("glm-5.3-flash");
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ranks[0].bytes_per_token, 23936);
    ck_assert_uint_eq(plan.ranks[0].class_unit_bytes[0], 23936 * 64);
    ck_assert_uint_eq(plan.ranks[0].slot_bytes, 2ull * 152633344 + 57671680);
    ck_assert_uint_eq(plan.ranks[0].fixed_bytes, plan.ranks[0].slot_bytes + 11 * 12);
    options.sizing.policy.dsa_index_ring = 0; /* flat: index rows are rows like any other */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ranks[0].class_unit_bytes[0], plan.ranks[0].bytes_per_token * 64);
    ck_assert_uint_gt(plan.ranks[0].bytes_per_token, 23936);
    ck_assert_uint_eq(plan.ranks[0].slot_bytes, 2ull * 152633344);
}
END_TEST

/* ---- capacity */

static uint64_t state[64];

static void give_memory(uint32_t ranks, uint64_t bytes)
{
    for (uint32_t r = 0; r < ranks; r++) {
        state[r] = bytes;
    }
    options.state_bytes = state;
}

/* One class of `layers` equal layers; 2 heads of 64 in bf16: a unit takes 32768 bytes a layer. */
static void make_plain(uint32_t layers, uint64_t context)
{
    make_model(layers, 0, context);
    fill_layers(layers, kv_layer(2, 2, 64, 64));
    ask_bf16();
}

START_TEST(test_grid_plan_b49_b31_the_smallest_rank_decides_and_is_named)
{
    const uint32_t fence[] = { 0, 1, 2 };

    make_plain(2, 131072);
    options.fence = fence;
    give_memory(2, 2111ull * 32768);
    state[1] = 2055ull * 32768;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.classes[0].units, 2055);
    ck_assert_int_eq(plan.limiting_rank, 1);
    ck_assert_uint_eq(plan.max_context, 131072);
    ck_assert_uint_eq(plan.max_sequences, 1);
    state[1] = 2055ull * 32768 - 1;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.classes[0].units, 2054);
    state[1] = 2111ull * 32768;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.classes[0].units, 2111);
    ck_assert_int_eq(plan.limiting_rank, 0); /* alike: the lowest */
}
END_TEST

START_TEST(test_grid_plan_b50_device_memory_less_weights_and_reserve)
{
    uint64_t device[] = { 100000000, 66000000 };
    const uint64_t layer_bytes[] = { 1000000 };

    make_plain(1, 65536);
    options.layer_bytes = layer_bytes;
    options.device_bytes = device;
    options.reserve_bytes = 5000000;
    make_plan(2, 1);
    ck_assert_uint_eq(plan.ranks[0].state_bytes, 94500000);
    ck_assert_uint_eq(plan.ranks[1].state_bytes, 60500000);
    ck_assert_uint_eq(plan.classes[0].units, 60500000 / 16384);
    ck_assert_int_eq(plan.limiting_rank, 1);
    device[1] = 499999;
    ck_assert_int_eq(try_plan(2, 1), KVG_ENOMEM);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "stage 0 (rank 1)"));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "500000"));
    device[1] = 500000; /* weights alone fit: nothing else does */
    make_plan(2, 1);
    ck_assert_uint_eq(plan.max_sequences, 0);
    ck_assert_uint_eq(plan.max_context, 0);
    ck_assert_int_eq(plan.limiting_rank, 1);
    options.state_bytes = state;
    ck_assert_int_eq(try_plan(2, 1), KVG_EINVAL);
}
END_TEST

START_TEST(test_grid_plan_sequences_and_context_at_their_borders)
{
    const struct { uint64_t units, context, sequences, tokens; } cases[] = {
        { 0, 0, 0, 0 }, { 1, 64, 0, 64 }, { 15, 960, 0, 960 }, { 16, 1000, 1, 1000 }, { 31, 1000, 1, 1937 }, { 32, 1000, 2, 2000 },
        { 33, 1000, 2, 2062 },
    };

    make_plain(1, 1000); /* 16 units a sequence */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        give_memory(1, cases[i].units * 32768);
        make_plan(1, 1);
        ck_assert_uint_eq(plan.classes[0].units, cases[i].units);
        ck_assert_uint_eq(plan.max_context, cases[i].context);
        ck_assert_uint_eq(plan.max_sequences, cases[i].sequences);
        /* 1000 tokens take 16 units, so a unit is worth 62.5 of them */
        ck_assert_uint_eq(plan.cache_tokens, cases[i].units * 1000 / 16);
        ck_assert_int_eq(plan.limiting_rank, 0);
    }
}
END_TEST

START_TEST(test_grid_plan_t_past_the_context_admits_no_such_sequence)
{
    make_plain(1, 1024);
    give_memory(1, 64ull * 32768);
    options.ctx = 2048;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.max_ctx, 1024);
    ck_assert_uint_eq(plan.max_context, 1024);
    ck_assert_uint_eq(plan.max_sequences, 0);
    config.context = 0; /* the config does not say: T is the longest */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.max_ctx, 2048);
    ck_assert_uint_eq(plan.max_sequences, 2);
    options.ctx = 0;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.ctx, 32768);
}
END_TEST

START_TEST(test_grid_plan_b59_a_cap_on_slots_is_seen_in_the_result)
{
    make_plain(1, 1024);
    give_memory(1, 10ull * 16 * 32768);
    options.max_sequences = 2;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.slots, 2);
    ck_assert_uint_eq(plan.max_sequences, 2);
    ck_assert_uint_eq(plan.classes[0].units, 32); /* two sequences can never use more */
    ck_assert_int_eq(plan.limiting_rank, -1);     /* no rank limits: the slots do */
    options.max_sequences = 0;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.max_sequences, 10);
    ck_assert_uint_eq(plan.slots, 160); /* slots cost nothing here: one a unit */
}
END_TEST

START_TEST(test_grid_plan_b56_slots_take_their_bytes_before_rows)
{
    uint64_t slot, units[3];

    make_model(2, 0, 4096);
    made_layers[0] = recurrent_layer(4);
    made_layers[1] = kv_layer(4, 4, 64, 64);
    ask_bf16();
    give_memory(1, 16 << 20);
    for (uint32_t n = 1; n <= 3; n++) { /* T of 4096 rows would take 4 MiB a sequence: the caps are not met */
        options.max_sequences = n + 4;
        make_plan(1, 1);
        units[n - 1] = plan.classes[0].units;
        slot = plan.ranks[0].slot_bytes;
        ck_assert_uint_eq(slot, 2 * (4 * 64 * 3 + 4 * 1024) * 4);
        ck_assert_uint_eq(units[n - 1], ((16ull << 20) - (n + 4) * slot) / 65536);
    }
    options.max_sequences = 100000; /* more slots than memory: nothing fits */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.max_context, 0);
    ck_assert_uint_eq(plan.classes[0].units, 0);
    ck_assert_uint_eq(plan.slots, 0);
}
END_TEST

START_TEST(test_grid_plan_windows_stop_at_their_caps_and_leave_the_rest_to_others)
{
    uint64_t capped;

    make_model(2, 0, 131072);
    made_layers[0] = kv_layer(2, 2, 64, 64);
    made_layers[1] = window_layer(2, 64, 128);
    ask_bf16();
    options.sizing.policy.swa_ring = 1;
    options.max_sequences = 4;
    give_memory(1, 4000ull * 32768);
    options.ctx = 1024; /* 16 units of each: below the ring's cap of 76 */
    make_plan(1, 1);
    capped = 4 * plan.classes[1].unit_cap;
    ck_assert_uint_eq(plan.classes[1].unit_cap, 76);
    ck_assert_uint_eq(plan.classes[1].units, capped);
    ck_assert_uint_eq(plan.classes[0].units, 4000 - capped);
    ck_assert_int_eq(plan.limiting_rank, 0);
    give_memory(1, 200ull * 32768); /* scarce: both classes alike */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[0].units, 100);
    ck_assert_uint_eq(plan.classes[1].units, 100);
    give_memory(1, UINT64_MAX); /* plenty: everything at its cap */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[0].units, 4 * 2048);
    ck_assert_uint_eq(plan.classes[1].units, capped);
    ck_assert_int_eq(plan.limiting_rank, -1);
}
END_TEST

/* ---- weights that the caller knows, stages of unlike memory, and what does not fit 64 bits */

START_TEST(test_grid_plan_known_layers_leave_the_rest_to_the_two_ends)
{
    const uint64_t layer_bytes[] = { 1000, 1000, 1000, 1000 };
    const uint32_t fence[] = { 0, 2, 4 };

    make_plain(4, 65536);
    config.embedding_bytes = 300; /* the config's estimate gives their ratio alone */
    config.head_bytes = 100;
    options.layer_bytes = layer_bytes;
    options.fence = fence;
    options.weights_bytes = 6000;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.ranks[0].weight_bytes, 2000 + 1500);
    ck_assert_uint_eq(plan.ranks[1].weight_bytes, 2000 + 500);
    options.weights_bytes = 4000; /* the layers' alone, and less than that */
    make_plan(1, 2);
    ck_assert_uint_eq(plan.ranks[0].weight_bytes, 2000);
    ck_assert_uint_eq(plan.ranks[1].weight_bytes, 2000);
    options.weights_bytes = 3999;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.ranks[0].weight_bytes, 2000);
    options.weights_bytes = 0; /* nothing is said of the whole: the ends are as estimated */
    make_plan(1, 2);
    ck_assert_uint_eq(plan.ranks[0].weight_bytes, 2300);
    ck_assert_uint_eq(plan.ranks[1].weight_bytes, 2100);
}
END_TEST

START_TEST(test_grid_plan_a_stage_of_twice_the_memory_takes_twice_the_layers)
{
    uint64_t device[] = { 200000000, 100000000, 100000000 };

    make_plain(12, 1024);
    options.device_bytes = device;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.fence[1], 8);
    make_plan(1, 3);
    ck_assert_uint_eq(plan.fence[1], 6);
    ck_assert_uint_eq(plan.fence[2], 9);
    device[0] = 100000000;
    device[1] = 200000000;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.fence[1], 4);
    device[0] = 2000; /* a sequence of T tokens fits neither: a plan all the same, in the ratio of the two */
    device[1] = 1000;
    make_plan(1, 2);
    ck_assert_uint_eq(plan.fence[1], 8);
    ck_assert_uint_eq(plan.max_sequences, 0);
    device[0] = 1; /* the smallest is all that counts in a stage */
    device[1] = UINT64_MAX;
    ck_assert_int_eq(try_plan(1, 2), KVG_EOVERFLOW);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "give the fence"));
}
END_TEST

START_TEST(test_grid_plan_costs_past_64_bits_are_refused)
{
    const uint32_t whole[] = { 0, 2 };
    uint64_t       heavy[] = { UINT64_MAX, 0 };

    make_plain(1, 1024);
    options.layer_bytes = heavy;
    ck_assert_int_eq(try_plan(1, 1), KVG_EOVERFLOW); /* its rows come on top */
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "layer 0 costs"));
    options.layer_bytes = NULL;
    config.head_bytes = UINT64_MAX - 10;
    ck_assert_int_eq(try_plan(1, 1), KVG_EOVERFLOW);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "layers' costs"));
    config.plan.n_mtp = 1;
    made_layers[1] = made_layers[0];
    options.with_mtp = 1;
    ck_assert_int_eq(try_plan(1, 1), KVG_EOVERFLOW);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "MTP blocks"));
    options.with_mtp = 0;
    make_model(2, 0, 1024);
    fill_layers(2, (StatePlan){ .kind = KVG_STATE_RECURRENT,
                                .u.recurrent = { .parts = { { 1u << 30, 1u << 30, 1 } }, .part_count = 1, .conv_kernel = 4,
                                                 .state_width = 1ull << 60 } });
    options.fence = whole; /* one column pair of one layer takes 2^63 bytes */
    ck_assert_int_eq(try_plan(1, 1), KVG_EOVERFLOW);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "a rank's bytes"));
    fill_layers(2, kv_layer(1u << 28, 1u << 28, 1u << 28, 1u << 28));
    ask_bf16();
    ck_assert_int_eq(try_plan(1, 1), KVG_EOVERFLOW);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "a unit of one layer"));
}
END_TEST

START_TEST(test_grid_plan_more_units_than_a_table_counts_are_not_promised)
{
    make_plain(1, 65536);
    give_memory(1, UINT64_C(1) << 60);
    make_plan(1, 1);
    ck_assert_uint_le(plan.classes[0].units, INT32_MAX);
    ck_assert_uint_eq(plan.max_sequences, INT32_MAX / 1024); /* of 1024 units each, not the 2^60 / 2^25 that the bytes would hold */
}
END_TEST

START_TEST(test_grid_plan_layers_that_are_none_are_refused)
{
    make_plain(2, 1024);
    made_layers[0] = (StatePlan){ .kind = KVG_STATE_SHARED, .u.shared_source = 1 };
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "does not come before it"));
    made_layers[0] = (StatePlan){ .kind = (KvStateKind)99 };
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "kind 99"));
}
END_TEST

/* The sizes that work are listed as far as the sentence goes, and whole numbers stand there. */
START_TEST(test_grid_plan_a_long_list_of_sizes_is_cut_between_two)
{
    const char *list;

    make_model(1, 0, 1024);
    fill_layers(1, kv_layer(5040, 5040, 32, 32));
    ck_assert_int_eq(try_plan(11, 1), KVG_EGEOM);
    list = strstr(kvg_last_error(), "are 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, ");
    ck_assert_msg(list != NULL, "%s", kvg_last_error());
    for (const char *at = list + 4; *at >= '0' && *at <= '9';) {
        char *end;
        ck_assert_uint_eq(5040 % strtoul(at, &end, 10), 0);
        at = strncmp(end, ", ", 2) == 0 ? end + 2 : end;
    }
    make_model(2, 0, 1024);
    fill_layers(2, kv_layer(3, 3, 32, 32));
    made_layers[1].u.kv.kv_heads = 0; /* no size works */
    ck_assert_int_eq(try_plan(2, 1), KVG_EGEOM);
}
END_TEST

START_TEST(test_grid_plan_slabs_are_rounded_up_plane_by_plane)
{
    make_plain(3, 1 << 20); /* 6 planes of 16384 bytes a unit */
    options.granularity = 1 << 16;
    give_memory(1, 6ull * 5 * (1 << 16));
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[0].units, 20);
    state[0]--;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[0].units, 16); /* the 17th unit takes a whole grain in each plane */
    options.granularity = 0;
    make_plan(1, 1);
    ck_assert_uint_eq(plan.classes[0].units, 19);
}
END_TEST

/* The rule of S9 the slow way: raise k to the next value at which any class gets a unit, until a rank has no room. */
static void naive_units(const uint64_t per_sequence[2], const uint64_t cap[2], const uint64_t unit_bytes[2][2], const uint64_t memory[2],
                        uint64_t units[2])
{
    uint64_t k = 0;

    units[0] = units[1] = 0;
    for (;;) {
        uint64_t next = UINT64_MAX, want[2];

        for (int c = 0; c < 2; c++) {
            if (units[c] < cap[c]) {
                uint64_t at = ((units[c] + 1) * (1ull << 20) + per_sequence[c] - 1) / per_sequence[c];
                next = at < next ? at : next;
            }
        }
        if (next == UINT64_MAX) {
            return;
        }
        k = next;
        for (int c = 0; c < 2; c++) {
            uint64_t scaled = per_sequence[c] * k >> 20;
            want[c] = scaled < cap[c] ? scaled : cap[c];
        }
        for (int r = 0; r < 2; r++) {
            if (want[0] * unit_bytes[r][0] + want[1] * unit_bytes[r][1] > memory[r]) {
                return;
            }
        }
        units[0] = want[0];
        units[1] = want[1];
    }
}

START_TEST(test_grid_plan_pools_are_those_of_the_slow_rule)
{
    unsigned seed = 20260101;

    options.sizing.policy.swa_ring = 1;
    ask_bf16();
    for (int round = 0; round < 200; round++) {
        uint32_t layers = 4 + (uint32_t)rand_r(&seed) % 8;
        uint64_t per_sequence[2], cap[2], unit_bytes[2][2], units[2];

        make_model(layers, 0, 8192 + (uint64_t)rand_r(&seed) % 20000);
        for (uint32_t il = 0; il < layers; il++) {
            made_layers[il] = il % 2 == 0 ? kv_layer(8, 2, 64, 32) : window_layer(4, 64, 256);
        }
        options.max_sequences = 1 + (uint32_t)rand_r(&seed) % 6;
        options.ctx = 1000 + (uint64_t)rand_r(&seed) % 7000;
        state[0] = (4ull << 20) * (16 + (uint64_t)rand_r(&seed) % 40);
        state[1] = (4ull << 20) * (16 + (uint64_t)rand_r(&seed) % 40);
        options.state_bytes = state;
        make_plan(1, 2);
        for (int c = 0; c < 2; c++) {
            per_sequence[c] = plan.classes[c].units_per_sequence;
            cap[c] = (uint64_t)options.max_sequences * plan.classes[c].unit_cap;
            unit_bytes[0][c] = plan.ranks[0].class_unit_bytes[c];
            unit_bytes[1][c] = plan.ranks[1].class_unit_bytes[c];
        }
        naive_units(per_sequence, cap, unit_bytes, state, units);
        ck_assert_msg(units[0] >= per_sequence[0] && units[1] >= per_sequence[1], "round %d holds no sequence: widen the memory", round);
        ck_assert_msg(plan.classes[0].units == units[0] && plan.classes[1].units == units[1], "round %d: %u/%u, not %llu/%llu", round,
                      plan.classes[0].units, plan.classes[1].units, (unsigned long long)units[0], (unsigned long long)units[1]);
    }
}
END_TEST

START_TEST(test_grid_plan_windowed_models_count_whole_windows)
{
    load("mistral-7b-v0.1");
    options.sizing.policy.swa_ring = 1;
    make_plan(1, 1);
    uint64_t window_bytes = plan.classes[0].unit_cap * plan.ranks[0].class_unit_bytes[0];
    for (int extra = -1; extra <= 1; extra++) {
        give_memory(1, window_bytes * 7 + (uint64_t)(int64_t)extra);
        make_plan(1, 1);
        ck_assert_uint_eq(plan.max_sequences, extra < 0 ? 6 : 7);
        ck_assert_uint_eq(plan.max_context, 32768);
        ck_assert_int_eq(plan.limiting_rank, 0);
    }
    give_memory(1, window_bytes - 1); /* less than a window: the longest that fits is shorter than it */
    make_plan(1, 1);
    ck_assert_uint_eq(plan.max_sequences, 0);
    ck_assert_uint_eq(plan.max_context, (plan.classes[0].unit_cap - 1) * 64);
}
END_TEST

/* ---- bad use, and unwinding */

START_TEST(test_grid_plan_refuses_options_that_make_no_sense)
{
    make_plain(4, 4096);
    ck_assert_int_eq(try_plan(0, 1), KVG_EINVAL);
    ck_assert_int_eq(try_plan(1, 0), KVG_EINVAL);
    ck_assert_int_eq(try_plan(1, 5), KVG_EINVAL);
    ck_assert_int_eq(try_plan(65536, 65536), KVG_EINVAL);
    options.sizing.format_k = KVG_Q5_1;
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    options.sizing.format_k = KVG_BF16;
    options.sizing.format_v = KVG_F32;
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    options.sizing.format_v = KVG_BF16;
    options.sizing.format_latent = KVG_Q8_0;
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    options.sizing.format_latent = KVG_POLICY;
    options.layout = (KvLayout)7;
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    options.layout = KVG_LAYOUT_POOL;
    options.size = 8;
    ck_assert_int_eq(try_plan(1, 1), KVG_EINVAL);
    options.size = sizeof options;
    ck_assert_int_eq(try_plan(1, 1), KVG_OK);
    ck_assert_int_eq(kvg_grid_plan(NULL, &options, &plan), KVG_EINVAL);
    kvg_grid_plan_free(NULL);
}
END_TEST

START_TEST(test_grid_plan_unwinds_from_every_allocation)
{
    make_plain(8, 4096);
    give_memory(4, 1 << 24);
    for (uint64_t nth = 0;; nth++) {
        uint64_t live = kvg_live_allocations();

        kvg_fault_arm(nth);
        KvgStatus status = try_plan(2, 2);
        if (!kvg_fault_disarm()) {
            ck_assert_int_eq(status, KVG_OK);
            ck_assert_uint_ge(nth, 8);
            break;
        }
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert_uint_eq(kvg_live_allocations(), live);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grid_plan");
    TCase *tcase = tcase_create("grid_plan");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_grid_plan_ranks_less_duplicates_are_the_trunk_for_every_model_and_grid);
    tcase_add_test(tcase, test_grid_plan_b02_replicates_whole_heads_when_tp_is_above_them);
    tcase_add_test(tcase, test_grid_plan_b03_refuses_tp_that_only_query_heads_divide_by);
    tcase_add_test(tcase, test_grid_plan_b09_lists_the_sizes_and_names_stages_as_the_other_way);
    tcase_add_test(tcase, test_grid_plan_lists_sizes_that_work_for_every_layer_of_the_model);
    tcase_add_test(tcase, test_grid_plan_b10_refuses_a_block_that_would_span_heads);
    tcase_add_test(tcase, test_grid_plan_b07_b12_few_heads_on_many_ranks);
    tcase_add_test(tcase, test_grid_plan_b54_b61_prices_local_heads_and_both_widths);
    tcase_add_test(tcase, test_grid_plan_b37_latents_are_whole_on_every_rank_and_ask_nothing_of_heads);
    tcase_add_test(tcase, test_grid_plan_b60_a_narrow_format_halves_rows_and_not_state);
    tcase_add_test(tcase, test_grid_plan_replicated_recurrent_parts_are_duplicates);
    tcase_add_test(tcase, test_grid_plan_b17_b18_every_layer_has_one_stage);
    tcase_add_test(tcase, test_grid_plan_b19_a_given_fence_is_kept_or_refused);
    tcase_add_test(tcase, test_grid_plan_b21_a_stage_without_attention_has_slots_and_the_same_units);
    tcase_add_test(tcase, test_grid_plan_b22_slots_are_sized_by_each_stage);
    tcase_add_test(tcase, test_grid_plan_b25_b26_mtp_blocks_live_on_the_last_stage_alone);
    tcase_add_test(tcase, test_grid_plan_b30_no_cut_parts_a_sharing_layer_from_its_source);
    tcase_add_test(tcase, test_grid_plan_b32_embedding_first_head_last_tied_table_on_both);
    tcase_add_test(tcase, test_grid_plan_weights_are_scaled_given_or_estimated);
    tcase_add_test(tcase, test_grid_plan_classes_are_full_first_then_one_a_window);
    tcase_add_test(tcase, test_grid_plan_windowed_caps_follow_ring_layout_and_chunk);
    tcase_add_test(tcase, test_grid_plan_more_windows_than_classes_is_not_supported);
    tcase_add_test(tcase, test_grid_plan_pooled_indexer_books_keys_in_units_and_its_ring_in_a_slot);
    tcase_add_test(tcase, test_grid_plan_b49_b31_the_smallest_rank_decides_and_is_named);
    tcase_add_test(tcase, test_grid_plan_b50_device_memory_less_weights_and_reserve);
    tcase_add_test(tcase, test_grid_plan_sequences_and_context_at_their_borders);
    tcase_add_test(tcase, test_grid_plan_t_past_the_context_admits_no_such_sequence);
    tcase_add_test(tcase, test_grid_plan_b59_a_cap_on_slots_is_seen_in_the_result);
    tcase_add_test(tcase, test_grid_plan_b56_slots_take_their_bytes_before_rows);
    tcase_add_test(tcase, test_grid_plan_windows_stop_at_their_caps_and_leave_the_rest_to_others);
    tcase_add_test(tcase, test_grid_plan_slabs_are_rounded_up_plane_by_plane);
    tcase_add_test(tcase, test_grid_plan_pools_are_those_of_the_slow_rule);
    tcase_add_test(tcase, test_grid_plan_windowed_models_count_whole_windows);
    tcase_add_test(tcase, test_grid_plan_refuses_options_that_make_no_sense);
    tcase_add_test(tcase, test_grid_plan_known_layers_leave_the_rest_to_the_two_ends);
    tcase_add_test(tcase, test_grid_plan_a_stage_of_twice_the_memory_takes_twice_the_layers);
    tcase_add_test(tcase, test_grid_plan_costs_past_64_bits_are_refused);
    tcase_add_test(tcase, test_grid_plan_more_units_than_a_table_counts_are_not_promised);
    tcase_add_test(tcase, test_grid_plan_layers_that_are_none_are_refused);
    tcase_add_test(tcase, test_grid_plan_a_long_list_of_sizes_is_cut_between_two);
    tcase_add_test(tcase, test_grid_plan_unwinds_from_every_allocation);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

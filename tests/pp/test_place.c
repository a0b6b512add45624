/* Grid and placement: what must be equal is compared and named; what cannot be placed is refused on every rank; nothing leaks. */
#include <kvgrid/dev.h>

#include "pp/place.h"
#include "tests/support/grid_life.h"

static ModelConfig model_file(const char *name)
{
    char        path[512];
    ModelConfig config;
    snprintf(path, sizeof path, "%s/models/%s", KVG_TEST_DATA, name);
    ck_assert_msg(kvg_model_config_load(path, &config) == KVG_OK, "%s", kvg_last_error());
    return config;
}

static void connect_grid(TestGrid *g, uint32_t tp, uint32_t pp)
{
    KvgPolicy policy = life_policy(1);
    grid_connect(g, tp, pp, &policy, 0);
}

/* Places with options of its own on each rank; statuses and sentences by rank. */
static KvgStatus place_each(TestGrid *g, const ModelConfig *configs, const KvgPlaceOptions *options, KvgStatus each[], char why[][384])
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    int       done[TEST_RANKS_MAX] = {0}, left = 0;
    for (int r = 0; r < g->ranks; r++) {
        g->placement[r] = NULL;
        each[r] = kvg_place_start(g->grid[r], &configs[r], &options[r], &g->placement[r], &setups[r]);
        ck_assert_msg(each[r] == KVG_OK, "%s", kvg_last_error());
        left++;
    }
    for (int rounds = 0; left > 0; rounds++) {
        ck_assert_int_lt(rounds, 100000);
        for (int r = 0; r < g->ranks; r++) {
            if (done[r]) continue;
            KvgStatus status = kvg_setup_test(setups[r], &done[r]);
            if (!done[r]) continue;
            each[r] = status;
            snprintf(why[r], 384, "%s", status == KVG_OK ? "" : kvg_last_error());
            left--;
        }
        kvg_inproc_advance_ns(g->hub, 1000000);
    }
    for (int r = 0; r < g->ranks; r++) {
        kvg_setup_free(setups[r]);
        ck_assert_int_eq(g->placement[r] != NULL, each[r] == KVG_OK);
        ck_assert_int_eq(each[r] == KVG_OK, each[0] == KVG_OK);
    }
    return each[0];
}

static KvgStatus place_all(TestGrid *g, const ModelConfig *config, const KvgPlaceOptions *options, char why[384])
{
    ModelConfig     configs[TEST_RANKS_MAX];
    KvgPlaceOptions all[TEST_RANKS_MAX];
    KvgStatus       each[TEST_RANKS_MAX];
    char            whys[TEST_RANKS_MAX][384];
    for (int r = 0; r < g->ranks; r++) configs[r] = *config, all[r] = *options;
    KvgStatus status = place_each(g, configs, all, each, whys);
    if (why != NULL) snprintf(why, 384, "%s", whys[0]);
    return status;
}

START_TEST(test_a_differing_item_is_named_with_both_ranks)
{
    static const uint32_t fence_a[] = {0, 1, 4}, fence_b[] = {0, 2, 4};
    static const uint64_t bytes_a[] = {1, 1, 1, 1}, bytes_b[] = {1, 2, 1, 1};
    static const char *const named[] = {"format_k", "format_v", "max_sequences", "max_step_sequences", "ctx", "prefill_chunk_max",
                                        "spec_columns", "layout", "fence", "layer_bytes", "n_layer", "state plan", "context"};
    TestGrid g;
    connect_grid(&g, 2, 2);
    for (size_t item = 0; item < sizeof named / sizeof *named; item++) {
        KvgPlaceOptions options[TEST_RANKS_MAX];
        ModelConfig     configs[TEST_RANKS_MAX], other;
        KvgStatus       each[TEST_RANKS_MAX];
        char            why[TEST_RANKS_MAX][384], both[32];
        int             odd = 1 + (int)item % 3;
        g.config = test_model(4, 4, 64, 2048);
        other = item == 10 ? test_model(3, 4, 64, 2048) : item == 11 ? test_model(4, 4, 65, 2048) : test_model(4, 4, 64, item == 12 ? 1024 : 2048);
        for (int r = 0; r < 4; r++) {
            KvgPlaceOptions *o = &options[r];
            int              x = r == odd;
            *o = life_options(4, 4u << 20);
            configs[r] = x ? other : g.config;
            if (item == 0) o->format_k = x ? KVG_BF16 : KVG_F16;
            if (item == 1) o->format_v = x ? KVG_BF16 : KVG_F16;
            if (item == 2) o->max_step_sequences = 2, o->max_sequences = x ? 5 : 4;
            if (item == 3) o->max_step_sequences = x ? 1 : 2;
            if (item == 4) o->ctx = x ? 128 : 256;
            if (item == 5) o->prefill_chunk_max = x ? 128 : 256;
            if (item == 6) o->spec_columns = x ? 3 : 2;
            if (item == 7) o->layout = x ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL;
            if (item == 8) o->fence = x ? fence_a : fence_b;
            if (item == 9) o->layer_bytes = x ? bytes_a : bytes_b;
        }
        ck_assert_int_eq(place_each(&g, configs, options, each, why), KVG_ELAYOUT);
        snprintf(both, sizeof both, "rank 0 and rank %d", odd);
        for (int r = 0; r < 4; r++) {
            ck_assert_int_eq(each[r], KVG_ELAYOUT);
            ck_assert_msg(strstr(why[r], named[item]) != NULL && strstr(why[r], both) != NULL, "%s: %s", named[item], why[r]);
        }
        kvg_model_config_free(&other);
        kvg_model_config_free(&g.config);
    }
    g.config = test_model(4, 4, 64, 2048); /* after so many refusals the grid places */
    KvgPlaceOptions options = life_options(4, 4u << 20);
    ck_assert_int_eq(place_all(&g, &g.config, &options, NULL), KVG_OK);
    grid_close(&g);
}
END_TEST

START_TEST(test_one_rank_that_cannot_take_part_is_named_by_the_others)
{
    TestGrid        g;
    KvgPlaceOptions options[TEST_RANKS_MAX];
    ModelConfig     configs[TEST_RANKS_MAX];
    KvgStatus       each[TEST_RANKS_MAX];
    char            why[TEST_RANKS_MAX][384];
    connect_grid(&g, 2, 2);
    g.config = test_model(4, 4, 64, 2048);
    for (int r = 0; r < 4; r++) options[r] = life_options(4, 4u << 20), configs[r] = g.config;
    options[2].layout = (KvLayout)7;
    place_each(&g, configs, options, each, why);
    for (int r = 0; r < 4; r++) {
        ck_assert_int_eq(each[r], r == 2 ? KVG_EINVAL : KVG_EREFUSED);
        ck_assert_msg(strstr(why[r], r == 2 ? "layout 7" : "rank 2") != NULL, "%s", why[r]);
    }
    for (int r = 0; r < 4; r++) options[r] = life_options(4, 4u << 20), options[r].size = r == 1 ? 8 : options[r].size;
    place_each(&g, configs, options, each, why);
    ck_assert_int_eq(each[1], KVG_EINVAL);
    ck_assert_int_eq(each[0], KVG_EREFUSED);
    for (int r = 0; r < 4; r++) options[r] = life_options(4, r == 3 ? 4096 : 4u << 20);
    place_each(&g, configs, options, each, why); /* not even 64 rows fit on rank 3 */
    for (int r = 0; r < 4; r++) ck_assert_msg(strstr(why[r], "rank 3") != NULL || strstr(why[r], "rank 0") != NULL, "%s", why[r]);
    ck_assert_int_eq(each[3], KVG_ENOMEM);
    grid_close(&g);
}
END_TEST

START_TEST(test_unequal_memory_agrees_on_the_least_and_names_the_limiting_rank)
{
    for (int small = 0; small < 4; small++) {
        TestGrid        g;
        KvgPlaceOptions options[TEST_RANKS_MAX];
        ModelConfig     configs[TEST_RANKS_MAX];
        KvgStatus       each[TEST_RANKS_MAX];
        char            why[TEST_RANKS_MAX][384];
        connect_grid(&g, 2, 2);
        g.config = test_model(4, 4, 0, 2048);
        for (int r = 0; r < 4; r++) options[r] = life_options(4, r == small ? 400u << 10 : 600u << 10), configs[r] = g.config;
        ck_assert_int_eq(place_each(&g, configs, options, each, why), KVG_OK);
        uint32_t units = kvg_placement_plan(g.placement[0])->classes[0].units;
        for (int r = 0; r < 4; r++) {
            const KvGridPlan *plan = kvg_placement_plan(g.placement[r]);
            ck_assert_int_eq(plan->limiting_rank, small);
            ck_assert_uint_eq(plan->classes[0].units, units); /* every id at or past it is no chunk anywhere (B49) */
            /* rows fit into memory_bytes; tables (32 entries and a base a slot), two lengths and four words of slot state come on top */
            ck_assert_uint_le(life_stats(g.placement[r]).taken_bytes, options[r].memory_bytes + 4 * (32 + 1 + 2 + 4) * 4);
        }
        life_agree(&g);
        grid_close(&g);
    }
}
END_TEST

START_TEST(test_a_given_fence_is_kept_and_a_wrong_one_refused)
{
    static const struct { uint32_t fence[3]; KvgStatus status; } cases[] = {
        {{0, 1, 4}, KVG_OK}, {{0, 3, 4}, KVG_OK}, {{0, 0, 4}, KVG_EINVAL}, {{0, 4, 4}, KVG_EINVAL}, {{1, 2, 4}, KVG_EINVAL}, {{0, 2, 5}, KVG_EINVAL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TestGrid        g;
        KvgPlaceOptions options = life_options(2, 4u << 20);
        char            why[384];
        connect_grid(&g, 1, 2);
        g.config = test_model(4, 4, 0, 2048);
        options.fence = cases[i].fence;
        KvgStatus status = place_all(&g, &g.config, &options, why);
        ck_assert_msg(status == cases[i].status, "fence %zu: %s %s", i, kvg_status_name(status), why);
        if (status == KVG_OK) {
            uint32_t lo, hi;
            kvg_placement_layers(g.placement[1], &lo, &hi);
            ck_assert_uint_eq(lo, cases[i].fence[1]);
            ck_assert_uint_eq(hi, 4);
            ck_assert_ptr_null(kvg_placement_view(g.placement[1], lo - 1));
            ck_assert_ptr_nonnull(kvg_placement_view(g.placement[1], lo));
        }
        grid_close(&g);
    }
}
END_TEST

START_TEST(test_more_ranks_than_heads_hold_replicas_that_must_be_equal)
{
    TestGrid        g;
    KvgPlaceOptions options = life_options(2, 4u << 20);
    LifeSequences   s;
    char            hex[33], whole[33];
    connect_grid(&g, 4, 1);
    const char *text = "{\"model_type\":\"llama\",\"hidden_size\":128,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,"
                       "\"num_hidden_layers\":2,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":2048}";
    ck_assert_int_eq(kvg_model_config_parse_json(text, strlen(text), "test", &g.config), KVG_OK);
    ck_assert_int_eq(place_all(&g, &g.config, &options, NULL), KVG_OK);
    for (int r = 0; r < 4; r++) {
        const KvPlaneView *view = kvg_placement_view(g.placement[r], 0);
        ck_assert_uint_eq(view->heads, 1); /* never 0 (B05) */
        ck_assert_uint_eq(view->head_first, (uint32_t)r / 2);
        ck_assert_int_eq(kvg_batch_create(g.placement[r], 2, &g.batch[r]), KVG_OK);
    }
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    ck_assert_int_eq(life_grow(&g, s, 0, 70), KVG_OK);
    grid_digest(&g, s, 0, hex);
    *kvg_sequence_row(s[1][0], 1, 0, 0, 69) ^= 1; /* one bit of one copy */
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    KvDigest  digest[TEST_RANKS_MAX];
    KvgStatus each[TEST_RANKS_MAX];
    for (int r = 0; r < 4; r++) ck_assert_int_eq(kvg_sequence_digest_start(s[r][0], &digest[r], &setups[r]), KVG_OK);
    grid_finish(&g, setups, each);
    for (int r = 0; r < 4; r++) ck_assert_int_eq(each[r], KVG_ELAYOUT);
    grid_close(&g);
    connect_grid(&g, 1, 1);
    ck_assert_int_eq(kvg_model_config_parse_json(text, strlen(text), "test", &g.config), KVG_OK);
    ck_assert_int_eq(place_all(&g, &g.config, &options, NULL), KVG_OK);
    ck_assert_int_eq(kvg_batch_create(g.placement[0], 2, &g.batch[0]), KVG_OK);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    ck_assert_int_eq(life_grow(&g, s, 0, 70), KVG_OK);
    grid_digest(&g, s, 0, whole);
    ck_assert_str_eq(hex, whole);
    grid_close(&g);
}
END_TEST

START_TEST(test_heads_that_do_not_divide_are_refused_and_what_works_is_listed)
{
    TestGrid        g;
    KvgPlaceOptions options = life_options(2, 4u << 20);
    char            why[384];
    connect_grid(&g, 3, 1);
    g.config = test_model(2, 4, 0, 2048);
    ck_assert_int_eq(place_all(&g, &g.config, &options, why), KVG_EGEOM);
    ck_assert_msg(strstr(why, "2") != NULL && strstr(why, "4") != NULL, "%s", why);
    grid_close(&g);
}
END_TEST

START_TEST(test_too_little_memory_for_rows_or_slots_is_named)
{
    static const char *const files[] = {"glm-5.3-flash.json", "qwen3-next-80b-a3b.json", "deepseek-v3.2.json"};
    int tried = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/models/%s", KVG_TEST_DATA, files[i]);
        FILE *file = fopen(path, "r");
        if (file == NULL) continue;
        fclose(file);
        TestGrid        g;
        KvgPlaceOptions options = life_options(1, 4u << 20);
        char            why[384];
        connect_grid(&g, 1, 1);
        g.config = model_file(files[i]);
        ck_assert_int_eq(place_all(&g, &g.config, &options, why), KVG_ENOMEM);
        ck_assert_msg(strstr(why, "raise memory_bytes") != NULL, "%s", why);
        grid_close(&g);
        tried++;
    }
    ck_assert_int_gt(tried, 0);
}
END_TEST

START_TEST(test_layers_that_share_planes_write_nothing_and_read_their_source)
{
    TestGrid        g;
    KvgPlaceOptions options = life_options(2, 64u << 20);
    LifeSequences   s;
    KvgStep        *steps[TEST_RANKS_MAX];
    char            why[384], before[33], after[33];
    connect_grid(&g, 2, 1);
    g.config = model_file("gemma-4-e4b.json");
    options.ctx = 2048;
    ck_assert_msg(place_all(&g, &g.config, &options, why) == KVG_OK, "%s", why);
    uint32_t owners = 0;
    for (uint32_t il = 0; il < 42; il++) owners += kvg_placement_view(g.placement[0], il)->owns != 0;
    ck_assert_uint_eq(owners, 24);
    ck_assert_uint_eq(kvg_placement_view(g.placement[0], 30)->layer, 22);
    ck_assert_uint_eq(kvg_placement_view(g.placement[0], 29)->layer, 23);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    for (int r = 0; r < 2; r++) {
        static float rows[4 * 8 * 512];
        ck_assert_int_eq(kvg_batch_create(g.placement[r], 1, &g.batch[r]), KVG_OK);
        ck_assert_int_eq(kvg_batch_set(g.batch[r], 0, s[r][0]), KVG_OK);
        ck_assert_int_eq(kvg_step_begin(g.batch[r], (uint32_t[]){4}, &steps[r]), KVG_OK);
        KvgRows in = KVG_ROWS_INIT;
        in.k = in.v = rows;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) rows[i] = (float)(i % 97);
        for (uint32_t il = 0; il < 24; il++) ck_assert_int_eq(kvg_write_kv(g.batch[r], il, &in, NULL), KVG_OK);
        uint8_t was = *kvg_sequence_row(s[r][0], 22, 0, 0, 3);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) rows[i] = -5;
        for (uint32_t il = 24; il < 42; il++) ck_assert_int_eq(kvg_write_kv(g.batch[r], il, &in, NULL), KVG_EINVAL); /* refused, and the source's bytes stay (B45) */
        ck_assert_int_eq(kvg_write_kv(g.batch[r], 42, &in, NULL), KVG_EINVAL);
        ck_assert_uint_eq(*kvg_sequence_row(s[r][0], 22, 0, 0, 3), was);
        ck_assert_ptr_eq(kvg_sequence_row(s[r][0], 30, 0, 0, 3), kvg_sequence_row(s[r][0], 22, 0, 0, 3));
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_OK);
    grid_digest(&g, s, 0, before);
    grid_digest(&g, s, 0, after);
    ck_assert_str_eq(before, after);
    grid_close(&g);
    /* B30: a cut between a sharing layer and its source is no cut */
    static const uint32_t fence[] = {0, 30, 42};
    connect_grid(&g, 1, 2);
    g.config = model_file("gemma-4-e4b.json");
    options.fence = fence;
    ck_assert_int_ne(place_all(&g, &g.config, &options, why), KVG_OK);
    options.fence = NULL;
    ck_assert_msg(place_all(&g, &g.config, &options, why) == KVG_OK, "%s", why);
    ck_assert_uint_le(kvg_placement_plan(g.placement[0])->ranks[0].hi, 22);
    grid_close(&g);
}
END_TEST

/* ---- every acquisition fails once */

static int one_life(uint32_t tp, uint32_t pp, KvLayout layout, KvgStatus *failed)
{
    TestGrid        g;
    KvgGridOptions  grid_options = KVG_GRID_OPTIONS_INIT;
    KvgPolicy       policy = life_policy(1);
    KvgPlaceOptions options = life_options(2, 1u << 20);
    KvgSequence    *sequence[TEST_RANKS_MAX] = {0};
    KvgStep        *steps[TEST_RANKS_MAX];
    KvgSetup       *setups[TEST_RANKS_MAX] = {0};
    KvgStatus       status, each[TEST_RANKS_MAX];
    int             hit;
    memset(&g, 0, sizeof g);
    g.live_before = kvg_live_allocations();
    g.ranks = (int)(tp * pp), g.tp = tp, g.pp = pp;
    grid_options.tp = tp, grid_options.pp = pp, grid_options.policy = &policy;
    options.layout = layout;
    int armed = *failed; /* nth comes in this way */
    g.config = test_model(2, 4, 64, 2048);
    kvg_fault_arm((uint64_t)armed);
    status = kvg_inproc_create(g.ranks, &g.hub);
    if (status == KVG_OK) status = kvg_grid_create_inproc(g.hub, g.ranks, &grid_options, g.grid);
    if (status == KVG_OK) {
        for (int r = 0; r < g.ranks; r++) each[r] = kvg_place_start(g.grid[r], &g.config, &options, &g.placement[r], &setups[r]);
        KvgStatus ended[TEST_RANKS_MAX];
        for (int r = 0; r < g.ranks; r++) ended[r] = each[r];
        grid_finish(&g, setups, ended);
        for (int r = 0; r < g.ranks; r++) {
            if (ended[r] != KVG_OK && status == KVG_OK) status = ended[r];
            ck_assert_msg((g.placement[r] != NULL) == (g.placement[0] != NULL), "acquisition %d: rank %d placed and another did not", armed, r);
            ck_assert_int_eq(g.placement[r] != NULL, ended[r] == KVG_OK);
        }
    }
    for (int r = 0; status == KVG_OK && r < g.ranks; r++) status = kvg_batch_create(g.placement[r], 2, &g.batch[r]);
    for (int r = 0; status == KVG_OK && r < g.ranks; r++) {
        ck_assert_int_eq(kvg_sequence_open(g.placement[r], 1, 100, &sequence[r]), KVG_OK); /* allocates nothing, or is voted on */
        ck_assert_int_eq(kvg_batch_set(g.batch[r], 0, sequence[r]), KVG_OK);
    }
    if (status == KVG_OK) {
        for (int r = 0; r < g.ranks; r++) {
            steps[r] = NULL;
            ck_assert_int_eq(kvg_step_begin(g.batch[r], (uint32_t[]){5, 0}, &steps[r]), KVG_OK);
            grid_post(&g, r, steps[r], NULL, KVG_OK);
        }
        status = grid_decide(&g, steps, NULL);
        life_agree(&g);
    }
    hit = kvg_fault_disarm();
    *failed = status;
    for (int r = 0; r < g.ranks; r++) {
        kvg_batch_destroy(g.batch[r]);
        kvg_placement_destroy(g.placement[r]);
        kvg_grid_destroy(g.grid[r]);
    }
    kvg_inproc_destroy(g.hub);
    kvg_model_config_free(&g.config);
    ck_assert_msg(kvg_live_allocations() == g.live_before, "acquisition %d leaks", armed);
    return hit;
}

START_TEST(test_every_acquisition_may_fail_and_nothing_leaks)
{
    static const struct { uint32_t tp, pp; KvLayout layout; } shapes[] = {
        {1, 1, KVG_LAYOUT_POOL}, {1, 1, KVG_LAYOUT_FLAT}, {2, 1, KVG_LAYOUT_POOL}, {1, 2, KVG_LAYOUT_FLAT}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int failures = 0;
        for (int nth = 0;; nth++) {
            KvgStatus status = (KvgStatus)nth;
            int       hit = one_life(shapes[i].tp, shapes[i].pp, shapes[i].layout, &status);
            if (!hit) {
                ck_assert_int_eq(status, KVG_OK);
                break;
            }
            failures += status != KVG_OK;
        }
        ck_assert_int_gt(failures, 30);
    }
}
END_TEST

START_TEST(test_shapes_that_do_not_fit_the_ranks)
{
    KvInproc      *hub;
    KvgGrid       *grids[4] = {0};
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    KvgPolicy      policy = life_policy(1);
    ck_assert_int_eq(kvg_inproc_create(4, &hub), KVG_OK);
    options.policy = &policy;
    static const uint32_t wrong[][2] = {{1, 1}, {2, 1}, {3, 1}, {2, 3}, {4, 2}, {65536, 65536}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.tp = wrong[i][0], options.pp = wrong[i][1];
        ck_assert_int_eq(kvg_grid_create_inproc(hub, 4, &options, grids), KVG_EINVAL);
    }
    options.size = 1;
    ck_assert_int_eq(kvg_grid_create_inproc(hub, 4, &options, grids), KVG_EINVAL);
    options = (KvgGridOptions)KVG_GRID_OPTIONS_INIT;
    options.policy = &policy;
    options.tp = 2, options.pp = 2;
    static const uint32_t too_many[] = {(1u << 20) + 1, 1u << 31, UINT32_MAX}; /* 2^31: of as many places for steps as 32 bits hold, none */
    for (size_t i = 0; i < sizeof too_many / sizeof *too_many; i++) {
        options.max_in_flight = too_many[i];
        ck_assert_int_eq(kvg_grid_create_inproc(hub, 4, &options, grids), KVG_EINVAL);
        ck_assert_msg(strstr(kvg_last_error(), "max_in_flight") != NULL, "%s", kvg_last_error());
    }
    options.max_in_flight = 1u << 20;
    ck_assert_int_eq(kvg_grid_create_inproc(hub, 4, &options, grids), KVG_OK);
    for (int r = 0; r < 4; r++) kvg_grid_destroy(grids[r]);
    options.max_in_flight = 0;
    options.tp = 4, options.pp = 0; /* 0 counts as 1 */
    ck_assert_msg(kvg_grid_create_inproc(hub, 4, &options, grids) == KVG_OK, "%s", kvg_last_error());
    ck_assert_uint_eq(kvg_grid_pp(grids[3]), 1);
    ck_assert_uint_eq(kvg_grid_tp_rank(grids[3]), 3);
    ck_assert_uint_eq(kvg_grid_epoch(grids[3]), 1);
    for (int r = 0; r < 4; r++) kvg_grid_destroy(grids[r]);
    options.tp = 2, options.pp = 2; /* B34: world rank 3 is tp rank 1 of stage 1 */
    ck_assert_int_eq(kvg_grid_create_inproc(hub, 4, &options, grids), KVG_OK);
    ck_assert_uint_eq(kvg_grid_tp_rank(grids[3]), 1);
    ck_assert_uint_eq(kvg_grid_stage(grids[3]), 1);
    for (int r = 0; r < 4; r++) kvg_grid_destroy(grids[r]);
    kvg_inproc_destroy(hub);
}
END_TEST

/* ---- ends that the caller gives, one or the other or both */

static int closes[2]; /* of the given comm, of the given liveness */
static void note_comm_closed(void *self) { (void)self, closes[0]++; }
static void note_liveness_closed(void *self) { (void)self, closes[1]++; }

START_TEST(test_each_end_that_is_given_is_used_and_closed_once)
{
    KvComm        comm;
    KvLiveness    liveness;
    KvCommOps     comm_ops;
    KvLivenessOps liveness_ops;
    ck_assert_int_eq(kvg_comm_self(&comm, &liveness), KVG_OK);
    comm_ops = *comm.ops;
    comm_ops.close = note_comm_closed;
    comm.ops = &comm_ops;
    liveness_ops = *liveness.ops;
    liveness_ops.close = note_liveness_closed;
    liveness.ops = &liveness_ops;
    for (int given = 0; given <= 3; given++) {
        KvgBootstrap   alone = KVG_BOOTSTRAP_INIT;
        KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
        KvgGrid       *grid = NULL;
        options.comm = given & 1 ? &comm : NULL;
        options.liveness = given & 2 ? &liveness : NULL;
        closes[0] = closes[1] = 0;
        ck_assert_int_eq(kvg_grid_create(&alone, &options, &grid), KVG_OK);
        ck_assert_int_eq(closes[0] + closes[1], 0);
        kvg_grid_destroy(grid);
        ck_assert_int_eq(closes[0], given & 1);
        ck_assert_int_eq(closes[1], given >> 1);
    }
}
END_TEST

START_TEST(test_units_for_lengths_alone_are_no_more_than_ids)
{
    static const struct { uint64_t max_ctx; uint32_t slots, unit_cap, units; } cases[] = {
        {1, 1, 1, 1}, {64, 3, 1, 3}, {65, 3, 2, 6}, {64, INT32_MAX, 1, INT32_MAX}, {64, UINT32_MAX, 1, INT32_MAX},
        {INT32_MAX - 64, 63, 33554431, 63 * 33554431u}, {INT32_MAX - 64, 65, 33554431, INT32_MAX}, {INT32_MAX - 64, 129, 33554431, INT32_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        KvClassGeometry class = kvg_place_lengths_class(cases[i].max_ctx, cases[i].slots);
        ck_assert_uint_eq(class.unit_cap, cases[i].unit_cap);
        ck_assert_uint_eq(class.units, cases[i].units);
        ck_assert_uint_eq(class.units_max, cases[i].units);
    }
}
END_TEST

static int stays_told;
static void count_stays(void *user, KvgLogLevel level, const char *sentence)
{
    (void)user;
    stays_told += level == KVG_LOG_ERROR && strstr(sentence, "stays") != NULL;
}

START_TEST(test_what_others_stand_on_is_not_destroyed_and_says_so)
{
    KvgBootstrap    bootstrap = KVG_BOOTSTRAP_INIT;
    KvgGridOptions  on = KVG_GRID_OPTIONS_INIT;
    KvgPlaceOptions as = life_options(2, 1 << 20);
    ModelConfig     config = model_file("tinyllama-1.1b.json");
    KvgGrid        *grid;
    KvgPlacement   *placement;
    KvgBatch       *batches[2];
    KvgSequence    *sequence;

    as.memory_bytes = 64 << 20;
    stays_told = 0;
    kvg_log_set(count_stays, NULL);
    ck_assert_int_eq(kvg_grid_create(&bootstrap, &on, &grid), KVG_OK);
    ck_assert_msg(kvg_place(grid, &config, &as, &placement) == KVG_OK, "%s", kvg_last_error());
    for (int i = 0; i < 2; i++) ck_assert_int_eq(kvg_batch_create(placement, 1, &batches[i]), KVG_OK);
    ck_assert_int_eq(kvg_batch_create(NULL, 1, &batches[0]), KVG_EINVAL);
    ck_assert_int_eq(kvg_batch_create(placement, 1, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_batch_set(NULL, 0, NULL), KVG_EINVAL);

    kvg_placement_destroy(placement);
    ck_assert_msg(strstr(kvg_last_error(), "2 batch(es) of") != NULL, "%s", kvg_last_error());
    kvg_grid_destroy(grid);
    ck_assert_msg(strstr(kvg_last_error(), "placements") != NULL, "%s", kvg_last_error());
    ck_assert_int_eq(stays_told, 2);
    ck_assert_msg(kvg_sequence_open(placement, 1, 8, &sequence) == KVG_OK, "%s", kvg_last_error()); /* whole */

    kvg_batch_destroy(batches[0]);
    kvg_placement_destroy(placement);
    ck_assert_msg(strstr(kvg_last_error(), "1 batch(es) of") != NULL, "%s", kvg_last_error());
    kvg_batch_destroy(batches[1]);
    kvg_placement_destroy(placement);
    kvg_grid_destroy(grid);
    ck_assert_int_eq(stays_told, 3);
    kvg_log_set(NULL, NULL);
    kvg_model_config_free(&config);
}
END_TEST

LIFE_MAIN("place", test_a_differing_item_is_named_with_both_ranks, test_one_rank_that_cannot_take_part_is_named_by_the_others,
          test_unequal_memory_agrees_on_the_least_and_names_the_limiting_rank, test_a_given_fence_is_kept_and_a_wrong_one_refused,
          test_more_ranks_than_heads_hold_replicas_that_must_be_equal, test_heads_that_do_not_divide_are_refused_and_what_works_is_listed,
          test_too_little_memory_for_rows_or_slots_is_named, test_layers_that_share_planes_write_nothing_and_read_their_source,
          test_every_acquisition_may_fail_and_nothing_leaks, test_shapes_that_do_not_fit_the_ranks, test_units_for_lengths_alone_are_no_more_than_ids, test_each_end_that_is_given_is_used_and_closed_once,
          test_what_others_stand_on_is_not_destroyed_and_says_so)

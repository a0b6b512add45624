/* What the programs of this folder share: small models by text, real ones by name, in-process grids of them, rows of any width. */
#ifndef KVG_TEST_CASES_H
#define KVG_TEST_CASES_H

#include "tests/support/inproc_grid.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static inline ModelConfig case_parse(const char *text)
{
    ModelConfig config;

    ck_assert_msg(kvg_model_config_parse_json(text, strlen(text), "case", &config) == KVG_OK, "%s", kvg_last_error());
    return config;
}

/* tests/data/models/<name>.json */
static inline ModelConfig case_load(const char *name)
{
    ModelConfig config;
    char        path[512];

    snprintf(path, sizeof path, "%s/models/%s.json", KVG_TEST_DATA, name);
    ck_assert_msg(kvg_model_config_load(path, &config) == KVG_OK, "%s", kvg_last_error());
    return config;
}

/* `layers` full layers of `heads` KV heads of dimension 32 under `queries` query heads; context 2048. */
static inline void case_heads_text(char text[512], uint32_t layers, uint32_t queries, uint32_t heads)
{
    snprintf(text, 512, "{\"model_type\":\"llama\",\"hidden_size\":%u,\"num_attention_heads\":%u,\"num_key_value_heads\":%u,\"head_dim\":32,"
             "\"num_hidden_layers\":%u,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":2048}",
             queries * 32, queries, heads, layers);
}

/* A grid with the model of `text` placed on it, and a batch on each rank. */
static inline void case_open(TestGrid *g, uint32_t tp, uint32_t pp, const char *text, const KvgPlaceOptions *options,
                             const KvgPolicy *policy, uint32_t slots)
{
    grid_connect(g, tp, pp, policy, 0);
    g->config = case_parse(text);
    ck_assert_msg(grid_place(g, &g->config, options, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < g->ranks; r++) ck_assert_int_eq(kvg_batch_create(g->placement[r], slots, &g->batch[r]), KVG_OK);
}

static inline KvgPlaceOptions case_options(uint32_t sequences, uint64_t memory_bytes)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;

    options.max_sequences = sequences;
    options.memory_bytes = memory_bytes;
    return options;
}

static inline void case_open_sequence(TestGrid *g, KvgSequence *sequences[][8], uint32_t slot, uint64_t id)
{
    for (int r = 0; r < g->ranks; r++) {
        ck_assert_msg(kvg_sequence_open(g->placement[r], id, 0, &sequences[r][slot]) == KVG_OK, "%s", kvg_last_error());
    }
}

static inline KvgSequenceInfo case_info(const KvgSequence *sequence)
{
    KvgSequenceInfo info = {.size = sizeof info};

    ck_assert_int_eq(kvg_sequence_info(sequence, &info), KVG_OK);
    return info;
}

/* What a pass writes: `rows` rows of one sequence, the first `good` of them its own stream, the rest another (rejected drafts). */
typedef struct CaseRows {
    KvgSequence *sequence;
    uint32_t     rows, good;
} CaseRows;

#define CASE_FLOATS (1 << 18)

static inline void case_fill(float *target, const CaseRows *pass, const KvPlaneView *view, const KvPlane *plane, uint32_t which)
{
    KvgSequenceInfo info = case_info(pass->sequence);
    size_t          at = 0;

    ck_assert_uint_le((uint64_t)pass->rows * view->heads * plane->head_dim, CASE_FLOATS); /* once: Check notes every assertion in a file */
    for (uint32_t i = 0; i < pass->rows; i++) {
        uint64_t id = i < pass->good ? info.id : info.id ^ 0x5555;
        for (uint32_t h = 0; h < view->heads; h++) {
            for (uint32_t e = 0; e < plane->head_dim; e++) {
                target[at++] = test_value(id, view->layer, which, view->head_first + h, info.rows_staged - pass->rows + i, e);
            }
        }
    }
}

/* Writes the current pass of place 0 into every layer of rank r. */
static inline void case_write(TestGrid *g, int r, const CaseRows *pass)
{
    static float k[CASE_FLOATS], v[CASE_FLOATS];
    uint32_t     lo, hi;

    kvg_placement_layers(g->placement[r], &lo, &hi);
    for (uint32_t il = lo; il < hi && pass->rows > 0; il++) {
        const KvPlaneView *view = kvg_plane_view(g->batch[r], il);
        KvgRows            in = KVG_ROWS_INIT;
        if (view == NULL || !view->owns) continue;
        case_fill(k, pass, view, &view->k, 0);
        case_fill(v, pass, view, &view->v, 1);
        in.k = k;
        in.v = v;
        ck_assert_msg(kvg_write_kv(g->batch[r], il, &in, NULL) == KVG_OK, "%s", kvg_last_error());
    }
}

/* One step of `rows` rows of the sequence in place 0, of which `accepted` are kept, on every rank. */
static inline KvgStatus case_step(TestGrid *g, KvgSequence *sequences[][8], uint32_t slot, uint32_t rows, uint32_t accepted)
{
    KvgStep *steps[TEST_RANKS_MAX];

    for (int r = 0; r < g->ranks; r++) {
        CaseRows pass = {sequences[r][slot], rows, accepted};
        ck_assert_int_eq(kvg_batch_set(g->batch[r], 0, sequences[r][slot]), KVG_OK);
        ck_assert_msg(kvg_step_begin(g->batch[r], &rows, &steps[r]) == KVG_OK, "%s", kvg_last_error());
        ck_assert_int_eq(kvg_step_refusal(steps[r], 0), KVG_OK);
        case_write(g, r, &pass);
        grid_post(g, r, steps[r], &accepted, KVG_OK);
    }
    return grid_decide(g, steps, NULL);
}

static inline void case_grow(TestGrid *g, KvgSequence *sequences[][8], uint32_t slot, uint64_t to)
{
    for (uint64_t at = case_info(sequences[0][slot]).rows; at < to; at = case_info(sequences[0][slot]).rows) {
        uint32_t rows = to - at < 100 ? (uint32_t)(to - at) : 100;
        ck_assert_msg(case_step(g, sequences, slot, rows, rows) == KVG_OK, "%s", kvg_last_error());
    }
}

static inline KvSizing case_sizing(KvFormat format)
{
    KvSizing sizing = {.format_k = format, .format_v = format};

    kvg_policy_default(&sizing.policy);
    return sizing;
}

/* A plan by kvg_grid_plan that must succeed; kvg_grid_plan_free frees it. */
static inline KvGridPlan case_plan(const ModelConfig *config, const KvGridPlanOptions *options)
{
    KvGridPlan plan;

    ck_assert_msg(kvg_grid_plan(config, options, &plan) == KVG_OK, "%s", kvg_last_error());
    return plan;
}

static inline KvGridPlanOptions case_plan_options(uint32_t tp, uint32_t pp, KvFormat format)
{
    KvGridPlanOptions options = KVG_GRID_PLAN_OPTIONS_INIT;

    options.tp = tp;
    options.pp = pp;
    options.sizing = case_sizing(format);
    return options;
}


/* The main of each program. */
static inline int case_main(const char *section, const TTest *const *tests, int count)
{
    Suite   *suite = suite_create(section);
    TCase   *tcase = tcase_create(section);
    SRunner *runner;
    int      ran, failed;

    tcase_set_timeout(tcase, 60);
    for (int i = 0; i < count; i++) tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    ran = srunner_ntests_run(runner);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return ran == 0 || failed != 0;
}

#endif

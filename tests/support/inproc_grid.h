/* In-process grid for tests: all ranks of a tp x pp grid in one thread, one model placed on it.
 *
 *   grid_open(&g, tp, pp, config, options)   hub, grids, placements
 *   grid_step(...)                           one step on every rank, in order, waited for on every rank
 * Asserts by Check; teardown proves nothing leaked (grid_close). */
#ifndef INPROC_GRID_H
#define INPROC_GRID_H

#include <check.h>
#include <stdio.h>
#include <string.h>

#include <kvgrid/kvgrid.h>

#include "runtime/base/memory.h"
#include "tests/support/test_device.h"

#define TEST_RANKS_MAX 64

typedef struct TestGrid {
    int           ranks;
    uint32_t      tp, pp;
    KvInproc     *hub;
    KvgGrid      *grid[TEST_RANKS_MAX];
    KvgPlacement *placement[TEST_RANKS_MAX];
    KvgBatch     *batch[TEST_RANKS_MAX];
    ModelConfig   config; /* freed by grid_close */
    uint64_t      live_before;
    KvDev         device; /* of suites that are built for another than the host's; all ranks share it */
} TestGrid;

/* Host memory as the grid's device may read it (test_device.h). */
static inline const void *grid_lend(TestGrid *g, int place, const void *data, size_t bytes)
{
    return g->device.ops != NULL ? test_device_lend(&g->device, place, data, bytes) : data;
}

/* A small model: `layers` layers of `heads` KV heads of dimension 32, every second one windowed when window > 0. */
static inline ModelConfig test_model(uint32_t layers, uint32_t heads, uint32_t window, uint64_t context)
{
    char        text[1024];
    ModelConfig config;
    int         at = snprintf(text, sizeof text,
                              "{\"model_type\":\"llama\",\"hidden_size\":%u,\"num_attention_heads\":%u,\"num_key_value_heads\":%u,"
                              "\"head_dim\":32,\"num_hidden_layers\":%u,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":%llu",
                              heads * 32, heads, heads, layers, (unsigned long long)context);
    if (window > 0) {
        at += snprintf(text + at, sizeof text - (size_t)at, ",\"sliding_window\":%u,\"layer_types\":[", window);
        for (uint32_t il = 0; il < layers; il++) {
            at += snprintf(text + at, sizeof text - (size_t)at, "%s\"%s\"", il ? "," : "", il % 2 ? "full_attention" : "sliding_attention");
        }
        at += snprintf(text + at, sizeof text - (size_t)at, "]");
    }
    snprintf(text + at, sizeof text - (size_t)at, "}");
    ck_assert_msg(kvg_model_config_parse_json(text, strlen(text), "test", &config) == KVG_OK, "%s", kvg_last_error());
    return config;
}

/* Turns one operation on every rank until each has ended; the status of rank 0, and *each if given. */
static inline KvgStatus grid_finish(TestGrid *g, KvgSetup **setups, KvgStatus *each)
{
    KvgStatus first = KVG_OK;
    int       left = 0;
    int       done[TEST_RANKS_MAX] = {0};
    for (int r = 0; r < g->ranks; r++) left += setups[r] != NULL;
    for (int rounds = 0; left > 0; rounds++) {
        ck_assert_msg(rounds < 100000, "a set-up operation does not end");
        for (int r = 0; r < g->ranks; r++) {
            if (setups[r] == NULL || done[r]) continue;
            KvgStatus status = kvg_setup_test(setups[r], &done[r]);
            if (!done[r]) continue;
            if (each != NULL) each[r] = status;
            if (r == 0) first = status;
            left--;
        }
        if (left > 0) kvg_inproc_advance_ns(g->hub, 100000);
    }
    for (int r = 0; r < g->ranks; r++) kvg_setup_free(setups[r]);
    return first;
}

static inline void grid_connect(TestGrid *g, uint32_t tp, uint32_t pp, const KvgPolicy *policy, uint32_t in_flight)
{
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    memset(g, 0, sizeof *g);
    g->live_before = kvg_live_allocations();
    g->ranks = (int)(tp * pp);
    g->tp = tp;
    g->pp = pp;
    options.tp = tp;
    options.pp = pp;
    options.policy = policy;
    options.max_in_flight = in_flight;
    ck_assert_int_eq(kvg_inproc_create(g->ranks, &g->hub), KVG_OK);
    ck_assert_msg(kvg_grid_create_inproc(g->hub, g->ranks, &options, g->grid) == KVG_OK, "%s", kvg_last_error());
}

static inline KvgStatus grid_place(TestGrid *g, const ModelConfig *config, const KvgPlaceOptions *options, KvgStatus *each)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    KvgPlaceOptions placed = *options;
#if defined(KVG_TEST_INDIRECT) || defined(KVG_TEST_CUDA)
    if (placed.device == NULL) {
        if (g->device.ops == NULL) ck_assert_msg(test_device_open(1, &g->device) == KVG_OK, "%s", kvg_last_error());
        placed.device = &g->device;
    }
#endif
    for (int r = 0; r < g->ranks; r++) {
        ck_assert_msg(kvg_place_start(g->grid[r], config, &placed, &g->placement[r], &setups[r]) == KVG_OK, "%s", kvg_last_error());
    }
    return grid_finish(g, setups, each);
}

/* The grid with a placement of test_model(layers, heads, window, 2048) and a batch on each rank. */
static inline void grid_open(TestGrid *g, uint32_t tp, uint32_t pp, const uint32_t model[3], const KvgPlaceOptions *options,
                             const KvgPolicy *policy, uint32_t batch_slots)
{
    grid_connect(g, tp, pp, policy, 0);
    g->config = test_model(model[0], model[1], model[2], 2048);
    ck_assert_msg(grid_place(g, &g->config, options, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < g->ranks; r++) {
        ck_assert_int_eq(kvg_batch_create(g->placement[r], batch_slots, &g->batch[r]), KVG_OK);
    }
}

static inline void grid_close(TestGrid *g)
{
    for (int r = 0; r < g->ranks; r++) {
        kvg_batch_destroy(g->batch[r]);
        kvg_placement_destroy(g->placement[r]);
        kvg_grid_destroy(g->grid[r]);
    }
    if (g->device.ops != NULL) test_device_close(&g->device);
    kvg_inproc_destroy(g->hub);
    kvg_model_config_free(&g->config);
    ck_assert_uint_eq(kvg_live_allocations(), g->live_before);
}

/* One value of the test's own stream: what row `row` of sequence `id` holds in one element. */
static inline float test_value(uint64_t id, uint32_t layer, uint32_t plane, uint32_t head, uint64_t row, uint32_t element)
{
    uint64_t x = id * 0x9e3779b97f4a7c15u ^ (uint64_t)layer << 48 ^ (uint64_t)plane << 40 ^ (uint64_t)head << 32 ^ row << 6 ^ element;
    x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
    return (float)(int32_t)(x >> 40 & 0xffff) / 16384.0f - 2.0f;
}

/* Writes the current pass of the batch on one rank; `salt` is xored into ids, for rows that will be rejected. */
static inline void grid_write(TestGrid *g, int r, KvgStep *step, KvgSequence *const *sequences, uint32_t slots, uint64_t salt)
{
    uint32_t        lo, hi;
    const uint32_t *rows = kvg_step_rows(step);
    static float    k[1 << 18], v[1 << 18];
    kvg_placement_layers(g->placement[r], &lo, &hi);
    for (uint32_t il = lo; il < hi; il++) {
        const KvPlaneView *view = kvg_plane_view(g->batch[r], il);
        KvgRows            in = KVG_ROWS_INIT;
        size_t             at = 0;
        if (view == NULL || !view->owns) continue;
        for (uint32_t slot = 0; slot < slots; slot++) {
            KvgSequenceInfo info = {.size = sizeof info};
            if (rows[slot] == 0) continue;
            ck_assert_int_eq(kvg_sequence_info(sequences[slot], &info), KVG_OK);
            for (uint32_t i = 0; i < rows[slot]; i++) {
                for (uint32_t h = 0; h < view->heads; h++) {
                    for (uint32_t e = 0; e < 32; e++, at++) {
                        uint64_t row = info.rows_staged - rows[slot] + i;
                        ck_assert_uint_lt(at, sizeof k / sizeof *k);
                        k[at] = test_value(info.id ^ salt, il, 0, view->head_first + h, row, e);
                        v[at] = test_value(info.id ^ salt, il, 1, view->head_first + h, row, e);
                    }
                }
            }
        }
        in.k = grid_lend(g, 0, k, (at + 1) * sizeof *k);
        in.v = grid_lend(g, 1, v, (at + 1) * sizeof *v);
        ck_assert_msg(kvg_write_kv(g->batch[r], il, &in, NULL) == KVG_OK, "%s", kvg_last_error());
    }
}

/* Begins, writes and posts one step on rank r. */
static inline KvgStep *grid_begin(TestGrid *g, int r, KvgSequence *const *sequences, const uint32_t *rows, uint32_t slots, uint64_t salt)
{
    KvgStep *step = NULL;
    for (uint32_t slot = 0; slot < slots; slot++) {
        ck_assert_int_eq(kvg_batch_set(g->batch[r], slot, sequences[slot]), KVG_OK);
    }
    ck_assert_msg(kvg_step_begin(g->batch[r], rows, &step) == KVG_OK, "%s", kvg_last_error());
    grid_write(g, r, step, sequences, slots, salt);
    return step;
}

static inline void grid_post(TestGrid *g, int r, KvgStep *step, const uint32_t *accepted, KvgStatus refuse)
{
    KvgCommit commit = KVG_COMMIT_INIT;
    if (kvg_grid_stage(g->grid[r]) + 1 == g->pp) {
        commit.accepted = accepted;
        commit.accept_all = accepted == NULL;
    }
    commit.refuse = refuse;
    ck_assert_msg(kvg_step_post(step, &commit) == KVG_OK, "%s", kvg_last_error());
}

/* Tests the step on every rank until decided everywhere; outcomes [ranks] may be NULL. */
static inline KvgStatus grid_decide(TestGrid *g, KvgStep **steps, KvgOutcome *outcomes)
{
    KvgStatus  each[TEST_RANKS_MAX] = {KVG_OK};
    int        done[TEST_RANKS_MAX] = {0}, left = g->ranks;
    for (int rounds = 0; left > 0; rounds++) {
        ck_assert_msg(rounds < 100000, "a step is never decided");
        for (int r = 0; r < g->ranks; r++) {
            KvgOutcome outcome;
            if (done[r]) continue;
            KvgStatus status = kvg_step_test(steps[r], &done[r], &outcome);
            if (!done[r]) {
                ck_assert_msg(status == KVG_OK, "%s", kvg_last_error());
                continue;
            }
            if (outcomes != NULL) outcomes[r] = outcome;
            each[r] = status;
            left--;
        }
        if (left > 0) kvg_inproc_advance_ns(g->hub, 100000);
    }
    for (int r = 1; r < g->ranks; r++) ck_assert_int_eq(each[r], each[0]);
    return each[0];
}

/* sequences [ranks][slots] */
static inline KvgStatus grid_step(TestGrid *g, KvgSequence *sequences[][8], const uint32_t *rows, uint32_t slots, const uint32_t *accepted,
                                  int refuser)
{
    KvgStep *steps[TEST_RANKS_MAX];
    for (int r = 0; r < g->ranks; r++) {
        steps[r] = grid_begin(g, r, sequences[r], rows, slots, 0);
        grid_post(g, r, steps[r], accepted, r == refuser ? KVG_ENOMEM : KVG_OK);
    }
    return grid_decide(g, steps, NULL);
}

static inline void grid_digest(TestGrid *g, KvgSequence *sequences[][8], uint32_t slot, char hex[33])
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    KvDigest  digest[TEST_RANKS_MAX];
    for (int r = 0; r < g->ranks; r++) {
        ck_assert_msg(kvg_sequence_digest_start(sequences[r][slot], &digest[r], &setups[r]) == KVG_OK, "%s", kvg_last_error());
    }
    ck_assert_msg(grid_finish(g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 1; r < g->ranks; r++) {
        ck_assert_mem_eq(digest[r].bytes, digest[0].bytes, 16);
    }
    kvg_digest_hex(&digest[0], hex);
}

#endif

/* Scenes of captured runs: a grid whose ranks have devices of run_dev.h, an engine whose kernels are nodes of the graph, and the same steps driven from the
 * host. Rows and the counts that are accepted are functions of (scene's seed, sequence, row) alone, so a run and host-driven steps can be compared. */
#ifndef KVG_TEST_RUN_SCENE_H
#define KVG_TEST_RUN_SCENE_H

#include <kvgrid/run.h>

#include "pp/run_impl.h"
#include "runtime/base/mix.h"
#include "tests/support/kinds_run.h"
#include "tests/support/run_dev.h"

enum { SCENE_RANKS = 4, SCENE_PLACES = 4, SCENE_SEQUENCES = 6, SCENE_GRAPHS = 2, SCENE_LAYERS = 4, SCENE_ROWS = 32, SCENE_WIDTH = 128 };

/* ---- what is placed */

typedef struct SceneSpec {
    const char *name;
    const char *text;     /* of the model; NULL: llama */
    uint32_t    llama[3]; /* layers, heads, window */
    KvLayout    layout;
    uint32_t    columns, rows_most;
    int8_t      ring;
    uint32_t    timeout_ms; /* 0: 200 */
    uint64_t    memory_bytes; /* 0: enough */
    uint32_t    chunk_max;
} SceneSpec;

static const SceneSpec scene_specs[] = {
    {.name = "full attention", .llama = {4, 4, 0}, .rows_most = 3},
    {.name = "windows, rings on", .llama = {4, 4, 64}, .rows_most = 3, .ring = 1},
    {.name = "windows, rings off", .llama = {4, 4, 64}, .rows_most = 3},
    {.name = "flat planes", .llama = {4, 4, 0}, .layout = KVG_LAYOUT_FLAT, .rows_most = 3},
    {.name = "latent rows, a key a token", .text = deepseek, .rows_most = 3},
    {.name = "recurrent, a column for each row", .text = qwen3_next, .columns = 4, .rows_most = 3},
};
enum { SCENE_SPECS = sizeof scene_specs / sizeof *scene_specs };

typedef struct Scene Scene;

typedef struct SceneKernel { /* what one node of the engine's knows */
    Scene   *scene;
    int      r, graph;
    uint32_t il;
    float   *a, *b; /* device memory: what is written */
} SceneKernel;

struct Scene {
    TestGrid      g;
    SceneSpec     spec;
    uint64_t      seed;
    int           runs; /* 0: host devices */
    KvDev         dev[SCENE_RANKS];
    uint8_t      *board;
    KvVoteControl control[SCENE_RANKS] __attribute__((aligned(64)));
    KvgSequence  *s[TEST_RANKS_MAX][8];
    int           open[SCENE_SEQUENCES];
    int           place[SCENE_PLACES]; /* which sequence; -1: empty */
    uint32_t      places;
    KvgBatch     *other[SCENE_RANKS]; /* a second batch; NULL: none. scene_swap puts it in the first one's place */
    int           other_place[SCENE_PLACES];
    /* of graphs */
    KvgGraph     *graph[SCENE_GRAPHS][SCENE_RANKS];
    uint32_t      captured[SCENE_GRAPHS][SCENE_PLACES];
    KvgAccept     accept[SCENE_GRAPHS];
    SceneKernel   kernel[SCENE_GRAPHS][SCENE_RANKS][SCENE_LAYERS + 1];
    KvgRunArrays  arrays[SCENE_GRAPHS][SCENE_RANKS];
    uint64_t      id_of_slot[SCENE_SEQUENCES];
    /* what the engine does wrong, and when */
    uint64_t      no_step;   /* 0: never */
    int           no_rank;
    int32_t       no_status;
    uint64_t      greedy_step; /* accepts more than is staged */
    int           user_rank;   /* whose digest differs; -1: none passes one; 64: all the same */
    uint32_t      written;     /* rows written by kernels of rank 0's first layer, all replays */
    /* of the end */
    int           ending, ended[SCENE_RANKS];
    int           absent; /* a rank that ends nothing; -1: none */
    KvgRunResult  result[SCENE_RANKS];
    KvgStatus     status[SCENE_RANKS];
    char          why[SCENE_RANKS][512];
    int           on;     /* graph whose run is on; -1: none */
};

static KvgStream const scene_stream = (KvgStream)(uintptr_t)0x51;

/* ---- the engine's values */

static inline uint32_t scene_accepts(const Scene *scene, KvgAccept accept, uint64_t id, uint64_t first, uint32_t rows)
{
    if (accept != KVG_ACCEPT_DEVICE) return rows;
    return (uint32_t)(kvg_mix64(scene->seed ^ id << 32 ^ first) % (rows + 1));
}

/* Rows that will be rejected hold something else. */
static inline float scene_value(uint64_t id, int rejected, uint32_t il, uint32_t plane, uint32_t head, uint64_t row, uint32_t e)
{
    return test_value(rejected ? id ^ 0x5a5a : id, il, plane, head, row, e);
}

static inline void scene_kv(const KvPlaneView *view, uint32_t il, uint64_t id, int rejected, uint64_t row, float *k, float *v)
{
    for (uint32_t h = 0; h < view->heads; h++) {
        for (uint32_t e = 0; e < 32; e++) {
            *k++ = scene_value(id, rejected, il, 0, view->head_first + h, row, e);
            *v++ = scene_value(id, rejected, il, 1, view->head_first + h, row, e);
        }
    }
}

static inline void scene_latent(const KvLatentView *view, uint32_t il, uint64_t id, int rejected, uint64_t row, float *latent, float *index)
{
    for (uint32_t e = 0; e < view->width; e++) latent[e] = scene_value(id, rejected, il, 2, 0, row, e);
    for (uint32_t e = 0; e < view->index_width; e++) index[e] = scene_value(id, rejected, il, 3, 0, row, e);
}

static inline void scene_recurrent(const KvRecurrentView *view, uint32_t il, uint64_t id, int rejected, uint64_t row, float *x, float *u)
{
    for (uint32_t p = 0; p < view->part_count; p++) {
        const KvRecurrentPartView *part = &view->parts[p];
        for (uint32_t i = 0; i < part->heads * part->width; i++) {
            float value = scene_value(id, rejected, il, 5 + part->is_state, part->head_index + i / part->width, row, i % part->width);
            if (part->is_state) *u++ = value;
            else *x++ = value;
        }
    }
}

/* ---- the engine's kernels: what a GPU's would do, over un-flipped addresses */

typedef struct ScenePlace {
    int32_t  slot;
    uint32_t rows, first, accepted;
    uint64_t id;
    size_t   token;
} ScenePlace;

static inline ScenePlace scene_place_of(const SceneKernel *kernel, uint32_t i)
{
    const Scene        *scene = kernel->scene;
    const KvgRunArrays *arrays = &scene->arrays[kernel->graph][kernel->r];
    ScenePlace          place = {.slot = ((const int32_t *)indirect_flip(arrays->slots))[i], .rows = ((const uint32_t *)indirect_flip(arrays->rows))[i],
                                 .first = ((const uint32_t *)indirect_flip(arrays->first_row))[i]};

    if (place.slot < 0 || place.rows == 0) return (ScenePlace){.slot = -1};
    ck_assert_uint_le(place.rows, scene->captured[kernel->graph][i]);
    place.id = scene->id_of_slot[place.slot];
    place.accepted = scene_accepts(scene, scene->accept[kernel->graph], place.id, place.first, place.rows);
    for (uint32_t before = 0; before < i; before++) place.token += scene->captured[kernel->graph][before];
    return place;
}

static void scene_fill_kv(void *user)
{
    const SceneKernel *kernel = user;
    const KvPlaneView *view = kvg_plane_view(kernel->scene->g.batch[kernel->r], kernel->il);

    for (uint32_t i = 0; i < kernel->scene->places; i++) {
        ScenePlace place = scene_place_of(kernel, i);
        for (uint32_t row = 0; row < place.rows; row++) {
            size_t at = (place.token + row) * view->heads * 32;
            scene_kv(view, kernel->il, place.id, row >= place.accepted, place.first + row, (float *)indirect_flip(kernel->a) + at,
                     (float *)indirect_flip(kernel->b) + at);
        }
        if (kernel->r == 0) kernel->scene->written += place.rows;
    }
}

static void scene_fill_latent(void *user)
{
    const SceneKernel  *kernel = user;
    const KvLatentView *view = kvg_latent_view(kernel->scene->g.batch[kernel->r], kernel->il);

    for (uint32_t i = 0; i < kernel->scene->places; i++) {
        ScenePlace place = scene_place_of(kernel, i);
        for (uint32_t row = 0; row < place.rows; row++) {
            scene_latent(view, kernel->il, place.id, row >= place.accepted, place.first + row,
                         (float *)indirect_flip(kernel->a) + (place.token + row) * view->width,
                         (float *)indirect_flip(kernel->b) + (place.token + row) * view->index_width);
        }
        if (kernel->r == 0) kernel->scene->written += place.rows;
    }
}

static void scene_recur(void *user)
{
    const SceneKernel     *kernel = user;
    const KvRecurrentView *view = kvg_recurrent_view(kernel->scene->g.batch[kernel->r], kernel->il);
    float                 *conv = indirect_flip(view->conv), *state = indirect_flip(view->state);
    static float           x[VALUES_MAX], u[VALUES_MAX];

    for (uint32_t i = 0; i < kernel->scene->places; i++) {
        ScenePlace place = scene_place_of(kernel, i);
        if (place.slot < 0) continue;
        uint32_t from = (uint32_t)((const int32_t *)indirect_flip(view->read))[place.slot];
        uint32_t to = (uint32_t)((const int32_t *)indirect_flip(view->write))[place.slot];
        ck_assert_int_eq(((const int32_t *)indirect_flip(view->each))[place.slot], 1);
        ck_assert_uint_eq(to, (from + 1) % view->columns);
        for (uint32_t row = 0; row < place.rows; row++, from = to, to = (to + 1) % view->columns) {
            size_t c = place.slot * view->conv_slot_stride, st = place.slot * view->state_slot_stride;
            scene_recurrent(view, kernel->il, place.id, row >= place.accepted, place.first + row, x, u);
            kvg_recurrent_token(conv + c + from * view->conv_elements, state + st + from * view->state_elements, x, u, 0.75f, view->conv_channels,
                                view->taps, view->state_elements, conv + c + to * view->conv_elements, state + st + to * view->state_elements);
        }
        if (kernel->r == 0) kernel->scene->written += place.rows;
    }
}

/* After the last layer: what is kept, and whether this rank is content. */
static void scene_verdict(void *user)
{
    const SceneKernel *kernel = user;
    const Scene       *scene = kernel->scene;
    int32_t           *status = indirect_flip(scene->arrays[kernel->graph][kernel->r].status);
    uint32_t          *accepted = indirect_flip(scene->arrays[kernel->graph][kernel->r].accepted);
    const KvVoteWords *words = (const KvVoteWords *)(const void *)((const uint8_t *)status - offsetof(KvVoteWords, status));

    for (uint32_t i = 0; i < scene->places; i++) {
        ScenePlace place = scene_place_of(kernel, i);
        if (place.slot < 0 || scene->graph[kernel->graph][kernel->r] == NULL) continue;
        if (scene->accept[kernel->graph] == KVG_ACCEPT_DEVICE && kvg_grid_stage(scene->g.grid[kernel->r]) + 1 == scene->g.pp) accepted[i] = place.accepted;
        if (words->step == scene->greedy_step) accepted[i] = place.rows + 1;
    }
    if (scene->user_rank >= 0) *(uint64_t *)indirect_flip(scene->arrays[kernel->graph][kernel->r].user) = words->step + (kernel->r == scene->user_rank);
    if (words->step == scene->no_step && kernel->r == scene->no_rank && words->stop == 0) *status = scene->no_status;
}

/* ---- opening */

static Scene       *scene_ending;
static const KvCommOps *scene_comm_ops;
static void scene_end_rank(Scene *scene, int r);

/* All ranks are one thread's: while one waits in kvg_run_end, the others end theirs. */
static void scene_relax(void *self, uint64_t rounds)
{
    scene_comm_ops->relax(self, rounds);
    for (int r = 0; scene_ending != NULL && scene_ending->ending && r < scene_ending->g.ranks; r++) {
        if (!scene_ending->ended[r] && r != scene_ending->absent) {
            scene_end_rank(scene_ending, r);
            return;
        }
    }
}

static inline void scene_hook_relax(Scene *scene)
{
    static KvCommOps ops;

    if (scene->g.ranks == 1) return;
    if (scene->g.grid[0]->comm.ops != &ops) {
        scene_comm_ops = scene->g.grid[0]->comm.ops;
        ops = *scene_comm_ops;
        ops.relax = scene_relax;
    }
    for (int r = 0; r < scene->g.ranks; r++) scene->g.grid[r]->comm.ops = &ops;
}

static inline void scene_give_board(Scene *scene)
{
    TestGrid   *g = &scene->g;
    KvVoteBoard board = {.ranks = (uint32_t)g->ranks, .tp = g->tp, .slots = kvg_vote_slots(g->grid[0]->window),
                         .sequences_max = kvg_grid_record_sequences(g->grid[0])};

    board.stride = (kvg_vote_board_bytes(&board) + 255) / 256 * 256;
    scene->board = calloc((size_t)g->ranks, board.stride);
    ck_assert_ptr_nonnull(scene->board);
    board.base = indirect_flip(scene->board);
    for (int r = 0; r < g->ranks; r++) {
        board.rank = (uint32_t)r;
        board.control = indirect_flip(&scene->control[r]);
        ck_assert_msg(kvg_grid_vote_on_device(g->grid[r], &board, &scene->control[r]) == KVG_OK, "%s", kvg_last_error());
    }
}

static inline void scene_place_model(Scene *scene)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    KvgSetup       *setups[TEST_RANKS_MAX] = {0};
    TestGrid       *g = &scene->g;

    options.max_sequences = SCENE_SEQUENCES;
    options.max_step_sequences = SCENE_PLACES;
    options.memory_bytes = scene->spec.memory_bytes != 0 ? scene->spec.memory_bytes : 16u << 20;
    options.memory_max_bytes = options.memory_bytes;
    options.layout = scene->spec.layout;
    options.spec_columns = scene->spec.columns;
    options.prefill_chunk_max = scene->spec.chunk_max;
    for (int r = 0; r < g->ranks; r++) {
        if (scene->runs) {
            ck_assert_msg(run_dev_open(g->hub, &scene->dev[r]) == KVG_OK, "%s", kvg_last_error());
            options.device = &scene->dev[r];
        }
        ck_assert_msg(kvg_place_start(g->grid[r], &g->config, &options, &g->placement[r], &setups[r]) == KVG_OK, "%s", kvg_last_error());
    }
    ck_assert_msg(grid_finish(g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
}

static inline void scene_set(Scene *scene, uint32_t place, int sequence)
{
    scene->place[place] = sequence;
    for (int r = 0; r < scene->g.ranks; r++) {
        ck_assert_msg(kvg_batch_set(scene->g.batch[r], place, sequence >= 0 ? scene->s[r][sequence] : NULL) == KVG_OK, "%s", kvg_last_error());
    }
}

static inline void scene_open_sequence(Scene *scene, int i, uint64_t rows)
{
    for (int r = 0; r < scene->g.ranks; r++) {
        ck_assert_msg(kvg_sequence_open(scene->g.placement[r], 100 + (uint64_t)i, rows, &scene->s[r][i]) == KVG_OK, "%s", kvg_last_error());
    }
    scene->open[i] = 1;
}

static inline void scene_close_sequence(Scene *scene, int i)
{
    for (int r = 0; r < scene->g.ranks; r++) ck_assert_int_eq(kvg_sequence_close(scene->s[r][i], NULL), KVG_OK);
    scene->open[i] = 0;
}

/* A grid with a batch of `places` places, sequence i open and in place i. runs 0: on host devices. */
static inline void scene_open(Scene *scene, uint32_t tp, uint32_t pp, const SceneSpec *spec, uint32_t places, int runs)
{
    KvgPolicy policy;

    memset(scene, 0, sizeof *scene);
    scene->spec = *spec;
    scene->seed = 1;
    scene->runs = runs;
    scene->user_rank = scene->absent = scene->on = -1;
    scene->places = places;
    kvg_policy_default(&policy);
    policy.swa_ring = spec->ring;
    policy.timeout_ms = spec->timeout_ms != 0 ? spec->timeout_ms : 200;
    grid_connect(&scene->g, tp, pp, &policy, 0);
    if (spec->text != NULL) {
        ck_assert_int_eq(kvg_model_config_parse_json(spec->text, strlen(spec->text), "scene", &scene->g.config), KVG_OK);
    } else {
        scene->g.config = test_model(spec->llama[0], spec->llama[1], spec->llama[2], 2048);
    }
    scene_place_model(scene);
    scene_hook_relax(scene);
    if (runs && scene->g.ranks > 1) scene_give_board(scene);
    for (int r = 0; r < scene->g.ranks; r++) ck_assert_int_eq(kvg_batch_create(scene->g.placement[r], places, &scene->g.batch[r]), KVG_OK);
    for (uint32_t i = 0; i < places; i++) {
        scene_open_sequence(scene, (int)i, 0);
        scene_set(scene, i, (int)i);
    }
}

static inline void scene_swap(Scene *scene)
{
    for (int r = 0; r < scene->g.ranks; r++) {
        KvgBatch *batch = scene->g.batch[r];
        scene->g.batch[r] = scene->other[r];
        scene->other[r] = batch;
    }
    for (uint32_t i = 0; i < scene->places; i++) {
        int place = scene->place[i];
        scene->place[i] = scene->other_place[i];
        scene->other_place[i] = place;
    }
}

/* A second batch, with empty places. */
static inline void scene_add_batch(Scene *scene)
{
    for (int r = 0; r < scene->g.ranks; r++) ck_assert_int_eq(kvg_batch_create(scene->g.placement[r], scene->places, &scene->other[r]), KVG_OK);
    for (uint32_t i = 0; i < scene->places; i++) scene->other_place[i] = -1;
}

static inline void scene_free_graph(Scene *scene, int graph)
{
    for (int r = 0; r < scene->g.ranks; r++) {
        kvg_graph_free(scene->graph[graph][r]);
        scene->graph[graph][r] = NULL;
        for (uint32_t k = 0; k < SCENE_LAYERS; k++) {
            SceneKernel *kernel = &scene->kernel[graph][r][k];
            if (scene->runs) scene->dev[r].ops->free(scene->dev[r].self, kernel->a);
            if (scene->runs) scene->dev[r].ops->free(scene->dev[r].self, kernel->b);
            kernel->a = kernel->b = NULL;
        }
    }
}

/* Everything goes; nothing may be left of the devices' memory (of the library's: scene_teardown). */
static inline void scene_close(Scene *scene)
{
    TestGrid *g = &scene->g;

    for (int r = 0; r < g->ranks; r++) kvg_batch_destroy(g->batch[r]), kvg_batch_destroy(scene->other[r]); /* ends what is on */
    for (int graph = 0; graph < SCENE_GRAPHS; graph++) scene_free_graph(scene, graph);
    for (int r = 0; r < g->ranks; r++) {
        kvg_placement_destroy(g->placement[r]);
        kvg_grid_destroy(g->grid[r]);
        if (!scene->runs) continue;
        ck_assert_uint_eq(run_dev_of(&scene->dev[r])->graphs, 0);
        test_device_close(&scene->dev[r]);
    }
    free(scene->board);
    kvg_inproc_destroy(g->hub);
    kvg_model_config_free(&g->config);
}

/* Of every test: what the library allocated has come back. */
static uint64_t scene_live;

static inline void scene_setup(void)
{
    scene_live = kvg_live_allocations();
}

static inline void scene_teardown(void)
{
    ck_assert_uint_eq(kvg_live_allocations(), scene_live);
}

/* ---- steps from the host */

static inline const void *scene_lend(Scene *scene, int r, int place, const void *data, size_t bytes)
{
    return scene->runs ? test_device_lend(&scene->dev[r], place, data, bytes) : data;
}

typedef struct SceneFill {
    const Scene   *scene;
    const KvgStep *step;
    int            r;
    KvgAccept      accept;
} SceneFill;

static inline uint64_t scene_id(const Scene *scene, uint32_t place)
{
    return 100 + (uint64_t)scene->place[place];
}

static inline int scene_rejected(const SceneFill *fill, uint32_t place, uint64_t row)
{
    uint64_t first = kvg_step_first_rows(fill->step)[place];
    return row - first >= scene_accepts(fill->scene, fill->accept, scene_id(fill->scene, place), first, kvg_step_rows(fill->step)[place]);
}

static void scene_fill(void *user, uint32_t il, uint32_t place, uint64_t row, float *x, float *u)
{
    const SceneFill *fill = user;
    scene_recurrent(kvg_recurrent_view(fill->scene->g.batch[fill->r], il), il, scene_id(fill->scene, place), scene_rejected(fill, place, row), row, x, u);
}

static inline void scene_write_layer(Scene *scene, const SceneFill *fill, uint32_t il)
{
    static float          a[SCENE_PLACES * SCENE_ROWS * SCENE_WIDTH + 1], b[SCENE_PLACES * SCENE_ROWS * SCENE_WIDTH + 1];
    KvgBatch             *batch = scene->g.batch[fill->r];
    const KvPlaneView    *kv = kvg_plane_view(batch, il);
    const KvLatentView   *latent = kv == NULL ? kvg_latent_view(batch, il) : NULL;
    KvgRows               rows = KVG_ROWS_INIT;
    KvgLatentRows         latents = KVG_LATENT_ROWS_INIT;
    KvgRecurrentRows      recurrent = {sizeof recurrent, scene_fill, (void *)(uintptr_t)fill, 0.75f, a};
    size_t                token = 0;

    for (uint32_t place = 0; place < scene->places && (kv != NULL || latent != NULL); place++) {
        for (uint32_t i = 0; i < kvg_step_rows(fill->step)[place]; i++, token++) {
            uint64_t row = kvg_step_first_rows(fill->step)[place] + i, id = scene_id(scene, place);
            int      rejected = scene_rejected(fill, place, row);
            ck_assert_uint_lt(token, SCENE_PLACES * SCENE_ROWS);
            if (kv != NULL) scene_kv(kv, il, id, rejected, row, a + token * kv->heads * 32, b + token * kv->heads * 32);
            else scene_latent(latent, il, id, rejected, row, a + token * latent->width, b + token * latent->index_width);
        }
    }
    rows.k = latents.latent = scene_lend(scene, fill->r, 0, a, sizeof a);
    rows.v = latents.index = scene_lend(scene, fill->r, 1, b, sizeof b);
    KvgStatus status = kv != NULL       ? kvg_write_kv(batch, il, &rows, NULL)
                       : latent != NULL ? kvg_write_latent(batch, il, &latents, NULL)
                                        : kvg_recurrent_update(batch, il, &recurrent, NULL);
    ck_assert_msg(status == KVG_OK, "%s", kvg_last_error());
}

static inline void scene_write_step(Scene *scene, int r, const KvgStep *step, KvgAccept accept)
{
    SceneFill fill = {scene, step, r, accept};
    uint32_t  lo, hi;

    kvg_placement_layers(scene->g.placement[r], &lo, &hi);
    for (uint32_t il = lo; il < hi; il++) scene_write_layer(scene, &fill, il);
}

/* One step on every rank, with what the engine would accept. rows [places]. */
static inline KvgStatus scene_step(Scene *scene, const uint32_t *rows, KvgAccept accept)
{
    KvgStep   *steps[TEST_RANKS_MAX];
    KvgOutcome outcomes[TEST_RANKS_MAX];

    for (int r = 0; r < scene->g.ranks; r++) {
        KvgCommit commit = KVG_COMMIT_INIT;
        uint32_t  accepted[SCENE_PLACES] = {0};
        ck_assert_msg(kvg_step_begin(scene->g.batch[r], rows, &steps[r]) == KVG_OK, "%s", kvg_last_error());
        scene_write_step(scene, r, steps[r], accept);
        for (uint32_t i = 0; i < scene->places; i++) {
            if (kvg_step_rows(steps[r])[i] == 0) continue;
            accepted[i] = scene_accepts(scene, accept, scene_id(scene, i), kvg_step_first_rows(steps[r])[i], kvg_step_rows(steps[r])[i]);
        }
        if (kvg_grid_stage(scene->g.grid[r]) + 1 == scene->g.pp) commit.accepted = accepted;
        ck_assert_msg(kvg_step_post(steps[r], &commit) == KVG_OK, "%s", kvg_last_error());
    }
    return grid_decide(&scene->g, steps, outcomes);
}

/* ---- captures and runs */

static inline void scene_capture_layer(Scene *scene, int graph, int r, uint32_t il, SceneKernel *kernel)
{
    KvgBatch     *batch = scene->g.batch[r];
    KvDev        *dev = &scene->dev[r];
    size_t        bytes = SCENE_PLACES * SCENE_ROWS * SCENE_WIDTH * sizeof(float);
    KvgRows       rows = KVG_ROWS_INIT;
    KvgLatentRows latents = KVG_LATENT_ROWS_INIT;
    void         *a = NULL, *b = NULL;

    if (kernel->a == NULL) {
        ck_assert_int_eq(dev->ops->uninit(dev->self, bytes, &a), KVG_OK);
        ck_assert_int_eq(dev->ops->uninit(dev->self, bytes, &b), KVG_OK);
        *kernel = (SceneKernel){scene, r, graph, il, a, b};
    }
    rows.k = latents.latent = kernel->a;
    rows.v = latents.index = kernel->b;
    if (kvg_plane_view(batch, il) != NULL) {
        run_dev_call(dev->self, scene_fill_kv, kernel);
        ck_assert_msg(kvg_write_kv(batch, il, &rows, scene_stream) == KVG_OK, "%s", kvg_last_error());
    } else if (kvg_latent_view(batch, il) != NULL) {
        run_dev_call(dev->self, scene_fill_latent, kernel);
        ck_assert_msg(kvg_write_latent(batch, il, &latents, scene_stream) == KVG_OK, "%s", kvg_last_error());
    } else {
        run_dev_call(dev->self, scene_recur, kernel);
    }
}

static inline KvgAccept scene_accept_of(const Scene *scene, int r, KvgAccept accept)
{
    return kvg_grid_stage(scene->g.grid[r]) + 1 == scene->g.pp ? accept : KVG_ACCEPT_OTHERS;
}

/* Captures graph `graph` on every rank: at most rows[place] rows a replay. */
static inline void scene_capture(Scene *scene, int graph, const uint32_t *rows, KvgAccept accept)
{
    scene->accept[graph] = accept;
    memcpy(scene->captured[graph], rows, scene->places * sizeof *rows);
    for (int r = 0; r < scene->g.ranks; r++) {
        KvgCapture capture = {sizeof capture, rows, scene_accept_of(scene, r, accept)};
        uint32_t   lo, hi;
        ck_assert_msg(kvg_batch_capture_begin(scene->g.batch[r], &capture, scene_stream) == KVG_OK, "%s", kvg_last_error());
        scene->arrays[graph][r].size = sizeof scene->arrays[graph][r];
        ck_assert_int_eq(kvg_run_arrays(scene->g.batch[r], &scene->arrays[graph][r]), KVG_OK);
        kvg_placement_layers(scene->g.placement[r], &lo, &hi);
        for (uint32_t il = lo; il < hi; il++) scene_capture_layer(scene, graph, r, il, &scene->kernel[graph][r][il - lo]);
        scene->kernel[graph][r][SCENE_LAYERS] = (SceneKernel){.scene = scene, .r = r, .graph = graph};
        run_dev_call(scene->dev[r].self, scene_verdict, &scene->kernel[graph][r][SCENE_LAYERS]);
        ck_assert_msg(kvg_batch_capture_end(scene->g.batch[r], &scene->graph[graph][r]) == KVG_OK, "%s", kvg_last_error());
    }
}

static inline void scene_know_slots(Scene *scene)
{
    for (int i = 0; i < SCENE_SEQUENCES; i++) {
        KvgSequenceInfo info = {.size = sizeof info};
        if (!scene->open[i]) continue;
        ck_assert_int_eq(kvg_sequence_info(scene->s[0][i], &info), KVG_OK);
        scene->id_of_slot[info.slot] = info.id;
    }
}

static inline KvgStatus scene_begin_rank(Scene *scene, int r, int graph, uint32_t steps, const uint32_t *rows)
{
    scene_know_slots(scene);
    scene->on = graph;
    return kvg_run_begin(scene->graph[graph][r], steps, rows, scene_stream);
}

/* Begins on every rank: the same answer, and the same refusals, everywhere. */
static inline KvgStatus scene_begin(Scene *scene, int graph, uint32_t steps, const uint32_t *rows)
{
    KvgStatus first = KVG_OK;

    for (int r = 0; r < scene->g.ranks; r++) {
        KvgStatus status = scene_begin_rank(scene, r, graph, steps, rows);
        if (r == 0) first = status;
        ck_assert_msg(status == first, "%s", kvg_last_error());
        for (uint32_t i = 0; status == KVG_OK && i < scene->places; i++) {
            ck_assert_int_eq(kvg_run_refusal(scene->graph[graph][r], i), kvg_run_refusal(scene->graph[graph][0], i));
        }
    }
    return first;
}

static inline void scene_launch(Scene *scene, uint32_t replays)
{
    for (uint32_t n = 0; n < replays; n++) {
        for (int r = 0; r < scene->g.ranks; r++) {
            ck_assert_msg(kvg_graph_launch(scene->graph[scene->on][r], scene_stream) == KVG_OK, "%s", kvg_last_error());
        }
    }
}

static inline void scene_pump(Scene *scene)
{
    for (int moved = 1; moved;) {
        moved = 0;
        for (int r = 0; r < scene->g.ranks; r++) moved |= run_dev_pump(scene->dev[r].self);
    }
}

static void scene_end_rank(Scene *scene, int r)
{
    scene->ended[r] = 1;
    scene->result[r] = (KvgRunResult){.size = sizeof scene->result[r]};
    scene->status[r] = kvg_run_end(scene->graph[scene->on][r], scene_stream, &scene->result[r]);
    snprintf(scene->why[r], sizeof scene->why[r], "%s", scene->status[r] == KVG_OK ? "" : kvg_last_error());
}

/* Ends it on every rank; each may answer for itself (scene->status, scene->result, scene->why). */
static inline void scene_end_each(Scene *scene)
{
    memset(scene->ended, 0, sizeof scene->ended);
    scene->ending = 1;
    scene_ending = scene;
    for (int r = 0; r < scene->g.ranks; r++) {
        if (!scene->ended[r] && r != scene->absent) scene_end_rank(scene, r);
    }
    scene->ending = 0;
    scene_ending = NULL;
}

/* Ends it: the same on every rank. */
static inline KvgStatus scene_end(Scene *scene)
{
    scene_end_each(scene);
    for (int r = 1; r < scene->g.ranks; r++) {
        ck_assert_msg(scene->status[r] == scene->status[0], "rank %d: %s; rank 0: %s", r, scene->why[r], scene->why[0]);
        ck_assert_uint_eq(scene->result[r].published, scene->result[0].published);
        ck_assert_uint_eq(scene->result[r].first_step, scene->result[0].first_step);
        ck_assert_int_eq(scene->result[r].outcome.kind, scene->result[0].outcome.kind);
        ck_assert_mem_eq(scene->result[r].rows, scene->result[0].rows, scene->places * sizeof(uint32_t));
    }
    return scene->status[0];
}

/* A run of `steps` replays, all launched before anything runs. */
static inline KvgStatus scene_run(Scene *scene, int graph, uint32_t steps, const uint32_t *rows)
{
    ck_assert_msg(scene_begin(scene, graph, steps, rows) == KVG_OK, "%s", kvg_last_error());
    scene_launch(scene, steps);
    scene_pump(scene);
    return scene_end(scene);
}

/* ---- looking */

static inline uint64_t scene_length(Scene *scene, int r, int i)
{
    KvgSequenceInfo info = {.size = sizeof info};

    ck_assert_int_eq(kvg_sequence_info(scene->s[r][i], &info), KVG_OK);
    ck_assert_uint_eq(info.rows, info.rows_staged);
    ck_assert_uint_eq(info.replay, 0);
    return info.rows;
}

/* Lengths and digests of sequences in the batch's places are those of the other grid; the running digests of posted calls are equal on every rank. */
static inline void scene_compare(Scene *scene, Scene *reference)
{
    for (int r = 1; r < scene->g.ranks; r++) ck_assert_uint_eq(scene->g.grid[r]->running, scene->g.grid[0]->running);
    for (int i = 0; i < SCENE_SEQUENCES; i++) {
        char here[33], there[33];
        if (!scene->open[i]) continue;
        ck_assert(reference->open[i]);
        for (int r = 0; r < scene->g.ranks; r++) ck_assert_uint_eq(scene_length(scene, r, i), scene_length(reference, 0, i));
        grid_digest(&scene->g, scene->s, (uint32_t)i, here);
        grid_digest(&reference->g, reference->s, (uint32_t)i, there);
        ck_assert_str_eq(here, there);
    }
}

static inline KvgStatus scene_settle(Scene *scene, const int *ranks, int count)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};

    for (int i = 0; i < count; i++) {
        ck_assert_msg(kvg_grid_settle_start(scene->g.grid[ranks[i]], ranks, count, &setups[ranks[i]]) == KVG_OK, "%s", kvg_last_error());
    }
    return grid_finish(&scene->g, setups, NULL);
}

#endif

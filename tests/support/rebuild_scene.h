/* Rebuild scene: ranks of an in-process grid that are lost, survivors that rebuild it, newcomers that join over a hub of their own. For tests.
 *
 *   open_scene     a grid with three sequences: one whose window has slid, one of one chunk and a bit, one that is empty
 *   kill_rank      it is lost; bury alone: it is left out, and its objects stay as they are
 *   rebuild_empty, rebuild_joined    on all survivors at once
 *   check_goes_on  reports, handles and counts agree; what is kept has the digest of a run that lost nobody; what is not is computed again and has it, too */
#ifndef REBUILD_SCENE_H
#define REBUILD_SCENE_H

#include "tests/support/grid_life.h"
#include "tests/support/kinds_run.h"

#define SECOND_NS 1000000000ull

enum { SEQUENCES = 3 };
static const uint64_t ids[SEQUENCES] = {101, 102, 103};

/* ---- models */

/* Two KV heads: on four ranks each has a copy. Every second layer is windowed. */
static const char kv2[] =
    "{\"model_type\":\"llama\",\"hidden_size\":128,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,\"num_hidden_layers\":4,"
    "\"sliding_window\":40,\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"],"
    "\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":2048}";
/* Latent rows with pooled keys; no recurrent layer. */
static const char pooled[] =
    "{\"model_type\":\"glm5_next\",\"text_config\":{\"model_type\":\"glm5_next_text\",\"hidden_size\":64,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":4,\"head_dim\":0,\"kv_lora_rank\":64,\"qk_rope_head_dim\":0,\"qk_nope_head_dim\":32,\"v_head_dim\":32,\"index_head_dim\":16,"
    "\"index_kpool\":4,\"index_kpool_compress\":true,\"num_hidden_layers\":4,\"layer_types\":[\"deepseek_sparse_attention\",\"deepseek_sparse_attention\","
    "\"deepseek_sparse_attention\",\"deepseek_sparse_attention\"],\"indexer_types\":[\"full\",\"full\",\"full\",\"full\"],"
    "\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":2048}}";

typedef struct Model {
    const char *name, *text;
    uint32_t    copies_from; /* tp from which on every shard has a copy; 0: never */
} Model;
static const Model some_models[] = {
    {"two KV heads", kv2, 4}, {"latent, a key a token", deepseek, 2}, {"latent, pooled keys", pooled, 2}, {"KDA and latent", glm_next, 0}, {"Mamba and KV", jamba, 0},
};
enum { SOME_MODELS = sizeof some_models / sizeof *some_models };

/* ---- a scene: the ranks that live, close together, and what is left of the dead */

typedef struct Scene {
    TestGrid     g;    /* g.grid[i] is of the i-th rank that lives */
    KvgSequence *s[TEST_RANKS_MAX][8];
    TestGrid     dead[4];
    KvInproc    *hubs[32];
    int          deaths, hub_count, ranks; /* ranks: tp * pp */
    const Model *model;
    KvLayout     layout;
    int64_t      index_ring;
    uint32_t     sequences_max; /* 0: 5 */
    uint64_t     memory_bytes;  /* 0: 2 MiB */
    uint64_t     rows[SEQUENCES];
    KvgRebuildReport *report[TEST_RANKS_MAX];
    uint64_t     arm_nth; /* this allocation from the first turn on fails in rebuild_joined; 0: none */
    KvInprocFilter filter;       /* of what goes over the next rebuild's hub; NULL: nothing is changed */
    int          second, moment; /* rebuild_joined kills rank `second` after so many rounds; moment 0: nobody */
    int          lost_told[TEST_RANKS_MAX]; /* [rank] by on_lost, to any survivor */
    char         told_why[128];
} Scene;

static inline void on_lost(void *user, int rank, const char *why)
{
    Scene *scene = user;
    scene->lost_told[rank]++;
    snprintf(scene->told_why, sizeof scene->told_why, "%s", why);
}

static inline KvgPolicy scene_policy(const Scene *scene)
{
    KvgPolicy policy = life_policy(1);
    policy.dsa_index_ring = scene->index_ring;
    return policy;
}

static inline KvgPlaceOptions scene_options(const Scene *scene)
{
    KvgPlaceOptions options = life_options(scene->sequences_max > 0 ? scene->sequences_max : 5, scene->memory_bytes > 0 ? scene->memory_bytes : 2u << 20);
    options.layout = scene->layout;
    options.prefill_chunk_max = 160;
    options.spec_columns = 3;
    return options;
}

static inline int index_of(const Scene *scene, int rank)
{
    for (int i = 0; i < scene->g.ranks; i++) {
        if (kvg_grid_rank(scene->g.grid[i]) == rank) return i;
    }
    return -1;
}

static inline void write_one(Scene *scene, int i, KvgStep *step)
{
    Rank rank = {&scene->g, i, scene->s[i], 0};
    write_layers(&rank, step, SEQUENCES);
}

static inline KvgStep *begin_one(Scene *scene, int i, const uint32_t rows[SEQUENCES])
{
    KvgStep *step = NULL;
    for (uint32_t q = 0; q < SEQUENCES; q++) ck_assert_int_eq(kvg_batch_set(scene->g.batch[i], q, scene->s[i][q]), KVG_OK);
    ck_assert_msg(kvg_step_begin(scene->g.batch[i], rows, &step) == KVG_OK, "%s", kvg_last_error());
    for (uint32_t q = 0; q < SEQUENCES; q++) ck_assert_msg(kvg_step_refusal(step, q) == KVG_OK, "%s", kvg_last_error());
    write_one(scene, i, step);
    return step;
}

static inline void step_ok(Scene *scene, const uint32_t rows[SEQUENCES])
{
    KvgStep *steps[TEST_RANKS_MAX];
    for (int i = 0; i < scene->g.ranks; i++) {
        steps[i] = begin_one(scene, i, rows);
        grid_post(&scene->g, i, steps[i], NULL, KVG_OK);
    }
    ck_assert_msg(grid_decide(&scene->g, steps, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int q = 0; q < SEQUENCES; q++) scene->rows[q] += rows[q];
}

/* As many rows, in steps that a window takes. */
static inline void steps_ok(Scene *scene, const uint64_t rows[SEQUENCES])
{
    uint64_t left[SEQUENCES] = {rows[0], rows[1], rows[2]};
    while (left[0] + left[1] + left[2] > 0) {
        uint32_t now[SEQUENCES];
        for (int q = 0; q < SEQUENCES; q++) {
            now[q] = (uint32_t)(left[q] < 150 ? left[q] : 150);
            left[q] -= now[q];
        }
        step_ok(scene, now);
    }
}

static inline void place_batch(Scene *scene, int i)
{
    ck_assert_int_eq(kvg_batch_create(scene->g.placement[i], SEQUENCES, &scene->g.batch[i]), KVG_OK);
}

static inline void open_scene(Scene *scene, const Model *model, uint32_t tp, uint32_t pp, KvLayout layout)
{
    KvgPolicy policy;
    Scene     asked = *scene;
    memset(scene, 0, sizeof *scene);
    scene->index_ring = asked.index_ring;
    scene->sequences_max = asked.sequences_max;
    scene->memory_bytes = asked.memory_bytes;
    scene->model = model;
    scene->layout = layout;
    policy = scene_policy(scene);
    grid_connect(&scene->g, tp, pp, &policy, 0);
    scene->ranks = scene->g.ranks;
    scene->hubs[scene->hub_count++] = scene->g.hub;
    ck_assert_msg(kvg_model_config_parse_json(model->text, strlen(model->text), model->name, &scene->g.config) == KVG_OK, "%s", kvg_last_error());
    KvgPlaceOptions options = scene_options(scene);
    ck_assert_msg(grid_place(&scene->g, &scene->g.config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < scene->g.ranks; r++) {
        place_batch(scene, r);
        for (uint32_t q = 0; q < SEQUENCES; q++) {
            ck_assert_msg(kvg_sequence_open(scene->g.placement[r], ids[q], q == 1 ? 200 : 0, &scene->s[r][q]) == KVG_OK, "%s", kvg_last_error());
        }
    }
    steps_ok(scene, (uint64_t[]){model->text == kv2 ? 700 : 100, 70, 0});
    step_ok(scene, (uint32_t[]){60, 1, 0});
    step_ok(scene, (uint32_t[]){2, 2, 0});
}

static inline void destroy_one(TestGrid *g, int i)
{
    kvg_batch_destroy(g->batch[i]);
    kvg_placement_destroy(g->placement[i]);
    kvg_grid_destroy(g->grid[i]);
}

static inline void free_reports(Scene *scene)
{
    for (int i = 0; i < TEST_RANKS_MAX; i++) {
        kvg_rebuild_report_free(scene->report[i]);
        scene->report[i] = NULL;
    }
}

static inline void close_scene(Scene *scene)
{
    free_reports(scene);
    for (int i = 0; i < scene->g.ranks; i++) destroy_one(&scene->g, i);
    for (int d = 0; d < scene->deaths; d++) destroy_one(&scene->dead[d], 0);
    for (int h = 0; h < scene->hub_count; h++) kvg_inproc_destroy(scene->hubs[h]);
    kvg_model_config_free(&scene->g.config);
    if (scene->g.device.ops != NULL) test_device_close(&scene->g.device);
    ck_assert_uint_eq(kvg_live_allocations(), scene->g.live_before);
}

/* The rank lives no more; the others close up. */
static inline void bury(Scene *scene, int rank)
{
    int i = index_of(scene, rank);
    scene->dead[scene->deaths].grid[0] = scene->g.grid[i];
    scene->dead[scene->deaths].placement[0] = scene->g.placement[i];
    scene->dead[scene->deaths++].batch[0] = scene->g.batch[i];
    for (int later = i + 1; later < scene->g.ranks; later++) {
        scene->g.grid[later - 1] = scene->g.grid[later];
        scene->g.placement[later - 1] = scene->g.placement[later];
        scene->g.batch[later - 1] = scene->g.batch[later];
        memcpy(scene->s[later - 1], scene->s[later], sizeof scene->s[0]);
    }
    scene->g.ranks--;
}

static inline void kill_rank(Scene *scene, int rank)
{
    kvg_inproc_kill(scene->g.hub, rank);
    bury(scene, rank);
}

/* ---- rebuilding */

static inline int list_survivors(const Scene *scene, int survivors[TEST_RANKS_MAX])
{
    for (int i = 0; i < scene->g.ranks; i++) survivors[i] = kvg_grid_rank(scene->g.grid[i]);
    return scene->g.ranks;
}

/* Nobody joins. */
static inline KvgStatus rebuild_empty(Scene *scene, KvgStatus *each)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    KvgStatus own[TEST_RANKS_MAX];
    int       survivors[TEST_RANKS_MAX], count = list_survivors(scene, survivors);
    free_reports(scene);
    for (int i = 0; i < count; i++) {
        ck_assert_msg(kvg_grid_rebuild_start(scene->g.grid[i], survivors, count, NULL, &scene->report[i], &setups[i]) == KVG_OK, "%s", kvg_last_error());
    }
    KvgStatus status = grid_finish(&scene->g, setups, each != NULL ? each : own);
    for (int i = 1; each == NULL && i < count; i++) ck_assert_int_eq(own[i], status);
    return status;
}

typedef struct Joining {
    KvgJoin   join;
    KvgGrid  *grid;
    int       rank;
} Joining;

/* New processes take all places that are not taken. What joins is at the end of the scene's arrays until all have ended. */
static inline KvgStatus rebuild_joined(Scene *scene, const KvgPlaceOptions *asked, KvgStatus each[TEST_RANKS_MAX])
{
    KvgSetup         *setups[TEST_RANKS_MAX] = {0};
    KvgStatus         own[TEST_RANKS_MAX];
    Joining           joining[TEST_RANKS_MAX] = {0};
    KvgPlaceOptions   options = asked != NULL ? *asked : scene_options(scene);
    KvgPolicy         policy = scene_policy(scene);
    KvInproc         *hub = NULL;
    int               survivors[TEST_RANKS_MAX], count = list_survivors(scene, survivors), newcomers = 0, taken[TEST_RANKS_MAX] = {0};
    KvComm            comm[TEST_RANKS_MAX];
    KvLiveness        liveness[TEST_RANKS_MAX];
    free_reports(scene);
    each = each != NULL ? each : own;
    ck_assert_int_eq(kvg_inproc_create(scene->ranks, &hub), KVG_OK);
    kvg_inproc_advance_ns(hub, kvg_inproc_now_ns(scene->g.hub));
    if (scene->g.device.ops != NULL) options.device = &scene->g.device;
    kvg_inproc_set_filter(hub, scene->filter, scene);
    for (int r = 0; r < scene->ranks; r++) ck_assert_int_eq(kvg_inproc_attach(hub, r, &comm[r], &liveness[r]), KVG_OK);
    for (int i = 0; i < count; i++) {
        KvgRebuildOptions with = KVG_REBUILD_OPTIONS_INIT;
        with.comm = &comm[survivors[i]];
        with.liveness = &liveness[survivors[i]];
        taken[survivors[i]] = 1;
        ck_assert_msg(kvg_grid_rebuild_start(scene->g.grid[i], survivors, count, &with, &scene->report[i], &setups[i]) == KVG_OK, "%s", kvg_last_error());
    }
    for (int r = 0; r < scene->ranks; r++) {
        KvgGridOptions grid = KVG_GRID_OPTIONS_INIT;
        Joining       *one = &joining[newcomers];
        if (taken[r]) continue;
        grid.tp = scene->g.tp;
        grid.pp = scene->g.pp;
        grid.policy = &policy;
        grid.comm = &comm[r];
        grid.liveness = &liveness[r];
        grid.on_lost = on_lost;
        grid.user = scene;
        one->rank = r;
        one->join = (KvgJoin){&scene->g.config, &options, NULL};
        ck_assert_msg(kvg_grid_join_start(r, scene->ranks, &grid, &one->join, 1, &one->grid, &scene->report[count + newcomers], &setups[count + newcomers]) == KVG_OK,
                      "%s", kvg_last_error());
        newcomers++;
    }
    scene->hubs[scene->hub_count++] = hub;
    scene->g.ranks = count + newcomers;
    /* time passes on both hubs: survivors settle on the old one */
    int left = scene->g.ranks, done[TEST_RANKS_MAX] = {0};
    if (scene->arm_nth > 0) kvg_fault_arm(scene->arm_nth);
    for (int rounds = 0; left > 0; rounds++) {
        ck_assert_msg(rounds < 200000, "a rebuild does not end");
        for (int i = 0; scene->moment > 0 && rounds == scene->moment && i < scene->g.ranks; i++) {
            int rank = i < count ? survivors[i] : joining[i - count].rank;
            if (rank != scene->second || done[i]) continue;
            kvg_inproc_kill(hub, rank);
            if (i < count) kvg_inproc_kill(scene->g.hub, rank);
            each[i] = KVG_EPEER;
            left -= done[i] = 1;
        }
        for (int i = 0; i < scene->g.ranks; i++) {
            if (done[i]) continue;
            each[i] = kvg_setup_test(setups[i], &done[i]);
            left -= done[i];
        }
        kvg_inproc_advance_ns(hub, 100000);
        kvg_inproc_advance_ns(scene->g.hub, 100000);
    }
    if (scene->arm_nth > 0) kvg_fault_disarm();
    for (int i = 0; i < scene->g.ranks; i++) kvg_setup_free(setups[i]);
    scene->g.hub = hub;
    scene->g.ranks = count;
    for (int n = 0; n < newcomers; n++) {
        if (each[count + n] != KVG_OK) continue;
        int i = scene->g.ranks++;
        scene->g.grid[i] = joining[n].grid;
        scene->g.placement[i] = joining[n].join.placement;
        memset(scene->s[i], 0, sizeof scene->s[i]);
        place_batch(scene, i);
    }
    return each[0];
}

/* ---- what must hold afterwards */

static inline void run_straight(const Scene *scene, const uint64_t rows[SEQUENCES], char hex[SEQUENCES][33])
{
    static Scene alone;
    const Scene  like = *scene;
    KvgPolicy    policy = scene_policy(&like);
    memset(&alone, 0, sizeof alone);
    alone.layout = KVG_LAYOUT_POOL;
    alone.index_ring = like.index_ring;
    grid_connect(&alone.g, 1, 1, &policy, 0);
    alone.hubs[alone.hub_count++] = alone.g.hub;
    ck_assert_int_eq(kvg_model_config_parse_json(like.model->text, strlen(like.model->text), "straight", &alone.g.config), KVG_OK);
    KvgPlaceOptions options = scene_options(&alone);
    ck_assert_int_eq(grid_place(&alone.g, &alone.g.config, &options, NULL), KVG_OK);
    place_batch(&alone, 0);
    for (uint32_t q = 0; q < SEQUENCES; q++) ck_assert_int_eq(kvg_sequence_open(alone.g.placement[0], ids[q], 0, &alone.s[0][q]), KVG_OK);
    steps_ok(&alone, rows);
    for (uint32_t q = 0; q < SEQUENCES; q++) grid_digest(&alone.g, alone.s, q, hex[q]);
    close_scene(&alone);
}

/* The same lengths are asked for again and again. */
static inline void straight(const Scene *scene, const uint64_t rows[SEQUENCES], char hex[SEQUENCES][33])
{
    static struct { const Model *model; uint64_t rows[SEQUENCES]; char hex[SEQUENCES][33]; } known[32];
    static size_t count;
    for (size_t i = 0; i < count; i++) {
        if (known[i].model == scene->model && memcmp(known[i].rows, rows, sizeof known[i].rows) == 0) {
            memcpy(hex, known[i].hex, sizeof known[i].hex);
            return;
        }
    }
    run_straight(scene, rows, hex);
    if (count == sizeof known / sizeof *known) return;
    known[count].model = scene->model;
    memcpy(known[count].rows, rows, sizeof known[count].rows);
    memcpy(known[count++].hex, hex, sizeof known[0].hex);
}

static inline void reports_agree(const Scene *scene)
{
    for (int i = 0; i < scene->g.ranks; i++) {
        ck_assert_ptr_nonnull(scene->report[i]);
        ck_assert_uint_eq(scene->report[i]->count, scene->report[0]->count);
        ck_assert_uint_eq(scene->report[i]->kept, scene->report[0]->kept);
        ck_assert_uint_eq(scene->report[i]->epoch, kvg_grid_epoch(scene->g.grid[i]));
        for (uint32_t q = 0; q < scene->report[0]->count; q++) {
            const KvgRebuiltSequence *a = &scene->report[i]->sequences[q], *b = &scene->report[0]->sequences[q];
            ck_assert_uint_eq(a->id, b->id);
            ck_assert_uint_eq(a->rows, b->rows);
            ck_assert_uint_eq(a->rows_held, b->rows_held);
            ck_assert_int_eq(a->loss, b->loss);
            ck_assert_uint_eq(a->lost_layer, b->lost_layer);
            ck_assert_uint_eq(a->lost_head, b->lost_head);
            ck_assert_int_eq(a->lost_rank, b->lost_rank);
        }
    }
}

/* The handles of a newcomer come from its report; survivors' are those they had. */
static inline void take_handles(Scene *scene)
{
    for (int i = 0; i < scene->g.ranks; i++) {
        ck_assert_uint_eq(scene->report[i]->count, SEQUENCES);
        for (uint32_t q = 0; q < SEQUENCES; q++) {
            const KvgRebuiltSequence *one = &scene->report[i]->sequences[q];
            ck_assert_uint_eq(one->id, ids[q]);
            ck_assert_ptr_nonnull(one->sequence);
            ck_assert(scene->s[i][q] == NULL || scene->s[i][q] == one->sequence);
            scene->s[i][q] = one->sequence;
            ck_assert_uint_eq(life_info(one->sequence).id, ids[q]);
            ck_assert_uint_eq(life_info(one->sequence).rows, one->rows_held);
        }
    }
}

static inline void check_goes_on(Scene *scene, int kept)
{
    char         expected[SEQUENCES][33], hex[33];
    uint64_t     again[SEQUENCES];
    uint64_t     before[SEQUENCES];
    KvgSequence *fresh[TEST_RANKS_MAX][8];
    reports_agree(scene);
    take_handles(scene);
    life_agree_among(&scene->g, NULL, scene->g.ranks);
    for (uint32_t q = 0; q < SEQUENCES; q++) {
        const KvgRebuiltSequence *one = &scene->report[0]->sequences[q];
        before[q] = scene->rows[q];
        ck_assert_uint_eq(one->rows, scene->rows[q]);
        ck_assert_uint_eq(one->rows_held, kept ? scene->rows[q] : 0);
        ck_assert_int_eq(one->loss, kept || scene->rows[q] == 0 ? KVG_LOSS_NONE : KVG_LOSS_SHARD);
        again[q] = scene->rows[q] - one->rows_held; /* computed again, by who has the tokens */
    }
    if (again[0] > 0) {
        steps_ok(scene, again);
        for (uint32_t q = 0; q < SEQUENCES; q++) scene->rows[q] = before[q];
    }
    straight(scene, scene->rows, expected);
    for (uint32_t q = 0; q < SEQUENCES; q++) {
        grid_digest(&scene->g, scene->s, q, hex);
        ck_assert_msg(strcmp(hex, expected[q]) == 0, "%s: sequence %u is not what it was", scene->model->name, q);
    }
    for (int n = 0; n < 3; n++) step_ok(scene, (uint32_t[]){30, 1 + (uint32_t)n, n == 0 ? 90 : 2});
    straight(scene, scene->rows, expected);
    for (uint32_t q = 0; q < SEQUENCES; q++) {
        grid_digest(&scene->g, scene->s, q, hex);
        ck_assert_msg(strcmp(hex, expected[q]) == 0, "%s: sequence %u went on differently", scene->model->name, q);
    }
    for (int i = 0; i < scene->g.ranks; i++) ck_assert_int_eq(kvg_sequence_open(scene->g.placement[i], 900, 64, &fresh[i][0]), KVG_OK);
    life_agree_among(&scene->g, NULL, scene->g.ranks);
    for (int i = 0; i < scene->g.ranks; i++) {
        ck_assert_int_eq(kvg_sequence_close(fresh[i][0], NULL), KVG_OK);
        for (uint32_t q = 0; q < SEQUENCES; q++) ck_assert_int_eq(kvg_sequence_close(scene->s[i][q], NULL), KVG_OK);
        ck_assert_uint_eq(life_stats(scene->g.placement[i]).content_bytes, 0);
    }
    life_agree_among(&scene->g, NULL, scene->g.ranks);
}

#endif

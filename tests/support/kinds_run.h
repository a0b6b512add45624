/* Kinds run: small hybrid and latent models over in-process grids, every kind of layer written with values that are functions of (sequence, layer,
 * head in the model, row, element) alone, so that digests of different grids and different speculation can be compared. For tests. */
#ifndef KINDS_RUN_H
#define KINDS_RUN_H

#include "tests/support/inproc_grid.h"

enum { VALUES_MAX = 1 << 16 };

static const char qwen3_next[] =
    "{\"model_type\":\"qwen3_next\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,\"num_hidden_layers\":4,"
    "\"full_attention_interval\":4,\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":8,\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"
    "\"linear_value_head_dim\":8,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":4096}";
static const char glm_next[] =
    "{\"model_type\":\"glm5_next\",\"text_config\":{\"model_type\":\"glm5_next_text\",\"hidden_size\":64,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":4,\"head_dim\":0,\"kv_lora_rank\":64,\"qk_rope_head_dim\":0,\"qk_nope_head_dim\":32,\"v_head_dim\":32,\"index_head_dim\":16,"
    "\"index_kpool\":4,\"index_kpool_compress\":true,\"num_hidden_layers\":4,\"layer_types\":[\"linear_attention\",\"deepseek_sparse_attention\","
    "\"linear_attention\",\"deepseek_sparse_attention\"],\"indexer_types\":[\"full\",\"full\",\"full\",\"full\"],\"linear_attn_config\":{\"full_attn_layers\":[1,3],\"head_dim\":8,"
    "\"kda_layers\":[0,2],\"num_heads\":4,\"short_conv_kernel_size\":4},\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":4096}}";
static const char deepseek[] =
    "{\"model_type\":\"deepseek_v32\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"kv_lora_rank\":64,\"qk_rope_head_dim\":32,"
    "\"qk_nope_head_dim\":32,\"v_head_dim\":32,\"index_head_dim\":32,\"index_n_heads\":4,\"num_hidden_layers\":4,\"vocab_size\":100,\"intermediate_size\":64,"
    "\"num_nextn_predict_layers\":1,\"max_position_embeddings\":4096}";
static const char jamba[] =
    "{\"model_type\":\"jamba\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_hidden_layers\":4,\"attn_layer_offset\":1,"
    "\"attn_layer_period\":2,\"mamba_d_conv\":4,\"mamba_d_state\":8,\"mamba_expand\":2,\"head_dim\":32,\"vocab_size\":100,\"intermediate_size\":64,"
    "\"max_position_embeddings\":4096}";
static const char *const models[] = { qwen3_next, glm_next, deepseek, jamba };
enum { MODELS = sizeof models / sizeof *models };

static const struct { uint32_t tp, pp; } grids[] = { { 1, 1 }, { 2, 1 }, { 1, 2 }, { 2, 2 }, { 4, 1 } };
enum { GRIDS = sizeof grids / sizeof *grids };

/* ---- what each kind of layer is given: functions of (sequence, layer, head in the model, row, element) alone */

typedef struct Rank {
    TestGrid          *g;
    int                r;
    KvgSequence *const *sequences;
    uint64_t           salt; /* of rejected drafts */
} Rank;

static inline uint64_t id_of(const Rank *rank, uint32_t slot)
{
    KvgSequenceInfo info = { .size = sizeof info };
    ck_assert_int_eq(kvg_sequence_info(rank->sequences[slot], &info), KVG_OK);
    return info.id;
}

/* Drafts past the accepted row come from another stream: row `row` is true below `salt_from`. */
static uint64_t salt_from;

static inline uint64_t key_of(const Rank *rank, uint64_t id, uint64_t row)
{
    return rank->salt != 0 && row >= salt_from ? id ^ rank->salt : id;
}

static float k_rows[VALUES_MAX], v_rows[VALUES_MAX];

static inline void write_kv(const Rank *rank, KvgStep *step, KvgBatch *batch, const KvPlaneView *view, uint32_t il, uint32_t slots)
{
    KvgRows in = KVG_ROWS_INIT;
    size_t  at = 0;
    for (uint32_t slot = 0; slot < slots; slot++) {
        uint64_t id = kvg_step_rows(step)[slot] > 0 ? id_of(rank, slot) : 0; /* once: assertions are dear */
        for (uint32_t i = 0; i < kvg_step_rows(step)[slot]; i++) {
            uint64_t row = kvg_step_first_rows(step)[slot] + i, key = key_of(rank, id, row);
            for (uint32_t h = 0; h < view->heads; h++) {
                for (uint32_t e = 0; e < 32; e++, at++) {
                    k_rows[at] = test_value(key, il, 0, view->head_first + h, row, e);
                    v_rows[at] = test_value(key, il, 1, view->head_first + h, row, e);
                }
            }
        }
    }
    ck_assert_uint_le(at, VALUES_MAX);
    in.k = grid_lend(rank->g, 0, k_rows, (at + 1) * sizeof *k_rows);
    in.v = grid_lend(rank->g, 1, v_rows, (at + 1) * sizeof *v_rows);
    ck_assert_msg(kvg_write_kv(batch, il, &in, NULL) == KVG_OK, "%s", kvg_last_error());
}

static inline void pool_key(void *user, uint32_t layer, uint64_t pool, const float *rows, float *key)
{
    (void)user;
    for (uint32_t e = 0; e < 16; e++) {
        key[e] = (float)(layer + 1) * (rows[e] + rows[32 + 16 + e] * 0.5f) + rows[3 * 32 + e] + (float)(pool % 7);
    }
}

static inline void write_latent(const Rank *rank, KvgStep *step, KvgBatch *batch, const KvLatentView *view, uint32_t il, uint32_t slots)
{
    KvgLatentRows in = KVG_LATENT_ROWS_INIT;
    size_t        at = 0, at_index = 0;
    for (uint32_t slot = 0; slot < slots; slot++) {
        uint64_t own = kvg_step_rows(step)[slot] > 0 ? id_of(rank, slot) : 0;
        for (uint32_t i = 0; i < kvg_step_rows(step)[slot]; i++) {
            uint64_t row = kvg_step_first_rows(step)[slot] + i, id = key_of(rank, own, row);
            for (uint32_t e = 0; e < view->width; e++) k_rows[at++] = test_value(id, il, 2, 0, row, e);
            for (uint32_t e = 0; e < view->index_width; e++) v_rows[at_index++] = test_value(id, il, 3, 0, row, e);
        }
    }
    ck_assert_uint_le(at, VALUES_MAX);
    in.latent = grid_lend(rank->g, 0, k_rows, (at + 1) * sizeof *k_rows);
    in.index = grid_lend(rank->g, 1, v_rows, (at_index + 1) * sizeof *v_rows);
    in.key = pool_key;
    ck_assert_msg(kvg_write_latent(batch, il, &in, NULL) == KVG_OK, "%s", kvg_last_error());
}

static inline void fill(void *user, uint32_t il, uint32_t slot, uint64_t row, float *x, float *u)
{
    const Rank            *rank = user;
    const KvRecurrentView *view = kvg_recurrent_view(rank->g->batch[rank->r], il);
    uint64_t               id = key_of(rank, id_of(rank, slot), row);
    for (uint32_t p = 0; p < view->part_count; p++) {
        const KvRecurrentPartView *part = &view->parts[p];
        for (uint32_t h = 0; h < part->heads; h++) {
            for (uint32_t e = 0; e < part->width; e++) {
                float value = test_value(id, il, 5 + part->is_state, part->head_index + h, row, e);
                if (part->is_state) *u++ = value;
                else *x++ = value;
            }
        }
    }
}

static inline void update_recurrent(const Rank *rank, KvgBatch *batch, uint32_t il)
{
    KvgRecurrentRows rows = KVG_RECURRENT_ROWS_INIT;
    rows.fill = fill;
    rows.user = (void *)(uintptr_t)rank;
    rows.decay = 0.75f;
    rows.scratch = k_rows;
    ck_assert_msg(kvg_recurrent_update(batch, il, &rows, NULL) == KVG_OK, "%s", kvg_last_error());
}

static inline void write_layers(const Rank *rank, KvgStep *step, uint32_t slots)
{
    KvgBatch *batch = rank->g->batch[rank->r];
    uint32_t  lo, hi;
    kvg_placement_layers(rank->g->placement[rank->r], &lo, &hi);
    for (uint32_t il = lo; il < hi; il++) {
        const KvPlaneView *kv = kvg_plane_view(batch, il);
        if (kv != NULL && kv->owns) write_kv(rank, step, batch, kv, il, slots);
        else if (kvg_latent_view(batch, il) != NULL) write_latent(rank, step, batch, kvg_latent_view(batch, il), il, slots);
        else if (kvg_recurrent_view(batch, il) != NULL) update_recurrent(rank, batch, il);
    }
}

/* ---- a run */

typedef struct Run {
    TestGrid     g;
    KvgSequence *s[TEST_RANKS_MAX][8];
    uint64_t     rows, replay;
} Run;

static inline void open_run(Run *run, const char *text, uint32_t tp, uint32_t pp, KvLayout layout, uint32_t columns, int64_t index_ring, int mtp)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    KvgPolicy       policy;
    memset(run, 0, sizeof *run);
    kvg_policy_default(&policy);
    policy.dsa_index_ring = index_ring;
    grid_connect(&run->g, tp, pp, &policy, 0);
    ck_assert_msg(kvg_model_config_parse_json(text, strlen(text), "small", &run->g.config) == KVG_OK, "%s", kvg_last_error());
    options.max_sequences = 4;
    options.memory_bytes = 64u << 20;
    options.layout = layout;
    options.spec_columns = columns;
    options.with_mtp = mtp;
    ck_assert_msg(grid_place(&run->g, &run->g.config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < run->g.ranks; r++) {
        ck_assert_int_eq(kvg_batch_create(run->g.placement[r], 2, &run->g.batch[r]), KVG_OK);
        ck_assert_int_eq(kvg_sequence_open(run->g.placement[r], 100, 0, &run->s[r][0]), KVG_OK);
        ck_assert_int_eq(kvg_batch_set(run->g.batch[r], 0, run->s[r][0]), KVG_OK);
    }
}

/* One step in passes of `passes` rows each, of which `accept` are kept; the rest hold rejected values. refuser: a rank that says no, or -1. */
static inline KvgStatus run_step(Run *run, const uint32_t *passes, uint32_t count, uint32_t accept, int refuser)
{
    KvgStep   *steps[TEST_RANKS_MAX];
    KvgOutcome outcomes[TEST_RANKS_MAX] = {0};
    salt_from = run->rows + accept;
    for (int r = 0; r < run->g.ranks; r++) {
        Rank      rank = { &run->g, r, run->s[r], 0x5a5a };
        KvgCommit commit = KVG_COMMIT_INIT;
        uint32_t  rows[2] = { passes[0] + (uint32_t)run->replay, 0 }, accepted[2] = { accept, 0 };
        ck_assert_msg(kvg_step_begin(run->g.batch[r], rows, &steps[r]) == KVG_OK, "%s", kvg_last_error());
        ck_assert_msg(kvg_step_refusal(steps[r], 0) == KVG_OK, "%s", kvg_last_error());
        ck_assert_uint_eq(kvg_step_first_rows(steps[r])[0], run->rows - run->replay);
        write_layers(&rank, steps[r], 2);
        for (uint32_t p = 1; p < count; p++) {
            ck_assert_int_eq(kvg_step_extend(steps[r], (uint32_t[]){ passes[p], 0 }), KVG_OK);
            write_layers(&rank, steps[r], 2);
        }
        if (kvg_grid_stage(run->g.grid[r]) + 1 == run->g.pp) commit.accepted = accepted;
        commit.refuse = r == refuser ? KVG_EDEVICE : KVG_OK;
        ck_assert_msg(kvg_step_post(steps[r], &commit) == KVG_OK, "%s", kvg_last_error());
    }
    KvgStatus status = grid_decide(&run->g, steps, outcomes);
    for (int r = 0; r < run->g.ranks; r++) {
        ck_assert_uint_eq(outcomes[r].replay[0], outcomes[0].replay[0]);
        ck_assert_uint_eq(outcomes[r].accepted[0], status == KVG_OK ? accept : 0);
    }
    run->rows += status == KVG_OK ? accept : 0;
    run->replay = outcomes[0].replay[0];
    return status;
}

/* Replays what is owed with no new row, then digests. */
static inline void run_digest(Run *run, char hex[33])
{
    if (run->replay > 0) ck_assert_int_eq(run_step(run, (uint32_t[]){ 0 }, 1, 0, -1), KVG_OK);
    ck_assert_uint_eq(run->replay, 0);
    grid_digest(&run->g, run->s, 0, hex);
}

/* What a run that never speculated has at `rows` rows, on one rank. */
static inline void straight_digest(const char *text, uint64_t rows, int mtp, char hex[33])
{
    Run run;
    open_run(&run, text, 1, 1, KVG_LAYOUT_POOL, 2, -1, mtp);
    while (run.rows < rows) ck_assert_int_eq(run_step(&run, (uint32_t[]){ 1 }, 1, 1, -1), KVG_OK);
    run_digest(&run, hex);
    grid_close(&run.g);
}

#endif

/* A small engine, written as an engine author would: public headers alone, C11 and C++17 alike, linked with the shared library.
 *
 * The model is a toy: every layer projects its input by a fixed hash, attends over the rows it finds through the plane view, and adds up.
 * Requests are prefilled in chunks and decoded in rounds of a pending token and one guess; the vote keeps one row or two. What comes out
 * must be, token by token, what the same model says without a cache: the cache holds bf16 and so does the reference. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/kvgrid.h>

#define LAYERS   4
#define HEADS    2
#define DIM      32
#define WIDTH    (HEADS * DIM)
#define REQUESTS 3
#define PROMPT   150
#define TOKENS   200
#define CHUNK    60
#define VOCAB    97
#define WINDOW   40

#define TRY(call)                                                                                        \
    do {                                                                                                 \
        if ((call) != KVG_OK) {                                                                          \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, kvg_last_error());                        \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

/* ---- the toy model */

static float weight(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t x = a * 0x9e3779b9u ^ b * 0x85ebca6bu ^ c * 0xc2b2ae35u;
    x = (x ^ (x >> 15)) * 0x2c1b3c6du;
    x ^= x >> 12;
    return (float)(x & 0xffffu) / 32768.0f - 1.0f;
}

/* As a bf16 cache keeps it: nearest, ties to even. */
static float bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float from_bf16(const uint8_t *bytes)
{
    uint32_t bits = (uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 24;
    float    value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void embed(int token, float hidden[WIDTH])
{
    for (uint32_t i = 0; i < WIDTH; i++) hidden[i] = weight((uint32_t)token, i, 1);
}

static void project(uint32_t il, const float hidden[WIDTH], float k[WIDTH], float v[WIDTH])
{
    for (uint32_t i = 0; i < WIDTH; i++) {
        k[i] = hidden[i] * weight(il, i, 2);
        v[i] = hidden[(i + 7) % WIDTH] * weight(il, i, 3);
    }
}

/* One query row over rows [first, position]; row_of gives a row's K (0) or V (1) of one head as floats. */
typedef void (*RowOf)(const void *user, int plane, uint32_t head, uint64_t row, float out[DIM]);

static void attend(RowOf row_of, const void *user, uint64_t first, uint64_t position, float hidden[WIDTH])
{
    for (uint32_t head = 0; head < HEADS; head++) {
        float sum[DIM] = {0}, row[DIM], total = 0;
        for (uint64_t r = first; r <= position; r++) {
            float score = 0;
            row_of(user, 0, head, r, row);
            for (int e = 0; e < DIM; e++) score += row[e] * hidden[head * DIM + (uint32_t)e];
            score = 1.0f / (1.0f + fabsf(score));
            row_of(user, 1, head, r, row);
            for (int e = 0; e < DIM; e++) sum[e] += score * row[e];
            total += score;
        }
        for (int e = 0; e < DIM; e++) hidden[head * DIM + (uint32_t)e] += sum[e] / total;
    }
}

static int sample(const float hidden[WIDTH])
{
    int   best = 0;
    float most = -1e30f;
    for (int token = 0; token < VOCAB; token++) {
        float score = 0;
        for (uint32_t i = 0; i < WIDTH; i++) score += hidden[i] * weight((uint32_t)token, i, 4);
        if (score > most) most = score, best = token;
    }
    return best;
}

static uint64_t first_seen(uint32_t il, uint64_t position)
{
    return il % 2 == 0 && position + 1 > WINDOW ? position + 1 - WINDOW : 0; /* even layers are windowed */
}

/* ---- without a cache of ours: plain arrays */

typedef struct Plain {
    float k[LAYERS][TOKENS][WIDTH], v[LAYERS][TOKENS][WIDTH];
    uint32_t il;
} Plain;

static void plain_row(const void *user, int plane, uint32_t head, uint64_t row, float out[DIM])
{
    const Plain *plain = (const Plain *)user;
    memcpy(out, &(plane == 0 ? plain->k : plain->v)[plain->il][row][head * DIM], DIM * sizeof *out);
}

static void run_plain(int tokens[TOKENS], int prompt)
{
    Plain *plain = (Plain *)calloc(1, sizeof *plain);
    if (plain == NULL) exit(1);
    for (int position = 0; position + 1 < TOKENS; position++) {
        float hidden[WIDTH];
        embed(tokens[position], hidden);
        for (plain->il = 0; plain->il < LAYERS; plain->il++) {
            float *k = plain->k[plain->il][position], *v = plain->v[plain->il][position];
            project(plain->il, hidden, k, v);
            for (int i = 0; i < WIDTH; i++) k[i] = bf16(k[i]), v[i] = bf16(v[i]);
            attend(plain_row, plain, first_seen(plain->il, (uint64_t)position), (uint64_t)position, hidden);
        }
        if (position + 1 >= prompt) tokens[position + 1] = sample(hidden);
    }
    free(plain);
}

/* ---- with kvgrid */

typedef struct Seen { /* one layer of one sequence, as the view shows it */
    const KvPlaneView *view;
    uint32_t           slot;
} Seen;

static void seen_row(const void *user, int plane, uint32_t head, uint64_t row, float out[DIM])
{
    const Seen    *seen = (const Seen *)user;
    const KvPlane *kv = plane == 0 ? &seen->view->k : &seen->view->v;
    const uint8_t *bytes = kvg_plane_row(seen->view, kv, seen->slot, head, row);
    for (int e = 0; e < DIM; e++) out[e] = from_bf16(bytes + 2 * e);
}

typedef struct Engine {
    KvgGrid      *grid;
    KvgPlacement *placement;
    KvgBatch     *batch;
    KvgSequence  *sequences[REQUESTS];
    int           tokens[REQUESTS][TOKENS];
    uint32_t      have[REQUESTS]; /* tokens known; the last of them is not in the cache yet */
    uint32_t      done[REQUESTS]; /* rows committed */
    float         hidden[REQUESTS][CHUNK][WIDTH];
} Engine;

static void load(Engine *engine, KvLayout layout)
{
    static const char json[] =
        "{\"model_type\":\"toy\",\"hidden_size\":64,\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":32,\"num_hidden_layers\":4,"
        "\"vocab_size\":97,\"intermediate_size\":64,\"max_position_embeddings\":512,\"sliding_window\":40,\"layer_types\":"
        "[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"]}";
    KvgBootstrap    alone = KVG_BOOTSTRAP_INIT;
    KvgGridOptions  grid = KVG_GRID_OPTIONS_INIT;
    KvgPlaceOptions place = KVG_PLACE_OPTIONS_INIT;
    KvgPolicy       policy;
    ModelConfig     config;
    kvg_policy_default(&policy);
    policy.swa_ring = 1;
    grid.policy = &policy;
    TRY(kvg_grid_create(&alone, &grid, &engine->grid));
    TRY(kvg_model_config_parse_json(json, strlen(json), "toy", &config));
    place.format_k = KVG_BF16;
    place.format_v = KVG_BF16;
    place.layout = layout;
    place.max_sequences = REQUESTS;
    place.memory_bytes = 2u << 20;
    place.prefill_chunk_max = CHUNK;
    TRY(kvg_place(engine->grid, &config, &place, &engine->placement));
    kvg_model_config_free(&config);
    TRY(kvg_batch_create(engine->placement, REQUESTS, &engine->batch));
    for (uint32_t slot = 0; slot < REQUESTS; slot++) {
        TRY(kvg_sequence_open(engine->placement, 1000 + slot, PROMPT, &engine->sequences[slot]));
        TRY(kvg_batch_set(engine->batch, slot, engine->sequences[slot]));
    }
}

/* All layers over the current pass: tokens [done, done + rows) of each request. */
static void forward(Engine *engine, const uint32_t rows[REQUESTS])
{
    static float k[REQUESTS * CHUNK * WIDTH], v[REQUESTS * CHUNK * WIDTH];
    uint32_t     lo, hi;
    for (uint32_t slot = 0; slot < REQUESTS; slot++) {
        for (uint32_t i = 0; i < rows[slot]; i++) embed(engine->tokens[slot][engine->done[slot] + i], engine->hidden[slot][i]);
    }
    kvg_placement_layers(engine->placement, &lo, &hi);
    for (uint32_t il = lo; il < hi; il++) {
        const KvPlaneView *view = kvg_plane_view(engine->batch, il);
        KvgRows            in = KVG_ROWS_INIT;
        size_t             at = 0;
        for (uint32_t slot = 0; slot < REQUESTS; slot++) {
            for (uint32_t i = 0; i < rows[slot]; i++, at += WIDTH) project(il, engine->hidden[slot][i], &k[at], &v[at]);
        }
        in.k = k;
        in.v = v;
        in.dtype = KVG_F32;
        TRY(kvg_write_kv(engine->batch, il, &in, NULL));
        for (uint32_t slot = 0; slot < REQUESTS; slot++) {
            Seen seen = {view, (uint32_t)kvg_batch_slots(engine->batch)[slot]};
            for (uint32_t i = 0; i < rows[slot]; i++) {
                uint64_t position = engine->done[slot] + i;
                if (position >= view->len_staged[seen.slot]) exit(1);
                attend(seen_row, &seen, first_seen(il, position), position, engine->hidden[slot][i]);
            }
        }
    }
}

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* One round: a chunk of the prompt, or the pending token and a guess. Returns 0 when every request is finished. */
static int round_of(Engine *engine, int truth[REQUESTS][TOKENS], uint32_t n)
{
    uint32_t   rows[REQUESTS], accepted[REQUESTS];
    KvgStep   *step = NULL;
    KvgCommit  commit = KVG_COMMIT_INIT;
    KvgOutcome outcome;
    int        busy = 0;
    outcome.size = sizeof outcome;
    for (uint32_t slot = 0; slot < REQUESTS; slot++) {
        uint32_t left = TOKENS - 1 - engine->done[slot];
        if (engine->done[slot] < PROMPT) left = min_u32(left, min_u32(CHUNK, PROMPT - engine->done[slot]));
        else left = min_u32(left, 2);
        rows[slot] = left;
        busy |= left > 0;
        if (engine->done[slot] >= PROMPT && left == 2) { /* a drafter that is right two times of three */
            uint32_t at = engine->have[slot];
            engine->tokens[slot][at] = (n + slot) % 3 != 0 ? truth[slot][at] : (truth[slot][at] + 1) % VOCAB;
        }
    }
    if (!busy) return 0;
    TRY(kvg_step_begin(engine->batch, rows, &step));
    for (uint32_t slot = 0; slot < REQUESTS; slot++) TRY(kvg_step_refusal(step, slot));
    forward(engine, kvg_step_rows(step));
    for (uint32_t slot = 0; slot < REQUESTS; slot++) {
        accepted[slot] = rows[slot];
        if (rows[slot] == 0) continue;
        if (engine->done[slot] < PROMPT) {
            engine->have[slot] = engine->done[slot] + rows[slot];
            if (engine->have[slot] < PROMPT) continue;
        } else if (rows[slot] == 2) { /* keep the guess only if the model says the same */
            accepted[slot] = sample(engine->hidden[slot][0]) == engine->tokens[slot][engine->have[slot]] ? 2 : 1;
            engine->have[slot] += accepted[slot] - 1;
        }
        engine->tokens[slot][engine->have[slot]++] = sample(engine->hidden[slot][accepted[slot] - 1]);
    }
    commit.accepted = accepted;
    TRY(kvg_step_post(step, &commit));
    TRY(kvg_step_wait(step, &outcome));
    for (uint32_t slot = 0; slot < REQUESTS; slot++) engine->done[slot] += outcome.accepted[slot];
    return 1;
}

static int run(KvLayout layout, int truth[REQUESTS][TOKENS])
{
    static Engine engine;
    uint32_t      rounds = 0;
    int           wrong = 0;
    memset(&engine, 0, sizeof engine);
    load(&engine, layout);
    for (int slot = 0; slot < REQUESTS; slot++) memcpy(engine.tokens[slot], truth[slot], PROMPT * sizeof(int));
    while (round_of(&engine, truth, rounds)) rounds++;
    for (int slot = 0; slot < REQUESTS; slot++) {
        for (int i = 0; i < TOKENS; i++) {
            if (engine.tokens[slot][i] != truth[slot][i]) {
                fprintf(stderr, "request %d, token %d: %d with the cache, %d without\n", slot, i, engine.tokens[slot][i], truth[slot][i]);
                wrong = 1;
                break;
            }
        }
        TRY(kvg_sequence_close(engine.sequences[slot], NULL));
    }
    kvg_batch_destroy(engine.batch);
    kvg_placement_destroy(engine.placement);
    kvg_grid_destroy(engine.grid);
    if (rounds >= TOKENS - PROMPT + (PROMPT + CHUNK - 1) / CHUNK) wrong = 1; /* guesses that were kept save rounds */
    printf("layout %d: %d requests of %d tokens in %u rounds\n", (int)layout, REQUESTS, TOKENS, rounds);
    return wrong;
}

int main(void)
{
    static int truth[REQUESTS][TOKENS];
    int        major, minor;
    for (int slot = 0; slot < REQUESTS; slot++) {
        for (int i = 0; i < PROMPT; i++) truth[slot][i] = (i * 31 + slot * 7 + i * i) % VOCAB;
        run_plain(truth[slot], PROMPT);
    }
    printf("kvgrid %s\n", kvg_version(&major, &minor, NULL));
    return run(KVG_LAYOUT_POOL, truth) | run(KVG_LAYOUT_FLAT, truth);
}

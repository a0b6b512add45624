/* Vectors of the life of one resident cache (S6): after each step, refused ones too, the whole state is compared. */
#include "vectors.h"

#include <stdio.h>
#include <string.h>

#include <kvgrid/resident.h>

typedef struct Life {
    ResidentTpKvCache       cache;
    ResidentTpKvCacheRank   rank;
    TpKvRankAllocationShape shape;
    uint64_t                window;
} Life;

typedef VectorResult (*StepFn)(VectorLine *line, json_t *step, Life *life);

static json_t *state_json(const TpKvState *state)
{
    int ring = state->layout == KVG_TP_KV_RING;
    return json_pack("{s:I, s:I, s:I, s:b, s:o, s:I}", "committed", (json_int_t)state->committed, "staged",
                     (json_int_t)state->staged, "capacity", (json_int_t)state->capacity, "active", (int)state->active, "base",
                     ring ? json_integer((json_int_t)state->ring.base) : json_null(), "rows",
                     (json_int_t)(ring ? state->ring.rows : state->capacity));
}

static VectorResult compare_state(VectorLine *line, json_t *step, const TpKvState *state)
{
    json_t *want = json_object_get(step, "state");
    if (want == NULL) {
        vector_malformed(line, "a step without \"state\"");
        return VECTOR_MALFORMED;
    }
    json_t *wrapped = json_pack("{s:O}", "ok", want);
    VectorResult result = vector_compare(line, wrapped, KVG_OK, state_json(state));
    json_decref(wrapped);
    return result;
}

static VectorResult step_new(VectorLine *line, json_t *step, Life *life)
{
    life->window = json_is_null(json_object_get(step, "window")) ? 0 : vector_u64(line, step, "window");
    life->shape = (TpKvRankAllocationShape){.k_token_bytes = vector_u64(line, step, "k_tok_bytes"),
                                            .v_token_bytes = vector_u64(line, step, "v_tok_bytes")};
    life->rank = (ResidentTpKvCacheRank){.tp_rank = 0, .shapes = &life->shape};
    KvgStatus status = kvg_resident_tp_kv_init(&life->cache, &life->rank, 1, 1, vector_u64(line, step, "capacity"),
                                               life->window, 0, KVG_TP_KV_INIT_FLAT);
    if (status != KVG_OK) vector_malformed(line, "the cache cannot be made: %s", kvg_last_error());
    return line->malformed ? VECTOR_MALFORMED : VECTOR_MATCH;
}

static VectorResult step_begin(VectorLine *line, json_t *step, Life *life)
{
    TpKvTransaction tx = {0};
    KvgStatus status = kvg_resident_tp_kv_begin(&life->cache, &tx);
    return vector_compare(line, step, status, json_pack("{s:I, s:I}", "generation", (json_int_t)tx.generation, "base_len",
                                                        (json_int_t)tx.base_len));
}

static json_t *ring_json(const TpKvAppendPlan *plan)
{
    const KvRingAppend *ring = &plan->ring_append;
    if (!plan->has_ring) return json_null();
    if (ring->kind == KVG_RING_CONTIGUOUS) {
        return json_pack("{s:s, s:I}", "kind", "contiguous", "write_row", (json_int_t)ring->write_row);
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:I}", "kind", "rebase", "src_row", (json_int_t)ring->src_row, "keep_rows",
                     (json_int_t)ring->keep_rows, "new_base", (json_int_t)ring->new_base, "write_row",
                     (json_int_t)ring->write_row);
}

static TpKvTransaction read_transaction(VectorLine *line, json_t *step)
{
    return (TpKvTransaction){.generation = vector_u64(line, step, "generation"),
                             .base_len = vector_u64(line, step, "base_len")};
}

static VectorResult step_append(VectorLine *line, json_t *step, Life *life)
{
    TpKvTransaction tx = read_transaction(line, step);
    TpKvAppendPlan plan = {0};
    KvgStatus status = kvg_resident_tp_kv_prepare_append(&life->cache, &tx, vector_u64(line, step, "rows"), &plan);
    if (status == KVG_OK) status = kvg_resident_tp_kv_publish_append_rebase(&life->cache, &plan);
    if (status == KVG_OK) status = kvg_resident_tp_kv_publish_append_plan(&life->cache, &plan);
    return vector_compare(line, step, status, json_pack("{s:I, s:I, s:o}", "target", (json_int_t)plan.target, "write_row",
                                                        (json_int_t)plan.write_row, "ring", ring_json(&plan)));
}

static VectorResult step_peek(VectorLine *line, json_t *step, Life *life)
{
    uint64_t write_row = 0;
    int rebase = 0;
    KvgStatus status = kvg_resident_tp_kv_peek_append_ring(&life->cache, vector_u64(line, step, "rows"), &write_row, &rebase);
    return vector_compare(line, step, status, json_pack("{s:I, s:b}", "write_row", (json_int_t)write_row, "rebase", rebase));
}

static VectorResult step_finalize(VectorLine *line, json_t *step, Life *life)
{
    TpKvTransaction tx = read_transaction(line, step);
    uint64_t target = 0;
    KvgStatus status = kvg_resident_tp_kv_commit_target(&life->cache, &tx, vector_u64(line, step, "accepted"), &target);
    if (status == KVG_OK) status = kvg_resident_tp_kv_publish_finalize(&life->cache, &tx, target);
    return vector_compare(line, step, status, json_integer((json_int_t)target));
}

static VectorResult step_rewind(VectorLine *line, json_t *step, Life *life)
{
    KvgStatus status = kvg_resident_tp_kv_rewind_to(&life->cache, vector_u64(line, step, "target"));
    return vector_compare(line, step, status, json_null());
}

static VectorResult step_hydrate(VectorLine *line, json_t *step, Life *life)
{
    KvgStatus status = kvg_resident_tp_kv_publish_hydration(&life->cache, vector_u64(line, step, "len"),
                                                            vector_u64(line, step, "start"));
    return vector_compare(line, step, status, json_null());
}

/* Plans, publishes into a fresh cache, and goes on with that. */
static VectorResult step_grow(VectorLine *line, json_t *step, Life *life)
{
    TpKvGrowPlan plan = {0};
    ResidentTpKvCache target;
    KvgStatus status = kvg_resident_tp_kv_prepare_grow(&life->cache, vector_u64(line, step, "capacity"),
                                                       vector_u64(line, step, "rows"), &plan);
    if (status == KVG_OK) {
        status = kvg_resident_tp_kv_init(&target, &life->rank, 1, 1, plan.capacity, life->window, 0, KVG_TP_KV_INIT_FLAT);
        if (status == KVG_OK) status = kvg_resident_tp_kv_publish_grow(&life->cache, &plan, &target);
        if (status == KVG_OK) life->cache = target;
    }
    return vector_compare(line, step, status,
                          json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "rows", (json_int_t)plan.rows, "source_row",
                                    (json_int_t)plan.source_row, "copy_rows", (json_int_t)plan.copy_rows, "target_base",
                                    (json_int_t)plan.target_base, "k_bytes", (json_int_t)plan.k_bytes, "v_bytes",
                                    (json_int_t)plan.v_bytes));
}

static VectorResult step_range(VectorLine *line, json_t *step, Life *life)
{
    uint64_t first = 0, past = 0;
    KvgStatus status = kvg_resident_tp_kv_physical_range(&life->cache, vector_u64(line, step, "start"),
                                                         vector_u64(line, step, "end"), &first, &past);
    return vector_compare(line, step, status, json_pack("[I, I]", (json_int_t)first, (json_int_t)past));
}

static StepFn find_step(const char *op)
{
    static const struct {
        const char *op;
        StepFn      run;
    } steps[] = {
        {"new", step_new},         {"begin", step_begin},   {"append", step_append},   {"peek", step_peek},
        {"finalize", step_finalize}, {"rewind", step_rewind}, {"hydrate", step_hydrate}, {"grow", step_grow},
        {"range", step_range},
    };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if (strcmp(op, steps[i].op) == 0) return steps[i].run;
    }
    return NULL;
}

static VectorResult run_step(VectorLine *line, json_t *step, size_t index, Life *life)
{
    const char *op = vector_string(line, step, "op");
    StepFn run = find_step(op);
    if (run == NULL) vector_malformed(line, "no step is called \"%.100s\"", op);
    if ((index == 0) != (run == step_new)) vector_malformed(line, "a trace begins with its only \"new\"");
    if (line->malformed) return VECTOR_MALFORMED;
    VectorResult result = run(line, step, life);
    return result == VECTOR_MATCH ? compare_state(line, step, &life->cache.state) : result;
}

VectorResult vector_run_life(VectorLine *line)
{
    json_t *steps = json_object_get(line->json, "steps");
    Life life = {0};
    if (json_array_size(steps) == 0) vector_malformed(line, "\"steps\" is missing or empty");
    for (size_t i = 0; i < json_array_size(steps); i++) {
        json_t *step = json_array_get(steps, i);
        VectorResult result = run_step(line, step, i, &life);
        if (result == VECTOR_MATCH) continue;
        char why[VECTOR_WHY_BYTES - 96]; /* room for the step before it */
        snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, line->why);
        snprintf(line->why, sizeof line->why, "step %zu (%.40s): %s", i, vector_string(line, step, "op"), why);
        return result;
    }
    return line->malformed ? VECTOR_MALFORMED : VECTOR_MATCH;
}

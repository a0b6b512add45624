/* Vectors of the pure rules: one call a line, arguments by name. */
#include "vectors.h"

#include <string.h>

#include <kvgrid/format.h>
#include <kvgrid/head_shard.h>
#include <kvgrid/index_ring.h>
#include <kvgrid/ring.h>
#include <kvgrid/shape.h>

static json_t *count_or_null(int some, uint64_t value)
{
    return some ? json_integer((json_int_t)value) : json_null();
}

static VectorResult run_swa_ring_rows(VectorLine *line)
{
    uint64_t rows = kvg_swa_ring_rows(vector_u64(line, line->json, "window"), vector_u64(line, line->json, "max_ctx"));
    return vector_compare(line, line->json, KVG_OK, count_or_null(1, rows));
}

static VectorResult run_swa_retain_from(VectorLine *line)
{
    uint64_t row = kvg_swa_retain_from(vector_u64(line, line->json, "first_row"), vector_u64(line, line->json, "window"),
                                       vector_u64(line, line->json, "base"));
    return vector_compare(line, line->json, KVG_OK, count_or_null(1, row));
}

static VectorResult run_index_ring_rows_for(VectorLine *line)
{
    json_t *asked = json_object_get(line->json, "explicit");
    int64_t explicit_rows = json_is_null(asked) ? KVG_INDEX_RING_UNSET : (int64_t)vector_u64(line, line->json, "explicit");
    uint64_t rows = kvg_index_ring_rows_for(explicit_rows, vector_u64(line, line->json, "max_ctx"));
    return vector_compare(line, line->json, KVG_OK, count_or_null(rows != 0, rows));
}

static VectorResult run_index_plane_physical_row(VectorLine *line)
{
    uint64_t ring = vector_u64(line, line->json, "ring_rows"), pool = vector_u64(line, line->json, "pool"), rounded;
    KvgStatus status = kvg_index_ring_round(ring, pool, &rounded);
    uint64_t row = kvg_index_plane_physical_row(ring, pool, vector_u64(line, line->json, "abs"));
    return vector_compare(line, line->json, status, count_or_null(1, row));
}

static VectorResult run_index_ring_take(VectorLine *line)
{
    uint64_t take = 0;
    int some = kvg_index_ring_take(vector_u64(line, line->json, "ring"), vector_u64(line, line->json, "pool"),
                                   vector_u64(line, line->json, "pools_ready"), vector_u64(line, line->json, "cur"),
                                   vector_u64(line, line->json, "remaining"), &take);
    return vector_compare(line, line->json, KVG_OK, count_or_null(some, take));
}

/* Arguments past 32 bits are no head counts. */
static uint32_t u32_of(VectorLine *line, const char *key)
{
    uint64_t value = vector_u64(line, line->json, key);
    if (value > UINT32_MAX) vector_malformed(line, "\"%s\" is past 32 bits", key);
    return (uint32_t)value;
}

static VectorResult run_head_shard(VectorLine *line)
{
    HeadShard shard = {0};
    KvgStatus status = kvg_head_shard(u32_of(line, "heads"), u32_of(line, "ranks"), u32_of(line, "rank"), &shard);
    return vector_compare(line, line->json, status,
                          json_pack("{s:I, s:I, s:I}", "first", (json_int_t)shard.first, "count", (json_int_t)shard.count,
                                    "replicas", (json_int_t)shard.replicas));
}

static KvFormat format_of(VectorLine *line, const char *key)
{
    KvFormat format = KVG_POLICY;
    const char *word = vector_string(line, line->json, key);
    if (kvg_format_parse(word, &format) != KVG_OK) vector_malformed(line, "\"%s\" is no format: %s", key, word);
    return format;
}

static VectorResult run_tp_shape(VectorLine *line)
{
    TpKvRankAllocationShape shape = {0};
    KvgStatus status = kvg_tp_kv_rank_allocation_shape(
        vector_u64(line, line->json, "kv_dim_k"), vector_u64(line, line->json, "kv_dim_v"),
        vector_u64(line, line->json, "ranks"), format_of(line, "format_k"), format_of(line, "format_v"), &shape);
    return vector_compare(line, line->json, status,
                          json_pack("{s:I, s:I, s:I, s:I, s:I}", "kv_dim_k", (json_int_t)shape.kv_dim_k, "kv_dim_v",
                                    (json_int_t)shape.kv_dim_v, "k_token_bytes", (json_int_t)shape.k_token_bytes,
                                    "v_token_bytes", (json_int_t)shape.v_token_bytes, "fixed_bytes",
                                    (json_int_t)shape.fixed_bytes));
}

static const struct {
    const char *op;
    VectorResult (*run)(VectorLine *line);
} rules[] = {
    {"swa_ring_rows", run_swa_ring_rows},
    {"swa_retain_from", run_swa_retain_from},
    {"index_ring_rows_for", run_index_ring_rows_for},
    {"index_plane_physical_row", run_index_plane_physical_row},
    {"index_ring_take", run_index_ring_take},
    {"head_shard", run_head_shard},
    {"tp_shape", run_tp_shape},
};

VectorResult vector_run_pure(VectorLine *line)
{
    const char *op = vector_string(line, line->json, "op");
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (strcmp(op, rules[i].op) == 0) return rules[i].run(line);
    }
    vector_malformed(line, "no rule is called \"%.100s\"", op);
    return VECTOR_MALFORMED;
}

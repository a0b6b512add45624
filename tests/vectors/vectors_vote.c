/* Vectors of the vote's decision (S7): records in rank order. */
#include "vectors.h"

#include <stdlib.h>

#include <kvgrid/vote.h>

static void read_record(VectorLine *line, json_t *object, size_t index, KvVoteRecord *record)
{
    uint64_t rank = vector_u64(line, object, "rank");
    if (rank != index || rank > UINT16_MAX) vector_malformed(line, "records[%zu] is of rank %llu", index, (unsigned long long)rank);
    *record = (KvVoteRecord){
        .step = vector_u64(line, object, "step"),
        .epoch = (uint32_t)vector_u64(line, object, "epoch"),
        .status = (int16_t)vector_i64(line, object, "status"),
        .rank = (uint16_t)rank,
        .targets = vector_u64(line, object, "targets"),
        .accepted = vector_u64(line, object, "accepted"),
        .layout = vector_u64(line, object, "layout"),
        .user = vector_u64(line, object, "user"),
    };
}

/* Ranks a stage, from the records' own stages: all of one size, in order. */
static uint32_t read_tp(VectorLine *line, json_t *records)
{
    size_t n = json_array_size(records), tp = 0;
    while (tp < n && vector_u64(line, json_array_get(records, tp), "stage") == 0) tp++;
    for (size_t i = 0; i < n && tp != 0; i++) {
        if (vector_u64(line, json_array_get(records, i), "stage") != i / tp) vector_malformed(line, "stages are uneven");
    }
    if (tp == 0 || n % tp != 0) vector_malformed(line, "\"records\" is empty, no array, or its stages are uneven");
    return (uint32_t)tp;
}

static json_t *outcome_json(const KvVoteOutcome *outcome)
{
    const char *kind = kvg_vote_kind_name((KvVoteKind)outcome->kind);
    switch ((KvVoteKind)outcome->kind) {
    case KVG_VOTE_REFUSED:
        return json_pack("{s:s, s:i, s:i}", "outcome", kind, "rank", (int)outcome->rank, "status", (int)outcome->status);
    case KVG_VOTE_DISAGREE:
        return json_pack("{s:s, s:s, s:[i, i]}", "outcome", kind, "field", kvg_vote_field_name((KvVoteField)outcome->field),
                         "ranks", (int)outcome->rank, (int)outcome->rank_b);
    default:
        return json_pack("{s:s}", "outcome", kind);
    }
}

VectorResult vector_run_vote(VectorLine *line)
{
    json_t *list = json_object_get(line->json, "records");
    uint32_t tp = read_tp(line, list);
    if (line->malformed) return VECTOR_MALFORMED;
    size_t n = json_array_size(list);
    KvVoteRecord *records = calloc(n, sizeof *records);
    const KvVoteRecord **pointers = calloc(n, sizeof *pointers);
    if (records == NULL || pointers == NULL) abort();
    for (size_t i = 0; i < n; i++) {
        read_record(line, json_array_get(list, i), i, &records[i]);
        pointers[i] = &records[i];
    }
    KvVoteOutcome outcome;
    kvg_vote_decide(pointers, (uint32_t)n, tp, &outcome);
    free(pointers);
    free(records);
    return vector_compare(line, line->json, KVG_OK, outcome_json(&outcome));
}

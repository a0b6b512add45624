/* Vectors: what the runner's parts share. Each part runs one line of one kind. */
#ifndef KVG_TEST_VECTORS_H
#define KVG_TEST_VECTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include <kvgrid/status.h>

typedef enum VectorResult { VECTOR_MATCH, VECTOR_MISMATCH, VECTOR_MALFORMED } VectorResult;

#define VECTOR_WHY_BYTES 1024

/* A line under test: its JSON, and why it did not match or could not be read. */
typedef struct VectorLine {
    json_t *json;
    bool    malformed;
    char    why[VECTOR_WHY_BYTES];
} VectorLine;

/* Marks the line malformed; the first reason stays. */
void vector_malformed(VectorLine *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Members of `object`; a missing one, or one of another type or sign, marks the line malformed and gives 0 or "". */
uint64_t    vector_u64(VectorLine *line, json_t *object, const char *key);
int64_t     vector_i64(VectorLine *line, json_t *object, const char *key);
const char *vector_string(VectorLine *line, json_t *object, const char *key);
/* An array of non-negative integers, freed by the caller; NULL and a count of 0 where it is null. */
uint64_t   *vector_u64_array(VectorLine *line, json_t *object, const char *key, size_t *count);

/* Compares what a call answered with `error` or `ok` of `object`. `got` is stolen: the result where the status is OK,
 * ignored otherwise. A line that is malformed by now stays so. */
VectorResult vector_compare(VectorLine *line, json_t *object, KvgStatus status, json_t *got);

VectorResult vector_run_pure(VectorLine *line);      /* op: the rules of rings, shards and shapes */
VectorResult vector_run_vote(VectorLine *line);      /* op vote_decide */
VectorResult vector_run_partition(VectorLine *line); /* op partition */
VectorResult vector_run_life(VectorLine *line);      /* trace: the life of one resident cache */
VectorResult vector_run_format(VectorLine *line);    /* format: encoded blocks and codes */

#endif

/* A test attention over kvgrid's views, as an engine's author would write one; and a generator of the rows that it reads. For tests.
 *
 * Decode attention: the last `queries` rows that a sequence has staged each attend to the rows at and before their own (in a windowed layer, to
 * the last `window` of those), for grouped query heads, over bf16 planes or q8_0 K and q5_1 V planes of head_dim 128.
 * Everything that differs from step to step is read from device memory at fixed addresses (slots, lengths, tables, counts), and the output
 * of absolute row r stands at r: so one captured launch serves every step, and every step's output is still there at the end.
 *
 * Two makers: attention.cu on CUDA, attention_host.cpp in host memory, lane by lane the same code (attention.cuh). What both must agree with is
 * a float64 reference over decoded planes, in gpu_attend.c. */
#ifndef KVG_TEST_ATTENTION_H
#define KVG_TEST_ATTENTION_H

#include <stdint.h>

#include <kvgrid/view.h>

#include "runtime/base/hd.h"

#define ATTEND_DIM 128

#ifdef __cplusplus
extern "C" {
#endif

typedef struct AttendCall {
    KvPlaneView     view;        /* as kvg_plane_view gives it */
    const int32_t  *slots;       /* [places] as kvg_batch_slots gives it; -1: skipped */
    const uint32_t *queries;     /* [places] query rows, at most queries_max; device memory */
    uint32_t        places, queries_max;
    uint32_t        query_heads; /* a multiple of view.heads; query head h reads KV head h / (query_heads / heads) */
    uint32_t        splits;      /* parts that a sequence's rows are cut into, each read by a block of its own */
    float           scale;
    const float    *q;           /* [places][queries_max][query_heads][dim] */
    float          *out;         /* [slots of the store][out_rows][query_heads][dim] */
    uint32_t        out_rows;
    float          *partial;     /* [attend_partial_floats]; what the parts found, until they are joined */
} AttendCall;

/* K, V and query rows of the current pass, [places][rows_max] tokens: functions of (sequence, layer, head, absolute row, element) alone. */
typedef struct GenerateCall {
    KvPlaneView     view;
    const int32_t  *slots;
    const uint32_t *rows;        /* [places] rows of the pass */
    const uint32_t *queries;     /* [places] the last of them that attend */
    const uint32_t *first_row;   /* [places] absolute row of the first */
    const uint32_t *keys;        /* [slots of the store] which sequence a slot holds */
    uint32_t        places, rows_max, queries_max, query_heads;
    uint16_t       *k, *v;       /* [places][rows_max][heads][dim] bf16 */
    float          *q;           /* [places][queries_max][query_heads][dim] */
} GenerateCall;

static inline size_t attend_partial_floats(const AttendCall *call)
{
    return (size_t)call->places * call->queries_max * call->query_heads * call->splits * (ATTEND_DIM + 2);
}

enum { ATTEND_K = 0, ATTEND_V = 1, ATTEND_Q = 2 };

/* 8 significant bits, so that bf16 holds them exactly: within 2 of zero, queries within 4. */
static inline KVG_HD float attend_value(uint32_t key, uint32_t layer, uint32_t what, uint32_t head, uint32_t row, uint32_t element)
{
    uint64_t x = key * 0x9e3779b97f4a7c15u ^ (uint64_t)layer << 56 ^ (uint64_t)what << 52 ^ (uint64_t)head << 40 ^ (uint64_t)row << 10 ^ element;

    x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
    return (float)(int8_t)(x >> 40) * (what == ATTEND_Q ? 1.0f / 32.0f : 1.0f / 64.0f);
}

/* What an engine's sampler would say of a speculative round: rows of each place's pass to keep, 1 to all of them. */
typedef struct AcceptCall {
    const int32_t  *slots;
    const uint32_t *rows, *first_row, *keys;
    uint32_t        places;
    uint32_t       *accepted; /* [places] */
} AcceptCall;

static inline KVG_HD uint32_t attend_accept(uint32_t key, uint32_t row, uint32_t rows)
{
    return 1 + (key * 0x9e3779b1u ^ row * 0x85ebca77u) / 65536 % rows;
}

/* All enqueue on `stream` and return 0; or what a launch failed with (a cudaError_t), or 1 (cudaErrorInvalidValue) for shapes and formats that
 * are not served. */
int attend_launch(const AttendCall *call, void *stream);
int generate_launch(const GenerateCall *call, void *stream);
int accept_launch(const AcceptCall *call, void *stream);

#ifdef __cplusplus
}
#endif
#endif

/* The test attention's arithmetic, for a lane of a group that shares a row: 16 lanes on the device, one on the host, the same text.
 *
 * A group walks its rows four at a time: scores of all its queries against the four, then one rescaling of what was summed so far (online
 * softmax, in f32, base 2), then the four V rows. Lane l of L has the eights l, l+L, ... of a head's elements. */
#ifndef KVG_TEST_ATTENTION_CUH
#define KVG_TEST_ATTENTION_CUH

#include <math.h>

#include "kernels/plane.cuh"

#include "tests/kernels/attention.h"

enum { ATTEND_TILE = 4 };
#define ATTEND_NONE (-1e30f) /* the largest score of no rows: finite, so that differences are numbers */

/* ---- which rows */

typedef struct AttendSpan {
    uint32_t queries; /* of the place */
    uint32_t position; /* absolute row of the first */
    uint32_t from, to; /* rows that any of them reads: from the view start on */
} AttendSpan;

KVG_DEV AttendSpan attend_span(const AttendCall &call, uint32_t place, uint32_t slot)
{
    AttendSpan span;
    uint32_t   staged = call.view.len_staged[slot], seen;

    span.queries = call.queries[place];
    if (span.queries > call.queries_max) span.queries = call.queries_max;
    if (span.queries > staged) span.queries = staged;
    span.position = staged - span.queries;
    span.to = staged;
    span.from = 0;
    if (call.view.window != 0) { /* S5: (position - (window - 1)), at least 0, down to a multiple of 32; always held */
        seen = span.position + 1 > call.view.window ? span.position + 1 - (uint32_t)call.view.window : 0;
        span.from = seen & ~31u;
    }
    return span;
}

/* Part `split` of the span's rows, in whole 32s. */
KVG_DEV void attend_part(const AttendSpan &span, uint32_t split, uint32_t splits, uint32_t &begin, uint32_t &end)
{
    uint32_t rows = span.to - span.from, each = ((rows + splits - 1) / splits + 31) & ~31u;

    begin = span.from + split * each;
    end = begin + each;
    if (begin > span.to) begin = span.to;
    if (end > span.to) end = span.to;
}

/* ---- eight elements of a row */

/* kvg_plane_ref, where the device can call it. */
KVG_DEV KvPlaneRef attend_plane(const KvPlaneView &view, const KvPlane &plane)
{
    return {plane, view.rows_per_chunk, view.table_stride, view.table, view.ring_rows, view.base_row};
}

template <int FORMAT> KVG_DEV void attend_load(const uint8_t *row, int eight, float (&x)[8])
{
    if (kvg_is_block<FORMAT>()) {
        kvg_decode_eight<FORMAT>(row + (eight / 4) * kvg_block_bytes<FORMAT>(), eight % 4, x);
        return;
    }
    struct alignas(16) { uint32_t word[4]; } bits; /* bf16: 16 bytes, aligned */
    memcpy(&bits, (const uint8_t *)__builtin_assume_aligned(row + 16 * eight, 16), sizeof bits);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[2 * i] = kvg_dev_from_bf16(bits.word[i] & 0xffff);
        x[2 * i + 1] = kvg_dev_from_bf16(bits.word[i] >> 16);
    }
}

template <int LANES> KVG_DEV float attend_sum_lanes(float x)
{
#ifdef __CUDA_ARCH__
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
#endif
    return x;
}

/* ---- what a lane holds for QUERIES queries of one KV head */

template <int LANES, int QUERIES> struct AttendLane {
    static constexpr int EIGHTS = ATTEND_DIM / 8 / LANES;
    float    q[QUERIES][EIGHTS][8], out[QUERIES][EIGHTS][8];
    float    most[QUERIES], sum[QUERIES];
    uint32_t first[QUERIES], past[QUERIES]; /* the rows that it sees; none past the last query */
};

/* Queries tile*QUERIES on, of the place's queries * group; query t is query row t / group, head t % group of the KV head's. */
template <int LANES, int QUERIES>
KVG_DEV void attend_begin(const AttendCall &call, const AttendSpan &span, uint32_t place, uint32_t head, uint32_t tile, uint32_t lane,
                          AttendLane<LANES, QUERIES> &a)
{
    const uint32_t group = call.query_heads / call.view.heads, window = (uint32_t)call.view.window;

#pragma unroll
    for (int t = 0; t < QUERIES; t++) {
        uint32_t at = tile * QUERIES + t, row = at / group, position = span.position + row;
        bool     is = row < span.queries;
        const float *q = call.q + (((size_t)place * call.queries_max + (is ? row : 0)) * call.query_heads + head * group + at % group) * ATTEND_DIM;

        a.most[t] = ATTEND_NONE;
        a.sum[t] = 0.0f;
        a.past[t] = is ? position + 1 : 0;
        a.first[t] = window != 0 && position + 1 > window ? position + 1 - window : 0;
        for (int e = 0; e < AttendLane<LANES, QUERIES>::EIGHTS; e++) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                a.q[t][e][i] = is ? q[8 * (e * LANES + lane) + i] * (call.scale * 1.44269504f) : 0.0f;
                a.out[t][e][i] = 0.0f;
            }
        }
    }
}

template <int FORMAT, int LANES, int QUERIES>
KVG_DEV void attend_scores(const uint8_t *row, uint32_t lane, const AttendLane<LANES, QUERIES> &a, float (&score)[QUERIES])
{
#pragma unroll
    for (int t = 0; t < QUERIES; t++) score[t] = 0.0f;
    for (int e = 0; e < AttendLane<LANES, QUERIES>::EIGHTS; e++) {
        float x[8];
        attend_load<FORMAT>(row, e * LANES + (int)lane, x);
#pragma unroll
        for (int t = 0; t < QUERIES; t++) {
#pragma unroll
            for (int i = 0; i < 8; i++) score[t] += a.q[t][e][i] * x[i];
        }
    }
#pragma unroll
    for (int t = 0; t < QUERIES; t++) score[t] = attend_sum_lanes<LANES>(score[t]);
}

/* Scores of ATTEND_TILE rows to weights; what was summed before is rescaled to the new largest. */
template <int LANES, int QUERIES>
KVG_DEV void attend_weigh(uint32_t row, uint32_t end, float (&score)[ATTEND_TILE][QUERIES], AttendLane<LANES, QUERIES> &a)
{
#pragma unroll
    for (int t = 0; t < QUERIES; t++) {
        float most = a.most[t], factor;
        bool  seen[ATTEND_TILE];

#pragma unroll
        for (int i = 0; i < ATTEND_TILE; i++) {
            seen[i] = row + i < end && row + i >= a.first[t] && row + i < a.past[t];
            if (seen[i] && score[i][t] > most) most = score[i][t];
        }
        factor = exp2f(a.most[t] - most);
        a.most[t] = most;
        a.sum[t] *= factor;
        for (int e = 0; e < AttendLane<LANES, QUERIES>::EIGHTS; e++) {
#pragma unroll
            for (int i = 0; i < 8; i++) a.out[t][e][i] *= factor;
        }
#pragma unroll
        for (int i = 0; i < ATTEND_TILE; i++) {
            score[i][t] = seen[i] ? exp2f(score[i][t] - most) : 0.0f;
            a.sum[t] += score[i][t];
        }
    }
}

/* ATTEND_TILE rows from `row` on, those below `end`. Past it nothing is looked up: a table says nothing of rows that are not booked. */
template <int K_FORMAT, int V_FORMAT, int LANES, int QUERIES>
KVG_DEV void attend_tile(const AttendCall &call, uint32_t slot, uint32_t head, uint32_t row, uint32_t end, uint32_t lane,
                         AttendLane<LANES, QUERIES> &a)
{
    const KvPlaneRef k = attend_plane(call.view, call.view.k), v = attend_plane(call.view, call.view.v);
    float            weight[ATTEND_TILE][QUERIES];

#pragma unroll
    for (int i = 0; i < ATTEND_TILE; i++) {
        uint32_t r = row + i < end ? row + i : end - 1;
        attend_scores<K_FORMAT>(kvg_ref_row(k, slot, r) + head * k.plane.head_stride, lane, a, weight[i]);
    }
    attend_weigh(row, end, weight, a);
#pragma unroll
    for (int i = 0; i < ATTEND_TILE; i++) {
        uint32_t       r = row + i < end ? row + i : end - 1;
        const uint8_t *from = kvg_ref_row(v, slot, r) + head * v.plane.head_stride;
        for (int e = 0; e < AttendLane<LANES, QUERIES>::EIGHTS; e++) {
            float x[8];
            attend_load<V_FORMAT>(from, e * LANES + (int)lane, x);
#pragma unroll
            for (int t = 0; t < QUERIES; t++) {
#pragma unroll
                for (int j = 0; j < 8; j++) a.out[t][e][j] += weight[i][t] * x[j];
            }
        }
    }
}

/* Rows [begin, end) that are the share of group `group` of `groups`. */
template <int K_FORMAT, int V_FORMAT, int LANES, int QUERIES>
KVG_DEV void attend_walk(const AttendCall &call, uint32_t slot, uint32_t head, uint32_t begin, uint32_t end, uint32_t group, uint32_t groups,
                         uint32_t lane, AttendLane<LANES, QUERIES> &a)
{
    for (uint32_t at = begin; at < end; at += groups * ATTEND_TILE) { /* as often in every group of a warp: lanes meet in shuffles */
        uint32_t row = at + group * ATTEND_TILE;
        attend_tile<K_FORMAT, V_FORMAT>(call, slot, head, row, end, lane, a);
    }
}

/* ---- joining what several found: (largest score, sum, one element of the sum of V rows), each `stride` and `out_stride` apart */

typedef struct AttendFound {
    float most, sum, out;
} AttendFound;

KVG_DEV AttendFound attend_join(const float *most, const float *sum, const float *out, uint32_t count, uint32_t stride, uint32_t out_stride)
{
    AttendFound whole = {ATTEND_NONE, 0.0f, 0.0f};

    for (uint32_t i = 0; i < count; i++) whole.most = most[i * stride] > whole.most ? most[i * stride] : whole.most;
    for (uint32_t i = 0; i < count; i++) {
        float factor = exp2f(most[i * stride] - whole.most);
        whole.sum += sum[i * stride] * factor;
        whole.out += out[i * out_stride] * factor;
    }
    return whole;
}

/* Where the parts of a query stand in call.partial: largest scores, then sums, then outputs. */
typedef struct AttendPartial {
    float *most, *sum, *out; /* of the first part; the next one's are 1, 1 and ATTEND_DIM further */
} AttendPartial;

KVG_DEV AttendPartial attend_partial(const AttendCall &call, uint32_t place, uint32_t query, uint32_t query_head)
{
    size_t count = (size_t)call.places * call.queries_max * call.query_heads * call.splits;
    size_t at = (((size_t)place * call.queries_max + query) * call.query_heads + query_head) * call.splits;

    return {call.partial + at, call.partial + count + at, call.partial + 2 * count + at * ATTEND_DIM};
}

/* One element of one output, from its parts. */
KVG_DEV void attend_finish(const AttendCall &call, const AttendSpan &span, uint32_t place, uint32_t slot, uint32_t query, uint32_t query_head,
                           uint32_t element)
{
    AttendPartial part = attend_partial(call, place, query, query_head);
    AttendFound   whole = attend_join(part.most, part.sum, part.out + element, call.splits, 1, ATTEND_DIM);
    uint32_t      row = span.position + query;

    if (row >= call.out_rows) return;
    call.out[(((size_t)slot * call.out_rows + row) * call.query_heads + query_head) * ATTEND_DIM + element] = whole.out / whole.sum;
}

/* ---- the generator: element `at` of one token's K, V or query row */

KVG_DEV void generate_kv(const GenerateCall &call, uint32_t place, uint32_t slot, uint32_t token, uint32_t at)
{
    uint32_t row = call.first_row[place] + token, head = at / ATTEND_DIM, element = at % ATTEND_DIM;
    size_t   to = ((size_t)place * call.rows_max + token) * call.view.heads * ATTEND_DIM + at;

    call.k[to] = (uint16_t)kvg_dev_bf16(attend_value(call.keys[slot], call.view.layer, ATTEND_K, call.view.head_first + head, row, element));
    call.v[to] = (uint16_t)kvg_dev_bf16(attend_value(call.keys[slot], call.view.layer, ATTEND_V, call.view.head_first + head, row, element));
}

KVG_DEV void generate_query(const GenerateCall &call, uint32_t place, uint32_t slot, uint32_t query, uint32_t at)
{
    uint32_t row = call.first_row[place] + call.rows[place] - call.queries[place] + query;

    call.q[((size_t)place * call.queries_max + query) * call.query_heads * ATTEND_DIM + at] =
        attend_value(call.keys[slot], call.view.layer, ATTEND_Q, at / ATTEND_DIM, row, at % ATTEND_DIM);
}

KVG_DEV void accept_place(const AcceptCall &call, uint32_t place)
{
    int32_t slot = call.slots[place];

    if (slot >= 0 && call.rows[place] != 0) call.accepted[place] = attend_accept(call.keys[slot], call.first_row[place], call.rows[place]);
}

/* ---- which of the kernels serves a call */

KVG_DEV bool attend_is_served(const AttendCall *call)
{
    const KvPlaneView *view = &call->view;
    KvFormat           k = view->k.format, v = view->v.format;

    return view->k.head_dim == ATTEND_DIM && view->v.head_dim == ATTEND_DIM && view->heads != 0 && call->query_heads % view->heads == 0 &&
           call->splits != 0 && ((k == KVG_BF16 && v == KVG_BF16) || (k == KVG_Q8_0 && v == KVG_Q5_1));
}

#endif

// The test attention in host memory: the lanes' own code with one lane a row, group by group and part by part as the kernels go. What it cannot
// try are shuffles and shared memory; addresses, ranges, decoding and the joining of parts it does, without a GPU.
#include "tests/kernels/attention.cuh"
#include "tests/kernels/host_stream.h"

namespace {

enum { GROUPS = 3, QUERIES = 4 };

template <int K_FORMAT, int V_FORMAT>
void attend_part_of(const AttendCall &call, const AttendSpan &span, uint32_t place, uint32_t slot, uint32_t head, uint32_t tile, uint32_t split)
{
    static AttendLane<1, QUERIES> lanes[GROUPS];
    const uint32_t                group_heads = call.query_heads / call.view.heads;
    float                         most[GROUPS], sum[GROUPS];
    uint32_t                      begin, end;

    attend_part(span, split, call.splits, begin, end);
    for (uint32_t g = 0; g < GROUPS; g++) {
        attend_begin(call, span, place, head, tile, 0, lanes[g]);
        attend_walk<K_FORMAT, V_FORMAT>(call, slot, head, begin, end, g, GROUPS, 0, lanes[g]);
    }
    for (uint32_t t = 0; t < QUERIES && tile * QUERIES + t < span.queries * group_heads; t++) {
        uint32_t      query = tile * QUERIES + t;
        AttendPartial to = attend_partial(call, place, query / group_heads, head * group_heads + query % group_heads);
        for (uint32_t g = 0; g < GROUPS; g++) most[g] = lanes[g].most[t], sum[g] = lanes[g].sum[t];
        for (uint32_t element = 0; element < ATTEND_DIM; element++) {
            float out[GROUPS];
            for (uint32_t g = 0; g < GROUPS; g++) out[g] = lanes[g].out[t][element / 8][element % 8];
            AttendFound found = attend_join(most, sum, out, GROUPS, 1, 1);
            to.most[split] = found.most;
            to.sum[split] = found.sum;
            to.out[split * ATTEND_DIM + element] = found.out;
        }
    }
}

void attend_place(const AttendCall &call, uint32_t place, uint32_t slot)
{
    const AttendSpan span = attend_span(call, place, slot);
    const uint32_t   queries = span.queries * (call.query_heads / call.view.heads);

    for (uint32_t head = 0; head < call.view.heads; head++) {
        for (uint32_t tile = 0; tile * QUERIES < queries; tile++) {
            for (uint32_t split = 0; split < call.splits; split++) {
                if (call.view.k.format == KVG_BF16) attend_part_of<KVG_BF16, KVG_BF16>(call, span, place, slot, head, tile, split);
                else attend_part_of<KVG_Q8_0, KVG_Q5_1>(call, span, place, slot, head, tile, split);
            }
        }
    }
    for (uint32_t at = 0; at < span.queries * call.query_heads * ATTEND_DIM; at++) {
        attend_finish(call, span, place, slot, at / (call.query_heads * ATTEND_DIM), at / ATTEND_DIM % call.query_heads, at % ATTEND_DIM);
    }
}

void attend_now(const void *arguments)
{
    const AttendCall &call = *(const AttendCall *)arguments;

    for (uint32_t place = 0; place < call.places; place++) {
        if (call.slots[place] >= 0) attend_place(call, place, (uint32_t)call.slots[place]);
    }
}

void generate_now(const void *arguments)
{
    const GenerateCall &call = *(const GenerateCall *)arguments;

    for (uint32_t place = 0; place < call.places; place++) {
        if (call.slots[place] < 0) continue;
        uint32_t slot = (uint32_t)call.slots[place];
        for (uint32_t token = 0; token < call.rows[place]; token++) {
            for (uint32_t at = 0; at < call.view.heads * ATTEND_DIM; at++) generate_kv(call, place, slot, token, at);
        }
        for (uint32_t query = 0; query < call.queries[place]; query++) {
            for (uint32_t at = 0; at < call.query_heads * ATTEND_DIM; at++) generate_query(call, place, slot, query, at);
        }
    }
}

void accept_now(const void *arguments)
{
    const AcceptCall &call = *(const AcceptCall *)arguments;

    for (uint32_t place = 0; place < call.places; place++) accept_place(call, place);
}

} // namespace

extern "C" int attend_launch(const AttendCall *call, void *stream)
{
    if (!attend_is_served(call)) return 1;
    host_stream_do(stream, attend_now, call, sizeof *call);
    return 0;
}

extern "C" int generate_launch(const GenerateCall *call, void *stream)
{
    host_stream_do(stream, generate_now, call, sizeof *call);
    return 0;
}

extern "C" int accept_launch(const AcceptCall *call, void *stream)
{
    host_stream_do(stream, accept_now, call, sizeof *call);
    return 0;
}

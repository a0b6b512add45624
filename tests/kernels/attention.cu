/* The test attention on CUDA. Bound by reading K and V once for every ATTEND_QUERIES queries of a KV head, 16 bytes a lane and less for block
 * formats, whose blocks are aligned to two bytes; bench_read_cuda has the readers that a fast one would be built on.
 *
 *   attend_parts   grid (tiles of queries * splits, KV heads, places), 4 warps: 8 groups of 16 lanes share the rows of a part, four at a time
 *   attend_whole   grid (queries, query heads, places), a thread an element: joins the parts
 *   generate       grid (rows, places): a block a token
 *   accept         a thread a place */
#include <cuda_runtime.h>

#include "tests/kernels/attention.cuh"

enum { ATTEND_LANES = 16, ATTEND_THREADS = 128, ATTEND_GROUPS = ATTEND_THREADS / ATTEND_LANES, ATTEND_QUERIES = 4 };

template <int K_FORMAT, int V_FORMAT> __global__ void __launch_bounds__(ATTEND_THREADS) attend_parts(const __grid_constant__ AttendCall call)
{
    __shared__ float most[ATTEND_GROUPS][ATTEND_QUERIES], sum[ATTEND_GROUPS][ATTEND_QUERIES], out[ATTEND_GROUPS][ATTEND_QUERIES][ATTEND_DIM];
    const uint32_t   split = blockIdx.x % call.splits, tile = blockIdx.x / call.splits, head = blockIdx.y, place = blockIdx.z;
    const uint32_t   group = threadIdx.x / ATTEND_LANES, lane = threadIdx.x % ATTEND_LANES, heads_each = call.query_heads / call.view.heads;
    const int32_t    slot = call.slots[place];
    uint32_t         begin, end;

    if (slot < 0) return;
    const AttendSpan span = attend_span(call, place, (uint32_t)slot);
    if (tile * ATTEND_QUERIES >= span.queries * heads_each) return;
    AttendLane<ATTEND_LANES, ATTEND_QUERIES> mine;
    attend_begin(call, span, place, head, tile, lane, mine);
    attend_part(span, split, call.splits, begin, end);
    attend_walk<K_FORMAT, V_FORMAT>(call, (uint32_t)slot, head, begin, end, group, ATTEND_GROUPS, lane, mine);
#pragma unroll
    for (int t = 0; t < ATTEND_QUERIES; t++) {
        if (lane == 0) {
            most[group][t] = mine.most[t];
            sum[group][t] = mine.sum[t];
        }
#pragma unroll
        for (int i = 0; i < 8; i++) out[group][t][8 * lane + i] = mine.out[t][0][i];
    }
    __syncthreads();
    for (uint32_t at = threadIdx.x; at < ATTEND_QUERIES * ATTEND_DIM; at += ATTEND_THREADS) {
        uint32_t t = at / ATTEND_DIM, element = at % ATTEND_DIM, query = tile * ATTEND_QUERIES + t;
        if (query >= span.queries * heads_each) continue;
        AttendFound   found = attend_join(&most[0][t], &sum[0][t], &out[0][t][element], ATTEND_GROUPS, ATTEND_QUERIES, ATTEND_QUERIES * ATTEND_DIM);
        AttendPartial to = attend_partial(call, place, query / heads_each, head * heads_each + query % heads_each);
        if (element == 0) {
            to.most[split] = found.most;
            to.sum[split] = found.sum;
        }
        to.out[split * ATTEND_DIM + element] = found.out;
    }
}

__global__ void __launch_bounds__(ATTEND_DIM) attend_whole(const __grid_constant__ AttendCall call)
{
    const int32_t slot = call.slots[blockIdx.z];

    if (slot < 0) return;
    const AttendSpan span = attend_span(call, blockIdx.z, (uint32_t)slot);
    if (blockIdx.x < span.queries) attend_finish(call, span, blockIdx.z, (uint32_t)slot, blockIdx.x, blockIdx.y, threadIdx.x);
}

__global__ void __launch_bounds__(ATTEND_DIM) generate(const __grid_constant__ GenerateCall call)
{
    const uint32_t token = blockIdx.x, place = blockIdx.y;
    const int32_t  slot = call.slots[place];

    if (slot < 0) return;
    if (token < call.rows[place]) {
        for (uint32_t at = threadIdx.x; at < call.view.heads * ATTEND_DIM; at += ATTEND_DIM) generate_kv(call, place, (uint32_t)slot, token, at);
    }
    if (token < call.queries[place]) {
        for (uint32_t at = threadIdx.x; at < call.query_heads * ATTEND_DIM; at += ATTEND_DIM) generate_query(call, place, (uint32_t)slot, token, at);
    }
}

__global__ void accept(const __grid_constant__ AcceptCall call)
{
    const uint32_t place = blockIdx.x * blockDim.x + threadIdx.x;

    if (place < call.places) accept_place(call, place);
}

extern "C" int attend_launch(const AttendCall *call, void *stream)
{
    if (!attend_is_served(call)) return cudaErrorInvalidValue;
    cudaStream_t   on = (cudaStream_t)stream;
    const uint32_t group = call->query_heads / call->view.heads, tiles = (call->queries_max * group + ATTEND_QUERIES - 1) / ATTEND_QUERIES;
    const dim3     parts(tiles * call->splits, call->view.heads, call->places), whole(call->queries_max, call->query_heads, call->places);
    if (call->view.k.format == KVG_BF16) attend_parts<KVG_BF16, KVG_BF16><<<parts, ATTEND_THREADS, 0, on>>>(*call);
    else attend_parts<KVG_Q8_0, KVG_Q5_1><<<parts, ATTEND_THREADS, 0, on>>>(*call);
    attend_whole<<<whole, ATTEND_DIM, 0, on>>>(*call);
    return (int)cudaGetLastError();
}

extern "C" int generate_launch(const GenerateCall *call, void *stream)
{
    const uint32_t tokens = call->rows_max > call->queries_max ? call->rows_max : call->queries_max;

    generate<<<dim3(tokens, call->places), ATTEND_DIM, 0, (cudaStream_t)stream>>>(*call);
    return (int)cudaGetLastError();
}

extern "C" int accept_launch(const AcceptCall *call, void *stream)
{
    accept<<<(call->places + 63) / 64, 64, 0, (cudaStream_t)stream>>>(*call);
    return (int)cudaGetLastError();
}

/* How fast are one layer's rows read on a GPU through chunk tables, against the same bytes read in order and a device copy in the same run?
 *
 * A row is what an attention kernel reads for one head of 128 elements: 136 bytes of q8_0 K and 96 bytes of q5_1 V, in chunks of 64 rows that
 * stand in random order, found by slot, length and table as plane.cuh says. Rows of a chunk and head are contiguous, so a piece of 8, 16, 32 or
 * 64 rows is read as a block of 16-byte vectors. Two readers:
 *
 *   warp   a piece a warp, all its vectors in flight in registers before the first is used
 *   bulk   bulk copies into a ring in shared memory: one warp finds pieces, a lane each, and starts copies; eight others use what has arrived
 *
 * "in order" is the same kernel over the same memory without slots, lengths and table. Layers are rotated past the L2 and share one table, as
 * layers of a class do. Launches are nodes of a graph. What is read is XORed, a word a piece, and every piece is compared with the host's. */
#include <cuda_runtime.h>

#include <kvgrid/kvgrid_cuda.h>
#include <kvgrid/plane.cuh>

#include "bench/bench.h"

enum { K_ROW = 136, V_ROW = 96, GRAIN = 8 /* rows: pieces are made of these */, LAYERS_MAX = 16, NODES = 96, ITERATIONS = 15, WARMUP = 3,
       BULK_USERS = 8, STAGES_MAX = 64 };
static const size_t PAST_L2 = (size_t)240 << 20, LARGE_COPY = (size_t)512 << 20, LAYER_SHIFT = 4096;

#define CU(call)                                                                             \
    do {                                                                                     \
        cudaError_t cu_error_ = (call);                                                      \
        if (cu_error_ != cudaSuccess) {                                                      \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(cu_error_));               \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

/* ---- what a reader is given */

typedef struct Job {
    KvPlaneRef      k, v;
    const int32_t  *slots; /* [places] */
    const uint32_t *len;   /* [slots] */
    uint32_t        pieces; /* of a place */
    uint32_t        count;  /* of all places */
    uint32_t        runs;   /* 1: a block reads one run of neighbouring pieces; 0: blocks take pieces in turn */
    uint32_t       *sums;   /* [count] */
} Job;

typedef struct Piece {
    const uint8_t *k, *v; /* NULL: past the end of the sequence */
} Piece;

template <int ROWS, bool TABLE> __device__ __forceinline__ Piece locate(const Job &job, uint32_t piece)
{
    if (!TABLE) return {job.k.plane.base + (size_t)piece * ROWS * K_ROW, job.v.plane.base + (size_t)piece * ROWS * V_ROW};
    uint32_t place = piece / job.pieces, row = (piece - place * job.pieces) * ROWS;
    int32_t  slot = job.slots[place];
    if (slot < 0) return {nullptr, nullptr};
    Piece at = {kvg_ref_row(job.k, (uint32_t)slot, row), kvg_ref_row(job.v, (uint32_t)slot, row)}; /* the table is asked beside the length, not after it */
    return row < job.len[slot] ? at : Piece{nullptr, nullptr};
}

/* The pieces of share `b` of `shares`: first, first + step, ... */
typedef struct Share {
    uint32_t first, step, count;
} Share;

__device__ __forceinline__ Share share_of(const Job &job, uint32_t b, uint32_t shares)
{
    if (!job.runs) return {b, shares, b < job.count ? (job.count - b - 1) / shares + 1 : 0};
    uint32_t from = (uint32_t)((uint64_t)job.count * b / shares), to = (uint32_t)((uint64_t)job.count * (b + 1) / shares);
    return {from, 1, to - from};
}

__device__ __forceinline__ uint32_t fold(uint4 sum)
{
    return __reduce_xor_sync(0xffffffffu, sum.x ^ sum.y ^ sum.z ^ sum.w);
}

__device__ __forceinline__ void add(uint4 &sum, uint4 other)
{
    sum.x ^= other.x;
    sum.y ^= other.y;
    sum.z ^= other.z;
    sum.w ^= other.w;
}

/* ---- a piece a warp */

__device__ __forceinline__ uint4 load_once(const uint8_t *at)
{
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
    return v;
}

template <int BYTES, int LOADS> __device__ __forceinline__ void load_piece(const uint8_t *at, uint4 (&data)[LOADS])
{
    const int lane = threadIdx.x & 31;

#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        data[i] = make_uint4(0, 0, 0, 0);
        if (i * 512 + 512 <= BYTES || i * 512 + lane * 16 < BYTES) data[i] = load_once(at + i * 512 + lane * 16);
    }
}

template <int ROWS, bool TABLE> __global__ void __launch_bounds__(256) read_by_warps(const __grid_constant__ Job job)
{
    constexpr int  K_BYTES = ROWS * K_ROW, V_BYTES = ROWS * V_ROW, K_LOADS = (K_BYTES + 511) / 512, V_LOADS = (V_BYTES + 511) / 512;
    const uint32_t warps = blockDim.x / 32;
    const Share    share = share_of(job, blockIdx.x * warps + threadIdx.x / 32, gridDim.x * warps);
    uint32_t       piece = share.first;
    Piece          at = {nullptr, nullptr};

    if (share.count > 0) at = locate<ROWS, TABLE>(job, piece);
    for (uint32_t n = 0; n < share.count; n++) {
        uint4 k[K_LOADS], v[V_LOADS], sum = make_uint4(0, 0, 0, 0);
        Piece next = {nullptr, nullptr};

        if (at.k != nullptr) {
            load_piece<K_BYTES>(at.k, k);
            load_piece<V_BYTES>(at.v, v);
        }
        if (n + 1 < share.count) next = locate<ROWS, TABLE>(job, piece + share.step); /* while those are under way */
        if (at.k != nullptr) {
#pragma unroll
            for (int i = 0; i < K_LOADS; i++) add(sum, k[i]);
#pragma unroll
            for (int i = 0; i < V_LOADS; i++) add(sum, v[i]);
        }
        uint32_t whole = fold(sum);
        if ((threadIdx.x & 31) == 0) job.sums[piece] = whole;
        piece += share.step;
        at = next;
    }
}

/* ---- bulk copies into a ring */

__device__ __forceinline__ uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

__device__ __forceinline__ void barrier_init(uint64_t *barrier)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    uint32_t passed = 0;

    while (!passed) {
        asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(passed) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    }
}

__device__ __forceinline__ void bulk_copy(void *target, const void *source, uint32_t bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(target)), "l"(source), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}

typedef struct Ring {
    uint64_t full[STAGES_MAX], empty[STAGES_MAX];
    uint32_t held[STAGES_MAX]; /* 0: a piece past the end, nothing was copied */
} Ring;

template <int ROWS, bool TABLE> __device__ __forceinline__ void fill_ring(const Job &job, Share share, Piece at, Ring &ring, uint8_t *stage_memory,
                                                                           uint32_t stages)
{
    constexpr uint32_t K_BYTES = ROWS * K_ROW, V_BYTES = ROWS * V_ROW;
    const uint32_t     lane = threadIdx.x & 31;
    uint32_t           stage = 0, round = 0;

    for (uint32_t first = 0; first < share.count; first += 32) {
        Piece    next = {nullptr, nullptr};
        uint32_t n = min(32u, share.count - first), later = first + 32 + lane;

        if (later < share.count) next = locate<ROWS, TABLE>(job, share.first + later * share.step);
        for (uint32_t j = 0; j < n; j++) {
            if (round > 0) barrier_wait(&ring.empty[stage], (round - 1) & 1);
            if (lane == j) {
                uint8_t *target = stage_memory + (size_t)stage * (K_BYTES + V_BYTES);
                ring.held[stage] = at.k != nullptr;
                if (at.k != nullptr) {
                    barrier_expect(&ring.full[stage], K_BYTES + V_BYTES);
                    bulk_copy(target, at.k, K_BYTES, &ring.full[stage]);
                    bulk_copy(target + K_BYTES, at.v, V_BYTES, &ring.full[stage]);
                } else {
                    barrier_arrive(&ring.full[stage]);
                }
            }
            if (++stage == stages) {
                stage = 0;
                round++;
            }
        }
        at = next;
    }
}

/* One piece, from a stage that is full; the stage is empty afterwards. */
template <int ROWS> __device__ __forceinline__ void use_stage(Ring &ring, const uint8_t *at, uint32_t stage, uint32_t round, uint32_t *to)
{
    constexpr uint32_t BYTES = ROWS * (K_ROW + V_ROW), LOADS = (BYTES + 511) / 512;
    const uint32_t     lane = threadIdx.x & 31;
    uint4              sum = make_uint4(0, 0, 0, 0);

    barrier_wait(&ring.full[stage], round & 1);
    if (ring.held[stage]) {
#pragma unroll
        for (uint32_t i = 0; i < LOADS; i++) {
            if (i * 512 + 512 <= BYTES || i * 512 + lane * 16 < BYTES) add(sum, *(const uint4 *)(const void *)(at + i * 512 + lane * 16));
        }
    }
    uint32_t whole = fold(sum); /* every lane has read */
    if (lane == 0) {
        barrier_arrive(&ring.empty[stage]);
        *to = whole;
    }
}

/* A stage is always the same warp's: a wait by parity is right only for one who has seen the round before. */
template <int ROWS> __device__ __forceinline__ void use_ring(const Job &job, Share share, Ring &ring, const uint8_t *stage_memory, uint32_t stages)
{
    uint32_t round = 0;

    for (uint32_t first = 0; first < share.count; first += stages, round++) {
        for (uint32_t stage = threadIdx.x / 32 - 1; stage < stages && first + stage < share.count; stage += BULK_USERS) {
            use_stage<ROWS>(ring, stage_memory + (size_t)stage * ROWS * (K_ROW + V_ROW), stage, round, &job.sums[share.first + (first + stage) * share.step]);
        }
    }
}

template <int ROWS, bool TABLE> __global__ void __launch_bounds__(32 * (1 + BULK_USERS)) read_by_bulk(const __grid_constant__ Job job, uint32_t stages)
{
    extern __shared__ __align__(128) uint8_t stage_memory[];
    __shared__ Ring                          ring;
    const Share                              share = share_of(job, blockIdx.x, gridDim.x);
    Piece                                    first = {nullptr, nullptr};

    if (threadIdx.x < 32 && threadIdx.x < share.count) first = locate<ROWS, TABLE>(job, share.first + threadIdx.x * share.step); /* 32 at once */
    if (threadIdx.x < stages) {
        barrier_init(&ring.full[threadIdx.x]);
        barrier_init(&ring.empty[threadIdx.x]);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); /* the copy engine sees them too */
    }
    __syncthreads();
    if (threadIdx.x < 32) fill_ring<ROWS, TABLE>(job, share, first, ring, stage_memory, stages);
    else use_ring<ROWS>(job, share, ring, stage_memory, stages);
}

/* ---- launch shapes */

typedef struct Shape {
    int      bulk;
    int      rows;    /* of a piece */
    int      warps;   /* of a block; warp alone */
    int      a_sm;    /* blocks a multiprocessor; 0: as many as there are pieces for */
    uint32_t runs;
} Shape;

typedef void (*WarpKernel)(Job);
typedef void (*BulkKernel)(Job, uint32_t);

static WarpKernel warp_kernel(int rows, bool table)
{
    switch (rows) {
    case 8: return table ? read_by_warps<8, true> : read_by_warps<8, false>;
    case 16: return table ? read_by_warps<16, true> : read_by_warps<16, false>;
    case 32: return table ? read_by_warps<32, true> : read_by_warps<32, false>;
    default: return table ? read_by_warps<64, true> : read_by_warps<64, false>;
    }
}

static BulkKernel bulk_kernel(int rows, bool table)
{
    switch (rows) {
    case 16: return table ? read_by_bulk<16, true> : read_by_bulk<16, false>;
    case 32: return table ? read_by_bulk<32, true> : read_by_bulk<32, false>;
    default: return table ? read_by_bulk<64, true> : read_by_bulk<64, false>;
    }
}

static cudaDeviceProp device;

static void launch(const Shape *shape, const Job *job, bool table, cudaStream_t stream)
{
    uint32_t sms = (uint32_t)device.multiProcessorCount;

    if (!shape->bulk) {
        uint32_t whole = (job->count + (uint32_t)shape->warps - 1) / (uint32_t)shape->warps, blocks = shape->a_sm != 0 ? sms * (uint32_t)shape->a_sm : whole;
        warp_kernel(shape->rows, table)<<<blocks < whole ? blocks : whole, 32 * shape->warps, 0, stream>>>(*job);
    } else {
        BulkKernel kernel = bulk_kernel(shape->rows, table);
        size_t     room = device.sharedMemPerMultiprocessor / (size_t)shape->a_sm - device.reservedSharedMemPerBlock - sizeof(Ring) - 128;
        size_t     stage = (size_t)shape->rows * (K_ROW + V_ROW), stages = room / stage;

        if (stages > STAGES_MAX) stages = STAGES_MAX;
        CU(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(stages * stage)));
        kernel<<<sms * (uint32_t)shape->a_sm, 32 * (1 + BULK_USERS), stages * stage, stream>>>(*job, (uint32_t)stages);
    }
    CU(cudaGetLastError());
}

/* ---- one case: layers of `places` sequences by `rows` rows, one table */

typedef struct Case {
    const char *name;
    uint32_t    places, rows;
    double      bar; /* of device-copy bytes/s */
} Case;

typedef struct Layers {
    uint32_t  count, chunks; /* chunks: of all sequences */
    size_t    bytes;         /* one layer's, K and V */
    Job       job[LAYERS_MAX];
    int32_t  *table;         /* host */
    uint32_t *grain[LAYERS_MAX]; /* host: XOR of every 8 rows, K and V, by place in the pool */
} Layers;

static uint64_t random_state = 7;

static uint64_t draw(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void *upload(const void *data, size_t bytes)
{
    void *memory = NULL;
    CU(cudaMalloc(&memory, bytes));
    CU(cudaMemcpy(memory, data, bytes, cudaMemcpyHostToDevice));
    return memory;
}

static int32_t *shuffled(uint32_t count)
{
    int32_t *order = (int32_t *)malloc(count * sizeof *order);

    for (uint32_t i = 0; i < count; i++) order[i] = (int32_t)i;
    for (uint32_t i = count; i-- > 1;) {
        uint32_t j = (uint32_t)(draw() % (i + 1));
        int32_t  t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    return order;
}

static uint32_t xor_of(const uint8_t *bytes, size_t count)
{
    uint64_t sum = 0, word;

    for (size_t i = 0; i < count; i += 8) {
        memcpy(&word, bytes + i, 8);
        sum ^= word;
    }
    return (uint32_t)sum ^ (uint32_t)(sum >> 32);
}

static KvPlaneRef plane_of(const void *base, uint32_t row_bytes, KvFormat format, uint32_t chunks_a_place, const int32_t *table)
{
    KvPlaneRef ref = {};
    ref.plane = {(uint8_t *)(uintptr_t)base, (size_t)64 * row_bytes, 0, (size_t)64 * row_bytes, row_bytes, row_bytes, 128, format};
    ref.rows_per_chunk = 64;
    ref.table_stride = chunks_a_place;
    ref.table = table;
    return ref;
}

static void make_layers(const Case *c, const uint8_t *image, Layers *layers)
{
    uint32_t  chunks_a_place = (c->rows + 63) / 64, *len = (uint32_t *)malloc(c->places * sizeof *len);
    size_t    rows = (size_t)c->places * c->rows;
    int32_t  *slots = shuffled(c->places);

    layers->chunks = c->places * chunks_a_place;
    layers->bytes = rows * (K_ROW + V_ROW);
    layers->count = (uint32_t)(PAST_L2 / layers->bytes + 1);
    layers->table = shuffled(layers->chunks);
    for (uint32_t i = 0; i < c->places; i++) len[i] = c->rows;
    const int32_t  *table = (const int32_t *)upload(layers->table, layers->chunks * sizeof *table), *device_slots = (const int32_t *)upload(slots, c->places * sizeof *slots);
    const uint32_t *device_len = (const uint32_t *)upload(len, c->places * sizeof *len);
    for (uint32_t i = 0; i < layers->count; i++) {
        const uint8_t *k = image + i * LAYER_SHIFT, *v = k + rows * K_ROW; /* no two layers hold the same */
        Job           *job = &layers->job[i];

        *job = {plane_of(upload(k, rows * K_ROW), K_ROW, KVG_Q8_0, chunks_a_place, table),
                plane_of(upload(v, rows * V_ROW), V_ROW, KVG_Q5_1, chunks_a_place, table), device_slots, device_len, 0, 0, 0, NULL};
        CU(cudaMalloc(&job->sums, rows / GRAIN * sizeof(uint32_t)));
        layers->grain[i] = (uint32_t *)malloc(rows / GRAIN * sizeof(uint32_t));
        for (size_t g = 0; g < rows / GRAIN; g++) {
            layers->grain[i][g] = xor_of(k + g * GRAIN * K_ROW, GRAIN * K_ROW) ^ xor_of(v + g * GRAIN * V_ROW, GRAIN * V_ROW);
        }
    }
    /* pieces of a place are found through its slot */
    int32_t *by_place = (int32_t *)malloc(layers->chunks * sizeof *by_place);
    for (uint32_t p = 0; p < c->places; p++) memcpy(by_place + p * chunks_a_place, layers->table + (uint32_t)slots[p] * chunks_a_place, chunks_a_place * sizeof *by_place);
    free(layers->table);
    layers->table = by_place;
    CU(cudaDeviceSynchronize());
    free(len);
    free(slots);
}

static void drop_layers(Layers *layers)
{
    CU(cudaFree((void *)(uintptr_t)layers->job[0].k.table));
    CU(cudaFree((void *)(uintptr_t)layers->job[0].slots));
    CU(cudaFree((void *)(uintptr_t)layers->job[0].len));
    for (uint32_t i = 0; i < layers->count; i++) {
        CU(cudaFree(layers->job[i].k.plane.base));
        CU(cudaFree(layers->job[i].v.plane.base));
        CU(cudaFree(layers->job[i].sums));
        free(layers->grain[i]);
    }
    free(layers->table);
}

static void cut_pieces(const Case *c, Layers *layers, const Shape *shape)
{
    for (uint32_t i = 0; i < layers->count; i++) {
        layers->job[i].pieces = c->rows / (uint32_t)shape->rows;
        layers->job[i].count = layers->job[i].pieces * c->places;
        layers->job[i].runs = shape->runs;
    }
}

static void clear_sums(const Layers *layers)
{
    for (uint32_t i = 0; i < layers->count; i++) CU(cudaMemset(layers->job[i].sums, 0xee, (size_t)layers->job[i].count * sizeof(uint32_t)));
    CU(cudaDeviceSynchronize());
}

/* Pieces whose XOR is another than the host's, over all layers. */
static int wrong_pieces(const Layers *layers, const Shape *shape, bool table)
{
    uint32_t  count = layers->job[0].count, grains = (uint32_t)shape->rows / GRAIN, a_chunk = 64 / (uint32_t)shape->rows;
    uint32_t *sums = (uint32_t *)malloc(count * sizeof *sums);
    int       wrong = 0;

    for (uint32_t i = 0; i < layers->count; i++) {
        CU(cudaMemcpy(sums, layers->job[i].sums, count * sizeof *sums, cudaMemcpyDeviceToHost));
        for (uint32_t p = 0; p < count; p++) {
            uint32_t at = table ? (uint32_t)layers->table[p / a_chunk] * a_chunk + p % a_chunk : p, expected = 0;
            for (uint32_t g = 0; g < grains; g++) expected ^= layers->grain[i][at * grains + g];
            wrong += sums[p] != expected;
        }
    }
    free(sums);
    return wrong;
}

/* ---- timing: a graph of about NODES launches, every layer as often as every other */

template <class Act> static double time_nodes(cudaStream_t stream, int nodes, Act act)
{
    cudaGraph_t     graph;
    cudaGraphExec_t replay;
    cudaEvent_t     from, to;
    double          samples[ITERATIONS];

    CU(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < nodes; i++) act(i);
    CU(cudaStreamEndCapture(stream, &graph));
    CU(cudaGraphInstantiate(&replay, graph, 0));
    CU(cudaEventCreate(&from));
    CU(cudaEventCreate(&to));
    for (int i = -WARMUP; i < ITERATIONS; i++) {
        float ms = 0;
        CU(cudaEventRecord(from, stream));
        CU(cudaGraphLaunch(replay, stream));
        CU(cudaEventRecord(to, stream));
        CU(cudaEventSynchronize(to));
        CU(cudaEventElapsedTime(&ms, from, to));
        if (i >= 0) samples[i] = ms * 1e3 / nodes;
    }
    CU(cudaEventDestroy(from));
    CU(cudaEventDestroy(to));
    CU(cudaGraphExecDestroy(replay));
    CU(cudaGraphDestroy(graph));
    return bench_median(samples, ITERATIONS);
}

/* Bytes read and written a microsecond: of a copy of 512 MiB, and of one that moves as many bytes as a layer has, rotated. */
static double copy_rate(cudaStream_t stream, size_t bytes, int nodes)
{
    uint8_t *from, *to;
    size_t   each = bytes / 2;

    CU(cudaMalloc(&from, LARGE_COPY));
    CU(cudaMalloc(&to, LARGE_COPY));
    CU(cudaMemset(from, 0x37, LARGE_COPY));
    CU(cudaDeviceSynchronize());
    size_t places = LARGE_COPY / each;
    double us = time_nodes(stream, nodes, [&](int i) {
        size_t at = (size_t)i % places * each;
        CU(cudaMemcpyAsync(to + at, from + at, each, cudaMemcpyDeviceToDevice, stream));
    });
    CU(cudaFree(from));
    CU(cudaFree(to));
    return 2.0 * (double)each / us;
}

/* ---- results */

typedef struct Result {
    Shape  shape;
    double us[2]; /* in order, through the table */
    int    wrong;
} Result;

static int json, wrong_total, missed;

static void measure(const Case *c, Layers *layers, const Shape *shape, cudaStream_t stream, Result *result)
{
    *result = {*shape, {0, 0}, 0};
    cut_pieces(c, layers, shape);
    for (int table = 0; table < 2; table++) {
        clear_sums(layers);
        launch(shape, &layers->job[0], table != 0, stream); /* loaded, and its shared memory set, before anything is captured */
        CU(cudaStreamSynchronize(stream));
        result->us[table] = time_nodes(stream, (int)(NODES / layers->count * layers->count), [&](int i) { launch(shape, &layers->job[(uint32_t)i % layers->count], table != 0, stream); });
        CU(cudaStreamSynchronize(stream));
        result->wrong += wrong_pieces(layers, shape, table != 0);
    }
    wrong_total += result->wrong;
}

static const char *shape_text(const Shape *shape)
{
    static char text[4][96];
    static int  turn;
    char       *to = text[turn++ % 4];
    const char *order = shape->runs ? "runs" : "in turn";

    if (shape->bulk) snprintf(to, sizeof *text, "bulk, pieces of %d rows, %d blocks a SM, %s", shape->rows, shape->a_sm, order);
    else if (shape->a_sm != 0) snprintf(to, sizeof *text, "warp, %d rows in flight, blocks of %d warps, %d a SM, %s", shape->rows, shape->warps, shape->a_sm, order);
    else snprintf(to, sizeof *text, "warp, %d rows in flight, blocks of %d warps, all at once", shape->rows, shape->warps);
    return to;
}

static void print_best(const Case *c, const Layers *layers, const Result *results, int count, double large, double same)
{
    const Result *best[2] = {results, results};

    for (int table = 0; table < 2; table++) {
        for (int i = 1; i < count; i++) best[table] = results[i].us[table] < best[table]->us[table] ? &results[i] : best[table];
    }
    double rate = (double)layers->bytes / best[1]->us[1], of_copy = rate / large, of_order = best[0]->us[0] / best[1]->us[1];
    int    low = (of_copy < c->bar) + (of_order < 0.93);
    missed += low;
    if (json) {
        printf("{\"bench\":\"read_cuda\",\"case\":\"%s\",\"places\":%u,\"rows\":%u,\"of_copy\":%.3f,\"of_order\":%.3f,\"bar\":%.2f,\"us\":%.2f,\"us_in_order\":%.2f,\"gbps\":%.1f,"
               "\"copy_gbps\":%.1f,\"same_copy_gbps\":%.1f,\"shape\":\"%s\",\"shape_in_order\":\"%s\"}\n", c->name, c->places, c->rows, of_copy, of_order, c->bar, best[1]->us[1],
               best[0]->us[0], rate * 1e-3, large * 1e-3, same * 1e-3, shape_text(&best[1]->shape), shape_text(&best[0]->shape));
        return;
    }
    printf("%5.3f of copy (bar %.2f)  %5.3f of in order (bar 0.93)  %s: %.2f us, %.0f GB/s (%s); in order %.2f us (%s); copy of 512 MiB %.0f GB/s, of as many bytes %.0f  %s\n", of_copy,
           c->bar, of_order, c->name, best[1]->us[1], rate * 1e-3, shape_text(&best[1]->shape), best[0]->us[0], shape_text(&best[0]->shape), large * 1e-3, same * 1e-3,
           low ? "BELOW" : "ok");
    printf("#  of copy  of in order  table (us)  order (us)  GB/s (table)  wrong  shape\n");
    for (int i = 0; i < count; i++) {
        double own = (double)layers->bytes / results[i].us[1];
        printf("   %7.3f  %11.3f  %10.2f  %10.2f  %12.0f  %5d  %s\n", own / large, results[i].us[0] / results[i].us[1], results[i].us[1], results[i].us[0], own * 1e-3,
               results[i].wrong, shape_text(&results[i].shape));
    }
    fflush(stdout);
}

static const Shape shapes[] = {
    {1, 16, 0, 1, 0}, {1, 16, 0, 1, 1}, {1, 32, 0, 1, 0}, {1, 32, 0, 1, 1}, {1, 64, 0, 1, 0}, {1, 64, 0, 1, 1}, {1, 16, 0, 2, 0}, {1, 16, 0, 2, 1},
    {1, 32, 0, 2, 0}, {1, 32, 0, 2, 1}, {1, 64, 0, 2, 0}, {1, 32, 0, 3, 0}, {0, 8, 4, 0, 0}, {0, 8, 8, 0, 0}, {0, 16, 4, 0, 0}, {0, 16, 8, 0, 0},
    {0, 32, 2, 0, 0}, {0, 32, 4, 0, 0}, {0, 64, 1, 0, 0}, {0, 64, 2, 0, 0}, {0, 8, 8, 4, 0}, {0, 8, 8, 8, 0}, {0, 16, 8, 4, 0}, {0, 16, 8, 4, 1},
    {0, 32, 8, 2, 0}, {0, 32, 8, 3, 0}, {0, 32, 8, 2, 1}, {0, 64, 8, 1, 0}, {0, 64, 4, 2, 0}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void run_case(const Case *c, const uint8_t *image, double large, cudaStream_t stream)
{
    static Layers layers;
    static Result results[SHAPES];

    make_layers(c, image, &layers);
    for (int i = 0; i < SHAPES; i++) measure(c, &layers, &shapes[i], stream, &results[i]);
    print_best(c, &layers, results, SHAPES, large, copy_rate(stream, layers.bytes, NODES));
    drop_layers(&layers);
}

int main(int argc, char **argv)
{
    static const Case cases[] = {{"256 sequences x 512 rows", 256, 512, 0.75}, {"16 sequences x 16384 rows", 16, 16384, 0.85}};
    char              why[512], how[256];
    cudaStream_t      stream;
    size_t            image_bytes = (size_t)16 * 16384 * (K_ROW + V_ROW) + LAYERS_MAX * LAYER_SHIFT;
    uint64_t         *image = (uint64_t *)malloc(image_bytes);

    json = bench_has(argc, argv, "--json");
    if (kvg_cuda_probe(why, sizeof why) == 0) {
        printf("skipped: %s\n", why);
        free(image);
        return 77;
    }
    CU(cudaGetDeviceProperties(&device, 0));
    CU(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (size_t i = 0; i < image_bytes / 8; i++) image[i] = draw();
    double large = copy_rate(stream, 2 * LARGE_COPY, 2);
    if (!json) {
        snprintf(how, sizeof how, "device 0 %s  warmup %d  iters %d x %d nodes of a graph  check every piece of every layer  seed 7", device.name, WARMUP, ITERATIONS, NODES);
        bench_header("bench_read_cuda", how);
        printf("# one layer, 136 + 96 bytes a row, chunks of 64 rows; layers rotated past the L2. GB/s: bytes read; of copy: over bytes read and written of the copy of 512 MiB\n");
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(&cases[i], (const uint8_t *)image, large, stream);
    if (!json) printf("# wrong pieces %d %s, %d below their bars\n", wrong_total, wrong_total == 0 ? "OK" : "FAILED", missed);
    CU(cudaStreamDestroy(stream));
    free(image);
    return wrong_total != 0;
}

/* How fast are one layer's rows read on a GPU through chunk tables, against the same bytes read in order and a device copy in the same run?
 *
 * A row is what an attention kernel reads for one head of 128 elements: 136 bytes of q8_0 K and 96 bytes of q5_1 V, in chunks of 64 rows that
 * stand in random order, found by slot, length and table as plane.cuh says. Rows of a chunk and head are contiguous, so a piece of 16, 32 or
 * 64 rows is read as a block of 16-byte vectors. Two readers:
 *
 *   warp   a piece a warp, all its vectors in flight in registers before the first is used
 *   bulk   bulk copies into a ring in shared memory: one warp finds pieces, a lane each, and starts copies; eight others use what has arrived
 *
 * A launch may be ahead of its turn (programmatic dependent launch): a block looks its pieces up while the kernel before it ends, and waits for that
 * one before it reads a row. The verdict is of the best shape either way; the best of the ordinary launches stands below it.
 *
 * "in order" is the same kernel over the same memory without slots, lengths and table. Layers are rotated past the L2 and share one table, as
 * layers of a class do. Launches are nodes of a graph. What is read is XORed, a word a piece, and every piece is compared with the host's.
 * --json prints a line a case. --direct: place i is slot i and no slots are read, which shows what one look-up costs. */
#include <cuda_runtime.h>

#include <kvgrid/kvgrid_cuda.h>

#include "bench/bench.h"
#include "bench/cuda/read_kernels.cuh"

enum { GRAIN = 8 /* rows: pieces are made of these */, LAYERS_MAX = 16, NODES = 96, ITERATIONS = 15, WARMUP = 3 };
static const size_t PAST_L2 = (size_t)240 << 20, LARGE_COPY = (size_t)512 << 20, LAYER_SHIFT = 4096;

#define CU(call)                                                                             \
    do {                                                                                     \
        cudaError_t cu_error_ = (call);                                                      \
        if (cu_error_ != cudaSuccess) {                                                      \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(cu_error_));               \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

static int json, direct, wrong_total, missed;

/* ---- launch shapes */

typedef struct Shape {
    int      bulk;
    int      rows;    /* of a piece */
    int      warps;   /* of a block; warp alone */
    int      a_sm;    /* blocks a multiprocessor; 0: as many as there are pieces for */
    uint32_t runs;
    int      ahead;
} Shape;

typedef void (*WarpKernel)(Job);
typedef void (*BulkKernel)(Job, uint32_t);

static WarpKernel warp_kernel(int rows, bool table)
{
    switch (rows) {
    case 16: return table ? read_by_warps<16, true> : read_by_warps<16, false>;
    case 32: return table ? read_by_warps<32, true> : read_by_warps<32, false>;
    default: return table ? read_by_warps<64, true> : read_by_warps<64, false>;
    }
}

static BulkKernel bulk_kernel(int rows, bool table)
{
    switch (rows) {
    case 32: return table ? read_by_bulk<32, true> : read_by_bulk<32, false>;
    default: return table ? read_by_bulk<64, true> : read_by_bulk<64, false>;
    }
}

static cudaDeviceProp device;

static void launch(const Shape *shape, const Job *job, bool table, cudaStream_t stream)
{
    uint32_t            sms = (uint32_t)device.multiProcessorCount;
    cudaLaunchAttribute ahead = {};
    cudaLaunchConfig_t  config = {};

    ahead.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    ahead.val.programmaticStreamSerializationAllowed = 1;
    config.stream = stream;
    config.attrs = &ahead;
    config.numAttrs = shape->ahead ? 1 : 0;
    if (!shape->bulk) {
        uint32_t whole = (job->count + (uint32_t)shape->warps - 1) / (uint32_t)shape->warps, blocks = shape->a_sm != 0 ? sms * (uint32_t)shape->a_sm : whole;
        config.gridDim = dim3(blocks < whole ? blocks : whole);
        config.blockDim = dim3(32 * (uint32_t)shape->warps);
        CU(cudaLaunchKernelEx(&config, warp_kernel(shape->rows, table), *job));
    } else {
        BulkKernel kernel = bulk_kernel(shape->rows, table);
        size_t     room = device.sharedMemPerMultiprocessor / (size_t)shape->a_sm - device.reservedSharedMemPerBlock - sizeof(Ring) - 128;
        size_t     stage = (size_t)shape->rows * (K_ROW + V_ROW), stages = room / stage;

        if (stages > STAGES_MAX) stages = STAGES_MAX;
        CU(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(stages * stage)));
        config.gridDim = dim3(sms * (uint32_t)shape->a_sm);
        config.blockDim = dim3(32 * (1 + BULK_USERS));
        config.dynamicSmemBytes = stages * stage;
        CU(cudaLaunchKernelEx(&config, kernel, *job, (uint32_t)stages));
    }
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

    for (uint32_t i = 0; direct && i < c->places; i++) slots[i] = (int32_t)i;
    layers->chunks = c->places * chunks_a_place;
    layers->bytes = rows * (K_ROW + V_ROW);
    layers->count = (uint32_t)(PAST_L2 / layers->bytes + 1);
    layers->table = shuffled(layers->chunks);
    for (uint32_t i = 0; i < c->places; i++) len[i] = c->rows;
    const int32_t  *table = (const int32_t *)upload(layers->table, layers->chunks * sizeof *table);
    const int32_t  *device_slots = direct ? NULL : (const int32_t *)upload(slots, c->places * sizeof *slots);
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

/* Bytes read and written a microsecond by copies of `each` bytes, one after the other, rotated. Launched, not captured: as a node of a graph a
 * large copy goes another, slower way. */
static double copy_rate(cudaStream_t stream, size_t each, int copies)
{
    uint8_t    *from, *to;
    cudaEvent_t begin, end;
    double      samples[ITERATIONS];
    size_t      places = LARGE_COPY / each;

    CU(cudaMalloc(&from, LARGE_COPY));
    CU(cudaMalloc(&to, LARGE_COPY));
    CU(cudaMemset(from, 0x37, LARGE_COPY));
    CU(cudaDeviceSynchronize());
    CU(cudaEventCreate(&begin));
    CU(cudaEventCreate(&end));
    for (int i = -WARMUP; i < ITERATIONS; i++) {
        float ms = 0;
        CU(cudaEventRecord(begin, stream));
        for (int c = 0; c < copies; c++) {
            size_t at = (size_t)c % places * each;
            CU(cudaMemcpyAsync(to + at, from + at, each, cudaMemcpyDeviceToDevice, stream));
        }
        CU(cudaEventRecord(end, stream));
        CU(cudaEventSynchronize(end));
        CU(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 0) samples[i] = ms * 1e3 / copies;
    }
    CU(cudaEventDestroy(begin));
    CU(cudaEventDestroy(end));
    CU(cudaFree(from));
    CU(cudaFree(to));
    return 2.0 * (double)each / bench_median(samples, ITERATIONS);
}

/* ---- results */

typedef struct Result {
    Shape  shape;
    double us[2]; /* in order, through the table */
    int    wrong;
} Result;


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
    static char text[4][112];
    static int  turn;
    char       *to = text[turn++ % 4], where[32] = "all at once";

    if (shape->a_sm != 0) snprintf(where, sizeof where, "%d a SM, %s", shape->a_sm, shape->runs ? "runs" : "in turn");
    if (shape->bulk) snprintf(to, sizeof *text, "bulk, pieces of %d rows, blocks %s%s", shape->rows, where, shape->ahead ? ", ahead" : "");
    else snprintf(to, sizeof *text, "warp, %d rows in flight, blocks of %d warps, %s%s", shape->rows, shape->warps, where, shape->ahead ? ", ahead" : "");
    return to;
}

/* The best of all shapes, or of the ordinary launches alone. */
static const Result *best_of(const Result *results, int count, int table, int ordinary)
{
    const Result *best = NULL;

    for (int i = 0; i < count; i++) {
        if ((!ordinary || !results[i].shape.ahead) && (best == NULL || results[i].us[table] < best->us[table])) best = &results[i];
    }
    return best;
}

static void print_best(const Case *c, const Layers *layers, const Result *results, int count, double large, double same, int ordinary)
{
    const Result *order = best_of(results, count, 0, ordinary), *table = best_of(results, count, 1, ordinary);
    double        rate = (double)layers->bytes / table->us[1], of_copy = rate / large, of_order = order->us[0] / table->us[1];
    int           low = (of_copy < c->bar) + (of_order < 0.93);

    if (!ordinary) missed += low;
    if (json) {
        printf("{\"bench\":\"read_cuda\",\"case\":\"%s\",\"places\":%u,\"rows\":%u,\"ordinary\":%d,\"of_copy\":%.3f,\"of_order\":%.3f,\"bar\":%.2f,\"us\":%.2f,"
               "\"us_in_order\":%.2f,\"gbps\":%.1f,\"copy_gbps\":%.1f,\"same_copy_gbps\":%.1f,\"shape\":\"%s\",\"shape_in_order\":\"%s\"}\n", c->name, c->places, c->rows, ordinary,
               of_copy, of_order, c->bar, table->us[1], order->us[0], rate * 1e-3, large * 1e-3, same * 1e-3, shape_text(&table->shape), shape_text(&order->shape));
        return;
    }
    printf("%s%5.3f of copy (bar %.2f)  %5.3f of in order (bar 0.93)  %s: %.2f us, %.0f GB/s (%s); in order %.2f us (%s)  %s\n", ordinary ? "#  ordinary launches: " : "", of_copy,
           c->bar, of_order, c->name, table->us[1], rate * 1e-3, shape_text(&table->shape), order->us[0], shape_text(&order->shape), low ? "BELOW" : "ok");
    if (ordinary) printf("#  copy of 512 MiB %.0f GB/s, of as many bytes as a layer moves %.0f GB/s, read and written\n", large * 1e-3, same * 1e-3);
}

static void print_all(const Layers *layers, const Result *results, int count, double large)
{
    if (json) return;
    printf("#  of copy  of in order  table (us)  order (us)  GB/s (table)  wrong  shape\n");
    for (int i = 0; i < count; i++) {
        double own = (double)layers->bytes / results[i].us[1];
        printf("   %7.3f  %11.3f  %10.2f  %10.2f  %12.0f  %5d  %s\n", own / large, results[i].us[0] / results[i].us[1], results[i].us[1], results[i].us[0], own * 1e-3,
               results[i].wrong, shape_text(&results[i].shape));
    }
    fflush(stdout);
}

/* Each is launched in its turn, and ahead of it. */
static const Shape shapes[] = {{1, 64, 0, 1, 0, 0}, {1, 64, 0, 2, 0, 0}, {1, 32, 0, 2, 1, 0}, {0, 16, 4, 0, 0, 0}, {0, 32, 2, 0, 0, 0}, {0, 32, 4, 0, 0, 0},
                               {0, 64, 1, 0, 0, 0}, {0, 64, 2, 0, 0, 0}, {0, 16, 8, 4, 0, 0}, {0, 32, 8, 3, 0, 0}, {0, 32, 8, 2, 1, 0}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void run_case(const Case *c, const uint8_t *image, double large, cudaStream_t stream)
{
    static Layers layers;
    static Result results[2 * SHAPES];
    int           count = 0;

    make_layers(c, image, &layers);
    for (int i = 0; i < SHAPES; i++) {
        for (int ahead = 0; ahead < 2; ahead++) {
            Shape shape = shapes[i];
            shape.ahead = ahead;
            measure(c, &layers, &shape, stream, &results[count++]);
        }
    }
    double same = copy_rate(stream, layers.bytes / 2, 32);
    for (int ordinary = 0; ordinary < 2; ordinary++) print_best(c, &layers, results, count, large, same, ordinary);
    print_all(&layers, results, count, large);
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
    direct = bench_has(argc, argv, "--direct");
    if (kvg_cuda_probe(why, sizeof why) == 0) {
        printf("skipped: %s\n", why);
        free(image);
        return 77;
    }
    CU(cudaGetDeviceProperties(&device, 0));
    CU(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (size_t i = 0; i < image_bytes / 8; i++) image[i] = draw();
    double large = copy_rate(stream, LARGE_COPY, 1);
    if (!json) {
        snprintf(how, sizeof how, "device 0 %s  warmup %d  iters %d x %d nodes of a graph  check every piece of every layer  seed 7%s", device.name, WARMUP, ITERATIONS, NODES,
                 direct ? "  place i is slot i" : "");
        bench_header("bench_read_cuda", how);
        printf("# one layer, 136 + 96 bytes a row, chunks of 64 rows; layers rotated past the L2. GB/s: bytes read; of copy: over bytes read and written of the copy of 512 MiB\n");
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(&cases[i], (const uint8_t *)image, large, stream);
    if (!json) printf("# wrong pieces %d %s, %d below their bars\n", wrong_total, wrong_total == 0 ? "OK" : "FAILED", missed);
    CU(cudaStreamDestroy(stream));
    free(image);
    return wrong_total != 0;
}

/* How fast are rows encoded and decoded on a GPU, against a copy that moves the same bytes in the same run?
 *
 *   large   65536 and 4096 rows of a 1024+1024-element layer, 4096 of a 128+128-element one: K and V in one launch, through a chunk table.
 *           Bytes count once read and once written; buffers are rotated past the L2.
 *   small   a batch of 64 and of 256 sequences by one row, 128+128 and 1024+1024 elements, in a graph, beside a graph of empty nodes
 * Before and after it is timed, each case's bytes are compared with the host's. --json prints a line a case. */
#include <cuda_runtime.h>

#include <kvgrid/kvgrid_cuda.h>

#include "bench/bench.h"

enum { ITERATIONS = 30, WARMUP = 5, NODES = 200, SETS_MAX = 64 };
static const size_t PAST_L2 = (size_t)192 << 20;

#define CU(call)                                                                             \
    do {                                                                                     \
        cudaError_t cu_error_ = (call);                                                      \
        if (cu_error_ != cudaSuccess) {                                                      \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(cu_error_));               \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)
#define OK(call)                                                     \
    do {                                                             \
        if ((call) != KVG_OK) {                                      \
            fprintf(stderr, "%s: %s\n", #call, kvg_last_error());    \
            exit(1);                                                 \
        }                                                            \
    } while (0)

__global__ void empty_kernel() {}

typedef struct Case {
    const char *name;
    KvFormat    k, v;
    uint32_t    heads, dim, places, rows; /* rows of each place */
    int         decode;                   /* to bf16 */
    int         by_length;                /* small: rows end at the staged length, which is found by the slot; else first rows are given */
} Case;

typedef struct Set { /* one rotation's buffers */
    KvRowsBatch batch;
    void       *in[2], *planes[2];
} Set;

static int json, wrong_total, missed;

/* ---- buffers */

static uint64_t random_state = 7;

static uint32_t draw(void)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(random_state >> 33);
}

static void *upload(const void *data, size_t bytes)
{
    void *memory = NULL;
    CU(cudaMalloc(&memory, bytes));
    CU(cudaMemcpy(memory, data, bytes, cudaMemcpyHostToDevice));
    return memory;
}

static uint32_t chunks_of(const Case *c)
{
    return (c->rows + 63) / 64;
}

/* Chunks in random order, as after a while of serving. */
static int32_t *make_table(const Case *c)
{
    uint32_t count = c->places * chunks_of(c);
    int32_t *table = (int32_t *)malloc(count * sizeof *table);

    for (uint32_t i = 0; i < count; i++) table[i] = (int32_t)i;
    for (uint32_t i = count; i-- > 1;) {
        uint32_t j = draw() % (i + 1);
        int32_t  t = table[i];
        table[i] = table[j];
        table[j] = t;
    }
    return table;
}

static size_t element_bytes(const Case *c)
{
    return (size_t)c->places * c->rows * c->heads * c->dim * 2; /* of one plane, bf16 */
}

static uint64_t head_bytes(KvFormat format, uint32_t dim)
{
    uint64_t bytes = 0;
    OK(kvg_format_row_bytes(format, dim, &bytes));
    return bytes;
}

static size_t moved_bytes(const Case *c)
{
    return 2 * element_bytes(c) + (size_t)c->places * c->rows * c->heads * (head_bytes(c->k, c->dim) + head_bytes(c->v, c->dim));
}

static uint16_t *random_elements(size_t count)
{
    uint16_t *elements = (uint16_t *)malloc(count * 2);
    for (size_t i = 0; i < count; i++) {
        float    value = (float)((double)(int32_t)(draw() << 1) / (double)(1 << 29)) * (float)((draw() & 255) + 1) / 256.0f;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        elements[i] = (uint16_t)(bits >> 16);
    }
    return elements;
}

static Set make_set(const Case *c, const uint16_t *elements, const int32_t *table)
{
    Set      set = {};
    KvFormat formats[2] = {c->k, c->v};

    set.batch.planes = 2;
    set.batch.heads = c->heads;
    set.batch.places = c->places;
    set.batch.rows_max = c->rows;
    set.batch.token_pitch = c->rows;
    for (int p = 0; p < 2; p++) {
        KvBatchPlane *plane = &set.batch.plane[p];
        uint64_t      bytes = head_bytes(formats[p], c->dim);

        plane->to.plane = {NULL, bytes * 64 * c->heads, 0, bytes * 64, bytes, bytes, c->dim, formats[p]};
        plane->to.rows_per_chunk = 64;
        plane->to.table_stride = chunks_of(c);
        plane->to.table = (const int32_t *)upload(table, (size_t)c->places * chunks_of(c) * sizeof *table);
        CU(cudaMalloc(&set.planes[p], (size_t)c->places * chunks_of(c) * plane->to.plane.chunk_bytes));
        plane->to.plane.base = (uint8_t *)set.planes[p];
        set.in[p] = upload(elements, element_bytes(c));
        plane->in = {set.in[p], KVG_BF16, (int64_t)c->heads * c->dim, (int64_t)c->dim};
    }
    return set;
}

static void drop_set(Set *set)
{
    for (int p = 0; p < 2; p++) {
        CU(cudaFree((void *)(uintptr_t)set->batch.plane[p].to.table));
        CU(cudaFree(set->planes[p]));
        CU(cudaFree(set->in[p]));
    }
}

/* ---- correctness: rows of the first and last places, all heads, K and V */

static int wrong_rows(const Case *c, const Set *set, const uint16_t *elements, const int32_t *table)
{
    int      wrong = 0;
    uint8_t  stored[8192], expected[8192];

    for (uint32_t sample = 0; sample < 64; sample++) {
        uint32_t place = draw() % c->places, row = sample < 2 ? sample * (c->rows - 1) : draw() % c->rows, head = draw() % c->heads;
        for (int p = 0; p < 2; p++) {
            const KvPlane *plane = &set->batch.plane[p].to.plane;
            size_t         at = (size_t)table[place * chunks_of(c) + row / 64] * plane->chunk_bytes + head * plane->head_stride + row % 64 * plane->row_stride;
            size_t         element = (((size_t)place * c->rows + row) * c->heads + head) * c->dim;

            kvg_encode(plane->format, KVG_BF16, elements + element, c->dim, expected, NULL);
            CU(cudaMemcpy(stored, plane->base + at, plane->head_bytes, cudaMemcpyDeviceToHost));
            wrong += memcmp(stored, expected, plane->head_bytes) != 0;
        }
    }
    return wrong;
}

/* ---- timing */

typedef struct Timing {
    double min, median, p99; /* us */
} Timing;

static Timing summary(double *samples, int count)
{
    Timing t;
    t.median = bench_median(samples, (size_t)count);
    t.min = samples[0];
    t.p99 = bench_percentile(samples, (size_t)count, 99.0);
    return t;
}

static void run_case(const Case *c, const Set *set, cudaStream_t stream)
{
    if (c->decode) OK(kvg_decode_batch_launch(&set->batch, stream));
    else OK(kvg_encode_batch_launch(&set->batch, stream));
}

/* Several launches between two events, so that a launch's own cost hides behind the one before. */
template <class Act> static Timing time_each(cudaStream_t stream, int launches, Act act)
{
    cudaEvent_t from, to;
    double      samples[ITERATIONS];

    CU(cudaEventCreate(&from));
    CU(cudaEventCreate(&to));
    for (int i = -WARMUP; i < ITERATIONS; i++) {
        float ms = 0;
        CU(cudaEventRecord(from, stream));
        for (int k = 0; k < launches; k++) act(k);
        CU(cudaEventRecord(to, stream));
        CU(cudaEventSynchronize(to));
        CU(cudaEventElapsedTime(&ms, from, to));
        if (i >= 0) samples[i] = ms * 1e3 / launches;
    }
    CU(cudaEventDestroy(from));
    CU(cudaEventDestroy(to));
    return summary(samples, ITERATIONS);
}

static void print_large(const Case *c, Timing t, Timing copy, int wrong, double bar)
{
    double bytes = (double)moved_bytes(c), ratio = copy.median / t.median;
    int    ok = wrong == 0 && ratio >= bar;

    wrong_total += wrong;
    missed += ratio < bar;
    if (json) {
        printf("{\"bench\":\"encode_cuda\",\"case\":\"%s\",\"rows\":%u,\"heads\":%u,\"dim\":%u,\"ratio\":%.3f,\"us\":%.2f,\"us_min\":%.2f,\"us_p99\":%.2f,\"gbps\":%.1f,"
               "\"copy_us\":%.2f,\"copy_gbps\":%.1f,\"wrong\":%d}\n", c->name, c->rows, c->heads, c->dim, ratio, t.median, t.min, t.p99,
               bytes / t.median * 1e-3, copy.median, bytes / copy.median * 1e-3, wrong);
    } else {
        printf("%-22s %6u %5u+%-5u %6.3f %9.2f %9.2f %9.2f %8.1f %9.2f %8.1f %6d  %s\n", c->name, c->rows, c->heads * c->dim, c->heads * c->dim, ratio,
               t.min, t.median, t.p99, bytes / t.median * 1e-3, copy.median, bytes / copy.median * 1e-3, wrong, ok ? "ok" : ratio < bar ? "below 0.85" : "WRONG");
    }
    fflush(stdout);
}

static void large(const Case *c, cudaStream_t stream)
{
    static Set sets[SETS_MAX];
    uint16_t  *elements = random_elements((size_t)c->places * c->rows * c->heads * c->dim);
    int32_t   *table = make_table(c);
    size_t     bytes = moved_bytes(c) / 2;
    int        count = (int)(PAST_L2 / bytes + 2), wrong;
    uint8_t   *from, *to;

    if (count > SETS_MAX) count = SETS_MAX;
    for (int i = 0; i < count; i++) {
        sets[i] = make_set(c, elements, table);
    }
    CU(cudaDeviceSynchronize()); /* an upload from pageable memory returns before its last part has arrived, and `stream` would not wait for it */
    for (int i = 0; i < count; i++) OK(kvg_encode_batch_launch(&sets[i].batch, stream));
    CU(cudaStreamSynchronize(stream));
    wrong = wrong_rows(c, &sets[count - 1], elements, table);
    Timing t = time_each(stream, count, [&](int k) { run_case(c, &sets[k], stream); });
    if (!c->decode) wrong += wrong_rows(c, &sets[0], elements, table); /* what the timed launches left */
    CU(cudaMalloc(&from, bytes * count));
    CU(cudaMalloc(&to, bytes * count));
    CU(cudaMemset(from, 0x37, bytes * count));
    Timing copy = time_each(stream, count, [&](int k) { CU(cudaMemcpyAsync(to + bytes * k, from + bytes * k, bytes, cudaMemcpyDeviceToDevice, stream)); });
    print_large(c, t, copy, wrong, 0.85);
    CU(cudaFree(from));
    CU(cudaFree(to));
    for (int i = 0; i < count; i++) drop_set(&sets[i]);
    free(elements);
    free(table);
}

/* ---- small batches in a graph */

template <class Act> static Timing time_nodes(cudaStream_t stream, Act act)
{
    cudaGraph_t     graph;
    cudaGraphExec_t replay;

    CU(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < NODES; i++) act();
    CU(cudaStreamEndCapture(stream, &graph));
    CU(cudaGraphInstantiate(&replay, graph, 0));
    Timing t = time_each(stream, 1, [&](int) { CU(cudaGraphLaunch(replay, stream)); });
    CU(cudaGraphExecDestroy(replay));
    CU(cudaGraphDestroy(graph));
    t.min /= NODES;
    t.median /= NODES;
    t.p99 /= NODES;
    return t;
}

static void small(const Case *c, double bar, cudaStream_t stream)
{
    uint16_t *elements = random_elements((size_t)c->places * c->rows * c->heads * c->dim);
    int32_t  *table = make_table(c), *slots = (int32_t *)malloc(c->places * 4);
    uint32_t *rows = (uint32_t *)malloc(c->places * 4), *staged = (uint32_t *)malloc(c->places * 4);
    uint32_t *first = (uint32_t *)calloc(c->places, 4), *tokens = (uint32_t *)malloc(c->places * 4);
    Set       set = make_set(c, elements, table);

    for (uint32_t i = 0; i < c->places; i++) {
        slots[i] = (int32_t)i;
        rows[i] = staged[i] = c->rows;
        tokens[i] = i * c->rows;
    }
    set.batch.slots = (const int32_t *)upload(slots, c->places * 4);
    set.batch.rows = (const uint32_t *)upload(rows, c->places * 4);
    if (c->by_length) {
        set.batch.len_staged = (const uint32_t *)upload(staged, c->places * 4);
    } else {
        set.batch.first_row = (const uint32_t *)upload(first, c->places * 4);
    }
    set.batch.first_token = (const uint32_t *)upload(tokens, c->places * 4);
    CU(cudaDeviceSynchronize()); /* uploads have arrived */
    OK(kvg_encode_batch_launch(&set.batch, stream));
    CU(cudaStreamSynchronize(stream));
    int    wrong = wrong_rows(c, &set, elements, table);
    Timing t = time_nodes(stream, [&]() { OK(kvg_encode_batch_launch(&set.batch, stream)); });
    Timing nothing = time_nodes(stream, [&]() { empty_kernel<<<1, 32, 0, stream>>>(); });
    wrong_total += wrong;
    missed += bar > 0 && t.median > bar;
    if (json) {
        printf("{\"bench\":\"encode_cuda\",\"case\":\"%s\",\"sequences\":%u,\"heads\":%u,\"dim\":%u,\"us\":%.3f,\"us_min\":%.3f,\"us_p99\":%.3f,\"empty_us\":%.3f,\"bar_us\":%.2f,"
               "\"wrong\":%d}\n", c->name, c->places, c->heads, c->dim, t.median, t.min, t.p99, nothing.median, bar, wrong);
    } else {
        printf("%-22s %6u %5u+%-5u %9.3f %9.3f %9.3f %9.3f %6.2f %6d  %s\n", c->name, c->places, c->heads * c->dim, c->heads * c->dim, t.min, t.median, t.p99,
               nothing.median, bar, wrong, wrong != 0 ? "WRONG" : bar > 0 && t.median > bar ? "above the bar" : "ok");
    }
    fflush(stdout);
    CU(cudaFree((void *)(uintptr_t)set.batch.slots));
    CU(cudaFree((void *)(uintptr_t)set.batch.rows));
    CU(cudaFree((void *)(uintptr_t)set.batch.len_staged));
    CU(cudaFree((void *)(uintptr_t)set.batch.first_row));
    CU(cudaFree((void *)(uintptr_t)set.batch.first_token));
    drop_set(&set);
    free(slots);
    free(rows);
    free(staged);
    free(first);
    free(tokens);
    free(elements);
    free(table);
}

int main(int argc, char **argv)
{
    static const Case larges[] = {
        {"bf16 to q8_0, q5_1", KVG_Q8_0, KVG_Q5_1, 8, 128, 1, 65536, 0, 0}, {"bf16 to q8_0, q8_0", KVG_Q8_0, KVG_Q8_0, 8, 128, 1, 65536, 0, 0},
        {"bf16 to q5_1, q5_1", KVG_Q5_1, KVG_Q5_1, 8, 128, 1, 65536, 0, 0}, {"bf16 to fp8, fp8", KVG_FP8, KVG_FP8, 8, 128, 1, 65536, 0, 0},
        {"bf16 to bf16, bf16", KVG_BF16, KVG_BF16, 8, 128, 1, 65536, 0, 0}, {"bf16 to q4_0, q4_0", KVG_Q4_0, KVG_Q4_0, 8, 128, 1, 65536, 0, 0},
        {"q8_0, q5_1 to bf16", KVG_Q8_0, KVG_Q5_1, 8, 128, 1, 65536, 1, 0}, {"fp8, fp8 to bf16", KVG_FP8, KVG_FP8, 8, 128, 1, 65536, 1, 0},
        {"bf16, bf16 to bf16", KVG_BF16, KVG_BF16, 8, 128, 1, 65536, 1, 0}, {"bf16 to q8_0, q5_1", KVG_Q8_0, KVG_Q5_1, 8, 128, 1, 4096, 0, 0},
        {"bf16 to q8_0, q5_1", KVG_Q8_0, KVG_Q5_1, 1, 128, 1, 4096, 0, 0}};
    static const Case smalls[] = {
        {"bf16 to q8_0, q5_1", KVG_Q8_0, KVG_Q5_1, 1, 128, 64, 1, 0, 0}, {"bf16 to q8_0, q5_1", KVG_Q8_0, KVG_Q5_1, 1, 128, 256, 1, 0, 0},
        {"the same, by length", KVG_Q8_0, KVG_Q5_1, 1, 128, 64, 1, 0, 1}, {"bf16 to q8_0, q5_1", KVG_Q8_0, KVG_Q5_1, 8, 128, 64, 1, 0, 0},
        {"bf16 to fp8, fp8", KVG_FP8, KVG_FP8, 1, 128, 64, 1, 0, 0}, {"bf16 to q4_0, q4_0", KVG_Q4_0, KVG_Q4_0, 1, 128, 64, 1, 0, 0}};
    static const double bars[] = {1.8, 2.2, 1.8, 0, 0, 0};
    char           why[512], how[256];
    cudaDeviceProp device;
    cudaStream_t   stream;
    size_t         from = (size_t)bench_number(argc, argv, "--from", 0), to = (size_t)bench_number(argc, argv, "--to", 1000); /* of the large cases */

    json = bench_has(argc, argv, "--json");
    if (kvg_cuda_probe(why, sizeof why) == 0) {
        printf("skipped: %s\n", why);
        return 77;
    }
    CU(cudaGetDeviceProperties(&device, 0));
    CU(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    snprintf(how, sizeof how, "device 0 %s  warmup %d  iters %d  check 64 rows  seed 7", device.name, WARMUP, ITERATIONS);
    if (!json) {
        bench_header("bench_encode_cuda", how);
        printf("# copy: cudaMemcpyAsync within the device that moves as many bytes, in the same run; ratio = its time / ours\n");
        printf("# case                   rows   elements  ratio     t_min     t_med     t_p99       bw    t_copy  copy bw  wrong\n");
        printf("#                                                    (us)      (us)      (us)   (GB/s)      (us)   (GB/s)\n");
    }
    for (size_t i = from; i < to && i < sizeof larges / sizeof *larges; i++) large(&larges[i], stream);
    if (!json) {
        printf("# case              sequences   elements      t_min     t_med     t_p99     empty    bar  wrong   one row each, a node of a graph\n");
        printf("#                                              (us)      (us)      (us)      (us)   (us)\n");
    }
    for (size_t i = 0; i < sizeof smalls / sizeof *smalls; i++) small(&smalls[i], bars[i], stream);
    if (!json) printf("# wrong values %d %s, %d below their bars\n", wrong_total, wrong_total == 0 ? "OK" : "FAILED", missed);
    CU(cudaStreamDestroy(stream));
    return wrong_total != 0;
}

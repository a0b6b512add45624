/* Rows on CUDA against the host's bytes: every element type into every format and back, widths that straddle lanes, blocks and tiles, pools and
 * flat planes, guard bytes around what may be written, and a captured launch. */
#include "tests/kernels/cuda_test.h"

#ifdef KVG_TEST_CUDA

#include <stdint.h>

static const KvFormat types[] = {KVG_F32, KVG_F16, KVG_BF16};
static const KvFormat formats[] = {KVG_F32, KVG_F16, KVG_BF16, KVG_Q8_0, KVG_Q5_1, KVG_Q4_0, KVG_FP8};
enum { TYPES = 3, FORMATS = 7, GUARD = 512, POISON = 0xa5 };

/* Under a sanitizer, which is many times slower, fewer rows show as much. */
static int is_brief(void)
{
    const char *brief = getenv("KVG_TEST_BRIEF");
    return brief != NULL && *brief == '1';
}

/* ---- runs of rows at an address */

typedef struct Run {
    KvFormat type, format;
    uint32_t rows, heads, dim;
    uint32_t gap;   /* bytes between rows' ends and the next */
    uint32_t skew;  /* elements before the first: breaks 16-byte alignment */
    int      kind;
    uint64_t seed;
} Run;

static const char *run_says(const Run *run)
{
    static char text[160];
    snprintf(text, sizeof text, "%s to %s, %u rows of %u heads of %u, gap %u, skew %u, kind %d", kvg_format_name(run->type), kvg_format_name(run->format),
             run->rows, run->heads, run->dim, run->gap, run->skew, run->kind);
    return text;
}

/* Bytes, guards and counts are those of the host. */
static void check_run(const Run *run)
{
    uint64_t head_bytes = 0;
    OK(kvg_format_row_bytes(run->format, run->dim, &head_bytes));
    size_t         row_bytes = head_bytes * run->heads + run->gap, bytes = GUARD + row_bytes * run->rows + GUARD;
    size_t         elements = run->skew + (size_t)run->rows * run->heads * run->dim;
    uint8_t       *expected = malloc(bytes), *got = malloc(bytes), *source = malloc(elements * 4);
    KvEncodeCounts host_counts = {3, 4}, counts = {3, 4};
    size_t         source_bytes = fill_elements(run->type, run->seed, run->kind, elements, source), skip = run->skew * (source_bytes / elements);
    void          *on_device, *in, *device_counts;
    KvRowsIn       rows = {.data = source + skip, .type = run->type, .token_stride = (int64_t)run->heads * run->dim, .head_stride = run->dim};
    KvRowsAt       at = {.target = expected + GUARD, .head_stride = head_bytes, .row_stride = row_bytes};
    KvDev          host;

    memset(expected, POISON, bytes);
    on_device = to_device(expected, bytes);
    in = to_device(source, source_bytes);
    device_counts = to_device(&counts, sizeof counts);
    OK(kvg_dev_host(&host));
    OK(host.ops->encode_rows(host.self, run->format, &rows, at, run->heads, run->dim, run->rows, &host_counts, NULL));
    rows.data = (uint8_t *)in + skip;
    at.target = (uint8_t *)on_device + GUARD;
    OK(dev.ops->encode_rows(dev.self, run->format, &rows, at, run->heads, run->dim, run->rows, device_counts, NULL));
    from_device(got, on_device, bytes);
    from_device(&counts, device_counts, sizeof counts);
    size_t right = 0; /* asserted once: Check logs every assertion */
    while (right < bytes && got[right] == expected[right]) right++;
    ck_assert_msg(right == bytes, "%s: byte %zd differs", run_says(run), (ptrdiff_t)right - GUARD);
    ck_assert_msg(counts.nonfinite == host_counts.nonfinite && counts.saturated == host_counts.saturated, "%s: counts %llu %llu, not %llu %llu",
                  run_says(run), (unsigned long long)counts.nonfinite, (unsigned long long)counts.saturated, (unsigned long long)host_counts.nonfinite,
                  (unsigned long long)host_counts.saturated);

    /* and back */
    size_t packed = (size_t)run->rows * run->heads * run->dim;
    float *values = malloc((packed + 2) * sizeof(float)), *decoded = malloc((packed + 2) * sizeof(float));
    void  *out;
    for (size_t i = 0; i < packed + 2; i++) decoded[i] = 12345.0f;
    out = to_device(decoded, (packed + 2) * sizeof(float));
    at.target = expected + GUARD;
    OK(host.ops->decode_rows(host.self, run->format, at, run->heads, run->dim, run->rows, values, NULL));
    at.target = (uint8_t *)on_device + GUARD;
    OK(dev.ops->decode_rows(dev.self, run->format, at, run->heads, run->dim, run->rows, out, NULL));
    from_device(decoded, out, (packed + 2) * sizeof(float));
    ck_assert_msg(memcmp(decoded, values, packed * sizeof(float)) == 0, "%s: decoded to other values", run_says(run));
    ck_assert_msg(decoded[packed] == 12345.0f && decoded[packed + 1] == 12345.0f, "%s: written past the end", run_says(run));
    kvg_dev_close(&host);
    device_free(out);
    device_free(device_counts);
    device_free(in);
    device_free(on_device);
    free(values);
    free(decoded);
    free(source);
    free(got);
    free(expected);
}

START_TEST(test_every_type_into_every_format_and_back_gives_the_hosts_bytes)
{
    Run run = {.type = types[_i / FORMATS], .format = formats[_i % FORMATS], .rows = 67, .heads = 3, .dim = 96};

    for (run.kind = 0; run.kind < 5; run.kind++) {
        for (run.seed = 1; run.seed <= (is_brief() ? 1 : 3); run.seed++) check_run(&run);
    }
}
END_TEST

START_TEST(test_widths_around_lanes_blocks_and_tiles)
{
    static const uint32_t widths[] = {1, 3, 7, 8, 9, 16, 24, 32, 40, 64, 96, 120, 128, 136, 160, 512, 576, 1024, 4096};
    static const uint32_t row_counts[] = {1, 2, 63, 64, 65};
    KvFormat format = formats[_i];

    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        if (widths[w] % kvg_format_block_elements(format) != 0) continue;
        for (size_t r = is_brief() ? 3 : 0; r < sizeof row_counts / sizeof *row_counts; r++) {
            Run run = {.type = types[(w + r) % TYPES], .format = format, .rows = row_counts[r], .heads = 1 + (uint32_t)(w % 2), .dim = widths[w], .kind = 4,
                       .seed = 10 + w};
            check_run(&run);
        }
    }
}
END_TEST

START_TEST(test_rows_with_gaps_and_elements_of_any_alignment)
{
    for (int t = 0; t < TYPES; t++) {
        for (uint32_t skew = 0; skew < 9; skew++) {
            Run run = {.type = types[t], .format = formats[_i], .rows = 33, .heads = 2, .dim = 64, .gap = 2 * (skew % 4) * 2, .skew = skew, .kind = 4,
                       .seed = 40 + skew};
            check_run(&run);
        }
    }
}
END_TEST

START_TEST(test_large_random_data_of_every_pattern)
{
    Run run = {.type = types[_i / FORMATS], .format = formats[_i % FORMATS], .rows = is_brief() ? 1100 : 2300, .heads = is_brief() ? 8 : 4, .dim = 128, .kind = 4, .seed = 77};

    check_run(&run);
    run.kind = 1;
    check_run(&run);
    run.kind = 2;
    check_run(&run);
}
END_TEST

START_TEST(test_many_rows_of_heads_that_share_tiles_or_do_not)
{
    static const struct { uint32_t rows, heads, dim; } shapes[] = {
        {4096, 1, 128}, {1100, 8, 128}, {800, 12, 128}, {70, 5, 64}, {33, 7, 512}, {1, 8, 128}, {1, 16, 128}, {9, 40, 32}, {2100, 1, 576},
        {9001, 1, 128}, {460, 40, 64}, {150, 5, 1536}};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        Run run = {.type = types[_i / FORMATS], .format = formats[_i % FORMATS], .rows = shapes[i].rows, .heads = shapes[i].heads, .dim = shapes[i].dim,
                   .kind = 4, .seed = 90 + i};
        if (is_brief() && run.rows * run.heads > 1024 && i % 3 != 0) continue;
        check_run(&run);
    }
}
END_TEST

/* ---- batches through chunk tables */

enum { SLOTS = 9, CHUNKS = 40, STRIDE = 8, HEADS = 3, PLACES = 11, PLACES_MOST = 80 };

typedef struct Places { /* slots: -1 is empty; rows: 0 is empty too */
    uint32_t        count, rows_max, heads;
    const int32_t  *slots;
    const uint32_t *rows, *first;
} Places;

typedef struct BatchData {
    KvRowsBatch host, device;
    KvEncodeCounts counts; /* the host's */
    uint8_t    *planes[2];
    size_t      plane_bytes[2];
    void       *held[16];
    int         held_count;
} BatchData;

static void *hold(BatchData *b, const void *data, size_t bytes)
{
    ck_assert_int_lt(b->held_count, 16);
    return b->held[b->held_count++] = to_device(data, bytes);
}

/* Places in odd order, one empty (-1), one without rows; first rows in the middle of chunks. */
static const int32_t  place_slots[PLACES] = {3, 1, -1, 7, 0, 8, 2, 4, 6, 5, -1};
static const uint32_t place_rows[PLACES] = {1, 70, 5, 64, 0, 130, 2, 65, 1, 3, 9};
static const uint32_t place_first[PLACES] = {0, 13, 0, 64, 5, 60, 127, 63, 511, 62, 0};

static const Places odd_places = {PLACES, 130, HEADS, place_slots, place_rows, place_first};

static void make_table(const Places *places, int32_t *table)
{
    int32_t next = 0;

    for (int i = 0; i < SLOTS * STRIDE; i++) table[i] = -1;
    for (uint32_t p = 0; p < places->count; p++) { /* only the chunks that rows fall into are there */
        if (places->slots[p] < 0) continue;
        for (uint32_t r = places->first[p]; r < places->first[p] + places->rows[p]; r++) {
            int32_t *entry = &table[places->slots[p] * STRIDE + (int)(r / 64)];
            if (*entry < 0) *entry = (next++ * 7 + 3) % CHUNKS;
        }
    }
    ck_assert_int_le(next, CHUNKS);
}

static KvPlane pool_plane(KvFormat format, uint32_t heads, uint32_t dim)
{
    uint64_t head_bytes = 0;
    OK(kvg_format_row_bytes(format, dim, &head_bytes));
    return (KvPlane){.chunk_bytes = head_bytes * 64 * heads, .head_stride = head_bytes * 64, .row_stride = head_bytes, .head_bytes = head_bytes,
                     .head_dim = dim, .format = format};
}

static void make_batch(BatchData *b, const Places *places, KvFormat type, KvFormat format_k, KvFormat format_v, uint32_t dim_k, uint32_t dim_v, int by_length,
                       int kind)
{
    static int32_t  table[SLOTS * STRIDE];
    static uint32_t tokens[PLACES_MOST], staged[SLOTS];
    uint32_t        token = 0, dims[2] = {dim_k, dim_v};
    KvEncodeCounts  counts = {0, 0};

    memset(b, 0, sizeof *b);
    make_table(places, table);
    for (uint32_t p = 0; p < places->count; p++) {
        tokens[p] = token;
        token += places->rows[p];
        if (places->slots[p] >= 0) staged[places->slots[p]] = places->first[p] + places->rows[p];
    }
    b->host = (KvRowsBatch){.planes = 2, .heads = places->heads, .places = places->count, .rows_max = places->rows_max, .slots = places->slots,
                            .rows = places->rows, .first_token = tokens};
    if (by_length) b->host.len_staged = staged;
    else b->host.first_row = places->first;
    b->host.plane[0].to.plane = pool_plane(format_k, places->heads, dim_k);
    b->host.plane[1].to.plane = pool_plane(format_v, places->heads, dim_v);
    for (int p = 0; p < 2; p++) {
        KvBatchPlane *plane = &b->host.plane[p];
        size_t        elements = (size_t)token * places->heads * dims[p];
        void         *source = malloc(elements * 4);

        b->plane_bytes[p] = CHUNKS * plane->to.plane.chunk_bytes;
        b->planes[p] = malloc(b->plane_bytes[p]);
        memset(b->planes[p], POISON, b->plane_bytes[p]);
        plane->to.plane.base = b->planes[p];
        plane->to.rows_per_chunk = 64;
        plane->to.table_stride = STRIDE;
        plane->to.table = table;
        plane->in = (KvRowsIn){.data = source, .type = type, .token_stride = (int64_t)places->heads * dims[p], .head_stride = dims[p]};
        b->device.plane[p] = *plane;
        b->device.plane[p].in.data = hold(b, source, fill_elements(type, 5 + (uint64_t)p, kind, elements, source));
        hold(b, b->planes[p], b->plane_bytes[p]); /* same poison */
        b->device.plane[p].to.plane.base = b->held[b->held_count - 1];
        b->device.plane[p].to.table = hold(b, table, sizeof table);
    }
    b->device.planes = 2;
    b->device.heads = places->heads;
    b->device.places = places->count;
    b->device.rows_max = places->rows_max;
    b->device.slots = hold(b, places->slots, places->count * sizeof *places->slots);
    b->device.rows = hold(b, places->rows, places->count * sizeof *places->rows);
    if (by_length) b->device.len_staged = hold(b, staged, sizeof staged);
    else b->device.first_row = hold(b, places->first, places->count * sizeof *places->first);
    b->device.first_token = hold(b, tokens, places->count * sizeof *tokens);
    b->device.counts = hold(b, &counts, sizeof counts);
    from_device(&counts, b->device.counts, sizeof counts); /* copies have passed: other streams may read */
}

static void check_planes(const BatchData *b)
{
    for (int p = 0; p < 2; p++) {
        uint8_t *got = malloc(b->plane_bytes[p]);

        from_device(got, b->device.plane[p].to.plane.base, b->plane_bytes[p]);
        ck_assert_msg(memcmp(got, b->planes[p], b->plane_bytes[p]) == 0, "plane %d of %s differs from the host's", p,
                      kvg_format_name(b->host.plane[p].to.plane.format));
        free(got);
    }
}

/* Encodes on both and compares planes and counts. */
static void check_batch(BatchData *b)
{
    KvEncodeCounts counts;

    b->host.counts = &b->counts;
    kvg_encode_batch_ref(&b->host);
    OK(dev.ops->encode_batch(dev.self, &b->device, NULL));
    check_planes(b);
    from_device(&counts, b->device.counts, sizeof counts);
    ck_assert_uint_eq(counts.nonfinite, b->counts.nonfinite);
    ck_assert_uint_eq(counts.saturated, b->counts.saturated);
}

static void drop_batch(BatchData *b)
{
    for (int i = 0; i < b->held_count; i++) device_free(b->held[i]);
    for (int p = 0; p < 2; p++) {
        free((void *)(uintptr_t)b->host.plane[p].in.data);
        free(b->planes[p]);
    }
}

START_TEST(test_a_batch_goes_through_tables_in_one_launch_and_skips_empty_places)
{
    static const struct { KvFormat k, v; uint32_t dim_k, dim_v; } pairs[] = {
        {KVG_Q8_0, KVG_Q5_1, 128, 128}, {KVG_BF16, KVG_F16, 8, 4}, {KVG_FP8, KVG_FP8, 128, 64}, {KVG_Q4_0, KVG_Q4_0, 64, 96}, {KVG_Q8_0, KVG_Q8_0, 32, 32},
        {KVG_Q5_1, KVG_FP8, 192, 256}, {KVG_BF16, KVG_Q4_0, 256, 160}};

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        for (int by_length = 0; by_length < 2; by_length++) {
            BatchData b;

            make_batch(&b, &odd_places, types[_i], pairs[i].k, pairs[i].v, pairs[i].dim_k, pairs[i].dim_v, by_length, 4);
            check_batch(&b);
            ck_assert_uint_gt(b.counts.nonfinite, 0); /* or the counts would prove nothing */
            drop_batch(&b);
        }
    }
}
END_TEST

/* Sequences one row or a few each, as a decoding step has them, some of them empty; several to a slot would race, so rows of a slot differ. */
static Places step_places(uint32_t count, uint32_t rows_max, uint32_t heads)
{
    static int32_t  slots[PLACES_MOST];
    static uint32_t rows[PLACES_MOST], first[PLACES_MOST];

    for (uint32_t p = 0; p < count; p++) {
        slots[p] = p % 13 == 5 ? -1 : (int32_t)(p % SLOTS);
        rows[p] = p % 11 == 7 ? 0 : 1 + p * 5 % rows_max;
        first[p] = p / SLOTS * rows_max + 55;
    }
    return (Places){count, rows_max, heads, slots, rows, first};
}

START_TEST(test_a_decoding_steps_rows_of_every_kind_and_shape)
{
    static const struct { uint32_t count, rows_max, heads, dim_k, dim_v; } shapes[] = {
        {64, 1, 1, 128, 128}, {61, 1, 1, 128, 128}, {1, 1, 8, 128, 128}, {70, 4, 2, 64, 64}, {33, 3, 3, 96, 32}, {17, 8, 5, 160, 64}, {9, 2, 8, 256, 256}};
    static const struct { KvFormat k, v; } pairs[] = {
        {KVG_Q8_0, KVG_Q5_1}, {KVG_Q8_0, KVG_Q8_0}, {KVG_BF16, KVG_BF16}, {KVG_FP8, KVG_FP8}, {KVG_Q5_1, KVG_Q4_0}, {KVG_F32, KVG_F16}};
    uint64_t saw = 0;

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int kind = 0; kind < 5; kind++) {
            const int      by_length = kind % 2; /* a slot has one staged length: one place */
            const uint32_t count = by_length && shapes[i].count > SLOTS ? SLOTS : shapes[i].count;
            const Places   places = step_places(count, shapes[i].rows_max, shapes[i].heads);
            BatchData      b;

            make_batch(&b, &places, types[_i % TYPES], pairs[_i / TYPES].k, pairs[_i / TYPES].v, shapes[i].dim_k, shapes[i].dim_v, by_length,
                       kind);
            check_batch(&b);
            saw += b.counts.nonfinite;
            drop_batch(&b);
        }
    }
    ck_assert_uint_gt(saw, 0);
}
END_TEST

START_TEST(test_a_captured_launch_follows_slots_lengths_and_tables_that_change_between_replays)
{
    const Places    places = _i == 0 ? odd_places : step_places(SLOTS, 3, 2);
    BatchData       b;
    cudaStream_t    stream;
    cudaGraph_t     graph;
    cudaGraphExec_t replay;

    make_batch(&b, &places, KVG_BF16, KVG_Q8_0, KVG_Q5_1, 128, 128, 1, 4);
    CU(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CU(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(dev.ops->encode_batch(dev.self, &b.device, stream));
    CU(cudaStreamEndCapture(stream, &graph));
    CU(cudaGraphInstantiate(&replay, graph, 0));
    for (int round = 0; round < 3; round++) {
        int32_t  slots[PLACES_MOST];
        uint32_t rows[PLACES_MOST];

        for (uint32_t p = 0; p < places.count; p++) { /* members leave, and rows get fewer */
            slots[p] = p % 3 == (uint32_t)round ? -1 : places.slots[p];
            rows[p] = places.rows[p] > (uint32_t)round ? places.rows[p] - (uint32_t)round : 0;
        }
        b.host.slots = slots;
        b.host.rows = rows;
        CU(cudaMemcpy((void *)(uintptr_t)b.device.slots, slots, places.count * sizeof *slots, cudaMemcpyHostToDevice));
        CU(cudaMemcpy((void *)(uintptr_t)b.device.rows, rows, places.count * sizeof *rows, cudaMemcpyHostToDevice));
        kvg_encode_batch_ref(&b.host);
        CU(cudaGraphLaunch(replay, stream));
        CU(cudaStreamSynchronize(stream));
        check_planes(&b);
    }
    CU(cudaGraphExecDestroy(replay));
    CU(cudaGraphDestroy(graph));
    CU(cudaStreamDestroy(stream));
    drop_batch(&b);
}
END_TEST

START_TEST(test_decoding_a_batch_to_bf16_rounds_the_hosts_values)
{
    BatchData b;
    size_t    elements = 500 * HEADS * 128;
    uint16_t *got = malloc(elements * 2), *expected = malloc(elements * 2);
    float    *values = calloc(elements, sizeof(float));

    make_batch(&b, &odd_places, KVG_BF16, KVG_Q8_0, KVG_Q5_1, 128, 128, 0, 4);
    kvg_encode_batch_ref(&b.host);
    OK(dev.ops->encode_batch(dev.self, &b.device, NULL));
    OK(dev.ops->synchronize(dev.self, NULL));
    for (int p = 0; p < 2; p++) {
        KvRowsBatch host = b.host, device = b.device;
        void       *out;

        host.plane[0] = b.host.plane[p];
        device.plane[0] = b.device.plane[p];
        host.planes = device.planes = 1;
        host.plane[0].in = (KvRowsIn){.data = values, .type = KVG_F32, .token_stride = HEADS * 128, .head_stride = 128};
        memset(got, 0, elements * 2);
        out = to_device(got, elements * 2);
        device.plane[0].in = (KvRowsIn){.data = out, .type = KVG_BF16, .token_stride = HEADS * 128, .head_stride = 128};
        memset(values, 0, elements * sizeof(float));
        kvg_decode_batch_ref(&host);
        OK(dev.ops->synchronize(dev.self, NULL));
        OK(kvg_decode_batch_launch(&device, NULL));
        CU(cudaDeviceSynchronize()); /* the legacy stream is none of the device's */
        from_device(got, out, elements * 2);
        for (size_t i = 0; i < elements; i++) kvg_encode_f32_ref(KVG_BF16, &values[i], 1, &expected[i], NULL);
        ck_assert_int_eq(memcmp(got, expected, elements * 2), 0);
        device_free(out);
    }
    drop_batch(&b);
    free(values);
    free(expected);
    free(got);
}
END_TEST

/* Rows of one slot of a flat ring that go past its end; enough of them for tiles, or few. */
static void check_ring(KvFormat format, uint32_t ring, uint32_t rows, uint32_t heads, uint32_t dim)
{
    uint64_t head_bytes = 0;
    OK(kvg_format_row_bytes(format, dim, &head_bytes));
    const size_t elements = (size_t)rows * heads * dim, row_bytes = head_bytes * heads, bytes = 3 * ring * row_bytes;
    float       *source = malloc(elements * sizeof *source);
    uint8_t     *expected = malloc(bytes), *got = malloc(bytes);
    uint32_t     base_row[3] = {0, 40, 7}, first[1] = {40 + ring - 26}; /* past the end after 26 rows */
    int32_t      slot = 1;
    KvRowsBatch  host = {.planes = 1, .heads = heads, .places = 1, .rows_max = rows, .slots = &slot, .first_row = first}, device;
    KvPlaneRef   ref = {.plane = {.base = expected, .slot_bytes = ring * row_bytes, .head_stride = head_bytes, .row_stride = row_bytes,
                                  .head_bytes = head_bytes, .head_dim = dim, .format = format}, .ring_rows = ring, .base_row = base_row};
    void        *held[5];

    fill_elements(KVG_F32, 3, 0, elements, source);
    memset(expected, POISON, bytes);
    host.plane[0] = (KvBatchPlane){ref, {.data = source, .type = KVG_F32, .token_stride = (int64_t)heads * dim, .head_stride = dim}};
    device = host;
    device.plane[0].in.data = held[0] = to_device(source, elements * sizeof *source);
    device.plane[0].to.plane.base = held[1] = to_device(expected, bytes);
    device.plane[0].to.base_row = held[2] = to_device(base_row, sizeof base_row);
    device.slots = held[3] = to_device(&slot, sizeof slot);
    device.first_row = held[4] = to_device(first, sizeof first);
    kvg_encode_batch_ref(&host);
    OK(dev.ops->encode_batch(dev.self, &device, NULL));
    from_device(got, held[1], bytes);
    ck_assert_int_eq(memcmp(got, expected, bytes), 0);
    for (int i = 0; i < 5; i++) device_free(held[i]);
    free(source);
    free(expected);
    free(got);
}

START_TEST(test_rows_of_a_flat_ring_wrap)
{
    check_ring(formats[_i], 96, 60, 1, 32);
    check_ring(formats[_i], 96, 5, 2, 64);
    check_ring(formats[_i], 2500, 2300, 4, 128);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_loop_test(tcase, test_every_type_into_every_format_and_back_gives_the_hosts_bytes, 0, TYPES * FORMATS);
    tcase_add_loop_test(tcase, test_widths_around_lanes_blocks_and_tiles, 0, FORMATS);
    tcase_add_loop_test(tcase, test_rows_with_gaps_and_elements_of_any_alignment, 0, FORMATS);
    tcase_add_loop_test(tcase, test_large_random_data_of_every_pattern, 0, TYPES * FORMATS);
    tcase_add_loop_test(tcase, test_many_rows_of_heads_that_share_tiles_or_do_not, 0, TYPES * FORMATS);
    tcase_add_loop_test(tcase, test_a_batch_goes_through_tables_in_one_launch_and_skips_empty_places, 0, TYPES);
    tcase_add_loop_test(tcase, test_a_decoding_steps_rows_of_every_kind_and_shape, 0, 6 * TYPES);
    tcase_add_loop_test(tcase, test_a_captured_launch_follows_slots_lengths_and_tables_that_change_between_replays, 0, 2);
    tcase_add_test(tcase, test_decoding_a_batch_to_bf16_rounds_the_hosts_values);
    tcase_add_loop_test(tcase, test_rows_of_a_flat_ring_wrap, 0, FORMATS);
}
#else
static void add(TCase *tcase) { (void)tcase; }
#endif

int main(void)
{
    return cuda_suite("cuda_rows", add);
}

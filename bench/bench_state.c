/* What does one rank's state cost a step, and what does reading through chunk tables cost? One core, one thread, host memory.
 *
 *   step   begin, append of one row, layout term, finalize of every sequence: 2 classes in pools, nothing to book. Bars: the state's
 *          share of a step of 256 sequences (20 us of the 30), and 80 layers at most 1.1x 8 layers
 *   hybrid the same step where half of the layers keep slot state: recurrent columns, pooled index rings
 *   life   open, book 4096 rows, close of a sequence of 80 layers; and a step of 64 rows, which books a chunk in each class. Bar: 5 us
 *   copy   snapshot_into of a sequence of 12 recurrent layers of qwen3-next (state 2 MiB, conv 96 KiB a column), beside memcpy of as many
 *          bytes. Bar: 0.8
 *   read   XXH3-128 over the K rows of one layer through the table, chunks in shuffled order, beside the same bytes contiguous
 *
 * Medians of repeated runs; rates beside their limit come from alternating runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xxhash.h>

#include "runtime/base/checked.h"
#include "runtime/state/cache.h"

enum { SEQUENCES = 256, LAYERS_MAX = 80, ROWS = 4096, WARMUP = 5, ITERS_DEFAULT = 101, ITERS_MAX = 2001, ROUND = 48 };

typedef struct Rig {
    KvDev           dev;
    KvStore        *store;
    KvLayerGeometry layers[LAYERS_MAX];
    KvClassGeometry classes[2];
    KvCache         caches[SEQUENCES];
} Rig;

typedef struct Result {
    double min, median, p99;
} Result;

static Rig    rig;
static double samples[ITERS_MAX];
static int    iters = ITERS_DEFAULT, json, failures, hybrid;

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static Result summarise(void)
{
    qsort(samples, (size_t)iters, sizeof samples[0], by_value);
    return (Result){samples[0], samples[iters / 2], samples[iters - 1 - iters / 100]};
}

static void must(KvgStatus status, const char *what)
{
    if (status == KVG_OK) return;
    fprintf(stderr, "bench_state: %s: %s\n", what, kvg_last_error());
    exit(1);
}

/* Of four layers one recurrent and one latent with a pooled indexer: small ones, since a step's bookkeeping touches none of their bytes. */
static KvLayerGeometry slot_layer(uint32_t i)
{
    if (i % 4 == 2) {
        return (KvLayerGeometry){.layer = i, .source = -1, .kind = KVG_STATE_RECURRENT,
                                 .recurrent = {.conv_kernel = 4, .part_count = 2,
                                               .parts = {{.heads = 2, .width = 8, .replicas = 1},
                                                         {.heads = 2, .width = 16, .replicas = 1, .is_state = 1}}}};
    }
    return (KvLayerGeometry){.layer = i, .source = -1, .kind = KVG_STATE_LATENT,
                             .latent = {.width = 16, .kv_rank = 12, .index_kind = KVG_INDEX_POOLED, .index_width = 4, .index_pool = 64,
                                        .format = KVG_BF16}};
}

static void open_rig(uint32_t layers, uint32_t slots, uint32_t units)
{
    for (uint32_t i = 0; i < layers; i++) {
        rig.layers[i] = (KvLayerGeometry){.layer = i, .class_index = i % 2, .source = -1, .heads = 1, .head_dim_k = 128,
                                          .head_dim_v = 128, .format_k = KVG_Q8_0, .format_v = KVG_Q5_1};
        if (hybrid && i % 4 >= 2) rig.layers[i] = slot_layer(i);
    }
    uint64_t ring = kvg_swa_ring_rows(1024, 2 * ROWS * 4);
    rig.classes[0] = (KvClassGeometry){.row_cap = 2 * ROWS * 4, .unit_cap = 2 * ROWS * 4 / 64, .units = units, .units_max = units};
    rig.classes[1] = (KvClassGeometry){.window = 1024, .ring = 1, .row_cap = ring, .unit_cap = (uint32_t)kvg_ceil_div_u64(ring, 64) + 1,
                                       .units = units, .units_max = units};
    KvStoreOptions options = {.dev = &rig.dev, .layout = KVG_LAYOUT_POOL, .layers = rig.layers, .layer_count = layers,
                              .classes = rig.classes, .class_count = 2, .slots = slots, .max_ctx = 2 * ROWS * 4, .n_layer = layers,
                              .has_recurrent = hybrid, .columns = 5, .index_pool = hybrid ? 64 : 0, .index_ring_rows = 128};
    must(kvg_dev_host(&rig.dev), "device");
    must(kvg_store_create(&options, &rig.store), "store");
}

static void close_rig(void)
{
    kvg_store_destroy(rig.store);
    kvg_dev_close(&rig.dev);
}

/* ---- step */

static uint64_t one_step(uint32_t sequences, uint32_t rows)
{
    uint64_t layout = 0;

    for (uint32_t i = 0; i < sequences; i++) {
        must(kvg_kv_cache_begin(&rig.caches[i]), "begin");
        must(kvg_kv_cache_append(&rig.caches[i], rows, NULL), "append");
        layout += kvg_kv_cache_layout_term(&rig.caches[i], i);
    }
    for (uint32_t i = 0; i < sequences; i++) {
        kvg_kv_cache_finalize(&rig.caches[i], rows);
        kvg_kv_cache_release_behind(&rig.caches[i]);
    }
    return layout;
}

static uint64_t layout_sum; /* so that no work is optimised away */

static Result time_steps(uint32_t layers, uint32_t sequences)
{
    open_rig(layers, sequences, sequences * 4);
    for (uint32_t i = 0; i < sequences; i++) {
        kvg_kv_cache_open(rig.store, i, i + 1, &rig.caches[i]);
    }
    one_step(sequences, hybrid ? 4 : 8);
    for (int r = -WARMUP; r < iters; r++) {
        double start = now_us();
        layout_sum += one_step(sequences, 1);
        if (r >= 0) samples[r] = now_us() - start;
        if (rig.caches[0].pos < ROUND) continue;
        for (uint32_t i = 0; i < sequences; i++) must(kvg_kv_cache_rewind_to(&rig.caches[i], hybrid ? 0 : 8, NULL), "rewind");
        if (hybrid) one_step(sequences, 4);
    }
    for (uint32_t i = 0; i < sequences; i++) kvg_kv_cache_close(&rig.caches[i], NULL);
    close_rig();
    return summarise();
}

static double step_row(uint32_t layers, uint32_t sequences, double bar_us)
{
    Result r = time_steps(layers, sequences);
    int    bad = bar_us > 0 && r.median > bar_us;

    failures += bad;
    if (json) {
        printf("{\"bench\": \"%s\", \"layers\": %u, \"sequences\": %u, \"min_us\": %.3f, \"median_us\": %.3f, \"p99_us\": %.3f, "
               "\"ns_per_sequence\": %.1f, \"bar_us\": %.1f, \"ok\": %s}\n", hybrid ? "hybrid" : "step", layers, sequences, r.min,
               r.median, r.p99, r.median * 1e3 / sequences, bar_us, bad ? "false" : "true");
    } else {
        printf("%8s %8u %8u %10.2f %10.2f %10.2f %10.1f %8.1f  %s\n", hybrid ? "hybrid" : "step", layers, sequences, r.min, r.median, r.p99,
               r.median * 1e3 / sequences, bar_us, bar_us > 0 ? bad ? "ABOVE" : "OK" : "");
    }
    return r.median;
}

/* ---- life */

static void life_row(const char *name, Result r, double bar_us)
{
    int bad = bar_us > 0 && r.median > bar_us;

    failures += bad;
    if (json) {
        printf("{\"bench\": \"%s\", \"layers\": %d, \"sequences\": 1, \"min_us\": %.3f, \"median_us\": %.3f, \"p99_us\": %.3f, "
               "\"bar_us\": %.1f, \"ok\": %s}\n", name, LAYERS_MAX, r.min, r.median, r.p99, bar_us, bad ? "false" : "true");
    } else {
        printf("%8s %8d %8d %10.2f %10.2f %10.2f %10s %8.1f  %s\n", name, LAYERS_MAX, 1, r.min, r.median, r.p99, "", bar_us,
               bar_us > 0 ? bad ? "ABOVE" : "OK" : "");
    }
}

static void life(void)
{
    static double close_us[ITERS_MAX], grow_us[ITERS_MAX];

    open_rig(LAYERS_MAX, 2, 160);
    for (int r = -WARMUP; r < iters; r++) {
        double start = now_us();
        kvg_kv_cache_open(rig.store, 0, (uint64_t)(r + WARMUP + 1), &rig.caches[0]);
        must(kvg_kv_cache_book(&rig.caches[0], ROWS), "book");
        double opened = now_us();
        kvg_kv_cache_close(&rig.caches[0], NULL);
        double closed = now_us();
        kvg_kv_cache_open(rig.store, 0, (uint64_t)(r + WARMUP + 1), &rig.caches[0]);
        for (int i = 0; i < 4; i++) layout_sum += one_step(1, 64);
        double begun = now_us();
        layout_sum += one_step(1, 64);
        double grown = now_us();
        kvg_kv_cache_close(&rig.caches[0], NULL);
        if (r < 0) continue;
        samples[r] = opened - start;
        close_us[r] = closed - opened;
        grow_us[r] = grown - begun;
    }
    close_rig();
    life_row("open", summarise(), 5);
    memcpy(samples, close_us, sizeof samples);
    life_row("close", summarise(), 5);
    memcpy(samples, grow_us, sizeof samples);
    life_row("grow", summarise(), 0);
}

/* ---- read */

static double hash_table_us(const KvPlaneView *view, uint64_t rows)
{
    double         start = now_us();
    XXH3_state_t  *state = XXH3_createState();

    XXH3_128bits_reset(state);
    for (uint64_t row = 0; row < rows; row += KVG_CHUNK_ROWS) {
        XXH3_128bits_update(state, kvg_plane_row(view, &view->k, 0, 0, row), KVG_CHUNK_ROWS * view->k.row_stride);
    }
    layout_sum += XXH3_128bits_digest(state).low64;
    XXH3_freeState(state);
    return now_us() - start;
}

static double hash_contiguous_us(const uint8_t *bytes, size_t count, uint64_t *hash)
{
    double start = now_us();

    *hash = XXH3_128bits(bytes, count).low64;
    return now_us() - start;
}

/* Chunks handed out in a shuffled order: what a pool looks like after a while. */
static void shuffle_chunks(uint32_t units)
{
    uint64_t state = 7;

    for (uint32_t i = 0; i + 2 < units; i++) {
        state = state * UINT64_C(6364136223846793005) + 1;
        kvg_kv_cache_open(rig.store, 1 + i % 2, 1, &rig.caches[1 + i % 2]);
        must(kvg_kv_cache_book(&rig.caches[1 + i % 2], 64 * (1 + state % 5)), "book");
        if (i % 2 == 1) {
            kvg_kv_cache_close(&rig.caches[1 + (state >> 40) % 2], NULL);
            kvg_kv_cache_close(&rig.caches[2 - (state >> 40) % 2], NULL);
        }
    }
}

static void read_row(uint64_t rows)
{
    static double  table[ITERS_MAX];
    uint32_t       units = (uint32_t)(rows / 64) + 16;
    const uint64_t bytes = rows * 136;
    uint8_t       *flat = malloc(bytes);
    uint64_t       hash = 0, through, wrong = 0;

    open_rig(2, 3, units);
    shuffle_chunks(units);
    kvg_kv_cache_open(rig.store, 0, 1, &rig.caches[0]);
    must(kvg_kv_cache_book(&rig.caches[0], rows), "book");
    const KvPlaneView *view = kvg_store_view(rig.store, 0);
    for (uint64_t row = 0; row < rows; row++) {
        memset(kvg_plane_row(view, &view->k, 0, 0, row), (int)(row * 31 % 251), 136);
        memcpy(flat + row * 136, kvg_plane_row(view, &view->k, 0, 0, row), 136);
    }
    for (int r = -WARMUP; r < iters; r++) {
        through = layout_sum;
        double t = hash_table_us(view, rows);
        through = layout_sum - through;
        double f = hash_contiguous_us(flat, bytes, &hash);
        wrong += through != hash;
        if (r < 0) continue;
        table[r] = t;
        samples[r] = f;
    }
    double contiguous = summarise().median;
    memcpy(samples, table, sizeof samples);
    double chunked = summarise().median;
    failures += wrong != 0;
    if (json) {
        printf("{\"bench\": \"read\", \"rows\": %llu, \"table_gbs\": %.2f, \"contiguous_gbs\": %.2f, \"ratio\": %.3f, \"wrong\": %llu, \"ok\": %s}\n",
               (unsigned long long)rows, (double)bytes / chunked * 1e-3, (double)bytes / contiguous * 1e-3, contiguous / chunked,
               (unsigned long long)wrong, wrong == 0 ? "true" : "false");
    } else {
        printf("%8s %8llu %10.2f %10.2f %8.3f %8llu\n", "read", (unsigned long long)rows, (double)bytes / chunked * 1e-3,
               (double)bytes / contiguous * 1e-3, contiguous / chunked, (unsigned long long)wrong);
    }
    kvg_kv_cache_close(&rig.caches[0], NULL);
    close_rig();
    free(flat);
}

/* ---- copy */

enum { COPY_LAYERS = 12, STATE_ELEMENTS = 32 * 128 * 128, CONV_ELEMENTS = 8192 * 3 };

static void open_recurrent_rig(void)
{
    for (uint32_t i = 0; i < COPY_LAYERS; i++) {
        rig.layers[i] = (KvLayerGeometry){.layer = i, .source = -1, .kind = KVG_STATE_RECURRENT,
                                          .recurrent = {.conv_kernel = 4, .part_count = 2,
                                                        .parts = {{.heads = 64, .width = 128, .replicas = 1},
                                                                  {.heads = 32, .width = 128 * 128, .replicas = 1, .is_state = 1}}}};
    }
    rig.classes[0] = (KvClassGeometry){.row_cap = ROWS, .unit_cap = ROWS / 64, .units = ROWS / 64, .units_max = ROWS / 64};
    KvStoreOptions options = {.dev = &rig.dev, .layers = rig.layers, .layer_count = COPY_LAYERS, .classes = rig.classes, .class_count = 1,
                              .slots = 1, .max_ctx = ROWS, .n_layer = COPY_LAYERS, .has_recurrent = 1};
    must(kvg_dev_host(&rig.dev), "device");
    must(kvg_store_create(&options, &rig.store), "store");
    kvg_kv_cache_open(rig.store, 0, 1, &rig.caches[0]);
    for (uint32_t i = 0; i < COPY_LAYERS; i++) {
        const KvRecurrentView *view = kvg_store_recurrent_view(rig.store, i);
        for (uint64_t e = 0; e < view->state_elements; e++) view->state[e] = (float)(e + i);
        for (uint64_t e = 0; e < view->conv_elements; e++) view->conv[e] = (float)(e + i);
    }
}

static int image_is_wrong(const KvCacheSnapshot *snapshot)
{
    const KvRecurrentView *last = kvg_store_recurrent_view(rig.store, COPY_LAYERS - 1);
    const uint8_t         *end = (const uint8_t *)snapshot->image + snapshot->image_bytes;

    return snapshot->image_bytes != (size_t)COPY_LAYERS * (STATE_ELEMENTS + CONV_ELEMENTS) * 4 ||
           memcmp(end - STATE_ELEMENTS * 4, last->state, STATE_ELEMENTS * 4) != 0;
}

static void copy_row(void)
{
    static double    snapshots[ITERS_MAX];
    KvCacheSnapshot *snapshot = NULL;
    void            *from = NULL, *to = NULL;

    open_recurrent_rig();
    must(kvg_kv_cache_snapshot_new(&rig.caches[0], &snapshot), "snapshot");
    size_t bytes = snapshot->image_bytes;
    must(rig.dev.ops->uninit(rig.dev.self, bytes, &from), "memory");
    must(rig.dev.ops->uninit(rig.dev.self, bytes, &to), "memory");
    memset(from, 1, bytes);
    for (int r = -WARMUP; r < iters; r++) {
        double start = now_us();
        must(kvg_kv_cache_snapshot_into(&rig.caches[0], snapshot, NULL), "snapshot");
        double middle = now_us();
        memcpy(to, from, bytes);
        if (r < 0) continue;
        snapshots[r] = middle - start;
        samples[r] = now_us() - middle;
    }
    double plain = summarise().median;
    memcpy(samples, snapshots, sizeof samples);
    double taken = summarise().median;
    int    wrong = image_is_wrong(snapshot), bad = wrong || plain / taken < 0.8;
    failures += bad;
    if (json) {
        printf("{\"bench\": \"copy\", \"bytes\": %zu, \"snapshot_gbs\": %.2f, \"memcpy_gbs\": %.2f, \"ratio\": %.3f, \"bar\": 0.8, "
               "\"wrong\": %d, \"ok\": %s}\n", bytes, (double)bytes / taken * 1e-3, (double)bytes / plain * 1e-3, plain / taken, wrong,
               bad ? "false" : "true");
    } else {
        printf("# snapshot_into of %zu bytes: %.2f GB/s, memcpy %.2f GB/s, ratio %.3f (bar 0.8), wrong %d\n", bytes,
               (double)bytes / taken * 1e-3, (double)bytes / plain * 1e-3, plain / taken, wrong);
    }
    rig.dev.ops->free(rig.dev.self, from);
    rig.dev.ops->free(rig.dev.self, to);
    kvg_kv_cache_snapshot_free(snapshot);
    kvg_kv_cache_close(&rig.caches[0], NULL);
    close_rig();
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = 1;
        } else if (strcmp(argv[i], "--iters") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0 && atoi(argv[i + 1]) <= ITERS_MAX) {
            iters = atoi(argv[++i]);
        } else {
            fprintf(stderr, "usage: bench_state [--json] [--iters 1..%d]\n", ITERS_MAX);
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    static const uint32_t counts[] = {1, 64, 256};
    double                few = 0, many = 0, hybrid_few, hybrid_many;

    read_options(argc, argv);
    if (!json) {
        printf("# bench_state %s  device host  layout pool  classes 2  warmup %d  iters %d  check 1\n", KVG_VERSION, WARMUP, iters);
        printf("#  bench   layers     seqs      t_min   t_median      t_p99    per seq      bar\n");
        printf("#                             (us)       (us)       (us)       (ns)     (us)\n");
    }
    for (int i = 0; i < 3; i++) {
        few = step_row(8, counts[i], counts[i] == 256 ? 20 : 0);
        many = step_row(80, counts[i], counts[i] == 256 ? 20 : 0);
    }
    hybrid = 1;
    hybrid_few = step_row(8, 256, 20);
    hybrid_many = step_row(80, 256, 20);
    hybrid = 0;
    life();
    if (!json) {
        printf("#  bench     rows      table contiguous    ratio    wrong\n");
        printf("#                     (GB/s)     (GB/s)\n");
    }
    for (uint64_t rows = 512; rows <= 16384; rows *= 32) read_row(rows);
    copy_row();
    int grows = many > 1.1 * few || hybrid_many > 1.1 * hybrid_few;
    failures += grows;
    if (json) {
        printf("{\"bench\": \"layers\", \"ratio_80_to_8\": %.3f, \"hybrid_ratio_80_to_8\": %.3f, \"bar\": 1.1, \"ok\": %s}\n",
               many / few, hybrid_many / hybrid_few, grows ? "false" : "true");
    } else {
        printf("# 80 layers to 8 layers at 256 sequences: %.3f, hybrid %.3f (bar 1.1)\n# %s (sum %llx)\n", many / few, hybrid_many / hybrid_few,
               failures == 0 ? "OK" : "ABOVE A BAR", (unsigned long long)layout_sum);
    }
    return failures != 0;
}

/* How long is a step, from begin to decided, and does it depend on the number of layers?
 *
 * One rank, self transport, pooled planes, two classes (a full one and a window of 512 with rings on), one row a sequence and step; no rows
 * are written: this is what the collective commit itself costs. Lengths are staggered, so that in each step some sequences cross into a new
 * chunk and some windows let one go. The two layer counts are timed in turns, so that a drift of the machine meets both.
 * Bars: 256 sequences at most 30 us; 80 layers at most 1.1 times 8 layers. */
#include <kvgrid/kvgrid.h>

#include "bench/bench.h"

enum { SEQUENCES_MAX = 256, WARMUP = 200 };

typedef struct Rig {
    ModelConfig   config;
    KvgGrid      *grid;
    KvgPlacement *placement;
    KvgBatch     *batch;
    KvgSequence  *sequence[SEQUENCES_MAX];
    uint32_t      rows[SEQUENCES_MAX];
    uint32_t      count, layers;
} Rig;

static void must(KvgStatus status)
{
    if (status != KVG_OK) {
        fprintf(stderr, "bench_step: %s\n", kvg_last_error());
        exit(2);
    }
}

static void make_config(uint32_t layers, ModelConfig *config)
{
    static char text[8192];
    int at = snprintf(text, sizeof text, "{\"model_type\":\"llama\",\"hidden_size\":32,\"num_attention_heads\":1,\"num_key_value_heads\":1,"
                      "\"head_dim\":32,\"num_hidden_layers\":%u,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":32768,"
                      "\"sliding_window\":512,\"layer_types\":[", layers);
    for (uint32_t il = 0; il < layers; il++) {
        at += snprintf(text + at, sizeof text - (size_t)at, "%s\"%s\"", il ? "," : "", il % 2 ? "full_attention" : "sliding_attention");
    }
    at += snprintf(text + at, sizeof text - (size_t)at, "]}");
    must(kvg_model_config_parse_json(text, (size_t)at, "bench", config));
}

static void step(Rig *rig)
{
    KvgStep  *step_p;
    KvgCommit commit = KVG_COMMIT_INIT;

    commit.accept_all = 1;
    must(kvg_step_begin(rig->batch, rig->rows, &step_p));
    must(kvg_step_post(step_p, &commit));
    must(kvg_step_wait(step_p, NULL));
}

static void open_rig(Rig *rig, uint32_t count, uint32_t layers)
{
    KvgBootstrap    bootstrap = KVG_BOOTSTRAP_INIT;
    KvgGridOptions  options = KVG_GRID_OPTIONS_INIT;
    KvgPlaceOptions place = KVG_PLACE_OPTIONS_INIT;
    KvgPolicy       policy;

    memset(rig, 0, sizeof *rig);
    rig->count = count;
    rig->layers = layers;
    kvg_policy_default(&policy);
    policy.swa_ring = 1;
    options.policy = &policy;
    make_config(layers, &rig->config);
    must(kvg_grid_create(&bootstrap, &options, &rig->grid));
    place.max_sequences = count;
    place.ctx = 8192;
    place.memory_bytes = (uint64_t)layers * count * 8192 * 58 + (64u << 20);
    must(kvg_place(rig->grid, &rig->config, &place, &rig->placement));
    must(kvg_batch_create(rig->placement, count, &rig->batch));
    for (uint32_t i = 0; i < count; i++) {
        must(kvg_sequence_open(rig->placement, i, 0, &rig->sequence[i]));
        must(kvg_batch_set(rig->batch, i, rig->sequence[i]));
        rig->rows[i] = 600 + i * 37 % 509; /* staggered over chunks, behind the window */
    }
    step(rig);
    for (uint32_t i = 0; i < count; i++) rig->rows[i] = 1;
    for (int i = 0; i < WARMUP; i++) step(rig);
}

static void close_rig(Rig *rig)
{
    kvg_batch_destroy(rig->batch);
    kvg_placement_destroy(rig->placement);
    kvg_grid_destroy(rig->grid);
    kvg_model_config_free(&rig->config);
}

static uint64_t wrong_rows(const Rig *rig, long steps)
{
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < rig->count; i++) {
        KvgSequenceInfo info = { .size = sizeof info };
        must(kvg_sequence_info(rig->sequence[i], &info));
        wrong += info.rows != 600 + i * 37 % 509 + WARMUP + (uint64_t)steps;
    }
    return wrong;
}

int main(int argc, char **argv)
{
    static const uint32_t counts[] = { 1, 64, 256 };
    long    steps = bench_number(argc, argv, "--steps", 3000);
    int     json = bench_has(argc, argv, "--json"), bad = 0;
    double *times[2];
    times[0] = calloc((size_t)steps, sizeof(double));
    times[1] = calloc((size_t)steps, sizeof(double));
    if (times[0] == NULL || times[1] == NULL) return 2;
    if (!json) {
        bench_header("bench_step", "transport self  ranks 1  classes 2  rows 1");
        printf("#  verdict  sequences   8 layers   p90   80 layers   p90   80/8    wrong\n#                          (us)      (us)     (us)     (us)\n");
    }
    for (int c = 0; c < 3; c++) {
        Rig rigs[2];
        open_rig(&rigs[0], counts[c], 8);
        open_rig(&rigs[1], counts[c], 80);
        for (long i = 0; i < steps; i++) {
            for (int k = 0; k < 2; k++) {
                double begin = bench_now_us();
                step(&rigs[k]);
                times[k][i] = bench_now_us() - begin;
            }
        }
        uint64_t wrong = wrong_rows(&rigs[0], steps) + wrong_rows(&rigs[1], steps);
        double p90[2] = { bench_percentile(times[0], (size_t)steps, 90), bench_percentile(times[1], (size_t)steps, 90) };
        double median[2] = { bench_median(times[0], (size_t)steps), bench_median(times[1], (size_t)steps) };
        int good = wrong == 0 && median[1] <= 1.1 * median[0] + 0.05 && (counts[c] != 256 || median[1] <= 30.0);
        bad |= !good;
        if (json) {
            printf("{\"bench\":\"step\",\"sequences\":%u,\"us_8_layers\":%.2f,\"us_80_layers\":%.2f,\"ratio\":%.3f,\"wrong\":%llu,\"ok\":%s}\n",
                   counts[c], median[0], median[1], median[1] / median[0], (unsigned long long)wrong, good ? "true" : "false");
        } else {
            printf("   %-7s  %9u   %8.2f  %6.2f  %8.2f  %6.2f   %.3f  %6llu\n", good ? "OK" : "MISSED", counts[c], median[0], p90[0], median[1],
                   p90[1], median[1] / median[0], (unsigned long long)wrong);
        }
        close_rig(&rigs[0]);
        close_rig(&rigs[1]);
    }
    free(times[0]);
    free(times[1]);
    return bad;
}

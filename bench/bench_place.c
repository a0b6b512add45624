/* How long does placing a model take, beside reserving and backing as many address ranges bare?
 *
 * One rank, self transport, host memory, pooled planes, bf16. The bare figure maps, backs and unmaps as many ranges of the same sizes by mmap and
 * mprotect, which is the least a placement must ask of the system. Planning alone (kvg_grid_plan on 8 x 8 ranks) stands beside. No bar is set. */
#include <sys/mman.h>

#include <kvgrid/kvgrid.h>

#include "bench/bench.h"

enum { ROUNDS = 21 };

static void must(KvgStatus status)
{
    if (status != KVG_OK) {
        fprintf(stderr, "bench_place: %s\n", kvg_last_error());
        exit(2);
    }
}

static double place_once(KvgGrid *grid, const ModelConfig *config, uint64_t memory, uint64_t *taken)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    KvgPlacement   *placement;
    KvgStats        stats = { .size = sizeof stats };
    double          begin = bench_now_us();

    options.format_k = options.format_v = KVG_BF16;
    options.memory_bytes = memory;
    must(kvg_place(grid, config, &options, &placement));
    double took = bench_now_us() - begin;
    must(kvg_stats(placement, &stats));
    *taken = stats.taken_bytes;
    kvg_placement_destroy(placement);
    return took;
}

/* `ranges` reservations of four times `bytes`, the first `bytes` backed, as the placement's planes are. */
static double map_once(uint32_t ranges, uint64_t bytes)
{
    void **base = calloc(ranges, sizeof *base);
    double begin, took;

    if (base == NULL) exit(2);
    begin = bench_now_us();
    for (uint32_t i = 0; i < ranges; i++) {
        base[i] = mmap(NULL, 4 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base[i] == MAP_FAILED || mprotect(base[i], bytes, PROT_READ | PROT_WRITE) != 0) exit(2);
    }
    took = bench_now_us() - begin;
    for (uint32_t i = 0; i < ranges; i++) munmap(base[i], 4 * bytes);
    free(base);
    return took;
}

static double plan_once(const ModelConfig *config)
{
    KvGridPlanOptions options = KVG_GRID_PLAN_OPTIONS_INIT;
    KvGridPlan        plan;
    uint64_t          state_bytes[64];
    double            begin, took;

    for (int r = 0; r < 64; r++) state_bytes[r] = 60ull << 30;
    options.tp = options.pp = 8;
    must(kvg_sizing_default(&options.sizing));
    options.state_bytes = state_bytes;
    options.max_sequences = 256;
    begin = bench_now_us();
    must(kvg_grid_plan(config, &options, &plan));
    took = bench_now_us() - begin;
    kvg_grid_plan_free(&plan);
    return took;
}

int main(int argc, char **argv)
{
    static const char *const models[] = { "llama-3.1-8b", "llama-3.3-70b" };
    int                json = bench_has(argc, argv, "--json");

    if (!json) {
        bench_header("bench_place", "transport self  ranks 1  16 GiB a rank");
        printf("#  place/bare   model            layers   place     bare    plan 8x8\n#                                          (us)      (us)     (us)\n");
    }
    for (int m = 0; m < 2; m++) {
        KvgBootstrap   bootstrap = KVG_BOOTSTRAP_INIT;
        KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
        ModelConfig    config;
        KvgGrid       *grid;
        uint64_t       taken = 0;
        char           path[256];
        double         place[ROUNDS], bare[ROUNDS], plan[ROUNDS];
        snprintf(path, sizeof path, "tests/data/models/%s.json", models[m]);
        must(kvg_model_config_load(path, &config));
        must(kvg_grid_create(&bootstrap, &options, &grid));
        for (int i = 0; i < ROUNDS; i++) {
            place[i] = place_once(grid, &config, 16ull << 30, &taken);
            bare[i] = map_once(2 * config.plan.n_layer, taken / (2 * config.plan.n_layer) / 4096 * 4096);
            plan[i] = plan_once(&config);
        }
        double p = bench_median(place, ROUNDS), b = bench_median(bare, ROUNDS), q = bench_median(plan, ROUNDS);
        if (json) {
            printf("{\"bench\":\"place\",\"model\":\"%s\",\"place_us\":%.1f,\"bare_us\":%.1f,\"plan_8x8_us\":%.1f,\"ok\":true}\n", models[m], p, b, q);
        } else {
            printf("   %10.2f   %-15s  %6u   %7.0f   %6.0f   %7.0f\n", p / b, models[m], config.plan.n_layer, p, b, q);
        }
        kvg_grid_destroy(grid);
        kvg_model_config_free(&config);
    }
    return 0;
}

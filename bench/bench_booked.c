/* How many bytes are booked for one byte of content, serving a real trace?
 *
 * llama-3.3-70b on tp 8 (eight in-process ranks), the conversation trace, 256 requests in flight: each opens with nothing booked, prefills its
 * whole context in one step, then decodes a row a step; units are booked as they grow and come back at the close. Content and
 * booked bytes of rank 0 are read after every step once 256 are in flight; the figure is the mean of booked over the mean of content.
 * The limit is content itself (1.0). Bar: at most 1.05. Prefix of the trace by --requests N (default: 4000). */
#include <kvgrid/kvgrid.h>

#include "bench/bench.h"

enum { RANKS = 8, IN_FLIGHT = 256 };

typedef struct Request {
    uint32_t context, generated;
} Request;

typedef struct Live {
    KvgSequence *sequence[RANKS];
    uint32_t     left; /* rows still to decode */
    uint32_t     next; /* rows of its next step */
} Live;

static KvgGrid      *grids[RANKS];
static KvgPlacement *placements[RANKS];
static KvgBatch     *batches[RANKS];
static Live          live[IN_FLIGHT];

static void must(KvgStatus status)
{
    if (status != KVG_OK) {
        fprintf(stderr, "bench_booked: %s\n", kvg_last_error());
        exit(2);
    }
}

static Request *read_trace(const char *path, size_t *count)
{
    Request *requests = NULL;
    size_t   room = 0;
    char     line[256];
    FILE    *file = fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "bench_booked: cannot read %s; name the trace with --trace\n", path);
        exit(2);
    }
    *count = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        Request request;
        if (sscanf(line, "%*[^,],%u,%u", &request.context, &request.generated) != 2) continue; /* the heading */
        if (*count == room) requests = realloc(requests, (room = room * 2 + 1024) * sizeof *requests);
        if (requests == NULL) exit(2);
        requests[(*count)++] = request;
    }
    fclose(file);
    return requests;
}

static void place_all(const char *model)
{
    KvInproc       *hub;
    KvgGridOptions  options = KVG_GRID_OPTIONS_INIT;
    KvgPlaceOptions place = KVG_PLACE_OPTIONS_INIT;
    KvgSetup       *setups[RANKS];
    KvgPolicy       policy;
    ModelConfig     config;
    int             done[RANKS] = { 0 }, left = RANKS;

    kvg_policy_default(&policy);
    options.tp = RANKS;
    options.policy = &policy;
    must(kvg_model_config_load(model, &config));
    must(kvg_inproc_create(RANKS, &hub));
    must(kvg_grid_create_inproc(hub, RANKS, &options, grids));
    place.max_sequences = IN_FLIGHT;
    place.ctx = 4096;
    place.memory_bytes = 16ull << 30; /* of addresses: nothing is written */
    place.memory_max_bytes = place.memory_bytes;
    for (int r = 0; r < RANKS; r++) must(kvg_place_start(grids[r], &config, &place, &placements[r], &setups[r]));
    while (left > 0) {
        for (int r = 0; r < RANKS; r++) {
            if (done[r]) continue;
            must(kvg_setup_test(setups[r], &done[r]));
            left -= done[r];
        }
    }
    for (int r = 0; r < RANKS; r++) {
        kvg_setup_free(setups[r]);
        must(kvg_batch_create(placements[r], IN_FLIGHT, &batches[r]));
    }
}

static size_t admit(const Request *requests, size_t count, size_t next)
{
    for (int slot = 0; slot < IN_FLIGHT; slot++) {
        if (live[slot].sequence[0] != NULL || next >= count) continue;
        for (int r = 0; r < RANKS; r++) {
            must(kvg_sequence_open(placements[r], next, 0, &live[slot].sequence[r]));
            must(kvg_batch_set(batches[r], (uint32_t)slot, live[slot].sequence[r]));
        }
        live[slot].next = requests[next].context > 0 ? requests[next].context : 1;
        live[slot].left = requests[next].generated;
        next++;
    }
    return next;
}

static void step_all(void)
{
    uint32_t  rows[IN_FLIGHT];
    KvgStep  *steps[RANKS];
    KvgCommit commit = KVG_COMMIT_INIT;
    for (int slot = 0; slot < IN_FLIGHT; slot++) rows[slot] = live[slot].sequence[0] != NULL ? live[slot].next : 0;
    commit.accept_all = 1;
    for (int r = 0; r < RANKS; r++) {
        must(kvg_step_begin(batches[r], rows, &steps[r]));
        for (int slot = 0; slot < IN_FLIGHT; slot++) must(kvg_step_refusal(steps[r], (uint32_t)slot));
        must(kvg_step_post(steps[r], &commit));
    }
    for (int r = 0; r < RANKS; r++) must(kvg_step_wait(steps[r], NULL));
}

static int retire(void)
{
    int in_flight = 0;
    for (int slot = 0; slot < IN_FLIGHT; slot++) {
        if (live[slot].sequence[0] == NULL) continue;
        in_flight++;
        live[slot].next = 1;
        if (live[slot].left-- > 0) continue;
        for (int r = 0; r < RANKS; r++) {
            must(kvg_batch_set(batches[r], (uint32_t)slot, NULL));
            must(kvg_sequence_close(live[slot].sequence[r], NULL));
            live[slot].sequence[r] = NULL;
        }
    }
    return in_flight;
}

int main(int argc, char **argv)
{
    const char *model = "tests/data/models/llama-3.3-70b.json", *trace = "tests/data/traces/azure_llm_2023_conv.csv";
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--trace") == 0) trace = argv[i + 1];
        if (strcmp(argv[i], "--model") == 0) model = argv[i + 1];
    }
    size_t   count, next = 0;
    Request *requests = read_trace(trace, &count);
    long     asked = bench_number(argc, argv, "--requests", 4000);
    double   content = 0, booked = 0, steps = 0;
    if ((size_t)asked < count) count = (size_t)asked;
    place_all(model);
    for (;;) {
        KvgStats stats = { .size = sizeof stats };
        next = admit(requests, count, next);
        step_all();
        must(kvg_stats(placements[0], &stats));
        if (stats.sequences_open == IN_FLIGHT) {
            content += (double)stats.content_bytes;
            booked += (double)stats.booked_bytes;
            steps++;
        }
        if (retire() < IN_FLIGHT && next >= count) break;
    }
    double ratio = booked / content;
    if (bench_has(argc, argv, "--json")) {
        printf("{\"bench\":\"booked\",\"booked_over_content\":%.4f,\"steps\":%.0f,\"content_bytes_mean\":%.0f,\"ok\":%s}\n", ratio, steps,
               content / steps, ratio <= 1.05 ? "true" : "false");
    } else {
        bench_header("bench_booked", "llama-3.3-70b  tp 8  conversation trace  256 in flight");
        printf("#  verdict  booked/content     steps   content/rank  booked/rank\n#                                          (GB)         (GB)\n");
        printf("   %-7s  %14.4f  %8.0f   %10.3f  %11.3f\n", ratio <= 1.05 ? "OK" : "MISSED", ratio, steps, content / steps / 1e9, booked / steps / 1e9);
    }
    free(requests);
    return ratio <= 1.05 ? 0 : 1;
}

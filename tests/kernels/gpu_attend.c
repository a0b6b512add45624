/* The engine's view, tried: a small model on a 1x1 grid, rows written by kvg_write_kv in voted steps, an attention of the engine's own that finds
 * them through kvg_plane_view, and a float64 reference over the planes as the library decodes them.
 *
 * Steps are driven by the host, or replayed in captured runs, where the engine's generator, attention and sampler stand in the graph beside write and
 * vote. Built twice: gpu_attend on CUDA (attention.cu), and host_attend on a host device that captures runs (attention_host.cpp, host_run_dev.h): anywhere.
 * KVG_TEST_BRIEF: fewer steps and kinds, for sanitizers. */
#include <math.h>

#include "tests/kernels/attention.h"
#include "tests/support/inproc_grid.h"
#ifndef KVG_TEST_CUDA
#include "tests/kernels/host_run_dev.h"
#endif

enum { LAYERS = 2, KV_HEADS = 8, QUERY_HEADS = 16, WINDOW = 96, CONTEXT = 1024, CHUNK = 150, SLOTS = 6, PLACES = 6, QUERIES = 3, SPLITS = 5,
       ROW = KV_HEADS * ATTEND_DIM };
static const double ALLOWED = 2e-3; /* relative, of each element; elements below a hundredth of their head's largest: of that hundredth */

#define OK(call)  ck_assert_msg((call) == KVG_OK, "%s: %s", #call, kvg_last_error())
#define RAN(call) ck_assert_int_eq(call, 0)

static const char model[] =
    "{\"model_type\":\"llama\",\"hidden_size\":2048,\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":128,\"num_hidden_layers\":2,"
    "\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":1024,\"sliding_window\":96,"
    "\"layer_types\":[\"sliding_attention\",\"full_attention\"]}";
static const uint32_t prompts[PLACES - 1] = { 70, 200, 520, 830, 33 }; /* the last place stays empty */

static const struct {
    KvFormat k, v;
    KvLayout layout;
    int      ring;
} kinds[] = { { KVG_BF16, KVG_BF16, KVG_LAYOUT_POOL, 1 }, { KVG_Q8_0, KVG_Q5_1, KVG_LAYOUT_POOL, 1 }, { KVG_Q8_0, KVG_Q5_1, KVG_LAYOUT_POOL, 0 },
              { KVG_BF16, KVG_BF16, KVG_LAYOUT_FLAT, 1 }, { KVG_Q8_0, KVG_Q5_1, KVG_LAYOUT_FLAT, 1 }, { KVG_Q8_0, KVG_Q5_1, KVG_LAYOUT_FLAT, 0 } };
enum { KINDS = sizeof kinds / sizeof *kinds };

static int is_brief(void)
{
    return getenv("KVG_TEST_BRIEF") != NULL;
}

static int is_skipped(int kind)
{
    return is_brief() && kind != 1;
}

/* ---- the scene */

typedef struct Tenant { /* of a place */
    KvgSequence *sequence;
    uint32_t     key, slot;
    uint64_t     rows;     /* committed */
    uint64_t     mirrored; /* of them, decoded into the mirror */
} Tenant;

typedef struct Device { /* device memory at fixed addresses */
    uint32_t *rows, *queries, *first_row; /* [PLACES]; one allocation */
    uint32_t *keys;                       /* [SLOTS] */
    uint16_t *k, *v;                      /* [PLACES][CHUNK][ROW] */
    float    *q, *out[LAYERS], *partial;
} Device;

typedef struct Scene {
    TestGrid  g;
    KvDev     dev;
    KvgStream stream;
    KvgBatch *batch;
    Tenant    tenants[PLACES];
    Device    at;
    float    *mirror[LAYERS][2]; /* [SLOTS][CONTEXT][ROW] decoded rows, as committed */
    float    *out;               /* [CONTEXT][QUERY_HEADS][ATTEND_DIM] one slot's */
    uint32_t  next_key, compared;
    double    worst;
} Scene;

static void *device_zeros(Scene *s, size_t bytes)
{
    void *memory = NULL;
    OK(s->dev.ops->zeros(s->dev.self, bytes, &memory));
    return memory;
}

/* Where a step's kernels find what differs from step to step: device memory. */
typedef struct Pass {
    const uint32_t *rows, *queries, *first_row;
    const uint32_t *first_token; /* [PLACES] host memory, as KvgRows has it */
    uint32_t        rows_max;    /* tokens of a place stand so far apart */
} Pass;

static GenerateCall generate_call(const Scene *s, uint32_t il, const Pass *pass)
{
    return (GenerateCall){ .view = *kvg_plane_view(s->batch, il), .slots = kvg_batch_slots(s->batch), .rows = pass->rows, .queries = pass->queries,
                           .first_row = pass->first_row, .keys = s->at.keys, .places = PLACES, .rows_max = pass->rows_max, .queries_max = QUERIES,
                           .query_heads = QUERY_HEADS, .k = s->at.k, .v = s->at.v, .q = s->at.q };
}

static AttendCall attend_call(const Scene *s, uint32_t il, const Pass *pass)
{
    return (AttendCall){ .view = *kvg_plane_view(s->batch, il), .slots = kvg_batch_slots(s->batch), .queries = pass->queries, .places = PLACES,
                         .queries_max = QUERIES, .query_heads = QUERY_HEADS, .splits = SPLITS, .scale = 0.0883883476f, .q = s->at.q, .out = s->at.out[il],
                         .out_rows = CONTEXT, .partial = s->at.partial };
}

static void take_memory(Scene *s)
{
    size_t plane = (size_t)SLOTS * CONTEXT * ROW * sizeof(float), out = (size_t)CONTEXT * QUERY_HEADS * ATTEND_DIM * sizeof(float);
    Device *at = &s->at;

    at->rows = device_zeros(s, 3 * PLACES * sizeof(uint32_t));
    at->queries = at->rows + PLACES;
    at->first_row = at->queries + PLACES;
    at->keys = device_zeros(s, SLOTS * sizeof(uint32_t));
    at->k = device_zeros(s, (size_t)PLACES * CHUNK * ROW * sizeof(uint16_t));
    at->v = device_zeros(s, (size_t)PLACES * CHUNK * ROW * sizeof(uint16_t));
    at->q = device_zeros(s, (size_t)PLACES * QUERIES * QUERY_HEADS * ATTEND_DIM * sizeof(float));
    AttendCall shape = { .places = PLACES, .queries_max = QUERIES, .query_heads = QUERY_HEADS, .splits = SPLITS };
    at->partial = device_zeros(s, attend_partial_floats(&shape) * sizeof(float));
    s->out = malloc(out);
    for (uint32_t il = 0; il < LAYERS; il++) {
        at->out[il] = device_zeros(s, SLOTS * out);
        for (int p = 0; p < 2; p++) s->mirror[il][p] = malloc(plane);
    }
}

static void give_memory(Scene *s)
{
    void *held[] = { s->at.rows, s->at.keys, s->at.k, s->at.v, s->at.q, s->at.partial, s->at.out[0], s->at.out[1] };

    for (size_t i = 0; i < sizeof held / sizeof *held; i++) s->dev.ops->free(s->dev.self, held[i]);
    for (uint32_t il = 0; il < LAYERS; il++) {
        for (int p = 0; p < 2; p++) free(s->mirror[il][p]);
    }
    free(s->out);
}

/* A new sequence for a place, and the key of its rows. */
static void seat(Scene *s, uint32_t place)
{
    Tenant         *tenant = &s->tenants[place];
    KvgSequenceInfo info = { .size = sizeof info };

    *tenant = (Tenant){ .key = ++s->next_key };
    OK(kvg_sequence_open(s->g.placement[0], 100 + tenant->key, 0, &tenant->sequence));
    OK(kvg_sequence_info(tenant->sequence, &info));
    tenant->slot = info.slot;
    ck_assert_uint_lt(tenant->slot, SLOTS);
    OK(s->dev.ops->set_i32_one(s->dev.self, (int32_t *)s->at.keys + tenant->slot, (int32_t)tenant->key, s->stream));
    OK(kvg_batch_set(s->batch, place, tenant->sequence));
}

static void scene_open(Scene *s, int kind)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    KvgPolicy       policy;

    memset(s, 0, sizeof *s);
    kvg_policy_default(&policy);
    policy.swa_ring = (int8_t)kinds[kind].ring;
    grid_connect(&s->g, 1, 1, &policy, 0);
    OK(test_device_open(1, &s->g.device)); /* the grid's, which closes it and counts what is left */
    s->dev = s->g.device;
#ifdef KVG_TEST_CUDA
    cudaStream_t stream;
    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    s->stream = stream;
#else
    static HostStream stream;
    host_run_serve(&s->g.device);
    s->dev = s->g.device;
    s->stream = &stream;
#endif
    take_memory(s);
    OK(kvg_model_config_parse_json(model, sizeof model - 1, "small", &s->g.config));
    options.format_k = kinds[kind].k;
    options.format_v = kinds[kind].v;
    options.layout = kinds[kind].layout;
    options.max_sequences = SLOTS;
    options.memory_bytes = 256u << 20;
    options.prefill_chunk_max = CHUNK;
    options.device = &s->g.device;
    ck_assert_msg(grid_place(&s->g, &s->g.config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    OK(kvg_batch_create(s->g.placement[0], PLACES, &s->g.batch[0]));
    s->batch = s->g.batch[0];
    for (uint32_t place = 0; place + 1 < PLACES; place++) seat(s, place);
}

static void scene_close(Scene *s)
{
#ifdef KVG_TEST_CUDA
    OK(kvg_cuda_forget_stream(&s->dev, s->stream));
    ck_assert_int_eq(cudaStreamDestroy(s->stream), cudaSuccess);
#endif
    give_memory(s);
    grid_close(&s->g);
}

/* ---- what an engine does in every step; the same calls make a captured step */

static void forward(Scene *s, const Pass *pass)
{
    for (uint32_t il = 0; il < LAYERS; il++) {
        GenerateCall generate = generate_call(s, il, pass);
        AttendCall   attend = attend_call(s, il, pass);
        KvgRows      rows = KVG_ROWS_INIT;

        RAN(generate_launch(&generate, s->stream));
        rows.k = s->at.k;
        rows.v = s->at.v;
        rows.dtype = KVG_BF16;
        rows.first_token = pass->first_token;
        OK(kvg_write_kv(s->batch, il, &rows, s->stream));
        RAN(attend_launch(&attend, s->stream));
    }
}

/* ---- the reference */

/* Rows that were committed since the last look, decoded by the library, into the mirror; each must be what the generator's row encodes to. */
static void look_at_rows(Scene *s, const Tenant *tenant, uint32_t il, int plane, KvFormat format)
{
    uint32_t count = (uint32_t)(tenant->rows - tenant->mirrored);
    float   *decoded = s->mirror[il][plane] + ((size_t)tenant->slot * CONTEXT + tenant->mirrored) * ROW, made[ROW], expected[ROW];
    uint8_t  stored[ROW * 4];
    size_t   wrong = 0;

    OK(kvg_sequence_read(tenant->sequence, il, plane == 0 ? KVG_PLANE_K : KVG_PLANE_V, tenant->mirrored, count, decoded));
    for (uint32_t r = 0; r < count; r++) {
        for (uint32_t e = 0; e < ROW; e++) {
            made[e] = attend_value(tenant->key, il, (uint32_t)plane, e / ATTEND_DIM, (uint32_t)tenant->mirrored + r, e % ATTEND_DIM);
        }
        kvg_encode_f32(format, made, ROW, stored, NULL);
        kvg_decode_f32(format, stored, ROW, expected);
        wrong += memcmp(expected, decoded + (size_t)r * ROW, sizeof expected) != 0;
    }
    ck_assert_msg(wrong == 0, "layer %u, plane %d, rows %llu on: %zu of %u are not what was written", il, plane, (unsigned long long)tenant->mirrored, wrong, count);
}

static void look(Scene *s, Tenant *tenant)
{
    if (tenant->rows == tenant->mirrored) return;
    for (uint32_t il = 0; il < LAYERS; il++) {
        const KvPlaneView *view = kvg_plane_view(s->batch, il);
        look_at_rows(s, tenant, il, 0, view->k.format);
        look_at_rows(s, tenant, il, 1, view->v.format);
    }
    tenant->mirrored = tenant->rows;
}

/* One output of row `row` in float64: softmax(scale * q.k) v over the rows it sees. */
static void reference(const Scene *s, const Tenant *tenant, uint32_t il, uint32_t head, uint32_t row, double out[ATTEND_DIM])
{
    const size_t   from = (size_t)tenant->slot * CONTEXT * ROW + (size_t)(head / (QUERY_HEADS / KV_HEADS)) * ATTEND_DIM;
    const uint64_t window = kvg_plane_view(s->batch, il)->window;
    uint32_t       first = window != 0 && row + 1 > window ? row + 1 - (uint32_t)window : 0;
    static double  weight[CONTEXT];
    double         q[ATTEND_DIM], most = -1e300, sum = 0;

    for (uint32_t e = 0; e < ATTEND_DIM; e++) q[e] = 0.0883883476 * (double)attend_value(tenant->key, il, ATTEND_Q, head, row, e);
    for (uint32_t r = first; r <= row; r++) {
        const float *k = s->mirror[il][0] + from + (size_t)r * ROW;
        double       score = 0;
        for (uint32_t e = 0; e < ATTEND_DIM; e++) score += q[e] * (double)k[e];
        weight[r] = score;
        most = score > most ? score : most;
    }
    memset(out, 0, ATTEND_DIM * sizeof *out);
    for (uint32_t r = first; r <= row; r++) {
        const float *v = s->mirror[il][1] + from + (size_t)r * ROW;
        double       w = exp(weight[r] - most);
        sum += w;
        for (uint32_t e = 0; e < ATTEND_DIM; e++) out[e] += w * (double)v[e];
    }
    for (uint32_t e = 0; e < ATTEND_DIM; e++) out[e] /= sum;
}

static double error_of(const float *got, const double *want)
{
    double largest = 0, worst = 0;

    for (uint32_t e = 0; e < ATTEND_DIM; e++) largest = fmax(largest, fabs(want[e]));
    for (uint32_t e = 0; e < ATTEND_DIM; e++) {
        double error = fabs((double)got[e] - want[e]) / fmax(fabs(want[e]), largest * 0.01);
        worst = error <= worst ? worst : error; /* NaN too */
    }
    return worst;
}

/* Outputs of rows [from, to) of a tenant, all layers and heads, against the reference. */
static void compare(Scene *s, const Tenant *tenant, uint32_t from, uint32_t to)
{
    const size_t row_elements = (size_t)QUERY_HEADS * ATTEND_DIM, bytes = (to - from) * row_elements * sizeof(float);
    double       want[ATTEND_DIM];

    for (uint32_t il = 0; il < LAYERS; il++) {
        double worst = 0;
        OK(s->dev.ops->dtoh(s->dev.self, s->out, s->at.out[il] + ((size_t)tenant->slot * CONTEXT + from) * row_elements, bytes, NULL));
        OK(s->dev.ops->synchronize(s->dev.self, NULL));
        for (uint32_t at = 0; at < (to - from) * QUERY_HEADS; at++) {
            reference(s, tenant, il, at % QUERY_HEADS, from + at / QUERY_HEADS, want);
            double error = error_of(s->out + (size_t)at * ATTEND_DIM, want);
            worst = error <= worst ? worst : error;
            s->compared++;
        }
        ck_assert_msg(worst <= ALLOWED, "key %u, layer %u, rows %u to %u: an output is off by %.2e", tenant->key, il, from, to - 1, worst);
        s->worst = fmax(s->worst, worst);
    }
}

/* ---- steps driven by the host */

/* Rows that a step or a run has committed for a place: decoded and compared, from row `first` on what was attended. */
static void take(Scene *s, uint32_t place, uint32_t committed, uint32_t first)
{
    Tenant *tenant = &s->tenants[place];

    tenant->rows += committed;
    if (tenant->sequence == NULL) return;
    look(s, tenant);
    if (first < tenant->rows) compare(s, tenant, first, (uint32_t)tenant->rows);
}

/* A prompt in chunks, then a row a step, and in every third step three of which some are refused. */
static uint32_t rows_of(const Tenant *tenant, uint32_t place, uint32_t step)
{
    if (tenant->sequence == NULL) return 0;
    if (tenant->rows < prompts[place]) return prompts[place] - tenant->rows < CHUNK ? prompts[place] - (uint32_t)tenant->rows : CHUNK;
    return step % 3 == 2 ? 3 : 1;
}

static void send_pass(Scene *s, const KvgStep *step, const uint32_t queries[PLACES])
{
    uint32_t pass[3 * PLACES];

    for (uint32_t place = 0; place < PLACES; place++) {
        pass[place] = kvg_step_rows(step)[place];
        pass[PLACES + place] = queries[place];
        pass[2 * PLACES + place] = (uint32_t)kvg_step_first_rows(step)[place];
    }
    OK(s->dev.ops->htod(s->dev.self, s->at.rows, pass, sizeof pass, s->stream));
}

static void step_by_host(Scene *s, uint32_t number)
{
    uint32_t  rows[PLACES], queries[PLACES], accepted[PLACES], first_token[PLACES];
    Pass      pass = { s->at.rows, s->at.queries, s->at.first_row, first_token, CHUNK };
    KvgStep  *step;
    KvgCommit commit = KVG_COMMIT_INIT;

    for (uint32_t place = 0; place < PLACES; place++) {
        first_token[place] = place * CHUNK;
        rows[place] = rows_of(&s->tenants[place], place, number);
        queries[place] = rows[place] < QUERIES ? rows[place] : QUERIES;
        accepted[place] = rows[place] == 3 ? 1 + (number + place) % 3 : rows[place];
    }
    OK(kvg_step_begin(s->batch, rows, &step));
    for (uint32_t place = 0; place < PLACES; place++) OK(kvg_step_refusal(step, place));
    send_pass(s, step, queries);
    forward(s, &pass);
    commit.accepted = accepted;
    OK(kvg_step_post(step, &commit));
    ck_assert_msg(grid_decide(&s->g, &step, NULL) == KVG_OK, "%s", kvg_last_error());
    for (uint32_t place = 0; place < PLACES; place++) {
        take(s, place, accepted[place], (uint32_t)s->tenants[place].rows + rows[place] - queries[place]);
    }
}

/* Another sequence in place 1; places 0 and 4 change seats. */
static void change_members(Scene *s)
{
    Tenant tenant = s->tenants[0];

    OK(kvg_sequence_close(s->tenants[1].sequence, s->stream));
    seat(s, 1);
    s->tenants[0] = s->tenants[4];
    s->tenants[4] = tenant;
    OK(kvg_batch_set(s->batch, 0, s->tenants[0].sequence));
    OK(kvg_batch_set(s->batch, 4, s->tenants[4].sequence));
}

static void report(const Scene *s, const char *how, int kind)
{
    printf("%s: %s K, %s V, layout %d, ring %d: %u outputs, the worst off by %.1e\n", how, kvg_format_name(kinds[kind].k), kvg_format_name(kinds[kind].v),
           (int)kinds[kind].layout, kinds[kind].ring, s->compared, s->worst);
}

START_TEST(test_attention_through_views_agrees_with_float64_over_the_decoded_planes)
{
    Scene    s;
    uint32_t steps = is_brief() ? 17 : 26;

    if (is_skipped(_i)) return;
    scene_open(&s, _i);
    for (uint32_t step = 0; step < steps; step++) {
        if (step == 14) change_members(&s);
        step_by_host(&s, step);
    }
    ck_assert_uint_gt(s.compared, steps * (PLACES - 2) * LAYERS * QUERY_HEADS);
    const uint32_t *base = test_device_look(&s.dev, kvg_plane_view(s.batch, 0)->base_row, SLOTS * sizeof *base);
    ck_assert_int_eq(base[s.tenants[3].slot] > 0, kinds[_i].ring); /* rows behind the window are gone: chunks given back, a ring moved */
    report(&s, "steps by the host", _i);
    scene_close(&s);
}
END_TEST

/* ---- captured runs */

/* Every place stages up to QUERIES rows, all of them attend, and the sampler on the device says how many are kept. */
static KvgStatus capture(Scene *s, KvgGraph **graph)
{
    const uint32_t rows[PLACES] = { QUERIES, QUERIES, QUERIES, QUERIES, QUERIES, QUERIES };
    KvgCapture     how = KVG_CAPTURE_INIT;
    KvgRunArrays   arrays = { .size = sizeof arrays };

    how.rows_per_slot = rows;
    how.accept = KVG_ACCEPT_DEVICE;
    KVG_TRY(kvg_batch_capture_begin(s->batch, &how, s->stream));
    OK(kvg_run_arrays(s->batch, &arrays));
    Pass       pass = { arrays.rows, arrays.rows, arrays.first_row, NULL, QUERIES };
    AcceptCall accept = { kvg_batch_slots(s->batch), arrays.rows, arrays.first_row, s->at.keys, PLACES, arrays.accepted };
    forward(s, &pass);
    RAN(accept_launch(&accept, s->stream));
    OK(kvg_batch_capture_end(s->batch, graph));
    return KVG_OK;
}

/* Rows that `steps` replays keep from row `first` on. */
static uint32_t kept_of(const Tenant *tenant, uint32_t steps, uint32_t rows)
{
    uint32_t row = (uint32_t)tenant->rows;

    if (tenant->sequence == NULL || rows == 0) return 0;
    for (uint32_t i = 0; i < steps; i++) row += attend_accept(tenant->key, row, rows);
    return row - (uint32_t)tenant->rows;
}

/* Replays, more or fewer than planned; every row that each of them committed is compared, and how many those are. */
static void run(Scene *s, KvgGraph *graph, uint32_t steps, uint32_t launches, const uint32_t rows[PLACES])
{
    KvgRunResult result = { .size = sizeof result };
    uint32_t     published = launches < steps ? launches : steps;

    OK(kvg_run_begin(graph, steps, rows, s->stream));
    for (uint32_t place = 0; place < PLACES; place++) OK(kvg_run_refusal(graph, place));
    for (uint32_t i = 0; i < launches; i++) OK(kvg_graph_launch(graph, s->stream));
    OK(kvg_run_end(graph, s->stream, &result));
    ck_assert_uint_eq(result.published, published);
    for (uint32_t place = 0; place < PLACES; place++) {
        uint32_t kept = kept_of(&s->tenants[place], published, rows != NULL ? rows[place] : QUERIES);
        ck_assert_msg(result.rows[place] == kept, "place %u: %u rows are committed, and %u were accepted", place, result.rows[place], kept);
        take(s, place, kept, (uint32_t)s->tenants[place].rows);
    }
}

START_TEST(test_attention_inside_captured_runs_agrees_in_every_step)
{
    const uint32_t uneven[PLACES] = { 3, 2, 1, 0, 3, 0 };
    KvgGraph      *graph = NULL;
    Scene          s;

    if (is_skipped(_i)) return;
    scene_open(&s, _i);
    for (uint32_t step = 0; step < 8; step++) step_by_host(&s, step);
    KvgStatus status = capture(&s, &graph);
    if (kinds[_i].layout == KVG_LAYOUT_FLAT && kinds[_i].ring) { /* the host moves their rows */
        ck_assert_int_eq(status, KVG_ENOTSUP);
    } else {
        OK(status);
        run(&s, graph, is_brief() ? 4 : 16, 16, NULL);
        change_members(&s); /* no capture anew */
        run(&s, graph, is_brief() ? 3 : 12, 14, uneven);
        for (uint32_t step = 8; step < 12; step++) step_by_host(&s, step);
        run(&s, graph, 10, is_brief() ? 2 : 6, NULL);
        kvg_graph_free(graph);
        report(&s, "captured runs", _i);
    }
    scene_close(&s);
}
END_TEST

START_TEST(test_formats_and_shapes_without_a_kernel_are_not_launched)
{
    AttendCall call = { .query_heads = 16, .splits = 1 };

    call.view.heads = 8;
    call.view.k.head_dim = call.view.v.head_dim = ATTEND_DIM;
    call.view.k.format = KVG_Q8_0;
    call.view.v.format = KVG_Q5_1;
    AttendCall other = call;
    other.view.v.format = KVG_BF16;
    ck_assert_int_eq(attend_launch(&other, NULL), 1);
    other = call;
    other.view.k.head_dim = 64;
    ck_assert_int_eq(attend_launch(&other, NULL), 1);
    other = call;
    other.query_heads = 12;
    ck_assert_int_eq(attend_launch(&other, NULL), 1);
    other = call;
    other.splits = 0;
    ck_assert_int_eq(attend_launch(&other, NULL), 1);
}
END_TEST

int main(void)
{
    setenv("CUDA_MODULE_LOADING", "EAGER", 0); /* no kernel is loaded while a capture is on */
    if (test_device_missing()) return test_device_missing();
    Suite *suite = suite_create("attend");
    TCase *tc = tcase_create("attend");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, test_attention_through_views_agrees_with_float64_over_the_decoded_planes, 0, KINDS);
    tcase_add_loop_test(tc, test_attention_inside_captured_runs_agrees_in_every_step, 0, KINDS);
    tcase_add_test(tc, test_formats_and_shapes_without_a_kernel_are_not_launched);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);
    srunner_free(runner);
    return failed != 0;
}

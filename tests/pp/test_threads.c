/* What public headers promise about threads: a grid may be driven by any thread, one at a time, so that one makes progress while another steps; grids of
 * their own need no lock between them; the last error is a thread's own; pure functions, the process's policy and a loaded config may be read by all at once.
 * tests/tsan.sh runs this under ThreadSanitizer. Threads return a sentence of what went wrong: assertions are the main thread's. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/kvgrid.h>

#include "runtime/base/memory.h"

enum { THREADS = 4, STEPS = 24, ROWS_MAX = 8, LAYERS = 4, HEADS = 4, DIM = 32 };

static const char model[] = "{\"model_type\":\"llama\",\"hidden_size\":128,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"head_dim\":32,"
                            "\"num_hidden_layers\":4,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":2048}";

/* ---- an engine of one rank, on its own or beside a thread that makes progress */

typedef struct Engine {
    KvgGrid         *grid;
    pthread_mutex_t *turn; /* who drives the grid; NULL: nobody else does */
    KvgPlacement    *placement;
    KvgBatch        *batch;
    KvgSequence     *sequence;
    char             digest[33];
    char             why[600]; /* "": all is well */
} Engine;

static void take(const Engine *engine)
{
    if (engine->turn != NULL) pthread_mutex_lock(engine->turn);
}

static void pass(const Engine *engine)
{
    if (engine->turn == NULL) return;
    pthread_mutex_unlock(engine->turn);
    sched_yield();
}

static int note(Engine *engine, const char *call, KvgStatus status)
{
    if (status != KVG_OK && engine->why[0] == '\0') snprintf(engine->why, sizeof engine->why, "%s: %s", call, kvg_last_error());
    return status == KVG_OK;
}

#define CALL(engine, call) note((engine), #call, (call))

/* Turns a set-up operation until it has ended; others may drive the grid between two turns. */
static int finish(Engine *engine, KvgStatus started, KvgSetup *const *setup)
{
    KvgStatus status = started;
    int       done = started != KVG_OK;

    while (!done) {
        pass(engine);
        take(engine);
        status = kvg_setup_test(*setup, &done);
    }
    if (started == KVG_OK) {
        int well = note(engine, "a set-up operation", status);
        kvg_setup_free(*setup);
        return well;
    }
    return note(engine, "a set-up operation's start", status);
}

static float value(uint32_t layer, uint32_t plane, uint32_t head, uint64_t row, uint32_t element)
{
    return (float)((layer * 131 + plane * 71 + head * 31 + (uint32_t)row * 7 + element) % 251) / 16.0f - 8.0f;
}

static int write_layer(Engine *engine, const KvgStep *step, uint32_t il)
{
    static _Thread_local float k[ROWS_MAX * HEADS * DIM], v[ROWS_MAX * HEADS * DIM];
    const KvPlaneView         *view = kvg_plane_view(engine->batch, il);
    KvgRows                    rows = KVG_ROWS_INIT;
    size_t                     at = 0;

    for (uint32_t i = 0; i < kvg_step_rows(step)[0]; i++) {
        for (uint32_t h = 0; h < view->heads; h++) {
            for (uint32_t e = 0; e < DIM; e++, at++) {
                k[at] = value(il, 0, view->head_first + h, kvg_step_first_rows(step)[0] + i, e);
                v[at] = value(il, 1, view->head_first + h, kvg_step_first_rows(step)[0] + i, e);
            }
        }
    }
    rows.k = k;
    rows.v = v;
    return CALL(engine, kvg_write_kv(engine->batch, il, &rows, NULL));
}

static int one_step(Engine *engine, uint32_t rows)
{
    KvgCommit commit = KVG_COMMIT_INIT;
    KvgStep  *step = NULL;
    KvgStatus status = KVG_OK;
    int       done = 0;
    uint32_t  lo, hi;

    if (!CALL(engine, kvg_step_begin(engine->batch, &rows, &step))) return 0;
    kvg_placement_layers(engine->placement, &lo, &hi);
    for (uint32_t il = lo; il < hi; il++) {
        if (!write_layer(engine, step, il)) return 0;
        pass(engine); /* between any two calls */
        take(engine);
    }
    commit.accept_all = 1;
    if (!CALL(engine, kvg_step_post(step, &commit))) return 0;
    while (!done) {
        pass(engine);
        take(engine);
        status = kvg_step_test(step, &done, NULL);
        if (!done && status != KVG_OK) break;
    }
    return note(engine, "kvg_step_test", status);
}

/* Places the model, serves one sequence, digests it, ends all but the grid. */
static void serve(Engine *engine)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    ModelConfig     config;
    KvgSetup       *setup = NULL;
    KvDigest        digest;
    int             well;

    options.memory_bytes = 4u << 20;
    options.max_sequences = 2;
    take(engine);
    well = CALL(engine, kvg_model_config_parse_json(model, strlen(model), "threads", &config));
    if (well) {
        well = finish(engine, kvg_place_start(engine->grid, &config, &options, &engine->placement, &setup), &setup) &&
               CALL(engine, kvg_batch_create(engine->placement, 1, &engine->batch)) &&
               CALL(engine, kvg_sequence_open(engine->placement, 7, 0, &engine->sequence)) && CALL(engine, kvg_batch_set(engine->batch, 0, engine->sequence));
        for (uint32_t n = 0; well && n < STEPS; n++) well = one_step(engine, 1 + n % ROWS_MAX);
        if (well && finish(engine, kvg_sequence_digest_start(engine->sequence, &digest, &setup), &setup)) kvg_digest_hex(&digest, engine->digest);
        kvg_batch_destroy(engine->batch);
        kvg_placement_destroy(engine->placement);
        kvg_model_config_free(&config);
    }
    pass(engine);
}

static void *serve_alone(void *user)
{
    Engine        *engine = user;
    KvgBootstrap   alone = KVG_BOOTSTRAP_INIT;
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;

    if (CALL(engine, kvg_grid_create(&alone, &options, &engine->grid))) {
        serve(engine);
        kvg_grid_destroy(engine->grid);
    }
    return NULL;
}

typedef struct Start {
    pthread_barrier_t *together;
    void *(*body)(void *);
    void *user;
} Start;

static void *start(void *user)
{
    const Start *at = user;

    pthread_barrier_wait(at->together); /* threads are short: none may be over before the next begins */
    return at->body(at->user);
}

static void run_threads(void *(*body)(void *), void *users, size_t bytes, int count)
{
    pthread_barrier_t together;
    pthread_t         threads[2 * THREADS];
    Start             starts[2 * THREADS];

    ck_assert_int_eq(pthread_barrier_init(&together, NULL, (unsigned)count), 0);
    for (int i = 0; i < count; i++) {
        starts[i] = (Start){&together, body, (uint8_t *)users + (size_t)i * bytes};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, start, &starts[i]), 0);
    }
    for (int i = 0; i < count; i++) ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    pthread_barrier_destroy(&together);
}

START_TEST(test_grids_of_several_threads_need_no_lock)
{
    Engine   engines[THREADS] = {0};
    uint64_t live = kvg_live_allocations();

    run_threads(serve_alone, engines, sizeof *engines, THREADS);
    for (int i = 0; i < THREADS; i++) {
        ck_assert_msg(engines[i].why[0] == '\0', "thread %d: %s", i, engines[i].why);
        ck_assert_uint_eq(strlen(engines[i].digest), 32);
        ck_assert_str_eq(engines[i].digest, engines[0].digest);
    }
    ck_assert_uint_eq(kvg_live_allocations(), live);
}
END_TEST

/* ---- two ranks in threads of one process, each with a second thread that makes progress */

typedef struct Meeting {
    pthread_barrier_t barrier;
    uint8_t           data[2][1 << 16];
} Meeting;

typedef struct Rank {
    Engine          engine;
    KvgBootstrap    bootstrap;
    Meeting        *meeting;
    pthread_mutex_t turn;
    atomic_int      ready, stop; /* 1: the grid is there; its engine has ended */
    unsigned        turns;       /* that the second thread has taken */
} Rank;

static KvgStatus meet(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    Rank *rank = user;

    (void)timeout_ms; /* the other is a thread of this test */
    if (bytes > sizeof rank->meeting->data[0]) return KVG_EINVAL;
    memcpy(rank->meeting->data[rank->bootstrap.rank], mine, bytes);
    pthread_barrier_wait(&rank->meeting->barrier);
    for (int r = 0; r < 2; r++) memcpy((uint8_t *)all + (size_t)r * bytes, rank->meeting->data[r], bytes);
    pthread_barrier_wait(&rank->meeting->barrier);
    return KVG_OK;
}

static void serve_rank(Rank *rank)
{
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;

    options.tp = 2;
    if (CALL(&rank->engine, kvg_grid_create(&rank->bootstrap, &options, &rank->engine.grid))) {
        atomic_store(&rank->ready, 1);
        serve(&rank->engine);
    }
    atomic_store(&rank->stop, 1);
}

static void make_progress(Rank *rank)
{
    while (!atomic_load(&rank->ready) && !atomic_load(&rank->stop)) sched_yield();
    while (!atomic_load(&rank->stop)) {
        pthread_mutex_lock(&rank->turn);
        CALL(&rank->engine, kvg_grid_progress(rank->engine.grid));
        rank->turns++;
        pthread_mutex_unlock(&rank->turn);
        sched_yield();
    }
}

typedef struct RankThread {
    Rank *rank;
    int   steps; /* 0: makes progress alone */
} RankThread;

static void *drive(void *user)
{
    const RankThread *thread = user;

    if (thread->steps) serve_rank(thread->rank);
    else make_progress(thread->rank);
    return NULL;
}

START_TEST(test_one_thread_makes_progress_while_another_steps)
{
    static Meeting meeting;
    static Rank    ranks[2];
    RankThread     threads[4];
    Engine         alone = {0};
    uint64_t       live = kvg_live_allocations();

    ck_assert_int_eq(pthread_barrier_init(&meeting.barrier, NULL, 2), 0);
    for (int r = 0; r < 2; r++) {
        ranks[r].bootstrap = (KvgBootstrap)KVG_BOOTSTRAP_INIT;
        ranks[r].bootstrap.user = &ranks[r];
        ranks[r].bootstrap.rank = r;
        ranks[r].bootstrap.ranks = 2;
        ranks[r].bootstrap.allgather = meet;
        ranks[r].meeting = &meeting;
        ck_assert_int_eq(pthread_mutex_init(&ranks[r].turn, NULL), 0);
        ranks[r].engine.turn = &ranks[r].turn;
        for (int steps = 0; steps < 2; steps++) threads[2 * r + steps] = (RankThread){&ranks[r], steps};
    }
    run_threads(drive, threads, sizeof *threads, 4);
    for (int r = 0; r < 2; r++) {
        ck_assert_msg(ranks[r].engine.why[0] == '\0', "rank %d: %s", r, ranks[r].engine.why);
        ck_assert_uint_gt(ranks[r].turns, 0);
        kvg_grid_destroy(ranks[r].engine.grid); /* by yet another thread */
    }
    serve_alone(&alone);
    ck_assert_str_eq(ranks[0].engine.digest, alone.digest);
    ck_assert_str_eq(ranks[1].engine.digest, alone.digest);
    ck_assert_uint_eq(kvg_live_allocations(), live);
}
END_TEST

/* ---- what is read by all at once */

typedef struct Reader {
    int                index;
    const ModelConfig *config;
    uint64_t           bytes;
    uint32_t           fence;
    char               why[300];
} Reader;

static atomic_int logged;

static void count_log(void *user, KvgLogLevel level, const char *sentence)
{
    (void)user, (void)level, (void)sentence;
    atomic_fetch_add(&logged, 1);
}

/* Every thread has read through the pointer before any asks again. Without an order between the two that a lock or a fence would make: that is what
 * ThreadSanitizer needs to see a write in the second call, however the threads were scheduled. */
static atomic_int have_read;

static int read_policy(Reader *reader)
{
    const KvgPolicy *policy = NULL;
    KvFormat         k, v;

    if (kvg_policy_process(&policy) != KVG_OK) return 0;
    reader->bytes += policy->timeout_ms + (uint64_t)(policy->kv_fp8_force + 1) + (uint64_t)policy->swa_ring_default;
    atomic_fetch_add_explicit(&have_read, 1, memory_order_relaxed);
    while (atomic_load_explicit(&have_read, memory_order_relaxed) < THREADS) sched_yield();
    kvg_kv_cache_formats(&k, &v);
    reader->bytes += (uint64_t)kvg_swa_ring_on();
    return policy->format_k == k && policy->format_v == v;
}

static int own_error(int index, int turn)
{
    char expected[32];
    TpKvRankAllocationShape shape;

    snprintf(expected, sizeof expected, "%d", 1000 + index * 100 + turn); /* a dimension that three ranks cannot share is named */
    return kvg_tp_kv_rank_allocation_shape((uint64_t)(1000 + index * 100 + turn), 1024, 7, KVG_Q8_0, KVG_Q5_1, &shape) == KVG_EGEOM &&
           strstr(kvg_last_error(), expected) != NULL;
}

static void *read_all(void *user)
{
    Reader *reader = user;

    for (int turn = 0; turn < 20; turn++) {
        KvGridPlanOptions options = KVG_GRID_PLAN_OPTIONS_INIT;
        KvGridPlan        plan;

        kvg_policy_default(&options.sizing.policy);
        options.pp = 2;
        if (!read_policy(reader)) snprintf(reader->why, sizeof reader->why, "policy: %s", kvg_last_error());
        if ((1000 + reader->index * 100 + turn) % 7 != 0 && !own_error(reader->index, turn)) snprintf(reader->why, sizeof reader->why, "last error: %s", kvg_last_error());
        if (kvg_grid_plan(reader->config, &options, &plan) != KVG_OK) {
            snprintf(reader->why, sizeof reader->why, "plan: %s", kvg_last_error());
            break;
        }
        reader->fence = plan.fence[1];
        kvg_grid_plan_free(&plan);
    }
    return NULL;
}

START_TEST(test_policy_config_and_pure_functions_are_read_by_all_at_once)
{
    Reader      readers[THREADS] = {0};
    ModelConfig config;
    uint64_t    live = kvg_live_allocations();

    kvg_log_set(count_log, NULL); /* before other threads, as log.h asks */
    ck_assert_int_eq(kvg_model_config_parse_json(model, strlen(model), "threads", &config), KVG_OK);
    for (int i = 0; i < THREADS; i++) readers[i] = (Reader){.index = i, .config = &config};
    run_threads(read_all, readers, sizeof *readers, THREADS); /* the first of them reads the environment */
    for (int i = 0; i < THREADS; i++) {
        ck_assert_msg(readers[i].why[0] == '\0', "thread %d: %s", i, readers[i].why);
        ck_assert_uint_eq(readers[i].bytes, readers[0].bytes);
        ck_assert_uint_eq(readers[i].fence, LAYERS / 2);
    }
    kvg_log_set(NULL, NULL);
    kvg_model_config_free(&config);
    ck_assert_uint_eq(kvg_live_allocations(), live);
}
END_TEST

/* The environment warns once a process, whichever thread reads it first; each warning comes whole through the callback. */
static void *read_environment(void *user)
{
    Reader   *reader = user;
    KvgPolicy policy;

    if (kvg_policy_from_env(&policy) != KVG_OK) snprintf(reader->why, sizeof reader->why, "%s", kvg_last_error());
    reader->bytes = (uint64_t)policy.dsa_index_ring;
    return NULL;
}

START_TEST(test_the_environment_warns_once_over_all_threads)
{
    Reader readers[THREADS] = {0};

    ck_assert_int_eq(setenv("KVGRID_DSA_INDEX_RING", "no number", 1), 0);
    kvg_log_set(count_log, NULL);
    atomic_store(&logged, 0);
    run_threads(read_environment, readers, sizeof *readers, THREADS);
    for (int i = 0; i < THREADS; i++) {
        ck_assert_msg(readers[i].why[0] == '\0', "thread %d: %s", i, readers[i].why);
        ck_assert_int_eq((int64_t)readers[i].bytes, -1);
    }
    ck_assert_int_eq(atomic_load(&logged), 1);
    kvg_log_set(NULL, NULL);
    unsetenv("KVGRID_DSA_INDEX_RING");
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("threads");
    TCase   *tests = tcase_create("threads");
    SRunner *runner;

    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, test_grids_of_several_threads_need_no_lock);
    tcase_add_test(tests, test_one_thread_makes_progress_while_another_steps);
    tcase_add_test(tests, test_policy_config_and_pure_functions_are_read_by_all_at_once);
    tcase_add_test(tests, test_the_environment_warns_once_over_all_threads);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed != 0 || ran == 0;
}

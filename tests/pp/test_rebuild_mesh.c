/* Rebuilding over real processes: a rank is killed while the others are stuck in a collective of their own, which knows nothing of kvgrid. A thread that turns
 * the grid hears of it, on_lost aborts the collective, and the survivors rebuild with a spare process in the lost place, or without, and go on. */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/support/fork_bootstrap.h"
#include "tests/support/grid_life.h"
#include "tests/support/kinds_run.h"

enum { RANKS = 4, VICTIM = 1, SPARE = 4, PROCESSES = 5, BEFORE = 6, AFTER = 5, GATHER_BYTES = 1 << 16 };

/* What the processes share beside the harness: pipes of the engine's own collective, all-gathers among some of them. */
typedef struct Shared {
    int         pipes[PROCESSES][2];
    atomic_uint arrived[2][RANKS];
    uint8_t     data[2][2][RANKS][GATHER_BYTES];
} Shared;

typedef struct Plan {
    const char *text;
    int         joins, kept;
    char        before[33], after[33]; /* the digests of a run that lost nobody */
    Shared     *shared;
} Plan;

typedef struct Engine {
    KvgGrid    *grid;
    TestGrid    one;
    KvgSequence *sequences[2];
    int         pipe_in, pipe_out;
    atomic_int  aborted, stop;
    uint64_t    recompute; /* rows */
} Engine;

static void my_collectives_abort(Engine *engine)
{
    char byte = 'A';
    atomic_store(&engine->aborted, 1);
    if (write(engine->pipe_out, &byte, 1) != 1) abort();
}

static void my_request_recompute(Engine *engine, uint64_t id, uint64_t rows)
{
    if (id == 100) engine->recompute = rows;
}

#include "tests/pp/after_loss.h"

/* ---- a bootstrap of four places, the first or the second time */

typedef struct Places {
    Shared *shared;
    int     which, place;
} Places;

static KvgStatus gather_places(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    Places  *places = user;
    Shared  *shared = places->shared;
    unsigned round = atomic_load(&shared->arrived[places->which][places->place]) + 1;
    double   deadline = fork_seconds() + timeout_ms * 1e-3;
    if (bytes > GATHER_BYTES) return kvg_fail(KVG_EINVAL, "%zu bytes a rank", bytes);
    memcpy(shared->data[places->which][round % 2][places->place], mine, bytes);
    atomic_store(&shared->arrived[places->which][places->place], round);
    for (int peer = 0; peer < RANKS; peer++) {
        while (atomic_load(&shared->arrived[places->which][peer]) < round) {
            if (fork_seconds() >= deadline) return kvg_fail(KVG_EINDOUBT, "place %d did not come", peer);
            fork_sleep_ms(1);
        }
        memcpy((uint8_t *)all + (size_t)peer * bytes, shared->data[places->which][round % 2][peer], bytes);
    }
    return KVG_OK;
}

static KvgBootstrap bootstrap_of(Places *places, Shared *shared, int which, int place)
{
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
    *places = (Places){shared, which, place};
    bootstrap.user = places;
    bootstrap.rank = place;
    bootstrap.ranks = RANKS;
    bootstrap.allgather = gather_places;
    return bootstrap;
}

/* ---- one rank's engine */

static KvgPolicy engine_policy(void)
{
    KvgPolicy policy;
    kvg_policy_default(&policy);
    policy.timeout_ms = 15000;
    policy.peer_ms = 200;
    return policy;
}

static KvgPlaceOptions engine_options(void)
{
    return life_options(3, 2u << 20);
}

static KvgStatus one_step(Engine *engine, uint32_t rows)
{
    Rank      rank = {&engine->one, 0, engine->sequences, 0};
    KvgStep  *step = NULL;
    KvgCommit commit = KVG_COMMIT_INIT;
    uint32_t  asked[2] = {rows, 0};
    kvg_batch_set(engine->one.batch[0], 0, engine->sequences[0]);
    KvgStatus status = kvg_step_begin(engine->one.batch[0], asked, &step);
    if (status != KVG_OK) return status;
    write_layers(&rank, step, 2);
    commit.accept_all = kvg_grid_stage(engine->grid) + 1 == kvg_grid_pp(engine->grid);
    status = kvg_step_post(step, &commit);
    return status == KVG_OK ? kvg_step_wait(step, NULL) : status;
}

static KvgStatus digest_is(Engine *engine, const char *expected)
{
    KvDigest digest;
    char     hex[33];
    KvgStatus status = kvg_sequence_digest(engine->sequences[0], &digest);
    if (status != KVG_OK) return status;
    kvg_digest_hex(&digest, hex);
    return strcmp(hex, expected) == 0 ? KVG_OK : kvg_fail(KVG_ELAYOUT, "digest %s, expected %s", hex, expected);
}

static KvgStatus steps_before(Engine *engine)
{
    KvgStatus status = KVG_OK;
    for (int n = 0; n < BEFORE && status == KVG_OK; n++) status = one_step(engine, 20 + (uint32_t)n);
    return status;
}

static KvgStatus steps_after(Engine *engine)
{
    KvgStatus status = KVG_OK;
    for (int n = 0; n < AFTER && status == KVG_OK; n++) status = one_step(engine, 3);
    return status;
}

static void *watch(void *user)
{
    Engine *engine = user;
    while (!atomic_load(&engine->stop)) {
        kvg_grid_progress(engine->grid);
        fork_sleep_ms(2);
    }
    return NULL;
}

/* The engine's own collective: waits for a word from the victim, which never comes. Only on_lost gets it out. */
static int stuck_in_collective(Engine *engine)
{
    pthread_t watcher;
    char      byte = 0;
    double    before = fork_seconds();
    FORK_CHECK(pthread_create(&watcher, NULL, watch, engine) == 0);
    FORK_CHECK(read(engine->pipe_in, &byte, 1) == 1 && byte == 'A');
    atomic_store(&engine->stop, 1);
    FORK_CHECK(pthread_join(watcher, NULL) == 0);
    FORK_CHECK(atomic_load(&engine->aborted) == 1);
    FORK_CHECK(fork_seconds() - before < 5.0);
    return 0;
}

static void free_engine(Engine *engine)
{
    kvg_batch_destroy(engine->one.batch[0]);
    kvg_placement_destroy(engine->one.placement[0]);
    kvg_grid_destroy(engine->grid);
}

static int finish(Engine *engine, const Plan *plan)
{
    FORK_CHECK(plan->kept == (engine->recompute == 0));
    if (engine->recompute > 0) FORK_CHECK(one_step(engine, (uint32_t)engine->recompute) == KVG_OK);
    FORK_CHECK(digest_is(engine, plan->before) == KVG_OK);
    FORK_CHECK(steps_after(engine) == KVG_OK);
    FORK_CHECK(digest_is(engine, plan->after) == KVG_OK);
    FORK_CHECK(kvg_grid_epoch(engine->grid) == 2);
    free_engine(engine);
    return 0;
}

static KvgStatus make_engine(Engine *engine, const KvgBootstrap *bootstrap, const Plan *plan, uint32_t tp)
{
    KvgGridOptions  grid = KVG_GRID_OPTIONS_INIT;
    KvgPolicy       policy = engine_policy();
    KvgPlaceOptions options = engine_options();
    ModelConfig     config;
    grid.tp = tp;
    grid.pp = (uint32_t)bootstrap->ranks / tp;
    grid.policy = &policy;
    grid.on_lost = lost;
    grid.user = engine;
    engine->one.ranks = 1;
    KvgStatus status = kvg_model_config_parse_json(plan->text, strlen(plan->text), "small", &config);
    if (status != KVG_OK) return status;
    status = kvg_grid_create(bootstrap, &grid, &engine->grid);
    if (status == KVG_OK) status = kvg_place(engine->grid, &config, &options, &engine->one.placement[0]);
    engine->one.grid[0] = engine->grid;
    kvg_model_config_free(&config);
    if (status == KVG_OK) status = kvg_batch_create(engine->one.placement[0], 2, &engine->one.batch[0]);
    return status == KVG_OK ? kvg_sequence_open(engine->one.placement[0], 100, 0, &engine->sequences[0]) : status;
}

/* A spare process: it joins, and takes its handles from the report. */
static int body_spare(const Plan *plan)
{
    static Engine     engine;
    Places            places;
    KvgBootstrap      bootstrap = bootstrap_of(&places, plan->shared, 1, VICTIM);
    KvgGridOptions    grid = KVG_GRID_OPTIONS_INIT;
    KvgPolicy         policy = engine_policy();
    KvgPlaceOptions   options = engine_options();
    KvgRebuildReport *report = NULL;
    ModelConfig       config;
    KvgJoin           join = {&config, &options, NULL};
    grid.tp = 2;
    grid.pp = 2;
    grid.policy = &policy;
    FORK_CHECK(kvg_model_config_parse_json(plan->text, strlen(plan->text), "small", &config) == KVG_OK);
    FORK_CHECK(kvg_grid_join(&bootstrap, &grid, &join, 1, &engine.grid, &report) == KVG_OK);
    kvg_model_config_free(&config);
    FORK_CHECK(report->count == 1 && report->sequences[0].id == 100);
    engine.one.ranks = 1;
    engine.one.grid[0] = engine.grid;
    engine.one.placement[0] = join.placement;
    engine.sequences[0] = report->sequences[0].sequence;
    engine.recompute = report->sequences[0].rows - report->sequences[0].rows_held;
    kvg_rebuild_report_free(report);
    FORK_CHECK(kvg_batch_create(join.placement, 2, &engine.one.batch[0]) == KVG_OK);
    int code = finish(&engine, plan);
    FORK_CHECK(code != 0 || kvg_live_allocations() == 0);
    return code;
}

static int body(ForkRank *self)
{
    static Engine engine;
    const Plan   *plan = self->argument;
    Places        first, second;
    int           rank = self->bootstrap.rank, survivors[] = {0, 2, 3};
    if (rank == SPARE) return plan->joins ? body_spare(plan) : 0;
    KvgBootstrap bootstrap = bootstrap_of(&first, plan->shared, 0, rank), fresh = bootstrap_of(&second, plan->shared, 1, rank);
    engine.pipe_in = plan->shared->pipes[rank][0];
    engine.pipe_out = plan->shared->pipes[rank][1];
    FORK_CHECK(make_engine(&engine, &bootstrap, plan, 2) == KVG_OK);
    FORK_CHECK(steps_before(&engine) == KVG_OK);
    FORK_CHECK(digest_is(&engine, plan->before) == KVG_OK);
    if (rank == VICTIM) {
        fork_sleep_ms(100); /* the others are stuck by now */
        kill(getpid(), SIGKILL);
    }
    int code = stuck_in_collective(&engine);
    if (code != 0) return code;
    FORK_CHECK(go_on(&engine, plan->joins ? &fresh : NULL, survivors, 3) == KVG_OK);
    code = finish(&engine, plan);
    FORK_CHECK(code != 0 || kvg_live_allocations() == 0);
    return code;
}

/* ---- the parent */

static void reference(Plan *plan)
{
    static Engine engine;
    KvgBootstrap  alone = KVG_BOOTSTRAP_INIT;
    KvDigest      digest;
    memset(&engine, 0, sizeof engine);
    ck_assert_msg(make_engine(&engine, &alone, plan, 1) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(steps_before(&engine), KVG_OK);
    ck_assert_int_eq(kvg_sequence_digest(engine.sequences[0], &digest), KVG_OK);
    kvg_digest_hex(&digest, plan->before);
    ck_assert_int_eq(steps_after(&engine), KVG_OK);
    ck_assert_int_eq(kvg_sequence_digest(engine.sequences[0], &digest), KVG_OK);
    kvg_digest_hex(&digest, plan->after);
    free_engine(&engine);
}

static void lose_one(const char *text, int joins, int kept)
{
    Plan plan = {.text = text, .joins = joins, .kept = kept};
    int  codes[PROCESSES];
    reference(&plan);
    plan.shared = mmap(NULL, sizeof *plan.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(plan.shared, MAP_FAILED);
    for (int r = 0; r < PROCESSES; r++) ck_assert_int_eq(pipe(plan.shared->pipes[r]), 0);
    fork_ranks(PROCESSES, 40000, body, &plan, codes);
    for (int r = 0; r < PROCESSES; r++) {
        ck_assert_msg(codes[r] == (r == VICTIM ? FORK_KILLED : 0), "rank %d left with %d", r, codes[r]);
        close(plan.shared->pipes[r][0]);
        close(plan.shared->pipes[r][1]);
    }
    munmap(plan.shared, sizeof *plan.shared);
}

START_TEST(test_stuck_survivors_are_told_and_a_spare_process_is_sent_what_has_a_copy)
{
    lose_one(deepseek, 1, 1);
}
END_TEST

START_TEST(test_a_spare_process_takes_a_place_whose_rows_are_gone)
{
    lose_one(qwen3_next, 1, 0);
}
END_TEST

START_TEST(test_survivors_go_on_alone_where_every_shard_has_a_copy)
{
    lose_one(deepseek, 0, 1);
}
END_TEST

LIFE_MAIN("rebuild_mesh", test_stuck_survivors_are_told_and_a_spare_process_is_sent_what_has_a_copy, test_a_spare_process_takes_a_place_whose_rows_are_gone,
          test_survivors_go_on_alone_where_every_shard_has_a_copy)

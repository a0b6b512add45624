/* A grid of processes, over each bootstrap and transport: the same digests as in one process; a rank that dies or stops leaves the others whole. */
#include <netinet/in.h>

#include "runtime/comm/mesh_internal.h"
#include "tests/support/fork_bootstrap.h"
#include "tests/support/grid_life.h"

#define RANKS  4
#define STEPS  30
#define BEFORE 12 /* steps before the victim dies */

/* The socket mesh over the test's own bootstrap; shared memory over its own; the mesh over a TCP rendezvous; shared memory over that. */
typedef enum By { BY_MESH, BY_SHM, BY_RENDEZVOUS, BY_RENDEZVOUS_AND_SHM, BY_COUNT } By;

typedef struct Plan {
    By       by;
    uint32_t tp, pp;
    int      memory;   /* BY_SHM */
    int      listen_fd; /* rank 0's of a rendezvous */
    char     address[16];
    int      victim;   /* -1: nobody */
    int      sign;     /* SIGKILL or SIGSTOP */
    int      odd_knob; /* this rank alone has another policy; -1: none */
    int      odd_tp;   /* this rank alone has tp 1; -1: none */
    uint32_t timeout_ms, peer_ms;
    char     expected[2][33];
} Plan;

enum { WORD_STOPPED = 1, WORD_ROWS = 8, WORD_DIGEST = 16 /* 4 a rank */ };

typedef struct Rank {
    TestGrid     one; /* of one rank: this process's */
    KvgGrid     *grid;
    KvgSequence *sequences[2];
} Rank;

static KvgStatus make_bootstrap(const ForkRank *self, const Plan *plan, KvgBootstrap *bootstrap)
{
    KvShmOptions        shm = KVG_SHM_OPTIONS_INIT;
    KvRendezvousOptions tcp = KVG_RENDEZVOUS_OPTIONS_INIT;
    shm.fd = plan->memory;
    shm.rank = tcp.rank = self->bootstrap.rank;
    shm.ranks = tcp.ranks = self->bootstrap.ranks;
    shm.timeout_ms = tcp.timeout_ms = plan->timeout_ms;
    tcp.address = plan->address;
    tcp.secret = "a secret of sixteen bytes or more";
    tcp.listen_fd = tcp.rank == 0 ? plan->listen_fd : -1;
    if (tcp.rank != 0) close(plan->listen_fd);
    return plan->by == BY_SHM ? kvg_shm_bootstrap_create(&shm, bootstrap) : kvg_rendezvous_create(&tcp, bootstrap);
}

static void destroy_bootstrap(const Plan *plan, KvgBootstrap *bootstrap)
{
    if (plan->by == BY_SHM) kvg_shm_bootstrap_destroy(bootstrap);
    else kvg_rendezvous_destroy(bootstrap);
}

/* A grid takes over a comm only when it succeeds. */
static KvgStatus create_over(const Plan *plan, const KvgBootstrap *bootstrap, KvgGridOptions *options, KvgGrid **grid)
{
    KvShmCommOptions shm = KVG_SHM_COMM_OPTIONS_INIT;
    KvComm           comm;
    KvLiveness       liveness;
    if (plan->by != BY_RENDEZVOUS_AND_SHM) return kvg_grid_create(bootstrap, options, grid);
    shm.timeout_ms = plan->timeout_ms;
    KvgStatus status = kvg_comm_shm_create(bootstrap, &shm, &comm, &liveness);
    if (status != KVG_OK) return status;
    options->comm = &comm;
    options->liveness = &liveness;
    status = kvg_grid_create(bootstrap, options, grid);
    if (status != KVG_OK) {
        comm.ops->close(comm.self);
        liveness.ops->close(liveness.self);
    }
    return status;
}

static KvgStatus make_grid(ForkRank *self, const Plan *plan, KvgGrid **grid)
{
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    KvgPolicy      policy;
    kvg_policy_default(&policy);
    policy.timeout_ms = plan->timeout_ms;
    policy.peer_ms = plan->peer_ms;
    policy.swa_ring = self->bootstrap.rank == plan->odd_knob;
    options.tp = self->bootstrap.rank == plan->odd_tp ? 1 : plan->tp;
    options.pp = plan->pp;
    options.policy = &policy;
    if (plan->by == BY_MESH) return kvg_grid_create(&self->bootstrap, &options, grid);
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
    KvgStatus    status = make_bootstrap(self, plan, &bootstrap);
    if (status == KVG_OK) status = create_over(plan, &bootstrap, &options, grid);
    destroy_bootstrap(plan, &bootstrap); /* the grid lives on without it */
    return status;
}

static KvgStatus make_rank(Rank *rank)
{
    KvgPlaceOptions options = life_options(2, 2u << 20);
    ModelConfig     config = test_model(4, 4, 64, 2048);
    rank->one.ranks = 1;
    KvgStatus status = kvg_place(rank->grid, &config, &options, &rank->one.placement[0]);
    kvg_model_config_free(&config);
    if (status == KVG_OK) status = kvg_batch_create(rank->one.placement[0], 2, &rank->one.batch[0]);
    for (uint32_t q = 0; q < 2 && status == KVG_OK; q++) status = kvg_sequence_open(rank->one.placement[0], q + 1, 0, &rank->sequences[q]);
    return status;
}

/* Step n of one rank, posted; the last stage says what to keep, now and then one says no. */
static KvgStatus post_step(Rank *rank, int n, KvgStep **step)
{
    KvgCommit commit = KVG_COMMIT_INIT;
    uint32_t  rows[] = {4, 1 + (uint32_t)n % 3}, keep[] = {1 + (uint32_t)n % 4, 1};
    for (uint32_t slot = 0; slot < 2; slot++) kvg_batch_set(rank->one.batch[0], slot, rank->sequences[slot]);
    KvgStatus status = kvg_step_begin(rank->one.batch[0], rows, step);
    if (status != KVG_OK) return status;
    grid_write(&rank->one, 0, *step, rank->sequences, 2, 0);
    if (kvg_grid_stage(rank->grid) + 1 == kvg_grid_pp(rank->grid)) commit.accepted = keep;
    commit.refuse = n % 10 == 9 && kvg_grid_rank(rank->grid) == n / 10 % kvg_grid_ranks(rank->grid) ? KVG_EIO : KVG_OK;
    return kvg_step_post(*step, &commit);
}

static KvgStatus one_step(Rank *rank, int n)
{
    KvgStep  *step = NULL;
    KvgStatus status = post_step(rank, n, &step);
    return status == KVG_OK ? kvg_step_wait(step, NULL) : status;
}

static void free_rank(Rank *rank)
{
    kvg_batch_destroy(rank->one.batch[0]);
    kvg_placement_destroy(rank->one.placement[0]);
    kvg_grid_destroy(rank->grid);
}

/* ---- what a grid of one rank says: the reference */

static void reference(char hex[2][33])
{
    Rank      rank = {0};
    KvgPolicy policy;
    KvInproc *hub;
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    kvg_policy_default(&policy);
    options.policy = &policy;
    ck_assert_int_eq(kvg_inproc_create(1, &hub), KVG_OK);
    ck_assert_int_eq(kvg_grid_create_inproc(hub, 1, &options, &rank.grid), KVG_OK);
    ck_assert_int_eq(make_rank(&rank), KVG_OK);
    for (int n = 0; n < STEPS; n++) {
        if (n % 10 != 9) ck_assert_int_eq(one_step(&rank, n), KVG_OK); /* those that are refused on the grid leave nothing */
    }
    for (uint32_t q = 0; q < 2; q++) {
        KvDigest digest;
        ck_assert_int_eq(kvg_sequence_digest(rank.sequences[q], &digest), KVG_OK);
        kvg_digest_hex(&digest, hex[q]);
    }
    free_rank(&rank);
    kvg_inproc_destroy(hub);
}

/* ---- bodies of ranks: no ck_assert here */

static int body_steps(ForkRank *self)
{
    const Plan *plan = self->argument;
    Rank        rank = {0};
    FORK_CHECK(make_grid(self, plan, &rank.grid) == KVG_OK);
    FORK_CHECK(make_rank(&rank) == KVG_OK);
    for (int n = 0; n < STEPS; n++) FORK_CHECK(one_step(&rank, n) == (n % 10 == 9 ? KVG_EREFUSED : KVG_OK));
    for (uint32_t q = 0; q < 2; q++) {
        KvDigest digest;
        char     hex[33];
        FORK_CHECK(kvg_sequence_digest(rank.sequences[q], &digest) == KVG_OK);
        kvg_digest_hex(&digest, hex);
        FORK_CHECK(strcmp(hex, plan->expected[q]) == 0);
    }
    free_rank(&rank);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

static int check_settled(ForkRank *self, Rank *rank, const int survivors[3])
{
    KvDigest digest;
    KvgStep *step;
    FORK_CHECK(kvg_grid_settle(rank->grid, survivors, 3) == KVG_OK);
    FORK_CHECK(kvg_step_begin(rank->one.batch[0], (uint32_t[]){1, 1}, &step) == KVG_EPEER);
    FORK_CHECK(kvg_sequence_digest(rank->sequences[0], &digest) == KVG_OK);
    for (int i = 0; i < 4; i++) {
        int word;
        memcpy(&word, digest.bytes + 4 * i, sizeof word);
        atomic_store(&self->shared->words[WORD_DIGEST + 4 * self->bootstrap.rank + i], word);
    }
    atomic_store(&self->shared->words[WORD_ROWS + self->bootstrap.rank], (int)life_info(rank->sequences[0]).rows + 1);
    for (int i = 0; i < 3; i++) {
        FORK_CHECK(fork_await(self->shared, WORD_ROWS + survivors[i], 1));
        FORK_CHECK(atomic_load(&self->shared->words[WORD_ROWS + survivors[i]]) == (int)life_info(rank->sequences[0]).rows + 1);
        for (int w = 0; w < 4; w++) {
            FORK_CHECK(atomic_load(&self->shared->words[WORD_DIGEST + 4 * survivors[i] + w]) ==
                       atomic_load(&self->shared->words[WORD_DIGEST + 4 * self->bootstrap.rank + w]));
        }
    }
    FORK_CHECK(kvg_sequence_close(rank->sequences[0], NULL) == KVG_OK);
    return 0;
}

/* Who it is, and where: known of a rank that is lost, and of one that has only fallen silent. */
static int names_the_victim(const Plan *plan)
{
    char host[256] = "", who[288], where[288];
    gethostname(host, sizeof host - 1);
    snprintf(who, sizeof who, "rank %d", plan->victim);
    snprintf(where, sizeof where, "(host %s, pid ", host);
    return strstr(kvg_last_error(), who) != NULL && strstr(kvg_last_error(), where) != NULL;
}

/* The victim goes after it has begun a step, before it posts; the others find out, settle, agree and leave. */
static int body_loss(ForkRank *self)
{
    const Plan *plan = self->argument;
    int         survivors[3], count = 0;
    double      limit = (plan->sign == SIGKILL ? plan->peer_ms : plan->timeout_ms) * 1e-3 + 1.0;
    Rank        rank = {0};
    for (int r = 0; r < RANKS; r++) {
        if (r != plan->victim) survivors[count++] = r;
    }
    FORK_CHECK(make_grid(self, plan, &rank.grid) == KVG_OK);
    FORK_CHECK(make_rank(&rank) == KVG_OK);
    for (int n = 0; n < BEFORE; n++) FORK_CHECK(one_step(&rank, n) == (n % 10 == 9 ? KVG_EREFUSED : KVG_OK));
    if (self->bootstrap.rank == plan->victim) {
        atomic_store(&self->shared->words[WORD_STOPPED], 1);
        kill(getpid(), plan->sign);
        fork_sleep_ms(20000); /* of a stopped one: it is killed by the parent */
        return 1;
    }
    KvgStep  *step = NULL;
    double    before = fork_seconds();
    KvgStatus status = post_step(&rank, BEFORE, &step);
    if (status == KVG_OK) status = kvg_step_wait(step, NULL);
    FORK_CHECK(status == KVG_EINDOUBT || (status == KVG_EPEER && plan->sign == SIGKILL));
    FORK_CHECK(names_the_victim(plan));
    FORK_CHECK(fork_seconds() - before <= limit);
    if (plan->sign == SIGSTOP) FORK_CHECK(fork_seconds() - before >= plan->timeout_ms * 0.9e-3); /* silence is no loss before the deadline */
    FORK_CHECK(kvg_step_begin(rank.one.batch[0], (uint32_t[]){1, 1}, &step) == KVG_EPEER);
    int code = check_settled(self, &rank, survivors);
    if (code != 0) return code;
    free_rank(&rank);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

static int body_odd_knob(ForkRank *self)
{
    KvgGrid *grid = NULL;
    FORK_CHECK(make_grid(self, self->argument, &grid) == KVG_ELAYOUT);
    FORK_CHECK(grid == NULL);
    FORK_CHECK(strstr(kvg_last_error(), "KVGRID_SWA_RING") != NULL);
    FORK_CHECK(strstr(kvg_last_error(), "rank 0 and rank 2") != NULL);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

static int body_odd_tp(ForkRank *self)
{
    const Plan *plan = self->argument;
    KvgGrid    *grid = NULL;
    double      before = fork_seconds();
    int         odd = self->bootstrap.rank == plan->odd_tp;
    FORK_CHECK(make_grid(self, plan, &grid) == (odd ? KVG_EINVAL : KVG_EREFUSED)); /* 1 x 2 is no grid of 4: it says so, the others name it */
    FORK_CHECK(strstr(kvg_last_error(), odd ? "4 were started" : "rank 1") != NULL);
    FORK_CHECK(fork_seconds() - before < 2);
    return 0;
}

static int body_absent(ForkRank *self)
{
    KvgGrid *grid = NULL;
    double   before = fork_seconds();
    if (self->bootstrap.rank == 3) return 0; /* B97: it never comes to the handshake */
    FORK_CHECK(make_grid(self, self->argument, &grid) == KVG_EINDOUBT);
    FORK_CHECK(fork_seconds() - before < 1.0 + 0.3);
    return 0;
}

/* Every rank says that it is on a host of its own, as between machines: they connect over TCP. */
static KvgStatus gather_as_hosts(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    const ForkRank *self = user;
    MeshIdentity    changed;
    if (bytes == sizeof changed) {
        memcpy(&changed, mine, bytes);
        snprintf(changed.host, sizeof changed.host, "host%d", self->bootstrap.rank);
        mine = &changed;
    }
    return self->bootstrap.allgather(self->bootstrap.user, mine, all, bytes, timeout_ms);
}

/* Interfaces that the policies of ranks name; of rank `odd_knob` one that is none. */
static int body_interface(ForkRank *self)
{
    static const char *const interfaces[RANKS] = {"127.0.0.2", "lo", "127.0.0.1", "127.0.0.3"};
    const Plan    *plan = self->argument;
    const int      me = self->bootstrap.rank, odd = me == plan->odd_knob;
    KvgBootstrap   bootstrap = self->bootstrap;
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    KvgPolicy      policy;
    Rank           rank = {0};
    bootstrap.user = self;
    bootstrap.allgather = gather_as_hosts;
    kvg_policy_default(&policy);
    if (odd) memset(policy.interface, 'x', sizeof policy.interface); /* without an end */
    else snprintf(policy.interface, sizeof policy.interface, "%s", interfaces[me]);
    options.tp = plan->tp;
    options.pp = plan->pp;
    options.policy = &policy;
    KvgStatus status = kvg_grid_create(&bootstrap, &options, &rank.grid);
    if (plan->odd_knob >= 0) {
        FORK_CHECK(status == (odd ? KVG_EINVAL : KVG_EPEER) && rank.grid == NULL);
        FORK_CHECK(strstr(kvg_last_error(), odd ? "\"xxxxxxxx" : "rank 2 could not set up (EINVAL)") != NULL);
        FORK_CHECK(!odd || (strstr(kvg_last_error(), "lo 127.0.0.1") != NULL && strstr(kvg_last_error(), "KVGRID_INTERFACE") != NULL));
        return 0;
    }
    FORK_CHECK(status == KVG_OK);
    FORK_CHECK(make_rank(&rank) == KVG_OK);
    for (int n = 0; n < 3; n++) FORK_CHECK(one_step(&rank, n) == KVG_OK);
    free_rank(&rank);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

/* ---- the parent */

#define PLAN { BY_MESH, 2, 2, -1, -1, "", -1, 0, -1, -1, 5000, 1000, {"", ""} }

static int by_now; /* what this run is over */

static void listen_for(Plan *plan)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t          bytes = sizeof any;
    plan->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ck_assert(bind(plan->listen_fd, (struct sockaddr *)&any, bytes) == 0 && listen(plan->listen_fd, 64) == 0);
    ck_assert_int_eq(getsockname(plan->listen_fd, (struct sockaddr *)&any, &bytes), 0);
    snprintf(plan->address, sizeof plan->address, ":%d", ntohs(any.sin_port));
}

static void run_for(uint32_t deadline_ms, ForkBody body, Plan *plan, int codes[RANKS])
{
    int ranks = (int)(plan->tp * plan->pp);
    plan->by = (By)by_now;
    if (plan->by == BY_SHM) ck_assert_int_eq(kvg_shm_memory(ranks, &plan->memory), KVG_OK);
    if (plan->by >= BY_RENDEZVOUS) listen_for(plan);
    fork_ranks(ranks, deadline_ms, body, plan, codes);
    if (plan->by == BY_SHM) close(plan->memory);
    if (plan->by >= BY_RENDEZVOUS) close(plan->listen_fd);
}

static void run(ForkBody body, Plan *plan, int codes[RANKS])
{
    run_for(15000, body, plan, codes);
}

START_TEST(test_processes_and_one_process_have_one_digest)
{
    static const uint32_t shapes[][2] = {{2, 2}, {1, 1}, {4, 1}};
    for (int shape = 0; shape < 3; shape++) {
        Plan plan = PLAN;
        int  codes[RANKS] = {0};
        plan.tp = shapes[shape][0];
        plan.pp = shapes[shape][1];
        by_now = _i;
        reference(plan.expected);
        run(body_steps, &plan, codes);
        for (int r = 0; r < RANKS; r++) ck_assert_msg(codes[r] == 0, "%u x %u over %d: rank %d left with %d", plan.tp, plan.pp, by_now, r, codes[r]);
    }
}
END_TEST

START_TEST(test_a_killed_rank_is_noticed_settled_without_and_left)
{
    by_now = _i;
    for (int victim = 0; victim < RANKS; victim += _i < BY_RENDEZVOUS ? 3 : RANKS) { /* what follows the set-up is known by then */
        Plan plan = PLAN;
        int  codes[RANKS];
        plan.victim = victim;
        plan.sign = SIGKILL;
        run(body_loss, &plan, codes);
        for (int r = 0; r < RANKS; r++) ck_assert_msg(codes[r] == (r == victim ? FORK_KILLED : 0), "victim %d: rank %d left with %d", victim, r, codes[r]);
    }
}
END_TEST

START_TEST(test_a_stopped_rank_leaves_doubt_at_the_deadline)
{
    by_now = _i;
    Plan plan = PLAN;
    int  codes[RANKS];
    plan.victim = 1;
    plan.sign = SIGSTOP;
    plan.timeout_ms = 1000;
    run_for(4000, body_loss, &plan, codes);
    for (int r = 0; r < RANKS; r++) ck_assert_msg(codes[r] == (r == 1 ? FORK_OVERDUE : 0), "rank %d left with %d", r, codes[r]);
}
END_TEST

START_TEST(test_a_knob_that_differs_on_one_rank_is_named_on_all)
{
    by_now = _i;
    Plan plan = PLAN;
    int  codes[RANKS];
    plan.odd_knob = 2;
    run(body_odd_knob, &plan, codes);
    for (int r = 0; r < RANKS; r++) ck_assert_int_eq(codes[r], 0);
}
END_TEST

START_TEST(test_a_wrong_shape_on_one_rank_is_told_to_all)
{
    by_now = _i;
    Plan plan = PLAN;
    int  codes[RANKS];
    plan.odd_tp = 1;
    run(body_odd_tp, &plan, codes);
    for (int r = 0; r < RANKS; r++) ck_assert_int_eq(codes[r], 0);
}
END_TEST

START_TEST(test_a_rank_that_never_comes_ends_the_handshake_at_the_deadline)
{
    by_now = _i;
    Plan plan = PLAN;
    int  codes[RANKS];
    plan.timeout_ms = 300;
    run(body_absent, &plan, codes);
    for (int r = 0; r < RANKS; r++) ck_assert_int_eq(codes[r], 0);
}
END_TEST

START_TEST(test_each_rank_listens_where_its_policy_says)
{
    by_now = BY_MESH;
    for (int odd = -1; odd <= 2; odd += 3) {
        Plan plan = PLAN;
        int  codes[RANKS];
        plan.odd_knob = odd;
        run(body_interface, &plan, codes);
        for (int r = 0; r < RANKS; r++) ck_assert_msg(codes[r] == 0, "odd %d: rank %d left with %d", odd, r, codes[r]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mesh_grid");
    TCase *cases = tcase_create("mesh_grid");

    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, test_processes_and_one_process_have_one_digest, 0, BY_COUNT);
    tcase_add_loop_test(cases, test_a_killed_rank_is_noticed_settled_without_and_left, 0, BY_COUNT);
    tcase_add_loop_test(cases, test_a_stopped_rank_leaves_doubt_at_the_deadline, 0, BY_COUNT);
    tcase_add_loop_test(cases, test_a_knob_that_differs_on_one_rank_is_named_on_all, 0, BY_COUNT);
    tcase_add_loop_test(cases, test_a_wrong_shape_on_one_rank_is_told_to_all, 0, BY_COUNT);
    tcase_add_loop_test(cases, test_a_rank_that_never_comes_ends_the_handshake_at_the_deadline, 0, BY_COUNT);
    tcase_add_test(cases, test_each_rank_listens_where_its_policy_says);
    suite_add_tcase(suite, cases);
    return life_run(suite);
}

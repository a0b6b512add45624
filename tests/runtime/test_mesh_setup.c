/* Set-up of the socket mesh between forked processes: strangers, absence, failures on one rank, and nothing left behind. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <kvgrid/mesh.h>

#include "runtime/base/memory.h"
#include "runtime/comm/mesh_internal.h"
#include "tests/support/comm_wait.h"
#include "tests/support/fork_bootstrap.h"
#include "tests/support/mesh_ranks.h"
#include "tests/support/open_fds.h"

/* ---- strangers and absence during set-up */

/* A bootstrap around the fork one, that does something of its own after the all-gather of addresses. */
typedef struct Meddler {
    ForkRank *rank;
    int       gathers;
    int       fds[8];
    void (*after_addresses)(struct Meddler *meddler, const MeshAddress *addresses);
} Meddler;

static KvgStatus meddling_allgather(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    Meddler  *meddler = user;
    KvgStatus status = fork_allgather(meddler->rank, mine, all, bytes, timeout_ms);

    if (++meddler->gathers == 2 && status == KVG_OK) {
        meddler->after_addresses(meddler, all);
    }
    return status;
}

static int stranger_connect(const MeshAddress *address)
{
    int       by_unix = address->unix_bytes > 0;
    const void *target = by_unix ? address->unix_address : address->tcp_address;
    int       fd = socket(((const struct sockaddr *)target)->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, target, by_unix ? address->unix_bytes : address->tcp_bytes) != 0) {
        perror("stranger");
        abort();
    }
    return fd;
}

static void stranger_says(Meddler *meddler, int index, const MeshAddress *address, const void *bytes, size_t byte_count)
{
    meddler->fds[index] = stranger_connect(address);
    if (byte_count > 0 && send(meddler->fds[index], bytes, byte_count, MSG_NOSIGNAL) != (ssize_t)byte_count) {
        perror("stranger says");
        abort();
    }
}

static void send_strangers(Meddler *meddler, const MeshAddress *addresses)
{
    MeshHello hello = { KVG_MESH_MAGIC, KVG_MESH_VERSION, 2, 0, { 0 } }; /* all but the secret */
    uint8_t   garbage[64];

    memset(garbage, 0xa5, sizeof garbage);
    stranger_says(meddler, 0, &addresses[0], garbage, sizeof garbage);
    stranger_says(meddler, 1, &addresses[0], garbage, 5); /* half a hello, and then silence */
    stranger_says(meddler, 2, &addresses[0], NULL, 0);    /* half-open */
    stranger_says(meddler, 3, &addresses[0], &hello, sizeof hello);
    stranger_says(meddler, 4, &addresses[0], NULL, 0); /* gone again */
    close(meddler->fds[4]);
    for (int i = 0; i < 60; i++) { /* more silent guests than chairs */
        stranger_connect(&addresses[0]);
    }
}

static int body_strangers(ForkRank *rank)
{
    Meddler       meddler = { .rank = rank, .after_addresses = send_strangers };
    KvgBootstrap  bootstrap = rank->bootstrap;
    KvMeshOptions options = options_of(rank->argument);
    KvComm        comm;
    KvLiveness    live;
    uint64_t      value = 11;
    uint8_t       byte;
    int           peer;

    if (bootstrap.rank == 1) { /* before it connects to rank 0 itself */
        bootstrap.user = &meddler;
        bootstrap.allgather = meddling_allgather;
    }
    FORK_CHECK(kvg_mesh_create(&bootstrap, &options, &comm, &live) == KVG_OK);
    FORK_CHECK(comm.ops->records_open(comm.self, sizeof value) == KVG_OK);
    FORK_CHECK(comm.ops->post(comm.self, &value) == KVG_OK);
    for (int i = 0; i < comm.size - 1; i++) {
        const uint64_t *got = await_record(&comm, &peer);

        FORK_CHECK(got != NULL && *got == 11);
    }
    for (int i = 0; comm.rank == 1 && i < 4; i++) { /* all were shown out without a word */
        FORK_CHECK(recv(meddler.fds[i], &byte, 1, 0) <= 0);
    }
    FORK_CHECK(rank->bootstrap.allgather(rank->bootstrap.user, &value, (uint64_t[3]){ 0 }, sizeof value, 5000) == KVG_OK);
    FORK_CHECK(!live.ops->lost(live.self, (comm.rank + 1) % 3) && !live.ops->lost(live.self, (comm.rank + 2) % 3));
    close_both(&comm, &live);
    return 0;
}

START_TEST(test_mesh_strangers_are_shown_out_and_the_mesh_is_built)
{
    run(3, body_strangers);
}
END_TEST

static void fall_asleep(Meddler *meddler, const MeshAddress *addresses)
{
    (void)addresses;
    fork_await(meddler->rank->shared, 0, 2); /* until the others have given up */
    _exit(0);
}

static void leave(Meddler *meddler, const MeshAddress *addresses)
{
    (void)meddler, (void)addresses;
    _exit(0);
}

/* Of what this rank has found itself, over TCP: the address of a lower rank, that of its own which a higher one calls, and who chooses them. */
static int names_the_address(const Plan *plan, int rank, int absent)
{
    const char *why = kvg_last_error();
    const int   vain = strstr(why, "waited in vain") != NULL, refused = strstr(why, "does not listen") != NULL;

    if (!vain && !refused) {
        return 1; /* what another rank has told */
    }
    if (!plan->tcp) {
        return strstr(why, "127.0.0.1") == NULL && strstr(why, "KVGRID_INTERFACE") == NULL;
    }
    return strstr(why, absent < rank ? " at 127.0.0.1:" : ", which calls 127.0.0.1:") != NULL && strstr(why, "KVGRID_INTERFACE") != NULL;
}

/* which: 0, 1, 2: that rank sleeps; 10, 11, 12: rank which-10 leaves. */
static int body_absence(ForkRank *rank)
{
    const Plan   *plan = rank->argument;
    int           absent = plan->which % 10, leaves = plan->which >= 10;
    Meddler       meddler = { .rank = rank, .after_addresses = leaves ? leave : fall_asleep };
    KvgBootstrap  bootstrap = rank->bootstrap;
    KvMeshOptions options = options_of(plan);
    KvComm        comm = { 0 };
    KvLiveness    live = { 0 };
    char          name[16];
    int           fds = open_fds();

    options.timeout_ms = 400;
    if (bootstrap.rank == absent) {
        bootstrap.user = &meddler;
        bootstrap.allgather = meddling_allgather;
    }
    double    begin = fork_seconds();
    KvgStatus status = kvg_mesh_create(&bootstrap, &options, &comm, &live);

    FORK_CHECK(fork_seconds() - begin < 1.5); /* 0.4 and room for a busy machine */
    FORK_CHECK(status == KVG_EINDOUBT || (leaves && status == KVG_EPEER));
    snprintf(name, sizeof name, "rank %d", absent);
    FORK_CHECK(strstr(kvg_last_error(), name) != NULL);
    FORK_CHECK(names_the_address(plan, bootstrap.rank, absent));
    FORK_CHECK(comm.ops == NULL && live.ops == NULL);
    FORK_CHECK(open_fds() == fds && kvg_live_allocations() == 0);
    atomic_fetch_add(&rank->shared->words[0], 1);
    return 0;
}

START_TEST(test_mesh_rank_that_never_comes_is_named_within_the_timeout)
{
    static const int which[] = { 0, 1, 2, 10, 11, 12 };

    for (int tcp = 0; tcp < TRIES; tcp++) {
        ck_assert_int_eq(fork_ranks(3, 10000, body_absence, &(Plan){ .tcp = tcp, .which = which[_i] }, NULL), 0);
    }
}
END_TEST

static int body_no_show(ForkRank *rank)
{
    KvMeshOptions options = options_of(rank->argument);
    KvComm        comm = { 0 };
    KvLiveness    live = { 0 };

    options.timeout_ms = 200;
    if (rank->bootstrap.rank == 1) {
        return 0; /* not even to the first all-gather */
    }
    FORK_CHECK(kvg_mesh_create(&rank->bootstrap, &options, &comm, &live) == KVG_EINDOUBT);
    FORK_CHECK(strstr(kvg_last_error(), "rank 1") != NULL);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

START_TEST(test_mesh_rank_that_is_not_there_at_all_ends_the_set_up)
{
    run(2, body_no_show);
}
END_TEST

/* ---- nothing left behind, and nothing begun */

/* All ranks begin the next try with equal all-gather counts, whatever the last one came to. */
static int realign(ForkRank *rank, int try)
{
    atomic_fetch_add(&rank->shared->words[0], 1);
    if (!fork_await(rank->shared, 0, rank->bootstrap.ranks * (2 * try + 1))) {
        return 0;
    }
    atomic_store(&rank->shared->arrived[rank->bootstrap.rank], (unsigned)(try + 1) * 100);
    atomic_fetch_add(&rank->shared->words[0], 1);
    return fork_await(rank->shared, 0, rank->bootstrap.ranks * (2 * try + 2));
}

static int body_nth_failure(ForkRank *rank)
{
    KvMeshOptions options = options_of(rank->argument);
    int           fds = open_fds(), done = 0;

    options.timeout_ms = 150;
    for (int nth = 0; !done; nth++) {
        KvComm     comm = { 0 };
        KvLiveness live = { 0 };
        int        hit = 0;

        if (rank->bootstrap.rank == 1) {
            kvg_fault_arm((uint64_t)nth);
        }
        KvgStatus status = kvg_mesh_create(&rank->bootstrap, &options, &comm, &live);

        if (rank->bootstrap.rank == 1) {
            hit = kvg_fault_disarm();
            FORK_CHECK(!hit || status == KVG_ENOMEM || status == KVG_EIO);
            atomic_store(&rank->shared->words[1], hit ? 0 : nth + 1);
        } else {
            FORK_CHECK(status == KVG_OK || status == KVG_EPEER || status == KVG_EINDOUBT);
        }
        FORK_CHECK((status == KVG_OK) == (comm.ops != NULL));
        if (status == KVG_OK) {
            close_both(&comm, &live);
        }
        FORK_CHECK(open_fds() == fds);
        FORK_CHECK(kvg_live_allocations() == 0);
        FORK_CHECK(realign(rank, nth));
        done = atomic_load(&rank->shared->words[1]);
        FORK_CHECK(!done || (done > 10 && status == KVG_OK));
        FORK_CHECK(nth < 60);
    }
    return 0;
}

START_TEST(test_mesh_set_up_unwinds_from_every_failure)
{
    run(3, body_nth_failure);
}
END_TEST

START_TEST(test_mesh_of_one_rank_needs_no_all_gather)
{
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
    KvComm       comm;
    KvLiveness   live;
    int          peer;
    uint64_t     value = 1;

    ck_assert_int_eq(kvg_mesh_create(&bootstrap, NULL, &comm, &live), KVG_OK);
    ck_assert_int_eq(comm.ops->records_open(comm.self, sizeof value), KVG_OK);
    ck_assert_int_eq(comm.ops->post(comm.self, &value), KVG_OK);
    ck_assert_ptr_null(comm.ops->take(comm.self, &peer));
    ck_assert_int_eq(live.ops->lost(live.self, 0), 0);
    close_both(&comm, &live);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}
END_TEST

START_TEST(test_mesh_create_refuses_bad_arguments)
{
    KvgBootstrap  good = KVG_BOOTSTRAP_INIT, bad = good;
    KvMeshOptions options = KVG_MESH_OPTIONS_INIT;
    KvComm        comm = { 0 };
    KvLiveness    live = { 0 };

    ck_assert_int_eq(kvg_mesh_create(NULL, NULL, &comm, &live), KVG_EINVAL);
    ck_assert_int_eq(kvg_mesh_create(&good, NULL, NULL, &live), KVG_EINVAL);
    ck_assert_int_eq(kvg_mesh_create(&good, NULL, &comm, NULL), KVG_EINVAL);
    bad.ranks = 2; /* without an all-gather */
    ck_assert_int_eq(kvg_mesh_create(&bad, NULL, &comm, &live), KVG_EINVAL);
    bad = good;
    bad.rank = 1;
    ck_assert_int_eq(kvg_mesh_create(&bad, NULL, &comm, &live), KVG_EINVAL);
    bad = good;
    bad.size = 0;
    ck_assert_int_eq(kvg_mesh_create(&bad, NULL, &comm, &live), KVG_EINVAL);
    options.size = 1;
    ck_assert_int_eq(kvg_mesh_create(&good, &options, &comm, &live), KVG_EINVAL);
    ck_assert_ptr_null(comm.ops);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mesh_setup");
    TCase *tcase = tcase_create("mesh_setup");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_mesh_of_one_rank_needs_no_all_gather);
    tcase_add_test(tcase, test_mesh_strangers_are_shown_out_and_the_mesh_is_built);
    tcase_add_loop_test(tcase, test_mesh_rank_that_never_comes_is_named_within_the_timeout, 0, 6);
    tcase_add_test(tcase, test_mesh_rank_that_is_not_there_at_all_ends_the_set_up);
    tcase_add_test(tcase, test_mesh_set_up_unwinds_from_every_failure);
    tcase_add_test(tcase, test_mesh_create_refuses_bad_arguments);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

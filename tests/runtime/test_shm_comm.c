/* Records and messages over shared memory between forked processes: traffic through small lanes, death, frost, departure, malice, nothing left behind. */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <kvgrid/shm.h>

#include "runtime/base/memory.h"
#include "runtime/comm/shm_internal.h"
#include "tests/support/comm_promises.h"
#include "tests/support/open_fds.h"

#define LANE 4096u
#define BIG  ((size_t)1 << 20)
#define SEC  1000000000ull

static KvgStatus create(ForkRank *rank, KvComm *comm, KvLiveness *live)
{
    KvShmCommOptions options = KVG_SHM_COMM_OPTIONS_INIT;

    options.timeout_ms = 5000;
    options.lane_bytes = LANE; /* the least: everything wraps, everything waits */
    return kvg_comm_shm_create(&rank->bootstrap, &options, comm, live);
}

static void run(int ranks, ForkBody body)
{
    ck_assert_int_eq(fork_ranks(ranks, 20000, body, NULL, NULL), 0);
}

/* ---- traffic */

static int body_records(ForkRank *rank)
{
    KvComm     comm;
    KvLiveness live;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    return promise_records(rank, &comm, &live);
}

START_TEST(test_shm_records_reach_all_in_order_through_full_lanes)
{
    run(2, body_records);
    run(5, body_records);
}
END_TEST

/* A record larger than a lane goes in pieces; smaller ones follow when records are opened anew. */
static int body_large_records(ForkRank *rank)
{
    static uint64_t record[2000];
    KvComm          comm;
    KvLiveness      live;
    int             peer;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    for (size_t words = 2000; words > 0; words = words == 2000 ? 127 : words == 127 ? 126 : 0) { /* 16000 bytes; a piece and a bit; one piece */
        FORK_CHECK(comm.ops->records_open(comm.self, 8 * words) == KVG_OK);
        for (uint64_t i = 0; i < 5; i++) {
            record[0] = record[words - 1] = i;
            FORK_CHECK(comm.ops->post(comm.self, record) == KVG_OK);
        }
        for (uint64_t i = 0; i < 5; i++) {
            const uint64_t *got = await_record(&comm, &peer);

            FORK_CHECK(got != NULL && got[0] == i && got[words - 1] == i);
        }
        atomic_fetch_add(&rank->shared->words[0], 1);
        while (atomic_load(&rank->shared->words[0]) < 2 * (words == 2000 ? 1 : words == 127 ? 2 : 3)) {
            live.ops->poll(live.self); /* the last ones leave */
        }
    }
    FORK_CHECK(comm.ops->records_open(comm.self, (16u << 20) + 1) == KVG_EINVAL);
    close_both(&comm, &live);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

START_TEST(test_shm_records_larger_than_a_lane_arrive_whole)
{
    run(2, body_large_records);
}
END_TEST

static int body_messages(ForkRank *rank)
{
    static const size_t sizes[] = { 0, 1, 15, LANE / 4 - 17, LANE / 4 - 16, LANE / 4 - 15, LANE, BIG, 3 };
    KvComm              comm;
    KvLiveness          live;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    return promise_messages(rank, &comm, &live, sizes, (int)(sizeof sizes / sizeof *sizes), BIG);
}

START_TEST(test_shm_messages_of_every_size_arrive_whole_and_in_order)
{
    run(2, body_messages);
    run(3, body_messages);
}
END_TEST

static int body_refusals(ForkRank *rank)
{
    KvShmCommOptions options = KVG_SHM_COMM_OPTIONS_INIT;
    KvComm           comm = { 0 };
    KvLiveness       live = { 0 };
    uint8_t          text[1001] = { 42 };
    int              peer = -1;
    const void      *bytes;
    size_t           byte_count;

    options.lane_bytes = 4095;
    FORK_CHECK(kvg_comm_shm_create(&rank->bootstrap, &options, &comm, &live) == KVG_EINVAL);
    options.lane_bytes = 2048;
    FORK_CHECK(kvg_comm_shm_create(&rank->bootstrap, &options, &comm, &live) == KVG_EINVAL);
    options.lane_bytes = 32u << 20;
    FORK_CHECK(kvg_comm_shm_create(&rank->bootstrap, &options, &comm, &live) == KVG_EINVAL);
    FORK_CHECK(strstr(kvg_last_error(), "33554432") != NULL);
    options.lane_bytes = 0;
    options.message_max = rank->bootstrap.rank == 0 ? 1000 : 4000;
    FORK_CHECK(kvg_comm_shm_create(&rank->bootstrap, &options, &comm, &live) == KVG_ELAYOUT);
    FORK_CHECK(strstr(kvg_last_error(), "1000") != NULL && strstr(kvg_last_error(), "4000") != NULL && comm.ops == NULL);
    options.message_max = 1000;
    FORK_CHECK(kvg_comm_shm_create(&rank->bootstrap, &options, &comm, &live) == KVG_OK);
    FORK_CHECK(comm.ops->send(comm.self, comm.rank, text, 1) == KVG_EINVAL);
    FORK_CHECK(comm.ops->send(comm.self, -1, text, 1) == KVG_EINVAL);
    FORK_CHECK(comm.ops->send(comm.self, 2, text, 1) == KVG_EINVAL);
    FORK_CHECK(comm.ops->send(comm.self, 1 - comm.rank, text, 1001) == KVG_EINVAL);
    FORK_CHECK(comm.ops->records_open(comm.self, 0) == KVG_EINVAL);
    FORK_CHECK(comm.ops->take(comm.self, &peer) == NULL); /* before records_open */
    FORK_CHECK(comm.ops->send(comm.self, 1 - comm.rank, text, 1000) == KVG_OK);
    FORK_CHECK(await_message(&comm, &peer, &bytes, &byte_count) && peer == 1 - comm.rank && byte_count == 1000);
    close_both(&comm, &live);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

START_TEST(test_shm_comm_refuses_bad_options_and_bad_peers)
{
    run(2, body_refusals);
}
END_TEST

static int body_early_record(ForkRank *rank)
{
    KvComm     comm;
    KvLiveness live;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    return promise_early(rank, &comm, &live);
}

START_TEST(test_shm_record_that_comes_before_records_open_is_kept)
{
    run(2, body_early_record);
}
END_TEST

/* ---- death, frost, departure */

static int body_kill(ForkRank *rank)
{
    KvComm     comm;
    KvLiveness live;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    return promise_loss(rank, &comm, &live);
}

START_TEST(test_shm_killed_rank_is_lost_within_a_second_and_named)
{
    int codes[3];

    ck_assert_int_eq(fork_ranks(3, 20000, body_kill, NULL, codes), 1);
    ck_assert_int_eq(codes[1], FORK_KILLED);
}
END_TEST

static int body_stop(ForkRank *rank)
{
    KvComm     comm;
    KvLiveness live;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    if (comm.rank == 1) {
        atomic_store(&rank->shared->words[0], 1);
        raise(SIGSTOP);
        while (!atomic_load(&rank->shared->words[1])) { /* thawed: it gives signs again */
            live.ops->poll(live.self);
            fork_sleep_ms(1);
        }
        close_both(&comm, &live);
        return 0;
    }
    FORK_CHECK(fork_await(rank->shared, 0, 1));
    fork_sleep_ms(50);
    live.ops->poll(live.self); /* its last beats are seen */
    uint64_t sign_ns = live.ops->last_sign_ns(live.self, 1);

    for (int i = 0; i < 50; i++) {
        live.ops->poll(live.self);
        FORK_CHECK(!live.ops->lost(live.self, 1));
        fork_sleep_ms(2);
    }
    FORK_CHECK(live.ops->last_sign_ns(live.self, 1) == sign_ns); /* silent since then */
    kill(rank->shared->pids[1], SIGCONT);
    for (int i = 0; i < 2000 && live.ops->last_sign_ns(live.self, 1) == sign_ns; i++) {
        live.ops->poll(live.self);
        fork_sleep_ms(1);
    }
    FORK_CHECK(live.ops->last_sign_ns(live.self, 1) > sign_ns && !live.ops->lost(live.self, 1));
    atomic_store(&rank->shared->words[1], 1);
    FORK_CHECK(await_loss(&live, 1, 5) >= 0); /* it closes, and lives on */
    FORK_CHECK(strstr(live.ops->why(live.self, 1), "closed by rank 1") != NULL);
    close_both(&comm, &live);
    return 0;
}

START_TEST(test_shm_stopped_rank_is_silent_not_lost_and_comes_back)
{
    run(2, body_stop);
}
END_TEST

/* Rank 0 fills the lane and closes; rank 1 gets all. which 1: rank 1 is stopped, and the close ends all the same. */
static int body_close(ForkRank *rank)
{
    const int  *stopped = rank->argument;
    KvComm      comm;
    KvLiveness  live;
    uint64_t    value = 0;
    int         peer;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    FORK_CHECK(comm.ops->records_open(comm.self, sizeof value) == KVG_OK);
    if (comm.rank == 0) {
        FORK_CHECK(!*stopped || fork_await(rank->shared, 0, 1));
        fork_sleep_ms(*stopped ? 30 : 0);
        for (value = 0; value < 300; value++) {
            FORK_CHECK(comm.ops->post(comm.self, &value) == KVG_OK);
        }
        double begin = fork_seconds();

        close_both(&comm, &live);
        FORK_CHECK(fork_seconds() - begin < 1.0 && kvg_live_allocations() == 0);
        return 0;
    }
    if (*stopped) {
        atomic_store(&rank->shared->words[0], 1);
        raise(SIGSTOP);
    }
    for (uint64_t i = 0; i < 300; i++) {
        const uint64_t *got = await_record(&comm, &peer);

        FORK_CHECK(got != NULL && *got == i);
    }
    close_both(&comm, &live);
    return 0;
}

START_TEST(test_shm_close_lets_queued_records_leave_but_waits_for_nobody)
{
    int codes[2];

    ck_assert_int_eq(fork_ranks(2, 10000, body_close, &(int){ 0 }, NULL), 0);
    fork_ranks(2, 2000, body_close, &(int){ 1 }, codes);
    ck_assert_int_eq(codes[0], 0);
    ck_assert_int_eq(codes[1], FORK_OVERDUE);
}
END_TEST

static int body_liveness_alone(ForkRank *rank)
{
    KvComm     comm;
    KvLiveness live;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    comm.ops->close(comm.self);
    if (rank->bootstrap.rank == 1) {
        raise(SIGKILL);
    }
    FORK_CHECK(await_loss(&live, 1, 5) >= 0);
    live.ops->close(live.self);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

START_TEST(test_shm_liveness_lives_on_when_the_comm_end_is_closed)
{
    int codes[2];

    ck_assert_int_eq(fork_ranks(2, 10000, body_liveness_alone, NULL, codes), 1);
    ck_assert_int_eq(codes[0], 0);
}
END_TEST

/* ---- malice: rank 1 writes into its lane to rank 0 what no writer makes. The argument says which */

static int body_malice(ForkRank *rank)
{
    static const ShmPiece bad[] = {
        { 8, PIECE_LAST, 8 },                             /* the end of a frame that never began */
        { 8, PIECE_FIRST | PIECE_LAST, 9 },               /* less than it says */
        { 8, PIECE_FIRST, 8 },                            /* all there, and more to come */
        { 8, PIECE_FIRST | PIECE_LAST | 8, 8 },           /* a flag of another version */
        { 8, PIECE_FIRST, UINT64_MAX },                   /* a promise without bounds */
        { 24, PIECE_FIRST | PIECE_LAST, 24 },             /* a record of another size */
    };
    KvComm     comm;
    KvLiveness live;
    uint64_t   value[3] = { 9, 9, 9 };
    int        peer;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    FORK_CHECK(comm.ops->records_open(comm.self, sizeof value[0]) == KVG_OK);
    if (comm.rank == 1) {
        FORK_CHECK(comm.ops->post(comm.self, value) == KVG_OK);
        kvg_lane_put_piece(&((ShmComm *)comm.self)->peers[0].out[SHM_RECORD], 0, bad[*(const int *)rank->argument], value);
        FORK_CHECK(comm.ops->post(comm.self, value) == KVG_OK);
        FORK_CHECK(fork_await(rank->shared, 0, 1));
    } else {
        uint64_t        asked = kvg_asked_bytes();
        const uint64_t *got = await_record(&comm, &peer);

        FORK_CHECK(got != NULL && *got == 9);
        while (!live.ops->lost(live.self, 1)) {
            FORK_CHECK(comm.ops->take(comm.self, &peer) == NULL);
        }
        FORK_CHECK(strstr(live.ops->why(live.self, 1), "rank 1") != NULL);
        for (int i = 0; i < 100; i++) {
            FORK_CHECK(comm.ops->take(comm.self, &peer) == NULL && peer == -1); /* nor what came after it */
        }
        FORK_CHECK(kvg_asked_bytes() - asked < 4096);
        atomic_store(&rank->shared->words[0], 1);
    }
    close_both(&comm, &live);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

START_TEST(test_shm_malformed_lanes_lose_their_writer_and_nothing_else)
{
    ck_assert_int_eq(fork_ranks(2, 10000, body_malice, &_i, NULL), 0);
}
END_TEST

/* ---- set-up */

/* The argument: 0 rank 2 is killed before, 1 stopped after the first all-gather; 2 another user. */
typedef struct Meddler {
    ForkRank *rank;
    int       sign, gathers;
} Meddler;

static KvgStatus meddling_allgather(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    Meddler  *meddler = user;
    KvgStatus status = fork_allgather(meddler->rank, mine, all, bytes, timeout_ms);

    if (meddler->gathers++ == 0) {
        raise(meddler->sign);
    }
    return status;
}

static int body_absent(ForkRank *rank)
{
    static const int signs[] = { SIGKILL, SIGSTOP };
    Meddler          meddler = { .rank = rank, .sign = signs[*(const int *)rank->argument] };
    KvgBootstrap     bootstrap = rank->bootstrap;
    KvShmCommOptions options = KVG_SHM_COMM_OPTIONS_INIT;
    KvComm           comm = { 0 };
    KvLiveness       live = { 0 };
    int              fds = open_fds();

    options.timeout_ms = 500;
    if (bootstrap.rank == 2) {
        bootstrap.user = &meddler;
        bootstrap.allgather = meddling_allgather;
    }
    double    begin = fork_seconds();
    KvgStatus status = kvg_comm_shm_create(&bootstrap, &options, &comm, &live);

    FORK_CHECK(fork_seconds() - begin < 1.5);
    FORK_CHECK(status == KVG_EPEER || status == KVG_EINDOUBT);
    FORK_CHECK(strstr(kvg_last_error(), bootstrap.rank == 0 ? "rank 2 " : "rank ") != NULL);
    FORK_CHECK(comm.ops == NULL && open_fds() == fds && kvg_live_allocations() == 0);
    return 0;
}

START_TEST(test_shm_rank_that_goes_during_set_up_is_named)
{
    int codes[3];

    fork_ranks(3, 2500, body_absent, &_i, codes);
    ck_assert_msg(codes[0] == 0 && codes[1] == 0 && codes[2] == (_i == 0 ? FORK_KILLED : FORK_OVERDUE), "%d %d %d", codes[0], codes[1], codes[2]);
}
END_TEST

static int body_other_user(ForkRank *rank)
{
    KvComm     comm = { 0 };
    KvLiveness live = { 0 };

    FORK_CHECK(rank->bootstrap.rank != 1 || setresuid(65534, 65534, 65534) == 0);
    FORK_CHECK(create(rank, &comm, &live) == KVG_ENOTSUP);
    FORK_CHECK(strstr(kvg_last_error(), "different users") != NULL && strstr(kvg_last_error(), "uid 65534") != NULL);
    return 0;
}

START_TEST(test_shm_ranks_of_two_users_are_refused)
{
    if (geteuid() != 0) {
        printf("skipped: only root can be another user\n");
        return;
    }
    run(2, body_other_user);
}
END_TEST

/* Each acquisition of rank 1 fails once, in set-up and in the first traffic; nothing leaks, and all leave together. */
static int body_nth_failure(ForkRank *rank)
{
    int fds = open_fds();

    for (int nth = 0, done = 0; !done; nth++) {
        KvShmCommOptions options = KVG_SHM_COMM_OPTIONS_INIT;
        KvComm           comm = { 0 };
        KvLiveness       live = { 0 };
        int              hit = 0, hits[2];

        options.timeout_ms = 200;
        if (rank->bootstrap.rank == 1) {
            kvg_fault_arm((uint64_t)nth);
        }
        KvgStatus status = kvg_comm_shm_create(&rank->bootstrap, &options, &comm, &live);

        if (rank->bootstrap.rank == 1) {
            hit = kvg_fault_disarm();
        }
        FORK_CHECK(!hit || status != KVG_OK);
        if (status == KVG_OK) {
            close_both(&comm, &live);
        }
        atomic_fetch_add(&rank->shared->words[0], 1); /* all-gathers are counted: both begin anew */
        FORK_CHECK(fork_await(rank->shared, 0, 4 * nth + 2));
        atomic_store(&rank->shared->arrived[rank->bootstrap.rank], (unsigned)(nth + 1) * 100);
        atomic_fetch_add(&rank->shared->words[0], 1);
        FORK_CHECK(fork_await(rank->shared, 0, 4 * nth + 4));
        FORK_CHECK(rank->bootstrap.allgather(rank->bootstrap.user, &hit, hits, sizeof hit, 5000) == KVG_OK);
        FORK_CHECK((status == KVG_OK) == !hits[1]);
        FORK_CHECK(kvg_live_allocations() == 0 && open_fds() == fds);
        done = !hits[1];
        FORK_CHECK(!done || nth > 5);
    }
    return 0;
}

START_TEST(test_shm_comm_every_failure_of_one_rank_leaks_nothing)
{
    run(2, body_nth_failure);
}
END_TEST

/* A full lane and no memory: the record goes to all or to none. */
static int body_post_pays_first(ForkRank *rank)
{
    KvComm     comm;
    KvLiveness live;
    uint64_t   record[64] = { 0 };
    int        peer, posted = 0;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    FORK_CHECK(comm.ops->records_open(comm.self, sizeof record) == KVG_OK);
    if (comm.rank == 0) {
        KvgStatus status = KVG_OK;

        for (int i = 0; i < 20; i++) { /* rank 1 reads none, so its lane fills; rank 2 reads all */
            kvg_fault_arm(0);
            record[0] = (uint64_t)posted;
            status = comm.ops->post(comm.self, record);
            kvg_fault_disarm();
            posted += status == KVG_OK;
            fork_sleep_ms(2);
        }
        FORK_CHECK(status == KVG_ENOMEM && posted > 3 && posted < 10);
        record[0] = (uint64_t)posted;
        FORK_CHECK(comm.ops->post(comm.self, record) == KVG_OK); /* with memory it is queued */
        atomic_store(&rank->shared->words[1], posted + 1);
    }
    FORK_CHECK(comm.rank != 1 || fork_await(rank->shared, 1, 1));
    for (uint64_t i = 0; comm.rank > 0; i++) {
        const uint64_t *got = NULL;
        while (got == NULL && !(atomic_load(&rank->shared->words[1]) > 0 && i == (uint64_t)atomic_load(&rank->shared->words[1]))) {
            got = comm.ops->take(comm.self, &peer);
        }
        if (got == NULL) break;
        FORK_CHECK(got[0] == i);
    }
    atomic_fetch_add(&rank->shared->words[0], 1);
    while (atomic_load(&rank->shared->words[0]) < 3) {
        live.ops->poll(live.self);
        fork_sleep_ms(1);
    }
    close_both(&comm, &live);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

START_TEST(test_shm_post_without_memory_reaches_nobody)
{
    run(3, body_post_pays_first);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("shm_comm");
    TCase   *cases = tcase_create("shm_comm");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, test_shm_records_reach_all_in_order_through_full_lanes);
    tcase_add_test(cases, test_shm_records_larger_than_a_lane_arrive_whole);
    tcase_add_test(cases, test_shm_messages_of_every_size_arrive_whole_and_in_order);
    tcase_add_test(cases, test_shm_comm_refuses_bad_options_and_bad_peers);
    tcase_add_test(cases, test_shm_record_that_comes_before_records_open_is_kept);
    tcase_add_test(cases, test_shm_killed_rank_is_lost_within_a_second_and_named);
    tcase_add_test(cases, test_shm_stopped_rank_is_silent_not_lost_and_comes_back);
    tcase_add_test(cases, test_shm_close_lets_queued_records_leave_but_waits_for_nobody);
    tcase_add_test(cases, test_shm_liveness_lives_on_when_the_comm_end_is_closed);
    tcase_add_loop_test(cases, test_shm_malformed_lanes_lose_their_writer_and_nothing_else, 0, 6);
    tcase_add_loop_test(cases, test_shm_rank_that_goes_during_set_up_is_named, 0, 2);
    tcase_add_test(cases, test_shm_ranks_of_two_users_are_refused);
    tcase_add_test(cases, test_shm_comm_every_failure_of_one_rank_leaks_nothing);
    tcase_add_test(cases, test_shm_post_without_memory_reaches_nobody);
    suite_add_tcase(suite, cases);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);

    srunner_free(runner);
    return failed != 0 || ran == 0;
}

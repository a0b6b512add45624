/* The socket mesh between forked processes: traffic, death, frost, departure, malformed frames, what it costs. */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <kvgrid/mesh.h>

#include "runtime/base/memory.h"
#include "runtime/comm/mesh_internal.h"
#include "tests/support/comm_promises.h"
#include "tests/support/mesh_ranks.h"
#include "tests/support/open_fds.h"

#define BIG ((size_t)4 << 20)

static KvgStatus create(ForkRank *rank, KvComm *comm, KvLiveness *live)
{
    KvMeshOptions options = options_of(rank->argument);

    return kvg_mesh_create(&rank->bootstrap, &options, comm, live);
}

/* ---- traffic */

static int body_records(ForkRank *rank)
{
    KvComm     comm;
    KvLiveness live;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    return promise_records(rank, &comm, &live);
}

START_TEST(test_mesh_records_reach_all_in_order)
{
    run(2, body_records);
    run(4, body_records);
}
END_TEST

/* Fewer files than there are chairs for guests (32 and one a rank): the chairs are empty, and cost none. */
static int body_few_files(ForkRank *rank)
{
    const struct rlimit limit = { 20, 20 };

    FORK_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return body_records(rank);
}

START_TEST(test_mesh_needs_no_more_open_files_than_it_opens)
{
    run(3, body_few_files);
}
END_TEST

static int body_messages(ForkRank *rank)
{
    static const size_t sizes[] = { 0, 1, 15, 4096, KVG_MESH_STAGING - 16, KVG_MESH_STAGING, KVG_MESH_STAGING + 1, BIG, 3 }; /* no socket takes BIG */
    KvComm              comm;
    KvLiveness          live;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    return promise_messages(rank, &comm, &live, sizes, (int)(sizeof sizes / sizeof *sizes), BIG);
}

START_TEST(test_mesh_messages_of_every_size_arrive_whole_and_in_order)
{
    run(2, body_messages);
    run(3, body_messages);
}
END_TEST

static int body_refusals(ForkRank *rank)
{
    KvMeshOptions options = options_of(rank->argument);
    KvComm        comm;
    KvLiveness    live;
    int           peer = -1;
    const void   *bytes;
    size_t        byte_count;

    options.message_max = rank->bootstrap.rank == 0 ? 1000 : 4000; /* the smallest of all counts */
    FORK_CHECK(kvg_mesh_create(&rank->bootstrap, &options, &comm, &live) == KVG_OK);
    int other = 1 - comm.rank;
    uint8_t text[1001] = { 42 };

    FORK_CHECK(comm.ops->send(comm.self, comm.rank, text, 1) == KVG_EINVAL);
    FORK_CHECK(comm.ops->send(comm.self, -1, text, 1) == KVG_EINVAL);
    FORK_CHECK(comm.ops->send(comm.self, 2, text, 1) == KVG_EINVAL);
    FORK_CHECK(comm.ops->send(comm.self, other, text, 1001) == KVG_EINVAL);
    FORK_CHECK(strstr(kvg_last_error(), "1001") != NULL && strstr(kvg_last_error(), "1000") != NULL);
    FORK_CHECK(comm.ops->records_open(comm.self, 0) == KVG_EINVAL);
    FORK_CHECK(comm.ops->take(comm.self, &peer) == NULL); /* before records_open */
    FORK_CHECK(comm.ops->send(comm.self, other, text, 1000) == KVG_OK);
    FORK_CHECK(await_message(&comm, &peer, &bytes, &byte_count) && peer == other && byte_count == 1000);
    close_both(&comm, &live);
    return 0;
}

START_TEST(test_mesh_refuses_bad_peers_and_what_is_too_large)
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

START_TEST(test_mesh_record_that_comes_before_records_open_is_kept)
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

START_TEST(test_mesh_killed_rank_is_lost_within_a_second_and_named)
{
    for (int tcp = 0; tcp < TRIES; tcp++) {
        int codes[3];

        ck_assert_int_eq(fork_ranks(3, 20000, body_kill, &(Plan){ .tcp = tcp }, codes), 1);
        ck_assert_int_eq(codes[1], FORK_KILLED);
    }
}
END_TEST

static int body_stop(ForkRank *rank)
{
    KvComm     comm;
    KvLiveness live;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    atomic_store(&rank->shared->words[2 + comm.rank], getpid());
    FORK_CHECK(fork_await(rank->shared, 2, 1) && fork_await(rank->shared, 3, 1));
    if (comm.rank == 1) {
        while (atomic_load(&rank->shared->words[0]) == 0) {
            live.ops->poll(live.self);
            fork_sleep_ms(1);
        }
        close_both(&comm, &live);
        return 0;
    }
    pid_t    other = atomic_load(&rank->shared->words[3]);
    uint64_t first = live.ops->last_sign_ns(live.self, 1), sign = first;

    for (int i = 0; i < 3000 && sign == first; i++) { /* beats arrive */
        live.ops->poll(live.self);
        sign = live.ops->last_sign_ns(live.self, 1);
        fork_sleep_ms(1);
    }
    FORK_CHECK(sign > first);
    FORK_CHECK(kill(other, SIGSTOP) == 0);
    fork_sleep_ms(50);
    live.ops->poll(live.self); /* what it had sent */
    fork_sleep_ms(1);
    live.ops->poll(live.self);
    sign = live.ops->last_sign_ns(live.self, 1);
    for (int i = 0; i < 150; i++) {
        live.ops->poll(live.self);
        fork_sleep_ms(1);
    }
    FORK_CHECK(live.ops->last_sign_ns(live.self, 1) == sign);
    FORK_CHECK(live.ops->lost(live.self, 1) == 0);
    FORK_CHECK(kill(other, SIGCONT) == 0);
    for (int i = 0; i < 3000 && live.ops->last_sign_ns(live.self, 1) == sign; i++) {
        live.ops->poll(live.self);
        fork_sleep_ms(1);
    }
    FORK_CHECK(live.ops->last_sign_ns(live.self, 1) > sign);
    atomic_store(&rank->shared->words[0], 1);
    FORK_CHECK(await_loss(&live, 1, 5) >= 0);
    FORK_CHECK(strstr(live.ops->why(live.self, 1), "closed by rank 1") != NULL);
    close_both(&comm, &live);
    return 0;
}

START_TEST(test_mesh_stopped_rank_is_silent_not_lost_and_comes_back)
{
    run(2, body_stop);
}
END_TEST

static int body_liveness_alone(ForkRank *rank)
{
    KvComm     comm;
    KvLiveness live;
    uint64_t   value = 1;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    int other = 1 - comm.rank;

    comm.ops->close(comm.self); /* records go another way */
    uint64_t first = live.ops->last_sign_ns(live.self, other);

    for (int i = 0; i < 3000 && live.ops->last_sign_ns(live.self, other) == first; i++) {
        live.ops->poll(live.self);
        fork_sleep_ms(1);
    }
    FORK_CHECK(live.ops->last_sign_ns(live.self, other) > first);
    FORK_CHECK(live.ops->last_sign_ns(live.self, (int)comm.rank) > first);
    (void)value;
    atomic_fetch_add(&rank->shared->words[0], 1);
    while (atomic_load(&rank->shared->words[0]) < 2) {
        live.ops->poll(live.self);
        fork_sleep_ms(1);
    }
    live.ops->close(live.self);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

START_TEST(test_mesh_liveness_lives_on_when_the_comm_end_is_closed)
{
    run(2, body_liveness_alone);
}
END_TEST

static int body_parting_words(ForkRank *rank)
{
    KvComm      comm;
    KvLiveness  live;
    uint8_t    *text = calloc(1, BIG);
    int         peer, lost;
    const void *bytes;
    size_t      byte_count;

    FORK_CHECK(text != NULL && create(rank, &comm, &live) == KVG_OK);
    text[BIG - 1] = 9;
    if (comm.rank == 0) {
        FORK_CHECK(comm.ops->send(comm.self, 1, text, BIG) == KVG_OK);
    } else {
        do { /* what is here when the sender is gone is all that will be */
            lost = live.ops->lost(live.self, 0);
            FORK_CHECK(comm.ops->recv(comm.self, &peer, &bytes, &byte_count) == KVG_OK);
        } while (peer < 0 && !lost);
        FORK_CHECK(peer == 0 && byte_count == BIG);
        FORK_CHECK(((const uint8_t *)bytes)[BIG - 1] == 9);
        FORK_CHECK(await_loss(&live, 0, 5) >= 0);
    }
    close_both(&comm, &live);
    free(text);
    return 0;
}

/* The moment that close gives is bounded, and where other work has taken all cores a rank that reads may not be given its turn within it: one of a
 * few tries is enough. Without that moment none would do, since the message is larger than what a socket holds. */
START_TEST(test_mesh_close_lets_queued_bytes_leave)
{
    for (int tcp = 0; tcp < TRIES; tcp++) {
        int failed = 1;

        for (int i = 0; i < 8 && failed; i++) {
            failed = fork_ranks(2, 20000, body_parting_words, &(Plan){ .tcp = tcp }, NULL);
        }
        ck_assert_int_eq(failed, 0);
    }
}
END_TEST

static int body_close_on_stopped(ForkRank *rank)
{
    KvComm     comm;
    KvLiveness live;
    uint8_t   *text = calloc(1, BIG);

    FORK_CHECK(text != NULL && create(rank, &comm, &live) == KVG_OK);
    if (comm.rank == 1) {
        atomic_store(&rank->shared->words[0], 1);
        for (;;) {
            pause(); /* never reads again */
        }
    }
    FORK_CHECK(fork_await(rank->shared, 0, 1));
    FORK_CHECK(comm.ops->send(comm.self, 1, text, BIG) == KVG_OK);
    double begin = fork_seconds();

    close_both(&comm, &live);
    FORK_CHECK(fork_seconds() - begin < 2);
    FORK_CHECK(kvg_live_allocations() == 0);
    kill(rank->shared->pids[1], SIGKILL);
    free(text);
    return 0;
}

START_TEST(test_mesh_close_does_not_wait_for_a_rank_that_reads_nothing)
{
    for (int tcp = 0; tcp < TRIES; tcp++) {
        int codes[2];

        fork_ranks(2, 20000, body_close_on_stopped, &(Plan){ .tcp = tcp }, codes);
        ck_assert_int_eq(codes[0], 0);
        ck_assert_int_eq(codes[1], FORK_KILLED);
    }
}
END_TEST

/* ---- malformed frames */

static const struct {
    MeshHeader  header;
    const char *what;
} malformed[] = {
    { { 0xdeadbeef, MESH_BEAT, 0 }, "magic 0xdeadbeef" },
    { { KVG_MESH_MAGIC, 0, 0 }, "kind 0" },
    { { KVG_MESH_MAGIC, 4, 0 }, "kind 4" },
    { { KVG_MESH_MAGIC, MESH_BEAT, 1 }, "1 bytes" },
    { { KVG_MESH_MAGIC, MESH_MESSAGE, KVG_MESH_MESSAGE_MAX + 1 }, "268435457 bytes" },
    { { KVG_MESH_MAGIC, MESH_MESSAGE, UINT64_MAX }, "18446744073709551615 bytes" },
    { { KVG_MESH_MAGIC, MESH_RECORD, 0 }, "0 bytes" },
    { { KVG_MESH_MAGIC, MESH_RECORD, KVG_MESH_RECORD_MAX + 1 }, "16777217 bytes" },
    { { KVG_MESH_MAGIC, MESH_RECORD, 9 }, "record of 9 bytes" }, /* sound, but not of our size */
};
#define MALFORMED ((int)(sizeof malformed / sizeof malformed[0]))

static int body_malformed(ForkRank *rank)
{
    const Plan *plan = rank->argument;
    KvComm      comm;
    KvLiveness  live;
    int         peer;
    uint8_t     payload[16] = { 1 };

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    FORK_CHECK(comm.ops->records_open(comm.self, 8) == KVG_OK);
    if (comm.rank == 1) {
        int fd = ((Mesh *)comm.self)->peers[0].fd;

        FORK_CHECK(send(fd, &malformed[plan->which].header, sizeof(MeshHeader), MSG_NOSIGNAL) == sizeof(MeshHeader));
        send(fd, payload, 9, MSG_NOSIGNAL);
        FORK_CHECK(await_loss(&live, 0, 5) >= 0);
    } else {
        double begin = fork_seconds();

        while (!live.ops->lost(live.self, 1) && fork_seconds() - begin < 5) {
            FORK_CHECK(comm.ops->take(comm.self, &peer) == NULL);
        }
        FORK_CHECK(live.ops->lost(live.self, 1));
        FORK_CHECK(strstr(live.ops->why(live.self, 1), malformed[plan->which].what) != NULL);
        FORK_CHECK(strstr(live.ops->why(live.self, 1), "rank 1 (host ") != NULL);
    }
    close_both(&comm, &live);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

START_TEST(test_mesh_malformed_frame_ends_that_connection_with_a_reason)
{
    ck_assert_int_eq(fork_ranks(2, 20000, body_malformed, &(Plan){ .tcp = _i % 2, .which = _i }, NULL), 0);
}
END_TEST

/* ---- what it costs */

static int body_descriptors(ForkRank *rank)
{
    KvComm     comm;
    KvLiveness live;
    int        fds = open_fds(), own = 0;
    char       before[256] = { 0 };

    for (int fd = 0; fd < 256; fd++) {
        before[fd] = fcntl(fd, F_GETFD) >= 0;
    }
    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    for (int fd = 0; fd < 256; fd++) {
        int flags = fcntl(fd, F_GETFD);

        if (!before[fd] && flags >= 0) {
            FORK_CHECK(flags & FD_CLOEXEC);
            own++;
        }
    }
    FORK_CHECK(own == 1 + comm.size - 1); /* the epoll set and a socket a peer: listeners are gone */
    close_both(&comm, &live);
    FORK_CHECK(open_fds() == fds);
    return 0;
}

START_TEST(test_mesh_holds_one_socket_a_peer_and_passes_none_to_programs)
{
    run(4, body_descriptors);
}
END_TEST

static int body_poll(ForkRank *rank)
{
    KvComm     comm;
    KvLiveness live;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    const Mesh *mesh = comm.self;
    uint64_t    begin = comm.ops->now_ns(comm.self), seen = mesh->round_ns, rounds = 0;

    for (int i = 0; i < 100000; i++) {
        live.ops->poll(live.self);
        rounds += mesh->round_ns != seen;
        seen = mesh->round_ns;
    }
    FORK_CHECK(rounds <= (comm.ops->now_ns(comm.self) - begin) / 200000 + 1);
    FORK_CHECK(rank->bootstrap.allgather(rank->bootstrap.user, &begin, (uint64_t[2]){ 0 }, sizeof begin, 5000) == KVG_OK);
    close_both(&comm, &live);
    return 0;
}

START_TEST(test_mesh_poll_touches_sockets_at_most_every_200_us)
{
    run(2, body_poll);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mesh");
    TCase *tcase = tcase_create("mesh");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_mesh_records_reach_all_in_order);
    tcase_add_test(tcase, test_mesh_needs_no_more_open_files_than_it_opens);
    tcase_add_test(tcase, test_mesh_messages_of_every_size_arrive_whole_and_in_order);
    tcase_add_test(tcase, test_mesh_refuses_bad_peers_and_what_is_too_large);
    tcase_add_test(tcase, test_mesh_record_that_comes_before_records_open_is_kept);
    tcase_add_test(tcase, test_mesh_poll_touches_sockets_at_most_every_200_us);
    tcase_add_test(tcase, test_mesh_close_lets_queued_bytes_leave);
    tcase_add_test(tcase, test_mesh_killed_rank_is_lost_within_a_second_and_named);
    tcase_add_test(tcase, test_mesh_stopped_rank_is_silent_not_lost_and_comes_back);
    tcase_add_test(tcase, test_mesh_liveness_lives_on_when_the_comm_end_is_closed);
    tcase_add_test(tcase, test_mesh_close_does_not_wait_for_a_rank_that_reads_nothing);
    tcase_add_loop_test(tcase, test_mesh_malformed_frame_ends_that_connection_with_a_reason, 0, MALFORMED);
    tcase_add_test(tcase, test_mesh_holds_one_socket_a_peer_and_passes_none_to_programs);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* The socket mesh between forked processes: traffic, death, frost, strangers, absence, and nothing left behind. */
#include <check.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <kvgrid/mesh.h>

#include "runtime/base/memory.h"
#include "runtime/comm/mesh_internal.h"
#include "tests/support/fork_bootstrap.h"
#include "tests/support/comm_wait.h"
#include "tests/support/open_fds.h"

#define BIG   ((size_t)4 << 20)
#define SEC   1000000000ull
#define TRIES 2 /* Unix sockets and TCP: argument of the bodies is 0 or 1 */

typedef struct Plan {
    int tcp, which;
} Plan;

static KvMeshOptions options_of(const Plan *plan)
{
    KvMeshOptions options = KVG_MESH_OPTIONS_INIT;

    options.timeout_ms = 5000;
    options.heartbeat_ms = 20;
    options.tcp = plan->tcp;
    return options;
}

static KvgStatus create(ForkRank *rank, KvComm *comm, KvLiveness *live)
{
    KvMeshOptions options = options_of(rank->argument);

    return kvg_mesh_create(&rank->bootstrap, &options, comm, live);
}

static void run(int ranks, ForkBody body)
{
    for (int tcp = 0; tcp < TRIES; tcp++) {
        ck_assert_int_eq(fork_ranks(ranks, 20000, body, &(Plan){ .tcp = tcp }, NULL), 0);
    }
}

/* ---- traffic */

static int body_records(ForkRank *rank)
{
    KvComm     comm;
    KvLiveness live;
    uint64_t   record[72] = { 0 }, next[FORK_RANKS_MAX] = { 0 };
    int        peer;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    FORK_CHECK(comm.rank == rank->bootstrap.rank && comm.size == rank->bootstrap.ranks);
    FORK_CHECK(comm.ops->records_open(comm.self, sizeof record) == KVG_OK);
    for (uint64_t i = 0; i < 100; i++) { /* all in flight at once */
        record[0] = i;
        record[71] = (uint64_t)comm.rank * 1000 + i;
        FORK_CHECK(comm.ops->post(comm.self, record) == KVG_OK);
        record[71] = 0; /* it was copied */
    }
    for (int i = 0; i < 100 * (comm.size - 1); i++) {
        const uint64_t *got = await_record(&comm, &peer);

        FORK_CHECK(got != NULL && peer >= 0 && peer < comm.size && peer != comm.rank);
        FORK_CHECK(got[0] == next[peer] && got[71] == (uint64_t)peer * 1000 + next[peer]);
        next[peer]++;
    }
    FORK_CHECK(comm.ops->take(comm.self, &peer) == NULL && peer == -1);
    close_both(&comm, &live);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
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

static uint8_t pattern(int from, int index, size_t at)
{
    return (uint8_t)(at * 31 + (size_t)from * 7 + (size_t)index * 3 + (at >> 12));
}

static int body_messages(ForkRank *rank)
{
    static const size_t sizes[] = { 0, 1, 15, 4096, KVG_MESH_STAGING - 16, KVG_MESH_STAGING, KVG_MESH_STAGING + 1, BIG, 3 };
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    KvComm      comm;
    KvLiveness  live;
    int         next[FORK_RANKS_MAX] = { 0 }, peer = -1;
    const void *bytes = NULL;
    size_t      byte_count = 0;
    uint8_t    *text = malloc(BIG);

    FORK_CHECK(text != NULL && create(rank, &comm, &live) == KVG_OK);
    for (int index = 0; index < COUNT; index++) { /* everybody sends first: no socket takes 4 MiB */
        for (size_t at = 0; at < sizes[index]; at++) {
            text[at] = pattern(comm.rank, index, at);
        }
        for (int to = 0; to < comm.size; to++) {
            FORK_CHECK(to == comm.rank || comm.ops->send(comm.self, to, text, sizes[index]) == KVG_OK);
        }
    }
    for (int i = 0; i < COUNT * (comm.size - 1); i++) {
        FORK_CHECK(await_message(&comm, &peer, &bytes, &byte_count));
        int index = next[peer]++;

        FORK_CHECK(byte_count == sizes[index]);
        for (size_t at = 0; at < byte_count; at += at > 20000 && at + 40000 < byte_count ? 997 : 1) {
            FORK_CHECK(((const uint8_t *)bytes)[at] == pattern(peer, index, at));
        }
    }
    free(text);
    atomic_fetch_add(&rank->shared->words[0], 1);
    while (atomic_load(&rank->shared->words[0]) < comm.size) { /* the last bytes leave while we call in */
        live.ops->poll(live.self);
        fork_sleep_ms(1);
    }
    close_both(&comm, &live);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
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
    uint64_t   value = 77;
    int        peer;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    if (comm.rank == 0) {
        FORK_CHECK(comm.ops->records_open(comm.self, sizeof value) == KVG_OK);
        FORK_CHECK(comm.ops->post(comm.self, &value) == KVG_OK);
        atomic_store(&rank->shared->words[0], 1);
    } else {
        FORK_CHECK(fork_await(rank->shared, 0, 1));
        for (int i = 0; i < 5; i++) { /* it is read, and kept, before records are open here */
            live.ops->poll(live.self);
            fork_sleep_ms(1);
        }
        FORK_CHECK(comm.ops->records_open(comm.self, sizeof value) == KVG_OK);
        const uint64_t *got = await_record(&comm, &peer);

        FORK_CHECK(got != NULL && *got == 77 && peer == 0);
        atomic_store(&rank->shared->words[1], 1);
    }
    FORK_CHECK(fork_await(rank->shared, 1, 1));
    close_both(&comm, &live);
    return 0;
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
    uint64_t   value = 5;
    char       pid[32];
    int        peer;

    FORK_CHECK(create(rank, &comm, &live) == KVG_OK);
    FORK_CHECK(comm.ops->records_open(comm.self, sizeof value) == KVG_OK);
    if (comm.rank == 1) {
        comm.ops->post(comm.self, &value);
        atomic_store(&rank->shared->words[1], getpid());
        raise(SIGKILL);
    }
    double begin = fork_seconds(), took = await_loss(&live, 1, 5);

    FORK_CHECK(took >= 0 && fork_seconds() - begin < 1.0);
    snprintf(pid, sizeof pid, "pid %d", atomic_load(&rank->shared->words[1]));
    FORK_CHECK(strstr(live.ops->why(live.self, 1), "rank 1") != NULL);
    FORK_CHECK(strstr(live.ops->why(live.self, 1), "host ") != NULL);
    FORK_CHECK(strstr(live.ops->why(live.self, 1), pid) != NULL);
    for (int i = 0; i < 200; i++) { /* writing to the dead raises no signal and no error */
        FORK_CHECK(comm.ops->post(comm.self, &value) == KVG_OK);
        FORK_CHECK(comm.ops->send(comm.self, 1, &value, sizeof value) == KVG_OK);
    }
    int from_dead = 0, from_living = 0;

    while (from_dead + from_living < 201 && await_record(&comm, &peer) != NULL) {
        from_dead += peer == 1;
        from_living += peer == 2 - comm.rank;
    }
    FORK_CHECK(from_dead == 1 && from_living == 200); /* what it sent before its death counts */
    FORK_CHECK(live.ops->lost(live.self, 2 - comm.rank) == 0);
    FORK_CHECK(strncmp(live.ops->why(live.self, 2 - comm.rank), "host ", 5) == 0 && strstr(live.ops->why(live.self, 2 - comm.rank), ", pid ") != NULL);
    atomic_fetch_add(&rank->shared->words[0], 1);
    FORK_CHECK(fork_await(rank->shared, 0, 2));
    close_both(&comm, &live);
    return 0;
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

/* ---- interfaces */

/* The address of this end of the connection to `peer`, or of the other end. */
static const char *ip_of(const KvComm *comm, int peer, int other_end, char text[INET6_ADDRSTRLEN])
{
    const Mesh             *mesh = comm->self;
    struct sockaddr_storage address;
    socklen_t               bytes = sizeof address;
    int (*name)(int, struct sockaddr *, socklen_t *) = other_end ? getpeername : getsockname;

    if (name(mesh->peers[peer].fd, (struct sockaddr *)&address, &bytes) != 0) {
        return "?";
    }
    const void *ip = address.ss_family == AF_INET ? (const void *)&((struct sockaddr_in *)&address)->sin_addr
                                                   : (const void *)&((struct sockaddr_in6 *)&address)->sin6_addr;
    return inet_ntop(address.ss_family, ip, text, INET6_ADDRSTRLEN);
}

/* Each rank's own; the higher rank calls. */
static const struct { const char *interface, *listens_at; } interfaces[][2] = {
    { { "127.0.0.2", "127.0.0.2" }, { "127.0.0.3", "127.0.0.3" } },
    { { NULL, "127.0.0.1" }, { "127.0.0.2", "127.0.0.2" } },
    { { "lo", "127.0.0.1" }, { "127.0.0.1", "127.0.0.1" } },
    { { "::1", "::1" }, { "127.0.0.9", "127.0.0.9" } },
};

static int body_interface(ForkRank *rank)
{
    const Plan   *plan = rank->argument;
    KvMeshOptions options = options_of(plan);
    KvComm        comm;
    KvLiveness    live;
    char          text[INET6_ADDRSTRLEN];
    int           me = rank->bootstrap.rank;

    options.interface = interfaces[plan->which][me].interface;
    FORK_CHECK(kvg_mesh_create(&rank->bootstrap, &options, &comm, &live) == KVG_OK);
    FORK_CHECK(strcmp(ip_of(&comm, 1 - me, me == 1, text), interfaces[plan->which][0].listens_at) == 0);
    FORK_CHECK(rank->bootstrap.allgather(rank->bootstrap.user, &me, (int[2]){ 0 }, sizeof me, 5000) == KVG_OK);
    close_both(&comm, &live);
    return 0;
}

static int has_ipv6(void)
{
    struct sockaddr_in6 loopback = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int                 fd = socket(AF_INET6, SOCK_STREAM, 0), has = fd >= 0 && bind(fd, (struct sockaddr *)&loopback, sizeof loopback) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return has;
}

START_TEST(test_mesh_listens_on_the_interface_or_address_that_each_rank_is_told)
{
    if (strcmp(interfaces[_i][0].listens_at, "::1") == 0 && !has_ipv6()) {
        puts("no IPv6 here");
        return;
    }
    ck_assert_int_eq(fork_ranks(2, 20000, body_interface, &(Plan){ .tcp = 1, .which = _i }, NULL), 0);
}
END_TEST

static const struct { const char *interface; const char *says[3]; } no_interfaces[] = {
    { "no-such-address", { "\"no-such-address\" is no interface of host ", "lo 127.0.0.1", "KVGRID_INTERFACE" } },
    { "eth77", { "\"eth77\" is no interface", "lo 127.0.0.1", "by name or address" } },
    { "", { "\"\" is no interface", "lo 127.0.0.1", "KVGRID_INTERFACE" } },
    { "0.0.0.0", { "\"0.0.0.0\" is no interface", "no address to be told to others", "KVGRID_INTERFACE" } },
    { "::", { "\"::\" is no interface", "no address to be told to others", "KVGRID_INTERFACE" } },
    { "203.0.113.77", { "203.0.113.77 is no address of this host", "lo 127.0.0.1", "KVGRID_INTERFACE" } }, /* of documentation: nobody's */
    { "127.0.0.1:4711", { "\"127.0.0.1:4711\" is no interface", "lo 127.0.0.1", "KVGRID_INTERFACE" } },
};
enum { NO_INTERFACES = sizeof no_interfaces / sizeof *no_interfaces };

static int body_no_interface(ForkRank *rank)
{
    const Plan   *plan = rank->argument;
    KvMeshOptions options = options_of(plan);
    KvComm        comm = { 0 };
    KvLiveness    live = { 0 };
    double        begin = fork_seconds();

    options.interface = rank->bootstrap.rank == 1 ? no_interfaces[plan->which].interface : NULL;
    KvgStatus status = kvg_mesh_create(&rank->bootstrap, &options, &comm, &live);

    FORK_CHECK(fork_seconds() - begin < 3); /* long before the timeout: they leave together */
    FORK_CHECK(status == (rank->bootstrap.rank == 1 ? KVG_EINVAL : KVG_EPEER));
    FORK_CHECK(comm.ops == NULL && live.ops == NULL && kvg_live_allocations() == 0);
    for (int i = 0; i < 3 && rank->bootstrap.rank == 1; i++) {
        FORK_CHECK(strstr(kvg_last_error(), no_interfaces[plan->which].says[i]) != NULL);
    }
    FORK_CHECK(rank->bootstrap.rank == 1 || strstr(kvg_last_error(), "rank 1 could not set up (EINVAL)") != NULL);
    return 0;
}

START_TEST(test_mesh_interface_that_is_none_is_refused_by_name_with_those_there_are)
{
    ck_assert_int_eq(fork_ranks(2, 20000, body_no_interface, &(Plan){ .tcp = 1, .which = _i }, NULL), 0);
}
END_TEST

START_TEST(test_mesh_interfaces_that_cannot_be_read_are_not_taken_for_none)
{
    struct sockaddr_storage chosen;
    struct rlimit           limit;
    char                    place[KVG_MESH_PLACE_BYTES];

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 0; /* no more descriptors */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    KvgStatus by_name = kvg_mesh_choose("lo", 0, &chosen), by_address = kvg_mesh_choose("127.0.0.2", 0, &chosen);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    ck_assert_int_eq(by_address, KVG_OK);
    kvg_mesh_place(&chosen, place);
    ck_assert_str_eq(place, "127.0.0.2");
    ck_assert_int_eq(by_name, KVG_EIO);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "to find \"lo\": Too many open files"));
    ck_assert_int_eq(kvg_mesh_choose("lo", 0, &chosen), KVG_OK);
}
END_TEST

START_TEST(test_mesh_places_and_lists_fit_where_they_are_written)
{
    struct sockaddr_in  four = { .sin_family = AF_INET, .sin_port = htons(4711), .sin_addr.s_addr = htonl(0x0a000007) };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(80), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    char                place[KVG_MESH_PLACE_BYTES], whole[KVG_MESH_INTERFACES_BYTES], list[KVG_MESH_INTERFACES_BYTES];

    kvg_mesh_place(&four, place);
    ck_assert_str_eq(place, "10.0.0.7:4711");
    kvg_mesh_place(&six, place);
    ck_assert_str_eq(place, "[::1]:80");
    six.sin6_port = 0; /* not bound yet */
    kvg_mesh_place(&six, place);
    ck_assert_str_eq(place, "::1");
    four.sin_family = AF_UNIX;
    kvg_mesh_place(&four, place);
    ck_assert_str_eq(place, "?");
    kvg_mesh_interfaces(whole, sizeof whole);
    ck_assert_ptr_nonnull(strstr(whole, "lo 127.0.0.1"));
    for (size_t bytes = 32; bytes < sizeof list; bytes++) { /* cut between entries, never within, and said */
        kvg_mesh_interfaces(list, bytes);
        ck_assert_uint_lt(strlen(list), bytes);
        const char *dots = strstr(list, ", ..");
        ck_assert(strcmp(list, whole) == 0 ||
                  (dots != NULL && dots[4] == '\0' && strncmp(list, whole, (size_t)(dots - list)) == 0 && strncmp(whole + (dots - list), ", ", 2) == 0));
    }
}
END_TEST

/* ---- nothing left behind */

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
    Suite *suite = suite_create("mesh");
    TCase *traffic = tcase_create("traffic"), *loss = tcase_create("loss"), *setup = tcase_create("set-up");

    tcase_set_timeout(traffic, 60);
    tcase_add_test(traffic, test_mesh_records_reach_all_in_order);
    tcase_add_test(traffic, test_mesh_needs_no_more_open_files_than_it_opens);
    tcase_add_test(traffic, test_mesh_messages_of_every_size_arrive_whole_and_in_order);
    tcase_add_test(traffic, test_mesh_refuses_bad_peers_and_what_is_too_large);
    tcase_add_test(traffic, test_mesh_record_that_comes_before_records_open_is_kept);
    tcase_add_test(traffic, test_mesh_poll_touches_sockets_at_most_every_200_us);
    tcase_add_test(traffic, test_mesh_of_one_rank_needs_no_all_gather);
    tcase_add_test(traffic, test_mesh_close_lets_queued_bytes_leave);
    suite_add_tcase(suite, traffic);
    tcase_set_timeout(loss, 60);
    tcase_add_test(loss, test_mesh_killed_rank_is_lost_within_a_second_and_named);
    tcase_add_test(loss, test_mesh_stopped_rank_is_silent_not_lost_and_comes_back);
    tcase_add_test(loss, test_mesh_liveness_lives_on_when_the_comm_end_is_closed);
    tcase_add_test(loss, test_mesh_close_does_not_wait_for_a_rank_that_reads_nothing);
    tcase_add_loop_test(loss, test_mesh_malformed_frame_ends_that_connection_with_a_reason, 0, MALFORMED);
    suite_add_tcase(suite, loss);
    tcase_set_timeout(setup, 60);
    tcase_add_test(setup, test_mesh_strangers_are_shown_out_and_the_mesh_is_built);
    tcase_add_loop_test(setup, test_mesh_rank_that_never_comes_is_named_within_the_timeout, 0, 6);
    tcase_add_test(setup, test_mesh_rank_that_is_not_there_at_all_ends_the_set_up);
    tcase_add_loop_test(setup, test_mesh_listens_on_the_interface_or_address_that_each_rank_is_told, 0, sizeof interfaces / sizeof *interfaces);
    tcase_add_loop_test(setup, test_mesh_interface_that_is_none_is_refused_by_name_with_those_there_are, 0, NO_INTERFACES);
    if (getenv("KVG_UNDER_VALGRIND") == NULL) { /* which lowers no limit of open files */
        tcase_add_test(setup, test_mesh_interfaces_that_cannot_be_read_are_not_taken_for_none);
    }
    tcase_add_test(setup, test_mesh_places_and_lists_fit_where_they_are_written);
    tcase_add_test(setup, test_mesh_set_up_unwinds_from_every_failure);
    tcase_add_test(setup, test_mesh_holds_one_socket_a_peer_and_passes_none_to_programs);
    tcase_add_test(setup, test_mesh_create_refuses_bad_arguments);
    suite_add_tcase(suite, setup);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* The MPI bootstrap and comm on 1, 2 and 4 ranks: every rank runs every test, a failure on one fails all. */
#include <check.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvgrid/kvgrid_mpi.h>
#include <kvgrid/mesh.h>

#include "launch/mpi/comm_internal.h"
#include "runtime/base/memory.h"

#define MIB ((size_t)1 << 20)
#define SEC 1000000000ull

static KvComm   comm;
static uint64_t allocations_before;

static void setup(void)
{
    allocations_before = kvg_live_allocations();
    ck_assert_int_eq(kvg_mpi_comm_create(MPI_COMM_WORLD, &comm), KVG_OK);
}

static void teardown(void)
{
    MPI_Barrier(MPI_COMM_WORLD); /* nobody's last record is still under way */
    comm.ops->close(comm.self);
    ck_assert_uint_eq(kvg_live_allocations(), allocations_before);
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

/* The next record of any peer, within 10 s. */
static const uint64_t *await_record(int *peer)
{
    uint64_t begin = comm.ops->now_ns(comm.self);

    for (uint64_t rounds = 0; comm.ops->now_ns(comm.self) - begin < 10 * SEC; rounds++) {
        const uint64_t *record = comm.ops->take(comm.self, peer);

        if (record != NULL) {
            return record;
        }
        comm.ops->relax(comm.self, rounds);
    }
    ck_abort_msg("rank %d: no record within 10 s", comm.rank);
    return NULL;
}

static const uint8_t *await_message(int *peer, size_t *byte_count)
{
    uint64_t    begin = comm.ops->now_ns(comm.self);
    const void *bytes = NULL;

    for (uint64_t rounds = 0; comm.ops->now_ns(comm.self) - begin < 10 * SEC; rounds++) {
        ck_assert_int_eq(comm.ops->recv(comm.self, peer, &bytes, byte_count), KVG_OK);
        if (*peer >= 0) {
            return bytes;
        }
        comm.ops->relax(comm.self, rounds);
    }
    ck_abort_msg("rank %d: no message within 10 s", comm.rank);
    return NULL;
}

/* Posts `count` records of `bytes` at once and takes as many of everybody's, in order. Between two of one opening all
 * ranks meet, or a fast one's next records would be counted too. */
static void exchange(size_t bytes, uint64_t count)
{
    uint64_t *record = calloc(1, bytes), next[64] = { 0 };
    size_t    last = bytes / 8 - 1;
    int       peer;

    for (uint64_t i = 0; i < count; i++) {
        record[0] = i;
        record[last] = (uint64_t)comm.rank * 1000 + i;
        ck_assert_int_eq(comm.ops->post(comm.self, record), KVG_OK);
    }
    memset(record, 0xff, bytes); /* they were copied */
    for (uint64_t i = 0; i < count * (uint64_t)(comm.size - 1); i++) {
        const uint64_t *got = await_record(&peer);

        ck_assert(peer >= 0 && peer < comm.size && peer != comm.rank);
        ck_assert_uint_eq((uintptr_t)got % sizeof(uint64_t), 0);
        if (last > 0) {
            ck_assert_uint_eq(got[0], next[peer]);
        }
        ck_assert_uint_eq(got[last], (uint64_t)peer * 1000 + next[peer]);
        next[peer]++;
    }
    free(record);
}

/* No record is left: all ranks have exchanged all, and none has begun again. */
static void check_nothing_left(void)
{
    int peer = 0;

    MPI_Barrier(MPI_COMM_WORLD);
    ck_assert_ptr_null(comm.ops->take(comm.self, &peer));
    ck_assert_int_eq(peer, -1);
    MPI_Barrier(MPI_COMM_WORLD);
}

START_TEST(test_mpi_comm_knows_rank_and_size)
{
    int rank, size;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    ck_assert_int_eq(comm.rank, rank);
    ck_assert_int_eq(comm.size, size);
    ck_assert_str_eq(comm.ops->name, "mpi");
}
END_TEST

START_TEST(test_mpi_records_many_in_flight_arrive_in_order)
{
    /* more than are received ahead, and more than the send slots hold */
    ck_assert_int_eq(comm.ops->records_open(comm.self, 576), KVG_OK);
    for (uint64_t count = 1; count <= 100; count += count == 8 ? 1 : 7) { /* 1, 8, 9, 16, ... */
        exchange(576, count);
        check_nothing_left();
    }
}
END_TEST

START_TEST(test_mpi_records_of_rendezvous_size_do_not_block)
{
    ck_assert_int_eq(comm.ops->records_open(comm.self, 65536), KVG_OK);
    exchange(65536, 30); /* their sends end only when they are received: send slots are added */
    check_nothing_left();
}
END_TEST

START_TEST(test_mpi_records_can_be_opened_again_with_another_size)
{
    static const size_t sizes[] = { 8, 64, 576, 8200, 64 };

    for (int i = 0; i < 5; i++) { /* no barrier: the fast ones post before the slow ones have opened */
        ck_assert_int_eq(comm.ops->records_open(comm.self, sizes[i]), KVG_OK);
        if (comm.rank % 2 == 1) {
            sleep_ms(3);
        }
        exchange(sizes[i], 5);
    }
    check_nothing_left();
}
END_TEST

START_TEST(test_mpi_record_stays_valid_until_the_next_take)
{
    uint64_t record[8] = { 0 };
    int      peer, count = 20 * (comm.size - 1);

    ck_assert_int_eq(comm.ops->records_open(comm.self, sizeof record), KVG_OK);
    for (uint64_t i = 0; i < 20; i++) {
        record[0] = record[7] = i + 1;
        ck_assert_int_eq(comm.ops->post(comm.self, record), KVG_OK);
    }
    for (int i = 0; i < count; i++) {
        const uint64_t *got = await_record(&peer);
        uint64_t        value = got[0];

        if (i % 7 == 0) {
            sleep_ms(1); /* others land meanwhile */
        }
        ck_assert(got[0] == value && got[7] == value && value >= 1 && value <= 20);
    }
}
END_TEST

START_TEST(test_mpi_refuses_bad_sizes_and_peers)
{
    int peer;

    ck_assert_int_eq(comm.ops->records_open(comm.self, 0), KVG_EINVAL);
    ck_assert_int_eq(comm.ops->records_open(comm.self, (size_t)1 << 31), KVG_EINVAL);
    ck_assert_ptr_null(comm.ops->take(comm.self, &peer)); /* before records_open */
    ck_assert_int_eq(comm.ops->send(comm.self, comm.rank, "x", 1), KVG_EINVAL);
    ck_assert_int_eq(comm.ops->send(comm.self, -1, "x", 1), KVG_EINVAL);
    ck_assert_int_eq(comm.ops->send(comm.self, comm.size, "x", 1), KVG_EINVAL);
    if (comm.size > 1) {
        ck_assert_int_eq(comm.ops->send(comm.self, (comm.rank + 1) % comm.size, "x", (size_t)1 << 31), KVG_EINVAL);
        ck_assert_ptr_nonnull(strstr(kvg_last_error(), "2147483648"));
    }
}
END_TEST

static uint8_t pattern(int from, int index, size_t at)
{
    return (uint8_t)(at * 31 + (size_t)from * 7 + (size_t)index * 3 + (at >> 12));
}

START_TEST(test_mpi_messages_of_every_size_arrive_whole_and_in_order)
{
    static const size_t sizes[] = { 0, 1, 100, 4095, 4096, 4097, 65536, MIB, 3, MIB };
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    uint8_t *text = malloc(MIB);
    int      next[64] = { 0 }, peer = -1;
    size_t   byte_count = 0;

    for (int index = 0; index < COUNT; index++) {
        for (size_t at = 0; at < sizes[index]; at++) {
            text[at] = pattern(comm.rank, index, at);
        }
        for (int to = 0; to < comm.size; to++) {
            ck_assert(to == comm.rank || comm.ops->send(comm.self, to, text, sizes[index]) == KVG_OK);
        }
    }
    memset(text, 0, MIB); /* they were copied */
    for (int i = 0; i < COUNT * (comm.size - 1); i++) {
        const uint8_t *bytes = await_message(&peer, &byte_count);
        int            index = next[peer]++;

        ck_assert_uint_eq(byte_count, sizes[index]);
        for (size_t at = 0; at < byte_count; at += at > 5000 && at + 2000 < byte_count ? 97 : 1) {
            ck_assert_uint_eq(bytes[at], pattern(peer, index, at));
        }
    }
    free(text);
    while (((MpiComm *)comm.self)->messages.outgoing != NULL) { /* the others may still be receiving */
        const void *bytes;

        ck_assert_int_eq(comm.ops->recv(comm.self, &peer, &bytes, &byte_count), KVG_OK);
        ck_assert_int_eq(peer, -1);
    }
}
END_TEST

START_TEST(test_mpi_messages_and_records_do_not_mix)
{
    uint64_t record[8] = { 5 };
    int      peer = -1;
    size_t   byte_count = 0;

    ck_assert_int_eq(comm.ops->records_open(comm.self, sizeof record), KVG_OK);
    for (int to = 0; to < comm.size; to++) {
        ck_assert(to == comm.rank || comm.ops->send(comm.self, to, "word", 4) == KVG_OK);
    }
    ck_assert_int_eq(comm.ops->post(comm.self, record), KVG_OK);
    for (int i = 0; i < comm.size - 1; i++) {
        ck_assert_uint_eq(await_record(&peer)[0], 5);
    }
    for (int i = 0; i < comm.size - 1; i++) {
        ck_assert_mem_eq(await_message(&peer, &byte_count), "word", 4);
        ck_assert_uint_eq(byte_count, 4);
    }
}
END_TEST

START_TEST(test_mpi_message_that_finds_no_memory_is_kept)
{
    const void *bytes = NULL;
    int         peer = -1, other = comm.rank ^ 1;
    size_t      byte_count = 0;
    KvgStatus   status = KVG_OK;
    uint64_t    begin = comm.ops->now_ns(comm.self);

    if (other >= comm.size) {
        return;
    }
    ck_assert_int_eq(comm.ops->send(comm.self, other, "kept", 4), KVG_OK);
    kvg_fault_arm(0);
    while (status == KVG_OK && comm.ops->now_ns(comm.self) - begin < 10 * SEC) {
        status = comm.ops->recv(comm.self, &peer, &bytes, &byte_count);
    }
    ck_assert_int_eq(kvg_fault_disarm(), 1);
    ck_assert_int_eq(status, KVG_ENOMEM);
    ck_assert_mem_eq(await_message(&peer, &byte_count), "kept", 4);
    ck_assert_int_eq(peer, other);
}
END_TEST

START_TEST(test_mpi_records_open_unwinds_from_every_failure)
{
    for (uint64_t nth = 0;; nth++) {
        kvg_fault_arm(nth);
        KvgStatus status = comm.ops->records_open(comm.self, 576);

        if (!kvg_fault_disarm()) {
            ck_assert_int_eq(status, KVG_OK);
            ck_assert_uint_gt(nth, 5);
            break;
        }
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert_uint_eq(kvg_live_allocations(), allocations_before + 1); /* the comm itself */
    }
    MPI_Barrier(MPI_COMM_WORLD);
    exchange(576, 3);
}
END_TEST

/* ---- bootstrap */

START_TEST(test_mpi_bootstrap_gathers_in_rank_order)
{
    KvgBootstrap bootstrap;
    uint64_t     before = kvg_live_allocations();

    ck_assert_int_eq(kvg_mpi_bootstrap(MPI_COMM_WORLD, &bootstrap), KVG_OK);
    for (size_t bytes = 1; bytes <= 100000; bytes *= 10) { /* both sides of the eager limit */
        uint8_t *mine = malloc(bytes), *all = calloc((size_t)bootstrap.ranks, bytes);

        memset(mine, bootstrap.rank + 1, bytes);
        ck_assert_int_eq(bootstrap.allgather(bootstrap.user, mine, all, bytes, 10000), KVG_OK);
        for (int rank = 0; rank < bootstrap.ranks; rank++) {
            ck_assert_uint_eq(all[(size_t)rank * bytes], (unsigned)rank + 1);
            ck_assert_uint_eq(all[(size_t)(rank + 1) * bytes - 1], (unsigned)rank + 1);
        }
        free(mine);
        free(all);
    }
    kvg_mpi_bootstrap_free(&bootstrap);
    ck_assert_uint_eq(kvg_live_allocations(), before);
    kvg_mpi_bootstrap_free(&bootstrap); /* once more is no harm */
}
END_TEST

START_TEST(test_mpi_bootstrap_names_the_late_rank_and_works_on)
{
    KvgBootstrap bootstrap;
    int          late, all[64] = { 0 };
    char         name[16];

    ck_assert_int_eq(kvg_mpi_bootstrap(MPI_COMM_WORLD, &bootstrap), KVG_OK);
    late = bootstrap.ranks - 1;
    if (bootstrap.rank == late && bootstrap.ranks > 1) {
        sleep_ms(400);
        ck_assert_int_eq(bootstrap.allgather(bootstrap.user, &late, all, sizeof late, 5000), KVG_OK); /* the others' were here */
    } else if (bootstrap.ranks > 1) {
        all[0] = -7;
        ck_assert_int_eq(bootstrap.allgather(bootstrap.user, &late, all, sizeof late, 100), KVG_EINDOUBT);
        snprintf(name, sizeof name, "rank %d", late);
        ck_assert_ptr_nonnull(strstr(kvg_last_error(), name));
        ck_assert_int_eq(all[0], -7); /* outputs change only on success */
    }
    ck_assert_int_eq(bootstrap.allgather(bootstrap.user, &bootstrap.rank, all, sizeof late, 10000), KVG_OK);
    for (int rank = 0; rank < bootstrap.ranks; rank++) {
        ck_assert_int_eq(all[rank], rank);
    }
    kvg_mpi_bootstrap_free(&bootstrap);
}
END_TEST

START_TEST(test_mpi_bootstrap_builds_the_mesh_for_liveness)
{
    KvgBootstrap bootstrap;
    KvComm       spare;
    KvLiveness   live;

    ck_assert_int_eq(kvg_mpi_bootstrap(MPI_COMM_WORLD, &bootstrap), KVG_OK);
    ck_assert_int_eq(kvg_mesh_create(&bootstrap, NULL, &spare, &live), KVG_OK);
    spare.ops->close(spare.self);
    for (int i = 0; i < 5; i++) {
        live.ops->poll(live.self);
        for (int peer = 0; peer < bootstrap.ranks; peer++) {
            ck_assert_msg(!live.ops->lost(live.self, peer), "%s", live.ops->why(live.self, peer));
        }
        sleep_ms(1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    live.ops->close(live.self);
    kvg_mpi_bootstrap_free(&bootstrap);
}
END_TEST

START_TEST(test_mpi_refuses_no_communicator)
{
    KvgBootstrap bootstrap;
    KvComm       none = { 0 };

    ck_assert_int_eq(kvg_mpi_bootstrap(MPI_COMM_NULL, &bootstrap), KVG_EINVAL);
    ck_assert_int_eq(kvg_mpi_bootstrap(MPI_COMM_WORLD, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_mpi_comm_create(MPI_COMM_NULL, &none), KVG_EINVAL);
    ck_assert_int_eq(kvg_mpi_comm_create(MPI_COMM_WORLD, NULL), KVG_EINVAL);
    ck_assert_ptr_null(none.ops);
}
END_TEST

int main(int argc, char **argv)
{
    int bad = 0, all_bad = 0;

    MPI_Init(&argc, &argv);
    Suite *suite = suite_create("mpi comm");
    TCase *traffic = tcase_create("comm"), *strap = tcase_create("bootstrap");

    tcase_add_checked_fixture(traffic, setup, teardown);
    tcase_add_test(traffic, test_mpi_comm_knows_rank_and_size);
    tcase_add_test(traffic, test_mpi_records_many_in_flight_arrive_in_order);
    tcase_add_test(traffic, test_mpi_records_of_rendezvous_size_do_not_block);
    tcase_add_test(traffic, test_mpi_records_can_be_opened_again_with_another_size);
    tcase_add_test(traffic, test_mpi_record_stays_valid_until_the_next_take);
    tcase_add_test(traffic, test_mpi_refuses_bad_sizes_and_peers);
    tcase_add_test(traffic, test_mpi_messages_of_every_size_arrive_whole_and_in_order);
    tcase_add_test(traffic, test_mpi_messages_and_records_do_not_mix);
    tcase_add_test(traffic, test_mpi_message_that_finds_no_memory_is_kept);
    tcase_add_test(traffic, test_mpi_records_open_unwinds_from_every_failure);
    suite_add_tcase(suite, traffic);
    tcase_add_test(strap, test_mpi_bootstrap_gathers_in_rank_order);
    tcase_add_test(strap, test_mpi_bootstrap_names_the_late_rank_and_works_on);
    tcase_add_test(strap, test_mpi_bootstrap_builds_the_mesh_for_liveness);
    tcase_add_test(strap, test_mpi_refuses_no_communicator);
    suite_add_tcase(suite, strap);

    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK); /* MPI does not cross a fork */
    srunner_run_all(runner, CK_ENV);
    bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    MPI_Allreduce(&bad, &all_bad, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return all_bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

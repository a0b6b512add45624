/* The comm of one rank: nothing arrives, nobody is lost, bad peers are refused. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/comm.h>

static KvComm     comm;
static KvLiveness liveness;

static void setup(void)
{
    ck_assert_int_eq(kvg_comm_self(&comm, &liveness), KVG_OK);
}

static void teardown(void)
{
    comm.ops->close(comm.self);
    liveness.ops->close(liveness.self);
}

START_TEST(test_self_is_rank_0_of_1)
{
    ck_assert_int_eq(comm.rank, 0);
    ck_assert_int_eq(comm.size, 1);
    ck_assert_str_eq(comm.ops->name, "self");
}
END_TEST

START_TEST(test_self_posts_to_nobody_and_takes_nothing)
{
    uint64_t record[8] = { 1 };
    int      peer = 7;

    ck_assert_int_eq(comm.ops->records_open(comm.self, sizeof record), KVG_OK);
    ck_assert_int_eq(comm.ops->post(comm.self, record), KVG_OK);
    ck_assert_ptr_null(comm.ops->take(comm.self, &peer));
    ck_assert_int_eq(peer, -1);
}
END_TEST

START_TEST(test_self_refuses_every_peer_and_empty_records)
{
    for (int peer = -1; peer <= 1; peer++) {
        ck_assert_int_eq(comm.ops->send(comm.self, peer, "x", 1), KVG_EINVAL);
        ck_assert_ptr_nonnull(strstr(kvg_last_error(), "only one"));
    }
    ck_assert_int_eq(comm.ops->records_open(comm.self, 0), KVG_EINVAL);
    ck_assert_int_eq(kvg_comm_self(NULL, &liveness), KVG_EINVAL);
    ck_assert_int_eq(kvg_comm_self(&comm, NULL), KVG_EINVAL);
}
END_TEST

START_TEST(test_self_receives_nothing)
{
    int         peer = 3;
    const void *bytes = "stale";
    size_t      byte_count = 5;

    ck_assert_int_eq(comm.ops->recv(comm.self, &peer, &bytes, &byte_count), KVG_OK);
    ck_assert_int_eq(peer, -1);
    ck_assert_ptr_null(bytes);
    ck_assert_uint_eq(byte_count, 0);
}
END_TEST

START_TEST(test_self_is_never_lost_and_its_clock_runs)
{
    uint64_t before = comm.ops->now_ns(comm.self);

    for (uint64_t rounds = 0; rounds < 4000; rounds += 100) {
        comm.ops->relax(comm.self, rounds);
    }
    liveness.ops->poll(liveness.self);
    ck_assert_int_eq(liveness.ops->lost(liveness.self, 0), 0);
    ck_assert_str_eq(liveness.ops->why(liveness.self, 0), "");
    ck_assert_uint_ge(liveness.ops->last_sign_ns(liveness.self, 0), before);
    ck_assert_uint_gt(comm.ops->now_ns(comm.self), before);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("comm self");
    TCase *tcase = tcase_create("self");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_self_is_rank_0_of_1);
    tcase_add_test(tcase, test_self_posts_to_nobody_and_takes_nothing);
    tcase_add_test(tcase, test_self_refuses_every_peer_and_empty_records);
    tcase_add_test(tcase, test_self_receives_nothing);
    tcase_add_test(tcase, test_self_is_never_lost_and_its_clock_runs);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* The in-process transport: order, faults by script, death and frost, and the same run twice. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/inproc.h>

#include "runtime/base/memory.h"

#define RANKS 3
#define MS    1000000ull

static KvInproc  *hub;
static KvComm     comms[RANKS];
static KvLiveness lives[RANKS];
static uint64_t   allocations_before;

static void setup(void)
{
    allocations_before = kvg_live_allocations();
    ck_assert_int_eq(kvg_inproc_create(RANKS, &hub), KVG_OK);
    for (int rank = 0; rank < RANKS; rank++) {
        ck_assert_int_eq(kvg_inproc_attach(hub, rank, &comms[rank], &lives[rank]), KVG_OK);
        ck_assert_int_eq(comms[rank].ops->records_open(comms[rank].self, sizeof(uint64_t)), KVG_OK);
    }
}

static void teardown(void)
{
    for (int rank = 0; rank < RANKS; rank++) {
        comms[rank].ops->close(comms[rank].self);
        lives[rank].ops->close(lives[rank].self);
    }
    kvg_inproc_destroy(hub);
    ck_assert_uint_eq(kvg_live_allocations(), allocations_before);
}

static void post(int rank, uint64_t value)
{
    ck_assert_int_eq(comms[rank].ops->post(comms[rank].self, &value), KVG_OK);
}

/* The next record's value; 0 when none is here. */
static uint64_t take(int rank, int *peer)
{
    const uint64_t *record = comms[rank].ops->take(comms[rank].self, peer);

    ck_assert_int_eq(*peer == -1, record == NULL);
    return record != NULL ? *record : 0;
}

static void send_text(int from, int to, const char *text)
{
    ck_assert_int_eq(comms[from].ops->send(comms[from].self, to, text, strlen(text)), KVG_OK);
}

static int recv_is(int rank, int from, const char *text)
{
    int         peer = -1;
    const void *bytes = NULL;
    size_t      byte_count = 0;

    ck_assert_int_eq(comms[rank].ops->recv(comms[rank].self, &peer, &bytes, &byte_count), KVG_OK);
    if (text == NULL) {
        return peer == -1 && bytes == NULL && byte_count == 0;
    }
    return peer == from && byte_count == strlen(text) && memcmp(bytes, text, byte_count) == 0;
}

START_TEST(test_inproc_records_reach_every_other_rank_in_order)
{
    int peer;

    for (uint64_t value = 1; value <= 20; value++) { /* more than the spares hold */
        post(0, value);
    }
    for (int rank = 1; rank < RANKS; rank++) {
        for (uint64_t value = 1; value <= 20; value++) {
            ck_assert_uint_eq(take(rank, &peer), value);
            ck_assert_int_eq(peer, 0);
        }
        ck_assert_uint_eq(take(rank, &peer), 0);
    }
    ck_assert_uint_eq(take(0, &peer), 0);
}
END_TEST

START_TEST(test_inproc_messages_arrive_whole_and_in_order)
{
    send_text(0, 2, "first");
    send_text(1, 2, "");
    send_text(0, 2, "second");
    ck_assert(recv_is(2, 0, "first"));
    ck_assert(recv_is(2, 1, ""));
    ck_assert(recv_is(2, 0, "second"));
    ck_assert(recv_is(2, -1, NULL));
    ck_assert(recv_is(1, -1, NULL));
}
END_TEST

START_TEST(test_inproc_send_refuses_the_own_rank_and_strangers)
{
    const int bad[] = { -1, 1, RANKS };

    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(comms[1].ops->send(comms[1].self, bad[i], "x", 1), KVG_EINVAL);
    }
}
END_TEST

typedef struct Script {
    KvInprocFate fate;
    uint64_t     delay_ns;
    int          from, to, is_record; /* what it applies to */
    int          left;                /* how often */
    int          seen;
} Script;

static KvInprocFate run_script(void *user, int from, int to, int is_record, const void *bytes, size_t byte_count,
                               uint64_t *delay_ns)
{
    Script *script = user;

    ck_assert(bytes != NULL && byte_count > 0);
    script->seen++;
    if (from != script->from || to != script->to || is_record != script->is_record || script->left == 0) {
        return KVG_INPROC_DELIVER;
    }
    script->left--;
    *delay_ns = script->delay_ns;
    return script->fate;
}

START_TEST(test_inproc_filter_drops_for_one_receiver_only)
{
    Script script = { .fate = KVG_INPROC_DROP, .from = 0, .to = 1, .is_record = 1, .left = 1 };
    int    peer;

    kvg_inproc_set_filter(hub, run_script, &script);
    post(0, 5);
    ck_assert_int_eq(script.seen, 2);
    ck_assert_uint_eq(take(1, &peer), 0);
    ck_assert_uint_eq(take(2, &peer), 5);
    post(0, 6);
    ck_assert_uint_eq(take(1, &peer), 6);
}
END_TEST

START_TEST(test_inproc_delayed_record_is_overtaken_and_comes_at_its_time)
{
    Script script = { .fate = KVG_INPROC_DELAY, .delay_ns = 3 * MS, .from = 0, .to = 1, .is_record = 1, .left = 1 };
    int    peer;

    kvg_inproc_set_filter(hub, run_script, &script);
    post(0, 1);
    post(0, 2);
    ck_assert_uint_eq(take(1, &peer), 2);
    kvg_inproc_advance_ns(hub, 3 * MS - 1);
    ck_assert_uint_eq(take(1, &peer), 0);
    kvg_inproc_advance_ns(hub, 1);
    ck_assert_uint_eq(take(1, &peer), 1);
}
END_TEST

START_TEST(test_inproc_relax_lets_a_delayed_record_arrive)
{
    Script   script = { .fate = KVG_INPROC_DELAY, .delay_ns = 5 * MS, .from = 2, .to = 0, .is_record = 1, .left = 1 };
    uint64_t rounds = 0;
    int      peer;

    kvg_inproc_set_filter(hub, run_script, &script);
    post(2, 9);
    while (take(0, &peer) == 0) {
        comms[0].ops->relax(comms[0].self, rounds++);
        ck_assert_uint_le(rounds, 5);
    }
    ck_assert_uint_eq(rounds, 5);
    ck_assert_uint_eq(kvg_inproc_now_ns(hub), 5 * MS);
    ck_assert_uint_eq(comms[1].ops->now_ns(comms[1].self), 5 * MS);
}
END_TEST

START_TEST(test_inproc_delayed_message_holds_back_the_later_ones_of_its_sender)
{
    Script script = { .fate = KVG_INPROC_DELAY, .delay_ns = 3 * MS, .from = 0, .to = 1, .is_record = 0, .left = 1 };

    kvg_inproc_set_filter(hub, run_script, &script);
    send_text(0, 1, "late");
    send_text(0, 1, "later");
    send_text(2, 1, "other");
    ck_assert(recv_is(1, 2, "other"));
    ck_assert(recv_is(1, -1, NULL));
    kvg_inproc_advance_ns(hub, 3 * MS);
    ck_assert(recv_is(1, 0, "late"));
    ck_assert(recv_is(1, 0, "later"));
}
END_TEST

START_TEST(test_inproc_duplicate_gives_it_twice)
{
    Script record = { .fate = KVG_INPROC_DUPLICATE, .from = 0, .to = 1, .is_record = 1, .left = 1 };
    Script message = { .fate = KVG_INPROC_DUPLICATE, .from = 0, .to = 1, .is_record = 0, .left = 1 };
    int    peer;

    kvg_inproc_set_filter(hub, run_script, &record);
    post(0, 4);
    ck_assert_uint_eq(take(1, &peer), 4);
    ck_assert_uint_eq(take(1, &peer), 4);
    ck_assert_uint_eq(take(1, &peer), 0);
    ck_assert_uint_eq(take(2, &peer), 4);
    ck_assert_uint_eq(take(2, &peer), 0);
    kvg_inproc_set_filter(hub, run_script, &message);
    send_text(0, 1, "twice");
    ck_assert(recv_is(1, 0, "twice"));
    ck_assert(recv_is(1, 0, "twice"));
    ck_assert(recv_is(1, -1, NULL));
}
END_TEST

START_TEST(test_inproc_killed_rank_is_lost_but_what_it_sent_arrives)
{
    int peer;

    post(1, 3);
    kvg_inproc_kill(hub, 1);
    post(1, 4);
    post(0, 5);
    send_text(0, 1, "to the dead");
    ck_assert_uint_eq(take(0, &peer), 3);
    ck_assert_uint_eq(take(0, &peer), 0);
    ck_assert_uint_eq(take(1, &peer), 0);
    ck_assert(recv_is(1, -1, NULL));
    for (int rank = 0; rank < RANKS; rank += 2) {
        ck_assert_int_eq(lives[rank].ops->lost(lives[rank].self, 1), 1);
        ck_assert_ptr_nonnull(strstr(lives[rank].ops->why(lives[rank].self, 1), "rank 1"));
        ck_assert_int_eq(lives[rank].ops->lost(lives[rank].self, 2 - rank), 0);
        ck_assert_str_eq(lives[rank].ops->why(lives[rank].self, 2 - rank), "");
    }
    ck_assert_int_eq(lives[1].ops->lost(lives[1].self, 0), 1);
}
END_TEST

START_TEST(test_inproc_frozen_rank_is_silent_not_lost_and_thaws_with_its_inbox)
{
    int peer;

    kvg_inproc_advance_ns(hub, 7 * MS);
    lives[1].ops->poll(lives[1].self);
    kvg_inproc_freeze(hub, 1, 1);
    kvg_inproc_advance_ns(hub, 9 * MS);
    lives[1].ops->poll(lives[1].self);
    post(1, 8);
    post(0, 5);
    send_text(0, 1, "wake");
    ck_assert_uint_eq(lives[0].ops->last_sign_ns(lives[0].self, 1), 7 * MS);
    ck_assert_uint_eq(lives[1].ops->last_sign_ns(lives[1].self, 0), 16 * MS);
    ck_assert_int_eq(lives[0].ops->lost(lives[0].self, 1), 0);
    ck_assert_uint_eq(take(1, &peer), 0);
    ck_assert_uint_eq(take(0, &peer), 0); /* what a frozen rank sends is held */
    ck_assert(recv_is(1, -1, NULL));
    kvg_inproc_freeze(hub, 1, 0);
    ck_assert_uint_eq(take(1, &peer), 5);
    ck_assert(recv_is(1, 0, "wake"));
    ck_assert_uint_eq(take(0, &peer), 8);
    ck_assert_uint_eq(lives[0].ops->last_sign_ns(lives[0].self, 1), 16 * MS);
}
END_TEST

START_TEST(test_inproc_rank_that_closed_both_ends_is_lost_until_it_comes_again)
{
    comms[2].ops->close(comms[2].self);
    ck_assert_int_eq(lives[0].ops->lost(lives[0].self, 2), 0);
    lives[2].ops->close(lives[2].self);
    ck_assert_int_eq(lives[0].ops->lost(lives[0].self, 2), 1);
    ck_assert_ptr_nonnull(strstr(lives[0].ops->why(lives[0].self, 2), "closed by rank 2"));
    ck_assert_int_eq(kvg_inproc_attach(hub, 2, &comms[2], &lives[2]), KVG_OK);
    ck_assert_int_eq(lives[0].ops->lost(lives[0].self, 2), 0);
}
END_TEST

START_TEST(test_inproc_attach_refuses_twice_strangers_and_the_dead)
{
    KvComm     comm = { 0 };
    KvLiveness live = { 0 };

    ck_assert_int_eq(kvg_inproc_attach(hub, 0, &comm, &live), KVG_EBUSY);
    ck_assert_int_eq(kvg_inproc_attach(hub, -1, &comm, &live), KVG_EINVAL);
    ck_assert_int_eq(kvg_inproc_attach(hub, RANKS, &comm, &live), KVG_EINVAL);
    kvg_inproc_kill(hub, 0);
    comms[0].ops->close(comms[0].self);
    lives[0].ops->close(lives[0].self);
    ck_assert_int_eq(kvg_inproc_attach(hub, 0, &comm, &live), KVG_EPEER);
    ck_assert_ptr_null(comm.ops);
}
END_TEST

START_TEST(test_inproc_records_of_another_size_are_dropped)
{
    uint64_t wide[2] = { 1, 2 };
    int      peer;

    ck_assert_int_eq(comms[0].ops->records_open(comms[0].self, sizeof wide), KVG_OK);
    ck_assert_int_eq(comms[1].ops->records_open(comms[1].self, sizeof wide), KVG_OK);
    ck_assert_int_eq(comms[0].ops->records_open(comms[0].self, 0), KVG_EINVAL);
    ck_assert_int_eq(comms[0].ops->post(comms[0].self, wide), KVG_OK);
    const uint64_t *got = comms[1].ops->take(comms[1].self, &peer);
    ck_assert(got != NULL && got[0] == 1 && got[1] == 2);
    ck_assert_uint_eq(take(2, &peer), 0);
}
END_TEST

START_TEST(test_inproc_create_refuses_no_ranks)
{
    KvInproc *none = NULL;

    ck_assert_int_eq(kvg_inproc_create(0, &none), KVG_EINVAL);
    ck_assert_int_eq(kvg_inproc_create(-1, &none), KVG_EINVAL);
    ck_assert_int_eq(kvg_inproc_create(65537, &none), KVG_EINVAL);
    ck_assert_int_eq(kvg_inproc_create(1, NULL), KVG_EINVAL);
    ck_assert_ptr_null(none);
    kvg_inproc_destroy(NULL);
}
END_TEST

/* All the way from create to a taken record and a received message; the first failure, or OK. */
static KvgStatus small_life(void)
{
    KvInproc   *small = NULL;
    KvComm      two[2];
    KvLiveness  live[2];
    uint64_t    value = 1;
    int         peer, attached = 0;
    const void *bytes;
    size_t      byte_count;
    KvgStatus   status = kvg_inproc_create(2, &small);

    for (; status == KVG_OK && attached < 2; attached++) {
        status = kvg_inproc_attach(small, attached, &two[attached], &live[attached]);
    }
    for (int rank = 0; status == KVG_OK && rank < 2; rank++) {
        status = two[rank].ops->records_open(two[rank].self, sizeof value);
    }
    for (int i = 0; status == KVG_OK && i < 12; i++) {
        status = two[0].ops->post(two[0].self, &value);
    }
    status = status != KVG_OK ? status : two[0].ops->send(two[0].self, 1, "hello", 5);
    status = status != KVG_OK ? status : two[1].ops->recv(two[1].self, &peer, &bytes, &byte_count);
    for (int rank = 0; rank < attached; rank++) {
        two[rank].ops->take(two[rank].self, &peer);
        two[rank].ops->close(two[rank].self);
        live[rank].ops->close(live[rank].self);
    }
    kvg_inproc_destroy(small);
    return status;
}

START_TEST(test_inproc_unwinds_from_every_allocation)
{
    uint64_t before = kvg_live_allocations();

    for (uint64_t nth = 0;; nth++) {
        kvg_fault_arm(nth);
        KvgStatus status = small_life();

        ck_assert_uint_eq(kvg_live_allocations(), before);
        if (!kvg_fault_disarm()) {
            ck_assert_int_eq(status, KVG_OK);
            ck_assert_uint_gt(nth, 10);
            return;
        }
        ck_assert_int_eq(status, KVG_ENOMEM);
    }
}
END_TEST

START_TEST(test_inproc_post_that_finds_no_memory_reaches_nobody)
{
    int      peer, posted = 0;
    uint64_t value = 1;

    kvg_fault_arm(1); /* the second parcel it must get */
    while (comms[0].ops->post(comms[0].self, &value) == KVG_OK) {
        ck_assert_int_lt(posted++, 1000);
    }
    ck_assert_int_eq(kvg_fault_disarm(), 1);
    for (int rank = 1; rank < RANKS; rank++) {
        int taken = 0;

        while (take(rank, &peer) != 0) {
            taken++;
        }
        ck_assert_int_eq(taken, posted);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("inproc");
    TCase *tcase = tcase_create("inproc");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_inproc_records_reach_every_other_rank_in_order);
    tcase_add_test(tcase, test_inproc_messages_arrive_whole_and_in_order);
    tcase_add_test(tcase, test_inproc_send_refuses_the_own_rank_and_strangers);
    tcase_add_test(tcase, test_inproc_filter_drops_for_one_receiver_only);
    tcase_add_test(tcase, test_inproc_delayed_record_is_overtaken_and_comes_at_its_time);
    tcase_add_test(tcase, test_inproc_relax_lets_a_delayed_record_arrive);
    tcase_add_test(tcase, test_inproc_delayed_message_holds_back_the_later_ones_of_its_sender);
    tcase_add_test(tcase, test_inproc_duplicate_gives_it_twice);
    tcase_add_test(tcase, test_inproc_killed_rank_is_lost_but_what_it_sent_arrives);
    tcase_add_test(tcase, test_inproc_frozen_rank_is_silent_not_lost_and_thaws_with_its_inbox);
    tcase_add_test(tcase, test_inproc_rank_that_closed_both_ends_is_lost_until_it_comes_again);
    tcase_add_test(tcase, test_inproc_attach_refuses_twice_strangers_and_the_dead);
    tcase_add_test(tcase, test_inproc_records_of_another_size_are_dropped);
    tcase_add_test(tcase, test_inproc_create_refuses_no_ranks);
    tcase_add_test(tcase, test_inproc_unwinds_from_every_allocation);
    tcase_add_test(tcase, test_inproc_post_that_finds_no_memory_reaches_nobody);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

#include "launch/rank/device_choice.h"

#include "runtime/base/memory.h"
#include "tests/launch/suite.h"

enum { RANKS = 12 };

static RankDevices        lists[RANKS];
static const RankDevices *seen[RANKS];
static int                chosen[RANKS];

/* Each letter is a device: "AB" sees A as its 0 and B as its 1. */
static void see(int rank, const char *letters)
{
    memset(&lists[rank], 0, sizeof lists[rank]);
    for (; *letters != '\0'; letters++) {
        RankDevice *device = &lists[rank].device[lists[rank].count++];
        device->id[0] = (uint8_t)*letters;
        strcpy(device->bus, "0000:1b:00.0"); /* the same for all: slices of one GPU */
    }
    seen[rank] = &lists[rank];
}

static KvgStatus choose(int ranks, int per_device)
{
    for (int i = 0; i < RANKS; i++) {
        chosen[i] = -7;
    }
    return kvg_device_choose("n01", seen, ranks, per_device, chosen);
}

/* `letters`: the device of each rank. */
static void check(const char *letters)
{
    for (int rank = 0; letters[rank] != '\0'; rank++) {
        ck_assert_int_ge(chosen[rank], 0);
        ck_assert_msg(lists[rank].device[chosen[rank]].id[0] == letters[rank], "rank %d has %c, not %c", rank, lists[rank].device[chosen[rank]].id[0],
                      letters[rank]);
    }
}

static void all_see(int ranks, const char *letters)
{
    for (int rank = 0; rank < ranks; rank++) {
        see(rank, letters);
    }
}

START_TEST(test_device_choice_is_one_a_rank_in_order)
{
    all_see(4, "ABCD");
    ck_assert_int_eq(choose(4, 1), KVG_OK);
    check("ABCD");
    ck_assert_int_eq(choose(3, 1), KVG_OK);
    check("ABC");
    ck_assert_int_eq(choose(1, 1), KVG_OK);
    check("A");
    ck_assert_int_eq(choose(2, 4), KVG_OK); /* sharing is allowed, not sought */
    check("AB");
}
END_TEST

START_TEST(test_device_choice_of_too_many_ranks_is_refused_with_the_cure)
{
    all_see(5, "AB");
    ck_assert_int_eq(choose(4, 1), KVG_EINVAL);
    SAYS("4 ranks and 2 devices on n01: start 2 there, or say --ranks-per-device 2");
    ck_assert_int_eq(chosen[0], -7);
    ck_assert_int_eq(choose(3, 1), KVG_EINVAL);
    SAYS("3 ranks and 2 devices on n01: start 2 there, or say --ranks-per-device 2");
    ck_assert_int_eq(choose(5, 2), KVG_EINVAL);
    SAYS("5 ranks and 2 devices on n01: start 4 there, or say --ranks-per-device 3");
    all_see(2, "A");
    ck_assert_int_eq(choose(2, 1), KVG_EINVAL);
    SAYS("2 ranks and 1 device on n01: start 1 there");
}
END_TEST

START_TEST(test_device_choice_shares_evenly_where_asked)
{
    all_see(5, "AB");
    ck_assert_int_eq(choose(4, 2), KVG_OK);
    check("ABAB");
    ck_assert_int_eq(choose(3, 2), KVG_OK);
    check("ABA");
    ck_assert_int_eq(choose(5, 3), KVG_OK);
    check("ABABA");
    ck_assert_int_eq(choose(5, 64), KVG_OK); /* no more than needed */
    check("ABABA");
}
END_TEST

START_TEST(test_device_choice_follows_what_a_launcher_has_narrowed)
{
    see(0, "B"); /* srun --gpus-per-task=1: each its own, each calls it 0 */
    see(1, "A");
    ck_assert_int_eq(choose(2, 1), KVG_OK);
    check("BA");
    ck_assert_int_eq(chosen[0], 0);
    ck_assert_int_eq(chosen[1], 0);
    see(1, "B");
    ck_assert_int_eq(choose(2, 1), KVG_EINVAL);
    SAYS("2 ranks and 1 device on n01");
    see(0, "BA"); /* the same devices in another order */
    see(1, "AB");
    ck_assert_int_eq(choose(2, 1), KVG_OK);
    check("BA");
}
END_TEST

START_TEST(test_device_choice_makes_room_for_ranks_that_have_none)
{
    see(0, "AB");
    see(1, "A");
    ck_assert_int_eq(choose(2, 1), KVG_OK);
    check("BA");
    see(0, "ABC"); /* a chain: 0 to C, 1 to B, 2 to A */
    see(1, "AB");
    see(2, "A");
    ck_assert_int_eq(choose(3, 1), KVG_OK);
    check("CBA");
    see(3, "BA");
    ck_assert_int_eq(choose(4, 1), KVG_EINVAL);
    SAYS("4 ranks and 3 devices");
    ck_assert_int_eq(choose(4, 2), KVG_OK);
    see(0, "A"); /* enough devices, but two ranks see the same one alone */
    see(1, "A");
    see(2, "BC");
    ck_assert_int_eq(choose(3, 1), KVG_EINVAL);
    SAYS("local rank 1 of 3 on n01 sees 1 of the machine's 3 devices");
    SAYS("--gpu-bind=none");
}
END_TEST

START_TEST(test_device_choice_of_a_rank_that_sees_none_is_refused)
{
    all_see(3, "AB");
    see(1, "");
    ck_assert_int_eq(choose(3, 2), KVG_EINVAL);
    SAYS("local rank 1 of 3 on n01 sees no device");
}
END_TEST

START_TEST(test_device_choice_holds_its_invariants_for_random_machines)
{
    unsigned seed = 7;
    int      served = 0;

    for (int trial = 0; trial < 3000; trial++) {
        int      ranks = 1 + rand_r(&seed) % RANKS, per_device = 1 + rand_r(&seed) % 3, users[8] = { 0 };
        unsigned bad = 0;
        for (int rank = 0; rank < ranks; rank++) {
            char letters[9] = "";
            for (int i = 0, used = 0; i < 8; i++) {
                if (rand_r(&seed) % 3 == 0) {
                    letters[used++] = (char)('A' + i);
                    letters[used] = '\0';
                }
            }
            see(rank, letters[0] != '\0' ? letters : "A");
        }
        KvgStatus status = choose(ranks, per_device);
        for (int rank = 0; rank < ranks && status == KVG_OK; rank++) {
            int index = chosen[rank];
            bad += index < 0 || index >= (int)lists[rank].count || ++users[lists[rank].device[index].id[0] - 'A'] > per_device;
        }
        for (int rank = 0; rank < ranks && status != KVG_OK; rank++) {
            bad += chosen[rank] != -7;
        }
        ck_assert_msg(bad == 0, "trial %d", trial);
        served += status == KVG_OK;
    }
    ck_assert_int_gt(served, 1000);
    ck_assert_int_lt(served, 3000);
}
END_TEST

START_TEST(test_device_choice_unwinds_from_every_allocation)
{
    const uint64_t live = kvg_live_allocations();

    all_see(2, "AB");
    kvg_fault_arm(0);
    ck_assert_int_eq(choose(2, 1), KVG_ENOMEM);
    ck_assert_int_eq(kvg_fault_disarm(), 1);
    ck_assert_int_eq(chosen[0], -7);
    ck_assert_uint_eq(kvg_live_allocations(), live);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_device_choice_is_one_a_rank_in_order, test_device_choice_of_too_many_ranks_is_refused_with_the_cure,
        test_device_choice_shares_evenly_where_asked, test_device_choice_follows_what_a_launcher_has_narrowed,
        test_device_choice_makes_room_for_ranks_that_have_none, test_device_choice_of_a_rank_that_sees_none_is_refused,
        test_device_choice_holds_its_invariants_for_random_machines, test_device_choice_unwinds_from_every_allocation,
    };

    return run_suite("device_choice", tests, sizeof tests / sizeof *tests);
}

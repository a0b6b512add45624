/* Placing ranks: seats of several machines as values, and over a bootstrap of one rank. */
#include "launch/rank/place_rank.h"

#include <stdio.h>
#include <unistd.h>

#include "runtime/base/memory.h"
#include "tests/launch/suite.h"

#define EIGHT KVG_TEST_DATA "/topologies/two-socket-8gpu.xml"

enum { RANKS = 8 };

static RankSeat  seats[RANKS];
static RankPlace place;

static const LocalRankSources nobody;

static void sit(int rank, const char *host, const char *boot, int devices)
{
    RankSeat *seat = &seats[rank];

    memset(seat, 0, sizeof *seat);
    snprintf(seat->host, sizeof seat->host, "%s", host);
    snprintf(seat->boot, sizeof seat->boot, "%s", boot);
    for (unsigned cpu = 0; cpu < 32; cpu++) {
        kvg_index_set_add(&seat->allowed, cpu);
    }
    for (int i = 0; i < devices; i++) {
        seat->devices.device[i].id[0] = (uint8_t)(i + 1);
        seat->devices.device[i].node = -1;
        snprintf(seat->devices.device[i].bus, sizeof seat->devices.device[i].bus, "%s", i == 0 ? "0000:1b:00.0" : "0000:9d:00.0");
    }
    seat->devices.count = (uint32_t)devices;
}

static KvgStatus put(const RankTopology *topology, int ranks, int me, const LocalRankSources *local, int per_device, int bind)
{
    const RankAsk ask = { .per_device = per_device, .bind = bind };

    return kvg_rank_place_among(topology, "no hwloc", seats, ranks, me, local, &ask, &place);
}

START_TEST(test_place_ranks_of_several_machines_are_counted_apart)
{
    static const int local[] = { 0, 0, 1, 0, 2, 1 }, of[] = { 3, 2, 3, 1, 3, 2 };

    sit(0, "n01", "boot-a", 2);
    sit(1, "n02", "boot-b", 2);
    sit(2, "n01", "boot-a", 2);
    sit(3, "n01", "boot-c", 2); /* another machine of the same name */
    sit(4, "n01", "boot-a", 2);
    sit(5, "n02", "boot-b", 2);
    for (int rank = 0; rank < 6; rank++) {
        ck_assert_int_eq(put(NULL, 6, rank, &nobody, 2, 1), KVG_OK);
        ck_assert_int_eq(place.local.rank, local[rank]);
        ck_assert_int_eq(place.local.ranks, of[rank]);
        ck_assert_int_eq(place.device, local[rank] % 2);
        ck_assert_str_eq(place.binding.why, "no hwloc");
    }
    ck_assert_int_eq(put(NULL, 6, 1, &nobody, 1, 1), KVG_OK); /* two ranks, two devices */
    ck_assert_int_eq(put(NULL, 6, 0, &nobody, 1, 1), KVG_EINVAL);
    SAYS("3 ranks and 2 devices on n01: start 2 there, or say --ranks-per-device 2");
    ck_assert_int_eq(place.device, -1);
    ck_assert_int_eq(place.local.ranks, 3); /* what could be found */
    ck_assert_int_eq(place.binding.kind, BINDING_NONE);
}
END_TEST

START_TEST(test_place_serves_from_the_host_where_nobody_sees_a_device)
{
    sit(0, "n01", "a", 0);
    sit(1, "n01", "a", 0);
    ck_assert_int_eq(put(NULL, 2, 1, &nobody, 1, 1), KVG_OK);
    ck_assert_int_eq(place.device, -1);
    sit(1, "n01", "a", 1); /* one does: the other was not meant to be without */
    ck_assert_int_eq(put(NULL, 2, 1, &nobody, 1, 1), KVG_EINVAL);
    SAYS("local rank 0 of 2 on n01 sees no device");
}
END_TEST

START_TEST(test_place_refuses_a_launcher_that_counts_otherwise)
{
    const LocalRankSources wrong = { .slurm_rank = "1" }, right = { .slurm_rank = "0" };

    sit(0, "n01", "a", 1);
    ck_assert_int_eq(put(NULL, 1, 0, &right, 1, 1), KVG_OK);
    ck_assert_str_eq(place.local.source, "SLURM_LOCALID");
    ck_assert_int_eq(put(NULL, 1, 0, &wrong, 1, 1), KVG_EINVAL);
    SAYS("SLURM_LOCALID says local rank 1, but");
}
END_TEST

START_TEST(test_place_binds_near_the_device_that_was_chosen)
{
#if KVG_HAVE_HWLOC
    RankTopology *topology = NULL;
    char          text[INDEX_SET_TEXT];

    ck_assert_int_eq(kvg_topology_open(EIGHT, 1, &topology), KVG_OK);
    for (int rank = 0; rank < 4; rank++) {
        sit(rank, "n01", "a", 2);
    }
    ck_assert_int_eq(put(topology, 4, 3, &nobody, 2, 1), KVG_OK);
    ck_assert_int_eq(place.device, 1);
    ck_assert_str_eq(kvg_index_set_text(&place.binding.cpus, text, sizeof text), "12-15,28-31"); /* half of the second package */
    ck_assert_int_eq(put(topology, 4, 3, &nobody, 2, 0), KVG_OK);
    ck_assert_int_eq(place.binding.kind, BINDING_NONE);
    ck_assert_str_eq(place.binding.why, "--bind none");
    sit(1, "n02", "b", 2); /* ranks of other machines take no part */
    sit(2, "n02", "b", 2);
    ck_assert_int_eq(put(topology, 4, 3, &nobody, 2, 1), KVG_OK);
    ck_assert_str_eq(kvg_index_set_text(&place.binding.cpus, text, sizeof text), "8-15,24-31");
    kvg_topology_close(topology);
#endif
}
END_TEST

/* ---- over a bootstrap */

typedef struct Alone {
    KvgStatus answer;
    int       calls;
} Alone;

static KvgStatus allgather(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    Alone *alone = user;

    ck_assert_uint_eq(timeout_ms, 77);
    alone->calls++;
    memcpy(all, mine, bytes);
    return alone->answer == KVG_OK ? KVG_OK : kvg_fail(alone->answer, "rank 1 did not come");
}

START_TEST(test_place_over_a_bootstrap_says_what_this_process_is)
{
    Alone         alone = { KVG_OK, 0 };
    KvgBootstrap  bootstrap = KVG_BOOTSTRAP_INIT;
    const RankAsk ask = { .per_device = 1, .bind = 1 };
    RankSeat      seat;
    uint64_t      live = kvg_live_allocations();
    char          name[RANK_HOST] = "";

    bootstrap.user = &alone;
    bootstrap.allgather = allgather;
    sit(0, "", "", 0);
    seat = seats[0];
    seat.devices.count = 1;
    seat.devices.device[0].node = -1;
    ck_assert_int_eq(kvg_rank_place(&bootstrap, 77, &ask, &seat, seats, &place), KVG_OK);
    ck_assert_int_eq(gethostname(name, sizeof name), 0);
    ck_assert_str_eq(seats[0].host, name);
    ck_assert_int_eq(seats[0].pid, (int)getpid());
    ck_assert_int_gt(seats[0].cores, 0);
    ck_assert_uint_gt(kvg_index_set_count(&seats[0].allowed), 0);
    ck_assert_int_eq(place.device, 0);
    ck_assert_int_eq(place.local.ranks, 1);
    alone.answer = KVG_EINDOUBT;
    ck_assert_int_eq(kvg_rank_place(&bootstrap, 77, &ask, &seat, seats, &place), KVG_EINDOUBT);
    ck_assert_int_eq(alone.calls, 2);
    ck_assert_int_eq(place.binding.kind, BINDING_NONE);
    ck_assert_uint_eq(kvg_live_allocations(), live);
}
END_TEST

/* Out of memory for the topology binds nothing; out of memory for the ranks is an error: never a crash, never a leak. */
START_TEST(test_place_unwinds_from_every_allocation)
{
    Alone         alone = { KVG_OK, 0 };
    KvgBootstrap  bootstrap = KVG_BOOTSTRAP_INIT;
    const RankAsk ask = { .per_device = 1, .bind = 1 };
    RankSeat      seat = { .pid = 0 };
    uint64_t      live = kvg_live_allocations();
    int           failures = 0;

    bootstrap.user = &alone;
    bootstrap.allgather = allgather;
    for (uint64_t nth = 0;; nth++) {
        kvg_fault_arm(nth);
        KvgStatus status = kvg_rank_place(&bootstrap, 77, &ask, &seat, seats, &place);
        if (!kvg_fault_disarm()) {
            ck_assert_int_eq(status, KVG_OK);
            break;
        }
        ck_assert(status == KVG_ENOMEM || (status == KVG_OK && place.binding.kind == BINDING_NONE));
        ck_assert_uint_eq(kvg_live_allocations(), live);
        failures++;
    }
    ck_assert_int_ge(failures, 1);
    ck_assert_int_eq(alone.calls, failures + 1); /* nobody is left waiting */
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_place_ranks_of_several_machines_are_counted_apart, test_place_serves_from_the_host_where_nobody_sees_a_device,
        test_place_refuses_a_launcher_that_counts_otherwise, test_place_binds_near_the_device_that_was_chosen,
        test_place_over_a_bootstrap_says_what_this_process_is, test_place_unwinds_from_every_allocation,
    };
    static const char *const launchers[] = { "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "HWLOC_XMLFILE", "HWLOC_SYNTHETIC" };

    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        unsetenv(launchers[i]);
    }
    return run_suite("place_rank", tests, sizeof tests / sizeof *tests);
}

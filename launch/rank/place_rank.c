#include "launch/rank/place_rank.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launch/rank/memory_limit.h"
#include "runtime/base/memory.h"

/* ---- a seat */

static void read_boot(char *boot, size_t bytes)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

    if (file != NULL) {
        if (fgets(boot, (int)bytes, file) == NULL) {
            boot[0] = '\0';
        }
        boot[strcspn(boot, "\n")] = '\0';
        fclose(file);
    }
}

static IndexSet ask_allowed(void)
{
    IndexSet  allowed = { { 0 } };
    cpu_set_t now;

    if (sched_getaffinity(0, sizeof now, &now) == 0) { /* more processors than it holds: not known */
        for (unsigned index = 0; index < CPU_SETSIZE; index++) {
            if (CPU_ISSET(index, &now)) {
                kvg_index_set_add(&allowed, index);
            }
        }
    }
    return allowed;
}

void kvg_rank_seat(const RankTopology *topology, RankSeat *seat)
{
    memset(seat, 0, sizeof *seat);
    if (gethostname(seat->host, sizeof seat->host - 1) != 0) {
        snprintf(seat->host, sizeof seat->host, "unknown");
    }
    read_boot(seat->boot, sizeof seat->boot);
    seat->pid = (int32_t)getpid();
    seat->allowed = topology != NULL ? kvg_topology_allowed(topology) : ask_allowed();
    seat->cores = (int32_t)(topology != NULL ? kvg_topology_cores(topology, &seat->allowed) : kvg_index_set_count(&seat->allowed));
    seat->memory = kvg_memory_limit_here();
    seat->addresses = kvg_memory_limit_addresses();
}

int kvg_rank_same_machine(const RankSeat *left, const RankSeat *right)
{
    return strncmp(left->host, right->host, sizeof left->host) == 0 && strncmp(left->boot, right->boot, sizeof left->boot) == 0;
}

/* ---- a place */

typedef struct Neighbours { /* the ranks of one machine, in rank order */
    int                 count, me;
    int                *device; /* [count] chosen; -1 the host */
    const RankDevices **seen;   /* [count] */
    const RankSeat    **seat;   /* [count] */
    BindingSeat        *bind;   /* [count] */
} Neighbours;

static KvgStatus find_neighbours(const RankSeat *seats, int ranks, int me, void **memory, Neighbours *found)
{
    const size_t each = sizeof *found->bind + sizeof *found->seen + sizeof *found->seat + sizeof *found->device;

    KVG_TRY(kvg_calloc((size_t)ranks, each, "the ranks of a machine", memory));
    found->bind = *memory; /* widest first, so that each begins where it may */
    found->seen = (const RankDevices **)(found->bind + ranks);
    found->seat = (const RankSeat **)(found->seen + ranks);
    found->device = (int *)(found->seat + ranks);
    found->count = 0;
    for (int rank = 0; rank < ranks; rank++) {
        if (kvg_rank_same_machine(&seats[rank], &seats[me])) {
            found->me = rank == me ? found->count : found->me;
            found->seat[found->count] = &seats[rank];
            found->seen[found->count] = &seats[rank].devices;
            found->device[found->count] = -1;
            found->count++;
        }
    }
    return KVG_OK;
}

/* The host serves all where nobody sees a device. */
static KvgStatus choose_devices(const Neighbours *neighbours, const RankAsk *ask)
{
    uint32_t seen = 0;

    for (int i = 0; i < neighbours->count; i++) {
        seen += neighbours->seen[i]->count;
    }
    return seen == 0 ? KVG_OK
                     : kvg_device_choose(neighbours->seat[neighbours->me]->host, neighbours->seen, neighbours->count, ask->per_device, neighbours->device);
}

static void plan_binding(const RankTopology *topology, const char *missing, const Neighbours *neighbours, const RankAsk *ask, RankBinding *binding)
{
    for (int i = 0; i < neighbours->count; i++) {
        BindingSeat *seat = &neighbours->bind[i];

        seat->allowed = neighbours->seat[i]->allowed;
        seat->has_device = neighbours->device[i] >= 0;
        if (seat->has_device) {
            seat->device = neighbours->seen[i]->device[neighbours->device[i]];
        }
    }
    kvg_binding_plan(ask->bind ? topology : NULL, ask->bind ? missing : "--bind none", neighbours->bind, neighbours->count, neighbours->me, binding);
}

KvgStatus kvg_rank_place_among(const RankTopology *topology, const char *missing, const RankSeat *seats, int ranks, int me, const LocalRankSources *local,
                               const RankAsk *ask, RankPlace *place)
{
    Neighbours       neighbours = { 0 };
    LocalRankSources said = *local;
    void            *memory = NULL;

    KVG_ASSERT(me >= 0 && me < ranks);
    *place = (RankPlace){ .device = -1 };
    KVG_TRY(find_neighbours(seats, ranks, me, &memory, &neighbours));
    said.found_rank = neighbours.me;
    said.found_ranks = neighbours.count;
    place->local = (LocalRank){ neighbours.me, neighbours.count, "the machines' names" };
    KvgStatus status = choose_devices(&neighbours, ask); /* all ranks of the machine alike, so it is said first */
    if (status == KVG_OK) {
        status = kvg_local_rank(&said, &place->local);
    }
    place->device = neighbours.device[neighbours.me];
    if (place->device < 0 && seats[me].devices.count > 0) { /* not chosen: near what? */
        topology = NULL;
        missing = "no device was chosen";
    }
    plan_binding(topology, missing, &neighbours, ask, &place->binding);
    kvg_free(memory);
    return status;
}

KvgStatus kvg_rank_place(const KvgBootstrap *bootstrap, uint32_t timeout_ms, const RankAsk *ask, RankSeat *seat, RankSeat *seats, RankPlace *place)
{
    RankTopology          *topology = NULL;
    const RankDevices      devices = seat->devices;
    const LocalRankSources local = kvg_local_rank_environment();
    char                   missing[RANK_WORDS] = "";

    if (ask->bind && kvg_topology_open(NULL, devices.count > 0, &topology) != KVG_OK) { /* no error: it is not bound then */
        snprintf(missing, sizeof missing, "%s", kvg_last_error());
    }
    kvg_rank_seat(topology, seat);
    seat->devices = devices;
    *place = (RankPlace){ .device = -1 };
    KvgStatus status = bootstrap->allgather(bootstrap->user, seat, seats, sizeof *seat, timeout_ms);
    if (status == KVG_OK) {
        status = kvg_rank_place_among(topology, missing, seats, bootstrap->ranks, bootstrap->rank, &local, ask, place);
    }
    if (status == KVG_OK && topology != NULL) {
        kvg_binding_do(topology, &place->binding);
    }
    kvg_topology_close(topology);
    return status;
}

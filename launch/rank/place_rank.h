/* Placing a rank on its machine: its local rank, its device, its processors and memory. Private.
 *
 *   seat   what a rank says of itself: its machine, the devices that it sees, the processors that it may use
 *   place  what follows from all seats, the same on whichever rank works it out
 *
 * Devices are the caller's to list, so that nothing here starts a driver. Threads: one at a time. */
#ifndef KVG_RANK_PLACE_RANK_H
#define KVG_RANK_PLACE_RANK_H

#include <kvgrid/bootstrap.h>

#include "launch/rank/binding.h"
#include "launch/rank/local_rank.h"

enum { RANK_HOST = 64, RANK_WORDS = 320 };

typedef struct RankSeat { /* crosses the wire */
    char        host[RANK_HOST];
    char        boot[40];  /* the kernel's boot id: hosts may share a name */
    int32_t     pid;
    int32_t     cores;     /* it may use; 0: not known */
    uint64_t    memory;    /* bytes that its limits and the machine leave it; UINT64_MAX: not known */
    uint64_t    addresses; /* RLIMIT_AS; UINT64_MAX: no limit */
    IndexSet    allowed;
    RankDevices devices;   /* count 0: none, or none is wanted */
} RankSeat;

typedef struct RankAsk {
    int         per_device; /* ranks that may share a device, from 1 */
    int         bind;       /* 0: --bind none */
} RankAsk;

typedef struct RankPlace {
    LocalRank   local;
    int         device; /* index of the seat's devices; -1: the host */
    RankBinding binding;
} RankPlace;

/* This process's seat, but for its devices. topology NULL: none. */
void kvg_rank_seat(const RankTopology *topology, RankSeat *seat);

/* The place of rank `me` of seats [ranks], in rank order. `local` is what that rank's launcher said. topology NULL: nothing is bound, and `missing` says why.
 * EINVAL: the local rank does not add up, or devices do not go round (the same on every rank of the machine); *place then holds what could be found. */
KvgStatus kvg_rank_place_among(const RankTopology *topology, const char *missing, const RankSeat *seats, int ranks, int me, const LocalRankSources *local,
                               const RankAsk *ask, RankPlace *place);

/* Both, over the bootstrap, and binds. `seat` has this rank's devices. seats [ranks] gets everybody's; the caller's. Reach: collective. EINVAL as above, or what
 * the all-gather says. */
KvgStatus kvg_rank_place(const KvgBootstrap *bootstrap, uint32_t timeout_ms, const RankAsk *ask, RankSeat *seat, RankSeat *seats, RankPlace *place);

int kvg_rank_same_machine(const RankSeat *left, const RankSeat *right);

#endif

/* Gather carrier: records by one all-gather a step, on a stream of their own. Private; the state machine alone, so that it is tested without a GPU.
 *
 *   posted >= started >= launched >= arrived >= given        steps, counted; step n uses place n mod places
 *
 * Every rank posts its steps in one order, so the nth all-gather is the nth step's. The next one starts once the one before it is launched: a
 * non-blocking communicator may take a while to put it on the stream, and neither the communicator nor the stream may be touched meanwhile. */
#ifndef KVG_COMM_GATHER_H
#define KVG_COMM_GATHER_H

#include "kernels/comm_carried.h"

/* Host memory that records start from and arrive in. */
typedef struct KvGatherPlaces {
    uint8_t *own; /* [places][stride] */
    uint8_t *all; /* [places][ranks][stride] */
} KvGatherPlaces;

typedef struct KvGatherActs {
    KvgStatus (*open)(void *user, size_t stride, uint32_t places, KvGatherPlaces *memory);
    KvgStatus (*start)(void *user, uint32_t place);
    KvgStatus (*launched)(void *user, uint32_t place, int *yes);
    KvgStatus (*arrived)(void *user, uint32_t place, int *yes); /* all ranks' records of the place are in `all` */
    void (*stop)(void *user);  /* nothing runs when it returns; at most once */
    void (*close)(void *user); /* frees the memory, too */
} KvGatherActs;

typedef struct KvGatherOptions {
    const char         *name;
    int                 rank, ranks;
    uint32_t            places; /* at least 2W: a rank may be W steps ahead in deciding and W more in posting */
    const KvGatherActs *acts;
    void               *user;
} KvGatherOptions;

/* ENOMEM. On success acts and user are taken over. */
KvgStatus kvg_comm_gather(const KvCarriedOptions *carried, const KvGatherOptions *options, KvComm *comm);

#endif

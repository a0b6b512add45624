/* Waiting at one end of a comm between processes, for suites of any transport. */
#ifndef TESTS_SUPPORT_COMM_WAIT_H
#define TESTS_SUPPORT_COMM_WAIT_H

#include <kvgrid/comm.h>

#include "tests/support/fork_bootstrap.h"

#define COMM_WAIT_NS UINT64_C(15000000000) /* a machine may be busy with other things; ranks have 20 s in all */

static inline void close_both(KvComm *comm, KvLiveness *live)
{
    comm->ops->close(comm->self);
    live->ops->close(live->self);
}

/* The next record of any peer within COMM_WAIT_NS; NULL after. */
static inline const uint64_t *await_record(KvComm *comm, int *peer)
{
    uint64_t begin = comm->ops->now_ns(comm->self);

    for (uint64_t rounds = 0; comm->ops->now_ns(comm->self) - begin < COMM_WAIT_NS; rounds++) {
        const uint64_t *record = comm->ops->take(comm->self, peer);

        if (record != NULL) {
            return record;
        }
        comm->ops->relax(comm->self, rounds);
    }
    return NULL;
}

/* The next message likewise; 0 after, or when it failed. */
static inline int await_message(KvComm *comm, int *peer, const void **bytes, size_t *byte_count)
{
    uint64_t begin = comm->ops->now_ns(comm->self);

    for (uint64_t rounds = 0; comm->ops->now_ns(comm->self) - begin < COMM_WAIT_NS; rounds++) {
        if (comm->ops->recv(comm->self, peer, bytes, byte_count) != KVG_OK) {
            return 0;
        }
        if (*peer >= 0) {
            return 1;
        }
        comm->ops->relax(comm->self, rounds);
    }
    return 0;
}

/* Seconds until `peer` is lost, polling; negative when it is not within `limit`. */
static inline double await_loss(KvLiveness *live, int peer, double limit)
{
    double begin = fork_seconds();

    while (!live->ops->lost(live->self, peer)) {
        if (fork_seconds() - begin > limit) {
            return -1;
        }
        live->ops->poll(live->self);
        fork_sleep_ms(1);
    }
    return fork_seconds() - begin;
}

#endif

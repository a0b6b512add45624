/* MPI comm: the ends of a KvComm over a duplicate of the caller's communicator. */
#include <string.h>

#include <kvgrid/kvgrid_mpi.h>

#include "launch/mpi/comm_internal.h"
#include "launch/mpi/mpi_util.h"
#include "runtime/base/memory.h"
#include "runtime/comm/clock.h"

#define CLOSE_FLUSH_NS 200000000u /* what is in flight has this long to end */

static KvgStatus mpi_send(void *self, int peer, const void *bytes, size_t byte_count)
{
    return kvg_mpi_messages_send(self, peer, bytes, byte_count);
}

static KvgStatus mpi_recv(void *self, int *peer, const void **bytes, size_t *byte_count)
{
    return kvg_mpi_messages_recv(self, peer, bytes, byte_count);
}

static KvgStatus mpi_records_open(void *self, size_t record_bytes)
{
    return kvg_mpi_records_open(self, record_bytes);
}

static KvgStatus mpi_post(void *self, const void *record)
{
    return kvg_mpi_records_post(self, record);
}

static const void *mpi_take(void *self, int *peer)
{
    return kvg_mpi_records_take(self, peer);
}

static uint64_t mpi_now_ns(void *self)
{
    (void)self;
    return kvg_clock_ns();
}

static void mpi_relax(void *self, uint64_t rounds)
{
    (void)self;
    kvg_clock_relax(rounds);
}

/* Frees the communicator only when nothing of ours is in flight on it: a request to a dead rank never ends. */
static void mpi_close(void *user)
{
    MpiComm *self = user;

    if (!kvg_mpi_is_over()) {
        uint64_t deadline_ns = kvg_clock_ns() + CLOSE_FLUSH_NS;
        int      done = kvg_mpi_messages_close(self, deadline_ns);

        done &= kvg_mpi_records_close(self, deadline_ns);
        if (done) {
            MPI_Comm_free(&self->comm);
        }
    }
    kvg_free(self);
}

static const KvCommOps mpi_comm_ops = {
    .name = "mpi",
    .send = mpi_send,
    .recv = mpi_recv,
    .records_open = mpi_records_open,
    .post = mpi_post,
    .take = mpi_take,
    .now_ns = mpi_now_ns,
    .relax = mpi_relax,
    .close = mpi_close,
};

KvgStatus kvg_mpi_comm_create(MPI_Comm communicator, KvComm *comm)
{
    if (comm == NULL) {
        return kvg_fail(KVG_EINVAL, "MPI comm: no place for it was given");
    }
    KVG_TRY(kvg_mpi_check(communicator, "MPI comm"));
    MpiComm *self = NULL;
    KVG_TRY(KVG_NEW(1, "an MPI comm", &self));

    self->messages.matched = MPI_MESSAGE_NULL;
    self->records.lent = -1;
    KvgStatus status = kvg_mpi_duplicate(communicator, &self->comm);

    if (status != KVG_OK) {
        if (status != KVG_EINDOUBT) { /* in doubt MPI may still write to self->comm */
            kvg_free(self);
        }
        return status;
    }
    MPI_Comm_rank(self->comm, &self->rank);
    MPI_Comm_size(self->comm, &self->ranks);
    *comm = (KvComm){ .ops = &mpi_comm_ops, .self = self, .rank = self->rank, .size = self->ranks };
    return KVG_OK;
}

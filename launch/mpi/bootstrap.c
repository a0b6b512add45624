/* Bootstrap over MPI: an all-gather of point-to-point messages.
 *
 * Not MPI_Iallgather: a collective request can neither be cancelled nor say who did not come. Here each rank sends its
 * bytes to every other and receives from each by name; at the deadline the receives are cancelled and the silent ranks
 * are listed. The tag counts the all-gathers, so that what a late rank sends to an abandoned one meets no later one. */
#include <stdio.h>
#include <string.h>

#include <kvgrid/kvgrid_mpi.h>

#include "launch/mpi/mpi_util.h"
#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/comm/clock.h"

#define TAG_ROUNDS  30000 /* tags up to 32767 exist in every MPI */
#define SEND_END_NS 200000000u

typedef struct MpiBootstrap {
    MPI_Comm comm;
    int      rank, ranks;
    int      round; /* tag of the next all-gather */
} MpiBootstrap;

/* One all-gather in flight; its buffers are its own, since requests may outlive the call. */
typedef struct Gather {
    MPI_Request *receives, *sends; /* [ranks] */
    uint8_t     *mine;             /* [bytes] */
    uint8_t     *all;              /* [ranks][bytes] */
    int         *missing;          /* [ranks] */
} Gather;

static void gather_free(Gather *gather)
{
    kvg_free(gather->receives);
    kvg_free(gather->sends);
    kvg_free(gather->mine);
    kvg_free(gather->all);
    kvg_free(gather->missing);
}

static KvgStatus gather_new(size_t ranks, const void *mine, size_t bytes, Gather *gather)
{
    KvgStatus status = KVG_OK;
    void     *memory = NULL;
    uint64_t  all_bytes = 0;

    *gather = (Gather){ 0 };
    if (bytes > INT32_MAX || !kvg_mul_u64(ranks, bytes, &all_bytes)) {
        return kvg_fail(KVG_EOVERFLOW, "MPI bootstrap: an all-gather of %zu bytes a rank; at most %d", bytes, INT32_MAX);
    }
    KVG_TRY_GOTO(KVG_NEW(ranks, "an all-gather", &gather->receives), err_free);
    KVG_TRY_GOTO(KVG_NEW(ranks, "an all-gather", &gather->sends), err_free);
    KVG_TRY_GOTO(kvg_calloc(1, bytes, "an all-gather", &memory), err_free);
    gather->mine = memory;
    KVG_TRY_GOTO(kvg_calloc(1, (size_t)all_bytes, "an all-gather", &memory), err_free);
    gather->all = memory;
    KVG_TRY_GOTO(KVG_NEW(ranks, "an all-gather", &gather->missing), err_free);
    for (size_t rank = 0; rank < ranks; rank++) {
        gather->receives[rank] = gather->sends[rank] = MPI_REQUEST_NULL;
    }
    if (bytes > 0) {
        memcpy(gather->mine, mine, bytes);
    }
    return KVG_OK;
err_free:
    gather_free(gather);
    return status;
}

static KvgStatus gather_post(const MpiBootstrap *self, Gather *gather, size_t bytes)
{
    for (int step = 1; step < self->ranks; step++) { /* each begins with its own neighbours, not all with rank 0 */
        int source = (self->rank - step + self->ranks) % self->ranks, target = (self->rank + step) % self->ranks;

        KVG_MPI_TRY(MPI_Irecv(gather->all + (size_t)source * bytes, (int)bytes, MPI_BYTE, source, self->round, self->comm,
                              &gather->receives[source]), "MPI bootstrap");
        KVG_MPI_TRY(MPI_Isend(gather->mine, (int)bytes, MPI_BYTE, target, self->round, self->comm, &gather->sends[target]),
                    "MPI bootstrap");
    }
    return KVG_OK;
}

/* Waits for every receive; *missing_count ranks are listed in gather->missing at the deadline. */
static KvgStatus gather_wait(const MpiBootstrap *self, Gather *gather, uint64_t deadline_ns, int *missing_count)
{
    for (uint64_t rounds = 0;; rounds++) {
        *missing_count = 0;
        for (int rank = 0; rank < self->ranks; rank++) {
            int flag = 1;

            if (gather->receives[rank] != MPI_REQUEST_NULL) {
                KVG_MPI_TRY(MPI_Test(&gather->receives[rank], &flag, MPI_STATUS_IGNORE), "MPI bootstrap, receiving");
            }
            if (!flag) {
                gather->missing[(*missing_count)++] = rank;
            }
        }
        if (*missing_count == 0 || kvg_clock_ns() >= deadline_ns) {
            return KVG_OK;
        }
        kvg_clock_relax(rounds);
    }
}

static KvgStatus fail_missing(const MpiBootstrap *self, const Gather *gather, int missing_count, uint32_t timeout_ms)
{
    char   names[160] = "";
    size_t used = 0;

    for (int i = 0; i < missing_count && used + 16 < sizeof names; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%d", i > 0 ? ", " : "", gather->missing[i]);
    }
    return kvg_fail(KVG_EINDOUBT, "MPI bootstrap: rank %s of %d did not call in to rank %d within %u ms; every rank must create the grid",
                    names, self->ranks, self->rank, timeout_ms);
}

/* Ends what is still in flight. 1: nothing is left and the buffers may go. */
static int gather_end(const MpiBootstrap *self, Gather *gather)
{
    uint64_t deadline_ns = kvg_clock_ns() + SEND_END_NS;
    int      done;

    for (int rank = 0; rank < self->ranks; rank++) {
        if (gather->receives[rank] != MPI_REQUEST_NULL) {
            MPI_Cancel(&gather->receives[rank]);
        }
    }
    done = kvg_mpi_settle(self->ranks, gather->receives, deadline_ns);
    done &= kvg_mpi_settle(self->ranks, gather->sends, deadline_ns);
    for (int rank = 0; !done && rank < self->ranks; rank++) {
        if (gather->receives[rank] != MPI_REQUEST_NULL) {
            MPI_Request_free(&gather->receives[rank]);
        }
        if (gather->sends[rank] != MPI_REQUEST_NULL) {
            MPI_Request_free(&gather->sends[rank]);
        }
    }
    return done;
}

static KvgStatus mpi_allgather(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    MpiBootstrap *self = user;
    Gather        gather;
    uint64_t      deadline_ns = kvg_clock_ns() + (uint64_t)timeout_ms * 1000000u;
    int           missing_count = 0;

    KVG_TRY(gather_new((size_t)self->ranks, mine, bytes, &gather));
    KvgStatus status = gather_post(self, &gather, bytes);

    if (status == KVG_OK) {
        status = gather_wait(self, &gather, deadline_ns, &missing_count);
    }
    if (status == KVG_OK && missing_count > 0) {
        status = fail_missing(self, &gather, missing_count, timeout_ms);
    }
    self->round = (self->round + 1) % TAG_ROUNDS;
    if (status == KVG_OK) {
        memcpy(gather.all + (size_t)self->rank * bytes, gather.mine, bytes);
        memcpy(all, gather.all, (size_t)self->ranks * bytes);
    }
    if (gather_end(self, &gather)) {
        gather_free(&gather);
    } /* else MPI may still read or write them: they stay */
    return status;
}

KvgStatus kvg_mpi_bootstrap(MPI_Comm communicator, KvgBootstrap *bootstrap)
{
    if (bootstrap == NULL) {
        return kvg_fail(KVG_EINVAL, "MPI bootstrap: no place for it was given");
    }
    KVG_TRY(kvg_mpi_check(communicator, "MPI bootstrap"));
    MpiBootstrap *self = NULL;
    KVG_TRY(KVG_NEW(1, "an MPI bootstrap", &self));
    KvgStatus     status = kvg_mpi_duplicate(communicator, &self->comm);

    if (status != KVG_OK) {
        if (status != KVG_EINDOUBT) { /* in doubt MPI may still write to self->comm */
            kvg_free(self);
        }
        return status;
    }
    MPI_Comm_rank(self->comm, &self->rank);
    MPI_Comm_size(self->comm, &self->ranks);
    *bootstrap = (KvgBootstrap)KVG_BOOTSTRAP_INIT;
    bootstrap->user = self;
    bootstrap->rank = self->rank;
    bootstrap->ranks = self->ranks;
    bootstrap->allgather = mpi_allgather;
    return KVG_OK;
}

void kvg_mpi_bootstrap_free(KvgBootstrap *bootstrap)
{
    if (bootstrap == NULL || bootstrap->user == NULL) {
        return;
    }
    MpiBootstrap *self = bootstrap->user;

    if (!kvg_mpi_is_over()) {
        MPI_Comm_free(&self->comm);
    }
    kvg_free(self);
    *bootstrap = (KvgBootstrap)KVG_BOOTSTRAP_INIT;
}

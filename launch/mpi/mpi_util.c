#include "launch/mpi/mpi_util.h"

#include <kvgrid/policy.h>

#include "runtime/base/error.h"
#include "runtime/comm/clock.h"

#define TIMEOUT_MS_DEFAULT 30000u

KvgStatus kvg_mpi_fail(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int  length = 0;

    MPI_Error_string(code, text, &length);
    return kvg_fail(KVG_EIO, "%s: MPI says \"%s\" (code %d)", what, text, code);
}

KvgStatus kvg_mpi_check(MPI_Comm communicator, const char *what)
{
    int begun = 0, over = 0, inter = 0;

    MPI_Initialized(&begun);
    MPI_Finalized(&over);
    if (!begun || over) {
        return kvg_fail(KVG_EINVAL, "%s: MPI is %s; call it between MPI_Init and MPI_Finalize", what,
                        over ? "finalised" : "not initialised");
    }
    if (communicator == MPI_COMM_NULL) {
        return kvg_fail(KVG_EINVAL, "%s: the communicator is MPI_COMM_NULL; this process is not in it", what);
    }
    KVG_MPI_TRY(MPI_Comm_test_inter(communicator, &inter), what);
    if (inter) {
        return kvg_fail(KVG_EINVAL, "%s: an inter-communicator; merge it first (MPI_Intercomm_merge)", what);
    }
    return KVG_OK;
}

static uint64_t timeout_ns(void)
{
    const KvgPolicy *policy = NULL;
    uint64_t         ms = kvg_policy_process(&policy) == KVG_OK ? policy->timeout_ms : TIMEOUT_MS_DEFAULT;

    return ms * 1000000u;
}

KvgStatus kvg_mpi_duplicate(MPI_Comm communicator, MPI_Comm *copy)
{
    MPI_Request request = MPI_REQUEST_NULL;
    uint64_t    deadline_ns = kvg_clock_ns() + timeout_ns();

    KVG_MPI_TRY(MPI_Comm_idup(communicator, copy, &request), "duplicating the communicator");
    if (!kvg_mpi_settle(1, &request, deadline_ns)) {
        return kvg_fail(KVG_EINDOUBT, "duplicating the communicator: not all of its ranks called in within KVGRID_TIMEOUT_MS; "
                                      "every rank must create the grid");
    }
    KVG_MPI_TRY(MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN), "setting the error handler");
    return KVG_OK;
}

int kvg_mpi_is_over(void)
{
    int over = 0;

    MPI_Finalized(&over);
    return over;
}

int kvg_mpi_settle(int count, MPI_Request *requests, uint64_t deadline_ns)
{
    for (uint64_t rounds = 0;; rounds++) {
        int done = 1;

        for (int i = 0; i < count; i++) { /* one by one: an error in one says nothing about the others */
            int flag = 1;

            if (requests[i] != MPI_REQUEST_NULL && MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
                flag = 1;
            }
            done &= flag;
        }
        if (done || kvg_clock_ns() >= deadline_ns) {
            return done;
        }
        kvg_clock_relax(rounds);
    }
}

/* MPI, the parts that bootstrap and comm share: errors as sentences, a duplicate within a deadline. Private. */
#ifndef KVG_MPI_UTIL_H
#define KVG_MPI_UTIL_H

#include <mpi.h>
#include <stdint.h>

#include <kvgrid/status.h>

/* EIO with what MPI says about `code`. */
KvgStatus kvg_mpi_fail(int code, const char *what);

/* Like KVG_TRY, for a call that returns an MPI code. */
#define KVG_MPI_TRY(call, what)                                                     \
    do {                                                                            \
        int kvg_code_ = (call);                                                     \
        if (kvg_code_ != MPI_SUCCESS) return kvg_mpi_fail(kvg_code_, (what));       \
    } while (0)

/* EINVAL unless MPI is initialised and not finalised, and `communicator` is an intra-communicator. */
KvgStatus kvg_mpi_check(MPI_Comm communicator, const char *what);

/* Duplicates `communicator` with errors returned, within the policy's timeout (collective). `copy` lives in memory that
 * the caller keeps for good when EINDOUBT comes back: MPI may still write to it, a collective cannot be cancelled. */
KvgStatus kvg_mpi_duplicate(MPI_Comm communicator, MPI_Comm *copy);

/* 1 once MPI_Finalize has been called: nothing of MPI may be touched any more. */
int kvg_mpi_is_over(void);

/* Tests up to `count` requests until all are done or `deadline_ns` passes. 1: all done. A request that failed is done. */
int kvg_mpi_settle(int count, MPI_Request *requests, uint64_t deadline_ns);

#endif

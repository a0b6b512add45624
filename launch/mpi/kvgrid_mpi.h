/** The MPI side of kvgrid: a bootstrap and a point-to-point transport over a communicator. A second small library;
 * the first one has no MPI in it.
 *
 * Polite guest: the caller initialises and finalises MPI; the communicator is duplicated, errors are returned, nothing
 * blocks: a collective request could not be cancelled, so records go by MPI_Isend, MPI_Irecv and MPI_Test.
 * Threads: one at a time per comm; MPI_THREAD_SINGLE is enough if that is the main thread. */
#ifndef KVGRID_MPI_H
#define KVGRID_MPI_H

#include <mpi.h>

#include <kvgrid/bootstrap.h>
#include <kvgrid/comm.h>

KVG_BEGIN_DECLS

/** Fills a bootstrap over a duplicate of `communicator`; freed by kvg_mpi_bootstrap_free. Reach: setup (collective). */
KVG_API KvgStatus kvg_mpi_bootstrap(MPI_Comm communicator, KvgBootstrap *bootstrap);
KVG_API void      kvg_mpi_bootstrap_free(KvgBootstrap *bootstrap);

/** A KvComm over another duplicate of `communicator`. Reach: setup (collective). Close it by ops->close before MPI_Finalize. */
KVG_API KvgStatus kvg_mpi_comm_create(MPI_Comm communicator, KvComm *comm);

KVG_END_DECLS
#endif

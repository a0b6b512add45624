/** The MPI side of kvgrid: a bootstrap and a point-to-point transport over a communicator. A second small library;
 * the first one has no MPI in it.
 *
 * Polite guest: the caller initialises and finalises MPI; the communicator is duplicated, errors are returned, nothing
 * blocks: a collective request could not be cancelled, so records go by MPI_Isend, MPI_Irecv and MPI_Test.
 * After a loss (mpirun --enable-recovery, or whatever else lets the others live): kvg_grid_rebuild with no bootstrap needs no MPI call of yours. With
 * newcomers, make a communicator of the survivors and them by MPI_Comm_create_group, which none but those call, in the order of the grid's ranks, and give
 * its bootstrap and comm to kvg_grid_rebuild and kvg_grid_join. No collective on a communicator in which the dead rank is: MPI_Comm_split, MPI_Comm_dup and
 * this header's own calls on it never end.
 * Threads: one at a time per comm; MPI_THREAD_SINGLE is enough if that is the main thread. */
#ifndef KVGRID_MPI_H
#define KVGRID_MPI_H

#include <mpi.h>

#include <kvgrid/bootstrap.h>
#include <kvgrid/comm.h>

KVG_BEGIN_DECLS

/** Fills a bootstrap over a duplicate of `communicator`; freed by kvg_mpi_bootstrap_free. Reach: setup (collective).
 *  Its all-gather goes point to point, so that it names the ranks that did not call in by its deadline; a rank that calls
 *  in late still completes the same round. A send that a rank never takes keeps its small buffer for good.
 *  EINVAL outside MPI_Init and MPI_Finalize, for MPI_COMM_NULL and inter-communicators; EINDOUBT when not all ranks call
 *  in within KVGRID_TIMEOUT_MS; EIO with what MPI says. */
KVG_API KvgStatus kvg_mpi_bootstrap(MPI_Comm communicator, KvgBootstrap *bootstrap);
/** Call it before MPI_Finalize; NULL, and a bootstrap freed already, are allowed. */
KVG_API void      kvg_mpi_bootstrap_free(KvgBootstrap *bootstrap);

/** A KvComm over another duplicate of `communicator`. Reach: setup (collective). Close it by ops->close before MPI_Finalize.
 *  A message is at most 2^31 - 1 bytes. What is in flight to a dead rank at close keeps its buffers and the duplicate.
 *  Errors as for kvg_mpi_bootstrap. */
KVG_API KvgStatus kvg_mpi_comm_create(MPI_Comm communicator, KvComm *comm);

KVG_END_DECLS
#endif

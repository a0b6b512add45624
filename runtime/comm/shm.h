/** Shared memory of one host: a bootstrap for processes that one launcher starts, and a transport for records and messages.
 *
 * The memory has no name in any file system: it is a sealed memfd that the ranks inherit (`fd`), or that rank 0 hands to those who call at an
 * abstract Unix socket (`name`), which the kernel forgets with its process. So nothing is left in /dev/shm or anywhere else, however and whenever
 * ranks are killed, no segment of a dead owner can be met, and no other user can open it: a caller or an owner of another uid is refused by name.
 *
 *   a launcher that forks                              processes that know a name
 *   kvg_shm_memory(ranks, &fd)                         options.name = "engine-4711"
 *   fork; in each worker:                              options.rank, options.ranks
 *   options.fd = fd, rank, ranks                       kvg_shm_bootstrap_create(&options, &bootstrap)
 *   kvg_shm_bootstrap_create(&options, &bootstrap)
 *   kvg_grid_create(&bootstrap, ...)                   kvg_grid_create(&bootstrap, ...)
 *
 * A grid over this bootstrap takes the shared memory for its records too, unless its options bring a comm. A grid over another bootstrap whose ranks are
 * all on one host can: kvg_comm_shm_create, then options.comm and options.liveness.
 * Needs one pid name space (a death is seen by pidfd, Linux 5.3), one network name space for the hand-over, and one uid: ENOTSUP or EINVAL say which.
 * A rank that is stopped is silent; one that dies, or closes, is lost within a millisecond or two of a poll.
 * Threads: one at a time per object. */
#ifndef KVG_SHM_H
#define KVG_SHM_H

#include <kvgrid/bootstrap.h>
#include <kvgrid/comm.h>

KVG_BEGIN_DECLS

#define KVG_SHM_RANKS_MAX 1024
#define KVG_SHM_BYTES_MAX ((size_t)64 << 20) /* of one all-gather, a rank */

typedef struct KvShmOptions {
    size_t      size;       /* set by KVG_SHM_OPTIONS_INIT */
    const char *name;       /* 1 to 64 letters, digits, '-', '_', '.': where rank 0 waits for the others. NULL: fd is used */
    int         fd;         /* of kvg_shm_memory, inherited; stays the caller's. -1: name is used */
    int         rank, ranks; /* 1 .. KVG_SHM_RANKS_MAX */
    uint32_t    timeout_ms; /* until all ranks are here; 0: 30000 */
} KvShmOptions;

#define KVG_SHM_OPTIONS_INIT { sizeof(KvShmOptions), NULL, -1, 0, 1, 0 }

/** The memory of a bootstrap of `ranks` ranks, before they are forked: *fd is closed on exec (clear that to pass it on) and is the caller's. Serves one set of
 *  processes: ranks that died are not replaced in it. Reach: local. EINVAL; ENOTSUP no memfd; EIO; ENOMEM. */
KVG_API KvgStatus kvg_shm_memory(int ranks, int *fd);
/** Returns when all ranks are here. EINVAL, also for a rank that is taken, a name that another holds, a memory for another number of ranks; EPEER a rank is gone
 *  or left, named; EINDOUBT at the deadline, naming who is missing; ENOTSUP; EIO; ENOMEM. Reach: setup. */
KVG_API KvgStatus kvg_shm_bootstrap_create(const KvShmOptions *options, KvgBootstrap *bootstrap);
/** Leaves: the others' all-gathers fail with EPEER. Grids that were made over it live on. One that is not set up, or NULL, is allowed. Reach: local. */
KVG_API void kvg_shm_bootstrap_destroy(KvgBootstrap *bootstrap);

typedef struct KvShmCommOptions {
    size_t   size;        /* set by KVG_SHM_COMM_OPTIONS_INIT */
    uint32_t timeout_ms;  /* longest set-up; 0: 30000 */
    uint32_t lane_bytes;  /* of each lane; power of two from 4096 to 16 MiB; 0: 65536. The memory has 2 * ranks * (ranks-1) lanes and is taken as it is used */
    size_t   message_max; /* larger messages are refused on both sides; 0: 256 MiB */
} KvShmCommOptions;

#define KVG_SHM_COMM_OPTIONS_INIT { sizeof(KvShmCommOptions), 0, 0, 0 }

/** A comm and a liveness over shared memory, for ranks of one host, over any bootstrap. Each ordered pair has a lane for records and one for messages:
 *  one writer, one reader, no lock, no system call. A full lane makes the writer queue, as a full socket does. Options are the same on all ranks (ELAYOUT).
 *  What fails on one rank is told to all, so that they leave together. Close the comm and the liveness, in any order.
 *  EINVAL; ELAYOUT other options; ENOTSUP not one host, pid name space or uid, naming the rank; EPEER; EINDOUBT; EIO; ENOMEM. Reach: setup. */
KVG_API KvgStatus kvg_comm_shm_create(const KvgBootstrap *bootstrap, const KvShmCommOptions *options, KvComm *comm, KvLiveness *liveness);

KVG_END_DECLS
#endif

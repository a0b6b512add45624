/** Comms over NCCL: records of votes between GPUs, for grids whose hosts drive the steps. For programs that link kvgrid_nccl.
 *
 *   kvg_comm_nccl_create        records by ncclAllGather, one a step, on a stream of their own; works between any GPUs that NCCL connects
 *   kvg_comm_nccl_board_create  records over a board in a window (kvgrid_comm_board.h), between GPUs that reach each other's memory; made by exactly
 *                               the NCCL that is loaded, else ENOTSUP
 *
 * Both are slower than an MPI record between ranks of one host, since each is a kernel's launch and the host's look at what came of it: they are for
 * machines where nothing faster than NCCL goes between the ranks, and for boards that captured runs vote on as well.
 *
 * Each has a communicator of its own (non-blocking for all-gathers; blocking for a board, since no other has a device API), split off the caller's or
 * made from an id that the bootstrap spreads. It alone is ever aborted: when a peer is lost, or silent for as long as a vote waits, while an all-gather
 * hangs; when the grid has settled; and at close, which waits for nobody. From then on records go by the base comm, and a log line says so; the step
 * goes in doubt as with any comm, and settling, which speaks by messages, is the base's all along.
 * All-gathers are never captured. As NCCL has it, an engine that runs other communicators on the same GPU launches in one order on all ranks, or sets
 * NCCL_LAUNCH_ORDER_IMPLICIT=1, and calls NCCL from one thread at a time.
 * NCCL is looked up when first asked for (the process's own, else the one compiled against, else what the loader finds): a program that links this
 * starts without it.
 * Threads: as any comm; the calling thread's current device is set by records_open, post, take and close, and left so. */
#ifndef KVG_KVGRID_COMM_NCCL_H
#define KVG_KVGRID_COMM_NCCL_H

#include <kvgrid/bootstrap.h>
#include <kvgrid/comm.h>

KVG_BEGIN_DECLS

struct ncclComm;

typedef struct KvNcclCommOptions {
    size_t            size;          /* set by KVG_NCCL_COMM_OPTIONS_INIT */
    int               device;        /* ordinal as CUDA counts; each rank of a machine its own */
    struct ncclComm  *parent;        /* split, with nothing outstanding on it and the bootstrap's rank numbers; NULL: a new communicator */
    const KvComm     *base;          /* of the same ranks; taken over on success */
    const KvLiveness *liveness;      /* of the same ranks, outlives the comm; NULL: only the deadline ends an all-gather that hangs */
    uint32_t          timeout_ms;    /* KVGRID_TIMEOUT_MS of the grid: what ends an all-gather that hangs. 0: 30000 */
    uint32_t          setup_ms;      /* bounds each wait of set-up: a communicator takes a second or more. 0: 30000 */
    uint32_t          window_steps;  /* W, undecided steps at most; 0: 2 a stage */
    uint32_t          tp;            /* ranks a stage; 0: all */
    uint32_t          sequences_max; /* of a board: at least max_step_sequences */
    uint32_t          epoch;         /* the grid's when it is made. 0: 1, a new grid's */
} KvNcclCommOptions;
#define KVG_NCCL_COMM_OPTIONS_INIT { sizeof(KvNcclCommOptions), 0, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0 }

/** What fails on one rank is told to all, so that none has a comm or all have one. Reach: setup (collective over the bootstrap, bounded).
 *  ENOTSUP no NCCL, no GPU, or ranks that cannot reach each other, by name; EINVAL two ranks on one GPU, another rank count than the base's; EPEER,
 *  EINDOUBT not all ranks came; ENOMEM, EDEVICE. */
KVG_API KvgStatus kvg_comm_nccl_create(const KvgBootstrap *bootstrap, const KvNcclCommOptions *options, KvComm *comm);
KVG_API KvgStatus kvg_comm_nccl_board_create(const KvgBootstrap *bootstrap, const KvNcclCommOptions *options, KvComm *comm);

/** The NCCL that this was compiled against and the one that is loaded, as NCCL numbers them (22809 is 2.28.9). ENOTSUP: none can be loaded. */
KVG_API KvgStatus kvg_nccl_versions(int *compiled, int *loaded);

KVG_END_DECLS
#endif

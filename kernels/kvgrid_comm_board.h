/** Board comm: a KvComm whose records go over a device vote's board (device_vote.h), for steps that the host drives. For programs that link kvgrid_cuda.
 *
 * Posting launches one small kernel that stores the record into every rank's block; taking launches copies of the own block's slots into pinned memory,
 * and looks at them once an event says that they are there. So no kernel waits for a peer, neither on a compute stream nor on any other, and
 * the host decides by its pure function as with any comm. Both go on a stream of its own, never one that is captured.
 *
 * Messages, the clock and, from the first fault on, records are a base comm's (MPI, the socket mesh): when a launch fails here, and from the first
 * settle on. A log line says so. Liveness is not a comm's matter: the base's grid keeps its own.
 * A board can serve captured runs, whose kernels vote on it themselves, at the same time: a step number is one step.
 * Threads: as any comm; the calling thread's current device is set by records_open, post, take and close, and left so. */
#ifndef KVG_KVGRID_COMM_BOARD_H
#define KVG_KVGRID_COMM_BOARD_H

#include <kvgrid/comm.h>
#include <kvgrid/device_vote.h>

KVG_BEGIN_DECLS

typedef struct KvCommBoardOptions {
    size_t        size;   /* set by KVG_COMM_BOARD_OPTIONS_INIT */
    int           device; /* ordinal as CUDA counts: the one that the board is mapped on */
    const KvComm *base;   /* of the same ranks; taken over on success */
    uint32_t      epoch;  /* the grid's when it is made: later records go by the base. 0: 1, a new grid's */
    /* Called when the comm is closed and its last kernel has ended: the board may go. NULL: it outlives the comm by the caller's doing. */
    void (*release)(void *user);
    void *user;
} KvCommBoardOptions;
#define KVG_COMM_BOARD_OPTIONS_INIT { sizeof(KvCommBoardOptions), 0, NULL, 0, NULL, NULL }

/** board  copied; sequences_max at least the placement's max_step_sequences, slots of at least 2W steps (kvg_vote_slots)
 *  EINVAL: other ranks than the base's; ENOTSUP: no such device, or one that this build has no code for; ENOMEM, EDEVICE. Reach: local. */
KVG_API KvgStatus kvg_comm_board_create(const KvVoteBoard *board, const KvCommBoardOptions *options, KvComm *comm);

/** 1 while records of a comm of this header's or of kvgrid_comm_nccl.h's go over devices. 0 when they go by the base, or it is another comm; `why` (cut to
 *  `bytes`; NULL is allowed) then says since what, "" for another comm. Reach: local. */
KVG_API int kvg_comm_on_devices(const KvComm *comm, char *why, size_t bytes);

KVG_END_DECLS
#endif

/* Process: who a rank of this host is, and whether it still lives. Private.
 *
 * A pid is used again after its process, so it goes with the moment that the process began; a pidfd, once opened and compared with that, is the
 * process and no other. It tells of the death of a process that nobody has waited for, and of one whose children hold its sockets open. */
#ifndef KVG_PROCESS_H
#define KVG_PROCESS_H

#include "runtime/comm/mesh_internal.h"

typedef struct KvProcess { /* crosses all-gathers */
    MeshIdentity who;       /* host, boot, network name space, pid */
    uint64_t     began;     /* clock ticks after the boot */
    uint64_t     pid_space; /* the pid name space */
    uint32_t     uid;
    uint32_t     reserved;
} KvProcess;
_Static_assert(sizeof(KvProcess) == sizeof(MeshIdentity) + 24, "crosses all-gathers: no padding");

KvgStatus kvg_process_self(KvProcess *self);
/* Whether the two can share memory and watch each other; ENOTSUP says what differs. */
KvgStatus kvg_process_near(const KvProcess *a, int rank_a, const KvProcess *b, int rank_b);
/* *fd becomes readable when the process ends. EPEER it has; ENOTSUP no pidfds here; EIO. `rank` is for the sentence. */
KvgStatus kvg_process_open(const KvProcess *process, int rank, int *fd);
/* 1 when it has ended. Never blocks. */
int kvg_process_ended(int fd);

#endif

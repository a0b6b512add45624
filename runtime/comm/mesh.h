/** Socket mesh: every rank connected to every other by one stream socket, built from the bootstrap's all-gather alone.
 *
 * Unix sockets between ranks of one host, TCP otherwise (or when asked). It is a KvComm of its own, and the KvLiveness
 * of every multi-process grid: neither MPI nor NVLink reports a death, a closed socket does. Frames are length-prefixed
 * and bounded; a malformed frame closes that connection with a reason.
 * Nothing is left in a file system, sockets are closed on exec; a child that is forked and does not exec holds them open,
 * and then the death of its parent goes unseen.
 * Threads: one at a time. Reach: kvg_mesh_create is setup (collective, bounded by timeout_ms). */
#ifndef KVG_MESH_H
#define KVG_MESH_H

#include <kvgrid/bootstrap.h>
#include <kvgrid/comm.h>

KVG_BEGIN_DECLS

typedef struct KvMeshOptions {
    size_t      size;          /* set by KVG_MESH_OPTIONS_INIT */
    uint32_t    timeout_ms;    /* longest set-up; 0: 30000 */
    uint32_t    heartbeat_ms;  /* sign of life when nothing else is sent; 0: 100 */
    int         tcp;           /* 1: TCP even within a host */
    const char *interface;     /* TCP: where to listen, and what to tell others: the name of an interface of this host ("ib0": its first address, of
                                  IPv4 if it has one) or one of its addresses. NULL: loopback within a host, else the host name's first address
                                  that is not loopback, else the first interface's. Read before the call returns */
    size_t      message_max;   /* larger messages are refused on both sides; the least of all ranks counts; 0: 256 MiB */
} KvMeshOptions;

#define KVG_MESH_OPTIONS_INIT { sizeof(KvMeshOptions), 0, 0, 0, NULL, 0 }

/** Builds the mesh. What fails on one rank is told to all in the next all-gather, so that they leave together.
 *  One socket set serves both ends: close the comm and the liveness, in any order.
 *  A grid whose records go another way (MPI) uses the liveness alone and may close the comm end at once.
 *  EINVAL an argument, or an interface that this host does not have, listing those it has; EIO; EPEER a rank did not come; EINDOUBT the deadline
 *  passed, naming the ranks that are missing and the addresses that were tried. */
KVG_API KvgStatus kvg_mesh_create(const KvgBootstrap *bootstrap, const KvMeshOptions *options, KvComm *comm, KvLiveness *liveness);

KVG_END_DECLS
#endif

/* Shared-memory comm, inside. Private.
 *
 *   shm_setup.c   two all-gathers and the hand-over of the memory between them
 *   shm_comm.c    the comm's end: frames over lanes, queues before full ones
 *   shm_alive.c   the liveness' end: pidfds, beats, and the flag of who closes */
#ifndef KVG_SHM_INTERNAL_H
#define KVG_SHM_INTERNAL_H

#include <kvgrid/shm.h>

#include "runtime/comm/process.h"
#include "runtime/comm/shm_lane.h"

typedef enum ShmKind { SHM_RECORD = 0, SHM_MESSAGE = 1, SHM_KINDS = 2 } ShmKind;

typedef struct ShmPresence { /* shared, one a rank, written by it alone */
    _Alignas(2 * SHM_LINE) _Atomic uint32_t beats;
    _Atomic uint32_t attached;
    _Atomic uint32_t closed;
} ShmPresence;

typedef struct ShmFrame { /* waits before a full lane */
    struct ShmFrame *next;
    uint64_t         whole, done;
    int              begun;
    uint64_t         bytes[];
} ShmFrame;

typedef struct ShmWhole { /* a frame of several pieces, as they come */
    uint8_t *bytes;
    uint64_t capacity, got, whole;
    int      begun;
} ShmWhole;

typedef struct ShmPeer {
    KvProcess process;
    int       watch; /* pidfd; -1 once lost */
    int       lost;
    int       deaf;  /* it wrote what no peer writes: its lanes are no longer read */
    uint32_t  beats; /* when last looked at */
    uint64_t  sign_ns;
    char      why[224]; /* it is lost; before that, who it is */
    ShmEnd    in[SHM_KINDS], out[SHM_KINDS];
    ShmFrame *first[SHM_KINDS], *last[SHM_KINDS]; /* outgoing */
    ShmWhole  incoming[SHM_KINDS];
} ShmPeer;

typedef struct ShmComm {
    int          rank, ranks;
    int          comm_open, liveness_open;
    void        *memory;
    size_t       memory_bytes;
    ShmPresence *presence; /* [ranks] in memory */
    ShmPeer     *peers;    /* [ranks] */
    size_t       record_bytes, message_max;
    uint64_t     looked_ns;         /* when deaths were last looked for */
    int          queued;            /* frames before full lanes */
    int          turn[SHM_KINDS];   /* the peer that is asked first */
    int          lent[SHM_KINDS];   /* the peer whose piece the caller reads, until the next take or recv; -1: none */
    ShmPiece     lent_piece[SHM_KINDS];
} ShmComm;

/* ---- shm_comm.c */
void kvg_shm_ends(ShmComm *shm, KvComm *comm, KvLiveness *liveness);
/* Writes on with what is queued. */
void kvg_shm_flush(ShmComm *shm);
/* Drops what is queued for one peer. */
void kvg_shm_drop(ShmComm *shm, ShmPeer *other);
void kvg_shm_free(ShmComm *shm);

/* ---- shm_alive.c */
extern const KvLivenessOps kvg_shm_liveness_ops;
void kvg_shm_lose(ShmComm *shm, int peer, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif

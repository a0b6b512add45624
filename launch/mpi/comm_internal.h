/* MPI comm, inside: comm.c has the ends, comm_records.c and comm_messages.c the two kinds of traffic. Private. */
#ifndef KVG_MPI_COMM_INTERNAL_H
#define KVG_MPI_COMM_INTERNAL_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#include <kvgrid/status.h>

#define KVG_MPI_TAG_MESSAGE   1
#define KVG_MPI_TAG_RECORDS   2     /* plus the number of records_open calls before, so that sizes never meet */
#define KVG_MPI_TAG_SPAN      30000 /* tags up to 32767 exist in every MPI */
#define KVG_MPI_RECEIVE_DEPTH 8     /* receives posted ahead a peer; further records wait inside MPI, in order */
#define KVG_MPI_SEND_SLOTS    4     /* more are added while all are in flight */

/* One posted record: the copy that all peers are sent. */
typedef struct MpiSend {
    struct MpiSend *next; /* a ring */
    uint8_t        *bytes;
    MPI_Request     requests[]; /* [peers], persistent */
} MpiSend;

/* Records. Persistent requests: half of what an MPI_Isend and MPI_Irecv a record cost is their set-up. */
typedef struct MpiRecords {
    size_t       record_bytes; /* 0: closed */
    size_t       stride;       /* bytes from one slot to the next, so that each is aligned */
    int          opened;       /* records_open calls so far; picks the tag */
    int          peers;        /* ranks - 1 */
    int          tag;
    int         *peer_ranks;   /* [peers] */
    MPI_Request *receives;     /* [peers][DEPTH], persistent */
    MPI_Request *heads;        /* [peers] copies of the receives that come next, for MPI_Testany */
    unsigned    *head_slots;   /* [peers] */
    uint8_t     *slots;        /* [peers][DEPTH][stride] */
    int          started;      /* receives are posted */
    int          lent;         /* index of the receive whose slot the caller reads, or -1 */
    MpiSend     *next_send;    /* the ring's next slot to send from, if it is free */
    int          send_count;
} MpiRecords;

typedef struct MpiMessage {
    struct MpiMessage *next;
    MPI_Request        request;
    int                peer;
    int                done;
    size_t             byte_count;
    uint64_t           bytes[]; /* uint64_t for alignment */
} MpiMessage;

typedef struct MpiMessages {
    MpiMessage *outgoing;               /* in flight */
    MpiMessage *incoming;               /* matched, in order of arrival */
    MpiMessage *given;                  /* lent to the caller until its next recv */
    MPI_Message matched;                /* matched, but there was no memory for it; else MPI_MESSAGE_NULL */
    int         matched_peer, matched_bytes;
} MpiMessages;

typedef struct MpiComm {
    MPI_Comm    comm;
    int         rank, ranks;
    MpiRecords  records;
    MpiMessages messages;
} MpiComm;

KvgStatus   kvg_mpi_records_open(MpiComm *self, size_t record_bytes);
KvgStatus   kvg_mpi_records_post(MpiComm *self, const void *record);
const void *kvg_mpi_records_take(MpiComm *self, int *peer);
/* Ends all traffic by the deadline and frees what MPI has let go. 1: nothing is left in flight. */
int kvg_mpi_records_close(MpiComm *self, uint64_t deadline_ns);

KvgStatus kvg_mpi_messages_send(MpiComm *self, int peer, const void *bytes, size_t byte_count);
KvgStatus kvg_mpi_messages_recv(MpiComm *self, int *peer, const void **bytes, size_t *byte_count);
int       kvg_mpi_messages_close(MpiComm *self, uint64_t deadline_ns);

#endif

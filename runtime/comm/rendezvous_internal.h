/* Rendezvous, inside. Private.
 *
 *   rendezvous.c          options, the bootstrap's all-gather, the end
 *   rendezvous_wire.c     frames on a connection, proofs
 *   rendezvous_address.c  where rank 0 listens
 *   rendezvous_host.c     rank 0: guests, seats, who is turned away
 *   rendezvous_guest.c    another rank: calls until it is welcome */
#ifndef KVG_RENDEZVOUS_INTERNAL_H
#define KVG_RENDEZVOUS_INTERNAL_H

#include <netdb.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <kvgrid/rendezvous.h>

#include "runtime/comm/hmac.h"
#include "runtime/comm/mesh_internal.h"

#define RV_MAGIC       0x3152474bu /* "KGR1" */
#define RV_VERSION     1u
#define RV_HOST_BYTES  64
#define RV_NONCE_BYTES 32
#define RV_WHY_BYTES   400

/* ---- on the wire, little-endian: a header, then what its kind says */

typedef enum RvKind { RV_HELLO = 1, RV_CHALLENGE, RV_PROOF, RV_VERDICT, RV_GATHER, RV_ALL, RV_OVER, RV_KINDS } RvKind;

typedef struct RvHeader {
    uint32_t magic;
    uint32_t kind;
    uint32_t left_ms; /* RV_HELLO, RV_GATHER: its sender waits no longer than this; rank 0 tells it before that who is missing */
    uint32_t bytes;   /* that follow */
} RvHeader;
_Static_assert(sizeof(RvHeader) == 16, "crosses the wire: no padding");

typedef struct RvHello {
    uint32_t version;
    int32_t  rank, ranks; /* rank: or KVG_RENDEZVOUS_ANY_RANK */
    uint32_t reserved;
    int64_t  pid;
    char     host[RV_HOST_BYTES];
    uint8_t  nonce[RV_NONCE_BYTES];
} RvHello;
_Static_assert(sizeof(RvHello) == 120, "crosses the wire: no padding");

typedef struct RvChallenge {
    uint8_t nonce[RV_NONCE_BYTES];
} RvChallenge;

typedef struct RvProof {
    uint8_t mac[KVG_HMAC_BYTES];
} RvProof;

typedef struct RvVerdict { /* welcome, or why not */
    int32_t status; /* a KvgStatus */
    int32_t rank;
    int64_t pid; /* rank 0's */
    char    host[RV_HOST_BYTES];
    uint8_t mac[KVG_HMAC_BYTES];
    char    why[RV_WHY_BYTES];
} RvVerdict;
_Static_assert(sizeof(RvVerdict) == 16 + RV_HOST_BYTES + KVG_HMAC_BYTES + RV_WHY_BYTES, "crosses the wire: no padding");

typedef struct RvOver { /* the rendezvous has failed */
    int32_t status;
    char    why[RV_WHY_BYTES];
} RvOver;
_Static_assert(sizeof(RvOver) == 4 + RV_WHY_BYTES, "crosses the wire: no padding");

/* ---- in memory */

typedef struct RvLink { /* one connection, and the frame that is coming in */
    int      fd; /* -1: none */
    size_t   got;
    RvHeader header;
    union {
        RvHello     hello;
        RvChallenge challenge;
        RvProof     proof;
        RvVerdict   verdict;
        RvOver      over;
    } in;
} RvLink;

typedef struct RvWho { /* the other end */
    int64_t pid;
    char    host[RV_HOST_BYTES];
    char    place[KVG_MESH_PLACE_BYTES];
} RvWho;

typedef struct RvSeat { /* of another rank */
    RvLink link;
    RvWho  who;
    size_t sent;    /* of the frame that goes out */
    int    halfway; /* a part of a frame has left: nothing else can */
    int    heard;   /* its part of this all-gather is here */
} RvSeat;

typedef struct Rendezvous {
    int       rank, ranks;
    char      secret[257];
    size_t    secret_bytes;
    RvSeat   *seats; /* [ranks]; of a guest, that of rank 0 alone is used */
    KvgStatus failed; /* the first failure, which every later all-gather repeats */
    char      why[RV_WHY_BYTES];
} Rendezvous;

/* ---- rendezvous_wire.c */

typedef enum RvNews { RV_NOTHING = 0, RV_FRAME, RV_GONE, RV_MALFORMED } RvNews;

/* Reads on. `kinds`: a bit for each RvKind that may come now. The payload of RV_GATHER and RV_ALL has `bytes` bytes and goes to `payload`, others' to link->in.
 * RV_FRAME: link->header tells of it, and the next read begins another. RV_MALFORMED: link->header is what came. Never blocks. */
RvNews kvg_rv_read(RvLink *link, uint32_t kinds, void *payload, size_t bytes);
/* Sends on, of a frame of which *sent bytes have left: 1 all has left, 0 not yet, -1 the connection is over. Never blocks. */
int kvg_rv_send_on(int fd, const RvHeader *header, const void *payload, size_t *sent);
/* A small frame, which a fresh or idle connection has room for; nothing where it has not. */
void     kvg_rv_say(int fd, RvKind kind, const void *payload, size_t bytes);
/* When rank 0 must speak to one that waits no longer than left_ms from now: a little before. */
uint64_t kvg_rv_speak_by(uint32_t left_ms);
RvHeader kvg_rv_header(RvKind kind, size_t bytes);
/* Closes, once what has come is read: a close with unread bytes would take back what the other end has not read yet. */
void kvg_rv_hang_up(RvLink *link);
/* Waits until the socket has `events`, at most until the deadline. */
void kvg_rv_wait(int fd, short events, uint64_t deadline_ns);
void kvg_rv_nonce(uint8_t nonce[RV_NONCE_BYTES], KvgStatus *status);
/* What a guest (rank -1) or rank 0 (the rank it gives) proves itself by. */
void kvg_rv_prove(const Rendezvous *self, const RvHello *hello, const RvChallenge *challenge, int rank, uint8_t mac[KVG_HMAC_BYTES]);
void kvg_rv_self(int64_t *pid, char host[RV_HOST_BYTES]);

/* ---- rendezvous_address.c */

/* The addresses of "host:port"; freed by freeaddrinfo. EINVAL. */
KvgStatus kvg_rv_resolve(const char *address, struct addrinfo **list);
int       kvg_rv_is_loopback(const struct sockaddr *address);
/* Listens; refuses what is not loopback unless there is a secret. */
KvgStatus kvg_rv_listen(const char *address, int has_secret, int *fd);
KvgStatus kvg_rv_check_listener(int fd, int has_secret);

/* ---- rendezvous_host.c, rendezvous_guest.c */

typedef enum GuestState { GUEST_NONE = 0, GUEST_CAME, GUEST_ASKED, GUEST_KNOWN } GuestState;

typedef struct RvGuest { /* a connection to rank 0 that has no rank yet */
    RvLink      link;
    GuestState  state;
    uint64_t    since_ns;
    uint64_t    leaves_ns; /* from ASKED on: it must have heard by then */
    uint32_t    left_ms;   /* as it said */
    RvHello     hello;
    RvChallenge challenge;
    RvWho       who;
} RvGuest;

typedef struct RvParty {
    Rendezvous *self;
    int         listen_fd;
    int         guest_count;
    RvGuest    *guests; /* [guest_count] */
    int         strangers; /* turned away */
    char        last_stranger[RV_WHY_BYTES];
} RvParty;

KvgStatus kvg_rv_party_new(Rendezvous *self, RvParty *party);
void      kvg_rv_party_free(RvParty *party);
/* A connection has come. Owns fd. */
void kvg_rv_party_admit(RvParty *party, int fd, const char *place);
/* A guest's socket has something to read. */
void kvg_rv_party_hear(RvParty *party, RvGuest *guest);

/* Rank 0: until all are here. Does not close listen_fd. */
KvgStatus kvg_rv_host(Rendezvous *self, int listen_fd, uint64_t deadline_ns, uint32_t timeout_ms);
/* Another rank: until it is welcome; self->rank becomes the one it has been given. */
KvgStatus kvg_rv_call(Rendezvous *self, const char *address, uint64_t deadline_ns, uint32_t timeout_ms);

#endif

/* Mesh, inside: what its set-up, its frames and its two ends share. Private.
 *
 *   mesh.c          the comm and liveness ends, and their closing
 *   mesh_frames.c   bytes on connected sockets: frames in, frames out, heartbeats, loss
 *   mesh_setup.c    three all-gathers: who is where, addresses, all ready
 *   mesh_connect.c  between the second and the third: connections, proven by secrets from the first
 *   mesh_address.c  listening sockets, and who this process is
 *   mesh_interface.c  this host's addresses, and which of them the others are told */
#ifndef KVG_MESH_INTERNAL_H
#define KVG_MESH_INTERNAL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <kvgrid/mesh.h>

#define KVG_MESH_MAGIC       0x314d474bu /* "KGM1" */
#define KVG_MESH_VERSION     1u
#define KVG_MESH_STAGING     (16u << 10) /* bytes read at once; larger payloads are read in place */
#define KVG_MESH_RECORD_MAX  (16u << 20)
#define KVG_MESH_MESSAGE_MAX ((size_t)256 << 20)
#define KVG_MESH_HOST_BYTES  64
#define KVG_MESH_SECRET      16
#define KVG_MESH_PLACE_BYTES 80  /* an address and a port as text */
#define KVG_MESH_INTERFACES_BYTES 256 /* a list of a host's addresses as text */

/* ---- on the wire, little-endian */

typedef enum MeshKind { MESH_BEAT = 1, MESH_MESSAGE = 2, MESH_RECORD = 3 } MeshKind;

typedef struct MeshHeader {
    uint32_t magic;
    uint32_t kind;
    uint64_t byte_count; /* of the payload that follows; 0 for a beat */
} MeshHeader;
_Static_assert(sizeof(MeshHeader) == 16, "the header crosses the wire: no padding");

/* The first bytes on a connection, from both sides: each proves that it took part in the all-gather. */
typedef struct MeshHello {
    uint32_t magic, version;
    int32_t  from, to;
    uint8_t  secret[KVG_MESH_SECRET]; /* the receiver's */
} MeshHello;
_Static_assert(sizeof(MeshHello) == 32, "the hello crosses the wire: no padding");

/* First all-gather. */
typedef struct MeshIdentity {
    uint32_t magic, version;
    int32_t  status; /* a KvgStatus: what went wrong here before, so that all leave together */
    uint32_t tcp;
    uint64_t message_max;
    uint64_t network; /* the network name space: abstract Unix sockets do not leave it */
    int64_t  pid;
    uint8_t  secret[KVG_MESH_SECRET];
    char     boot[40]; /* the kernel's boot id: two hosts of one name differ by it */
    char     host[KVG_MESH_HOST_BYTES];
} MeshIdentity;
_Static_assert(sizeof(MeshIdentity) == 160, "identities cross the wire: no padding");

/* Second all-gather. */
typedef struct MeshAddress {
    int32_t  status;
    uint32_t unix_bytes; /* 0: this rank listens on no such socket */
    uint32_t tcp_bytes;
    uint32_t reserved;
    uint8_t  unix_address[128]; /* struct sockaddr_un, as bound */
    uint8_t  tcp_address[128];  /* struct sockaddr_in or _in6 */
} MeshAddress;
_Static_assert(sizeof(MeshAddress) == 272, "addresses cross the wire: no padding");

/* Third all-gather. */
typedef struct MeshReady {
    int32_t status;
    int32_t rank; /* the rank that could not be reached, or -1 */
} MeshReady;

/* ---- in memory */

/* A frame on its way in (payload only) or out (header and payload). */
typedef struct MeshFrame {
    struct MeshFrame *next;
    int               peer;
    uint32_t          kind;
    size_t            capacity;
    size_t            byte_count;
    size_t            done; /* bytes received or sent so far */
    uint64_t          bytes[]; /* uint64_t for alignment */
} MeshFrame;

typedef struct MeshQueue {
    MeshFrame *first, *last;
} MeshQueue;

typedef struct MeshPeer {
    int        fd; /* -1: none, or lost */
    int        lost;
    int        send_broken; /* a send failed: nothing more is sent, reading finds the end */
    int64_t    pid;
    char       host[KVG_MESH_HOST_BYTES];
    char       why[224]; /* it is lost; before that, who it is */
    uint64_t   sign_ns; /* last bytes from it */
    uint64_t   sent_ns; /* last frame to it */
    MeshFrame *incoming; /* a payload of which a part is here */
    MeshQueue  outgoing;
    size_t     staged_from, staged_to;
    uint8_t   *staging; /* [KVG_MESH_STAGING] */
} MeshPeer;

typedef struct Mesh {
    int        rank, ranks;
    int        epoll_fd; /* readable peers; data = rank */
    int        comm_open, liveness_open;
    uint64_t   heartbeat_ns;
    uint64_t   round_ns; /* when sockets were last read */
    size_t     message_max;
    size_t     record_bytes; /* 0: no records yet */
    MeshQueue  messages, records;            /* arrived, not yet given */
    MeshFrame *given_message, *given_record; /* lent to the caller until the next recv or take */
    MeshFrame *spares; /* for records in either direction, all of spare_capacity bytes */
    size_t     spare_count, spare_capacity;
    MeshPeer  *peers; /* [ranks]; the own entry has no socket */
    uint8_t   *staging; /* [ranks][KVG_MESH_STAGING], cut up among the peers */
} Mesh;

/* ---- mesh.c */

/* A mesh without sockets; freed by kvg_mesh_free, which also closes what was connected. */
KvgStatus kvg_mesh_new(int rank, int ranks, Mesh **mesh);
void      kvg_mesh_free(Mesh *mesh);
/* Hands out both ends. */
void kvg_mesh_ends(Mesh *mesh, KvComm *comm, KvLiveness *liveness);

/* ---- mesh_frames.c */

/* Makes a connected, authenticated socket the one to `peer`. Owns fd on success. */
KvgStatus kvg_mesh_adopt(Mesh *mesh, int peer, int fd);
/* Reads what is there, sends what is queued, and beats where due. Never blocks. */
void kvg_mesh_round(Mesh *mesh);
/* Queues or sends one frame. ENOMEM: nothing left. With MESH_RECORD a spare is used, see kvg_mesh_reserve. */
KvgStatus kvg_mesh_send(Mesh *mesh, int peer, MeshKind kind, const void *bytes, size_t byte_count);
/* Makes `count` spares for records of the mesh's size stand by. */
KvgStatus  kvg_mesh_reserve(Mesh *mesh, size_t count);
MeshFrame *kvg_mesh_queue_pop(MeshQueue *queue);
void       kvg_mesh_queue_free(MeshQueue *queue);
/* Frees a frame, or keeps it as a spare. */
void kvg_mesh_frame_put(Mesh *mesh, MeshFrame *frame);
int  kvg_mesh_sending(const Mesh *mesh); /* 1 while something is queued for a living peer */
void kvg_mesh_lose(Mesh *mesh, int peer, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- mesh_address.c */

/* 1, with errno, when a test wants this descriptor refused. */
int kvg_mesh_denied(void);
/* Closes *fd unless it is -1, and makes it so. */
void kvg_mesh_close_fd(int *fd);
/* A listening socket in the abstract Unix name space, which no file outlives. */
KvgStatus kvg_mesh_listen_unix(int *fd, MeshAddress *address);
/* A listening TCP socket on the address that kvg_mesh_choose chooses. EINVAL it is none of this host's; EIO. */
KvgStatus kvg_mesh_listen_tcp(const char *interface, int local, int *fd, MeshAddress *address);
/* Who this process is. */
KvgStatus kvg_mesh_identify(MeshIdentity *identity);
/* 1 if a Unix socket connects the two. */
int kvg_mesh_same_host(const MeshIdentity *a, const MeshIdentity *b);

/* ---- mesh_interface.c */

/* This host's address for others, without a port: of `interface`, a name or an address; NULL: loopback (`local`), or what the host's name says.
 * EINVAL: there is no such interface, listing those there are; EIO none leads out. */
KvgStatus kvg_mesh_choose(const char *interface, int local, struct sockaddr_storage *chosen);
/* "lo 127.0.0.1, eth0 10.0.0.7", as far as there is room. */
void kvg_mesh_interfaces(char *list, size_t bytes);
/* "10.0.0.7:4711", "[::1]:4711", without the port where it is 0; "?" of what is no address of IPv4 or IPv6. */
void      kvg_mesh_place(const void *address, char place[KVG_MESH_PLACE_BYTES]);
socklen_t kvg_mesh_address_bytes(const void *address);

/* ---- mesh_connect.c */

/* Connects this rank to every other: to the lower ones, from the higher ones. Returns at the deadline at the latest.
 * *missing: a rank that could not be reached, on failure. */
KvgStatus kvg_mesh_connect(Mesh *mesh, const MeshIdentity *identities, const MeshAddress *addresses, int unix_fd, int tcp_fd,
                           uint64_t deadline_ns, int *missing);

#endif

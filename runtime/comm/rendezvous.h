/** Rendezvous: a bootstrap over TCP for launchers that bring none (no MPI, not even one host): rank 0 listens, the others come.
 *
 *   rank 0                                       another rank
 *   listens; turns strangers away                connects, again and again until the deadline
 *   HELLO is read, CHALLENGE says a nonce        HELLO: version, world size, rank, a nonce
 *   PROOF is checked                             PROOF: HMAC of both nonces and the hello, by the shared secret
 *   all are here: WELCOME, each its rank,        checks rank 0's own proof
 *   and the listening socket is closed
 * Then every all-gather goes through rank 0. The connections stay until destroy, so that several grids, one after the other, can be made
 * over one rendezvous.
 *
 * Secret   It is never sent; who listens in learns an HMAC-SHA256 of it (RFC 2104), so take one that cannot be guessed: 16 random bytes in
 *          hex. It keeps out who does not know it; what is gathered is neither encrypted nor signed, so the network between the hosts must be
 *          trusted. Without a secret any user of this host could take a seat: that is allowed on loopback alone.
 *          SHA-256 is our own 60 lines, held to the vectors of NIST and RFC 4231: it is a frozen standard of additions and rotations that needs
 *          neither tables nor branches on the secret. The kernel's (AF_ALG) is missing in many containers, and libcrypto would put a second OpenSSL
 *          into the engines and interpreters that kvgrid is embedded in.
 * Bounds   Nothing that an unknown peer sends is kept beyond 160 bytes; at most ranks + 32 connections wait at a time, each gets a moment;
 *          a newer one takes the place of the one that has waited longest. An all-gather has at most KVG_RENDEZVOUS_BYTES_MAX bytes a rank and
 *          KVG_RENDEZVOUS_ALL_MAX in all.
 * Faults   One fault, one sentence, the same on all: rank 0 tells the others what it saw. A failed all-gather ends the rendezvous: every later one fails
 *          with the first sentence. Threads: one at a time. No thread, no signal and no file of our own. Reach: setup. */
#ifndef KVG_RENDEZVOUS_H
#define KVG_RENDEZVOUS_H

#include <kvgrid/bootstrap.h>

KVG_BEGIN_DECLS

#define KVG_RENDEZVOUS_BYTES_MAX ((size_t)1 << 20)
#define KVG_RENDEZVOUS_ALL_MAX   ((size_t)64 << 20)
#define KVG_RENDEZVOUS_ANY_RANK  (-1)

typedef struct KvRendezvousOptions {
    size_t      size;       /* set by KVG_RENDEZVOUS_OPTIONS_INIT */
    const char *address;    /* of rank 0: "host:port", "[::1]:port"; ":port" is 127.0.0.1 */
    const char *secret;     /* the same on all ranks, 16 to 256 bytes; NULL: none, on loopback alone */
    int         rank;       /* 0 listens; KVG_RENDEZVOUS_ANY_RANK: the ranks that nobody asked for are dealt out in order of arrival */
    int         ranks;      /* 1 .. 65535 */
    uint32_t    timeout_ms; /* until all ranks are here; 0: 30000 */
    int         listen_fd;  /* rank 0: a TCP socket that listens already (so that a launcher can take port 0 and tell the workers), taken
                               over whatever the outcome, but for EINVAL; `address` is then not looked at. Other processes that inherited it
                               close it: while one holds it, callers meet a socket that nobody answers. -1: rank 0 listens itself */
} KvRendezvousOptions;

#define KVG_RENDEZVOUS_OPTIONS_INIT { sizeof(KvRendezvousOptions), NULL, NULL, 0, 1, 0, -1 }

/** Returns when all ranks are here. `bootstrap` is for kvg_grid_create, kvg_grid_rebuild and any all-gather of the engine's own.
 *  EINVAL a bad address, rank, world size or secret, or an address off loopback without one, named; EIO the address cannot be listened on;
 *  EPEER rank 0 turned this rank away, with its reason (another secret, version or world size, a rank that is taken), or is gone;
 *  EINDOUBT at the deadline: the ranks that are missing, and on rank 0 who else came, from where, and why it was turned away. ENOMEM. */
KVG_API KvgStatus kvg_rendezvous_create(const KvRendezvousOptions *options, KvgBootstrap *bootstrap);
/** Hangs up. Grids that were made over it live on. One that is not set up, or NULL, is allowed. Reach: local. */
KVG_API void kvg_rendezvous_destroy(KvgBootstrap *bootstrap);

KVG_END_DECLS
#endif

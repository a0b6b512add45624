/* Transport: how the workers of a grid find each other, and what carries their records. A frontend needs one of these; here all stand side by side.
 *
 *   shm       kvgrid's own over shared memory: for workers of one host; records go through it, too
 *   tcp       kvgrid's rendezvous at a port of the frontend's, with a secret that only its workers know; records go by sockets. For workers on several hosts
 *             the address is one that they reach, and the secret reaches them as the frontend's other arguments do
 *   callback  any all-gather the frontend has (here between_world): that is all kvgrid asks for; records go by sockets that it makes itself
 *
 * prepare in the frontend before it forks, join and leave in each worker. */
#ifndef EMBED_TRANSPORT_H
#define EMBED_TRANSPORT_H

#include "between.h"

typedef struct Transport {
    const char *word;
    Between    *between; /* callback */
    int         ranks, fd;   /* shm: the memory; tcp: the socket that listens */
    char        address[32], secret[33];
} Transport;

#define TRANSPORT_WORDS "shm, tcp or callback"

/* 1 if there is one of that name. */
int       transport_is_known(const char *word);
KvgStatus transport_prepare(const char *word, int ranks, Between *between, Transport *transport);
KvgStatus transport_join(const Transport *transport, int rank, uint32_t timeout_ms, KvgBootstrap *bootstrap);
/* Once the grid is made. */
void      transport_leave(const Transport *transport, KvgBootstrap *bootstrap);

#endif

/* Worker: one rank of the grid, in a process of its own. It makes its end of the grid, then does what it is ordered until the frontend hangs up. */
#ifndef EMBED_WORKER_H
#define EMBED_WORKER_H

#include "between.h"
#include "orders.h"
#include "transport.h"

typedef struct WorkerOptions { /* the same in the frontend and in all workers */
    uint32_t    tp, pp, lanes, places; /* places: sequences in a step of one lane */
    uint64_t    memory_bytes;          /* of each rank, for sequence state */
    uint64_t    seed;                  /* of the model */
    KvFormat    format_k, format_v;
    const char *transport;             /* a word of transport.h */
    int         refuse_rank;           /* a fault for tests: this rank votes no at step refuse_step; -1: none */
    uint64_t    refuse_step;
} WorkerOptions;

static inline uint32_t worker_seats(const WorkerOptions *options) /* every lane's places, and the shared prompt's */
{
    return options->lanes * options->places + 1;
}

/* Runs rank `rank`, ordered through `socket`. Returns the process's exit status. */
int worker_run(const WorkerOptions *options, uint32_t rank, int socket, const Transport *transport);

#endif

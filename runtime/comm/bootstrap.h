/** Bootstrap: what a launcher gives a grid to start with (as UCC's out-of-band collectives): rank, size, an all-gather.
 *
 * MPI gives one (kvgrid_mpi), a serving frontend fills in its own. It is used at set-up only. */
#ifndef KVG_BOOTSTRAP_H
#define KVG_BOOTSTRAP_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/status.h>

KVG_BEGIN_DECLS

typedef struct KvgBootstrap {
    size_t size; /* set by KVG_BOOTSTRAP_INIT */
    void  *user;
    int    rank;  /* 0 .. ranks-1; world rank = pp_rank * tp + tp_rank */
    int    ranks;
    /** Collective. Every rank gives `bytes` bytes, `all` [ranks][bytes] receives them in rank order.
     *  Returns within `timeout_ms`: EINDOUBT if a rank did not call in, EPEER if one is known gone. */
    KvgStatus (*allgather)(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms);
} KvgBootstrap;

#define KVG_BOOTSTRAP_INIT { sizeof(KvgBootstrap), NULL, 0, 1, NULL }

KVG_END_DECLS
#endif

/* Handshake: what every rank must have in common before it may be part of a grid (S7). Private. */
#ifndef KVG_HANDSHAKE_H
#define KVG_HANDSHAKE_H

#include "pp/internal.h"

typedef struct KvHello { /* crosses the wire; all fields 64 bits wide, so that they compare alike */
    uint64_t status;     /* what this rank's own checks say: one that cannot go on tells the others */
    uint64_t version;
    uint64_t rank;       /* as the bootstrap says */
    uint64_t ranks, tp, pp, epoch, window;
    int64_t  format_k, format_v, gemma_gkv, gemma_wkv, kv_fp8, swa_ring, dsa_index_ring;
} KvHello;

/* This rank's hello; `local` is what its own checks said. */
void kvg_hello_make(const KvgGrid *grid, KvgStatus local, KvHello *hello);
/* The same answer on every rank: EREFUSED naming the rank whose own checks failed (that rank returns its own code), ELAYOUT naming the item. */
KvgStatus kvg_hello_compare(const KvHello *hellos, int ranks, int rank);

#endif

/* Between: what the workers of one host hand each other while a step runs, over a page that the frontend maps before it forks.
 *
 *   world    an all-gather of all ranks: it can be the whole bootstrap of a grid (KvgBootstrap.allgather)
 *   stage    an all-gather of the ranks of a stage: partial sums
 *   chain    rank (stage, t) hands residuals to rank (stage+1, t), at most BETWEEN_DEPTH steps ahead
 *
 * Every wait has a deadline, and calls `turn` meanwhile: the grid gives signs of life there, and learns of losses; when it does, between_abort from its
 * on_lost ends the wait. A failed call leaves its sentence in between_why. Threads: one in each process. */
#ifndef EMBED_BETWEEN_H
#define EMBED_BETWEEN_H

#include <kvgrid/kvgrid.h>

enum { BETWEEN_RANKS_MAX = 32, BETWEEN_DEPTH = 8, BETWEEN_GATHER_BYTES = 2 << 20, BETWEEN_CHAIN_BYTES = 128 << 10 };

typedef struct Between Between;

/* In the frontend, before it forks. NULL when memory is out. */
Between *between_create(uint32_t tp, uint32_t pp);
void     between_free(Between *between);
/* In a worker: which rank it is; timeout_ms bounds every wait. */
void between_join(Between *between, uint32_t rank, uint32_t timeout_ms);
/* What a wait does meanwhile: NULL for nothing. Its failure ends the wait. */
void between_turn(Between *between, KvgStatus (*turn)(void *user), void *user);
void between_abort(Between *between, const char *why);
const char *between_why(const Between *between);

/* KvgBootstrap.allgather; `user` is the Between. Any number of bytes. */
KvgStatus between_world(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms);
/* all [tp][bytes], in rank order. */
KvgStatus between_stage(Between *between, const void *mine, void *all, size_t bytes);
KvgStatus between_hand(Between *between, const void *rows, size_t bytes);
KvgStatus between_take(Between *between, void *rows, size_t bytes);

#endif

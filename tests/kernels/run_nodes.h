/* What gpu_run puts between a captured step's writes and its vote: an engine's sampler that keeps some of the staged rows, and an engine's "no". For tests. */
#ifndef KVG_TEST_RUN_NODES_H
#define KVG_TEST_RUN_NODES_H

#include <stdint.h>

#include "runtime/base/hd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many of `rows` rows from `first_row` on are kept: the host says the same. At least one. */
static inline KVG_HD uint32_t run_kept(uint32_t key, uint32_t first_row, uint32_t rows)
{
    return rows == 0 ? 0 : 1 + (key * 2654435761u ^ first_row * 40503u) % rows;
}

typedef struct RunNodes {
    const int32_t  *slots;
    const uint32_t *rows, *first_row, *keys;
    uint32_t       *accepted;
    uint32_t        places;
} RunNodes;

/* Each returns a cudaError_t. */
int run_keep_launch(const RunNodes *nodes, void *stream);
/* From the replay on in which place 0's first row is `from` or later, *status = code. */
int run_refuse_launch(const uint32_t *first_row, uint32_t from, int32_t code, int32_t *status, void *stream);

#ifdef __cplusplus
}
#endif
#endif

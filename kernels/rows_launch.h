/* Rows, inside: what the host works out for a launch over a batch's rows: tiles, shared memory, grid. Private. */
#ifndef KVG_ROWS_LAUNCH_H
#define KVG_ROWS_LAUNCH_H

#include <cuda_runtime_api.h>

#include "kernels/cuda_rows.h"

enum { TILE_ROWS_MAX = 64, THREADS = 128, SHARED_MOST = 48 * 1024 - TILE_ROWS_MAX * 8 };

struct PlaneShape { /* what the host works out once for a plane */
    uint32_t units;     /* of 8 elements in one head's row; 0: element by element */
    uint32_t magic;     /* unit * magic >> 32 is the row of one head */
    uint32_t row_units; /* of all the tile's heads */
    uint32_t row_magic;
    uint32_t step;      /* rows from one of a lane's units to its next, if that has the same place in its row; else 0 */
};

struct RowsLaunch {
    KvRowsBatch batch;
    PlaneShape  shape[2];
    uint32_t    tile_rows; /* a power of two */
    uint32_t    group;     /* heads of a tile */
    uint32_t    groups;
    uint32_t    stage;     /* bytes for blocks; the encoder's elements stand behind them */
};

/* EINVAL: planes, heads or places that no launch can have. */
KvgStatus kvg_rows_check(const KvRowsBatch *batch);
/* Tiles as high as chunks and shared memory allow, and no higher than the rows there are. */
KvgStatus kvg_rows_shape(const KvRowsBatch *batch, bool encode, RowsLaunch *launch, dim3 *grid, uint32_t *threads);
/* Whether elements of every row and head begin at a multiple of 16 bytes. */
bool kvg_rows_aligned(const KvRowsBatch *batch);

#endif

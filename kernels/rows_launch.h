/* Rows, inside: what the host works out for a launch over a batch's rows: planes, tiles, shared memory, grid. Private. */
#ifndef KVG_ROWS_LAUNCH_H
#define KVG_ROWS_LAUNCH_H

#include <cuda_runtime_api.h>

#include "kernels/cuda_rows.h"

enum { THREADS = 128, TILE_ROWS_MAX = 64, TILE_BYTES = 16384 }; /* of a block, and of its tile's elements */

struct RowsPlane { /* a plane as kernels want it: shifts and reciprocals for divisors, bytes for elements */
    const uint8_t  *elements;
    int64_t         token_bytes, head_pitch; /* from one token's, one head's elements to the next's */
    uint8_t        *base;
    const int32_t  *table;
    const uint32_t *base_row;
    uint64_t        slot_bytes, head_stride, row_stride;
    uint32_t        table_stride, chunk_bytes;
    int32_t         chunk_shift; /* rows of a chunk, their logarithm; -1: flat */
    uint32_t        ring_rows;
    uint32_t        format, dim, row_bytes; /* of one head's row */
    uint32_t        units;                  /* of 8 elements in one head's row; 0: element by element */
    uint32_t        unit_magic;             /* unit * magic >> 32 is the head */
    uint32_t        row_units, row_magic;   /* of all the tile's heads */
    uint32_t        step;                   /* rows from a lane's unit to its next, if that has the same place in its row; else 0 */
    uint32_t        solid;                  /* a tile's elements lie side by side */
    uint32_t        stage_head;             /* bytes from one head's staged rows to the next's */
    uint32_t        few_rows, few_parts;    /* rows_few.cu: rows of a block, or blocks of a row */
};

struct RowsLaunch {
    RowsPlane       plane[2];
    const int32_t  *slots;
    const uint32_t *rows, *first_row, *len_staged, *first_token;
    KvEncodeCounts *counts;
    uint32_t        token_pitch, rows_max;
    uint32_t        planes, places, heads;
    uint32_t        tile_rows; /* a power of two */
    uint32_t        group;     /* heads of a tile */
    uint32_t        groups;
    uint32_t        stage;     /* bytes for blocks; the encoder's elements stand behind them */
    uint32_t        aligned;   /* elements of every row and head begin at a multiple of 16 bytes */
};

/* Checks the batch and takes it over. EINVAL: planes, heads, places, chunks or element types that no launch can have. */
KvgStatus kvg_rows_take(const KvRowsBatch *batch, RowsLaunch *launch);
/* Cuts it into tiles. */
KvgStatus kvg_rows_cut(RowsLaunch *launch, uint32_t type, dim3 *grid);
/* n * magic >> 32 is n / divisor for small n; of 1 there is none. */
uint32_t kvg_rows_magic(uint32_t divisor);
/* Lanes that one place and plane take where each has one unit of 8 elements. */
uint64_t kvg_rows_units(const RowsLaunch *launch);
/* The encoder for a decoding step's rows; false: not for this launch. */
bool kvg_rows_encode_step(const RowsLaunch *launch, uint32_t type, cudaStream_t stream);
/* The encoder for few rows, for elements of any alignment, and for dimensions that are no multiple of 8. */
void kvg_rows_encode_few(const RowsLaunch *launch, uint32_t type, cudaStream_t stream);

#endif

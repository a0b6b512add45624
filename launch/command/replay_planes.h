/* Replay's planes: the layers whose rows this rank holds, and what must stand in them. Private to the command.
 *
 * Everything is read through the public view (kvg_plane_row), as an engine's attention would. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_PLANES_H
#define KVG_COMMAND_REPLAY_PLANES_H

#include <kvgrid/kvgrid.h>

typedef struct ReplayLayer {
    uint32_t           il;
    const KvPlaneView *view; /* the placement's */
} ReplayLayer;

typedef struct ReplayPlanes {
    ReplayLayer *layers; /* [count], ascending; those that own rows */
    uint32_t     count;
    uint32_t     leaves;             /* of one sequence on this rank: a K and a V for each head of each layer */
    size_t       row_elements_max;   /* heads * head_dim of the widest plane */
    uint32_t     head_dim_max;
} ReplayPlanes;

KvgStatus kvg_replay_planes_collect(const KvgPlacement *placement, ReplayPlanes *planes);
void      kvg_replay_planes_free(ReplayPlanes *planes);

/* plane: KVG_PLANE_K or KVG_PLANE_V. */
const KvPlane *kvg_replay_plane(const ReplayLayer *layer, uint32_t plane);
/* First row that the digest of `len` rows looks at: 0, or the window's view. */
uint64_t kvg_replay_first_row(const ReplayLayer *layer, uint64_t len);

/* Who makes rows: the seed and the request's number go into each of them. */
typedef struct ReplayMaker {
    uint64_t seed;
} ReplayMaker;

/* One step's rows of one sequence in one plane: positions [first, first+rows), of which `accepted` will be kept; the rest come from
 * the stream of rejected drafts of `round`. target [rows][heads][head_dim], packed. */
typedef struct ReplaySpan {
    uint64_t request, first, round;
    uint32_t rows, accepted;
} ReplaySpan;
void kvg_replay_make_rows(const ReplayMaker *maker, const ReplayLayer *layer, uint32_t plane, const ReplaySpan *span, float *target);

#endif

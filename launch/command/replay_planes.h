/* Replay's planes: the layers whose state this rank holds, and what must stand in them. Private to the command.
 *
 * Everything is read through the public views, as an engine's attention would. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_PLANES_H
#define KVG_COMMAND_REPLAY_PLANES_H

#include <kvgrid/kvgrid.h>

typedef struct ReplayLayer { /* one of the views, by the layer's kind; the batch's */
    uint32_t               il;
    const KvPlaneView     *kv;
    const KvLatentView    *latent;
    const KvRecurrentView *recurrent;
} ReplayLayer;

typedef struct ReplayPlanes {
    ReplayLayer *layers; /* [count], ascending; those that own state */
    uint32_t     count;
    uint32_t     leaves; /* of one sequence on this rank: one for each head of each plane */
    size_t       row_elements_max; /* of the widest row that is written or updated at once */
    size_t       pool_elements_max; /* of a pool of index rows; 0 without pooled indexers */
} ReplayPlanes;

/* The layers of this rank, seen through one of its batches, which outlives the planes. */
KvgStatus kvg_replay_planes_collect(const KvgPlacement *placement, const KvgBatch *batch, ReplayPlanes *planes);
void      kvg_replay_planes_free(ReplayPlanes *planes);

/* The planes of a layer that hold rows: K and V; or latent rows, keys, and of a pooled indexer index rows. A recurrent layer has none. */
enum { REPLAY_ROW_PLANES_MAX = 3 };
uint32_t kvg_replay_row_planes(const ReplayLayer *layer, uint32_t planes[REPLAY_ROW_PLANES_MAX]);
const char *kvg_replay_plane_name(uint32_t plane);
/* The plane that the indexer's rows of an update belong to: index rows where keys are of pools, else keys. */
uint32_t kvg_replay_index_plane(const KvLatentView *view);

/* Heads of a plane on this rank, and the format and elements of one head's row. Of pooled keys, a row is a key. */
typedef struct ReplayShape {
    uint32_t heads, head_first, dim;
    KvFormat format;
    size_t   bytes;
} ReplayShape;
ReplayShape kvg_replay_shape(const ReplayLayer *layer, uint32_t plane);
/* Where a row of a head stands; of pooled keys, `row` is the pool. */
uint8_t *kvg_replay_stored(const ReplayLayer *layer, uint32_t plane, uint32_t slot, uint32_t head, uint64_t row);

/* First row that the digest of `len` rows looks at: 0, or the window's view. */
uint64_t kvg_replay_first_row(const ReplayLayer *layer, uint64_t len);

/* Who makes rows: the seed and the request's number go into each of them. */
typedef struct ReplayMaker {
    uint64_t seed;
} ReplayMaker;

/* One step's rows of one sequence: positions [first, first+rows), of which `accepted` will be kept; the rest come from the stream of
 * rejected drafts of `round`. Replayed rows are the first ones, and kept. */
typedef struct ReplaySpan {
    uint64_t request, first, round;
    uint32_t rows, accepted;
} ReplaySpan;
/* The key of row i of the span, of one head; `stream` is the plane's of the span's request. */
uint64_t kvg_replay_span_key(const ReplaySpan *span, uint64_t stream, uint32_t head, uint32_t i);
/* target [rows][heads][dim], packed. Not for pooled keys, which are built of index rows. */
void kvg_replay_make_rows(const ReplayMaker *maker, const ReplayLayer *layer, uint32_t plane, const ReplaySpan *span, float *target);

#endif

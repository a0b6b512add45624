/* Grid plan, shares: what one rank of a TP group holds of each layer, before anyone knows which stage owns it (S3, S4). Private.
 *
 * Head shards give every rank of a group the same count of heads, so a share is one value for all of them; only which
 * copies are duplicates depends on the rank: of each group of `replicas` neighbours the first holds the original. */
#ifndef KVG_GRID_PLAN_SHARD_H
#define KVG_GRID_PLAN_SHARD_H

#include <kvgrid/grid_plan.h>

#include "runtime/base/error.h"

#define KVG_SHARE_PLANES_MAX 3 /* K, V; or latent rows, index rows, keys */

typedef struct GridShare {
    uint64_t plane_unit_bytes[KVG_SHARE_PLANES_MAX]; /* of one 64-row unit; 0 where there is no such plane */
    uint64_t unit_bytes;                             /* their sum */
    uint64_t bytes_per_token;
    uint64_t ring_bytes_per_token;
    uint64_t fixed_bytes; /* S3's formula at T tokens */
    uint64_t slot_bytes;  /* what a sequence slot books in the pooled layout: recurrent columns, index ring */
    uint32_t replicas;    /* ranks that hold the same rows; 1: nobody else does */
    uint32_t part_replicas[KVG_RECURRENT_PARTS_MAX];
    uint64_t part_bytes[KVG_RECURRENT_PARTS_MAX]; /* fixed bytes of each recurrent part on this rank */
} GridShare;

/* Checks that every layer of [0, layer_count) falls on `tp` ranks. EGEOM names the first that does not and lists the TP
 * sizes that work for the whole model. */
KvgStatus kvg_grid_check_heads(const ModelConfig *config, uint32_t layer_count, uint32_t tp);

/* Computes shares [layer_count]. `ctx` is the T of fixed_bytes, `max_ctx` the length that slots are made for. */
KvgStatus kvg_grid_shares(const ModelConfig *config, const KvGridPlanOptions *options, uint32_t layer_count, uint64_t ctx,
                          uint64_t max_ctx, GridShare *shares);

/* Bytes of a share that an earlier rank of the stage holds too. */
uint64_t kvg_grid_share_duplicate_rows(const GridShare *share, uint32_t tp_rank);
uint64_t kvg_grid_share_duplicate_fixed(const GridShare *share, uint32_t tp_rank);

#endif

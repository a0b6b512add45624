/* Plan building: what both readers of configs (JSON and GGUF) share. Private.
 *
 *   layer kinds  ->  one StatePlan a layer  ->  sharing  ->  MTP blocks  ->  checked plan
 *
 * Readers decide a kind for every layer first (which mixer it has), then shape each kind; everything after that is the
 * same whichever file the facts came from. */
#ifndef KVG_PLAN_BUILD_H
#define KVG_PLAN_BUILD_H

#include <stdbool.h>

#include <kvgrid/model.h>

#include "runtime/base/error.h"

/* More layers than this make no sense, and bound what a hostile count can make us allocate and look at: cutting layers into stages takes O(stages * layers^2). */
#define KVG_LAYERS_MAX 1024u

typedef enum KvLayerKind {
    KVG_LAYER_NONE    = 0, /* an MLP or expert block: no mixer, no state */
    KVG_LAYER_FULL    = 1, /* attention over every token; latent in MLA models */
    KVG_LAYER_SLIDING = 2,
    KVG_LAYER_LINEAR  = 3, /* recurrent */
    KVG_LAYER_INHERIT = 4  /* an MTP block with no entry of its own */
} KvLayerKind;

/* Allocates `layers` and `weight_bytes` for n_layer + n_mtp. */
KvgStatus kvg_plan_alloc(ModelConfig *config, uint32_t n_layer, uint32_t n_mtp);

/* Shapes. Zero heads or widths are bugs of the caller (readers check their fields first); a product that does not fit is
 * EOVERFLOW naming the file and layer. */
typedef struct KvShapeFacts {
    uint32_t query_heads, kv_heads, head_dim_k, head_dim_v;
    uint64_t window; /* 0: full attention */
    bool     gemma;  /* chooses the format class */
} KvShapeFacts;

KvgStatus kvg_plan_kv(const char *file, uint32_t layer, const KvShapeFacts *facts, StatePlan *plan);
KvgStatus kvg_plan_latent(const char *file, uint32_t layer, uint32_t kv_rank, uint32_t rope_dim, KvIndexKind index_kind,
                          uint32_t index_head_dim, uint32_t index_pool, StatePlan *plan);

/* Gated delta net: q and k by key heads, v and state by value heads. */
KvgStatus kvg_plan_gdn(const char *file, uint32_t layer, uint32_t key_heads, uint32_t key_dim, uint32_t value_heads,
                       uint32_t value_dim, uint32_t conv_kernel, StatePlan *plan);
/* Kimi delta attention: everything by heads. */
KvgStatus kvg_plan_kda(const char *file, uint32_t layer, uint32_t heads, uint32_t dim, uint32_t conv_kernel, StatePlan *plan);
/* Mamba-2: x and state by heads, B and C by groups. */
KvgStatus kvg_plan_mamba2(const char *file, uint32_t layer, uint32_t heads, uint32_t head_dim, uint32_t groups,
                          uint32_t d_state, uint32_t conv_kernel, StatePlan *plan);
/* Mamba-1: d_inner channels, each its own head. */
KvgStatus kvg_plan_mamba1(const char *file, uint32_t layer, uint32_t d_inner, uint32_t d_state, uint32_t conv_kernel,
                          StatePlan *plan);

/* The last `shared` layers of the trunk attend the last owner of their own kind before them.
 * EFORMAT naming `field` when there is no such owner, ENOTSUP when it is latent. */
KvgStatus kvg_plan_share(const char *file, const char *field, ModelPlan *plan, const uint8_t *kinds, uint32_t shared);
/* Gives every INHERIT block after the trunk the plan of the trunk's last attention layer that owns rows. */
KvgStatus kvg_plan_inherit_mtp(const char *file, const char *field, ModelPlan *plan, const uint8_t *kinds);
/* Query heads of the trunk's attention layers: the first one's, 0 if there are none. */
uint32_t  kvg_plan_query_heads(const ModelPlan *plan);

#endif

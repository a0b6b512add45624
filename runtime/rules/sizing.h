/** Sizing: bytes a token, ring bytes and fixed bytes of a model (S3). Pure: values in, values out.
 *
 * KvSizing says in which formats and with which rings; ranges [lo, hi) of layers run to n_layer + n_mtp.
 * Errors everywhere: EINVAL for lo > hi or a range past the end, EGEOM a head dimension that cuts a block, EOVERFLOW. */
#ifndef KVG_SIZING_H
#define KVG_SIZING_H

#include <kvgrid/model.h>

KVG_BEGIN_DECLS

typedef struct KvSizing {
    KvgPolicy policy;
    KvFormat  format_k, format_v; /* KVG_POLICY: the policy's */
    KvFormat  format_latent;      /* KVG_POLICY = f32; f32 or bf16 */
} KvSizing;

/** The process's policy, nothing asked for. */
KVG_API KvgStatus kvg_sizing_default(KvSizing *sizing);

/* S3's names over the process's policy: whole model, a range of layers, a range of a plan. */
KVG_API KvgStatus kvg_cache_bytes_per_token(const ModelConfig *config, uint64_t *bytes);
KVG_API KvgStatus kvg_cache_bytes_per_token_for_layers(const ModelConfig *config, uint32_t lo, uint32_t hi, uint64_t *bytes);
KVG_API KvgStatus kvg_cache_bytes_per_token_for_plan(const ModelConfig *config, const ModelPlan *plan, uint32_t lo, uint32_t hi,
                                                     uint64_t *bytes);
KVG_API KvgStatus kvg_latent_kv_bytes_per_token_for_plan(const ModelConfig *config, const ModelPlan *plan, uint32_t lo,
                                                         uint32_t hi, uint64_t *bytes);
KVG_API KvgStatus kvg_cache_ring_bytes_per_token(const ModelConfig *config, uint64_t *bytes);
KVG_API KvgStatus kvg_cache_ring_bytes_per_token_for_layers(const ModelConfig *config, uint32_t lo, uint32_t hi, uint64_t *bytes);
KVG_API KvgStatus kvg_cache_ring_bytes_per_token_for_plan(const ModelConfig *config, const ModelPlan *plan, uint32_t lo,
                                                          uint32_t hi, uint64_t *bytes);
KVG_API KvgStatus kvg_cache_ring_row_cap(const ModelConfig *config, uint64_t *rows);
KVG_API KvgStatus kvg_cache_ring_row_cap_for_plan(const ModelConfig *config, const ModelPlan *plan, uint64_t *rows);

/* The same with a sizing passed in: what the grid and the command use. */
KVG_API KvgStatus kvg_plan_bytes_per_token(const KvSizing *sizing, const ModelPlan *plan, uint32_t lo, uint32_t hi, uint64_t *bytes);
KVG_API KvgStatus kvg_plan_latent_bytes_per_token(const KvSizing *sizing, const ModelPlan *plan, uint32_t lo, uint32_t hi,
                                                  uint64_t *bytes);
KVG_API KvgStatus kvg_plan_ring_bytes_per_token(const KvSizing *sizing, const ModelPlan *plan, uint32_t lo, uint32_t hi,
                                                uint64_t *bytes);
KVG_API KvgStatus kvg_plan_ring_row_cap(const KvSizing *sizing, const ModelPlan *plan, uint64_t *rows);
/** Fixed bytes of a sequence: 20 a K/V layer, 12 a latent layer, recurrent columns, pooled index rings of min(ring, max_ctx) rows.
 *  `columns` 0 means 2 (S8). */
KVG_API KvgStatus kvg_plan_fixed_bytes(const KvSizing *sizing, const ModelPlan *plan, uint32_t lo, uint32_t hi, uint64_t max_ctx,
                                       uint32_t columns, uint64_t *bytes);
/** Pool keys at a capacity: capacity/index_pool*(index_width/2)*4 exactly, summed over pooled indexers. */
KVG_API KvgStatus kvg_plan_pool_key_bytes(const KvSizing *sizing, const ModelPlan *plan, uint32_t lo, uint32_t hi,
                                          uint64_t capacity, uint64_t *bytes);

KVG_END_DECLS
#endif

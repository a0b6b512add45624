/* Weights: how many bytes a layer's parameters take, estimated from a config. Private.
 *
 * Estimates place layers on stages and say what fits; they are called estimates wherever they are shown. They count the
 * matrices (projections, experts, embedding) and leave out norms, biases and quantisation details, and saturate instead of
 * failing: an odd weight field never refuses a config. */
#ifndef KVG_WEIGHTS_H
#define KVG_WEIGHTS_H

#include <stdbool.h>

#include <kvgrid/model.h>

typedef enum KvMlpKind { KVG_MLP_NONE = 0, KVG_MLP_DENSE = 1, KVG_MLP_SPARSE = 2, KVG_MLP_BOTH = 3 } KvMlpKind;

typedef struct WeightFacts {
    uint64_t hidden, vocab;
    bool     tied;          /* the output head is the embedding */
    uint64_t latent_heads, q_lora_rank, nope_dim, value_dim, index_heads; /* MLA; q_lora_rank 0: none */
    uint64_t dense_width;   /* of the dense MLP */
    uint64_t expert_width, expert_count, shared_width; /* shared_width: all shared experts together */
    uint32_t mlp_matrices;  /* 3 gated, 2 plain */
    uint32_t bytes_per_32;         /* of 32 weights of a layer */
    uint32_t expert_bytes_per_32;  /* of 32 weights of an expert */
    uint32_t embedding_bytes_per_32;
} WeightFacts;

uint64_t kvg_weight_layer_bytes(const WeightFacts *facts, const ModelPlan *plan, uint32_t layer, KvMlpKind mlp);
void     kvg_weight_ends(const WeightFacts *facts, ModelConfig *config);

#endif

/* JSON configs, one family's idea a file. Private: kvg_model_config_load and its siblings are the way in. */
#ifndef KVG_CONFIG_JSON_H
#define KVG_CONFIG_JSON_H

#include "runtime/model/fields.h"
#include "runtime/model/plan_build.h"

typedef struct JsonModel {
    JsonFields fields;
    char       model_type[64]; /* the innermost one; "" if there is none */
    uint32_t   n_layer, n_mtp;
    uint8_t   *kinds;  /* [n_layer + n_mtp] KvLayerKind */
    uint64_t   window; /* of sliding layers; 0: none */
    bool       is_latent; /* attention layers keep latents */
} JsonModel;

bool kvg_json_is_family(const JsonModel *model, const char *prefix);

/* Fills kinds and window (layer_kinds.c). */
KvgStatus kvg_json_layer_kinds(JsonModel *model);
/* Shapes of one layer of the model (plan_attention.c, plan_latent.c, plan_recurrent.c). */
KvgStatus kvg_json_plan_attention(const JsonModel *model, uint32_t layer, bool sliding, StatePlan *plan);
KvgStatus kvg_json_plan_latent(const JsonModel *model, uint32_t layer, StatePlan *plan);
KvgStatus kvg_json_plan_recurrent(const JsonModel *model, uint32_t layer, StatePlan *plan);
/* Fills weight_bytes, embedding_bytes, head_bytes (weights_json.c). Estimates never refuse a config. */
void kvg_json_estimate_weights(const JsonModel *model, ModelConfig *config);

#endif

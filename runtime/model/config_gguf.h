/* GGUF configs. Private: kvg_model_config_load and kvg_model_config_parse_gguf are the way in. */
#ifndef KVG_CONFIG_GGUF_H
#define KVG_CONFIG_GGUF_H

#include "runtime/model/gguf.h"
#include "runtime/model/plan_build.h"

typedef struct GgufModel {
    GgufFile file;
    char     arch[48];
    uint32_t n_layer, n_mtp; /* block_count counts both */
    uint8_t *kinds;          /* [n_layer + n_mtp] KvLayerKind */
    uint64_t window;         /* 0: none */
    bool     is_latent, is_recurrent;
} GgufModel;

bool kvg_gguf_is_family(const GgufModel *model, const char *prefix);

/* Keys of the architecture: `names` is one name or "a|b", each under "<arch>.". Optional values keep what they hold. */
KvgStatus kvg_gguf_key(const GgufModel *model, const char *names, const GgufEntry **entry);
KvgStatus kvg_gguf_u32(const GgufModel *model, const char *names, uint32_t min, uint32_t *value);
KvgStatus kvg_gguf_need_u32(const GgufModel *model, const char *names, uint32_t min, uint32_t *value);
/* One number for all layers, or an array with an entry a layer (0 is legal there). *listed says which. */
KvgStatus kvg_gguf_layer_u32(const GgufModel *model, const char *names, uint32_t layer, uint32_t min, uint32_t *value,
                             bool *listed);
/* For estimates: whatever cannot be read counts as absent. */
uint64_t  kvg_gguf_guess(const GgufModel *model, const char *names, uint32_t layer, uint64_t fallback);

/* Fills kinds and window (kinds_gguf.c). */
KvgStatus kvg_gguf_layer_kinds(GgufModel *model);
/* Fills weight_bytes and the ends: from the tensor list where it is whole, else estimated (weights_gguf.c).
 * EFORMAT for a tensor list that is wrong. */
KvgStatus kvg_gguf_weights(const GgufModel *model, ModelConfig *config, GgufList *list);

/* kvg_model_config_parse_gguf, and whether more bytes of the file would help. */
KvgStatus kvg_gguf_parse(const void *bytes, size_t byte_count, const char *name, ModelConfig *config, bool *wants_more);

#endif

/** ModelConfig and ModelPlan: what a model's config says about its sequence state (S2).
 *
 * A ModelConfig is read from config.json (a file or a directory that holds one), from Mistral's params.json, or from
 * GGUF metadata. It carries the compiled plan: one StatePlan a layer, then one for each MTP block after the trunk.
 * Ownership: kvg_model_config_free frees what kvg_model_config_load gave. Reach: local. Threads: a loaded config is
 * read-only and may be shared. */
#ifndef KVG_MODEL_H
#define KVG_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/policy.h>

KVG_BEGIN_DECLS

typedef enum KvStateKind {
    KVG_STATE_NONE       = 0, /* keeps nothing */
    KVG_STATE_KV         = 1, /* KvCache: every row is kept */
    KVG_STATE_SLIDING_KV = 2, /* SlidingKvCache: the window counts the current token */
    KVG_STATE_LATENT     = 3, /* LatentKvCache: V is the first kv_rank elements of the same row */
    KVG_STATE_RECURRENT  = 4,
    KVG_STATE_SHARED     = 5, /* SharedKv: attends an earlier layer's planes, owns none */
    KVG_STATE_KIND_COUNT
} KvStateKind;

typedef enum KvIndexKind { KVG_INDEX_NONE = 0, KVG_INDEX_POOLED = 1, KVG_INDEX_PER_TOKEN = 2 } KvIndexKind;

/* Which switch chooses the layer's format when nothing is asked for (S2). */
typedef enum KvFormatClass { KVG_FORMAT_ORDINARY = 0, KVG_FORMAT_GEMMA_GLOBAL = 1, KVG_FORMAT_GEMMA_WINDOWED = 2 } KvFormatClass;

typedef struct KvCachePlan {
    uint32_t      kv_heads;
    uint32_t      head_dim_k, head_dim_v;
    uint32_t      query_heads;  /* of this layer: must divide by tp */
    uint64_t      window;       /* 0 unless the kind is SLIDING_KV */
    KvFormatClass format_class;
} KvCachePlan;

typedef struct LatentKvPlan {
    uint32_t    width;       /* kv_lora_rank + qk_rope_head_dim */
    uint32_t    kv_rank;
    KvIndexKind index_kind;
    uint32_t    index_width; /* pooled: 2*index_head_dim state elements; per token: index_head_dim; else 0 */
    uint32_t    index_pool;  /* tokens a pool; 0 unless pooled */
} LatentKvPlan;

/* How conv channels and state elements are cut by heads. `heads` heads of `width` elements each. */
typedef struct RecurrentPart {
    uint32_t heads;
    uint32_t width;
    uint8_t  is_state; /* 0: conv channels, 1: state elements */
} RecurrentPart;

#define KVG_RECURRENT_PARTS_MAX 6

typedef struct RecurrentPlan {
    RecurrentPart parts[KVG_RECURRENT_PARTS_MAX];
    uint32_t      part_count;
    uint32_t      conv_width;  /* channels: the sum over conv parts of heads*width */
    uint32_t      conv_kernel; /* conv_kernel - 1 taps are kept */
    uint64_t      state_width; /* elements: the sum over state parts of heads*width */
} RecurrentPlan;

typedef struct StatePlan {
    KvStateKind kind;
    union {
        KvCachePlan   kv;            /* KV and SLIDING_KV */
        LatentKvPlan  latent;
        RecurrentPlan recurrent;
        uint32_t      shared_source; /* SHARED: the layer whose planes are attended */
    } u;
} StatePlan;

typedef struct ModelPlan {
    uint32_t   n_layer; /* the trunk */
    uint32_t   n_mtp;   /* MTP / next-token blocks after it */
    StatePlan *layers;  /* [n_layer + n_mtp] */
} ModelPlan;

typedef struct ModelConfig {
    char      name[64];       /* the file's or directory's name, for messages */
    char      model_type[64]; /* as the config says, "" if it does not */
    uint64_t  context;        /* max_position_embeddings or its other names; 0: the config does not say */
    uint32_t  hidden_size;
    uint32_t  query_heads;    /* of the trunk's attention layers; 0 if there are none */
    uint64_t  vocab_size;     /* 0: unknown */
    uint64_t *weight_bytes;   /* [n_layer + n_mtp] estimated bytes of each layer's weights, all ranks together */
    uint64_t  embedding_bytes; /* estimated: on the first stage */
    uint64_t  head_bytes;      /* estimated: the output head, on the last stage; the same table again where it is tied */
    uint8_t   head_is_tied;    /* 1: one table serves both ends, so a single stage holds embedding_bytes only */
    ModelPlan plan;
} ModelConfig;

/** Reads `path`: a .json file, a .gguf file, or a directory with config.json or params.json.
 *  A model_type of a family that is not known is planned from its fields, and one KVG_LOG_WARN says so.
 *  EIO unreadable; EFORMAT malformed, naming the field; ENOTSUP an unknown cache scheme, naming the key; ENOMEM. */
KVG_API KvgStatus kvg_model_config_load(const char *path, ModelConfig *config);
/** The same from JSON text in memory; `name` is for messages. */
KVG_API KvgStatus kvg_model_config_parse_json(const char *text, size_t bytes, const char *name, ModelConfig *config);
/** The same from a GGUF header in memory (the metadata part; tensor data is not needed). Every read is bounds-checked. */
KVG_API KvgStatus kvg_model_config_parse_gguf(const void *bytes, size_t byte_count, const char *name, ModelConfig *config);
/** Frees and zeroes; a zeroed config is allowed. */
KVG_API void kvg_model_config_free(ModelConfig *config);

/** "KvCache", "SlidingKvCache", "LatentKvCache", "Recurrent", "SharedKv", "None". */
KVG_API const char *kvg_state_kind_name(KvStateKind kind);

/** The formats of a K/V layer (S2): what is asked for wins (each half for itself), else fp8 for both when the layer's
 *  class's switch is on, else the policy's pair. `asked_k`, `asked_v` may be KVG_POLICY.
 *  EINVAL: not a K/V layer, or an illegal format, naming the legal ones. EGEOM: a head dimension is no multiple of 32 in a block format. */
KVG_API KvgStatus kvg_layer_formats(const StatePlan *layer, const KvgPolicy *policy, KvFormat asked_k, KvFormat asked_v,
                                    KvFormat *format_k, KvFormat *format_v);

KVG_END_DECLS
#endif

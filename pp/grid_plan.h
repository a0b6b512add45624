/** KvGridPlan: how a model falls on a grid, and what fits (S3, S4, S9). Pure: values in, values out.
 *
 * The same numbers drive `kvgrid plan`, kvg_place on every rank, and the ledger: fence, heads, bytes a token and fixed bytes of
 * each rank, classes and their units, capacity. A unit is 64 rows of one class. Reach: local. Threads: any. */
#ifndef KVG_GRID_PLAN_H
#define KVG_GRID_PLAN_H

#include <kvgrid/sizing.h>
#include <kvgrid/view.h>

KVG_BEGIN_DECLS

#define KVG_PLAN_CLASSES_MAX 8

typedef struct KvGridPlanOptions {
    size_t          size;          /* set by KVG_GRID_PLAN_OPTIONS_INIT */
    uint32_t        tp, pp;        /* >= 1 */
    KvSizing        sizing;        /* policy and formats */
    KvLayout        layout;
    uint64_t        ctx;           /* T; 0: the model's context, else 32768 */
    uint32_t        prefill_chunk_max; /* 0: 4096 */
    uint32_t        max_sequences; /* slots; 0: as many as fit (recurrent slots and windowed caps count per slot) */
    uint32_t        spec_columns;  /* 0: 2 */
    int             with_mtp;      /* MTP blocks live on the last stage */
    const uint64_t *state_bytes;   /* [tp*pp] bytes each rank gives to sequence state; NULL: unknown, nothing is counted to fit */
    const uint64_t *device_bytes;  /* [tp*pp] or NULL: bytes of each rank's device; state = device - weights - reserve. Not both. */
    uint64_t        reserve_bytes;
    uint64_t        weights_bytes; /* of the whole model; 0: the config's estimate */
    const uint64_t *layer_bytes;   /* [n_layer + n_mtp] weight bytes a layer; NULL: weights spread as the config's estimates are */
    const uint32_t *fence;         /* [pp+1] {0, c1, .., n_layer}; NULL: partition (S9) */
    size_t          granularity;   /* planes' slabs are rounded up to it; 0: not rounded */
} KvGridPlanOptions;

#define KVG_GRID_PLAN_OPTIONS_INIT { sizeof(KvGridPlanOptions), 1, 1, { {0}, KVG_POLICY, KVG_POLICY, KVG_POLICY }, KVG_LAYOUT_POOL, 0, 0, 0, 0, 0, NULL, NULL, 0, 0, NULL, NULL, 0 }

typedef struct KvClassPlan {
    KvStateKind kind;      /* KV (full), SLIDING_KV, LATENT; recurrent state is slots, not a class */
    uint64_t    window;    /* 0: every row is kept */
    int         ring;      /* rows behind the window fall away */
    uint64_t    row_cap;   /* most rows one sequence holds */
    uint32_t    unit_cap;  /* most units one sequence books */
    uint32_t    units;     /* agreed pool size; 0 while nothing is known about memory */
    uint32_t    units_per_sequence; /* a sequence of T tokens books */
    uint32_t    layers;    /* that own planes, whole model */
} KvClassPlan;

typedef struct KvRankPlan {
    uint32_t rank, stage, tp_rank;
    uint32_t lo, hi;               /* layers [lo, hi); the last stage's run on into the MTP blocks when with_mtp */
    uint64_t bytes_per_token;      /* S3 on this rank's heads: every layer, windows included */
    uint64_t ring_bytes_per_token; /* of those, what stops growing at the window while the ring is on */
    uint64_t fixed_bytes;          /* per sequence at T tokens (20 and 12 a layer, recurrent columns, index rings) */
    uint64_t duplicate_bytes_per_token; /* bytes that another rank of the stage holds too (replicated heads, latents), all but one copy */
    uint64_t duplicate_fixed_bytes;
    uint64_t weight_bytes;
    uint64_t state_bytes;          /* what is left for sequence state; 0 when unknown */
    uint64_t class_unit_bytes[KVG_PLAN_CLASSES_MAX]; /* bytes of one unit of each class on this rank */
    uint64_t slot_bytes;           /* fixed bytes a sequence slot books in the pooled layout (recurrent, index rings) */
} KvRankPlan;

typedef struct KvGridPlan {
    uint32_t     tp, pp, ranks_count;
    uint32_t     n_layer, n_mtp;
    uint64_t     ctx;            /* T */
    uint64_t     max_ctx;        /* longest a sequence may ever get: the model's context, or T where it does not say */
    uint32_t     prefill_chunk_max;
    uint32_t    *fence;          /* [pp+1] over the trunk */
    KvRankPlan  *ranks;          /* [tp*pp] */
    uint32_t     class_count;
    KvClassPlan  classes[KVG_PLAN_CLASSES_MAX];
    uint32_t    *class_of_layer; /* [n_layer+n_mtp]; UINT32_MAX: no rows. A sharing layer has its source's. */
    KvFormat    *format_k, *format_v; /* [n_layer+n_mtp]; KVG_POLICY where the layer has no K/V rows */
    int          memory_known;
    uint64_t     cache_tokens;   /* tokens of the whole pool in sequences of T */
    uint64_t     max_context;    /* longest single sequence that fits, at most max_ctx */
    uint64_t     max_sequences;  /* sequences of T tokens that fit together */
    uint32_t     slots;          /* sequences that may be open at once */
    int32_t      limiting_rank;  /* -1: unknown */
} KvGridPlan;

/** Computes the plan; free it by kvg_grid_plan_free.
 *  EINVAL; EGEOM a head count that does not fall on tp (lists the TP sizes that work), a fence that cuts a sharing layer from its source,
 *  head dimensions that cut a block; ENOMEM a stage's weights over its device, naming stage and bytes; ENOTSUP. */
KVG_API KvgStatus kvg_grid_plan(const ModelConfig *config, const KvGridPlanOptions *options, KvGridPlan *plan);
KVG_API void      kvg_grid_plan_free(KvGridPlan *plan);

/** Units that a sequence of `rows` rows books in a class (S3): ceil(rows/64), at most its cap. */
KVG_API uint32_t kvg_class_plan_units(const KvClassPlan *class_plan, uint64_t rows);

KVG_END_DECLS
#endif

/* Forward: one rank's share of the model, walked over a step: its stage's layers, its heads. This is where an engine meets kvgrid's planes: rows are
 * written by kvg_write_kv and read back through kvg_plane_view, by its bases, strides, tables and lengths. */
#ifndef EMBED_FORWARD_H
#define EMBED_FORWARD_H

#include "between.h"
#include "orders.h"
#include "transformer.h"

typedef struct Forward {
    const Model *model;
    Between     *between;
    uint32_t     tp, pp, stage, tp_rank;
    uint32_t     lo, hi;         /* layers of this rank's stage */
    uint32_t     heads, head_lo; /* its query heads, and FFN blocks */
    float       *memory;         /* everything below lies in it */
    float       *x, *normed;     /* [STEP_TOKENS_MAX][MODEL_HIDDEN] */
    float       *k, *v;          /* [STEP_TOKENS_MAX][KV heads here][MODEL_DIM]: what goes to kvg_write_kv */
    float       *partial;        /* [heads here][tokens][MODEL_HIDDEN] */
    float       *gathered;       /* [MODEL_HEADS][tokens][MODEL_HIDDEN] */
    float       *keys, *values;  /* [MODEL_CONTEXT][MODEL_DIM]: one head's rows as stored */
    uint64_t     position[STEP_TOKENS_MAX];
    uint32_t     tokens;         /* of the step, those of places that were left out not among them */
} Forward;

/* ENOMEM; EGEOM query heads do not fall on tp. */
KvgStatus forward_create(const KvgGrid *grid, const KvgPlacement *placement, const Model *model, Between *between, Forward *forward);
void      forward_free(Forward *forward);

/* What the last stage finds after each row that was granted. */
typedef struct Found {
    uint16_t next[STEP_TOKENS_MAX]; /* the model's next token */
    uint64_t bits[STEP_TOKENS_MAX]; /* model_bits of the residual that says so */
} Found;

/* Walks the stage's layers; *found is written on the last stage. What fails here alone is voted:
 * the caller posts. EPEER, EINDOUBT: a rank did not come. */
KvgStatus forward_step(Forward *forward, KvgBatch *batch, const KvgStep *step, const Order *order, Found *found);

#endif

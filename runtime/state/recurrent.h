/** RecurLayer: the state of a recurrent layer (GDN, KDA, Mamba-1, Mamba-2), in slots of columns (S8).
 *
 * A sequence's slot holds `columns` copies of the layer's state. A step reads the current column and writes others; publishing
 * switches an index, a refused step switches nothing, nothing is ever copied. Kernels read the indices from device memory, so captured
 * graphs stay valid:
 *
 *   for the rows i = 0.. of a sequence's pass, in order, starting from the state in column read[slot]:
 *     state := update(state, row i)
 *     if each[slot]: store it in column (write[slot] + i) mod columns     every prefix can be taken, accepted = a switches to the a-th
 *     else after the last row: store it in column write[slot]             only the end can be taken; a partial accept owes a replay
 *
 *   conv   [slots][columns][conv_elements]  f32   heads in part order, each [width][taps]
 *   state  [slots][columns][state_elements] f32   heads in part order, each [width]
 * Both are this rank's share: each part is cut by head_shard over its own heads; replicated heads are whole on each rank that has them.
 * Device memory, constant addresses. */
#ifndef KVG_RECURRENT_H
#define KVG_RECURRENT_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/model.h>

KVG_BEGIN_DECLS

typedef struct KvRecurrentPartView {
    uint32_t is_state;   /* 0: conv channels, 1: state elements */
    uint32_t heads;      /* on this rank */
    uint32_t head_first; /* the first of them, in the part */
    uint32_t head_index; /* the number of head_first among all heads of the conv (or state) parts of the model: the digest's head */
    uint32_t width;      /* channels or elements of one head */
    uint32_t replicas;   /* ranks of the stage that hold each of these heads */
    uint64_t offset;     /* of the part in the column, elements */
} KvRecurrentPartView;

typedef struct KvRecurrentView {
    uint32_t layer;
    uint32_t columns;
    uint32_t taps;       /* conv_kernel - 1 */
    uint32_t part_count;
    KvRecurrentPartView parts[KVG_RECURRENT_PARTS_MAX];
    uint64_t conv_channels;  /* on this rank */
    uint64_t conv_elements;  /* channels * taps */
    uint64_t state_elements;
    uint64_t conv_slot_stride, state_slot_stride; /* elements from one slot to the next: columns * elements, rounded up */
    float   *conv, *state;
    const int32_t *read;  /* [slots] */
    const int32_t *write; /* [slots] */
    const int32_t *each;  /* [slots] 1: each row has a column of its own */
} KvRecurrentView;

/** One token's update, elementwise in f32, multiplication and addition rounded apart: what kvg_recurrent_update applies row by row.
 *   conv   taps shift by one and the newest becomes x:  out[c][j] = in[c][j+1], out[c][taps-1] = x[c]
 *   state  out[e] = decay * in[e] + u[e]
 * `in` and `out` may be the same column. x [channels], u [elements]: this rank's, in the column's order. */
KVG_API void kvg_recurrent_token(const float *conv_in, const float *state_in, const float *x, const float *u, float decay,
                                 uint64_t channels, uint32_t taps, uint64_t elements, float *conv_out, float *state_out);

/** A pass of one slot of a layer: its rows in order, through the columns as above. No column that a pass writes is the one it reads, unless `each`
 *  is 0 and they are named the same: then the state is updated in place.
 *   conv, state  column 0 of the slot   x [rows][channels]   u [rows][elements] */
typedef struct KvRecurrentPass {
    float       *conv, *state;
    uint32_t     read, write, each, columns;
    uint32_t     taps;
    uint64_t     channels, elements;
    uint32_t     rows;
    float        decay;
    const float *x, *u;
} KvRecurrentPass;

/** kvg_recurrent_token row by row. */
KVG_API void kvg_recurrent_pass(const KvRecurrentPass *pass);

/** The columns of the rows that follow: a pass may go in pieces, each of which starts where the one before has ended. */
static inline void kvg_recurrent_pass_advance(KvRecurrentPass *pass, uint32_t rows)
{
    if (rows == 0) return;
    pass->read = pass->each ? (pass->write + rows - 1) % pass->columns : pass->write;
    if (pass->each) pass->write = (pass->write + rows) % pass->columns;
}

KVG_END_DECLS
#endif

/* Replay's rows: numbers that any rank can make again, with no model. Private to the command.
 *
 * A value is a function of (seed, request, layer, plane, head, position, element): no state runs along, so the rank that holds
 * a head makes it, and a check makes it again, in any order. Drafts that will be rejected come from another stream, which the
 * round belongs to as well: a row left behind by a rollback is then no row that any run accepts.
 *
 *   stream key (seed, request, layer, plane)  -> row key (head, position[, round])  -> elements, 32 at a time with one scale
 *
 * Integers, one exact conversion and one multiplication by a power of two: the same bits on every machine. Pure; threads: any. */
#ifndef KVG_COMMAND_REPLAY_GENERATOR_H
#define KVG_COMMAND_REPLAY_GENERATOR_H

#include <stddef.h>
#include <stdint.h>

/* What a plane of a layer of a request is drawn from. plane: KVG_PLANE_K to KVG_PLANE_STATE; of the last two, what goes into an update. */
uint64_t kvg_replay_stream_key(uint64_t seed, uint64_t request, uint32_t layer, uint32_t plane);
/* The row that is accepted at `position`. head is the model's, not the rank's: in recurrent layers the digest's head (KvRecurrentPartView.head_index). */
uint64_t kvg_replay_row_key(uint64_t stream_key, uint32_t head, uint64_t position);
/* The row of a draft that `round` rejects at that position. */
uint64_t kvg_replay_rejected_key(uint64_t row_key, uint64_t round);

enum { REPLAY_RUN_ELEMENTS = 32 }; /* elements that share a scale: a quantisation block */

/* target [elements] f32 in [-4, 4]; each 32 share one of eight scales, 4 down to 1/32. */
void kvg_replay_fill(uint64_t row_key, float *target, size_t elements);
/* Elements [first, first+elements) of the same row. first: a multiple of REPLAY_RUN_ELEMENTS. */
void kvg_replay_fill_from(uint64_t row_key, size_t first, float *target, size_t elements);

/* Replay's recurrent state: each token decays it and adds the token's row, which is kvg_recurrent_token (kvgrid/recurrent.h):
 *   state := decay * state + row(row_keys[i])      elementwise f32, product and sum rounded apart
 * The decay is 1 - 1/512, exact in f32: a wrong row still shows thousands of tokens later, and the state stays bounded. */
#define REPLAY_DECAY 0.998046875f
/* The rule over `rows` tokens, made and applied in one go: nothing of a row is ever in memory.
 *   in   [elements] the state before the first row; read before anything of the same 32 elements is written
 *   out  [rows] where the state after each row goes, [elements] each; NULL: nowhere. One of them may be `in`. */
void kvg_replay_fold(const uint64_t *row_keys, uint32_t rows, float decay, size_t elements, const float *in, float *const *out);

/* Replay's pool key: of a pool's rows, each half values and half gates, the sum of the gated values in row order.
 *   rows [pool][2*key_width]   key [key_width] */
void kvg_replay_pool_key(const float *rows, uint32_t pool, uint32_t key_width, float *key);

#endif

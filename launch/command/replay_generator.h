/* Replay's K and V: numbers that any rank can make again, with no model. Private to the command.
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

/* What a plane of a layer of a request is drawn from. plane: KVG_PLANE_K or KVG_PLANE_V. */
uint64_t kvg_replay_stream_key(uint64_t seed, uint64_t request, uint32_t layer, uint32_t plane);
/* The row that is accepted at `position`. head is the model's, not the rank's. */
uint64_t kvg_replay_row_key(uint64_t stream_key, uint32_t head, uint64_t position);
/* The row of a draft that `round` rejects at that position. */
uint64_t kvg_replay_rejected_key(uint64_t row_key, uint64_t round);

/* target [elements] f32 in [-4, 4]; each 32 share one of eight scales, 4 down to 1/32. */
void kvg_replay_fill(uint64_t row_key, float *target, size_t elements);

#endif

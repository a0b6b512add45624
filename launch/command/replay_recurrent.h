/* Replay's recurrent layers: a step's rows through the columns that the view names, as an engine's kernel would. Private to the command.
 *
 * What a token does is kvg_recurrent_token (kvgrid/recurrent.h), with rows of planes KVG_PLANE_CONV (x) and KVG_PLANE_STATE (u) and
 * REPLAY_DECAY. State is updated head by head, 32 elements through all rows of the step, so each is read and written once.
 * The update is of host memory; elsewhere its rows are made here and applied by the device. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_RECURRENT_H
#define KVG_COMMAND_REPLAY_RECURRENT_H

#include "launch/command/replay_planes.h"

/* Room for a step; [rows_max] each but for x. */
typedef struct ReplayRecurrentScratch {
    uint64_t *keys;
    float   **heads; /* where a head's state goes after each row */
    float    *x;     /* [row_elements_max] channels of one head */
} ReplayRecurrentScratch;

/* Updates layer `layer` of the sequence in `slot` by the span, whose step is begun: from column read[slot] into write[slot] and, if each[slot],
 * the ones after it. */
void kvg_replay_update_recurrent(const ReplayMaker *maker, const ReplayLayer *layer, uint32_t slot, const ReplaySpan *span,
                                 const ReplayRecurrentScratch *scratch);

/* What row i of the span adds: x [conv_channels], u [state_elements], in the column's order. For devices that apply it themselves. */
void kvg_replay_make_update(const ReplayMaker *maker, const ReplayLayer *layer, const ReplaySpan *span, uint32_t i, float *x, float *u);

/* The part of a recurrent layer that a check looks at: of part `part`, elements (of conv parts, channels) [first, first+count) of one of this rank's
 * heads, drawn from seed, request and layer. */
enum { REPLAY_STATE_SAMPLE = 1024 }; /* floats at most */
typedef struct ReplayStateSample {
    uint32_t head; /* on this rank */
    uint32_t first, count;
} ReplayStateSample;
ReplayStateSample kvg_replay_sample_state(const ReplayMaker *maker, const ReplayLayer *layer, uint32_t part, uint64_t request);
/* Where the sample stands in the current column, between steps, and how many floats that is. */
float *kvg_replay_stored_state(const KvRecurrentView *view, uint32_t part, const ReplayStateSample *sample, uint32_t slot, size_t *elements);

#endif

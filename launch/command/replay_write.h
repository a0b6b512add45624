/* Replay's writing of a step: every layer of this rank gets the rows of all seats. Private to the command.
 *
 *   K/V, latent   a layer's rows of all seats are made, then encoded by one call     recurrent   seat by seat, into the columns
 *
 * Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_WRITE_H
#define KVG_COMMAND_REPLAY_WRITE_H

#include "launch/command/replay_lane.h"

/* Room for the rows of a step of at most `rows` rows. On failure what was got is freed by kvg_replay_write_free, as after success. */
KvgStatus kvg_replay_write_create(uint64_t rows, ReplayShared *shared);
void      kvg_replay_write_free(ReplayShared *shared);

/* Writes the lane's begun step. In between it looks whether votes under way are decided. */
KvgStatus kvg_replay_write_layers(ReplayShared *shared, ReplayLane *lane);

#endif

/* Replay's place: its device and its binding on the machine, and the words about it. Private to the command. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_PLACE_H
#define KVG_COMMAND_REPLAY_PLACE_H

#include "launch/command/replay_mpi.h"
#include "launch/command/replay_options.h"
#include "launch/rank/place_rank.h"

/* Chooses this rank's device where --device or --vote want one, binds it as --bind says, and sets launch->device, its id, and launch->binding. EINVAL with the
 * cure: devices do not go round, or local ranks do not add up. Reach: collective, also where it fails. */
KvgStatus kvg_replay_place(const ReplayOptions *options, ReplayLaunch *launch);

/* Prints the binding's lines: one for all ranks that fared alike. launch->binding NULL: nothing. */
void kvg_replay_place_print(const char (*words)[RANK_WORDS], int ranks);

#endif

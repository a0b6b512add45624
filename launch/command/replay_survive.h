/* Replay's survivors: what a rank does when another is gone. Private to the command. */
#ifndef KVG_COMMAND_REPLAY_SURVIVE_H
#define KVG_COMMAND_REPLAY_SURVIVE_H

#include "launch/command/replay_run.h"

/* 1: forked ranks have lost one of theirs in the run, of which `*served` is the end on this rank. Collective where that is KVG_OK: a rank that has
 * decided all may hold what another has not. A failure of this rank alone ends it here. */
int kvg_replay_is_bereaved(const ReplayRun *run, KvgStatus *served);
/* Settles with the other survivors, shows what is held, and waits until those left out are gone; the exit status. */
int kvg_replay_survive(ReplayRun *run);

#endif

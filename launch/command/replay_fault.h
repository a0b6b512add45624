/* Replay's scripted faults: what --fault asks for. Private to the command.
 *
 *   flip:R@stepN    rank R flips one stored bit after step N commits
 *   refuse:R@stepN  rank R votes no on step N
 *
 * A flip takes a row, a key or recurrent state that is still held as it stands, and looked at, when its request closes; where step N
 * offers none yet (every committed row will have left its window by then, state will be written again) the first later step that does is
 * taken. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_FAULT_H
#define KVG_COMMAND_REPLAY_FAULT_H

#include "launch/command/replay_recurrent.h"

typedef enum ReplayFaultKind { REPLAY_FAULT_NONE = 0, REPLAY_FAULT_FLIP, REPLAY_FAULT_REFUSE } ReplayFaultKind;

typedef struct ReplayFault {
    ReplayFaultKind kind;
    uint32_t        rank;
    uint64_t        step; /* from 1 */
} ReplayFault;

/* Parses "flip:R@stepN" or "refuse:R@stepN". EINVAL lists them; *fault is unchanged then. */
KvgStatus kvg_replay_fault_parse(const char *text, ReplayFault *fault);

struct ReplaySight;

/* Flips one bit of what `request` keeps and will be sampled at its close, `total` rows long. Rows below `standing` are committed and not
 * owed as a replay, which would write them again. 1 if a bit was flipped, 0 if this rank has none to flip yet. */
int kvg_replay_flip(const ReplayPlanes *planes, struct ReplaySight *sight, const ReplayMaker *maker, uint64_t request, uint32_t slot,
                    uint64_t standing, uint64_t total);

#endif

/* Replay's scripted faults: what --fault asks for. Private to the command.
 *
 *   flip:R@stepN    rank R flips one stored bit after step N commits
 *   refuse:R@stepN  rank R votes no on step N
 *   oom:R@growN     rank R finds no memory when sequences grow for the Nth time: what the step takes from its device fails there. Where growing takes
 *                   nothing (pools have their units from the start), rank R votes no for want of memory, as an engine would without its own buffers
 *   kill:R@Ts       rank R is killed by SIGKILL, T seconds after the first step
 *   exit:R@Ts       rank R leaves with status 3 and says nothing
 *   stall:R@Ts      rank R stands still, without a sign of life, for three times KVGRID_TIMEOUT_MS, then goes on
 *
 * A flip takes a row, a key or recurrent state that is still held as it stands, and looked at, when its request closes; where step N
 * offers none yet (every committed row will have left its window by then, state will be written again) the first later step that does is
 * taken. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_FAULT_H
#define KVG_COMMAND_REPLAY_FAULT_H

#include "launch/command/replay_recurrent.h"

typedef enum ReplayFaultKind {
    REPLAY_FAULT_NONE = 0, REPLAY_FAULT_FLIP, REPLAY_FAULT_REFUSE, REPLAY_FAULT_OOM, REPLAY_FAULT_KILL, REPLAY_FAULT_EXIT, REPLAY_FAULT_STALL
} ReplayFaultKind;

enum { REPLAY_EXIT_OF_FAULT = 3, REPLAY_FAULT_WORDS = 160 };

typedef struct ReplayFault {
    ReplayFaultKind kind;
    uint32_t        rank;
    uint64_t        step; /* or growth, from 1; or milliseconds */
} ReplayFault;

/* Parses one of the above; T has at most three decimals. EINVAL lists them; *fault is unchanged then. */
KvgStatus kvg_replay_fault_parse(const char *text, ReplayFault *fault);

/* 1: it strikes at a time. */
int kvg_replay_fault_is_timed(const ReplayFault *fault);
/* "flip:1@step3 struck: .." of a fault that a run outlives; "" of others. */
const char *kvg_replay_fault_words(const ReplayFault *fault, char text[REPLAY_FAULT_WORDS]);
/* The fault's time has come: kills this process, leaves it, or stands still for `stall_ms`. */
void kvg_replay_fault_strike(const ReplayFault *fault, uint64_t stall_ms);

struct ReplaySight;

/* Flips one bit of what `request` keeps and will be sampled at its close, `total` rows long. Rows below `standing` are committed and not
 * owed as a replay, which would write them again. 1 if a bit was flipped, 0 if this rank has none to flip yet. */
int kvg_replay_flip(const ReplayPlanes *planes, struct ReplaySight *sight, const ReplayMaker *maker, uint64_t request, uint32_t slot,
                    uint64_t standing, uint64_t total);

#endif

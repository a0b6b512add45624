/* Replay's vote: how the ranks tell each other their records. Private to the command.
 *
 *   host    by MPI (or nothing, for one rank)
 *   nccl    by all-gathers on the GPUs      device   over a board in the GPUs' memory      both fall back on MPI after a fault, and say so
 *   auto    host: replay's steps are driven by the host, and an MPI record between two ranks takes less time than the launch of a kernel
 *
 * What is asked for by name is had or refused by name. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_VOTE_H
#define KVG_COMMAND_REPLAY_VOTE_H

#include <kvgrid/kvgrid.h>

#include "launch/command/replay_mpi.h"
#include "launch/command/replay_options.h"

typedef struct ReplayVote {
    KvComm     comm;     /* for the grid, which takes it over; ops NULL: the grid makes its own */
    KvLiveness liveness; /* likewise */
    const char *kind;    /* "host", "nccl", "device" */
    int         ranks;
} ReplayVote;

/* Whether this rank can have what was asked for, alone. ENOTSUP: no NCCL compiled in or loaded, another NCCL than compiled against, no GPU. */
KvgStatus kvg_replay_vote_check(const ReplayOptions *options);
/* Collective: all ranks have it or none. sequences: the most of a step. ENOTSUP ranks cannot reach each other; EINVAL two on one GPU; EPEER, EINDOUBT. */
KvgStatus kvg_replay_vote_open(const ReplayOptions *options, const ReplayLaunch *launch, const KvgPolicy *policy, uint32_t sequences, ReplayVote *vote);
/* Where no grid has taken it over. */
void kvg_replay_vote_close(ReplayVote *vote);

/* "nccl, by all-gathers on the GPUs", or what has become of it. While the grid is there. */
void kvg_replay_vote_words(const ReplayVote *vote, char *words, size_t bytes);

#endif

/* Replay's launch: from a process to a rank, and one voice for all ranks. Private to the command.
 *
 * MPI is initialised only under a launcher that speaks to it (mpirun, srun --mpi=pmix); any other process is a grid of one rank.
 * The command owns MPI here, so it may abort it: a rank that cannot reach the others ends the job. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_MPI_H
#define KVG_COMMAND_REPLAY_MPI_H

#include <kvgrid/kvgrid.h>

#include "launch/rank/device_choice.h"

struct ReplayFork;

typedef struct ReplayLaunch {
    KvgBootstrap bootstrap;
    int          with_mpi;
    int          local_ranks; /* ranks on this machine */
    uint32_t     timeout_ms;  /* of every wait for the other ranks */
    uint8_t     *lost;        /* [ranks] 1: the grid found it gone */
    int          device;      /* this rank's GPU, as its driver counts; 0 where it has none */
    uint8_t      device_id[RANK_DEVICE_ID]; /* its UUID */
    void        *binding;     /* char [ranks][RANK_WORDS], how each is bound; NULL: not done yet */
    struct ReplayFork *fork;  /* NULL: not forked by --ranks */
    /* Set where another speaks for this rank: takes its last words. hearsay: they are about another rank. */
    void       (*leave)(const struct ReplayLaunch *launch, int hearsay, const char *sentence);
} ReplayLaunch;

/* Makes this process a rank. Then, on all ranks alike, checks SLURM_NTASKS against the ranks there are. */
KvgStatus kvg_replay_launch_start(ReplayLaunch *launch);
/* EINVAL where a launcher has started this process already: --ranks would fork a grid in each of its ranks. */
KvgStatus kvg_replay_check_forking(void);
/* The transport for kvg_grid_create; NULL ops where one rank needs none. Collective. */
KvgStatus kvg_replay_launch_comm(const ReplayLaunch *launch, KvComm *comm);
/* From here on nothing is left but to free what MPI knows of, for which MPI waits without bound: an alarm ends a wait longer than
 * the timeout. Local. */
void kvg_replay_launch_ending(const ReplayLaunch *launch);

/* Collective. Nothing may be in flight. */
void kvg_replay_launch_stop(ReplayLaunch *launch);
/* Notes a lost rank; a KvgGridOptions.on_lost whose user is the launch. */
void kvg_replay_launch_lost(void *launch, int rank, const char *why);
/* Ends every rank with `code`, for when the others cannot be asked. The lowest rank that is not lost says why: the last error;
 * if that one hangs, the next. */
_Noreturn void kvg_replay_launch_abort(const ReplayLaunch *launch, int code);

/* Collective: how this rank fared (`mine`, with the last error as its sentence) against all others. Answers KVG_OK when every rank did
 * well; else the lowest failing rank's status, after rank 0 has printed that rank's sentence, once. Does not return where the others
 * cannot be asked: KVG_EINDOUBT, KVG_EPEER, or no answer within the timeout. */
KvgStatus kvg_replay_agree(const ReplayLaunch *launch, KvgStatus mine);

/* The same; `knows` 1: this rank is the one that says why all fail, such as the one that refused a step. */
KvgStatus kvg_replay_agree_why(const ReplayLaunch *launch, KvgStatus mine, int knows);

/* Collective: EINVAL, the same on every rank, naming the first of `count` values that differs between rank 0 and another rank. What
 * the grid's own handshake does not see: options that make ranks walk or write differently. */
typedef struct ReplayItem {
    const char *name;
    uint64_t    value;
} ReplayItem;
KvgStatus kvg_replay_compare(const ReplayLaunch *launch, const ReplayItem *items, size_t count);

#endif

/* Replay's own launcher: `--ranks N` forks the ranks of a grid on this machine, without MPI. Private to the command.
 *
 *   launcher  the process that was started: forks, watches, says who survives a fault, reports, leaves nothing running
 *   rank      a child: the run of one rank. They share one anonymous page, through which they gather and report
 *
 *   seat      joined -> ended                                  a run without a fault
 *             joined -> wants k -> settled k -> shown -> ended a survivor: it asks for settle k, settles with the members that the launcher
 *                                                              calls, shows what it holds
 *             joined -> wants k -> out                         called without it: it was silent for too long
 *             joined -> gone                                   the launcher has seen it die
 *
 * mpirun ends survivors itself; here they live to tell. Threads: one in each process. */
#ifndef KVG_COMMAND_REPLAY_FORK_H
#define KVG_COMMAND_REPLAY_FORK_H

#include <stdatomic.h>
#include <sys/types.h>

#include "launch/command/replay_mpi.h"
#include "launch/command/replay_options.h"
#include "launch/command/replay_trail.h"

enum { FORK_RANKS_MAX = 64, FORK_PIECE = 64 << 10, FORK_WORDS = 512, FORK_HOST = 65 };

typedef struct ForkSeat { /* written by its rank, but for `gone`; read by all */
    atomic_uint     arrived;    /* pieces of all-gathers entered */
    atomic_int      gone;       /* 1: the launcher has seen it die */
    atomic_uint     wants;      /* settles asked for */
    atomic_uint     settled;    /* the last that went well here */
    atomic_int      shown;      /* 1: `holding`; 2: and `later` */
    atomic_int      out;        /* 1: it has found itself left out */
    atomic_int      ended;      /* 1: its run returned, or it has said its last words */
    _Atomic uint64_t struck_ns; /* when its scripted fault struck; 0: has not */
    uint64_t        noticed_ns; /* when it first asked for a settle */
    char            why[FORK_WORDS];   /* what it noticed */
    char            words[FORK_WORDS]; /* its last, where it left by itself; "" */
    int             hearsay;    /* 1: they are about another rank */
    ReplayHolding   holding;    /* once settled */
    ReplayHolding   later;      /* once those left out have gone */
} ForkSeat;

/* What the processes share. The two halves of `data` alternate: nobody writes piece g+2 before all have read piece g. */
typedef struct ForkPage {
    int         ranks;
    uint32_t    timeout_ms, peer_ms;
    char        host[FORK_HOST];
    atomic_uint called;                  /* settles called: `member` says with whom */
    atomic_uint finished;                /* the last that all its members have ended well */
    atomic_int  left_gone;               /* 1: nobody who was left out is running */
    uint8_t     member[FORK_RANKS_MAX];
    pid_t       pids[FORK_RANKS_MAX];
    ForkSeat    seats[FORK_RANKS_MAX];
    uint8_t     data[2][FORK_RANKS_MAX][FORK_PIECE];
} ForkPage;

typedef struct ReplayFork { /* one rank's end */
    ForkPage *page;
    int       rank;
} ReplayFork;

/* What the launcher saw. */
typedef enum ForkEnd { FORK_RUNS = 0, FORK_EXITED, FORK_SIGNALLED } ForkEnd;

typedef struct ForkWatch {
    ForkPage *page;
    int       ranks, running;
    ForkEnd   end[FORK_RANKS_MAX];
    int       code[FORK_RANKS_MAX];       /* exit status or signal */
    uint64_t  ended_ns[FORK_RANKS_MAX];
    uint64_t  stopped_ns[FORK_RANKS_MAX]; /* last seen to be stopped by a signal; 0: never */
    int       is_stopped[FORK_RANKS_MAX];
    int       put_down[FORK_RANKS_MAX];   /* 1: ended by the launcher */
    int       lost[FORK_RANKS_MAX];       /* 1: not among those who settled last, or died */
    uint64_t  trouble_ns;                 /* 0: none */
    uint64_t  called_ns;
    int       overdue;                    /* 1: somebody had to be ended who should have left by itself */
} ForkWatch;

typedef int (*ReplayRankBody)(const ReplayOptions *options, ReplayLaunch *launch);

/* Forks options->ranks ranks that run `body`, and returns the command's exit status when none of them is left. */
int kvg_replay_fork_run(const ReplayOptions *options, ReplayRankBody body);

/* ---- of a rank */

/* Asks for a settle and waits until it is called, giving signs of life to the others. 1: with this rank among `survivors` [*count]; 0: without. */
int kvg_replay_fork_survivors(ReplayFork *fork, KvgGrid *grid, const char *why, int survivors[FORK_RANKS_MAX], int *count);
/* Says that the settle went well here and waits for the other members. 1: all are settled; 0: another settle is needed. */
int kvg_replay_fork_all_settled(ReplayFork *fork, KvgGrid *grid);
/* Shows what this rank holds; then, once those left out have gone, again by `look`. */
void kvg_replay_fork_show(ReplayFork *fork, KvgGrid *grid, KvgStatus (*look)(void *user, ReplayHolding *holding), void *user);
/* This rank was left out: says so on stderr. */
void kvg_replay_fork_out(ReplayFork *fork);
/* A scripted fault strikes now. */
static inline void kvg_replay_fork_struck(ReplayFork *fork, uint64_t now_ns) { atomic_store(&fork->page->seats[fork->rank].struck_ns, now_ns); }

/* ---- of the launcher */

/* Watches until no rank runs. */
void kvg_replay_fork_watch(ForkWatch *watch);
/* Says what happened, once, and gives the command's exit status. */
int  kvg_replay_fork_tell(const ForkWatch *watch, const ReplayOptions *options);

#endif

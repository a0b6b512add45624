/* SLURM's word on a launch. Private to the command.
 *
 * srun without a PMI that MPI was built for starts every task as rank 0 of 1 (S7/B96): copies that each run the whole job. Replay refuses
 * that and doctor tells of it, by the one rule here. Reads the environment alone. Threads: none. */
#ifndef KVG_COMMAND_SLURM_H
#define KVG_COMMAND_SLURM_H

#include <kvgrid/status.h>

typedef struct SlurmView {
    const char *tasks;     /* SLURM_NTASKS; NULL or "" when unset */
    int         in_step;   /* 1: srun started this process; 0: a job's shell did, or no job */
    int         other_pmi; /* 1: srun handed it a PMI, and not PMIx */
    int         by_mpirun; /* 1: mpirun counted the ranks, inside a job whose step counts may be its daemons' own */
} SlurmView;

SlurmView kvg_slurm_view(void);

/* Whether a launcher that MPI_Init will find started this process. srun without the PMIx plugin is none. */
int kvg_slurm_is_launched(void);

/* EINVAL naming both numbers and the cure where SLURM counts other tasks than MPI counts ranks. */
KvgStatus kvg_slurm_check(const SlurmView *view, int ranks);

/* The same for a process that will fork the ranks itself: EINVAL where it is one of several tasks of a step. */
KvgStatus kvg_slurm_check_forking(const SlurmView *view);

#endif

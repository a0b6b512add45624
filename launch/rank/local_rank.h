/* Local rank: which of a machine's ranks a process is. A pure function of what its launcher and the other ranks say. Private.
 *
 *   the ranks themselves   who gave the same machine's name: the truth wherever they can be asked (MPI_Comm_split_type says the same, but would
 *                          wait for ever for a rank that hangs)
 *   OMPI_COMM_WORLD_LOCAL_RANK, _LOCAL_SIZE   mpirun of Open MPI
 *   MPI_LOCALRANKID, MPI_LOCALNRANKS          mpirun of MPICH and Intel MPI
 *   SLURM_LOCALID                             srun. Under an mpirun inside a job it is that of mpirun's daemon, and not looked at
 *
 * Two that apply and do not agree are a launch gone wrong (copies of rank 0, environments of another job), and refused by name. */
#ifndef KVG_RANK_LOCAL_RANK_H
#define KVG_RANK_LOCAL_RANK_H

#include <kvgrid/status.h>

typedef struct LocalRankSources {
    const char *ompi_rank, *ompi_ranks; /* values of the environment; NULL and "": unset */
    const char *hydra_rank, *hydra_ranks;
    const char *slurm_rank;
    int         found_rank, found_ranks; /* by the ranks themselves; found_ranks 0: they were not asked */
} LocalRankSources;

typedef struct LocalRank {
    int         rank;
    int         ranks;  /* 0: not known */
    const char *source; /* "OMPI_COMM_WORLD_LOCAL_RANK", ..., "alone"; static */
} LocalRank;

/* EINVAL: a value that is no rank, or two sources that do not agree. *local changes only on success. */
KvgStatus kvg_local_rank(const LocalRankSources *sources, LocalRank *local);
/* The environment's; nothing is found yet. */
LocalRankSources kvg_local_rank_environment(void);

#endif

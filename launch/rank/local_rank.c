#include "launch/rank/local_rank.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/base/error.h"

static int is_set(const char *value)
{
    return value != NULL && *value != '\0';
}

static KvgStatus read_number(const char *name, const char *text, int *number)
{
    char *end = NULL;

    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < 0 || value > 1 << 20) {
        return kvg_fail(KVG_EINVAL, "%s is \"%s\", which is no rank of a machine: unset it, or start this by the launcher that sets it", name, text);
    }
    *number = (int)value;
    return KVG_OK;
}

/* What one launcher says; `ranks_text` may be unset. */
static KvgStatus read_source(const char *rank_name, const char *rank_text, const char *ranks_name, const char *ranks_text, LocalRank *local)
{
    LocalRank said = { 0, 0, rank_name };

    KVG_TRY(read_number(rank_name, rank_text, &said.rank));
    if (is_set(ranks_text)) {
        KVG_TRY(read_number(ranks_name, ranks_text, &said.ranks));
        if (said.rank >= said.ranks) {
            return kvg_fail(KVG_EINVAL, "%s is %d and %s is %d: ranks of a machine count from 0; unset both, or start this by the launcher that sets them",
                            rank_name, said.rank, ranks_name, said.ranks);
        }
    }
    *local = said;
    return KVG_OK;
}

static KvgStatus read_launcher(const LocalRankSources *sources, LocalRank *local)
{
    if (is_set(sources->ompi_rank)) {
        return read_source("OMPI_COMM_WORLD_LOCAL_RANK", sources->ompi_rank, "OMPI_COMM_WORLD_LOCAL_SIZE", sources->ompi_ranks, local);
    }
    if (is_set(sources->hydra_rank)) {
        return read_source("MPI_LOCALRANKID", sources->hydra_rank, "MPI_LOCALNRANKS", sources->hydra_ranks, local);
    }
    if (is_set(sources->slurm_rank)) {
        return read_source("SLURM_LOCALID", sources->slurm_rank, NULL, NULL, local);
    }
    *local = (LocalRank){ 0, 0, "alone" };
    return KVG_OK;
}

KvgStatus kvg_local_rank(const LocalRankSources *sources, LocalRank *local)
{
    LocalRank  said;
    const int  found = sources->found_rank, of = sources->found_ranks;

    KVG_ASSERT(of == 0 || (found >= 0 && found < of));
    KVG_TRY(read_launcher(sources, &said));
    const int has_said = said.source[0] != 'a'; /* not "alone" */
    if (of > 0 && has_said && (said.rank != found || (said.ranks != 0 && said.ranks != of))) {
        return kvg_fail(KVG_EINVAL, "%s says local rank %d%s%.0d, but by the names of the ranks' machines this is local rank %d of %d: start all ranks by one "
                                    "launcher (mpirun, or srun --mpi=pmix), or unset %s where it is left from another job",
                        said.source, said.rank, said.ranks != 0 ? " of " : "", said.ranks, found, of, said.source);
    }
    if (of > 0) {
        said = (LocalRank){ found, of, has_said ? said.source : "the machines' names" };
    }
    *local = said;
    return KVG_OK;
}

LocalRankSources kvg_local_rank_environment(void)
{
    return (LocalRankSources){
        .ompi_rank = getenv("OMPI_COMM_WORLD_LOCAL_RANK"),
        .ompi_ranks = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"),
        .hydra_rank = getenv("MPI_LOCALRANKID"),
        .hydra_ranks = getenv("MPI_LOCALNRANKS"),
        .slurm_rank = getenv("SLURM_LOCALID"),
    };
}

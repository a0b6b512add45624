/* SLURM's word on a launch. See the header. */
#include "launch/command/slurm.h"

#include <stdlib.h>

#include "runtime/base/error.h"

static int env_set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0';
}

int kvg_slurm_is_launched(void)
{
    return env_set("OMPI_COMM_WORLD_SIZE") || env_set("PMIX_RANK") || env_set("MPI_LOCALRANKID");
}

SlurmView kvg_slurm_view(void)
{
    return (SlurmView){
        .tasks = getenv("SLURM_NTASKS"),
        .in_step = env_set("SLURM_STEP_ID"),
        .other_pmi = env_set("PMI_RANK") && !env_set("PMIX_RANK"),
        .by_mpirun = env_set("OMPI_COMM_WORLD_SIZE") && env_set("SLURM_JOB_ID"),
    };
}

static int count_tasks(const SlurmView *view, long *count)
{
    char *end = NULL;
    *count = strtol(view->tasks, &end, 10);
    return *end == '\0' && *count >= 1;
}

/* Copies that do not know of each other. */
static KvgStatus refuse_singletons(const SlurmView *view, long tasks)
{
    return kvg_fail(KVG_EINVAL,
                    "SLURM_NTASKS is %ld but MPI counts 1 rank: srun started %ld tasks %s, so each is rank 0 of 1 and would run the whole job; "
                    "start them with srun --mpi=pmix -n %ld",
                    tasks, tasks, view->other_pmi ? "with a PMI that is not PMIx (--mpi=pmi2 or the site's default)" : "without a PMI", tasks);
}

KvgStatus kvg_slurm_check(const SlurmView *view, int ranks)
{
    long tasks = 0;
    if (view->tasks == NULL || *view->tasks == '\0' || view->by_mpirun) {
        return KVG_OK;
    }
    if (!count_tasks(view, &tasks)) {
        return kvg_fail(KVG_EINVAL, "SLURM_NTASKS is \"%s\", no number of tasks: unset it, or start this with srun --mpi=pmix", view->tasks);
    }
    if (tasks == ranks) {
        return KVG_OK;
    }
    if (ranks == 1 && view->in_step) {
        return refuse_singletons(view, tasks);
    }
    return kvg_fail(KVG_EINVAL,
                    "SLURM_NTASKS is %ld but MPI counts %d rank%s: start this with srun --mpi=pmix (or mpirun -n %ld), "
                    "or unset SLURM_NTASKS for a run outside the job's step",
                    tasks, ranks, ranks == 1 ? "" : "s", tasks);
}

KvgStatus kvg_slurm_check_forking(const SlurmView *view)
{
    long tasks = 0;
    if (!view->in_step || view->by_mpirun || view->tasks == NULL || !count_tasks(view, &tasks) || tasks == 1) {
        return KVG_OK;
    }
    return kvg_fail(KVG_EINVAL, "--ranks forks the ranks itself, and srun started %ld tasks, each of which would fork a grid of its own: "
                                "start one (srun -n 1), or leave --ranks out and start them with srun --mpi=pmix -n %ld", tasks, tasks);
}

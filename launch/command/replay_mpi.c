/* Replay's launch. See the header; the parts that name MPI are compiled when it was found. */
#include "launch/command/replay_mpi.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launch/command/slurm.h"
#include "runtime/base/memory.h"

#ifdef KVG_HAVE_MPI
#include <kvgrid/kvgrid_mpi.h>
#endif

/* One rank's report; fixed size, for the all-gather. */
typedef struct ReplayReport {
    int32_t status;
    int32_t knows; /* 1: its sentence says why, the others' that it was so */
    char    host[64];
    char    sentence[504];
} ReplayReport;
_Static_assert(sizeof(ReplayReport) == 576, "reports cross the wire: no padding");

KvgStatus kvg_replay_check_forking(void)
{
    const SlurmView view = kvg_slurm_view();
    return kvg_slurm_is_launched() ? kvg_fail(KVG_EINVAL, "--ranks forks the ranks itself, and mpirun or srun has started this process as one of several: leave one of the two out")
                                   : kvg_slurm_check_forking(&view);
}

static KvgStatus allgather_alone(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    (void)user;
    (void)timeout_ms;
    memcpy(all, mine, bytes);
    return KVG_OK;
}

#ifdef KVG_HAVE_MPI
/* Ranks on this machine, by its name: MPI_Comm_split_type would wait for ever for a rank that hangs. */
static KvgStatus count_local_ranks(ReplayLaunch *launch)
{
    char  name[MPI_MAX_PROCESSOR_NAME] = "";
    int   bytes = 0;
    void *memory = NULL;
    KVG_TRY(kvg_calloc((size_t)launch->bootstrap.ranks, sizeof name, "the machines' names", &memory));
    MPI_Get_processor_name(name, &bytes);
    const char *names = memory;
    KvgStatus status = launch->bootstrap.allgather(launch->bootstrap.user, name, memory, sizeof name, launch->timeout_ms);
    launch->local_ranks = 0;
    for (int rank = 0; rank < launch->bootstrap.ranks; rank++) {
        launch->local_ranks += memcmp(names + (size_t)rank * sizeof name, name, sizeof name) == 0;
    }
    kvg_free(memory);
    return status;
}

static KvgStatus start_mpi(ReplayLaunch *launch)
{
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS) {
        return kvg_fail(KVG_EINVAL, "MPI_Init failed: start kvgrid with the mpirun of the MPI it was built with");
    }
    launch->with_mpi = 1;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    KvgStatus status = kvg_mpi_bootstrap(MPI_COMM_WORLD, &launch->bootstrap);
    if (status == KVG_OK) {
        status = count_local_ranks(launch);
    }
    if (status != KVG_OK) { /* without a bootstrap there is nothing to agree over */
        MPI_Comm_rank(MPI_COMM_WORLD, &launch->bootstrap.rank);
        kvg_replay_launch_abort(launch, 1);
    }
    return KVG_OK;
}
#else
static KvgStatus start_mpi(ReplayLaunch *launch)
{
    (void)launch;
    return kvg_fail(KVG_ENOTSUP, "kvgrid was built without MPI, so it cannot run under mpirun or srun: install Open MPI and build again");
}
#endif

KvgStatus kvg_replay_launch_start(ReplayLaunch *launch)
{
    *launch = (ReplayLaunch){ .bootstrap = KVG_BOOTSTRAP_INIT, .local_ranks = 1, .timeout_ms = 30000 };
    launch->bootstrap.allgather = allgather_alone;
    const KvgPolicy *policy = NULL;
    if (kvg_policy_process(&policy) == KVG_OK) { /* else the input's loading says why */
        launch->timeout_ms = policy->timeout_ms;
    }
    if (kvg_slurm_is_launched()) {
        KVG_TRY(start_mpi(launch));
    }
    KVG_TRY(KVG_NEW((size_t)launch->bootstrap.ranks, "the lost ranks", &launch->lost));
    const SlurmView view = kvg_slurm_view();
    return kvg_slurm_check(&view, launch->bootstrap.ranks);
}

KvgStatus kvg_replay_launch_comm(const ReplayLaunch *launch, KvComm *comm)
{
    *comm = (KvComm){ 0 };
#ifdef KVG_HAVE_MPI
    if (launch->with_mpi && launch->bootstrap.ranks > 1) {
        return kvg_mpi_comm_create(MPI_COMM_WORLD, comm);
    }
#endif
    (void)launch;
    return KVG_OK;
}

/* A handler may call write and _exit, and little else. */
static void end_by_alarm(int signal_number)
{
    static const char sentence[] = "kvgrid replay: all that is printed holds, but a rank hangs on its way out (KVGRID_TIMEOUT_MS)\n";
    (void)signal_number;
    (void)!write(STDERR_FILENO, sentence, sizeof sentence - 1); /* nobody is left to tell if it fails */
    _exit(1);
}

void kvg_replay_launch_ending(const ReplayLaunch *launch)
{
    if (launch->with_mpi && launch->bootstrap.ranks > 1) {
        fflush(NULL);
        signal(SIGALRM, end_by_alarm);
        alarm(launch->timeout_ms / 1000 + 1 + 2 * (unsigned)launch->bootstrap.rank); /* the launcher ends the others when the first ends */
    }
}

void kvg_replay_launch_stop(ReplayLaunch *launch)
{
    kvg_replay_launch_ending(launch);
#ifdef KVG_HAVE_MPI
    if (launch->with_mpi) {
        kvg_mpi_bootstrap_free(&launch->bootstrap);
        MPI_Finalize();
        alarm(0);
    }
#endif
    kvg_free(launch->lost);
    kvg_free(launch->binding);
    *launch = (ReplayLaunch){ 0 };
}

static int is_later_copy(const char *variable)
{
    const char *task = getenv(variable);
    return task != NULL && *task != '\0' && strcmp(task, "0") != 0;
}

/* Copies that srun, the mpirun of another MPI, or any where there is no MPI in this build, started apart do not know of each other; the
 * first of them speaks. */
static int speaks(const ReplayLaunch *launch)
{
    if (launch->bootstrap.ranks == 1) {
        return !is_later_copy("SLURM_PROCID") && !is_later_copy("PMI_RANK") && !is_later_copy("PMIX_RANK") &&
               !is_later_copy("OMPI_COMM_WORLD_RANK");
    }
    return launch->bootstrap.rank == 0;
}

void kvg_replay_launch_lost(void *launch, int rank, const char *why)
{
    const ReplayLaunch *self = launch;
    (void)why; /* it is in the sentence of the step that is in doubt */
    KVG_ASSERT(rank >= 0 && rank < self->bootstrap.ranks);
    self->lost[rank] = 1;
}

/* Lower ranks that are not known to be gone. */
static int lower_alive(const ReplayLaunch *launch)
{
    int alive = 0;
    for (int rank = 0; rank < launch->bootstrap.rank; rank++) {
        alive += launch->lost == NULL || !launch->lost[rank];
    }
    return alive;
}

/* The one that speaks ends the job, too, so the wait of the others is cut short; unless it hangs: then the next one's ends. */
static void wait_for_lower(const ReplayLaunch *launch)
{
    const int      lower = lower_alive(launch);
    const uint64_t ms = lower > 0 ? 2000 + 500 * (uint64_t)(lower - 1) : 0; /* a launcher takes a second to end the others */
    struct timespec rest = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };
    while (nanosleep(&rest, &rest) != 0) {
    }
}

static _Noreturn void end_all(const ReplayLaunch *launch, int hearsay, int code)
{
    char sentence[512];
    snprintf(sentence, sizeof sentence, "%s", kvg_last_error());
    if (launch->leave != NULL) {
        launch->leave(launch, hearsay, sentence);
        fflush(NULL);
        _Exit(code);
    }
    wait_for_lower(launch);
    fprintf(stderr, "kvgrid replay: rank %d: %s\n", launch->bootstrap.rank, sentence);
    fflush(NULL);
#ifdef KVG_HAVE_MPI
    if (launch->with_mpi) {
        MPI_Abort(MPI_COMM_WORLD, code);
    }
#endif
    _Exit(code);
}

void kvg_replay_launch_abort(const ReplayLaunch *launch, int code)
{
    end_all(launch, 0, code);
}

/* The lowest rank that failed, -1 if none did; *alone = 1 when others did not fail with the same code. */
static int lowest_failure(const ReplayReport *all, int ranks, int *alone)
{
    int lowest = -1;
    *alone = 0;
    for (int rank = 0; rank < ranks; rank++) {
        if (lowest < 0 && all[rank].status != KVG_OK) {
            lowest = rank;
        }
    }
    for (int rank = 0; lowest >= 0 && rank < ranks; rank++) {
        *alone |= all[rank].status != all[lowest].status;
    }
    return lowest;
}

/* The lowest failing rank that knows why, -1: none does. Where others were refused by it, it has a code of its own. */
static int lowest_knowing(const ReplayReport *all, int ranks)
{
    int refused = 0;
    for (int rank = 0; rank < ranks; rank++) {
        refused |= all[rank].status == KVG_EREFUSED;
    }
    for (int rank = 0; rank < ranks; rank++) {
        if (all[rank].status != KVG_OK && (all[rank].knows || (refused && all[rank].status != KVG_EREFUSED))) {
            return rank;
        }
    }
    return -1;
}

static void say_failure(const ReplayReport *all, int ranks, int lowest, int alone)
{
    const int knowing = lowest_knowing(all, ranks), who = knowing >= 0 ? knowing : alone ? lowest : -1;
    fflush(stdout);
    if (who >= 0 && ranks > 1) {
        fprintf(stderr, "kvgrid replay: rank %d (host %s): %s\n", who, all[who].host, all[who].sentence);
    } else { /* all alike */
        fprintf(stderr, "kvgrid replay: %s\n", all[lowest].sentence);
    }
}

KvgStatus kvg_replay_agree(const ReplayLaunch *launch, KvgStatus mine)
{
    return kvg_replay_agree_why(launch, mine, 0);
}

KvgStatus kvg_replay_agree_why(const ReplayLaunch *launch, KvgStatus mine, int knows)
{
    const int    ranks = launch->bootstrap.ranks;
    ReplayReport report = { .status = mine, .knows = knows };
    void        *memory = NULL;
    if (mine == KVG_EINDOUBT || mine == KVG_EPEER) { /* not all of the others can be asked */
        end_all(launch, 1, 1);
    }
    if (mine != KVG_OK) {
        snprintf(report.sentence, sizeof report.sentence, "%s", kvg_last_error());
        (void)!gethostname(report.host, sizeof report.host - 1); /* "" then */
    }
    if (kvg_calloc((size_t)ranks, sizeof report, "the ranks' reports", &memory) != KVG_OK) {
        kvg_replay_launch_abort(launch, 1);
    }
    ReplayReport *all = memory;
    KvgStatus status = launch->bootstrap.allgather(launch->bootstrap.user, &report, all, sizeof report, launch->timeout_ms);
    if (status != KVG_OK) { /* somebody is gone or hangs: what this rank knows itself says more than that */
        if (mine != KVG_OK) {
            (void)kvg_fail(mine, "%s", report.sentence);
        }
        end_all(launch, mine == KVG_OK || mine == KVG_EREFUSED, 1);
    }
    int alone = 0, lowest = lowest_failure(all, ranks, &alone);
    status = lowest < 0 ? KVG_OK : (KvgStatus)all[lowest].status;
    if (lowest >= 0 && speaks(launch)) {
        say_failure(all, ranks, lowest, alone);
    }
    kvg_free(memory);
    return status;
}

/* The first item that differs, over ranks in order: all [ranks][count]. */
static KvgStatus compare_values(const ReplayItem *items, size_t count, const uint64_t *all, int ranks)
{
    for (size_t i = 0; i < count; i++) {
        for (int rank = 1; rank < ranks; rank++) {
            if (all[(size_t)rank * count + i] != all[i]) {
                return kvg_fail(KVG_EINVAL, "rank 0 and rank %d differ in %s: give every rank the same", rank, items[i].name);
            }
        }
    }
    return KVG_OK;
}

KvgStatus kvg_replay_compare(const ReplayLaunch *launch, const ReplayItem *items, size_t count)
{
    uint64_t mine[16];
    void    *all = NULL;
    KVG_ASSERT(count <= sizeof mine / sizeof *mine);
    for (size_t i = 0; i < count; i++) {
        mine[i] = items[i].value;
    }
    if (kvg_calloc((size_t)launch->bootstrap.ranks, count * sizeof *mine, "the ranks' options", &all) != KVG_OK) {
        kvg_replay_launch_abort(launch, 1);
    }
    KvgStatus status = launch->bootstrap.allgather(launch->bootstrap.user, mine, all, count * sizeof *mine, launch->timeout_ms);
    if (status == KVG_OK) {
        status = compare_values(items, count, all, launch->bootstrap.ranks);
    }
    kvg_free(all);
    return status;
}

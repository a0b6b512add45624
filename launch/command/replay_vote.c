/* Replay's vote. See the header; the parts that name NCCL are compiled when it was found. */
#include "launch/command/replay_vote.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"

#if KVG_HAVE_NCCL
#include <kvgrid/kvgrid_comm_board.h>
#include <kvgrid/kvgrid_comm_nccl.h>
#include <kvgrid/kvgrid_cuda.h>
#include <kvgrid/kvgrid_vote_nccl.h>
#endif

static const char *const kinds[] = { [REPLAY_VOTE_AUTO] = "host", [REPLAY_VOTE_HOST] = "host", [REPLAY_VOTE_NCCL] = "nccl",
                                     [REPLAY_VOTE_DEVICE] = "device" };

/* Records that go by GPUs are asked for, and there is somebody to send them to. */
static int by_devices(const ReplayOptions *options)
{
    return (options->vote == REPLAY_VOTE_NCCL || options->vote == REPLAY_VOTE_DEVICE) && options->tp * options->pp > 1;
}

#if KVG_HAVE_NCCL

static KvgStatus check_devices(const ReplayOptions *options)
{
    const char *kind = kinds[options->vote];
    char        why[512];
    int         compiled, loaded;

    if (kvg_cuda_probe(why, sizeof why) == 0) {
        return kvg_fail(KVG_ENOTSUP, "--vote %s: %s", kind, why);
    }
    KvgStatus status = options->vote == REPLAY_VOTE_DEVICE ? kvg_nccl_vote_probe(why, sizeof why) : kvg_nccl_versions(&compiled, &loaded);
    if (status != KVG_OK) {
        snprintf(why, sizeof why, "%s", kvg_last_error());
        return kvg_fail(status, "--vote %s: %s", kind, why);
    }
    return KVG_OK;
}

static KvgStatus open_devices(const ReplayOptions *options, const ReplayLaunch *launch, const KvgPolicy *policy, uint32_t sequences, const KvComm *base,
                              ReplayVote *vote)
{
    KvNcclCommOptions want = KVG_NCCL_COMM_OPTIONS_INIT;
    char              why[512];

    want.device = launch->device;
    want.base = base;
    want.liveness = &vote->liveness;
    want.timeout_ms = policy->timeout_ms;
    want.tp = options->tp;
    want.sequences_max = sequences;
    KvgStatus status = options->vote == REPLAY_VOTE_NCCL ? kvg_comm_nccl_create(&launch->bootstrap, &want, &vote->comm)
                                                         : kvg_comm_nccl_board_create(&launch->bootstrap, &want, &vote->comm);
    if (status != KVG_OK) {
        snprintf(why, sizeof why, "%s", kvg_last_error());
        return kvg_fail(status, "--vote %s: %s", vote->kind, why);
    }
    return KVG_OK;
}

static int on_devices(const ReplayVote *vote, char *why, size_t bytes)
{
    return kvg_comm_on_devices(&vote->comm, why, bytes);
}

#else

static KvgStatus check_devices(const ReplayOptions *options)
{
    return kvg_fail(KVG_ENOTSUP, "--vote %s: this kvgrid was built without NCCL: build it where nvcc and NCCL are found, or give --vote host",
                    kinds[options->vote]);
}

static KvgStatus open_devices(const ReplayOptions *options, const ReplayLaunch *launch, const KvgPolicy *policy, uint32_t sequences, const KvComm *base,
                              ReplayVote *vote)
{
    (void)launch, (void)policy, (void)sequences, (void)base, (void)vote;
    return check_devices(options);
}

static int on_devices(const ReplayVote *vote, char *why, size_t bytes)
{
    (void)vote;
    snprintf(why, bytes, "it never was");
    return 0;
}

#endif

KvgStatus kvg_replay_vote_check(const ReplayOptions *options)
{
    return by_devices(options) ? check_devices(options) : KVG_OK;
}

/* As the grid would make it: its connections say who is lost, also to the comm, whose all-gathers hang then. */
static KvgStatus open_mesh(const ReplayLaunch *launch, const KvgPolicy *policy, KvComm *comm, KvLiveness *liveness)
{
    KvMeshOptions mesh = KVG_MESH_OPTIONS_INIT;

    mesh.timeout_ms = policy->timeout_ms;
    mesh.heartbeat_ms = policy->peer_ms / 4 > 0 ? policy->peer_ms / 4 : 1;
    mesh.interface = policy->interface[0] != '\0' ? policy->interface : NULL;
    return kvg_mesh_create(&launch->bootstrap, &mesh, comm, liveness);
}

/* MPI, and the mesh for liveness; the mesh for both where there is no MPI. */
static KvgStatus open_base(const ReplayLaunch *launch, const KvgPolicy *policy, KvComm *base, KvLiveness *liveness)
{
    KvComm mesh;

    KVG_TRY(open_mesh(launch, policy, &mesh, liveness));
    KvgStatus status = kvg_replay_launch_comm(launch, base);
    if (status != KVG_OK) {
        liveness->ops->close(liveness->self);
        liveness->ops = NULL;
    }
    if (status != KVG_OK || base->ops != NULL) {
        mesh.ops->close(mesh.self);
        return status;
    }
    *base = mesh;
    return KVG_OK;
}

KvgStatus kvg_replay_vote_open(const ReplayOptions *options, const ReplayLaunch *launch, const KvgPolicy *policy, uint32_t sequences, ReplayVote *vote)
{
    KvComm base = { 0 };

    *vote = (ReplayVote){ .kind = kinds[options->vote], .ranks = launch->bootstrap.ranks };
    if (!by_devices(options)) {
        vote->kind = kinds[REPLAY_VOTE_HOST];
        return kvg_replay_launch_comm(launch, &vote->comm);
    }
    KVG_TRY(open_base(launch, policy, &base, &vote->liveness));
    KvgStatus status = open_devices(options, launch, policy, sequences, &base, vote);
    if (status != KVG_OK) {
        base.ops->close(base.self);
        kvg_replay_vote_close(vote);
    }
    return status;
}

void kvg_replay_vote_close(ReplayVote *vote)
{
    if (vote->comm.ops != NULL) {
        vote->comm.ops->close(vote->comm.self);
    }
    if (vote->liveness.ops != NULL) {
        vote->liveness.ops->close(vote->liveness.self);
    }
    vote->comm.ops = NULL;
    vote->liveness.ops = NULL;
}

void kvg_replay_vote_words(const ReplayVote *vote, char *words, size_t bytes)
{
    char why[256];

    if (vote->liveness.ops == NULL) { /* the host's */
        snprintf(words, bytes, vote->ranks > 1 ? "host, records by %s" : "host, one rank alone", vote->comm.ops != NULL ? vote->comm.ops->name : "mesh");
    } else if (on_devices(vote, why, sizeof why)) {
        const int gathers = strcmp(vote->kind, kinds[REPLAY_VOTE_NCCL]) == 0;
        snprintf(words, bytes, "%s, records %s", vote->kind, gathers ? "by all-gathers on the GPUs" : "over a board in the GPUs' memory");
    } else {
        snprintf(words, bytes, "%s no longer: %s", vote->kind, why);
    }
}

/* Mesh set-up: three all-gathers and the connections between the last two.
 *
 *   1 identities   host, pid, a secret, wishes      what goes wrong on one rank rides along as its status,
 *   2 addresses    where each rank listens           so that all leave at the same all-gather
 *   3 connections  mesh_connect.c                    and none waits for one that has given up
 *   4 ready        all connected, or nobody is
 *
 * Everything is bounded by one deadline; connections get three quarters of what is left, so that the last
 * all-gather can still say who is missing. */
#include "runtime/comm/mesh_internal.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/memory.h"
#include "runtime/base/sized.h"
#include "runtime/comm/meeting.h"

#define HEARTBEAT_MS_DEFAULT 100u
#define RANKS_MAX            65536

typedef struct Setup {
    Meeting       meeting;
    KvMeshOptions options; /* zeros replaced by what they mean */
    int           unix_fd, tcp_fd; /* listening; -1: not */
    MeshIdentity *identities; /* [ranks] */
    MeshAddress  *addresses;  /* [ranks] */
    MeshReady    *readies;    /* [ranks] */
    Mesh         *mesh;       /* NULL: none yet, or handed out */
} Setup;

/* ---- 1 identities */

static KvgStatus check_identities(Setup *setup)
{
    const MeshIdentity *all = setup->identities;
    int                 ranks = setup->meeting.bootstrap.ranks, rank = setup->meeting.bootstrap.rank;

    for (int peer = 0; peer < ranks; peer++) {
        setup->identities[peer].host[KVG_MESH_HOST_BYTES - 1] = '\0';
        if (all[peer].magic != KVG_MESH_MAGIC || all[peer].version != KVG_MESH_VERSION) {
            return kvg_fail(KVG_ELAYOUT, "mesh: rank %d speaks version %u (magic 0x%08x), rank %d version %u; use one build everywhere",
                            peer, all[peer].version, all[peer].magic, rank, KVG_MESH_VERSION);
        }
        if (all[peer].status != KVG_OK) {
            return kvg_meeting_fail_for(&setup->meeting, peer, (KvgStatus)all[peer].status);
        }
    }
    return KVG_OK;
}

static KvgStatus gather_identities(Setup *setup)
{
    MeshIdentity mine;

    kvg_meeting_note(&setup->meeting, kvg_mesh_identify(&mine));
    mine.status = setup->meeting.status;
    mine.tcp = setup->options.tcp != 0;
    mine.message_max = setup->options.message_max;
    KVG_TRY(kvg_meeting_gather(&setup->meeting, &mine, setup->identities, sizeof mine));
    return check_identities(setup);
}

/* ---- 2 addresses */

static KvgStatus listen_where_needed(Setup *setup, MeshAddress *mine)
{
    const MeshIdentity *all = setup->identities;
    int                 rank = setup->meeting.bootstrap.rank, any_tcp = 0, near = 0, far = 0;

    for (int peer = 0; peer < setup->meeting.bootstrap.ranks; peer++) {
        any_tcp |= all[peer].tcp != 0;
    }
    for (int peer = 0; peer < setup->meeting.bootstrap.ranks; peer++) {
        int same = kvg_mesh_same_host(&all[peer], &all[rank]);

        near |= peer != rank && same;
        far |= !same;
    }
    if (near && !any_tcp) {
        KVG_TRY(kvg_mesh_listen_unix(&setup->unix_fd, mine));
    }
    if (far || (near && any_tcp)) {
        KVG_TRY(kvg_mesh_listen_tcp(setup->options.interface, !far, &setup->tcp_fd, mine));
    }
    return KVG_OK;
}

static KvgStatus gather_addresses(Setup *setup)
{
    MeshAddress mine = { 0 };

    kvg_meeting_note(&setup->meeting, listen_where_needed(setup, &mine));
    mine.status = setup->meeting.status;
    KVG_TRY(kvg_meeting_gather(&setup->meeting, &mine, setup->addresses, sizeof mine));
    for (int peer = 0; peer < setup->meeting.bootstrap.ranks; peer++) {
        const MeshAddress *each = &setup->addresses[peer];

        if (each->status != KVG_OK) {
            return kvg_meeting_fail_for(&setup->meeting, peer, (KvgStatus)each->status);
        }
        if (each->unix_bytes > sizeof each->unix_address || each->tcp_bytes > sizeof each->tcp_address) {
            return kvg_fail(KVG_EFORMAT, "mesh: rank %d sent an address of %u and %u bytes; at most %zu", peer, each->unix_bytes,
                            each->tcp_bytes, sizeof each->tcp_address);
        }
    }
    return KVG_OK;
}

/* ---- 4 ready */

static KvgStatus gather_readies(Setup *setup, int missing)
{
    MeshReady mine = { .status = setup->meeting.status, .rank = missing };

    KVG_TRY(kvg_meeting_gather(&setup->meeting, &mine, setup->readies, sizeof mine));
    for (int peer = 0; peer < setup->meeting.bootstrap.ranks; peer++) {
        const MeshReady *each = &setup->readies[peer];

        if (each->status != KVG_OK && each->rank >= 0) {
            return kvg_fail(KVG_EPEER, "mesh: rank %d does not reach rank %d (%s); see its own message", peer, each->rank,
                            kvg_status_name((KvgStatus)each->status));
        }
        if (each->status != KVG_OK) {
            return kvg_meeting_fail_for(&setup->meeting, peer, (KvgStatus)each->status);
        }
    }
    return KVG_OK;
}

/* ---- all of it */

static void mesh_learn(Mesh *mesh, const Setup *setup)
{
    mesh->heartbeat_ns = (uint64_t)setup->options.heartbeat_ms * 1000000u;
    mesh->message_max = setup->options.message_max;
    for (int peer = 0; peer < mesh->ranks; peer++) {
        const MeshIdentity *identity = &setup->identities[peer];

        mesh->peers[peer].pid = identity->pid;
        memcpy(mesh->peers[peer].host, identity->host, sizeof identity->host);
        snprintf(mesh->peers[peer].why, sizeof mesh->peers[peer].why, "host %s, pid %lld", mesh->peers[peer].host, (long long)identity->pid);
        if (identity->message_max < mesh->message_max) {
            mesh->message_max = (size_t)identity->message_max;
        }
    }
}

static KvgStatus setup_new(Setup *setup)
{
    size_t ranks = (size_t)setup->meeting.bootstrap.ranks;

    KVG_TRY(KVG_NEW(ranks, "mesh set-up", &setup->identities));
    KVG_TRY(KVG_NEW(ranks, "mesh set-up", &setup->addresses));
    KVG_TRY(KVG_NEW(ranks, "mesh set-up", &setup->readies));
    return KVG_OK;
}

static void setup_free(Setup *setup)
{
    kvg_mesh_close_fd(&setup->unix_fd);
    kvg_mesh_close_fd(&setup->tcp_fd);
    kvg_free(setup->identities);
    kvg_free(setup->addresses);
    kvg_free(setup->readies);
    if (setup->mesh != NULL) {
        kvg_mesh_free(setup->mesh);
    }
}

/* What this rank already knows to be wrong goes as far as the others do. */
static KvgStatus setup_run(Setup *setup)
{
    Meeting *meeting = &setup->meeting;
    int      missing = -1;

    kvg_meeting_note(meeting, kvg_mesh_new(meeting->bootstrap.rank, meeting->bootstrap.ranks, &setup->mesh));
    KVG_TRY(kvg_meeting_note(meeting, gather_identities(setup)));
    KVG_TRY(kvg_meeting_note(meeting, gather_addresses(setup)));
    mesh_learn(setup->mesh, setup);
    kvg_meeting_note(meeting, kvg_mesh_connect(setup->mesh, setup->identities, setup->addresses, setup->unix_fd, setup->tcp_fd,
                                               kvg_meeting_work_until_ns(meeting), &missing));
    return kvg_meeting_note(meeting, gather_readies(setup, missing));
}

KvgStatus kvg_mesh_create(const KvgBootstrap *bootstrap, const KvMeshOptions *options, KvComm *comm, KvLiveness *liveness)
{
    static const KvMeshOptions defaults = KVG_MESH_OPTIONS_INIT;
    Setup                      setup = { .unix_fd = -1, .tcp_fd = -1 };

    KVG_TRY(kvg_meeting_open("mesh", bootstrap, RANKS_MAX, comm, liveness, &setup.meeting));
    KVG_TRY(KVG_SIZED_IN(KvMeshOptions, options, defaults, setup.options));
    setup.options.heartbeat_ms = setup.options.heartbeat_ms > 0 ? setup.options.heartbeat_ms : HEARTBEAT_MS_DEFAULT;
    setup.options.message_max = setup.options.message_max > 0 ? setup.options.message_max : KVG_MESH_MESSAGE_MAX;
    kvg_meeting_start(&setup.meeting, setup.options.timeout_ms);
    if (kvg_meeting_note(&setup.meeting, setup_new(&setup)) == KVG_OK && setup_run(&setup) == KVG_OK) {
        kvg_mesh_ends(setup.mesh, comm, liveness);
        setup.mesh = NULL;
    }
    setup_free(&setup);
    return kvg_meeting_verdict(&setup.meeting);
}

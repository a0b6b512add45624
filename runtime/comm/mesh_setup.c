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

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/base/sized.h"
#include "runtime/comm/clock.h"

#define TIMEOUT_MS_DEFAULT   30000u
#define HEARTBEAT_MS_DEFAULT 100u
#define RANKS_MAX            65536

typedef struct Setup {
    const KvgBootstrap *bootstrap;
    KvMeshOptions      options; /* zeros replaced by what they mean */
    uint64_t            deadline_ns;
    int                 unix_fd, tcp_fd; /* listening; -1: not */
    MeshIdentity       *identities; /* [ranks] */
    MeshAddress        *addresses;  /* [ranks] */
    MeshReady          *readies;    /* [ranks] */
    char                sentence[600]; /* why this rank fails; all-gathers in between may overwrite the last error */
} Setup;

/* Keeps the first failure of this rank and its sentence. */
static void setup_note(Setup *setup, KvgStatus *status, KvgStatus step)
{
    if (*status == KVG_OK && step != KVG_OK) {
        *status = step;
        snprintf(setup->sentence, sizeof setup->sentence, "%s", kvg_last_error());
    }
}

static KvgStatus setup_gather(Setup *setup, const void *mine, void *all, size_t bytes)
{
    uint64_t now_ns = kvg_clock_ns();
    uint64_t left_ms = kvg_monus_u64(setup->deadline_ns, now_ns) / 1000000;

    if (setup->bootstrap->ranks == 1) { /* a bootstrap of one rank needs no all-gather */
        memcpy(all, mine, bytes);
        return KVG_OK;
    }
    return setup->bootstrap->allgather(setup->bootstrap->user, mine, all, bytes, left_ms > 0 ? (uint32_t)left_ms : 1);
}

static KvgStatus fail_for_rank(int rank, KvgStatus status)
{
    return kvg_fail(KVG_EPEER, "mesh: rank %d could not set up (%s); see its own message", rank, kvg_status_name(status));
}

/* ---- 1 identities */

static KvgStatus check_identities(Setup *setup)
{
    const MeshIdentity *all = setup->identities;
    int                 ranks = setup->bootstrap->ranks, rank = setup->bootstrap->rank;

    for (int peer = 0; peer < ranks; peer++) {
        setup->identities[peer].host[KVG_MESH_HOST_BYTES - 1] = '\0';
        if (all[peer].magic != KVG_MESH_MAGIC || all[peer].version != KVG_MESH_VERSION) {
            return kvg_fail(KVG_ELAYOUT, "mesh: rank %d speaks version %u (magic 0x%08x), rank %d version %u; use one build everywhere",
                            peer, all[peer].version, all[peer].magic, rank, KVG_MESH_VERSION);
        }
        if (all[peer].status != KVG_OK) {
            return fail_for_rank(peer, (KvgStatus)all[peer].status);
        }
    }
    return KVG_OK;
}

static KvgStatus gather_identities(Setup *setup, KvgStatus *status)
{
    MeshIdentity mine;

    setup_note(setup, status, kvg_mesh_identify(&mine));
    mine.status = *status;
    mine.tcp = setup->options.tcp != 0;
    mine.message_max = setup->options.message_max;
    KVG_TRY(setup_gather(setup, &mine, setup->identities, sizeof mine));
    return check_identities(setup);
}

/* ---- 2 addresses */

static KvgStatus listen_where_needed(Setup *setup, MeshAddress *mine)
{
    const MeshIdentity *all = setup->identities;
    int                 rank = setup->bootstrap->rank, any_tcp = 0, near = 0, far = 0;

    for (int peer = 0; peer < setup->bootstrap->ranks; peer++) {
        any_tcp |= all[peer].tcp != 0;
    }
    for (int peer = 0; peer < setup->bootstrap->ranks; peer++) {
        int same = kvg_mesh_same_host(&all[peer], &all[rank]);

        near |= peer != rank && same;
        far |= !same;
    }
    if (near && !any_tcp) {
        KVG_TRY(kvg_mesh_listen_unix(&setup->unix_fd, mine));
    }
    if (far || (near && any_tcp)) {
        KVG_TRY(kvg_mesh_listen_tcp(setup->options.interface_ip, !far, &setup->tcp_fd, mine));
    }
    return KVG_OK;
}

static KvgStatus gather_addresses(Setup *setup, KvgStatus *status)
{
    MeshAddress mine = { 0 };

    setup_note(setup, status, listen_where_needed(setup, &mine));
    mine.status = *status;
    KVG_TRY(setup_gather(setup, &mine, setup->addresses, sizeof mine));
    for (int peer = 0; peer < setup->bootstrap->ranks; peer++) {
        const MeshAddress *each = &setup->addresses[peer];

        if (each->status != KVG_OK) {
            return fail_for_rank(peer, (KvgStatus)each->status);
        }
        if (each->unix_bytes > sizeof each->unix_address || each->tcp_bytes > sizeof each->tcp_address) {
            return kvg_fail(KVG_EFORMAT, "mesh: rank %d sent an address of %u and %u bytes; at most %zu", peer, each->unix_bytes,
                            each->tcp_bytes, sizeof each->tcp_address);
        }
    }
    return KVG_OK;
}

/* ---- 4 ready */

static KvgStatus gather_readies(Setup *setup, KvgStatus status, int missing)
{
    MeshReady mine = { .status = status, .rank = missing };

    KVG_TRY(setup_gather(setup, &mine, setup->readies, sizeof mine));
    for (int peer = 0; peer < setup->bootstrap->ranks; peer++) {
        const MeshReady *each = &setup->readies[peer];

        if (each->status != KVG_OK && each->rank >= 0) {
            return kvg_fail(KVG_EPEER, "mesh: rank %d does not reach rank %d (%s); see its own message", peer, each->rank,
                            kvg_status_name((KvgStatus)each->status));
        }
        if (each->status != KVG_OK) {
            return fail_for_rank(peer, (KvgStatus)each->status);
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
        if (identity->message_max < mesh->message_max) {
            mesh->message_max = (size_t)identity->message_max;
        }
    }
}

static KvgStatus setup_new(Setup *setup)
{
    size_t ranks = (size_t)setup->bootstrap->ranks;
    void  *memory = NULL;

    KVG_TRY(kvg_calloc(ranks, sizeof(MeshIdentity), "mesh set-up", &memory));
    setup->identities = memory;
    KVG_TRY(kvg_calloc(ranks, sizeof(MeshAddress), "mesh set-up", &memory));
    setup->addresses = memory;
    KVG_TRY(kvg_calloc(ranks, sizeof(MeshReady), "mesh set-up", &memory));
    setup->readies = memory;
    return KVG_OK;
}

static void setup_free(Setup *setup)
{
    kvg_mesh_close_fd(&setup->unix_fd);
    kvg_mesh_close_fd(&setup->tcp_fd);
    kvg_free(setup->identities);
    kvg_free(setup->addresses);
    kvg_free(setup->readies);
}

/* `status` holds what this rank already knows to be wrong; it goes as far as the others do. */
static KvgStatus setup_run(Setup *setup, Mesh *mesh, KvgStatus status)
{
    int missing = -1;

    setup_note(setup, &status, gather_identities(setup, &status));
    if (status != KVG_OK) {
        return status;
    }
    setup_note(setup, &status, gather_addresses(setup, &status));
    if (status != KVG_OK) {
        return status;
    }
    mesh_learn(mesh, setup);
    uint64_t now_ns = kvg_clock_ns();
    uint64_t connected_by_ns = now_ns + kvg_monus_u64(setup->deadline_ns, now_ns) / 4 * 3;

    setup_note(setup, &status, kvg_mesh_connect(mesh, setup->identities, setup->addresses, setup->unix_fd, setup->tcp_fd,
                                                connected_by_ns, &missing));
    setup_note(setup, &status, gather_readies(setup, status, missing));
    return status;
}

static KvgStatus check_arguments(const KvgBootstrap *bootstrap, const KvComm *comm, const KvLiveness *liveness)
{
    if (bootstrap == NULL || comm == NULL || liveness == NULL) {
        return kvg_fail(KVG_EINVAL, "mesh: bootstrap %p, comm %p, liveness %p; all must be given", (const void *)bootstrap,
                        (const void *)comm, (const void *)liveness);
    }
    if (bootstrap->ranks < 1 || bootstrap->ranks > RANKS_MAX || bootstrap->rank < 0 || bootstrap->rank >= bootstrap->ranks) {
        return kvg_fail(KVG_EINVAL, "mesh: rank %d of %d; 1 to %d ranks are possible", bootstrap->rank, bootstrap->ranks, RANKS_MAX);
    }
    if (bootstrap->allgather == NULL && bootstrap->ranks > 1) {
        return kvg_fail(KVG_EINVAL, "mesh: the bootstrap has no all-gather");
    }
    return KVG_OK;
}

KvgStatus kvg_mesh_create(const KvgBootstrap *given, const KvMeshOptions *options, KvComm *comm, KvLiveness *liveness)
{
    static const KvgBootstrap  alone = KVG_BOOTSTRAP_INIT;
    static const KvMeshOptions defaults = KVG_MESH_OPTIONS_INIT;
    KvgBootstrap               own;
    Setup                      setup = { .bootstrap = &own, .unix_fd = -1, .tcp_fd = -1 };
    Mesh                      *mesh = NULL;

    KVG_TRY(KVG_SIZED_IN(KvgBootstrap, given, alone, own));
    KVG_TRY(check_arguments(given != NULL ? &own : NULL, comm, liveness));
    KVG_TRY(KVG_SIZED_IN(KvMeshOptions, options, defaults, setup.options));
    setup.options.timeout_ms = setup.options.timeout_ms > 0 ? setup.options.timeout_ms : TIMEOUT_MS_DEFAULT;
    setup.options.heartbeat_ms = setup.options.heartbeat_ms > 0 ? setup.options.heartbeat_ms : HEARTBEAT_MS_DEFAULT;
    setup.options.message_max = setup.options.message_max > 0 ? setup.options.message_max : KVG_MESH_MESSAGE_MAX;
    setup.deadline_ns = kvg_clock_ns() + (uint64_t)setup.options.timeout_ms * 1000000u;

    KvgStatus status = setup_new(&setup);

    if (status == KVG_OK) {
        KvgStatus early = KVG_OK; /* from here on the others hear of it */

        setup_note(&setup, &early, kvg_mesh_new(own.rank, own.ranks, &mesh));
        status = setup_run(&setup, mesh, early);
        if (status != KVG_OK) {
            kvg_fail(status, "%s", setup.sentence);
        }
    }
    setup_free(&setup);
    if (status != KVG_OK) {
        if (mesh != NULL) {
            kvg_mesh_free(mesh);
        }
        return status;
    }
    kvg_mesh_ends(mesh, comm, liveness);
    return KVG_OK;
}

/* Shared-memory comm, set-up: two all-gathers, and the hand-over between them.
 *
 *   1 identities   who and where, wishes, and rank 0's door; what goes wrong on one rank rides along as its status, so that all leave together
 *   2 memory       rank 0 hands it to each that calls; every rank watches every other by a pidfd
 *   3 ready        all are attached, or nobody is
 *
 *   memory   ShmHead, ShmPresence [ranks], ShmLane [kind][from][to], then the lanes' bytes [kind][from][to][lane_bytes]
 * Pages come as they are used: a lane that nothing goes through costs none. */
#include "runtime/comm/shm_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/base/sized.h"
#include "runtime/comm/clock.h"
#include "runtime/comm/shm_segment.h"

#define SHM_MAGIC           0x314c474bu /* "KGL1" */
#define TIMEOUT_MS_DEFAULT  30000u
#define LANE_BYTES_DEFAULT  65536u
#define LANE_BYTES_LEAST    4096u
#define LANE_BYTES_MOST     (16u << 20)
#define MESSAGE_MAX_DEFAULT ((size_t)256 << 20)
#define PAGE                4096u
#define TOKEN_BYTES         16

typedef struct ShmHead {
    uint32_t magic, ranks, lane_bytes;
} ShmHead;

typedef struct ShmIdentity { /* first all-gather */
    uint32_t  magic;
    int32_t   status; /* a KvgStatus */
    uint32_t  lane_bytes, reserved;
    uint64_t  message_max;
    uint8_t   token[TOKEN_BYTES]; /* rank 0's: what its door is called */
    KvProcess process;
} ShmIdentity;

typedef struct ShmReady { /* second */
    int32_t status;
} ShmReady;

typedef struct Setup {
    const KvgBootstrap *bootstrap;
    KvShmCommOptions    options; /* zeros replaced by what they mean */
    uint64_t            deadline_ns;
    ShmIdentity        *identities; /* [ranks] */
    ShmReady           *readies;    /* [ranks] */
    ShmDoor             door;
    int                 segment;
    char                sentence[600]; /* of this rank's first failure; all-gathers in between may overwrite the last error */
} Setup;

static void setup_note(Setup *setup, KvgStatus *status, KvgStatus step)
{
    if (*status == KVG_OK && step != KVG_OK) {
        *status = step;
        snprintf(setup->sentence, sizeof setup->sentence, "%s", kvg_last_error());
    }
}

static KvgStatus setup_gather(Setup *setup, const void *mine, void *all, size_t bytes)
{
    uint64_t left_ms = kvg_monus_u64(setup->deadline_ns, kvg_clock_ns()) / 1000000;

    if (setup->bootstrap->ranks == 1) {
        memcpy(all, mine, bytes);
        return KVG_OK;
    }
    return setup->bootstrap->allgather(setup->bootstrap->user, mine, all, bytes, left_ms > 0 ? (uint32_t)left_ms : 1);
}

static KvgStatus fail_for_rank(int rank, KvgStatus status)
{
    return kvg_fail(KVG_EPEER, "shared memory: rank %d could not set up (%s); see its own message", rank, kvg_status_name(status));
}

/* ---- layout */

typedef struct Layout {
    size_t presence, lanes, bytes, whole; /* offsets, and the end */
} Layout;

static void lay_out(int ranks, uint32_t lane_bytes, Layout *layout)
{
    uint64_t pairs = (uint64_t)SHM_KINDS * (uint64_t)ranks * (uint64_t)ranks;

    layout->presence = PAGE;
    layout->lanes = layout->presence + (size_t)ranks * sizeof(ShmPresence);
    layout->bytes = (layout->lanes + pairs * sizeof(ShmLane) + PAGE - 1) / PAGE * PAGE;
    layout->whole = layout->bytes + pairs * lane_bytes; /* at most 2 * 1024 * 1024 lanes of 16 MiB: 45 bits */
}

static void end_init(const ShmComm *shm, const Layout *layout, uint32_t lane_bytes, ShmKind kind, int from, int to, ShmEnd *end)
{
    size_t   index = ((size_t)kind * (size_t)shm->ranks + (size_t)from) * (size_t)shm->ranks + (size_t)to;
    uint8_t *memory = shm->memory;

    end->lane = (ShmLane *)(memory + layout->lanes) + index;
    end->bytes = memory + layout->bytes + index * lane_bytes;
    end->size = lane_bytes;
}

static KvgStatus attach(const Setup *setup, ShmComm *shm, int segment)
{
    uint32_t lane_bytes = setup->options.lane_bytes;
    Layout   layout;
    ShmHead  wanted = { SHM_MAGIC, (uint32_t)shm->ranks, lane_bytes };

    lay_out(shm->ranks, lane_bytes, &layout);
    KVG_TRY(kvg_shm_segment_map(segment, &shm->memory, &shm->memory_bytes));
    if (shm->rank == 0) {
        memcpy(shm->memory, &wanted, sizeof wanted);
    }
    if (shm->memory_bytes != layout.whole || memcmp(shm->memory, &wanted, sizeof wanted) != 0) {
        return kvg_fail(KVG_ELAYOUT, "shared memory: rank 0 gave a memory of %zu bytes that is not for %d ranks and lanes of %u bytes", shm->memory_bytes,
                        shm->ranks, lane_bytes);
    }
    shm->presence = (ShmPresence *)((uint8_t *)shm->memory + layout.presence);
    for (int peer = 0; peer < shm->ranks; peer++) {
        for (int kind = 0; kind < SHM_KINDS; kind++) {
            end_init(shm, &layout, lane_bytes, (ShmKind)kind, peer, shm->rank, &shm->peers[peer].in[kind]);
            end_init(shm, &layout, lane_bytes, (ShmKind)kind, shm->rank, peer, &shm->peers[peer].out[kind]);
        }
    }
    atomic_store(&shm->presence[shm->rank].attached, 1);
    return KVG_OK;
}

/* ---- 1 identities */

static KvgStatus open_door(Setup *setup, const uint8_t token[TOKEN_BYTES])
{
    char   name[2 * TOKEN_BYTES + 1];
    Layout layout;

    for (int i = 0; i < TOKEN_BYTES; i++) {
        snprintf(name + 2 * i, 3, "%02x", token[i]);
    }
    if (setup->bootstrap->rank != 0) {
        return kvg_shm_door_call(name, setup->deadline_ns, &setup->segment);
    }
    lay_out(setup->bootstrap->ranks, setup->options.lane_bytes, &layout);
    KVG_TRY(kvg_shm_segment_create(layout.whole, &setup->segment));
    return kvg_shm_door_open(name, &setup->door);
}

static KvgStatus check_identities(const Setup *setup)
{
    const ShmIdentity *all = setup->identities;

    for (int peer = 0; peer < setup->bootstrap->ranks; peer++) { /* all compare with rank 0: the verdict is the same everywhere */
        if (all[peer].magic != SHM_MAGIC) {
            return kvg_fail(KVG_ELAYOUT, "shared memory: rank %d speaks another version (magic 0x%08x, not 0x%08x); use one build everywhere", peer,
                            all[peer].magic, SHM_MAGIC);
        }
        if (all[peer].status != KVG_OK) {
            return fail_for_rank(peer, (KvgStatus)all[peer].status);
        }
        if (all[peer].lane_bytes != all[0].lane_bytes || all[peer].message_max != all[0].message_max) {
            return kvg_fail(KVG_ELAYOUT, "shared memory: rank 0 has lanes of %u bytes and messages up to %llu, rank %d of %u and up to %llu; give all the same",
                            all[0].lane_bytes, (unsigned long long)all[0].message_max, peer, all[peer].lane_bytes,
                            (unsigned long long)all[peer].message_max);
        }
        KVG_TRY(kvg_process_near(&all[0].process, 0, &all[peer].process, peer));
    }
    return KVG_OK;
}

static KvgStatus gather_identities(Setup *setup, KvgStatus *status)
{
    ShmIdentity mine;

    memset(&mine, 0, sizeof mine);
    setup_note(setup, status, kvg_process_self(&mine.process));
    if (getrandom(mine.token, sizeof mine.token, 0) != (ssize_t)sizeof mine.token) {
        setup_note(setup, status, kvg_fail(KVG_EIO, "shared memory: the kernel gives no random bytes: %s", strerror(errno)));
    }
    if (setup->bootstrap->rank == 0 && *status == KVG_OK) {
        setup_note(setup, status, open_door(setup, mine.token));
    }
    mine.magic = SHM_MAGIC;
    mine.status = *status;
    mine.lane_bytes = setup->options.lane_bytes;
    mine.message_max = setup->options.message_max;
    KVG_TRY(setup_gather(setup, &mine, setup->identities, sizeof mine));
    return check_identities(setup);
}

/* ---- 2 memory */

static KvgStatus watch_all(const Setup *setup, ShmComm *shm)
{
    uint64_t now_ns = kvg_clock_ns();

    for (int peer = 0; peer < shm->ranks; peer++) {
        ShmPeer *other = &shm->peers[peer];

        other->process = setup->identities[peer].process;
        other->process.who.host[KVG_MESH_HOST_BYTES - 1] = '\0';
        other->sign_ns = now_ns;
        if (peer != shm->rank) {
            KVG_TRY(kvg_process_open(&other->process, peer, &other->watch));
        }
    }
    return KVG_OK;
}

/* Rank 0: serves the door until all are attached. */
static KvgStatus hand_out(Setup *setup, ShmComm *shm)
{
    for (uint64_t rounds = 0;; rounds++) {
        int missing = -1;

        kvg_shm_door_serve(&setup->door, setup->segment);
        for (int peer = shm->ranks - 1; peer > 0; peer--) {
            if (!atomic_load(&shm->presence[peer].attached)) {
                missing = peer;
            }
        }
        if (missing == -1) {
            return KVG_OK;
        }
        const MeshIdentity *who = &shm->peers[missing].process.who;

        if (kvg_process_ended(shm->peers[missing].watch)) {
            return kvg_fail(KVG_EPEER, "shared memory: rank %d (host %.63s, pid %lld) ended during set-up", missing, who->host, (long long)who->pid);
        }
        if (kvg_clock_ns() >= setup->deadline_ns) {
            return kvg_fail(KVG_EINDOUBT, "shared memory: rank %d (host %.63s, pid %lld) did not attach; is it stopped?", missing, who->host,
                            (long long)who->pid);
        }
        kvg_clock_relax(rounds);
    }
}

static KvgStatus share_memory(Setup *setup, ShmComm *shm)
{
    uint64_t whole_ns = setup->deadline_ns, now_ns = kvg_clock_ns();
    KvgStatus status = watch_all(setup, shm);

    setup->deadline_ns = now_ns + kvg_monus_u64(whole_ns, now_ns) / 4 * 3; /* so that the last all-gather can still say who is missing */
    if (status == KVG_OK && shm->rank != 0) {
        status = open_door(setup, setup->identities[0].token);
    }
    if (status == KVG_OK) {
        status = attach(setup, shm, setup->segment);
    }
    if (status == KVG_OK && shm->rank == 0) {
        status = hand_out(setup, shm);
    }
    setup->deadline_ns = whole_ns;
    return status;
}

/* ---- 3 ready */

static KvgStatus gather_readies(Setup *setup, KvgStatus status)
{
    ShmReady mine = { .status = status };

    KVG_TRY(setup_gather(setup, &mine, setup->readies, sizeof mine));
    for (int peer = 0; peer < setup->bootstrap->ranks; peer++) {
        if (setup->readies[peer].status != KVG_OK) {
            return fail_for_rank(peer, (KvgStatus)setup->readies[peer].status);
        }
    }
    return KVG_OK;
}

/* ---- all of it */

static KvgStatus shm_new(int rank, int ranks, ShmComm **shm_p)
{
    void *memory = NULL, *peers = NULL;

    KVG_TRY(kvg_calloc(1, sizeof(ShmComm), "a shared-memory comm", &memory));
    KvgStatus status = kvg_calloc((size_t)ranks, sizeof(ShmPeer), "the peers of a shared-memory comm", &peers);

    if (status != KVG_OK) {
        kvg_free(memory);
        return status;
    }
    ShmComm *shm = memory;

    *shm = (ShmComm){ .rank = rank, .ranks = ranks, .peers = peers, .message_max = MESSAGE_MAX_DEFAULT, .lent = { -1, -1 } };
    for (int peer = 0; peer < ranks; peer++) {
        shm->peers[peer].watch = -1;
    }
    *shm_p = shm;
    return KVG_OK;
}

static KvgStatus setup_new(Setup *setup)
{
    size_t ranks = (size_t)setup->bootstrap->ranks;
    void  *memory = NULL;

    KVG_TRY(kvg_calloc(ranks, sizeof(ShmIdentity), "shared-memory set-up", &memory));
    setup->identities = memory;
    KVG_TRY(kvg_calloc(ranks, sizeof(ShmReady), "shared-memory set-up", &memory));
    setup->readies = memory;
    return KVG_OK;
}

static void setup_free(Setup *setup)
{
    kvg_shm_door_close(&setup->door);
    kvg_mesh_close_fd(&setup->segment);
    kvg_free(setup->identities);
    kvg_free(setup->readies);
}

static KvgStatus setup_run(Setup *setup, ShmComm *shm, KvgStatus status)
{
    setup_note(setup, &status, gather_identities(setup, &status));
    if (status != KVG_OK) {
        return status;
    }
    setup_note(setup, &status, share_memory(setup, shm));
    setup_note(setup, &status, gather_readies(setup, status));
    return status;
}

static KvgStatus check_arguments(const KvgBootstrap *bootstrap, const KvShmCommOptions *options, const KvComm *comm, const KvLiveness *liveness)
{
    if (bootstrap == NULL || comm == NULL || liveness == NULL) {
        return kvg_fail(KVG_EINVAL, "shared memory: bootstrap %p, comm %p, liveness %p; all must be given", (const void *)bootstrap, (const void *)comm,
                        (const void *)liveness);
    }
    if (bootstrap->ranks < 1 || bootstrap->ranks > KVG_SHM_RANKS_MAX || bootstrap->rank < 0 || bootstrap->rank >= bootstrap->ranks) {
        return kvg_fail(KVG_EINVAL, "shared memory: rank %d of %d; 1 to %d ranks are possible", bootstrap->rank, bootstrap->ranks, KVG_SHM_RANKS_MAX);
    }
    if (bootstrap->allgather == NULL && bootstrap->ranks > 1) {
        return kvg_fail(KVG_EINVAL, "shared memory: the bootstrap has no all-gather");
    }
    if (options->lane_bytes != 0 && (options->lane_bytes < LANE_BYTES_LEAST || options->lane_bytes > LANE_BYTES_MOST ||
                                     (options->lane_bytes & (options->lane_bytes - 1)) != 0)) {
        return kvg_fail(KVG_EINVAL, "shared memory: lanes of %u bytes; powers of two from %u to %u are possible", options->lane_bytes, LANE_BYTES_LEAST,
                        LANE_BYTES_MOST);
    }
    return KVG_OK;
}

KvgStatus kvg_comm_shm_create(const KvgBootstrap *given, const KvShmCommOptions *options, KvComm *comm, KvLiveness *liveness)
{
    static const KvgBootstrap     alone = KVG_BOOTSTRAP_INIT;
    static const KvShmCommOptions defaults = KVG_SHM_COMM_OPTIONS_INIT;
    KvgBootstrap                  own;
    Setup                         setup = { .bootstrap = &own, .door = { .fd = -1 }, .segment = -1 };
    ShmComm                      *shm = NULL;

    KVG_TRY(KVG_SIZED_IN(KvgBootstrap, given, alone, own));
    KVG_TRY(KVG_SIZED_IN(KvShmCommOptions, options, defaults, setup.options));
    KVG_TRY(check_arguments(given != NULL ? &own : NULL, &setup.options, comm, liveness));
    setup.options.timeout_ms = setup.options.timeout_ms > 0 ? setup.options.timeout_ms : TIMEOUT_MS_DEFAULT;
    setup.options.lane_bytes = setup.options.lane_bytes > 0 ? setup.options.lane_bytes : LANE_BYTES_DEFAULT;
    setup.options.message_max = setup.options.message_max > 0 ? setup.options.message_max : MESSAGE_MAX_DEFAULT;
    setup.deadline_ns = kvg_clock_ns() + (uint64_t)setup.options.timeout_ms * 1000000u;

    KvgStatus status = setup_new(&setup);

    if (status == KVG_OK) {
        KvgStatus early = KVG_OK; /* from here on the others hear of it */

        setup_note(&setup, &early, shm_new(own.rank, own.ranks, &shm));
        status = setup_run(&setup, shm, early);
        if (status != KVG_OK) {
            kvg_fail(status, "%s", setup.sentence);
        }
    }
    setup_free(&setup);
    if (status != KVG_OK) {
        if (shm != NULL) {
            kvg_shm_free(shm);
        }
        return status;
    }
    shm->message_max = setup.options.message_max;
    kvg_shm_ends(shm, comm, liveness);
    return KVG_OK;
}

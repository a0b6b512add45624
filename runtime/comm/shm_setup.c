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

#include "runtime/base/memory.h"
#include "runtime/base/sized.h"
#include "runtime/comm/clock.h"
#include "runtime/comm/meeting.h"
#include "runtime/comm/shm_segment.h"

#define SHM_MAGIC           0x314c474bu /* "KGL1" */
#define LANE_BYTES_DEFAULT  65536u
#define LANE_BYTES_LEAST    4096u
#define LANE_BYTES_MOST     (16u << 20)
#define MESSAGE_MAX_DEFAULT ((size_t)256 << 20)
#define PAGE                4096u
#define TOKEN_BYTES         16
#define DOOR_NAME_BYTES     (2 * TOKEN_BYTES + 1)

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
    Meeting          meeting;
    KvShmCommOptions options; /* zeros replaced by what they mean */
    ShmIdentity     *identities; /* [ranks] */
    ShmReady        *readies;    /* [ranks] */
    ShmDoor          door;
    int              segment;
    ShmComm         *shm; /* NULL: none yet, or handed out */
} Setup;

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

static void name_door(const uint8_t token[TOKEN_BYTES], char name[DOOR_NAME_BYTES])
{
    for (int i = 0; i < TOKEN_BYTES; i++) {
        snprintf(name + 2 * i, 3, "%02x", token[i]);
    }
}

static KvgStatus open_door(Setup *setup, const uint8_t token[TOKEN_BYTES])
{
    char   name[DOOR_NAME_BYTES];
    Layout layout;

    name_door(token, name);
    lay_out(setup->meeting.bootstrap.ranks, setup->options.lane_bytes, &layout);
    KVG_TRY(kvg_shm_segment_create(layout.whole, &setup->segment));
    return kvg_shm_door_open(name, &setup->door);
}

static KvgStatus check_identities(const Setup *setup)
{
    const ShmIdentity *all = setup->identities;

    for (int peer = 0; peer < setup->meeting.bootstrap.ranks; peer++) { /* all compare with rank 0: the verdict is the same everywhere */
        if (all[peer].magic != SHM_MAGIC) {
            return kvg_fail(KVG_ELAYOUT, "shared memory: rank %d speaks another version (magic 0x%08x, not 0x%08x); use one build everywhere", peer,
                            all[peer].magic, SHM_MAGIC);
        }
        if (all[peer].status != KVG_OK) {
            return kvg_meeting_fail_for(&setup->meeting, peer, (KvgStatus)all[peer].status);
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

static KvgStatus gather_identities(Setup *setup)
{
    Meeting    *meeting = &setup->meeting;
    ShmIdentity mine;

    memset(&mine, 0, sizeof mine);
    kvg_meeting_note(meeting, kvg_process_self(&mine.process));
    if (getrandom(mine.token, sizeof mine.token, 0) != (ssize_t)sizeof mine.token) {
        kvg_meeting_note(meeting, kvg_fail(KVG_EIO, "shared memory: the kernel gives no random bytes: %s", strerror(errno)));
    }
    if (meeting->bootstrap.rank == 0 && meeting->status == KVG_OK) {
        kvg_meeting_note(meeting, open_door(setup, mine.token));
    }
    mine.magic = SHM_MAGIC;
    mine.status = meeting->status;
    mine.lane_bytes = setup->options.lane_bytes;
    mine.message_max = setup->options.message_max;
    KVG_TRY(kvg_meeting_gather(meeting, &mine, setup->identities, sizeof mine));
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
        snprintf(other->why, sizeof other->why, "host %s, pid %lld", other->process.who.host, (long long)other->process.who.pid);
        other->sign_ns = now_ns;
        if (peer != shm->rank) {
            KVG_TRY(kvg_process_open(&other->process, peer, &other->watch));
        }
    }
    return KVG_OK;
}

/* Rank 0: serves the door until all are attached. */
static KvgStatus hand_out(Setup *setup, ShmComm *shm, uint64_t until_ns)
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
        if (kvg_clock_ns() >= until_ns) {
            return kvg_fail(KVG_EINDOUBT, "shared memory: rank %d (host %.63s, pid %lld) did not attach; is it stopped?", missing, who->host,
                            (long long)who->pid);
        }
        kvg_clock_relax(rounds);
    }
}

static KvgStatus fetch(Setup *setup, uint64_t until_ns)
{
    char name[DOOR_NAME_BYTES];

    name_door(setup->identities[0].token, name);
    return kvg_shm_door_call(name, until_ns, &setup->segment);
}

static KvgStatus share_memory(Setup *setup, ShmComm *shm)
{
    uint64_t until_ns = kvg_meeting_work_until_ns(&setup->meeting);

    KVG_TRY(watch_all(setup, shm));
    if (shm->rank != 0) {
        KVG_TRY(fetch(setup, until_ns));
    }
    KVG_TRY(attach(setup, shm, setup->segment));
    return shm->rank == 0 ? hand_out(setup, shm, until_ns) : KVG_OK;
}

/* ---- 3 ready */

static KvgStatus gather_readies(Setup *setup)
{
    ShmReady mine = { .status = setup->meeting.status };

    KVG_TRY(kvg_meeting_gather(&setup->meeting, &mine, setup->readies, sizeof mine));
    for (int peer = 0; peer < setup->meeting.bootstrap.ranks; peer++) {
        if (setup->readies[peer].status != KVG_OK) {
            return kvg_meeting_fail_for(&setup->meeting, peer, (KvgStatus)setup->readies[peer].status);
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
    size_t ranks = (size_t)setup->meeting.bootstrap.ranks;

    KVG_TRY(KVG_NEW(ranks, "shared-memory set-up", &setup->identities));
    KVG_TRY(KVG_NEW(ranks, "shared-memory set-up", &setup->readies));
    return KVG_OK;
}

static void setup_free(Setup *setup)
{
    kvg_shm_door_close(&setup->door);
    kvg_mesh_close_fd(&setup->segment);
    kvg_free(setup->identities);
    kvg_free(setup->readies);
    if (setup->shm != NULL) {
        kvg_shm_free(setup->shm);
    }
}

static KvgStatus setup_run(Setup *setup)
{
    Meeting *meeting = &setup->meeting;

    kvg_meeting_note(meeting, shm_new(meeting->bootstrap.rank, meeting->bootstrap.ranks, &setup->shm)); /* from here on the others hear of it */
    KVG_TRY(kvg_meeting_note(meeting, gather_identities(setup)));
    kvg_meeting_note(meeting, share_memory(setup, setup->shm));
    return kvg_meeting_note(meeting, gather_readies(setup));
}

static KvgStatus check_lanes(uint32_t lane_bytes)
{
    if (lane_bytes != 0 && (lane_bytes < LANE_BYTES_LEAST || lane_bytes > LANE_BYTES_MOST || (lane_bytes & (lane_bytes - 1)) != 0)) {
        return kvg_fail(KVG_EINVAL, "shared memory: lanes of %u bytes; powers of two from %u to %u are possible", lane_bytes, LANE_BYTES_LEAST,
                        LANE_BYTES_MOST);
    }
    return KVG_OK;
}

KvgStatus kvg_comm_shm_create(const KvgBootstrap *bootstrap, const KvShmCommOptions *options, KvComm *comm, KvLiveness *liveness)
{
    static const KvShmCommOptions defaults = KVG_SHM_COMM_OPTIONS_INIT;
    Setup                         setup = { .door = { .fd = -1 }, .segment = -1 };

    KVG_TRY(kvg_meeting_open("shared memory", bootstrap, KVG_SHM_RANKS_MAX, comm, liveness, &setup.meeting));
    KVG_TRY(KVG_SIZED_IN(KvShmCommOptions, options, defaults, setup.options));
    KVG_TRY(check_lanes(setup.options.lane_bytes));
    setup.options.lane_bytes = setup.options.lane_bytes > 0 ? setup.options.lane_bytes : LANE_BYTES_DEFAULT;
    setup.options.message_max = setup.options.message_max > 0 ? setup.options.message_max : MESSAGE_MAX_DEFAULT;
    kvg_meeting_start(&setup.meeting, setup.options.timeout_ms);
    if (kvg_meeting_note(&setup.meeting, setup_new(&setup)) == KVG_OK && setup_run(&setup) == KVG_OK) {
        setup.shm->message_max = setup.options.message_max;
        kvg_shm_ends(setup.shm, comm, liveness);
        setup.shm = NULL;
    }
    setup_free(&setup);
    return kvg_meeting_verdict(&setup.meeting);
}

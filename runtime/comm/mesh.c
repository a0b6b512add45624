/* Mesh: the two ends over one set of sockets. What they do with bytes is in mesh_frames.c. */
#include "runtime/comm/mesh_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include "runtime/base/memory.h"
#include "runtime/comm/clock.h"

#define ROUND_NS        200000u    /* liveness.poll touches sockets at most this often */
#define CLOSE_IDLE_NS   500000000u  /* nothing queued has left for so long: its peers do not read. A peer that reads may be that slow on a busy machine */
#define CLOSE_FLUSH_NS  1500000000u /* and so long in all */
#define SPARES_A_PEER   8u
#define DRAIN_READS_MAX 64

KvgStatus kvg_mesh_new(int rank, int ranks, Mesh **mesh_p)
{
    KvgStatus status = KVG_OK;
    void     *memory = NULL;

    Mesh *mesh = NULL;
    KVG_TRY(KVG_NEW(1, "a socket mesh", &mesh));

    mesh->rank = rank;
    mesh->ranks = ranks;
    mesh->epoll_fd = -1;
    KVG_TRY_GOTO(KVG_NEW((size_t)ranks, "the peers of a socket mesh", &mesh->peers), err_free);
    for (int peer = 0; peer < ranks; peer++) {
        mesh->peers[peer].fd = -1;
    }
    KVG_TRY_GOTO(kvg_calloc((size_t)ranks, KVG_MESH_STAGING, "receive buffers of a socket mesh", &memory), err_free);
    mesh->staging = memory;
    for (int peer = 0; peer < ranks; peer++) {
        mesh->peers[peer].staging = mesh->staging + (size_t)peer * KVG_MESH_STAGING;
    }
    mesh->epoll_fd = kvg_mesh_denied() ? -1 : epoll_create1(EPOLL_CLOEXEC);
    if (mesh->epoll_fd < 0) {
        status = kvg_fail(KVG_EIO, "mesh: rank %d gets no epoll descriptor: %s; raise the limit of open files", rank, strerror(errno));
        goto err_free;
    }
    *mesh_p = mesh;
    return KVG_OK;
err_free:
    kvg_mesh_free(mesh);
    return status;
}

/* Says goodbye and reads what is left: a TCP close with unread bytes would reset the connection and could take back
 * what the peer has not read yet. */
static void peer_hang_up(MeshPeer *other)
{
    uint8_t sink[512];

    if (other->fd == -1) {
        return;
    }
    shutdown(other->fd, SHUT_WR);
    for (int reads = 0; reads < DRAIN_READS_MAX && recv(other->fd, sink, sizeof sink, MSG_DONTWAIT) > 0; reads++) {
    }
    kvg_mesh_close_fd(&other->fd);
}

void kvg_mesh_free(Mesh *mesh)
{
    for (int peer = 0; mesh->peers != NULL && peer < mesh->ranks; peer++) {
        peer_hang_up(&mesh->peers[peer]);
        kvg_mesh_queue_free(&mesh->peers[peer].outgoing);
        kvg_free(mesh->peers[peer].incoming);
    }
    kvg_mesh_close_fd(&mesh->epoll_fd);
    kvg_mesh_queue_free(&mesh->messages);
    kvg_mesh_queue_free(&mesh->records);
    kvg_free(mesh->given_message);
    kvg_free(mesh->given_record);
    for (MeshFrame *frame = mesh->spares; frame != NULL;) {
        MeshFrame *next = frame->next;

        kvg_free(frame);
        frame = next;
    }
    kvg_free(mesh->staging);
    kvg_free(mesh->peers);
    kvg_free(mesh);
}

/* ---- comm */

static KvgStatus mesh_send(void *self, int peer, const void *bytes, size_t byte_count)
{
    Mesh *mesh = self;

    if (peer < 0 || peer >= mesh->ranks || peer == mesh->rank) {
        return kvg_fail(KVG_EINVAL, "mesh: rank %d sends to rank %d of %d; a peer is another rank", mesh->rank, peer, mesh->ranks);
    }
    if (byte_count > mesh->message_max) {
        return kvg_fail(KVG_EINVAL, "mesh: a message of %zu bytes to rank %d; at most %zu (message_max of the mesh)", byte_count, peer,
                        mesh->message_max);
    }
    return kvg_mesh_send(mesh, peer, MESH_MESSAGE, bytes, byte_count);
}

static KvgStatus mesh_recv(void *self, int *peer, const void **bytes, size_t *byte_count)
{
    Mesh *mesh = self;

    *peer = -1;
    *bytes = NULL;
    *byte_count = 0;
    kvg_mesh_frame_put(mesh, mesh->given_message);
    if (mesh->messages.first == NULL) {
        kvg_mesh_round(mesh);
    }
    mesh->given_message = kvg_mesh_queue_pop(&mesh->messages);
    if (mesh->given_message != NULL) {
        *peer = mesh->given_message->peer;
        *bytes = mesh->given_message->bytes;
        *byte_count = mesh->given_message->byte_count;
    }
    return KVG_OK;
}

static KvgStatus mesh_records_open(void *self, size_t record_bytes)
{
    Mesh  *mesh = self;
    size_t before = mesh->record_bytes;

    if (record_bytes == 0 || record_bytes > KVG_MESH_RECORD_MAX) {
        return kvg_fail(KVG_EINVAL, "mesh: records of %zu bytes; 1 to %u are possible", record_bytes, KVG_MESH_RECORD_MAX);
    }
    mesh->record_bytes = record_bytes;
    KvgStatus status = kvg_mesh_reserve(mesh, SPARES_A_PEER * (size_t)(mesh->ranks - 1));

    if (status != KVG_OK) {
        mesh->record_bytes = before;
    }
    return status;
}

static KvgStatus mesh_post(void *self, const void *record)
{
    Mesh *mesh = self;

    KVG_ASSERT(mesh->record_bytes > 0); /* records_open comes first */
    KVG_TRY(kvg_mesh_reserve(mesh, (size_t)(mesh->ranks - 1))); /* paid before the first leaves: all get it or none */
    for (int peer = 0; peer < mesh->ranks; peer++) {
        if (peer != mesh->rank) {
            KVG_TRY(kvg_mesh_send(mesh, peer, MESH_RECORD, record, mesh->record_bytes));
        }
    }
    return KVG_OK;
}

static const void *mesh_take(void *self, int *peer)
{
    Mesh *mesh = self;

    *peer = -1;
    kvg_mesh_frame_put(mesh, mesh->given_record);
    mesh->given_record = NULL;
    if (mesh->record_bytes == 0) {
        return NULL;
    }
    if (mesh->records.first == NULL) {
        kvg_mesh_round(mesh);
    }
    MeshFrame *frame = kvg_mesh_queue_pop(&mesh->records);

    if (frame == NULL) {
        return NULL;
    }
    mesh->given_record = frame;
    if (frame->byte_count != mesh->record_bytes) {
        kvg_mesh_lose(mesh, frame->peer, "rank %d (host %s, pid %lld) sent a record of %zu bytes where records have %zu; connection dropped",
                      frame->peer, mesh->peers[frame->peer].host, (long long)mesh->peers[frame->peer].pid, frame->byte_count,
                      mesh->record_bytes);
        return NULL;
    }
    *peer = frame->peer;
    return frame->bytes;
}

static uint64_t mesh_now_ns(void *self)
{
    (void)self;
    return kvg_clock_ns();
}

static void mesh_relax(void *self, uint64_t rounds)
{
    (void)self;
    kvg_clock_relax(rounds);
}

/* Changes whenever a queued byte leaves. */
static uint64_t queue_state(const Mesh *mesh)
{
    uint64_t state = 0;

    for (int peer = 0; peer < mesh->ranks; peer++) {
        const MeshFrame *first = mesh->peers[peer].outgoing.first;
        state = state * 31 + (uintptr_t)first + (first != NULL ? first->done : 0);
    }
    return state;
}

/* Gives queued frames a bounded moment to leave for peers that read. */
static void flush_briefly(Mesh *mesh)
{
    uint64_t began_ns = kvg_clock_ns(), moved_ns = began_ns, now_ns = began_ns, state = queue_state(mesh);

    for (uint64_t rounds = 0; kvg_mesh_sending(mesh) && now_ns - moved_ns < CLOSE_IDLE_NS && now_ns - began_ns < CLOSE_FLUSH_NS; rounds++) {
        kvg_mesh_round(mesh);
        kvg_clock_relax(rounds);
        now_ns = kvg_clock_ns();
        if (queue_state(mesh) != state) {
            state = queue_state(mesh);
            moved_ns = now_ns;
        }
    }
}

static void mesh_comm_close(void *self)
{
    Mesh *mesh = self;

    KVG_ASSERT(mesh->comm_open);
    flush_briefly(mesh);
    mesh->comm_open = 0;
    kvg_mesh_queue_free(&mesh->messages);
    kvg_mesh_queue_free(&mesh->records);
    if (!mesh->liveness_open) {
        kvg_mesh_free(mesh);
    }
}

static const KvCommOps mesh_comm_ops = {
    .name = "mesh",
    .send = mesh_send,
    .recv = mesh_recv,
    .records_open = mesh_records_open,
    .post = mesh_post,
    .take = mesh_take,
    .now_ns = mesh_now_ns,
    .relax = mesh_relax,
    .close = mesh_comm_close,
};

/* ---- liveness */

static void mesh_poll(void *self)
{
    Mesh *mesh = self;

    if (kvg_clock_ns() - mesh->round_ns >= ROUND_NS) {
        kvg_mesh_round(mesh);
    }
}

static const MeshPeer *peer_of(const void *self, int peer)
{
    const Mesh *mesh = self;

    KVG_ASSERT(peer >= 0 && peer < mesh->ranks);
    return &mesh->peers[peer];
}

static int mesh_lost(void *self, int peer)
{
    return peer_of(self, peer)->lost;
}

static uint64_t mesh_last_sign_ns(void *self, int peer)
{
    return peer == ((const Mesh *)self)->rank ? kvg_clock_ns() : peer_of(self, peer)->sign_ns;
}

static const char *mesh_why(void *self, int peer)
{
    return peer_of(self, peer)->why;
}

static void mesh_liveness_close(void *self)
{
    Mesh *mesh = self;

    KVG_ASSERT(mesh->liveness_open);
    mesh->liveness_open = 0;
    if (!mesh->comm_open) {
        kvg_mesh_free(mesh);
    }
}

static const KvLivenessOps mesh_liveness_ops = {
    .name = "mesh",
    .poll = mesh_poll,
    .lost = mesh_lost,
    .last_sign_ns = mesh_last_sign_ns,
    .why = mesh_why,
    .close = mesh_liveness_close,
};

void kvg_mesh_ends(Mesh *mesh, KvComm *comm, KvLiveness *liveness)
{
    mesh->comm_open = mesh->liveness_open = 1;
    *comm = (KvComm){ .ops = &mesh_comm_ops, .self = mesh, .rank = mesh->rank, .size = mesh->ranks };
    *liveness = (KvLiveness){ .ops = &mesh_liveness_ops, .self = mesh };
}

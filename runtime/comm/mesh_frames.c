/* Mesh frames: bytes on connected sockets.
 *
 * In:  1 epoll says who is readable  2 bytes go to the peer's staging, or straight into a large payload
 *      3 whole frames join the queue of messages or records  4 end of file or a malformed frame loses the peer
 * Out: 1 a frame goes to the socket at once if nothing waits before it  2 what the socket does not take is queued
 *      3 every round sends on. A failing send loses nobody: what the peer sent before its end is still read. */
#include "runtime/comm/mesh_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <kvgrid/log.h>

#include "runtime/base/memory.h"
#include "runtime/comm/clock.h"

#define EVENTS_MAX      64
#define READS_A_ROUND   32 /* of one peer, so that a flood leaves time for the others */
#define ROOM_FIRST      ((size_t)256 << 10) /* for a payload, whatever its header promises; more as it comes */
#define ROOM_GROWTH     4

/* ---- frames and queues */

static KvgStatus frame_new(size_t capacity, MeshFrame **frame)
{
    void *fresh = NULL;

    KVG_TRY(kvg_calloc(1, sizeof(MeshFrame) + capacity, "a mesh frame", &fresh));
    *frame = fresh;
    (*frame)->capacity = capacity;
    return KVG_OK;
}

void kvg_mesh_frame_put(Mesh *mesh, MeshFrame *frame)
{
    if (frame == NULL) {
        return;
    }
    if (mesh->spare_capacity == 0 || frame->capacity != mesh->spare_capacity) {
        kvg_free(frame);
        return;
    }
    frame->next = mesh->spares;
    mesh->spares = frame;
    mesh->spare_count++;
}

/* A frame for `byte_count` bytes: a spare if it fits one exactly and there is one. */
static KvgStatus frame_get(Mesh *mesh, size_t byte_count, MeshFrame **frame)
{
    if (byte_count != mesh->spare_capacity || mesh->spares == NULL) {
        return frame_new(byte_count, frame);
    }
    *frame = mesh->spares;
    mesh->spares = (*frame)->next;
    mesh->spare_count--;
    return KVG_OK;
}

KvgStatus kvg_mesh_reserve(Mesh *mesh, size_t count)
{
    size_t capacity = sizeof(MeshHeader) + mesh->record_bytes;

    if (mesh->spare_capacity != capacity) {
        mesh->spare_capacity = 0;
        while (mesh->spares != NULL) {
            MeshFrame *next = mesh->spares->next;

            kvg_free(mesh->spares);
            mesh->spares = next;
        }
        mesh->spare_count = 0;
        mesh->spare_capacity = capacity;
    }
    while (mesh->spare_count < count) {
        MeshFrame *frame = NULL;

        KVG_TRY(frame_new(capacity, &frame));
        kvg_mesh_frame_put(mesh, frame);
    }
    return KVG_OK;
}

static void queue_push(MeshQueue *queue, MeshFrame *frame)
{
    frame->next = NULL;
    if (queue->last != NULL) {
        queue->last->next = frame;
    } else {
        queue->first = frame;
    }
    queue->last = frame;
}

MeshFrame *kvg_mesh_queue_pop(MeshQueue *queue)
{
    MeshFrame *frame = queue->first;

    if (frame != NULL) {
        queue->first = frame->next;
        queue->last = queue->first != NULL ? queue->last : NULL;
    }
    return frame;
}

void kvg_mesh_queue_free(MeshQueue *queue)
{
    for (MeshFrame *frame; (frame = kvg_mesh_queue_pop(queue)) != NULL;) {
        kvg_free(frame);
    }
}

/* ---- loss */

void kvg_mesh_lose(Mesh *mesh, int peer, const char *format, ...)
{
    MeshPeer *other = &mesh->peers[peer];
    va_list   arguments;

    if (other->lost) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(other->why, sizeof other->why, format, arguments);
    va_end(arguments);
    other->lost = 1;
    kvg_mesh_close_fd(&other->fd); /* which also takes it out of the epoll set */
    kvg_mesh_queue_free(&other->outgoing);
    kvg_free(other->incoming);
    other->incoming = NULL;
    kvg_log(KVG_LOG_WARN, "rank %d: %s", mesh->rank, other->why);
}

static void lose_by_errno(Mesh *mesh, int peer, int code)
{
    const MeshPeer *other = &mesh->peers[peer];

    if (code == 0) {
        kvg_mesh_lose(mesh, peer, "connection closed by rank %d (host %s, pid %lld)", peer, other->host,
                      (long long)other->pid);
    } else {
        kvg_mesh_lose(mesh, peer, "connection to rank %d (host %s, pid %lld) broken: %s", peer, other->host,
                      (long long)other->pid, strerror(code));
    }
}

KvgStatus kvg_mesh_adopt(Mesh *mesh, int peer, int fd)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u32 = (uint32_t)peer };
    MeshPeer          *other = &mesh->peers[peer];

    KVG_ASSERT(other->fd == -1 && !other->lost && peer != mesh->rank);
    if (epoll_ctl(mesh->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        return kvg_fail(KVG_EIO, "mesh: rank %d cannot watch its connection to rank %d: %s", mesh->rank, peer, strerror(errno));
    }
    other->fd = fd;
    other->sign_ns = other->sent_ns = kvg_clock_ns();
    return KVG_OK;
}

/* ---- in */

static int header_is_sound(const Mesh *mesh, const MeshHeader *header)
{
    if (header->magic != KVG_MESH_MAGIC) {
        return 0;
    }
    switch (header->kind) {
    case MESH_BEAT:
        return header->byte_count == 0;
    case MESH_MESSAGE:
        return header->byte_count <= mesh->message_max;
    case MESH_RECORD: /* its exact size is judged when it is taken: it may come before our records_open */
        return header->byte_count > 0 && header->byte_count <= KVG_MESH_RECORD_MAX;
    default:
        return 0;
    }
}

static void lose_malformed(Mesh *mesh, int peer, const MeshHeader *header)
{
    kvg_mesh_lose(mesh, peer,
                  "rank %d (host %s, pid %lld) sent a malformed frame (magic 0x%08x, kind %u, %llu bytes; messages up to %zu); "
                  "connection dropped",
                  peer, mesh->peers[peer].host, (long long)mesh->peers[peer].pid, header->magic, header->kind,
                  (unsigned long long)header->byte_count, mesh->message_max);
}

/* A record gets room for a header too, so that a spare serves both directions. */
static size_t whole_room(uint32_t kind, size_t byte_count)
{
    return byte_count + (kind == MESH_RECORD ? sizeof(MeshHeader) : 0);
}

static int lose_for_memory(Mesh *mesh, int peer, uint64_t byte_count)
{
    const MeshPeer *other = &mesh->peers[peer];

    kvg_mesh_lose(mesh, peer, "no memory for %llu bytes from rank %d (host %s, pid %lld); connection dropped", (unsigned long long)byte_count, peer,
                  other->host, (long long)other->pid);
    return 0;
}

/* Begins a frame: a beat is over at once, others get room for their payload. 0: the peer is lost. */
static int frame_begin(Mesh *mesh, int peer, const MeshHeader *header)
{
    MeshPeer *other = &mesh->peers[peer];

    if (!header_is_sound(mesh, header)) {
        lose_malformed(mesh, peer, header);
        return 0;
    }
    if (header->kind == MESH_BEAT) {
        return 1;
    }
    size_t room = whole_room(header->kind, (size_t)header->byte_count);

    room = room == mesh->spare_capacity || room < ROOM_FIRST ? room : ROOM_FIRST;
    if (frame_get(mesh, room, &other->incoming) != KVG_OK) {
        return lose_for_memory(mesh, peer, header->byte_count);
    }
    other->incoming->peer = peer;
    other->incoming->kind = header->kind;
    other->incoming->byte_count = (size_t)header->byte_count;
    other->incoming->done = 0;
    return 1;
}

static void frame_end(Mesh *mesh, MeshPeer *other)
{
    MeshFrame *frame = other->incoming;

    other->incoming = NULL;
    if (!mesh->comm_open) { /* only liveness is left: nobody will read it */
        kvg_mesh_frame_put(mesh, frame);
        return;
    }
    queue_push(frame->kind == MESH_RECORD ? &mesh->records : &mesh->messages, frame);
}

/* Payload bytes that there is room for now. */
static size_t frame_room(const MeshFrame *frame)
{
    return (frame->byte_count < frame->capacity ? frame->byte_count : frame->capacity) - frame->done;
}

/* Room is multiplied where it is full: what is set aside follows what has come, not what was promised. 0: the peer is lost. */
static int frame_grow(Mesh *mesh, int peer)
{
    MeshPeer  *other = &mesh->peers[peer];
    MeshFrame *frame = other->incoming, *larger = NULL;
    size_t     most = whole_room(frame->kind, frame->byte_count);

    if (frame_room(frame) > 0 || frame->done == frame->byte_count) {
        return 1;
    }
    if (frame_new(frame->capacity < most / ROOM_GROWTH ? ROOM_GROWTH * frame->capacity : most, &larger) != KVG_OK) {
        return lose_for_memory(mesh, peer, frame->byte_count);
    }
    larger->peer = peer;
    larger->kind = frame->kind;
    larger->byte_count = frame->byte_count;
    larger->done = frame->done;
    memcpy(larger->bytes, frame->bytes, frame->done);
    kvg_mesh_frame_put(mesh, frame);
    other->incoming = larger;
    return 1;
}

/* Cuts the staged bytes into frames. 0: the peer is lost. */
static int staging_cut(Mesh *mesh, int peer)
{
    MeshPeer *other = &mesh->peers[peer];

    for (;;) {
        size_t staged = other->staged_to - other->staged_from;

        if (other->incoming == NULL) {
            MeshHeader header;

            if (staged < sizeof header) {
                break;
            }
            memcpy(&header, other->staging + other->staged_from, sizeof header);
            other->staged_from += sizeof header;
            if (!frame_begin(mesh, peer, &header)) {
                return 0;
            }
            staged -= sizeof header;
        }
        if (other->incoming == NULL) {
            continue; /* it was a beat */
        }
        if (!frame_grow(mesh, peer)) {
            return 0;
        }
        MeshFrame *frame = other->incoming;
        size_t     room = frame_room(frame);
        size_t     now = staged < room ? staged : room;

        memcpy((uint8_t *)frame->bytes + frame->done, other->staging + other->staged_from, now);
        frame->done += now;
        other->staged_from += now;
        if (frame->done < frame->byte_count && now == staged) {
            break;
        }
        if (frame->done == frame->byte_count) {
            frame_end(mesh, other);
        }
    }
    memmove(other->staging, other->staging + other->staged_from, other->staged_to - other->staged_from);
    other->staged_to -= other->staged_from;
    other->staged_from = 0;
    return 1;
}

/* Reads what the peer has sent, at most READS_A_ROUND times. */
static void peer_read(Mesh *mesh, int peer, uint64_t now_ns)
{
    MeshPeer *other = &mesh->peers[peer];

    for (int reads = 0; reads < READS_A_ROUND && !other->lost; reads++) {
        if (other->incoming != NULL && !frame_grow(mesh, peer)) {
            return;
        }
        MeshFrame *frame = other->incoming;
        int        direct = frame != NULL && frame->byte_count - frame->done >= KVG_MESH_STAGING;
        size_t     room = direct ? frame_room(frame) : KVG_MESH_STAGING - other->staged_to;
        uint8_t   *target = direct ? (uint8_t *)frame->bytes + frame->done : other->staging + other->staged_to;

        KVG_ASSERT(!direct || other->staged_to == 0);
        ssize_t got = recv(other->fd, target, room, MSG_DONTWAIT);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (got <= 0) {
            lose_by_errno(mesh, peer, got == 0 ? 0 : errno);
            return;
        }
        other->sign_ns = now_ns;
        if (!direct) {
            other->staged_to += (size_t)got;
            if (!staging_cut(mesh, peer)) {
                return;
            }
        } else {
            frame->done += (size_t)got;
            if (frame->done == frame->byte_count) {
                frame_end(mesh, other);
            }
        }
        if ((size_t)got < room) {
            return; /* the socket is empty; its end, if it came, is read next time */
        }
    }
}

static void round_read(Mesh *mesh, uint64_t now_ns)
{
    struct epoll_event events[EVENTS_MAX];
    int                ready = epoll_wait(mesh->epoll_fd, events, EVENTS_MAX, 0);

    for (int i = 0; i < ready; i++) {
        peer_read(mesh, (int)events[i].data.u32, now_ns);
    }
}

/* ---- out */

/* Bytes the socket took; a broken one takes nothing and is marked. */
static size_t socket_send(MeshPeer *other, const struct iovec *parts, size_t part_count)
{
    struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = part_count };

    for (;;) {
        ssize_t sent = sendmsg(other->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent >= 0) {
            return (size_t)sent;
        }
        if (errno == EINTR) {
            continue;
        }
        other->send_broken = errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS;
        return 0;
    }
}

/* Sends on what is queued. */
static void peer_flush(Mesh *mesh, MeshPeer *other)
{
    while (other->outgoing.first != NULL && !other->send_broken) {
        MeshFrame   *frame = other->outgoing.first;
        struct iovec part = { (uint8_t *)frame->bytes + frame->done, frame->byte_count - frame->done };

        frame->done += socket_send(other, &part, 1);
        if (frame->done < frame->byte_count) {
            break;
        }
        kvg_mesh_frame_put(mesh, kvg_mesh_queue_pop(&other->outgoing));
    }
    if (other->send_broken) {
        kvg_mesh_queue_free(&other->outgoing);
    }
}

KvgStatus kvg_mesh_send(Mesh *mesh, int peer, MeshKind kind, const void *bytes, size_t byte_count)
{
    MeshPeer    *other = &mesh->peers[peer];
    MeshHeader   header = { .magic = KVG_MESH_MAGIC, .kind = kind, .byte_count = byte_count };
    struct iovec parts[2] = { { &header, sizeof header }, { (void *)bytes, byte_count } };
    size_t       whole = sizeof header + byte_count, sent = 0;
    MeshFrame   *frame = NULL;

    if (other->lost || other->send_broken) {
        return KVG_OK; /* liveness tells */
    }
    if (other->outgoing.first == NULL) {
        sent = socket_send(other, parts, byte_count > 0 ? 2 : 1);
    }
    if (sent == whole || other->send_broken) {
        other->sent_ns = kvg_clock_ns();
        return KVG_OK;
    }
    KvgStatus status = frame_get(mesh, whole, &frame);

    if (status != KVG_OK) {
        if (sent > 0) { /* half a frame has left: the stream can only be ended */
            kvg_mesh_lose(mesh, peer, "no memory for the rest of a frame to rank %d (host %s, pid %lld); connection dropped", peer,
                          other->host, (long long)other->pid);
        }
        return status;
    }
    frame->byte_count = whole;
    frame->done = sent;
    memcpy(frame->bytes, &header, sizeof header);
    if (byte_count > 0) {
        memcpy((uint8_t *)frame->bytes + sizeof header, bytes, byte_count);
    }
    queue_push(&other->outgoing, frame);
    other->sent_ns = kvg_clock_ns();
    return KVG_OK;
}

/* A beat is never queued: behind other frames it would say nothing new. A part of one would break the stream, so
 * what the socket did not take of it is. */
static void peer_beat(Mesh *mesh, int peer, uint64_t now_ns)
{
    MeshPeer *other = &mesh->peers[peer];

    if (other->outgoing.first != NULL || other->send_broken || now_ns - other->sent_ns < mesh->heartbeat_ns) {
        return;
    }
    MeshHeader   header = { .magic = KVG_MESH_MAGIC, .kind = MESH_BEAT };
    struct iovec part = { &header, sizeof header };
    size_t       sent = socket_send(other, &part, 1);
    MeshFrame   *rest = NULL;

    other->sent_ns = now_ns; /* a full socket is not tried every round either */
    if (sent == 0 || sent == sizeof header) {
        return;
    }
    if (frame_new(sizeof header, &rest) != KVG_OK) {
        kvg_mesh_lose(mesh, peer, "no memory for the rest of a beat to rank %d; connection dropped", peer);
        return;
    }
    rest->byte_count = sizeof header;
    rest->done = sent;
    memcpy(rest->bytes, &header, sizeof header);
    queue_push(&other->outgoing, rest);
}

int kvg_mesh_sending(const Mesh *mesh)
{
    for (int peer = 0; peer < mesh->ranks; peer++) {
        if (mesh->peers[peer].outgoing.first != NULL) {
            return 1;
        }
    }
    return 0;
}

void kvg_mesh_round(Mesh *mesh)
{
    uint64_t now_ns = kvg_clock_ns();

    mesh->round_ns = now_ns;
    round_read(mesh, now_ns);
    for (int peer = 0; peer < mesh->ranks; peer++) {
        MeshPeer *other = &mesh->peers[peer];

        if (other->fd == -1) {
            continue;
        }
        peer_flush(mesh, other);
        peer_beat(mesh, peer, now_ns);
    }
}

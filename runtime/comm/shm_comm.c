/* Shared-memory comm: frames over lanes.
 *
 * Out: 1 a frame is written to the lane at once if nothing waits before it  2 what the lane does not take is queued
 *      3 every later call writes on.  A post queues for all who need it or for none: memory is paid before the first piece is written.
 * In:  a frame of one piece is given in place, its room is given back by the next take or recv; a larger one is put together in memory that grows with
 *      what has come, never with what was promised.
 * A lost peer's lanes are still read: what it wrote before its end counts. */
#include "runtime/comm/shm_internal.h"

#include <string.h>

#include "runtime/base/memory.h"
#include "runtime/comm/clock.h"
#include "runtime/comm/shm_segment.h"

#define CLOSE_FLUSH_NS 200000000u
#define RECORD_MAX     ((size_t)16 << 20)

/* ---- out */

static KvgStatus frame_new(const void *bytes, uint64_t whole, ShmFrame **frame)
{
    void *memory = NULL;

    KVG_TRY(kvg_calloc(1, sizeof(ShmFrame) + whole, "a frame before a full lane", &memory));
    *frame = memory;
    (*frame)->whole = whole;
    if (whole > 0) {
        memcpy((*frame)->bytes, bytes, whole);
    }
    return KVG_OK;
}

static void queue_push(ShmComm *shm, ShmPeer *other, ShmKind kind, ShmFrame *frame)
{
    frame->next = NULL;
    if (other->first[kind] != NULL) {
        other->last[kind]->next = frame;
    } else {
        other->first[kind] = frame;
    }
    other->last[kind] = frame;
    shm->queued++;
}

static void queue_pop(ShmComm *shm, ShmPeer *other, ShmKind kind)
{
    ShmFrame *frame = other->first[kind];

    other->first[kind] = frame->next;
    kvg_free(frame);
    shm->queued--;
}

void kvg_shm_drop(ShmComm *shm, ShmPeer *other)
{
    for (int kind = 0; kind < SHM_KINDS; kind++) {
        while (other->first[kind] != NULL) {
            queue_pop(shm, other, (ShmKind)kind);
        }
    }
}

static void flush_peer(ShmComm *shm, ShmPeer *other, ShmKind kind)
{
    while (other->first[kind] != NULL) {
        ShmFrame *frame = other->first[kind];

        if (!kvg_lane_write(&other->out[kind], frame->bytes, frame->whole, &frame->done, &frame->begun)) {
            return;
        }
        queue_pop(shm, other, kind);
    }
}

void kvg_shm_flush(ShmComm *shm)
{
    for (int peer = 0; shm->queued > 0 && peer < shm->ranks; peer++) {
        for (int kind = 0; kind < SHM_KINDS; kind++) {
            flush_peer(shm, &shm->peers[peer], (ShmKind)kind);
        }
    }
}

/* Writes what goes now. `spare` receives the rest and is taken over, if there is a rest. */
static void put_frame(ShmComm *shm, ShmPeer *other, ShmKind kind, const void *bytes, uint64_t whole, ShmFrame **spare)
{
    uint64_t done = 0;
    int      begun = 0;

    if (other->first[kind] == NULL && kvg_lane_write(&other->out[kind], bytes, whole, &done, &begun)) {
        return;
    }
    KVG_ASSERT(*spare != NULL);
    (*spare)->done = done;
    (*spare)->begun = begun;
    queue_push(shm, other, kind, *spare);
    *spare = NULL;
}

/* Whether a frame would go whole now; the answer stays true until it is put. */
static int goes_now(ShmPeer *other, ShmKind kind, uint64_t whole)
{
    uint64_t padding;

    return other->first[kind] == NULL && whole <= kvg_piece_most(&other->out[kind]) && kvg_lane_has_room(&other->out[kind], whole, &padding);
}

static KvgStatus shm_send(void *self, int peer, const void *bytes, size_t byte_count)
{
    ShmComm  *shm = self;
    ShmFrame *spare = NULL;

    if (peer < 0 || peer >= shm->ranks || peer == shm->rank) {
        return kvg_fail(KVG_EINVAL, "shared memory: rank %d sends to rank %d of %d; a peer is another rank", shm->rank, peer, shm->ranks);
    }
    if (byte_count > shm->message_max) {
        return kvg_fail(KVG_EINVAL, "shared memory: a message of %zu bytes to rank %d; at most %zu (message_max)", byte_count, peer, shm->message_max);
    }
    ShmPeer *other = &shm->peers[peer];

    if (other->lost) {
        return KVG_OK; /* liveness tells */
    }
    kvg_shm_flush(shm);
    if (!goes_now(other, SHM_MESSAGE, byte_count)) {
        KVG_TRY(frame_new(bytes, byte_count, &spare));
    }
    put_frame(shm, other, SHM_MESSAGE, bytes, byte_count, &spare);
    kvg_free(spare); /* a reader may have made room in the meantime */
    return KVG_OK;
}

static KvgStatus shm_records_open(void *self, size_t record_bytes)
{
    ShmComm *shm = self;

    if (record_bytes == 0 || record_bytes > RECORD_MAX) {
        return kvg_fail(KVG_EINVAL, "shared memory: records of %zu bytes; 1 to %zu are possible", record_bytes, RECORD_MAX);
    }
    shm->record_bytes = record_bytes;
    return KVG_OK;
}

/* Frames for those whose lane is full, as a list in rank order. */
static KvgStatus pay_for_post(ShmComm *shm, const void *record, ShmFrame **spares)
{
    ShmFrame **last = spares;

    for (int peer = 0; peer < shm->ranks; peer++) {
        ShmPeer *other = &shm->peers[peer];

        if (peer == shm->rank || other->lost || goes_now(other, SHM_RECORD, shm->record_bytes)) {
            continue;
        }
        KVG_TRY(frame_new(record, shm->record_bytes, last)); /* the caller frees the list */
        last = &(*last)->next;
    }
    return KVG_OK;
}

static void free_list(ShmFrame *frame)
{
    while (frame != NULL) {
        ShmFrame *next = frame->next;

        kvg_free(frame);
        frame = next;
    }
}

static KvgStatus shm_post(void *self, const void *record)
{
    ShmComm  *shm = self;
    ShmFrame *spares = NULL;

    KVG_ASSERT(shm->record_bytes > 0); /* records_open comes first */
    kvg_shm_flush(shm);
    KvgStatus status = pay_for_post(shm, record, &spares);

    for (int peer = 0; status == KVG_OK && peer < shm->ranks; peer++) {
        ShmPeer *other = &shm->peers[peer];

        if (peer == shm->rank || other->lost) {
            continue;
        }
        ShmFrame *next = spares != NULL ? spares->next : NULL, *spare = spares;

        put_frame(shm, other, SHM_RECORD, record, shm->record_bytes, &spare);
        spares = spare == NULL ? next : spares; /* one that was not needed serves the next */
    }
    free_list(spares);
    atomic_fetch_add_explicit(&shm->presence[shm->rank].beats, 1, memory_order_relaxed);
    return status;
}

/* ---- in */

static void give_back(ShmComm *shm, ShmKind kind)
{
    if (shm->lent[kind] >= 0) {
        kvg_lane_pass(&shm->peers[shm->lent[kind]].in[kind], &shm->lent_piece[kind]);
        shm->lent[kind] = -1;
    }
}

/* Room for one more piece; multiplied where it is full. */
static KvgStatus whole_grow(ShmWhole *incoming, uint32_t bytes)
{
    uint64_t need = incoming->got + bytes, capacity = 4 * incoming->capacity;
    void    *memory = NULL;

    if (need <= incoming->capacity) {
        return KVG_OK;
    }
    capacity = capacity < need ? need : capacity > incoming->whole ? incoming->whole : capacity;
    KVG_TRY(kvg_calloc(1, capacity, "a frame in pieces", &memory));
    if (incoming->got > 0) {
        memcpy(memory, incoming->bytes, incoming->got);
    }
    kvg_free(incoming->bytes);
    incoming->bytes = memory;
    incoming->capacity = capacity;
    return KVG_OK;
}

static uint64_t frame_most(const ShmComm *shm, ShmKind kind)
{
    return kind == SHM_RECORD ? RECORD_MAX : shm->message_max;
}

/* Whether the piece can be the next of this frame. */
static int piece_fits(const ShmComm *shm, ShmKind kind, const ShmWhole *incoming, const ShmPiece *piece)
{
    uint64_t got = incoming->begun ? incoming->got : 0;
    int      first = (piece->flags & PIECE_FIRST) != 0, last = (piece->flags & PIECE_LAST) != 0;

    return (piece->flags & ~(uint32_t)(PIECE_FIRST | PIECE_LAST)) == 0 && first != incoming->begun && piece->whole <= frame_most(shm, kind) &&
           (!incoming->begun || piece->whole == incoming->whole) && piece->bytes <= piece->whole - got && last == (got + piece->bytes == piece->whole);
}

static void lose_torn(ShmComm *shm, int peer, ShmKind kind)
{
    kvg_shm_lose(shm, peer, "rank %d (host %.63s, pid %lld) wrote a malformed %s; its lanes are no longer read", peer, shm->peers[peer].process.who.host,
                 (long long)shm->peers[peer].process.who.pid, kind == SHM_RECORD ? "record" : "message");
    shm->peers[peer].deaf = 1;
}

/* The next whole frame of one peer: 1, and where it lies. Its bytes stay until give_back or, put together, until the next piece. */
static int peer_next(ShmComm *shm, int peer, ShmKind kind, const void **bytes, uint64_t *whole)
{
    ShmPeer    *other = &shm->peers[peer];
    ShmWhole   *incoming = &other->incoming[kind];
    ShmPiece    piece;
    const void *place = NULL;

    while (!other->deaf) {
        LaneSight sight = kvg_lane_look(&other->in[kind], &piece, &place);

        if (sight == LANE_EMPTY) {
            return 0;
        }
        if (sight == LANE_TORN || !piece_fits(shm, kind, incoming, &piece)) {
            lose_torn(shm, peer, kind);
            return 0;
        }
        if (piece.flags == (PIECE_FIRST | PIECE_LAST)) {
            shm->lent[kind] = peer;
            shm->lent_piece[kind] = piece;
            *bytes = place;
            *whole = piece.whole;
            return 1;
        }
        if (!incoming->begun) {
            incoming->got = 0;
            incoming->whole = piece.whole;
        }
        if (whole_grow(incoming, piece.bytes) != KVG_OK) {
            return 0; /* the piece stays in the lane: this is tried again */
        }
        memcpy(incoming->bytes + incoming->got, place, piece.bytes);
        incoming->got += piece.bytes;
        incoming->begun = !(piece.flags & PIECE_LAST);
        kvg_lane_pass(&other->in[kind], &piece);
        if (!incoming->begun) {
            *bytes = incoming->bytes;
            *whole = incoming->whole;
            return 1;
        }
    }
    return 0;
}

/* The next frame of any peer; each has its turn. -1: none. */
static int next_frame(ShmComm *shm, ShmKind kind, const void **bytes, uint64_t *whole)
{
    give_back(shm, kind);
    if (shm->queued > 0) {
        kvg_shm_flush(shm);
    }
    for (int i = 0, peer = shm->turn[kind]; i < shm->ranks; i++, peer = peer + 1 < shm->ranks ? peer + 1 : 0) {
        if (peer != shm->rank && peer_next(shm, peer, kind, bytes, whole)) {
            shm->turn[kind] = peer + 1 < shm->ranks ? peer + 1 : 0;
            return peer;
        }
    }
    return -1;
}

static KvgStatus shm_recv(void *self, int *peer, const void **bytes, size_t *byte_count)
{
    uint64_t whole = 0;

    *bytes = NULL;
    *peer = next_frame(self, SHM_MESSAGE, bytes, &whole);
    *byte_count = (size_t)whole;
    return KVG_OK;
}

static const void *shm_take(void *self, int *peer)
{
    ShmComm    *shm = self;
    const void *bytes = NULL;
    uint64_t    whole = 0;

    *peer = -1;
    if (shm->record_bytes == 0) {
        return NULL;
    }
    int from = next_frame(shm, SHM_RECORD, &bytes, &whole);

    if (from >= 0 && whole != shm->record_bytes) {
        kvg_shm_lose(shm, from, "rank %d (host %.63s, pid %lld) sent a record of %llu bytes where records have %zu; it is no longer listened to", from,
                     shm->peers[from].process.who.host, (long long)shm->peers[from].process.who.pid, (unsigned long long)whole, shm->record_bytes);
        shm->peers[from].deaf = 1;
        return NULL;
    }
    *peer = from;
    return bytes;
}

/* ---- ends */

static uint64_t shm_now_ns(void *self)
{
    (void)self;
    return kvg_clock_ns();
}

static void shm_relax(void *self, uint64_t rounds)
{
    (void)self;
    kvg_clock_relax(rounds);
}

void kvg_shm_free(ShmComm *shm)
{
    if (shm->presence != NULL) {
        atomic_store_explicit(&shm->presence[shm->rank].closed, 1, memory_order_release);
    }
    for (int peer = 0; shm->peers != NULL && peer < shm->ranks; peer++) {
        ShmPeer *other = &shm->peers[peer];

        kvg_mesh_close_fd(&other->watch);
        kvg_shm_drop(shm, other);
        kvg_free(other->incoming[SHM_RECORD].bytes);
        kvg_free(other->incoming[SHM_MESSAGE].bytes);
    }
    kvg_shm_segment_unmap(shm->memory, shm->memory_bytes);
    kvg_free(shm->peers);
    kvg_free(shm);
}

static void shm_comm_close(void *self)
{
    ShmComm *shm = self;
    uint64_t deadline_ns = kvg_clock_ns() + CLOSE_FLUSH_NS;

    KVG_ASSERT(shm->comm_open);
    for (uint64_t rounds = 0; shm->queued > 0 && kvg_clock_ns() < deadline_ns; rounds++) {
        shm->looked_ns = 0;
        kvg_shm_liveness_ops.poll(shm); /* what is queued for the dead is dropped */
        kvg_shm_flush(shm);
        kvg_clock_relax(rounds);
    }
    shm->comm_open = 0;
    if (!shm->liveness_open) {
        kvg_shm_free(shm);
    }
}

static const KvCommOps shm_comm_ops = {
    .name = "shm",
    .send = shm_send,
    .recv = shm_recv,
    .records_open = shm_records_open,
    .post = shm_post,
    .take = shm_take,
    .now_ns = shm_now_ns,
    .relax = shm_relax,
    .close = shm_comm_close,
};

void kvg_shm_ends(ShmComm *shm, KvComm *comm, KvLiveness *liveness)
{
    shm->comm_open = shm->liveness_open = 1;
    *comm = (KvComm){ .ops = &shm_comm_ops, .self = shm, .rank = shm->rank, .size = shm->ranks };
    *liveness = (KvLiveness){ .ops = &kvg_shm_liveness_ops, .self = shm };
}

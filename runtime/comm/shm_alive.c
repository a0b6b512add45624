/* Shared-memory liveness.
 *
 *   died     its pidfd is readable                       looked at at most every LOOK_NS: it costs a system call a peer
 *   closed   its flag is set                             at each poll
 *   silent   its beats stand still                       at each poll; ours go up
 * Beats are counted, not timed, and a change is dated by the clock of who sees it: no two clocks need to agree. */
#include "runtime/comm/shm_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <kvgrid/log.h>

#include "runtime/base/error.h"
#include "runtime/comm/clock.h"

#define LOOK_NS 1000000u

void kvg_shm_lose(ShmComm *shm, int peer, const char *format, ...)
{
    ShmPeer *other = &shm->peers[peer];
    va_list  arguments;

    if (other->lost) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(other->why, sizeof other->why, format, arguments);
    va_end(arguments);
    other->lost = 1;
    kvg_mesh_close_fd(&other->watch);
    kvg_shm_drop(shm, other);
    kvg_log(KVG_LOG_WARN, "rank %d: %s", shm->rank, other->why);
}

static void look_at(ShmComm *shm, int peer, int at_death, uint64_t now_ns)
{
    ShmPeer     *other = &shm->peers[peer];
    ShmPresence *presence = &shm->presence[peer];
    uint32_t     beats = atomic_load_explicit(&presence->beats, memory_order_relaxed);
    long long    pid = (long long)other->process.who.pid;

    if (beats != other->beats) {
        other->beats = beats;
        other->sign_ns = now_ns;
    }
    if (atomic_load_explicit(&presence->closed, memory_order_acquire)) {
        kvg_shm_lose(shm, peer, "connection closed by rank %d (host %.63s, pid %lld)", peer, other->process.who.host, pid);
    } else if (at_death && kvg_process_ended(other->watch)) {
        kvg_shm_lose(shm, peer, "the process of rank %d (host %.63s, pid %lld) has ended", peer, other->process.who.host, pid);
    }
}

static void alive_poll(void *self)
{
    ShmComm *shm = self;
    uint64_t now_ns = kvg_clock_ns();
    int      at_death = now_ns - shm->looked_ns >= LOOK_NS;

    atomic_fetch_add_explicit(&shm->presence[shm->rank].beats, 1, memory_order_relaxed);
    kvg_shm_flush(shm);
    for (int peer = 0; peer < shm->ranks; peer++) {
        if (peer != shm->rank && !shm->peers[peer].lost) {
            look_at(shm, peer, at_death, now_ns);
        }
    }
    if (at_death) {
        shm->looked_ns = now_ns;
    }
}

static const ShmPeer *peer_of(const void *self, int peer)
{
    const ShmComm *shm = self;

    KVG_ASSERT(peer >= 0 && peer < shm->ranks);
    return &shm->peers[peer];
}

static int alive_lost(void *self, int peer)
{
    return peer_of(self, peer)->lost;
}

static uint64_t alive_last_sign_ns(void *self, int peer)
{
    return peer == ((const ShmComm *)self)->rank ? kvg_clock_ns() : peer_of(self, peer)->sign_ns;
}

static const char *alive_why(void *self, int peer)
{
    return peer_of(self, peer)->why;
}

static void alive_close(void *self)
{
    ShmComm *shm = self;

    KVG_ASSERT(shm->liveness_open);
    shm->liveness_open = 0;
    if (!shm->comm_open) {
        kvg_shm_free(shm);
    }
}

const KvLivenessOps kvg_shm_liveness_ops = {
    .name = "shm",
    .poll = alive_poll,
    .lost = alive_lost,
    .last_sign_ns = alive_last_sign_ns,
    .why = alive_why,
    .close = alive_close,
};

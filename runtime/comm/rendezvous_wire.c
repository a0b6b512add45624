/* Rendezvous wire: frames, each read to its last byte and not beyond it, and the proofs. */
#include "runtime/comm/rendezvous_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/comm/clock.h"
#include "runtime/comm/mesh_internal.h"

#define DRAIN_READS_MAX 64
#define MARGIN_MS_MAX   250u /* or a tenth of the time, if that is less */

/* What a frame of each kind holds; 0: as many as the all-gather has. */
static const uint32_t kind_bytes[RV_KINDS] = {
    [RV_HELLO] = sizeof(RvHello), [RV_CHALLENGE] = sizeof(RvChallenge), [RV_PROOF] = sizeof(RvProof), [RV_VERDICT] = sizeof(RvVerdict),
    [RV_OVER] = sizeof(RvOver)
};

static int header_is_sound(const RvHeader *header, uint32_t kinds, size_t bytes)
{
    if (header->magic != RV_MAGIC || header->kind >= RV_KINDS || !(kinds >> header->kind & 1)) {
        return 0;
    }
    return header->bytes == (kind_bytes[header->kind] > 0 ? kind_bytes[header->kind] : bytes);
}

/* One read. Negative: the connection is over; 0: nothing now. */
static ssize_t read_some(int fd, void *target, size_t room)
{
    ssize_t got;

    do {
        got = recv(fd, target, room, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return 0;
    }
    return got > 0 ? got : -1;
}

RvNews kvg_rv_read(RvLink *link, uint32_t kinds, void *payload, size_t bytes)
{
    for (;;) {
        size_t   whole = sizeof link->header;
        uint8_t *target = (uint8_t *)&link->header + link->got;

        if (link->got >= sizeof link->header) {
            int small = kind_bytes[link->header.kind] > 0;

            whole += link->header.bytes;
            target = (small ? (uint8_t *)&link->in : (uint8_t *)payload) + (link->got - sizeof link->header);
        }
        if (link->got < whole) {
            ssize_t got = read_some(link->fd, target, whole - link->got);

            if (got <= 0) {
                return got < 0 ? RV_GONE : RV_NOTHING;
            }
            link->got += (size_t)got;
        }
        if (link->got == sizeof link->header && !header_is_sound(&link->header, kinds, bytes)) {
            return RV_MALFORMED;
        }
        if (link->got >= sizeof link->header && link->got == sizeof link->header + link->header.bytes) {
            link->got = 0;
            return RV_FRAME;
        }
    }
}

RvHeader kvg_rv_header(RvKind kind, size_t bytes)
{
    return (RvHeader){ .magic = RV_MAGIC, .kind = kind, .bytes = (uint32_t)bytes };
}

int kvg_rv_send_on(int fd, const RvHeader *header, const void *payload, size_t *sent)
{
    size_t whole = sizeof *header + header->bytes;

    while (*sent < whole) {
        size_t        from = *sent < sizeof *header ? 0 : *sent - sizeof *header;
        struct iovec  parts[2] = { { (uint8_t *)header + *sent, sizeof *header - *sent }, { (uint8_t *)payload + from, header->bytes - from } };
        struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

        if (*sent >= sizeof *header) {
            message.msg_iov = parts + 1;
            message.msg_iovlen = 1;
        }
        ssize_t now = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (now < 0 && errno == EINTR) {
            continue;
        }
        if (now < 0) {
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? 0 : -1;
        }
        *sent += (size_t)now;
    }
    return 1;
}

void kvg_rv_say(int fd, RvKind kind, const void *payload, size_t bytes)
{
    RvHeader header = kvg_rv_header(kind, bytes);
    size_t   sent = 0;

    (void)kvg_rv_send_on(fd, &header, payload, &sent);
}

uint64_t kvg_rv_speak_by(uint32_t left_ms)
{
    return kvg_clock_ns() + (left_ms - kvg_min_u64(left_ms / 10, MARGIN_MS_MAX)) * 1000000u;
}

void kvg_rv_hang_up(RvLink *link)
{
    char sink[512];

    if (link->fd == -1) {
        return;
    }
    shutdown(link->fd, SHUT_WR);
    for (int reads = 0; reads < DRAIN_READS_MAX && recv(link->fd, sink, sizeof sink, MSG_DONTWAIT) > 0; reads++) {
    }
    kvg_mesh_close_fd(&link->fd);
}

void kvg_rv_wait(int fd, short events, uint64_t deadline_ns)
{
    struct pollfd poll_fd = { .fd = fd, .events = events };
    uint64_t      left_ms = (kvg_monus_u64(deadline_ns, kvg_clock_ns()) + 999999) / 1000000;

    poll(&poll_fd, 1, (int)kvg_min_u64(left_ms, 1000));
}

void kvg_rv_nonce(uint8_t nonce[RV_NONCE_BYTES], KvgStatus *status)
{
    *status = KVG_OK;
    if (getrandom(nonce, RV_NONCE_BYTES, 0) != RV_NONCE_BYTES) {
        *status = kvg_fail(KVG_EIO, "rendezvous: the kernel gives no random bytes: %s", strerror(errno));
    }
}

void kvg_rv_prove(const Rendezvous *self, const RvHello *hello, const RvChallenge *challenge, int rank, uint8_t mac[KVG_HMAC_BYTES])
{
    struct {
        char        what[24];
        RvHello     hello;
        RvChallenge challenge;
        int32_t     rank;
        uint32_t    reserved;
    } said;
    _Static_assert(sizeof said == 24 + sizeof(RvHello) + sizeof(RvChallenge) + 8, "is hashed: no padding");

    memset(&said, 0, sizeof said);
    snprintf(said.what, sizeof said.what, "kvgrid rendezvous %s", rank < 0 ? "guest" : "host"); /* or a guest could be sent its own proof */
    said.hello = *hello;
    said.challenge = *challenge;
    said.rank = rank;
    kvg_hmac(self->secret, self->secret_bytes, &said, sizeof said, mac);
}

void kvg_rv_self(int64_t *pid, char host[RV_HOST_BYTES])
{
    memset(host, 0, RV_HOST_BYTES);
    if (gethostname(host, RV_HOST_BYTES - 1) != 0) {
        snprintf(host, RV_HOST_BYTES, "?");
    }
    *pid = getpid();
}

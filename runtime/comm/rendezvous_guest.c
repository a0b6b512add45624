/* Rendezvous, another rank's side: calls until rank 0 answers, proves itself, and waits to be welcome.
 *
 * A call that gets nowhere (nobody listens yet, no chair was free) is made again after a pause. What rank 0 says once it has spoken is final. */
#include "runtime/comm/rendezvous_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/comm/clock.h"
#include "runtime/comm/mesh_internal.h"

#define PAUSE_NS     20000000
#define ANSWER_NS    3000000000u /* rank 0's challenge comes within this, or it is called again */

typedef enum CallEnd { CALL_AGAIN = 0, CALL_WELCOME, CALL_OVER } CallEnd;

typedef struct Call {
    Rendezvous *self;
    const char *address;
    uint64_t    deadline_ns;
    RvLink      link;
    RvHello     hello;
    RvChallenge challenge;
    RvWho       host;
    KvgStatus   status;
    const char *waits_for; /* what the deadline cuts short */
} Call;

static CallEnd call_over(Call *call, KvgStatus status)
{
    call->status = status;
    return CALL_OVER;
}

/* The next frame of these kinds, before the moment. CALL_WELCOME: it is here. */
static CallEnd await_frame(Call *call, uint32_t kinds, uint64_t until_ns)
{
    for (;;) {
        switch (kvg_rv_read(&call->link, kinds, NULL, 0)) {
        case RV_FRAME:
            return CALL_WELCOME;
        case RV_GONE:
            return CALL_AGAIN;
        case RV_MALFORMED:
            return call_over(call, kvg_fail(KVG_EPEER, "rendezvous: who listens at %s is no rank 0 of this version (magic 0x%08x, kind %u, %u bytes)",
                                            call->host.place, call->link.header.magic, call->link.header.kind, call->link.header.bytes));
        case RV_NOTHING:
            break;
        }
        if (kvg_clock_ns() >= until_ns) {
            return CALL_AGAIN;
        }
        kvg_rv_wait(call->link.fd, POLLIN, until_ns);
    }
}

static CallEnd hear_verdict(Call *call)
{
    RvVerdict *verdict = &call->link.in.verdict;
    uint8_t    mac[KVG_HMAC_BYTES];

    verdict->why[RV_WHY_BYTES - 1] = verdict->host[RV_HOST_BYTES - 1] = '\0';
    if (verdict->status == KVG_EINDOUBT) {
        return call_over(call, kvg_fail(KVG_EINDOUBT, "%s", verdict->why)); /* rank 0's own sentence: who is missing */
    }
    if (verdict->status != KVG_OK) {
        return call_over(call, kvg_fail(KVG_EPEER, "rendezvous: rank 0 at %s turned this rank away: %s", call->host.place, verdict->why));
    }
    kvg_rv_prove(call->self, &call->hello, &call->challenge, verdict->rank, mac);
    if (!kvg_hmac_equal(mac, verdict->mac) || verdict->rank < 1 || verdict->rank >= call->self->ranks ||
        (call->hello.rank != KVG_RENDEZVOUS_ANY_RANK && verdict->rank != call->hello.rank)) {
        return call_over(call, kvg_fail(KVG_EPEER, "rendezvous: who listens at %s does not know the secret", call->host.place));
    }
    call->host.pid = verdict->pid;
    memcpy(call->host.host, verdict->host, sizeof call->host.host);
    call->self->rank = verdict->rank;
    return CALL_WELCOME;
}

/* The talk on a fresh connection. */
static CallEnd talk(Call *call)
{
    uint64_t answer_ns = kvg_min_u64(call->deadline_ns, kvg_clock_ns() + ANSWER_NS);
    RvHeader header = kvg_rv_header(RV_HELLO, sizeof call->hello);
    RvProof  proof;
    size_t   sent = 0;

    call->waits_for = "its answer to the hello";
    header.left_ms = (uint32_t)(kvg_monus_u64(call->deadline_ns, kvg_clock_ns()) / 1000000);
    (void)kvg_rv_send_on(call->link.fd, &header, &call->hello, &sent); /* a fresh connection has room for it */
    CallEnd end = await_frame(call, 1u << RV_CHALLENGE | 1u << RV_VERDICT, answer_ns);

    if (end != CALL_WELCOME) {
        return end;
    }
    if (call->link.header.kind == RV_VERDICT) { /* it comes before any proof: a refusal, or somebody's who cannot prove himself */
        return hear_verdict(call);
    }
    call->challenge = call->link.in.challenge;
    kvg_rv_prove(call->self, &call->hello, &call->challenge, -1, proof.mac);
    kvg_rv_say(call->link.fd, RV_PROOF, &proof, sizeof proof);
    call->waits_for = "the other ranks";
    end = await_frame(call, 1u << RV_VERDICT, call->deadline_ns);
    return end == CALL_WELCOME ? hear_verdict(call) : end;
}

/* A loopback port that nobody listens on can be given to the caller itself, which then talks to itself. */
static int is_self(int fd)
{
    struct sockaddr_storage here, there;
    socklen_t               here_bytes = sizeof here, there_bytes = sizeof there;

    memset(&here, 0, sizeof here);
    memset(&there, 0, sizeof there);
    return getsockname(fd, (struct sockaddr *)&here, &here_bytes) != 0 || getpeername(fd, (struct sockaddr *)&there, &there_bytes) != 0 ||
           memcmp(&here, &there, sizeof here) == 0;
}

/* Connects to one address: 1 connected. */
static int connect_to(Call *call, const struct addrinfo *to)
{
    int       code = 0, one = 1;
    socklen_t bytes = sizeof code;

    kvg_mesh_place(to->ai_addr, call->host.place);
    call->link.got = 0;
    call->link.fd = kvg_mesh_denied() ? -1 : socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (call->link.fd < 0) {
        (void)call_over(call, kvg_fail(KVG_EIO, "rendezvous: no socket: %s; raise the limit of open files", strerror(errno)));
        return 0;
    }
    setsockopt(call->link.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(call->link.fd, to->ai_addr, to->ai_addrlen) == 0) {
        return !is_self(call->link.fd);
    }
    if (errno == EINPROGRESS) {
        struct pollfd poll_fd = { .fd = call->link.fd, .events = POLLOUT };
        uint64_t      left_ms = kvg_monus_u64(call->deadline_ns, kvg_clock_ns()) / 1000000 + 1;

        return poll(&poll_fd, 1, (int)kvg_min_u64(left_ms, 3000)) == 1 && getsockopt(call->link.fd, SOL_SOCKET, SO_ERROR, &code, &bytes) == 0 &&
               code == 0 && !is_self(call->link.fd);
    }
    return 0;
}

/* One call at each of the addresses that the host has. */
static CallEnd call_round(Call *call, const struct addrinfo *list)
{
    for (const struct addrinfo *each = list; each != NULL; each = each->ai_next) {
        if (!call->self->secret_bytes && !kvg_rv_is_loopback(each->ai_addr)) {
            char place[KVG_MESH_PLACE_BYTES];

            kvg_mesh_place(each->ai_addr, place);
            return call_over(call, kvg_fail(KVG_EINVAL, "rendezvous: %s is not loopback and there is no secret; give all ranks the same secret", place));
        }
        call->status = KVG_OK;
        CallEnd end = connect_to(call, each) ? talk(call) : call->status != KVG_OK ? CALL_OVER : CALL_AGAIN;

        if (end != CALL_AGAIN) {
            return end;
        }
        kvg_mesh_close_fd(&call->link.fd);
    }
    return CALL_AGAIN;
}

KvgStatus kvg_rv_call(Rendezvous *self, const char *address, uint64_t deadline_ns, uint32_t timeout_ms)
{
    struct addrinfo *list = NULL;
    Call             call = { .self = self, .address = address, .deadline_ns = deadline_ns, .link = { .fd = -1 }, .waits_for = "somebody to listen" };
    KvgStatus        status;

    KVG_TRY(kvg_rv_resolve(address, &list));
    call.hello.version = RV_VERSION;
    call.hello.rank = self->rank;
    call.hello.ranks = self->ranks;
    kvg_rv_self(&call.hello.pid, call.hello.host);
    KVG_TRY_GOTO((kvg_rv_nonce(call.hello.nonce, &status), status), out);
    for (;;) {
        CallEnd end = call_round(&call, list);

        if (end == CALL_WELCOME) {
            self->seats[0].link = call.link;
            self->seats[0].link.got = 0;
            self->seats[0].who = call.host;
            call.link.fd = -1;
            break;
        }
        if (end == CALL_OVER) {
            status = call.status;
            break;
        }
        if (kvg_clock_ns() >= deadline_ns) {
            status = kvg_fail(KVG_EINDOUBT, "rendezvous: rank 0 at %s did not welcome this rank within %u ms: it waited for %s", call.host.place, timeout_ms,
                              call.waits_for);
            break;
        }
        nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    }
out:
    kvg_mesh_close_fd(&call.link.fd);
    freeaddrinfo(list);
    return status;
}

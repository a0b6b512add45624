/* Mesh connections: every rank connects to the lower ones and accepts the higher ones.
 *
 *   the lower rank                          the higher rank
 *   listening --accept--> GUEST             IDLE --connect--> CONNECTING --writable, hello sent--> GREETED
 *   GUEST --hello with my secret,           GREETED --hello with my secret--> member
 *           its reply sent--> member        CONNECTING, GREETED --failure that may pass--> IDLE, after a pause
 *
 * Anybody may connect to a listening socket. A guest that says anything but the hello of a missing rank is shown out;
 * one that says nothing keeps one of GUESTS_EXTRA chairs until a newer guest needs it or the set-up ends. */
#include "runtime/comm/mesh_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <kvgrid/log.h>

#include "runtime/base/memory.h"
#include "runtime/comm/clock.h"
#include "runtime/comm/poll_open.h"

#define GUESTS_EXTRA 32
#define PAUSE_NS     5000000u
#define POLL_MS_MAX  50

typedef enum LinkState { LINK_NONE = 0, LINK_IDLE, LINK_CONNECTING, LINK_GREETED, LINK_MEMBER } LinkState;

typedef struct Link { /* to one other rank */
    LinkState state;
    int       fd;
    int       code;     /* why the last attempt to connect failed, an errno; 0: none did */
    uint64_t  retry_ns; /* IDLE: not before */
    size_t    got;      /* bytes of `hello` that are here */
    MeshHello hello;
} Link;

typedef struct Guest { /* an accepted connection that has not proven itself */
    int       fd; /* -1: a free chair */
    uint64_t  since;
    size_t    got;
    MeshHello hello;
} Guest;

typedef struct Party {
    Mesh               *mesh;
    const MeshIdentity *identities;
    const MeshAddress  *addresses;
    int                 listen_fds[2]; /* Unix, TCP; -1: none */
    uint64_t            guest_clock;
    int                 guest_count;
    Link               *links;  /* [ranks] */
    Guest              *guests; /* [guest_count] */
    struct pollfd      *polls;  /* [2 + ranks + guest_count], and as much scratch */
} Party;

static void use_at_once(int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* fails on Unix sockets, which do not wait anyway */
}

static MeshHello hello_to(const Party *party, int peer)
{
    MeshHello hello = { .magic = KVG_MESH_MAGIC, .version = KVG_MESH_VERSION, .from = party->mesh->rank, .to = peer };

    memcpy(hello.secret, party->identities[peer].secret, sizeof hello.secret);
    return hello;
}

static int hello_is_for_us(const Party *party, const MeshHello *hello)
{
    int     rank = party->mesh->rank;
    uint8_t difference = 0;

    for (int i = 0; i < KVG_MESH_SECRET; i++) { /* all bytes, so that its time tells nothing */
        difference |= hello->secret[i] ^ party->identities[rank].secret[i];
    }
    return hello->magic == KVG_MESH_MAGIC && hello->version == KVG_MESH_VERSION && hello->to == rank && difference == 0;
}

static int hello_send(const Party *party, int fd, int peer)
{
    MeshHello hello = hello_to(party, peer);

    /* a fresh socket has room for it */
    return send(fd, &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof hello;
}

/* Reads more of a hello: 1 it is whole, 0 not yet, -1 the connection is over. */
static int hello_read(int fd, MeshHello *hello, size_t *got)
{
    ssize_t more = recv(fd, (uint8_t *)hello + *got, sizeof *hello - *got, MSG_DONTWAIT);

    if (more < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return 0;
    }
    if (more <= 0) {
        return -1;
    }
    *got += (size_t)more;
    return *got == sizeof *hello;
}

/* Between ranks of one host, unless one of them wants TCP. */
static int is_by_unix(const Party *party, int peer)
{
    return party->listen_fds[0] != -1 && party->addresses[peer].unix_bytes > 0 &&
           kvg_mesh_same_host(&party->identities[peer], &party->identities[party->mesh->rank]);
}

/* ---- the higher rank's side */

static void link_pause(Link *link, int code)
{
    kvg_mesh_close_fd(&link->fd);
    link->state = LINK_IDLE;
    link->code = code;
    link->retry_ns = kvg_clock_ns() + PAUSE_NS;
    link->got = 0;
}

static KvgStatus link_refused(const Party *party, int peer, int code)
{
    const MeshIdentity *who = &party->identities[peer];
    char                place[KVG_MESH_PLACE_BYTES];

    if (is_by_unix(party, peer)) {
        return kvg_fail(KVG_EPEER, "mesh: rank %d (host %s, pid %lld) does not listen any more (%s); it ended during set-up", peer, who->host,
                        (long long)who->pid, strerror(code));
    }
    kvg_mesh_place(party->addresses[peer].tcp_address, place);
    return kvg_fail(KVG_EPEER, "mesh: rank %d (host %s, pid %lld) does not listen at %s (%s): it ended during set-up, or that address leads to another host "
                    "from here; KVGRID_INTERFACE on its host chooses another", peer, who->host, (long long)who->pid, place, strerror(code));
}

static KvgStatus link_greet(Party *party, int peer)
{
    Link *link = &party->links[peer];

    use_at_once(link->fd);
    if (!hello_send(party, link->fd, peer)) {
        link_pause(link, errno);
        return KVG_OK;
    }
    link->state = LINK_GREETED;
    return KVG_OK;
}

static KvgStatus link_connect(Party *party, int peer)
{
    Link              *link = &party->links[peer];
    const MeshAddress *address = &party->addresses[peer];
    int                by_unix = is_by_unix(party, peer);
    const void        *target = by_unix ? address->unix_address : address->tcp_address;
    socklen_t          target_bytes = by_unix ? address->unix_bytes : address->tcp_bytes;
    int                family = ((const struct sockaddr *)target)->sa_family;

    link->fd = kvg_mesh_denied() ? -1 : socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->fd < 0) {
        return kvg_fail(KVG_EIO, "mesh: rank %d gets no socket for rank %d: %s; raise the limit of open files", party->mesh->rank, peer,
                        strerror(errno));
    }
    if (connect(link->fd, target, target_bytes) == 0) {
        return link_greet(party, peer);
    }
    if (errno == EINPROGRESS) {
        link->state = LINK_CONNECTING;
        return KVG_OK;
    }
    if (errno == ECONNREFUSED) {
        return link_refused(party, peer, errno);
    }
    link_pause(link, errno); /* EAGAIN: a Unix backlog is full; others may pass too, and the deadline bounds it */
    return KVG_OK;
}

static KvgStatus member_new(Party *party, int peer, int *fd)
{
    KVG_TRY(kvg_mesh_adopt(party->mesh, peer, *fd));
    *fd = -1; /* the mesh's now */
    party->links[peer].state = LINK_MEMBER;
    return KVG_OK;
}

static KvgStatus fail_stranger(const Party *party, int peer)
{
    char place[KVG_MESH_PLACE_BYTES] = "its Unix socket";

    if (!is_by_unix(party, peer)) {
        kvg_mesh_place(party->addresses[peer].tcp_address, place);
    }
    return kvg_fail(KVG_EPEER, "mesh: a stranger answers at the address of rank %d (host %s, %s); was that rank restarted, or does the address lead to "
                    "another host from here? KVGRID_INTERFACE on its host chooses another", peer, party->identities[peer].host, place);
}

/* Something happened on the socket to a lower rank. */
static KvgStatus link_step(Party *party, int peer)
{
    Link     *link = &party->links[peer];
    int       code = 0;
    socklen_t code_bytes = sizeof code;

    if (link->state == LINK_CONNECTING) {
        getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &code, &code_bytes);
        if (code == ECONNREFUSED) {
            return link_refused(party, peer, code);
        }
        if (code != 0) {
            link_pause(link, code);
            return KVG_OK;
        }
        return link_greet(party, peer);
    }
    int whole = hello_read(link->fd, &link->hello, &link->got);

    if (whole < 0) {
        link_pause(link, 0); /* shown out for want of chairs, or dead: the next attempt tells */
        return KVG_OK;
    }
    if (whole == 0) {
        return KVG_OK;
    }
    if (!hello_is_for_us(party, &link->hello) || link->hello.from != peer) {
        return fail_stranger(party, peer);
    }
    return member_new(party, peer, &link->fd);
}

/* ---- the lower rank's side */

static Guest *chair_for_guest(Party *party)
{
    Guest *oldest = &party->guests[0];

    for (int i = 0; i < party->guest_count; i++) {
        if (party->guests[i].fd == -1) {
            return &party->guests[i];
        }
        if (party->guests[i].since < oldest->since) {
            oldest = &party->guests[i];
        }
    }
    kvg_mesh_close_fd(&oldest->fd);
    return oldest;
}

static KvgStatus guest_accept(Party *party, int listen_fd)
{
    int fd = kvg_mesh_denied() ? -1 : accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            return kvg_fail(KVG_EIO, "mesh: rank %d cannot accept a connection: %s; raise the limit of open files", party->mesh->rank,
                            strerror(errno));
        }
        return KVG_OK; /* it went away again */
    }
    *chair_for_guest(party) = (Guest){ .fd = fd, .since = ++party->guest_clock };
    return KVG_OK;
}

static int guest_is_awaited(const Party *party, const MeshHello *hello)
{
    return hello_is_for_us(party, hello) && hello->from > party->mesh->rank && hello->from < party->mesh->ranks &&
           party->links[hello->from].state == LINK_NONE;
}

static KvgStatus guest_step(Party *party, Guest *guest)
{
    int whole = hello_read(guest->fd, &guest->hello, &guest->got);

    if (whole == 0) {
        return KVG_OK;
    }
    if (whole > 0 && guest_is_awaited(party, &guest->hello)) {
        use_at_once(guest->fd);
        if (hello_send(party, guest->fd, guest->hello.from)) {
            return member_new(party, guest->hello.from, &guest->fd);
        }
    } else if (whole > 0) {
        kvg_log(KVG_LOG_WARN, "rank %d: a stranger connected during set-up and was shown out", party->mesh->rank);
    }
    kvg_mesh_close_fd(&guest->fd);
    return KVG_OK;
}

/* ---- the loop */

static int links_missing(const Party *party, int *first)
{
    int missing = 0;

    for (int peer = party->mesh->ranks - 1; peer >= 0; peer--) {
        if (peer != party->mesh->rank && party->links[peer].state != LINK_MEMBER) {
            missing++;
            *first = peer;
        }
    }
    return missing;
}

static KvgStatus links_try(Party *party)
{
    uint64_t now_ns = kvg_clock_ns();

    for (int peer = 0; peer < party->mesh->rank; peer++) {
        if (party->links[peer].state == LINK_IDLE && party->links[peer].retry_ns <= now_ns) {
            KVG_TRY(link_connect(party, peer));
        }
    }
    return KVG_OK;
}

/* Waits for something to happen; negative descriptors are passed over. */
static void party_wait(Party *party, uint64_t deadline_ns)
{
    int           ranks = party->mesh->ranks, retry = 0;
    struct pollfd *polls = party->polls;

    for (int i = 0; i < 2; i++) {
        polls[i] = (struct pollfd){ .fd = party->listen_fds[i], .events = POLLIN };
    }
    for (int peer = 0; peer < ranks; peer++) {
        const Link *link = &party->links[peer];

        polls[2 + peer] = (struct pollfd){ .fd = link->fd, .events = link->state == LINK_CONNECTING ? POLLOUT : POLLIN };
        retry |= link->state == LINK_IDLE;
    }
    for (int i = 0; i < party->guest_count; i++) {
        polls[2 + ranks + i] = (struct pollfd){ .fd = party->guests[i].fd, .events = POLLIN };
    }
    uint64_t now_ns = kvg_clock_ns();
    uint64_t left_ms = now_ns < deadline_ns ? (deadline_ns - now_ns + 999999) / 1000000 : 0;
    uint64_t pause_ms = retry ? PAUSE_NS / 1000000 : POLL_MS_MAX;

    kvg_poll_open(polls, 2 + (size_t)ranks + (size_t)party->guest_count, (int)(left_ms < pause_ms ? left_ms : pause_ms));
}

static KvgStatus party_step(Party *party)
{
    int                  ranks = party->mesh->ranks;
    const struct pollfd *polls = party->polls;

    for (int i = 0; i < party->guest_count; i++) { /* before new ones take their chairs */
        if (polls[2 + ranks + i].fd != -1 && polls[2 + ranks + i].revents != 0) {
            KVG_TRY(guest_step(party, &party->guests[i]));
        }
    }
    for (int peer = 0; peer < ranks; peer++) {
        if (polls[2 + peer].fd != -1 && polls[2 + peer].revents != 0) {
            KVG_TRY(link_step(party, peer));
        }
    }
    for (int i = 0; i < 2; i++) {
        if (polls[i].fd != -1 && polls[i].revents != 0) {
            KVG_TRY(guest_accept(party, polls[i].fd));
        }
    }
    return KVG_OK;
}

/* Who is missing, and over TCP the address: a lower rank's, where it is called; for a higher one, which calls, this rank's own. 1: over TCP. */
static int describe_missing(const Party *party, int peer, char *text, size_t bytes)
{
    const MeshIdentity *who = &party->identities[peer];
    const Link         *link = &party->links[peer];
    const int           calls = peer > party->mesh->rank, by_unix = is_by_unix(party, peer);
    char                place[KVG_MESH_PLACE_BYTES] = "";

    if (!by_unix) {
        kvg_mesh_place(party->addresses[calls ? party->mesh->rank : peer].tcp_address, place);
    }
    snprintf(text, bytes, "%d (host %.40s, pid %lld%s%s%s%.40s)", peer, who->host, (long long)who->pid, by_unix ? "" : calls ? ", which calls " : ", at ",
             place, link->code != 0 ? ": " : "", link->code != 0 ? strerror(link->code) : "");
    return !by_unix;
}

static KvgStatus fail_missing(const Party *party)
{
    char   names[500] = "", name[240];
    size_t used = 0;
    int    by_tcp = 0;

    for (int peer = 0; peer < party->mesh->ranks && used + sizeof name + 2 < sizeof names; peer++) {
        if (peer != party->mesh->rank && party->links[peer].state != LINK_MEMBER) {
            by_tcp |= describe_missing(party, peer, name, sizeof name);
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", name);
        }
    }
    return kvg_fail(KVG_EINDOUBT, "mesh: rank %d waited in vain for rank %s; is it stopped%s?%s", party->mesh->rank, names,
                    by_tcp ? ", or the address out of reach" : "", by_tcp ? " KVGRID_INTERFACE on the host of an address chooses another" : "");
}

static KvgStatus party_run(Party *party, uint64_t deadline_ns)
{
    int first = -1;

    while (links_missing(party, &first) > 0) {
        if (kvg_clock_ns() >= deadline_ns) {
            return fail_missing(party);
        }
        KVG_TRY(links_try(party));
        party_wait(party, deadline_ns);
        KVG_TRY(party_step(party));
    }
    return KVG_OK;
}

static KvgStatus party_new(Party *party)
{
    size_t ranks = (size_t)party->mesh->ranks;

    KVG_TRY(KVG_NEW(ranks, "mesh set-up", &party->links));
    for (int peer = 0; peer < party->mesh->ranks; peer++) {
        party->links[peer].fd = -1;
        party->links[peer].state = peer < party->mesh->rank ? LINK_IDLE : LINK_NONE;
    }
    KVG_TRY(KVG_NEW(ranks + GUESTS_EXTRA, "mesh set-up", &party->guests));
    party->guest_count = party->mesh->ranks + GUESTS_EXTRA;
    for (int i = 0; i < party->guest_count; i++) {
        party->guests[i].fd = -1;
    }
    KVG_TRY(KVG_NEW(2 * (2 + ranks + (size_t)party->guest_count), "mesh set-up", &party->polls));
    return KVG_OK;
}

static void party_free(Party *party)
{
    for (int peer = 0; party->links != NULL && peer < party->mesh->ranks; peer++) {
        kvg_mesh_close_fd(&party->links[peer].fd);
    }
    for (int i = 0; party->guests != NULL && i < party->guest_count; i++) {
        kvg_mesh_close_fd(&party->guests[i].fd);
    }
    kvg_free(party->links);
    kvg_free(party->guests);
    kvg_free(party->polls);
}

KvgStatus kvg_mesh_connect(Mesh *mesh, const MeshIdentity *identities, const MeshAddress *addresses, int unix_fd, int tcp_fd,
                           uint64_t deadline_ns, int *missing)
{
    Party     party = { .mesh = mesh, .identities = identities, .addresses = addresses, .listen_fds = { unix_fd, tcp_fd } };
    KvgStatus status = party_new(&party);

    if (status == KVG_OK) {
        status = party_run(&party, deadline_ns);
    }
    if (status != KVG_OK && party.polls != NULL) {
        links_missing(&party, missing);
    }
    party_free(&party);
    return status;
}

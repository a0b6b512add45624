/* Rendezvous, rank 0's side.
 *
 *   CAME --HELLO, sound--> ASKED (a nonce was sent) --PROOF, right--> KNOWN, until every rank is: then each gets its seat
 * Whoever says anything else is told why and shown out. One that says nothing keeps a chair for GUEST_MS, or until somebody newer needs it; so a
 * flood of silent guests costs honest ones another call, and rank 0 no memory. A guest that is KNOWN and hangs up leaves its rank free again. */
#include "runtime/comm/rendezvous_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kvgrid/log.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/comm/clock.h"
#include "runtime/comm/mesh_internal.h"
#include "runtime/comm/poll_open.h"

#define GUESTS_EXTRA  32
#define GUEST_MS      2000u
#define WAIT_MS_MAX   50u
#define ACCEPTS_A_TIME 64
#define TOGETHER      5 /* a fifth of the time is not worth waiting without those who leave */

KvgStatus kvg_rv_party_new(Rendezvous *self, RvParty *party)
{
    *party = (RvParty){ .self = self, .listen_fd = -1, .guest_count = self->ranks + GUESTS_EXTRA };
    KVG_TRY(KVG_NEW((size_t)party->guest_count, "guests of a rendezvous", &party->guests));
    for (int i = 0; i < party->guest_count; i++) {
        party->guests[i].link.fd = -1;
    }
    return KVG_OK;
}

void kvg_rv_party_free(RvParty *party)
{
    for (int i = 0; party->guests != NULL && i < party->guest_count; i++) {
        kvg_rv_hang_up(&party->guests[i].link);
    }
    kvg_free(party->guests);
    party->guests = NULL;
}

/* ---- turning away */

static void guest_end(RvGuest *guest)
{
    kvg_rv_hang_up(&guest->link);
    guest->state = GUEST_NONE;
}

static void remember(RvParty *party, const RvGuest *guest, const char *why)
{
    party->strangers++;
    snprintf(party->last_stranger, sizeof party->last_stranger, "%s: %.250s", guest->who.place, why);
    kvg_log(KVG_LOG_WARN, "rendezvous: turned away %s", party->last_stranger);
}

__attribute__((format(printf, 3, 4))) static void turn_away(RvParty *party, RvGuest *guest, const char *format, ...)
{
    RvVerdict verdict = { .status = KVG_EPEER };
    va_list   arguments;

    va_start(arguments, format);
    vsnprintf(verdict.why, sizeof verdict.why, format, arguments);
    va_end(arguments);
    remember(party, guest, verdict.why);
    kvg_rv_say(guest->link.fd, RV_VERDICT, &verdict, sizeof verdict);
    guest_end(guest);
}

/* ---- the steps of a guest */

static const RvGuest *holder_of(const RvParty *party, int rank)
{
    for (int i = 0; i < party->guest_count; i++) {
        if (party->guests[i].state == GUEST_KNOWN && party->guests[i].hello.rank == rank) {
            return &party->guests[i];
        }
    }
    return NULL;
}

static int known_count(const RvParty *party)
{
    int count = 0;

    for (int i = 0; i < party->guest_count; i++) {
        count += party->guests[i].state == GUEST_KNOWN;
    }
    return count;
}

static void hear_hello(RvParty *party, RvGuest *guest)
{
    RvHello  *hello = &guest->link.in.hello;
    int       ranks = party->self->ranks;
    KvgStatus status;

    hello->host[RV_HOST_BYTES - 1] = '\0';
    guest->hello = *hello;
    guest->who.pid = hello->pid;
    memcpy(guest->who.host, hello->host, sizeof hello->host);
    if (hello->version != RV_VERSION) {
        turn_away(party, guest, "it speaks version %u, rank 0 speaks %u; use one build everywhere", hello->version, RV_VERSION);
    } else if (hello->ranks != ranks) {
        turn_away(party, guest, "it was started as one of %d ranks, rank 0 as one of %d", hello->ranks, ranks);
    } else if (hello->rank != KVG_RENDEZVOUS_ANY_RANK && (hello->rank < 1 || hello->rank >= ranks)) {
        turn_away(party, guest, "it says that it is rank %d; 1 to %d come to rank 0", hello->rank, ranks - 1);
    } else {
        kvg_rv_nonce(guest->challenge.nonce, &status);
        if (status != KVG_OK) {
            turn_away(party, guest, "%s", kvg_last_error());
            return;
        }
        guest->left_ms = guest->link.header.left_ms;
        guest->leaves_ns = kvg_rv_speak_by(guest->left_ms);
        kvg_rv_say(guest->link.fd, RV_CHALLENGE, &guest->challenge, sizeof guest->challenge);
        guest->state = GUEST_ASKED;
    }
}

static void hear_proof(RvParty *party, RvGuest *guest)
{
    uint8_t        mac[KVG_HMAC_BYTES];
    const RvGuest *holder = holder_of(party, guest->hello.rank);

    kvg_rv_prove(party->self, &guest->hello, &guest->challenge, -1, mac);
    if (!kvg_hmac_equal(mac, guest->link.in.proof.mac)) {
        turn_away(party, guest, "it has another secret");
    } else if (guest->hello.rank != KVG_RENDEZVOUS_ANY_RANK && holder != NULL) {
        turn_away(party, guest, "rank %d is taken by host %.63s, pid %lld, at %s", guest->hello.rank, holder->who.host, (long long)holder->who.pid,
                  holder->who.place);
    } else if (known_count(party) == party->self->ranks - 1) {
        turn_away(party, guest, "all %d ranks are taken", party->self->ranks);
    } else {
        guest->state = GUEST_KNOWN;
    }
}

void kvg_rv_party_hear(RvParty *party, RvGuest *guest)
{
    static const uint32_t kinds[] = { [GUEST_CAME] = 1u << RV_HELLO, [GUEST_ASKED] = 1u << RV_PROOF, [GUEST_KNOWN] = 0 };

    KVG_ASSERT(guest->state != GUEST_NONE);
    RvNews news = kvg_rv_read(&guest->link, kinds[guest->state], NULL, 0);

    if (news == RV_MALFORMED) {
        const RvHeader *header = &guest->link.header;

        turn_away(party, guest, "it sent what is no %s (magic 0x%08x, kind %u, %u bytes)",
                  guest->state == GUEST_CAME ? "hello" : guest->state == GUEST_ASKED ? "proof" : "patience", header->magic, header->kind, header->bytes);
    } else if (news == RV_GONE) {
        if (guest->state != GUEST_CAME || guest->link.got > 0) { /* who only knocked is not worth a word */
            remember(party, guest, guest->state == GUEST_KNOWN ? "it came, and hung up before all were here" : "it hung up before it had proven itself");
        }
        guest_end(guest);
    } else if (news == RV_FRAME && guest->state == GUEST_CAME) {
        hear_hello(party, guest);
    } else if (news == RV_FRAME) {
        hear_proof(party, guest);
    }
}

/* ---- coming in */

/* A free chair, or that of the unknown guest who has waited longest; NULL: all chairs hold ranks. */
static RvGuest *chair(RvParty *party)
{
    RvGuest *oldest = NULL;

    for (int i = 0; i < party->guest_count; i++) {
        RvGuest *guest = &party->guests[i];

        if (guest->state == GUEST_NONE) {
            return guest;
        }
        if (guest->state != GUEST_KNOWN && (oldest == NULL || guest->since_ns < oldest->since_ns)) {
            oldest = guest;
        }
    }
    KVG_ASSERT(oldest != NULL); /* there are more chairs than ranks */
    remember(party, oldest, "it said nothing, and its chair was needed");
    guest_end(oldest);
    return oldest;
}

void kvg_rv_party_admit(RvParty *party, int fd, const char *place)
{
    RvGuest *guest = chair(party);
    int      one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    memset(guest, 0, sizeof *guest);
    guest->link.fd = fd;
    guest->state = GUEST_CAME;
    guest->since_ns = kvg_clock_ns();
    snprintf(guest->who.place, sizeof guest->who.place, "%s", place);
}

static KvgStatus accept_all(RvParty *party)
{
    for (int i = 0; i < ACCEPTS_A_TIME; i++) {
        struct sockaddr_storage address;
        socklen_t               bytes = sizeof address;
        char                    place[KVG_MESH_PLACE_BYTES];
        int                     fd = kvg_mesh_denied() ? -1 : accept4(party->listen_fd, (struct sockaddr *)&address, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
            return kvg_fail(KVG_EIO, "rendezvous: rank 0 cannot accept a connection: %s; raise the limit of open files", strerror(errno));
        }
        if (fd < 0) {
            return KVG_OK;
        }
        kvg_mesh_place(&address, place);
        kvg_rv_party_admit(party, fd, place);
    }
    return KVG_OK;
}

static void show_out_the_silent(RvParty *party)
{
    uint64_t now_ns = kvg_clock_ns();

    for (int i = 0; i < party->guest_count; i++) {
        RvGuest *guest = &party->guests[i];

        if ((guest->state == GUEST_CAME || guest->state == GUEST_ASKED) && now_ns - guest->since_ns > GUEST_MS * 1000000ull) {
            turn_away(party, guest, "it said nothing for %u ms", GUEST_MS);
        }
    }
}

/* One round: waits a moment for something to happen, and answers it. */
static KvgStatus party_turn(RvParty *party, struct pollfd *polls, uint64_t deadline_ns)
{
    uint64_t due_ns = deadline_ns;

    polls[0] = (struct pollfd){ .fd = party->listen_fd, .events = POLLIN };
    for (int i = 0; i < party->guest_count; i++) {
        polls[1 + i] = (struct pollfd){ .fd = party->guests[i].link.fd, .events = POLLIN };
        due_ns = party->guests[i].state == GUEST_KNOWN ? kvg_min_u64(due_ns, party->guests[i].leaves_ns) : due_ns;
    }
    uint64_t left_ms = (kvg_monus_u64(due_ns, kvg_clock_ns()) + 999999) / 1000000;

    kvg_poll_open(polls, 1 + (size_t)party->guest_count, (int)kvg_min_u64(left_ms, WAIT_MS_MAX));
    for (int i = 0; i < party->guest_count; i++) { /* before new ones take their chairs */
        if (polls[1 + i].fd != -1 && polls[1 + i].revents != 0) {
            kvg_rv_party_hear(party, &party->guests[i]);
        }
    }
    show_out_the_silent(party);
    return polls[0].revents != 0 ? accept_all(party) : KVG_OK;
}

/* ---- the end: all are welcome, or nobody is */

static int first_free(const Rendezvous *self)
{
    int rank = 1;

    while (self->seats[rank].link.fd != -1) {
        rank++;
    }
    KVG_ASSERT(rank < self->ranks);
    return rank;
}

static void seat(Rendezvous *self, RvGuest *guest, int rank)
{
    RvVerdict verdict = { .status = KVG_OK, .rank = rank };

    kvg_rv_self(&verdict.pid, verdict.host);
    kvg_rv_prove(self, &guest->hello, &guest->challenge, rank, verdict.mac);
    kvg_rv_say(guest->link.fd, RV_VERDICT, &verdict, sizeof verdict); /* if it is gone by now, the first all-gather says so */
    self->seats[rank].link = guest->link;
    self->seats[rank].link.got = 0;
    self->seats[rank].who = guest->who;
    guest->link.fd = -1;
    guest->state = GUEST_NONE;
}

static void seat_all(RvParty *party)
{
    for (int any = 0; any < 2; any++) { /* first those who ask for a rank */
        uint64_t after_ns = 0;

        for (;;) { /* then the others, in order of arrival */
            RvGuest *next = NULL;

            for (int i = 0; i < party->guest_count; i++) {
                RvGuest *guest = &party->guests[i];

                if (guest->state == GUEST_KNOWN && (guest->hello.rank == KVG_RENDEZVOUS_ANY_RANK) == any && guest->since_ns >= after_ns &&
                    (next == NULL || guest->since_ns < next->since_ns)) {
                    next = guest;
                }
            }
            if (next == NULL) {
                break;
            }
            after_ns = next->since_ns;
            seat(party->self, next, any ? first_free(party->self) : next->hello.rank);
        }
    }
}

/* Names the ranks that are missing. With ranks that nobody asked for, only their number is known. */
static void name_missing(const RvParty *party, char *names, size_t room)
{
    int    anyones = 0, missing = party->self->ranks - 1 - known_count(party);
    size_t used = 0;

    for (int i = 0; i < party->guest_count; i++) {
        anyones += party->guests[i].state == GUEST_KNOWN && party->guests[i].hello.rank == KVG_RENDEZVOUS_ANY_RANK;
    }
    if (anyones > 0) {
        snprintf(names, room, "%d", missing);
        return;
    }
    names[0] = '\0';
    for (int rank = 1; rank < party->self->ranks && used + 16 < room; rank++) {
        if (holder_of(party, rank) == NULL) {
            used += (size_t)snprintf(names + used, room - used, "%s%d", used > 0 ? ", " : "rank ", rank);
        }
    }
}

static KvgStatus fail_missing(const RvParty *party, uint32_t timeout_ms)
{
    char names[120], others[300] = "";

    name_missing(party, names, sizeof names);
    if (party->strangers > 0) {
        snprintf(others, sizeof others, "; %d turned away, the last %.240s", party->strangers, party->last_stranger);
    }
    return kvg_fail(KVG_EINDOUBT, "rendezvous: %s of %d did not come to rank 0 within %u ms%s", names, party->self->ranks, timeout_ms, others);
}

static void tell_failure(const RvGuest *guest, KvgStatus status)
{
    RvVerdict verdict = { .status = status == KVG_EINDOUBT ? status : KVG_EPEER };

    snprintf(verdict.why, sizeof verdict.why, "%s", kvg_last_error());
    kvg_rv_say(guest->link.fd, RV_VERDICT, &verdict, sizeof verdict);
}

/* A rank that will wait no longer hears who is missing. Its place is free again, but if rank 0 will not wait much longer either, all end together. */
static KvgStatus let_go(RvParty *party, uint64_t deadline_ns, uint32_t timeout_ms)
{
    uint64_t now_ns = kvg_clock_ns();

    for (int i = 0; i < party->guest_count; i++) {
        RvGuest *guest = &party->guests[i];

        if (guest->state != GUEST_KNOWN || now_ns < guest->leaves_ns) {
            continue;
        }
        if (kvg_monus_u64(deadline_ns, now_ns) <= (uint64_t)timeout_ms * 1000000u / TOGETHER) {
            return fail_missing(party, timeout_ms);
        }
        tell_failure(guest, fail_missing(party, guest->left_ms));
        remember(party, guest, "it came, and could wait no longer");
        guest_end(guest);
    }
    return KVG_OK;
}

static KvgStatus party_run(RvParty *party, struct pollfd *polls, uint64_t deadline_ns, uint32_t timeout_ms)
{
    while (known_count(party) < party->self->ranks - 1) {
        if (kvg_clock_ns() >= deadline_ns) {
            return fail_missing(party, timeout_ms);
        }
        KVG_TRY(let_go(party, deadline_ns, timeout_ms));
        KVG_TRY(party_turn(party, polls, deadline_ns));
    }
    return KVG_OK;
}

KvgStatus kvg_rv_host(Rendezvous *self, int listen_fd, uint64_t deadline_ns, uint32_t timeout_ms)
{
    RvParty   party;
    void     *polls = NULL;
    KvgStatus status = kvg_rv_party_new(self, &party);

    if (status == KVG_OK) {
        party.listen_fd = listen_fd;
        /* A launcher's socket may block, and accept_all takes connections until there is none. */
        (void)fcntl(listen_fd, F_SETFL, fcntl(listen_fd, F_GETFL) | O_NONBLOCK);
        status = kvg_calloc(2 * ((size_t)party.guest_count + 1), sizeof(struct pollfd), "guests of a rendezvous", &polls);
    }
    if (status == KVG_OK) {
        status = party_run(&party, polls, deadline_ns, timeout_ms);
        if (status == KVG_OK) {
            seat_all(&party);
        }
        for (int i = 0; status != KVG_OK && i < party.guest_count; i++) {
            if (party.guests[i].state == GUEST_KNOWN) {
                tell_failure(&party.guests[i], status);
            }
        }
    }
    kvg_free(polls);
    kvg_rv_party_free(&party);
    return status;
}

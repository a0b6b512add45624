/* Rendezvous: an all-gather through rank 0, whose connections stand.
 *
 *   rank 0      1 reads a part from every other  2 sends all to every other
 *   another     1 sends its part                 2 reads all
 * Each part says how long its sender waits, so that rank 0 gives up before the first of them does, and can still say who is missing. What fails anywhere is
 * told to rank 0 and by it to all (RV_OVER); the first failure is the last word of the rendezvous. */
#include "runtime/comm/rendezvous_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/base/sized.h"
#include "runtime/comm/clock.h"
#include "runtime/comm/mesh_internal.h"

#define TIMEOUT_MS_DEFAULT 30000u
#define RANKS_MAX          65535
#define SECRET_LEAST       16
#define SECRET_MOST        256
#define SPREAD_NS_LEAST    250000000u
#define WAIT_MS_MAX        1000u

typedef struct Gather {
    Rendezvous    *self;
    uint8_t       *all;
    size_t         bytes;
    uint64_t       deadline_ns;
    uint32_t       timeout_ms;
    struct pollfd *polls; /* [ranks] */
} Gather;

/* ---- failing */

/* What a rank's failure is to the others: a want of memory is its own. */
static KvgStatus status_for_others(KvgStatus status)
{
    return status == KVG_EINDOUBT || status == KVG_ELAYOUT ? status : KVG_EPEER;
}

static void tell(Rendezvous *self, const RvOver *over)
{
    for (int rank = 0; rank < self->ranks; rank++) {
        if (self->seats[rank].link.fd != -1 && !self->seats[rank].halfway) {
            kvg_rv_say(self->seats[rank].link.fd, RV_OVER, over, sizeof *over);
        }
    }
}

/* Ends the rendezvous. Connections stay until it is destroyed: a close could take back the last word. */
static KvgStatus end(Rendezvous *self, KvgStatus status)
{
    RvOver over = { .status = status_for_others(status) };

    self->failed = status;
    snprintf(self->why, sizeof self->why, "%s", kvg_last_error());
    memcpy(over.why, self->why, sizeof over.why);
    tell(self, &over);
    return status;
}

static KvgStatus fail_gone(const RvSeat *seat, int rank)
{
    return kvg_fail(KVG_EPEER, "rendezvous: rank %d (host %.63s, pid %lld, at %s) is gone: it hung up", rank, seat->who.host, (long long)seat->who.pid,
                    seat->who.place);
}

static KvgStatus fail_as_told(RvSeat *seat)
{
    KvgStatus status = (KvgStatus)seat->link.in.over.status;

    seat->link.in.over.why[RV_WHY_BYTES - 1] = '\0';
    return kvg_fail(status_for_others(status), "%s", seat->link.in.over.why);
}

static KvgStatus fail_malformed(const Gather *gather, const RvSeat *seat, int rank)
{
    const RvHeader *header = &seat->link.header;

    if (header->magic == RV_MAGIC && header->kind == RV_GATHER) {
        return kvg_fail(KVG_ELAYOUT, "rendezvous: rank 0 gives %zu bytes to an all-gather, rank %d gives %u; all must give as many", gather->bytes, rank,
                        header->bytes);
    }
    return kvg_fail(KVG_EPEER, "rendezvous: rank %d (host %.63s, pid %lld) sent what belongs to no all-gather (magic 0x%08x, kind %u, %u bytes)", rank,
                    seat->who.host, (long long)seat->who.pid, header->magic, header->kind, header->bytes);
}

/* ---- rank 0 */

static KvgStatus fail_missing(const Gather *gather)
{
    const Rendezvous *self = gather->self;
    char              names[200] = "";
    size_t            used = 0;

    for (int rank = 1; rank < self->ranks && used + 100 < sizeof names; rank++) {
        const RvSeat *seat = &self->seats[rank];

        if (!seat->heard) {
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%d (host %.40s, pid %lld)", used > 0 ? ", " : "", rank, seat->who.host,
                                     (long long)seat->who.pid);
        }
    }
    return kvg_fail(KVG_EINDOUBT, "rendezvous: rank %s did not call in to an all-gather of %d ranks within %u ms; is it stopped, or does it take another path?",
                    names, self->ranks, gather->timeout_ms);
}

static KvgStatus hear_part(Gather *gather, int rank)
{
    RvSeat *seat = &gather->self->seats[rank];

    switch (kvg_rv_read(&seat->link, 1u << RV_GATHER | 1u << RV_OVER, gather->all + (size_t)rank * gather->bytes, gather->bytes)) {
    case RV_NOTHING:
        return KVG_OK;
    case RV_GONE:
        return fail_gone(seat, rank);
    case RV_MALFORMED:
        return fail_malformed(gather, seat, rank);
    case RV_FRAME:
        break;
    }
    if (seat->link.header.kind == RV_OVER) {
        return fail_as_told(seat);
    }
    gather->deadline_ns = kvg_min_u64(gather->deadline_ns, kvg_rv_speak_by(seat->link.header.left_ms));
    seat->heard = 1;
    return KVG_OK;
}

/* Waits until one of the ranks in gather->polls can go on. */
static void wait_for_ranks(const Gather *gather)
{
    uint64_t left_ms = (kvg_monus_u64(gather->deadline_ns, kvg_clock_ns()) + 999999) / 1000000;

    poll(gather->polls, (nfds_t)gather->self->ranks, (int)kvg_min_u64(left_ms, WAIT_MS_MAX));
}

static KvgStatus collect(Gather *gather)
{
    Rendezvous *self = gather->self;

    for (;;) {
        int missing = 0;

        for (int rank = 0; rank < self->ranks; rank++) {
            RvSeat *seat = &self->seats[rank];

            if (rank > 0 && !seat->heard) {
                KVG_TRY(hear_part(gather, rank));
            }
            gather->polls[rank] = (struct pollfd){ .fd = rank > 0 && !seat->heard ? seat->link.fd : -1, .events = POLLIN };
            missing += gather->polls[rank].fd != -1;
        }
        if (missing == 0) {
            return KVG_OK;
        }
        if (kvg_clock_ns() >= gather->deadline_ns) {
            return fail_missing(gather);
        }
        wait_for_ranks(gather);
    }
}

static KvgStatus spread(Gather *gather)
{
    Rendezvous *self = gather->self;
    RvHeader    header = kvg_rv_header(RV_ALL, (size_t)self->ranks * gather->bytes);
    size_t      whole = sizeof header + header.bytes;

    for (;;) {
        int waiting = -1;

        for (int rank = 0; rank < self->ranks; rank++) {
            RvSeat *seat = &self->seats[rank];
            int     done = rank == 0 || seat->sent == whole ? 1 : kvg_rv_send_on(seat->link.fd, &header, gather->all, &seat->sent);

            if (done < 0) { /* it gave its part, and then it went: the next all-gather says so */
                seat->sent = whole;
                done = 1;
            }
            seat->halfway = !done && seat->sent > 0;
            gather->polls[rank] = (struct pollfd){ .fd = done ? -1 : seat->link.fd, .events = POLLOUT };
            waiting = done ? waiting : rank;
        }
        if (waiting == -1) {
            return KVG_OK;
        }
        if (kvg_clock_ns() >= gather->deadline_ns) {
            return kvg_fail(KVG_EINDOUBT, "rendezvous: rank %d (host %.63s, pid %lld) does not read what was gathered; is it stopped?", waiting,
                            self->seats[waiting].who.host, (long long)self->seats[waiting].who.pid);
        }
        wait_for_ranks(gather);
    }
}

static KvgStatus gather_at_host(Gather *gather, const void *mine)
{
    Rendezvous *self = gather->self;

    for (int rank = 0; rank < self->ranks; rank++) {
        self->seats[rank].heard = 0;
        self->seats[rank].sent = 0;
    }
    KVG_TRY(KVG_NEW((size_t)self->ranks, "an all-gather", &gather->polls));
    KvgStatus status = collect(gather);

    if (status == KVG_OK) {
        if (gather->bytes > 0) {
            memcpy(gather->all, mine, gather->bytes);
        }
        gather->deadline_ns = kvg_max_u64(gather->deadline_ns, kvg_clock_ns() + SPREAD_NS_LEAST); /* they do wait a little longer */
        status = spread(gather);
    }
    kvg_free(gather->polls);
    return status;
}

/* ---- another rank */

static KvgStatus fail_silent(const Gather *gather)
{
    const RvWho *who = &gather->self->seats[0].who;

    return kvg_fail(KVG_EINDOUBT, "rendezvous: rank 0 (host %.63s, pid %lld, at %s) did not answer an all-gather of rank %d within %u ms; is it stopped, or does it "
                    "take another path?", who->host, (long long)who->pid, who->place, gather->self->rank, gather->timeout_ms);
}

/* *done: what rank 0 sends is here, be it the bytes or its last word. */
static KvgStatus hear_all(Gather *gather, int *done)
{
    RvSeat *seat = &gather->self->seats[0];

    switch (kvg_rv_read(&seat->link, 1u << RV_ALL | 1u << RV_OVER, gather->all, (size_t)gather->self->ranks * gather->bytes)) {
    case RV_NOTHING:
        return KVG_OK;
    case RV_GONE:
        return fail_gone(seat, 0);
    case RV_MALFORMED:
        return fail_malformed(gather, seat, 0);
    case RV_FRAME:
        break;
    }
    *done = 1;
    return seat->link.header.kind == RV_OVER ? fail_as_told(seat) : KVG_OK;
}

static KvgStatus gather_at_guest(Gather *gather, const void *mine)
{
    RvSeat  *seat = &gather->self->seats[0];
    int      fd = seat->link.fd, done = 0, sent = 0;
    RvHeader header = kvg_rv_header(RV_GATHER, gather->bytes);

    seat->sent = 0;
    header.left_ms = gather->timeout_ms;
    while (!done) {
        sent = sent != 0 ? sent : kvg_rv_send_on(fd, &header, mine, &seat->sent); /* -1: rank 0 may have said why before it went */
        seat->halfway = sent == 0 && seat->sent > 0;
        KVG_TRY(hear_all(gather, &done));
        if (!done && kvg_clock_ns() >= gather->deadline_ns) {
            return fail_silent(gather);
        }
        if (!done) {
            kvg_rv_wait(fd, sent == 0 ? POLLIN | POLLOUT : POLLIN, gather->deadline_ns);
        }
    }
    return KVG_OK;
}

/* ---- both */

static KvgStatus rendezvous_allgather(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    Rendezvous *self = user;
    Gather      gather = { .self = self, .all = all, .bytes = bytes, .timeout_ms = timeout_ms };
    uint64_t    now_ns = kvg_clock_ns();

    if (self->failed != KVG_OK) {
        return kvg_fail(self->failed, "%s", self->why);
    }
    if (bytes > KVG_RENDEZVOUS_BYTES_MAX || bytes * (size_t)self->ranks > KVG_RENDEZVOUS_ALL_MAX) {
        return end(self, kvg_fail(KVG_EINVAL, "rendezvous: rank %d is asked to gather %zu bytes a rank of %d; at most %zu a rank and %zu in all", self->rank, bytes,
                                  self->ranks, KVG_RENDEZVOUS_BYTES_MAX, KVG_RENDEZVOUS_ALL_MAX));
    }
    gather.deadline_ns = now_ns + (uint64_t)timeout_ms * 1000000u;
    KvgStatus status = self->rank == 0 ? gather_at_host(&gather, mine) : gather_at_guest(&gather, mine);

    if (status != KVG_OK) {
        return end(self, status);
    }
    return KVG_OK;
}

/* ---- making */

static KvgStatus check_options(const KvRendezvousOptions *options, const KvgBootstrap *bootstrap)
{
    if (bootstrap == NULL) {
        return kvg_fail(KVG_EINVAL, "rendezvous: options and a place for the bootstrap must be given");
    }
    if (options->ranks < 1 || options->ranks > RANKS_MAX || options->rank < KVG_RENDEZVOUS_ANY_RANK || options->rank >= options->ranks ||
        (options->ranks == 1 && options->rank != 0)) {
        return kvg_fail(KVG_EINVAL, "rendezvous: rank %d of %d; 1 to %d ranks are possible, and rank 0 must be asked for", options->rank, options->ranks,
                        RANKS_MAX);
    }
    size_t secret_bytes = options->secret != NULL ? strnlen(options->secret, SECRET_MOST + 1) : 0;

    if (options->secret != NULL && (secret_bytes < SECRET_LEAST || secret_bytes > SECRET_MOST)) {
        return kvg_fail(KVG_EINVAL, "rendezvous: the secret has %s%zu bytes; %d to %d are needed, best of `openssl rand -hex 16`",
                        secret_bytes > SECRET_MOST ? "at least " : "", secret_bytes, SECRET_LEAST, SECRET_MOST);
    }
    if (options->listen_fd != -1 && options->rank != 0) {
        return kvg_fail(KVG_EINVAL, "rendezvous: rank %d brings a socket that listens; that is rank 0's", options->rank);
    }
    return options->listen_fd != -1 ? kvg_rv_check_listener(options->listen_fd, secret_bytes > 0) : KVG_OK;
}

static void rendezvous_free(Rendezvous *self)
{
    for (int rank = 0; self->seats != NULL && rank < self->ranks; rank++) {
        kvg_rv_hang_up(&self->seats[rank].link);
    }
    kvg_free(self->seats);
    explicit_bzero(self->secret, sizeof self->secret);
    kvg_free(self);
}

static KvgStatus rendezvous_new(const KvRendezvousOptions *options, Rendezvous **self_p)
{
    void *memory = NULL, *seats = NULL;

    KVG_TRY(kvg_calloc(1, sizeof(Rendezvous), "a rendezvous", &memory));
    KvgStatus   status = kvg_calloc((size_t)options->ranks, sizeof(RvSeat), "a rendezvous", &seats);
    Rendezvous *self = memory;

    if (status != KVG_OK) {
        kvg_free(memory);
        return status;
    }
    self->rank = options->rank;
    self->ranks = options->ranks;
    self->seats = seats;
    for (int rank = 0; rank < self->ranks; rank++) {
        self->seats[rank].link.fd = -1;
    }
    self->secret_bytes = options->secret != NULL ? strlen(options->secret) : 0;
    memcpy(self->secret, options->secret != NULL ? options->secret : "", self->secret_bytes);
    *self_p = self;
    return KVG_OK;
}

static KvgStatus meet(Rendezvous *self, const KvRendezvousOptions *options, int *listen_fd, uint64_t deadline_ns, uint32_t timeout_ms)
{
    if (self->rank != 0) {
        return kvg_rv_call(self, options->address, deadline_ns, timeout_ms);
    }
    if (self->ranks > 1 && *listen_fd == -1) {
        KVG_TRY(kvg_rv_listen(options->address, self->secret_bytes > 0, listen_fd));
    } else if (self->ranks > 1 && fcntl(*listen_fd, F_SETFL, fcntl(*listen_fd, F_GETFL) | O_NONBLOCK) != 0) { /* or an accept too many waits past the deadline */
        return kvg_fail(KVG_EIO, "rendezvous: the socket that listens cannot be made non-blocking: %s", strerror(errno));
    }
    return self->ranks > 1 ? kvg_rv_host(self, *listen_fd, deadline_ns, timeout_ms) : KVG_OK;
}

KvgStatus kvg_rendezvous_create(const KvRendezvousOptions *given, KvgBootstrap *bootstrap)
{
    static const KvRendezvousOptions defaults = KVG_RENDEZVOUS_OPTIONS_INIT;
    KvRendezvousOptions              own, *options = &own;
    Rendezvous                      *self = NULL;

    KVG_TRY(KVG_SIZED_IN(KvRendezvousOptions, given, defaults, own));
    KVG_TRY(check_options(options, given != NULL ? bootstrap : NULL));
    uint32_t  timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : TIMEOUT_MS_DEFAULT;
    uint64_t  deadline_ns = kvg_clock_ns() + (uint64_t)timeout_ms * 1000000u;
    int       listen_fd = options->listen_fd;
    KvgStatus status = rendezvous_new(options, &self);

    if (status == KVG_OK) {
        status = meet(self, options, &listen_fd, deadline_ns, timeout_ms);
    }
    kvg_mesh_close_fd(&listen_fd); /* nobody can come any more */
    if (status != KVG_OK) {
        if (self != NULL) {
            rendezvous_free(self);
        }
        return status;
    }
    *bootstrap = (KvgBootstrap)KVG_BOOTSTRAP_INIT;
    bootstrap->user = self;
    bootstrap->rank = self->rank;
    bootstrap->ranks = self->ranks;
    bootstrap->allgather = rendezvous_allgather;
    return KVG_OK;
}

void kvg_rendezvous_destroy(KvgBootstrap *bootstrap)
{
    if (bootstrap == NULL || bootstrap->user == NULL || bootstrap->allgather != rendezvous_allgather) {
        return;
    }
    rendezvous_free(bootstrap->user);
    *bootstrap = (KvgBootstrap)KVG_BOOTSTRAP_INIT;
}

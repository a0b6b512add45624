/* In-process transport: a hub with one inbox a rank for messages and one for records, on a virtual clock.
 *
 *   inbox   parcels sorted by (due time, order of sending); the first that is due and not held is the next to give
 *   spares  record parcels not in use, shared by all ranks: after records_open a post allocates nothing
 *           unless more than SPARES_A_PEER records a peer are in flight
 *
 * Messages of one sender never overtake each other, whatever the filter delays; records may, so that tests can
 * reorder votes. A frozen rank's parcels are held until it thaws. A rank gives a sign of life by every call
 * through its own ends: a wait for a rank that nobody drives ends at its deadline, as with processes. */
#include <kvgrid/inproc.h>

#include <stdio.h>
#include <string.h>

#include <kvgrid/log.h>

#include "runtime/base/memory.h"
#include "runtime/comm/inproc_parcel.h"

#define RELAX_NS      1000000u
#define RANKS_MAX     65536
#define SPARES_A_PEER 4u

typedef struct Member {
    KvInproc *hub;
    int       rank;
    int       comm_open, liveness_open;
    int       came;   /* was attached at least once */
    int       killed, frozen;
    uint64_t  sign_ns;
    size_t    record_bytes; /* 0: no records yet */
    Inbox     messages, records;
    uint64_t *message_due_ns; /* [ranks] when this rank's latest message to each other falls due */
    char      why[96];
} Member;

struct KvInproc {
    int             ranks;
    uint64_t        now_ns;
    KvInprocFilter  filter;
    void           *filter_user;
    Spares          spares; /* for records of all ranks */
    Member         *members; /* [ranks] */
};

/* ---- sending */

static int member_gone(const Member *member)
{
    return member->killed || (member->came && !member->comm_open && !member->liveness_open);
}

static void member_sign(Member *member)
{
    if (!member->frozen && !member->killed) {
        member->sign_ns = member->hub->now_ns;
    }
}

static KvInprocFate fate_of(const Member *from, int to, int is_record, const void *bytes, size_t byte_count,
                            uint64_t *delay_ns)
{
    KvInproc *hub = from->hub;

    *delay_ns = 0;
    if (from->killed || member_gone(&hub->members[to])) {
        return KVG_INPROC_DROP;
    }
    if (hub->filter == NULL) {
        return KVG_INPROC_DELIVER;
    }
    KvInprocFate fate = hub->filter(hub->filter_user, from->rank, to, is_record, bytes, byte_count, delay_ns);

    if (fate != KVG_INPROC_DELAY) {
        *delay_ns = 0;
    }
    return fate;
}

static void parcel_fill(Parcel *parcel, const Member *from, uint64_t due_ns, const void *bytes, size_t byte_count)
{
    KVG_ASSERT(byte_count <= parcel->capacity);
    parcel->due_ns = due_ns;
    parcel->from = from->rank;
    parcel->held = from->frozen;
    parcel->byte_count = byte_count;
    if (byte_count > 0) {
        memcpy(parcel->bytes, bytes, byte_count);
    }
}

static KvgStatus inproc_send(void *self, int peer, const void *bytes, size_t byte_count)
{
    Member   *from = self;
    KvInproc *hub = from->hub;
    uint64_t  delay_ns = 0;

    if (peer < 0 || peer >= hub->ranks || peer == from->rank) {
        return kvg_fail(KVG_EINVAL, "in-process comm: rank %d sends to rank %d of %d; a peer is another rank", from->rank,
                        peer, hub->ranks);
    }
    member_sign(from);
    KvInprocFate fate = fate_of(from, peer, 0, bytes, byte_count, &delay_ns);

    if (fate == KVG_INPROC_DROP) {
        return KVG_OK;
    }
    /* never before an earlier message of ours */
    uint64_t due_ns = hub->now_ns + delay_ns;

    if (due_ns < from->message_due_ns[peer]) {
        due_ns = from->message_due_ns[peer];
    }
    for (int copies = fate == KVG_INPROC_DUPLICATE ? 2 : 1; copies > 0; copies--) {
        Parcel *parcel = NULL;

        KVG_TRY(kvg_parcel_new(byte_count, &parcel));
        parcel_fill(parcel, from, due_ns, bytes, byte_count);
        kvg_inbox_put(&hub->members[peer].messages, parcel);
    }
    from->message_due_ns[peer] = due_ns;
    return KVG_OK;
}

static KvgStatus inproc_post(void *self, const void *record)
{
    Member   *from = self;
    KvInproc *hub = from->hub;

    KVG_ASSERT(from->record_bytes > 0); /* records_open comes first */
    member_sign(from);
    /* Two a peer: the filter may duplicate. Paid for before the first leaves, so that all get it or none. */
    KVG_TRY(kvg_spares_ensure(&hub->spares, 2 * (size_t)(hub->ranks - 1), from->record_bytes));
    for (int peer = 0; peer < hub->ranks; peer++) {
        uint64_t delay_ns = 0;

        if (peer == from->rank) {
            continue;
        }
        KvInprocFate fate = fate_of(from, peer, 1, record, from->record_bytes, &delay_ns);
        int          copies = fate == KVG_INPROC_DROP ? 0 : fate == KVG_INPROC_DUPLICATE ? 2 : 1;

        for (; copies > 0; copies--) {
            Parcel *parcel = kvg_spares_take(&hub->spares);

            parcel_fill(parcel, from, hub->now_ns + delay_ns, record, from->record_bytes);
            kvg_inbox_put(&hub->members[peer].records, parcel);
        }
    }
    return KVG_OK;
}

/* ---- receiving */

static KvgStatus inproc_recv(void *self, int *peer, const void **bytes, size_t *byte_count)
{
    Member *member = self;
    Inbox  *inbox = &member->messages;

    *peer = -1;
    *bytes = NULL;
    *byte_count = 0;
    member_sign(member);
    kvg_free(inbox->given);
    inbox->given = member->frozen || member->killed ? NULL : kvg_inbox_take(inbox, member->hub->now_ns);
    if (inbox->given != NULL) {
        *peer = inbox->given->from;
        *bytes = inbox->given->bytes;
        *byte_count = inbox->given->byte_count;
    }
    return KVG_OK;
}

static const void *inproc_take(void *self, int *peer)
{
    Member *member = self;
    Inbox  *inbox = &member->records;

    *peer = -1;
    member_sign(member);
    if (inbox->given != NULL) {
        kvg_spares_put(&member->hub->spares, inbox->given);
        inbox->given = NULL;
    }
    if (member->record_bytes == 0 || member->frozen || member->killed) {
        return NULL;
    }
    inbox->given = kvg_inbox_take(inbox, member->hub->now_ns);
    if (inbox->given == NULL) {
        return NULL;
    }
    if (inbox->given->byte_count != member->record_bytes) {
        kvg_log(KVG_LOG_WARN, "rank %d: record of %zu bytes from rank %d dropped, records here have %zu", member->rank,
                inbox->given->byte_count, inbox->given->from, member->record_bytes);
        return inproc_take(self, peer);
    }
    *peer = inbox->given->from;
    return inbox->given->bytes;
}

static KvgStatus inproc_records_open(void *self, size_t record_bytes)
{
    Member   *member = self;
    KvInproc *hub = member->hub;
    size_t    pairs = (size_t)hub->ranks * (size_t)(hub->ranks - 1);

    if (record_bytes == 0) {
        return kvg_fail(KVG_EINVAL, "in-process comm: records of 0 bytes; give the size of the vote record");
    }
    if (hub->spares.capacity != record_bytes) { /* once for all ranks of the hub */
        KVG_TRY(kvg_spares_ensure(&hub->spares, SPARES_A_PEER * pairs, record_bytes));
    }
    member->record_bytes = record_bytes;
    return KVG_OK;
}

/* ---- clock and end */

static uint64_t inproc_now_ns(void *self)
{
    return ((const Member *)self)->hub->now_ns;
}

static void inproc_relax(void *self, uint64_t rounds)
{
    (void)rounds;
    ((Member *)self)->hub->now_ns += RELAX_NS;
}

static void inproc_comm_close(void *self)
{
    Member *member = self;

    kvg_inbox_clear(&member->messages);
    kvg_inbox_clear(&member->records);
    member->record_bytes = 0;
    member->comm_open = 0;
}

static const KvCommOps inproc_comm_ops = {
    .name = "inproc",
    .send = inproc_send,
    .recv = inproc_recv,
    .records_open = inproc_records_open,
    .post = inproc_post,
    .take = inproc_take,
    .now_ns = inproc_now_ns,
    .relax = inproc_relax,
    .close = inproc_comm_close,
};

/* ---- liveness */

static const Member *peer_of(const void *self, int peer)
{
    const KvInproc *hub = ((const Member *)self)->hub;

    KVG_ASSERT(peer >= 0 && peer < hub->ranks);
    return &hub->members[peer];
}

static void inproc_poll(void *self)
{
    member_sign(self);
}

static int inproc_lost(void *self, int peer)
{
    const Member *own = self, *other = peer_of(self, peer);

    return own != other && (own->killed || member_gone(other)); /* a killed rank has lost everybody */
}

static uint64_t inproc_last_sign_ns(void *self, int peer)
{
    return peer_of(self, peer)->sign_ns;
}

static const char *inproc_why(void *self, int peer)
{
    Member *own = self;

    if (!inproc_lost(self, peer)) {
        return "";
    }
    snprintf(own->why, sizeof own->why, "%s rank %d (in-process)",
             peer_of(self, peer)->killed ? "connection broken by the death of"
             : own->killed               ? "this rank was killed and reaches no more"
                                         : "connection closed by",
             peer);
    return own->why;
}

static void inproc_liveness_close(void *self)
{
    ((Member *)self)->liveness_open = 0;
}

static const KvLivenessOps inproc_liveness_ops = {
    .name = "inproc",
    .poll = inproc_poll,
    .lost = inproc_lost,
    .last_sign_ns = inproc_last_sign_ns,
    .why = inproc_why,
    .close = inproc_liveness_close,
};

/* ---- the hub */

KvgStatus kvg_inproc_create(int ranks, KvInproc **hub_p)
{
    KvgStatus status = KVG_OK;

    if (hub_p == NULL || ranks < 1 || ranks > RANKS_MAX) {
        return kvg_fail(KVG_EINVAL, "in-process hub of %d ranks; 1 to %d are possible, and the output must be given", ranks,
                        RANKS_MAX);
    }
    KvInproc *hub = NULL;
    KVG_TRY(KVG_NEW(1, "an in-process hub", &hub));

    hub->ranks = ranks;
    KVG_TRY_GOTO(KVG_NEW((size_t)ranks, "the members of an in-process hub", &hub->members), err_destroy);
    for (int rank = 0; rank < ranks; rank++) {
        hub->members[rank].hub = hub;
        hub->members[rank].rank = rank;
        KVG_TRY_GOTO(KVG_NEW((size_t)ranks, "due times of an in-process rank", &hub->members[rank].message_due_ns), err_destroy);
    }
    *hub_p = hub;
    return KVG_OK;
err_destroy:
    kvg_inproc_destroy(hub);
    return status;
}

void kvg_inproc_destroy(KvInproc *hub)
{
    if (hub == NULL) {
        return;
    }
    for (int rank = 0; hub->members != NULL && rank < hub->ranks; rank++) {
        Member *member = &hub->members[rank];

        KVG_ASSERT(!member->comm_open && !member->liveness_open);
        kvg_inbox_clear(&member->messages); /* for a rank that never came */
        kvg_inbox_clear(&member->records);
        kvg_free(member->message_due_ns);
    }
    kvg_parcels_free(hub->spares.first);
    kvg_free(hub->members);
    kvg_free(hub);
}

KvgStatus kvg_inproc_attach(KvInproc *hub, int rank, KvComm *comm, KvLiveness *liveness)
{
    if (hub == NULL || comm == NULL || liveness == NULL || rank < 0 || rank >= hub->ranks) {
        return kvg_fail(KVG_EINVAL, "in-process attach of rank %d of %d; give hub, comm and liveness and a rank of the hub",
                        rank, hub != NULL ? hub->ranks : 0);
    }
    Member *member = &hub->members[rank];

    if (member->comm_open || member->liveness_open) {
        return kvg_fail(KVG_EBUSY, "in-process attach: rank %d is attached already; close its comm and liveness first", rank);
    }
    if (member->killed) {
        return kvg_fail(KVG_EPEER, "in-process attach: rank %d was killed and does not come back; make a new hub", rank);
    }
    member->comm_open = member->liveness_open = member->came = 1;
    member->sign_ns = hub->now_ns;
    *comm = (KvComm){ .ops = &inproc_comm_ops, .self = member, .rank = rank, .size = hub->ranks };
    *liveness = (KvLiveness){ .ops = &inproc_liveness_ops, .self = member };
    return KVG_OK;
}

void kvg_inproc_set_filter(KvInproc *hub, KvInprocFilter filter, void *user)
{
    hub->filter = filter;
    hub->filter_user = user;
}

void kvg_inproc_kill(KvInproc *hub, int rank)
{
    KVG_ASSERT(rank >= 0 && rank < hub->ranks);
    hub->members[rank].killed = 1;
}

void kvg_inproc_freeze(KvInproc *hub, int rank, int frozen)
{
    KVG_ASSERT(rank >= 0 && rank < hub->ranks);
    hub->members[rank].frozen = frozen != 0;
    for (int other = 0; !frozen && other < hub->ranks; other++) {
        kvg_inbox_release(&hub->members[other].messages, rank);
        kvg_inbox_release(&hub->members[other].records, rank);
    }
}

uint64_t kvg_inproc_now_ns(const KvInproc *hub)
{
    return hub->now_ns;
}

void kvg_inproc_advance_ns(KvInproc *hub, uint64_t ns)
{
    hub->now_ns += ns;
}

/* Carried comm. See the header. */
#include "kernels/comm_carried.h"

#include <stdio.h>
#include <string.h>

#include <kvgrid/log.h>

#include "kernels/kvgrid_comm_board.h"
#include "runtime/base/memory.h"

/* A record may be on its way when another connection reports the death of its sender; a little less than a vote has. */
#define LOST_GRACE_NS    40000000u
/* As a vote has it: a rank that gives signs of life and never posts. */
#define LIVELY_DEADLINES 20u
#define LOOK_PERIOD_NS  1000000u

typedef struct Carried {
    KvCommOps           ops; /* with the carrier's name */
    KvComm              base;
    KvLiveness          liveness; /* ops NULL: none */
    const KvCarrierOps *carrier;
    void               *cargo;
    uint32_t            epoch;
    uint64_t            patience_ns;
    uint64_t            looked_ns;
    int                 ended;
    char                why[256]; /* it ended */
    uint32_t            again;
    size_t              record_bytes, stride;
    uint8_t            *sent;   /* [again][stride] the latest records that the carrier took */
    uint64_t            posted; /* by the carrier */
} Carried;

static void send_again(Carried *self)
{
    const uint64_t count = self->posted < self->again ? self->posted : self->again;

    for (uint64_t i = self->posted - count; i < self->posted; i++) {
        if (self->base.ops->post(self->base.self, self->sent + i % self->again * self->stride) != KVG_OK) {
            kvg_log(KVG_LOG_WARN, "rank %d: a record was not sent again: %s", self->base.rank, kvg_last_error());
        }
    }
}

static void end(Carried *self, const char *cause)
{
    if (self->ended) {
        return;
    }
    snprintf(self->why, sizeof self->why, "%s", cause); /* it may be the last error, which what follows may set */
    self->ended = 1;
    self->carrier->stop(self->cargo);
    send_again(self);
    kvg_log(KVG_LOG_WARN, "rank %d: records go by %s from now on, no longer by %s: %s", self->base.rank, self->base.ops->name, self->carrier->name, self->why);
}

/* ---- an exchange that hangs */

/* Whether a vote would give up on this peer now, with nothing from it since `since`. */
static int is_given_up(const Carried *self, int peer, uint64_t since, uint64_t now, char *why, size_t bytes)
{
    const KvLivenessOps *ops = self->liveness.ops;
    uint64_t             sign = ops->last_sign_ns(self->liveness.self, peer);
    uint64_t             from = sign > since ? sign : since;

    if (ops->lost(self->liveness.self, peer) && now > sign + LOST_GRACE_NS) {
        snprintf(why, bytes, "rank %d is lost: %s", peer, ops->why(self->liveness.self, peer));
        return 1;
    }
    if (now > from + self->patience_ns) {
        snprintf(why, bytes, "rank %d was silent for %llu ms while an exchange waited", peer, (unsigned long long)((now - from) / 1000000u));
        return 1;
    }
    return 0;
}

/* A little sooner than the vote gives up: then nothing is left running when it does. */
static void end_if_hung(Carried *self)
{
    const uint64_t now = self->base.ops->now_ns(self->base.self);
    const uint64_t since = self->carrier->hangs_since(self->cargo);
    char           why[256];

    if (since == 0 || now - self->looked_ns < LOOK_PERIOD_NS) {
        return;
    }
    self->looked_ns = now;
    for (int peer = 0; self->liveness.ops != NULL && peer < self->base.size; peer++) {
        if (peer != self->base.rank && is_given_up(self, peer, since, now, why, sizeof why)) {
            end(self, why);
            return;
        }
    }
    if (now > since + (self->liveness.ops != NULL ? LIVELY_DEADLINES : 1) * self->patience_ns) {
        snprintf(why, sizeof why, "not all ranks came to an exchange within %llu ms", (unsigned long long)((now - since) / 1000000u));
        end(self, why);
    }
}

/* ---- records */

static KvgStatus keep_records(Carried *self, size_t record_bytes)
{
    const size_t stride = (record_bytes + 7) / 8 * 8;
    void        *memory = NULL;

    KVG_TRY(kvg_calloc(self->again, stride, "records of a comm", &memory));
    kvg_free(self->sent);
    self->sent = memory;
    self->record_bytes = record_bytes;
    self->stride = stride;
    self->posted = 0;
    return KVG_OK;
}

static KvgStatus carried_records_open(void *user, size_t record_bytes)
{
    Carried *self = user;

    if (record_bytes < KVG_VOTE_HEADER_BYTES) {
        return kvg_fail(KVG_EINVAL, "%s comm: records of %zu bytes: it carries votes, of %u bytes and more", self->carrier->name, record_bytes,
                        KVG_VOTE_HEADER_BYTES);
    }
    KVG_TRY(self->base.ops->records_open(self->base.self, record_bytes));
    if (self->ended) {
        return KVG_OK;
    }
    KVG_TRY(keep_records(self, record_bytes));
    return self->carrier->open(self->cargo, record_bytes);
}

static KvgStatus carried_post(void *user, const void *bytes)
{
    Carried            *self = user;
    const KvVoteRecord *record = bytes;

    if (!self->ended && record->epoch > self->epoch) {
        end(self, "the grid has settled");
    }
    if (self->ended) {
        return self->base.ops->post(self->base.self, record);
    }
    memcpy(self->sent + self->posted++ % self->again * self->stride, record, self->record_bytes);
    if (self->carrier->post(self->cargo, record, self->base.ops->now_ns(self->base.self)) != KVG_OK) {
        end(self, kvg_last_error()); /* sends this one, too */
    }
    return KVG_OK;
}

/* By the base. A record of this epoch there is of a rank whose carrier has ended. */
static const void *take_from_base(Carried *self, int *peer)
{
    const KvVoteRecord *record = self->base.ops->take(self->base.self, peer);
    char                why[96];

    if (record != NULL && !self->ended) {
        snprintf(why, sizeof why, "those of rank %d come by it", *peer);
        end(self, why);
    }
    return record;
}

static const void *carried_take(void *user, int *peer)
{
    Carried    *self = user;
    const void *record = NULL;

    if (!self->ended && self->carrier->poll(self->cargo) != KVG_OK) {
        end(self, kvg_last_error());
    }
    record = self->carrier->take(self->cargo, peer);
    if (record != NULL) {
        return record;
    }
    if (!self->ended && self->carrier->hangs_since != NULL) {
        end_if_hung(self);
    }
    return take_from_base(self, peer);
}

/* ---- the base's */

static KvgStatus carried_send(void *user, int peer, const void *bytes, size_t byte_count)
{
    Carried *self = user;
    return self->base.ops->send(self->base.self, peer, bytes, byte_count);
}

static KvgStatus carried_recv(void *user, int *peer, const void **bytes, size_t *byte_count)
{
    Carried *self = user;
    return self->base.ops->recv(self->base.self, peer, bytes, byte_count);
}

static uint64_t carried_now_ns(void *user)
{
    Carried *self = user;
    return self->base.ops->now_ns(self->base.self);
}

static void carried_relax(void *user, uint64_t rounds)
{
    Carried *self = user;
    self->base.ops->relax(self->base.self, rounds);
}

static void carried_close(void *user)
{
    Carried *self = user;

    self->carrier->close(self->cargo);
    if (self->base.ops != NULL) {
        self->base.ops->close(self->base.self);
    }
    kvg_free(self->sent);
    kvg_free(self);
}

int kvg_comm_on_devices(const KvComm *comm, char *why, size_t bytes)
{
    const int      ours = comm->ops != NULL && comm->ops->close == carried_close;
    const Carried *self = ours ? comm->self : NULL;

    if (why != NULL && bytes > 0) {
        snprintf(why, bytes, "%s", ours ? self->why : "");
    }
    return ours && !self->ended;
}

void kvg_comm_carried_undo(KvComm *comm)
{
    ((Carried *)comm->self)->base.ops = NULL;
    carried_close(comm->self);
    *comm = (KvComm){ 0 };
}

KvgStatus kvg_comm_carried(const KvCarriedOptions *options, const KvCarrierOps *carrier, void *cargo, KvComm *comm)
{
    const uint64_t timeout_ns = (options->timeout_ms != 0 ? options->timeout_ms : 30000u) * UINT64_C(1000000);
    void          *memory = NULL;
    Carried       *self;

    KVG_TRY(kvg_calloc(1, sizeof *self, "a comm", &memory));
    self = memory;
    self->ops = (KvCommOps){ .name = carrier->name, .send = carried_send, .recv = carried_recv, .records_open = carried_records_open,
                             .post = carried_post, .take = carried_take, .now_ns = carried_now_ns, .relax = carried_relax, .close = carried_close };
    self->base = options->base;
    if (options->liveness != NULL) {
        self->liveness = *options->liveness;
    }
    self->carrier = carrier;
    self->cargo = cargo;
    self->epoch = options->epoch != 0 ? options->epoch : 1;
    self->again = options->again != 0 ? options->again : 1;
    self->patience_ns = timeout_ns - timeout_ns / 32;
    *comm = (KvComm){ .ops = &self->ops, .self = self, .rank = options->base.rank, .size = options->base.size };
    return KVG_OK;
}

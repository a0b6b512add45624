/* Self: the comm and liveness of a grid of one rank. Neither has state: there is nobody to send to or to lose. */
#include <kvgrid/comm.h>

#include "runtime/base/error.h"
#include "runtime/comm/clock.h"

static KvgStatus self_send(void *self, int peer, const void *bytes, size_t byte_count)
{
    (void)self, (void)bytes, (void)byte_count;
    return kvg_fail(KVG_EINVAL, "self comm: message to rank %d, but rank 0 is the only one of this grid", peer);
}

static KvgStatus self_recv(void *self, int *peer, const void **bytes, size_t *byte_count)
{
    (void)self;
    *peer = -1;
    *bytes = NULL;
    *byte_count = 0;
    return KVG_OK;
}

static KvgStatus self_records_open(void *self, size_t record_bytes)
{
    (void)self;
    if (record_bytes == 0) {
        return kvg_fail(KVG_EINVAL, "self comm: records of 0 bytes; give the size of the vote record");
    }
    return KVG_OK;
}

static KvgStatus self_post(void *self, const void *record)
{
    (void)self, (void)record;
    return KVG_OK;
}

static const void *self_take(void *self, int *peer)
{
    (void)self;
    *peer = -1;
    return NULL;
}

static uint64_t self_now_ns(void *self)
{
    (void)self;
    return kvg_clock_ns();
}

static void self_relax(void *self, uint64_t rounds)
{
    (void)self;
    kvg_clock_relax(rounds);
}

static void self_nothing(void *self)
{
    (void)self;
}

static int self_lost(void *self, int peer)
{
    (void)self, (void)peer;
    return 0;
}

static uint64_t self_last_sign_ns(void *self, int peer)
{
    (void)self, (void)peer;
    return kvg_clock_ns();
}

static const char *self_why(void *self, int peer)
{
    (void)self, (void)peer;
    return "";
}

static const KvCommOps self_comm_ops = {
    .name = "self",
    .send = self_send,
    .recv = self_recv,
    .records_open = self_records_open,
    .post = self_post,
    .take = self_take,
    .now_ns = self_now_ns,
    .relax = self_relax,
    .close = self_nothing,
};

static const KvLivenessOps self_liveness_ops = {
    .name = "self",
    .poll = self_nothing,
    .lost = self_lost,
    .last_sign_ns = self_last_sign_ns,
    .why = self_why,
    .close = self_nothing,
};

KvgStatus kvg_comm_self(KvComm *comm, KvLiveness *liveness)
{
    if (comm == NULL || liveness == NULL) {
        return kvg_fail(KVG_EINVAL, "self comm: comm %p, liveness %p; both outputs must be given", (void *)comm,
                        (void *)liveness);
    }
    *comm = (KvComm){ .ops = &self_comm_ops, .self = NULL, .rank = 0, .size = 1 };
    *liveness = (KvLiveness){ .ops = &self_liveness_ops, .self = NULL };
    return KVG_OK;
}

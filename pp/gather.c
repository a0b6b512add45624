/* Gather: one all-gather of bytes over messages. Post to every member, then test until each one's bytes are here. */
#include "pp/internal.h"

#include <stdio.h>
#include <string.h>

/* A lost rank's last message may still be on its way: the connection that reports the loss is another one. */
#define GATHER_GRACE_NS (50u * 1000u * 1000u)
/* A rank that has settled more often than this without us is no rank of ours: epochs are walked one by one. */
#define EPOCHS_AHEAD_MAX 65536u

static KvgStatus make_wire(KvGather *gather, const void *body, size_t bytes)
{
    KvMessageHeader header = { KVG_MESSAGE_MAGIC, gather->epoch, gather->tag, gather->kind, gather->what };

    KVG_TRY(kvg_calloc(1, sizeof header + bytes, "a message", &gather->wire));
    gather->wire_bytes = sizeof header + bytes;
    memcpy(gather->wire, &header, sizeof header);
    if (bytes > 0) {
        memcpy((uint8_t *)gather->wire + sizeof header, body, bytes);
    }
    return KVG_OK;
}

static int receives(const KvGather *gather, int rank)
{
    return gather->receiver == NULL || gather->receiver[rank];
}

/* Sends to the members that have not been sent to yet; what finds no memory now is sent by a later turn. */
static void send_on(KvGather *gather)
{
    KvgGrid *grid = gather->grid;

    for (; gather->wire != NULL && gather->next_send < grid->ranks; gather->next_send++) {
        int    to = gather->next_send;
        size_t bytes = receives(gather, to) ? gather->wire_bytes : sizeof(KvMessageHeader);
        if (to != grid->rank && gather->member[to] && grid->comm.ops->send(grid->comm.self, to, gather->wire, bytes) != KVG_OK) {
            snprintf(gather->unsent_why, sizeof gather->unsent_why, "%s", kvg_last_error());
            return;
        }
    }
    kvg_free(gather->wire);
    gather->wire = NULL;
}

static KvgStatus keep(KvGather *gather, int rank, const void *body, size_t bytes)
{
    KVG_TRY(kvg_calloc(1, bytes, "a gathered block", &gather->body[rank]));
    if (bytes > 0) {
        memcpy(gather->body[rank], body, bytes);
    }
    gather->bytes[rank] = bytes;
    gather->missing--;
    return KVG_OK;
}

KvgStatus kvg_gather_start(KvgGrid *grid, KvMessageKind kind, uint64_t tag, const char *what, const uint8_t *member,
                           const uint8_t *receiver, const void *body, size_t bytes, KvGather *gather)
{
    KvgStatus status;
    size_t    ranks = (size_t)grid->ranks;

    memset(gather, 0, sizeof *gather);
    gather->grid = grid;
    gather->kind = kind;
    gather->receiver = receiver;
    gather->ahead = -1;
    gather->tag = tag;
    gather->what = (uint32_t)kvg_name_hash(what);
    gather->epoch = kind == KVG_MESSAGE_REBUILD ? UINT32_MAX : grid->epoch;
    gather->started_ns = kvg_grid_now(grid);
    KVG_TRY_GOTO(KVG_NEW(ranks, "a gather", &gather->member), err_free);
    KVG_TRY_GOTO(KVG_NEW(ranks, "a gather", &gather->body), err_free);
    KVG_TRY_GOTO(KVG_NEW(ranks, "a gather", &gather->bytes), err_free);
    for (int rank = 0; rank < grid->ranks; rank++) {
        gather->member[rank] = member == NULL ? 1 : member[rank];
        gather->missing += gather->member[rank];
    }
    KVG_ASSERT(gather->member[grid->rank]);
    KVG_TRY_GOTO(keep(gather, grid->rank, body, receives(gather, grid->rank) ? bytes : 0), err_free);
    KVG_TRY_GOTO(make_wire(gather, body, bytes), err_free);
    send_on(gather);
    return KVG_OK;
err_free:
    kvg_gather_free(gather);
    return status;
}

/* A member has settled this epoch already: what it says of itself is taken, apart from the gather, and the settle catches up with it. */
static int is_ahead(const KvGather *gather, const KvMessage *message)
{
    return gather->kind == KVG_MESSAGE_SETTLE && message->header.kind == KVG_MESSAGE_SETTLE && message->header.tag == gather->tag &&
           message->header.epoch > gather->epoch && message->header.epoch - gather->epoch <= EPOCHS_AHEAD_MAX && gather->member[message->from];
}

/* Takes this exchange's messages out of the inbox. */
static KvgStatus take_arrived(KvGather *gather)
{
    KvgGrid    *grid = gather->grid;
    KvMessage **link = &grid->inbox;

    while (*link != NULL) {
        KvMessage *message = *link;
        int        ours = message->header.kind == gather->kind && message->header.tag == gather->tag &&
                   message->header.epoch == gather->epoch && gather->member[message->from] &&
                   gather->body[message->from] == NULL;
        gather->ahead = is_ahead(gather, message) ? message->from : gather->ahead;
        if (!ours) {
            link = &message->next;
            continue;
        }
        if (message->header.what != gather->what) {
            return kvg_fail(KVG_ELAYOUT, "rank %d is in another set-up call than rank %d; every rank must make the same set-up calls "
                            "in the same order", message->from, grid->rank);
        }
        if (keep(gather, message->from, message->body, message->body_bytes) != KVG_OK) {
            return KVG_OK; /* no memory now: it stays in the inbox */
        }
        *link = message->next;
        if (grid->inbox_tail == &message->next) {
            grid->inbox_tail = link;
        }
        kvg_free(message);
    }
    return KVG_OK;
}

static int first_missing(const KvGather *gather, int lost_only)
{
    for (int rank = 0; rank < gather->grid->ranks; rank++) {
        if (gather->member[rank] && gather->body[rank] == NULL && (!lost_only || kvg_grid_is_lost(gather->grid, rank))) {
            return rank;
        }
    }
    return -1;
}

static KvgStatus check_waiting(KvGather *gather)
{
    KvgGrid *grid = gather->grid;
    uint64_t now = kvg_grid_now(grid);
    int      lost = first_missing(gather, 1);

    if (lost >= 0 && gather->silent_since_ns == 0) {
        gather->silent_since_ns = now;
    }
    if (lost >= 0 && now - gather->silent_since_ns > GATHER_GRACE_NS) {
        return kvg_fail(KVG_EPEER, "rank %d is gone (%s) and did not take part in a set-up call", lost,
                        grid->liveness.ops->why(grid->liveness.self, lost));
    }
    if (now - gather->started_ns > grid->timeout_ns) {
        if (gather->wire != NULL) { /* no other rank is to blame */
            return kvg_fail(KVG_EINDOUBT, "this rank's message to rank %d has not left within %u ms: %s", gather->next_send, grid->policy.timeout_ms,
                            gather->unsent_why);
        }
        char who[KVG_WHO_BYTES];
        kvg_grid_say_who(grid, first_missing(gather, 0), who);
        return kvg_fail(KVG_EINDOUBT, "rank %d%s did not take part in a set-up call within %u ms (%d of the ranks are missing); raise "
                        "KVGRID_TIMEOUT_MS if it is only slow", first_missing(gather, 0), who, grid->policy.timeout_ms, gather->missing);
    }
    return KVG_OK;
}

KvgStatus kvg_gather_test(KvGather *gather, int *done)
{
    *done = 0;
    send_on(gather);
    KVG_TRY(kvg_grid_turn(gather->grid));
    KVG_TRY(take_arrived(gather));
    *done = gather->wire == NULL && (gather->missing == 0 || gather->ahead >= 0);
    return *done ? KVG_OK : check_waiting(gather);
}

KvgStatus kvg_gather_hear(KvGather *gather, int ahead, uint32_t *epoch)
{
    KvMessage *message = gather->grid->inbox;

    while (message->from != ahead || !is_ahead(gather, message)) {
        message = message->next;
        KVG_ASSERT(message != NULL); /* take_arrived has seen it */
    }
    if (gather->body[ahead] != NULL) { /* from before it settled */
        kvg_free(gather->body[ahead]);
        gather->body[ahead] = NULL;
        gather->missing++;
    }
    *epoch = message->header.epoch;
    return keep(gather, ahead, message->body, message->body_bytes);
}

void kvg_gather_free(KvGather *gather)
{
    for (int rank = 0; gather->body != NULL && rank < gather->grid->ranks; rank++) {
        kvg_free(gather->body[rank]);
    }
    kvg_free(gather->wire);
    kvg_free(gather->body);
    kvg_free(gather->bytes);
    kvg_free(gather->member);
    memset(gather, 0, sizeof *gather);
}

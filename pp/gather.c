/* Gather: one all-gather of bytes over messages. Post to every member, then test until each one's bytes are here. */
#include "pp/internal.h"

#include <string.h>


/* A lost rank's last message may still be on its way: the connection that reports the loss is another one. */
#define GATHER_GRACE_NS (50u * 1000u * 1000u)

static uint32_t what_hash(const char *what)
{
    uint64_t hash = 0;
    for (const char *c = what; *c != '\0'; c++) {
        hash = kvg_mix64(hash + (uint8_t)*c);
    }
    return (uint32_t)hash;
}

static KvgStatus send_to_members(const KvGather *gather, const void *body, size_t bytes)
{
    KvgGrid        *grid = gather->grid;
    KvMessageHeader header = { KVG_MESSAGE_MAGIC, gather->epoch, gather->tag, gather->kind, gather->what };
    void           *wire = NULL;
    KvgStatus       status = KVG_OK;

    KVG_TRY(kvg_calloc(1, sizeof header + bytes, "a message", &wire));
    memcpy(wire, &header, sizeof header);
    memcpy((uint8_t *)wire + sizeof header, body, bytes);
    for (int rank = 0; rank < grid->ranks && status == KVG_OK; rank++) {
        if (rank != grid->rank && gather->member[rank]) {
            status = grid->comm.ops->send(grid->comm.self, rank, wire, sizeof header + bytes);
        }
    }
    kvg_free(wire);
    return status;
}

static KvgStatus keep(KvGather *gather, int rank, const void *body, size_t bytes)
{
    KVG_TRY(kvg_calloc(1, bytes, "a gathered block", &gather->body[rank]));
    memcpy(gather->body[rank], body, bytes);
    gather->bytes[rank] = bytes;
    gather->missing--;
    return KVG_OK;
}

KvgStatus kvg_gather_start(KvgGrid *grid, KvMessageKind kind, uint64_t tag, const char *what, const uint8_t *member,
                           const void *body, size_t bytes, KvGather *gather)
{
    KvgStatus status;
    size_t    ranks = (size_t)grid->ranks;
    void     *members = NULL, *bodies = NULL, *sizes = NULL;

    memset(gather, 0, sizeof *gather);
    gather->grid = grid;
    gather->kind = kind;
    gather->tag = tag;
    gather->what = what_hash(what);
    gather->epoch = grid->epoch;
    gather->started_ns = kvg_grid_now(grid);
    KVG_TRY_GOTO(kvg_calloc(ranks, 1, "a gather", &members), err_free);
    gather->member = members;
    KVG_TRY_GOTO(kvg_calloc(ranks, sizeof(void *), "a gather", &bodies), err_free);
    gather->body = bodies;
    KVG_TRY_GOTO(kvg_calloc(ranks, sizeof(size_t), "a gather", &sizes), err_free);
    gather->bytes = sizes;
    for (int rank = 0; rank < grid->ranks; rank++) {
        gather->member[rank] = member == NULL ? 1 : member[rank];
        gather->missing += gather->member[rank];
    }
    KVG_ASSERT(gather->member[grid->rank]);
    KVG_TRY_GOTO(send_to_members(gather, body, bytes), err_free);
    KVG_TRY_GOTO(keep(gather, grid->rank, body, bytes), err_free);
    return KVG_OK;
err_free:
    kvg_gather_free(gather);
    return status;
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
        if (!ours) {
            link = &message->next;
            continue;
        }
        if (message->header.what != gather->what) {
            return kvg_fail(KVG_ELAYOUT, "rank %d is in another set-up call than rank %d; every rank must make the same set-up calls "
                            "in the same order", message->from, grid->rank);
        }
        KVG_TRY(keep(gather, message->from, message->body, message->body_bytes));
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
        return kvg_fail(KVG_EINDOUBT, "rank %d did not take part in a set-up call within %u ms (%d of the ranks are missing); raise "
                        "KVGRID_TIMEOUT_MS if it is only slow", first_missing(gather, 0), grid->policy.timeout_ms, gather->missing);
    }
    return KVG_OK;
}

KvgStatus kvg_gather_test(KvGather *gather, int *done)
{
    *done = 0;
    KVG_TRY(kvg_grid_turn(gather->grid));
    KVG_TRY(take_arrived(gather));
    if (gather->missing > 0) {
        return check_waiting(gather);
    }
    *done = 1;
    return KVG_OK;
}

void kvg_gather_free(KvGather *gather)
{
    for (int rank = 0; gather->body != NULL && rank < gather->grid->ranks; rank++) {
        kvg_free(gather->body[rank]);
    }
    kvg_free(gather->body);
    kvg_free(gather->bytes);
    kvg_free(gather->member);
    memset(gather, 0, sizeof *gather);
}

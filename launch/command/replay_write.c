/* Replay's writing of a step. */
#include "launch/command/replay_write.h"

#include "launch/command/replay_generator.h"
#include "runtime/base/memory.h"
#include "runtime/comm/clock.h"

KvgStatus kvg_replay_write_create(uint64_t rows, ReplayShared *shared)
{
    const size_t row_elements = shared->planes.row_elements_max > 0 ? shared->planes.row_elements_max : 1;
    void        *memory = NULL;
    KVG_TRY(kvg_calloc(rows, row_elements * sizeof(float), "a step's K or latent rows", &memory));
    shared->k = memory;
    KVG_TRY(kvg_calloc(rows, row_elements * sizeof(float), "a step's V or index rows", &memory));
    shared->v = memory;
    KVG_TRY(KVG_NEW(rows, "a step's row keys", &shared->recurrent.keys));
    KVG_TRY(KVG_NEW(rows, "a step's columns", &shared->recurrent.heads));
    shared->recurrent.x = shared->k;
    return KVG_OK;
}

void kvg_replay_write_free(ReplayShared *shared)
{
    kvg_free(shared->k);
    kvg_free(shared->v);
    kvg_free(shared->recurrent.keys);
    kvg_free(shared->recurrent.heads);
}

/* Looks whether votes under way are decided, so that a lane's latency is the vote's and not that of the lanes that write meanwhile. A
 * failure is heard where the lane waits. */
static void look_at_votes(ReplayShared *shared)
{
    for (uint32_t i = 0; i < shared->lane_count; i++) {
        ReplayLane *lane = &shared->lanes[i];
        int         done = 0;
        if (lane->posted_ns == 0 || lane->decided_ns != 0) {
            continue;
        }
        (void)kvg_step_test(lane->step, &done, NULL);
        lane->decided_ns = done ? kvg_clock_ns() : 0;
    }
}

/* Writing takes long on slow machines, and the others wait: this rank is alive. */
static void give_sign(ReplayShared *shared)
{
    enum { SIGN_NS = 20 * 1000 * 1000 };
    const uint64_t now = kvg_clock_ns();
    if (now - shared->signed_ns >= SIGN_NS) {
        shared->signed_ns = now;
        (void)kvg_grid_progress(shared->grid); /* what it finds is heard at the vote */
    }
}

/* The seat's rows in the step: what is owed, again as it was accepted, then the turn's own. 0 rows: not part of it. */
static ReplaySpan span_of(const ReplaySeat *at)
{
    if (at->sequence == NULL) {
        return (ReplaySpan){ 0 };
    }
    return (ReplaySpan){ at->request, at->committed - at->turn.replay, at->round, at->turn.replay + at->turn.rows,
                         at->turn.replay + at->turn.accepted };
}

/* Makes the step's rows of a plane and lends them to the device, as number `which` of the two that a layer has. */
static KvgStatus make_plane(const ReplayShared *shared, const ReplayLane *lane, const ReplayLayer *layer, uint32_t plane, int which,
                            const void **lent)
{
    float *made = which == 0 ? shared->k : shared->v, *target = made;
    const ReplayShape shape = kvg_replay_shape(layer, plane);
    for (uint32_t seat = 0; seat < lane->count; seat++) {
        ReplaySpan span = span_of(&lane->seats[seat]);
        kvg_replay_make_rows(&shared->maker, layer, plane, &span, target);
        target += (size_t)span.rows * shape.heads * shape.dim;
    }
    return kvg_replay_device_lend(shared->device, which, made, (size_t)(target - made) * sizeof *made, lent);
}

static KvgStatus write_kv(const ReplayShared *shared, const ReplayLane *lane, const ReplayLayer *layer)
{
    KvgRows rows = KVG_ROWS_INIT;
    KVG_TRY(make_plane(shared, lane, layer, KVG_PLANE_K, 0, &rows.k));
    KVG_TRY(make_plane(shared, lane, layer, KVG_PLANE_V, 1, &rows.v));
    return kvg_write_kv(lane->batch, layer->il, &rows, NULL);
}

static void pool_key(void *user, uint32_t il, uint64_t pool_index, const float *rows, float *key)
{
    const KvLatentView *view = user;
    (void)il;
    (void)pool_index;
    kvg_replay_pool_key(rows, view->pool, view->key_width, key);
}

static KvgStatus write_latent(const ReplayShared *shared, const ReplayLane *lane, const ReplayLayer *layer)
{
    KvgLatentRows rows = KVG_LATENT_ROWS_INIT;
    KVG_TRY(make_plane(shared, lane, layer, KVG_PLANE_LATENT, 0, &rows.latent));
    if (layer->latent->index_kind != KVG_INDEX_NONE) {
        KVG_TRY(make_plane(shared, lane, layer, kvg_replay_index_plane(layer->latent), 1, &rows.index));
        rows.key = pool_key;
        rows.user = (void *)(uintptr_t)layer->latent; /* read only */
    }
    return kvg_write_latent(lane->batch, layer->il, &rows, NULL);
}

typedef struct Update { /* what the library's callback asks for a row of */
    const ReplayMaker *maker;
    const ReplayLane  *lane;
    const ReplayLayer *layer;
} Update;

static void fill_update(void *user, uint32_t il, uint32_t seat, uint64_t row, float *x, float *u)
{
    const Update *update = user;
    ReplaySpan    span = span_of(&update->lane->seats[seat]);
    KVG_ASSERT(il == update->layer->il && row >= span.first && row - span.first < span.rows);
    kvg_replay_make_update(update->maker, update->layer, &span, (uint32_t)(row - span.first), x, u);
}

/* On the host the update is replay's own, which makes and applies rows in one go; a device gets the rows. */
static KvgStatus update_recurrent(const ReplayShared *shared, const ReplayLane *lane, const ReplayLayer *layer)
{
    if (shared->device->is_gpu) {
        Update           update = { &shared->maker, lane, layer };
        KvgRecurrentRows rows = KVG_RECURRENT_ROWS_INIT;
        rows.fill = fill_update;
        rows.user = &update;
        rows.decay = REPLAY_DECAY;
        return kvg_recurrent_update(lane->batch, layer->il, &rows, NULL);
    }
    const int32_t *slots = kvg_batch_slots(lane->batch);
    for (uint32_t seat = 0; seat < lane->count; seat++) {
        ReplaySpan span = span_of(&lane->seats[seat]);
        if (span.rows > 0) {
            kvg_replay_update_recurrent(&shared->maker, layer, (uint32_t)slots[seat], &span, &shared->recurrent);
        }
    }
    return KVG_OK;
}

KvgStatus kvg_replay_write_layers(ReplayShared *shared, ReplayLane *lane)
{
    for (uint32_t i = 0; i < shared->planes.count; i++) {
        const ReplayLayer *layer = &shared->planes.layers[i];
        if (layer->kv != NULL) {
            KVG_TRY(write_kv(shared, lane, layer));
        } else if (layer->latent != NULL) {
            KVG_TRY(write_latent(shared, lane, layer));
        } else {
            KVG_TRY(update_recurrent(shared, lane, layer));
        }
        look_at_votes(shared);
        give_sign(shared);
    }
    return KVG_OK;
}

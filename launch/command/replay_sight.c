/* Replay's sight. */
#include "launch/command/replay_sight.h"

#include <string.h>

#include "runtime/base/memory.h"

enum { TABLE, BASE, READ, WRITE, EACH };

ReplaySight kvg_replay_sight(KvgPlacement *placement, ReplayDevice *device)
{
    return (ReplaySight){ .placement = placement, .device = device };
}

void kvg_replay_sight_free(ReplaySight *sight)
{
    for (int i = 0; i < REPLAY_SIGHT_WORDS; i++) {
        kvg_free(sight->words[i]);
    }
    kvg_free(sight->bytes);
    *sight = (ReplaySight){ 0 };
}

KvgStatus kvg_replay_sight_refresh(ReplaySight *sight)
{
    return kvg_placement_flush(sight->placement, NULL);
}

static KvgStatus copy(const ReplaySight *sight, void *target, const void *source, size_t bytes)
{
    const KvDev *dev = &sight->device->dev;
    KVG_TRY(dev->ops->dtoh(dev->self, target, source, bytes, NULL));
    return dev->ops->synchronize(dev->self, NULL);
}

/* ---- words */

/* Words [first, first+count) of an array of the device, at the same place of one of the host's, whose other words mean nothing. */
static KvgStatus bring(ReplaySight *sight, int kind, const void *array, size_t first, size_t count, const int32_t **brought)
{
    *brought = NULL;
    if (array == NULL || count == 0) {
        return KVG_OK;
    }
    if (first + count > sight->words_room[kind]) {
        void *wider = NULL;
        KVG_TRY(kvg_calloc(first + count, sizeof(int32_t), "tables to look at", &wider));
        kvg_free(sight->words[kind]);
        sight->words[kind] = wider;
        sight->words_room[kind] = first + count;
    }
    KVG_TRY(copy(sight, sight->words[kind] + first, (const int32_t *)array + first, count * sizeof(int32_t)));
    *brought = sight->words[kind];
    return KVG_OK;
}

static KvgStatus see_kv(ReplaySight *sight, const KvPlaneView *view, uint32_t slot)
{
    const int32_t *table, *base;
    KVG_TRY(bring(sight, TABLE, view->table, (size_t)slot * view->table_stride, view->table_stride, &table));
    KVG_TRY(bring(sight, BASE, view->base_row, slot, 1, &base));
    sight->kv = *view;
    sight->kv.table = table;
    sight->kv.base_row = (const uint32_t *)base;
    sight->kv.len = sight->kv.len_staged = NULL;
    sight->layer.kv = &sight->kv;
    return KVG_OK;
}

static KvgStatus see_latent(ReplaySight *sight, const KvLatentView *view, uint32_t slot)
{
    const int32_t *table;
    KVG_TRY(bring(sight, TABLE, view->table, (size_t)slot * view->table_stride, view->table_stride, &table));
    sight->latent = *view;
    sight->latent.table = table;
    sight->latent.len = sight->latent.len_staged = sight->latent.pools_ready = NULL;
    sight->layer.latent = &sight->latent;
    return KVG_OK;
}

static KvgStatus see_recurrent(ReplaySight *sight, const KvRecurrentView *view, uint32_t slot)
{
    const int32_t *read, *write, *each;
    KVG_TRY(bring(sight, READ, view->read, slot, 1, &read));
    KVG_TRY(bring(sight, WRITE, view->write, slot, 1, &write));
    KVG_TRY(bring(sight, EACH, view->each, slot, 1, &each));
    sight->recurrent = *view;
    sight->recurrent.read = read;
    sight->recurrent.write = write;
    sight->recurrent.each = each;
    sight->layer.recurrent = &sight->recurrent;
    return KVG_OK;
}

KvgStatus kvg_replay_sight_layer(ReplaySight *sight, const ReplayLayer *layer, uint32_t slot, const ReplayLayer **seen)
{
    *seen = layer;
    if (!sight->device->is_gpu) {
        return KVG_OK;
    }
    sight->layer = (ReplayLayer){ .il = layer->il };
    if (layer->kv != NULL) {
        KVG_TRY(see_kv(sight, layer->kv, slot));
    } else if (layer->latent != NULL) {
        KVG_TRY(see_latent(sight, layer->latent, slot));
    } else {
        KVG_TRY(see_recurrent(sight, layer->recurrent, slot));
    }
    *seen = &sight->layer;
    return KVG_OK;
}

/* ---- stored bytes */

KvgStatus kvg_replay_sight_bytes(ReplaySight *sight, const void *stored, size_t bytes, const void **seen)
{
    *seen = stored;
    if (!sight->device->is_gpu) {
        return KVG_OK;
    }
    if (bytes > sight->bytes_room) {
        void *wider = NULL;
        KVG_TRY(kvg_calloc(1, bytes, "stored bytes to look at", &wider));
        kvg_free(sight->bytes);
        sight->bytes = wider;
        sight->bytes_room = bytes;
    }
    KVG_TRY(copy(sight, sight->bytes, stored, bytes));
    *seen = sight->bytes;
    return KVG_OK;
}

KvgStatus kvg_replay_sight_flip(ReplaySight *sight, void *stored, unsigned bit)
{
    const KvDev *dev = &sight->device->dev;
    const void  *seen = NULL;
    uint8_t      byte;
    KVG_TRY(kvg_replay_sight_bytes(sight, stored, 1, &seen));
    memcpy(&byte, seen, 1);
    byte ^= (uint8_t)(1u << bit);
    if (!sight->device->is_gpu) {
        memcpy(stored, &byte, 1);
        return KVG_OK;
    }
    return dev->ops->htod(dev->self, stored, &byte, 1, NULL);
}

/* Rebuild, shards: which heads of which layers a rank holds, by the same rule that placed them (S4). */
#include "pp/rebuild_impl.h"

#include <kvgrid/head_shard.h>

int kvg_shard_keeps(const KvgPlacement *placement, uint32_t il)
{
    KvStateKind kind = placement->config.plan.layers[il].kind;

    return kind != KVG_STATE_NONE && kind != KVG_STATE_SHARED; /* a sharing layer's source stands on the same stage */
}

static HeadShard shard_of(const KvgPlacement *placement, uint32_t heads, int rank)
{
    HeadShard shard = { 0 };
    KvgStatus status = kvg_head_shard(heads, placement->grid->tp, (uint32_t)rank % placement->grid->tp, &shard);

    KVG_ASSERT(status == KVG_OK); /* it was placed by it */
    return shard;
}

static int same_shard(const KvgPlacement *placement, uint32_t heads, int rank, int other)
{
    HeadShard a = shard_of(placement, heads, rank), b = shard_of(placement, heads, other);

    return a.first == b.first && a.count == b.count;
}

static int same_layer(const KvgPlacement *placement, uint32_t il, int rank, int other)
{
    const StatePlan *layer = &placement->config.plan.layers[il];
    int              same = 1;

    switch (layer->kind) {
    case KVG_STATE_KV:
    case KVG_STATE_SLIDING_KV: return same_shard(placement, layer->u.kv.kv_heads, rank, other);
    case KVG_STATE_RECURRENT:
        for (uint32_t p = 0; p < layer->u.recurrent.part_count; p++) {
            same &= same_shard(placement, layer->u.recurrent.parts[p].heads, rank, other);
        }
        return same;
    default: return 1; /* latents are whole on every rank of the stage */
    }
}

static int first_of_stage(const KvgPlacement *placement, int rank)
{
    return rank - rank % (int)placement->grid->tp;
}

int kvg_shard_donor(const KvgPlacement *placement, const uint8_t *holder, int rank, uint32_t il)
{
    int first = first_of_stage(placement, rank);

    for (int other = first; kvg_shard_keeps(placement, il) && other < first + (int)placement->grid->tp; other++) {
        if (holder[other] && same_layer(placement, il, rank, other)) {
            return other;
        }
    }
    return -1;
}

int kvg_shard_image_donor(const KvgPlacement *placement, const uint8_t *holder, int rank)
{
    const KvRankPlan *plan = &placement->plan.ranks[rank];
    int               first = first_of_stage(placement, rank);

    for (int other = first; other < first + (int)placement->grid->tp; other++) {
        int same = holder[other];
        for (uint32_t il = plan->lo; il < plan->hi; il++) {
            same &= placement->config.plan.layers[il].kind != KVG_STATE_RECURRENT || same_layer(placement, il, rank, other);
        }
        if (same) {
            return other;
        }
    }
    return -1;
}

/* The first of `heads` heads of this rank that no holder in its stage has; UINT32_MAX: all are held. */
static uint32_t missing_head(const KvgPlacement *placement, const uint8_t *holder, int rank, uint32_t heads)
{
    HeadShard mine = shard_of(placement, heads, rank);
    int       first = first_of_stage(placement, rank);

    for (uint32_t head = mine.first; head < mine.first + mine.count; head++) {
        int held = 0;
        for (int other = first; other < first + (int)placement->grid->tp; other++) {
            HeadShard its = shard_of(placement, heads, other);
            held |= holder[other] && its.first <= head && head < its.first + its.count;
        }
        if (!held) {
            return head;
        }
    }
    return UINT32_MAX;
}

static uint32_t missing_of_layer(const KvgPlacement *placement, const uint8_t *holder, int rank, uint32_t il)
{
    const StatePlan *layer = &placement->config.plan.layers[il];
    uint32_t         head = UINT32_MAX;

    switch (layer->kind) {
    case KVG_STATE_KV:
    case KVG_STATE_SLIDING_KV: return missing_head(placement, holder, rank, layer->u.kv.kv_heads);
    case KVG_STATE_LATENT: return kvg_shard_donor(placement, holder, rank, il) >= 0 ? UINT32_MAX : 0;
    case KVG_STATE_RECURRENT: /* from one survivor, all recurrent layers at once */
        for (uint32_t p = 0; p < layer->u.recurrent.part_count && head == UINT32_MAX; p++) {
            head = missing_head(placement, holder, rank, layer->u.recurrent.parts[p].heads);
        }
        return head;
    default: return UINT32_MAX;
    }
}

KvLostShard kvg_shard_lost(const KvgPlacement *placement, const uint8_t *holder)
{
    for (int rank = 0; rank < placement->grid->ranks; rank++) {
        const KvRankPlan *plan = &placement->plan.ranks[rank];
        for (uint32_t il = plan->lo; !holder[rank] && il < plan->hi; il++) {
            uint32_t head = missing_of_layer(placement, holder, rank, il);
            if (head != UINT32_MAX) {
                return (KvLostShard){ 1, il, head, rank };
            }
        }
    }
    return (KvLostShard){ .rank = -1 };
}

#include "pp/grid_plan_shard.h"

#include <stdio.h>
#include <string.h>

#include <kvgrid/head_shard.h>

#include "runtime/base/checked.h"

#define TP_SIZES_TEXT 192

/* One head count that must fall on the ranks; query_heads 0 where none is asked for. */
static int heads_fall(uint32_t query_heads, uint32_t heads, uint32_t tp)
{
    if (heads == 0) {
        return 0;
    }
    return query_heads % tp == 0 && (heads % tp == 0 || tp % heads == 0);
}

static int layer_falls(const StatePlan *layer, uint32_t tp)
{
    if (layer->kind == KVG_STATE_KV || layer->kind == KVG_STATE_SLIDING_KV) {
        return heads_fall(layer->u.kv.query_heads, layer->u.kv.kv_heads, tp);
    }
    if (layer->kind == KVG_STATE_RECURRENT) {
        for (uint32_t part = 0; part < layer->u.recurrent.part_count; part++) {
            if (!heads_fall(0, layer->u.recurrent.parts[part].heads, tp)) {
                return 0;
            }
        }
    }
    return 1; /* latents are whole on every rank, sharing layers own nothing */
}

static int model_falls(const ModelConfig *config, uint32_t layer_count, uint32_t tp)
{
    for (uint32_t il = 0; il < layer_count; il++) {
        if (!layer_falls(&config->plan.layers[il], tp)) {
            return 0;
        }
    }
    return 1;
}

static uint32_t layer_heads_most(const StatePlan *layer)
{
    uint32_t most = 0;

    if (layer->kind == KVG_STATE_KV || layer->kind == KVG_STATE_SLIDING_KV) {
        most = layer->u.kv.query_heads > layer->u.kv.kv_heads ? layer->u.kv.query_heads : layer->u.kv.kv_heads;
    } else if (layer->kind == KVG_STATE_RECURRENT) {
        for (uint32_t part = 0; part < layer->u.recurrent.part_count; part++) {
            most = layer->u.recurrent.parts[part].heads > most ? layer->u.recurrent.parts[part].heads : most;
        }
    }
    return most;
}

/* "1, 2, 4, 8": the sizes up to the largest head count over which the whole model falls. */
static void sizes_text(const ModelConfig *config, uint32_t layer_count, char *text, size_t text_bytes)
{
    uint32_t most = 1;
    size_t   used = 0;

    for (uint32_t il = 0; il < layer_count; il++) {
        uint32_t heads = layer_heads_most(&config->plan.layers[il]);
        most = heads > most ? heads : most;
    }
    most = most > 4096 ? 4096 : most; /* Mamba-1 counts channels as heads */
    text[0] = '\0';
    for (uint32_t tp = 1; tp <= most; tp++) {
        if (!model_falls(config, layer_count, tp)) {
            continue;
        }
        int wrote = snprintf(text + used, text_bytes - used, "%s%u", used == 0 ? "" : ", ", tp);
        if (wrote < 0 || (size_t)wrote >= text_bytes - used) {
            text[used] = '\0'; /* the list is for a reader: the small ones are what matters */
            return;
        }
        used += (size_t)wrote;
    }
}

/* What of the layer does not fall, in words. */
static void obstacle_text(const StatePlan *layer, uint32_t tp, char *text, size_t text_bytes)
{
    if (layer->kind != KVG_STATE_RECURRENT) {
        snprintf(text, text_bytes, "%u query heads and %u KV head%s", layer->u.kv.query_heads, layer->u.kv.kv_heads,
                 layer->u.kv.kv_heads == 1 ? "" : "s");
        return;
    }
    for (uint32_t part = 0; part < layer->u.recurrent.part_count; part++) {
        uint32_t heads = layer->u.recurrent.parts[part].heads;
        if (!heads_fall(0, heads, tp)) {
            snprintf(text, text_bytes, "%u heads of recurrent %s", heads,
                     layer->u.recurrent.parts[part].is_state ? "state" : "conv channels");
            return;
        }
    }
}

KvgStatus kvg_grid_check_heads(const ModelConfig *config, uint32_t layer_count, uint32_t tp)
{
    for (uint32_t il = 0; il < layer_count; il++) {
        char sizes[TP_SIZES_TEXT], obstacle[96];

        if (layer_falls(&config->plan.layers[il], tp)) {
            continue;
        }
        sizes_text(config, layer_count, sizes, sizeof sizes);
        obstacle_text(&config->plan.layers[il], tp, obstacle, sizeof obstacle);
        return kvg_fail(KVG_EGEOM,
                        "layer %u of %s has %s, which do not fall on tp %u: TP sizes that work for this model are %s; "
                        "more pipeline stages (pp) are the other way",
                        il, config->name, obstacle, tp, sizes);
    }
    return KVG_OK;
}

/* ---- shares */

static KvgStatus share_kv(const StatePlan *layer, const KvGridPlanOptions *options, StatePlan *local, GridShare *share)
{
    const KvCachePlan *kv = &layer->u.kv;
    HeadShard          shard;
    KvFormat           format_k, format_v;

    KVG_TRY(kvg_head_shard(kv->kv_heads, options->tp, 0, &shard));
    KVG_TRY(kvg_layer_formats(layer, &options->sizing.policy, options->sizing.format_k, options->sizing.format_v, &format_k,
                              &format_v));
    KVG_TRY(kvg_format_row_bytes(format_k, (uint64_t)shard.count * kv->head_dim_k * KVG_CHUNK_ROWS, &share->plane_unit_bytes[0]));
    KVG_TRY(kvg_format_row_bytes(format_v, (uint64_t)shard.count * kv->head_dim_v * KVG_CHUNK_ROWS, &share->plane_unit_bytes[1]));
    share->replicas = shard.replicas;
    local->u.kv.kv_heads = shard.count;
    local->u.kv.query_heads = kv->query_heads / options->tp;
    return KVG_OK;
}

static KvgStatus share_latent(uint32_t il, const StatePlan *layer, const KvGridPlanOptions *options, GridShare *share)
{
    const LatentKvPlan *latent = &layer->u.latent;
    uint64_t            element = options->sizing.format_latent == KVG_BF16 ? 2 : 4;

    share->plane_unit_bytes[0] = KVG_CHUNK_ROWS * element * latent->width;
    share->replicas = options->tp;
    if (latent->index_kind == KVG_INDEX_PER_TOKEN) {
        share->plane_unit_bytes[2] = KVG_CHUNK_ROWS * element * latent->index_width;
    } else if (latent->index_kind == KVG_INDEX_POOLED) {
        uint32_t pool = latent->index_pool == 0 ? 1 : latent->index_pool;

        if (KVG_CHUNK_ROWS % pool != 0) {
            return kvg_fail(KVG_EGEOM, "layer %u pools its index keys over %u tokens, which must divide the %u rows of a unit", il,
                            pool, KVG_CHUNK_ROWS);
        }
        if (options->sizing.policy.dsa_index_ring == 0) { /* flat: every index row is kept; else they are a slot's ring */
            share->plane_unit_bytes[1] = KVG_CHUNK_ROWS * element * latent->index_width;
        }
        share->plane_unit_bytes[2] = KVG_CHUNK_ROWS / pool * element * (latent->index_width / 2);
    }
    return KVG_OK;
}

static KvgStatus share_recurrent(const StatePlan *layer, const KvGridPlanOptions *options, StatePlan *local, GridShare *share)
{
    RecurrentPlan *parts = &local->u.recurrent;
    uint64_t       columns = options->spec_columns == 0 ? 2 : options->spec_columns;
    uint64_t       taps = layer->u.recurrent.conv_kernel == 0 ? 0 : layer->u.recurrent.conv_kernel - 1;

    parts->conv_width = 0;
    parts->state_width = 0;
    for (uint32_t i = 0; i < parts->part_count; i++) {
        RecurrentPart *part = &parts->parts[i];
        HeadShard      shard;
        uint64_t       elements;

        KVG_TRY(kvg_head_shard(part->heads, options->tp, 0, &shard));
        part->heads = shard.count;
        elements = (uint64_t)shard.count * part->width;
        if (part->is_state) {
            parts->state_width += elements;
        } else {
            parts->conv_width += (uint32_t)elements;
        }
        share->part_replicas[i] = shard.replicas;
        share->part_bytes[i] = elements * (part->is_state ? 1 : taps) * columns * 4;
    }
    return KVG_OK;
}

static KvgStatus share_bytes(const StatePlan *local, const KvGridPlanOptions *options, uint64_t ctx, uint64_t max_ctx,
                             GridShare *share)
{
    StatePlan       copy = *local;
    const ModelPlan one = { 1, 0, &copy };
    const KvSizing *sizing = &options->sizing;
    uint64_t        at_max_ctx;

    KVG_TRY(kvg_plan_bytes_per_token(sizing, &one, 0, 1, &share->bytes_per_token));
    KVG_TRY(kvg_plan_ring_bytes_per_token(sizing, &one, 0, 1, &share->ring_bytes_per_token));
    KVG_TRY(kvg_plan_fixed_bytes(sizing, &one, 0, 1, ctx, options->spec_columns, &share->fixed_bytes));
    KVG_TRY(kvg_plan_fixed_bytes(sizing, &one, 0, 1, max_ctx, options->spec_columns, &at_max_ctx));
    for (int plane = 0; plane < KVG_SHARE_PLANES_MAX; plane++) {
        if (!kvg_add_u64(share->unit_bytes, share->plane_unit_bytes[plane], &share->unit_bytes)) {
            return kvg_fail(KVG_EOVERFLOW, "a unit of one layer takes more than 64 bits of bytes");
        }
    }
    if (local->kind == KVG_STATE_RECURRENT) {
        share->slot_bytes = at_max_ctx;
    } else if (local->kind == KVG_STATE_LATENT) { /* the 12 bytes of pad and mirror are the flat planes' */
        const StatePlan bare = { .kind = KVG_STATE_LATENT, .u.latent = { local->u.latent.width, local->u.latent.kv_rank, 0, 0, 0 } };
        StatePlan       bare_copy = bare;
        const ModelPlan bare_plan = { 1, 0, &bare_copy };
        uint64_t        pads;

        KVG_TRY(kvg_plan_fixed_bytes(sizing, &bare_plan, 0, 1, max_ctx, options->spec_columns, &pads));
        share->slot_bytes = at_max_ctx - pads;
    }
    return KVG_OK;
}

static KvgStatus share_layer(uint32_t il, const StatePlan *layer, const KvGridPlanOptions *options, uint64_t ctx, uint64_t max_ctx,
                             GridShare *share)
{
    StatePlan local = *layer;

    memset(share, 0, sizeof *share);
    share->replicas = 1;
    switch (layer->kind) {
    case KVG_STATE_KV:
    case KVG_STATE_SLIDING_KV: KVG_TRY(share_kv(layer, options, &local, share)); break;
    case KVG_STATE_LATENT: KVG_TRY(share_latent(il, layer, options, share)); break;
    case KVG_STATE_RECURRENT: KVG_TRY(share_recurrent(layer, options, &local, share)); break;
    case KVG_STATE_NONE:
    case KVG_STATE_SHARED: return KVG_OK;
    default: return kvg_fail(KVG_EINVAL, "layer %u has state kind %d, which is none", il, (int)layer->kind);
    }
    return share_bytes(&local, options, ctx, max_ctx, share);
}

KvgStatus kvg_grid_shares(const ModelConfig *config, const KvGridPlanOptions *options, uint32_t layer_count, uint64_t ctx,
                          uint64_t max_ctx, GridShare *shares)
{
    for (uint32_t il = 0; il < layer_count; il++) {
        KVG_TRY(share_layer(il, &config->plan.layers[il], options, ctx, max_ctx, &shares[il]));
    }
    return KVG_OK;
}

uint64_t kvg_grid_share_duplicate_rows(const GridShare *share, uint32_t tp_rank)
{
    return tp_rank % share->replicas != 0 ? share->bytes_per_token : 0;
}

uint64_t kvg_grid_share_duplicate_fixed(const GridShare *share, uint32_t tp_rank)
{
    uint64_t bytes = 0;

    if (tp_rank % share->replicas != 0) {
        return share->fixed_bytes;
    }
    for (int part = 0; part < KVG_RECURRENT_PARTS_MAX; part++) {
        if (share->part_replicas[part] > 1 && tp_rank % share->part_replicas[part] != 0) {
            bytes += share->part_bytes[part];
        }
    }
    return bytes;
}

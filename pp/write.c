/* Writing the current pass of a step into this rank's layers: one walk over the places, one writer for each kind of layer. */
#include "pp/run_impl.h"

#include <string.h>

#include "runtime/base/traced.h"

/* ---- the walk */

typedef struct PassPlace {
    const KvgSequence *sequence;
    uint32_t           slot;  /* of the batch */
    uint32_t           rows;  /* of the pass */
    uint64_t           first; /* absolute row of the first */
    uint64_t           token; /* index of its first token in what the caller gives */
} PassPlace;

typedef KvgStatus (*PassWriter)(const KvgBatch *batch, uint32_t il, const PassPlace *place, const void *rows, KvgStream stream);

static KvgStatus walk_pass(const KvgBatch *batch, uint32_t il, const uint32_t *first_token, PassWriter write, const void *rows,
                           KvgStream stream)
{
    const KvgStep *step = batch->open_step;
    uint64_t       token = 0;

    if (step == NULL) {
        return kvg_fail(KVG_ESTALE, "no step of this batch is begun and unposted: rows are written between kvg_step_begin and kvg_step_post");
    }
    if (step->local != KVG_OK) {
        return KVG_OK; /* this rank could not stage every row and will vote no: there is nothing to keep */
    }
    for (uint32_t slot = 0; slot < batch->slots; slot++) {
        PassPlace place = { kvg_batch_at(batch, slot), slot, step->rows[batch->first + slot], step->first_row[batch->first + slot], token };
        if (place.rows == 0) {
            continue;
        }
        if (first_token != NULL) {
            place.token = first_token[slot];
        }
        token += place.rows;
        if (place.sequence != NULL) { /* else closed since the step began */
            KVG_TRY(write(batch, il, &place, rows, stream));
        }
    }
    return KVG_OK;
}

/* ---- the whole pass at once, where the device writes it so */

static void gather_places(const KvgBatch *batch, const uint32_t *first_token, uint32_t *gathered)
{
    const KvgStep *step = batch->open_step;
    uint32_t      *slot = gathered, *rows = slot + batch->slots, *first = rows + batch->slots, *tokens = first + batch->slots;
    uint32_t       token = 0;

    for (uint32_t i = 0; i < batch->slots; i++) {
        const KvgSequence *sequence = kvg_batch_at(batch, i);

        rows[i] = step->rows[batch->first + i];
        slot[i] = sequence != NULL && rows[i] > 0 ? sequence->cache.slot : UINT32_MAX; /* -1 */
        first[i] = (uint32_t)step->first_row[batch->first + i];
        tokens[i] = first_token != NULL ? first_token[i] : token;
        token += rows[i];
    }
}

/* The pass's places, sent to the device when they differ from those of the last write. Nothing to do: count is 0. */
static KvgStatus send_places(const KvgBatch *batch, const uint32_t *first_token, KvStorePlaces *places, KvgStream stream)
{
    const KvDev *device = &batch->placement->device;
    size_t       words = 4 * (size_t)batch->slots;
    uint32_t    *sent = batch->pass, *gathered = sent + words;

    *places = (KvStorePlaces){ 0 };
    if (batch->open_step == NULL) {
        return kvg_fail(KVG_ESTALE, "no step of this batch is begun and unposted: rows are written between kvg_step_begin and kvg_step_post");
    }
    if (batch->open_step->local != KVG_OK) {
        return KVG_OK;
    }
    gather_places(batch, first_token, gathered);
    if (memcmp(sent, gathered, words * sizeof *sent) != 0) {
        KVG_TRY(device->ops->htod(device->self, batch->pass_device, gathered, words * sizeof *sent, stream));
        memcpy(sent, gathered, words * sizeof *sent);
    }
    *places = (KvStorePlaces){ .count = batch->slots, .slots = (const int32_t *)sent, .rows = sent + batch->slots,
                               .first_row = sent + 2 * (size_t)batch->slots, .first_token = sent + 3 * (size_t)batch->slots,
                               .device = batch->pass_device };
    return KVG_OK;
}

/* ---- or into a graph */

static int is_captured(const KvgBatch *batch)
{
    return batch->run != NULL && batch->run->capturing != NULL;
}

/* The places of whatever pass the graph will be replayed in; tokens stand where the capture says. */
static KvgStatus captured_places(const KvgBatch *batch, const uint32_t *first_token, KvStorePlaces *places)
{
    const KvgGraph *graph = batch->run->capturing;

    if (first_token != NULL) {
        return kvg_fail(KVG_EINVAL, "first_token in a capture: tokens stand packed, as rows_per_slot of kvg_batch_capture_begin says");
    }
    *places = (KvStorePlaces){ .count = batch->slots, .device = batch->run->device.places, .device_tokens = graph->tokens,
                               .captured_rows = graph->rows_max };
    return KVG_OK;
}

/* The device writes a pass of this batch at once, now or in a graph. */
static int writes_at_once(const KvgBatch *batch)
{
    return is_captured(batch) || batch->pass_device != NULL;
}

static KvgStatus places_of(const KvgBatch *batch, const uint32_t *first_token, KvStorePlaces *places, KvgStream stream)
{
    return is_captured(batch) ? captured_places(batch, first_token, places) : send_places(batch, first_token, places, stream);
}

static int is_row_type(KvFormat type)
{
    return type == KVG_F32 || type == KVG_F16 || type == KVG_BF16;
}

/* `data` of one place: token `token` on. */
static KvRowsIn rows_from(const void *data, KvFormat type, int64_t token_stride, int64_t head_stride, uint64_t token)
{
    int64_t bytes = type == KVG_F32 ? 4 : 2;
    return (KvRowsIn){ .data = data == NULL ? NULL : (const uint8_t *)data + (int64_t)token * token_stride * bytes, .type = type,
                       .token_stride = token_stride, .head_stride = head_stride };
}

static int64_t stride_or(int64_t asked, uint64_t packed)
{
    return asked != 0 ? asked : (int64_t)packed;
}

/* ---- keys and values */

static void kv_rows_from(const KvPlaneView *view, const KvgRows *rows, uint64_t token, KvRowsIn *k, KvRowsIn *v)
{
    uint32_t dim_k = view->k.head_dim, dim_v = view->v.head_dim;

    *k = rows_from(rows->k, rows->dtype, stride_or(rows->token_stride_k, (uint64_t)view->heads * dim_k), stride_or(rows->head_stride_k, dim_k), token);
    *v = rows_from(rows->v, rows->dtype, stride_or(rows->token_stride_v, (uint64_t)view->heads * dim_v), stride_or(rows->head_stride_v, dim_v), token);
}

static KvgStatus write_kv(const KvgBatch *batch, uint32_t il, const PassPlace *place, const void *given, KvgStream stream)
{
    KvRowsIn k, v;

    kv_rows_from(kvg_store_view(batch->placement->store, il), given, place->token, &k, &v);
    return kvg_store_write(batch->placement->store, il, place->sequence->cache.slot, place->first, place->rows, &k, &v, stream);
}

/* The caller's rows as this library knows them. */
static KvgStatus take_kv(const KvgPlacement *placement, uint32_t il, const KvgRows *given, KvgRows *rows)
{
    static const KvgRows defaults = KVG_ROWS_INIT;
    const KvPlaneView *view = kvg_placement_view(placement, il);

    if (view == NULL) {
        return KVG_EINVAL; /* kvg_placement_view has said why */
    }
    if (!view->owns) {
        return kvg_fail(KVG_EINVAL, "layer %u shares the planes of layer %u and keeps none of its own: it reads and never writes", il, view->layer);
    }
    KVG_TRY(KVG_SIZED_IN(KvgRows, given, defaults, *rows));
    if (rows->k == NULL || rows->v == NULL || !is_row_type(rows->dtype)) {
        return kvg_fail(KVG_EINVAL, "rows of layer %u: start from KVG_ROWS_INIT, give k and v, and dtype KVG_F32, KVG_F16 or KVG_BF16", il);
    }
    return KVG_OK;
}

static KvgStatus write_kv_layer(KvgBatch *batch, uint32_t il, const KvgRows *given, KvgStream stream)
{
    KvgRows own, *rows = &own;

    KVG_TRY(take_kv(batch->placement, il, given, rows));
    if (writes_at_once(batch)) {
        KvStorePlaces places;
        KvRowsIn      k, v;

        KVG_TRY(places_of(batch, rows->first_token, &places, stream));
        kv_rows_from(kvg_store_view(batch->placement->store, il), rows, 0, &k, &v);
        return kvg_store_write_batch(batch->placement->store, il, &places, &k, &v, stream);
    }
    return walk_pass(batch, il, rows->first_token, write_kv, rows, stream);
}

KvgStatus kvg_write_kv(KvgBatch *batch, uint32_t il, const KvgRows *rows, KvgStream stream)
{
    KVG_RETURN_RANGED(KVG_RANGE_WRITE, il, write_kv_layer(batch, il, rows, stream));
}

KvgStatus kvg_sequence_fill_kv(KvgSequence *sequence, uint32_t il, uint64_t row, uint32_t rows, const KvgRows *rows_in, KvgStream stream)
{
    PassPlace       place = { sequence, 0, rows, row, 0 };
    KvgBatch        batch = { 0 };
    KvgSequenceInfo info = { .size = sizeof info };
    KvgRows         own;

    KVG_TRY(kvg_sequence_info(sequence, &info));
    if (info.rows_staged > 0 || info.in_step != 0) {
        return kvg_fail(KVG_EBUSY, "sequence %llu is not fresh: rows are filled in before anything is committed", (unsigned long long)info.id);
    }
    if (rows == 0 || row > info.rows_booked || rows > info.rows_booked - row) {
        return kvg_fail(KVG_ECAPACITY, "rows [%llu, %llu) of sequence %llu: %llu are booked; kvg_sequence_book more", (unsigned long long)row,
                        (unsigned long long)row + rows, (unsigned long long)info.id, (unsigned long long)info.rows_booked);
    }
    batch.placement = sequence->placement;
    KVG_TRY(take_kv(sequence->placement, il, rows_in, &own));
    return write_kv(&batch, il, &place, &own, stream);
}

/* ---- latents */

static void latent_rows_from(const KvLatentView *view, const KvgLatentRows *rows, uint64_t token, KvRowsIn *latent, KvRowsIn *index)
{
    *latent = rows_from(rows->latent, rows->dtype, stride_or(rows->token_stride_latent, view->width), view->width, token);
    *index = rows_from(rows->index, rows->dtype, stride_or(rows->token_stride_index, view->index_width), view->index_width, token);
}

static KvgStatus write_latent(const KvgBatch *batch, uint32_t il, const PassPlace *place, const void *given, KvgStream stream)
{
    const KvgLatentRows *rows = given;
    const KvLatentView  *view = kvg_store_latent_view(batch->placement->store, il);
    KvRowsIn             latent, index;
    int                  indexed = view->index_kind != KVG_INDEX_NONE;

    latent_rows_from(view, rows, place->token, &latent, &index);
    return kvg_store_write_latent(batch->placement->store, il, place->sequence->cache.slot, place->first, place->rows, &latent,
                                  indexed ? &index : NULL, view->index_kind == KVG_INDEX_POOLED ? rows->key : NULL, rows->user, stream);
}

static KvgStatus write_latent_layer(KvgBatch *batch, uint32_t il, const KvgLatentRows *given, KvgStream stream)
{
    static const KvgLatentRows defaults = KVG_LATENT_ROWS_INIT;
    const KvLatentView        *view = kvg_latent_view(batch, il);
    KvgLatentRows              own, *rows = &own;

    if (view == NULL) {
        return KVG_EINVAL;
    }
    KVG_TRY(KVG_SIZED_IN(KvgLatentRows, given, defaults, own));
    if (rows->latent == NULL || !is_row_type(rows->dtype)) {
        return kvg_fail(KVG_EINVAL, "rows of layer %u: start from KVG_LATENT_ROWS_INIT, give latent rows, and dtype KVG_F32, KVG_F16 or KVG_BF16", il);
    }
    if ((view->index_kind != KVG_INDEX_NONE && rows->index == NULL) || (view->index_kind == KVG_INDEX_POOLED && rows->key == NULL)) {
        return kvg_fail(KVG_EINVAL, "layer %u has an indexer: give its rows too, and for a pooled one the function that builds a pool's key", il);
    }
    if (writes_at_once(batch) && view->index_kind != KVG_INDEX_POOLED) { /* a pool's key is built by the caller's function, pool by pool */
        KvStorePlaces places;
        KvRowsIn      latent, keys;

        KVG_TRY(places_of(batch, rows->first_token, &places, stream));
        latent_rows_from(view, rows, 0, &latent, &keys);
        return kvg_store_write_latent_batch(batch->placement->store, il, &places, &latent, view->index_kind != KVG_INDEX_NONE ? &keys : NULL, stream);
    }
    return walk_pass(batch, il, rows->first_token, write_latent, rows, stream);
}

KvgStatus kvg_write_latent(KvgBatch *batch, uint32_t il, const KvgLatentRows *rows, KvgStream stream)
{
    KVG_RETURN_RANGED(KVG_RANGE_WRITE, il, write_latent_layer(batch, il, rows, stream));
}

/* ---- recurrent state */

typedef struct RecurrentPlace { /* lets the store's callback say which place and row it fills */
    const KvgRecurrentRows *rows;
    const PassPlace        *place;
} RecurrentPlace;

static void fill_row(void *user, uint32_t il, uint32_t i, float *x, float *u)
{
    const RecurrentPlace *at = user;
    at->rows->fill(at->rows->user, il, at->place->slot, at->place->first + i, x, u);
}

static KvgStatus update_recurrent(const KvgBatch *batch, uint32_t il, const PassPlace *place, const void *given, KvgStream stream)
{
    const KvgRecurrentRows *rows = given;
    RecurrentPlace          at = { rows, place };

    return kvg_store_recurrent_update(batch->placement->store, il, place->sequence->cache.slot, place->rows, fill_row, &at, rows->decay,
                                      rows->scratch, stream);
}

static KvgStatus update_recurrent_layer(KvgBatch *batch, uint32_t il, const KvgRecurrentRows *given, KvgStream stream)
{
    static const KvgRecurrentRows defaults = KVG_RECURRENT_ROWS_INIT;
    KvgRecurrentRows              own, *rows = &own;

    if (kvg_recurrent_view(batch, il) == NULL) {
        return KVG_EINVAL;
    }
    KVG_TRY(KVG_SIZED_IN(KvgRecurrentRows, given, defaults, own));
    if (rows->fill == NULL ||
        (rows->scratch == NULL && !kvg_store_mirrored(batch->placement->store))) {
        return kvg_fail(KVG_EINVAL, "update of layer %u: start from KVG_RECURRENT_ROWS_INIT, give fill and scratch", il);
    }
    if (is_captured(batch)) {
        return kvg_fail(KVG_ENOTSUP, "update of layer %u in a capture: its rows are made on the host; launch your own kernel over kvg_recurrent_view", il);
    }
    return walk_pass(batch, il, NULL, update_recurrent, rows, stream);
}

KvgStatus kvg_recurrent_update(KvgBatch *batch, uint32_t il, const KvgRecurrentRows *rows, KvgStream stream)
{
    KVG_RETURN_RANGED(KVG_RANGE_WRITE, il, update_recurrent_layer(batch, il, rows, stream));
}

/* ---- views */

const KvPlaneView *kvg_plane_view(const KvgBatch *batch, uint32_t il)
{
    return kvg_placement_view(batch->placement, il);
}

static void say_absent(const KvgPlacement *placement, uint32_t il, const char *kind)
{
    kvg_fail(KVG_EINVAL, "layer %u is no %s layer of rank %d, whose layers are [%u, %u)", il, kind, placement->grid->rank, placement->lo,
             placement->hi);
}

const KvLatentView *kvg_latent_view(const KvgBatch *batch, uint32_t il)
{
    const KvLatentView *view = kvg_store_shown_latent_view(batch->placement->store, il);
    if (view == NULL) {
        say_absent(batch->placement, il, "latent");
    }
    return view;
}

const KvRecurrentView *kvg_recurrent_view(const KvgBatch *batch, uint32_t il)
{
    const KvRecurrentView *view = kvg_store_shown_recurrent_view(batch->placement->store, il);
    if (view == NULL) {
        say_absent(batch->placement, il, "recurrent");
    }
    return view;
}

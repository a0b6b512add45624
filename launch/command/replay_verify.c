/* Replay's check of stored bytes. */
#include "launch/command/replay_verify.h"

#include <stdio.h>
#include <string.h>

#include "launch/command/replay_generator.h"
#include "launch/command/replay_schedule.h"
#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

KvgStatus kvg_replay_check_create(const ReplayPlanes *planes, ReplayCheck *check)
{
    const size_t elements = planes->row_elements_max > REPLAY_STATE_SAMPLE ? planes->row_elements_max : REPLAY_STATE_SAMPLE;
    ReplayCheck  made = { 0 };
    KvgStatus    status = KVG_OK;
    KVG_TRY_GOTO(KVG_NEW(elements, "values to check", &made.values), err_free);
    KVG_TRY_GOTO(KVG_NEW(elements, "an update to check", &made.inputs), err_free);
    KVG_TRY_GOTO(KVG_NEW(elements * sizeof(float), "a row to check, encoded", &made.bytes), err_free);
    if (planes->pool_elements_max > 0) {
        KVG_TRY_GOTO(KVG_NEW(planes->pool_elements_max, "a pool to check", &made.pool), err_free);
    }
    *check = made;
    return KVG_OK;
err_free:
    kvg_replay_check_free(&made);
    return status;
}

void kvg_replay_check_free(ReplayCheck *check)
{
    kvg_free(check->values);
    kvg_free(check->inputs);
    kvg_free(check->pool);
    kvg_free(check->bytes);
    *check = (ReplayCheck){ 0 };
}

/* What is looked at: a sequence on this rank, and the layer. */
typedef struct Look {
    const ReplayMaker *maker;
    ReplaySight       *sight;
    const ReplayLayer *layer; /* as seen */
    uint64_t           request, len;
    uint32_t           slot;
} Look;

static void note(ReplayCheck *check, const Look *look, uint32_t plane, const char *what, uint64_t row, uint32_t head, int equal)
{
    check->rows++;
    if (equal || check->mismatches++ != 0) {
        return;
    }
    snprintf(check->first, sizeof check->first, "request %llu, layer %u, %s %s %llu, head %u: the stored bytes are not those of %s",
             (unsigned long long)look->request, look->layer->il, kvg_replay_plane_name(plane), what, (unsigned long long)row, head,
             plane >= KVG_PLANE_CONV ? "the tokens so far" : "a fresh encode");
}

/* What cannot be read is no match. */
static void note_unread(ReplayCheck *check, uint64_t request, uint32_t il)
{
    if (check->mismatches++ == 0) {
        snprintf(check->first, sizeof check->first, "request %llu, layer %u cannot be read: %s", (unsigned long long)request, il, kvg_last_error());
    }
}

/* `bytes` bytes at `stored` against those that must stand there. */
static void compare(ReplayCheck *check, const Look *look, uint32_t plane, const char *what, uint64_t row, uint32_t head, const void *want,
                    const void *stored, size_t bytes)
{
    const void *seen = NULL;
    if (kvg_replay_sight_bytes(look->sight, stored, bytes, &seen) != KVG_OK) {
        note_unread(check, look->request, look->layer->il);
    } else {
        note(check, look, plane, what, row, head, memcmp(want, seen, bytes) == 0);
    }
}

/* ---- rows */

static void make_row(const Look *look, uint32_t plane, uint32_t head, uint64_t row, uint32_t dim, float *values)
{
    uint64_t stream = kvg_replay_stream_key(look->maker->seed, look->request, look->layer->il, plane);
    kvg_replay_fill(kvg_replay_row_key(stream, head, row), values, dim);
}

/* A pool's key is built of its rows as they were stored. */
static void make_pool_key(ReplayCheck *check, const Look *look, uint64_t pool)
{
    const KvLatentView *view = look->layer->latent;
    for (uint32_t i = 0; i < view->pool; i++) {
        float *row = check->pool + (size_t)i * view->index_width;
        make_row(look, KVG_PLANE_INDEX_ROWS, 0, pool * view->pool + i, view->index_width, row);
        kvg_encode_f32(view->index.format, row, view->index_width, check->bytes, NULL);
        kvg_decode_f32(view->index.format, check->bytes, view->index_width, row);
    }
    kvg_replay_pool_key(check->pool, view->pool, view->key_width, check->values);
}

static int is_pooled_key(const ReplayLayer *layer, uint32_t plane)
{
    return plane == KVG_PLANE_KEYS && layer->latent->index_kind == KVG_INDEX_POOLED;
}

static void check_row(ReplayCheck *check, const Look *look, uint32_t plane, uint64_t row)
{
    const ReplayShape shape = kvg_replay_shape(look->layer, plane);
    for (uint32_t head = 0; head < shape.heads; head++) {
        if (is_pooled_key(look->layer, plane)) {
            make_pool_key(check, look, row);
        } else {
            make_row(look, plane, shape.head_first + head, row, shape.dim, check->values);
        }
        kvg_encode_f32(shape.format, check->values, shape.dim, check->bytes, NULL);
        compare(check, look, plane, "row", row, shape.head_first + head, check->bytes,
                kvg_replay_stored(look->layer, plane, look->slot, head, row), shape.bytes);
    }
}

static void check_plane(ReplayCheck *check, const Look *look, uint32_t plane, const uint64_t *rows, size_t count)
{
    const uint64_t pool = look->layer->latent != NULL ? look->layer->latent->pool : 0;
    if (plane == KVG_PLANE_INDEX_ROWS) { /* those whose pool has no key yet */
        for (uint64_t row = look->len - look->len % pool; row < look->len; row++) {
            check_row(check, look, plane, row);
        }
        return;
    }
    for (size_t at = 0; at < count; at++) {
        if (!is_pooled_key(look->layer, plane)) {
            check_row(check, look, plane, rows[at]);
        } else if (rows[at] / pool < look->len / pool && (at == 0 || rows[at] / pool != rows[at - 1] / pool)) {
            check_row(check, look, plane, rows[at] / pool);
        }
    }
}

static void check_rows(ReplayCheck *check, const Look *look)
{
    uint64_t rows[REPLAY_SAMPLES_MAX];
    uint32_t planes[REPLAY_ROW_PLANES_MAX];
    uint64_t first = kvg_replay_first_row(look->layer, look->len);
    size_t   count = kvg_replay_sample_rows(look->maker->seed, look->request, first, look->len, rows);
    uint32_t plane_count = kvg_replay_row_planes(look->layer, planes);
    for (uint32_t i = 0; i < plane_count; i++) {
        check_plane(check, look, planes[i], rows, count);
    }
}

/* ---- recurrent state: by the library's own rule, token by token, which the fused update has to equal */

static void recompute_state(ReplayCheck *check, const Look *look, uint32_t head, const ReplayStateSample *sample)
{
    uint64_t stream = kvg_replay_stream_key(look->maker->seed, look->request, look->layer->il, KVG_PLANE_STATE);
    memset(check->values, 0, sample->count * sizeof(float));
    for (uint64_t row = 0; row < look->len; row++) {
        kvg_replay_fill_from(kvg_replay_row_key(stream, head, row), sample->first, check->inputs, sample->count);
        kvg_recurrent_token(NULL, check->values, NULL, check->inputs, REPLAY_DECAY, 0, 0, sample->count, NULL, check->values);
    }
}

static void recompute_conv(ReplayCheck *check, const Look *look, uint32_t head, const ReplayStateSample *sample, uint32_t taps)
{
    uint64_t stream = kvg_replay_stream_key(look->maker->seed, look->request, look->layer->il, KVG_PLANE_CONV);
    memset(check->values, 0, (size_t)sample->count * taps * sizeof(float));
    for (uint64_t row = kvg_monus_u64(look->len, taps); row < look->len; row++) {
        kvg_replay_fill_from(kvg_replay_row_key(stream, head, row), sample->first, check->inputs, sample->count);
        kvg_recurrent_token(check->values, NULL, check->inputs, NULL, REPLAY_DECAY, sample->count, taps, 0, check->values, NULL);
    }
}

static void check_recurrent(ReplayCheck *check, const Look *look)
{
    const KvRecurrentView *view = look->layer->recurrent;
    for (uint32_t p = 0; p < view->part_count; p++) {
        const KvRecurrentPartView *part = &view->parts[p];
        ReplayStateSample          sample = kvg_replay_sample_state(look->maker, look->layer, p, look->request);
        uint32_t                   head = part->head_index + sample.head;
        size_t                     elements = 0;
        const float               *stored = kvg_replay_stored_state(view, p, &sample, look->slot, &elements);
        if (elements == 0) {
            continue;
        }
        if (part->is_state) {
            recompute_state(check, look, head, &sample);
        } else {
            recompute_conv(check, look, head, &sample, view->taps);
        }
        compare(check, look, part->is_state ? KVG_PLANE_STATE : KVG_PLANE_CONV, "element", sample.first, head, check->values, stored,
                elements * sizeof(float));
    }
}

void kvg_replay_check_sequence(ReplayCheck *check, const ReplayPlanes *planes, ReplaySight *sight, const ReplayMaker *maker,
                               uint64_t request, uint32_t slot, uint64_t len)
{
    KvgStatus status = kvg_replay_sight_refresh(sight);
    for (uint32_t i = 0; i < planes->count; i++) {
        Look look = { maker, sight, NULL, request, len, slot };
        if (status != KVG_OK || kvg_replay_sight_layer(sight, &planes->layers[i], slot, &look.layer) != KVG_OK) {
            note_unread(check, request, planes->layers[i].il);
        } else if (look.layer->recurrent != NULL) {
            check_recurrent(check, &look);
        } else {
            check_rows(check, &look);
        }
    }
}

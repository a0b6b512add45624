/* Replay's check of stored bytes. */
#include "launch/command/replay_verify.h"

#include <stdio.h>
#include <string.h>

#include "launch/command/replay_generator.h"
#include "launch/command/replay_schedule.h"
#include "runtime/base/memory.h"

KvgStatus kvg_replay_check_create(const ReplayPlanes *planes, ReplayCheck *check)
{
    void     *values = NULL, *bytes = NULL;
    KvgStatus status = KVG_OK;
    KVG_TRY(kvg_calloc(planes->head_dim_max, sizeof(float), "a row to check", &values));
    KVG_TRY_GOTO(kvg_calloc(planes->head_dim_max, sizeof(float), "a row to check, encoded", &bytes), err_free_values);
    *check = (ReplayCheck){ .values = values, .bytes = bytes };
    return KVG_OK;
err_free_values:
    kvg_free(values);
    return status;
}

void kvg_replay_check_free(ReplayCheck *check)
{
    kvg_free(check->values);
    kvg_free(check->bytes);
    *check = (ReplayCheck){ 0 };
}

static void check_head_row(ReplayCheck *check, const ReplayLayer *layer, uint32_t plane, uint64_t key, uint32_t slot, uint32_t head,
                           uint64_t row, uint64_t request)
{
    const KvPlane *where = kvg_replay_plane(layer, plane);
    kvg_replay_fill(key, check->values, where->head_dim);
    kvg_encode_f32(where->format, check->values, where->head_dim, check->bytes, NULL);
    check->rows++;
    if (memcmp(check->bytes, kvg_plane_row(layer->view, where, slot, head, row), where->head_bytes) == 0) {
        return;
    }
    if (check->mismatches++ == 0) {
        snprintf(check->first, sizeof check->first,
                 "request %llu, layer %u, %s row %llu, head %u: the stored bytes are not those of a fresh encode",
                 (unsigned long long)request, layer->il, plane == KVG_PLANE_K ? "K" : "V", (unsigned long long)row,
                 layer->view->head_first + head);
    }
}

void kvg_replay_check_sequence(ReplayCheck *check, const ReplayPlanes *planes, const ReplayMaker *maker, uint64_t request,
                               uint32_t slot, uint64_t len)
{
    for (uint32_t i = 0; i < planes->count; i++) {
        const ReplayLayer *layer = &planes->layers[i];
        uint64_t           rows[REPLAY_SAMPLES_MAX];
        size_t count = kvg_replay_sample_rows(maker->seed, request, kvg_replay_first_row(layer, len), len, rows);
        for (uint32_t plane = KVG_PLANE_K; plane <= KVG_PLANE_V; plane++) {
            uint64_t stream = kvg_replay_stream_key(maker->seed, request, layer->il, plane);
            for (size_t at = 0; at < count * layer->view->heads; at++) {
                uint32_t head = (uint32_t)(at % layer->view->heads);
                uint64_t row = rows[at / layer->view->heads];
                uint64_t key = kvg_replay_row_key(stream, layer->view->head_first + head, row);
                check_head_row(check, layer, plane, key, slot, head, row, request);
            }
        }
    }
}

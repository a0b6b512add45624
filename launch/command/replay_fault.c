/* Replay's scripted faults. */
#include "launch/command/replay_fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/command/replay_schedule.h"
#include "runtime/base/error.h"
#include "runtime/base/mix.h"

KvgStatus kvg_replay_fault_parse(const char *text, ReplayFault *fault)
{
    char     word[8], rank_digits[10], step_digits[19]; /* sets of digits, since %u would take a sign */
    int      end = 0;
    if (sscanf(text, "%7[a-z]:%9[0-9]@step%18[0-9]%n", word, rank_digits, step_digits, &end) == 3 && text[end] == '\0') {
        uint32_t rank = (uint32_t)strtoul(rank_digits, NULL, 10);
        uint64_t step = strtoull(step_digits, NULL, 10);
        ReplayFaultKind kind = strcmp(word, "flip") == 0 ? REPLAY_FAULT_FLIP
                             : strcmp(word, "refuse") == 0 ? REPLAY_FAULT_REFUSE : REPLAY_FAULT_NONE;
        if (kind != REPLAY_FAULT_NONE && step >= 1) {
            *fault = (ReplayFault){ kind, rank, step };
            return KVG_OK;
        }
    }
    return kvg_fail(KVG_EINVAL, "--fault \"%s\" is not understood: give flip:RANK@stepN or refuse:RANK@stepN, steps count from 1", text);
}

/* The last sampled row of the layer that is committed by now; UINT64_MAX if there is none. */
static uint64_t sampled_row(const ReplayLayer *layer, const ReplayMaker *maker, uint64_t request, uint64_t committed, uint64_t total)
{
    uint64_t rows[REPLAY_SAMPLES_MAX];
    size_t   count = kvg_replay_sample_rows(maker->seed, request, kvg_replay_first_row(layer, total), total, rows);
    while (count > 0 && rows[count - 1] >= committed) {
        count--;
    }
    return count > 0 ? rows[count - 1] : UINT64_MAX;
}

static void flip_bit(const ReplayLayer *layer, uint32_t slot, uint64_t row, uint64_t draw)
{
    uint32_t       plane = draw & 1;
    uint32_t       head = (uint32_t)((draw >> 8) % layer->view->heads);
    const KvPlane *bytes = kvg_replay_plane(layer, plane);
    uint64_t       bit = (draw >> 32) % (bytes->head_bytes * 8);
    kvg_plane_row(layer->view, bytes, slot, head, row)[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

int kvg_replay_flip(const ReplayPlanes *planes, const ReplayMaker *maker, uint64_t request, uint32_t slot, uint64_t committed,
                    uint64_t total)
{
    uint64_t draw = kvg_mix_term(request, committed, total, maker->seed);
    for (uint32_t i = 0; i < planes->count; i++) {
        const ReplayLayer *layer = &planes->layers[(draw + i) % planes->count];
        uint64_t           row = sampled_row(layer, maker, request, committed, total);
        if (row != UINT64_MAX) {
            flip_bit(layer, slot, row, draw);
            return 1;
        }
    }
    return 0;
}

/* Send, the host twin. */
#include <string.h>

#include <kvgrid/kvgrid_vote.h>

#include "runtime/base/checked.h"
#include "runtime/dev/device_vote_entry.h"

#define UNIT_DATA (KVG_VOTE_UNIT_WORDS * sizeof(uint32_t))

void kvg_vote_send_ref(const KvVoteBoard *board, const KvVoteRecord *record)
{
    const size_t   bytes = kvg_vote_record_bytes(board->sequences_max);
    const uint32_t units = kvg_vote_units(board->sequences_max), tag = kvg_vote_tag(record->step, record->epoch);
    const uint64_t own = kvg_vote_slot_offset(board, record->step) + (uint64_t)board->rank * units * 16u;

    for (uint32_t u = 0; u < units; u++) {
        uint8_t      unit[16] = { 0 };
        const size_t at = u * UNIT_DATA;
        memcpy(unit, (const uint8_t *)record + at, kvg_min_u64(UNIT_DATA, kvg_monus_u64(bytes, at)));
        memcpy(unit + UNIT_DATA, &tag, sizeof tag);
        for (uint32_t to = 0; to < board->ranks; to++) {
            memcpy(board->base + to * board->stride + own + u * sizeof unit, unit, sizeof unit);
        }
    }
}

/* Records: where each rank's record waits until its step is decided.
 *
 *   ring of 2W places, step s at s % 2W; in each one record buffer a rank
 * A rank may be at most W steps ahead of another in deciding and W more in beginning, so 2W places suffice; a record that
 * would need another is no record of this protocol and is dropped. */
#include "pp/internal.h"

#include <string.h>

static KvgStatus create_slot(KvgPlacement *placement, KvRecordSlot *slot)
{
    size_t   ranks = (size_t)placement->grid->ranks;
    /* records are read as words: each buffer starts on one */
    size_t   stride = (placement->record_bytes + 7) / 8 * 8;
    void    *records = NULL, *present = NULL, *bytes = NULL;

    KVG_TRY(kvg_calloc(ranks, sizeof(KvVoteRecord *), "vote records", &records));
    slot->record = records;
    KVG_TRY(kvg_calloc(ranks, 1, "vote records", &present));
    slot->present = present;
    KVG_TRY(kvg_calloc(ranks, stride, "vote records", &bytes));
    for (size_t rank = 0; rank < ranks; rank++) {
        slot->record[rank] = (KvVoteRecord *)((uint8_t *)bytes + rank * stride);
    }
    return KVG_OK;
}

KvgStatus kvg_records_create(KvgPlacement *placement)
{
    void *memory = NULL;

    KVG_TRY(kvg_calloc(placement->ring, sizeof(KvRecordSlot), "vote records", &memory));
    placement->records = memory;
    for (uint32_t i = 0; i < placement->ring; i++) {
        KVG_TRY(create_slot(placement, &placement->records[i])); /* kvg_records_destroy frees what was made */
    }
    KVG_TRY(kvg_calloc((size_t)placement->grid->ranks, sizeof(KvVoteRecord *), "the vote", &memory));
    placement->votes = memory;
    return KVG_OK;
}

void kvg_records_destroy(KvgPlacement *placement)
{
    for (uint32_t i = 0; placement->records != NULL && i < placement->ring; i++) {
        KvRecordSlot *slot = &placement->records[i];
        kvg_free(slot->record != NULL ? slot->record[0] : NULL);
        kvg_free(slot->record);
        kvg_free(slot->present);
    }
    kvg_free(placement->records);
    kvg_free(placement->votes);
}

static void reset(const KvgPlacement *placement, KvRecordSlot *slot, uint64_t step)
{
    slot->step = step;
    slot->arrived = 0;
    memset(slot->present, 0, (size_t)placement->grid->ranks);
}

KvRecordSlot *kvg_records_slot(KvgPlacement *placement, uint64_t step)
{
    KvRecordSlot *slot = &placement->records[step % placement->ring];

    if (slot->step < step) {
        reset(placement, slot, step);
    }
    KVG_ASSERT(slot->step == step);
    return slot;
}

/* The step this record speaks of is over here: decided, or so old that its place serves another. */
static int is_over(KvgPlacement *placement, uint64_t number)
{
    const KvgStep *step = kvg_step_at(placement, number);

    return number <= placement->decided || (step->number == number && step->state >= KVG_STEP_COMPARING) ||
           number < placement->records[number % placement->ring].step;
}

void kvg_records_put(KvgPlacement *placement, int from, const KvVoteRecord *record)
{
    KvRecordSlot *slot;

    if (record->epoch < placement->grid->epoch || record->rank != from || is_over(placement, record->step) ||
        record->step > placement->decided + placement->ring) {
        return;
    }
    slot = kvg_records_slot(placement, record->step);
    if (slot->present[from] && slot->record[from]->epoch >= record->epoch) {
        return; /* a duplicate: the first one counts */
    }
    memcpy(slot->record[from], record, placement->record_bytes);
    slot->arrived += !slot->present[from];
    slot->present[from] = 1;
}

void kvg_records_take(KvgPlacement *placement)
{
    KvComm     *comm = &placement->grid->comm;
    const void *record;
    int         from;

    while ((record = comm->ops->take(comm->self, &from)) != NULL) {
        kvg_records_put(placement, from, record);
    }
}

KvVoteRecord *kvg_records_own(KvgPlacement *placement, uint64_t step)
{
    KvRecordSlot *slot = kvg_records_slot(placement, step);
    int           rank = placement->grid->rank;

    slot->arrived += !slot->present[rank];
    slot->present[rank] = 1;
    return slot->record[rank];
}

void kvg_records_forget(KvgPlacement *placement)
{
    for (uint32_t i = 0; i < placement->ring; i++) {
        KvRecordSlot *slot = &placement->records[i];
        for (int rank = 0; rank < placement->grid->ranks; rank++) {
            if (slot->present[rank] && slot->record[rank]->epoch < placement->grid->epoch) {
                slot->present[rank] = 0;
                slot->arrived--;
            }
        }
    }
}

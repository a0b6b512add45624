/* Records: where each rank's record waits until its step is decided.
 *
 *   ring of 2W places, step s at s % 2W; in each one record buffer a rank
 * A rank may be at most W steps ahead of another in deciding and W more in beginning, so 2W places suffice; a record that
 * would need another is no record of this protocol and is dropped. */
#include "pp/internal.h"

#include <string.h>

static KvgStatus create_slot(KvgVotes *votes, KvRecordSlot *slot)
{
    size_t   ranks = (size_t)votes->grid->ranks;
    /* records are read as words: each buffer starts on one */
    size_t   stride = (votes->record_bytes + 7) / 8 * 8;
    void    *bytes = NULL;

    KVG_TRY(KVG_NEW(ranks, "vote records", &slot->record));
    KVG_TRY(KVG_NEW(ranks, "vote records", &slot->present));
    KVG_TRY(kvg_calloc(ranks, stride, "vote records", &bytes));
    for (size_t rank = 0; rank < ranks; rank++) {
        slot->record[rank] = (KvVoteRecord *)((uint8_t *)bytes + rank * stride);
    }
    return KVG_OK;
}

KvgStatus kvg_records_create(KvgVotes *votes)
{
    KVG_TRY(KVG_NEW(votes->ring, "vote records", &votes->records));
    for (uint32_t i = 0; i < votes->ring; i++) {
        KVG_TRY(create_slot(votes, &votes->records[i])); /* kvg_records_destroy frees what was made */
    }
    KVG_TRY(KVG_NEW((size_t)votes->grid->ranks, "the vote", &votes->votes));
    return KVG_OK;
}

void kvg_records_destroy(KvgVotes *votes)
{
    for (uint32_t i = 0; votes->records != NULL && i < votes->ring; i++) {
        KvRecordSlot *slot = &votes->records[i];
        kvg_free(slot->record != NULL ? slot->record[0] : NULL);
        kvg_free(slot->record);
        kvg_free(slot->present);
    }
    kvg_free(votes->records);
    kvg_free(votes->votes);
}

static void reset(const KvgVotes *votes, KvRecordSlot *slot, uint64_t step)
{
    slot->step = step;
    slot->arrived = 0;
    memset(slot->present, 0, (size_t)votes->grid->ranks);
}

KvRecordSlot *kvg_records_slot(KvgVotes *votes, uint64_t step)
{
    KvRecordSlot *slot = &votes->records[step % votes->ring];

    if (slot->step < step) {
        reset(votes, slot, step);
    }
    KVG_ASSERT(slot->step == step);
    return slot;
}

/* The step this record speaks of is over here: decided, or so old that its place serves another. */
static int is_over(KvgVotes *votes, uint64_t number)
{
    const KvgStep *step = kvg_step_at(votes, number);

    return number <= votes->decided || (step->number == number && step->state >= KVG_STEP_COMPARING) ||
           number < votes->records[number % votes->ring].step;
}

void kvg_records_put(KvgVotes *votes, int from, const KvVoteRecord *record)
{
    KvRecordSlot *slot;

    if (record->epoch < votes->grid->epoch || record->rank != from || is_over(votes, record->step) ||
        record->step > votes->decided + votes->ring) {
        return;
    }
    slot = kvg_records_slot(votes, record->step);
    if (slot->present[from] && slot->record[from]->epoch >= record->epoch) {
        return; /* a duplicate: the first one counts */
    }
    memcpy(slot->record[from], record, votes->record_bytes);
    slot->arrived += !slot->present[from];
    slot->present[from] = 1;
}

void kvg_records_take(KvgVotes *votes)
{
    KvComm     *comm = &votes->grid->comm;
    const void *record;
    int         from;

    while ((record = comm->ops->take(comm->self, &from)) != NULL) {
        kvg_records_put(votes, from, record);
    }
}

KvVoteRecord *kvg_records_own(KvgVotes *votes, uint64_t step)
{
    KvRecordSlot *slot = kvg_records_slot(votes, step);
    int           rank = votes->grid->rank;

    slot->arrived += !slot->present[rank];
    slot->present[rank] = 1;
    return slot->record[rank];
}

void kvg_records_forget(KvgVotes *votes)
{
    for (uint32_t i = 0; i < votes->ring; i++) {
        KvRecordSlot *slot = &votes->records[i];
        for (int rank = 0; rank < votes->grid->ranks; rank++) {
            if (slot->present[rank] && slot->record[rank]->epoch < votes->grid->epoch) {
                slot->present[rank] = 0;
                slot->arrived--;
            }
        }
    }
}

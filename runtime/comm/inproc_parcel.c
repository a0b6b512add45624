#include "runtime/comm/inproc_parcel.h"

#include "runtime/base/memory.h"

/* ---- parcels */

KvgStatus kvg_parcel_new(size_t capacity, Parcel **parcel)
{
    void *fresh = NULL;

    KVG_TRY(kvg_calloc(1, sizeof(Parcel) + capacity, "an in-process parcel", &fresh));
    *parcel = fresh;
    (*parcel)->capacity = capacity;
    return KVG_OK;
}

void kvg_parcels_free(Parcel *first)
{
    while (first != NULL) {
        Parcel *next = first->next;

        kvg_free(first);
        first = next;
    }
}

void kvg_spares_put(Spares *spares, Parcel *parcel)
{
    if (parcel->capacity != spares->capacity) { /* of an earlier record size */
        kvg_free(parcel);
        return;
    }
    parcel->next = spares->first;
    spares->first = parcel;
    spares->count++;
}

Parcel *kvg_spares_take(Spares *spares)
{
    Parcel *parcel = spares->first;

    KVG_ASSERT(parcel != NULL); /* kvg_spares_ensure paid for it */
    spares->first = parcel->next;
    spares->count--;
    parcel->held = 0;
    return parcel;
}

KvgStatus kvg_spares_ensure(Spares *spares, size_t count, size_t capacity)
{
    if (spares->capacity != capacity) {
        kvg_parcels_free(spares->first);
        spares->first = NULL;
        spares->count = 0;
        spares->capacity = capacity;
    }
    while (spares->count < count) {
        Parcel *parcel = NULL;

        KVG_TRY(kvg_parcel_new(capacity, &parcel));
        kvg_spares_put(spares, parcel);
    }
    return KVG_OK;
}

/* ---- inboxes */

void kvg_inbox_put(Inbox *inbox, Parcel *parcel)
{
    Parcel **link = &inbox->first;

    if (inbox->last != NULL && inbox->last->due_ns <= parcel->due_ns) { /* by far the most: nothing that waits is due later */
        link = &inbox->last->next;
    }
    while (*link != NULL && (*link)->due_ns <= parcel->due_ns) {
        link = &(*link)->next;
    }
    parcel->next = *link;
    *link = parcel;
    if (parcel->next == NULL) {
        inbox->last = parcel;
    }
}

Parcel *kvg_inbox_take(Inbox *inbox, uint64_t now_ns)
{
    Parcel **link = &inbox->first, *before = NULL;

    while (*link != NULL && (*link)->due_ns <= now_ns && (*link)->held) {
        before = *link;
        link = &(*link)->next;
    }
    if (*link == NULL || (*link)->due_ns > now_ns) {
        return NULL;
    }
    Parcel *parcel = *link;

    *link = parcel->next;
    if (inbox->last == parcel) {
        inbox->last = before;
    }
    parcel->next = NULL;
    return parcel;
}

void kvg_inbox_clear(Inbox *inbox)
{
    kvg_parcels_free(inbox->first);
    kvg_free(inbox->given);
    *inbox = (Inbox){ 0 };
}

void kvg_inbox_release(Inbox *inbox, int from)
{
    for (Parcel *parcel = inbox->first; parcel != NULL; parcel = parcel->next) {
        if (parcel->from == from) {
            parcel->held = 0;
        }
    }
}

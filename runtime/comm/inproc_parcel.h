/* Parcels: messages and records on their way between ranks of one process, and the inboxes they wait in. Private.
 *
 *   inbox   sorted by (due time, order of sending); the first that is due and not held is the next to give
 *   spares  parcels not in use, so that a post need not allocate */
#ifndef KVG_INPROC_PARCEL_H
#define KVG_INPROC_PARCEL_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/status.h>

typedef struct Parcel {
    struct Parcel *next;
    uint64_t       due_ns;
    int            from;
    int            held;     /* sent while its sender was frozen; released when it thaws */
    size_t         capacity; /* bytes that fit into `bytes` */
    size_t         byte_count;
    uint64_t       bytes[]; /* uint64_t for alignment */
} Parcel;

typedef struct Inbox {
    Parcel *first, *last;
    Parcel *given; /* lent to the reader until its next call */
} Inbox;

typedef struct Spares {
    Parcel *first;
    size_t  count;
    size_t  capacity; /* of each, in bytes */
} Spares;

KvgStatus kvg_parcel_new(size_t capacity, Parcel **parcel);
void      kvg_parcels_free(Parcel *first);

/* Makes at least `count` spares of `capacity` bytes stand by. */
KvgStatus kvg_spares_ensure(Spares *spares, size_t count, size_t capacity);
/* Cannot fail: kvg_spares_ensure paid for it. */
Parcel *kvg_spares_take(Spares *spares);
void    kvg_spares_put(Spares *spares, Parcel *parcel);

void kvg_inbox_put(Inbox *inbox, Parcel *parcel);
/* Takes the first parcel that may be read now out of the inbox; NULL when none may. */
Parcel *kvg_inbox_take(Inbox *inbox, uint64_t now_ns);
void    kvg_inbox_clear(Inbox *inbox);
/* The sender has thawed: what it sent meanwhile is held no longer. */
void kvg_inbox_release(Inbox *inbox, int from);

#endif

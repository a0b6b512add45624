/* What one rank says in its messages, edited on the way to the others. For tests. */
#ifndef KVG_TEST_WIRE_EDIT_H
#define KVG_TEST_WIRE_EDIT_H

#include <check.h>
#include <string.h>

#include "pp/internal.h"

enum { WIRE_BODY_MAX = 1 << 20 };

/* Edits a body in place; returns its new length, which is no more than it was. */
typedef size_t (*WireEdit)(const KvMessageHeader *header, uint8_t *body, size_t bytes);

static struct {
    KvComm    inner; /* of the rank whose words are edited */
    KvCommOps ops;
    WireEdit  edit; /* NULL: as they are */
} wire;

static inline KvgStatus wire_send(void *self, int peer, const void *bytes, size_t byte_count)
{
    static uint8_t  copy[sizeof(KvMessageHeader) + WIRE_BODY_MAX];
    KvMessageHeader header;

    ck_assert_uint_le(byte_count, sizeof copy);
    memcpy(&header, bytes, sizeof header);
    memcpy(copy, bytes, byte_count);
    if (wire.edit != NULL) byte_count = sizeof header + wire.edit(&header, copy + sizeof header, byte_count - sizeof header);
    return wire.inner.ops->send(self, peer, copy, byte_count);
}

static inline void edit_messages_of(KvComm *comm, WireEdit edit)
{
    if (comm->ops != &wire.ops) wire.inner = *comm;
    wire.ops = *wire.inner.ops;
    wire.ops.send = wire_send;
    wire.edit = edit;
    comm->ops = &wire.ops;
}

#endif

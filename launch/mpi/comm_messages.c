/* Messages over MPI: any size, at set-up and when settling.
 *
 * Out: a copy and an MPI_Isend, kept until it is done. In: MPI_Improbe matches, MPI_Imrecv receives; several may be
 * under way, and a message is given once it is here and no earlier one of its sender is still coming: one that never
 * ends, since its sender died, holds up nobody else. */
#include "launch/mpi/comm_internal.h"

#include <string.h>

#include "launch/mpi/mpi_util.h"
#include "runtime/base/memory.h"
#include "runtime/comm/clock.h"

static KvgStatus message_new(int peer, size_t byte_count, MpiMessage **message)
{
    void *memory = NULL;

    KVG_TRY(kvg_calloc(1, sizeof(MpiMessage) + byte_count, "a message", &memory));
    *message = memory;
    (*message)->request = MPI_REQUEST_NULL;
    (*message)->peer = peer;
    (*message)->byte_count = byte_count;
    return KVG_OK;
}

static int message_done(MpiMessage *message)
{
    if (!message->done && MPI_Test(&message->request, &message->done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        message->done = 1; /* a failed send is a lost peer's: liveness tells */
    }
    return message->done;
}

/* Frees what has left. */
static void outgoing_reap(MpiMessages *messages)
{
    for (MpiMessage **link = &messages->outgoing; *link != NULL;) {
        MpiMessage *message = *link;

        if (message_done(message)) {
            *link = message->next;
            kvg_free(message);
        } else {
            link = &message->next;
        }
    }
}

KvgStatus kvg_mpi_messages_send(MpiComm *self, int peer, const void *bytes, size_t byte_count)
{
    MpiMessage *message = NULL;

    if (peer < 0 || peer >= self->ranks || peer == self->rank) {
        return kvg_fail(KVG_EINVAL, "MPI comm: rank %d sends to rank %d of %d; a peer is another rank", self->rank, peer, self->ranks);
    }
    if (byte_count > INT32_MAX) {
        return kvg_fail(KVG_EINVAL, "MPI comm: a message of %zu bytes to rank %d; at most %d, cut it", byte_count, peer, INT32_MAX);
    }
    outgoing_reap(&self->messages);
    KVG_TRY(message_new(peer, byte_count, &message));
    if (byte_count > 0) {
        memcpy(message->bytes, bytes, byte_count);
    }
    int code = MPI_Isend(message->bytes, (int)byte_count, MPI_BYTE, peer, KVG_MPI_TAG_MESSAGE, self->comm, &message->request);

    if (code != MPI_SUCCESS) {
        kvg_free(message);
        return kvg_mpi_fail(code, "MPI comm, sending a message");
    }
    message->next = self->messages.outgoing;
    self->messages.outgoing = message;
    return KVG_OK;
}

/* Matches the next message, if there is one, into messages->matched. */
static KvgStatus incoming_match(MpiComm *self)
{
    MpiMessages *messages = &self->messages;
    MPI_Status   status;
    int          flag = 0;

    if (messages->matched != MPI_MESSAGE_NULL) {
        return KVG_OK; /* one waits for memory */
    }
    KVG_MPI_TRY(MPI_Improbe(MPI_ANY_SOURCE, KVG_MPI_TAG_MESSAGE, self->comm, &flag, &messages->matched, &status),
                "MPI comm, looking for a message");
    if (!flag) {
        messages->matched = MPI_MESSAGE_NULL;
        return KVG_OK;
    }
    messages->matched_peer = status.MPI_SOURCE;
    MPI_Get_count(&status, MPI_BYTE, &messages->matched_bytes);
    return KVG_OK;
}

/* Begins to receive what is matched. ENOMEM: it stays matched. */
static KvgStatus incoming_begin(MpiComm *self)
{
    MpiMessages *messages = &self->messages;
    MpiMessage  *message = NULL, **link = &messages->incoming;

    KVG_TRY(message_new(messages->matched_peer, (size_t)messages->matched_bytes, &message));
    int code = MPI_Imrecv(message->bytes, messages->matched_bytes, MPI_BYTE, &messages->matched, &message->request);

    if (code != MPI_SUCCESS) {
        kvg_free(message);
        return kvg_mpi_fail(code, "MPI comm, receiving a message");
    }
    messages->matched = MPI_MESSAGE_NULL;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = message;
    return KVG_OK;
}

/* Takes the first message out that is here and has no earlier one of its sender before it. */
static MpiMessage *incoming_take(MpiMessages *messages)
{
    for (MpiMessage **link = &messages->incoming; *link != NULL; link = &(*link)->next) {
        MpiMessage *message = *link;
        int         first = 1;

        for (const MpiMessage *earlier = messages->incoming; earlier != message; earlier = earlier->next) {
            first &= earlier->peer != message->peer;
        }
        if (first && message_done(message)) {
            *link = message->next;
            return message;
        }
    }
    return NULL;
}

KvgStatus kvg_mpi_messages_recv(MpiComm *self, int *peer, const void **bytes, size_t *byte_count)
{
    MpiMessages *messages = &self->messages;

    *peer = -1;
    *bytes = NULL;
    *byte_count = 0;
    kvg_free(messages->given);
    messages->given = NULL;
    outgoing_reap(messages);
    KVG_TRY(incoming_match(self));
    if (messages->matched != MPI_MESSAGE_NULL) {
        KVG_TRY(incoming_begin(self));
    }
    messages->given = incoming_take(messages);
    if (messages->given != NULL) {
        *peer = messages->given->peer;
        *bytes = messages->given->bytes;
        *byte_count = messages->given->byte_count;
    }
    return KVG_OK;
}

/* Frees a list; a message still in flight at the deadline is let go and its memory stays. */
static int list_close(MpiMessage *message, uint64_t deadline_ns)
{
    int all_done = 1;

    while (message != NULL) {
        MpiMessage *next = message->next;
        int         done = message->done || kvg_mpi_settle(1, &message->request, deadline_ns);

        if (done) {
            kvg_free(message);
        } else {
            MPI_Request_free(&message->request);
        }
        all_done &= done;
        message = next;
    }
    return all_done;
}

int kvg_mpi_messages_close(MpiComm *self, uint64_t deadline_ns)
{
    MpiMessages *messages = &self->messages;
    int          done = messages->matched == MPI_MESSAGE_NULL;

    done &= list_close(messages->outgoing, deadline_ns);
    for (MpiMessage *message = messages->incoming; message != NULL; message = message->next) {
        if (!message->done) {
            MPI_Cancel(&message->request);
        }
    }
    done &= list_close(messages->incoming, deadline_ns);
    kvg_free(messages->given);
    *messages = (MpiMessages){ .matched = MPI_MESSAGE_NULL };
    return done;
}
